/* os: the only way to the system (ARCHITECTURE section 6). One table of pointers, replaceable by
 * tests.
 *
 * Results: 0, a descriptor or a count; a negative errno on failure. EINTR is hidden. Descriptors
 * are close-on-exec, sockets from os_accept and os_socket are non-blocking. Blocking: file calls
 * block, socket calls do not. */
#ifndef OS_OS_H
#define OS_OS_H

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "os/os_calls.h"

struct os_stat {
    uint64_t size;
    uint64_t inode;
    uint64_t device;
    unsigned mode;     /* st_mode, type bits included */
    uint64_t mtime_ms; /* of the last change of content, Unix time */
};

struct os_disk {
    uint64_t bytes, free_bytes;   /* of the file system; free: to us */
    uint64_t inodes, free_inodes; /* 0 and 0: it does not count them */
    uint64_t kind;                /* f_type of statfs(2) */
};

/* Called for each entry of a directory ("." and ".." left out); non-zero stops and is returned by
 * os_list. */
typedef int os_list_fn(void *ctx, const char *name);

struct os_table {
#define X(ret, name, params, args) ret(*name) params;
    OS_FILE_CALLS(X) OS_OTHER_CALLS(X)
#undef X
};

extern const struct os_table os_real; /* the kernel */

/* Replaces the table (tests only; not while other threads run). NULL brings the kernel back. */
void os_install(const struct os_table *table);
const struct os_table *os_current(void);

/* os_NAME(...) for each call of the list. */
#define X(ret, name, params, args) ret os_##name params;
OS_FILE_CALLS(X)
OS_OTHER_CALLS(X)
#undef X

/* Composites; each is made of the calls above, so that faults reach every step. */

/* Writes all n bytes, going on after short writes. *written (may be NULL) is how many are in the
 * file even when it fails. A write that returns 0 counts as EIO. */
int os_pwrite_all(int fd, const void *p, size_t n, uint64_t offset, size_t *written);
/* Reads until n bytes or the end of the file; returns the count or a negative errno. */
int64_t os_pread_full(int fd, void *p, size_t n, uint64_t offset);
/* Opens the directory, fsyncs, closes. Returns the first failure. */
int os_sync_dir(const char *path);
/* mkdir that takes an existing directory for success. */
int os_mkdir_exist_ok(const char *path, unsigned mode);

#endif
