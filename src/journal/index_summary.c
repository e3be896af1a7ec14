/* index_summary: what a closed generation holds, in a small checksummed file (index_format.h).
 *
 * Invariants: a summary that was loaded is byte for byte what was written, and speaks of the
 * generation that the journal has under that ordinal now: ordinal, first and last event id and
 * length agree. Streams ascend, so that readers can search and merge them.
 *
 * Power failure: the file appears whole under its name or not at all (index_file.c); without it
 * the journal reads the generation and has it written again.
 *
 * Answers: all failures. Aborts: streams out of order or texts longer than the format can say, when
 * writing; never when reading. */
#include "journal/index_summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "journal/bytes.h"
#include "journal/index_format.h"
#include "os/os.h"

#define INDEX_HASH_BYTES (256u << 10)

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
    size_t text_bytes = 0;
    char *text;

    for (uint32_t i = 0; i < from->stream_count; i++) {
        text_bytes += from->streams[i].source.len + from->streams[i].stream.len;
    }
    *to = *from;
    to->memory = malloc(table_bytes + text_bytes + 1);
    if (to->memory == NULL) {
        to->streams = NULL;
        to->stream_count = 0;
        return ERR_NO_MEMORY;
    }
    to->streams = to->memory;
    text = (char *)to->memory + table_bytes;
    for (uint32_t i = 0; i < from->stream_count; i++) {
        to->streams[i] = from->streams[i];
        to->streams[i].source = index_text_take(&text, from->streams[i].source);
        to->streams[i].stream = index_text_take(&text, from->streams[i].stream);
    }
    return 0;
}

static int index_stream_cmp(const struct index_stream *a, const struct index_stream *b)
{
    int c = slice_cmp(a->source, b->source);

    return c != 0 ? c : slice_cmp(a->stream, b->stream);
}

/* ---- writing ---- */

static int index_hash_file(struct index_summary *s, const char *path, struct err *e)
{
    struct sha256 hash;
    uint64_t offset = 0;
    int64_t got = 0;
    int result = 0;
    uint8_t *buffer;
    struct bytes_file *file;
    struct bytes_reader bytes;

    result = bytes_file_open(path, s->generation, &file, e);
    if (result != 0) {
        return result;
    }
    bytes_start(&bytes, file);
    buffer = malloc(INDEX_HASH_BYTES);
    if (buffer == NULL) {
        result = err_set(e, ERR_NO_MEMORY, "no memory to hash %s", path);
        goto out;
    }
    sha256_start(&hash);
    do {
        got = bytes_read(&bytes, buffer, INDEX_HASH_BYTES, offset, e);
        if (got < 0) {
            result = (int)got;
            goto out;
        }
        sha256_add(&hash, buffer, (size_t)got);
        offset += (uint64_t)got;
    } while (got == (int64_t)INDEX_HASH_BYTES);
    if (offset != s->bytes) {
        result = err_set_at(e, ERR_CORRUPT, offset, "%s: ends here, not after %llu bytes", path,
                            (unsigned long long)s->bytes);
        goto out;
    }
    sha256_end(&hash, s->file_sha256);
out:
    free(buffer);
    bytes_stop(&bytes);
    bytes_file_close(file);
    return result;
}

static void index_summary_put_header(const struct index_summary *s, uint64_t size, uint8_t *p)
{
    memcpy(p, INDEX_SUM_MAGIC, INDEX_MAGIC_LEN);
    index_put_u32(p + INDEX_SUM_VERSION_AT, INDEX_VERSION);
    index_put_u32(p + INDEX_SUM_GENERATION_AT, s->generation);
    index_put_u64(p + INDEX_SUM_SIZE_AT, size);
    memcpy(p + INDEX_SUM_FIRST_ID_AT, s->first_id.byte, 16);
    memcpy(p + INDEX_SUM_LAST_ID_AT, s->last_id.byte, 16);
    index_put_u64(p + INDEX_SUM_EVENTS_AT, s->events);
    index_put_u64(p + INDEX_SUM_BATCHES_AT, s->batches);
    index_put_u64(p + INDEX_SUM_BYTES_AT, s->bytes);
    memcpy(p + INDEX_SUM_HEAD_AT, s->head, SHA256_LEN);
    memcpy(p + INDEX_SUM_SHA256_AT, s->file_sha256, SHA256_LEN);
    index_put_u32(p + INDEX_SUM_STREAMS_AT, s->stream_count);
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

/* The file's bytes; out->failed when there is no memory. */
static void index_summary_encode(const struct index_summary *s, struct buf *out)
{
    uint8_t header[INDEX_SUM_HEADER_BYTES] = {0};
    uint8_t crc[4];

    buf_put(out, header, sizeof header); /* its place; it needs the size */
    index_summary_put_streams(s, out);
    if (out->failed) {
        return;
    }
    index_summary_put_header(s, out->len + sizeof crc, header);
    memcpy(out->ptr, header, sizeof header);
    index_put_u32(crc, crc32c(0, out->ptr, out->len));
    buf_put(out, crc, sizeof crc);
}

int index_summary_write(const char *dir, struct index_summary *s, const char *path, struct err *e)
{
    struct index_file file = {.fd = -1};
    struct buf bytes = {0};
    char name[INDEX_NAME_MAX];
    int result = index_hash_file(s, path, e);

    if (result != 0) {
        return result;
    }
    index_summary_name(name, s->generation);
    index_summary_encode(s, &bytes);
    if (bytes.failed) {
        result = err_set(e, ERR_NO_MEMORY, "no memory for %s", name);
        goto out;
    }
    result = index_file_create(&file, dir, name, e);
    if (result != 0) {
        goto out;
    }
    result = os_pwrite_all(file.fd, bytes.ptr, bytes.len, 0, NULL);
    if (result != 0) {
        result = err_os(e, result, "write", name);
        index_file_discard(&file);
        goto out;
    }
    result = index_file_commit(&file, e);
    if (result == 0) {
        (void)os_close(file.fd); /* it is synced: a failing close loses nothing */
    }
out:
    buf_free(&bytes);
    return result;
}

/* ---- reading ---- */

/* Reads the whole file behind room for the streams of its header: *memory is the streams' table,
 * *bytes the file. */
static int index_summary_read(int fd, uint64_t size, const char *name, uint8_t **memory,
                              uint32_t *stream_count, struct err *e)
{
    uint8_t header[INDEX_SUM_HEADER_BYTES];
    int64_t got = os_pread_full(fd, header, sizeof header, 0);
    size_t table_bytes;
    uint32_t count;

    if (got < 0) {
        return err_os(e, (int)got, "read", name);
    }
    if (got != (int64_t)sizeof header || memcmp(header, INDEX_SUM_MAGIC, INDEX_MAGIC_LEN) != 0 ||
        index_get_u32(header + INDEX_SUM_HEADER_CRC_AT) !=
            crc32c(0, header, INDEX_SUM_HEADER_CRC_AT)) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: the header does not hold its checksum", name);
    }
    count = index_get_u32(header + INDEX_SUM_STREAMS_AT);
    /* The last comparison bounds what is allocated by what is there. */
    if (index_get_u32(header + INDEX_SUM_VERSION_AT) != INDEX_VERSION ||
        index_get_u64(header + INDEX_SUM_SIZE_AT) != size || size < sizeof header + 4 ||
        count > (size - sizeof header - 4) / INDEX_SUM_STREAM_BYTES) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: unknown version, or not whole", name);
    }
    table_bytes = (size_t)count * sizeof(struct index_stream);
    *memory = malloc(table_bytes + (size_t)size);
    if (*memory == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for %s", name);
    }
    *stream_count = count;
    got = os_pread_full(fd, *memory + table_bytes, (size_t)size, 0);
    if (got < 0) {
        return err_os(e, (int)got, "read", name);
    }
    if ((uint64_t)got != size || index_get_u32(*memory + table_bytes + size - 4) !=
                                     crc32c(0, *memory + table_bytes, (size_t)size - 4)) {
        return err_set(e, ERR_CORRUPT, "%s: does not hold its checksum", name);
    }
    return 0;
}

/* Points the streams' table into the file's bytes; false when they do not add up. */
static bool index_summary_get_streams(struct index_summary *s, const uint8_t *p, const uint8_t *end)
{
    for (uint32_t i = 0; i < s->stream_count; i++) {
        struct index_stream *stream = &s->streams[i];
        size_t source_len;
        size_t stream_len;

        if ((size_t)(end - p) < INDEX_SUM_STREAM_BYTES) {
            return false;
        }
        memcpy(stream->last_id.byte, p, 16);
        stream->events = index_get_u64(p + 16);
        source_len = index_get_u16(p + 24);
        stream_len = index_get_u16(p + 26);
        p += INDEX_SUM_STREAM_BYTES;
        if ((size_t)(end - p) < source_len + stream_len) {
            return false;
        }
        stream->source = slice_of(p, source_len);
        stream->stream = slice_of(p + source_len, stream_len);
        p += source_len + stream_len;
        if (i > 0 && index_stream_cmp(&s->streams[i - 1], stream) >= 0) {
            return false;
        }
    }
    return p == end;
}

static int index_summary_decode(struct index_summary *s, uint64_t size,
                                const struct index_generation *expect, const char *name,
                                struct err *e)
{
    const uint8_t *p = (const uint8_t *)s->memory + (size_t)s->stream_count * sizeof *s->streams;
    uint32_t generation = index_get_u32(p + INDEX_SUM_GENERATION_AT);

    s->streams = s->memory;
    memcpy(s->first_id.byte, p + INDEX_SUM_FIRST_ID_AT, 16);
    memcpy(s->last_id.byte, p + INDEX_SUM_LAST_ID_AT, 16);
    s->events = index_get_u64(p + INDEX_SUM_EVENTS_AT);
    s->batches = index_get_u64(p + INDEX_SUM_BATCHES_AT);
    s->bytes = index_get_u64(p + INDEX_SUM_BYTES_AT);
    memcpy(s->head, p + INDEX_SUM_HEAD_AT, SHA256_LEN);
    memcpy(s->file_sha256, p + INDEX_SUM_SHA256_AT, SHA256_LEN);
    if (generation != s->generation || uuid_cmp(&s->first_id, &expect->first_id) != 0 ||
        uuid_cmp(&s->last_id, &expect->last_id) != 0 || s->bytes != expect->bytes) {
        return err_set(e, ERR_CORRUPT, "%s: not of this generation", name);
    }
    if (!index_summary_get_streams(s, p + INDEX_SUM_HEADER_BYTES, p + size - 4)) {
        return err_set(e, ERR_CORRUPT, "%s: streams are out of place", name);
    }
    return 0;
}

int index_summary_load(const char *dir, uint32_t n, const struct index_generation *expect,
                       struct index_summary *out, struct err *e)
{
    struct index_summary s = {.generation = n};
    char name[INDEX_NAME_MAX];
    char path[PATH_MAX];
    uint8_t *memory = NULL;
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
    result = index_summary_read(fd, st.size, name, &memory, &s.stream_count, e);
    s.memory = memory;
    if (result == 0) {
        result = index_summary_decode(&s, st.size, expect, name, e);
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
