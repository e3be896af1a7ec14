/* Small answers made on the spot. /readyz says whether an append would be taken now, and if not,
 * why. */
#include "door/manage/manage.h"

#include "base/metrics.h"
#include "os/os.h"
#include "json/write.h"

static void answer_json(struct http_request *req, unsigned status, struct buf *b)
{
    if (b->failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, status, "application/json", buf_slice(b));
    }
    buf_free(b);
}

static void healthz(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, "application/json", SLICE("{\"status\":\"alive\"}"));
}

static void put_flag(struct buf *b, const char *name, bool v)
{
    buf_put_cstr(b, name);
    buf_put_cstr(b, v ? "true" : "false");
}

static void readyz(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct journal_status st;
    journal_get_status(m->journal, &st);
    bool ready = !st.poisoned && !st.no_space && !m->stopping;
    struct buf b = {0};
    buf_put_cstr(&b, ready ? "{\"status\":\"ready\"}" : "{\"status\":\"not_ready\",\"cause\":");
    if (!ready) {
        json_put_string(&b, st.damaged    ? SLICE("damaged")
                            : st.poisoned ? SLICE("writer_poisoned")
                            : st.no_space ? SLICE("no_space")
                                          : SLICE("stopping"));
        buf_put_cstr(&b, ",\"detail\":");
        json_put_string(&b, slice_cstr(st.cause));
        buf_put_char(&b, '}');
    }
    answer_json(req, ready ? 200 : 503, &b);
}

static void metrics(void *ctx, struct http_request *req)
{
    struct buf b = {0};
    (void)ctx;
    metrics_text(&b);
    if (b.failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, 200, "text/plain; version=0.0.4; charset=utf-8", buf_slice(&b));
    }
    buf_free(&b);
}

static void put_number(struct buf *b, const char *name, uint64_t v)
{
    buf_put_cstr(b, name);
    buf_put_u64(b, v);
}

static void status(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct journal_status st;
    struct buf b = {0};
    char hex[SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN];
    journal_get_status(m->journal, &st);
    hex_encode(hex, st.frontier.head, SHA256_LEN);
    uuid_text(id, &st.frontier.last_id);
    buf_put_cstr(&b, "{\"version\":");
    json_put_string(&b, slice_cstr(m->version));
    buf_put_cstr(&b, ",\"revision\":");
    json_put_string(&b, slice_cstr(m->revision));
    put_number(&b, ",\"uptime_ms\":", (os_clock_mono_ns() - m->started_ns) / 1000000);
    buf_put_cstr(&b, ",\"frontier\":{\"event_id\":");
    if (st.frontier.empty) {
        buf_put_cstr(&b, "null");
    } else {
        json_put_string(&b, slice_of(id, sizeof id));
    }
    put_number(&b, ",\"events\":", st.frontier.events);
    buf_put_cstr(&b, ",\"chain_head\":");
    json_put_string(&b, slice_of(hex, sizeof hex));
    put_number(&b, "},\"journal\":{\"bytes\":", st.bytes);
    put_number(&b, ",\"generations\":", st.generations);
    put_flag(&b, ",\"poisoned\":", st.poisoned);
    put_flag(&b, ",\"damaged\":", st.damaged);
    put_flag(&b, ",\"no_space\":", st.no_space);
    buf_put_cstr(&b, ",\"cause\":");
    json_put_string(&b, slice_cstr(st.cause));
    put_number(&b, ",\"clock_ahead_ms\":", st.clock_ahead_ms);
    put_number(&b, ",\"syncs\":", metric_get(METRIC_JOURNAL_SYNCS));
    put_number(&b, ",\"batches\":", metric_get(METRIC_JOURNAL_BATCHES));
    put_number(&b, ",\"duplicates\":", metric_get(METRIC_JOURNAL_DUPLICATES));
    put_number(&b, ",\"conflicts\":", metric_get(METRIC_JOURNAL_CONFLICTS));
    put_number(&b, "},\"http\":{\"connections\":", metric_get(METRIC_HTTP_CONNECTIONS));
    put_number(&b, ",\"requests\":", metric_get(METRIC_HTTP_REQUESTS));
    put_number(&b, ",\"overloaded\":", metric_get(METRIC_HTTP_OVERLOADED));
    buf_put_cstr(&b, "}}");
    answer_json(req, 200, &b);
}

void manage_routes(struct manage *m, struct http_route *out)
{
    out[0] = (struct http_route){"/healthz", HTTP_GET, HTTP_AUTH_OPEN, HTTP_SHAPE_API,
                                 0,          NULL,     healthz,        m};
    out[1] = (struct http_route){"/readyz", HTTP_GET, HTTP_AUTH_OPEN, HTTP_SHAPE_API,
                                 0,         NULL,     readyz,         m};
    out[2] = (struct http_route){"/metrics", HTTP_GET, HTTP_AUTH_TOKEN, HTTP_SHAPE_API,
                                 0,          NULL,     metrics,         m};
    out[3] = (struct http_route){
        "/api/v1/status", HTTP_GET, HTTP_AUTH_LOCAL, HTTP_SHAPE_API, 0, NULL, status, m};
}
