/* test_posthog_v1: the rules of bodies of POST /i/v1/analytics/events (spec/capture.md A8), by the
 * parser alone. */
#include "tests/unit/door/capture_kit.h"

#define U1            "01890a5d-ac96-774b-bcce-b302099a8051"
#define U2            "01890a5d-ac96-774b-bcce-b302099a8052"
#define CREATED       "\"created_at\":\"2026-11-30T12:00:00Z\""
#define AT            "\"timestamp\":\"2026-11-30T11:59:59.250+00:00\""
#define WITH(u, more) "{\"event\":\"x\",\"uuid\":\"" u "\",\"distinct_id\":\"d\"," AT more "}"
#define OF(events)    "{" CREATED ",\"batch\":[" events "]}"

static struct parsed p;

static int give(const char *body)
{
    parse_begin(&p, CAPTURE_POSTHOG_V1, "");
    p.b.sdk = SLICE("posthog-python");
    p.b.sdk_version = SLICE("9.\xFF");
    return parse_text(&p, posthog_v1_parse, body);
}

static void refuses(const char *body, const char *part)
{
    int r = give(body);
    if (r != ERR_INVALID_EVENT) {
        fail_msg("%s: %d", body, r);
    }
    assert_has(slice_cstr(p.e.text), part);
    parse_end(&p);
}

/* The second of two events is dropped for this reason, the first stays. */
static void drops(const char *members, const char *reason)
{
    struct buf b = {0};
    buf_printf(&b, OF(WITH(U1, "") ",{\"uuid\":\"" U2 "\"%s}"), members);
    buf_put_char(&b, '\0');
    assert_int_equal(give(b.ptr), 0);
    buf_free(&b);
    assert_int_equal(p.b.count, 2);
    assert_int_equal(p.b.event[0].outcome, CAPTURE_STORED);
    assert_int_equal(p.b.event[1].outcome, CAPTURE_DROPPED);
    assert_text(p.b.event[1].given_uuid, U2);
    assert_string_equal(p.b.event[1].reason, reason);
    parse_end(&p);
}

static const struct queue_event *take(const char *body)
{
    assert_int_equal(give(body), 0);
    assert_int_equal(p.b.count, 1);
    if (p.b.event[0].reason != NULL) {
        fail_msg("dropped: %s", p.b.event[0].reason);
    }
    return &p.b.event[0].ev;
}

static void test_an_event(void **state)
{
    char text[UUID_TEXT_LEN];
    (void)state;
    const struct queue_event *q =
        take(OF("{\"event\":\" x \",\"uuid\":\"01890A5D-AC96-774B-BCCE-B302099A8051\","
                "\"distinct_id\":\" d \"," AT ",\"session_id\":\"s\",\"window_id\":\"w\","
                "\"properties\":{\"$set\":{\"a\":1},\"$lib\":\"other\"}}"));
    assert_text(q->event, "x");
    assert_text(q->distinct_id, "d");
    assert_text(q->session_id, "s");
    assert_text(q->type, "capture");
    /* Who sent it is in the header. */
    assert_text(q->library, "posthog-python");
    assert_text(q->library_version, "9.\xEF\xBF\xBD");
    assert_int_equal(q->timestamp_us, (NOW_MS - 750) * 1000);
    assert_true(q->has_timestamp_sent);
    assert_false(q->has_sent_at);
    uuid_text(text, &q->uuid);
    assert_memory_equal(text, U1, UUID_TEXT_LEN);
    assert_text(p.b.event[0].given_uuid, "01890A5D-AC96-774B-BCCE-B302099A8051");
    assert_has(q->text, "\"window_id\":\"w\"");
    assert_false(p.b.single);
    parse_end(&p);
    q = take(OF(WITH(U1, ",\"properties\":{\"$session_id\":\"t\"},\"options\":{}")));
    assert_text(q->session_id, "t");
    parse_end(&p);
}

static void test_batches_refused(void **state)
{
    (void)state;
    refuses("[]", "must be an object");
    refuses("{\"batch\":[" WITH(U1, "") "]}", "created_at");
    refuses("{\"created_at\":\"now\",\"batch\":[" WITH(U1, "") "]}", "created_at");
    refuses("{\"created_at\":17,\"batch\":[" WITH(U1, "") "]}", "created_at");
    refuses("{\"created_at\":\"2026-11-30 12:00:00\",\"batch\":[" WITH(U1, "") "]}", "created_at");
    refuses("{" CREATED "}", "batch must be an array");
    refuses("{" CREATED ",\"batch\":{}}", "batch must be an array");
    refuses("{" CREATED ",\"batch\":[]}", "no events");
    refuses(OF("7"), "event 0 of the batch is no object");
    refuses(OF("{\"event\":\"x\"}"), "event 0 of the batch has no uuid");
    refuses(OF(WITH(U1, "") ",{\"uuid\":7}"), "event 1 of the batch has no uuid");
    refuses(OF("{\"uuid\":\"\"}"), "uuid of event 0");
    refuses(OF("{\"uuid\":\"x\"}"), "uuid of event 0");
    refuses(OF("{\"uuid\":\"00000000-0000-0000-0000-000000000000\"}"), "uuid of event 0");
    refuses(OF(WITH(U2, "") "," WITH(U1, "") "," WITH(U2, "")), U2 " is in the batch twice");
    /* Twice in another spelling is twice. */
    refuses(OF(WITH(U1, "") "," WITH("01890a5dac96774bbcceb302099a8051", "")), U1);
}

static void test_events_dropped(void **state)
{
    char name[500];
    (void)state;
    drops("", "event is missing");
    drops(",\"event\":\" \"", "event is missing");
    drops(",\"event\":7", "event is missing");
    drops(",\"event\":\"x\"", "distinct_id is missing");
    drops(",\"event\":\"x\",\"distinct_id\":7", "distinct_id is missing");
    drops(",\"event\":\"x\",\"distinct_id\":\"\\t\"", "distinct_id is missing");
    drops(",\"event\":\"x\",\"distinct_id\":\"d\"", "timestamp must be a time of RFC 3339");
    drops(",\"event\":\"x\",\"distinct_id\":\"d\",\"timestamp\":1796036400",
          "timestamp must be a time of RFC 3339");
    drops(",\"event\":\"x\",\"distinct_id\":\"d\",\"timestamp\":\"2026-11-30\"",
          "timestamp must be a time of RFC 3339");
    drops(",\"event\":\"x\",\"properties\":[]", "properties must be an object");
    drops(",\"event\":\"x\",\"options\":[]", "options must be an object");
    drops(",\"event\":\"x\",\"options\":{\"cookieless_mode\":1}",
          "options.cookieless_mode must be true or false");
    drops(",\"event\":\"x\",\"options\":{\"disable_skew_correction\":\"no\"}",
          "options.disable_skew_correction must be true or false");
    (void)snprintf(name, sizeof name, ",\"event\":\"%0201d\"", 7);
    drops(name, "event has more than 200 characters");
    (void)snprintf(name, sizeof name, ",\"event\":\"x\",\"distinct_id\":\"%0201d\"", 7);
    drops(name, "distinct_id has more than 200 characters");
    (void)snprintf(name, sizeof name,
                   OF("{\"event\":\"%0200d\",\"uuid\":\"" U1 "\",\"distinct_id\":\"d\"," AT "}"),
                   7);
    (void)take(name);
    parse_end(&p);
}

static void test_options(void **state)
{
    (void)state;
    /* Cookieless: nobody is named, whatever is there. */
    assert_text(take(OF(WITH(U1, ",\"options\":{\"cookieless_mode\":true}")))->distinct_id,
                "$posthog_cookieless");
    parse_end(&p);
    assert_text(take(OF("{\"event\":\"x\",\"uuid\":\"" U1 "\"," AT
                        ",\"options\":{\"cookieless_mode\":true}}"))
                    ->distinct_id,
                "$posthog_cookieless");
    parse_end(&p);
    assert_text(
        take(OF(WITH(U1,
                     ",\"options\":{\"cookieless_mode\":false,\"process_person_profile\":false}")))
            ->distinct_id,
        "d");
    parse_end(&p);
    /* Ids that mean nobody are taken. */
    assert_text(
        take(OF("{\"event\":\"x\",\"uuid\":\"" U1 "\",\"distinct_id\":\"anonymous\"," AT "}"))
            ->distinct_id,
        "anonymous");
    parse_end(&p);
}

/* The client's clock is an hour ahead: PostHog-Request-Timestamp tells. */
static void test_skew(void **state)
{
    static const char *const bodies[] = {
        OF(WITH(U1, "")), OF(WITH(U1, ",\"options\":{\"disable_skew_correction\":true}"))};
    (void)state;
    for (int i = 0; i < 2; i++) {
        parse_begin(&p, CAPTURE_POSTHOG_V1, "");
        p.b.head_sent_at_ms = NOW_MS + 3600000;
        assert_int_equal(parse_text(&p, posthog_v1_parse, bodies[i]), 0);
        const struct queue_event *q = &p.b.event[0].ev;
        assert_int_equal(q->timestamp_us, (NOW_MS - 750 - (i == 0 ? 3600000 : 0)) * 1000);
        assert_text(q->time_note, i == 0 ? "skew_corrected" : "");
        assert_int_equal(q->sent_at_ms, NOW_MS + 3600000);
        assert_int_equal(q->timestamp_sent_us, (NOW_MS - 750) * 1000);
        parse_end(&p);
    }
}

static void test_too_many(void **state)
{
    (void)state;
    parse_begin(&p, CAPTURE_POSTHOG_V1, "");
    p.c.options.batch_events_max = 1;
    assert_int_equal(parse_text(&p, posthog_v1_parse, OF(WITH(U1, "") "," WITH(U2, ""))),
                     ERR_TOO_MANY_EVENTS);
    parse_end(&p);
}

static void test_no_memory(void **state)
{
    static const char body[] =
        OF("{\"event\":\"\\u0061\",\"uuid\":\"\\u0030"
           "1890a5d-ac96-774b-bcce-b302099a8057\",\"distinct_id\":\"\\u0000\","
           "\"timestamp\":\"2026\\u002d11-30T12:00:00Z\",\"session_id\":\"\\n\"}");
    int last = ERR_NO_MEMORY;
    size_t refused = 0;
    size_t other = 0;
    (void)state;
    for (size_t limit = 1; last != 0; limit += 8) {
        parse_begin(&p, CAPTURE_POSTHOG_V1, "");
        arena_init(&p.b.arena, limit);
        last = parse_text(&p, posthog_v1_parse, body);
        refused += last == ERR_NO_MEMORY ? 1 : 0;
        other += last != ERR_NO_MEMORY && last != 0 ? 1 : 0;
        if (last == 0 && p.b.event[0].outcome != CAPTURE_STORED) {
            fail_msg("dropped for want of memory: %s", p.b.event[0].reason);
        }
        parse_end(&p);
        assert_true(limit < 100000);
    }
    assert_true(refused > 5);
    assert_int_equal(other, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_event),       cmocka_unit_test(test_batches_refused),
        cmocka_unit_test(test_events_dropped), cmocka_unit_test(test_options),
        cmocka_unit_test(test_skew),           cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
