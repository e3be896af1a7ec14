/* test_memory: every allocation of a whole conversation fails once. The server must neither abort
 * nor send an answer that is cut, nor leave anything behind.
 *
 * The allocator is replaced by functions that count and then call glibc's own; sanitizers have an
 * allocator of their own, so under them there is nothing to count and the conversation only runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "tests/http/wire.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTED 0
#endif
#endif
#ifndef COUNTED
#define COUNTED 1
#endif

static bool armed;
static unsigned allocations;
static unsigned fail_at;
static unsigned failures;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool must_fail(void)
{
    if (!armed) {
        return false;
    }
    allocations++;
    failures += allocations == fail_at ? 1 : 0;
    return allocations == fail_at;
}

void *malloc(size_t n)
{
    return must_fail() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return must_fail() ? NULL : __libc_realloc(p, n);
}
#endif

#define H "Host: localhost\r\n"

static const char script[] = "GET /stream HTTP/1.1\r\n" H "\r\n"
                             "GET / HTTP/1.1\r\n" H "A: b\r\nC: d\r\n\r\n"
                             "POST / HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nfirst"
                             "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                             "3\r\nsec\r\n3;x\r\nond\r\n0\r\nT: r\r\n\r\n"
                             "PUT / HTTP/1.1\r\n" H "\r\n"
                             "GET /nowhere?a=b HTTP/1.1\r\n" H "\r\n"
                             "GET / HTTP/1.1\r\n" H "Origin: x\r\n\r\n"
                             "OPTIONS /p/x HTTP/1.1\r\n" H "Origin: x\r\n"
                             "Access-Control-Request-Headers: a,b\r\n\r\n"
                             "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\n"
                             "Content-Length: 140000\r\n\r\n";

static void posted(void *ctx)
{
    (void)ctx;
}

static int64_t read_piece(void *ctx, char *p, size_t cap)
{
    unsigned *left = ctx;

    if (*left == 0) {
        return 0;
    }
    (*left)--;
    memset(p, 'z', cap < 1000 ? cap : 1000);
    return cap < 1000 ? (int64_t)cap : 1000;
}

static void on_stream(void *ctx, struct http_request *req)
{
    static const struct http_source source = {.read = read_piece};
    static unsigned left;

    (void)ctx;
    left = 3;
    http_answer_stream(req, 200, "text/plain", &source, &left);
}

static void on_echo(void *ctx, struct http_request *req)
{
    struct slice name;
    struct slice value;
    struct http_pairs pairs = {.rest = SLICE("a=b")};

    (void)ctx;
    if (http_next_pair(&pairs, http_arena(req), &name, &value) < 0 ||
        !http_post(http_server_of(req), posted, NULL)) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "No memory.", (struct slice){0});
        return;
    }
    http_add_header(req, "X-Name", name);
    http_answer(req, 200, "text/plain", http_body(req));
}

static int run(struct buf *in)
{
    static const struct http_route routes[] = {
        {.path = "/",
         .methods = HTTP_GET | HTTP_POST,
         .body_max_bytes = 1u << 20,
         .on_request = on_echo},
        {.path = "/stream", .methods = HTTP_GET, .on_request = on_stream},
        {.path = "/p/*",
         .methods = HTTP_GET,
         .auth = HTTP_AUTH_OPEN,
         .cors = true,
         .on_request = on_stream}};
    struct http_config config = {.limits = http_limits_default, .routes = routes, .route_count = 3};
    unsigned char cut = 60;
    struct err e = {0};
    int result;

    config.limits.workers = 1;
    wire = (struct wire){.in = in->ptr,
                         .in_len = in->len,
                         .ends = true,
                         .cuts = &cut,
                         .cut_count = 1,
                         .send_max = 500};
    buf_reserve(&wire.out, 1u << 20); /* the wire's own memory is not what is tested */
    allocations = 0;
    failures = 0;
    armed = true;
    result = wire_run(&config, &e);
    armed = false;
    assert_int_equal(metric_get(METRIC_HTTP_CONNECTIONS), 0);
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    return result;
}

/* What was sent is the right answer as far as it goes, or differs from it only in a whole error. */
static void check_output(const struct buf *whole)
{
    size_t same = 0;
    struct slice rest;

    while (same < wire.out.len && same < whole->len && wire.out.ptr[same] == whole->ptr[same]) {
        same++;
    }
    rest = slice_from(buf_slice(&wire.out), same);
    if (rest.len == 0) {
        return;
    }
    while (same > 0 && memcmp(wire.out.ptr + same, "HTTP/1.1", 8) != 0) {
        same--;
    }
    rest = slice_from(buf_slice(&wire.out), same);
    assert_true(slice_starts(rest, SLICE("HTTP/1.1 500 ")) ||
                slice_starts(rest, SLICE("HTTP/1.1 429 ")));
}

static void test_every_allocation_fails_once(void **state)
{
    struct buf in = {0};
    struct buf whole;
    unsigned total;

    (void)state;
    buf_put_cstr(&in, script);
    for (int i = 0; i < 140000; i++) {
        buf_put_char(&in, 'x');
    }
    buf_put_cstr(&in, "this is no request\r\n\r\n");
    fail_at = 0;
    assert_int_equal(run(&in), 0);
    whole = wire.out;
    assert_true(whole.len > 140000);
    total = allocations;
    assert_true(!COUNTED || total > 20);
    for (fail_at = 1; fail_at <= total; fail_at++) {
        int result = run(&in);

        /* A start that fails says so; once it serves, it goes on serving. */
        assert_true(result == 0 || result == ERR_NO_MEMORY || result == ERR_IO);
        assert_true(result == 0 || wire.out.len == 0);
        check_output(&whole);
        buf_free(&wire.out);
    }
    print_message("%u allocations\n", total);
    buf_free(&whole);
    buf_free(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
