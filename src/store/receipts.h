/* receipts: (project, uuid) -> event id, for ever.
 *
 * New receipts are appended to receipts_recent (in the order of ids: one page a commit, however
 * random the uuids are) and kept in memory, where they are looked up. When there are many, the
 * oldest RUN of them is frozen, sorted, and moved to `receipts` in key order by slices of the
 * loop's time; then the run's rows leave receipts_recent. In front of `receipts` stands a filter
 * (receipt_filter.h).
 *
 * Lookup: young set, old set (a run on its way), filter, table: always exact. */
#ifndef STORE_RECEIPTS_H
#define STORE_RECEIPTS_H

#include "base/uuid.h"
#include "store/receipt_filter.h"
#include "store/store.h"

#define RECEIPTS_RUN      262144u  /* so many young ones begin a run */
#define RECEIPTS_RUN_IDLE 65536u   /* when there is nothing else to do */
#define RECEIPTS_HOLD     1048576u /* so many young ones: turns wait for the run under way */
#define RECEIPTS_SLICE_NS UINT64_C(5000000)

struct receipt {
    int64_t project;
    int64_t event_id;
    struct uuid uuid;
};

/* A growing list in the order of ids, with a hash table over it. */
struct receipt_set {
    struct receipt *entry;
    uint32_t count, cap;
    uint32_t *slot; /* position + 1; 0: free */
    uint32_t slot_count;
};

enum receipt_phase { RECEIPTS_IDLE, RECEIPTS_SORT, RECEIPTS_MOVE, RECEIPTS_TRIM, RECEIPTS_DONE };

/* How far a run is. `kept` follows `now` when the turn is committed, and the other way round when
 * it is undone; every step may be done twice. */
struct receipt_progress {
    enum receipt_phase phase;
    uint32_t trimmed; /* entries of the run whose recent rows are gone */
};

struct receipts {
    uint64_t seed[2];
    struct receipt_set young, old;
    uint32_t mark_job, mark_turn; /* young.count when they began */
    struct receipt_filter *filter, *filling;
    uint64_t filter_keys; /* in the large table, about */
    uint32_t *order;      /* the run's entries; sorted chunk by chunk */
    uint32_t chunks, sorted;
    uint32_t *at, *at_kept; /* next position of each chunk */
    uint32_t *heap;
    struct receipt_progress now, kept;
    uint32_t run_min; /* tests make runs short */
};

/* Loads the recent ones; begins filling the filter. */
int receipts_open(struct store *s, uint64_t receipts, struct err *e) MUST_CHECK;
void receipts_close(struct store *s);

/* 1: known, *id. 0: unknown. Negative: an error. */
int receipts_find(struct store *s, int64_t project, const struct uuid *uuid, int64_t *id,
                  struct err *e) MUST_CHECK;
/* Adds one that receipts_find did not find; id is above all others. */
int receipts_add(struct store *s, int64_t project, const struct uuid *uuid, int64_t id,
                 struct err *e) MUST_CHECK;

void receipts_job_begin(struct store *s);
void receipts_job_undo(struct store *s);
void receipts_turn_begin(struct store *s);
void receipts_turn_keep(struct store *s);
void receipts_turn_undo(struct store *s);

/* Is there a run to begin or to go on with? */
bool receipts_due(const struct store *s, bool idle);
/* Too many young ones: intake waits for the merge. */
bool receipts_hold(const struct store *s);
/* Swaps in a filled filter; begins a larger one when the present one is full. */
void receipts_tick(struct store *s);

/* receipt_set.c */
/* NULL or the entry. */
const struct receipt *receipt_set_find(const struct receipt_set *set, const uint64_t seed[2],
                                       int64_t project, const struct uuid *uuid);
int receipt_set_add(struct receipt_set *set, const uint64_t seed[2], const struct receipt *r,
                    struct err *e) MUST_CHECK;
/* Forgets the last ones. */
void receipt_set_cut(struct receipt_set *set, const uint64_t seed[2], uint32_t count);
void receipt_set_free(struct receipt_set *set);

/* receipts_merge.c */
/* The young ones become the run. None may be of the turn under way: it could be undone. */
int receipts_begin_run(struct receipts *rs, struct err *e) MUST_CHECK;
/* Frees the run and its buffers; the next one may begin. */
void receipts_end_run(struct receipts *r);

#endif
