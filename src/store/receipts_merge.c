/* Moving a run of recent receipts into the large table, in slices.
 *
 *     IDLE -> SORT (chunks, memory only) -> MOVE (merge of the chunks, in key order)
 *          -> TRIM (the run's rows leave receipts_recent) -> DONE -> IDLE at the commit
 *
 * Invariants: a receipt is in receipts_recent until it is in `receipts`; both tables then agree.
 * TRIM begins in the transaction that moved the last one or in a later one. While a run is on its
 * way, `old` answers lookups; it is freed after the commit that trimmed its last row.
 *
 * If power fails, or a turn is undone: the run, or the slice, is begun again; INSERT passes over
 * what is there, DELETE over what is gone. Failures are the slice's job's; the store tries again at
 * a later tick. */
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/internal.h"

#define CHUNK      8192u /* entries sorted at a time: about a millisecond */
#define MOVE_MAX   4096u /* entries a slice moves at most, so that its commit stays small */
#define CLOCK_STEP 64u   /* entries between looks at the clock */
#define TRIM_STEP  2048u

static int compare(const struct receipt *a, const struct receipt *b)
{
    if (a->project != b->project) {
        return a->project < b->project ? -1 : 1;
    }
    return uuid_cmp(&a->uuid, &b->uuid);
}

static int compare_positions(const void *a, const void *b, void *entries)
{
    const struct receipt *entry = entries;
    uint32_t left, right;

    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return compare(&entry[left], &entry[right]);
}

void receipts_end_run(struct receipts *rs)
{
    receipt_set_free(&rs->old);
    free(rs->order);
    free(rs->at);
    free(rs->at_kept);
    free(rs->heap);
    rs->order = rs->at = rs->at_kept = rs->heap = NULL;
    rs->chunks = rs->sorted = 0;
    rs->now = rs->kept = (struct receipt_progress){.phase = RECEIPTS_IDLE};
}

int receipts_begin_run(struct receipts *rs, struct err *e)
{
    uint32_t count = rs->young.count;

    ensure(count > 0);
    rs->chunks = (count + CHUNK - 1) / CHUNK;
    rs->order = calloc(count, sizeof *rs->order);
    rs->at = calloc(rs->chunks, sizeof *rs->at);
    rs->at_kept = calloc(rs->chunks, sizeof *rs->at_kept);
    rs->heap = calloc(rs->chunks, sizeof *rs->heap);
    if (rs->order == NULL || rs->at == NULL || rs->at_kept == NULL || rs->heap == NULL) {
        receipts_end_run(rs);
        return err_set(e, ERR_NO_MEMORY, "sort %u receipts: out of memory", (unsigned)count);
    }
    for (uint32_t i = 0; i < count; i++) {
        rs->order[i] = i;
    }
    for (uint32_t i = 0; i < rs->chunks; i++) {
        rs->at[i] = rs->at_kept[i] = i * CHUNK;
    }
    rs->old = rs->young;
    rs->young = (struct receipt_set){0};
    rs->now.phase = rs->kept.phase = RECEIPTS_SORT;
    return 0;
}

static uint32_t chunk_end(const struct receipts *rs, uint32_t chunk)
{
    uint32_t end = (chunk + 1) * CHUNK;
    return end < rs->old.count ? end : rs->old.count;
}

static void sort_chunk(struct receipts *rs)
{
    uint32_t from = rs->sorted * CHUNK;

    qsort_r(rs->order + from, chunk_end(rs, rs->sorted) - from, sizeof *rs->order,
            compare_positions, rs->old.entry);
    rs->sorted++;
    if (rs->sorted == rs->chunks) {
        rs->now.phase = RECEIPTS_MOVE;
    }
}

/* ---- the merge: a binary heap of chunks, the smallest next key on top ---- */

static const struct receipt *head(const struct receipts *rs, uint32_t chunk)
{
    return &rs->old.entry[rs->order[rs->at[chunk]]];
}

static void sift(struct receipts *rs, uint32_t count, uint32_t i)
{
    for (;;) {
        uint32_t least = i, left = 2 * i + 1, right = left + 1, swap;
        if (left < count && compare(head(rs, rs->heap[left]), head(rs, rs->heap[least])) < 0) {
            least = left;
        }
        if (right < count && compare(head(rs, rs->heap[right]), head(rs, rs->heap[least])) < 0) {
            least = right;
        }
        if (least == i) {
            return;
        }
        swap = rs->heap[i];
        rs->heap[i] = rs->heap[least];
        rs->heap[least] = swap;
        i = least;
    }
}

static uint32_t build_heap(struct receipts *rs)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < rs->chunks; i++) {
        if (rs->at[i] < chunk_end(rs, i)) {
            rs->heap[count++] = i;
        }
    }
    for (uint32_t i = count / 2; i-- > 0;) {
        sift(rs, count, i);
    }
    return count;
}

static int move_one(struct store *s, const struct receipt *r, struct err *e)
{
    struct receipts *rs = &s->receipts;
    struct sqlite3_stmt *st = s->st[ST_RECEIPT_ADD];

    /* Before the row: a key the filter knows too early does no harm. */
    if (rs->filter != NULL) {
        receipt_filter_add(rs->filter, r->project, r->uuid.byte);
    }
    if (rs->filling != NULL) {
        receipt_filter_add(rs->filling, r->project, r->uuid.byte);
    }
    db_bind_int(st, 1, r->project);
    db_bind_blob(st, 2, slice_of(r->uuid.byte, sizeof r->uuid.byte));
    db_bind_int(st, 3, r->event_id);
    return db_run(st, "move a receipt", e);
}

static int move_slice(struct store *s, uint64_t until_ns, struct err *e)
{
    struct receipts *rs = &s->receipts;
    uint32_t count = build_heap(rs);

    for (uint32_t moved = 0; count > 0 && moved < MOVE_MAX; moved++) {
        uint32_t chunk = rs->heap[0];
        int r;
        if (moved % CLOCK_STEP == CLOCK_STEP - 1 && os_clock_mono_ns() >= until_ns) {
            return 0;
        }
        r = move_one(s, head(rs, chunk), e);
        if (r < 0) {
            return r;
        }
        if (++rs->at[chunk] == chunk_end(rs, chunk)) {
            rs->heap[0] = rs->heap[--count];
        }
        sift(rs, count, 0);
    }
    if (count == 0) {
        rs->now.phase = RECEIPTS_TRIM;
    }
    return 0;
}

static int trim_step(struct store *s, struct err *e)
{
    struct receipts *rs = &s->receipts;
    uint32_t left = rs->old.count - rs->now.trimmed;
    uint32_t to = rs->now.trimmed + (left < TRIM_STEP ? left : TRIM_STEP);
    int r;

    ensure(to > 0);
    db_bind_int(s->st[ST_RECENT_REMOVE], 1, rs->old.entry[to - 1].event_id);
    r = db_run(s->st[ST_RECENT_REMOVE], "trim the recent receipts", e);
    if (r < 0) {
        return r;
    }
    rs->now.trimmed = to;
    if (to == rs->old.count) {
        rs->now.phase = RECEIPTS_DONE;
    }
    return 0;
}

int queue_merge_receipts(struct store *s, bool *more, struct err *e)
{
    struct receipts *rs = &s->receipts;
    uint64_t until_ns = os_clock_mono_ns() + RECEIPTS_SLICE_NS;
    int r = 0;

    ensure(s->in_job);
    if (rs->now.phase == RECEIPTS_IDLE && rs->young.count > 0 && rs->young.count == rs->mark_turn) {
        r = receipts_begin_run(rs, e);
        rs->mark_job = rs->mark_turn = rs->young.count;
    }
    while (r == 0 && os_clock_mono_ns() < until_ns) {
        if (rs->now.phase == RECEIPTS_SORT) {
            sort_chunk(rs);
        } else if (rs->now.phase == RECEIPTS_MOVE) {
            r = move_slice(s, until_ns, e);
            if (rs->now.phase == RECEIPTS_MOVE) {
                break; /* its time or its share of a commit is used up */
            }
        } else if (rs->now.phase == RECEIPTS_TRIM) {
            r = trim_step(s, e);
        } else {
            break;
        }
    }
    *more = rs->now.phase != RECEIPTS_DONE && rs->now.phase != RECEIPTS_IDLE;
    return r;
}
