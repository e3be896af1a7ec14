/* test_sandbox: a process that has entered a sandbox tries what it must not and what it must still
 * be able to do; and the decisions, on kernels that have less.
 *
 * Each attempt is made in a process of its own, which says with its exit code what came of it: an
 * errno, or 0. On a kernel without Landlock or seccomp these tests fail: CI must have both. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "os/sandbox.h"
#include "os/sandbox_internal.h"

static char base[64];   /* /tmp/sandbox-test-... */
static char inside[80]; /* base/in, which the sandbox names */
static char file[96];   /* base/file, outside */
static int listener;    /* on loopback */
static uint16_t port;

static int setup(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd;

    (void)state;
    log_set_level(LOG_ERROR + 1);
    (void)snprintf(base, sizeof base, "/tmp/sandbox-test-XXXXXX");
    if (mkdtemp(base) == NULL) {
        return -1;
    }
    (void)snprintf(inside, sizeof inside, "%s/in", base);
    (void)snprintf(file, sizeof file, "%s/file", base);
    fd = open(file, O_CREAT | O_WRONLY, 0600);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || close(fd) != 0 || mkdir(inside, 0700) != 0 ||
        bind(listener, (struct sockaddr *)&a, sizeof a) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&a, &n) != 0) {
        return -1;
    }
    port = ntohs(a.sin_port);
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    (void)close(listener);
    (void)snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command);
}

/* ---- attempts: 0 or an errno ---- */

typedef int attempt(void);

static int result(long r)
{
    return r < 0 ? errno : 0;
}

static const char *at(const char *folder, const char *name)
{
    static char path[4][160];
    static unsigned next;

    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static int write_inside(void)
{
    int fd = open(at(inside, "a"), O_CREAT | O_RDWR, 0600);
    return fd < 0 || write(fd, "x", 1) != 1 || fsync(fd) != 0 || ftruncate(fd, 0) != 0 ||
                   rename(at(inside, "a"), at(inside, "b")) != 0 ||
                   mkdir(at(inside, "d"), 0700) != 0 ||
                   rename(at(inside, "b"), at(inside, "d/b")) != 0 ||
                   unlink(at(inside, "d/b")) != 0 || rmdir(at(inside, "d")) != 0
               ? errno
               : 0;
}

static int make_outside(void)
{
    return result(open(at(base, "new"), O_CREAT | O_WRONLY, 0600));
}

static int write_outside(void)
{
    return result(open(file, O_WRONLY));
}

static int read_outside(void)
{
    return result(open(file, O_RDONLY));
}

static int list_outside(void)
{
    return result(open(base, O_RDONLY | O_DIRECTORY));
}

static int truncate_outside(void)
{
    return result(truncate(file, 0));
}

static int unlink_outside(void)
{
    return result(unlink(file));
}

static int rename_out(void)
{
    int fd = open(at(inside, "r"), O_CREAT | O_WRONLY, 0600);
    return fd < 0 ? errno : result(rename(at(inside, "r"), at(base, "r")));
}

static int link_inside(void)
{
    return result(symlink("/etc", at(inside, "link")));
}

/* Links that were there before the sandbox. */
static int write_through_link(void)
{
    return result(open(at(inside, "out"), O_WRONLY));
}

static int make_through_link(void)
{
    return result(open(at(inside, "up/new"), O_CREAT | O_WRONLY, 0600));
}

static int read_libraries(void)
{
    return result(open("/etc/passwd", O_RDONLY));
}

static int write_null(void)
{
    return result(open("/dev/null", O_RDWR));
}

static int unix_socket_inside(void)
{
    struct sockaddr_un {
        sa_family_t family;
        char path[100];
    } a = {.family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(a.path, sizeof a.path, "%s/sock", inside);
    return fd < 0 ? errno : result(bind(fd, (struct sockaddr *)&a, sizeof a));
}

static int connect_to(uint16_t to)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(to)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : result(connect(fd, (struct sockaddr *)&a, sizeof a));
}

static int connect_named(void)
{
    return connect_to(port);
}

static int connect_other(void)
{
    return connect_to((uint16_t)(port ^ 1));
}

static int bind_to(uint16_t to)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(to)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : result(bind(fd, (struct sockaddr *)&a, sizeof a));
}

static int bind_free(void)
{
    return bind_to(0);
}

static int bind_other(void)
{
    return bind_to(40001);
}

static int packet_socket(void)
{
    return result(socket(AF_VSOCK, SOCK_STREAM, 0));
}

static int netlink_socket(void)
{
    return result(socket(AF_NETLINK, SOCK_RAW, 0));
}

static int execute(void)
{
    char name[] = "true";
    char *argv[] = {name, NULL};
    char *env[] = {NULL};
    return result(execve("/bin/true", argv, env));
}

static int trace_parent(void)
{
    return result(ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
}

static int do_mount(void)
{
    return result(mount("none", inside, "tmpfs", 0, NULL));
}

static int new_namespace(void)
{
    return result(unshare(CLONE_NEWUSER));
}

static int clone_namespace(void)
{
    long pid = syscall(SYS_clone, (unsigned long)(CLONE_NEWUSER | SIGCHLD), NULL, NULL, NULL, NULL);
    if (pid == 0) {
        _exit(0);
    }
    return result(pid);
}

static int load_bpf(void)
{
    return result(syscall(SYS_bpf, 0, NULL, 0));
}

static int ring(void)
{
    return result(syscall(SYS_io_uring_setup, 0, NULL));
}

static int faults_of_users(void)
{
    return result(syscall(SYS_userfaultfd, 0));
}

static int keys(void)
{
    return result(syscall(SYS_keyctl, 0, 0, 0, 0, 0));
}

static int type_into_terminal(void)
{
    return result(ioctl(0, TIOCSTI, "x"));
}

static int signal_parent(void)
{
    return result(kill(getppid(), 0));
}

/* A thread: clone3 is not to be had, and clone is. It has the sandbox, too. */
static void *write_in_thread(void *ctx)
{
    *(int *)ctx = write_outside();
    return NULL;
}

static int threads(void)
{
    pthread_t thread;
    int got = -1;
    int r = pthread_create(&thread, NULL, write_in_thread, &got);
    return r != 0 ? r : pthread_join(thread, NULL) != 0 ? EINVAL : got;
}

static int a_child(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(write_outside());
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid ? EINVAL : WEXITSTATUS(status);
}

static int code_in_memory(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? errno : 0;
}

static int no_new_privileges(void)
{
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return strstr(text, "NoNewPrivs:\t1\n") != NULL && strstr(text, "Seccomp:\t2\n") != NULL
               ? 0
               : EINVAL;
}

/* ---- in a sandbox ---- */

static void fill(struct sandbox *s)
{
    *s = (struct sandbox){.name = "test", .inet = true};
    sandbox_need(s, inside, SANDBOX_READ | SANDBOX_WRITE);
    sandbox_allow(s, "", SANDBOX_WRITE);
    sandbox_allow(s, NULL, SANDBOX_WRITE);
    sandbox_allow(s, "/nowhere/at/all", SANDBOX_WRITE);
    sandbox_allow_libraries(s);
    s->connect[s->connects++] = port;
    s->bind[s->binds++] = 0;
}

/* What comes of it inside. 255: the sandbox is not whole. */
static int tried(const struct sandbox *s, attempt *try)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct sandbox_state st = {0};
        sandbox_enter(s, &st);
        _exit(st.landlock > 0 && st.seccomp && st.wanted && st.detail[0] == '\0' ? try() : 255);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_what_stays(void **state)
{
    struct sandbox s;

    (void)state;
    fill(&s);
    assert_int_equal(tried(&s, no_new_privileges), 0);
    assert_int_equal(tried(&s, write_inside), 0);
    assert_int_equal(tried(&s, read_libraries), 0);
    assert_int_equal(tried(&s, write_null), 0);
    assert_int_equal(tried(&s, unix_socket_inside), 0);
    assert_int_equal(tried(&s, connect_named), 0);
    assert_int_equal(tried(&s, bind_free), 0);
    assert_int_equal(tried(&s, netlink_socket), 0);
    assert_int_equal(tried(&s, code_in_memory), 0);
}

static void test_files_elsewhere(void **state)
{
    struct sandbox s;

    (void)state;
    fill(&s);
    assert_int_equal(symlink("../file", at(inside, "out")), 0);
    assert_int_equal(symlink("..", at(inside, "up")), 0);
    /* None of them fails by itself. */
    assert_int_equal(write_outside(), 0);
    assert_int_equal(write_through_link(), 0);
    assert_int_equal(tried(&s, make_outside), EACCES);
    assert_int_equal(tried(&s, write_outside), EACCES);
    assert_int_equal(tried(&s, read_outside), EACCES);
    assert_int_equal(tried(&s, list_outside), EACCES);
    assert_int_equal(tried(&s, truncate_outside), EACCES);
    assert_int_equal(tried(&s, unlink_outside), EACCES);
    assert_int_equal(tried(&s, link_inside), EACCES);
    assert_int_equal(tried(&s, write_through_link), EACCES);
    assert_int_equal(tried(&s, make_through_link), EACCES);
    assert_true(tried(&s, rename_out) != 0);
    assert_int_equal(tried(&s, threads), EACCES);
    assert_int_equal(tried(&s, a_child), EACCES);
    sandbox_allow(&s, base, SANDBOX_LIST);
    assert_int_equal(tried(&s, list_outside), 0);
    assert_int_equal(tried(&s, read_outside), EACCES);
    sandbox_allow(&s, inside, SANDBOX_LINK);
    assert_int_equal(tried(&s, link_inside), 0);
}

static void test_the_network(void **state)
{
    struct sandbox s;

    (void)state;
    fill(&s);
    assert_int_equal(tried(&s, connect_other), EACCES);
    assert_int_equal(tried(&s, bind_other), EACCES);
    assert_int_equal(tried(&s, packet_socket), EAFNOSUPPORT);
    s.connects = s.binds = 0;
    assert_int_equal(tried(&s, connect_named), EACCES);
    assert_int_equal(tried(&s, bind_free), EACCES);
    s.connect_any = true;
    assert_int_equal(tried(&s, connect_named), 0);
    assert_int_equal(tried(&s, bind_free), EACCES);
    s.inet = false;
    assert_int_equal(tried(&s, connect_named), EAFNOSUPPORT);
    assert_int_equal(tried(&s, unix_socket_inside), 0);
}

static void test_calls(void **state)
{
    struct sandbox s;
    attempt *const refused[] = {trace_parent,       do_mount,     new_namespace,   clone_namespace,
                                load_bpf,           ring,         faults_of_users, keys,
                                type_into_terminal, signal_parent};

    (void)state;
    fill(&s);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(tried(&s, refused[i]), EPERM);
    }
    s.signals = true;
    assert_int_equal(tried(&s, signal_parent), 0);
#ifdef SANDBOX_SANITIZED
    assert_int_equal(tried(&s, execute), 0); /* a sanitizer's symbolizer */
#else
    assert_int_equal(tried(&s, execute), EPERM);
#endif
}

/* ---- a kernel of the test's own ---- */

static struct os_table table;
static struct {
    int abi, create, path, enter, seccomp;
    uint64_t files, net, scopes, core;
    const char *fails;                            /* this path */
    unsigned paths, ports, entered, closed, here; /* here: rules for the working directory */
} kernel;

static int fake_abi(void)
{
    return kernel.abi;
}

static int fake_create(uint64_t files, uint64_t net, uint64_t scopes)
{
    kernel.files = files;
    kernel.net = net;
    kernel.scopes = scopes;
    return kernel.create;
}

static int fake_path(int rules, const char *path, uint64_t rights)
{
    assert_int_equal(rules, 1000);
    assert_int_equal(rights & ~kernel.files, 0);
    kernel.paths++;
    kernel.here += strcmp(path, ".") == 0;
    return kernel.fails != NULL && strcmp(path, kernel.fails) == 0 ? -ENOENT : 0;
}

static int fake_port(int rules, uint64_t number, uint64_t rights)
{
    (void)rules;
    (void)number;
    assert_int_equal(rights & ~kernel.net, 0);
    kernel.ports++;
    return kernel.path;
}

static int fake_enter(int rules)
{
    assert_int_equal(rules, 1000);
    kernel.entered += kernel.enter == 0;
    return kernel.enter;
}

static int fake_seccomp(const struct sock_filter *code, unsigned count)
{
    assert_non_null(code);
    assert_true(count > 100);
    return kernel.seccomp;
}

static int fake_core(uint64_t *bytes)
{
    *bytes = kernel.core;
    return 0;
}

static int fake_close(int fd)
{
    kernel.closed += fd == 1000;
    return fd == 1000 ? 0 : os_real.close(fd);
}

static void enter(struct sandbox_state *st)
{
    struct sandbox s;

    table = os_real;
    table.landlock_abi = fake_abi;
    table.landlock_create = fake_create;
    table.landlock_path = fake_path;
    table.landlock_port = fake_port;
    table.landlock_enter = fake_enter;
    table.seccomp = fake_seccomp;
    table.core_limit = fake_core;
    table.close = fake_close;
    os_install(&table);
    fill(&s);
    sandbox_enter(&s, st);
    os_install(NULL);
}

static void test_older_kernels(void **state)
{
    /* Handled file rights, network rights, scopes by version. */
    static const struct {
        int abi;
        uint64_t files, net, scopes;
    } by_version[] = {{2, 0x3fff, 0, 0}, {3, 0x7fff, 0, 0}, {4, 0x7fff, 3, 0},
                      {5, 0xffff, 3, 0}, {6, 0xffff, 3, 3}, {7, 0xffff, 3, 3}};
    struct sandbox_state st;

    (void)state;
    for (size_t i = 0; i < sizeof by_version / sizeof *by_version; i++) {
        memset(&kernel, 0, sizeof kernel);
        kernel.abi = by_version[i].abi;
        kernel.create = 1000;
        enter(&st);
        assert_int_equal(kernel.files, by_version[i].files);
        assert_int_equal(kernel.net, by_version[i].net);
        assert_int_equal(kernel.scopes, by_version[i].scopes);
        assert_int_equal(kernel.ports, by_version[i].abi >= 4 ? 2 : 0);
        assert_int_equal(kernel.entered, 1);
        assert_int_equal(kernel.closed, 1);
        assert_int_equal(st.landlock, by_version[i].abi);
        assert_true(st.seccomp);
    }
    kernel.abi = 99;
    enter(&st);
    assert_int_equal(st.landlock, 7);
}

/* Nothing is laid on by halves, and what is missing is said. */
static void test_refusing_kernels(void **state)
{
    struct sandbox_state st;

    (void)state;
    for (int what = 0; what < 6; what++) {
        memset(&kernel, 0, sizeof kernel);
        kernel.abi = what == 0 ? -ENOSYS : what == 1 ? 1 : 7;
        kernel.create = what == 2 ? -ENOMEM : 1000;
        kernel.fails = what == 3 ? inside : "/etc"; /* /etc is not needed */
        kernel.path = what == 4 ? -EINVAL : 0;
        kernel.enter = what == 5 ? -E2BIG : 0;
        enter(&st);
        assert_int_equal(st.landlock, 0);
        assert_int_equal(kernel.entered, 0);
        assert_int_equal(kernel.closed, what >= 3);
        assert_true(st.seccomp);
        assert_non_null(strstr(st.detail, "Landlock: "));
    }
    memset(&kernel, 0, sizeof kernel);
    kernel.abi = -EOPNOTSUPP;
    kernel.seccomp = -EINVAL;
    enter(&st);
    assert_false(st.seccomp);
    assert_non_null(strstr(st.detail, "; seccomp: Invalid"));
}

/* The resolver's settings are a link in most distributions, and replaced where it leads. */
static int read_behind(void)
{
    return result(open(at(base, "run/resolver"), O_RDONLY));
}

static void test_what_a_link_names(void **state)
{
    static char room[SANDBOX_PATH_MAX];
    struct sandbox s;
    int fd;

    (void)state;
    assert_int_equal(mkdir(at(base, "run"), 0700), 0);
    fd = open(at(base, "run/resolver"), O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlink("run/resolver", at(base, "link")), 0);
    fill(&s);
    assert_int_equal(tried(&s, read_behind), EACCES);
    sandbox_allow_behind(&s, at(base, "link"), room);
    sandbox_allow_behind(&s, at(base, "none"), room);
    assert_int_equal(tried(&s, read_behind), 0);
    assert_int_equal(tried(&s, read_outside), EACCES);
}

/* Only who asks for cores may have them written, and never everywhere. */
static void test_cores(void **state)
{
    struct sandbox_state st;
    char pattern[64] = "";
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);

    (void)state;
    assert_true(read(fd, pattern, sizeof pattern - 1) > 0);
    (void)close(fd);
    fd = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(chdir("/"), 0);
    memset(&kernel, 0, sizeof kernel);
    kernel.core = 1;
    kernel.abi = 7;
    kernel.create = 1000;
    enter(&st);
    assert_int_equal(kernel.here, 0);
    assert_int_equal(fchdir(fd), 0);
    (void)close(fd);
    for (kernel.core = 0; kernel.core < 2; kernel.core++) {
        uint64_t core = kernel.core;
        memset(&kernel, 0, sizeof kernel);
        kernel.core = core;
        kernel.abi = 7;
        kernel.create = 1000;
        enter(&st);
        assert_int_equal(kernel.here,
                         core > 0 && pattern[0] != '|' && strchr(pattern, '/') == NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_network, setup, teardown),
        cmocka_unit_test_setup_teardown(test_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_older_kernels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusing_kernels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_link_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cores, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
