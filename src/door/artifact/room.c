/* room: the accounts of promised space (artifacts.md, decisions; cases T23).
 *
 * Never too much: all promises together are at most what is free above the bound. The accounts are
 * read before the file system is asked, and both under the lock: bytes that are written meanwhile
 * are still promised and not free any more, which errs on the safe side. Who writes what was never
 * promised (the other doors, other programs) can still fill the disk; then the write tells, and
 * what was synced stays.
 *
 * Shares are of what could be promised if nothing were: a project, a client address. They bind
 * creations only: an upload that goes on has had its share, and must be able to end. The number of
 * promises is shared in the same parts, for each costs memory and inodes, however little it is of;
 * there an address is bound by its part whatever it does: with many small uploads, made one after
 * another and then gone on with all at once, it would have all of them.
 *
 * Expiry is looked at by whoever wants room, from the idle end of the list; nobody waits for it.
 * ERR_ codes are answers. A lock that fails is a bug. */
#include "door/artifact/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "os/os.h"

#define DEFAULT_BYTES  (UINT64_C(10) << 30)
#define DEFAULT_PART   20 /* of the file system: 5 % */
#define DEFAULT_INODES 10000
#define NAME_MAX_      (UPLOAD_PROJECT_MAX + 2)

/* What one project, or one address, is promised. */
struct room_share {
    LIST_ENTRY(room_share) link;
    char name[NAME_MAX_]; /* its kind, then its name */
    unsigned users;
    uint64_t promised;
};

struct room_promise {
    TAILQ_ENTRY(room_promise) idle_link; /* while nobody is on it */
    LIST_ENTRY(room_promise) link;       /* while it has an id */
    char id[UPLOAD_ID_LEN + 1];
    bool held;
    bool forgotten; /* its holder frees it */
    uint64_t since_ms;
    uint64_t bytes;
    struct room_share *share[2]; /* NULL: none */
};

static void take_lock(struct room *r)
{
    int result = pthread_mutex_lock(&r->lock);
    ensure(result == 0);
}

static void give_lock(struct room *r)
{
    int result = pthread_mutex_unlock(&r->lock);
    ensure(result == 0);
}

void room_init(struct room *r, const char *data, uint64_t min_free_bytes, unsigned project_percent,
               unsigned address_percent)
{
    memset(r, 0, sizeof *r);
    ensure(project_percent >= 1 && project_percent <= 100);
    ensure(address_percent >= 1 && address_percent <= 100);
    r->data = data;
    r->min_free_bytes = min_free_bytes;
    r->project_percent = project_percent;
    r->address_percent = address_percent;
    r->idle_ms = ROOM_IDLE_MS;
    TAILQ_INIT(&r->idle);
    int result = pthread_mutex_init(&r->lock, NULL);
    ensure(result == 0);
}

uint64_t room_least(uint64_t min_free_bytes, uint64_t disk_bytes)
{
    uint64_t part = disk_bytes / DEFAULT_PART;
    return min_free_bytes != 0 ? min_free_bytes : part < DEFAULT_BYTES ? part : DEFAULT_BYTES;
}

uint64_t room_least_inodes(uint64_t inodes)
{
    uint64_t part = inodes / DEFAULT_PART;
    return part < DEFAULT_INODES ? part : DEFAULT_INODES;
}

/* ---- under the lock ---- */

static size_t bucket_of(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name != '\0'; name++) {
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    }
    return (size_t)(h % ROOM_BUCKETS);
}

static void set_bytes(struct room *r, struct room_promise *p, uint64_t bytes)
{
    ensure(r->promised >= p->bytes);
    r->promised += bytes - p->bytes;
    for (size_t i = 0; i < 2; i++) {
        if (p->share[i] != NULL) {
            p->share[i]->promised += bytes - p->bytes;
        }
    }
    p->bytes = bytes;
    metric_set(METRIC_ARTIFACT_RESERVED, r->promised);
}

static void share_leave(struct room_share *s)
{
    if (s != NULL && --s->users == 0) {
        LIST_REMOVE(s, link);
        free(s);
    }
}

static void end(struct room *r, struct room_promise *p)
{
    set_bytes(r, p, 0);
    share_leave(p->share[0]);
    share_leave(p->share[1]);
    if (p->id[0] != '\0') {
        LIST_REMOVE(p, link);
    }
    if (!p->held) {
        TAILQ_REMOVE(&r->idle, p, idle_link);
    }
    r->count--;
    free(p);
}

static void expire(struct room *r)
{
    uint64_t now_ms = os_clock_mono_ns() / 1000000;
    struct room_promise *p;
    while ((p = TAILQ_FIRST(&r->idle)) != NULL && now_ms - p->since_ms >= r->idle_ms) {
        end(r, p);
    }
}

static struct room_promise *find(struct room *r, const char *id)
{
    struct room_promise *p;
    LIST_FOREACH(p, &r->chain[bucket_of(id)], link)
    {
        if (strcmp(p->id, id) == 0) {
            return p;
        }
    }
    return NULL;
}

static void hold(struct room *r, struct room_promise *p)
{
    ensure(!p->held);
    TAILQ_REMOVE(&r->idle, p, idle_link);
    p->held = true;
}

static void set_id(struct room *r, struct room_promise *p, const char *id)
{
    memcpy(p->id, id, sizeof p->id);
    LIST_INSERT_HEAD(&r->chain[bucket_of(id)], p, link);
}

/* The share of this name, made where it is missing; NULL: no memory. */
static struct room_share *share_join(struct room *r, char kind, const char *name)
{
    char full[NAME_MAX_];
    struct room_share *s;
    int n = snprintf(full, sizeof full, "%c%s", kind, name);
    ensure(n > 0 && (size_t)n < sizeof full);
    size_t bucket = bucket_of(full);
    LIST_FOREACH(s, &r->shares[bucket], link)
    {
        if (strcmp(s->name, full) == 0) {
            s->users++;
            return s;
        }
    }
    s = calloc(1, sizeof *s);
    if (s != NULL) {
        memcpy(s->name, full, sizeof full);
        s->users = 1;
        LIST_INSERT_HEAD(&r->shares[bucket], s, link);
    }
    return s;
}

/* A promise of nothing, held; NULL: no memory. */
static struct room_promise *make(struct room *r, const struct room_owner *owner)
{
    struct room_promise *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    p->held = true;
    p->share[0] = share_join(r, 'p', owner->project);
    p->share[1] = owner->address[0] != '\0' ? share_join(r, 'a', owner->address) : NULL;
    r->count++;
    if (p->share[0] == NULL || (owner->address[0] != '\0' && p->share[1] == NULL)) {
        end(r, p);
        return NULL;
    }
    return p;
}

static int short_of(struct err *e, const char *what)
{
    return err_set(e, ERR_LOW_SPACE, "%s", what);
}

static bool within(const struct room_share *s, uint64_t bytes, uint64_t all, unsigned percent)
{
    uint64_t part = all / 100 * percent;
    return s == NULL || percent == 100 || (bytes <= part && s->promised <= part - bytes);
}

/* Whether s, which counts the newcomer, has no more than its part of the number of promises. */
static bool few(const struct room_share *s, unsigned percent)
{
    return s == NULL || s->users <= (uint64_t)ROOM_PROMISES_MAX * percent / 100;
}

/* The shares of the number; the bytes are admit's. */
static int admit_one_more(const struct room *r, const struct room_promise *p, bool shares,
                          struct err *e)
{
    if (r->count > ROOM_PROMISES_MAX) {
        return short_of(e, "too many uploads are under way");
    }
    if (shares && !few(p->share[0], r->project_percent)) {
        return short_of(e, "too many uploads of this project are under way");
    }
    if (!few(p->share[1], r->address_percent)) {
        return short_of(e, "too many uploads of this client are under way");
    }
    return 0;
}

/* Whether p, which has nothing yet, can be promised so much. */
static int admit(struct room *r, const struct room_promise *p, uint64_t bytes, bool shares,
                 struct err *e)
{
    struct os_disk disk;
    int result = os_disk(r->data, &disk);
    if (result < 0) {
        (void)err_os(e, result, "statfs", r->data);
        return e->code = ERR_IO;
    }
    uint64_t least = room_least(r->min_free_bytes, disk.bytes);
    uint64_t all = disk.free_bytes > least ? disk.free_bytes - least : 0;
    uint64_t inodes = room_least_inodes(disk.inodes) + (uint64_t)r->count * ROOM_INODES;
    if (bytes > all || r->promised > all - bytes) {
        return short_of(e, "this server has too little free space for this upload beside those "
                           "that are under way");
    }
    if (disk.inodes > 0 && disk.free_inodes < inodes) {
        return short_of(e, "this server's file system can hold few files more");
    }
    if (shares && !within(p->share[0], bytes, all, r->project_percent)) {
        return short_of(e, "this project's uploads have their share of the free space");
    }
    if (shares && !within(p->share[1], bytes, all, r->address_percent)) {
        return short_of(e, "this client's uploads have their share of the free space");
    }
    return 0;
}

/* ---- */

static int take(struct room *r, const char *id, const struct room_owner *owner, uint64_t bytes,
                struct room_promise **out, struct err *e)
{
    uint64_t want = bytes + ROOM_OTHER_BYTES;
    struct room_promise *p = make(r, owner);
    if (p == NULL) {
        return short_of(e, "no memory for one more upload");
    }
    int result = admit_one_more(r, p, id == NULL, e);
    if (result == 0) {
        result = admit(r, p, want, id == NULL, e);
    }
    if (result != 0) {
        end(r, p);
        return result;
    }
    set_bytes(r, p, want);
    if (id != NULL) {
        set_id(r, p, id);
    }
    *out = p;
    return 0;
}

int room_take(struct room *r, const struct room_owner *owner, uint64_t bytes,
              struct room_promise **out, struct err *e)
{
    *out = NULL;
    take_lock(r);
    expire(r);
    int result = take(r, NULL, owner, bytes, out, e);
    give_lock(r);
    return result;
}

int room_take_again(struct room *r, const char *id, const struct room_owner *owner, uint64_t bytes,
                    struct room_promise **out, struct err *e)
{
    int result = 0;
    take_lock(r);
    expire(r);
    *out = find(r, id);
    if (*out != NULL) {
        hold(r, *out);
    } else {
        result = take(r, id, owner, bytes, out, e);
    }
    give_lock(r);
    return result;
}

static void leave(struct room *r, struct room_promise *p)
{
    p->held = false;
    p->since_ms = os_clock_mono_ns() / 1000000;
    TAILQ_INSERT_TAIL(&r->idle, p, idle_link);
}

void room_restore(struct room *r, const char *id, const struct room_owner *owner, uint64_t bytes)
{
    struct room_promise *p = NULL;
    struct err e = {0};
    take_lock(r);
    /* What does not fit any more has to ask again. */
    if (find(r, id) == NULL && take(r, id, owner, bytes, &p, &e) == 0) {
        leave(r, p);
    }
    give_lock(r);
}

void room_name(struct room *r, struct room_promise *p, const char *id)
{
    take_lock(r);
    ensure(p->held && p->id[0] == '\0');
    /* The first round may have come upon its files: they are promised once. */
    struct room_promise *seen = find(r, id);
    if (seen != NULL && !seen->held) {
        end(r, seen);
    }
    set_id(r, p, id);
    give_lock(r);
}

void room_set(struct room *r, struct room_promise *p, uint64_t bytes)
{
    take_lock(r);
    ensure(p->held);
    set_bytes(r, p, bytes + ROOM_OTHER_BYTES);
    give_lock(r);
}

void room_leave(struct room *r, struct room_promise *p, uint64_t bytes)
{
    if (p == NULL) {
        return;
    }
    take_lock(r);
    ensure(p->held && p->id[0] != '\0');
    leave(r, p);
    set_bytes(r, p, bytes + ROOM_OTHER_BYTES);
    if (p->forgotten) {
        end(r, p);
    }
    give_lock(r);
}

void room_drop(struct room *r, struct room_promise *p)
{
    if (p != NULL) {
        take_lock(r);
        ensure(p->held);
        end(r, p);
        give_lock(r);
    }
}

void room_forget(struct room *r, const char *id)
{
    take_lock(r);
    struct room_promise *p = find(r, id);
    if (p != NULL && p->held) {
        p->forgotten = true;
    } else if (p != NULL) {
        end(r, p);
    }
    give_lock(r);
}

/* ---- */

void room_set_idle(struct room *r, uint64_t idle_ms)
{
    take_lock(r);
    r->idle_ms = idle_ms;
    give_lock(r);
}

uint64_t room_promised(struct room *r)
{
    take_lock(r);
    expire(r);
    uint64_t bytes = r->promised;
    give_lock(r);
    return bytes;
}

unsigned room_count(struct room *r)
{
    take_lock(r);
    expire(r);
    unsigned count = r->count;
    give_lock(r);
    return count;
}

void room_destroy(struct room *r)
{
    for (size_t i = 0; i < ROOM_BUCKETS; i++) {
        while (!LIST_EMPTY(&r->chain[i])) {
            end(r, LIST_FIRST(&r->chain[i]));
        }
    }
    /* With them their shares have gone. */
    ensure(r->count == 0 && r->promised == 0);
    int result = pthread_mutex_destroy(&r->lock);
    ensure(result == 0);
}
