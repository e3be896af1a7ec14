/* payload: the events every benchmark sends, from one fixed seed.
 *
 * Payload number i is a JSON object of exactly 256 bytes whose members are out of order and whose
 * price has a trailing zero, so that a server that promises canonical JSON has to make it.
 * payload_canonical gives the RFC 8785 text of the same number: bench/verify compares it with what
 * is replayed. Peers get the 256 bytes as they are. */
#ifndef BENCH_PAYLOAD_H
#define BENCH_PAYLOAD_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"

#define PAYLOAD_LEN      256u
#define PAYLOAD_NOTE_MAX 128u
#define PAYLOAD_SEED     0x74616c6c796d616eull

/* Different payloads (one event a batch) or batches (more) that are prepared before the clock
 * starts. */
#define POOL_SINGLES 4096u
#define POOL_BATCHES 16u

/* "k" and seven digits. */
#define RECORD_KEY_LEN 8u

struct payload_fields {
    uint64_t person;
    uint64_t session;
    unsigned page;
    unsigned price;
    unsigned second;
    unsigned millisecond;
    char note[PAYLOAD_NOTE_MAX + 1];
};

static inline uint32_t pool_count(uint32_t events_per_batch)
{
    return events_per_batch == 1 ? POOL_SINGLES : POOL_BATCHES;
}

/* splitmix64: a full-period generator that takes any seed. */
static inline uint64_t payload_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15ull;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline void payload_fields(uint32_t number, struct payload_fields *f)
{
    uint64_t state = PAYLOAD_SEED + number * 0x2545f4914f6cdd1dull;
    f->person = payload_next(&state);
    f->session = payload_next(&state);
    f->page = (unsigned)(payload_next(&state) % 1000000u);
    f->price = 100u + (unsigned)(payload_next(&state) % 900u);
    f->second = (unsigned)(payload_next(&state) % 86400u);
    f->millisecond = (unsigned)(payload_next(&state) % 1000u);
    for (unsigned i = 0; i < PAYLOAD_NOTE_MAX; i++) {
        f->note[i] = "abcdefghijklmnopqrstuvwxyz     ."[payload_next(&state) % 32u];
    }
    f->note[PAYLOAD_NOTE_MAX] = '\0';
}

/* Writes the 256 bytes and a NUL. */
static inline void payload_raw(uint32_t number, char out[PAYLOAD_LEN + 1])
{
    struct payload_fields f;
    payload_fields(number, &f);
    int n = snprintf(out, PAYLOAD_LEN + 1,
                     "{\"event\":\"page_view\",\"timestamp\":\"2026-11-30T%02u:%02u:%02u.%03uZ\","
                     "\"distinct_id\":\"%016" PRIx64 "\",\"properties\":{\"url\":\"/shop/%06u\","
                     "\"price\":%u.50,\"session\":\"%016" PRIx64 "\",\"screen\":[1440,900],"
                     "\"returning\":true,\"note\":\"",
                     f.second / 3600u, f.second / 60u % 60u, f.second % 60u, f.millisecond,
                     f.person, f.page, f.price, f.session);
    ensure(n > 0);
    size_t used = (size_t)n;
    ensure(used + 3 < PAYLOAD_LEN);
    size_t note_len = PAYLOAD_LEN - used - 3;
    ensure(note_len <= PAYLOAD_NOTE_MAX);
    memcpy(out + used, f.note, note_len);
    memcpy(out + used + note_len, "\"}}", 4);
    ensure(strlen(out) == PAYLOAD_LEN);
}

/* The canonical text of the same payload, one byte shorter; returns its length. */
static inline size_t payload_canonical(uint32_t number, char out[PAYLOAD_LEN + 1])
{
    char raw[PAYLOAD_LEN + 1];
    payload_raw(number, raw);
    const char *note = strstr(raw, "\"note\":\"");
    ensure(note != NULL);
    note += strlen("\"note\":\"");
    size_t note_len = (size_t)(raw + PAYLOAD_LEN - 3 - note);
    struct payload_fields f;
    payload_fields(number, &f);
    int n = snprintf(out, PAYLOAD_LEN + 1,
                     "{\"distinct_id\":\"%016" PRIx64 "\",\"event\":\"page_view\","
                     "\"properties\":{\"note\":\"%.*s\",\"price\":%u.5,\"returning\":true,"
                     "\"screen\":[1440,900],\"session\":\"%016" PRIx64 "\",\"url\":\"/shop/%06u\"},"
                     "\"timestamp\":\"2026-11-30T%02u:%02u:%02u.%03uZ\"}",
                     f.person, (int)note_len, note, f.price, f.session, f.page, f.second / 3600u,
                     f.second / 60u % 60u, f.second % 60u, f.millisecond);
    ensure(n == (int)PAYLOAD_LEN - 1);
    return (size_t)n;
}

/* Event index of pooled batch number pool: which payload and key it carries. */
static inline uint32_t payload_number(uint32_t pool, uint32_t events_per_batch, uint32_t index)
{
    return pool * events_per_batch + index;
}

static inline void record_key(uint32_t number, char out[RECORD_KEY_LEN + 1])
{
    int n = snprintf(out, RECORD_KEY_LEN + 1, "k%07u", number % 10000000u);
    ensure(n == (int)RECORD_KEY_LEN);
}

#endif
