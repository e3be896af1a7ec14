/* Helpers that sync beside their caller.
 *
 * A call is a group of jobs on its caller's stack. It stands in the queue while one of its jobs is
 * untaken; the caller and whoever is at leisure take from it until none is. So a group never waits
 * for helpers: with all of them busy its caller does it alone, as if there were none. The caller
 * leaves when the last job that anybody took has ended.
 *
 * Power failure, and failures: every job is a sync of its own, as it would be alone; a caller goes
 * on to what needs them when all have returned 0, and of what was synced before another one failed
 * it promises nothing. Which of them the device did first is nobody's to know.
 *
 * Answers: a sync that fails. Aborts: a lock that fails. */
#include "store/artifact/upload_sync.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/ensure.h"
#include "os/os.h"

struct group {
    TAILQ_ENTRY(group) link; /* while it is queued */
    struct sync_job *jobs;
    unsigned count;
    unsigned taken, ended;
    bool queued, failed;
    pthread_cond_t all_ended;
};

TAILQ_HEAD(group_list, group);

struct syncers {
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is a job, or an end */
    struct group_list queue;
    unsigned threads_max, threads, waiting;
    pthread_t thread[SYNC_THREADS_MAX];
    bool stop;
};

static void take_lock(struct syncers *s)
{
    int r = pthread_mutex_lock(&s->lock);
    ensure(r == 0);
}

static void give_lock(struct syncers *s)
{
    int r = pthread_mutex_unlock(&s->lock);
    ensure(r == 0);
}

static void run_job(struct sync_job *job)
{
    job->result = job->dir != NULL ? os_sync_dir(job->dir) : os_fdatasync(job->fd);
}

/* ---- under the lock ---- */

static void unqueue(struct syncers *s, struct group *g)
{
    if (g->queued && (g->taken == g->count || g->failed)) {
        TAILQ_REMOVE(&s->queue, g, link);
        g->queued = false;
    }
}

/* Does one job of the group, which has an untaken one; gives the lock meanwhile. */
static void take_job(struct syncers *s, struct group *g)
{
    ensure(g->taken < g->count);
    struct sync_job *job = &g->jobs[g->taken++];
    unqueue(s, g);
    give_lock(s);
    run_job(job);
    take_lock(s);
    g->failed = g->failed || job->result < 0;
    unqueue(s, g);
    /* The group is its caller's, and may go as soon as the lock is given. */
    if (++g->ended == g->taken) {
        int r = pthread_cond_signal(&g->all_ended);
        ensure(r == 0);
    }
}

static void *run(void *ctx)
{
    struct syncers *s = ctx;
    take_lock(s);
    while (!s->stop) {
        struct group *g = TAILQ_FIRST(&s->queue);
        if (g != NULL) {
            take_job(s, g);
            continue;
        }
        s->waiting++;
        int r = pthread_cond_wait(&s->work, &s->lock);
        ensure(r == 0);
        s->waiting--;
    }
    give_lock(s);
    return NULL;
}

/* Wakes as many helpers as are wanted, or makes them: without any the caller does it all. */
static void call_helpers(struct syncers *s, unsigned wanted)
{
    unsigned coming = 0;
    for (; coming < wanted && coming < s->waiting; coming++) {
        int r = pthread_cond_signal(&s->work);
        ensure(r == 0);
    }
    while (coming++ < wanted && s->threads < s->threads_max &&
           pthread_create(&s->thread[s->threads], NULL, run, s) == 0) {
        s->threads++;
    }
}

/* ---- */

int sync_all(struct syncers *s, struct sync_job *jobs, unsigned count)
{
    struct group g = {.jobs = jobs, .count = count};
    int r = pthread_cond_init(&g.all_ended, NULL);
    ensure(r == 0);
    for (unsigned i = 0; i < count; i++) {
        jobs[i].result = 0;
    }
    take_lock(s);
    if (count > 1 && s->threads_max > 0) {
        TAILQ_INSERT_TAIL(&s->queue, &g, link);
        g.queued = true;
        call_helpers(s, count - 1);
    }
    while (g.taken < g.count && !g.failed) {
        take_job(s, &g);
    }
    while (g.ended < g.taken) {
        r = pthread_cond_wait(&g.all_ended, &s->lock);
        ensure(r == 0);
    }
    ensure(!g.queued);
    give_lock(s);
    r = pthread_cond_destroy(&g.all_ended);
    ensure(r == 0);
    for (unsigned i = 0; i < count; i++) {
        if (jobs[i].result < 0) {
            return jobs[i].result;
        }
    }
    return 0;
}

/* ---- life ---- */

struct syncers *syncers_new(unsigned threads_max)
{
    struct syncers *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return NULL;
    }
    s->threads_max = threads_max < SYNC_THREADS_MAX ? threads_max : SYNC_THREADS_MAX;
    TAILQ_INIT(&s->queue);
    int r = pthread_mutex_init(&s->lock, NULL);
    ensure(r == 0);
    r = pthread_cond_init(&s->work, NULL);
    ensure(r == 0);
    return s;
}

void syncers_free(struct syncers *s)
{
    if (s == NULL) {
        return;
    }
    take_lock(s);
    ensure(TAILQ_EMPTY(&s->queue));
    s->stop = true;
    int r = pthread_cond_broadcast(&s->work);
    ensure(r == 0);
    give_lock(s);
    for (unsigned i = 0; i < s->threads; i++) {
        r = pthread_join(s->thread[i], NULL);
        ensure(r == 0);
    }
    r = pthread_cond_destroy(&s->work);
    ensure(r == 0);
    r = pthread_mutex_destroy(&s->lock);
    ensure(r == 0);
    free(s);
}
