/* Batches out of three numbers, and those that were made before. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/line.h"
#include "tests/lib/journal_kit_internal.h"

#define TEXT_OVERHEAD 160 /* of one event, beside its payload's filling */

uint64_t kit_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t kit_chance(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return kit_mix(*state);
}

/* ---- batches ---- */

static struct slice put(char **p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static struct slice put(char **p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(*p, TEXT_OVERHEAD, fmt, ap);
    va_end(ap);
    ensure(n > 0 && n < TEXT_OVERHEAD);
    struct slice s = slice_of(*p, (size_t)n);
    *p += n;
    return s;
}

static void make_event(struct kit_batch *kb, uint32_t i, char **p)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const struct kit_spec *spec = &kb->spec;
    struct journal_event *ev = &kb->events[i];
    uint64_t chance = kit_mix((uint64_t)spec->number << 20 | i);
    ev->stream = put(p, "\"st-%u\"", (spec->number + i) % 3);
    ev->record_key = put(p, "\"key-%u-%u\"", spec->number, i);
    ev->kind = i % 5 == 4 ? SLICE("\"deleted\"") : SLICE("\"upserted\"");
    if ((spec->number + i) % 2 == 1) {
        ev->occurred_at = put(p, "\"2026-01-02T03:04:05.%uZ\"", i % 10);
    }
    char *payload = *p;
    (void)put(p, "{\"n\":%u,\"x\":\"", spec->number);
    uint64_t bits = 0;
    for (uint32_t k = 0; k < spec->payload_bytes; k++, bits >>= 6) {
        bits = k % 10 == 0 ? kit_chance(&chance) : bits;
        *(*p)++ = letters[bits & 63];
    }
    (void)put(p, "\"}");
    ev->payload = slice_of(payload, (size_t)(*p - payload));
    sha256_once(ev->payload, ev->content_hash);
}

void kit_batch_make(struct kit_batch *kb, struct kit_spec spec)
{
    *kb = (struct kit_batch){.spec = spec};
    kb->events = calloc(spec.count, sizeof *kb->events);
    kb->text =
        malloc((size_t)spec.count * (spec.payload_bytes + TEXT_OVERHEAD * 2) + TEXT_OVERHEAD);
    ensure(kb->events != NULL);
    ensure(kb->text != NULL);
    (void)snprintf(kb->source, sizeof kb->source, "\"src-%u\"", spec.number % 2);
    (void)snprintf(kb->batch_id, sizeof kb->batch_id, "\"b-%u\"", spec.number);
    kb->batch.source = slice_cstr(kb->source);
    kb->batch.batch_id = slice_cstr(kb->batch_id);
    kb->batch.events = kb->events;
    kb->batch.count = spec.count;
    char *p = kb->text;
    struct chain_digest d;
    struct buf scratch = {0};
    chain_digest_start(&d);
    for (uint32_t i = 0; i < spec.count; i++) {
        const struct journal_event *ev = &kb->events[i];
        char hex[SHA256_HEX_LEN];
        make_event(kb, i, &p);
        hex_encode(hex, ev->content_hash, SHA256_LEN);
        bool ok = chain_digest_event(&d, &scratch, slice_of(hex, sizeof hex), ev->kind,
                                     ev->occurred_at, ev->record_key, ev->stream);
        ensure(ok);
    }
    chain_digest_end(&d, kb->batch.source, kb->batch.digest);
    buf_free(&scratch);
}

void kit_batch_free(struct kit_batch *kb)
{
    free(kb->events);
    free(kb->text);
    *kb = (struct kit_batch){0};
}

uint64_t kit_batch_bytes(const struct kit_batch *kb)
{
    static const char filler[SHA256_HEX_LEN];
    uint64_t n = 0;
    for (uint32_t i = 0; i < kb->batch.count; i++) {
        const struct journal_event *ev = &kb->events[i];
        struct line l = {.batch_digest = slice_of(filler, SHA256_HEX_LEN),
                         .batch_id = kb->batch.batch_id,
                         .batch_len = kb->batch.count,
                         .kind = ev->kind,
                         .occurred_at = ev->occurred_at,
                         .payload = ev->payload,
                         .record_key = ev->record_key,
                         .source = kb->batch.source,
                         .stream = ev->stream};
        n += line_length(&l);
    }
    return n;
}

/* Batches that were made before, for the kit's own use: the oracle meets the same ones at every
 * state of a crash test, and making one costs more than comparing it. One a slot; a batch that is
 * in use stays, and another one for its slot lives on its own. */
#define KNOWN_SLOTS 1024

static struct kit_known *known_slots[KNOWN_SLOTS];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

struct kit_known *kit_known_batch(struct kit_spec spec)
{
    uint64_t mixed =
        kit_mix((uint64_t)spec.number << 40 ^ (uint64_t)spec.count << 24 ^ spec.payload_bytes);
    struct kit_known **slot = &known_slots[mixed % KNOWN_SLOTS];
    pthread_mutex_lock(&known_lock);
    struct kit_known *k = *slot;
    if (k == NULL || memcmp(&k->kb.spec, &spec, sizeof spec) != 0) {
        bool free_slot = k == NULL || k->users == 0;
        if (k != NULL && free_slot) {
            kit_batch_free(&k->kb);
            free(k);
        }
        k = calloc(1, sizeof *k);
        ensure(k != NULL);
        kit_batch_make(&k->kb, spec);
        k->in_slot = free_slot;
        if (free_slot) {
            *slot = k;
        }
    }
    k->users++;
    pthread_mutex_unlock(&known_lock);
    return k;
}

void kit_known_done(struct kit_known *k)
{
    pthread_mutex_lock(&known_lock);
    if (--k->users == 0 && !k->in_slot) {
        kit_batch_free(&k->kb);
        free(k);
    }
    pthread_mutex_unlock(&known_lock);
}
