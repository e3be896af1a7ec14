/* cut: what of a journal directory makes a copy of it that ends at a position, for `tallyman
 * backup`.
 *
 * A cut holds the tail's descriptor and the names of what was closed before it; the caller copies
 * the files, newest first, then the tail's first bytes. It works beside a running server, which
 * goes on appending, rotating and sealing meanwhile, and changes nothing. */
#ifndef JOURNAL_CUT_H
#define JOURNAL_CUT_H

#include "base/buf.h"
#include "journal/layout.h"

struct cut_segment;

struct journal_cut {
    struct layout layout;
    struct layout_generation *closed; /* plain ones, in log order; where they were when listed */
    uint32_t closed_count;
    struct buf manifest; /* committed bytes */
    struct cut_segment *segments;
    uint32_t segment_count;
    uint64_t manifest_bytes; /* of the copy: grows to the newest segment that is in it */
    int tail_fd;             /* -1: there is none (a rotation that was cut) */
    uint64_t tail_bytes;     /* of the copy: ends at a batch */
    bool empty;              /* of the whole copy */
    struct uuid last_id;     /* of the last event in the copy, unless empty */
};

/* Asks the running server for its published frontier; *empty: no event yet. */
typedef int cut_frontier_fn(void *ctx, struct uuid *last_id, bool *empty, struct err *e);

/* Takes the inventory, then asks for the frontier, so that whatever was acknowledged before the
 * call is in the cut. frontier NULL: no server works on the directory (the caller holds its lock
 * shared); then all that is proven is in it, as recovery would find. 0: close it with cut_close.
 * ERR_NOT_FOUND: no journal. ERR_CORRUPT: damage, e->text names it. ERR_UNSUPPORTED, ERR_IO,
 * ERR_NO_MEMORY. Blocks; reads the tail. */
int cut_open(const char *data, cut_frontier_fn *frontier, void *ctx, struct journal_cut *c,
             struct err *e) MUST_CHECK;
void cut_close(struct journal_cut *c);

/* How many closed generations there are: plain and sealed ones. */
uint32_t cut_count(const struct journal_cut *c);
/* The path, below the data directory, of the i-th in log order. To be asked from the last to the
 * first. */
int cut_path(struct journal_cut *c, uint32_t i, char out[LAYOUT_PATH_MAX],
             struct err *e) MUST_CHECK;
/* The file of that path is not there any more: it was sealed meanwhile. Looks again; cut_path then
 * names the segment. ERR_CORRUPT: it is really gone. */
int cut_again(struct journal_cut *c, uint32_t i, struct err *e) MUST_CHECK;

#endif
