/* The contract's two spellings of time. L43 and L44 of the recorded cases ask for leap seconds and
 * offsets; the history contract refuses both, and that is what is tested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/timefmt.h"

/* From memory of exactly the text's size. */
static bool valid(const char *text)
{
    size_t len = strlen(text);
    char *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    bool ok = timefmt_valid_occurred_at(slice_of(copy, len));
    free(copy);
    return ok;
}

static bool parse(const char *text, uint64_t *ms)
{
    size_t len = strlen(text);
    char *copy = malloc(len == 0 ? 1 : len);
    assert_non_null(copy);
    memcpy(copy, text, len);
    bool ok = timefmt_parse_ms(slice_of(copy, len), ms);
    free(copy);
    return ok;
}

static void check_ms(uint64_t ms, const char *want)
{
    char text[TIMEFMT_MS_LEN + 1];
    uint64_t back = 1;
    timefmt_ms(text, ms);
    assert_string_equal(text, want);
    assert_true(parse(text, &back));
    assert_true(back == ms);
    assert_true(valid(text));
}

static void test_format(void **state)
{
    (void)state;
    check_ms(0, "1970-01-01T00:00:00.000Z");
    check_ms(1, "1970-01-01T00:00:00.001Z");
    check_ms(86399999, "1970-01-01T23:59:59.999Z");
    check_ms(951782400000, "2000-02-29T00:00:00.000Z");
    check_ms(951868800000, "2000-03-01T00:00:00.000Z");
    check_ms(1764493551123, "2025-11-30T09:05:51.123Z");
    check_ms(4107542399999, "2100-02-28T23:59:59.999Z");
    check_ms(4107542400000, "2100-03-01T00:00:00.000Z");
    check_ms(253402300799999, "9999-12-31T23:59:59.999Z");
}

/* Every day up to the year 2400 against the C library. */
static void test_every_day(void **state)
{
    (void)state;
    for (time_t t = 45296; t < (time_t)13569465600; t += 86400) {
        struct tm tm;
        char want[64];
        char text[TIMEFMT_MS_LEN + 1];
        uint64_t back = 0;
        assert_non_null(gmtime_r(&t, &tm));
        assert_int_equal(strftime(want, sizeof want, "%Y-%m-%dT%H:%M:%S.000Z", &tm), 24);
        timefmt_ms(text, (uint64_t)t * 1000);
        if (strcmp(text, want) != 0) {
            fail_msg("got %s, want %s", text, want);
        }
        assert_true(timefmt_parse_ms(slice_of(text, 24), &back));
        assert_true(back == (uint64_t)t * 1000);
    }
}

static void test_parse_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "",
        "1970-01-01T00:00:00Z",
        "1970-01-01T00:00:00.00Z",
        "1970-01-01T00:00:00.0000Z",
        "1970-01-01T00:00:00.000z",
        "1970-01-01T00:00:00,000Z",
        "1970-01-01T00:00:00.00xZ",
        "1969-12-31T23:59:59.999Z",
        "0000-01-01T00:00:00.000Z",
        "1970-02-29T00:00:00.000Z",
        "1970-01-01T24:00:00.000Z",
        "1970-01-01T23:59:60.000Z",
        "1970-01-01 00:00:00.000Z",
        "+970-01-01T00:00:00.000Z",
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint64_t ms = 7;
        if (parse(refused[i], &ms)) {
            fail_msg("%s: accepted", refused[i]);
        }
        assert_int_equal(ms, 7);
    }
}

static void check_all(const char *const *texts, size_t count, bool want)
{
    for (size_t i = 0; i < count; i++) {
        if (valid(texts[i]) != want) {
            fail_msg("%s: %s", texts[i], want ? "refused" : "accepted");
        }
    }
}

static void test_occurred_at(void **state)
{
    (void)state;
    static const char *const accepted[] = {
        "2026-11-30T09:05:51Z",           "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",           "2024-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",           "2026-11-30T09:05:51.0Z",
        "0000-02-29T00:00:00.000Z",       "9999-12-31T23:59:59.999999999Z",
        "2026-01-31T00:00:00.123456789Z",
    };
    static const char *const refused[] = {
        "",
        "Z",
        "2026-11-30",
        "2026-11-30T09:05Z",
        "2026-11-30T09:05:51",
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:61Z",
        "2026-01-01 00:00:00Z",
        "2026/01/01T00:00:00Z",
        "2026-1-01T00:00:00Z0",
        "12026-01-01T00:00:00Z",
        "-026-01-01T00:00:00Z",
        "2026-01-01T00:00:00ZZ",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z ",
        "2026-01-01T0 :00:00Z",
        "2026-01-01T00:0x:00Z",
        "2026-01-01T00:00:0\xC2Z",
        "2026-01-01T00:00:00.1 Z",
        "2026-01-01T00:00:00.-1Z",
        "2026-01-01T00-00:00Z",
        "2026-01-01T00:00-00Z",
        "2026-01-01T00:00:00_1Z",
    };
    check_all(accepted, sizeof accepted / sizeof accepted[0], true);
    check_all(refused, sizeof refused / sizeof refused[0], false);
}

static void test_L43_leap_seconds(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "2016-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "2016-12-31T23:59:60.999Z",
        "2020-01-01T00:00:60Z", "2018-06-15T12:30:60Z",
    };
    static const char *const accepted[] = {"2016-12-31T23:59:59Z",
                                           "2016-12-31T23:59:59.999999999Z"};
    check_all(refused, sizeof refused / sizeof refused[0], false);
    check_all(accepted, sizeof accepted / sizeof accepted[0], true);
}

static void test_L44_fractions_and_offsets(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "2018-02-14T00:28:07.Z",
        "2018-02-14T00:28:07.+00:00",
        "1937-01-01T12:00:27.87+00:20",
        "2020-01-01T00:00:00-00:30",
        "2020-01-01T00:00:00-00:00",
        "2020-01-01T00:00:00+00:00",
        "2020-01-01T00:00:00+24:00",
        "2020-01-01t00:00:00Z",
        "2020-01-01T00:00:00z",
        "2020-01-01T00:00:00,5Z",
        "2020-01-01T00:00:00.1234567890Z",
        "2020-01-01T00:00:00.12345678901Z",
        "2020-01-01T00:00:00.123456789012Z",
        "0000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    };
    static const char *const accepted[] = {
        "2020-01-01T00:00:00.5Z",         "2020-01-01T00:00:00.12Z",
        "2020-01-01T00:00:00.123Z",       "2020-01-01T00:00:00.1234Z",
        "2020-01-01T00:00:00.12345Z",     "2020-01-01T00:00:00.123456Z",
        "2020-01-01T00:00:00.1234567Z",   "2020-01-01T00:00:00.12345678Z",
        "2020-01-01T00:00:00.123456789Z",
    };
    check_all(refused, sizeof refused / sizeof refused[0], false);
    check_all(accepted, sizeof accepted / sizeof accepted[0], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),           cmocka_unit_test(test_every_day),
        cmocka_unit_test(test_parse_refused),    cmocka_unit_test(test_occurred_at),
        cmocka_unit_test(test_L43_leap_seconds), cmocka_unit_test(test_L44_fractions_and_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
