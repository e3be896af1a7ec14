/* Telling a torn last group from damage; the rule is in damage.h.
 *
 * Candidates for a batch begin where a line's first member does, whatever stands before: so a line
 * is found although the line end before it is damaged. A payload may hold an object that is a
 * perfect copy of a line, with hashes that hold; it must not be taken for one, or a client could
 * make a torn group look like damage. It gives itself away by its end: what would be its payload
 * closes the bracket of an object that it did not open. (Inside strings the quotes would be
 * escaped.)
 *
 * Candidates are proven by scan.c like any other batch. A failed one is remembered, so that the
 * thousands of lines of one broken batch cost one look. Its digest alone would not do: batches with
 * the same events have the same digest. */
#include "journal/damage.h"

#include <stdlib.h>

#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/line.h"
#include "journal/scan.h"
#include "os/os.h"

#define BEGIN      "{\"batch_digest\":\""
#define REGION_MAX (UINT64_C(1) << 30)

static const struct slice begin = {.ptr = BEGIN, .len = sizeof BEGIN - 1};

static int shrunk(struct err *e)
{
    return err_set(e, ERR_NOT_READY, "tail.ndjson became shorter while it was read");
}

int damage_data_end(int fd, uint64_t from, uint64_t size, uint64_t *end, struct err *e)
{
    static const uint64_t piece_max = 256u << 10;
    char *piece = malloc(piece_max);
    if (piece == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to look at the tail");
    }
    int r = 0;
    *end = from;
    for (uint64_t at = from; at < size;) {
        uint64_t want = size - at < piece_max ? size - at : piece_max;
        int64_t n = os_pread_full(fd, piece, (size_t)want, at);
        if (n <= 0) {
            r = n < 0 ? err_os(e, (int)n, "read", "tail.ndjson") : shrunk(e);
            break;
        }
        for (int64_t i = n; i > 0; i--) {
            if (piece[i - 1] != '\0') {
                *end = at + (uint64_t)i;
                break;
            }
        }
        at += (uint64_t)n;
    }
    free(piece);
    return r;
}

struct evidence {
    bool any;
    uint64_t group;
};

/* What a proven batch behind the invalid bytes says; true: damage is proven. */
static bool judge(const struct uuid *last, const struct scan_batch *b, struct evidence *ev)
{
    struct event_id_parts p = event_id_split(&b->first_id);
    uint64_t next = 0;
    uint64_t same = 0;
    if (last != NULL) {
        struct event_id_parts l = event_id_split(last);
        if (p.tag != l.tag) {
            return true;
        }
        same = l.group;
        next = event_id_next_group(same);
    }
    if (p.group != next && p.group != same) {
        return true;
    }
    if (p.group == next && p.index == 0) {
        return true;
    }
    if (ev->any && ev->group != p.group) {
        return true;
    }
    ev->any = true;
    ev->group = p.group;
    return false;
}

/* False for what is no payload but the end of a larger one, or that and more: a value closes no
 * bracket that it did not open. */
static bool is_one_value(struct slice payload)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < payload.len; i++) {
        char c = payload.ptr[i];
        if (in_string && c == '\\') {
            i++;
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == '{' || c == '[')) {
            depth++;
        } else if (!in_string && (c == '}' || c == ']')) {
            if (depth == 0) {
                return false;
            }
            depth--;
        }
    }
    return true;
}

/* The same, and false when it has a hole: canonical text holds no control byte. */
static bool may_be_payload(struct slice payload)
{
    for (size_t i = 0; i < payload.len; i++) {
        if ((unsigned char)payload.ptr[i] < 0x20) {
            return false;
        }
    }
    return is_one_value(payload);
}

/* Lines of one batch: no two batches have the same source and batch_id. */
static bool same_batch(const struct line *a, const struct line *b)
{
    return slice_eq(a->batch_digest, b->batch_digest) && slice_eq(a->batch_id, b->batch_id) &&
           slice_eq(a->source, b->source);
}

/* Looks for proven batches from the first invalid byte on. The one that begins there counts too: it
 * may be whole and only not follow what precedes it. The lines of a batch whose first line is gone
 * are passed over as lines of the same batch. */
static int find_own(int fd, uint64_t bad, struct slice region, const struct uuid *last,
                    bool *damaged, struct err *e)
{
    struct scan s;
    struct evidence ev = {0};
    struct line failed = {0}; /* of the last failed candidate */
    const char *region_end = region.ptr + region.len;
    const char *lf = NULL; /* the first line end behind the candidate */
    int r = 0;
    scan_start(&s, fd, bad + region.len, NULL, chain_genesis);
    *damaged = false;
    for (size_t at = 0; at < region.len && !*damaged;) {
        const char *p = memmem(region.ptr + at, region.len - at, begin.ptr, begin.len);
        if (p != NULL && (lf == NULL || lf < p)) {
            lf = memchr(p, '\n', (size_t)(region_end - p));
        }
        if (p == NULL || lf == NULL) {
            break;
        }
        at = (size_t)(p - region.ptr) + 1;
        struct line l;
        if (!line_parse(slice_of(p, (size_t)(lf - p)), &l) || same_batch(&failed, &l) ||
            !may_be_payload(l.payload)) {
            continue;
        }
        struct scan_batch b;
        scan_jump(&s, bad + (uint64_t)(p - region.ptr));
        r = scan_next(&s, &b, NULL, NULL, e);
        if (r == 1) {
            at = (size_t)(b.offset + b.bytes - bad);
            *damaged = judge(last, &b, &ev);
        } else if (r == ERR_CORRUPT) {
            failed = l; /* slices of region */
        } else {
            break;
        }
        r = 0;
    }
    scan_stop(&s);
    return r;
}

/* ---- another program's ---- */

static bool is_ours(struct slice region, const struct damage_past *past)
{
    struct line l;
    if (!line_parse_head(region, &l)) {
        return past->closed ? past->origin == ORIGIN_OWN : true;
    }
    struct event_id_parts p = event_id_split(&l.id);
    if (past->last == NULL) {
        /* With tag 0 it may be a plain counter. */
        return p.group == 0 && p.index == 0 && (p.tag != 0 || !past->closed);
    }
    struct event_id_parts before = event_id_split(past->last);
    return p.tag == before.tag &&
           (p.group == event_id_next_group(before.group) ||
            (p.group == before.group && (past->origin == ORIGIN_OWN || !past->closed)));
}

/* What stands behind the last line end: a part of a line, and not a whole one whose line end is
 * another byte now. */
static bool may_be_torn(struct slice piece)
{
    struct line l;
    size_t n = piece.len < begin.len ? piece.len : begin.len;
    return memcmp(piece.ptr, begin.ptr, n) == 0 &&
           (piece.len < 2 || !line_parse(slice_of(piece.ptr, piece.len - 1), &l));
}

/* Whole lines of a batch of which more should come: false when they have the digest already, so
 * that it is batch_len that is wrong. */
struct cut_batch {
    struct line first;
    uint32_t lines;
    struct chain_digest digest;
    struct buf scratch;
};

static bool more_lines(struct cut_batch *b, const struct line *l)
{
    if (b->lines == 0) {
        b->first = *l;
        chain_digest_start(&b->digest);
    }
    b->lines++;
    return same_batch(&b->first, l) && b->first.batch_len == l->batch_len &&
           b->lines < b->first.batch_len &&
           chain_digest_event(&b->digest, &b->scratch, l->content_hash, l->kind, l->occurred_at,
                              l->record_key, l->stream);
}

static bool has_digest(struct cut_batch *b)
{
    uint8_t want[SHA256_LEN];
    uint8_t got[SHA256_LEN];
    chain_digest_end(&b->digest, b->first.source, got);
    return hex_decode(want, b->first.batch_digest, SHA256_LEN) &&
           memcmp(want, got, SHA256_LEN) == 0;
}

/* True when the region is the beginning of one batch that is not whole. */
static bool is_cut_batch(struct slice region)
{
    struct cut_batch b = {0};
    struct line l;
    bool ok = true;
    while (ok && region.len > 0) {
        const char *lf = memchr(region.ptr, '\n', region.len);
        if (lf == NULL) {
            ok = may_be_torn(region);
            break;
        }
        size_t n = (size_t)(lf - region.ptr);
        ok = line_parse(slice_of(region.ptr, n), &l) && is_one_value(l.payload) &&
             more_lines(&b, &l);
        region = slice_from(region, n + 1);
    }
    ok = ok && !b.scratch.failed && (b.lines == 0 || !has_digest(&b));
    buf_free(&b.scratch);
    return ok;
}

int damage_find(int fd, uint64_t bad, struct slice region, const struct damage_past *past,
                bool *damaged, struct err *e)
{
    if (!is_ours(region, past)) {
        *damaged = !is_cut_batch(region);
        return 0;
    }
    *damaged = past->closed;
    return past->closed ? 0 : find_own(fd, bad, region, past->last, damaged, e);
}

int damage_read(int fd, uint64_t from, uint64_t to, char **out, struct err *e)
{
    if (to - from > REGION_MAX) {
        return err_set_at(e, ERR_CORRUPT, from, "more invalid bytes than a group can leave");
    }
    char *p = malloc((size_t)(to - from));
    if (p == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to look at the tail");
    }
    int64_t n = os_pread_full(fd, p, (size_t)(to - from), from);
    if (n != (int64_t)(to - from)) {
        free(p);
        return n < 0 ? err_os(e, (int)n, "read", "tail.ndjson") : shrunk(e);
    }
    *out = p;
    return 0;
}
