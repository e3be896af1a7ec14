/* hashcost: what one SHA-256 of a short text costs, by OpenSSL's low-level interface (base/hash
 * uses it) and by its provider interface with a method fetched once and a context made once, which
 * is the fastest way to use that. Prints nanoseconds a hash for the sizes of an event envelope, a
 * payload and larger. The reason for base/hash's choice is the difference at 200 bytes; run this
 * before changing it. */
#include <openssl/evp.h>

#include "base/hash.h"
#include "bench/meter.h"

#define REPEATS          5
#define BYTES_PER_REPEAT ((size_t)24 << 20)

static double low_level_ns(const char *data, size_t size, size_t count)
{
    uint8_t out[SHA256_LEN];
    uint64_t start = now_ns();
    for (size_t i = 0; i < count; i++) {
        sha256_once((struct slice){.ptr = data, .len = size}, out);
    }
    return (double)(now_ns() - start) / (double)count;
}

static double provider_ns(const EVP_MD *md, EVP_MD_CTX *ctx, const char *data, size_t size,
                          size_t count)
{
    uint8_t out[SHA256_LEN];
    uint64_t start = now_ns();
    for (size_t i = 0; i < count; i++) {
        if (!EVP_DigestInit_ex(ctx, md, NULL) || !EVP_DigestUpdate(ctx, data, size) ||
            !EVP_DigestFinal_ex(ctx, out, NULL)) {
            die("EVP_Digest failed");
        }
    }
    return (double)(now_ns() - start) / (double)count;
}

static double one_shot_ns(const char *data, size_t size, size_t count)
{
    uint8_t out[SHA256_LEN];
    uint64_t start = now_ns();
    for (size_t i = 0; i < count; i++) {
        if (!EVP_Digest(data, size, out, NULL, EVP_sha256(), NULL)) {
            die("EVP_Digest failed");
        }
    }
    return (double)(now_ns() - start) / (double)count;
}

int main(void)
{
    static const size_t sizes[] = {64, 200, 256, 1024, 65536};
    static char data[65536];
    EVP_MD *md = EVP_MD_fetch(NULL, "SHA256", NULL);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (md == NULL || ctx == NULL) {
        die("OpenSSL has no SHA-256");
    }
    memset(data, 'x', sizeof data);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t count = BYTES_PER_REPEAT / sizes[i];
        double low = 1e18;
        double provider = 1e18;
        double one_shot = 1e18;
        /* The best of a few interleaved repeats: what the code costs, not what the neighbours do.
         */
        for (int r = 0; r < REPEATS; r++) {
            double a = low_level_ns(data, sizes[i], count);
            double b = provider_ns(md, ctx, data, sizes[i], count);
            double c = one_shot_ns(data, sizes[i], count);
            low = a < low ? a : low;
            provider = b < provider ? b : provider;
            one_shot = c < one_shot ? c : one_shot;
        }
        printf("bytes=%zu low_level_ns=%.0f provider_ns=%.0f one_shot_ns=%.0f\n", sizes[i], low,
               provider, one_shot);
    }
    EVP_MD_CTX_free(ctx);
    EVP_MD_free(md);
    return 0;
}
