/* Strings and numbers of a document, checked and written in canonical form, and the room to write;
 * see canon.c.
 *
 * A string never grows: every escape of the input is at least as long as what RFC 8785 writes for
 * it. */
#include <math.h>
#include <string.h>

#include "base/ensure.h"
#include "json/canon_internal.h"
#include "json/number.h"
#include "json/scan.h"

/* Any integer of so few digits is exact and its own canonical form. */
#define INTEGER_DIGITS_SAFE 15
/* Canonical integers of more digits have an exponent. */
#define INTEGER_DIGITS_MAX 21

static_assert(CANON_SLACK >= CANON_NUMBER_MAX + 16, "a number and a block store fit");

static struct canon_cursor bad(struct canon *c, const char *at, const char *text)
{
    return canon_fail(c, ERR_JSON, at, text);
}

static struct canon_cursor cut_string(struct canon *c)
{
    return bad(c, c->end, "the text ends inside a string");
}

struct canon_cursor canon_room(struct canon *c, struct canon_cursor k)
{
    size_t done = k.op == NULL ? 0 : (size_t)(k.op - c->base);
    size_t need = (size_t)(c->end - k.at) + CANON_SLACK;
    struct buf *b = c->target;
    b->len = c->base_offset + done;
    if (!buf_reserve(b, need)) {
        if (b != c->out || b->limit == 0) {
            return canon_fail(c, ERR_NO_MEMORY, k.at, "not enough memory");
        }
        /* The estimate does not fit the caller's limit; the canonical form itself may. Go on beside
         * it. */
        b->failed = c->out_failed;
        b->len = c->out_start;
        b = &c->spill;
        buf_put(b, c->base, done);
        c->target = b;
        c->base_offset = 0;
        if (!buf_reserve(b, need)) {
            return canon_fail(c, ERR_NO_MEMORY, k.at, "not enough memory");
        }
    }
    /* The buffer may have moved: first the pointers, then the reasons to stop, which look through
     * them. */
    c->base = b->ptr + c->base_offset;
    c->room_end = b->ptr + b->cap;
    if (b == &c->spill && done > c->out->limit - c->out_start) {
        return canon_fail(c, ERR_NO_MEMORY, k.at, "the canonical form is too large");
    }
    k.op = c->base + done;
    return k;
}

/* A \u escape whose four digits are not: says where. */
static struct canon_cursor bad_hex(struct canon *c, const char *at)
{
    while (at < c->end && (scan_is_digit(*at) || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'f'))) {
        at++;
    }
    return at == c->end ? cut_string(c) : bad(c, at, "\\u needs four hexadecimal digits");
}

/* A \u escape at k.at. */
static struct canon_cursor put_unicode(struct canon *c, struct canon_cursor k)
{
    uint32_t cp;
    if (!scan_hex4(k.at + 2, c->end, &cp)) {
        return bad_hex(c, k.at + 2);
    }
    const char *next = k.at + 6;
    if (cp >= 0xD800 && cp <= 0xDBFF) {
        if (next == c->end) {
            return cut_string(c);
        }
        uint32_t low = 0;
        if (c->end - next < 6 || next[0] != '\\' || next[1] != 'u' ||
            !scan_hex4(next + 2, c->end, &low) || low < 0xDC00 || low > 0xDFFF) {
            return bad(c, k.at, "a high surrogate without a low one behind it");
        }
        cp = 0x10000 + ((cp - 0xD800) << 10 | (low - 0xDC00));
        next += 6;
    } else if (cp >= 0xDC00 && cp <= 0xDFFF) {
        return bad(c, k.at, "a low surrogate without a high one before it");
    }
    unsigned n = cp < 0x80 ? scan_put_escape(k.op, cp) : 0;
    k.op += n != 0 ? n : scan_put_utf8(k.op, cp);
    k.at = next;
    return k;
}

static struct canon_cursor put_escape(struct canon *c, struct canon_cursor k)
{
    if (c->end - k.at < 2) {
        return cut_string(c);
    }
    char letter = k.at[1];
    switch (letter) {
    case '"':
    case '\\':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        k.op[0] = '\\';
        k.op[1] = letter;
        k.op += 2;
        break;
    case '/':
        *k.op++ = '/';
        break;
    case 'u':
        return put_unicode(c, k);
    default:
        return bad(c, k.at + 1, "an unknown escape in a string");
    }
    k.at += 2;
    return k;
}

/* Not a sequence of UTF-8, or one cut by the end. */
static struct canon_cursor bad_utf8(struct canon *c, const char *at)
{
    static const char filler[3] = {'\x80', '\x80', '\x80'};
    char whole[8] = {0};
    size_t left = (size_t)(c->end - at);
    if (left < 4) {
        /* Would it be good with more continuation bytes? 0x90 passes every second-byte rule but
         * one. */
        memcpy(whole, at, left);
        memcpy(whole + left, filler, 4 - left);
        bool cut = scan_utf8(whole, whole + 4) > left;
        whole[left] = left == 1 ? '\x90' : whole[left];
        cut = cut || scan_utf8(whole, whole + 4) > left;
        whole[left] = left == 1 ? '\xA0' : whole[left];
        if (cut || scan_utf8(whole, whole + 4) > left) {
            return cut_string(c);
        }
    }
    return bad(c, at, "a string is not valid UTF-8");
}

static struct canon_cursor put_utf8(struct canon *c, struct canon_cursor k)
{
    do {
        unsigned n = scan_utf8(k.at, c->end);
        if (n == 0) {
            return bad_utf8(c, k.at);
        }
        memcpy(k.op, k.at, n);
        k.at += n;
        k.op += n;
    } while (k.at < c->end && (unsigned char)*k.at >= 0x80);
    return k;
}

/* Copies the plain bytes up to the next special one, or to the end. */
static inline struct canon_cursor put_plain(const struct canon *c, struct canon_cursor k)
{
#ifdef SCAN_BLOCK
    while (c->end - k.at >= SCAN_BLOCK) {
        __m128i x = scan_load(k.at);
        _mm_storeu_si128((void *)k.op, x);
        unsigned mask = scan_special_mask(x);
        if (mask != 0) {
            unsigned n = (unsigned)__builtin_ctz(mask);
            k.at += n;
            k.op += n;
            return k;
        }
        k.at += SCAN_BLOCK;
        k.op += SCAN_BLOCK;
    }
#endif
    while (k.at < c->end && !scan_is_special((unsigned char)*k.at)) {
        *k.op++ = *k.at++;
    }
    return k;
}

struct canon_cursor canon_string_rest(struct canon *c, struct canon_cursor k)
{
    for (;;) {
        k = put_plain(c, k);
        if (k.at == c->end) {
            return cut_string(c);
        }
        unsigned char special = (unsigned char)*k.at;
        if (special == '"') {
            k.at++;
            *k.op++ = '"';
            return k;
        }
        if (special < 0x20) {
            return bad(c, k.at,
                       special == 0 ? "a raw NUL byte in a string"
                                    : "a raw control character in a string");
        }
        k = special == '\\' ? put_escape(c, k) : put_utf8(c, k);
        if (k.op == NULL) {
            return k;
        }
    }
}

/* An integer literal of 16 digits or more is accepted only in the spelling of the double it names,
 * so that no two different integers become the same canonical number unseen. */
static struct canon_cursor put_long_integer(struct canon *c, struct canon_cursor k,
                                            const struct number_literal *n)
{
    size_t len = (size_t)(n->end - k.at);
    char text[CANON_NUMBER_MAX];
    if (len > INTEGER_DIGITS_MAX + (size_t)n->negative ||
        canon_number(number_value(k.at, n), text) != len || memcmp(text, k.at, len) != 0) {
        return bad(c, k.at, "an integer that a double cannot hold exactly in this spelling");
    }
    memcpy(k.op, text, len);
    k.at += len;
    k.op += len;
    return k;
}

static struct canon_cursor put_any_number(struct canon *c, struct canon_cursor k)
{
    struct number_literal n = number_scan(k.at, c->end);
    if (!n.valid) {
        return bad(c, n.end, "a number is malformed");
    }
    if (n.integer && n.end - k.at > INTEGER_DIGITS_SAFE + n.negative) {
        return put_long_integer(c, k, &n);
    }
    if (n.digits == 0) {
        *k.op++ = '0';
    } else if (n.digits < NUMBER_EXACT_DIGITS && n.exponent >= -NUMBER_EXACT_EXPONENT &&
               n.exponent <= NUMBER_EXACT_EXPONENT && !n.more) {
        k.op += number_put_decimal(k.op, n.negative, n.digits, (int)n.exponent);
    } else {
        double v = number_value(k.at, &n);
        if (isinf(v)) {
            return bad(c, k.at, "a number is beyond what a double can hold");
        }
        k.op += canon_number(v, k.op);
    }
    k.at = n.end;
    size_t left = (size_t)(c->end - k.at);
    return (size_t)(c->room_end - k.op) < left + CANON_SLACK ? canon_room(c, k) : k;
}

#ifdef SCAN_BLOCK
/* Length of the literal behind its sign when it is short and its own canonical form, which nearly
 * all are: no exponent, at most 15 digits, no zero at the end of the fraction, not below 1e-6.
 * Otherwise 0. `other` tells which of the 16 bytes at `digits` are no digits. */
static inline unsigned canonical_length(const char *digits, unsigned other, bool negative)
{
    if (other == 0) {
        return 0;
    }
    unsigned whole = (unsigned)__builtin_ctz(other);
    unsigned len = whole;
    if (digits[whole] == '.') {
        unsigned behind = other & (other - 1);
        len = behind == 0 ? 0 : (unsigned)__builtin_ctz(behind);
        /* A digit before the point, one behind it that is not zero, and no more than five zeros
         * between. */
        if (whole == 0 || len < whole + 2 || digits[len - 1] == '0' ||
            (digits[0] == '0' && (whole > 1 || memcmp(digits + 2, "000000", 6) == 0))) {
            return 0;
        }
    } else if (digits[0] == '0' && (whole > 1 || negative)) {
        return 0;
    }
    return (digits[len] | 0x20) == 'e' ? 0 : len;
}
#endif

struct canon_cursor canon_number_text(struct canon *c, struct canon_cursor k)
{
#ifdef SCAN_BLOCK
    bool negative = *k.at == '-';
    const char *digits = k.at + negative;
    if (c->end - digits >= SCAN_BLOCK) {
        __m128i x = scan_load(digits);
        unsigned len = canonical_length(digits, scan_other_mask(x), negative);
        if (len != 0) {
            *k.op = '-';
            k.op += negative;
            _mm_storeu_si128((void *)k.op, x);
            return (struct canon_cursor){.at = digits + len, .op = k.op + len};
        }
    }
#endif
    return put_any_number(c, k);
}
