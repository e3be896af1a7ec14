/* deliver_slot: the threads of work under way, and what they tell.
 *
 * Each piece of work has a thread to itself until its result: one that hangs in a system call (a
 * dead mount, a pipe without a reader) is nobody else's thread. There are at most `concurrency`
 * sendings and verifications; one whose thread gave no sign of life for stuck_ms is
 * stuck: it counts no more, another may begin in its place, and what would go to the same project
 * waits for it. After DELIVER_STUCK_MAX of these no more are replaced. A stuck one that comes back
 * is like any other: its result counts.
 *
 * What an adapter tells (bytes, file, that it lives) is atomics; once a second the loop writes them
 * where status finds them. That write may fail: a warning.
 *
 * Never two threads for one package: the index gives it to nobody else until it is over. Power
 * failure: nothing is durable here. Answers: the index's, where its connection is broken. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"

#define NS_PER_MS     UINT64_C(1000000)
#define NS_PER_S      UINT64_C(1000000000)
#define SHOW_EVERY_NS NS_PER_S
#define WARN_EVERY_NS (60 * NS_PER_S)

/* ---- slots ---- */

/* How many of the lane count. */
static unsigned busy(const struct deliver *d, enum delivery_lane lane)
{
    unsigned n = 0;

    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        const struct deliver_slot *s = d->slot[i];
        n += s != NULL && s->used && s->lane == lane && !s->stuck;
    }
    return n;
}

static unsigned stuck(const struct deliver *d)
{
    unsigned n = 0;

    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        n += d->slot[i] != NULL && d->slot[i]->used && d->slot[i]->stuck;
    }
    return n;
}

static void *slot_main(void *ctx)
{
    static const uint64_t one = 1;
    struct deliver_slot *s = ctx;

    static const char *const names[DELIVERY_LANES] = {[DELIVERY_LANE_BUILD] = "build",
                                                      [DELIVERY_LANE_SEND] = "deliver",
                                                      [DELIVERY_LANE_PURGE] = "purge"};
    (void)pthread_setname_np(pthread_self(), names[s->lane]);
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        while (!s->go && !s->quit) {
            (void)pthread_cond_wait(&s->change, &s->lock);
        }
        bool quit = s->quit;
        s->go = false;
        (void)pthread_mutex_unlock(&s->lock);
        if (quit) {
            return NULL;
        }
        s->step->run(s);
        atomic_store(&s->finished, true);
        (void)os_write(s->d->finished_fd, &one, sizeof one);
    }
}

static struct deliver_slot *slot_new(struct deliver *d, enum delivery_lane lane)
{
    struct deliver_slot *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->d = d;
        s->lane = lane;
        s->piece = aligned_alloc(4096, ARTIFACT_PIECE_BYTES);
        (void)pthread_mutex_init(&s->lock, NULL);
        (void)pthread_cond_init(&s->change, NULL);
    }
    if (s == NULL || s->piece == NULL || pthread_create(&s->thread, NULL, slot_main, s) != 0) {
        if (s != NULL) {
            free(s->piece);
        }
        free(s);
        log_line(LOG_WARN, "deliver", "no memory for another thread");
        return NULL;
    }
    return s;
}

struct deliver_slot *deliver_slot_free(struct deliver *d, enum delivery_lane lane)
{
    const struct {
        size_t begin, end;
        unsigned most;
    } of[DELIVERY_LANES] = {
        [DELIVERY_LANE_BUILD] = {0, DELIVER_BUILDS, DELIVER_BUILDS},
        [DELIVERY_LANE_PURGE] = {DELIVER_BUILDS, DELIVER_BUILDS + DELIVER_PURGES, DELIVER_PURGES},
        [DELIVERY_LANE_SEND] = {DELIVER_BUILDS + DELIVER_PURGES, DELIVER_SLOTS_MAX,
                                d->options->concurrency}};

    if (busy(d, lane) >= of[lane].most) {
        return NULL;
    }
    for (size_t i = of[lane].begin; i < of[lane].end; i++) {
        if (d->slot[i] == NULL) {
            d->slot[i] = slot_new(d, lane);
        }
        if (d->slot[i] == NULL || !d->slot[i]->used) {
            return d->slot[i];
        }
    }
    return NULL;
}

void deliver_slots_free(struct deliver *d)
{
    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        struct deliver_slot *s = d->slot[i];
        int failed;
        if (s == NULL) {
            continue;
        }
        ensure(!s->used);
        (void)pthread_mutex_lock(&s->lock);
        s->quit = true;
        (void)pthread_cond_signal(&s->change);
        (void)pthread_mutex_unlock(&s->lock);
        failed = pthread_join(s->thread, NULL);
        ensure(failed == 0);
        (void)pthread_mutex_destroy(&s->lock);
        (void)pthread_cond_destroy(&s->change);
        free(s->piece);
        free(s);
    }
}

/* ---- work ---- */

void deliver_slot_start(struct deliver_slot *s)
{
    uint64_t now_ns = os_clock_mono_ns();

    ensure(s->used);
    s->stuck = false;
    s->begun_ns = s->shown_ns = now_ns;
    s->give_up_ns = now_ns + s->d->options->try_ms * NS_PER_MS;
    s->begun_at = deliver_now_ms() / 1000;
    s->shown_bytes = s->bytes_per_s = 0;
    s->d->news = true;
    atomic_store(&s->finished, false);
    atomic_store(&s->gave_up, false);
    atomic_store(&s->alive_ns, now_ns);
    atomic_store(&s->bytes, 0);
    atomic_store(&s->file_at, 0);
    (void)pthread_mutex_lock(&s->lock);
    s->go = true;
    (void)pthread_cond_signal(&s->change);
    (void)pthread_mutex_unlock(&s->lock);
}

struct deliver_slot *deliver_slot_finished(struct deliver *d)
{
    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        struct deliver_slot *s = d->slot[i];
        if (s != NULL && s->used && atomic_load(&s->finished)) {
            if (s->stuck) {
                log_line(LOG_INFO, "deliver", "%.*s came back", DELIVER_SHORT_ID,
                         s->work.artifact.object_id);
            }
            d->news = true;
            return s;
        }
    }
    return NULL;
}

bool deliver_slot_stopping(void *ctx)
{
    struct deliver_slot *s = ctx;
    uint64_t now_ns = os_clock_mono_ns();

    atomic_store(&s->alive_ns, now_ns);
    if (deliver_stopping(s->d)) {
        return true;
    }
    if (now_ns >= s->give_up_ns) {
        atomic_store(&s->gave_up, true);
        return true;
    }
    return false;
}

void deliver_slot_progress(void *ctx, uint64_t bytes, const char *file)
{
    struct deliver_slot *s = ctx;

    atomic_store(&s->alive_ns, os_clock_mono_ns());
    atomic_store(&s->bytes, bytes);
    for (unsigned i = 0; file != NULL && i < s->job.file_count; i++) {
        if (strcmp(s->job.file[i].name, file) == 0) {
            atomic_store(&s->file_at, i + 1);
        }
    }
}

/* ---- watching them ---- */

static void look_stuck(struct deliver *d, struct deliver_slot *s, uint64_t now_ns)
{
    uint64_t alive_ns = atomic_load(&s->alive_ns);
    uint64_t silent_ns = now_ns > alive_ns ? now_ns - alive_ns : 0;

    if (s->lane != DELIVERY_LANE_SEND || s->stuck || silent_ns < d->options->stuck_ms * NS_PER_MS ||
        stuck(d) >= DELIVER_STUCK_MAX || atomic_load(&s->finished)) {
        return;
    }
    s->stuck = true;
    d->news = true;
    delivery_index_stuck(d->index, s->work.plan.package_id);
    log_line(LOG_ERROR, "deliver",
             "%.*s hangs since %" PRIu64 " s, in a call of the system or of the far end: project "
             "%s waits for it, others do not",
             DELIVER_SHORT_ID, s->work.artifact.object_id, silent_ns / NS_PER_S,
             s->work.artifact.project);
}

static uint64_t size_of(const struct delivery_work *w)
{
    uint64_t n = w->size_bytes;

    if (w->task != DELIVERY_BUILD) {
        n = 0;
        for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
            n += w->plan.file[i].size;
        }
    }
    return n;
}

static void describe(struct deliver_slot *s, uint64_t now_ns, struct delivery_running *out)
{
    const struct delivery_work *w = &s->work;
    uint64_t bytes = atomic_load(&s->bytes);
    unsigned at = atomic_load(&s->file_at);

    if (now_ns - s->shown_ns >= SHOW_EVERY_NS / 2) {
        uint64_t more = bytes > s->shown_bytes ? bytes - s->shown_bytes : 0;
        s->bytes_per_s = more * NS_PER_S / (now_ns - s->shown_ns);
        s->shown_bytes = bytes;
        s->shown_ns = now_ns;
    }
    memset(out, 0, sizeof *out);
    out->task = w->task;
    out->begun_at = s->begun_at;
    out->bytes = bytes;
    out->size_bytes = size_of(w);
    out->bytes_per_s = s->bytes_per_s;
    out->stuck = s->stuck;
    memcpy(out->project, w->artifact.project, sizeof out->project);
    memcpy(out->package_id, w->package_id, sizeof out->package_id);
    if (w->task == DELIVERY_BUILD) {
        return;
    }
    memcpy(out->sink, w->plan.to.sink, sizeof out->sink);
    memcpy(out->identifier, w->plan.identifier, sizeof out->identifier);
    if (at > 0) {
        memcpy(out->file, w->plan.file[at - 1].name, sizeof out->file);
    }
}

static int show(struct deliver *d, uint64_t now_ns, struct err *e)
{
    static struct delivery_running running[DELIVER_SLOTS_MAX];
    struct err why = {0};
    bool usable = true;
    unsigned n = 0;
    int r;

    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        if (d->slot[i] != NULL && d->slot[i]->used) {
            describe(d->slot[i], now_ns, &running[n++]);
        }
    }
    if (n == 0 && !d->news) {
        return 0;
    }
    r = delivery_index_show(d->index, running, n, deliver_now_ms() / 1000, &usable, &why);
    d->news = r < 0;
    if (r < 0 && usable &&
        (d->show_warned_ns == 0 || now_ns - d->show_warned_ns >= WARN_EVERY_NS)) {
        d->show_warned_ns = now_ns;
        log_line(LOG_WARN, "deliver", "what is running cannot be told: %s", why.text);
    }
    return usable ? 0 : err_set(e, r, "%s", why.text);
}

int deliver_slots_watch(struct deliver *d, struct err *e)
{
    uint64_t now_ns = os_clock_mono_ns();

    if (now_ns < d->show_due_ns) {
        return 0;
    }
    d->show_due_ns = now_ns + SHOW_EVERY_NS;
    for (size_t i = 0; i < DELIVER_SLOTS_MAX; i++) {
        if (d->slot[i] != NULL && d->slot[i]->used) {
            look_stuck(d, d->slot[i], now_ns);
        }
    }
    return show(d, now_ns, e);
}
