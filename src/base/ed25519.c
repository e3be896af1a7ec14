/* Ed25519 on OpenSSL's EVP. The struct is an EVP_PKEY under another name, so that OpenSSL's headers
 * stay in this file. A signing context is made for each signature: it costs little beside the
 * signature, and nothing is shared between threads but the key, which does not change.
 *
 * Answers: anything wrong with input is false or NULL. Aborts: a key of ours whose public half
 * cannot be read. */
#include "base/ed25519.h"

#include <limits.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/ensure.h"

static EVP_PKEY *pkey_of(const struct ed25519_key *key)
{
    EVP_PKEY *pkey;

    memcpy(&pkey, &key, sizeof pkey); /* OpenSSL's functions take no const */
    return pkey;
}

struct ed25519_key *ed25519_new(void)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");

    ERR_clear_error();
    return (struct ed25519_key *)(void *)key;
}

/* In place of a question on the terminal. */
static int no_password(char *out, int size, int writing, void *ctx)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)ctx;
    return -1;
}

static EVP_PKEY *read_pem(struct slice pem, bool private_key)
{
    EVP_PKEY *key = NULL;
    BIO *in = pem.len > INT_MAX ? NULL : BIO_new_mem_buf(pem.ptr, (int)pem.len);

    if (in != NULL) {
        key = private_key ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL)
                          : PEM_read_bio_PUBKEY(in, NULL, no_password, NULL);
        (void)BIO_free(in);
    }
    if (key != NULL && EVP_PKEY_id(key) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    ERR_clear_error();
    return key;
}

struct ed25519_key *ed25519_from_pem(struct slice pem)
{
    return (struct ed25519_key *)(void *)read_pem(pem, true);
}

void ed25519_free(struct ed25519_key *key)
{
    EVP_PKEY_free(pkey_of(key));
}

bool ed25519_put_pem(const struct ed25519_key *key, struct buf *out)
{
    BIO *to = BIO_new(BIO_s_secmem());
    char *text = NULL;
    long n = 0;

    if (to != NULL &&
        PEM_write_bio_PKCS8PrivateKey(to, pkey_of(key), NULL, NULL, 0, NULL, NULL) == 1) {
        n = BIO_get_mem_data(to, &text);
        buf_put(out, text, n > 0 ? (size_t)n : 0);
    }
    (void)BIO_free(to);
    ERR_clear_error();
    return n > 0 && !out->failed;
}

void ed25519_public(const struct ed25519_key *key, uint8_t out[ED25519_PUBLIC_LEN])
{
    size_t n = ED25519_PUBLIC_LEN;
    int ok = EVP_PKEY_get_raw_public_key(pkey_of(key), out, &n);

    ensure(ok == 1);
    ensure(n == ED25519_PUBLIC_LEN);
}

bool ed25519_sign(const struct ed25519_key *key, struct slice text,
                  uint8_t out[ED25519_SIGNATURE_LEN])
{
    size_t n = ED25519_SIGNATURE_LEN;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx != NULL && EVP_DigestSignInit(ctx, NULL, NULL, NULL, pkey_of(key)) == 1 &&
              EVP_DigestSign(ctx, out, &n, (const unsigned char *)text.ptr, text.len) == 1;

    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    ensure(!ok || n == ED25519_SIGNATURE_LEN);
    return ok;
}

/* ---- public keys ---- */

/* RFC 8410: SubjectPublicKeyInfo of Ed25519, in front of the 32 bytes. */
static const uint8_t spki[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0};

void ed25519_put_public_pem(struct buf *out, const uint8_t key[ED25519_PUBLIC_LEN])
{
    uint8_t der[sizeof spki + ED25519_PUBLIC_LEN];
    unsigned char text[(sizeof der + 2) / 3 * 4 + 1];

    memcpy(der, spki, sizeof spki);
    memcpy(der + sizeof spki, key, ED25519_PUBLIC_LEN);
    (void)EVP_EncodeBlock(text, der, sizeof der);
    buf_printf(out, "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n",
               (const char *)text);
}

bool ed25519_public_from_pem(struct slice pem, uint8_t out[ED25519_PUBLIC_LEN])
{
    EVP_PKEY *key = read_pem(pem, false);
    size_t n = ED25519_PUBLIC_LEN;
    bool ok =
        key != NULL && EVP_PKEY_get_raw_public_key(key, out, &n) == 1 && n == ED25519_PUBLIC_LEN;

    EVP_PKEY_free(key);
    return ok;
}

bool ed25519_verify(const uint8_t key[ED25519_PUBLIC_LEN], struct slice text,
                    const uint8_t signature[ED25519_SIGNATURE_LEN])
{
    EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, ED25519_PUBLIC_LEN);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = pkey != NULL && ctx != NULL &&
              EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
              EVP_DigestVerify(ctx, signature, ED25519_SIGNATURE_LEN,
                               (const unsigned char *)text.ptr, text.len) == 1;

    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(pkey);
    ERR_clear_error();
    return ok;
}
