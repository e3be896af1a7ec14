/* native_parse: what is taken, what each rule refuses and how it says so: index, member, reason
 * (spec/capture-delivery.md, decisions; cases C13, C14, C16). */
#include "tests/unit/door/events_kit.h"

#define UUID       "2ed6657d-e927-568b-95e1-2665a8aea6a2"
#define NIL        "00000000-0000-0000-0000-000000000000"
#define ONE(event) "{\"events\":[" event "]}"
#define WITH(more) ONE("{\"event\":\"x\"," more "}")

static int setup(void **state)
{
    return setup_with(state, native_parse, CAPTURE_NATIVE);
}

static const struct queue_event *nth(const struct fixture *f, size_t i)
{
    assert_true(i < f->b.count);
    assert_int_equal(f->b.event[i].index, i);
    assert_int_equal(f->b.event[i].outcome, CAPTURE_STORED);
    return &f->b.event[i].ev;
}

static void test_every_member(void **state)
{
    struct fixture *f = *state;
    static const char event[] =
        "{\"event\":\"invoice "
        "paid\",\"type\":\"track\",\"distinct_id\":\"d\",\"anonymous_id\":\"a\","
        "\"session_id\":\"s\",\"message_id\":\"m\",\"uuid\":\"2ED6657D-e927-568b-95e1-"
        "2665a8aea6a2\","
        "\"timestamp\":\"2026-11-30T12:30:00.123456+02:00\",\"properties\":{\"a\":1,\"a\":"
        "\"\\ud800\"},"
        "\"context\":{\"n\":123456789012345678901234567890}}";
    struct buf body = {0};
    buf_printf(&body, " {\"events\" : [ %s , {\"event\":\"y\"}], \"source\":\"bil_l.ing-1\"}",
               event);
    expect_code(f, "", buf_slice(&body), 0, "");
    assert_int_equal(f->b.count, 2);
    assert_false(f->b.single);
    assert_false(f->b.has_bad_index);
    const struct queue_event *q = nth(f, 0);
    char uuid[UUID_TEXT_LEN];
    uuid_text(uuid, &q->uuid);
    assert_memory_equal(uuid, UUID, UUID_TEXT_LEN);
    assert_text(q->text, event);
    assert_text(q->event, "invoice paid");
    assert_text(q->type, "track");
    assert_text(q->distinct_id, "d");
    assert_text(q->anonymous_id, "a");
    assert_text(q->session_id, "s");
    assert_text(q->message_id, "m");
    assert_text(q->source, "bil_l.ing-1");
    assert_text(q->envelope, "");
    assert_text(q->time_note, "");
    assert_true(q->has_timestamp_sent);
    assert_false(q->has_sent_at);
    assert_int_equal(q->timestamp_us, us_of("2026-11-30T10:30:00.123456Z"));
    assert_int_equal(q->timestamp_sent_us, q->timestamp_us);
    q = nth(f, 1);
    assert_text(q->text, "{\"event\":\"y\"}");
    assert_text(q->type, "native");
    assert_text(q->source, "bil_l.ing-1");
    assert_text(q->distinct_id, "");
    assert_true(uuid_is_zero(&q->uuid));
    assert_false(q->has_timestamp_sent);
    assert_int_equal(q->timestamp_us, NOW_MS * 1000);
    buf_free(&body);
    /* without a source it is the key's name (finish.c) */
    expect_code(f, "", SLICE(ONE("{\"event\":\"x\"}")), 0, "");
    assert_int_equal(nth(f, 0)->source.len, 0);
}

static void test_types(void **state)
{
    struct fixture *f = *state;
    static const char *const types[] = {"native", "capture", "track", "identify",
                                        "page",   "screen",  "group", "alias"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct buf body = {0};
        buf_printf(&body, WITH("\"type\":\"%s\""), types[i]);
        expect_code(f, "", buf_slice(&body), 0, "");
        assert_text(nth(f, 0)->type, types[i]);
        buf_free(&body);
    }
}

/* Escapes in names and texts are what they stand for. */
static void test_escapes(void **state)
{
    struct fixture *f = *state;
    expect_code(f, "",
                SLICE("{\"event\\u0073\":[{\"\\u0065vent\":\"\\u0078\\n\\ud83d\\ude00\"}],"
                      "\"source\":\"\\u0061\"}"),
                0, "");
    assert_text(nth(f, 0)->event, "x\n\xf0\x9f\x98\x80");
    assert_text(nth(f, 0)->source, "a");
}

static void test_refused_bodies(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body, *says;
    } cases[] = {
        {"[]", "the body must be an object"},
        {"\"x\"", "the body must be an object"},
        {"{}", "events must be an array"},
        {"{\"events\":null}", "events must be an array"},
        {"{\"events\":{}}", "events must be an array"},
        {"{\"events\":[]}", "events must not be empty"},
        {"{\"batch\":[]}", "the body has the unknown member \"batch\""},
        {"{\"events\":[{\"event\":\"x\"}],\"Source\":\"a\"}", "the unknown member \"Source\""},
        {"{\"events\":[],\"events\":[{\"event\":\"x\"}]}", "the repeated member \"events\""},
        {"{\"\\u0000\xff\\\"\":1}", "the unknown member \"?u0000???\""},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":null}", "source must be a string of 1 to 64"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":7}", "source must be a string"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":\"\"}", "source must be a string"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":\"a b\"}", "source must be a string"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":\"\\u0000\"}", "source must be a string"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":\"\xc3\xbc\"}", "source must be a string"},
        {"{\"events\":[{\"event\":\"x\"}],\"source\":"
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
         "source must be a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_code(f, "", slice_cstr(cases[i].body), ERR_INVALID_REQUEST, cases[i].says);
        assert_false(f->b.has_bad_index);
    }
}

static const struct {
    const char *event, *says;
} bad_events[] = {
    {"7", "must be an object"},
    {"null", "must be an object"},
    {"[]", "must be an object"},
    {"{}", ".event is missing"},
    {"{\"event\":null}", ".event must be a string"},
    {"{\"event\":7}", ".event must be a string"},
    {"{\"event\":\"\"}", ".event must have 1 to 256 bytes"},
    {"{\"event\":\"a\\ud800\"}", ".event holds half of a surrogate pair"},
    {"{\"event\":\"a\xff\"}", ".event is no UTF-8"},
    {"{\"event\":\"a\\u0000\"}", ".event holds a NUL"},
    {"{\"event\":\"a\tb\"}", ".event holds a NUL or a control character that is not escaped"},
    {"{\"event\":\"x\",\"event\":\"x\"}", " has the repeated member \"event\""},
    {"{\"event\":\"x\",\"userId\":\"u\"}", " has the unknown member \"userId\""},
    {"{\"event\":\"x\",\"a very long name that would fill the whole text\":1}",
     " has the unknown member \"a very long name that would fill\""},
    {"{\"event\":\"x\",\"\":1}", " has the unknown member \"\""},
    {"{\"event\":\"x\",\"type\":\"Track\"}", ".type must be native, capture"},
    {"{\"event\":\"x\",\"type\":\"\"}", ".type must have 1 to 256 bytes"},
    {"{\"event\":\"x\",\"type\":1}", ".type must be a string"},
    {"{\"event\":\"x\",\"distinct_id\":5}", ".distinct_id must be a string"},
    {"{\"event\":\"x\",\"distinct_id\":null}", ".distinct_id must be a string"},
    {"{\"event\":\"x\",\"distinct_id\":\"\"}", ".distinct_id must have 1"},
    {"{\"event\":\"x\",\"anonymous_id\":[]}", ".anonymous_id must be a string"},
    {"{\"event\":\"x\",\"session_id\":1}", ".session_id must be a string"},
    {"{\"event\":\"x\",\"message_id\":1}", ".message_id must be a string"},
    {"{\"event\":\"x\",\"message_id\":\"\"}", ".message_id must have 1"},
    {"{\"event\":\"x\",\"message_id\":\"" NIL "\"}", ".message_id must not be the nil UUID"},
    {"{\"event\":\"x\",\"uuid\":\"\"}", ".uuid must have 1"},
    {"{\"event\":\"x\",\"uuid\":\"x\"}", ".uuid must be a UUID"},
    {"{\"event\":\"x\",\"uuid\":\"{" UUID "}\"}", ".uuid must be a UUID"},
    {"{\"event\":\"x\",\"uuid\":\"" NIL "\"}", ".uuid must be a UUID, and not the nil one"},
    {"{\"event\":\"x\",\"uuid\":5}", ".uuid must be a string"},
    {"{\"event\":\"x\",\"timestamp\":1796040000}", ".timestamp must be a string"},
    {"{\"event\":\"x\",\"timestamp\":\"2026-11-30\"}", ".timestamp must be a time like"},
    {"{\"event\":\"x\",\"timestamp\":\"2026-11-30T12:00:00\"}", ".timestamp must be a time like"},
    {"{\"event\":\"x\",\"timestamp\":\"2026-02-30T12:00:00Z\"}", ".timestamp must be a time like"},
    {"{\"event\":\"x\",\"timestamp\":\"1899-12-31T23:59:59Z\"}", "of the years 1900 to 2299"},
    {"{\"event\":\"x\",\"timestamp\":\"2300-01-01T00:00:00Z\"}", "of the years 1900 to 2299"},
    {"{\"event\":\"x\",\"properties\":null}", ".properties must be an object"},
    {"{\"event\":\"x\",\"properties\":[]}", ".properties must be an object"},
    {"{\"event\":\"x\",\"context\":\"x\"}", ".context must be an object"},
};

/* At every place of a request: it is the index and the place of that one event. */
static void test_refused_events(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    char place[32];
    for (size_t i = 0; i < sizeof bad_events / sizeof *bad_events; i++) {
        for (unsigned index = 0; index < 3; index++) {
            buf_clear(&body);
            buf_put_cstr(&body, "{\"source\":\"s\",\"events\":[");
            for (unsigned k = 0; k < 3; k++) {
                buf_put_cstr(&body, k == 0 ? "" : ",");
                buf_put_cstr(&body, k == index ? bad_events[i].event : "{\"event\":\"x\"}");
            }
            buf_put_cstr(&body, "]}");
            expect_code(f, "", buf_slice(&body), ERR_INVALID_EVENT, bad_events[i].says);
            (void)snprintf(place, sizeof place, "events[%u]%c", index,
                           bad_events[i].says[0] == '.' ? '.' : ' ');
            if (bad_events[i].says[0] != 'o') {
                assert_memory_equal(f->e.text, place, strlen(place));
            }
            assert_true(f->b.has_bad_index);
            assert_int_equal(f->b.bad_index, index);
        }
    }
    buf_free(&body);
}

static void test_lengths(void **state)
{
    struct fixture *f = *state;
    static const char *const members[] = {"event", "distinct_id", "anonymous_id", "session_id",
                                          "message_id"};
    struct buf body = {0};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        for (int n = 254; n <= 258; n += 2) {
            buf_clear(&body);
            buf_put_cstr(&body, i == 0 ? "{\"events\":[{\"" : "{\"events\":[{\"event\":\"x\",\"");
            buf_put_cstr(&body, members[i]);
            buf_put_cstr(&body, "\":\"");
            for (int k = 0; k < n; k += 2) {
                buf_put_cstr(&body, k % 4 == 0 ? "\xc3\xbc" : "\\u00fc");
            }
            buf_put_cstr(&body, "\"}]}");
            expect_code(f, "", buf_slice(&body), n <= 256 ? 0 : ERR_INVALID_EVENT,
                        "must have 1 to 256 bytes");
        }
    }
    buf_free(&body);
}

static void test_sizes(void **state)
{
    struct fixture *f = *state;
    f->c.options.event_bytes_max = sizeof "{\"event\":\"x\"}" - 1;
    expect_code(f, "", SLICE(ONE("{\"event\":\"x\"}")), 0, "");
    expect_code(f, "", SLICE("{\"events\":[{\"event\":\"x\"},{\"event\":\"xx\"}]}"),
                ERR_BODY_TOO_LARGE, "events[1] has 14 bytes, more than 13");
    assert_true(f->b.has_bad_index);
    assert_int_equal(f->b.bad_index, 1);
    f->c.options.batch_events_max = 1;
    expect_code(f, "", SLICE("{\"events\":[{\"event\":\"x\"},{\"event\":\"x\"}]}"),
                ERR_TOO_MANY_EVENTS, "more than 1 events");
}

static void test_times(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {{"2026-11-30T12:00:00Z", ""},
                                           {"1900-01-01T00:00:00Z", ""},
                                           {"2299-12-31T23:59:59.999999Z", "future"},
                                           {"2026-11-30T14:00:00+01:00", "future"},
                                           {"1969-12-31T23:59:59.5-00:30", ""}};
    struct buf body = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&body);
        buf_printf(&body, WITH("\"timestamp\":\"%s\""), cases[i][0]);
        expect_code(f, "", buf_slice(&body), 0, "");
        assert_int_equal(nth(f, 0)->timestamp_us, us_of(cases[i][0]));
        assert_text(nth(f, 0)->time_note, cases[i][1]);
    }
    buf_free(&body);
}

static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    struct slice json =
        SLICE("{\"source\":\"\\u0061\",\"events\":[{\"event\":\"\\u0078\",\"type\":\"\\u0070age\","
              "\"distinct_id\":\"\\u0064\",\"anonymous_id\":\"\\u0064\",\"session_id\":\"\\u0064\","
              "\"message_id\":\"\\u0064\",\"uuid\":\"\\u0032ed6657d-e927-568b-95e1-2665a8aea6a2\","
              "\"timestamp\":\"\\u0032026-11-30T12:00:00Z\"}]}");
    expect_code(f, "", json, 0, "");
    size_t needed = f->b.arena.used_bytes;
    assert_true(needed > 100);
    for (size_t n = 1; n <= needed; n++) {
        forget(f);
        f->b = (struct capture_batch){.c = &f->c, .received_ms = NOW_MS};
        arena_init(&f->b.arena, n);
        f->e = (struct err){0};
        int r = native_parse(&f->b, json, &f->e);
        assert_int_equal(r, n < needed ? ERR_NO_MEMORY : 0);
        assert_int_equal(f->e.code, r);
        assert_false(f->b.has_bad_index);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_every_member),   TEST(test_types),          TEST(test_escapes),
        TEST(test_refused_bodies), TEST(test_refused_events), TEST(test_lengths),
        TEST(test_sizes),          TEST(test_times),          TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
