/* acks: the file of acknowledgements that bench/load writes and bench/verify reads.
 *
 * A header of 64 bytes, then one record an acknowledged batch in the order of the answers. Integers
 * are those of the machine: both programs run on it within minutes of each other. */
#ifndef BENCH_ACKS_H
#define BENCH_ACKS_H

#include <stdint.h>

#include "base/ensure.h"

#define ACKS_MAGIC      "TMACKS1"
#define ACKS_PREFIX_MAX 23u

struct acks_header {
    char magic[8];
    char prefix[ACKS_PREFIX_MAX + 1]; /* batch id: prefix, '-', seq with 10 digits */
    uint32_t events_per_batch;
    uint32_t pool_count; /* batch seq carries the events of pooled batch seq % pool_count */
    uint64_t count;
    uint64_t reserved[2];
};
static_assert(sizeof(struct acks_header) == 64, "a header is 64 bytes");

struct ack {
    uint64_t seq;
    uint8_t first_event_id[16];
    uint8_t last_event_id[16];
};
static_assert(sizeof(struct ack) == 40, "a record is 40 bytes");

#endif
