/* test_stream: streams and workers over a wire without a kernel: whole, in small writes, to clients
 * that read nothing or have gone. */
#include "tests/unit/http/front_kit.h"

/* A worker that is done when the server is no more cannot begin anything new. */
static void test_work_after_the_end(void **state)
{
    static const char text[] = "POST /again HTTP/1.1\r\n" H "\r\n";

    (void)state;
    for (unsigned turn = 2; turn < 8; turn++) {
        wire = (struct wire){.wait_fails_at = turn};
        again_refused = 0;
        assert_int_equal(run(text, sizeof text - 1), ERR_IO);
        assert_int_equal(again_refused, turn > 2 ? 1 : 0);
        buf_free(&wire.out);
    }
}

static const char stream_script[] = "GET /stream HTTP/1.1\r\n" H "\r\n"
                                    "GET /hello HTTP/1.1\r\n" H "\r\n";

static void test_stream(void **state)
{
    (void)state;
    for (size_t sends = 0; sends < 200000; sends = sends * 3 + 5000) {
        const char *at;

        wire = (struct wire){.ends = true, .send_max = sends};
        assert_int_equal(run(stream_script, sizeof stream_script - 1), 0);
        assert_int_equal(closed, 1);
        assert_int_equal(letters_in(buf_slice(&wire.out)), 600000);
        at = memmem(wire.out.ptr, wire.out.len, "\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", 24);
        assert_non_null(at);
        buf_free(&wire.out);
    }
}

static void test_stream_whose_client_reads_nothing(void **state)
{
    (void)state;
    wire = (struct wire){.stuck_out = true};
    assert_int_equal(run(stream_script, sizeof stream_script - 1), 0);
    assert_true(wire.closed);
    assert_int_equal(closed, 1);
    assert_int_equal(wire.out.len, 0);
    assert_in_range(wire.now_ms, 60000, 64000);
}

static void test_stream_fails_to_leave(void **state)
{
    (void)state;
    for (unsigned at = 1; at < 40; at++) {
        wire =
            (struct wire){.ends = true, .send_max = 70000, .fail_at = at, .fail_with = ECONNRESET};
        (void)run(stream_script, sizeof stream_script - 1);
        buf_free(&wire.out);
    }
}

static void test_clients_gone_before_their_answer(void **state)
{
    static const char text[] = "POST /work HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx"
                               "POST /late HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx"
                               "POST /turn HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx";
    static const char late[] = "POST /late HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx";

    (void)state;
    for (unsigned at = 1; at < 60; at++) {
        wire = (struct wire){.ends = true, .fail_at = at, .fail_with = EPIPE};
        (void)run(text, sizeof text - 1);
        buf_free(&wire.out);
    }
    /* The client resets while its request is with a worker. */
    for (unsigned at = 1; at < 40; at++) {
        unsigned char cut = 200;

        wire = (struct wire){
            .cuts = &cut, .cut_count = 1, .fail_at = at, .fail_with = ECONNRESET, .ends = true};
        (void)run(late, sizeof late - 1);
        buf_free(&wire.out);
    }
}

static void on_held_stream(void *ctx)
{
    (void)ctx;
    if (held_count == 2) {
        on_stream(NULL, held[0]);
        http_answer(held[1], 200, "text/plain", SLICE("never seen"));
        held_count = 0;
    }
}

/* The stream's end is the connection's: what was asked behind it is dropped. */
static void test_stream_to_1_0_with_a_request_behind_it(void **state)
{
    static const char text[] = "POST /turn HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                               "POST /turn HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0],
                                 .hooks = {.turn = on_held_stream}};
    struct err e = {0};

    (void)state;
    wire = (struct wire){.in = text, .in_len = sizeof text - 1};
    closed = 0;
    assert_int_equal(wire_run(&config, &e), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(letters_in(buf_slice(&wire.out)), 600000);
    assert_int_equal(count_of(slice_of(wire.out.ptr, 300), "Connection: close\r\n"), 1);
    assert_int_equal(wire.out.ptr[wire.out.len - 1], 'z');
    buf_free(&wire.out);
}

/* The same while the last request behind it waits for budget, which their end gives back. */
static void test_stream_to_1_0_with_a_body_waiting_behind_it(void **state)
{
#define TURN "POST /turn HTTP/1.0\r\nConnection: keep-alive\r\n"
#define BODY "Content-Length: 20\r\n\r\n01234567890123456789"
    static const char text[] = TURN "\r\n" TURN BODY TURN BODY;
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0],
                                 .hooks = {.turn = on_held_stream}};
    struct err e = {0};

    (void)state;
    config.limits.body_budget_bytes = 30;
    wire = (struct wire){.in = text, .in_len = sizeof text - 1};
    closed = 0;
    assert_int_equal(wire_run(&config, &e), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(letters_in(buf_slice(&wire.out)), 600000);
    assert_int_equal(wire.out.ptr[wire.out.len - 1], 'z');
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    buf_free(&wire.out);
#undef BODY
#undef TURN
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_after_the_end),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_whose_client_reads_nothing),
        cmocka_unit_test(test_stream_fails_to_leave),
        cmocka_unit_test(test_clients_gone_before_their_answer),
        cmocka_unit_test(test_stream_to_1_0_with_a_request_behind_it),
        cmocka_unit_test(test_stream_to_1_0_with_a_body_waiting_behind_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
