/* segment_format: every byte of a sealed generation, segments/FIRST_LAST_SHA256.ndjson.zst. All
 * integers are little-endian; nothing is padded by a compiler.
 *
 * The file is a row of zstd frames (RFC 8878), so `zstd -dc` gives the generation's lines. What is
 * ours is in skippable frames, which zstd passes over:
 *
 *   data block     a zstd frame of 262144 plain bytes of the generation; the last one: of the rest
 *   batch block    a skippable frame (magic 0x184d2a5c) that holds one zstd frame of at most 262144
 *                  bytes of rows of the batch table, whole rows only; they stand between data
 *                  blocks
 *   directory      a skippable frame (magic 0x184d2a5d): one entry for each data block, in order,
 *                  then one for each batch block, in order
 *   trailer        a skippable frame (magic 0x184d2a5e), the last 176 bytes
 *
 *   Directory entry:
 *      0   8  file offset of the block (of a batch block: of its skippable frame)
 *      8   8  offset of its first plain byte in the generation (of a batch block: in the table)
 *     16   4  bytes in the file (of a batch block: with the 8 bytes before its zstd frame)
 *     20   4  plain bytes
 *     24   4  CRC32C of the bytes in the file
 *     28   4  CRC32C of the plain bytes
 *   Blocks of both kinds together fill the file from byte 0 to the directory, without gap.
 *
 *   Row of the batch table, one for each batch of the generation, in order:
 *      0   4  offset of its first line in the generation
 *      4   4  bytes of its lines
 *      8   4  events
 *     12   2  length of source
 *     14   2  length of batch_id
 *     16  32  batch_digest
 *     48  16  first event id
 *     64  16  last event id
 *     80      source, batch_id: canonical JSON strings with their quotes
 *
 *   Trailer:
 *      0   4  0x184d2a5e
 *      4   4  168
 *      8   8  "TLYSEAL\n"
 *     16   4  version, 1
 *     20   4  262144
 *     24   8  size of the file
 *     32   8  plain bytes
 *     40   8  events
 *     48   8  batches
 *     56  16  first event id
 *     72  16  last event id
 *     88  32  chain head at the last event
 *    120  32  SHA-256 of the plain bytes
 *    152   4  number of data blocks
 *    156   4  number of batch blocks
 *    160   8  file offset of the directory's frame
 *    168   4  CRC32C of the directory's entries
 *    172   4  CRC32C of bytes 0 to 171 of the trailer */
#ifndef JOURNAL_SEGMENT_FORMAT_H
#define JOURNAL_SEGMENT_FORMAT_H

#include <assert.h>

#include "base/hash.h"
#include "journal/index_format.h" /* integers to and from bytes */

#define SEGMENT_BLOCK_BYTES (256u << 10)
#define SEGMENT_MAGIC       "TLYSEAL\n"
#define SEGMENT_MAGIC_LEN   8u
#define SEGMENT_VERSION     1u
#define SEGMENT_PLAIN_MAX   UINT32_MAX /* offsets in rows and in index keys have 32 bits */
/* Rows are shorter than the lines they speak of, so there are no more blocks of them. */
#define SEGMENT_BLOCKS_MAX (SEGMENT_PLAIN_MAX / SEGMENT_BLOCK_BYTES + 1u)

#define SEGMENT_SKIP_BATCHES   0x184d2a5cu
#define SEGMENT_SKIP_DIRECTORY 0x184d2a5du
#define SEGMENT_SKIP_TRAILER   0x184d2a5eu
#define SEGMENT_SKIP_BYTES     8u /* magic and length */

#define SEGMENT_ENTRY_BYTES 32u

#define SEGMENT_ROW_OFFSET_AT   0u
#define SEGMENT_ROW_BYTES_AT    4u
#define SEGMENT_ROW_EVENTS_AT   8u
#define SEGMENT_ROW_SOURCE_AT   12u
#define SEGMENT_ROW_BATCH_ID_AT 14u
#define SEGMENT_ROW_DIGEST_AT   16u
#define SEGMENT_ROW_FIRST_ID_AT 48u
#define SEGMENT_ROW_LAST_ID_AT  64u
#define SEGMENT_ROW_FIXED       80u
#define SEGMENT_ROW_TEXT_MAX    2048u /* a source is at most 130 bytes, a batch_id 1538 */

#define SEGMENT_END_MAGIC_AT       8u
#define SEGMENT_END_VERSION_AT     16u
#define SEGMENT_END_BLOCK_BYTES_AT 20u
#define SEGMENT_END_FILE_BYTES_AT  24u
#define SEGMENT_END_PLAIN_BYTES_AT 32u
#define SEGMENT_END_EVENTS_AT      40u
#define SEGMENT_END_BATCHES_AT     48u
#define SEGMENT_END_FIRST_ID_AT    56u
#define SEGMENT_END_LAST_ID_AT     72u
#define SEGMENT_END_HEAD_AT        88u
#define SEGMENT_END_SHA256_AT      120u
#define SEGMENT_END_DATA_COUNT_AT  152u
#define SEGMENT_END_BATCH_COUNT_AT 156u
#define SEGMENT_END_DIRECTORY_AT   160u
#define SEGMENT_END_ENTRIES_CRC_AT 168u
#define SEGMENT_END_CRC_AT         172u
#define SEGMENT_END_BYTES          176u

static_assert(sizeof(SEGMENT_MAGIC) - 1 == SEGMENT_MAGIC_LEN, "magic");
static_assert(SEGMENT_ROW_DIGEST_AT + SHA256_LEN == SEGMENT_ROW_FIRST_ID_AT, "digest, then ids");
static_assert(SEGMENT_ROW_LAST_ID_AT + 16 == SEGMENT_ROW_FIXED, "ids, then texts");
static_assert(SEGMENT_ROW_FIXED + 2 * SEGMENT_ROW_TEXT_MAX < SEGMENT_BLOCK_BYTES, "a row fits");
static_assert(SEGMENT_END_HEAD_AT + SHA256_LEN == SEGMENT_END_SHA256_AT, "head, then hash");
static_assert(SEGMENT_END_SHA256_AT + SHA256_LEN == SEGMENT_END_DATA_COUNT_AT, "hash, then counts");
static_assert(SEGMENT_END_CRC_AT + 4 == SEGMENT_END_BYTES, "the checksum ends it");

#endif
