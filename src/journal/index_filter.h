/* index_filter: Bloom filters over fingerprints, as they lie in the files of the index
 * (index_format.h): lines of 512 bits, one line a fingerprint. "No" is certain and saves a read;
 * "maybe" is asked of the file. With 12 bits a key one in some 200 absent keys is a "maybe".
 *
 * The caller owns the lines, line_count (at least 1) times 64 bytes. */
#ifndef JOURNAL_INDEX_FILTER_H
#define JOURNAL_INDEX_FILTER_H

#include <stdbool.h>
#include <stdint.h>

void index_filter_add(uint8_t *lines, uint32_t line_count, const uint8_t fingerprint[16]);
bool index_filter_maybe(const uint8_t *lines, uint32_t line_count, const uint8_t fingerprint[16]);

/* The halves of index_filter_maybe, for filters of which only the line in question is at hand. */
uint32_t index_filter_line(uint32_t line_count, const uint8_t fingerprint[16]);
bool index_filter_line_maybe(const uint8_t *line, const uint8_t fingerprint[16]);

#endif
