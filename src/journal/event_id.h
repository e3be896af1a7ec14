/* event_id: the layout of Tallyman's event ids (ARCHITECTURE 2.2), a UUIDv7:
 *
 *   bits 127..80  milliseconds since 1970
 *   bits  79..76  version 7
 *   bits  75..64  group number, bits 43..32
 *   bits  63..62  variant 2
 *   bits  61..30  group number, bits 31..0
 *   bits  29..16  journal tag
 *   bits  15..0   index in the group
 *
 * Group numbers are consecutive over the life of a journal, so byte order of ids is log order, and
 * the leftover of an old group can never pass for a new one. */
#ifndef JOURNAL_EVENT_ID_H
#define JOURNAL_EVENT_ID_H

#include <stdint.h>

#include "base/uuid.h"

#define EVENT_ID_GROUP_MAX ((UINT64_C(1) << 44) - 1)
#define EVENT_ID_TAG_MAX   0x3fffu
#define EVENT_ID_INDEX_MAX 0xffffu
#define EVENT_ID_MS_MAX    ((UINT64_C(1) << 48) - 1)

struct event_id_parts {
    uint64_t ms;
    uint64_t group;
    uint16_t tag;
    uint16_t index;
};

/* Ranges are ensured. */
struct uuid event_id_make(struct event_id_parts p);
struct event_id_parts event_id_split(const struct uuid *id);
/* Behind the highest number, which only another program's ids can have brought us to, comes 0, in a
 * later millisecond. */
static inline uint64_t event_id_next_group(uint64_t group)
{
    return group == EVENT_ID_GROUP_MAX ? 0 : group + 1;
}

#endif
