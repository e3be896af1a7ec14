/* test_capture: the whole door, from bytes on a socket to rows of the queue: routes, keys, shapes
 * of requests and answers, encodings, identity. Cases C01, C04, C05, C13, C14, C16, C50, C52 by
 * name. */
#include <zlib.h>

#include "tests/unit/door/capture_kit.h"

#define U1 "01890a5d-ac96-774b-bcce-b302099a8051"
#define U2 "01890a5d-ac96-774b-bcce-b302099a8052"

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

/* ---- help ---- */

static struct buf gzip(struct slice in, int window)
{
    struct buf out = {0};
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_true(buf_reserve(&out, deflateBound(&z, in.len) + 64));
    char *copy = malloc(in.len + 1);
    assert_non_null(copy);
    memcpy(copy, in.ptr, in.len);
    z.next_in = (unsigned char *)copy;
    z.avail_in = (uInt)in.len;
    z.next_out = (unsigned char *)out.ptr;
    z.avail_out = (uInt)out.cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.len = z.total_out;
    (void)deflateEnd(&z);
    free(copy);
    return out;
}

static struct buf base64(struct slice in)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf out = {0};
    for (size_t i = 0; i < in.len; i += 3) {
        size_t n = in.len - i < 3 ? in.len - i : 3;
        uint32_t v = 0;
        for (size_t j = 0; j < 3; j++) {
            v = v << 8 | (j < n ? (unsigned char)in.ptr[i + j] : 0u);
        }
        for (size_t j = 0; j < 4; j++) {
            buf_put_char(&out, j <= n ? digits[v >> (18 - 6 * j) & 63] : '=');
        }
    }
    return out;
}

static struct buf percent(struct slice in)
{
    struct buf out = {0};
    for (size_t i = 0; i < in.len; i++) {
        buf_printf(&out, "%%%02X", (unsigned char)in.ptr[i]);
    }
    return out;
}

/* Exactly one row is queued: its event name, and its text. */
static void expect_row(const char *event, const char *text)
{
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_text(rows.row[0].ev.event, event);
    if (text != NULL) {
        assert_text(rows.row[0].ev.text, text);
    }
    queue_rows_free(&rows);
}

static void expect_status(unsigned status)
{
    if (k->status != status) {
        fail_msg("%u, not %u: %.*s", k->status, status, (int)k->answer.len, k->answer.ptr);
    }
}

/* ---- PostHog v0 ---- */

static void test_a_batch_is_stored(void **state)
{
    (void)state;
    char *one = kit_text(k, "{\"event\":\"a\",\"distinct_id\":\"d\",\"uuid\":\"" U1
                            "\",\"properties\":{\"$lib\":\"node\",\"n\":12345678901234567890,"
                            "\"s\":\"\\ud800\\u0000\"}, \"x\" : 1,\"x\":2}");
    char body[1000];
    (void)snprintf(body, sizeof body,
                   "{\"api_key\":\"%s\",\"batch\":[%s,{\"event\":\"b\",\"distinct_id\":\"e\"}]}",
                   k->token, one);
    assert_int_equal(kit_post(k, "/batch/", body), 200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_has(k->head, "Content-Type: application/json\r\n");
    assert_int_equal(k->told, 1);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 2);
    const struct queue_event *q = &rows.row[0].ev;
    char uuid[UUID_TEXT_LEN];
    uuid_text(uuid, &q->uuid);
    assert_memory_equal(uuid, U1, UUID_TEXT_LEN);
    assert_text(rows.row[0].project, "demo");
    assert_text(q->text, one);
    assert_text(q->type, "capture");
    assert_text(q->event, "a");
    assert_text(q->distinct_id, "d");
    assert_text(q->library, "node");
    assert_text(q->source, "default");
    assert_text(q->envelope, "");
    assert_true(q->received_ms > NOW_MS / 2);
    assert_int_equal(q->timestamp_us, q->received_ms * 1000);
    /* The other has an id of its own: a UUIDv7 of its receipt. */
    assert_int_equal(rows.row[1].ev.uuid.byte[6] >> 4, 7);
    assert_text(rows.row[1].ev.text, "{\"event\":\"b\",\"distinct_id\":\"e\"}");
    queue_rows_free(&rows);
    free(one);
}

static void test_every_path(void **state)
{
    static const char *const paths[] = {
        "/e",      "/e/",     "/i/v0/e",  "/i/v0/e/", "/capture", "/capture/", "/track",
        "/track/", "/engage", "/engage/", "/batch",   "/batch/",  "/i/v0/ai",  "/i/v0/ai/batch/"};
    const size_t n = sizeof paths / sizeof paths[0];
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(
            kit_post_t(k, paths[i], "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\"}"),
            200);
        assert_text(k->body, "{\"status\":\"Ok\"}");
    }
    assert_int_equal(kit_queued(k), n);
    assert_int_equal(
        kit_post_t(k, "/s/", "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\"}"), 404);
    assert_int_equal(kit_queued(k), n);
}

static void test_get_with_data(void **state)
{
    struct buf target = {0};
    (void)state;
    char *text = kit_text(k, "{\"token\":\"%T\",\"event\":\"got\",\"distinct_id\":\"d\"}");
    struct buf b64 = base64(slice_cstr(text));
    struct buf data = percent(buf_slice(&b64));
    buf_printf(&target, "/e/?ip=1&data=%.*s&_=1796040000000&bad=%%zz", (int)data.len, data.ptr);
    buf_put_char(&target, '\0');
    assert_int_equal(kit_ask(k, true, "GET", target.ptr, "", (struct slice){0}), 200);
    expect_row("got", text);
    /* HEAD must change nothing. */
    assert_int_equal(kit_ask(k, true, "HEAD", target.ptr, "", (struct slice){0}), 405);
    assert_has(k->head, "Allow: GET, POST, OPTIONS\r\n");
    assert_int_equal(kit_ask(k, true, "GET", "/i/v1/analytics/events", "", (struct slice){0}), 405);
    /* C53: what is broken is refused, wherever it matters. */
    assert_int_equal(kit_ask(k, true, "GET", "/e/?data=%zz", "", (struct slice){0}), 400);
    assert_int_equal(kit_ask(k, true, "GET", "/e/?data=%ff%fe", "", (struct slice){0}), 400);
    assert_int_equal(kit_ask(k, true, "GET", "/e/?a=%b", "", (struct slice){0}), 400);
    assert_int_equal(kit_queued(k), 1);
    buf_free(&target);
    buf_free(&data);
    buf_free(&b64);
    free(text);
}

static void test_query_times_and_beacon(void **state)
{
    char target[200];
    char body[300];
    (void)state;
    /* The device is an hour ahead of now, and says so in the query. */
    uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    uint64_t ahead_ms = now_ms + 3600000;
    (void)snprintf(target, sizeof target, "/e/?_=%llu&beacon=1", (unsigned long long)ahead_ms);
    (void)snprintf(
        body, sizeof body,
        "{\"token\":\"%s\",\"event\":\"x\",\"distinct_id\":\"d\",\"timestamp\":\"%llu\"}", k->token,
        (unsigned long long)ahead_ms);
    assert_int_equal(kit_post(k, target, body), 204);
    assert_int_equal(k->body.len, 0);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_text(rows.row[0].ev.time_note, "skew_corrected");
    assert_int_equal(rows.row[0].ev.sent_at_ms, ahead_ms);
    assert_int_equal(rows.row[0].ev.timestamp_us, rows.row[0].ev.received_ms * 1000);
    queue_rows_free(&rows);
    /* C10: seconds are no milliseconds: passed over. */
    (void)snprintf(target, sizeof target, "/e/?sent_at=%llu", (unsigned long long)now_ms / 1000);
    assert_int_equal(kit_post(k, target, body), 200);
    rows = kit_rows(k);
    assert_int_equal(rows.count, 2);
    assert_false(rows.row[1].ev.has_sent_at);
    assert_text(rows.row[1].ev.time_note, "future");
    queue_rows_free(&rows);
    /* A refusal is one for a beacon, too. */
    assert_int_equal(kit_post_t(k, "/e/?beacon=1", "{\"api_key\":\"%T\",\"event\":\"x\"}"), 400);
}

/* C13: the good ones are stored, the answer and the list name the others. */
static void test_c13_one_bad_event(void **state)
{
    (void)state;
    uint64_t rejected = metric_get(METRIC_CAPTURE_REJECTED);
    assert_int_equal(
        kit_post_t(
            k, "/batch/",
            "{\"api_key\":\"%T\",\"batch\":[{\"event\":\"a\",\"distinct_id\":\"d\"},{\"event\":"
            "\"x\"},"
            "{\"event\":\"b\",\"distinct_id\":\"d\"},{\"event\":\"\", \"distinct_id\":\"a\"},"
            "{\"event\":\"c\",\"distinct_id\":\"d\"}]}"),
        200);
    assert_text(k->body,
                "{\"status\":\"Ok\",\"accepted\":3,\"duplicates\":0,\"rejected\":2,\"errors\":["
                "{\"index\":1,\"reason\":\"distinct_id is missing\"},"
                "{\"index\":3,\"reason\":\"event must not be empty\"}]}");
    assert_int_equal(kit_queued(k), 3);
    struct kit_rejected r = kit_rejected(k);
    assert_int_equal(r.count, 2);
    assert_has(buf_slice(&r.text), "1 posthog distinct_id is missing {\"event\":\"x\"}\n");
    assert_has(buf_slice(&r.text),
               "3 posthog event must not be empty {\"event\":\"\", \"distinct_id\":\"a\"}\n");
    buf_free(&r.text);
    assert_int_equal(metric_get(METRIC_CAPTURE_REJECTED), rejected + 2);
}

static void test_a_single_bad_event_is_refused(void **state)
{
    (void)state;
    uint64_t refused = metric_get(METRIC_CAPTURE_REFUSED);
    assert_int_equal(kit_post_t(k, "/e/", "{\"api_key\":\"%T\",\"event\":\"x\"}"), 400);
    assert_text(k->body, "distinct_id is missing\n");
    assert_has(k->head, "Content-Type: text/plain");
    assert_int_equal(kit_post_t(k, "/e/", "{\"api_key\":\"%T\",\"batch\":[]}"), 400);
    assert_int_equal(kit_post_t(k, "/e/", "{\"api_key\":\"%T\""), 400);
    assert_int_equal(kit_post(k, "/e/", ""), 400);
    assert_int_equal(kit_queued(k), 0);
    struct kit_rejected r = kit_rejected(k);
    assert_int_equal(r.count, 0);
    buf_free(&r.text);
    assert_int_equal(metric_get(METRIC_CAPTURE_REFUSED), refused + 4);
    /* One in an array of one is a batch of one: kept as rejected. */
    assert_int_equal(kit_post_t(k, "/e/", "[{\"token\":\"%T\",\"event\":\"x\"}]"), 200);
    assert_has(k->body, "\"accepted\":0,\"duplicates\":0,\"rejected\":1");
    r = kit_rejected(k);
    assert_int_equal(r.count, 1);
    buf_free(&r.text);
}

static void test_removed_events_leave_a_success(void **state)
{
    (void)state;
    assert_int_equal(
        kit_post_t(k, "/e/", "{\"api_key\":\"%T\",\"batch\":[{\"event\":\"$performance_event\"}]}"),
        200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_int_equal(kit_queued(k), 0);
    assert_int_equal(k->told, 0);
}

/* C14: whatever can be checked is checked before the 200. */
static void test_c14_said_and_done(void **state)
{
    (void)state;
    assert_int_equal(kit_post_t(k, "/batch/",
                                "{\"token\":\"%T\",\"batch\":[{\"event\":\"in\",\"properties\":{"
                                "\"distinct_id\":\"d\"}},"
                                "{\"event\":\"top\",\"distinct_id\":\"d\"},{\"event\":\"time\","
                                "\"distinct_id\":\"d\",\"timestamp\":\"x\"},"
                                "{\"event\":\"uuid\",\"distinct_id\":\"d\",\"uuid\":\"x\"}]}"),
                     200);
    assert_has(k->body, "\"accepted\":3,\"duplicates\":0,\"rejected\":1,\"errors\":[{\"index\":3,"
                        "\"reason\":\"uuid is not a UUID\"}]");
    assert_int_equal(kit_queued(k), 3);
}

/* C16: the UUID within its project is the identity; the first payload stays. */
static void test_c16_repeats(void **state)
{
    (void)state;
    uint64_t repeats = metric_get(METRIC_CAPTURE_REPEATS);
    uint64_t stored = metric_get(METRIC_CAPTURE_EVENTS);
    assert_int_equal(kit_post_t(k, "/batch/",
                                "{\"api_key\":\"%T\",\"sent_at\":\"2026-11-30T12:00:00Z\","
                                "\"batch\":[{\"event\":\"x\",\"distinct_id\":\"d\",\"uuid\":\"" U1
                                "\"}]}"),
                     200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_int_equal(kit_post_t(k, "/batch/",
                                "{\"api_key\":\"%T\",\"sent_at\":\"2026-11-30T12:00:05Z\","
                                "\"batch\":[{\"event\":\"y\",\"distinct_id\":\"e\",\"uuid\":\"" U1
                                "\"},{\"event\":\"z\",\"distinct_id\":\"d\"}]}"),
                     200);
    assert_text(k->body, "{\"status\":\"Ok\",\"accepted\":1,\"duplicates\":1,\"rejected\":0}");
    assert_int_equal(metric_get(METRIC_CAPTURE_REPEATS), repeats + 1);
    assert_int_equal(metric_get(METRIC_CAPTURE_EVENTS), stored + 2);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 2);
    assert_text(rows.row[0].ev.event, "x");
    assert_text(rows.row[1].ev.event, "z");
    queue_rows_free(&rows);
    /* Twice in one request: once. */
    assert_int_equal(
        kit_post_t(
            k, "/batch/",
            "{\"api_key\":\"%T\",\"batch\":[{\"event\":\"1\",\"distinct_id\":\"d\",\"uuid\":\"" U2
            "\"},{\"event\":\"2\",\"distinct_id\":\"d\",\"uuid\":\"" U2 "\"}]}"),
        200);
    assert_has(k->body, "\"accepted\":1,\"duplicates\":1");
    assert_int_equal(kit_queued(k), 3);
    /* Another project's is another. */
    char body[300];
    (void)snprintf(body, sizeof body,
                   "{\"api_key\":\"%s\",\"event\":\"x\",\"distinct_id\":\"d\",\"uuid\":\"" U1 "\"}",
                   k->other);
    assert_int_equal(kit_post(k, "/e/", body), 200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_int_equal(kit_queued(k), 4);
    /* The nil UUID is no identity. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kit_post_t(k, "/e/",
                                    "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\","
                                    "\"uuid\":\"00000000-0000-0000-0000-000000000000\"}"),
                         200);
        assert_text(k->body, "{\"status\":\"Ok\"}");
    }
    assert_int_equal(kit_queued(k), 6);
}

/* ---- encodings ---- */

static void post_gzip(const char *target, const char *headers, struct slice body)
{
    (void)kit_ask(k, true, "POST", target, headers, body);
}

static void test_gzip_by_every_sign(void **state)
{
    (void)state;
    char *text = kit_text(k, "{\"api_key\":\"%T\",\"event\":\"zipped\",\"distinct_id\":\"d\"}");
    struct buf z = gzip(slice_cstr(text), 31);
    post_gzip("/batch/", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
              buf_slice(&z));
    expect_status(200);
    /* posthog-js: nothing says so but the first bytes. */
    post_gzip("/e/", "Content-Type: text/plain\r\n", buf_slice(&z));
    expect_status(200);
    post_gzip("/e/?compression=gzip-js", "Content-Type: text/plain\r\n", buf_slice(&z));
    expect_status(200);
    /* Two lines of Content-Encoding are no crash; on v0 the first bytes decide. */
    post_gzip("/e/", "Content-Encoding: gzip\r\nContent-Encoding: identity\r\n", buf_slice(&z));
    assert_true(k->status == 200 || k->status == 400 || k->status == 415);
    struct queue_rows rows = kit_rows(k);
    assert_true(rows.count >= 3);
    for (size_t i = 0; i < rows.count; i++) {
        assert_text(rows.row[i].ev.text, text);
    }
    queue_rows_free(&rows);
    buf_free(&z);
    free(text);
}

/* C01: cut, headless, with a wrong sum or size, or empty: 400 that says where, nothing stored. */
static void test_c01_broken_gzip(void **state)
{
    (void)state;
    char *text = kit_text(k, "{\"api_key\":\"%T\",\"event\":\"zipped\",\"distinct_id\":\"d\"}");
    for (int i = 0; i < 5; i++) {
        struct buf z = gzip(slice_cstr(text), 31);
        struct slice body = buf_slice(&z);
        if (i == 0) {
            body.len -= 8;
        } else if (i == 1) {
            body = slice_from(body, 10);
        } else if (i == 2) {
            z.ptr[z.len - 8] = (char)(z.ptr[z.len - 8] ^ 1);
        } else if (i == 3) {
            z.ptr[z.len - 4] = (char)(z.ptr[z.len - 4] ^ 1);
        } else {
            body.len = 0;
        }
        post_gzip("/e/?compression=gzip", "Content-Encoding: gzip\r\n", body);
        expect_status(400);
        assert_true(k->body.len > 10);
        assert_has(k->head, "Content-Type: text/plain");
        buf_free(&z);
    }
    assert_int_equal(kit_queued(k), 0);
    free(text);
}

/* C04 and C05: base64 in a form, as beacons send it, with and without a hint. */
static void test_c04_c05_forms(void **state)
{
    static const char *const targets[] = {"/e/?compression=base64&beacon=1",
                                          "/e/?compression=base64", "/e/", "/capture/"};
    static const char form[] = "Content-Type: application/x-www-form-urlencoded\r\n";
    (void)state;
    char *text = kit_text(
        k,
        "{\"event\":\"formed ~~~?>?>?>\",\"distinct_id\":\"d\",\"properties\":{\"token\":\"%T\"}}");
    struct buf b64 = base64(slice_cstr(text));
    struct buf data = percent(buf_slice(&b64));
    struct buf plain = percent(slice_cstr(text));
    struct buf body = {0};
    size_t n = 0;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        buf_clear(&body);
        buf_printf(&body, "data=%.*s", (int)data.len, data.ptr);
        (void)kit_ask(k, true, "POST", targets[i], form, buf_slice(&body));
        expect_status(strstr(targets[i], "beacon") != NULL ? 204 : 200);
        n++;
        /* '+' that became a space. */
        buf_clear(&body);
        buf_printf(&body, "data=%.*s", (int)b64.len, b64.ptr);
        (void)kit_ask(k, true, "POST", targets[i], form, buf_slice(&body));
        expect_status(strstr(targets[i], "beacon") != NULL ? 204 : 200);
        n++;
    }
    buf_clear(&body);
    buf_printf(&body, "data=%.*s", (int)plain.len, plain.ptr);
    (void)kit_ask(k, true, "POST", "/e/", form, buf_slice(&body));
    expect_status(200);
    n++;
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, n);
    for (size_t i = 0; i < n; i++) {
        assert_text(rows.row[i].ev.text, text);
    }
    queue_rows_free(&rows);
    buf_free(&body);
    buf_free(&plain);
    buf_free(&data);
    buf_free(&b64);
    free(text);
}

/* C50: who sent it is not asked. */
static void test_c50_no_filter(void **state)
{
    static const char *const agents[] = {"", "User-Agent: python-requests/2\r\n",
                                         "User-Agent: Googlebot/2.1 HeadlessChrome\r\n"};
    (void)state;
    char *text = kit_text(k, "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\","
                             "\"properties\":{\"$raw_user_agent\":\"bot\"}}");
    for (size_t i = 0; i < 3; i++) {
        (void)kit_ask(k, true, "POST", "/e/", agents[i], slice_cstr(text));
        expect_status(200);
        assert_text(k->body, "{\"status\":\"Ok\"}");
    }
    assert_int_equal(kit_queued(k), 3);
    free(text);
}

/* C52: a body shorter than promised is never parsed. */
static void test_c52_truncated(void **state)
{
    char head[200];
    (void)state;
    char *text = kit_text(k, "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\"}");
    (void)snprintf(head, sizeof head, "POST /e/ HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
                   strlen(text) + 1);
    int fd = kit_connect(k, true);
    kit_send(fd, head, strlen(head));
    kit_send(fd, text, strlen(text));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_int_equal(kit_receive(k, fd), 400);
    (void)snprintf(head, sizeof head,
                   "POST /e/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n",
                   strlen(text));
    fd = kit_connect(k, true);
    kit_send(fd, head, strlen(head));
    kit_send(fd, text, strlen(text));
    kit_send(fd, "\r\n", 2);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_int_equal(kit_receive(k, fd), 400);
    assert_int_equal(kit_queued(k), 0);
    free(text);
}

/* ---- keys ---- */

static void test_keys(void **state)
{
    char body[300];
    (void)state;
    assert_int_equal(
        kit_post(k, "/e/", "{\"api_key\":\"tmc_nobody\",\"event\":\"x\",\"distinct_id\":\"d\"}"),
        401);
    assert_has_not(buf_slice(&k->answer), "tmc_nobody");
    assert_int_equal(kit_post(k, "/e/", "{\"event\":\"x\",\"distinct_id\":\"d\"}"), 401);
    assert_int_equal(
        kit_post(k, "/e/", "{\"api_key\":\"phx_a\",\"event\":\"x\",\"distinct_id\":\"d\"}"), 401);
    /* A service key is no capture key. */
    (void)snprintf(body, sizeof body, "{\"api_key\":\"%s\",\"event\":\"x\",\"distinct_id\":\"d\"}",
                   k->writer);
    assert_int_equal(kit_post(k, "/e/", body), 401);
    assert_has_not(buf_slice(&k->answer), k->writer);
    /* Any public key of the project will do; its name is the source. */
    (void)snprintf(body, sizeof body, "{\"api_key\":\"%s\",\"event\":\"x\",\"distinct_id\":\"d\"}",
                   k->segment);
    assert_int_equal(kit_post(k, "/e/", body), 200);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_text(rows.row[0].ev.source, "shop");
    queue_rows_free(&rows);
}

static void test_pages_may_read(void **state)
{
    (void)state;
    char *text = kit_text(k, "{\"api_key\":\"%T\",\"event\":\"x\"}");
    (void)kit_ask(k, true, "POST", "/e/", "Origin: https://shop.example\r\n", slice_cstr(text));
    expect_status(400);
    assert_has(k->head, "Access-Control-Allow-Origin: https://shop.example\r\n");
    uint64_t preflights = metric_get(METRIC_HTTP_PREFLIGHTS);
    (void)kit_ask(k, true, "OPTIONS", "/batch/",
                  "Origin: https://shop.example\r\nAccess-Control-Request-Method: POST\r\n",
                  (struct slice){0});
    expect_status(200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_int_equal(metric_get(METRIC_HTTP_PREFLIGHTS), preflights + 1);
    free(text);
}

/* ---- PostHog v1 ---- */

#define V1_HEAD(auth, sdk, attempt, id, at) \
    auth sdk attempt id at "Content-Type: application/json; charset=utf-8\r\n"
#define SDK     "PostHog-Sdk-Info: posthog-node/5.70.0\r\n"
#define ATTEMPT "PostHog-Attempt: 1\r\n"
#define REQUEST "PostHog-Request-Id: " U2 "\r\n"
#define SENT    "PostHog-Request-Timestamp: 2026-11-30T12:00:00.000Z\r\n"

static unsigned post_v1(const char *token, const char *more, const char *body)
{
    char headers[600];
    (void)snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n%s", token, more);
    return kit_ask(k, true, "POST", "/i/v1/analytics/events", headers, slice_cstr(body));
}

#define V1_GOOD SDK ATTEMPT REQUEST SENT "Content-Type: application/json\r\n"
#define V1_EVENT(u, more)                                                                         \
    "{\"event\":\"x\",\"distinct_id\":\"d\",\"timestamp\":\"2026-11-30T12:00:00Z\",\"uuid\":\"" u \
    "\"" more "}"
#define V1_OF(events) "{\"created_at\":\"2026-11-30T12:00:00Z\",\"batch\":[" events "]}"

static void test_v1(void **state)
{
    static const char body[] = V1_OF(V1_EVENT(U1, "") "," V1_EVENT(U2, ",\"properties\":7"));
    (void)state;
    assert_int_equal(post_v1(k->token, V1_GOOD, body), 200);
    assert_text(k->body, "{\"results\":{\"" U1 "\":{\"result\":\"ok\"},\"" U2
                         "\":{\"result\":\"drop\",\"details\":\"properties must be an object\"}}}");
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 1);
    assert_text(rows.row[0].ev.library, "posthog-node");
    assert_text(rows.row[0].ev.library_version, "5.70.0");
    assert_true(rows.row[0].ev.has_sent_at);
    queue_rows_free(&rows);
    struct kit_rejected r = kit_rejected(k);
    assert_int_equal(r.count, 0); /* its client was told */
    buf_free(&r.text);
    /* A repeat is ok. */
    assert_int_equal(post_v1(k->token, V1_GOOD, V1_OF(V1_EVENT(U1, ""))), 200);
    assert_text(k->body, "{\"results\":{\"" U1 "\":{\"result\":\"ok\"}}}");
    /* Nothing but drops: nothing to store. */
    assert_int_equal(post_v1(k->token, V1_GOOD, V1_OF(V1_EVENT(U2, ",\"options\":7"))), 200);
    assert_has(k->body, "\"result\":\"drop\"");
    assert_int_equal(kit_queued(k), 1);
    /* Compressed, as posthog-node does. */
    struct buf z = gzip(SLICE(V1_OF(V1_EVENT(U2, ""))), 31);
    char headers[600];
    (void)snprintf(headers, sizeof headers,
                   "Authorization: Bearer %s\r\nContent-Encoding: gzip\r\n" V1_GOOD, k->token);
    assert_int_equal(kit_ask(k, true, "POST", "/i/v1/analytics/events/", headers, buf_slice(&z)),
                     200);
    assert_int_equal(kit_queued(k), 2);
    (void)snprintf(headers, sizeof headers,
                   "Authorization: Bearer %s\r\nContent-Encoding: br\r\n" V1_GOOD, k->token);
    assert_int_equal(kit_ask(k, true, "POST", "/i/v1/analytics/events", headers, buf_slice(&z)),
                     415);
    buf_free(&z);
}

static void test_v1_refusals(void **state)
{
    static const struct {
        const char *headers;
        unsigned status;
        const char *part;
    } rows[] = {
        {SDK ATTEMPT REQUEST SENT, 415, "Content-Type"},
        {SDK ATTEMPT REQUEST SENT "Content-Type: text/plain\r\n", 415, "Content-Type"},
        {SDK ATTEMPT REQUEST SENT "Content-Type: application/jsonp\r\n", 415, "Content-Type"},
        {ATTEMPT REQUEST SENT "Content-Type: application/json\r\n", 400, "PostHog-Sdk-Info"},
        {"PostHog-Sdk-Info: node\r\n" ATTEMPT REQUEST SENT "Content-Type: application/json\r\n",
         400, "PostHog-Sdk-Info"},
        {"PostHog-Sdk-Info: node/\r\n" ATTEMPT REQUEST SENT "Content-Type: application/json\r\n",
         400, "PostHog-Sdk-Info"},
        {"PostHog-Sdk-Info: /5\r\n" ATTEMPT REQUEST SENT "Content-Type: application/json\r\n", 400,
         "PostHog-Sdk-Info"},
        {SDK REQUEST SENT "Content-Type: application/json\r\n", 400, "PostHog-Attempt"},
        {SDK "PostHog-Attempt: 0\r\n" REQUEST SENT "Content-Type: application/json\r\n", 400,
         "PostHog-Attempt"},
        {SDK "PostHog-Attempt: 1x\r\n" REQUEST SENT "Content-Type: application/json\r\n", 400,
         "PostHog-Attempt"},
        {SDK ATTEMPT SENT "Content-Type: application/json\r\n", 400, "PostHog-Request-Id"},
        {SDK ATTEMPT "PostHog-Request-Id: 1\r\n" SENT "Content-Type: application/json\r\n", 400,
         "PostHog-Request-Id"},
        {SDK ATTEMPT REQUEST "Content-Type: application/json\r\n", 400,
         "PostHog-Request-Timestamp"},
        {SDK ATTEMPT REQUEST
         "PostHog-Request-Timestamp: 1796040000\r\nContent-Type: application/json\r\n",
         400, "PostHog-Request-Timestamp"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)post_v1(k->token, rows[i].headers, V1_OF(V1_EVENT(U1, "")));
        expect_status(rows[i].status);
        assert_has(k->body, "{\"error\":\"");
        assert_has(k->body, "\"error_description\":\"");
        assert_has(k->body, rows[i].part);
    }
    assert_int_equal(post_v1("tmc_nobody", V1_GOOD, V1_OF(V1_EVENT(U1, ""))), 401);
    assert_has(k->head, "WWW-Authenticate: Bearer\r\n");
    assert_has(k->body, "{\"error\":\"unauthorized\"");
    assert_int_equal(post_v1(k->writer, V1_GOOD, V1_OF(V1_EVENT(U1, ""))), 401);
    assert_int_equal(
        kit_ask(k, true, "POST", "/i/v1/analytics/events", V1_GOOD, SLICE(V1_OF(V1_EVENT(U1, "")))),
        401);
    assert_int_equal(post_v1(k->token, V1_GOOD, V1_OF(V1_EVENT(U1, "") "," V1_EVENT(U1, ""))), 400);
    assert_has(k->body, "\"error\":\"invalid_event\"");
    assert_int_equal(post_v1(k->token, V1_GOOD, "{"), 400);
    assert_int_equal(kit_queued(k), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_batch_is_stored, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_with_data, setup, teardown),
        cmocka_unit_test_setup_teardown(test_query_times_and_beacon, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c13_one_bad_event, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_single_bad_event_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed_events_leave_a_success, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c14_said_and_done, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c16_repeats, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gzip_by_every_sign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c01_broken_gzip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c04_c05_forms, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c50_no_filter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c52_truncated, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_may_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v1_refusals, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
