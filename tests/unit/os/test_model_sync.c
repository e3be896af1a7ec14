/* test_model_sync: what a sync of the model disk lands; syncs that fail and lie; damage behind the
 * process's back. */
#include "tests/unit/os/model_fixture.h"

/* ---- syncs that work, fail and lie ---- */

static void a_sync_makes_bytes_durable(void **state)
{
    int fd;

    (void)state;
    make_durable("/m/file", "old");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "newer", 5, 0), 5);
    assert_int_equal(model_pending(m), 2); /* a sector and a size */
    cut(false);
    has("/m/file", "old");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "newer", 5, 0), 5);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(model_pending(m), 0);
    cut(false);
    has("/m/file", "newer");
}

static void a_sync_lands_only_its_file(void **state)
{
    int a;
    int b;

    (void)state;
    make_durable("/m/a", "a1");
    make_durable("/m/b", "b1");
    a = os_open("/m/a", O_RDWR, 0);
    b = os_open("/m/b", O_RDWR, 0);
    assert_int_equal(os_pwrite(a, "a2", 2, 0), 2);
    assert_int_equal(os_pwrite(b, "b2", 2, 0), 2);
    assert_int_equal(os_fsync(b), 0);
    cut(false);
    has("/m/a", "a1");
    has("/m/b", "b2");
}

static void a_failed_sync_loses_the_bytes_as_linux_does(void **state)
{
    const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fdatasync, .path = "file"};
    char back[8] = {0};
    int fd;

    (void)state;
    make_durable("/m/file", "old");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "new", 3, 0), 3);
    model_fault_arm(m, &fail);
    assert_int_equal(os_fdatasync(fd), -EIO);
    assert_int_equal(model_fault_fired(m), 1);
    assert_int_equal(os_fdatasync(fd), 0); /* the lie of 2018 */
    has("/m/file", "new");
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_pread(fd, back, 3, 0), 3);
    assert_string_equal(back, "old");
    cut(true);
    has("/m/file", "old");
}

static void a_failed_sync_shows_at_the_cut(void **state)
{
    const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fsync};
    int fd;

    (void)state;
    make_durable("/m/file", "old");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "longer", 6, 0), 6);
    model_fault_arm(m, &fail);
    assert_int_equal(os_fsync(fd), -EIO);
    /* Written again elsewhere and synced: that lands, the lost sector does not. The size does: it
     * is metadata. */
    assert_int_equal(os_pwrite(fd, "x", 1, 1000), 1);
    assert_int_equal(os_fsync(fd), 0);
    cut(false);
    {
        char bytes[1001];

        assert_int_equal(model_get(m, "/m/file", bytes, sizeof bytes), 1001);
        assert_memory_equal(bytes, "old\0\0\0", 6);
        assert_int_equal(bytes[1000], 'x');
    }
}

static void a_failed_sync_may_land_a_part(void **state)
{
    unsigned old = 0;
    unsigned new = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 32; seed++) {
        const struct model_options options = {.seed = seed};
        const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fdatasync};
        char bytes[8];
        int fd;

        use(&options);
        make_durable("/m/file", "old");
        fd = os_open("/m/file", O_RDWR, 0);
        assert_int_equal(os_pwrite(fd, "new", 3, 0), 3);
        model_failed_sync_partial(m, true);
        model_fault_arm(m, &fail);
        assert_int_equal(os_fdatasync(fd), -EIO);
        cut(true);
        assert_int_equal(model_get(m, "/m/file", bytes, 8), 3);
        old += memcmp(bytes, "old", 3) == 0;
        new += memcmp(bytes, "new", 3) == 0;
    }
    assert_int_equal(old + new, 32);
    assert_in_range(old, 4, 28);
}

static void drop_cache_keeps_what_is_dirty(void **state)
{
    const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fdatasync};
    char bytes[5000];
    int fd;

    (void)state;
    make_durable("/m/file", "old");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "new", 3, 0), 3);
    assert_int_equal(os_pwrite(fd, "far", 3, 4096), 3);
    model_fault_arm(m, &fail);
    assert_int_equal(os_fdatasync(fd), -EIO);
    assert_int_equal(os_pwrite(fd, "FAR", 3, 4096), 3); /* dirty again; the first page is clean */
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_pread(fd, bytes, sizeof bytes, 0), 4099);
    assert_memory_equal(bytes, "old", 3);
    assert_memory_equal(bytes + 4096, "FAR", 3);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_drop_cache(fd), 0);
    cut(false);
    assert_int_equal(model_get(m, "/m/file", bytes, sizeof bytes), 4099);
    assert_memory_equal(bytes, "old", 3);
    assert_memory_equal(bytes + 4096, "FAR", 3);
}

static void drop_cache_does_not_bring_back_what_was_cut_off(void **state)
{
    const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fdatasync};
    char bytes[8] = {0};
    int fd;

    (void)state;
    make_durable("/m/file", "secret");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_ftruncate(fd, 0), 0);
    assert_int_equal(os_ftruncate(fd, 6), 0);
    model_fault_arm(m, &fail);
    assert_int_equal(os_fdatasync(fd), -EIO); /* loses no metadata */
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_pread(fd, bytes, sizeof bytes, 0), 6);
    assert_memory_equal(bytes, "\0\0\0\0\0\0", 6);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_drop_cache(fd), 0);
    assert_int_equal(os_pread(fd, bytes, sizeof bytes, 0), 6);
    assert_memory_equal(bytes, "\0\0\0\0\0\0", 6);
}

static void a_failed_directory_sync_leaves_the_entry_pending(void **state)
{
    const struct fault fail = {.error = EIO, .at = 1, .call = OS_CALL_fsync};

    (void)state;
    (void)make("/m/file", "");
    model_fault_arm(m, &fail);
    assert_int_equal(os_sync_dir("/m"), -EIO);
    assert_int_equal(model_pending(m), 1);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(model_pending(m), 0);
}

static void a_lying_disk_loses_what_it_promised(void **state)
{
    int fd;

    (void)state;
    model_lie(m, false, true);
    make_durable("/m/gone", "x");
    cut(false);
    has_not("/m/gone");
    make_durable("/m/file", "old");
    model_lie(m, true, false);
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "new", 3, 0), 3);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_fsync(fd), 0);
    cut(false);
    has("/m/file", "old");
}

/* ---- damage ---- */

static void rot_is_in_cache_disk_and_pending_data(void **state)
{
    int fd;

    (void)state;
    make_durable("/m/file", "abc");
    assert_int_equal(model_rot(m, "/m/file", 1, 0x01), 0);
    has("/m/file", "acc");
    cut(false);
    has("/m/file", "acc");
    fd = os_open("/m/file", O_RDWR, 0);
    assert_int_equal(os_pwrite(fd, "xyz!", 4, 0), 4);
    assert_int_equal(model_rot(m, "/m/file", 0, 0x01), 0);
    has("/m/file", "yyz!");
    cut(true);
    has("/m/file", "yyz!");
    assert_int_equal(model_rot(m, "/m/none", 0, 1), -ENOENT);
    assert_int_equal(model_rot(m, "/m/file", 4, 1), -EINVAL);
    assert_int_equal(model_rot(m, "/m", 0, 1), -EINVAL);
}

static void a_write_may_go_astray(void **state)
{
    char bytes[1536];
    char old[1536];
    int fd;

    (void)state;
    memset(old, 'o', sizeof old);
    model_put(m, "/m/file", old, sizeof old);
    fd = os_open("/m/file", O_RDWR, 0);
    memset(bytes, 'n', 512);
    model_misdirect_next(m, 2);
    assert_int_equal(os_pwrite(fd, bytes, 512, 0), 512);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_pread(fd, bytes, 1536, 0), 1536);
    assert_int_equal(bytes[0], 'n'); /* the cache is right */
    assert_int_equal(bytes[1024], 'o');
    cut(true);
    assert_int_equal(model_get(m, "/m/file", bytes, 1536), 1536);
    assert_memory_equal(bytes, old, 1024);
    assert_int_equal(bytes[1024], 'n');
    /* Past the end it is in no file. */
    fd = os_open("/m/file", O_RDWR, 0);
    model_misdirect_next(m, -1000);
    assert_int_equal(os_pwrite(fd, "lost", 4, 0), 4);
    assert_int_equal(os_fdatasync(fd), 0);
    cut(true);
    assert_int_equal(model_get(m, "/m/file", bytes, 1536), 1536);
    assert_memory_equal(bytes, old, 1024);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_sync_makes_bytes_durable),
        T(a_sync_lands_only_its_file),
        T(a_failed_sync_loses_the_bytes_as_linux_does),
        T(a_failed_sync_shows_at_the_cut),
        T(a_failed_sync_may_land_a_part),
        T(drop_cache_keeps_what_is_dirty),
        T(drop_cache_does_not_bring_back_what_was_cut_off),
        T(a_failed_directory_sync_leaves_the_entry_pending),
        T(a_lying_disk_loses_what_it_promised),
        T(rot_is_in_cache_disk_and_pending_data),
        T(a_write_may_go_astray),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
