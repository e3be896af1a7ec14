/* test_model_names: what a power cut may leave of the names on the model disk: creates, renames,
 * unlinks, directories. Each test compares the outcomes of all cuts with those that POSIX and a
 * journalling file system allow. */
#include "tests/unit/os/model_outcomes.h"

/* ---- names ---- */

static void a_new_name_vanishes_without_its_directory(void **state)
{
    int fd = make("/m/f", "");

    (void)state;
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(model_pending(m), 1);
    EXPECT("/m/f", NULL, "-", "512n");
    assert_int_equal(os_sync_dir("/m"), 0);
    EXPECT("/m/f", NULL, "512n");
}

static void a_name_says_nothing_about_bytes(void **state)
{
    int fd = make("/m/f", "");

    (void)state;
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    EXPECT("/m/f", NULL, "0", "5120", "512n");
}

static void names_land_in_any_order(void **state)
{
    (void)state;
    (void)make("/m/a", "");
    (void)make("/m/b", "");
    EXPECT("/m/a", "/m/b", "- -", "0 -", "- 0", "0 0");
}

static void names_land_in_order_when_asked(void **state)
{
    const struct model_options options = {.order = MODEL_ORDERED};

    (void)state;
    use(&options);
    (void)make("/m/a", "");
    (void)make("/m/b", "");
    EXPECT("/m/a", "/m/b", "- -", "0 -", "0 0");
}

static void directories_are_independent_even_in_order(void **state)
{
    const struct model_options options = {.order = MODEL_ORDERED};

    (void)state;
    use(&options);
    assert_int_equal(os_mkdir("/m/d", 0700), 0);
    assert_int_equal(os_mkdir("/m/e", 0700), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    (void)make("/m/d/a", "");
    (void)make("/m/e/b", "");
    EXPECT("/m/d/a", "/m/e/b", "- -", "0 -", "- 0", "0 0");
}

static void a_rename_replaces_whole(void **state)
{
    int fd;

    (void)state;
    (void)old_file("/m/f", 1024);
    fd = make("/m/tmp", "");
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(os_rename("/m/tmp", "/m/f"), 0);
    EXPECT("/m/f", "/m/tmp", "1024oo 512n", "512n -");
    assert_int_equal(os_sync_dir("/m"), 0);
    EXPECT("/m/f", "/m/tmp", "512n -");
}

static void a_rename_does_not_wait_for_bytes(void **state)
{
    int fd;

    (void)state;
    (void)old_file("/m/f", 1024);
    fd = make("/m/tmp", "");
    assert_int_equal(os_sync_dir("/m"), 0);
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_rename("/m/tmp", "/m/f"), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    /* The classic: an empty file, or zeros, under the good name. */
    EXPECT("/m/f", "/m/tmp", "0 -", "5120 -", "512n -");
}

static void a_rename_needs_what_it_renames(void **state)
{
    (void)state;
    (void)make("/m/tmp", "");
    assert_int_equal(os_rename("/m/tmp", "/m/f"), 0);
    EXPECT("/m/f", "/m/tmp", "- -", "- 0", "0 -");
}

static void a_name_used_twice_lands_in_order(void **state)
{
    (void)state;
    (void)old_file("/m/f", 512);
    assert_int_equal(os_rename("/m/f", "/m/g"), 0);
    assert_int_equal(os_fdatasync(make("/m/f", "n")), 0);
    /* Never both names for the old file, never the new f without the old one at g. */
    EXPECT("/m/f", "/m/g", "512o -", "- 512o", "1n 512o");
}

static void a_rename_between_directories_is_atomic(void **state)
{
    static const char *const dirs[] = {"/m/d", "/m/e"};

    (void)state;
    for (unsigned n = 0; n < 2; n++) {
        use(NULL);
        assert_int_equal(os_mkdir("/m/d", 0700), 0);
        assert_int_equal(os_mkdir("/m/e", 0700), 0);
        (void)make("/m/d/f", "");
        assert_int_equal(os_sync_dir("/m/d"), 0);
        assert_int_equal(os_sync_dir("/m"), 0);
        assert_int_equal(os_rename("/m/d/f", "/m/e/f"), 0);
        EXPECT("/m/d/f", "/m/e/f", "0 -", "- 0");
        assert_int_equal(os_sync_dir(dirs[n]), 0); /* either one will do */
        EXPECT("/m/d/f", "/m/e/f", "- 0");
    }
}

static void a_directory_sync_takes_forerunners_along(void **state)
{
    static const char *const others[] = {"- 0", "0 0"};

    (void)state;
    for (unsigned ordered = 0; ordered < 2; ordered++) {
        const struct model_options options = {.order = ordered ? MODEL_ORDERED : MODEL_REORDERED};

        use(&options);
        assert_int_equal(os_mkdir("/m/d", 0700), 0);
        assert_int_equal(os_mkdir("/m/e", 0700), 0);
        assert_int_equal(os_sync_dir("/m"), 0);
        (void)make("/m/d/other", "");
        (void)make("/m/d/f", "");
        assert_int_equal(os_rename("/m/d/f", "/m/e/f"), 0);
        assert_int_equal(os_sync_dir("/m/e"), 0);
        /* In order, what came before in the other directory has landed as well. */
        expect("/m/d/other", "/m/e/f", 2 - ordered, others + ordered);
    }
}

static void a_directory_sync_lands_that_directory_only(void **state)
{
    (void)state;
    assert_int_equal(os_mkdir("/m/d", 0700), 0);
    (void)make("/m/d/f", "");
    assert_int_equal(os_sync_dir("/m/d"), 0);
    assert_int_equal(model_pending(m), 1);
    EXPECT("/m/d/f", NULL, "-", "0"); /* goes with its directory */
    assert_int_equal(os_sync_dir("/m"), 0);
    EXPECT("/m/d/f", NULL, "0");
}

static void an_unlinked_name_may_come_back(void **state)
{
    int fd = old_file("/m/f", 512);

    (void)state;
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_unlink("/m/f"), 0);
    assert_int_equal(os_close(fd), 0);
    EXPECT("/m/f", NULL, "512o", "512n", "-");
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(model_pending(m), 0);
    EXPECT("/m/f", NULL, "-");
}

static void a_replaced_file_may_come_back(void **state)
{
    int fd = old_file("/m/f", 1024);

    (void)state;
    assert_int_equal(os_close(fd), 0);
    (void)old_file("/m/g", 512);
    assert_int_equal(os_rename("/m/g", "/m/f"), 0);
    EXPECT("/m/f", "/m/g", "1024oo 512o", "512o -");
    cut(false);
    assert_int_equal(model_used_bytes(m), 2 * MODEL_BLOCK);
}

static void a_file_born_and_gone_leaves_nothing(void **state)
{
    int fd = make("/m/f", "");

    (void)state;
    fill(fd, 'n', 512, 0);
    assert_int_equal(os_unlink("/m/f"), 0);
    assert_int_equal(os_close(fd), 0);
    EXPECT("/m/f", NULL, "-", "0", "5120", "512n");
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(model_pending(m), 0);
    assert_int_equal(model_used_bytes(m), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_new_name_vanishes_without_its_directory),
        T(a_name_says_nothing_about_bytes),
        T(names_land_in_any_order),
        T(names_land_in_order_when_asked),
        T(directories_are_independent_even_in_order),
        T(a_rename_replaces_whole),
        T(a_rename_does_not_wait_for_bytes),
        T(a_rename_needs_what_it_renames),
        T(a_name_used_twice_lands_in_order),
        T(a_rename_between_directories_is_atomic),
        T(a_directory_sync_takes_forerunners_along),
        T(a_directory_sync_lands_that_directory_only),
        T(an_unlinked_name_may_come_back),
        T(a_replaced_file_may_come_back),
        T(a_file_born_and_gone_leaves_nothing),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
