/* test_code: error numbers, statuses, media types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/code.h"

static void test_numbers(void **state)
{
    (void)state;
    assert_int_equal(code_of(SLICE("Code: 469. DB::Exception: x")), 469);
    assert_int_equal(code_of(SLICE("Code: 6.")), 6);
    assert_int_equal(code_of(SLICE("Code: 100000. x")), 100000);
    assert_int_equal(code_of(SLICE("")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("Code: ")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("Code: 12")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("Code: 0. x")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("Code: x. y")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("Code: 12345678901. y")), CODE_UNKNOWN_EXCEPTION);
    assert_int_equal(code_of(SLICE("code: 12. y")), CODE_UNKNOWN_EXCEPTION);
}

/* spec/clickhouse.md C4 */
static void test_statuses(void **state)
{
    static const struct {
        unsigned code, status;
    } table[] = {
        {194, 401}, {192, 403}, {193, 403},  {516, 403}, {497, 403}, {6, 400},   {25, 400},
        {26, 400},  {27, 400},  {38, 400},   {41, 400},  {53, 400},  {72, 400},  {117, 400},
        {376, 400}, {62, 400},  {321, 400},  {60, 404},  {81, 404},  {46, 404},  {47, 404},
        {115, 404}, {159, 408}, {229, 413},  {48, 501},  {209, 503}, {439, 503}, {76, 503},
        {469, 500}, {252, 500}, {241, 500},  {243, 500}, {242, 500}, {202, 500}, {319, 500},
        {164, 500}, {204, 500}, {1002, 500}, {0, 500},   {344, 503},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_int_equal(code_status(table[i].code), table[i].status);
    }
}

static void test_names(void **state)
{
    static const unsigned codes[] = {36,  48,  62,  73,  115, 117, 164, 194,
                                     204, 241, 344, 396, 439, 497, 516};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_string_not_equal(code_name(codes[i]), "UNKNOWN_EXCEPTION");
    }
    assert_string_equal(code_name(497), "ACCESS_DENIED");
    assert_string_equal(code_name(1), "UNKNOWN_EXCEPTION");
}

static void test_media_types(void **state)
{
    (void)state;
    assert_string_equal(code_media_type(SLICE("JSON")), "application/json; charset=UTF-8");
    assert_string_equal(code_media_type(SLICE("JSONCompact")), "application/json; charset=UTF-8");
    assert_string_equal(code_media_type(SLICE("JSONEachRow")),
                        "application/x-ndjson; charset=UTF-8");
    assert_string_equal(code_media_type(SLICE("TabSeparatedRaw")),
                        "text/tab-separated-values; charset=UTF-8");
    assert_string_equal(code_media_type(SLICE("Pretty")), "text/plain; charset=UTF-8");
    assert_string_equal(code_media_type(SLICE("")), "text/plain; charset=UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_media_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
