/* test_index_faults: the index on the model disk. Every file call fails in every way, once and for
 * good; the power is cut at every call, with every subset of what was pending, and again during the
 * opening that follows.
 *
 * What must hold: no crash, no leak, no descriptor left open. A lookup says what is true or fails.
 * A generation whose run was durable is known after any power cut. Once faults are over, everything
 * is written after all. */
#include <errno.h>

#include "index_kit.h"
#include "tests/lib/modeldisk.h"

enum { GENERATIONS = 8, EARLIER = 7 };

static bool known[GENERATIONS];
static struct ikit kit;
static struct model
    *base; /* seven generations closed and indexed, the file of the eighth written */

/* ---- descriptors are counted above the model ---- */

static struct os_table counting;
static const struct os_table *counted;
static int descriptors;

static int counting_open(const char *path, int flags, unsigned mode)
{
    int fd = counted->open(path, flags, mode);

    descriptors += fd >= 0;
    return fd;
}

static int counting_close(int fd)
{
    descriptors--;
    return counted->close(fd);
}

static void use(struct model *m)
{
    model_use(m);
    counted = os_current();
    counting = *counted;
    counting.open = counting_open;
    counting.close = counting_close;
    os_install(&counting);
}

/* ---- the scenario ---- */

static int prepare(void **state)
{
    struct model_options options = {.seed = 21};
    struct model *m = model_new(&options);
    struct model_choice all = {.how = MODEL_CUT_ALL};
    struct index *ix;

    (void)state;
    model_use(m);
    ikit_start_at(&kit, "/m", 21);
    ix = ikit_open(&kit, known, false);
    for (unsigned g = 0; g < GENERATIONS; g++) {
        for (unsigned i = 0; i < 3 + 20 * (g == 3); i++) {
            struct index_key key = ikit_key(&kit, i % 3 == 0 ? 1 : g * 1000 + i);

            ikit_remember(&kit, &key);
            if (g < EARLIER) {
                assert_int_equal(index_insert(ix, &key), 0);
            }
        }
        (void)ikit_seal(&kit);
        if (g < EARLIER) {
            assert_int_equal(ikit_close_result(&kit, ix, g, true), 0);
        }
    }
    index_close(ix);
    base = model_crash(m, &all); /* nothing pending */
    model_free(m);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    model_free(base);
    ikit_free(&kit);
    return 0;
}

/* Inserts the keys of the eighth generation. */
static void insert_last(struct index *ix)
{
    for (size_t i = 0; i < kit.key_count; i++) {
        if (kit.keys[i].generation == EARLIER) {
            assert_int_equal(index_insert(ix, &kit.keys[i]), 0);
        }
    }
}

/* Looks for every key; says how many lookups failed. Those that did not were right. */
static unsigned find_all(struct index *ix)
{
    unsigned failed = 0;

    for (size_t i = 0; i < kit.key_count; i++) {
        struct ikit_seen seen = {.count = 0};
        size_t first;
        size_t n = ikit_range(&kit, kit.keys[i].fingerprint, &first);
        int result = index_find(ix, kit.keys[i].fingerprint, ikit_visit, &seen);

        if (result != 0) {
            assert_true(result == ERR_IO || result == ERR_CORRUPT);
            failed++;
            continue;
        }
        assert_int_equal(seen.count, n);
        qsort(seen.keys, seen.count, sizeof seen.keys[0], ikit_cmp);
        assert_memory_equal(seen.keys, kit.keys + first, n * sizeof seen.keys[0]);
    }
    return failed;
}

static struct index *open_earlier(struct err *e)
{
    return ikit_try_open(&kit, kit.dir, kit.closed, EARLIER, known, false, e);
}

static void rebuild_earlier(struct index *ix)
{
    kit.count = EARLIER;
    (void)ikit_rebuild(&kit, ix, known);
    kit.count = GENERATIONS;
}

/* A summary that is there: it comes, or the reading fails. */
static void load_summary(void)
{
    struct index_summary s;
    struct err e = {.code = 0};
    int result = index_summary_load(kit.dir, 3, &kit.closed[3], &s, &e);

    if (result == 0) {
        index_summary_free(&s);
    } else {
        assert_true(result == ERR_IO || result == ERR_NO_SPACE || result == ERR_CORRUPT);
        assert_int_equal(e.code, result);
    }
}

/* Opens, completes, closes the eighth generation, which brings the merge. NULL when not opened. */
static struct index *scenario(void)
{
    struct err e = {.code = 0};
    struct index *ix = open_earlier(&e);

    if (ix == NULL) {
        assert_true(e.code == ERR_IO || e.code == ERR_NO_SPACE || e.code == ERR_NO_MEMORY);
        return NULL;
    }
    load_summary();
    rebuild_earlier(ix);
    insert_last(ix);
    assert_int_equal(ikit_close_result(&kit, ix, EARLIER, true), 0);
    return ix;
}

/* Opens a disk that may be in any state: complete it, and it is as if nothing had happened. */
static void check_disk(void)
{
    struct index *ix = ikit_open(&kit, known, false);

    for (uint32_t g = 0; g < GENERATIONS; g++) {
        struct index_summary s;
        struct err e;
        int result = index_summary_load(kit.dir, g, &kit.closed[g], &s, &e);

        if (result == 0) {
            index_summary_free(&s);
        } else {
            assert_true(result == ERR_NOT_FOUND || result == ERR_CORRUPT);
            assert_int_equal(ikit_close_result(&kit, ix, g, false), 0);
        }
    }
    (void)ikit_rebuild(&kit, ix, known);
    assert_int_equal(index_run_count(ix), 1);
    ikit_check(&kit, ix);
    index_close(ix);
    ix = ikit_open(&kit, known, false);
    assert_int_equal(index_run_count(ix), 1);
    assert_int_equal(ikit_files(&kit), 1 + GENERATIONS); /* nothing is left over */
    for (uint32_t g = 0; g < GENERATIONS; g++) {
        assert_true(known[g]);
        ikit_check_summary(&kit, g);
    }
    assert_int_equal(find_all(ix), 0);
    index_close(ix);
}

static void test_no_fault(void **state)
{
    struct model *m = model_snapshot(base);
    struct index *ix;

    (void)state;
    use(m);
    descriptors = 0;
    ix = scenario();
    assert_non_null(ix);
    for (unsigned g = 0; g < EARLIER; g++) {
        assert_true(known[g]);
    }
    ikit_check(&kit, ix);
    index_close(ix);
    assert_int_equal(descriptors, 0);
    check_disk();
    model_free(m);
}

/* ---- single faults ---- */

/* The scenario with one fault armed. Returns false when the fault did not fire any more. */
static bool run_with(const struct fault *fault)
{
    struct model_choice cut = {.how = MODEL_CUT_RANDOM, .seed = fault->at};
    struct model *m = model_snapshot(base);
    struct model *after;
    struct index *ix;
    bool fired;

    use(m);
    descriptors = 0;
    model_fault_arm(m, fault);
    ix = scenario();
    if (ix != NULL) {
        (void)find_all(ix);
    }
    fired = model_fault_fired(m) > 0;

    /* Power fails now. */
    after = model_crash(m, &cut);
    model_use(after);
    check_disk();
    use(m);
    model_free(after);

    /* Or the fault passes: the next opportunity makes up for everything. */
    model_fault_arm(m, NULL);
    if (ix != NULL) {
        index_settle(ix);
        assert_int_equal(index_run_count(ix), 1);
        assert_int_equal(find_all(ix), 0);
        ikit_check_summary(&kit, EARLIER);
        index_close(ix);
    }
    assert_int_equal(descriptors, 0);
    check_disk();
    assert_int_equal(descriptors, 0);
    model_free(m);
    return fired;
}

/* STEP: only every so-manieth call fails, for builds that are slow. */
static uint64_t step_of(void)
{
    const char *text = getenv("STEP");
    uint64_t step = text != NULL ? strtoull(text, NULL, 10) : 0;
    return step > 0 ? step : 1;
}

static void test_single_faults(void **state)
{
    static const struct fault kinds[] = {
        {.kind = FAULT_ERROR, .error = EIO},
        {.kind = FAULT_ERROR, .error = ENOSPC},
        {.kind = FAULT_ERROR, .error = EMFILE},
        {.kind = FAULT_ERROR_AFTER, .error = EIO},
        {.kind = FAULT_SHORT},
        {.kind = FAULT_ZERO, .call = OS_CALL_pread},
        {.kind = FAULT_ZERO, .call = OS_CALL_pwrite},
    };
    unsigned runs = 0;

    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        for (unsigned sticky = 0; sticky < 2; sticky++) {
            struct fault fault = kinds[i];

            fault.sticky = sticky != 0;
            for (fault.at = 1; run_with(&fault); fault.at += step_of()) {
                runs++;
            }
            assert_true(fault.at > 3);
        }
    }
    printf("%u runs with a fault\n", runs);
}

/* Memory that the kernel lacks while a run is opened: nothing is believed, nothing is removed. */
static void test_no_kernel_memory(void **state)
{
    struct fault fault = {.kind = FAULT_ERROR, .error = ENOMEM, .at = 1, .call = OS_CALL_pread};
    struct model *m = model_snapshot(base);
    struct err e = {.code = 0};

    (void)state;
    use(m);
    model_fault_arm(m, &fault);
    assert_null(open_earlier(&e));
    assert_int_equal(e.code, ERR_NO_MEMORY);
    model_fault_arm(m, NULL);
    check_disk();
    model_free(m);
}

static int no_random(void *p, size_t n)
{
    (void)p;
    (void)n;
    return -ENOSYS;
}

static void test_no_random(void **state)
{
    struct model *m = model_snapshot(base);

    (void)state;
    use(m);
    counting.random = no_random;
    check_disk();
    model_free(m);
}

/* The disk fills in the middle of a run of many blocks, and is given room again. */
static void test_disk_full(void **state)
{
    enum { KEYS = 20000 };
    struct model_options options = {.seed = 5};
    struct model *m = model_new(&options);
    struct fault full = {.kind = FAULT_ERROR, .error = ENOSPC, .sticky = true};
    struct ikit k;
    struct index *ix;

    (void)state;
    model_use(m);
    ikit_start_at(&k, "/m", 5);
    ix = ikit_open(&k, known, false);
    for (unsigned i = 0; i < KEYS; i++) {
        ikit_insert(&k, ix, i);
    }
    (void)ikit_seal(&k);
    for (full.at = 1; full.at <= 13; full.at++) {
        uint64_t failures_before = metric_get(METRIC_INDEX_FAILURES);

        full.call = OS_CALL_pwrite;
        model_fault_arm(m, &full);
        if (full.at == 1) {
            assert_int_equal(ikit_close_result(&k, ix, 0, true), 0);
        } else {
            index_settle(ix);
        }
        /* Three writes of keys, one of fences, eight of the filter; then the summary's. */
        assert_int_equal(metric_get(METRIC_INDEX_FAILURES), failures_before + 1 + (full.at < 13));
        assert_int_equal(index_run_count(ix), full.at == 13);
        assert_int_equal(ikit_files(&k), full.at == 13);
        ikit_check(&k, ix);
    }
    model_fault_arm(m, NULL);
    index_settle(ix);
    ikit_check_summary(&k, 0);
    index_close(ix);
    ix = ikit_open(&k, known, false);
    assert_true(known[0]);
    ikit_check(&k, ix);
    index_close(ix);
    model_free(m);
    ikit_free(&k);
}

/* ---- power cuts ---- */

struct cuts {
    unsigned depth;    /* of crashes before this one */
    bool last_durable; /* the eighth generation's run was reported as durable */
    unsigned *states;
};

static void check_crashed(struct model *after, const struct cuts *before);

static void cut(void *ctx, struct model *m, const struct model_call *call)
{
    const struct cuts *cuts = ctx;
    struct model_crashes it;
    struct model *after;

    if (call->call == OS_CALL_pread || call->call == OS_CALL_fstat || call->call == OS_CALL_close ||
        call->call == OS_CALL_list) {
        return; /* the disk is as it was before the call */
    }
    if (step_of() > 1 && call->number % 5 != 0) {
        return; /* a build that is slow: a sample */
    }
    /* Deep down only samples, else it takes for ever. */
    model_crashes_begin(&it, m, cuts->depth == 0 ? 10 : 3, cuts->depth == 0 ? 200 : 6,
                        call->number * 31 + cuts->depth);
    while ((after = model_crashes_next(&it)) != NULL) {
        check_crashed(after, cuts);
        model_free(after);
    }
    model_use(m);
}

/* A state that a power cut left: the seven are known, whatever was going on; the eighth too, once
 * it was durable. The power is cut again while it is opened and completed. */
static void check_crashed(struct model *after, const struct cuts *before)
{
    struct cuts cuts = *before;
    bool known_here[GENERATIONS]; /* the hook comes here again during the opening */
    struct index *ix;

    cuts.depth++;
    *cuts.states += 1;
    model_use(after);
    /* Not after every state, or the test never ends. */
    if (cuts.depth < 3 && *cuts.states % 23 == 1) {
        model_set_hook(after, cut, &cuts);
    }
    ix = ikit_open(&kit, known_here, false);
    for (unsigned g = 0; g < GENERATIONS; g++) {
        assert_true(known_here[g] || (g == EARLIER && !cuts.last_durable));
    }
    (void)ikit_rebuild(&kit, ix, known_here);
    assert_int_equal(find_all(ix), 0);
    index_close(ix);
}

/* The journal has closed the eighth generation before it tells the index, so after a cut the
 * opening is told of eight. */
static void test_power_cuts(void **state)
{
    unsigned states = 0;
    struct cuts cuts = {.states = &states};
    struct model *m = model_snapshot(base);
    struct err e;
    struct index *ix;

    (void)state;
    model_use(m);
    model_set_hook(m, cut, &cuts);
    ix = open_earlier(&e);
    assert_non_null(ix);
    insert_last(ix);
    assert_int_equal(ikit_close_result(&kit, ix, EARLIER, true), 0);
    assert_int_equal(index_run_count(ix), 1);
    cuts.last_durable = true;
    cut(&cuts, m, &(struct model_call){.number = model_calls(m) + 1, .call = OS_CALL_fsync});
    index_close(ix);
    model_free(m);
    printf("%u crash states\n", states);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_fault),         cmocka_unit_test(test_single_faults),
        cmocka_unit_test(test_no_kernel_memory), cmocka_unit_test(test_no_random),
        cmocka_unit_test(test_disk_full),        cmocka_unit_test(test_power_cuts),
    };

    log_set_level(LOG_ERROR + 1); /* thousands of failures are told here */
    return cmocka_run_group_tests(tests, prepare, finish);
}
