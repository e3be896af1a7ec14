/* POST /v1/events.
 *
 * Order of checks (spec/history.md section 5): the front has done 401, 404, 405; on_head does the
 * query string, then the media type; the front admits and bounds the body; then parse.c; then the
 * writer stage in the journal: duplicate, conflict, retired source, lineage, precondition, commit.
 *
 * Every writer-stage outcome waits in `waiting` for journal_commit. When that fails, all of them
 * get the failure: a duplicate or a conflict may have been decided against a batch of the very
 * group that was lost. Reads that come behind them in the same turn wait too, so that nobody gets a
 * receipt and behind it, on the same connection, a history without it. */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/history/internal.h"
#include "json/write.h"

static bool iequal(struct slice s, const char *lower)
{
    return s.len == strlen(lower) && strncasecmp(s.ptr, lower, s.len) == 0;
}

static struct slice trim(struct slice s)
{
    while (s.len > 0 && (*s.ptr == ' ' || *s.ptr == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* application/json, with charset=utf-8 as the only parameter. */
static bool media_type_ok(struct slice v)
{
    const char *semicolon = memchr(v.ptr, ';', v.len);
    if (semicolon == NULL) {
        return iequal(trim(v), "application/json");
    }
    struct slice type = slice_of(v.ptr, (size_t)(semicolon - v.ptr));
    struct slice param = trim(slice_from(v, type.len + 1));
    return iequal(trim(type), "application/json") &&
           (iequal(param, "charset=utf-8") || iequal(param, "charset=\"utf-8\""));
}

void history_append_head(void *ctx, struct http_request *req)
{
    (void)ctx;
    struct slice v;
    unsigned count;
    if (http_query(req).len > 0) {
        http_answer_error(req, ERR_INVALID_REQUEST, "this route takes no query parameters",
                          (struct slice){0});
    } else if (http_header(req, "content-encoding", &v, NULL)) {
        http_answer_error(req, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding is not accepted here",
                          (struct slice){0});
    } else if (http_header(req, "content-type", &v, &count) && (count > 1 || !media_type_ok(v))) {
        http_answer_error(req, ERR_UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json",
                          (struct slice){0});
    }
}

/* ---- answers ---- */

static void answer_no_space(struct http_request *req)
{
    http_add_header(req, "Retry-After", SLICE("60"));
    http_answer_error(req, ERR_OVERLOADED, "the server has no space left; nothing was stored",
                      (struct slice){0});
}

static void answer_not_ready(struct history *h, struct http_request *req)
{
    struct journal_status st;
    char text[160];
    journal_get_status(h->journal, &st);
    if (st.index_full) {
        (void)snprintf(text, sizeof text,
                       "the index cannot be written for now; nothing was stored");
    } else {
        (void)snprintf(text, sizeof text,
                       "the index is being made: %u of %u generations; nothing was stored",
                       st.indexed, st.index_total);
    }
    http_add_header(req, "Retry-After", SLICE("1"));
    http_answer_error(req, ERR_OVERLOADED, text, (struct slice){0});
}

void history_answer_failure(struct http_request *req, int code)
{
    switch (code) {
    case ERR_NO_SPACE:
        answer_no_space(req);
        return;
    case ERR_WRITER_POISONED:
        http_answer_error(req, ERR_WRITER_POISONED,
                          "the outcome is not known; send the same batch again after a restart",
                          (struct slice){0});
        return;
    case ERR_BODY_TOO_LARGE:
        http_answer_error(req, ERR_BODY_TOO_LARGE, "the batch is too large", (struct slice){0});
        return;
    case ERR_NO_MEMORY:
        http_answer_error(req, ERR_OVERLOADED, "no memory for this batch now", (struct slice){0});
        return;
    default:
        http_answer_error(req, ERR_INTERNAL_ERROR,
                          "the batch could not be looked up; nothing was stored",
                          (struct slice){0});
        return;
    }
}

static void put_digest(struct buf *b, const uint8_t digest[SHA256_LEN])
{
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, digest, SHA256_LEN);
    buf_put_cstr(b, "\"batch_digest\":\"");
    buf_put(b, hex, sizeof hex);
    buf_put_char(b, '"');
}

static void answer_receipt(struct history *h, struct http_request *req,
                           const struct journal_result *r)
{
    struct buf *b = &h->text;
    buf_clear(b);
    buf_put_cstr(b, r->outcome == JOURNAL_COMMITTED ? "{\"status\":\"committed\","
                                                    : "{\"status\":\"duplicate\",");
    put_digest(b, r->digest);
    buf_put_cstr(b, ",\"events\":");
    buf_put_u64(b, r->events);
    buf_put_char(b, ',');
    history_put_id(b, "first_event_id", false, &r->first_id);
    buf_put_char(b, ',');
    history_put_id(b, "last_event_id", false, &r->last_id);
    buf_put_char(b, '}');
    if (b->failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the receipt", (struct slice){0});
        return;
    }
    http_answer(req, 200, "application/json", buf_slice(b));
}

void history_answer_context(struct http_request *req, int code, const char *text,
                            const struct buf *context)
{
    if (context->failed) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    http_answer_error(req, code, text, buf_slice(context));
}

static void answer_conflict(struct history *h, struct http_request *req,
                            const struct journal_result *r)
{
    const struct named *n = http_user(req);
    struct buf *b = &h->text;
    ensure(n != NULL);
    if (r->outcome != JOURNAL_BATCH_CONFLICT && r->outcome != JOURNAL_FRONTIER_CONFLICT) {
        history_answer_lifecycle(h, req, r);
        return;
    }
    buf_clear(b);
    buf_put_cstr(b, "\"source\":");
    buf_put_slice(b, n->source);
    if (r->outcome == JOURNAL_BATCH_CONFLICT) {
        buf_put_cstr(b, ",\"batch_id\":");
        buf_put_slice(b, n->batch_id);
        buf_put_cstr(b, ",\"events\":");
        buf_put_u64(b, r->events);
        buf_put_char(b, ',');
        put_digest(b, r->digest);
        history_answer_context(req, ERR_BATCH_ID_CONFLICT,
                               "this batch_id was committed with other content; nothing was stored",
                               b);
        return;
    }
    buf_put_cstr(b, ",\"stream\":");
    buf_put_slice(b, n->stream);
    buf_put_char(b, ',');
    history_put_id(b, "expected_frontier", n->expect_none, &n->expected);
    buf_put_char(b, ',');
    history_put_id(b, "actual_frontier", r->actual_none, &r->actual_frontier);
    history_answer_context(req, ERR_STREAM_FRONTIER_CONFLICT,
                           "the stream's frontier is not the expected one; nothing was stored", b);
}

static void release(struct history *h, int code)
{
    for (size_t i = 0; i < h->waiting_count; i++) {
        struct waiting *w = &h->waiting[i];
        if (code != 0) {
            history_answer_failure(w->req, code);
        } else if (w->result.outcome == JOURNAL_COMMITTED ||
                   w->result.outcome == JOURNAL_DUPLICATE) {
            answer_receipt(h, w->req, &w->result);
        } else {
            answer_conflict(h, w->req, &w->result);
        }
    }
    h->waiting_count = 0;
}

static void run_read(const struct read *r)
{
    if (!http_work(r->req, r->work, r->done, r->ctx)) {
        r->refuse(r->ctx, r->req);
    }
}

void history_start_read(struct history *h, const struct read *r)
{
    /* Slow readers on TCP leave some to the operator's socket. */
    uint32_t kept = http_on_unix_socket(r->req) ? 0 : HISTORY_READS_KEPT;
    if (h->replays > h->options.replays_max - kept) {
        r->refuse(r->ctx, r->req);
        return;
    }
    if (h->waiting_count == 0) {
        run_read(r);
        return;
    }
    ensure(h->reads_count < h->options.replays_max);
    h->reads[h->reads_count++] = *r;
}

static void commit(struct history *h)
{
    struct err e = {0};
    release(h, journal_commit(h->journal, &e));
    if (e.code == ERR_WRITER_POISONED) {
        followers_tick(h);
    }
    for (uint32_t i = 0; i < h->reads_count; i++) {
        run_read(&h->reads[i]);
    }
    h->reads_count = 0;
}

void history_turn(struct history *h)
{
    if (h->waiting_count > 0) {
        commit(h);
    }
    followers_turn(h);
}

/* ---- the writer stage ---- */

static struct slice keep(struct arena *a, struct slice s)
{
    char *p = arena_copy(a, s);
    return p == NULL ? (struct slice){0} : slice_of(p, s.len);
}

static bool remember_names(struct http_request *req, const struct journal_batch *b,
                           struct slice retired)
{
    static const struct journal_batch none;
    struct slice empty = SLICE("\"\"");
    struct arena *a = http_arena(req);
    struct named *n = arena_calloc(a, 1, sizeof *n);
    if (n == NULL) {
        return false;
    }
    n->source = keep(a, b != NULL ? b->source : retired);
    b = b != NULL ? b : &none;
    n->batch_id = b->batch_id.ptr != NULL ? keep(a, b->batch_id) : empty;
    n->stream = b->has_precondition ? keep(a, b->precondition_stream) : empty;
    n->predecessor = b->predecessor.ptr != NULL ? keep(a, b->predecessor) : empty;
    n->flaw = b->marker_flaw;
    n->expect_none = b->expect_none;
    n->expected = b->expected_frontier;
    n->predecessor_frontier = b->predecessor_frontier;
    http_set_user(req, n);
    return n->source.ptr != NULL && n->batch_id.ptr != NULL && n->stream.ptr != NULL &&
           n->predecessor.ptr != NULL;
}

/* Room for one more waiting request, before anything is staged for it. */
static bool waiting_reserve(struct history *h)
{
    if (h->waiting_count < h->waiting_cap) {
        return true;
    }
    size_t cap = h->waiting_cap == 0 ? 256 : h->waiting_cap * 2;
    struct waiting *w = realloc(h->waiting, cap * sizeof *w);
    if (w == NULL) {
        return false;
    }
    h->waiting = w;
    h->waiting_cap = cap;
    return true;
}

static int decide(struct history *h, const struct journal_batch *b, struct slice retired,
                  struct journal_result *result, struct err *e)
{
    return b != NULL ? journal_append(h->journal, b, result, e)
                     : journal_retire(h->journal, retired, result, e);
}

void history_stage(struct history *h, struct http_request *req, const struct journal_batch *b,
                   struct slice retired)
{
    struct err e = {0};
    struct journal_result result;
    if (!waiting_reserve(h)) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    int r = decide(h, b, retired, &result, &e);
    if (r == ERR_GROUP_FULL) {
        commit(h);
        r = decide(h, b, retired, &result, &e);
        ensure(r != ERR_GROUP_FULL);
    }
    bool receipt = result.outcome == JOURNAL_COMMITTED || result.outcome == JOURNAL_DUPLICATE;
    if (r == 0 && !receipt && !remember_names(req, b, retired)) {
        r = ERR_NO_MEMORY; /* a retirement that was staged goes its way: asked again, it is told */
    }
    if (r == ERR_NOT_READY) {
        answer_not_ready(h, req);
        return;
    }
    if (r != 0) {
        if (r != ERR_NO_SPACE && r != ERR_WRITER_POISONED) {
            log_line(LOG_ERROR, "history", "append failed: %s", e.text);
        }
        history_answer_failure(req, r);
        return;
    }
    h->waiting[h->waiting_count++] = (struct waiting){req, result};
}

/* ---- bodies ---- */

void history_answer_refused(struct http_request *req, const struct err *e, const struct buf *extra)
{
    if (e->code == ERR_NO_MEMORY || extra->failed) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    http_answer_error(req, e->code, e->text, buf_slice(extra));
}

/* A large body, on its way through a worker. */
struct large {
    struct history *h;
    struct slice body;
    size_t canonical_max;
    struct parse *parse;
    struct journal_batch batch;
    struct buf extra;
    struct err e;
    int code;
};

static void large_work(void *ctx)
{
    struct large *lg = ctx;
    if (lg->parse == NULL) {
        lg->parse = parse_new();
    }
    if (lg->parse == NULL) {
        lg->code = err_set(&lg->e, ERR_NO_MEMORY, "no memory for a large body");
        return;
    }
    lg->code = parse_batch(lg->parse, lg->body, lg->canonical_max, &lg->batch, &lg->extra, &lg->e);
}

static void large_done(void *ctx, struct http_request *req);

static void large_free(struct large *lg)
{
    parse_free(lg->parse);
    buf_free(&lg->extra);
    free(lg);
}

static void large_done(void *ctx, struct http_request *req)
{
    struct large *lg = ctx;
    size_t most = lg->body.len * CANONICAL_GROWTH + CANONICAL_SLACK;
    if (lg->code == ERR_NO_MEMORY && lg->canonical_max < most) {
        /* The canonical form is larger than the body: once more, with room for the largest. */
        if (http_reserve(req, most - lg->canonical_max)) {
            lg->canonical_max = most;
            if (http_work(req, large_work, large_done, lg)) {
                return;
            }
        }
    }
    if (lg->code == 0) {
        history_stage(lg->h, req, &lg->batch, (struct slice){0});
    } else {
        history_answer_refused(req, &lg->e, &lg->extra);
    }
    large_free(lg);
}

static void start_large(struct history *h, struct http_request *req)
{
    struct large *lg = calloc(1, sizeof *lg);
    if (lg == NULL) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    lg->h = h;
    lg->body = http_body(req);
    lg->canonical_max = lg->body.len + CANONICAL_SLACK;
    if (!http_reserve(req, lg->canonical_max) || !http_work(req, large_work, large_done, lg)) {
        large_free(lg);
        http_answer_error(req, ERR_OVERLOADED, "too much is under way; nothing was stored",
                          (struct slice){0});
    }
}

void history_append_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct slice body = http_body(req);
    if (body.len > INLINE_BODY_MAX) {
        start_large(h, req);
        return;
    }
    struct journal_batch batch;
    struct err e = {0};
    int r = parse_batch(h->parse, body, body.len * CANONICAL_GROWTH + CANONICAL_SLACK, &batch,
                        &h->extra, &e);
    if (r != 0) {
        history_answer_refused(req, &e, &h->extra);
    } else {
        history_stage(h, req, &batch, (struct slice){0});
    }
    parse_trim(h->parse);
}
