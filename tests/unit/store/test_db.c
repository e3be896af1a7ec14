/* Opening a database while reads fail: with all of our settings, or not at all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/db.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/os_vfs.h"

#define PATH  "/m/x.sqlite"
#define FLAGS (SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)

static void check_settings(struct sqlite3 *db)
{
    static const struct {
        const char *pragma;
        int64_t value;
    } wanted[] = {{"PRAGMA cache_size", -777},      {"PRAGMA synchronous", 2},
                  {"PRAGMA secure_delete", 2},      {"PRAGMA temp_store", 2},
                  {"PRAGMA recursive_triggers", 0}, {"PRAGMA cell_size_check", 1}};
    struct err e;
    int64_t value;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(db_number(db, wanted[i].pragma, -1, &value, &e), 0);
        assert_int_equal(value, wanted[i].value);
    }
}

/* ---- the index of the log on a full disk ---- */

static ssize_t (*own_pwrite)(int fd, const void *p, size_t n, off_t at);
static ssize_t index_room; /* -1: no limit; else so many bytes of a page */

static ssize_t short_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (index_room < 0) {
        return own_pwrite(fd, p, n, at);
    }
    errno = ENOSPC;
    return index_room > 0 ? index_room : -1;
}

/* This program's first call of db_open: what that puts in front of SQLite's writes is in front of
 * ours. A reader writes nothing but the index. */
static void no_room_for_the_index(void **state)
{
    static const char *const names[] = {"pwrite64", "pwrite"};
    static const char *const files[] = {"", "-wal", "-shm"};
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    char dir[] = "/tmp/test-db-XXXXXX";
    char path[64];
    struct sqlite3 *db;
    struct err e = {0};
    int64_t n;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        sqlite3_syscall_ptr own = vfs->xGetSystemCall(vfs, names[i]);
        if (own != NULL) {
            own_pwrite = (ssize_t(*)(int, const void *, size_t, off_t))own;
            assert_int_equal(vfs->xSetSystemCall(vfs, names[i], (sqlite3_syscall_ptr)short_pwrite),
                             SQLITE_OK);
        }
    }
    index_room = -1;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/x.sqlite", dir);
    assert_int_equal(db_open(path, FLAGS, 777, &db, &e), 0);
    if (db_exec(db, "PRAGMA journal_mode=WAL; CREATE TABLE t(x)", &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    for (index_room = 0; index_room < 4096; index_room += 4095) {
        assert_int_equal(db_open(path, FLAGS, 777, &db, &e), ERR_NO_SPACE);
    }
    index_room = -1;
    assert_int_equal(db_open(path, FLAGS, 777, &db, &e), 0);
    assert_int_equal(db_number(db, "SELECT count(*) FROM t", -1, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/x.sqlite%s", dir, files[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
}

/* ---- reads ---- */

static void a_read_that_fails(void **state)
{
    struct model *m = model_new(NULL);
    struct sqlite3 *db;
    struct err e = {0};
    uint64_t at = 0;
    unsigned failed = 0;
    (void)state;
    model_use(m);
    os_vfs_register();
    assert_int_equal(db_open(PATH, FLAGS, 777, &db, &e), 0);
    assert_int_equal(db_exec(db, "PRAGMA journal_mode=WAL; CREATE TABLE t(x)", &e), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    for (bool fired = true; fired;) {
        (void)os_vfs_process_new();
        model_fault_arm(m, &(struct fault){.error = EIO, .at = ++at, .call = OS_CALL_pread});
        int r = db_open(PATH, FLAGS, 777, &db, &e);
        fired = model_fault_fired(m) > 0;
        model_fault_arm(m, NULL);
        if (r == 0) {
            check_settings(db);
            assert_int_equal(sqlite3_close(db), SQLITE_OK);
        } else {
            assert_int_equal(r, ERR_IO);
            assert_null(db);
            failed++;
        }
    }
    assert_true(failed > 0);
    assert_int_equal(os_vfs_open_files(), 0);
    os_vfs_unregister();
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_room_for_the_index),
                                       cmocka_unit_test(a_read_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
