/* The text of a signed head. Its members are ASCII and one count, so that the RFC 8785 form can be
 * written down directly: sorted names, no white space. A count stays below 2^53, where numbers of
 * JSON end: at a hundred million events a second that takes two years.
 *
 * A reader takes nothing that was not signed: a member that the signed form does not have is an
 * error, and so is one that is given twice. */
#include "door/history/signed_head.h"

#include "base/ensure.h"
#include "json/read.h"
#include "json/write.h"

static void put_hex(struct buf *b, const char *name, const uint8_t *p, size_t n)
{
    char hex[2 * ED25519_SIGNATURE_LEN];

    ensure(2 * n <= sizeof hex);
    hex_encode(hex, p, n);
    json_put_name(b, name);
    json_put_string(b, slice_of(hex, 2 * n));
}

void signed_head_key_id(const uint8_t key[ED25519_PUBLIC_LEN], char out[SHA256_HEX_LEN])
{
    uint8_t digest[SHA256_LEN];

    sha256_once(slice_of(key, ED25519_PUBLIC_LEN), digest);
    hex_encode(out, digest, sizeof digest);
}

/* The object; signature NULL: the bytes that are signed. */
static void put(struct buf *b, const struct signed_head *h, const uint8_t *signature)
{
    char id[UUID_TEXT_LEN];
    char key_id[SHA256_HEX_LEN];

    buf_put_char(b, '{');
    put_hex(b, "chain_head", h->head, sizeof h->head);
    json_put_name(b, "frontier_event_count");
    buf_put_u64(b, h->events);
    json_put_name(b, "frontier_event_id");
    if (h->empty) {
        buf_put_cstr(b, "null");
    } else {
        uuid_text(id, &h->last_id);
        json_put_string(b, slice_of(id, sizeof id));
    }
    signed_head_key_id(h->public_key, key_id);
    json_put_name(b, "key_id");
    json_put_string(b, slice_of(key_id, sizeof key_id));
    put_hex(b, "public_key", h->public_key, sizeof h->public_key);
    if (signature != NULL) {
        put_hex(b, "signature", signature, ED25519_SIGNATURE_LEN);
    }
    json_put_name(b, "signed_at");
    json_put_string(b, slice_cstr(h->signed_at));
    buf_put_cstr(b, ",\"type\":\"tallyman/head\",\"v\":1}");
}

int signed_head_make(const struct journal_frontier *f, uint64_t now_ms,
                     const struct ed25519_key *key, struct buf *out, struct err *e)
{
    struct signed_head h = {.empty = f->empty, .last_id = f->last_id, .events = f->events};
    struct buf text = {0};

    memcpy(h.head, f->head, sizeof h.head);
    timefmt_ms(h.signed_at, now_ms < TIMEFMT_MS_END ? now_ms : TIMEFMT_MS_END - 1);
    ed25519_public(key, h.public_key);
    put(&text, &h, NULL);
    bool ok = !text.failed && ed25519_sign(key, buf_slice(&text), h.signature);
    buf_free(&text);
    if (ok) {
        put(out, &h, h.signature);
    }
    return ok && !out->failed ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for a signature");
}

bool signed_head_check(const struct signed_head *h, const uint8_t key[ED25519_PUBLIC_LEN])
{
    struct buf text = {0};

    put(&text, h, NULL);
    bool ok = !text.failed && memcmp(key, h->public_key, ED25519_PUBLIC_LEN) == 0 &&
              ed25519_verify(key, buf_slice(&text), h->signature);
    buf_free(&text);
    return ok;
}

/* ---- reading ---- */

static bool read_hex(struct slice value, uint8_t *out, size_t n)
{
    struct slice inner;

    return json_string_raw(value, &inner) && hex_decode(out, inner, n);
}

static bool read_time(struct slice value, struct signed_head *h)
{
    struct slice inner;
    uint64_t ms;

    if (!json_string_raw(value, &inner) || !timefmt_parse_ms(inner, &ms)) {
        return false;
    }
    timefmt_ms(h->signed_at, ms);
    return true;
}

static bool read_id(struct slice value, struct signed_head *h)
{
    struct slice inner;

    h->empty = json_type_of(value) == JSON_NULL;
    return h->empty || (json_string_raw(value, &inner) && uuid7_parse(inner, &h->last_id));
}

static bool read_key_id(struct slice value, uint8_t out[SHA256_LEN])
{
    return read_hex(value, out, SHA256_LEN);
}

/* One of the nine members; *bit is its place in the sorted object. */
static bool read_member(struct slice name, struct slice value, struct signed_head *h,
                        uint8_t key_id[SHA256_LEN], unsigned *bit)
{
    static const char *const names[] = {"chain_head",
                                        "frontier_event_count",
                                        "frontier_event_id",
                                        "key_id",
                                        "public_key",
                                        "signature",
                                        "signed_at",
                                        "type",
                                        "v"};
    uint64_t version = 0;

    for (*bit = 0; *bit < sizeof names / sizeof *names; (*bit)++) {
        if (slice_eq(name, slice_cstr(names[*bit]))) {
            break;
        }
    }
    switch (*bit) {
    case 0:
        return read_hex(value, h->head, sizeof h->head);
    case 1:
        return json_u64(value, &h->events) && h->events < UINT64_C(1) << 53;
    case 2:
        return read_id(value, h);
    case 3:
        return read_key_id(value, key_id);
    case 4:
        return read_hex(value, h->public_key, sizeof h->public_key);
    case 5:
        return read_hex(value, h->signature, sizeof h->signature);
    case 6:
        return read_time(value, h);
    case 7:
        return slice_eq(value, SLICE("\"tallyman/head\""));
    case 8:
        return json_u64(value, &version) && version == 1;
    default:
        return false;
    }
}

int signed_head_read(struct slice text, struct signed_head *out, struct err *e)
{
    struct json_iter it = json_iter_object(text);
    struct slice name;
    struct slice value;
    uint8_t given[SHA256_LEN] = {0};
    uint8_t key_id[SHA256_LEN];
    unsigned seen = 0;

    memset(out, 0, sizeof *out);
    if (text.len > SIGNED_HEAD_BYTES_MAX) {
        return err_set(e, ERR_JSON, "it is too long for a signed head");
    }
    while (json_next_member(&it, &name, &value)) {
        unsigned bit;
        if (!read_member(name, value, out, given, &bit) || (seen & 1u << bit) != 0) {
            return err_set(e, ERR_JSON, "its member %.*s is no signed head's",
                           name.len > 40 ? 40 : (int)name.len, name.ptr);
        }
        seen |= 1u << bit;
    }
    if (it.bad || seen != (1u << 9) - 1) {
        return err_set(e, ERR_JSON, "it is not the whole object of a signed head");
    }
    sha256_once(slice_of(out->public_key, sizeof out->public_key), key_id);
    if (memcmp(key_id, given, sizeof key_id) != 0) {
        return err_set(e, ERR_JSON, "its key_id is not that of its public_key");
    }
    return out->empty == (out->events == 0)
               ? 0
               : err_set(e, ERR_JSON, "its count and its id contradict one another");
}
