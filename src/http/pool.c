/* pool: a few threads for work that must not hold the loop up.
 *
 * One queue, first in first out. A finished job goes to a second list, and an eventfd wakes the
 * loop when that list was empty: one write for many jobs. Jobs are embedded in what they serve, so
 * that neither handing out nor taking back can fail for want of memory.
 *
 * A lock or condition that fails is a bug (ensure). Failing to start a thread is an error of start.
 */
#include "http/pool.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"

static void lock(struct http_pool *p)
{
    ensure(pthread_mutex_lock(&p->lock) == 0);
}

static void unlock(struct http_pool *p)
{
    ensure(pthread_mutex_unlock(&p->lock) == 0);
}

static void list_add(struct http_job_list *list, struct http_job *job)
{
    job->next = NULL;
    if (list->first == NULL) {
        list->first = job;
    } else {
        list->last->next = job;
    }
    list->last = job;
}

void http_pool_post(struct http_pool *p, struct http_job *job)
{
    static const uint64_t one = 1;
    bool was_empty;

    lock(p);
    was_empty = p->finished.first == NULL;
    list_add(&p->finished, job);
    unlock(p);
    if (was_empty) {
        /* Fails only when the counter is full, and then the loop is awake already. */
        (void)os_write(p->wake_fd, &one, sizeof one);
    }
}

static void *worker(void *ctx)
{
    struct http_pool *p = ctx;

    for (;;) {
        struct http_job *job;

        lock(p);
        while (p->queue.first == NULL && !p->ending) {
            ensure(pthread_cond_wait(&p->more, &p->lock) == 0);
        }
        job = p->queue.first;
        if (job == NULL) {
            unlock(p);
            return NULL;
        }
        p->queue.first = job->next;
        ensure(p->queued != 0);
        p->queued--;
        unlock(p);
        job->work(job->ctx);
        http_pool_post(p, job);
    }
}

int http_pool_start(struct http_pool *p, unsigned threads, int wake_fd, struct err *e)
{
    sigset_t all;
    sigset_t before;
    int failed = 0;

    *p = (struct http_pool){.wake_fd = wake_fd};
    p->threads = calloc(threads, sizeof *p->threads);
    if (p->threads == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for worker threads");
    }
    ensure(pthread_mutex_init(&p->lock, NULL) == 0);
    ensure(pthread_cond_init(&p->more, NULL) == 0);
    /* Signals are the main thread's; a worker must never be the one that takes SIGTERM. */
    (void)sigfillset(&all);
    ensure(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    while (p->thread_count < threads && failed == 0) {
        failed = pthread_create(&p->threads[p->thread_count], NULL, worker, p);
        p->thread_count += failed == 0 ? 1 : 0;
    }
    ensure(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed != 0) {
        http_pool_stop(p);
        return err_os(e, -failed, "pthread_create", "worker");
    }
    return 0;
}

bool http_pool_submit(struct http_pool *p, struct http_job *job, unsigned queued_max)
{
    bool full;

    ensure(job->work != NULL);
    if (p->threads == NULL) {
        return false;
    }
    lock(p);
    ensure(!p->ending);
    full = queued_max != 0 && p->queued >= queued_max;
    if (!full) {
        list_add(&p->queue, job);
        p->queued++;
        ensure(pthread_cond_signal(&p->more) == 0);
    }
    unlock(p);
    return !full;
}

struct http_job *http_pool_take(struct http_pool *p)
{
    bool shared = p->threads != NULL;
    struct http_job *first;

    if (shared) {
        lock(p);
    }
    first = p->finished.first;
    p->finished = (struct http_job_list){0};
    if (shared) {
        unlock(p);
    }
    return first;
}

void http_pool_stop(struct http_pool *p)
{
    if (p->threads == NULL) {
        return;
    }
    lock(p);
    p->ending = true;
    ensure(pthread_cond_broadcast(&p->more) == 0);
    unlock(p);
    for (unsigned i = 0; i < p->thread_count; i++) {
        ensure(pthread_join(p->threads[i], NULL) == 0);
    }
    ensure(p->queue.first == NULL);
    free(p->threads);
    p->threads = NULL;
    p->thread_count = 0;
    ensure(pthread_cond_destroy(&p->more) == 0);
    ensure(pthread_mutex_destroy(&p->lock) == 0);
}
