/* Receipts: the sets in memory, the filter, runs that move into the large table, and failures on
 * the way; ids stay what they were. */
#include "tests/unit/store/store_kit.h"

/* ---- sets and filter ---- */

static void test_set_against_a_list(void **state)
{
    static const uint64_t seed[2] = {3, 5};
    struct receipt_set set = {0};
    struct err e;
    uint64_t rnd = kit_seed();
    enum { KEYS = 5000 };
    uint32_t count = 0;
    assert_null(receipt_set_find(&set, seed, 1, &(struct uuid){0}));
    for (unsigned round = 0; round < 40; round++) {
        while (count < KEYS && kit_random(&rnd) % 300 != 0) {
            struct receipt r = {.project = count % 3, .event_id = count + 1};
            r.uuid = kit_uuid(count / 3); /* the same uuid in three projects */
            assert_int_equal(receipt_set_add(&set, seed, &r, &e), 0);
            count++;
        }
        if (kit_random(&rnd) % 2 == 0) {
            count = (uint32_t)(kit_random(&rnd) % (count + 1));
            receipt_set_cut(&set, seed, count);
        }
        assert_int_equal(set.count, count);
        for (uint32_t i = 0; i < KEYS; i += 7) {
            struct uuid u = kit_uuid(i / 3);
            const struct receipt *r = receipt_set_find(&set, seed, i % 3, &u);
            if (i < count) {
                assert_non_null(r);
                assert_int_equal(r->event_id, i + 1);
            } else {
                assert_null(r);
            }
        }
    }
    receipt_set_free(&set);
    (void)state;
}

static void test_filter(void **state)
{
    static const uint64_t seed[2] = {7, 11};
    struct receipt_filter *f = receipt_filter_new(0, seed);
    enum { KEYS = 600000 }; /* within what one mebibyte is for */
    unsigned wrong = 0;
    assert_non_null(f);
    assert_int_equal(f->bytes, RECEIPT_FILTER_BYTES_MIN);
    for (uint64_t i = 0; i < KEYS; i++) {
        struct uuid u = kit_uuid(i);
        receipt_filter_add(f, 1, u.byte);
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        struct uuid u = kit_uuid(i);
        assert_true(receipt_filter_maybe(f, 1, u.byte));
        wrong += receipt_filter_maybe(f, 2, u.byte);
    }
    assert_true(wrong < KEYS / 50);
    receipt_filter_free(f);
    f = receipt_filter_new(UINT64_C(1) << 40, seed);
    assert_non_null(f);
    assert_int_equal(f->bytes, RECEIPT_FILTER_BYTES_MAX);
    receipt_filter_free(f);
    f = receipt_filter_new(1000000, seed);
    assert_non_null(f);
    assert_true(RECEIPT_FILTER_KEYS_MAX(f->bytes) >= 2000000);
    receipt_filter_free(f);
    (void)state;
}

/* ---- runs ---- */

#define MANY 20000u

static void put_many(struct kit *k, uint64_t from, uint64_t to, int64_t *ids)
{
    struct kit_job j;
    while (from < to) {
        kit_job_init(&j, STORE_SMALL);
        while (j.count < KIT_EVENTS_MAX && from + j.count < to) {
            uint64_t n = from + j.count;
            j.ev[j.count++] = kit_event(n % 2 == 0 ? k->alpha : k->beta, n, "x");
        }
        store_submit(k->s, &j.job);
        kit_turn(k);
        assert_int_equal(j.told, 1);
        assert_int_equal(j.code, 0);
        for (size_t i = 0; i < j.count; i++) {
            if (ids[from + i] != 0) {
                assert_true(j.receipt[i].repeat);
                assert_int_equal(j.receipt[i].event_id, ids[from + i]);
            } else {
                assert_false(j.receipt[i].repeat);
                ids[from + i] = j.receipt[i].event_id;
            }
        }
        from += j.count;
    }
}

static void test_runs(void **state)
{
    struct kit k;
    int64_t *ids = calloc(2 * MANY, sizeof *ids);
    assert_non_null(ids);
    kit_start(&k);
    k.s->receipts.run_min = 3000;
    put_many(&k, 0, MANY, ids); /* runs begin and end meanwhile */
    assert_true(kit_number(&k, "SELECT count(*) FROM receipts") > 0);
    kit_check(&k);
    put_many(&k, 0, MANY, ids);
    kit_turns(&k);
    assert_int_equal(k.s->receipts.now.phase, RECEIPTS_IDLE);
    assert_true(kit_number(&k, "SELECT count(*) FROM receipts_recent") < 3000 + KIT_EVENTS_MAX);
    kit_check(&k);
    /* Reopened in the middle of a run: what is in both tables is so once more. */
    k.s->receipts.run_min = UINT32_MAX;
    put_many(&k, MANY, MANY + 15000, ids);
    k.s->receipts.run_min = 1;
    store_merge_if_due(k.s, false);
    while (k.s->receipts.now.phase != RECEIPTS_MOVE) {
        assert_true(kit_turn(&k));
    }
    kit_reopen(&k);
    kit_check(&k);
    put_many(&k, 0, MANY + 15000, ids);
    k.s->receipts.run_min = 1;
    store_tick(k.s);
    kit_turns(&k);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM receipts_recent"), 0);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM receipts"), MANY + 15000);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM (SELECT event_id FROM receipts EXCEPT"
                                    " SELECT id FROM events)"),
                     0);
    kit_check(&k);
    put_many(&k, 0, MANY + 15000, ids);
    kit_reopen(&k);
    put_many(&k, 0, MANY + 15000, ids);
    assert_non_null(k.s->receipts.filter);
    kit_check(&k);
    kit_end(&k);
    free(ids);
    (void)state;
}

static int merge_and_fail(struct kit_job *j, struct store *s, struct err *e)
{
    bool more;
    int r = queue_merge_receipts(s, &more, e);
    return r < 0 ? r : err_set(e, *(int *)j->arg, "failed on purpose");
}

/* Slices that are undone, alone or with their turn, in every phase. */
static void test_slices_undone(void **state)
{
    static int codes[] = {ERR_FORBIDDEN, ERR_NO_MEMORY};
    for (size_t c = 0; c < 2; c++) {
        struct kit k;
        int64_t *ids = calloc(MANY, sizeof *ids);
        unsigned phases[RECEIPTS_DONE + 1] = {0};
        assert_non_null(ids);
        kit_start(&k);
        k.s->receipts.run_min = UINT32_MAX;
        put_many(&k, 0, MANY, ids);
        k.s->receipts.run_min = 1;
        store_merge_if_due(k.s, false);
        do {
            struct kit_job bad;
            phases[k.s->receipts.now.phase]++;
            kit_job_init(&bad, STORE_SMALL);
            bad.fn = merge_and_fail;
            bad.arg = &codes[c];
            store_submit(k.s, &bad.job);
            kit_turn(&k); /* a kept slice runs behind the undone one, unless the turn is undone */
            assert_int_equal(bad.told, 1);
            assert_int_equal(bad.code, codes[c]);
            store_merge_if_due(k.s, false);
            k.s->receipts.run_min = UINT32_MAX;
            kit_turn(&k);
            if (k.s->receipts.now.phase != RECEIPTS_IDLE) {
                store_merge_if_due(k.s, false);
            }
        } while (k.s->receipts.now.phase != RECEIPTS_IDLE);
        assert_true(phases[RECEIPTS_MOVE] > 0);
        assert_int_equal(kit_number(&k, "SELECT count(*) FROM receipts_recent"), 0);
        assert_int_equal(kit_number(&k, "SELECT count(*) FROM receipts"), MANY);
        kit_check(&k);
        put_many(&k, 0, MANY, ids);
        kit_end(&k);
        free(ids);
    }
    (void)state;
}

static int merge_job(struct kit_job *j, struct store *s, struct err *e)
{
    bool more;
    int r = queue_merge_receipts(s, &more, e);
    (void)j;
    return r < 0 ? r : more ? STORE_AGAIN : 0;
}

/* By hand, as a caller may; and with nothing to do. */
static void test_merge_by_hand(void **state)
{
    struct kit k;
    int64_t ids[100] = {0};
    kit_start(&k);
    assert_int_equal(kit_do(&k, merge_job, NULL), 0);
    put_many(&k, 0, 100, ids);
    assert_int_equal(kit_do(&k, merge_job, NULL), 0);
    assert_int_equal(kit_number(&k, "SELECT count(*) FROM receipts"), 100);
    put_many(&k, 0, 100, ids);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* Intake waits when runs cannot keep up. */
static void test_hold(void **state)
{
    struct kit k;
    int64_t ids[200] = {0};
    kit_start(&k);
    put_many(&k, 0, 100, ids);
    assert_false(receipts_hold(k.s));
    k.s->receipts.run_min = 1;
    store_merge_if_due(k.s, false);
    receipts_turn_begin(k.s);
    assert_int_equal(k.s->receipts.now.phase, RECEIPTS_SORT);
    k.s->receipts.young.count = RECEIPTS_HOLD; /* as if */
    assert_true(receipts_hold(k.s));
    k.s->receipts.young.count = 0;
    assert_false(receipts_hold(k.s));
    kit_turns(&k);
    kit_check(&k);
    kit_end(&k);
    (void)state;
}

/* A filter that is full is replaced by a larger one; with the thread too. */
static void test_filter_grows(void **state)
{
    for (int threads = 0; threads < 2; threads++) {
        struct kit k;
        int64_t *ids = calloc(MANY, sizeof *ids);
        assert_non_null(ids);
        kit_start(&k);
        k.options.threads = threads == 1;
        kit_reopen(&k);
        k.s->receipts.run_min = 5000;
        put_many(&k, 0, MANY, ids);
        kit_turns(&k);
        for (int i = 0; k.s->receipts.filter == NULL && i < 5000; i++) {
            store_tick(k.s);
            usleep(1000);
        }
        assert_non_null(k.s->receipts.filter);
        assert_int_equal(k.s->receipts.filter->bytes, RECEIPT_FILTER_BYTES_MIN);
        k.s->receipts.filter_keys = 1000000; /* as if */
        put_many(&k, 0, MANY, ids);
        for (int i = 0; k.s->receipts.filter->bytes == RECEIPT_FILTER_BYTES_MIN && i < 5000; i++) {
            store_tick(k.s);
            usleep(1000);
        }
        assert_true(k.s->receipts.filter->bytes > RECEIPT_FILTER_BYTES_MIN);
        put_many(&k, 0, MANY, ids);
        kit_check(&k);
        kit_end(&k);
        free(ids);
    }
    (void)state;
}

/* A receipt that cannot be read: recent ones stop the start, large ones leave the filter out. */
static void test_damaged_rows(void **state)
{
    struct kit k;
    int64_t ids[10] = {0};
    struct store *s;
    kit_start(&k);
    assert_int_equal(kit_sql(&k, "INSERT INTO receipts VALUES(1, x'00', 1)"), 0);
    kit_reopen(&k);
    assert_null(k.s->receipts.filter);
    put_many(&k, 0, 10, ids);
    put_many(&k, 0, 10, ids);
    assert_int_equal(kit_sql(&k, "INSERT INTO receipts_recent VALUES(0, 1, x'0011')"), 0);
    kit_close(&k);
    assert_int_equal(store_open(k.dir, &k.options, &s, &k.e), ERR_CORRUPT);
    kit_remove_dir(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_against_a_list),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_slices_undone),
        cmocka_unit_test(test_merge_by_hand),
        cmocka_unit_test(test_hold),
        cmocka_unit_test(test_filter_grows),
        cmocka_unit_test(test_damaged_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
