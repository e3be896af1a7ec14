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

static void fingerprint(uint64_t seed, uint64_t n, uint8_t out[16])
{
    uint64_t pair[2] = {seed, n};
    uint8_t full[SHA256_LEN];
    sha256_once(slice_of(pair, sizeof pair), full);
    memcpy(out, full, 16);
}

static void check(uint64_t seed, uint64_t keys, uint64_t absent, uint64_t wrong_max)
{
    struct index_filter f;
    uint8_t fp[16];
    uint64_t wrong = 0;
    index_filter_start(&f, keys);
    assert_non_null(f.words);
    for (uint64_t i = 0; i < keys; i++) {
        fingerprint(seed, i, fp);
        index_filter_add(&f, fp);
    }
    for (uint64_t i = 0; i < keys; i++) {
        fingerprint(seed, i, fp);
        assert_true(index_filter_maybe(&f, fp));
    }
    for (uint64_t i = 0; i < absent; i++) {
        fingerprint(seed, keys + i, fp);
        wrong += index_filter_maybe(&f, fp);
    }
    print_message("%llu keys: %llu of %llu absent ones were not ruled out\n",
                  (unsigned long long)keys, (unsigned long long)wrong, (unsigned long long)absent);
    assert_true(wrong <= wrong_max);
    index_filter_free(&f);
    assert_null(f.words);
}

static void test_sizes(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20261130;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    check(seed, 1, 100000, 1000);
    check(seed, 43, 100000, 5000);
    check(seed, 1000, 100000, 2000);
    check(seed, 200000, 200000, 2000); /* one in a hundred would be three times the expected */
    (void)state;
}

/* An empty run, and one without memory for a filter, are asked of the file. */
static void test_without_words(void **state)
{
    struct index_filter f;
    uint8_t fp[16] = {0};
    index_filter_start(&f, 0);
    assert_null(f.words);
    assert_true(index_filter_maybe(&f, fp));
    index_filter_add(&f, fp);
    assert_true(index_filter_maybe(&f, fp));
    index_filter_start(&f, UINT64_C(1) << 50);
    assert_null(f.words);
    assert_true(index_filter_maybe(&f, fp));
    index_filter_free(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_without_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
