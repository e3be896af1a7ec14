/* Open addressing over a power of two, at most half full; keys are hashes already. */
#include "tests/lib/seen_set.h"

#include <stdlib.h>

#include "base/ensure.h"

#define SEEN_FIRST (1u << 16)

static void grow(struct seen_set *s)
{
    struct seen_set bigger = {.cap = s->cap == 0 ? SEEN_FIRST : s->cap * 2};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    ensure(bigger.slots != NULL);
    for (size_t i = 0; i < s->cap; i++) {
        if (s->slots[i] != 0) {
            (void)seen_add(&bigger, s->slots[i]);
        }
    }
    free(s->slots);
    *s = bigger;
}

bool seen_add(struct seen_set *s, uint64_t key)
{
    key = key == 0 ? 1 : key;
    if (s->count * 2 >= s->cap) {
        grow(s);
    }
    size_t at = (key ^ key >> 32) & (s->cap - 1);
    for (; s->slots[at] != 0; at = (at + 1) & (s->cap - 1)) {
        if (s->slots[at] == key) {
            return false;
        }
    }
    s->slots[at] = key;
    s->count++;
    return true;
}

void seen_free(struct seen_set *s)
{
    free(s->slots);
    *s = (struct seen_set){0};
}
