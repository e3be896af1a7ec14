/* The walkers of read.h over valid text, and their manners on every other text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "json/read.h"

static void assert_slice(struct slice got, const char *want)
{
    if (!slice_eq(got, slice_cstr(want))) {
        fail_msg("got %.*s, want %s", (int)got.len, got.ptr, want);
    }
}

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum json_type type;
    } samples[] = {
        {"null", JSON_NULL},        {" false", JSON_FALSE}, {"\ttrue", JSON_TRUE},
        {"0", JSON_NUMBER},         {"-1.5", JSON_NUMBER},  {"\"x\"", JSON_STRING},
        {"\n[]", JSON_ARRAY},       {"\r{}", JSON_OBJECT},  {"", JSON_BAD},
        {"  ", JSON_BAD},           {"+1", JSON_BAD},       {"]", JSON_BAD},
        {"\xEF\xBB\xBF", JSON_BAD},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        assert_int_equal(json_type_of(slice_cstr(samples[i].text)), samples[i].type);
    }
    assert_int_equal(json_type_of((struct slice){.ptr = NULL, .len = 0}), JSON_BAD);
}

static void test_members(void **state)
{
    (void)state;
    struct json_iter it = json_iter_object(
        SLICE(" { \"a\" : 1 , \"b\\\"\":\"x,}\\\\\" ,\"c\":[ {\"]\":\"[\"} , 2 ] , \"\":{ } } "));
    struct slice name;
    struct slice value;
    assert_true(json_next_member(&it, &name, &value));
    assert_slice(name, "a");
    assert_slice(value, "1");
    assert_true(json_next_member(&it, &name, &value));
    assert_slice(name, "b\\\"");
    assert_slice(value, "\"x,}\\\\\"");
    assert_true(json_next_member(&it, &name, &value));
    assert_slice(name, "c");
    assert_slice(value, "[ {\"]\":\"[\"} , 2 ]");
    assert_true(json_next_member(&it, &name, &value));
    assert_slice(name, "");
    assert_slice(value, "{ }");
    assert_false(json_next_member(&it, &name, &value));
    assert_false(it.bad);
    assert_false(json_next_member(&it, &name, &value));
    assert_false(it.bad);
}

static void test_elements(void **state)
{
    (void)state;
    struct json_iter it = json_iter_array(SLICE("[true,null , -1e5,\"\",[[1],[2]],{\"a\":[]}]"));
    static const char *const want[] = {"true", "null", "-1e5", "\"\"", "[[1],[2]]", "{\"a\":[]}"};
    struct slice value;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_true(json_next_element(&it, &value));
        assert_slice(value, want[i]);
    }
    assert_false(json_next_element(&it, &value));
    assert_false(it.bad);
    it = json_iter_array(SLICE("[]"));
    assert_false(json_next_element(&it, &value));
    assert_false(it.bad);
    it = json_iter_object(SLICE(" {\n} "));
    assert_false(json_next_member(&it, &value, &value));
    assert_false(it.bad);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const char *const objects[] = {
        "",           "[]",         "1",           "{",
        "{\"a\":1",   "{\"a\"}",    "{\"a\":}",    "{\"a\":1,",
        "{\"a\":1,}", "{a:1}",      "{\"a\":1 2}", "{\"a",
        "{\"a\\",     "{\"a\":\"x", "{\"a\":[",    "{} x",
        "{\"a\":+}",  "{\"a\":1]",  "{\"a\":{\"b", "{\"a\":[\"]",
        "{\"a\" 1}",
    };
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        struct json_iter it = json_iter_object(slice_cstr(objects[i]));
        struct slice name;
        struct slice value;
        while (json_next_member(&it, &name, &value)) {
        }
        if (!it.bad) {
            fail_msg("%s: not found bad", objects[i]);
        }
        assert_false(json_next_member(&it, &name, &value));
    }
    static const char *const arrays[] = {"",    "{}",    "[",   "[1",  "[1,", "[1,]",
                                         "[,]", "[1 2]", "[\"", "[1}", "[] 1"};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        struct json_iter it = json_iter_array(slice_cstr(arrays[i]));
        struct slice value;
        while (json_next_element(&it, &value)) {
        }
        if (!it.bad) {
            fail_msg("%s: not found bad", arrays[i]);
        }
    }
}

static void test_member_by_name(void **state)
{
    (void)state;
    struct slice object = SLICE("{\"a\":1,\"\\u0062\\u00e9\":2,\"c\\n\":3,\"a\":4}");
    struct slice value;
    assert_true(json_member(object, SLICE("a"), &value));
    assert_slice(value, "1");
    assert_true(json_member(object, SLICE("b\xC3\xA9"), &value));
    assert_slice(value, "2");
    assert_true(json_member(object, SLICE("c\n"), &value));
    assert_slice(value, "3");
    assert_false(json_member(object, SLICE("c"), &value));
    assert_false(json_member(object, SLICE(""), &value));
    assert_false(json_member(SLICE("[1]"), SLICE("a"), &value));
    assert_false(json_member(SLICE("{\"x\":1,"), SLICE("a"), &value));
}

static void check_string(const char *inner, const char *plain, size_t plain_len)
{
    struct buf out = {0};
    struct slice in = slice_cstr(inner);
    struct slice want = slice_of(plain, plain_len);
    json_unescape(in, &out);
    assert_true(slice_eq(buf_slice(&out), want));
    assert_int_equal(json_string_len(in), plain_len);
    assert_true(json_string_is(in, want));
    for (size_t n = 0; n <= plain_len; n++) {
        assert_true(json_string_starts(in, slice_of(plain, n)));
        assert_int_equal(json_string_is(in, slice_of(plain, n)), n == plain_len);
    }
    buf_put_char(&out, 'x');
    assert_false(json_string_is(in, buf_slice(&out)));
    assert_false(json_string_starts(in, buf_slice(&out)));
    if (plain_len != 0) {
        out.ptr[plain_len - 1] ^= 1;
        assert_false(json_string_is(in, slice_of(out.ptr, plain_len)));
        assert_false(json_string_starts(in, slice_of(out.ptr, plain_len)));
    }
    buf_free(&out);
}

static void test_strings(void **state)
{
    (void)state;
    check_string("", "", 0);
    check_string("plain", "plain", 5);
    check_string("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t", 8);
    check_string("a\\u0000b", "a\0b", 3);
    check_string("\\u00e9\\u20AC\\ud83d\\uDE00x", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80x", 10);
    check_string("\xC3\xA9 and \\u007f", "\xC3\xA9 and \x7f", 8);
    /* What cannot occur in canonical text. */
    check_string("\\ud83d", "\xEF\xBF\xBD", 3);
    check_string("\\ude00", "\xEF\xBF\xBD", 3);
    check_string("\\ud83d\\u0041",
                 "\xEF\xBF\xBD"
                 "A",
                 4);
    check_string("\\ud83d\\ud83d\\ude00", "\xEF\xBF\xBD\xF0\x9F\x98\x80", 7);
    check_string("\\q\\", "\xEF\xBF\xBD\xEF\xBF\xBD", 6);
    check_string("\\u12",
                 "\xEF\xBF\xBD"
                 "12",
                 5);
}

static void test_string_raw(void **state)
{
    (void)state;
    struct slice inner;
    assert_true(json_string_raw(SLICE(" \"a\\\"b\" "), &inner));
    assert_slice(inner, "a\\\"b");
    assert_true(json_string_raw(SLICE("\"\""), &inner));
    assert_slice(inner, "");
    assert_true(json_string_raw(SLICE("\"a long string, longer than a block \\\\\""), &inner));
    assert_slice(inner, "a long string, longer than a block \\\\");
    assert_false(json_string_raw(SLICE("1"), &inner));
    assert_false(json_string_raw(SLICE(""), &inner));
    assert_false(json_string_raw(SLICE("\""), &inner));
    assert_false(json_string_raw(SLICE("\"a"), &inner));
    assert_false(json_string_raw(SLICE("\"a\\"), &inner));
    assert_false(json_string_raw(SLICE("\"a\\\""), &inner));
    assert_false(json_string_raw(SLICE("\"a\" x"), &inner));
}

static void test_u64(void **state)
{
    (void)state;
    uint64_t v = 7;
    assert_true(json_u64(SLICE("0"), &v));
    assert_int_equal(v, 0);
    assert_true(json_u64(SLICE(" 42 "), &v));
    assert_int_equal(v, 42);
    assert_true(json_u64(SLICE("18446744073709551615"), &v));
    assert_true(v == UINT64_MAX);
    static const char *const refused[] = {"18446744073709551616",
                                          "99999999999999999999",
                                          "-1",
                                          "-0",
                                          "1.0",
                                          "1e0",
                                          "01",
                                          "",
                                          "x",
                                          "\"1\"",
                                          "1 2",
                                          "184467440737095516150"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        v = 7;
        assert_false(json_u64(slice_cstr(refused[i]), &v));
        assert_int_equal(v, 7);
    }
}

static void test_depth(void **state)
{
    (void)state;
    assert_int_equal(json_depth(SLICE("1")), 0);
    assert_int_equal(json_depth(SLICE("\"[[[\"")), 0);
    assert_int_equal(json_depth(SLICE(" []")), 1);
    assert_int_equal(json_depth(SLICE("{\"a\":[{}],\"b\":{}}")), 3);
    assert_int_equal(json_depth(SLICE("[[],[[\"\\\"]\"]],[]]")), 3);
    assert_int_equal(json_depth(SLICE("")), 0);
    struct buf deep = {0};
    for (int i = 0; i < 100000; i++) {
        buf_put_char(&deep, '[');
    }
    for (int i = 0; i < 100000; i++) {
        buf_put_char(&deep, ']');
    }
    assert_int_equal(json_depth(buf_slice(&deep)), 100000);
    buf_free(&deep);
}

/* Objects of an array by entering them: whatever the text is, nothing lies outside of it; what is
 * walked to its end is what the other way gives. */
static void walk_entered(struct slice all)
{
    struct json_iter it = json_iter_array(all);
    struct json_iter whole = json_iter_array(all);
    struct json_iter object;
    struct slice element;
    struct slice name;
    struct slice value;
    bool same = true; /* text that is not valid may end in two ways */
    size_t steps = 0;
    for (;;) {
        assert_in_range(++steps, 1, all.len + 1);
        if (!json_enter_object(&it, &object)) {
            if (!json_next_element(&it, &element)) {
                break;
            }
        } else {
            while (json_next_member(&object, &name, &value)) {
                assert_true(name.ptr > all.ptr && value.ptr + value.len <= all.ptr + all.len);
            }
            assert_true(object.ended != object.bad);
            if (object.bad) {
                break;
            }
            json_leave(&it, &object);
        }
        assert_true(it.at > all.ptr && it.at <= all.ptr + all.len);
        same = same && json_next_element(&whole, &element) && it.at == whole.at;
    }
    if (same && !it.bad && it.ended) {
        assert_false(json_next_element(&whole, &element));
        assert_true(whole.ended);
    }
}

static void test_entering(void **state)
{
    (void)state;
    static const char text[] = "[{\"a\":{\"b\":[1]},\"c\":\"}\"} , {},7,{\"d\":[{}]} ]";
    struct json_iter it = json_iter_array(slice_cstr(text));
    struct json_iter object;
    struct slice name;
    struct slice value;
    assert_true(json_enter_object(&it, &object));
    assert_true(json_next_member(&object, &name, &value));
    assert_true(slice_eq(value, SLICE("{\"b\":[1]}")));
    assert_true(json_next_member(&object, &name, &value));
    assert_true(slice_eq(value, SLICE("\"}\"")));
    assert_false(json_next_member(&object, &name, &value));
    assert_true(object.ended);
    assert_false(json_next_member(&object, &name, &value));
    json_leave(&it, &object);
    assert_true(json_enter_object(&it, &object));
    assert_false(json_next_member(&object, &name, &value));
    assert_true(object.ended);
    json_leave(&it, &object);
    assert_false(json_enter_object(&it, &object)); /* a number */
    assert_true(json_next_element(&it, &value));
    assert_true(slice_eq(value, SLICE("7")));
    assert_true(json_enter_object(&it, &object)); /* not walked: the element is still there */
    assert_true(json_next_member(&object, &name, &value));
    assert_true(json_next_element(&it, &value));
    assert_true(slice_eq(value, SLICE("{\"d\":[{}]}")));
    assert_false(json_enter_object(&it, &object));
    assert_false(json_next_element(&it, &value));
    assert_true(it.ended);
    assert_false(it.bad);
}

/* Everything that read.h offers, on one text in memory of exactly its size; results must lie
 * inside. */
static void walk_all(const char *text, size_t len)
{
    char *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    struct slice all = slice_of(copy, len);
    struct buf out = {0};
    struct json_iter it = json_iter_object(all);
    struct slice name;
    struct slice value;
    size_t steps = 0;
    while (json_next_member(&it, &name, &value)) {
        assert_true(name.ptr >= copy && name.ptr + name.len <= copy + len);
        assert_true(value.ptr >= name.ptr + name.len && value.ptr + value.len <= copy + len);
        buf_clear(&out);
        json_unescape(name, &out);
        assert_int_equal(out.len, json_string_len(name));
        assert_true(json_string_is(name, buf_slice(&out)));
        assert_in_range(++steps, 1, len);
    }
    it = json_iter_array(all);
    steps = 0;
    while (json_next_element(&it, &value)) {
        assert_true(value.len != 0 && value.ptr > copy && value.ptr + value.len <= copy + len);
        assert_in_range(++steps, 1, len);
    }
    walk_entered(all);
    uint64_t number;
    (void)json_member(all, SLICE("zz"), &value);
    (void)json_u64(all, &number);
    (void)json_depth(all);
    (void)json_type_of(all);
    if (json_string_raw(all, &value)) {
        (void)json_string_len(value);
    }
    buf_clear(&out);
    json_unescape(all, &out);
    assert_int_equal(out.len, json_string_len(all));
    buf_free(&out);
    free(copy);
}

static void test_truncation(void **state)
{
    (void)state;
    static const char object[] = "{\"a\":[1,2,{\"b\\\\\":\"c\\u00e9\\ud83d\\ude00\"}],\"d\":\"a "
                                 "string of more than one block\","
                                 " \"e\" : true , \"\\n\":{}}";
    static const char array[] = "[1,\"two\",[3,{\"four\":\"\\\"\"}],null,-1.5e-5]";
    for (size_t n = 0; n < sizeof object; n++) {
        walk_all(object, n);
    }
    for (size_t n = 0; n < sizeof array; n++) {
        walk_all(array, n);
    }
}

static void test_random_text(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 0) : (unsigned)time(NULL);
    print_message("SEED=%u\n", seed);
    static const char alphabet[] = "{}[]{}[]\"\"\"\":,,::\\\\u0d8 1-ten\n\xC3\xA9";
    char text[64];
    for (int i = 0; i < 100000; i++) {
        size_t len = (size_t)rand_r(&seed) % sizeof text;
        for (size_t j = 0; j < len; j++) {
            text[j] = alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        }
        if (len != 0 && i % 2 == 0) {
            text[0] = i % 4 == 0 ? '{' : '[';
        }
        walk_all(text, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_members),
        cmocka_unit_test(test_elements),       cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_member_by_name), cmocka_unit_test(test_strings),
        cmocka_unit_test(test_string_raw),     cmocka_unit_test(test_u64),
        cmocka_unit_test(test_depth),          cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_random_text),    cmocka_unit_test(test_entering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
