/* test_front: the whole front over a wire without a kernel (tests/http/wire.h): every cut, writes
 * of a few bytes, every single failing call, streams and workers whose client has gone. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "tests/http/wire.h"

#define H "Host: localhost\r\n"

/* Requests of every kind; the last one is refused in the middle of its body. */
static const char script[] =
    "GET /hello HTTP/1.1\r\n" H "\r\n"
    "POST /turn HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nfirst"
    "POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    "3\r\nsec\r\n3;x\r\nond\r\n0\r\nT: r\r\n\r\n"
    "HEAD /hello HTTP/1.1\r\n" H "\r\n"
    "\r\nPUT /hello HTTP/1.1\r\n" H "\r\n"
    "GET /nowhere?a=b HTTP/1.1\r\n" H "\r\n"
    "POST /turn HTTP/1.1\r\n" H "Expect: 100-continue\r\n"
    "Content-Length: 100\r\n\r\n"
    "0123456789012345678901234567890123456789012345678901234567890123456789"
    "012345678901234567890123456789"
    "POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\nbad\r\nGET /hello HTTP/1.1\r\n" H "\r\n";

static struct http_request *held[64];
static unsigned held_count;
static unsigned opened;
static unsigned closed;
static unsigned worked;
static unsigned ticks;
static unsigned stops;
static unsigned again_refused;

static void on_hello(void *ctx, struct http_request *req)
{
    (void)ctx;
    assert_false(http_answered(req));
    http_answer(req, 200, "text/plain", SLICE("hello"));
    assert_true(http_answered(req));
    assert_true(slice_eq(http_path(req), SLICE("/hello"))); /* readable until the turn ends */
}

static void on_turn_request(void *ctx, struct http_request *req)
{
    http_set_user(req, ctx);
    assert_true(held_count < 64);
    held[held_count] = req;
    held_count++;
}

static void answer_held(void *ctx)
{
    (void)ctx;
    for (unsigned i = 0; i < held_count; i++) {
        assert_null(http_user(held[i]));
        http_answer(held[i], 200, "text/plain", http_body(held[i]));
    }
    held_count = 0;
}

static void work(void *ctx)
{
    (void)ctx;
}

static void work_done(void *ctx, struct http_request *req)
{
    (void)ctx;
    worked++;
    http_answer(req, 200, "text/plain", http_body(req));
}

static void on_work(void *ctx, struct http_request *req)
{
    assert_true(http_work(req, work, work_done, ctx));
}

static int64_t read_letters(void *ctx, char *p, size_t cap)
{
    uint64_t *left = ctx;
    size_t n = *left < cap ? (size_t)*left : cap;

    memset(p, 'z', n); /* a letter that is in no header */
    *left -= n;
    return (int64_t)n;
}

static void close_letters(void *ctx)
{
    closed++;
    free(ctx);
}

static void on_stream(void *ctx, struct http_request *req)
{
    static const struct http_source source = {.read = read_letters, .close = close_letters};
    uint64_t *left = malloc(sizeof *left);

    (void)ctx;
    assert_non_null(left);
    *left = 600000;
    opened++;
    http_answer_stream(req, 200, "text/plain", &source, left);
}

/* Answers long after its client may have gone. */
static void on_late(void *ctx, struct http_request *req)
{
    (void)ctx;
    assert_true(http_work(req, work, on_turn_request, NULL));
}

/* One job after the other, until there can be none. */
static void again_done(void *ctx, struct http_request *req)
{
    if (!http_work(req, work, again_done, ctx)) {
        again_refused++;
        http_answer_error(req, ERR_OVERLOADED, "No more.", (struct slice){0});
    }
}

static void on_again(void *ctx, struct http_request *req)
{
    assert_true(http_work(req, work, again_done, ctx));
}

static void on_tick(void *ctx)
{
    (void)ctx;
    ticks++;
}

static void on_stopping(void *ctx)
{
    (void)ctx;
    stops++;
}

static const struct http_route routes[] = {
    {.path = "/hello",
     .methods = HTTP_GET | HTTP_POST,
     .body_max_bytes = 64,
     .on_request = on_hello},
    {.path = "/turn", .methods = HTTP_POST, .body_max_bytes = 4096, .on_request = on_turn_request},
    {.path = "/work", .methods = HTTP_POST, .body_max_bytes = 1u << 20, .on_request = on_work},
    {.path = "/late", .methods = HTTP_POST, .body_max_bytes = 64, .on_request = on_late},
    {.path = "/again", .methods = HTTP_POST, .on_request = on_again},
    {.path = "/stream", .methods = HTTP_GET, .on_request = on_stream},
};

static int run(const char *in, size_t n)
{
    struct http_config config = {
        .limits = http_limits_default,
        .routes = routes,
        .route_count = sizeof routes / sizeof routes[0],
        .hooks = {.turn = answer_held, .tick = on_tick, .stopping = on_stopping}};
    struct err e = {0};
    int result;

    config.limits.workers = 1;
    wire.in = in;
    wire.in_len = n;
    held_count = 0;
    opened = 0;
    closed = 0;
    worked = 0;
    stops = 0;
    result = wire_run(&config, &e);
    assert_int_equal(opened, closed);
    assert_int_equal(metric_get(METRIC_HTTP_CONNECTIONS), 0);
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    if (result != 0) {
        assert_true(e.text[0] != '\0');
    }
    return result;
}

static void drop_interim(struct buf *b)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t n = sizeof interim - 1;
    char *at = b->len == 0 ? NULL : memmem(b->ptr, b->len, interim, n);

    if (at != NULL) {
        memmove(at, at + n, b->len - (size_t)(at - b->ptr) - n);
        b->len -= n;
    }
}

static unsigned count_of(struct slice s, const char *text)
{
    unsigned n = 0;
    const char *at = s.len == 0 ? NULL : memmem(s.ptr, s.len, text, strlen(text));

    while (at != NULL) {
        n++;
        at++;
        at = memmem(at, s.len - (size_t)(at - s.ptr), text, strlen(text));
    }
    return n;
}

/* What the script gives on a good day. */
static struct buf expected_output(void)
{
    struct buf out;

    wire = (struct wire){.ends = true};
    assert_int_equal(run(script, sizeof script - 1), 0);
    assert_true(wire.closed);
    assert_int_equal(stops, 1);
    out = wire.out;
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 200 OK\r\n"), 5);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 404 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 405 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 400 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "Connection: close\r\n"), 1);
    return out;
}

static void test_every_cut(void **state)
{
    struct buf whole = expected_output();

    (void)state;
    for (size_t piece = 1; piece < 256; piece += piece < 40 ? 1 : 17) {
        for (size_t sends = 0; sends < 3; sends++) {
            unsigned char cut = (unsigned char)piece;

            wire = (struct wire){.ends = true, .cuts = &cut, .cut_count = 1, .send_max = sends * 7};
            assert_int_equal(run(script, sizeof script - 1), 0);
            drop_interim(&wire.out);
            assert_true(slice_eq(buf_slice(&wire.out), buf_slice(&whole)));
            buf_free(&wire.out);
        }
    }
    buf_free(&whole);
}

static void test_writes_of_one_byte(void **state)
{
    struct buf whole = expected_output();

    (void)state;
    wire = (struct wire){.ends = true, .send_max = 1};
    assert_int_equal(run(script, sizeof script - 1), 0);
    assert_true(slice_eq(buf_slice(&wire.out), buf_slice(&whole)));
    buf_free(&wire.out);
    buf_free(&whole);
}

/* Each call fails once, with each of these; what was sent is the beginning of the right answer. */
static void test_every_call_fails_once(void **state)
{
    static const int errors[] = {EIO, EMFILE, ENOMEM, ECONNRESET, EPIPE, ECONNABORTED, EADDRINUSE};
    struct buf whole = expected_output();
    unsigned fired = 0;

    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        bool more = true;

        for (unsigned at = 1; more; at++) {
            unsigned char cut = 50;
            int result;

            wire = (struct wire){.ends = true,
                                 .cuts = &cut,
                                 .cut_count = 1,
                                 .send_max = 200,
                                 .fail_at = at,
                                 .fail_with = errors[i]};
            result = run(script, sizeof script - 1);
            more = wire.failed;
            fired += more ? 1 : 0;
            drop_interim(&wire.out);
            assert_true(slice_starts(buf_slice(&whole), buf_slice(&wire.out)));
            if (!more) {
                assert_int_equal(result, 0);
                assert_int_equal(wire.out.len, whole.len);
            } else if (strcmp(wire.failed_name, "accept") == 0) {
                /* A failed accept is tried again: nothing is lost. */
                assert_int_equal(result, 0);
                assert_int_equal(wire.out.len, whole.len);
            } else if (result != 0) {
                assert_int_equal(wire.out.len, 0); /* it failed to start */
                if (strcmp(wire.failed_name, "bind") == 0 && errors[i] == EADDRINUSE) {
                    assert_int_equal(result, ERR_REFUSED);
                }
            }
            buf_free(&wire.out);
        }
    }
    print_message("%u faults\n", fired);
    assert_true(fired > 200);
    buf_free(&whole);
}

static void test_epoll_that_fails_ends_the_server(void **state)
{
    (void)state;
    for (unsigned turn = 1; turn < 6; turn++) {
        wire = (struct wire){.wait_fails_at = turn};
        assert_int_equal(run(script, 100), ERR_IO);
        buf_free(&wire.out);
    }
}

static unsigned letters_in(struct slice s)
{
    unsigned n = 0;

    for (size_t i = 0; i < s.len; i++) {
        n += s.ptr[i] == 'z' ? 1 : 0;
    }
    return n;
}

static const char stream_script[] = "GET /stream HTTP/1.1\r\n" H "\r\n"
                                    "GET /hello HTTP/1.1\r\n" H "\r\n";

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
    assert_in_range(wire.now_ms, 60000, 62000);
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

static void test_large_body_comes_straight_to_its_place(void **state)
{
    static const char head[] = "POST /work HTTP/1.1\r\n" H "Content-Length: 1048576\r\n\r\n";
    size_t n = sizeof head - 1 + (1u << 20);
    char *in = malloc(n);
    unsigned char cut = 0;

    (void)state;
    assert_non_null(in);
    memset(in, 'b', n);
    memcpy(in, head, sizeof head - 1);
    for (size_t cuts = 0; cuts < 2; cuts++) {
        wire = (struct wire){.ends = true, .cuts = &cut, .cut_count = cuts};
        assert_int_equal(run(in, n), 0);
        assert_int_equal(worked, 1);
        assert_true(wire.out.len > 1u << 20);
        assert_memory_equal(wire.out.ptr + wire.out.len - (1u << 20), in + sizeof head - 1,
                            1u << 20);
        buf_free(&wire.out);
    }
    free(in);
}

static void test_idle_and_slow_clients(void **state)
{
    static const struct {
        const char *in;
        const char *answer; /* beginning, "" for none */
        uint64_t from_ms;   /* when the connection is gone, linger included */
        uint64_t to_ms;
    } table[] = {
        {"", "", 75000, 79000},
        {"\r\n", "", 75000, 79000},
        {"GET /", "HTTP/1.1 408 ", 10000, 14000},
        {"GET /hello HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 200 ", 75000, 79000},
        {"POST /turn HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nx", "HTTP/1.1 408 ", 30000, 34000},
        {"POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nab", "HTTP/1.1 408 ",
         30000, 34000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        wire = (struct wire){0};
        ticks = 0;
        assert_int_equal(run(table[i].in, strlen(table[i].in)), 0);
        assert_true(wire.closed);
        assert_true(slice_starts(buf_slice(&wire.out), slice_cstr(table[i].answer)));
        assert_int_equal(wire.out.len == 0, table[i].answer[0] == '\0');
        assert_in_range(wire.now_ms, table[i].from_ms, table[i].to_ms);
        assert_in_range(ticks, wire.now_ms / 1000 - 3, wire.now_ms / 1000 + 1);
        buf_free(&wire.out);
    }
}

/* ---- posts and stops from other threads ---- */

static void posted_stop(void *ctx)
{
    worked++;
    http_stop(ctx);
}

static void *poster(void *ctx)
{
    bool ok = true;

    for (int i = 0; i < 100; i++) {
        ok = ok && http_post(ctx, posted_stop, ctx);
    }
    return ok ? NULL : ctx;
}

static void test_post_from_another_thread(void **state)
{
    struct http_config config = {.limits = http_limits_default, .routes = routes, .route_count = 1};
    struct http_server *s;
    pthread_t thread;
    void *failed;
    struct err e;

    (void)state;
    worked = 0;
    s = http_new(&config, &e);
    assert_non_null(s);
    assert_false(http_stopping(s));
    assert_int_equal(pthread_create(&thread, NULL, poster, s), 0);
    assert_int_equal(http_run(s, &e), 0);
    assert_true(http_stopping(s));
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    http_free(s);
    assert_int_equal(worked, 100); /* none is lost, whenever it came */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_writes_of_one_byte),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_epoll_that_fails_ends_the_server),
        cmocka_unit_test(test_work_after_the_end),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_whose_client_reads_nothing),
        cmocka_unit_test(test_stream_fails_to_leave),
        cmocka_unit_test(test_clients_gone_before_their_answer),
        cmocka_unit_test(test_large_body_comes_straight_to_its_place),
        cmocka_unit_test(test_idle_and_slow_clients),
        cmocka_unit_test(test_post_from_another_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
