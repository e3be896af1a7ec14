/* The canonical envelopes are written member by member in RFC 8785 order (all names are ASCII, so
 * byte order), then hashed in one piece: one call of SHA-256 an envelope. */
#include "journal/chain.h"

const uint8_t chain_genesis[SHA256_LEN] = {
    0xde, 0x84, 0xc2, 0x9d, 0x7e, 0x74, 0xec, 0x3e, 0x0a, 0xc6, 0xdb, 0x8d, 0x29, 0xad, 0x38, 0xbe,
    0x69, 0x8c, 0xac, 0xc5, 0x29, 0xbd, 0x53, 0x0f, 0x00, 0x41, 0x44, 0xe3, 0x6f, 0x06, 0xe4, 0x2b,
};

void chain_step(uint8_t head[SHA256_LEN], const uint8_t event_hash[SHA256_LEN])
{
    uint8_t both[2 * SHA256_LEN];
    memcpy(both, head, SHA256_LEN);
    memcpy(both + SHA256_LEN, event_hash, SHA256_LEN);
    sha256_once(slice_of(both, sizeof both), head);
}

static void put_lit(struct buf *b, struct slice lit)
{
    buf_put(b, lit.ptr, lit.len);
}

bool chain_event_hash(const struct chain_event *ev, struct buf *scratch, uint8_t out[SHA256_LEN])
{
    buf_clear(scratch);
    put_lit(scratch, SLICE("{\"batch_id\":"));
    buf_put_slice(scratch, ev->batch_id);
    put_lit(scratch, SLICE(",\"content_hash\":\""));
    buf_put_slice(scratch, ev->content_hash);
    put_lit(scratch, SLICE("\",\"event_id\":\""));
    buf_put_slice(scratch, ev->event_id);
    put_lit(scratch, SLICE("\",\"kind\":"));
    buf_put_slice(scratch, ev->kind);
    put_lit(scratch, SLICE(",\"observed_at\":\""));
    buf_put_slice(scratch, ev->observed_at);
    put_lit(scratch, SLICE("\""));
    if (ev->occurred_at.len != 0) {
        put_lit(scratch, SLICE(",\"occurred_at\":"));
        buf_put_slice(scratch, ev->occurred_at);
    }
    put_lit(scratch, SLICE(",\"record_key\":"));
    buf_put_slice(scratch, ev->record_key);
    put_lit(scratch, SLICE(",\"source\":"));
    buf_put_slice(scratch, ev->source);
    put_lit(scratch, SLICE(",\"stream\":"));
    buf_put_slice(scratch, ev->stream);
    put_lit(scratch, SLICE("}"));
    if (scratch->failed) {
        return false;
    }
    sha256_once(buf_slice(scratch), out);
    return true;
}

void chain_digest_start(struct chain_digest *d)
{
    sha256_start(&d->sha);
    sha256_add(&d->sha, "{\"events\":[", 11);
    d->first = true;
}

bool chain_digest_event(struct chain_digest *d, struct buf *scratch, struct slice content_hash_hex,
                        struct slice kind, struct slice occurred_at, struct slice record_key,
                        struct slice stream)
{
    buf_clear(scratch);
    if (!d->first) {
        buf_put_char(scratch, ',');
    }
    d->first = false;
    put_lit(scratch, SLICE("{\"content_hash\":\""));
    buf_put_slice(scratch, content_hash_hex);
    put_lit(scratch, SLICE("\",\"kind\":"));
    buf_put_slice(scratch, kind);
    if (occurred_at.len != 0) {
        put_lit(scratch, SLICE(",\"occurred_at\":"));
        buf_put_slice(scratch, occurred_at);
    }
    put_lit(scratch, SLICE(",\"record_key\":"));
    buf_put_slice(scratch, record_key);
    put_lit(scratch, SLICE(",\"stream\":"));
    buf_put_slice(scratch, stream);
    put_lit(scratch, SLICE("}"));
    if (scratch->failed) {
        return false;
    }
    sha256_add(&d->sha, scratch->ptr, scratch->len);
    return true;
}

void chain_digest_end(struct chain_digest *d, struct slice source, uint8_t out[SHA256_LEN])
{
    sha256_add(&d->sha, "],\"source\":", 11);
    sha256_add(&d->sha, source.ptr, source.len);
    sha256_add(&d->sha, ",\"v\":1}", 7);
    sha256_end(&d->sha, out);
}
