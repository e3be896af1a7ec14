/* parse_batch, rule by rule (spec/history.md sections 2 to 6): what is accepted, the hashes, the
 * code of each refusal, their order, the indices of bad events. */
#include "tests/unit/door/parse_fixture.h"

static void assert_digest(const uint8_t digest[SHA256_LEN], const char *want)
{
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, digest, SHA256_LEN);
    assert_text(slice_of(hex, sizeof hex), want);
}

struct refusal {
    const char *body;
    int code;
    const char *says; /* part of the message, or of the list of bad events */
};

static void refuse_all(struct fixture *f, const struct refusal *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int r = give(f, slice_cstr(cases[i].body), PLENTY);
        if (r != cases[i].code) {
            fail_msg("%s: %s, not %s (%s)", cases[i].body, err_name(r), err_name(cases[i].code),
                     f->e.text);
        }
        bool said = strstr(f->e.text, cases[i].says) != NULL ||
                    (f->extra.len > 0 && memmem(f->extra.ptr, f->extra.len, cases[i].says,
                                                strlen(cases[i].says)) != NULL);
        if (!said) {
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].body, f->e.text, cases[i].says);
        }
        expect_good(f);
    }
}

#define REFUSE_ALL(f, cases) refuse_all(f, cases, sizeof(cases) / sizeof *(cases))

/* ---- what is accepted ---- */

static void test_accepted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        give(
            f,
            SLICE(" {\"events\":[{\"payload\":{\"b\":1.0,\"\\u0061\":\"\\/\"},\"stream\":\"s.1-_\","
                  "\"kind\":\"\\u0075\",\"record_key\":\"k\\u0000\\u00fc\","
                  "\"occurred_at\":\"2024-02-29T23:59:59.5Z\"}," EVENT "],\"v\":1e0,"
                  "\"source\":\"_a.b-9\",\"batch_id\":\"\\u0062/\\n\"}\r\n"),
            PLENTY),
        0);
    const struct journal_batch *b = &f->batch;
    assert_text(b->batch_id, "\"b/\\n\"");
    assert_text(b->source, "\"_a.b-9\"");
    assert_int_equal(b->count, 2);
    assert_text(b->events[0].payload, "{\"a\":\"/\",\"b\":1}");
    assert_text(b->events[0].stream, "\"s.1-_\"");
    assert_text(b->events[0].kind, "\"u\"");
    assert_text(b->events[0].record_key, "\"k\\u0000ü\"");
    assert_text(b->events[0].occurred_at, "\"2024-02-29T23:59:59.5Z\"");
    assert_int_equal(b->events[1].occurred_at.len, 0);
    expect_good(f);
}

static void test_every_payload_type(void **state)
{
    struct fixture *f = *state;
    static const char *const payloads[] = {"null", "true", "false", "0", "\"\"", "[]", "{}"};
    char body[300];
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
        (void)snprintf(body, sizeof body,
                       OF("{\"stream\":\"s\",\"record_key\":\"k\",\"kind\":\"u\",\"payload\":%s}"),
                       payloads[i]);
        assert_int_equal(give(f, slice_cstr(body), PLENTY), 0);
        assert_text(f->batch.events[0].payload, payloads[i]);
    }
}

static void test_version_one_in_every_spelling(void **state)
{
    struct fixture *f = *state;
    static const char *const good[] = {WITH("\"v\":1"), WITH("\"v\":1.0"), WITH("\"v\":1e0"),
                                       WITH("\"v\":10e-1"), WITH("\"v\":0.1E+1")};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(give(f, slice_cstr(good[i]), PLENTY), 0);
    }
}

static void test_precondition(void **state)
{
    struct fixture *f = *state;
    struct uuid id;
    assert_true(uuid7_parse(SLICE(ID), &id));
    assert_int_equal(give(f,
                          SLICE(WITH("\"stream_precondition\":{\"stream\":\"\\u0073\","
                                     "\"expected_frontier\":\"" ID "\"}")),
                          PLENTY),
                     0);
    assert_true(f->batch.has_precondition);
    assert_false(f->batch.expect_none);
    assert_text(f->batch.precondition_stream, "\"s\"");
    assert_int_equal(uuid_cmp(&f->batch.expected_frontier, &id), 0);
    assert_int_equal(give(f,
                          SLICE(WITH("\"stream_precondition\":{\"stream\":\"s\","
                                     "\"expected_frontier\":null}")),
                          PLENTY),
                     0);
    assert_true(f->batch.has_precondition);
    assert_true(f->batch.expect_none);
    expect_good(f);
}

/* ---- hashes ---- */

static void test_digest_known_answers(void **state)
{
    struct fixture *f = *state;
    static const char *const spelled[] = {
        "{\"v\":1,\"batch_id\":\"batch\",\"source\":\"source\",\"events\":[{\"stream\":\"stream\","
        "\"record_key\":\"key\",\"kind\":\"upserted\",\"payload\":1}]}",
        "{\"source\":\"source\",\"events\":[{\"payload\":1.0,\"kind\":\"upserted\",\"record_key\":"
        "\"key\",\"stream\":\"stream\"}],\"batch_id\":\"another\",\"stream_precondition\":"
        "{\"stream\":\"stream\",\"expected_frontier\":null}}"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(give(f, slice_cstr(spelled[i]), PLENTY), 0);
        assert_digest(f->batch.digest,
                      "f2f766e2c9baa046927f9af5d77685f3e54be212175f40cbff12342d8e272ec4");
    }
    assert_int_equal(
        give(f,
             SLICE(OF("{\"stream\":\"s\",\"record_key\":\"k\",\"kind\":\"u\",\"payload\":{\"id\":"
                      "\"cus_1\",\"email\":\"kim@example.com\",\"balance\":12.50}}")),
             PLENTY),
        0);
    assert_digest(f->batch.events[0].content_hash,
                  "1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6");
}

/* The formula, over text written by hand: order of events, occurred_at only where it was sent. */
static void test_digest_formula(void **state)
{
    struct fixture *f = *state;
    uint8_t one[SHA256_LEN];
    uint8_t two[SHA256_LEN];
    uint8_t want[SHA256_LEN];
    char hex_one[SHA256_HEX_LEN];
    char hex_two[SHA256_HEX_LEN];
    char text[1000];
    sha256_once(SLICE("[1,2]"), one);
    sha256_once(SLICE("\"ü\""), two);
    hex_encode(hex_one, one, SHA256_LEN);
    hex_encode(hex_two, two, SHA256_LEN);
    int n = snprintf(text, sizeof text,
                     "{\"events\":[{\"content_hash\":\"%.64s\",\"kind\":\"a\",\"occurred_at\":"
                     "\"2024-01-01T00:00:00.500Z\",\"record_key\":\"x\",\"stream\":\"s\"},"
                     "{\"content_hash\":\"%.64s\",\"kind\":\"b\",\"record_key\":\"y\","
                     "\"stream\":\"t\"}],\"source\":\"src\",\"v\":1}",
                     hex_one, hex_two);
    sha256_once(slice_of(text, (size_t)n), want);
    assert_int_equal(give(f,
                          SLICE(OF("{\"stream\":\"s\",\"record_key\":\"x\",\"kind\":\"a\","
                                   "\"payload\":[1, 2],\"occurred_at\":"
                                   "\"2024-01-01T00:00:00.500Z\"},{\"stream\":\"t\","
                                   "\"record_key\":\"y\",\"kind\":\"b\",\"payload\":\"\\u00fc\"}")),
                          PLENTY),
                     0);
    assert_memory_equal(f->batch.digest, want, SHA256_LEN);
    assert_memory_equal(f->batch.events[0].content_hash, one, SHA256_LEN);
    assert_memory_equal(f->batch.events[1].content_hash, two, SHA256_LEN);
}

/* ---- what is refused ---- */

static void test_screen(void **state)
{
    static const struct refusal cases[] = {
        {"", ERR_INVALID_REQUEST, "at byte 0"},
        {"{", ERR_INVALID_REQUEST, "at byte 1"},
        {OF(EVENT) "{}", ERR_INVALID_REQUEST, "at byte"},
        {"\xef\xbb\xbf" OF(EVENT), ERR_INVALID_REQUEST, "at byte 0"},
        {WITH("\"batch_id\":\"c\""), ERR_INVALID_REQUEST, "in batch_id"},
        {WITH("\"v\":1,\"\\u0076\":1"), ERR_INVALID_REQUEST, "in v"},
        {WITH("\"v\":01"), ERR_INVALID_REQUEST, "not acceptable"},
        {WITH("\"v\":9007199254740993"), ERR_INVALID_REQUEST, "in v"},
        {WITH("\"v\":1e999"), ERR_INVALID_REQUEST, "in v"},
        {WITH("\"v\":\"\\ud800\""), ERR_INVALID_REQUEST, "in v"},
        {WITH("\"v\":\"\xff\""), ERR_INVALID_REQUEST, "in v"},
        {OF("{\"payload\":{\"a\":1,\"a\":2}}"), ERR_INVALID_REQUEST, "in events[0].payload.a"},
    };
    REFUSE_ALL((struct fixture *)*state, cases);
    struct fixture *f = *state;
    assert_int_equal(give(f, slice_of(OF(EVENT) "\0", sizeof OF(EVENT)), PLENTY),
                     ERR_INVALID_REQUEST);
    assert_int_equal(f->e.offset, sizeof OF(EVENT) - 1);
    assert_true(f->e.has_offset);
}

static void test_envelope(void **state)
{
    static const struct refusal cases[] = {
        {"[]", ERR_INVALID_REQUEST, "object"},
        {"null", ERR_INVALID_REQUEST, "object"},
        {"{}", ERR_INVALID_REQUEST, "batch_id is missing"},
        {"{\"batch_id\":\"b\",\"events\":[]}", ERR_INVALID_REQUEST, "source is missing"},
        {"{\"batch_id\":\"b\",\"source\":\"s\"}", ERR_INVALID_REQUEST, "events is missing"},
        {"{\"batch_id\":1,\"source\":\"s\",\"events\":[]}", ERR_INVALID_REQUEST, "batch_id must"},
        {"{\"batch_id\":\"b\",\"source\":null,\"events\":[]}", ERR_INVALID_REQUEST, "source must"},
        {"{\"batch_id\":\"b\",\"source\":\"s\",\"events\":{}}", ERR_INVALID_REQUEST, "events must"},
        {WITH("\"v\":\"1\""), ERR_INVALID_REQUEST, "v must be a number"},
        {WITH("\"v\":null"), ERR_INVALID_REQUEST, "v must be a number"},
        {WITH("\"V\":1"), ERR_INVALID_REQUEST, "unknown member \"V\" in the batch"},
        {WITH("\"batch\\u0000_id\":1"), ERR_INVALID_REQUEST, "unknown member"},
        {WITH("\"stream_precondition\":null"), ERR_INVALID_REQUEST, "stream_precondition must"},
        {WITH("\"stream_precondition\":{}"), ERR_INVALID_REQUEST, "stream_precondition.stream"},
        {WITH("\"stream_precondition\":{\"stream\":\"s\"}"), ERR_INVALID_REQUEST,
         "expected_frontier is missing"},
        {WITH("\"stream_precondition\":{\"stream\":1,\"expected_frontier\":null}"),
         ERR_INVALID_REQUEST, "stream_precondition.stream must be a string"},
        {WITH("\"stream_precondition\":{\"stream\":\"s\",\"expected_frontier\":null,\"x\":1}"),
         ERR_INVALID_REQUEST, "unknown member \"x\" in stream_precondition"},
    };
    REFUSE_ALL((struct fixture *)*state, cases);
}

static void test_batch_rules(void **state)
{
#define EXPECT(v) WITH("\"stream_precondition\":{\"stream\":\"s\",\"expected_frontier\":" v "}")
    static const struct refusal cases[] = {
        {WITH("\"v\":2"), ERR_INVALID_BATCH, "v must be 1"},
        {WITH("\"v\":-1"), ERR_INVALID_BATCH, "v must be 1"},
        {WITH("\"v\":1.0000000000000002"), ERR_INVALID_BATCH, "v must be 1"},
        {OF(""), ERR_INVALID_BATCH, "events must not be empty"},
        {"{\"batch_id\":\"\",\"source\":\"s\",\"events\":[" EVENT "]}", ERR_INVALID_BATCH,
         "batch_id must have"},
        {"{\"batch_id\":\"groundhog/\",\"source\":\"s\",\"events\":[" EVENT "]}", ERR_INVALID_BATCH,
         "reserved"},
        {"{\"batch_id\":\"\\u0067roundhog\\/x\",\"source\":\"s\",\"events\":[" EVENT "]}",
         ERR_INVALID_BATCH, "reserved"},
        {"{\"batch_id\":\"b\",\"source\":\"system\",\"events\":[" EVENT "]}", ERR_INVALID_BATCH,
         "reserved"},
        {"{\"batch_id\":\"b\",\"source\":\"s\\u0079stem\",\"events\":[" EVENT "]}",
         ERR_INVALID_BATCH, "reserved"},
        {"{\"batch_id\":\"b\",\"source\":\"S\",\"events\":[" EVENT "]}", ERR_INVALID_BATCH,
         "source must match"},
        {"{\"batch_id\":\"b\",\"source\":\"a\\u0000\",\"events\":[" EVENT "]}", ERR_INVALID_BATCH,
         "source must match"},
        {EXPECT("1"), ERR_INVALID_BATCH, "expected_frontier must be"},
        {EXPECT("\"\""), ERR_INVALID_BATCH, "expected_frontier must be"},
        {EXPECT("\"01900000-0000-4000-8000-000000000001\""), ERR_INVALID_BATCH, "UUIDv7"},
        {EXPECT("\"01900000-0000-7000-8000-00000000000A\""), ERR_INVALID_BATCH, "UUIDv7"},
        {WITH("\"stream_precondition\":{\"stream\":\"S\",\"expected_frontier\":null}"),
         ERR_INVALID_BATCH, "no stream name"},
        {WITH("\"stream_precondition\":{\"stream\":\"t\",\"expected_frontier\":null}"),
         ERR_INVALID_BATCH, "every event must use the stream"},
    };
#undef EXPECT
    REFUSE_ALL((struct fixture *)*state, cases);
    struct fixture *f = *state;
    assert_int_equal(give(f,
                          SLICE("{\"batch_id\":\"groundhog\",\"source\":\"systems\",\"events\":"
                                "[" EVENT "]}"),
                          PLENTY),
                     0);
}

#define PART(stream, key, kind) \
    "\"stream\":" stream ",\"record_key\":" key ",\"kind\":" kind ",\"payload\":1"

static void test_event_rules(void **state)
{
#define AT(text) OF("{\"occurred_at\":" text "," PART("\"s\"", "\"k\"", "\"u\"") "}")
#define ERR_EV   ERR_INVALID_EVENTS
    static const struct refusal cases[] = {
        {OF("1"), ERR_EV, "must be an object"},
        {OF("[]"), ERR_EV, "must be an object"},
        {OF("{}"), ERR_EV, "stream is missing"},
        {OF("{\"stream\":\"s\"}"), ERR_EV, "record_key is missing"},
        {OF("{\"stream\":\"s\",\"record_key\":\"k\"}"), ERR_EV, "kind is missing"},
        {OF("{\"stream\":\"s\",\"record_key\":\"k\",\"kind\":\"u\"}"), ERR_EV, "payload is"},
        {OF("{\"extra\":1," PART("\"s\"", "\"k\"", "\"u\"") "}"), ERR_EV, "an event has only"},
        {OF("{\"\":1," PART("\"s\"", "\"k\"", "\"u\"") "}"), ERR_EV, "an event has only"},
        {OF("{\"zzz\":1," PART("\"s\"", "\"k\"", "\"u\"") "}"), ERR_EV, "an event has only"},
        {OF("{" PART("1", "\"k\"", "\"u\"") "}"), ERR_EV, "stream must be a string"},
        {OF("{" PART("\"\"", "\"k\"", "\"u\"") "}"), ERR_EV, "stream must be a string"},
        {OF("{" PART("\".s\"", "\"k\"", "\"u\"") "}"), ERR_EV, "stream must be a string"},
        {OF("{" PART("\"s\"", "1", "\"u\"") "}"), ERR_EV, "record_key must be"},
        {OF("{" PART("\"s\"", "\"\"", "\"u\"") "}"), ERR_EV, "record_key must be"},
        {OF("{" PART("\"s\"", "\"k\"", "null") "}"), ERR_EV, "kind must be"},
        {OF("{" PART("\"s\"", "\"k\"", "\"\"") "}"), ERR_EV, "kind must be"},
        {AT("null"), ERR_EV, "occurred_at must be"},
        {AT("1"), ERR_EV, "occurred_at must be"},
        {AT("\"2023-02-29T00:00:00Z\""), ERR_EV, "occurred_at must be"},
        {AT("\"2016-12-31T23:59:60Z\""), ERR_EV, "occurred_at must be"},
        {AT("\"2018-02-14T00:28:07.Z\""), ERR_EV, "occurred_at must be"},
        {AT("\"2018-02-14T00:28:07.1234567890Z\""), ERR_EV, "occurred_at must be"},
        {AT("\"2018-02-14T00:28:07+00:00\""), ERR_EV, "occurred_at must be"},
        {AT("\"2018-02-14T00:28:07\\u005a \""), ERR_EV, "occurred_at must be"},
        {OF(EVENT ",2," EVENT ",{}"), ERR_EV,
         "\"errors\":[{\"index\":1,\"code\":\"invalid_event\",\"message\":\"an event must be an "
         "object\"},{\"index\":3,\"code\":\"invalid_event\",\"message\":\"stream is missing\"}]"},
        {OF(EVENT ",2," EVENT ",{}"), ERR_EV, "2 invalid events; event 1: an event must"},
    };
#undef ERR_EV
#undef AT
    REFUSE_ALL((struct fixture *)*state, cases);
    struct fixture *f = *state;
    assert_int_equal(
        give(f, SLICE(OF("{" PART("\"groundhog.source_lifecycle\"", "\"k\"", "\"u\"") "}")),
             PLENTY),
        0);
}

/* A body with a fault of every stage; each further one lacks the fault that was answered. A list of
 * bad events that was begun must not stay in the answer of another code. */
static void test_order_of_stages(void **state)
{
    static const struct refusal cases[] = {
        {"{\"v\":2,\"x\":1,\"batch_id\":\"b\",\"source\":\"s\",\"events\":[{\"a\":1,\"a\":1},"
         "{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "},{}]}",
         ERR_INVALID_REQUEST, "not acceptable JSON"},
        {"{\"v\":2,\"x\":1,\"batch_id\":\"b\",\"source\":\"s\",\"events\":["
         "{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "},{}]}",
         ERR_INVALID_REQUEST, "unknown member \"x\""},
        {"{\"v\":2,\"batch_id\":\"b\",\"source\":\"s\",\"stream_precondition\":{\"y\":1},"
         "\"events\":[{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "},{}]}",
         ERR_INVALID_REQUEST, "unknown member \"y\""},
        {"{\"v\":2,\"batch_id\":\"b\",\"source\":\"s\",\"events\":["
         "{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "},{}]}",
         ERR_INVALID_BATCH, "v must be 1"},
        {"{\"batch_id\":\"b\",\"source\":\"s\",\"stream_precondition\":{\"stream\":\"t\","
         "\"expected_frontier\":null},\"events\":[{}," EVENT ",{}]}",
         ERR_INVALID_BATCH, "every event must use the stream"},
        {"{\"batch_id\":\"b\",\"source\":\"s\",\"events\":["
         "{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "},{}]}",
         ERR_INVALID_EVENTS, "{\"index\":1,"},
    };
    REFUSE_ALL((struct fixture *)*state, cases);
}

/* Lineage markers: found under every spelling of their stream; a flaw is noted and not answered
 * here. `at` says which of the events it is. */
static void test_markers(void **state)
{
#define MARK(more, payload)                                                           \
    "{\"stream\":\"groundhog.source\\u005flineage\",\"record_key\":\"old\",\"kind\":" \
    "\"source_succeeded\"" more ",\"payload\":" payload "}"
#define GOOD                                                    \
    MARK("", "{\"v\":1.0,\"predecessor_source\":\"\\u006fld\"," \
             "\"predecessor_final_frontier\":\"01a3185c-5000-7000-8000-000012340000\"}")
    static const struct {
        const char *body, *flaw;
    } cases[] = {
        {OF(GOOD), NULL},
        {OF(GOOD "," EVENT), NULL},
        {OF(EVENT "," GOOD), "the first event"},
        {OF(GOOD "," GOOD), "the only"},
        {OF(MARK("", "{}")), "payload"},
        {OF(MARK("", "{}") "," GOOD), "payload"},
        {OF(MARK(",\"occurred_at\":\"2026-01-01T00:00:00Z\"", "{}")), "occurred_at"},
        {OF("{" PART("\"groundhog.source_lineage\"", "\"k\"", "\"u\"") "}"), "kind"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(give(f, slice_cstr(cases[i].body), PLENTY), 0);
        assert_true(f->batch.has_marker);
        if (cases[i].flaw == NULL) {
            assert_null(f->batch.marker_flaw);
            assert_true(slice_eq(f->batch.predecessor, SLICE("\"old\"")));
            assert_int_equal(f->batch.predecessor_frontier.byte[0], 1);
        } else {
            assert_non_null(strstr(f->batch.marker_flaw, cases[i].flaw));
        }
    }
    assert_int_equal(give(f, SLICE(OF(EVENT)), PLENTY), 0);
    assert_false(f->batch.has_marker);
#undef GOOD
#undef MARK
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_accepted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_payload_type, setup, teardown),
        cmocka_unit_test_setup_teardown(test_version_one_in_every_spelling, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precondition, setup, teardown),
        cmocka_unit_test_setup_teardown(test_digest_known_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_digest_formula, setup, teardown),
        cmocka_unit_test_setup_teardown(test_screen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_envelope, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch_rules, setup, teardown),
        cmocka_unit_test_setup_teardown(test_event_rules, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order_of_stages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_markers, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
