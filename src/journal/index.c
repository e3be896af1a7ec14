/* index: batch keys of the whole journal, and summaries of closed generations (ARCHITECTURE 2.4).
 *
 * Where a key is: in the active table while its generation is being written; from
 * index_close_generation on in a frozen table; then in a run, which is merged into larger ones. The
 * frozen tables and runs of a moment are a view (index_view.h). A change publishes a new view, and
 * only with it does a table or run go: at every moment each key is in the active table or in the
 * view, so a lookup never misses one that is on its way.
 *
 * Work is one queue of jobs (a closed generation: write its run, write its summary) and the merge
 * that the view calls for. index_step does the next piece of it: on the thread of its own with
 * `background`, else inside index_open, index_close_generation and index_settle. Jobs go before
 * merging, and merging goes in small steps, so that tables do not pile up in memory behind a long
 * merge.
 *
 * Power failure: every file is derived from the journal and appears whole or not at all
 * (index_file.c; index_merge.c for merges). A generation is closed in the journal before its job is
 * made; if its run or summary is missing at the next opening, the caller is told (keys_known,
 * ERR_NOT_FOUND) and makes it again.
 *
 * Failures: a file that cannot be written is logged and counted; the job stays in the queue, its
 * keys in memory, until the next index_close_generation or index_settle. A failed merge leaves its
 * inputs in use. A run that cannot be read makes index_find fail: the caller refuses the append.
 * When a generation cannot be closed for want of memory, its keys stay in the active table, are
 * found there and are left out of the next generation's run. Aborts: a key taken back that is not
 * there.
 *
 * Locks: index.lock guards view (the pointer), jobs, and the flags beside them. It is a leaf:
 * nothing that blocks happens under it, and no other lock is taken. The active table belongs to the
 * loop thread, the merge to the thread that does the work. */
#include "journal/index.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"
#include "journal/index_format.h"
#include "journal/index_job.h"
#include "journal/index_merge.h"
#include "journal/index_scan.h"
#include "journal/index_view.h"
#include "os/os.h"

#define INDEX_MERGE_STEP_KEYS 16384u

struct index {
    char *dir;
    struct index_table *active;
    uint64_t seed;
    bool background;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t work; /* something to do, or stop */
    pthread_cond_t idle; /* nothing to do */
    struct index_view *view;
    struct index_job *jobs; /* oldest first */
    bool merge_waiting;     /* a merge failed; not before the next opportunity */
    bool stop;
    bool busy;

    struct index_merge *merge; /* the worker's */
    atomic_bool merging;       /* merge is not NULL */
};

/* ---- views ---- */

static struct index_view *index_view_now(struct index *ix)
{
    struct index_view *v;

    pthread_mutex_lock(&ix->lock);
    v = index_view_hold(ix->view);
    pthread_mutex_unlock(&ix->lock);
    return v;
}

/* Publishes the view with the change, and job (may be NULL) at the end of the queue with it. */
static int index_publish(struct index *ix, const struct index_view_change *change,
                         struct index_job *job)
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
    }
    pthread_mutex_unlock(&ix->lock);
    index_view_release(old);
    return v != NULL ? 0 : ERR_NO_MEMORY;
}

/* ---- the work ---- */

/* Writes the job's run, unless it is written, and lets it take the place of the table. */
static bool index_do_run(struct index *ix, struct index_job *job)
{
    struct index_view_change change = {.table_dropped = NULL};
    bool whole = false;
    struct err e;
    int result;

    if (job->table == NULL) {
        return true;
    }
    result = index_job_write_run(job, ix->dir, &change.run_added, &whole, &e);
    if (result == 0) {
        change.table_dropped = whole ? job->table : NULL;
        result = index_publish(ix, &change, NULL);
        index_run_release(change.run_added);
        if (result != 0) {
            (void)err_set(&e, result, "no memory to use it");
        }
    }
    if (result != 0) {
        index_job_run_failed(job, &e);
        return false;
    }
    index_table_release(job->table);
    job->table = NULL;
    return true;
}

/* Tries a job: both files, whatever becomes of the first. */
static void index_do_job(struct index *ix, struct index_job *job)
{
    struct index_job **at = &ix->jobs;
    bool done = index_do_run(ix, job);

    done = index_job_write_summary(job, ix->dir) && done;
    pthread_mutex_lock(&ix->lock);
    job->waiting = !done;
    while (done && *at != job) {
        ensure(*at != NULL);
        at = &(*at)->next;
    }
    if (done) {
        *at = job->next;
    }
    pthread_mutex_unlock(&ix->lock);
    if (done) {
        index_job_free(job);
    }
}

static void index_merge_drop(struct index *ix)
{
    index_merge_free(ix->merge);
    ix->merge = NULL;
    atomic_store(&ix->merging, false);
}

static void index_merge_failed(struct index *ix, const struct err *e)
{
    index_failed("merge", "runs", e);
    index_merge_drop(ix);
    pthread_mutex_lock(&ix->lock);
    ix->merge_waiting = true;
    pthread_mutex_unlock(&ix->lock);
}

static void index_merge_begin(struct index *ix)
{
    struct index_view *v = index_view_now(ix);
    uint32_t position = 0;
    struct err e;

    /* Only this thread takes runs out of a view, so what was mergeable still is. */
    ensure(index_view_mergeable(v, &position));
    ix->merge = index_merge_start(ix->dir, v->runs + position, &e);
    if (ix->merge == NULL) {
        index_merge_failed(ix, &e);
    } else {
        atomic_store(&ix->merging, true);
    }
    index_view_release(v);
}

static void index_merge_go_on(struct index *ix)
{
    struct index_run *run = NULL;
    struct err e;
    int result = index_merge_step(ix->merge, INDEX_MERGE_STEP_KEYS, &run, &e);

    if (result > 0) {
        return;
    }
    if (result == 0) {
        result = index_publish(ix, &(struct index_view_change){.run_added = run}, NULL);
        index_run_release(run);
        if (result != 0) {
            (void)err_set(&e, result, "no memory to use the merged run");
        }
    }
    if (result != 0) {
        index_merge_failed(ix, &e);
        return;
    }
    index_merge_unlink_inputs(ix->merge);
    index_merge_drop(ix);
}

/* The next job to try, or NULL. Under the lock. */
static struct index_job *index_job_next(struct index *ix)
{
    struct index_job *job = ix->jobs;

    while (job != NULL && job->waiting) {
        job = job->next;
    }
    return job;
}

/* Under the lock. */
static bool index_has_work(struct index *ix)
{
    uint32_t position;

    return index_job_next(ix) != NULL || atomic_load(&ix->merging) ||
           (!ix->merge_waiting && index_view_mergeable(ix->view, &position));
}

/* One piece of work; there is some. Not under the lock. */
static void index_step(struct index *ix)
{
    struct index_job *job;

    pthread_mutex_lock(&ix->lock);
    job = index_job_next(ix);
    pthread_mutex_unlock(&ix->lock);
    if (job != NULL) {
        index_do_job(ix, job);
    } else if (ix->merge != NULL) {
        index_merge_go_on(ix);
    } else {
        index_merge_begin(ix);
    }
}

static void *index_thread(void *arg)
{
    struct index *ix = arg;

    pthread_mutex_lock(&ix->lock);
    while (!ix->stop) {
        if (!index_has_work(ix)) {
            ix->busy = false;
            pthread_cond_broadcast(&ix->idle);
            pthread_cond_wait(&ix->work, &ix->lock);
            continue;
        }
        ix->busy = true;
        pthread_mutex_unlock(&ix->lock);
        index_step(ix);
        pthread_mutex_lock(&ix->lock);
    }
    ix->busy = false;
    pthread_mutex_unlock(&ix->lock);
    return NULL;
}

/* An opportunity: what failed may be tried again. The thread is woken, or the work done here. */
static void index_kick(struct index *ix)
{
    bool more;

    pthread_mutex_lock(&ix->lock);
    ix->merge_waiting = false;
    for (struct index_job *job = ix->jobs; job != NULL; job = job->next) {
        job->waiting = false;
    }
    more = index_has_work(ix);
    pthread_cond_signal(&ix->work);
    pthread_mutex_unlock(&ix->lock);
    while (more && !ix->background) {
        index_step(ix);
        pthread_mutex_lock(&ix->lock);
        more = index_has_work(ix);
        pthread_mutex_unlock(&ix->lock);
    }
}

void index_settle(struct index *ix)
{
    index_kick(ix);
    pthread_mutex_lock(&ix->lock);
    while (ix->background && (ix->busy || index_has_work(ix))) {
        pthread_cond_wait(&ix->idle, &ix->lock);
    }
    pthread_mutex_unlock(&ix->lock);
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
    index_view_release(ix->view);
    index_table_release(ix->active);
    pthread_cond_destroy(&ix->idle);
    pthread_cond_destroy(&ix->work);
    pthread_mutex_destroy(&ix->lock);
    free(ix->dir);
    free(ix);
}

static struct index *index_make(const char *dir)
{
    struct index *ix = calloc(1, sizeof *ix);

    if (ix == NULL) {
        return NULL;
    }
    /* With default attributes these do not fail on Linux. */
    ensure(pthread_mutex_init(&ix->lock, NULL) == 0);
    ensure(pthread_cond_init(&ix->work, NULL) == 0);
    ensure(pthread_cond_init(&ix->idle, NULL) == 0);
    atomic_init(&ix->merging, false);
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
                         bool *keys_known, bool background, struct err *e)
{
    struct index *ix;
    int result;

    ensure(count <= INDEX_GENERATION_MAX);
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
    ix = index_make(dir);
    if (ix == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory to open %s", dir);
        return NULL;
    }
    ix->view = index_scan(dir, closed, count, keys_known, e);
    if (ix->view == NULL) {
        index_free(ix);
        return NULL;
    }
    metric_set(METRIC_INDEX_RUNS, ix->view->run_count);
    if (background) {
        result = pthread_create(&ix->thread, NULL, index_thread, ix);
        if (result != 0) {
            (void)err_os(e, -ENOMEM, "start a thread for", dir);
            index_free(ix);
            return NULL;
        }
        ix->background = true;
    }
    index_kick(ix);
    return ix;
}

void index_close(struct index *ix)
{
    if (ix->background) {
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
    struct index_view *v;
    int result = index_table_find(ix->active, fingerprint, fn, ctx);

    if (result != 0) {
        return result;
    }
    v = index_view_now(ix);
    for (uint32_t i = v->table_count; i > 0 && result == 0; i--) {
        result = index_table_find(v->tables[i - 1], fingerprint, fn, ctx);
    }
    for (uint32_t i = v->run_count; i > 0 && result == 0; i--) {
        result = index_run_find(v->runs[i - 1], fingerprint, fn, ctx);
    }
    index_view_release(v);
    return result;
}

int index_close_generation(struct index *ix, const struct index_summary *s, const char *path,
                           bool with_keys, struct err *e)
{
    struct index_view_change change = {.table_added = with_keys ? ix->active : NULL};
    struct index_job *job = index_job_make(s, path, change.table_added);
    struct index_table *next = NULL;

    ensure(s->generation <= INDEX_GENERATION_MAX);
    /* Everything is got first; once it is published nothing can fail. */
    if (with_keys) {
        /* The next generation will hold about as many keys. */
        next = index_table_make(ix->seed, ix->active->key_count);
    }
    if (job == NULL || (with_keys && next == NULL) || index_publish(ix, &change, job) != 0) {
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
