/* The growing buffer: growth, limit, the sticky failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define ALLOCATION_FAILS false
#else
#define ALLOCATION_FAILS true
#endif

static void assert_text(const struct buf *b, const char *want)
{
    assert_int_equal(b->len, strlen(want));
    assert_memory_equal(b->ptr, want, b->len);
}

static void test_puts(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_put(&b, "ab", 2);
    buf_put(&b, NULL, 0);
    buf_put_slice(&b, SLICE("cd"));
    buf_put_slice(&b, (struct slice){0});
    buf_put_cstr(&b, "ef");
    buf_put_char(&b, 'g');
    assert_text(&b, "abcdefg");
    assert_false(b.failed);
    assert_true(slice_eq(buf_slice(&b), SLICE("abcdefg")));
    buf_free(&b);
    assert_null(b.ptr);
    assert_int_equal(b.len, 0);
}

static void check_u64(uint64_t v, const char *want)
{
    struct buf b = {0};
    buf_put_u64(&b, v);
    assert_text(&b, want);
    buf_free(&b);
}

static void check_i64(int64_t v, const char *want)
{
    struct buf b = {0};
    buf_put_i64(&b, v);
    assert_text(&b, want);
    buf_free(&b);
}

static void test_integers(void **state)
{
    (void)state;
    check_u64(0, "0");
    check_u64(9, "9");
    check_u64(10, "10");
    check_u64(UINT64_MAX, "18446744073709551615");
    check_i64(0, "0");
    check_i64(-1, "-1");
    check_i64(INT64_MAX, "9223372036854775807");
    check_i64(INT64_MIN, "-9223372036854775808");
}

static void test_printf(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_printf(&b, "%s=%d;", "x", -7);
    buf_printf(&b, "%s", "");
    buf_printf(&b, "%0300d", 5);
    assert_int_equal(b.len, 5 + 300);
    assert_memory_equal(b.ptr, "x=-7;000", 8);
    assert_int_equal(b.ptr[304], '5');
    buf_free(&b);
}

static void test_growth(void **state)
{
    (void)state;
    struct buf b = {0};
    for (unsigned i = 0; i < 100000; i++) {
        buf_put_char(&b, (char)(i % 251));
        assert_true(b.len <= b.cap);
    }
    assert_int_equal(b.len, 100000);
    assert_true(b.cap <= 2 * b.len);
    for (unsigned i = 0; i < 100000; i++) {
        assert_int_equal((unsigned char)b.ptr[i], i % 251);
    }
    size_t cap = b.cap;
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_int_equal(b.cap, cap);
    buf_free(&b);
}

static void test_limit(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    buf_put_cstr(&b, "0123456789");
    assert_false(b.failed);
    assert_int_equal(b.cap, 10);
    assert_true(buf_reserve(&b, 0));
    buf_put_char(&b, 'x');
    assert_true(b.failed);
    assert_text(&b, "0123456789");
    buf_clear(&b);
    assert_false(b.failed);
    buf_put_cstr(&b, "01234567890");
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    /* What is dropped stays dropped, also when the next piece would fit. */
    buf_put_char(&b, 'y');
    buf_put_u64(&b, 1);
    buf_printf(&b, "z");
    assert_false(buf_reserve(&b, 1));
    assert_int_equal(b.len, 0);
    assert_true(b.failed);
    buf_free(&b);
    assert_int_equal(b.limit, 10);
    assert_false(b.failed);
}

static void test_absurd_sizes(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_put_char(&b, 'x');
    assert_false(buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    buf_clear(&b);
    buf_put_char(&b, 'x');
    assert_false(buf_reserve(&b, SIZE_MAX / 4));
    buf_clear(&b);
    buf_put_char(&b, 'y');
    assert_text(&b, "y");
    buf_free(&b);
}

/* More than any machine has. ASan would stop the test instead of failing the allocation. */
static void test_no_memory(void **state)
{
    (void)state;
    if (!ALLOCATION_FAILS) {
        skip();
    }
    struct buf b = {0};
    buf_put_char(&b, 'x');
    assert_false(buf_reserve(&b, SIZE_MAX / 4 - 1));
    assert_true(b.failed);
    assert_text(&b, "x");
    buf_clear(&b);
    buf_put_char(&b, 'y');
    assert_text(&b, "y");
    buf_free(&b);
}

static void test_slices(void **state)
{
    (void)state;
    assert_true(slice_eq(SLICE(""), (struct slice){0}));
    assert_true(slice_eq(slice_cstr("ab"), slice_of("abc", 2)));
    assert_false(slice_eq(SLICE("ab"), SLICE("abc")));
    assert_false(slice_eq(SLICE("ab"), SLICE("ac")));
    assert_true(slice_starts(SLICE("abc"), SLICE("")));
    assert_true(slice_starts(SLICE("abc"), SLICE("abc")));
    assert_false(slice_starts(SLICE("ab"), SLICE("abc")));
    assert_false(slice_starts(SLICE("abc"), SLICE("b")));
    assert_true(slice_cmp(SLICE("a"), SLICE("b")) < 0);
    assert_true(slice_cmp(SLICE("b"), SLICE("a")) > 0);
    assert_true(slice_cmp(SLICE("a"), SLICE("ab")) < 0);
    assert_true(slice_cmp(SLICE("ab"), SLICE("a")) > 0);
    assert_true(slice_cmp(SLICE("\xC3"), SLICE("a")) > 0);
    assert_int_equal(slice_cmp(SLICE(""), (struct slice){0}), 0);
    assert_true(slice_eq(slice_from(SLICE("abc"), 1), SLICE("bc")));
    assert_int_equal(slice_from(SLICE("abc"), 3).len, 0);
    assert_int_equal(slice_from(SLICE("abc"), 4).len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_puts),   cmocka_unit_test(test_integers),
        cmocka_unit_test(test_printf), cmocka_unit_test(test_growth),
        cmocka_unit_test(test_limit),  cmocka_unit_test(test_absurd_sizes),
        cmocka_unit_test(test_slices), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
