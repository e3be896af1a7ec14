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

#define REGION_MAX (UINT64_C(1) << 30)

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
    if (last != NULL) {
        struct event_id_parts l = event_id_split(last);
        if (p.tag != l.tag) {
            return true;
        }
        next = l.group + 1;
    }
    if (p.group > next || p.group + 1 < next) {
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

/* False for what is no payload but the end of a larger one, or has a hole: canonical text holds no
 * control byte, and a value closes no bracket that it did not open. */
static bool may_be_payload(struct slice payload)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < payload.len; i++) {
        char c = payload.ptr[i];
        if ((unsigned char)c < 0x20) {
            return false;
        }
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

/* Lines of one batch: no two batches have the same source and batch_id. */
static bool same_batch(const struct line *a, const struct line *b)
{
    return slice_eq(a->batch_digest, b->batch_digest) && slice_eq(a->batch_id, b->batch_id) &&
           slice_eq(a->source, b->source);
}

/* Looks for proven batches from the first invalid byte on. The one that begins there counts too: it
 * may be whole and only not follow what precedes it. The lines of a batch whose first line is gone
 * are passed over as lines of the same batch. */
int damage_find(int fd, uint64_t bad, struct slice region, const struct uuid *last, bool *damaged,
                struct err *e)
{
    struct scan s;
    struct evidence ev = {0};
    struct line failed = {0}; /* of the last failed candidate */
    const struct slice begin = SLICE("{\"batch_digest\":\"");
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
