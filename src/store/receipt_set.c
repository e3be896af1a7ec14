/* The receipts in memory: a list and an open-addressed table of positions in it.
 *
 * Invariants: at most half of the slots are taken; every entry is found from its hash without
 * meeting a free slot. Entries leave only from the end, newest first, so the slot of the last one
 * is the end of its chain as it was before, and freeing it restores the table as it was. */
#include <stdlib.h>

#include "base/ensure.h"
#include "store/receipts.h"

#define FIRST_CAP 1024u
#define LAST_CAP  (UINT32_C(1) << 30)

static uint32_t first_slot(const struct receipt_set *set, const uint64_t seed[2], int64_t project,
                           const struct uuid *uuid)
{
    return (uint32_t)receipt_hash(seed, project, uuid->byte) & (set->slot_count - 1);
}

const struct receipt *receipt_set_find(const struct receipt_set *set, const uint64_t seed[2],
                                       int64_t project, const struct uuid *uuid)
{
    if (set->count == 0) {
        return NULL;
    }
    uint32_t at = first_slot(set, seed, project, uuid);
    while (set->slot[at] != 0) {
        const struct receipt *r = &set->entry[set->slot[at] - 1];
        if (r->project == project && uuid_cmp(&r->uuid, uuid) == 0) {
            return r;
        }
        at = (at + 1) & (set->slot_count - 1);
    }
    return NULL;
}

static void put_slot(struct receipt_set *set, const uint64_t seed[2], uint32_t position)
{
    const struct receipt *r = &set->entry[position];
    uint32_t at = first_slot(set, seed, r->project, &r->uuid);

    while (set->slot[at] != 0) {
        at = (at + 1) & (set->slot_count - 1);
    }
    set->slot[at] = position + 1;
}

/* The list is grown before the table: if the second fails, the first is merely roomier. */
static int grow(struct receipt_set *set, const uint64_t seed[2], struct err *e)
{
    uint32_t cap = set->cap == 0 ? FIRST_CAP : set->cap * 2;
    struct receipt *entry;
    uint32_t *slot;

    ensure(set->cap < LAST_CAP);
    entry = realloc(set->entry, cap * sizeof *entry);
    if (entry == NULL) {
        return err_set(e, ERR_NO_MEMORY, "keep one more receipt: out of memory");
    }
    set->entry = entry;
    slot = calloc((size_t)cap * 2, sizeof *slot);
    if (slot == NULL) {
        return err_set(e, ERR_NO_MEMORY, "find one more receipt: out of memory");
    }
    free(set->slot);
    set->slot = slot;
    set->slot_count = cap * 2;
    set->cap = cap;
    for (uint32_t i = 0; i < set->count; i++) {
        put_slot(set, seed, i);
    }
    return 0;
}

int receipt_set_add(struct receipt_set *set, const uint64_t seed[2], const struct receipt *r,
                    struct err *e)
{
    ensure(set->count == 0 || set->entry[set->count - 1].event_id < r->event_id);
    if (set->count == set->cap) {
        int code = grow(set, seed, e);
        if (code < 0) {
            return code;
        }
    }
    set->entry[set->count] = *r;
    put_slot(set, seed, set->count);
    set->count++;
    return 0;
}

void receipt_set_cut(struct receipt_set *set, const uint64_t seed[2], uint32_t count)
{
    ensure(count <= set->count);
    while (set->count > count) {
        const struct receipt *r = &set->entry[set->count - 1];
        uint32_t at = first_slot(set, seed, r->project, &r->uuid);
        while (set->slot[at] != set->count) {
            ensure(set->slot[at] != 0);
            at = (at + 1) & (set->slot_count - 1);
        }
        set->slot[at] = 0;
        set->count--;
    }
}

void receipt_set_free(struct receipt_set *set)
{
    free(set->entry);
    free(set->slot);
    *set = (struct receipt_set){0};
}
