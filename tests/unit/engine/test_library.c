/* test_library: libraries that are not libchdb. The real one is asked by tests/blackbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/library.h"

static void test_no_such_file(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(library_load("/nowhere/libchdb.so", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "cannot load /nowhere/libchdb.so"));
}

static void test_not_a_library(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(library_load("/etc/passwd", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "cannot load"));
}

static void test_another_library(void **state)
{
    struct err e = {0};

    (void)state;
    assert_int_equal(library_load("libz.so.1", &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "the library has no chdb_version"));
}

static void test_nothing_to_free(void **state)
{
    struct library_conn c = {0};
    struct library_answer a = {0};

    (void)state;
    library_close(&c);
    library_answer_free(&a);
    assert_null(c.handle);
    assert_null(a.result);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_such_file),
        cmocka_unit_test(test_not_a_library),
        cmocka_unit_test(test_another_library),
        cmocka_unit_test(test_nothing_to_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
