/* verify_rows: the invariants that a row holds by itself or with the rows it names.
 *
 * Each table is walked in the order of its key, in slices of some thousand rows; a slice is one
 * statement and so one view of the database, in which a row and what it names belong together. The
 * next slice goes on behind the last key. A column of the statement is one question: NULL, or what
 * is wrong. Memory is one row. */
#include <stdio.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "store/artifact/settings.h"
#include "store/verify_internal.h"

#define SLICE_ROWS   5000
#define PROBLEMS_MAX 6

struct walk {
    const char *what;
    int since, until; /* versions of the schema */
    int keys;         /* columns of the key: ?1, ?2; the number behind them is what a row counts */
    const char *sql;
    enum verify_kind kinds[PROBLEMS_MAX]; /* of the further columns */
    int problems;
};

/* ---- the questions ---- */

#define NO_PROJECT(row, name)                                                                \
    "CASE WHEN NOT EXISTS(SELECT 1 FROM projects p WHERE p.id = " row ".project) THEN " name \
    " || ': there is no project ' || " row ".project END"
#define BAD_UUID(row, name)                                                                  \
    "CASE WHEN length(" row ".uuid) <> 16 THEN " name " || ': its uuid has ' || length(" row \
    ".uuid) || ' bytes' END"
#define BAD_ID(id, name)                                                   \
    "CASE WHEN " id " < 1 THEN " name " || ': no id' WHEN " id             \
    " >= (SELECT value FROM meta WHERE name = 'next_event_id') THEN " name \
    " || ': the next id is ' || (SELECT value FROM meta WHERE name = 'next_event_id') END"
#define OTHER_EVENT(row, name)                                                  \
    "CASE WHEN EXISTS(SELECT 1 FROM events e WHERE e.id = " row ".event_id AND" \
    " (e.project <> " row ".project OR e.uuid <> " row ".uuid)) THEN " name     \
    " || ': the queued event of that id is another one' END"

#define EVENT "'event ' || e.id"
#define IN_RECEIPTS                                                                   \
    "EXISTS(SELECT 1 FROM receipts r WHERE r.project = e.project AND r.uuid = e.uuid" \
    " AND r.event_id = e.id)"
#define IN_RECENT                                                        \
    "EXISTS(SELECT 1 FROM receipts_recent c WHERE c.event_id = e.id AND" \
    " c.project = e.project AND c.uuid = e.uuid)"
#define FROM_EVENTS " FROM events e WHERE e.id > ?1 ORDER BY e.id LIMIT ?3"

#define EVENTS_1                                                 \
    "SELECT e.id, 1, " NO_PROJECT("e", EVENT) ", " BAD_UUID(     \
        "e", EVENT) ","                                          \
                    " CASE WHEN NOT " IN_RECEIPTS " THEN " EVENT \
                    " || ': no receipt has its id' END" FROM_EVENTS
#define EVENTS_2                                                                                   \
    "SELECT e.id, 1, " NO_PROJECT("e", EVENT) ", " BAD_UUID(                                       \
        "e",                                                                                       \
        EVENT) ","                                                                                 \
               " CASE WHEN NOT " IN_RECENT " AND NOT " IN_RECEIPTS " THEN " EVENT                  \
               " || ': no receipt has its id' END, " BAD_ID(                                       \
                   "e.id",                                                                         \
                   EVENT) ","                                                                      \
                          " CASE WHEN ?4 AND NOT EXISTS(SELECT 1 FROM delivery_quarantine q WHERE" \
                          " q.event_id = e.id) AND NOT EXISTS(SELECT 1 FROM delivery_ready d "     \
                          "WHERE"                                                                  \
                          " d.project = e.project AND d.id = e.id) THEN " EVENT                    \
                          " || ': neither in delivery_ready nor quarantined' END" FROM_EVENTS

#define RECEIPT "'receipt of event ' || r.event_id"
#define RECEIPTS                                                                                   \
    "SELECT r.project, r.uuid, 1, " NO_PROJECT("r", RECEIPT) ", " BAD_UUID(                        \
        "r", RECEIPT) ", " OTHER_EVENT("r",                                                        \
                                       RECEIPT) ", " BAD_ID("r.event_id",                          \
                                                            RECEIPT) " FROM receipts r WHERE "     \
                                                                     "(r.project, r.uuid) > (?1, " \
                                                                     "?2) ORDER BY r.project, "    \
                                                                     "r.uuid LIMIT ?3"

#define RECENT "'recent receipt of event ' || c.event_id"
#define RECENTS                                                                                    \
    "SELECT c.event_id, NOT EXISTS(SELECT 1 FROM receipts r WHERE r.project = c.project"           \
    " AND r.uuid = c.uuid), " NO_PROJECT("c", RECENT) ", " BAD_UUID("c", RECENT) ", " OTHER_EVENT( \
        "c",                                                                                       \
        RECENT) ", " BAD_ID("c.event_id",                                                          \
                            RECENT) ","                                                            \
                                    " CASE WHEN EXISTS(SELECT 1 FROM receipts r WHERE r.project "  \
                                    "= c.project AND"                                              \
                                    " r.uuid = c.uuid AND r.event_id <> c.event_id) THEN " RECENT  \
                                    " || ': an older receipt of the same uuid has another id' END" \
                                    " FROM receipts_recent c WHERE c.event_id > ?1 ORDER BY "      \
                                    "c.event_id LIMIT ?3"

#define READY                                                                          \
    "SELECT d.project, d.id, 0, CASE WHEN NOT EXISTS(SELECT 1 FROM events e WHERE"     \
    " e.id = d.id AND e.project = d.project) THEN 'delivery_ready: project ' ||"       \
    " d.project || ' has no event ' || d.id WHEN EXISTS(SELECT 1 FROM"                 \
    " delivery_quarantine q WHERE q.event_id = d.id) THEN 'delivery_ready: event ' ||" \
    " d.id || ' is quarantined' END FROM delivery_ready d"                             \
    " WHERE (d.project, d.id) > (?1, ?2) ORDER BY d.project, d.id LIMIT ?3"

#define QUARANTINE                                                                 \
    "SELECT q.event_id, 1, CASE WHEN NOT EXISTS(SELECT 1 FROM events e WHERE"      \
    " e.id = q.event_id AND e.project = q.project) THEN 'quarantine: project ' ||" \
    " q.project || ' has no event ' || q.event_id END"                             \
    " FROM delivery_quarantine q WHERE q.event_id > ?1 ORDER BY q.event_id LIMIT ?3"

#define REJECTED                   \
    "SELECT x.id, 1, " NO_PROJECT( \
        "x", "'rejected ' || x.id") " FROM rejected x WHERE x.id > ?1 ORDER BY x.id LIMIT ?3"

#define STATE                                                                                      \
    "SELECT s.project, 0, " NO_PROJECT(                                                            \
        "s", "'delivery state'") " FROM delivery_state s WHERE s.project > ?1 ORDER BY s.project " \
                                 "LIMIT ?3"

#define DESTINATION "'artifact destination of project ' || a.project"
#define DESTINATIONS                                                                              \
    "SELECT a.project, 0, " NO_PROJECT(                                                           \
        "a",                                                                                      \
        DESTINATION) ", CASE WHEN a.sink <> 'directory' THEN " DESTINATION " || ': no such sink'" \
                     " WHEN substr(a.directory, 1, 1) <> '/' THEN " DESTINATION " || ': its "     \
                     "directory is no absolute path' END"                                         \
                     " FROM artifact_projects a WHERE a.project > ?1 ORDER BY a.project LIMIT ?3"

#define HOW_DELIVERED                                                                          \
    "SELECT a.project, 0, " NO_PROJECT(                                                        \
        "a",                                                                                   \
        DESTINATION) ", artifact_settings(a.project,"                                          \
                     " a.sink, a.directory, a.settings, (SELECT p.name FROM projects p WHERE " \
                     "p.id = a.project))"                                                      \
                     " FROM artifact_projects a WHERE a.project > ?1 ORDER BY a.project LIMIT ?3"

#define PROJECTS "SELECT p.id, 1 FROM projects p WHERE p.id > ?1 ORDER BY p.id LIMIT ?3"

#define KEYS                                                                                      \
    "SELECT k.id, 1, " NO_PROJECT(                                                                \
        "k",                                                                                      \
        "'key ' || k.id") ","                                                                     \
                          " CASE WHEN length(k.hash) <> 32 THEN 'key ' || k.id || ': its hash "   \
                          "has ' ||"                                                              \
                          " length(k.hash) || ' bytes'"                                           \
                          " WHEN k.kind NOT IN ('capture', 'segment', 'service') THEN 'key ' || " \
                          "k.id ||"                                                               \
                          " ': no such kind'"                                                     \
                          " WHEN (k.text IS NULL) <> (k.kind = 'service') THEN 'key ' || k.id ||" \
                          " ': only public keys are kept in clear'"                               \
                          " WHEN k.text IS NOT NULL AND sha256(k.text) <> k.hash THEN 'key ' || " \
                          "k.id ||"                                                               \
                          " ': its hash is not that of its text' END"                             \
                          " FROM keys k WHERE k.id > ?1 ORDER BY k.id LIMIT ?3"

#define K(kind) VERIFY_KIND_##kind

static const struct walk walks[] = {
    {"events", 1, 1, 1, EVENTS_1, {K(PROJECT), K(IDENTITY), K(RECEIPT)}, 3},
    {"events",
     2,
     INT32_MAX,
     1,
     EVENTS_2,
     {K(PROJECT), K(IDENTITY), K(RECEIPT), K(NEXT_ID), K(READY)},
     5},
    {"receipts", 1, INT32_MAX, 2, RECEIPTS, {K(PROJECT), K(IDENTITY), K(IDENTITY), K(NEXT_ID)}, 4},
    {"receipts",
     2,
     INT32_MAX,
     1,
     RECENTS,
     {K(PROJECT), K(IDENTITY), K(IDENTITY), K(NEXT_ID), K(IDENTITY)},
     5},
    {"delivery_ready", 2, INT32_MAX, 2, READY, {K(READY)}, 1},
    {"quarantine", 1, INT32_MAX, 1, QUARANTINE, {K(QUARANTINE)}, 1},
    {"rejected", 1, INT32_MAX, 1, REJECTED, {K(PROJECT)}, 1},
    {"delivery_state", 1, INT32_MAX, 1, STATE, {K(PROJECT)}, 1},
    {"projects", 1, INT32_MAX, 1, PROJECTS, {K(PROJECT)}, 0},
    {"keys", 1, INT32_MAX, 1, KEYS, {K(PROJECT), K(KEY)}, 2},
    {"artifact_projects", 3, 3, 1, DESTINATIONS, {K(PROJECT), K(DESTINATION)}, 2},
    {"artifact_projects", 4, INT32_MAX, 1, HOW_DELIVERED, {K(PROJECT), K(DESTINATION)}, 2},
};

/* Two recent receipts of one identity; the table has no index that would tell. Sorted in memory:
 * only as long as the table is as small as it is kept. */
#define TWINS_MAX INT64_C(1000000)
#define TWINS                                                                         \
    "SELECT min(event_id), max(event_id) FROM receipts_recent GROUP BY project, uuid" \
    " HAVING count(*) > 1"

/* ---- walking ---- */

static uint64_t *counter_of(struct verify_run *v, const char *what)
{
    struct store_verify_result *r = v->result;
    switch (what[0]) {
    case 'e':
        return &r->events;
    case 'q':
        return &r->quarantined;
    case 'p':
        return &r->projects;
    case 'k':
        return &r->keys;
    default:
        return what[2] == 'j' ? &r->rejected : &r->receipts;
    }
}

static void row(struct verify_run *v, const struct walk *w, sqlite3_stmt *st)
{
    *counter_of(v, w->what) += (uint64_t)sqlite3_column_int64(st, w->keys);
    for (int i = 0; i < w->problems; i++) {
        int column = w->keys + 1 + i;
        if (sqlite3_column_type(st, column) != SQLITE_NULL) {
            const unsigned char *text = sqlite3_column_text(st, column);
            verify_tell(v, w->kinds[i], "%s", text != NULL ? (const char *)text : w->what);
        }
    }
}

/* One slice. *last keeps the last row's key, owned; *rows how many there were. */
static int slice(struct verify_run *v, const struct walk *w, sqlite3_stmt *st,
                 struct sqlite3_value *last[2], int *rows)
{
    int rc;
    *rows = 0;
    for (int i = 0; i < w->keys && last[i] != NULL; i++) {
        if (sqlite3_bind_value(st, i + 1, last[i]) != SQLITE_OK) {
            return verify_failed(v, w->what);
        }
    }
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        row(v, w, st);
        if (++*rows < SLICE_ROWS) {
            continue;
        }
        for (int i = 0; i < w->keys; i++) {
            sqlite3_value_free(last[i]);
            last[i] = sqlite3_value_dup(sqlite3_column_value(st, i));
            if (last[i] == NULL) {
                (void)sqlite3_reset(st);
                return err_set(v->e, ERR_NO_MEMORY, "no memory for a key of %s", w->what);
            }
        }
    }
    int r = rc == SQLITE_DONE ? 0 : verify_failed(v, w->what);
    if (rc != SQLITE_DONE) {
        *rows = 0; /* where it would go on is not known */
    }
    (void)sqlite3_reset(st);
    return r;
}

static int walk(struct verify_run *v, const struct walk *w)
{
    sqlite3_stmt *st = NULL;
    struct sqlite3_value *last[2] = {NULL, NULL};
    int rows = SLICE_ROWS;
    int rc = sqlite3_prepare_v2(v->db, w->sql, -1, &st, NULL);
    if (rc != SQLITE_OK) {
        return verify_failed(v, w->what);
    }
    (void)sqlite3_bind_int64(st, 1, INT64_MIN);
    if (w->keys == 2) {
        (void)sqlite3_bind_int64(st, 2, INT64_MIN);
    }
    (void)sqlite3_bind_int64(st, 3, SLICE_ROWS);
    if (sqlite3_bind_parameter_count(st) >= 4) {
        (void)sqlite3_bind_int(st, 4, v->derived);
    }
    int r = 0;
    while (r == 0 && rows == SLICE_ROWS) {
        r = slice(v, w, st, last, &rows);
    }
    (void)sqlite3_finalize(st);
    sqlite3_value_free(last[0]);
    sqlite3_value_free(last[1]);
    return r;
}

/* ---- the rest ---- */

int verify_number(struct verify_run *v, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    *out = 0;
    int rc = sqlite3_prepare_v2(v->db, sql, -1, &st, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(st) : rc;
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
    }
    int r = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : verify_failed(v, sql);
    (void)sqlite3_finalize(st);
    return r;
}

static int check_twins(struct verify_run *v)
{
    sqlite3_stmt *st = NULL;
    int64_t count;
    int r = verify_number(v, "SELECT count(*) FROM receipts_recent", &count);
    if (r != 0) {
        return r;
    }
    if (count > TWINS_MAX) {
        v->result->partial = true;
        return 0;
    }
    verify_limit_begin(v);
    int rc = sqlite3_prepare_v2(v->db, TWINS, -1, &st, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW) {
            verify_tell(
                v, VERIFY_KIND_IDENTITY, "recent receipts of events %lld and %lld: the same uuid",
                (long long)sqlite3_column_int64(st, 0), (long long)sqlite3_column_int64(st, 1));
        }
    }
    r = rc == SQLITE_DONE ? 0 : verify_failed(v, "recent receipts");
    (void)sqlite3_finalize(st);
    verify_limit_end(v);
    return r;
}

static void sql_sha256(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    uint8_t hash[SHA256_LEN];
    ensure(argc == 1);
    const void *bytes = sqlite3_value_blob(argv[0]);
    int n = sqlite3_value_bytes(argv[0]);
    sha256_once(slice_of(bytes != NULL ? bytes : "", (size_t)n), hash);
    sqlite3_result_blob(ctx, hash, sizeof hash, SQLITE_TRANSIENT);
}

static struct slice text_of(sqlite3_value *v)
{
    const void *text = sqlite3_value_text(v);
    return slice_of(text != NULL ? text : "", (size_t)sqlite3_value_bytes(v));
}

/* artifact_settings(project, sink, directory, settings, name): NULL, or which rule they break. */
static void sql_settings(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    struct artifact_sink to;
    struct err why = {0};
    char told[400];
    ensure(argc == 5);
    int r = settings_read(text_of(argv[1]), text_of(argv[2]), text_of(argv[3]), &to, &why);
    if (r == 0) {
        r = settings_check(&to, text_of(argv[4]), &why);
    }
    if (r == ERR_NO_MEMORY) {
        sqlite3_result_error_nomem(ctx);
    } else if (r < 0) {
        (void)snprintf(told, sizeof told, "artifact destination of project %lld: %s",
                       (long long)sqlite3_value_int64(argv[0]), why.text);
        sqlite3_result_text(ctx, told, -1, SQLITE_TRANSIENT);
    }
}

int verify_rows(struct verify_run *v)
{
    int64_t next = 0;
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    int rc =
        sqlite3_create_function_v2(v->db, "sha256", 1, flags, NULL, sql_sha256, NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_create_function_v2(v->db, "artifact_settings", 5, flags, NULL, sql_settings,
                                        NULL, NULL, NULL);
    }
    if (rc != SQLITE_OK) {
        return store_err(v->e, v->db, "add a function");
    }
    int r = verify_number(v, "SELECT value FROM meta WHERE name = 'next_event_id'", &next);
    v->derived = v->version >= 2 && next != 0;
    for (size_t i = 0; r == 0 && i < sizeof walks / sizeof *walks; i++) {
        if (v->version >= walks[i].since && v->version <= walks[i].until) {
            r = walk(v, &walks[i]);
        }
    }
    return r == 0 && v->version >= 2 ? check_twins(v) : r;
}
