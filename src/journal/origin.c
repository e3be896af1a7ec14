/* The rules are in the header; pure functions of two ids. */
#include "journal/origin.h"

#include "journal/event_id.h"

/* Two neighbours of another program share the tag by chance once in 16,384; a group that falls, or
 * jumps this far, is no journal of ours. */
#define FOREIGN_GAP (UINT64_C(1) << 32)

enum origin origin_behind(enum origin before, const struct uuid *last, const struct uuid *id,
                          bool at_ms)
{
    struct event_id_parts b = event_id_split(id);
    if (!at_ms) {
        return ORIGIN_FOREIGN;
    }
    if (last == NULL) {
        if (b.group != 0 || b.index != 0) {
            return ORIGIN_FOREIGN;
        }
        return b.tag != 0 ? ORIGIN_OWN : ORIGIN_UNKNOWN; /* with tag 0 it may be a plain counter */
    }
    struct event_id_parts a = event_id_split(last);
    if (a.tag != b.tag) {
        return ORIGIN_FOREIGN;
    }
    if (b.group == event_id_next_group(a.group) && b.index == 0) {
        return ORIGIN_OWN;
    }
    if (b.group == a.group) {
        return b.ms == a.ms ? before : ORIGIN_FOREIGN;
    }
    return b.group < a.group || b.group - a.group > FOREIGN_GAP ? ORIGIN_FOREIGN : before;
}

static bool own_follows(const struct uuid *last, const struct uuid *id)
{
    if (uuid_cmp(id, last) <= 0) {
        return false;
    }
    struct event_id_parts a = event_id_split(last);
    struct event_id_parts b = event_id_split(id);
    if (a.tag != b.tag) {
        return true;
    }
    if (b.group == a.group) {
        return b.index == a.index + 1 && b.ms == a.ms;
    }
    if (b.group < a.group || b.group - a.group > FOREIGN_GAP) {
        return true;
    }
    return b.group == a.group + 1 && b.index == 0;
}

bool origin_follows(enum origin o, const struct uuid *last, const struct uuid *id)
{
    return o == ORIGIN_OWN ? own_follows(last, id) : uuid_cmp(id, last) > 0;
}
