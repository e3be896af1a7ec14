/* delivery: what others may read of delivery.sqlite: the counts, and what is running
 * and held.
 *
 * Each call is one connection and, where it needs several statements, one read transaction, so that
 * it shows one moment. A database without tables is one that its owner is just making: not known.
 *
 * Power failure: nothing is written. Answers: all errors; a plan or a state that cannot be read is
 * ERR_CORRUPT. */
#include "store/artifact/delivery.h"

#include "base/ensure.h"
#include "base/timefmt.h"
#include "store/artifact/delivery_reader.h"
#include "json/write.h"

const char *delivery_state_name(enum delivery_state s)
{
    static const char *const names[DELIVERY_STATE_COUNT] = {
#define X(sym, name) [DELIVERY_##sym] = (name),
        DELIVERY_STATES(X)
#undef X
    };

    ensure(s >= 0);
    ensure(s < DELIVERY_STATE_COUNT);
    return names[s];
}

int delivery_state_of(struct slice name, enum delivery_state *out, struct err *e)
{
    for (int i = 0; i < DELIVERY_STATE_COUNT; i++) {
        if (slice_eq(name, slice_cstr(delivery_state_name((enum delivery_state)i)))) {
            *out = (enum delivery_state)i;
            return 0;
        }
    }
    return err_set(e, ERR_CORRUPT, "%s has a delivery in an unknown state", DELIVERY_FILE);
}

/* ---- counts ---- */

static int count_states(struct sqlite3 *db, struct delivery_counts *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    enum delivery_state state;
    int r = db_prepare(db,
                       "SELECT state, count(*) FROM deliveries GROUP BY state UNION ALL"
                       " SELECT iif(state = 'blocked', 'parked', 'pending'), count(*)"
                       " FROM packages WHERE state IN ('building', 'blocked') GROUP BY state",
                       &st, e);

    if (r == 0) {
        r = db_step(st, "count deliveries", e);
    }
    while (r > 0) {
        r = delivery_state_of(db_column(st, 0), &state, e);
        if (r == 0) {
            out->by_state[state] += (uint64_t)sqlite3_column_int64(st, 1);
            r = db_step(st, "count deliveries", e);
        }
    }
    sqlite3_finalize(st);
    return r;
}

static int first_error(struct sqlite3 *db, struct delivery_counts *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(db,
                       "SELECT * FROM (SELECT last_error FROM deliveries WHERE state = 'retry_wait'"
                       " ORDER BY next_attempt_ms LIMIT 1) UNION ALL"
                       " SELECT * FROM (SELECT build_error FROM packages WHERE state = 'building'"
                       " AND build_error <> '' ORDER BY next_build_ms LIMIT 1) LIMIT 1",
                       &st, e);

    if (r == 0) {
        r = db_step(st, "read the oldest error", e);
    }
    if (r > 0) {
        delivery_reader_take(out->error, sizeof out->error, db_column(st, 0));
        r = 0;
    }
    sqlite3_finalize(st);
    return r;
}

int delivery_counts_read(const char *data, struct delivery_counts *out, struct err *e)
{
    struct sqlite3 *db = NULL;
    int64_t version, artifacts = 0, late = 0;
    int r;

    memset(out, 0, sizeof *out);
    r = delivery_reader_begin(data, &db, &version, e);
    if (r == 0 && db != NULL) {
        r = db_number(db, "SELECT count(*) FROM artifacts", 0, &artifacts, e);
        if (r == 0) {
            r = count_states(db, out, e);
        }
        if (r == 0) {
            r = first_error(db, out, e);
        }
        if (r == 0 && version >= 2) {
            r = db_number(db, "SELECT count(*) FROM deliveries WHERE state = 'sent' AND late <> 0",
                          0, &late, e);
        }
        out->known = r == 0;
        out->artifacts = (uint64_t)artifacts;
        out->late = (uint64_t)late;
    }
    sqlite3_close(db);
    return r;
}

/* ---- what is running and held ---- */

static void put_text(struct buf *b, const char *name, struct sqlite3_stmt *st, int column)
{
    json_put_name(b, name);
    json_put_string(b, db_column(st, column));
}

static void put_number(struct buf *b, const char *name, struct sqlite3_stmt *st, int column)
{
    json_put_name(b, name);
    buf_put_i64(b, sqlite3_column_int64(st, column));
}

static void put_time(struct buf *b, const char *name, int64_t ms)
{
    char text[TIMEFMT_MS_LEN + 1];

    timefmt_ms(text, ms > 0 && (uint64_t)ms < TIMEFMT_MS_END ? (uint64_t)ms : 0);
    json_put_name(b, name);
    buf_printf(b, "\"%s\"", text);
}

static void put_running(struct buf *b, struct sqlite3_stmt *st)
{
    put_text(b, "package_id", st, 0);
    put_text(b, "project", st, 1);
    put_text(b, "task", st, 2);
    put_text(b, "sink", st, 3);
    put_text(b, "identifier", st, 4);
    put_time(b, "begun_at", sqlite3_column_int64(st, 5) * 1000);
    put_number(b, "bytes", st, 6);
    put_number(b, "size_bytes", st, 7);
    put_number(b, "bytes_per_s", st, 8);
    put_text(b, "file", st, 9);
    json_put_name(b, "stuck");
    buf_put_cstr(b, sqlite3_column_int64(st, 10) != 0 ? "true" : "false");
    put_time(b, "updated_at", sqlite3_column_int64(st, 11) * 1000);
}

static void put_hold(struct buf *b, struct sqlite3_stmt *st)
{
    put_text(b, "scope", st, 0);
    put_text(b, "sink", st, 1);
    put_text(b, "key", st, 2);
    put_time(b, "until", sqlite3_column_int64(st, 3));
    put_text(b, "text", st, 4);
}

/* An array of what the statement gives; db NULL: an empty one. */
static int put_rows(struct sqlite3 *db, const char *name, const char *sql,
                    void (*put)(struct buf *b, struct sqlite3_stmt *st), struct buf *b,
                    struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    bool first = true;
    int r = db == NULL ? 0 : db_prepare(db, sql, &st, e);

    json_put_name(b, name);
    buf_put_char(b, '[');
    if (r == 0 && db != NULL) {
        r = db_step(st, "read what is running", e);
    }
    while (r > 0) {
        buf_put_cstr(b, first ? "{" : ",{");
        first = false;
        put(b, st);
        buf_put_char(b, '}');
        r = db_step(st, "read what is running", e);
    }
    buf_put_char(b, ']');
    sqlite3_finalize(st);
    return r;
}

int delivery_activity_put(const char *data, struct buf *b, struct err *e)
{
    struct sqlite3 *db = NULL;
    int64_t version;
    int r = delivery_reader_begin(data, &db, &version, e);
    struct sqlite3 *told = version >= 2 ? db : NULL;

    if (r == 0) {
        r = put_rows(told, "running",
                     "SELECT package_id, project, task, sink, identifier, begun_at, bytes,"
                     " size_bytes, bytes_per_s, file, stuck, updated_at FROM running"
                     " ORDER BY begun_at, package_id",
                     put_running, b, e);
    }
    if (r == 0) {
        r = put_rows(told, "holds",
                     "SELECT scope, sink, key, until_ms, text FROM holds"
                     " ORDER BY until_ms, scope, sink, key",
                     put_hold, b, e);
    }
    sqlite3_close(db);
    return r;
}
