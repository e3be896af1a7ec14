/* front_kit: routes of every kind and a run of them over the wire, for the tests of the whole
 * front.
 *
 * Everything is static and inline: a test includes this once and uses what it needs. */
#ifndef TESTS_UNIT_HTTP_FRONT_KIT_H
#define TESTS_UNIT_HTTP_FRONT_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "tests/http/wire.h"

#define H "Host: localhost\r\n"

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

static void on_odd(void *ctx, struct http_request *req)
{
    (void)ctx;
    if (http_has_query(req)) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "a\n\"b\"\x01", (struct slice){0});
    } else {
        http_answer(req, 299, NULL, (struct slice){0});
    }
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
    {.path = "/odd", .methods = HTTP_GET, .on_request = on_odd},
    {.path = "/again", .methods = HTTP_POST, .on_request = on_again},
    {.path = "/stream", .methods = HTTP_GET, .on_request = on_stream},
};

static inline int run(const char *in, size_t n)
{
    struct http_config config = {
        .limits = http_limits_default,
        .routes = routes,
        .route_count = sizeof routes / sizeof routes[0],
        .hooks = {.turn = answer_held, .tick = on_tick, .stopping = on_stopping},
        .handle_signals = true};
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

static inline unsigned count_of(struct slice s, const char *text)
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

static inline unsigned letters_in(struct slice s)
{
    unsigned n = 0;

    for (size_t i = 0; i < s.len; i++) {
        n += s.ptr[i] == 'z' ? 1 : 0;
    }
    return n;
}

#endif
