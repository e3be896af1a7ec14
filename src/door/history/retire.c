/* POST /v1/sources/retire, and the answers about retired sources and lineage.
 *
 * Checks and their order are those of an append (append.c): query string, media type, admission,
 * size (1 MiB), JSON screen, body; then the writer stage, whose answers wait for the commit of the
 * group they were decided in. Until then a retirement that was staged is told to nobody, and
 * neither is the `already_retired` of one that came behind it. If the group fails, all of them get
 * the failure.
 *
 * The event's payload and batch_id are made of the source's final frontier, so whoever repeats a
 * retirement whose answer was lost gets the same values. */
#include <stdlib.h>

#include "base/ensure.h"
#include "door/history/internal.h"

/* ---- answers ---- */

static void put_member(struct buf *b, const char *name, struct slice string)
{
    buf_put_cstr(b, name);
    buf_put_slice(b, string);
}

static void put_retired(struct buf *b, const struct journal_result *r)
{
    buf_put_char(b, ',');
    history_put_id(b, "final_frontier", false, &r->final_frontier);
    buf_put_char(b, ',');
    history_put_id(b, "retirement_event_id", false, &r->retirement_event_id);
}

static void answer_retired(struct http_request *req, const struct named *n,
                           const struct journal_result *r, struct buf *b)
{
    put_member(b,
               r->outcome == JOURNAL_RETIRED ? "{\"v\":1,\"status\":\"retired\",\"source\":"
                                             : "{\"v\":1,\"status\":\"already_retired\","
                                               "\"source\":",
               n->source);
    put_retired(b, r);
    buf_put_char(b, '}');
    if (b->failed) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    http_answer(req, 200, "application/json", buf_slice(b));
}

static void answer_lineage_conflict(struct http_request *req, const struct named *n,
                                    const struct journal_result *r, struct buf *b)
{
    put_member(b, "\"source\":", n->source);
    put_member(b, ",\"predecessor_source\":", n->predecessor);
    buf_put_char(b, ',');
    history_put_id(b, "expected_predecessor_frontier", false, &n->predecessor_frontier);
    buf_put_char(b, ',');
    history_put_id(b, "actual_predecessor_frontier", r->actual_none, &r->actual_frontier);
    const char *text = "the source has events already, and cannot begin as a successor; nothing "
                       "was stored";
    if (r->actual_none) {
        text = "the predecessor is not retired; nothing was stored";
    } else if (uuid_cmp(&n->predecessor_frontier, &r->actual_frontier) != 0) {
        text = "the predecessor was retired at another frontier; nothing was stored";
    }
    history_answer_context(req, ERR_SOURCE_LINEAGE_CONFLICT, text, b);
}

void history_answer_lifecycle(struct history *h, struct http_request *req,
                              const struct journal_result *r)
{
    const struct named *n = http_user(req);
    struct buf *b = &h->text;
    buf_clear(b);
    switch (r->outcome) {
    case JOURNAL_RETIRED:
    case JOURNAL_ALREADY_RETIRED:
        answer_retired(req, n, r, b);
        return;
    case JOURNAL_SOURCE_UNKNOWN:
        put_member(b, "\"source\":", n->source);
        history_answer_context(req, ERR_SOURCE_NOT_FOUND, "the source has no event", b);
        return;
    case JOURNAL_SOURCE_RETIRED:
        put_member(b, "\"source\":", n->source);
        put_retired(b, r);
        history_answer_context(req, ERR_SOURCE_RETIRED, "the source is retired; nothing was stored",
                               b);
        return;
    case JOURNAL_LINEAGE_INVALID:
        history_answer_context(req, ERR_INVALID_SOURCE_LINEAGE, n->flaw, b);
        return;
    case JOURNAL_LINEAGE_CONFLICT:
        answer_lineage_conflict(req, n, r, b);
        return;
    case JOURNAL_COMMITTED:
    case JOURNAL_DUPLICATE:
    case JOURNAL_BATCH_CONFLICT:
    case JOURNAL_FRONTIER_CONFLICT:
        break;
    }
    ensure(r->outcome == JOURNAL_RETIRED); /* the rest are answered in append.c */
}

/* ---- bodies ---- */

static void decide(struct history *h, struct http_request *req, int code, struct slice source,
                   const struct err *e)
{
    static const struct buf no_extra;
    if (code == 0) {
        history_stage(h, req, NULL, source);
    } else {
        history_answer_refused(req, e, &no_extra);
    }
}

/* A body of more than INLINE_BODY_MAX, on its way through a worker. */
struct large {
    struct history *h;
    struct slice body, source;
    size_t canonical_max;
    struct parse *parse;
    struct err e;
    int code;
};

static void large_free(struct large *lg)
{
    parse_free(lg->parse);
    free(lg);
}

static void large_work(void *ctx)
{
    struct large *lg = ctx;
    lg->parse = parse_new();
    lg->code = lg->parse == NULL
                   ? err_set(&lg->e, ERR_NO_MEMORY, "no memory for a large body")
                   : parse_retirement(lg->parse, lg->body, lg->canonical_max, &lg->source, &lg->e);
}

static void large_done(void *ctx, struct http_request *req)
{
    struct large *lg = ctx;
    decide(lg->h, req, lg->code, lg->source, &lg->e);
    large_free(lg);
}

static void start_large(struct history *h, struct http_request *req, struct slice body)
{
    struct large *lg = calloc(1, sizeof *lg);
    if (lg == NULL) {
        history_answer_failure(req, ERR_NO_MEMORY);
        return;
    }
    lg->h = h;
    lg->body = body;
    lg->canonical_max = body.len * CANONICAL_GROWTH + CANONICAL_SLACK;
    if (!http_reserve(req, lg->canonical_max) || !http_work(req, large_work, large_done, lg)) {
        large_free(lg);
        http_answer_error(req, ERR_OVERLOADED, "too much is under way; nothing was stored",
                          (struct slice){0});
    }
}

void history_retire_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct slice body = http_body(req);
    struct slice source;
    struct err e = {0};
    if (body.len > INLINE_BODY_MAX) {
        start_large(h, req, body);
        return;
    }
    int code = parse_retirement(h->parse, body, body.len * CANONICAL_GROWTH + CANONICAL_SLACK,
                                &source, &e);
    decide(h, req, code, source, &e);
    parse_trim(h->parse);
}
