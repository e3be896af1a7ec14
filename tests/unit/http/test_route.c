/* test_route: authorization, path, method and Expect, as one table of who may ask what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/conn.h"

static const struct http_route routes[] = {
    {.path = "/t", .methods = HTTP_GET},
    {.path = "/t", .methods = HTTP_POST},
    {.path = "/o", .methods = HTTP_GET | HTTP_DELETE, .auth = HTTP_AUTH_OPEN},
    {.path = "/l", .methods = HTTP_POST, .auth = HTTP_AUTH_LOCAL},
    {.path = "/both", .methods = HTTP_GET, .auth = HTTP_AUTH_LOCAL},
    {.path = "/both", .methods = HTTP_POST, .auth = HTTP_AUTH_OPEN},
};

/* Finds the route of one head; *allow (may be NULL) is the set of methods. */
static int find(const char *token, bool unix_socket, const char *head, unsigned *allow)
{
    struct http_server *s = calloc(1, sizeof *s);
    struct http_request *req = calloc(1, sizeof *req);
    struct http_head_limits limits = {
        .head_bytes_max = 4096, .target_bytes_max = 1024, .fields_max = 16};
    struct http_field fields[16];
    size_t n = strlen(head);
    char *copy = malloc(n);
    unsigned methods;
    int got;

    assert_non_null(s);
    assert_non_null(req);
    assert_non_null(copy);
    memcpy(copy, head, n);
    s->config = (struct http_config){.token = slice_cstr(token),
                                     .routes = routes,
                                     .route_count = sizeof routes / sizeof routes[0]};
    assert_int_equal(http_patterns_make(s, NULL), 0);
    req->server = s;
    req->unix_socket = unix_socket;
    assert_int_equal(http_head_parse(&req->head, fields, 16, &limits, copy, n), 0);
    req->method = http_method_of(req->head.method);
    got = http_route_find(req, allow != NULL ? allow : &methods);
    if (got == 0) {
        assert_true(slice_eq(slice_cstr(req->route->path), req->head.path));
        assert_true((req->route->methods & req->method) != 0 ||
                    (req->method == HTTP_HEAD && (req->route->methods & HTTP_GET) != 0));
    }
    free(copy);
    free(req);
    free(s->patterns);
    free(s);
    return got;
}

struct row {
    const char *token;
    bool unix_socket;
    const char *line;   /* request line without the version */
    const char *fields; /* and what follows it */
    int code;
};

static void test_table(void **state)
{
    static const struct row table[] = {
        /* without a token, on TCP */
        {"", false, "GET /t", "Host: localhost\r\n", 0},
        {"", false, "HEAD /t", "Host: localhost\r\n", 0},
        {"", false, "POST /t", "Host: 127.0.0.1:80\r\n", 0},
        {"", false, "GET /t", "Host: [::1]:80\r\n", 0},
        {"", false, "GET /t", "Host: example.org\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /t", "Host:\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /t", "Host: localhost\r\nOrigin: null\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /t", "Host: localhost\r\nOrigin:\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /x", "Host: example.org\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /x", "Host: localhost\r\n", ERR_NOT_FOUND},
        {"", false, "PUT /t", "Host: localhost\r\n", ERR_METHOD_NOT_ALLOWED},
        {"", false, "PUT /t", "Host: example.org\r\n", ERR_UNAUTHORIZED},
        {"", false, "GET /o", "Host: example.org\r\nOrigin: x\r\n", 0},
        {"", false, "POST /o", "Host: example.org\r\n", ERR_METHOD_NOT_ALLOWED},
        {"", false, "POST /l", "Host: localhost\r\n", ERR_NOT_FOUND},
        {"", false, "GET /l", "Host: example.org\r\n", ERR_UNAUTHORIZED},
        {"", false, "POST /t", "Host: localhost\r\nExpect: tea\r\n", ERR_EXPECTATION_FAILED},
        {"", false, "PUT /t", "Host: localhost\r\nExpect: tea\r\n", ERR_METHOD_NOT_ALLOWED},
        {"", false, "POST /t", "Host: localhost\r\nExpect: 100-continue\r\n", 0},
        {"", false, "OPTIONS *", "Host: localhost\r\n", ERR_NOT_FOUND},
        {"", false, "get /t", "Host: localhost\r\n", ERR_METHOD_NOT_ALLOWED},
        {"", false, "GET /t/", "Host: localhost\r\n", ERR_NOT_FOUND},
        {"", false, "GET /", "Host: localhost\r\n", ERR_NOT_FOUND},
        {"", false, "GET /both", "Host: localhost\r\n", ERR_METHOD_NOT_ALLOWED},
        {"", false, "POST /both", "Host: example.org\r\n", 0},
        /* an Authorization header without a configured token says nothing */
        {"", false, "GET /t", "Host: localhost\r\nAuthorization: Bearer x\r\n", 0},
        /* with a token, on TCP: only the token counts */
        {"k", false, "GET /t", "Host: example.org\r\nOrigin: x\r\nAuthorization: Bearer k\r\n", 0},
        {"k", false, "GET /t", "Host: localhost\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Bearer kk\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Bearer K\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Bearer\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Beareer k\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Bearer\tk\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: bEARER   k\r\n", 0},
        {"k", false, "GET /t", "Host: h\r\nAuthorization: Bearer k\r\nAuthorization: Bearer k\r\n",
         ERR_UNAUTHORIZED},
        {"k", false, "GET /x", "Host: h\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /x", "Host: h\r\nAuthorization: Bearer k\r\n", ERR_NOT_FOUND},
        {"k", false, "POST /l", "Host: h\r\nAuthorization: Bearer k\r\n", ERR_NOT_FOUND},
        {"k", false, "POST /l", "Host: h\r\n", ERR_UNAUTHORIZED},
        {"k", false, "GET /o", "Host: h\r\n", 0},
        /* the Unix socket */
        {"k", true, "GET /t", "Host: h\r\nOrigin: x\r\n", 0},
        {"k", true, "POST /l", "Host: h\r\n", 0},
        {"k", true, "GET /l", "Host: h\r\n", ERR_METHOD_NOT_ALLOWED},
        {"k", true, "GET /x", "Host: h\r\n", ERR_NOT_FOUND},
        {"", true, "GET /both", "Host: h\r\n", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct buf head = {0};
        int got;

        buf_printf(&head, "%s HTTP/1.1\r\n%s\r\n", table[i].line, table[i].fields);
        buf_put_char(&head, '\0');
        got = find(table[i].token, table[i].unix_socket, head.ptr, NULL);
        if (got != table[i].code) {
            fail_msg("row %zu: %s %s gives %s", i, table[i].line, table[i].fields, err_name(got));
        }
        buf_free(&head);
    }
    assert_int_equal(find("", false, "GET /t HTTP/1.0\r\n\r\n", NULL), 0);
}

static void check_allow(bool unix_socket, const char *path, const char *expected)
{
    struct buf head = {0};
    struct buf allow = {0};
    unsigned methods = 0;

    buf_printf(&head, "PATCH %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    buf_put_char(&head, '\0');
    assert_int_equal(find("", unix_socket, head.ptr, &methods), ERR_METHOD_NOT_ALLOWED);
    http_allow_text(methods, &allow);
    assert_true(slice_eq(buf_slice(&allow), slice_cstr(expected)));
    buf_free(&head);
    buf_free(&allow);
}

static void test_allow(void **state)
{
    (void)state;
    check_allow(false, "/t", "GET, HEAD, POST");
    check_allow(false, "/o", "GET, HEAD, DELETE");
    check_allow(false, "/both", "POST");
    check_allow(true, "/both", "GET, HEAD, POST");
    check_allow(true, "/l", "POST");
}

static void test_loopback(void **state)
{
    static const char *const good[] = {"localhost",   "LOCALHOST", "localhost:1",
                                       "localhost:",  "127.0.0.1", "127.255.255.254:65535",
                                       "127.0.0.1:0", "[::1]",     "[::1]:8080"};
    static const char *const bad[] = {
        "",         "local",        "localhosts",   "localhost.",      "127.0.0",    "127.0.0.1.",
        "127.0.0.", "127.0.0.256",  "127.0.0.1.2",  "127..0.1",        "126.0.0.1",  "127.0.0.1x",
        "1",        "::1",          "[::1",         "[::2]",           "[::1]x",     "0.0.0.0",
        ":80",      "127.0.0.1:8x", "127.0.0.0001", "localhost:80:80", "127.0.0.-1", "127.0,0.1"};

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!http_host_is_loopback(slice_cstr(good[i]))) {
            fail_msg("%s was refused", good[i]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (http_host_is_loopback(slice_cstr(bad[i]))) {
            fail_msg("%s was taken", bad[i]);
        }
    }
}

static void test_methods(void **state)
{
    (void)state;
    assert_int_equal(http_method_of(SLICE("GET")), HTTP_GET);
    assert_int_equal(http_method_of(SLICE("HEAD")), HTTP_HEAD);
    assert_int_equal(http_method_of(SLICE("POST")), HTTP_POST);
    assert_int_equal(http_method_of(SLICE("PUT")), HTTP_PUT);
    assert_int_equal(http_method_of(SLICE("PATCH")), HTTP_PATCH);
    assert_int_equal(http_method_of(SLICE("DELETE")), HTTP_DELETE);
    assert_int_equal(http_method_of(SLICE("OPTIONS")), HTTP_OPTIONS);
    assert_int_equal(http_method_of(SLICE("GETS")), HTTP_OTHER);
    assert_int_equal(http_method_of(SLICE("get")), HTTP_OTHER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_allow),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_methods),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
