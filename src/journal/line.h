/* line: one stored event (spec/history.md section 11): the canonical form of the committed event
 * with batch_digest and batch_len, ended by LF. Members in this order:
 *
 *   {"batch_digest":"64 hex","batch_id":S,"batch_len":N,"content_hash":"64 hex",
 *    "event_hash":"64 hex","event_id":"uuid","kind":S,"observed_at":"24",["occurred_at":S,]
 *    "payload":V,"record_key":S,"source":S,"stream":S}        (without line breaks)
 *
 * On replay `"batch_digest":…,` and `,"batch_len":N` are cut out and the rest is sent as stored. */
#ifndef JOURNAL_LINE_H
#define JOURNAL_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "journal/chain.h"

/* Longest part of a line before "kind" begins, and after "payload" ends: bounds for reading only
 * these. batch_id: 256 bytes, at most 6 characters each when escaped; record_key: 1024. */
#define LINE_HEAD_MAX 2304
#define LINE_FOOT_MAX 6656

struct line {
    struct slice batch_digest; /* 64 digits, no quotes */
    struct slice
        batch_id; /* strings with quotes from here on, but for hashes, ids and observed_at */
    uint32_t batch_len;
    struct slice content_hash, event_hash;
    struct slice event_id;
    struct uuid id;
    struct slice kind;
    struct slice observed_at;
    struct slice occurred_at; /* empty: absent */
    struct slice payload;
    struct slice record_key, source, stream;
    struct slice replay_head; /* `"batch_id":S`: sent after '{' */
    struct slice replay_rest; /* from `,"content_hash"` to the closing brace */
};

/* Exact length of the line that line_put writes, LF included. Uses the lengths of the parts and
 * batch_len. */
size_t line_length(const struct line *l);
/* Appends the line with its LF. All parts but replay_* and id are used. */
void line_put(struct buf *out, const struct line *l);
/* Reads a line (without LF) back into slices of it. Strict about names, order, hexadecimal fields,
 * id and the shape of strings; the payload's inside is covered by content_hash and not looked at.
 * false: not such a line. */
bool line_parse(struct slice text, struct line *l);
/* The beginning of a line, up to and with its id, which may be all there is; as strict. Only
 * batch_digest, batch_id, batch_len, content_hash, event_hash, event_id and id are set. */
bool line_parse_head(struct slice text, struct line *l);
/* What event_hash covers. Borrows from l. */
struct chain_event line_envelope(const struct line *l);
/* Appends the event as replayed: no framing members, no LF. line_event_bytes is how long it is. */
void line_put_event(struct buf *out, const struct line *l);

static inline size_t line_event_bytes(const struct line *l)
{
    return 1 + l->replay_head.len + l->replay_rest.len;
}

/* The text between the quotes of a canonical string. */
static inline struct slice line_inner(struct slice string)
{
    ensure(string.len >= 2);
    return (struct slice){.ptr = string.ptr + 1, .len = string.len - 2};
}

#endif
