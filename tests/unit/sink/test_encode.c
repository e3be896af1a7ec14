/* clickhouse_encode: every column, what becomes of properties and context, times, mending, raw. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/events_schema.h"
#include "sink/clickhouse.h"
#include "json/read.h"
#include "json/tolerant.h"

static struct queue_row row_of(const char *type, const char *text)
{
    struct queue_row row = {.id = 7, .project = SLICE("demo")};
    row.ev = (struct queue_event){.project = 1,
                                  .received_ms = INT64_C(1793000000123),
                                  .timestamp_us = INT64_C(1793000000123456),
                                  .type = slice_cstr(type),
                                  .event = SLICE("signed up"),
                                  .distinct_id = SLICE("kim"),
                                  .source = SLICE("web"),
                                  .text = slice_cstr(text)};
    for (int i = 0; i < 16; i++) {
        row.ev.uuid.byte[i] = (uint8_t)(i * 17);
    }
    return row;
}

static void encode(const struct queue_row *row, struct buf *out)
{
    struct err e = {0};
    buf_clear(out);
    assert_int_equal(clickhouse_encode_row(row, out, &e), 0);
    assert_true(out->len > 2);
    assert_int_equal(out->ptr[out->len - 1], '\n');
    assert_null(memchr(out->ptr, '\n', out->len - 1));
}

/* A member of the line as plain text; strings are unescaped. */
static const char *member(const struct buf *line, const char *name)
{
    static struct buf text;
    struct slice v;
    struct slice inner;
    assert_true(json_member(buf_slice(line), slice_cstr(name), &v));
    buf_clear(&text);
    if (json_string_raw(v, &inner)) {
        json_unescape(inner, &text);
    } else {
        buf_put_slice(&text, v);
    }
    buf_put_char(&text, '\0');
    return text.ptr;
}

static void expect(const char *type, const char *text, const char *properties, const char *context)
{
    struct buf out = {0};
    struct queue_row row = row_of(type, text);
    encode(&row, &out);
    assert_string_equal(member(&out, "properties"), properties);
    assert_string_equal(member(&out, "context"), context);
    assert_string_equal(member(&out, "raw"), "");
    buf_free(&out);
}

static void test_columns(void **state)
{
    struct buf out = {0};
    struct queue_row row = row_of("capture", "{\"properties\":{\"a\":1}}");
    (void)state;
    row.ev.has_sent_at = true;
    row.ev.sent_at_ms = 1793000000456;
    row.ev.time_note = SLICE("skew");
    row.ev.anonymous_id = SLICE("anon");
    row.ev.session_id = SLICE("s1");
    row.ev.message_id = SLICE("m\"1\\\n");
    row.ev.library = SLICE("posthog-js");
    row.ev.library_version = SLICE("1.2");
    encode(&row, &out);
    static const char *const want[][2] = {{"project", "demo"},
                                          {"uuid", "00112233-4455-6677-8899-aabbccddeeff"},
                                          {"revision", "0"},
                                          {"is_deleted", "0"},
                                          {"event_id", "7"},
                                          {"received_at", "2026-10-26 07:33:20.123"},
                                          {"timestamp", "2026-10-26 07:33:20.123456"},
                                          {"timestamp_sent", "null"},
                                          {"sent_at", "2026-10-26 07:33:20.456"},
                                          {"time_note", "skew"},
                                          {"type", "capture"},
                                          {"event", "signed up"},
                                          {"distinct_id", "kim"},
                                          {"anonymous_id", "anon"},
                                          {"session_id", "s1"},
                                          {"source", "web"},
                                          {"message_id", "m\"1\\\n"},
                                          {"library", "posthog-js"},
                                          {"library_version", "1.2"},
                                          {"properties", "{\"a\":1}"},
                                          {"context", "{}"},
                                          {"raw", ""}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_string_equal(member(&out, want[i][0]), want[i][1]);
    }
    /* C26: every column of the table is given but the two of corrections, and no other. */
    size_t members = 0;
    struct json_iter it = json_iter_object(buf_slice(&out));
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        members++;
    }
    assert_false(it.bad);
    static const char *const columns[] = {
#define X(n, t) n,
        EVENTS_COLUMNS(X)
#undef X
    };
    assert_int_equal(members, sizeof columns / sizeof columns[0] - 2);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        bool given = json_member(buf_slice(&out), slice_cstr(columns[i]), &value);
        bool correction =
            strcmp(columns[i], "original") == 0 || strcmp(columns[i], "corrected_at") == 0;
        assert_int_equal(given, !correction);
    }
    buf_free(&out);
}

static void test_posthog(void **state)
{
    (void)state;
    expect("capture", "{}", "{}", "{}");
    expect("capture", "{\"event\":\"x\",\"properties\":{ \"a\" : [1, 2] }}", "{ \"a\" : [1, 2] }",
           "{}");
    expect("capture", "{\"properties\":{\"a\":1},\"$set\":{\"b\":2},\"$unset\":[\"c\"]}",
           "{\"a\":1,\"$set\":{\"b\":2},\"$unset\":[\"c\"]}", "{}");
    expect("capture", "{\"$set_once\":{\"d\":1},\"properties\":{}}", "{\"$set_once\":{\"d\":1}}",
           "{}");
    expect("capture", "{\"$set\":{\"d\":1}}", "{\"$set\":{\"d\":1}}", "{}");
    /* the event's own member wins */
    expect("capture", "{\"properties\":{\"$set\":{\"a\":1}},\"$set\":{\"a\":2},\"$set_once\":{}}",
           "{\"$set\":{\"a\":1},\"$set_once\":{}}", "{}");
    expect("capture", "{\"properties\":{\"a\":1},\"$set\":null}", "{\"a\":1}", "{}");
    expect("capture", "{\"properties\":{\"a\":1},\"window_id\":\"w\"}",
           "{\"a\":1,\"$window_id\":\"w\"}", "{}");
    /* escaped spellings of the names are the same names */
    expect("capture", "{\"prop\\u0065rties\":{\"a\":1}}", "{\"a\":1}", "{}");
    /* not objects */
    expect("capture", "{\"properties\":[1],\"context\":\"x\"}", "{}", "{}");
    expect("capture", "{\"properties\":null}", "{}", "{}");
}

static void test_segment_and_native(void **state)
{
    (void)state;
    expect("track", "{\"properties\":{\"a\":1},\"traits\":{\"b\":1},\"context\":{\"ip\":\"x\"}}",
           "{\"a\":1}", "{\"ip\":\"x\"}");
    expect("identify", "{\"traits\":{\"b\":1},\"properties\":{\"a\":1}}", "{\"b\":1}", "{}");
    expect("identify", "{\"properties\":{\"a\":1}}", "{\"a\":1}", "{}");
    expect("group", "{\"traits\":{\"b\":1},\"groupId\":\"g\"}", "{\"b\":1,\"groupId\":\"g\"}",
           "{}");
    expect("alias", "{\"previousId\":\"old\",\"userId\":\"new\"}", "{\"previousId\":\"old\"}",
           "{}");
    expect("page", "{\"name\":\"Home\",\"category\":\"Docs\",\"properties\":{\"url\":\"/\"}}",
           "{\"url\":\"/\",\"category\":\"Docs\"}", "{}");
    expect("screen", "{\"category\":null,\"properties\":{\"a\":1}}", "{\"a\":1}", "{}");
    expect("native", "{\"properties\":{\"$set\":1},\"$set\":2,\"context\":{\"a\":{}}}",
           "{\"$set\":1}", "{\"a\":{}}");
}

static void expect_context(const char *text, const char *envelope, const char *context)
{
    struct buf out = {0};
    struct queue_row row = row_of("track", text);
    row.ev.envelope = slice_cstr(envelope);
    encode(&row, &out);
    assert_string_equal(member(&out, "context"), context);
    buf_free(&out);
}

static void test_envelope(void **state)
{
    (void)state;
    expect_context("{}", "", "{}");
    expect_context("{}", "{}", "{}");
    expect_context("{}", "{\"context\":{\"a\":1}}", "{\"a\":1}");
    expect_context("{\"context\":{}}", "{\"context\":{\"a\":1,\"b\":2}}", "{\"a\":1,\"b\":2}");
    expect_context("{\"context\":{\"a\":9}}", "{\"context\":{\"a\":1,\"b\":2},\"integrations\":{}}",
                   "{\"a\":9,\"b\":2}");
    expect_context("{\"context\":{\"a\":9}}", "{\"context\":{\"\\u0061\":1}}", "{\"a\":9}");
    expect_context("{\"context\":{\"\\u0061\":9}}", "{\"context\":{\"a\":1}}", "{\"\\u0061\":9}");
    expect_context("{\"context\":{\"a\":9}}", "{\"context\":7}", "{\"a\":9}");
    expect_context("{\"context\":{\"a\":9}}", "nonsense", "{\"a\":9}");
}

/* Numbers keep their digits: they are text inside a String. */
static void put_names(struct buf *out, const char *what, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        buf_printf(out, "%s\"n%06d\":\"%s\"", i == from ? "" : ",", i, what);
    }
}

/* Contexts with very many names, of which some are in both, one of them spelt otherwise: the item's
 * win, and it does not take time by the square. */
static void test_large_contexts(void **state)
{
    enum { NAMES = 40000, SHARED = 10000 };
    struct queue_row row = row_of("track", "");
    struct buf text = {0};
    struct buf envelope = {0};
    struct buf out = {0};
    struct slice name;
    struct slice value;
    size_t of_item = 0;
    size_t of_batch = 0;
    (void)state;
    buf_put_cstr(&text, "{\"context\":{\"\\u006e000000\":\"item\",");
    put_names(&text, "item", 1, NAMES - 1);
    buf_put_cstr(&text, "}}");
    buf_put_cstr(&envelope, "{\"context\":{");
    put_names(&envelope, "b", 0, SHARED);
    buf_put_cstr(&envelope, ",");
    put_names(&envelope, "batch", NAMES, NAMES);
    buf_put_cstr(&envelope, "}}");
    row.ev.text = buf_slice(&text);
    row.ev.envelope = buf_slice(&envelope);
    clock_t before = clock();
    encode(&row, &out);
    assert_true(clock() - before < 2 * CLOCKS_PER_SEC);
    struct slice context = slice_cstr(member(&out, "context"));
    unsigned flaws;
    struct err e = {0};
    assert_int_equal(json_flaws(context, &flaws, &e), 0);
    assert_int_equal(flaws, 0);
    struct json_iter it = json_iter_object(context);
    while (json_next_member(&it, &name, &value)) {
        of_item += slice_eq(value, SLICE("\"item\""));
        of_batch += slice_eq(value, SLICE("\"batch\""));
    }
    assert_int_equal(of_item, NAMES);
    assert_int_equal(of_batch, NAMES);
    assert_string_equal(member(&out, "raw"), "");
    /* One without members. */
    buf_clear(&text);
    buf_put_cstr(&text, "{\"context\":{");
    for (int i = 0; i < 4000; i++) {
        buf_put_cstr(&text, "        ");
    }
    buf_put_cstr(&text, "}}");
    row.ev.text = buf_slice(&text);
    encode(&row, &out);
    context = slice_cstr(member(&out, "context"));
    assert_int_equal(json_flaws(context, &flaws, &e), 0);
    assert_true(json_member(context, SLICE("n000000"), &value));
    assert_true(slice_eq(value, SLICE("\"b\"")));
    buf_free(&text);
    buf_free(&envelope);
    buf_free(&out);
}

static void test_c26_numbers(void **state)
{
    static const char text[] = "{\"n\":9223372036854775808,\"m\":-0,\"z\":\"007\",\"f\":1.10,"
                               "\"big\":18446744073709551615,\"e\":1E2,\"nul\":null}";
    char event[256];
    (void)state;
    (void)snprintf(event, sizeof event, "{\"properties\":%s}", text);
    expect("capture", event, text, "{}");
}

static void test_mended(void **state)
{
    static const struct {
        struct slice text;
        const char *properties;
    } cases[] = {
        {SLICE("{\"properties\":{\"a\":\"\\ud800\"}}"), "{\"a\":\"\xEF\xBF\xBD\"}"},
        {SLICE("{\"properties\":{\"a\":\"\xff\"}}"), "{\"a\":\"\xEF\xBF\xBD\"}"},
        {SLICE("{\"properties\":{\"a\":1,\"a\":2}}"), "{\"a\":2}"},
        {SLICE("{\"properties\":{\"a\":1},\"properties\":{\"b\":2}}"), "{\"b\":2}"},
        {SLICE("{\"properties\":{\"a\":\"x\ty\"}}"), NULL},
        {SLICE("{\"properties\":{\"a\":\"x\0y\"}}"), NULL},
        {SLICE("{\"properties\":{\"a\":1e999}}"), "{\"a\":\"1e999\"}"},
        {SLICE("{\"properties\":{\"a\":18446744073709551616}}"),
         "{\"a\":\"18446744073709551616\"}"},
        {SLICE("{\"event\":\"\\udc00\",\"properties\":{}}"), "{}"},
    };
    struct buf out = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct queue_row row = row_of("capture", "");
        struct slice v;
        struct slice inner;
        struct slice value;
        struct buf raw = {0};
        struct err e = {0};
        row.ev.text = cases[i].text;
        encode(&row, &out);
        if (cases[i].properties != NULL) {
            assert_string_equal(member(&out, "properties"), cases[i].properties);
        }
        /* raw: the text, byte for byte */
        assert_true(json_member(buf_slice(&out), SLICE("raw"), &v));
        assert_true(json_string_raw(v, &inner));
        for (size_t j = 0; j < inner.len; j++) { /* unescape by hand: bytes, not UTF-8 */
            char c = inner.ptr[j];
            if (c == '\\' && inner.ptr[j + 1] == 'u') {
                c = (char)strtol((char[]){inner.ptr[j + 4], inner.ptr[j + 5], 0}, NULL, 16);
                j += 5;
            } else if (c == '\\') {
                j++;
                c = inner.ptr[j];
            }
            buf_put_char(&raw, c);
        }
        assert_true(slice_eq(buf_slice(&raw), cases[i].text));
        /* properties: strict JSON */
        const char *p = member(&out, "properties");
        unsigned flaws = 0;
        assert_int_equal(json_tolerant_check(slice_cstr(p), &value, &e), 0);
        assert_int_equal(json_flaws(value, &flaws, &e), 0);
        assert_int_equal(flaws & ~(unsigned)(JSON_FLAW_NUL | JSON_FLAW_NUMBER), 0);
        buf_free(&raw);
    }
    buf_free(&out);
}

/* What stays as it is is no reason for raw. */
static void test_not_mended(void **state)
{
    (void)state;
    expect("capture", "{\"properties\":{\"a\":\"\\u0000\"}}", "{\"a\":\"\\u0000\"}", "{}");
    expect("capture", "{\"properties\":{\"a\":\"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}}",
           "{\"a\":\"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}", "{}");
    expect("capture", " {\"properties\": {} } ", "{}", "{}");
}

/* Damage on our own disk does not hold up the queue. */
static void test_text_that_is_no_json(void **state)
{
    static const char *const texts[] = {"{\"a\":", "nonsense", "\"just a string\"", "[1]", "\x01"};
    struct buf out = {0};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct queue_row row = row_of("capture", texts[i]);
        encode(&row, &out);
        assert_string_equal(member(&out, "properties"), "{}");
        assert_string_equal(member(&out, "event"), "signed up");
        bool json = i == 2 || i == 3;
        assert_string_equal(member(&out, "raw"), json ? "" : texts[i]);
    }
    buf_free(&out);
}

static void test_times(void **state)
{
    static const struct {
        int64_t us;
        const char *text;
    } cases[] = {{0, "1970-01-01 00:00:00.000000"},
                 {-1, "1969-12-31 23:59:59.999999"},
                 {INT64_C(-2208988800000000), "1900-01-01 00:00:00.000000"},
                 {INT64_C(-2208988800000001), "1900-01-01 00:00:00.000000"},
                 {INT64_MIN, "1900-01-01 00:00:00.000000"},
                 {INT64_C(10413791999999999), "2299-12-31 23:59:59.999999"},
                 {INT64_C(10413792000000000), "2299-12-31 23:59:59.999999"},
                 {INT64_MAX, "2299-12-31 23:59:59.999999"},
                 {INT64_C(951782400000000), "2000-02-29 00:00:00.000000"},
                 {INT64_C(4107542400000000), "2100-03-01 00:00:00.000000"},
                 {INT64_C(-2203891200000000), "1900-03-01 00:00:00.000000"},
                 {INT64_C(4294967296000001), "2106-02-07 06:28:16.000001"}};
    struct buf out = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct queue_row row = row_of("capture", "{}");
        row.ev.timestamp_us = cases[i].us;
        row.ev.has_timestamp_sent = true;
        row.ev.timestamp_sent_us = cases[i].us;
        row.ev.received_ms = cases[i].us / 1000;
        encode(&row, &out);
        assert_string_equal(member(&out, "timestamp"), cases[i].text);
        assert_string_equal(member(&out, "timestamp_sent"), cases[i].text);
    }
    struct queue_row row = row_of("capture", "{}");
    row.ev.received_ms = INT64_MAX;
    row.ev.has_sent_at = true;
    row.ev.sent_at_ms = INT64_MIN;
    encode(&row, &out);
    assert_string_equal(member(&out, "received_at"), "2299-12-31 23:59:59.999");
    assert_string_equal(member(&out, "sent_at"), "1900-01-01 00:00:00.000");
    buf_free(&out);
}

/* Every line is strict JSON whatever is in the columns. */
static void test_hostile_columns(void **state)
{
    char all[256];
    struct buf out = {0};
    (void)state;
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
    }
    struct queue_row row = row_of("capture", "{}");
    row.ev.distinct_id = slice_of(all, sizeof all);
    row.ev.event = row.ev.distinct_id;
    row.ev.library = row.ev.distinct_id;
    encode(&row, &out);
    struct slice value;
    unsigned flaws = 0;
    struct err e = {0};
    assert_int_equal(json_tolerant_check(buf_slice(&out), &value, &e), 0);
    assert_int_equal(json_flaws(value, &flaws, &e), 0);
    assert_int_equal(flaws & ~(unsigned)JSON_FLAW_NUL, 0);
    buf_free(&out);
}

/* A limited output is an error, never half a row taken for a whole one. */
static void test_no_memory(void **state)
{
    struct queue_row row = row_of("capture", "{\"properties\":{\"a\":1},\"$set\":{}}");
    struct buf whole = {0};
    struct err e = {0};
    (void)state;
    encode(&row, &whole);
    for (size_t limit = 1; limit < whole.len; limit += 7) {
        struct buf out;
        buf_init(&out, limit);
        assert_int_equal(clickhouse_encode_row(&row, &out, &e), ERR_NO_MEMORY);
        buf_free(&out);
    }
    buf_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_columns),
                                       cmocka_unit_test(test_posthog),
                                       cmocka_unit_test(test_segment_and_native),
                                       cmocka_unit_test(test_envelope),
                                       cmocka_unit_test(test_large_contexts),
                                       cmocka_unit_test(test_c26_numbers),
                                       cmocka_unit_test(test_mended),
                                       cmocka_unit_test(test_not_mended),
                                       cmocka_unit_test(test_text_that_is_no_json),
                                       cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_hostile_columns),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
