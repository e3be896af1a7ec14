/* json_tolerant_check, json_flaws, and the walkers of read.h on text that only the first of them
 * lets pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "json/canon.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

/* In memory of exactly its size. */
static struct slice exact(struct slice s)
{
    char *copy = malloc(s.len == 0 ? 1 : s.len);
    assert_non_null(copy);
    if (s.len != 0) {
        memcpy(copy, s.ptr, s.len);
    }
    return (struct slice){.ptr = copy, .len = s.len};
}

static void drop(struct slice s)
{
    free((void *)(uintptr_t)s.ptr);
}

static void test_accepts(void **state)
{
    (void)state;
    static const struct {
        struct slice text, value;
    } samples[] = {
        {SLICE("1"), SLICE("1")},
        {SLICE(" \t\r\n-0.5e+9 "), SLICE("-0.5e+9")},
        {SLICE("\xEF\xBB\xBF{} \n"), SLICE("{}")},
        {SLICE("\xEF\xBB\xBF \"x\""), SLICE("\"x\"")},
        {SLICE("[ ]"), SLICE("[ ]")},
        {SLICE("[[],{},[{}]]"), SLICE("[[],{},[{}]]")},
        {SLICE("{ \"a\" : [ 1 , true,false , null ] , \"b\":{\"c\":\"\"}}"),
         SLICE("{ \"a\" : [ 1 , true,false , null ] , \"b\":{\"c\":\"\"}}")},
        {SLICE("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uD800\\udFfF\""),
         SLICE("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\uD800\\udFfF\"")},
        {SLICE("\"a\nb\tc\x01\x00\x1f\""), SLICE("\"a\nb\tc\x01\x00\x1f\"")},
        {SLICE("\"\xFF\xC3\""), SLICE("\"\xFF\xC3\"")},
        {SLICE("\"\xE2\x82\""), SLICE("\"\xE2\x82\"")},
        {SLICE("{\"a\":1,\"a\":2}"), SLICE("{\"a\":1,\"a\":2}")},
        {SLICE("1e999"), SLICE("1e999")},
        {SLICE("-123456789012345678901234567890"), SLICE("-123456789012345678901234567890")},
        {SLICE("[0,-0,0.0,1E-5,10]"), SLICE("[0,-0,0.0,1E-5,10]")},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct slice text = exact(samples[i].text);
        struct slice value;
        struct err e = {0};
        int r = json_tolerant_check(text, &value, &e);
        if (r != 0 || !slice_eq(value, samples[i].value)) {
            fail_msg("sample %zu: %d %s", i, r, e.text);
        }
        assert_true(value.ptr >= text.ptr && value.ptr + value.len <= text.ptr + text.len);
        drop(text);
    }
}

struct refusal {
    struct slice text;
    uint64_t offset;
    const char *expected;
};

static void check_refusals(const struct refusal *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct slice text = exact(samples[i].text);
        struct slice value = SLICE("untouched");
        struct err e = {0};
        int r = json_tolerant_check(text, &value, &e);
        char words[128];
        (void)snprintf(words, sizeof words, "%s is expected at byte %llu", samples[i].expected,
                       (unsigned long long)samples[i].offset);
        if (r != ERR_INVALID_JSON || e.code != r || !e.has_offset ||
            e.offset != samples[i].offset || strcmp(e.text, words) != 0) {
            fail_msg("sample %zu: %d %s, offset %llu, want %s", i, r, e.text,
                     (unsigned long long)e.offset, words);
        }
        assert_true(slice_eq(value, SLICE("untouched")));
        assert_int_equal(json_tolerant_check(text, &value, NULL), ERR_INVALID_JSON);
        drop(text);
    }
}

static void test_refuses_structure(void **state)
{
    (void)state;
    static const struct refusal samples[] = {
        {SLICE(""), 0, "a value"},
        {SLICE("  "), 2, "a value"},
        {SLICE("\xEF\xBB\xBF"), 3, "a value"},
        {SLICE("\xEF\xBB\xBF\xEF\xBB\xBF{}"), 3, "a value"},
        {SLICE(" \xEF\xBB\xBF{}"), 1, "a value"},
        {SLICE("{} x"), 3, "the end of the text"},
        {SLICE("{}\0"), 2, "the end of the text"},
        {SLICE("1 2"), 2, "the end of the text"},
        {SLICE("["), 1, "a value"},
        {SLICE("[1"), 2, "a comma or a closing bracket"},
        {SLICE("[1,"), 3, "a value"},
        {SLICE("[1,]"), 3, "a value"},
        {SLICE("[,1]"), 1, "a value"},
        {SLICE("[1}"), 2, "a comma or a closing bracket"},
        {SLICE("[1 2]"), 3, "a comma or a closing bracket"},
        {SLICE("]"), 0, "a value"},
        {SLICE("{"), 1, "a member name in quotes"},
        {SLICE("{a:1}"), 1, "a member name in quotes"},
        {SLICE("{\"a\"}"), 4, "a colon"},
        {SLICE("{\"a\" 1}"), 5, "a colon"},
        {SLICE("{\"a\""), 4, "a colon"},
        {SLICE("{\"a\":}"), 5, "a value"},
        {SLICE("{\"a\":"), 5, "a value"},
        {SLICE("{\"a\":1"), 6, "a comma or a closing brace"},
        {SLICE("{\"a\":1]"), 6, "a comma or a closing brace"},
        {SLICE("{\"a\":1,}"), 7, "a member name in quotes"},
        {SLICE("{\"a\":1,,\"b\":2}"), 7, "a member name in quotes"},
        {SLICE("{\"a\":{\"b\":[1}}"), 12, "a comma or a closing bracket"},
        {SLICE("[\0]"), 1, "a value"},
        {SLICE("'a'"), 0, "a value"},
        {SLICE("/**/1"), 0, "a value"},
    };
    check_refusals(samples, COUNT(samples));
}

static void test_refuses_scalars(void **state)
{
    (void)state;
    static const struct refusal samples[] = {
        {SLICE("\""), 1, "a closing quote"},
        {SLICE("\"abc"), 4, "a closing quote"},
        {SLICE("\"0123456789abcdefghij"), 21, "a closing quote"},
        {SLICE("\"\\"), 2, "a closing quote"},
        {SLICE("\"0123456789abcdefghij\\"), 22, "a closing quote"},
        {SLICE("\"\\\""), 3, "a closing quote"},
        {SLICE("\"\\x\""), 1, "one of the escapes of JSON"},
        {SLICE("\"ab\\U0041\""), 3, "one of the escapes of JSON"},
        {SLICE("\"\\u12\""), 1, "\\u with four hexadecimal digits"},
        {SLICE("\"\\u12g4\""), 1, "\\u with four hexadecimal digits"},
        {SLICE("\"\\u123"), 1, "\\u with four hexadecimal digits"},
        {SLICE("{\"\\q\":1}"), 2, "one of the escapes of JSON"},
        {SLICE("tru"), 0, "a value"},
        {SLICE("True"), 0, "a value"},
        {SLICE("nul "), 0, "a value"},
        {SLICE("truex"), 4, "the end of the text"},
        {SLICE("falsy"), 0, "a value"},
        {SLICE("NaN"), 0, "a value"},
        {SLICE("-Infinity"), 1, "a digit"},
        {SLICE("-"), 1, "a digit"},
        {SLICE("+1"), 0, "a value"},
        {SLICE(".5"), 0, "a value"},
        {SLICE("1."), 2, "a digit"},
        {SLICE("1.e5"), 2, "a digit"},
        {SLICE("1e"), 2, "a digit"},
        {SLICE("1e+"), 3, "a digit"},
        {SLICE("[1E-x]"), 4, "a digit"},
        {SLICE("01"), 1, "the end of the text"},
        {SLICE("-01"), 2, "the end of the text"},
        {SLICE("[00]"), 2, "a comma or a closing bracket"},
        {SLICE("0x10"), 1, "the end of the text"},
    };
    check_refusals(samples, COUNT(samples));
}

static void test_no_memory_at_all(void **state)
{
    (void)state;
    struct slice value;
    assert_int_equal(json_tolerant_check((struct slice){.ptr = NULL, .len = 0}, &value, NULL),
                     ERR_INVALID_JSON);
}

/* `depth` containers, arrays and objects in turn. */
static void nest(struct buf *b, size_t depth)
{
    for (size_t i = 0; i < depth; i++) {
        buf_put_cstr(b, i % 2 == 0 ? "[" : "{\"a\":");
    }
    buf_put_char(b, '1');
    for (size_t i = depth; i-- > 0;) {
        buf_put_char(b, i % 2 == 0 ? ']' : '}');
    }
}

static void test_depth(void **state)
{
    (void)state;
    struct buf b = {0};
    struct slice value;
    struct err e = {0};
    unsigned flaws = 99;
    nest(&b, JSON_TOLERANT_DEPTH);
    assert_int_equal(json_tolerant_check(buf_slice(&b), &value, &e), 0);
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, &e), 0);
    assert_int_equal(flaws, 0);
    buf_clear(&b);
    nest(&b, JSON_TOLERANT_DEPTH + 1);
    assert_int_equal(json_tolerant_check(buf_slice(&b), &value, &e), ERR_JSON_DEPTH);
    /* 256 pairs of `[` and `{"a":` stand before the one that is too much. */
    assert_int_equal(e.offset, JSON_TOLERANT_DEPTH / 2 * 6);
    assert_string_equal(e.text, "more than 512 containers inside each other at byte 1536");
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, &e), ERR_JSON_DEPTH);
    /* Many beside each other are no depth. */
    buf_clear(&b);
    buf_put_char(&b, '[');
    for (size_t i = 0; i < 2000; i++) {
        buf_put_cstr(&b, "[[]],{},");
    }
    buf_put_cstr(&b, "0]");
    assert_int_equal(json_tolerant_check(buf_slice(&b), &value, &e), 0);
    /* An unfinished one of any length ends at the limit. */
    buf_clear(&b);
    for (size_t i = 0; i < 100000; i++) {
        buf_put_char(&b, '[');
    }
    assert_int_equal(json_tolerant_check(buf_slice(&b), &value, &e), ERR_JSON_DEPTH);
    assert_int_equal(e.offset, JSON_TOLERANT_DEPTH);
    buf_free(&b);
}

static void test_truncation(void **state)
{
    (void)state;
    struct slice whole =
        SLICE("{\"event\":\"\\ud83d\\ude00 \xC3\xA9 \\u0000\",\"properties\":{\"n\":[1,-2.5e"
              "+3,true,null,false],\"long name of more than sixteen bytes\":{}}}");
    struct slice value;
    assert_int_equal(json_tolerant_check(whole, &value, NULL), 0);
    for (size_t len = 0; len < whole.len; len++) {
        struct slice part = exact((struct slice){.ptr = whole.ptr, .len = len});
        struct err e = {0};
        assert_int_equal(json_tolerant_check(part, &value, &e), ERR_INVALID_JSON);
        assert_true(e.offset <= len);
        drop(part);
    }
}

static void test_flaws(void **state)
{
    (void)state;
    static const struct {
        struct slice text;
        unsigned flaws;
    } samples[] = {
        {SLICE("{\"a\":[1,\"\\ud83d\\uDE00\",1.5,true],\"b\":\"\xF0\x9F\x98\x80\"}"), 0},
        {SLICE("\"\\ud800\""), JSON_FLAW_SURROGATE},
        {SLICE("\"\\udc00\""), JSON_FLAW_SURROGATE},
        {SLICE("\"\\ud800\\ud800\\udc00\""), JSON_FLAW_SURROGATE},
        {SLICE("\"\\ud800\\u0041\""), JSON_FLAW_SURROGATE},
        {SLICE("\"\\udbff\\udfff\""), 0},
        {SLICE("\"\\ud800\\\\udc00\""), JSON_FLAW_SURROGATE},
        {SLICE("\"\\u0000\""), JSON_FLAW_NUL},
        {SLICE("\"\\\\u0000\\\\ud800\""), 0},
        {SLICE("{\"\\u0000\":1}"), JSON_FLAW_NUL},
        {SLICE("\"\0\""), JSON_FLAW_CONTROL},
        {SLICE("{\"a\tb\":1}"), JSON_FLAW_CONTROL},
        {SLICE("\"\x1f\""), JSON_FLAW_CONTROL},
        {SLICE("\"\x7f \""), 0},
        {SLICE("\"\x80\""), JSON_FLAW_UTF8},
        {SLICE("\"\xED\xA0\x80\""), JSON_FLAW_UTF8},
        {SLICE("\"\xC0\x80\""), JSON_FLAW_UTF8},
        {SLICE("\"\xF4\x90\x80\x80\""), JSON_FLAW_UTF8},
        {SLICE("\"\xE2\x82\""), JSON_FLAW_UTF8},
        {SLICE("{\"a\":1,\"b\":2,\"a\":1}"), JSON_FLAW_DUPLICATE},
        {SLICE("{\"a\":1,\"\\u0061\":1}"), JSON_FLAW_DUPLICATE},
        {SLICE("{\"/\":1,\"\\/\":1}"), JSON_FLAW_DUPLICATE},
        {SLICE("{\"\":1,\"\":1}"), JSON_FLAW_DUPLICATE},
        {SLICE("[{\"a\":1},{\"a\":{\"a\":{\"b\":1,\"b\":2}}}]"), JSON_FLAW_DUPLICATE},
        {SLICE("[{\"a\":1},{\"a\":{\"a\":{\"b\":\"a\",\"c\":\"a\"}}}]"), 0},
        {SLICE("{\"\xC3\xA9\":1,\"\\u00e9\":1}"), JSON_FLAW_DUPLICATE},
        {SLICE("{\"\\ud800\":1,\"\\ud801\":2}"), JSON_FLAW_DUPLICATE | JSON_FLAW_SURROGATE},
        {SLICE("{\"\xFF\":1,\"\xEF\xBF\xBD\":2}"), JSON_FLAW_DUPLICATE | JSON_FLAW_UTF8},
        {SLICE("{\"\xFF\":1,\"\xFF\xFF\":2}"), JSON_FLAW_UTF8},
        {SLICE("1e999"), JSON_FLAW_NUMBER},
        {SLICE("-1e309"), JSON_FLAW_NUMBER},
        {SLICE("1.5e999"), JSON_FLAW_NUMBER},
        {SLICE("[-0.5E+400]"), JSON_FLAW_NUMBER},
        {SLICE("[1.5e99,1.5E-99]"), 0},
        {SLICE("1.7976931348623157e308"), 0},
        {SLICE("1e-999"), 0},
        {SLICE("0e999"), 0},
        {SLICE("9007199254740992"), 0},
        {SLICE("9007199254740993"), JSON_FLAW_NUMBER},
        {SLICE("-9007199254740993"), JSON_FLAW_NUMBER},
        {SLICE("999999999999999"), 0},
        {SLICE("18446744073709551616"), JSON_FLAW_NUMBER}, /* exact, but written differently */
        {SLICE("18446744073709552000"), 0},
        {SLICE("123456789012345678901234567890"), JSON_FLAW_NUMBER},
        {SLICE("1.23456789012345678901234567890"), 0},
        {SLICE("[\"x\",-1234567890123456789]"), JSON_FLAW_NUMBER},
        {SLICE(" {\"a\":\"\\ud800\n\xFF\\u0000\",\"a\":1e400} "),
         JSON_FLAW_SURROGATE | JSON_FLAW_CONTROL | JSON_FLAW_UTF8 | JSON_FLAW_NUL |
             JSON_FLAW_DUPLICATE | JSON_FLAW_NUMBER},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        struct slice text = exact(samples[i].text);
        unsigned flaws = 99;
        struct err e = {0};
        assert_int_equal(json_flaws(text, &flaws, &e), 0);
        if (flaws != samples[i].flaws) {
            fail_msg("sample %zu: flaws %x, want %x", i, flaws, samples[i].flaws);
        }
        drop(text);
    }
    unsigned flaws = 99;
    struct err e = {0};
    assert_int_equal(json_flaws(SLICE("{\"a\":"), &flaws, &e), ERR_INVALID_JSON);
    assert_int_equal(flaws, 0);
}

/* 400 digits before the point are beyond double, 400 behind it are not. */
static void test_long_numbers(void **state)
{
    (void)state;
    struct buf b = {0};
    unsigned flaws;
    for (int i = 0; i < 400; i++) {
        buf_put_char(&b, '7');
    }
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, NULL), 0);
    assert_int_equal(flaws, JSON_FLAW_NUMBER);
    buf_put_cstr(&b, ".5");
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, NULL), 0);
    assert_int_equal(flaws, JSON_FLAW_NUMBER);
    buf_put_cstr(&b, "e-200");
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, NULL), 0);
    assert_int_equal(flaws, 0);
    buf_clear(&b);
    buf_put_cstr(&b, "0.");
    for (int i = 0; i < 400; i++) {
        buf_put_char(&b, '7');
    }
    assert_int_equal(json_flaws(buf_slice(&b), &flaws, NULL), 0);
    assert_int_equal(flaws, 0);
    buf_free(&b);
}

static void check_unescape(struct slice inner, struct slice want)
{
    struct slice text = exact(inner);
    struct buf out = {0};
    json_unescape(text, &out);
    if (!slice_eq(buf_slice(&out), want)) {
        fail_msg("unescaped to %.*s, want %.*s", (int)out.len, out.ptr == NULL ? "" : out.ptr,
                 (int)want.len, want.ptr);
    }
    assert_true(utf8_valid(buf_slice(&out), NULL));
    assert_int_equal(json_string_len(text), want.len);
    assert_true(json_string_is(text, want));
    assert_true(json_string_starts(text, (struct slice){.ptr = want.ptr, .len = want.len / 2}));
    buf_free(&out);
    drop(text);
}

static void test_unescape_mends(void **state)
{
    (void)state;
    check_unescape(SLICE("a\nb\t\x01"), SLICE("a\nb\t\x01"));
    check_unescape(SLICE("a\0b\\u0000c"), SLICE("a\0b\0c"));
    check_unescape(SLICE("\\ud800"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("x\\udc00\\ud83d\\ude00"), SLICE("x\xEF\xBF\xBD\xF0\x9F\x98\x80"));
    check_unescape(SLICE("\xFF"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("0123456789abcdef\xFFghi\\n"), SLICE("0123456789abcdef\xEF\xBF\xBDghi\n"));
    /* One U+FFFD for a sequence that began well, one for each byte that cannot begin one. */
    check_unescape(SLICE("\xE2\x82"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xE2\x82z"), SLICE("\xEF\xBF\xBDz"));
    check_unescape(SLICE("\xF0\x9F\x98"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xF0\x9F\x98z"), SLICE("\xEF\xBF\xBDz"));
    check_unescape(SLICE("\xF0\x9F"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xF0"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xC3"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xC3\xC3\xA9"), SLICE("\xEF\xBF\xBD\xC3\xA9"));
    check_unescape(SLICE("\xED\xA0\x80"), SLICE("\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"));
    check_unescape(SLICE("\xE0\x80"), SLICE("\xEF\xBF\xBD\xEF\xBF\xBD"));
    check_unescape(SLICE("\xF4\x90"), SLICE("\xEF\xBF\xBD\xEF\xBF\xBD"));
    check_unescape(SLICE("\xC0\xAF"), SLICE("\xEF\xBF\xBD\xEF\xBF\xBD"));
    check_unescape(SLICE("\x80"), SLICE("\xEF\xBF\xBD"));
    check_unescape(SLICE("\xC3\\n"), SLICE("\xEF\xBF\xBD\n"));
    check_unescape(SLICE("\xD0\x9F\xD1\x80\\u0438"), SLICE("\xD0\x9F\xD1\x80\xD0\xB8"));
    check_unescape(SLICE(""), SLICE(""));
    assert_false(json_string_is(SLICE("\xFF"), SLICE("\xFF")));
    assert_false(json_string_is(SLICE("\xFF"), SLICE("")));
    assert_false(json_string_starts(SLICE("\xFFx"), SLICE("x")));
}

static void test_walkers_on_odd_text(void **state)
{
    (void)state;
    struct slice text =
        exact(SLICE("\xEF\xBB\xBF{\"a\nb\":\"x\0,}\",\"\xFF\":[\"\xE2\x82\",1e999,\"\\ud800\"],"
                    "\"\\ud83d\\ude00\":{\"k\":1,\"k\":2},\"\\u0000\":\"\x01\\\"\"} "));
    struct slice value;
    struct slice found;
    struct slice inner;
    assert_int_equal(json_tolerant_check(text, &value, NULL), 0);
    assert_int_equal(json_type_of(value), JSON_OBJECT);
    assert_int_equal(json_depth(value), 2);

    assert_true(json_member(value, SLICE("a\nb"), &found));
    assert_true(json_string_raw(found, &inner));
    assert_true(slice_eq(inner, SLICE("x\0,}")));
    assert_true(json_member(value, SLICE("\xEF\xBF\xBD"), &found));
    struct json_iter it = json_iter_array(found);
    struct slice element;
    assert_true(json_next_element(&it, &element));
    assert_true(json_string_raw(element, &inner));
    assert_true(slice_eq(inner, SLICE("\xE2\x82")));
    assert_true(json_next_element(&it, &element));
    assert_true(slice_eq(element, SLICE("1e999")));
    assert_true(json_next_element(&it, &element));
    assert_true(slice_eq(element, SLICE("\"\\ud800\"")));
    assert_false(json_next_element(&it, &element));
    assert_false(it.bad);
    assert_true(json_member(value, SLICE("\xF0\x9F\x98\x80"), &found));
    assert_true(json_member(found, SLICE("k"), &element));
    assert_true(slice_eq(element, SLICE("1"))); /* the first, as read.h says */
    assert_true(json_member(value, SLICE("\0"), &found));
    assert_true(json_string_raw(found, &inner));
    assert_true(slice_eq(inner, SLICE("\x01\\\"")));
    assert_false(json_member(value, SLICE("absent"), &found));
    drop(text);
}

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static void seed_random(void)
{
    const char *given = getenv("SEED");
    random_state = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)random_state);
}

/* Canon is the other opinion: what it takes has no flaw but \u0000, and the other way round. */
static void test_agrees_with_canon(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"a\":[1,2.50,-3e4,\"x\\u00e9\\n\"],\"b\":{\"c\":null,\"d\":true}}",
        "[\"\\ud83d\\ude00\",\"\xF0\x9F\x98\x80\xC3\xA9\",\"\xE2\x82\xAC\",9007199254740993,1e308]",
        "{\"aa\":1,\"ab\":2,\"\\u0061c\":3,\"b\\/\":{\"x\":0,\"y\":[{\"x\":1}]}}",
    };
    static const char bytes[] = "\"\\{}[],:0123456789eE+-.u dDaAbfnrt\x01\n\x80\xC3\xA9\xE2\xFF";
    seed_random();
    struct canon *canon = canon_new();
    assert_non_null(canon);
    struct buf out = {0};
    unsigned taken = 0;
    unsigned flawed = 0;
    for (unsigned round = 0; round < 60000; round++) {
        char text[160];
        const char *from = seeds[below(COUNT(seeds))];
        size_t len = strlen(from);
        memcpy(text, from, len);
        for (unsigned changes = below(4); changes > 0; changes--) {
            size_t at = below((uint32_t)len);
            if (below(3) == 0 && len > 1) {
                memmove(text + at, text + at + 1, len - at - 1);
                len--;
            } else if (below(2) == 0) {
                memmove(text + at + 1, text + at, len - at);
                len++;
                text[at] = bytes[below(sizeof bytes - 1)];
            } else {
                text[at] = bytes[below(sizeof bytes - 1)];
            }
        }
        struct slice in = exact((struct slice){.ptr = text, .len = len});
        struct slice value;
        unsigned flaws = 0;
        int r = json_tolerant_check(in, &value, NULL);
        buf_clear(&out);
        int strict = canon_json(canon, in, &out, NULL);
        if (r == 0) {
            assert_int_equal(json_flaws(value, &flaws, NULL), 0);
            if ((strict == 0) != ((flaws & ~(unsigned)JSON_FLAW_NUL) == 0)) {
                fail_msg("canon says %d, flaws %x: %.*s", strict, flaws, (int)len, in.ptr);
            }
            taken++;
            flawed += flaws != 0;
        } else if (strict == 0) {
            fail_msg("canon takes what was refused: %.*s", (int)len, in.ptr);
        }
        drop(in);
    }
    assert_true(taken > 1000);
    assert_true(flawed > 500);
    buf_free(&out);
    canon_free(canon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),
        cmocka_unit_test(test_refuses_structure),
        cmocka_unit_test(test_refuses_scalars),
        cmocka_unit_test(test_no_memory_at_all),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_flaws),
        cmocka_unit_test(test_long_numbers),
        cmocka_unit_test(test_unescape_mends),
        cmocka_unit_test(test_walkers_on_odd_text),
        cmocka_unit_test(test_agrees_with_canon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
