/* os_vfs_lock: file locks and WAL index of the played processes, after SQLite's os_unix.c.
 *
 * One mutex guards all of it. A file lock is SQLite's five levels: any number of SHARED, one
 * RESERVED beside them, PENDING lets no new SHARED in, EXCLUSIVE is alone. A lock on the WAL index
 * is one of eight slots, shared by some or held by one. Nothing blocks: who does not get a lock is
 * told SQLITE_BUSY. */
#include "tests/lib/os_vfs_lock.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define REGIONS_MAX 64 /* of 32 KiB: a WAL of a quarter million frames */

struct vfs_node {
    struct vfs_node *next;
    unsigned process;
    unsigned refs;
    /* file locks */
    unsigned shared;
    const struct vfs_locks *reserved, *pending, *exclusive;
    /* WAL index */
    unsigned mapped;
    void *region[REGIONS_MAX];
    int slot[SQLITE_SHM_NLOCK]; /* shared by so many; -1: held by one */
    char path[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct vfs_node *nodes;

static void enter(void)
{
    ensure(pthread_mutex_lock(&mutex) == 0);
}

static void leave(void)
{
    ensure(pthread_mutex_unlock(&mutex) == 0);
}

struct vfs_node *vfs_node_get(unsigned process, const char *path)
{
    struct vfs_node *n;
    enter();
    for (n = nodes; n != NULL; n = n->next) {
        if (n->process == process && strcmp(n->path, path) == 0) {
            break;
        }
    }
    if (n == NULL) {
        n = calloc(1, sizeof *n + strlen(path) + 1);
        ensure(n != NULL);
        n->process = process;
        memcpy(n->path, path, strlen(path) + 1);
        n->next = nodes;
        nodes = n;
    }
    n->refs++;
    leave();
    return n;
}

/* ---- file locks ---- */

static int lock_shared(struct vfs_locks *l)
{
    struct vfs_node *n = l->node;
    if (n->pending != NULL || n->exclusive != NULL) {
        return SQLITE_BUSY;
    }
    n->shared++;
    l->level = SQLITE_LOCK_SHARED;
    return SQLITE_OK;
}

static int lock_reserved(struct vfs_locks *l)
{
    struct vfs_node *n = l->node;
    if (n->reserved != NULL || n->pending != NULL) {
        return SQLITE_BUSY;
    }
    n->reserved = l;
    l->level = SQLITE_LOCK_RESERVED;
    return SQLITE_OK;
}

static int lock_exclusive(struct vfs_locks *l)
{
    struct vfs_node *n = l->node;
    if ((n->pending != NULL && n->pending != l) || (n->reserved != NULL && n->reserved != l)) {
        return SQLITE_BUSY;
    }
    n->pending = l;
    if (n->shared > 1) {
        l->level = SQLITE_LOCK_PENDING;
        return SQLITE_BUSY;
    }
    n->exclusive = l;
    l->level = SQLITE_LOCK_EXCLUSIVE;
    return SQLITE_OK;
}

int vfs_lock(struct vfs_locks *l, int level)
{
    int r = SQLITE_OK;
    if (l->node == NULL || l->level >= level) {
        return SQLITE_OK;
    }
    enter();
    if (level == SQLITE_LOCK_SHARED) {
        r = lock_shared(l);
    } else {
        ensure(l->level >= SQLITE_LOCK_SHARED);
        r = level == SQLITE_LOCK_RESERVED ? lock_reserved(l) : lock_exclusive(l);
    }
    leave();
    return r;
}

static void unlock(struct vfs_locks *l, int level)
{
    struct vfs_node *n = l->node;
    if (l->level <= level) {
        return;
    }
    n->reserved = n->reserved == l ? NULL : n->reserved;
    n->pending = n->pending == l ? NULL : n->pending;
    n->exclusive = n->exclusive == l ? NULL : n->exclusive;
    if (level == SQLITE_LOCK_NONE) {
        ensure(n->shared > 0);
        n->shared--;
    }
    l->level = level;
}

int vfs_unlock(struct vfs_locks *l, int level)
{
    if (l->node != NULL) {
        enter();
        unlock(l, level);
        leave();
    }
    return SQLITE_OK;
}

bool vfs_reserved(const struct vfs_locks *l)
{
    bool reserved = false;
    if (l->node != NULL) {
        enter();
        reserved = l->node->reserved != NULL || l->node->exclusive != NULL;
        leave();
    }
    return reserved;
}

/* ---- WAL index ---- */

int vfs_shm_map(struct vfs_locks *l, int region, int size, bool extend, bool attach_only,
                void volatile **out)
{
    struct vfs_node *n = l->node;
    int r = SQLITE_OK;
    *out = NULL;
    if (n == NULL || region < 0 || region >= REGIONS_MAX) {
        return SQLITE_IOERR_SHMMAP;
    }
    enter();
    if (!l->mapped && attach_only && n->mapped == 0) {
        r = SQLITE_CANTOPEN;
    } else if (!l->mapped) {
        l->mapped = true;
        n->mapped++;
    }
    if (r == SQLITE_OK && n->region[region] == NULL && extend) {
        n->region[region] = calloc(1, (size_t)size);
        ensure(n->region[region] != NULL);
    }
    if (r == SQLITE_OK) {
        *out = n->region[region];
    }
    leave();
    return r;
}

static void slots_release(struct vfs_locks *l, unsigned mask)
{
    for (unsigned i = 0; i < SQLITE_SHM_NLOCK; i++) {
        unsigned bit = 1u << i & mask;
        if ((l->shm_shared & bit) != 0) {
            l->node->slot[i]--;
        }
        if ((l->shm_exclusive & bit) != 0) {
            l->node->slot[i] = 0;
        }
    }
    l->shm_shared &= ~mask;
    l->shm_exclusive &= ~mask;
}

static int slot_shared(struct vfs_locks *l, int offset, unsigned mask)
{
    if ((l->shm_shared & mask) != 0) {
        return SQLITE_OK;
    }
    if (l->node->slot[offset] < 0) {
        return SQLITE_BUSY;
    }
    l->node->slot[offset]++;
    l->shm_shared |= mask;
    return SQLITE_OK;
}

static int slots_exclusive(struct vfs_locks *l, int offset, int n, unsigned mask)
{
    for (int i = offset; i < offset + n; i++) {
        if ((l->shm_exclusive & 1u << i) == 0 && l->node->slot[i] != 0) {
            return SQLITE_BUSY;
        }
    }
    for (int i = offset; i < offset + n; i++) {
        l->node->slot[i] = -1;
    }
    l->shm_exclusive |= mask;
    return SQLITE_OK;
}

int vfs_shm_lock(struct vfs_locks *l, int offset, int n, int flags)
{
    unsigned mask = ((1u << n) - 1) << offset;
    int r = SQLITE_OK;
    if (l->node == NULL || !l->mapped) {
        return SQLITE_IOERR_SHMLOCK;
    }
    ensure(offset >= 0 && n >= 1 && offset + n <= SQLITE_SHM_NLOCK);
    enter();
    if ((flags & SQLITE_SHM_UNLOCK) != 0) {
        slots_release(l, mask);
    } else if ((flags & SQLITE_SHM_SHARED) != 0) {
        ensure(n == 1);
        r = slot_shared(l, offset, mask);
    } else {
        r = slots_exclusive(l, offset, n, mask);
    }
    leave();
    return r;
}

void vfs_shm_barrier(void)
{
    enter();
    leave();
}

static void unmap(struct vfs_locks *l)
{
    struct vfs_node *n = l->node;
    if (!l->mapped) {
        return;
    }
    slots_release(l, (1u << SQLITE_SHM_NLOCK) - 1);
    l->mapped = false;
    if (--n->mapped == 0) {
        for (int i = 0; i < REGIONS_MAX; i++) {
            free(n->region[i]);
            n->region[i] = NULL;
        }
    }
}

void vfs_shm_unmap(struct vfs_locks *l)
{
    if (l->node != NULL) {
        enter();
        unmap(l);
        leave();
    }
}

void vfs_locks_drop(struct vfs_locks *l)
{
    struct vfs_node *n = l->node;
    if (n == NULL) {
        return;
    }
    enter();
    unmap(l);
    unlock(l, SQLITE_LOCK_NONE);
    l->node = NULL;
    if (--n->refs == 0) {
        struct vfs_node **at = &nodes;
        while (*at != n) {
            at = &(*at)->next;
        }
        *at = n->next;
        free(n);
    }
    leave();
}
