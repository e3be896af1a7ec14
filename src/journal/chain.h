/* chain: the hash formulas of spec/history.md section 4, each in one place.
 *
 * Texts are canonical JSON with the quotes of strings; nothing is checked here. */
#ifndef JOURNAL_CHAIN_H
#define JOURNAL_CHAIN_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/slice.h"

/* SHA-256("groundhog/genesis/v1") */
extern const uint8_t chain_genesis[SHA256_LEN];

/* head = SHA-256(head || event_hash) */
void chain_step(uint8_t head[SHA256_LEN], const uint8_t event_hash[SHA256_LEN]);

struct chain_event {
    struct slice batch_id, kind, occurred_at, record_key, source,
        stream;                /* occurred_at empty: absent */
    struct slice content_hash; /* 64 hexadecimal digits, no quotes */
    struct slice event_id;     /* 36 characters, no quotes */
    struct slice observed_at;  /* 24 characters, no quotes */
};

/* SHA-256 of the canonical envelope. scratch is cleared and reused; false without memory. */
bool chain_event_hash(const struct chain_event *ev, struct buf *scratch, uint8_t out[SHA256_LEN]);

/* Batch digest, event by event. */
struct chain_digest {
    struct sha256 sha;
    bool first;
};
void chain_digest_start(struct chain_digest *d);
bool chain_digest_event(struct chain_digest *d, struct buf *scratch, struct slice content_hash_hex,
                        struct slice kind, struct slice occurred_at, struct slice record_key,
                        struct slice stream);
void chain_digest_end(struct chain_digest *d, struct slice source, uint8_t out[SHA256_LEN]);

#endif
