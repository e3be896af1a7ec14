/* Opening a database while reads fail: with all of our settings, or not at all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_read_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
