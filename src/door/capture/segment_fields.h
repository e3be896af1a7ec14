/* segment_fields: what Segment's calls say, found and read (spec/capture.md B3). */
#ifndef DOOR_CAPTURE_SEGMENT_FIELDS_H
#define DOOR_CAPTURE_SEGMENT_FIELDS_H

#include "door/capture/internal.h"

/* Segment's own limit is 100 characters. */
#define SEGMENT_MESSAGE_ID_MAX 256

/* X(symbol, name): members of a call, of a batch, and of its items. */
#define SEGMENT_MEMBERS(X)                     \
    X(TYPE, "type")                            \
    X(EVENT, "event")                          \
    X(NAME, "name")                            \
    X(USER_ID, "userId")                       \
    X(ANONYMOUS_ID, "anonymousId")             \
    X(GROUP_ID, "groupId")                     \
    X(PREVIOUS_ID, "previousId")               \
    X(MESSAGE_ID, "messageId")                 \
    X(TIMESTAMP, "timestamp")                  \
    X(ORIGINAL_TIMESTAMP, "originalTimestamp") \
    X(SENT_AT, "sentAt")                       \
    X(CONTEXT, "context")                      \
    X(INTEGRATIONS, "integrations")            \
    X(WRITE_KEY, "writeKey")                   \
    X(BATCH, "batch")

#define SEGMENT_CONTEXT(X) \
    X(LIBRARY, "library")  \
    X(SESSION_ID, "sessionId")

#define SEGMENT_LIBRARY(X) \
    X(NAME, "name")        \
    X(VERSION, "version")

enum segment_member {
#define X(sym, name) SEGMENT_##sym,
    SEGMENT_MEMBERS(X)
#undef X
        SEGMENT_MEMBER_COUNT
};
enum segment_context {
#define X(sym, name) SEGMENT_CONTEXT_##sym,
    SEGMENT_CONTEXT(X)
#undef X
        SEGMENT_CONTEXT_COUNT
};
enum segment_library {
#define X(sym, name) SEGMENT_LIBRARY_##sym,
    SEGMENT_LIBRARY(X)
#undef X
        SEGMENT_LIBRARY_COUNT
};

/* Values as they are written; absent ones, and null, are empty. Of a repeated name the last. */
struct segment_object {
    struct slice member[SEGMENT_MEMBER_COUNT];
    struct slice context[SEGMENT_CONTEXT_COUNT]; /* of the member `context`, if that is an object */
    struct slice
        library[SEGMENT_LIBRARY_COUNT]; /* of context.library; a string there is its name */
};
void segment_read(struct slice object, struct segment_object *out);

/* The functions below answer NULL, or what is wrong with the event; *memory becomes false when
 * there was none (the answer does not count then). */

/* An id: a string, or a number as it is written. Blank and absent: empty. */
const char *segment_id(struct capture_batch *b, struct slice value, const char *bad,
                       struct slice *out, bool *memory);
/* The message id as the identity of an event needs it: exact, or empty. */
const char *segment_message_id(struct capture_batch *b, struct slice value, struct slice *out,
                               bool *memory);

/* A time that is a string or a number; false: absent or not to be read. */
bool segment_time(struct capture_batch *b, struct slice value, int64_t *us, bool *memory);
/* The times of an event: its own originalTimestamp or timestamp, and its own sentAt or the batch's.
 */
void segment_times(struct capture_batch *b, const struct segment_object *o,
                   const struct segment_object *outer, struct queue_event *q, bool *memory);

#endif
