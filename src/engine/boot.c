/* boot: from files to an engine that may be asked.
 *
 *   1. the first connection starts the engine on DIR/data, and has the role `writer`
 *   2. database, table and view are made when they are missing (base/events_schema.h)
 *   3. system tables are dropped but for those that only list the language: the others tell of
 *      other projects' queries and parts; so are the information schemas. They are in memory and
 *      come back with each start
 *   4. the self-test, as a project that has no rows: every way to other rows must be closed, both
 *      by the engine's rights and by the gate
 *
 * A view of another version than VIEW_VERSION is replaced. Power failure: every statement of step 2
 * is idempotent, and made durable by ClickHouse before it answers (fsync_metadata); the next start
 * does it again. Answers: none. Stops: steps 1 to 3. A failed step 4 closes project queries and
 * leaves deliveries running. */
#include "engine/boot.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/events_schema.h"
#include "base/log.h"
#include "engine/code.h"
#include "engine/files.h"
#include "engine/run.h"
#include "os/os.h"

#define VIEW_VERSION "tallyman view 1"

#define COLUMN(name, type) name " " type ", "

static const char *const tables[] = {
    "CREATE DATABASE IF NOT EXISTS " EVENTS_DATABASE " ENGINE = Atomic",
    "CREATE TABLE IF NOT EXISTS " EVENTS_DATABASE "." EVENTS_TABLE " (" EVENTS_COLUMNS(COLUMN)
        EVENTS_TABLE_TAIL,
    "CREATE DATABASE IF NOT EXISTS q ENGINE = Atomic",
};

static const char view[] =
    "CREATE OR REPLACE VIEW q.events DEFINER = viewer SQL SECURITY DEFINER AS "
    "SELECT " EVENTS_VIEW_COLUMNS " FROM " EVENTS_DATABASE "." EVENTS_TABLE " FINAL "
    "WHERE is_deleted = 0 AND project = getSetting('log_comment') COMMENT '" VIEW_VERSION "'";

/* What stays of the system tables: nothing in them is about rows or other queries. */
static const char drop_list[] =
    "SELECT name FROM system.tables WHERE database = 'system' AND name NOT IN ("
    "'one', 'numbers', 'numbers_mt', 'zeros', 'zeros_mt', 'tables', 'columns', 'databases', "
    "'functions', 'table_functions', 'formats', 'data_type_families')";

static int statement(struct engine *engine, const char *sql, struct buf *data, struct err *e)
{
    struct library_answer a;
    int r = 0;

    library_run(&engine->base, slice_cstr(sql), SLICE("TSVRaw"), NULL, &a);
    if (a.error.len != 0) {
        r = err_set(e, ERR_IO, "%.*s", (int)(a.error.len < 280 ? a.error.len : 280), a.error.ptr);
    } else if (data != NULL) {
        buf_put_slice(data, a.data);
        r = data->failed ? err_set(e, ERR_NO_MEMORY, "no memory for the engine's answer") : 0;
    }
    library_answer_free(&a);
    return r;
}

static int make_tables(struct engine *engine, struct err *e)
{
    struct buf comment = {0};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof tables / sizeof *tables; i++) {
        r = statement(engine, tables[i], NULL, e);
    }
    if (r == 0) {
        r = statement(engine,
                      "SELECT comment FROM system.tables WHERE database = 'q' AND name = 'events'",
                      &comment, e);
    }
    if (r == 0 && !slice_eq(buf_slice(&comment), SLICE(VIEW_VERSION "\n"))) {
        r = statement(engine, view, NULL, e);
    }
    buf_free(&comment);
    return r;
}

/* Where the events' parts lie: run.c syncs that directory after an insert. */
static int find_table(struct engine *engine, struct err *e)
{
    struct buf path = {0};
    struct os_stat st;
    int r = statement(engine,
                      "SELECT data_paths[1] FROM system.tables WHERE database = '" EVENTS_DATABASE
                      "' AND name = '" EVENTS_TABLE "'",
                      &path, e);

    if (r == 0 && (path.len < 2 || path.len > sizeof engine->table_dir)) {
        r = err_set(e, ERR_IO, "the engine does not say where the events lie");
    }
    if (r == 0) {
        memcpy(engine->table_dir, path.ptr, path.len - 1); /* without the line end */
        engine->table_dir[path.len - 1] = '\0';
        r = os_stat(engine->table_dir, &st);
        r = r != 0 ? err_os(e, r, "stat", engine->table_dir) : 0;
    }
    buf_free(&path);
    return r;
}

static int drop_system_tables(struct engine *engine, struct err *e)
{
    struct buf names = {0};
    struct slice rest;
    char sql[256];
    int r = statement(engine, drop_list, &names, e);

    rest = buf_slice(&names);
    while (r == 0 && rest.len != 0) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        size_t n = end != NULL ? (size_t)(end - rest.ptr) : rest.len;

        (void)snprintf(sql, sizeof sql, "DROP TABLE system.`%.*s` SYNC", (int)(n < 200 ? n : 200),
                       rest.ptr);
        r = statement(engine, sql, NULL, e);
        rest = slice_from(rest, n + 1);
    }
    buf_free(&names);
    if (r == 0) {
        r = statement(engine, "DROP DATABASE IF EXISTS information_schema SYNC", NULL, e);
    }
    if (r == 0) {
        r = statement(engine, "DROP DATABASE IF EXISTS INFORMATION_SCHEMA SYNC", NULL, e);
    }
    return r;
}

/* ---- the self-test ---- */

#define BASE EVENTS_DATABASE "." EVENTS_TABLE

/* Statements that the engine itself must refuse, the gate not asked, or answer with `answer`. */
static const struct {
    const char *sql;
    const char *answer; /* NULL: an error */
} walls[] = {
    {"SELECT count() FROM " BASE, NULL},
    {"SELECT * FROM merge('" EVENTS_DATABASE "', '.*') LIMIT 1", NULL},
    {"SELECT * FROM mergeTreeIndex('" EVENTS_DATABASE "', '" EVENTS_TABLE "') LIMIT 1", NULL},
    {"SELECT * FROM mergeTreeProjection('" EVENTS_DATABASE "', '" EVENTS_TABLE "', 'x') LIMIT 1",
     NULL},
    {"SELECT * FROM loop('" EVENTS_DATABASE "', '" EVENTS_TABLE "') LIMIT 1", NULL},
    {"SELECT * FROM cluster('default', " BASE ") LIMIT 1", NULL},
    {"SELECT * FROM remote('127.0.0.1', " BASE ") LIMIT 1", NULL},
    {"SELECT * FROM file('../users.xml', 'LineAsString')", NULL},
    {"SELECT * FROM url('http://127.0.0.1:9/', 'LineAsString')", NULL},
    {"SELECT * FROM executable('true', 'LineAsString', 'x String')", NULL},
    {"SELECT * FROM filesystem('..') LIMIT 1", NULL},
    {"SELECT * FROM default.`../users.xml` LIMIT 1", NULL},
    {"INSERT INTO " BASE " (project) VALUES ('x')", NULL},
    {"INSERT INTO FUNCTION file('x', 'CSV', 'a String') VALUES ('x')", NULL},
    {"CREATE TABLE q.x (a UInt8) ENGINE = Memory", NULL},
    {"CREATE TEMPORARY TABLE x (a UInt8)", NULL},
    {"CREATE OR REPLACE VIEW q.events AS SELECT 1", NULL},
    {"DROP TABLE " BASE, NULL},
    {"SHOW CREATE TABLE " BASE, NULL},
    {"SYSTEM STOP MERGES " BASE, NULL},
    {"KILL QUERY WHERE 1", NULL},
    {"SET log_comment = 'other'", NULL},
    {"SET readonly = 0", NULL},
    {"SELECT count() FROM events SETTINGS log_comment = 'other'", NULL},
    {"SELECT count() FROM events SETTINGS additional_result_filter = '1'", NULL},
    {"SELECT * FROM system.parts LIMIT 1", NULL},
    {"SELECT * FROM system.processes LIMIT 1", NULL},
    {"SELECT * FROM information_schema.tables LIMIT 1", NULL},
    {"SELECT * FROM INFORMATION_SCHEMA.COLUMNS LIMIT 1", NULL},
    {"SELECT count() FROM events", "0\n"},
    {"SELECT count() FROM q.events", "0\n"},
    {"SELECT count() FROM merge('q', 'events')", "0\n"},
    {"SELECT count() FROM system.tables WHERE database NOT IN ('q', 'system')", "0\n"},
    {"SELECT length(currentRoles()), currentUser(), getSetting('readonly')", "0\tdefault\t1\n"},
};

/* Statements that the gate must refuse: what the engine would let through. */
static const char *const gates[] = {
    "SET ROLE ALL",
    "SET ROLE DEFAULT",
    "SET ROLE writer",
    "SELECT 1; SET ROLE ALL",
    "SELECT 1 PARALLEL WITH SELECT 2",
    "/* SELECT */ SET ROLE ALL",
    "EXECUTE AS viewer SELECT 1",
    "SELECT 1 INTO OUTFILE 'x'",
    "SELECT 1 FORMAT CSV",
    "SELECT 1 SETTINGS max_threads = 1",
    "SELECT file('../users.xml')",
    "SELECT `file`('../users.xml')",
    "SELECT arrayMap(file, ['../users.xml'])",
    "SELECT * APPLY file FROM (SELECT '../users.xml' AS x)",
    "SELECT * APPLY(x -> file(x)) FROM (SELECT '../users.xml' AS x)",
    "SELECT count() FROM merge('q', 'events')",
    "SELECT * FROM values('x String DEFAULT file(''../users.xml'')', 'a')",
    "INSERT INTO events SELECT * FROM events",
    "SHOW TABLES",
    "SYSTEM STOP MERGES",
};

static bool wall_stands(struct library_conn *c, const char *sql, const char *want)
{
    struct library_answer a;
    bool stands;

    library_run(c, slice_cstr(sql), SLICE("TSVRaw"), NULL, &a);
    stands =
        want == NULL ? a.error.len != 0 : a.error.len == 0 && slice_eq(a.data, slice_cstr(want));
    library_answer_free(&a);
    return stands;
}

static void close_engine(struct engine *engine, const char *why, const char *sql)
{
    engine->open = false;
    (void)snprintf(engine->closed_reason, sizeof engine->closed_reason, "%s%s%.400s", why,
                   sql != NULL ? ": " : "", sql != NULL ? sql : "");
}

static void self_test(struct engine *engine)
{
    /* No project has this name: the capital letters keep it apart from all that can be made. */
    struct query as = {
        .project = SLICE("SELF-TEST"), .time_ms = 5000, .rows_max = 1000, .bytes_max = 1 << 20};
    struct library_conn c = {0};
    struct query_error e = {0};

    engine->open = true;
    if (strcmp(library_version(), LIBRARY_VERSION) != 0) {
        close_engine(engine,
                     "isolation was proven with libchdb " LIBRARY_VERSION " only, this one is",
                     library_version());
        return;
    }
    if (!run_open_project(&c, &as, &e)) {
        close_engine(engine, "a project's connection could not be made", e.text);
        return;
    }
    for (size_t i = 0; engine->open && i < sizeof walls / sizeof *walls; i++) {
        if (!wall_stands(&c, walls[i].sql, walls[i].answer)) {
            close_engine(engine, "the self-test found this open to projects", walls[i].sql);
        }
    }
    for (size_t i = 0; engine->open && i < sizeof gates / sizeof *gates; i++) {
        if (run_gate(&c, slice_cstr(gates[i]), NULL, &e)) {
            close_engine(engine, "the self-test found that the gate passes", gates[i]);
        }
    }
    if (engine->open &&
        !run_gate(&c, SLICE("WITH 1 AS x SELECT event, count() FROM events GROUP BY ALL"), NULL,
                  &e)) {
        close_engine(engine, "the self-test found that the gate refuses a plain query", e.text);
    }
    library_close(&c);
}

int boot_start(struct engine *engine, struct err *e)
{
    int r = library_open(&engine->base, run_options, e);

    if (r != 0) {
        return r;
    }
    r = make_tables(engine, e);
    if (r == 0) {
        r = find_table(engine, e);
    }
    if (r == 0) {
        r = drop_system_tables(engine, e);
    }
    if (r == 0) {
        r = files_sync_names(e);
    }
    if (r != 0) {
        library_close(&engine->base);
        return r;
    }
    self_test(engine);
    if (!engine->open) {
        log_line(LOG_ERROR, "engine", "queries of projects are closed: %s", engine->closed_reason);
    }
    return 0;
}

void boot_stop(struct engine *engine)
{
    library_close(&engine->base);
}
