/* warc_record: the form of WARC records, as strict as packaging needs it (spec/artifacts.md section
 * 9.3), read in pieces of any size.
 *
 * A record is a version line `WARC/1.0` or `WARC/1.1`, header lines, an empty line, a block of
 * exactly Content-Length bytes, and CRLF CRLF. Lines end in CRLF and hold no other CR or LF; a name
 * is not empty and has no blank around it; lines that begin with a blank continue the one before;
 * there is exactly one Content-Length, digits only, below 2^63. Content is not judged.
 *
 * Pure: no file, no memory beyond the struct. */
#ifndef STORE_ARTIFACT_WARC_RECORD_H
#define STORE_ARTIFACT_WARC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define WARC_LINE_MAX    (1u << 20) /* bytes of a header line, its CRLF included */
#define WARC_HEADERS_MAX (4u << 20) /* of all header lines of a record */

enum warc_part {
    WARC_VERSION, /* also: between two records */
    WARC_LINE_START,
    WARC_NAME,
    WARC_VALUE,
    WARC_LINE_FEED, /* a CR was read */
    WARC_HEADERS_END,
    WARC_BLOCK,
    WARC_TRAILER,
    WARC_BAD /* for good */
};

struct warc_record {
    enum warc_part part;
    uint64_t offset;     /* bytes taken so far, of all records */
    uint64_t records;    /* that have ended */
    uint64_t block_left; /* bytes of the block that are still to come */
    uint32_t line_bytes, header_bytes;
    uint32_t at;      /* in the version line, or in the trailer */
    uint32_t name;    /* bytes of this line's name */
    uint32_t fields;  /* header lines of this record that began a field */
    bool length_name; /* the name so far is a prefix of Content-Length */
    bool length_known;
    bool length_digits; /* of the value that is being read: a digit was seen */
    bool length_over;   /* ... and a blank after it: only blanks may follow */
    bool blank_name;    /* the name's last byte was a blank */
};

void warc_record_start(struct warc_record *w);
/* Takes up to n bytes, and no byte behind the end of a record: *taken < n means that one has just
 * ended (warc_record_between is true). ERR_CORRUPT: what is wrong, e->offset where (of all bytes
 * that were ever given); from then on always. */
int warc_record_take(struct warc_record *w, const void *p, size_t n, size_t *taken,
                     struct err *e) MUST_CHECK;
/* True before the first byte of a record. */
bool warc_record_between(const struct warc_record *w);

#endif
