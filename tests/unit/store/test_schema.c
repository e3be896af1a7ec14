/* Versions: a new file, a file of version 1, newer and foreign ones; derived tables gone. */
#include "store/artifact/settings.h"
#include "tests/unit/store/store_kit.h"

/* What version 1 was, frozen here; and some rows of it. */
static const char version_1_file[] =
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
    " last_success_ms INTEGER NOT NULL) STRICT;"
    "PRAGMA application_id=1414286425; PRAGMA user_version=1;"
    "INSERT INTO projects(name, title, created_ms) VALUES('alpha', '', 1), ('beta', 'B', 2);"
    "INSERT INTO keys(project, kind, name, hash, text, scopes, created_ms) VALUES"
    " (1, 'capture', 'default', zeroblob(32), 'tmc_x', '', 1);"
    "INSERT INTO events SELECT value, 1 + value % 2, CAST('uuid-1234567890' || value AS BLOB), 5,"
    " 5, NULL, NULL, '', 'capture', 'e', 'd', '', '', 's', '', '', '', x'7b7d',"
    " CAST('text' || value AS BLOB) FROM (SELECT 5 AS value UNION SELECT 6 UNION SELECT 7);"
    "INSERT INTO receipts SELECT project, uuid, id FROM events;"
    "INSERT INTO receipts VALUES(2, x'00112233445566778899aabbccddeeff', 12);"
    "INSERT INTO delivery_quarantine VALUES(6, 1, 321, 9);"
    "INSERT INTO rejected(project, received_ms, position, door, reason, text) VALUES"
    " (2, 5, 0, 'segment', 'why', x'61626364');";

/* What version 2 made of it, frozen too; the derived rows are filled. */
static const char version_2_step[] =
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
    "CREATE TRIGGER events_removed AFTER DELETE ON events BEGIN"
    " DELETE FROM delivery_ready WHERE project = old.project AND id = old.id;"
    " DELETE FROM delivery_quarantine WHERE event_id = old.id; END;"
    "CREATE TRIGGER quarantine_added AFTER INSERT ON delivery_quarantine BEGIN"
    " DELETE FROM delivery_ready WHERE project = new.project AND id = new.event_id;"
    " UPDATE project_counters SET quarantined = quarantined + 1 WHERE project = new.project; END;"
    "CREATE TRIGGER quarantine_removed AFTER DELETE ON delivery_quarantine BEGIN"
    " INSERT INTO delivery_ready(project, id)"
    " SELECT project, id FROM events WHERE id = old.event_id;"
    " UPDATE project_counters SET quarantined = quarantined - 1 WHERE project = old.project; END;"
    "PRAGMA user_version=2;"
    "INSERT INTO delivery_ready SELECT project, id FROM events WHERE id <> 6;"
    "INSERT INTO project_counters SELECT p.id, (SELECT count(*) FROM events WHERE project = p.id),"
    " (SELECT ifnull(sum(length(text) + length(envelope)), 0) FROM events WHERE project = p.id),"
    " (SELECT count(*) FROM delivery_quarantine WHERE project = p.id),"
    " (SELECT count(*) FROM receipts WHERE project = p.id),"
    " p.id = 2, p.id = 2, (p.id = 2) * 4 FROM projects p;"
    "INSERT INTO meta VALUES('next_event_id', 13);";

static void make_file(struct kit *k, const char *sql)
{
    struct sqlite3 *db;
    char path[256];
    snprintf(path, sizeof path, "%s/" STORE_FILE, k->dir);
    assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 100, &db, &k->e), 0);
    if (db_exec(db, sql, &k->e) != 0) {
        fail_msg("%s", k->e.text);
    }
    sqlite3_close(db);
}

static void test_forward_from_1(void **state)
{
    struct kit k;
    struct store_status st;
    struct queue_project_status p;
    struct queue_receipt r;
    kit_dir(&k);
    make_file(&k, version_1_file);
    kit_open(&k);
    store_get_status(k.s, &st);
    assert_int_equal(st.schema_version, SCHEMA_VERSION);
    assert_int_equal(st.pending_events, 3);
    assert_int_equal(st.pending_bytes, 3 * 7);
    assert_int_equal(st.receipts, 4);
    assert_int_equal(st.quarantined, 1);
    assert_int_equal(st.rejected, 1);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_ready"), 2);
    assert_int_equal(queue_project_status(k.reader, 2, &p, &k.e), 0);
    assert_int_equal(p.rejected, 1);
    assert_int_equal(p.pending, 2);
    assert_true(
        slice_eq(slice_cstr(control_key_at(store_control(k.s), 1, 0)->text), SLICE("tmc_x")));
    /* Ids go on behind those of delivered events; the triggers are there. */
    assert_int_equal(kit_put(&k, 1, 1, "new", &r), 0);
    assert_true(r.event_id > 12);
    kit_check(&k);
    kit_reopen(&k);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Projects of version 2 take no artifacts; new ones may. */
static void test_forward_from_2(void **state)
{
    struct kit k;
    struct store_status st;
    kit_dir(&k);
    make_file(&k, version_1_file);
    make_file(&k, version_2_step);
    kit_open(&k);
    store_get_status(k.s, &st);
    assert_int_equal(st.schema_version, SCHEMA_VERSION);
    assert_int_equal(st.pending_events, 3);
    assert_int_equal(st.receipts, 4);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_ready"), 2);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM artifact_projects"), 0);
    const struct control *c = store_control(k.s);
    assert_non_null(control_project(c, SLICE("beta")));
    assert_false(control_takes_artifacts(c, 1));
    assert_false(control_takes_artifacts(c, 2));
    kit_reopen(&k);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Projects of version 3 go on as they did: everything that version 4 adds is at its default. */
static void test_forward_from_3(void **state)
{
    struct kit k;
    struct store_status st;
    struct artifact_sink to;
    kit_dir(&k);
    make_file(&k, version_1_file);
    make_file(&k, version_2_step);
    make_file(&k, "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY, sink TEXT NOT NULL,"
                  " directory TEXT NOT NULL) STRICT; PRAGMA user_version=3;"
                  "INSERT INTO artifact_projects VALUES(2, 'directory', '/srv/files')");
    kit_open(&k);
    store_get_status(k.s, &st);
    assert_int_equal(st.schema_version, SCHEMA_VERSION);
    kit_check(&k);
    for (int again = 0; again < 2; again++) {
        const struct control *c = store_control(k.s);
        const struct artifact_destination *d = &control_project(c, SLICE("beta"))->artifacts;
        assert_false(control_takes_artifacts(c, 1));
        assert_true(control_takes_artifacts(c, 2));
        assert_true(control_requires_checksum(c, 2));
        assert_true(slice_eq(d->directory, SLICE("/srv/files")));
        assert_true(slice_eq(d->settings, SLICE("{}")));
        assert_int_equal(settings_read(d->sink, d->directory, d->settings, &to, &k.e), 0);
        assert_int_equal(settings_check(&to, SLICE("beta"), &k.e), 0);
        assert_true(to.retention_ms == -1);
        kit_reopen(&k);
    }
    kit_end(&k);
    (void)state;
}

/* A migration that fails leaves the file at the version it had. */
static void test_forward_undone(void **state)
{
    struct kit k;
    struct store *s;
    kit_dir(&k);
    make_file(&k, version_1_file);
    make_file(&k, "CREATE TABLE project_counters(in_the_way INTEGER)");
    assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_INTERNAL_ERROR);
    assert_null(s);
    make_file(&k, "DROP TABLE project_counters");
    kit_open(&k);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static void test_new_file(void **state)
{
    struct kit k;
    char path[256];
    kit_dir(&k);
    snprintf(path, sizeof path, "%s/" STORE_FILE, k.dir);
    FILE *f = fopen(path, "w"); /* as a crash leaves it before SQLite writes */
    assert_non_null(f);
    fclose(f);
    kit_open(&k);
    assert_int_equal(kit_number(&k, "PRAGMA user_version"), SCHEMA_VERSION);
    kit_end(&k);
    (void)state;
}

static uint64_t digest(struct kit *k)
{
    char path[256];
    uint64_t sum = 14695981039346656037u;
    snprintf(path, sizeof path, "%s/" STORE_FILE, k->dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int c = fgetc(f); c != EOF; c = fgetc(f)) {
        sum = (sum ^ (uint64_t)c) * 1099511628211u;
    }
    fclose(f);
    return sum;
}

static void test_refused(void **state)
{
    static const char *const files[] = {
        "CREATE TABLE other(x)",
        "PRAGMA application_id=5",
        "PRAGMA user_version=1",
        "CREATE TABLE t(x); PRAGMA application_id=1414286425; PRAGMA user_version=5",
        "CREATE TABLE t(x); PRAGMA application_id=1414286425; PRAGMA user_version=-1",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct kit k;
        struct store *s;
        kit_dir(&k);
        make_file(&k, files[i]);
        uint64_t before = digest(&k);
        assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_UNSUPPORTED);
        assert_true(digest(&k) == before); /* to the byte as it was */
        kit_remove_dir(&k);
    }
    (void)state;
}

static void test_backfill(void **state)
{
    struct kit k;
    struct store *s;
    struct queue_receipt r;
    kit_start(&k);
    for (uint64_t i = 0; i < 30; i++) {
        assert_int_equal(kit_put(&k, i % 3 == 0 ? k.alpha : k.beta, i, "text", &r), 0);
    }
    assert_int_equal(kit_sql(&k, "INSERT INTO delivery_quarantine SELECT id, project, 321, 5 FROM"
                                 " events ORDER BY id LIMIT 3"),
                     0);
    kit_check(&k);
    kit_close(&k);
    make_file(&k, "DELETE FROM delivery_ready; DELETE FROM project_counters;"
                  "DELETE FROM meta");
    kit_open(&k);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM delivery_ready"), 27);
    kit_close(&k);
    make_file(&k, "DELETE FROM project_counters WHERE project = 2");
    kit_open(&k);
    kit_check(&k);
    int64_t last = r.event_id;
    assert_int_equal(kit_put(&k, k.alpha, 1000, "text", &r), 0);
    assert_true(r.event_id > last);
    kit_close(&k);
    /* An id that would be given again is damage, not something to mend. */
    make_file(&k, "UPDATE meta SET value = 10");
    assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_CORRUPT);
    make_file(&k, "UPDATE meta SET value = 1000");
    kit_open(&k);
    kit_end(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_from_1), cmocka_unit_test(test_forward_undone),
        cmocka_unit_test(test_forward_from_2), cmocka_unit_test(test_forward_from_3),
        cmocka_unit_test(test_new_file),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_backfill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
