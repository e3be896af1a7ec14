/* native: the body of POST /api/v1/projects/{id}/events.
 *
 *   {"source":"billing","events":[{"event":"x", ...}, ...]}
 *
 * Members of an event, all but `event` optional:
 *
 *   event         1 to 256 bytes
 *   type          capture, track, identify, page, screen, group, alias; without one: native
 *   distinct_id, anonymous_id, session_id, message_id
 *                 1 to 256 bytes
 *   uuid          8-4-4-4-12, not nil; goes before message_id as the event's identity
 *   timestamp     RFC 3339 with an offset, 1900 to 2299; without one: the time of receipt
 *   properties, context
 *                 objects; what is in them is not looked at
 *
 * Strict, because its callers are people's own programs, which can be put right: unknown and
 * repeated members, wrong types, texts that are no text (lone surrogates, NUL, bytes that are no
 * UTF-8) are 400 with the index of the event and the name of the member, and nothing of the request
 * is stored (spec/capture-delivery.md, decisions). null is a wrong type too. The text of an event
 * is kept as it came.
 *
 * The project is the path's; source is the body's, else the name of the key (finish.c). */
#include "door/capture/identity.h"
#include "door/capture/internal.h"
#include "door/capture/times.h"
#include "json/read.h"
#include "json/tolerant.h"

#define TEXT_MAX   256 /* bytes */
#define SOURCE_MAX KEY_NAME_MAX

#define BODY_MEMBERS(X) \
    X(SOURCE, "source") \
    X(EVENTS, "events")

#define EVENT_MEMBERS(X)            \
    X(EVENT, "event")               \
    X(TYPE, "type")                 \
    X(DISTINCT_ID, "distinct_id")   \
    X(ANONYMOUS_ID, "anonymous_id") \
    X(SESSION_ID, "session_id")     \
    X(MESSAGE_ID, "message_id")     \
    X(UUID, "uuid")                 \
    X(TIMESTAMP, "timestamp")       \
    X(PROPERTIES, "properties")     \
    X(CONTEXT, "context")

#define X(sym, name) BODY_##sym,
enum { BODY_MEMBERS(X) BODY_COUNT };
#undef X
#define X(sym, name) EVENT_##sym,
enum { EVENT_MEMBERS(X) EVENT_COUNT };
#undef X
#define X(sym, name) {name, sizeof(name) - 1},
static const struct slice body_names[BODY_COUNT] = {BODY_MEMBERS(X)};
static const struct slice event_names[EVENT_COUNT] = {EVENT_MEMBERS(X)};
#undef X

static const struct slice types[] = {
    {"native", 6}, {"capture", 7}, {"track", 5}, {"identify", 8},
    {"page", 4},   {"screen", 6},  {"group", 5}, {"alias", 5},
};

/* One event being read. */
struct reading {
    struct capture_batch *b;
    struct queue_event *q;
    uint32_t index;
    struct slice member[EVENT_COUNT];
    struct err *e;
};

/* ---- refusals ---- */

static int refuse(const struct reading *g, const char *member, const char *why)
{
    g->b->has_bad_index = true;
    g->b->bad_index = g->index;
    return err_set(g->e, ERR_INVALID_EVENT, "events[%u]%s%s %s", g->index,
                   *member == '\0' ? "" : ".", member, why);
}

static int no_memory(struct err *e)
{
    return err_set(e, ERR_NO_MEMORY, "no memory for an event");
}

/* A stranger's name, as far as it can be shown: visible ASCII, 32 bytes. */
static void show(char out[33], struct slice name)
{
    size_t n = 0;
    while (n < name.len && n < 32) {
        char c = name.ptr[n];
        out[n] = (char)(c >= 0x20 && c <= 0x7e && c != '"' && c != '\\' ? c : '?');
        n++;
    }
    out[n] = '\0';
}

enum fault { FAULT_NONE, FAULT_UNKNOWN, FAULT_REPEATED };

/* A closed object: every member must be one of the n names, once. *name is the first one at fault.
 * */
static enum fault take_members(struct slice object, const struct slice *names, size_t n,
                               struct slice *values, struct slice *name)
{
    struct json_iter it = json_iter_object(object);
    struct slice value;
    while (json_next_member(&it, name, &value)) {
        size_t i = 0;
        while (i < n && !json_string_is(*name, names[i])) {
            i++;
        }
        if (i == n) {
            return FAULT_UNKNOWN;
        }
        if (values[i].len > 0) {
            return FAULT_REPEATED;
        }
        values[i] = value;
    }
    return FAULT_NONE;
}

static const char *fault_text(enum fault fault)
{
    return fault == FAULT_UNKNOWN ? "unknown" : "repeated";
}

/* ---- members ---- */

/* A string that is text, of 1 to TEXT_MAX bytes. Absent: an empty one. */
static int take_text(struct reading *g, int member, struct slice *out)
{
    const char *name = event_names[member].ptr;
    struct slice value = g->member[member];
    unsigned flaws = 0;
    *out = (struct slice){0};
    if (value.len == 0) {
        return 0;
    }
    if (json_type_of(value) != JSON_STRING) {
        return refuse(g, name, "must be a string");
    }
    if (json_flaws(value, &flaws, NULL) != 0 || !capture_text(g->b, value, 0, out)) {
        return no_memory(g->e);
    }
    if ((flaws & JSON_FLAW_SURROGATE) != 0) {
        return refuse(g, name, "holds half of a surrogate pair");
    }
    if ((flaws & JSON_FLAW_UTF8) != 0) {
        return refuse(g, name, "is no UTF-8");
    }
    if ((flaws & (JSON_FLAW_NUL | JSON_FLAW_CONTROL)) != 0) {
        return refuse(g, name, "holds a NUL or a control character that is not escaped");
    }
    if (out->len == 0 || out->len > TEXT_MAX) {
        return refuse(g, name, "must have 1 to 256 bytes");
    }
    return 0;
}

static int take_type(struct reading *g)
{
    struct slice type;
    int r = take_text(g, EVENT_TYPE, &type);
    if (r != 0) {
        return r;
    }
    g->q->type = types[0];
    if (type.len == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (slice_eq(type, types[i])) {
            g->q->type = types[i];
            return 0;
        }
    }
    return refuse(g, "type",
                  "must be native, capture, track, identify, page, screen, group or alias");
}

static int take_uuid(struct reading *g)
{
    struct slice text;
    int r = take_text(g, EVENT_UUID, &text);
    if (r != 0 || text.len == 0) {
        return r;
    }
    if (!identity_parse(text, &g->q->uuid) || uuid_is_zero(&g->q->uuid)) {
        return refuse(g, "uuid", "must be a UUID, and not the nil one");
    }
    return 0;
}

/* finish.c takes a message id that is a UUID for the event's identity; the nil one would make all
 * such events one. */
static int take_message_id(struct reading *g)
{
    struct uuid id;
    int r = take_text(g, EVENT_MESSAGE_ID, &g->q->message_id);
    if (r == 0 && identity_parse(g->q->message_id, &id) && uuid_is_zero(&id)) {
        return refuse(g, "message_id", "must not be the nil UUID");
    }
    return r;
}

static int take_timestamp(struct reading *g)
{
    struct queue_event *q = g->q;
    struct times_input in = {.now_us = g->b->received_ms * 1000};
    const char *note = "";
    struct slice text;
    int r = take_text(g, EVENT_TIMESTAMP, &text);
    if (r != 0) {
        return r;
    }
    if (text.len > 0) {
        if (!times_parse_strict(text, &in.timestamp_us)) {
            return refuse(g, "timestamp", "must be a time like 2026-11-30T12:00:00Z (RFC 3339)");
        }
        in.has_timestamp = true;
    }
    q->timestamp_us = times_resolve(&in, &note);
    if (strcmp(note, "out_of_range") == 0) {
        return refuse(g, "timestamp", "must be of the years 1900 to 2299");
    }
    q->time_note = slice_cstr(note);
    q->has_timestamp_sent = in.has_timestamp;
    q->timestamp_sent_us = in.timestamp_us;
    return 0;
}

static int check_object(struct reading *g, int member)
{
    struct slice value = g->member[member];
    return value.len == 0 || json_type_of(value) == JSON_OBJECT
               ? 0
               : refuse(g, event_names[member].ptr, "must be an object");
}

/* ---- events ---- */

static int take_fields(struct reading *g)
{
    struct queue_event *q = g->q;
    int r = g->member[EVENT_EVENT].len > 0 ? 0 : refuse(g, "event", "is missing");
    if (r == 0) {
        r = take_text(g, EVENT_EVENT, &q->event);
    }
    if (r == 0) {
        r = take_type(g);
    }
    if (r == 0) {
        r = take_text(g, EVENT_DISTINCT_ID, &q->distinct_id);
    }
    if (r == 0) {
        r = take_text(g, EVENT_ANONYMOUS_ID, &q->anonymous_id);
    }
    if (r == 0) {
        r = take_text(g, EVENT_SESSION_ID, &q->session_id);
    }
    if (r == 0) {
        r = take_message_id(g);
    }
    if (r == 0) {
        r = take_uuid(g);
    }
    if (r == 0) {
        r = take_timestamp(g);
    }
    if (r == 0) {
        r = check_object(g, EVENT_PROPERTIES);
    }
    return r == 0 ? check_object(g, EVENT_CONTEXT) : r;
}

static int add_event(struct capture_batch *b, struct slice source, struct slice value,
                     uint32_t index, struct err *e)
{
    struct capture_event *ev = capture_add(b, index, e);
    if (ev == NULL) {
        return e->code;
    }
    struct reading g = {.b = b, .q = &ev->ev, .index = index, .e = e};
    ev->ev.text = value;
    ev->ev.source = source;
    if (json_type_of(value) != JSON_OBJECT) {
        return refuse(&g, "", "must be an object");
    }
    if (value.len > b->c->options.event_bytes_max) {
        (void)refuse(&g, "", "is too large");
        return err_set(e, ERR_BODY_TOO_LARGE, "events[%u] has %zu bytes, more than %llu", index,
                       value.len, (unsigned long long)b->c->options.event_bytes_max);
    }
    struct slice name;
    enum fault fault = take_members(value, event_names, EVENT_COUNT, g.member, &name);
    if (fault != FAULT_NONE) {
        char shown[33];
        char why[64];
        show(shown, name);
        struct buf text = {.ptr = why, .cap = sizeof why, .limit = sizeof why};
        buf_printf(&text, "has the %s member \"%s\"", fault_text(fault), shown);
        return refuse(&g, "", why);
    }
    return take_fields(&g);
}

/* ---- the request ---- */

static bool is_source(struct slice s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     c == '_' || c == '.' || c == '-';
        if (!plain) {
            return false;
        }
    }
    return s.len > 0 && s.len <= SOURCE_MAX;
}

static int read_body(struct capture_batch *b, struct slice json, struct slice *source,
                     struct slice *events, struct err *e)
{
    struct slice member[BODY_COUNT] = {{0}};
    struct slice name;
    *source = (struct slice){0};
    if (json_type_of(json) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_REQUEST, "the body must be an object");
    }
    enum fault fault = take_members(json, body_names, BODY_COUNT, member, &name);
    if (fault != FAULT_NONE) {
        char shown[33];
        show(shown, name);
        return err_set(e, ERR_INVALID_REQUEST, "the body has the %s member \"%s\"",
                       fault_text(fault), shown);
    }
    *events = member[BODY_EVENTS];
    if (events->len == 0 || json_type_of(*events) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID_REQUEST, "events must be an array");
    }
    if (member[BODY_SOURCE].len == 0) {
        return 0;
    }
    if (json_type_of(member[BODY_SOURCE]) == JSON_STRING &&
        !capture_text(b, member[BODY_SOURCE], 0, source)) {
        return no_memory(e);
    }
    return is_source(*source) ? 0
                              : err_set(e, ERR_INVALID_REQUEST,
                                        "source must be a string of 1 to %d letters, "
                                        "digits, '_', '.' and '-'",
                                        SOURCE_MAX);
}

int native_parse(struct capture_batch *b, struct slice json, struct err *e)
{
    struct slice source;
    struct slice events;
    struct slice value;
    uint32_t index = 0;
    int r = read_body(b, json, &source, &events, e);
    if (r != 0) {
        return r;
    }
    struct json_iter it = json_iter_array(events);
    while (r == 0 && json_next_element(&it, &value)) {
        r = add_event(b, source, value, index, e);
        index++;
    }
    return r == 0 && index == 0 ? err_set(e, ERR_INVALID_REQUEST, "events must not be empty") : r;
}
