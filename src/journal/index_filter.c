/* Fingerprints are hashes already, so their last bytes serve as they are: 32 bits choose a line of
 * 512 bits (one cache line), six slices of 9 bits the bits in it. The first four bytes, by which
 * runs are sorted, are left alone. */
#include "journal/index_filter.h"

#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"

#define LINE_WORDS   8u /* 512 bits */
#define BITS_PER_KEY 12u
#define PROBES       6u

static_assert(PROBES * 9 <= 64, "the slices come from one 64-bit number");

void index_filter_start(struct index_filter *f, uint64_t key_count)
{
    uint64_t lines = key_count * BITS_PER_KEY / (LINE_WORDS * 64) + 1;

    *f = (struct index_filter){0};
    if (key_count == 0 || lines > UINT32_MAX / LINE_WORDS) {
        return;
    }
    f->words = calloc(lines * LINE_WORDS, sizeof *f->words);
    f->word_count = f->words == NULL ? 0 : (uint32_t)(lines * LINE_WORDS);
}

void index_filter_free(struct index_filter *f)
{
    free(f->words);
    *f = (struct index_filter){0};
}

/* The line of a fingerprint, and the number its bits are cut from. */
static uint64_t *line_of(const struct index_filter *f, const uint8_t fingerprint[16],
                         uint64_t *slices)
{
    uint32_t place;
    uint64_t lines = f->word_count / LINE_WORDS;

    memcpy(&place, fingerprint + 4, sizeof place);
    memcpy(slices, fingerprint + 8, sizeof *slices);
    return f->words + (place * lines >> 32) * LINE_WORDS;
}

void index_filter_add(struct index_filter *f, const uint8_t fingerprint[16])
{
    uint64_t slices;
    uint64_t *line;

    if (f->words == NULL) {
        return;
    }
    line = line_of(f, fingerprint, &slices);
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(slices >> (9 * i)) & 511;
        line[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

bool index_filter_maybe(const struct index_filter *f, const uint8_t fingerprint[16])
{
    uint64_t slices;
    const uint64_t *line;

    if (f->words == NULL) {
        return true;
    }
    line = line_of(f, fingerprint, &slices);
    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(slices >> (9 * i)) & 511;
        if ((line[bit / 64] >> bit % 64 & 1) == 0) {
            return false;
        }
    }
    return true;
}
