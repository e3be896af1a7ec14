/* head: one request head, from bytes to checked parts (internal to http).
 *
 * Two steps. http_head_scan finds the end of the head in bytes that arrive piece by piece and
 * refuses what no head may hold; its verdict does not depend on how the bytes were cut.
 * http_head_parse takes a complete head, in memory that the caller owns and lets it change, and
 * gives its parts as slices of that memory. Blocks: no. Allocates: no. */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

/* Of a request line, beside the target: a method of at most 32 bytes, two spaces, the version. */
#define HTTP_METHOD_BYTES_MAX  32u
#define HTTP_VERSION_BYTES     8u
#define HTTP_REQUEST_LINE_REST (HTTP_METHOD_BYTES_MAX + 2 + HTTP_VERSION_BYTES)

struct http_head_limits {
    size_t head_bytes_max;
    size_t target_bytes_max;
    unsigned fields_max;
};

/* Progress of a scan; zeroed at the start of a head. */
struct http_head_scan {
    size_t pos;        /* bytes that were looked at */
    size_t line_start; /* offset of the line that pos is in */
    unsigned lines;    /* finished lines, the request line among them */
};

struct http_field {
    struct slice name;  /* lower case */
    struct slice value; /* without white space around it */
};

enum http_expect { HTTP_EXPECT_NONE, HTTP_EXPECT_CONTINUE, HTTP_EXPECT_OTHER };

struct http_head {
    struct http_field *fields; /* the caller's array */
    unsigned field_count;
    unsigned version_minor; /* of HTTP/1.x: 0 or 1 */
    struct slice method;
    struct slice path; /* before '?'; "*" only for OPTIONS */
    struct slice query;
    struct slice host; /* value of Host, empty without one */
    bool has_query;
    bool has_host;
    bool keep_alive; /* what the client wants, by version and Connection */
    bool chunked;
    bool has_length;
    uint64_t length; /* Content-Length, 0 without one */
    enum http_expect expect;
};

/* p[0..n) begins with a head and holds at least what earlier calls saw. Returns the length of the
 * head, end line included; 0 when more bytes are needed; ERR_BAD_REQUEST (control bytes, bare CR or
 * LF, folded lines, an empty first line), ERR_URI_TOO_LONG, ERR_HEADERS_TOO_LARGE. */
int64_t http_head_scan(struct http_head_scan *s, const struct http_head_limits *limits,
                       const char *p, size_t n) MUST_CHECK;

/* p[0..n) is exactly one head that http_head_scan has passed; fields has room for its lines less
 * one. Lowers the case of field names in place. Returns 0, ERR_BAD_REQUEST, ERR_URI_TOO_LONG,
 * ERR_NOT_IMPLEMENTED (CONNECT, transfer codings) or ERR_VERSION_NOT_SUPPORTED. Where it fails, the
 * parts of *h that were reached are filled and the rest is zero. */
int http_head_parse(struct http_head *h, struct http_field *fields, unsigned fields_cap,
                    const struct http_head_limits *limits, char *p, size_t n) MUST_CHECK;

/* Value of the first field of that lower-case name; *count (may be NULL) how many there are. */
bool http_head_find(const struct http_head *h, struct slice name, struct slice *value,
                    unsigned *count);

/* Token characters in lower case, 0 for all other bytes. */
extern const char http_token_lower[256];
/* A token of RFC 9110: at least one of its characters and nothing else. */
bool http_is_token(struct slice s);
/* ASCII comparison without regard to case; lower is in lower case. */
bool http_equal_fold(struct slice s, const char *lower);

#endif
