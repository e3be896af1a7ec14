/* arena: memory of one request, freed in one call (STYLE 16).
 *
 * Zero-initialise it or call arena_init with a limit. Chunks double from 4 KiB. arena_alloc returns
 * NULL past the limit or without memory; nothing is freed singly. Alignment is that of max_align_t.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/slice.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t used_bytes;  /* handed out, for the limit */
    size_t limit_bytes; /* 0: none */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_free(struct arena *a);
/* Uninitialised memory, or NULL. */
void *arena_alloc(struct arena *a, size_t n);
/* Zeroed array, overflow checked; or NULL. */
void *arena_calloc(struct arena *a, size_t count, size_t size);
/* A copy of s that ends in a NUL (not counted); or NULL. */
char *arena_copy(struct arena *a, struct slice s);

#endif
