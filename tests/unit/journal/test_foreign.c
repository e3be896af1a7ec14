/* Directories of another program of the format (spec/history.md section 11): ids that are not
 * ours, tails without zeros at their end, the rule for their torn last batch; and who is taken for
 * whom. */
#include "tests/unit/journal/journal_fixture.h"

#include "base/timefmt.h"
#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/line.h"
#include "journal/origin.h"

#define OBSERVED UINT64_C(1800000000000)

/* How a program makes ids. */
enum ids {
    IDS_RANDOM,  /* unrelated bits; inside of a batch one more in the last byte */
    IDS_COUNTER, /* the time, a counter over the whole log below it */
    IDS_OUR_TAG, /* bits that could be ours: one tag, near groups, but not the next one */
    IDS_COUNT
};

static struct uuid make_id(enum ids how, uint32_t batch, uint32_t index, uint32_t before)
{
    uint64_t chance = kit_mix(batch);
    struct event_id_parts p = {.ms = OBSERVED + batch * 1000, .index = (uint16_t)index};
    if (how == IDS_RANDOM) {
        p.ms = UINT64_C(1700000000000) + batch * 77777;
        p.group = chance & EVENT_ID_GROUP_MAX;
        p.tag = (uint16_t)(chance >> 44 & EVENT_ID_TAG_MAX);
        p.index = (uint16_t)((chance >> 58) * 100 + index);
    } else if (how == IDS_COUNTER) {
        p.index = (uint16_t)(before + index);
    } else {
        p.ms += 1; /* not its observed_at */
        p.group = 1000 + batch * 3;
        p.tag = 5;
        p.index = (uint16_t)(index * 2 + 1);
    }
    return event_id_make(p);
}

/* Appends a batch as another program writes it. */
static void put_batch(struct buf *out, enum ids how, uint32_t batch, uint32_t count,
                      uint32_t before)
{
    struct kit_batch kb;
    char hex[4][SHA256_HEX_LEN];
    char id[UUID_TEXT_LEN], observed[TIMEFMT_MS_LEN + 1];
    uint8_t hash[SHA256_LEN];
    struct buf scratch = {0};
    kit_batch_make(&kb, (struct kit_spec){batch, count, 30});
    hex_encode(hex[0], kb.batch.digest, SHA256_LEN);
    timefmt_ms(observed, OBSERVED + batch * 1000);
    for (uint32_t i = 0; i < count; i++) {
        const struct journal_event *ev = &kb.events[i];
        struct uuid u = make_id(how, batch, i, before);
        uuid_text(id, &u);
        hex_encode(hex[1], ev->content_hash, SHA256_LEN);
        struct line l = {.batch_digest = slice_of(hex[0], SHA256_HEX_LEN),
                         .batch_id = kb.batch.batch_id,
                         .batch_len = count,
                         .content_hash = slice_of(hex[1], SHA256_HEX_LEN),
                         .event_id = slice_of(id, sizeof id),
                         .kind = ev->kind,
                         .observed_at = slice_of(observed, TIMEFMT_MS_LEN),
                         .occurred_at = ev->occurred_at,
                         .payload = ev->payload,
                         .record_key = ev->record_key,
                         .source = kb.batch.source,
                         .stream = ev->stream};
        struct chain_event ce = line_envelope(&l);
        assert_true(chain_event_hash(&ce, &scratch, hash));
        hex_encode(hex[2], hash, SHA256_LEN);
        l.event_hash = slice_of(hex[2], SHA256_HEX_LEN);
        line_put(out, &l);
    }
    assert_false(out->failed);
    buf_free(&scratch);
    kit_batch_free(&kb);
}

#define BATCHES 6
static const uint32_t counts[BATCHES] = {1, 3, 2, 1, 1, 3};

/* A log of six batches; ends[i] is where batch i ends. */
static void make_log(struct buf *out, enum ids how, uint64_t ends[BATCHES])
{
    uint32_t before = 1;
    for (uint32_t i = 0; i < BATCHES; i++) {
        put_batch(out, how, i, counts[i], before);
        before += counts[i];
        ends[i] = out->len;
    }
}

/* An empty journal, closed; its tail becomes the bytes. */
static void start_with(struct fx *f, const void *p, size_t n)
{
    fx_start(f, false);
    fx_open(f);
    fx_close(f);
    fx_spill(f->layout.tail, p, n);
}

static uint64_t events_of(uint32_t batches)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < batches; i++) {
        n += counts[i];
    }
    return n;
}

static void expect_verify(struct fx *f, bool ok, bool remnants, uint64_t events)
{
    struct verify_report rep;
    assert_int_equal(verify_journal(f->dir, NULL, NULL, &rep, &f->e), 0);
    assert_int_equal(rep.ok, ok);
    assert_int_equal(rep.remnants.len > 0, remnants);
    assert_int_equal(rep.events_checked, events);
    verify_report_free(&rep);
}

/* Whatever its ids look like, a log opens, is whole, and takes appends behind it; so does what then
 * is there of both programs. */
static void test_opens_and_goes_on(void **state)
{
    (void)state;
    for (enum ids how = 0; how < IDS_COUNT; how++) {
        struct fx f;
        struct buf log = {0};
        uint64_t ends[BATCHES];
        make_log(&log, how, ends);
        start_with(&f, log.ptr, log.len);
        expect_verify(&f, true, false, events_of(BATCHES));
        fx_open(&f);
        assert_false(fx_status(&f).poisoned);
        struct uuid last = fx_status(&f).frontier.last_id;
        for (uint32_t round = 0; round < 3; round++) {
            struct kit_batch kb;
            struct journal_result r;
            kit_batch_make(&kb, (struct kit_spec){0, counts[0], 30});
            assert_int_equal(journal_append(f.j, &kb.batch, &r, &f.e), 0);
            assert_int_equal(r.outcome, JOURNAL_DUPLICATE);
            kit_batch_free(&kb);
            for (uint32_t i = 0; i < 12; i++) { /* through a rotation */
                fx_put(&f, 100 + round * 20 + i, 2, 2000);
            }
            assert_true(uuid_cmp(&kit_find(&f.ledger, 100)->first_id, &last) > 0);
            fx_close(&f);
            expect_verify(&f, true, false, events_of(BATCHES) + (round + 1) * 24);
            fx_open(&f);
        }
        fx_end(&f);
        buf_free(&log);
    }
}

/* Cut at every byte of the last batch: what is left of it is a remnant, set aside; all before it is
 * there. */
static void test_torn_last_batch(void **state)
{
    (void)state;
    for (enum ids how = 0; how < IDS_COUNT; how++) {
        struct buf log = {0};
        uint64_t ends[BATCHES];
        make_log(&log, how, ends);
        for (uint64_t cut = ends[BATCHES - 2] + 1; cut < log.len; cut += cut % 97 == 0 ? 1 : 13) {
            struct fx f;
            start_with(&f, log.ptr, cut);
            expect_verify(&f, true, true, events_of(BATCHES - 1));
            fx_open(&f);
            if (fx_status(&f).poisoned) {
                fail_msg("ids %d, cut at %llu: %s", (int)how, (unsigned long long)cut,
                         fx_status(&f).cause);
            }
            assert_int_equal(fx_status(&f).frontier.events, events_of(BATCHES - 1));
            fx_put(&f, 200, 1, 10);
            fx_close(&f);
            expect_verify(&f, true, false, events_of(BATCHES - 1) + 1);
            fx_end(&f);
        }
        buf_free(&log);
    }
}

/* The first batch of a log, torn: nothing is there, and that is right. */
static void test_torn_first_batch(void **state)
{
    (void)state;
    for (enum ids how = 0; how < IDS_COUNT; how++) {
        struct buf log = {0};
        put_batch(&log, how, 1, 3, 1);
        for (uint64_t cut = 1; cut < log.len; cut += 41) {
            struct fx f;
            start_with(&f, log.ptr, cut);
            fx_open(&f);
            assert_false(fx_status(&f).poisoned);
            assert_true(fx_status(&f).frontier.empty);
            fx_end(&f);
        }
        buf_free(&log);
    }
}

/* The log with one changed byte: damage, and not a byte is taken away. */
static void expect_damage(const struct buf *log, uint64_t at)
{
    struct fx f;
    size_t n;
    struct verify_report rep;
    start_with(&f, log->ptr, log->len);
    assert_int_equal(verify_journal(f.dir, NULL, NULL, &rep, &f.e), 0);
    if (rep.ok) {
        fail_msg("byte %llu: verify likes it", (unsigned long long)at);
    }
    assert_int_equal(rep.remnants.len, 0);
    verify_report_free(&rep);
    fx_open(&f);
    if (!fx_status(&f).poisoned) {
        fail_msg("byte %llu: taken", (unsigned long long)at);
    }
    (void)journal_close(f.j, &f.e);
    f.j = NULL;
    char *after = fx_slurp(f.layout.tail, &n);
    assert_int_equal(n, log->len);
    assert_memory_equal(after, log->ptr, n);
    free(after);
    fx_end(&f);
}

/* A changed byte anywhere, in the last batch too, which was committed: one of three events, or of a
 * single one, where batch_len stands once. */
static void test_every_flip_is_damage(void **state)
{
    (void)state;
    for (enum ids how = 0; how < IDS_COUNT; how++) {
        for (uint32_t batches = BATCHES - 1; batches <= BATCHES; batches++) {
            struct buf log = {0};
            uint64_t ends[BATCHES];
            make_log(&log, how, ends);
            log.len = ends[batches - 1];
            for (uint64_t at = ends[1]; at < log.len; at += at < ends[batches - 2] ? 37 : 1) {
                char saved = log.ptr[at];
                log.ptr[at] = (char)(saved ^ (1 << (at * 5 + batches + how) % 8));
                expect_damage(&log, at);
                log.ptr[at] = saved;
            }
            buf_free(&log);
        }
    }
}

/* What is no beginning of one batch is damage, however it ends. */
static void test_malformed_ends(void **state)
{
    (void)state;
    struct buf log = {0};
    uint64_t ends[BATCHES];
    make_log(&log, IDS_RANDOM, ends);
    size_t line = (size_t)(strchr(log.ptr + ends[4], '\n') - log.ptr) + 1;
    const struct {
        const char *what;
        struct slice text;
    } cases[] = {
        {"text", SLICE("hello")},
        {"an empty line", SLICE("\n")},
        {"a line that is none", SLICE("{\"batch_digest\":\"x\"}\n")},
        {"a line of another batch behind one", slice_of(log.ptr, (size_t)ends[0])},
        {"a line end that is another byte", SLICE("")},
        {"a batch_len that is another number", SLICE("")},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fx f;
        struct buf text = {0};
        buf_put(&text, log.ptr, (size_t)(i == 3 || i == 4 ? line : ends[4]));
        buf_put_slice(&text, cases[i].text);
        if (i == 4) {
            text.ptr[line - 1] = 'x';
        } else if (i == 5) {
            char *len = memmem(text.ptr + ends[3], text.len - ends[3], "\"batch_len\":1,", 14);
            assert_non_null(len);
            len[12] = '9';
        }
        start_with(&f, text.ptr, text.len);
        fx_open(&f);
        if (!fx_status(&f).poisoned) {
            fail_msg("%s was taken for a torn batch", cases[i].what);
        }
        assert_int_equal(fx_status(&f).frontier.events, events_of(i == 5 ? 4 : 5));
        fx_end(&f);
        buf_free(&text);
    }
    buf_free(&log);
}

/* Ours, closed cleanly: a cut is damage, not a torn batch, also behind another program's batches;
 * and when another program went on behind ours, its torn batch is one. */
static void test_whose_end(void **state)
{
    (void)state;
    for (int foreign_first = 0; foreign_first < 2; foreign_first++) {
        struct fx f;
        struct buf log = {0};
        uint64_t ends[BATCHES];
        size_t n;
        make_log(&log, IDS_RANDOM, ends);
        start_with(&f, log.ptr, foreign_first ? (size_t)log.len : 0);
        uint64_t before = foreign_first ? events_of(BATCHES) : 0;
        fx_open(&f);
        fx_put(&f, 100, 2, 10);
        fx_put(&f, 101, 2, 10);
        fx_put(&f, 102, 2, 10);
        fx_close(&f);
        char *tail = fx_slurp(f.layout.tail, &n);
        fx_spill(f.layout.tail, tail, n - 50);
        expect_verify(&f, false, false, before + 4);
        fx_open(&f);
        assert_true(fx_status(&f).poisoned);
        assert_int_equal(fx_status(&f).frontier.events, before + 4);
        (void)journal_close(f.j, &f.e);
        f.j = NULL;
        /* The other program opens the whole one, and dies in its first batch. */
        struct buf text = {0};
        buf_put(&text, tail, n);
        struct buf more = {0};
        put_batch(&more, IDS_RANDOM, 4000000, 2, 0); /* far ahead of our ids */
        buf_put(&text, more.ptr, more.len - 10);
        fx_spill(f.layout.tail, text.ptr, text.len);
        expect_verify(&f, true, true, before + 6);
        fx_open(&f);
        assert_false(fx_status(&f).poisoned);
        assert_int_equal(fx_status(&f).frontier.events, before + 6);
        fx_end(&f);
        free(tail);
        buf_free(&text);
        buf_free(&more);
        buf_free(&log);
    }
}

/* Ours is torn right behind another program's log: cut, as ours is. */
static void test_our_first_group_torn(void **state)
{
    (void)state;
    struct buf log = {0};
    uint64_t ends[BATCHES];
    make_log(&log, IDS_RANDOM, ends);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct fx f;
        struct err e;
        start_with(&f, log.ptr, log.len);
        fx_open(&f);
        for (uint32_t n = 100; n < 105; n++) {
            fx_stage(&f, n, 2, 300);
        }
        model_die_at(f.m, model_calls(f.m) + 2); /* the write lands or not, the sync does not */
        assert_int_equal(kit_commit(f.j, &f.ledger, &e), ERR_WRITER_POISONED);
        struct model_choice choice = {.how = MODEL_CUT_RANDOM, .seed = seed};
        fx_crash(&f, &choice);
        fx_open(&f);
        if (fx_status(&f).poisoned) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, fx_status(&f).cause);
        }
        assert_true(fx_status(&f).frontier.events >= events_of(BATCHES));
        fx_end(&f);
    }
    buf_free(&log);
}

static struct uuid id_of(uint64_t ms, uint64_t group, uint16_t tag, uint16_t index)
{
    return event_id_make((struct event_id_parts){ms, group, tag, index});
}

static void test_origin(void **state)
{
    (void)state;
    struct uuid a = id_of(1000, 7, 5, 3);
    const struct {
        enum origin before;
        struct uuid id;
        bool at_ms;
        enum origin behind;
    } cases[] = {
        {ORIGIN_UNKNOWN, id_of(1000, 8, 5, 0), true, ORIGIN_OWN},
        {ORIGIN_FOREIGN, id_of(2000, 8, 5, 0), true, ORIGIN_OWN},
        {ORIGIN_OWN, id_of(2000, 8, 5, 0), false, ORIGIN_FOREIGN},
        {ORIGIN_OWN, id_of(1000, 7, 5, 4), true, ORIGIN_OWN},
        {ORIGIN_FOREIGN, id_of(1000, 7, 5, 4), true, ORIGIN_FOREIGN},
        {ORIGIN_UNKNOWN, id_of(1000, 7, 5, 9), true, ORIGIN_UNKNOWN},
        {ORIGIN_OWN, id_of(1001, 7, 5, 4), true, ORIGIN_FOREIGN},
        {ORIGIN_OWN, id_of(2000, 8, 6, 0), true, ORIGIN_FOREIGN},
        {ORIGIN_OWN, id_of(2000, 9, 5, 0), true, ORIGIN_OWN}, /* a group is missing */
        {ORIGIN_UNKNOWN, id_of(2000, 9, 5, 0), true, ORIGIN_UNKNOWN},
        {ORIGIN_OWN, id_of(2000, 6, 5, 0), true, ORIGIN_FOREIGN},
        {ORIGIN_OWN, id_of(2000, 8 + (UINT64_C(1) << 32), 5, 0), true, ORIGIN_FOREIGN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(origin_behind(cases[i].before, &a, &cases[i].id, cases[i].at_ms),
                         cases[i].behind);
    }
    struct uuid first = id_of(1000, 0, 5, 0);
    struct uuid zero = id_of(1000, 0, 0, 0);
    assert_int_equal(origin_behind(ORIGIN_UNKNOWN, NULL, &first, true), ORIGIN_OWN);
    assert_int_equal(origin_behind(ORIGIN_UNKNOWN, NULL, &first, false), ORIGIN_FOREIGN);
    assert_int_equal(origin_behind(ORIGIN_UNKNOWN, NULL, &zero, true), ORIGIN_UNKNOWN);
    assert_int_equal(origin_behind(ORIGIN_UNKNOWN, NULL, &a, true), ORIGIN_FOREIGN);
    struct uuid gap = id_of(2000, 9, 5, 0);
    assert_false(origin_follows(ORIGIN_OWN, &a, &gap));
    assert_true(origin_follows(ORIGIN_FOREIGN, &a, &gap));
    assert_true(origin_follows(ORIGIN_UNKNOWN, &a, &gap));
    assert_false(origin_follows(ORIGIN_FOREIGN, &gap, &a));
    assert_false(origin_follows(ORIGIN_FOREIGN, &a, &a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_and_goes_on),    cmocka_unit_test(test_torn_last_batch),
        cmocka_unit_test(test_torn_first_batch),     cmocka_unit_test(test_every_flip_is_damage),
        cmocka_unit_test(test_malformed_ends),       cmocka_unit_test(test_whose_end),
        cmocka_unit_test(test_our_first_group_torn), cmocka_unit_test(test_origin),
    };
    return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
