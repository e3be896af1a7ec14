/* test_index_mend: a run of keys that is damaged while the journal is open is made again beside it:
 * until then no batch that is there is taken for new, behind it all are known; whatever fails
 * meanwhile, and whenever the power goes. */
#include "journal_fixture.h"

#include "base/metrics.h"
#include "journal/internal.h"
#include "tests/lib/faults.h"

#define BATCHES 24u /* in eleven closed generations: eight of them are one run, the others each */

static struct kit_spec spec_of(uint32_t number)
{
    return (struct kit_spec){number, 1 + number % 3, 17000};
}

/* Closed. */
static void fill(struct fx *f)
{
    f->options.generation_bytes = 64 << 10;
    fx_open(f);
    for (uint32_t n = 1; n <= BATCHES; n++) {
        struct kit_spec s = spec_of(n);
        fx_put(f, s.number, s.count, s.payload_bytes);
    }
    assert_true(fx_status(f).generations >= 11);
    index_settle(f->j->index);
    assert_true(index_run_count(f->j->index) < fx_status(f).generations - 1);
    fx_close(f);
}

static int spoil_run(void *ctx, const char *name)
{
    char path[2 * LAYOUT_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", (const char *)ctx, name);
    if (strncmp(name, "keys-", 5) == 0) {
        fx_patch(path, 4096 + 40, "\xa5\xa5", 2); /* the first block of keys */
    }
    return 0;
}

static void spoil_runs(struct fx *f)
{
    assert_int_equal(os_list(f->layout.index, spoil_run, f->layout.index), 0);
}

/* How many are known; of the others the past could not be looked up. None is new. */
static uint32_t count_known(struct fx *f)
{
    uint32_t known = 0;
    for (uint32_t n = 1; n <= BATCHES; n++) {
        struct kit_batch kb;
        struct journal_result result;
        kit_batch_make(&kb, spec_of(n));
        int r = journal_append(f->j, &kb.batch, &result, &f->e);
        kit_batch_free(&kb);
        if (r == 0) {
            assert_int_equal(result.outcome, JOURNAL_DUPLICATE);
            known++;
        } else {
            assert_true(r == ERR_CORRUPT || r == ERR_IO || r == ERR_NO_MEMORY);
        }
    }
    return known;
}

static void test_made_again_beside_appends(void **state)
{
    struct fx f;
    (void)state;
    fx_start(&f, true);
    f.options.threads = true;
    fill(&f);
    fx_open(&f);
    uint64_t keys = index_key_count(f.j->index);
    uint32_t runs = index_run_count(f.j->index);
    spoil_runs(&f);
    assert_true(count_known(&f) < BATCHES);
    fx_put(&f, 1000, 1, 10); /* what is surely new goes on */
    for (unsigned i = 0; count_known(&f) < BATCHES; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
    index_settle(f.j->index);
    assert_int_equal(count_known(&f), BATCHES);
    assert_int_equal(index_key_count(f.j->index), keys + 1);
    assert_int_equal(index_run_count(f.j->index), runs);
    fx_close(&f);
    f.options.threads = false;
    fx_open(&f);
    assert_int_equal(index_run_count(f.j->index), runs); /* and the start has nothing to make */
    assert_int_equal(count_known(&f), BATCHES);
    fx_check_opened(&f);
    fx_end(&f);
}

/* Each call fails once while it is made again, or the process or the power goes. */
static void test_every_fault(void **state)
{
    struct fx f;
    (void)state;
    fx_start(&f, false);
    fill(&f);
    spoil_runs(&f);
    struct model *base = f.m;
    struct kit_ledger ledger = f.ledger;
    bool fired = true;
    for (uint64_t k = 1; fired; k += 1 + k / 16) {
        f.m = model_snapshot(base);
        f.ledger = ledger;
        model_use(f.m);
        fx_open(&f);
        assert_true(count_known(&f) < BATCHES);
        faults_install(NULL);
        faults_arm(k, k % 2 == 0 ? EIO : ENOSPC, false, FAULT_ERROR);
        index_retry(f.j->index);
        fired = faults_fired() > 0;
        faults_uninstall();
        if (k % 3 != 0) {
            index_retry(f.j->index);
            assert_int_equal(count_known(&f), BATCHES);
        }
        if (k % 3 == 1) {
            fx_close(&f);
        } else if (k % 3 == 2) {
            fx_kill(&f);
        } else {
            const struct model_choice power = {.how = MODEL_CUT_RANDOM, .seed = k};
            fx_crash(&f, &power);
        }
        fx_open(&f);
        (void)count_known(&f); /* a removed run may have come back */
        index_retry(f.j->index);
        assert_int_equal(count_known(&f), BATCHES);
        fx_check_opened(&f);
        fx_close(&f);
        fx_verify(&f, true);
        model_free(f.m);
    }
    f.m = base;
    model_use(base);
    fx_end(&f);
}

/* The generation cannot be read, or is damaged too: nothing is new because of that, and it is told;
 * the next opportunity tries again. */
static void test_a_generation_that_does_not_hold(void **state)
{
    struct fx f;
    struct layout_generation *rows;
    uint32_t count;
    char path[LAYOUT_PATH_MAX];
    (void)state;
    fx_start(&f, false);
    fill(&f);
    spoil_runs(&f);
    fx_open(&f);
    assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
    layout_pending_path(&f.layout, &rows[2].first_id, &rows[2].last_id, path);
    free(rows);
    uint32_t known = count_known(&f);
    assert_true(known < BATCHES);
    fx_patch(path, 300, "\x01", 1);
    uint64_t failures = metric_get(METRIC_INDEX_FAILURES);
    index_retry(f.j->index);
    assert_true(metric_get(METRIC_INDEX_FAILURES) > failures);
    assert_true(count_known(&f) < BATCHES);
    fx_close(&f);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_again_beside_appends),
        cmocka_unit_test(test_every_fault),
        cmocka_unit_test(test_a_generation_that_does_not_hold),
    };
    return cmocka_run_group_tests_name("index mend", tests, NULL, NULL);
}
