/* test_told_index: every call and every allocation of the parts of the index fails once
 * (tests/lib/told.h): the writing, opening and searching of a run, a merge, a summary. Whoever
 * asked is told ERR_IO or ERR_NO_MEMORY, never that something is damaged, and nothing half is left
 * in the directory. The index as a whole, which tells nobody but the log, is tested in
 * test_index_faults and test_index_memory. */
#include "tests/unit/journal/index_kit.h"

#include <errno.h>

#include "journal/index_merge.h"
#include "journal/index_summary.h"
#include "journal/line.h"
#include "tests/lib/faults.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/told.h"

#define KEYS        9000u /* 71 blocks: more than are written at a time */
#define INPUT_KEYS  2200u /* more than are read at a time */
#define STREAMS     500u  /* a front that is longer than the first read of it */
#define EVENTS      6000u /* a filter of three blocks */
#define LARGE       (2 * UINT64_C(8) << 20)
#define GENERATIONS 8u

static const char *const dir = "/m/index";

struct world {
    struct model *disk; /* borrowed: the state before */
    struct model *m;
    uint64_t memory; /* of fences and filters */
    struct index_budget budget;
    struct index_run *run;
    struct index_run_writer writer;
    struct index_run *inputs[GENERATIONS];
    struct index_merge *merge;
    struct index_summary summary;
    unsigned files; /* that are there when all went well */
};

static struct world world;
static struct model *empty_disk, *run_disk, *inputs_disk, *summary_disk;
static struct index_generation closed[GENERATIONS];
static struct index_key *keys; /* KEYS of them, in order */
static struct index_stream streams[STREAMS];
static char names[STREAMS][16];
static struct buf lines;

/* ---- what is there ---- */

static int cmp(const void *a, const void *b)
{
    return index_key_cmp(a, b);
}

static void make_keys(void)
{
    keys = calloc(KEYS, sizeof *keys);
    assert_non_null(keys);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = (struct index_key){.offset = i, .bytes = 1, .events = 1};
        ikit_fingerprint(keys[i].fingerprint, i);
    }
    qsort(keys, KEYS, sizeof *keys, cmp);
}

static void make_lines(void)
{
    static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    for (uint32_t i = 0; i < 100; i++) {
        char key[32];
        int n = snprintf(key, sizeof key, "\"key-%u\"", i);
        struct line l = {.batch_digest = slice_of(hex, 64),
                         .batch_id = SLICE("\"b\""),
                         .batch_len = 1,
                         .content_hash = slice_of(hex, 64),
                         .event_hash = slice_of(hex, 64),
                         .event_id = SLICE("019f0000-0000-7000-8000-000000000000"),
                         .kind = SLICE("\"k\""),
                         .observed_at = SLICE("2026-01-01T00:00:00.000Z"),
                         .payload = SLICE("{}"),
                         .record_key = slice_of(key, (size_t)n),
                         .source = SLICE("\"s\""),
                         .stream = SLICE("\"t\"")};
        line_put(&lines, &l);
    }
    assert_false(lines.failed);
}

static int write_run(struct index_run_writer *w, uint32_t generation, uint32_t count,
                     struct index_budget *budget, struct index_run **out, struct err *e)
{
    struct index_run_spec spec = {.from = generation,
                                  .to = generation,
                                  .first_id = closed[generation].first_id,
                                  .last_id = closed[generation].last_id,
                                  .bytes = closed[generation].bytes,
                                  .key_count = count};
    int r = index_run_writer_start(w, dir, &spec, budget, e);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        struct index_key key = keys[i];
        key.generation = generation;
        r = index_run_writer_add(w, &key, e);
    }
    return r == 0 ? index_run_writer_commit(w, out, e) : r;
}

static void put_run(uint32_t generation, uint32_t count)
{
    struct index_budget budget = {.limit = 0};
    struct index_run_writer w;
    struct index_run *run;
    struct err e;
    assert_int_equal(write_run(&w, generation, count, &budget, &run, &e), 0);
    index_run_writer_end(&w);
    index_run_release(run);
}

static int64_t read_lines(void *ctx, uint32_t generation, uint64_t at, void *p, size_t n,
                          struct err *e)
{
    int fd = os_open("/m/g0", O_RDONLY, 0);
    (void)ctx;
    (void)generation;
    if (fd < 0) {
        return err_os(e, fd, "open", "g0");
    }
    int64_t got = os_pread_full(fd, p, n, at);
    (void)os_close(fd);
    return got < 0 ? err_os(e, (int)got, "read", "g0") : got;
}

static const struct index_options options = {.read = read_lines};

static int copy_summary(struct index_summary *out)
{
    struct index_summary s = {.generation = 0,
                              .first_id = closed[0].first_id,
                              .last_id = closed[0].last_id,
                              .events = EVENTS,
                              .batches = 1,
                              .bytes = closed[0].bytes,
                              .streams = streams,
                              .stream_count = STREAMS};
    return index_summary_copy(out, &s);
}

static struct model *settled(struct model *m)
{
    struct model *after = model_crash(m, &(struct model_choice){.how = MODEL_CUT_ALL});
    model_free(m);
    model_use(after);
    return after;
}

static int setup(void **state)
{
    struct err e;
    (void)state;
    log_set_level(LOG_ERROR + 1);
    make_keys();
    make_lines();
    for (uint32_t i = 0; i < GENERATIONS; i++) {
        ikit_ids(i, &closed[i].first_id, &closed[i].last_id);
        closed[i].bytes = lines.len;
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        (void)snprintf(names[i], sizeof names[i], "stream-%05u", i);
        streams[i] = (struct index_stream){
            .source = SLICE("s"), .stream = slice_cstr(names[i]), .events = i + 1};
    }
    struct model *m = model_new(NULL);
    model_use(m);
    assert_int_equal(os_mkdir(dir, 0700), 0);
    int fd = os_open("/m/g0", O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, lines.ptr, lines.len, 0, NULL), 0);
    assert_int_equal(os_fsync(fd), 0);
    assert_int_equal(os_close(fd), 0);
    m = settled(m);
    empty_disk = model_snapshot(m);
    assert_int_equal(copy_summary(&world.summary), 0);
    assert_int_equal(index_summary_write(dir, &world.summary, &options, &e), 0);
    assert_int_equal(world.summary.filter.blocks, 3);
    index_summary_free(&world.summary);
    m = settled(m);
    summary_disk = model_snapshot(m);
    model_free(m);
    m = model_snapshot(empty_disk);
    model_use(m);
    put_run(0, KEYS);
    m = settled(m);
    run_disk = model_snapshot(m);
    model_free(m);
    m = model_snapshot(empty_disk);
    model_use(m);
    for (uint32_t i = 0; i < GENERATIONS; i++) {
        put_run(i, INPUT_KEYS);
    }
    m = settled(m);
    inputs_disk = model_snapshot(m);
    model_free(m);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    model_free(empty_disk);
    model_free(run_disk);
    model_free(inputs_disk);
    model_free(summary_disk);
    free(keys);
    buf_free(&lines);
    log_set_level(LOG_INFO);
    return 0;
}

/* ---- before and after ---- */

static void begin(void *ctx)
{
    struct world *w = ctx;
    w->m = model_snapshot(w->disk);
    model_use(w->m);
    w->budget = (struct index_budget){.limit = w->memory};
    w->run = NULL;
    w->merge = NULL;
    w->writer = (struct index_run_writer){.file = {.fd = -1}};
    memset(&w->summary, 0, sizeof w->summary);
}

static unsigned count_files(void)
{
    unsigned n = 0;
    assert_int_equal(os_list(dir, ikit_count_one, &n), 0);
    return n;
}

/* What failed left nothing, and was no damage. */
static void end(void *ctx, int r)
{
    struct world *w = ctx;
    if (r != 0 && r != ERR_IO && r != ERR_NO_MEMORY) {
        fail_msg("told %s", err_name(r));
    }
    index_run_writer_end(&w->writer);
    index_merge_free(w->merge);
    index_run_release(w->run);
    index_summary_free(&w->summary);
    for (uint32_t i = 0; i < GENERATIONS; i++) {
        index_run_release(w->inputs[i]);
        w->inputs[i] = NULL;
    }
    assert_int_equal(atomic_load(&w->budget.used), 0);
    assert_int_equal(count_files(), r == 0 ? w->files : w->files - 1);
    model_free(w->m);
}

/* The same where nothing is written. */
static void end_reading(void *ctx, int r)
{
    struct world *w = ctx;
    w->files = count_files() + (r != 0);
    end(ctx, r);
}

/* ---- runs ---- */

static int run_writing(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return write_run(&w->writer, 0, KEYS, &w->budget, &w->run, e);
}

static int run_opening(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return index_run_open(dir, 0, 0, closed, 1, &w->budget, &w->run, e);
}

static void begin_opened(void *ctx)
{
    struct world *w = ctx;
    struct err e;
    begin(w);
    assert_int_equal(run_opening(w, &e), 0);
}

static int see_key(void *ctx, const struct index_key *key)
{
    const struct index_key *want = ctx;
    return index_key_cmp(want, key) == 0 ? 1 : ERR_CORRUPT;
}

/* Its cause went to the log. */
static int say(int r, struct err *e)
{
    return r == ERR_IO ? err_os(e, -EIO, "find", "a key") : err_set(e, r, "it cannot be found");
}

static int find(struct world *w, uint32_t i, struct err *e)
{
    int r = index_run_find(w->run, keys[i].fingerprint, see_key, &keys[i]);
    assert_true(r != 0); /* it has it */
    return r == 1 ? 0 : say(r, e);
}

static int find_absent(struct world *w, uint64_t n, struct err *e)
{
    uint8_t fingerprint[16];
    ikit_fingerprint(fingerprint, UINT64_C(1) << 50 | n);
    int r = index_run_find(w->run, fingerprint, see_key, &keys[0]);
    assert_true(r <= 0);
    return r == 0 ? 0 : say(r, e);
}

/* The first key of all, and first and last ones of blocks. */
static int run_finding(void *ctx, struct err *e)
{
    static const uint32_t some[] = {0, 1, 126, 127, 128, 5000, 5 * 127, 70 * 127, KEYS - 1};
    int r = 0;
    for (size_t i = 0; i < sizeof some / sizeof *some && r == 0; i++) {
        r = find(ctx, some[i], e);
    }
    for (uint64_t n = 0; n < 4 && r == 0; n++) {
        r = find_absent(ctx, n, e);
    }
    return r;
}

static void test_runs(void **state)
{
    /* Fences and filter stay on disk where there is no memory for them. */
    const struct told_op writing[] = {
        {"write a run", begin, run_writing, end, {"close"}, false, 0, 2}};
    const struct told_op opening[] = {
        {"open a run", begin, run_opening, end_reading, {"close"}, false, 0, 2}};
    /* A part of the filter that cannot be read is not believed, and the keys are read. */
    const struct told_op finding[] = {
        {"find keys", begin_opened, run_finding, end_reading, {NULL}, false, 4, 0}};
    (void)state;
    world.disk = empty_disk;
    world.files = 1;
    world.memory = LARGE;
    told_sweep(writing, &world);
    world.memory = 0;
    told_sweep(writing, &world);
    world.disk = run_disk;
    told_sweep(opening, &world);
    told_sweep(finding, &world);
    world.memory = LARGE;
    told_sweep(opening, &world);
    told_sweep(finding, &world);
}

/* A key that was found is no failure. */
static void test_found(void **state)
{
    uint64_t before = metric_get(METRIC_INDEX_FAILURES);
    struct err e;
    (void)state;
    world.disk = run_disk;
    world.memory = LARGE;
    begin_opened(&world);
    assert_int_equal(run_finding(&world, &e), 0);
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), before);
    end_reading(&world, 0);
}

/* ---- merges ---- */

static void begin_inputs(void *ctx)
{
    struct world *w = ctx;
    struct err e;
    begin(w);
    for (uint32_t i = 0; i < GENERATIONS; i++) {
        assert_int_equal(
            index_run_open(dir, i, i, closed, GENERATIONS, &w->budget, &w->inputs[i], &e), 0);
    }
}

static int run_merging(void *ctx, struct err *e)
{
    struct world *w = ctx;
    int r = 1;
    w->merge = index_merge_start(dir, w->inputs, &w->budget, e);
    if (w->merge == NULL) {
        return e->code;
    }
    while (r == 1) {
        r = index_merge_step(w->merge, 4096, &w->run, e);
    }
    assert_true(r != 0 || w->run->key_count == GENERATIONS * INPUT_KEYS);
    return r;
}

static void test_merging(void **state)
{
    const struct told_op merging[] = {
        {"merge", begin_inputs, run_merging, end, {"close"}, false, 0, 2}}; /* as above */
    (void)state;
    world.disk = inputs_disk;
    world.files = GENERATIONS + 1;
    world.memory = LARGE;
    told_sweep(merging, &world);
}

/* ---- the index around them ---- */

static struct index *open_all(bool background, bool known[GENERATIONS], struct err *e)
{
    const struct index_options o = {.background = background, .read = read_lines};
    return index_open(dir, closed, GENERATIONS, known, &o, e);
}

/* A merge that fails is given up, told and counted, and its inputs stay: at the next start all is
 * known. */
static void test_merge_fails(void **state)
{
    bool known[GENERATIONS];
    uint64_t calls = 1;
    struct err e;
    (void)state;
    world.disk = inputs_disk;
    for (uint64_t at = 0; at <= calls; at++) {
        uint64_t before = metric_get(METRIC_INDEX_FAILURES);
        char struck[160];
        begin(&world);
        faults_install(NULL);
        faults_arm(at, EIO, false, FAULT_ERROR);
        struct index *ix = open_all(false, known, &e);
        calls = at == 0 ? faults_count() : calls;
        faults_struck(struck, sizeof struck);
        faults_uninstall();
        assert_true(at == 0 || ix == NULL || strncmp(struck, "close", 5) == 0 ||
                    metric_get(METRIC_INDEX_FAILURES) > before);
        if (ix != NULL) {
            index_close(ix);
        }
        ix = open_all(false, known, &e);
        assert_non_null(ix);
        for (uint32_t g = 0; g < GENERATIONS; g++) {
            assert_true(known[g]);
        }
        assert_int_equal(index_key_count(ix), GENERATIONS * INPUT_KEYS);
        assert_int_equal(index_run_count(ix), 1);
        index_close(ix);
        model_free(world.m);
    }
    assert_true(calls > 50);
}

/* A merge of several steps goes on by itself, at its pace. */
static void test_merge_is_paced(void **state)
{
    bool known[GENERATIONS];
    struct err e;
    (void)state;
    world.disk = inputs_disk;
    begin(&world);
    struct index *ix = open_all(true, known, &e);
    assert_non_null(ix);
    for (unsigned i = 0; index_run_count(ix) > 1; i++) {
        assert_true(i < 20000);
        (void)usleep(1000);
    }
    index_close(ix);
    model_free(world.m);
}

/* ---- summaries ---- */

static void begin_summary(void *ctx)
{
    struct world *w = ctx;
    begin(w);
    assert_int_equal(copy_summary(&w->summary), 0);
}

static int run_summary(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return index_summary_write(dir, &w->summary, &options, e);
}

static int run_loading(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct index_summary s;
    int r = index_summary_load(dir, 0, &closed[0], &s, e);
    if (r == 0) {
        assert_int_equal(s.stream_count, STREAMS);
        w->summary = s;
    }
    return r;
}

static void test_summaries(void **state)
{
    /* The summary does without its filter where there is no memory for that. */
    const struct told_op writing[] = {
        {"write a summary", begin_summary, run_summary, end, {"close"}, false, 0, 3}};
    const struct told_op loading[] = {
        {"load a summary", begin, run_loading, end_reading, {"close"}, false, 0, 0}};
    (void)state;
    world.disk = empty_disk;
    world.files = 1;
    told_sweep(writing, &world);
    world.disk = summary_disk;
    told_sweep(loading, &world);
}

/* A filter that cannot be read denies nothing, and stays. */
static void test_asking(void **state)
{
    static const enum os_call calls[] = {OS_CALL_open, OS_CALL_pread};
    uint64_t before = metric_get(METRIC_INDEX_FAILURES);
    struct err e;
    (void)state;
    world.disk = summary_disk;
    begin(&world);
    assert_int_equal(run_loading(&world, &e), 0);
    const struct index_record_filter *f = &world.summary.filter;
    for (unsigned i = 0; i < 1000; i++) { /* some are denied, and none that is there */
        char key[16];
        int n = snprintf(key, sizeof key, "\"key-%u\"", i);
        bool maybe = index_record_maybe(dir, 0, f, SLICE("\"s\""), slice_of(key, (size_t)n));
        assert_true(maybe || i >= 100);
        assert_false(maybe && i >= 100 && i < 500 && i % 100 == 7);
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        faults_install(NULL);
        faults_count_only(calls[i], "gen-");
        faults_arm(1, EIO, true, FAULT_ERROR);
        assert_true(index_record_maybe(dir, 0, f, SLICE("\"s\""), SLICE("\"key-107\"")));
        assert_true(faults_fired() > 0);
        faults_uninstall();
        assert_int_equal(metric_get(METRIC_INDEX_FAILURES), before);
        assert_int_equal(count_files(), 1);
    }
    end_reading(&world, 0);
}

/* ---- files ---- */

/* A name that cannot be removed is told to the log and counted. */
static void test_removing(void **state)
{
    uint64_t before = metric_get(METRIC_INDEX_FAILURES);
    (void)state;
    world.disk = run_disk;
    begin(&world);
    index_unlink(dir, "keys-00000009-00000009.run"); /* it is not there */
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), before);
    faults_install(NULL);
    faults_count_only(OS_CALL_unlink, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    index_unlink(dir, "keys-00000000-00000000.run");
    faults_uninstall();
    assert_int_equal(metric_get(METRIC_INDEX_FAILURES), before + 1);
    assert_int_equal(count_files(), 1);
    end_reading(&world, 0);
}

static void test_forgetting(void **state)
{
    struct err e = {0};
    (void)state;
    world.disk = run_disk;
    begin(&world);
    faults_install(NULL);
    faults_count_only(OS_CALL_list, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(index_forget(dir, &e), ERR_IO);
    assert_int_equal(e.os_errno, EIO);
    faults_uninstall();
    assert_int_equal(count_files(), 1);
    assert_int_equal(index_forget(dir, &e), 0);
    assert_int_equal(count_files(), 0);
    assert_int_equal(index_forget("/m/nowhere", &e), 0);
    end_reading(&world, 0);
}

/* ---- what write-back loses ---- */

static struct os_table table;
static unsigned write_backs, failing_write_back;
static int write_back_error;

static int write_back(int fd, uint64_t offset, uint64_t n, bool wait)
{
    (void)fd;
    (void)offset;
    (void)n;
    (void)wait;
    return ++write_backs == failing_write_back ? write_back_error : 0;
}

/* More keys than write-back lets lie, in order without being made again. */
static int write_many(struct world *w, uint32_t count, struct err *e)
{
    struct index_run_spec spec = {.key_count = count};
    int r = index_run_writer_start(&w->writer, dir, &spec, &w->budget, e);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        struct index_key key = {.bytes = 1, .events = 1};
        key.fingerprint[0] = (uint8_t)(i >> 16);
        key.fingerprint[1] = (uint8_t)(i >> 8);
        key.fingerprint[2] = (uint8_t)i;
        r = index_run_writer_add(&w->writer, &key, e);
    }
    return r == 0 ? index_run_writer_commit(&w->writer, &w->run, e) : r;
}

/* It is said once, and a later sync may be silent about it. */
static void test_write_back(void **state)
{
    (void)state;
    world.disk = empty_disk;
    world.memory = 0;
    for (failing_write_back = 0; failing_write_back <= 3; failing_write_back++) {
        struct err e = {0};
        begin(&world);
        table = *os_current();
        table.write_back = write_back;
        os_install(&table);
        write_backs = 0;
        write_back_error = failing_write_back == 3 ? -ENOSPC : -EIO;
        int r = write_many(&world, 265000, &e);
        if (failing_write_back == 0) {
            assert_int_equal(r, 0);
            assert_int_equal(write_backs, 3); /* begun, begun, awaited */
        } else {
            assert_int_equal(r, write_back_error == -EIO ? ERR_IO : ERR_NO_SPACE);
            assert_int_equal(e.os_errno, -write_back_error);
        }
        index_run_writer_end(&world.writer);
        world.files = count_files();
        assert_int_equal(world.files, r == 0);
        end_reading(&world, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs),        cmocka_unit_test(test_found),
        cmocka_unit_test(test_merging),     cmocka_unit_test(test_summaries),
        cmocka_unit_test(test_asking),      cmocka_unit_test(test_removing),
        cmocka_unit_test(test_forgetting),  cmocka_unit_test(test_write_back),
        cmocka_unit_test(test_merge_fails), cmocka_unit_test(test_merge_is_paced),
    };
    return cmocka_run_group_tests_name("told_index", tests, setup, teardown);
}
