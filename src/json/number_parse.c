/* Number literals to doubles, correctly rounded, whatever the locale.
 *
 * Three ways, the first that is certain wins:
 *   1. digits below 2^53 and a power of ten that a double holds exactly: one multiplication or
 * division (Clinger).
 *   2. digits times the 128-bit power of ten of the table: the product is known to within two units
 * of its 128th bit, so unless the rounding could turn inside that gap, its upper bits are the
 * answer (Eisel and Lemire).
 *   3. strtod on a bounded copy. At most 768 significant digits decide a double; the copy holds the
 * first 800 and one more that stands for the rest. It is spelled `DIGITSeEXPONENT`, without a
 * decimal point, so no locale can change its meaning, and it is bounded however long the literal
 * is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/number.h"
#include "json/scan.h"

#define DIGITS_KEPT     19 /* below 2^64 whatever they are */
#define COPY_DIGITS_MAX 800
#define EXPONENT_FAR    1000000 /* further out than any sum of it and a digit count matters */

/* What scanning the digits of a literal has found so far. */
struct digits {
    uint64_t value;  /* the first DIGITS_KEPT significant ones */
    unsigned kept;   /* how many are in value */
    int64_t dropped; /* how many digits came after those */
    bool more;       /* one of them was not zero */
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* True when all eight bytes are digits; *value is the number they spell. Neighbours are joined in
 * pairs three times, all pairs at once. */
static bool eight_digits(const char *at, uint64_t *value)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    x ^= 0x3030303030303030u;
    if (((x | (x + 0x0606060606060606u)) & 0xF0F0F0F0F0F0F0F0u) != 0) {
        return false;
    }
    x = x * 10 + (x >> 8);
    uint64_t even = (x & 0x000000FF000000FFu) * (100 + (UINT64_C(1000000) << 32));
    uint64_t odd = (x >> 16 & 0x000000FF000000FFu) * (1 + (UINT64_C(10000) << 32));
    *value = (even + odd) >> 32;
    return true;
}
#endif

static const char *scan_digits(const char *at, const char *end, struct digits *d)
{
    while (at < end && scan_is_digit(*at)) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        uint64_t eight;
        if (d->value != 0 && d->kept + 8 <= DIGITS_KEPT && end - at >= 8 &&
            eight_digits(at, &eight)) {
            d->value = d->value * 100000000 + eight;
            d->kept += 8;
            at += 8;
            continue;
        }
#endif
        unsigned digit = (unsigned)(*at - '0');
        if (d->kept < DIGITS_KEPT) {
            d->value = d->value * 10 + digit;
            d->kept += d->value != 0; /* leading zeros are not significant */
        } else {
            d->dropped++;
            d->more |= digit != 0;
        }
        at++;
    }
    return at;
}

/* The exponent behind an e; NULL when no digit follows. Saturates. */
static const char *scan_exponent(const char *at, const char *end, int64_t *exponent,
                                 const char **bad)
{
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) {
        at++;
    }
    if (at == end || !scan_is_digit(*at)) {
        *bad = at;
        return NULL;
    }
    int64_t e = 0;
    while (at < end && scan_is_digit(*at)) {
        /* Literals are shorter than 2^40 bytes, so past that no digits before it can bring it back.
         */
        e = e < INT64_C(1) << 44 ? e * 10 + (*at - '0') : e;
        at++;
    }
    *exponent = negative ? -e : e;
    return at;
}

struct number_literal number_scan(const char *at, const char *end)
{
    struct number_literal n = {.end = at, .negative = at < end && *at == '-', .integer = true};
    struct digits d = {0};
    at += n.negative;
    const char *whole = at;
    at = scan_digits(at, end, &d);
    if (at == whole) {
        n.end = at;
        return n;
    }
    if (*whole == '0' && at - whole > 1) {
        n.end = whole + 1;
        return n;
    }
    n.exponent = d.dropped;
    if (at < end && *at == '.') {
        const char *fraction = at + 1;
        at = scan_digits(fraction, end, &d);
        if (at == fraction) {
            n.end = at;
            return n;
        }
        n.exponent = d.dropped - (at - fraction);
        n.integer = false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        int64_t e = 0;
        at = scan_exponent(at + 1, end, &e, &n.end);
        if (at == NULL) {
            return n;
        }
        n.exponent += e;
        n.integer = false;
    }
    n.end = at;
    n.valid = true;
    n.digits = d.value;
    n.more = d.more;
    while (n.digits != 0 && n.digits % 10 == 0) {
        n.digits /= 10;
        n.exponent++;
    }
    return n;
}

/* Way 1. Both operands are exact and there is one rounding. */
static bool exact_value(uint64_t digits, int64_t exponent, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (digits >> 53 != 0 || exponent < -22 || exponent > 22) {
        return false;
    }
    double v = (double)digits;
    *out = exponent < 0 ? v / powers[-exponent] : v * powers[exponent];
    return true;
}

/* Rounds v * 2^(e - 127) to 53 bits, ties to even; v has a bit set in its upper half. False when
 * the result is not a normal double. */
static bool round_normal(unsigned __int128 v, int e, uint64_t *bits)
{
    int zeros = __builtin_clzll((uint64_t)(v >> 64));
    v <<= zeros;
    e -= zeros;
    uint64_t high = (uint64_t)(v >> 64);
    uint64_t mantissa = high >> 11;
    uint64_t rest = high & 0x7FF;
    if (rest > 0x400 || (rest == 0x400 && ((uint64_t)v != 0 || (mantissa & 1) != 0))) {
        mantissa++;
    }
    if (mantissa >> 53 != 0) {
        mantissa >>= 1;
        e++;
    }
    if (e < -1022 || e > 1023) {
        return false;
    }
    *bits = (uint64_t)(e + 1023) << 52 | (mantissa & ((UINT64_C(1) << 52) - 1));
    return true;
}

/* Way 2. */
static bool product_value(uint64_t digits, int64_t exponent, double *out)
{
    if (exponent < NUMBER_POWER_MIN || exponent > 308) {
        return false;
    }
    int k = (int)exponent;
    struct number_power g = number_powers[k - NUMBER_POWER_MIN];
    int zeros = __builtin_clzll(digits);
    uint64_t w = digits << zeros;
    unsigned __int128 product = (unsigned __int128)w * g.high;
    product += (unsigned __int128)w * g.low >> 64;
    /* The table is at most one unit too high and the sum cut off less than one: the true value lies
     * in (product - 1, product + 1) units of the lowest bit. Both ends stay in 128 bits, since the
     * product of two such factors is at least 2^126 and below 2^128 - 2^64. */
    int e = number_log2_pow10(k) + 64 - zeros;
    uint64_t bits;
    uint64_t other;
    if (!round_normal(product - 1, e, &bits) || !round_normal(product + 1, e, &other) ||
        bits != other) {
        return false;
    }
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* Way 3. */
static double long_value(const char *at, const struct number_literal *n)
{
    char copy[COPY_DIGITS_MAX + 32];
    size_t len = 0;
    int64_t dropped = 0;
    int64_t fraction = 0;
    bool more = false;
    bool point = false;
    int64_t exponent = 0;
    for (at += n->negative; at < n->end; at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        if (!scan_is_digit(*at)) {
            const char *unused = NULL;
            at = scan_exponent(at + 1, n->end, &exponent, &unused);
            ensure(at == n->end);
            break;
        }
        fraction += point;
        if (len == 0 && *at == '0') {
            continue;
        }
        if (len < COPY_DIGITS_MAX) {
            copy[len++] = *at;
        } else {
            dropped++;
            more |= *at != '0';
        }
    }
    exponent += dropped - fraction;
    if (more) {
        copy[len++] = '1';
        exponent--;
    }
    exponent = exponent > EXPONENT_FAR ? EXPONENT_FAR : exponent;
    exponent = exponent < -EXPONENT_FAR ? -EXPONENT_FAR : exponent;
    int tail = snprintf(copy + len, sizeof copy - len, "e%d", (int)exponent);
    ensure(tail > 0 && (size_t)tail < sizeof copy - len);
    return strtod(copy, NULL);
}

double number_value(const char *at, const struct number_literal *n)
{
    ensure(n->valid);
    double v = 0;
    if (n->digits != 0) {
        double upper;
        bool known = !n->more && exact_value(n->digits, n->exponent, &v);
        if (!known) {
            known = product_value(n->digits, n->exponent, &v);
            if (known && n->more) {
                /* Between digits and digits + 1, so known when both round alike. `more` means that
                 * trailing zeros were taken off the kept digits maybe, and then this interval is
                 * only wider. */
                known = product_value(n->digits + 1, n->exponent, &upper) && upper == v;
            }
        }
        if (!known) {
            v = long_value(at, n);
        }
    }
    return n->negative ? -v : v;
}

double canon_parse_number(struct slice literal)
{
    struct number_literal n = number_scan(literal.ptr, literal.ptr + literal.len);
    ensure(n.valid && n.end == literal.ptr + literal.len);
    return number_value(literal.ptr, &n);
}
