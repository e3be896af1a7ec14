/* os_landlock: Landlock, seccomp, and what deciding about them needs (os_real.c's habits hold
 * here). The C library has no functions for Landlock. The kernel's structures are written out,
 * because the headers of a distribution can be older than the kernel that runs. */
#include <errno.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/ensure.h"
#include "os/os.h"
#include "os/os_internal.h"

/* The same numbers on all machines. */
#define LANDLOCK_CREATE   444
#define LANDLOCK_ADD      445
#define LANDLOCK_RESTRICT 446

#define RULE_PATH 1u
#define RULE_PORT 2u

struct ruleset {
    uint64_t files;
    uint64_t net;    /* since version 4 */
    uint64_t scopes; /* since version 6 */
};

struct path_rule {
    uint64_t rights;
    int32_t parent;
} __attribute__((packed));

struct port_rule {
    uint64_t rights;
    uint64_t port;
};

/* Rights that a rule for a file, and no directory, can have: execute, write, read, truncate, ioctl.
 */
#define FILE_RIGHTS \
    (UINT64_C(1) | UINT64_C(2) | UINT64_C(4) | UINT64_C(1) << 14 | UINT64_C(1) << 15)

int real_landlock_abi(void)
{
    long version = syscall(LANDLOCK_CREATE, NULL, (size_t)0, 1u);

    return version < 0 ? -errno : (int)version;
}

int real_landlock_create(uint64_t files, uint64_t net, uint64_t scopes)
{
    const struct ruleset r = {files, net, scopes};
    /* An older kernel takes a longer structure only as far as the rest is zero; that is so. */
    long fd = syscall(LANDLOCK_CREATE, &r, sizeof r, 0u);

    return fd < 0 ? -errno : (int)fd;
}

int real_landlock_path(int rules, const char *path, uint64_t rights)
{
    struct path_rule rule = {.rights = rights};
    struct stat st;
    int fd = open(path, O_PATH | O_CLOEXEC);
    int failed = 0;

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) < 0) {
        failed = errno;
    } else {
        rule.parent = fd;
        rule.rights &= S_ISDIR(st.st_mode) ? UINT64_MAX : FILE_RIGHTS;
        if (rule.rights != 0 && syscall(LANDLOCK_ADD, rules, RULE_PATH, &rule, 0u) < 0) {
            failed = errno;
        }
    }
    (void)close(fd);
    return -failed;
}

int real_landlock_port(int rules, uint64_t port, uint64_t rights)
{
    const struct port_rule rule = {rights, port};

    return syscall(LANDLOCK_ADD, rules, RULE_PORT, &rule, 0u) < 0 ? -errno : 0;
}

int real_landlock_enter(int rules)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    return syscall(LANDLOCK_RESTRICT, rules, 0u) < 0 ? -errno : 0;
}

int real_seccomp(const struct sock_filter *code, unsigned count)
{
    struct sock_fprog program = {.len = (unsigned short)count};
    long laid;

    ensure(count <= BPF_MAXINSNS);
    memcpy(&program.filter, &code, sizeof code); /* the kernel only reads */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    laid = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    /* Positive: a thread that could not take it. */
    return laid < 0 ? -errno : laid > 0 ? -EBUSY : 0;
}

int real_core_limit(uint64_t *bytes)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_CORE, &now) < 0) {
        return -errno;
    }
    *bytes = now.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)now.rlim_cur;
    return 0;
}
