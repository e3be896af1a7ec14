/* times_resolve: when an event happened, of what its sender said and what our clock says.
 *
 * All of it is kept beside the answer (receipt time, timestamp and sent_at as sent), so a rule that
 * turns out wrong loses nothing. The rules, the first that applies:
 *   `offset` given: so long before receipt.
 *   no timestamp, or one that cannot be read: receipt.
 *   sent_at differs from receipt by 60 s to 400 days: the timestamp less that skew. A smaller one
 *     may be nothing but the way here (case C07), a larger one says more about sent_at than about
 *     the clock (C10).
 *   otherwise: the timestamp.
 * A result outside of 1900 to 2299, which ClickHouse cannot hold (C23), becomes receipt; one a
 * minute or more after receipt stays and is noted (C08).
 *
 * Power failure: nothing here is stored. Nothing fails; sums that overflow are out of range. */
#include "door/capture/times.h"

#define US_PER_S    INT64_C(1000000)
#define S_PER_DAY   INT64_C(86400)
#define KEPT_FROM_S (-INT64_C(2208988800)) /* 1900-01-01 */
#define KEPT_END_S  INT64_C(10413792000)   /* 2300-01-01 */
#define SKEW_MIN_US (60 * US_PER_S)
#define SKEW_MAX_US (400 * S_PER_DAY * US_PER_S)

/* timestamp, corrected by the skew of the clock that sent_at shows. */
static int64_t corrected(const struct times_input *in, const char **note)
{
    int64_t skew;
    int64_t t;
    *note = "";
    if (!in->has_sent_at || in->ignore_sent_at) {
        return in->timestamp_us;
    }
    if (__builtin_sub_overflow(in->sent_at_us, in->now_us, &skew) || skew > SKEW_MAX_US ||
        skew < -SKEW_MAX_US) {
        *note = "skew_ignored";
        return in->timestamp_us;
    }
    if (skew < SKEW_MIN_US && skew > -SKEW_MIN_US) {
        return in->timestamp_us;
    }
    *note = "skew_corrected";
    if (__builtin_sub_overflow(in->timestamp_us, skew, &t)) {
        return in->timestamp_us; /* further out than any year that is kept, either way */
    }
    return t;
}

/* `offset` milliseconds before receipt. */
static int64_t before_receipt(const struct times_input *in)
{
    int64_t us;
    int64_t t;
    if (__builtin_mul_overflow(in->offset_ms, INT64_C(1000), &us) ||
        __builtin_sub_overflow(in->now_us, us, &t)) {
        return INT64_MAX; /* out of range */
    }
    return t;
}

int64_t times_resolve(const struct times_input *in, const char **note)
{
    int64_t t;
    if (in->has_offset) {
        *note = "offset";
        t = before_receipt(in);
    } else if (in->has_timestamp) {
        t = corrected(in, note);
    } else {
        *note = in->unreadable ? "unreadable" : "";
        return in->now_us;
    }
    if (t < KEPT_FROM_S * US_PER_S || t >= KEPT_END_S * US_PER_S) {
        *note = "out_of_range";
        return in->now_us;
    }
    /* Clocks that are right to the minute are not corrected, so they are not reported either. */
    if (**note == '\0' && t - in->now_us >= SKEW_MIN_US) {
        *note = "future";
    }
    return t;
}
