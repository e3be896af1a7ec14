/* delivery: what others may read of delivery.sqlite: one artifact's way out, and the counts.
 *
 * Each call is one connection and, where it needs several statements, one read transaction, so that
 * it shows one moment. A database without tables is one that its owner is just making: not known.
 *
 * Power failure: nothing is written. Answers: all errors; a plan or a state that cannot be read is
 * ERR_CORRUPT. */
#include "store/artifact/delivery.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/timefmt.h"
#include "store/artifact/delivery_plan.h"
#include "store/artifact/delivery_reader.h"
#include "store/artifact/delivery_schema.h"
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

static int state_of(struct slice name, enum delivery_state *out, struct err *e)
{
    for (int i = 0; i < DELIVERY_STATE_COUNT; i++) {
        if (slice_eq(name, slice_cstr(delivery_state_name((enum delivery_state)i)))) {
            *out = (enum delivery_state)i;
            return 0;
        }
    }
    return err_set(e, ERR_CORRUPT, "%s has a delivery in an unknown state", DELIVERY_FILE);
}

/* Opens it with a transaction; *db is NULL when there is nothing to read yet. What only a newer
 * schema has is read only when the owner has brought the file forward. */
static int begin(const char *data, struct sqlite3 **db, int64_t *version, struct err *e)
{
    int r = delivery_reader_open(data, DELIVERY_FILE, db, e);

    *version = 0;
    if (r == 0 && *db != NULL) {
        r = db_exec(*db, "BEGIN", e);
        if (r == 0) {
            r = delivery_schema_check(*db, version, e);
        }
        if (r < 0 || *version == 0) {
            sqlite3_close(*db);
            *db = NULL;
        }
    }
    return r;
}

static void take(char *out, size_t size, struct slice text)
{
    size_t n = text.len < size ? text.len : size - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

static int64_t seconds(int64_t ms)
{
    return ms / 1000 + (ms % 1000 > 0 ? 1 : 0);
}

/* ---- one artifact ---- */

/* %s: what only a newer schema has. */
#define VIEW_PURGE "p.purge_ms, ifnull(p.purged_at, 0), p.purge_error"
#define VIEW_NONE  "0, 0, ''"
#define VIEW_SQL                                                                              \
    "SELECT p.package_id, p.state, p.plan, p.build_attempts, p.next_build_ms, p.build_error," \
    " p.way_out, d.sink, d.state, d.attempts, d.next_attempt_ms, d.last_error, d.way_out,"    \
    " ifnull(d.sent_at, 0), ifnull(d.verified_at, 0), a.project, a.filename, %s"              \
    " FROM package_members m JOIN artifacts a ON a.object_id = m.object_id"                   \
    " JOIN packages p ON p.package_id = m.package_id LEFT JOIN deliveries d"                  \
    " ON d.package_id = p.package_id WHERE m.object_id = ?1 ORDER BY m.package_id, d.sink"    \
    " LIMIT 1"
enum {
    AT_PACKAGE,
    AT_PACKAGE_STATE,
    AT_PLAN,
    AT_BUILD_ATTEMPTS,
    AT_BUILD_DUE,
    AT_BUILD_ERROR,
    AT_BUILD_WAY_OUT,
    AT_SINK,
    AT_STATE,
    AT_ATTEMPTS,
    AT_DUE,
    AT_ERROR,
    AT_WAY_OUT,
    AT_SENT,
    AT_VERIFIED,
    AT_PROJECT,
    AT_FILENAME,
    AT_PURGE,
    AT_PURGED,
    AT_PURGE_ERROR
};

static void take_build(struct sqlite3_stmt *st, struct delivery_view *out)
{
    bool blocked = slice_eq(db_column(st, AT_PACKAGE_STATE), SLICE("blocked"));

    out->state = blocked ? DELIVERY_PARKED : DELIVERY_PENDING;
    out->attempts = (unsigned)sqlite3_column_int64(st, AT_BUILD_ATTEMPTS);
    /* One that was never tried is due since its acceptance, which is no news. */
    if (!blocked && out->attempts > 0) {
        out->next_attempt_at = seconds(sqlite3_column_int64(st, AT_BUILD_DUE));
    }
    take(out->error, sizeof out->error, db_column(st, AT_BUILD_ERROR));
    take(out->way_out, sizeof out->way_out, db_column(st, AT_BUILD_WAY_OUT));
}

static int take_plan(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    struct delivery_plan plan;
    int r = delivery_plan_parse(db_column(st, AT_PLAN), &plan, e);

    if (r < 0) {
        return r;
    }
    take(out->identifier, sizeof out->identifier, slice_cstr(plan.identifier));
    out->file_count = DELIVERY_FILES_MAX;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        take(out->file[i].name, sizeof out->file[i].name, slice_cstr(plan.file[i].name));
        take(out->file[i].md5, sizeof out->file[i].md5, slice_cstr(plan.file[i].digests.md5));
        out->file[i].size = plan.file[i].size;
    }
    return 0;
}

static int take_delivery(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    int r = state_of(db_column(st, AT_STATE), &out->state, e);

    if (r < 0) {
        return r;
    }
    out->built = true;
    take(out->sink, sizeof out->sink, db_column(st, AT_SINK));
    out->attempts = (unsigned)sqlite3_column_int64(st, AT_ATTEMPTS);
    if (out->state == DELIVERY_RETRY_WAIT) {
        out->next_attempt_at = seconds(sqlite3_column_int64(st, AT_DUE));
    }
    out->sent_at = sqlite3_column_int64(st, AT_SENT);
    out->verified_at = sqlite3_column_int64(st, AT_VERIFIED);
    take(out->error, sizeof out->error, db_column(st, AT_ERROR));
    take(out->way_out, sizeof out->way_out, db_column(st, AT_WAY_OUT));
    return take_plan(st, out, e);
}

static void take_purge(struct sqlite3_stmt *st, struct delivery_view *out)
{
    int64_t purge_ms = sqlite3_column_int64(st, AT_PURGE); /* 0 of NULL */

    out->purge_at = purge_ms > 0 ? seconds(purge_ms) : 0;
    out->purged_at = sqlite3_column_int64(st, AT_PURGED);
    take(out->purge_error, sizeof out->purge_error, db_column(st, AT_PURGE_ERROR));
}

static int view(struct sqlite3 *db, int64_t version, struct slice object_id,
                struct delivery_view *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    char sql[sizeof VIEW_SQL + sizeof VIEW_PURGE];
    int n = snprintf(sql, sizeof sql, VIEW_SQL, version >= 2 ? VIEW_PURGE : VIEW_NONE);
    int r = db_prepare(db, sql, &st, e);

    ensure(n > 0 && (size_t)n < sizeof sql);

    if (r == 0) {
        db_bind_text(st, 1, object_id);
        r = db_step(st, "read a delivery", e);
    }
    if (r > 0) {
        out->known = true;
        take(out->package_id, sizeof out->package_id, db_column(st, AT_PACKAGE));
        take(out->project, sizeof out->project, db_column(st, AT_PROJECT));
        take(out->filename, sizeof out->filename, db_column(st, AT_FILENAME));
        take_purge(st, out);
        r = 0;
        if (sqlite3_column_type(st, AT_STATE) == SQLITE_NULL) {
            take_build(st, out);
        } else {
            r = take_delivery(st, out, e);
        }
    }
    sqlite3_finalize(st);
    return r;
}

int delivery_view_read(const char *data, struct slice object_id, struct delivery_view *out,
                       struct err *e)
{
    struct sqlite3 *db = NULL;
    int64_t version;
    int r;

    memset(out, 0, sizeof *out);
    r = begin(data, &db, &version, e);
    if (r == 0 && db != NULL) {
        r = view(db, version, object_id, out, e);
    }
    sqlite3_close(db);
    return r;
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
        r = state_of(db_column(st, 0), &state, e);
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
        take(out->error, sizeof out->error, db_column(st, 0));
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
    r = begin(data, &db, &version, e);
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
    int r = begin(data, &db, &version, e);
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
