/* index_work: writing runs and summaries of closed generations, and merging runs.
 *
 * Work is one queue of jobs (a closed generation: write its run, write its summary), the damaged
 * run that is to be made again (index_mend.c), and the merge that the view calls for. index_step
 * does the next piece of it: on the thread of its own with `background`, else inside index_open,
 * index_close_generation and index_settle. Jobs go before merging, and merging goes in small steps,
 * so that tables do not pile up in memory behind a long merge.
 *
 * What merging costs: each key is written once when its generation is closed and once in each tier,
 * log8(generations) times: 4 times 32 bytes with a thousand generations. One sync of a file and one
 * of the directory a run. Beside a server the thread is nice, takes at most a million keys (32 MB)
 * a second, and has its dirty pages written back as it goes (index_run_write.c), so that commits do
 * not wait behind it. A server that stops does not wait for a merge either: it begins anew.
 *
 * Power failure: see index_job.c and index_merge.c. Answers: none, failures are told and tried
 * again. Aborts: a job that is not in the queue. */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "journal/index_format.h"
#include "journal/index_internal.h"
#include "os/os.h"

#define INDEX_MERGE_STEP_KEYS 16384u
#define INDEX_MERGE_STEP_NS   UINT64_C(16384000) /* a million keys a second */
#define INDEX_NICE            5

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
    result = index_job_write_run(job, ix->dir, &ix->budget, &change.run_added, &whole, &e);
    if (result == 0) {
        change.table_dropped = whole ? job->table : NULL;
        result = index_publish(ix, &change, NULL, &e);
        index_run_release(change.run_added);
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
    bool done;

    pthread_mutex_lock(&ix->lock);
    ix->job_busy = true;
    pthread_mutex_unlock(&ix->lock);
    done = index_do_run(ix, job);
    done = index_job_write_summary(job, ix->dir, &ix->options) && done;
    pthread_mutex_lock(&ix->lock);
    job->waiting = !done;
    ix->job_busy = false;
    while (done && *at != job) {
        ensure(*at != NULL);
        at = &(*at)->next;
    }
    if (done) {
        *at = job->next;
        ix->job_count--;
        index_count_frozen(ix);
    }
    pthread_cond_broadcast(&ix->idle);
    pthread_mutex_unlock(&ix->lock);
    if (done) {
        index_job_free(job);
    }
}

void index_merge_drop(struct index *ix)
{
    index_merge_free(ix->merge);
    ix->merge = NULL;
    atomic_store(&ix->merging, false);
}

/* Damaged inputs are given up; the merge is not tried before the next opportunity. */
static void index_merge_failed(struct index *ix, struct index_run *const *inputs,
                               const struct err *e)
{
    index_failed("merge", "runs", e);
    for (unsigned i = 0; i < INDEX_MERGE_WAYS; i++) {
        if (atomic_load(&inputs[i]->corrupt)) {
            index_condemn(ix, inputs[i]);
        }
    }
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
    ix->merge = index_merge_start(ix->dir, v->runs + position, &ix->budget, &e);
    if (ix->merge == NULL) {
        index_merge_failed(ix, v->runs + position, &e);
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
        result = index_publish(ix, &(struct index_view_change){.run_added = run}, NULL, &e);
        index_run_release(run);
    }
    if (result != 0) {
        index_merge_failed(ix, index_merge_inputs(ix->merge), &e);
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

    return index_job_next(ix) != NULL || index_mend_due(ix) != NULL || atomic_load(&ix->merging) ||
           (!ix->merge_waiting && index_view_mergeable(ix->view, &position));
}

/* One piece of work; there is some. Not under the lock. */
static void index_step(struct index *ix)
{
    struct index_job *job;
    bool mend;

    pthread_mutex_lock(&ix->lock);
    job = index_job_next(ix);
    mend = index_mend_due(ix) != NULL;
    pthread_mutex_unlock(&ix->lock);
    if (job != NULL) {
        index_do_job(ix, job);
    } else if (mend) {
        index_mend_step(ix);
    } else if (ix->merge != NULL) {
        index_merge_go_on(ix);
    } else {
        index_merge_begin(ix);
    }
}

/* A merge step was taken: the next one not before its time, unless there is a job, or somebody
 * waits. Under the lock. */
static void index_pace(struct index *ix, uint64_t begun_ns)
{
    uint64_t until_ns = begun_ns + INDEX_MERGE_STEP_NS;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    int r = 0;

    while (r == 0 && atomic_load(&ix->merging) && !ix->stop && ix->hurry == 0 &&
           index_job_next(ix) == NULL) {
        r = pthread_cond_timedwait(&ix->work, &ix->lock, &until);
    }
}

void *index_thread(void *arg)
{
    struct index *ix = arg;
    uint64_t begun_ns;

    (void)os_set_nice(INDEX_NICE); /* of this thread; without it merges are paced all the same */
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
        begun_ns = os_clock_mono_ns();
        index_step(ix);
        pthread_mutex_lock(&ix->lock);
        index_pace(ix, begun_ns);
    }
    ix->busy = false;
    pthread_mutex_unlock(&ix->lock);
    return NULL;
}

void index_kick(struct index *ix)
{
    bool more;

    pthread_mutex_lock(&ix->lock);
    ix->merge_waiting = false;
    ix->mend_waiting = false;
    for (struct index_job *job = ix->jobs; job != NULL; job = job->next) {
        job->waiting = false;
    }
    more = index_has_work(ix);
    pthread_cond_signal(&ix->work);
    pthread_mutex_unlock(&ix->lock);
    while (more && !ix->options.background) {
        index_step(ix);
        pthread_mutex_lock(&ix->lock);
        more = index_has_work(ix);
        pthread_mutex_unlock(&ix->lock);
    }
}

/* Under the lock: jobs, or with merges all work, is done or has failed. */
static bool index_is_done(struct index *ix, bool merges)
{
    return merges ? !ix->busy && !index_has_work(ix) : !ix->job_busy && index_job_next(ix) == NULL;
}

static void index_wait(struct index *ix, bool merges)
{
    index_kick(ix);
    pthread_mutex_lock(&ix->lock);
    ix->hurry += merges;
    pthread_cond_signal(&ix->work);
    while (ix->options.background && !index_is_done(ix, merges)) {
        pthread_cond_wait(&ix->idle, &ix->lock);
    }
    ix->hurry -= merges;
    pthread_mutex_unlock(&ix->lock);
}

void index_settle(struct index *ix)
{
    index_wait(ix, true);
}

void index_flush(struct index *ix)
{
    index_wait(ix, false);
}

void index_condemn(struct index *ix, struct index_run *run)
{
    char name[INDEX_NAME_MAX];

    if (!atomic_exchange(&run->condemned, true)) {
        index_run_name(name, run->from, run->to);
        log_line(LOG_ERROR, "index", "%s is damaged; it is made again%s", name,
                 ix->options.keys == NULL ? " by the next start" : "");
        index_unlink(ix->dir, name);
        pthread_mutex_lock(&ix->lock);
        atomic_store(&run->gone, true);
        pthread_cond_signal(&ix->work);
        pthread_mutex_unlock(&ix->lock);
    }
}
