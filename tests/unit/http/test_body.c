/* test_body: the chunk decoder gives one result however its input is cut: every pair of cuts, and
 * byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/body.h"

#define MAX 64

struct result {
    int code;
    size_t end; /* bytes that were used */
    struct buf data;
};

/* Feeds one piece; false when there is no need of another. */
static bool feed(struct http_chunks *d, struct result *r, const char *p, size_t n)
{
    size_t at = 0;

    while (at < n) {
        size_t used;
        struct slice data;
        /* Exactly these bytes in memory of their own: a decoder that looks further is caught. */
        char *copy = malloc(n - at);

        assert_non_null(copy);
        memcpy(copy, p + at, n - at);
        r->code = http_chunks_step(d, MAX, copy, n - at, &used, &data);
        assert_true(used <= n - at);
        assert_true(data.len <= used);
        buf_put_slice(&r->data, data);
        free(copy);
        at += used;
        r->end += used;
        if (r->code != 0) {
            return false;
        }
        assert_true(used != 0);
    }
    return true;
}

static void decode(struct result *r, const char *p, size_t n, size_t first, size_t second)
{
    struct http_chunks d = {0};

    *r = (struct result){0};
    if (feed(&d, r, p, first) && feed(&d, r, p + first, second - first)) {
        (void)feed(&d, r, p + second, n - second);
    }
    if (r->code < 0) {
        size_t used;
        struct slice data;

        /* Bad is sticky. */
        assert_int_equal(http_chunks_step(&d, MAX, "0", 1, &used, &data), ERR_BAD_REQUEST);
        assert_int_equal(used, 0);
    }
}

static void check(const char *text, size_t n, int code, const char *data, size_t end)
{
    struct http_chunks d = {0};
    struct result r = {0};

    for (size_t first = 0; first <= n; first++) {
        for (size_t second = first; second <= n; second++) {
            decode(&r, text, n, first, second);
            assert_int_equal(r.code, code);
            assert_int_equal(r.end, end);
            assert_int_equal(r.data.len, strlen(data));
            assert_true(slice_eq(buf_slice(&r.data), slice_cstr(data)));
            buf_free(&r.data);
        }
    }
    r = (struct result){0};
    for (size_t i = 0; i < n && feed(&d, &r, text + i, 1); i++) {
    }
    assert_int_equal(r.code, code);
    assert_int_equal(r.end, end);
    assert_true(slice_eq(buf_slice(&r.data), slice_cstr(data)));
    buf_free(&r.data);
}

#define DONE(text, data, rest) check(text rest, sizeof text rest - 1, 1, data, sizeof text - 1)
#define MORE(text, data)       check(text, sizeof text - 1, 0, data, sizeof text - 1)
#define BAD(text, rest, data) \
    check(text rest, sizeof text rest - 1, ERR_BAD_REQUEST, data, sizeof text - 1)
#define LARGE(text, rest, data) \
    check(text rest, sizeof text rest - 1, ERR_BODY_TOO_LARGE, data, sizeof text - 1)

static void test_good(void **state)
{
    (void)state;
    DONE("0\r\n\r\n", "", "");
    DONE("0\r\n\r\n", "", "GET / HTTP/1.1\r\n");
    DONE("5\r\nhello\r\n0\r\n\r\n", "hello", "next");
    DONE("1\r\na\r\n2\r\nbc\r\n000\r\n\r\n", "abc", "");
    DONE("0000000000000005\r\nhello\r\n0\r\n\r\n", "hello", "");
    DONE("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", "");
    DONE("a;x=\"y z\"\r\n0123456789\r\n0;\t\r\n\r\n", "0123456789", "5\r\n");
    DONE("1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\n", "a", "X");
    DONE("4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", "");
}

static void test_more(void **state)
{
    (void)state;
    MORE("", "");
    MORE("5", "");
    MORE("5\r", "");
    MORE("5\r\nhel", "hel");
    MORE("5\r\nhello", "hello");
    MORE("5\r\nhello\r\n", "hello");
    MORE("5\r\nhello\r\n0\r\n", "hello");
    MORE("5\r\nhello\r\n0\r\nX: y\r\n", "hello");
    MORE("5\r\nhello\r\n0\r\n\r", "hello");
}

static void test_bad(void **state)
{
    (void)state;
    BAD("\r", "\n", "");
    BAD("g", "\r\n", "");
    BAD("-", "1\r\n", "");
    BAD("+", "1\r\n", "");
    BAD(" ", "1\r\n", "");
    BAD("1 ", "\r\na", "");
    BAD("1\t", "\r\na", "");
    BAD("0x", "1\r\n", "");
    BAD(";", "a\r\n", "");
    BAD("1\n", "a", "");
    BAD("1\ra", "", "");
    BAD("00000000000000001", "\r\n", "");
    BAD("1;\n", "a", "");
    BAD("1;a\x01", "\r\n", "");
    BAD("1\r\nab", "\r\n", "a");
    BAD("1\r\na\n", "0", "a");
    BAD("1\r\na\rb", "", "a");
    BAD("1\r\na\r\n\r", "\n", "a");
    BAD("0\r\n ", "x", "");
    BAD("0\r\n:", " x\r\n", "");
    BAD("0\r\nX ", ": y\r\n", "");
    BAD("0\r\nX\r", "\n", "");
    BAD("0\r\nX: y\r\n ", "z\r\n", "");
    BAD("0\r\nX: y\n", "\r\n", "");
    BAD("0\r\nX: \x7f", "\r\n", "");
    BAD("0\r\n\rX", "", "");
    BAD("0\r\n\n", "", "");
}

static void test_large(void **state)
{
    (void)state;
    LARGE("41\r\n", "xxx", "");
    LARGE("1\r\na\r\n40\r\n", "xxx", "a");
    LARGE("ffffffffffffffff\r\n", "x", "");
    LARGE("1\r\na\r\nffffffffffffffff\r\n", "x", "a");
    MORE("40\r\n", "");
}

/* Extensions and trailers are bounded over the whole body, not one by one. */
static void test_bounds(void **state)
{
    struct http_chunks d = {0};
    struct result r = {0};
    bool more = true;
    size_t chunks = 0;

    (void)state;
    while (more && chunks < 100) {
        more = feed(&d, &r, "1;", 2);
        for (int i = 0; i < 128 && more; i++) {
            more = feed(&d, &r, "e", 1);
        }
        more = more && feed(&d, &r, "\r\nx\r\n", 5);
        chunks++;
    }
    assert_int_equal(r.code, ERR_BAD_REQUEST);
    assert_int_equal(chunks, 1 + HTTP_CHUNK_EXTENSION_BYTES_MAX / 128);
    buf_free(&r.data);

    d = (struct http_chunks){0};
    r = (struct result){0};
    more = feed(&d, &r, "0\r\n", 3);
    while (more && r.end < 20000) {
        more = feed(&d, &r, "X: y\r\n", 6);
    }
    assert_int_equal(r.code, ERR_BAD_REQUEST);
    /* LFs are not counted: five of six bytes a line. */
    assert_in_range(r.end, HTTP_TRAILER_BYTES_MAX, HTTP_TRAILER_BYTES_MAX * 6 / 5 + 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),  cmocka_unit_test(test_more),   cmocka_unit_test(test_bad),
        cmocka_unit_test(test_large), cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
