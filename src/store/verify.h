/* verify: the queue checked, read-only, beside a server or without one (cases/capture.md C29).
 *
 * SQLite's own integrity check, schema version, then our invariants: every queued event has its
 * receipt and the receipt its id; delivery_ready is exactly the queued events that are not
 * quarantined; counters equal what they count; quarantine entries have their event; ids are below
 * the next one; every event's project exists. */
#ifndef STORE_VERIFY_H
#define STORE_VERIFY_H

#include "store/store.h"

struct store_verify_result {
    bool absent; /* there is no tallyman.sqlite, or an empty one: nothing to check */
    bool live;   /* a server has it open */
    /* Beside a server: checks that want one view for more than a second (SQLite's own, the
     * counters) were cut short, so as not to hold up its WAL. */
    bool partial;
    uint64_t events, receipts, projects, keys, rejected, quarantined;
    uint64_t violations;
};
/* Calls found(ctx, text) for each violation (at most 100 of a kind, then one that says how many
 * more). 0 also with violations; ERR_CORRUPT when the file cannot be read as a database; ERR_IO,
 * ERR_NO_MEMORY. Blocks; reads in bounded memory. Never in the process that has the store open: a
 * file that is closed there takes the process's locks with it. */
int store_verify(const char *data, void (*found)(void *ctx, const char *text), void *ctx,
                 struct store_verify_result *out, struct err *e) MUST_CHECK;

#endif
