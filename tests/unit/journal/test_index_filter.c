/* The Bloom filter of a run: "no" is always right, "maybe" is rarely wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "journal/index_filter.h"
#include "journal/index_format.h"

static void fingerprint(uint64_t seed, uint64_t n, uint8_t out[16])
{
    uint64_t pair[2] = {seed, n};
    uint8_t full[SHA256_LEN];
    sha256_once(slice_of(pair, sizeof pair), full);
    memcpy(out, full, 16);
}

static void check(uint64_t seed, uint32_t lines, uint64_t keys, uint64_t absent, uint64_t wrong_max)
{
    uint8_t *f = calloc(lines, INDEX_FILTER_LINE_BYTES);
    uint8_t fp[16];
    uint64_t wrong = 0;
    assert_non_null(f);
    for (uint64_t i = 0; i < keys; i++) {
        fingerprint(seed, i, fp);
        index_filter_add(f, lines, fp);
    }
    for (uint64_t i = 0; i < keys; i++) {
        fingerprint(seed, i, fp);
        assert_true(index_filter_maybe(f, lines, fp));
    }
    for (uint64_t i = 0; i < absent; i++) {
        fingerprint(seed, keys + i, fp);
        wrong += index_filter_maybe(f, lines, fp);
    }
    print_message("%llu keys: %llu of %llu absent ones were not ruled out\n",
                  (unsigned long long)keys, (unsigned long long)wrong, (unsigned long long)absent);
    assert_true(wrong <= wrong_max);
    free(f);
}

static void test_sizes(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261130;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    check(seed, 1, 1, 100000, 1000);
    check(seed, 1, 42, 100000, 5000);
    check(seed, INDEX_FILTER_LINES, INDEX_FILTER_KEY_BLOCKS * INDEX_BLOCK_KEYS, 100000, 1500);
    check(seed, 75 * INDEX_FILTER_LINES, 200000, 200000, 2000); /* expected: a third of that */
    (void)state;
}

/* The bits are those of index_format.h, on every machine. */
static void test_bits(void **state)
{
    uint8_t lines[4 * INDEX_FILTER_LINE_BYTES] = {0};
    uint8_t want[sizeof lines] = {0};
    uint8_t fp[16] = {9, 9, 9, 9, 0, 0, 0, 0x80, 0x01, 0x04, 0x0c};
    (void)state;
    /* Line 0x80000000 * 4 / 2^32 = 2; slices of 0x0c0401, nine bits each: 1, 2, 3, 0, 0, 0. */
    want[2 * 64] = 1 | 2 | 4 | 8;
    index_filter_add(lines, 4, fp);
    assert_memory_equal(lines, want, sizeof want);
    assert_int_equal(index_filter_line(4, fp), 2);
    fp[8] = 5;
    assert_false(index_filter_maybe(lines, 4, fp));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
