/* posthog_v1: the body of POST /i/v1/analytics/events (spec/capture.md A8).
 *
 *   {"created_at":RFC 3339,"batch":[{"event","uuid","distinct_id","timestamp","session_id"?,
 *     "options"?:{},"properties"?:{}}...]}
 *
 * Every event has its own result, found by its UUID: so UUIDs that are missing, none, or there
 * twice refuse the batch (400), and everything else that is wrong with an event is a `drop` of that
 * event alone, which its client reports. `retry` is never answered: what cannot be stored now
 * cannot be stored for the whole request, and that is a 503, which these clients retry too. Ids
 * that mean nobody ("anonymous", "0") are taken; what to make of them is for queries.
 *
 * The time of sending is PostHog-Request-Timestamp, the client's clock when it sent, not
 * created_at, which stays the same over retries. */
#include <stdlib.h>

#include "door/capture/identity.h"
#include "door/capture/posthog_fields.h"
#include "json/read.h"

/* A string of 1 to max characters without the blanks around it, or what is wrong. */
struct text_rule {
    size_t chars_max;
    const char *missing, *long_;
};

static size_t chars_of(struct slice s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80 ? 1 : 0;
    }
    return n;
}

static const char *take_text(struct capture_batch *b, struct slice value,
                             const struct text_rule *rule, struct slice *out, bool *memory)
{
    if (value.len == 0 || json_type_of(value) != JSON_STRING) {
        return rule->missing;
    }
    if (!capture_text(b, value, 0, out)) {
        *memory = false;
        return NULL;
    }
    *out = capture_trim(*out);
    if (out->len == 0) {
        return rule->missing;
    }
    return chars_of(*out) > rule->chars_max ? rule->long_ : NULL;
}

static bool is_bool(struct slice value)
{
    enum json_type type = json_type_of(value);
    return type == JSON_TRUE || type == JSON_FALSE;
}

/* An object where there is anything, and flags that are flags. */
static const char *check_types(const struct posthog_object *o)
{
    struct slice properties = o->member[MEMBER_PROPERTIES];
    struct slice options = o->member[MEMBER_OPTIONS];
    if (properties.len > 0 && json_type_of(properties) != JSON_OBJECT) {
        return "properties must be an object";
    }
    if (options.len > 0 && json_type_of(options) != JSON_OBJECT) {
        return "options must be an object";
    }
    struct slice mode = o->option[OPTION_COOKIELESS_MODE];
    if (mode.len > 0 && !is_bool(mode)) {
        return "options.cookieless_mode must be true or false";
    }
    struct slice skew = o->option[OPTION_DISABLE_SKEW_CORRECTION];
    if (skew.len > 0 && !is_bool(skew)) {
        return "options.disable_skew_correction must be true or false";
    }
    return NULL;
}

static bool is_true(struct slice value)
{
    return value.len > 0 && json_type_of(value) == JSON_TRUE;
}

static const char *take_fields(struct capture_batch *b, const struct posthog_object *o,
                               struct queue_event *q, bool *memory)
{
    static const struct text_rule name = {POSTHOG_ID_CHARS_MAX, "event is missing",
                                          "event has more than 200 characters"};
    static const struct text_rule id = {POSTHOG_ID_CHARS_MAX, "distinct_id is missing",
                                        "distinct_id has more than 200 characters"};
    const char *bad = check_types(o);
    int64_t us;
    if (bad == NULL) {
        bad = take_text(b, o->member[MEMBER_EVENT], &name, &q->event, memory);
    }
    if (bad == NULL && is_true(o->option[OPTION_COOKIELESS_MODE])) {
        q->distinct_id = SLICE(POSTHOG_COOKIELESS_ID);
    } else if (bad == NULL) {
        bad = take_text(b, o->member[MEMBER_DISTINCT_ID], &id, &q->distinct_id, memory);
    }
    if (bad == NULL && !posthog_time_strict(o->member[MEMBER_TIMESTAMP], &us)) {
        bad = "timestamp must be a time of RFC 3339";
    }
    return bad;
}

static int take_uuid(struct capture_batch *b, const struct posthog_object *o,
                     struct capture_event *ev, struct err *e)
{
    struct slice value = o->member[MEMBER_UUID];
    if (value.len == 0 || json_type_of(value) != JSON_STRING) {
        return err_set(e, ERR_INVALID_EVENT, "event %u of the batch has no uuid", ev->index);
    }
    if (!capture_text(b, value, 0, &ev->given_uuid)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an event");
    }
    if (!identity_parse_loose(ev->given_uuid, &ev->ev.uuid) || uuid_is_zero(&ev->ev.uuid)) {
        return err_set(e, ERR_INVALID_EVENT, "the uuid of event %u of the batch is none",
                       ev->index);
    }
    return 0;
}

static int add_event(struct capture_batch *b, struct slice value, uint32_t index, struct err *e)
{
    struct posthog_object o;
    bool memory = true;
    struct capture_event *ev = capture_add(b, index, e);
    if (ev == NULL) {
        return e->code;
    }
    if (json_type_of(value) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_EVENT, "event %u of the batch is no object", index);
    }
    posthog_read(value, &o);
    ev->ev.text = value;
    int r = take_uuid(b, &o, ev, e);
    if (r != 0) {
        return r;
    }
    const char *bad = take_fields(b, &o, &ev->ev, &memory);
    memory = memory && posthog_columns(b, &o, &ev->ev);
    if (!memory) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an event");
    }
    ev->ev.library = b->sdk;
    ev->ev.library_version = b->sdk_version;
    struct posthog_clock clock = {.has_sent_at = b->head_sent_at_ms != 0,
                                  .sent_at_us = b->head_sent_at_ms * 1000,
                                  .ignore_sent_at =
                                      is_true(o.option[OPTION_DISABLE_SKEW_CORRECTION])};
    posthog_times(b, &clock, o.member[MEMBER_TIMESTAMP], (struct slice){0}, &ev->ev);
    if (bad != NULL) {
        capture_reject(b, ev, bad);
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    return uuid_cmp(a, b);
}

static int check_unique(struct capture_batch *b, struct err *e)
{
    struct uuid *all = arena_calloc(&b->arena, b->count, sizeof *all);
    if (all == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a batch");
    }
    for (size_t i = 0; i < b->count; i++) {
        all[i] = b->event[i].ev.uuid;
    }
    qsort(all, b->count, sizeof *all, compare);
    for (size_t i = 1; i < b->count; i++) {
        if (uuid_cmp(&all[i - 1], &all[i]) == 0) {
            char text[UUID_TEXT_LEN];
            uuid_text(text, &all[i]);
            return err_set(e, ERR_INVALID_EVENT, "the uuid %.*s is in the batch twice",
                           UUID_TEXT_LEN, text);
        }
    }
    return 0;
}

int posthog_v1_parse(struct capture_batch *b, struct slice json, struct err *e)
{
    struct posthog_object o;
    int64_t created_us;
    if (json_type_of(json) != JSON_OBJECT) {
        return err_set(e, ERR_INVALID_EVENT, "the body must be an object with a batch");
    }
    posthog_read(json, &o);
    if (!posthog_time_strict(o.member[MEMBER_CREATED_AT], &created_us)) {
        return err_set(e, ERR_INVALID_EVENT, "created_at must be a time of RFC 3339");
    }
    struct slice batch = o.member[MEMBER_BATCH];
    if (batch.len == 0 || json_type_of(batch) != JSON_ARRAY) {
        return err_set(e, ERR_INVALID_EVENT, "batch must be an array");
    }
    struct slice sdk = b->sdk;
    struct slice version = b->sdk_version;
    if (!capture_plain(b, sdk, POSTHOG_ID_CHARS_MAX, &b->sdk) ||
        !capture_plain(b, version, POSTHOG_ID_CHARS_MAX, &b->sdk_version)) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a batch");
    }
    struct json_iter it = json_iter_array(batch);
    struct slice value;
    int r = 0;
    for (uint32_t i = 0; r == 0 && json_next_element(&it, &value); i++) {
        r = add_event(b, value, i, e);
    }
    if (r == 0 && b->count == 0) {
        r = err_set(e, ERR_INVALID_EVENT, "the batch has no events");
    }
    return r == 0 ? check_unique(b, e) : r;
}
