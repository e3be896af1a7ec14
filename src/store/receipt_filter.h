/* receipt_filter: a Bloom filter over the keys of the large receipts table. "No" is certain and
 * saves a descent into a tree that may not be in memory; "maybe" is asked of the table. It answers
 * only once it holds every key; a key that was added for a transaction that vanished does no harm.
 *
 * Threads: one fills it from the table while the loop adds what it moves there; words are atomic,
 * `ready` is published by the filler. */
#ifndef STORE_RECEIPT_FILTER_H
#define STORE_RECEIPT_FILTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RECEIPT_FILTER_BYTES_MIN (UINT64_C(1) << 20)
#define RECEIPT_FILTER_BYTES_MAX (UINT64_C(64) << 20)
/* Past so many keys a byte of filter a larger one pays (12 bits a key err once in some 200). */
#define RECEIPT_FILTER_KEYS_MAX(bytes) ((bytes)*8 / 12)

struct receipt_filter {
    _Atomic uint64_t *word;
    uint64_t bytes;
    uint64_t seed[2];
    atomic_bool ready;  /* holds every key of the table */
    atomic_bool failed; /* the filler gave up; try a new one later */
};

/* Sized for twice so many keys, within the bounds. NULL: out of memory. */
struct receipt_filter *receipt_filter_new(uint64_t keys, const uint64_t seed[2]);
void receipt_filter_free(struct receipt_filter *f);
void receipt_filter_add(struct receipt_filter *f, int64_t project, const uint8_t uuid[16]);
bool receipt_filter_maybe(const struct receipt_filter *f, int64_t project, const uint8_t uuid[16]);

/* The hash of a key; the seed is random, so that nobody can choose uuids that collide. */
uint64_t receipt_hash(const uint64_t seed[2], int64_t project, const uint8_t uuid[16]);

#endif
