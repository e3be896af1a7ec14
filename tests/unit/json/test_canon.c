/* canon_json against RFC 8785, the I-JSON screen of the history contract and the recorded faults of
 * other programs (the L numbers). Every input lies in memory of exactly its size, so that under
 * ASan a read past the end stops the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "json/canon.h"
#include "json/write.h"

static struct canon *canon;

static int set_up(void **state)
{
    (void)state;
    canon = canon_new();
    return canon == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    canon_free(canon);
    canon_free(NULL);
    return 0;
}

/* A copy that ends where its memory ends; for free(). */
static char *exact_copy(struct slice s)
{
    char *copy = malloc(s.len == 0 ? 1 : s.len);
    assert_non_null(copy);
    if (s.len != 0) {
        memcpy(copy, s.ptr, s.len);
    }
    return copy;
}

static int canonicalize(struct slice in, struct buf *out, struct canon_error *e)
{
    char *copy = exact_copy(in);
    int r = canon_json(canon, slice_of(copy, in.len), out, e);
    free(copy);
    return r;
}

static void check_slice(struct slice in, struct slice want)
{
    struct buf out = {0};
    struct canon_error e = {0};
    buf_put_cstr(&out, "before");
    int r = canonicalize(in, &out, &e);
    if (r != 0) {
        fail_msg("%.*s: refused at %llu (%s): %s", (int)in.len, in.ptr,
                 (unsigned long long)e.offset, e.path, e.text);
    }
    struct slice got = slice_from(buf_slice(&out), 6);
    if (!slice_eq(got, want)) {
        fail_msg("%.*s: got %.*s, want %.*s", (int)in.len, in.ptr, (int)got.len, got.ptr,
                 (int)want.len, want.ptr);
    }
    struct buf again = {0};
    assert_int_equal(canonicalize(want, &again, NULL), 0);
    assert_true(slice_eq(buf_slice(&again), want));
    /* Room behind the last value takes the block-wise ways through it. */
    struct buf spacious = {0};
    buf_put_slice(&spacious, in);
    buf_printf(&spacious, "%40s", "");
    buf_clear(&again);
    assert_int_equal(canonicalize(buf_slice(&spacious), &again, NULL), 0);
    assert_true(slice_eq(buf_slice(&again), want));
    buf_free(&spacious);
    buf_free(&again);
    buf_free(&out);
}

static void check(const char *in, const char *want)
{
    check_slice(slice_cstr(in), slice_cstr(want));
}

static void same(const char *in)
{
    check(in, in);
}

static void refuse_slice(struct slice in, size_t offset, const char *path, const char *words)
{
    struct buf out = {0};
    struct canon_error e;
    memset(&e, 0xEE, sizeof e);
    buf_put_cstr(&out, "before");
    int r = canonicalize(in, &out, &e);
    if (r != ERR_JSON) {
        fail_msg("%.*s: answered %s", (int)in.len, in.ptr, err_name(r));
    }
    assert_int_equal(out.len, 6);
    assert_memory_equal(out.ptr, "before", 6);
    assert_false(out.failed);
    if (e.offset != offset || strcmp(e.path, path) != 0 || strstr(e.text, words) == NULL) {
        fail_msg("%.*s: got %llu '%s' '%s', want %zu '%s' '%s'", (int)in.len, in.ptr,
                 (unsigned long long)e.offset, e.path, e.text, offset, path, words);
    }
    struct buf spacious = {0};
    buf_put_slice(&spacious, in);
    buf_printf(&spacious, "%40s", "");
    assert_int_equal(canonicalize(buf_slice(&spacious), &out, NULL), ERR_JSON);
    assert_int_equal(out.len, 6);
    buf_free(&spacious);
    buf_free(&out);
}

static void refuse(const char *in, size_t offset, const char *path, const char *words)
{
    refuse_slice(slice_cstr(in), offset, path, words);
}

static void test_values(void **state)
{
    (void)state;
    check(" \t\r\n null \n", "null");
    same("true");
    same("false");
    same("\"\"");
    same("[]");
    same("{}");
    check(" [ ] ", "[]");
    check(" { } ", "{}");
    check("[ 1 , [ ] , { } , \"x\" ]", "[1,[],{},\"x\"]");
    check("{ \"b\" : [ true , null ] , \"a\" : { \"d\" : 1 , \"c\" : 2 } }",
          "{\"a\":{\"c\":2,\"d\":1},\"b\":[true,null]}");
    same("[[[[[[[[1]]]]]]]]");
    same("{\"a\":{\"a\":{\"a\":{}}},\"b\":[{\"a\":1},{\"a\":2}]}");
}

/* The example of RFC 8785 section 3.2.2 to 3.2.4. */
static void test_rfc8785_example(void **state)
{
    (void)state;
    check("{\n"
          "  \"numbers\": [333333333.33333329, 1E30, 4.50,\n"
          "              2e-3, 0.000000000000000000000000001],\n"
          "  \"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\",\n"
          "  \"literals\": [null, true, false]\n"
          "}",
          "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
          "\"string\":\"\xE2\x82\xAC$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
}

/* Section 3.2.3: UTF-16 code units decide, so the smiley (a surrogate pair) comes before U+FB33. */
static void test_rfc8785_sorting(void **state)
{
    (void)state;
    check("{\"\\u20ac\":\"Euro Sign\",\"\\r\":\"Carriage "
          "Return\",\"\\ufb33\":\"Hebrew\",\"1\":\"One\","
          "\"\\ud83d\\ude00\":\"Emoji\",\"\\u0080\":\"Control\","
          "\"\\u00f6\":\"Latin Small Letter O With Diaeresis\"}",
          "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\xC2\x80\":\"Control\","
          "\"\xC3\xB6\":\"Latin Small Letter O With Diaeresis\",\"\xE2\x82\xAC\":\"Euro Sign\","
          "\"\xF0\x9F\x98\x80\":\"Emoji\",\"\xEF\xAC\xB3\":\"Hebrew\"}");
}

static void test_name_order(void **state)
{
    (void)state;
    /* Escapes sort as what they stand for: controls before the space, quote and backslash in their
     * ASCII places. */
    check(
        "{\"]\":1,\"\\\\\":2,\"[\":3,\"#\":4,\"\\\"\":5,\"!\":6,\" \":7,\"\\u001f\":8,\"\\r\":9,"
        "\"\\f\":10,\"\\u000b\":11,\"\\n\":12,\"\\t\":13,\"\\b\":14,\"\\u0007\":15,\"\\u0000\":16,"
        "\"\":17}",
        "{\"\":17,\"\\u0000\":16,\"\\u0007\":15,\"\\b\":14,\"\\t\":13,\"\\n\":12,\"\\u000b\":11,"
        "\"\\f\":10,\"\\r\":9,\"\\u001f\":8,\" \":7,\"!\":6,\"\\\"\":5,\"#\":4,\"[\":3,\"\\\\\":2,"
        "\"]\":1}");
    /* The difference lies within an escape, behind a run of backslashes, behind a false `\u`. */
    check("{\"a\\u0011\":1,\"a\\u0010\":2,\"a\\u0002\":3}",
          "{\"a\\u0002\":3,\"a\\u0010\":2,\"a\\u0011\":1}");
    check("{\"\\\\\\\\n\":1,\"\\\\\\n\":2,\"\\\\u0001\":3,\"\\\\u\\u0001\":4}",
          "{\"\\\\\\n\":2,\"\\\\\\\\n\":1,\"\\\\u\\u0001\":4,\"\\\\u0001\":3}");
    check("{\"\\\\u0002\":1,\"\\\\u0001\":2}", "{\"\\\\u0001\":2,\"\\\\u0002\":1}");
    /* A prefix first; eight bytes and more; the same key of eight bytes. */
    check("{\"abcdefgh1\":1,\"abcdefgh\":2,\"abcdefg\":3,\"abcdefgh0\":4}",
          "{\"abcdefg\":3,\"abcdefgh\":2,\"abcdefgh0\":4,\"abcdefgh1\":1}");
    check("{\"abcdefghijklmnopqrstuvwxyz\":1,\"abcdefghijklmnopqrstuvwxy\":2}",
          "{\"abcdefghijklmnopqrstuvwxy\":2,\"abcdefghijklmnopqrstuvwxyz\":1}");
    /* U+E000 and U+FFFF behind all pairs; within pairs by code point; mixed with plain names. */
    check("{\"\xEE\x80\x80\":1,\"\xF4\x8F\xBF\xBF\":2,\"\xF0\x90\x80\x80\":3,\"\xEF\xBF\xBF\":4,"
          "\"\xED\x9F\xBF\":5,\"z\":6}",
          "{\"z\":6,\"\xED\x9F\xBF\":5,\"\xF0\x90\x80\x80\":3,\"\xF4\x8F\xBF\xBF\":2,"
          "\"\xEE\x80\x80\":1,\"\xEF\xBF\xBF\":4}");
    check("{\"ab\":1,\"a\xC3\xA9\":2,\"a\":3,\"a\\n\":4}",
          "{\"a\":3,\"a\\n\":4,\"ab\":1,\"a\xC3\xA9\":2}");
    /* Equal up to an escape in both, then a plain difference: the escape is no difference. */
    check("{\"\\u0001b\":1,\"\\u0001a\":2}", "{\"\\u0001a\":2,\"\\u0001b\":1}");
    check("{\"xxxxxxxxxx\\\\b\":1,\"xxxxxxxxxx\\\\a\":2}",
          "{\"xxxxxxxxxx\\\\a\":2,\"xxxxxxxxxx\\\\b\":1}");
}

static void test_members_move_whole(void **state)
{
    (void)state;
    check("{\"a\":1,\"c\":[{\"z\":\"long text that is the longest\",\"y\":2}],\"b\":{}}",
          "{\"a\":1,\"b\":{},\"c\":[{\"y\":2,\"z\":\"long text that is the longest\"}]}");
    check("{\"c\":\"the longest member of them all\",\"b\":22,\"a\":1}",
          "{\"a\":1,\"b\":22,\"c\":\"the longest member of them all\"}");
    check("{\"b\":22,\"a\":\"the longest member of them all\",\"c\":3}",
          "{\"a\":\"the longest member of them all\",\"b\":22,\"c\":3}");
    check("{\"d\":4,\"c\":3,\"b\":2,\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3,\"d\":4}");
}

static void test_syntax_refused(void **state)
{
    (void)state;
    refuse("", 0, "", "value is expected");
    refuse("  ", 2, "", "value is expected");
    refuse("[1,]", 3, "[1]", "value is expected");
    refuse("[,1]", 1, "[0]", "value is expected");
    refuse("[1 2]", 3, "", "comma");
    refuse("[1}", 2, "", "comma");
    refuse("{\"a\":1]", 6, "", "comma");
    refuse("{\"a\":1,}", 7, "", "member name");
    refuse("{,}", 1, "", "member name");
    refuse("{a:1}", 1, "", "member name");
    refuse("{\"a\"}", 4, "a", "colon");
    refuse("{\"a\" 1}", 5, "a", "colon");
    refuse("{\"a\":}", 5, "a", "value is expected");
    refuse("{\"a\":1 \"b\":2}", 7, "", "comma");
    refuse("[", 1, "[0]", "value is expected");
    refuse("{", 1, "", "member name");
    refuse("]", 0, "", "value is expected");
    refuse("nul", 3, "", "misspelled");
    refuse("nulL", 3, "", "misspelled");
    refuse("trux", 3, "", "misspelled");
    refuse("False", 0, "", "value is expected");
    refuse("NaN", 0, "", "value is expected");
    refuse("Infinity", 0, "", "value is expected");
    refuse("-Infinity", 1, "", "malformed");
    refuse("'a'", 0, "", "value is expected");
    refuse("/*x*/1", 0, "", "value is expected");
    refuse("nullnull", 4, "", "white space");
    refuse("{} x", 3, "", "white space");
    refuse("1 2", 2, "", "white space");
    refuse("\"a\nb\"", 2, "", "raw control");
    refuse("[\"\x1f\"]", 2, "[0]", "raw control");
    refuse("\x0b"
           "1",
           0, "", "value is expected");
    refuse("\xC2\xA0"
           "1",
           0, "", "value is expected");
    refuse("\"\\x\"", 2, "", "unknown escape");
    refuse("\"\\", 2, "", "ends inside");
    refuse("\"\\U0041\"", 2, "", "unknown escape");
    refuse("\"\\u00g0\"", 5, "", "hexadecimal");
    refuse("\"\\u12\"", 5, "", "hexadecimal");
    refuse("\"\\u12", 5, "", "ends inside");
    refuse("\"\\u", 3, "", "ends inside");
    refuse("\"abc", 4, "", "ends inside");
    refuse("{\"abc", 5, "", "ends inside");
}

static void test_surrogates_refused(void **state)
{
    (void)state;
    refuse("\"\\ud800\"", 1, "", "high surrogate");
    refuse("\"\\uD83Dx\"", 1, "", "high surrogate");
    refuse("\"\\ud83d\\n\"", 1, "", "high surrogate");
    refuse("\"\\ud83d\\ud83d\"", 1, "", "high surrogate");
    refuse("\"\\ud83d\\u0041\"", 1, "", "high surrogate");
    refuse("\"\\ud83d\\uzzzz\"", 1, "", "high surrogate");
    refuse("\"\\ud83d", 7, "", "ends inside");
    refuse("\"\\ude00\"", 1, "", "low surrogate");
    refuse("{\"\\udc00\":1}", 2, "", "low surrogate");
    check("\"\\uD83D\\uDE00\\udbff\\udfff\\ud800\\udc00\"",
          "\"\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\xF0\x90\x80\x80\"");
}

static void test_L34_escapes(void **state)
{
    (void)state;
    check("{\"\":1,\"a\\u007f\\u2028\":2,\"\\/\":\"\\/\"}",
          "{\"\":1,\"/\":\"/\",\"a\x7f\xE2\x80\xA8\":2}");
    check("{\"a\":1,\"\":2}", "{\"\":2,\"a\":1}");
    check("\"\\u0008\\u0009\\u000A\\u000C\\u000D\\u0022\\u005C\\u002f\"",
          "\"\\b\\t\\n\\f\\r\\\"\\\\/\"");
    check("\"\\u0000\\u0001\\u000B\\u000E\\u001F\\u0020\"",
          "\"\\u0000\\u0001\\u000b\\u000e\\u001f \"");
    check("\"\\u0080\\u2029\\uFEFF\\uFFFF\\u007F\"",
          "\"\xC2\x80\xE2\x80\xA9\xEF\xBB\xBF\xEF\xBF\xBF\x7f\"");
    same("\"\x7f\xC2\x80\xE2\x80\xA8\xE2\x80\xA9/\"");
}

static void test_L35_numbers(void **state)
{
    (void)state;
    /* The service rule refuses what the bare RFC would round. */
    refuse("9007199254740993", 0, "", "integer");
    refuse("295147905179352825856", 0, "", "integer");
    same("295147905179352830000");
    same("123456789012345680000");
    check("1e21", "1e+21");
    check("1e-7", "1e-7");
    check("0.000001", "0.000001");
    check("0.0000001", "1e-7");
    check("-0.00000012", "-1.2e-7");
    check("-0.0000012", "-0.0000012");
    check("-0", "0");
    check("-0.0", "0");
    check("-0e5", "0");
    refuse("1E400", 0, "", "beyond");
    check("4.50", "4.5");
    check("2e-3", "0.002");
    check("1e+2", "100");
}

static void test_integer_rule(void **state)
{
    (void)state;
    static const char *const accepted[] = {
        "9007199254740991",      "-9007199254740991",     "9007199254740992",
        "-9007199254740992",     "9007199254740994",      "18446744073709552000",
        "100000000000000000000", "999999999999999900000", "-100000000000000000000",
        "999999999999999",       "1000000000000000",
    };
    static const char *const rejected[] = {
        "9007199254740993",        "-9007199254740993",
        "18446744073709551616",    "18446744073709551617",
        "18446744073709551615",    "1000000000000000000000",
        "-1000000000000000000000", "9223372036854775807",
        "1000000000000000000001",  "99999999999999999999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        same(accepted[i]);
    }
    for (size_t i = 0; i < sizeof rejected / sizeof rejected[0]; i++) {
        refuse(rejected[i], 0, "", "integer");
    }
    /* Only digits-only literals fall under it. */
    check("18446744073709551617.0", "18446744073709552000");
    check("1e30", "1e+30");
    check("1E+2", "100");
    check("333333333.33333329", "333333333.3333333");
    check("9007199254740993e0", "9007199254740992");
    check("0.0", "0");
}

static void test_number_range(void **state)
{
    (void)state;
    refuse("1e999", 0, "", "beyond");
    refuse("-1e999", 0, "", "beyond");
    refuse("[1.7976931348623159e308]", 1, "[0]", "beyond");
    same("1.7976931348623157e+308");
    check("1.7976931348623158e308", "1.7976931348623157e+308");
    same("5e-324");
    check("2.4703282292062327e-324", "0");
    check("2.4703282292062328e-324", "5e-324");
    check("-1e-999", "0");
    check("1e-99999999999999999999", "0");
    refuse("1e99999999999999999999", 0, "", "beyond");
    check("0e99999999999999999999", "0");
    check("0.00000000000000000000e-5", "0");
    /* 400 digits, as an integer and with a point. */
    char text[512];
    memset(text, '7', 400);
    text[400] = '\0';
    refuse(text, 0, "", "integer");
    memcpy(text + 400, ".5", 3);
    refuse(text, 0, "", "beyond");
    memcpy(text + 400, "e-399", 6);
    check(text, "7.777777777777778");
}

static void test_number_syntax(void **state)
{
    (void)state;
    refuse("01", 1, "", "malformed");
    refuse("-01", 2, "", "malformed");
    refuse("00", 1, "", "malformed");
    refuse("-", 1, "", "malformed");
    refuse("[-]", 2, "[0]", "malformed");
    refuse("+1", 0, "", "value is expected");
    refuse(".5", 0, "", "value is expected");
    refuse("1.", 2, "", "malformed");
    refuse("[1.]", 3, "[0]", "malformed");
    refuse("1.e5", 2, "", "malformed");
    refuse("1e", 2, "", "malformed");
    refuse("1e+", 3, "", "malformed");
    refuse("[1e-]", 4, "[0]", "malformed");
    refuse("0x10", 1, "", "white space");
    refuse("1_000", 1, "", "white space");
    refuse("1.5.5", 3, "", "white space");
    check("[0,-1,1,10,-120,0.5,-0.25,1E2,1e-2,100e-2,0.1e1]",
          "[0,-1,1,10,-120,0.5,-0.25,100,0.01,1,1]");
}

static void test_L37_invalid_utf8(void **state)
{
    (void)state;
    refuse("[\"\xFF\"]", 2, "[0]", "UTF-8");
    refuse("\"\xED\xA0\x80\"", 1, "", "UTF-8");
    refuse("\"ab\xED\xBF\xBF\"", 3, "", "UTF-8");
    refuse("\"\xC0\x80\"", 1, "", "UTF-8");
    refuse("\"\xC1\xBF\"", 1, "", "UTF-8");
    refuse("\"\xE0\x9F\xBF\"", 1, "", "UTF-8");
    refuse("\"\xF0\x8F\xBF\xBF\"", 1, "", "UTF-8");
    refuse("\"\xF4\x90\x80\x80\"", 1, "", "UTF-8");
    refuse("\"\xF5\x80\x80\x80\"", 1, "", "UTF-8");
    refuse("\"\x80\"", 1, "", "UTF-8");
    refuse("\"\xE2\x82\"", 1, "", "UTF-8");
    refuse("\"\xE2(\xA1\"", 1, "", "UTF-8");
    refuse("\"\xF0\x9F\x98\"", 1, "", "UTF-8");
    refuse("\"\xC3\"", 1, "", "UTF-8");
    refuse("{\"ok\":{\"caf\xC3\":1}}", 11, "ok", "UTF-8");
    /* Cut by the end of the text. */
    refuse("\"\xC3", 2, "", "ends inside");
    refuse("\"\xE2\x82", 3, "", "ends inside");
    refuse("\"\xE0", 2, "", "ends inside");
    refuse("\"\xED\x9F", 3, "", "ends inside");
    refuse("\"\xF0", 2, "", "ends inside");
    refuse("\"\xF0\x9F\x98", 4, "", "ends inside");
    refuse("\"\xF4\x8F\xBF", 4, "", "ends inside");
    refuse("\"\xED\xA0", 1, "", "UTF-8");
    refuse("\"\xF4\x90", 1, "", "UTF-8");
    refuse("\"\xFF", 1, "", "UTF-8");
    /* In the midst of 16-byte blocks, and as the last of one. */
    refuse("\"0123456789abcdef0123456789\xFF"
           "abcdef\"",
           27, "", "UTF-8");
    same("\"\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4"
         "\x8F\xBF\xBF\"");
    same("\"0123456789abcde\xC3\xA9 0123456789abcd\xE2\x82\xAC\"");
}

static void test_L38_big_integers(void **state)
{
    (void)state;
    /* 1491926160718000000 is the spelling of its double and passes; the other two would be rounded.
     */
    same("{\"ns\":1491926160718000000}");
    refuse("{\"ns\":1491926160718000000,\"u\":18446744073709551617}", 30, "u", "integer");
    refuse("{\"ns\":1491926160718000000,\"i\":9007199254740993}", 30, "i", "integer");
    refuse("{\"ns\":1491926160718000128}", 6, "ns", "integer");
}

static void test_L40_nul(void **state)
{
    (void)state;
    same("{\"a\\u0000b\":1,\"a\\u0000c\":2}");
    check("{\"a\\u0000c\":2,\"a\\u0000b\":1,\"a\":0}", "{\"a\":0,\"a\\u0000b\":1,\"a\\u0000c\":2}");
    same("\"val\\u0000ue\"");
    refuse_slice(slice_of("{\"a\":1}\0{\"evil\":2}", 18), 7, "", "NUL byte follows");
    refuse_slice(slice_of("\"a\0b\"", 5), 2, "", "NUL byte in a string");
    refuse_slice(slice_of("[\0]", 3), 1, "[0]", "NUL byte is not JSON");
    refuse_slice(slice_of("1\0", 2), 1, "", "NUL byte follows");
    refuse("{\"foo\\u0000a\":1,\"foo\\u0000a\":2}", 16, "[\"foo\\u0000a\"]", "twice");
}

static void test_L41_byte_order_mark(void **state)
{
    (void)state;
    refuse("\xEF\xBB\xBF"
           "0",
           0, "", "byte order mark");
    refuse("\xEF\xBB\xBF{}", 0, "", "byte order mark");
    refuse("\xEF\xBB\xBF", 0, "", "byte order mark");
    refuse_slice(slice_of("\xFF\xFE{\0}\0", 6), 0, "", "UTF-16");
    refuse_slice(slice_of("\xFE\xFF\0{\0}", 6), 0, "", "UTF-16");
    refuse("[1]\n\xEF\xBB\xBF[2]", 4, "", "white space");
    refuse(" \xEF\xBB\xBF[2]", 1, "", "value is expected");
    same("\"\xEF\xBB\xBF\"");
}

static void test_L56_duplicate_names(void **state)
{
    (void)state;
    refuse("{\"id\":\"a\",\"id\":\"b\"}", 10, "id", "twice");
    refuse("{\"x\":{\"k\":1,\"k\":2}}", 12, "x.k", "twice");
    refuse("{\"a\":1,\"\\u0061\":2}", 7, "a", "twice");
    refuse("{\"b\":0,\"a\":1,\"c\":3,\"\\u0061\":2}", 19, "a", "twice");
    refuse("{\"\":1,\"\":2}", 7 - 1, "[\"\"]", "twice");
    refuse("[0,{\"x\":[{\"k k\":1,\"j\":0,\"k k\":2}]}]", 24, "[1].x[0][\"k k\"]", "twice");
    refuse("{\"\\n\":1,\"\\u000a\":2}", 8, "[\"\\n\"]", "twice");
    refuse("{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}", 18, "[\"\xF0\x9F\x98\x80\"]", "twice");
    refuse("{\"a\\/b\":1,\"a/b\":2}", 10, "[\"a/b\"]", "twice");
    /* The same name in different objects is fine. */
    same("{\"a\":{\"a\":{\"a\":[{\"a\":1},{\"a\":1}]}}}");
}

/* Names in descending, ascending and shuffled order; one of them twice, 10,000 apart. */
static void many_names(unsigned step, bool twice)
{
    enum { COUNT = 20011 }; /* a prime, so that any step visits every name */
    struct buf in = {0};
    struct buf want = {0};
    struct buf out = {0};
    size_t second = 0;
    buf_put_char(&in, '{');
    buf_put_char(&want, '{');
    for (unsigned i = 0, at = 0; i < COUNT; i++, at = (at + step) % COUNT) {
        buf_printf(&in, "%s\"name-%05u\":%u", i == 0 ? "" : ",", at, at % 7);
        buf_printf(&want, "%s\"name-%05u\":%u", i == 0 ? "" : ",", i, i % 7);
        if (i == 10000 && twice) {
            second = in.len + 1;
            buf_put_cstr(&in, ",\"name-00000\":null");
        }
    }
    buf_put_char(&in, '}');
    buf_put_char(&want, '}');
    if (twice) {
        refuse_slice(buf_slice(&in), second, "name-00000", "twice");
    } else {
        assert_int_equal(canonicalize(buf_slice(&in), &out, NULL), 0);
        assert_true(slice_eq(buf_slice(&out), buf_slice(&want)));
    }
    buf_free(&in);
    buf_free(&want);
    buf_free(&out);
}

/* Twice within what is sorted by insertion, in objects that are merged afterwards. */
static void test_L56_neighbours(void **state)
{
    (void)state;
    for (unsigned count = 2; count < 70; count++) {
        for (unsigned second = 1; second < count; second++) {
            struct buf in = {0};
            size_t offset = 0;
            buf_put_char(&in, '{');
            for (unsigned i = 0; i < count; i++) {
                if (i == second) {
                    offset = in.len + (i != 0);
                }
                unsigned name = i == second ? 100 - second + 1 : 100 - i;
                buf_printf(&in, "%s\"%u\":0", i == 0 ? "" : ",", name);
            }
            buf_put_char(&in, '}');
            char path[16];
            snprintf(path, sizeof path, "[\"%u\"]", 100 - second + 1);
            refuse_slice(buf_slice(&in), offset, path, "twice");
            buf_free(&in);
        }
    }
}

static void test_L56_many_names(void **state)
{
    (void)state;
    static const unsigned steps[] = {1, 20010, 7919, 2, 10007};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        many_names(steps[i], false);
        many_names(steps[i], true);
    }
}

static void test_paths(void **state)
{
    (void)state;
    refuse("{\"v\":1,\"events\":[{},{},{\"payload\":{\"name\":nil}}]}", 43,
           "events[2].payload.name", "misspelled");
    refuse("{\"a b\":{\"9\":{\"x-1\":[[[!]]]}}}", 22, "[\"a b\"][\"9\"].x-1[0][0][0]", "value");
    refuse("{\"a\":1,\"b\":{\"c\":1 x", 18, "b", "comma");
    refuse("{\"a\":{\"b\\q\":1}}", 9, "a", "unknown escape");
    /* A long path is cut, never inside of a character. */
    for (int shift = 0; shift < 8; shift++) {
        struct buf in = {0};
        buf_printf(&in, "{\"%.*s\":", shift, "aaaaaaaa");
        for (int i = 0; i < 40; i++) {
            buf_put_cstr(&in, "{\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\":");
        }
        struct canon_error e;
        struct buf out = {0};
        assert_int_equal(canonicalize(buf_slice(&in), &out, &e), ERR_JSON);
        size_t len = strlen(e.path);
        assert_in_range(len, CANON_PATH_MAX - 6, CANON_PATH_MAX - 1);
        assert_string_equal(e.path + len - 3, "...");
        assert_true(utf8_valid(slice_cstr(e.path), NULL));
        buf_free(&in);
        buf_free(&out);
    }
}

static int nested(size_t depth, bool objects, size_t cut, struct buf *out, struct canon_error *e)
{
    struct buf in = {0};
    for (size_t i = 0; i < depth; i++) {
        buf_put_cstr(&in, objects ? "{\"b\":" : "[");
    }
    buf_put_char(&in, '1');
    for (size_t i = cut; i < depth; i++) {
        buf_put_cstr(&in, objects ? ",\"a\":0}" : "]");
    }
    int r = canonicalize(buf_slice(&in), out, e);
    buf_free(&in);
    return r;
}

static void test_depth(void **state)
{
    (void)state;
    struct buf out = {0};
    struct canon_error e;
    for (int objects = 0; objects < 2; objects++) {
        size_t width = objects == 0 ? 1 : 5;
        assert_int_equal(nested(CANON_DEPTH_MAX, objects != 0, 0, &out, &e), 0);
        buf_clear(&out);
        assert_int_equal(nested(CANON_DEPTH_MAX + 1, objects != 0, 0, &out, &e), ERR_JSON_DEPTH);
        assert_int_equal(e.offset, CANON_DEPTH_MAX * width);
        assert_int_equal(nested(100000, objects != 0, 0, &out, &e), ERR_JSON_DEPTH);
        assert_int_equal(nested(CANON_DEPTH_MAX, objects != 0, 1, &out, &e), ERR_JSON);
        assert_int_equal(out.len, 0);
    }
    buf_free(&out);
}

static void test_deepest(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t deepest;
    } cases[] = {{"1", 0},      {"[]", 1},      {"{\"a\":[[1],[[2]],{}]}", 4},
                 {"[1,{}]", 2}, {"\"[[[\"", 0}, {"[[", 2}};
    struct canon *c = canon_new();
    struct buf out = {0};
    assert_non_null(c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&out);
        int r = canon_json(c, slice_cstr(cases[i].text), &out, NULL);
        assert_true(r == 0 || r == ERR_JSON);
        assert_int_equal(canon_deepest(c), cases[i].deepest);
    }
    buf_free(&out);
    canon_free(c);
}

/* The output may be longer than the input, and a limit is about the output only. */
static void test_growth_and_limit(void **state)
{
    (void)state;
    struct buf in = {0};
    struct buf want = {0};
    buf_put_char(&in, '[');
    buf_put_char(&want, '[');
    for (int i = 0; i < 1000; i++) {
        buf_put_cstr(&in, i == 0 ? "1e20" : ",1e20");
        buf_put_cstr(&want, i == 0 ? "100000000000000000000" : ",100000000000000000000");
    }
    buf_put_cstr(&in, "   \n   ]");
    buf_put_char(&want, ']');
    check_slice(buf_slice(&in), buf_slice(&want));
    struct canon_error e;
    for (size_t spare = 0; spare < 200; spare++) {
        struct buf out;
        buf_init(&out, want.len + 3 - 1 + spare);
        buf_put_cstr(&out, "abc");
        int r = canonicalize(buf_slice(&in), &out, &e);
        assert_int_equal(r, spare == 0 ? ERR_NO_MEMORY : 0);
        assert_int_equal(out.len, spare == 0 ? 3 : want.len + 3);
        assert_memory_equal(out.ptr, "abc", 3);
        assert_false(out.failed);
        if (spare != 0) {
            assert_memory_equal(out.ptr + 3, want.ptr, want.len);
        }
        buf_free(&out);
    }
    struct buf out;
    buf_init(&out, 100);
    canon_free(canon); /* and its larger memory, so that it has to grow again */
    canon = canon_new();
    assert_int_equal(canonicalize(buf_slice(&in), &out, &e), ERR_NO_MEMORY);
    assert_non_null(strstr(e.text, "too large"));
    /* White space beyond the limit does not count. */
    buf_clear(&in);
    for (int i = 0; i < 500000; i++) {
        buf_put_cstr(&in, "  \n");
    }
    buf_put_cstr(&in, "{\"b\":1,\"a\":2}");
    assert_int_equal(canonicalize(buf_slice(&in), &out, &e), 0);
    assert_true(slice_eq(buf_slice(&out), SLICE("{\"a\":2,\"b\":1}")));
    /* A buffer that had failed before stays so and takes nothing. */
    out.failed = true;
    assert_int_equal(canonicalize(SLICE("1"), &out, &e), ERR_NO_MEMORY);
    assert_true(out.failed);
    assert_int_equal(out.len, 13);
    buf_free(&out);
    buf_free(&in);
    buf_free(&want);
}

/* The end of the output's memory comes at every place near the end of the document. */
static void test_growth_at_the_end(void **state)
{
    (void)state;
    struct buf in = {0};
    buf_put_cstr(&in, "[1e20");
    for (unsigned count = 1; count < 400; count++) {
        struct buf out = {0};
        struct canon_error e;
        buf_put_cstr(&in, "]");
        assert_int_equal(canonicalize(buf_slice(&in), &out, NULL), 0);
        assert_int_equal(out.len, 22 * count + 1);
        /* A fault after growths leaves no trace either. */
        in.ptr[in.len - 1] = 'x';
        out.len = 7;
        assert_int_equal(canonicalize(buf_slice(&in), &out, &e), ERR_JSON);
        assert_int_equal(out.len, 7);
        buf_free(&out);
        buf_put_char(&out, 'a');
        assert_int_equal(canonicalize(buf_slice(&in), &out, &e), ERR_JSON);
        assert_int_equal(out.len, 1);
        buf_free(&out);
        in.len--;
        buf_put_cstr(&in, ",1e20");
    }
    buf_free(&in);
}

/* Every proper prefix of a container is refused, with a position inside or at its end. */
static void test_truncation(void **state)
{
    (void)state;
    static const char doc[] =
        "{\"v\":1,\"caf\xC3\xA9\":[true,false,null,-12.50e+3,1234567890123456789012e-3,[],{}],"
        "\"text\":\"a long run of plain bytes \\u00e9\\ud83d\\ude00\\n\xF0\x9F\x98\x80\xE2\x82\xAC "
        "end\","
        "\"a\":{\"z\":0.1,\"y\":{\"x\":[[\"\"]]}}}";
    struct slice whole = slice_of(doc, sizeof doc - 1);
    struct buf out = {0};
    struct canon_error e;
    for (size_t n = 0; n < whole.len; n++) {
        int r = canonicalize(slice_of(doc, n), &out, &e);
        assert_int_equal(r, ERR_JSON);
        assert_in_range(e.offset, 0, n);
        assert_int_equal(out.len, 0);
    }
    assert_int_equal(canonicalize(whole, &out, &e), 0);
    buf_free(&out);
}

/* Known answers of the history contract, section 4. */
static void test_content_hash(void **state)
{
    (void)state;
    struct buf out = {0};
    uint8_t hash[SHA256_LEN];
    char hex[SHA256_HEX_LEN];
    struct slice in = SLICE("{\"id\":\"cus_1\",\"email\":\"kim@example.com\",\"balance\":12.50}");
    assert_int_equal(canonicalize(in, &out, NULL), 0);
    assert_true(
        slice_eq(buf_slice(&out),
                 SLICE("{\"balance\":12.5,\"email\":\"kim@example.com\",\"id\":\"cus_1\"}")));
    sha256_once(buf_slice(&out), hash);
    hex_encode(hex, hash, sizeof hash);
    assert_memory_equal(hex, "1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6",
                        sizeof hex);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_rfc8785_example),
        cmocka_unit_test(test_rfc8785_sorting),
        cmocka_unit_test(test_name_order),
        cmocka_unit_test(test_members_move_whole),
        cmocka_unit_test(test_syntax_refused),
        cmocka_unit_test(test_surrogates_refused),
        cmocka_unit_test(test_L34_escapes),
        cmocka_unit_test(test_L35_numbers),
        cmocka_unit_test(test_integer_rule),
        cmocka_unit_test(test_number_range),
        cmocka_unit_test(test_number_syntax),
        cmocka_unit_test(test_L37_invalid_utf8),
        cmocka_unit_test(test_L38_big_integers),
        cmocka_unit_test(test_L40_nul),
        cmocka_unit_test(test_L41_byte_order_mark),
        cmocka_unit_test(test_L56_duplicate_names),
        cmocka_unit_test(test_L56_neighbours),
        cmocka_unit_test(test_L56_many_names),
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_deepest),
        cmocka_unit_test(test_growth_and_limit),
        cmocka_unit_test(test_growth_at_the_end),
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_content_hash),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
