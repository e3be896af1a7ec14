/* segment: the bodies of Segment's HTTP API (spec/capture.md B, spec/client-wire.md 4).
 *
 * Two shapes. A call is one event, and its path says of which type; a batch is
 * {"batch":[...],"writeKey","sentAt","context","integrations"}, and each item says its type. The
 * key may stand behind the events, so all of the batch is looked at first.
 *
 * What becomes of an item, as people know it from Segment's warehouses, whose tables per type are
 * here the column `type`:
 *
 *   type                      event               distinct_id          needs
 *   track                     `event`             userId, else         a name
 *   page, screen              `name`, or empty    anonymousId          -
 *   identify                  empty               "                    -
 *   group                     empty               "                    groupId
 *   alias                     empty               "                    previousId
 *
 * and every one needs userId or anonymousId (numbers count, as they are written). Nothing is
 * invented: a page is no "$pageview". The message id is the identity, in its project and source
 * (finish.c); Segment's limits of 32 KB an event, 500 KB and 2500 events a batch are not ours
 * (cases C47), and who sent it is never asked (cases C50).
 *
 * The context and integrations of a batch belong to each of its events, whose own members win. They
 * are not merged here, so that the stored text stays what came: each event carries them in its
 * `envelope`, and the sink merges. Because one context of a batch is stored as often as there are
 * events, what a request makes of it is bounded like a decoded body.
 *
 * A bad item is rejected alone, with its reason, and the others are kept (cases C13, C14): SDKs
 * drop a whole batch on 400. A bad call is a 400. Segment itself answers 200 and drops it later. */
#include "door/capture/internal.h"
#include "door/capture/segment_fields.h"
#include "json/read.h"

#define TYPES(X) X(track) X(identify) X(page) X(screen) X(group) X(alias)

enum type {
#define X(name) TYPE_##name,
    TYPES(X)
#undef X
        TYPE_COUNT
};
static const struct slice type_names[TYPE_COUNT] = {
#define X(name) {#name, sizeof #name - 1},
    TYPES(X)
#undef X
};

struct outer {
    struct segment_object o;
    struct slice envelope;
    struct slice library, library_version, session_id;
    uint64_t bytes; /* of the texts and envelopes of all events so far */
};

/* ---- one event ---- */

/* What the path says; in a batch, what the item says. */
static const char *take_type(const struct capture_batch *b, struct slice value, enum type *type)
{
    struct slice inner = b->call;
    bool implied = inner.len > 0;
    if (!implied && (value.len == 0 || !json_string_raw(value, &inner))) {
        return value.len == 0 ? "type is missing" : "type must be a string";
    }
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (json_string_is(inner, type_names[i])) {
            *type = (enum type)i;
            return NULL;
        }
    }
    return "type must be track, identify, page, screen, group or alias";
}

/* A string or a number; anything else says nothing. false: no memory. */
static bool plain_text(struct capture_batch *b, struct slice value, struct slice *out)
{
    enum json_type type = value.len == 0 ? JSON_NULL : json_type_of(value);
    *out = (struct slice){0};
    return (type != JSON_STRING && type != JSON_NUMBER) || capture_text(b, value, 0, out);
}

/* A track call is nothing without its name; a page may have one. */
static const char *take_name(struct capture_batch *b, const struct segment_object *o,
                             enum type type, struct queue_event *q, bool *memory)
{
    struct slice value = o->member[type == TYPE_track ? SEGMENT_EVENT : SEGMENT_NAME];
    if (type != TYPE_track && type != TYPE_page && type != TYPE_screen) {
        return NULL;
    }
    if (type == TYPE_track && value.len > 0 && json_type_of(value) != JSON_STRING) {
        return "event must be a string";
    }
    if (!plain_text(b, value, &q->event)) {
        *memory = false;
        return NULL;
    }
    return type == TYPE_track && q->event.len == 0 ? "event, the name of the track call, is missing"
                                                   : NULL;
}

static const char *take_who(struct capture_batch *b, const struct segment_object *o,
                            struct queue_event *q, bool *memory)
{
    const char *bad =
        segment_id(b, o->member[SEGMENT_ANONYMOUS_ID], "anonymousId must be a string or a number",
                   &q->anonymous_id, memory);
    if (bad == NULL) {
        bad = segment_id(b, o->member[SEGMENT_USER_ID], "userId must be a string or a number",
                         &q->distinct_id, memory);
    }
    if (bad != NULL || !*memory) {
        return bad;
    }
    if (q->distinct_id.len == 0) {
        q->distinct_id = q->anonymous_id;
    }
    return q->distinct_id.len == 0 ? "userId or anonymousId is needed" : NULL;
}

/* What a group and an alias are nothing without. */
static const char *check_other(struct capture_batch *b, const struct segment_object *o,
                               enum type type, bool *memory)
{
    struct slice other = {0};
    const char *bad = NULL;
    if (type == TYPE_group) {
        bad = segment_id(b, o->member[SEGMENT_GROUP_ID], "groupId must be a string or a number",
                         &other, memory);
        return bad == NULL && *memory && other.len == 0 ? "groupId is missing" : bad;
    }
    if (type == TYPE_alias) {
        bad = segment_id(b, o->member[SEGMENT_PREVIOUS_ID],
                         "previousId must be a string or a number", &other, memory);
        return bad == NULL && *memory && other.len == 0 ? "previousId is missing" : bad;
    }
    return NULL;
}

static const char *take_fields(struct capture_batch *b, const struct segment_object *o,
                               struct queue_event *q, bool *memory)
{
    enum type type = TYPE_track;
    const char *bad = take_type(b, o->member[SEGMENT_TYPE], &type);
    if (bad == NULL) {
        q->type = type_names[type];
        bad = take_name(b, o, type, q, memory);
    }
    if (bad == NULL && *memory) {
        bad = take_who(b, o, q, memory);
    }
    if (bad == NULL && *memory) {
        bad = check_other(b, o, type, memory);
    }
    if (bad == NULL && *memory) {
        bad = segment_message_id(b, o->member[SEGMENT_MESSAGE_ID], &q->message_id, memory);
    }
    return bad;
}

static bool take_context(struct capture_batch *b, const struct segment_object *o,
                         struct slice *library, struct slice *version, struct slice *session)
{
    return plain_text(b, o->library[SEGMENT_LIBRARY_NAME], library) &&
           plain_text(b, o->library[SEGMENT_LIBRARY_VERSION], version) &&
           plain_text(b, o->context[SEGMENT_CONTEXT_SESSION_ID], session);
}

/* The item's own context wins over the batch's, member by member. */
static bool take_columns(struct capture_batch *b, const struct outer *outer,
                         const struct segment_object *o, struct queue_event *q)
{
    if (!take_context(b, o, &q->library, &q->library_version, &q->session_id)) {
        return false;
    }
    if (o->context[SEGMENT_CONTEXT_LIBRARY].len == 0) {
        q->library = outer->library;
        q->library_version = outer->library_version;
    }
    if (o->context[SEGMENT_CONTEXT_SESSION_ID].len == 0) {
        q->session_id = outer->session_id;
    }
    return true;
}

/* What the batch adds counts as the event's. finish.c looks at the event alone. */
static const char *check_size(const struct capture_batch *b, const struct queue_event *q)
{
    uint64_t max = b->c->options.event_bytes_max;
    if (q->envelope.len == 0 || q->text.len > max || q->text.len + q->envelope.len <= max) {
        return NULL;
    }
    return "the event, with the context of its batch, is larger than an event may be";
}

static int add_event(struct capture_batch *b, struct outer *outer, struct slice value,
                     uint32_t index, struct err *e)
{
    struct segment_object o;
    bool memory = true;
    struct capture_event *ev = capture_add(b, index, e);
    if (ev == NULL) {
        return e->code;
    }
    ev->ev.text = value;
    if (json_type_of(value) != JSON_OBJECT) {
        capture_reject(b, ev, "an event must be an object");
        return 0;
    }
    segment_read(value, &o);
    const char *bad = take_fields(b, &o, &ev->ev, &memory);
    memory = memory && take_columns(b, outer, &o, &ev->ev);
    if (memory) {
        segment_times(b, &o, &outer->o, &ev->ev, &memory);
    }
    if (!memory) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an event");
    }
    ev->ev.envelope = outer->envelope;
    bad = bad != NULL ? bad : check_size(b, &ev->ev);
    if (bad != NULL) {
        capture_reject(b, ev, bad);
    }
    outer->bytes += value.len + outer->envelope.len;
    if (outer->envelope.len > 0 && outer->bytes > b->c->options.decoded_bytes_max) {
        return err_set(e, ERR_BODY_TOO_LARGE,
                       "batch[%u]: the events, each with the context of the batch, have more than "
                       "%llu bytes",
                       index, (unsigned long long)b->c->options.decoded_bytes_max);
    }
    return 0;
}

/* ---- the request ---- */

static int take_key(struct capture_batch *b, struct slice value, struct err *e)
{
    struct slice key = {0};
    if (value.len == 0 || json_type_of(value) != JSON_STRING) {
        return 0;
    }
    if (!capture_text(b, value, 0, &key)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a key");
    }
    while (key.len > 0 && (unsigned char)key.ptr[0] <= ' ') {
        key = slice_from(key, 1);
    }
    while (key.len > 0 && (unsigned char)key.ptr[key.len - 1] <= ' ') {
        key.len--;
    }
    b->token = key;
    return 0;
}

/* An object that says something. */
static bool says(struct slice value)
{
    struct slice name;
    struct slice first;
    if (value.len == 0 || json_type_of(value) != JSON_OBJECT) {
        return false;
    }
    struct json_iter it = json_iter_object(value);
    return json_next_member(&it, &name, &first);
}

/* {"context":{...},"integrations":{...}}, what there is of it; nothing: "". */
static int make_envelope(struct capture_batch *b, struct outer *outer, struct err *e)
{
    static const char head_context[] = "{\"context\":";
    static const char head_integrations[] = "\"integrations\":";
    struct slice context = outer->o.member[SEGMENT_CONTEXT];
    struct slice integrations = outer->o.member[SEGMENT_INTEGRATIONS];
    bool both = says(context) && says(integrations);
    if (!says(context) && !says(integrations)) {
        return 0;
    }
    size_t room =
        sizeof head_context + sizeof head_integrations + 2 + context.len + integrations.len;
    char *text = arena_alloc(&b->arena, room);
    if (text == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the context of a batch");
    }
    struct buf out = {.ptr = text, .cap = room, .limit = room};
    if (says(context)) {
        buf_put_cstr(&out, head_context);
        buf_put_slice(&out, context);
    }
    if (says(integrations)) {
        buf_put_cstr(&out, both ? "," : "{");
        buf_put_cstr(&out, head_integrations);
        buf_put_slice(&out, integrations);
    }
    buf_put_char(&out, '}');
    outer->envelope = buf_slice(&out);
    return 0;
}

static int read_outer(struct capture_batch *b, struct slice json, struct outer *outer,
                      struct err *e)
{
    *outer = (struct outer){0};
    segment_read(json, &outer->o);
    int r = take_key(b, outer->o.member[SEGMENT_WRITE_KEY], e);
    if (r == 0) {
        r = make_envelope(b, outer, e);
    }
    if (r == 0 &&
        !take_context(b, &outer->o, &outer->library, &outer->library_version, &outer->session_id)) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for the context of a batch");
    }
    return r;
}

static int read_batch(struct capture_batch *b, struct slice json, struct err *e)
{
    struct outer outer;
    struct slice value;
    uint32_t index = 0;
    int r = read_outer(b, json, &outer, e);
    if (r != 0) {
        return r;
    }
    struct slice batch = outer.o.member[SEGMENT_BATCH];
    if (batch.len == 0 || json_type_of(batch) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID_EVENT, "batch must be an array of events");
    }
    struct json_iter it = json_iter_array(batch);
    while (r == 0 && json_next_element(&it, &value)) {
        r = add_event(b, &outer, value, index, e);
        index++;
    }
    return r == 0 && index == 0 ? err_set(e, ERR_INVALID_EVENT, "the batch has no events") : r;
}

static int read_call(struct capture_batch *b, struct slice json, struct err *e)
{
    struct outer none = {0};
    struct segment_object o;
    b->single = true;
    segment_read(json, &o);
    int r = take_key(b, o.member[SEGMENT_WRITE_KEY], e);
    return r == 0 ? add_event(b, &none, json, 0, e) : r;
}

int segment_parse(struct capture_batch *b, struct slice json, struct err *e)
{
    if (json_type_of(json) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_EVENT, "the body must be an object");
    }
    return b->call.len > 0 ? read_call(b, json, e) : read_batch(b, json, e);
}
