/* UUID text: the canonical spelling of version 7 and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/uuid.h"

static bool parse(const char *text, struct uuid *u)
{
    size_t len = strlen(text);
    char *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    bool ok = uuid7_parse(slice_of(copy, len), u);
    free(copy);
    return ok;
}

static void test_text(void **state)
{
    (void)state;
    static const char text[] = "0192f5c1-23ab-7cde-8f01-23456789abcd";
    struct uuid u;
    char out[UUID_TEXT_LEN];
    assert_true(parse(text, &u));
    assert_int_equal(u.byte[0], 0x01);
    assert_int_equal(u.byte[6], 0x7c);
    assert_int_equal(u.byte[15], 0xcd);
    uuid_text(out, &u);
    assert_memory_equal(out, text, sizeof out);
    struct uuid zero = {{0}};
    uuid_text(out, &zero);
    assert_memory_equal(out, "00000000-0000-0000-0000-000000000000", sizeof out);
    assert_true(uuid_is_zero(&zero));
    assert_false(uuid_is_zero(&u));
}

static void test_variants(void **state)
{
    (void)state;
    struct uuid u;
    assert_true(parse("ffffffff-ffff-7fff-bfff-ffffffffffff", &u));
    assert_true(parse("00000000-0000-7000-8000-000000000000", &u));
    assert_true(parse("00000000-0000-7000-9000-000000000000", &u));
    assert_true(parse("00000000-0000-7000-a000-000000000000", &u));
    static const char *const refused[] = {
        "",
        "00000000-0000-0000-0000-000000000000",
        "00000000-0000-4000-8000-000000000000",
        "00000000-0000-6000-8000-000000000000",
        "00000000-0000-8000-8000-000000000000",
        "00000000-0000-7000-7000-000000000000",
        "00000000-0000-7000-c000-000000000000",
        "00000000-0000-7000-8000-00000000000",
        "00000000-0000-7000-8000-0000000000000",
        "0192F5C1-23ab-7cde-8f01-23456789abcd",
        "0192f5c123ab7cde8f0123456789abcd",
        "0192f5c1-23ab-7cde-8f01-23456789abcg",
        "0192f5c1_23ab-7cde-8f01-23456789abcd",
        "0192f5c1-23ab_7cde-8f01-23456789abcd",
        "0192f5c1-23ab-7cde_8f01-23456789abcd",
        "0192f5c1-23ab-7cde-8f01_23456789abcd",
        "{192f5c1-23ab-7cde-8f01-23456789abcd",
        "0192f5c1-23aB-7cde-8f01-23456789abcd",
        "0192f5c1-23ab-7cdE-8f01-23456789abcd",
        "0192f5c1-23ab-7cde-8f0 -23456789abcd",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (parse(refused[i], &u)) {
            fail_msg("%s: accepted", refused[i]);
        }
    }
}

static void test_order_is_text_order(void **state)
{
    (void)state;
    static const char *const ascending[] = {
        "00000000-0000-7000-8000-000000000000", "00000000-0000-7000-8000-000000000001",
        "00000000-0000-7000-bfff-ffffffffffff", "00000000-0000-7001-8000-000000000000",
        "00000000-0001-7000-8000-000000000000", "0192f5c1-23ab-7cde-8f01-23456789abcd",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    };
    for (size_t i = 0; i + 1 < sizeof ascending / sizeof ascending[0]; i++) {
        struct uuid a;
        struct uuid b;
        assert_true(parse(ascending[i], &a));
        assert_true(parse(ascending[i + 1], &b));
        assert_true(uuid_cmp(&a, &b) < 0);
        assert_true(uuid_cmp(&b, &a) > 0);
        assert_int_equal(uuid_cmp(&a, &a), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_order_is_text_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
