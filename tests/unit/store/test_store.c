/* The turn: savepoints, order, weights, a full disk, poisoning; opening. */
#include "tests/unit/store/store_kit.h"

#include <sys/stat.h>

#include "base/metrics.h"
#include "os/os.h"

static void test_files(void **state)
{
    struct kit k;
    struct stat st;
    struct store_status status;
    char path[256];
    kit_start(&k);
    snprintf(path, sizeof path, "%s/" STORE_FILE, k.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    snprintf(path, sizeof path, "%s/" STORE_FILE "-wal", k.dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(kit_number(&k, "PRAGMA application_id"), SCHEMA_APPLICATION_ID);
    int64_t n;
    assert_int_equal(db_number(k.s->db, "PRAGMA synchronous", -1, &n, &k.e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(db_number(k.s->db, "PRAGMA wal_autocheckpoint", -1, &n, &k.e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(db_number(k.s->db, "PRAGMA mmap_size", -1, &n, &k.e), 0);
    assert_int_equal(n, 0);
    store_get_status(k.s, &status);
    assert_int_equal(status.schema_version, SCHEMA_VERSION);
    assert_false(status.poisoned);
    assert_true(status.wal_bytes > 0);
    kit_end(&k);
    (void)state;
}

/* A directory that is not there, and a file that is none. */
static void test_cannot_open(void **state)
{
    struct kit k;
    struct store *s;
    char path[256];
    kit_dir(&k);
    snprintf(path, sizeof path, "%s/nowhere", k.dir);
    assert_int_equal(store_open(path, &k.options, &s, &k.e), ERR_IO);
    assert_null(s);
    struct store_reader *r;
    assert_int_equal(store_reader_open(path, &r, &k.e), ERR_IO);
    assert_null(r);
    store_reader_close(NULL);
    assert_int_equal(store_close(NULL, &k.e), 0);
    snprintf(path, sizeof path, "%s/" STORE_FILE, k.dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++) {
        fputs("not a database ", f);
    }
    fclose(f);
    assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_CORRUPT);
    kit_remove_dir(&k);
    (void)state;
}

/* One that fails undoes itself and nobody else; done comes in order, after the commit. */
static void test_isolation(void **state)
{
    struct kit k;
    struct kit_job j[5];
    kit_start(&k);
    for (size_t i = 0; i < 5; i++) {
        kit_job_init(&j[i], STORE_SMALL);
        j[i].ev[0] = kit_event(k.alpha, 10 * i, "a");
        j[i].ev[1] = kit_event(k.beta, 10 * i + 1, "bc");
        j[i].ev[2] = kit_event(k.alpha, 10 * i + 2, "def");
        j[i].count = 3;
        j[i].fail_after = i % 2 == 1 ? (int)i - 1 : -1; /* 1: before the first; 3: after two */
        store_submit(k.s, &j[i].job);
    }
    assert_false(kit_turn(&k));
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(j[i].told, 1);
        assert_int_equal(j[i].code, i % 2 == 1 ? ERR_FORBIDDEN : 0);
        assert_int_equal(j[i].ran, j[0].ran);
        assert_true(i == 0 || j[i].order == j[i - 1].order + 1);
    }
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 9);
    kit_check(&k);
    kit_reopen(&k);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 9);
    kit_end(&k);
    (void)state;
}

static int forbidden_job(struct kit_job *j, struct store *s, struct err *e)
{
    (void)j;
    (void)s;
    (void)e;
    return ERR_FORBIDDEN;
}

/* Whoever looks at the error alone sees the code too, whether the job wrote it there or not. */
static void test_the_error_has_the_code(void **state)
{
    struct kit k;
    kit_start(&k);
    assert_int_equal(kit_do(&k, forbidden_job, NULL), ERR_FORBIDDEN);
    assert_int_equal(k.e.code, ERR_FORBIDDEN);
    kit_end(&k);
    (void)state;
}

static int look_job(struct kit_job *j, struct store *s, struct err *e)
{
    int64_t n = 0;
    int r = db_number(store_db(s), "SELECT count(*) FROM events", 0, &n, e);
    *(int64_t *)j->arg = n;
    return r;
}

/* Nobody is told before the commit, and what was told is committed. */
struct watched {
    struct kit_job job;
    struct kit *k;
    int64_t committed;
};

static void watched_done(struct store_job *job, int code, const struct err *e)
{
    struct watched *w = (struct watched *)(void *)job;
    kit_done(job, code, e);
    w->committed = kit_number(w->k, "SELECT count(*) FROM events");
}

static void test_told_after_the_commit(void **state)
{
    struct kit k;
    struct watched w = {.k = &k};
    int64_t seen = -1;
    kit_start(&k);
    kit_job_init(&w.job, STORE_SMALL);
    w.job.job.done = watched_done;
    w.job.ev[0] = kit_event(k.alpha, 1, "a");
    w.job.count = 1;
    store_submit(k.s, &w.job.job);
    assert_int_equal(kit_do(&k, look_job, &seen), 0);
    assert_int_equal(seen, 1); /* a later job of the turn sees it */
    assert_int_equal(w.job.told, 1);
    assert_int_equal(w.committed, 1);
    kit_end(&k);
    (void)state;
}

/* A turn of repeats writes nothing and makes no commit. */
static void test_no_commit_for_repeats(void **state)
{
    struct kit k;
    struct queue_receipt r;
    struct store_status before, after;
    kit_start(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", &r), 0);
    uint64_t commits = metric_get(METRIC_STORE_COMMITS);
    store_get_status(k.s, &before);
    assert_int_equal(kit_put(&k, k.alpha, 1, "y", &r), 0);
    assert_true(r.repeat);
    store_get_status(k.s, &after);
    assert_int_equal(metric_get(METRIC_STORE_COMMITS), commits);
    assert_int_equal(after.wal_bytes, before.wal_bytes);
    assert_int_equal(kit_put(&k, k.alpha, 2, "y", &r), 0);
    assert_int_equal(metric_get(METRIC_STORE_COMMITS), commits + 1);
    assert_false(kit_turn(&k)); /* nothing waits */
    kit_end(&k);
    (void)state;
}

/* ---- weights ---- */

static void test_large_is_alone_and_not_starved(void **state)
{
    struct kit k;
    struct kit_job small[6], large[2];
    kit_start(&k);
    for (size_t i = 0; i < 6; i++) {
        kit_job_init(&small[i], STORE_SMALL);
        small[i].ev[0] = kit_event(k.alpha, i, "s");
        small[i].count = 1;
    }
    for (size_t i = 0; i < 2; i++) {
        kit_job_init(&large[i], STORE_LARGE);
        large[i].ev[0] = kit_event(k.beta, i, "l");
        large[i].count = 1;
        store_submit(k.s, &large[i].job);
    }
    /* Small ones keep coming: two a turn. */
    for (size_t i = 0; i < 6; i += 2) {
        store_submit(k.s, &small[i].job);
        store_submit(k.s, &small[i + 1].job);
        assert_true(kit_turn(&k));
    }
    kit_turns(&k);
    assert_int_equal(small[0].ran, small[1].ran);
    assert_int_equal(large[0].ran, small[0].ran + 1);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(small[i].code, 0);
        assert_int_not_equal(small[i].ran, large[0].ran);
        assert_int_not_equal(small[i].ran, large[1].ran);
    }
    assert_true(large[1].ran <= large[0].ran + 2);
    assert_int_not_equal(large[1].ran, large[0].ran);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static int slice_job(struct kit_job *j, struct store *s, struct err *e)
{
    unsigned *left = j->arg;
    uint64_t until = os_clock_mono_ns() + 3000000;
    (void)s;
    (void)e;
    while (os_clock_mono_ns() < until) {
        continue;
    }
    return --*left > 0 ? STORE_AGAIN : 0;
}

/* Large ones that never end leave the slices their share: deliveries are recorded meanwhile. */
static void test_background_beside_large(void **state)
{
    struct kit k;
    struct kit_job slow, large[3];
    unsigned left = 3;
    kit_start(&k);
    kit_job_init(&slow, STORE_BACKGROUND);
    slow.fn = slice_job;
    slow.arg = &left;
    store_submit(k.s, &slow.job);
    for (size_t i = 0; i < 3; i++) {
        kit_job_init(&large[i], STORE_LARGE);
        large[i].ev[0] = kit_event(k.alpha, i, "l");
        large[i].count = 1;
        store_submit(k.s, &large[i].job);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(left, 3 - i);
        (void)kit_turn(&k);
        assert_int_equal(large[i].told, 1);
        assert_int_equal(large[i].code, 0);
    }
    assert_int_equal(left, 0);
    assert_int_equal(slow.told, 1);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Slices of 3 ms: the second of a turn may begin, no third one. */
static void test_background_is_bounded(void **state)
{
    struct kit k;
    struct kit_job slow[4], small;
    unsigned left[4] = {3, 3, 3, 3};
    kit_start(&k);
    for (size_t i = 0; i < 4; i++) {
        kit_job_init(&slow[i], STORE_BACKGROUND);
        slow[i].fn = slice_job;
        slow[i].arg = &left[i];
        store_submit(k.s, &slow[i].job);
    }
    unsigned turns = 0;
    for (bool more = true; more; turns++) {
        unsigned before = left[0] + left[1] + left[2] + left[3];
        kit_job_init(&small, STORE_SMALL);
        small.ev[0] = kit_event(k.alpha, turns, "s");
        small.count = 1;
        store_submit(k.s, &small.job);
        more = kit_turn(&k);
        assert_int_equal(small.told, 1);
        unsigned ran = before - (left[0] + left[1] + left[2] + left[3]);
        assert_true(ran <= 2);
        assert_true(ran >= 1 || before == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(slow[i].told, 1);
        assert_int_equal(slow[i].again, 2);
        assert_int_equal(slow[i].code, 0);
    }
    assert_true(turns >= 6);
    kit_end(&k);
    (void)state;
}

/* More than a turn takes. */
static void test_many_jobs(void **state)
{
    struct kit k;
    enum { MANY = TURN_JOBS_MAX + 10 };
    struct kit_job *j = calloc(MANY, sizeof *j);
    assert_non_null(j);
    kit_start(&k);
    for (size_t i = 0; i < MANY; i++) {
        kit_job_init(&j[i], STORE_SMALL);
        j[i].ev[0] = kit_event(k.alpha, i, "m");
        j[i].count = 1;
        store_submit(k.s, &j[i].job);
    }
    assert_true(kit_turn(&k));
    assert_int_equal(j[MANY - 1].told, 0);
    kit_turns(&k);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(j[i].told, 1);
        assert_int_equal(j[i].code, 0);
    }
    kit_check(&k);
    kit_end(&k);
    free(j);
    (void)state;
}

/* ---- failures ---- */

/* The seed's test: the batch rolls back, earlier ones survive, counters stay right, retry works. */
static void test_full_disk(void **state)
{
    struct kit k;
    struct kit_job big, small, after;
    struct queue_receipt first, again;
    struct store_status st;
    int64_t pages;
    char sql[64];
    char *text = malloc(60001);
    assert_non_null(text);
    memset(text, 'x', 60000);
    text[60000] = '\0';
    kit_start(&k);
    assert_int_equal(kit_put(&k, k.alpha, 1, "early", &first), 0);
    assert_int_equal(db_number(k.s->db, "PRAGMA page_count", 0, &pages, &k.e), 0);
    snprintf(sql, sizeof sql, "PRAGMA max_page_count=%lld", (long long)pages + 20);
    assert_int_equal(db_exec(k.s->db, sql, &k.e), 0);
    kit_job_init(&small, STORE_SMALL);
    small.ev[0] = kit_event(k.beta, 2, "beside");
    small.count = 1;
    kit_job_init(&big, STORE_SMALL);
    for (uint64_t i = 0; i < 4; i++) {
        big.ev[i] = kit_event(k.alpha, 100 + i, text);
    }
    big.count = 4;
    kit_job_init(&after, STORE_SMALL);
    after.ev[0] = kit_event(k.beta, 3, "after");
    after.count = 1;
    store_submit(k.s, &small.job);
    store_submit(k.s, &big.job);
    store_submit(k.s, &after.job);
    assert_true(kit_turn(&k));
    assert_int_equal(small.told, 1);
    assert_int_equal(small.code, ERR_NO_SPACE);
    assert_int_equal(big.code, ERR_NO_SPACE);
    assert_int_equal(after.told, 0); /* had not begun: the next turn tries it */
    store_get_status(k.s, &st);
    assert_true(st.no_space);
    assert_false(st.poisoned);
    assert_true(st.cause[0] != '\0');
    assert_int_equal(metric_get(METRIC_STORE_NO_SPACE), 1);
    kit_check(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 1);
    kit_turns(&k);
    assert_int_equal(after.code, 0);
    store_get_status(k.s, &st);
    assert_false(st.no_space);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", &again), 0);
    assert_true(again.repeat);
    assert_int_equal(again.event_id, first.event_id);
    /* Space comes back. */
    assert_int_equal(db_exec(k.s->db, "PRAGMA max_page_count=100000", &k.e), 0);
    kit_job_init(&small, STORE_SMALL);
    small.ev[0] = kit_event(k.beta, 2, "beside");
    small.count = 1;
    store_submit(k.s, &small.job);
    store_submit(k.s, &big.job);
    kit_turns(&k);
    assert_int_equal(small.code, 0);
    assert_int_equal(big.code, 0);
    for (size_t i = 0; i < 4; i++) {
        assert_false(big.receipt[i].repeat);
        assert_true(big.receipt[i].event_id > first.event_id);
    }
    kit_check(&k);
    kit_reopen(&k);
    kit_check(&k);
    kit_end(&k);
    free(text);
    (void)state;
}

/* Without a turn that writes, the tick finds that there is space. */
static void test_space_is_looked_for(void **state)
{
    struct kit k;
    struct store_status st;
    kit_start(&k);
    k.s->no_space = true;
    store_tick(k.s);
    store_get_status(k.s, &st);
    assert_false(st.no_space);
    k.s->no_space = true;
    k.s->data[0] = '\0'; /* a place whose space cannot be learnt */
    store_tick(k.s);
    store_get_status(k.s, &st);
    assert_true(st.no_space);
    assert_int_equal(metric_get(METRIC_STORE_NO_SPACE), 1);
    kit_end(&k);
    (void)state;
}

static int code_job(struct kit_job *j, struct store *s, struct err *e)
{
    (void)s;
    return err_set(e, *(int *)j->arg, "a failure for the test");
}

static void test_poisoned(void **state)
{
    static const int codes[] = {ERR_IO, ERR_CORRUPT};
    for (size_t i = 0; i < 2; i++) {
        struct kit k;
        struct kit_job before, bad, later, slow;
        struct store_status st;
        int code = codes[i];
        kit_start(&k);
        kit_job_init(&before, STORE_SMALL);
        before.ev[0] = kit_event(k.alpha, 1, "x");
        before.count = 1;
        kit_job_init(&bad, STORE_SMALL);
        bad.fn = code_job;
        bad.arg = &code;
        kit_job_init(&later, STORE_LARGE);
        kit_job_init(&slow, STORE_BACKGROUND);
        store_submit(k.s, &before.job);
        store_submit(k.s, &bad.job);
        store_submit(k.s, &later.job);
        store_submit(k.s, &slow.job);
        kit_turns(&k);
        assert_int_equal(before.code, ERR_STORE_POISONED);
        assert_int_equal(bad.code, ERR_STORE_POISONED);
        assert_int_equal(later.code, ERR_STORE_POISONED);
        assert_int_equal(slow.code, ERR_STORE_POISONED);
        assert_string_equal(later.err.text, "a failure for the test");
        assert_int_equal(later.ran, 0); /* was not even begun */
        store_get_status(k.s, &st);
        assert_true(st.poisoned);
        assert_string_equal(st.cause, "a failure for the test");
        assert_int_equal(metric_get(METRIC_STORE_POISONED), 1);
        assert_int_equal(kit_put(&k, k.alpha, 2, "y", NULL), ERR_STORE_POISONED);
        store_tick(k.s);
        assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 0); /* reads go on */
        kit_reopen(&k);
        assert_int_equal(metric_get(METRIC_STORE_POISONED), 0);
        assert_int_equal(kit_put(&k, k.alpha, 2, "y", NULL), 0);
        kit_check(&k);
        kit_end(&k);
    }
    (void)state;
}

static int no_memory_job(struct kit_job *j, struct store *s, struct err *e)
{
    (void)j;
    (void)s;
    return err_set(e, ERR_NO_MEMORY, "none left");
}

static int lose_job(struct kit_job *j, struct store *s, struct err *e)
{
    (void)j;
    return db_exec(store_db(s), "ROLLBACK", e);
}

/* The turn is undone, the store goes on. */
static void test_turn_undone(void **state)
{
    struct kit k;
    struct kit_job first, bad;
    kit_start(&k);
    for (int i = 0; i < 2; i++) {
        kit_job_init(&first, STORE_SMALL);
        first.ev[0] = kit_event(k.alpha, 1, "x");
        first.count = 1;
        kit_job_init(&bad, STORE_SMALL);
        bad.fn = i == 0 ? no_memory_job : lose_job;
        store_submit(k.s, &first.job);
        store_submit(k.s, &bad.job);
        kit_turns(&k);
        assert_int_equal(first.code, i == 0 ? ERR_NO_MEMORY : ERR_INTERNAL_ERROR);
        assert_int_equal(bad.code, first.code);
        kit_check(&k);
        assert_int_equal(kit_number(&k, "SELECT count(*) FROM events"), 0);
    }
    store_submit(k.s, &first.job);
    kit_turns(&k);
    assert_int_equal(first.code, 0);
    assert_false(first.receipt[0].repeat);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Another process writes: the turn cannot begin, and says so. */
static void test_busy(void **state)
{
    struct kit k;
    struct sqlite3 *other;
    char path[256];
    kit_start(&k);
    snprintf(path, sizeof path, "%s/" STORE_FILE, k.dir);
    assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE, 100, &other, &k.e), 0);
    assert_int_equal(db_exec(other, "BEGIN IMMEDIATE", &k.e), 0);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", NULL), ERR_STORE_BUSY);
    assert_int_equal(db_exec(other, "ROLLBACK", &k.e), 0);
    sqlite3_close(other);
    assert_int_equal(kit_put(&k, k.alpha, 1, "x", NULL), 0);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

static int constraint_job(struct kit_job *j, struct store *s, struct err *e)
{
    (void)j;
    return db_exec(store_db(s), "INSERT INTO meta(name, value) VALUES('next_event_id', 5)", e);
}

static void test_constraint_is_the_jobs_own(void **state)
{
    struct kit k;
    struct store_status st;
    kit_start(&k);
    assert_int_equal(kit_do(&k, constraint_job, NULL), ERR_INTERNAL_ERROR);
    store_get_status(k.s, &st);
    assert_false(st.poisoned);
    kit_end(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_cannot_open),
        cmocka_unit_test(test_isolation),
        cmocka_unit_test(test_the_error_has_the_code),
        cmocka_unit_test(test_told_after_the_commit),
        cmocka_unit_test(test_no_commit_for_repeats),
        cmocka_unit_test(test_large_is_alone_and_not_starved),
        cmocka_unit_test(test_background_beside_large),
        cmocka_unit_test(test_background_is_bounded),
        cmocka_unit_test(test_many_jobs),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_space_is_looked_for),
        cmocka_unit_test(test_poisoned),
        cmocka_unit_test(test_turn_undone),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_constraint_is_the_jobs_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
