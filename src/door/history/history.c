/* The door's life, its routes, and what its files share. */
#include "door/history/history.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/history/internal.h"
#include "json/write.h"

struct history *history_new(struct journal *j, const struct history_options *options)
{
    struct history *h = calloc(1, sizeof *h);
    if (h == NULL) {
        return NULL;
    }
    h->journal = j;
    h->options = *options;
    h->parse = parse_new();
    h->reads = calloc(options->replays_max, sizeof *h->reads);
    followers_init(h);
    if (h->parse == NULL || h->reads == NULL) {
        history_free(h);
        return NULL;
    }
    return h;
}

void history_set_head_key(struct history *h, const struct ed25519_key *key)
{
    ensure(h->options.head_key == NULL);
    h->options.head_key = key;
}

void history_free(struct history *h)
{
    h->waiting_count =
        0; /* staged after the last turn: nobody waits for it any more, and it was never written */
    ensure(h->reads_count == 0);
    ensure(h->replays == 0);
    followers_free(h);
    parse_free(h->parse);
    buf_free(&h->extra);
    buf_free(&h->text);
    free(h->waiting);
    free(h->reads);
    free(h);
}

/* /v1/events serves two methods with one route: each sees only its own. */
static void events_head(void *ctx, struct http_request *req)
{
    if (http_method(req) == HTTP_POST) {
        history_append_head(ctx, req);
    }
}

static void events_request(void *ctx, struct http_request *req)
{
    if (http_method(req) == HTTP_POST) {
        history_append_request(ctx, req);
    } else {
        history_events_request(ctx, req);
    }
}

void history_routes(struct history *h, struct http_route *out)
{
    out[0] = (struct http_route){.path = "/v1/events",
                                 .methods = HTTP_GET | HTTP_POST,
                                 .auth = HTTP_AUTH_TOKEN,
                                 .shape = HTTP_SHAPE_HISTORY,
                                 .body_max_bytes = HISTORY_BODY_MAX,
                                 .on_head = events_head,
                                 .on_request = events_request,
                                 .ctx = h};
    out[1] = (struct http_route){.path = "/v1/streams",
                                 .methods = HTTP_GET,
                                 .auth = HTTP_AUTH_TOKEN,
                                 .shape = HTTP_SHAPE_HISTORY,
                                 .on_request = history_streams_request,
                                 .ctx = h};
    out[2] = (struct http_route){.path = "/v1/head",
                                 .methods = HTTP_GET,
                                 .auth = HTTP_AUTH_TOKEN,
                                 .shape = HTTP_SHAPE_HISTORY,
                                 .on_request = history_head_request,
                                 .ctx = h};
    out[3] = (struct http_route){.path = "/v1/sources/retire",
                                 .methods = HTTP_POST,
                                 .auth = HTTP_AUTH_TOKEN,
                                 .shape = HTTP_SHAPE_HISTORY,
                                 .body_max_bytes = HISTORY_RETIRE_MAX,
                                 .on_head = history_append_head,
                                 .on_request = history_retire_request,
                                 .ctx = h};
}

void history_stopping(struct history *h)
{
    atomic_store(&h->stopping, true);
    followers_look(h);
}

void history_tick(struct history *h)
{
    followers_tick(h);
}

struct slice history_json_string(struct arena *a, struct slice plain)
{
    struct buf b;
    struct slice out = {0};
    buf_init(&b, 0);
    json_put_string(&b, plain);
    if (!b.failed) {
        char *p = arena_copy(a, buf_slice(&b));
        out = p == NULL ? out : slice_of(p, b.len);
    }
    buf_free(&b);
    return out;
}

void history_answer_err(struct http_request *req, const struct err *e)
{
    ensure(e->code < 0);
    bool clients = err_status(e->code) < 500;
    if (!clients) {
        log_line(LOG_ERROR, "history", "a read failed: %s", e->text);
    }
    http_answer_error(req, clients ? e->code : ERR_INTERNAL_ERROR,
                      clients ? e->text : "the history could not be read", (struct slice){0});
}

void history_put_id(struct buf *b, const char *name, bool none, const struct uuid *id)
{
    char text[UUID_TEXT_LEN];
    buf_put_char(b, '"');
    buf_put_cstr(b, name);
    if (none) {
        buf_put_cstr(b, "\":null");
        return;
    }
    uuid_text(text, id);
    buf_put_cstr(b, "\":\"");
    buf_put(b, text, sizeof text);
    buf_put_char(b, '"');
}

bool history_parse_limit(struct slice s, uint64_t max, uint64_t *out)
{
    if (s.len == 0 || s.len > 18 || s.ptr[0] == '0') {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s.ptr[i] - '0');
    }
    *out = v;
    return v <= max;
}
