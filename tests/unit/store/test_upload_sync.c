/* Several syncs at once: all have ended when the call returns, at the same time where there are
 * helpers, one after the other where there are none, and a failure is told. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "os/os.h"
#include "store/artifact/upload_sync.h"

#define JOBS 4

static struct os_table table;
static pthread_barrier_t together;
static bool meet; /* each waits until all are being done */
static atomic_uint synced[JOBS], ends;
static int fails[JOBS];

static int some_fdatasync(int fd)
{
    synced[fd]++;
    if (meet) {
        (void)pthread_barrier_wait(&together);
    }
    ends++;
    return fails[fd];
}

static int setup(void **state)
{
    (void)state;
    table = *os_current();
    table.fdatasync = some_fdatasync;
    os_install(&table);
    memset(fails, 0, sizeof fails);
    for (int i = 0; i < JOBS; i++) {
        synced[i] = 0;
    }
    ends = 0;
    meet = false;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

static int sync_four(struct syncers *s, struct sync_job jobs[JOBS])
{
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = (struct sync_job){.fd = i, .result = -1};
    }
    return sync_all(s, jobs, JOBS);
}

static void one_after_the_other(void **state)
{
    struct syncers *s = syncers_new(0);
    struct sync_job jobs[JOBS];
    struct sync_job one = {.dir = "/proc/no-such-directory"};
    (void)state;
    assert_int_equal(sync_four(s, jobs), 0);
    assert_int_equal(ends, JOBS);
    assert_int_equal(sync_all(s, &one, 1), -ENOENT);
    one.dir = "/tmp";
    assert_int_equal(sync_all(s, &one, 1), 0);
    /* None is begun behind one that failed. */
    fails[1] = -EIO;
    ends = 0;
    assert_int_equal(sync_four(s, jobs), -EIO);
    assert_int_equal(ends, 2);
    assert_int_equal(jobs[0].result, 0);
    assert_int_equal(jobs[1].result, -EIO);
    assert_int_equal(jobs[2].result, 0);
    syncers_free(s);
    syncers_free(NULL);
}

/* Would never end if fewer than all were being done. */
static void all_at_the_same_time(void **state)
{
    struct syncers *s = syncers_new(JOBS - 1);
    struct sync_job jobs[JOBS];
    (void)state;
    meet = true;
    assert_int_equal(pthread_barrier_init(&together, NULL, JOBS), 0);
    for (unsigned round = 1; round <= 50; round++) {
        assert_int_equal(sync_four(s, jobs), 0);
        assert_int_equal(ends, JOBS * round);
        for (int i = 0; i < JOBS; i++) {
            assert_int_equal(synced[i], round);
        }
    }
    /* The first in their order is told, and all have ended. */
    fails[2] = -ENOSPC;
    fails[3] = -EIO;
    ends = 0;
    assert_int_equal(sync_four(s, jobs), -ENOSPC);
    assert_int_equal(ends, JOBS);
    assert_int_equal(jobs[3].result, -EIO);
    assert_int_equal(pthread_barrier_destroy(&together), 0);
    syncers_free(s);
}

static void *sync_many(void *ctx)
{
    struct sync_job jobs[JOBS];
    uintptr_t bad = 0;
    for (unsigned i = 0; i < 1000; i++) {
        bad += sync_four(ctx, jobs) != 0;
    }
    return (void *)bad;
}

/* More callers than helpers: nobody waits for a helper, and nothing is done twice or left out. */
static void many_callers(void **state)
{
    struct syncers *s = syncers_new(2);
    pthread_t thread[6];
    void *bad;
    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, sync_many, s), 0);
    }
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(thread[i], &bad), 0);
        assert_null(bad);
    }
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(synced[i], 6 * 1000);
    }
    syncers_free(s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_after_the_other),
        TEST(all_at_the_same_time),
        TEST(many_callers),
    };
    return cmocka_run_group_tests_name("upload_sync", tests, NULL, NULL);
}
