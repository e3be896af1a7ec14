/* uploadbench: the upload store without the protocol: small files to a synced receipt, and a large
 * one beside the floor of PERFORMANCE W5.
 *
 *   uploadbench DIR small N     N files of 64 KiB, made and written in one go
 *   uploadbench DIR two N       the same made first, opened and written then
 *   uploadbench DIR large MIB   one upload in 1 MiB pieces
 *   uploadbench DIR floor MIB   reserve, aligned pieces, BLAKE3, early write-back, one sync
 *
 * DIR is made, and left to the caller to remove. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "os/os.h"
#include "store/artifact/upload.h"

#define SMALL (64u << 10)
#define PIECE (1u << 20)

static unsigned char piece[PIECE];

static void must(int r, const struct err *e, const char *what)
{
    if (r < 0) {
        fprintf(stderr, "uploadbench: %s: %s\n", what, e->text);
        exit(1);
    }
}

static void declare(struct upload_info *info, uint64_t size)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    memset(info, 0, sizeof *info);
    info->size = size;
    (void)snprintf(info->project, sizeof info->project, "bench");
    (void)snprintf(info->filename, sizeof info->filename, "file.bin");
    blake3_start(&h);
    for (uint64_t at = 0; at < size; at += PIECE) {
        blake3_add(&h, piece, size - at < PIECE ? (size_t)(size - at) : PIECE);
    }
    blake3_end(&h, digest);
    hex_encode(info->checksum, digest, sizeof digest);
    info->checksum[BLAKE3_HEX_LEN] = '\0';
}

static void send_file(struct upload *u)
{
    struct err e = {0};
    struct receipt receipt;
    for (uint64_t at = 0; at < u->info.size; at += PIECE) {
        uint64_t left = u->info.size - at;
        must(upload_write(u, piece, left < PIECE ? (size_t)left : PIECE, NULL, &e), &e, "write");
    }
    must(upload_accept(u, &receipt, NULL, &e), &e, "accept");
    upload_close(u);
}

static void one_file(struct uploads *us, struct upload_info info, bool two)
{
    struct err e = {0};
    struct upload *u;
    must(upload_create(us, &info, two, &e), &e, "create");
    if (two) {
        must(upload_open(us, slice_cstr(info.id), &u, &e), &e, "open");
    } else {
        must(upload_open_new(us, &info, &u, &e), &e, "open");
    }
    send_file(u);
}

static void run_floor(const char *dir, uint64_t size)
{
    char path[1024];
    struct blake3 h;
    struct err e = {0};
    uint8_t digest[BLAKE3_LEN];
    (void)snprintf(path, sizeof path, "%s/floor", dir);
    int fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    must(fd, &e, path);
    (void)os_reserve(fd, 0, size);
    blake3_start(&h);
    for (uint64_t at = 0; at < size; at += PIECE) {
        must(os_pwrite_all(fd, piece, PIECE, at, NULL), &e, "write");
        blake3_add(&h, piece, PIECE);
        (void)os_write_back(fd, at, PIECE, false);
        if (at >= 8 * PIECE) {
            (void)os_write_back(fd, at - 8 * PIECE, PIECE, true);
            (void)os_drop_range(fd, at - 8 * PIECE, PIECE);
        }
    }
    blake3_end(&h, digest);
    must(os_fdatasync(fd), &e, "sync");
    (void)os_close(fd);
    (void)os_unlink(path);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct uploads *us;
    struct upload_info info;
    if (argc != 4) {
        fprintf(stderr, "usage: uploadbench DIR small|two|large|floor N\n");
        return 2;
    }
    uint64_t n = strtoull(argv[3], NULL, 10);
    bool small = strcmp(argv[2], "small") == 0 || strcmp(argv[2], "two") == 0;
    bool two = strcmp(argv[2], "two") == 0;
    must(os_random(piece, sizeof piece), &e, "random");
    must(os_mkdir_exist_ok(argv[1], 0700), &e, "mkdir");
    must(uploads_open(&(struct uploads_options){argv[1], "http://127.0.0.1"}, &us, &e), &e, "open");
    declare(&info, small ? SMALL : n * PIECE);
    uint64_t started = os_clock_mono_ns();
    if (strcmp(argv[2], "floor") == 0) {
        run_floor(argv[1], n * PIECE);
    } else {
        for (uint64_t i = 0; i < (small ? n : 1); i++) {
            one_file(us, info, two);
        }
    }
    double s = (double)(os_clock_mono_ns() - started) / 1e9;
    if (small) {
        printf("%s: %.0f files/s\n", argv[2], (double)n / s);
    } else {
        printf("%s: %.2f GB/s\n", argv[2], (double)(n * PIECE) / s / 1e9);
    }
    uploads_close(us);
    return 0;
}
