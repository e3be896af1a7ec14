/* verify_internal: the parts of store/verify: the read-only VFS, the run, the checks. Private to
 * verify*.c. */
#ifndef STORE_VERIFY_INTERNAL_H
#define STORE_VERIFY_INTERNAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "store/verify.h"

#define VERIFY_PATH_MAX 4096

/* ---- the VFS (verify_vfs.c) ---- */

/* Registers it (once; thread-safe) and gives its name, or NULL without memory. */
const char *verify_vfs(void);
/* Whether the connection reads beside a server, as found at its first read. */
bool verify_vfs_live(struct sqlite3 *db);
/* Whether a read failed: then what looks like damage may be none. */
bool verify_vfs_unread(struct sqlite3 *db);

/* ---- the run (verify.c) ---- */

/* X(symbol, what to call the violations that are too many to tell) */
#define VERIFY_KINDS(X)                          \
    X(DAMAGE, "damaged pages or rows")           \
    X(SCHEMA, "differences of the schema")       \
    X(RECEIPT, "events without their receipt")   \
    X(IDENTITY, "receipts that contradict")      \
    X(READY, "differences of delivery_ready")    \
    X(QUARANTINE, "quarantine entries")          \
    X(COUNTER, "counters")                       \
    X(NEXT_ID, "ids past the next one")          \
    X(PROJECT, "rows of projects that are none") \
    X(KEY, "keys")

enum verify_kind {
#define X(sym, name) VERIFY_KIND_##sym,
    VERIFY_KINDS(X)
#undef X
        VERIFY_KIND_COUNT
};

#define VERIFY_TOLD_MAX 100 /* violations of a kind that are told one by one */

/* A result beside the ERR_ codes: a server came, went or was in between; look anew. */
#define VERIFY_AGAIN 1

struct verify_run {
    struct sqlite3 *db;
    struct store_verify_result *result;
    struct err *e;
    int64_t version;   /* of the schema */
    bool derived;      /* what is derived has been filled: it must be right */
    uint64_t limit_ns; /* of one view, on os_clock_mono_ns; 0: none */
    uint64_t kinds[VERIFY_KIND_COUNT];
    struct buf told; /* NUL-terminated texts, in order */
};

/* Counts a violation and keeps its text. */
void verify_tell(struct verify_run *v, enum verify_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What a failed call of SQLite means: damage is told and is 0; VERIFY_AGAIN, or an ERR_ code. */
int verify_failed(struct verify_run *v, const char *what);
/* The first column of a statement's first row, 0 without one. */
int verify_number(struct verify_run *v, const char *sql, int64_t *out) MUST_CHECK;
/* Begins, beside a server, the time after which reading ends with SQLITE_INTERRUPT. */
void verify_limit_begin(struct verify_run *v);
void verify_limit_end(struct verify_run *v);

/* ---- the checks: 0 also with violations ---- */

/* Row by row, in slices that are views of their own (verify_rows.c). */
int verify_rows(struct verify_run *v) MUST_CHECK;
/* The counters of all projects, in one view (verify_counters.c). */
int verify_counters(struct verify_run *v) MUST_CHECK;

#endif
