/* The sealer's thread, what it is asked, and what it tells.
 *
 * The thread has low priority and does what is asked until it is done or fails; then it waits to be
 * asked again. What a person asked for is not tried again by itself: he is told. What the setting
 * seal_after_generations asks for is, a minute later. */
#include "journal/sealer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "journal/internal.h"
#include "os/os.h"

#define NICE         10
#define RETRY_NS     UINT64_C(60000000000)
#define NOT_READY_NS UINT64_C(1000000000)

#define SUMMARY_WAIT_NS UINT64_C(100000000)
#define SUMMARY_TRIES   300 /* half a minute */

void sealer_init(struct sealer *s)
{
    *s = (struct sealer){0};
    int r = pthread_mutex_init(&s->work, NULL);
    ensure(r == 0);
    r = pthread_mutex_init(&s->lock, NULL);
    ensure(r == 0);
    pthread_condattr_t monotonic;
    r = pthread_condattr_init(&monotonic);
    ensure(r == 0);
    r = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    ensure(r == 0);
    r = pthread_cond_init(&s->changed, &monotonic);
    ensure(r == 0);
    (void)pthread_condattr_destroy(&monotonic);
}

void sealer_free(struct sealer *s)
{
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_mutex_destroy(&s->work);
}

void sealer_stop(struct journal *j)
{
    struct sealer *s = &j->sealer;
    atomic_store(&s->stop, true);
    pthread_mutex_lock(&s->lock);
    bool running = s->running;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (running) {
        int r = pthread_join(s->thread, NULL);
        ensure(r == 0);
        s->running = false;
    }
}

/* Closed generations, and how many of them are sealed. Behind damage none is counted; the one that
 * it was found in stands where the tail would. */
static void count_closed(struct journal *j, uint32_t *closed, uint32_t *sealed)
{
    pthread_mutex_lock(&j->lock);
    *closed = j->generation_count > 0 ? j->generation_count - 1 : 0;
    *sealed = j->sealed_count < *closed ? j->sealed_count : *closed;
    pthread_mutex_unlock(&j->lock);
}

/* How many of the newest closed generations are not to be sealed, as things are asked now. */
static uint32_t kept(struct journal *j)
{
    uint32_t closed;
    uint32_t sealed;
    count_closed(j, &closed, &sealed);
    pthread_mutex_lock(&j->sealer.lock);
    uint32_t target = j->sealer.target;
    pthread_mutex_unlock(&j->sealer.lock);
    return closed > target ? closed - target : 0;
}

/* A generation that was closed just now has its summary soon. Under s->lock. */
static void rest(struct sealer *s)
{
    uint64_t until_ns = os_clock_mono_ns() + SUMMARY_WAIT_NS;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    int r = 0;
    while (r == 0 && !atomic_load(&s->stop)) {
        r = pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
}

static void *sealer_main(void *arg)
{
    struct journal *j = arg;
    struct sealer *s = &j->sealer;
    unsigned waited = 0;
    (void)pthread_setname_np(pthread_self(), "seal");
    if (os_set_nice(NICE) != 0) {
        log_line(LOG_WARN, "journal", "generations are sealed without a lower priority");
    }
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->target == 0 && !atomic_load(&s->stop)) {
            pthread_cond_wait(&s->changed, &s->lock);
        }
        uint32_t target = s->target;
        pthread_mutex_unlock(&s->lock);
        if (atomic_load(&s->stop)) {
            return NULL;
        }
        struct err e = {0};
        int r = journal_seal_next(j, kept(j), &e);
        pthread_mutex_lock(&s->lock);
        waited = r == ERR_NOT_READY ? waited + 1 : 0;
        if (waited > 0 && waited < SUMMARY_TRIES) {
            rest(s);
        } else if (r < 0 || (r == 0 && s->target == target)) {
            s->target = 0; /* done, or told */
        }
        pthread_mutex_unlock(&s->lock);
    }
}

/* Closed generations with ordinals below `target` are to be sealed. */
static int want(struct journal *j, uint32_t target, struct err *e)
{
    struct sealer *s = &j->sealer;
    int r = 0;
    pthread_mutex_lock(&s->lock);
    if (!s->running) {
        r = pthread_create(&s->thread, NULL, sealer_main, j);
        s->running = r == 0;
    }
    if (r == 0) {
        s->target = target > s->target ? target : s->target;
        s->code = 0;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return r == 0 ? 0 : err_set(e, ERR_NO_MEMORY, "cannot start the thread that seals");
}

/* Closes the tail, and asks for it to be sealed. Nothing is staged. */
static void close_wanted(struct journal *j)
{
    struct err e = {0};
    int r = journal_close_tail(j, &e);
    if (r == 0) {
        uint32_t closed;
        uint32_t sealed;
        count_closed(j, &closed, &sealed);
        r = closed > j->sealer.keep ? want(j, closed - j->sealer.keep, &e) : 0;
    }
    if (r != 0) {
        sealer_note_failure(j, r, &e);
    }
    atomic_store(&j->sealer.close_tail, false);
}

int journal_seal_request(struct journal *j, uint32_t keep, bool tail, struct err *e)
{
    uint32_t closed;
    uint32_t sealed;
    ensure(j->options.threads);
    if (j->poisoned) {
        return err_set(e, ERR_WRITER_POISONED, "%s", j->cause);
    }
    count_closed(j, &closed, &sealed);
    int r = closed > keep && closed - keep > sealed ? want(j, closed - keep, e) : 0;
    pthread_mutex_lock(&j->lock); /* while the index is made it is not the loop's alone */
    bool any = journal_tail(j)->events > 0;
    pthread_mutex_unlock(&j->lock);
    if (r == 0 && tail && any) {
        atomic_store(&j->sealer.close_tail, true);
        j->sealer.keep = keep;
        if (j->group_events == 0 && !atomic_load(&j->indexing)) {
            close_wanted(j);
        }
    }
    return r;
}

int journal_close_tail(struct journal *j, struct err *e)
{
    ensure(j->group_events == 0);
    if (j->poisoned) {
        return err_set(e, ERR_WRITER_POISONED, "%s", j->cause);
    }
    return journal_tail(j)->events > 0 ? journal_rotate(j, 0, e) : 0;
}

/* What the setting asks for. */
static void automatic(struct journal *j)
{
    struct sealer *s = &j->sealer;
    uint64_t now = os_clock_mono_ns();
    uint32_t keep = j->options.seal_after_generations;
    struct err e = {0};
    if (keep == 0 || !j->options.threads || now < s->retry_ns) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    int code = s->code;
    bool idle = s->target == 0 && !s->stopped;
    pthread_mutex_unlock(&s->lock);
    if (!idle) {
        return;
    }
    if (code != 0) {
        s->retry_ns = now + (code == ERR_NOT_READY ? NOT_READY_NS : RETRY_NS);
        pthread_mutex_lock(&s->lock);
        s->code = 0;
        pthread_mutex_unlock(&s->lock);
        return;
    }
    if (journal_seal_request(j, keep, false, &e) != 0) {
        log_line(LOG_WARN, "journal", "%s", e.text);
    }
}

void sealer_tick(struct journal *j)
{
    struct sealer *s = &j->sealer;
    if (j->poisoned) {
        atomic_store(&s->close_tail, false);
        return;
    }
    if (atomic_load(&j->indexing)) {
        return; /* another thread has the writer's state */
    }
    if (atomic_load(&s->close_tail) && j->group_events == 0) {
        close_wanted(j);
    }
    automatic(j);
}

void journal_get_seal_status(struct journal *j, struct journal_seal_status *out)
{
    struct sealer *s = &j->sealer;
    uint32_t closed;
    uint32_t sealed;
    *out = (struct journal_seal_status){0};
    count_closed(j, &closed, &sealed);
    out->possible = closed - sealed;
    pthread_mutex_lock(&s->lock);
    uint32_t target = s->target < closed ? s->target : closed;
    out->wanted = target > sealed ? target - sealed : 0;
    out->active = s->target > 0 || atomic_load(&s->close_tail);
    out->sealed = s->sealed;
    out->stopped = s->stopped;
    out->code = s->code;
    memcpy(out->cause, s->cause, sizeof out->cause);
    pthread_mutex_unlock(&s->lock);
}

uint32_t journal_seal_results(struct journal *j, uint64_t after, struct journal_sealed *out,
                              uint32_t max)
{
    struct sealer *s = &j->sealer;
    uint32_t n = 0;
    pthread_mutex_lock(&s->lock);
    uint64_t oldest = s->sealed > SEAL_RECENT ? s->sealed - SEAL_RECENT + 1 : 1;
    for (uint64_t i = after + 1 > oldest ? after + 1 : oldest; i <= s->sealed && n < max; i++) {
        out[n++] = s->recent[(i - 1) % SEAL_RECENT];
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}
