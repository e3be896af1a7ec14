/* index_summary: reading what a closed generation holds (index_format.h).
 *
 * Invariants: a summary that was loaded is byte for byte what was written, and speaks of the
 * generation that the journal has under that ordinal now: ordinal, first and last event id and
 * length agree, and there are as many checksums as the generation has blocks. Streams ascend, so
 * that readers can search and merge them. The filter is read block by block when it is asked, and
 * each block is checked then: a start reads some kilobytes a generation.
 *
 * Power failure: nothing is written here.
 *
 * Answers: all failures. Aborts: none. */
#include "journal/index_summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal/index_filter.h"
#include "journal/index_format.h"
#include "os/os.h"

#define INDEX_SUMMARY_FIRST_READ 8192u

void index_summary_name(char out[INDEX_NAME_MAX], uint32_t generation)
{
    int n = snprintf(out, INDEX_NAME_MAX, "gen-%08u.sum", generation);

    ensure(n > 0);
    ensure(n < INDEX_NAME_MAX - (int)sizeof INDEX_TEMP_SUFFIX);
}

void index_summary_free(struct index_summary *s)
{
    free(s->memory);
    s->memory = NULL;
    s->streams = NULL;
    s->stream_count = 0;
    s->block_crcs = NULL;
    s->block_count = 0;
}

static struct slice index_text_take(char **at, struct slice text)
{
    struct slice taken = {.ptr = *at, .len = text.len};

    if (text.len > 0) {
        memcpy(*at, text.ptr, text.len);
    }
    *at += text.len;
    return taken;
}

int index_summary_copy(struct index_summary *to, const struct index_summary *from)
{
    size_t table_bytes = (size_t)from->stream_count * sizeof *from->streams;
    uint64_t blocks = index_summary_blocks(from->bytes);
    size_t text_bytes = 0;
    char *text;

    for (uint32_t i = 0; i < from->stream_count; i++) {
        text_bytes += from->streams[i].source.len + from->streams[i].stream.len;
    }
    ensure(blocks <= UINT32_MAX);
    *to = *from;
    to->memory = malloc(table_bytes + blocks * sizeof *to->block_crcs + text_bytes + 1);
    if (to->memory == NULL) {
        index_summary_free(to);
        return ERR_NO_MEMORY;
    }
    to->streams = to->memory;
    to->block_crcs = (uint32_t *)(void *)((char *)to->memory + table_bytes);
    to->block_count = (uint32_t)blocks;
    text = (char *)(to->block_crcs + blocks);
    for (uint32_t i = 0; i < from->stream_count; i++) {
        to->streams[i] = from->streams[i];
        to->streams[i].source = index_text_take(&text, from->streams[i].source);
        to->streams[i].stream = index_text_take(&text, from->streams[i].stream);
    }
    return 0;
}

int index_stream_cmp(const struct index_stream *a, const struct index_stream *b)
{
    int c = slice_cmp(a->source, b->source);

    return c != 0 ? c : slice_cmp(a->stream, b->stream);
}

/* ---- reading ---- */

/* The front of a summary file, and what its header says of the lengths. */
struct index_front {
    uint8_t *memory; /* the table of streams, the checksums, then the front's bytes */
    uint8_t *bytes;
    uint32_t size;
};

static int index_summary_check_header(const uint8_t *header, uint64_t size, const char *name,
                                      struct err *e)
{
    uint64_t streams = index_get_u32(header + INDEX_SUM_STREAMS_AT);
    uint64_t crcs = index_get_u32(header + INDEX_SUM_CRCS_AT);
    uint64_t filters = index_get_u32(header + INDEX_SUM_FILTERS_AT);
    uint64_t front = index_get_u32(header + INDEX_SUM_FRONT_AT);

    if (memcmp(header, INDEX_SUM_MAGIC, INDEX_MAGIC_LEN) != 0) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: no summary", name);
    }
    if (index_get_u32(header + INDEX_SUM_VERSION_AT) != INDEX_VERSION) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: unknown version", name);
    }
    if (index_get_u32(header + INDEX_SUM_HEADER_CRC_AT) !=
        crc32c(0, header, INDEX_SUM_HEADER_CRC_AT)) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: the header does not hold its checksum", name);
    }
    /* The last line bounds what is allocated by what is there. */
    if (index_get_u64(header + INDEX_SUM_SIZE_AT) != size ||
        size != front + filters * INDEX_BLOCK_BYTES ||
        crcs != index_summary_blocks(index_get_u64(header + INDEX_SUM_BYTES_AT)) ||
        front < INDEX_SUM_HEADER_BYTES + 4 + streams * INDEX_SUM_STREAM_BYTES + crcs * 4) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: not whole", name);
    }
    return 0;
}

/* Reads header, streams and checksums, most often with one call; not the filter. */
static int index_summary_read(int fd, uint64_t size, const char *name, struct index_summary *s,
                              struct index_front *f, struct err *e)
{
    uint8_t begin[INDEX_SUMMARY_FIRST_READ];
    int64_t got = os_pread_full(fd, begin, sizeof begin, 0);
    size_t have;
    size_t table_bytes;
    int result;

    if (got < 0) {
        return err_os(e, (int)got, "read", name);
    }
    if (got < (int64_t)INDEX_SUM_HEADER_BYTES) {
        return err_set_at(e, ERR_CORRUPT, (uint64_t)got, "%s: ends in its header", name);
    }
    result = index_summary_check_header(begin, size, name, e);
    if (result != 0) {
        return result;
    }
    s->stream_count = index_get_u32(begin + INDEX_SUM_STREAMS_AT);
    s->block_count = index_get_u32(begin + INDEX_SUM_CRCS_AT);
    f->size = index_get_u32(begin + INDEX_SUM_FRONT_AT);
    table_bytes = (size_t)s->stream_count * sizeof(struct index_stream);
    f->memory = malloc(table_bytes + (size_t)s->block_count * 4 + f->size);
    if (f->memory == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for %s", name);
    }
    f->bytes = f->memory + table_bytes + (size_t)s->block_count * 4;
    have = (size_t)got < f->size ? (size_t)got : f->size;
    memcpy(f->bytes, begin, have);
    if (have < f->size) {
        got = os_pread_full(fd, f->bytes + have, f->size - have, have);
        if (got < 0) {
            return err_os(e, (int)got, "read", name);
        }
        have += (size_t)got;
    }
    if (have != f->size ||
        index_get_u32(f->bytes + f->size - 4) != crc32c(0, f->bytes, f->size - 4)) {
        return err_set(e, ERR_CORRUPT, "%s: does not hold its checksum", name);
    }
    return 0;
}

/* Points the streams' table into the file's bytes; NULL when they do not add up, else their end. */
static const uint8_t *index_summary_get_streams(struct index_summary *s, const uint8_t *p,
                                                const uint8_t *end)
{
    for (uint32_t i = 0; i < s->stream_count; i++) {
        struct index_stream *stream = &s->streams[i];
        size_t source_len;
        size_t stream_len;

        if ((size_t)(end - p) < INDEX_SUM_STREAM_BYTES) {
            return NULL;
        }
        memcpy(stream->last_id.byte, p, 16);
        stream->events = index_get_u64(p + 16);
        source_len = index_get_u16(p + 24);
        stream_len = index_get_u16(p + 26);
        p += INDEX_SUM_STREAM_BYTES;
        if ((size_t)(end - p) < source_len + stream_len) {
            return NULL;
        }
        stream->source = slice_of(p, source_len);
        stream->stream = slice_of(p + source_len, stream_len);
        p += source_len + stream_len;
        if (i > 0 && index_stream_cmp(&s->streams[i - 1], stream) >= 0) {
            return NULL;
        }
    }
    return p;
}

static int index_summary_decode(struct index_summary *s, const struct index_front *f,
                                const struct index_generation *expect, const char *name,
                                struct err *e)
{
    const uint8_t *p = f->bytes;
    const uint8_t *end = f->bytes + f->size - 4 - (size_t)s->block_count * 4;
    uint32_t generation = index_get_u32(p + INDEX_SUM_GENERATION_AT);

    s->streams = s->memory;
    s->block_crcs = (uint32_t *)(void *)(f->memory + (size_t)s->stream_count * sizeof *s->streams);
    memcpy(s->first_id.byte, p + INDEX_SUM_FIRST_ID_AT, 16);
    memcpy(s->last_id.byte, p + INDEX_SUM_LAST_ID_AT, 16);
    s->events = index_get_u64(p + INDEX_SUM_EVENTS_AT);
    s->batches = index_get_u64(p + INDEX_SUM_BATCHES_AT);
    s->bytes = index_get_u64(p + INDEX_SUM_BYTES_AT);
    memcpy(s->head, p + INDEX_SUM_HEAD_AT, SHA256_LEN);
    s->filter =
        (struct index_record_filter){.at = f->size,
                                     .blocks = index_get_u32(p + INDEX_SUM_FILTERS_AT),
                                     .header_crc = index_get_u32(p + INDEX_SUM_HEADER_CRC_AT)};
    if (generation != s->generation || uuid_cmp(&s->first_id, &expect->first_id) != 0 ||
        uuid_cmp(&s->last_id, &expect->last_id) != 0 || s->bytes != expect->bytes) {
        return err_set(e, ERR_CORRUPT, "%s: not of this generation", name);
    }
    if (index_summary_get_streams(s, p + INDEX_SUM_HEADER_BYTES, end) != end) {
        return err_set(e, ERR_CORRUPT, "%s: streams are out of place", name);
    }
    for (uint32_t i = 0; i < s->block_count; i++) {
        s->block_crcs[i] = index_get_u32(end + (size_t)i * 4);
    }
    return 0;
}

int index_summary_load(const char *dir, uint32_t n, const struct index_generation *expect,
                       struct index_summary *out, struct err *e)
{
    struct index_summary s = {.generation = n};
    char name[INDEX_NAME_MAX];
    char path[PATH_MAX];
    struct index_front f = {.memory = NULL};
    struct os_stat st;
    int result;
    int fd;

    index_summary_name(name, n);
    index_path(path, dir, name);
    fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "%s: missing", name);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    result = os_fstat(fd, &st);
    if (result != 0) {
        result = err_os(e, result, "stat", path);
        goto out;
    }
    result = index_summary_read(fd, st.size, name, &s, &f, e);
    s.memory = f.memory;
    if (result == 0) {
        result = index_summary_decode(&s, &f, expect, name, e);
    }
out:
    (void)os_close(fd);
    if (result == 0) {
        *out = s;
    } else {
        index_summary_free(&s);
    }
    return result;
}

/* ---- asking ---- */

void index_record_fingerprint(struct slice source, struct slice record_key, uint8_t out[16])
{
    uint8_t full[SHA256_LEN];
    struct sha256 h;

    sha256_start(&h);
    sha256_add(&h, source.ptr, source.len);
    sha256_add(&h, "", 1);
    sha256_add(&h, record_key.ptr, record_key.len);
    sha256_end(&h, full);
    memcpy(out, full, INDEX_FINGERPRINT_LEN);
}

bool index_record_maybe(const char *dir, uint32_t generation, const struct index_record_filter *f,
                        struct slice source, struct slice record_key)
{
    uint8_t fingerprint[INDEX_FINGERPRINT_LEN];
    uint8_t block[INDEX_BLOCK_BYTES];
    char name[INDEX_NAME_MAX];
    char path[PATH_MAX];
    uint32_t line;
    uint32_t number;
    int64_t got;
    int fd;

    if (f->blocks == 0) {
        return true;
    }
    index_record_fingerprint(source, record_key, fingerprint);
    line = index_filter_line(f->blocks * INDEX_FILTER_LINES, fingerprint);
    number = line / INDEX_FILTER_LINES;
    index_summary_name(name, generation);
    index_path(path, dir, name);
    fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return true;
    }
    got = os_pread_full(fd, block, sizeof block, f->at + (uint64_t)number * INDEX_BLOCK_BYTES);
    (void)os_close(fd);
    if (got < 0) {
        return true;
    }
    if (got != (int64_t)sizeof block || !index_block_holds(block, number, f->header_crc)) {
        struct err e;

        (void)err_set(&e, ERR_CORRUPT,
                      "block %u of the filter does not hold; the next start makes "
                      "it again",
                      number);
        index_failed("ask", name, &e);
        index_unlink(dir, name);
        return true;
    }
    return index_filter_line_maybe(
        block + (size_t)(line % INDEX_FILTER_LINES) * INDEX_FILTER_LINE_BYTES, fingerprint);
}
