/* posthog_fields: what PostHog's two protocols have in common about an event. */
#ifndef DOOR_CAPTURE_POSTHOG_FIELDS_H
#define DOOR_CAPTURE_POSTHOG_FIELDS_H

#include "door/capture/internal.h"

#define POSTHOG_ID_CHARS_MAX 200
/* Who an event is about when it must not say who. */
#define POSTHOG_COOKIELESS_ID "$posthog_cookieless"

/* X(symbol, name) */
#define POSTHOG_MEMBERS(X)                \
    X(EVENT, "event")                     \
    X(DISTINCT_ID, "distinct_id")         \
    X(DOLLAR_DISTINCT_ID, "$distinct_id") \
    X(UUID, "uuid")                       \
    X(TIMESTAMP, "timestamp")             \
    X(OFFSET, "offset")                   \
    X(SENT_AT, "sent_at")                 \
    X(PROPERTIES, "properties")           \
    X(OPTIONS, "options")                 \
    X(SESSION_ID, "session_id")           \
    X(TOKEN, "token")                     \
    X(DOLLAR_TOKEN, "$token")             \
    X(API_KEY, "api_key")                 \
    X(BATCH, "batch")                     \
    X(CREATED_AT, "created_at")           \
    X(LIBRARY, "library")                 \
    X(LIBRARY_VERSION, "library_version")

#define POSTHOG_PROPERTIES(X)            \
    X(TOKEN, "token")                    \
    X(DISTINCT_ID, "distinct_id")        \
    X(LIB, "$lib")                       \
    X(LIB_VERSION, "$lib_version")       \
    X(SESSION_ID, "$session_id")         \
    X(IGNORE_SENT_AT, "$ignore_sent_at") \
    X(COOKIELESS_MODE, "$cookieless_mode")

#define POSTHOG_OPTIONS(X)                \
    X(COOKIELESS_MODE, "cookieless_mode") \
    X(DISABLE_SKEW_CORRECTION, "disable_skew_correction")

enum posthog_member {
#define X(sym, name) MEMBER_##sym,
    POSTHOG_MEMBERS(X)
#undef X
        MEMBER_COUNT
};
enum posthog_property {
#define X(sym, name) PROPERTY_##sym,
    POSTHOG_PROPERTIES(X)
#undef X
        PROPERTY_COUNT
};
enum posthog_option {
#define X(sym, name) OPTION_##sym,
    POSTHOG_OPTIONS(X)
#undef X
        OPTION_COUNT
};

/* Values as they are written; absent ones, and null, are empty. Of a repeated name the last. */
struct posthog_object {
    struct slice member[MEMBER_COUNT];
    struct slice property[PROPERTY_COUNT]; /* of the member `properties`, when that is an object */
    struct slice option[OPTION_COUNT];     /* of `options` */
};
void posthog_read(struct slice object, struct posthog_object *out);

struct posthog_clock {
    bool has_sent_at;
    int64_t sent_at_us;
    bool ignore_sent_at;
};
/* timestamp and offset (JSON values, empty when absent) to the times of an event. */
void posthog_times(const struct capture_batch *b, const struct posthog_clock *clock,
                   struct slice timestamp, struct slice offset, struct queue_event *q);
/* A time that is a string or a number; strict: a string of RFC 3339. */
bool posthog_time(struct slice value, int64_t *us);
bool posthog_time_strict(struct slice value, int64_t *us);

/* The texts of an event that both protocols take from its properties. false: no memory. */
bool posthog_columns(struct capture_batch *b, const struct posthog_object *o,
                     struct queue_event *q);

bool posthog_is(struct slice value, const char *text); /* a JSON string that says this */

#endif
