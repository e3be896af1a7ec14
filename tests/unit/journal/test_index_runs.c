/* test_index_runs: the bytes of run files: known answers, and damage of every kind (each byte
 * flipped, lengths cut, checksums made to fit a lie), which must always be noticed. */
#include "index_kit.h"

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
    uint8_t want[8192] = {0};
    struct index_key key;
    struct ikit_image got;
    struct ikit k;

    (void)state;
    prepare(&k, 1);
    key = k.keys[1];
    memcpy(want, "TLYKEYS\n\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0", 32);
    memcpy(want + 32, k.closed[1].first_id.byte, 16);
    memcpy(want + 48, k.closed[1].last_id.byte, 16);
    sign_block(want, 0);
    memcpy(want + 4096, key.fingerprint, 16);
    memcpy(want + 4112, "\1\0\0\0\0\0\0\0\1\0\0\0", 12);
    want[4124] = (uint8_t)key.events;
    sign_block(want + 4096, index_get_u32(want + 4092));
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

static void test_run_damaged(void **state)
{
    struct ikit_image run;
    struct ikit k;

    (void)state;
    prepare(&k, 150);
    run = ikit_get(&k, "keys-00000001-00000001.run");
    assert_int_equal(run.size, 3 * 4096);
    for (size_t at = 0; at < run.size; at++) {
        uint8_t flip = (uint8_t)(1 + ikit_below(&k.random, 255));

        run.bytes[at] ^= flip;
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        check_run_refused(&k, "a flipped byte", at);
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
        assert_true(noticed_here == (at >= 4096));
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
        {"version", 8, 2},
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
        {"key of another generation", 4096 + 16, 0},
        {"key beyond the generation", 4096 + 20, 1000},
        {"key far beyond the generation", 4096 + 20, 0xffffffffu},
        {"key of no bytes", 4096 + 24, 0},
        {"key of many bytes", 4096 + 24, 0xffffffffu},
        {"key of no events", 4096 + 28, 0},
        {"first key above the second", 4096, 0xffffffffu},
        {"last key of a block below the one before", 4096 + 126 * 32, 0},
        {"first key of a block below the last", 8192, 0},
        {"number of a block", 8192 + 4088, 0},
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
    /* A key twice. */
    memcpy(run.bytes + 4096 + 32, run.bytes + 4096, 32);
    sign_run(&run);
    ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
    check_run_refused(&k, "a repeated key", 4096);
    free(run.bytes);
    ikit_end(&k);
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
    assert_int_equal(one.size, 4 * 4096);
    assert_int_equal(other.size, 4 * 4096);
    memcpy(block, one.bytes + 4096, 4096);
    memcpy(one.bytes + 4096, one.bytes + 8192, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    check_run_refused(&k, "a block read from elsewhere", 4096);
    memcpy(one.bytes + 4096, other.bytes + 4096, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    check_run_refused(&k, "a block of another run", 4096);
    ikit_put(&k, "keys-00000001-00000001.run", other.bytes, other.size);
    check_run_refused(&k, "another run", 0);
    memcpy(one.bytes + 4096, block, 4096);
    ikit_put(&k, "keys-00000001-00000001.run", one.bytes, one.size);
    ix = ikit_open(&k, known, false);
    assert_true(known[1]);
    ikit_check(&k, ix);
    index_close(ix);
    free(one.bytes);
    free(other.bytes);
    ikit_end(&k);
}

/* An input that goes bad while runs are merged: the merge fails and is told, the runs stay; lookups
 * that need the bad block fail, others do not. Set right, the merge is made. */
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
    for (unsigned round = 0; round < 3; round++) {
        size_t at = round == 0 ? 4200 : round == 1 ? 8200 : 4096;

        failures_before = metric_get(METRIC_INDEX_FAILURES);
        if (round < 2) {
            run.bytes[at] ^= 1;
        } else {
            /* The checksum fits, the order does not. */
            memset(run.bytes + 4096 + 32, 0, 16);
            sign_run(&run);
        }
        ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        if (k.count == 7) {
            ikit_insert(&k, ix, 6000);
            ikit_close(&k, ix);
        } else {
            index_settle(ix);
        }
        assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before + 1);
        assert_int_equal(index_run_count(ix), 8);
        assert_false(ikit_exists(&k, "keys-00000000-00000007.run"));
        assert_false(ikit_exists(&k, "keys-00000000-00000007.run.tmp"));
        if (round < 2) {
            run.bytes[at] ^= 1;
            ikit_put(&k, "keys-00000001-00000001.run", run.bytes, run.size);
        }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_bytes),
        cmocka_unit_test(test_run_damaged),
        cmocka_unit_test(test_run_damaged_in_use),
        cmocka_unit_test(test_run_lies),
        cmocka_unit_test(test_run_blocks_misplaced),
        cmocka_unit_test(test_merge_of_damaged),
    };

    log_set_level(LOG_ERROR + 1); /* damage is told thousands of times here */
    ikit_skip_syncs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
