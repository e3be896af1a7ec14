/* store_copy on the model disk: what it said is copied is there after a power cut, whichever call
 * on the copy failed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "store/copy.h"
#include "store/db.h"
#include "tests/lib/os_vfs.h"
#include "tests/lib/store_scenarios.h"

#define COPY "/m/copy.sqlite"

/* A store with two events, closed. */
static struct model *some_store(void)
{
    struct store_run run;
    struct err e;
    struct model *m =
        store_scenario_start(store_scenario_find("singles"), &run, 1, MODEL_REORDERED);
    assert_int_equal(store_open(STORE_SCENARIO_DIR, &store_scenario_options, &run.s, &e), 0);
    assert_int_equal(skit_one(run.s, &run.ledger, (struct skit_job){.kind = SKIT_PUT, .count = 2}),
                     0);
    assert_int_equal(store_close(run.s, &e), 0);
    (void)os_vfs_process_new();
    return m;
}

/* After a power cut; the name is synced by who made the copy. */
static void check_copy(const struct model *m)
{
    struct sqlite3 *db;
    struct err e;
    int64_t events;
    assert_int_equal(os_sync_dir("/m"), 0);
    struct model *after = model_crash(m, &(struct model_choice){.how = MODEL_CUT_NONE});
    (void)os_vfs_process_new();
    model_use(after);
    assert_int_equal(db_open(COPY, SQLITE_OPEN_READWRITE, 100, &db, &e), 0);
    if (db_number(db, "SELECT count(*) FROM events", -1, &events, &e) != 0) {
        fail_msg("%s", e.text);
    }
    assert_int_equal(events, 2);
    assert_int_equal(db_number(db,
                               "SELECT count(*) FROM pragma_integrity_check"
                               " WHERE integrity_check <> 'ok'",
                               -1, &events, &e),
                     0);
    assert_int_equal(events, 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    model_free(after);
}

static void every_call_on_the_copy(void **state)
{
    unsigned failed = 0;
    bool fired = true;
    (void)state;
    for (uint64_t at = 1; fired; at++) {
        struct model *m = some_store();
        struct err e = {0};
        model_fault_arm(m, &(struct fault){.error = EIO, .at = at, .path = COPY});
        int r = store_copy(STORE_SCENARIO_DIR, STORE_FILE, COPY, NULL, NULL, &e);
        fired = model_fault_fired(m) > 0;
        model_fault_arm(m, NULL);
        assert_true(r == 0 || (fired && r == ERR_IO));
        failed += r != 0;
        if (r == 0) {
            check_copy(m);
        }
        model_free(m);
        assert_int_equal(os_vfs_open_files(), 0);
    }
    assert_true(failed > 3);
}

/* What cannot be looked for is not missing. */
static void a_source_that_cannot_be_looked_at(void **state)
{
    struct model *m = some_store();
    struct err e = {0};
    (void)state;
    model_fault_arm(m, &(struct fault){.error = EIO, .at = 1, .call = OS_CALL_stat});
    assert_int_equal(store_copy(STORE_SCENARIO_DIR, STORE_FILE, COPY, NULL, NULL, &e), ERR_IO);
    assert_int_equal(model_fault_fired(m), 1);
    model_fault_arm(m, NULL);
    assert_int_equal(store_copy(STORE_SCENARIO_DIR, "none.sqlite", COPY, NULL, NULL, &e),
                     ERR_NOT_FOUND);
    model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_on_the_copy),
                                       cmocka_unit_test(a_source_that_cannot_be_looked_at)};
    os_vfs_register();
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
