/* Readers: what status and lists show of the queue.
 *
 * A reader sees committed states only, each whole. It cannot write (the connection is read-only)
 * and keeps no snapshot between calls. Answers: all errors; nothing here stops the server. */
#include "store/reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "store/queue.h"

#define CACHE_KIB 8192

static const char *const statement_text[READ_COUNT] = {
#define X(sym, text) text,
    READER_STATEMENTS(X)
#undef X
};

int store_reader_open(const char *data, struct store_reader **out, struct err *e)
{
    size_t size = strlen(data) + sizeof "/" STORE_FILE;
    char *path = malloc(size);
    struct store_reader *r = calloc(1, sizeof *r);
    int code;

    *out = NULL;
    if (path == NULL || r == NULL) {
        free(path);
        free(r);
        return err_set(e, ERR_NO_MEMORY, "open a reader: out of memory");
    }
    snprintf(path, size, "%s/%s", data, STORE_FILE);
    code = db_open(path, SQLITE_OPEN_READONLY, CACHE_KIB, &r->db, e);
    for (int i = 0; code == 0 && i < READ_COUNT; i++) {
        code = db_prepare(r->db, statement_text[i], &r->st[i], e);
    }
    free(path);
    if (code < 0) {
        store_reader_close(r);
        return code;
    }
    *out = r;
    return 0;
}

void store_reader_close(struct store_reader *r)
{
    if (r == NULL) {
        return;
    }
    for (int i = 0; i < READ_COUNT; i++) {
        sqlite3_finalize(r->st[i]);
    }
    sqlite3_close(r->db);
    free(r);
}

struct sqlite3 *store_reader_db(struct store_reader *r)
{
    return r->db;
}

int reader_begin(struct store_reader *r, struct err *e)
{
    return db_run(r->st[READ_BEGIN], "begin to read", e);
}

void reader_end(struct store_reader *r)
{
    struct err ignored;
    int code = db_run(r->st[READ_END], "end reading", &ignored);

    /* Ending a read writes nothing; and an error before may have ended it already. */
    ensure(code == 0 || sqlite3_get_autocommit(r->db) != 0);
}

/* ---- status ---- */

static uint64_t counter(struct sqlite3_stmt *st, int at)
{
    int64_t v = sqlite3_column_int64(st, at);
    return v < 0 ? 0 : (uint64_t)v;
}

static int one_number(struct sqlite3_stmt *st, int64_t project, int64_t *out, const char *what,
                      struct err *e)
{
    int r;

    db_bind_int(st, 1, project);
    r = db_step(st, what, e);
    if (r > 0) {
        *out = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
        r = 0;
    }
    return r;
}

static int read_status(struct store_reader *r, int64_t project, struct queue_project_status *out,
                       struct err *e)
{
    struct sqlite3_stmt *st = r->st[READ_COUNTERS];
    int code;

    db_bind_int(st, 1, project);
    code = db_step(st, "read a project's counters", e);
    if (code == 0) {
        return err_set(e, ERR_NOT_FOUND, "no project %lld", (long long)project);
    }
    if (code < 0) {
        return code;
    }
    *out = (struct queue_project_status){.pending = counter(st, 0),
                                         .pending_bytes = counter(st, 1),
                                         .quarantined = counter(st, 2),
                                         .rejected = counter(st, 3),
                                         .rejected_kept = counter(st, 4)};
    sqlite3_reset(st);
    code = one_number(r->st[READ_OLDEST], project, &out->oldest_pending_received_ms,
                      "read the oldest event", e);
    return code < 0 ? code
                    : one_number(r->st[READ_SUCCESS], project, &out->last_success_ms,
                                 "read the last delivery", e);
}

int queue_project_status(struct store_reader *r, int64_t project, struct queue_project_status *out,
                         struct err *e)
{
    int code = reader_begin(r, e);

    if (code == 0) {
        code = read_status(r, project, out, e);
        reader_end(r);
    }
    return code;
}

int queue_list_rejected(struct store_reader *r, int64_t project, int64_t after, uint32_t limit,
                        int (*fn)(void *ctx, const struct queue_rejected_row *row), void *ctx,
                        struct err *e)
{
    struct sqlite3_stmt *st = r->st[READ_REJECTED];
    int code;

    db_bind_int(st, 1, project);
    db_bind_int(st, 2, after);
    db_bind_int(st, 3, limit);
    while ((code = db_step(st, "list rejected events", e)) > 0) {
        struct queue_rejected_row row = {.id = sqlite3_column_int64(st, 0),
                                         .r = {.project = project,
                                               .received_ms = sqlite3_column_int64(st, 1),
                                               .index = (uint32_t)sqlite3_column_int64(st, 2),
                                               .door = db_column(st, 3),
                                               .reason = db_column(st, 4),
                                               .text = db_column(st, 5)}};
        int stop = fn(ctx, &row);
        if (stop != 0) {
            sqlite3_reset(st);
            return 0;
        }
    }
    return code;
}

int queue_get_cursor(struct store_reader *r, struct queue_cursor *out, struct err *e)
{
    struct sqlite3_stmt *st = r->st[READ_CURSOR];
    int code = db_step(st, "read the delivery cursor", e);

    *out = (struct queue_cursor){0};
    if (code > 0) {
        *out = (struct queue_cursor){.project = sqlite3_column_int64(st, 0),
                                     .after_id = sqlite3_column_int64(st, 1)};
        sqlite3_reset(st);
        code = 0;
    }
    return code;
}
