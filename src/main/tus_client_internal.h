/* tus_client_internal: what the files of tus_client share. */
#ifndef MAIN_TUS_CLIENT_INTERNAL_H
#define MAIN_TUS_CLIENT_INTERNAL_H

#include "main/progress.h"
#include "main/tus_client.h"

#define TUS_BUFFER_BYTES (1u << 20)

/* ---- pure functions on what travels: tus_client_wire.c ---- */

/* Standard base64 with padding, appended. */
void tus_put_base64(struct buf *out, struct slice bytes);
/* Either alphabet, with or without padding; appended. False for anything else. */
bool tus_base64_decode(struct slice text, struct buf *out);

/* Resolves a Location against the URL of the request and checks it: http or https, the same scheme,
 * host and port (a default port may be spelled or not), no user name. With `socket` the origin does
 * not matter, since every path leads to the one server: of another origin only the id counts.
 * ERR_REFUSED, ERR_NO_MEMORY. */
int tus_resolve(const char *request_url, const char *location, bool socket, char out[TUS_URL_MAX],
                struct err *e) MUST_CHECK;
/* The last segment of a URL's path, unescaped: the object id. False when it is empty, too long, or
 * holds a slash or a control character. */
bool tus_object_id(const char *url, char out[TUS_ID_MAX]);
/* Whether both have the same scheme, host and port. */
bool tus_same_origin(const char *a, const char *b);

/* Digits only, at most 2^63 - 1. */
bool tus_client_number(struct slice value, uint64_t *out);
/* Retry-After: seconds or a date. False for anything else, and for a date that is over. */
bool tus_retry_after_ms(struct slice value, uint64_t now_ms, uint64_t *out);
/* How long to wait before the next try after `tries` failed ones: from half to all of 1, 2, 4 ..
 * 30 s as `random` says (a tenth of a second at first when the connection was lost). */
uint64_t tus_wait_ms(unsigned tries, bool lost, uint32_t random);

/* Appends the receipt as one line when it is valid JSON and for this object, checksum and size.
 * ERR_REFUSED, ERR_NO_MEMORY. */
int tus_receipt_take(struct slice json, const struct tus_session *s, struct buf *out,
                     struct err *e) MUST_CHECK;
/* Text of an answer for people: its first line, without control characters, at most size - 1. */
void tus_first_line(struct slice body, char *out, size_t size);

/* ---- one request: tus_client_http.c ---- */

enum tus_request_method { TUS_POST, TUS_HEAD, TUS_PATCH, TUS_GET };

enum tus_outcome {
    TUS_ANSWERED,
    TUS_ABSENT,     /* no request was sent */
    TUS_LOST,       /* it may have been received or not, in part or in whole */
    TUS_BROKEN,     /* what came is no HTTP */
    TUS_UNREADABLE, /* our own file cannot be read, or has become shorter */
    TUS_INTERRUPTED,
    TUS_NO_MEMORY
};

struct tus_request {
    enum tus_request_method method;
    const char *url;
    const char *const *headers;        /* whole lines, NULL behind the last */
    const struct tus_content *content; /* of PATCH: everything from offset on is the body */
    uint64_t offset;
};

struct tus_answer {
    unsigned status; /* 0: no answer */
    bool all_sent;   /* the body went out to its end */
    bool has_offset, has_length, has_retry_after;
    uint64_t offset, length, retry_after_ms;
    uint64_t moved_ns; /* when a byte of it or of the file last moved, monotonic; 0: none did */
    char location[TUS_URL_MAX], expires[64];
    struct buf receipt; /* Artifact-Receipt, still base64 */
    struct buf body;    /* its first 64 KiB */
};

/* One try. *answer is to be freed in any case; e says why the outcome is not TUS_ANSWERED. */
enum tus_outcome tus_exchange(struct client *c, const struct tus_request *req,
                              struct tus_answer *answer, struct err *e);
void tus_answer_free(struct tus_answer *answer);

#endif
