/* index_merge: eight neighbouring runs become one, a bounded number of keys at a time.
 *
 * Memory: a 64 KiB window on each input and 256 KiB of output, whatever the runs hold. Steps let
 * the owner do something more urgent in between. One thread. Blocks. */
#ifndef JOURNAL_INDEX_MERGE_H
#define JOURNAL_INDEX_MERGE_H

#include "journal/index_run.h"

struct index_merge;

/* Begins a merge of INDEX_MERGE_WAYS adjacent runs of one size, in order, aligned (index_run_fits
 * holds for the whole). Holds references on them until index_merge_free. NULL with *e set on
 * failure. */
struct index_merge *index_merge_start(const char *dir, struct index_run *const *inputs,
                                      struct index_budget *budget, struct err *e);
/* All inputs, borrowed. */
struct index_run *const *index_merge_inputs(const struct index_merge *m);
/* Moves up to key_count keys. 1: go on. 0: all moved, and *out is the durable run, one reference
 * for the caller. ERR_IO, ERR_NO_SPACE, ERR_CORRUPT: the merge is dead. */
int index_merge_step(struct index_merge *m, uint32_t key_count, struct index_run **out,
                     struct err *e) MUST_CHECK;
/* After the merged run took their place: removes the inputs' files. */
void index_merge_unlink_inputs(const struct index_merge *m);
/* Removes what was not completed. NULL is fine. */
void index_merge_free(struct index_merge *m);

#endif
