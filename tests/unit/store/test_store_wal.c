/* The limit of the WAL, with and without the thread that checkpoints; readers beside the writer. */
#include "tests/unit/store/store_kit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/metrics.h"
#include "os/os.h"
#include "tests/unit/store/failing_vfs.h"

/* ---- the WAL's limit ---- */

static void fill_wal(struct kit *k, uint64_t from)
{
    static char text[20001];
    struct store_status st;
    memset(text, 'w', sizeof text - 1);
    do {
        assert_int_equal(kit_put(k, k->alpha, from++, text, NULL), 0);
        store_get_status(k->s, &st);
    } while (st.wal_bytes <= k->options.wal_bytes_max);
}

static void test_wal_limit(void **state)
{
    struct kit k;
    struct kit_job j;
    struct store_status st;
    kit_start(&k);
    k.options.wal_bytes_max = 512 * 1024;
    kit_reopen(&k);
    fill_wal(&k, 1);
    kit_job_init(&j, STORE_SMALL);
    j.ev[0] = kit_event(k.beta, 1, "waits");
    j.count = 1;
    store_submit(k.s, &j.job);
    for (int i = 0; i < 10; i++) {
        assert_true(kit_turn(&k));
        assert_int_equal(j.told, 0);
    }
    /* A reader keeps a pass from ending. */
    assert_int_equal(reader_begin(k.reader, &k.e), 0);
    kit_number(&k, "SELECT count(*) FROM events");
    reader_end(k.reader);
    assert_int_equal(store_checkpoint(k.s, &k.e), 0);
    assert_false(kit_turn(&k));
    assert_int_equal(j.told, 1);
    assert_int_equal(j.code, 0);
    store_get_status(k.s, &st);
    assert_true(st.wal_bytes < k.options.wal_bytes_max / 2); /* it began anew */
    kit_check(&k);
    /* With a view open over the passes. */
    assert_int_equal(reader_begin(k.reader, &k.e), 0);
    kit_number(&k, "SELECT count(*) FROM events");
    fill_wal(&k, 1000);
    store_submit(k.s, &j.job);
    assert_int_equal(store_checkpoint(k.s, &k.e), 0);
    assert_true(kit_turn(&k));
    assert_int_equal(j.told, 1);
    reader_end(k.reader);
    assert_int_equal(store_checkpoint(k.s, &k.e), 0);
    kit_turns(&k);
    assert_int_equal(j.told, 2);
    assert_true(j.receipt[0].repeat);
    kit_end(&k);
    (void)state;
}

/* A log that was written back but stays would still decide which pages count, up to its first
 * damaged frame: a clean close leaves none of it. */
static void test_a_clean_close_empties_the_log(void **state)
{
    struct kit k;
    struct os_stat st = {0};
    char path[200];
    kit_start(&k);
    for (uint64_t n = 1; n <= 50; n++) {
        assert_int_equal(kit_put(&k, k.alpha, n, "text", NULL), 0);
    }
    (void)snprintf(path, sizeof path, "%s/" STORE_FILE "-wal", k.dir);
    assert_int_equal(os_stat(path, &st), 0);
    assert_true(st.size > 0);
    store_reader_close(k.reader);
    k.reader = NULL;
    assert_int_equal(store_close(k.s, &k.e), 0);
    int r = os_stat(path, &st);
    assert_true(r == -ENOENT || (r == 0 && st.size == 0));
    assert_int_equal(store_open(k.dir, &k.options, &k.s, &k.e), 0);
    assert_int_equal(store_reader_open(k.dir, &k.reader, &k.e), 0);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 50);
    kit_end(&k);
    (void)state;
}

/* The same with the thread: turns go on by themselves, the loop is woken. */
static atomic_uint woken;

static void wake(void *ctx)
{
    atomic_fetch_add((atomic_uint *)ctx, 1);
}

static void test_wal_limit_with_thread(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        bool with_wake = kind == 1;
        bool finish = kind == 2; /* at the end turns wait by themselves, whatever was asked for */
        struct kit k;
        uint64_t n = 0, passes = metric_get(METRIC_STORE_CHECKPOINTS);
        kit_start(&k);
        atomic_store(&woken, 0);
        k.options.wal_bytes_max = 256 * 1024;
        k.options.threads = true;
        k.options.wake = with_wake || finish ? wake : NULL;
        k.options.wake_ctx = &woken;
        kit_reopen(&k);
        if (finish) {
            store_finish(k.s);
        }
        static char text[20001];
        memset(text, 'w', sizeof text - 1);
        for (int i = 0; i < 100; i++) {
            struct kit_job j;
            kit_job_init(&j, STORE_SMALL);
            for (size_t at = 0; at < 20; at++) {
                j.ev[at] = kit_event(k.alpha, n++, text);
            }
            j.count = 20;
            store_submit(k.s, &j.job);
            uint64_t until = os_clock_mono_ns() + UINT64_C(20000000000);
            while (j.told == 0) {
                unsigned seen = atomic_load(&woken);
                bool more = kit_turn(&k);
                assert_true(os_clock_mono_ns() < until);
                assert_true(!finish || more || j.told != 0);
                if (with_wake && j.told == 0) {
                    assert_false(more);
                    while (atomic_load(&woken) == seen && atomic_load(&woken) == 0) {
                        assert_true(os_clock_mono_ns() < until);
                    }
                }
            }
            assert_int_equal(j.code, 0);
            struct store_status st;
            store_get_status(k.s, &st);
            /* A pass that ends just then may keep the WAL from beginning anew, for a turn. */
            assert_true(st.wal_bytes < k.options.wal_bytes_max + 4 * 20 * 28 * 1024);
        }
        assert_true(metric_get(METRIC_STORE_CHECKPOINTS) > passes + 10);
        assert_true(!with_wake || atomic_load(&woken) > 0);
        kit_check(&k);
        kit_end(&k);
    }
    (void)state;
}

/* ---- passes that fail, with the thread ---- */

#define BOUND_NS UINT64_C(20000000000)

/* A store with the thread, over the failing VFS. */
static void begin_failing(struct kit *k)
{
    kit_start(k);
    atomic_store(&woken, 0);
    k->options.wal_bytes_max = 256 * 1024;
    k->options.threads = true;
    k->options.wake = wake;
    k->options.wake_ctx = &woken;
    kit_close(k);
    assert_int_equal(failing_register(), SQLITE_OK);
    kit_open(k);
}

static void submit_one(struct kit *k, struct kit_job *j, uint64_t n)
{
    static char text[20001];
    memset(text, 'w', sizeof text - 1);
    kit_job_init(j, STORE_SMALL);
    j->ev[0] = kit_event(k->alpha, n, text);
    j->count = 1;
    store_submit(k->s, &j->job);
}

/* One event in as many turns as it takes. */
static int put_in_time(struct kit *k, uint64_t n)
{
    struct kit_job j;
    uint64_t until = os_clock_mono_ns() + BOUND_NS;
    submit_one(k, &j, n);
    while (j.told == 0) {
        (void)kit_turn(k);
        assert_true(os_clock_mono_ns() < until);
        (void)sched_yield();
    }
    k->e = j.err;
    return j.code;
}

/* Events until one has to wait, which is *j. */
static void put_until_held(struct kit *k, struct kit_job *j, uint64_t *n)
{
    do {
        submit_one(k, j, ++*n);
        assert_false(kit_turn(k));
        assert_true(*n < 1000);
    } while (j->told != 0 && j->code == 0);
    assert_int_equal(j->told, 0);
}

static void await_wake(void)
{
    uint64_t until = os_clock_mono_ns() + BOUND_NS;
    while (atomic_load(&woken) == 0) {
        assert_true(os_clock_mono_ns() < until);
        (void)sched_yield();
    }
}

/* A view keeps the held passes from ending; then there is no space for them. Who waits is answered,
 * and when there is space it goes on. */
static void test_a_pass_without_space(void **state)
{
    struct kit k;
    struct kit_job j;
    struct store_status st;
    uint64_t n = 0;
    begin_failing(&k);
    assert_int_equal(reader_begin(k.reader, &k.e), 0);
    kit_number(&k, "SELECT count(*) FROM events");
    put_until_held(&k, &j, &n);
    failing_arm(&(struct failing){.call = FAILING_SHM_LOCK,
                                  .file = FAILING_DATABASE,
                                  .at = 1,
                                  .sticky = true,
                                  .code = SQLITE_FULL});
    await_wake();
    (void)kit_turn(&k);
    assert_int_equal(j.told, 1);
    assert_int_equal(j.code, ERR_NO_SPACE);
    store_get_status(k.s, &st);
    assert_true(st.no_space && !st.poisoned);
    uint64_t began = os_clock_mono_ns();
    checkpoint_wait(k.s->checkpointer, 60000); /* for nothing */
    assert_true(os_clock_mono_ns() - began < UINT64_C(50000000000));
    failing_arm(&(struct failing){0});
    reader_end(k.reader);
    uint64_t until = os_clock_mono_ns() + BOUND_NS;
    while (put_in_time(&k, n) != 0) {
        assert_int_equal(k.e.code, ERR_NO_SPACE);
        assert_true(os_clock_mono_ns() < until);
    }
    kit_check(&k);
    kit_close(&k);
    failing_unregister();
    kit_open(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), n);
    kit_end(&k);
    (void)state;
}

/* The WAL passes its limit when a pass has begun, which then moves all of it: the loop, which waits
 * by now, is woken. */
static void test_held_while_a_pass_begins(void **state)
{
    struct kit k;
    struct kit_job j;
    struct store_status st;
    uint64_t n = 0, until = os_clock_mono_ns() + BOUND_NS;
    begin_failing(&k);
    while (k.s->receipts.filter == NULL) { /* the thread's first work */
        store_tick(k.s);
        assert_true(os_clock_mono_ns() < until);
        (void)sched_yield();
    }
    failing_stop_others(true);
    do {
        assert_int_equal(put_in_time(&k, ++n), 0);
        store_get_status(k.s, &st);
    } while (st.wal_bytes < k.options.wal_bytes_max / 3); /* a pass is wanted from a quarter on */
    while (failing_others_stopped() == 0) {
        assert_true(os_clock_mono_ns() < until);
        (void)sched_yield();
    }
    assert_int_equal(atomic_load(&woken), 0);
    put_until_held(&k, &j, &n);
    failing_stop_others(false);
    await_wake();
    kit_turns(&k);
    assert_int_equal(j.told, 1);
    assert_int_equal(j.code, 0);
    kit_close(&k);
    failing_unregister();
    kit_open(&k);
    kit_end(&k);
    (void)state;
}

/* The loop learns of it, and nobody tries again: a second sync would lie. */
static void test_a_pass_that_fails(void **state)
{
    struct kit k;
    struct store_status st;
    unsigned writes;
    uint64_t n = 0;
    int code;
    begin_failing(&k);
    failing_arm(&(struct failing){.call = FAILING_SYNC,
                                  .file = FAILING_DATABASE,
                                  .at = 1,
                                  .sticky = true,
                                  .code = SQLITE_IOERR_FSYNC});
    do {
        code = put_in_time(&k, ++n);
        assert_true(n < 1000);
    } while (code == 0);
    assert_int_equal(code, ERR_STORE_POISONED);
    store_get_status(k.s, &st);
    assert_true(st.poisoned && strstr(st.cause, "checkpoint") != NULL);
    failing_arm(&(struct failing){0});
    assert_int_equal(store_checkpoint(k.s, &k.e), ERR_IO);
    assert_non_null(strstr(k.e.text, "checkpoint"));
    (void)failing_state(&writes);
    assert_int_equal(writes, 0);
    kit_close(&k);
    failing_unregister();
    kit_open(&k);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), n - 1);
    kit_end(&k);
    (void)state;
}

/* No machine has room for such a stack. */
static void test_without_the_thread(void **state)
{
    pthread_attr_t usual, large;
    struct kit k;
    struct store *s;
    (void)state;
    kit_start(&k);
    kit_close(&k);
    k.options.threads = true;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&large), 0);
    assert_int_equal(pthread_attr_setstacksize(&large, (size_t)1 << 60), 0);
    assert_int_equal(pthread_setattr_default_np(&large), 0);
    int r = store_open(k.dir, &k.options, &s, &k.e);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_true(r < 0);
    assert_non_null(strstr(k.e.text, "thread"));
    assert_int_equal(pthread_attr_destroy(&usual), 0);
    assert_int_equal(pthread_attr_destroy(&large), 0);
    kit_open(&k);
    kit_end(&k);
}

/* ---- readers beside the writer ---- */

struct reading {
    const char *dir;
    atomic_bool stop;
    atomic_uint rounds;
    bool bad;
};

static void *read_along(void *arg)
{
    struct reading *r = arg;
    struct store_reader *reader;
    struct queue_selection sel = {.events_max = 50, .bytes_soft = 10000};
    struct err e;
    int64_t last_pending = 0;
    if (store_reader_open(r->dir, &reader, &e) != 0) {
        r->bad = true;
        return NULL;
    }
    while (!atomic_load(&r->stop) && !r->bad) {
        struct queue_rows rows;
        struct queue_project_status st;
        if (queue_select(reader, &sel, &rows, &e) != 0) {
            r->bad = true;
            break;
        }
        for (size_t i = 1; i < rows.count; i++) {
            r->bad |= rows.row[i].ev.project == rows.row[i - 1].ev.project &&
                      rows.row[i].id <= rows.row[i - 1].id;
        }
        queue_rows_free(&rows);
        r->bad |= queue_project_status(reader, 1, &st, &e) != 0;
        r->bad |= (int64_t)st.pending < last_pending; /* nothing is delivered here */
        last_pending = (int64_t)st.pending;
        atomic_fetch_add(&r->rounds, 1);
    }
    store_reader_close(reader);
    return NULL;
}

static void test_readers_beside_the_writer(void **state)
{
    struct kit k;
    struct reading r = {0};
    pthread_t thread;
    kit_start(&k);
    k.options.threads = true;
    k.options.wal_bytes_max = 1 << 20;
    kit_reopen(&k);
    r.dir = k.dir;
    assert_int_equal(pthread_create(&thread, NULL, read_along, &r), 0);
    uint64_t until = os_clock_mono_ns() + UINT64_C(60000000000);
    for (uint64_t i = 0; i < 500 || atomic_load(&r.rounds) < 20; i++) {
        assert_int_equal(kit_put(&k, k.alpha, i, "0123456789", NULL), 0);
        assert_true(os_clock_mono_ns() < until);
        if (i % 50 == 0) {
            store_tick(k.s);
        }
    }
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_false(r.bad);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wal_limit),
        cmocka_unit_test(test_a_clean_close_empties_the_log),
        cmocka_unit_test(test_wal_limit_with_thread),
        cmocka_unit_test(test_a_pass_without_space),
        cmocka_unit_test(test_held_while_a_pass_begins),
        cmocka_unit_test(test_a_pass_that_fails),
        cmocka_unit_test(test_without_the_thread),
        cmocka_unit_test(test_readers_beside_the_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
