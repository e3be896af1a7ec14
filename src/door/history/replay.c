/* GET and HEAD /v1/events: finite replay (spec/history.md section 8), as one JSON document or as
 * NDJSON.
 *
 * A worker opens the reader (that is a search in files), then the answer is pulled piece by piece
 * by workers: one piece and one stored line are in memory for each replay. The snapshot is fixed
 * when the reader is opened. A fault while reading cuts a JSON answer (its length is never
 * announced) and ends an NDJSON answer with a line of type "error". */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/history/internal.h"
#include "journal/read.h"
#include "json/write.h"

#define PAGE_BYTES_MAX (8u << 20) /* of a JSON document; NDJSON has no need of one */
#define LOOK_BYTES     (4u << 20) /* searched without a match before something is sent */

struct replay {
    struct history *h;
    struct arena arena; /* holds the filters: a request's own ends with its head */
    struct journal_filter filter;
    bool has_after;
    struct uuid after;
    uint64_t limit;
    uint64_t last; /* 0: not asked for */
    bool ndjson;

    struct journal_reader *reader;
    struct journal_frontier snapshot;
    struct buf out;
    size_t sent; /* of out */
    bool begun, ended;
    uint64_t count, bytes;
    struct uuid last_id;
    struct err e;
    int code;
};

/* ---- parameters ---- */

static int bad(struct err *e, const char *text)
{
    return err_set(e, ERR_INVALID_REPLAY_REQUEST, "%s", text);
}

/* X(name, bit) */
#define REPLAY_PARAMS(X) \
    X(source) X(stream) X(record_key) X(kind) X(after) X(limit) X(follow) X(last)

enum replay_param {
#define X(name) PARAM_##name,
    REPLAY_PARAMS(X)
#undef X
        PARAM_COUNT
};

static enum replay_param find_param(struct slice name)
{
    static const char *const names[] = {
#define X(name) #name,
        REPLAY_PARAMS(X)
#undef X
    };
    int i = 0;
    while (i < PARAM_COUNT && !slice_eq(name, slice_cstr(names[i]))) {
        i++;
    }
    return (enum replay_param)i;
}

static int set_filter(struct replay *rp, struct slice *out, struct slice value, struct err *e)
{
    *out = history_json_string(&rp->arena, value);
    return out->ptr == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for a filter") : 0;
}

static int set_param(struct replay *rp, enum replay_param p, struct slice v, struct err *e)
{
    switch (p) {
    case PARAM_source:
        return set_filter(rp, &rp->filter.source, v, e);
    case PARAM_stream:
        return set_filter(rp, &rp->filter.stream, v, e);
    case PARAM_kind:
        return set_filter(rp, &rp->filter.kind, v, e);
    case PARAM_record_key:
        if (v.len == 0 || v.len > 1024) {
            return bad(e, "record_key must have 1 to 1024 bytes");
        }
        return set_filter(rp, &rp->filter.record_key, v, e);
    case PARAM_after:
        rp->has_after = uuid7_parse(v, &rp->after);
        return rp->has_after ? 0 : bad(e, "after must be a UUIDv7 in canonical form");
    case PARAM_limit:
        return history_parse_limit(v, rp->h->options.replay_max_limit, &rp->limit)
                   ? 0
                   : err_set(e, ERR_INVALID_REPLAY_REQUEST, "limit must be a number from 1 to %u",
                             rp->h->options.replay_max_limit);
    case PARAM_follow:
        if (slice_eq(v, SLICE("true"))) {
            return bad(e, "follow is not available in this version");
        }
        return slice_eq(v, SLICE("false")) ? 0 : bad(e, "follow must be true or false");
    case PARAM_last:
        return history_parse_limit(v, rp->h->options.replay_max_limit, &rp->last)
                   ? 0
                   : err_set(e, ERR_INVALID_REPLAY_REQUEST, "last must be a number from 1 to %u",
                             rp->h->options.replay_max_limit);
    case PARAM_COUNT:
        break;
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

static int read_params(struct replay *rp, struct http_request *req, struct err *e)
{
    struct http_pairs pairs = {http_query(req)};
    struct slice name;
    struct slice value;
    unsigned seen = 0;
    int r;
    while ((r = http_next_pair(&pairs, http_arena(req), &name, &value)) == 1) {
        enum replay_param p = find_param(name);
        if (p == PARAM_COUNT || (p == PARAM_last && !http_on_unix_socket(req))) {
            return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
        }
        if ((seen & (1u << p)) != 0) {
            return err_set(e, ERR_INVALID_REQUEST, "a query parameter is given twice");
        }
        seen |= 1u << p;
        r = set_param(rp, p, value, e);
        if (r != 0) {
            return r;
        }
    }
    if (r < 0) {
        return err_set(
            e, r, r == ERR_NO_MEMORY ? "no memory for the query" : "the query string is malformed");
    }
    if (rp->last != 0 && ((seen & (1u << PARAM_after)) != 0 || (seen & (1u << PARAM_limit)) != 0)) {
        return bad(e, "last goes with neither after nor limit");
    }
    if (rp->last != 0) {
        rp->limit = rp->last;
    }
    return 0;
}

static bool accepts_ndjson(const struct http_request *req)
{
    struct slice v;
    static const char want[] = "application/x-ndjson";
    return http_header(req, "accept", &v, NULL) &&
           memmem(v.ptr, v.len, want, sizeof want - 1) != NULL;
}

/* ---- the answer's text ---- */

static void put_snapshot(struct buf *b, const struct journal_frontier *f)
{
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, f->head, SHA256_LEN);
    buf_put_cstr(b, "\"snapshot\":{");
    history_put_id(b, "frontier_event_id", f->empty, &f->last_id);
    buf_put_cstr(b, ",\"frontier_event_count\":");
    buf_put_u64(b, f->events);
    buf_put_cstr(b, ",\"chain_head\":\"");
    buf_put(b, hex, sizeof hex);
    buf_put_cstr(b, "\"}");
}

/* Members behind the events: where the page ended and where to go on. stopped: by count or size, so
 * there may be more. */
static void put_end(struct replay *rp, bool stopped)
{
    struct buf *b = &rp->out;
    const struct journal_frontier *f = &rp->snapshot;
    if (rp->count > 0) {
        history_put_id(b, "last_event_id", false, &rp->last_id);
        buf_put_char(b, ',');
    }
    if (stopped) {
        history_put_id(b, "next_after", false, &rp->last_id);
    } else if (rp->has_after && (f->empty || uuid_cmp(&rp->after, &f->last_id) >= 0)) {
        history_put_id(b, "next_after", false, &rp->after);
    } else {
        history_put_id(b, "next_after", f->empty, &f->last_id);
    }
    buf_put_char(b, ',');
    history_put_id(b, "snapshot_through_event_id", f->empty, &f->last_id);
    buf_put_char(b, ',');
    put_snapshot(b, f);
}

static void finish(struct replay *rp, bool stopped)
{
    ensure(!stopped || rp->count > 0);
    if (rp->ndjson) {
        buf_put_cstr(&rp->out, "{\"type\":\"page\",");
        put_end(rp, stopped);
        buf_put_cstr(&rp->out, "}\n");
    } else {
        buf_put_cstr(&rp->out, rp->begun ? "]," : "{\"events\":[],");
        put_end(rp, stopped);
        buf_put_char(&rp->out, '}');
    }
    rp->ended = true;
}

static int fail(struct replay *rp, int code)
{
    log_line(LOG_ERROR, "history", "a replay ended: %s", rp->e.text);
    if (!rp->ndjson) {
        return code;
    }
    buf_put_cstr(&rp->out, "{\"type\":\"error\",\"error\":\"internal_error\","
                           "\"message\":\"the history could not be read further\"}\n");
    rp->ended = true;
    return 0;
}

static void put_event(struct replay *rp, const struct line *l)
{
    struct buf *b = &rp->out;
    size_t before = b->len;
    if (!rp->ndjson) {
        buf_put_cstr(b, rp->begun ? "," : "{\"events\":[");
    }
    rp->begun = true;
    line_put_event(b, l);
    if (rp->ndjson) {
        buf_put_char(b, '\n');
    }
    rp->count++;
    rp->bytes += b->len - before;
    rp->last_id = l->id;
}

/* One step: another event into out, or the end. 0, ERR_NOT_READY when LOOK_BYTES held nothing to
 * send, or the code that cuts the answer. */
static int step(struct replay *rp)
{
    if (rp->count == rp->limit || (!rp->ndjson && rp->bytes >= PAGE_BYTES_MAX)) {
        finish(rp, true);
        return 0;
    }
    struct line l;
    int r = journal_reader_next(rp->reader, &l, LOOK_BYTES, &rp->e);
    if (r == 1) {
        put_event(rp, &l);
        return rp->out.failed ? fail(rp, ERR_NO_MEMORY) : 0;
    }
    if (r < 0) {
        return r == ERR_NOT_READY ? r : fail(rp, r);
    }
    finish(rp, false);
    return 0;
}

/* What is left is less than a piece, so moving it to the front is cheap; without it the buffer
 * would grow to the size of the whole answer. */
static void drop_sent(struct replay *rp)
{
    size_t left = rp->out.len - rp->sent;
    if (rp->sent > 0) {
        memmove(rp->out.ptr, rp->out.ptr + rp->sent, left);
        rp->out.len = left;
        rp->sent = 0;
    }
}

/* A long search for events that match does not keep its worker: what there is goes out, and if that
 * is nothing, a space (JSON allows it here, also before a line of NDJSON). So others get their turn
 * between the pieces, and a client that has gone is noticed. */
static int64_t replay_read(void *ctx, char *p, size_t cap)
{
    struct replay *rp = ctx;
    int r = 0;
    while (r == 0 && rp->out.len - rp->sent < cap && !rp->ended) {
        drop_sent(rp);
        r = step(rp);
    }
    if (r == ERR_NOT_READY && !atomic_load(&rp->h->stopping)) {
        r = 0;
        if (rp->out.len == rp->sent) {
            buf_put_char(&rp->out, ' ');
        }
    }
    if (r != 0 || rp->out.failed) {
        return r != 0 ? r : ERR_NO_MEMORY;
    }
    size_t n = rp->out.len - rp->sent;
    n = n < cap ? n : cap;
    if (n > 0) {
        memcpy(p, rp->out.ptr + rp->sent, n);
        rp->sent += n;
    }
    return (int64_t)n;
}

/* ---- the request ---- */

static void replay_close(void *ctx)
{
    struct replay *rp = ctx;
    if (rp->reader != NULL) {
        journal_reader_close(rp->reader);
    }
    rp->h->replays--;
    arena_free(&rp->arena);
    buf_free(&rp->out);
    free(rp);
}

static void open_work(void *ctx)
{
    struct replay *rp = ctx;
    rp->code = journal_reader_open(rp->h->journal, rp->has_after ? &rp->after : NULL, NULL,
                                   &rp->filter, &rp->snapshot, &rp->reader, &rp->e);
    if (rp->code == 0 && rp->last != 0) {
        rp->code = journal_reader_last(rp->reader, rp->last, &rp->e);
    }
}

static void open_done(void *ctx, struct http_request *req)
{
    static const struct http_source source = {.read = replay_read, .close = replay_close};
    struct replay *rp = ctx;
    if (rp->code != 0) {
        history_answer_err(req, &rp->e);
        replay_close(rp);
        return;
    }
    http_answer_stream(req, 200, rp->ndjson ? "application/x-ndjson" : "application/json", &source,
                       rp);
}

static void replay_refuse(void *ctx, struct http_request *req)
{
    http_answer_error(req, ERR_OVERLOADED, "too many reads are under way", (struct slice){0});
    replay_close(ctx);
}

void history_replay_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct err e = {0};
    struct replay *rp = calloc(1, sizeof *rp);
    if (rp == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for a replay", (struct slice){0});
        return;
    }
    h->replays++;
    rp->h = h;
    rp->limit = h->options.replay_default_limit;
    rp->ndjson = accepts_ndjson(req);
    int r = read_params(rp, req, &e);
    if (r != 0) {
        history_answer_err(req, &e);
        replay_close(rp);
    } else {
        history_start_read(h, &(struct read){req, open_work, open_done, replay_refuse, rp});
    }
}
