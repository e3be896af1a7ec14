/* Rotation: what is in which file, batches that fit exactly, big ones, the spare, and every step
 * failing: the journal is poisoned, nothing is lost, and a new open goes on. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/spare.h"

static uint64_t bytes_of(struct kit_spec spec)
{
    struct kit_batch kb;
    kit_batch_make(&kb, spec);
    uint64_t n = kit_batch_bytes(&kb);
    kit_batch_free(&kb);
    return n;
}

/* Size of payload with which a batch of one event has so many bytes. */
static uint32_t payload_for(uint32_t number, uint64_t bytes)
{
    uint64_t base = bytes_of((struct kit_spec){number, 1, 1}) - 1;
    assert_true(bytes > base);
    return (uint32_t)(bytes - base);
}

/* A tail always keeps one zero: a batch that would take it goes into the next generation. */
static void test_exact_fit(void **state)
{
    static const int missing[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        struct fx f;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 100);
        uint64_t rest = FX_GENERATION - fx_status(&f).bytes;
        fx_put(&f, 2, 1, payload_for(2, rest - (uint64_t)missing[i]));
        assert_int_equal(fx_status(&f).generations, missing[i] == 0 ? 2 : 1);
        fx_put(&f, 3, 1, 1);
        assert_int_equal(fx_status(&f).generations, missing[i] == 0 ? 2 : 2);
        fx_check(&f);
        fx_kill(&f);
        fx_open(&f);
        fx_check_opened(&f);
        fx_close(&f);
        fx_verify(&f, true);
        fx_end(&f);
    }
    (void)state;
}

struct listing {
    char names[8][128];
    unsigned count;
};

static int list_one(void *ctx, const char *name)
{
    struct listing *l = ctx;
    assert_true(l->count < 8);
    (void)snprintf(l->names[l->count++], 128, "%s", name);
    return 0;
}

/* A closed generation is named by its first and last ids and has no padding. */
static void test_files(void **state)
{
    struct fx f;
    struct listing l = {0};
    char path[LAYOUT_PATH_MAX];
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 2, 20000);
    fx_put(&f, 2, 2, 20000);
    assert_int_equal(os_list(f.layout.pending, list_one, &l), 0);
    assert_int_equal(l.count, 1);
    const struct kit_entry *first = kit_find(&f.ledger, 1);
    layout_pending_path(&f.layout, &first->first_id, &first->last_id, path);
    assert_string_equal(strrchr(path, '/') + 1, l.names[0]);
    char *bytes = fx_slurp(path, &n);
    assert_int_equal(n, bytes_of(first->spec));
    assert_int_equal(bytes[n - 1], '\n');
    free(bytes);
    assert_int_equal(fx_size(f.layout.tail), FX_GENERATION);
    assert_false(fx_exists(f.layout.spare)); /* without a thread it is made when it is taken */
    fx_end(&f);
    (void)state;
}

/* Nothing is written to a new tail before its name is durable: at the first byte of a commit after
 * a rotation no name in the journal is pending. */
static void watch(void *ctx, struct model *m, const struct model_call *call)
{
    unsigned *seen = ctx;
    if (call->call != OS_CALL_pwrite || strstr(call->path, "tail.ndjson") == NULL) {
        return;
    }
    for (size_t i = 0; i < model_pending(m); i++) {
        struct model_item item = model_pending_item(m, i);
        assert_false(item.kind == MODEL_ITEM_ENTRY && strstr(item.path, "tail") != NULL);
        assert_false(item.kind == MODEL_ITEM_ENTRY && strstr(item.path, "ndjson") != NULL);
    }
    *seen += 1;
}

static void test_order_of_syncs(void **state)
{
    /* With a next spare, whose making syncs the directory once more, and without. */
    for (int spare = 0; spare < 2; spare++) {
        struct fx f;
        unsigned seen = 0;
        struct fault none = {.kind = FAULT_ERROR,
                             .error = ENOSPC,
                             .call = OS_CALL_open,
                             .path = "tail.next",
                             .at = 1};
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 10);
        model_set_hook(f.m, watch, &seen);
        for (uint32_t n = 2; n < 12; n++) {
            none.at = fx_exists(f.layout.spare) ? 1 : 2; /* the one behind the rotation */
            model_fault_arm(f.m, spare == 0 ? &none : NULL);
            fx_put(&f, n, 1, 34000);
        }
        model_set_hook(f.m, NULL, NULL);
        assert_true(seen >= 10);
        assert_true(fx_status(&f).generations > 4);
        fx_end(&f);
    }
    (void)state;
}

/* Syncs, cuts and renames in the journal's directories, as "call name" each. */
static void write_down(void *ctx, struct model *m, const struct model_call *call)
{
    char *calls = ctx;
    size_t n = strlen(calls);
    bool told = call->call == OS_CALL_fsync || call->call == OS_CALL_rename ||
                call->call == OS_CALL_ftruncate || call->call == OS_CALL_drop_cache;
    const char *name = strrchr(call->path, '/');
    (void)m;
    if (told && name != NULL && strstr(call->path, "/index") == NULL) {
        (void)snprintf(calls + n, 2048 - n, "%s %s, ", os_call_name(call->call), name + 1);
    }
}

/* Where a rename between directories is two changes on the device (the model disk takes it for
 * one), only this order keeps the old tail: its new name is durable before its old one goes, and
 * that before another file has it. A start does the same for what it finds, whoever renamed it. */
static void test_names_are_synced_in_order(void **state)
{
    struct fx f;
    char calls[2048] = "";
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 40000);
    model_set_hook(f.m, write_down, calls);
    fx_put(&f, 2, 1, 40000);
    model_set_hook(f.m, NULL, NULL);
    if (strstr(calls, "ftruncate tail.ndjson, fsync tail.ndjson, rename tail.ndjson, "
                      "fsync pending, fsync journal, rename tail.next, fsync journal, ") == NULL) {
        fail_msg("%s", calls);
    }
    struct fault cut = {.error = EIO, .call = OS_CALL_rename, .path = "tail.next", .at = 1};
    model_fault_arm(f.m, &cut);
    assert_int_equal(kit_put(f.j, &f.ledger, (struct kit_spec){3, 1, 40000}, &f.e),
                     ERR_WRITER_POISONED);
    model_fault_arm(f.m, NULL);
    fx_kill(&f);
    calls[0] = '\0';
    model_set_hook(f.m, write_down, calls);
    fx_open(&f);
    model_set_hook(f.m, NULL, NULL);
    if (strstr(calls, "fsync pending, fsync journal, rename tail.next, fsync tail.ndjson, "
                      "fsync pending, fsync journal, drop_cache tail.ndjson, ") == NULL) {
        fail_msg("%s", calls);
    }
    fx_check_opened(&f);
    fx_end(&f);
}

/* ---- failures ---- */

struct step {
    enum os_call call;
    const char *path;
    uint64_t at; /* the how-manieth such call in the rotation */
};

/* Every step of swapping the files fails once, with EIO: poisoned; a restart and a power cut both
 * find everything acknowledged. */
static void test_failing_steps(void **state)
{
    static const struct step steps[] = {
        {OS_CALL_ftruncate, "tail.ndjson", 1}, {OS_CALL_fsync, "tail.ndjson", 1},
        {OS_CALL_rename, "tail.ndjson", 1},    {OS_CALL_open, "/pending", 1},
        {OS_CALL_fsync, "/pending", 1},        {OS_CALL_fsync, "/m/data/journal", 1},
        {OS_CALL_fsync, "/m/data/journal", 2}, {OS_CALL_fsync, "/m/data/journal", 3},
        {OS_CALL_fsync, "/m/data/journal", 4}, {OS_CALL_rename, "tail.next", 1},
        {OS_CALL_open, "/m/data/journal", 2},
    };
    unsigned poisoned = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        for (int end = 0; end < 3; end++) {
            struct fx f;
            struct fault fault = {.kind = FAULT_ERROR,
                                  .error = EIO,
                                  .call = steps[i].call,
                                  .path = steps[i].path,
                                  .at = steps[i].at};
            fx_start(&f, false);
            fx_open(&f);
            fx_put(&f, 1, 1, 30000);
            fx_put(&f, 2, 1, 30000);
            model_fault_arm(f.m, &fault);
            struct kit_spec third = {3, 1, 30000};
            int r = kit_put(f.j, &f.ledger, third, &f.e);
            assert_true(r == 0 || r == ERR_WRITER_POISONED);
            if (r != 0) {
                poisoned++;
                assert_true(fx_status(&f).poisoned);
                assert_int_equal(kit_put(f.j, &f.ledger, (struct kit_spec){4, 1, 1}, &f.e),
                                 ERR_WRITER_POISONED);
            }
            model_fault_arm(f.m, NULL);
            fx_check(&f); /* reads go on */
            if (end == 0) {
                fx_close(&f);
                kit_forget_group(&f.ledger);
            } else {
                struct model_choice c = {.how = end == 1 ? MODEL_CUT_NONE : MODEL_CUT_ALL};
                fx_crash(&f, &c);
            }
            fx_open(&f);
            assert_false(fx_status(&f).poisoned);
            fx_check_opened(&f);
            fx_put(&f, 50, 1, 30000);
            fx_check(&f);
            fx_close(&f);
            fx_verify(&f, true);
            fx_end(&f);
        }
    }
    assert_true(poisoned >= 24);
    (void)state;
}

/* Room for a batch larger than a generation cannot be made: without space an answer, else poison.
 * The same when an open fills the padding up. */
static void test_growing_fails(void **state)
{
    static const struct {
        int error, big, open;
    } cases[] = {
        {ENOSPC, ERR_NO_SPACE, 0}, {EDQUOT, ERR_NO_SPACE, 0}, {EIO, ERR_WRITER_POISONED, ERR_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fx f;
        struct fault fault = {.kind = FAULT_ERROR,
                              .error = cases[i].error,
                              .call = OS_CALL_pwrite,
                              .path = "tail.ndjson",
                              .at = 1,
                              .sticky = true};
        fx_start(&f, false);
        fx_open(&f);
        model_fault_arm(f.m, &fault);
        assert_int_equal(kit_put(f.j, &f.ledger, (struct kit_spec){1, 30, 4000}, &f.e),
                         cases[i].big);
        assert_int_equal(fx_status(&f).no_space, cases[i].big == ERR_NO_SPACE);
        assert_int_equal(fx_status(&f).poisoned, cases[i].big != ERR_NO_SPACE);
        model_fault_arm(f.m, NULL);
        fx_close(&f);
        fx_open(&f);
        fx_put(&f, 2, 1, 10);
        fx_close(&f);
        model_fault_arm(f.m, &fault);
        assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), cases[i].open);
        model_fault_arm(f.m, NULL);
        if (cases[i].open != 0) {
            fx_open(&f);
        }
        model_clock_advance(f.m, UINT64_C(2000000000));
        fx_check_opened(&f);
        fx_put(&f, 1, 30, 4000);
        fx_check(&f);
        fx_close(&f);
        fx_verify(&f, true);
        fx_end(&f);
    }
    (void)state;
}

/* ---- the spare ---- */

/* No space for a spare is no reason to stop before it is needed, and then an answer that passes. */
static void test_spare_without_space(void **state)
{
    struct fx f;
    struct fault full = {.kind = FAULT_ERROR,
                         .error = ENOSPC,
                         .call = OS_CALL_pwrite,
                         .path = "tail.next",
                         .at = 1,
                         .sticky = true};
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 30000);
    model_fault_arm(f.m, &full);
    fx_put(&f, 2, 1, 40000); /* takes the spare; the next one cannot be made */
    assert_false(fx_exists(f.layout.spare));
    assert_int_equal(kit_put(f.j, &f.ledger, (struct kit_spec){3, 1, 40000}, &f.e), ERR_NO_SPACE);
    assert_true(fx_status(&f).no_space);
    assert_false(fx_status(&f).poisoned);
    /* What fits is still taken; what does not is refused without looking for a second. */
    fx_put(&f, 4, 1, 100);
    uint64_t calls = model_calls(f.m);
    assert_int_equal(kit_put(f.j, &f.ledger, (struct kit_spec){3, 1, 40000}, &f.e), ERR_NO_SPACE);
    assert_true(model_calls(f.m) - calls < 30);
    fx_check(&f);
    model_fault_arm(f.m, NULL);
    model_clock_advance(f.m, UINT64_C(2000000000));
    journal_tick(f.j);
    assert_false(fx_status(&f).no_space);
    fx_put(&f, 3, 1, 40000);
    fx_check(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

/* A spare that fails otherwise is tried once more when it is needed; failing again poisons. */
static void test_spare_failing(void **state)
{
    for (int twice = 0; twice < 2; twice++) {
        struct fx f;
        struct fault eio = {.kind = FAULT_ERROR,
                            .error = EIO,
                            .call = OS_CALL_fsync,
                            .path = "tail.next",
                            .at = 1,
                            .sticky = twice == 1};
        fx_start(&f, false);
        model_fault_arm(f.m, &eio);
        fx_open(&f);
        fx_put(&f, 1, 1, 40000);
        int r = kit_put(f.j, &f.ledger, (struct kit_spec){2, 1, 40000}, &f.e);
        assert_int_equal(r, twice == 1 ? ERR_WRITER_POISONED : 0);
        model_fault_arm(f.m, NULL);
        fx_check(&f);
        fx_close(&f);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

/* The spare's own states, with and without its thread. */
static void test_spare_states(void **state)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        struct fx f;
        struct spare sp;
        struct err failure = {0};
        int fd = -1;
        size_t n;
        fx_start(&f, threaded == 1);
        fx_open(&f);
        fx_close(&f);
        assert_int_equal(spare_start(&sp, &f.layout, 100000, threaded == 1, &f.e), 0);
        assert_int_equal(spare_peek(&sp, NULL), SPARE_IDLE);
        assert_int_equal(spare_take(&sp, &fd, &f.e), 0); /* asks by itself and waits */
        assert_true(fd >= 0);
        char *bytes = fx_slurp(f.layout.spare, &n);
        assert_int_equal(n, 100000);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(bytes[i], 0);
        }
        free(bytes);
        /* The name is in the way: failed, told, and back to idle. */
        spare_request(&sp);
        assert_int_equal(spare_take(&sp, &fd, &failure), ERR_IO);
        assert_int_equal(failure.os_errno, EEXIST);
        assert_int_equal(os_close(fd), 0);
        assert_int_equal(spare_peek(&sp, NULL), SPARE_IDLE);
        assert_int_equal(os_unlink(f.layout.spare), 0);
        spare_request(&sp);
        spare_request(&sp);
        assert_int_equal(spare_take(&sp, &fd, &f.e), 0);
        assert_int_equal(os_close(fd), 0);
        assert_int_equal(os_unlink(f.layout.spare), 0);
        spare_request(&sp);
        spare_stop(&sp); /* removes what was not taken */
        assert_false(fx_exists(f.layout.spare));
        fx_end(&f);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_fit),      cmocka_unit_test(test_files),
        cmocka_unit_test(test_order_of_syncs), cmocka_unit_test(test_failing_steps),
        cmocka_unit_test(test_growing_fails),  cmocka_unit_test(test_spare_without_space),
        cmocka_unit_test(test_spare_failing),  cmocka_unit_test(test_names_are_synced_in_order),
        cmocka_unit_test(test_spare_states),
    };
    return cmocka_run_group_tests_name("rotate", tests, NULL, NULL);
}
