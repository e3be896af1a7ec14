/* test_query: URL parameters and the headers of a project's query. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/code.h"
#include "engine/engine_protocol.h"
#include "engine/query.h"

static struct arena arena;
static struct query q;
static struct query_error error;

static int setup(void **state)
{
    (void)state;
    memset(&q, 0, sizeof q);
    memset(&error, 0, sizeof error);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static bool take(const char *url)
{
    return query_take_url(&q, slice_cstr(url), &arena, &error);
}

static void test_parameters(void **state)
{
    (void)state;
    assert_true(
        take("query=SELECT+1&database=d&default_format=CSV&query_id=i&param_a=1&param_b=x%20y&"
             "max_threads=2&compress=0&decompress=0&wait_end_of_query=1&buffer_size=4"));
    assert_true(slice_eq(q.sql, SLICE("SELECT 1")));
    assert_true(slice_eq(q.database, SLICE("d")));
    assert_true(slice_eq(q.format, SLICE("CSV")));
    assert_true(slice_eq(q.id, SLICE("i")));
    assert_int_equal(q.param_count, 2);
    assert_true(slice_eq(q.param[1].name, SLICE("b")));
    assert_true(slice_eq(q.param[1].value, SLICE("x y")));
    assert_int_equal(q.setting_count, 1);
    assert_true(slice_eq(q.setting[0].name, SLICE("max_threads")));
    assert_int_equal(error.code, 0);
}

static void refused(const char *url, unsigned code)
{
    (void)setup(NULL);
    assert_false(take(url));
    assert_int_equal(error.code, code);
    assert_true(error.text[0] != '\0');
}

static void test_parameters_refused(void **state)
{
    char url[8192];
    size_t n = 0;

    (void)state;
    refused("query=%zz", CODE_BAD_ARGUMENTS);
    refused("query=%ff", CODE_BAD_ARGUMENTS);
    refused("compress=1", CODE_NOT_IMPLEMENTED);
    refused("session_id=x", CODE_NOT_IMPLEMENTED);
    refused("role=x", CODE_NOT_IMPLEMENTED);
    refused("user=x", CODE_NOT_IMPLEMENTED);
    refused("password=hunter2", CODE_NOT_IMPLEMENTED);
    assert_null(strstr(error.text, "hunter2"));
    refused("a%20b=1", CODE_UNKNOWN_SETTING);
    refused("=1", CODE_UNKNOWN_SETTING);
    refused("a%27=1", CODE_UNKNOWN_SETTING);
    for (int i = 0; i <= QUERY_SETTINGS_MAX; i++) {
        n += (size_t)snprintf(url + n, sizeof url - n, "s%d=1&", i);
    }
    refused(url, CODE_BAD_ARGUMENTS);
    n = 0;
    for (int i = 0; i <= LIBRARY_PARAMS_MAX; i++) {
        n += (size_t)snprintf(url + n, sizeof url - n, "param_p%d=1&", i);
    }
    refused(url, CODE_BAD_ARGUMENTS);
}

static bool project(const char *name, struct query_limits limits)
{
    return query_take_project(&q, slice_cstr(name), &limits, &error);
}

static void test_projects(void **state)
{
    const struct query_limits none = {0};
    const struct query_limits some = {SLICE("1"), SLICE("20"), SLICE("999999999999999")};

    (void)state;
    assert_true(project("demo_1-x", none));
    assert_true(slice_eq(q.project, SLICE("demo_1-x")));
    assert_true(slice_eq(q.format, SLICE("JSON")));
    assert_int_equal(q.time_ms, ENGINE_TIME_MS_DEFAULT);
    assert_int_equal(q.rows_max, ENGINE_ROWS_MAX_DEFAULT);
    assert_int_equal(q.bytes_max, ENGINE_BYTES_MAX_DEFAULT);
    assert_true(project("demo", some));
    assert_int_equal(q.time_ms, 1);
    assert_int_equal(q.rows_max, 20);
    assert_true(q.bytes_max == 999999999999999u);
}

static void test_projects_refused(void **state)
{
    static const char *const names[] = {"", "A", "a b", "a'b", "a\\", "a.b", "\xc3\xa9", "a%"};
    static const char *const numbers[] = {"0", "-1", "1.5", "x", "1000000000000000", " 1", "1 "};
    const struct query_limits none = {0};
    char long_name[QUERY_PROJECT_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_false(project(names[i], none));
        assert_int_equal(error.code, CODE_BAD_ARGUMENTS);
    }
    memset(long_name, 'a', sizeof long_name);
    long_name[QUERY_PROJECT_MAX + 1] = '\0';
    assert_false(project(long_name, none));
    long_name[QUERY_PROJECT_MAX] = '\0';
    assert_true(project(long_name, none));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct query_limits limits = {.rows_max = slice_cstr(numbers[i])};

        assert_false(project("demo", limits));
        assert_int_equal(error.code, CODE_BAD_ARGUMENTS);
    }
}

static void test_projects_set_nothing(void **state)
{
    const struct query_limits none = {0};

    (void)state;
    assert_true(take("max_threads=1"));
    assert_false(project("demo", none));
    assert_int_equal(error.code, CODE_READONLY);
    (void)setup(NULL);
    assert_true(take("database=d"));
    assert_false(project("demo", none));
    assert_int_equal(error.code, CODE_READONLY);
    (void)setup(NULL);
    assert_true(take("default_format=Native"));
    assert_false(project("demo", none));
    assert_int_equal(error.code, CODE_UNKNOWN_FORMAT);
    (void)setup(NULL);
    q.reading = true;
    assert_false(project("demo", none));
    assert_int_equal(error.code, CODE_BAD_ARGUMENTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parameters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parameters_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_projects, setup, teardown),
        cmocka_unit_test_setup_teardown(test_projects_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_projects_set_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
