/* body: the strict decoder of chunked bodies (RFC 9112 section 7.1; internal to http).
 *
 * Fed with bytes in any pieces; data goes to the sink the caller gives, extensions and trailers are
 * checked, counted and dropped: they never become headers. Bad is sticky. Blocks: no. Allocates:
 * no. */
#ifndef HTTP_BODY_H
#define HTTP_BODY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/* Over a whole body; a client that sends one byte a chunk still has 1 MiB of plain overhead to
 * spend on every 100 KiB, but no more than this on text that we drop. */
#define HTTP_CHUNK_EXTENSION_BYTES_MAX 4096
#define HTTP_TRAILER_BYTES_MAX         8192

enum http_chunk_state {
    HTTP_CHUNK_SIZE_FIRST, /* the first digit of a size */
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK_EXTENSION,
    HTTP_CHUNK_SIZE_LF,
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_DATA_CR,
    HTTP_CHUNK_DATA_LF,
    HTTP_CHUNK_TRAILER_FIRST, /* the first byte of a trailer line, or of the last line */
    HTTP_CHUNK_TRAILER_NAME,
    HTTP_CHUNK_TRAILER_VALUE,
    HTTP_CHUNK_TRAILER_LF,
    HTTP_CHUNK_END_LF,
    HTTP_CHUNK_DONE,
    HTTP_CHUNK_BAD
};

struct http_chunks {
    enum http_chunk_state state; /* zero is the start */
    uint64_t left;               /* bytes of the present chunk that are still to come */
    uint64_t total;              /* bytes of data that sizes have announced */
    unsigned digits;             /* of the present size */
    unsigned extension_bytes;
    unsigned trailer_bytes;
};

/* Decodes one step: takes *used bytes of p[0..n) and sets *data to the part of them that is body
 * (possibly empty). Call again while *used bytes were taken and some are left. Returns 0, or 1 when
 * the body has ended (what is left belongs to the next request); ERR_BAD_REQUEST for malformed
 * framing, ERR_BODY_TOO_LARGE as soon as the sizes announce more than max bytes. */
int http_chunks_step(struct http_chunks *d, uint64_t max, const char *p, size_t n, size_t *used,
                     struct slice *data) MUST_CHECK;

#endif
