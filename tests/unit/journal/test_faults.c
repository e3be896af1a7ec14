/* Failing disks: no space and its return (L14, L16, L23), syncs that fail (L47, R5, R6), opens that
 * fail, reads that fail while a batch is decided. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/event_id.h"
#include "tests/lib/faults.h"

static struct kit_spec spec(uint32_t number, uint32_t count, uint32_t payload)
{
    return (struct kit_spec){number, count, payload};
}

static void arm(struct fx *f, int error, enum os_call call, const char *path, bool sticky)
{
    struct fault fault = {
        .kind = FAULT_ERROR, .error = error, .call = call, .path = path, .at = 1, .sticky = sticky};
    model_fault_arm(f->m, &fault);
}

/* ---- no space ---- */

/* The write fails at once: the group is undone and can be sent again at once. */
static void test_no_space_in_write(void **state)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    for (int i = 0; i < 2; i++) {
        struct fx f;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 50);
        fx_stage(&f, 2, 1, 50);
        fx_stage(&f, 3, 2, 50);
        arm(&f, errors[i], OS_CALL_pwrite, "tail.ndjson", false);
        assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_NO_SPACE);
        assert_true(fx_status(&f).no_space);
        assert_false(fx_status(&f).poisoned);
        assert_false(journal_pending(f.j));
        fx_check(&f);
        fx_put(&f, 3, 2, 50);
        assert_false(fx_status(&f).no_space);
        fx_put(&f, 2, 1, 50);
        fx_check(&f);
        fx_close(&f);
        fx_verify(&f, true);
        fx_end(&f);
    }
    (void)state;
}

/* The write is cut short and then fails: what was written is overwritten with zeros, durably. */
static void test_no_space_after_short_write(void **state)
{
    for (int cut = 0; cut < 2; cut++) {
        struct fx f;
        size_t n;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 50);
        uint64_t end = fx_status(&f).bytes;
        fx_stage(&f, 2, 3, 500);
        /* Two layers: the disk cuts the first write, the wrapper fails the second. */
        struct fault half = {.kind = FAULT_SHORT, .call = OS_CALL_pwrite, .at = 1};
        model_fault_arm(f.m, &half);
        faults_install(NULL);
        faults_count_only(OS_CALL_pwrite, NULL);
        faults_arm(2, ENOSPC, false, FAULT_ERROR);
        assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_NO_SPACE);
        assert_int_equal(faults_fired(), 1);
        assert_int_equal(model_fault_fired(f.m), 1);
        faults_uninstall();
        model_fault_arm(f.m, NULL);
        char *bytes = fx_slurp(f.layout.tail, &n);
        for (size_t i = end; i < n; i++) {
            assert_int_equal(bytes[i], 0);
        }
        free(bytes);
        if (cut == 1) {
            struct model_choice none = {.how = MODEL_CUT_NONE};
            fx_crash(&f, &none);
            fx_open(&f);
        }
        fx_check(&f);
        fx_put(&f, 2, 3, 500);
        fx_check(&f);
        fx_close(&f);
        fx_verify(&f, true);
        fx_end(&f);
    }
    (void)state;
}

/* Arms the next fault of a script before each write or sync. */
struct script {
    const struct fault *faults;
    unsigned count, next;
};

static void follow(void *ctx, struct model *m, const struct model_call *call)
{
    struct script *s = ctx;
    if (call->call == OS_CALL_pwrite || call->call == OS_CALL_fdatasync) {
        model_fault_arm(m, s->next < s->count ? &s->faults[s->next] : NULL);
        s->next++;
    }
}

/* When the undoing fails too, nothing is known: poisoned. */
static void test_undo_fails(void **state)
{
    static const struct fault cut = {.kind = FAULT_SHORT, .at = 1};
    static const struct fault full = {.kind = FAULT_ERROR, .error = ENOSPC, .at = 1};
    static const struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .at = 1};
    static const struct fault none = {.kind = FAULT_ERROR, .at = 0};
    for (int i = 0; i < 3; i++) {
        /* The write, its rest, the zeros over it, the sync of these. */
        const struct fault faults[] = {cut, full, i == 0 ? eio : i == 1 ? full : none, eio};
        struct script script = {.faults = faults, .count = 4};
        struct fx f;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 50);
        fx_stage(&f, 2, 3, 500);
        model_set_hook(f.m, follow, &script);
        assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
        model_set_hook(f.m, NULL, NULL);
        model_fault_arm(f.m, NULL);
        assert_int_equal(script.next, i < 2 ? 3 : 4);
        assert_true(fx_status(&f).poisoned);
        assert_int_equal(kit_put(f.j, &f.ledger, spec(3, 1, 1), &f.e), ERR_WRITER_POISONED);
        fx_check(&f);
        fx_close(&f);
        kit_forget_group(&f.ledger);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

/* A disk that is really full: intake waits, reads go on, space comes back, no restart. Opening
 * with a full disk needs none (L16). */
static void test_full_disk(void **state)
{
    struct fx f;
    struct model_options o = {.capacity_bytes = 400u << 10};
    fx_start(&f, false);
    model_free(f.m);
    f.m = model_new(&o);
    static char ballast[160 << 10];
    model_put(f.m, "/m/ballast", ballast, sizeof ballast);
    model_use(f.m);
    fx_open(&f);
    uint32_t n = 1;
    int r = 0;
    for (; r == 0; n++) {
        assert_true(n < 40);
        r = kit_put(f.j, &f.ledger, spec(n, 1, 20000), &f.e);
    }
    assert_int_equal(r, ERR_NO_SPACE);
    assert_true(fx_status(&f).no_space);
    assert_true(strlen(fx_status(&f).cause) > 0);
    fx_check(&f);
    fx_close(&f);
    fx_open(&f);
    assert_false(fx_status(&f).poisoned);
    fx_check(&f);
    /* A killed process, a torn group and still no space: it opens. */
    fx_kill(&f);
    fx_patch(f.layout.tail, fx_size(f.layout.tail) - 1, "\0", 1);
    fx_open(&f);
    fx_check(&f);
    r = 0;
    while (r == 0) {
        assert_true(n < 60);
        r = kit_put(f.j, &f.ledger, spec(n++, 1, 20000), &f.e);
    }
    assert_int_equal(r, ERR_NO_SPACE);
    assert_int_equal(os_unlink("/m/ballast"), 0);
    for (int second = 0; second < 2; second++) { /* one makes the spare, the next one sees it */
        model_clock_advance(f.m, UINT64_C(1000000000));
        journal_tick(f.j);
    }
    assert_false(fx_status(&f).no_space);
    for (uint32_t k = 100; k < 104; k++) {
        fx_put(&f, k, 1, 20000);
    }
    fx_check(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

/* What was got for a batch that is too large for the disk goes back: a smaller one has room. */
static void test_large_batch_without_space(void **state)
{
    struct fx f;
    struct model_options o = {.capacity_bytes = 300u << 10};
    fx_start(&f, false);
    model_free(f.m);
    f.m = model_new(&o);
    model_use(f.m);
    fx_open(&f);
    uint64_t size = fx_size(f.layout.tail);
    assert_int_equal(kit_put(f.j, &f.ledger, spec(1, 1, 400000), &f.e), ERR_NO_SPACE);
    assert_int_equal(fx_size(f.layout.tail), size);
    model_clock_advance(f.m, UINT64_C(2000000000));
    journal_tick(f.j);
    fx_put(&f, 2, 1, 100);
    fx_check(&f);
    fx_end(&f);
    (void)state;
}

static int count_name(void *ctx, const char *name)
{
    (void)name;
    ++*(unsigned *)ctx;
    return 0;
}

/* A torn group on a full disk: its bytes cannot be kept, the journal opens all the same. */
static void test_remnant_without_space(void **state)
{
    static const enum os_call calls[] = {OS_CALL_mkdir, OS_CALL_open, OS_CALL_pwrite,
                                         OS_CALL_fsync};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int io = 0; io < 2; io++) {
            struct fx f;
            fx_start(&f, false);
            fx_open(&f);
            fx_put(&f, 1, 1, 50);
            uint64_t end = fx_status(&f).bytes;
            fx_kill(&f);
            fx_patch(f.layout.tail, end, "torn", 4);
            arm(&f, io == 1 ? EIO : ENOSPC, calls[i], "remnants", true);
            int r = journal_open(f.dir, &f.options, &f.j, &f.e);
            if (io == 1) {
                assert_int_equal(r, ERR_IO); /* not a reason to throw them away */
                model_fault_arm(f.m, NULL);
                fx_open(&f);
            } else {
                unsigned names = 0;
                assert_int_equal(r, 0);
                model_fault_arm(f.m, NULL);
                int listed = os_list(f.layout.remnants, count_name, &names);
                assert_true(listed == 0 || listed == -ENOENT);
                assert_int_equal(names, 0); /* a part of them would pass for the whole */
            }
            fx_check_opened(&f);
            fx_end(&f);
        }
    }
    (void)state;
}

/* ---- syncs ---- */

/* The sync of a commit fails once and would succeed the second time: there is no second time. The
 * new open believes the device, not the cache. */
static void test_failed_sync(void **state)
{
    for (int partial = 0; partial < 2; partial++) {
        for (int end = 0; end < 3; end++) {
            struct fx f;
            struct kit_batch kb;
            struct journal_result r;
            fx_start(&f, false);
            model_failed_sync_partial(f.m, partial == 1);
            fx_open(&f);
            fx_put(&f, 1, 1, 900);
            fx_stage(&f, 2, 1, 900);
            fx_stage(&f, 3, 1, 900);
            arm(&f, EIO, OS_CALL_fdatasync, "tail.ndjson", false);
            assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
            assert_int_equal(f.e.code, ERR_WRITER_POISONED);
            uint64_t calls = model_calls(f.m);
            assert_int_equal(kit_put(f.j, &f.ledger, spec(4, 1, 1), &f.e), ERR_WRITER_POISONED);
            /* Duplicates get no answer either. */
            kit_batch_make(&kb, spec(1, 1, 900));
            assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), ERR_WRITER_POISONED);
            kit_batch_free(&kb);
            assert_int_equal(journal_commit(f.j, &f.e), ERR_WRITER_POISONED);
            assert_int_equal(model_calls(f.m), calls); /* no second sync */
            assert_int_equal(fx_status(&f).frontier.events, 1);
            fx_check(&f);
            if (end == 0) {
                fx_close(&f);
                kit_forget_group(&f.ledger);
            } else if (end == 1) {
                fx_kill(&f);
            } else {
                struct model_choice none = {.how = MODEL_CUT_NONE};
                fx_crash(&f, &none);
            }
            fx_open(&f);
            char why[KIT_WHY];
            if (!kit_check(f.j, &f.ledger, true, why)) {
                fail_msg("%s", why);
            }
            if (partial == 0) {
                assert_int_equal(kit_find(&f.ledger, 2)->state, KIT_ABSENT);
                assert_int_equal(kit_find(&f.ledger, 3)->state, KIT_ABSENT);
            }
            /* What was found stays found: present now is present after a power cut. */
            struct model_choice none = {.how = MODEL_CUT_NONE};
            fx_crash(&f, &none);
            fx_open(&f);
            fx_check_opened(&f);
            fx_end(&f);
        }
    }
    (void)state;
}

/* Writes that fail for other reasons poison, too; ENOSPC of a sync is no answer but a failure. */
static void test_failed_write(void **state)
{
    static const struct {
        enum os_call call;
        int error;
    } cases[] = {{OS_CALL_pwrite, EIO},
                 {OS_CALL_pwrite, EBADF},
                 {OS_CALL_fdatasync, ENOSPC},
                 {OS_CALL_fdatasync, EDQUOT},
                 {OS_CALL_fdatasync, EIO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fx f;
        fx_start(&f, false);
        fx_open(&f);
        fx_put(&f, 1, 1, 50);
        arm(&f, cases[i].error, cases[i].call, "tail.ndjson", true);
        assert_int_equal(kit_put(f.j, &f.ledger, spec(2, 1, 50), &f.e), ERR_WRITER_POISONED);
        assert_true(fx_status(&f).poisoned);
        model_fault_arm(f.m, NULL);
        assert_int_equal(kit_put(f.j, &f.ledger, spec(2, 1, 50), &f.e), ERR_WRITER_POISONED);
        fx_close(&f);
        kit_forget_group(&f.ledger);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

/* A write that is cut short goes on. */
static void test_short_writes(void **state)
{
    struct fx f;
    struct fault half = {
        .kind = FAULT_SHORT, .call = OS_CALL_pwrite, .path = "tail", .at = 1, .sticky = true};
    fx_start(&f, false);
    fx_open(&f);
    model_fault_arm(f.m, &half);
    fx_put(&f, 1, 2, 5000);
    fx_put(&f, 2, 2, 5000);
    assert_true(model_fault_fired(f.m) > 2);
    half.call = OS_CALL_pread;
    half.path = NULL;
    model_fault_arm(f.m, &half);
    fx_check(&f);
    fx_close(&f);
    fx_open(&f);
    fx_check_opened(&f);
    model_fault_arm(f.m, NULL);
    fx_end(&f);
    (void)state;
}

/* A manifest whose sync failed is not believed from the cache (R6): after a power cut it is still
 * there, or it was written again. */
static void test_failed_sync_of_manifest(void **state)
{
    for (uint64_t at = 1; at <= 2; at++) {
        struct fx f;
        struct fault eio = {.kind = FAULT_ERROR,
                            .error = EIO,
                            .call = OS_CALL_fsync,
                            .path = "manifest.jsonl",
                            .at = at};
        struct model_choice none = {.how = MODEL_CUT_NONE};
        fx_start(&f, false);
        model_fault_arm(f.m, &eio);
        assert_int_equal(journal_open(f.dir, &f.options, &f.j, &f.e), ERR_IO);
        f.j = NULL;
        model_fault_arm(f.m, NULL);
        fx_open(&f);
        fx_put(&f, 1, 1, 10);
        fx_crash(&f, &none);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

/* The record of a process that was killed before its sync: the next one syncs it before it takes
 * events, which would be nobody's without it. */
static void test_unsynced_manifest(void **state)
{
    struct fx f;
    struct fault unsynced = {.kind = FAULT_ZERO,
                             .sticky = true,
                             .call = OS_CALL_fsync,
                             .path = "manifest.jsonl",
                             .at = 1};
    struct model_choice none = {.how = MODEL_CUT_NONE};
    (void)state;
    fx_start(&f, false);
    model_fault_arm(f.m, &unsynced);
    fx_open(&f);
    fx_kill(&f);
    fx_open(&f);
    fx_put(&f, 1, 1, 10);
    fx_crash(&f, &none);
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
}

/* ---- opening ---- */

/* Every call of an open fails once: an error or a success, never damage, and then it opens. */
static void test_open_fails_anywhere(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t n = 1; n <= 8; n++) {
        fx_put(&f, n, 1, 20000);
    }
    uint64_t end = fx_status(&f).bytes;
    fx_kill(&f);
    assert_true(end > 0);
    struct model *good = f.m;
    uint64_t calls = 1;
    for (uint64_t k = 1; k <= calls; k++) {
        struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .at = k};
        struct kit_ledger saved = f.ledger;
        f.m = model_snapshot(good);
        model_use(f.m);
        model_fault_arm(f.m, &eio);
        int r = journal_open(f.dir, &f.options, &f.j, &f.e);
        calls = k == 1 ? 200 : calls;
        if (model_fault_fired(f.m) == 0) {
            calls = 0; /* it makes fewer calls than that */
        }
        model_fault_arm(f.m, NULL);
        if (r == 0) {
            assert_false(fx_status(&f).poisoned && strstr(fx_status(&f).cause, "damaged") != NULL);
            fx_close(&f);
        } else {
            assert_int_equal(r, ERR_IO);
            assert_true(strlen(f.e.text) > 0);
        }
        f.j = NULL;
        fx_open(&f);
        fx_check_opened(&f);
        fx_close(&f);
        model_free(f.m);
        f.ledger = saved;
    }
    f.m = good;
    model_use(f.m);
    fx_end(&f);
    (void)state;
}

/* A look-up that cannot read says so, stages nothing, and works when the disk does. */
static void test_lookup_fails(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t n = 1; n <= 8; n++) {
        fx_put(&f, n, 1, 20000);
    }
    for (uint32_t n = 1; n <= 8; n += 7) { /* in a closed generation, and in the tail */
        kit_batch_make(&kb, spec(n, 1, 20000));
        arm(&f, EIO, OS_CALL_pread, "ndjson", true);
        assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), ERR_IO);
        assert_false(journal_pending(f.j));
        model_fault_arm(f.m, NULL);
        assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), 0);
        assert_int_equal(r.outcome, JOURNAL_DUPLICATE);
        kit_batch_free(&kb);
    }
    kit_batch_make(&kb, spec(1, 1, 20000));
    arm(&f, EIO, OS_CALL_pread, "index", true);
    assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), ERR_IO);
    model_fault_arm(f.m, NULL);
    arm(&f, EMFILE, OS_CALL_open, "pending", true);
    assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), ERR_IO);
    model_fault_arm(f.m, NULL);
    kit_batch_free(&kb);
    assert_false(fx_status(&f).poisoned);
    fx_check(&f);
    fx_put(&f, 20, 1, 10);
    fx_end(&f);
    (void)state;
}

/* Random bytes for the tag fail: an error, and the next append makes a new group. */
static void test_no_random(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    fx_start(&f, false);
    fx_open(&f);
    faults_install(NULL);
    faults_count_only(OS_CALL_random, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    kit_batch_make(&kb, spec(1, 1, 1));
    assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), ERR_IO);
    kit_batch_free(&kb);
    assert_int_equal(faults_fired(), 1);
    faults_uninstall();
    assert_false(journal_pending(f.j));
    assert_false(fx_status(&f).poisoned);
    fx_put(&f, 3, 1, 1);
    fx_end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_space_in_write),
        cmocka_unit_test(test_no_space_after_short_write),
        cmocka_unit_test(test_undo_fails),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_large_batch_without_space),
        cmocka_unit_test(test_remnant_without_space),
        cmocka_unit_test(test_failed_sync),
        cmocka_unit_test(test_failed_write),
        cmocka_unit_test(test_short_writes),
        cmocka_unit_test(test_failed_sync_of_manifest),
        cmocka_unit_test(test_unsynced_manifest),
        cmocka_unit_test(test_open_fails_anywhere),
        cmocka_unit_test(test_lookup_fails),
        cmocka_unit_test(test_no_random),
    };
    return cmocka_run_group_tests_name("faults", tests, NULL, NULL);
}
