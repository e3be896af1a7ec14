/* Packing and unpacking; see the header for the layout. */
#include "journal/event_id.h"

#include "base/ensure.h"

struct uuid event_id_make(struct event_id_parts p)
{
    ensure(p.ms <= EVENT_ID_MS_MAX);
    ensure(p.group <= EVENT_ID_GROUP_MAX);
    ensure(p.tag <= EVENT_ID_TAG_MAX);
    uint64_t hi = p.ms << 16 | UINT64_C(7) << 12 | p.group >> 32;
    uint64_t lo =
        UINT64_C(2) << 62 | (p.group & 0xffffffffu) << 30 | (uint64_t)p.tag << 16 | p.index;
    struct uuid id;
    for (int i = 0; i < 8; i++) {
        id.byte[i] = (uint8_t)(hi >> (56 - 8 * i));
        id.byte[8 + i] = (uint8_t)(lo >> (56 - 8 * i));
    }
    return id;
}

struct event_id_parts event_id_split(const struct uuid *id)
{
    uint64_t hi = 0;
    uint64_t lo = 0;
    for (int i = 0; i < 8; i++) {
        hi = hi << 8 | id->byte[i];
        lo = lo << 8 | id->byte[8 + i];
    }
    return (struct event_id_parts){
        .ms = hi >> 16,
        .group = (hi & 0xfff) << 32 | (lo >> 30 & 0xffffffffu),
        .tag = (uint16_t)(lo >> 16 & EVENT_ID_TAG_MAX),
        .index = (uint16_t)(lo & EVENT_ID_INDEX_MAX),
    };
}
