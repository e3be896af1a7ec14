/* test_told: every call that an operation of the store makes fails once (tests/lib/told.h): of the
 * operating system, of SQLite, for memory. Whoever asked is told, nothing is half done, and the
 * next open finds a whole store. */
#include "tests/unit/store/store_kit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/log.h"
#include "os/os.h"
#include "store/copy.h"
#include "store/paused.h"
#include "store/verify.h"
#include "tests/lib/told.h"

#define EVENTS 6

struct world {
    struct kit k;
    unsigned char *bytes; /* of a good store, closed */
    size_t size;
    int64_t alpha, beta, gamma; /* projects */
    const char *sql;            /* what makes another file of it */
};

static struct world world;

/* ---- a good store ---- */

static void path_of(const struct kit *k, const char *name, char out[256])
{
    (void)snprintf(out, 256, "%s/%s", k->dir, name);
}

static int make_rows(struct kit_job *j, struct store *s, struct err *e)
{
    struct queue_rejected r = {.project = *(int64_t *)j->arg,
                               .received_ms = KIT_NOW,
                               .door = SLICE("segment"),
                               .reason = SLICE("why"),
                               .text = SLICE("text")};
    struct queue_cursor cursor = {.project = *(int64_t *)j->arg, .after_id = 1};
    int code = queue_put_rejected(s, &r, e);
    return code < 0 ? code : queue_set_cursor(s, &cursor, e);
}

static int setup(void **state)
{
    struct kit k;
    struct stat st;
    char path[256];
    (void)state;
    log_set_level(LOG_ERROR + 1);
    kit_start(&k);
    world.alpha = k.alpha;
    world.beta = k.beta;
    for (uint64_t n = 0; n < EVENTS; n++) {
        assert_int_equal(kit_put(&k, n % 2 == 0 ? k.alpha : k.beta, n, "{}", NULL), 0);
    }
    assert_int_equal(kit_do(&k, make_rows, &k.alpha), 0);
    kit_close(&k);
    path_of(&k, STORE_FILE, path);
    int fd = open(path, O_RDONLY);
    assert_int_equal(fstat(fd, &st), 0);
    world.size = (size_t)st.st_size;
    world.bytes = malloc(world.size);
    assert_int_equal(read(fd, world.bytes, world.size), world.size);
    assert_int_equal(close(fd), 0);
    kit_remove_dir(&k);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(world.bytes);
    log_set_level(LOG_INFO);
    return 0;
}

/* ---- before and after ---- */

static void begin_nothing(void *ctx)
{
    struct world *w = ctx;
    kit_dir(&w->k);
}

static void begin_file(void *ctx)
{
    struct world *w = ctx;
    char path[256];
    begin_nothing(w);
    path_of(&w->k, STORE_FILE, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, w->bytes, w->size), w->size);
    assert_int_equal(close(fd), 0);
}

static void begin_open(void *ctx)
{
    struct world *w = ctx;
    begin_file(w);
    kit_open(&w->k);
}

/* All receipts are in the large table, and none in memory. */
static void begin_merged(void *ctx)
{
    struct world *w = ctx;
    begin_open(w);
    w->k.s->receipts.run_min = 1;
    store_tick(w->k.s);
    kit_turns(&w->k);
    w->k.s->receipts.run_min = RECEIPTS_RUN;
    assert_int_equal(w->k.s->receipts.young.count, 0);
    assert_int_equal(kit_number(&w->k, "SELECT count(*) FROM receipts"), EVENTS);
    assert_non_null(w->k.s->receipts.filter);
}

static void begin_older(void *ctx)
{
    struct world *w = ctx;
    begin_open(w);
    assert_int_equal(db_exec(store_db(w->k.s), w->sql, &w->k.e), 0);
    kit_close(&w->k);
}

/* As it is left, opened again: all of it holds, and there is what there was. */
static void look_again(struct world *w, int64_t events)
{
    struct kit *k = &w->k;
    store_reader_close(k->reader);
    k->reader = NULL;
    (void)!store_close(k->s, &k->e); /* that of a poisoned one may fail */
    k->s = NULL;
    kit_open(k);
    kit_check(k);
    assert_int_equal(kit_number(k, "SELECT count(*) FROM events"), events);
    kit_end(k);
}

static void end_same(void *ctx, int r)
{
    (void)r;
    look_again(ctx, EVENTS);
}

static void end_one_more(void *ctx, int r)
{
    struct world *w = ctx;
    look_again(w, r == 0 ? EVENTS + 1 : EVENTS);
}

static void end_two_less(void *ctx, int r)
{
    struct world *w = ctx;
    look_again(w, r == 0 ? EVENTS - 2 : EVENTS);
}

static void end_empty(void *ctx, int r)
{
    (void)r;
    look_again(ctx, 0);
}

/* ---- the operations ---- */

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return store_open(w->k.dir, &w->k.options, &w->k.s, e);
}

static int run_close(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct store *s = w->k.s;
    w->k.s = NULL;
    return store_close(s, e);
}

static int job(struct world *w, int (*fn)(struct kit_job *, struct store *, struct err *),
               struct err *e)
{
    int r = kit_do(&w->k, fn, w);
    *e = w->k.e;
    return r;
}

static int put_one(struct kit_job *j, struct store *s, struct err *e)
{
    const struct world *w = j->arg;
    struct queue_event known = kit_event(w->alpha, 0, "{}");
    struct queue_event ev = kit_event(w->alpha, 100, "{}");
    struct queue_receipt receipt;
    int r = queue_put(s, &known, &receipt, e);
    assert_true(r != 0 || receipt.repeat);
    return r < 0 ? r : queue_put(s, &ev, &receipt, e);
}

static int run_put(void *ctx, struct err *e)
{
    return job(ctx, put_one, e);
}

static int run_rejected(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = kit_do(&w->k, make_rows, &w->beta);
    *e = w->k.e;
    return r;
}

static int deliver_two(struct kit_job *j, struct store *s, struct err *e)
{
    static const int64_t ids[] = {1, 2};
    (void)j;
    return queue_delivered(s, ids, 2, KIT_NOW + 5, e);
}

static int run_deliver(void *ctx, struct err *e)
{
    return job(ctx, deliver_two, e);
}

/* Two runs of ids. */
static int deliver_gap(struct kit_job *j, struct store *s, struct err *e)
{
    static const int64_t ids[] = {1, 3};
    (void)j;
    return queue_delivered(s, ids, 2, KIT_NOW + 5, e);
}

static int run_deliver_gap(void *ctx, struct err *e)
{
    return job(ctx, deliver_gap, e);
}

static int put_and_fail(struct kit_job *j, struct store *s, struct err *e)
{
    int r = put_one(j, s, e);
    return r < 0 ? r : err_set(e, ERR_FORBIDDEN, "failed on purpose");
}

static int run_undone(void *ctx, struct err *e)
{
    int r = job(ctx, put_and_fail, e);
    return r == ERR_FORBIDDEN ? 0 : r;
}

static int make_project(struct kit_job *j, struct store *s, struct err *e)
{
    const struct artifact_destination to = {.sink = SLICE("directory"), .directory = SLICE("/srv")};
    (void)j;
    return control_create_project(s, SLICE("gamma"), SLICE("Gamma"), &to, KIT_NOW, e);
}

static int run_project(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = job(w, make_project, e);
    return r < 0 ? r : control_committed(w->k.s, e);
}

static void end_project(void *ctx, int r)
{
    struct world *w = ctx;
    /* Whole or not at all: with its counters, its place and a token. */
    assert_int_equal(sqlite3_get_autocommit(store_db(w->k.s)) != 0 || r != 0, 1);
    assert_int_equal(kit_number(&w->k, "SELECT count(*) FROM projects WHERE name = 'gamma'"),
                     kit_number(&w->k, "SELECT count(*) FROM artifact_projects"));
    assert_int_equal(kit_number(&w->k, "SELECT count(*) FROM projects"),
                     kit_number(&w->k, "SELECT count(*) FROM project_counters"));
    assert_int_equal(kit_number(&w->k, "SELECT count(*) FROM projects"),
                     kit_number(&w->k, "SELECT count(*) FROM keys"));
    look_again(w, EVENTS);
}

static void begin_project(void *ctx)
{
    struct world *w = ctx;
    struct err e;
    begin_open(w);
    assert_int_equal(run_project(w, &e), 0);
}

static int change_project(struct kit_job *j, struct store *s, struct err *e)
{
    const struct world *w = j->arg;
    return control_set_artifacts(s, w->gamma, SLICE("{\"identifier\":\"x-{{OBJECT_ID}}\"}"), e);
}

static int run_change(void *ctx, struct err *e)
{
    struct world *w = ctx;
    w->gamma = control_project(store_control(w->k.s), SLICE("gamma"))->id;
    int r = job(w, change_project, e);
    return r < 0 ? r : control_committed(w->k.s, e);
}

static int make_key(struct kit_job *j, struct store *s, struct err *e)
{
    const struct world *w = j->arg;
    char text[KEY_TEXT_MAX + 1];
    int64_t id;
    int r = control_create_key(s, w->alpha, KEY_CAPTURE, SLICE("second"), 0, KIT_NOW, &id, text, e);
    return r < 0 ? r : control_revoke_key(s, w->alpha, id, KIT_NOW, e);
}

static int run_key(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = job(w, make_key, e);
    return r < 0 ? r : control_committed(w->k.s, e);
}

static int merge(struct kit_job *j, struct store *s, struct err *e)
{
    bool more = true;
    int r = 0;
    (void)j;
    while (r == 0 && more) {
        r = queue_merge_receipts(s, &more, e);
    }
    return r;
}

static int run_merge(void *ctx, struct err *e)
{
    return job(ctx, merge, e);
}

/* The one that nobody asked for; nobody is told but by the store's state. */
static int run_own_merge(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct store_status st;
    w->k.s->receipts.run_min = 1;
    store_tick(w->k.s);
    kit_turns(&w->k);
    store_get_status(w->k.s, &st);
    return st.poisoned ? err_set(e, ERR_STORE_POISONED, "%s", st.cause) : 0;
}

static int run_checkpoint(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return store_checkpoint(w->k.s, e);
}

static int run_reader(void *ctx, struct err *e)
{
    struct world *w = ctx;
    store_reader_close(w->k.reader);
    w->k.reader = NULL;
    return store_reader_open(w->k.dir, &w->k.reader, e);
}

static int run_select(void *ctx, struct err *e)
{
    struct world *w = ctx;
    const struct queue_selection sel = {.events_max = 4, .bytes_soft = 1 << 20};
    struct queue_rows rows;
    struct queue_cursor cursor;
    int r = queue_get_cursor(w->k.reader, &cursor, e);
    r = r < 0 ? r : queue_select(w->k.reader, &sel, &rows, e);
    if (r == 0) {
        assert_int_equal(rows.count, 4);
        queue_rows_free(&rows);
    }
    return r;
}

static int see_rejected(void *ctx, const struct queue_rejected_row *row)
{
    (void)row;
    ++*(unsigned *)ctx;
    return 0;
}

static int run_status(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct queue_project_status st;
    unsigned rows = 0;
    int r = queue_project_status(w->k.reader, w->alpha, &st, e);
    assert_true(r != 0 || (st.pending == EVENTS / 2 && st.rejected == 1));
    r = r < 0 ? r : queue_list_rejected(w->k.reader, w->alpha, 0, 10, see_rejected, &rows, e);
    assert_true(r != 0 || rows == 1);
    return r;
}

static void found(void *ctx, const char *text)
{
    (void)ctx;
    fail_msg("a good store: %s", text);
}

static int run_verify(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct store_verify_result v;
    int r = store_verify(w->k.dir, found, w, &v, e);
    assert_true(r != 0 || (v.events == EVENTS && v.projects == 2 && v.violations == 0));
    return r;
}

static int run_copy(void *ctx, struct err *e)
{
    struct world *w = ctx;
    char to[256];
    path_of(&w->k, "copy", to);
    return store_copy(w->k.dir, STORE_FILE, to, NULL, NULL, e);
}

static void end_copy(void *ctx, int r)
{
    struct world *w = ctx;
    struct sqlite3 *db;
    int64_t events = -1;
    char to[256];
    path_of(&w->k, "copy", to);
    if (r == 0) {
        assert_int_equal(db_open(to, SQLITE_OPEN_READONLY, 100, &db, &w->k.e), 0);
        assert_int_equal(db_number(db, "SELECT count(*) FROM events", -1, &events, &w->k.e), 0);
        assert_int_equal(events, EVENTS);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
    static const char *const names[] = {"copy", "copy-journal", "copy-wal", "copy-shm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(&w->k, names[i], to);
        (void)unlink(to);
    }
    look_again(w, EVENTS);
}

static int run_pause(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct paused p;
    return paused_write(w->k.dir, SLICE("why"), &p, e);
}

static int run_go_on(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return paused_remove(w->k.dir, e);
}

static void begin_paused(void *ctx)
{
    struct err e;
    begin_file(ctx);
    assert_int_equal(run_pause(ctx, &e), 0);
}

static void end_paused(void *ctx, int r)
{
    struct world *w = ctx;
    struct err e;
    char path[256];
    (void)r;
    assert_int_equal(paused_remove(w->k.dir, &e), 0);
    path_of(&w->k, ".paused", path);
    (void)unlink(path);
    look_again(w, EVENTS);
}

/* ---- the sweeps ---- */

#define QUIET "close" /* of what was synced, or only read */
/* The filter in front of the receipts is made beside the work, and missing it is slow only; so are
 * its two allocations. */
#define FILTER "SELECT project, uuid FROM receipts WHERE"
/* Gauges are read again a second later. */
#define GAUGES "SELECT ifnull(sum(pending_events)"

#define SWEEP(ops) sweep(ops, sizeof(ops) / sizeof *(ops))
static void sweep(const struct told_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        told_sweep(&ops[i], &world);
    }
}

static void test_opening(void **state)
{
    const struct told_op ops[] = {
        {"open a new store",
         begin_nothing,
         run_open,
         end_empty,
         {QUIET, FILTER, GAUGES},
         false,
         0,
         2},
        {"open a store", begin_file, run_open, end_same, {QUIET, FILTER, GAUGES}, false, 0, 2},
        {"open a reader", begin_open, run_reader, end_same, {QUIET}, false, 0, 0},
        {"close", begin_open, run_close, end_same, {QUIET}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

/* Schema 2, and derived tables that are gone. */
static void test_going_forward(void **state)
{
    static const char *const older[] = {
        "DROP TABLE artifact_projects; PRAGMA user_version=2",
        "DELETE FROM delivery_ready; DELETE FROM project_counters",
    };
    const struct told_op op = {"bring forward",         begin_older, run_open, end_same,
                               {QUIET, FILTER, GAUGES}, false,       0,        2};
    (void)state;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        world.sql = older[i];
        sweep(&op, 1);
    }
}

static void test_jobs(void **state)
{
    const struct told_op ops[] = {
        {"put", begin_open, run_put, end_one_more, {QUIET}, false, 0, 0},
        {"put behind a merge", begin_merged, run_put, end_one_more, {QUIET}, false, 0, 0},
        {"undo", begin_open, run_undone, end_same, {QUIET}, false, 0, 0},
        {"put what was rejected", begin_open, run_rejected, end_same, {QUIET}, false, 0, 0},
        {"deliver", begin_open, run_deliver, end_two_less, {QUIET}, false, 0, 0},
        {"deliver here and there", begin_open, run_deliver_gap, end_two_less, {QUIET}, false, 0, 0},
        {"make a project", begin_open, run_project, end_project, {QUIET}, false, 0, 0},
        {"make and revoke a key", begin_open, run_key, end_same, {QUIET}, false, 0, 0},
        {"change a project", begin_project, run_change, end_project, {QUIET}, false, 0, 0},
        {"merge receipts", begin_open, run_merge, end_same, {QUIET}, false, 0, 0},
        {"merge unasked",
         begin_open,
         run_own_merge,
         end_same,
         {QUIET, FILTER, GAUGES},
         false,
         0,
         6},
        {"checkpoint", begin_open, run_checkpoint, end_same, {QUIET}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_reading(void **state)
{
    const struct told_op ops[] = {
        {"select", begin_open, run_select, end_same, {QUIET}, false, 0, 0},
        {"status", begin_open, run_status, end_same, {QUIET}, false, 0, 0},
        {"verify beside", begin_open, run_verify, end_same, {QUIET, "ROLLBACK"}, true, 0, 0},
        {"verify", begin_file, run_verify, end_same, {QUIET, "ROLLBACK"}, true, 0, 0},
        {"copy beside", begin_open, run_copy, end_copy, {QUIET, "ROLLBACK"}, true, 0, 0},
        {"copy", begin_file, run_copy, end_copy, {QUIET, "ROLLBACK"}, true, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

static void test_pausing(void **state)
{
    const struct told_op ops[] = {
        {"pause", begin_file, run_pause, end_paused, {QUIET}, false, 0, 0},
        {"go on", begin_paused, run_go_on, end_paused, {QUIET}, false, 0, 0},
    };
    (void)state;
    SWEEP(ops);
}

int main(void)
{
    /* Some thousand stores are opened: their syncs need no disk. */
    if (access("/dev/shm", W_OK) == 0) {
        (void)setenv("TMPDIR", "/dev/shm", 0);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening), cmocka_unit_test(test_going_forward),
        cmocka_unit_test(test_jobs),    cmocka_unit_test(test_reading),
        cmocka_unit_test(test_pausing),
    };
    return cmocka_run_group_tests_name("told", tests, setup, teardown);
}
