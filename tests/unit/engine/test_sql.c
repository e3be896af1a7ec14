/* test_sql: what the front sees of a statement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/sql.h"

static const char *const kind_names[] = {
    [SQL_END] = "end",       [SQL_WORD] = "word", [SQL_STRING] = "string",
    [SQL_QUOTED] = "quoted", [SQL_SIGN] = "sign", [SQL_BROKEN] = "broken",
};

/* "word:SELECT sign:( ..." in memory of exactly the text's size: ASan sees a byte too many. */
static void tokens_are(const char *text, size_t n, const char *want)
{
    char *copy = malloc(n != 0 ? n : 1);
    struct sql_reader r;
    struct buf got = {0};
    struct sql_token t;

    assert_non_null(copy);
    memcpy(copy, text, n);
    r.rest = slice_of(copy, n);
    for (t = sql_next(&r); t.kind != SQL_END && t.kind != SQL_BROKEN; t = sql_next(&r)) {
        buf_printf(&got, "%s:%.*s ", kind_names[t.kind], (int)t.text.len, t.text.ptr);
    }
    buf_put_cstr(&got, kind_names[t.kind]);
    t = sql_next(&r);
    assert_true(t.kind == SQL_END || t.kind == SQL_BROKEN); /* and it stays so */
    if (!slice_eq(buf_slice(&got), slice_cstr(want))) {
        fail_msg("%s: %.*s, not %s", text, (int)got.len, got.ptr, want);
    }
    buf_free(&got);
    free(copy);
}

static void test_tokens(void **state)
{
    static const struct {
        const char *sql;
        const char *want;
    } table[] = {
        {"", "end"},
        {" \t\r\n", "end"},
        {"SELECT 1", "word:SELECT word:1 end"},
        {"a.b,c", "word:a sign:. word:b sign:, word:c end"},
        {"-- x\nSELECT", "word:SELECT end"},
        {"-- x", "end"},
        {"# x\nSELECT", "word:SELECT end"},
        {"#!x\n1", "word:1 end"},
        {"/* x */SELECT/**/1", "word:SELECT word:1 end"},
        {"/* /* */ 1", "word:1 end"},
        {"/*", "broken"},
        {"/*/", "broken"},
        {"1 /* x", "word:1 broken"},
        {"'a' \"b\" `c`", "string:'a' quoted:\"b\" quoted:`c` end"},
        {"'a''b'", "string:'a''b' end"},
        {"'a\\'b' c", "string:'a\\'b' word:c end"},
        {"'a\\\\' c", "string:'a\\\\' word:c end"},
        {"'a", "broken"},
        {"'a\\'", "broken"},
        {"'a\\", "broken"},
        {"`a", "broken"},
        {"'a;b--'", "string:'a;b--' end"},
        {"$$a'b$$ c", "string:$$a'b$$ word:c end"},
        {"$x$ $$ $x$", "string:$x$ $$ $x$ end"},
        {"$x$ a", "word:$x$ word:a end"},
        {"$1", "word:$1 end"},
        {"a$b", "word:a$b end"},
        {"\xc3\xa9t\xc3\xa9", "word:\xc3\xa9t\xc3\xa9 end"},
        {"a-b", "word:a sign:- word:b end"},
        {"a--b", "word:a end"},
        {"a/b", "word:a sign:/ word:b end"},
        {"1;2", "word:1 sign:; word:2 end"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        tokens_are(table[i].sql, strlen(table[i].sql), table[i].want);
    }
    tokens_are("a\0b", 3, "word:a word:b end");
}

static void test_words(void **state)
{
    struct sql_reader r = {.rest = SLICE("SeLeCt selectx selec 'SELECT'")};
    struct sql_token t = sql_next(&r);

    (void)state;
    assert_true(sql_is_word(&t, "SELECT"));
    assert_false(sql_is_word(&t, "SELECTX"));
    assert_false(sql_is_word(&t, "SELEC"));
    for (int i = 0; i < 3; i++) {
        t = sql_next(&r);
        assert_false(sql_is_word(&t, "SELECT"));
    }
}

static void test_inserts(void **state)
{
    static const struct {
        const char *sql;
        const char *head; /* NULL: no rows follow */
        const char *format;
        const char *rows;
    } table[] = {
        {"INSERT INTO t FORMAT JSONEachRow", "INSERT INTO t ", "JSONEachRow", ""},
        {"insert into t format CSV\n1,2\n3,4\n", "insert into t ", "CSV", "1,2\n3,4\n"},
        {"INSERT INTO t FORMAT CSV 1,2\n", "INSERT INTO t ", "CSV", "1,2\n"},
        {"INSERT INTO t FORMAT CSV;", "INSERT INTO t ", "CSV", ""},
        {"INSERT INTO t FORMAT CSV \r\n\n1", "INSERT INTO t ", "CSV", "\n1"},
        {"INSERT INTO t (format, b) SETTINGS a = 1 FORMAT TSV\nx",
         "INSERT INTO t (format, b) SETTINGS a = 1 ", "TSV", "x"},
        {"INSERT INTO t FORMAT Values (1)", "INSERT INTO t ", "Values", "(1)"},
        {"INSERT INTO t FORMAT JSONEachRow {\"a\":\"FORMAT CSV\"}", "INSERT INTO t ", "JSONEachRow",
         "{\"a\":\"FORMAT CSV\"}"},
        {"INSERT INTO t VALUES (1)", NULL, "", ""},
        {"INSERT INTO t VALUES (1) FORMAT CSV", NULL, "CSV", ""},
        {"INSERT INTO t SELECT 1 FORMAT CSV", NULL, "CSV", ""},
        {"INSERT INTO t FORMAT", NULL, "", ""},
        {"INSERT INTO t FORMAT 'x'", NULL, "", ""},
        {"SELECT 1 FORMAT JSON", NULL, "JSON", ""},
        {"SELECT 'FORMAT CSV'", NULL, "", ""},
        {"SELECT (1 FORMAT CSV)", NULL, "", ""},
        {"SELECT format(1) FORMAT JSON SETTINGS a = 1", NULL, "JSON", ""},
        {"SELECT 1 -- FORMAT CSV", NULL, "", ""},
        {"))) FORMAT CSV", NULL, "CSV", ""},
    };
    struct sql_shape shape;

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        sql_shape(slice_cstr(table[i].sql), &shape);
        assert_int_equal(shape.insert_rows, table[i].head != NULL);
        assert_true(slice_eq(shape.format, slice_cstr(table[i].format)));
        assert_false(shape.odd_name);
        if (table[i].head != NULL) {
            assert_true(slice_eq(shape.head, slice_cstr(table[i].head)));
            assert_true(slice_eq(shape.rows, slice_cstr(table[i].rows)));
        }
    }
}

static void test_shapes(void **state)
{
    static const char *const odd[] = {"SELECT `a\\b`", "SELECT \"a\nb\"", "SELECT \"a\x01\"",
                                      "SELECT 'a",     "SELECT /*",       "SELECT `"};
    struct sql_shape shape;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        sql_shape(slice_cstr(odd[i]), &shape);
        assert_true(shape.odd_name);
    }
    sql_shape(SLICE(" /* x */ (SELECT 1)"), &shape);
    assert_true(slice_eq(shape.first, SLICE("(")));
    sql_shape(SLICE(" -- x\n"), &shape);
    assert_int_equal(shape.first.len, 0);
    sql_shape(SLICE("SELECT 'a\nb\\c'"), &shape); /* strings may */
    assert_false(shape.odd_name);
    assert_true(slice_eq(sql_trim(SLICE(" a ; \n;")), SLICE(" a")));
    assert_int_equal(sql_trim(SLICE(" ;; ")).len, 0);
    assert_int_equal(sql_trim(SLICE("")).len, 0);
}

static void test_quoting(void **state)
{
    struct buf out = {0};

    (void)state;
    sql_put_string(&out, SLICE("it's \\ `x`"));
    buf_put_char(&out, ' ');
    sql_put_name(&out, SLICE("it's \\ `x`"));
    assert_true(slice_eq(buf_slice(&out), SLICE("'it\\'s \\\\ `x`' `it's \\\\ \\`x\\``")));
    buf_free(&out);
}

/* Any bytes, cut at any place: every token lies within the text, and reading ends. */
static void test_random(void **state)
{
    static const char alphabet[] = "a1 '\"`\\$-/*#\n;(),FORMAT";
    const char *given = getenv("SEED");
    unsigned long seed = given != NULL ? strtoul(given, NULL, 10) : 20261130;
    uint32_t x = (uint32_t)seed | 1;

    (void)state;
    print_message("SEED %lu\n", seed);
    for (int round = 0; round < 20000; round++) {
        char text[40];
        size_t n = (size_t)round % sizeof text;
        struct sql_reader r = {.rest = slice_of(text, n)};
        struct sql_token t;
        size_t steps = 0;

        for (size_t i = 0; i < n; i++) {
            x = x * 1664525 + 1013904223;
            text[i] = alphabet[(x >> 16) % (sizeof alphabet - 1)];
        }
        do {
            t = sql_next(&r);
            assert_true(t.text.ptr >= text);
            assert_true(t.text.ptr + t.text.len <= text + n);
            assert_true(steps++ <= n);
        } while (t.kind != SQL_END && t.kind != SQL_BROKEN);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),  cmocka_unit_test(test_words),
        cmocka_unit_test(test_inserts), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_quoting), cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
