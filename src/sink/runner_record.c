/* runner_record: delivered events into the queue's books, through the loop's connection.
 *
 * A record goes to the loop by http_post, there becomes a background job of the store, and is
 * worked off in slices of QUEUE_SLICE, each in a transaction of the loop's turn. The stored
 * position of the selection goes with the last slice.
 *
 * A turn that was undone (disk full, a busy WAL) leaves the record as it was after its last
 * committed slice; it is posted again a second later. A crash loses records, never payloads: their
 * rows are delivered again.
 *
 * While a record is on its way its rows are still in the queue, so selections ask records_have. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "sink/runner_internal.h"

#define NS_PER_MS UINT64_C(1000000)

/* ---- loop thread ---- */

static int run(struct store_job *job, struct store *s, struct err *e)
{
    struct record *rec = (struct record *)job;
    size_t left = rec->count - rec->at;
    rec->slice = left < QUEUE_SLICE ? left : QUEUE_SLICE;
    int r = 0;
    if (rec->slice != 0) {
        r = queue_delivered(s, rec->ids + rec->at, rec->slice, (int64_t)os_clock_real_ms(), e);
    }
    if (r == 0 && rec->slice < left) {
        return STORE_AGAIN;
    }
    if (r == 0 && rec->has_cursor) {
        r = queue_set_cursor(s, &rec->cursor, e);
    }
    return r;
}

static void done(struct store_job *job, int code, const struct err *e)
{
    struct record *rec = (struct record *)job;
    struct sink *k = rec->k;
    if (code == 0 || code == STORE_AGAIN) {
        rec->at += rec->slice;
        ensure(rec->at <= rec->count);
    }
    if (code == STORE_AGAIN) {
        return;
    }
    ensure(code != 0 || rec->at == rec->count);
    sink_lock(k);
    if (code == 0) {
        rec->state = RECORD_DONE;
        k->record_error[0] = '\0';
    } else {
        rec->state = RECORD_FAILED;
        rec->retry_ns = os_clock_mono_ns() + RECORD_RETRY_MS * NS_PER_MS;
        k->poisoned = k->poisoned || code == ERR_STORE_POISONED;
        (void)snprintf(k->record_error, sizeof k->record_error,
                       "deliveries cannot be recorded: %.150s",
                       e != NULL && e->text[0] != '\0' ? e->text : err_name(code));
    }
    int r = pthread_cond_signal(&k->cond);
    ensure(r == 0);
    sink_unlock(k);
}

static void submit(void *ctx)
{
    struct record *rec = ctx;
    if (rec->orphan) { /* the sink is gone; this thread said so */
        free(rec);
        return;
    }
    struct sink *k = rec->k;
    sink_lock(k);
    ensure(rec->state == RECORD_POSTED);
    rec->posted = false;
    rec->state = RECORD_SUBMITTED;
    sink_unlock(k);
    store_submit(k->store, &rec->job);
}

/* ---- sink's thread ---- */

static int compare_ids(const void *a, const void *b)
{
    const int64_t *x = a;
    const int64_t *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

struct record *record_new(struct sink *k, const struct queue_row *row, size_t count)
{
    struct record *rec = malloc(sizeof *rec + count * sizeof rec->ids[0]);
    bool sorted = true;
    if (rec == NULL) {
        return NULL;
    }
    *rec = (struct record){.k = k, .count = count};
    rec->job = (struct store_job){.run = run, .done = done, .weight = STORE_BACKGROUND};
    for (size_t i = 0; i < count; i++) {
        rec->ids[i] = row[i].id;
        sorted = sorted && (i == 0 || rec->ids[i - 1] < rec->ids[i]);
    }
    if (!sorted) {
        qsort(rec->ids, count, sizeof rec->ids[0], compare_ids);
    }
    return rec;
}

static void post(struct sink *k, struct record *rec)
{
    sink_lock(k);
    rec->state = RECORD_POSTED;
    rec->posted = true;
    sink_unlock(k);
    if (!http_post(k->server, submit, rec)) {
        sink_lock(k);
        rec->state = RECORD_FAILED;
        rec->posted = false;
        rec->retry_ns = os_clock_mono_ns() + RECORD_RETRY_MS * NS_PER_MS;
        (void)snprintf(k->record_error, sizeof k->record_error,
                       "deliveries cannot be recorded: no memory");
        sink_unlock(k);
    }
}

void record_take(struct sink *k, struct record *rec, const struct queue_cursor *cursor)
{
    rec->has_cursor = cursor != NULL;
    if (cursor != NULL) {
        rec->cursor = *cursor;
    }
    sink_lock(k);
    TAILQ_INSERT_TAIL(&k->records, rec, link);
    k->record_count++;
    sink_unlock(k);
    post(k, rec);
}

static void reap_one(struct sink *k, struct record *rec, uint64_t now)
{
    enum record_state state;
    bool due;
    sink_lock(k);
    state = rec->state;
    due = now >= rec->retry_ns;
    if (state == RECORD_DONE) {
        TAILQ_REMOVE(&k->records, rec, link);
        k->record_count--;
    }
    sink_unlock(k);
    if (state == RECORD_DONE) {
        free(rec);
    } else if (state == RECORD_FAILED && due) {
        post(k, rec);
    }
}

bool records_reap(struct sink *k)
{
    /* The list changes on this thread only; states change on the loop's. */
    uint64_t now = os_clock_mono_ns();
    struct record *next;
    for (struct record *rec = TAILQ_FIRST(&k->records); rec != NULL; rec = next) {
        next = TAILQ_NEXT(rec, link);
        reap_one(k, rec, now);
    }
    if (TAILQ_EMPTY(&k->records)) {
        k->flight.count = 0;
        k->in_a_row = 0;
        return true;
    }
    return false;
}

bool records_wait_room(struct sink *k)
{
    while (!sink_stopping(k) && k->record_count >= RECORDS_MAX) {
        sink_wait_until(k, os_clock_mono_ns() + 100 * NS_PER_MS, WAIT_RECORDS);
        (void)records_reap(k);
        sink_lock(k);
        bool poisoned = k->poisoned;
        sink_unlock(k);
        if (poisoned) {
            return false;
        }
    }
    return !sink_stopping(k);
}

bool records_have(struct sink *k, int64_t id)
{
    struct record *rec;
    TAILQ_FOREACH(rec, &k->records, link)
    {
        if (rec->count != 0 && id >= rec->ids[0] && id <= rec->ids[rec->count - 1] &&
            bsearch(&id, rec->ids, rec->count, sizeof id, compare_ids) != NULL) {
            return true;
        }
    }
    return false;
}

static size_t flight_find(const struct flight *f, int64_t project)
{
    size_t low = 0;
    size_t high = f->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->last[middle].project < project) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct queue_cursor *flight_slot(struct flight *f, int64_t project)
{
    size_t at = flight_find(f, project);
    if (at < f->count && f->last[at].project == project) {
        return &f->last[at];
    }
    if (f->count == f->cap) {
        size_t cap = f->cap == 0 ? 16 : f->cap * 2;
        struct queue_cursor *grown = realloc(f->last, cap * sizeof *grown);
        if (grown == NULL) {
            return NULL;
        }
        f->last = grown;
        f->cap = cap;
    }
    memmove(&f->last[at + 1], &f->last[at], (f->count - at) * sizeof f->last[0]);
    f->last[at] = (struct queue_cursor){.project = project};
    f->count++;
    return &f->last[at];
}

void flight_add(struct flight *f, const struct queue_row *row, size_t count)
{
    struct queue_cursor *slot = NULL;
    for (size_t i = 0; i < count; i++) {
        if (slot == NULL || slot->project != row[i].ev.project) {
            slot = flight_slot(f, row[i].ev.project);
        }
        if (slot != NULL && slot->after_id < row[i].id) {
            slot->after_id = row[i].id;
        }
    }
}

/* ---- the end, on the loop thread ---- */

static bool any_submitted(const struct sink *k)
{
    struct record *rec;
    TAILQ_FOREACH(rec, &k->records, link)
    {
        if (rec->state == RECORD_SUBMITTED) {
            return true;
        }
    }
    return false;
}

static void short_sleep(struct sink *k)
{
    struct timespec ts;
    uint64_t until = os_clock_mono_ns() + NS_PER_MS;
    ts.tv_sec = (time_t)(until / 1000000000u);
    ts.tv_nsec = (long)(until % 1000000000u);
    sink_lock(k);
    (void)pthread_cond_timedwait(&k->cond, &k->lock, &ts);
    sink_unlock(k);
}

void records_finish(struct sink *k)
{
    struct record *rec;
    TAILQ_FOREACH(rec, &k->records, link)
    {
        if (rec->state == RECORD_POSTED) {
            rec->state = RECORD_SUBMITTED; /* now, instead of when the loop gets to the post */
            store_submit(k->store, &rec->job);
        }
    }
    while (any_submitted(k)) {
        if (!store_turn(k->store) && any_submitted(k)) {
            short_sleep(k); /* it waits for a checkpoint */
        }
    }
    while (!TAILQ_EMPTY(&k->records)) {
        rec = TAILQ_FIRST(&k->records);
        TAILQ_REMOVE(&k->records, rec, link);
        if (rec->posted) {
            rec->orphan = true; /* submit() frees it, at the latest when the server is freed */
        } else {
            free(rec);
        }
    }
}
