/* number: JSON number literals as decimals, and the table of powers of ten; internal to json/. */
#ifndef JSON_NUMBER_H
#define JSON_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* A literal taken apart: value = (-1)^negative * digits * 10^exponent, where `digits` holds the
 * first 19 significant digits at most. When `more` is set, non-zero digits were dropped behind
 * them. */
struct number_literal {
    const char *end;  /* behind the literal; when it is no number, the byte that does not fit */
    uint64_t digits;  /* without trailing zeros; 0 for zero */
    int64_t exponent; /* saturates far outside of what a double can hold */
    bool valid;
    bool negative;
    bool integer; /* neither fraction nor exponent */
    bool more;
};

/* Takes the longest number literal at `at` apart. Without one, valid is false. */
struct number_literal number_scan(const char *at, const char *end);

/* The double nearest to a valid literal of which `at` is the beginning; maybe infinite. */
double number_value(const char *at, const struct number_literal *n);

/* A decimal with at most this many significant digits, far from the ends of the range, names its
 * double: no two of them share one, so its own digits are the shortest that round-trip (DBL_DIG).
 */
#define NUMBER_EXACT_DIGITS   1000000000000000u /* 10^15, the first with 16 digits */
#define NUMBER_EXACT_EXPONENT 290

/* Writes digits * 10^exponent as ECMAScript does; digits is not 0, has no trailing zero and is
 * below 10^17. Returns the length, at most 25. */
unsigned number_put_decimal(char *out, bool negative, uint64_t digits, int exponent);

/* 10^k = (high:low) * 2^(floor(log2(10^k)) - 127), rounded up where it is not exact (k < 0 or k >
 * 55), for k = NUMBER_POWER_MIN to NUMBER_POWER_MAX. */
#define NUMBER_POWER_MIN (-342)
#define NUMBER_POWER_MAX 324
struct number_power {
    uint64_t high, low;
};
extern const struct number_power number_powers[NUMBER_POWER_MAX - NUMBER_POWER_MIN + 1];

/* floor(log2(10^k)) for |k| <= 1233. */
static inline int number_log2_pow10(int k)
{
    return (k * 1741647) >> 19;
}

#endif
