/* test_spawner: children that another process starts are ours all the same, born as os_spawn's are;
 * what is not on the list is not started; a spawner that has gone, and calls that fail. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "main/spawner.h"
#include "os/os.h"

/* The child says with its exit code what it sees: 40 and a bit for each thing that is wrong. Its
 * parent is the first argument. (Nobody can set what the C library keeps for itself, signals 32 and
 * 33: who started us may have left them ignored.) */
static char script[] =
    "n=0; test $PPID = \"$0\" || n=1; test -p /proc/$$/fd/3 || n=$((n+2)); "
    "read x && n=$((n+4)); test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$ || n=$((n+8)); "
    "grep -q '^SigBlk:.*0000000000000000$' /proc/self/status || n=$((n+16)); "
    "grep -Eq '^SigIgn:.*0000000[01][08]0000000$' /proc/self/status || n=$((n+32)); "
    "test -z \"$TALLYMAN_TOKEN\" || n=$((n+64)); "
    "ls -l /proc/$$/fd | grep -v ' [0-2] -> ' | grep -q socket && n=$((n+128)); exit $n";
static char shell[] = "sh";
static char flag[] = "-c";
static char parent[16];
static char *const look[] = {shell, flag, script, parent, NULL};
static char wait_text[] = "read x <&3";
static char *const waits[] = {shell, flag, wait_text, NULL};
static char none[] = "x";
static char *const absent[] = {none, NULL};
static char *const other[] = {shell, flag, none, NULL};

static int end_of(int pid)
{
    int status = 0;

    for (int i = 0; i < 3000; i++) {
        int r = os_wait_child(pid, &status);
        if (r != 0) {
            assert_int_equal(r, pid);
            return status;
        }
        (void)os_poll(NULL, 0, 10);
    }
    fail_msg("process %d does not end", pid);
    return 0;
}

static void start(struct spawner *s)
{
    struct err e = {0};

    (void)snprintf(parent, sizeof parent, "%d", (int)getpid());
    spawner_init(s);
    assert_int_equal(spawner_add(s, "/bin/sh", look, &e), 0);
    assert_int_equal(spawner_add(s, "/bin/sh", waits, &e), 0);
    assert_int_equal(spawner_add(s, "/nowhere/x", absent, &e), 0);
    assert_int_equal(spawner_start(s, &e), 0);
}

static void test_children_are_ours(void **state)
{
    struct spawner s;
    sigset_t set;
    sigset_t before;
    int fds[2];

    (void)state;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    for (int n = 1; n < 32; n++) {
        (void)signal(n, SIG_DFL); /* what a shell ignores for its background jobs is no news here */
    }
    assert_int_equal(setenv("TALLYMAN_TOKEN", "secret", 1), 0);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    start(&s);
    assert_int_equal(os_pipe(fds), 0);
    for (int i = 0; i < 3; i++) {
        int pid = spawner_spawn(&s, "/bin/sh", look, fds[0]);
        assert_true(pid > 0);
        assert_int_equal(WEXITSTATUS(end_of(pid)), 0);
    }
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    assert_int_equal(unsetenv("TALLYMAN_TOKEN"), 0);
    (void)os_close(fds[0]);
    (void)os_close(fds[1]);
    spawner_stop(&s);
}

/* Only we have the writing end, so that a child sees our end. */
static void test_the_pipe_is_the_childs_alone(void **state)
{
    struct spawner s;
    int fds[2];
    int pid;

    (void)state;
    start(&s);
    assert_int_equal(os_pipe(fds), 0);
    pid = spawner_spawn(&s, "/bin/sh", waits, fds[0]);
    assert_true(pid > 0);
    (void)os_close(fds[0]);
    (void)os_close(fds[1]);
    (void)end_of(pid);
    spawner_stop(&s);
}

static void test_what_cannot_start(void **state)
{
    struct spawner s;
    int status;

    (void)state;
    start(&s);
    assert_int_equal(spawner_spawn(&s, "/nowhere/x", absent, -1), -ENOENT);
    assert_int_equal(spawner_spawn(&s, "/bin/sh", other, -1), -EPERM);
    assert_int_equal(spawner_spawn(&s, "/bin/sh", absent, -1), -EPERM);
    assert_int_equal(spawner_spawn(&s, "/bin/other", look, -1), -EPERM);
    /* What could not be executed was reaped: the spawner is our only child. */
    assert_int_equal(os_kill(s.pid, SIGKILL), 0);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_int_equal(waitpid(-1, &status, WNOHANG), -1);
    assert_int_equal(spawner_spawn(&s, "/bin/sh", look, -1), -ECHILD);
    spawner_stop(&s);
}

/* A request that it does not know is answered, not obeyed, and it goes on. */
static void test_strange_requests(void **state)
{
    struct spawner s;
    uint32_t number = 77;
    int32_t answer[2];
    int fd;

    (void)state;
    start(&s);
    assert_int_equal(os_send_fd(s.fd, &number, sizeof number, -1), sizeof number);
    assert_int_equal(os_recv_fd(s.fd, answer, sizeof answer, &fd), sizeof answer);
    assert_int_equal(answer[0], 0);
    assert_int_equal(answer[1], EPERM);
    assert_int_equal(os_send_fd(s.fd, "x", 1, -1), 1);
    assert_int_equal(os_recv_fd(s.fd, answer, sizeof answer, &fd), sizeof answer);
    assert_int_equal(answer[1], EPERM);
    assert_int_equal(spawner_spawn(&s, "/nowhere/x", absent, -1), -ENOENT);
    spawner_stop(&s);
}

static int no_pair(int fds[2])
{
    (void)fds;
    return -EMFILE;
}

static int no_fork(void)
{
    return -EAGAIN;
}

static void test_calls_that_fail(void **state)
{
    struct os_table table = os_real;
    struct spawner s;
    struct err e = {0};

    (void)state;
    table.socket_pair = no_pair;
    os_install(&table);
    spawner_init(&s);
    assert_int_equal(spawner_start(&s, &e), ERR_IO);
    table = os_real;
    table.fork = no_fork;
    assert_int_equal(spawner_start(&s, &e), ERR_IO);
    os_install(NULL);
    assert_int_equal(spawner_spawn(&s, "/bin/sh", look, -1), -EPERM);
    spawner_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_children_are_ours),
        cmocka_unit_test(test_the_pipe_is_the_childs_alone),
        cmocka_unit_test(test_what_cannot_start),
        cmocka_unit_test(test_strange_requests),
        cmocka_unit_test(test_calls_that_fail),
    };

    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
