/* times: the clock rules of the capture door (spec/capture.md A3, spec/capture-delivery.md "Times",
 * cases C07, C08, C10, C23). */
#ifndef DOOR_CAPTURE_TIMES_H
#define DOOR_CAPTURE_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* Reads a date as SDKs have written them: RFC 3339 with any offset (+03, +0300, +03:00, Z, none =
 * UTC), date only, a space for T, slashes (month first unless the year is), RFC 2822, JavaScript's
 * Date, epoch seconds (9 to 11 digits), milliseconds (12 to 14), microseconds (15 to 17) and
 * nanoseconds as text. Years 1 to 9999, in UTC. Unix microseconds; *us is untouched on false. */
bool times_parse(struct slice text, int64_t *us);
/* RFC 3339 with an offset only (v1). */
bool times_parse_strict(struct slice text, int64_t *us);

struct times_input {
    int64_t now_us; /* receipt */
    bool has_timestamp, has_sent_at, has_offset;
    int64_t timestamp_us, sent_at_us;
    int64_t offset_ms;   /* `offset`: the event is that much older than receipt */
    bool ignore_sent_at; /* $ignore_sent_at, disable_skew_correction */
    bool unreadable;     /* a timestamp was given and could not be read */
};
/* The event time and, in *note, why it is not what was sent ("" when it is):
 * "skew_corrected", "skew_ignored" (beyond 400 days), "out_of_range", "future", "unreadable",
 * "offset", "" . Skew = sent_at - now is corrected only between 60 s and 400 days; outside 1900 to
 * 2299 the receipt time is used; a future time (a minute or more) is kept as sent and noted. One
 * note: of those that apply, out_of_range wins, "future" is the last. */
int64_t times_resolve(const struct times_input *in, const char **note);

#endif
