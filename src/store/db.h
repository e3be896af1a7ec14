/* db: the few calls to SQLite that all files of store/ share. A statement is left reset by every
 * call that does not return a row. Blocks on the disk. */
#ifndef STORE_DB_H
#define STORE_DB_H

#include <sqlite3.h>

#include "base/slice.h"
#include "store/store.h"

/* Opens with our settings: synchronous=FULL, no mmap, a bounded cache,
 * temporary things in memory, nothing of the file's own schema trusted. */
int db_open(const char *path, int flags, int cache_kib, struct sqlite3 **out,
            struct err *e) MUST_CHECK;
/* Runs statements without results. */
int db_exec(struct sqlite3 *db, const char *sql, struct err *e) MUST_CHECK;
/* A statement that is kept for as long as its connection. */
int db_prepare(struct sqlite3 *db, const char *sql, struct sqlite3_stmt **out,
               struct err *e) MUST_CHECK;
/* 1: a row is there. 0: done, reset. Negative: failed, reset. what names the work. */
int db_step(struct sqlite3_stmt *st, const char *what, struct err *e) MUST_CHECK;
/* A statement without rows: to its end. */
int db_run(struct sqlite3_stmt *st, const char *what, struct err *e) MUST_CHECK;
/* The first column of the first row of a text that is used once; fallback when there is no row or
 * it is NULL. */
int db_number(struct sqlite3 *db, const char *sql, int64_t fallback, int64_t *out,
              struct err *e) MUST_CHECK;

/* Binding cannot fail on a statement that is reset and whose parameters are counted in the code,
 * except for want of memory, which the next step reports; so these return nothing. The bytes are
 * borrowed until the statement is reset. */
void db_bind_int(struct sqlite3_stmt *st, int at, int64_t v);
void db_bind_text(struct sqlite3_stmt *st, int at, struct slice v);
void db_bind_blob(struct sqlite3_stmt *st, int at, struct slice v);

/* A column's bytes, borrowed until the next step. */
struct slice db_column(struct sqlite3_stmt *st, int at);

#endif
