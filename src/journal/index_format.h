/* index_format: every byte of the files in index/. All integers are little-endian; nothing is
 * padded by a compiler. The files are derived from the journal: a reader that does not know a
 * version, or finds anything that does not hold, throws the file away and has it rebuilt.
 *
 * A signed block has 4096 bytes: 4088 of content, then
 *   4088   4  its number
 *   4092   4  CRC32C of bytes 0 to 4091, begun with the CRC32C of the file's header in place of 0,
 *             so that a block of another file never passes
 *
 * A fingerprint has 16 bytes, the first half of a SHA-256. A filter is lines of 512 bits. A
 * fingerprint's line among n is (bytes 4 to 7 as a number) * n / 2^32; its six bits there are six
 * slices of nine bits of bytes 8 to 15, lowest first. Bit b is bit b % 8 of byte b / 8.
 *
 * Run file, keys-FFFFFFFF-TTTTTTTT.run: blocks of 4096 bytes. The number of generations it covers,
 * T - F + 1, is a power of eight (8^k, k the tier), and F is a multiple of it; so of two runs one
 * contains the other, or they have no generation in common.
 *
 *   First the header:
 *      0   8  "TLYKEYS\n"
 *      8   4  version, 2
 *     12   4  F, ordinal of the first generation
 *     16   4  T, ordinal of the last generation
 *     20   4  number of key blocks: keys / 127, rounded up
 *     24   8  number of keys
 *     32  16  first event id of generation F
 *     48  16  last event id of generation T
 *     64   4  number of fence blocks: key blocks / 254, rounded up
 *     68   4  number of filter blocks: key blocks / 21, rounded up
 *     72   8  bytes of the generations, together
 *     80      zero
 *   4092   4  CRC32C of bytes 0 to 4091
 *
 *   Behind it signed blocks, numbered from 0:
 *     key blocks    127 keys of 32 bytes (the last block: the rest of them), then zeros
 *     fence blocks  the first fingerprints of 254 key blocks, in their order, then zeros
 *     filter blocks 63 lines (4032 bytes) that hold the keys of 21 key blocks, then zeros
 *
 *   A key:
 *      0  16  fingerprint of (source, batch_id)
 *     16   4  generation, F to T
 *     20   4  offset of the batch's first line in its generation
 *     24   4  bytes of the batch's lines, not 0
 *     28   4  events of the batch, not 0
 *   Keys ascend strictly by fingerprint (as bytes), then generation, then offset. The file ends
 *   with its last block. Version 1 had neither fences nor filters; it is rebuilt.
 *
 * Summary file, gen-NNNNNNNN.sum:
 *      0   8  "TLYSUMM\n"
 *      8   4  version, 2
 *     12   4  generation
 *     16   8  size of this file
 *     24  16  first event id
 *     40  16  last event id
 *     56   8  events
 *     64   8  batches
 *     72   8  bytes of the generation
 *     80  32  chain head at the last event
 *    112  32  SHA-256 of the generation's bytes
 *    144   4  number of streams
 *    148   4  number of checksums: bytes / 65536, rounded up
 *    152   4  number of filter blocks
 *    156   4  length of the front: header, streams, checksums, and its own checksum
 *    160   4  CRC32C of bytes 0 to 159
 *    164      streams, ascending strictly by source, then stream (as bytes):
 *               0  16  the stream's last event id in this generation
 *              16   8  its events in this generation
 *              24   2  length of source
 *              26   2  length of stream
 *              28      source, stream
 *             checksums: the CRC32C of each 64 KiB of the generation's bytes, 4 bytes each
 *    front-4  4  CRC32C of bytes 0 to front-5
 *    front       filter blocks: signed, each with 63 lines (4032 bytes) of one filter over the
 *                fingerprints of (source, record_key) of all events, then zeros. None: not known.
 *   Version 1 had neither checksums nor filter; it is rebuilt. */
#ifndef JOURNAL_INDEX_FORMAT_H
#define JOURNAL_INDEX_FORMAT_H

#include <stdint.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "journal/index.h"

#define INDEX_MAGIC_LEN      8
#define INDEX_RUN_MAGIC      "TLYKEYS\n"
#define INDEX_SUM_MAGIC      "TLYSUMM\n"
#define INDEX_VERSION        2u
#define INDEX_GENERATION_MAX 99999999u /* eight decimal digits in file names */

#define INDEX_FINGERPRINT_LEN 16
#define INDEX_MERGE_WAYS      8u
#define INDEX_TIER_MAX        8u /* 8^9 generations would not fit the names */

#define INDEX_BLOCK_BYTES     4096u
#define INDEX_KEY_BYTES       32u
#define INDEX_BLOCK_KEYS      127u
#define INDEX_BLOCK_NUMBER_AT 4088u
#define INDEX_BLOCK_CRC_AT    4092u

#define INDEX_RUN_VERSION_AT  8u
#define INDEX_RUN_FROM_AT     12u
#define INDEX_RUN_TO_AT       16u
#define INDEX_RUN_BLOCKS_AT   20u
#define INDEX_RUN_KEYS_AT     24u
#define INDEX_RUN_FIRST_ID_AT 32u
#define INDEX_RUN_LAST_ID_AT  48u
#define INDEX_RUN_FENCES_AT   64u
#define INDEX_RUN_FILTERS_AT  68u
#define INDEX_RUN_BYTES_AT    72u

#define INDEX_FENCE_BYTES       16u
#define INDEX_FENCES_IN_BLOCK   254u /* fences of a block, and so many key blocks */
#define INDEX_FILTER_LINE_BYTES 64u
#define INDEX_FILTER_LINES      63u /* of a block */
#define INDEX_FILTER_BYTES      (INDEX_FILTER_LINES * INDEX_FILTER_LINE_BYTES)
#define INDEX_FILTER_KEY_BLOCKS 21u /* whose keys a filter block of a run holds: 12 bits each */
#define INDEX_FILTER_KEY_BITS   12u

#define INDEX_SUM_VERSION_AT     8u
#define INDEX_SUM_GENERATION_AT  12u
#define INDEX_SUM_SIZE_AT        16u
#define INDEX_SUM_FIRST_ID_AT    24u
#define INDEX_SUM_LAST_ID_AT     40u
#define INDEX_SUM_EVENTS_AT      56u
#define INDEX_SUM_BATCHES_AT     64u
#define INDEX_SUM_BYTES_AT       72u
#define INDEX_SUM_HEAD_AT        80u
#define INDEX_SUM_UNUSED_AT      112u
#define INDEX_SUM_UNUSED_BYTES   32u /* older programs: SHA-256 of the generation's bytes */
#define INDEX_SUM_STREAMS_AT     144u
#define INDEX_SUM_CRCS_AT        148u
#define INDEX_SUM_FILTERS_AT     152u
#define INDEX_SUM_FRONT_AT       156u
#define INDEX_SUM_HEADER_CRC_AT  160u
#define INDEX_SUM_HEADER_BYTES   164u
#define INDEX_SUM_STREAM_BYTES   28u /* of a stream, without its texts */
#define INDEX_SUM_TEXT_BYTES_MAX 65535u

static_assert(INDEX_BLOCK_KEYS * INDEX_KEY_BYTES <= INDEX_BLOCK_NUMBER_AT, "keys fit a block");
static_assert(INDEX_BLOCK_NUMBER_AT + 4 == INDEX_BLOCK_CRC_AT, "number, then checksum");
static_assert(INDEX_BLOCK_CRC_AT + 4 == INDEX_BLOCK_BYTES, "the checksum ends a block");
static_assert(INDEX_FINGERPRINT_LEN + 4 * 4 == INDEX_KEY_BYTES, "a key has no holes");
static_assert(sizeof(struct index_key) == INDEX_KEY_BYTES, "nor in memory");
static_assert(sizeof(INDEX_RUN_MAGIC) - 1 == INDEX_MAGIC_LEN, "run magic");
static_assert(sizeof(INDEX_SUM_MAGIC) - 1 == INDEX_MAGIC_LEN, "summary magic");
static_assert(INDEX_RUN_BYTES_AT + 8 <= INDEX_BLOCK_CRC_AT, "the header fits its block");
static_assert(INDEX_FENCES_IN_BLOCK * INDEX_FENCE_BYTES <= INDEX_BLOCK_NUMBER_AT, "fences fit");
static_assert(INDEX_FILTER_BYTES <= INDEX_BLOCK_NUMBER_AT, "lines fit a block");
static_assert(INDEX_FILTER_KEY_BLOCKS * INDEX_BLOCK_KEYS * INDEX_FILTER_KEY_BITS <=
                  INDEX_FILTER_BYTES * 8,
              "a filter block has enough bits for its keys");
static_assert(INDEX_SUM_HEAD_AT + SHA256_LEN == INDEX_SUM_UNUSED_AT, "the head, and nothing");
static_assert(INDEX_SUM_UNUSED_AT + INDEX_SUM_UNUSED_BYTES == INDEX_SUM_STREAMS_AT, "then streams");
static_assert(INDEX_SUM_HEADER_CRC_AT + 4 == INDEX_SUM_HEADER_BYTES, "the checksum ends it");

static inline void index_put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void index_put_u32(uint8_t *p, uint32_t v)
{
    for (unsigned i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static inline void index_put_u64(uint8_t *p, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static inline uint16_t index_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t index_get_u32(const uint8_t *p)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < 4; i++) {
        v |= (uint32_t)p[i] << (8 * i);
    }
    return v;
}

static inline uint64_t index_get_u64(const uint8_t *p)
{
    return (uint64_t)index_get_u32(p) | (uint64_t)index_get_u32(p + 4) << 32;
}

/* Numbers and signs a block. */
static inline void index_sign_block(uint8_t *block, uint32_t number, uint32_t header_crc)
{
    index_put_u32(block + INDEX_BLOCK_NUMBER_AT, number);
    index_put_u32(block + INDEX_BLOCK_CRC_AT, crc32c(header_crc, block, INDEX_BLOCK_CRC_AT));
}

static inline bool index_block_holds(const uint8_t *block, uint32_t number, uint32_t header_crc)
{
    return index_get_u32(block + INDEX_BLOCK_CRC_AT) ==
               crc32c(header_crc, block, INDEX_BLOCK_CRC_AT) &&
           index_get_u32(block + INDEX_BLOCK_NUMBER_AT) == number;
}

static inline void index_put_key(uint8_t *p, const struct index_key *key)
{
    memcpy(p, key->fingerprint, INDEX_FINGERPRINT_LEN);
    index_put_u32(p + 16, key->generation);
    index_put_u32(p + 20, key->offset);
    index_put_u32(p + 24, key->bytes);
    index_put_u32(p + 28, key->events);
}

static inline void index_get_key(const uint8_t *p, struct index_key *key)
{
    memcpy(key->fingerprint, p, INDEX_FINGERPRINT_LEN);
    key->generation = index_get_u32(p + 16);
    key->offset = index_get_u32(p + 20);
    key->bytes = index_get_u32(p + 24);
    key->events = index_get_u32(p + 28);
}

/* The order of keys in a run. */
static inline int index_key_cmp(const struct index_key *a, const struct index_key *b)
{
    int c = memcmp(a->fingerprint, b->fingerprint, INDEX_FINGERPRINT_LEN);

    if (c != 0) {
        return c;
    }
    if (a->generation != b->generation) {
        return a->generation < b->generation ? -1 : 1;
    }
    return a->offset == b->offset ? 0 : a->offset < b->offset ? -1 : 1;
}

#endif
