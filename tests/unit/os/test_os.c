/* test_os: the kernel's calls on files against a temporary directory, and the composites with a
 * fault in each of their steps. The directory is removed at the end. Sockets and the rest are in
 * test_os_net. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"
#include "tests/lib/faults.h"

static char directory[64];

static const char *at(const char *name)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

static int group_setup(void **state)
{
    (void)state;
    memcpy(directory, "/tmp/test_os.XXXXXX", 20);
    return mkdtemp(directory) != NULL ? 0 : -1;
}

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

/* Each test begins with an empty directory and the kernel's table. */
static int test_setup(void **state)
{
    (void)state;
    os_install(NULL);
    return os_list(directory, remove_entry, directory);
}

static int group_teardown(void **state)
{
    return test_setup(state) != 0 ? -1 : rmdir(directory);
}

static int make(const char *path, const char *content)
{
    int fd = os_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, content, strlen(content), 0, NULL), 0);
    return fd;
}

/* ---- the table ---- */

static int64_t seven(int fd, void *p, size_t n, uint64_t offset)
{
    (void)fd, (void)p, (void)n, (void)offset;
    return 7;
}

static void table_is_replaced_and_comes_back(void **state)
{
    struct os_table mine = os_real;
    char byte;

    (void)state;
    assert_ptr_equal(os_current(), &os_real);
    mine.pread = seven;
    os_install(&mine);
    assert_ptr_equal(os_current(), &mine);
    assert_int_equal(os_pread(-1, &byte, 1, 0), 7);
    os_install(NULL);
    assert_ptr_equal(os_current(), &os_real);
    assert_int_equal(os_pread(-1, &byte, 1, 0), -EBADF);
}

static void every_entry_of_the_kernel_table_is_there(void **state)
{
    (void)state;
#define X(ret, name, params, args) assert_non_null(os_real.name);
    OS_FILE_CALLS(X)
    OS_OTHER_CALLS(X)
#undef X
}

/* ---- files ---- */

static void open_reports_errors(void **state)
{
    int fd = make(at("file"), "x");

    (void)state;
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_open(at("none"), O_RDONLY, 0), -ENOENT);
    assert_int_equal(os_open(at("file"), O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
    assert_int_equal(os_open(at("file/below"), O_RDONLY, 0), -ENOTDIR);
    assert_int_equal(os_open(at("file"), O_RDONLY | O_DIRECTORY, 0), -ENOTDIR);
    assert_int_equal(os_open(directory, O_RDWR, 0), -EISDIR);
    assert_int_equal(os_close(fd), -EBADF);
}

static void descriptors_are_close_on_exec(void **state)
{
    int fds[] = {
        os_open(directory, O_RDONLY | O_DIRECTORY, 0),
        os_socket(AF_INET, SOCK_STREAM, 0),
        os_epoll_create(),
        os_eventfd(),
    };

    (void)state;
    for (size_t n = 0; n < sizeof fds / sizeof fds[0]; n++) {
        assert_true(fds[n] >= 0);
        assert_true((fcntl(fds[n], F_GETFD) & FD_CLOEXEC) != 0);
        assert_int_equal(os_close(fds[n]), 0);
    }
}

static void bytes_come_back(void **state)
{
    int fd = make(at("file"), "hello");
    char back[16] = {0};
    struct os_stat st;
    struct os_stat by_name;

    (void)state;
    assert_int_equal(os_pwrite(fd, "J", 1, 0), 1);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_drop_cache(fd), 0);
    /* Short at the end of the file, zero past it. */
    assert_int_equal(os_pread(fd, back, sizeof back, 0), 5);
    assert_string_equal(back, "Jello");
    assert_int_equal(os_pread(fd, back, sizeof back, 5), 0);
    assert_int_equal(os_pread_full(fd, back, sizeof back, 1), 4);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_stat(at("file"), &by_name), 0);
    assert_int_equal(st.size, 5);
    assert_true(S_ISREG(st.mode));
    assert_int_equal(st.inode, by_name.inode);
    assert_int_equal(st.device, by_name.device);
    assert_int_equal(os_ftruncate(fd, 2), 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(st.size, 2);
    assert_int_equal(os_close(fd), 0);
}

/* Hints for large files: nothing that can be read changes by them. */
static void blocks_are_reserved_and_given_up(void **state)
{
    int fd = make(at("file"), "");
    char bytes[8192];
    char back[sizeof bytes];
    struct stat st;
    struct os_stat before;
    int reserved;

    (void)state;
    memset(bytes, 'b', sizeof bytes);
    reserved = os_reserve(fd, 0, 1u << 20);
    if (reserved == 0) {
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, 0);
        assert_true(st.st_blocks * 512 >= 1 << 20);
    } else {
        assert_int_equal(reserved, -EOPNOTSUPP); /* a file system that has no such thing */
    }
    assert_int_equal(os_pwrite_all(fd, bytes, sizeof bytes, 0, NULL), 0);
    assert_int_equal(os_write_back(fd, 0, sizeof bytes, false), 0);
    assert_int_equal(os_write_back(fd, 0, sizeof bytes, true), 0);
    assert_int_equal(os_drop_range(fd, 0, sizeof bytes), 0);
    assert_int_equal(os_pread_full(fd, back, sizeof back, 0), sizeof back);
    assert_memory_equal(back, bytes, sizeof back);
    assert_int_equal(os_fstat(fd, &before), 0);
    assert_int_equal(before.size, sizeof bytes);
    assert_int_equal(os_close(fd), 0);
}

static void time_of_a_change_is_told(void **state)
{
    int fd = make(at("file"), "x");
    const struct timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {1700000000, 123456789}};
    struct os_stat st;

    (void)state;
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_true(st.mtime_ms > 1700000000000u);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_true(st.mtime_ms == 1700000000123u);
    st.mtime_ms = 0;
    assert_int_equal(os_stat(at("file"), &st), 0);
    assert_true(st.mtime_ms == 1700000000123u);
    assert_int_equal(os_close(fd), 0);
}

static void a_rename_that_never_replaces(void **state)
{
    struct os_stat st;

    (void)state;
    assert_int_equal(os_close(make(at("first"), "x")), 0);
    assert_int_equal(os_close(make(at("second"), "yy")), 0);
    assert_int_equal(os_rename_new(at("first"), at("second")), -EEXIST);
    assert_int_equal(os_stat(at("second"), &st), 0);
    assert_true(st.size == 2);
    assert_int_equal(os_rename_new(at("first"), at("third")), 0);
    assert_int_equal(os_stat(at("first"), &st), -ENOENT);
    assert_int_equal(os_stat(at("third"), &st), 0);
    assert_int_equal(os_rename_new(at("first"), at("third")), -ENOENT);
    assert_int_equal(os_unlink(at("second")), 0);
    assert_int_equal(os_unlink(at("third")), 0);
}

static void a_second_name_and_its_directory(void **state)
{
    struct os_stat one;
    struct os_stat two;

    (void)state;
    assert_int_equal(os_close(make(at("one"), "x")), 0);
    assert_int_equal(os_mkdir(at("folder"), 0700), 0);
    assert_int_equal(os_link(at("one"), at("folder/two")), 0);
    assert_int_equal(os_stat(at("one"), &one), 0);
    assert_int_equal(os_stat(at("folder/two"), &two), 0);
    assert_true(one.inode == two.inode);
    assert_int_equal(os_link(at("one"), at("folder/two")), -EEXIST);
    assert_int_equal(os_link(at("none"), at("folder/three")), -ENOENT);
    assert_int_equal(os_rmdir(at("folder")), -ENOTEMPTY);
    assert_int_equal(os_unlink(at("folder/two")), 0);
    assert_int_equal(os_rmdir(at("folder")), 0);
    assert_int_equal(os_rmdir(at("folder")), -ENOENT);
    assert_int_equal(os_unlink(at("one")), 0);
}

static void directory_is_watched(void **state)
{
    int fd = os_watch_dir(directory);
    char record[4096];

    (void)state;
    assert_true(fd >= 0);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(os_close(make(at("temporary"), "x")), 0);
    assert_int_equal(os_poll_in(fd, 0), 0); /* a new file is not one that was moved here */
    assert_int_equal(os_read(fd, record, sizeof record), -EAGAIN);
    assert_int_equal(os_rename(at("temporary"), at("ready")), 0);
    assert_int_equal(os_poll_in(fd, -1), 1);
    assert_true(os_read(fd, record, sizeof record) > 0);
    assert_int_equal(os_poll_in(fd, 0), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_watch_dir(at("none")), -ENOENT);
    assert_int_equal(os_watch_dir(at("ready")), -ENOTDIR);
}

static void file_calls_report_errors(void **state)
{
    char byte = 0;
    struct os_stat st;
    uint64_t space;
    struct os_disk disk;
    int fd = os_open(directory, O_RDONLY | O_DIRECTORY, 0);
    int file = make(at("file"), "x");
    int pipes[2];

    (void)state;
    assert_int_equal(os_pread(fd, &byte, 1, 0), -EISDIR);
    assert_int_equal(os_pread_full(fd, &byte, 1, 0), -EISDIR);
    assert_int_equal(os_pwrite(fd, &byte, 1, 0), -EBADF);
    assert_int_equal(os_pwrite(file, &byte, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(os_ftruncate(file, UINT64_MAX), -EINVAL);
    assert_int_equal(os_fdatasync(-1), -EBADF);
    assert_int_equal(os_fsync(-1), -EBADF);
    assert_int_equal(os_fstat(-1, &st), -EBADF);
    assert_int_equal(os_stat(at("none"), &st), -ENOENT);
    assert_int_equal(os_flock(-1, LOCK_EX), -EBADF);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(os_drop_cache(pipes[0]), -ESPIPE);
    assert_int_equal(os_free_space(at("none"), &space), -ENOENT);
    assert_int_equal(os_free_space(directory, &space), 0);
    assert_true(space > 0);
    assert_int_equal(os_disk(at("none"), &disk), -ENOENT);
    assert_int_equal(os_disk(directory, &disk), 0);
    assert_true(disk.bytes >= disk.free_bytes && disk.free_bytes > 0);
    assert_true(disk.inodes >= disk.free_inodes);
    assert_true(disk.kind != 0);
    assert_int_equal(os_getpeername(-1, NULL, NULL), -EBADF);
    assert_int_equal(os_reserve(fd, 0, 1), -EBADF);
    assert_int_equal(os_reserve(file, 0, 0), -EINVAL);
    assert_int_equal(os_write_back(-1, 0, 1, false), -EBADF);
    assert_int_equal(os_write_back(pipes[0], 0, 1, true), -ESPIPE);
    assert_int_equal(os_drop_range(pipes[0], 0, 1), -ESPIPE);
    (void)os_close(pipes[0]);
    (void)os_close(pipes[1]);
    assert_int_equal(os_close(file), 0);
    assert_int_equal(os_close(fd), 0);
}

static void names_change(void **state)
{
    struct os_stat st;

    (void)state;
    assert_int_equal(os_close(make(at("a"), "1")), 0);
    assert_int_equal(os_rename(at("a"), at("b")), 0);
    assert_int_equal(os_stat(at("a"), &st), -ENOENT);
    assert_int_equal(os_rename(at("a"), at("b")), -ENOENT);
    assert_int_equal(os_mkdir(at("d"), 0700), 0);
    assert_int_equal(os_mkdir(at("d"), 0700), -EEXIST);
    assert_int_equal(os_mkdir(at("none/d"), 0700), -ENOENT);
    assert_int_equal(os_unlink(at("d")), -EISDIR);
    assert_int_equal(os_unlink(at("b")), 0);
    assert_int_equal(os_unlink(at("b")), -ENOENT);
}

struct seen {
    unsigned count;
    unsigned stop_after;
    char names[8][16];
};

static int see(void *ctx, const char *name)
{
    struct seen *seen = ctx;

    assert_true(seen->count < 8);
    (void)snprintf(seen->names[seen->count++], sizeof seen->names[0], "%s", name);
    return seen->count == seen->stop_after ? 42 : 0;
}

static void list_gives_names_and_stops(void **state)
{
    struct seen seen = {0};

    (void)state;
    assert_int_equal(os_list(directory, see, &seen), 0);
    assert_int_equal(seen.count, 0);
    assert_int_equal(os_close(make(at("one"), "")), 0);
    assert_int_equal(os_mkdir(at("two"), 0700), 0);
    assert_int_equal(os_list(directory, see, &seen), 0);
    assert_int_equal(seen.count, 2);
    assert_int_not_equal(strcmp(seen.names[0], seen.names[1]), 0);
    seen = (struct seen){.stop_after = 1};
    assert_int_equal(os_list(directory, see, &seen), 42);
    assert_int_equal(seen.count, 1);
    assert_int_equal(os_list(at("none"), see, &seen), -ENOENT);
    assert_int_equal(os_list(at("one"), see, &seen), -ENOTDIR);
}

static void lock_keeps_others_out(void **state)
{
    int first = make(at("lock"), "");
    int second = os_open(at("lock"), O_RDWR, 0);

    (void)state;
    assert_int_equal(os_flock(first, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(os_flock(second, LOCK_EX | LOCK_NB), -EWOULDBLOCK);
    assert_int_equal(os_close(first), 0);
    assert_int_equal(os_flock(second, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(os_close(second), 0);
}

/* ---- composites, with a fault in each step ---- */

static void pwrite_all_goes_on_after_short_writes(void **state)
{
    char back[64] = {0};
    size_t written = 99;
    int fd = make(at("file"), "");

    (void)state;
    (void)os_close(fd);
    faults_install(NULL);
    faults_count_only(OS_CALL_pwrite, "file");
    fd = os_open(at("file"), O_RDWR, 0);
    faults_arm(1, 0, true, FAULT_SHORT);
    assert_int_equal(os_pwrite_all(fd, "0123456789", 10, 3, &written), 0);
    assert_int_equal(written, 10);
    assert_int_equal(faults_count(), 4); /* 5, 3, 1, 1 */
    faults_uninstall();
    assert_int_equal(os_pread_full(fd, back, sizeof back, 3), 10);
    assert_string_equal(back, "0123456789");
    assert_int_equal(os_close(fd), 0);
}

/* A kernel that takes four bytes at a time. */
static int64_t shorten(int fd, const void *p, size_t n, uint64_t offset)
{
    return os_real.pwrite(fd, p, n > 4 ? 4 : n, offset);
}

static void pwrite_all_says_how_much_is_written(void **state)
{
    struct os_table four_at_a_time = os_real;
    size_t written = 99;
    int fd = make(at("file"), "");

    (void)state;
    four_at_a_time.pwrite = shorten;
    faults_install(&four_at_a_time);
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_arm(3, EIO, false, FAULT_ERROR);
    assert_int_equal(os_pwrite_all(fd, "0123456789", 10, 0, &written), -EIO);
    assert_int_equal(written, 8);
    faults_reset();
    faults_arm(2, 0, false, FAULT_ZERO);
    assert_int_equal(os_pwrite_all(fd, "0123456789", 10, 0, &written), -EIO);
    assert_int_equal(written, 4);
    faults_reset();
    faults_arm(1, ENOSPC, false, FAULT_ERROR);
    assert_int_equal(os_pwrite_all(fd, "0123456789", 10, 0, &written), -ENOSPC);
    assert_int_equal(written, 0);
    assert_int_equal(os_pwrite_all(fd, "", 0, 0, &written), 0);
    assert_int_equal(written, 0);
    faults_uninstall();
    os_install(NULL);
    assert_int_equal(os_close(fd), 0);
}

static void pread_full_goes_on_and_reports(void **state)
{
    char back[16];
    int fd = make(at("file"), "0123456789");

    (void)state;
    faults_install(NULL);
    faults_count_only(OS_CALL_pread, NULL);
    faults_arm(1, 0, true, FAULT_SHORT);
    assert_int_equal(os_pread_full(fd, back, 10, 0), 10);
    assert_memory_equal(back, "0123456789", 10);
    assert_true(faults_count() > 1);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(os_pread_full(fd, back, 10, 0), -EIO);
    faults_uninstall();
    assert_int_equal(os_close(fd), 0);
}

static void sync_dir_reports_each_step(void **state)
{
    static const enum os_call steps[] = {OS_CALL_open, OS_CALL_fsync, OS_CALL_close};
    int lowest = os_open(directory, O_RDONLY, 0);
    int fd;

    (void)state;
    assert_int_equal(os_close(lowest), 0);
    assert_int_equal(os_sync_dir(directory), 0);
    assert_int_equal(os_sync_dir(at("none")), -ENOENT);
    assert_int_equal(os_close(make(at("file"), "")), 0);
    assert_int_equal(os_sync_dir(at("file")), -ENOTDIR);
    for (size_t n = 0; n < 3; n++) {
        faults_install(NULL);
        faults_count_only(steps[n], NULL);
        faults_arm(1, EIO, false, FAULT_ERROR);
        assert_int_equal(os_sync_dir(directory), -EIO);
        assert_int_equal(faults_fired(), 1);
        faults_uninstall();
        /* No descriptor is left behind: the lowest free one is the same as before. */
        fd = os_open(directory, O_RDONLY, 0);
        assert_int_equal(fd, lowest);
        assert_int_equal(os_close(fd), 0);
    }
    faults_install(NULL);
    faults_count_only(OS_CALL_ANY, NULL);
    faults_arm(2, EIO, true, FAULT_ERROR);
    assert_int_equal(os_sync_dir(directory), -EIO);
    assert_int_equal(faults_count(), 3); /* closed even after the failed sync */
    faults_uninstall();
}

static void mkdir_takes_a_directory_for_success(void **state)
{
    (void)state;
    assert_int_equal(os_mkdir_exist_ok(at("d"), 0700), 0);
    assert_int_equal(os_mkdir_exist_ok(at("d"), 0700), 0);
    assert_int_equal(os_close(make(at("file"), "")), 0);
    assert_int_equal(os_mkdir_exist_ok(at("file"), 0700), -ENOTDIR);
    assert_int_equal(os_mkdir_exist_ok(at("none/d"), 0700), -ENOENT);
    faults_install(NULL);
    faults_count_only(OS_CALL_stat, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(os_mkdir_exist_ok(at("d"), 0700), -EIO);
    faults_uninstall();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, test_setup)
    const struct CMUnitTest tests[] = {
        T(table_is_replaced_and_comes_back),
        T(every_entry_of_the_kernel_table_is_there),
        T(open_reports_errors),
        T(descriptors_are_close_on_exec),
        T(bytes_come_back),
        T(blocks_are_reserved_and_given_up),
        T(time_of_a_change_is_told),
        T(directory_is_watched),
        T(a_rename_that_never_replaces),
        T(a_second_name_and_its_directory),
        T(file_calls_report_errors),
        T(names_change),
        T(list_gives_names_and_stops),
        T(lock_keeps_others_out),
        T(pwrite_all_goes_on_after_short_writes),
        T(pwrite_all_says_how_much_is_written),
        T(pread_full_goes_on_and_reports),
        T(sync_dir_reports_each_step),
        T(mkdir_takes_a_directory_for_success),
    };
#undef T

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
