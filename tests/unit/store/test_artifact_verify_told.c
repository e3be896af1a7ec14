/* test_artifact_verify_told: while `verify` looks at the artifact door's files, every file call,
 * every call of SQLite and every allocation fails once (tests/lib/told.h). It then ends with that
 * error, or tells of what it could not read; it never says less without a word. */
#include "tests/unit/store/artifact_verify_kit.h"

#include "tests/lib/told.h"

static struct world world;
static char usual[sizeof world.told];

/* What it tells when nothing fails. */
static void look(void)
{
    assert_int_equal(verify(&world), 0);
    memcpy(usual, world.told, sizeof usual);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void end(void *ctx, int r)
{
    (void)ctx;
    (void)r;
}

static int run(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = verify(w);
    *e = w->e;
    if (r == 0 && strcmp(w->told, usual) != 0) {
        /* Told as a violation: the text says which file. */
        bool asked = strstr(w->told, DELIVERY_FILE " cannot be asked") != NULL;
        r = err_set(e, ERR_IO, "%s%.300s", asked ? "SQLite code 266: " : "", w->told);
    }
    return r;
}

/* The database's files are read by SQLite as well, which says what it could not. */
#define QUIET "close ", "drop_range ", "ROLLBACK", "/" DELIVERY_FILE

static void test_whole(void **state)
{
    const struct told_op op = {"verify", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_world(&world);
    look();
    told_sweep(&op, &world);
    free_world(&world);
}

static void test_leavings(void **state)
{
    const struct told_op op = {"verify leavings", nothing, run, end, {QUIET}, true, 0, 0};
    (void)state;
    make_world(&world);
    put(&world, "uploads/%K.state", "x");
    put(&world, "packages/%L.manifest.jsonl", "x");
    put(&world, "receipts/.receipt-%A", "x");
    drop(&world, "uploads/%P.info");
    look();
    told_sweep(&op, &world);
    free_world(&world);
}

/* The far side has them: the database says so, and is asked. */
static void test_bytes_are_gone(void **state)
{
    const struct told_op op = {"verify gone bytes", nothing, run, end, {QUIET}, true, 0, 1};
    (void)state;
    make_world(&world);
    drop(&world, "uploads/%A");
    look();
    assert_string_equal(usual, "");
    told_sweep(&op, &world);
    free_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_leavings),
        cmocka_unit_test(test_bytes_are_gone),
    };
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("artifact_verify_told", tests, NULL, NULL);
}
