/* head: what the head of a tus request says, from bytes to checked values (internal to
 * door/artifact). Pure functions over the fields of one head; no server, no disk, no memory.
 *
 * Numbers are digits only, at most 19 of them, and fit into 63 bits. A header that must stand once
 * and stands twice is refused, whatever it says. Every failure is an answer: its code is returned,
 * e->text is for the client. */
#ifndef DOOR_ARTIFACT_HEAD_H
#define DOOR_ARTIFACT_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "door/artifact/checksum.h"
#include "http/http.h"
#include "store/artifact/upload.h"

/* X(symbol, header in lower case): those that stand once, or not at all. */
#define TUS_FIELDS(X)                     \
    X(RESUMABLE, "tus-resumable")         \
    X(OVERRIDE, "x-http-method-override") \
    X(CONCAT, "upload-concat")            \
    X(LENGTH, "upload-length")            \
    X(DEFER, "upload-defer-length")       \
    X(OFFSET, "upload-offset")            \
    X(TYPE, "content-type")               \
    X(CONTENT_LENGTH, "content-length")   \
    X(CODING, "transfer-encoding")        \
    X(CHECKSUM, "upload-checksum")        \
    X(TRAILER, "trailer")

enum tus_field {
#define X(sym, name) TUS_##sym,
    TUS_FIELDS(X)
#undef X
        TUS_FIELD_COUNT
};
const char *tus_field_name(enum tus_field f);

struct tus_head {
    enum http_method method; /* of the wire */
    struct {
        struct slice value;
        unsigned count; /* 0: value means nothing */
    } field[TUS_FIELD_COUNT];
    struct slice metadata; /* Upload-Metadata, all of its lines as one list */
};

#define TUS_VERSION     "1.0.0"
#define TUS_EXTENSIONS  "creation,creation-with-upload,expiration,checksum,termination"
#define TUS_UPLOAD_TYPE "application/offset+octet-stream"

bool tus_number(struct slice s, uint64_t *out);

/* The method that counts: X-HTTP-Method-Override's where the wire says POST; HTTP_OTHER for one
 * that we do not know. ERR_INVALID_REQUEST: the header is repeated. */
int tus_method(const struct tus_head *h, enum http_method *out, struct err *e) MUST_CHECK;
/* ERR_UNSUPPORTED_VERSION; ERR_INVALID_REQUEST. HEAD and GET may leave the header out. */
int tus_version(const struct tus_head *h, enum http_method method, struct err *e) MUST_CHECK;

/* Whether a body is announced, and how long it is (UINT64_MAX: chunked). */
uint64_t tus_body_bytes(const struct tus_head *h);

struct tus_creation {
    uint64_t length;
    bool deferred;       /* no length: refused after the project (artifacts.md 4.2) */
    uint64_t body_bytes; /* as tus_body_bytes */
};
/* The size headers of a creation. ERR_CONCATENATION_UNSUPPORTED, ERR_INVALID_UPLOAD_LENGTH,
 * ERR_MAX_SIZE_EXCEEDED. */
int tus_creation_size(const struct tus_head *h, uint64_t bytes_max, struct tus_creation *out,
                      struct err *e) MUST_CHECK;
/* Behind the project: ERR_INVALID_SIZE. */
int tus_creation_length(const struct tus_creation *c, struct err *e) MUST_CHECK;
/* Of the body that comes along, if one does: ERR_INVALID_CONTENT_TYPE,
 * ERR_UPLOAD_SIZE_EXCEEDED. */
int tus_creation_body(const struct tus_head *h, const struct tus_creation *c,
                      struct err *e) MUST_CHECK;
/* The headers of a PATCH: ERR_INVALID_CONTENT_TYPE, ERR_INVALID_OFFSET. */
int tus_append(const struct tus_head *h, uint64_t *offset, struct err *e) MUST_CHECK;
/* Upload-Checksum; without one out->algorithm is CHECKSUM_NONE. ERR_INVALID_UPLOAD_CHECKSUM, also
 * when it is announced for the trailer, which is not served. */
int tus_checksum(const struct tus_head *h, struct checksum *out, struct err *e) MUST_CHECK;

/* ---- metadata.c ---- */

#define METADATA_KEYS_MAX 256

struct metadata {
    bool has_project, has_checksum;
    /* Texts end in a NUL. Of an unfit value the text is empty (see metadata_project). */
    char project[UPLOAD_PROJECT_MAX + 1];
    char checksum[BLAKE3_HEX_LEN + 1]; /* without "blake3:" */
    char filename[UPLOAD_FILENAME_MAX + 1];
};
/* Checks the list and takes what we use from it. ERR_INVALID_METADATA names the key.
 *
 *   list = [OWS] pair *( [OWS] "," [OWS] pair ) [OWS]      pair = key [ 1*WS [ base64 ] ]
 *
 * Keys are visible ASCII without a comma and stand once; values are base64 with its padding. A
 * value that is empty may go without its space (cases T10, T11). */
int metadata_parse(struct slice list, struct metadata *out, struct err *e) MUST_CHECK;
/* Standard base64 with its padding, at most cap bytes of it. False: it is none, or more. */
bool metadata_base64(struct slice text, char *out, size_t cap, size_t *len) MUST_CHECK;
/* ERR_INVALID_PROJECT: none, or no possible name of one. */
int metadata_project(const struct metadata *m, struct err *e) MUST_CHECK;
/* ERR_INVALID_CHECKSUM: none, or not `blake3:` and 64 lower-case hexadecimal digits. */
int metadata_checksum(const struct metadata *m, struct err *e) MUST_CHECK;

#endif
