/* What the files of decode share: one function for each stage.
 *
 * Each appends what `in` stands for to *out, an empty buffer whose limit the stage may set, and
 * answers 0 or an ERR_ code with the stage's name and a byte offset into `in`. */
#ifndef DOOR_CAPTURE_DECODE_INTERNAL_H
#define DOOR_CAPTURE_DECODE_INTERNAL_H

#include "door/capture/decode.h"

/* decode_gzip.c. bytes_max bounds the output; see there for the bound on its ratio to the input.
 * ERR_INVALID_ENCODING, ERR_BODY_TOO_LARGE, ERR_NO_MEMORY. */
int decode_gzip(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e) MUST_CHECK;
/* `deflate` of HTTP: zlib-wrapped, or raw as some clients send it. */
int decode_deflate(struct slice in, uint64_t bytes_max, struct buf *out, struct err *e) MUST_CHECK;
/* gzip that was taken for Latin-1 text and sent as UTF-8 (gzip-js, case C02): back to bytes. */
int decode_latin1(struct slice in, struct buf *out, struct err *e) MUST_CHECK;
bool decode_is_gzip(struct slice in);        /* begins 1f 8b 08 */
bool decode_is_latin1_gzip(struct slice in); /* begins 1f c2 8b 08 */

/* decode_base64.c: standard and URL-safe alphabet, padding or none, spaces that were '+', and
 * %2B %2F %3D; line ends are passed over. ERR_INVALID_ENCODING, ERR_NO_MEMORY. */
int decode_base64(struct slice in, struct buf *out, struct err *e) MUST_CHECK;
bool decode_looks_base64(struct slice in);

/* decode_form.c */
struct decode_form {
    bool has_data, has_compression;
    struct slice data, compression; /* still encoded, in the body */
};
/* True when the body is a form: one of the fields data, _, ip and compression begins within its
 * first 128 bytes (anywhere, when it is declared to be one), and it is no JSON. */
bool decode_looks_form(struct slice in, bool declared);
void decode_form_fields(struct slice in, struct decode_form *out);
/* '+' is a space, %XX a byte; a broken escape stays as it is (WHATWG URL, "percent-decode"). */
int decode_percent(struct slice in, struct buf *out, struct err *e) MUST_CHECK;

/* Names of a Content-Encoding or of a compression parameter, in any case. */
bool decode_name_is(struct slice name, const char *lower);

#endif
