/* checkpoint: moving the WAL into the database, on a thread and a connection of its own.
 *
 * PASSIVE passes only: they never wait for the loop and never make it wait. A pass is wanted when a
 * quarter of wal_bytes_max waits to be moved. Past wal_bytes_max the loop holds its turns until a
 * pass that moved everything has ended; the next commit then begins the WAL anew. The same thread
 * reads the large table of receipts for the filter in front of it (receipts.h). */
#ifndef STORE_CHECKPOINT_H
#define STORE_CHECKPOINT_H

#include "store/receipt_filter.h"
#include "store/store.h"

struct checkpointer;

/* Takes over nothing; path is copied. threads false: passes run by checkpoint_pass alone. */
int checkpoint_open(const char *path, const struct store_options *options,
                    struct checkpointer **out, struct err *e) MUST_CHECK;
/* Ends the thread and closes the connection. NULL is fine. */
void checkpoint_close(struct checkpointer *c);

/* One pass on the caller's thread. 0 also when readers kept it from moving everything. */
int checkpoint_pass(struct checkpointer *c, struct err *e) MUST_CHECK;
/* The same, and the WAL's file is cut to nothing unless a reader holds it: at open and at close. A
 * WAL that was written back but not cut still decides at the next open which pages count, up to its
 * first damaged frame; old frames would then hide newer pages of the database. */
int checkpoint_empty(struct checkpointer *c, struct err *e) MUST_CHECK;

/* ---- loop thread ---- */
/* After a commit: so many frames are in the WAL. Wakes the thread when a pass is due. */
void checkpoint_committed(struct checkpointer *c, uint64_t frames);
/* How the last pass ended, and whether turns must wait. */
enum checkpoint_state { CHECKPOINT_GO, CHECKPOINT_HOLD, CHECKPOINT_NO_SPACE, CHECKPOINT_FAILED };
/* *why is filled for NO_SPACE (the WAL is past its limit and cannot be moved) and FAILED. */
enum checkpoint_state checkpoint_state(struct checkpointer *c, struct err *why);
/* Waits at most so long for a held pass to end. */
void checkpoint_wait(struct checkpointer *c, unsigned ms);
uint64_t checkpoint_wal_bytes(struct checkpointer *c);

/* Has the thread fill a filter with all large receipts; without a thread it is done at once. The
 * filter's `ready` or `failed` says how it ended; the caller frees it after one of them, or after
 * checkpoint_close. */
void checkpoint_fill(struct checkpointer *c, struct receipt_filter *f);

#endif
