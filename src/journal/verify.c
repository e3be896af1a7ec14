/* The checker. It uses scan.c for the proof of batches and nothing of the server's state.
 *
 * Beside a running server: the inventory is taken again when a rotation came between (the tail's
 * inode changed). Where a batch is invalid at the end of a live tail it may be a group in flight:
 * it is looked at again before it is called damage. */
#include "journal/verify.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/damage.h"
#include "journal/internal.h"
#include "journal/layout.h"
#include "journal/scan.h"
#include "journal/verify_internal.h"
#include "os/os.h"

#define LIVE_TRIES 5

const char *verify_fault_name(enum verify_fault f)
{
    static const char *const names[] = {
#define X(sym, name) name,
        VERIFY_FAULTS(X)
#undef X
    };
    return names[f];
}

static enum verify_fault fault_of(enum scan_fault f, enum verify_fault framing)
{
    switch (f) {
    case SCAN_FAULT_CONTENT:
        return VERIFY_CONTENT;
    case SCAN_FAULT_EVENT:
        return VERIFY_EVENT;
    case SCAN_FAULT_DIGEST:
        return VERIFY_BATCH;
    case SCAN_FAULT_ORDER:
        return VERIFY_ORDER;
    case SCAN_FAULT_NONE:
    case SCAN_FAULT_FRAMING:
        break;
    }
    return framing;
}

/* ---- the walk ---- */

static void show_batch(const struct verify *v, const struct scan *s, const struct scan_batch *b)
{
    struct verify_batch shown = {.first_id = b->first_id,
                                 .last_id = b->last_id,
                                 .events = b->events,
                                 .digest = b->digest,
                                 .events_after = v->report->events_checked,
                                 .head_after = s->head};
    journal_fingerprint(b->source, b->batch_id, shown.key);
    v->batch(v->batch_ctx, &shown);
}

static void count_batch(struct verify *v, const struct scan *s, const struct scan_batch *b)
{
    v->report->batches_checked++;
    v->report->events_checked += b->events;
    v->report->bytes_checked += b->bytes;
    if (v->batch != NULL) {
        show_batch(v, s, b);
    }
    if (v->progress != NULL) {
        v->progress(v->progress_ctx, v->report->bytes_checked, v->total_bytes);
    }
}

/* Proves batches until the file's data ends or a batch is invalid; returns scan_next's last word.
 */
static int walk(struct verify *v, struct scan *s, struct uuid *first, bool *any, struct err *e)
{
    struct scan_batch b;
    int r;
    while ((r = scan_next(s, &b, verify_note_line, v, e)) == 1) {
        if (!*any) {
            *first = b.first_id;
            *any = true;
        }
        count_batch(v, s, &b);
        r = verify_add_key(v, &b, e);
        if (r == 0 && v->table != NULL) {
            r = verify_table_batch(v, &b, e);
        }
        if (r != 0) {
            return r;
        }
    }
    return r;
}

/* Takes the end of one file over as the beginning of the next. */
static void carry(struct verify *v, const struct scan *s)
{
    if (s->has_last) {
        v->report->empty = false;
        v->report->last_id = s->last_id;
    }
    memcpy(v->report->head, s->head, SHA256_LEN);
    v->origin = s->origin;
}

/* What a generation must be beyond its batches: whole, and what its name says. */
static int judge_closed(struct verify *v, const struct layout_generation *g, const char *name,
                        const struct scan *s, int result, const struct uuid *first, struct err *e)
{
    enum verify_fault framing = g->sealed ? VERIFY_SEGMENT : VERIFY_PENDING;
    if (result == ERR_CORRUPT) {
        verify_fail(v, fault_of(s->fault, framing), name, true, s->offset, s->why);
        return 0;
    }
    if (result != 0) {
        return result;
    }
    if (s->offset != g->bytes) {
        verify_fail(v, framing, name, true, s->offset, "a closed generation with padding");
    } else if (first == NULL || uuid_cmp(first, &g->first_id) != 0 ||
               uuid_cmp(&s->last_id, &g->last_id) != 0) {
        verify_fail(v, framing, name, false, 0, "its name does not say its first and last event");
    } else if (v->table != NULL) {
        return verify_table_end(v, s, e);
    }
    return 0;
}

static int check_closed(struct verify *v, struct layout_generation *g, struct err *e)
{
    struct bytes_file *file;
    struct segment_walk table;
    char path[LAYOUT_PATH_MAX];
    struct scan s;
    struct uuid first = {{0}};
    bool any = false;
    int r = verify_open_closed(v, g, &file, e);
    if (file == NULL) {
        return r;
    }
    layout_generation_path(&v->layout, g, path);
    const char *name = path + strlen(v->layout.root) + 1;
    if (g->sealed) {
        segment_walk_start(&table, file->fd, file->segment);
        v->table = &table;
        v->table_name = name;
    }
    scan_start_file(&s, file, g->bytes, v->report->empty ? NULL : &v->report->last_id,
                    v->report->head);
    s.origin = v->origin;
    r = walk(v, &s, &first, &any, e);
    r = judge_closed(v, g, name, &s, r, any ? &first : NULL, e);
    carry(v, &s);
    verify_check_lifecycle(v, name);
    scan_stop(&s);
    if (g->sealed) {
        segment_walk_stop(&table);
        v->table = NULL;
        v->report->segments_checked++;
    } else {
        v->report->pending_checked++;
    }
    bytes_file_close(file);
    return r;
}

/* Is what begins at s->offset of the tail damage? *any: there are bytes other than zero at all. */
static int look_behind(struct verify *v, const struct scan *s, bool *any, bool *damaged,
                       struct err *e)
{
    struct os_stat st;
    uint64_t end = s->offset;
    *any = false;
    *damaged = false;
    int r = os_fstat(v->tail_fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", "tail.ndjson");
    }
    r = damage_data_end(v->tail_fd, s->offset, st.size, &end, e);
    if (r != 0 || end == s->offset) {
        return r;
    }
    *any = true;
    const struct damage_past past = {
        .last = s->has_last ? &s->last_id : NULL, .origin = s->origin, .closed = end == st.size};
    char *bytes = NULL;
    r = damage_read(v->tail_fd, s->offset, end, &bytes, e);
    if (r == 0) {
        r = damage_find(v->tail_fd, s->offset, slice_of(bytes, (size_t)(end - s->offset)), &past,
                        damaged, e);
    }
    free(bytes);
    return r;
}

/* Beside a server what was half there may be whole by now. 1: it is, and was counted. */
static int scan_again(struct verify *v, struct scan *s, struct err *e)
{
    struct scan_batch b;
    buf_clear(&s->window);
    int r = scan_next(s, &b, verify_note_line, v, e);
    if (r != 1) {
        return r == ERR_CORRUPT ? 0 : r;
    }
    count_batch(v, s, &b);
    r = verify_add_key(v, &b, e);
    return r == 0 ? 1 : r;
}

/* Invalid bytes at s->offset of the tail, or none. 1: they were in flight and are whole now; 0:
 * judged. */
static int judge_tail(struct verify *v, struct scan *s, int result, struct err *e)
{
    bool any;
    bool damaged;
    enum scan_fault fault = result == ERR_CORRUPT ? s->fault : SCAN_FAULT_NONE;
    const char *why = result == ERR_CORRUPT ? s->why : "bytes behind the end of the data";
    int r = look_behind(v, s, &any, &damaged, e);
    if (v->report->live && (r == ERR_NOT_READY || (r == 0 && any))) {
        bool shrunk = r == ERR_NOT_READY;
        r = scan_again(v, s, e);
        damaged = damaged && !shrunk;
    }
    if (r != 0 || !any) {
        return r;
    }
    if (damaged) {
        verify_fail(v, fault_of(fault, VERIFY_TAIL), "journal/tail.ndjson", true, s->offset, why);
    } else if (!v->report->live) {
        char text[64];
        (void)snprintf(text, sizeof text, "journal/tail.ndjson@%llu",
                       (unsigned long long)s->offset);
        verify_put_name(&v->report->remnants, text);
    }
    return 0;
}

/* A rotation that was cut leaves the next tail and no tail. */
static void judge_no_tail(struct verify *v)
{
    struct os_stat st;
    if (os_stat(v->layout.spare, &st) == 0) {
        verify_put_name(&v->report->remnants, "journal/tail.next");
    } else {
        verify_fail(v, VERIFY_TAIL, "journal/tail.ndjson", false, 0, "the tail is missing");
    }
}

static int check_tail(struct verify *v, struct err *e)
{
    if (v->tail_fd < 0) {
        judge_no_tail(v);
        return 0;
    }
    struct scan s;
    struct uuid first;
    bool any = false;
    int r;
    scan_start(&s, v->tail_fd, v->tail_size, v->report->empty ? NULL : &v->report->last_id,
               v->report->head);
    s.origin = v->origin;
    for (int i = 0;; i++) {
        r = walk(v, &s, &first, &any, e);
        if (r != 0 && r != ERR_CORRUPT) {
            break;
        }
        r = judge_tail(v, &s, r, e);
        if (r != 1 || i >= LIVE_TRIES) {
            break;
        }
    }
    v->tail_end = s.offset;
    carry(v, &s);
    verify_check_lifecycle(v, "journal/tail.ndjson");
    scan_stop(&s);
    return r < 0 ? r : 0;
}

static int check_manifest(struct verify *v, bool *committed, struct err *e)
{
    struct manifest m;
    int r = manifest_read(&v->layout, &m, e);
    if (r == ERR_CORRUPT) {
        verify_fail(v, VERIFY_MANIFEST, "journal/manifest.jsonl", e->has_offset, e->offset,
                    e->text);
        return 0;
    }
    if (r != 0) {
        return r;
    }
    manifest_free(&m);
    if (m.state == MANIFEST_MISSING) {
        return err_set(e, ERR_NOT_FOUND, "there is no journal in %s", v->layout.root);
    }
    /* Beside a server the end may be a record that is being written. */
    if (m.state == MANIFEST_UNCOMMITTED || (m.file_bytes > m.good_bytes && !v->report->live)) {
        verify_put_name(&v->report->remnants, "journal/manifest.jsonl");
    }
    *committed = m.state == MANIFEST_GOOD;
    return 0;
}

static int run(struct verify *v, struct err *e)
{
    bool committed = true;
    int r = verify_probe_live(v, e);
    if (r == 0) {
        r = check_manifest(v, &committed, e);
    }
    if (r == 0 && v->report->ok) {
        r = verify_take_inventory(v, e);
    }
    if (!committed && (v->closed_count > 0 || v->tail_size > 0)) {
        /* Nothing is written before the manifest is: it was whole once. */
        verify_fail(v, VERIFY_MANIFEST, "journal/manifest.jsonl", true, 0,
                    "the first record has no end, but there are events");
    }
    if (r == 0 && v->report->ok && !v->report->live) {
        r = inventory_check_segments(&v->layout, &v->inventory, e);
        if (r == ERR_CORRUPT) {
            verify_fail(v, VERIFY_MANIFEST, "journal/manifest.jsonl", true, e->offset, e->text);
            r = 0;
        }
    }
    if (r == 0) {
        int listed = os_list(v->layout.journal, verify_note_orphan, v);
        r = listed < 0 ? err_os(e, listed, "list", "journal") : 0;
    }
    if (r == 0 && v->report->ok) {
        r = verify_note_seals(v, e);
    }
    v->total_bytes = v->tail_size;
    for (uint32_t i = 0; i < v->closed_count; i++) {
        v->total_bytes += v->closed[i].bytes;
    }
    for (uint32_t i = 0; i < v->closed_count && r == 0 && v->report->ok; i++) {
        r = check_closed(v, &v->closed[i], e);
    }
    if (r == 0 && v->report->ok) {
        r = check_tail(v, e);
    }
    if (r == 0 && v->report->ok) {
        r = verify_all_keys(v, e);
    }
    if (r == 0 && v->report->ok) {
        r = verify_all_sources(v, e);
    }
    return r;
}

int verify_journal(const char *dir, verify_progress_fn *progress, void *ctx,
                   struct verify_report *report, struct err *e)
{
    return verify_journal_batches(dir, progress, ctx, NULL, NULL, report, e);
}

int verify_journal_batches(const char *dir, verify_progress_fn *progress, void *ctx,
                           verify_batch_fn *batch, void *batch_ctx, struct verify_report *report,
                           struct err *e)
{
    memset(report, 0, sizeof *report);
    report->ok = true;
    report->empty = true;
    memcpy(report->head, chain_genesis, SHA256_LEN);
    struct verify v = {.report = report,
                       .progress = progress,
                       .progress_ctx = ctx,
                       .batch = batch,
                       .batch_ctx = batch_ctx,
                       .tail_fd = -1,
                       .key_high = UINT32_MAX};
    v.lifecycle.max = verify_sources_max;
    verify_lifecycle_start(&v.lifecycle, 0, UINT32_MAX);
    int r = layout_make(&v.layout, dir, e);
    if (r == 0) {
        r = run(&v, e);
    }
    if (r == 0) {
        r = report->orphans.failed || report->remnants.failed
                ? err_set(e, ERR_NO_MEMORY, "no memory for the names of what is left over")
                : 0;
    }
    verify_forget_inventory(&v);
    verify_lifecycle_free(&v.lifecycle);
    free(v.keys);
    if (r != 0) {
        verify_report_free(report);
    }
    return r;
}

void verify_report_free(struct verify_report *report)
{
    buf_free(&report->orphans);
    buf_free(&report->remnants);
}
