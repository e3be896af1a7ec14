/* Tables, triggers, migrations, and the backfill of what is derived.
 *
 * Version 1 holds the truth; version 2 adds what is derived from it and the recent receipts;
 * version 3 adds where the artifacts of a project go, version 4 how. A file is brought forward one
 * version a transaction, in which user_version rises too: after a power failure it is at one
 * version or the next, whole. The backfill is a transaction as well and is begun again.
 *
 * Answers: a newer version, a foreign or broken file, no space; all stop the start of the server
 * and change nothing. */
#include "store/schema.h"

#include "base/ensure.h"
#include "base/log.h"
#include "store/db.h"

/* STRICT: a column holds what its type says, whoever writes. */
static const char version_1[] =
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE projects(id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
    " title TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT;"
    "CREATE TABLE keys(id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL,"
    " kind TEXT NOT NULL, name TEXT NOT NULL, hash BLOB NOT NULL UNIQUE, text TEXT,"
    " scopes TEXT NOT NULL, created_ms INTEGER NOT NULL, revoked_ms INTEGER) STRICT;"
    "CREATE INDEX keys_project ON keys(project, id);"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, project INTEGER NOT NULL, uuid BLOB NOT NULL,"
    " received_ms INTEGER NOT NULL, timestamp_us INTEGER NOT NULL, timestamp_sent_us INTEGER,"
    " sent_at_ms INTEGER, time_note TEXT NOT NULL, type TEXT NOT NULL, event TEXT NOT NULL,"
    " distinct_id TEXT NOT NULL, anonymous_id TEXT NOT NULL, session_id TEXT NOT NULL,"
    " source TEXT NOT NULL, message_id TEXT NOT NULL, library TEXT NOT NULL,"
    " library_version TEXT NOT NULL, envelope BLOB NOT NULL, text BLOB NOT NULL) STRICT;"
    "CREATE TABLE receipts(project INTEGER NOT NULL, uuid BLOB NOT NULL,"
    " event_id INTEGER NOT NULL, PRIMARY KEY(project, uuid)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE delivery_quarantine(event_id INTEGER PRIMARY KEY, project INTEGER NOT NULL,"
    " code INTEGER NOT NULL, quarantined_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX delivery_quarantine_project ON delivery_quarantine(project, event_id);"
    "CREATE TABLE rejected(id INTEGER PRIMARY KEY AUTOINCREMENT, project INTEGER NOT NULL,"
    " received_ms INTEGER NOT NULL, position INTEGER NOT NULL, door TEXT NOT NULL,"
    " reason TEXT NOT NULL, text BLOB NOT NULL) STRICT;"
    "CREATE INDEX rejected_project ON rejected(project, id);"
    "CREATE TABLE delivery_cursor(one INTEGER PRIMARY KEY CHECK(one = 1),"
    " project INTEGER NOT NULL, after_id INTEGER NOT NULL) STRICT;"
    "CREATE TABLE delivery_state(project INTEGER PRIMARY KEY,"
    " last_success_ms INTEGER NOT NULL) STRICT;";

static const char version_2[] =
    "CREATE TABLE receipts_recent(event_id INTEGER PRIMARY KEY, project INTEGER NOT NULL,"
    " uuid BLOB NOT NULL) STRICT;"
    "CREATE TABLE delivery_ready(project INTEGER NOT NULL, id INTEGER NOT NULL,"
    " PRIMARY KEY(project, id)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE project_counters(project INTEGER PRIMARY KEY,"
    " pending_events INTEGER NOT NULL DEFAULT 0, pending_bytes INTEGER NOT NULL DEFAULT 0,"
    " quarantined INTEGER NOT NULL DEFAULT 0, receipts INTEGER NOT NULL DEFAULT 0,"
    " rejected INTEGER NOT NULL DEFAULT 0, rejected_kept INTEGER NOT NULL DEFAULT 0,"
    " rejected_bytes INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE TRIGGER events_added AFTER INSERT ON events BEGIN"
    " INSERT INTO delivery_ready(project, id) VALUES(new.project, new.id); END;"
    /* The event first, then its quarantine: the trigger below then finds no event to make ready. */
    "CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN"
    " DELETE FROM delivery_ready WHERE project = old.project AND id = old.id;"
    " DELETE FROM delivery_quarantine WHERE event_id = old.id; END;"
    "CREATE TRIGGER quarantine_added AFTER INSERT ON delivery_quarantine BEGIN"
    " DELETE FROM delivery_ready WHERE project = new.project AND id = new.event_id;"
    " UPDATE project_counters SET quarantined = quarantined + 1 WHERE project = new.project; END;"
    "CREATE TRIGGER quarantine_removed AFTER DELETE ON delivery_quarantine BEGIN"
    " INSERT INTO delivery_ready(project, id)"
    " SELECT project, id FROM events WHERE id = old.event_id;"
    " UPDATE project_counters SET quarantined = quarantined - 1 WHERE project = old.project; END;";

static const char version_3[] =
    "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY, sink TEXT NOT NULL,"
    " directory TEXT NOT NULL) STRICT;";

/* {}: everything at its default, which is what version 3 did. */
static const char version_4[] =
    "ALTER TABLE artifact_projects ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';";

static const char *const steps[SCHEMA_VERSION] = {version_1, version_2, version_3, version_4};

static int step_forward(struct sqlite3 *db, int64_t from, struct err *e)
{
    char set[96];
    int r = db_exec(db, "BEGIN IMMEDIATE", e);

    if (r < 0) {
        return r;
    }
    ensure(from >= 0);
    ensure(from < SCHEMA_VERSION);
    r = db_exec(db, steps[from], e);
    if (r == 0) {
        sqlite3_snprintf((int)sizeof set, set, "PRAGMA application_id=%d; PRAGMA user_version=%d",
                         SCHEMA_APPLICATION_ID, (int)from + 1);
        r = db_exec(db, set, e);
    }
    if (r == 0) {
        r = db_exec(db, "COMMIT", e);
    }
    return r;
}

int schema_check(struct sqlite3 *db, int64_t *version, struct err *e)
{
    int64_t application, tables;
    int r = db_number(db, "PRAGMA user_version", 0, version, e);

    if (r == 0) {
        r = db_number(db, "PRAGMA application_id", 0, &application, e);
    }
    if (r == 0) {
        r = db_number(db, "SELECT count(*) FROM sqlite_master", 0, &tables, e);
    }
    if (r < 0) {
        return r;
    }
    if (tables == 0 ? application != 0 || *version != 0 : application != SCHEMA_APPLICATION_ID) {
        return err_set(e, ERR_UNSUPPORTED, "%s is another program's database", STORE_FILE);
    }
    if (*version < 0 || *version > SCHEMA_VERSION) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has schema version %lld; this program knows up to %d", STORE_FILE,
                       (long long)*version, SCHEMA_VERSION);
    }
    return 0;
}

int schema_open(struct sqlite3 *db, int64_t *version, struct err *e)
{
    int r = schema_check(db, version, e);
    bool old = *version > 0;

    for (; r == 0 && *version < SCHEMA_VERSION; ++*version) {
        if (old) {
            log_line(LOG_INFO, "store", "bringing %s from schema version %lld to %lld", STORE_FILE,
                     (long long)*version, (long long)*version + 1);
        }
        r = step_forward(db, *version, e);
    }
    return r;
}

/* ---- what is derived ---- */

static int fill_ready(struct sqlite3 *db, struct err *e)
{
    int64_t needed;
    int r = db_number(db,
                      "SELECT EXISTS(SELECT 1 FROM events) AND"
                      " NOT EXISTS(SELECT 1 FROM delivery_ready)",
                      0, &needed, e);
    if (r < 0 || needed == 0) {
        return r;
    }
    r = db_exec(db,
                "INSERT INTO delivery_ready(project, id) SELECT project, id FROM events"
                " WHERE id NOT IN (SELECT event_id FROM delivery_quarantine)",
                e);
    if (r == 0 && sqlite3_changes64(db) > 0) {
        log_line(LOG_INFO, "store", "delivery_ready was empty: filled with %lld events",
                 (long long)sqlite3_changes64(db));
    }
    return r;
}

static int fill_counters(struct sqlite3 *db, struct err *e)
{
    int64_t missing;
    int r = db_number(db,
                      "SELECT count(*) FROM projects WHERE id NOT IN"
                      " (SELECT project FROM project_counters)",
                      0, &missing, e);
    if (r < 0 || missing == 0) {
        return r;
    }
    log_line(LOG_INFO, "store", "counting for %lld projects without counters", (long long)missing);
    return db_exec(
        db,
        "INSERT INTO project_counters(project, pending_events, pending_bytes, quarantined,"
        " receipts, rejected, rejected_kept, rejected_bytes)"
        " SELECT p.id, ifnull(q.n, 0), ifnull(q.bytes, 0), ifnull(s.n, 0),"
        " ifnull(r.n, 0), ifnull(x.n, 0), ifnull(x.n, 0), ifnull(x.bytes, 0) FROM projects p"
        " LEFT JOIN (SELECT project, count(*) n, sum(length(text) + length(envelope)) bytes"
        " FROM events GROUP BY project) q ON q.project = p.id"
        " LEFT JOIN (SELECT project, count(*) n FROM delivery_quarantine GROUP BY project) s"
        " ON s.project = p.id"
        " LEFT JOIN (SELECT project, count(*) n FROM (SELECT project, uuid FROM receipts UNION"
        " SELECT project, uuid FROM receipts_recent) GROUP BY project) r ON r.project = p.id"
        " LEFT JOIN (SELECT project, count(*) n, sum(length(text)) bytes FROM rejected"
        " GROUP BY project) x ON x.project = p.id"
        " WHERE p.id NOT IN (SELECT project FROM project_counters)",
        e);
}

static int fill_next_id(struct sqlite3 *db, struct err *e)
{
    int64_t next, last;
    int r = db_number(db, "SELECT value FROM meta WHERE name = 'next_event_id'", 0, &next, e);

    if (r == 0 && next == 0) {
        r = db_exec(db,
                    "INSERT INTO meta(name, value) SELECT 'next_event_id', 1 + max("
                    " (SELECT ifnull(max(id), 0) FROM events),"
                    " (SELECT ifnull(max(event_id), 0) FROM receipts_recent),"
                    " (SELECT ifnull(max(event_id), 0) FROM receipts))",
                    e);
        return r;
    }
    if (r == 0) {
        r = db_number(db,
                      "SELECT max((SELECT ifnull(max(id), 0) FROM events),"
                      " (SELECT ifnull(max(event_id), 0) FROM receipts_recent))",
                      0, &last, e);
    }
    if (r == 0 && last >= next) {
        return err_set(e, ERR_CORRUPT, "%s: event %lld is there, but the next id is %lld",
                       STORE_FILE, (long long)last, (long long)next);
    }
    return r;
}

int schema_backfill(struct sqlite3 *db, struct err *e)
{
    int r = db_exec(db, "BEGIN IMMEDIATE", e);

    if (r < 0) {
        return r;
    }
    r = fill_ready(db, e);
    if (r == 0) {
        r = fill_counters(db, e);
    }
    if (r == 0) {
        r = fill_next_id(db, e);
    }
    if (r == 0) {
        r = db_exec(db, "COMMIT", e);
    }
    return r;
}
