/* segment_parse: batches and calls of Segment's SDKs and of those that speak like them, field by
 * field (spec/capture.md B3, spec/client-wire.md 4, cases C13, C14, C47, C50). */
#include "tests/unit/door/events_kit.h"

#define ITEM(type, more) "{\"type\":\"" type "\",\"userId\":\"u\"" more "}"
#define TRACK(more)      ITEM("track", ",\"event\":\"x\"" more)
#define BATCH(items)     "{\"batch\":[" items "]}"

static int setup(void **state)
{
    return setup_with(state, segment_parse, CAPTURE_SEGMENT);
}

static const struct queue_event *nth(const struct fixture *f, size_t i)
{
    assert_true(i < f->b.count);
    assert_int_equal(f->b.event[i].index, i);
    assert_int_equal(f->b.event[i].outcome, CAPTURE_STORED);
    return &f->b.event[i].ev;
}

static void expect_rejected(struct fixture *f, const char *item, const char *why)
{
    struct buf body = {0};
    buf_printf(&body, "{\"batch\":[" TRACK("") ",%s," TRACK("") "]}", item);
    expect_code(f, "", buf_slice(&body), 0, "");
    buf_free(&body);
    assert_int_equal(f->b.count, 3);
    (void)nth(f, 0);
    (void)nth(f, 2);
    const struct capture_event *ev = &f->b.event[1];
    if (ev->outcome != CAPTURE_REJECTED || strstr(ev->reason, why) == NULL) {
        fail_msg("%s: %s, not rejected for \"%s\"", item,
                 ev->reason == NULL ? "stored" : ev->reason, why);
    }
    assert_int_equal(ev->index, 1);
    assert_text(ev->ev.text, item);
}

/* ---- what clients send ---- */

static void test_analytics_node(void **state)
{
    struct fixture *f = *state;
    static const char item[] =
        "{\"type\":\"track\",\"event\":\"Order Completed\",\"properties\":{\"n\":1},"
        "\"userId\":\"u-1\",\"anonymousId\":\"a-1\",\"messageId\":\"node-next-1796040000000-"
        "2ed6657d-e927-568b-95e1-2665a8aea6a2\",\"timestamp\":\"2026-11-30T11:59:58.500Z\","
        "\"context\":{\"library\":{\"name\":\"@segment/analytics-node\",\"version\":\"3.1.0\"}},"
        "\"integrations\":{},\"_metadata\":{\"nodeVersion\":\"22\"}}";
    struct buf body = {0};
    buf_printf(&body, "{\"batch\":[%s],\"writeKey\":\" tmc_key \",\"sentAt\":\"" NOW "\"}", item);
    expect_code(f, "", buf_slice(&body), 0, "");
    const struct queue_event *q = nth(f, 0);
    assert_text(f->b.token, "tmc_key");
    assert_false(f->b.single);
    assert_int_equal(f->b.count, 1);
    assert_text(q->text, item);
    assert_text(q->type, "track");
    assert_text(q->event, "Order Completed");
    assert_text(q->distinct_id, "u-1");
    assert_text(q->anonymous_id, "a-1");
    assert_text(q->message_id, "node-next-1796040000000-2ed6657d-e927-568b-95e1-2665a8aea6a2");
    assert_text(q->library, "@segment/analytics-node");
    assert_text(q->library_version, "3.1.0");
    assert_text(q->session_id, "");
    assert_text(q->envelope, "");
    assert_text(q->source, "");
    assert_text(q->time_note, "");
    assert_true(uuid_is_zero(&q->uuid));
    assert_true(q->has_timestamp_sent);
    assert_int_equal(q->timestamp_us, us_of("2026-11-30T11:59:58.500Z"));
    assert_int_equal(q->timestamp_sent_us, q->timestamp_us);
    assert_true(q->has_sent_at);
    assert_int_equal(q->sent_at_ms, NOW_MS);
    buf_free(&body);
}

/* Rudder node: no key in the body, times on the events, a session that is a number; the batch's own
 * timestamp is of its sending and says nothing about the events. */
static void test_rudder_node(void **state)
{
    struct fixture *f = *state;
    expect_code(
        f, "",
        SLICE("{\"batch\":[{\"type\":\"page\",\"name\":\"Home\",\"anonymousId\":\"a\","
              "\"originalTimestamp\":\"2026-11-30T12:00:00.000+00:00\","
              "\"sentAt\":\"2026-11-30T12:00:01.000Z\",\"messageId\":\"m\","
              "\"context\":{\"sessionId\":1796040000123,\"library\":{\"name\":\"r\"}}}],"
              "\"timestamp\":\"2000-01-01T00:00:00Z\",\"sentAt\":\"2000-01-01T00:00:00Z\"}"),
        0, "");
    const struct queue_event *q = nth(f, 0);
    assert_text(f->b.token, "");
    assert_text(q->type, "page");
    assert_text(q->event, "Home");
    assert_text(q->distinct_id, "a");
    assert_text(q->session_id, "1796040000123");
    assert_text(q->library, "r");
    assert_text(q->library_version, "");
    assert_int_equal(q->timestamp_us, NOW_MS * 1000);
    assert_int_equal(q->sent_at_ms, NOW_MS + 1000);
}

/* A call's type is what its path says, whatever the body says. */
static void test_calls(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *call, *body, *event, *who;
    } cases[] = {
        {"track", "{\"event\":\"x\",\"userId\":\"u\"}", "x", "u"},
        {"track", "{\"type\":\"page\",\"event\":\"x\",\"name\":\"n\",\"userId\":\"u\"}", "x", "u"},
        {"page", "{\"name\":\"Home\",\"category\":\"c\",\"userId\":\"u\"}", "Home", "u"},
        {"page", "{\"anonymousId\":\"a\"}", "", "a"},
        {"page", "{\"name\":12,\"anonymousId\":\"a\"}", "12", "a"},
        {"page", "{\"name\":{},\"anonymousId\":\"a\"}", "", "a"},
        {"screen", "{\"name\":\"Home\",\"event\":\"no\",\"userId\":\"u\"}", "Home", "u"},
        {"identify", "{\"traits\":[],\"userId\":\"u\",\"anonymousId\":\"a\"}", "", "u"},
        {"group", "{\"groupId\":\"g\",\"userId\":\"u\",\"name\":\"no\"}", "", "u"},
        {"group", "{\"groupId\":7,\"anonymousId\":\"a\"}", "", "a"},
        {"alias", "{\"previousId\":\"p\",\"userId\":\"u\"}", "", "u"},
        {"track", "{\"event\":\"x\",\"userId\":12.50}", "x", "12.50"},
        {"track", "{\"event\":\"x\",\"userId\":\" \",\"anonymousId\":\"a\"}", "x", "a"},
        {"track", "{\"event\":\"x\",\"userId\":null,\"anonymousId\":\"a\"}", "x", "a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_code(f, cases[i].call, slice_cstr(cases[i].body), 0, "");
        const struct queue_event *q = nth(f, 0);
        assert_true(f->b.single);
        assert_int_equal(f->b.count, 1);
        assert_text(q->type, cases[i].call);
        assert_text(q->event, cases[i].event);
        assert_text(q->distinct_id, cases[i].who);
        assert_text(q->text, cases[i].body);
        assert_text(q->envelope, "");
        assert_int_equal(q->timestamp_us, NOW_MS * 1000);
        assert_false(q->has_timestamp_sent);
        assert_false(q->has_sent_at);
        assert_text(q->time_note, "");
    }
    expect_code(
        f, "track",
        SLICE("{\"event\":\"x\",\"userId\":\"u\",\"sentAt\":\"" NOW "\",\"writeKey\":\"k\"}"), 0,
        "");
    assert_text(f->b.token, "k");
    assert_int_equal(nth(f, 0)->sent_at_ms, NOW_MS);
}

/* finish.c makes a 400 of the one event's reason. */
static void test_a_bad_call(void **state)
{
    struct fixture *f = *state;
    expect_code(f, "track", SLICE("{\"userId\":\"u\",\"writeKey\":\"k\"}"), 0, "");
    assert_true(f->b.single);
    assert_int_equal(f->b.count, 1);
    assert_int_equal(f->b.event[0].outcome, CAPTURE_REJECTED);
    assert_text(f->b.token, "k");
    expect_code(f, "track", SLICE("[]"), ERR_INVALID_EVENT, "the body must be an object");
    expect_code(f, "track", SLICE("\"x\""), ERR_INVALID_EVENT, "the body must be an object");
}

/* ---- batches ---- */

static void test_the_key_may_come_last(void **state)
{
    struct fixture *f = *state;
    static const char *const bodies[] = {
        "{\"writeKey\":\"k\",\"batch\":[" TRACK("") "]}",
        "{\"batch\":[" TRACK("") "],\"writeKey\":\"k\"}",
        "{\"batch\":[" TRACK("") "],\"writeKey\":\"no\",\"write\\u004bey\":\"\\u006b\"}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        expect_code(f, "", slice_cstr(bodies[i]), 0, "");
        assert_text(f->b.token, "k");
    }
    /* what is no key is none; an item's own does not count */
    static const char *const none[] = {"{\"writeKey\":7,\"batch\":[" TRACK("") "]}",
                                       "{\"writeKey\":null,\"batch\":[" TRACK("") "]}",
                                       "{\"writeKey\":\" \",\"batch\":[" TRACK("") "]}",
                                       BATCH(TRACK(",\"writeKey\":\"k\""))};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        expect_code(f, "", slice_cstr(none[i]), 0, "");
        assert_int_equal(f->b.token.len, 0);
    }
}

static void test_no_batch(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body, *says;
    } cases[] = {
        {"{}", "batch must be an array"},
        {"{\"batch\":{}}", "batch must be an array"},
        {"{\"batch\":null}", "batch must be an array"},
        {TRACK(""), "batch must be an array"},
        {"{\"batch\":[]}", "the batch has no events"},
        {"[" TRACK("") "]", "the body must be an object"},
        {"1", "the body must be an object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_code(f, "", slice_cstr(cases[i].body), ERR_INVALID_EVENT, cases[i].says);
    }
}

/* Cases C13 and C14: the good ones stay, and each bad one says why. */
static void test_bad_items(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"7", "an event must be an object"},
        {"[]", "an event must be an object"},
        {"null", "an event must be an object"},
        {"{}", "type is missing"},
        {"{\"type\":7,\"userId\":\"u\"}", "type must be a string"},
        {ITEM("Track", ",\"event\":\"x\""), "type must be track, identify, page"},
        {ITEM("capture", ""), "type must be track"},
        {ITEM("track", ""), "event, the name of the track call, is missing"},
        {ITEM("track", ",\"event\":\"\""), "event, the name of the track call, is missing"},
        {ITEM("track", ",\"event\":null"), "event, the name of the track call, is missing"},
        {ITEM("track", ",\"event\":7"), "event must be a string"},
        {"{\"type\":\"track\",\"event\":\"x\"}", "userId or anonymousId is needed"},
        {"{\"type\":\"page\",\"userId\":\"\",\"anonymousId\":null}", "userId or anonymousId is"},
        {"{\"type\":\"page\",\"userId\":\" \\t\"}", "userId or anonymousId is needed"},
        {"{\"type\":\"page\",\"userId\":{}}", "userId must be a string or a number"},
        {"{\"type\":\"page\",\"userId\":true}", "userId must be a string or a number"},
        {"{\"type\":\"page\",\"userId\":\"u\",\"anonymousId\":[]}", "anonymousId must be a str"},
        {ITEM("group", ""), "groupId is missing"},
        {ITEM("group", ",\"groupId\":\" \""), "groupId is missing"},
        {ITEM("group", ",\"groupId\":[1]"), "groupId must be a string or a number"},
        {ITEM("alias", ""), "previousId is missing"},
        {ITEM("alias", ",\"previousId\":false"), "previousId must be a string or a number"},
        {TRACK(",\"messageId\":{}"), "messageId must be a string or a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_rejected(f, cases[i][0], cases[i][1]);
    }
}

static void test_too_many(void **state)
{
    struct fixture *f = *state;
    f->c.options.batch_events_max = 2;
    expect_code(f, "", SLICE(BATCH(TRACK("") "," TRACK(""))), 0, "");
    expect_code(f, "", SLICE(BATCH(TRACK("") "," TRACK("") "," TRACK(""))), ERR_TOO_MANY_EVENTS,
                "more than 2 events");
}

/* Case C47: neither 32 KB an event nor 2500 events a batch are limits here. */
static void test_no_limits_of_segment(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    buf_put_cstr(&body, "{\"batch\":[");
    for (int i = 0; i < 2501; i++) {
        buf_put_cstr(&body, i == 0 ? "" : ",");
        buf_put_cstr(&body, TRACK(""));
    }
    buf_put_cstr(&body, ",{\"type\":\"page\",\"userId\":\"u\",\"properties\":{\"t\":\"");
    for (int i = 0; i < 40000; i++) {
        buf_put_char(&body, 'x');
    }
    buf_put_cstr(&body, "\"}}]}");
    expect_code(f, "", buf_slice(&body), 0, "");
    assert_int_equal(f->b.count, 2502);
    assert_true(nth(f, 2501)->text.len > 40000);
    buf_free(&body);
}

/* ---- message ids ---- */

static void give_id(struct fixture *f, const char *json)
{
    struct buf body = {0};
    buf_printf(&body, "{\"event\":\"x\",\"userId\":\"u\",\"messageId\":%s}", json);
    expect_code(f, "track", buf_slice(&body), 0, "");
    buf_free(&body);
}

static void test_message_ids(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"\"m\"", "m"},
        {"\" m \"", " m "},
        {"12345678901234567890", "12345678901234567890"},
        {"\"\\u006d\\u00fc\"", "m\xc3\xbc"},
        {"\"\xef\xbf\xbd\"", "\xef\xbf\xbd"},
        {"\"2ED6657D-e927-568b-95e1-2665a8aea6a2\"", "2ED6657D-e927-568b-95e1-2665a8aea6a2"},
        {"\"\"", ""},
        {"null", ""},
        /* exact where a column is not: two such ids stay two */
        {"\"m\\ud800\"", "m\\ud800"},
        {"\"m\\ud801\"", "m\\ud801"},
        {"\"m\\u0000\"", "m\\u0000"},
        /* no text at all, or nobody's */
        {"\"m\xff\"", ""},
        {"\"00000000-0000-0000-0000-000000000000\"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        give_id(f, cases[i][0]);
        assert_text(nth(f, 0)->message_id, cases[i][1]);
        assert_true(uuid_is_zero(&nth(f, 0)->uuid));
    }
    char longest[256 + 3];
    memset(longest, 'm', sizeof longest);
    longest[0] = '"';
    longest[257] = '"';
    longest[258] = '\0';
    give_id(f, longest);
    assert_int_equal(nth(f, 0)->message_id.len, 256);
    char longer[257 + 3];
    memset(longer, 'm', sizeof longer);
    longer[0] = '"';
    longer[258] = '"';
    longer[259] = '\0';
    give_id(f, longer);
    assert_int_equal(f->b.event[0].outcome, CAPTURE_REJECTED);
    assert_string_equal(f->b.event[0].reason, "messageId has more than 256 bytes");
    static const char raw[] = "{\"event\":\"x\",\"userId\":\"u\",\"messageId\":\"m\0\"}";
    expect_code(f, "track", slice_of(raw, sizeof raw - 1), 0, "");
    assert_text(nth(f, 0)->message_id, "");
}

/* Texts that no strict reader takes are mended for the columns and kept in the text. */
static void test_odd_texts(void **state)
{
    struct fixture *f = *state;
    static const char body[] =
        "{\"event\":\"\\ud800x\",\"userId\":\"\\u0000u\",\"anonymousId\":\"\xff\","
        "\"properties\":{\"a\":1,\"a\":2,\"n\":123456789012345678901234567890}}";
    expect_code(f, "track", slice_cstr(body), 0, "");
    const struct queue_event *q = nth(f, 0);
    assert_text(q->event, "\xef\xbf\xbdx");
    assert_text(q->distinct_id, "\xef\xbf\xbdu");
    assert_text(q->anonymous_id, "\xef\xbf\xbd");
    assert_text(q->text, body);
    /* of a repeated name the last, also when it takes the first back */
    expect_code(f, "page", SLICE("{\"userId\":\"a\",\"userId\":\"b\"}"), 0, "");
    assert_text(nth(f, 0)->distinct_id, "b");
    expect_code(f, "page", SLICE("{\"userId\":\"a\",\"anonymousId\":\"c\",\"userId\":null}"), 0,
                "");
    assert_text(nth(f, 0)->distinct_id, "c");
}

/* ---- times ---- */

static void test_times(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *times, *at, *note;
        bool has_timestamp, has_sent_at;
    } cases[] = {
        {"\"timestamp\":\"2026-11-30T11:00:00Z\"", "2026-11-30T11:00:00Z", "", true, false},
        /* the clock is an hour ahead: corrected (spec/capture.md B3) */
        {"\"timestamp\":\"2026-11-30T12:59:00Z\",\"sentAt\":\"2026-11-30T13:00:00Z\"",
         "2026-11-30T11:59:00Z", "skew_corrected", true, true},
        {"\"originalTimestamp\":\"2026-11-30T12:59:00Z\",\"timestamp\":\"2026-11-30T11:59:00Z\","
         "\"sentAt\":\"2026-11-30T13:00:00Z\"",
         "2026-11-30T11:59:00Z", "skew_corrected", true, true},
        {"\"originalTimestamp\":\"x\",\"timestamp\":\"2026-11-30T11:59:00Z\"",
         "2026-11-30T11:59:00Z", "", true, false},
        {"\"timestamp\":\"x\"", NOW, "unreadable", false, false},
        {"\"timestamp\":{}", NOW, "unreadable", false, false},
        {"\"timestamp\":null,\"sentAt\":\"x\"", NOW, "", false, false},
        {"\"timestamp\":1796036400000", "2026-11-30T11:00:00Z", "", true, false},
        {"\"timestamp\":\"2026-11-30T11:00:00\\u005a\"", "2026-11-30T11:00:00Z", "", true, false},
        {"\"timestamp\":\"1800-01-01T00:00:00Z\"", NOW, "out_of_range", true, false},
        {"\"timestamp\":\"2026-12-30T12:00:00Z\"", "2026-12-30T12:00:00Z", "future", true, false},
    };
    struct buf body = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&body);
        buf_printf(&body, "{\"userId\":\"u\",%s}", cases[i].times);
        expect_code(f, "page", buf_slice(&body), 0, "");
        const struct queue_event *q = nth(f, 0);
        assert_int_equal(q->timestamp_us, us_of(cases[i].at));
        assert_text(q->time_note, cases[i].note);
        assert_int_equal(q->has_timestamp_sent, cases[i].has_timestamp);
        assert_int_equal(q->has_sent_at, cases[i].has_sent_at);
    }
    buf_free(&body);
    /* the item's sentAt before the batch's; milliseconds towards the past, also before 1970 */
    expect_code(f, "",
                SLICE("{\"sentAt\":\"1969-12-31T23:59:59.999500Z\",\"batch\":["
                      "{\"type\":\"page\",\"userId\":\"u\",\"sentAt\":\"" NOW "\"},"
                      "{\"type\":\"page\",\"userId\":\"u\"},"
                      "{\"type\":\"page\",\"userId\":\"u\",\"sentAt\":\"never\"}]}"),
                0, "");
    assert_int_equal(nth(f, 0)->sent_at_ms, NOW_MS);
    assert_int_equal(nth(f, 1)->sent_at_ms, -1);
    assert_int_equal(nth(f, 2)->sent_at_ms, -1);
}

/* ---- context ---- */

static void test_the_context_of_a_batch(void **state)
{
    struct fixture *f = *state;
    expect_code(
        f, "",
        SLICE("{\"integrations\":{\"All\":true},\"batch\":["
              "{\"type\":\"page\",\"userId\":\"u\"},"
              "{\"type\":\"page\",\"userId\":\"u\",\"context\":{\"library\":{\"name\":\"own\"},"
              "\"sessionId\":\"s2\"}},"
              "{\"type\":\"page\",\"userId\":\"u\",\"context\":{\"library\":\"php\"}},"
              "{\"type\":\"page\",\"userId\":\"u\",\"context\":[1]}],"
              "\"context\" : {\"library\":{\"name\":\"lib\",\"version\":\"1\"}, "
              "\"sessionId\":7}}"),
        0, "");
    for (size_t i = 0; i < 4; i++) {
        assert_text(nth(f, i)->envelope,
                    "{\"context\":{\"library\":{\"name\":\"lib\",\"version\":\"1\"}, "
                    "\"sessionId\":7},\"integrations\":{\"All\":true}}");
        assert_ptr_equal(nth(f, i)->envelope.ptr, nth(f, 0)->envelope.ptr);
    }
    static const char *const want[4][3] = {
        {"lib", "1", "7"}, {"own", "", "s2"}, {"php", "", "7"}, {"lib", "1", "7"}};
    for (size_t i = 0; i < 4; i++) {
        assert_text(nth(f, i)->library, want[i][0]);
        assert_text(nth(f, i)->library_version, want[i][1]);
        assert_text(nth(f, i)->session_id, want[i][2]);
    }
    static const char *const one[][2] = {
        {"\"context\":{\"a\":1}", "{\"context\":{\"a\":1}}"},
        {"\"integrations\":{\"a\":1}", "{\"integrations\":{\"a\":1}}"},
        {"\"context\":{},\"integrations\":{ }", ""},
        {"\"context\":[1],\"integrations\":\"x\"", ""},
        {"\"context\":null", ""},
    };
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        struct buf body = {0};
        buf_printf(&body, "{%s,\"batch\":[" TRACK("") "]}", one[i][0]);
        expect_code(f, "", buf_slice(&body), 0, "");
        assert_text(nth(f, 0)->envelope, one[i][1]);
        buf_free(&body);
    }
}

/* What is no text says nothing, and costs no event. */
static void test_odd_contexts(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][4] = {
        {"{\"library\":{\"name\":{},\"version\":2}}", "", "2", ""},
        {"{\"library\":7,\"sessionId\":[]}", "", "", ""},
        {"{\"library\":null,\"sessionId\":null}", "", "", ""},
        {"\"x\"", "", "", ""},
        {"{\"lib\\u0072ary\":{\"n\\u0061me\":\"\\u0061\"}}", "a", "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"userId\":\"u\",\"context\":%s}", cases[i][0]);
        expect_code(f, "page", buf_slice(&body), 0, "");
        assert_text(nth(f, 0)->library, cases[i][1]);
        assert_text(nth(f, 0)->library_version, cases[i][2]);
        assert_text(nth(f, 0)->session_id, cases[i][3]);
        buf_free(&body);
    }
}

/* One large context for very many events must not become gigabytes. */
static void test_the_context_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct buf body = {0};
    buf_put_cstr(&body, "{\"context\":{\"x\":\"");
    for (int i = 0; i < 1000; i++) {
        buf_put_char(&body, 'x');
    }
    buf_put_cstr(&body, "\"},\"batch\":[");
    for (int i = 0; i < 100; i++) {
        buf_put_cstr(&body, i == 0 ? "" : ",");
        buf_put_cstr(&body, TRACK(""));
    }
    buf_put_cstr(&body, "]}");
    expect_code(f, "", buf_slice(&body), 0, "");
    uint64_t bytes = 100 * (sizeof TRACK("") - 1 + nth(f, 0)->envelope.len);
    f->c.options.decoded_bytes_max = bytes;
    expect_code(f, "", buf_slice(&body), 0, "");
    f->c.options.decoded_bytes_max = bytes - 1;
    expect_code(f, "", buf_slice(&body), ERR_BODY_TOO_LARGE, "batch[99]: the events, each with");
    /* and it is a part of the event's size */
    f->c.options.decoded_bytes_max = MIB;
    f->c.options.event_bytes_max = bytes / 100;
    expect_code(f, "", buf_slice(&body), 0, "");
    (void)nth(f, 99);
    f->c.options.event_bytes_max = bytes / 100 - 1;
    expect_code(f, "", buf_slice(&body), 0, "");
    assert_int_equal(f->b.event[99].outcome, CAPTURE_REJECTED);
    assert_non_null(strstr(f->b.event[99].reason, "with the context of its batch, is larger"));
    /* what is too large by itself is finish.c's to say */
    f->c.options.event_bytes_max = sizeof TRACK("") - 2;
    expect_code(f, "", buf_slice(&body), 0, "");
    (void)nth(f, 99);
    buf_free(&body);
}

static int parse_within(struct fixture *f, const char *call, struct slice json, size_t bytes)
{
    forget(f);
    f->b = (struct capture_batch){.c = &f->c, .call = slice_cstr(call), .received_ms = NOW_MS};
    arena_init(&f->b.arena, bytes);
    f->e = (struct err){0};
    int r = segment_parse(&f->b, json, &f->e);
    assert_int_equal(f->e.code, r);
    return r;
}

/* Without memory for a text the whole request is refused. The arena refuses to hand out more than n
 * bytes, so each n stops at another text. */
static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *call, *json;
    } cases[] = {
        {"", "{\"writeKey\":\"\\u006b\",\"context\":{\"library\":{\"name\":\"\\u006c\",\"version\":"
             "\"\\u006c\"},\"sessionId\":\"\\u006c\"},\"batch\":["
             "{\"type\":\"track\",\"event\":\"\\u0078\",\"userId\":\"\\u0075\",\"anonymousId\":"
             "\"\\u0061\",\"messageId\":\"\\u006d\",\"timestamp\":\"2026-11-30T11:00:00\\u005a\","
             "\"sentAt\":\"\\u0030\",\"context\":{\"library\":{\"name\":\"\\u0061\",\"version\":"
             "\"\\u0061\"},\"sessionId\":\"\\u0061\"}},"
             "{\"type\":\"group\",\"groupId\":\"\\u0067\",\"userId\":\"\\u0075\"},"
             "{\"type\":\"alias\",\"previousId\":\"\\u0067\",\"userId\":\"\\u0075\"},"
             "{\"type\":\"page\",\"name\":\"\\u0067\",\"userId\":\"\\u0075\"}]}"},
        {"page", "{\"writeKey\":\"\\u006b\",\"userId\":\"\\u0075\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct slice json = slice_cstr(cases[i].json);
        assert_int_equal(parse_within(f, cases[i].call, json, 0), 0);
        size_t needed = f->b.arena.used_bytes;
        assert_true(needed > 20);
        for (size_t n = 1; n < needed; n++) {
            assert_int_equal(parse_within(f, cases[i].call, json, n), ERR_NO_MEMORY);
        }
        assert_int_equal(parse_within(f, cases[i].call, json, needed), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_analytics_node),
        TEST(test_rudder_node),
        TEST(test_calls),
        TEST(test_a_bad_call),
        TEST(test_the_key_may_come_last),
        TEST(test_no_batch),
        TEST(test_bad_items),
        TEST(test_too_many),
        TEST(test_no_limits_of_segment),
        TEST(test_message_ids),
        TEST(test_odd_texts),
        TEST(test_times),
        TEST(test_the_context_of_a_batch),
        TEST(test_odd_contexts),
        TEST(test_the_context_is_bounded),
        TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
