/* test_verify: what verify finds, what it leaves alone, and that it writes nothing. Each invariant
 * is broken by SQL on a copy of a good database, and exactly that violation is told. Beside a
 * server (a process of its own, because its locks are a process's), and with what a killed one
 * left. On the model disk each call to the system fails once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/db.h"
#include "store/schema.h"
#include "store/verify.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/os_vfs.h"
#include "tests/unit/store/verify_fixture.h"

/* ---- what is good ---- */

static void a_good_database(void **state)
{
    struct fixture *f = *state;
    struct listing before = fixture_list(f);
    fixture_verified(f);
    assert_int_equal(f->result.violations, 0);
    assert_false(f->result.absent);
    assert_false(f->result.live);
    assert_false(f->result.partial);
    assert_int_equal(f->result.events, 4);
    assert_int_equal(f->result.receipts, 6);
    assert_int_equal(f->result.projects, 2);
    assert_int_equal(f->result.keys, 3);
    assert_int_equal(f->result.rejected, 2);
    assert_int_equal(f->result.quarantined, 1);
    struct listing after = fixture_list(f);
    assert_memory_equal(&before, &after, sizeof before);
}

static void nothing_to_check(void **state)
{
    struct fixture *f = *state;
    char path[FIXTURE_PATH];
    fixture_remove(f, "");
    fixture_verified(f);
    assert_true(f->result.absent);
    assert_int_equal(f->result.violations, 0);
    /* Made, but not a byte written. */
    fixture_path(f, "", path);
    fixture_write(path, "", 0);
    fixture_verified(f);
    assert_true(f->result.absent);
    /* Its first page written, and nothing in it. */
    struct sqlite3 *db = fixture_db(f);
    fixture_sql(db, "PRAGMA journal_mode=WAL");
    fixture_close(db);
    fixture_verified(f);
    assert_true(f->result.absent);
    assert_int_equal(f->result.violations, 0);
}

static void odd_names(void **state)
{
    struct fixture *f = *state;
    char odd[sizeof f->data];
    struct err e;
    struct store_verify_result result;
    char text[8192];
    (void)snprintf(odd, sizeof odd, "%s/a?b#c%%41 d", f->root);
    assert_int_equal(rename(f->data, odd), 0);
    memcpy(f->data, odd, sizeof odd);
    fixture_verified(f);
    assert_int_equal(f->result.violations, 0);
    assert_int_equal(f->result.events, 4);
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    assert_int_equal(store_verify(text, NULL, NULL, &result, &e), ERR_IO);
}

/* ---- each invariant ---- */

static const struct {
    const char *sql, *told;
} breaks[] = {
    {"DELETE FROM receipts WHERE event_id = 1; UPDATE project_counters SET receipts = receipts - 1"
     " WHERE project = 1",
     "event 1: no receipt has its id"},
    {"DELETE FROM receipts_recent WHERE event_id = 5; UPDATE project_counters SET receipts ="
     " receipts - 1 WHERE project = 1",
     "event 5: no receipt has its id"},
    {"UPDATE receipts_recent SET project = 2 WHERE event_id = 6; UPDATE project_counters SET"
     " receipts = receipts + CASE project WHEN 2 THEN 1 ELSE -1 END",
     "event 6: no receipt has its id\n"
     "recent receipt of event 6: the queued event of that id is another one"},
    {"UPDATE receipts SET uuid = zeroblob(16) WHERE event_id = 2",
     "event 2: no receipt has its id\n"
     "receipt of event 2: the queued event of that id is another one"},
    {"INSERT INTO receipts VALUES(1, (SELECT uuid FROM receipts_recent WHERE event_id = 5), 3)",
     "recent receipt of event 5: an older receipt of the same uuid has another id"},
    {"INSERT INTO receipts_recent VALUES(7, 1, (SELECT uuid FROM receipts_recent WHERE"
     " event_id = 5)); UPDATE project_counters SET receipts = receipts + 1 WHERE project = 1",
     "recent receipts of events 5 and 7: the same uuid"},
    {"UPDATE receipts SET uuid = x'1234' WHERE event_id = 3",
     "receipt of event 3: its uuid has 2 bytes"},
    {"DELETE FROM delivery_ready WHERE id = 5",
     "event 5: neither in delivery_ready nor quarantined"},
    {"DELETE FROM delivery_ready", "event 1: neither in delivery_ready nor quarantined\n"
                                   "event 5: neither in delivery_ready nor quarantined\n"
                                   "event 6: neither in delivery_ready nor quarantined"},
    {"INSERT INTO delivery_ready VALUES(1, 3)", "delivery_ready: project 1 has no event 3"},
    {"INSERT INTO delivery_ready VALUES(2, 5)", "delivery_ready: project 2 has no event 5"},
    {"INSERT INTO delivery_ready VALUES(2, 2)", "delivery_ready: event 2 is quarantined"},
    {"INSERT INTO delivery_quarantine VALUES(4, 2, 321, 5); UPDATE project_counters SET"
     " quarantined = quarantined + 1 WHERE project = 2",
     "quarantine: project 2 has no event 4"},
    {"UPDATE delivery_quarantine SET project = 1; UPDATE project_counters SET quarantined ="
     " project = 1",
     "quarantine: project 1 has no event 2"},
    {"UPDATE project_counters SET pending_events = 9 WHERE project = 1",
     "project 1: pending_events is 9, but there are 3"},
    {"UPDATE project_counters SET pending_bytes = 0 WHERE project = 1",
     "project 1: pending_bytes is 0, but there are 35"},
    {"UPDATE project_counters SET quarantined = 0 WHERE project = 2",
     "project 2: quarantined is 0, but there are 1"},
    {"UPDATE project_counters SET receipts = 7 WHERE project = 2",
     "project 2: receipts is 7, but there are 2"},
    {"UPDATE project_counters SET rejected_kept = 1 WHERE project = 1",
     "project 1: rejected_kept is 1, but there are 2"},
    {"UPDATE project_counters SET rejected_bytes = 1 WHERE project = 1",
     "project 1: rejected_bytes is 1, but there are 9"},
    {"UPDATE project_counters SET rejected = 1 WHERE project = 1",
     "project 1: rejected is 1, but 2 are kept"},
    {"DELETE FROM project_counters WHERE project = 2", "project 2 has no counters"},
    {"INSERT INTO project_counters(project) VALUES(77)", "counters of 1 projects that are none"},
    {"UPDATE meta SET value = 6", "event 6: the next id is 6\n"
                                  "recent receipt of event 6: the next id is 6"},
    {"INSERT INTO receipts VALUES(1, randomblob(16), 1000); UPDATE project_counters SET receipts ="
     " receipts + 1 WHERE project = 1",
     "receipt of event 1000: the next id is 8"},
    {"INSERT INTO receipts VALUES(1, randomblob(16), 0); UPDATE project_counters SET receipts ="
     " receipts + 1 WHERE project = 1",
     "receipt of event 0: no id"},
    {"INSERT INTO receipts VALUES(9, randomblob(16), 3)",
     "receipt of event 3: there is no project 9"},
    {"INSERT INTO receipts_recent VALUES(7, 9, randomblob(16))",
     "recent receipt of event 7: there is no project 9"},
    {"UPDATE rejected SET project = 9 WHERE id = 2; UPDATE project_counters SET rejected_kept = 1,"
     " rejected_bytes = 4 WHERE project = 1",
     "rejected 2: there is no project 9"},
    {"UPDATE keys SET project = 9 WHERE id = 2", "key 2: there is no project 9"},
    {"INSERT INTO delivery_state VALUES(9, 1)", "delivery state: there is no project 9"},
    {"INSERT INTO artifact_projects VALUES(9, 'directory', '/x', '{}')",
     "artifact destination of project 9: there is no project 9"},
    {"INSERT INTO artifact_projects VALUES(1, 'odd', '/x', '{}')",
     "artifact destination of project 1: artifacts.sink: there are \"directory\" and"
     " \"internet_archive\""},
    {"INSERT INTO artifact_projects VALUES(1, 'directory', 'x', '{}')",
     "artifact destination of project 1: artifacts.directory: it is an absolute path"},
    {"INSERT INTO artifact_projects VALUES(1, 'directory', '/x', '{ }')",
     "artifact destination of project 1: artifacts: its settings are not as they are written"},
    {"INSERT INTO artifact_projects VALUES(1, 'directory', '/x', '{\"identifier\":\"same\"}')",
     "artifact destination of project 1: artifacts.identifier: it or remote_name must hold"
     " {{OBJECT_ID}}, {{PACKAGE_ID}} or {{PACKAGE_ID_SHORT}}, or files would meet under one name"},
    {"INSERT INTO artifact_projects VALUES(1, 'directory', '/x', '{\"identifier\":')",
     "artifact destination of project 1: artifacts: it must be an object"},
    {"UPDATE keys SET hash = x'00' WHERE id = 1", "key 1: its hash has 1 bytes"},
    {"UPDATE keys SET kind = 'odd' WHERE id = 1", "key 1: no such kind"},
    {"UPDATE keys SET text = NULL WHERE id = 1", "key 1: only public keys are kept in clear"},
    {"UPDATE keys SET text = 'tms_x' WHERE id = 3", "key 3: only public keys are kept in clear"},
    {"UPDATE keys SET text = 'tmc_other' WHERE id = 1", "key 1: its hash is not that of its text"},
    {"DROP TRIGGER events_removed",
     "schema: trigger events_removed is missing or not as it should be"},
    {"DROP INDEX keys_project", "schema: index keys_project is missing or not as it should be"},
    {"CREATE TABLE zoo(x)", "schema: table zoo is not ours"},
    {"PRAGMA user_version=5", "schema version 5; this program knows 1 to 4"},
    {"PRAGMA user_version=0", "schema version 0; this program knows 1 to 4"},
    {"PRAGMA application_id=7", "tallyman.sqlite is another program's database"},
};

static void each_invariant(void **state)
{
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        fixture_restore(f);
        struct sqlite3 *db = fixture_db(f);
        fixture_triggers(db, false);
        fixture_sql(db, breaks[i].sql);
        fixture_close(db);
        fixture_verified(f);
        fixture_same_lines(f->told, breaks[i].told);
    }
}

static void an_event_without_project(void **state)
{
    struct fixture *f = *state;
    struct sqlite3 *db = fixture_db(f);
    fixture_triggers(db, false);
    fixture_sql(db, "DELETE FROM projects WHERE id = 2; DELETE FROM keys WHERE project = 2;"
                    "DELETE FROM project_counters WHERE project = 2;"
                    "DELETE FROM receipts WHERE event_id = 4");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "event 2: there is no project 2\n"
                                "receipt of event 2: there is no project 2");
}

static void too_many_to_tell(void **state)
{
    struct fixture *f = *state;
    struct sqlite3 *db = fixture_db(f);
    fixture_triggers(db, false);
    fixture_sql(db, "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i+1 FROM n WHERE"
                    " i < 7999) INSERT INTO delivery_ready SELECT 1, i FROM n");
    fixture_close(db);
    fixture_verified(f);
    assert_int_equal(f->result.violations, 7000); /* more than one slice */
    assert_int_equal(f->lines, 101);
    assert_non_null(strstr(f->told, "6900 more of these: differences of delivery_ready\n"));
}

static void a_version_before(void **state)
{
    struct fixture *f = *state;
    struct sqlite3 *db = fixture_db(f);
    fixture_sql(db, "INSERT INTO receipts SELECT project, uuid, event_id FROM receipts_recent;"
                    "DROP TRIGGER events_added; DROP TRIGGER events_removed;"
                    "DROP TRIGGER quarantine_added; DROP TRIGGER quarantine_removed;"
                    "DROP TABLE receipts_recent; DROP TABLE delivery_ready;"
                    "DROP TABLE project_counters; DROP TABLE artifact_projects; DELETE FROM meta;"
                    "PRAGMA user_version=1");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
    assert_int_equal(f->result.events, 4);
    assert_int_equal(f->result.receipts, 6);
    db = fixture_db(f);
    fixture_sql(db, "DELETE FROM receipts WHERE event_id = 6");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "event 6: no receipt has its id");
}

static void destinations_of_version_3(void **state)
{
    struct fixture *f = *state;
    struct sqlite3 *db = fixture_db(f);
    fixture_sql(db, "DROP TABLE artifact_projects;"
                    "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY, sink TEXT NOT"
                    " NULL, directory TEXT NOT NULL) STRICT; PRAGMA user_version=3;"
                    "INSERT INTO artifact_projects VALUES(1, 'directory', '/x')");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
    db = fixture_db(f);
    fixture_sql(db, "UPDATE artifact_projects SET sink = 'odd'");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "artifact destination of project 1: no such sink");
}

/* Brought forward, but the power went before what is derived was filled. */
static void not_yet_filled(void **state)
{
    struct fixture *f = *state;
    struct sqlite3 *db = fixture_db(f);
    struct err e;
    fixture_sql(db, "DELETE FROM meta; DELETE FROM delivery_ready; DELETE FROM project_counters");
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
    db = fixture_db(f);
    assert_int_equal(schema_backfill(db, &e), 0);
    fixture_close(db);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
}

/* ---- files that are no database, or the rest of one ---- */

static void not_a_database(void **state)
{
    struct fixture *f = *state;
    char path[FIXTURE_PATH];
    char junk[3000];
    memset(junk, 'j', sizeof junk);
    fixture_path(f, "", path);
    fixture_write(path, junk, sizeof junk);
    assert_int_equal(fixture_verify(f), ERR_CORRUPT);
    assert_string_equal(f->told, "");
    assert_true(strlen(f->e.text) > 0);
    fixture_write(path, junk, 10);
    assert_int_equal(fixture_verify(f), ERR_CORRUPT);
}

static void cut_short(void **state)
{
    struct fixture *f = *state;
    char path[FIXTURE_PATH];
    fixture_path(f, "", path);
    for (off_t size = 4096; size < 16 * 4096; size += 4096) {
        fixture_restore(f);
        assert_int_equal(truncate(path, size), 0);
        int r = fixture_verify(f);
        assert_true(r == ERR_CORRUPT || (r == 0 && f->result.violations > 0));
    }
    fixture_restore(f);
    assert_int_equal(truncate(path, 0), 0);
    char wal[FIXTURE_PATH];
    fixture_path(f, "-wal", wal);
    fixture_write(wal, "something", 9);
    fixture_verified(f);
    fixture_same_lines(f->told, "tallyman.sqlite is empty, but there is a WAL beside it");
    fixture_remove(f, "");
    fixture_verified(f);
    fixture_same_lines(f->told, "tallyman.sqlite is missing, but there is a WAL beside it");
}

static void rollback_journals(void **state)
{
    struct fixture *f = *state;
    char path[FIXTURE_PATH];
    unsigned char head[512] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    fixture_path(f, "-journal", path);
    fixture_write(path, head, sizeof head); /* of an empty database: its making was cut off */
    fixture_verified(f);
    assert_true(f->result.absent);
    head[19] = 5;
    fixture_write(path, head, sizeof head);
    fixture_verified(f);
    assert_false(f->result.absent);
    fixture_same_lines(f->told, "tallyman.sqlite-journal is a rollback journal that must be played "
                                "back; a start does that");
    head[0] = 0; /* ended: nothing to play back */
    fixture_write(path, head, sizeof head);
    fixture_verified(f);
    assert_false(f->result.absent);
    fixture_same_lines(f->told, "");
}

/* ---- beside a server, and after one ---- */

static void without_the_wal_it_would_be_wrong(struct fixture *f)
{
    struct listing before = fixture_list(f);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
    assert_int_equal(f->result.events, 5); /* the fifth is in the WAL alone */
    struct listing after = fixture_list(f);
    assert_memory_equal(&before, &after, sizeof before);
}

static void after_a_kill(void **state)
{
    struct fixture *f = *state;
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    without_the_wal_it_would_be_wrong(f);
    assert_true(f->result.live);
    fixture_kill(f, child);
    assert_true(fixture_exists(f, "-wal"));
    assert_true(fixture_exists(f, "-shm"));
    without_the_wal_it_would_be_wrong(f);
    assert_false(f->result.live);
    /* As after a loss of power: the index is gone, or it is nonsense. */
    fixture_remove(f, "-shm");
    without_the_wal_it_would_be_wrong(f);
    assert_false(fixture_exists(f, "-shm"));
    char path[FIXTURE_PATH];
    fixture_path(f, "-shm", path);
    fixture_write(path, "nonsense", 8);
    without_the_wal_it_would_be_wrong(f);
}

static void beside_a_busy_server(void **state)
{
    struct fixture *f = *state;
    pid_t child = fixture_server(f, SERVER_BUSY);
    fixture_wait(f);
    uint64_t events = 0;
    unsigned grew = 0;
    for (int i = 0; i < 40; i++) {
        fixture_verified(f);
        fixture_same_lines(f->told, "");
        assert_true(f->result.live);
        grew += f->result.receipts > events;
        events = f->result.receipts;
    }
    assert_true(grew > 1);
    fixture_kill(f, child);
    fixture_verified(f);
    fixture_same_lines(f->told, "");
    assert_false(f->result.live);
}

/* Servers that come and go between and under the runs. */
static void servers_come_and_go(void **state)
{
    struct fixture *f = *state;
    unsigned live = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = fixture_server(f, SERVER_BRIEF);
        int status = 0;
        while (waitpid(child, &status, WNOHANG) == 0) {
            fixture_verified(f);
            fixture_same_lines(f->told, "");
            live += f->result.live;
        }
        assert_int_equal(status, 0);
        fixture_close_ready(f);
    }
    print_message("%u of the runs were beside a server\n", live);
}

static uint64_t hasty_clock(void)
{
    static uint64_t now;
    now += UINT64_C(10000000000);
    return now;
}

static void time_is_limited_beside_a_server(void **state)
{
    struct fixture *f = *state;
    struct os_table hasty = os_real;
    hasty.clock_mono_ns = hasty_clock;
    struct sqlite3 *db = fixture_db(f);
    fixture_triggers(db, false);
    fixture_sql(db, "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i+1 FROM n WHERE"
                    " i < 19999) INSERT INTO receipts SELECT 1, randomblob(16), 3 FROM n;"
                    "UPDATE project_counters SET receipts = receipts + 19000 WHERE project = 1");
    fixture_close(db);
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    os_install(&hasty);
    fixture_verified(f);
    os_install(NULL);
    fixture_same_lines(f->told, "");
    assert_true(f->result.live);
    assert_true(f->result.partial);
    fixture_kill(f, child);
    os_install(&hasty);
    fixture_verified(f);
    os_install(NULL);
    fixture_same_lines(f->told, "");
    assert_false(f->result.partial);
}

/* ---- an index that is just being changed ---- */

/* The index begins with its header, twice; behind that are nBackfill and the read marks. */
#define HEADER_BYTES 48
#define MARKS_AT     (2 * HEADER_BYTES + 8) /* the first mark is always 0 */
#define MARKS_BYTES  16
#define STOPPED_MS   400
#define FOR_GOOD_MS  60000

static const struct {
    off_t at;
    size_t n;
} changes[] = {
    {0, HEADER_BYTES},            /* the second copy of the header is written, the first not yet */
    {HEADER_BYTES, HEADER_BYTES}, /* the other way round */
    {MARKS_AT, MARKS_BYTES},      /* the log has begun anew, its read marks have not */
};

/* A server that a busy machine stops in the midst of a change: verify waits until it goes on. */
static void a_server_stopped_in_a_change(void **state)
{
    struct fixture *f = *state;
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        pid_t other = fixture_scribble(f, changes[i].at, changes[i].n, STOPPED_MS);
        fixture_verified(f);
        fixture_await(other);
        fixture_same_lines(f->told, "");
        assert_true(f->result.live);
        assert_int_equal(f->result.events, 5);
    }
    fixture_kill(f, child);
}

/* One that never goes on: said after a while, with the reason. */
static void a_server_stopped_for_good(void **state)
{
    struct fixture *f = *state;
    struct os_table hasty = os_real;
    hasty.clock_mono_ns = hasty_clock;
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    pid_t other = fixture_scribble(f, MARKS_AT, MARKS_BYTES, FOR_GOOD_MS);
    os_install(&hasty);
    int r = fixture_verify(f);
    os_install(NULL);
    assert_int_equal(r, ERR_IO);
    assert_non_null(strstr(f->e.text, "in use and could not be read: "));
    assert_non_null(strstr(f->e.text, "SQLite code"));
    assert_string_equal(f->told, "");
    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(waitpid(other, NULL, 0), other);
    fixture_kill(f, child);
}

/* ---- faults ---- */

/* On the model disk each call fails once: no damage may be made up. */
static void a_failed_call_is_no_damage(void **state)
{
    struct fixture *f = *state;
    static const int errors[] = {EIO, ENOMEM, EMFILE};
    struct model *m = model_new(NULL);
    os_vfs_register();
    fixture_to_model(f, m);
    uint64_t calls = 0;
    unsigned failed = 0;
    for (uint64_t k = 0; k <= calls; k++) {
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            uint64_t from = model_calls(m);
            (void)os_vfs_process_new();
            model_fault_arm(m, &(struct fault){.kind = FAULT_ERROR, .error = errors[i], .at = k});
            int r = fixture_verify_at(f, "/m");
            model_fault_arm(m, NULL);
            if (r == 0) {
                fixture_same_lines(f->told, "");
            } else {
                if (r != ERR_IO && r != ERR_NO_MEMORY) {
                    fail_msg("call %" PRIu64 ", errno %d: %s", k, errors[i], f->e.text);
                }
                assert_true(k > 0);
                failed++;
            }
            if (k == 0) {
                calls = model_calls(m) - from;
            }
            assert_int_equal(os_vfs_open_files(), 0);
        }
    }
    assert_true(calls > 30);
    assert_true(failed > 30);
    assert_int_equal(model_pending(m), 0);
    model_free(m);
    os_vfs_unregister();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(a_good_database),
        T(nothing_to_check),
        T(odd_names),
        T(each_invariant),
        T(an_event_without_project),
        T(too_many_to_tell),
        T(a_version_before),
        T(destinations_of_version_3),
        T(not_yet_filled),
        T(not_a_database),
        T(cut_short),
        T(rollback_journals),
        T(after_a_kill),
        T(beside_a_busy_server),
        T(servers_come_and_go),
        T(time_is_limited_beside_a_server),
        T(a_server_stopped_in_a_change),
        T(a_server_stopped_for_good),
        T(a_failed_call_is_no_damage),
    };
#undef T
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
