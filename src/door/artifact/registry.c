/* registry: exactly one holder an upload, takeover, and answers about live ones (spec/tus.md 10.4,
 * cases T01 and T02).
 *
 * A dead connection looks like a slow one. So nobody's time is up by itself: a writer that has
 * waited for a byte for a second is ended as soon as, and only if, somebody else wants the upload.
 * Its read then returns, it syncs what it has, answers its client (if there still is one) and
 * leaves, which wakes the newcomer. A writer that is busy with the disk is not silent.
 *
 * Places are few, and a body of a byte every half minute would hold one for ever. So when all are
 * taken, each newcomer may end the slowest writer of those that are slower than any line is, and
 * waits for its place. Nobody is ended for being slow while there is room. One client address has
 * a bound of its own, so that it cannot take all places; clients on this machine do not: they
 * cannot be told apart. Who comes through a proxy of ours has the address that the proxy names.
 *
 * Nothing here survives the process: after a restart nobody holds anything. A list is enough: there
 * are as many holders as requests with a thread, some hundreds.
 *
 * ERR_ codes are answers. A lock that fails is a bug. */
#include "door/artifact/registry.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "os/os.h"

static void take_lock(struct registry *g)
{
    int r = pthread_mutex_lock(&g->lock);
    ensure(r == 0);
}

static void give_lock(struct registry *g)
{
    int r = pthread_mutex_unlock(&g->lock);
    ensure(r == 0);
}

void registry_init(struct registry *g, unsigned writers_max, unsigned address_writers_max)
{
    pthread_condattr_t attr;
    *g = (struct registry){.writers_max = writers_max,
                           .address_writers_max = address_writers_max,
                           .silent_ms = REGISTRY_SILENT_MS,
                           .wait_ms = REGISTRY_WAIT_MS,
                           .slow_ms = REGISTRY_SLOW_MS};
    LIST_INIT(&g->holders);
    int r = pthread_mutex_init(&g->lock, NULL);
    ensure(r == 0);
    r = pthread_condattr_init(&attr);
    ensure(r == 0);
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ensure(r == 0);
    r = pthread_cond_init(&g->moved, &attr);
    ensure(r == 0);
    r = pthread_condattr_destroy(&attr);
    ensure(r == 0);
}

void registry_destroy(struct registry *g)
{
    ensure(LIST_EMPTY(&g->holders));
    ensure(g->writers == 0);
    int r = pthread_cond_destroy(&g->moved);
    ensure(r == 0);
    r = pthread_mutex_destroy(&g->lock);
    ensure(r == 0);
}

void registry_set_patience(struct registry *g, uint64_t silent_ms, uint64_t wait_ms)
{
    take_lock(g);
    g->silent_ms = silent_ms;
    g->wait_ms = wait_ms;
    give_lock(g);
}

void registry_set_slow(struct registry *g, uint64_t slow_ms)
{
    take_lock(g);
    g->slow_ms = slow_ms;
    give_lock(g);
}

unsigned registry_writers(const struct registry *g)
{
    return atomic_load(&g->writers);
}

static void wake(struct registry *g)
{
    int r = pthread_cond_broadcast(&g->moved);
    ensure(r == 0);
}

/* ---- under the lock ---- */

static struct holder *find(struct registry *g, const char *id)
{
    struct holder *h;
    LIST_FOREACH(h, &g->holders, link)
    {
        if (memcmp(h->id, id, UPLOAD_ID_LEN) == 0) {
            return h;
        }
    }
    return NULL;
}

static bool same_address(const struct holder *a, const struct holder *b)
{
    return a->address != NULL && b->address != NULL && strcmp(a->address, b->address) == 0;
}

/* Whether this client has all the places that one may have. */
static bool address_is_full(const struct registry *g, const struct holder *h)
{
    const struct holder *other;
    unsigned count = 0;
    if (!h->writer || h->address == NULL || h->address[0] == '\0') {
        return false;
    }
    LIST_FOREACH(other, &g->holders, link)
    {
        count += other->writer && same_address(other, h);
    }
    return count >= g->address_writers_max;
}

static int insert(struct registry *g, struct holder *h)
{
    ensure(!h->listed);
    if (h->writer && (g->writers >= g->writers_max || address_is_full(g, h))) {
        return ERR_UPLOADS_BUSY;
    }
    g->writers += h->writer ? 1 : 0;
    metric_set(METRIC_ARTIFACT_WRITERS, g->writers);
    h->state = HOLDER_BUSY;
    h->ended = false;
    h->info = NULL;
    h->listed = true;
    LIST_INSERT_HEAD(&g->holders, h, link);
    return 0;
}

static bool is_silent(const struct registry *g, struct holder *h)
{
    uint64_t since = atomic_load_explicit(&h->waits_since_ns, memory_order_relaxed);
    uint64_t now = os_clock_mono_ns();
    return since != 0 && now > since && now - since >= g->silent_ms * UINT64_C(1000000);
}

static void end(struct holder *h, int code)
{
    h->ended = true;
    metric_add(METRIC_ARTIFACT_TAKEOVERS, 1);
    http_body_end(h->body, code);
}

/* Bytes a second of its body, over all of its time; UINT64_MAX: it is not slow. */
static uint64_t slow_rate(const struct registry *g, struct holder *h, uint64_t now_ns)
{
    if (!h->writer || h->state != HOLDER_RECEIVING || h->ended) {
        return UINT64_MAX;
    }
    uint64_t us = now_ns > h->receiving_since_ns ? (now_ns - h->receiving_since_ns) / 1000 : 0;
    uint64_t received = atomic_load_explicit(&h->received, memory_order_relaxed);
    if (us <= g->slow_ms * 1000 || received >= us / 1000 * REGISTRY_SLOW_RATE / 1000 + 1) {
        return UINT64_MAX;
    }
    return received * 1000000 / us;
}

/* True when one is on its way out, whose place the newcomer can have. */
static bool end_slowest(const struct registry *g, const struct holder *newcomer)
{
    bool own = address_is_full(g, newcomer);
    struct holder *h;
    struct holder *slowest = NULL;
    uint64_t least = UINT64_MAX;
    uint64_t now_ns = os_clock_mono_ns();
    LIST_FOREACH(h, &g->holders, link)
    {
        uint64_t rate = own && !same_address(h, newcomer) ? UINT64_MAX : slow_rate(g, h, now_ns);
        slowest = rate < least ? h : slowest;
        least = rate < least ? rate : least;
    }
    if (slowest != NULL) {
        end(slowest, ERR_REQUEST_TIMEOUT);
    }
    return slowest != NULL;
}

/* True when a newcomer should wait for h to leave; ends it when it is silent, or the upload is to
 * go. */
static bool will_leave(const struct registry *g, struct holder *h, const struct holder *newcomer)
{
    if (h->state == HOLDER_RECEIVING && !h->ended && (newcomer->removes || is_silent(g, h))) {
        end(h, newcomer->removes ? ERR_UPLOAD_NOT_FOUND : ERR_UPLOAD_INTERRUPTED);
    }
    return h->state == HOLDER_BUSY || h->ended;
}

static void look_at(const struct holder *h, struct holder_seen *seen)
{
    if (seen == NULL) {
        return;
    }
    seen->open = h->info != NULL;
    if (seen->open) {
        seen->info = *h->info;
        seen->told = atomic_load_explicit(&h->told, memory_order_relaxed);
    }
}

/* ---- */

static struct timespec wait_end(const struct registry *g)
{
    uint64_t ns = os_clock_mono_ns() + g->wait_ms * UINT64_C(1000000);
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* Until somebody moves. False: the time is over. */
static bool wait_moved(struct registry *g, const struct timespec *until)
{
    int w = pthread_cond_timedwait(&g->moved, &g->lock, until);
    ensure(w == 0 || w == ETIMEDOUT);
    return w == 0;
}

/* One look. ERR_LOCKED and ERR_UPLOADS_BUSY: *wait says whether to look again when one moves. */
static int try_hold(struct registry *g, struct holder *h, bool *room, bool *wait)
{
    struct holder *other = h->id[0] == '\0' ? NULL : find(g, h->id);
    if (other == NULL) {
        int r = insert(g, h);
        *room = *room || (r == ERR_UPLOADS_BUSY && end_slowest(g, h));
        *wait = *room;
        return r;
    }
    *wait = will_leave(g, other, h);
    return ERR_LOCKED;
}

static int hold(struct registry *g, struct holder *h, struct holder_seen *seen)
{
    bool room = false; /* somebody is ended to make room */
    bool wait = false;
    bool early = true;
    take_lock(g);
    const struct timespec until = wait_end(g);
    int r = try_hold(g, h, &room, &wait);
    while (r != 0 && wait && early) {
        early = wait_moved(g, &until);
        r = try_hold(g, h, &room, &wait);
    }
    if (r == ERR_LOCKED) {
        look_at(find(g, h->id), seen);
    }
    give_lock(g);
    return r;
}

int registry_hold(struct registry *g, struct holder *h, struct holder_seen *seen)
{
    ensure(h->id[0] != '\0');
    return hold(g, h, seen);
}

int registry_try(struct registry *g, struct holder *h)
{
    ensure(h->id[0] != '\0');
    take_lock(g);
    int r = find(g, h->id) == NULL ? insert(g, h) : ERR_LOCKED;
    give_lock(g);
    return r;
}

int registry_enter(struct registry *g, struct holder *h)
{
    ensure(h->id[0] == '\0');
    return hold(g, h, NULL);
}

void registry_name(struct registry *g, struct holder *h, const char *id)
{
    take_lock(g);
    ensure(h->listed);
    memcpy(h->id, id, sizeof h->id);
    give_lock(g);
}

void registry_opened(struct registry *g, struct holder *h, const struct upload_info *info,
                     uint64_t promised)
{
    take_lock(g);
    ensure(h->listed);
    h->info = info;
    ensure(promised < info->size);
    atomic_store_explicit(&h->told, promised, memory_order_relaxed);
    give_lock(g);
}

void registry_set_state(struct registry *g, struct holder *h, enum holder_state state)
{
    take_lock(g);
    ensure(h->listed);
    h->state = state;
    h->receiving_since_ns = state == HOLDER_RECEIVING ? os_clock_mono_ns() : 0;
    wake(g); /* who waited for it to leave may have to do with what it has synced */
    give_lock(g);
}

void registry_leave(struct registry *g, struct holder *h)
{
    take_lock(g);
    if (h->listed) {
        LIST_REMOVE(h, link);
        h->listed = false;
        h->info = NULL;
        ensure(!h->writer || g->writers > 0);
        g->writers -= h->writer ? 1 : 0;
        metric_set(METRIC_ARTIFACT_WRITERS, g->writers);
        wake(g);
    }
    give_lock(g);
}

void holder_tell(struct holder *h, uint64_t synced)
{
    ensure(h->info != NULL);
    if (synced < h->info->size) {
        atomic_store_explicit(&h->told, synced, memory_order_relaxed);
    }
}
