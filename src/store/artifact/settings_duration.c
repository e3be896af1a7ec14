/* settings: how long local bytes stay, as text.
 *
 * Format: one or more of a decimal number, with a fraction or without, and its unit, added up; a
 * plus before all of it is passed over. That is Go's grammar, which settings of older receivers are
 * written in, and days. Counted in nanoseconds, without rounding on the way.
 *
 * Power failure: nothing is stored here. Answers only. */
#include "base/ensure.h"
#include "store/artifact/settings.h"

#define NS_MAX (UINT64_C(36500) * 86400 * 1000000000) /* 100 years */

struct unit {
    const char *name;
    uint64_t ns;
};

/* A name that begins another comes behind it. */
static const struct unit units[] = {
    {"d", UINT64_C(86400000000000)},
    {"h", UINT64_C(3600000000000)},
    {"ms", 1000000},
    {"m", UINT64_C(60000000000)},
    {"s", 1000000000},
    {"us", 1000},
    {"\xc2\xb5s", 1000},
    {"\xce\xbcs", 1000}, /* both signs for micro */
    {"ns", 1},
};

static bool digit(struct slice s, size_t at)
{
    return at < s.len && s.ptr[at] >= '0' && s.ptr[at] <= '9';
}

static const struct unit *unit_at(struct slice s)
{
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (slice_starts(s, slice_cstr(units[i].name))) {
            return &units[i];
        }
    }
    return NULL;
}

/* One number with its unit; adds to *ns, which stays at most NS_MAX. *text: what is behind it. */
static bool take(struct slice *text, uint64_t *ns)
{
    struct slice s = *text;
    const struct unit *u;
    uint64_t whole = 0, sum, scale;
    size_t at = 0, fraction = 0, fraction_end = 0;

    for (; digit(s, at); at++) {
        whole = whole > NS_MAX / 10 ? NS_MAX + 1 : whole * 10 + (uint64_t)(s.ptr[at] - '0');
    }
    if (at < s.len && s.ptr[at] == '.') {
        fraction = at + 1;
        for (at = fraction; digit(s, at); at++) {
        }
        fraction_end = at;
    }
    u = unit_at(slice_from(s, at));
    if (u == NULL || at == 0 || (fraction == 1 && fraction_end == 1) || whole > NS_MAX / u->ns) {
        return false;
    }
    sum = whole * u->ns;
    scale = u->ns / 10;
    for (size_t i = fraction; i < fraction_end && scale > 0; i++, scale /= 10) {
        sum += (uint64_t)(s.ptr[i] - '0') * scale;
    }
    if (sum > NS_MAX - *ns) {
        return false;
    }
    *ns += sum;
    *text = slice_from(s, at + strlen(u->name));
    return true;
}

bool settings_duration(struct slice text, int64_t *ms)
{
    uint64_t ns = 0;

    if (text.len > 0 && text.ptr[0] == '+') {
        text = slice_from(text, 1);
    }
    if (text.len == 0) {
        return false;
    }
    while (text.len > 0) {
        if (!take(&text, &ns)) {
            return false;
        }
    }
    *ms = (int64_t)((ns + 999999) / 1000000);
    return true;
}

void settings_duration_put(struct buf *b, int64_t ms)
{
    ensure(ms > 0);
    if (ms % 86400000 == 0) {
        buf_printf(b, "%lldd", (long long)(ms / 86400000));
    } else if (ms % 3600000 == 0) {
        buf_printf(b, "%lldh", (long long)(ms / 3600000));
    } else if (ms % 60000 == 0) {
        buf_printf(b, "%lldm", (long long)(ms / 60000));
    } else if (ms % 1000 == 0) {
        buf_printf(b, "%llds", (long long)(ms / 1000));
    } else {
        buf_printf(b, "%lldms", (long long)ms);
    }
}
