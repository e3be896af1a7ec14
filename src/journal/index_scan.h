/* index_scan: what of the index directory can be believed. */
#ifndef JOURNAL_INDEX_SCAN_H
#define JOURNAL_INDEX_SCAN_H

#include "journal/index_view.h"

/* Lists dir, removes what is temporary, malformed, covered or unfit, checks the runs, and gives a
 * view of the good ones; known[i] tells whether generation i is in it. NULL with *e when dir cannot
 * be listed, or for want of memory. */
struct index_view *index_scan(const char *dir, const struct index_generation *closed,
                              uint32_t count, struct index_budget *budget, bool *known,
                              struct err *e);

#endif
