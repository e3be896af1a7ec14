/* index_view: immutable sets of tables and runs, counted.
 *
 * Invariants: runs ascend and do not overlap. Generations are spans of 8^k aligned to their length,
 * so a run that is added covers whole runs or none.
 *
 * Answers: no memory. Aborts: a run that overlaps another without covering it. Nothing here touches
 * the disk, but that the last reference to a run closes its file. */
#include "journal/index_view.h"

#include <stdlib.h>

#include "journal/index_format.h"

static struct index_view *index_view_alloc(uint32_t tables_max, uint32_t runs_max)
{
    struct index_view *v = calloc(1, sizeof *v);

    if (v == NULL) {
        return NULL;
    }
    atomic_init(&v->refs, 1);
    /* One more each: calloc may answer NULL to nothing. */
    v->tables = calloc((size_t)tables_max + 1, sizeof(struct index_table *));
    v->runs = calloc((size_t)runs_max + 1, sizeof(struct index_run *));
    if (v->tables == NULL || v->runs == NULL) {
        index_view_release(v);
        return NULL;
    }
    return v;
}

static void index_view_push_run(struct index_view *v, struct index_run *run)
{
    ensure(v->run_count == 0 || v->runs[v->run_count - 1]->to < run->from);
    v->runs[v->run_count] = index_run_hold(run);
    v->run_count++;
}

static void index_view_push_table(struct index_view *v, struct index_table *table)
{
    v->tables[v->table_count] = index_table_hold(table);
    v->table_count++;
}

struct index_view *index_view_make(struct index_run *const *runs, uint32_t run_count)
{
    struct index_view *v = index_view_alloc(0, run_count);

    if (v == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < run_count; i++) {
        index_view_push_run(v, runs[i]);
    }
    return v;
}

struct index_view *index_view_edit(const struct index_view *from,
                                   const struct index_view_change *change)
{
    const struct index_run *split = change->run_split;
    uint32_t part_count = split != NULL ? split->to - split->from + 1 : 0;
    struct index_view *v =
        index_view_alloc(from->table_count + 1, from->run_count + 1 + part_count);
    struct index_run *added = change->run_added;

    if (v == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < from->table_count; i++) {
        if (from->tables[i] != change->table_dropped) {
            index_view_push_table(v, from->tables[i]);
        }
    }
    if (change->table_added != NULL) {
        index_view_push_table(v, change->table_added);
    }
    for (uint32_t i = 0; i < from->run_count; i++) {
        struct index_run *run = from->runs[i];

        if (added != NULL && run->to >= added->from) {
            if (run->from <= added->to) {
                ensure(run->from >= added->from);
                ensure(run->to <= added->to);
                continue;
            }
            index_view_push_run(v, added);
            added = NULL;
        }
        if (run == split) {
            for (uint32_t k = 0; k < part_count; k++) {
                index_view_push_run(v, change->parts[k]);
            }
            continue;
        }
        index_view_push_run(v, run);
    }
    if (added != NULL) {
        index_view_push_run(v, added);
    }
    return v;
}

struct index_view *index_view_hold(struct index_view *v)
{
    unsigned before = atomic_fetch_add(&v->refs, 1);

    ensure(before > 0);
    return v;
}

void index_view_release(struct index_view *v)
{
    unsigned before;

    if (v == NULL) {
        return;
    }
    before = atomic_fetch_sub(&v->refs, 1);
    ensure(before > 0);
    if (before > 1) {
        return;
    }
    for (uint32_t i = 0; i < v->table_count; i++) {
        index_table_release(v->tables[i]);
    }
    for (uint32_t i = 0; i < v->run_count; i++) {
        index_run_release(v->runs[i]);
    }
    free(v->tables);
    free(v->runs);
    free(v);
}

/* True when the eight runs from position i on are neighbours of one size, aligned to their sum. */
static bool index_view_eight_at(const struct index_view *v, uint32_t i)
{
    const struct index_run *first = v->runs[i];
    uint64_t span = (uint64_t)first->to - first->from + 1;
    uint64_t to = first->from + span * INDEX_MERGE_WAYS - 1;

    if (v->run_count - i < INDEX_MERGE_WAYS || to > INDEX_GENERATION_MAX ||
        !index_run_fits(first->from, (uint32_t)to)) {
        return false;
    }
    for (uint32_t k = 1; k < INDEX_MERGE_WAYS; k++) {
        const struct index_run *run = v->runs[i + k];

        if (run->from != v->runs[i + k - 1]->to + 1 || (uint64_t)run->to - run->from + 1 != span) {
            return false;
        }
    }
    return true;
}

bool index_view_mergeable(const struct index_view *v, uint32_t *position)
{
    bool found = false;
    uint32_t span_min = 0;

    for (uint32_t i = 0; i < v->run_count; i++) {
        uint32_t span = v->runs[i]->to - v->runs[i]->from + 1;

        if ((!found || span < span_min) && index_view_eight_at(v, i)) {
            found = true;
            span_min = span;
            *position = i;
        }
    }
    return found;
}
