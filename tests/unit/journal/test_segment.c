/* The file of a sealed generation: what goes in comes out, whatever the sizes; a file that is
 * shorter or of which a byte changed is refused where that byte is needed; the manifest's record.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "journal/bytes.h"
#include "journal/manifest.h"
#include "journal/segment_format.h"
#include "journal/segment_write.h"
#include "os/os.h"
#include "tests/lib/faults.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"

#define PATH "/m/a.ndjson.zst"

struct made {
    struct model *model;
    char *plain;
    size_t len;
    uint32_t batches;
    struct segment_batch *rows;
    char (*names)[64]; /* two for each row */
    uint8_t head[SHA256_LEN], sha256[SHA256_LEN];
};

static uint64_t seed_of_run(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static struct uuid id_of(uint32_t n)
{
    struct uuid u = {{0x01, 0x92, 0, 0, 0, 0, 0x70, 0, 0x80}};
    index_put_u32(u.byte + 12, __builtin_bswap32(n));
    return u;
}

/* Batches of lines that compress well or not at all. */
static void fill(struct made *m, uint32_t batches, size_t bytes_max, uint64_t seed)
{
    uint32_t next_id = 1;
    m->batches = batches;
    m->rows = calloc(batches, sizeof *m->rows);
    m->names = calloc((size_t)batches * 2, sizeof *m->names);
    m->plain = malloc(batches * bytes_max);
    assert_non_null(m->plain);
    for (uint32_t i = 0; i < batches; i++) {
        struct segment_batch *b = &m->rows[i];
        size_t n = 1 + (size_t)(kit_chance(&seed) % bytes_max);
        bool noise = kit_chance(&seed) % 3 == 0;
        for (size_t k = 0; k < n; k++) {
            m->plain[m->len + k] = (char)(noise ? kit_chance(&seed) : 'a' + k % 7);
        }
        (void)snprintf(m->names[2 * i], sizeof *m->names, "\"source-%u\"", i % 3);
        (void)snprintf(m->names[2 * i + 1], sizeof *m->names, "\"batch-%u\"", i);
        b->source = slice_cstr(m->names[2 * i]);
        b->batch_id = slice_cstr(m->names[2 * i + 1]);
        b->offset = m->len;
        b->bytes = n;
        b->events = 1 + (uint32_t)(kit_chance(&seed) % 3);
        b->first_id = id_of(next_id);
        b->last_id = id_of(next_id + b->events - 1);
        next_id += b->events + (uint32_t)(kit_chance(&seed) % 2);
        for (size_t k = 0; k < SHA256_LEN; k++) {
            b->digest[k] = (uint8_t)kit_chance(&seed);
        }
        m->len += n;
    }
    memset(m->head, 0x5a, sizeof m->head);
}

static int write_segment(struct made *m, struct err *e)
{
    struct segment_writer w;
    int fd = os_open(PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "open", PATH);
    }
    int r = segment_writer_start(&w, fd, e);
    for (uint32_t i = 0; i < m->batches && r == 0; i++) {
        r = segment_writer_add(&w, &m->rows[i], m->plain + m->rows[i].offset, e);
    }
    if (r == 0) {
        r = segment_writer_finish(&w, m->head, m->sha256, e);
    }
    segment_writer_stop(&w);
    (void)os_close(fd);
    return r;
}

static void make(struct made *m, uint32_t batches, size_t bytes_max, uint64_t seed)
{
    struct err e = {0};
    *m = (struct made){.model = model_new(NULL)};
    model_use(m->model);
    fill(m, batches, bytes_max, seed);
    if (write_segment(m, &e) != 0) {
        fail_msg("%s", e.text);
    }
}

static void drop(struct made *m)
{
    free(m->plain);
    free(m->rows);
    free(m->names);
    model_free(m->model);
}

static bool same_row(const struct segment_batch *a, const struct segment_batch *b)
{
    return a->offset == b->offset && a->bytes == b->bytes && a->events == b->events &&
           slice_eq(a->source, b->source) && slice_eq(a->batch_id, b->batch_id) &&
           memcmp(a->digest, b->digest, SHA256_LEN) == 0 &&
           uuid_cmp(&a->first_id, &b->first_id) == 0 && uuid_cmp(&a->last_id, &b->last_id) == 0;
}

/* Reads everything there is in the file. 0 when all of it is what was put in, and nothing else. */
static int read_everything(const struct made *m, struct err *e)
{
    struct bytes_file *f;
    struct bytes_reader reader;
    struct segment_walk walk;
    struct segment_batch row;
    uint32_t n = 0;
    char *got = malloc(m->len + 1);
    assert_non_null(got);
    int r = bytes_file_open(PATH, 3, &f, e);
    if (r != 0) {
        free(got);
        return r;
    }
    const struct segment *s = f->segment;
    assert_int_equal(s->plain_bytes, m->len);
    assert_int_equal(s->batches, m->batches);
    assert_memory_equal(s->head, m->head, SHA256_LEN);
    bytes_start(&reader, f);
    int64_t len = bytes_read(&reader, got, m->len + 1, 0, e);
    if (len >= 0) {
        assert_int_equal(len, m->len);
        assert_memory_equal(got, m->plain, m->len);
    }
    r = len < 0 ? (int)len : 0;
    bytes_stop(&reader);
    segment_walk_start(&walk, f->fd, s);
    int code;
    while ((code = segment_walk_next(&walk, &row, e)) == 1) {
        assert_true(n < m->batches);
        assert_true(same_row(&row, &m->rows[n]));
        n++;
    }
    segment_walk_stop(&walk);
    if (code == 0) {
        assert_int_equal(n, m->batches);
    }
    bytes_file_close(f);
    free(got);
    return r != 0 ? r : code;
}

static void test_round_trips(void **state)
{
    static const struct {
        uint32_t batches;
        size_t bytes_max;
    } sizes[] = {{1, 1}, {1, 3 * SEGMENT_BLOCK_BYTES}, {40, 30000}, {9000, 100}, {7, 200000}};
    uint64_t chance = seed_of_run();
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct made m;
        struct err e = {0};
        struct bytes_file *f;
        struct bytes_reader r;
        make(&m, sizes[i].batches, sizes[i].bytes_max, kit_chance(&chance));
        if (read_everything(&m, &e) != 0) {
            fail_msg("%s", e.text);
        }
        /* At random places, as the plain file would give it. */
        char *got = malloc(m.len + 1);
        assert_int_equal(bytes_file_open(PATH, 0, &f, &e), 0);
        bytes_start(&r, f);
        for (unsigned k = 0; k < 100; k++) {
            uint64_t at = kit_chance(&chance) % (m.len + 2);
            size_t n = (size_t)(kit_chance(&chance) % (m.len + 1));
            size_t want = at >= m.len ? 0 : m.len - at < n ? m.len - (size_t)at : n;
            assert_int_equal(bytes_read(&r, got, n, at, &e), want);
            assert_memory_equal(got, m.plain + (want > 0 ? at : 0), want);
            if (k % 30 == 0) {
                bytes_drop(&r);
            }
        }
        bytes_stop(&r);
        bytes_file_close(f);
        free(got);
        drop(&m);
    }
}

/* The file of one small generation, with each bit changed and cut at each length. */
static void test_every_byte(void **state)
{
    struct made m;
    struct err e = {0};
    struct os_stat st;
    (void)state;
    make(&m, 3, 200, seed_of_run());
    assert_int_equal(os_stat(PATH, &st), 0);
    int fd = os_open(PATH, O_RDWR, 0);
    char *good = malloc(st.size);
    assert_non_null(good);
    assert_int_equal(os_pread_full(fd, good, st.size, 0), st.size);
    for (uint64_t at = 0; at < st.size; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char bad = (char)((unsigned char)good[at] ^ 1u << bit);
            assert_int_equal(os_pwrite_all(fd, &bad, 1, at, NULL), 0);
            int r = read_everything(&m, &e);
            if (r != ERR_CORRUPT && r != ERR_UNSUPPORTED) {
                fail_msg("byte %llu: %s", (unsigned long long)at, err_name(r));
            }
        }
        assert_int_equal(os_pwrite_all(fd, &good[at], 1, at, NULL), 0);
    }
    for (uint64_t len = 0; len < st.size; len++) {
        assert_int_equal(os_ftruncate(fd, len), 0);
        assert_int_equal(read_everything(&m, &e), ERR_CORRUPT);
        assert_int_equal(os_pwrite_all(fd, good + len, st.size - len, len, NULL), 0);
    }
    assert_int_equal(os_pwrite_all(fd, "x", 1, st.size, NULL), 0);
    assert_int_equal(read_everything(&m, &e), ERR_CORRUPT);
    assert_int_equal(os_ftruncate(fd, st.size), 0);
    assert_int_equal(read_everything(&m, &e), 0);
    free(good);
    (void)os_close(fd);
    drop(&m);
}

/* A trailer and a directory that hold their checksums and lie. */
static void test_lies(void **state)
{
    static const struct {
        unsigned at; /* in the trailer */
        uint64_t value;
        unsigned bytes;
    } lies[] = {{SEGMENT_END_PLAIN_BYTES_AT, 0, 8},
                {SEGMENT_END_PLAIN_BYTES_AT, UINT64_MAX, 8},
                {SEGMENT_END_PLAIN_BYTES_AT, 1, 8},
                {SEGMENT_END_EVENTS_AT, 1, 8},
                {SEGMENT_END_BATCHES_AT, 2, 8},
                {SEGMENT_END_DATA_COUNT_AT, 0, 4},
                {SEGMENT_END_DATA_COUNT_AT, UINT32_MAX, 4},
                {SEGMENT_END_BATCH_COUNT_AT, 0, 4},
                {SEGMENT_END_BATCH_COUNT_AT, UINT32_MAX, 4},
                {SEGMENT_END_DIRECTORY_AT, 0, 8},
                {SEGMENT_END_DIRECTORY_AT, UINT64_MAX, 8},
                {SEGMENT_END_FILE_BYTES_AT, 0, 8},
                {SEGMENT_END_VERSION_AT, 2, 4},
                {SEGMENT_END_BLOCK_BYTES_AT, 4096, 4}};
    struct made m;
    struct err e = {0};
    struct os_stat st;
    uint8_t good[SEGMENT_END_BYTES];
    uint8_t bad[SEGMENT_END_BYTES];
    (void)state;
    make(&m, 3, 200, 5);
    assert_int_equal(os_stat(PATH, &st), 0);
    int fd = os_open(PATH, O_RDWR, 0);
    uint64_t end = st.size - SEGMENT_END_BYTES;
    assert_int_equal(os_pread_full(fd, good, sizeof good, end), sizeof good);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        memcpy(bad, good, sizeof bad);
        if (lies[i].bytes == 8) {
            index_put_u64(bad + lies[i].at, lies[i].value);
        } else {
            index_put_u32(bad + lies[i].at, (uint32_t)lies[i].value);
        }
        index_put_u32(bad + SEGMENT_END_CRC_AT, crc32c(0, bad, SEGMENT_END_CRC_AT));
        assert_int_equal(os_pwrite_all(fd, bad, sizeof bad, end, NULL), 0);
        struct segment *s = NULL;
        int r = segment_open(fd, &s, &e);
        if (r == 0) { /* what only the batch table can tell */
            struct segment_walk w;
            struct segment_batch row;
            segment_walk_start(&w, fd, s);
            while ((r = segment_walk_next(&w, &row, &e)) == 1) {
            }
            segment_walk_stop(&w);
            segment_free(s);
        }
        bool later =
            lies[i].at == SEGMENT_END_VERSION_AT || lies[i].at == SEGMENT_END_BLOCK_BYTES_AT;
        assert_int_equal(r, later ? ERR_UNSUPPORTED : ERR_CORRUPT);
    }
    (void)os_close(fd);
    drop(&m);
}

/* Each call failing in its turn: an error, no leak, and nothing wrong is given out. */
static void test_every_fault(void **state)
{
    struct made m;
    struct err e = {0};
    (void)state;
    make(&m, 30, 30000, 9);
    static const int errors[] = {EIO, ENOSPC};
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t k = 1;; k++) {
            faults_install(NULL);
            faults_arm(k, errors[i], false, FAULT_ERROR);
            int r = write_segment(&m, &e);
            if (r == 0) {
                r = read_everything(&m, &e);
            }
            bool fired = faults_fired() > 0;
            faults_uninstall();
            /* Closing is no promise. */
            assert_true(r == 0 || (fired && (r == ERR_IO || r == ERR_NO_SPACE)));
            if (!fired) {
                break;
            }
        }
    }
    drop(&m);
}

/* The record of the manifest, with each byte of it changed. */
static void test_record(void **state)
{
    struct layout_generation g = {.bytes = 67108000, .events = 123456, .sealed = true};
    struct layout_generation back;
    struct buf record = {0};
    (void)state;
    g.first_id = id_of(1);
    g.last_id = id_of(77);
    memset(g.sha256, 0xab, sizeof g.sha256);
    memset(g.head, 0xcd, sizeof g.head);
    manifest_put_segment(&g, SLICE("2026-11-30T20:00:00.123Z"), &record);
    assert_int_equal(manifest_parse_segment(buf_slice(&record), &back), 0);
    assert_true(back.sealed);
    assert_int_equal(back.bytes, g.bytes);
    assert_int_equal(back.events, g.events);
    assert_memory_equal(&back.first_id, &g.first_id, 16);
    assert_memory_equal(&back.last_id, &g.last_id, 16);
    assert_memory_equal(back.sha256, g.sha256, SHA256_LEN);
    assert_memory_equal(back.head, g.head, SHA256_LEN);
    unsigned taken = 0;
    for (size_t at = 0; at < record.len; at++) {
        record.ptr[at] ^= 1;
        /* Another digit of a number, a time or a head makes another record, of course. */
        taken += manifest_parse_segment(buf_slice(&record), &back) == 0;
        record.ptr[at] ^= 1;
        assert_true(manifest_parse_segment(slice_of(record.ptr, at), &back) != 0);
    }
    assert_in_range(taken, 1, 8 + 6 + 24 + 64);
    buf_free(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips), cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_lies),        cmocka_unit_test(test_every_fault),
        cmocka_unit_test(test_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
