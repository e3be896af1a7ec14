/* test_pool: jobs run once each, come back in bounded time, and an end loses none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "http/pool.h"
#include "os/os.h"

#define JOBS 2000

struct task {
    struct http_job job;
    atomic_int ran;
    int done;
};

static atomic_bool gate;

static void work(void *ctx)
{
    struct task *t = ctx;

    (void)atomic_fetch_add(&t->ran, 1);
}

static void wait_for_gate(void *ctx)
{
    struct timespec moment = {.tv_nsec = 1000000};

    work(ctx);
    while (!atomic_load(&gate)) {
        (void)nanosleep(&moment, NULL);
    }
}

static void done(void *ctx)
{
    struct task *t = ctx;

    t->done++;
}

static struct http_job job_of(struct task *t, void (*fn)(void *ctx))
{
    return (struct http_job){.work = fn, .done = done, .ctx = t};
}

static unsigned take_all(struct http_pool *p)
{
    struct http_job *job = http_pool_take(p);
    unsigned n = 0;

    while (job != NULL) {
        struct http_job *next = job->next;

        job->done(job->ctx);
        job = next;
        n++;
    }
    return n;
}

/* Waits for the eventfd, as the loop does, until n jobs came back. */
static void collect(struct http_pool *p, int fd, unsigned n)
{
    struct timespec moment = {.tv_nsec = 1000000};
    unsigned have = take_all(p);

    for (int tries = 0; have < n; tries++) {
        uint64_t count;

        assert_true(tries < 20000);
        if (os_read(fd, &count, sizeof count) == sizeof count) {
            have += take_all(p);
        } else {
            (void)nanosleep(&moment, NULL);
        }
    }
    assert_int_equal(have, n);
}

static void test_every_job_runs_once(void **state)
{
    struct task *tasks = calloc(JOBS, sizeof *tasks);
    int fd = os_eventfd();
    struct http_pool pool;

    (void)state;
    assert_true(fd >= 0);
    assert_non_null(tasks);
    assert_int_equal(http_pool_start(&pool, 3, fd, NULL), 0);
    for (int i = 0; i < JOBS; i++) {
        tasks[i].job = job_of(&tasks[i], work);
        assert_true(http_pool_submit(&pool, &tasks[i].job, 0));
    }
    collect(&pool, fd, JOBS);
    http_pool_stop(&pool);
    assert_null(http_pool_take(&pool));
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(atomic_load(&tasks[i].ran), 1);
        assert_int_equal(tasks[i].done, 1);
    }
    assert_int_equal(os_close(fd), 0);
    free(tasks);
}

static void test_bound_and_stop(void **state)
{
    struct task *tasks = calloc(8, sizeof *tasks);
    int fd = os_eventfd();
    struct timespec moment = {.tv_nsec = 1000000};
    struct http_pool pool;

    (void)state;
    assert_true(fd >= 0);
    assert_non_null(tasks);
    atomic_store(&gate, false);
    assert_int_equal(http_pool_start(&pool, 1, fd, NULL), 0);
    tasks[0].job = job_of(&tasks[0], wait_for_gate);
    assert_true(http_pool_submit(&pool, &tasks[0].job, 2));
    while (atomic_load(&tasks[0].ran) == 0) {
        (void)nanosleep(&moment, NULL);
    }
    for (int i = 1; i < 8; i++) {
        tasks[i].job = job_of(&tasks[i], work);
        assert_int_equal(http_pool_submit(&pool, &tasks[i].job, 2), i <= 2);
    }
    assert_int_equal(take_all(&pool), 0);
    atomic_store(&gate, true);
    http_pool_stop(&pool); /* runs what was taken */
    assert_int_equal(take_all(&pool), 3);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(atomic_load(&tasks[i].ran), i <= 2);
        assert_int_equal(tasks[i].done, i <= 2);
    }
    http_pool_stop(&pool); /* a second stop is nothing */
    assert_int_equal(os_close(fd), 0);
    free(tasks);
}

static void test_posted_jobs_only_come_back(void **state)
{
    struct task *tasks = calloc(3, sizeof *tasks);
    int fd = os_eventfd();
    struct http_pool pool;

    (void)state;
    assert_true(fd >= 0);
    assert_non_null(tasks);
    assert_int_equal(http_pool_start(&pool, 1, fd, NULL), 0);
    for (int i = 0; i < 3; i++) {
        tasks[i].job = job_of(&tasks[i], NULL);
        http_pool_post(&pool, &tasks[i].job);
    }
    collect(&pool, fd, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&tasks[i].ran), 0);
        assert_int_equal(tasks[i].done, 1);
    }
    http_pool_stop(&pool);
    assert_int_equal(os_close(fd), 0);
    free(tasks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_job_runs_once),
        cmocka_unit_test(test_bound_and_stop),
        cmocka_unit_test(test_posted_jobs_only_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
