/* verify while calls of SQLite's own VFS fail, one at a time: beside a server, and after one that
 * was killed, with and without the index it left. Nothing that failed is passed over, and no damage
 * is made up. */
#include "tests/unit/store/verify_fixture.h"

#include "base/log.h"
#include "tests/unit/store/failing_vfs.h"

#define EVENTS 5 /* the last of them is in the WAL alone */

static const int codes[FAILING_COUNT] = {
    [FAILING_ACCESS] = SQLITE_IOERR_ACCESS,    [FAILING_OPEN] = SQLITE_CANTOPEN,
    [FAILING_READ] = SQLITE_IOERR_CORRUPTFS,   [FAILING_WRITE] = SQLITE_IOERR_WRITE,
    [FAILING_SYNC] = SQLITE_IOERR_FSYNC,       [FAILING_SIZE] = SQLITE_IOERR_FSTAT,
    [FAILING_LOCK] = SQLITE_IOERR_LOCK,        [FAILING_SHM_MAP] = SQLITE_IOERR_SHMMAP,
    [FAILING_SHM_LOCK] = SQLITE_IOERR_SHMLOCK,
};

struct sum {
    unsigned failed, healed, with_code;
};

/* Each call of each kind fails once. Beside a server it is looked at again, and may be well then.
 */
static struct sum sweep(struct fixture *f, bool live)
{
    struct sum sum = {0};
    for (enum failing_call call = 0; call < FAILING_COUNT; call++) {
        struct failing now = {.fired = 1};
        for (unsigned at = 1; now.fired > 0; at++) {
            failing_arm(&(struct failing){
                .call = call, .file = FAILING_ANY, .at = at, .code = codes[call]});
            int r = fixture_verify(f);
            now = failing_state(NULL);
            if (now.fired == 0 || (live && r == 0)) {
                assert_int_equal(r, 0);
                assert_int_equal(f->result.events, EVENTS);
                assert_int_equal(f->result.live, live);
                sum.healed += now.fired;
            } else if (r != ERR_IO) {
                fail_msg("call %d, the %u.: %d: %s", (int)call, at, r, f->e.text);
            } else {
                assert_true(f->e.text[0] != '\0');
                assert_true(live || now.opened <= 1);
                sum.with_code += call == FAILING_READ && strstr(f->e.text, "SQLite code") != NULL;
                sum.failed++;
            }
            fixture_same_lines(f->told, "");
        }
    }
    return sum;
}

static void after_a_kill(void **state)
{
    struct fixture *f = *state;
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    fixture_kill(f, child);
    assert_int_equal(failing_register(), SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        struct sum sum = sweep(f, false);
        assert_true(sum.failed > 20);
        assert_true(sum.with_code > 3); /* where SQLite has words for it, they are told */
        /* The index was busy for a moment: whose it is is asked again. */
        failing_arm(&(struct failing){
            .call = FAILING_SHM_MAP, .file = FAILING_ANY, .at = 1, .code = SQLITE_BUSY});
        fixture_verified(f);
        assert_int_equal(failing_state(NULL).fired, 1);
        assert_false(f->result.live);
        assert_int_equal(f->result.events, EVENTS);
        fixture_remove(f, "-shm");
    }
    failing_unregister();
}

static void beside_a_server(void **state)
{
    struct fixture *f = *state;
    pid_t child = fixture_server(f, SERVER_ONE_EVENT);
    fixture_wait(f);
    assert_int_equal(failing_register(), SQLITE_OK);
    struct sum sum = sweep(f, true);
    assert_true(sum.failed > 5);
    assert_true(sum.healed > 20);
    failing_unregister();
    fixture_kill(f, child);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {T(after_a_kill), T(beside_a_server)};
#undef T
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
