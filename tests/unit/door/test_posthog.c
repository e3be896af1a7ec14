/* test_posthog: the rules of PostHog's v0 bodies (spec/capture.md A2 steps 7 and 8, A3), one by
 * one, by the parser alone. Cases C13 and C14 by name. */
#include "os/os.h"
#include "tests/unit/door/capture_kit.h"
#include "json/write.h"

#define KEY    "\"api_key\":\"tmc_k\""
#define ID     "\"distinct_id\":\"d\""
#define EVENT  "{\"event\":\"x\"," ID "}"
#define OF(ev) "{" KEY ",\"batch\":[" ev "]}"
#define UUID   "01890a5d-ac96-774b-bcce-b302099a8057"

static struct parsed p;

static int give_on(const char *call, const char *body)
{
    parse_begin(&p, CAPTURE_POSTHOG, call);
    return parse_text(&p, posthog_parse, body);
}

static int give(const char *body)
{
    return give_on("", body);
}

static const struct queue_event *ev(size_t i)
{
    assert_true(i < p.b.count);
    return &p.b.event[i].ev;
}

/* The one event of a batch, taken. */
static const struct queue_event *take(const char *event)
{
    struct buf b = {0};
    buf_printf(&b, "{" KEY ",\"batch\":[%s]}", event);
    buf_put_char(&b, '\0');
    assert_int_equal(give(b.ptr), 0);
    buf_free(&b);
    assert_int_equal(p.b.count, 1);
    if (p.b.event[0].reason != NULL) {
        fail_msg("rejected: %s", p.b.event[0].reason);
    }
    return ev(0);
}

static void rejects(const char *event, const char *reason)
{
    struct buf b = {0};
    buf_printf(&b, "{" KEY ",\"batch\":[" EVENT ",%s," EVENT "]}", event);
    buf_put_char(&b, '\0');
    assert_int_equal(give(b.ptr), 0);
    buf_free(&b);
    assert_int_equal(p.b.count, 3);
    assert_int_equal(p.b.event[0].outcome, CAPTURE_STORED);
    assert_int_equal(p.b.event[1].outcome, CAPTURE_REJECTED);
    assert_int_equal(p.b.event[2].outcome, CAPTURE_STORED);
    assert_int_equal(p.b.event[1].index, 1);
    assert_string_equal(p.b.event[1].reason, reason);
    assert_text(ev(1)->text, event);
    parse_end(&p);
}

static void refuses(const char *body, int code, const char *part)
{
    int r = give(body);
    if (r != code) {
        fail_msg("%s: %d", body, r);
    }
    assert_has(slice_cstr(p.e.text), part);
    parse_end(&p);
}

static void test_shapes(void **state)
{
    (void)state;
    /* An array; an object with a batch, by either name of the key; one event. */
    assert_int_equal(
        give("[{\"event\":\"a\"," ID ",\"token\":\"tmc_k\"},{\"event\":\"b\"," ID "}]"), 0);
    assert_int_equal(p.b.count, 2);
    assert_false(p.b.single);
    assert_text(p.b.token, "tmc_k");
    assert_text(ev(0)->event, "a");
    assert_text(ev(1)->event, "b");
    assert_text(ev(1)->text, "{\"event\":\"b\"," ID "}");
    assert_text(ev(1)->type, "capture");
    assert_int_equal(p.b.event[1].index, 1);
    parse_end(&p);

    assert_int_equal(give(" {" KEY ", \"batch\" : [ " EVENT " ] } "), 0);
    assert_int_equal(p.b.count, 1);
    assert_false(p.b.single);
    assert_text(ev(0)->text, EVENT);
    parse_end(&p);

    assert_int_equal(give("{\"token\":\"tmc_k\",\"batch\":[" EVENT "]}"), 0);
    assert_text(p.b.token, "tmc_k");
    parse_end(&p);

    assert_int_equal(give("{" KEY ",\"event\":\"x\"," ID "}"), 0);
    assert_int_equal(p.b.count, 1);
    assert_true(p.b.single);
    assert_text(ev(0)->text, "{" KEY ",\"event\":\"x\"," ID "}");
    parse_end(&p);

    /* Keys in the events of a batch that has none of its own. */
    assert_int_equal(
        give("{\"batch\":[{\"event\":\"x\"," ID ",\"properties\":{\"token\":\"tmc_k\"}}]}"), 0);
    assert_text(p.b.token, "tmc_k");
    parse_end(&p);
}

static void test_shapes_refused(void **state)
{
    (void)state;
    refuses("{" KEY ",\"batch\":[]}", ERR_INVALID_EVENT, "no events");
    refuses("[]", ERR_INVALID_EVENT, "no events");
    refuses("{" KEY ",\"batch\":{}}", ERR_INVALID_EVENT, "batch must be an array");
    refuses("\"x\"", ERR_INVALID_EVENT, "must be an event");
    refuses("12", ERR_INVALID_EVENT, "must be an event");
    refuses("null", ERR_INVALID_EVENT, "must be an event");
    refuses("true", ERR_INVALID_EVENT, "must be an event");
}

static void test_engage_without_a_name(void **state)
{
    (void)state;
    assert_int_equal(give_on("engage", "{" KEY "," ID ",\"$set\":{\"a\":1}}"), 0);
    assert_text(ev(0)->event, "$identify");
    assert_int_equal(p.b.event[0].outcome, CAPTURE_STORED);
    assert_text(ev(0)->text, "{" KEY "," ID ",\"$set\":{\"a\":1}}");
    parse_end(&p);
    assert_int_equal(give_on("engage", "{" KEY ",\"event\":\"named\"," ID "}"), 0);
    assert_text(ev(0)->event, "named");
    parse_end(&p);
    /* Elsewhere it is bad. */
    assert_int_equal(give("{" KEY "," ID ",\"$set\":{\"a\":1}}"), 0);
    assert_true(p.b.single);
    assert_int_equal(p.b.event[0].outcome, CAPTURE_REJECTED);
    assert_string_equal(p.b.event[0].reason, "event is missing");
    parse_end(&p);
}

static void test_performance_events_are_removed(void **state)
{
    (void)state;
    assert_int_equal(give(OF("{\"event\":\"$performance_event\"}")), 0);
    assert_int_equal(p.b.count, 0);
    parse_end(&p);
    assert_int_equal(give(OF("{\"event\":\"$performance_event\"}," EVENT)), 0);
    assert_int_equal(p.b.count, 1);
    assert_int_equal(p.b.event[0].index, 1);
    parse_end(&p);
    /* Its key counts all the same. */
    refuses("[{\"event\":\"$performance_event\"}]", ERR_UNAUTHORIZED, "no token");
}

static void test_tokens(void **state)
{
    static const char *const places[] = {"\"token\":\"tmc_k\"",
                                         "\"$token\":\"tmc_k\"",
                                         "\"api_key\":\"tmc_k\"",
                                         "\"properties\":{\"token\":\"tmc_k\"}",
                                         "\"token\":\" tmc_k\\n\"",
                                         "\"tok\\u0065n\":\"tmc\\u005fk\"",
                                         "\"token\":\"\",\"api_key\":\"tmc_k\"",
                                         "\"token\":null,\"properties\":{\"token\":\"tmc_k\"}",
                                         "\"token\":5,\"api_key\":\"tmc_k\""};
    char body[600];
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(body, sizeof body, "[{\"event\":\"x\"," ID ",%s}]", places[i]);
        assert_int_equal(give(body), 0);
        assert_text(p.b.token, "tmc_k");
        parse_end(&p);
    }
    refuses("[" EVENT "]", ERR_UNAUTHORIZED, "no token");
    refuses("{\"api_key\":\" \",\"batch\":[" EVENT "]}", ERR_UNAUTHORIZED, "no token");
    refuses("[{\"event\":\"x\"," ID ",\"token\":\"a\"},{\"event\":\"x\"," ID ",\"token\":\"b\"}]",
            ERR_UNAUTHORIZED, "different tokens");
    /* The batch's wins over those of its events. */
    assert_int_equal(give(OF("{\"event\":\"x\"," ID ",\"token\":\"a\"},{\"event\":\"x\"," ID
                             ",\"properties\":{\"token\":\"b\"}}")),
                     0);
    assert_text(p.b.token, "tmc_k");
    parse_end(&p);
    refuses("{\"api_key\":\"phx_personal\",\"batch\":[" EVENT "]}", ERR_UNAUTHORIZED, "personal");
    refuses("{\"api_key\":\"tmc\\u00e9\",\"batch\":[" EVENT "]}", ERR_UNAUTHORIZED, "ASCII");
    refuses("{\"api_key\":\"tm\\u0000c\",\"batch\":[" EVENT "]}", ERR_UNAUTHORIZED, "ASCII");
    (void)snprintf(body, sizeof body, "{\"api_key\":\"%065d\",\"batch\":[" EVENT "]}", 1);
    refuses(body, ERR_UNAUTHORIZED, "64");
    (void)snprintf(body, sizeof body, "{\"api_key\":\"%064d\",\"batch\":[" EVENT "]}", 1);
    assert_int_equal(give(body), 0);
    parse_end(&p);
}

static void test_names(void **state)
{
    (void)state;
    rejects("{" ID "}", "event is missing");
    rejects("{\"event\":null," ID "}", "event is missing");
    rejects("{\"event\":\"\"," ID "}", "event must not be empty");
    rejects("{\"event\":7," ID "}", "event must be a string");
    rejects("7", "an event must be an object");
    rejects("null", "an event must be an object");
    rejects("[]", "an event must be an object");
    assert_text(take("{\"ev\\u0065nt\":\"na\\u00efve \\ud83d\\ude00\"," ID "}")->event,
                "na\xC3\xAFve \xF0\x9F\x98\x80");
    parse_end(&p);
    /* Of a repeated name the last, as ClickHouse gets it. */
    assert_text(take("{\"event\":\"a\",\"event\":\"b\"," ID "}")->event, "b");
    parse_end(&p);
}

static void test_distinct_ids(void **state)
{
    char body[3000];
    struct buf long_ = {0};
    (void)state;
    assert_text(take("{\"event\":\"x\",\"distinct_id\":\" a b \"}")->distinct_id, " a b ");
    parse_end(&p);
    assert_text(take("{\"event\":\"x\",\"$distinct_id\":\"a\"}")->distinct_id, "a");
    parse_end(&p);
    assert_text(take("{\"event\":\"x\",\"properties\":{\"distinct_id\":\"a\"}}")->distinct_id, "a");
    parse_end(&p);
    assert_text(
        take("{\"event\":\"x\",\"distinct_id\":\" \",\"properties\":{\"distinct_id\":\"a\"}}")
            ->distinct_id,
        "a");
    parse_end(&p);
    /* What is no string is taken as it is written. */
    assert_text(take("{\"event\":\"x\",\"distinct_id\":12345678901234567890}")->distinct_id,
                "12345678901234567890");
    parse_end(&p);
    assert_text(take("{\"event\":\"x\",\"distinct_id\":{\"a\":[1]}}")->distinct_id, "{\"a\":[1]}");
    parse_end(&p);
    assert_text(take("{\"event\":\"x\",\"distinct_id\":false}")->distinct_id, "false");
    parse_end(&p);
    assert_text(take("{\"event\":\"x\",\"distinct_id\":\"a\\u0000b\\ud800c\"}")->distinct_id,
                "a\xEF\xBF\xBD"
                "b\xEF\xBF\xBD"
                "c");
    parse_end(&p);
    rejects("{\"event\":\"x\"}", "distinct_id is missing");
    rejects("{\"event\":\"x\",\"distinct_id\":null}", "distinct_id is missing");
    rejects("{\"event\":\"x\",\"distinct_id\":\"\"}", "distinct_id is missing");
    rejects("{\"event\":\"x\",\"distinct_id\":\" \\t\"}", "distinct_id is missing");
    /* C14: 400 characters are cut to 200, of two bytes each here; the text keeps all. */
    for (int i = 0; i < 400; i++) {
        buf_put_cstr(&long_, "\xC3\xA9");
    }
    (void)snprintf(body, sizeof body, "{\"event\":\"x\",\"distinct_id\":\"%.*s\"}", (int)long_.len,
                   long_.ptr);
    const struct queue_event *q = take(body);
    assert_int_equal(q->distinct_id.len, 400);
    assert_memory_equal(q->distinct_id.ptr, long_.ptr, 400);
    assert_text(q->text, body);
    parse_end(&p);
    buf_free(&long_);
}

static void test_bytes_that_are_no_utf8(void **state)
{
    static const char body[] =
        "{" KEY ",\"batch\":[{\"event\":\"a\xFF\xC3\",\"distinct_id\":\"\xED\xA0\x80\","
        "\"properties\":{\"$lib\":\"l\x01\"}}]}";
    (void)state;
    parse_begin(&p, CAPTURE_POSTHOG, "");
    assert_int_equal(parse_bytes(&p, posthog_parse, slice_of(body, sizeof body - 1)), 0);
    assert_int_equal(p.b.event[0].outcome, CAPTURE_STORED);
    assert_text(ev(0)->event, "a\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_text(ev(0)->distinct_id, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
    assert_text(ev(0)->library, "l\x01");
    assert_true(memchr(ev(0)->text.ptr, 0xFF, ev(0)->text.len) != NULL);
    parse_end(&p);
}

/* A text of which every byte must be replaced costs one look at each: this much of it took a worker
 * hours, and nobody needs a key to send it. */
static void test_much_to_mend(void **state)
{
    static const struct {
        const char *spelling, *last;
        size_t chars;
    } rows[] = {{"\\u0000", "", 2000000},
                {"\xFF", "", 4000000},
                {"\xFF", "\\u0000", 4000000},
                {"\\u0000\xFF", "", 1000000}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b = {0};
        uint64_t begin_ns = os_clock_mono_ns();
        buf_put_cstr(&b, "{" KEY ",\"batch\":[{\"event\":\"");
        for (size_t j = 0; j < rows[i].chars; j++) {
            buf_put_cstr(&b, rows[i].spelling);
        }
        buf_put_cstr(&b, rows[i].last);
        buf_put_cstr(&b, "\"," ID "}]}");
        parse_begin(&p, CAPTURE_POSTHOG, "");
        assert_int_equal(parse_bytes(&p, posthog_parse, buf_slice(&b)), 0);
        assert_true(ev(0)->event.len >= 3 * rows[i].chars);
        assert_true(utf8_valid(ev(0)->event, NULL));
        assert_null(memchr(ev(0)->event.ptr, '\0', ev(0)->event.len));
        assert_true(os_clock_mono_ns() - begin_ns < UINT64_C(20000000000));
        parse_end(&p);
        buf_free(&b);
    }
}

/* What a batch says about all its events is stored with each of them: it has a bound. */
static void test_long_library(void **state)
{
    struct buf b = {0};
    (void)state;
    buf_put_cstr(&b, "{" KEY ",\"library\":\"");
    for (int i = 0; i < 100000; i++) {
        buf_put_cstr(&b, "\xC3\xBC");
    }
    buf_put_cstr(&b, "\",\"library_version\":[");
    for (int i = 0; i < 100000; i++) {
        buf_put_cstr(&b, "1,");
    }
    buf_put_cstr(&b, "1],\"batch\":[" EVENT "," EVENT "]}");
    parse_begin(&p, CAPTURE_POSTHOG, "");
    assert_int_equal(parse_bytes(&p, posthog_parse, buf_slice(&b)), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ev(i)->library.len, 400);
        assert_int_equal(ev(i)->library_version.len, 200);
    }
    parse_end(&p);
    buf_free(&b);
}

static void test_uuids(void **state)
{
    static const char *const spelled[] = {UUID, "01890A5D-AC96-774B-BCCE-B302099A8057",
                                          "01890a5dac96774bbcceb302099a8057", ("{" UUID "}"),
                                          ("urn:uuid:" UUID)};
    char body[300];
    char text[UUID_TEXT_LEN];
    (void)state;
    for (size_t i = 0; i < sizeof spelled / sizeof spelled[0]; i++) {
        (void)snprintf(body, sizeof body, "{\"event\":\"x\"," ID ",\"uuid\":\"%s\"}", spelled[i]);
        uuid_text(text, &take(body)->uuid);
        assert_memory_equal(text, UUID, UUID_TEXT_LEN);
        parse_end(&p);
    }
    assert_true(uuid_is_zero(&take(EVENT)->uuid));
    parse_end(&p);
    assert_true(uuid_is_zero(&take("{\"event\":\"x\"," ID ",\"uuid\":\"\"}")->uuid));
    parse_end(&p);
    assert_true(uuid_is_zero(&take("{\"event\":\"x\"," ID ",\"uuid\":null}")->uuid));
    parse_end(&p);
    rejects("{\"event\":\"x\"," ID ",\"uuid\":\"x\"}", "uuid is not a UUID");
    rejects("{\"event\":\"x\"," ID ",\"uuid\":\"" UUID " \"}", "uuid is not a UUID");
    rejects("{\"event\":\"x\"," ID ",\"uuid\":7}", "uuid must be a string");
}

static void test_properties(void **state)
{
    (void)state;
    const struct queue_event *q =
        take("{\"event\":\"x\"," ID ",\"properties\":{\"$lib\":\"web\",\"$lib_version\":\"1.2\","
             "\"$session_id\":\"s\"},\"$set\":{\"a\":1},\"$unset\":[\"b\"],\"unknown\":1}");
    assert_text(q->library, "web");
    assert_text(q->library_version, "1.2");
    assert_text(q->session_id, "s");
    assert_has(q->text, "\"$unset\":[\"b\"],\"unknown\":1");
    assert_text(q->source, "");
    assert_text(q->message_id, "");
    parse_end(&p);
    (void)take("{\"event\":\"x\"," ID ",\"properties\":null}");
    parse_end(&p);
    rejects("{\"event\":\"x\"," ID ",\"properties\":[]}", "properties must be an object");
    rejects("{\"event\":\"x\"," ID ",\"properties\":\"{}\"}", "properties must be an object");
    /* posthog-node 4 says it beside the properties, others beside the batch. */
    q = take("{\"event\":\"x\"," ID ",\"library\":\"node\",\"library_version\":\"4.0\"}");
    assert_text(q->library, "node");
    assert_text(q->library_version, "4.0");
    parse_end(&p);
    assert_int_equal(
        give("{" KEY ",\"library\":\"go\",\"library_version\":\"3\",\"batch\":[" EVENT "]}"), 0);
    assert_text(ev(0)->library, "go");
    assert_text(ev(0)->library_version, "3");
    parse_end(&p);
}

static void test_cookieless(void **state)
{
    (void)state;
    assert_text(take("{\"event\":\"x\",\"properties\":{\"$cookieless_mode\":true}}")->distinct_id,
                "$posthog_cookieless");
    parse_end(&p);
    assert_text(
        take("{\"event\":\"x\"," ID ",\"properties\":{\"$cookieless_mode\":true}}")->distinct_id,
        "$posthog_cookieless");
    parse_end(&p);
    assert_text(
        take("{\"event\":\"x\"," ID ",\"properties\":{\"$cookieless_mode\":false}}")->distinct_id,
        "d");
    parse_end(&p);
    rejects("{\"event\":\"x\"," ID ",\"properties\":{\"$cookieless_mode\":\"true\"}}",
            "properties.$cookieless_mode must be true or false");
    rejects("{\"event\":\"x\"," ID ",\"properties\":{\"$cookieless_mode\":1}}",
            "properties.$cookieless_mode must be true or false");
}

#define US(ms) ((ms)*INT64_C(1000))

static void test_times(void **state)
{
    (void)state;
    /* None: receipt. */
    const struct queue_event *q = take(EVENT);
    assert_int_equal(q->timestamp_us, US(NOW_MS));
    assert_text(q->time_note, "");
    assert_false(q->has_timestamp_sent);
    assert_false(q->has_sent_at);
    parse_end(&p);
    /* Alone: as it is. */
    q = take("{\"event\":\"x\"," ID ",\"timestamp\":\"2026-11-30T11:00:00.5Z\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 3600000) + 500000);
    assert_true(q->has_timestamp_sent);
    assert_int_equal(q->timestamp_sent_us, q->timestamp_us);
    parse_end(&p);
    /* With the batch's sent_at, an hour ahead: corrected. */
    assert_int_equal(
        give(
            "{" KEY ",\"sent_at\":\"2026-11-30T13:00:00Z\",\"batch\":[{\"event\":\"x\"," ID
            ",\"timestamp\":\"2026-11-30T12:59:00Z\"},{\"event\":\"x\"," ID
            ",\"timestamp\":\"2026-11-30T12:59:00Z\",\"properties\":{\"$ignore_sent_at\":true}}]}"),
        0);
    assert_int_equal(ev(0)->timestamp_us, US(NOW_MS - 60000));
    assert_text(ev(0)->time_note, "skew_corrected");
    assert_true(ev(0)->has_sent_at);
    assert_int_equal(ev(0)->sent_at_ms, NOW_MS + 3600000);
    assert_int_equal(ev(0)->timestamp_sent_us, US(NOW_MS + 3540000));
    assert_int_equal(ev(1)->timestamp_us, US(NOW_MS + 3540000));
    parse_end(&p);
    /* C08: no sent_at: as sent, and flagged. */
    q = take("{\"event\":\"x\"," ID ",\"timestamp\":\"2026-11-30T13:00:00Z\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS + 3600000));
    assert_text(q->time_note, "future");
    parse_end(&p);
    /* The event's own sent_at (recordings), and the query's. */
    q = take("{\"event\":\"x\"," ID
             ",\"timestamp\":\"2026-11-30T12:59:00Z\",\"sent_at\":\"2026-11-30T13:00:00Z\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 60000));
    parse_end(&p);
    parse_begin(&p, CAPTURE_POSTHOG, "");
    p.b.head_sent_at_ms = NOW_MS + 3600000;
    assert_int_equal(
        parse_text(&p, posthog_parse,
                   OF("{\"event\":\"x\"," ID ",\"timestamp\":\"2026-11-30T12:59:00Z\"}")),
        0);
    assert_int_equal(ev(0)->timestamp_us, US(NOW_MS - 60000));
    assert_int_equal(ev(0)->sent_at_ms, NOW_MS + 3600000);
    parse_end(&p);
}

static void test_odd_times(void **state)
{
    (void)state;
    /* C14: a bad timestamp costs no event. */
    const struct queue_event *q = take("{\"event\":\"x\"," ID ",\"timestamp\":\"yesterday\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS));
    assert_text(q->time_note, "unreadable");
    assert_false(q->has_timestamp_sent);
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"timestamp\":{}}");
    assert_text(q->time_note, "unreadable");
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"timestamp\":1796036400000}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 3600000));
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"timestamp\":\"2026\\u002d11-30T11:00:00Z\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 3600000));
    parse_end(&p);
    /* C10: a sent_at that is none is none. */
    assert_int_equal(give("{" KEY ",\"sent_at\":\"not a date\",\"batch\":[" EVENT "]}"), 0);
    assert_false(ev(0)->has_sent_at);
    parse_end(&p);
    assert_int_equal(
        give("{" KEY ",\"sent_at\":\"1969-12-31T23:59:59.9995Z\",\"batch\":[" EVENT "]}"), 0);
    assert_true(ev(0)->has_sent_at);
    assert_int_equal(ev(0)->sent_at_ms, -1);
    parse_end(&p);
    /* offset overrides everything. */
    q = take("{\"event\":\"x\"," ID ",\"offset\":5000,\"timestamp\":\"2020-01-01T00:00:00Z\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 5000));
    assert_text(q->time_note, "offset");
    assert_true(q->has_timestamp_sent);
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"offset\":12.75}");
    assert_int_equal(q->timestamp_us, US(NOW_MS - 12));
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"offset\":\"soon\"}");
    assert_int_equal(q->timestamp_us, US(NOW_MS));
    assert_text(q->time_note, "unreadable");
    parse_end(&p);
    q = take("{\"event\":\"x\"," ID ",\"offset\":1e3}");
    assert_text(q->time_note, "unreadable");
    parse_end(&p);
}

/* C13: {"batch":[ok, {"event":"x"}, ok, {"event":"", "distinct_id":"a"}, ok]} */
static void test_c13_one_bad_event(void **state)
{
    (void)state;
    assert_int_equal(give(OF(EVENT ",{\"event\":\"x\"}," EVENT
                                   ",{\"event\":\"\",\"distinct_id\":\"a\"}," EVENT)),
                     0);
    assert_int_equal(p.b.count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(p.b.event[i].outcome, i % 2 == 0 ? CAPTURE_STORED : CAPTURE_REJECTED);
        assert_int_equal(p.b.event[i].index, i);
    }
    assert_string_equal(p.b.event[1].reason, "distinct_id is missing");
    assert_string_equal(p.b.event[3].reason, "event must not be empty");
    parse_end(&p);
}

static void test_too_many(void **state)
{
    struct buf b = {0};
    (void)state;
    buf_put_cstr(&b, "{" KEY ",\"batch\":[");
    for (int i = 0; i < 101; i++) {
        buf_put_cstr(&b, i == 0 ? EVENT : "," EVENT);
    }
    buf_put_cstr(&b, "]}");
    for (uint32_t max = 100; max <= 101; max++) {
        parse_begin(&p, CAPTURE_POSTHOG, "");
        p.c.options.batch_events_max = max;
        assert_int_equal(parse_bytes(&p, posthog_parse, buf_slice(&b)),
                         max == 100 ? ERR_TOO_MANY_EVENTS : 0);
        assert_int_equal(p.b.count, max);
        parse_end(&p);
    }
    buf_free(&b);
}

/* Every bound of the arena: no memory is an answer, and what was taken is whole. */
static void test_no_memory(void **state)
{
    static const char body[] =
        "{\"api_key\":\"tmc\\u005fk\",\"library\":\"\\u0061\",\"batch\":[{\"event\":\"\\u0061\","
        "\"uuid\":\"\\u0030"
        "1890a5d-ac96-774b-bcce-b302099a8057\","
        "\"distinct_id\":\"\\u0000\",\"properties\":{\"$lib\":\"\\u0000\",\"$session_id\":\"\\n\"}}"
        "]}";
    int last = ERR_NO_MEMORY;
    size_t refused = 0;
    (void)state;
    for (size_t limit = 1; last == ERR_NO_MEMORY; limit += 8) {
        parse_begin(&p, CAPTURE_POSTHOG, "");
        arena_init(&p.b.arena, limit);
        last = parse_text(&p, posthog_parse, body);
        refused += last == ERR_NO_MEMORY ? 1 : 0;
        if (last == 0) {
            assert_text(p.b.token, "tmc_k");
            assert_text(ev(0)->event, "a");
            assert_text(ev(0)->distinct_id, "\xEF\xBF\xBD");
            assert_text(ev(0)->library, "\xEF\xBF\xBD");
            assert_text(ev(0)->session_id, "\n");
            assert_false(uuid_is_zero(&ev(0)->uuid));
        }
        parse_end(&p);
    }
    assert_int_equal(last, 0);
    assert_true(refused > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_shapes_refused),
        cmocka_unit_test(test_engage_without_a_name),
        cmocka_unit_test(test_performance_events_are_removed),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_distinct_ids),
        cmocka_unit_test(test_bytes_that_are_no_utf8),
        cmocka_unit_test(test_much_to_mend),
        cmocka_unit_test(test_long_library),
        cmocka_unit_test(test_uuids),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_cookieless),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_odd_times),
        cmocka_unit_test(test_c13_one_bad_event),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
