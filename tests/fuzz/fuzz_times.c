/* fuzz_times: the date readers on any text, and the clock rules on what they read.
 *
 * Broken is: an instant outside of the years 1 to 9999; a strict date that the lenient reader
 * refuses or reads as another instant; an instant that does not survive being written as RFC 3339;
 * a resolved time outside of 1900 to 2299 that is not the receipt time, or one that differs from
 * what was sent without a note; and whatever the sanitizers find. */
#include <string.h>

#include "base/ensure.h"
#include "base/timefmt.h"
#include "door/capture/times.h"

#define US_PER_MS   1000
#define KEPT_FROM_S (-INT64_C(2208988800))
#define KEPT_END_S  INT64_C(10413792000)
#define NOW_US      INT64_C(1796000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(int64_t us)
{
    ensure(us >= -INT64_C(62135596800) * 1000000 && us < INT64_C(253402300800) * 1000000);
    if (us < 0) {
        return; /* timefmt writes from 1970 on */
    }
    char text[TIMEFMT_MS_LEN + 1];
    int64_t again = -1;
    timefmt_ms(text, (uint64_t)us / US_PER_MS);
    bool read = times_parse_strict(slice_of(text, TIMEFMT_MS_LEN), &again);
    ensure(read);
    ensure(again == us / US_PER_MS * US_PER_MS);
}

static void resolve(const struct times_input *in)
{
    const char *note = NULL;
    int64_t t = times_resolve(in, &note);
    ensure(note != NULL);
    bool kept = t >= KEPT_FROM_S * 1000000 && t < KEPT_END_S * 1000000;
    ensure(kept || t == in->now_us);
    ensure(!in->has_timestamp || in->has_offset || note[0] != '\0' || t == in->timestamp_us);
    ensure(strcmp(note, "future") != 0 || t > in->now_us);
}

/* The first bytes are numbers for the rules, the rest is text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct times_input in = {.now_us = NOW_US};
    uint8_t flags = 0;
    if (size >= 17) {
        flags = data[0];
        memcpy(&in.sent_at_us, data + 1, 8);
        memcpy(&in.offset_ms, data + 9, 8);
        in.has_sent_at = (flags & 1) != 0;
        in.has_offset = (flags & 2) != 0;
        in.ignore_sent_at = (flags & 4) != 0;
        in.unreadable = (flags & 8) != 0;
        if ((flags & 16) != 0) {
            memcpy(&in.timestamp_us, data + 9, 8);
            in.has_timestamp = true;
            resolve(&in);
        }
        data += 17;
        size -= 17;
    }
    struct slice text = slice_of(data, size);
    int64_t strict = 0;
    in.has_timestamp = times_parse(text, &in.timestamp_us);
    if (times_parse_strict(text, &strict)) {
        ensure(in.has_timestamp);
        ensure(strict == in.timestamp_us);
    }
    if (in.has_timestamp) {
        round_trip(in.timestamp_us);
    }
    resolve(&in);
    return 0;
}
