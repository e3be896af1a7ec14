/* capture: the events that W3 and W7 send, from one fixed seed.
 *
 * Events are numbered. Number g is a JSON object of exactly 500 bytes and its uuid, both functions
 * of g, so whoever knows which numbers were acknowledged knows what must be stored. Numbers below
 * `prefilled` are receipts that were there before the clock started. One event in a hundred is a
 * repeat, byte for byte: of a prefilled one (long ago, by chance) or of one that the same load sent
 * `distance` events earlier; which numbers are repeats depends on the number alone.
 *
 * UUIDs are version 4, random over the whole range, or version 7 with 100 events a millisecond. A
 * batch is 50 events as posthog-node sends them. */
#ifndef BENCH_CAPTURE_H
#define BENCH_CAPTURE_H

#include <stdbool.h>

#include "bench/meter.h"
#include "bench/payload.h"

#define CAPTURE_BATCH         50u
#define CAPTURE_EVENT_LEN     500u
#define CAPTURE_UUID_AT       29u /* offset of the uuid's text in an event */
#define CAPTURE_UUID_LEN      36u
#define CAPTURE_FORMS         (POOL_BATCHES * CAPTURE_BATCH)
#define CAPTURE_REPEAT_ONE_IN 100u
#define CAPTURE_MS_FIRST      UINT64_C(1795996800000)
#define CAPTURE_PER_MS        100u

struct capture_ids {
    bool v7;
    uint64_t prefilled;
    uint64_t first;    /* number of this load's first event, at least `prefilled` */
    uint64_t distance; /* events; more than are in flight at a time */
};

static inline bool capture_kind(const char *text, bool *v7)
{
    *v7 = strcmp(text, "v7") == 0;
    return *v7 || strcmp(text, "random") == 0;
}

/* How many events back a repeat of the same load looks: answered long ago. */
static inline uint64_t capture_distance(uint32_t conns)
{
    return (uint64_t)CAPTURE_BATCH * (2u * conns + 16u);
}

/* The number whose event stands at number g: g itself, or what it repeats. */
static inline uint64_t capture_resolve(const struct capture_ids *ids, uint64_t g)
{
    for (;;) {
        uint64_t state = g ^ UINT64_C(0x7265706561740000);
        uint64_t chance = payload_next(&state);
        bool old = (chance >> 40 & 1u) != 0;
        if (chance % CAPTURE_REPEAT_ONE_IN != 0) {
            return g;
        }
        if (old && ids->prefilled > 0) {
            return payload_next(&state) % ids->prefilled;
        }
        if (old || g < ids->first + ids->distance) {
            return g;
        }
        g -= ids->distance;
    }
}

static inline void capture_uuid(const struct capture_ids *ids, uint64_t g, uint8_t out[16])
{
    uint64_t state = PAYLOAD_SEED ^ g * UINT64_C(0x2545f4914f6cdd1d);
    uint64_t half[2];
    half[0] = payload_next(&state);
    half[1] = payload_next(&state);
    memcpy(out, half, sizeof half);
    out[6] = (uint8_t)((ids->v7 ? 0x70u : 0x40u) | (out[6] & 15u));
    out[8] = (uint8_t)(0x80u | (out[8] & 63u));
    if (ids->v7) {
        uint64_t ms = CAPTURE_MS_FIRST + g / CAPTURE_PER_MS;
        for (unsigned i = 0; i < 6; i++) {
            out[i] = (uint8_t)(ms >> (40 - 8 * i));
        }
    }
}

static inline void capture_uuid_text(const uint8_t uuid[16], char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            *out++ = '-';
        }
        *out++ = digits[uuid[i] >> 4];
        *out++ = digits[uuid[i] & 15u];
    }
}

/* One of CAPTURE_FORMS bodies of an event, with room for its uuid. */
static inline void capture_form(uint32_t number, char out[CAPTURE_EVENT_LEN + 1])
{
    struct payload_fields f;
    payload_fields(number, &f);
    int n = snprintf(
        out, CAPTURE_EVENT_LEN + 1,
        "{\"event\":\"page_view\",\"uuid\":\"00000000-0000-0000-0000-000000000000\","
        "\"distinct_id\":\"%016" PRIx64 "\",\"timestamp\":\"2026-11-30T%02u:%02u:%02u.%03uZ\","
        "\"properties\":{\"$current_url\":\"https://shop.example/item/%06u\",\"$lib\":\"web\","
        "\"$lib_version\":\"1.130.1\",\"$browser\":\"Chrome\",\"$browser_version\":119,"
        "\"$os\":\"Linux\",\"$session_id\":\"%016" PRIx64 "\",\"price\":%u.50,\"returning\":true,"
        "\"screen\":[1440,900],\"note\":\"",
        f.person, f.second / 3600u, f.second / 60u % 60u, f.second % 60u, f.millisecond, f.page,
        f.session, f.price);
    ensure(n > 0);
    size_t used = (size_t)n;
    ensure(used + 3 < CAPTURE_EVENT_LEN);
    size_t note_len = CAPTURE_EVENT_LEN - used - 3;
    ensure(note_len <= PAYLOAD_NOTE_MAX);
    memcpy(out + used, f.note, note_len);
    memcpy(out + used + note_len, "\"}}", 4);
    ensure(memcmp(out + CAPTURE_UUID_AT - 8, "\"uuid\":\"0", 9) == 0);
}

struct capture_forms {
    char form[CAPTURE_FORMS][CAPTURE_EVENT_LEN + 1];
};

static inline struct capture_forms *capture_forms_new(void)
{
    struct capture_forms *f = must_alloc(sizeof *f);
    for (uint32_t i = 0; i < CAPTURE_FORMS; i++) {
        capture_form(i, f->form[i]);
    }
    return f;
}

/* The text of number g (resolved already), 500 bytes without a NUL. */
static inline void capture_event(const struct capture_forms *f, const struct capture_ids *ids,
                                 uint64_t g, char *out)
{
    uint8_t uuid[16];
    capture_uuid(ids, g, uuid);
    memcpy(out, f->form[g % CAPTURE_FORMS], CAPTURE_EVENT_LEN);
    capture_uuid_text(uuid, out + CAPTURE_UUID_AT);
}

/* How many different new events stand at the numbers from ids->first to end. */
static inline uint64_t capture_distinct(const struct capture_ids *ids, uint64_t end)
{
    uint64_t count = 0;
    for (uint64_t g = ids->first; g < end; g++) {
        count += capture_resolve(ids, g) == g ? 1u : 0u;
    }
    return count;
}

#endif
