/* posthog: the body of a PostHog v0 request (spec/capture.md A2 steps 7 and 8, A3).
 *
 * Shapes: an array of events; an object with `batch`; one event. The key of the project stands in
 * the batch (`api_key`, `token`), or in each event in one of four places, and then all must agree.
 *
 * An event that cannot be taken is rejected alone: SDKs drop a whole batch on 400, so a refusal of
 * the batch would lose the good ones too (spec/capture-delivery.md, decisions; cases C13, C14). Its
 * reason is for people and names the member. What is odd but can be kept (times that cannot be
 * read, ids that are no strings, lone surrogates) is kept. */
#include "door/capture/posthog_fields.h"

#include "door/capture/identity.h"
#include "json/read.h"

/* What the batch says about all its events. */
struct batch_head {
    struct slice library, library_version;
    bool has_sent_at;
    int64_t sent_at_us;
};

/* ---- the key ---- */

/* A key's text; what is no string, or blank, is none. */
static int key_text(struct capture_batch *b, struct slice value, struct slice *out, struct err *e)
{
    *out = (struct slice){0};
    if (value.len == 0 || json_type_of(value) != JSON_STRING) {
        return 0;
    }
    if (!capture_text(b, value, 0, out)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a key");
    }
    *out = capture_trim(*out);
    return 0;
}

static int first_key(struct capture_batch *b, const struct slice *values, size_t n,
                     struct slice *out, struct err *e)
{
    int r = 0;
    *out = (struct slice){0};
    for (size_t i = 0; i < n && r == 0 && out->len == 0; i++) {
        r = key_text(b, values[i], out, e);
    }
    return r;
}

/* Events of one request are for one project. One that names no key goes with the others. */
static int agree(struct capture_batch *b, const struct posthog_object *o, struct err *e)
{
    const struct slice places[] = {o->member[MEMBER_TOKEN], o->member[MEMBER_DOLLAR_TOKEN],
                                   o->member[MEMBER_API_KEY], o->property[PROPERTY_TOKEN]};
    struct slice key;
    int r = first_key(b, places, sizeof places / sizeof places[0], &key, e);
    if (r != 0 || key.len == 0) {
        return r;
    }
    if (b->token.len == 0) {
        b->token = key;
    }
    return slice_eq(key, b->token)
               ? 0
               : err_set(e, ERR_UNAUTHORIZED, "the events have different tokens");
}

static int check_token(const struct capture_batch *b, struct err *e)
{
    struct slice t = b->token;
    if (t.len == 0) {
        return err_set(e, ERR_UNAUTHORIZED, "there is no token: api_key or token is needed");
    }
    if (t.len > 64) {
        return err_set(e, ERR_UNAUTHORIZED, "the token is longer than 64 bytes");
    }
    for (size_t i = 0; i < t.len; i++) {
        if ((unsigned char)t.ptr[i] < 0x20 || (unsigned char)t.ptr[i] > 0x7e) {
            return err_set(e, ERR_UNAUTHORIZED, "the token has characters that are not ASCII");
        }
    }
    if (slice_starts(t, SLICE("phx_"))) {
        return err_set(e, ERR_UNAUTHORIZED,
                       "this is a personal API key; events need the token of a project");
    }
    return 0;
}

/* ---- one event ---- */

/* "" or what is wrong with it. */
static const char *take_name(struct capture_batch *b, struct slice value, struct queue_event *q,
                             bool *memory)
{
    if (value.len == 0) {
        q->event = SLICE("$identify");
        return slice_eq(b->call, SLICE("engage")) ? NULL : "event is missing";
    }
    if (json_type_of(value) != JSON_STRING) {
        return "event must be a string";
    }
    *memory = capture_text(b, value, 0, &q->event);
    return q->event.len == 0 ? "event must not be empty" : NULL;
}

static bool is_blank(struct slice s)
{
    return capture_trim(s).len == 0;
}

static const char *take_id(struct capture_batch *b, const struct posthog_object *o,
                           struct queue_event *q, bool *memory)
{
    const struct slice places[] = {o->member[MEMBER_DISTINCT_ID],
                                   o->member[MEMBER_DOLLAR_DISTINCT_ID],
                                   o->property[PROPERTY_DISTINCT_ID]};
    struct slice mode = o->property[PROPERTY_COOKIELESS_MODE];
    if (mode.len > 0) {
        enum json_type type = json_type_of(mode);
        if (type != JSON_TRUE && type != JSON_FALSE) {
            return "properties.$cookieless_mode must be true or false";
        }
        if (type == JSON_TRUE) {
            q->distinct_id = SLICE(POSTHOG_COOKIELESS_ID);
            return NULL;
        }
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (!capture_text(b, places[i], POSTHOG_ID_CHARS_MAX, &q->distinct_id)) {
            *memory = false;
            return NULL;
        }
        if (!is_blank(q->distinct_id)) {
            return NULL;
        }
    }
    return "distinct_id is missing";
}

static const char *take_uuid(struct capture_batch *b, struct slice value, struct queue_event *q,
                             bool *memory)
{
    struct slice text;
    if (value.len == 0) {
        return NULL;
    }
    if (json_type_of(value) != JSON_STRING) {
        return "uuid must be a string";
    }
    *memory = capture_text(b, value, 0, &text);
    if (text.len == 0) {
        return NULL;
    }
    /* The nil UUID stays what it is to the door: none. */
    return identity_parse_loose(text, &q->uuid) ? NULL : "uuid is not a UUID";
}

static const char *take_fields(struct capture_batch *b, const struct posthog_object *o,
                               struct queue_event *q, bool *memory)
{
    struct slice properties = o->member[MEMBER_PROPERTIES];
    const char *bad = take_name(b, o->member[MEMBER_EVENT], q, memory);
    if (bad == NULL && properties.len > 0 && json_type_of(properties) != JSON_OBJECT) {
        bad = "properties must be an object";
    }
    if (bad == NULL && *memory) {
        bad = take_uuid(b, o->member[MEMBER_UUID], q, memory);
    }
    if (bad == NULL && *memory) {
        bad = take_id(b, o, q, memory);
    }
    return bad;
}

static void take_times(const struct capture_batch *b, const struct batch_head *head,
                       const struct posthog_object *o, struct queue_event *q)
{
    struct slice ignore = o->property[PROPERTY_IGNORE_SENT_AT];
    struct posthog_clock clock = {.has_sent_at = head->has_sent_at,
                                  .sent_at_us = head->sent_at_us,
                                  .ignore_sent_at =
                                      ignore.len > 0 && json_type_of(ignore) == JSON_TRUE};
    if (!clock.has_sent_at) {
        clock.has_sent_at = posthog_time(o->member[MEMBER_SENT_AT], &clock.sent_at_us);
    }
    if (!clock.has_sent_at && b->head_sent_at_ms != 0) {
        clock.has_sent_at = true;
        clock.sent_at_us = b->head_sent_at_ms * 1000;
    }
    posthog_times(b, &clock, o->member[MEMBER_TIMESTAMP], o->member[MEMBER_OFFSET], q);
}

static int add_event(struct capture_batch *b, const struct batch_head *head, bool has_key,
                     struct slice value, uint32_t index, struct err *e)
{
    struct posthog_object o;
    bool memory = true;
    if (json_type_of(value) != JSON_OBJECT) {
        struct capture_event *other = capture_add(b, index, e);
        if (other == NULL) {
            return e->code;
        }
        other->ev.text = value;
        capture_reject(b, other, "an event must be an object");
        return 0;
    }
    posthog_read(value, &o);
    int r = has_key ? 0 : agree(b, &o, e);
    if (r != 0 || posthog_is(o.member[MEMBER_EVENT], "$performance_event")) {
        return r; /* nobody wants these any more (spec/capture.md A2 step 8) */
    }
    struct capture_event *ev = capture_add(b, index, e);
    if (ev == NULL) {
        return e->code;
    }
    ev->ev.text = value;
    const char *bad = take_fields(b, &o, &ev->ev, &memory);
    memory = memory && posthog_columns(b, &o, &ev->ev);
    if (!memory) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an event");
    }
    if (ev->ev.library.len == 0) {
        ev->ev.library = head->library;
        ev->ev.library_version = head->library_version;
    }
    take_times(b, head, &o, &ev->ev);
    if (bad != NULL) {
        capture_reject(b, ev, bad);
    }
    return 0;
}

/* ---- shapes ---- */

static int add_events(struct capture_batch *b, const struct batch_head *head, bool has_key,
                      struct slice array, struct err *e)
{
    struct json_iter it = json_iter_array(array);
    struct slice value;
    uint32_t index = 0;
    int r = 0;
    while (r == 0 && json_next_element(&it, &value)) {
        r = add_event(b, head, has_key, value, index, e);
        index++;
    }
    return r == 0 && index == 0 ? err_set(e, ERR_INVALID_EVENT, "the batch has no events") : r;
}

static int read_batch(struct capture_batch *b, const struct posthog_object *o, struct err *e)
{
    const struct slice places[] = {o->member[MEMBER_API_KEY], o->member[MEMBER_TOKEN]};
    struct batch_head head = {0};
    if (json_type_of(o->member[MEMBER_BATCH]) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID_EVENT, "batch must be an array");
    }
    int r = first_key(b, places, sizeof places / sizeof places[0], &b->token, e);
    if (r != 0) {
        return r;
    }
    head.has_sent_at = posthog_time(o->member[MEMBER_SENT_AT], &head.sent_at_us);
    /* Every event of the batch gets these: without a bound a long one would be stored 50,000 times
     * over, beside the queue's budget. */
    if (!capture_text(b, o->member[MEMBER_LIBRARY], POSTHOG_ID_CHARS_MAX, &head.library) ||
        !capture_text(b, o->member[MEMBER_LIBRARY_VERSION], POSTHOG_ID_CHARS_MAX,
                      &head.library_version)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a batch");
    }
    return add_events(b, &head, b->token.len > 0, o->member[MEMBER_BATCH], e);
}

int posthog_parse(struct capture_batch *b, struct slice json, struct err *e)
{
    static const struct batch_head none;
    struct posthog_object o;
    int r;
    switch (json_type_of(json)) {
    case JSON_ARRAY:
        r = add_events(b, &none, false, json, e);
        break;
    case JSON_OBJECT:
        posthog_read(json, &o);
        if (o.member[MEMBER_BATCH].len > 0) {
            r = read_batch(b, &o, e);
        } else {
            b->single = true;
            r = add_event(b, &none, false, json, 0, e);
        }
        break;
    case JSON_BAD:
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
    case JSON_NUMBER:
    case JSON_STRING:
    default:
        r = err_set(e, ERR_INVALID_EVENT,
                    "the body must be an event, an array of events, or an "
                    "object with a batch");
        break;
    }
    return r == 0 ? check_token(b, e) : r;
}
