/* index_view: where closed generations' keys are at one moment: frozen tables and runs.
 *
 * A view never changes; a change makes another one, and whoever holds the old one goes on with it.
 * That is how a lookup needs no lock while files are written, merged and removed under it. */
#ifndef JOURNAL_INDEX_VIEW_H
#define JOURNAL_INDEX_VIEW_H

#include "journal/index_run.h"
#include "journal/index_table.h"

struct index_view {
    atomic_uint refs;
    uint32_t table_count, run_count;
    struct index_table **tables; /* oldest first */
    struct index_run **runs;     /* by generation, none overlapping */
};

struct index_view_change {
    struct index_table *table_added;   /* or NULL */
    struct index_table *table_dropped; /* or NULL */
    struct index_run *run_added;       /* or NULL; takes the place of all runs it covers */
    /* Or NULL; the parts, one a generation of it, take its place. Not with run_added. */
    const struct index_run *run_split;
    struct index_run *const *parts;
};

/* A view of the given runs, in order, taking a reference of its own on each. NULL without memory.
 */
struct index_view *index_view_make(struct index_run *const *runs, uint32_t run_count);
/* `from` with the change; references of its own on everything in it. NULL without memory. */
struct index_view *index_view_edit(const struct index_view *from,
                                   const struct index_view_change *change);
struct index_view *index_view_hold(struct index_view *v);
/* NULL is fine. */
void index_view_release(struct index_view *v);

/* The position of the first of eight runs that may become one, smallest first; false: none. */
bool index_view_mergeable(const struct index_view *v, uint32_t *position);

#endif
