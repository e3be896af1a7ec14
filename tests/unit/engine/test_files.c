/* test_files: what is made before libchdb starts, and a fault in each of its steps. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/files.h"
#include "os/os.h"
#include "tests/lib/faults.h"

static char directory[64];
static char data[128];

static int remove_entry(void *ctx, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    if (os_unlink(path) == -EISDIR) {
        assert_int_equal(os_list(path, remove_entry, path), 0);
        assert_int_equal(rmdir(path), 0);
    }
    return 0;
}

static int setup(void **state)
{
    (void)state;
    memcpy(directory, "/tmp/test_files.XXXXXX", 23);
    assert_non_null(mkdtemp(directory));
    (void)snprintf(data, sizeof data, "%s/engine", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(os_list(directory, remove_entry, directory), 0);
    return rmdir(directory);
}

static void content_of(const char *name, char *out, size_t cap)
{
    char path[256];
    int64_t n;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", data, name);
    fd = os_open(path, O_RDONLY, 0);
    assert_true(fd >= 0);
    n = os_pread_full(fd, out, cap - 1, 0);
    assert_true(n > 0);
    out[n] = '\0';
    assert_int_equal(os_close(fd), 0);
}

static unsigned mode_of(const char *name)
{
    char path[256];
    struct os_stat st;

    (void)snprintf(path, sizeof path, "%s/%s", data, name);
    assert_int_equal(os_stat(path, &st), 0);
    return st.mode & 0777;
}

static void test_what_is_made(void **state)
{
    struct err e = {0};
    char text[8192];
    char here[512];

    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(files_prepare(data, 123456789, &e), 0);
    }
    assert_non_null(getcwd(here, sizeof here));
    assert_non_null(strstr(here, "/engine/empty"));
    assert_int_equal(mode_of("."), 0700);
    assert_int_equal(mode_of("data"), 0700);
    assert_int_equal(mode_of("users.xml"), 0600);
    assert_int_equal(mode_of("config.xml"), 0600);
    content_of("config.xml", text, sizeof text);
    assert_non_null(strstr(text, "<max_server_memory_usage>123456789</max_server_memory_usage>"));
    assert_non_null(strstr(text, "<users_config>../users.xml</users_config>"));
    content_of("users.xml", text, sizeof text);
    assert_non_null(strstr(text, "GRANT SELECT ON q.events<"));
    assert_non_null(strstr(text, "<filter>project = getSetting('log_comment')</filter>"));
}

static void test_something_in_the_way(void **state)
{
    struct err e = {0};
    char path[256];

    (void)state;
    assert_int_equal(files_prepare(data, 1, &e), 0);
    (void)snprintf(path, sizeof path, "%s/empty/config.xml", data);
    assert_int_equal(os_close(os_open(path, O_CREAT | O_WRONLY, 0600)), 0);
    assert_int_equal(files_prepare(data, 1, &e), 0);
    assert_int_equal(os_open(path, O_RDONLY, 0), -ENOENT); /* a file is removed */
    assert_int_equal(os_mkdir(path, 0700), 0);
    assert_int_equal(files_prepare(data, 1, &e), ERR_REFUSED);
    assert_non_null(strstr(e.text, "must be empty"));
}

static void test_a_path_too_long(void **state)
{
    static char path[5000];
    struct err e = {0};

    (void)state;
    memset(path, 'x', sizeof path - 1);
    assert_int_equal(files_prepare(path, 1, &e), ERR_USAGE);
}

/* Each call fails once; the next attempt then succeeds over what was left. */
static void test_every_call_fails(void **state)
{
    struct err e = {0};
    uint64_t calls;

    (void)state;
    faults_install(NULL);
    assert_int_equal(files_prepare(data, 1, &e), 0);
    calls = faults_count();
    assert_true(calls >= 14);
    for (uint64_t k = 1; k <= calls; k++) {
        faults_reset();
        faults_arm(k, EIO, false, FAULT_ERROR);
        assert_int_equal(files_prepare(data, 1, &e), ERR_IO);
        assert_int_equal(faults_fired(), 1);
        faults_reset();
        assert_int_equal(files_prepare(data, 1, &e), 0);
    }
    faults_uninstall();
}

static void make(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/data/%s", data, name);
    assert_int_equal(os_mkdir(path, 0700), 0);
}

/* What the tables' names lie in is synced, whatever call fails is told, and parts cost nothing. */
static void test_names_are_synced(void **state)
{
    struct err e = {0};
    uint64_t calls;

    (void)state;
    assert_int_equal(files_prepare(data, 1, &e), 0);
    faults_install(NULL);
    assert_int_equal(files_sync_names(&e), 0);
    calls = faults_count(); /* data, DIR, its parent */
    make("store");
    make("store/abc");
    make("store/abc/table");
    faults_reset();
    assert_int_equal(files_sync_names(&e), 0);
    assert_true(faults_count() >= calls + 9); /* three more are opened, synced and closed */
    calls = faults_count();
    make("store/abc/table/part");
    faults_reset();
    assert_int_equal(files_sync_names(&e), 0);
    assert_int_equal(faults_count(), calls);
    for (uint64_t k = 1; k <= calls; k++) {
        faults_reset();
        faults_arm(k, EIO, false, FAULT_ERROR);
        assert_int_equal(files_sync_names(&e), ERR_IO);
        assert_int_equal(faults_fired(), 1);
    }
    faults_uninstall();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_made, setup, teardown),
        cmocka_unit_test_setup_teardown(test_something_in_the_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_path_too_long, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_call_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_are_synced, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
