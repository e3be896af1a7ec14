/* Retirement and lineage in log order: each rule broken once, with any number of sources at a time.
 * Whole directories are in tests/blackbox/test_retire.py and test_groundhog.py. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/event_id.h"
#include "journal/lifecycle.h"
#include "journal/verify_lifecycle.h"

/* A story is a row of steps: "SOURCE": an event of it; "R SOURCE": its retirement; "M SOURCE OF": a
 * marker of SOURCE that names OF; a '!' in front: with the id before, which is the wrong one. */
struct story {
    struct buf text;
    struct uuid last['z' + 1]; /* of the sources, which are letters */
    struct uuid end['z' + 1];
    uint32_t n;
};

static struct slice keep(struct story *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static struct slice keep(struct story *s, const char *fmt, ...)
{
    size_t from = s->text.len;
    char tmp[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(tmp, sizeof tmp, fmt, ap);
    va_end(ap);
    assert_true(n > 0 && (size_t)n < sizeof tmp);
    buf_put(&s->text, tmp, (size_t)n);
    return slice_of(s->text.ptr + from, (size_t)n);
}

static int tell(struct story *s, struct verify_lifecycle *vl, const char *step)
{
    bool wrong = step[0] == '!';
    step += wrong ? 1 : 0;
    bool ends = step[0] == 'R';
    bool begins = step[0] == 'M';
    char source = ends || begins ? step[2] : step[0];
    char of = begins ? step[4] : source;
    char name[2] = {source, '\0'};
    char key[2] = {of, '\0'};
    char id[UUID_TEXT_LEN + 1] = {0};
    struct uuid u = event_id_make((struct event_id_parts){.ms = 1000, .group = s->n++, .tag = 3});
    struct uuid frontier = begins ? s->end[(int)of] : s->last[(int)of];
    frontier.byte[15] = (uint8_t)(frontier.byte[15] + (wrong ? 1 : 0));
    frontier.byte[6] = (uint8_t)(0x70 | (frontier.byte[6] & 15));
    frontier.byte[8] = (uint8_t)(0x80 | (frontier.byte[8] & 63));
    uuid_text(id, &frontier);
    struct line l = {.id = u,
                     .batch_len = 1,
                     .kind = SLICE("\"upserted\""),
                     .record_key = keep(s, "\"%s\"", key),
                     .source = ends ? SLICE("\"system\"") : keep(s, "\"%s\"", name),
                     .stream = SLICE("\"s\""),
                     .batch_id = SLICE("\"b\""),
                     .payload = SLICE("1")};
    if (ends) {
        l.stream = SLICE("\"" LIFECYCLE_STREAM "\"");
        l.kind = SLICE("\"source_retired\"");
        l.batch_id = keep(s, "\"groundhog/retire/%s/%s\"", key, id);
        l.payload = keep(s, "{\"final_frontier\":\"%s\",\"source\":\"%s\",\"v\":1}", id, key);
        s->end[(int)of] = frontier;
    } else if (begins) {
        l.stream = SLICE("\"" LIFECYCLE_LINEAGE_STREAM "\"");
        l.kind = SLICE("\"source_succeeded\"");
        l.payload =
            keep(s, "{\"predecessor_final_frontier\":\"%s\",\"predecessor_source\":\"%s\",\"v\":1}",
                 id, key);
    }
    if (!ends) {
        s->last[(int)source] = u;
    }
    return verify_lifecycle_line(vl, &l);
}

/* Tells the story in one pass, or in passes of at most max sources, as verify does. The flaw. */
static const char *hear(const char *const *steps, uint32_t max)
{
    struct verify_lifecycle vl = {.max = max};
    const char *flaw = NULL;
    bool overflow = true;
    for (uint64_t passes = 1; overflow && flaw == NULL; passes *= 2) {
        overflow = false;
        for (uint64_t p = 0; p < passes && flaw == NULL; p++) {
            struct story s = {0};
            assert_true(buf_reserve(&s.text, 64u << 10)); /* slices of it stay where they are */
            verify_lifecycle_start(&vl, (uint32_t)((p << 32) / passes),
                                   (uint32_t)((((p + 1) << 32) / passes) - 1));
            for (size_t i = 0; steps[i] != NULL; i++) {
                assert_int_equal(tell(&s, &vl, steps[i]), 0);
            }
            overflow = overflow || vl.overflow;
            flaw = vl.flaw;
            buf_free(&s.text);
        }
    }
    verify_lifecycle_free(&vl);
    return flaw;
}

static void test_stories(void **state)
{
    (void)state;
    static const struct {
        const char *steps[24];
        const char *flaw;
    } cases[] = {
        {{"a", "b", "a", "R a", "b", "M c a", "c", "R b", "M d a", "M e b", "R c", "M f c"}, NULL},
        {{"a", "R a", "b", "a"}, "behind its retirement"},
        {{"a", "R a", "b", "R a"}, "retired twice"},
        {{"b", "R a"}, "without events"},
        {{"a", "b", "a", "!R a"}, "does not name"},
        {{"a", "M b a"}, "was not retired there"},
        {{"a", "R a", "!M b a"}, "was not retired there"},
        {{"a", "b", "R a", "M b a"}, "not the first event"},
        {{"a", "R a", "M b a", "M b a"}, "not the first event"},
        {{"a", "R a", "M a a"}, "succeed itself"},
        {{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "R c", "M k c", "R k", "M l k", "c"},
         "behind its retirement"},
        {{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "M k c"}, "was not retired there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t max = 0; max < 5; max++) {
            const char *flaw = hear(cases[i].steps, max);
            bool as_it_should =
                cases[i].flaw == NULL ? flaw == NULL : flaw && strstr(flaw, cases[i].flaw);
            if (!as_it_should) {
                fail_msg("story %zu, %u at a time: %s", i, max, flaw == NULL ? "no flaw" : flaw);
            }
        }
    }
}

/* Through verify_journal, with a directory of more sources than it takes at a time. */
static void test_more_sources_than_fit(void **state)
{
    struct fx f;
    (void)state;
    fx_start(&f, false);
    fx_open(&f);
    for (uint32_t n = 1; n < 30; n++) {
        fx_put(&f, n, 1, 3000);
    }
    assert_int_equal(kit_retire(f.j, &f.ledger, 0, &f.e), 0);
    fx_commit(&f);
    fx_put(&f, 31, 1, 10);
    assert_int_equal(kit_retire(f.j, &f.ledger, 1, &f.e), 0);
    fx_commit(&f);
    fx_close(&f);
    verify_sources_max = 1;
    fx_verify(&f, true);
    verify_sources_max = VERIFY_SOURCES_MAX;
    fx_verify(&f, true);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories),
        cmocka_unit_test(test_more_sources_than_fit),
    };
    return cmocka_run_group_tests_name("verify_lifecycle", tests, NULL, NULL);
}
