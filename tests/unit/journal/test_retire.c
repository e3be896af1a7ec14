/* Retirement in the journal: the table, the writer stage, undoing, and what a start reads again. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/internal.h"
#include "journal/lifecycle.h"
#include "journal/line.h"

/* ---- the table ---- */

static void test_table(void **state)
{
    (void)state;
    struct lifecycle *lc = lifecycle_new();
    char name[32];
    assert_non_null(lc);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 500; i++) {
            int n = snprintf(name, sizeof name, "source-%u", i);
            struct slice s = slice_of(name, (size_t)n);
            struct lifecycle_entry en = {.final_frontier = {{(uint8_t)i, (uint8_t)(i >> 8)}}};
            const struct lifecycle_entry *found = lifecycle_find(lc, s);
            if (round == 2 && i < 100) {
                assert_non_null(found);
                assert_int_equal(found->final_frontier.byte[0], (uint8_t)i);
                continue;
            }
            assert_null(found);
            assert_int_equal(lifecycle_reserve(lc, SLICE("another, longer name")), 0);
            assert_int_equal(lifecycle_reserve(lc, s), 0);
            lifecycle_add(lc, s, &en);
            assert_non_null(lifecycle_find(lc, s));
            if (round == 1 && i == 99) {
                lifecycle_keep(lc);
            }
        }
        lifecycle_undo(lc);
        lifecycle_undo(lc);
        assert_int_equal(lifecycle_count(lc), round == 0 ? 0 : 100);
    }
    assert_null(lifecycle_find(lc, SLICE("")));
    lifecycle_free(lc);
    lifecycle_free(NULL);
}

/* ---- the writer stage ---- */

static struct journal_result retire(struct fx *f, const char *source)
{
    struct journal_result r;
    int code = journal_retire(f->j, slice_cstr(source), &r, &f->e);
    if (code != 0) {
        fail_msg("retire: %s: %s", err_name(code), f->e.text);
    }
    return r;
}

static void test_staged_repeated_and_kept(void **state)
{
    struct fx f;
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    assert_int_equal(retire(&f, "\"src-0\"").outcome, JOURNAL_SOURCE_UNKNOWN);
    assert_false(journal_pending(f.j));
    fx_put(&f, 2, 2, 10);
    fx_stage(&f, 4, 1, 10);
    assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
    struct journal_result r = retire(&f, "\"src-0\"");
    assert_int_equal(r.outcome, JOURNAL_ALREADY_RETIRED);
    assert_memory_equal(&r.final_frontier, &kit_find(&f.ledger, 4)->last_id, 16);
    fx_stage(&f, 6, 1, 10); /* refused, which the ledger holds against the retirement */
    fx_stage(&f, 3, 1, 10);
    fx_commit(&f);
    fx_check(&f);
    assert_int_equal(kit_find(&f.ledger, 6)->state, KIT_ABSENT);
    fx_close(&f);
    fx_verify(&f, true);
    fx_open(&f);
    struct journal_result again = retire(&f, "\"src-0\"");
    assert_int_equal(again.outcome, JOURNAL_ALREADY_RETIRED);
    assert_memory_equal(&again.final_frontier, &r.final_frontier, 16);
    assert_memory_equal(&again.retirement_event_id, &r.retirement_event_id, 16);
    fx_check_opened(&f);
    fx_end(&f);
}

/* A group that fails takes its retirements along: for want of space, so that the source goes on. */
static void test_undone_with_its_group(void **state)
{
    struct fx f;
    static const struct fault full = {
        .kind = FAULT_ERROR, .error = ENOSPC, .call = OS_CALL_pwrite, .at = 1};
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 2, 1, 10);
    assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
    model_fault_arm(f.m, &full);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_NO_SPACE);
    model_fault_arm(f.m, NULL);
    assert_int_equal(kit_find(&f.ledger, KIT_RETIREMENT)->state, KIT_ABSENT);
    model_clock_advance(f.m, UINT64_C(2000000000));
    fx_put(&f, 4, 1, 10);
    struct journal_result r = retire(&f, "\"src-0\"");
    assert_int_equal(r.outcome, JOURNAL_RETIRED);
    assert_memory_equal(&r.final_frontier, &kit_find(&f.ledger, 4)->last_id, 16);
    fx_end(&f);
}

static void test_poisoned(void **state)
{
    struct fx f;
    struct journal_result r;
    static const struct fault broken = {
        .kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_fdatasync, .at = 1};
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 2, 1, 10);
    assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
    model_fault_arm(f.m, &broken);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
    model_fault_arm(f.m, NULL);
    assert_int_equal(journal_retire(f.j, SLICE("\"src-0\""), &r, &f.e), ERR_WRITER_POISONED);
    fx_kill(&f);
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
}

/* A full group is committed first, and the retirement then names what that brought. */
static void test_full_group(void **state)
{
    struct fx f;
    (void)state;
    fx_start(&f, false);
    f.options.group_bytes = 4096;
    fx_open(&f);
    fx_stage(&f, 2, 1, 3600);
    struct journal_result r;
    assert_int_equal(journal_retire(f.j, SLICE("\"src-0\""), &r, &f.e), ERR_GROUP_FULL);
    assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
    fx_commit(&f);
    fx_check(&f);
    fx_end(&f);
}

/* ---- a start ---- */

/* Sources of their own, one event each; half of them retired. */
static void put_source(struct fx *f, uint32_t n, bool end)
{
    char source[32], id[32];
    struct journal_event ev = {.stream = SLICE("\"s\""),
                               .record_key = SLICE("\"k\""),
                               .kind = SLICE("\"u\""),
                               .payload = SLICE("1")};
    struct journal_result r;
    (void)snprintf(source, sizeof source, "\"many-%u\"", n);
    (void)snprintf(id, sizeof id, "\"only-%u\"", n);
    sha256_once(ev.payload, ev.content_hash);
    struct journal_batch b = {
        .source = slice_cstr(source), .batch_id = slice_cstr(id), .events = &ev, .count = 1};
    memset(b.digest, 7, sizeof b.digest); /* not looked at here: no start scans these lines */
    assert_int_equal(journal_append(f->j, &b, &r, &f->e), 0);
    assert_int_equal(r.outcome, JOURNAL_COMMITTED);
    if (end) {
        assert_int_equal(retire(f, source).outcome, JOURNAL_RETIRED);
    }
    assert_int_equal(journal_commit(f->j, &f->e), 0);
}

/* A start reads the retirements of closed generations by their summaries: a single one, and many in
 * one generation; all of them, and nothing that is none. */
static void test_read_from_closed_generations(void **state)
{
    struct fx f;
    struct kit_batch fill;
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    static const uint32_t per_generation[] = {1, 7, 0, 2, 1};
    uint32_t n = 0;
    for (uint32_t g = 0; g < 5; g++) {
        for (uint32_t i = 0; i < per_generation[g]; i++) {
            put_source(&f, n++, true);
            put_source(&f, 1000 + n, false);
        }
        struct journal_result r;
        kit_batch_make(&fill, (struct kit_spec){100 + g, 1, 45000});
        assert_int_equal(journal_append(f.j, &fill.batch, &r, &f.e), 0);
        assert_int_equal(journal_commit(f.j, &f.e), 0);
        kit_batch_free(&fill);
    }
    assert_true(fx_status(&f).generations >= 5);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < n; i++) {
            char source[32];
            (void)snprintf(source, sizeof source, "\"many-%u\"", i);
            assert_int_equal(retire(&f, source).outcome, JOURNAL_ALREADY_RETIRED);
        }
        assert_int_equal(lifecycle_count(f.j->lifecycle), n);
        if (round == 0) {
            /* Everything is in closed generations, so no start has to believe these digests. */
            kit_batch_make(&fill, (struct kit_spec){200, 1, 60000});
            struct journal_result r;
            assert_int_equal(journal_append(f.j, &fill.batch, &r, &f.e), 0);
            assert_int_equal(journal_commit(f.j, &f.e), 0);
            kit_batch_free(&fill);
            fx_close(&f);
            fx_open(&f);
        }
    }
    fx_end(&f);
}

/* The stored retirement is proven and yet none: nobody can say who is retired. */
static void test_unsupported(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    struct journal *j;
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    kit_batch_make(&kb, (struct kit_spec){1, 1, 5});
    kb.batch.source = SLICE("\"system\"");
    kb.events[0].stream = SLICE("\"" LIFECYCLE_STREAM "\"");
    char hex[SHA256_HEX_LEN];
    struct chain_digest d;
    struct buf scratch = {0};
    chain_digest_start(&d);
    hex_encode(hex, kb.events[0].content_hash, SHA256_LEN);
    assert_true(chain_digest_event(&d, &scratch, slice_of(hex, sizeof hex), kb.events[0].kind,
                                   kb.events[0].occurred_at, kb.events[0].record_key,
                                   kb.events[0].stream));
    chain_digest_end(&d, kb.batch.source, kb.batch.digest);
    buf_free(&scratch);
    assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), 0);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    kit_batch_free(&kb);
    fx_close(&f);
    size_t n;
    char *before = fx_slurp(f.layout.tail, &n);
    assert_int_equal(journal_open(f.dir, &f.options, &j, &f.e), ERR_UNSUPPORTED);
    assert_non_null(strstr(f.e.text, "not the retirement of a source"));
    size_t after_n;
    char *after = fx_slurp(f.layout.tail, &after_n);
    assert_int_equal(n, after_n);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
    fx_end(&f);
}

/* Damage in a generation that has retirements, with a whole index: it is found at the start, and
 * what is served ends with the frontier that is told. */
static void test_damaged_retirement(void **state)
{
    for (unsigned threads = 0; threads < 2; threads++) {
        struct fx f;
        fx_start(&f, threads == 1);
        f.options.threads = threads == 1;
        fx_open(&f);
        for (uint32_t n = 1; n <= 60; n++) {
            fx_put(&f, n, 1, 9000);
            if (n == 7) {
                assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
                fx_commit(&f);
            }
        }
        assert_true(fx_status(&f).generations >= 3);
        fx_close(&f);
        struct layout_generation *rows;
        uint32_t count;
        char path[LAYOUT_PATH_MAX];
        assert_int_equal(layout_list_pending(&f.layout, &rows, &count, &f.e), 0);
        layout_pending_path(&f.layout, &rows[1].first_id, &rows[1].last_id, path);
        free(rows);
        size_t n;
        char *text = fx_slurp(path, &n);
        char *at = memmem(text, n, "source_retired", 14);
        assert_non_null(at);
        fx_patch(path, (uint64_t)(at - text) + 3, "X", 1);
        free(text);
        fx_open(&f);
        struct journal_status st = fx_status(&f);
        assert_true(st.damaged);
        assert_int_equal(st.generations, 2);
        assert_true(st.bytes > 0);
        struct journal_reader *r;
        struct line l;
        int code;
        assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &r, &f.e), 0);
        while ((code = journal_reader_next(r, &l, 0, &f.e)) == 1) {
        }
        assert_int_equal(code, ERR_CORRUPT);
        journal_reader_close(r);
        struct uuid last = st.frontier.last_id;
        assert_int_equal(journal_reader_open(f.j, &last, NULL, NULL, NULL, &r, &f.e), 0);
        assert_int_equal(journal_reader_next(r, &l, 0, &f.e), 0);
        journal_reader_close(r);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
        fx_end(&f);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_staged_repeated_and_kept),
        cmocka_unit_test(test_undone_with_its_group),
        cmocka_unit_test(test_poisoned),
        cmocka_unit_test(test_full_group),
        cmocka_unit_test(test_read_from_closed_generations),
        cmocka_unit_test(test_damaged_retirement),
        cmocka_unit_test(test_unsupported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
