/* deliver_loop: one turn of the process, on the thread that owns the index.
 *
 * A turn: what the watch on receipts/ named is added; a scan when it is due (at the start, hourly,
 * and often where there is no watch); requests of people; results of work that is finished; then
 * new work for whatever may begin: builds and sendings are two lanes, so neither waits for the
 * other, and a small build does not wait for a large one. With nothing to begin it waits for a
 * receipt, a request, a result, the next due time, or the end.
 *
 * Everything that may take long is on threads (deliver_slot.c), but for scans, which let results
 * and new work through between their groups. A result becomes a row before its package is given out
 * again, and before anything else is done for it.
 *
 * Power failure: see the steps. Answers: the index's errors, which end the process. */
#include <inttypes.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/artifact/delivery_schema.h"
#include "store/paused.h"

#define NS_PER_MS         UINT64_C(1000000)
#define SCAN_EVERY_MS     UINT64_C(3600000)
#define SCAN_UNWATCHED_MS UINT64_C(5000)
#define SCAN_SHARE        10u /* of millions of receipts: most of the time is for delivering them */
#define WAIT_MS_MAX       INT64_C(30000) /* clocks may be set: due times are looked at again */
#define WATCH_MS          INT64_C(1000)  /* while something is running */
#define PAUSED_MS         500            /* between two looks at DATA/paused */

/* Kinds of due work. */
static const struct deliver_step *step_of(enum delivery_task task)
{
    switch (task) {
    case DELIVERY_NOTHING:
        break;
    case DELIVERY_BUILD:
        return &deliver_build_step;
    case DELIVERY_SEND:
    case DELIVERY_VERIFY:
        return &deliver_send_step;
    case DELIVERY_PURGE:
        return &deliver_purge_step;
    }
    return NULL;
}

/* ---- receipts ---- */

uint64_t deliver_scan_due_ns(uint64_t due_ns, uint64_t begun_ns, uint64_t ended_ns)
{
    uint64_t least_ns = ended_ns + (ended_ns - begun_ns) * SCAN_SHARE;

    return due_ns > least_ns ? due_ns : least_ns;
}

static int look_for_receipts(struct deliver *d, struct err *e)
{
    uint64_t every_ms = d->watch_fd >= 0 ? SCAN_EVERY_MS : SCAN_UNWATCHED_MS;
    int r = d->watch_fd >= 0 ? deliver_watched(d, e) : 0;

    if (r == 0 && (d->scan_now || os_clock_mono_ns() >= d->scan_due_ns)) {
        uint64_t begun_ns = os_clock_mono_ns();
        d->scan_now = false;
        d->scan_due_ns = begun_ns + every_ms * NS_PER_MS;
        r = deliver_scan(d, e);
        d->scan_due_ns = deliver_scan_due_ns(d->scan_due_ns, begun_ns, os_clock_mono_ns());
    }
    return r;
}

/* ---- results ---- */

static void over(struct deliver_slot *s)
{
    delivery_index_over(s->d->index, s->work.package_id);
    delivery_members_free(&s->work.members);
    s->used = false;
    s->stuck = false;
}

/* The result becomes a row; then the slot is free, or its thread goes on. */
static int take_result(struct deliver_slot *s, struct err *e)
{
    bool again = false;
    int r = s->step->done(s, &again, e);

    if (r == 0 && again) {
        deliver_slot_start(s);
    } else {
        over(s);
    }
    return r;
}

static void empty(int fd)
{
    uint64_t count;

    (void)os_read(fd, &count, sizeof count); /* non-blocking: nothing in it is fine */
}

static int results(struct deliver *d, struct err *e)
{
    struct deliver_slot *s;
    int r = 0;

    empty(d->finished_fd);
    s = deliver_slot_finished(d);
    while (r == 0 && s != NULL) {
        r = take_result(s, e);
        s = r == 0 ? deliver_slot_finished(d) : NULL;
    }
    return r;
}

/* ---- new work ---- */

static bool large_build(const struct deliver *d)
{
    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        const struct deliver_slot *s = d->slot[i];
        if (s != NULL && s->used && s->lane == DELIVERY_LANE_BUILD &&
            s->work.size_bytes > DELIVERY_SMALL_BYTES) {
            return true;
        }
    }
    return false;
}

static int begin(struct deliver_slot *s, struct err *e)
{
    bool run = false;
    int r;

    s->used = true;
    s->stuck = false;
    s->step = step_of(s->work.task);
    s->first_ns = os_clock_mono_ns();
    ensure(s->step != NULL);
    r = s->step->begin(s, &run, e);
    if (r < 0) {
        over(s);
        return r;
    }
    if (!run) {
        return take_result(s, e);
    }
    deliver_slot_start(s);
    return 0;
}

/* Begins all that may begin. d->work_due_ms: when there may be more. */
static int new_work_of(struct deliver *d, enum delivery_lane lane, struct err *e)
{
    struct deliver_slot *s = deliver_slot_free(d, lane);

    while (s != NULL && !deliver_stopping(d)) {
        struct delivery_ask ask = {
            .lane = lane, .small_only = large_build(d), .workers = d->options->concurrency};
        int r = delivery_index_next(d->index, deliver_now_ms(), &ask, &s->work, e);
        if (r < 0) {
            return r;
        }
        if (s->work.task == DELIVERY_NOTHING) {
            d->work_due_ms = s->work.due_ms < d->work_due_ms ? s->work.due_ms : d->work_due_ms;
            return 0;
        }
        r = begin(s, e);
        if (r < 0) {
            return r;
        }
        s = deliver_slot_free(d, lane);
    }
    return 0;
}

/* Looked at before new work is begun: builds too, because they fix where a package goes. */
static bool is_paused(struct deliver *d)
{
    struct paused p;

    paused_read(d->options->data, &p);
    if (p.on != d->paused) {
        log_line(LOG_INFO, "deliver", p.on ? "paused: %s" : "resumed%s", p.on ? p.reason : "");
        d->paused = p.on;
    }
    return p.on;
}

static int new_work(struct deliver *d, struct err *e)
{
    int r;

    d->work_due_ms = INT64_MAX;
    if (is_paused(d)) {
        d->work_due_ms = deliver_now_ms() + PAUSED_MS;
        return 0;
    }
    r = new_work_of(d, DELIVERY_LANE_SEND, e); /* what was begun is finished first */
    if (r == 0) {
        r = deliver_choose(d, e);
    }
    if (r == 0) {
        r = new_work_of(d, DELIVERY_LANE_BUILD, e);
    }
    return r == 0 ? new_work_of(d, DELIVERY_LANE_PURGE, e) : r;
}

int deliver_between(struct deliver *d, struct err *e)
{
    int r = results(d, e);

    if (r == 0 && !deliver_stopping(d)) {
        r = new_work(d, e);
    }
    return r == 0 ? deliver_slots_watch(d, e) : r;
}

/* ---- waiting ---- */

static bool anything_runs(const struct deliver *d)
{
    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        if (d->slot[i] != NULL && d->slot[i]->used) {
            return true;
        }
    }
    return false;
}

/* Not later than due_ns. */
static int64_t until(int64_t wait_ms, uint64_t due_ns, uint64_t now_ns)
{
    if (due_ns >= now_ns + (uint64_t)wait_ms * NS_PER_MS) {
        return wait_ms;
    }
    return due_ns > now_ns ? (int64_t)((due_ns - now_ns) / NS_PER_MS) + 1 : 0;
}

static void wait_for_work(struct deliver *d)
{
    struct epoll_event event;
    int64_t now_ms = deliver_now_ms();
    uint64_t now_ns = os_clock_mono_ns();
    int64_t wait_ms = anything_runs(d) || d->news ? WATCH_MS : WAIT_MS_MAX;

    if (d->work_due_ms - now_ms < wait_ms) {
        wait_ms = d->work_due_ms > now_ms ? d->work_due_ms - now_ms : 0;
    }
    if (!d->paused && d->choose_due_ms - now_ms < wait_ms) {
        wait_ms = d->choose_due_ms > now_ms ? d->choose_due_ms - now_ms : 0;
    }
    wait_ms = d->paused ? wait_ms : until(wait_ms, d->choose_due_ns, now_ns);
    wait_ms = until(wait_ms, d->scan_due_ns, now_ns);
    wait_ms = until(wait_ms, d->request_due_ns, now_ns);
    ensure(wait_ms >= 0);
    ensure(wait_ms <= WAIT_MS_MAX + 1);
    (void)os_epoll_wait(d->wait_ep, &event, 1, (int)wait_ms);
}

int deliver_turn(struct deliver *d, struct err *e)
{
    int r = look_for_receipts(d, e);

    if (r == 0 && !deliver_stopping(d)) {
        r = deliver_requests(d, e);
    }
    if (r == 0 && !deliver_stopping(d)) {
        r = deliver_between(d, e);
    }
    if (r == 0 && !deliver_stopping(d)) {
        wait_for_work(d);
    }
    return r;
}

/* ---- the end ---- */

int deliver_finish(struct deliver *d, bool index_ok, bool *left_behind, struct err *e)
{
    uint64_t end_ns = os_clock_mono_ns() + d->options->grace_ms * NS_PER_MS;
    int r = 0;

    atomic_store(&d->stop, true);
    for (;;) {
        uint64_t now_ns = os_clock_mono_ns();
        struct deliver_slot *s;
        empty(d->finished_fd);
        for (s = deliver_slot_finished(d); s != NULL; s = deliver_slot_finished(d)) {
            if (index_ok && r == 0) {
                r = take_result(s, e);
            } else {
                over(s); /* its row is taken up by the next start */
            }
        }
        *left_behind = anything_runs(d);
        if (!*left_behind || now_ns >= end_ns) {
            break;
        }
        (void)os_poll_in(d->finished_fd, (int)((end_ns - now_ns) / NS_PER_MS) + 1);
    }
    if (index_ok && r == 0) {
        d->show_due_ns = 0;
        d->news = true;
        r = deliver_slots_watch(d, e); /* nothing is running any more, or what is left behind */
    }
    if (*left_behind) {
        log_line(LOG_WARN, "deliver",
                 "a call of the system or of the far end does not return: its thread is left "
                 "behind, and what it was sending is taken up again by the next start");
    }
    return r;
}
