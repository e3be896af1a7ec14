/* fuzz_segment: a sealed generation's file, and the manifest's record of one, of any bytes.
 *
 * The first byte picks: '0' the rest is the file; '1' the same, with its checksums made good first,
 * so that what is behind them is met; '2' the rest is a record.
 *
 * Broken is: a file that opens and whose blocks do not make up what it says it has; a batch table
 * that ends well and does not name every byte and event; a reader that gives other bytes for the
 * same place, or more than there are; a record that is taken and is not written the same again. */
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/ensure.h"
#include "journal/bytes.h"
#include "journal/manifest.h"
#include "journal/segment.h"
#include "journal/segment_format.h"
#include "os/os.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FD 1000

static const uint8_t *file;
static size_t file_len;

static int64_t memory_pread(int fd, void *p, size_t n, uint64_t offset)
{
    ensure(fd == FD);
    if (offset >= file_len) {
        return 0;
    }
    size_t left = file_len - (size_t)offset;
    size_t take = n < left ? n : left;
    memcpy(p, file + offset, take);
    return (int64_t)take;
}

static int memory_fstat(int fd, struct os_stat *st)
{
    ensure(fd == FD);
    *st = (struct os_stat){.size = file_len};
    return 0;
}

static void install(void)
{
    static struct os_table table;
    if (table.pread == NULL) {
        table = os_real;
        table.pread = memory_pread;
        table.fstat = memory_fstat;
        os_install(&table);
    }
}

/* A block's checksums, where it lies in the file. */
static void mend_block(uint8_t *p, size_t end, uint8_t *entry, size_t skip)
{
    uint64_t at = index_get_u64(entry);
    uint32_t bytes = index_get_u32(entry + 16);
    uint32_t plain_bytes = index_get_u32(entry + 20);
    if (at > end || bytes > end - at || bytes <= skip || plain_bytes > SEGMENT_BLOCK_BYTES) {
        return;
    }
    index_put_u32(entry + 24, crc32c(0, p + at, bytes));
    char *plain = malloc(plain_bytes + 1u);
    ensure(plain != NULL);
    size_t n = ZSTD_decompress(plain, plain_bytes, p + at + skip, bytes - skip);
    if (!ZSTD_isError(n)) {
        index_put_u32(entry + 28, crc32c(0, plain, n));
    }
    free(plain);
}

static void mend(uint8_t *p, size_t n)
{
    if (n < SEGMENT_END_BYTES) {
        return;
    }
    uint8_t *trailer = p + n - SEGMENT_END_BYTES;
    uint64_t directory = index_get_u64(trailer + SEGMENT_END_DIRECTORY_AT);
    uint64_t data = index_get_u32(trailer + SEGMENT_END_DATA_COUNT_AT);
    uint64_t count = data + index_get_u32(trailer + SEGMENT_END_BATCH_COUNT_AT);
    uint64_t end = n - SEGMENT_END_BYTES;
    index_put_u64(trailer + SEGMENT_END_FILE_BYTES_AT, n);
    if (directory + SEGMENT_SKIP_BYTES <= end && directory < end &&
        count <= (end - directory - SEGMENT_SKIP_BYTES) / SEGMENT_ENTRY_BYTES) {
        uint8_t *entries = p + directory + SEGMENT_SKIP_BYTES;
        for (uint64_t i = 0; i < count; i++) {
            mend_block(p, (size_t)directory, entries + i * SEGMENT_ENTRY_BYTES,
                       i < data ? 0 : SEGMENT_SKIP_BYTES);
        }
        index_put_u32(trailer + SEGMENT_END_ENTRIES_CRC_AT,
                      crc32c(0, entries, (size_t)count * SEGMENT_ENTRY_BYTES));
    }
    index_put_u32(trailer + SEGMENT_END_CRC_AT, crc32c(0, trailer, SEGMENT_END_CRC_AT));
}

static void check_table(const struct segment *s)
{
    struct segment_walk w;
    struct segment_batch b;
    struct err e = {0};
    uint64_t bytes = 0;
    uint64_t events = 0;
    int r;
    segment_walk_start(&w, FD, s);
    while ((r = segment_walk_next(&w, &b, &e)) == 1) {
        ensure(b.offset == bytes);
        bytes += b.bytes;
        events += b.events;
    }
    ensure(r == 0 || r == ERR_CORRUPT);
    if (r == 0) {
        ensure(bytes == s->plain_bytes);
        ensure(events == s->events);
    }
    segment_walk_stop(&w);
}

static void check_bytes(struct segment *s)
{
    static char one[1000];
    struct bytes_file f = {.fd = FD, .segment = s};
    struct bytes_reader r;
    struct err e = {0};
    bytes_start(&r, &f);
    uint64_t places[] = {0, s->plain_bytes / 2, s->plain_bytes - 1, s->plain_bytes};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int64_t n = bytes_read(&r, one, sizeof one, places[i], &e);
        uint64_t left = s->plain_bytes - places[i];
        ensure(n == ERR_CORRUPT || (uint64_t)n == (left < sizeof one ? left : sizeof one));
        char again;
        if (n > 0) {
            bytes_drop(&r);
            ensure(bytes_read(&r, &again, 1, places[i], &e) == 1);
            ensure(again == one[0]);
        }
    }
    bytes_stop(&r);
}

static void take_file(void)
{
    struct segment *s;
    struct err e = {0};
    int r = segment_open(FD, &s, &e);
    ensure(r == 0 || r == ERR_CORRUPT || r == ERR_UNSUPPORTED);
    if (r == 0) {
        check_table(s);
        check_bytes(s);
        segment_free(s);
    } else {
        ensure(e.code == r);
    }
}

static void take_record(struct slice record)
{
    struct layout_generation g;
    struct layout_generation back;
    struct buf out = {0};
    int r = manifest_parse_segment(record, &g);
    ensure(r == 0 || r == ERR_CORRUPT || r == ERR_UNSUPPORTED);
    if (r == 0) {
        manifest_put_segment(&g, SLICE("2026-11-30T20:00:00.123Z"), &out);
        ensure(manifest_parse_segment(buf_slice(&out), &back) == 0);
        ensure(out.len == record.len);
        ensure(uuid_cmp(&back.first_id, &g.first_id) == 0);
        buf_free(&out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    uint8_t *copy = malloc(size);
    ensure(copy != NULL);
    if (size > 1) {
        memcpy(copy, data + 1, size - 1);
    }
    file = copy;
    file_len = size - 1;
    install();
    if (data[0] == '2') {
        take_record(slice_of(copy, file_len));
    } else {
        if (data[0] == '1') {
            mend(copy, file_len);
        }
        take_file();
    }
    free(copy);
    return 0;
}
