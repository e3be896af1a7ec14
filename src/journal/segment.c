/* Opening and reading a sealed generation.
 *
 * The order of belief: the trailer by its checksum and by the size of the file; the directory by
 * the checksum in the trailer; that the blocks fill the file without gap or overlap; a block by the
 * checksum of its bytes in the file, before they are given to the decompressor; what comes out by
 * its own. So every byte of the file is covered by something, and a segment of which a byte
 * changed is noticed where that byte is needed. */
#include "journal/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/ensure.h"
#include "journal/segment_format.h"
#include "os/os.h"

static int corrupt(uint64_t at, const char *why, struct err *e)
{
    return err_set_at(e, ERR_CORRUPT, at, "segment: byte %llu: %s", (unsigned long long)at, why);
}

/* ---- trailer and directory ---- */

static int read_at(int fd, void *p, size_t n, uint64_t at, struct err *e)
{
    int64_t got = os_pread_full(fd, p, n, at);
    if (got < 0) {
        return err_os(e, (int)got, "read", "a segment");
    }
    return (size_t)got == n ? 0 : corrupt(at + (uint64_t)got, "it ends too early", e);
}

static int get_trailer(struct segment *s, const uint8_t *p, uint64_t *directory, uint32_t *crc,
                       struct err *e)
{
    uint64_t at = s->file_bytes - SEGMENT_END_BYTES;
    if (index_get_u32(p) != SEGMENT_SKIP_TRAILER ||
        index_get_u32(p + 4) != SEGMENT_END_BYTES - SEGMENT_SKIP_BYTES ||
        memcmp(p + SEGMENT_END_MAGIC_AT, SEGMENT_MAGIC, SEGMENT_MAGIC_LEN) != 0 ||
        index_get_u32(p + SEGMENT_END_CRC_AT) != crc32c(0, p, SEGMENT_END_CRC_AT)) {
        return corrupt(at, "its end is not that of a segment", e);
    }
    if (index_get_u32(p + SEGMENT_END_VERSION_AT) != SEGMENT_VERSION ||
        index_get_u32(p + SEGMENT_END_BLOCK_BYTES_AT) != SEGMENT_BLOCK_BYTES) {
        return err_set(e, ERR_UNSUPPORTED, "a segment of a version that is not known here");
    }
    if (index_get_u64(p + SEGMENT_END_FILE_BYTES_AT) != s->file_bytes) {
        return corrupt(at, "the file has another size than it says", e);
    }
    s->plain_bytes = index_get_u64(p + SEGMENT_END_PLAIN_BYTES_AT);
    s->events = index_get_u64(p + SEGMENT_END_EVENTS_AT);
    s->batches = index_get_u64(p + SEGMENT_END_BATCHES_AT);
    memcpy(s->first_id.byte, p + SEGMENT_END_FIRST_ID_AT, 16);
    memcpy(s->last_id.byte, p + SEGMENT_END_LAST_ID_AT, 16);
    memcpy(s->head, p + SEGMENT_END_HEAD_AT, SHA256_LEN);
    memcpy(s->plain_sha256, p + SEGMENT_END_SHA256_AT, SHA256_LEN);
    s->data_count = index_get_u32(p + SEGMENT_END_DATA_COUNT_AT);
    s->rows_count = index_get_u32(p + SEGMENT_END_BATCH_COUNT_AT);
    *directory = index_get_u64(p + SEGMENT_END_DIRECTORY_AT);
    *crc = index_get_u32(p + SEGMENT_END_ENTRIES_CRC_AT);
    if (s->plain_bytes == 0 || s->plain_bytes > SEGMENT_PLAIN_MAX || s->rows_count == 0 ||
        s->rows_count > SEGMENT_BLOCKS_MAX ||
        s->data_count != (s->plain_bytes + SEGMENT_BLOCK_BYTES - 1) / SEGMENT_BLOCK_BYTES) {
        return corrupt(at, "sizes that cannot be", e);
    }
    return 0;
}

static void get_entry(struct segment_block *b, const uint8_t *p)
{
    b->at = index_get_u64(p);
    b->plain_at = index_get_u64(p + 8);
    b->bytes = index_get_u32(p + 16);
    b->plain_bytes = index_get_u32(p + 20);
    b->crc = index_get_u32(p + 24);
    b->plain_crc = index_get_u32(p + 28);
}

/* The blocks of one kind follow each other in plain bytes, and none is larger than a block may be.
 */
static bool plain_adds_up(const struct segment_block *b, uint32_t count, bool data, uint64_t total)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool full = b[i].plain_bytes == SEGMENT_BLOCK_BYTES;
        if (b[i].plain_at != at || b[i].plain_bytes == 0 ||
            b[i].plain_bytes > SEGMENT_BLOCK_BYTES || (data && !full && i + 1 < count) ||
            b[i].bytes <= (data ? 0 : SEGMENT_SKIP_BYTES) ||
            b[i].bytes > ZSTD_COMPRESSBOUND(SEGMENT_BLOCK_BYTES) + SEGMENT_SKIP_BYTES) {
            return false;
        }
        at += b[i].plain_bytes;
    }
    return !data || at == total;
}

/* Data blocks and batch blocks, each in order, fill the file up to `end`. */
static bool blocks_fill(const struct segment *s, uint64_t end)
{
    uint32_t d = 0;
    uint32_t r = 0;
    uint64_t at = 0;
    while (d < s->data_count || r < s->rows_count) {
        if (d < s->data_count && s->data[d].at == at) {
            at += s->data[d++].bytes;
        } else if (r < s->rows_count && s->rows[r].at == at) {
            at += s->rows[r++].bytes;
        } else {
            return false;
        }
    }
    return at == end;
}

static int get_directory(int fd, struct segment *s, uint64_t at, uint32_t crc, struct err *e)
{
    uint32_t count = s->data_count + s->rows_count;
    uint64_t bytes = (uint64_t)count * SEGMENT_ENTRY_BYTES;
    uint64_t end = s->file_bytes - SEGMENT_END_BYTES;
    if (at > end || end - at != SEGMENT_SKIP_BYTES + bytes) {
        return corrupt(end, "the directory has no place", e);
    }
    uint8_t *p = malloc(SEGMENT_SKIP_BYTES + (size_t)bytes);
    s->data = calloc(count, sizeof *s->data);
    if (p == NULL || s->data == NULL) {
        free(p);
        return err_set(e, ERR_NO_MEMORY, "no memory to open a segment");
    }
    s->rows = s->data + s->data_count;
    int r = read_at(fd, p, SEGMENT_SKIP_BYTES + (size_t)bytes, at, e);
    if (r == 0 && (index_get_u32(p) != SEGMENT_SKIP_DIRECTORY || index_get_u32(p + 4) != bytes ||
                   crc32c(0, p + SEGMENT_SKIP_BYTES, (size_t)bytes) != crc)) {
        r = corrupt(at, "the directory does not have its checksum", e);
    }
    if (r == 0) {
        for (uint32_t i = 0; i < count; i++) {
            get_entry(&s->data[i], p + SEGMENT_SKIP_BYTES + (size_t)i * SEGMENT_ENTRY_BYTES);
        }
        bool add_up = plain_adds_up(s->data, s->data_count, true, s->plain_bytes) &&
                      plain_adds_up(s->rows, s->rows_count, false, 0) && blocks_fill(s, at);
        r = add_up ? 0 : corrupt(at, "the blocks do not add up", e);
    }
    free(p);
    return r;
}

int segment_open(int fd, struct segment **out, struct err *e)
{
    uint8_t trailer[SEGMENT_END_BYTES];
    struct os_stat st;
    uint64_t directory = 0;
    uint32_t crc = 0;
    int r = os_fstat(fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", "a segment");
    }
    if (st.size < SEGMENT_END_BYTES) {
        return corrupt(st.size, "it is shorter than its end", e);
    }
    struct segment *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to open a segment");
    }
    s->file_bytes = st.size;
    r = read_at(fd, trailer, sizeof trailer, st.size - SEGMENT_END_BYTES, e);
    if (r == 0) {
        r = get_trailer(s, trailer, &directory, &crc, e);
    }
    if (r == 0) {
        r = get_directory(fd, s, directory, crc, e);
    }
    if (r != 0) {
        segment_free(s);
        return r;
    }
    *out = s;
    return 0;
}

void segment_free(struct segment *s)
{
    if (s != NULL) {
        free(s->data);
        free(s);
    }
}

/* ---- blocks ---- */

/* skip: bytes before the zstd frame. */
static int read_block(int fd, const struct segment_block *b, size_t skip, void *plain,
                      struct err *e)
{
    uint8_t *packed = malloc(b->bytes);
    if (packed == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a block of a segment");
    }
    int r = read_at(fd, packed, b->bytes, b->at, e);
    if (r == 0 && crc32c(0, packed, b->bytes) != b->crc) {
        r = corrupt(b->at, "a block does not have its checksum", e);
    }
    if (r == 0 && skip > 0 &&
        (index_get_u32(packed) != SEGMENT_SKIP_BATCHES ||
         index_get_u32(packed + 4) != b->bytes - SEGMENT_SKIP_BYTES)) {
        r = corrupt(b->at, "no block of batches", e);
    }
    if (r == 0) {
        size_t n = ZSTD_decompress(plain, b->plain_bytes, packed + skip, b->bytes - skip);
        if (ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation) {
            r = err_set(e, ERR_NO_MEMORY, "no memory to decompress a block of a segment");
        } else if (ZSTD_isError(n) || n != b->plain_bytes || crc32c(0, plain, n) != b->plain_crc) {
            r = corrupt(b->at, "a block does not decompress to what it was", e);
        }
    }
    free(packed);
    return r;
}

int segment_read_data(int fd, const struct segment *s, uint32_t n, void *p, struct err *e)
{
    ensure(n < s->data_count);
    return read_block(fd, &s->data[n], 0, p, e);
}

/* ---- the batch table ---- */

void segment_walk_start(struct segment_walk *w, int fd, const struct segment *s)
{
    *w = (struct segment_walk){.fd = fd, .segment = s};
}

void segment_walk_stop(struct segment_walk *w)
{
    free(w->block);
    w->block = NULL;
}

static int table_corrupt(const struct segment_walk *w, struct err *e)
{
    const struct segment_block *b = &w->segment->rows[w->next_block > 0 ? w->next_block - 1 : 0];
    return corrupt(b->at, "the batch table is not that of the generation", e);
}

static int next_block(struct segment_walk *w, struct err *e)
{
    if (w->block == NULL) {
        w->block = malloc(SEGMENT_BLOCK_BYTES);
        if (w->block == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for a batch table");
        }
    }
    const struct segment_block *b = &w->segment->rows[w->next_block++];
    w->at = 0;
    w->block_len = b->plain_bytes;
    return read_block(w->fd, b, SEGMENT_SKIP_BYTES, w->block, e);
}

/* Takes a row off the block; false: it does not lie in it. */
static bool get_row(struct segment_walk *w, struct segment_batch *b)
{
    const uint8_t *p = (const uint8_t *)w->block + w->at;
    size_t left = w->block_len - w->at;
    if (left < SEGMENT_ROW_FIXED) {
        return false;
    }
    size_t source = index_get_u16(p + SEGMENT_ROW_SOURCE_AT);
    size_t batch_id = index_get_u16(p + SEGMENT_ROW_BATCH_ID_AT);
    if (source + batch_id > left - SEGMENT_ROW_FIXED) {
        return false;
    }
    b->offset = index_get_u32(p + SEGMENT_ROW_OFFSET_AT);
    b->bytes = index_get_u32(p + SEGMENT_ROW_BYTES_AT);
    b->events = index_get_u32(p + SEGMENT_ROW_EVENTS_AT);
    memcpy(b->digest, p + SEGMENT_ROW_DIGEST_AT, SHA256_LEN);
    memcpy(b->first_id.byte, p + SEGMENT_ROW_FIRST_ID_AT, 16);
    memcpy(b->last_id.byte, p + SEGMENT_ROW_LAST_ID_AT, 16);
    b->source = slice_of(p + SEGMENT_ROW_FIXED, source);
    b->batch_id = slice_of(p + SEGMENT_ROW_FIXED + source, batch_id);
    w->at += SEGMENT_ROW_FIXED + source + batch_id;
    return true;
}

static bool row_follows(const struct segment_walk *w, const struct segment_batch *b)
{
    const struct uuid *before = w->batches > 0 ? &w->last_id : NULL;
    return b->offset == w->offset && b->bytes > 0 && b->events > 0 &&
           uuid_cmp(&b->first_id, &b->last_id) <= 0 &&
           (b->events > 1) == (uuid_cmp(&b->first_id, &b->last_id) != 0) &&
           (before != NULL ? uuid_cmp(&b->first_id, before) > 0
                           : uuid_cmp(&b->first_id, &w->segment->first_id) == 0);
}

int segment_walk_next(struct segment_walk *w, struct segment_batch *b, struct err *e)
{
    const struct segment *s = w->segment;
    if (w->at == w->block_len) {
        if (w->next_block == s->rows_count) {
            bool whole = w->batches == s->batches && w->events == s->events &&
                         w->offset == s->plain_bytes && uuid_cmp(&w->last_id, &s->last_id) == 0;
            return whole ? 0 : table_corrupt(w, e);
        }
        int r = next_block(w, e);
        if (r != 0) {
            return r;
        }
    }
    if (!get_row(w, b) || !row_follows(w, b)) {
        return table_corrupt(w, e);
    }
    w->batches++;
    w->events += b->events;
    w->offset += b->bytes;
    w->last_id = b->last_id;
    return 1;
}
