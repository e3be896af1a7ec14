/* signed_head: the closed JSON object that /v1/head answers, made and read (docs/PROTOCOL.md,
 * section 17).
 *
 *     {"chain_head":HEX64,"frontier_event_count":N,"frontier_event_id":UUID|null,"key_id":HEX64,
 *      "public_key":HEX64,"signature":HEX128,"signed_at":TIME,"type":"tallyman/head","v":1}
 *
 * Signed are the bytes of the RFC 8785 form of the object without `signature`: these members in
 * this order, without white space. public_key is the 32 bytes of the Ed25519 key, key_id their
 * SHA-256. Pure functions; any thread. */
#ifndef DOOR_HISTORY_SIGNED_HEAD_H
#define DOOR_HISTORY_SIGNED_HEAD_H

#include "base/ed25519.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/timefmt.h"
#include "base/uuid.h"
#include "journal/journal.h"

#define SIGNED_HEAD_BYTES_MAX 4096 /* of a text; ours has less than 700 */

struct signed_head {
    bool empty; /* no event yet: the head is the genesis head */
    struct uuid last_id;
    uint64_t events;
    uint8_t head[SHA256_LEN];
    char signed_at[TIMEFMT_MS_LEN + 1];
    uint8_t public_key[ED25519_PUBLIC_LEN];
    uint8_t signature[ED25519_SIGNATURE_LEN];
};

/* Appends the whole object, signed with key. ERR_NO_MEMORY. */
int signed_head_make(const struct journal_frontier *f, uint64_t now_ms,
                     const struct ed25519_key *key, struct buf *out, struct err *e) MUST_CHECK;
/* Reads an object, in any order and spacing of its members. ERR_JSON: it is no signed head; the
 * text says why. The signature is not checked. */
int signed_head_read(struct slice text, struct signed_head *out, struct err *e) MUST_CHECK;
/* Is the signature the key's? */
bool signed_head_check(const struct signed_head *h, const uint8_t key[ED25519_PUBLIC_LEN]);
/* Hexadecimal of the key's id. */
void signed_head_key_id(const uint8_t key[ED25519_PUBLIC_LEN], char out[SHA256_HEX_LEN]);

#endif
