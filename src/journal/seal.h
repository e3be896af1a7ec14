/* seal: closed generations become compressed, immutable segments (segment_format.h), while the
 * server runs. Readers notice nothing.
 *
 * One generation at a time, in log order, by a thread of its own with low priority, or by the
 * caller. What cannot be sealed stays as it is and in force: a failure costs space, never an event.
 */
#ifndef JOURNAL_SEAL_H
#define JOURNAL_SEAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "journal/layout.h"

struct journal;

#define SEAL_RECENT 64 /* results that are kept to be asked for */

struct journal_sealed {
    uint64_t number; /* 1 for the first generation that was sealed since the start */
    char name[LAYOUT_SEGMENT_NAME];
    uint64_t events, bytes, stored_bytes;
    uint8_t head[SHA256_LEN];
};

typedef void journal_sealed_fn(void *ctx, const struct journal_sealed *s);

struct journal_seal_status {
    bool active;       /* generations are to be sealed, or the tail to be closed for that */
    uint64_t sealed;   /* since the start */
    uint32_t wanted;   /* still to be sealed of what was asked for */
    uint32_t possible; /* closed generations that are not sealed */
    bool stopped;      /* nothing is sealed before a restart */
    int code;          /* ERR_ of the last attempt that failed since it was asked; 0: none */
    char cause[256];   /* of it */
};

/* Seals closed generations on the calling thread, all but the newest `keep`; fn (may be NULL) is
 * called after each one. Returns the first failure: ERR_CORRUPT when a generation is damaged (it
 * stays as it is), ERR_NOT_READY when its summary is not written yet or the journal is being
 * closed, ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY, ERR_WRITER_POISONED. Blocks. Any thread but, with
 * options.threads, the loop's. */
int journal_seal(struct journal *j, uint32_t keep, journal_sealed_fn *fn, void *ctx,
                 struct err *e) MUST_CHECK;
/* Asks the background for the same and returns; with `tail` the tail is closed first, soon. Loop
 * thread. Only with options.threads. ERR_WRITER_POISONED, ERR_NO_MEMORY. */
int journal_seal_request(struct journal *j, uint32_t keep, bool tail, struct err *e) MUST_CHECK;
/* Closes the tail when it has events. Loop thread, nothing staged. ERR_NO_SPACE,
 * ERR_WRITER_POISONED. */
int journal_close_tail(struct journal *j, struct err *e) MUST_CHECK;
/* Any thread. */
void journal_get_seal_status(struct journal *j, struct journal_seal_status *out);
/* The results with a number above `after`, oldest first, at most max; returns how many. Any thread.
 */
uint32_t journal_seal_results(struct journal *j, uint64_t after, struct journal_sealed *out,
                              uint32_t max);

#endif
