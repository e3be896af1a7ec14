/* index_filter: see index_format.h for the bits.
 *
 * Fingerprints are hashes already, so their last bytes serve as they are. The first four bytes, by
 * which runs are sorted, are left alone: the keys of one block of a filter share some of them.
 *
 * Nothing here fails, allocates or touches the disk. */
#include "journal/index_filter.h"

#include "journal/index_format.h"

#define PROBES 6u

static_assert(PROBES * 9 <= 64, "the slices come from one 64-bit number");
static_assert(INDEX_FILTER_LINE_BYTES * 8 == 1u << 9, "a slice names any bit of a line");

uint32_t index_filter_line(uint32_t line_count, const uint8_t fingerprint[16])
{
    ensure(line_count > 0);
    return (uint32_t)((uint64_t)index_get_u32(fingerprint + 4) * line_count >> 32);
}

void index_filter_add(uint8_t *lines, uint32_t line_count, const uint8_t fingerprint[16])
{
    uint64_t slices = index_get_u64(fingerprint + 8);
    uint8_t *line =
        lines + (size_t)index_filter_line(line_count, fingerprint) * INDEX_FILTER_LINE_BYTES;

    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(slices >> (9 * i)) & 511;

        line[bit / 8] |= (uint8_t)(1u << bit % 8);
    }
}

bool index_filter_line_maybe(const uint8_t *line, const uint8_t fingerprint[16])
{
    uint64_t slices = index_get_u64(fingerprint + 8);

    for (unsigned i = 0; i < PROBES; i++) {
        unsigned bit = (unsigned)(slices >> (9 * i)) & 511;

        if ((line[bit / 8] >> bit % 8 & 1) == 0) {
            return false;
        }
    }
    return true;
}

bool index_filter_maybe(const uint8_t *lines, uint32_t line_count, const uint8_t fingerprint[16])
{
    size_t line = index_filter_line(line_count, fingerprint);

    return index_filter_line_maybe(lines + line * INDEX_FILTER_LINE_BYTES, fingerprint);
}
