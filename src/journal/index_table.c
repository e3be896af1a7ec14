/* index_table: linear probing in a power-of-two array, at most three quarters full.
 *
 * Invariants: a key lies at its home slot or behind it, with no free slot between; a removal closes
 * the gap by moving later keys back, so there are no tombstones and a table that only sees inserts
 * and removals of the same keys never degrades. A key of 0 bytes marks a free slot (no batch is
 * empty).
 *
 * The home slot comes from the fingerprint mixed with a seed that differs from process to process:
 * a client that searches for batch ids with equal fingerprint bits gains nothing.
 *
 * Answers: no memory. Aborts: a key of 0 bytes or 0 events. Nothing here touches the disk. */
#include "journal/index_table.h"

#include <stdlib.h>
#include <string.h>

#include "journal/index_format.h"

#define INDEX_TABLE_SLOTS_MIN 64u

static size_t index_table_room(size_t slot_count)
{
    return slot_count / 4 * 3;
}

static size_t index_table_home(const struct index_table *t, const uint8_t fingerprint[16])
{
    uint64_t h = index_get_u64(fingerprint) ^ t->seed;

    h *= UINT64_C(0x9e3779b97f4a7c15);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return (size_t)h & (t->slot_count - 1);
}

struct index_table *index_table_make(uint64_t seed, size_t key_count_expected)
{
    struct index_table *t = calloc(1, sizeof *t);
    size_t slot_count = INDEX_TABLE_SLOTS_MIN;

    if (t == NULL) {
        return NULL;
    }
    while (index_table_room(slot_count) < key_count_expected) {
        ensure(slot_count <= SIZE_MAX / 2);
        slot_count *= 2;
    }
    t->slots = calloc(slot_count, sizeof *t->slots);
    if (t->slots == NULL) {
        free(t);
        return NULL;
    }
    t->slot_count = slot_count;
    t->seed = seed;
    atomic_init(&t->refs, 1);
    return t;
}

struct index_table *index_table_hold(struct index_table *t)
{
    unsigned before = atomic_fetch_add(&t->refs, 1);

    ensure(before > 0);
    return t;
}

void index_table_release(struct index_table *t)
{
    unsigned before;

    if (t == NULL) {
        return;
    }
    before = atomic_fetch_sub(&t->refs, 1);
    ensure(before > 0);
    if (before == 1) {
        free(t->slots);
        free(t);
    }
}

/* Puts a key into the first free slot from its home on; there is one. */
static void index_table_put(struct index_table *t, const struct index_key *key)
{
    size_t at = index_table_home(t, key->fingerprint);

    while (t->slots[at].bytes != 0) {
        at = (at + 1) & (t->slot_count - 1);
    }
    t->slots[at] = *key;
}

static int index_table_grow(struct index_table *t)
{
    struct index_key *old = t->slots;
    size_t old_count = t->slot_count;
    struct index_key *slots;

    ensure(old_count <= SIZE_MAX / 2);
    slots = calloc(old_count * 2, sizeof *slots);
    if (slots == NULL) {
        return ERR_NO_MEMORY;
    }
    t->slots = slots;
    t->slot_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].bytes != 0) {
            index_table_put(t, &old[i]);
        }
    }
    free(old);
    return 0;
}

int index_table_insert(struct index_table *t, const struct index_key *key)
{
    ensure(key->bytes != 0);
    ensure(key->events != 0);
    if (t->key_count >= index_table_room(t->slot_count)) {
        int result = index_table_grow(t);

        if (result != 0) {
            return result;
        }
    }
    index_table_put(t, key);
    t->key_count++;
    ensure(t->key_count < t->slot_count);
    return 0;
}

/* Frees slot `hole`, moving back the keys behind it whose probe path leads through it. */
static void index_table_close_gap(struct index_table *t, size_t hole)
{
    size_t mask = t->slot_count - 1;
    size_t at = hole;

    for (;;) {
        size_t home;

        at = (at + 1) & mask;
        if (t->slots[at].bytes == 0) {
            break;
        }
        home = index_table_home(t, t->slots[at].fingerprint);
        /* The key at `at` may move to the hole if its home is not between them. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            t->slots[hole] = t->slots[at];
            hole = at;
        }
    }
    memset(&t->slots[hole], 0, sizeof t->slots[hole]);
}

bool index_table_remove(struct index_table *t, const struct index_key *key)
{
    size_t at = index_table_home(t, key->fingerprint);

    while (t->slots[at].bytes != 0) {
        if (index_key_cmp(&t->slots[at], key) == 0) {
            index_table_close_gap(t, at);
            ensure(t->key_count > 0);
            t->key_count--;
            return true;
        }
        at = (at + 1) & (t->slot_count - 1);
    }
    return false;
}

int index_table_find(const struct index_table *t, const uint8_t fingerprint[16], index_visit_fn *fn,
                     void *ctx)
{
    size_t at = index_table_home(t, fingerprint);

    while (t->slots[at].bytes != 0) {
        if (memcmp(t->slots[at].fingerprint, fingerprint, INDEX_FINGERPRINT_LEN) == 0) {
            /* A copy: the visitor may not keep us from moving keys, nor see them move. */
            struct index_key key = t->slots[at];
            int result = fn(ctx, &key);

            if (result != 0) {
                return result;
            }
        }
        at = (at + 1) & (t->slot_count - 1);
    }
    return 0;
}

static int index_table_cmp(const void *a, const void *b)
{
    return index_key_cmp(a, b);
}

struct index_key *index_table_sorted(const struct index_table *t)
{
    struct index_key *keys = malloc((t->key_count + 1) * sizeof *keys);
    size_t n = 0;

    if (keys == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < t->slot_count; i++) {
        if (t->slots[i].bytes != 0) {
            keys[n] = t->slots[i];
            n++;
        }
    }
    ensure(n == t->key_count);
    qsort(keys, n, sizeof *keys, index_table_cmp);
    return keys;
}
