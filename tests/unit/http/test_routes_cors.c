/* test_routes_cors: paths with '*' and with a '/' behind them; what web pages may read (CORS, cases
 * C11); the error shapes of the capture door and what they call full; http_again. Over a wire
 * without a kernel (tests/http/wire.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/http/wire.h"

#define H         "Host: localhost\r\n"
#define O         "Origin: https://a.example\r\n"
#define O_ALLOWED "Access-Control-Allow-Origin: https://a.example\r\n"

static struct http_request *kept;
static unsigned again_left;
static unsigned turns_taken;
static uint64_t ms_taken;

/* ctx: the name of the route; the parts follow it in brackets. */
static void on_name(void *ctx, struct http_request *req)
{
    struct buf b = {0};

    buf_put_cstr(&b, ctx);
    for (unsigned i = 0; i < req->parts; i++) {
        buf_printf(&b, "[%.*s]", (int)http_path_part(req, i).len, http_path_part(req, i).ptr);
    }
    buf_put_char(&b, ';');
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

static void on_full(void *ctx, struct http_request *req)
{
    http_answer_error(req, *(const int *)ctx, "No \"room\".", SLICE("\"more\":1"));
}

static void on_full_later(void *ctx, struct http_request *req)
{
    http_add_header(req, "Retry-After", SLICE("30"));
    http_answer_error(req, *(const int *)ctx, "Full.", (struct slice){0});
}

static void on_again(void *ctx, struct http_request *req)
{
    (void)ctx;
    kept = req;
    again_left = 500;
    turns_taken = wire.turns;
    ms_taken = wire.now_ms;
    http_again(http_server_of(req));
}

static int64_t no_bytes(void *ctx, char *p, size_t cap)
{
    (void)ctx;
    (void)p;
    (void)cap;
    return 0;
}

static void on_stream(void *ctx, struct http_request *req)
{
    static const struct http_source source = {.read = no_bytes};

    http_answer_stream(req, 200, "text/plain", &source, ctx);
}

static void turn_hook(void *ctx)
{
    (void)ctx;
    if (kept == NULL) {
        return;
    }
    again_left--;
    if (again_left != 0) {
        http_again(http_server_of(kept));
        return;
    }
    turns_taken = wire.turns - turns_taken;
    ms_taken = wire.now_ms - ms_taken;
    http_answer(kept, 200, "text/plain", SLICE("done;"));
    kept = NULL;
}

static const int full[] = {ERR_OVERLOADED, ERR_QUEUE_FULL, ERR_STORE_BUSY, ERR_NO_SPACE,
                           ERR_STORE_POISONED};
#define CTX(i) ((void *)(uintptr_t)&full[i])
#define NAME(path_, methods_, cors_, slash_, shape_)                                              \
    {                                                                                             \
        .path = path_, .methods = methods_, .auth = HTTP_AUTH_OPEN, .on_request = on_name,        \
        .ctx = (void *)(uintptr_t)path_, .body_max_bytes = 8, .cors = cors_, .slash_too = slash_, \
        .shape = shape_                                                                           \
    }

static const struct http_route routes[] = {
    NAME("/a/*", HTTP_GET, false, false, HTTP_SHAPE_HISTORY),
    NAME("/a/fixed", HTTP_POST, false, false, HTTP_SHAPE_HISTORY),
    NAME("/a/*/b", HTTP_GET, false, true, HTTP_SHAPE_HISTORY),
    NAME("/a/*/b/*", HTTP_GET | HTTP_POST, false, false, HTTP_SHAPE_HISTORY),
    NAME("/a/*/b/*", HTTP_DELETE, false, false, HTTP_SHAPE_HISTORY),
    NAME("/array/*/config", HTTP_GET, false, false, HTTP_SHAPE_HISTORY),
    NAME("/array/*/config.js", HTTP_GET, false, false, HTTP_SHAPE_HISTORY),
    NAME("/static/*.js", HTTP_GET, false, false, HTTP_SHAPE_HISTORY),
    NAME("/e", HTTP_GET | HTTP_POST, true, true, HTTP_SHAPE_POSTHOG),
    NAME("/v1", HTTP_POST, true, false, HTTP_SHAPE_POSTHOG_V1),
    NAME("/t", HTTP_POST, true, false, HTTP_SHAPE_SEGMENT),
    NAME("/api", HTTP_POST, false, false, HTTP_SHAPE_API),
    NAME("/s/*/settings", HTTP_GET, true, false, HTTP_SHAPE_HISTORY),
    NAME("/mixed", HTTP_GET, false, false, HTTP_SHAPE_HISTORY),
    NAME("/mixed", HTTP_POST, true, false, HTTP_SHAPE_HISTORY),
    {.path = "/local/*", .methods = HTTP_GET, .auth = HTTP_AUTH_LOCAL, .on_request = on_name},
    {.path = "/again", .methods = HTTP_GET, .on_request = on_again},
    {.path = "/stream",
     .methods = HTTP_GET,
     .auth = HTTP_AUTH_OPEN,
     .cors = true,
     .on_request = on_stream},
    {.path = "/full/posthog/overloaded",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_POSTHOG,
     .on_request = on_full,
     .ctx = CTX(0)},
    {.path = "/full/v1/queue",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_POSTHOG_V1,
     .on_request = on_full,
     .ctx = CTX(1)},
    {.path = "/full/segment/queue",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_SEGMENT,
     .on_request = on_full,
     .ctx = CTX(1)},
    {.path = "/full/segment/busy",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_SEGMENT,
     .on_request = on_full,
     .ctx = CTX(2)},
    {.path = "/full/segment/space",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_SEGMENT,
     .on_request = on_full,
     .ctx = CTX(3)},
    {.path = "/full/segment/poisoned",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_SEGMENT,
     .on_request = on_full,
     .ctx = CTX(4)},
    {.path = "/full/api/queue",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_API,
     .on_request = on_full,
     .ctx = CTX(1)},
    {.path = "/full/api/overloaded",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_API,
     .on_request = on_full,
     .ctx = CTX(0)},
    {.path = "/full/later",
     .methods = HTTP_GET,
     .shape = HTTP_SHAPE_POSTHOG,
     .on_request = on_full_later,
     .ctx = CTX(1)},
};

static uint64_t budget_bytes;

/* What the server answers to that; a string, to be freed by buf_free. */
static struct buf ask(const char *in, bool ends)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0],
                                 .hooks = {.turn = turn_hook}};
    struct err e = {0};

    config.limits.workers = 1;
    if (budget_bytes != 0) {
        config.limits.body_budget_bytes = budget_bytes;
    }
    wire = (struct wire){.in = in, .in_len = strlen(in), .ends = ends};
    assert_int_equal(wire_run(&config, &e), 0);
    assert_true(wire.closed);
    buf_put_char(&wire.out, '\0');
    assert_false(wire.out.failed);
    return wire.out;
}

static void expect_text(const struct buf *out, const char *text, bool there)
{
    if ((strstr(out->ptr, text) != NULL) != there) {
        fail_msg("%s%s in: %s", text, there ? " is missing" : " is", out->ptr);
    }
}

/* ---- paths ---- */

static void test_parts(void **state)
{
    static const struct {
        const char *line;
        const char *answer; /* the end of what comes, or "HTTP/1.1 NNN" */
    } table[] = {
        {"GET /a/x", "/a/*[x];"},
        {"GET /a/%2F%00?q=/b", "/a/*[%2F%00];"},
        {"GET /a/", "HTTP/1.1 404 "},
        {"GET /a", "HTTP/1.1 404 "},
        {"GET /a/x/", "HTTP/1.1 404 "},
        {"GET /a/x/c", "HTTP/1.1 404 "},
        {"GET /a/x/b", "/a/*/b[x];"},
        {"GET /a/x/b/", "/a/*/b[x];"},
        {"GET /a/x/b//", "HTTP/1.1 404 "},
        {"GET /a//b", "HTTP/1.1 404 "},
        {"GET /a/x/bb", "HTTP/1.1 404 "},
        {"GET /a/x/b/y", "/a/*/b/*[x][y];"},
        {"DELETE /a/x/b/yy", "/a/*/b/*[x][yy];"},
        {"PUT /a/x/b/y", "Allow: GET, HEAD, POST, DELETE\r\n"},
        {"GET /a/x/b/y/z", "HTTP/1.1 404 "},
        /* a literal path hides the patterns that fit it */
        {"POST /a/fixed", "/a/fixed;"},
        {"GET /a/fixed", "Allow: POST\r\n"},
        {"GET /a/fixed1", "/a/*[fixed1];"},
        {"GET /array/tmc_1/config", "/array/*/config[tmc_1];"},
        {"GET /array/tmc_1/config.js", "/array/*/config.js[tmc_1];"},
        {"GET /array/tmc_1/config.jsx", "HTTP/1.1 404 "},
        {"GET /static/x.y.js", "/static/*.js[x.y];"},
        {"GET /static/.js.js", "/static/*.js[.js];"},
        {"GET /static/.js", "HTTP/1.1 404 "},
        {"GET /static/js", "HTTP/1.1 404 "},
        {"GET /static/x.jS", "HTTP/1.1 404 "},
        {"GET /e", "/e;"},
        {"GET /e/", "/e;"},
        {"GET /e//", "HTTP/1.1 404 "},
        {"GET /e?", "/e;"},
        {"GET /f/", "HTTP/1.1 404 "},
        {"POST /v1/", "HTTP/1.1 404 "},
        {"GET /local/x", "HTTP/1.1 404 "}, /* the wire is TCP */
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char in[256];
        struct buf out;

        (void)snprintf(in, sizeof in, "%s HTTP/1.1\r\n" H "\r\n", table[i].line);
        out = ask(in, true);
        if (strstr(out.ptr, table[i].answer) == NULL) {
            fail_msg("%s: %s", table[i].line, out.ptr);
        }
        buf_free(&out);
    }
}

static void test_a_local_pattern_on_the_unix_socket(void **state)
{
    struct http_request *req = calloc(1, sizeof *req);
    struct http_server s = {
        .config = {.routes = routes, .route_count = sizeof routes / sizeof routes[0]}};
    unsigned allow = 0;

    (void)state;
    assert_non_null(req);
    assert_int_equal(http_patterns_make(&s, NULL), 0);
    req->server = &s;
    req->method = HTTP_GET;
    req->head.path = SLICE("/local/x");
    assert_int_equal(http_route_find(req, &allow), ERR_NOT_FOUND);
    req->unix_socket = true;
    assert_int_equal(http_route_find(req, &allow), 0);
    assert_true(slice_eq(http_path_part(req, 0), SLICE("x")));
    req->method = HTTP_PUT;
    assert_int_equal(http_route_find(req, &allow), ERR_METHOD_NOT_ALLOWED);
    assert_int_equal(allow, HTTP_GET | HTTP_HEAD);
    free(s.patterns);
    free(req);
}

/* ---- CORS ---- */

static void test_preflight(void **state)
{
    struct buf out =
        ask("OPTIONS /e/?ip=1 HTTP/1.1\r\n" H O "Access-Control-Request-Method: POST\r\n"
            "Access-Control-Request-Headers: baggage,traceparent , x-anything-new\r\n"
            "Access-Control-Request-Headers: bad name, x\"y, *, ,b3\r\n\r\n"
            "GET /e HTTP/1.1\r\n" H "\r\n",
            true);

    (void)state;
    assert_true(slice_starts(buf_slice(&out), SLICE("HTTP/1.1 200 OK\r\n")));
    expect_text(&out, O_ALLOWED, true);
    expect_text(&out, "Access-Control-Allow-Credentials: true\r\n", true);
    expect_text(&out, "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\n", true);
    expect_text(&out, "Access-Control-Allow-Headers: baggage, traceparent, x-anything-new, b3\r\n",
                true);
    expect_text(&out, "Access-Control-Max-Age: 600\r\n", true);
    expect_text(&out, "Vary: Origin\r\n", true);
    expect_text(&out, "Vary: Access-Control-Request-Headers\r\n", true);
    expect_text(&out, "\r\n\r\n{\"status\":\"Ok\"}HTTP/1.1 200 OK\r\n", true);
    expect_text(&out, "/e;", true); /* the connection went on */
    expect_text(&out, "Connection: close\r\n", false);
    buf_free(&out);
}

static void test_preflight_of_other_paths(void **state)
{
    struct buf out = ask("OPTIONS /s/key/settings HTTP/1.1\r\n" H "\r\n"
                         "OPTIONS /mixed HTTP/1.1\r\n" H "\r\n"
                         "OPTIONS /a/x HTTP/1.1\r\n" H O "\r\n",
                         true);

    (void)state;
    expect_text(&out, "Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n", true);
    expect_text(&out, "Access-Control-Allow-Methods: GET, HEAD, POST, OPTIONS\r\n", true);
    expect_text(&out, "Access-Control-Allow-Headers", false);
    expect_text(&out, "Access-Control-Allow-Origin", false); /* nobody asked, or no such route */
    expect_text(&out, "HTTP/1.1 405 ", true);
    buf_free(&out);
    /* what is said in a body of a preflight is never a request */
    out =
        ask("OPTIONS /e HTTP/1.1\r\n" H O "Content-Length: 26\r\n\r\nGET /e HTTP/1.1\r\n" H "\r\n",
            true);
    expect_text(&out, "{\"status\":\"Ok\"}", true);
    expect_text(&out, "Connection: close\r\n", true);
    expect_text(&out, "/e;", false);
    buf_free(&out);
    out = ask("OPTIONS /e HTTP/1.1\r\n" H O "Expect: tea\r\n\r\n", true);
    expect_text(&out, "HTTP/1.1 417 ", true);
    expect_text(&out, O_ALLOWED, true);
    buf_free(&out);
}

static void test_requested_headers_are_bounded(void **state)
{
    struct buf in = {0};
    struct buf out;
    const char *line;

    (void)state;
    buf_put_cstr(&in, "OPTIONS /t HTTP/1.1\r\n" H O "Access-Control-Request-Headers: ");
    for (int i = 0; i < 400; i++) {
        buf_printf(&in, "x-header-%03d,", i);
    }
    buf_put_cstr(&in, "\r\n\r\n");
    buf_put_char(&in, '\0');
    out = ask(in.ptr, true);
    line = strstr(out.ptr, "Access-Control-Allow-Headers: x-header-000, x-header-001, ");
    assert_non_null(line);
    assert_in_range(strcspn(line, "\r"), 2000, 2048 + sizeof "Access-Control-Allow-Headers: ");
    assert_memory_equal(line + strcspn(line, "\r") - 14, ", x-header-", 11);
    buf_free(&out);
    buf_free(&in);
}

static void test_origins(void **state)
{
    static const struct {
        const char *field;
        const char *echoed; /* NULL: none */
    } table[] = {
        {"Origin: null\r\n", "null"},
        {"Origin: http://[::1]:80\r\n", "http://[::1]:80"},
        {"Origin:\r\n", NULL},
        {"Origin: *\r\n", NULL},
        {"Origin: a b\r\n", NULL},
        {"Origin: \xc3\xa4\r\n", NULL},
        {"Origin: a\r\nOrigin: b\r\n", NULL},
        {"", NULL},
    };
    struct buf in = {0};
    struct buf out;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[256];

        (void)snprintf(text, sizeof text, "POST /t HTTP/1.1\r\n" H "%s\r\n", table[i].field);
        out = ask(text, true);
        expect_text(&out, "HTTP/1.1 200 ", true);
        expect_text(&out, "Vary: Origin\r\n", true);
        expect_text(&out, "Access-Control-", table[i].echoed != NULL);
        if (table[i].echoed != NULL) {
            (void)snprintf(text, sizeof text, "Access-Control-Allow-Origin: %s\r\n",
                           table[i].echoed);
            expect_text(&out, text, true);
        }
        buf_free(&out);
    }
    buf_put_cstr(&in, "POST /t HTTP/1.1\r\n" H "Origin: ");
    for (int i = 0; i < 1025; i++) {
        buf_put_char(&in, 'o');
    }
    buf_put_cstr(&in, "\r\n\r\n");
    buf_put_char(&in, '\0');
    out = ask(in.ptr, true);
    expect_text(&out, "Access-Control-", false);
    buf_free(&out);
    buf_free(&in);
}

/* Errors that the front makes on such a route can be read by the page, too. */
static void test_errors_of_the_front(void **state)
{
    static const struct {
        const char *in;
        const char *status;
        const char *body;
        bool ends;
        bool full;
    } table[] = {
        {"POST /e HTTP/1.1\r\n" H O "Content-Length: 9\r\n\r\n", "HTTP/1.1 413 ",
         "\r\n\r\nThe request body is larger than 8 bytes.\n", true, false},
        {"POST /e HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\nx", "HTTP/1.1 503 ", "too slowly",
         false, false},
        {"POST /v1 HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\nx", "HTTP/1.1 408 ", "too slowly",
         false, false},
        {"POST /t HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\nx", "HTTP/1.1 408 ", "too slowly",
         false, false},
        {"POST /t HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\nx", "HTTP/1.1 400 ",
         "{\"success\":false,\"code\":\"bad_request\",\"message\":\"", true, false},
        {"POST /v1 HTTP/1.1\r\n" H O "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 400 ",
         "{\"error\":\"bad_request\",\"error_uri\":\"\",\"error_description\":\"The chunked", true,
         false},
        {"PUT /t HTTP/1.1\r\n" H O "\r\n", "HTTP/1.1 405 ", "\"code\":\"method_not_allowed\"", true,
         false},
        {"POST /e HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\n", "HTTP/1.1 503 ",
         "\r\n\r\nToo many request bodies", false, true},
        {"POST /v1 HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\n", "HTTP/1.1 503 ",
         "{\"error\":\"overloaded\"", false, true},
        {"POST /t HTTP/1.1\r\n" H O "Content-Length: 8\r\n\r\n", "HTTP/1.1 429 ",
         "\"code\":\"overloaded\"", false, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct buf out;

        budget_bytes = table[i].full ? 4 : 0;
        out = ask(table[i].in, table[i].ends);
        budget_bytes = 0;
        expect_text(&out, table[i].status, true);
        expect_text(&out, table[i].body, true);
        expect_text(&out, O_ALLOWED, true);
        expect_text(&out, "Access-Control-Expose-Headers: Retry-After\r\n", true);
        expect_text(&out, "Retry-After: 1\r\n",
                    table[i].full || strcmp(table[i].status, "HTTP/1.1 503 ") == 0);
        buf_free(&out);
    }
    /* without cors nothing of it */
    struct buf out = ask("POST /api HTTP/1.1\r\n" H O "Content-Length: 9\r\n\r\n", true);
    expect_text(&out, "HTTP/1.1 413 ", true);
    expect_text(&out, "Access-Control", false);
    expect_text(&out, "Vary", false);
    buf_free(&out);
    out = ask("GET /stream HTTP/1.1\r\n" H O "\r\n", true);
    expect_text(&out, O_ALLOWED, true);
    buf_free(&out);
}

/* ---- shapes ---- */

static void test_full(void **state)
{
    static const struct {
        const char *path;
        const char *status;
        const char *body;
        const char *after; /* seconds, "" for no Retry-After */
    } table[] = {
        {"posthog/overloaded", "503", "\r\n\r\nNo \"room\".\n", "1"},
        {"v1/queue", "503",
         "{\"error\":\"queue_full\",\"error_uri\":\"\","
         "\"error_description\":\"No \\\"room\\\".\",\"more\":1}",
         "1"},
        {"segment/queue", "429",
         "{\"success\":false,\"code\":\"queue_full\",\"message\":\"No \\\"room\\\".\",\"more\":1}",
         "1"},
        {"segment/busy", "429", "\"code\":\"store_busy\"", "1"},
        {"segment/space", "429", "\"code\":\"no_space\"", "1"},
        {"segment/poisoned", "503", "\"code\":\"store_poisoned\"", ""},
        {"api/queue", "503",
         "{\"error\":\"queue_full\",\"message\":\"No \\\"room\\\".\",\"more\":1}", "1"},
        {"api/overloaded", "429", "{\"error\":\"overloaded\",", "1"},
        {"later", "503", "\r\n\r\nFull.\n", "30"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[128];
        struct buf out;

        (void)snprintf(text, sizeof text, "GET /full/%s HTTP/1.1\r\n" H "\r\n", table[i].path);
        out = ask(text, true);
        (void)snprintf(text, sizeof text, "HTTP/1.1 %s ", table[i].status);
        expect_text(&out, text, true);
        expect_text(&out, table[i].body, true);
        (void)snprintf(text, sizeof text, "Retry-After: %s\r\n", table[i].after);
        expect_text(&out, text, table[i].after[0] != '\0');
        expect_text(&out, "Retry-After", table[i].after[0] != '\0');
        buf_free(&out);
    }
}

/* 500 turns in a row, without any waiting between them. */
static void test_again(void **state)
{
    struct buf out = ask("GET /again HTTP/1.1\r\n" H "Connection: close\r\n\r\n", true);

    (void)state;
    expect_text(&out, "done;", true);
    assert_int_equal(again_left, 0);
    assert_int_equal(turns_taken, 499);
    assert_in_range(ms_taken, 0, 10); /* the wire's clock goes a little by itself */
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_a_local_pattern_on_the_unix_socket),
        cmocka_unit_test(test_preflight),
        cmocka_unit_test(test_preflight_of_other_paths),
        cmocka_unit_test(test_requested_headers_are_bounded),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_errors_of_the_front),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
