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
    struct history_params params;
    bool ndjson;

    struct journal_reader *reader;
    struct journal_frontier snapshot;
    struct buf out; /* what did not fit into a piece */
    size_t sent;    /* of out */
    bool begun, ended;
    uint64_t count, bytes;
    struct uuid last_id;
    struct err e;
    int code;
};

/* ---- the answer's text ---- */

void history_put_snapshot(struct buf *b, const struct journal_frontier *f)
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
    } else if (rp->params.has_after &&
               (f->empty || uuid_cmp(&rp->params.after, &f->last_id) >= 0)) {
        history_put_id(b, "next_after", false, &rp->params.after);
    } else {
        history_put_id(b, "next_after", f->empty, &f->last_id);
    }
    buf_put_char(b, ',');
    history_put_id(b, "snapshot_through_event_id", f->empty, &f->last_id);
    if (f->complete) { /* else the index is being made: count and head are not known yet */
        buf_put_char(b, ',');
        history_put_snapshot(b, f);
    }
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

/* Into the piece where all of it fits, which spares a copy; else into out, and what fits of it is
 * taken from there. */
static void put_event(struct replay *rp, const struct line *l, struct buf *piece)
{
    struct slice before = rp->ndjson ? SLICE("") : rp->begun ? SLICE(",") : SLICE("{\"events\":[");
    size_t bytes = before.len + line_event_bytes(l) + (rp->ndjson ? 1 : 0);
    struct buf *b = bytes <= piece->cap - piece->len ? piece : &rp->out;
    buf_put_slice(b, before);
    line_put_event(b, l);
    if (rp->ndjson) {
        buf_put_char(b, '\n');
    }
    rp->begun = true;
    rp->count++;
    rp->bytes += bytes;
    rp->last_id = l->id;
}

/* One step: another event, or the end. 0, ERR_NOT_READY when LOOK_BYTES held nothing to send, or
 * the code that cuts the answer. */
static int step(struct replay *rp, struct buf *piece)
{
    if (rp->count == rp->params.limit || (!rp->ndjson && rp->bytes >= PAGE_BYTES_MAX)) {
        finish(rp, true);
        return 0;
    }
    struct line l;
    int r = journal_reader_next(rp->reader, &l, LOOK_BYTES, &rp->e);
    if (r == 1) {
        put_event(rp, &l, piece);
        return rp->out.failed ? fail(rp, ERR_NO_MEMORY) : 0;
    }
    if (r < 0) {
        return r == ERR_NOT_READY ? r : fail(rp, r);
    }
    finish(rp, false);
    return 0;
}

/* Moves as much of out into the piece as fits. */
static void take_out(struct replay *rp, struct buf *piece)
{
    size_t left = rp->out.len - rp->sent;
    size_t n = piece->cap - piece->len < left ? piece->cap - piece->len : left;
    if (n > 0) {
        buf_put(piece, rp->out.ptr + rp->sent, n);
        rp->sent += n;
    }
    if (rp->sent == rp->out.len) {
        rp->out.len = 0; /* `failed` stays what it is */
        rp->sent = 0;
    }
}

/* A long search for events that match does not keep its worker: what there is goes out, and if that
 * is nothing, a space (JSON allows it here, also before a line of NDJSON). So others get their turn
 * between the pieces, and a client that has gone is noticed. */
static int64_t replay_read(void *ctx, char *p, size_t cap)
{
    struct replay *rp = ctx;
    struct buf piece = {.ptr = p, .cap = cap, .limit = cap};
    int r = 0;
    take_out(rp, &piece);
    while (r == 0 && piece.len < cap && !rp->ended) {
        r = step(rp, &piece);
        take_out(rp, &piece);
    }
    if (r == ERR_NOT_READY && !atomic_load(&rp->h->stopping)) {
        r = 0;
        if (piece.len == 0) {
            buf_put_char(&piece, ' ');
        }
    }
    if (r != 0 || rp->out.failed) {
        return r != 0 ? r : ERR_NO_MEMORY;
    }
    ensure(!piece.failed);
    return (int64_t)piece.len;
}

/* ---- the request ---- */

static void replay_close(void *ctx)
{
    struct replay *rp = ctx;
    if (rp->reader != NULL) {
        journal_reader_close(rp->reader);
    }
    rp->h->replays--;
    arena_free(&rp->params.arena);
    buf_free(&rp->out);
    free(rp);
}

static void open_work(void *ctx)
{
    struct replay *rp = ctx;
    rp->code = journal_reader_open(rp->h->journal, rp->params.has_after ? &rp->params.after : NULL,
                                   NULL, &rp->params.filter, &rp->snapshot, &rp->reader, &rp->e);
    if (rp->code == 0 && rp->params.last != 0) {
        rp->code = journal_reader_last(rp->reader, rp->params.last, &rp->e);
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

static bool start(struct history *h, struct http_request *req, const struct history_params *params)
{
    struct replay *rp = calloc(1, sizeof *rp);
    if (rp == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for a replay", (struct slice){0});
        return false;
    }
    h->replays++;
    rp->h = h;
    rp->params = *params;
    rp->ndjson = history_accepts(req, SLICE("application/x-ndjson"));
    history_start_read(h, &(struct read){req, open_work, open_done, replay_refuse, rp});
    return true;
}

void history_events_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct err e = {0};
    struct history_params params = {0};
    int r = history_params_read(h, req, &params, &e);
    if (r != 0) {
        history_answer_err(req, &e);
    } else if (params.follow) {
        follow_start(h, req, &params);
    } else if (start(h, req, &params)) {
        return; /* the arena is the replay's */
    }
    arena_free(&params.arena);
}
