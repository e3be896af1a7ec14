/* Random documents: however a value is spelled, its canonical form is the same, is a fixed point,
 * and holds the value.
 *
 * A value is a function of a 64-bit number (`what`); its spelling (order of members, white space,
 * escapes, forms of numbers) comes from a random stream. Two spellings of one value must meet in
 * one canonical text. */
#include <math.h>
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
#include "json/scan.h"

#define MEMBERS_MAX 40

static uint64_t seed;
static uint64_t spelling;

static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The n-th part of a value. */
static uint64_t part(uint64_t what, uint64_t n)
{
    return mix(what ^ mix(n));
}

static uint64_t spell(uint64_t choices)
{
    spelling = mix(spelling);
    return spelling % choices;
}

static void put_space(struct buf *b)
{
    while (spell(4) == 0) {
        buf_put_char(b, " \n\r\t"[spell(4)]);
    }
}

static uint32_t code_point(uint64_t what)
{
    static const uint32_t ranges[][2] = {
        {'a', 'z'},       {' ', '~'},          {0, 0x1F},  {0x7F, 0x7FF}, {0x800, 0xD7FF},
        {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}, {'"', '"'}, {'\\', '\\'},
    };
    const uint32_t *range = ranges[what % (sizeof ranges / sizeof ranges[0])];
    return range[0] + (uint32_t)((what >> 32) % (range[1] - range[0] + 1));
}

static void put_unit(struct buf *b, uint32_t unit)
{
    buf_printf(b, spell(2) == 0 ? "\\u%04x" : "\\u%04X", unit);
}

static void put_code_point(struct buf *b, uint32_t cp)
{
    static const char escapes[] = "\"\\/\b\f\n\r\t";
    const char *found = cp != 0 && cp < 0x80 ? strchr(escapes, (int)cp) : NULL;
    bool must = cp < 0x20 || cp == '"' || cp == '\\';
    if (found != NULL && spell(2) == 0) {
        buf_put_char(b, '\\');
        buf_put_char(b, "\"\\/bfnrt"[found - escapes]);
    } else if (must || spell(5) == 0) {
        if (cp >= 0x10000) {
            put_unit(b, 0xD800 + ((cp - 0x10000) >> 10));
            cp = 0xDC00 + (cp & 0x3FF);
        }
        put_unit(b, cp);
    } else {
        char utf8[4];
        buf_put(b, utf8, scan_put_utf8(utf8, cp));
    }
}

static void put_text(struct buf *b, uint64_t what, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        put_code_point(b, code_point(part(what, i)));
    }
}

static double number_of(uint64_t what)
{
    double v;
    uint64_t bits = part(what, 0);
    memcpy(&v, &bits, sizeof v);
    bool decimal = what % 3 == 0 || !isfinite(v);
    return decimal ? (double)(int64_t)(bits % 2000000 - 1000000) / 1000.0 : v;
}

static void put_number(struct buf *b, uint64_t what)
{
    double v = number_of(what);
    switch (spell(3)) {
    case 0: {
        char text[CANON_NUMBER_MAX];
        buf_put(b, text, canon_number(v, text));
        break;
    }
    case 1:
        buf_printf(b, "%.*e", 16 + (int)spell(30), v);
        break;
    default:
        buf_printf(b, "%.*E", 17 + (int)spell(800), v);
        break;
    }
}

static void put_value(struct buf *b, uint64_t what, unsigned depth);

static void put_object(struct buf *b, uint64_t what, unsigned depth)
{
    size_t count = part(what, 0) % (what % 8 == 0 ? MEMBERS_MAX : 6);
    size_t order[MEMBERS_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t j = spell(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    buf_put_char(b, '{');
    put_space(b);
    for (size_t i = 0; i < count; i++) {
        size_t m = order[i];
        if (i != 0) {
            buf_put_char(b, ',');
            put_space(b);
        }
        /* Names differ in one letter, in front of which many have much in common. */
        uint64_t common = part(what, m % 3);
        buf_put_char(b, '"');
        put_text(b, common, common % 20);
        put_code_point(b, 0x4E00 + (uint32_t)m * 0x1337 % 0x5000);
        put_text(b, part(what, m), m % 3);
        buf_put_char(b, '"');
        put_space(b);
        buf_put_char(b, ':');
        put_space(b);
        put_value(b, part(what, 100 + m), depth + 1);
        put_space(b);
    }
    buf_put_char(b, '}');
}

static void put_value(struct buf *b, uint64_t what, unsigned depth)
{
    static const char *const words[] = {"null", "true", "false", "0", "\"\"", "{}", "[]"};
    size_t count;
    switch (what % (depth < 5 ? 8 : 5)) {
    case 0:
        buf_put_cstr(b, words[part(what, 0) % 7]);
        break;
    case 1:
    case 2:
        put_number(b, what);
        break;
    case 3:
    case 4:
        buf_put_char(b, '"');
        put_text(b, what, part(what, 0) % 40);
        buf_put_char(b, '"');
        break;
    case 5:
        count = part(what, 0) % 6;
        buf_put_char(b, '[');
        put_space(b);
        for (size_t i = 0; i < count; i++) {
            buf_put_cstr(b, i == 0 ? "" : ",");
            put_space(b);
            put_value(b, part(what, 100 + i), depth + 1);
            put_space(b);
        }
        buf_put_char(b, ']');
        break;
    default:
        put_object(b, what, depth);
        break;
    }
}

static void canonical(struct canon *c, uint64_t what, struct buf *out)
{
    struct buf text = {0};
    put_space(&text);
    put_value(&text, what, 0);
    put_space(&text);
    char *exact = malloc(text.len);
    assert_non_null(exact);
    memcpy(exact, text.ptr, text.len);
    struct canon_error e;
    if (canon_json(c, slice_of(exact, text.len), out, &e) != 0) {
        fail_msg("SEED=%llu: %.*s: %llu %s %s", (unsigned long long)seed, (int)text.len, text.ptr,
                 (unsigned long long)e.offset, e.path, e.text);
    }
    free(exact);
    buf_free(&text);
}

static void test_spellings_meet(void **state)
{
    (void)state;
    struct canon *c = canon_new();
    struct buf first = {0};
    struct buf second = {0};
    size_t bytes = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t what = mix(seed ^ mix(i));
        buf_clear(&first);
        buf_clear(&second);
        canonical(c, what, &first);
        canonical(c, what, &second);
        if (!slice_eq(buf_slice(&first), buf_slice(&second))) {
            fail_msg("SEED=%llu document %llu:\n%.*s\n%.*s", (unsigned long long)seed,
                     (unsigned long long)i, (int)first.len, first.ptr, (int)second.len, second.ptr);
        }
        bytes += first.len;
        buf_clear(&second);
        assert_int_equal(canon_json(c, buf_slice(&first), &second, NULL), 0);
        assert_true(slice_eq(buf_slice(&first), buf_slice(&second)));
    }
    assert_true(bytes > 1000000);
    buf_free(&first);
    buf_free(&second);
    canon_free(c);
}

/* The canonical text of a number and of a string, read back, is the value that was written. */
static void test_values_survive(void **state)
{
    (void)state;
    struct canon *c = canon_new();
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t what = mix(seed + i);
        struct buf text = {0};
        struct buf out = {0};
        buf_put_char(&text, '"');
        put_text(&text, what, what % 60);
        buf_put_char(&text, '"');
        assert_int_equal(canon_json(c, buf_slice(&text), &out, NULL), 0);
        struct slice inner;
        assert_true(json_string_raw(buf_slice(&out), &inner));
        struct buf plain = {0};
        for (size_t j = 0; j < what % 60; j++) {
            char utf8[4];
            buf_put(&plain, utf8, scan_put_utf8(utf8, code_point(part(what, j))));
        }
        assert_true(json_string_is(inner, buf_slice(&plain)));
        buf_clear(&text);
        buf_clear(&out);
        put_number(&text, what);
        assert_int_equal(canon_json(c, buf_slice(&text), &out, NULL), 0);
        assert_true(canon_parse_number(buf_slice(&out)) == number_of(what));
        buf_free(&plain);
        buf_free(&text);
        buf_free(&out);
    }
    canon_free(c);
}

/* The block-wise searches against byte loops, at every length and distance from the end. */
static void test_block_scans(void **state)
{
    (void)state;
    for (size_t len = 0; len < 70; len++) {
        char *text = malloc(len == 0 ? 1 : len);
        assert_non_null(text);
        for (unsigned round = 0; round < 200; round++) {
            for (size_t i = 0; i < len; i++) {
                text[i] = spell(30) == 0 ? "\"\\\x1f\x00\x80\xFF\x7f \n"[spell(9)]
                                         : (char)('a' + spell(26));
            }
            size_t special = 0;
            while (special < len && !scan_is_special((unsigned char)text[special])) {
                special++;
            }
            size_t quote = 0;
            while (quote < len && text[quote] != '"' && text[quote] != '\\') {
                quote++;
            }
            assert_int_equal(scan_plain(text, text + len) - text, special);
            assert_int_equal(scan_quote(text, text + len) - text, quote);
        }
        free(text);
    }
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    spelling = seed;
    printf("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings_meet),
        cmocka_unit_test(test_values_survive),
        cmocka_unit_test(test_block_scans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
