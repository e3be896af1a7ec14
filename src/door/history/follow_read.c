/* A follower behind the end of the journal: runs through the files, on workers.
 *
 * A run goes from the cursor to the frontier of the moment at which it begins. The first one is the
 * snapshot: it ends in caught_up. Every later one is live; at its end the follower is back at the
 * ring, or so far behind again that another run begins. Where a run begins is found by the cursor's
 * id, so nothing can be left out or sent twice between runs and ring.
 *
 * Between two pieces the reader gives back its window and its descriptor: a client that takes
 * nothing costs the piece that it does not take, and what follow_rest.c keeps of an event larger
 * than that.
 *
 * A fault of the files ends the follower with replay_failed behind what was good. Without memory,
 * or where a record has to be cut, the connection is cut: the client goes on from its cursor. */
#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/history/follow_internal.h"
#include "os/os.h"

#define LOOK_BYTES   (1u << 20) /* searched without a match before others have their turn */
#define RECORD_BYTES (1u << 20) /* of events, then a record ends also below its limit */

static void close_run(struct follower *f)
{
    journal_reader_close(f->reader);
    f->reader = NULL;
}

static bool is_due(const struct follower *f, uint32_t after_ms)
{
    return os_clock_mono_ns() / 1000000 - f->said_ms >= after_ms;
}

/* The run is over, or has to be. */
static void stop(struct follower *f, const char *reason)
{
    if (f->open) {
        follow_close_record(f, &f->out, &f->cursor, &f->through.last_id);
    }
    if (f->reader != NULL) {
        close_run(f);
    }
    f->reason = reason;
}

static void failed(struct follower *f, const struct err *e)
{
    log_line(LOG_ERROR, "history", "a follower ended: %s", e->text);
    stop(f, "replay_failed");
}

static void run_ended(struct follower *f)
{
    if (f->open || (!f->live && !f->begun)) {
        follow_close_record(f, &f->out, &f->through.last_id, &f->through.last_id);
    } else if (uuid_cmp(&f->through.last_id, &f->cursor) > 0) {
        f->cursor = f->through.last_id;
    }
    close_run(f);
    if (!f->live) {
        follow_put_caught_up(f, &f->out);
    }
}

/* Nothing matched for a while: what there is shall leave, and l is the last line that was looked
 * at. */
static void passed_over(struct follower *f, const struct line *l)
{
    if (f->open || is_due(f, FOLLOW_MOVE_MS)) {
        follow_close_record(f, &f->out, &l->id, &f->through.last_id);
    } else {
        f->cursor = l->id;
    }
}

static void put_line(struct follower *f, const struct line *l)
{
    follow_begin_event(f, &f->out);
    f->text_at = f->out.len;
    line_put_event(&f->out, l);
    f->text_end = f->out.len;
    follow_finish_event(f, &f->out, f->text_end - f->text_at, &l->id);
    if (f->in_record == f->limit || f->record_bytes >= RECORD_BYTES) {
        follow_close_record(f, &f->out, &f->cursor, &f->through.last_id);
    }
}

static int begin_run(struct follower *f, struct err *e)
{
    const struct uuid *after = uuid_is_zero(&f->cursor) ? NULL : &f->cursor;
    f->behind = false;
    return journal_reader_open(f->h->journal, after, NULL, &f->filter, &f->through, &f->reader, e);
}

/* The next event, 1; else as journal_reader_next. An event that is not behind the cursor would be
 * sent twice: the file is not what it was. */
static int next_line(struct follower *f, struct line *l, struct err *e)
{
    int r = f->reader == NULL ? begin_run(f, e) : 0;
    if (r == 0) {
        r = journal_reader_next(f->reader, l, LOOK_BYTES, e);
    }
    if (r == 1 && uuid_cmp(&l->id, &f->cursor) <= 0) {
        r = err_set(e, ERR_CORRUPT, "an event is not behind the one before it");
    }
    return r;
}

/* One step; false when this piece is over. */
static bool step(struct follower *f)
{
    struct err e = {0};
    struct line l;
    if (atomic_load(&f->h->stopping)) {
        stop(f, "shutdown");
        return false;
    }
    int r = next_line(f, &l, &e);
    if (r == 1) {
        put_line(f, &l);
        return true;
    }
    if (r == ERR_NOT_READY) {
        passed_over(f, &l);
    } else if (r == 0) {
        run_ended(f);
    } else {
        failed(f, &e);
    }
    return false;
}

/* What is left is less than a piece, or the rest of one event. */
static void drop_sent(struct follower *f)
{
    size_t left = f->out.len - f->sent;
    if (f->sent < left) {
        return; /* moving it costs more than it gives */
    }
    if (left > 0) {
        memmove(f->out.ptr, f->out.ptr + f->sent, left);
    }
    f->out.len = left;
    f->sent = 0;
    f->text_at = 0;
    f->text_end = 0;
}

int64_t follow_read(void *ctx, char *p, size_t cap)
{
    struct follower *f = ctx;
    metric_add(METRIC_HISTORY_FOLLOW_READS, 1);
    if (f->text_left > 0) {
        return follow_read_rest(f, p, cap);
    }
    bool more = f->reason == NULL && (!f->live || f->reader != NULL || f->behind);
    while (more && f->out.len - f->sent < cap) {
        drop_sent(f);
        more = step(f);
    }
    if (f->out.failed) {
        return ERR_NO_MEMORY;
    }
    size_t n = f->out.len - f->sent;
    n = n < cap ? n : cap;
    if (n > 0) {
        memcpy(p, f->out.ptr + f->sent, n);
        f->sent += n;
    }
    follow_keep_rest(f);
    if (f->reader != NULL) {
        journal_reader_rest(f->reader);
    }
    return (int64_t)n;
}
