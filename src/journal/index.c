/* index: batch keys of the whole journal, and summaries of closed generations (ARCHITECTURE 2.4).
 *
 * Where a key is: in the active table while its generation is being written; from
 * index_close_generation on in a frozen table; then in a run, which is merged into larger ones.
 * The frozen tables and runs of a moment are a view (index_view.h). A change publishes a new view,
 * and only with it does a table or run go: at every moment each key is in the active table or in
 * the view, so a lookup never misses one that is on its way.
 *
 * The work, on a thread of its own or inside the calls, is in index_work.c.
 *
 * Power failure: every file is derived from the journal and appears whole or not at all
 * (index_file.c; index_merge.c for merges). A generation is closed in the journal before its job
 * is made; if its run or summary is missing at the next opening, the caller is told (keys_known,
 * ERR_NOT_FOUND) and makes it again.
 *
 * Failures: a file that cannot be written is logged and counted; the job stays in the queue, its
 * keys in memory, until the next index_close_generation, index_settle or index_retry; past half of
 * memory_bytes index_full says so, and appends wait. A failed merge leaves its inputs in use. A
 * run that cannot be read makes index_find fail: the caller refuses the append. One of which a
 * block does not hold is removed as well (index_condemn), and made again from the journal
 * (index_mend.c), by the next start if not before. When a generation cannot be closed for want of
 * memory, its keys stay in the active table, are found there and are left out of the next
 * generation's run. Aborts: a key taken back that is not there. */
#include "journal/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "journal/index_format.h"
#include "journal/index_internal.h"
#include "journal/index_scan.h"
#include "os/os.h"

#define INDEX_JOBS_MAX 256u /* closed generations without their files, however few keys they have */

/* ---- views ---- */

void index_count_frozen(struct index *ix)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < ix->view->table_count; i++) {
        bytes += ix->view->tables[i]->slot_count * sizeof(struct index_key);
    }
    atomic_store(&ix->frozen_bytes, bytes);
    atomic_store(&ix->frozen_count,
                 ix->job_count > ix->view->table_count ? ix->job_count : ix->view->table_count);
}

struct index_view *index_view_now(struct index *ix)
{
    struct index_view *v;

    pthread_mutex_lock(&ix->lock);
    v = index_view_hold(ix->view);
    pthread_mutex_unlock(&ix->lock);
    return v;
}

int index_publish(struct index *ix, const struct index_view_change *change, struct index_job *job,
                  struct err *e)
{
    struct index_job **end = &ix->jobs;
    struct index_view *old = NULL;
    struct index_view *v;

    pthread_mutex_lock(&ix->lock);
    v = index_view_edit(ix->view, change);
    if (v != NULL) {
        old = ix->view;
        ix->view = v;
        metric_set(METRIC_INDEX_RUNS, v->run_count);
        while (*end != NULL) {
            end = &(*end)->next;
        }
        *end = job;
        ix->job_count += job != NULL;
        index_count_frozen(ix);
    }
    pthread_mutex_unlock(&ix->lock);
    index_view_release(old);
    return v != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for the list of runs");
}

/* ---- opening and closing ---- */

/* Frees what index_make and index_open made; no thread runs any more. */
static void index_free(struct index *ix)
{
    while (ix->jobs != NULL) {
        struct index_job *job = ix->jobs;

        ix->jobs = job->next;
        index_job_free(job);
    }
    index_merge_drop(ix);
    index_mend_drop(ix);
    index_view_release(ix->view);
    index_table_release(ix->active);
    pthread_cond_destroy(&ix->idle);
    pthread_cond_destroy(&ix->work);
    pthread_mutex_destroy(&ix->lock);
    free(ix->dir);
    free(ix);
}

static void index_make_lock(struct index *ix)
{
    pthread_condattr_t clock;

    /* With default attributes and this clock these do not fail on Linux. */
    ensure(pthread_condattr_init(&clock) == 0);
    ensure(pthread_condattr_setclock(&clock, CLOCK_MONOTONIC) == 0);
    ensure(pthread_mutex_init(&ix->lock, NULL) == 0);
    ensure(pthread_cond_init(&ix->work, &clock) == 0);
    ensure(pthread_cond_init(&ix->idle, NULL) == 0);
    ensure(pthread_condattr_destroy(&clock) == 0);
}

static struct index *index_make(const char *dir, const struct index_options *options)
{
    struct index *ix = calloc(1, sizeof *ix);

    if (ix == NULL) {
        return NULL;
    }
    index_make_lock(ix);
    atomic_init(&ix->merging, false);
    atomic_init(&ix->frozen_bytes, 0);
    atomic_init(&ix->frozen_count, 0);
    atomic_init(&ix->budget.used, 0);
    ix->options = *options;
    if (ix->options.memory_bytes == 0) {
        ix->options.memory_bytes = INDEX_MEMORY_BYTES;
    }
    ix->budget.limit = ix->options.memory_bytes / 2;
    ix->options.background = false; /* until there is a thread */
    if (os_random(&ix->seed, sizeof ix->seed) != 0) {
        ix->seed = os_clock_mono_ns(); /* the seed only spreads keys; any will do */
    }
    ix->dir = strdup(dir);
    ix->active = index_table_make(ix->seed, 0);
    if (ix->dir == NULL || ix->active == NULL) {
        index_free(ix);
        return NULL;
    }
    return ix;
}

struct index *index_open(const char *dir, const struct index_generation *closed, uint32_t count,
                         bool *keys_known, const struct index_options *options, struct err *e)
{
    struct index *ix;
    int result;

    ensure(count <= INDEX_GENERATION_MAX);
    ensure(options->read != NULL);
    for (uint32_t i = 0; i < count; i++) {
        keys_known[i] = false;
    }
    if (strlen(dir) + 2 * INDEX_NAME_MAX >= PATH_MAX) {
        (void)err_os(e, -ENAMETOOLONG, "open", "index directory");
        return NULL;
    }
    result = os_mkdir_exist_ok(dir, 0700);
    if (result != 0) {
        (void)err_os(e, result, "mkdir", dir);
        return NULL;
    }
    ix = index_make(dir, options);
    if (ix == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory to open %s", dir);
        return NULL;
    }
    ix->view = index_scan(dir, closed, count, &ix->budget, keys_known, e);
    if (ix->view == NULL) {
        index_free(ix);
        return NULL;
    }
    metric_set(METRIC_INDEX_RUNS, ix->view->run_count);
    if (options->background) {
        result = pthread_create(&ix->thread, NULL, index_thread, ix);
        if (result != 0) {
            (void)err_os(e, -ENOMEM, "start a thread for", dir);
            index_free(ix);
            return NULL;
        }
        ix->options.background = true;
    }
    index_kick(ix);
    return ix;
}

void index_close(struct index *ix)
{
    if (ix->options.background) {
        pthread_mutex_lock(&ix->lock);
        ix->stop = true;
        pthread_cond_signal(&ix->work);
        pthread_mutex_unlock(&ix->lock);
        ensure(pthread_join(ix->thread, NULL) == 0);
    }
    index_free(ix);
}

/* ---- keys ---- */

int index_insert(struct index *ix, const struct index_key *key)
{
    return index_table_insert(ix->active, key);
}

void index_remove(struct index *ix, const struct index_key *key)
{
    ensure(index_table_remove(ix->active, key));
}

int index_find(struct index *ix, const uint8_t fingerprint[16], index_visit_fn *fn, void *ctx)
{
    struct index_view *v = index_view_now(ix);
    int result = index_table_find(ix->active, fingerprint, fn, ctx);

    for (uint32_t i = v->table_count; i > 0 && result == 0; i--) {
        result = index_table_find(v->tables[i - 1], fingerprint, fn, ctx);
    }
    for (uint32_t i = v->run_count; i > 0 && result == 0; i--) {
        result = index_run_find(v->runs[i - 1], fingerprint, fn, ctx);
        if (result < 0 && atomic_load(&v->runs[i - 1]->corrupt)) {
            index_condemn(ix, v->runs[i - 1]);
        }
    }
    index_view_release(v);
    return result;
}

int index_close_generation(struct index *ix, const struct index_summary *s, bool with_keys,
                           struct err *e)
{
    struct index_view_change change = {.table_added = with_keys ? ix->active : NULL};
    struct index_job *job = index_job_make(s, change.table_added);
    struct index_table *next = NULL;

    ensure(s->generation <= INDEX_GENERATION_MAX);
    /* Everything is got first; once it is published nothing can fail. */
    if (with_keys) {
        /* The next generation will hold about as many keys. */
        next = index_table_make(ix->seed, ix->active->key_count);
    }
    if (job == NULL || (with_keys && next == NULL) || index_publish(ix, &change, job, e) != 0) {
        index_table_release(next);
        index_job_free(job);
        return err_set(e, ERR_NO_MEMORY, "no memory to close a generation");
    }
    if (with_keys) {
        index_table_release(ix->active);
        ix->active = next;
    }
    index_kick(ix);
    return 0;
}

/* ---- figures ---- */

uint32_t index_run_count(struct index *ix)
{
    struct index_view *v = index_view_now(ix);
    uint32_t count = v->run_count;

    index_view_release(v);
    return count;
}

uint64_t index_key_count(struct index *ix)
{
    struct index_view *v = index_view_now(ix);
    uint64_t count = ix->active->key_count;

    for (uint32_t i = 0; i < v->table_count; i++) {
        count += v->tables[i]->key_count;
    }
    for (uint32_t i = 0; i < v->run_count; i++) {
        count += v->runs[i]->key_count;
    }
    index_view_release(v);
    return count;
}

uint64_t index_memory_used(struct index *ix)
{
    return atomic_load(&ix->budget.used);
}

bool index_full(struct index *ix)
{
    unsigned count = atomic_load(&ix->frozen_count);

    /* One alone may be larger than that: it is being written. */
    return count > 1 && (atomic_load(&ix->frozen_bytes) > ix->options.memory_bytes / 2 ||
                         count > INDEX_JOBS_MAX);
}

void index_retry(struct index *ix)
{
    index_kick(ix);
}
