/* hash: SHA-256, SHA-1, MD5, CRC32C, hexadecimal, constant-time comparison.
 *
 * SHA-256 is OpenSSL's low-level interface on purpose: the provider interface of OpenSSL 3.0 costs
 * more than hashing a 200-byte envelope does (measure: build/bench/hashcost). */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define SHA256_LEN     32
#define SHA256_HEX_LEN 64

struct sha256 {
    _Alignas(8) unsigned char state[112]; /* OpenSSL's SHA256_CTX */
};

void sha256_start(struct sha256 *h);
void sha256_add(struct sha256 *h, const void *p, size_t n);
void sha256_end(struct sha256 *h, uint8_t out[SHA256_LEN]);
void sha256_once(struct slice s, uint8_t out[SHA256_LEN]);

/* SHA-1 and MD5 are what archives know files by and prove nothing against an adversary: BLAKE3 does
 * that. Used as SHA-256 above. */
#define SHA1_LEN     20
#define SHA1_HEX_LEN 40
#define MD5_LEN      16
#define MD5_HEX_LEN  32

struct sha1 {
    _Alignas(8) unsigned char state[96]; /* OpenSSL's SHA_CTX */
};
void sha1_start(struct sha1 *h);
void sha1_add(struct sha1 *h, const void *p, size_t n);
void sha1_end(struct sha1 *h, uint8_t out[SHA1_LEN]);

struct md5 {
    _Alignas(8) unsigned char state[96]; /* OpenSSL's MD5_CTX */
};
void md5_start(struct md5 *h);
void md5_add(struct md5 *h, const void *p, size_t n);
void md5_end(struct md5 *h, uint8_t out[MD5_LEN]);

/* CRC32C (Castagnoli), init and final inversion inside: crc32c(0, "123456789") = 0xe3069283. Pass
 * the previous result to go on. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);
/* The same without the processor's instructions for it. */
uint32_t crc32c_portable(uint32_t crc, const void *p, size_t n);

/* Lower-case hexadecimal; out holds 2 * n characters, no NUL. */
void hex_encode(char *out, const void *p, size_t n);
/* Exactly 2 * n lower-case hexadecimal digits, else false. */
bool hex_decode(void *out, struct slice hex, size_t n);
/* Lower-case hexadecimal digits and nothing else. */
bool hex_is(struct slice text);

/* Equality in time that depends on the lengths only. */
bool equal_constant_time(struct slice a, struct slice b);

#endif
