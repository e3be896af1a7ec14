/* test_child: the state machine under a clock and a kernel of the test's own, and once with real
 * processes. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "main/child.h"
#include "os/os.h"

#define MS 1000000u

static struct {
    uint64_t now_ns;
    uint64_t step_ns; /* that each look at the clock takes */
    int pipe_result;  /* negative: pipes fail */
    int spawn_result; /* negative: spawns fail */
    bool ended;       /* the child is a zombie, with this status */
    int status;
    bool stolen; /* somebody else reaps */
    int next_pid;
    unsigned spawns, terms, kills, open_fds;
} fake;

static uint64_t fake_clock(void)
{
    fake.now_ns += fake.step_ns;
    return fake.now_ns;
}

static int fake_pipe(int fds[2])
{
    if (fake.pipe_result == 0) {
        fds[0] = 1000;
        fds[1] = 1001;
        fake.open_fds += 2;
    }
    return fake.pipe_result;
}

static int fake_close(int fd)
{
    if (fd != 1000 && fd != 1001) {
        return os_real.close(fd); /* what child_end sleeps with */
    }
    assert_true(fake.open_fds > 0);
    fake.open_fds--;
    return 0;
}

static int fake_spawn(const char *path, char *const *argv, int fd)
{
    assert_string_equal(path, "/bin/child");
    assert_string_equal(argv[0], "child");
    assert_int_equal(fd, 1000);
    if (fake.spawn_result < 0) {
        return fake.spawn_result;
    }
    fake.spawns++;
    fake.ended = false;
    return fake.next_pid++;
}

static int fake_wait(int pid, int *status)
{
    assert_int_equal(pid, fake.next_pid - 1);
    if (fake.stolen) {
        return -ECHILD;
    }
    *status = fake.status;
    return fake.ended ? pid : 0;
}

static int fake_kill(int pid, int signal)
{
    assert_int_equal(pid, fake.next_pid - 1);
    fake.terms += signal == SIGTERM ? 1 : 0;
    fake.kills += signal == SIGKILL ? 1 : 0;
    return 0;
}

static char name[] = "child";
static char *const argv_of[] = {name, NULL};
static struct os_table table;
static struct child child;

static int setup(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.now_ns = 5000 * (uint64_t)MS;
    fake.next_pid = 100;
    table = os_real;
    table.clock_mono_ns = fake_clock;
    table.pipe = fake_pipe;
    table.close = fake_close;
    table.spawn = fake_spawn;
    table.wait_child = fake_wait;
    table.kill = fake_kill;
    os_install(&table);
    child_init(&child, "/bin/child", argv_of);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

static void pass_ms(uint64_t ms)
{
    fake.now_ns += ms * MS;
    child_tick(&child);
}

static void end_with(int status)
{
    fake.ended = true;
    fake.status = status;
    child_tick(&child);
}

static void test_start_and_stop(void **state)
{
    (void)state;
    assert_int_equal(child.state, CHILD_PAUSED);
    child_tick(&child);
    assert_int_equal(child.state, CHILD_RUNNING);
    assert_int_equal(child.pid, 100);
    assert_int_equal(child.restarts, 0);
    assert_int_equal(fake.open_fds, 1); /* the writing end */
    pass_ms(1000);
    assert_int_equal(child.state, CHILD_RUNNING);
    child_stop(&child);
    child_stop(&child);
    assert_int_equal(child.state, CHILD_STOPPING);
    assert_int_equal(fake.terms, 1);
    end_with(0);
    assert_int_equal(child.state, CHILD_STOPPED);
    assert_int_equal(child.pid, 0);
    assert_string_equal(child.last_exit, "exit code 0");
    assert_int_equal(fake.open_fds, 0);
    pass_ms(100000);
    child_stop(&child);
    assert_int_equal(fake.spawns, 1);
    assert_int_equal(fake.kills, 0);
}

static void test_pauses_grow_and_start_over(void **state)
{
    static const uint64_t pauses[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};

    (void)state;
    child_tick(&child);
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        end_with(9);
        assert_int_equal(child.state, CHILD_PAUSED);
        assert_string_equal(child.last_exit, "signal 9");
        pass_ms(pauses[i] - 1);
        assert_int_equal(child.state, CHILD_PAUSED);
        pass_ms(1);
        assert_int_equal(child.state, CHILD_RUNNING);
        assert_int_equal(child.restarts, i + 1);
    }
    pass_ms(CHILD_HEALTHY_MS);
    end_with(3 << 8);
    assert_string_equal(child.last_exit, "exit code 3");
    pass_ms(CHILD_PAUSE_MS_MIN);
    assert_int_equal(child.state, CHILD_RUNNING);
    assert_int_equal(fake.open_fds, 1);
}

static void test_what_will_not_start(void **state)
{
    (void)state;
    fake.spawn_result = -ENOENT;
    child_tick(&child);
    assert_int_equal(child.state, CHILD_PAUSED);
    assert_non_null(strstr(child.last_exit, "could not be started: No such file"));
    assert_int_equal(fake.open_fds, 0);
    fake.spawn_result = 0;
    fake.pipe_result = -EMFILE;
    pass_ms(1000);
    assert_non_null(strstr(child.last_exit, "no pipe: Too many open files"));
    assert_int_equal(child.restarts, 0);
    fake.pipe_result = 0;
    pass_ms(1999);
    assert_int_equal(child.state, CHILD_PAUSED);
    pass_ms(1);
    assert_int_equal(child.state, CHILD_RUNNING);
    assert_int_equal(child.restarts, 0);
}

static void test_stop_while_paused(void **state)
{
    (void)state;
    child_tick(&child);
    end_with(1 << 8);
    child_stop(&child);
    assert_int_equal(child.state, CHILD_STOPPED);
    pass_ms(100000);
    assert_int_equal(fake.spawns, 1);
    assert_int_equal(fake.terms, 0);
}

static void test_what_will_not_stop(void **state)
{
    (void)state;
    child_tick(&child);
    child_stop(&child);
    pass_ms(CHILD_STOP_MS - 1);
    assert_int_equal(fake.kills, 0);
    pass_ms(1);
    pass_ms(1);
    assert_int_equal(fake.kills, 1);
    pass_ms(1000);
    assert_int_equal(fake.kills, 2);
    end_with(9);
    assert_int_equal(child.state, CHILD_STOPPED);
    assert_int_equal(fake.open_fds, 0);
}

/* A process that hangs in the kernel must not keep us, nor fill the log. */
static void test_what_cannot_be_killed(void **state)
{
    uint64_t begun_ns;

    (void)state;
    child_tick(&child);
    begun_ns = fake.now_ns;
    fake.step_ns = 200 * (uint64_t)MS;
    child_end(&child);
    assert_int_equal(child.state, CHILD_STOPPING);
    assert_in_range(fake.kills, 3, CHILD_GIVE_UP_MS / 1000 + 1);
    assert_in_range((fake.now_ns - begun_ns) / MS, CHILD_STOP_MS + CHILD_GIVE_UP_MS,
                    CHILD_STOP_MS + CHILD_GIVE_UP_MS + 1000);
}

static void test_reaped_by_somebody_else(void **state)
{
    (void)state;
    child_tick(&child);
    fake.stolen = true;
    child_tick(&child);
    assert_int_equal(child.state, CHILD_PAUSED);
    assert_non_null(strstr(child.last_exit, "somebody else"));
    assert_int_equal(fake.open_fds, 0);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(child_state_name(CHILD_PAUSED), "restarting");
    assert_string_equal(child_state_name(CHILD_RUNNING), "running");
    assert_string_equal(child_state_name(CHILD_STOPPING), "stopping");
    assert_string_equal(child_state_name(CHILD_STOPPED), "stopped");
}

/* A shell that waits for its parent's pipe, ended from here. */
static void real_child(const char *script, const char *last_exit)
{
    char shell[] = "sh";
    char flag[] = "-c";
    char text[256];
    char *const argv[] = {shell, flag, text, NULL};
    struct child c;

    memcpy(text, script, strlen(script) + 1);
    os_install(NULL);
    child_init(&c, "/bin/sh", argv);
    child_tick(&c);
    assert_int_equal(c.state, CHILD_RUNNING);
    child_tick(&c);
    child_end(&c);
    assert_int_equal(c.state, CHILD_STOPPED);
    assert_string_equal(c.last_exit, last_exit);
    child_end(&c);
}

static void test_a_real_child(void **state)
{
    (void)state;
    real_child("read x <&3; exit 4", "signal 15");
}

/* Nowhere to sleep: it is killed at once rather than waited for in a loop. */
static int no_epoll(void)
{
    return -EMFILE;
}

static void test_end_without_descriptors(void **state)
{
    (void)state;
    table.epoll_create = no_epoll;
    child_tick(&child);
    fake.status = 9;
    child_stop(&child);
    fake.ended = true;
    child_end(&child);
    assert_int_equal(child.state, CHILD_STOPPED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_start_and_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pauses_grow_and_start_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_will_not_start, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_while_paused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_will_not_stop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reaped_by_somebody_else, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_real_child, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_without_descriptors, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
