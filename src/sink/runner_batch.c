/* runner_batch: choosing and freezing the next rows.
 *
 * A common batch takes rows of all projects in turn but those that are sent alone; between two
 * common batches one project of those that are due has its turn. Rows that are delivered but not
 * yet recorded are taken out of a selection; when nothing else is left, the sink waits for the
 * records.
 *
 * A frozen batch is grouped by project, so that its parts can be sent alone, and encoded once. Its
 * memory is at most the selection's budget, one large event, and the encoded form of these. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "sink/runner_internal.h"

void batch_thaw(struct sink *k)
{
    queue_rows_free(&k->batch.rows);
    k->batch.rows = (struct queue_rows){0};
    buf_clear(&k->batch.body);
    k->batch.tries = 0;
    k->batch.solo = 0;
    k->batch.frozen = false;
}

static int compare_rows(const void *a, const void *b)
{
    const struct queue_row *x = a;
    const struct queue_row *y = b;
    if (x->ev.project != y->ev.project) {
        return x->ev.project < y->ev.project ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id ? 1 : 0;
}

/* Every project's rows side by side; mostly they are so already. */
static void group(struct queue_rows *rows)
{
    bool sorted = true;
    for (size_t i = 1; i < rows->count && sorted; i++) {
        sorted = rows->row[i - 1].ev.project <= rows->row[i].ev.project;
    }
    if (!sorted) {
        qsort(rows->row, rows->count, sizeof rows->row[0], compare_rows);
    }
}

static void drop_delivered(struct sink *k, struct queue_rows *rows)
{
    size_t kept = 0;
    if (TAILQ_EMPTY(&k->records)) {
        return;
    }
    for (size_t i = 0; i < rows->count; i++) {
        if (!records_have(k, rows->row[i].id)) {
            rows->row[kept] = rows->row[i];
            kept++;
        }
    }
    rows->count = kept;
}

/* Our own trouble, not the destination's; it waits like one. */
static enum batch_next fail(struct sink *k, const char *what, const struct err *e)
{
    struct sink_result r = {.verdict = SINK_RETRY};
    (void)snprintf(r.text, sizeof r.text, "%s: %.150s", what, e->text);
    batch_thaw(k);
    k->limit = k->limit > 1 ? k->limit / 2 : 1;
    sink_note_failure(k, &r);
    return BATCH_ERROR;
}

static enum batch_next freeze(struct sink *k)
{
    struct batch *b = &k->batch;
    struct err e = {0};
    group(&b->rows);
    buf_clear(&b->body);
    if (k->adapter->encode(k->ctx, &b->rows, 0, b->rows.count, &b->body, &e) != 0) {
        return fail(k, "a batch cannot be encoded", &e);
    }
    ensure(!b->body.failed);
    ensure(b->body.len != 0);
    b->frozen = true;
    b->tries = 0;
    return BATCH_READY;
}

/* The projects that are left out of common batches, ascending as the list is. NULL: no memory. */
static int64_t *skip_list(const struct sink *k)
{
    int64_t *skip = malloc((k->solo_count + 1) * sizeof *skip);
    for (size_t i = 0; skip != NULL && i < k->solo_count; i++) {
        skip[i] = k->solo[i].project;
    }
    return skip;
}

static enum batch_next select_rows(struct sink *k, const struct queue_selection *sel,
                                   bool *had_rows)
{
    struct batch *b = &k->batch;
    struct err e = {0};
    ensure(!b->frozen);
    k->selected_ns = os_clock_mono_ns();
    int r = queue_select(k->reader, sel, &b->rows, &e);
    if (r != 0) {
        return fail(k, "the queue cannot be read", &e);
    }
    *had_rows = b->rows.count != 0;
    if (sel->only == 0) {
        k->last_full = b->rows.count >= sel->events_max || b->rows.bytes >= sel->bytes_soft / 2;
    }
    drop_delivered(k, &b->rows);
    if (b->rows.count == 0) {
        batch_thaw(k);
        return *had_rows ? BATCH_WAIT : BATCH_NONE;
    }
    b->solo = sel->only;
    return freeze(k);
}

static enum batch_next next_common(struct sink *k)
{
    struct err e = {.text = "no memory"};
    struct queue_selection sel = {.from = k->from,
                                  .events_max = k->limit,
                                  .bytes_soft = k->options.batch_bytes_soft,
                                  .skip_count = k->solo_count,
                                  .behind = k->flight.last,
                                  .behind_count = k->flight.count};
    bool had_rows = false;
    int64_t *skip = skip_list(k);
    if (skip == NULL) {
        return fail(k, "no batch", &e);
    }
    sel.skip = skip;
    enum batch_next n = select_rows(k, &sel, &had_rows);
    free(skip);
    if (n == BATCH_READY) {
        k->from = k->batch.rows.next;
    }
    /* Nothing new, but rows from before may be left. */
    return n == BATCH_NONE && k->flight.count != 0 ? BATCH_WAIT : n;
}

static enum batch_next next_solo(struct sink *k)
{
    size_t i = solo_due(k, os_clock_mono_ns());
    bool had_rows = false;
    if (i == SIZE_MAX) {
        return BATCH_NONE;
    }
    struct queue_selection sel = {
        .from = {.project = k->solo[i].project, .after_id = k->solo[i].after_id},
        .events_max = k->solo[i].limit,
        .bytes_soft = k->options.batch_bytes_soft,
        .only = k->solo[i].project};
    enum batch_next n = select_rows(k, &sel, &had_rows);
    if (n == BATCH_NONE) {
        solo_remove(k, i);
    }
    return n;
}

enum batch_next batch_next(struct sink *k)
{
    bool waits = false;
    /* What comes from here on is found by this selection or by the next wake. */
    atomic_store(&k->woken, false);
    for (int i = 0; i < 2; i++) {
        bool solo = k->solo_turn;
        k->solo_turn = !k->solo_turn;
        enum batch_next n = solo ? next_solo(k) : next_common(k);
        if (n == BATCH_READY || n == BATCH_ERROR) {
            return n;
        }
        waits = waits || n == BATCH_WAIT;
    }
    return waits ? BATCH_WAIT : BATCH_NONE;
}
