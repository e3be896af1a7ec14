/* Readers. A position is a generation and a byte offset at a line's start. Inside a generation ids
 * rise with offsets, so a cursor is found by halving over bytes: from any byte the next line start
 * is behind the next LF.
 *
 * Lines are taken apart on the way out; a line that does not parse is ERR_CORRUPT and ends the
 * reading: nothing is skipped. */
#include "journal/read.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "journal/internal.h"
#include "journal/scan.h"
#include "journal/skip.h"

#define WINDOW         (256u << 10)
#define SEEK_PIECE     (8u << 10)
#define LAST_CHUNK     (64u << 10)
#define REST_PIECE     (64u << 10) /* of a reader that rests: more would be read twice */
#define LINE_MAX_BYTES (SCAN_BATCH_BYTES_MAX)

struct journal_reader {
    struct journal *j;
    struct journal_filter filter;
    struct journal_frontier snapshot;
    struct uuid through;
    uint32_t end_generation; /* ordinal of the last one to read */
    uint64_t end_offset;     /* bytes of it that belong to the snapshot */
    bool stop_at_through;    /* end by id: `through` was given */
    bool done;
    uint32_t generation;
    uint64_t offset;
    struct generation *held; /* its file is ours to read */
    struct bytes_file *file;
    struct bytes_reader bytes;
    struct buf window;
    uint64_t window_offset;
    size_t next;  /* of the next line in the window */
    size_t last;  /* length of the line before it, when that was the last one given; else 0 */
    size_t piece; /* bytes read at a time: small while seeking */
};

/* ---- generations ---- */

static struct generation *generation_at(struct journal *j, uint32_t n)
{
    pthread_mutex_lock(&j->lock);
    struct generation *g = n < j->generation_count ? j->generations[n] : NULL;
    pthread_mutex_unlock(&j->lock);
    return g;
}

/* Bytes of generation n that are in the snapshot. */
static uint64_t generation_limit(const struct journal_reader *r, const struct generation *g)
{
    if (g->ordinal == r->end_generation) {
        return r->end_offset;
    }
    pthread_mutex_lock(&r->j->lock);
    uint64_t bytes = g->bytes;
    pthread_mutex_unlock(&r->j->lock);
    return bytes;
}

static void let_go(struct journal_reader *r)
{
    if (r->held != NULL) {
        bytes_stop(&r->bytes);
        journal_release(r->j, r->held, r->file);
        r->held = NULL;
    }
}

static int hold(struct journal_reader *r, uint32_t n, struct err *e)
{
    if (r->held != NULL && r->held->ordinal == n) {
        return 0;
    }
    let_go(r);
    struct generation *g = generation_at(r->j, n);
    if (g == NULL) {
        return err_set(e, ERR_CORRUPT, "generation %u lies behind damage that was found", n);
    }
    int code = journal_hold(r->j, g, &r->file, e);
    if (code != 0) {
        return code;
    }
    bytes_start(&r->bytes, r->file);
    r->held = g;
    return 0;
}

/* First generation whose last id is above `after`; end_generation + 1 when none is. */
static uint32_t find_generation(struct journal *j, uint32_t end, const struct uuid *after)
{
    uint32_t lo = 0;
    uint32_t hi = end + 1;
    pthread_mutex_lock(&j->lock);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct generation *g = j->generations[mid];
        if (g->events > 0 && uuid_cmp(&g->last_id, after) <= 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    pthread_mutex_unlock(&j->lock);
    return lo;
}

/* ---- lines ---- */

static int corrupt(const struct journal_reader *r, uint64_t offset, struct err *e)
{
    return err_set_at(e, ERR_CORRUPT, offset, "generation %u: no line of the journal at byte %llu",
                      r->generation, (unsigned long long)offset);
}

/* A whole line is at window position `next`; *len is its length with LF. */
static bool has_line(const struct journal_reader *r, size_t *len)
{
    size_t have = r->window.len - r->next;
    const char *p = r->window.ptr + r->next;
    const char *lf = have > 0 ? memchr(p, '\n', have) : NULL;
    if (lf == NULL) {
        return false;
    }
    *len = (size_t)(lf - p) + 1;
    return true;
}

/* Puts at least one whole line at window position `next`, of the held generation up to limit. 1:
 * *len is its length with LF; 0: at the limit. */
static int fill_line(struct journal_reader *r, uint64_t limit, size_t *len, struct err *e)
{
    for (;;) {
        if (has_line(r, len)) {
            return 1;
        }
        size_t have = r->window.len - r->next;
        uint64_t at = r->window_offset + r->window.len;
        if (at >= limit) { /* above it: damage was found there meanwhile */
            return have == 0 && at == limit ? 0 : corrupt(r, r->window_offset + r->next, e);
        }
        if (r->next > 0) {
            memmove(r->window.ptr, r->window.ptr + r->next, have);
            r->window.len = have;
            r->window_offset += r->next;
            r->next = 0;
        }
        uint64_t want = have < r->piece ? r->piece : have;
        if (want > LINE_MAX_BYTES - have) {
            want = LINE_MAX_BYTES - have;
        }
        if (want > limit - at) {
            want = limit - at;
        }
        if (!buf_reserve(&r->window, (size_t)want)) {
            return err_set(e, ERR_NO_MEMORY, "no memory for a line");
        }
        int64_t n = bytes_read(&r->bytes, r->window.ptr + r->window.len, (size_t)want, at, e);
        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            return corrupt(r, at, e);
        }
        r->window.len += (size_t)n;
    }
}

static void place(struct journal_reader *r, uint32_t generation, uint64_t offset)
{
    r->generation = generation;
    r->offset = offset;
    r->window_offset = offset;
    r->next = 0;
    r->last = 0;
    if (r->window.cap > 2 * WINDOW) {
        buf_free(&r->window);
    }
    buf_clear(&r->window);
}

static bool matches(const struct journal_filter *f, const struct line *l)
{
    return (f->source.ptr == NULL || slice_eq(f->source, l->source)) &&
           (f->stream.ptr == NULL || slice_eq(f->stream, l->stream)) &&
           (f->kind.ptr == NULL || slice_eq(f->kind, l->kind)) &&
           (f->record_key.ptr == NULL || slice_eq(f->record_key, l->record_key));
}

/* The next line whatever the filter; moves on to the next generation. */
static int next_line(struct journal_reader *r, struct line *l, size_t *len, struct err *e)
{
    while (!r->done && r->generation <= r->end_generation) {
        if (r->offset == 0 && r->window.len == 0 &&
            journal_skips(r->j, r->generation, &r->filter)) {
            place(r, r->generation + 1, 0);
            continue;
        }
        int code = hold(r, r->generation, e);
        if (code != 0) {
            return code;
        }
        /* Where it ends is only asked when the window does: that takes the writer's lock. */
        code = has_line(r, len) ? 1 : fill_line(r, generation_limit(r, r->held), len, e);
        if (code < 0) {
            return code;
        }
        if (code == 0) {
            place(r, r->generation + 1, 0);
            continue;
        }
        if (!line_parse(slice_of(r->window.ptr + r->next, *len - 1), l)) {
            return corrupt(r, r->window_offset + r->next, e);
        }
        if (r->stop_at_through && uuid_cmp(&l->id, &r->through) > 0) {
            break;
        }
        r->next += *len;
        r->last = *len;
        r->offset = r->window_offset + r->next;
        return 1;
    }
    r->done = true;
    let_go(r);
    return 0;
}

int journal_reader_next(struct journal_reader *r, struct line *l, uint64_t budget_bytes,
                        struct err *e)
{
    uint64_t looked = 0;
    for (;;) {
        size_t len = 0;
        int code = next_line(r, l, &len, e);
        if (code != 1 || matches(&r->filter, l)) {
            return code;
        }
        looked += len;
        if (budget_bytes != 0 && looked >= budget_bytes) {
            return ERR_NOT_READY;
        }
    }
}

/* ---- seeking ---- */

/* Start and id of the first line at or behind byte `at` of the held generation, below limit. 0:
 * none begins there. */
static int line_from(struct journal_reader *r, uint64_t at, uint64_t limit, uint64_t *start,
                     struct uuid *id, struct err *e)
{
    place(r, r->generation, at == 0 ? 0 : at - 1);
    size_t len;
    if (at > 0) {
        int code = fill_line(r, limit, &len, e); /* up to the LF that ends the line before */
        if (code <= 0) {
            return code;
        }
        r->next += len;
    }
    int code = fill_line(r, limit, &len, e);
    if (code <= 0) {
        return code;
    }
    struct line l;
    if (!line_parse(slice_of(r->window.ptr + r->next, len - 1), &l)) {
        return corrupt(r, r->window_offset + r->next, e);
    }
    *start = r->window_offset + r->next;
    *id = l.id;
    return 1;
}

/* Offset of the first line with an id above `after` in the held generation. */
static int seek_in_generation(struct journal_reader *r, const struct uuid *after, uint64_t limit,
                              uint64_t *offset, struct err *e)
{
    uint64_t lo = 0; /* every line that starts below lo is not above `after` */
    uint64_t hi = limit;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        uint64_t start;
        struct uuid id;
        int code = line_from(r, mid, limit, &start, &id, e);
        if (code < 0) {
            return code;
        }
        if (code == 0 || uuid_cmp(&id, after) > 0) {
            hi = mid;
        } else {
            lo = start + 1;
        }
    }
    /* lo is at most one line start away from the first line above. */
    uint64_t start;
    struct uuid id;
    int code = line_from(r, lo, limit, &start, &id, e);
    if (code < 0) {
        return code;
    }
    *offset = code == 0 ? limit : start;
    return 0;
}

static int seek(struct journal_reader *r, const struct uuid *after, struct err *e)
{
    uint32_t n = find_generation(r->j, r->end_generation, after);
    if (n > r->end_generation) {
        r->done = true;
        return 0;
    }
    place(r, n, 0);
    int code = hold(r, n, e);
    if (code != 0) {
        return code;
    }
    uint64_t offset = 0;
    r->piece = SEEK_PIECE;
    code = seek_in_generation(r, after, generation_limit(r, r->held), &offset, e);
    r->piece = WINDOW;
    place(r, n, offset);
    return code;
}

int journal_reader_open(struct journal *j, const struct uuid *after, const struct uuid *through,
                        const struct journal_filter *filter, struct journal_frontier *snapshot,
                        struct journal_reader **out, struct err *e)
{
    struct journal_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a reader");
    }
    r->j = j;
    r->piece = WINDOW;
    buf_init(&r->window, LINE_MAX_BYTES);
    if (filter != NULL) {
        r->filter = *filter;
    }
    pthread_mutex_lock(&j->lock);
    r->snapshot = j->frontier;
    r->done = j->frontier.empty || j->generation_count == 0;
    if (!r->done) {
        const struct generation *tail = j->generations[j->generation_count - 1];
        r->end_generation = tail->ordinal;
        r->end_offset = tail->bytes;
    }
    pthread_mutex_unlock(&j->lock);
    if (through != NULL && !r->done) {
        r->stop_at_through = true;
        r->through = *through;
        r->snapshot.last_id = *through;
    }
    int code = after != NULL && !r->done ? seek(r, after, e) : 0;
    let_go(r);
    if (code != 0) {
        journal_reader_close(r);
        return code;
    }
    if (snapshot != NULL) {
        *snapshot = r->snapshot;
    }
    *out = r;
    return 0;
}

void journal_reader_close(struct journal_reader *r)
{
    let_go(r);
    buf_free(&r->window);
    free(r);
}

void journal_reader_again(struct journal_reader *r)
{
    ensure(r->last > 0);
    place(r, r->generation, r->offset - r->last);
}

void journal_reader_rest(struct journal_reader *r)
{
    size_t last = r->last;
    let_go(r);
    r->piece = REST_PIECE;
    place(r, r->generation, r->window_offset + r->next);
    r->last = last;
    buf_free(&r->window);
}

/* ---- the last n ---- */

/* Counts matching lines of [from, limit) of the held generation, from a line's start. With skip not
 * negative it stops at the matching line with that number and puts its start into *start. */
static int count_matches(struct journal_reader *r, uint64_t from, uint64_t limit, int64_t skip,
                         uint64_t *count, uint64_t *start, struct err *e)
{
    struct line l;
    size_t len;
    int code;
    *count = 0;
    place(r, r->generation, from);
    while ((code = fill_line(r, limit, &len, e)) == 1) {
        if (!line_parse(slice_of(r->window.ptr + r->next, len - 1), &l)) {
            return corrupt(r, r->window_offset + r->next, e);
        }
        if (matches(&r->filter, &l)) {
            if (skip >= 0 && *count == (uint64_t)skip) {
                *start = r->window_offset + r->next;
                return 0;
            }
            (*count)++;
        }
        r->next += len;
    }
    return code;
}

/* How many of the last `want` matching lines are in generation n, and where the first of these
 * begins. Looks at ever larger ends of the file until there are enough, so the cost follows the
 * answer and not the generation. */
static int last_in_generation(struct journal_reader *r, uint32_t n, uint64_t want, uint64_t *found,
                              uint64_t *start, struct err *e)
{
    place(r, n, 0);
    int code = hold(r, n, e);
    if (code != 0) {
        return code;
    }
    uint64_t limit = generation_limit(r, r->held);
    uint64_t chunk = LAST_CHUNK;
    uint64_t from = 0;
    uint64_t total = 0;
    for (;;) {
        struct uuid id;
        from = limit > chunk ? limit - chunk : 0;
        code = from > 0 ? line_from(r, from, limit, &from, &id, e) : 1;
        if (code == 1) {
            code = count_matches(r, from, limit, -1, &total, start, e);
        }
        if (code < 0) {
            return code;
        }
        if (total >= want || from == 0) {
            break;
        }
        chunk *= 4;
    }
    *found = total < want ? total : want;
    if (*found == 0) {
        return 0;
    }
    uint64_t again;
    return count_matches(r, from, limit, (int64_t)(total - *found), &again, start, e);
}

int journal_reader_last(struct journal_reader *r, uint64_t n, struct err *e)
{
    if (r->done) {
        return 0;
    }
    uint64_t wanted = n;
    uint32_t g = r->end_generation + 1;
    uint32_t best = 0;
    uint64_t best_offset = 0;
    bool any = false;
    while (g > 0 && wanted > 0) {
        g--;
        if (journal_skips(r->j, g, &r->filter)) {
            continue;
        }
        uint64_t found = 0;
        uint64_t start = 0;
        int code = last_in_generation(r, g, wanted, &found, &start, e);
        if (code != 0) {
            return code;
        }
        if (found > 0) {
            any = true;
            best = g;
            best_offset = start;
            wanted -= found;
        }
    }
    let_go(r);
    if (!any) {
        r->done = true;
        return 0;
    }
    place(r, best, best_offset);
    return 0;
}
