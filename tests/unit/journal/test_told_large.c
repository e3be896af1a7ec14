/* test_told_large: as test_told, of a journal whose parts are not all held in one piece: segments
 * of more than one block, batches of several events, a tail with more keys than the table begins
 * with and more padding than is read at a time, a retired source in a closed generation, an index
 * that nothing is held of in memory, and a verification that goes through the log more than once.
 * A second program because both take seconds. */
#include "tests/unit/journal/journal_fixture.h"

#include "base/metrics.h"
#include "journal/cut.h"
#include "journal/internal.h"
#include "journal/scan.h"
#include "journal/seal.h"
#include "journal/segment_write.h"
#include "journal/verify.h"
#include "journal/verify_internal.h"
#include "tests/lib/told.h"

#define LARGE_GENERATION (300u << 10)
#define BIG              30000u
#define SMALL_FIRST      100u /* batches of one event, in the tail */
#define SMALL_COUNT      60u

struct world {
    struct fx f;
    struct model *disk; /* borrowed: the state before */
    const struct kit_ledger *ledger;
    uint64_t index_memory;
    struct journal_cut cut;
    uint32_t asked;
    uint64_t failures; /* of the index, before */
    uint32_t plain;    /* of the cut, a generation that is sealed meanwhile */
};

static struct world world;
static struct model *plain_disk, *closed_disk, *torn_disk, *empty_disk;
static struct kit_ledger plain_ledger, closed_ledger, torn_ledger, empty_ledger;

/* ---- the disks ---- */

static void keep(struct fx *f, struct model **disk, struct kit_ledger *ledger)
{
    *disk = model_snapshot(f->m);
    *ledger = f->ledger;
}

static void start(struct fx *f)
{
    fx_start(f, false);
    f->options.generation_bytes = LARGE_GENERATION;
}

static void again(struct fx *f, const struct model *disk, const struct kit_ledger *ledger)
{
    model_free(f->m);
    f->m = model_snapshot(disk);
    model_use(f->m);
    f->ledger = *ledger;
}

/* A group that is cut in its third line, in front of much padding. */
static void tear(struct fx *f)
{
    static const char zeros[300];
    const struct kit_ledger before = f->ledger;
    size_t n;
    fx_open(f);
    fx_put(f, 98, 3, 500);
    fx_kill(f);
    f->ledger = before;
    char *bytes = fx_slurp(f->layout.tail, &n);
    for (; bytes[n - 1] == '\0'; n--) {
    }
    free(bytes);
    fx_patch(f->layout.tail, n - sizeof zeros, zeros, sizeof zeros);
    int fd = os_open(f->layout.tail, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_ftruncate(fd, 2 * LARGE_GENERATION), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
}

static int setup(void **state)
{
    struct fx f;
    char orphan[LAYOUT_PATH_MAX + 16];
    (void)state;
    empty_disk = model_new(NULL);
    start(&f);
    fx_open(&f);
    for (uint32_t n = 1; n <= 10; n++) { /* stream st-2 is in the first generation only */
        fx_put(&f, n, n <= 2 ? 3 : 2, n <= 2 ? BIG : BIG * 3 / 2);
    }
    assert_int_equal(kit_retire(f.j, &f.ledger, 1, &f.e), 0);
    fx_commit(&f);
    for (uint32_t n = 12; n <= 16; n += 2) {
        fx_put(&f, n, 2, BIG * 3 / 2);
    }
    for (uint32_t i = 0; i < SMALL_COUNT; i++) {
        fx_put(&f, SMALL_FIRST + 2 * i, 1, 20);
    }
    assert_int_equal(fx_status(&f).generations, 5);
    fx_close(&f);
    (void)snprintf(orphan, sizeof orphan, "%s/stray", f.layout.journal);
    fx_spill(orphan, "x", 1);
    keep(&f, &plain_disk, &plain_ledger);
    fx_open(&f);
    assert_int_equal(journal_seal(f.j, 2, NULL, NULL, &f.e), 0);
    assert_int_equal(fx_status(&f).segments, 2);
    fx_close(&f);
    keep(&f, &closed_disk, &closed_ledger);
    tear(&f);
    keep(&f, &torn_disk, &torn_ledger);
    fx_end(&f);
    log_set_level(LOG_ERROR + 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_free(plain_disk);
    model_free(closed_disk);
    model_free(torn_disk);
    model_free(empty_disk);
    log_set_level(LOG_INFO);
    return 0;
}

static void on(struct model *disk, const struct kit_ledger *ledger, uint64_t index_memory)
{
    world.disk = disk;
    world.ledger = ledger;
    world.index_memory = index_memory;
}

static void begin(void *ctx)
{
    struct world *w = ctx;
    start(&w->f);
    again(&w->f, w->disk, w->ledger);
    w->f.options.index_memory = w->index_memory;
}

static void begin_open(void *ctx)
{
    struct world *w = ctx;
    begin(w);
    fx_open(&w->f);
}

static void close_journal(struct world *w)
{
    struct err ignored;
    if (w->f.j != NULL) {
        (void)journal_close(w->f.j, &ignored);
        w->f.j = NULL;
    }
}

/* What was promised is there at the next open. */
static void end(void *ctx, int r)
{
    struct world *w = ctx;
    (void)r;
    close_journal(w);
    kit_forget_group(&w->f.ledger);
    fx_open(&w->f);
    char why[KIT_WHY];
    if (!kit_check(w->f.j, &w->f.ledger, true, why) ||
        !kit_check_retries(w->f.j, &w->f.ledger, 3, why)) {
        fail_msg("%s", why);
    }
    fx_end(&w->f);
    log_set_level(LOG_ERROR + 1);
}

/* Nothing was written. */
static void end_reading(void *ctx, int r)
{
    struct world *w = ctx;
    (void)r;
    close_journal(w);
    fx_end(&w->f);
    log_set_level(LOG_ERROR + 1);
}

/* ---- opening ---- */

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = journal_open(w->f.dir, &w->f.options, &w->f.j, e);
    if (r == 0 && fx_status(&w->f).poisoned) {
        return err_set(e, fx_status(&w->f).damaged ? ERR_CORRUPT : ERR_WRITER_POISONED, "%s",
                       fx_status(&w->f).cause);
    }
    w->f.j = r == 0 ? w->f.j : NULL;
    return r;
}

/* A batch that goes on with the stream: the writer knows its frontier, or that the source retired.
 */
static int see_stream(void *ctx, const struct index_stream *row)
{
    struct world *w = ctx;
    struct kit_batch kb;
    struct journal_result result;
    char text[64];
    if (slice_eq(row->source, SLICE("system"))) {
        return 0;
    }
    bool retired = slice_eq(row->source, SLICE("src-1"));
    int n = snprintf(text, sizeof text, "\"%.*s\"", (int)row->stream.len, row->stream.ptr);
    w->asked += 2;
    kit_batch_make(&kb, (struct kit_spec){retired ? w->asked + 1 : w->asked, 1, 10});
    kb.events[0].stream = SLICE("\"other\""); /* the frontiers of those asked for stay */
    kb.batch.has_precondition = true;
    kb.batch.precondition_stream = slice_of(text, (size_t)n);
    kb.batch.expected_frontier = row->last_id;
    assert_int_equal(journal_append(w->f.j, &kb.batch, &result, &w->f.e), 0);
    kit_batch_free(&kb);
    assert_int_equal(result.outcome, retired ? JOURNAL_SOURCE_RETIRED : JOURNAL_COMMITTED);
    return 0;
}

/* Whoever was told that it is open has all of it: events, keys, streams. */
static void end_open(void *ctx, int r)
{
    struct world *w = ctx;
    struct journal_frontier at;
    char why[KIT_WHY];
    if (r == 0) {
        if (!kit_check(w->f.j, &w->f.ledger, false, why) ||
            !kit_check_retries(w->f.j, &w->f.ledger, SMALL_COUNT, why)) {
            fail_msg("%s", why);
        }
        journal_get_frontier(w->f.j, &at);
        w->asked = 900;
        assert_int_equal(
            journal_read_streams(w->f.j, &at.last_id, SLICE(""), see_stream, w, &w->f.e), 0);
        assert_int_equal(w->asked, 900 + 2 * 6);
    }
    end(ctx, r);
}

/* As in test_told. */
#define QUIET "close", "/index/", "/data/index", "tail.next"
#define LOOKS "^stat /m/data/journal/tail.ndjson", "^stat /m/data/journal/manifest.jsonl"

#define QSORT 1 /* it does without memory of its own */

#define SWEEP(ops) sweep(ops, sizeof(ops) / sizeof *(ops))
static void sweep(const struct told_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        told_sweep(&ops[i], &world);
    }
}

static void test_opening(void **state)
{
    const struct told_op open[] = {{"open", begin, run_open, end_open, {QUIET}, false, 2, 6}};
    const struct told_op torn[] = {
        {"open a torn one", begin, run_open, end_open, {QUIET}, false, 2, 6}};
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(open);
    on(torn_disk, &torn_ledger, 0);
    SWEEP(torn);
}

/* ---- writing ---- */

static int put(struct world *w, uint32_t number, uint32_t count, uint32_t payload, struct err *e)
{
    return kit_put(w->f.j, &w->f.ledger, (struct kit_spec){number, count, payload}, e);
}

static int run_put(void *ctx, struct err *e)
{
    return put(ctx, 40, 3, 100, e);
}

/* Of a segment, of a plain generation, of the tail. */
static int run_repeat(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = put(w, 2, 3, BIG, e);
    r = r == 0 ? put(w, 10, 2, BIG * 3 / 2, e) : r;
    r = r == 0 ? put(w, 16, 2, BIG * 3 / 2, e) : r;
    assert_string_equal(w->f.ledger.lie, "");
    return r;
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
    int r = journal_seal(w->f.j, 0, NULL, NULL, e);
    assert_true(r != 0 || fx_status(&w->f).segments == 4);
    assert_true(r != ERR_IO || e->os_errno == EIO);
    return r;
}

static void test_writing(void **state)
{
    const struct told_op first[] = {
        {"put the first", begin_open, run_put, end, {QUIET}, false, 0, 0}};
    /* A part of a filter that cannot be read is not believed: the keys are read. */
    const struct told_op cold[] = {
        {"put", begin_open, run_put, end, {"close"}, false, 2, 0},
        {"repeat", begin_open, run_repeat, end, {"close"}, false, 3, 0},
        {"retire", begin_open, run_retire, end, {"close"}, false, 2, 0},
    };
    const struct told_op seal[] = {{"seal",
                                    begin_open,
                                    run_seal,
                                    end,
                                    {"close", "unlink /m/data/journal/pending"},
                                    false,
                                    0,
                                    0}};
    (void)state;
    on(empty_disk, &empty_ledger, 0);
    SWEEP(first);
    on(closed_disk, &closed_ledger, 1);
    SWEEP(cold);
    on(plain_disk, &plain_ledger, 0);
    SWEEP(seal);
}

/* ---- closing the tail ---- */

static void begin_rotation(void *ctx)
{
    struct world *w = ctx;
    begin_open(w);
    w->failures = metric_get(METRIC_INDEX_FAILURES);
}

static int run_rotation(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return journal_close_tail(w->f.j, e);
}

static bool has_index_file(const struct fx *f, const char *name)
{
    char path[LAYOUT_PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", f->layout.index, name);
    return fx_exists(path);
}

/* What the index lacks was counted; and after a failure there is no new tail. */
static void end_rotation(void *ctx, int r)
{
    struct world *w = ctx;
    assert_int_equal(fx_status(&w->f).generations, r == 0 ? 6 : 5);
    assert_true(r != 0 || metric_get(METRIC_INDEX_FAILURES) > w->failures ||
                (has_index_file(&w->f, "gen-00000004.sum") &&
                 has_index_file(&w->f, "keys-00000004-00000004.run")));
    end(ctx, r);
}

static void test_rotating(void **state)
{
    const struct told_op ops[] = {{"close the tail",
                                   begin_rotation,
                                   run_rotation,
                                   end_rotation,
                                   {"close", "/index/", "/data/index", "/pending/"},
                                   false,
                                   0,
                                   60}};
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(ops);
}

/* ---- the next tail: several pieces that are synced one by one ---- */

static int run_spare(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct spare sp;
    int fd = -1;
    int r = spare_start(&sp, &w->f.layout, UINT64_C(5) << 20, false, e);
    if (r == 0) {
        r = spare_take(&sp, &fd, e);
        if (r == 0) {
            (void)os_close(fd);
        }
        spare_stop(&sp);
    }
    return r;
}

static void end_spare(void *ctx, int r)
{
    struct world *w = ctx;
    assert_int_equal(fx_exists(w->f.layout.spare), r == 0);
    end_reading(ctx, r);
}

/* ---- a segment of several blocks of rows ---- */

static int run_segment(void *ctx, struct err *e)
{
    static char names[1002];
    static const char line[] = "0123456789";
    struct world *w = ctx;
    struct segment_writer writer = {0};
    uint8_t hash[SHA256_LEN] = {0};
    char path[LAYOUT_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/new", w->f.layout.segments);
    memset(names, '"', sizeof names);
    int fd = os_open(path, O_RDWR | O_CREAT, 0600);
    int r = fd < 0 ? err_os(e, fd, "open", "new") : segment_writer_start(&writer, fd, e);
    for (uint32_t i = 0; i < 600 && r == 0; i++) {
        struct segment_batch b = {.offset = (uint64_t)i * 10,
                                  .bytes = 10,
                                  .events = 1,
                                  .source = SLICE("\"s\""),
                                  .batch_id = slice_of(names, sizeof names)};
        r = segment_writer_add(&writer, &b, line, e);
    }
    r = r == 0 ? segment_writer_finish(&writer, hash, hash, e) : r;
    segment_writer_stop(&writer);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    return r;
}

static void test_pieces(void **state)
{
    const struct told_op ops[] = {
        {"make the next tail", begin, run_spare, end_spare, {"close"}, false, 0, 0},
        {"write a segment", begin, run_segment, end_reading, {"close"}, false, 0, 0},
    };
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(ops);
}

/* What write-back loses it says once, and a later sync may be silent about it. */
static struct os_table write_back_table;
static unsigned write_backs, failing_write_back;

static int write_back(int fd, uint64_t offset, uint64_t n, bool wait)
{
    (void)fd;
    (void)offset;
    (void)n;
    (void)wait;
    return ++write_backs == failing_write_back ? -EIO : 0;
}

static int write_noise(struct err *e)
{
    enum { PIECE = 256 << 10 };
    static char noise[PIECE];
    struct segment_writer writer;
    uint64_t chance = 7;
    int fd = os_open("/m/data/journal/segments/new", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    int r = segment_writer_start(&writer, fd, e);
    for (uint32_t i = 0; i < 40 && r == 0; i++) {
        struct segment_batch b = {.offset = (uint64_t)i * PIECE,
                                  .bytes = PIECE,
                                  .events = 1,
                                  .source = SLICE("\"s\""),
                                  .batch_id = SLICE("\"b\"")};
        for (size_t k = 0; k < PIECE; k += sizeof chance) {
            uint64_t x = kit_chance(&chance);
            memcpy(noise + k, &x, sizeof x);
        }
        r = segment_writer_add(&writer, &b, noise, e);
    }
    segment_writer_stop(&writer);
    assert_int_equal(os_close(fd), 0);
    return r;
}

static void test_write_back(void **state)
{
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    for (failing_write_back = 0; failing_write_back <= 3; failing_write_back++) {
        struct err e = {0};
        begin(&world);
        write_back_table = *os_current();
        write_back_table.write_back = write_back;
        os_install(&write_back_table);
        write_backs = 0;
        assert_int_equal(write_noise(&e), failing_write_back == 0 ? 0 : ERR_IO);
        assert_int_equal(write_backs, failing_write_back == 0 ? 3 : failing_write_back);
        end_reading(&world, 0);
    }
}

/* ---- proving the tail once more, as the rebuilding thread does ---- */

static int run_counting(void *ctx, struct err *e)
{
    struct world *w = ctx;
    const struct generation *tail = journal_tail(w->f.j);
    const struct generation *closed = w->f.j->generations[tail->ordinal - 1];
    int r = 0;
    for (unsigned i = 0; i < 4 && r == 0; i++) { /* until the table of keys has grown */
        struct scan s;
        scan_start(&s, tail->fd, tail->bytes, &closed->last_id, closed->head);
        r = journal_count_tail(w->f.j, &s, e);
        scan_stop(&s);
    }
    return r;
}

static void test_counting(void **state)
{
    const struct told_op ops[] = {
        {"count the tail", begin_open, run_counting, end_reading, {NULL}, false, 0, 0}};
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(ops);
}

/* ---- a copy while generations are sealed ---- */

static int nobody(void *ctx, struct uuid *last_id, bool *empty, struct err *e)
{
    (void)ctx;
    (void)e;
    memset(last_id, 0xff, sizeof *last_id);
    *empty = false;
    return 0;
}

static void begin_cut(void *ctx)
{
    struct world *w = ctx;
    begin_open(w);
    assert_int_equal(cut_open(w->f.dir, nobody, NULL, &w->cut, &w->f.e), 0);
    w->plain = cut_count(&w->cut) - 1;
    assert_int_equal(journal_seal(w->f.j, 0, NULL, NULL, &w->f.e), 0);
}

static int run_cut_again(void *ctx, struct err *e)
{
    struct world *w = ctx;
    char path[LAYOUT_PATH_MAX];
    int r = cut_again(&w->cut, w->plain, e);
    r = r == 0 ? cut_path(&w->cut, w->plain, path, e) : r;
    assert_true(r != 0 || strstr(path, "segments/") != NULL);
    return r;
}

static void end_cut(void *ctx, int r)
{
    struct world *w = ctx;
    cut_close(&w->cut);
    end_reading(ctx, r);
}

static int run_cut_torn(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct journal_cut c;
    int r = cut_open(w->f.dir, NULL, NULL, &c, e);
    if (r == 0) {
        cut_close(&c);
    }
    return r;
}

/* A record that is damaged is told also when good ones follow. */
static void test_cut_manifest(void **state)
{
    struct journal_cut c;
    struct err e = {0};
    size_t n;
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    begin(&world);
    char *text = fx_slurp(world.f.layout.manifest, &n);
    char *first = strstr(text, "\"first_event_id\"");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\"first_event_id\""));
    fx_patch(world.f.layout.manifest, (uint64_t)(first - text) + 1, "F", 1);
    free(text);
    assert_int_equal(cut_open(world.f.dir, NULL, NULL, &c, &e), ERR_CORRUPT);
    end_reading(&world, 0);
}

static void test_cutting(void **state)
{
    const struct told_op ops[] = {
        {"cut again", begin_cut, run_cut_again, end_cut, {"close"}, false, 0, 0}};
    const struct told_op torn[] = {
        {"cut a torn one", begin, run_cut_torn, end_reading, {"close", LOOKS}, false, 0, QSORT}};
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(ops);
    on(torn_disk, &torn_ledger, 0);
    SWEEP(torn);
}

/* ---- verifying ---- */

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

/* Keys and sources a range at a time. */
static int run_verify_ranges(void *ctx, struct err *e)
{
    verify_keys_max = 64;
    verify_sources_max = 1;
    int r = run_verify(ctx, e);
    verify_keys_max = VERIFY_KEYS_MAX;
    verify_sources_max = VERIFY_SOURCES_MAX;
    return r;
}

/* ---- a batch in flight: the first read of the tail finds a half of it ---- */

static struct os_table half_table;
static const struct os_table *under;
static bool half;

static int64_t half_pread(int fd, void *p, size_t n, uint64_t offset)
{
    static const char begins[] = "{\"batch_digest";
    int64_t got = under->pread(fd, p, n, offset);
    if (half && got > 1000 && memcmp(p, begins, sizeof begins - 1) == 0) {
        char *lf = memchr(p, '\n', (size_t)got);
        assert_non_null(lf);
        memset(lf - 50, 0, 51);
        half = false;
    }
    return got;
}

static void begin_in_flight(void *ctx)
{
    struct world *w = ctx;
    begin_open(w);
    fx_put(&w->f, 1, 1, 500);
    under = os_current();
    half_table = *under;
    half_table.pread = half_pread;
    half = true;
    os_install(&half_table);
}

static void test_verifying(void **state)
{
    const struct told_op ranges[] = {
        {"verify", begin, run_verify_ranges, end_reading, {"close", LOOKS}, false, 0, 0}};
    const struct told_op torn[] = {
        {"verify a torn one", begin, run_verify, end_reading, {"close", LOOKS}, false, 0, QSORT}};
    const struct told_op flight[] = {{"verify a batch in flight",
                                      begin_in_flight,
                                      run_verify,
                                      end_reading,
                                      {"close", LOOKS},
                                      false,
                                      0,
                                      0}};
    (void)state;
    on(closed_disk, &closed_ledger, 0);
    SWEEP(ranges);
    on(torn_disk, &torn_ledger, 0);
    SWEEP(torn);
    on(empty_disk, &empty_ledger, 0);
    SWEEP(flight);
    assert_false(half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening),      cmocka_unit_test(test_writing),
        cmocka_unit_test(test_counting),     cmocka_unit_test(test_rotating),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_write_back),
        cmocka_unit_test(test_cut_manifest), cmocka_unit_test(test_cutting),
        cmocka_unit_test(test_verifying),
    };
    return cmocka_run_group_tests_name("told_large", tests, setup, teardown);
}
