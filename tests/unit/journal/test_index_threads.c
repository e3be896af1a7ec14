/* test_index_threads: the index with its background thread: lookups go on, and are right, while
 * runs are written, merged and removed under them; summaries are read by another thread. Meant for
 * TSan, and good without. */
#include <pthread.h>
#include <stdatomic.h>

#include "index_kit.h"

enum { GENERATIONS = 150 };

static bool known[GENERATIONS];

struct reader {
    const struct ikit *k;
    struct index_generation closed[GENERATIONS]; /* filled before `count` says so */
    atomic_uint count;
    atomic_bool stop;
    unsigned loaded;
};

static void *read_summaries(void *arg)
{
    struct reader *r = arg;

    while (!atomic_load(&r->stop)) {
        unsigned count = atomic_load(&r->count);

        for (unsigned g = count < 5 ? 0 : count - 5; g < count; g++) {
            struct index_summary s;
            struct err e;
            int result = index_summary_load(r->k->dir, g, &r->closed[g], &s, &e);

            /* There, or not yet; never half. */
            if (result == 0) {
                r->loaded++;
                index_summary_free(&s);
            } else if (result != ERR_NOT_FOUND) {
                return r; /* not NULL: failed */
            }
        }
    }
    return NULL;
}

/* Finds some of the keys there are, the newest ones more often. */
static void find_some(struct ikit *k, struct index *ix)
{
    uint8_t fingerprint[16];

    for (unsigned i = 0; i < 20; i++) {
        struct ikit_seen seen = {.count = 0};
        size_t back = ikit_below(&k->random, i % 2 == 0 ? 500 : (uint32_t)k->key_count);
        const struct index_key *want;

        back = back < k->key_count ? back : k->key_count - 1;
        want = &k->keys[k->key_count - 1 - back];
        assert_int_equal(index_find(ix, want->fingerprint, ikit_visit, &seen), 0);
        assert_int_equal(seen.count, 1);
        assert_memory_equal(&seen.keys[0], want, sizeof *want);
    }
    {
        struct ikit_seen seen = {.count = 0};

        ikit_fingerprint(fingerprint, UINT64_C(1) << 50 | ikit_next(&k->random) >> 20);
        assert_int_equal(index_find(ix, fingerprint, ikit_visit, &seen), 0);
        assert_int_equal(seen.count, 0);
    }
}

static void test_background(void **state)
{
    uint64_t failures_before = metric_get(METRIC_INDEX_FAILURES);
    static struct reader reader;
    pthread_t thread;
    void *failed;
    struct ikit k;
    struct index *ix;

    (void)state;
    ikit_start(&k, ikit_seed());
    reader.k = &k;
    ix = ikit_open(&k, known, true);
    assert_int_equal(pthread_create(&thread, NULL, read_summaries, &reader), 0);
    for (uint64_t g = 0; g < GENERATIONS; g++) {
        for (uint64_t i = 0; i < 20 + g % 200; i++) {
            ikit_insert(&k, ix, g << 32 | i);
            if (i % 16 == 0) {
                find_some(&k, ix);
            }
        }
        ikit_close(&k, ix);
        reader.closed[g] = k.closed[g];
        atomic_store(&reader.count, (unsigned)g + 1);
        find_some(&k, ix);
        if (g == GENERATIONS / 2) {
            index_settle(ix);
            assert_true(index_run_count(ix) < 24);
        }
    }
    index_settle(ix);
    atomic_store(&reader.stop, true);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_int_equal(index_run_count(ix), 2 + 2 + 6); /* 150 is 226 in octal */
    ikit_check(&k, ix);
    index_close(ix);

    ix = ikit_open(&k, known, true);
    for (unsigned g = 0; g < GENERATIONS; g++) {
        assert_true(known[g]);
        ikit_check_summary(&k, g);
    }
    ikit_check(&k, ix);
    index_close(ix);
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before);
    ikit_end(&k);
}

/* Closing at any moment: what was written is good, what was not is unknown, nothing hangs. */
static void test_close_any_time(void **state)
{
    struct ikit k;

    (void)state;
    ikit_start(&k, ikit_seed());
    for (unsigned round = 0; round < 60; round++) {
        struct index *ix = ikit_open(&k, known, true);
        unsigned before = k.count;

        (void)ikit_rebuild(&k, ix, known);
        for (unsigned g = 0; g < 1 + round % 3; g++) {
            for (unsigned i = 0; i < 50; i++) {
                ikit_insert(&k, ix, (uint64_t)k.count << 32 | i);
            }
            ikit_close(&k, ix);
        }
        assert_true(k.count > before);
        assert_true(k.count <= GENERATIONS);
        if (round % 4 == 0) {
            find_some(&k, ix);
        }
        index_close(ix);
    }
    {
        struct index *ix = ikit_open(&k, known, false);

        (void)ikit_rebuild(&k, ix, known);
        ikit_check(&k, ix);
        index_close(ix);
    }
    ikit_end(&k);
}

/* What fails in the background waits for the next opportunity, its keys found meanwhile. */
static void test_background_failure(void **state)
{
    uint64_t failures_before = metric_get(METRIC_INDEX_FAILURES);
    struct ikit k;
    struct index *ix;
    char path[200];

    (void)state;
    ikit_start(&k, 31);
    ix = ikit_open(&k, known, true);
    for (unsigned i = 0; i < 300; i++) {
        ikit_insert(&k, ix, i);
    }
    /* A directory stands where the temporary files would be. */
    ikit_join(path, k.dir, "keys-00000000-00000000.run.tmp");
    assert_int_equal(os_mkdir(path, 0700), 0);
    ikit_close(&k, ix);
    index_settle(ix);
    assert_true(metric_get(METRIC_INDEX_FAILURES) >= failures_before + 1);
    assert_int_equal(index_run_count(ix), 0);
    ikit_check(&k, ix);
    ikit_check_summary(&k, 0); /* the summary does not wait for the run */
    /* The generations after it do not wait; but eight that are not those of one merge stay eight.
     */
    while (k.count < 9) {
        ikit_insert(&k, ix, 1000 + k.count);
        ikit_close(&k, ix);
    }
    index_settle(ix);
    assert_int_equal(index_run_count(ix), 8);
    ikit_check(&k, ix);
    assert_int_equal(rmdir(path), 0);
    index_settle(ix);
    assert_int_equal(index_run_count(ix), 2);
    assert_true(ikit_exists(&k, "keys-00000000-00000007.run"));
    assert_true(ikit_exists(&k, "keys-00000008-00000008.run"));
    ikit_check(&k, ix);
    index_close(ix);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_background),
        cmocka_unit_test(test_close_any_time),
        cmocka_unit_test(test_background_failure),
    };

    ikit_skip_syncs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
