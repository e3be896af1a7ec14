/* test_sealer: sealing in the background: all that was asked for is done, a failure ends it and is
 * told, what the setting asks for is not tried again at once, and a tail that cannot be closed. On
 * the kernel, with threads. */
#include "tests/unit/journal/journal_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/metrics.h"
#include "journal/seal.h"

#define BIG 20000 /* three of these fill a generation */

static atomic_bool segments_fail; /* none can be made */
static atomic_bool closing_fails; /* the tail cannot be renamed */

static int failing_open(const char *path, int flags, unsigned mode)
{
    bool fails =
        atomic_load(&segments_fail) && (flags & O_CREAT) != 0 && strstr(path, "/segments/") != NULL;
    return fails ? -EIO : os_real.open(path, flags, mode);
}

static int failing_rename(const char *from, const char *to)
{
    bool fails = atomic_load(&closing_fails) && strstr(from, "/tail.ndjson") != NULL;
    return fails ? -EIO : os_real.rename(from, to);
}

/* So many batches; three of them fill a generation. */
static void start(struct fx *f, uint32_t batches, uint32_t seal_after)
{
    static struct os_table table;
    atomic_store(&segments_fail, false);
    atomic_store(&closing_fails, false);
    table = os_real;
    table.open = failing_open;
    table.rename = failing_rename;
    os_install(&table);
    fx_start(f, true);
    f->options.threads = true;
    f->options.seal_after_generations = seal_after;
    fx_open(f);
    for (uint32_t n = 1; n <= batches; n++) {
        fx_put(f, n, 1, BIG);
    }
}

static void end(struct fx *f)
{
    fx_end(f);
    os_install(&os_real);
}

static struct journal_seal_status status(struct fx *f)
{
    struct journal_seal_status st;
    journal_get_seal_status(f->j, &st);
    return st;
}

static void await_idle(struct fx *f)
{
    for (unsigned i = 0; status(f).active; i++) {
        assert_true(i < 10000);
        (void)usleep(1000);
    }
}

static void test_all(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 14, 0);
    uint32_t closed = fx_status(&f).generations - 1;
    assert_in_range(closed, 3, 6);
    assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
    await_idle(&f);
    assert_int_equal(fx_status(&f).segments, closed);
    assert_int_equal(status(&f).sealed, closed);
    assert_int_equal(status(&f).code, 0);
    fx_check(&f);
    fx_close(&f);
    end(&f);
}

static void test_failure(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 10, 0);
    atomic_store(&segments_fail, true);
    assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
    await_idle(&f);
    assert_int_equal(status(&f).code, ERR_IO);
    assert_true(strlen(status(&f).cause) > 0);
    assert_int_equal(status(&f).wanted, 0);
    assert_int_equal(fx_status(&f).segments, 0);
    assert_false(fx_status(&f).poisoned);
    atomic_store(&segments_fail, false);
    assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
    await_idle(&f);
    assert_int_equal(status(&f).code, 0);
    assert_int_equal(fx_status(&f).segments, fx_status(&f).generations - 1);
    fx_close(&f);
    end(&f);
}

/* A minute passes before it is tried again. */
static void test_automatic(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 10, 1);
    uint64_t before = metric_get(METRIC_JOURNAL_SEAL_FAILURES);
    atomic_store(&segments_fail, true);
    journal_tick(f.j);
    await_idle(&f);
    assert_int_equal(metric_get(METRIC_JOURNAL_SEAL_FAILURES), before + 1);
    for (unsigned i = 0; i < 5; i++) {
        journal_tick(f.j);
        await_idle(&f);
        assert_int_equal(metric_get(METRIC_JOURNAL_SEAL_FAILURES), before + 1);
    }
    fx_close(&f);
    end(&f);
}

static void test_tail_stays(void **state)
{
    struct fx f;
    (void)state;
    start(&f, 1, 0);
    atomic_store(&closing_fails, true);
    assert_int_equal(journal_seal_request(f.j, 0, true, &f.e), 0);
    assert_int_equal(status(&f).code, ERR_WRITER_POISONED);
    assert_true(strlen(status(&f).cause) > 0);
    assert_false(status(&f).active);
    assert_true(fx_status(&f).poisoned);
    fx_close(&f);
    atomic_store(&closing_fails, false);
    fx_open(&f);
    fx_check_opened(&f);
    fx_close(&f);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_automatic),
        cmocka_unit_test(test_tail_stays),
    };
    return cmocka_run_group_tests_name("sealer", tests, NULL, NULL);
}
