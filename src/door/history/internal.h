/* internal: state of the history door, shared by its own files only. */
#ifndef DOOR_HISTORY_INTERNAL_H
#define DOOR_HISTORY_INTERNAL_H

#include <stdatomic.h>

#include "base/buf.h"
#include "door/history/history.h"
#include "door/history/parse.h"
#include "http/http.h"
#include "journal/journal.h"

/* A decided append whose answer waits for the commit of its group. */
struct waiting {
    struct http_request *req;
    struct journal_result result;
};

struct history {
    struct journal *journal;
    struct history_options options;
    struct parse *parse; /* the loop thread's */
    struct buf extra, text;
    struct waiting *waiting;
    size_t waiting_count, waiting_cap;
    uint32_t replays;
    _Atomic bool stopping;
};

/* append.c */
void history_append_head(void *ctx, struct http_request *req);
void history_append_request(void *ctx, struct http_request *req);
/* replay.c and streams.c */
void history_replay_request(void *ctx, struct http_request *req);
void history_streams_request(void *ctx, struct http_request *req);

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
