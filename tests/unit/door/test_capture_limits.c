/* test_capture_limits: sizes, workers, full queues and broken stores, through the whole door. Cases
 * C41, C47, and what each dialect is told when nothing can be stored. */
#include <zlib.h>

#include "tests/unit/door/capture_kit.h"

#define BASIC "Authorization: Basic "

/* ---- help ---- */

/* {"api_key":...,"batch":[n events]}; pad more bytes in each. */
static struct buf batch_of(const struct kit *k, size_t n, size_t pad)
{
    struct buf b = {0};
    buf_printf(&b, "{\"api_key\":\"%s\",\"batch\":[", k->token);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&b, "%s{\"event\":\"e%zu\",\"distinct_id\":\"d\",\"p\":\"", i == 0 ? "" : ",",
                   i);
        for (size_t j = 0; j < pad; j += 10) {
            buf_put_cstr(&b, "0123456789");
        }
        buf_put_cstr(&b, "\"}");
    }
    buf_put_cstr(&b, "]}");
    assert_false(b.failed);
    return b;
}

static unsigned post(struct kit *k, const char *target, const char *headers, const struct buf *b)
{
    return kit_ask(k, true, "POST", target, headers, buf_slice(b));
}

static void expect_status(const struct kit *k, unsigned status)
{
    if (k->status != status) {
        fail_msg("%u, not %u: %.*s", k->status, status, (int)k->answer.len, k->answer.ptr);
    }
}

static struct buf gzip_zeros(size_t n)
{
    static unsigned char zeros[1 << 16];
    struct buf out = {0};
    z_stream z = {0};
    memset(zeros, ' ', sizeof zeros);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_true(buf_reserve(&out, n / 500 + 4096));
    z.next_out = (unsigned char *)out.ptr;
    z.avail_out = (uInt)out.cap;
    for (size_t done = 0; done < n; done += sizeof zeros) {
        z.next_in = zeros;
        z.avail_in = sizeof zeros;
        assert_int_equal(deflate(&z, done + sizeof zeros >= n ? Z_FINISH : Z_NO_FLUSH),
                         done + sizeof zeros >= n ? Z_STREAM_END : Z_OK);
    }
    out.len = z.total_out;
    (void)deflateEnd(&z);
    return out;
}

/* ---- large requests ---- */

static void test_large_batches(void **state)
{
    (void)state;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    /* Over 64 KiB: by a worker. Over 2,000 events or 4 MiB: a turn of its own. */
    struct buf b = batch_of(k, 200, 500);
    assert_true(b.len > CAPTURE_INLINE_BYTES);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    assert_int_equal(kit_queued(k), 200);
    buf_free(&b);
    b = batch_of(k, 3000, 10);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    assert_int_equal(kit_queued(k), 3200);
    buf_free(&b);
    b = batch_of(k, 100, 50000);
    assert_true(b.len > 4u << 20);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    struct queue_rows rows = kit_rows(k);
    assert_int_equal(rows.count, 3300);
    assert_text(rows.row[3299].ev.event, "e99");
    assert_int_equal(rows.row[3299].ev.text.len,
                     strlen("{'event':'e99','distinct_id':'d','p':''}") + 50000);
    queue_rows_free(&rows);
    /* A batch on a route for single events has their bound. */
    assert_int_equal(post(k, "/e/", "", &b), 413);
    assert_int_equal(kit_queued(k), 3300);
    buf_free(&b);
    kit_free(k);
}

/* Many at once: whoever gets a 200 has a row. */
struct sender {
    struct kit mine; /* with an answer of its own */
    unsigned stored;
    struct buf body;
};

static void *send_many(void *ctx)
{
    struct sender *s = ctx;
    for (int i = 0; i < 20; i++) {
        s->stored += post(&s->mine, "/batch/", "", &s->body) == 200 ? 1 : 0;
    }
    buf_free(&s->mine.answer);
    return NULL;
}

static void test_many_at_once(void **state)
{
    static struct sender senders[6];
    pthread_t threads[6];
    size_t stored = 0;
    (void)state;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    for (size_t i = 0; i < 6; i++) {
        senders[i] = (struct sender){.mine = *k,
                                     .body = batch_of(k, i % 2 == 0 ? 3 : 300, i < 3 ? 10 : 400)};
    }
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, &senders[i]), 0);
    }
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        stored += senders[i].stored * (i % 2 == 0 ? 3 : 300);
        buf_free(&senders[i].body);
    }
    assert_int_equal(stored, 6 * 20 / 2 * 303);
    assert_int_equal(kit_queued(k), stored);
    kit_free(k);
}

static void test_sizes(void **state)
{
    struct capture_options co = {.request_bytes_max = 200000,
                                 .decoded_bytes_max = 400000,
                                 .single_bytes_max = 20000,
                                 .event_bytes_max = 10000,
                                 .batch_events_max = 100};
    (void)state;
    struct kit *k = kit_new(&store_options_default, &co, NULL, NULL);
    struct buf b = batch_of(k, 101, 10);
    assert_int_equal(post(k, "/batch/", "", &b), 413);
    assert_has(k->body, "more than 100 events");
    buf_free(&b);
    b = batch_of(k, 100, 10);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    buf_free(&b);
    b = batch_of(k, 21, 9990);
    assert_int_equal(post(k, "/batch/", "", &b), 413);
    buf_free(&b);
    assert_int_equal(kit_queued(k), 100);
    /* One that is too large among others is named; the others are kept (cases C47). */
    b = batch_of(k, 2, 9900);
    b.len -= 2;
    buf_put_cstr(&b, ",{\"event\":\"large\",\"distinct_id\":\"d\",\"p\":\"");
    for (int i = 0; i < 2000; i++) {
        buf_put_cstr(&b, "01234567");
    }
    buf_put_cstr(&b, "\"}]}");
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    assert_has(k->body, "\"accepted\":2,\"duplicates\":0,\"rejected\":1,\"errors\":[{\"index\":2,"
                        "\"reason\":\"the event has 16");
    assert_has(k->body, " bytes, more than 10000\"");
    assert_int_equal(kit_queued(k), 102);
    buf_free(&b);
    /* Alone: 413, final for every client. */
    buf_printf(&b,
               "{\"api_key\":\"%s\",\"event\":\"large\",\"distinct_id\":\"d\",\"p\":\"%010001d\"}",
               k->token, 1);
    assert_int_equal(post(k, "/e/", "", &b), 413);
    assert_has(k->body, "more than 10000");
    buf_free(&b);
    assert_int_equal(kit_queued(k), 102);
    kit_free(k);
}

/* C41: a bomb ends at the bound; with a wrong key in a header it is not even asked for. */
static void test_c41_bombs(void **state)
{
    (void)state;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    struct buf bomb = gzip_zeros(128u << 20);
    assert_true(bomb.len < 200000);
    assert_int_equal(post(k, "/batch/", "Content-Encoding: gzip\r\n", &bomb), 413);
    assert_int_equal(post(k, "/e/", "Content-Encoding: gzip\r\n", &bomb), 413);
    assert_int_equal(post(k, "/nowhere/", "Content-Encoding: gzip\r\n", &bomb), 404);
    /* The head alone gets the 401; no byte of the body has been sent. */
    static const char *const heads[] = {
        "POST /v1/batch HTTP/1.1\r\nHost: h\r\n" BASIC "bm9ib2R5Og==\r\n",
        "POST /i/v1/analytics/events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer tmc_x\r\n"
        "Content-Type: application/json\r\nPostHog-Sdk-Info: a/1\r\nPostHog-Attempt: 1\r\n"
        "PostHog-Request-Id: 01890a5d-ac96-774b-bcce-b302099a8051\r\n"
        "PostHog-Request-Timestamp: 2026-11-30T12:00:00Z\r\n",
        "POST /api/v1/projects/demo/events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer tms_x\r\n",
    };
    for (size_t i = 0; i < 3; i++) {
        int fd = kit_connect(k, true);
        kit_send(fd, heads[i], strlen(heads[i]));
        static const char rest[] =
            "Content-Encoding: gzip\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n\r\n";
        kit_send(fd, rest, sizeof rest - 1);
        (void)shutdown(fd, SHUT_WR);
        (void)kit_receive(k, fd);
        expect_status(k, 401);
        assert_has(k->head, "Connection: close\r\n");
    }
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    assert_int_equal(kit_queued(k), 0);
    buf_free(&bomb);
    kit_free(k);
}

static void test_no_memory_for_bodies(void **state)
{
    struct http_limits limits = http_limits_default;
    (void)state;
    limits.body_budget_bytes = 300000;
    limits.admission_wait_ms = 50;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, &limits, NULL);
    /* The body fits; what it becomes does not. */
    struct buf b = batch_of(k, 800, 100);
    assert_true(b.len > CAPTURE_INLINE_BYTES && b.len < 200000);
    assert_int_equal(post(k, "/batch/", "", &b), 503);
    assert_has(k->head, "Retry-After: 2\r\n");
    buf_free(&b);
    /* A small one goes through, and all memory came back. */
    b = batch_of(k, 1, 10);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    assert_int_equal(kit_queued(k), 1);
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    buf_free(&b);
    kit_free(k);
}

/* ---- the queue is full ---- */

#define V1_HEADERS                                                                      \
    "Content-Type: application/json\r\nPostHog-Sdk-Info: a/1\r\nPostHog-Attempt: 1\r\n" \
    "PostHog-Request-Id: 01890a5d-ac96-774b-bcce-b302099a8051\r\n"                      \
    "PostHog-Request-Timestamp: 2026-11-30T12:00:00Z\r\n"

static void test_queue_full(void **state)
{
    struct store_options so = store_options_default;
    char headers[400];
    (void)state;
    so.project_events_max = 5;
    so.queue_events_max = 8;
    struct kit *k = kit_new(&so, &OPTIONS, NULL, NULL);
    struct buf b = batch_of(k, 4, 0);
    assert_int_equal(post(k, "/batch/", "", &b), 200);
    /* All or nothing: the one that would fit is not stored either. */
    unsigned told = k->told;
    assert_int_equal(post(k, "/batch/", "", &b), 503);
    assert_has(k->head, "Retry-After: 30\r\n");
    assert_has(k->body, "the queue is full");
    assert_int_equal(kit_queued(k), 4);
    assert_int_equal(k->told, told);
    buf_free(&b);
    static const char fifth[] =
        "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\",\"uuid\":"
        "\"01890a5d-ac96-774b-bcce-b302099a8052\"}";
    assert_int_equal(kit_post_t(k, "/e/", fifth), 200);
    assert_text(k->body, "{\"status\":\"Ok\"}");
    /* A repeat needs no room; a bad event has room of its own. */
    assert_int_equal(kit_post_t(k, "/e/", fifth), 200);
    assert_has(k->body, "\"duplicates\":1");
    assert_int_equal(kit_post_t(k, "/e/", "[{\"token\":\"%T\",\"event\":\"x\"}]"), 200);
    assert_has(k->body, "\"rejected\":1");
    assert_int_equal(
        kit_post_t(k, "/e/", "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\"}"), 503);
    /* v1 and Segment say it in their words. */
    (void)snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n" V1_HEADERS, k->token);
    assert_int_equal(kit_ask(k, true, "POST", "/i/v1/analytics/events", headers,
                             SLICE("{\"created_at\":\"2026-11-30T12:00:00Z\",\"batch\":[{\"event\":"
                                   "\"x\",\"distinct_id\":\"d\",\"uuid\":"
                                   "\"01890a5d-ac96-774b-bcce-b302099a8051\",\"timestamp\":\"2026-"
                                   "11-30T12:00:00Z\"}]}")),
                     503);
    assert_has(k->head, "Retry-After: 30\r\n");
    assert_has(k->body, "{\"error\":\"queue_full\"");
    assert_int_equal(
        kit_post_t(k, "/v1/track", "{\"writeKey\":\"%T\",\"event\":\"x\",\"userId\":\"u\"}"), 429);
    assert_has(k->head, "Retry-After: 30\r\n");
    assert_has(k->body, "{\"success\":false,\"code\":\"queue_full\",\"message\":\"");
    (void)snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n", k->writer);
    assert_int_equal(kit_ask(k, true, "POST", "/api/v1/projects/demo/events", headers,
                             SLICE("{\"events\":[{\"event\":\"x\"}]}")),
                     503);
    assert_has(k->body, "{\"error\":\"queue_full\"");
    assert_int_equal(kit_queued(k), 5);
    /* Another project still has room. */
    char body[300];
    (void)snprintf(body, sizeof body, "{\"api_key\":\"%s\",\"event\":\"x\",\"distinct_id\":\"d\"}",
                   k->other);
    assert_int_equal(kit_post(k, "/e/", body), 200);
    kit_free(k);
}

/* ---- the store is not there yet ---- */

static void attach(void *ctx)
{
    struct kit *k = ctx;
    capture_attach(k->capture, k->store);
}

static void test_late_store(void **state)
{
    static const char event[] = "{\"api_key\":\"%T\",\"event\":\"x\",\"distinct_id\":\"d\"}";
    static const char track[] = "{\"writeKey\":\"%T\",\"event\":\"x\",\"userId\":\"u\"}";
    (void)state;
    kit_late = true;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    kit_late = false;
    /* No key is known, and nobody is told that his is wrong. */
    assert_int_equal(kit_post_t(k, "/e/", event), 503);
    assert_has(k->head, "Retry-After: 30\r\n");
    assert_int_equal(kit_post_t(k, "/v1/track", track), 429);
    assert_has(k->body, "\"code\":\"no_space\"");
    assert_int_equal(kit_post(k, "/api/v1/projects/demo/events", "{}"), 503);
    assert_int_equal(kit_post(k, "/i/v1/analytics/events", "{}"), 503);
    assert_int_equal(kit_ask(k, true, "GET", "/array/a/config", "", (struct slice){0}), 200);
    assert_int_equal(kit_queued(k), 0);
    assert_true(http_post(k->server, attach, k));
    assert_int_equal(kit_post_t(k, "/e/", event), 200);
    assert_int_equal(kit_post_t(k, "/v1/track", track), 200);
    assert_int_equal(kit_queued(k), 2);
    kit_free(k);
}

/* ---- what each failure of the store is called ---- */

static struct {
    int code;
    enum capture_dialect dialect;
} failing;

static void on_failing(void *ctx, struct http_request *req)
{
    static struct capture door; /* what the answer notes of the door */
    struct capture_batch *b = arena_calloc(http_arena(req), 1, sizeof *b);
    struct err e = {0};
    (void)ctx;
    assert_non_null(b);
    b->c = &door;
    b->req = req;
    b->dialect = failing.dialect;
    (void)err_set(&e, failing.code, "inside /var/lib/tallyman: broken");
    capture_answer(b, failing.code, &e);
}

static void test_failures(void **state)
{
    static const struct {
        int code;
        unsigned posthog, segment, native;
        const char *wait;
    } rows[] = {
        {ERR_QUEUE_FULL, 503, 429, 503, "30"},
        {ERR_NO_SPACE, 503, 429, 503, "30"},
        {ERR_STORE_POISONED, 503, 503, 503, "30"},
        {ERR_STORE_BUSY, 503, 429, 503, "2"},
        {ERR_OVERLOADED, 503, 429, 429, "2"},
        {ERR_NO_MEMORY, 503, 429, 429, "2"},
        {ERR_IO, 500, 500, 500, "2"},
        {ERR_CORRUPT, 500, 500, 500, "2"},
    };
    static const enum http_shape shapes[] = {HTTP_SHAPE_POSTHOG, HTTP_SHAPE_POSTHOG_V1,
                                             HTTP_SHAPE_SEGMENT, HTTP_SHAPE_API};
    static const enum capture_dialect dialects[] = {CAPTURE_POSTHOG, CAPTURE_POSTHOG_V1,
                                                    CAPTURE_SEGMENT, CAPTURE_NATIVE};
    (void)state;
    for (size_t s = 0; s < 4; s++) {
        struct http_route route = {.path = "/failing",
                                   .methods = HTTP_POST,
                                   .auth = HTTP_AUTH_OPEN,
                                   .shape = shapes[s],
                                   .body_max_bytes = 10,
                                   .on_request = on_failing};
        struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, &route);
        failing.dialect = dialects[s];
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            char wait[40];
            failing.code = rows[i].code;
            (void)kit_post(k, "/failing", "");
            expect_status(k, s < 2 ? rows[i].posthog : s == 2 ? rows[i].segment : rows[i].native);
            (void)snprintf(wait, sizeof wait, "Retry-After: %s\r\n", rows[i].wait);
            assert_has(k->head, wait);
            assert_has_not(buf_slice(&k->answer), "/var/lib");
        }
        kit_free(k);
    }
}

/* The client goes before the commit: what it sent is stored all the same, once. */
static void test_client_gone(void **state)
{
    (void)state;
    struct kit *k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    __atomic_store_n(&k->hold, true, __ATOMIC_RELAXED);
    struct buf b = batch_of(k, 3, 0);
    struct buf all = {0};
    buf_printf(&all, "POST /batch/ HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n", b.len);
    buf_put_slice(&all, buf_slice(&b));
    int fd = kit_connect(k, true);
    kit_send(fd, all.ptr, all.len);
    (void)usleep(200000);
    (void)close(fd);
    (void)usleep(200000);
    assert_int_equal(kit_queued(k), 0);
    __atomic_store_n(&k->hold, false, __ATOMIC_RELAXED);
    for (int i = 0; i < 100 && kit_queued(k) == 0; i++) {
        (void)kit_ask(k, false, "GET", "/array/x/config", "", (struct slice){0}); /* a turn */
    }
    assert_int_equal(kit_queued(k), 3);
    buf_free(&all);
    buf_free(&b);
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_batches),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_c41_bombs),
        cmocka_unit_test(test_no_memory_for_bodies),
        cmocka_unit_test(test_queue_full),
        cmocka_unit_test(test_late_store),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_client_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
