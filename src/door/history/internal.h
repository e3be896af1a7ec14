/* internal: state of the history door, shared by its own files only. */
#ifndef DOOR_HISTORY_INTERNAL_H
#define DOOR_HISTORY_INTERNAL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "door/history/followers.h"
#include "door/history/history.h"
#include "door/history/parse.h"
#include "http/http.h"
#include "journal/journal.h"
#include "journal/read.h"

/* A decided append whose answer waits for the commit of its group. */
struct waiting {
    struct http_request *req;
    struct journal_result result;
};

/* A read whose snapshot must not be older than the appends that were asked for before it: it
 * starts when their group is committed. */
struct read {
    struct http_request *req;
    void (*work)(void *ctx);
    http_fn *done;
    http_fn *refuse; /* answers that too much is waiting, and frees ctx */
    void *ctx;
};

/* The query of GET /v1/events. */
struct history_params {
    struct arena arena;           /* holds the filters: a request's own ends with its head */
    struct journal_filter filter; /* canonical strings */
    bool has_after;
    struct uuid after;
    uint64_t limit;
    uint64_t last; /* 0: not asked for */
    bool follow;
};

struct history {
    struct journal *journal;
    struct history_options options;
    struct parse *parse; /* the loop thread's */
    struct buf extra, text;
    struct waiting *waiting;
    size_t waiting_count, waiting_cap;
    struct read *reads; /* replays_max of them */
    uint32_t reads_count;
    uint32_t replays; /* and pages of streams: under way */
    _Atomic bool stopping;
    struct followers followers;
};

/* Up to this a body is parsed on the loop; the canonical form is at most GROWTH times the body: a
 * number of 4 bytes can become one of 21 ("1e20"), 5.25 times. */
#define INLINE_BODY_MAX  (64u << 10)
#define CANONICAL_SLACK  (64u << 10)
#define CANONICAL_GROWTH 6

/* Refusals name what the request named: kept in the request's arena while it waits. Canonical
 * strings with quotes. */
struct named {
    struct slice source, batch_id, stream, predecessor;
    const char *flaw; /* of a lineage marker; static */
    bool expect_none;
    struct uuid expected, predecessor_frontier;
};

/* append.c */
/* Query string and media type of both POST routes. */
void history_append_head(void *ctx, struct http_request *req);
/* What a failure of the journal means for the client. */
void history_answer_failure(struct http_request *req, int code);
/* A body that was refused by parse.h. */
void history_answer_refused(struct http_request *req, const struct err *e, const struct buf *extra);
/* A refusal with its context; a context that was cut off is no JSON. */
void history_answer_context(struct http_request *req, int code, const char *text,
                            const struct buf *context);
/* The writer stage of a batch, or with batch NULL of the retirement of a source. The answer waits
 * for the commit, unless nothing was decided. */
void history_stage(struct history *h, struct http_request *req, const struct journal_batch *batch,
                   struct slice retired);
void history_append_request(void *ctx, struct http_request *req);
/* Runs a read's work on a worker once nothing is staged any more, or refuses it when too many are
 * under way. */
void history_start_read(struct history *h, const struct read *r);

/* params.c: 0, ERR_INVALID_REQUEST, ERR_INVALID_REPLAY_REQUEST or ERR_NO_MEMORY; p->arena is to be
 * freed in any case. */
int history_params_read(const struct history *h, struct http_request *req, struct history_params *p,
                        struct err *e) MUST_CHECK;
/* The Accept header names that type. */
bool history_accepts(const struct http_request *req, struct slice type);
/* retire.c */
void history_retire_request(void *ctx, struct http_request *req);
/* Outcomes of retirement and lineage. */
void history_answer_lifecycle(struct history *h, struct http_request *req,
                              const struct journal_result *r);

/* replay.c, streams.c and head.c */
void history_events_request(void *ctx, struct http_request *req);
void history_put_snapshot(struct buf *b, const struct journal_frontier *f); /* "snapshot":{…} */
void history_streams_request(void *ctx, struct http_request *req);
void history_head_request(void *ctx, struct http_request *req);

/* Canonical JSON string (quotes included) of plain text, in the arena. ptr NULL without memory. */
struct slice history_json_string(struct arena *a, struct slice plain);
/* Answers with the code and text of e; paths and internals of codes that are not the client's fault
 * stay out. */
void history_answer_err(struct http_request *req, const struct err *e);
/* Appends `"name":"uuid"` or `"name":null`. */
void history_put_id(struct buf *b, const char *name, bool none, const struct uuid *id);
/* A positive decimal of at most max; false otherwise. */
bool history_parse_limit(struct slice s, uint64_t max, uint64_t *out);

#endif
