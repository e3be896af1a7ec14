/* delivery_totals: sums over delivery.sqlite, for status: what is built, waits or is blocked, and
 * of each project how much is in which state, and what waits for a package to be made.
 *
 * They read every package once, so a deadline ends them, and then they are left out whole: a status
 * is quick or says that it is not. One read transaction. Power failure: nothing is written.
 * Answers: all errors. */
#include "store/artifact/delivery.h"

#include "base/timefmt.h"
#include "os/os.h"
#include "store/artifact/delivery_reader.h"
#include "json/write.h"

#define TOTALS_NS    700000000u
#define STEPS        10000 /* of SQLite's machine between two looks at the clock */
#define PROJECTS_MAX 200u

#define STATE \
    "CASE p.state WHEN 'building' THEN 'pending' WHEN 'blocked' THEN 'parked' ELSE d.state END"
#define PROJECTS_SQL                                                                \
    "SELECT p.project, " STATE " AS s, count(*), sum(p.size_bytes) FROM packages p" \
    " LEFT JOIN deliveries d ON d.package_id = p.package_id GROUP BY p.project, s"  \
    " ORDER BY p.project, s"
#define PACKAGES_SQL                                                                       \
    "SELECT ifnull(sum(state = 'building' AND build_error = ''), 0),"                      \
    " ifnull(sum(state = 'building' AND build_error <> ''), 0),"                           \
    " ifnull(min(iif(state = 'building' AND build_error <> '', next_build_ms, NULL)), 0)," \
    " ifnull(sum(state = 'blocked'), 0)"                                                   \
    " FROM packages WHERE state IN ('building', 'blocked')"
#define OLDEST_SQL                                                                   \
    "SELECT ifnull(min(t), 0) FROM (SELECT min(created_at) AS t FROM packages"       \
    " WHERE state = 'building' UNION ALL SELECT min(p.created_at) FROM deliveries d" \
    " JOIN packages p ON p.package_id = d.package_id"                                \
    " WHERE d.state IN ('pending', 'sending', 'sent', 'retry_wait'))"
#define PURGE_SQL                                                                  \
    "SELECT count(*), ifnull(sum(size_bytes), 0), ifnull(sum(purge_ms <= ?1), 0)," \
    " ifnull(sum(iif(purge_ms <= ?1, size_bytes, 0)), 0) FROM packages"            \
    " INDEXED BY packages_purge WHERE purge_ms IS NOT NULL AND purged_at IS NULL"

static int is_late(void *ctx)
{
    const uint64_t *end_ns = ctx;

    return os_clock_mono_ns() > *end_ns ? 1 : 0;
}

static void put_number(struct buf *b, const char *name, int64_t v)
{
    json_put_name(b, name);
    buf_put_i64(b, v);
}

/* null of 0. */
static void put_time(struct buf *b, const char *name, int64_t ms)
{
    char text[TIMEFMT_MS_LEN + 1];

    json_put_name(b, name);
    if (ms <= 0 || (uint64_t)ms >= TIMEFMT_MS_END) {
        buf_put_cstr(b, "null");
        return;
    }
    timefmt_ms(text, (uint64_t)ms);
    buf_printf(b, "\"%s\"", text);
}

/* The only row of a sum. */
static int one_row(struct sqlite3 *db, const char *sql, int64_t now_ms, int64_t *out, int columns,
                   struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(db, sql, &st, e);

    if (r == 0) {
        if (now_ms != 0) {
            db_bind_int(st, 1, now_ms);
        }
        r = db_step(st, "sum up deliveries", e);
    }
    for (int i = 0; r > 0 && i < columns; i++) {
        out[i] = sqlite3_column_int64(st, i);
    }
    sqlite3_finalize(st);
    return r < 0 ? r : 0;
}

static int put_sums(struct sqlite3 *db, struct buf *b, struct err *e)
{
    int64_t now_ms = (int64_t)os_clock_real_ms();
    int64_t build[4] = {0}, oldest = 0, purge[4] = {0};
    int r = one_row(db, PACKAGES_SQL, 0, build, 4, e);

    if (r == 0) {
        r = one_row(db, OLDEST_SQL, 0, &oldest, 1, e);
    }
    if (r == 0) {
        r = one_row(db, PURGE_SQL, now_ms, purge, 4, e);
    }
    if (r < 0) {
        return r;
    }
    json_put_name(b, "packages");
    buf_put_char(b, '{');
    put_number(b, "building", build[0]);
    put_number(b, "waiting", build[1]);
    put_time(b, "next_build_at", build[2]);
    put_number(b, "blocked", build[3]);
    buf_put_char(b, '}');
    put_time(b, "oldest_pending_at", oldest * 1000);
    json_put_name(b, "purge");
    buf_put_char(b, '{');
    put_number(b, "awaited", purge[0]);
    put_number(b, "awaited_bytes", purge[1]);
    put_number(b, "due", purge[2]);
    put_number(b, "due_bytes", purge[3]);
    buf_put_char(b, '}');
    return 0;
}

struct projects {
    char last[UPLOAD_PROJECT_MAX + 1];
    uint64_t count;
};

static void put_project_row(struct projects *p, struct sqlite3_stmt *st, struct buf *b)
{
    struct slice project = db_column(st, 0);
    struct slice state = db_column(st, 1);
    bool other = p->count == 0 || !slice_eq(project, slice_cstr(p->last));

    if (other) {
        if (p->count > 0 && p->count <= PROJECTS_MAX) {
            buf_put_char(b, '}');
        }
        delivery_reader_take(p->last, sizeof p->last, project);
        p->count++;
        if (p->count <= PROJECTS_MAX) {
            buf_put_cstr(b, p->count == 1 ? "{" : ",{");
            json_put_name(b, "project");
            json_put_string(b, project);
        }
    }
    if (p->count <= PROJECTS_MAX) {
        buf_put_char(b, ',');
        json_put_string(b, state);
        buf_printf(b, ":{\"count\":%lld,\"bytes\":%lld}", (long long)sqlite3_column_int64(st, 2),
                   (long long)sqlite3_column_int64(st, 3));
    }
}

static int put_projects(struct sqlite3 *db, struct buf *b, struct err *e)
{
    struct projects p = {.count = 0};
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(db, PROJECTS_SQL, &st, e);

    json_put_name(b, "projects");
    buf_put_char(b, '[');
    if (r == 0) {
        r = db_step(st, "sum up projects", e);
    }
    while (r > 0) {
        put_project_row(&p, st, b);
        r = db_step(st, "sum up projects", e);
    }
    sqlite3_finalize(st);
    buf_put_cstr(b, p.count > 0 && p.count <= PROJECTS_MAX ? "}]" : "]"); /* the last one told */
    put_number(b, "projects_left_out",
               p.count > PROJECTS_MAX ? (int64_t)(p.count - PROJECTS_MAX) : 0);
    return r;
}

/* Of projects that merge: what waits for a package. */
static void put_waiting_row(struct buf *b, struct sqlite3_stmt *st)
{
    int64_t bytes = sqlite3_column_int64(st, 2);
    int64_t trigger = sqlite3_column_int64(st, 3);

    json_put_name(b, "project");
    json_put_string(b, db_column(st, 0));
    put_number(b, "artifacts", sqlite3_column_int64(st, 1));
    put_number(b, "bytes", bytes);
    put_number(b, "bytes_to_trigger", trigger > bytes ? trigger - bytes : 0);
    put_time(b, "until", sqlite3_column_int64(st, 4));
    json_put_name(b, "draining");
    buf_put_cstr(b, sqlite3_column_int64(st, 5) != 0 ? "true" : "false");
}

static int put_packaging(struct sqlite3 *db, struct buf *b, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    unsigned n = 0;
    int r = db_prepare(db,
                       "SELECT project, artifacts, bytes, trigger_bytes, until_ms, draining"
                       " FROM packaging WHERE artifacts > 0 ORDER BY project",
                       &st, e);

    json_put_name(b, "packaging");
    buf_put_char(b, '[');
    if (r == 0) {
        r = db_step(st, "sum up what waits", e);
    }
    for (; r > 0 && n < PROJECTS_MAX; n++) {
        buf_put_cstr(b, n == 0 ? "{" : ",{");
        put_waiting_row(b, st);
        buf_put_char(b, '}');
        r = db_step(st, "sum up what waits", e);
    }
    sqlite3_finalize(st);
    buf_put_char(b, ']');
    return r < 0 ? r : 0;
}

int delivery_totals_put(const char *data, struct buf *b, struct err *e)
{
    uint64_t end_ns = os_clock_mono_ns() + TOTALS_NS;
    struct sqlite3 *db = NULL;
    int64_t version;
    int r = delivery_reader_begin(data, &db, &version, e);

    if (r == 0 && version >= 2) {
        sqlite3_progress_handler(db, STEPS, is_late, &end_ns);
        r = put_sums(db, b, e);
        if (r == 0) {
            r = put_projects(db, b, e);
        }
        if (r == 0 && version >= 3) {
            r = put_packaging(db, b, e);
        }
    }
    sqlite3_close(db);
    return r;
}
