/* failing_vfs: SQLite's own VFS with one kind of call that fails, once or from some call on. For
 * what the calls of os/os.h do not show: the WAL's real index, real locks, threads. */
#ifndef TESTS_UNIT_STORE_FAILING_VFS_H
#define TESTS_UNIT_STORE_FAILING_VFS_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>

#define FAILING_CALLS(X) \
    X(ACCESS)            \
    X(OPEN)              \
    X(READ)              \
    X(WRITE)             \
    X(SYNC)              \
    X(SIZE)              \
    X(LOCK)              \
    X(SHM_MAP)           \
    X(SHM_LOCK)

enum failing_call {
#define X(name) FAILING_##name,
    FAILING_CALLS(X)
#undef X
        FAILING_COUNT
};

enum failing_file { FAILING_DATABASE, FAILING_LOG, FAILING_ANY };

struct failing {
    enum failing_call call;
    enum failing_file file; /* not of ACCESS and OPEN */
    unsigned at;            /* from 1; 0: none fails */
    bool sticky;
    int code;
    unsigned seen, fired;
    unsigned opened; /* databases */
};

static pthread_mutex_t failing_lock = PTHREAD_MUTEX_INITIALIZER; /* of the two below */
static struct failing failing_now;
static unsigned failing_writes; /* and syncs */
/* Other threads than this one wait where they would lock the WAL's index. */
static bool failing_stops;
static unsigned failing_stopped; /* how many do */
static pthread_t failing_goes;
static pthread_cond_t failing_go = PTHREAD_COND_INITIALIZER;
static struct sqlite3_vfs failing_vfs;
static struct sqlite3_vfs *failing_under;
static const struct sqlite3_io_methods *failing_real[2]; /* by enum failing_file */
static struct sqlite3_io_methods failing_own[2];

static inline void failing_arm(const struct failing *f)
{
    pthread_mutex_lock(&failing_lock);
    failing_now = *f;
    failing_writes = 0;
    pthread_mutex_unlock(&failing_lock);
}

static inline struct failing failing_state(unsigned *writes)
{
    pthread_mutex_lock(&failing_lock);
    struct failing now = failing_now;
    if (writes != NULL) {
        *writes = failing_writes;
    }
    pthread_mutex_unlock(&failing_lock);
    return now;
}

static inline void failing_stop_others(bool stop)
{
    pthread_mutex_lock(&failing_lock);
    failing_stops = stop;
    failing_goes = pthread_self();
    pthread_cond_broadcast(&failing_go);
    pthread_mutex_unlock(&failing_lock);
}

static inline unsigned failing_others_stopped(void)
{
    pthread_mutex_lock(&failing_lock);
    unsigned n = failing_stopped;
    pthread_mutex_unlock(&failing_lock);
    return n;
}

/* The code that the call fails with, or SQLITE_OK. */
static inline int failing_strikes(enum failing_call call, enum failing_file file)
{
    int code = SQLITE_OK;
    pthread_mutex_lock(&failing_lock);
    struct failing *f = &failing_now;
    while (call == FAILING_SHM_LOCK && failing_stops &&
           !pthread_equal(pthread_self(), failing_goes)) {
        failing_stopped++;
        pthread_cond_wait(&failing_go, &failing_lock);
        failing_stopped--;
    }
    failing_writes += call == FAILING_WRITE || call == FAILING_SYNC;
    if (call == f->call && (f->file == FAILING_ANY || file == FAILING_ANY || file == f->file)) {
        f->seen++;
        if (f->at > 0 && (f->seen == f->at || (f->sticky && f->seen > f->at))) {
            f->fired++;
            code = f->code;
        }
    }
    pthread_mutex_unlock(&failing_lock);
    return code;
}

static inline enum failing_file failing_file_of(const struct sqlite3_file *f)
{
    return f->pMethods == &failing_own[FAILING_LOG] ? FAILING_LOG : FAILING_DATABASE;
}

#define FAILING_METHOD(call, method, params, args)                 \
    static inline int failing_##method params                      \
    {                                                              \
        enum failing_file file = failing_file_of(f);               \
        int code = failing_strikes(call, file);                    \
        return code != 0 ? code : failing_real[file]->method args; \
    }
FAILING_METHOD(FAILING_READ, xRead, (struct sqlite3_file * f, void *to, int n, sqlite3_int64 at),
               (f, to, n, at))
FAILING_METHOD(FAILING_WRITE, xWrite,
               (struct sqlite3_file * f, const void *from, int n, sqlite3_int64 at),
               (f, from, n, at))
FAILING_METHOD(FAILING_SYNC, xSync, (struct sqlite3_file * f, int flags), (f, flags))
FAILING_METHOD(FAILING_SIZE, xFileSize, (struct sqlite3_file * f, sqlite3_int64 *out), (f, out))
FAILING_METHOD(FAILING_LOCK, xLock, (struct sqlite3_file * f, int level), (f, level))
FAILING_METHOD(FAILING_SHM_MAP, xShmMap,
               (struct sqlite3_file * f, int region, int size, int extend, void volatile **out),
               (f, region, size, extend, out))
FAILING_METHOD(FAILING_SHM_LOCK, xShmLock, (struct sqlite3_file * f, int offset, int n, int flags),
               (f, offset, n, flags))
#undef FAILING_METHOD

static inline void failing_methods(enum failing_file file, const struct sqlite3_io_methods *real)
{
    pthread_mutex_lock(&failing_lock);
    if (failing_real[file] == NULL) {
        struct sqlite3_io_methods own = *real;
        own.iVersion = 2; /* no mapping of the file */
        own.xRead = failing_xRead;
        own.xWrite = failing_xWrite;
        own.xSync = failing_xSync;
        own.xFileSize = failing_xFileSize;
        own.xLock = failing_xLock;
        own.xShmMap = failing_xShmMap;
        own.xShmLock = failing_xShmLock;
        failing_own[file] = own;
        failing_real[file] = real;
    }
    pthread_mutex_unlock(&failing_lock);
}

static inline int failing_open(struct sqlite3_vfs *v, const char *name, struct sqlite3_file *f,
                               int flags, int *flags_out)
{
    (void)v;
    int code = failing_strikes(FAILING_OPEN, FAILING_ANY);
    if (code != 0) {
        f->pMethods = NULL;
        return code;
    }
    int r = failing_under->xOpen(failing_under, name, f, flags, flags_out);
    if (r == SQLITE_OK && (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_WAL)) != 0) {
        enum failing_file file = (flags & SQLITE_OPEN_WAL) != 0 ? FAILING_LOG : FAILING_DATABASE;
        failing_methods(file, f->pMethods);
        f->pMethods = &failing_own[file];
        pthread_mutex_lock(&failing_lock);
        failing_now.opened += file == FAILING_DATABASE;
        pthread_mutex_unlock(&failing_lock);
    }
    return r;
}

static inline int failing_access(struct sqlite3_vfs *v, const char *name, int flags, int *out)
{
    (void)v;
    int code = failing_strikes(FAILING_ACCESS, FAILING_ANY);
    return code != 0 ? code : failing_under->xAccess(failing_under, name, flags, out);
}

/* Makes it the default; files that are open keep theirs. */
static inline int failing_register(void)
{
    failing_under = sqlite3_vfs_find(NULL);
    failing_vfs = *failing_under;
    failing_vfs.pNext = NULL;
    failing_vfs.zName = "failing";
    failing_vfs.xOpen = failing_open;
    failing_vfs.xAccess = failing_access;
    failing_now = (struct failing){0};
    return sqlite3_vfs_register(&failing_vfs, 1);
}

static inline void failing_unregister(void)
{
    (void)sqlite3_vfs_unregister(&failing_vfs);
    (void)sqlite3_vfs_register(failing_under, 1);
}

#endif
