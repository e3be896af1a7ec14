/* Sealing the generations of a journal.
 *
 * For each, in log order:
 *   1 the segment, whole, read back from the device and compared (seal_file.c)
 *   2 its record in the manifest, in two steps (manifest.c): the seal's commit
 *   3 new readers take the segment; those who hold the plain file go on with it
 *   4 the plain file is removed
 *
 * If power fails before the commit, the plain file is in force, and what there is in segments/ is
 * removed at the next start. Behind it the segment is in force: it was on the device, under its
 * name, before the record was begun. The plain file may still be there, or again (its removal is
 * not synced, nothing depends on it): a file in pending/ that a record covers exactly is removed at
 * the start, when the hash of the segment's file has been found to hold.
 *
 * Failures. None of them touches what was acknowledged: group commits and rotations never look at
 * the manifest, and the plain file goes only behind the commit. So appends go on whatever happens
 * here, and are not poisoned. A failed write, a full disk, damage: told, counted, tried again
 * later. A sync of the manifest or of segments/ that failed (RELIABILITY R5): nobody knows before
 * the next start whether the record is there. Both answers are good for the journal as long as the
 * plain file stays; another record, written behind a place of which nobody knows what it holds,
 * would not be. So nothing is sealed any more (`stopped`) until a restart, which syncs the
 * manifest, drops its cache and reads it.
 *
 * A journal that is poisoned seals nothing: its disk is failing, or it is damaged.
 *
 * Locks: sealer.work is held over a whole generation and is above journal.lock and sealer.lock. */
#include "journal/seal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/timefmt.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/manifest.h"
#include "journal/seal_file.h"
#include "os/os.h"

/* The next generation to be sealed, and what stands before it. */
struct next {
    struct generation *g;
    struct index_generation id;
    struct uuid before;
    uint8_t head_before[SHA256_LEN];
};

/* 1: *next; 0: all but the newest `keep` closed ones are sealed. */
static int find_next(struct journal *j, uint32_t keep, struct next *next)
{
    pthread_mutex_lock(&j->lock);
    uint32_t closed = j->generation_count > 0 ? j->generation_count - 1 : 0;
    uint32_t n = j->sealed_count;
    bool any = n < closed && closed - n > keep;
    if (any) {
        next->g = j->generations[n];
        next->id =
            (struct index_generation){next->g->first_id, next->g->named_last_id, next->g->bytes};
        if (n > 0) {
            next->before = j->generations[n - 1]->last_id;
            memcpy(next->head_before, j->generations[n - 1]->head, SHA256_LEN);
        } else {
            memcpy(next->head_before, chain_genesis, SHA256_LEN);
        }
    }
    pthread_mutex_unlock(&j->lock);
    return any;
}

/* New readers take the segment. */
static void publish(struct journal *j, struct generation *g, const struct layout_generation *row,
                    uint64_t stored_bytes)
{
    pthread_mutex_lock(&j->lock);
    ensure(g->ordinal == j->sealed_count);
    g->sealed = true;
    memcpy(g->sha256, row->sha256, SHA256_LEN);
    memcpy(g->head, row->head, SHA256_LEN);
    g->file = NULL; /* whoever holds it has the pointer, and closes it when he is the last */
    j->sealed_count++;
    j->sealed_bytes += row->bytes;
    j->stored_bytes += stored_bytes;
    metric_set(METRIC_JOURNAL_SEGMENTS, j->sealed_count);
    metric_set(METRIC_JOURNAL_SEGMENT_PLAIN_BYTES, j->sealed_bytes);
    metric_set(METRIC_JOURNAL_SEGMENT_BYTES, j->stored_bytes);
    pthread_mutex_unlock(&j->lock);
    metric_add(METRIC_JOURNAL_SEALS, 1);
}

static void note_result(struct journal *j, const struct layout_generation *row,
                        uint64_t stored_bytes, struct journal_sealed *out)
{
    struct sealer *s = &j->sealer;
    *out = (struct journal_sealed){
        .events = row->events, .bytes = row->bytes, .stored_bytes = stored_bytes};
    layout_segment_name(row, out->name);
    memcpy(out->head, row->head, SHA256_LEN);
    pthread_mutex_lock(&s->lock);
    s->code = 0;
    out->number = ++s->sealed;
    s->recent[(out->number - 1) % SEAL_RECENT] = *out;
    pthread_mutex_unlock(&s->lock);
    log_line(LOG_INFO, "journal", "sealed %s: %llu events, %llu bytes in %llu", out->name,
             (unsigned long long)out->events, (unsigned long long)out->bytes,
             (unsigned long long)stored_bytes);
}

static void stop_sealing(struct journal *j)
{
    pthread_mutex_lock(&j->sealer.lock);
    j->sealer.stopped = true;
    pthread_mutex_unlock(&j->sealer.lock);
}

/* Steps 1 and 2. */
static int make_segment(struct journal *j, const struct next *next, const struct bytes_file *plain,
                        struct layout_generation *row, uint64_t *stored_bytes, struct err *e)
{
    struct index_summary sum;
    char sealed_at[TIMEFMT_MS_LEN + 1];
    bool uncertain = false;
    struct err why = {0};
    int r = index_summary_load(j->layout.index, next->g->ordinal, &next->id, &sum, &why);
    if (r != 0) { /* it is being written, or will be made again */
        return err_set(e, ERR_NOT_READY, "generation %u has no summary yet: %s", next->g->ordinal,
                       why.text);
    }
    struct seal_job job = {.layout = &j->layout,
                           .plain = plain,
                           .ordinal = next->g->ordinal,
                           .expect = &sum,
                           .before = next->g->ordinal > 0 ? &next->before : NULL,
                           .head_before = next->head_before,
                           .stop = &j->sealer.stop};
    r = seal_file_make(&job, row, stored_bytes, &uncertain, e);
    index_summary_free(&sum);
    if (r == 0) {
        uint64_t now = os_clock_real_ms();
        timefmt_ms(sealed_at, now < TIMEFMT_MS_END ? now : 0);
        r = manifest_add_segment(&j->layout, row, sealed_at, &j->manifest_bytes, &uncertain, e);
        if (r != 0 && !uncertain) {
            char path[LAYOUT_PATH_MAX];
            layout_generation_path(&j->layout, row, path);
            (void)os_unlink(path);
        }
    }
    if (uncertain) {
        stop_sealing(j);
    }
    return r;
}

static int seal_next(struct journal *j, const struct next *next, struct journal_sealed *out,
                     struct err *e)
{
    struct bytes_file *plain;
    struct layout_generation row;
    uint64_t stored_bytes = 0;
    char path[LAYOUT_PATH_MAX];
    int r = journal_hold(j, next->g, &plain, e);
    if (r != 0) {
        return r;
    }
    r = make_segment(j, next, plain, &row, &stored_bytes, e);
    if (r == 0) {
        publish(j, next->g, &row, stored_bytes);
        layout_pending_path(&j->layout, &row.first_id, &row.last_id, path);
        int removed = os_unlink(path);
        if (removed < 0) {
            log_line(LOG_WARN, "journal",
                     "the plain file of generation %u stays until the next start (error %d)",
                     next->g->ordinal, -removed);
        }
        note_result(j, &row, stored_bytes, out);
    }
    journal_release(j, next->g, plain);
    return r;
}

static int may_seal(struct journal *j, struct err *e)
{
    pthread_mutex_lock(&j->sealer.lock);
    bool stopped = j->sealer.stopped;
    pthread_mutex_unlock(&j->sealer.lock);
    if (stopped) {
        return err_set(e, ERR_IO,
                       "a sync failed while a generation was sealed: no more before a "
                       "restart");
    }
    pthread_mutex_lock(&j->lock);
    int r = j->poisoned ? err_set(e, ERR_WRITER_POISONED, "%s", j->cause) : 0;
    pthread_mutex_unlock(&j->lock);
    if (r == 0 && atomic_load(&j->indexing)) { /* nothing is changed before all is proven */
        r = err_set(e, ERR_NOT_READY, "the index is being made");
    }
    return r;
}

void sealer_note_failure(struct journal *j, int code, const struct err *e)
{
    struct sealer *s = &j->sealer;
    pthread_mutex_lock(&s->lock);
    if (s->stopped && s->told) {
        s->code = code; /* and the cause stays what stopped it */
        pthread_mutex_unlock(&s->lock);
        return;
    }
    s->told = s->stopped;
    bool same = code == ERR_NOT_READY || (s->code == code && strcmp(s->cause, e->text) == 0);
    s->code = code;
    (void)snprintf(s->cause, sizeof s->cause, "%.255s", e->text);
    pthread_mutex_unlock(&s->lock);
    if (code != ERR_NOT_READY) {
        metric_add(METRIC_JOURNAL_SEAL_FAILURES, 1);
    }
    if (!same) {
        log_line(LOG_ERROR, "journal", "a generation could not be sealed: %s", e->text);
    }
}

/* 1: sealed one, 0: there is none to be sealed. */
static int seal_one(struct journal *j, uint32_t keep, struct journal_sealed *out, struct err *e)
{
    struct next next;
    struct err local = {0};
    e = e != NULL ? e : &local;
    pthread_mutex_lock(&j->sealer.work);
    int r = may_seal(j, e);
    if (r == 0 && find_next(j, keep, &next) == 1) {
        r = atomic_load(&j->sealer.stop) ? err_set(e, ERR_NOT_READY, "the journal is being closed")
                                         : seal_next(j, &next, out, e);
        r = r == 0 ? 1 : r;
    }
    pthread_mutex_unlock(&j->sealer.work);
    if (r < 0) {
        sealer_note_failure(j, r, e);
    }
    return r;
}

int journal_seal_next(struct journal *j, uint32_t keep, struct err *e)
{
    struct journal_sealed done;
    return seal_one(j, keep, &done, e);
}

int journal_seal(struct journal *j, uint32_t keep, journal_sealed_fn *fn, void *ctx, struct err *e)
{
    struct journal_sealed done;
    int r;
    while ((r = seal_one(j, keep, &done, e)) == 1) {
        if (fn != NULL) {
            fn(ctx, &done);
        }
    }
    return r;
}
