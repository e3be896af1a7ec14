/* bytes: the plain bytes of a generation, whatever file holds them: its lines as they were written,
 * or a sealed segment (segment_format.h). Offsets everywhere else in the journal are offsets into
 * these.
 *
 * A bytes_file is an open file: the tail, a closed generation. It is shared by all who read it and
 * does not change but for what is appended to a tail. A bytes_reader is one reader's place for it:
 * it keeps the last block that had to be read as a whole to be checked. One thread at a time per
 * reader.
 *
 * What can be checked is checked at every read, before a byte of it is given out: of a segment, the
 * checksums of each block that is read; of a closed plain generation whose block checksums are
 * known, the CRC32C of each block of BYTES_CRC_BLOCK bytes.
 * What does not hold is ERR_CORRUPT with the generation and the byte, and is counted
 * (JOURNAL_CORRUPT_READS). */
#ifndef JOURNAL_BYTES_H
#define JOURNAL_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BYTES_CRC_BLOCK      (64u << 10)
#define BYTES_SEGMENT_SUFFIX ".ndjson.zst"

struct segment;

struct bytes_file {
    int fd;
    struct segment *segment; /* NULL: the bytes are in the file as they are */
    uint32_t ordinal;        /* for messages */
    unsigned users;          /* the owner's: those who hold it */
    /* Of a closed plain generation, borrowed; NULL: not known. */
    const uint32_t *block_crcs;
    uint32_t block_count;
    uint64_t bytes; /* what the checksums cover; only with block_crcs */
};

struct bytes_reader {
    const struct bytes_file *file;
    char *block; /* the last block that was read as a whole; NULL: none was */
    uint64_t block_number;
    size_t block_len; /* 0: nothing in it */
};

/* Takes fd over: bytes_file_close closes it. NULL without memory (fd stays the caller's). */
struct bytes_file *bytes_file_of(int fd, uint32_t ordinal);
/* Opens a generation's file: a segment when its name ends in BYTES_SEGMENT_SUFFIX. ERR_NOT_FOUND,
 * ERR_IO, ERR_NO_MEMORY; of a segment ERR_CORRUPT, ERR_UNSUPPORTED. */
int bytes_file_open(const char *path, uint32_t ordinal, struct bytes_file **out,
                    struct err *e) MUST_CHECK;
void bytes_file_close(struct bytes_file *f); /* NULL is fine */

/* Begins with nothing read; file must stay open until bytes_stop. No memory is taken before a
 * block has to be kept. */
void bytes_start(struct bytes_reader *r, const struct bytes_file *file);
/* Gives the memory up; reading may go on. */
void bytes_drop(struct bytes_reader *r);
void bytes_stop(struct bytes_reader *r);
/* Reads n plain bytes at `at`; fewer only at the end. The count, or ERR_IO, ERR_CORRUPT,
 * ERR_NO_MEMORY: then p holds nothing that may be used. Blocks. */
int64_t bytes_read(struct bytes_reader *r, void *p, size_t n, uint64_t at,
                   struct err *e) MUST_CHECK;

#endif
