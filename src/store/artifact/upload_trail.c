/* The trailing read-back: threads that read what was synced, one step after another.
 *
 * A step: the range leaves the page cache, is read from the device, and is hashed; then the trail's
 * offset moves. Only whole steps are read, so that no page of the range can be dirty with the bytes
 * that a writer is adding: a dirty page would stay in the cache and be read from there. What is
 * behind the last whole step is the acceptance's (upload_accept.c), which goes on from here.
 *
 * Fairness: a trail gets TURN_STEPS steps, then the next one. All are bounded; a new one pushes out
 * the one that was followed longest ago, whose acceptance then reads everything.
 *
 * Invariant: at <= target <= what is synced. A roll-back goes to the saved offset, which is never
 * below it. Should an upload stand below its trail all the same (somebody took its state, or its
 * bytes), the trail begins anew.
 *
 * A writer waits at each of its syncs (but for the last of its request) until its trail is near, so
 * that the end of an upload is near too: faster than the device reads, an upload of several
 * requests cannot come in for long.
 *
 * A read that fails ends the trail, which is logged: the acceptance reads all of it again, and says
 * what is the matter. Power failure: nothing of it is on the disk. */
#include "store/artifact/upload_trail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

#define TRAIL_NICE  10
#define TURN_STEPS  16
#define THREADS_MAX 8

struct trail {
    TAILQ_ENTRY(trail) link;  /* of all: the one followed last is the last */
    TAILQ_ENTRY(trail) queue; /* of those that have something to read */
    char id[UPLOAD_ID_LEN + 1];
    bool queued, reading;
    bool wanted;    /* somebody waits for the step to end */
    bool forgotten; /* by everybody but its reader */
    bool failed;
    uint64_t at, target;
    struct blake3 hash; /* of [0, at) */
};

TAILQ_HEAD(trail_list, trail);

struct trails {
    struct uploads *us;
    uint64_t step_bytes;
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is something to read, or an end */
    pthread_cond_t idle; /* a step has ended, or there will be none */
    struct trail_list all, queue;
    unsigned count;
    unsigned threads_max, threads, waiting;
    pthread_t thread[THREADS_MAX];
    bool stop;
};

static void take_lock(struct trails *ts)
{
    int r = pthread_mutex_lock(&ts->lock);
    ensure(r == 0);
}

static void give_lock(struct trails *ts)
{
    int r = pthread_mutex_unlock(&ts->lock);
    ensure(r == 0);
}

static void wake(pthread_cond_t *cond)
{
    int r = pthread_cond_broadcast(cond);
    ensure(r == 0);
}

/* ---- under the lock ---- */

static struct trail *find(struct trails *ts, const char *id)
{
    struct trail *t;
    TAILQ_FOREACH(t, &ts->all, link)
    {
        if (memcmp(t->id, id, UPLOAD_ID_LEN) == 0) {
            return t;
        }
    }
    return NULL;
}

static void unqueue(struct trails *ts, struct trail *t)
{
    if (t->queued) {
        TAILQ_REMOVE(&ts->queue, t, queue);
        t->queued = false;
    }
}

/* Where there is something to read, and nobody does. */
static void enqueue(struct trails *ts, struct trail *t)
{
    if (t->at < t->target && !t->queued && !t->reading && !t->wanted && !t->failed) {
        TAILQ_INSERT_TAIL(&ts->queue, t, queue);
        t->queued = true;
        wake(&ts->work);
    }
}

/* Its reader frees it, where there is one. */
static void discard(struct trails *ts, struct trail *t)
{
    unqueue(ts, t);
    TAILQ_REMOVE(&ts->all, t, link);
    ts->count--;
    t->forgotten = true;
    if (!t->reading) {
        free(t);
    }
}

static struct trail *make(struct trails *ts, const char *id)
{
    if (ts->count == TRAILS_MAX) {
        discard(ts, TAILQ_FIRST(&ts->all));
    }
    struct trail *t = aligned_alloc(_Alignof(struct trail), sizeof *t);
    if (t == NULL) {
        return NULL;
    }
    memset(t, 0, sizeof *t);
    memcpy(t->id, id, sizeof t->id);
    blake3_start(&t->hash);
    TAILQ_INSERT_TAIL(&ts->all, t, link);
    ts->count++;
    return t;
}

/* ---- reading ---- */

static int read_step(struct trails *ts, int fd, uint64_t from, struct blake3 *hash)
{
    struct err e = {0};
    (void)os_drop_range(fd, from, ts->step_bytes);
    int r = upload_hash_range(fd, from, from + ts->step_bytes, hash, NULL, NULL, &e);
    if (r != 0) {
        log_line(LOG_WARN, "uploads", "reading back what was stored: %s", e.text);
    }
    return r;
}

static bool may_go_on(const struct trails *ts, const struct trail *t)
{
    return t->at < t->target && !t->wanted && !t->forgotten && !t->failed && !ts->stop &&
           !atomic_load(&ts->us->stopping);
}

/* With the lock, which it gives while it reads. */
static void take_turn(struct trails *ts, struct trail *t)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(ts->us, path, t->id, "");
    t->reading = true;
    give_lock(ts);
    int fd = os_open(path, O_RDONLY, 0);
    take_lock(ts);
    t->failed = t->failed || fd < 0;
    for (unsigned i = 0; i < TURN_STEPS && may_go_on(ts, t); i++) {
        uint64_t at = t->at;
        struct blake3 hash = t->hash;
        give_lock(ts);
        int r = read_step(ts, fd, at, &hash);
        take_lock(ts);
        t->failed = r != 0;
        if (r == 0) {
            t->at = at + ts->step_bytes;
            t->hash = hash;
            wake(&ts->idle); /* who keeps near it looks again */
        }
    }
    give_lock(ts);
    if (fd >= 0) {
        (void)os_close(fd); /* nothing was written through it */
    }
    take_lock(ts);
    t->reading = false;
    wake(&ts->idle);
    if (t->forgotten) {
        free(t);
    } else {
        enqueue(ts, t);
    }
}

static struct trail *next(struct trails *ts)
{
    struct trail *t = atomic_load(&ts->us->stopping) ? NULL : TAILQ_FIRST(&ts->queue);
    if (t != NULL) {
        unqueue(ts, t);
    }
    return t;
}

static void *run(void *ctx)
{
    struct trails *ts = ctx;
    (void)os_set_nice(TRAIL_NICE); /* of this thread; a reader that is not slower harms little */
    take_lock(ts);
    while (!ts->stop) {
        struct trail *t = next(ts);
        if (t != NULL) {
            take_turn(ts, t);
            continue;
        }
        ts->waiting++;
        int r = pthread_cond_wait(&ts->work, &ts->lock);
        ensure(r == 0);
        ts->waiting--;
    }
    give_lock(ts);
    return NULL;
}

void trails_run(struct trails *ts)
{
    struct trail *t;
    take_lock(ts);
    while ((t = next(ts)) != NULL) {
        take_turn(ts, t);
    }
    give_lock(ts);
}

/* Without a thread nothing is read ahead: the acceptance does it. */
static void start_thread(struct trails *ts)
{
    if (ts->waiting == 0 && ts->threads < ts->threads_max &&
        pthread_create(&ts->thread[ts->threads], NULL, run, ts) == 0) {
        ts->threads++;
    }
}

/* ---- */

void trail_follow(struct trails *ts, const char *id, uint64_t synced)
{
    uint64_t target = synced - synced % ts->step_bytes;
    take_lock(ts);
    struct trail *t = find(ts, id);
    if (t != NULL && synced < t->target) {
        discard(ts, t);
        t = NULL;
    }
    if (t != NULL) {
        TAILQ_REMOVE(&ts->all, t, link);
        TAILQ_INSERT_TAIL(&ts->all, t, link);
    } else if (target > 0) {
        t = make(ts, id);
    }
    if (t != NULL) {
        t->target = target;
        t->wanted = false;
        enqueue(ts, t);
    }
    if (!TAILQ_EMPTY(&ts->queue)) {
        start_thread(ts);
    }
    give_lock(ts);
}

void trail_keep_near(struct trails *ts, const char *id, uint64_t lag_bytes)
{
    take_lock(ts);
    struct trail *t = find(ts, id);
    while (t != NULL && !t->failed && t->target - t->at > lag_bytes && ts->threads > 0 &&
           !atomic_load(&ts->us->stopping)) {
        int r = pthread_cond_wait(&ts->idle, &ts->lock);
        ensure(r == 0);
        t = find(ts, id);
    }
    give_lock(ts);
}

uint64_t trail_take(struct trails *ts, const char *id, uint64_t synced, struct blake3 *hash)
{
    uint64_t at = 0;
    blake3_start(hash);
    take_lock(ts);
    struct trail *t = find(ts, id);
    if (t != NULL) {
        t->wanted = true;
        unqueue(ts, t);
    }
    /* Looked for each time: another upload's beginning may push it out meanwhile. */
    while (t != NULL && t->reading) {
        int r = pthread_cond_wait(&ts->idle, &ts->lock);
        ensure(r == 0);
        t = find(ts, id);
    }
    if (t != NULL && !t->failed && t->at <= synced) {
        at = t->at;
        *hash = t->hash;
    }
    give_lock(ts);
    return at;
}

void trail_forget(struct trails *ts, const char *id)
{
    take_lock(ts);
    struct trail *t = find(ts, id);
    if (t != NULL) {
        discard(ts, t);
    }
    give_lock(ts);
}

/* ---- life ---- */

struct trails *trails_new(struct uploads *us, unsigned threads_max, uint64_t step_bytes)
{
    struct trails *ts = calloc(1, sizeof *ts);
    if (ts == NULL) {
        return NULL;
    }
    ts->us = us;
    ts->threads_max = threads_max < THREADS_MAX ? threads_max : THREADS_MAX;
    ts->step_bytes = step_bytes > 0 ? step_bytes : TRAIL_STEP_BYTES;
    TAILQ_INIT(&ts->all);
    TAILQ_INIT(&ts->queue);
    int r = pthread_mutex_init(&ts->lock, NULL);
    ensure(r == 0);
    r = pthread_cond_init(&ts->work, NULL);
    ensure(r == 0);
    r = pthread_cond_init(&ts->idle, NULL);
    ensure(r == 0);
    return ts;
}

void trails_wake(struct trails *ts)
{
    take_lock(ts);
    wake(&ts->work);
    wake(&ts->idle);
    give_lock(ts);
}

void trails_free(struct trails *ts)
{
    if (ts == NULL) {
        return;
    }
    take_lock(ts);
    ts->stop = true;
    wake(&ts->work);
    give_lock(ts);
    for (unsigned i = 0; i < ts->threads; i++) {
        int r = pthread_join(ts->thread[i], NULL);
        ensure(r == 0);
    }
    while (!TAILQ_EMPTY(&ts->all)) {
        discard(ts, TAILQ_FIRST(&ts->all));
    }
    int r = pthread_cond_destroy(&ts->idle);
    ensure(r == 0);
    r = pthread_cond_destroy(&ts->work);
    ensure(r == 0);
    r = pthread_mutex_destroy(&ts->lock);
    ensure(r == 0);
    free(ts);
}
