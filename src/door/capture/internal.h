/* What the files of the capture door share. */
#ifndef DOOR_CAPTURE_INTERNAL_H
#define DOOR_CAPTURE_INTERNAL_H

#include "door/capture/capture.h"
#include "door/capture/decode.h"

struct capture {
    struct store *store;
    struct control *control;
    struct capture_options options;
    void (*on_committed)(void *ctx);
    void *ctx;
};

/* Which protocol an answer is written in. */
enum capture_dialect { CAPTURE_POSTHOG, CAPTURE_POSTHOG_V1, CAPTURE_SEGMENT, CAPTURE_NATIVE };

enum capture_outcome {
    CAPTURE_STORED,   /* put, or known before (receipt.repeat) */
    CAPTURE_REJECTED, /* bad: kept as rejected with its reason (v0, Segment batches) */
    CAPTURE_DROPPED   /* v1: answered `drop` for its uuid */
};

struct capture_event {
    struct queue_event ev;
    struct queue_receipt receipt;
    enum capture_outcome outcome;
    const char *reason;      /* of REJECTED and DROPPED; static or in the arena */
    uint32_t index;          /* position in the request */
    struct slice given_uuid; /* v1: as the client wrote it */
};

/* All of one request between its parsing and its answer. Lives in the request's arena (or, while a
 * worker has it, in its own): slices point into the decoded body. */
struct capture_batch {
    struct store_job job;
    struct capture *c;
    struct http_request *req;
    enum capture_dialect dialect;
    const struct project *project;
    struct slice source; /* name of the key that was used */
    struct slice token;  /* the key as the body (or header) gave it, for the loop to look up */
    struct capture_event *event;
    size_t count;
    int64_t received_ms;
    bool beacon; /* v0: 204 without a body */
    bool single; /* the request is one event, not a batch: a bad one is a 400 */
    struct arena arena;
    struct decoded decoded; /* owns the decoded bytes that slices point into */
    int code;               /* of parsing: 0 or the ERR_ of the answer, e says the place */
    struct err e;
};

/* parse.c: what every dialect does. Decodes and parses the request's body with `parse` (on a worker
 * when the body is over CAPTURE_INLINE_BYTES or compressed), then resolves the key, submits the job,
 * and answers. parse runs on any thread: it sees only the batch, its options and the copies of what
 * it needs of the head. */
#define CAPTURE_INLINE_BYTES (64u << 10)
typedef int capture_parse_fn(struct capture_batch *b, struct slice json, struct err *e);
void capture_start(struct capture *c, struct http_request *req, enum capture_dialect dialect,
                   capture_parse_fn *parse, const struct decode_request *how);

/* One more event slot; NULL: too many (ERR_TOO_MANY_EVENTS) or no memory. */
struct capture_event *capture_add(struct capture_batch *b, uint32_t index, struct err *e);

/* answer.c: after the commit, in the dialect's words. */
void capture_answer(struct capture_batch *b, int code, const struct err *e);

#endif
