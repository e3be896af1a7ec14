/* Followers on the loop: how one begins, what it gets next, and how it ends.
 *
 *   SNAPSHOT --a run through the files, caught_up--> LIVE
 *   LIVE, at the end of the journal: waits in the list; a commit or the time wakes it
 *   LIVE, behind, and all that is missing is in the ring and small: sent from here
 *   LIVE, behind by more: a run through the files (follow_read.c), as often as it takes
 *   any --stopping, poisoned (at the end of the journal), a fault of the files--> end --> closed
 *
 * Only committed events come here: the ring is filled by the journal behind its sync, runs end at
 * the published frontier. The cursor's id alone decides what is next, whoever sends it.
 *
 * A turn wakes and looks at no more than TURN_UNITS say, so thousands of followers cannot hold up
 * the appends of the next turn; who was not woken finds more to take later. What all followers
 * without a filter get is formatted once. No event, no file and no client can end more than its own
 * follower. Power failure: nothing durable is here. */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "door/history/follow_internal.h"
#include "os/os.h"

#define SMALL_BYTES 32768u /* what leaves without a worker */
#define FRAME_SPARE 256u   /* what an event may need beside its text */
/* A unit is well under 0.1 us, so a turn gives them about half a millisecond. */
#define TURN_UNITS 8192u
#define WAKE_UNITS 64u

static uint64_t now_ms(void)
{
    return os_clock_mono_ns() / 1000000;
}

static void enlist(struct follower *f)
{
    struct followers *fs = &f->h->followers;
    if (!f->waiting) {
        f->waiting = true;
        TAILQ_INSERT_TAIL(&fs->waiting, f, link);
        fs->waiting_count++;
    }
}

static void delist(struct follower *f)
{
    struct followers *fs = &f->h->followers;
    if (f->waiting) {
        f->waiting = false;
        TAILQ_REMOVE(&fs->waiting, f, link);
        fs->waiting_count--;
    }
}

/* ---- what there is for a follower ---- */

static bool move_is_due(const struct follower *f, uint64_t now)
{
    return uuid_cmp(&f->cursor, &f->told) > 0 && now - f->said_ms >= FOLLOW_MOVE_MS;
}

static bool comment_is_due(const struct follower *f, uint64_t now)
{
    return f->sse && now - f->said_ms >= FOLLOW_QUIET_MS;
}

/* Passes over what does not match, up to the first event that does, or to the end. False: the ring
 * does not go back so far. *cost is how many were looked at, and twice those from the first match
 * on, which are looked at twice before it is sent. */
static bool pass_over(struct follower *f, uint32_t *cost)
{
    const struct recent *r = &f->h->followers.recent;
    if (uuid_cmp(&f->cursor, &r->start) < 0) {
        return false;
    }
    if (!f->filtered) {
        return true;
    }
    for (uint64_t n = recent_find(r, &f->cursor); n < r->end; n++) {
        const struct recent_event *ev = recent_at(r, n);
        *cost += 1;
        if (recent_matches(r, ev, &f->filter)) {
            *cost += 2 * (uint32_t)(r->end - n);
            return true;
        }
        f->cursor = ev->id;
    }
    if (uuid_cmp(&f->cursor, &r->through) < 0) {
        f->cursor = r->through; /* its last event was too large for the ring, and that is start */
    }
    return true;
}

static bool at_end(const struct follower *f)
{
    return uuid_cmp(&f->cursor, &f->h->followers.recent.through) >= 0;
}

static bool has_news(struct follower *f, uint64_t now, uint32_t *cost)
{
    return atomic_load(&f->h->stopping) || f->h->followers.poisoned || !pass_over(f, cost) ||
           !at_end(f) || move_is_due(f, now) || comment_is_due(f, now);
}

/* Puts every event of the ring behind the cursor that matches, up to its end. */
static void put_recent(struct follower *f, struct buf *out)
{
    const struct recent *r = &f->h->followers.recent;
    for (uint64_t n = recent_find(r, &f->cursor); n < r->end; n++) {
        const struct recent_event *ev = recent_at(r, n);
        if (!recent_matches(r, ev, &f->filter)) {
            continue;
        }
        follow_begin_event(f, out);
        buf_put_slice(out, recent_text(r, ev));
        follow_finish_event(f, out, ev->len, &ev->id);
        if (f->in_record == f->limit && n + 1 < r->end) {
            follow_close_record(f, out, &f->cursor, &r->through);
        }
    }
    if (f->open) {
        follow_close_record(f, out, &r->through, &r->through);
    }
    f->cursor = r->through;
}

/* The same for a follower without a filter: the text may be there already. */
static void put_shared(struct follower *f, struct buf *out)
{
    struct followers *fs = &f->h->followers;
    const struct recent *r = &fs->recent;
    struct followers_shared *sh = &fs->shared[f->sse];
    uint64_t first = recent_find(r, &f->cursor);
    ensure(first < r->end);
    if (sh->text.len == 0 || sh->first != first || sh->end != r->end || sh->limit != f->limit) {
        buf_clear(&sh->text);
        *sh = (struct followers_shared){sh->text, first, r->end, f->limit};
        put_recent(f, &sh->text);
    }
    if (sh->text.failed) {
        out->failed = true;
        buf_clear(&sh->text);
        return;
    }
    buf_put_slice(out, buf_slice(&sh->text));
    f->last_id = r->through;
    f->cursor = r->through;
    f->told = r->through;
    f->said_ms = now_ms();
}

/* How many bytes it would be; more than SMALL_BYTES is not counted to its end. */
static uint64_t missing_bytes(const struct follower *f)
{
    const struct recent *r = &f->h->followers.recent;
    uint64_t bytes = 0;
    for (uint64_t n = recent_find(r, &f->cursor); n < r->end && bytes <= SMALL_BYTES; n++) {
        const struct recent_event *ev = recent_at(r, n);
        bytes += recent_matches(r, ev, &f->filter) ? ev->len + FRAME_SPARE : 0;
    }
    return bytes;
}

/* ---- the source ---- */

static enum http_next put_end(struct follower *f, struct buf *out, const char *reason)
{
    f->reason = reason;
    follow_put_end(f, out);
    return HTTP_NEXT_SEND;
}

static enum http_next read_files(struct follower *f)
{
    f->behind = true;
    return HTTP_NEXT_READ;
}

/* What is next for one that has had caught_up and is in no run. */
static enum http_next next_live(struct follower *f, struct buf *out)
{
    struct followers *fs = &f->h->followers;
    uint64_t now = now_ms();
    uint32_t cost = 0;
    if (!pass_over(f, &cost)) {
        return read_files(f);
    }
    if (!at_end(f)) {
        if (missing_bytes(f) > SMALL_BYTES) {
            return read_files(f);
        }
        if (f->filtered) {
            put_recent(f, out);
        } else {
            put_shared(f, out);
        }
        return HTTP_NEXT_SEND;
    }
    if (fs->poisoned) {
        return put_end(f, out, "writer_poisoned");
    }
    if (move_is_due(f, now)) {
        follow_close_record(f, out, &f->cursor, &fs->recent.through);
        return HTTP_NEXT_SEND;
    }
    if (comment_is_due(f, now)) {
        follow_put_comment(f, out);
        return HTTP_NEXT_SEND;
    }
    enlist(f);
    return HTTP_NEXT_WAIT;
}

static enum http_next follow_next(void *ctx, struct buf *out)
{
    struct follower *f = ctx;
    delist(f);
    if (f->out.len > f->sent || f->text_left > 0) {
        return HTTP_NEXT_READ; /* the rest of what did not fit into a piece */
    }
    if (f->ended) {
        return HTTP_NEXT_END;
    }
    if (f->reason != NULL) {
        return put_end(f, out, f->reason);
    }
    if (f->reader != NULL || f->behind) {
        return HTTP_NEXT_READ; /* also when the server stops: a record may be open */
    }
    if (atomic_load(&f->h->stopping)) {
        return put_end(f, out, "shutdown");
    }
    return f->live ? next_live(f, out) : HTTP_NEXT_READ;
}

static void follow_close(void *ctx)
{
    struct follower *f = ctx;
    struct followers *fs = &f->h->followers;
    delist(f);
    if (f->reader != NULL) {
        journal_reader_close(f->reader);
    }
    ensure(fs->count > 0);
    fs->count--;
    metric_sub(METRIC_HISTORY_FOLLOWERS, 1);
    follow_free_rest(f);
    free(f->filter_text);
    free(f);
}

/* ---- beginning ---- */

static bool is_filtered(const struct journal_filter *f)
{
    return f->source.ptr != NULL || f->stream.ptr != NULL || f->record_key.ptr != NULL ||
           f->kind.ptr != NULL;
}

static void move_text(struct slice *s, char **to)
{
    if (s->ptr != NULL) {
        memcpy(*to, s->ptr, s->len);
        s->ptr = *to;
        *to += s->len;
    }
}

/* The filter in memory of its own, for as long as the follower lives. */
static bool keep_filter(struct follower *f, const struct journal_filter *from)
{
    f->filter = *from;
    f->filtered = is_filtered(from);
    if (!f->filtered) {
        return true;
    }
    f->filter_text =
        malloc(from->source.len + from->stream.len + from->record_key.len + from->kind.len);
    if (f->filter_text == NULL) {
        return false;
    }
    char *to = f->filter_text;
    move_text(&f->filter.source, &to);
    move_text(&f->filter.stream, &to);
    move_text(&f->filter.record_key, &to);
    move_text(&f->filter.kind, &to);
    return true;
}

static struct follower *make(struct history *h, const struct history_params *params)
{
    struct follower *f = calloc(1, sizeof *f);
    if (f == NULL || !keep_filter(f, &params->filter)) {
        free(f);
        return NULL;
    }
    f->h = h;
    f->limit = params->limit;
    f->cursor = params->has_after ? params->after : (struct uuid){0};
    f->told = f->cursor;
    f->said_ms = now_ms();
    return f;
}

/* Browsers ask again with the same URL and this header, so it wins over `after`. */
static int read_last_event_id(const struct http_request *req, struct follower *f, struct err *e)
{
    struct slice v;
    unsigned count = 0;
    if (!http_header(req, "last-event-id", &v, &count)) {
        return 0;
    }
    if (count > 1 || !uuid7_parse(v, &f->cursor)) {
        return err_set(e, ERR_INVALID_REPLAY_REQUEST,
                       "the header Last-Event-ID must be a UUIDv7 in canonical form");
    }
    f->told = f->cursor;
    return 0;
}

/* The first follower: from here on the ring gets what is committed. */
static bool start_ring(struct history *h)
{
    struct journal_frontier now;
    if (h->followers.count > 0) {
        return true;
    }
    journal_get_frontier(h->journal, &now);
    followers_tick(h);
    return recent_start(&h->followers.recent, &now.last_id);
}

static void answer(struct follower *f, struct http_request *req)
{
    static const struct http_source source = {
        .read = follow_read, .close = follow_close, .next = follow_next};
    f->req = req;
    f->h->followers.count++;
    metric_add(METRIC_HISTORY_FOLLOWERS, 1);
    http_add_header(req, "Cache-Control", SLICE("no-store"));
    if (f->sse) {
        http_add_header(req, "X-Accel-Buffering", SLICE("no"));
    }
    http_answer_stream(req, 200, f->sse ? "text/event-stream" : "application/x-ndjson", &source, f);
}

void follow_start(struct history *h, struct http_request *req, const struct history_params *params)
{
    struct err e = {0};
    uint32_t kept = http_on_unix_socket(req) ? HISTORY_READS_KEPT : 0;
    struct follower *f = make(h, params);
    int r = f == NULL ? err_set(&e, ERR_OVERLOADED, "no memory for a follower") : 0;
    if (r == 0) {
        f->sse = history_accepts(req, SLICE("text/event-stream"));
        r = f->sse ? read_last_event_id(req, f, &e) : 0;
    }
    if (r == 0 && h->followers.count >= h->options.followers_max + kept) {
        r = err_set(&e, ERR_OVERLOADED, "too many followers are connected");
    }
    if (r == 0 && !start_ring(h)) {
        r = err_set(&e, ERR_OVERLOADED, "no memory for followers");
    }
    if (r == 0) {
        answer(f, req);
        return;
    }
    history_answer_err(req, &e);
    if (f != NULL) {
        free(f->filter_text);
        free(f);
    }
}

/* ---- the turn ---- */

static void committed(void *ctx, struct slice lines)
{
    struct history *h = ctx;
    if (h->followers.count > 0) {
        recent_add(&h->followers.recent, lines);
        followers_look(h);
    }
}

void followers_init(struct history *h)
{
    TAILQ_INIT(&h->followers.waiting);
    journal_on_committed(h->journal, committed, h);
}

void followers_free(struct history *h)
{
    ensure(h->followers.count == 0);
    journal_on_committed(h->journal, NULL, NULL);
    recent_free(&h->followers.recent);
    buf_free(&h->followers.shared[0].text);
    buf_free(&h->followers.shared[1].text);
}

void followers_look(struct history *h)
{
    h->followers.to_look = h->followers.waiting_count;
}

void followers_tick(struct history *h)
{
    struct followers *fs = &h->followers;
    struct journal_status st;
    journal_get_status(h->journal, &st);
    fs->poisoned = st.poisoned;
    if (fs->count > 0 && uuid_cmp(&st.frontier.last_id, &fs->recent.through) < 0) {
        /* Damage was found while the index was made: the journal ends in front of the ring. No run
         * would ever get there, so the ring comes back. */
        bool back = recent_start(&fs->recent, &st.frontier.last_id);
        ensure(back); /* it has its memory */
    }
    followers_look(h);
}

void followers_turn(struct history *h)
{
    struct followers *fs = &h->followers;
    uint64_t now = fs->to_look > 0 ? now_ms() : 0;
    uint32_t spent = 0;
    while (fs->to_look > 0 && !TAILQ_EMPTY(&fs->waiting) && spent < TURN_UNITS) {
        struct follower *f = TAILQ_FIRST(&fs->waiting);
        fs->to_look--;
        spent++;
        delist(f);
        if (has_news(f, now, &spent)) {
            http_stream_wake(f->req);
            spent += WAKE_UNITS;
        } else {
            enlist(f);
        }
    }
    if (TAILQ_EMPTY(&fs->waiting)) {
        fs->to_look = 0;
    } else if (fs->to_look > 0) {
        http_again(http_server_of(TAILQ_FIRST(&fs->waiting)->req));
    }
}
