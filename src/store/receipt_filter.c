/* A filter of lines of 512 bits, one cache line a key: 32 bits of the hash choose the line, the
 * others the six bits in it. Not stored: it says nothing that the table does not say. */
#include "store/receipt_filter.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define LINE_WORDS 8u
#define PROBES     6u

/* Both halves of a 64 by 64 bit product, folded: every bit in reaches every bit out. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t receipt_hash(const uint64_t seed[2], int64_t project, const uint8_t uuid[16])
{
    uint64_t half[2];

    memcpy(half, uuid, sizeof half);
    return fold(fold(half[0] ^ seed[0], half[1] ^ seed[1]) ^ (uint64_t)project,
                seed[1] | UINT64_C(0x8000000000000001));
}

struct receipt_filter *receipt_filter_new(uint64_t keys, const uint64_t seed[2])
{
    struct receipt_filter *f = calloc(1, sizeof *f);
    uint64_t bytes = RECEIPT_FILTER_BYTES_MIN;

    if (f == NULL) {
        return NULL;
    }
    while (bytes < RECEIPT_FILTER_BYTES_MAX && RECEIPT_FILTER_KEYS_MAX(bytes) / 2 < keys) {
        bytes *= 2;
    }
    f->bytes = bytes;
    memcpy(f->seed, seed, sizeof f->seed);
    f->word = calloc(bytes / sizeof *f->word, sizeof *f->word);
    if (f->word == NULL) {
        free(f);
        return NULL;
    }
    return f;
}

void receipt_filter_free(struct receipt_filter *f)
{
    if (f != NULL) {
        free(f->word);
        free(f);
    }
}

static _Atomic uint64_t *line_of(const struct receipt_filter *f, int64_t project,
                                 const uint8_t uuid[16], uint64_t *bits)
{
    uint64_t h = receipt_hash(f->seed, project, uuid);
    uint64_t lines = f->bytes / (LINE_WORDS * sizeof(uint64_t));

    ensure(lines <= UINT32_MAX);
    *bits = fold(h, f->seed[0] | 1);
    return f->word + ((h >> 32) * lines >> 32) * LINE_WORDS;
}

void receipt_filter_add(struct receipt_filter *f, int64_t project, const uint8_t uuid[16])
{
    uint64_t bits;
    _Atomic uint64_t *line = line_of(f, project, uuid, &bits);

    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(bits >> (9 * i)) & 511;
        atomic_fetch_or_explicit(&line[bit / 64], UINT64_C(1) << bit % 64, memory_order_relaxed);
    }
}

bool receipt_filter_maybe(const struct receipt_filter *f, int64_t project, const uint8_t uuid[16])
{
    uint64_t bits;
    _Atomic uint64_t *line = line_of(f, project, uuid, &bits);

    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(bits >> (9 * i)) & 511;
        uint64_t word = atomic_load_explicit(&line[bit / 64], memory_order_relaxed);
        if ((word >> bit % 64 & 1) == 0) {
            return false;
        }
    }
    return true;
}
