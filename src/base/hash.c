/* Hashes. OPENSSL_SUPPRESS_DEPRECATED: see the header for the reason. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/md5.h>
#include <openssl/sha.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "base/ensure.h"

static_assert(sizeof(SHA256_CTX) <= sizeof(((struct sha256 *)0)->state), "state holds SHA256_CTX");
static_assert(sizeof(SHA_CTX) <= sizeof(((struct sha1 *)0)->state), "state holds SHA_CTX");
static_assert(sizeof(MD5_CTX) <= sizeof(((struct md5 *)0)->state), "state holds MD5_CTX");
static_assert(_Alignof(SHA256_CTX) <= 8, "state is aligned for SHA256_CTX");

void sha256_start(struct sha256 *h)
{
    int ok = SHA256_Init((SHA256_CTX *)(void *)h->state);
    ensure(ok == 1);
}

void sha256_add(struct sha256 *h, const void *p, size_t n)
{
    int ok = SHA256_Update((SHA256_CTX *)(void *)h->state, p, n);
    ensure(ok == 1);
}

void sha256_end(struct sha256 *h, uint8_t out[SHA256_LEN])
{
    int ok = SHA256_Final(out, (SHA256_CTX *)(void *)h->state);
    ensure(ok == 1);
}

void sha256_once(struct slice s, uint8_t out[SHA256_LEN])
{
    struct sha256 h;
    sha256_start(&h);
    sha256_add(&h, s.ptr, s.len);
    sha256_end(&h, out);
}

void sha1_start(struct sha1 *h)
{
    int ok = SHA1_Init((SHA_CTX *)(void *)h->state);
    ensure(ok == 1);
}

void sha1_add(struct sha1 *h, const void *p, size_t n)
{
    int ok = SHA1_Update((SHA_CTX *)(void *)h->state, p, n);
    ensure(ok == 1);
}

void sha1_end(struct sha1 *h, uint8_t out[SHA1_LEN])
{
    int ok = SHA1_Final(out, (SHA_CTX *)(void *)h->state);
    ensure(ok == 1);
}

void md5_start(struct md5 *h)
{
    int ok = MD5_Init((MD5_CTX *)(void *)h->state);
    ensure(ok == 1);
}

void md5_add(struct md5 *h, const void *p, size_t n)
{
    int ok = MD5_Update((MD5_CTX *)(void *)h->state, p, n);
    ensure(ok == 1);
}

void md5_end(struct md5 *h, uint8_t out[MD5_LEN])
{
    int ok = MD5_Final(out, (MD5_CTX *)(void *)h->state);
    ensure(ok == 1);
}

static uint32_t crc32c_table(uint32_t crc, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++) {
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
        }
    }
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_hw(uint32_t crc, const unsigned char *p,
                                                            size_t n)
{
    uint64_t c = crc;
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
        p += 8;
        n -= 8;
    }
    uint32_t c32 = (uint32_t)c;
    while (n > 0) {
        c32 = _mm_crc32_u8(c32, *p);
        p++;
        n--;
    }
    return c32;
}
#endif

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return ~crc32c_hw(crc, p, n);
    }
#endif
    return ~crc32c_table(crc, p, n);
}

void hex_encode(char *out, const void *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[b[i] >> 4];
        out[2 * i + 1] = digits[b[i] & 15];
    }
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

bool hex_decode(void *out, struct slice hex, size_t n)
{
    unsigned char *b = out;
    if (hex.len != 2 * n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        int hi = hex_value(hex.ptr[2 * i]);
        int lo = hex_value(hex.ptr[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return false;
        }
        b[i] = (unsigned char)(hi << 4 | lo);
    }
    return true;
}

bool equal_constant_time(struct slice a, struct slice b)
{
    return a.len == b.len && CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0;
}
