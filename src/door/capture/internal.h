/* What the files of the capture door share. */
#ifndef DOOR_CAPTURE_INTERNAL_H
#define DOOR_CAPTURE_INTERNAL_H

#include "door/capture/capture.h"
#include "door/capture/decode.h"

struct capture {
    struct store *store;
    struct control *control;
    struct capture_options options;
    uint64_t full_said_ns; /* when the log last said that the queue is full; 0: never */
    void (*on_committed)(void *ctx);
    void *ctx;
    struct capture_at *at; /* what the front's routes point at (capture.c) */
};

/* Which protocol an answer is written in. */
enum capture_dialect { CAPTURE_POSTHOG, CAPTURE_POSTHOG_V1, CAPTURE_SEGMENT, CAPTURE_NATIVE };

enum capture_outcome {
    CAPTURE_STORED,   /* put, or known before (receipt.repeat) */
    CAPTURE_REJECTED, /* bad: kept as rejected with its reason (v0, Segment batches) */
    CAPTURE_DROPPED   /* v1: answered `drop` for its uuid */
};

/* What a parser fills of `ev`: everything but project, received_ms and, where the client gave no
 * UUID, uuid (all zero then: finish.c derives it from message_id, or makes a UUIDv7). An empty
 * source means the name of the key. A zeroed slice is an empty text. */
struct capture_event {
    struct queue_event ev;
    struct queue_receipt receipt;
    enum capture_outcome outcome;
    const char *reason;      /* of REJECTED and DROPPED; static or in the arena */
    uint32_t index;          /* position in the request */
    struct slice given_uuid; /* v1: as the client wrote it */
};

/* All of one request between its parsing and its answer. It lives in the request's arena; what the
 * parser allocates lives in `arena` (a worker may have that one). Slices point into the decoded
 * body, into `arena`, or into the request's head, which stays as it is until the answer.
 *
 * A parser may look at c->options, dialect, call, received_ms, head_sent_at_ms and sdk; it sets
 * token, single, and makes the events with capture_add. Nothing else of it is for other threads. */
struct capture_batch {
    struct store_job job;
    struct capture *c;
    struct http_request *req;
    enum capture_dialect dialect;
    struct slice call; /* what the path says the event is: "track" on /v1/track and /v1/t, "engage"
                          on /engage; empty on the routes of batches */
    const struct project *project;
    struct slice source;           /* name of the key that was used */
    struct slice head_token;       /* the key of a header, known to be valid; empty: none */
    struct slice token;            /* the key as the body gave it, for the loop to look up */
    struct slice sdk, sdk_version; /* v1: of PostHog-Sdk-Info */
    struct capture_event *event;
    size_t count, cap;
    int64_t received_ms;
    int64_t head_sent_at_ms; /* v0: `_` or `sent_at` of the query string; v1: of
                                 PostHog-Request-Timestamp; 0: none */
    bool beacon;             /* v0: 204 without a body */
    bool single;             /* the request is one event, not a batch: a bad one is a 400 */
    bool has_bad_index;      /* native: the answer's "index", of the event that is refused */
    uint32_t bad_index;
    struct arena arena;
    struct decoded decoded; /* owns the decoded bytes that slices point into */
    int code;               /* of parsing: 0 or the ERR_ of the answer, e says the place */
    struct err e;
    int (*parse)(struct capture_batch *b, struct slice json, struct err *e);
    struct decode_request how;
    uint64_t reserved_bytes; /* of the budget of bodies, beyond the body itself */
};

/* The parsers. json is the one value of the body, already checked by json_tolerant_check, so the
 * walkers of json/read.h can be used on it. 0, or the code of the answer to the whole request
 * (ERR_INVALID_JSON, ERR_INVALID_EVENT, ERR_UNAUTHORIZED, ERR_TOO_MANY_EVENTS, ERR_BODY_TOO_LARGE,
 * ERR_NO_MEMORY) and its reason in *e. A bad event of a batch is no error: its outcome says so. Any
 * thread. */
typedef int capture_parse_fn(struct capture_batch *b, struct slice json, struct err *e);
capture_parse_fn posthog_parse, posthog_v1_parse, segment_parse, native_parse;

/* What a route is for. */
struct capture_kind {
    enum capture_dialect dialect;
    enum decode_mode mode;
    const char *call; /* capture_batch.call */
    capture_parse_fn *parse;
    bool single; /* a route for single events: single_bytes_max (capture.h) */
};

/* head.c: on_head of the routes for events. A key that a header carries is looked up before the
 * body is asked for (cases C41): 401 (native: 401, 403). */
void capture_check_head(struct capture *c, struct http_request *req, enum capture_dialect dialect);
/* The same again for the request, and the rest of the head: fills how, beacon, head_sent_at_ms,
 * sdk, head_token (native: project and source). 0, or the code of the answer and its reason. */
int capture_read_head(struct capture_batch *b, struct err *e) MUST_CHECK;
/* A valid public key of any project; *p its project. NULL: none, or a service key. */
const struct key *capture_key(const struct capture *c, struct slice text, const struct project **p);
/* A token is printed in answers: letters, digits, '-', '_' and '.', 1 to KEY_TEXT_MAX of them. */
bool capture_is_key_text(struct slice text);

/* parse.c: what every dialect does. Decodes and parses the request's body (on a worker when it is
 * over CAPTURE_INLINE_BYTES or compressed), then resolves the key, submits the job, and answers. */
#define CAPTURE_INLINE_BYTES (64u << 10)
void capture_start(struct capture *c, struct http_request *req, const struct capture_kind *kind);

/* batch.c: one more event slot, zeroed but for index; NULL: too many (ERR_TOO_MANY_EVENTS) or no
 * memory. Slots may move with the next one: use a slot before adding another. */
struct capture_event *capture_add(struct capture_batch *b, uint32_t index, struct err *e);
/* Marks the event as bad: REJECTED, on v1 DROPPED. why is static or in the arena. */
void capture_reject(struct capture_batch *b, struct capture_event *ev, const char *why);

/* text.c: a JSON value as the text of a column, in the arena. Strings are unescaped; numbers, true,
 * false, objects and arrays stay as they are written; null gives an empty text. Always valid UTF-8:
 * what is none, and NUL, becomes U+FFFD. chars_max (0: no bound) cuts behind that many characters.
 * false: no memory. */
bool capture_text(struct capture_batch *b, struct slice value, size_t chars_max, struct slice *out);
/* The same for bytes that are no JSON. */
bool capture_plain(struct capture_batch *b, struct slice text, size_t chars_max, struct slice *out);

/* Without the blanks and control characters around it. */
struct slice capture_trim(struct slice s);

/* finish.c: on the loop, when parsing is done: key, identity, the job. */
void capture_finish(struct capture_batch *b);

/* answer.c: after the commit, in the dialect's words. Ends the batch. */
void capture_answer(struct capture_batch *b, int code, const struct err *e);
/* A refusal of a whole request, counted. extra as in http_answer_error. */
void capture_refuse(struct http_request *req, enum capture_dialect dialect, int code,
                    const char *text, struct slice extra);

#endif
