/* A list of chunks; the newest serves. Large requests get a chunk of their own size. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/ensure.h"

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t cap;
    _Alignas(max_align_t) char data[];
};

void arena_init(struct arena *a, size_t limit_bytes)
{
    *a = (struct arena){.limit_bytes = limit_bytes};
}

void arena_free(struct arena *a)
{
    struct arena_chunk *c = a->head;
    while (c != NULL) {
        struct arena_chunk *next = c->next;
        free(c);
        c = next;
    }
    *a = (struct arena){.limit_bytes = a->limit_bytes};
}

void *arena_alloc(struct arena *a, size_t n)
{
    const size_t align = _Alignof(max_align_t);
    if (n > SIZE_MAX / 4) {
        return NULL;
    }
    size_t need = (n + align - 1) / align * align;
    if (need == 0) {
        need = align;
    }
    if (a->limit_bytes != 0 && need > a->limit_bytes - a->used_bytes) {
        return NULL;
    }
    struct arena_chunk *c = a->head;
    if (c == NULL || need > c->cap - c->used) {
        size_t cap = c == NULL ? 4096 : c->cap < (1u << 20) ? c->cap * 2 : c->cap;
        if (cap < need) {
            cap = need;
        }
        c = malloc(sizeof *c + cap);
        if (c == NULL) {
            return NULL;
        }
        c->next = a->head;
        c->used = 0;
        c->cap = cap;
        a->head = c;
    }
    void *p = c->data + c->used;
    c->used += need;
    a->used_bytes += need;
    ensure(c->used <= c->cap);
    return p;
}

void *arena_calloc(struct arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / 4 / size) {
        return NULL;
    }
    void *p = arena_alloc(a, count * size);
    if (p != NULL) {
        memset(p, 0, count * size);
    }
    return p;
}

char *arena_copy(struct arena *a, struct slice s)
{
    char *p = arena_alloc(a, s.len + 1);
    if (p != NULL) {
        if (s.len != 0) {
            memcpy(p, s.ptr, s.len);
        }
        p[s.len] = '\0';
    }
    return p;
}
