/* scan: the byte-level helpers that the parts of json/ share; internal to this layer.
 *
 * Nothing here reads at or past `end`. On x86-64 the SSE2 unit, which is always there, looks at 16
 * bytes at a time; elsewhere (or with JSON_PORTABLE, which the tests use) a byte loop gives the
 * same answers. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/slice.h"

#if defined(__SSE2__) && !defined(JSON_PORTABLE)
#include <emmintrin.h>
#define SCAN_BLOCK 16
#endif

/* A byte that ends a plain run inside a string: quote, backslash, control, or not ASCII. */
static inline bool scan_is_special(unsigned char c)
{
    return c < 0x20 || c >= 0x80 || c == '"' || c == '\\';
}

static inline bool scan_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static inline bool scan_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline const char *scan_space(const char *at, const char *end)
{
    while (at < end && scan_is_space(*at)) {
        at++;
    }
    return at;
}

#ifdef SCAN_BLOCK
/* Bit i is set where byte i of the block is special. Bytes from 0x80 are negative, so one signed
 * comparison finds them together with the controls. */
static inline unsigned scan_special_mask(__m128i x)
{
    __m128i quote = _mm_cmpeq_epi8(x, _mm_set1_epi8('"'));
    __m128i slash = _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'));
    __m128i other = _mm_cmplt_epi8(x, _mm_set1_epi8(0x20));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), other));
}

/* Bit i is set where byte i of the block is a quote or a backslash. */
static inline unsigned scan_quote_mask(__m128i x)
{
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')),
                                                    _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))));
}

/* Bit i is set where byte i of the block is no digit. */
static inline unsigned scan_other_mask(__m128i x)
{
    __m128i value = _mm_sub_epi8(x, _mm_set1_epi8('0'));
    __m128i above = _mm_subs_epu8(value, _mm_set1_epi8(9));
    return 0xFFFFu ^ (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(above, _mm_setzero_si128()));
}

static inline __m128i scan_load(const char *at)
{
    return _mm_loadu_si128((const void *)at);
}
#endif

/* The first special byte from `at` on, or end. */
static inline const char *scan_plain(const char *at, const char *end)
{
#ifdef SCAN_BLOCK
    while (end - at >= SCAN_BLOCK) {
        unsigned mask = scan_special_mask(scan_load(at));
        if (mask != 0) {
            return at + __builtin_ctz(mask);
        }
        at += SCAN_BLOCK;
    }
#endif
    while (at < end && !scan_is_special((unsigned char)*at)) {
        at++;
    }
    return at;
}

/* The first byte from `at` on that is a quote or a backslash, or end. */
static inline const char *scan_quote(const char *at, const char *end)
{
#ifdef SCAN_BLOCK
    while (end - at >= SCAN_BLOCK) {
        unsigned mask = scan_quote_mask(scan_load(at));
        if (mask != 0) {
            return at + __builtin_ctz(mask);
        }
        at += SCAN_BLOCK;
    }
#endif
    while (at < end && *at != '"' && *at != '\\') {
        at++;
    }
    return at;
}

/* The first byte from `at` on that is a backslash or not ASCII, or end. */
static inline const char *scan_ascii(const char *at, const char *end)
{
#ifdef SCAN_BLOCK
    while (end - at >= SCAN_BLOCK) {
        __m128i x = scan_load(at);
        __m128i hit = _mm_or_si128(x, _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask != 0) {
            return at + __builtin_ctz(mask);
        }
        at += SCAN_BLOCK;
    }
#endif
    while (at < end && (unsigned char)*at < 0x80 && *at != '\\') {
        at++;
    }
    return at;
}

/* Length of the UTF-8 sequence whose lead byte (0x80 or more) is at `at`: 2, 3 or 4; 0 when it is
 * ill-formed (overlong, surrogate, past U+10FFFF, stray or missing continuation) or cut by end.
 * Unicode table 3-7. */
static inline unsigned scan_utf8(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at);
    unsigned char lead = p[0];
    if (lead < 0xC2 || lead > 0xF4 || left < 2) {
        return 0;
    }
    if (lead < 0xE0) {
        return (p[1] & 0xC0) == 0x80 ? 2 : 0;
    }
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high || left < 3 || (p[2] & 0xC0) != 0x80) {
        return 0;
    }
    if (lead < 0xF0) {
        return 3;
    }
    return left >= 4 && (p[3] & 0xC0) == 0x80 ? 4 : 0;
}

/* How many bytes at `at`, which scan_utf8 gave 0 for, are one ill-formed piece: the longest
 * beginning of a well-formed sequence, or one byte. Decoders that follow the Unicode standard put
 * one U+FFFD for each such piece (section 3.9, "U+FFFD substitution of maximal subparts"). */
static inline unsigned scan_ill_utf8(const char *at, const char *end)
{
    const unsigned char *p = (const unsigned char *)at;
    size_t left = (size_t)(end - at);
    unsigned char lead = p[0];
    if (lead < 0xE0 || lead > 0xF4 || left < 2) {
        return 1;
    }
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) {
        return 1;
    }
    return lead >= 0xF0 && left >= 3 && (p[2] & 0xC0) == 0x80 ? 3 : 2;
}

/* Writes a code point (not a surrogate) as UTF-8, at most 4 bytes; returns how many. */
static inline unsigned scan_put_utf8(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

/* Four hexadecimal digits of either case; false when there are fewer before end. */
static inline bool scan_hex4(const char *at, const char *end, uint32_t *out)
{
    if (end - at < 4) {
        return false;
    }
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit = (uint32_t)(unsigned char)at[i] - '0';
        uint32_t letter = ((uint32_t)(unsigned char)at[i] | 0x20) - 'a';
        if (digit > 9 && letter > 5) {
            return false;
        }
        v = v << 4 | (digit <= 9 ? digit : letter + 10);
    }
    *out = v;
    return true;
}

/* RFC 8785 spelling of a code point below 0x80 that must be escaped; returns its length (2 or 6), 0
 * when it is written raw. */
static inline unsigned scan_put_escape(char *out, uint32_t cp)
{
    static const char shorts[0x20] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (cp == '"' || cp == '\\') {
        out[0] = '\\';
        out[1] = (char)cp;
        return 2;
    }
    if (cp >= 0x20) {
        return 0;
    }
    out[0] = '\\';
    if (shorts[cp] != 0) {
        out[1] = shorts[cp];
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = cp < 0x10 ? '0' : '1';
    out[5] = "0123456789abcdef"[cp & 15];
    return 6;
}

#endif
