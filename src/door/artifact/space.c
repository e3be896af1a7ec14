/* space: the gate in front of creations and appends (artifacts.md 4.2, step 2), and whoever looks
 * how much is free.
 *
 * The gate is at the start of a request and answers at once: the loop reads what a thread found out
 * at most SPACE_FRESH_MS before the last request (SPACE_IDLE_MS while nobody asks). So a mount that
 * hangs stops nobody but that thread; after SPACE_STALE_MS without news uploads are put off. What
 * fits beside all others is room.c's question. Equal to the bound is fine. Without its thread (not
 * started yet) the gate looks itself.
 *
 * Looked at are the data directory, and packages/ and proofs/, which may be mounts of their own:
 * there a little has to stay for plans and proofs (SIDE_BYTES), without which nothing that is
 * accepted can go any further. Bytes and inodes.
 *
 * At the start a file system that is another machine's is named in the log: what a sync, a lock or
 * a dropped cache mean there is up to that machine.
 *
 * ERR_ codes are answers. A lock that fails is a bug. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

#define SPACE_FRESH_MS 100
#define SPACE_IDLE_MS  1000
#define SPACE_STALE_MS 10000
#define SIDE_BYTES     (UINT64_C(16) << 20)
#define PATH_MAX_      4300

/* ---- looking ---- */

/* The places that uploads need, the data directory first. */
static const char *const places[] = {"", "/packages", "/proofs"};

static bool path_of(const struct artifact *a, size_t place, char path[PATH_MAX_])
{
    int n = snprintf(path, PATH_MAX_, "%s%s", a->options.data, places[place]);
    return n > 0 && n < PATH_MAX_;
}

/* What has to stay free of a place. */
static uint64_t least_of(const struct artifact *a, size_t place, const struct os_disk *disk)
{
    if (place == 0) {
        return room_least(a->options.min_free_bytes, disk->bytes);
    }
    uint64_t part = room_least(0, disk->bytes);
    return part < SIDE_BYTES ? part : SIDE_BYTES;
}

/* 0, ERR_LOW_SPACE, ERR_IO. A place that is not there, or not a mount of its own, is fine. */
static int look_at(const struct artifact *a, size_t place, uint64_t device, struct err *e)
{
    char path[PATH_MAX_];
    struct os_disk disk;
    struct os_stat st;
    if (!path_of(a, place, path)) {
        return 0;
    }
    if (place > 0 && (os_stat(path, &st) != 0 || st.device == device)) {
        return 0;
    }
    int r = os_disk(path, &disk);
    if (r < 0) {
        (void)err_os(e, r, "statfs", path);
        return e->code = ERR_IO;
    }
    uint64_t least = least_of(a, place, &disk);
    if (disk.free_bytes < least) {
        return err_set(e, ERR_LOW_SPACE, "%.200s: less than %llu bytes are free", path,
                       (unsigned long long)least);
    }
    if (disk.inodes > 0 && disk.free_inodes < room_least_inodes(disk.inodes)) {
        return err_set(e, ERR_LOW_SPACE, "%.200s: it can hold less than %llu files more", path,
                       (unsigned long long)room_least_inodes(disk.inodes));
    }
    return 0;
}

static int look(struct artifact *a)
{
    struct err e = {0};
    struct os_stat st = {.device = 0};
    int r = os_stat(a->options.data, &st);
    r = r < 0 ? err_os(&e, r, "stat", a->options.data) : 0;
    for (size_t i = 0; r == 0 && i < sizeof places / sizeof *places; i++) {
        r = look_at(a, i, st.device, &e);
    }
    int code = r == 0 ? 0 : r == ERR_LOW_SPACE ? ERR_LOW_SPACE : ERR_IO;
    if (atomic_exchange(&a->space.code, code) != code) {
        if (code == 0) {
            log_line(LOG_INFO, "artifact", "there is enough free space: uploads are taken");
        } else {
            log_line(code == ERR_IO ? LOG_ERROR : LOG_WARN, "artifact", "uploads are put off: %s",
                     e.text);
        }
    }
    atomic_store(&a->space.looked_ms, os_clock_mono_ns() / 1000000);
    return code;
}

/* ---- the gate ---- */

static int last_look(struct artifact *a)
{
    struct space *s = &a->space;
    uint64_t now_ms = os_clock_mono_ns() / 1000000;
    if (!atomic_load(&s->running)) {
        return look(a);
    }
    uint64_t looked_ms = atomic_load(&s->looked_ms);
    uint64_t age_ms = now_ms > looked_ms ? now_ms - looked_ms : 0;
    if (age_ms >= SPACE_FRESH_MS && !atomic_exchange(&s->asked, true)) {
        int r = pthread_mutex_lock(&s->lock);
        ensure(r == 0);
        r = pthread_cond_signal(&s->wake);
        ensure(r == 0);
        r = pthread_mutex_unlock(&s->lock);
        ensure(r == 0);
    }
    return age_ms < SPACE_STALE_MS ? atomic_load(&s->code) : ERR_IO;
}

bool space_is_low(const struct artifact *a)
{
    return atomic_load(&a->space.code) == ERR_LOW_SPACE;
}

int space_check(struct artifact *a, struct outcome *out)
{
    int r = last_look(a);
    if (r == 0) {
        return 0;
    }
    out->low_space_status = r == ERR_IO ? 503 : a->options.low_space_status;
    outcome_low_space(out, r == ERR_IO ? "the free space of this server cannot be read"
                                       : "this server has too little free space for uploads now");
    return ERR_LOW_SPACE;
}

/* ---- the thread ---- */

/* Until somebody asks, or for a while. True when it is to stop. */
static bool rest(struct space *s)
{
    uint64_t ns = os_clock_mono_ns() + SPACE_IDLE_MS * UINT64_C(1000000);
    struct timespec end = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    int w = 0;
    int r = pthread_mutex_lock(&s->lock);
    ensure(r == 0);
    while (!s->stop && w == 0 && !atomic_load(&s->asked)) {
        w = pthread_cond_timedwait(&s->wake, &s->lock, &end);
        ensure(w == 0 || w == ETIMEDOUT);
    }
    atomic_store(&s->asked, false);
    bool stop = s->stop;
    r = pthread_mutex_unlock(&s->lock);
    ensure(r == 0);
    return stop;
}

static void *run(void *ctx)
{
    struct artifact *a = ctx;
    while (!rest(&a->space)) {
        (void)look(a);
    }
    return NULL;
}

void space_init(struct space *s)
{
    pthread_condattr_t attr;
    int r = pthread_mutex_init(&s->lock, NULL);
    ensure(r == 0);
    r = pthread_condattr_init(&attr);
    ensure(r == 0);
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    ensure(r == 0);
    r = pthread_cond_init(&s->wake, &attr);
    ensure(r == 0);
    r = pthread_condattr_destroy(&attr);
    ensure(r == 0);
}

void space_destroy(struct space *s)
{
    ensure(!atomic_load(&s->running));
    int r = pthread_cond_destroy(&s->wake);
    ensure(r == 0);
    r = pthread_mutex_destroy(&s->lock);
    ensure(r == 0);
}

/* The name of a file system that is another machine's; NULL: it is none that is known. */
static const char *remote_name(uint64_t kind)
{
    static const struct {
        uint64_t kind;
        const char *name;
    } known[] = {{0x6969, "NFS"},      {0xFF534D42, "CIFS"},      {0xFE534D42, "SMB2"},
                 {0x517B, "SMB"},      {0x01021997, "9P"},        {0x00C36400, "Ceph"},
                 {0x5346414F, "AFS"},  {0x6B414653, "AFS"},       {0x0BD00BD0, "Lustre"},
                 {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"},     {0x65735546, "FUSE"},
                 {0x47504653, "GPFS"}, {0x786F4256, "VirtualBox"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].kind == kind) {
            return known[i].name;
        }
    }
    return NULL;
}

static void name_remote(const struct artifact *a)
{
    char path[PATH_MAX_];
    struct os_disk disk;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *name = NULL;
        if (path_of(a, i, path) && os_disk(path, &disk) == 0) {
            name = remote_name(disk.kind);
        }
        if (name != NULL) {
            log_line(
                LOG_WARN, "artifact",
                "%.200s is on %s: that synced bytes survive a power failure, that what is read "
                "back comes from the device, and that locks hold, is up to its server",
                path, name);
        }
    }
}

int space_start(struct artifact *a, struct err *e)
{
    struct space *s = &a->space;
    ensure(!atomic_load(&s->running));
    name_remote(a);
    (void)look(a);
    s->stop = false;
    int r = pthread_create(&s->thread, NULL, run, a);
    if (r != 0) {
        return err_set(e, ERR_NO_MEMORY, "no thread to look after free space (errno %d)", r);
    }
    atomic_store(&s->running, true);
    return 0;
}

void space_stop(struct artifact *a)
{
    struct space *s = &a->space;
    if (!atomic_load(&s->running)) {
        return;
    }
    int r = pthread_mutex_lock(&s->lock);
    ensure(r == 0);
    s->stop = true;
    r = pthread_cond_signal(&s->wake);
    ensure(r == 0);
    r = pthread_mutex_unlock(&s->lock);
    ensure(r == 0);
    r = pthread_join(s->thread, NULL);
    ensure(r == 0);
    atomic_store(&s->running, false);
}
