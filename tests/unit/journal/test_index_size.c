/* test_index_size: a million keys in eight runs and more. Not a test of speed (a shared machine
 * says little about that) but of size: tables that grow, runs of many blocks, merges of many steps.
 * The figures are printed. */
#include "index_kit.h"

static bool known[16];

static int visit_count(void *ctx, const struct index_key *key)
{
    (void)key;
    *(unsigned *)ctx += 1;
    return 0;
}

static uint64_t lap_ms(uint64_t *since_ns)
{
    uint64_t now = os_clock_mono_ns();
    uint64_t ms = (now - *since_ns) / 1000000;

    *since_ns = now;
    return ms;
}

/* Not a test of speed, but of size: a million keys in eight runs and more; the figures are printed.
 */
static void test_million(void **state)
{
    enum { GENERATIONS = 15, EACH = 70000, LOOKUPS = 200000 };
    struct ikit k;
    struct index *ix;
    uint64_t clock;
    unsigned n = 0;

    (void)state;
    ikit_start(&k, 9);
    ix = ikit_open(&k, known, false);
    clock = os_clock_mono_ns();
    for (uint64_t g = 0; g < GENERATIONS; g++) {
        for (uint64_t i = 0; i < EACH; i++) {
            struct index_key key = ikit_key(&k, g << 32 | i);

            assert_int_equal(index_insert(ix, &key), 0);
        }
        ikit_close(&k, ix);
    }
    printf("%u keys in %u generations inserted, written, merged: %llu ms\n", GENERATIONS * EACH,
           GENERATIONS, (unsigned long long)lap_ms(&clock));
    index_close(ix);
    (void)lap_ms(&clock);
    ix = ikit_open(&k, known, false);
    printf("checked and opened: %llu ms\n", (unsigned long long)lap_ms(&clock));
    assert_int_equal(index_run_count(ix), 8);
    assert_int_equal(index_key_count(ix), GENERATIONS * EACH);
    (void)lap_ms(&clock);
    for (uint64_t i = 0; i < LOOKUPS; i++) {
        uint8_t fingerprint[16];

        ikit_fingerprint(fingerprint, UINT64_C(1) << 52 | i);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
    }
    assert_int_equal(n, 0);
    printf("%u lookups of absent keys in 8 runs: %llu ms\n", LOOKUPS,
           (unsigned long long)lap_ms(&clock));
    for (uint64_t i = 0; i < LOOKUPS; i++) {
        uint8_t fingerprint[16];

        ikit_fingerprint(fingerprint, (i % GENERATIONS) << 32 | i % EACH);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
    }
    assert_int_equal(n, LOOKUPS);
    printf("%u lookups of present keys: %llu ms\n", LOOKUPS, (unsigned long long)lap_ms(&clock));
    for (uint64_t i = 0; i < 1000000; i++) {
        struct index_key key = ikit_key(&k, UINT64_C(1) << 53 | i);

        assert_int_equal(index_insert(ix, &key), 0);
    }
    printf("1000000 keys into the active table: %llu ms\n", (unsigned long long)lap_ms(&clock));
    ikit_close(&k, ix);
    printf("written as a run, merged with seven, summarized: %llu ms\n",
           (unsigned long long)lap_ms(&clock));
    index_close(ix);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_million),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
