/* index_budget: how much memory open runs may hold for fences and filters. What is not granted
 * stays on disk and is read there when it is asked: slower, never wrong.
 *
 * A large piece (over a 64th of the limit) leaves the last eighth alone, so that the small runs
 * that come later, which are asked as often, get theirs. Any thread. */
#ifndef JOURNAL_INDEX_BUDGET_H
#define JOURNAL_INDEX_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/ensure.h"

struct index_budget {
    uint64_t limit;
    atomic_uint_fast64_t used;
};

static inline bool index_budget_take(struct index_budget *b, uint64_t bytes)
{
    uint64_t limit = bytes > b->limit / 64 ? b->limit - b->limit / 8 : b->limit;
    uint_fast64_t used = atomic_load(&b->used);

    do {
        if (bytes > limit || used > limit - bytes) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
    return true;
}

static inline void index_budget_give(struct index_budget *b, uint64_t bytes)
{
    uint_fast64_t before = atomic_fetch_sub(&b->used, bytes);

    ensure(before >= bytes);
}

#endif
