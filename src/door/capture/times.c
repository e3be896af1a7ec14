/* times: reading the dates that SDKs write. times_resolve.c decides when an event happened.
 *
 * One reader for all lenient forms: a date in one of five orders, then maybe a time of day, then
 * maybe a zone, nothing else. Whatever could mean two things is not read: days before months with
 * slashes, years of two digits there, numbers of fewer digits than any epoch of this century.
 *
 *   2024-03-05[(T| )15:36[:50[.891]][ PM][ ](Z|+03|+0300|+03:00|UTC|EST...)]      also with slashes
 *   3/5/2024[[,] 3:36:50 PM]                                                     month first
 *   [Tue, ]05 Mar 2024 15:36:50 +0100                                            RFC 2822
 *   Tue Mar 05 2024 15:36:50 GMT+0100 (Central European Standard Time)           JavaScript
 *   1709653010, 1709653010.891, 1709653010891, 1709653010891234, ...891234567    epochs
 *
 * Power failure: nothing here is stored. Answers: false for what is no date. Nothing here stops the
 * server or aborts; sums that could overflow are checked. */
#include "door/capture/times.h"

#include "base/timefmt.h"

#define US_PER_S   INT64_C(1000000)
#define S_PER_DAY  INT64_C(86400)
#define TEXT_MAX   128
#define YEAR_ONE_S (-INT64_C(62135596800)) /* 0001-01-01 */
#define YEAR_END_S INT64_C(253402300800)   /* 10000-01-01 */

struct reader {
    const char *at, *end;
};

struct moment {
    unsigned year, month, day, hour, minute, second, us;
    int offset_min; /* of the zone, east of UTC */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool at_digit(const struct reader *r)
{
    return r->at < r->end && is_digit(*r->at);
}

static bool at_letter(const struct reader *r)
{
    return r->at < r->end && is_letter(*r->at);
}

static bool take(struct reader *r, char c)
{
    if (r->at == r->end || *r->at != c) {
        return false;
    }
    r->at++;
    return true;
}

static bool take_spaces(struct reader *r)
{
    const char *start = r->at;
    while (take(r, ' ') || take(r, '\t')) {
    }
    return r->at != start;
}

/* A number of `least` to `most` digits that no further digit follows. */
static bool take_number(struct reader *r, unsigned least, unsigned most, unsigned *out)
{
    unsigned v = 0;
    unsigned n = 0;
    while (at_digit(r) && n < most) {
        v = v * 10 + (unsigned)(*r->at++ - '0');
        n++;
    }
    *out = v;
    return n >= least && !at_digit(r);
}

/* A word of letters, by its first three, in lower case; 0 without one. */
static uint32_t take_word(struct reader *r, size_t *len)
{
    uint32_t key = 0;
    const char *start = r->at;
    while (at_letter(r)) {
        if (r->at - start < 3) {
            key = key << 8 | ((uint32_t)(unsigned char)*r->at | 0x20);
        }
        r->at++;
    }
    *len = (size_t)(r->at - start);
    return key;
}

#define KEY(a, b, c) ((uint32_t)(a) << 16 | (uint32_t)(b) << 8 | (uint32_t)(c))

static const uint32_t months[12] = {KEY('j', 'a', 'n'), KEY('f', 'e', 'b'), KEY('m', 'a', 'r'),
                                    KEY('a', 'p', 'r'), KEY('m', 'a', 'y'), KEY('j', 'u', 'n'),
                                    KEY('j', 'u', 'l'), KEY('a', 'u', 'g'), KEY('s', 'e', 'p'),
                                    KEY('o', 'c', 't'), KEY('n', 'o', 'v'), KEY('d', 'e', 'c')};
static const uint32_t weekdays[7] = {KEY('m', 'o', 'n'), KEY('t', 'u', 'e'), KEY('w', 'e', 'd'),
                                     KEY('t', 'h', 'u'), KEY('f', 'r', 'i'), KEY('s', 'a', 't'),
                                     KEY('s', 'u', 'n')};

/* The place of a name of three letters in a table, from 1; 0 when it is not there. */
static unsigned take_name(struct reader *r, const uint32_t *names, unsigned count)
{
    size_t len;
    uint32_t key = take_word(r, &len);
    for (unsigned i = 0; i < count; i++) {
        if (len == 3 && names[i] == key) {
            return i + 1;
        }
    }
    return 0;
}

/* Behind the point: digits beyond microseconds are cut off. */
static bool take_fraction(struct reader *r, unsigned *us)
{
    unsigned v = 0;
    unsigned n = 0;
    while (at_digit(r)) {
        if (n < 6) {
            v = v * 10 + (unsigned)(*r->at - '0');
        }
        r->at++;
        n++;
    }
    for (unsigned i = n; i < 6; i++) {
        v *= 10;
    }
    *us = v;
    return n != 0;
}

/* HH:MM[:SS[.fraction]]. A leap second is the one after it. */
static bool take_clock(struct reader *r, unsigned hour_digits, struct moment *m)
{
    if (!take_number(r, hour_digits, 2, &m->hour) || !take(r, ':') ||
        !take_number(r, 2, 2, &m->minute)) {
        return false;
    }
    if (take(r, ':')) {
        if (!take_number(r, 2, 2, &m->second)) {
            return false;
        }
        if ((take(r, '.') || take(r, ',')) && !take_fraction(r, &m->us)) {
            return false;
        }
    }
    return m->hour <= 23 && m->minute <= 59 && m->second <= 60;
}

/* AM or PM behind a clock, if there is one; false when the hour does not go with it. */
static bool take_half(struct reader *r, struct moment *m)
{
    struct reader ahead = *r;
    (void)take_spaces(&ahead);
    size_t len;
    uint32_t key = take_word(&ahead, &len);
    bool pm = key == ('p' << 8 | 'm');
    if (len != 2 || (!pm && key != ('a' << 8 | 'm'))) {
        return true;
    }
    *r = ahead;
    bool ok = m->hour >= 1 && m->hour <= 12;
    m->hour = m->hour % 12 + (pm ? 12 : 0);
    return ok;
}

/* +HH, +HHMM or +HH:MM at the sign; minutes east of UTC. */
static bool take_offset(struct reader *r, bool colon_only, int *minutes)
{
    bool west = *r->at++ == '-';
    const char *start = r->at;
    unsigned hour;
    unsigned minute = 0;
    while (at_digit(r)) {
        r->at++;
    }
    size_t digits = (size_t)(r->at - start);
    r->at = start;
    if (digits == 4 && !colon_only) {
        unsigned both;
        (void)take_number(r, 4, 4, &both);
        hour = both / 100;
        minute = both % 100;
    } else if (!take_number(r, 2, 2, &hour)) {
        return false;
    } else if (take(r, ':')) {
        if (!take_number(r, 2, 2, &minute)) {
            return false;
        }
    } else if (colon_only) {
        return false;
    }
    if (hour > 23 || minute > 59) {
        return false;
    }
    *minutes = (int)(hour * 60 + minute) * (west ? -1 : 1);
    return true;
}

/* The zones that RFC 2822 names; one letter is a military zone, which it says to read as UTC. */
static bool take_zone_name(struct reader *r, int *minutes)
{
    static const struct {
        uint32_t key;
        int hours;
    } zones[] = {{KEY('u', 't', 'c'), 0},  {KEY('g', 'm', 't'), 0},  {KEY('e', 's', 't'), -5},
                 {KEY('e', 'd', 't'), -4}, {KEY('c', 's', 't'), -6}, {KEY('c', 'd', 't'), -5},
                 {KEY('m', 's', 't'), -7}, {KEY('m', 'd', 't'), -6}, {KEY('p', 's', 't'), -8},
                 {KEY('p', 'd', 't'), -7}};
    size_t len;
    uint32_t key = take_word(r, &len);
    *minutes = 0;
    if (len == 1) {
        return key != 'j'; /* the one letter that is no zone */
    }
    if (len == 2) {
        return key == ('u' << 8 | 't');
    }
    for (size_t i = 0; i < sizeof zones / sizeof zones[0]; i++) {
        if (len == 3 && zones[i].key == key) {
            *minutes = zones[i].hours * 60;
            return true;
        }
    }
    return false;
}

static bool at_sign(const struct reader *r)
{
    return r->at < r->end && (*r->at == '+' || *r->at == '-');
}

/* A zone, or none, which is UTC. GMT and UTC may have an offset behind them, as in JavaScript. */
static bool take_zone(struct reader *r, struct moment *m)
{
    (void)take_spaces(r);
    if (at_letter(r)) {
        const char *start = r->at;
        if (!take_zone_name(r, &m->offset_min)) {
            return false;
        }
        bool universal = m->offset_min == 0 && r->at - start > 1;
        return !at_sign(r) || (universal && take_offset(r, false, &m->offset_min));
    }
    return !at_sign(r) || take_offset(r, false, &m->offset_min);
}

/* Nothing more, or one remark in parentheses, as mail and JavaScript add the zone's name. */
static bool take_end(struct reader *r)
{
    (void)take_spaces(r);
    if (take(r, '(')) {
        while (r->at < r->end && *r->at != ')' && *r->at != '(') {
            r->at++;
        }
        if (!take(r, ')')) {
            return false;
        }
    }
    return r->at == r->end;
}

static bool moment_us(const struct moment *m, int64_t *us)
{
    int64_t days;
    if (m->year < 1 || !timefmt_days(m->year, m->month, m->day, &days)) {
        return false;
    }
    int64_t s = days * S_PER_DAY + m->hour * INT64_C(3600) + m->minute * INT64_C(60) + m->second -
                m->offset_min * INT64_C(60);
    if (s < YEAR_ONE_S || s >= YEAR_END_S) {
        return false;
    }
    *us = s * US_PER_S + m->us;
    return true;
}

/* Behind a date of digits: nothing, or a time of day and maybe a zone. */
static bool take_rest(struct reader *r, struct moment *m)
{
    if (r->at == r->end) {
        return true;
    }
    bool split = take(r, 'T') || take(r, 't');
    if (!split) {
        (void)take(r, ',');
        split = take_spaces(r);
    }
    return split && take_clock(r, 1, m) && take_half(r, m) && take_zone(r, m) && take_end(r);
}

/* 2024-03-05 or 2024/3/5; the reader stands behind the year. */
static bool year_first(struct reader *r, struct moment *m)
{
    char separator = *r->at++;
    return take_number(r, 1, 2, &m->month) && take(r, separator) && take_number(r, 1, 2, &m->day) &&
           take_rest(r, m);
}

/* 3/5/2024; the reader stands behind the first number. */
static bool month_first(struct reader *r, unsigned month, struct moment *m)
{
    m->month = month;
    return take(r, '/') && take_number(r, 1, 2, &m->day) && take(r, '/') &&
           take_number(r, 4, 4, &m->year) && take_rest(r, m);
}

/* Mar 2024 15:36:50 +0100; the reader stands behind the day. */
static bool day_first(struct reader *r, unsigned day, struct moment *m)
{
    m->day = day;
    if (!take_spaces(r)) {
        return false;
    }
    m->month = take_name(r, months, 12);
    if (m->month == 0 || !take_spaces(r)) {
        return false;
    }
    const char *year = r->at;
    if (!take_number(r, 2, 4, &m->year)) {
        return false;
    }
    /* RFC 2822 section 4.3. */
    size_t digits = (size_t)(r->at - year);
    m->year += digits == 3 || (digits == 2 && m->year >= 50) ? 1900 : digits == 2 ? 2000 : 0;
    return take_spaces(r) && take_clock(r, 1, m) && take_zone(r, m) && take_end(r);
}

/* Tue, 05 Mar ... or Tue Mar 05 2024 15:36:50 GMT+0100. */
static bool weekday_first(struct reader *r, struct moment *m)
{
    if (take_name(r, weekdays, 7) == 0) {
        return false;
    }
    bool comma = take(r, ',');
    bool spaces = take_spaces(r);
    unsigned day;
    if (comma || at_digit(r)) {
        return (comma || spaces) && take_number(r, 1, 2, &day) && day_first(r, day, m);
    }
    m->month = take_name(r, months, 12);
    return spaces && m->month != 0 && take_spaces(r) && take_number(r, 1, 2, &m->day) &&
           take_spaces(r) && take_number(r, 4, 4, &m->year) && take_spaces(r) &&
           take_clock(r, 2, m) && take_zone(r, m) && take_end(r);
}

/* Digits only, and maybe a fraction: how many digits there are tells the unit. Ten digits of
 * seconds reach from 2001 to 2286; seconds may have one less or more, and so on up. Still fewer are
 * as likely a year, or a date without hyphens, as an epoch. */
static bool read_epoch(struct reader r, int64_t *us)
{
    bool negative = take(&r, '-');
    const char *start = r.at;
    int64_t v = 0;
    while (at_digit(&r)) {
        if (__builtin_mul_overflow(v, INT64_C(10), &v) ||
            __builtin_add_overflow(v, (int64_t)(*r.at - '0'), &v)) {
            return false;
        }
        r.at++;
    }
    size_t digits = (size_t)(r.at - start);
    unsigned fraction = 0;
    if (take(&r, '.') && !take_fraction(&r, &fraction)) {
        return false;
    }
    if (r.at != r.end || digits < 9 || digits > 19) {
        return false;
    }
    if (digits <= 11) {
        v = v * US_PER_S + fraction;
    } else if (digits <= 14) {
        v = v * 1000 + fraction / 1000;
    } else if (digits > 17) {
        v /= 1000;
    }
    *us = negative ? -v : v;
    return *us >= YEAR_ONE_S * US_PER_S && *us < YEAR_END_S * US_PER_S;
}

static struct reader trimmed(struct slice text)
{
    struct reader r = {.at = text.ptr, .end = text.ptr + text.len};
    while (r.at < r.end && (*r.at == ' ' || (*r.at >= '\t' && *r.at <= '\r'))) {
        r.at++;
    }
    while (r.end > r.at && (r.end[-1] == ' ' || (r.end[-1] >= '\t' && r.end[-1] <= '\r'))) {
        r.end--;
    }
    return r;
}

bool times_parse(struct slice text, int64_t *us)
{
    struct reader r = trimmed(text);
    struct moment m = {0};
    int64_t v;
    if (r.end - r.at > TEXT_MAX) {
        return false;
    }
    if (read_epoch(r, &v)) {
        *us = v;
        return true;
    }
    bool read;
    if (at_letter(&r)) {
        read = weekday_first(&r, &m);
    } else {
        const char *start = r.at;
        unsigned number = 0;
        read = take_number(&r, 1, 4, &number) && r.at != r.end;
        bool four = r.at - start == 4;
        bool two = r.at - start <= 2;
        if (read && four && (*r.at == '-' || *r.at == '/')) {
            m.year = number;
            read = year_first(&r, &m);
        } else if (read && two && *r.at == '/') {
            read = month_first(&r, number, &m);
        } else {
            read = read && two && day_first(&r, number, &m);
        }
    }
    return read && moment_us(&m, us);
}

bool times_parse_strict(struct slice text, int64_t *us)
{
    struct reader r = {.at = text.ptr, .end = text.ptr + text.len};
    struct moment m = {0};
    if (text.len > TEXT_MAX || !take_number(&r, 4, 4, &m.year) || !take(&r, '-') ||
        !take_number(&r, 2, 2, &m.month) || !take(&r, '-') || !take_number(&r, 2, 2, &m.day) ||
        !(take(&r, 'T') || take(&r, 't'))) {
        return false;
    }
    /* Seconds are not optional here, and the fraction has a point. */
    const char *clock = r.at;
    if (!take_clock(&r, 2, &m) || r.at - clock < 8 || (r.at - clock > 8 && clock[8] != '.')) {
        return false;
    }
    if (!take(&r, 'Z') && !take(&r, 'z') &&
        !(at_sign(&r) && take_offset(&r, true, &m.offset_min))) {
        return false;
    }
    return r.at == r.end && moment_us(&m, us);
}
