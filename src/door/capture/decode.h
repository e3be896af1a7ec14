/* decode: from the bytes of a capture request to JSON text (spec/capture.md A2, cases C01 to C05,
 * C41, C43, C52).
 *
 * gzip (by hint, header or magic), zlib and raw deflate (v1 and Content-Encoding only), base64 in
 * its released variants, form bodies, gzip-js sent as Latin-1 text. Streaming with a cap on output,
 * in bounded memory. Everything unsupported is named in the error. */
#ifndef DOOR_CAPTURE_DECODE_H
#define DOOR_CAPTURE_DECODE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

enum decode_mode {
    DECODE_POSTHOG,    /* all of A2, query parameter `data` too */
    DECODE_BASE64_TOO, /* the same, and base64 once more (step 6: /e, /capture, /engage, /track) */
    DECODE_V1,         /* Content-Encoding only: gzip, deflate; else ERR_UNSUPPORTED_MEDIA_TYPE */
    DECODE_SEGMENT,    /* Content-Encoding or gzip magic; never a form */
    DECODE_PLAIN       /* native: Content-Encoding identity, gzip, deflate */
};

struct decode_request {
    enum decode_mode mode;
    struct slice body;
    struct slice query_data;        /* parameter `data`, decoded; empty: none */
    struct slice query_compression; /* parameter `compression` */
    struct slice content_type;
    struct slice content_encoding; /* all lines, joined by ", " */
    uint64_t decoded_bytes_max;
};

struct decoded {
    struct slice json; /* points into the body or into `owned` */
    struct buf owned;
};

/* 0 with *out (decoded_free it in any case). ERR_INVALID_ENCODING (e->text names stage and byte
 * offset), ERR_BODY_TOO_LARGE (names the limit), ERR_UNSUPPORTED_MEDIA_TYPE (names what is
 * supported), ERR_NO_MEMORY. Any thread. */
int decode_body(const struct decode_request *how, struct decoded *out, struct err *e) MUST_CHECK;
void decoded_free(struct decoded *d);

#endif
