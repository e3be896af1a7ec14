/* registry: exactly one holder an upload, takeover, and answers about live ones (spec/tus.md 10.4,
 * cases T01 and T02).
 *
 * A dead connection looks like a slow one. So nobody's time is up by itself: a writer that has
 * waited for a byte for a second is ended as soon as, and only if, somebody else wants the upload.
 * Its read then returns, it syncs what it has, answers its client (if there still is one) and
 * leaves, which wakes the newcomer. A writer that is busy with the disk is not silent.
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

void registry_init(struct registry *g, unsigned writers_max)
{
    pthread_condattr_t attr;
    *g = (struct registry){
        .writers_max = writers_max, .silent_ms = REGISTRY_SILENT_MS, .wait_ms = REGISTRY_WAIT_MS};
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

static int insert(struct registry *g, struct holder *h)
{
    ensure(!h->listed);
    if (h->writer && g->writers >= g->writers_max) {
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

/* True when a newcomer should wait for h to leave; ends it when it is silent. */
static bool will_leave(const struct registry *g, struct holder *h)
{
    if (h->state == HOLDER_RECEIVING && !h->ended && is_silent(g, h)) {
        h->ended = true;
        metric_add(METRIC_ARTIFACT_TAKEOVERS, 1);
        http_body_end(h->body, ERR_UPLOAD_INTERRUPTED);
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

int registry_hold(struct registry *g, struct holder *h, struct holder_seen *seen)
{
    bool late = false;
    int r = ERR_LOCKED;
    ensure(h->id[0] != '\0');
    take_lock(g);
    struct timespec end = wait_end(g);
    for (;;) {
        struct holder *other = find(g, h->id);
        if (other == NULL) {
            r = insert(g, h);
            break;
        }
        if (other->state == HOLDER_REMOVING) {
            r = ERR_UPLOAD_NOT_FOUND;
            break;
        }
        if (late || !will_leave(g, other)) {
            look_at(other, seen);
            break;
        }
        int w = pthread_cond_timedwait(&g->moved, &g->lock, &end);
        ensure(w == 0 || w == ETIMEDOUT);
        late = w == ETIMEDOUT;
    }
    give_lock(g);
    return r;
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
    take_lock(g);
    int r = insert(g, h);
    give_lock(g);
    return r;
}

void registry_name(struct registry *g, struct holder *h, const char *id)
{
    take_lock(g);
    ensure(h->listed);
    memcpy(h->id, id, sizeof h->id);
    give_lock(g);
}

void registry_opened(struct registry *g, struct holder *h, const struct upload_info *info,
                     uint64_t synced)
{
    take_lock(g);
    ensure(h->listed);
    h->info = info;
    /* Of one that is whole and not accepted everything but the last byte is told. */
    uint64_t told = synced < info->size || info->size == 0 ? synced : info->size - 1;
    atomic_store_explicit(&h->told, told, memory_order_relaxed);
    give_lock(g);
}

void registry_set_state(struct registry *g, struct holder *h, enum holder_state state)
{
    take_lock(g);
    ensure(h->listed);
    h->state = state;
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
