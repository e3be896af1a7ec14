/* recent: the last committed events, as they are sent, for followers at the end of the journal.
 *
 * A ring of fixed size, shared by all followers, on the loop thread alone. It holds every event
 * with start < id <= through, without a gap: a follower whose cursor is not below start finds here
 * all that it has yet to get, any other one reads the files. What enters is committed
 * (journal_on_committed). The ids decide what is next, never a count or an offset. */
#ifndef DOOR_HISTORY_RECENT_H
#define DOOR_HISTORY_RECENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/uuid.h"
#include "journal/read.h"

#define RECENT_BYTES     (4u << 20)
#define RECENT_EVENTS    8192u       /* a power of two */
#define RECENT_EVENT_MAX (64u << 10) /* a larger event is for the files */

struct recent_part {
    uint32_t at, len; /* in the event's text */
};

struct recent_event {
    struct uuid id;
    uint32_t at, len; /* of its text in bytes */
    struct recent_part source, stream, record_key, kind;
};

struct recent {
    char *bytes;                 /* RECENT_BYTES; NULL before the first start */
    struct recent_event *events; /* number n is at n mod RECENT_EVENTS */
    uint64_t first, end;         /* numbers of the events that are held: [first, end) */
    uint32_t write_at;
    struct uuid start, through; /* zero: before the first event */
};

/* Empty, from `through` on; makes the memory when there is none yet. false without memory. */
bool recent_start(struct recent *r, const struct uuid *through);
void recent_free(struct recent *r);
/* The lines of a committed group: of every one since the start. */
void recent_add(struct recent *r, struct slice lines);
/* Number of the first event behind cursor, which is not below start (ensured). */
uint64_t recent_find(const struct recent *r, const struct uuid *cursor);
const struct recent_event *recent_at(const struct recent *r, uint64_t n);
struct slice recent_text(const struct recent *r, const struct recent_event *ev);
bool recent_matches(const struct recent *r, const struct recent_event *ev,
                    const struct journal_filter *f);

#endif
