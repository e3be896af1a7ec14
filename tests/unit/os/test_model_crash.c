/* test_model_crash: what a power cut may leave of the bytes on the model disk, and how a test
 * chooses. Each test makes a small state with pending items and compares the outcomes of all cuts
 * with those that POSIX and a sane disk allow. */
#include "tests/unit/os/model_outcomes.h"

/* ---- data and sizes ---- */

static void sectors_land_in_any_combination(void **state)
{
    int fd = old_file("/m/f", 1536);

    (void)state;
    fill(fd, 'n', 1536, 0);
    assert_int_equal(model_pending(m), 3);
    EXPECT("/m/f", NULL, "1536ooo", "1536noo", "1536ono", "1536oon", "1536nno", "1536non",
           "1536onn", "1536nnn");
}

static void a_sector_is_whole(void **state)
{
    int fd = old_file("/m/f", 512);
    struct model_crashes it;
    struct model *after;

    (void)state;
    fill(fd, 'n', 500, 6); /* touches one sector only: bytes 0 to 5 stay in either case */
    model_crashes_begin(&it, m, 8, 0, 1);
    while ((after = model_crashes_next(&it)) != NULL) {
        unsigned char bytes[512];

        assert_int_equal(model_get(after, "/m/f", bytes, 512), 512);
        assert_int_equal(bytes[0], 'o');
        for (unsigned n = 7; n < 506; n++) {
            assert_int_equal(bytes[n], bytes[6]);
        }
        model_free(after);
    }
    assert_int_equal(it.next, 2);
}

static void a_sector_written_twice_has_three_ends(void **state)
{
    int fd = old_file("/m/f", 512);

    (void)state;
    fill(fd, '1', 512, 0);
    fill(fd, '2', 512, 0);
    EXPECT("/m/f", NULL, "512o", "5121", "5122");
    /* Back to what the disk has, with other versions on the way: still three. */
    fill(fd, 'o', 512, 0);
    EXPECT("/m/f", NULL, "512o", "5121", "5122");
}

static void what_the_disk_has_already_is_not_pending(void **state)
{
    int fd = old_file("/m/f", 4096);

    (void)state;
    fill(fd, 'o', 4096, 0);
    assert_int_equal(model_pending(m), 0);
    fill(fd, '\0', 4096, 8192); /* zeros over a hole: only the size is news */
    assert_int_equal(model_pending(m), 1);
}

static void growth_may_lose_size_or_data(void **state)
{
    int fd = old_file("/m/f", 512);

    (void)state;
    fill(fd, 'n', 512, 512);
    EXPECT("/m/f", NULL, "512o", "1024o0", "1024on");
}

static void sizes_land_in_order(void **state)
{
    int fd = old_file("/m/f", 1024);

    (void)state;
    assert_int_equal(os_ftruncate(fd, 0), 0);
    assert_int_equal(os_ftruncate(fd, 1024), 0);
    /* Never 1024 bytes with old ones: the cut came first. */
    EXPECT("/m/f", NULL, "1024oo", "0", "102400");
}

static void a_cut_off_tail_does_not_come_back(void **state)
{
    int fd = old_file("/m/f", 1024);

    (void)state;
    assert_int_equal(os_ftruncate(fd, 100), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    cut(false);
    fd = os_open("/m/f", O_RDWR, 0);
    fill(fd, 'x', 1, 2000);
    {
        unsigned char bytes[2001];

        assert_int_equal(model_get(m, "/m/f", bytes, sizeof bytes), 2001);
        assert_int_equal(bytes[99], 'o');
        for (unsigned n = 100; n < 2000; n++) {
            assert_int_equal(bytes[n], 0);
        }
    }
}

static void bytes_past_a_lost_size_read_as_zeros_later(void **state)
{
    struct model_choice data_only = {.how = MODEL_CUT_MASK, .mask = 1};
    struct model *after;
    unsigned char bytes[301];
    int fd = old_file("/m/f", 100);

    (void)state;
    fill(fd, 'n', 100, 100);
    assert_int_equal(model_pending_item(m, 0).kind, MODEL_ITEM_DATA);
    after = model_crash(m, &data_only);
    model_free(m);
    m = after;
    model_use(m);
    fd = os_open("/m/f", O_RDWR, 0);
    fill(fd, 'x', 1, 300);
    assert_int_equal(model_get(m, "/m/f", bytes, sizeof bytes), 301);
    assert_int_equal(bytes[99], 'o');
    for (unsigned n = 100; n < 300; n++) {
        assert_int_equal(bytes[n], 0);
    }
}

static void sectors_may_be_large(void **state)
{
    const struct model_options options = {.sector_size = 4096};
    int fd;

    (void)state;
    use(&options);
    fd = old_file("/m/f", 8192);
    fill(fd, 'n', 8192, 0);
    assert_int_equal(model_pending(m), 2);
    EXPECT("/m/f", NULL, "8192oooooooooooooooo", "8192nnnnnnnnoooooooo", "8192oooooooonnnnnnnn",
           "8192nnnnnnnnnnnnnnnn");
}

static void files_are_independent(void **state)
{
    int a = old_file("/m/a", 512);
    int b = old_file("/m/b", 512);

    (void)state;
    fill(a, 'n', 512, 0);
    fill(b, 'n', 512, 0);
    EXPECT("/m/a", "/m/b", "512o 512o", "512n 512o", "512o 512n", "512n 512n");
}

/* ---- choosing ---- */

static void torn_sectors_only_when_asked(void **state)
{
    static const enum model_torn kinds[] = {MODEL_TORN_MIX, MODEL_TORN_JUNK};
    int fd = old_file("/m/f", 512);

    (void)state;
    fill(fd, 'n', 512, 0);
    for (unsigned n = 0; n < 2; n++) {
        struct model_choice torn = {.how = MODEL_CUT_MASK, .seed = 3, .torn = kinds[n]};
        struct model *after = model_crash(m, &torn);
        struct model *again = model_crash(m, &torn);
        unsigned char bytes[512];
        unsigned old = 0;
        unsigned new = 0;

        assert_int_equal(model_get(after, "/m/f", bytes, 512), 512);
        for (unsigned k = 0; k < 512; k++) {
            old += bytes[k] == 'o';
            new += bytes[k] == 'n';
        }
        if (kinds[n] == MODEL_TORN_MIX) {
            assert_int_equal(old + new, 512);
            assert_int_equal(bytes[0], 'n');
            assert_int_equal(bytes[511], 'o');
        } else {
            assert_in_range(old + new, 0, 64);
        }
        assert_int_equal(model_hash(after), model_hash(again)); /* by seed */
        model_free(after);
        model_free(again);
    }
}

static enum model_fate only_the_second(void *ctx, size_t index, const struct model_item *item)
{
    unsigned *asked = ctx;

    *asked += 1;
    assert_string_equal(item->path, "/m/f");
    assert_int_equal(item->kind, MODEL_ITEM_DATA);
    assert_int_equal(item->offset, index * 512);
    assert_int_equal(item->length, 512);
    return index == 1 ? MODEL_LANDED : index == 2 ? MODEL_TORN : MODEL_LOST;
}

static void a_test_may_choose_by_itself(void **state)
{
    unsigned asked = 0;
    struct model_choice choice = {.how = MODEL_CUT_ASK, .ask = only_the_second, .ctx = &asked};
    struct model *after;
    char text[40];
    int fd = old_file("/m/f", 1536);

    (void)state;
    fill(fd, 'n', 1536, 0);
    after = model_crash(m, &choice);
    assert_int_equal(asked, 3);
    describe(after, "/m/f", text, sizeof text);
    assert_string_equal(text, "1536ono"); /* torn is lost where the choice has whole sectors */
    model_free(after);
}

static void many_items_are_sampled_with_none_and_all(void **state)
{
    uint64_t hashes[2][66];
    int fd = old_file("/m/f", 8192);
    char none[40];
    char all[40];

    (void)state;
    fill(fd, 'n', 8192, 0);
    assert_int_equal(model_pending(m), 16);
    for (unsigned round = 0; round < 2; round++) {
        struct model_crashes it;
        struct model *after;
        unsigned count = 0;

        model_crashes_begin(&it, m, 8, 64, 99);
        assert_false(it.exhaustive);
        while ((after = model_crashes_next(&it)) != NULL) {
            assert_true(count < 66);
            if (count < 2) {
                describe(after, "/m/f", count == 0 ? none : all, 40);
            }
            assert_true(strlen(it.text) > 0);
            hashes[round][count++] = model_hash(after);
            model_free(after);
        }
        assert_int_equal(count, 66);
    }
    assert_string_equal(none, "8192oooooooooooooooo");
    assert_string_equal(all, "8192nnnnnnnnnnnnnnnn");
    assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]); /* same seed, same states */
    for (unsigned n = 0, distinct = 0; n < 66; n++) {
        bool seen = false;

        for (unsigned k = 0; k < n; k++) {
            seen = seen || hashes[0][k] == hashes[0][n];
        }
        distinct += !seen;
        if (n == 65) {
            assert_in_range(distinct, 40, 66);
        }
    }
}

static void torn_states_come_on_top(void **state)
{
    int fd = old_file("/m/f", 1024);
    struct model_crashes it;
    struct model *after;
    unsigned count = 0;

    (void)state;
    fill(fd, 'n', 1024, 0);
    model_crashes_begin(&it, m, 8, 0, 5);
    it.torn = MODEL_TORN_JUNK;
    while ((after = model_crashes_next(&it)) != NULL) {
        char text[40];

        describe(after, "/m/f", text, sizeof text);
        if (count < 4) {
            assert_int_equal(strspn(text + 4, "on"), 2);
        }
        count++;
        model_free(after);
    }
    assert_int_equal(count, 8);
}

static void a_snapshot_keeps_what_is_pending(void **state)
{
    struct model *kept;
    int fd = old_file("/m/f", 512);

    (void)state;
    fill(fd, 'n', 512, 0);
    (void)make("/m/g", "");
    kept = model_snapshot(m);
    assert_int_equal(model_hash(kept), model_hash(m));
    assert_int_equal(model_pending(kept), 2);
    fill(fd, 'x', 512, 0);
    assert_int_equal(os_unlink("/m/g"), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    model_free(m);
    m = kept;
    model_use(m);
    assert_int_equal(os_pread(fd, &fd, 1, 0), -EBADF); /* descriptors are not kept */
    EXPECT("/m/f", "/m/g", "512o -", "512n -", "512o 0", "512n 0");
}

static void hashes_tell_disks_apart(void **state)
{
    uint64_t empty = model_hash(m);
    uint64_t before;
    int fd;

    (void)state;
    fd = make("/m/a", "");
    before = model_hash(m);
    assert_true(before != empty);
    assert_int_equal(os_rename("/m/a", "/m/b"), 0);
    assert_true(model_hash(m) != before);
    assert_int_equal(os_rename("/m/b", "/m/a"), 0);
    assert_int_equal(model_hash(m), before); /* content, not history */
    assert_int_equal(os_ftruncate(fd, 4096), 0);
    assert_true(model_hash(m) != before);
    before = model_hash(m);
    fill(fd, '\0', 4096, 0);
    assert_int_equal(model_hash(m), before); /* zeros and a hole read the same */
    fill(fd, 'x', 1, 4095);
    assert_true(model_hash(m) != before);
    assert_int_equal(os_unlink("/m/a"), 0);
    assert_int_equal(model_hash(m), empty);
    assert_int_equal(os_mkdir("/m/a", 0700), 0);
    assert_true(model_hash(m) != empty);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(sectors_land_in_any_combination),
        T(a_sector_is_whole),
        T(a_sector_written_twice_has_three_ends),
        T(what_the_disk_has_already_is_not_pending),
        T(growth_may_lose_size_or_data),
        T(sizes_land_in_order),
        T(a_cut_off_tail_does_not_come_back),
        T(bytes_past_a_lost_size_read_as_zeros_later),
        T(sectors_may_be_large),
        T(files_are_independent),
        T(torn_sectors_only_when_asked),
        T(a_test_may_choose_by_itself),
        T(many_items_are_sampled_with_none_and_all),
        T(torn_states_come_on_top),
        T(a_snapshot_keeps_what_is_pending),
        T(hashes_tell_disks_apart),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
