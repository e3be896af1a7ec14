/* test_listen: Unix socket paths, with real sockets and with every call around them failing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "http/conn.h"
#include "os/os.h"

static char folder[] = "/tmp/test_listen.XXXXXX";
static char path[64];

/* Calls that a test has replaced give these; 0 lets the kernel answer. */
static int stat_gives;
static int stat_left; /* calls of stat that are let through first */
static int connect_gives;
static int unlink_gives;
static int bind_gives;
static int socket_gives;
static int listen_gives;

static uint64_t nofile_gives;

static int fake_raise_nofile(uint64_t *limit)
{
    *limit = nofile_gives;
    return 0;
}

static int fake_stat(const char *p, struct os_stat *st)
{
    if (stat_gives != 0 && stat_left-- <= 0) {
        return stat_gives;
    }
    return os_real.stat(p, st);
}

static int fake_connect(int fd, const struct sockaddr *a, unsigned len)
{
    return connect_gives != 0 ? connect_gives : os_real.connect(fd, a, len);
}

static int fake_unlink(const char *p)
{
    return unlink_gives != 0 ? unlink_gives : os_real.unlink(p);
}

static int fake_bind(int fd, const struct sockaddr *a, unsigned len)
{
    return bind_gives != 0 ? bind_gives : os_real.bind(fd, a, len);
}

static int fake_socket(int domain, int type, int protocol)
{
    return socket_gives != 0 ? socket_gives : os_real.socket(domain, type, protocol);
}

static int fake_listen(int fd, int backlog)
{
    return listen_gives != 0 ? listen_gives : os_real.listen(fd, backlog);
}

static struct os_table table;

static int setup(void **state)
{
    struct http_config config = {.limits = http_limits_default};

    table = os_real;
    table.stat = fake_stat;
    table.connect = fake_connect;
    table.unlink = fake_unlink;
    table.bind = fake_bind;
    table.socket = fake_socket;
    table.listen = fake_listen;
    os_install(&table);
    stat_gives = stat_left = connect_gives = unlink_gives = bind_gives = socket_gives = 0;
    listen_gives = 0;
    *state = http_new(&config, NULL);
    return *state == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    stat_gives = connect_gives = unlink_gives = 0;
    http_free(*state);
    (void)unlink(path);
    os_install(NULL);
    return 0;
}

/* A socket file that nobody listens on. */
static void leave_stale(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    memcpy(a.sun_path, path, strlen(path) + 1);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(close(fd), 0);
}

static void expect_failure(struct http_server *s, int code, const char *words)
{
    struct err e = {0};

    assert_int_equal(http_listen_unix(s, path, &e), code);
    assert_int_equal(e.code, code);
    if (strstr(e.text, words) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", e.text, words);
    }
}

static void test_fresh_and_removed(void **state)
{
    struct err e;
    struct stat st;
    mode_t before = umask(022);

    assert_int_equal(http_listen_unix(*state, path, &e), 0);
    assert_int_equal(umask(before), 022); /* ours is put back */
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    expect_failure(*state, ERR_REFUSED, "running server");
    http_free(*state);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(setup(state), 0);
}

static void test_stale_is_replaced(void **state)
{
    leave_stale();
    assert_int_equal(http_listen_unix(*state, path, NULL), 0);
}

static void test_what_cannot_be_told_is_left_alone(void **state)
{
    struct stat before;
    struct stat after;

    leave_stale();
    assert_int_equal(stat(path, &before), 0);
    connect_gives = -EAGAIN; /* a full backlog: somebody is there */
    expect_failure(*state, ERR_REFUSED, "running server");
    connect_gives = -EACCES;
    expect_failure(*state, ERR_REFUSED, "running server");
    connect_gives = 0;
    socket_gives = -EMFILE;
    expect_failure(*state, ERR_IO, path);
    socket_gives = 0;
    unlink_gives = -EPERM;
    expect_failure(*state, ERR_IO, "unlink");
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    unlink_gives = -ENOENT; /* somebody else was quicker; then bind must say what it finds */
    expect_failure(*state, ERR_REFUSED, "in use");
    unlink_gives = 0;
    stat_gives = -EACCES;
    expect_failure(*state, ERR_IO, "stat");
}

static void test_failures_behind_the_look(void **state)
{
    socket_gives = -ENFILE;
    expect_failure(*state, ERR_IO, "socket");
    socket_gives = 0;
    bind_gives = -EACCES;
    expect_failure(*state, ERR_IO, "bind");
    bind_gives = 0;
    listen_gives = -ENOMEM;
    expect_failure(*state, ERR_NO_MEMORY, "listen");
    listen_gives = 0;
    (void)unlink(path);
    stat_gives = -EIO;
    stat_left = 1;
    expect_failure(*state, ERR_IO, "stat");
    stat_gives = 0;
    (void)unlink(path);
    assert_int_equal(http_listen_unix(*state, path, NULL), 0);
}

static void test_number_of_listeners_is_bounded(void **state)
{
    struct err e;
    int made = 0;
    int got = 0;

    while (got == 0 && made < 100) {
        unsigned port = 0;

        got = http_listen_tcp(*state, "127.0.0.1:0", &port, &e);
        if (got == 0) {
            assert_in_range(port, 1, 65535);
            made++;
        }
    }
    assert_int_equal(got, ERR_USAGE);
    assert_int_equal(made, 8);
}

static void test_path_lengths(void **state)
{
    char text[200];
    struct err e;

    assert_int_equal(http_listen_unix(*state, "", &e), ERR_USAGE);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(http_listen_unix(*state, text, &e), ERR_USAGE);
}

static void test_leftover_that_cannot_be_removed(void **state)
{
    struct stat st;

    assert_int_equal(http_listen_unix(*state, path, NULL), 0);
    stat_gives = -EIO; /* then it is not known to be ours */
    http_free(*state);
    stat_gives = 0;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(setup(state), 0);
}

/* What work on threads opens must not be what a journal needs for its next file. */
static void test_few_descriptors_mean_few_threads(void **state)
{
    static const struct {
        uint64_t limit;
        unsigned connections_max, threads, fd_max;
    } cases[] = {{1 << 20, 1024, 288, (1 << 20) - 256},
                 {4096, 1024, 288, 3840},
                 {2048, 1024, 163, 1792},
                 {1024, 1024, 25, 768},
                 {1024, 100, 143, 768},
                 {16, 1024, 1, 12}};
    struct os_table low = table;

    low.raise_nofile = fake_raise_nofile;
    http_free(*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_config config = {.limits = http_limits_default};

        config.limits.connections_max = cases[i].connections_max;
        nofile_gives = cases[i].limit;
        os_install(&low);
        *state = http_new(&config, NULL);
        os_install(&table);
        assert_non_null(*state);
        assert_int_equal(((struct http_server *)*state)->config.limits.threads_max,
                         cases[i].threads);
        assert_int_equal(((struct http_server *)*state)->fd_max, cases[i].fd_max);
        http_free(*state);
    }
    assert_int_equal(setup(state), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fresh_and_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale_is_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_told_is_left_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures_behind_the_look, setup, teardown),
        cmocka_unit_test_setup_teardown(test_number_of_listeners_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_path_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leftover_that_cannot_be_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_few_descriptors_mean_few_threads, setup, teardown),
    };
    int failed;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/s", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
