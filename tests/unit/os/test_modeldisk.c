/* test_modeldisk: the calls of the model disk, one by one: what Linux would answer, a full disk,
 * clocks, what is not the model's. Syncs are in test_model_sync, faults and hooks in
 * test_model_calls, power cuts in test_model_crash. */
#include "tests/unit/os/model_fixture.h"

/* ---- what Linux would answer ---- */

static void open_answers_as_linux(void **state)
{
    int fd = make("/m/file", "x");
    int again;

    (void)state;
    assert_int_equal(os_mkdir("/m/d", 0700), 0);
    assert_true(fd >= MODEL_FD_BASE);
    assert_int_equal(os_open("/m/none", O_RDONLY, 0), -ENOENT);
    assert_int_equal(os_open("/other/file", O_RDONLY, 0), -ENOENT);
    assert_int_equal(os_open("/mfile", O_RDONLY, 0), -ENOENT);
    assert_int_equal(os_open("/m/none/file", O_RDWR | O_CREAT, 0600), -ENOENT);
    assert_int_equal(os_open("/m/file", O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
    assert_int_equal(os_open("/m/file/below", O_RDONLY, 0), -ENOTDIR);
    assert_int_equal(os_open("/m/file", O_RDONLY | O_DIRECTORY, 0), -ENOTDIR);
    assert_int_equal(os_open("/m/d", O_RDWR, 0), -EISDIR);
    assert_int_equal(os_open("/m/d", O_RDONLY | O_CREAT, 0600), -EISDIR);
    assert_int_equal(os_open("/m/new", O_RDWR | O_CREAT | O_DIRECTORY, 0600), -EINVAL);
    assert_int_equal(os_open("/m/file", O_WRONLY | O_APPEND, 0), -EINVAL);
    assert_int_equal(os_open("/m/d/../file", O_RDONLY, 0), -EINVAL);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_close(fd), -EBADF);
    again = os_open("/m//file", O_RDWR | O_TRUNC, 0);
    assert_true(again > fd); /* numbers are not used again: a stale descriptor shows */
    has("/m/file", "");
    assert_int_equal(os_close(again), 0);
}

static void long_names_are_refused(void **state)
{
    char path[200] = "/m/";

    (void)state;
    memset(path + 3, 'a', MODEL_NAME_SIZE - 1);
    assert_true(os_open(path, O_RDWR | O_CREAT, 0600) >= 0);
    memset(path + 3, 'a', MODEL_NAME_SIZE);
    assert_int_equal(os_open(path, O_RDWR | O_CREAT, 0600), -ENAMETOOLONG);
}

static void bytes_come_back(void **state)
{
    int fd = make("/m/file", "hello");
    int reader = os_open("/m/file", O_RDONLY, 0);
    int writer = os_open("/m/file", O_WRONLY, 0);
    char back[10000];

    (void)state;
    assert_int_equal(os_pwrite(writer, "J", 1, 0), 1);
    assert_int_equal(os_pread(reader, back, sizeof back, 0), 5);
    assert_memory_equal(back, "Jello", 5);
    assert_int_equal(os_pread(reader, back, sizeof back, 5), 0);
    assert_int_equal(os_pread(writer, back, 1, 0), -EBADF);
    assert_int_equal(os_pwrite(reader, "x", 1, 0), -EBADF);
    assert_int_equal(os_pread(reader, back, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(os_pwrite(writer, "x", 1, UINT64_MAX), -EINVAL);
    assert_int_equal(os_pwrite(writer, "x", 1, INT64_MAX), -EFBIG);
    assert_int_equal(os_pwrite(fd, "", 0, 100), 0);
    /* A hole between two pages reads as zeros. */
    assert_int_equal(os_pwrite(fd, "end", 3, 9000), 3);
    assert_int_equal(os_pread(fd, back, sizeof back, 0), 9003);
    assert_memory_equal(back, "Jello\0\0", 7);
    assert_int_equal(back[5000], 0);
    assert_memory_equal(back + 9000, "end", 3);
    assert_int_equal(os_ftruncate(fd, 3), 0);
    assert_int_equal(os_ftruncate(fd, 6), 0);
    assert_int_equal(os_pread(fd, back, sizeof back, 0), 6);
    assert_memory_equal(back, "Jel\0\0\0", 6);
    assert_int_equal(os_ftruncate(reader, 0), -EINVAL);
    assert_int_equal(os_ftruncate(fd, UINT64_MAX), -EINVAL);
    assert_int_equal(os_ftruncate(-1, 0), -EBADF);
}

static void directories_hold_no_bytes(void **state)
{
    int fd = os_open("/m", O_RDONLY | O_DIRECTORY, 0);
    char byte;

    (void)state;
    assert_int_equal(os_pread(fd, &byte, 1, 0), -EISDIR);
    assert_int_equal(os_pwrite(fd, &byte, 1, 0), -EBADF);
    assert_int_equal(os_ftruncate(fd, 0), -EINVAL);
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_drop_cache(-1), -EBADF);
    assert_int_equal(os_fsync(-1), -EBADF);
    assert_int_equal(os_fdatasync(fd), 0);
}

static void stat_answers_as_linux(void **state)
{
    int fd = make("/m/file", "hello");
    struct os_stat st;
    struct os_stat same;

    (void)state;
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_stat("/m/file", &same), 0);
    assert_int_equal(st.size, 5);
    assert_int_equal(st.inode, same.inode);
    assert_true(S_ISREG(st.mode));
    assert_int_equal(os_stat("/m", &st), 0);
    assert_true(S_ISDIR(st.mode));
    assert_int_not_equal(st.inode, same.inode);
    assert_int_equal(os_stat("/m/none", &st), -ENOENT);
    assert_int_equal(os_fstat(-1, &st), -EBADF);
}

static void names_answer_as_linux(void **state)
{
    (void)state;
    (void)make("/m/file", "1");
    assert_int_equal(os_mkdir("/m/d", 0700), 0);
    assert_int_equal(os_mkdir("/m/d", 0700), -EEXIST);
    assert_int_equal(os_mkdir("/m", 0700), -EEXIST);
    assert_int_equal(os_mkdir("/m/none/d", 0700), -ENOENT);
    assert_int_equal(os_mkdir("/m/d/e", 0700), 0);
    assert_int_equal(os_unlink("/m/d"), -EISDIR);
    assert_int_equal(os_unlink("/m/none"), -ENOENT);
    assert_int_equal(os_rename("/m/none", "/m/x"), -ENOENT);
    assert_int_equal(os_rename("/m/file", "/m/none/x"), -ENOENT);
    assert_int_equal(os_rename("/m/file", "/m/d"), -EISDIR);
    assert_int_equal(os_rename("/m/d", "/m/file"), -ENOTDIR);
    assert_int_equal(os_rename("/m/d", "/m/d/e/f"), -EINVAL);
    assert_int_equal(os_rename("/m", "/m/x"), -EBUSY);
    assert_int_equal(os_rename("/m/file", "/elsewhere"), -ENOENT);
    assert_int_equal(os_mkdir("/m/full", 0700), 0);
    assert_int_equal(os_mkdir("/m/full/x", 0700), 0);
    assert_int_equal(os_rename("/m/d", "/m/full"), -ENOTEMPTY);
    assert_int_equal(os_rename("/m/d/e", "/m/full/x"), 0);
    assert_int_equal(os_rename("/m/file", "/m/file"), 0);
    assert_int_equal(os_rename("/m/file", "/m/d/moved"), 0);
    has_not("/m/file");
    has("/m/d/moved", "1");
    assert_int_equal(os_rename("/m/d", "/m/dd"), 0);
    has("/m/dd/moved", "1");
    assert_int_equal(os_unlink("/m/dd/moved"), 0);
    has_not("/m/dd/moved");
}

static void an_unlinked_file_lives_while_it_is_open(void **state)
{
    int fd = make("/m/file", "still");
    char back[8];

    (void)state;
    assert_int_equal(os_unlink("/m/file"), 0);
    assert_int_equal(os_pread(fd, back, sizeof back, 0), 5);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(os_pwrite(fd, "more", 4, 5), 4);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(model_pending(m), 0);
    assert_int_equal(model_used_bytes(m), 0);
}

struct seen {
    unsigned count;
    char names[8][16];
    const char *remove;
};

static int see(void *ctx, const char *name)
{
    struct seen *seen = ctx;

    (void)snprintf(seen->names[seen->count++], sizeof seen->names[0], "%s", name);
    if (seen->remove != NULL) {
        char path[64];

        (void)snprintf(path, sizeof path, "%s/%s", seen->remove, name);
        assert_int_equal(os_unlink(path), 0);
    }
    return seen->count == 5 ? 42 : 0;
}

static void list_order_is_the_seeds(void **state)
{
    static const char *const names[] = {"/m/a", "/m/b", "/m/c", "/m/d"};
    struct seen seen[3] = {{0}};

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        const struct model_options options = {.seed = round == 2 ? 8 : 7};

        use(&options);
        for (unsigned n = 0; n < 4; n++) {
            (void)make(names[round == 1 ? 3 - n : n], "");
        }
        assert_int_equal(os_list("/m", see, &seen[round]), 0);
        assert_int_equal(seen[round].count, 4);
    }
    assert_memory_equal(&seen[0], &seen[1], sizeof seen[0]);
    assert_memory_not_equal(&seen[0], &seen[2], sizeof seen[0]);
}

static void list_may_unlink_and_stop(void **state)
{
    struct seen seen = {.remove = "/m"};

    (void)state;
    (void)make("/m/a", "");
    (void)make("/m/b", "");
    assert_int_equal(os_list("/m", see, &seen), 0);
    assert_int_equal(seen.count, 2);
    has_not("/m/a");
    (void)make("/m/a", "");
    seen = (struct seen){.count = 4};
    assert_int_equal(os_list("/m", see, &seen), 42);
    assert_int_equal(os_list("/m/none", see, &seen), -ENOENT);
    assert_int_equal(os_list("/m/a", see, &seen), -ENOTDIR);
}

static void locks_belong_to_descriptors(void **state)
{
    int first = make("/m/lock", "");
    int second = os_open("/m/lock", O_RDWR, 0);

    (void)state;
    assert_int_equal(os_flock(first, LOCK_SH | LOCK_NB), 0);
    assert_int_equal(os_flock(second, LOCK_SH | LOCK_NB), 0);
    assert_int_equal(os_flock(second, LOCK_EX | LOCK_NB), -EWOULDBLOCK);
    assert_int_equal(os_flock(second, LOCK_EX), -EDEADLK);
    assert_int_equal(os_flock(first, LOCK_UN), 0);
    assert_int_equal(os_flock(second, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(os_flock(first, LOCK_SH | LOCK_NB), -EWOULDBLOCK);
    assert_int_equal(os_flock(first, LOCK_NB), -EINVAL);
    assert_int_equal(os_flock(-1, LOCK_EX), -EBADF);
    assert_int_equal(os_close(second), 0);
    assert_int_equal(os_flock(first, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    cut(false);
    assert_int_equal(os_flock(first, LOCK_UN), -EBADF); /* the descriptor is gone */
    first = os_open("/m/lock", O_RDWR, 0);
    assert_int_equal(os_flock(first, LOCK_EX | LOCK_NB), 0); /* and its lock */
}

/* ---- capacity ---- */

static void a_full_disk_says_so_and_recovers(void **state)
{
    const struct model_options options = {.capacity_bytes = 3 * MODEL_BLOCK};
    static const char bytes[4 * MODEL_BLOCK] = {1};
    uint64_t space = 0;
    int a;
    int b;

    (void)state;
    use(&options);
    a = make("/m/a", "");
    b = make("/m/b", "");
    assert_int_equal(os_free_space("/m", &space), 0);
    assert_int_equal(space, 3 * MODEL_BLOCK);
    assert_int_equal(os_pwrite(a, bytes, 1, 0), 1);
    assert_int_equal(os_pwrite(b, bytes, sizeof bytes, 10), 2 * MODEL_BLOCK - 10); /* short */
    assert_int_equal(os_pwrite(b, bytes, 10, 2 * MODEL_BLOCK), -ENOSPC);
    assert_int_equal(os_pwrite(b, bytes, 10, 0), 10); /* in place there is room */
    assert_int_equal(os_free_space("/m", &space), 0);
    assert_int_equal(space, 0);
    assert_int_equal(os_ftruncate(b, MODEL_BLOCK), 0);
    assert_int_equal(os_pwrite(a, bytes, 10, MODEL_BLOCK), 10);
    assert_int_equal(os_unlink("/m/a"), 0);
    assert_int_equal(os_pwrite(b, bytes, 10, MODEL_BLOCK), -ENOSPC); /* a is still open */
    assert_int_equal(os_close(a), 0);
    assert_int_equal(os_pwrite(b, bytes, 10, MODEL_BLOCK), 10);
    assert_int_equal(model_used_bytes(m), 2 * MODEL_BLOCK);
    (void)make("/m/c", "c");
    assert_int_equal(os_rename("/m/c", "/m/b"), 0);
    assert_int_equal(os_close(b), 0);
    assert_int_equal(model_used_bytes(m), MODEL_BLOCK);
    assert_int_equal(os_close(os_open("/m/b", O_RDWR | O_TRUNC, 0)), 0);
    assert_int_equal(model_used_bytes(m), 0);
    assert_int_equal(os_free_space("/m/none", &space), -ENOENT);
}

static void zeros_take_blocks_too(void **state)
{
    const struct model_options options = {.capacity_bytes = MODEL_BLOCK};
    static const char zeros[MODEL_BLOCK];
    int fd;

    (void)state;
    use(&options);
    fd = make("/m/file", "");
    assert_int_equal(os_pwrite(fd, zeros, sizeof zeros, 0), sizeof zeros);
    assert_int_equal(os_pwrite(fd, zeros, sizeof zeros, MODEL_BLOCK), -ENOSPC);
    assert_int_equal(os_ftruncate(fd, 10 * MODEL_BLOCK), 0); /* a hole does not */
    assert_int_equal(model_used_bytes(m), MODEL_BLOCK);
}

static void descriptors_run_out(void **state)
{
    const struct model_options options = {.open_max = 2};

    (void)state;
    use(&options);
    (void)make("/m/a", "");
    (void)make("/m/b", "");
    assert_int_equal(os_open("/m/c", O_RDWR | O_CREAT, 0600), -EMFILE);
    has_not("/m/c");
}

/* ---- clocks and what is not the model's ---- */

static void clocks_are_virtual(void **state)
{
    uint64_t mono = os_clock_mono_ns();
    uint64_t real = os_clock_real_ms();
    unsigned char a[16];
    unsigned char b[16];

    (void)state;
    assert_int_equal(real, 1800000000000u);
    assert_int_equal(os_clock_mono_ns(), mono + 2000);
    model_clock_step(m, 5000000);
    assert_int_equal(os_clock_mono_ns(), mono + 5002000);
    model_clock_advance(m, 1000000000);
    assert_int_equal(os_clock_mono_ns(), mono + 1010002000);
    assert_int_equal(os_clock_real_ms(), real + 1015);
    model_clock_jump_real(m, -3600000);
    assert_int_equal(os_clock_real_ms(), real + 1020 - 3600000);
    assert_int_equal(os_clock_mono_ns(), mono + 1025002000);
    cut(false);
    assert_int_equal(os_clock_mono_ns(), mono + 1030002000); /* time goes on */
    use(NULL);
    assert_int_equal(os_random(a, sizeof a), 0);
    use(NULL);
    assert_int_equal(os_random(b, sizeof b), 0);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(os_random(b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
}

static void other_calls_are_refused_or_the_kernels(void **state)
{
    const struct model_options options = {.kernel_for_others = true, .root = "/virtual/disk"};
    struct os_stat st;
    int fd;

    (void)state;
    assert_int_equal(os_socket(AF_INET, SOCK_STREAM, 0), -ENOSYS);
    assert_int_equal(os_epoll_create(), -ENOSYS);
    use(&options);
    fd = os_eventfd();
    assert_true(fd >= 0 && fd < MODEL_FD_BASE);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_stat("/tmp", &st), 0);
    fd = os_open("/tmp", O_RDONLY | O_DIRECTORY, 0);
    assert_true(fd >= 0 && fd < MODEL_FD_BASE);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(os_close(make("/virtual/disk/file", "x")), 0);
    assert_int_equal(os_rename("/virtual/disk/file", "/tmp/file"), -EXDEV);
    assert_int_equal(os_rename("/virtual/diskette", "/virtual/disk/x"), -EXDEV);
    assert_int_equal(os_stat("/virtual/disk", &st), 0);
    assert_int_equal(model_calls(m), 5);
}

static void every_file_call_may_go_to_the_kernel(void **state)
{
    const struct model_options options = {.kernel_for_others = true};
    char directory[] = "/tmp/test_model.XXXXXX";
    char path[64];
    int results[32];
    int fd;

    (void)state;
    use(&options);
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/file", directory);
    fd = make(path, "1");
    assert_int_equal(each_call(directory, fd, results), OS_CALL_FILE_END - 1);
    for (unsigned n = 0; n < OS_CALL_FILE_END - 1; n++) {
        assert_true(results[n] >= 0);
    }
    assert_true(results[0] < MODEL_FD_BASE);
    assert_int_equal(os_close(results[0]), 0);
    assert_int_equal(model_calls(m), 0);
    (void)snprintf(path, sizeof path, "%s/new", directory);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/dir", directory);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

static uint64_t changed_ms(const char *path)
{
    struct os_stat st;

    assert_int_equal(os_stat(path, &st), 0);
    return st.mtime_ms;
}

/* Of the content: by the wall clock, not by reading or syncing, and known again after a crash. */
static void changes_have_their_time(void **state)
{
    const struct model_choice all = {.how = MODEL_CUT_ALL};
    struct os_stat st;
    struct model *after;
    char byte;
    int fd = make("/m/a", "x");
    uint64_t first = changed_ms("/m/a");

    (void)state;
    assert_true(first >= 1800000000000u);
    model_clock_advance(m, 5000000000u);
    assert_int_equal(os_pread(fd, &byte, 1, 0), 1);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(changed_ms("/m/a"), first);
    assert_int_equal(os_pwrite(fd, "y", 1, 0), 1);
    assert_int_equal(changed_ms("/m/a"), first + 5000);
    model_clock_advance(m, 5000000000u);
    assert_int_equal(os_ftruncate(fd, 0), 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    assert_int_equal(st.mtime_ms, first + 10000);
    assert_int_equal(os_close(fd), 0);
    after = model_crash(m, &all);
    model_free(m);
    m = after;
    model_use(m);
    assert_int_equal(changed_ms("/m/a"), first + 10000);
    model_clock_advance(m, 5000000000u);
    assert_int_equal(os_rename("/m/a", "/m/b"), 0);
    assert_int_equal(changed_ms("/m/b"), first + 10000);
    assert_int_equal(changed_ms("/m"), first + 15000);
}

static void files_can_be_put_and_exported(void **state)
{
    char directory[] = "/tmp/test_model.XXXXXX";
    char path[64];
    char back[8] = {0};
    int fd;

    (void)state;
    model_put(m, "/m/a/b/file", "one", 3);
    model_put(m, "/m/a/b/file", "two!", 4);
    assert_int_equal(model_used_bytes(m), MODEL_BLOCK);
    cut(false);
    has("/m/a/b/file", "two!");
    assert_non_null(mkdtemp(directory));
    assert_int_equal(model_export(m, directory), 0);
    (void)snprintf(path, sizeof path, "%s/a/b/file", directory);
    fd = os_real.open(path, O_RDONLY, 0);
    assert_int_equal(os_real.pread(fd, back, sizeof back, 0), 4);
    assert_string_equal(back, "two!");
    assert_int_equal(os_real.close(fd), 0);
    assert_int_equal(model_export(m, directory), -EEXIST);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/a/b", directory);
    assert_int_equal(rmdir(path), 0);
    (void)snprintf(path, sizeof path, "%s/a", directory);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(open_answers_as_linux),
        T(long_names_are_refused),
        T(bytes_come_back),
        T(directories_hold_no_bytes),
        T(stat_answers_as_linux),
        T(names_answer_as_linux),
        T(an_unlinked_file_lives_while_it_is_open),
        T(list_order_is_the_seeds),
        T(list_may_unlink_and_stop),
        T(locks_belong_to_descriptors),
        T(a_full_disk_says_so_and_recovers),
        T(zeros_take_blocks_too),
        T(descriptors_run_out),
        T(clocks_are_virtual),
        T(other_calls_are_refused_or_the_kernels),
        T(every_file_call_may_go_to_the_kernel),
        T(changes_have_their_time),
        T(files_can_be_put_and_exported),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
