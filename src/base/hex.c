/* Lower-case hexadecimal. Looking whether text is hexadecimal is what a replay does most, and
 * writing it what an append does, so both go by 16 bytes; nothing here depends on the processor but
 * the speed. */
#include <string.h>

#include "base/hash.h"

#define VALID 0x10
#define WIDE  16u

typedef unsigned char wide __attribute__((vector_size(WIDE)));

static const unsigned char value[256] = {
    ['0'] = VALID | 0,  ['1'] = VALID | 1,  ['2'] = VALID | 2,  ['3'] = VALID | 3,
    ['4'] = VALID | 4,  ['5'] = VALID | 5,  ['6'] = VALID | 6,  ['7'] = VALID | 7,
    ['8'] = VALID | 8,  ['9'] = VALID | 9,  ['a'] = VALID | 10, ['b'] = VALID | 11,
    ['c'] = VALID | 12, ['d'] = VALID | 13, ['e'] = VALID | 14, ['f'] = VALID | 15,
};

static wide digits_of(wide nibbles)
{
    wide letter = (wide)(nibbles > 9); /* all bits where it is one */
    return nibbles + '0' + (letter & ('a' - '9' - 1));
}

/* 16 bytes. */
static void encode_wide(char *out, const unsigned char *p)
{
    wide bytes;
    memcpy(&bytes, p, sizeof bytes);
    wide hi = digits_of(bytes >> 4);
    wide lo = digits_of(bytes & 15);
    wide first =
        __builtin_shufflevector(hi, lo, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    wide second = __builtin_shufflevector(hi, lo, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                          30, 15, 31);
    memcpy(out, &first, sizeof first);
    memcpy(out + sizeof first, &second, sizeof second);
}

void hex_encode(char *out, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *b = p;
    for (; n >= WIDE; n -= WIDE) {
        encode_wide(out, b);
        out += 2 * (size_t)WIDE;
        b += WIDE;
    }
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
}

bool hex_decode(void *out, struct slice hex, size_t n)
{
    const unsigned char *text = (const unsigned char *)hex.ptr;
    unsigned char *b = out;
    unsigned good = VALID;
    if (hex.len != 2 * n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned hi = value[text[2 * i]];
        unsigned lo = value[text[2 * i + 1]];
        good &= hi & lo;
        b[i] = (unsigned char)(hi << 4 | (lo & 15));
    }
    return good != 0;
}

static bool wide_is_hex(const char *p)
{
    wide c;
    uint64_t half[2];
    memcpy(&c, p, sizeof c);
    /* Unsigned: what is below '0' or 'a' is large. */
    wide is = (wide)((wide)(c - '0') <= 9) | (wide)((wide)(c - 'a') <= 5);
    memcpy(half, &is, sizeof half);
    return (half[0] & half[1]) == UINT64_MAX;
}

bool hex_is(struct slice text)
{
    size_t i = 0;
    unsigned good = VALID;
    for (; text.len - i >= WIDE; i += WIDE) {
        if (!wide_is_hex(text.ptr + i)) {
            return false;
        }
    }
    for (; i < text.len; i++) {
        good &= value[(unsigned char)text.ptr[i]];
    }
    return good != 0;
}
