/* ed25519: signatures (RFC 8032), keys as PEM files that the `openssl` command reads too. On
 * OpenSSL; a key may be used by several threads at once. */
#ifndef BASE_ED25519_H
#define BASE_ED25519_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

#define ED25519_PUBLIC_LEN    32
#define ED25519_SIGNATURE_LEN 64

struct ed25519_key; /* a private key */

/* A new key from the system's randomness. NULL: OpenSSL has no memory or no randomness. */
struct ed25519_key *ed25519_new(void);
/* From PEM text (PKCS#8, "PRIVATE KEY"). NULL: it is no Ed25519 private key. Asks nobody for a
 * password: an encrypted key is none. */
struct ed25519_key *ed25519_from_pem(struct slice pem);
void ed25519_free(struct ed25519_key *key);
/* Appends the key as PEM. false: no memory. */
bool ed25519_put_pem(const struct ed25519_key *key, struct buf *out);
void ed25519_public(const struct ed25519_key *key, uint8_t out[ED25519_PUBLIC_LEN]);
/* false: no memory. */
bool ed25519_sign(const struct ed25519_key *key, struct slice text,
                  uint8_t out[ED25519_SIGNATURE_LEN]);

/* A public key as PEM ("PUBLIC KEY", 113 bytes), appended; and back from such a text. */
void ed25519_put_public_pem(struct buf *out, const uint8_t key[ED25519_PUBLIC_LEN]);
bool ed25519_public_from_pem(struct slice pem, uint8_t out[ED25519_PUBLIC_LEN]);
/* False for a wrong signature, and without memory. */
bool ed25519_verify(const uint8_t key[ED25519_PUBLIC_LEN], struct slice text,
                    const uint8_t signature[ED25519_SIGNATURE_LEN]);

#endif
