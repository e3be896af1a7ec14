/* verify_vfs: a SQLite VFS through which nothing can be changed: over the default VFS, for verify.
 *
 * SQLite's own read-only connections make a -wal and a -shm where there are none, and leave them
 * behind; without a server a WAL that a crash left could not be read at all. Here:
 *   - files are opened for reading only and never made; a WAL that is not there is an empty file;
 *   - writes, truncations, deletions and syncs are refused (SQLite asks for none);
 *   - rollback journals are not seen: verify.c looks at those itself;
 *   - the WAL index is the server's when one runs (its URI says readonly_shm=1, so the VFS below
 *     maps it for reading), else a private one in memory, made from the WAL by SQLite's recovery.
 * A server holds the index's lock as long as it has the database open, so whether one runs is asked
 * of the VFS below: without the file nobody does (SQLITE_CANTOPEN), with a file that nobody has
 * locked neither (SQLITE_READONLY_CANTINIT).
 *
 * Power failure: nothing is written. Answers: every error, as SQLite's codes. Stops, aborts: none.
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "store/verify_internal.h"

#define VFS_NAME "tallyman-verify"

#define REGIONS_MAX 65536 /* of 32 KiB, each for some 4000 frames of 4 KiB: a terabyte of WAL */

enum index_owner { INDEX_UNKNOWN, INDEX_OF_SERVER, INDEX_OWN };

struct ro_file {
    struct sqlite3_file base;
    struct sqlite3_file *under; /* NULL: an empty file */
    const char *name;           /* SQLite's, valid as long as the file */
    bool unread;                /* a read failed */
    enum index_owner owner;
    void **region;
    int region_count;
};

static struct sqlite3_vfs vfs;
static struct sqlite3_vfs *vfs_under;
static pthread_mutex_t vfs_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct ro_file *file_of(struct sqlite3_file *f)
{
    return (struct ro_file *)f;
}

static struct sqlite3_file *under_of(struct sqlite3_file *f)
{
    return file_of(f)->under;
}

/* ---- bytes ---- */

static void index_free(struct ro_file *f)
{
    for (int i = 0; i < f->region_count; i++) {
        free(f->region[i]);
    }
    free(f->region);
    f->region = NULL;
    f->region_count = 0;
}

static int ro_close(struct sqlite3_file *base)
{
    struct ro_file *f = file_of(base);
    index_free(f);
    return f->under != NULL ? f->under->pMethods->xClose(f->under) : SQLITE_OK;
}

static int ro_read(struct sqlite3_file *base, void *to, int n, sqlite3_int64 offset)
{
    struct sqlite3_file *under = under_of(base);
    if (under == NULL) {
        memset(to, 0, (size_t)n);
        return SQLITE_IOERR_SHORT_READ;
    }
    int r = under->pMethods->xRead(under, to, n, offset);
    /* EIO would become "malformed" on its way up; whether it can be read again is not known. */
    if (r != SQLITE_OK && r != SQLITE_IOERR_SHORT_READ) {
        file_of(base)->unread = true;
    }
    return r == SQLITE_IOERR_CORRUPTFS ? SQLITE_IOERR_READ : r;
}

static int ro_write(struct sqlite3_file *base, const void *from, int n, sqlite3_int64 offset)
{
    (void)base;
    (void)from;
    (void)n;
    (void)offset;
    return SQLITE_READONLY;
}

static int ro_truncate(struct sqlite3_file *base, sqlite3_int64 size)
{
    (void)base;
    (void)size;
    return SQLITE_READONLY;
}

static int ro_sync(struct sqlite3_file *base, int flags)
{
    (void)base;
    (void)flags;
    return SQLITE_READONLY;
}

static int ro_file_size(struct sqlite3_file *base, sqlite3_int64 *out)
{
    struct sqlite3_file *under = under_of(base);
    *out = 0;
    return under != NULL ? under->pMethods->xFileSize(under, out) : SQLITE_OK;
}

/* ---- locks: SHARED is the VFS's below, so that nobody rewrites the file under a reader ---- */

static int ro_lock(struct sqlite3_file *base, int level)
{
    struct sqlite3_file *under = under_of(base);
    if (under == NULL) {
        return SQLITE_OK;
    }
    return level > SQLITE_LOCK_SHARED ? SQLITE_READONLY : under->pMethods->xLock(under, level);
}

static int ro_unlock(struct sqlite3_file *base, int level)
{
    struct sqlite3_file *under = under_of(base);
    return under != NULL ? under->pMethods->xUnlock(under, level) : SQLITE_OK;
}

static int ro_check_reserved(struct sqlite3_file *base, int *out)
{
    (void)base;
    *out = 0;
    return SQLITE_OK;
}

static int ro_control(struct sqlite3_file *base, int op, void *arg)
{
    (void)base;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int ro_sector_size(struct sqlite3_file *base)
{
    (void)base;
    return 4096;
}

static int ro_characteristics(struct sqlite3_file *base)
{
    (void)base;
    return 0;
}

/* ---- the WAL index ---- */

static bool index_file_exists(const struct ro_file *f)
{
    char path[VERIFY_PATH_MAX];
    int there = 0;
    int n = snprintf(path, sizeof path, "%s-shm", f->name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return true;
    }
    int r = vfs_under->xAccess(vfs_under, path, SQLITE_ACCESS_EXISTS, &there);
    return r != SQLITE_OK || there != 0;
}

static int index_own(struct ro_file *f, int region, int size, int extend, void volatile **out)
{
    *out = NULL;
    if (region >= f->region_count && extend == 0) {
        return SQLITE_OK;
    }
    if (region >= REGIONS_MAX) {
        return SQLITE_FULL;
    }
    if (region >= f->region_count) {
        void **grown = realloc(f->region, ((size_t)region + 1) * sizeof *grown);
        if (grown == NULL) {
            return SQLITE_NOMEM;
        }
        f->region = grown;
        while (f->region_count <= region) {
            void *p = calloc(1, (size_t)size);
            if (p == NULL) {
                return SQLITE_NOMEM;
            }
            f->region[f->region_count++] = p;
        }
    }
    *out = f->region[region];
    return SQLITE_OK;
}

static int ro_shm_map(struct sqlite3_file *base, int region, int size, int extend,
                      void volatile **out)
{
    struct ro_file *f = file_of(base);
    struct sqlite3_file *under = f->under;
    if (f->owner == INDEX_OWN) {
        return index_own(f, region, size, extend, out);
    }
    /* Never extended: the file is the server's. */
    int r = under->pMethods->xShmMap(under, region, size, 0, out);
    if (f->owner == INDEX_OF_SERVER) {
        return r;
    }
    bool nobody =
        r == SQLITE_READONLY_CANTINIT || ((r & 0xff) == SQLITE_CANTOPEN && !index_file_exists(f));
    if (nobody) {
        (void)under->pMethods->xShmUnmap(under, 0);
        f->owner = INDEX_OWN;
        return index_own(f, region, size, extend, out);
    }
    if (r == SQLITE_OK || r == SQLITE_READONLY) {
        f->owner = INDEX_OF_SERVER;
    }
    return r;
}

static int ro_shm_lock(struct sqlite3_file *base, int offset, int n, int flags)
{
    struct ro_file *f = file_of(base);
    if (f->owner == INDEX_OWN) {
        return SQLITE_OK; /* nobody else has it */
    }
    /* The writer's lock. A reader that may not write asks for it when it met a header that was just
     * being written: were it to get it, because that is done by now, SQLite would give up. Busy, it
     * reads the header anew. */
    if (offset == 0 && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_SHARED)) {
        return SQLITE_BUSY;
    }
    return f->under->pMethods->xShmLock(f->under, offset, n, flags);
}

static void ro_shm_barrier(struct sqlite3_file *base)
{
    struct ro_file *f = file_of(base);
    if (f->owner == INDEX_OF_SERVER) {
        f->under->pMethods->xShmBarrier(f->under);
    }
}

static int ro_shm_unmap(struct sqlite3_file *base, int delete)
{
    struct ro_file *f = file_of(base);
    (void)delete; /* never: it is not ours */
    index_free(f);
    int r = SQLITE_OK;
    if (f->owner == INDEX_OF_SERVER) {
        r = f->under->pMethods->xShmUnmap(f->under, 0);
    }
    f->owner = INDEX_UNKNOWN;
    return r;
}

static const struct sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = ro_close,
    .xRead = ro_read,
    .xWrite = ro_write,
    .xTruncate = ro_truncate,
    .xSync = ro_sync,
    .xFileSize = ro_file_size,
    .xLock = ro_lock,
    .xUnlock = ro_unlock,
    .xCheckReservedLock = ro_check_reserved,
    .xFileControl = ro_control,
    .xSectorSize = ro_sector_size,
    .xDeviceCharacteristics = ro_characteristics,
    .xShmMap = ro_shm_map,
    .xShmLock = ro_shm_lock,
    .xShmBarrier = ro_shm_barrier,
    .xShmUnmap = ro_shm_unmap,
};

/* ---- names ---- */

#define NEVER (SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXCLUSIVE)

static int ro_open(struct sqlite3_vfs *self, const char *name, struct sqlite3_file *base, int flags,
                   int *flags_out)
{
    struct ro_file *f = file_of(base);
    int there = 1;
    int r = SQLITE_OK;
    (void)self;
    memset(f, 0, sizeof *f);
    if (name == NULL || (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)) == 0) {
        return SQLITE_CANTOPEN; /* sorters keep to memory: verify.c sets temp_store */
    }
    flags = (flags & ~NEVER) | SQLITE_OPEN_READONLY;
    if ((flags & SQLITE_OPEN_WAL) != 0) {
        r = vfs_under->xAccess(vfs_under, name, SQLITE_ACCESS_EXISTS, &there);
    }
    if (r == SQLITE_OK && there != 0) {
        f->under = (struct sqlite3_file *)(void *)(f + 1);
        r = vfs_under->xOpen(vfs_under, name, f->under, flags, NULL);
    }
    if (r != SQLITE_OK) {
        return r;
    }
    f->name = name;
    if (flags_out != NULL) {
        *flags_out = flags;
    }
    f->base.pMethods = &methods;
    return SQLITE_OK;
}

static int ro_delete(struct sqlite3_vfs *self, const char *name, int sync_directory)
{
    (void)self;
    (void)name;
    (void)sync_directory;
    return SQLITE_READONLY;
}

/* Only a WAL is seen. */
static int ro_access(struct sqlite3_vfs *self, const char *name, int flags, int *out)
{
    size_t n = strlen(name);
    (void)self;
    *out = 0;
    if (n >= 4 && strcmp(name + n - 4, "-wal") == 0) {
        return vfs_under->xAccess(vfs_under, name, flags, out);
    }
    return SQLITE_OK;
}

static int ro_full_name(struct sqlite3_vfs *self, const char *name, int n, char *out)
{
    (void)self;
    return vfs_under->xFullPathname(vfs_under, name, n, out);
}

static int ro_randomness(struct sqlite3_vfs *self, int n, char *out)
{
    (void)self;
    return vfs_under->xRandomness(vfs_under, n, out);
}

static int ro_sleep(struct sqlite3_vfs *self, int microseconds)
{
    (void)self;
    return vfs_under->xSleep(vfs_under, microseconds);
}

static int ro_time(struct sqlite3_vfs *self, double *out)
{
    (void)self;
    return vfs_under->xCurrentTime(vfs_under, out);
}

static int ro_last_error(struct sqlite3_vfs *self, int n, char *out)
{
    (void)self;
    return vfs_under->xGetLastError(vfs_under, n, out);
}

static void vfs_fill(void)
{
    vfs = (struct sqlite3_vfs){
        .iVersion = 1,
        .szOsFile = (int)sizeof(struct ro_file) + vfs_under->szOsFile,
        .mxPathname = vfs_under->mxPathname,
        .zName = VFS_NAME,
        .xOpen = ro_open,
        .xDelete = ro_delete,
        .xAccess = ro_access,
        .xFullPathname = ro_full_name,
        .xRandomness = ro_randomness,
        .xSleep = ro_sleep,
        .xCurrentTime = ro_time,
        .xGetLastError = ro_last_error,
    };
}

const char *verify_vfs(void)
{
    const char *name = VFS_NAME;
    ensure(pthread_mutex_lock(&vfs_mutex) == 0);
    struct sqlite3_vfs *below = sqlite3_vfs_find(NULL);
    if (below == NULL) {
        name = NULL;
    } else if (below != vfs_under) {
        /* The first time; tests also change the default, between runs. */
        if (vfs_under != NULL) {
            (void)sqlite3_vfs_unregister(&vfs);
        }
        vfs_under = below;
        vfs_fill();
        name = sqlite3_vfs_register(&vfs, 0) == SQLITE_OK ? name : NULL;
    }
    ensure(pthread_mutex_unlock(&vfs_mutex) == 0);
    return name;
}

static struct ro_file *file_by(struct sqlite3 *db, int op)
{
    struct sqlite3_file *f = NULL;
    (void)sqlite3_file_control(db, "main", op, &f);
    return f != NULL && f->pMethods == &methods ? file_of(f) : NULL;
}

bool verify_vfs_live(struct sqlite3 *db)
{
    const struct ro_file *f = file_by(db, SQLITE_FCNTL_FILE_POINTER);
    return f != NULL && f->owner == INDEX_OF_SERVER;
}

bool verify_vfs_unread(struct sqlite3 *db)
{
    const struct ro_file *f = file_by(db, SQLITE_FCNTL_FILE_POINTER);
    const struct ro_file *wal = file_by(db, SQLITE_FCNTL_JOURNAL_POINTER);
    return (f != NULL && f->unread) || (wal != NULL && wal->unread);
}
