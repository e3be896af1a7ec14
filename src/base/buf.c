/* Growth doubles, starts at 256 bytes, and never passes the limit. A failed buffer stays failed
 * until it is cleared: callers check once, at the end, and a truncated result can never be taken
 * for a whole one. */
#include "base/buf.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"

void buf_init(struct buf *b, size_t limit)
{
    *b = (struct buf){.limit = limit};
}

void buf_free(struct buf *b)
{
    size_t limit = b->limit;
    free(b->ptr);
    *b = (struct buf){.limit = limit};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
    b->no_memory = false;
}

bool buf_reserve(struct buf *b, size_t n)
{
    ensure(b->len <= b->cap);
    if (b->failed) {
        return false;
    }
    if (n <= b->cap - b->len) {
        return true;
    }
    size_t max = b->limit != 0 ? b->limit : SIZE_MAX / 4;
    if (n > max || b->len > max - n) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + n;
    size_t cap = b->cap < 256 ? 256 : b->cap;
    while (cap < need) {
        cap *= 2;
    }
    if (cap > max) {
        cap = max;
    }
    char *ptr = realloc(b->ptr, cap);
    if (ptr == NULL) {
        b->failed = true;
        b->no_memory = true;
        return false;
    }
    b->ptr = ptr;
    b->cap = cap;
    return true;
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    char tmp[20];
    size_t i = sizeof tmp;
    do {
        tmp[--i] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    buf_put(b, tmp + i, sizeof tmp - i);
}

void buf_put_i64(struct buf *b, int64_t v)
{
    if (v < 0) {
        buf_put_char(b, '-');
        buf_put_u64(b, (uint64_t)0 - (uint64_t)v);
        return;
    }
    buf_put_u64(b, (uint64_t)v);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ensure(n >= 0);
    if (!buf_reserve(b, (size_t)n + 1)) {
        return;
    }
    va_start(ap, fmt);
    int again = vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    ensure(again == n);
    b->len += (size_t)n;
}
