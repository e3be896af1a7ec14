/* Looking receipts up and adding them; what jobs and turns keep or undo; the filter.
 *
 * Invariants: young and old together hold exactly the rows of receipts_recent, as the transaction
 * sees them (old ones are trimmed from the table a little before the set is freed: then they are in
 * `receipts` already, committed). Ids rise from old to young. The filter, once ready, holds every
 * key of `receipts`: the filler read the table at or after the moment from which each move adds its
 * keys.
 *
 * If power fails: receipts_recent is in the transaction of its events; the sets are read from it at
 * open. A run is begun anew from there; keys that are already in `receipts` are passed over.
 *
 * Answers: no memory. A read error is the job's. Corrupt rows stop the start. */
#include "store/receipts.h"

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/internal.h"

int receipts_find(struct store *s, int64_t project, const struct uuid *uuid, int64_t *id,
                  struct err *e)
{
    const struct receipts *rs = &s->receipts;
    struct sqlite3_stmt *st = s->st[ST_RECEIPT_FIND];
    const struct receipt *known = receipt_set_find(&rs->young, rs->seed, project, uuid);
    int r;

    if (known == NULL) {
        known = receipt_set_find(&rs->old, rs->seed, project, uuid);
    }
    if (known != NULL) {
        *id = known->event_id;
        return 1;
    }
    if (rs->filter != NULL && !receipt_filter_maybe(rs->filter, project, uuid->byte)) {
        return 0;
    }
    db_bind_int(st, 1, project);
    db_bind_blob(st, 2, slice_of(uuid->byte, sizeof uuid->byte));
    r = db_step(st, "look up a receipt", e);
    if (r > 0) {
        *id = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
    }
    return r;
}

int receipts_add(struct store *s, int64_t project, const struct uuid *uuid, int64_t id,
                 struct err *e)
{
    struct receipts *rs = &s->receipts;
    struct receipt entry = {.project = project, .event_id = id, .uuid = *uuid};
    struct sqlite3_stmt *st = s->st[ST_RECENT_ADD];
    int r;

    ensure(s->in_job);
    r = receipt_set_add(&rs->young, rs->seed, &entry, e);
    if (r < 0) {
        return r;
    }
    db_bind_int(st, 1, id);
    db_bind_int(st, 2, project);
    db_bind_blob(st, 3, slice_of(entry.uuid.byte, sizeof entry.uuid.byte));
    return db_run(st, "store a receipt", e);
}

/* ---- jobs and turns ---- */

/* Each step of a run may be done twice, so what was kept earlier in this turn may go too. */
static void go_back(struct receipts *rs)
{
    rs->now = rs->kept;
    if (rs->now.phase == RECEIPTS_SORT && rs->sorted == rs->chunks) {
        rs->now.phase = RECEIPTS_MOVE; /* sorting needs no transaction: it stays done */
    }
    for (uint32_t i = 0; i < rs->chunks; i++) {
        rs->at[i] = rs->at_kept[i];
    }
}

void receipts_job_begin(struct store *s)
{
    s->receipts.mark_job = s->receipts.young.count;
}

void receipts_job_undo(struct store *s)
{
    receipt_set_cut(&s->receipts.young, s->receipts.seed, s->receipts.mark_job);
    go_back(&s->receipts);
}

void receipts_turn_begin(struct store *s)
{
    struct receipts *rs = &s->receipts;
    struct err e;

    /* Here no entry can be undone any more, so a run may begin. */
    if (s->merge_queued && rs->now.phase == RECEIPTS_IDLE && rs->young.count > 0 &&
        receipts_begin_run(rs, &e) < 0) {
        log_line(LOG_WARN, "store", "%s", e.text);
    }
    rs->mark_turn = rs->young.count;
}

void receipts_turn_keep(struct store *s)
{
    struct receipts *rs = &s->receipts;

    if (rs->now.phase == RECEIPTS_DONE) {
        rs->filter_keys += rs->old.count;
        receipts_end_run(rs);
        return;
    }
    rs->kept = rs->now;
    for (uint32_t i = 0; i < rs->chunks; i++) {
        rs->at_kept[i] = rs->at[i];
    }
}

void receipts_turn_undo(struct store *s)
{
    receipt_set_cut(&s->receipts.young, s->receipts.seed, s->receipts.mark_turn);
    go_back(&s->receipts);
}

bool receipts_due(const struct store *s, bool idle)
{
    const struct receipts *rs = &s->receipts;
    uint32_t min = idle && rs->run_min > RECEIPTS_RUN_IDLE ? RECEIPTS_RUN_IDLE : rs->run_min;

    return rs->now.phase != RECEIPTS_IDLE || rs->young.count >= min;
}

bool receipts_hold(const struct store *s)
{
    return s->receipts.young.count >= RECEIPTS_HOLD && s->receipts.now.phase != RECEIPTS_IDLE;
}

/* ---- the filter ---- */

static void begin_filter(struct store *s)
{
    struct receipts *rs = &s->receipts;

    ensure(rs->filling == NULL);
    rs->filling = receipt_filter_new(rs->filter_keys, rs->seed);
    if (rs->filling == NULL) {
        log_line(LOG_WARN, "store", "no memory for a filter in front of the receipts");
        return;
    }
    checkpoint_fill(s->checkpointer, rs->filling);
}

void receipts_tick(struct store *s)
{
    struct receipts *rs = &s->receipts;

    if (rs->filling == NULL) {
        bool full = rs->filter != NULL && rs->filter->bytes < RECEIPT_FILTER_BYTES_MAX &&
                    rs->filter_keys > RECEIPT_FILTER_KEYS_MAX(rs->filter->bytes);
        if (rs->filter == NULL || full) {
            begin_filter(s);
        }
    }
    if (rs->filling == NULL) {
        return;
    }
    if (atomic_load_explicit(&rs->filling->ready, memory_order_acquire)) {
        receipt_filter_free(rs->filter);
        rs->filter = rs->filling;
        rs->filling = NULL;
    } else if (atomic_load_explicit(&rs->filling->failed, memory_order_acquire)) {
        receipt_filter_free(rs->filling);
        rs->filling = NULL; /* the next tick begins another */
    }
}

/* ---- opening and closing ---- */

static int load_recent(struct store *s, struct err *e)
{
    struct receipts *rs = &s->receipts;
    struct sqlite3_stmt *st = s->st[ST_RECENT_ALL];
    int r;

    while ((r = db_step(st, "read the recent receipts", e)) > 0) {
        struct receipt entry = {.event_id = sqlite3_column_int64(st, 0),
                                .project = sqlite3_column_int64(st, 1)};
        struct slice uuid = db_column(st, 2);
        if (uuid.len != sizeof entry.uuid.byte) {
            r = err_set(e, ERR_CORRUPT, "%s: the receipt of event %lld has a uuid of %zu bytes",
                        STORE_FILE, (long long)entry.event_id, uuid.len);
        } else {
            memcpy(entry.uuid.byte, uuid.ptr, sizeof entry.uuid.byte);
            r = receipt_set_add(&rs->young, rs->seed, &entry, e);
        }
        if (r < 0) {
            sqlite3_reset(st);
            return r;
        }
    }
    return r;
}

int receipts_open(struct store *s, uint64_t receipts, struct err *e)
{
    struct receipts *rs = &s->receipts;
    int r = os_random(rs->seed, sizeof rs->seed);

    if (r < 0) {
        return err_os(e, r, "get random bytes", "for the receipts' hash");
    }
    rs->run_min = RECEIPTS_RUN;
    r = load_recent(s, e);
    if (r < 0) {
        return r;
    }
    rs->filter_keys = receipts > rs->young.count ? receipts - rs->young.count : 0;
    receipts_tick(s);
    return 0;
}

/* After checkpoint_close: nobody fills any more. */
void receipts_close(struct store *s)
{
    struct receipts *rs = &s->receipts;

    receipts_end_run(rs);
    receipt_set_free(&rs->young);
    receipt_filter_free(rs->filter);
    receipt_filter_free(rs->filling);
    rs->filter = NULL;
    rs->filling = NULL;
}
