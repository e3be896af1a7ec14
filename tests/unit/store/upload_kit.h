/* upload_kit: what the tests of the upload store share: a data directory of their own, uploads of
 * seeded bytes, small ways to look at their files. */
#ifndef TESTS_UNIT_STORE_UPLOAD_KIT_H
#define TESTS_UNIT_STORE_UPLOAD_KIT_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload.h"

#define KIT_ISSUER "http://127.0.0.1:8080"

static char kit_dir[64];
static struct uploads *kit_us;
static struct err kit_err;

static inline int kit_setup(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1);
    (void)snprintf(kit_dir, sizeof kit_dir, "/tmp/test-upload-XXXXXX");
    assert_non_null(mkdtemp(kit_dir));
    struct uploads_options options = {.data = kit_dir, .issuer = KIT_ISSUER};
    assert_int_equal(uploads_open(&options, &kit_us, &kit_err), 0);
    return 0;
}

static inline int kit_teardown(void **state)
{
    char command[128];
    (void)state;
    os_install(NULL);
    uploads_close(kit_us);
    kit_us = NULL;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", kit_dir);
    assert_int_equal(system(command), 0);
    return 0;
}

static inline void kit_restart(const char *issuer)
{
    struct uploads_options options = {.data = kit_dir, .issuer = issuer};
    uploads_close(kit_us);
    assert_int_equal(uploads_open(&options, &kit_us, &kit_err), 0);
}

static inline void kit_fill(unsigned char *to, size_t n, uint64_t seed)
{
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        to[i] = (unsigned char)(x >> 56 | 1);
    }
}

static inline void kit_declare(struct upload_info *info, const void *bytes, size_t n)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    memset(info, 0, sizeof *info);
    info->size = n;
    (void)snprintf(info->project, sizeof info->project, "demo-files");
    (void)snprintf(info->filename, sizeof info->filename, "page \"1\" \xc3\xa4.warc.gz");
    (void)snprintf(info->metadata, sizeof info->metadata, "project ZGVtbw==,checksum eA==");
    blake3_start(&h);
    blake3_add(&h, bytes, n);
    blake3_end(&h, digest);
    hex_encode(info->checksum, digest, sizeof digest);
}

static inline void kit_create(struct upload_info *info, const void *bytes, size_t n)
{
    kit_declare(info, bytes, n);
    assert_int_equal(upload_create(kit_us, info, true, &kit_err), 0);
}

static inline struct upload *kit_open(const char *id)
{
    struct upload *u = NULL;
    assert_int_equal(upload_open(kit_us, slice_cstr(id), &u, &kit_err), 0);
    return u;
}

/* One request: from the synced offset to `upto`, synced. */
static inline void kit_send(const char *id, const unsigned char *bytes, uint64_t upto)
{
    struct upload *u = kit_open(id);
    uint64_t from = atomic_load(&u->synced);
    assert_true(from <= upto);
    assert_int_equal(upload_write(u, bytes + from, (size_t)(upto - from), NULL, &kit_err), 0);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), upto);
    upload_close(u);
}

static inline uint64_t kit_offset(const char *id)
{
    struct upload *u = kit_open(id);
    uint64_t synced = atomic_load(&u->synced);
    upload_close(u);
    return synced;
}

/* The rest, and the acceptance. */
static inline int kit_finish(const char *id, const unsigned char *bytes, struct receipt *receipt)
{
    struct upload *u = kit_open(id);
    uint64_t from = atomic_load(&u->synced);
    assert_int_equal(upload_write(u, bytes + from, (size_t)(u->info.size - from), NULL, &kit_err),
                     0);
    int r = upload_accept(u, receipt, NULL, &kit_err);
    upload_close(u);
    return r;
}

static inline const char *kit_path(const char *folder, const char *id, const char *suffix)
{
    static char path[4][256];
    static unsigned next;
    char *p = path[next++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s/%.64s%s", kit_dir, folder, id, suffix);
    return p;
}

/* Length of a file, -1 when there is none. */
static inline int64_t kit_length(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static inline size_t kit_read(const char *path, void *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, room, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

static inline void kit_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Flips one byte. */
static inline void kit_flip(const char *path, long at)
{
    unsigned char c;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x40;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

#define KIT_TEST(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)

#endif
