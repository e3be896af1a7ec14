/* os_process: pipes, and how children begin (os_real.c's habits hold here).
 *
 * spawn is posix_spawn. spawn_sibling is made of clone(CLONE_PARENT) and execve, since posix_spawn
 * cannot give a child to its caller's parent: between the two only plain system calls are made. It
 * is for a process of one thread (main/spawner.c). What fails behind the clone is told through a
 * pipe that execve closes. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"
#include "os/os_internal.h"

#define EXIT_NOT_STARTED 127

int real_pipe(int fds[2])
{
    return pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
}

/* What the child is born with: nothing at its standard input, this process's standard error at its
 * outputs, fd as descriptor 3 (when it is not negative) and no other; no signal blocked or ignored;
 * a process group of its own, so that a terminal's Ctrl-C reaches only its parent; of the
 * environment the variables below. */
static int spawn_prepare(posix_spawn_file_actions_t *files, posix_spawnattr_t *attributes, int fd)
{
    sigset_t none;
    sigset_t all;
    int failed;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    failed = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(files, 2, 1);
    }
    if (failed == 0 && fd >= 0) {
        failed = posix_spawn_file_actions_adddup2(files, fd, 3);
    }
    if (failed == 0) {
        failed = posix_spawnattr_setflags(
            attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    }
    if (failed == 0) {
        failed = posix_spawnattr_setsigmask(attributes, &none);
    }
    if (failed == 0) {
        failed = posix_spawnattr_setsigdefault(attributes, &all);
    }
    return failed == 0 ? posix_spawnattr_setpgroup(attributes, 0) : failed;
}

/* The variables that a child gets, where this process has them: what programs need to run, and
 * nothing that is somebody's secret (tokens, keys of clouds), which a library might use or show. */
static const char *const environment[] = {
    "PATH=",
    "HOME=",
    "TMPDIR=",
    "LANG=",
    "LC_ALL=",
    "TZ=",
    "LD_PRELOAD=",
    "LD_LIBRARY_PATH=",
    "ASAN_OPTIONS=",
    "TSAN_OPTIONS=",
    "UBSAN_OPTIONS=",
    "LLVM_PROFILE_FILE=",
    "CURL_CA_BUNDLE=", /* a path */
    "TALLYMAN_DELIVERY_BACKOFF_MS=",
};

#define ENVIRONMENT_COUNT (sizeof environment / sizeof *environment)

static void environment_take(char *out[ENVIRONMENT_COUNT + 1])
{
    size_t n = 0;

    for (size_t i = 0; i < ENVIRONMENT_COUNT; i++) {
        for (char **p = environ; *p != NULL; p++) {
            if (strncmp(*p, environment[i], strlen(environment[i])) == 0) {
                out[n++] = *p;
                break;
            }
        }
    }
    out[n] = NULL;
}

int real_spawn(const char *path, char *const *argv, int fd)
{
    char *env[ENVIRONMENT_COUNT + 1];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    pid_t pid = 0;
    int failed = posix_spawn_file_actions_init(&files);

    if (failed != 0) {
        return -failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = spawn_prepare(&files, &attributes, fd);
        if (failed == 0) {
            environment_take(env);
            failed = posix_spawn(&pid, path, &files, &attributes, argv, env);
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return failed != 0 ? -failed : (int)pid;
}

int real_fork(void)
{
    pid_t pid = fork();

    return pid < 0 ? -errno : (int)pid;
}

int real_socket_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : 0;
}

/* A message of one piece and at most one descriptor. */
struct message {
    struct msghdr header;
    struct iovec piece;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
};

static void message_begin(struct message *m, void *p, size_t n)
{
    memset(m, 0, sizeof *m);
    m->piece = (struct iovec){.iov_base = p, .iov_len = n};
    m->header.msg_iov = &m->piece;
    m->header.msg_iovlen = 1;
}

int64_t real_send_fd(int to, const void *p, size_t n, int fd)
{
    struct message m;
    void *bytes;
    ssize_t sent;

    memcpy(&bytes, &p, sizeof bytes); /* sendmsg does not write through it */
    message_begin(&m, bytes, n);
    if (fd >= 0) {
        struct cmsghdr *c;
        m.header.msg_control = m.control;
        m.header.msg_controllen = sizeof m.control;
        c = CMSG_FIRSTHDR(&m.header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    do {
        sent = sendmsg(to, &m.header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

int64_t real_recv_fd(int from, void *p, size_t n, int *fd)
{
    struct message m;
    struct cmsghdr *c;
    ssize_t got;

    message_begin(&m, p, n);
    m.header.msg_control = m.control;
    m.header.msg_controllen = sizeof m.control;
    *fd = -1;
    do {
        got = recvmsg(from, &m.header, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return -errno;
    }
    c = CMSG_FIRSTHDR(&m.header);
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof *fd)) {
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    }
    return got;
}

/* In the new process: what spawn_prepare asks for, by hand. Ends it when something fails. */
static void become(const char *path, char *const *argv, int fd, int tell)
{
    char *env[ENVIRONMENT_COUNT + 1];
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    int null;
    int high;
    int failed;

    (void)sigemptyset(&none);
    for (int signal = 1; signal < NSIG; signal++) {
        (void)sigaction(signal, &plain, NULL); /* some cannot be set, and need not */
    }
    environment_take(env);
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* What is to become descriptor 3 must not lie where another is to be, and dup2 onto itself
     * would leave it close-on-exec. */
    high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 4);
    if (null >= 0 && dup2(null, 0) == 0 && dup2(2, 1) == 1 && (fd < 0 || dup2(high, 3) == 3) &&
        setpgid(0, 0) == 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0) {
        (void)execve(path, argv, env);
    }
    failed = errno;
    (void)!write(tell, &failed, sizeof failed);
    _exit(EXIT_NOT_STARTED);
}

int real_spawn_sibling(const char *path, char *const *argv, int fd, int *pid)
{
    int told[2];
    int failed = 0;
    ssize_t n;
    long child;

    *pid = 0;
    if (pipe2(told, O_CLOEXEC) < 0) {
        return -errno;
    }
    /* Descriptor 3 is the child's to lay something on: the pipe must not be there. */
    if (told[1] <= 3) {
        int moved = fcntl(told[1], F_DUPFD_CLOEXEC, 4);
        (void)close(told[1]);
        told[1] = moved;
    }
    child = syscall(SYS_clone, (unsigned long)(CLONE_PARENT | SIGCHLD), NULL, NULL, NULL, NULL);
    if (child == 0) {
        become(path, argv, fd, told[1]);
    }
    failed = child < 0 ? errno : 0;
    (void)close(told[1]);
    if (child > 0) {
        *pid = (int)child;
        do {
            n = read(told[0], &failed, sizeof failed);
        } while (n < 0 && errno == EINTR);
    }
    (void)close(told[0]);
    return -failed;
}
