/* What jobs do to the queue: put events, set bad ones aside, take delivered ones out.
 *
 * Invariants: an event's row, its receipt, its place in delivery_ready and the counters are written
 * under one savepoint; ids rise and, being stored with the first commit that used them, are never
 * given twice. Identity comes before the budget: a repeat costs nothing.
 *
 * If power fails: see turn.c; here nothing is durable by itself. Answers: a full queue, an unknown
 * project, and what store_err says. */
#include "base/ensure.h"
#include "store/internal.h"

static void bind_event(struct sqlite3_stmt *st, const struct queue_event *ev, int64_t id)
{
    const struct slice texts[] = {ev->time_note,    ev->type,           ev->event,  ev->distinct_id,
                                  ev->anonymous_id, ev->session_id,     ev->source, ev->message_id,
                                  ev->library,      ev->library_version};
    int at = 1;

    db_bind_int(st, at++, id);
    db_bind_int(st, at++, ev->project);
    db_bind_blob(st, at++, slice_of(ev->uuid.byte, sizeof ev->uuid.byte));
    db_bind_int(st, at++, ev->received_ms);
    db_bind_int(st, at++, ev->timestamp_us);
    if (ev->has_timestamp_sent) {
        db_bind_int(st, at, ev->timestamp_sent_us);
    } else {
        sqlite3_bind_null(st, at);
    }
    at++;
    if (ev->has_sent_at) {
        db_bind_int(st, at, ev->sent_at_ms);
    } else {
        sqlite3_bind_null(st, at);
    }
    at++;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        db_bind_text(st, at++, texts[i]);
    }
    db_bind_blob(st, at++, ev->envelope);
    db_bind_blob(st, at++, ev->text);
    ensure(at == 20);
}

int queue_put(struct store *s, const struct queue_event *ev, struct queue_receipt *out,
              struct err *e)
{
    struct account_project *p;
    uint64_t bytes = (uint64_t)ev->text.len + ev->envelope.len;
    int r;

    ensure(s->in_job);
    ensure(bytes <= INT64_MAX);
    out->repeat = false;
    r = receipts_find(s, ev->project, &ev->uuid, &out->event_id, e);
    if (r != 0) {
        out->repeat = r > 0;
        return r < 0 ? r : 0;
    }
    r = account_project(s, ev->project, &p, e);
    if (r == 0) {
        r = account_room(s, p, bytes, e);
    }
    if (r < 0) {
        return r;
    }
    ensure(s->next_id < INT64_MAX);
    bind_event(s->st[ST_EVENT_ADD], ev, s->next_id);
    r = db_run(s->st[ST_EVENT_ADD], "store an event", e);
    if (r == 0) {
        r = receipts_add(s, ev->project, &ev->uuid, s->next_id, e);
    }
    if (r < 0) {
        return r;
    }
    account_add_event(s, p, (int64_t)bytes);
    out->event_id = s->next_id++;
    return 0;
}

int queue_put_rejected(struct store *s, const struct queue_rejected *rej, struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_REJECTED_ADD];
    struct account_project *p;
    int64_t size = (int64_t)rej->text.len;
    int r;

    ensure(s->in_job);
    r = account_project(s, rej->project, &p, e);
    if (r < 0) {
        return r;
    }
    ensure(size >= 0);
    if (p->kept + p->d_kept >= QUEUE_REJECTED_MAX ||
        p->kept_bytes + p->d_kept_bytes + size > (int64_t)QUEUE_REJECTED_BYTES_MAX) {
        account_add_rejected(s, p, false, 0);
        return 0;
    }
    db_bind_int(st, 1, rej->project);
    db_bind_int(st, 2, rej->received_ms);
    db_bind_int(st, 3, rej->index);
    db_bind_text(st, 4, rej->door);
    db_bind_text(st, 5, rej->reason);
    db_bind_blob(st, 6, rej->text);
    r = db_run(st, "keep a rejected event", e);
    if (r == 0) {
        account_add_rejected(s, p, true, size);
    }
    return r;
}

/* ---- delivered ---- */

/* Where the ids from first on stop to follow one another. */
static size_t run_end(const int64_t *ids, size_t n, size_t first)
{
    size_t end = first + 1;

    while (end < n && ids[end] == ids[end - 1] + 1) {
        end++;
    }
    return end;
}

static int record_success(struct store *s, struct account_project *p, int64_t now_ms, struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_SUCCESS];

    p->success = true; /* once a job and project */
    db_bind_int(st, 1, p->id);
    db_bind_int(st, 2, now_ms);
    return db_run(st, "record a delivery", e);
}

/* Counts what is queued of a run of ids, whosoever events they are; *any: there are some. */
static int count_run(struct store *s, int64_t from, int64_t to, int64_t now_ms, bool *any,
                     struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_EVENTS_SIZE];
    int r;

    *any = false;
    db_bind_int(st, 1, from);
    db_bind_int(st, 2, to);
    while ((r = db_step(st, "look up delivered events", e)) > 0) {
        struct account_project *p;
        int64_t bytes = sqlite3_column_int64(st, 1);
        *any = true;
        r = account_project(s, sqlite3_column_int64(st, 0), &p, e);
        if (r == 0) {
            account_remove_event(s, p, bytes);
            r = p->success ? 0 : record_success(s, p, now_ms, e);
        }
        if (r < 0) {
            sqlite3_reset(st);
            return r;
        }
    }
    return r;
}

/* Two statements for all ids that follow one another; those not queued any more are passed over. */
static int remove_run(struct store *s, int64_t from, int64_t to, int64_t now_ms, struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_EVENTS_REMOVE];
    bool any;
    int r = count_run(s, from, to, now_ms, &any, e);

    if (r < 0 || !any) {
        return r;
    }
    db_bind_int(st, 1, from);
    db_bind_int(st, 2, to);
    return db_run(st, "remove delivered events", e);
}

int queue_delivered(struct store *s, const int64_t *ids, size_t n, int64_t now_ms, struct err *e)
{
    int r = 0;

    ensure(s->in_job);
    ensure(n <= QUEUE_SLICE);
    for (size_t i = 0, end; r == 0 && i < n; i = end) {
        end = run_end(ids, n, i);
        r = remove_run(s, ids[i], ids[end - 1], now_ms, e);
    }
    return r;
}

int queue_set_cursor(struct store *s, const struct queue_cursor *c, struct err *e)
{
    ensure(s->in_job);
    db_bind_int(s->st[ST_CURSOR_SET], 1, c->project);
    db_bind_int(s->st[ST_CURSOR_SET], 2, c->after_id);
    return db_run(s->st[ST_CURSOR_SET], "store the delivery cursor", e);
}
