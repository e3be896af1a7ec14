/* test_index: the index against a plain model: random keys, many generations and merges, reopening,
 * leftovers, generations that changed. */
#include "index_kit.h"
#include "journal/index_table.h"

static bool known[600];

static uint64_t failures(void)
{
    return metric_get(METRIC_INDEX_FAILURES);
}

static void test_empty(void **state)
{
    struct index_generation none;
    struct ikit k;
    struct index *ix;
    struct err e;

    (void)state;
    ikit_start(&k, 1);
    ix = ikit_try_open(&k, k.dir, &none, 0, known, false, &e);
    assert_non_null(ix);
    ikit_check(&k, ix);
    assert_int_equal(index_run_count(ix), 0);
    index_settle(ix);
    /* A generation may hold no key at all; its run says so. */
    ikit_close(&k, ix);
    assert_int_equal(index_run_count(ix), 1);
    ikit_check(&k, ix);
    index_close(ix);
    ix = ikit_open(&k, known, false);
    assert_true(known[0]);
    ikit_check(&k, ix);
    ikit_check_summary(&k, 0);
    index_close(ix);
    ikit_end(&k);
}

/* A stop and a failure of the visitor come back, from whichever place the key is in. */
static int visit_answer(void *ctx, const struct index_key *key)
{
    int *answer = ctx;

    assert_int_not_equal(key->bytes, 0);
    return *answer;
}

static void test_visitor(void **state)
{
    struct ikit k;
    struct index *ix;
    uint8_t fingerprint[16];
    int answer;

    (void)state;
    ikit_start(&k, 1);
    ix = ikit_open(&k, known, false);
    ikit_insert(&k, ix, 7);
    ikit_fingerprint(fingerprint, 7);
    for (unsigned round = 0; round < 2; round++) {
        answer = 5;
        assert_int_equal(index_find(ix, fingerprint, visit_answer, &answer), 5);
        answer = ERR_JSON;
        assert_int_equal(index_find(ix, fingerprint, visit_answer, &answer), ERR_JSON);
        if (round == 0) {
            ikit_close(&k, ix); /* from the table into a run */
        }
    }
    index_close(ix);
    ikit_end(&k);
}

/* Inserts and removals in the active table, among colliding and equal fingerprints. */
static void test_remove(void **state)
{
    static struct index_key live[3000];
    struct ikit k;
    struct index *ix;
    size_t n = 0;

    (void)state;
    ikit_start(&k, ikit_seed());
    ix = ikit_open(&k, known, false);
    for (unsigned step = 0; step < 20000; step++) {
        if (n < 3000 && (n == 0 || ikit_below(&k.random, 100) < 52)) {
            live[n] = ikit_key(&k, ikit_below(&k.random, 700));
            assert_int_equal(index_insert(ix, &live[n]), 0);
            n++;
        } else {
            size_t i = ikit_below(&k.random, (uint32_t)n);

            index_remove(ix, &live[i]);
            n--;
            live[i] = live[n];
        }
        if (step % 1000 == 999) {
            k.key_count = 0;
            for (size_t i = 0; i < n; i++) {
                ikit_remember(&k, &live[i]);
            }
            ikit_check(&k, ix);
        }
    }
    for (size_t i = 0; i < n; i++) {
        index_remove(ix, &live[i]);
    }
    k.key_count = 0;
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

/* A key is removed by generation and offset, not by its fingerprint alone. */
static void test_remove_exactly(void **state)
{
    struct index_table *t = index_table_make(5, 0);
    struct index_key key = {.generation = 3, .offset = 4, .bytes = 5, .events = 6};
    struct index_key other = key;
    struct ikit_seen seen = {.count = 0};

    (void)state;
    assert_non_null(t);
    assert_int_equal(index_table_insert(t, &key), 0);
    other.offset = 5;
    assert_false(index_table_remove(t, &other));
    other = key;
    other.generation = 4;
    assert_false(index_table_remove(t, &other));
    assert_int_equal(index_table_insert(t, &other), 0);
    assert_true(index_table_remove(t, &key));
    assert_false(index_table_remove(t, &key));
    assert_int_equal(index_table_find(t, key.fingerprint, ikit_visit, &seen), 0);
    assert_int_equal(seen.count, 1);
    assert_memory_equal(&seen.keys[0], &other, sizeof other);
    index_table_release(t);
}

/* Expected number of runs after n generations: the sum of n's octal digits. */
static uint32_t runs_after(uint32_t n)
{
    uint32_t runs = 0;

    while (n > 0) {
        runs += n % 8;
        n /= 8;
    }
    return runs;
}

/* Generations of changing size, with fingerprints repeated within and across them; merged twice
 * over; reopened in between. */
static void test_generations(void **state)
{
    uint64_t failures_before = failures();
    struct ikit k;
    struct index *ix;

    (void)state;
    ikit_start(&k, ikit_seed());
    ix = ikit_open(&k, known, false);
    for (uint32_t g = 0; g < 80; g++) {
        uint32_t n = ikit_below(&k.random, 10) == 0 ? ikit_below(&k.random, 2000)
                                                    : ikit_below(&k.random, 300);

        for (uint32_t i = 0; i < n; i++) {
            ikit_insert(&k, ix,
                        ikit_below(&k.random, 200) == 0 ? ikit_below(&k.random, 30)
                                                        : ikit_next(&k.random) >> 20);
        }
        ikit_close(&k, ix);
        assert_int_equal(index_run_count(ix), runs_after(g + 1));
        assert_int_equal(metric_get(METRIC_INDEX_RUNS), runs_after(g + 1));
        assert_int_equal(ikit_files(&k), runs_after(g + 1) + g + 1);
        if (g % 13 == 12 || g == 63) {
            ikit_check(&k, ix);
            index_close(ix);
            ix = ikit_open(&k, known, false);
            for (uint32_t i = 0; i <= g; i++) {
                assert_true(known[i]);
            }
            ikit_check(&k, ix);
        }
    }
    for (uint32_t g = 0; g < 80; g++) {
        ikit_check_summary(&k, g);
    }
    index_close(ix);
    assert_int_equal(failures(), failures_before);
    ikit_end(&k);
}

/* Keys of one fingerprint that fill more than a block, and begin in the block before. */
static int visit_count(void *ctx, const struct index_key *key)
{
    (void)key;
    *(unsigned *)ctx += 1;
    return 0;
}

static void test_crossing_blocks(void **state)
{
    struct ikit k;
    struct index *ix;
    uint8_t fingerprint[16];

    (void)state;
    ikit_start(&k, 3);
    ix = ikit_open(&k, known, false);
    for (unsigned same = 0; same < 8; same++) {
        for (unsigned i = 0; i < 50 + 64 * same; i++) {
            struct index_key key = ikit_key(&k, same);

            assert_int_equal(index_insert(ix, &key), 0);
        }
    }
    ikit_close(&k, ix);
    for (unsigned same = 0; same < 8; same++) {
        unsigned n = 0;

        ikit_fingerprint(fingerprint, same);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
        assert_int_equal(n, 50 + 64 * same);
        /* Neighbours of every one, below and above. */
        n = 0;
        fingerprint[15]++;
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
        fingerprint[15] = (uint8_t)(fingerprint[15] - 2);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
        assert_int_equal(n, 0);
    }
    index_close(ix);
    ikit_end(&k);
}

/* A summary alone is written again; without its file, or with a file of another length, it is not,
 * and that is counted. */
static void test_summary_only(void **state)
{
    uint64_t failures_before = failures();
    struct index_summary s;
    struct ikit k;
    struct index *ix;
    char path[96];
    struct err e;

    (void)state;
    ikit_start(&k, 4);
    ix = ikit_open(&k, known, false);
    ikit_insert(&k, ix, 1);
    ikit_close(&k, ix);
    ikit_insert(&k, ix, 2); /* stays in the active table */
    ikit_empty(k.dir);
    assert_int_equal(index_summary_load(k.dir, 0, &k.closed[0], &s, &e), ERR_NOT_FOUND);
    assert_int_equal(ikit_close_result(&k, ix, 0, false), 0);
    ikit_check_summary(&k, 0);
    assert_false(ikit_exists(&k, "keys-00000000-00000000.run"));
    assert_int_equal(index_key_count(ix), 2);
    assert_int_equal(failures(), failures_before);

    ikit_empty(k.dir);
    k.closed[0].bytes++;
    assert_int_equal(ikit_close_result(&k, ix, 0, false), 0);
    assert_int_equal(failures(), failures_before + 1);
    assert_int_equal(ikit_files(&k), 0);
    ikit_path(path, &k, 0);
    assert_int_equal(os_unlink(path), 0);
    index_settle(ix);
    assert_int_equal(failures(), failures_before + 2);
    /* The file appears: the job that waited is done. */
    ikit_check_one(&k, ix, k.keys[0].fingerprint);
    ikit_write_file(&k, 0, k.closed[0].bytes);
    index_settle(ix);
    ikit_check_summary(&k, 0);
    assert_int_equal(failures(), failures_before + 2);
    index_close(ix);
    ikit_end(&k);
}

/* A generation that could not be closed leaves its keys in the table; the next run is without them,
 * and they are found all the same. */
static void test_missed_close(void **state)
{
    struct ikit k;
    struct index *ix;

    (void)state;
    ikit_start(&k, 5);
    ix = ikit_open(&k, known, false);
    for (unsigned i = 0; i < 500; i++) {
        ikit_insert(&k, ix, i);
    }
    (void)ikit_seal(&k);
    for (unsigned i = 0; i < 500; i++) {
        ikit_insert(&k, ix, 300 + i);
    }
    ikit_close(&k, ix);
    assert_int_equal(index_run_count(ix), 1);
    assert_true(ikit_exists(&k, "keys-00000001-00000001.run"));
    for (size_t i = 0; i < k.key_count; i++) {
        struct ikit_seen seen = {.count = 0};
        bool found = false;

        assert_int_equal(index_find(ix, k.keys[i].fingerprint, ikit_visit, &seen), 0);
        for (size_t s = 0; s < seen.count; s++) {
            found = found || memcmp(&seen.keys[s], &k.keys[i], sizeof seen.keys[s]) == 0;
        }
        assert_true(found);
    }
    index_close(ix);
    ix = ikit_open(&k, known, false);
    assert_false(known[0]);
    assert_true(known[1]);
    assert_int_equal(ikit_rebuild(&k, ix, known), 1);
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

static void touch(const struct ikit *k, const char *name)
{
    char path[200];
    int fd;

    ikit_join(path, k->dir, name);
    fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, "x", 1, 0, NULL), 0);
    assert_int_equal(os_close(fd), 0);
}

/* Whatever lies in the directory: what is ours and unfit goes, what is not ours stays. */
static void test_strange_names(void **state)
{
    static const char *const unfit[] = {
        "keys-00000000-00000000.run.tmp", /* cut short */
        "gen-00000000.sum.tmp",
        "keys-00000001-00000001.run", /* one byte long */
        "keys-00000003-00000003.run", /* of a generation that is not there */
        "gen-00000003.sum",
        "keys-00000000-00000001.run", /* spans that are never written */
        "keys-00000001-00000008.run",
        "keys-00000002-00000001.run",
        "keys-0000000-00000001.run", /* malformed */
        "keys-00000001-0000001.run",
        "keys-00000001+00000001.run",
        "keys-0000000x-00000001.run",
        "keys-00000001-00000001.runs",
        "keys-",
        "gen-1.sum",
        "gen-00000001.summary",
        "gen-",
    };
    static const char *const foreign[] = {"lost+found", "README", "keysmith", "x.tmp"};
    struct ikit k;
    struct index *ix;

    (void)state;
    ikit_start(&k, 6);
    ix = ikit_open(&k, known, false);
    for (unsigned g = 0; g < 3; g++) {
        ikit_insert(&k, ix, g);
        ikit_close(&k, ix);
    }
    index_close(ix);
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        touch(&k, unfit[i]);
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        touch(&k, foreign[i]);
    }
    ix = ikit_open(&k, known, false);
    assert_true(known[0]);
    assert_false(known[1]);
    assert_true(known[2]);
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++) {
        assert_false(ikit_exists(&k, unfit[i]));
    }
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        assert_true(ikit_exists(&k, foreign[i]));
    }
    assert_int_equal(ikit_rebuild(&k, ix, known), 1);
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

/* A journal that was cut back, or whose generation became another one. */
static void test_generations_changed(void **state)
{
    struct index_summary s;
    struct ikit k;
    struct index *ix;
    struct err e;

    (void)state;
    ikit_start(&k, 7);
    ix = ikit_open(&k, known, false);
    for (unsigned g = 0; g < 11; g++) {
        for (unsigned i = 0; i < 200; i++) {
            ikit_insert(&k, ix, g * 1000 + i);
        }
        ikit_close(&k, ix);
    }
    assert_int_equal(index_run_count(ix), 4);
    index_close(ix);

    /* Generation 9 has another last id, generation 10 another first id. */
    k.closed[9].last_id.byte[3] ^= 1;
    k.closed[10].first_id.byte[15] ^= 1;
    ix = ikit_open(&k, known, false);
    for (unsigned g = 0; g < 11; g++) {
        assert_int_equal(known[g], g != 9 && g != 10);
    }
    assert_int_equal(index_summary_load(k.dir, 9, &k.closed[9], &s, &e), ERR_CORRUPT);
    assert_int_equal(index_summary_load(k.dir, 10, &k.closed[10], &s, &e), ERR_CORRUPT);
    assert_int_equal(ikit_rebuild(&k, ix, known), 2);
    ikit_check(&k, ix);
    index_close(ix);

    /* Generation 2, inside the merged run, is shorter than it was: the whole run goes. */
    k.closed[2].bytes--;
    ix = ikit_open(&k, known, false);
    for (unsigned g = 0; g < 11; g++) {
        assert_int_equal(known[g], g >= 8);
    }
    assert_false(ikit_exists(&k, "keys-00000000-00000007.run"));
    ikit_write_file(&k, 2, k.closed[2].bytes);
    assert_int_equal(ikit_rebuild(&k, ix, known), 8);
    assert_int_equal(index_run_count(ix), 4); /* merged again */
    ikit_check(&k, ix);
    index_close(ix);

    /* Cut back to five generations: the merged run reaches beyond. */
    k.count = 5;
    ix = ikit_open(&k, known, false);
    for (unsigned g = 0; g < 5; g++) {
        assert_false(known[g]);
    }
    assert_int_equal(ikit_files(&k), 5); /* summaries */
    index_close(ix);
    ikit_end(&k);
}

static void test_bad_directory(void **state)
{
    static char deep[5000];
    struct index_generation none;
    struct ikit k;
    struct err e = {.code = 0};
    char path[96];

    (void)state;
    ikit_start(&k, 8);
    ikit_write_file(&k, 0, 1);
    ikit_path(path, &k, 0);
    assert_null(ikit_try_open(&k, path, &none, 0, known, false, &e)); /* a file */
    assert_int_equal(e.code, ERR_IO);
    (void)snprintf(path, sizeof path, "%s/not/there", k.root);
    assert_null(ikit_try_open(&k, path, &none, 0, known, false, &e));
    assert_int_equal(e.code, ERR_IO);
    memset(deep, 'x', sizeof deep - 1);
    assert_null(ikit_try_open(&k, deep, &none, 0, known, false, &e));
    assert_int_equal(e.code, ERR_IO);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),         cmocka_unit_test(test_visitor),
        cmocka_unit_test(test_remove),        cmocka_unit_test(test_remove_exactly),
        cmocka_unit_test(test_generations),   cmocka_unit_test(test_crossing_blocks),
        cmocka_unit_test(test_summary_only),  cmocka_unit_test(test_missed_close),
        cmocka_unit_test(test_strange_names), cmocka_unit_test(test_generations_changed),
        cmocka_unit_test(test_bad_directory),
    };

    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
