/* Numbers both ways: ECMAScript text of doubles, and literals to the nearest double. The oracles
 * are vectors printed by V8, the C library's exact printf and strtod, and the rules themselves. */
#include <float.h>
#include <locale.h>
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

#include "tests/unit/json/powers_of_two.h"
#include "json/canon.h"
#include "json/number.h"

static uint64_t seed;
static uint64_t random_state;

/* splitmix64 */
static uint64_t next_random(void)
{
    random_state += 0x9E3779B97F4A7C15u;
    uint64_t z = random_state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static double from_bits(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint64_t to_bits(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* Parses from memory of exactly the literal's size. */
static double parse(const char *text)
{
    size_t len = strlen(text);
    char *copy = malloc(len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    double v = canon_parse_number(slice_of(copy, len));
    free(copy);
    return v;
}

static void check_text(double v, const char *want)
{
    char out[CANON_NUMBER_MAX];
    size_t len = canon_number(v, out);
    assert_in_range(len, 1, 25);
    if (len != strlen(want) || memcmp(out, want, len) != 0) {
        fail_msg("%a: got %.*s, want %s (SEED=%llu)", v, (int)len, out, want,
                 (unsigned long long)seed);
    }
}

static void check_parse(const char *text, double want)
{
    double got = parse(text);
    if (to_bits(got) != to_bits(want)) {
        fail_msg("%.60s: got %a, want %a (SEED=%llu)", text, got, want, (unsigned long long)seed);
    }
}

static void check_both(double v, const char *text)
{
    check_text(v, text);
    check_parse(text, v);
}

static void test_powers_of_two(void **state)
{
    (void)state;
    for (int e = POWER_OF_TWO_MIN; e <= POWER_OF_TWO_MAX; e++) {
        const char *text = powers_of_two[e - POWER_OF_TWO_MIN];
        check_both(ldexp(1.0, e), text);
        char negative[40];
        snprintf(negative, sizeof negative, "-%s", text);
        check_both(-ldexp(1.0, e), negative);
    }
    check_text(ldexp(1.0, -44), "5.684341886080802e-14");
}

/* RFC 8785, appendix B. */
static void test_rfc8785_samples(void **state)
{
    (void)state;
    static const struct {
        uint64_t bits;
        const char *text;
    } samples[] = {
        {0x0000000000000000, "0"},
        {0x0000000000000001, "5e-324"},
        {0x8000000000000001, "-5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"},
        {0xffefffffffffffff, "-1.7976931348623157e+308"},
        {0x4340000000000000, "9007199254740992"},
        {0xc340000000000000, "-9007199254740992"},
        {0x4430000000000000, "295147905179352830000"},
        {0x44b52d02c7e14af5, "9.999999999999997e+22"},
        {0x44b52d02c7e14af6, "1e+23"},
        {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
        {0x444b1ae4d6e2ef4e, "999999999999999700000"},
        {0x444b1ae4d6e2ef4f, "999999999999999900000"},
        {0x444b1ae4d6e2ef50, "1e+21"},
        {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
        {0x3eb0c6f7a0b5ed8d, "0.000001"},
        {0x41b3de4355555553, "333333333.3333332"},
        {0x41b3de4355555554, "333333333.33333325"},
        {0x41b3de4355555555, "333333333.3333333"},
        {0x41b3de4355555556, "333333333.3333334"},
        {0x41b3de4355555557, "333333333.33333343"},
        {0xbecbf647612f3696, "-0.0000033333333333333333"},
        {0x43143ff3c1cb0959, "1424953923781206.2"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        check_both(from_bits(samples[i].bits), samples[i].text);
    }
    check_text(from_bits(0x8000000000000000), "0");
}

static void test_forms(void **state)
{
    (void)state;
    check_both(1, "1");
    check_both(-1, "-1");
    check_both(10, "10");
    check_both(12345, "12345");
    check_both(0.1, "0.1");
    check_both(-0.5, "-0.5");
    check_both(1.5, "1.5");
    check_both(123.456, "123.456");
    check_both(1e20, "100000000000000000000");
    check_both(1e21, "1e+21");
    check_both(-1.5e21, "-1.5e+21");
    check_both(1.2e22, "1.2e+22");
    check_both(1e-6, "0.000001");
    check_both(1.5e-6, "0.0000015");
    check_both(1e-7, "1e-7");
    check_both(1.25e-7, "1.25e-7");
    check_both(-1.2345678901234568e-300, "-1.2345678901234568e-300");
    check_both(1e100, "1e+100");
    check_both(2.2250738585072014e-308, "2.2250738585072014e-308");
    check_both(2.225073858507201e-308, "2.225073858507201e-308");
    check_both(999999999999999, "999999999999999");
    check_both(1000000000000000, "1000000000000000");
    check_both(123456789012345680, "123456789012345680");
    check_both(9007199254740993e3, "9007199254740993000");
    check_both(4.35, "4.35");
    check_both(0.000035689, "0.000035689");
}

/* Powers of ten and their neighbours against the oracle below. */
static void check_shortest(double v);

static void test_powers_of_ten(void **state)
{
    (void)state;
    for (int e = -323; e <= 308; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        uint64_t bits = to_bits(strtod(text, NULL));
        assert_true(to_bits(parse(text)) == bits);
        for (uint64_t near = bits < 3 ? 1 : bits - 2; near <= bits + 2; near++) {
            check_shortest(from_bits(near));
        }
    }
}

/* digits * 10^exponent reads back as v. */
static bool names(uint64_t digits, int exponent, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%llue%d", (unsigned long long)digits, exponent);
    return strtod(text, NULL) == v;
}

/* ECMAScript's rule by search: the smallest n for which some n digits name v, and the nearest of
 * those. printf gives the nearest n digits of all; when they do not name v, only a neighbour can.
 */
static void oracle(double v, uint64_t *digits, int *exponent)
{
    for (int n = 1; n <= 17; n++) {
        char text[48];
        snprintf(text, sizeof text, "%.*e", n - 1, v);
        uint64_t d = 0;
        const char *p = text;
        for (; *p != 'e'; p++) {
            d = *p == '.' ? d : d * 10 + (uint64_t)(*p - '0');
        }
        int e = atoi(p + 1) - (n - 1);
        static const int offsets[] = {0, 1, -1};
        for (size_t i = 0; i < 3; i++) {
            if (names(d + (uint64_t)offsets[i], e, v)) {
                *digits = d + (uint64_t)offsets[i];
                *exponent = e;
                return;
            }
        }
    }
    fail_msg("no 17 digits name %a", v);
}

static void check_shortest(double v)
{
    uint64_t digits = 0;
    int exponent = 0;
    oracle(fabs(v), &digits, &exponent);
    while (digits % 10 == 0) {
        digits /= 10;
        exponent++;
    }
    char want[64];
    unsigned n = number_put_decimal(want, v < 0, digits, exponent);
    want[n] = '\0';
    check_both(v, want);
}

static void test_random_doubles(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = next_random();
        switch (i % 5) {
        case 0: /* subnormal */
            bits &= 0x800FFFFFFFFFFFFFu >> next_random() % 40;
            break;
        case 1: /* few bits set */
            bits &= next_random() & next_random();
            break;
        case 2: /* near 2^53 and 10^21 */
            bits = (bits & 0x800FFFFFFFFFFFFFu) | (uint64_t)(1023 + 50 + next_random() % 22) << 52;
            break;
        default:
            break;
        }
        double v = from_bits(bits);
        if (isfinite(v) && v != 0) {
            check_shortest(v);
        }
    }
}

/* Short decimals must come back as they were written. */
static void test_random_decimals(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint64_t digits = next_random() >> 4;
        unsigned count = 1 + (unsigned)(next_random() % 15);
        uint64_t bound = 1;
        while (count-- != 0) {
            bound *= 10;
        }
        digits %= bound;
        digits += digits % 10 == 0;
        int exponent = (int)(next_random() % 60) - 40;
        char want[64];
        unsigned n = number_put_decimal(want, (digits & 2) != 0, digits, exponent);
        want[n] = '\0';
        check_text(parse(want), want);
    }
}

static void test_random_literals(void **state)
{
    (void)state;
    for (int i = 0; i < 200000; i++) {
        char text[96];
        size_t len = 0;
        size_t digits = 1 + (size_t)(next_random() % (i % 4 == 0 ? 50 : 20));
        size_t point = (size_t)(next_random() % (2 * digits));
        for (size_t d = 0; d < digits; d++) {
            uint64_t digit = d == 0 ? 1 + next_random() % 9 : next_random() % 10;
            text[len++] = (char)('0' + digit);
            if (d == point && d + 1 < digits) {
                text[len++] = '.';
            }
        }
        int exponent = (int)(next_random() % 680) - 350;
        exponent = i % 3 == 0 ? exponent / 20 : exponent;
        snprintf(text + len, sizeof text - len, i % 2 == 0 ? "e%d" : "E%+d", exponent);
        check_parse(text, strtod(text, NULL));
    }
}

/* The exact decimal text of the point half-way between v and the next double; a hair less; a hair
 * more. */
static void check_half_way(uint64_t bits)
{
    double low = from_bits(bits);
    double high = from_bits(bits + 1);
    double even = (bits & 1) == 0 ? low : high;
    char text[1600];
    long double middle = ((long double)low + (long double)high) / 2; /* 64 bits hold it */
    snprintf(text, sizeof text, "%.1200Le", middle);
    check_parse(text, even);
    char *exponent = strchr(text, 'e');
    assert_non_null(exponent);
    char tail[16];
    snprintf(tail, sizeof tail, "%s", exponent);
    snprintf(exponent, 20, "1%s", tail);
    check_parse(text, high);
    char *last = exponent - 1;
    while (*last == '0') {
        *last-- = '9';
    }
    last -= *last == '.';
    (*last)--;
    check_parse(text, low);
}

static void test_half_way(void **state)
{
    (void)state;
    if (LDBL_MANT_DIG < 64) {
        skip();
    }
    check_half_way(0);
    check_half_way(1);
    check_half_way(0x000FFFFFFFFFFFFFu);
    check_half_way(0x0010000000000000u);
    check_half_way(0x433FFFFFFFFFFFFFu);
    check_half_way(0x4340000000000000u);
    check_half_way(0x7FEFFFFFFFFFFFFEu);
    for (int i = 0; i < 3000; i++) {
        uint64_t bits = next_random() >> 1;
        if (bits < 0x7FE0000000000000u) {
            check_half_way(bits);
        }
    }
}

/* Thousands of digits: the last one decides, zeros in front and behind do not count, far exponents
 * cancel. */
static void test_long_literals(void **state)
{
    (void)state;
    enum { LONG = 20000 };
    char *text = malloc(2 * LONG + 64);
    assert_non_null(text);
    memcpy(text, "9007199254740993.", 17);
    memset(text + 17, '0', LONG);
    text[17 + LONG] = '\0';
    check_parse(text, 9007199254740992.0);
    text[16 + LONG] = '1';
    check_parse(text, 9007199254740994.0);

    memcpy(text, "0.", 2);
    memset(text + 2, '0', LONG);
    snprintf(text + 2 + LONG, 40, "125e%d", LONG + 3);
    check_parse(text, 125.0);

    snprintf(text + 2 + LONG, 40, "9007199254740993e%d", LONG + 16);
    check_parse(text, 9007199254740992.0);

    memset(text, '0', LONG);
    text[0] = '7';
    snprintf(text + LONG, 40, "e-%d", LONG);
    check_parse(text, 0.7);

    memset(text, '1', LONG);
    snprintf(text + LONG, 40, "e-%d", LONG);
    check_parse(text, 0.1111111111111111);
    snprintf(text + LONG, 40, ".5");
    assert_true(isinf(parse(text)));

    memset(text, '0', LONG);
    text[0] = '1';
    text[1] = 'e';
    text[LONG] = '\0'; /* 1e000...0 */
    check_parse(text, 1.0);
    memset(text + 2, '9', LONG - 2);
    assert_true(isinf(parse(text)));
    memcpy(text, "1e-", 3);
    check_parse(text, 0.0);
    free(text);
}

/* Literals of up to 19 digits that are powers of two, and their neighbours: where the product of
 * 128 bits is all zeros or all ones behind the leading bits. */
static void test_near_powers(void **state)
{
    (void)state;
    uint64_t power = 1;
    for (int n = 0; n <= 27; n++, power *= 5) {
        for (uint64_t digits = power - 1; digits <= power + 1; digits++) {
            char text[64];
            snprintf(text, sizeof text, "%llue-%d", (unsigned long long)digits, n);
            check_parse(text, strtod(text, NULL));
        }
    }
    for (int n = 0; n < 64; n++) {
        for (int near = -1; near <= 1; near++) {
            char text[64];
            uint64_t digits = (UINT64_C(1) << n) + (uint64_t)near;
            snprintf(text, sizeof text, "%llu.0", (unsigned long long)digits);
            check_parse(text, strtod(text, NULL));
            snprintf(text, sizeof text, "%llue0", (unsigned long long)digits);
            check_parse(text, strtod(text, NULL));
        }
    }
}

static void test_zeros(void **state)
{
    (void)state;
    check_parse("0", 0.0);
    check_parse("-0", -0.0);
    check_parse("0.000", 0.0);
    check_parse("-0.0e-400", -0.0);
    check_parse("0e999999999999999999999", 0.0);
    check_parse("-1e-999", -0.0);
}

/* A locale with a decimal comma changes nothing. */
static void test_locale(void **state)
{
    (void)state;
    static const char *const names_of[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool set = false;
    for (size_t i = 0; i < sizeof names_of / sizeof names_of[0] && !set; i++) {
        set = setlocale(LC_ALL, names_of[i]) != NULL;
    }
    print_message("decimal point here: '%s'\n", localeconv()->decimal_point);
    check_both(1234.5, "1234.5");
    check_parse("2.2250738585072011e-308", 0x0.fffffffffffffp-1022);
    check_parse("9007199254740993.0", 9007199254740992.0);
    setlocale(LC_ALL, "C");
}

static void test_scan(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t end;
        bool valid;
    } samples[] = {
        {"12]", 2, true},      {"1.5,", 3, true}, {"-1e5 ", 4, true}, {"", 0, false},
        {"-", 1, false},       {"01", 1, false},  {"1.", 2, false},   {"1.e", 2, false},
        {"1e", 2, false},      {"1e+", 3, false}, {"1e+x", 3, false}, {"x", 0, false},
        {"1.25e-3}", 7, true}, {"--1", 1, false}, {"1ee5", 2, false},
    };
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const char *text = samples[i].text;
        struct number_literal n = number_scan(text, text + strlen(text));
        assert_int_equal(n.valid, samples[i].valid);
        assert_int_equal(n.end - text, samples[i].end);
    }
}

int main(void)
{
    const char *given = getenv("SEED");
    seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    random_state = seed;
    printf("SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_powers_of_two),
        cmocka_unit_test(test_rfc8785_samples),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_powers_of_ten),
        cmocka_unit_test(test_random_doubles),
        cmocka_unit_test(test_random_decimals),
        cmocka_unit_test(test_random_literals),
        cmocka_unit_test(test_half_way),
        cmocka_unit_test(test_long_literals),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_near_powers),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
