/* segment_write: makes the file of a sealed generation, batch by batch.
 *
 * Memory: one block, one block of the batch table, the directory (32 bytes a block). The bytes are
 * a function of the batches alone, so sealing a generation again gives the same file. */
#ifndef JOURNAL_SEGMENT_WRITE_H
#define JOURNAL_SEGMENT_WRITE_H

#include <stdbool.h>

#include "base/buf.h"
#include "journal/segment.h"

struct segment_writer {
    int fd;
    void *compressor; /* ZSTD_CCtx */
    char *packed;     /* room for a compressed block and what stands before it */
    struct buf block, rows;
    struct buf data_entries, row_entries;
    struct segment sum;       /* of what was added; data and rows are not used */
    uint64_t rows_plain;      /* plain bytes of finished batch blocks */
    uint64_t handed;          /* bytes of the file whose writing back was begun */
    struct sha256 file, data; /* running */
};

/* Starts writing at offset 0 of fd, an empty file of the caller's. ERR_NO_MEMORY. */
int segment_writer_start(struct segment_writer *w, int fd, struct err *e) MUST_CHECK;
/* One batch and its lines, b->bytes of them. ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY; ERR_UNSUPPORTED
 * when it is larger, or has longer names, than we would write. */
int segment_writer_add(struct segment_writer *w, const struct segment_batch *b, const char *lines,
                       struct err *e) MUST_CHECK;
/* Directory and trailer; the file is whole, and not synced. At least one batch was added. */
int segment_writer_finish(struct segment_writer *w, const uint8_t head[SHA256_LEN],
                          uint8_t file_sha256[SHA256_LEN], struct err *e) MUST_CHECK;
void segment_writer_stop(struct segment_writer *w);

#endif
