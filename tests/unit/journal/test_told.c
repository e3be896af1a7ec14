/* test_told: every call that an operation of the journal makes fails once (tests/lib/told.h): of the
 * operating system, for memory. Whoever asked is told, and the next open finds what was promised.
 * What may fail silently stands beside each operation: the index, which is made again; the spare
 * tail, which the next rotation makes. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/cut.h"
#include "journal/index.h"
#include "journal/seal.h"
#include "journal/verify.h"
#include "tests/lib/told.h"

#define BIG 20000 /* three of these fill a generation */

struct world {
    struct fx f;
    struct model *disk; /* borrowed: the state before */
    const struct kit_ledger *ledger;
    bool reindex;
};

static struct world world;
static struct model *closed_disk, *torn_disk, *bare_disk, *empty_disk;
static struct kit_ledger closed_ledger, torn_ledger, empty_ledger;

/* ---- the disks ---- */

static void keep(struct fx *f, struct model **disk, struct kit_ledger *ledger)
{
    *disk = model_snapshot(f->m);
    *ledger = f->ledger;
}

/* Two segments, two plain generations, runs of the index, a retired source, a tail; closed. Then
 * the same without its index; and with a torn group. */
static int setup(void **state)
{
    struct fx f;
    (void)state;
    empty_disk = model_new(NULL);
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t n = 1; n <= 9; n++) {
        fx_put(&f, n, 1, BIG);
    }
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    for (uint32_t n = 10; n <= 18; n++) {
        fx_put(&f, n, 1, BIG);
    }
    assert_int_equal(kit_retire(f.j, &f.ledger, 1, &f.e), 0);
    fx_commit(&f);
    assert_true(fx_status(&f).segments >= 2 && fx_status(&f).generations >= 4);
    fx_close(&f);
    keep(&f, &closed_disk, &closed_ledger);
    assert_int_equal(index_forget(f.layout.index, &f.e), 0);
    bare_disk = model_snapshot(f.m);
    model_use(f.m);
    fx_open(&f);
    fx_put(&f, 20, 1, 50);
    fx_kill(&f);
    size_t n;
    char *bytes = fx_slurp(f.layout.tail, &n);
    for (; bytes[n - 1] == '\0'; n--) {
    }
    free(bytes);
    fx_patch(f.layout.tail, n, "torn", 4);
    keep(&f, &torn_disk, &torn_ledger);
    fx_end(&f);
    log_set_level(LOG_ERROR + 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_free(closed_disk);
    model_free(torn_disk);
    model_free(bare_disk);
    model_free(empty_disk);
    log_set_level(LOG_INFO);
    return 0;
}

static void begin(void *ctx)
{
    struct world *w = ctx;
    fx_start(&w->f, false);
    model_free(w->f.m);
    w->f.m = model_snapshot(w->disk);
    model_use(w->f.m);
    w->f.ledger = *w->ledger;
    w->f.options.reindex = w->reindex;
}

static void begin_open(void *ctx)
{
    struct world *w = ctx;
    begin(w);
    fx_open(&w->f);
}

/* The journal is closed, opened again, and is what the ledger says. */
static void end(void *ctx, int r)
{
    struct world *w = ctx;
    struct err ignored;
    (void)r;
    if (w->f.j != NULL) {
        (void)journal_close(w->f.j, &ignored);
        w->f.j = NULL;
    }
    kit_forget_group(&w->f.ledger);
    fx_open(&w->f);
    fx_check_opened(&w->f);
    fx_end(&w->f);
    log_set_level(LOG_ERROR + 1);
}

/* ---- the operations ---- */

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = journal_open(w->f.dir, &w->f.options, &w->f.j, e);
    if (r == 0 && fx_status(&w->f).poisoned) {
        return err_set(e, ERR_WRITER_POISONED, "%s", fx_status(&w->f).cause);
    }
    w->f.j = r == 0 ? w->f.j : NULL;
    return r;
}

static int run_close(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct journal *j = w->f.j;
    w->f.j = NULL;
    return journal_close(j, e);
}

static int put(struct world *w, uint32_t number, uint32_t payload, struct err *e)
{
    return kit_put(w->f.j, &w->f.ledger, (struct kit_spec){number, 1, payload}, e);
}

static int run_put(void *ctx, struct err *e)
{
    return put(ctx, 40, 100, e);
}

static int run_rotation(void *ctx, struct err *e)
{
    int r = 0;
    for (uint32_t n = 40; n < 48 && r == 0; n += 2) { /* source 0 is not retired */
        r = put(ctx, n, BIG, e);
    }
    return r;
}

/* Of a segment, of a plain generation, of the tail. */
static int run_repeat(void *ctx, struct err *e)
{
    int r = put(ctx, 1, BIG, e);
    r = r == 0 ? put(ctx, 13, BIG, e) : r;
    return r == 0 ? put(ctx, 18, BIG, e) : r;
}

static int run_retire(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = kit_retire(w->f.j, &w->f.ledger, 0, e);
    return r == 0 ? kit_commit(w->f.j, &w->f.ledger, e) : r;
}

static int run_seal(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = journal_close_tail(w->f.j, e);
    return r == 0 ? journal_seal(w->f.j, 0, NULL, NULL, e) : r;
}

static int count(struct world *w, const struct journal_filter *filter, uint64_t last,
                 uint64_t *events, struct err *e)
{
    struct journal_reader *reader;
    struct line l;
    int r = journal_reader_open(w->f.j, NULL, NULL, filter, NULL, &reader, e);
    if (r != 0) {
        return r;
    }
    *events = 0;
    r = last > 0 ? journal_reader_last(reader, last, e) : 0;
    while (r == 0 && (r = journal_reader_next(reader, &l, 0, e)) == 1) {
        ++*events;
        r = 0;
    }
    journal_reader_close(reader);
    return r;
}

static int run_read(void *ctx, struct err *e)
{
    struct world *w = ctx;
    const struct journal_filter filter = {.source = SLICE("\"src-1\"")};
    uint64_t events = 0;
    int r = count(w, NULL, 0, &events, e);
    assert_true(r != 0 || events == fx_status(&w->f).frontier.events);
    r = r == 0 ? count(w, &filter, 0, &events, e) : r;
    assert_true(r != 0 || events == 9);
    r = r == 0 ? count(w, &filter, 4, &events, e) : r;
    assert_true(r != 0 || events == 4);
    for (uint32_t i = 0; i < w->f.ledger.count && r == 0; i += 3) {
        r = journal_has_event(w->f.j, &w->f.ledger.entries[i].first_id, e);
        assert_true(r != 0); /* it has */
        r = r == 1 ? 0 : r;
    }
    return r;
}

static int see_stream(void *ctx, const struct index_stream *row)
{
    *(uint64_t *)ctx += row->events;
    return 0;
}

static int run_streams(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct journal_frontier f;
    uint64_t events = 0;
    journal_get_frontier(w->f.j, &f);
    int r = journal_read_streams(w->f.j, &f.last_id, SLICE(""), see_stream, &events, e);
    assert_true(r != 0 || events == f.events);
    /* In the midst of a generation, that is scanned. */
    events = 0;
    const struct uuid *middle = &w->f.ledger.entries[7].first_id;
    r = r == 0 ? journal_read_streams(w->f.j, middle, SLICE(""), see_stream, &events, e) : r;
    assert_true(r != 0 || events == 8);
    return r;
}

static int run_verify(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct verify_report report;
    int r = verify_journal(w->f.dir, NULL, NULL, &report, e);
    if (r == 0) {
        if (!report.ok) {
            fail_msg("a good journal: %s: %.80s", report.fault_text, report.fault_file);
        }
        assert_int_equal(report.batches_checked, w->f.ledger.count);
        verify_report_free(&report);
    }
    return r;
}

static int nobody(void *ctx, struct uuid *last_id, bool *empty, struct err *e)
{
    (void)ctx;
    (void)e;
    memset(last_id, 0xff, sizeof *last_id);
    *empty = false;
    return 0;
}

static int run_cut(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct journal_cut c;
    char path[LAYOUT_PATH_MAX];
    int r = cut_open(w->f.dir, nobody, NULL, &c, e);
    if (r != 0) {
        return r;
    }
    assert_int_equal(c.segment_count, 2);
    assert_true(c.tail_bytes > 0 && cut_count(&c) >= 4);
    for (uint32_t i = cut_count(&c); i > 0 && r == 0; i--) {
        r = cut_path(&c, i - 1, path, e);
    }
    cut_close(&c);
    return r;
}

/* ---- the sweeps ---- */

/* A close of what was synced or only read; the index, which is made again where it lacks something;
 * the spare tail, which the next rotation makes (and the two calls that sync its directory). */
#define QUIET "close", "/index/", "/data/index", "tail.next"

/* verify and cut: a lock that cannot be asked is no server; what moved while it looked, or may have, is
 * looked at again. */
#define LOOKS "flock", "stat /m/data/journal/tail.ndjson", "stat /m/data/journal/manifest.jsonl"

#define SWEEP(ops) sweep(ops, sizeof(ops) / sizeof *(ops))
static void sweep(const struct told_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        told_sweep(&ops[i], &world);
    }
}

static void on(struct model *disk, const struct kit_ledger *ledger, bool reindex)
{
    world.disk = disk;
    world.ledger = ledger;
    world.reindex = reindex;
}

static void test_opening(void **state)
{
    const struct told_op first[] = {
        {"make a journal", begin, run_open, end, {QUIET}, false, 2, 10}};
    const struct told_op open[] = {{"open", begin, run_open, end, {QUIET}, false, 2, 10}};
    const struct told_op torn[] = {
        {"open a torn one", begin, run_open, end, {QUIET}, false, 2, 10}};
    const struct told_op bare[] = {
        {"make the index", begin, run_open, end, {QUIET}, false, 30, 1000}};
    const struct told_op anew[] = {{"index anew", begin, run_open, end, {QUIET}, false, 30, 1000}};
    (void)state;
    on(empty_disk, &empty_ledger, false);
    SWEEP(first);
    on(closed_disk, &closed_ledger, false);
    SWEEP(open);
    on(torn_disk, &torn_ledger, false);
    SWEEP(torn);
    on(bare_disk, &closed_ledger, false);
    SWEEP(bare);
    on(closed_disk, &closed_ledger, true);
    SWEEP(anew);
}

static void test_writing(void **state)
{
    const struct told_op ops[] = {
        {"put", begin_open, run_put, end, {QUIET}, false, 0, 0},
        {"rotate", begin_open, run_rotation, end, {QUIET}, false, 6, 1000},
        {"repeat", begin_open, run_repeat, end, {QUIET}, false, 0, 0},
        {"retire", begin_open, run_retire, end, {QUIET}, false, 0, 0},
        {"seal",
         begin_open,
         run_seal,
         end,
         {QUIET, "unlink /m/data/journal/pending"},
         false,
         0,
         20},
        {"close", begin_open, run_close, end, {QUIET}, false, 0, 0},
    };
    (void)state;
    on(closed_disk, &closed_ledger, false);
    SWEEP(ops);
}

static void test_reading(void **state)
{
    const struct told_op ops[] = {
        {"read", begin_open, run_read, end, {QUIET}, false, 0, 8},
        {"read streams", begin_open, run_streams, end, {QUIET}, false, 0, 8},
        {"verify", begin, run_verify, end, {QUIET, LOOKS}, false, 0, 0},
        {"verify beside", begin_open, run_verify, end, {QUIET, LOOKS}, false, 0, 0},
        {"cut", begin, run_cut, end, {QUIET, LOOKS}, false, 0, 0},
        {"cut beside", begin_open, run_cut, end, {QUIET, LOOKS}, false, 0, 0},
    };
    (void)state;
    on(closed_disk, &closed_ledger, false);
    SWEEP(ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),
        cmocka_unit_test(test_writing),
        cmocka_unit_test(test_reading),
    };
    return cmocka_run_group_tests_name("told", tests, setup, teardown);
}
