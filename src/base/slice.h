/* slice: bytes that somebody else owns. A slice never owns; it is valid as long as its owner says.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *ptr;
    size_t len;
};

/* A slice of a string literal, without its NUL. */
#define SLICE(lit) ((struct slice){.ptr = "" lit, .len = sizeof(lit) - 1})

static inline struct slice slice_of(const void *ptr, size_t len)
{
    return (struct slice){.ptr = (const char *)ptr, .len = len};
}

static inline struct slice slice_cstr(const char *s)
{
    return (struct slice){.ptr = s, .len = strlen(s)};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool slice_starts(struct slice s, struct slice prefix)
{
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.ptr, prefix.ptr, prefix.len) == 0);
}

/* Byte order; a prefix sorts before what it begins. */
static inline int slice_cmp(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int c = n == 0 ? 0 : memcmp(a.ptr, b.ptr, n);
    if (c != 0) {
        return c;
    }
    return a.len < b.len ? -1 : a.len > b.len ? 1 : 0;
}

static inline struct slice slice_from(struct slice s, size_t start)
{
    return start >= s.len ? (struct slice){.ptr = s.ptr + s.len, .len = 0}
                          : (struct slice){.ptr = s.ptr + start, .len = s.len - start};
}

#endif
