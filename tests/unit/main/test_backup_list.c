/* test_backup_list: backup.json written, read back, and refused when it was cut anywhere, when any
 * bit of it was changed, when it leads out of the directory; every failing call is told. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "main/backup_list.h"
#include "os/os.h"
#include "tests/lib/modeldisk.h"

#define PATH  "/m/backup.json"
#define COUNT 1200 /* more than one window of the reader */

static const struct backup_about about = {.number = 7,
                                          .tree = "tree-000007",
                                          .made_at = "2026-11-30T20:12:19.615Z",
                                          .version = "tallyman \"x\"",
                                          .events = 3000,
                                          .files = COUNT,
                                          .bytes = 5,
                                          .empty = true,
                                          .engine = "absent"};

static void entry_of(unsigned i, struct backup_entry *out)
{
    memset(out, 0, sizeof *out);
    out->directory = i % 10 == 0;
    out->mode = i % 2 == 0 ? 0600 : 0755;
    (void)snprintf(out->path, sizeof out->path, "a/%u \"\\\xc3\xa4/%s", i, i == 3 ? "..b" : "x");
    if (!out->directory) {
        out->size = (uint64_t)i << 33;
        memset(out->sha256, (int)i, sizeof out->sha256);
    }
}

static int write_list(unsigned count, struct err *e)
{
    struct backup_writer w;
    int r = backup_writer_open(&w, PATH, e);
    for (unsigned i = 0; i < count && r == 0; i++) {
        struct backup_entry entry;
        entry_of(i, &entry);
        backup_writer_put(&w, &entry);
    }
    r = r == 0 ? backup_writer_sync(&w, &about, e) : r;
    backup_writer_close(&w);
    return r;
}

/* All of it, compared. */
static int read_list(unsigned count, struct err *e)
{
    struct backup_reader reader;
    struct backup_about back;
    struct backup_entry entry;
    struct backup_entry want;
    int r = backup_reader_open(&reader, PATH, &back, e);
    if (r != 0) {
        return r;
    }
    assert_string_equal(back.tree, about.tree);
    assert_string_equal(back.version, about.version);
    assert_int_equal(back.number, about.number);
    assert_int_equal(back.events, about.events);
    assert_true(back.empty);
    for (unsigned i = 0; i < count; i++) {
        r = backup_reader_next(&reader, &entry, e);
        if (r != 1) {
            backup_reader_close(&reader);
            return r;
        }
        entry_of(i, &want);
        assert_memory_equal(&entry, &want, sizeof want);
    }
    r = backup_reader_next(&reader, &entry, e);
    assert_int_equal(r, 0);
    backup_reader_close(&reader);
    return 0;
}

static void test_there_and_back(void **state)
{
    struct model *m = model_new(NULL);
    struct err e = {0};
    (void)state;
    model_use(m);
    assert_int_equal(read_list(0, &e), ERR_NOT_FOUND);
    for (unsigned count = 1; count <= COUNT; count = count < 4 ? count + 1 : count * 3) {
        assert_int_equal(write_list(count, &e), 0);
        assert_int_equal(read_list(count, &e), 0);
    }
    model_free(m);
}

static size_t get(char *out, size_t size)
{
    int fd = os_open(PATH, O_RDONLY, 0);
    int64_t n = os_pread_full(fd, out, size, 0);
    assert_int_equal(os_close(fd), 0);
    assert_true(n > 0 && (size_t)n < size);
    return (size_t)n;
}

static void put(const char *bytes, size_t n)
{
    int fd = os_open(PATH, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(os_pwrite_all(fd, bytes, n, 0, NULL), 0);
    assert_int_equal(os_close(fd), 0);
}

static void test_every_cut_and_every_changed_bit_is_refused(void **state)
{
    static char good[8192];
    static char bad[8192];
    struct model *m = model_new(NULL);
    struct err e = {0};
    (void)state;
    model_use(m);
    assert_int_equal(write_list(3, &e), 0);
    size_t n = get(good, sizeof good);
    for (size_t cut = 0; cut < n; cut++) {
        put(good, cut);
        assert_int_equal(read_list(3, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, BACKUP_LIST));
    }
    for (size_t bit = 0; bit < n * 8; bit++) {
        memcpy(bad, good, n);
        bad[bit / 8] = (char)(bad[bit / 8] ^ (1 << bit % 8));
        put(bad, n);
        int r = read_list(3, &e);
        /* The version's digit may say that it is of a later one. */
        assert_true(r == ERR_CORRUPT || r == ERR_UNSUPPORTED);
    }
    put(good, n);
    assert_int_equal(read_list(3, &e), 0);
    model_free(m);
}

/* A list with one entry's path, whose hash is right. */
static int open_with_path(const char *path)
{
    struct err e = {0};
    struct backup_writer w;
    struct backup_reader reader;
    struct backup_about back;
    struct backup_entry entry = {.mode = 0600};
    (void)snprintf(entry.path, sizeof entry.path, "%s", path);
    assert_int_equal(backup_writer_open(&w, PATH, &e), 0);
    backup_writer_put(&w, &entry);
    assert_int_equal(backup_writer_sync(&w, &about, &e), 0);
    backup_writer_close(&w);
    assert_int_equal(backup_reader_open(&reader, PATH, &back, &e), 0);
    int r = backup_reader_next(&reader, &entry, &e);
    backup_reader_close(&reader);
    return r;
}

static void test_paths_stay_inside(void **state)
{
    static const char *const bad[] = {"",   "/",      "/x",   "x/",  ".",
                                      "..", "a/../b", "a//b", "a/.", "../x"};
    static const char *const good[] = {"a", "a/b", "..a/b", "a/..b", ".a", "a b/c"};
    struct model *m = model_new(NULL);
    (void)state;
    model_use(m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_with_path(bad[i]), ERR_CORRUPT);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(open_with_path(good[i]), 1);
    }
    model_free(m);
}

static void test_every_failing_call(void **state)
{
    static const int errors[] = {EIO, ENOSPC};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bool fired = true;
        for (uint64_t at = 1; fired; at++) {
            struct model *m = model_new(NULL);
            struct err e = {0};
            const struct fault fault = {.kind = FAULT_ERROR, .error = errors[i], .at = at};
            model_use(m);
            model_fault_arm(m, &fault);
            int r = write_list(COUNT, &e);
            bool read = r == 0;
            r = r == 0 ? read_list(COUNT, &e) : r;
            fired = model_fault_fired(m) > 0;
            /* Closing tells nothing that the sync had not told. */
            assert_true(r == 0 ? read : r == ERR_IO || r == ERR_NO_SPACE);
            assert_true(r == 0 || strlen(e.text) > 0);
            model_free(m);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_every_cut_and_every_changed_bit_is_refused),
        cmocka_unit_test(test_paths_stay_inside), cmocka_unit_test(test_every_failing_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
