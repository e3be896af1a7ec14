/* thread: the cache of threads for requests with a thread of their own.
 *
 * A thread sleeps on its own condition until it is given work or told to end. Which threads there
 * are, and which of them are idle, only the loop knows: it takes one for a request, and puts it
 * back when the request's job has come back, so that no list needs a lock. The thread used last is
 * used first, and what was idle for HTTP_THREAD_IDLE_MS is ended: a burst of uploads leaves nothing
 * behind. A thread that was told to end sets `over` as its last act and is joined after that, since
 * the loop waits for nobody.
 *
 * Every thread has an eventfd for who wants its work to stop waiting. It counts to the descriptors
 * that strangers cannot use up (server.c, limit_descriptors).
 *
 * Signals are blocked in these threads. Answers: a thread that cannot be had is a 503 of the door.
 * Aborts: a lock or condition that fails is a bug. */
#include "http/thread.h"

#include <signal.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

static void lock(struct http_thread *t)
{
    ensure(pthread_mutex_lock(&t->lock) == 0);
}

static void unlock(struct http_thread *t)
{
    ensure(pthread_mutex_unlock(&t->lock) == 0);
}

static void *thread_main(void *ctx)
{
    struct http_thread *t = ctx;

    for (;;) {
        void (*run)(void *ctx);

        lock(t);
        while (t->run == NULL && !t->end) {
            ensure(pthread_cond_wait(&t->more, &t->lock) == 0);
        }
        run = t->run;
        ctx = t->ctx;
        t->run = NULL;
        unlock(t);
        if (run == NULL) {
            atomic_store(&t->over, true);
            return NULL;
        }
        run(ctx);
    }
}

static void thread_free(struct http_thread *t)
{
    ensure(pthread_cond_destroy(&t->more) == 0);
    ensure(pthread_mutex_destroy(&t->lock) == 0);
    (void)os_close(t->wake_fd);
    free(t);
}

static struct http_thread *thread_new(struct http_server *s)
{
    struct http_thread *t = calloc(1, sizeof *t);
    sigset_t all;
    sigset_t before;
    int failed;

    if (t == NULL) {
        return NULL;
    }
    t->wake_fd = os_eventfd();
    if (t->wake_fd < 0) {
        log_line(LOG_WARN, "http", "no descriptor for a thread (errno %d)", -t->wake_fd);
        free(t);
        return NULL;
    }
    ensure(pthread_mutex_init(&t->lock, NULL) == 0);
    ensure(pthread_cond_init(&t->more, NULL) == 0);
    if (t->wake_fd >= s->fd_max) {
        thread_free(t);
        return NULL;
    }
    /* Signals are the main thread's. */
    (void)sigfillset(&all);
    ensure(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    failed = pthread_create(&t->id, NULL, thread_main, t);
    ensure(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed != 0) {
        log_line(LOG_WARN, "http", "no thread for a request (errno %d)", failed);
        thread_free(t);
        return NULL;
    }
    return t;
}

void http_threads_init(struct http_server *s)
{
    TAILQ_INIT(&s->threads.idle);
    TAILQ_INIT(&s->threads.taken);
    TAILQ_INIT(&s->threads.ending);
}

struct http_thread *http_threads_take(struct http_server *s)
{
    struct http_threads *all = &s->threads;
    struct http_thread *t = TAILQ_FIRST(&all->idle);
    uint64_t count;

    if (all->closed || all->busy >= s->config.limits.threads_max) {
        return NULL;
    }
    if (t != NULL) {
        TAILQ_REMOVE(&all->idle, t, link);
        (void)os_read(t->wake_fd, &count, sizeof count); /* what was left over by the last work */
    } else {
        t = thread_new(s);
    }
    if (t != NULL) {
        TAILQ_INSERT_HEAD(&all->taken, t, link);
        all->busy++;
        metric_add(METRIC_HTTP_THREADS, 1);
    }
    return t;
}

void http_thread_give(struct http_thread *t, void (*run)(void *ctx), void *ctx)
{
    lock(t);
    ensure(t->run == NULL);
    ensure(!t->end);
    t->run = run;
    t->ctx = ctx;
    ensure(pthread_cond_signal(&t->more) == 0);
    unlock(t);
}

/* It does what it was given first. */
static void tell_to_end(struct http_thread *t)
{
    lock(t);
    t->end = true;
    ensure(pthread_cond_signal(&t->more) == 0);
    unlock(t);
}

void http_threads_return(struct http_server *s, struct http_thread *t)
{
    struct http_threads *all = &s->threads;

    ensure(all->busy != 0);
    all->busy--;
    metric_sub(METRIC_HTTP_THREADS, 1);
    TAILQ_REMOVE(&all->taken, t, link);
    if (all->closed) {
        thread_free(t); /* http_threads_close has joined it */
        return;
    }
    t->since_ms = s->now_ms;
    TAILQ_INSERT_HEAD(&all->idle, t, link);
}

static void join_and_free(struct http_thread *t)
{
    ensure(pthread_join(t->id, NULL) == 0);
    thread_free(t);
}

void http_threads_sweep(struct http_server *s)
{
    struct http_threads *all = &s->threads;
    struct http_thread *t = TAILQ_LAST(&all->idle, http_thread_list);

    while (t != NULL && s->now_ms - t->since_ms >= HTTP_THREAD_IDLE_MS) {
        TAILQ_REMOVE(&all->idle, t, link);
        TAILQ_INSERT_TAIL(&all->ending, t, link);
        tell_to_end(t);
        t = TAILQ_LAST(&all->idle, http_thread_list);
    }
    t = TAILQ_FIRST(&all->ending);
    while (t != NULL) {
        struct http_thread *next = TAILQ_NEXT(t, link);

        if (atomic_load(&t->over)) {
            TAILQ_REMOVE(&all->ending, t, link);
            join_and_free(t);
        }
        t = next;
    }
}

void http_threads_close(struct http_server *s)
{
    struct http_threads *all = &s->threads;
    struct http_thread *t;

    all->closed = true;
    TAILQ_CONCAT(&all->ending, &all->idle, link);
    TAILQ_FOREACH(t, &all->ending, link)
    {
        tell_to_end(t);
    }
    TAILQ_FOREACH(t, &all->taken, link)
    {
        tell_to_end(t);
        ensure(pthread_join(t->id, NULL) == 0);
    }
    while (!TAILQ_EMPTY(&all->ending)) {
        t = TAILQ_FIRST(&all->ending);
        TAILQ_REMOVE(&all->ending, t, link);
        join_and_free(t);
    }
}
