/* Calendar arithmetic on the proleptic Gregorian calendar, without the C library's locale or time
 * zone. The day count is the usual civil-from-days scheme with March as the first month. */
#include "base/timefmt.h"

#include "base/ensure.h"

#define MS_PER_DAY UINT64_C(86400000)

static void put_digits(char *p, unsigned v, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        p[i] = (char)('0' + v % 10);
        v /= 10;
    }
    ensure(v == 0);
}

void timefmt_ms(char out[TIMEFMT_MS_LEN + 1], uint64_t ms)
{
    ensure(ms < TIMEFMT_MS_END);
    uint64_t days = ms / MS_PER_DAY;
    unsigned rest = (unsigned)(ms % MS_PER_DAY);
    uint64_t z = days + 719468;
    uint64_t era = z / 146097;
    unsigned doe = (unsigned)(z - era * 146097);
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    unsigned day = doy - (153 * mp + 2) / 5 + 1;
    unsigned month = mp < 10 ? mp + 3 : mp - 9;
    unsigned year = yoe + (unsigned)era * 400 + (month <= 2 ? 1 : 0);
    memcpy(out, "0000-00-00T00:00:00.000Z", TIMEFMT_MS_LEN + 1);
    put_digits(out, year, 4);
    put_digits(out + 5, month, 2);
    put_digits(out + 8, day, 2);
    put_digits(out + 11, rest / 3600000, 2);
    put_digits(out + 14, rest / 60000 % 60, 2);
    put_digits(out + 17, rest / 1000 % 60, 2);
    put_digits(out + 20, rest % 1000, 3);
}

struct civil {
    unsigned year, month, day, hour, minute, second;
};

static bool get_digits(const char *p, int n, unsigned *out)
{
    unsigned v = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') {
            return false;
        }
        v = v * 10 + (unsigned)(p[i] - '0');
    }
    *out = v;
    return true;
}

static unsigned days_in_month(unsigned year, unsigned month)
{
    static const unsigned char days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leap ? 1u : 0u);
}

bool timefmt_days(unsigned year, unsigned month, unsigned day, int64_t *days)
{
    if (year > 9999 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) {
        return false;
    }
    /* Counted from 400 years earlier, so that January of the year 0 has a year before it. */
    unsigned y = year + 400 - (month <= 2 ? 1 : 0);
    unsigned era = y / 400;
    unsigned yoe = y - era * 400;
    unsigned doy = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    unsigned doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    *days = (int64_t)era * 146097 + doe - 719468 - 146097;
    return true;
}

/* The 19 characters up to the seconds; ranges checked. */
static bool parse_civil(const char *p, struct civil *c)
{
    if (!get_digits(p, 4, &c->year) || p[4] != '-' || !get_digits(p + 5, 2, &c->month) ||
        p[7] != '-' || !get_digits(p + 8, 2, &c->day) || p[10] != 'T' ||
        !get_digits(p + 11, 2, &c->hour) || p[13] != ':' || !get_digits(p + 14, 2, &c->minute) ||
        p[16] != ':' || !get_digits(p + 17, 2, &c->second)) {
        return false;
    }
    return c->month >= 1 && c->month <= 12 && c->day >= 1 &&
           c->day <= days_in_month(c->year, c->month) && c->hour <= 23 && c->minute <= 59 &&
           c->second <= 59;
}

bool timefmt_parse_ms(struct slice s, uint64_t *ms)
{
    struct civil c;
    unsigned frac;
    if (s.len != TIMEFMT_MS_LEN || !parse_civil(s.ptr, &c) || s.ptr[19] != '.' ||
        !get_digits(s.ptr + 20, 3, &frac) || s.ptr[23] != 'Z' || c.year < 1970) {
        return false;
    }
    int64_t days = 0;
    bool real = timefmt_days(c.year, c.month, c.day, &days);
    ensure(real);
    *ms = (uint64_t)days * MS_PER_DAY + c.hour * UINT64_C(3600000) + c.minute * UINT64_C(60000) +
          c.second * UINT64_C(1000) + frac;
    return true;
}

bool timefmt_valid_occurred_at(struct slice s)
{
    struct civil c;
    if (s.len < 20 || s.len > 30 || s.ptr[s.len - 1] != 'Z' || !parse_civil(s.ptr, &c)) {
        return false;
    }
    if (s.len == 20) {
        return true;
    }
    if (s.ptr[19] != '.' || s.len < 22) {
        return false;
    }
    for (size_t i = 20; i + 1 < s.len; i++) {
        if (s.ptr[i] < '0' || s.ptr[i] > '9') {
            return false;
        }
    }
    return true;
}
