/* os_real: the table of calls that go to the kernel (Linux).
 *
 * Every function is one system call with three habits: a failure is returned as a negative errno,
 * EINTR is retried where a retry is right, and a descriptor is born close-on-exec (sockets
 * non-blocking as well). Where a plain retry is wrong the function says so: close() gives the
 * descriptor up even when it reports EINTR, and an interrupted connect() goes on by itself.
 *
 * Power failure: fdatasync and fsync are the only promises. An EINTR from them has written no page
 * off (that is what EIO does), so asking again is sound; any other failure is passed up and never
 * retried here.
 *
 * long: one function a call, of one or two lines, and each with its neighbours.
 *
 * Answers: every error is returned. Aborts: a clock that cannot be read, which Linux does not
 * produce. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/ensure.h"
#include "os/os.h"
#include "os/os_internal.h"

/* Evaluates a system call until it is not interrupted; gives its result or a negative errno. */
#define RETRY(type, call)                        \
    do {                                         \
        type result_;                            \
        do {                                     \
            result_ = (call);                    \
        } while (result_ < 0 && errno == EINTR); \
        return result_ < 0 ? -errno : result_;   \
    } while (0)

/* ---- files ---- */

static int real_open(const char *path, int flags, unsigned mode)
{
    RETRY(int, open(path, flags | O_CLOEXEC, (mode_t)mode));
}

static int real_close(int fd)
{
    /* Linux has released the descriptor whatever close() says: a retry could close somebody else's.
     */
    if (close(fd) < 0 && errno != EINTR) {
        return -errno;
    }
    return 0;
}

static int64_t real_pread(int fd, void *p, size_t n, uint64_t offset)
{
    RETRY(ssize_t, pread(fd, p, n, (off_t)offset));
}

static int64_t real_pwrite(int fd, const void *p, size_t n, uint64_t offset)
{
    RETRY(ssize_t, pwrite(fd, p, n, (off_t)offset));
}

static int real_fdatasync(int fd)
{
    RETRY(int, fdatasync(fd));
}

static int real_fsync(int fd)
{
    RETRY(int, fsync(fd));
}

static int real_ftruncate(int fd, uint64_t size)
{
    RETRY(int, ftruncate(fd, (off_t)size));
}

static void stat_take(struct os_stat *to, const struct stat *from)
{
    to->size = (uint64_t)from->st_size;
    to->inode = (uint64_t)from->st_ino;
    to->device = (uint64_t)from->st_dev;
    to->mode = (unsigned)from->st_mode;
    to->mtime_ms =
        (uint64_t)from->st_mtim.tv_sec * 1000 + (uint64_t)from->st_mtim.tv_nsec / 1000000;
}

static int real_fstat(int fd, struct os_stat *st)
{
    struct stat from;

    if (fstat(fd, &from) < 0) {
        return -errno;
    }
    stat_take(st, &from);
    return 0;
}

static int real_stat(const char *path, struct os_stat *st)
{
    struct stat from;

    if (stat(path, &from) < 0) {
        return -errno;
    }
    stat_take(st, &from);
    return 0;
}

static int real_rename(const char *from, const char *to)
{
    RETRY(int, rename(from, to));
}

static int real_rename_new(const char *from, const char *to)
{
    RETRY(int, renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE));
}

static int real_link(const char *from, const char *to)
{
    RETRY(int, link(from, to));
}

static int real_rmdir(const char *path)
{
    RETRY(int, rmdir(path));
}

static int real_unlink(const char *path)
{
    RETRY(int, unlink(path));
}

static int real_mkdir(const char *path, unsigned mode)
{
    RETRY(int, mkdir(path, (mode_t)mode));
}

static int real_list(const char *path, os_list_fn *fn, void *ctx)
{
    DIR *dir = opendir(path);
    int result = 0;

    if (dir == NULL) {
        return -errno;
    }
    while (result == 0) {
        struct dirent *entry;

        errno = 0; /* readdir tells its end from a failure only by errno */
        entry = readdir(dir);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            result = fn(ctx, entry->d_name);
        }
    }
    (void)closedir(dir); /* nothing was written through it */
    return result;
}

static int real_flock(int fd, int operation)
{
    RETRY(int, flock(fd, operation));
}

static int real_drop_cache(int fd)
{
    /* Drops clean pages only: the caller syncs first. posix_fadvise returns the errno itself. */
    return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int file_system(const char *path, struct statvfs *fs)
{
    RETRY(int, statvfs(path, fs));
}

static uint64_t blocks_bytes(uint64_t blocks, uint64_t block_bytes)
{
    uint64_t bytes;

    return __builtin_mul_overflow(blocks, block_bytes, &bytes) ? UINT64_MAX : bytes;
}

static int real_free_space(const char *path, uint64_t *bytes)
{
    struct statvfs fs;
    int got = file_system(path, &fs);

    if (got == 0) {
        *bytes = blocks_bytes(fs.f_bavail, fs.f_frsize);
    }
    return got;
}

static int call_statfs(const char *path, struct statfs *fs)
{
    RETRY(int, statfs(path, fs));
}

static int real_disk(const char *path, struct os_disk *out)
{
    struct statfs fs;
    int got = call_statfs(path, &fs);

    if (got == 0) {
        uint64_t block = fs.f_frsize > 0 ? (uint64_t)fs.f_frsize : (uint64_t)fs.f_bsize;
        *out = (struct os_disk){.bytes = blocks_bytes(fs.f_blocks, block),
                                .free_bytes = blocks_bytes(fs.f_bavail, block),
                                .inodes = fs.f_files,
                                .free_inodes = fs.f_ffree,
                                .kind = (uint64_t)fs.f_type & UINT32_MAX};
    }
    return got;
}

/* ---- time and chance ---- */

static struct timespec clock_read(clockid_t id)
{
    struct timespec now;

    ensure(clock_gettime(id, &now) == 0);
    ensure(now.tv_sec >= 0);
    return now;
}

static uint64_t real_clock_real_ms(void)
{
    struct timespec now = clock_read(CLOCK_REALTIME);

    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t real_clock_mono_ns(void)
{
    struct timespec now = clock_read(CLOCK_MONOTONIC);

    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int real_random(void *p, size_t n)
{
    unsigned char *bytes = p;
    size_t done = 0;

    while (done < n) {
        ssize_t got = getrandom(bytes + done, n - done, 0);

        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got > 0) {
            done += (size_t)got;
        }
    }
    return 0;
}

/* ---- descriptors without a place in a file ---- */

static int64_t real_read(int fd, void *p, size_t n)
{
    RETRY(ssize_t, read(fd, p, n));
}

static int64_t real_write(int fd, const void *p, size_t n)
{
    RETRY(ssize_t, write(fd, p, n));
}

static int64_t real_recv(int fd, void *p, size_t n)
{
    RETRY(ssize_t, recv(fd, p, n, MSG_DONTWAIT));
}

static int64_t real_sendv(int fd, const struct iovec *iov, int count)
{
    struct msghdr message = {0};

    if (count < 0) {
        return -EINVAL;
    }
    if (count == 1) { /* nearly always; it costs the kernel less */
        RETRY(ssize_t, send(fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    /* sendmsg does not write through msg_iov; the type says otherwise for recvmsg's sake. */
    memcpy(&message.msg_iov, &iov, sizeof iov);
    message.msg_iovlen = (size_t)count;
    RETRY(ssize_t, sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

static int real_shutdown(int fd, int how)
{
    RETRY(int, shutdown(fd, how));
}

static int real_socket(int domain, int type, int protocol)
{
    RETRY(int, socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

static int real_bind(int fd, const struct sockaddr *a, unsigned len)
{
    RETRY(int, bind(fd, a, (socklen_t)len));
}

static int real_listen(int fd, int backlog)
{
    RETRY(int, listen(fd, backlog));
}

static int real_accept(int fd)
{
    RETRY(int, accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

static int real_connect(int fd, const struct sockaddr *a, unsigned len)
{
    if (connect(fd, a, (socklen_t)len) < 0) {
        /* An interrupted connect goes on in the background, as a non-blocking one does. */
        return errno == EINTR ? -EINPROGRESS : -errno;
    }
    return 0;
}

static int real_setsockopt(int fd, int level, int name, const void *v, unsigned len)
{
    RETRY(int, setsockopt(fd, level, name, v, (socklen_t)len));
}

static int real_getpeername(int fd, struct sockaddr *a, unsigned *len)
{
    RETRY(int, getpeername(fd, a, len));
}

static int real_getsockname(int fd, struct sockaddr *a, unsigned *len)
{
    RETRY(int, getsockname(fd, a, len));
}

static int real_epoll_create(void)
{
    RETRY(int, epoll_create1(EPOLL_CLOEXEC));
}

static int real_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
    RETRY(int, epoll_ctl(ep, op, fd, ev));
}

static int real_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
    int got = epoll_wait(ep, ev, max, timeout_ms);

    if (got < 0) {
        /* No retry: the timeout has partly run. A turn of the loop without events is harmless. */
        return errno == EINTR ? 0 : -errno;
    }
    return got;
}

static int real_eventfd(void)
{
    RETRY(int, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int real_signalfd(const int *signals, int count)
{
    sigset_t wanted;
    sigset_t before;
    int fd;

    (void)sigemptyset(&wanted);
    for (int i = 0; i < count; i++) {
        if (sigaddset(&wanted, signals[i]) < 0) {
            return -errno;
        }
    }
    /* Blocked first: a signal between the two calls then waits for the descriptor. */
    ensure(pthread_sigmask(SIG_BLOCK, &wanted, &before) == 0);
    fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        int failed = errno;

        ensure(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
        return -failed;
    }
    return fd;
}

static int real_raise_nofile(uint64_t *limit)
{
    struct rlimit now;

    ensure(getrlimit(RLIMIT_NOFILE, &now) == 0);
    if (now.rlim_cur != now.rlim_max) {
        now.rlim_cur = now.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &now) < 0) {
            return -errno;
        }
    }
    *limit = (uint64_t)now.rlim_cur;
    return 0;
}

/* ---- processes: pipes, spawning and forking are in os_process.c ---- */

static int real_wait_child(int pid, int *status)
{
    RETRY(int, (int)waitpid((pid_t)pid, status, WNOHANG));
}

static int real_kill(int pid, int signal)
{
    return kill((pid_t)pid, signal) < 0 ? -errno : 0;
}

static int real_chdir(const char *path)
{
    RETRY(int, chdir(path));
}

/* The absolute path of the running executable, NUL-terminated. */
static int real_program(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size);
    if (n < 0) {
        return -errno;
    }
    if ((size_t)n >= size) {
        return -ENAMETOOLONG;
    }
    path[n] = '\0';
    return 0;
}

static int real_set_nice(int nice)
{
    return setpriority(PRIO_PROCESS, 0, nice) < 0 ? -errno : 0;
}

static int real_poll(struct pollfd *fds, unsigned count, int timeout_ms)
{
    int got = poll(fds, count, timeout_ms);

    if (got < 0) {
        /* No retry: the time has partly run, and who asks looks at a clock of its own. */
        return errno == EINTR ? 0 : -errno;
    }
    return got;
}

static int real_poll_in(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return real_poll(&p, 1, timeout_ms);
}

static int real_reserve(int fd, uint64_t offset, uint64_t n)
{
    RETRY(int, fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)n));
}

static int real_write_back(int fd, uint64_t offset, uint64_t n, bool wait)
{
    unsigned flags = SYNC_FILE_RANGE_WRITE;

    if (wait) {
        flags |= SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
    }
    RETRY(int, sync_file_range(fd, (off_t)offset, (off_t)n, flags));
}

static int real_drop_range(int fd, uint64_t offset, uint64_t n)
{
    return -posix_fadvise(fd, (off_t)offset, (off_t)n, POSIX_FADV_DONTNEED);
}

static int real_watch_dir(const char *path)
{
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int error;

    if (fd < 0) {
        return -errno;
    }
    if (inotify_add_watch(fd, path, IN_MOVED_TO | IN_ONLYDIR) < 0) {
        error = errno;
        (void)close(fd);
        return -error;
    }
    return fd;
}

const struct os_table os_real = {
#define X(ret, name, params, args) .name = real_##name,
    OS_FILE_CALLS(X) OS_OTHER_CALLS(X)
#undef X
};
