/* posthog_fields: reading the objects of PostHog's events (spec/capture.md A3).
 *
 * One pass over the members of an object finds all that matter. Names may be written with escapes;
 * of a repeated name the last counts, as json_mend keeps it for ClickHouse. Nothing is copied here
 * but the texts of columns, and nothing of an event is lost: its text is stored as it came. */
#include "door/capture/posthog_fields.h"

#include "door/capture/times.h"
#include "json/read.h"

/* Names are nearly always written without escapes: then they are compared as they are. */
static bool is_name(struct slice written, bool escapes, struct slice name)
{
    return escapes ? json_string_is(written, name) : slice_eq(written, name);
}

/* Fills values[i] for the i-th of n names. */
static void take(struct slice object, const struct slice *names, size_t n, struct slice *values)
{
    struct json_iter it = json_iter_object(object);
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        bool escapes = name.len > 0 && memchr(name.ptr, '\\', name.len) != NULL;
        for (size_t i = 0; i < n; i++) {
            if (is_name(name, escapes, names[i])) {
                bool null = json_type_of(value) == JSON_NULL;
                values[i] = null ? (struct slice){0} : value;
                break;
            }
        }
    }
}

#define X(sym, name) {name, sizeof(name) - 1},
static const struct slice member_names[MEMBER_COUNT] = {POSTHOG_MEMBERS(X)};
static const struct slice property_names[PROPERTY_COUNT] = {POSTHOG_PROPERTIES(X)};
static const struct slice option_names[OPTION_COUNT] = {POSTHOG_OPTIONS(X)};
#undef X

void posthog_read(struct slice object, struct posthog_object *out)
{
    *out = (struct posthog_object){0};
    take(object, member_names, MEMBER_COUNT, out->member);
    struct slice properties = out->member[MEMBER_PROPERTIES];
    struct slice options = out->member[MEMBER_OPTIONS];
    if (properties.len > 0 && json_type_of(properties) == JSON_OBJECT) {
        take(properties, property_names, PROPERTY_COUNT, out->property);
    }
    if (options.len > 0 && json_type_of(options) == JSON_OBJECT) {
        take(options, option_names, OPTION_COUNT, out->option);
    }
}

bool posthog_is(struct slice value, const char *text)
{
    struct slice inner;
    return value.len > 0 && json_string_raw(value, &inner) &&
           json_string_is(inner, slice_cstr(text));
}

/* Times are short: an escape in one is resolved into a little room of its own. */
#define TIME_ROOM 128
static bool time_text(struct slice value, char room[TIME_ROOM], struct slice *text)
{
    *text = value;
    if (json_string_raw(value, text) && memchr(text->ptr, '\\', text->len) != NULL) {
        struct buf b = {.ptr = room, .cap = TIME_ROOM, .limit = TIME_ROOM};
        json_unescape(*text, &b);
        *text = buf_slice(&b);
        return !b.failed;
    }
    return true;
}

bool posthog_time(struct slice value, int64_t *us)
{
    char room[TIME_ROOM];
    struct slice text;
    enum json_type type = value.len == 0 ? JSON_BAD : json_type_of(value);
    return (type == JSON_STRING || type == JSON_NUMBER) && time_text(value, room, &text) &&
           times_parse(text, us);
}

bool posthog_time_strict(struct slice value, int64_t *us)
{
    char room[TIME_ROOM];
    struct slice text;
    return value.len > 0 && json_type_of(value) == JSON_STRING && time_text(value, room, &text) &&
           times_parse_strict(text, us);
}

/* Whole milliseconds; a fraction is cut off. */
static bool offset_ms(struct slice v, int64_t *ms)
{
    int64_t n = 0;
    size_t i = v.len > 0 && v.ptr[0] == '-' ? 1 : 0;
    size_t first = i;
    while (i < v.len && v.ptr[i] >= '0' && v.ptr[i] <= '9' && i - first < 15) {
        n = n * 10 + (v.ptr[i] - '0');
        i++;
    }
    *ms = first == 1 ? -n : n;
    return i > first && (i == v.len || (v.ptr[i] == '.' && memchr(v.ptr, 'e', v.len) == NULL &&
                                        memchr(v.ptr, 'E', v.len) == NULL));
}

void posthog_times(const struct capture_batch *b, const struct posthog_clock *clock,
                   struct slice timestamp, struct slice offset, struct queue_event *q)
{
    struct times_input in = {.now_us = b->received_ms * 1000,
                             .has_sent_at = clock->has_sent_at,
                             .sent_at_us = clock->sent_at_us,
                             .ignore_sent_at = clock->ignore_sent_at};
    const char *note = "";
    if (timestamp.len > 0) {
        in.has_timestamp = posthog_time(timestamp, &in.timestamp_us);
        in.unreadable = !in.has_timestamp;
    }
    if (offset.len > 0) {
        in.has_offset = offset_ms(offset, &in.offset_ms);
        in.unreadable = in.unreadable || !in.has_offset;
    }
    q->timestamp_us = times_resolve(&in, &note);
    q->time_note = slice_cstr(note);
    q->has_timestamp_sent = in.has_timestamp;
    q->timestamp_sent_us = in.timestamp_us;
    q->has_sent_at = in.has_sent_at;
    /* Towards the past, also before 1970. */
    q->sent_at_ms = in.sent_at_us / 1000 - (in.sent_at_us % 1000 < 0 ? 1 : 0);
}

static struct slice first_of(struct slice a, struct slice b)
{
    return a.len > 0 ? a : b;
}

bool posthog_columns(struct capture_batch *b, const struct posthog_object *o, struct queue_event *q)
{
    struct slice lib = first_of(o->property[PROPERTY_LIB], o->member[MEMBER_LIBRARY]);
    struct slice version =
        first_of(o->property[PROPERTY_LIB_VERSION], o->member[MEMBER_LIBRARY_VERSION]);
    struct slice session = first_of(o->member[MEMBER_SESSION_ID], o->property[PROPERTY_SESSION_ID]);
    q->type = SLICE("capture");
    return capture_text(b, lib, 0, &q->library) &&
           capture_text(b, version, 0, &q->library_version) &&
           capture_text(b, session, 0, &q->session_id);
}
