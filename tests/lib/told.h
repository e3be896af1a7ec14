/* told: one failure at a time, and whoever asked must be told.
 *
 * An operation runs once to learn which calls it makes, then once for each of them with that one
 * failing:
 *   TOLD_CALL     a file call of os/os.h says EIO and is not made (tests/lib/faults.h)
 *   TOLD_SQLITE   a call of SQLite says SQLITE_IOERR_READ and is not made
 *   TOLD_MEMORY   an allocation fails, but for those of SQLite
 * It must then return an error with a text, unless what failed is one of those that may fail
 * silently. Which ones these are stands beside the operation, with the reason.
 *
 * Single-threaded. malloc and the calls of SQLite are replaced in every program that links this;
 * under a sanitizer, which owns malloc, TOLD_MEMORY does nothing. */
#ifndef TESTS_LIB_TOLD_H
#define TESTS_LIB_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum told_kind { TOLD_CALL, TOLD_SQLITE, TOLD_MEMORY, TOLD_KINDS };

struct told_op {
    const char *name;
    void (*begin)(void *world);             /* the state before it, the same each time */
    int (*run)(void *world, struct err *e); /* 0 or negative; with the fault */
    void (*end)(void *world, int r);        /* the fault is gone: look, and free */
    /* Parts of a failed call ("unlink /m/data/x", the SQL) that may fail and not be told; with a ^
     * it must begin with the rest; "" is every call. NULL ends it; all NULL: none may. */
    const char *may[12];
    /* It may begin anew by itself: then nobody need be told, but all calls of a whole run must come
     * behind the one that failed. */
    bool retries;
    /* So many calls and allocations may fail and not be told that `may` does not name. */
    unsigned spare_calls, spare_memory;
};

/* Fails (cmocka) with the name of the operation and of the call. Of the calls that come from one
 * place of the program (by the stack above it) the first and the last fail. */
void told_sweep(const struct told_op *op, void *world);

/* While it is on, allocations and calls of SQLite are the test's own and do not fail. */
void told_rest(bool on);

#endif
