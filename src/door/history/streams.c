/* GET and HEAD /v1/streams (spec/history.md section 9): (source, stream) rows at a frontier, paged
 * by an anchor that the client repeats. A worker reads summaries and lines; the answer is one page
 * of at most 1,000 rows. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "door/history/internal.h"
#include "journal/read.h"
#include "json/write.h"

#define STREAMS_LIMIT_DEFAULT 100
#define STREAMS_LIMIT_MAX     1000

struct streams_page {
    struct history *h;
    struct slice source;                     /* empty: all */
    struct slice after_source, after_stream; /* ptr NULL: from the start */
    bool has_through;
    struct uuid through;
    uint64_t limit;

    struct journal_frontier frontier;
    struct buf rows;
    uint64_t count;
    bool more;
    char last[260];
    struct err e;
    int code;
};

/* ---- parameters ---- */

static int bad(struct err *e, const char *text)
{
    return err_set(e, ERR_INVALID_STREAMS_REQUEST, "%s", text);
}

static int set_after(struct streams_page *pg, struct slice v, struct err *e)
{
    const char *slash = memchr(v.ptr, '/', v.len);
    if (slash != NULL) {
        pg->after_source = slice_of(v.ptr, (size_t)(slash - v.ptr));
        pg->after_stream = slice_from(v, pg->after_source.len + 1);
    }
    return slash != NULL && parse_valid_name(pg->after_source) && parse_valid_name(pg->after_stream)
               ? 0
               : bad(e, "after must be source/stream");
}

static int set_param(struct streams_page *pg, struct slice name, struct slice v, unsigned *bit,
                     struct err *e)
{
    if (slice_eq(name, SLICE("source"))) {
        *bit = 1;
        pg->source = v;
        return parse_valid_name(v) ? 0 : bad(e, "source is no source name");
    }
    if (slice_eq(name, SLICE("after"))) {
        *bit = 2;
        return set_after(pg, v, e);
    }
    if (slice_eq(name, SLICE("through"))) {
        *bit = 4;
        pg->has_through = uuid7_parse(v, &pg->through);
        return pg->has_through ? 0 : bad(e, "through must be a UUIDv7 in canonical form");
    }
    if (slice_eq(name, SLICE("limit"))) {
        *bit = 8;
        return history_parse_limit(v, STREAMS_LIMIT_MAX, &pg->limit)
                   ? 0
                   : bad(e, "limit must be a number from 1 to 1000");
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

static int read_params(struct streams_page *pg, struct http_request *req, struct err *e)
{
    struct http_pairs pairs = {http_query(req)};
    struct slice name;
    struct slice value;
    unsigned seen = 0;
    int r;
    while ((r = http_next_pair(&pairs, http_arena(req), &name, &value)) == 1) {
        unsigned bit = 0;
        r = set_param(pg, name, value, &bit, e);
        if (bit != 0 && (seen & bit) != 0) {
            return err_set(e, ERR_INVALID_REQUEST, "a query parameter is given twice");
        }
        if (r != 0) {
            return r;
        }
        seen |= bit;
    }
    if (r < 0) {
        return err_set(
            e, r, r == ERR_NO_MEMORY ? "no memory for the query" : "the query string is malformed");
    }
    if (pg->after_source.ptr != NULL && !pg->has_through) {
        return bad(e, "after needs through, the first page's snapshot_through_event_id");
    }
    return 0;
}

/* ---- the page ---- */

static int add_row(void *ctx, const struct index_stream *row)
{
    struct streams_page *pg = ctx;
    if (pg->after_source.ptr != NULL) {
        int c = slice_cmp(row->source, pg->after_source);
        c = c != 0 ? c : slice_cmp(row->stream, pg->after_stream);
        if (c <= 0) {
            return 0;
        }
    }
    if (pg->count == pg->limit) {
        pg->more = true;
        return 1;
    }
    struct buf *b = &pg->rows;
    buf_put_cstr(b, pg->count == 0 ? "{\"source\":" : ",{\"source\":");
    json_put_string(b, row->source);
    buf_put_cstr(b, ",\"stream\":");
    json_put_string(b, row->stream);
    buf_put_char(b, ',');
    history_put_id(b, "frontier_event_id", false, &row->last_id);
    buf_put_cstr(b, ",\"event_count\":");
    buf_put_u64(b, row->events);
    buf_put_char(b, '}');
    int n = snprintf(pg->last, sizeof pg->last, "%.*s/%.*s", (int)row->source.len, row->source.ptr,
                     (int)row->stream.len, row->stream.ptr);
    ensure(n > 0 && (size_t)n < sizeof pg->last);
    pg->count++;
    return 0;
}

static void page_work(void *ctx)
{
    struct streams_page *pg = ctx;
    struct journal *j = pg->h->journal;
    journal_get_frontier(j, &pg->frontier);
    if (pg->has_through) {
        pg->code = journal_has_event(j, &pg->through, &pg->e);
        if (pg->code == 0) {
            pg->code =
                err_set(&pg->e, ERR_STREAM_ANCHOR_UNAVAILABLE, "through is no committed event");
        }
        if (pg->code < 0) {
            return;
        }
    } else if (pg->frontier.empty) {
        pg->code = 0;
        return;
    } else {
        pg->through = pg->frontier.last_id;
    }
    pg->code = journal_read_streams(j, &pg->through, pg->source, add_row, pg, &pg->e);
    if (pg->code >= 0) {
        pg->code = pg->rows.failed ? err_set(&pg->e, ERR_NO_MEMORY, "no memory for the rows") : 0;
    }
}

static void page_free(struct streams_page *pg)
{
    pg->h->replays--;
    buf_free(&pg->rows);
    free(pg);
}

static void page_done(void *ctx, struct http_request *req)
{
    struct streams_page *pg = ctx;
    if (pg->code != 0) {
        history_answer_err(req, &pg->e);
        page_free(pg);
        return;
    }
    struct buf *b = &pg->h->text;
    buf_clear(b);
    buf_put_cstr(b, "{\"v\":1,\"streams\":[");
    buf_put_slice(b, buf_slice(&pg->rows));
    buf_put_cstr(b, "],\"next_after\":");
    if (pg->more) {
        json_put_string(b, slice_cstr(pg->last));
    } else {
        buf_put_cstr(b, "null");
    }
    buf_put_char(b, ',');
    history_put_id(b, "snapshot_through_event_id", !pg->has_through && pg->frontier.empty,
                   &pg->through);
    buf_put_char(b, '}');
    if (b->failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, 200, "application/json", buf_slice(b));
    }
    page_free(pg);
}

static void page_refuse(void *ctx, struct http_request *req)
{
    http_answer_error(req, ERR_OVERLOADED, "too many reads are under way", (struct slice){0});
    page_free(ctx);
}

void history_streams_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct err e = {0};
    struct streams_page *pg = calloc(1, sizeof *pg);
    if (pg == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for a page of streams",
                          (struct slice){0});
        return;
    }
    h->replays++;
    pg->h = h;
    pg->limit = STREAMS_LIMIT_DEFAULT;
    int r = read_params(pg, req, &e);
    if (r != 0) {
        history_answer_err(req, &e);
        page_free(pg);
    } else {
        history_start_read(h, &(struct read){req, page_work, page_done, page_refuse, pg});
    }
}
