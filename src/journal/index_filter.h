/* index_filter: a Bloom filter over the fingerprints of one run, in memory, made while the run is
 * written or checked. "No" is certain and saves the read of a block; "maybe" is asked of the file.
 * It costs 12 bits a key and errs once in some 200 times. Without memory there is no filter, and
 * every lookup reads. Not stored: it says nothing that its run does not say. */
#ifndef JOURNAL_INDEX_FILTER_H
#define JOURNAL_INDEX_FILTER_H

#include <stdbool.h>
#include <stdint.h>

struct index_filter {
    uint64_t *words; /* NULL: answers "maybe" to everything */
    uint32_t word_count;
};

/* For so many keys. Never fails; see words. */
void index_filter_start(struct index_filter *f, uint64_t key_count);
void index_filter_free(struct index_filter *f);
void index_filter_add(struct index_filter *f, const uint8_t fingerprint[16]);
/* Any thread, once all keys are in. */
bool index_filter_maybe(const struct index_filter *f, const uint8_t fingerprint[16]);

#endif
