/* warc_zstd: may this file be joined with others of its kind? (spec/artifacts.md section 9.3)
 *
 * A WARC-Zstd file is a row of Zstandard frames (RFC 8878) whose contents are WARC records. Joining
 * such files end to end gives another one, if no frame needs a dictionary, each says and proves its
 * own content (size and checksum), and none holds bytes of two records. This reads a file in pieces
 * and says whether that is so; nothing of it is kept.
 *
 * Refused: anything before the first frame; a dictionary frame, anywhere; legacy formats; a frame
 * without content size or checksum, or with a dictionary id; a window over WARC_ZSTD_WINDOW_BYTES;
 * bytes of two records in a frame; an end inside a record or a frame; no record at all. Skippable
 * frames are allowed, but not first; empty frames too.
 *
 * Pure: no file is touched. Memory: the decoder's, about the window. */
#ifndef STORE_ARTIFACT_WARC_ZSTD_H
#define STORE_ARTIFACT_WARC_ZSTD_H

#include "store/artifact/warc_record.h"

#define WARC_ZSTD_WINDOW_LOG   23
#define WARC_ZSTD_WINDOW_BYTES (1u << WARC_ZSTD_WINDOW_LOG)

struct warc_zstd;

/* ERR_NO_MEMORY. */
int warc_zstd_open(struct warc_zstd **out, struct err *e) MUST_CHECK;
void warc_zstd_close(struct warc_zstd *z); /* NULL is fine */
/* Begins another file with the same memory. */
void warc_zstd_start(struct warc_zstd *z);
/* The next n bytes of the file. ERR_CORRUPT: it is no such file; the text says why and at which
 * byte, and says it again at each later call. ERR_NO_MEMORY: nothing is proven. */
int warc_zstd_take(struct warc_zstd *z, const void *p, size_t n, struct err *e) MUST_CHECK;
/* After the last byte; *records (may be NULL): how many there are. As above. */
int warc_zstd_end(struct warc_zstd *z, uint64_t *records, struct err *e) MUST_CHECK;

#endif
