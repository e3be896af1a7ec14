/* faults: see faults.h. The wrapper keeps one table beneath, one armed fault, and the path of each
 * descriptor that was opened through it, so that faults can be aimed at a file. All of it is behind
 * one lock, which is not held while a call below runs.
 *
 * Power failure does not concern it. Aborts: being installed twice. */
#include "tests/lib/faults.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

#define OPEN_MAX_TRACKED  4096
#define PATH_TRACKED_SIZE 256

struct tracked {
    int fd;
    char path[PATH_TRACKED_SIZE];
};

static pthread_mutex_t faults_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct os_table *below;
static struct os_table table;
static struct fault armed;
static struct tracked tracked[OPEN_MAX_TRACKED];
static size_t tracked_count;
static void (*watcher)(void);
static char struck[PATH_TRACKED_SIZE + 32]; /* the last call that failed, and its file */

const char *os_call_name(enum os_call call)
{
    static const char *const names[OS_CALL_COUNT] = {[OS_CALL_ANY] = "any",
                                                     [OS_CALL_FILE_END] = "end",
#define X(ret, name, params, args) [OS_CALL_##name] = #name,
                                                     OS_FILE_CALLS(X) OS_OTHER_CALLS(X)
#undef X
    };

    ensure(call < OS_CALL_COUNT);
    return names[call];
}

bool fault_hit(struct fault *fault, enum os_call call, const char *path)
{
    bool wanted = fault->call == OS_CALL_ANY ? call < OS_CALL_FILE_END : fault->call == call;

    if (wanted && fault->path != NULL) {
        wanted = path != NULL && strstr(path, fault->path) != NULL;
    }
    if (!wanted) {
        return false;
    }
    fault->seen++;
    if (fault->at == 0 || fault->seen < fault->at || (fault->seen > fault->at && !fault->sticky)) {
        return false;
    }
    fault->fired++;
    return true;
}

static const char *tracked_path(int fd)
{
    for (size_t i = tracked_count; i > 0; i--) {
        if (tracked[i - 1].fd == fd) {
            return tracked[i - 1].path;
        }
    }
    return NULL;
}

static void track_open(int fd, const char *path)
{
    struct tracked *to;

    (void)pthread_mutex_lock(&faults_lock);
    if (tracked_count == OPEN_MAX_TRACKED) {
        /* Descriptors lost in a simulated crash are never closed: forget the oldest. */
        memmove(tracked, tracked + 1, (OPEN_MAX_TRACKED - 1) * sizeof tracked[0]);
        tracked_count--;
    }
    to = &tracked[tracked_count++];
    to->fd = fd;
    strncpy(to->path, path, sizeof to->path - 1);
    to->path[sizeof to->path - 1] = '\0';
    (void)pthread_mutex_unlock(&faults_lock);
}

static void track_close(int fd)
{
    (void)pthread_mutex_lock(&faults_lock);
    for (size_t i = 0; i < tracked_count; i++) {
        if (tracked[i].fd == fd) {
            tracked[i] = tracked[--tracked_count];
            break;
        }
    }
    (void)pthread_mutex_unlock(&faults_lock);
}

/* Counts the call. True when the armed fault strikes it; *fault is then a copy. */
static bool strikes(enum os_call call, const char *path, int fd, struct fault *fault)
{
    bool hit;

    (void)pthread_mutex_lock(&faults_lock);
    if (path == NULL) {
        path = tracked_path(fd);
    }
    uint64_t before = armed.seen;
    hit = fault_hit(&armed, call, path);
    *fault = armed;
    if (watcher != NULL && armed.seen > before) {
        watcher();
    }
    if (hit) {
        (void)snprintf(struck, sizeof struck, "%s %s", os_call_name(call),
                       path != NULL ? path : "?");
    }
    (void)pthread_mutex_unlock(&faults_lock);
    return hit;
}

static size_t half(size_t n)
{
    return n - n / 2;
}

/* The body of a call whose count cannot be shortened. path is NULL for calls on a descriptor. */
#define FAULTY(ret, name, path, fd, args)                       \
    do {                                                        \
        struct fault fault_;                                    \
        bool hit_ = strikes(OS_CALL_##name, path, fd, &fault_); \
        if (hit_ && fault_.kind == FAULT_ERROR) {               \
            return (ret)-fault_.error;                          \
        }                                                       \
        if (hit_ && fault_.kind == FAULT_ZERO) {                \
            return 0;                                           \
        }                                                       \
        if (hit_ && fault_.kind == FAULT_ERROR_AFTER) {         \
            (void)below->name args;                             \
            return (ret)-fault_.error;                          \
        }                                                       \
        return below->name args;                                \
    } while (0)

/* The body of a read or write of n bytes. */
#define FAULTY_COUNT(name, fd, n, args)                         \
    do {                                                        \
        struct fault fault_;                                    \
        bool hit_ = strikes(OS_CALL_##name, NULL, fd, &fault_); \
        if (hit_ && fault_.kind == FAULT_ERROR) {               \
            return -fault_.error;                               \
        }                                                       \
        if (hit_ && fault_.kind == FAULT_ZERO) {                \
            return 0;                                           \
        }                                                       \
        if (hit_ && fault_.kind == FAULT_SHORT) {               \
            n = half(n);                                        \
        }                                                       \
        if (hit_ && fault_.kind == FAULT_ERROR_AFTER) {         \
            (void)below->name args;                             \
            return -fault_.error;                               \
        }                                                       \
        return below->name args;                                \
    } while (0)

/* ---- calls on files ---- */

static int faulty_open(const char *path, int flags, unsigned mode)
{
    struct fault fault;
    bool hit = strikes(OS_CALL_open, path, -1, &fault);
    int fd;

    /* "Open returned 0" would hand out a descriptor nobody opened: for open, ZERO is no fault. */
    if (hit && fault.kind == FAULT_ERROR) {
        return -fault.error;
    }
    fd = below->open(path, flags, mode);
    if (hit && fault.kind == FAULT_ERROR_AFTER) {
        if (fd >= 0) {
            (void)below->close(fd);
        }
        return -fault.error;
    }
    if (fd >= 0) {
        track_open(fd, path);
    }
    return fd;
}

static int faulty_close(int fd)
{
    struct fault fault;
    bool hit = strikes(OS_CALL_close, NULL, fd, &fault);
    int result;

    /* A close that fails has given the descriptor up all the same, as Linux does. */
    track_close(fd);
    result = below->close(fd);
    if (hit && (fault.kind == FAULT_ERROR || fault.kind == FAULT_ERROR_AFTER)) {
        return -fault.error;
    }
    return result;
}

static int64_t faulty_pread(int fd, void *p, size_t n, uint64_t offset)
{
    FAULTY_COUNT(pread, fd, n, (fd, p, n, offset));
}

static int64_t faulty_pwrite(int fd, const void *p, size_t n, uint64_t offset)
{
    FAULTY_COUNT(pwrite, fd, n, (fd, p, n, offset));
}

static int faulty_fdatasync(int fd)
{
    FAULTY(int, fdatasync, NULL, fd, (fd));
}

static int faulty_fsync(int fd)
{
    FAULTY(int, fsync, NULL, fd, (fd));
}

static int faulty_ftruncate(int fd, uint64_t size)
{
    FAULTY(int, ftruncate, NULL, fd, (fd, size));
}

static int faulty_fstat(int fd, struct os_stat *st)
{
    FAULTY(int, fstat, NULL, fd, (fd, st));
}

static int faulty_stat(const char *path, struct os_stat *st)
{
    FAULTY(int, stat, path, -1, (path, st));
}

static int faulty_rename(const char *from, const char *to)
{
    FAULTY(int, rename, from, -1, (from, to));
}

static int faulty_unlink(const char *path)
{
    FAULTY(int, unlink, path, -1, (path));
}

static int faulty_mkdir(const char *path, unsigned mode)
{
    FAULTY(int, mkdir, path, -1, (path, mode));
}

static int faulty_list(const char *path, os_list_fn *fn, void *ctx)
{
    FAULTY(int, list, path, -1, (path, fn, ctx));
}

static int faulty_flock(int fd, int operation)
{
    FAULTY(int, flock, NULL, fd, (fd, operation));
}

static int faulty_drop_cache(int fd)
{
    FAULTY(int, drop_cache, NULL, fd, (fd));
}

static int faulty_free_space(const char *path, uint64_t *bytes)
{
    FAULTY(int, free_space, path, -1, (path, bytes));
}

/* ---- the others: the same body for each, then those that can be shortened ---- */

#define X(ret, name, params, args)         \
    static ret plain_##name params         \
    {                                      \
        FAULTY(ret, name, NULL, -1, args); \
    }
OS_OTHER_CALLS(X)
#undef X

static int64_t faulty_read(int fd, void *p, size_t n)
{
    FAULTY_COUNT(read, fd, n, (fd, p, n));
}

static int64_t faulty_write(int fd, const void *p, size_t n)
{
    FAULTY_COUNT(write, fd, n, (fd, p, n));
}

static int64_t faulty_recv(int fd, void *p, size_t n)
{
    FAULTY_COUNT(recv, fd, n, (fd, p, n));
}

static int64_t faulty_sendv(int fd, const struct iovec *iov, int count)
{
    struct fault fault;
    bool hit = strikes(OS_CALL_sendv, NULL, fd, &fault);
    struct iovec first;

    if (hit && fault.kind == FAULT_SHORT && count > 0) {
        /* Half of the first piece: a socket with little room. */
        first = iov[0];
        first.iov_len = half(first.iov_len);
        return below->sendv(fd, &first, 1);
    }
    if (hit && fault.kind == FAULT_ERROR_AFTER) {
        (void)below->sendv(fd, iov, count);
        return -fault.error;
    }
    if (hit && fault.kind != FAULT_SHORT) {
        return fault.kind == FAULT_ERROR ? -fault.error : 0;
    }
    return below->sendv(fd, iov, count);
}

/* ---- control ---- */

void faults_install(const struct os_table *under)
{
    ensure(below == NULL);
    below = under != NULL ? under : os_current();
    table = (struct os_table){
#define X(ret, name, params, args) .name = faulty_##name,
        OS_FILE_CALLS(X)
#undef X
#define X(ret, name, params, args) .name = plain_##name,
            OS_OTHER_CALLS(X)
#undef X
    };
    table.read = faulty_read;
    table.write = faulty_write;
    table.recv = faulty_recv;
    table.sendv = faulty_sendv;
    table.clock_real_ms = below->clock_real_ms;
    table.clock_mono_ns = below->clock_mono_ns;
    tracked_count = 0;
    struck[0] = '\0';
    watcher = NULL;
    armed = (struct fault){0};
    os_install(&table);
}

void faults_uninstall(void)
{
    ensure(below != NULL);
    os_install(below);
    below = NULL;
}

void faults_reset(void)
{
    (void)pthread_mutex_lock(&faults_lock);
    armed = (struct fault){.call = armed.call, .path = armed.path};
    (void)pthread_mutex_unlock(&faults_lock);
}

void faults_count_only(enum os_call call, const char *path)
{
    (void)pthread_mutex_lock(&faults_lock);
    armed = (struct fault){.call = call, .path = path};
    (void)pthread_mutex_unlock(&faults_lock);
}

void faults_arm(uint64_t call_number, int error, bool sticky, enum fault_kind kind)
{
    (void)pthread_mutex_lock(&faults_lock);
    armed.at = call_number;
    armed.error = error;
    armed.sticky = sticky;
    armed.kind = kind;
    armed.fired = 0;
    (void)pthread_mutex_unlock(&faults_lock);
}

uint64_t faults_count(void)
{
    uint64_t count;

    (void)pthread_mutex_lock(&faults_lock);
    count = armed.seen;
    (void)pthread_mutex_unlock(&faults_lock);
    return count;
}

uint64_t faults_fired(void)
{
    uint64_t count;

    (void)pthread_mutex_lock(&faults_lock);
    count = armed.fired;
    (void)pthread_mutex_unlock(&faults_lock);
    return count;
}

void faults_watch(void (*fn)(void))
{
    (void)pthread_mutex_lock(&faults_lock);
    watcher = fn;
    (void)pthread_mutex_unlock(&faults_lock);
}

void faults_struck(char *out, size_t n)
{
    (void)pthread_mutex_lock(&faults_lock);
    (void)snprintf(out, n, "%s", struck);
    (void)pthread_mutex_unlock(&faults_lock);
}
