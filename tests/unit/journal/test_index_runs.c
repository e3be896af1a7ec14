/* test_index_runs: the bytes of run files: known answers, and damage of every kind (each byte
 * flipped, lengths cut, checksums made to fit a lie), which must always be noticed. */
#include "index_kit.h"
#include "journal/index_filter.h"

static bool known[16];

static void sign_block(uint8_t *block, uint32_t begun_with)
{
    index_put_u32(block + 4092, crc32c(begun_with, block, 4092));
}

/* Makes all checksums of a run fit its bytes again. */
static void sign_run(struct ikit_image *run)
{
    sign_block(run->bytes, 0);
    for (size_t at = 4096; at + 4096 <= run->size; at += 4096) {
        sign_block(run->bytes + at, index_get_u32(run->bytes + 4092));
    }
}

/* A kit with generation 0 (one key) and generation 1 (key_count keys), closed. */
static void prepare(struct ikit *k, unsigned key_count)
{
    struct index *ix;

    ikit_start(k, 11);
    ix = ikit_open(k, known, false);
    ikit_insert(k, ix, 1);
    ikit_close(k, ix);
    for (unsigned i = 0; i < key_count; i++) {
        ikit_insert(k, ix, 100 + i);
    }
    ikit_close(k, ix);
    index_close(ix);
}

/* ---- known answers ---- */

static void test_run_bytes(void **state)
{
    static uint8_t want[4 * 4096];
    struct index_key key;
    struct ikit_image got;
    struct ikit k;

    (void)state;
    prepare(&k, 1);
    key = k.keys[1];
    memcpy(want, "TLYKEYS\n\2\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0", 32);
    memcpy(want + 32, k.closed[1].first_id.byte, 16);
    memcpy(want + 48, k.closed[1].last_id.byte, 16);
    want[64] = 1;
    want[68] = 1;
    want[72] = 1 + KIT_FILL_BYTES;
    sign_block(want, 0);
    memcpy(want + 4096, key.fingerprint, 16);
    memcpy(want + 4112, "\1\0\0\0\0\0\0\0\1\0\0\0", 12);
    want[4124] = (uint8_t)key.events;
    sign_block(want + 4096, index_get_u32(want + 4092));
    memcpy(want + 8192, key.fingerprint, 16);
    want[8192 + 4088] = 1;
    sign_block(want + 8192, index_get_u32(want + 4092));
    index_filter_add(want + 12288, 63, key.fingerprint);
    want[12288 + 4088] = 2;
    sign_block(want + 12288, index_get_u32(want + 4092));
    got = ikit_get(&k, "keys-00000001-00000001.run");
    assert_int_equal(got.size, sizeof want);
    assert_memory_equal(got.bytes, want, sizeof want);
    free(got.bytes);
    ikit_end(&k);
}

/* ---- damage to runs ---- */

/* The run of generation 1 is thrown away, that of generation 0 used. */
static void check_run_refused(struct ikit *k, const char *what, size_t at)
{
    struct index *ix = ikit_open(k, known, false);

    if (!known[0] || known[1] || ikit_exists(k, "keys-00000001-00000001.run")) {
        fail_msg("%s at %zu was not noticed", what, at);
    }
    index_close(ix);
}

/* Every byte of header, fences and filter is checked at the opening; of the keys, when they are
 * read: a lookup of one of the block fails, and the file goes, so that the next opening makes the
 * generation again. */
static void check_run_damaged(struct ikit *k, size_t at)
{
    struct index *ix;
    unsigned noticed = 0;

    if (at < 4096 || at >= 3 * 4096) {
        check_run_refused(k, "a flipped byte", at);
        return;
    }
    ix = ikit_open(k, known, false);
    assert_true(known[1]);
    for (size_t i = 1; i < k->key_count; i++) {
        struct ikit_seen seen = {.count = 0};
        int result = index_find(ix, k->keys[i].fingerprint, ikit_visit, &seen);

        assert_true(result == ERR_CORRUPT || (result == 0 && seen.count == 1));
        noticed += result == ERR_CORRUPT;
    }
    if (noticed == 0 || ikit_exists(k, "keys-00000001-00000001.run")) {
        fail_msg("a flipped byte at %zu was not noticed", at);
    }
    index_close(ix);
}

static void test_run_damaged(void **state)
{
    struct ikit_image run;
    struct ikit k;

    (void)state;
    prepare(&k, 150);
    run = ikit_get(&k, "keys-00000001-00000001.run");
    assert_int_equal(run.size, 5 * 4096);
    for (size_t at = 0; at < run.size; at += at % 4096 < 200 || at % 4096 > 3900 ? 1 : 7) {
        uint8_t flip = (uint8_t)(1 + ikit_below(&k.random, 255));

        run.bytes[at] ^= flip;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        check_run_damaged(&k, at);
        run.bytes[at] ^= flip;
    }
    for (size_t size = 0; size < run.size; size += size % 4096 < 8 ? 1 : 97) {
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, size);
        check_run_refused(&k, "the end", size);
    }
    run.bytes = realloc(run.bytes, run.size + 4096);
    assert_non_null(run.bytes);
    memset(run.bytes + run.size, 0, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size + 1);
    check_run_refused(&k, "a byte too many", run.size);
    ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size + 4096);
    check_run_refused(&k, "a block too many", run.size);
    /* And undamaged it is good. */
    ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
    {
        struct index *ix = ikit_open(&k, known, false);

        assert_true(known[1]);
        ikit_check(&k, ix);
        index_close(ix);
    }
    free(run.bytes);
    ikit_end(&k);
}

/* A block that goes bad after the run was opened: a lookup that needs it fails; none ever misses.
 */
static void test_run_damaged_in_use(void **state)
{
    uint64_t failures_before = metric_get(METRIC_INDEX_FAILURES);
    unsigned noticed = 0;
    struct ikit_image run;
    struct ikit k;

    (void)state;
    prepare(&k, 150);
    run = ikit_get(&k, "keys-00000001-00000001.run");
    for (size_t at = 0; at < run.size; at += 31) {
        struct index *ix = ikit_open(&k, known, false);
        bool noticed_here = false;

        assert_true(known[1]);
        run.bytes[at] ^= 0x10;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        for (size_t i = 0; i < k.key_count; i++) {
            struct ikit_seen seen = {.count = 0};
            int result = index_find(ix, k.keys[i].fingerprint, ikit_visit, &seen);

            if (result == ERR_CORRUPT) {
                noticed_here = true;
                continue;
            }
            assert_int_equal(result, 0);
            assert_int_equal(seen.count, 1);
            assert_memory_equal(&seen.keys[0], &k.keys[i], sizeof seen.keys[0]);
        }
        assert_true(noticed_here == (at >= 4096 && at < 3 * 4096));
        assert_true(noticed_here != ikit_exists(&k, "keys-00000001-00000001.run"));
        noticed += noticed_here;
        index_close(ix);
        run.bytes[at] ^= 0x10;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
    }
    /* Told once a run, however many lookups it fails. */
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before + noticed);

    /* The same with a file that has lost its end. */
    {
        struct index *ix = ikit_open(&k, known, false);
        struct ikit_seen seen = {.count = 0};

        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, 4096 + 100);
        assert_int_equal(index_find(ix, k.keys[5].fingerprint, ikit_visit, &seen), ERR_CORRUPT);
        assert_int_equal(seen.count, 0);
        index_close(ix);
    }
    free(run.bytes);
    ikit_end(&k);
}

/* Lies with checksums that fit them. */
static void test_run_lies(void **state)
{
    static const struct {
        const char *what;
        size_t at;
        uint32_t value;
    } lies[] = {
        {"version", 8, 1},
        {"from", 12, 0},
        {"to", 16, 2},
        {"blocks", 20, 3},
        {"no blocks", 20, 0},
        {"one key fewer than fills the block", 24, 127},
        {"more keys", 24, 255},
        {"no keys", 24, 0},
        {"many more keys", 28, 0xffffffffu},
        {"first id", 32, 1},
        {"last id", 60, 1},
        {"bytes of the generation", 72, 1},
        {"fence blocks", 64, 2},
        {"no fence blocks", 64, 0},
        {"filter blocks", 68, 2},
        {"no filter blocks", 68, 0},
        {"first fence above the second", 3 * 4096, 0xffffffffu},
        {"number of a block", 3 * 4096 + 4088, 0},
        {"number of a filter block", 4 * 4096 + 4088, 0},
    };
    struct ikit_image run;
    struct ikit k;

    (void)state;
    prepare(&k, 150);
    run = ikit_get(&k, "keys-00000001-00000001.run");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t saved[4];

        memcpy(saved, run.bytes + lies[i].at, 4);
        index_put_u32(run.bytes + lies[i].at, lies[i].value);
        assert_memory_not_equal(saved, run.bytes + lies[i].at, 4);
        sign_run(&run);
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        check_run_refused(&k, lies[i].what, lies[i].at);
        memcpy(run.bytes + lies[i].at, saved, 4);
    }
    free(run.bytes);
    ikit_end(&k);
}

/* All keys are found or the lookups fail; some fail. */
static void check_keys_refused(struct ikit *k, const char *what)
{
    struct index *ix = ikit_open(k, known, false);
    unsigned failed = 0;

    assert_true(known[1]);
    for (size_t i = 0; i < k->key_count; i++) {
        struct ikit_seen seen = {.count = 0};
        int result = index_find(ix, k->keys[i].fingerprint, ikit_visit, &seen);

        assert_true(result == ERR_CORRUPT || (result == 0 && seen.count > 0));
        failed += result != 0;
    }
    if (failed == 0) {
        fail_msg("%s was not noticed", what);
    }
    index_close(ix);
}

/* Whole blocks of good content in the wrong place. */
static void test_run_blocks_misplaced(void **state)
{
    static uint8_t block[4096];
    struct ikit_image one;
    struct ikit_image other;
    struct ikit k;
    struct index *ix;

    (void)state;
    prepare(&k, 300);
    ix = ikit_open(&k, known, false);
    for (unsigned i = 0; i < 300; i++) {
        ikit_insert(&k, ix, 100 + i);
    }
    ikit_close(&k, ix);
    index_close(ix);
    one = ikit_get(&k, "keys-00000001-00000001.run");
    other = ikit_get(&k, "keys-00000002-00000002.run");
    assert_int_equal(one.size, 6 * 4096);
    assert_int_equal(other.size, 6 * 4096);
    memcpy(block, one.bytes + 4096, 4096);
    memcpy(one.bytes + 4096, one.bytes + 8192, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    check_keys_refused(&k, "a block read from elsewhere");
    memcpy(one.bytes + 4096, other.bytes + 4096, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    check_keys_refused(&k, "a block of another run");
    memcpy(one.bytes + 4096, block, 4096);
    memcpy(block, one.bytes + 5 * 4096, 4096);
    memcpy(one.bytes + 5 * 4096, other.bytes + 5 * 4096, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    check_run_refused(&k, "a filter of another run", 5 * 4096);
    memcpy(one.bytes + 5 * 4096, block, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", other.bytes, other.size);
    check_run_refused(&k, "another run", 0);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    ix = ikit_open(&k, known, false);
    assert_true(known[1]);
    ikit_check(&k, ix);
    index_close(ix);
    free(one.bytes);
    free(other.bytes);
    ikit_end(&k);
}

/* An input that goes bad while runs are merged: the merge fails and is told, the runs stay in use;
 * lookups that need the bad block fail, others do not. Its file goes, and is made again after the
 * next opening. */
static void test_merge_of_damaged(void **state)
{
    uint8_t fingerprint[16];
    uint64_t failures_before;
    struct ikit_image run;
    struct ikit k;
    struct index *ix;

    (void)state;
    prepare(&k, 150);
    ix = ikit_open(&k, known, false);
    while (k.count < 7) {
        ikit_insert(&k, ix, 5000 + k.count);
        ikit_close(&k, ix);
    }
    run = ikit_get(&k, "keys-00000001-00000001.run");
    failures_before = metric_get(METRIC_INDEX_FAILURES);
    run.bytes[8200] ^= 1;
    ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
    ikit_insert(&k, ix, 6000);
    ikit_close(&k, ix);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before + 1 + round);
        assert_int_equal(index_run_count(ix), 8);
        assert_false(ikit_exists(&k, "keys-00000000-00000007.run"));
        assert_false(ikit_exists(&k, "keys-00000000-00000007.run.tmp"));
        assert_false(ikit_exists(&k, "keys-00000001-00000001.run"));
        index_settle(ix);
    }
    free(run.bytes);
    ikit_fingerprint(fingerprint, 1); /* of generation 0 */
    ikit_check_one(&k, ix, fingerprint);
    index_close(ix);
    /* Opened again, generation 1 is unknown; indexed again, the eight are merged. */
    ix = ikit_open(&k, known, false);
    assert_false(known[1]);
    assert_int_equal(ikit_rebuild(&k, ix, known), 1);
    assert_int_equal(index_run_count(ix), 1);
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

/* ---- memory ---- */

/* Without memory for fences and filters they are asked on disk: slower, and the same answers. */
static void test_no_memory_for_fences(void **state)
{
    struct ikit k;
    struct index *ix;

    (void)state;
    prepare(&k, 200 * 127 * 2 + 50); /* two blocks of fences, many of the filter */
    for (unsigned round = 0; round < 3; round++) {
        /* Nothing; fences and not the filter; all. */
        k.memory_bytes = round == 0 ? 2 : round == 1 ? 2 * 12000 : 0;
        ix = ikit_open(&k, known, false);
        assert_true(known[0] && known[1]);
        assert_true(round == 2 || index_memory_used(ix) <= k.memory_bytes / 2);
        assert_true((index_memory_used(ix) > 6000) == (round > 0));
        assert_true((index_memory_used(ix) > 70000) == (round > 1));
        ikit_check(&k, ix);
        index_close(ix);
    }
    /* What is written and merged within a budget keeps to it. */
    k.memory_bytes = 2 * 12000;
    ix = ikit_open(&k, known, false);
    while (k.count < 9) {
        for (unsigned i = 0; i < 300; i++) {
            ikit_insert(&k, ix, 100000 + k.count * 1000 + i);
        }
        ikit_close(&k, ix);
        assert_true(index_memory_used(ix) <= 12000);
    }
    assert_int_equal(index_run_count(ix), 2);
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

/* Fences and filters that go bad after the opening, where they are asked on disk: a bad block of
 * fences makes lookups fail and the file go; a bad block of the filter costs a read, and is told.
 */
static void test_damaged_on_disk(void **state)
{
    struct ikit_image run;
    struct ikit k;

    (void)state;
    prepare(&k, 150);
    k.memory_bytes = 2;
    run = ikit_get(&k, "keys-00000001-00000001.run");
    assert_int_equal(run.size, 5 * 4096);
    for (size_t at = 3 * 4096; at < run.size; at += 61) {
        uint64_t failures_before = metric_get(METRIC_INDEX_FAILURES);
        struct index *ix = ikit_open(&k, known, false);
        unsigned failed = 0;

        assert_true(known[1]);
        run.bytes[at] ^= 0x10;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        for (size_t i = 0; i < k.key_count; i++) {
            struct ikit_seen seen = {.count = 0};
            int result = index_find(ix, k.keys[i].fingerprint, ikit_visit, &seen);

            assert_true(result == ERR_CORRUPT || (result == 0 && seen.count == 1));
            failed += result != 0;
        }
        assert_true((failed > 0) == (at < 4 * 4096));
        assert_true((failed > 0) != ikit_exists(&k, "keys-00000001-00000001.run"));
        assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before + 1);
        index_close(ix);
        run.bytes[at] ^= 0x10;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
    }
    free(run.bytes);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_bytes),
        cmocka_unit_test(test_run_damaged),
        cmocka_unit_test(test_run_damaged_in_use),
        cmocka_unit_test(test_run_lies),
        cmocka_unit_test(test_run_blocks_misplaced),
        cmocka_unit_test(test_merge_of_damaged),
        cmocka_unit_test(test_no_memory_for_fences),
        cmocka_unit_test(test_damaged_on_disk),
    };

    log_set_level(LOG_ERROR + 1); /* damage is told thousands of times here */
    ikit_skip_syncs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
