/* test_capture_dialects: Segment's routes and the native one through the whole door: paths, keys in
 * headers and bodies, projects, receipts. What their bodies may hold is in test_segment and
 * test_native. */
#include "tests/unit/door/capture_kit.h"

static struct kit *k;

static int setup(void **state)
{
    (void)state;
    k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_free(k);
    return 0;
}

/* "Authorization: Basic " of this text, with the line end. */
static const char *basic(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char line[300];
    size_t n = (size_t)snprintf(line, sizeof line, "Authorization: Basic ");
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = 0;
        for (size_t j = 0; j < 3; j++) {
            v = v << 8 | (i + j < len ? (unsigned char)text[i + j] : 0u);
        }
        for (size_t j = 0; j < 4; j++) {
            line[n++] = i + j <= len ? digits[v >> (18 - 6 * j) & 63] : '=';
        }
    }
    (void)snprintf(line + n, sizeof line - n, "\r\n");
    return line;
}

static unsigned post(const char *target, const char *headers, const char *body)
{
    char *text = kit_text(k, body);
    unsigned status = kit_ask(k, true, "POST", target, headers, slice_cstr(text));
    free(text);
    return status;
}

/* ---- Segment ---- */

static void test_segment_paths(void **state)
{
    static const struct {
        const char *path, *type;
    } rows[] = {
        {"/v1/track", "track"},   {"/v1/t", "track"},     {"/v1/identify/", "identify"},
        {"/v1/i", "identify"},    {"/v1/page", "page"},   {"/v1/p/", "page"},
        {"/v1/screen", "screen"}, {"/v1/s", "screen"},    {"/v1/group", "group"},
        {"/v1/g", "group"},       {"/v1/alias", "alias"}, {"/v1/a", "alias"},
    };
    static const char *const batches[] = {"/v1/batch", "/v1/batch/", "/v1/import", "/v1/b",
                                          "/v1/batch/v1/batch"};
    static const char body[] = "{\"writeKey\":\"%T\",\"event\":\"x\",\"userId\":\"u\",\"groupId\":"
                               "\"g\",\"previousId\":\"p\"}";
    const size_t n = sizeof rows / sizeof rows[0];
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(post(rows[i].path, "Content-Type: text/plain\r\n", body), 200);
        assert_text(k->body, "{\"success\":true}");
    }
    struct queue_rows all = kit_rows(k);
    assert_int_equal(all.count, n);
    for (size_t i = 0; i < n; i++) {
        assert_text(all.row[i].ev.type, rows[i].type);
        assert_text(all.row[i].ev.distinct_id, "u");
    }
    queue_rows_free(&all);
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        assert_int_equal(post(batches[i], "",
                              "{\"batch\":[{\"type\":\"track\",\"event\":\"x\",\"userId\":\"u\"}],"
                              "\"writeKey\":\"%T\"}"),
                         200);
        assert_text(k->body, "{\"success\":true}");
    }
    assert_int_equal(kit_queued(k), n + sizeof batches / sizeof batches[0]);
}

static void test_segment_keys(void **state)
{
    static const char body[] = "{\"event\":\"x\",\"userId\":\"u\"}";
    static const char with_key[] = "{\"event\":\"x\",\"userId\":\"u\",\"writeKey\":\"%T\"}";
    char user[100];
    (void)state;
    (void)snprintf(user, sizeof user, "%s:", k->segment);
    assert_int_equal(post("/v1/track", basic(user), body), 200);
    assert_int_equal(post("/v1/track", basic(k->segment), body), 200); /* without its colon */
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 2);
    assert_text(rows.row[0].ev.source, "shop");
    queue_rows_free(&rows);
    /* The header goes first; an OAuth header, or one that is none, leaves it to the body. */
    assert_int_equal(post("/v1/track", basic("nobody:"), with_key), 401);
    assert_has(k->body, "{\"success\":false,\"code\":\"unauthorized\",\"message\":\"");
    assert_int_equal(post("/v1/track", "Authorization: Bearer oauth\r\n", with_key), 200);
    assert_int_equal(post("/v1/track", "Authorization: Basic !!!\r\n", with_key), 200);
    assert_int_equal(post("/v1/track", "Authorization: Basic \r\n", with_key), 200);
    assert_int_equal(post("/v1/track", basic(":x"), with_key), 200);
    assert_int_equal(post("/v1/track", "", body), 401);
    assert_int_equal(
        post("/v1/track", "", "{\"event\":\"x\",\"userId\":\"u\",\"writeKey\":\"nobody\"}"), 401);
    /* A service key is none of these. */
    assert_int_equal(post("/v1/track", basic(k->writer), with_key), 401);
    assert_has_not(buf_slice(&k->answer), k->writer);
    assert_int_equal(kit_queued(k), 6);
}

/* The message id is the identity, within project and source. */
static void test_segment_repeats(void **state)
{
    static const char body[] =
        "{\"event\":\"x\",\"userId\":\"u\",\"messageId\":\"ajs-next-1\",\"writeKey\":\"%T\"}";
    static const char uuid[] = "{\"event\":\"x\",\"userId\":\"u\",\"messageId\":\"01890a5d-ac96-"
                               "774b-bcce-b302099a8051\",\"writeKey\":\"%T\"}";
    (void)state;
    assert_int_equal(post("/v1/track", "", body), 200);
    assert_text(k->body, "{\"success\":true}");
    assert_int_equal(post("/v1/t", "X-Retry-Count: 1\r\n", body), 200);
    assert_text(k->body, "{\"success\":true,\"accepted\":0,\"duplicates\":1,\"rejected\":0}");
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_int_equal(rows.row[0].ev.uuid.byte[6] >> 4, 8);
    assert_text(rows.row[0].ev.message_id, "ajs-next-1");
    queue_rows_free(&rows);
    /* Another source is another. */
    assert_int_equal(post("/v1/track", basic(k->segment), body), 200);
    assert_text(k->body, "{\"success\":true}");
    assert_int_equal(kit_queued(k), 2);
    /* A message id that is a UUID is the one that PostHog would send. */
    assert_int_equal(post("/v1/track", "", uuid), 200);
    assert_int_equal(post("/e/", "",
                          "{\"api_key\":\"%T\",\"event\":\"y\",\"distinct_id\":\"d\",\"uuid\":"
                          "\"01890a5d-ac96-774b-bcce-b302099a8051\"}"),
                     200);
    assert_has(k->body, "\"duplicates\":1");
    assert_int_equal(kit_queued(k), 3);
}

static void test_segment_bad_events(void **state)
{
    (void)state;
    assert_int_equal(post("/v1/batch", "",
                          "{\"batch\":[{\"type\":\"track\",\"userId\":\"u\"},{\"type\":\"page\","
                          "\"userId\":\"u\"}],\"writeKey\":\"%T\"}"),
                     200);
    assert_has(k->body, "{\"success\":true,\"accepted\":1,\"duplicates\":0,\"rejected\":1,"
                        "\"errors\":[{\"index\":0,\"reason\":\"");
    struct kit_rejected r = kit_rejected(k);
    assert_int_equal(r.count, 1);
    assert_has(buf_slice(&r.text), "0 segment ");
    assert_has(buf_slice(&r.text), "{\"type\":\"track\",\"userId\":\"u\"}\n");
    buf_free(&r.text);
    assert_int_equal(post("/v1/track", "", "{\"userId\":\"u\",\"writeKey\":\"%T\"}"), 400);
    assert_has(k->body, "{\"success\":false,\"code\":\"invalid_event\",\"message\":\"");
    assert_int_equal(post("/v1/batch", "", "{"), 400);
    assert_has(k->body, "{\"success\":false,\"code\":\"invalid_json\",\"message\":\"");
    assert_int_equal(kit_queued(k), 1);
}

/* ---- native ---- */

#define EVENTS "/api/v1/projects/demo/events"

static unsigned post_native(const char *target, const char *token, const char *body)
{
    char headers[300];
    (void)snprintf(headers, sizeof headers,
                   "Authorization: Bearer %s\r\nContent-Type: application/json\r\n", token);
    return kit_ask(k, true, "POST", target, headers, slice_cstr(body));
}

static void test_native_receipts(void **state)
{
    static const char body[] =
        "{\"events\":[{\"event\":\"a\",\"message_id\":\"m1\"},{\"event\":\"b\",\"uuid\":\"01890a5d-"
        "ac96-774b-bcce-b302099a8051\"},{\"event\":\"c\"}]}";
    (void)state;
    assert_int_equal(post_native(EVENTS, k->writer, body), 200);
    struct slice first = k->body;
    assert_has(first, "{\"events\":[{\"index\":0,\"status\":\"accepted\",\"event_id\":\"");
    assert_has(first, "{\"index\":1,\"status\":\"accepted\",\"event_id\":\"");
    assert_has(first, "\"uuid\":\"01890a5d-ac96-774b-bcce-b302099a8051\"}");
    assert_has(first, "],\"accepted\":3,\"duplicates\":0}");
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 3);
    assert_text(rows.row[0].ev.source, "billing");
    assert_text(rows.row[0].ev.type, "native");
    char want[100];
    (void)snprintf(want, sizeof want, "\"index\":1,\"status\":\"accepted\",\"event_id\":\"%lld\"",
                   (long long)rows.row[1].id);
    assert_has(first, want);
    /* A repeat gets the ids of the first. */
    assert_int_equal(post_native(EVENTS "/", k->writer, body), 200);
    assert_has(k->body, "],\"accepted\":1,\"duplicates\":2}");
    for (int i = 0; i < 2; i++) {
        (void)snprintf(want, sizeof want,
                       "{\"index\":%d,\"status\":\"duplicate\",\"event_id\":\"%lld\"", i,
                       (long long)rows.row[i].id);
        assert_has(k->body, want);
    }
    queue_rows_free(&rows);
    assert_int_equal(kit_queued(k), 4);
}

static void test_native_access(void **state)
{
    static const char body[] = "{\"events\":[{\"event\":\"a\"}]}";
    (void)state;
    assert_int_equal(kit_post(k, EVENTS, body), 401);
    assert_has(k->head, "WWW-Authenticate: Bearer\r\n");
    assert_int_equal(post_native(EVENTS, "tms_nobody", body), 401);
    assert_int_equal(post_native(EVENTS, k->reader, body), 403);
    assert_has(k->body, "\"error\":\"forbidden\"");
    assert_int_equal(post_native(EVENTS, k->token, body), 401);
    /* Another project, and one that does not exist, look alike. */
    assert_int_equal(post_native("/api/v1/projects/other/events", k->writer, body), 403);
    struct buf other = {0};
    buf_put_slice(&other, k->body);
    assert_int_equal(post_native("/api/v1/projects/nowhere/events", k->writer, body), 403);
    assert_true(slice_eq(k->body, buf_slice(&other)));
    buf_free(&other);
    assert_int_equal(kit_queued(k), 0);
    /* The socket's owner may do everything, without a key. */
    assert_int_equal(kit_ask(k, false, "POST", EVENTS, "", slice_cstr(body)), 200);
    assert_int_equal(
        kit_ask(k, false, "POST", "/api/v1/projects/nowhere/events", "", slice_cstr(body)), 404);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_text(rows.row[0].ev.source, "native");
    queue_rows_free(&rows);
    /* No page may ask. */
    (void)kit_ask(k, true, "POST", EVENTS, "Origin: https://a.example\r\n", slice_cstr(body));
    assert_int_equal(k->status, 401);
    assert_has_not(k->head, "Access-Control-Allow-Origin");
}

static void test_native_is_strict(void **state)
{
    (void)state;
    assert_int_equal(
        post_native(EVENTS, k->writer, "{\"events\":[{\"event\":\"a\"},{\"event\":7}]}"), 400);
    assert_has(k->body, "{\"error\":\"invalid_event\",\"message\":\"");
    assert_has(k->body, "\"index\":1}");
    assert_int_equal(post_native(EVENTS, k->writer, "{\"events\":[]}"), 400);
    assert_has_not(k->body, "\"index\"");
    assert_int_equal(post_native(EVENTS, k->writer, "[]"), 400);
    assert_int_equal(kit_queued(k), 0);
    struct kit_rejected r = kit_rejected(k);
    assert_int_equal(r.count, 0);
    buf_free(&r.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_segment_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_segment_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_segment_repeats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_segment_bad_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_native_receipts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_native_access, setup, teardown),
        cmocka_unit_test_setup_teardown(test_native_is_strict, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
