/* verify_internal: the parts of store/verify: the read-only VFS, the files, the run, the checks.
 * Private to verify*.c here and to artifact/verify*.c, which check another database the same
 * way. */
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

/* ---- the files (verify_files.c) ---- */

/* What changes when a server comes, works or goes. */
struct verify_signature {
    bool db, wal, journal;
    uint64_t db_size, wal_size, journal_size, inode;
    unsigned char db_head[100];
    unsigned char wal_head[32];
    unsigned char journal_head[28];
};

struct verify_run;
/* Never while the database is open: it closes files, and the process's locks go with those. */
int verify_sign(const char *path, struct verify_signature *s, struct err *e) MUST_CHECK;
/* What they say before SQLite is asked. True: there is no more to check. */
bool verify_files(struct verify_run *v, const struct verify_signature *s);

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
    X(KEY, "keys")                               \
    X(DESTINATION, "destinations of artifacts")  \
    X(DELIVERY, "rows of deliveries")

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
    const char *name;                     /* of the database, below the data directory */
    int (*check)(struct verify_run *run); /* what is checked once it can be read */
    void *check_ctx;
    struct sqlite3 *db;
    struct store_verify_result *result;
    struct err *e;
    int64_t version;   /* of the schema */
    bool derived;      /* what is derived has been filled: it must be right */
    uint64_t limit_ns; /* of one view, on os_clock_mono_ns; 0: none */
    uint64_t kinds[VERIFY_KIND_COUNT];
    struct buf told; /* NUL-terminated texts, in order */
};

/* store_verify for any database and check. check returns 0 also with violations, VERIFY_AGAIN, or
 * an ERR_ code; it may run several times, and what an earlier run told is forgotten. */
int verify_database(const char *data, const char *name, int (*check)(struct verify_run *run),
                    void *check_ctx, void (*found)(void *ctx, const char *text), void *ctx,
                    struct store_verify_result *out, struct err *e) MUST_CHECK;
/* A connection that changes nothing, with name for its errors. Close it with sqlite3_close, also
 * when it could not be opened: VERIFY_AGAIN or an ERR_ code. */
int verify_open_read_only(const char *path, const char *name, struct sqlite3 **out,
                          struct err *e) MUST_CHECK;
/* What a failed call of such a connection means: VERIFY_AGAIN or an ERR_ code. */
int verify_unreadable(struct sqlite3 *db, const char *what, struct err *e) MUST_CHECK;
/* The first look at a database: an empty one is absent; another program's, or one of a version that
 * is not from 1 to newest, is told. *known: there is more to check. */
int verify_head(struct verify_run *v, int application, int newest, bool *known) MUST_CHECK;
/* Tells how the schema differs from what make leaves in an empty database. */
int verify_schema(struct verify_run *v, int (*make)(struct sqlite3 *db, struct err *e)) MUST_CHECK;
/* SQLite's own integrity check. */
int verify_integrity(struct verify_run *v) MUST_CHECK;
/* Tells the rows of a statement with one text, as "WHAT: TEXT", or the text alone where what is
 * NULL; a NULL is passed over. */
int verify_tell_rows(struct verify_run *v, const char *sql, enum verify_kind kind,
                     const char *what) MUST_CHECK;

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
