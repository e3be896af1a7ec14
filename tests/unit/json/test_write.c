/* JSON pieces we write ourselves, and the UTF-8 check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/canon.h"
#include "json/read.h"
#include "json/write.h"

static void check_string(struct slice in, const char *want)
{
    struct buf out = {0};
    json_put_string(&out, in);
    if (!slice_eq(buf_slice(&out), slice_cstr(want))) {
        fail_msg("got %.*s, want %s", (int)out.len, out.ptr, want);
    }
    /* It is its own canonical form, and reads back as what went in when that was valid. */
    struct canon *c = canon_new();
    struct buf again = {0};
    assert_int_equal(canon_json(c, buf_slice(&out), &again, NULL), 0);
    assert_true(slice_eq(buf_slice(&out), buf_slice(&again)));
    struct slice inner;
    assert_true(json_string_raw(buf_slice(&out), &inner));
    assert_int_equal(json_string_is(inner, in), utf8_valid(in, NULL));
    canon_free(c);
    buf_free(&again);
    buf_free(&out);
}

static void test_put_string(void **state)
{
    (void)state;
    check_string(SLICE(""), "\"\"");
    check_string((struct slice){.ptr = NULL, .len = 0}, "\"\"");
    check_string(SLICE("plain text of more than sixteen bytes"),
                 "\"plain text of more than sixteen bytes\"");
    check_string(slice_of("\0\x01\b\t\n\x0b\f\r\x1f \"\\/\x7f", 14),
                 "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\/\x7f\"");
    check_string(SLICE("\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80"),
                 "\"\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80\"");
    check_string(SLICE("a\xFF"
                       "b\xC0\x80"),
                 "\"a\xEF\xBF\xBD"
                 "b\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string(SLICE("\xE2\x82"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    check_string(SLICE("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

static void test_put_name(void **state)
{
    (void)state;
    struct buf out = {0};
    json_put_name(&out, "bare");
    assert_true(slice_eq(buf_slice(&out), SLICE("\"bare\":")));
    buf_clear(&out);
    buf_put_char(&out, '{');
    json_put_name(&out, "a");
    buf_put_char(&out, '{');
    json_put_name(&out, "b\n");
    buf_put_u64(&out, 1);
    buf_put_char(&out, '}');
    json_put_name(&out, "c");
    json_put_string(&out, SLICE("{"));
    json_put_name(&out, "d");
    buf_put_cstr(&out, "null}");
    assert_true(slice_eq(buf_slice(&out), SLICE("{\"a\":{\"b\\n\":1},\"c\":\"{\",\"d\":null}")));
    buf_free(&out);
}

static void test_limit(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out, 8);
    json_put_string(&out, SLICE("longer than eight"));
    assert_true(out.failed);
    json_put_name(&out, "x");
    assert_true(out.failed);
    buf_free(&out);
}

static void check_utf8(struct slice s, bool valid, size_t bad)
{
    char *copy = malloc(s.len == 0 ? 1 : s.len);
    assert_non_null(copy);
    memcpy(copy, s.ptr, s.len);
    size_t at = 999;
    assert_int_equal(utf8_valid(slice_of(copy, s.len), &at), valid);
    assert_int_equal(at, valid ? 999 : bad);
    assert_int_equal(utf8_valid(slice_of(copy, s.len), NULL), valid);
    free(copy);
}

static void test_utf8(void **state)
{
    (void)state;
    check_utf8(SLICE(""), true, 0);
    check_utf8(SLICE("ascii with \n \" \\ \x7f and more than one block of it"), true, 0);
    check_utf8(slice_of("a\0b", 3), true, 0);
    check_utf8(SLICE("\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF"), true, 0);
    check_utf8(SLICE("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"), true, 0);
    check_utf8(SLICE("ab\x80"), false, 2);
    check_utf8(SLICE("ab\xBF"), false, 2);
    check_utf8(SLICE("\xC0\x80"), false, 0);
    check_utf8(SLICE("\xC1\xBF"), false, 0);
    check_utf8(SLICE("x\xE0\x9F\xBF"), false, 1);
    check_utf8(SLICE("\xED\xA0\x80"), false, 0);
    check_utf8(SLICE("\xF0\x8F\xBF\xBF"), false, 0);
    check_utf8(SLICE("\xF4\x90\x80\x80"), false, 0);
    check_utf8(SLICE("\xF5\x80\x80\x80"), false, 0);
    check_utf8(SLICE("\xFF"), false, 0);
    check_utf8(SLICE("0123456789abcdef0123\xE2\x82"), false, 20);
    check_utf8(SLICE("\xE2\x82\xAC\xE2\x28\xA1"), false, 3);
    check_utf8(SLICE("\xF0\x9F\x98"), false, 0);
    check_utf8(SLICE("\xF0\x9F\x28\x80"), false, 0);
    check_utf8(SLICE("\xF0\x9F\x98\x28"), false, 0);
    check_utf8(SLICE("\xC3"), false, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_string),
        cmocka_unit_test(test_put_name),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
