/* pool: worker threads, their queue, and what comes back to the loop (internal to http).
 *
 * A job belongs to its caller, who embeds it and keeps it until it came back. Blocks: only where
 * said. Lock: one, the pool's own; nothing is called while it is held. */
#ifndef HTTP_POOL_H
#define HTTP_POOL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct http_job {
    struct http_job *next;
    void (*work)(void *ctx); /* worker thread; NULL for a job that was only posted */
    void (*done)(void *ctx); /* loop thread */
    void *ctx;
};

struct http_job_list {
    struct http_job *first;
    struct http_job *last;
};

struct http_pool {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t more;
    struct http_job_list queue;
    struct http_job_list finished;
    unsigned queued; /* length of queue */
    bool ending;
    int wake_fd; /* eventfd, written when finished becomes non-empty */
    pthread_t *threads;
    unsigned thread_count;
};

/* Starts the threads, all signals blocked in them. wake_fd is borrowed. Returns 0, ERR_NO_MEMORY or
 * ERR_IO; on failure nothing is left behind. */
int http_pool_start(struct http_pool *p, unsigned threads, int wake_fd, struct err *e) MUST_CHECK;
/* Loop thread. false when queued_max jobs wait already (0: no limit), or after http_pool_stop. */
bool http_pool_submit(struct http_pool *p, struct http_job *job, unsigned queued_max);
/* Any thread: hands the job's done to the loop. */
void http_pool_post(struct http_pool *p, struct http_job *job);
/* Loop thread: everything that came back, oldest first, as a list linked by next; or NULL. */
struct http_job *http_pool_take(struct http_pool *p);
/* Loop thread. Lets queued jobs finish, joins the threads (blocks), frees everything but what
 * http_pool_take has yet to give. */
void http_pool_stop(struct http_pool *p);

#endif
