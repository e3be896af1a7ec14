/* segment: a sealed generation (segment_format.h), opened by its end and read block by block.
 *
 * Nothing that the file says is believed before its checksum holds, and no number in it makes this
 * allocate more than the file's own size bounds (a block is at most 256 KiB). ERR_CORRUPT carries
 * the byte of the file. Descriptors are the caller's. Any thread. Blocks. */
#ifndef JOURNAL_SEGMENT_H
#define JOURNAL_SEGMENT_H

#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "base/uuid.h"

struct segment_block {
    uint64_t at;       /* in the file */
    uint64_t plain_at; /* in the generation, or in the batch table */
    uint32_t bytes, plain_bytes;
    uint32_t crc, plain_crc;
};

struct segment {
    uint64_t file_bytes, plain_bytes, events, batches;
    struct uuid first_id, last_id;
    uint8_t head[SHA256_LEN], plain_sha256[SHA256_LEN];
    struct segment_block *data, *rows; /* rows is in data's memory */
    uint32_t data_count, rows_count;
};

/* Reads trailer and directory. ERR_CORRUPT, ERR_UNSUPPORTED (a later version), ERR_IO,
 * ERR_NO_MEMORY. */
int segment_open(int fd, struct segment **out, struct err *e) MUST_CHECK;
void segment_free(struct segment *s); /* NULL is fine */

/* Decompresses data block n into p, which has room for its plain bytes. */
int segment_read_data(int fd, const struct segment *s, uint32_t n, void *p,
                      struct err *e) MUST_CHECK;

struct segment_batch {
    uint64_t offset, bytes; /* in the generation */
    uint32_t events;
    struct slice source, batch_id; /* with quotes; valid until the next call */
    uint8_t digest[SHA256_LEN];
    struct uuid first_id, last_id;
};

/* Walks the batch table. */
struct segment_walk {
    int fd;
    const struct segment *segment;
    char *block; /* SEGMENT_BLOCK_BYTES */
    size_t block_len, at;
    uint32_t next_block;
    uint64_t batches, events, offset; /* of what was given so far */
    struct uuid last_id;
};

void segment_walk_start(struct segment_walk *w, int fd, const struct segment *s);
/* 1: the next batch. 0: the end, and the batches were exactly the generation: each byte and each
 * event in one of them, in order. ERR_CORRUPT, ERR_IO, ERR_NO_MEMORY. */
int segment_walk_next(struct segment_walk *w, struct segment_batch *b, struct err *e) MUST_CHECK;
void segment_walk_stop(struct segment_walk *w);

#endif
