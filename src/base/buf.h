/* buf: a growing byte buffer with one owner.
 *
 * Zero-initialise it, or give it a limit with buf_init; free it with buf_free. Appending past the
 * limit or failing to allocate sets `failed` (sticky) and drops the bytes, so that a chain of
 * appends needs one check at its end. Blocks: no. Threads: one owner at a time. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

struct buf {
    char *ptr;
    size_t len;
    size_t cap;
    size_t limit; /* 0: none */
    bool failed;
    bool no_memory; /* it failed for want of memory, not for its limit */
};

/* An empty buffer that refuses to hold more than limit bytes (0: no limit). Allocates nothing. */
void buf_init(struct buf *b, size_t limit);
/* Releases the memory; the buffer is empty and usable again, its limit kept. */
void buf_free(struct buf *b);
/* Empties it and clears `failed`; keeps the memory. */
void buf_clear(struct buf *b);
/* Room for n more bytes behind len; false (and failed) when the limit or memory forbids. */
bool buf_reserve(struct buf *b, size_t n);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_put_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The common case of appending costs no call, and little for a text of known length. */
static inline void buf_put(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || ((b->failed || n > b->cap - b->len) && !buf_reserve(b, n))) {
        return;
    }
    memcpy(b->ptr + b->len, p, n);
    b->len += n;
}

static inline void buf_put_slice(struct buf *b, struct slice s)
{
    buf_put(b, s.ptr, s.len);
}

static inline void buf_put_cstr(struct buf *b, const char *s)
{
    buf_put(b, s, strlen(s));
}

static inline void buf_put_char(struct buf *b, char c)
{
    buf_put(b, &c, 1);
}

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){.ptr = b->ptr, .len = b->len};
}

#endif
