/* runner_send: one try of the frozen batch, and what its verdict leads to.
 *
 *   delivered         recorded; the next batch may have twice the rows
 *   retry, unknown    the position is stored behind the batch; the same bytes again after the
 *                     backoff. After BATCH_TRIES_MAX tries that do not blame the destination as a
 *                     whole the batch is let go: its rows are ready again, and its projects are
 *                     sent alone, so that one row that always fails holds up nobody else's. One
 *                     that is sent alone already has one try, where the far side gave a reason
 *   retry, smaller    let go after a few tries; the next batches have half the rows
 *   rejected          each project's rows alone; refused ones wait for their own schedule
 *
 * The room for the record is made before the send: what was taken there can always be written down
 * here. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "os/os.h"
#include "sink/runner_internal.h"

/* After so many batches that passed, a lowered bound is doubled. */
#define RAISE_AFTER 64

static void grow_limit(struct sink *k)
{
    uint32_t most = k->options.batch_events_max;
    k->successes++;
    if (k->successes >= RAISE_AFTER && k->limit_max < most) {
        k->limit_max = k->limit_max > most / 2 ? most : k->limit_max * 2;
        k->successes = 0;
    }
    k->limit = k->limit > k->limit_max / 2 ? k->limit_max : k->limit * 2;
}

/* Where the selection goes on, written down without deliveries. */
static void store_position(struct sink *k)
{
    struct record *rec = record_new(k, NULL, 0);
    if (rec != NULL) {
        record_take(k, rec, &k->batch.rows.next);
    }
}

static void out_of_memory(struct sink *k)
{
    struct sink_result r = {.verdict = SINK_RETRY, .text = "no memory to deliver a batch"};
    sink_note_failure(k, &r);
}

static void on_delivered(struct sink *k, struct record *rec)
{
    struct batch *b = &k->batch;
    flight_add(&k->flight, b->rows.row, b->rows.count);
    k->in_a_row++;
    int64_t last = b->rows.row[b->rows.count - 1].id;
    if (b->solo != 0) {
        record_take(k, rec, NULL);
        solo_delivered(k, b->solo, last);
    } else {
        if (b->rows.left_out.project != 0) {
            k->from = b->rows.left_out;
        }
        record_take(k, rec, &k->from);
        grow_limit(k);
    }
    sink_note_success(k, b->rows.count);
    batch_thaw(k);
}

/* Which project's rows are to blame is not known, so that each is sent alone from now on. */
static void let_go(struct sink *k, const struct sink_result *r)
{
    const struct queue_rows *rows = &k->batch.rows;
    bool single = rows->row[0].ev.project == rows->row[rows->count - 1].ev.project;
    bool ok = true;
    if (single) {
        ok = solo_refused(k, rows->row[0].ev.project, rows->row[rows->count - 1].id, r->text);
    }
    for (size_t i = 0; i < rows->count && ok && !single; i++) {
        if (i == 0 || rows->row[i].ev.project != rows->row[i - 1].ev.project) {
            ok = solo_add(k, rows->row[i].ev.project);
        }
    }
    if (!ok) {
        log_line(LOG_WARN, k->adapter->name, "no memory to send projects alone");
    }
    batch_thaw(k);
}

/* The far side named a reason, which is not that it is busy, full or not ready: a project that is
 * sent alone may have brought it about, and others need not wait for the end of its tries. */
static bool answers_for_rows(const struct sink_result *r)
{
    return r->code > 0 && r->retry_ms == 0 && !r->prepare && !r->smaller;
}

static void on_failed(struct sink *k, const struct sink_result *r)
{
    struct batch *b = &k->batch;
    b->tries++;
    if (b->tries == 1 && b->solo == 0) {
        store_position(k);
    }
    sink_note_failure(k, r);
    /* A request that is too large stays so; a memory limit may pass. */
    bool smaller = r->smaller && r->verdict == SINK_RETRY && b->rows.count > 1 &&
                   (r->code == 0 || k->failures >= SMALLER_TRIES);
    if (smaller) {
        sink_wait_least(k); /* what comes next is another request */
        uint32_t half = (uint32_t)(b->rows.count / 2);
        if (b->solo != 0) { /* its rows may be of a kind of their own: nobody else pays for them */
            solo_set_limit(k, b->solo, half);
        } else {
            k->limit_max = half;
            k->limit = half;
            k->successes = 0;
        }
        batch_thaw(k);
    } else if (b->solo != 0 && answers_for_rows(r)) {
        sink_wait_least(k); /* the project has a backoff of its own */
        let_go(k, r);
    } else if (b->tries >= BATCH_TRIES_MAX && !r->prepare) {
        let_go(k, r);
    }
}

/* A part of a rejected batch that is one project's. False: the destination failed. */
static bool send_part(struct sink *k, size_t first, size_t count)
{
    struct batch *b = &k->batch;
    struct sink_result r = {.verdict = SINK_UNKNOWN};
    struct err e = {0};
    int64_t project = b->rows.row[first].ev.project;
    if (!records_wait_room(k)) {
        return false;
    }
    struct record *rec = record_new(k, b->rows.row + first, count);
    buf_clear(&b->body);
    if (rec == NULL || k->adapter->encode(k->ctx, &b->rows, first, count, &b->body, &e) != 0) {
        free(rec);
        out_of_memory(k);
        return false;
    }
    k->adapter->send(k->ctx, buf_slice(&b->body), count, &k->stop, &r);
    if (r.verdict == SINK_DELIVERED) {
        flight_add(&k->flight, b->rows.row + first, count);
        record_take(k, rec, NULL);
        sink_note_success(k, count);
        return true;
    }
    free(rec);
    if (sink_stopping(k)) {
        return false;
    }
    if (r.verdict == SINK_REJECTED) {
        sink_note_success(k, 0); /* it answers */
        if (solo_refused(k, project, b->rows.row[first + count - 1].id, r.text)) {
            return true;
        }
        out_of_memory(k);
        return false;
    }
    sink_note_failure(k, &r);
    return false;
}

static void send_parts(struct sink *k)
{
    struct batch *b = &k->batch;
    size_t first = 0;
    bool ok = true;
    while (ok && first < b->rows.count) {
        size_t end = first + 1;
        while (end < b->rows.count &&
               b->rows.row[end].ev.project == b->rows.row[first].ev.project) {
            end++;
        }
        ok = send_part(k, first, end - first);
        first = end;
    }
}

static void on_rejected(struct sink *k, const struct sink_result *r)
{
    struct batch *b = &k->batch;
    size_t n = b->rows.count;
    int64_t project = b->rows.row[0].ev.project;
    bool single = b->rows.row[n - 1].ev.project == project;
    sink_lock(k);
    k->status.failures++;
    sink_unlock(k);
    metric_add(METRIC_SINK_FAILURES, 1);
    if (b->solo == 0) {
        k->limit = k->limit < BATCH_SMALL ? k->limit : BATCH_SMALL;
        store_position(k);
    }
    if (!single) {
        send_parts(k);
    } else if (solo_refused(k, project, b->rows.row[n - 1].id, r->text)) {
        sink_note_success(k, 0);
    } else {
        out_of_memory(k);
    }
    batch_thaw(k);
}

void batch_send(struct sink *k)
{
    struct batch *b = &k->batch;
    struct sink_result r = {.verdict = SINK_UNKNOWN};
    ensure(b->frozen);
    ensure(b->rows.count != 0);
    struct record *rec = record_new(k, b->rows.row, b->rows.count);
    if (rec == NULL) {
        out_of_memory(k);
        return;
    }
    k->adapter->send(k->ctx, buf_slice(&b->body), b->rows.count, &k->stop, &r);
    if (r.verdict == SINK_DELIVERED) {
        on_delivered(k, rec);
        return;
    }
    free(rec);
    if (sink_stopping(k)) {
        return;
    }
    if (r.verdict == SINK_REJECTED) {
        on_rejected(k, &r);
    } else {
        on_failed(k, &r);
    }
}
