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

static uint64_t resident_kib(void)
{
    unsigned long long size = 0;
    unsigned long long resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%llu %llu", &size, &resident), 2);
    assert_int_equal(fclose(statm), 0);
    return resident * 4;
}

/* As many keys as KEYS says, in generations of GENERATION_KEYS, within INDEX_MEMORY bytes; the
 * figures in docs/ARCHITECTURE.md come from here: KEYS=20000000 build/unit/journal/test_index_size.
 * Memory: what is granted keeps to the budget, and the process grows by no more than that and the
 * tables of two generations. */
static void test_as_many_as_asked(void **state)
{
    const char *asked = getenv("KEYS");
    const char *memory = getenv("INDEX_MEMORY");
    uint64_t keys = asked != NULL ? strtoull(asked, NULL, 10) : 200000;
    uint64_t each = keys < 1000000 ? keys / 20 : 50000;
    uint64_t generations = keys / each;
    bool *all_known = calloc(generations, sizeof *all_known);
    uint64_t before_kib = resident_kib();
    uint64_t worst_ns = 0;
    struct ikit k;
    struct index *ix;
    uint64_t clock;
    unsigned n = 0;

    (void)state;
    assert_non_null(all_known);
    ikit_start(&k, 10);
    k.memory_bytes = memory != NULL ? strtoull(memory, NULL, 10) : 0;
    ix = ikit_open(&k, all_known, true);
    clock = os_clock_mono_ns();
    for (uint64_t g = 0; g < generations; g++) {
        for (uint64_t i = 0; i < each; i++) {
            struct index_key key = ikit_key(&k, g << 32 | i);
            uint64_t begun = os_clock_mono_ns();

            assert_int_equal(index_find(ix, key.fingerprint, visit_count, &n), 0);
            assert_int_equal(index_insert(ix, &key), 0);
            begun = os_clock_mono_ns() - begun;
            worst_ns = begun > worst_ns ? begun : worst_ns;
        }
        ikit_close(&k, ix);
        while (index_full(ix)) {
            index_flush(ix);
        }
    }
    assert_int_equal(n, 0);
    printf("%llu keys in %llu generations looked up and inserted: %llu ms, the slowest %llu us\n",
           (unsigned long long)keys, (unsigned long long)generations,
           (unsigned long long)lap_ms(&clock), (unsigned long long)worst_ns / 1000);
    index_settle(ix);
    printf("merged: another %llu ms, %u runs; memory of the index %llu KiB, of the process %llu\n",
           (unsigned long long)lap_ms(&clock), index_run_count(ix),
           (unsigned long long)index_memory_used(ix) / 1024,
           (unsigned long long)(resident_kib() - before_kib));
    index_close(ix);
    (void)lap_ms(&clock);
    ix = ikit_open(&k, all_known, true);
    printf("opened: %llu ms\n", (unsigned long long)lap_ms(&clock));
    assert_int_equal(index_key_count(ix), generations * each);
    for (uint64_t i = 0; i < 200000; i++) {
        uint8_t fingerprint[16];

        ikit_fingerprint(fingerprint, UINT64_C(1) << 52 | i);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
    }
    assert_int_equal(n, 0);
    printf("200000 lookups of absent keys: %llu ms\n", (unsigned long long)lap_ms(&clock));
    for (uint64_t i = 0; i < 200000; i++) {
        uint8_t fingerprint[16];

        ikit_fingerprint(fingerprint, (i % generations) << 32 | i * 7919 % each);
        assert_int_equal(index_find(ix, fingerprint, visit_count, &n), 0);
    }
    assert_int_equal(n, 200000);
    printf("200000 lookups of present keys: %llu ms\n", (unsigned long long)lap_ms(&clock));
    index_close(ix);
    ikit_end(&k);
    free(all_known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_million),
        cmocka_unit_test(test_as_many_as_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
