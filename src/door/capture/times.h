/* times: the clock rules of the capture door (spec/capture.md A3, spec/capture-delivery.md "Times",
 * cases C07, C08, C10, C23). */
#ifndef DOOR_CAPTURE_TIMES_H
#define DOOR_CAPTURE_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

/* Reads a date as SDKs have written them: RFC 3339 with any offset (+03, +0300, +03:00, Z, none =
 * UTC), date only, a space for T, slashes, RFC 2822, epoch seconds or milliseconds as text. Years 1
 * to 9999. Unix microseconds. */
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
 * 2299 the receipt time is used; a future time is kept as sent and noted. */
int64_t times_resolve(const struct times_input *in, const char **note);

#endif
