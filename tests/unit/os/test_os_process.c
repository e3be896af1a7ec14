/* test_os_process: children, their pipe, their end. Every child is a shell that ends by itself or
 * is ended here. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"

/* Starts sh -c SCRIPT with fd as its descriptor 3. */
static int sh(const char *script, int fd)
{
    char name[] = "sh";
    char flag[] = "-c";
    char text[512];
    char *argv[] = {name, flag, text, NULL};

    (void)snprintf(text, sizeof text, "%s", script);
    return os_spawn("/bin/sh", argv, fd);
}

/* Waits at most 10 s; the wait status. */
static int end_of(int pid)
{
    int status = 0;

    for (int i = 0; i < 1000; i++) {
        int r = os_wait_child(pid, &status);

        if (r != 0) {
            assert_int_equal(r, pid);
            return status;
        }
        (void)usleep(10000);
    }
    fail_msg("process %d does not end", pid);
    return 0;
}

static int exit_code(const char *script, int fd)
{
    int pid = sh(script, fd);
    int status;

    assert_true(pid > 0);
    status = end_of(pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(exit_code("exit 0", -1), 0);
    assert_int_equal(exit_code("exit 7", -1), 7);
}

static void test_what_cannot_start(void **state)
{
    char name[] = "x";
    char *argv[] = {name, NULL};

    (void)state;
    assert_int_equal(os_spawn("/nowhere/x", argv, -1), -ENOENT);
    assert_int_equal(os_spawn("/etc/passwd", argv, -1), -EACCES);
    assert_int_equal(os_spawn("/bin/sh", argv, 999), -EBADF);
}

static void test_secrets_stay_here(void **state)
{
    (void)state;
    assert_int_equal(setenv("TALLYMAN_TOKEN", "secret", 1), 0);
    assert_int_equal(setenv("AWS_SECRET_ACCESS_KEY", "secret", 1), 0);
    assert_int_equal(setenv("PATHS", "secret", 1), 0);
    assert_int_equal(setenv("TZ", "Europe/Berlin", 1), 0);
    assert_int_equal(exit_code("test \"$TZ\" = Europe/Berlin", -1), 0);
    assert_int_equal(exit_code("tr '\\0' '\\n' </proc/$$/environ | grep -q secret", -1), 1);
    assert_int_equal(unsetenv("TALLYMAN_TOKEN"), 0);
    assert_int_equal(unsetenv("AWS_SECRET_ACCESS_KEY"), 0);
    assert_int_equal(unsetenv("PATHS"), 0);
}

static void test_what_a_child_is_born_with(void **state)
{
    sigset_t set;
    sigset_t before;
    char script[128];
    int fds[2];

    (void)state;
    /* Neither a blocked nor an ignored signal is passed on. */
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    assert_true(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    assert_int_equal(exit_code("grep -q '^SigBlk:.*0000000000000000$' /proc/self/status", -1), 0);
    /* (glibc keeps its two own signals, 32 and 33, ignored until the new program asks for them.) */
    assert_int_equal(exit_code("grep -Eq '^SigIgn:.*(0000000000000000|0000000180000000)$' "
                               "/proc/self/status",
                               -1),
                     0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    /* Nothing to read, a group of its own, and of our descriptors only the one it was given. */
    assert_int_equal(exit_code("! read x", -1), 0);
    assert_int_equal(exit_code("test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$", -1), 0);
    assert_int_equal(os_pipe(fds), 0);
    (void)snprintf(script, sizeof script, "test ! -e /proc/$$/fd/%d -a ! -e /proc/$$/fd/%d", fds[0],
                   fds[1]);
    assert_int_equal(exit_code(script, -1), 0);
    assert_int_equal(exit_code("test -p /proc/$$/fd/3", fds[0]), 0);
    assert_int_equal(os_close(fds[0]), 0);
    assert_int_equal(os_close(fds[1]), 0);
}

/* The descriptor that is 3 already loses its close-on-exec in the child, not here. */
static void test_a_descriptor_that_is_three(void **state)
{
    int saved = dup(3); /* whatever the test was started with, or nothing */
    int fds[2];

    (void)state;
    (void)close(3);
    assert_int_equal(os_pipe(fds), 0);
    if (fds[0] != 3) {
        assert_int_equal(dup3(fds[0], 3, O_CLOEXEC), 3);
        assert_int_equal(os_close(fds[0]), 0);
    }
    assert_int_equal(exit_code("test -p /proc/$$/fd/3", 3), 0);
    assert_int_equal(exit_code("test ! -e /proc/$$/fd/3", -1), 0);
    assert_int_equal(os_close(3), 0);
    assert_int_equal(os_close(fds[1]), 0);
    if (saved >= 0) {
        assert_int_equal(dup2(saved, 3), 3);
        assert_int_equal(close(saved), 0);
    }
}

static void test_the_pipe_tells_of_our_end(void **state)
{
    int fds[2];
    int pid;
    int status = 0;

    (void)state;
    assert_int_equal(os_pipe(fds), 0);
    pid = sh("read x <&3; exit 5", fds[0]);
    assert_true(pid > 0);
    assert_int_equal(os_close(fds[0]), 0);
    (void)usleep(50000);
    assert_int_equal(os_wait_child(pid, &status), 0);
    assert_int_equal(os_close(fds[1]), 0);
    status = end_of(pid);
    assert_int_equal(WEXITSTATUS(status), 5);
}

static void test_signals(void **state)
{
    int pid = sh("sleep 60", -1);
    int status;

    (void)state;
    assert_true(pid > 0);
    assert_int_equal(os_kill(pid, SIGTERM), 0);
    status = end_of(pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_int_equal(os_wait_child(pid, &status), -ECHILD);
    assert_int_equal(os_kill(pid, SIGTERM), -ESRCH);
}

static void test_directory_and_priority(void **state)
{
    char here[512];

    (void)state;
    assert_int_equal(os_chdir("/nowhere"), -ENOENT);
    assert_int_equal(os_chdir("/"), 0);
    assert_non_null(getcwd(here, sizeof here));
    assert_string_equal(here, "/");
    assert_int_equal(os_set_nice(19), 0); /* the last of the tests: it cannot be taken back */
    assert_int_equal(getpriority(PRIO_PROCESS, 0), 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_what_cannot_start),
        cmocka_unit_test(test_secrets_stay_here),
        cmocka_unit_test(test_what_a_child_is_born_with),
        cmocka_unit_test(test_a_descriptor_that_is_three),
        cmocka_unit_test(test_the_pipe_tells_of_our_end),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_directory_and_priority),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
