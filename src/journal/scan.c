/* The proof of a batch, in this order: every line has the form of line.h; all lines of the batch
 * agree in batch_digest, batch_id, batch_len and source; each content_hash is that of the payload
 * bytes; each event_hash is that of the envelope; ids follow each other; the digest over all is the
 * one written. Every byte of a line is covered by one of these, so a changed byte anywhere is seen.
 * Lengths come from line ends inside the limit and from batch_len (at most 10,000); a batch of more
 * than SCAN_BATCH_BYTES_MAX is refused before memory is taken for it. */
#include "journal/scan.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/timefmt.h"
#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/journal.h"

#define SCAN_READ (256u << 10)
void scan_start(struct scan *s, int fd, uint64_t limit, const struct uuid *last_id,
                const uint8_t head[SHA256_LEN])
{
    scan_start_file(s, NULL, limit, last_id, head);
    s->own.fd = fd;
}

void scan_start_file(struct scan *s, const struct bytes_file *file, uint64_t limit,
                     const struct uuid *last_id, const uint8_t head[SHA256_LEN])
{
    *s = (struct scan){.limit = limit, .check_order = true};
    if (file != NULL) {
        /* Without the block checksums: the proof of a batch is more than they say, and tells the
         * place of damage to the batch. A segment checks its blocks all the same. Not `users`
         * either: that is for whoever has the journal's lock. */
        s->own =
            (struct bytes_file){.fd = file->fd, .ordinal = file->ordinal, .segment = file->segment};
    }
    bytes_start(&s->bytes, &s->own);
    if (last_id != NULL) {
        s->has_last = true;
        s->last_id = *last_id;
    }
    memcpy(s->head, head, SHA256_LEN);
    buf_init(&s->window, SCAN_BATCH_BYTES_MAX + SCAN_READ);
}

void scan_stop(struct scan *s)
{
    bytes_stop(&s->bytes);
    buf_free(&s->window);
    buf_free(&s->scratch);
    free(s->lines);
    s->lines = NULL;
}

void scan_jump(struct scan *s, uint64_t offset)
{
    s->offset = offset;
    s->has_last = false;
    s->origin = ORIGIN_UNKNOWN;
    s->fault = SCAN_FAULT_NONE;
}

static int fault(struct scan *s, struct err *e, enum scan_fault f, const char *why)
{
    s->fault = f;
    s->why = why;
    return err_set_at(e, ERR_CORRUPT, s->offset, "%s", why);
}

/* Makes the window begin at s->offset, dropping what lies before. */
static void window_align(struct scan *s)
{
    if (s->offset < s->window_offset || s->offset > s->window_offset + s->window.len) {
        buf_clear(&s->window);
        s->window_offset = s->offset;
        return;
    }
    size_t drop = (size_t)(s->offset - s->window_offset);
    if (drop > 0) {
        memmove(s->window.ptr, s->window.ptr + drop, s->window.len - drop);
        s->window.len -= drop;
        s->window_offset = s->offset;
    }
}

/* Reads one more piece behind the window. 1: got bytes, 0: at the limit or end of file, negative:
 * failed. */
static int window_more(struct scan *s, struct err *e)
{
    uint64_t at = s->window_offset + s->window.len;
    if (at >= s->limit) {
        return 0;
    }
    uint64_t want = s->limit - at < SCAN_READ ? s->limit - at : SCAN_READ;
    if (!buf_reserve(&s->window, (size_t)want)) {
        return err_set_at(e, ERR_NO_MEMORY, s->offset, "no memory for a batch");
    }
    int64_t n = bytes_read(&s->bytes, s->window.ptr + s->window.len, (size_t)want, at, e);
    if (n == ERR_CORRUPT) {
        return fault(s, e, SCAN_FAULT_FRAMING, "bytes that do not have their checksum");
    }
    if (n < 0) {
        return (int)n;
    }
    s->window.len += (size_t)n;
    return n > 0 ? 1 : 0;
}

/* Position behind the LF of the line that begins at window position `from`; 0: the data ends first.
 */
static int window_line(struct scan *s, size_t from, size_t *end, struct err *e)
{
    size_t looked = from;
    for (;;) {
        if (s->window.len > looked) {
            const char *lf = memchr(s->window.ptr + looked, '\n', s->window.len - looked);
            if (lf != NULL) {
                *end = (size_t)(lf - s->window.ptr) + 1;
                return 1;
            }
            looked = s->window.len;
        }
        if (s->window.len >= SCAN_BATCH_BYTES_MAX) {
            return 0;
        }
        int r = window_more(s, e);
        if (r <= 0) {
            return r;
        }
    }
}

static int lines_reserve(struct scan *s, uint32_t n, struct err *e)
{
    if (n <= s->lines_cap) {
        return 0;
    }
    struct line *lines = realloc(s->lines, n * sizeof *lines);
    if (lines == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a batch of %u events", n);
    }
    s->lines = lines;
    s->lines_cap = n;
    return 0;
}

/* Finds the whole batch in the window: *bytes and the count of its lines. */
static int frame_batch(struct scan *s, size_t *bytes, uint32_t *count, struct err *e)
{
    struct line first;
    size_t end;
    size_t at = 0;
    uint32_t n = 1;
    for (uint32_t i = 0; i < n; i++) {
        int r = window_line(s, at, &end, e);
        if (r < 0) {
            return r;
        }
        if (r == 0) {
            return fault(s, e, SCAN_FAULT_FRAMING,
                         i == 0 ? "a line without an end" : "a batch that is not whole");
        }
        if (i == 0) {
            if (!line_parse(slice_of(s->window.ptr, end - 1), &first) || first.batch_len == 0 ||
                first.batch_len > JOURNAL_BATCH_EVENTS_MAX) {
                return fault(s, e, SCAN_FAULT_FRAMING, "not a line of the journal");
            }
            n = first.batch_len;
        }
        at = end;
    }
    *bytes = at;
    *count = n;
    return 0;
}

static bool same_frame(const struct line *a, const struct line *b)
{
    return a->batch_len == b->batch_len && slice_eq(a->batch_digest, b->batch_digest) &&
           slice_eq(a->batch_id, b->batch_id) && slice_eq(a->source, b->source);
}

/* Hashes of one line. head moves on. */
static int prove_line(struct scan *s, const struct line *l, uint8_t head[SHA256_LEN], struct err *e)
{
    uint8_t want[SHA256_LEN];
    uint8_t got[SHA256_LEN];
    bool ok = hex_decode(want, l->content_hash, SHA256_LEN);
    ensure(ok);
    sha256_once(l->payload, got);
    if (memcmp(want, got, SHA256_LEN) != 0) {
        return fault(s, e, SCAN_FAULT_CONTENT, "a payload does not have its content_hash");
    }
    struct chain_event ev = line_envelope(l);
    if (!chain_event_hash(&ev, &s->scratch, got)) {
        return err_set(e, ERR_NO_MEMORY, "no memory to hash an event");
    }
    ok = hex_decode(want, l->event_hash, SHA256_LEN);
    ensure(ok);
    if (memcmp(want, got, SHA256_LEN) != 0) {
        return fault(s, e, SCAN_FAULT_EVENT, "an event does not have its event_hash");
    }
    chain_step(head, got);
    return 0;
}

/* What is known of the origin behind the first line of a batch. */
static enum origin origin_of(const struct scan *s, const struct line *first, uint64_t *observed_ms)
{
    bool known = timefmt_parse_ms(first->observed_at, observed_ms);
    *observed_ms = known ? *observed_ms : 0;
    return origin_behind(s->origin, s->has_last ? &s->last_id : NULL, &first->id,
                         known && *observed_ms == event_id_split(&first->id).ms);
}

/* Parses the framed lines into s->lines and checks that they are one batch in order. */
static int parse_batch(struct scan *s, size_t bytes, uint32_t count, struct err *e)
{
    enum origin origin = ORIGIN_UNKNOWN;
    uint64_t observed_ms;
    int r = lines_reserve(s, count, e);
    if (r != 0) {
        return r;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const char *lf = memchr(s->window.ptr + at, '\n', bytes - at);
        ensure(lf != NULL);
        size_t end = (size_t)(lf - s->window.ptr);
        if (!line_parse(slice_of(s->window.ptr + at, end - at), &s->lines[i])) {
            return fault(s, e, SCAN_FAULT_FRAMING, "not a line of the journal");
        }
        if (i > 0 && !same_frame(&s->lines[0], &s->lines[i])) {
            return fault(s, e, SCAN_FAULT_FRAMING, "a batch mixed with another");
        }
        origin = i == 0 ? origin_of(s, &s->lines[0], &observed_ms) : origin;
        bool follows = i > 0 ? origin_follows(origin, &s->lines[i - 1].id, &s->lines[i].id)
                             : !s->has_last || origin_follows(origin, &s->last_id, &s->lines[0].id);
        if (s->check_order && !follows) {
            return fault(s, e, SCAN_FAULT_ORDER,
                         "an event id that does not follow the one before it");
        }
        at = end + 1;
    }
    ensure(at == bytes);
    return 0;
}

static int prove_batch(struct scan *s, uint32_t count, uint8_t head[SHA256_LEN],
                       uint8_t digest[SHA256_LEN], struct err *e)
{
    struct chain_digest d;
    chain_digest_start(&d);
    for (uint32_t i = 0; i < count; i++) {
        const struct line *l = &s->lines[i];
        int r = prove_line(s, l, head, e);
        if (r != 0) {
            return r;
        }
        if (!chain_digest_event(&d, &s->scratch, l->content_hash, l->kind, l->occurred_at,
                                l->record_key, l->stream)) {
            return err_set(e, ERR_NO_MEMORY, "no memory to hash a batch");
        }
    }
    chain_digest_end(&d, s->lines[0].source, digest);
    uint8_t want[SHA256_LEN];
    bool ok = hex_decode(want, s->lines[0].batch_digest, SHA256_LEN);
    ensure(ok);
    if (memcmp(want, digest, SHA256_LEN) != 0) {
        return fault(s, e, SCAN_FAULT_DIGEST, "a batch does not have its batch_digest");
    }
    return 0;
}

int scan_next(struct scan *s, struct scan_batch *b, scan_line_fn *fn, void *ctx, struct err *e)
{
    window_align(s);
    if (s->window.len == 0) {
        int r = window_more(s, e);
        if (r <= 0) {
            return r;
        }
    }
    if (s->window.ptr[0] == '\0') {
        return 0;
    }
    size_t bytes = 0;
    uint32_t count = 0;
    int r = frame_batch(s, &bytes, &count, e);
    if (r == 0) {
        r = parse_batch(s, bytes, count, e);
    }
    uint8_t head[SHA256_LEN];
    memcpy(head, s->head, SHA256_LEN);
    if (r == 0 && !s->framing_only) {
        r = prove_batch(s, count, head, b->digest, e);
    }
    if (r != 0) {
        return r;
    }
    ensure(count > 0);
    for (uint32_t i = 0; i < count && fn != NULL; i++) {
        r = fn(ctx, &s->lines[i]);
        if (r != 0) {
            return r == ERR_NO_MEMORY ? err_set(e, r, "no memory for what a batch says") : r;
        }
    }
    b->offset = s->offset;
    b->bytes = bytes;
    b->events = count;
    b->first_id = s->lines[0].id;
    b->last_id = s->lines[count - 1].id;
    b->source = s->lines[0].source;
    b->batch_id = s->lines[0].batch_id;
    memcpy(s->head, head, SHA256_LEN);
    s->origin = origin_of(s, &s->lines[0], &s->observed_ms);
    s->has_last = true;
    s->last_id = b->last_id;
    s->events += count;
    s->offset += bytes;
    return 1;
}

const char *scan_batch_lines(const struct scan *s, const struct scan_batch *b)
{
    ensure(b->offset >= s->window_offset);
    ensure(b->offset - s->window_offset + b->bytes <= s->window.len);
    return s->window.ptr + (b->offset - s->window_offset);
}
