/* test_os_vfs: the VFS of the tests is itself right: plain SQLite on it keeps what it promised
 * through every power cut, and a disk that lies is noticed. Its locks keep connections apart as the
 * unix VFS does, and what it writes the unix VFS reads. */
#include <errno.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/os_vfs.h"

#define DB     "/m/data/toy.sqlite"
#define ROUNDS 6
#define ROWS   3 /* of a round: all or none */

/* ---- a toy ---- */

static int sql(sqlite3 *db, const char *text)
{
    return sqlite3_exec(db, text, NULL, NULL, NULL);
}

static int64_t number(sqlite3 *db, const char *text)
{
    sqlite3_stmt *s = NULL;
    int64_t n = -1;
    if (sqlite3_prepare_v2(db, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        n = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    return n;
}

static sqlite3 *toy_open(const char *path)
{
    sqlite3 *db = NULL;
    int r = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (r == SQLITE_OK) {
        r = sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                    "PRAGMA wal_autocheckpoint=8;"
                    "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, round INT, v BLOB)");
    }
    if (r != SQLITE_OK) {
        (void)sqlite3_close(db);
        return NULL;
    }
    return db;
}

static bool toy_round(sqlite3 *db, int round)
{
    char text[200];
    (void)snprintf(text, sizeof text,
                   "BEGIN IMMEDIATE; INSERT INTO t(round, v) VALUES(%d, zeroblob(700)), "
                   "(%d, zeroblob(1800)), (%d, zeroblob(90)); COMMIT",
                   round, round, round);
    if (sql(db, text) == SQLITE_OK) {
        return true;
    }
    (void)sql(db, "ROLLBACK");
    return false;
}

/* ---- cutting the power under it ---- */

struct run {
    bool acked[ROUNDS + 1];
    uint64_t states, lost, harmed;
    bool changed;
    unsigned subsets;
};

static void check(struct run *run, struct model *after)
{
    unsigned before = os_vfs_process_new();
    model_use(after);
    sqlite3 *db = toy_open(DB);
    run->states++;
    if (db == NULL || number(db, "SELECT count(*) FROM pragma_integrity_check "
                                 "WHERE integrity_check <> 'ok'") != 0) {
        run->harmed++;
    }
    for (int round = 1; db != NULL && round <= ROUNDS; round++) {
        char text[80];
        (void)snprintf(text, sizeof text, "SELECT count(*) FROM t WHERE round = %d", round);
        int64_t n = number(db, text);
        run->harmed += n != 0 && n != ROWS;
        run->lost += run->acked[round] && n == 0;
    }
    (void)sqlite3_close(db);
    os_vfs_process_set(before);
}

static bool reads_only(enum os_call call)
{
    return call == OS_CALL_pread || call == OS_CALL_fstat || call == OS_CALL_stat ||
           call == OS_CALL_close;
}

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    struct run *run = ctx;
    struct model_crashes it;
    struct model *after;
    bool changed = run->changed;
    run->changed = !reads_only(call->call);
    if (!changed) {
        return;
    }
    model_set_hook(m, NULL, NULL);
    model_crashes_begin(&it, m, 4, run->subsets, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        check(run, after);
        model_free(after);
    }
    model_use(m);
    model_set_hook(m, cut, run);
}

static struct run life(bool lie_files, bool lie_directories)
{
    struct run run = {.subsets = 12, .changed = true};
    struct model *m = model_new(&(struct model_options){.seed = 7});
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    model_lie(m, lie_files, lie_directories);
    (void)os_vfs_process_new();
    model_set_hook(m, cut, &run);
    for (int round = 1; round <= ROUNDS; round++) {
        sqlite3 *db = toy_open(DB);
        assert_non_null(db);
        run.acked[round] = toy_round(db, round);
        round++;
        run.acked[round] = toy_round(db, round);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
    model_set_hook(m, NULL, NULL);
    check(&run, model_snapshot(m));
    model_free(model_in_use());
    model_free(m);
    return run;
}

static void sqlite_keeps_its_word(void **state)
{
    (void)state;
    for (int psow = 0; psow < 2; psow++) {
        os_vfs_psow(psow == 1);
        struct run run = life(false, false);
        print_message("%u states\n", (unsigned)run.states);
        assert_true(run.states > 800);
        assert_int_equal(run.lost, 0);
        assert_int_equal(run.harmed, 0);
    }
}

static void a_lying_disk_is_noticed(void **state)
{
    (void)state;
    struct run files = life(true, false);
    assert_true(files.lost > 0);
    struct run directories = life(false, true);
    assert_true(directories.lost > 0);
}

static uint64_t life_hash(uint64_t seed)
{
    struct model *m = model_new(&(struct model_options){.seed = seed});
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    (void)os_vfs_process_new();
    sqlite3 *db = toy_open(DB);
    assert_true(toy_round(db, 1));
    uint64_t hash = model_hash(m);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    model_free(m);
    return hash;
}

static void same_seed_same_life(void **state)
{
    (void)state;
    assert_int_equal(life_hash(3), life_hash(3));
    assert_int_not_equal(life_hash(3), life_hash(4)); /* the WAL's salts */
}

/* ---- faults ---- */

static int commit_with(enum os_call call, enum fault_kind kind, int error)
{
    struct model *m = model_new(NULL);
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    (void)os_vfs_process_new();
    sqlite3 *db = toy_open(DB);
    assert_non_null(db);
    model_fault_arm(m, &(struct fault){.kind = kind, .error = error, .at = 1, .call = call});
    bool ok = toy_round(db, 1);
    int code = ok ? SQLITE_OK : sqlite3_extended_errcode(db);
    assert_int_equal(model_fault_fired(m), 1);
    model_fault_arm(m, NULL);
    /* ROLLBACK has changed the code, so it is asked for by the next round, which must work. */
    assert_true(toy_round(db, 2));
    assert_int_equal(number(db, "SELECT count(*) FROM t"), ok ? 2 * ROWS : ROWS);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    assert_int_equal(os_vfs_open_files(), 0);
    model_free(m);
    return code;
}

static void faults_reach_sqlite(void **state)
{
    (void)state;
    assert_int_not_equal(commit_with(OS_CALL_pwrite, FAULT_ERROR, EIO), SQLITE_OK);
    assert_int_not_equal(commit_with(OS_CALL_pwrite, FAULT_ERROR, ENOSPC), SQLITE_OK);
    assert_int_equal(commit_with(OS_CALL_pwrite, FAULT_SHORT, 0), SQLITE_OK);
    assert_int_not_equal(commit_with(OS_CALL_fdatasync, FAULT_ERROR, EIO), SQLITE_OK);
}

static int full_code(int error)
{
    struct model *m = model_new(NULL);
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    (void)os_vfs_process_new();
    sqlite3 *db = toy_open(DB);
    assert_non_null(db);
    assert_int_equal(sql(db, "BEGIN; INSERT INTO t(v) VALUES(zeroblob(9000))"), SQLITE_OK);
    model_fault_arm(
        m, &(struct fault){.kind = FAULT_ERROR, .error = error, .at = 1, .call = OS_CALL_pwrite});
    int code = sql(db, "COMMIT");
    assert_int_equal(model_fault_fired(m), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    model_free(m);
    return code;
}

static void a_full_disk_is_told_from_a_broken_one(void **state)
{
    (void)state;
    assert_int_equal(full_code(ENOSPC), SQLITE_FULL);
    assert_int_equal(full_code(EIO) & 0xff, SQLITE_IOERR);
}

/* ---- locks ---- */

static void connections_are_kept_apart(void **state)
{
    (void)state;
    struct model *m = model_new(NULL);
    struct os_stat st;
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    (void)os_vfs_process_new();
    sqlite3 *a = toy_open(DB);
    sqlite3 *b = toy_open(DB);
    assert_true(toy_round(a, 1));
    assert_int_equal(sql(b, "BEGIN"), SQLITE_OK);
    assert_int_equal(number(b, "SELECT count(*) FROM t"), ROWS);
    /* One writes, the other keeps its snapshot and cannot write. */
    assert_int_equal(sql(a, "BEGIN IMMEDIATE; INSERT INTO t(round) VALUES(9)"), SQLITE_OK);
    assert_int_equal(sql(b, "DELETE FROM t"), SQLITE_BUSY);
    assert_int_equal(sql(a, "COMMIT"), SQLITE_OK);
    assert_int_equal(number(b, "SELECT count(*) FROM t"), ROWS);
    assert_int_equal(sql(b, "COMMIT"), SQLITE_OK);
    assert_int_equal(number(b, "SELECT count(*) FROM t"), ROWS + 1);
    /* The WAL goes with the last connection, not before. */
    assert_int_equal(sqlite3_close(a), SQLITE_OK);
    assert_int_equal(os_stat(DB "-wal", &st), 0);
    assert_int_equal(number(b, "SELECT count(*) FROM t"), ROWS + 1);
    assert_int_equal(sqlite3_close(b), SQLITE_OK);
    assert_int_equal(os_stat(DB "-wal", &st), -ENOENT);
    assert_int_equal(os_vfs_open_files(), 0);
    model_free(m);
}

static void processes_share_nothing(void **state)
{
    (void)state;
    struct model *m = model_new(NULL);
    model_use(m);
    assert_int_equal(os_mkdir("/m/data", 0700), 0);
    (void)os_vfs_process_new();
    sqlite3 *a = toy_open(DB);
    assert_int_equal(sql(a, "BEGIN IMMEDIATE"), SQLITE_OK);
    unsigned first = os_vfs_process_new();
    sqlite3 *b = toy_open(DB); /* a's lock died with its process */
    assert_non_null(b);
    assert_true(toy_round(b, 1));
    assert_int_equal(sqlite3_close(b), SQLITE_OK);
    os_vfs_process_set(first);
    (void)sqlite3_close(a);
    model_free(m);
}

static void the_unix_vfs_reads_it(void **state)
{
    (void)state;
    char directory[] = "/tmp/os_vfs_XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/toy.sqlite", directory);
    os_install(NULL);
    sqlite3 *db = toy_open(path);
    assert_non_null(db);
    assert_true(toy_round(db, 1));
    /* A big sort and a statement journal: files without a name. */
    assert_int_equal(sql(db, "PRAGMA temp_store=FILE; PRAGMA cache_size=10;"
                             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n "
                             "WHERE i < 20000) INSERT INTO t(round, v) SELECT 9, randomblob(90) "
                             "FROM n ORDER BY hex(randomblob(20))"),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    os_vfs_unregister();
    db = toy_open(path);
    assert_int_equal(number(db, "SELECT count(*) FROM t"), ROWS + 20000);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    os_vfs_register();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

static int setup(void **state)
{
    (void)state;
    os_vfs_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sqlite_keeps_its_word),
        cmocka_unit_test(a_lying_disk_is_noticed),
        cmocka_unit_test(same_seed_same_life),
        cmocka_unit_test(faults_reach_sqlite),
        cmocka_unit_test(a_full_disk_is_told_from_a_broken_one),
        cmocka_unit_test(connections_are_kept_apart),
        cmocka_unit_test(processes_share_nothing),
        cmocka_unit_test(the_unix_vfs_reads_it),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
