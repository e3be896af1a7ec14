/* Encoding and decoding of stored lines.
 *
 * Decoding goes forward from the left up to "payload" and finds the end of the payload from the
 * right: the last
 * `,"record_key":"` of the line. It cannot be inside a later string, because a quote inside a
 * string is always preceded by a backslash, so `,"` never occurs there. Nothing of a payload of
 * megabytes is looked at. */
#include "journal/line.h"

#include "base/ensure.h"
#include "base/hash.h"
#include "base/timefmt.h"

#define P_DIGEST     SLICE("{\"batch_digest\":\"")
#define P_BATCH_ID   SLICE("\",\"batch_id\":")
#define P_BATCH_LEN  SLICE(",\"batch_len\":")
#define P_CONTENT    SLICE(",\"content_hash\":\"")
#define P_EVENT_HASH SLICE("\",\"event_hash\":\"")
#define P_EVENT_ID   SLICE("\",\"event_id\":\"")
#define P_KIND       SLICE("\",\"kind\":")
#define P_OBSERVED   SLICE(",\"observed_at\":\"")
#define P_OCCURRED   SLICE(",\"occurred_at\":")
#define P_PAYLOAD    SLICE(",\"payload\":")
#define P_KEY        SLICE(",\"record_key\":")
#define P_SOURCE     SLICE(",\"source\":")
#define P_STREAM     SLICE(",\"stream\":")

static size_t decimal_length(uint32_t v)
{
    size_t n = 1;
    while (v >= 10) {
        v /= 10;
        n++;
    }
    return n;
}

size_t line_length(const struct line *l)
{
    size_t n = P_DIGEST.len + SHA256_HEX_LEN + P_BATCH_ID.len + l->batch_id.len + P_BATCH_LEN.len +
               decimal_length(l->batch_len) + P_CONTENT.len + SHA256_HEX_LEN + P_EVENT_HASH.len +
               SHA256_HEX_LEN + P_EVENT_ID.len + UUID_TEXT_LEN + P_KIND.len + l->kind.len +
               P_OBSERVED.len + TIMEFMT_MS_LEN + 1 + P_PAYLOAD.len + l->payload.len + P_KEY.len +
               l->record_key.len + P_SOURCE.len + l->source.len + P_STREAM.len + l->stream.len + 2;
    if (l->occurred_at.len != 0) {
        n += P_OCCURRED.len + l->occurred_at.len;
    }
    return n;
}

static char *put(char *p, struct slice s)
{
    memcpy(p, s.ptr, s.len);
    return p + s.len;
}

void line_put(struct buf *out, const struct line *l)
{
    size_t n = line_length(l);
    ensure(l->batch_digest.len == SHA256_HEX_LEN);
    ensure(l->content_hash.len == SHA256_HEX_LEN);
    ensure(l->event_hash.len == SHA256_HEX_LEN);
    ensure(l->event_id.len == UUID_TEXT_LEN);
    ensure(l->observed_at.len == TIMEFMT_MS_LEN);
    if (!buf_reserve(out, n)) {
        return;
    }
    char *start = out->ptr + out->len;
    char *p = put(start, P_DIGEST);
    p = put(p, l->batch_digest);
    p = put(p, P_BATCH_ID);
    p = put(p, l->batch_id);
    p = put(p, P_BATCH_LEN);
    out->len += (size_t)(p - start);
    buf_put_u64(out, l->batch_len);
    p = out->ptr + out->len;
    p = put(p, P_CONTENT);
    p = put(p, l->content_hash);
    p = put(p, P_EVENT_HASH);
    p = put(p, l->event_hash);
    p = put(p, P_EVENT_ID);
    p = put(p, l->event_id);
    p = put(p, P_KIND);
    p = put(p, l->kind);
    p = put(p, P_OBSERVED);
    p = put(p, l->observed_at);
    *p++ = '"';
    if (l->occurred_at.len != 0) {
        p = put(p, P_OCCURRED);
        p = put(p, l->occurred_at);
    }
    p = put(p, P_PAYLOAD);
    p = put(p, l->payload);
    p = put(p, P_KEY);
    p = put(p, l->record_key);
    p = put(p, P_SOURCE);
    p = put(p, l->source);
    p = put(p, P_STREAM);
    p = put(p, l->stream);
    *p++ = '}';
    *p++ = '\n';
    ensure((size_t)(p - start) == n);
    out->len = (size_t)(p - out->ptr);
}

/* A cursor over the text; every take fails when the text does not go on as asked. */
struct cut {
    const char *p, *end;
};

/* Inlined, so that the comparison with a text of known length is no call. */
__attribute__((always_inline)) static inline bool take(struct cut *c, struct slice lit)
{
    if ((size_t)(c->end - c->p) < lit.len || memcmp(c->p, lit.ptr, lit.len) != 0) {
        return false;
    }
    c->p += lit.len;
    return true;
}

static bool take_fixed(struct cut *c, size_t n, struct slice *out)
{
    if ((size_t)(c->end - c->p) < n) {
        return false;
    }
    *out = slice_of(c->p, n);
    c->p += n;
    return true;
}

static bool take_hex(struct cut *c, struct slice *out)
{
    return take_fixed(c, SHA256_HEX_LEN, out) && hex_is(*out);
}

/* A JSON string with its quotes: from the quote to the next quote that is not escaped. */
static bool take_string(struct cut *c, struct slice *out)
{
    const char *start = c->p;
    if (c->p == c->end || *c->p != '"') {
        return false;
    }
    const char *p = c->p + 1;
    for (;;) {
        const char *q = memchr(p, '"', (size_t)(c->end - p));
        if (q == NULL) {
            return false;
        }
        const char *b = q;
        while (b > start + 1 && b[-1] == '\\') {
            b--;
        }
        p = q + 1;
        if ((q - b) % 2 == 0) {
            break;
        }
    }
    *out = slice_of(start, (size_t)(p - start));
    c->p = p;
    return true;
}

static bool take_count(struct cut *c, uint32_t *out)
{
    const char *start = c->p;
    uint32_t v = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        if (c->p - start >= 6) {
            return false;
        }
        v = v * 10 + (uint32_t)(*c->p - '0');
        c->p++;
    }
    *out = v;
    return c->p > start && *start != '0';
}

/* Where the last `,"record_key":` begins, or NULL. Only the last LINE_FOOT_MAX bytes are looked at.
 */
static const char *find_foot(const char *from, const char *end)
{
    if ((size_t)(end - from) > LINE_FOOT_MAX) {
        from = end - LINE_FOOT_MAX;
    }
    struct slice key = P_KEY;
    const char *stop = end;
    while (stop > from) {
        const char *p = memrchr(from, ',', (size_t)(stop - from));
        if (p == NULL) {
            return NULL;
        }
        if ((size_t)(end - p) > key.len && memcmp(p, key.ptr, key.len) == 0 && p[key.len] == '"') {
            return p;
        }
        stop = p;
    }
    return NULL;
}

/* Up to the id; *rest is where the replayed rest begins. */
static bool take_head(struct cut *c, struct line *l, const char **rest)
{
    if (!take(c, P_DIGEST) || !take_hex(c, &l->batch_digest) || !take(c, P_BATCH_ID)) {
        return false;
    }
    const char *head = c->p - (P_BATCH_ID.len - 2); /* at `"batch_id":` */
    if (!take_string(c, &l->batch_id)) {
        return false;
    }
    l->replay_head = slice_of(head, (size_t)(c->p - head));
    if (!take(c, P_BATCH_LEN) || !take_count(c, &l->batch_len)) {
        return false;
    }
    *rest = c->p;
    return take(c, P_CONTENT) && take_hex(c, &l->content_hash) && take(c, P_EVENT_HASH) &&
           take_hex(c, &l->event_hash) && take(c, P_EVENT_ID) &&
           take_fixed(c, UUID_TEXT_LEN, &l->event_id) && uuid7_parse(l->event_id, &l->id);
}

bool line_parse_head(struct slice text, struct line *l)
{
    struct cut c = {text.ptr, text.ptr + text.len};
    const char *rest;
    return take_head(&c, l, &rest);
}

bool line_parse(struct slice text, struct line *l)
{
    struct cut c = {text.ptr, text.ptr + text.len};
    const char *rest;
    if (!take_head(&c, l, &rest) || !take(&c, P_KIND) || !take_string(&c, &l->kind) ||
        !take(&c, P_OBSERVED) || !take_fixed(&c, TIMEFMT_MS_LEN, &l->observed_at) ||
        !take(&c, SLICE("\""))) {
        return false;
    }
    l->occurred_at = (struct slice){0};
    if (take(&c, P_OCCURRED) && !take_string(&c, &l->occurred_at)) {
        return false;
    }
    if (!take(&c, P_PAYLOAD)) {
        return false;
    }
    const char *foot = find_foot(c.p, c.end);
    if (foot == NULL || foot == c.p) {
        return false;
    }
    l->payload = slice_of(c.p, (size_t)(foot - c.p));
    c.p = foot;
    if (!take(&c, P_KEY) || !take_string(&c, &l->record_key) || !take(&c, P_SOURCE) ||
        !take_string(&c, &l->source) || !take(&c, P_STREAM) || !take_string(&c, &l->stream) ||
        !take(&c, SLICE("}")) || c.p != c.end) {
        return false;
    }
    l->replay_rest = slice_of(rest, (size_t)(c.end - rest));
    return true;
}

struct chain_event line_envelope(const struct line *l)
{
    return (struct chain_event){.batch_id = l->batch_id,
                                .kind = l->kind,
                                .occurred_at = l->occurred_at,
                                .record_key = l->record_key,
                                .source = l->source,
                                .stream = l->stream,
                                .content_hash = l->content_hash,
                                .event_id = l->event_id,
                                .observed_at = l->observed_at};
}

void line_put_event(struct buf *out, const struct line *l)
{
    size_t n = line_event_bytes(l);
    if (!buf_reserve(out, n)) {
        return;
    }
    char *p = out->ptr + out->len;
    *p++ = '{';
    p = put(p, l->replay_head);
    (void)put(p, l->replay_rest);
    out->len += n;
}
