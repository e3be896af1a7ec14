/* clickhouse_encode: one row of the queue as a JSONEachRow line of tallyman.events_v2.
 *
 * properties and context are String columns that hold JSON text, so integers of any size and
 * floats keep their digits, and nothing is inferred or wrapped by the far side. What goes into
 * them:
 *
 *   type             properties                                        context
 *   capture          `properties`, with $set, $set_once, $unset of     `context`
 *                    the event's top level and $window_id (from
 *                    window_id) where it has none of that name
 *   identify, group  `traits` (where absent: `properties`), group      the item's `context` over
 *                    also with the event's groupId                     its batch's, name by name
 *   others           `properties`, with category (page, screen) and    the same
 *                    previousId (alias) where it has none
 *
 * A part that is absent or no object is {}. The event's text is mended first (json/tolerant.h):
 * where that changed anything, the parts come from the mended text, and `raw` carries the text as
 * it came, byte for byte; otherwise `raw` is empty. Should the stored text be no JSON at all (which
 * the door does not let in), the row still goes out, with empty parts and the text in `raw`: bad
 * bytes on our disk must not hold up the queue.
 *
 * Times are 'YYYY-MM-DD hh:mm:ss' in UTC with 3 or 6 digits behind the point. The door checks their
 * range; here a time outside 1900 to 2299, which DateTime64 would wrap, becomes the nearer end.
 *
 * Only running out of memory is an error. */
#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sink/clickhouse.h"
#include "json/read.h"
#include "json/tolerant.h"
#include "json/write.h"

#define US_PER_SECOND INT64_C(1000000)
#define US_MIN        (INT64_C(-2208988800) * US_PER_SECOND)     /* 1900-01-01 00:00:00 */
#define US_MAX        (INT64_C(10413792000) * US_PER_SECOND - 1) /* 2299-12-31 23:59:59.999999 */

/* ---- times ---- */

static void put_digits(char *p, unsigned v, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        p[i] = (char)('0' + v % 10);
        v /= 10;
    }
}

/* With quotes. digits: 3 or 6 behind the point. */
static void put_time(struct buf *out, int64_t us, int digits)
{
    char text[] = "\"0000-00-00 00:00:00.000000\"";
    us = us < US_MIN ? US_MIN : us > US_MAX ? US_MAX : us;
    /* From 1900 on everything is positive. */
    uint64_t since = (uint64_t)(us - US_MIN);
    uint64_t second = since / (uint64_t)US_PER_SECOND;
    unsigned fraction = (unsigned)(since % (uint64_t)US_PER_SECOND);
    unsigned of_day = (unsigned)(second % 86400);
    unsigned z = (unsigned)(second / 86400) + 693901; /* days since 0000-03-01 */
    unsigned era = z / 146097;
    unsigned doe = z - era * 146097;
    unsigned yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    unsigned doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    unsigned mp = (5 * doy + 2) / 153;
    unsigned month = mp < 10 ? mp + 3 : mp - 9;
    put_digits(text + 1, yoe + era * 400 + (month <= 2 ? 1 : 0), 4);
    put_digits(text + 6, month, 2);
    put_digits(text + 9, doy - (153 * mp + 2) / 5 + 1, 2);
    put_digits(text + 12, of_day / 3600, 2);
    put_digits(text + 15, of_day / 60 % 60, 2);
    put_digits(text + 18, of_day % 60, 2);
    put_digits(text + 21, fraction, 6);
    text[21 + digits] = '"';
    buf_put(out, text, (size_t)(22 + digits));
}

static int64_t us_of_ms(int64_t ms)
{
    int64_t limit = INT64_MAX / 1000;
    return ms > limit ? INT64_MAX : ms < -limit ? INT64_MIN : ms * 1000;
}

/* ---- texts ---- */

/* A JSON string whose bytes past ASCII are passed as they are, also where they are no UTF-8: a
 * ClickHouse String holds bytes. */
static void put_bytes(struct buf *out, struct slice s)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    buf_put_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }
        buf_put(out, s.ptr + from, i - from);
        from = i + 1;
        if (c < 0x20) {
            buf_put_cstr(out, "\\u00");
            buf_put_char(out, hex[c >> 4]);
            buf_put_char(out, hex[c & 15]);
        } else {
            buf_put_char(out, '\\');
            buf_put_char(out, (char)c);
        }
    }
    buf_put(out, s.ptr + from, s.len - from);
    buf_put_char(out, '"');
}

/* ---- the parts of an event ---- */

/* Top-level members of an event that are looked at. */
#define MEMBERS(X)               \
    X(PROPERTIES, "properties")  \
    X(TRAITS, "traits")          \
    X(CONTEXT, "context")        \
    X(SET, "$set")               \
    X(SET_ONCE, "$set_once")     \
    X(UNSET, "$unset")           \
    X(WINDOW_ID, "window_id")    \
    X(GROUP_ID, "groupId")       \
    X(PREVIOUS_ID, "previousId") \
    X(CATEGORY, "category")

enum member {
#define X(sym, name) MEMBER_##sym,
    MEMBERS(X)
#undef X
        MEMBER_COUNT
};

static const struct slice member_name[MEMBER_COUNT] = {
#define X(sym, name) SLICE(name),
    MEMBERS(X)
#undef X
};

/* One walk over the event; absent members have length 0. Names are unique after mending. */
static void find_members(struct slice event, struct slice found[MEMBER_COUNT])
{
    struct json_iter it = json_iter_object(event);
    struct slice name;
    struct slice value;
    while (json_next_member(&it, &name, &value)) {
        for (int i = 0; i < MEMBER_COUNT; i++) {
            bool plain = name.len == member_name[i].len;
            /* An escaped spelling is longer than the plain one. */
            if ((plain && memcmp(name.ptr, member_name[i].ptr, name.len) == 0) ||
                (name.len > member_name[i].len && memchr(name.ptr, '\\', name.len) != NULL &&
                 json_string_is(name, member_name[i]))) {
                found[i] = value;
                break;
            }
        }
    }
}

static bool is_object(struct slice v)
{
    return v.len != 0 && json_type_of(v) == JSON_OBJECT;
}

/* Whether the object has no member at all. */
static bool is_empty(struct slice object)
{
    struct slice name;
    struct slice value;
    struct json_iter it = json_iter_object(object);
    return !json_next_member(&it, &name, &value);
}

/* Appends `base` (an object, or nothing) to out, without its last brace. */
static void open_object(struct buf *out, struct slice base)
{
    if (is_object(base)) {
        size_t n = base.len;
        while (n != 0 && base.ptr[n - 1] != '}') {
            n--;
        }
        ensure(n != 0);
        buf_put(out, base.ptr, n - 1);
    } else {
        buf_put_char(out, '{');
    }
}

struct extra {
    enum member member;
    struct slice as; /* its name in the properties */
};

static const struct extra extras_capture[] = {{MEMBER_SET, SLICE("$set")},
                                              {MEMBER_SET_ONCE, SLICE("$set_once")},
                                              {MEMBER_UNSET, SLICE("$unset")},
                                              {MEMBER_WINDOW_ID, SLICE("$window_id")}};
static const struct extra extras_group[] = {{MEMBER_GROUP_ID, SLICE("groupId")}};
static const struct extra extras_alias[] = {{MEMBER_PREVIOUS_ID, SLICE("previousId")}};
static const struct extra extras_page[] = {{MEMBER_CATEGORY, SLICE("category")}};

static bool is_extra(const struct extra *x, struct slice base,
                     const struct slice found[MEMBER_COUNT])
{
    struct slice value;
    struct slice given = found[x->member];
    return given.len != 0 && json_type_of(given) != JSON_NULL &&
           (!is_object(base) || !json_member(base, x->as, &value));
}

/* The properties as one slice: of the event itself where nothing is added, else made in scratch. */
static struct slice properties_of(struct buf *scratch, struct slice type,
                                  const struct slice found[MEMBER_COUNT])
{
    const struct extra *extra = NULL;
    size_t count = 0;
    bool traits = slice_eq(type, SLICE("identify")) || slice_eq(type, SLICE("group"));
    struct slice base =
        traits && found[MEMBER_TRAITS].len != 0 ? found[MEMBER_TRAITS] : found[MEMBER_PROPERTIES];
    bool added = false;
    if (slice_eq(type, SLICE("capture"))) {
        extra = extras_capture;
        count = sizeof extras_capture / sizeof extras_capture[0];
    } else if (slice_eq(type, SLICE("group"))) {
        extra = extras_group;
        count = 1;
    } else if (slice_eq(type, SLICE("alias"))) {
        extra = extras_alias;
        count = 1;
    } else if (slice_eq(type, SLICE("page")) || slice_eq(type, SLICE("screen"))) {
        extra = extras_page;
        count = 1;
    }
    bool first = !is_object(base) || is_empty(base);
    for (size_t i = 0; i < count; i++) {
        if (is_extra(&extra[i], base, found)) {
            if (!added) {
                buf_clear(scratch);
                open_object(scratch, base);
            }
            buf_put_cstr(scratch, added || !first ? ",\"" : "\"");
            buf_put_slice(scratch, extra[i].as);
            buf_put_cstr(scratch, "\":");
            buf_put_slice(scratch, found[extra[i].member]);
            added = true;
        }
    }
    if (added) {
        buf_put_char(scratch, '}');
        return buf_slice(scratch);
    }
    return is_object(base) ? base : SLICE("{}");
}

/* Whether the item's context has the (raw) name of a member of the batch's context. Spellings may
 * differ by escapes, so both are unescaped where one has any. */
static bool has_member(struct slice object, struct slice raw_name, struct buf *plain)
{
    struct slice name;
    struct slice value;
    struct json_iter it = json_iter_object(object);
    buf_clear(plain);
    json_unescape(raw_name, plain);
    while (json_next_member(&it, &name, &value)) {
        if (slice_eq(name, raw_name) || json_string_is(name, buf_slice(plain))) {
            return true;
        }
    }
    return false;
}

/* Bytes of one context times bytes of the other, above which names are not compared in pairs: a
 * megabyte of them would take a minute. */
#define PAIRS_MAX (UINT64_C(1) << 24)

/* The same for large ones: of repeated names, mending keeps the last. */
static int merge_large(struct buf *scratch, struct buf *both, struct slice outer, struct slice item,
                       struct err *e)
{
    buf_clear(both);
    buf_clear(scratch);
    open_object(both, outer);
    buf_put_cstr(both, is_empty(outer) || is_empty(item) ? " " : ",");
    buf_put_slice(both, slice_from(item, 1)); /* behind its opening brace */
    return both->failed ? err_set(e, ERR_NO_MEMORY, "no memory to encode an event")
                        : json_mend(buf_slice(both), scratch, e);
}

/* The batch's context under the item's, in scratch. */
static int merge_context(struct buf *scratch, struct buf *plain, struct slice outer,
                         struct slice item, struct err *e)
{
    struct slice name;
    struct slice value;
    struct json_iter it = json_iter_object(outer);
    if (is_object(item) && (uint64_t)outer.len * item.len > PAIRS_MAX) {
        return merge_large(scratch, plain, outer, item, e);
    }
    buf_clear(scratch);
    open_object(scratch, item);
    bool first = !is_object(item) || is_empty(item);
    while (json_next_member(&it, &name, &value)) {
        if (is_object(item) && has_member(item, name, plain)) {
            continue;
        }
        buf_put_cstr(scratch, first ? "\"" : ",\"");
        buf_put_slice(scratch, name);
        buf_put_cstr(scratch, "\":");
        buf_put_slice(scratch, value);
        first = false;
    }
    buf_put_char(scratch, '}');
    return 0;
}

/* ---- the row ---- */

/* Buffers of one thread's encoding, kept from row to row: a row needs no allocation. */
struct scratch {
    struct buf text, envelope, properties, context, name;
};

/* *event is the text without flaws, in s->text where it had any (then *mended). False: the text is
 * no JSON object. */
static int read_text(struct buf *into, struct slice text, struct slice *value, bool *mended,
                     struct err *e)
{
    struct slice whole;
    struct err ignored;
    *value = (struct slice){0};
    *mended = false;
    if (text.len == 0 || json_tolerant_check(text, &whole, &ignored) != 0) {
        *mended = text.len != 0;
        return 0;
    }
    buf_clear(into);
    int r = json_mend(whole, into, e);
    if (r != 0 || into->failed) {
        return err_set(e, ERR_NO_MEMORY, "no memory to encode an event");
    }
    *mended = !slice_eq(whole, buf_slice(into));
    *value = *mended ? buf_slice(into) : whole;
    return 0;
}

static void put_named(struct buf *out, const char *name_and_colon, struct slice text)
{
    buf_put_cstr(out, name_and_colon);
    json_put_string(out, text);
}

static void put_columns(struct buf *out, const struct queue_row *row)
{
    const struct queue_event *ev = &row->ev;
    char uuid[UUID_TEXT_LEN];
    uuid_text(uuid, &ev->uuid);
    put_named(out, "{\"project\":", row->project);
    buf_put_cstr(out, ",\"uuid\":\"");
    buf_put(out, uuid, sizeof uuid);
    buf_put_cstr(out, "\",\"revision\":0,\"is_deleted\":0,\"event_id\":");
    buf_put_i64(out, row->id);
    buf_put_cstr(out, ",\"received_at\":");
    put_time(out, us_of_ms(ev->received_ms), 3);
    buf_put_cstr(out, ",\"timestamp\":");
    put_time(out, ev->timestamp_us, 6);
    buf_put_cstr(out, ",\"timestamp_sent\":");
    if (ev->has_timestamp_sent) {
        put_time(out, ev->timestamp_sent_us, 6);
    } else {
        buf_put_cstr(out, "null");
    }
    buf_put_cstr(out, ",\"sent_at\":");
    if (ev->has_sent_at) {
        put_time(out, us_of_ms(ev->sent_at_ms), 3);
    } else {
        buf_put_cstr(out, "null");
    }
    put_named(out, ",\"time_note\":", ev->time_note);
    put_named(out, ",\"type\":", ev->type);
    put_named(out, ",\"event\":", ev->event);
    put_named(out, ",\"distinct_id\":", ev->distinct_id);
    put_named(out, ",\"anonymous_id\":", ev->anonymous_id);
    put_named(out, ",\"session_id\":", ev->session_id);
    put_named(out, ",\"source\":", ev->source);
    put_named(out, ",\"message_id\":", ev->message_id);
    put_named(out, ",\"library\":", ev->library);
    put_named(out, ",\"library_version\":", ev->library_version);
}

static int encode(struct scratch *s, const struct queue_row *row, struct buf *out, struct err *e)
{
    const struct queue_event *ev = &row->ev;
    struct slice found[MEMBER_COUNT] = {{0}};
    struct slice event;
    struct slice envelope;
    struct slice outer = {0};
    bool mended;
    bool envelope_mended;
    int r = read_text(&s->text, ev->text, &event, &mended, e);
    if (r == 0 && mended && event.len == 0) {
        /* What the doors take is JSON. The rest of the row is good, and so are the others: they go
         * out, but not in silence (cases C31). */
        metric_add(METRIC_SINK_DAMAGED, 1);
        log_line(LOG_ERROR, "clickhouse",
                 "event %lld: its text in the queue is damaged; it is delivered as it is, in raw",
                 (long long)row->id);
    }
    if (r == 0) {
        r = read_text(&s->envelope, ev->envelope, &envelope, &envelope_mended, e);
    }
    if (r != 0) {
        return r;
    }
    find_members(event, found);
    struct slice properties = properties_of(&s->properties, ev->type, found);
    struct slice context = is_object(found[MEMBER_CONTEXT]) ? found[MEMBER_CONTEXT] : SLICE("{}");
    if (is_object(envelope) && json_member(envelope, SLICE("context"), &outer) &&
        is_object(outer)) {
        r = merge_context(&s->context, &s->name, outer, found[MEMBER_CONTEXT], e);
        if (r != 0) {
            return r;
        }
        context = buf_slice(&s->context);
    }
    put_columns(out, row);
    put_named(out, ",\"properties\":", properties);
    put_named(out, ",\"context\":", context);
    buf_put_cstr(out, ",\"raw\":");
    put_bytes(out, mended ? ev->text : SLICE(""));
    buf_put_cstr(out, "}\n");
    if (out->failed || s->properties.failed || s->context.failed || s->name.failed) {
        return err_set(e, ERR_NO_MEMORY, "no memory to encode an event");
    }
    return 0;
}

int clickhouse_encode_rows(const struct queue_row *row, size_t count, struct buf *out,
                           struct err *e)
{
    struct scratch s = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < count; i++) {
        r = encode(&s, &row[i], out, e);
    }
    buf_free(&s.text);
    buf_free(&s.envelope);
    buf_free(&s.properties);
    buf_free(&s.context);
    buf_free(&s.name);
    return r;
}

int clickhouse_encode_row(const struct queue_row *row, struct buf *out, struct err *e)
{
    return clickhouse_encode_rows(row, 1, out, e);
}
