/* thread: threads that serve one request each, kept for a while and used again (internal to http).
 *
 * Everything here is for the loop thread, but for what a thread does itself. A thread is taken, is
 * given its work, and is returned when the work has said, by a posted job, that it is over: only
 * then it may be given the next. Locks: one a thread, held for a few instructions. */
#ifndef HTTP_THREAD_H
#define HTTP_THREAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct http_server;

struct http_thread {
    TAILQ_ENTRY(http_thread) link; /* idle, taken or ending */
    pthread_t id;
    pthread_mutex_t lock; /* guards run, ctx and end */
    pthread_cond_t more;
    void (*run)(void *ctx); /* NULL: nothing to do */
    void *ctx;
    bool end;
    atomic_bool over;  /* joining it does not block any more */
    int wake_fd;       /* eventfd: ends a wait of the work. Borrowed by who has taken the thread */
    uint64_t since_ms; /* idle since */
};

TAILQ_HEAD(http_thread_list, http_thread);

struct http_threads {
    struct http_thread_list idle; /* the last used one first */
    struct http_thread_list taken;
    struct http_thread_list ending; /* told to, not yet joined */
    unsigned busy;
    bool closed; /* no more are taken */
};

void http_threads_init(struct http_server *s);
/* One that waits for its work, wake_fd not readable. NULL: threads_max are busy, or the system has
 * no thread or descriptor to spare. */
struct http_thread *http_threads_take(struct http_server *s);
/* Runs run(ctx) on it, once. */
void http_thread_give(struct http_thread *t, void (*run)(void *ctx), void *ctx);
/* Its run is over, or it never got one. */
void http_threads_return(struct http_server *s, struct http_thread *t);
/* Ends those that were idle for HTTP_THREAD_IDLE_MS, joins those that have ended. Does not block.
 */
void http_threads_sweep(struct http_server *s);
/* No more are taken from now on. Ends and joins all, also those that are taken, once they have done
 * what they were given (blocks); these are freed when they are returned. */
void http_threads_close(struct http_server *s);

#endif
