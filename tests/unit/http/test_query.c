/* test_query: form-encoded pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/http.h"

/* "name=value;" for each pair, then the last result. */
static int list(const char *query, size_t n, struct buf *out)
{
    char *copy = malloc(n + 1);
    struct http_pairs pairs;
    struct arena arena = {0};
    struct slice name;
    struct slice value;
    int got;

    assert_non_null(copy);
    memcpy(copy, query, n);
    pairs.rest = slice_of(copy, n);
    got = http_next_pair(&pairs, &arena, &name, &value);
    while (got == 1) {
        buf_put_slice(out, name);
        buf_put_char(out, '=');
        buf_put_slice(out, value);
        buf_put_char(out, ';');
        got = http_next_pair(&pairs, &arena, &name, &value);
    }
    arena_free(&arena);
    free(copy);
    return got;
}

static void test_pairs(void **state)
{
    static const struct {
        const char *query;
        const char *pairs;
    } table[] = {
        {"", ""},
        {"a=b", "a=b;"},
        {"a=b&c=d", "a=b;c=d;"},
        {"a", "a=;"},
        {"a=", "a=;"},
        {"=b", "=b;"},
        {"=", "=;"},
        {"&&a=1&&b=2&", "a=1;b=2;"},
        {"a=b=c", "a=b=c;"},
        {"a+b=c+d", "a b=c d;"},
        {"%61%3D=%26%2B", "a==&+;"},
        {"a=%C3%A9%e2%82%ac%F0%9F%98%80", "a=\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80;"},
        {"a=\xc3\xa9", "a=\xc3\xa9;"},
        {"a=%2525", "a=%25;"},
        {"after=s%2Ft", "after=s/t;"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct buf out = {0};

        assert_int_equal(list(table[i].query, strlen(table[i].query), &out), 0);
        assert_true(slice_eq(buf_slice(&out), slice_cstr(table[i].pairs)));
        buf_free(&out);
    }
}

static void test_malformed(void **state)
{
    static const char *const table[] = {
        "%",
        "%4",
        "a=%",
        "a=%4",
        "a=%zz",
        "a=%4g",
        "a=%g4",
        "%=1",
        "a=b&%",
        "a=%ff",
        "a=%c3",
        "a=%c0%80",
        "a=%c1%bf",
        "a=%e0%80%80",
        "a=%e0%9f%bf",
        "a=%ed%a0%80",
        "a=%ed%bf%bf",
        "a=%e2%82",
        "a=%e2%28%a1",
        "a=%f0%80%80%80",
        "a=%f0%8f%bf%bf",
        "a=%f4%90%80%80",
        "a=%f5%80%80%80",
        "a=%f0%9f%98",
        "a=%80",
        "a=% 41",
        "a=%+1",
        "a=\xff",
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct buf out = {0};

        if (list(table[i], strlen(table[i]), &out) != ERR_INVALID_REQUEST) {
            fail_msg("%s was taken", table[i]);
        }
        buf_free(&out);
    }
}

/* A record key may hold one, so a filter may name it, as a byte or encoded. */
static void test_nul_is_a_character(void **state)
{
    static const char text[] = "a=\0&b=%00";
    struct buf out = {0};
    const char *first;

    (void)state;
    assert_int_equal(list(text, sizeof text - 1, &out), 0);
    first = memchr(out.ptr, '\0', out.len);
    assert_non_null(first);
    assert_non_null(memchr(first + 1, '\0', out.len - (size_t)(first + 1 - out.ptr)));
    buf_free(&out);
}

static void test_no_memory(void **state)
{
    struct http_pairs pairs = {.rest = SLICE("aaaa=bbbb")};
    struct arena arena;
    struct slice name;
    struct slice value;

    (void)state;
    arena_init(&arena, 1);
    assert_int_equal(http_next_pair(&pairs, &arena, &name, &value), ERR_NO_MEMORY);
    arena_free(&arena);
    arena_init(&arena, _Alignof(max_align_t));
    pairs.rest = SLICE("aaaa=bbbb");
    assert_int_equal(http_next_pair(&pairs, &arena, &name, &value), ERR_NO_MEMORY);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_nul_is_a_character),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
