/* index_summary_write: making the summary of a closed generation out of its bytes.
 *
 * The generation is read once: CRC32C of each 64 KiB, and the record keys of its
 * lines into a filter. A generation with something that is no line has no filter; the summary then
 * says nothing of record keys.
 *
 * Memory: 12 bits an event for the filter, 4 bytes for each 64 KiB, and the longest line.
 *
 * Power failure: the file appears whole under its name or not at all (index_file.c); without it
 * the journal reads the generation and has it written again.
 *
 * Answers: all failures. Aborts: streams out of order or texts longer than the format can say. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "journal/index_filter.h"
#include "journal/index_format.h"
#include "journal/index_summary.h"
#include "journal/line.h"
#include "journal/scan.h"
#include "os/os.h"

#define INDEX_READ_BYTES        (256u << 10)
#define INDEX_RECORD_BLOCKS_MAX 65536u /* 256 MiB; a generation of 4 GiB has at most 4000 */

static_assert(INDEX_READ_BYTES % INDEX_SUMMARY_BLOCK_BYTES == 0, "reads begin with a block");

static void index_summary_put_header(const struct index_summary *s, uint8_t *p)
{
    memcpy(p, INDEX_SUM_MAGIC, INDEX_MAGIC_LEN);
    index_put_u32(p + INDEX_SUM_VERSION_AT, INDEX_VERSION);
    index_put_u32(p + INDEX_SUM_GENERATION_AT, s->generation);
    index_put_u64(p + INDEX_SUM_SIZE_AT,
                  s->filter.at + (uint64_t)s->filter.blocks * INDEX_BLOCK_BYTES);
    memcpy(p + INDEX_SUM_FIRST_ID_AT, s->first_id.byte, 16);
    memcpy(p + INDEX_SUM_LAST_ID_AT, s->last_id.byte, 16);
    index_put_u64(p + INDEX_SUM_EVENTS_AT, s->events);
    index_put_u64(p + INDEX_SUM_BATCHES_AT, s->batches);
    index_put_u64(p + INDEX_SUM_BYTES_AT, s->bytes);
    memcpy(p + INDEX_SUM_HEAD_AT, s->head, SHA256_LEN);
    memset(p + INDEX_SUM_UNUSED_AT, 0, INDEX_SUM_UNUSED_BYTES);
    index_put_u32(p + INDEX_SUM_STREAMS_AT, s->stream_count);
    index_put_u32(p + INDEX_SUM_CRCS_AT, s->block_count);
    index_put_u32(p + INDEX_SUM_FILTERS_AT, s->filter.blocks);
    index_put_u32(p + INDEX_SUM_FRONT_AT, s->filter.at);
    index_put_u32(p + INDEX_SUM_HEADER_CRC_AT, crc32c(0, p, INDEX_SUM_HEADER_CRC_AT));
}

static void index_summary_put_streams(const struct index_summary *s, struct buf *out)
{
    for (uint32_t i = 0; i < s->stream_count; i++) {
        const struct index_stream *stream = &s->streams[i];
        uint8_t fixed[INDEX_SUM_STREAM_BYTES];

        ensure(i == 0 || index_stream_cmp(&s->streams[i - 1], stream) < 0);
        ensure(stream->source.len <= INDEX_SUM_TEXT_BYTES_MAX);
        ensure(stream->stream.len <= INDEX_SUM_TEXT_BYTES_MAX);
        memcpy(fixed, stream->last_id.byte, 16);
        index_put_u64(fixed + 16, stream->events);
        index_put_u16(fixed + 24, (uint16_t)stream->source.len);
        index_put_u16(fixed + 26, (uint16_t)stream->stream.len);
        buf_put(out, fixed, sizeof fixed);
        buf_put_slice(out, stream->source);
        buf_put_slice(out, stream->stream);
    }
}

/* The front's bytes; s->filter says where it ends and what follows. False: no memory, or too many
 * streams for the format. */
static bool index_summary_encode(struct index_summary *s, struct buf *out)
{
    uint8_t header[INDEX_SUM_HEADER_BYTES] = {0};
    uint8_t number[4];

    buf_put(out, header, sizeof header); /* its place; it needs the lengths */
    index_summary_put_streams(s, out);
    for (uint32_t i = 0; i < s->block_count; i++) {
        index_put_u32(number, s->block_crcs[i]);
        buf_put(out, number, sizeof number);
    }
    if (out->failed || out->len > UINT32_MAX - sizeof number) {
        return false;
    }
    s->filter.at = (uint32_t)(out->len + sizeof number);
    index_summary_put_header(s, header);
    s->filter.header_crc = index_get_u32(header + INDEX_SUM_HEADER_CRC_AT);
    memcpy(out->ptr, header, sizeof header);
    index_put_u32(number, crc32c(0, out->ptr, out->len));
    buf_put(out, number, sizeof number);
    return !out->failed;
}

/* ---- the generation's bytes ---- */

/* One reading of a generation: checksums, and the filter of its lines. */
struct index_reading {
    struct index_summary *s;
    struct buf window; /* what was read and not yet taken apart */
    uint8_t *filter;   /* lines of the filter, without the blocks' ends; NULL: there is none */
    uint32_t lines;
};

static void index_reading_start(struct index_reading *r, struct index_summary *s)
{
    uint64_t bits = s->events * INDEX_FILTER_KEY_BITS;
    uint64_t blocks = bits / (INDEX_FILTER_BYTES * 8) + 1;

    *r = (struct index_reading){.s = s};
    buf_init(&r->window, SCAN_BATCH_BYTES_MAX + INDEX_READ_BYTES);
    s->filter = (struct index_record_filter){.blocks = 0};
    if (blocks <= INDEX_RECORD_BLOCKS_MAX) {
        r->filter = calloc(blocks, INDEX_FILTER_BYTES);
    }
    if (r->filter != NULL) {
        s->filter.blocks = (uint32_t)blocks;
        r->lines = (uint32_t)blocks * INDEX_FILTER_LINES;
    }
}

/* A line that cannot be taken apart: the filter would deny what it holds, so there is none. */
static void index_reading_no_filter(struct index_reading *r)
{
    free(r->filter);
    r->filter = NULL;
    r->s->filter.blocks = 0;
    buf_free(&r->window);
}

/* Notes the record keys of all whole lines in the window, and keeps the rest of it. */
static void index_reading_lines(struct index_reading *r)
{
    size_t at = 0;
    const char *lf;

    while ((lf = memchr(r->window.ptr + at, '\n', r->window.len - at)) != NULL) {
        uint8_t fingerprint[INDEX_FINGERPRINT_LEN];
        size_t end = (size_t)(lf - r->window.ptr);
        struct line l;

        if (!line_parse(slice_of(r->window.ptr + at, end - at), &l)) {
            index_reading_no_filter(r);
            return;
        }
        index_record_fingerprint(l.source, l.record_key, fingerprint);
        index_filter_add(r->filter, r->lines, fingerprint);
        at = end + 1;
    }
    memmove(r->window.ptr, r->window.ptr + at, r->window.len - at);
    r->window.len -= at;
    if (r->window.len > SCAN_BATCH_BYTES_MAX) {
        index_reading_no_filter(r);
    }
}

/* Takes the next n bytes, which begin at a multiple of the blocks' size. */
static void index_reading_take(struct index_reading *r, const uint8_t *p, size_t n, uint64_t at)
{
    for (size_t i = 0; i < n; i += INDEX_SUMMARY_BLOCK_BYTES) {
        size_t len = n - i < INDEX_SUMMARY_BLOCK_BYTES ? n - i : INDEX_SUMMARY_BLOCK_BYTES;

        r->s->block_crcs[(at + i) / INDEX_SUMMARY_BLOCK_BYTES] = crc32c(0, p + i, len);
    }
    if (r->filter == NULL) {
        return;
    }
    buf_put(&r->window, p, n);
    if (r->window.failed) {
        index_reading_no_filter(r); /* it costs a reading of the generation, now and then */
        return;
    }
    index_reading_lines(r);
}

/* Takes the whole generation, piece by piece; a piece fits the buffer. */
static int index_reading_all(struct index_reading *r, const struct index_options *o,
                             uint8_t *buffer, struct err *e)
{
    const struct index_summary *s = r->s;
    uint64_t at = 0;

    while (at < s->bytes) {
        uint64_t left = s->bytes - at;
        size_t want = left < INDEX_READ_BYTES ? (size_t)left : INDEX_READ_BYTES;
        int64_t got = o->read(o->ctx, s->generation, at, buffer, want, e);

        if (got < 0) {
            return (int)got;
        }
        if ((size_t)got != want) {
            return err_set_at(e, ERR_CORRUPT, at + (uint64_t)got,
                              "generation %u: ends here, not after %llu bytes", s->generation,
                              (unsigned long long)s->bytes);
        }
        index_reading_take(r, buffer, want, at);
        at += want;
    }
    return 0;
}

static int index_read_generation(struct index_reading *r, const struct index_options *o,
                                 struct err *e)
{
    uint8_t *buffer = malloc(INDEX_READ_BYTES);
    int result;

    if (buffer == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read a generation");
    }
    result = index_reading_all(r, o, buffer, e);
    free(buffer);
    if (result != 0) {
        return result;
    }
    if (r->filter != NULL && r->window.len > 0) {
        index_reading_no_filter(r); /* its end is no line */
    }
    return 0;
}

/* ---- the file ---- */

static int index_summary_put_filter(const struct index_reading *r, int fd, const char *name,
                                    struct err *e)
{
    const struct index_record_filter *f = &r->s->filter;
    uint8_t block[INDEX_BLOCK_BYTES] = {0};
    int result = 0;

    for (uint32_t i = 0; i < f->blocks && result == 0; i++) {
        memcpy(block, r->filter + (size_t)i * INDEX_FILTER_BYTES, INDEX_FILTER_BYTES);
        index_sign_block(block, i, f->header_crc);
        result =
            os_pwrite_all(fd, block, sizeof block, f->at + (uint64_t)i * INDEX_BLOCK_BYTES, NULL);
    }
    return result != 0 ? err_os(e, result, "write", name) : 0;
}

static int index_summary_put(const struct index_reading *r, const char *dir, struct err *e)
{
    struct index_file file = {.fd = -1};
    struct buf front = {0};
    char name[INDEX_NAME_MAX];
    int result = 0;

    index_summary_name(name, r->s->generation);
    if (!index_summary_encode(r->s, &front)) {
        buf_free(&front);
        return err_set(e, ERR_NO_MEMORY, "no memory for %s", name);
    }
    result = index_file_create(&file, dir, name, e);
    if (result == 0) {
        result = os_pwrite_all(file.fd, front.ptr, front.len, 0, NULL);
        result = result != 0 ? err_os(e, result, "write", name)
                             : index_summary_put_filter(r, file.fd, name, e);
        if (result != 0) {
            index_file_discard(&file);
        }
    }
    buf_free(&front);
    if (result == 0) {
        result = index_file_commit(&file, e);
    }
    if (result != 0) {
        return result;
    }
    (void)os_close(file.fd); /* it is synced: a failing close loses nothing */
    return 0;
}

int index_summary_write(const char *dir, struct index_summary *s, const struct index_options *o,
                        struct err *e)
{
    struct index_reading r;
    int result;

    ensure(s->block_count == index_summary_blocks(s->bytes));
    index_reading_start(&r, s);
    result = index_read_generation(&r, o, e);
    if (result == 0) {
        result = index_summary_put(&r, dir, e);
    }
    free(r.filter);
    buf_free(&r.window);
    return result;
}
