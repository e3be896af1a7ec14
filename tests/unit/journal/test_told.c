/* test_told: every call that an operation of the journal makes fails once (tests/lib/told.h): of
 * the operating system, for memory. Whoever asked is told, and the next open finds what was
 * promised. What may fail silently stands beside each operation: the index, which is made again;
 * the spare tail, which the next rotation makes. */
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
static struct model *closed_disk, *torn_disk, *bare_disk, *empty_disk, *sealing_disk, *turning_disk;
static struct kit_ledger closed_ledger, torn_ledger, empty_ledger, turning_ledger;

/* ---- the disks ---- */

static void again(struct fx *f, const struct model *disk, const struct kit_ledger *ledger)
{
    model_free(f->m);
    f->m = model_snapshot(disk);
    model_use(f->m);
    f->ledger = *ledger;
}

static void keep(struct fx *f, struct model **disk, struct kit_ledger *ledger)
{
    *disk = model_snapshot(f->m);
    *ledger = f->ledger;
}

/* A seal that was cut before its plain file went, and the next one within its record. */
static void make_sealing(struct fx *f, const char *pending, const char *bytes, size_t n)
{
    fx_spill(pending, bytes, n);
    fx_patch(f->layout.manifest, fx_size(f->layout.manifest), "{\"bytes\":", 9);
    sealing_disk = model_snapshot(f->m);
}

/* A rotation that was cut between its two renames. */
static void make_turning(struct fx *f)
{
    fx_open(f);
    struct fault cut = {
        .kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_rename, .path = "tail.next", .at = 1};
    model_fault_arm(f->m, &cut);
    int r = 0;
    for (uint32_t n = 50; r == 0; n += 2) {
        r = kit_put(f->j, &f->ledger, (struct kit_spec){n, 1, BIG}, &f->e);
    }
    model_fault_arm(f->m, NULL);
    fx_kill(f);
    assert_false(fx_exists(f->layout.tail));
    keep(f, &turning_disk, &turning_ledger);
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
    struct layout_generation *rows;
    uint32_t count;
    char pending[LAYOUT_PATH_MAX];
    size_t n_plain;
    assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
    layout_pending_path(&f.layout, &rows[0].first_id, &rows[0].last_id, pending);
    free(rows);
    char *plain = fx_slurp(pending, &n_plain);
    assert_int_equal(journal_seal(f.j, 0, NULL, NULL, &f.e), 0);
    for (uint32_t n = 10; n <= 18; n++) {
        fx_put(&f, n, 1, BIG);
    }
    assert_int_equal(kit_retire(f.j, &f.ledger, 1, &f.e), 0);
    fx_commit(&f);
    assert_true(fx_status(&f).segments >= 2 && fx_status(&f).generations >= 4);
    fx_close(&f);
    keep(&f, &closed_disk, &closed_ledger);
    make_sealing(&f, pending, plain, n_plain);
    free(plain);
    again(&f, closed_disk, &closed_ledger);
    assert_int_equal(index_forget(f.layout.index, &f.e), 0);
    bare_disk = model_snapshot(f.m);
    again(&f, closed_disk, &closed_ledger);
    make_turning(&f);
    again(&f, closed_disk, &closed_ledger);
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
    model_free(sealing_disk);
    model_free(turning_disk);
    log_set_level(LOG_INFO);
    return 0;
}

static void begin(void *ctx)
{
    struct world *w = ctx;
    fx_start(&w->f, false);
    again(&w->f, w->disk, w->ledger);
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

/* Without a server, to the end. */
static int run_cut_torn(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct journal_cut c;
    int r = cut_open(w->f.dir, NULL, NULL, &c, e);
    if (r == 0) {
        assert_true(uuid_cmp(&c.last_id, &w->ledger->entries[w->ledger->count - 1].last_id) == 0);
        cut_close(&c);
    }
    return r;
}

/* ---- the sweeps ---- */

/* A close of what was synced or only read; the index, which is made again where it lacks something;
 * the spare tail, which the next rotation makes (and the two calls that sync its directory). */
#define QUIET "close", "/index/", "/data/index", "tail.next"

/* verify and cut: what moved while it looked, or may have, is looked at again. */
#define LOOKS "^stat /m/data/journal/tail.ndjson", "^stat /m/data/journal/manifest.jsonl"

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
    const struct told_op seal[] = {{"open in a seal", begin, run_open, end, {QUIET}, false, 2, 10}};
    const struct told_op turn[] = {
        {"open in a turn", begin, run_open, end, {QUIET}, false, 30, 1000}};
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
    on(sealing_disk, &closed_ledger, false);
    SWEEP(seal);
    on(turning_disk, &turning_ledger, false);
    SWEEP(turn);
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

static void test_what_is_torn(void **state)
{
    const struct told_op ops[] = {
        {"verify a torn one", begin, run_verify, end, {QUIET, LOOKS}, false, 0, 0},
        {"cut a torn one", begin, run_cut_torn, end, {QUIET, LOOKS}, false, 0, 0},
    };
    (void)state;
    on(torn_disk, &torn_ledger, false);
    SWEEP(ops);
}

/* A path that is too long is told by all of them, before anything is done. */
static void test_long_paths(void **state)
{
    static char dir[2 * LAYOUT_PATH_MAX];
    struct journal_options options = {.generation_bytes = FX_GENERATION};
    struct journal *j;
    struct verify_report report;
    struct journal_cut c;
    struct err e;
    (void)state;
    memset(dir, 'x', sizeof dir - 1);
    dir[0] = '/';
    model_use(empty_disk);
    uint64_t calls = model_calls(empty_disk);
    assert_true(journal_open(dir, &options, &j, &e) < 0);
    assert_non_null(strstr(e.text, "too long"));
    assert_true(verify_journal(dir, NULL, NULL, &report, &e) < 0);
    assert_non_null(strstr(e.text, "too long"));
    assert_true(cut_open(dir, NULL, NULL, &c, &e) < 0);
    assert_non_null(strstr(e.text, "too long"));
    assert_int_equal(model_calls(empty_disk), calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),    cmocka_unit_test(test_writing),
        cmocka_unit_test(test_reading),    cmocka_unit_test(test_what_is_torn),
        cmocka_unit_test(test_long_paths),
    };
    return cmocka_run_group_tests_name("told", tests, setup, teardown);
}
