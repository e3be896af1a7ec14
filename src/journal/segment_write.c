/* Writing a sealed generation's file. Only the bytes: names, syncs and what they promise are in
 * seal.c.
 *
 * The kernel is asked to write back what is behind us while we go on, and waited for, so that the
 * sync at the end finds little to do and a group commit beside us does not stand behind 30 MB of
 * dirty pages. That the kernel lost pages is said once, perhaps to us: then the file is worthless
 * and the error is ours, whatever a later sync says. */
#include "journal/segment_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/ensure.h"
#include "journal/segment_format.h"
#include "os/os.h"

#define LEVEL       3
#define PIECE_BYTES (4u << 20) /* written back at a time */

int segment_writer_start(struct segment_writer *w, int fd, struct err *e)
{
    *w = (struct segment_writer){.fd = fd};
    buf_init(&w->block, SEGMENT_BLOCK_BYTES);
    buf_init(&w->rows, SEGMENT_BLOCK_BYTES);
    w->compressor = ZSTD_createCCtx();
    w->packed = malloc(SEGMENT_SKIP_BYTES + ZSTD_COMPRESSBOUND(SEGMENT_BLOCK_BYTES));
    bool ok =
        w->compressor != NULL && w->packed != NULL && buf_reserve(&w->block, SEGMENT_BLOCK_BYTES) &&
        buf_reserve(&w->rows, SEGMENT_BLOCK_BYTES) &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(w->compressor, ZSTD_c_compressionLevel, LEVEL)) &&
        !ZSTD_isError(ZSTD_CCtx_setParameter(w->compressor, ZSTD_c_checksumFlag, 1));
    if (!ok) {
        segment_writer_stop(w);
        return err_set(e, ERR_NO_MEMORY, "no memory to seal a generation");
    }
    sha256_start(&w->file);
    sha256_start(&w->data);
    return 0;
}

void segment_writer_stop(struct segment_writer *w)
{
    (void)ZSTD_freeCCtx(w->compressor);
    w->compressor = NULL;
    free(w->packed);
    w->packed = NULL;
    buf_free(&w->block);
    buf_free(&w->rows);
    buf_free(&w->data_entries);
    buf_free(&w->row_entries);
}

/* Begins to write back what was written; waits for the piece before it. */
static int hand_over(struct segment_writer *w, struct err *e)
{
    uint64_t end = w->sum.file_bytes;
    if (end - w->handed < PIECE_BYTES) {
        return 0;
    }
    int r = os_write_back(w->fd, w->handed, end - w->handed, false);
    if (r == 0 && w->handed > 0) {
        r = os_write_back(w->fd, 0, w->handed, true);
    }
    w->handed = end;
    return r == -EIO || r == -ENOSPC ? err_os(e, r, "write back", "a segment") : 0;
}

static int put_file(struct segment_writer *w, const void *p, size_t n, struct err *e)
{
    int r = os_pwrite_all(w->fd, p, n, w->sum.file_bytes, NULL);
    if (r < 0) {
        return err_os(e, r, "write", "a segment");
    }
    sha256_add(&w->file, p, n);
    w->sum.file_bytes += n;
    return hand_over(w, e);
}

static void put_skip(uint8_t *p, uint32_t magic, size_t bytes)
{
    index_put_u32(p, magic);
    index_put_u32(p + 4, (uint32_t)bytes);
}

/* Compresses and writes a block, and enters it. skip: room for a skippable frame's begin. */
static int put_block(struct segment_writer *w, struct buf *plain, size_t skip, uint64_t plain_at,
                     struct buf *entries, struct err *e)
{
    uint8_t entry[SEGMENT_ENTRY_BYTES];
    size_t n = ZSTD_compress2(w->compressor, w->packed + skip,
                              ZSTD_COMPRESSBOUND(SEGMENT_BLOCK_BYTES), plain->ptr, plain->len);
    if (ZSTD_isError(n)) { /* the room is enough for anything: memory it is */
        return err_set(e, ERR_NO_MEMORY, "a block cannot be compressed: %s", ZSTD_getErrorName(n));
    }
    if (skip > 0) {
        put_skip((uint8_t *)w->packed, SEGMENT_SKIP_BATCHES, n);
    }
    index_put_u64(entry, w->sum.file_bytes);
    index_put_u64(entry + 8, plain_at);
    index_put_u32(entry + 16, (uint32_t)(skip + n));
    index_put_u32(entry + 20, (uint32_t)plain->len);
    index_put_u32(entry + 24, crc32c(0, w->packed, skip + n));
    index_put_u32(entry + 28, crc32c(0, plain->ptr, plain->len));
    buf_put(entries, entry, sizeof entry);
    if (entries->failed) {
        return err_set(e, ERR_NO_MEMORY, "no memory to seal a generation");
    }
    int r = put_file(w, w->packed, skip + n, e);
    buf_clear(plain);
    return r;
}

static int flush_data(struct segment_writer *w, struct err *e)
{
    uint64_t at = w->sum.plain_bytes - w->block.len;
    ensure(at % SEGMENT_BLOCK_BYTES == 0);
    return put_block(w, &w->block, 0, at, &w->data_entries, e);
}

static int flush_rows(struct segment_writer *w, struct err *e)
{
    size_t n = w->rows.len;
    int r = put_block(w, &w->rows, SEGMENT_SKIP_BYTES, w->rows_plain, &w->row_entries, e);
    w->rows_plain += n;
    return r;
}

static int add_lines(struct segment_writer *w, const char *p, size_t n, struct err *e)
{
    sha256_add(&w->data, p, n);
    while (n > 0) {
        size_t room = SEGMENT_BLOCK_BYTES - w->block.len;
        size_t take = n < room ? n : room;
        buf_put(&w->block, p, take);
        w->sum.plain_bytes += take;
        p += take;
        n -= take;
        if (w->block.len == SEGMENT_BLOCK_BYTES) {
            int r = flush_data(w, e);
            if (r != 0) {
                return r;
            }
        }
    }
    return 0;
}

static int add_row(struct segment_writer *w, const struct segment_batch *b, struct err *e)
{
    uint8_t row[SEGMENT_ROW_FIXED];
    if (w->rows.len + sizeof row + b->source.len + b->batch_id.len > SEGMENT_BLOCK_BYTES) {
        int r = flush_rows(w, e);
        if (r != 0) {
            return r;
        }
    }
    index_put_u32(row + SEGMENT_ROW_OFFSET_AT, (uint32_t)b->offset);
    index_put_u32(row + SEGMENT_ROW_BYTES_AT, (uint32_t)b->bytes);
    index_put_u32(row + SEGMENT_ROW_EVENTS_AT, b->events);
    index_put_u16(row + SEGMENT_ROW_SOURCE_AT, (uint16_t)b->source.len);
    index_put_u16(row + SEGMENT_ROW_BATCH_ID_AT, (uint16_t)b->batch_id.len);
    memcpy(row + SEGMENT_ROW_DIGEST_AT, b->digest, SHA256_LEN);
    memcpy(row + SEGMENT_ROW_FIRST_ID_AT, b->first_id.byte, 16);
    memcpy(row + SEGMENT_ROW_LAST_ID_AT, b->last_id.byte, 16);
    buf_put(&w->rows, row, sizeof row);
    buf_put_slice(&w->rows, b->source);
    buf_put_slice(&w->rows, b->batch_id);
    ensure(!w->rows.failed);
    return 0;
}

int segment_writer_add(struct segment_writer *w, const struct segment_batch *b, const char *lines,
                       struct err *e)
{
    ensure(b->offset == w->sum.plain_bytes);
    if (b->source.len > SEGMENT_ROW_TEXT_MAX || b->batch_id.len > SEGMENT_ROW_TEXT_MAX ||
        b->bytes > SEGMENT_PLAIN_MAX - b->offset) {
        return err_set_at(e, ERR_UNSUPPORTED, b->offset,
                          "the batch at byte %llu has no place in a segment",
                          (unsigned long long)b->offset);
    }
    int r = add_lines(w, lines, (size_t)b->bytes, e);
    if (r == 0) {
        r = add_row(w, b, e);
    }
    if (w->sum.batches == 0) {
        w->sum.first_id = b->first_id;
    }
    w->sum.last_id = b->last_id;
    w->sum.batches++;
    w->sum.events += b->events;
    return r;
}

static int put_directory(struct segment_writer *w, uint32_t *crc, struct err *e)
{
    uint8_t begin[SEGMENT_SKIP_BYTES];
    put_skip(begin, SEGMENT_SKIP_DIRECTORY, w->data_entries.len + w->row_entries.len);
    int r = put_file(w, begin, sizeof begin, e);
    if (r == 0) {
        r = put_file(w, w->data_entries.ptr, w->data_entries.len, e);
    }
    if (r == 0) {
        r = put_file(w, w->row_entries.ptr, w->row_entries.len, e);
    }
    *crc = crc32c(crc32c(0, w->data_entries.ptr, w->data_entries.len), w->row_entries.ptr,
                  w->row_entries.len);
    return r;
}

static void make_trailer(const struct segment_writer *w, uint64_t directory, uint32_t crc,
                         uint8_t *p)
{
    const struct segment *s = &w->sum;
    put_skip(p, SEGMENT_SKIP_TRAILER, SEGMENT_END_BYTES - SEGMENT_SKIP_BYTES);
    memcpy(p + SEGMENT_END_MAGIC_AT, SEGMENT_MAGIC, SEGMENT_MAGIC_LEN);
    index_put_u32(p + SEGMENT_END_VERSION_AT, SEGMENT_VERSION);
    index_put_u32(p + SEGMENT_END_BLOCK_BYTES_AT, SEGMENT_BLOCK_BYTES);
    index_put_u64(p + SEGMENT_END_FILE_BYTES_AT, s->file_bytes + SEGMENT_END_BYTES);
    index_put_u64(p + SEGMENT_END_PLAIN_BYTES_AT, s->plain_bytes);
    index_put_u64(p + SEGMENT_END_EVENTS_AT, s->events);
    index_put_u64(p + SEGMENT_END_BATCHES_AT, s->batches);
    memcpy(p + SEGMENT_END_FIRST_ID_AT, s->first_id.byte, 16);
    memcpy(p + SEGMENT_END_LAST_ID_AT, s->last_id.byte, 16);
    memcpy(p + SEGMENT_END_HEAD_AT, s->head, SHA256_LEN);
    memcpy(p + SEGMENT_END_SHA256_AT, s->plain_sha256, SHA256_LEN);
    index_put_u32(p + SEGMENT_END_DATA_COUNT_AT,
                  (uint32_t)(w->data_entries.len / SEGMENT_ENTRY_BYTES));
    index_put_u32(p + SEGMENT_END_BATCH_COUNT_AT,
                  (uint32_t)(w->row_entries.len / SEGMENT_ENTRY_BYTES));
    index_put_u64(p + SEGMENT_END_DIRECTORY_AT, directory);
    index_put_u32(p + SEGMENT_END_ENTRIES_CRC_AT, crc);
    index_put_u32(p + SEGMENT_END_CRC_AT, crc32c(0, p, SEGMENT_END_CRC_AT));
}

int segment_writer_finish(struct segment_writer *w, const uint8_t head[SHA256_LEN],
                          uint8_t file_sha256[SHA256_LEN], struct err *e)
{
    uint8_t trailer[SEGMENT_END_BYTES];
    uint32_t crc = 0;
    ensure(w->sum.batches > 0);
    memcpy(w->sum.head, head, SHA256_LEN);
    sha256_end(&w->data, w->sum.plain_sha256);
    int r = w->block.len > 0 ? flush_data(w, e) : 0;
    if (r == 0) {
        r = flush_rows(w, e);
    }
    uint64_t directory = w->sum.file_bytes;
    if (r == 0) {
        r = put_directory(w, &crc, e);
    }
    if (r == 0) {
        make_trailer(w, directory, crc, trailer);
        r = put_file(w, trailer, sizeof trailer, e);
    }
    sha256_end(&w->file, file_sha256);
    return r;
}
