/* Append and commit: receipts, duplicates, conflicts, preconditions, groups, generations,
 * reopening. On the model disk; the life of a journal once more on the kernel. */
#include "tests/unit/journal/journal_fixture.h"

#include "base/timefmt.h"
#include "journal/event_id.h"

static void test_life(void **state)
{
    for (int kernel = 0; kernel < 2; kernel++) {
        struct fx f;
        struct journal_frontier front;
        fx_start(&f, kernel == 1);
        f.options.threads = kernel == 1;
        fx_open(&f);
        journal_get_frontier(f.j, &front);
        assert_true(front.empty);
        assert_int_equal(front.events, 0);
        assert_int_equal(journal_commit(f.j, &f.e), 0);
        fx_put(&f, 1, 1, 10);
        fx_put(&f, 2, 3, 100);
        fx_stage(&f, 3, 1, 5);
        assert_true(journal_pending(f.j));
        fx_stage(&f, 4, 2, 700);
        journal_get_frontier(f.j, &front);
        assert_int_equal(front.events, 4); /* nothing staged is published */
        fx_commit(&f);
        assert_false(journal_pending(f.j));
        fx_check(&f);
        fx_verify(&f, false);
        fx_close(&f);
        fx_verify(&f, true);
        fx_open(&f);
        journal_get_frontier(f.j, &front);
        assert_int_equal(front.events, 7);
        fx_check_opened(&f);
        fx_put(&f, 5, 1, 1);
        fx_check(&f);
        fx_close(&f);
        fx_verify(&f, true);
        fx_end(&f);
    }
    (void)state;
}

/* A clean close leaves lines and nothing else. */
static void test_close_leaves_no_padding(void **state)
{
    struct fx f;
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    assert_int_equal(fx_size(f.layout.tail), FX_GENERATION);
    assert_true(fx_exists(f.layout.spare));
    fx_put(&f, 1, 2, 50);
    fx_close(&f);
    char *tail = fx_slurp(f.layout.tail, &n);
    assert_true(n > 0);
    assert_int_equal(tail[n - 1], '\n');
    assert_null(memchr(tail, '\0', n));
    free(tail);
    assert_false(fx_exists(f.layout.spare));
    /* and it stays so: with its padding back, the last group could pass for a torn one */
    struct model_choice none = {.how = MODEL_CUT_NONE};
    fx_crash(&f, &none);
    assert_int_equal(fx_size(f.layout.tail), n);
    assert_false(fx_exists(f.layout.spare));
    fx_open(&f);
    fx_close(&f);
    assert_int_equal(fx_size(f.layout.tail), n);
    fx_end(&f);
    (void)state;
}

/* Ids as event_id.h says: one group number a group, indexes from 0, one tag. */
static void test_ids(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 2, 5);
    fx_stage(&f, 2, 1, 5);
    fx_stage(&f, 3, 3, 5);
    fx_commit(&f);
    fx_close(&f);
    fx_open(&f);
    fx_put(&f, 4, 1, 5);
    struct event_id_parts a = event_id_split(&kit_find(&f.ledger, 1)->first_id);
    struct event_id_parts b = event_id_split(&kit_find(&f.ledger, 1)->last_id);
    struct event_id_parts c = event_id_split(&kit_find(&f.ledger, 2)->first_id);
    struct event_id_parts d = event_id_split(&kit_find(&f.ledger, 3)->last_id);
    struct event_id_parts g = event_id_split(&kit_find(&f.ledger, 4)->first_id);
    assert_int_equal(a.group, 0);
    assert_int_equal(a.index, 0);
    assert_int_equal(b.index, 1);
    assert_int_equal(b.ms, a.ms);
    assert_int_equal(c.group, 1);
    assert_int_equal(c.index, 0);
    assert_int_equal(d.group, 1);
    assert_int_equal(d.index, 3);
    assert_int_equal(g.group, 2);
    assert_int_equal(g.index, 0);
    assert_int_equal(a.tag, g.tag);
    fx_end(&f);
    (void)state;
}

static int append_one(struct fx *f, const struct journal_batch *b, struct journal_result *r)
{
    return journal_append(f->j, b, r, &f->e);
}

static void test_duplicates_and_conflicts(void **state)
{
    struct fx f;
    struct kit_batch a;
    struct kit_batch other;
    struct journal_result first;
    struct journal_result r;
    fx_start(&f, false);
    fx_open(&f);
    kit_batch_make(&a, (struct kit_spec){8, 3, 20});
    kit_batch_make(&other, (struct kit_spec){8, 2, 21});
    assert_memory_not_equal(a.batch.digest, other.batch.digest, SHA256_LEN);
    assert_int_equal(append_one(&f, &a.batch, &first), 0);
    assert_int_equal(first.outcome, JOURNAL_COMMITTED);
    for (int round = 0; round < 4;
         round++) { /* staged, committed, in a closed generation, reopened */
        assert_int_equal(append_one(&f, &a.batch, &r), 0);
        assert_int_equal(r.outcome, JOURNAL_DUPLICATE);
        assert_int_equal(r.events, 3);
        assert_memory_equal(r.digest, a.batch.digest, SHA256_LEN);
        assert_int_equal(uuid_cmp(&r.first_id, &first.first_id), 0);
        assert_int_equal(uuid_cmp(&r.last_id, &first.last_id), 0);
        assert_int_equal(append_one(&f, &other.batch, &r), 0);
        assert_int_equal(r.outcome, JOURNAL_BATCH_CONFLICT);
        assert_int_equal(r.events, 3);
        assert_memory_equal(r.digest, a.batch.digest, SHA256_LEN);
        if (round == 0) {
            assert_int_equal(journal_commit(f.j, &f.e), 0);
        } else if (round == 1) {
            uint32_t n = 100;
            while (fx_status(&f).generations < 3) {
                fx_put(&f, n++, 4, 3000);
            }
        } else if (round == 2) {
            fx_close(&f);
            fx_open(&f);
        }
    }
    assert_false(journal_pending(f.j));
    /* The same batch_id of another source is another batch. */
    other.batch.source = SLICE("\"src-9\"");
    assert_int_equal(append_one(&f, &other.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_COMMITTED);
    kit_batch_free(&a);
    kit_batch_free(&other);
    fx_end(&f);
    (void)state;
}

/* Duplicates whose lines are longer than the first piece that a look-up reads. */
static void test_duplicate_of_long_lines(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_stage(&f, 1, 3, 17000);
    fx_stage(&f, 1, 3, 17000);
    fx_commit(&f);
    fx_put(&f, 2, 1, 300000);
    fx_put(&f, 1, 3, 17000);
    fx_put(&f, 2, 1, 300000);
    fx_check(&f);
    fx_end(&f);
    (void)state;
}

static void precondition(struct kit_batch *kb, const char *stream, const struct uuid *expect)
{
    kb->batch.has_precondition = true;
    kb->batch.precondition_stream = slice_cstr(stream);
    kb->batch.expect_none = expect == NULL;
    if (expect != NULL) {
        kb->batch.expected_frontier = *expect;
    }
}

static void test_preconditions(void **state)
{
    struct fx f;
    struct kit_batch a;
    struct kit_batch b;
    struct journal_result r;
    struct journal_result ra;
    fx_start(&f, false);
    fx_open(&f);
    kit_batch_make(&a, (struct kit_spec){30, 1, 5}); /* source src-0, stream st-0 */
    kit_batch_make(&b, (struct kit_spec){60, 1, 5}); /* the same stream */
    precondition(&b, "\"st-0\"", &(struct uuid){{1}});
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_FRONTIER_CONFLICT);
    assert_true(r.actual_none);
    precondition(&a, "\"st-0\"", NULL);
    assert_int_equal(append_one(&f, &a.batch, &ra), 0);
    assert_int_equal(ra.outcome, JOURNAL_COMMITTED);
    /* What is staged counts already. */
    precondition(&b, "\"st-0\"", NULL);
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_FRONTIER_CONFLICT);
    assert_false(r.actual_none);
    assert_int_equal(uuid_cmp(&r.actual_frontier, &ra.last_id), 0);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    fx_close(&f);
    fx_open(&f);
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_FRONTIER_CONFLICT);
    assert_int_equal(uuid_cmp(&r.actual_frontier, &ra.last_id), 0);
    /* A duplicate is told before its expectation is looked at (L01). */
    assert_int_equal(append_one(&f, &a.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_DUPLICATE);
    precondition(&b, "\"st-0\"", &ra.last_id);
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_COMMITTED);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    /* The same stream name of another source has a frontier of its own. */
    a.batch.source = SLICE("\"src-7\"");
    precondition(&a, "\"st-0\"", NULL);
    assert_int_equal(append_one(&f, &a.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_COMMITTED);
    kit_batch_free(&a);
    kit_batch_free(&b);
    fx_end(&f);
    (void)state;
}

/* Frontiers of streams come from summaries after the generation was closed. */
static void test_precondition_across_generations(void **state)
{
    struct fx f;
    struct kit_batch b;
    struct journal_result first;
    struct journal_result r;
    fx_start(&f, false);
    fx_open(&f);
    kit_batch_make(&b, (struct kit_spec){2, 1, 5});
    b.events[0].stream = SLICE("\"lonely\"");
    assert_int_equal(append_one(&f, &b.batch, &first), 0);
    for (uint32_t n = 100; fx_status(&f).generations < 4; n++) {
        fx_put(&f, n, 5, 4000);
    }
    fx_close(&f);
    fx_open(&f);
    b.batch.batch_id = SLICE("\"next\"");
    precondition(&b, "\"lonely\"", NULL);
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_FRONTIER_CONFLICT);
    assert_int_equal(uuid_cmp(&r.actual_frontier, &first.last_id), 0);
    precondition(&b, "\"lonely\"", &first.last_id);
    assert_int_equal(append_one(&f, &b.batch, &r), 0);
    assert_int_equal(r.outcome, JOURNAL_COMMITTED);
    kit_batch_free(&b);
    fx_end(&f);
    (void)state;
}

static void test_group_full(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    uint32_t n = 1;
    int code = 0;
    fx_start(&f, false);
    f.options.group_bytes = 8192;
    fx_open(&f);
    for (; code == 0; n++) {
        assert_true(n < 100);
        kit_batch_make(&kb, (struct kit_spec){n, 1, 500});
        code = append_one(&f, &kb.batch, &r);
        kit_batch_free(&kb);
    }
    assert_int_equal(code, ERR_GROUP_FULL);
    assert_true(n > 8);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    /* A batch larger than a group is a group of its own. */
    fx_put(&f, 500, 30, 500);
    /* The generation's end closes a group too. */
    f.options.group_bytes = 0;
    fx_close(&f);
    fx_open(&f);
    code = 0;
    for (n = 200; code == 0; n++) {
        assert_true(n < 400);
        kit_batch_make(&kb, (struct kit_spec){n, 1, 1000});
        code = append_one(&f, &kb.batch, &r);
        kit_batch_free(&kb);
    }
    assert_int_equal(code, ERR_GROUP_FULL);
    assert_int_equal(fx_status(&f).generations, 1);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    fx_put(&f, 501, 1, 1000);
    assert_int_equal(fx_status(&f).generations, 2);
    fx_end(&f);
    (void)state;
}

/* A group of 65,536 events is full by count. */
static void test_group_full_by_events(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    uint32_t total = 0;
    fx_start(&f, false);
    f.options.generation_bytes = 0;
    f.options.group_bytes = 1u << 30;
    fx_open(&f);
    for (uint32_t n = 1;; n++) {
        kit_batch_make(&kb, (struct kit_spec){n, 10000, 1});
        int code = append_one(&f, &kb.batch, &r);
        kit_batch_free(&kb);
        if (code != 0) {
            assert_int_equal(code, ERR_GROUP_FULL);
            break;
        }
        total += 10000;
    }
    kit_batch_make(&kb, (struct kit_spec){100, 65536 - total, 1});
    assert_int_equal(append_one(&f, &kb.batch, &r), 0);
    kit_batch_free(&kb);
    assert_int_equal(event_id_split(&r.last_id).index, EVENT_ID_INDEX_MAX);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    fx_put(&f, 101, 1, 1);
    fx_close(&f);
    fx_verify(&f, true);
    fx_end(&f);
    (void)state;
}

static void test_big_batches(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 40, 4000); /* larger than a generation, in the first one */
    fx_put(&f, 2, 1, 10);
    fx_put(&f, 3, 40, 4000); /* rotates and grows */
    fx_put(&f, 4, 40, 4000);
    fx_put(&f, 5, 1, 10);
    fx_check(&f);
    fx_close(&f);
    fx_verify(&f, true);
    fx_open(&f);
    fx_check_opened(&f);
    fx_put(&f, 6, 40, 4000);
    fx_check(&f);
    fx_end(&f);
    (void)state;
}

/* What a staged batch borrowed may be gone before the commit (L17). */
static void test_borrowed_memory(void **state)
{
    struct fx f;
    struct kit_batch kb;
    struct journal_result r;
    struct journal_reader *reader;
    struct line l;
    fx_start(&f, false);
    fx_open(&f);
    kit_batch_make(&kb, (struct kit_spec){1, 4, 40});
    assert_int_equal(append_one(&f, &kb.batch, &r), 0);
    memset(kb.text, '#', 4 * 40);
    kit_batch_free(&kb);
    assert_int_equal(journal_commit(f.j, &f.e), 0);
    kit_batch_make(&kb, (struct kit_spec){1, 4, 40});
    assert_int_equal(journal_reader_open(f.j, NULL, NULL, NULL, NULL, &reader, &f.e), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(journal_reader_next(reader, &l, 0, &f.e), 1);
        assert_true(slice_eq(l.payload, kb.events[i].payload));
        assert_true(slice_eq(l.stream, kb.events[i].stream));
    }
    assert_int_equal(journal_reader_next(reader, &l, 0, &f.e), 0);
    journal_reader_close(reader);
    kit_batch_free(&kb);
    fx_end(&f);
    (void)state;
}

/* Close drops what is staged: it was never promised. */
static void test_close_drops_staged(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    fx_put(&f, 1, 1, 5);
    fx_stage(&f, 2, 1, 5);
    fx_close(&f);
    kit_find(&f.ledger, 2)->state = KIT_ABSENT;
    fx_verify(&f, true);
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

/* n serial commits are n syncs, each after its write and before the commit returns (L08). */
static void test_one_sync_a_group(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    size_t pending = model_pending(f.m); /* names of lesser files */
    for (uint32_t n = 1; n <= 10; n++) {
        uint64_t before = model_calls(f.m);
        fx_put(&f, n, 1, 100);
        assert_int_equal(model_calls(f.m) - before, 2); /* one pwrite, one fdatasync */
        assert_int_equal(model_pending(f.m), pending);
    }
    uint64_t before = model_calls(f.m);
    for (uint32_t n = 11; n <= 20; n++) {
        fx_stage(&f, n, 1, 100);
    }
    assert_int_equal(model_calls(f.m), before);
    fx_commit(&f);
    assert_int_equal(model_calls(f.m) - before, 2);
    fx_end(&f);
    (void)state;
}

/* What on_committed has seen: lines, and the frontier and the unsynced calls of that moment. */
struct seen {
    struct fx *f;
    struct buf lines;
    unsigned groups;
    size_t pending;
    struct journal_frontier frontier;
};

static void see(void *ctx, struct slice lines)
{
    struct seen *s = ctx;
    buf_put_slice(&s->lines, lines);
    s->groups++;
    s->pending = model_pending(s->f->m);
    journal_get_frontier(s->f->j, &s->frontier);
}

/* A group is shown once, after its sync and when readers may see it; one that fails never. */
static void test_on_committed(void **state)
{
    struct fx f;
    fx_start(&f, false);
    fx_open(&f);
    struct seen s = {.f = &f};
    size_t pending = model_pending(f.m);
    journal_on_committed(f.j, see, &s);
    for (uint32_t n = 1; n <= 30; n++) {
        fx_stage(&f, n, 2, 3000); /* over a rotation, too */
        assert_int_equal(s.groups, n - 1);
        fx_commit(&f);
        assert_int_equal(s.groups, n);
        assert_int_equal(s.pending, pending);
        assert_int_equal(s.frontier.events, 2 * n);
    }
    fx_stage(&f, 31, 1, 100);
    struct fault full = {.kind = FAULT_ERROR,
                         .error = ENOSPC,
                         .call = OS_CALL_pwrite,
                         .path = "tail.ndjson",
                         .at = 1};
    model_fault_arm(f.m, &full);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_NO_SPACE);
    model_fault_arm(f.m, NULL);
    fx_stage(&f, 32, 1, 100);
    struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_fdatasync, .at = 1};
    model_fault_arm(f.m, &eio);
    assert_int_equal(kit_commit(f.j, &f.ledger, &f.e), ERR_WRITER_POISONED);
    model_fault_arm(f.m, NULL);
    assert_int_equal(s.groups, 30);
    uint64_t lines = 0;
    for (size_t i = 0; i < s.lines.len; i++) {
        lines += s.lines.ptr[i] == '\n' ? 1 : 0;
    }
    assert_int_equal(lines, 60);
    assert_int_equal(s.lines.len, fx_status(&f).bytes);
    journal_on_committed(f.j, NULL, NULL);
    buf_free(&s.lines);
    fx_end(&f);
    (void)state;
}

static void test_locked(void **state)
{
    struct fx f;
    struct journal *second;
    for (int kernel = 0; kernel < 2; kernel++) {
        fx_start(&f, kernel == 1);
        fx_open(&f);
        fx_put(&f, 1, 1, 5);
        assert_int_equal(journal_open(f.dir, &f.options, &second, &f.e), ERR_LOCKED);
        fx_put(&f, 2, 1, 5);
        fx_close(&f);
        fx_open(&f);
        fx_check_opened(&f);
        fx_end(&f);
    }
    (void)state;
}

/* The wall clock jumps about, to 1970, to the last millisecond of the year 9999 and past it, which
 * is no clock; ids rise and observed_at never falls (L22, L55). */
static void test_L22_L55_clock(void **state)
{
    static const uint64_t base = UINT64_C(1800000000000);
    static const uint64_t clocks[] = {base,
                                      base - 3600000,
                                      base + 86400000,
                                      0,
                                      base + UINT64_C(400) * 86400000,
                                      TIMEFMT_MS_END,
                                      TIMEFMT_MS_END - 1,
                                      0,
                                      UINT64_MAX};
    struct fx f;
    uint64_t expect = 0;
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        uint64_t now = clocks[i] < TIMEFMT_MS_END ? clocks[i] : 0;
        expect = now > expect ? now : expect;
        fx_clock_set(clocks[i]);
        fx_put(&f, 10 + i, 2, 5);
        assert_int_equal(event_id_split(&kit_find(&f.ledger, 10 + i)->last_id).ms, expect);
        assert_int_equal(fx_status(&f).clock_ahead_ms, expect - now);
        fx_check(&f);
    }
    assert_int_equal(expect, TIMEFMT_MS_END - 1);
    fx_close(&f);
    fx_verify(&f, true);
    fx_open(&f);
    fx_check_opened(&f);
    fx_end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_close_leaves_no_padding),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_duplicates_and_conflicts),
        cmocka_unit_test(test_duplicate_of_long_lines),
        cmocka_unit_test(test_preconditions),
        cmocka_unit_test(test_precondition_across_generations),
        cmocka_unit_test(test_group_full),
        cmocka_unit_test(test_group_full_by_events),
        cmocka_unit_test(test_big_batches),
        cmocka_unit_test(test_borrowed_memory),
        cmocka_unit_test(test_close_drops_staged),
        cmocka_unit_test(test_one_sync_a_group),
        cmocka_unit_test(test_on_committed),
        cmocka_unit_test(test_locked),
        cmocka_unit_test(test_L22_L55_clock),
    };
    return cmocka_run_group_tests_name("append", tests, NULL, NULL);
}
