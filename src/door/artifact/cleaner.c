/* cleaner: the background thread of the artifact door (artifacts.md 8; holes 1, 4 and 5).
 *
 * Before it starts, what a crash left under temporary names is removed; no upload can be made then.
 * Then, in rounds: an upload that is as long as declared and has no receipt is accepted; one
 * without a receipt whose time is over is removed, also one as long as declared that the disk does
 * not give back, and so are bytes without a description; what is left of the bytes of one that is
 * gone is freed. Never one that somebody holds. What fails is logged and stops nothing else: the
 * next round tries again. An upload's time begins anew when the server starts, and when the clock
 * jumps ahead.
 *
 * Power failure: removal is begun again by the next round; a removed upload has no receipt, so
 * nothing that was promised goes with it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

#define ROUND_MS_MAX  60000
#define ROUND_MS_MIN  1000
#define CLOCK_JUMP_MS 60000
#define PATH_MAX_     4300

struct round {
    struct artifact *a;
    uint64_t partial_uploads, partial_bytes;
    bool looked; /* at one at least */
};

static bool is_stopping(struct cleaner *c)
{
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    bool stop = c->stop;
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
    return stop;
}

static int stat_file(const struct artifact *a, const char *id, const char *suffix,
                     struct os_stat *st)
{
    char path[PATH_MAX_];
    int n = snprintf(path, sizeof path, "%s/uploads/%s%s", a->options.data, id, suffix);
    return n > 0 && (size_t)n < sizeof path ? os_stat(path, st) : -ENAMETOOLONG;
}

int64_t cleaner_activity_ms(struct artifact *a, const char *id)
{
    static const char *const suffixes[] = {"", ".info", ".state", ".gone"};
    int64_t newest = 0;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        struct os_stat st;
        if (stat_file(a, id, suffixes[i], &st) == 0 && (int64_t)st.mtime_ms > newest) {
            newest = (int64_t)st.mtime_ms;
        }
    }
    int64_t attempt = attempts_last_ms(&a->attempts, id);
    return newest > 0 && attempt > newest ? attempt : newest;
}

/* While we were away nobody could send, and a clock that is set ahead is nobody's silence: every
 * upload gets its whole time anew. */
static void look_at_clock(struct cleaner *c)
{
    int64_t now_ms = (int64_t)os_clock_real_ms();
    int64_t ahead_ms = now_ms - (int64_t)(os_clock_mono_ns() / 1000000);
    if (!c->clock_seen || ahead_ms - c->ahead_ms > CLOCK_JUMP_MS) {
        c->anew_ms = now_ms;
    }
    c->clock_seen = true;
    c->ahead_ms = ahead_ms;
}

static bool is_over(const struct artifact *a, int64_t activity_ms)
{
    int64_t from_ms = activity_ms > a->cleaner.anew_ms ? activity_ms : a->cleaner.anew_ms;
    return expires_from(a, from_ms) <= (int64_t)os_clock_real_ms();
}

static struct holder holder_of(const char *id)
{
    struct holder h = {.writer = false};
    memcpy(h.id, id, UPLOAD_ID_LEN);
    return h;
}

/* False: it stays, and is looked at again. */
static bool remove_stale(struct artifact *a, const char *id)
{
    struct holder h = holder_of(id);
    struct err e = {0};
    bool gone;
    if (registry_try(&a->registry, &h) != 0) {
        return false;
    }
    /* Somebody may have been there between the look at it and now; 0: it is gone already. */
    int64_t activity_ms = cleaner_activity_ms(a, id);
    gone = activity_ms == 0;
    if (!gone && is_over(a, activity_ms)) {
        int r = upload_remove(a->uploads, slice_of(id, UPLOAD_ID_LEN), &e);
        gone = r == 0;
        if (r == 0) {
            room_forget(&a->room, id);
            metric_add(METRIC_ARTIFACT_EXPIRED, 1);
            log_line(LOG_INFO, "artifact", "upload %.8s: removed, its time was over", id);
        } else if (r != ERR_REFUSED && r != ERR_NOT_READY) { /* accepted meanwhile: it stays */
            log_line(LOG_ERROR, "artifact", "upload %.8s: not removed: %s", id, e.text);
        }
    }
    registry_leave(&a->registry, &h);
    return gone;
}

/* Refused for good, or terminated, and still large. Nobody opens it any more: nobody is asked. */
static void free_gone(struct artifact *a, const char *id)
{
    struct err e = {0};
    int r = upload_free_gone(a->uploads, slice_of(id, UPLOAD_ID_LEN), &e);
    if (r != 0 && r != ERR_REFUSED && r != ERR_NOT_READY) {
        log_line(LOG_ERROR, "artifact", "upload %.8s: its bytes could not be freed: %s", id,
                 e.text);
    }
}

/* A creation of which nobody was told the id. */
static void forget(struct artifact *a, const char *id)
{
    struct holder h = holder_of(id);
    struct err e = {0};
    if (registry_try(&a->registry, &h) != 0) {
        return; /* it expires */
    }
    int r = upload_remove(a->uploads, slice_of(id, UPLOAD_ID_LEN), &e);
    if (r != 0 && r != ERR_REFUSED && r != ERR_NOT_READY) {
        log_line(LOG_WARN, "artifact", "upload %.8s: not removed: %s", id, e.text);
    }
    registry_leave(&a->registry, &h);
}

void cleaner_later(struct artifact *a, const char *id, bool remove)
{
    struct cleaner *c = &a->cleaner;
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    if (c->errands < ERRANDS_MAX) {
        struct cleaner_errand *errand = &c->errand[c->errands++];
        memcpy(errand->id, id, sizeof errand->id);
        errand->remove = remove;
        r = pthread_cond_signal(&c->wake);
        ensure(r == 0);
    }
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
}

/* The last one; the lock is held, and given meanwhile. */
static void run_errand(struct artifact *a)
{
    struct cleaner *c = &a->cleaner;
    struct cleaner_errand errand = c->errand[--c->errands];
    int r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
    if (errand.remove) {
        forget(a, errand.id);
    } else {
        free_gone(a, errand.id);
    }
    r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
}

/* False: its bytes cannot be read from the disk. */
static bool finish_one(struct artifact *a, const char *id)
{
    struct holder h = holder_of(id);
    struct upload *u = NULL;
    struct outcome out = {0};
    struct err e = {0};
    if (registry_try(&a->registry, &h) != 0) {
        return true;
    }
    int r = upload_open(a->uploads, slice_of(id, UPLOAD_ID_LEN), &u, &e);
    if (r == 0) {
        registry_opened(&a->registry, &h, &u->info, upload_promised(u));
        if (atomic_load(&u->synced) == u->info.size) {
            r = find_accept(a, u, &out); /* it logs what happened */
        }
    } else if (r != ERR_NOT_FOUND && r != ERR_GONE && r != ERR_NOT_READY) {
        log_line(LOG_ERROR, "artifact", "upload %.8s: %s", id, e.text);
    }
    upload_close(u); /* it may cut the file: never beside a successor */
    registry_leave(&a->registry, &h);
    return r != ERR_IO || e.os_errno != EIO;
}

/* The promises of before the restart, as far as they fit; the others ask again. Each is looked at
 * once more while it is held: it may have ended since it was seen. */
static void restore_promise(struct artifact *a, const struct upload_seen *seen)
{
    const struct room_owner owner = {.project = seen->project, .address = ""};
    struct holder h = holder_of(seen->id);
    struct os_stat gone, st;
    if (registry_try(&a->registry, &h) != 0) {
        return;
    }
    if (stat_file(a, seen->id, ".gone", &gone) == -ENOENT && stat_file(a, seen->id, "", &st) == 0 &&
        st.size < seen->size) {
        room_restore(&a->room, seen->id, &owner, seen->size - st.size);
    }
    registry_leave(&a->registry, &h);
}

/* By its files, which say it of nearly all, and by attempts that were put off. */
static bool is_seen_over(struct artifact *a, const struct upload_seen *seen)
{
    return is_over(a, seen->activity_ms) && is_over(a, cleaner_activity_ms(a, seen->id));
}

static int on_seen(void *ctx, const struct upload_seen *seen)
{
    struct round *round = ctx;
    if (is_stopping(&round->a->cleaner)) {
        return ERR_NOT_READY;
    }
    round->looked = true;
    if (seen->kind == UPLOAD_ACCEPTED) {
        return 0;
    }
    /* What cannot be read would be read again in every round, for ever: its time ends, too. */
    if (seen->kind == UPLOAD_COMPLETE && finish_one(round->a, seen->id)) {
        return 0;
    }
    if (seen->kind == UPLOAD_GONE && seen->length > 0) {
        free_gone(round->a, seen->id);
    }
    if (is_seen_over(round->a, seen)) {
        if (!remove_stale(round->a, seen->id) && seen->project[0] != '\0') {
            partials_add(&round->a->cleaner.counting, seen, true);
        }
    } else if (seen->kind == UPLOAD_PARTIAL) {
        if (!atomic_load(&round->a->cleaner.scanned)) {
            restore_promise(round->a, seen);
        }
        round->partial_uploads++;
        round->partial_bytes += seen->length;
        partials_add(&round->a->cleaner.counting, seen, false);
    }
    return 0;
}

/* Bytes, a state or a reason without a description. */
static int on_name(void *ctx, const char *name)
{
    struct round *round = ctx;
    struct artifact *a = round->a;
    char id[UPLOAD_ID_LEN + 1] = "";
    char reason[UPLOAD_REASON_MAX];
    struct os_stat st;
    if (strlen(name) < UPLOAD_ID_LEN ||
        (name[UPLOAD_ID_LEN] != '\0' && name[UPLOAD_ID_LEN] != '.')) {
        return 0;
    }
    memcpy(id, name, UPLOAD_ID_LEN);
    if (is_stopping(&a->cleaner)) {
        return ERR_NOT_READY;
    }
    if (!upload_id_ok(slice_cstr(id)) || stat_file(a, id, ".info", &st) != -ENOENT) {
        return 0;
    }
    if (upload_gone(a->uploads, slice_cstr(id), reason)) {
        free_gone(a, id);
    }
    if (is_over(a, cleaner_activity_ms(a, id))) {
        (void)remove_stale(a, id);
    }
    return 0;
}

static void show_partials(struct cleaner *c)
{
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    c->partials = c->counting;
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
}

void cleaner_put_partials(struct artifact *a, struct buf *b)
{
    struct cleaner *c = &a->cleaner;
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    partials_put(&c->partials, b);
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
}

void cleaner_round(struct artifact *a)
{
    struct round round = {.a = a};
    struct err e = {0};
    char path[PATH_MAX_];
    a->cleaner.counting.count = 0;
    a->cleaner.counting.left_out = 0;
    int r = uploads_scan(a->uploads, on_seen, &round, &e);
    if (r != 0 && r != ERR_NOT_READY) {
        log_line(LOG_ERROR, "artifact", "the uploads could not be looked through: %s", e.text);
    }
    if (r == 0 || (r != ERR_NOT_READY && round.looked)) { /* one that cannot be read is left out */
        atomic_store(&a->cleaner.partial_uploads, round.partial_uploads);
        atomic_store(&a->cleaner.partial_bytes, round.partial_bytes);
        show_partials(&a->cleaner);
        atomic_store(&a->cleaner.scanned_ms, (int64_t)os_clock_real_ms());
        atomic_store(&a->cleaner.scanned, true);
        metric_set(METRIC_ARTIFACT_PARTIAL, round.partial_uploads);
        metric_set(METRIC_ARTIFACT_PARTIAL_BYTES, round.partial_bytes);
    }
    (void)snprintf(path, sizeof path, "%s/uploads", a->options.data);
    r = r == ERR_NOT_READY ? r : os_list(path, on_name, &round);
    if (r != 0 && r != ERR_NOT_READY) {
        log_line(LOG_ERROR, "artifact", "%s could not be listed (errno %d)", path, -r);
    }
}

/* ---- the thread ---- */

static struct timespec round_end(const struct artifact *a)
{
    uint64_t ms = a->options.retention_ms / 2;
    ms = ms > ROUND_MS_MAX ? ROUND_MS_MAX : ms < ROUND_MS_MIN ? ROUND_MS_MIN : ms;
    uint64_t ns = os_clock_mono_ns() + ms * UINT64_C(1000000);
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

/* True when it is to stop. */
static bool wait_round(struct artifact *a)
{
    struct cleaner *c = &a->cleaner;
    struct timespec end = round_end(a);
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    int w = 0;
    while (!c->stop && w == 0) {
        if (c->errands > 0) {
            run_errand(a);
            continue;
        }
        w = pthread_cond_timedwait(&c->wake, &c->lock, &end);
        ensure(w == 0 || w == ETIMEDOUT);
    }
    bool stop = c->stop;
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
    return stop;
}

static void *run(void *ctx)
{
    struct artifact *a = ctx;
    do {
        look_at_clock(&a->cleaner);
        cleaner_round(a);
    } while (!wait_round(a));
    return NULL;
}

void cleaner_init(struct cleaner *c)
{
    pthread_condattr_t attr;
    int r = pthread_mutex_init(&c->lock, NULL);
    ensure(r == 0);
    r = pthread_condattr_init(&attr);
    ensure(r == 0);
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ensure(r == 0);
    r = pthread_cond_init(&c->wake, &attr);
    ensure(r == 0);
    r = pthread_condattr_destroy(&attr);
    ensure(r == 0);
}

void cleaner_destroy(struct cleaner *c)
{
    ensure(!c->running);
    int r = pthread_cond_destroy(&c->wake);
    ensure(r == 0);
    r = pthread_mutex_destroy(&c->lock);
    ensure(r == 0);
}

static void clean_start(struct artifact *a)
{
    struct err e = {0};
    unsigned count = 0;
    int r = uploads_clean(a->uploads, &count, &e);
    if (r != 0) {
        log_line(LOG_ERROR, "artifact", "leavings of a crash could not be removed: %s", e.text);
    } else if (count > 0) {
        log_line(LOG_INFO, "artifact", "%u files that a crash left were removed", count);
    }
}

int cleaner_start(struct artifact *a, struct err *e)
{
    struct cleaner *c = &a->cleaner;
    clean_start(a);
    ensure(!c->running);
    c->stop = false;
    int r = pthread_create(&c->thread, NULL, run, a);
    if (r != 0) {
        return err_set(e, ERR_NO_MEMORY, "no thread for the uploads' housekeeping (errno %d)", r);
    }
    c->running = true;
    return 0;
}

void cleaner_stop(struct artifact *a)
{
    struct cleaner *c = &a->cleaner;
    if (!c->running) {
        return;
    }
    int r = pthread_mutex_lock(&c->lock);
    ensure(r == 0);
    c->stop = true;
    r = pthread_cond_signal(&c->wake);
    ensure(r == 0);
    r = pthread_mutex_unlock(&c->lock);
    ensure(r == 0);
    r = pthread_join(c->thread, NULL);
    ensure(r == 0);
    c->running = false;
}
