/* test_live: live sources over a wire without a kernel: what they may say, in every order, to
 * clients that take everything, little, nothing, or have gone. */
#include "tests/unit/http/front_kit.h"

/* A source that does what a text says, a letter a question:
 *   s  sends "zz" from the loop          r  a worker reads 3 letters
 *   n  a worker reads nothing            x  a worker's read fails
 *   w  waits; the next turn wakes it     W  waits for ever
 *   e  ends                              c  cuts */
struct script {
    const char *at;
    struct http_request *req;
    bool woken_due;
    unsigned asked;
    bool reading;
};

static const char *what;
static struct script *open_script;
static unsigned questions;
static size_t held_bytes; /* of the buffer of a request that waits, at its largest */

static enum http_next script_next(void *ctx, struct buf *out)
{
    struct script *s = ctx;

    ensure(!s->reading);
    s->asked++;
    questions++;
    switch (*s->at) {
    case 's':
        s->at++;
        buf_put_cstr(out, "zz");
        return HTTP_NEXT_SEND;
    case 'r':
    case 'n':
    case 'x':
        return HTTP_NEXT_READ;
    case 'w':
    case 'W':
        s->woken_due = *s->at == 'w';
        s->at += *s->at == 'w' ? 1 : 0;
        return HTTP_NEXT_WAIT;
    case 'c':
        return HTTP_NEXT_CUT;
    default:
        return HTTP_NEXT_END;
    }
}

static int64_t script_read(void *ctx, char *p, size_t cap)
{
    struct script *s = ctx;
    char c = *s->at;

    ensure(cap == HTTP_LIVE_PIECE_BYTES);
    s->at++;
    if (c == 'x') {
        return ERR_IO;
    }
    if (c == 'n') {
        return 0;
    }
    memcpy(p, "zzz", 3);
    return 3;
}

static void script_close(void *ctx)
{
    ensure(open_script == ctx);
    open_script = NULL;
    closed++;
    free(ctx);
}

static void on_live(void *ctx, struct http_request *req)
{
    static const struct http_source source = {
        .read = script_read, .close = script_close, .next = script_next};
    struct script *s = calloc(1, sizeof *s);

    (void)ctx;
    assert_non_null(s);
    s->at = what;
    s->req = req;
    open_script = s;
    opened++;
    http_answer_stream(req, 200, "text/plain", &source, s);
}

static void on_live_turn(void *ctx)
{
    (void)ctx;
    if (open_script == NULL) {
        return;
    }
    if (open_script->req->waits && open_script->req->out.cap > held_bytes) {
        held_bytes = open_script->req->out.cap;
    }
    if (open_script->woken_due) {
        open_script->woken_due = false;
        http_stream_wake(open_script->req);
    }
}

static const struct http_route live_routes[] = {
    {.path = "/live", .methods = HTTP_GET, .on_request = on_live},
    {.path = "/hello", .methods = HTTP_GET, .on_request = on_hello},
};

static int run_live(const char *script, const char *in)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = live_routes,
                                 .route_count = 2,
                                 .hooks = {.turn = on_live_turn}};
    struct err e = {0};
    int result;

    config.limits.workers = 1;
    wire.in = in;
    wire.in_len = strlen(in);
    what = script;
    opened = 0;
    closed = 0;
    questions = 0;
    held_bytes = 0;
    result = wire_run(&config, &e);
    assert_int_equal(opened, closed);
    assert_null(open_script);
    assert_int_equal(metric_get(METRIC_HTTP_CONNECTIONS), 0);
    return result;
}

#define LIVE "GET /live HTTP/1.1\r\n" H "\r\n"

static unsigned letters_of(const char *script)
{
    unsigned n = 0;

    for (; *script != '\0' && *script != 'x' && *script != 'c' && *script != 'e'; script++) {
        n += *script == 's' ? 2 : *script == 'r' ? 3 : 0;
    }
    return n;
}

static const char *const scripts[] = {
    "e", "se", "re", "ne", "we", "nre", "srse", "wswrwe", "nnsnwnrnwse", "sssswrrrrwwse",
    "c", "sc", "wc", "rx", "x",  "wx"};

static bool ends_well(const char *script)
{
    return script[strlen(script) - 1] == 'e';
}

static void test_all_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        for (size_t sends = 0; sends < 400; sends = sends * 2 + 1) {
            const char *script = scripts[i];
            struct slice out;

            wire = (struct wire){.send_max = sends};
            assert_int_equal(run_live(script, LIVE LIVE), 0);
            out = buf_slice(&wire.out);
            assert_int_equal(opened, 1); /* what comes behind it is dropped */
            assert_true(wire.closed);
            assert_int_equal(letters_in(out), letters_of(script));
            assert_int_equal(count_of(out, "Connection: close\r\n"), 1);
            assert_int_equal(count_of(out, "Transfer-Encoding: chunked\r\n"), 1);
            assert_int_equal(count_of(out, "\r\n0\r\n\r\n"), ends_well(script) ? 1 : 0);
            buf_free(&wire.out);
        }
    }
}

/* It is asked only when it has been woken, and holds nothing meanwhile. */
static void test_waiting_costs_nothing(void **state)
{
    (void)state;
    wire = (struct wire){.in_at = 0};
    assert_int_equal(run_live("srW", LIVE), 0);
    assert_int_equal(questions, 3); /* an hour of turns asks no more */
    assert_int_equal(held_bytes, 0);
    assert_int_equal(letters_in(buf_slice(&wire.out)), 5);
    assert_true(wire.now_ms >= 3600000);
    buf_free(&wire.out);
}

static void test_1_0_and_head(void **state)
{
    (void)state;
    wire = (struct wire){.in_at = 0};
    assert_int_equal(run_live("srwse", "GET /live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 0);
    assert_int_equal(letters_in(buf_slice(&wire.out)), 7);
    assert_int_equal(count_of(buf_slice(&wire.out), "chunked"), 0);
    assert_int_equal(count_of(buf_slice(&wire.out), "Connection: close\r\n"), 1);
    buf_free(&wire.out);
    wire = (struct wire){.in_at = 0};
    assert_int_equal(run_live("srwse", "HEAD /live HTTP/1.1\r\n" H "\r\n"), 0);
    assert_int_equal(questions, 0);
    assert_int_equal(count_of(buf_slice(&wire.out), "Connection: close\r\n"), 1);
    assert_int_equal(count_of(buf_slice(&wire.out), "chunked"), 0);
    buf_free(&wire.out);
}

/* write_stall_ms is for answers that have an end: this client is closed by the stop and its grace,
 * an hour later. */
static void test_a_client_that_takes_nothing_stays(void **state)
{
    (void)state;
    wire = (struct wire){.stuck_out = true};
    assert_int_equal(run_live("srse", LIVE), 0);
    assert_true(wire.now_ms >= 3600000);
    assert_int_equal(wire.out.len, 0);
    assert_true(questions <= 2);
}

static void test_a_client_that_has_ended_its_side_has_gone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        wire = (struct wire){.ends = true};
        assert_int_equal(run_live(scripts[i], LIVE), 0);
        assert_true(wire.closed);
        assert_true(wire.now_ms < 60000);
        buf_free(&wire.out);
    }
    wire = (struct wire){.ends = true};
    assert_int_equal(run_live("sW", LIVE), 0);
    assert_true(wire.now_ms < 60000);
    buf_free(&wire.out);
}

static void test_every_call_fails_once(void **state)
{
    (void)state;
    for (unsigned at = 1; at < 60; at++) {
        wire = (struct wire){.send_max = 60, .fail_at = at, .fail_with = ECONNRESET};
        (void)run_live("srwsnwrse", LIVE);
        buf_free(&wire.out);
    }
}

static void test_ready_answers_before_it_come_first(void **state)
{
    const char *at;

    (void)state;
    wire = (struct wire){.in_at = 0};
    assert_int_equal(run_live("swse", "GET /hello HTTP/1.1\r\n" H "\r\n" LIVE), 0);
    at = memmem(wire.out.ptr, wire.out.len, "helloHTTP/1.1 200 OK\r\n", 22);
    assert_non_null(at);
    assert_int_equal(letters_in(buf_slice(&wire.out)), 4);
    buf_free(&wire.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_orders),
        cmocka_unit_test(test_waiting_costs_nothing),
        cmocka_unit_test(test_1_0_and_head),
        cmocka_unit_test(test_a_client_that_takes_nothing_stays),
        cmocka_unit_test(test_a_client_that_has_ended_its_side_has_gone),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_ready_answers_before_it_come_first),
    };
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
