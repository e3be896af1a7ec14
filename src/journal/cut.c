/* cut: inventory and end of a copy.
 *
 * Order. First the tail is opened and the closed generations are listed, again and again until no
 * rotation came between; only then the server is asked for its frontier. So the tail that is held
 * has everything that was acknowledged before the call, and is cut behind the last batch that is
 * not above the frontier: all of it is durable and was, or might have been, acknowledged. If the
 * server has rotated by then, the held file is closed and all of it is committed. What begins in it
 * above the frontier is a group in flight, which nobody was told of.
 *
 * Sealing replaces plain files by segments from the oldest on, and says so in the manifest, to
 * which records are only added. The caller copies from the newest to the oldest: once a plain file
 * has vanished, everything older is sealed too. So the copy is a row of segments, then of plain
 * files, and its manifest is a beginning of the manifest: up to the record of the newest segment
 * copied.
 *
 * Without a server the tail may be torn. verify, which tells a torn group from damage as recovery
 * does, judges it; of a torn one the copy has what recovery would keep.
 *
 * Power failure: nothing is written here. Answers: all errors. */
#include "journal/cut.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/scan.h"
#include "journal/verify.h"
#include "os/os.h"
#include "json/read.h"

#define INVENTORY_NS UINT64_C(10000000000)
#define MANIFEST_MAX (UINT64_C(1) << 30)

struct cut_segment {
    struct uuid first_id, last_id;
    size_t path_at, path_len; /* in the manifest's bytes */
    size_t end;               /* of its record, the line feed too */
};

/* ---- the manifest ---- */

static bool member_id(struct slice record, struct slice name, struct uuid *out)
{
    struct slice value;
    struct slice inner;
    return json_member(record, name, &value) && json_string_raw(value, &inner) &&
           uuid7_parse(inner, out);
}

static bool path_is_plain(struct slice s)
{
    struct slice folder = SLICE("segments/");
    return slice_starts(s, folder) && s.len > folder.len && s.len < 256 &&
           memchr(s.ptr + folder.len, '/', s.len - folder.len) == NULL &&
           memchr(s.ptr, '\\', s.len) == NULL && s.ptr[folder.len] != '.';
}

/* Adds the record [start, end) where it is a segment's; others are only copied. */
static int see_record(struct journal_cut *c, size_t start, size_t end, struct err *e)
{
    struct slice record = slice_of(c->manifest.ptr + start, end - 1 - start);
    struct cut_segment s = {.end = end};
    struct slice value;
    struct slice path;
    if (!json_member(record, SLICE("type"), &value) || !slice_eq(value, SLICE("\"segment\""))) {
        return 0;
    }
    if (!member_id(record, SLICE("first_event_id"), &s.first_id) ||
        !member_id(record, SLICE("last_event_id"), &s.last_id) ||
        !json_member(record, SLICE("path"), &value) || !json_string_raw(value, &path) ||
        !path_is_plain(path) ||
        (c->segment_count > 0 &&
         uuid_cmp(&c->segments[c->segment_count - 1].last_id, &s.first_id) >= 0)) {
        return err_set_at(e, ERR_CORRUPT, start, "manifest.jsonl: a segment record is malformed");
    }
    s.path_at = (size_t)(path.ptr - c->manifest.ptr);
    s.path_len = path.len;
    struct cut_segment *grown =
        realloc(c->segments, (c->segment_count + (size_t)1) * sizeof *c->segments);
    if (grown == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the list of segments");
    }
    c->segments = grown;
    c->segments[c->segment_count++] = s;
    return 0;
}

static int read_manifest(struct journal_cut *c, struct err *e)
{
    struct os_stat st;
    int fd = os_open(c->layout.manifest, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "there is no journal in %s", c->layout.root);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    int64_t n = os_fstat(fd, &st);
    buf_clear(&c->manifest);
    if (n == 0 && (st.size > MANIFEST_MAX || !buf_reserve(&c->manifest, (size_t)st.size + 1))) {
        n = -ENOMEM;
    }
    if (n == 0) {
        n = os_pread_full(fd, c->manifest.ptr, (size_t)st.size, 0);
    }
    (void)os_close(fd); /* read only */
    if (n < 0) {
        return err_os(e, (int)n, "read", "manifest.jsonl");
    }
    /* What is behind the last line feed was never committed. */
    while (n > 0 && c->manifest.ptr[n - 1] != '\n') {
        n--;
    }
    c->manifest.len = (size_t)n;
    return n > 0 ? 0 : err_set(e, ERR_NOT_FOUND, "there is no journal in %s", c->layout.root);
}

static int see_manifest(struct journal_cut *c, struct err *e)
{
    int r = read_manifest(c, e);
    c->segment_count = 0;
    size_t at = 0;
    while (r == 0 && at < c->manifest.len) {
        const char *lf = memchr(c->manifest.ptr + at, '\n', c->manifest.len - at);
        ensure(lf != NULL);
        size_t end = (size_t)(lf - c->manifest.ptr) + 1;
        if (at == 0) {
            c->manifest_bytes = end; /* the format record is in every copy */
        }
        r = see_record(c, at, end, e);
        at = end;
    }
    return r;
}

static const struct cut_segment *segment_over(const struct journal_cut *c,
                                              const struct layout_generation *g)
{
    for (uint32_t i = c->segment_count; i > 0; i--) {
        const struct cut_segment *s = &c->segments[i - 1];
        if (uuid_cmp(&s->first_id, &g->first_id) <= 0 && uuid_cmp(&g->last_id, &s->last_id) <= 0) {
            return s;
        }
    }
    return NULL;
}

/* ---- inventory ---- */

/* Plain files that a segment covers are left overs of sealing: they are not of the journal. */
static void drop_covered(struct journal_cut *c)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->closed_count; i++) {
        if (segment_over(c, &c->closed[i]) == NULL) {
            c->closed[kept++] = c->closed[i];
        }
    }
    c->closed_count = kept;
}

/* Segments before the plain ones: all closed generations in one row. */
static int join_segments(struct journal_cut *c, struct err *e)
{
    uint32_t n = c->segment_count;
    struct layout_generation *all = calloc((size_t)n + c->closed_count + 1, sizeof *all);
    if (all == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the list of generations");
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i].first_id = c->segments[i].first_id;
        all[i].last_id = c->segments[i].last_id;
    }
    for (uint32_t i = 0; i < c->closed_count; i++) {
        all[n + i] = c->closed[i];
    }
    free(c->closed);
    c->closed = all;
    c->closed_count += n;
    for (uint32_t i = 1; i < c->closed_count; i++) {
        if (uuid_cmp(&all[i - 1].last_id, &all[i].first_id) >= 0) {
            return err_set(e, ERR_CORRUPT, "the journal's generations overlap");
        }
    }
    return 0;
}

/* One look. *same: no rotation came between. */
static int look(struct journal_cut *c, bool live, bool *same, struct err *e)
{
    struct os_stat before = {0};
    struct os_stat after = {0};
    c->tail_fd = os_open(c->layout.tail, O_RDONLY, 0);
    int r = c->tail_fd >= 0 ? os_fstat(c->tail_fd, &before) : 0;
    if (r < 0 || (c->tail_fd < 0 && c->tail_fd != -ENOENT)) {
        return err_os(e, r < 0 ? r : c->tail_fd, "open", "tail.ndjson");
    }
    c->tail_fd = c->tail_fd < 0 ? -1 : c->tail_fd;
    r = layout_list_pending(&c->layout, &c->closed, &c->closed_count, e);
    if (r == 0) {
        /* Behind the list: what has vanished from there since is in it. */
        r = see_manifest(c, e);
    }
    int again = os_stat(c->layout.tail, &after);
    *same = c->tail_fd < 0 ? again == -ENOENT && !live : again == 0 && after.inode == before.inode;
    return r;
}

static void forget(struct journal_cut *c)
{
    if (c->tail_fd >= 0) {
        (void)os_close(c->tail_fd);
    }
    c->tail_fd = -1;
    free(c->closed);
    c->closed = NULL;
    c->closed_count = 0;
}

static int take_inventory(struct journal_cut *c, bool live, struct err *e)
{
    uint64_t deadline_ns = os_clock_mono_ns() + INVENTORY_NS;
    for (;;) {
        bool same = false;
        int r = look(c, live, &same, e);
        if (r == 0 && same) {
            drop_covered(c);
            return join_segments(c, e);
        }
        /* A file that was listed and sealed before its size was asked for. */
        bool passing = r == ERR_IO && e->os_errno == ENOENT;
        if (r != 0 && !(live && passing)) {
            return r;
        }
        if (os_clock_mono_ns() > deadline_ns) {
            return err_set(e, ERR_IO, "the journal rotates faster than it can be listed");
        }
        forget(c);
    }
}

/* ---- the tail ---- */

/* Proves the tail's batches up to the frontier (NULL: to the end) and cuts behind the last one. */
static int cut_tail(struct journal_cut *c, const struct uuid *frontier, uint64_t *size,
                    struct err *e)
{
    struct scan s;
    struct scan_batch b;
    struct os_stat st;
    int r = os_fstat(c->tail_fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", "tail.ndjson");
    }
    *size = st.size;
    scan_start(&s, c->tail_fd, st.size, c->empty ? NULL : &c->last_id, chain_genesis);
    while ((r = scan_next(&s, &b, NULL, NULL, e)) == 1) {
        if (frontier != NULL && uuid_cmp(&b.last_id, frontier) > 0) {
            r = 0;
            break;
        }
        c->tail_bytes = b.offset + b.bytes;
        c->last_id = b.last_id;
        c->empty = false;
    }
    if (r == ERR_CORRUPT) {
        /* Behind the frontier it is a group in flight, without a server a torn one perhaps. */
        bool known = frontier == NULL || (!c->empty && uuid_cmp(&c->last_id, frontier) == 0);
        r = known ? 0
                  : err_set_at(e, ERR_CORRUPT, s.offset, "tail.ndjson is damaged at byte %llu: %s",
                               (unsigned long long)s.offset, s.why);
    }
    scan_stop(&s);
    return r;
}

/* Without a server, and behind the cut there is more: padding, a torn group, or damage. */
static int judge_rest(const struct journal_cut *c, struct err *e)
{
    struct verify_report report;
    int r = verify_journal(c->layout.root, NULL, NULL, &report, e);
    if (!report.ok) {
        r = err_set(e, ERR_CORRUPT, "%s is damaged: %.200s", report.fault_file, report.fault_text);
    }
    verify_report_free(&report);
    return r;
}

static int find_end(struct journal_cut *c, cut_frontier_fn *frontier, void *ctx, struct err *e)
{
    struct uuid last = {{0}};
    bool none = false;
    uint64_t size = 0;
    int r = frontier != NULL ? frontier(ctx, &last, &none, e) : 0;
    c->empty = c->closed_count == 0;
    if (!c->empty) {
        c->last_id = c->closed[c->closed_count - 1].last_id;
    }
    if (r != 0 || c->tail_fd < 0 || none) {
        return r;
    }
    r = cut_tail(c, frontier != NULL ? &last : NULL, &size, e);
    if (r == 0 && frontier == NULL && size != c->tail_bytes) {
        r = judge_rest(c, e);
    }
    return r;
}

int cut_open(const char *data, cut_frontier_fn *frontier, void *ctx, struct journal_cut *c,
             struct err *e)
{
    memset(c, 0, sizeof *c);
    c->tail_fd = -1;
    int r = layout_make(&c->layout, data, e);
    if (r == 0) {
        r = see_manifest(c, e);
    }
    if (r == 0) {
        r = take_inventory(c, frontier != NULL, e);
    }
    if (r == 0) {
        r = find_end(c, frontier, ctx, e);
    }
    if (r != 0) {
        cut_close(c);
    }
    return r;
}

void cut_close(struct journal_cut *c)
{
    forget(c);
    free(c->segments);
    c->segments = NULL;
    c->segment_count = 0;
    buf_free(&c->manifest);
}

/* ---- closed generations ---- */

uint32_t cut_count(const struct journal_cut *c)
{
    return c->closed_count;
}

int cut_path(struct journal_cut *c, uint32_t i, char out[LAYOUT_PATH_MAX], struct err *e)
{
    ensure(i < c->closed_count);
    const struct layout_generation *g = &c->closed[i];
    const struct cut_segment *s = segment_over(c, g);
    char first[UUID_TEXT_LEN];
    char last[UUID_TEXT_LEN];
    int n;
    if (s != NULL) {
        c->manifest_bytes = s->end > c->manifest_bytes ? s->end : c->manifest_bytes;
        n = snprintf(out, LAYOUT_PATH_MAX, "journal/%.*s", (int)s->path_len,
                     c->manifest.ptr + s->path_at);
    } else {
        uuid_text(first, &g->first_id);
        uuid_text(last, &g->last_id);
        n = snprintf(out, LAYOUT_PATH_MAX, "journal/pending/%.36s_%.36s.ndjson", first, last);
    }
    return n > 0 && n < LAYOUT_PATH_MAX ? 0 : err_set(e, ERR_IO, "a path is too long");
}

int cut_again(struct journal_cut *c, uint32_t i, struct err *e)
{
    uint64_t before = c->manifest_bytes;
    ensure(i < c->closed_count);
    bool sealed = segment_over(c, &c->closed[i]) != NULL;
    int r = see_manifest(c, e);
    c->manifest_bytes = before > c->manifest_bytes ? before : c->manifest_bytes;
    if (r == 0 && (sealed || segment_over(c, &c->closed[i]) == NULL)) {
        r = err_set(e, ERR_CORRUPT, "a closed generation of the journal has vanished");
    }
    return r;
}
