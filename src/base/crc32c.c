/* CRC32C, by the processor where it can.
 *
 * One crc32 instruction takes three cycles and the next one may begin after one: so three lanes
 * that lie one behind the other are computed at once. A lane's checksum moves on over the n zero
 * bytes that stand for those behind it by a carry-less product with x^(8n - 33) modulo the
 * polynomial; a crc32 instruction reduces the product. */
#include <string.h>

#include "base/hash.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

/* Of a nibble. */
static const uint32_t table[16] = {
    0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u,
    0x61c69362u, 0x7198540du, 0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u,
    0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u,
};

uint32_t crc32c_portable(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *b = p;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__)

#define LANE     1024u
#define OVER_ONE 0x170076fau /* x^(8 * LANE - 33), reflected */
#define OVER_TWO 0xa51b6135u /* x^(16 * LANE - 33) */

static uint64_t word_at(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t moved(uint64_t crc, uint32_t by)
{
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int)by), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t lanes(uint64_t crc, const unsigned char *p)
{
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < LANE; i += 8) {
        crc = _mm_crc32_u64(crc, word_at(p + i));
        second = _mm_crc32_u64(second, word_at(p + LANE + i));
        third = _mm_crc32_u64(third, word_at(p + 2 * (size_t)LANE + i));
    }
    return _mm_crc32_u64(0, moved(crc, OVER_TWO) ^ moved(second, OVER_ONE)) ^ third;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
by_processor(uint32_t crc, const unsigned char *p, size_t n)
{
    uint64_t c = crc;
    for (; n >= 3 * (size_t)LANE; n -= 3 * (size_t)LANE) {
        c = lanes(c, p);
        p += 3 * (size_t)LANE;
    }
    for (; n >= 8; n -= 8) {
        c = _mm_crc32_u64(c, word_at(p));
        p += 8;
    }
    for (; n > 0; n--) {
        c = _mm_crc32_u8((uint32_t)c, *p);
        p++;
    }
    return (uint32_t)c;
}

#endif

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) {
        return ~by_processor(~crc, p, n);
    }
#endif
    return crc32c_portable(crc, p, n);
}
