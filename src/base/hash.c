/* Hashes. OPENSSL_SUPPRESS_DEPRECATED: see the header for the reason. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/md5.h>
#include <openssl/sha.h>

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

bool equal_constant_time(struct slice a, struct slice b)
{
    return a.len == b.len && CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0;
}
