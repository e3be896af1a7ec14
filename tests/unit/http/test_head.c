/* test_head: what http_head_scan and http_head_parse take, refuse and give, at every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/head.h"

#define FIELDS 32

static const struct http_head_limits limits = {
    .head_bytes_max = 1024, .target_bytes_max = 256, .fields_max = FIELDS};

/* Scans text as it would arrive in pieces of `piece` bytes. */
static int64_t scan(const char *text, size_t n, size_t piece)
{
    struct http_head_scan s = {0};
    size_t have = 0;
    int64_t got = 0;

    while (got == 0 && have < n) {
        have = have + piece < n ? have + piece : n;
        got = http_head_scan(&s, &limits, text, have);
    }
    return got;
}

/* Scans and parses a whole head; the result of the step that failed, or 0. The memory is the
 * caller's to free when 0 came back. */
static int take(struct http_head *h, struct http_field *fields, const char *text, char **memory)
{
    size_t n = strlen(text);
    int64_t got = scan(text, n, n);
    int result;

    *memory = NULL;
    if (got <= 0) {
        return (int)got;
    }
    *memory = malloc((size_t)got);
    assert_non_null(*memory);
    memcpy(*memory, text, (size_t)got);
    result = http_head_parse(h, fields, FIELDS, &limits, *memory, (size_t)got);
    if (result != 0) {
        free(*memory);
        *memory = NULL;
    }
    return result;
}

static void check(const char *text, int expected)
{
    struct http_field fields[FIELDS];
    struct http_head h;
    char *memory;
    int got = take(&h, fields, text, &memory);

    if (got != expected) {
        print_error("%s\ngives %s, not %s\n", text, err_name(got), err_name(expected));
    }
    assert_int_equal(got, expected);
    free(memory);
    for (size_t piece = 1; piece < 8; piece++) {
        assert_true(scan(text, strlen(text), piece) == scan(text, strlen(text), strlen(text)));
    }
}

#define H "Host: h\r\n"

static void test_refusals(void **state)
{
    static const struct {
        const char *text;
        int code;
    } table[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", 0},
        {"GET / HTTP/1.1\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost: h\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost: h\rx\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H " fold\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H "\tfold\r\n\r\n", ERR_BAD_REQUEST},
        {"\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost : h\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H ": x\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H "x\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H "x\x01: y\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H "x: y\x7f\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        {"GET / HTTP/1.1\r\n" H H "\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.2\r\n" H "\r\n", ERR_VERSION_NOT_SUPPORTED},
        {"GET / HTTP/2.0\r\n" H "\r\n", ERR_VERSION_NOT_SUPPORTED},
        {"GET /\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET  / HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET /  HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1 \r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET /#x HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET * HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", 0},
        {"GET http://h/x HTTP/1.1\r\n" H "\r\n", 0},
        {"GET http://g/x HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"GET http:///x HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"CONNECT h:80 HTTP/1.1\r\n" H "\r\n", ERR_NOT_IMPLEMENTED},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n" H "\r\n", 0},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1\r\n" H "\r\n", ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\n", ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n", ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 999999999999999999\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Content-Length: 1000000000000000000\r\n\r\n", ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n", 0},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip\r\n\r\n", ERR_NOT_IMPLEMENTED},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n", ERR_NOT_IMPLEMENTED},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
         ERR_BAD_REQUEST},
        {"POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         ERR_BAD_REQUEST},
        {"POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n", ERR_BAD_REQUEST},
        {"GET / HTTP/1.1\r\n" H "Connection: a b\r\n\r\n", ERR_BAD_REQUEST},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        check(table[i].text, table[i].code);
    }
}

static void test_every_byte_of_a_head_matters(void **state)
{
    static const char good[] = "GET / HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n";
    char text[sizeof good];

    /* A control byte anywhere is refused, whatever it replaces. */
    (void)state;
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (char c = 1; c < 0x20; c++) {
            if (c == good[i] || c == '\t') {
                continue;
            }
            memcpy(text, good, sizeof good);
            text[i] = c;
            check(text, ERR_BAD_REQUEST);
        }
    }
    /* Every prefix asks for more, and nothing is refused early. */
    for (size_t n = 0; n < sizeof good - 1; n++) {
        assert_int_equal(scan(good, n, 1), 0);
        assert_int_equal(scan(good, n, 64), 0);
    }
    assert_int_equal(scan(good, sizeof good - 1, 5), sizeof good - 1);
}

static void assert_slice(struct slice s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.ptr, text, s.len);
}

static void test_parts(void **state)
{
    struct http_field fields[FIELDS];
    struct http_head h;
    struct slice value;
    unsigned count;
    char *memory;

    (void)state;
    assert_int_equal(take(&h, fields,
                          "POST /a/b?c=d?e HTTP/1.1\r\nHOST: \t h:1 \t\r\nX-One: 1\r\nx-one:2\r\n"
                          "Empty:\r\nContent-Length: 7\r\nExpect: 100-CONTINUE\r\n\r\nrest",
                          &memory),
                     0);
    assert_slice(h.method, "POST");
    assert_slice(h.path, "/a/b");
    assert_slice(h.query, "c=d?e");
    assert_true(h.has_query);
    assert_slice(h.host, "h:1");
    assert_int_equal(h.version_minor, 1);
    assert_true(h.keep_alive);
    assert_true(h.has_length);
    assert_int_equal(h.length, 7);
    assert_false(h.chunked);
    assert_int_equal(h.expect, HTTP_EXPECT_CONTINUE);
    assert_int_equal(h.field_count, 6);
    assert_true(http_head_find(&h, SLICE("x-one"), &value, &count));
    assert_slice(value, "1");
    assert_int_equal(count, 2);
    assert_true(http_head_find(&h, SLICE("empty"), &value, NULL));
    assert_int_equal(value.len, 0);
    assert_true(http_head_find(&h, SLICE("host"), NULL, NULL));
    assert_false(http_head_find(&h, SLICE("x"), &value, &count));
    assert_int_equal(count, 0);
    free(memory);

    assert_int_equal(take(&h, fields, "GET http://h?q HTTP/1.1\r\nHost: H\r\n\r\n", &memory), 0);
    assert_slice(h.path, "/");
    assert_slice(h.query, "q");
    free(memory);
}

static void test_keep_alive(void **state)
{
    static const struct {
        const char *version;
        const char *line;
        bool keep;
    } table[] = {
        {"1.1", "", true},
        {"1.1", "Connection: close\r\n", false},
        {"1.1", "Connection: a, CLOSE ,b\r\n", false},
        {"1.1", "Connection: keep-alive\r\nConnection: close\r\n", false},
        {"1.1", "Connection: closed\r\n", true},
        {"1.1", "Connection:\r\n", true},
        {"1.1", "Connection: , ,\r\n", true},
        {"1.0", "", false},
        {"1.0", "Connection: keep-alive\r\n", true},
        {"1.0", "Connection: Keep-Alive, close\r\n", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct http_field fields[FIELDS];
        struct http_head h;
        char text[256];
        char *memory;

        (void)snprintf(text, sizeof text, "GET / HTTP/%s\r\n" H "%s\r\n", table[i].version,
                       table[i].line);
        assert_int_equal(take(&h, fields, text, &memory), 0);
        assert_int_equal(h.keep_alive, table[i].keep);
        free(memory);
    }
}

static void test_expect(void **state)
{
    static const struct {
        const char *text;
        enum http_expect expect;
    } table[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", HTTP_EXPECT_NONE},
        {"GET / HTTP/1.1\r\n" H "Expect: 100-continue\r\n\r\n", HTTP_EXPECT_CONTINUE},
        {"GET / HTTP/1.1\r\n" H "Expect: 100-continued\r\n\r\n", HTTP_EXPECT_OTHER},
        {"GET / HTTP/1.1\r\n" H "Expect:\r\n\r\n", HTTP_EXPECT_OTHER},
        {"GET / HTTP/1.1\r\n" H "Expect: tea\r\nExpect: 100-continue\r\n\r\n", HTTP_EXPECT_OTHER},
        {"GET / HTTP/1.1\r\n" H "Expect: 100-continue\r\nExpect: 100-continue\r\n\r\n",
         HTTP_EXPECT_OTHER},
        {"GET / HTTP/1.0\r\nExpect: tea\r\n\r\n", HTTP_EXPECT_NONE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct http_field fields[FIELDS];
        struct http_head h;
        char *memory;

        assert_int_equal(take(&h, fields, table[i].text, &memory), 0);
        assert_int_equal(h.expect, table[i].expect);
        free(memory);
    }
}

/* One text of n bytes: prefix, then x's, then suffix. */
static char *padded(const char *prefix, size_t n, const char *suffix)
{
    char *p = malloc(n + 1);
    size_t a = strlen(prefix);
    size_t b = strlen(suffix);

    assert_non_null(p);
    assert_true(a + b <= n);
    memcpy(p, prefix, a);
    memset(p + a, 'x', n - a - b);
    memcpy(p + n - b, suffix, b + 1);
    return p;
}

static void test_limits(void **state)
{
    struct buf b = {0};
    char *p;

    (void)state;
    p = padded("GET / HTTP/1.1\r\nHost: h\r\nX: ", 1024, "\r\n\r\n");
    check(p, 0);
    free(p);
    p = padded("GET / HTTP/1.1\r\nHost: h\r\nX: ", 1025, "\r\n\r\n");
    check(p, ERR_HEADERS_TOO_LARGE);
    free(p);
    p = padded("GET /", 4 + 256 + 9 + 11 + 2, " HTTP/1.1\r\nHost: h\r\n\r\n");
    check(p, 0);
    free(p);
    p = padded("GET /", 4 + 257 + 9 + 11 + 2, " HTTP/1.1\r\nHost: h\r\n\r\n");
    check(p, ERR_URI_TOO_LONG);
    free(p);
    p = padded("GET /", 600, "");
    check(p, ERR_URI_TOO_LONG);
    free(p);
    buf_put_cstr(&b, "GET / HTTP/1.1\r\nHost: h\r\n");
    for (int i = 1; i < FIELDS; i++) {
        buf_put_cstr(&b, "a:b\r\n");
    }
    buf_put(&b, "\r\n", 3);
    check(b.ptr, 0);
    b.len -= 3;
    buf_put(&b, "a:b\r\n\r\n", 8);
    check(b.ptr, ERR_HEADERS_TOO_LARGE);
    buf_free(&b);
}

static void test_tokens(void **state)
{
    (void)state;
    assert_true(http_is_token(SLICE("a!#$%&'*+-.^_`|~9Z")));
    assert_false(http_is_token(SLICE("")));
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');

        assert_int_equal(http_is_token(slice_of(&byte, 1)),
                         plain || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL));
    }
    assert_true(http_equal_fold(SLICE("ChunKed"), "chunked"));
    assert_false(http_equal_fold(SLICE("chunke"), "chunked"));
    assert_false(http_equal_fold(SLICE("chunkedd"), "chunked"));
    assert_false(http_equal_fold(SLICE("chunke\0"), "chunked"));
    assert_true(http_equal_fold(SLICE(""), ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_every_byte_of_a_head_matters),
        cmocka_unit_test(test_parts),    cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_expect),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
