/* test_no_thread: a thread that cannot be made. Opening fails and says so, and the next one is as
 * if nothing had happened; sealing is refused and can be asked for again. And what is answered
 * while the thread that makes the index has not come to run.
 *
 * pthread_create and pthread_join are replaced in this program; a sanitizer has its own: under them
 * it is skipped. */
#include "tests/unit/journal/journal_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifdef SANITIZED

int main(void)
{
    printf("skipped: a sanitizer owns threads\n");
    return 0;
}

#else

#include <dlfcn.h>
#include <pthread.h>

#include "journal/index.h"
#include "journal/seal.h"

#define BIG   20000 /* three of these fill a generation */
#define NEVER ((pthread_t)-1)

typedef int create_fn(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                      void *arg);
typedef int join_fn(pthread_t thread, void **result);

static unsigned created, failing, stalling; /* the number of a thread; 0: none */

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    static create_fn *real;
    real = real != NULL ? real : (create_fn *)dlsym(RTLD_NEXT, "pthread_create");
    created++;
    if (created == failing) {
        return EAGAIN;
    }
    if (created == stalling) {
        *thread = NEVER;
        return 0;
    }
    return real(thread, attr, fn, arg);
}

int pthread_join(pthread_t thread, void **result)
{
    static join_fn *real;
    real = real != NULL ? real : (join_fn *)dlsym(RTLD_NEXT, "pthread_join");
    return thread == NEVER ? 0 : real(thread, result);
}

/* The next threads are numbered from 1. */
static void threads(unsigned fails, unsigned stalls)
{
    created = 0;
    failing = fails;
    stalling = stalls;
}

/* ---- the directory ---- */

/* Three closed generations and a tail. */
static void start(struct fx *f)
{
    threads(0, 0);
    fx_start(f, true);
    f->options.threads = true;
    f->options.index_at_once = 1;
    fx_open(f);
    for (uint32_t n = 1; n <= 10; n++) {
        fx_put(f, n, 1, BIG);
    }
    fx_close(f);
}

/* The newest closed generation has no summary. */
static void lack(struct fx *f)
{
    char path[LAYOUT_PATH_MAX + 64];
    fx_open(f);
    uint32_t last = fx_status(f).generations - 2;
    assert_in_range(last, 2, 6);
    fx_close(f);
    (void)snprintf(path, sizeof path, "%s/gen-%08u.sum", f->layout.index, last);
    assert_int_equal(os_unlink(path), 0);
}

static void spoil_tail(struct fx *f)
{
    fx_patch(f->layout.tail, 20, "!", 1);
}

static int open_result(struct fx *f)
{
    int r = journal_open(f->dir, &f->options, &f->j, &f->e);
    if (r != 0) {
        f->j = NULL;
        assert_true(strlen(f->e.text) > 0);
    }
    return r;
}

static void await_indexed(struct fx *f)
{
    for (unsigned i = 0; fx_status(f).indexing; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
}

static void check_again(struct fx *f)
{
    threads(0, 0);
    fx_open(f);
    await_indexed(f);
    fx_check_opened(f);
    fx_close(f);
    fx_end(f);
}

/* ---- opening ---- */

/* That of the index, and that of the next tail. */
static void test_open(void **state)
{
    struct fx f;
    (void)state;
    start(&f);
    for (unsigned n = 1; n <= 2; n++) {
        threads(n, 0);
        assert_int_equal(open_result(&f), ERR_NO_MEMORY);
        assert_int_equal(created, n);
    }
    check_again(&f);
}

/* The one that makes what the index lacks, also beside a damaged tail. */
static void test_open_rebuilding(void **state)
{
    (void)state;
    for (unsigned damaged = 0; damaged < 2; damaged++) {
        struct fx f;
        start(&f);
        lack(&f);
        if (damaged != 0) {
            spoil_tail(&f);
        }
        threads(2, 0);
        assert_true(open_result(&f) < 0);
        assert_int_equal(created, 2);
        assert_null(f.j);
        if (damaged == 0) {
            check_again(&f);
        } else {
            fx_end(&f);
        }
    }
}

/* ---- while the index is not there ---- */

static int append_result(struct fx *f)
{
    struct journal_result r;
    struct kit_batch kb;
    kit_batch_make(&kb, (struct kit_spec){500, 1, 100});
    int code = journal_append(f->j, &kb.batch, &r, &f->e);
    kit_batch_free(&kb);
    return code;
}

static void test_indexing(void **state)
{
    struct journal_result r;
    struct fx f;
    (void)state;
    start(&f);
    lack(&f);
    threads(0, 2);
    fx_open(&f);
    assert_true(fx_status(&f).indexing);
    assert_int_equal(append_result(&f), ERR_NOT_READY);
    assert_int_equal(journal_retire(f.j, SLICE("\"src-1\""), &r, &f.e), ERR_NOT_READY);
    assert_false(journal_pending(f.j));
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_NOT_READY);
    assert_int_equal(fx_status(&f).segments, 0);
    fx_close(&f);
    check_again(&f);
}

/* Damage comes first: waiting would not help. */
static void test_indexing_damaged(void **state)
{
    struct fx f;
    (void)state;
    start(&f);
    lack(&f);
    spoil_tail(&f);
    threads(0, 2);
    fx_open(&f);
    assert_int_equal(created, 2);
    assert_true(fx_status(&f).damaged);
    assert_int_equal(append_result(&f), ERR_WRITER_POISONED);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), ERR_WRITER_POISONED);
    assert_int_equal(fx_status(&f).segments, 0);
    fx_close(&f);
    fx_end(&f);
}

/* ---- sealing ---- */

static void test_seal(void **state)
{
    struct journal_seal_status st;
    struct fx f;
    (void)state;
    start(&f);
    fx_open(&f);
    uint32_t generations = fx_status(&f).generations;
    threads(1, 0);
    assert_int_equal(journal_seal_request(f.j, 0, true, &f.e), ERR_NO_MEMORY);
    assert_int_equal(created, 1);
    journal_get_seal_status(f.j, &st);
    assert_false(st.active);
    assert_int_equal(st.wanted, 0);
    journal_tick(f.j);
    assert_int_equal(fx_status(&f).generations, generations); /* the tail goes on */
    threads(0, 0);
    assert_int_equal(journal_seal_request(f.j, 0, false, &f.e), 0);
    for (unsigned i = 0; fx_status(&f).segments < generations - 1; i++) {
        assert_true(i < 30000);
        (void)usleep(1000);
    }
    fx_close(&f);
    check_again(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),     cmocka_unit_test(test_open_rebuilding),
        cmocka_unit_test(test_indexing), cmocka_unit_test(test_indexing_damaged),
        cmocka_unit_test(test_seal),
    };
    return cmocka_run_group_tests_name("no_thread", tests, NULL, NULL);
}

#endif
