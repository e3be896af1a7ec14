/* test_tus: the shape of the tus door's answers, the ones of the front among them; what its pages
 * may read and what OPTIONS says; paths whose methods are several routes, and HEAD without GET; a
 * status that the door chooses. Over a wire without a kernel (tests/http/wire.h); bodies on threads
 * are in test_thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/http/wire.h"

#define H "Host: localhost\r\n"
#define O "Origin: https://a.example\r\n"

#define ALWAYS                            \
    "Tus-Resumable: 1.0.0\r\n"            \
    "X-Content-Type-Options: nosniff\r\n" \
    "Cache-Control: no-store\r\n"
#define EXPOSED "Access-Control-Expose-Headers: Retry-After, Location, Upload-Offset\r\n"

static void on_name(void *ctx, struct http_request *req)
{
    http_answer(req, 200, "text/plain", slice_cstr(ctx));
}

static void on_none(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_add_header(req, "Upload-Offset", SLICE("0"));
    http_answer(req, 204, NULL, (struct slice){0});
}

static void on_error(void *ctx, struct http_request *req)
{
    http_answer_error(req, *(const int *)ctx, "The \"text\".", SLICE("\"more\":1"));
}

static void on_status(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_add_header(req, "Retry-After", SLICE("60"));
    http_answer_error_status(req, 503, ERR_LOW_SPACE, "Little is left.");
}

static void on_options(void *ctx, struct http_request *req)
{
    http_add_header(req, "Tus-Version", SLICE("1.0.0"));
    http_add_header(req, "Tus-Extension", slice_cstr(ctx));
}

static const int codes[] = {ERR_OVERLOADED, ERR_REQUEST_TIMEOUT, ERR_INVALID_SIZE, ERR_LOW_SPACE};

#define TUS(path_, methods_)                                                             \
    .path = path_, .methods = methods_, .auth = HTTP_AUTH_OPEN, .shape = HTTP_SHAPE_TUS, \
    .cors = true, .expose = "Location, Upload-Offset"

static const struct http_route routes[] = {
    {TUS("/files", HTTP_POST), .slash_too = true, .on_request = on_name, .on_options = on_options,
     .takes_body = true, .ctx = (void *)(uintptr_t) "creation"},
    {TUS("/files/*", HTTP_HEAD), .slash_too = true, .on_request = on_none},
    {TUS("/files/*", HTTP_PATCH | HTTP_POST), .slash_too = true, .on_request = on_name,
     .takes_body = true, .ctx = (void *)(uintptr_t) "patch"},
    {TUS("/small", HTTP_POST), .on_request = on_none, .body_max_bytes = 4},
    {TUS("/code/0", HTTP_GET), .on_request = on_error, .ctx = (void *)(uintptr_t)&codes[0]},
    {TUS("/code/1", HTTP_GET), .on_request = on_error, .ctx = (void *)(uintptr_t)&codes[1]},
    {TUS("/code/2", HTTP_GET), .on_request = on_error, .ctx = (void *)(uintptr_t)&codes[2]},
    {TUS("/code/3", HTTP_GET), .on_request = on_error, .ctx = (void *)(uintptr_t)&codes[3]},
    {TUS("/status", HTTP_GET), .on_request = on_status},
    {.path = "/plain",
     .methods = HTTP_GET,
     .auth = HTTP_AUTH_OPEN,
     .shape = HTTP_SHAPE_API,
     .on_request = on_status},
};

static struct buf ask(const char *in)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0]};
    struct err e = {0};

    config.limits.workers = 1;
    wire = (struct wire){.in = in, .in_len = strlen(in), .ends = true};
    assert_int_equal(wire_run(&config, &e), 0);
    assert_true(wire.closed);
    buf_put_char(&wire.out, '\0');
    assert_false(wire.out.failed);
    return wire.out;
}

/* Each request and what its answer must have (or must not: behind '!'); NULL ends a row. */
struct row {
    const char *in;
    const char *wanted[10];
};

static void check_rows(const struct row *rows, size_t n, bool always)
{
    for (size_t i = 0; i < n; i++) {
        struct buf out = ask(rows[i].in);

        if (always && strstr(out.ptr, ALWAYS) == NULL) {
            fail_msg("%s is without what every answer has: %s", rows[i].in, out.ptr);
        }
        for (size_t k = 0; rows[i].wanted[k] != NULL; k++) {
            const char *text = rows[i].wanted[k];
            bool there = text[0] != '!';

            if ((strstr(out.ptr, there ? text : text + 1) != NULL) != there) {
                fail_msg("%s: %s in: %s", rows[i].in, text, out.ptr);
            }
        }
        buf_free(&out);
    }
}

#define CHECK(rows, always) check_rows(rows, sizeof(rows) / sizeof(rows)[0], always)

static void test_answers(void **state)
{
    static const struct row rows[] = {
        {"POST /files HTTP/1.1\r\n" H O "\r\n",
         {"HTTP/1.1 200 OK\r\n", "\r\n\r\ncreation", EXPOSED, "Vary: Origin\r\n"}},
        {"POST /files/ HTTP/1.1\r\n" H "\r\n", {"\r\n\r\ncreation", "!Access-Control"}},
        {"HEAD /files/x HTTP/1.1\r\n" H O "\r\n",
         {"HTTP/1.1 204 No Content\r\n", "Upload-Offset: 0\r\n", EXPOSED, "!Content-Length",
          "!\r\nContent-Type"}},
        {"HEAD /files/x/ HTTP/1.1\r\n" H "\r\n", {"HTTP/1.1 204 "}},
        {"PATCH /files/x HTTP/1.1\r\n" H "\r\n", {"\r\n\r\npatch", "!Connection"}},
        {"POST /files/x HTTP/1.1\r\n" H "\r\n", {"\r\n\r\npatch"}},
        /* a body that stays unread ends the connection */
        {"PATCH /files/x HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx",
         {"\r\n\r\npatch", "Connection: close\r\n"}},
    };

    (void)state;
    CHECK(rows, true);
}

static void test_errors(void **state)
{
    static const struct row rows[] = {
        /* of the front */
        {"GET /files/x HTTP/1.1\r\n" H O "\r\n",
         {"HTTP/1.1 405 ", "Allow: HEAD, POST, PATCH, OPTIONS\r\n", EXPOSED,
          "Content-Type: text/plain; charset=utf-8\r\n",
          "\r\n\r\nERR_METHOD_NOT_ALLOWED: The path does not have this method.\n"}},
        {"DELETE /files HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 405 ", "Allow: POST, OPTIONS\r\n", "ERR_METHOD_NOT_ALLOWED: "}},
        {"POST /small HTTP/1.1\r\n" H O "Content-Length: 5\r\n\r\nhello",
         {"HTTP/1.1 413 ", "\r\n\r\nERR_BODY_TOO_LARGE: The request body is larger than 4 bytes.\n",
          EXPOSED}},
        {"POST /small HTTP/1.1\r\n" H "Content-Length: 4\r\n\r\nhel",
         {"HTTP/1.1 400 ", "ERR_BAD_REQUEST: The request body ended early.\n"}},
        {"POST /files HTTP/1.1\r\n" H "Expect: tea\r\n\r\n",
         {"HTTP/1.1 417 ", "ERR_EXPECTATION_FAILED: "}},
        /* of the door */
        {"GET /code/0 HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 503 ", "Retry-After: 1\r\n", "\r\n\r\nERR_OVERLOADED: The \"text\".\n"}},
        {"GET /code/1 HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 503 ", "Retry-After: 1\r\n", "ERR_REQUEST_TIMEOUT: "}},
        {"GET /code/2 HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 400 ", "!Retry-After:", "ERR_INVALID_SIZE: The \"text\".\n"}},
        {"GET /code/3 HTTP/1.1\r\n" H "\r\n", {"HTTP/1.1 429 ", "ERR_LOW_SPACE: "}},
        {"GET /status HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 503 ", "Retry-After: 60\r\n", "\r\n\r\nERR_LOW_SPACE: Little is left.\n"}},
        {"HEAD /code/2 HTTP/1.1\r\n" H "\r\n", {"HTTP/1.1 400 ", "!ERR_"}},
    };
    static const struct row other[] = {
        {"GET /plain HTTP/1.1\r\n" H O "\r\n",
         {"HTTP/1.1 503 ", "{\"error\":\"low_space\",\"message\":\"Little is left.\"}", "!Tus-",
          "!nosniff", "!no-store", "!Access-Control"}},
    };

    (void)state;
    CHECK(rows, true);
    CHECK(other, false);
}

static void test_options(void **state)
{
    static const struct row rows[] = {
        {"OPTIONS /files HTTP/1.1\r\n" H O "Access-Control-Request-Method: POST\r\n"
         "Access-Control-Request-Headers: tus-resumable, upload-length\r\n\r\n",
         {"HTTP/1.1 204 No Content\r\n", "Access-Control-Allow-Methods: POST, OPTIONS\r\n",
          "Access-Control-Allow-Headers: tus-resumable, upload-length\r\n",
          "Access-Control-Allow-Origin: https://a.example\r\n", "Tus-Version: 1.0.0\r\n",
          "Tus-Extension: creation\r\n", "!Content-Length", "!\r\nContent-Type"}},
        /* no page, and a version that nobody speaks */
        {"OPTIONS /files/ HTTP/1.1\r\n" H "Tus-Resumable: 9.9.9\r\n\r\n",
         {"HTTP/1.1 204 ", "Tus-Version: 1.0.0\r\n", "Tus-Extension: creation\r\n",
          "Access-Control-Allow-Methods: POST, OPTIONS\r\n", "!Access-Control-Allow-Origin"}},
        /* the path's methods, which several routes have */
        {"OPTIONS /files/x HTTP/1.1\r\n" H O "\r\n",
         {"HTTP/1.1 204 ", "Access-Control-Allow-Methods: HEAD, POST, PATCH, OPTIONS\r\n",
          "!Tus-Version"}},
        /* and the connection goes on */
        {"OPTIONS /files HTTP/1.1\r\n" H "\r\nPOST /files HTTP/1.1\r\n" H "\r\n",
         {"HTTP/1.1 204 ", "HTTP/1.1 200 OK\r\n", "\r\n\r\ncreation", "!Connection"}},
    };

    (void)state;
    CHECK(rows, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
