/* The list of system calls Tallyman makes, once. os.h derives the table and the wrappers from it;
 * fault injection and the model disk of the tests derive theirs.
 *
 * X(return type, name, (parameters), (arguments)). Every call returns a negative errno on failure;
 * none sets errno; none is retried inside except on EINTR (a caller never sees EINTR, but for
 * os_epoll_wait, which returns 0 events instead). Short reads and writes are the caller's to see.
 *
 * OS_FILE_CALLS touch durable state: the model disk answers all of them. reserve (blocks ahead, the
 * size stays), write_back (starts, or with `wait` also awaits, the writing of dirty pages) and
 * drop_range (gives cached pages up) are hints: nothing durable depends on them, and a caller takes
 * their failures for "not done"; but an EIO or ENOSPC of write_back says that pages were lost, and
 * is said once: a sync after it may return 0. poll_in waits until fd can be read: 1 ready, 0 time
 * is over (-1 ms: no limit), or a signal came; poll is the same for several. watch_dir gives a
 * non-blocking descriptor that can be read when a name was moved into the directory. disk:
 * all that can be asked of a file system. rename_new is a rename that never replaces: -EEXIST;
 * where the file system cannot do that, -EINVAL. It is for the places that files are delivered to,
 * which the model disk does not hold; so are link (a second name; -EEXIST, never a replacement) and
 * rmdir, for backups.
 *
 * landlock_create makes an empty set of rules that handles these rights (of files, of TCP, scopes);
 * path and port add to it; enter gives up new privileges and lays the rules on this thread and what
 * it starts from then on. seccomp does the same with a filter, for all threads. socket_pair: two
 * ends that keep messages apart; send_fd and recv_fd send one with a descriptor (-1: none).
 * spawn_sibling is spawn, but the child is this process's parent's; *pid may be set when it fails,
 * and is then to be waited for by the parent. */
#ifndef OS_CALLS_H
#define OS_CALLS_H

#define OS_FILE_CALLS(X)                                                                       \
    X(int, open, (const char *path, int flags, unsigned mode), (path, flags, mode))            \
    X(int, close, (int fd), (fd))                                                              \
    X(int64_t, pread, (int fd, void *p, size_t n, uint64_t offset), (fd, p, n, offset))        \
    X(int64_t, pwrite, (int fd, const void *p, size_t n, uint64_t offset), (fd, p, n, offset)) \
    X(int, fdatasync, (int fd), (fd))                                                          \
    X(int, fsync, (int fd), (fd))                                                              \
    X(int, ftruncate, (int fd, uint64_t size), (fd, size))                                     \
    X(int, fstat, (int fd, struct os_stat *st), (fd, st))                                      \
    X(int, stat, (const char *path, struct os_stat *st), (path, st))                           \
    X(int, rename, (const char *from, const char *to), (from, to))                             \
    X(int, unlink, (const char *path), (path))                                                 \
    X(int, mkdir, (const char *path, unsigned mode), (path, mode))                             \
    X(int, list, (const char *path, os_list_fn *fn, void *ctx), (path, fn, ctx))               \
    X(int, flock, (int fd, int operation), (fd, operation))                                    \
    X(int, drop_cache, (int fd), (fd))                                                         \
    X(int, free_space, (const char *path, uint64_t *bytes), (path, bytes))

#define OS_OTHER_CALLS(X)                                                                          \
    X(uint64_t, clock_real_ms, (void), ())                                                         \
    X(uint64_t, clock_mono_ns, (void), ())                                                         \
    X(int, random, (void *p, size_t n), (p, n))                                                    \
    X(int64_t, read, (int fd, void *p, size_t n), (fd, p, n))                                      \
    X(int64_t, write, (int fd, const void *p, size_t n), (fd, p, n))                               \
    X(int64_t, recv, (int fd, void *p, size_t n), (fd, p, n))                                      \
    X(int64_t, sendv, (int fd, const struct iovec *iov, int count), (fd, iov, count))              \
    X(int, shutdown, (int fd, int how), (fd, how))                                                 \
    X(int, socket, (int domain, int type, int protocol), (domain, type, protocol))                 \
    X(int, bind, (int fd, const struct sockaddr *a, unsigned len), (fd, a, len))                   \
    X(int, listen, (int fd, int backlog), (fd, backlog))                                           \
    X(int, accept, (int fd), (fd))                                                                 \
    X(int, connect, (int fd, const struct sockaddr *a, unsigned len), (fd, a, len))                \
    X(int, setsockopt, (int fd, int level, int name, const void *v, unsigned len),                 \
      (fd, level, name, v, len))                                                                   \
    X(int, getsockname, (int fd, struct sockaddr *a, unsigned *len), (fd, a, len))                 \
    X(int, epoll_create, (void), ())                                                               \
    X(int, epoll_ctl, (int ep, int op, int fd, struct epoll_event *ev), (ep, op, fd, ev))          \
    X(int, epoll_wait, (int ep, struct epoll_event *ev, int max, int timeout_ms),                  \
      (ep, ev, max, timeout_ms))                                                                   \
    X(int, eventfd, (void), ())                                                                    \
    X(int, signalfd, (const int *signals, int count), (signals, count))                            \
    X(int, raise_nofile, (uint64_t * limit), (limit))                                              \
    X(int, pipe, (int fds[2]), (fds))                                                              \
    X(int, spawn, (const char *path, char *const *argv, int fd), (path, argv, fd))                 \
    X(int, wait_child, (int pid, int *status), (pid, status))                                      \
    X(int, kill, (int pid, int signal), (pid, signal))                                             \
    X(int, chdir, (const char *path), (path))                                                      \
    X(int, program, (char *path, size_t size), (path, size))                                       \
    X(int, set_nice, (int nice), (nice))                                                           \
    X(int, poll_in, (int fd, int timeout_ms), (fd, timeout_ms))                                    \
    X(int, poll, (struct pollfd * fds, unsigned count, int timeout_ms), (fds, count, timeout_ms))  \
    X(int, reserve, (int fd, uint64_t offset, uint64_t n), (fd, offset, n))                        \
    X(int, write_back, (int fd, uint64_t offset, uint64_t n, bool wait), (fd, offset, n, wait))    \
    X(int, drop_range, (int fd, uint64_t offset, uint64_t n), (fd, offset, n))                     \
    X(int, watch_dir, (const char *path), (path))                                                  \
    X(int, disk, (const char *path, struct os_disk *out), (path, out))                             \
    X(int, getpeername, (int fd, struct sockaddr *a, unsigned *len), (fd, a, len))                 \
    X(int, rename_new, (const char *from, const char *to), (from, to))                             \
    X(int, core_limit, (uint64_t * bytes), (bytes))                                                \
    X(int, landlock_abi, (void), ())                                                               \
    X(int, landlock_create, (uint64_t files, uint64_t net, uint64_t scopes), (files, net, scopes)) \
    X(int, landlock_path, (int rules, const char *path, uint64_t rights), (rules, path, rights))   \
    X(int, landlock_port, (int rules, uint64_t port, uint64_t rights), (rules, port, rights))      \
    X(int, landlock_enter, (int rules), (rules))                                                   \
    X(int, seccomp, (const struct sock_filter *code, unsigned count), (code, count))               \
    X(int, fork, (void), ())                                                                       \
    X(int, socket_pair, (int fds[2]), (fds))                                                       \
    X(int64_t, send_fd, (int to, const void *p, size_t n, int fd), (to, p, n, fd))                 \
    X(int64_t, recv_fd, (int from, void *p, size_t n, int *fd), (from, p, n, fd))                  \
    X(int, spawn_sibling, (const char *path, char *const *argv, int fd, int *pid),                 \
      (path, argv, fd, pid))                                                                       \
    X(int, link, (const char *from, const char *to), (from, to))                                   \
    X(int, rmdir, (const char *path), (path))

#endif
