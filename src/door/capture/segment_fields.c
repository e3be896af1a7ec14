/* segment_fields: reading the objects of Segment's calls (spec/capture.md B3).
 *
 * One pass over the members of an object finds all that matter. Names may be written with escapes;
 * of a repeated name the last counts, as json_mend keeps it for ClickHouse. Nothing of an event is
 * lost by what is read here: its text is stored as it came. All of this answers clients; nothing
 * stops the server or aborts. */
#include "door/capture/segment_fields.h"

#include "door/capture/identity.h"
#include "door/capture/times.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

#define X(sym, name) {name, sizeof(name) - 1},
static const struct slice member_names[SEGMENT_MEMBER_COUNT] = {SEGMENT_MEMBERS(X)};
static const struct slice context_names[SEGMENT_CONTEXT_COUNT] = {SEGMENT_CONTEXT(X)};
static const struct slice library_names[SEGMENT_LIBRARY_COUNT] = {SEGMENT_LIBRARY(X)};
#undef X

/* Fills values[i] for the i-th of n names. */
static void take(struct slice object, const struct slice *names, size_t n, struct slice *values)
{
    struct json_iter it = json_iter_object(object);
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        for (size_t i = 0; i < n; i++) {
            if (json_string_is(name, names[i])) {
                bool null = json_type_of(value) == JSON_NULL;
                values[i] = null ? (struct slice){0} : value;
                break;
            }
        }
    }
}

static bool is(struct slice value, enum json_type type)
{
    return value.len > 0 && json_type_of(value) == type;
}

void segment_read(struct slice object, struct segment_object *out)
{
    *out = (struct segment_object){0};
    take(object, member_names, SEGMENT_MEMBER_COUNT, out->member);
    if (!is(out->member[SEGMENT_CONTEXT], JSON_OBJECT)) {
        return;
    }
    take(out->member[SEGMENT_CONTEXT], context_names, SEGMENT_CONTEXT_COUNT, out->context);
    struct slice library = out->context[SEGMENT_CONTEXT_LIBRARY];
    if (is(library, JSON_OBJECT)) {
        take(library, library_names, SEGMENT_LIBRARY_COUNT, out->library);
    } else if (is(library, JSON_STRING)) {
        out->library[SEGMENT_LIBRARY_NAME] = library;
    }
}

/* ---- ids ---- */

static bool is_blank(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] > ' ') {
            return false;
        }
    }
    return true;
}

const char *segment_id(struct capture_batch *b, struct slice value, const char *bad,
                       struct slice *out, bool *memory)
{
    *out = (struct slice){0};
    if (value.len == 0) {
        return NULL;
    }
    if (!is(value, JSON_STRING) && !is(value, JSON_NUMBER)) {
        return bad;
    }
    if (!capture_text(b, value, 0, out)) {
        *memory = false;
    } else if (is_blank(*out)) {
        *out = (struct slice){0};
    }
    return NULL;
}

/* Two ids that differ must stay two, or the second event would be taken for a repeat of the first
 * and be lost. So an id that loses something as the text of a column (lone surrogates, NUL) is
 * taken as its JSON spelling. */
static bool exact(struct slice value, struct slice *out)
{
    unsigned flaws = 0;
    struct slice spelling;
    if (json_flaws(value, &flaws, NULL) != 0) {
        return false;
    }
    bool raw_nul = memchr(value.ptr, '\0', value.len) != NULL;
    bool odd = (flaws & (JSON_FLAW_SURROGATE | JSON_FLAW_NUL | JSON_FLAW_UTF8)) != 0;
    if ((odd || raw_nul) && json_string_raw(value, &spelling)) {
        *out = !raw_nul && utf8_valid(spelling, NULL) ? spelling : (struct slice){0};
    }
    return true;
}

/* An id that is no UTF-8 at all, or the nil UUID of a client that makes no ids, is no id: its event
 * is stored each time it is sent. */
const char *segment_message_id(struct capture_batch *b, struct slice value, struct slice *out,
                               bool *memory)
{
    struct uuid id;
    const char *bad = segment_id(b, value, "messageId must be a string or a number", out, memory);
    if (bad != NULL || !*memory || out->len == 0) {
        return bad;
    }
    if (out->len > SEGMENT_MESSAGE_ID_MAX) {
        return "messageId has more than 256 bytes";
    }
    *memory = exact(value, out);
    if (identity_parse(*out, &id) && uuid_is_zero(&id)) {
        *out = (struct slice){0};
    }
    return NULL;
}

/* ---- times ---- */

bool segment_time(struct capture_batch *b, struct slice value, int64_t *us, bool *memory)
{
    struct slice text;
    if (!is(value, JSON_STRING) && !is(value, JSON_NUMBER)) {
        return false;
    }
    if (!capture_text(b, value, 0, &text)) {
        *memory = false;
        return false;
    }
    return times_parse(text, us);
}

/* originalTimestamp first: it is of the same clock as sentAt, while the timestamp beside it was
 * corrected by somebody before us (spec/capture.md B3). */
void segment_times(struct capture_batch *b, const struct segment_object *o,
                   const struct segment_object *outer, struct queue_event *q, bool *memory)
{
    struct times_input in = {.now_us = b->received_ms * 1000};
    const struct slice stamps[] = {o->member[SEGMENT_ORIGINAL_TIMESTAMP],
                                   o->member[SEGMENT_TIMESTAMP]};
    const struct slice sends[] = {o->member[SEGMENT_SENT_AT], outer->member[SEGMENT_SENT_AT]};
    const char *note = "";
    for (size_t i = 0; i < 2; i++) {
        in.unreadable = in.unreadable || stamps[i].len > 0; /* counts if none can be read */
        if (!in.has_timestamp) {
            in.has_timestamp = segment_time(b, stamps[i], &in.timestamp_us, memory);
        }
        if (!in.has_sent_at) {
            in.has_sent_at = segment_time(b, sends[i], &in.sent_at_us, memory);
        }
    }
    q->timestamp_us = times_resolve(&in, &note);
    q->time_note = slice_cstr(note);
    q->has_timestamp_sent = in.has_timestamp;
    q->timestamp_sent_us = in.has_timestamp ? in.timestamp_us : 0;
    q->has_sent_at = in.has_sent_at;
    /* Towards the past, also before 1970. */
    q->sent_at_ms = in.has_sent_at ? in.sent_at_us / 1000 - (in.sent_at_us % 1000 < 0 ? 1 : 0) : 0;
}
