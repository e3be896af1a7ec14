/* Plain bytes of a generation: a file with block checksums gives the same bytes as the file at any
 * place and length, and none of a block that was changed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/metrics.h"
#include "journal/bytes.h"
#include "os/os.h"
#include "tests/lib/faults.h"
#include "tests/lib/journal_kit.h"
#include "tests/lib/modeldisk.h"

#define PATH      "/m/plain"
#define BYTES_MAX (3 * BYTES_CRC_BLOCK + 1234)

struct plain {
    struct model *model;
    uint8_t *data;
    size_t len;
    uint32_t crcs[4];
    struct bytes_file *file;
    struct bytes_reader reader;
};

static void start(struct plain *p, size_t len, uint64_t seed)
{
    struct err e = {0};
    p->model = model_new(NULL);
    model_use(p->model);
    p->len = len;
    p->data = malloc(len);
    assert_non_null(p->data);
    for (size_t i = 0; i < len; i++) {
        p->data[i] = (uint8_t)kit_chance(&seed);
    }
    int fd = os_open(PATH, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, p->data, len, 0, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    assert_int_equal(bytes_file_open(PATH, 7, &p->file, &e), 0);
    p->file->bytes = len;
    p->file->block_count = (uint32_t)((len + BYTES_CRC_BLOCK - 1) / BYTES_CRC_BLOCK);
    for (uint32_t i = 0; i < p->file->block_count; i++) {
        size_t at = (size_t)i * BYTES_CRC_BLOCK;
        size_t n = len - at < BYTES_CRC_BLOCK ? len - at : BYTES_CRC_BLOCK;
        p->crcs[i] = crc32c(0, p->data + at, n);
    }
    p->file->block_crcs = p->crcs;
    bytes_start(&p->reader, p->file);
}

static void stop(struct plain *p)
{
    bytes_stop(&p->reader);
    bytes_file_close(p->file);
    free(p->data);
    model_free(p->model);
}

static uint64_t seed_of_run(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static void test_any_place(void **state)
{
    (void)state;
    uint64_t chance = seed_of_run();
    static const size_t lengths[] = {1, BYTES_CRC_BLOCK, BYTES_CRC_BLOCK + 1, BYTES_MAX};
    char *got = malloc(BYTES_MAX);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct plain p;
        struct err e = {0};
        start(&p, lengths[i], chance);
        for (unsigned k = 0; k < 300; k++) {
            uint64_t at = kit_chance(&chance) % (p.len + 2);
            size_t n = (size_t)(kit_chance(&chance) % (BYTES_MAX - 1));
            size_t want = at >= p.len ? 0 : p.len - at < n ? p.len - (size_t)at : n;
            if (k % 50 == 49) {
                bytes_drop(&p.reader);
            }
            assert_int_equal(bytes_read(&p.reader, got, n, at, &e), want);
            assert_memory_equal(got, p.data + (want > 0 ? at : 0), want);
        }
        stop(&p);
    }
    free(got);
}

static void test_a_changed_byte(void **state)
{
    (void)state;
    uint64_t chance = seed_of_run();
    struct err e = {0};
    char *got = malloc(BYTES_MAX);
    struct plain p;
    start(&p, BYTES_MAX, chance);
    int fd = os_open(PATH, O_RDWR, 0);
    for (unsigned k = 0; k < 60; k++) {
        size_t at = (size_t)(kit_chance(&chance) % p.len);
        uint32_t block = (uint32_t)(at / BYTES_CRC_BLOCK);
        uint8_t bad = p.data[at] ^ (uint8_t)(1u << k % 8);
        uint64_t before = metric_get(METRIC_JOURNAL_CORRUPT_READS);
        assert_int_equal(os_pwrite_all(fd, &bad, 1, at, NULL), 0);
        bytes_drop(&p.reader);
        /* A read that touches the block fails, whatever part of it is wanted. */
        assert_int_equal(bytes_read(&p.reader, got, p.len, 0, &e), ERR_CORRUPT);
        assert_int_equal(e.offset, (uint64_t)block * BYTES_CRC_BLOCK);
        assert_non_null(strstr(e.text, "generation 7"));
        assert_int_equal(
            bytes_read(&p.reader, got, 1, (uint64_t)block * BYTES_CRC_BLOCK + at % 7, &e),
            ERR_CORRUPT);
        assert_int_equal(metric_get(METRIC_JOURNAL_CORRUPT_READS), before + 2);
        /* One that does not, does not. */
        uint32_t other = (block + 1) % p.file->block_count;
        assert_int_equal(bytes_read(&p.reader, got, 10, (uint64_t)other * BYTES_CRC_BLOCK, &e), 10);
        assert_int_equal(os_pwrite_all(fd, p.data + at, 1, at, NULL), 0);
        assert_int_equal(bytes_read(&p.reader, got, p.len, 0, &e), p.len);
    }
    /* A shorter file than its checksums speak of. */
    assert_int_equal(os_ftruncate(fd, p.len - 1), 0);
    bytes_drop(&p.reader);
    assert_int_equal(bytes_read(&p.reader, got, 8, p.len - 8, &e), ERR_CORRUPT);
    assert_int_equal(os_close(fd), 0);
    stop(&p);
    free(got);
}

static void test_failing_calls(void **state)
{
    (void)state;
    struct err e = {0};
    struct bytes_file *f;
    struct plain p;
    char got[16];
    start(&p, BYTES_MAX, 3);
    faults_install(NULL);
    faults_count_only(OS_CALL_pread, NULL);
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_int_equal(bytes_read(&p.reader, got, sizeof got, 3, &e), ERR_IO);
    p.file->block_crcs = NULL;
    assert_int_equal(bytes_read(&p.reader, got, sizeof got, 3, &e), ERR_IO);
    faults_reset();
    assert_int_equal(bytes_read(&p.reader, got, sizeof got, p.len - 3, &e), 3);
    faults_uninstall();
    assert_int_equal(bytes_file_open("/m/none", 0, &f, &e), ERR_NOT_FOUND);
    stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_place),
        cmocka_unit_test(test_a_changed_byte),
        cmocka_unit_test(test_failing_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
