/* index_table: batch keys in memory: an open-addressing hash table of struct index_key, several of
 * one fingerprint allowed.
 *
 * Threads: one writer and no readers while it is the active table; once frozen it never changes and
 * any number of threads may read it. It is counted: whoever keeps a pointer holds a reference. */
#ifndef JOURNAL_INDEX_TABLE_H
#define JOURNAL_INDEX_TABLE_H

#include <stdatomic.h>

#include "journal/index.h"

struct index_table {
    struct index_key *slots; /* bytes == 0: free */
    size_t slot_count;       /* a power of two */
    size_t key_count;
    uint64_t seed;
    atomic_uint refs;
};

/* A table with one reference, and room for so many keys before it grows. NULL without memory. */
struct index_table *index_table_make(uint64_t seed, size_t key_count_expected);
struct index_table *index_table_hold(struct index_table *t);
/* Drops a reference, frees with the last. NULL is fine. */
void index_table_release(struct index_table *t);

/* ERR_NO_MEMORY leaves the table as it was. */
int index_table_insert(struct index_table *t, const struct index_key *key) MUST_CHECK;
/* Removes the key of this fingerprint, generation and offset; false when there is none. */
bool index_table_remove(struct index_table *t, const struct index_key *key);
/* Visits all keys of the fingerprint, as index_find does. */
int index_table_find(const struct index_table *t, const uint8_t fingerprint[16], index_visit_fn *fn,
                     void *ctx) MUST_CHECK;
/* All keys in the order of a run, key_count of them; the caller frees. NULL without memory. */
struct index_key *index_table_sorted(const struct index_table *t);

#endif
