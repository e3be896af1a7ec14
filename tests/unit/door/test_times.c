/* The dates that SDKs write, and the clock rules of the capture door: cases C07, C08, C10, C23 of
 * the recorded ones. The C library's calendar is the other opinion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "door/capture/times.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define S        INT64_C(1000000)
#define MINUTE   (60 * S)
#define HOUR     (60 * MINUTE)
#define DAY      (24 * HOUR)

/* From memory of exactly the text's size. */
static bool with(bool (*parse)(struct slice, int64_t *), struct slice text, int64_t *us)
{
    char *copy = malloc(text.len == 0 ? 1 : text.len);
    assert_non_null(copy);
    memcpy(copy, text.ptr, text.len);
    *us = -77;
    bool ok = parse(slice_of(copy, text.len), us);
    assert_true(ok || *us == -77);
    free(copy);
    return ok;
}

static int64_t utc(int year, int month, int day, int hour, int minute, int second)
{
    struct tm tm = {.tm_year = year - 1900,
                    .tm_mon = month - 1,
                    .tm_mday = day,
                    .tm_hour = hour,
                    .tm_min = minute,
                    .tm_sec = second};
    return (int64_t)timegm(&tm) * S;
}

static int64_t at(const char *text)
{
    int64_t us;
    if (!with(times_parse, slice_cstr(text), &us)) {
        fail_msg("cannot read %s", text);
    }
    return us;
}

static void check(const char *text, int64_t want)
{
    int64_t got = at(text);
    if (got != want) {
        fail_msg("%s is %lld, want %lld", text, (long long)got, (long long)want);
    }
}

static void check_refused(bool (*parse)(struct slice, int64_t *), const char *const *texts,
                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t us;
        if (with(parse, slice_cstr(texts[i]), &us)) {
            fail_msg("%s was read as %lld", texts[i], (long long)us);
        }
    }
}

static void test_iso(void **state)
{
    (void)state;
    int64_t t = utc(2024, 3, 5, 15, 36, 50);
    check("2024-03-05T15:36:50Z", t);
    check("2024-03-05t15:36:50z", t);
    check("2024-03-05T15:36:50.891Z", t + 891000);
    check("2024-03-05T15:36:50,891Z", t + 891000);
    check("2024-03-05T15:36:50.8Z", t + 800000);
    check("2024-03-05T15:36:50.000001Z", t + 1);
    check("2024-03-05T15:36:50.123456Z", t + 123456);
    check("2024-03-05T15:36:50.123456999Z", t + 123456);
    check("2024-03-05T15:36:50.1234567890123456789012345678901234567890Z", t + 123456);
    check("2024-03-05T15:36:50", t);
    check("2024-03-05T15:36", t - 50 * S);
    check("2024-03-05T15:36Z", t - 50 * S);
    check("2024-03-05 15:36:50", t);
    check("2024-03-05 15:36:50.891", t + 891000);
    check("2024-03-05  15:36:50 UTC", t);
    check("2024-03-05 15:36:50 Z", t);
    check(" \t\r\n2024-03-05 15:36:50\v\f ", t);
    check("\t2024-03-05\t", utc(2024, 3, 5, 0, 0, 0));
    check("\r2024-03-05\r", utc(2024, 3, 5, 0, 0, 0));
    check("2024-03-05", utc(2024, 3, 5, 0, 0, 0));
    check("2024-3-5", utc(2024, 3, 5, 0, 0, 0));
    check("2024-03-05T9:36:50", utc(2024, 3, 5, 9, 36, 50));
    check("1969-12-31T23:59:59.999999Z", -1);
    check("1969-12-31T23:59:59.5Z", -500000);
    check("1970-01-01T00:00:00Z", 0);
    check("0001-01-01T00:00:00Z", utc(1, 1, 1, 0, 0, 0));
    check("9999-12-31T23:59:59.999999Z", utc(9999, 12, 31, 23, 59, 59) + 999999);
}

static void test_offsets(void **state)
{
    (void)state;
    int64_t t = utc(2024, 3, 5, 15, 36, 50);
    check("2024-03-05T15:36:50+03", t - 3 * HOUR);
    check("2024-03-05T15:36:50+0300", t - 3 * HOUR);
    check("2024-03-05T15:36:50+03:00", t - 3 * HOUR);
    check("2024-03-05T15:36:50.5-03", t + 500000 + 3 * HOUR);
    check("2024-03-05 15:36:50 +0300", t - 3 * HOUR);
    check("2024-03-05 15:36:50 -05:30", t + 5 * HOUR + 30 * MINUTE);
    check("2024-03-05T15:36-00:00", t - 50 * S);
    check("2024-03-05T15:36+14", t - 50 * S - 14 * HOUR);
    check("2024-01-01T00:30:00+01:00", utc(2023, 12, 31, 23, 30, 0));
    for (int minutes = -23 * 60 - 59; minutes <= 23 * 60 + 59; minutes++) {
        char text[64];
        int m = minutes < 0 ? -minutes : minutes;
        char sign = minutes < 0 ? '-' : '+';
        (void)snprintf(text, sizeof text, "2024-03-05T15:36:50%c%02d:%02d", sign, m / 60, m % 60);
        check(text, t - minutes * MINUTE);
        int64_t us;
        assert_true(with(times_parse_strict, slice_cstr(text), &us));
        assert_int_equal(us, t - minutes * MINUTE);
        (void)snprintf(text, sizeof text, "2024-03-05T15:36:50%c%02d%02d", sign, m / 60, m % 60);
        check(text, t - minutes * MINUTE);
    }
    static const char *const refused[] = {
        "2024-03-05T15:36:50+24:00", "2024-03-05T15:36:50+03:60", "2024-03-05T15:36:50+2460",
        "2024-03-05T15:36:50+",      "2024-03-05T15:36:50+3",     "2024-03-05T15:36:50+030",
        "2024-03-05T15:36:50+03:0",  "2024-03-05T15:36:50+03:",   "2024-03-05T15:36:50+03:000",
        "2024-03-05T15:36:50+03000", "2024-03-05T15:36:50Z+03",   "2024-03-05T15:36:50EST+03",
        "2024-03-05T15:36:50 XYZ",   "2024-03-05T15:36:50 UTCX",  "2024-03-05T15:36:50J",
        "2024-03-05T15:36:50+03 x",  "2024-03-05T15:36:50GM",     "2024-03-05T15:36:50ZZ",
        "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01",
    };
    check_refused(times_parse, refused, COUNT(refused));
}

static void test_slashes(void **state)
{
    (void)state;
    int64_t t = utc(2024, 3, 5, 15, 36, 50);
    check("2024/03/05", utc(2024, 3, 5, 0, 0, 0));
    check("2024/3/5 15:36:50", t);
    check("2024/03/05T15:36:50.25+03:00", t + 250000 - 3 * HOUR);
    check("03/05/2024", utc(2024, 3, 5, 0, 0, 0));
    check("3/5/2024 15:36", t - 50 * S);
    check("3/5/2024, 3:36:50 PM", t);
    check("3/5/2024 3:36:50pm", t);
    check("3/5/2024 3:36 am", utc(2024, 3, 5, 3, 36, 0));
    check("3/5/2024 12:36:50 AM", utc(2024, 3, 5, 0, 36, 50));
    check("3/5/2024 12:36:50 PM UTC", utc(2024, 3, 5, 12, 36, 50));
    check("12/31/2024", utc(2024, 12, 31, 0, 0, 0));
    static const char *const refused[] = {
        "31/12/2024",
        "13/01/2024",
        "3/5/24",
        "2024/3-5",
        "2024-3/5",
        "3/5/20245",
        "3/5",
        "3/5/",
        "/3/5/2024",
        "2024/",
        "2024/3",
        "2024/3/",
        "3/5/2024 13:00 PM",
        "3/5/2024 0:30 AM",
        "3/5/2024, ",
        "3/5/2024,15:36",
        "3/5/2024 3:36 PM junk",
        "003/5/2024",
    };
    check_refused(times_parse, refused, COUNT(refused));
}

static void test_rfc2822(void **state)
{
    (void)state;
    int64_t t = utc(2024, 3, 5, 15, 36, 50);
    check("Tue, 05 Mar 2024 15:36:50 GMT", t);
    check("Tue, 5 Mar 2024 15:36:50 +0000", t);
    check("Tue,5 Mar 2024 15:36:50 UT", t);
    check("tue, 05 MAR 2024 15:36:50 utc", t);
    check("Tue 05 Mar 2024 15:36:50 Z", t);
    check("05 Mar 2024 15:36:50 +0100", t - HOUR);
    check("5 Mar 2024 15:36 -0530", t - 50 * S + 5 * HOUR + 30 * MINUTE);
    check("05 Mar 2024 15:36:50", t);
    check("5 Mar 2024 5:36:50 GMT", t - 10 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 EST", t + 5 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 EDT", t + 4 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 CST", t + 6 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 CDT", t + 5 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 MST", t + 7 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 MDT", t + 6 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 PST", t + 8 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 PDT", t + 7 * HOUR);
    check("Tue, 05 Mar 2024 15:36:50 A", t); /* military: not to be believed */
    check("Tue, 05 Mar 2024 15:36:50 +0100 (CET)", t - HOUR);
    check("05 Mar 24 15:36:50 GMT", t);
    check("05 Mar 49 00:00:00 GMT", utc(2049, 3, 5, 0, 0, 0));
    check("05 Mar 50 00:00:00 GMT", utc(1950, 3, 5, 0, 0, 0));
    check("05 Mar 124 00:00:00 GMT", utc(2024, 3, 5, 0, 0, 0));
    check("Tue Mar 05 2024 15:36:50 GMT+0100 (Central European Standard Time)", t - HOUR);
    check("Tue Mar 05 2024 15:36:50 GMT-0330", t + 3 * HOUR + 30 * MINUTE);
    check("Tue Mar 5 2024 15:36:50 UTC", t);
    static const char *const names[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    static const char *const days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
    for (int i = 0; i < 12; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "%s, 09 %s 2021 01:02:03 GMT", days[i % 7], names[i]);
        check(text, utc(2021, i + 1, 9, 1, 2, 3));
    }
    static const char *const refused[] = {
        "Tue, 05 Mar 2024",
        "Tue, 31 Feb 2024 15:36:50 GMT",
        "Tux, 05 Mar 2024 15:36:50 GMT",
        "Tuesday, 05 Mar 2024 15:36:50 GMT",
        "Tue, 05 March 2024 15:36:50 GMT",
        "Tue, 05 Mor 2024 15:36:50 GMT",
        "Tue, Mar 05 2024 15:36:50 GMT",
        "Tue Mar 05 24 15:36:50 GMT",
        "TueMar 05 2024 15:36:50 GMT",
        "Tue Mar 005 2024 15:36:50 GMT",
        "Tue Mar 05 02024 15:36:50 GMT",
        "Tue Mar 05 2024 5:36:50 GMT",
        "Tue, 005 Mar 2024 15:36:50 GMT",
        "Tue05 Mar 2024 15:36:50 GMT",
        "Tue, 05Mar 2024 15:36:50 GMT",
        "05 Mar2024 15:36:50 GMT",
        "05 Mar 4 15:36:50 GMT",
        "05 Mar 2024 25:36:50 GMT",
        "05 Mar 2024 15:36:50 GMT (",
        "05 Mar 2024 15:36:50 GMT (a(b))",
        "05 Mar 2024 15:36:50 GMT (a) b",
        "Mar 05 2024 15:36:50",
        "Tue",
        "now",
        "yesterday",
        "Tue Mar 05 15:36:50 2024",
    };
    check_refused(times_parse, refused, COUNT(refused));
}

static void test_epochs(void **state)
{
    (void)state;
    int64_t t = INT64_C(1709653010) * S;
    check("1709653010", t);
    check("1709653010.891", t + 891000);
    check("1709653010.8912345", t + 891234);
    check("1709653010891", t + 891000);
    check("1709653010891.5", t + 891500);
    check("1709653010891234", t + 891234);
    check("1709653010891234567", t + 891234);
    check(" 1709653010 ", t);
    check("999999999", INT64_C(999999999) * S);
    check("99999999999", INT64_C(99999999999) * S);
    check("100000000000", INT64_C(100000000) * S);
    check("17096530108910", INT64_C(17096530108910) * 1000);
    check("170965301089123", INT64_C(170965301089123));
    check("17096530108912345", INT64_C(17096530108912345));
    check("170965301089123456", INT64_C(170965301089123));
    check("-1709653010", -t);
    check("-1709653010.25", -t - 250000);
    static const char *const refused[] = {
        "",
        " ",
        "-",
        "0",
        "1",
        "2024",
        "20240305",
        "12345678",
        "-12345678",
        "12345678901234567890",
        "9999999999999999999",
        "99999999999999999999999999999999999",
        "1709653010.",
        "1709653010.x",
        "1709653010x",
        "1.7e9",
        "--1709653010",
        "+1709653010",
        "1709653010 891",
        "-99999999999", /* before the year 1 */
        "NaN",
        "null",
        "0x65E73B12",
    };
    check_refused(times_parse, refused, COUNT(refused));
}

static void test_calendar(void **state)
{
    (void)state;
    check("2000-02-29", utc(2000, 2, 29, 0, 0, 0));
    check("2024-02-29T23:59:59Z", utc(2024, 2, 29, 23, 59, 59));
    static const char *const refused[] = {
        "1900-02-29",
        "2023-02-29",
        "2024-02-30",
        "2024-04-31",
        "2024-00-01",
        "2024-13-01",
        "2024-01-00",
        "2024-01-32",
        "0000-01-01",
        "2024-01-01T24:00:00Z",
        "2024-01-01T23:60:00Z",
        "2024-01-01T23:59:61Z",
        "2024-01-01T",
        "2024-01-01T15",
        "2024-01-01T15:3",
        "2024-01-01T15:36:5",
        "2024-01-01T15:36:50.",
        "2024-01-01T15:36:",
        "2024-01-01 ,15:36",
        "2024-01-01x15:36",
        "2024-01-01Z",
        "2024-001",
        "2024-W10-2",
        "24-01-01",
        "02024-01-01",
        "12024-01-01",
        "-2024-01-01",
        "2024-01-01T115:36:50",
        "2024-01-011",
        "2024-01-01T15:36:500",
        "2024-01-01T15.5Z",
        "2024",
        "2024-",
        "2024-01",
        "2024-01-",
    };
    check_refused(times_parse, refused, COUNT(refused));
}

/* A leap second is the second after it. */
static void test_leap_seconds(void **state)
{
    (void)state;
    int64_t us;
    check("2016-12-31T23:59:60Z", utc(2017, 1, 1, 0, 0, 0));
    check("2016-12-31T23:59:60.5Z", utc(2017, 1, 1, 0, 0, 0) + 500000);
    check("2015-07-01T05:29:60+05:30", utc(2015, 7, 1, 0, 0, 0));
    check("Sat, 31 Dec 2016 23:59:60 GMT", utc(2017, 1, 1, 0, 0, 0));
    assert_true(with(times_parse_strict, SLICE("2016-12-31T23:59:60Z"), &us));
    assert_int_equal(us, utc(2017, 1, 1, 0, 0, 0));
    static const char *const refused[] = {"9999-12-31T23:59:60Z"}; /* would be the year 10000 */
    check_refused(times_parse, refused, COUNT(refused));
}

static void test_long_text(void **state)
{
    (void)state;
    char text[200];
    int64_t us;
    memset(text, '0', sizeof text);
    memcpy(text, "2024-03-05T15:36:50.", 20);
    assert_true(with(times_parse, slice_of(text, 128), &us));
    assert_false(with(times_parse, slice_of(text, 129), &us));
    text[127] = 'Z';
    assert_true(with(times_parse_strict, slice_of(text, 128), &us));
    text[127] = '0';
    text[128] = 'Z';
    assert_false(with(times_parse_strict, slice_of(text, 129), &us));
    assert_false(with(times_parse, SLICE("2024-03-05\0"), &us));
    assert_false(with(times_parse, SLICE("2024\0-03-05"), &us));
    assert_false(times_parse((struct slice){.ptr = NULL, .len = 0}, &us));
    assert_false(times_parse_strict((struct slice){.ptr = NULL, .len = 0}, &us));
}

static void test_every_day(void **state)
{
    (void)state;
    int64_t want = utc(1, 1, 1, 0, 0, 0);
    for (unsigned year = 1; year <= 9999; year++) {
        bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        for (unsigned month = 1; month <= 12; month++) {
            unsigned days = month == 2 ? (leap ? 29 : 28)
                            : month == 4 || month == 6 || month == 9 || month == 11 ? 30
                                                                                    : 31;
            for (unsigned day = 1; day <= days + 1; day++) {
                char text[32];
                int64_t us = 0;
                (void)snprintf(text, sizeof text, "%04u-%02u-%02u", year, month, day);
                bool ok = times_parse(slice_cstr(text), &us);
                if (ok != (day <= days) || (ok && us != want)) {
                    fail_msg("%s: %d, %lld, want %lld", text, ok, (long long)us, (long long)want);
                }
                want += ok ? DAY : 0;
            }
        }
    }
    assert_int_equal(want, utc(9999, 12, 31, 0, 0, 0) + DAY);
}

static void test_strict(void **state)
{
    (void)state;
    int64_t t = utc(2024, 3, 5, 15, 36, 50);
    static const struct {
        const char *text;
        int64_t after;
    } accepted[] = {
        {"2024-03-05T15:36:50Z", 0},
        {"2024-03-05t15:36:50z", 0},
        {"2024-03-05T15:36:50.891Z", 891000},
        {"2024-03-05T15:36:50.1234567Z", 123456},
        {"2024-03-05T15:36:50+03:00", -3 * HOUR},
        {"2024-03-05T15:36:50.5-23:59", 500000 + 23 * HOUR + 59 * MINUTE},
    };
    for (size_t i = 0; i < COUNT(accepted); i++) {
        int64_t us;
        assert_true(with(times_parse_strict, slice_cstr(accepted[i].text), &us));
        assert_int_equal(us, t + accepted[i].after);
        assert_int_equal(at(accepted[i].text), us);
    }
    static const char *const refused[] = {
        "",
        "2024-03-05",
        "2024-03-05T15:36:50",
        "2024-03-05T15:36Z",
        "2024-03-05T15:36:50,5Z",
        "2024-03-05T15:36:50.Z",
        "2024-03-05 15:36:50Z",
        " 2024-03-05T15:36:50Z",
        "2024-03-05T15:36:50Z ",
        "2024-03-05T15:36:50 Z",
        "2024-03-05T15:36:50+03",
        "2024-03-05T15:36:50+0300",
        "2024-03-05T15:36:50+24:00",
        "2024-03-05T15:36:50UTC",
        "2024-03-05T15:36:50ZZ",
        "2024-03-05T5:36:50Z",
        "2024-3-05T15:36:50Z",
        "2024-003-05T15:36:50Z",
        "2024-03-5T15:36:50Z",
        "2024-03-005T15:36:50Z",
        "02024-03-05T15:36:50Z",
        "2024/03/05T15:36:50Z",
        "2023-02-29T15:36:50Z",
        "0000-03-05T15:36:50Z",
        "0001-01-01T00:00:00+00:01",
        "1709653010",
        "Tue, 05 Mar 2024 15:36:50 GMT",
    };
    check_refused(times_parse_strict, refused, COUNT(refused));
}

/* Format strings are literals, so that the compiler checks them. */
#define FORMS(X)                                                    \
    X("%Y-%m-%dT%H:%M:%SZ")                                         \
    X("%Y-%m-%d %H:%M:%S")                                          \
    X("%Y/%m/%d %H:%M:%S")                                          \
    X("%m/%d/%Y, %I:%M:%S %p")                                      \
    X("%m/%d/%Y %H:%M:%S")                                          \
    X("%a, %d %b %Y %H:%M:%S GMT")                                  \
    X("%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)") \
    X("%e %b %Y %H:%M:%S +0000")                                    \
    X("%Y-%m-%dT%H:%M:%S+00")                                       \
    X("%Y-%m-%d %H:%M:%S %Z")

/* Instants at random, written by the C library in the forms that it can write. */
static void test_random_instants(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t random = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)random);
    for (unsigned i = 0; i < 5000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        /* The years 1000 to 9999; %Y writes no zeros in front. */
        time_t t = (time_t)((random >> 20) % UINT64_C(284012524800)) - INT64_C(30610224000);
        struct tm tm;
        char text[96];
        assert_non_null(gmtime_r(&t, &tm));
#define X(form)                                              \
    assert_true(strftime(text, sizeof text, form, &tm) > 0); \
    check(text, (int64_t)t *S);
        FORMS(X)
#undef X
    }
}

static void check_resolved(struct times_input in, int64_t want, const char *want_note)
{
    const char *note = "unset";
    int64_t got = times_resolve(&in, &note);
    if (got != want || strcmp(note, want_note) != 0) {
        fail_msg("%lld %s, want %lld %s", (long long)got, note, (long long)want, want_note);
    }
}

#define NOW (INT64_C(1709653010) * S + 123456)

static struct times_input sent(int64_t timestamp, int64_t sent_at)
{
    return (struct times_input){.now_us = NOW,
                                .has_timestamp = true,
                                .timestamp_us = timestamp,
                                .has_sent_at = true,
                                .sent_at_us = sent_at};
}

static struct times_input alone(int64_t timestamp)
{
    return (struct times_input){.now_us = NOW, .has_timestamp = true, .timestamp_us = timestamp};
}

/* C07: the way here is no skew. The device's clock is right; batch 1 stalls for 32 s, batch 2 does
 * not; their events keep their times, and so their order. */
static void test_c07_transit_is_no_skew(void **state)
{
    (void)state;
    struct times_input first = sent(NOW, NOW + 1 * S);
    first.now_us = NOW + 33 * S;
    struct times_input second = sent(NOW + 10 * S, NOW + 11 * S);
    second.now_us = NOW + 11 * S;
    check_resolved(first, NOW, "");
    check_resolved(second, NOW + 10 * S, "");
    /* The threshold on both sides. */
    check_resolved(sent(NOW - 5 * S, NOW - MINUTE + 1), NOW - 5 * S, "");
    check_resolved(sent(NOW - 5 * S, NOW + MINUTE - 1), NOW - 5 * S, "");
    check_resolved(sent(NOW - 5 * S, NOW - MINUTE), NOW + MINUTE - 5 * S, "skew_corrected");
    check_resolved(sent(NOW - 5 * S, NOW + MINUTE), NOW - MINUTE - 5 * S, "skew_corrected");
}

/* C08: a device in the future. */
static void test_c08_device_in_the_future(void **state)
{
    (void)state;
    check_resolved(sent(NOW + HOUR, NOW + HOUR), NOW, "skew_corrected");
    check_resolved(alone(NOW + HOUR), NOW + HOUR, "future");
    check_resolved(sent(NOW + HOUR, NOW), NOW + HOUR, "future");
    check_resolved(alone(NOW + 100 * 365 * DAY), NOW + 100 * 365 * DAY, "future");
    /* A clock that is right to the minute is no news. */
    check_resolved(alone(NOW + MINUTE - 1), NOW + MINUTE - 1, "");
    check_resolved(alone(NOW + MINUTE), NOW + MINUTE, "future");
    /* The sender's word that its clock must not be corrected. */
    struct times_input in = sent(NOW + HOUR, NOW + HOUR);
    in.ignore_sent_at = true;
    check_resolved(in, NOW + HOUR, "future");
    in = sent(NOW - HOUR, NOW - 2 * HOUR);
    in.ignore_sent_at = true;
    check_resolved(in, NOW - HOUR, "");
}

/* C10: correction is bounded, and sent_at is what users can set. */
static void test_c10_bounded_correction(void **state)
{
    (void)state;
    check_resolved(sent(NOW - 3 * DAY - S, NOW - 3 * DAY), NOW - S, "skew_corrected");
    check_resolved(sent(NOW + 3 * DAY, NOW + 3 * DAY), NOW, "skew_corrected");
    check_resolved(sent(NOW, NOW - 400 * DAY), NOW + 400 * DAY, "skew_corrected");
    check_resolved(sent(NOW, NOW + 400 * DAY), NOW - 400 * DAY, "skew_corrected");
    check_resolved(sent(NOW, NOW - 400 * DAY - 1), NOW, "skew_ignored");
    check_resolved(sent(NOW, NOW + 400 * DAY + 1), NOW, "skew_ignored");
    check_resolved(sent(NOW - S, at("1970-01-01")), NOW - S, "skew_ignored");
    check_resolved(sent(NOW - S, at("9999-12-31")), NOW - S, "skew_ignored");
    check_resolved(sent(NOW - S, INT64_MIN), NOW - S, "skew_ignored");
    check_resolved(sent(NOW - S, INT64_MAX), NOW - S, "skew_ignored");
    /* sent_at that is no date is no sent_at. */
    int64_t us;
    assert_false(times_parse(SLICE("soon"), &us));
    check_resolved(alone(NOW - S), NOW - S, "");
    /* In the query as `_`, milliseconds and seconds. */
    assert_int_equal(at("1709656610891"), INT64_C(1709656610891) * 1000);
    assert_int_equal(at("1709656610"), INT64_C(1709656610) * S);
    check_resolved(sent(at("1709656610891"), at("1709656610891")), NOW, "skew_corrected");
}

/* C23: what ClickHouse cannot hold is replaced by the receipt time and says so. */
static void test_c23_dates_out_of_range(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *note;
    } samples[] = {
        {"1960-01-01", ""},
        {"1969-12-31T23:59:59Z", ""},
        {"2106-02-07T06:28:16Z", "future"},
        {"2200-01-01", "future"},
        {"2283-12-31", "future"},
        {"2299-12-31T23:59:59.999999Z", "future"},
        {"1900-01-01T00:00:00Z", ""},
        {"2999-12-31", "out_of_range"},
        {"9999-12-31", "out_of_range"},
        {"0001-01-01", "out_of_range"},
        {"1899-12-31T23:59:59.999999Z", "out_of_range"},
        {"2300-01-01T00:00:00Z", "out_of_range"},
        {"2300-01-01T00:30:00+00:31", "future"},
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        int64_t t = at(samples[i].text);
        bool kept = strcmp(samples[i].note, "out_of_range") != 0;
        check_resolved(alone(t), kept ? t : NOW, samples[i].note);
    }
    /* What the correction gives counts, not what was sent; nothing overflows. */
    check_resolved(sent(at("2300-01-02"), NOW + 3 * DAY), at("2300-01-02") - 3 * DAY,
                   "skew_corrected");
    check_resolved(sent(at("2299-12-31"), NOW - 3 * DAY), NOW, "out_of_range");
    check_resolved(sent(INT64_MAX, NOW - 3 * DAY), NOW, "out_of_range");
    check_resolved(sent(INT64_MIN, NOW + 3 * DAY), NOW, "out_of_range");
    check_resolved(sent(at("9999-12-31"), at("9999-12-31")), NOW, "out_of_range");
}

static void test_no_timestamp(void **state)
{
    (void)state;
    struct times_input in = {.now_us = NOW};
    check_resolved(in, NOW, "");
    in.has_sent_at = true;
    in.sent_at_us = NOW - HOUR;
    check_resolved(in, NOW, "");
    in.unreadable = true;
    check_resolved(in, NOW, "unreadable");
}

static void test_offset_overrides(void **state)
{
    (void)state;
    struct times_input in = sent(NOW - DAY, NOW + HOUR);
    in.has_offset = true;
    in.unreadable = true;
    in.offset_ms = 1500;
    check_resolved(in, NOW - 1500000, "offset");
    in.offset_ms = 0;
    check_resolved(in, NOW, "offset");
    in.offset_ms = -1500;
    check_resolved(in, NOW + 1500000, "offset");
    in.offset_ms = INT64_MAX;
    check_resolved(in, NOW, "out_of_range");
    in.offset_ms = INT64_MIN;
    check_resolved(in, NOW, "out_of_range");
    in.offset_ms = INT64_C(200) * 365 * 86400 * 1000;
    check_resolved(in, NOW, "out_of_range");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_iso),
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_slashes),
        cmocka_unit_test(test_rfc2822),
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_calendar),
        cmocka_unit_test(test_leap_seconds),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_every_day),
        cmocka_unit_test(test_strict),
        cmocka_unit_test(test_random_instants),
        cmocka_unit_test(test_c07_transit_is_no_skew),
        cmocka_unit_test(test_c08_device_in_the_future),
        cmocka_unit_test(test_c10_bounded_correction),
        cmocka_unit_test(test_c23_dates_out_of_range),
        cmocka_unit_test(test_no_timestamp),
        cmocka_unit_test(test_offset_overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
