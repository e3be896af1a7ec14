/* Number text: ECMAScript Number::toString, which RFC 8785 section 3.2.2.3 asks for.
 *
 * The digits are the fewest that read back as the same double and, among those, the nearest to its
 * true value. They come from Raffaello Giulietti's Schubfach: the interval of reals that round to
 * the double is scaled by a power of ten held in 128 bits, so that its ends and the double itself
 * become integers with two extra bits, where a sticky last bit ("round to odd") stands for
 * everything cut off. His proof says that 128 bits are enough for every double, so there is no slow
 * path. The decimal with one digit less is tried first; it is the only candidate of its length,
 * since the scale is chosen such that the interval is shorter than ten units. */
#include <string.h>

#include "base/ensure.h"
#include "json/canon.h"
#include "json/number.h"

#define MANTISSA_BITS 52
#define EXPONENT_BIAS 1075 /* 1023 + 52: the value is mantissa * 2^(field - bias) */

/* x * g / 2^128, with the lowest bit set when anything but zero was cut off. */
static uint64_t scale(const struct number_power *g, uint64_t x)
{
    unsigned __int128 low = (unsigned __int128)x * g->low;
    unsigned __int128 high = (unsigned __int128)x * g->high + (uint64_t)(low >> 64);
    uint64_t cut = (uint64_t)high;
    return (uint64_t)(high >> 64) | (cut > 1);
}

/* The shortest, nearest digits of the positive double mantissa * 2^q; `lower_near` when the double
 * below it is only half as far away as the one above. Returns the digits, *exponent their power of
 * ten. */
static uint64_t shortest(uint64_t mantissa, int q, bool lower_near, int *exponent)
{
    int k = (q * 1262611 - (lower_near ? 524031 : 0)) >> 22; /* floor(log10(2^q or 3/4 * 2^q)) */
    ensure(-k >= NUMBER_POWER_MIN && -k <= NUMBER_POWER_MAX);
    const struct number_power *g = &number_powers[-k - NUMBER_POWER_MIN];
    int shift = q + number_log2_pow10(-k) + 1;
    ensure(shift >= 1 && shift <= 4);
    uint64_t odd = mantissa & 1; /* ties go to even: an odd mantissa does not own its ends */
    uint64_t low = scale(g, (4 * mantissa - 2 + lower_near) << shift) + odd;
    uint64_t mid = scale(g, 4 * mantissa << shift);
    uint64_t high = scale(g, (4 * mantissa + 2) << shift) - odd;

    uint64_t s = mid / 4;
    if (s >= 10) {
        uint64_t tens = s / 10;
        bool down = low <= 40 * tens;
        bool up = 40 * tens + 40 <= high;
        if (down != up) {
            *exponent = k + 1;
            return tens + up;
        }
    }
    *exponent = k;
    bool down = low <= 4 * s;
    bool up = 4 * s + 4 <= high;
    if (down != up) {
        return s + up;
    }
    uint64_t half = 4 * s + 2;
    return s + (mid > half || (mid == half && (s & 1) != 0));
}

static const char pairs[201] = "00010203040506070809101112131415161718192021222324"
                               "25262728293031323334353637383940414243444546474849"
                               "50515253545556575859606162636465666768697071727374"
                               "75767778798081828384858687888990919293949596979899";

static unsigned count_digits(uint64_t v)
{
    unsigned n = 1;
    while (v >= 10000) {
        v /= 10000;
        n += 4;
    }
    return n + (v >= 10) + (v >= 100) + (v >= 1000);
}

/* Exactly n digits of v at out. */
static void put_digits(char *out, uint64_t v, unsigned n)
{
    while (n >= 2) {
        n -= 2;
        memcpy(out + n, pairs + 2 * (v % 100), 2);
        v /= 100;
    }
    if (n == 1) {
        out[0] = (char)('0' + v);
    }
}

/* e+21, e-7: sign always, no leading zeros. */
static unsigned put_exponent(char *out, int e)
{
    out[0] = 'e';
    out[1] = e < 0 ? '-' : '+';
    unsigned magnitude = (unsigned)(e < 0 ? -e : e);
    unsigned n = count_digits(magnitude);
    put_digits(out + 2, magnitude, n);
    return n + 2;
}

unsigned number_put_decimal(char *out, bool negative, uint64_t digits, int exponent)
{
    ensure(digits != 0 && digits < 100000000000000000u);
    char *p = out;
    if (negative) {
        *p++ = '-';
    }
    int count = (int)count_digits(digits);
    int point = count + exponent; /* digits before the decimal point */
    if (exponent >= 0 && point <= 21) {
        put_digits(p, digits, (unsigned)count);
        memset(p + count, '0', (size_t)exponent);
        p += point;
    } else if (point > 0 && point <= 21) {
        put_digits(p + 1, digits, (unsigned)count);
        memmove(p, p + 1, (size_t)point);
        p[point] = '.';
        p += count + 1;
    } else if (point > -6 && point <= 0) {
        memcpy(p, "0.00000", 7);
        p += 2 - point;
        put_digits(p, digits, (unsigned)count);
        p += count;
    } else {
        put_digits(p + 1, digits, (unsigned)count);
        p[0] = p[1];
        p[1] = '.';
        p += count == 1 ? 1 : count + 1;
        p += put_exponent(p, point - 1);
    }
    return (unsigned)(p - out);
}

size_t canon_number(double v, char out[CANON_NUMBER_MAX])
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    bool negative = bits >> 63 != 0;
    int field = (int)(bits >> MANTISSA_BITS & 0x7FF);
    uint64_t mantissa = bits & ((UINT64_C(1) << MANTISSA_BITS) - 1);
    ensure(field != 0x7FF);
    if (field == 0 && mantissa == 0) {
        out[0] = '0';
        return 1;
    }
    uint64_t digits;
    int exponent = 0;
    if (v > -1e15 && v < 1e15 && (double)(int64_t)v == v) {
        int64_t whole = (int64_t)v;
        digits = (uint64_t)(negative ? -whole : whole);
    } else {
        bool lower_near = mantissa == 0 && field > 1;
        if (field != 0) {
            mantissa |= UINT64_C(1) << MANTISSA_BITS;
        }
        digits =
            shortest(mantissa, (field == 0 ? 1 : field) - EXPONENT_BIAS, lower_near, &exponent);
    }
    while (digits % 10 == 0) {
        digits /= 10;
        exponent++;
    }
    return number_put_decimal(out, negative, digits, exponent);
}
