/* upload_data: bytes for W5's uploads.
 *
 *   upload_data make FILE BYTES   writes and syncs a file without holes, no MiB of which is like
 *                                 another; prints its BLAKE3, 64 hex digits
 *   upload_data hash FILE         prints the BLAKE3 of a file
 *
 * The bytes come from a fixed seed. A benchmark's tool: it ends at the first surprise. */
#include <fcntl.h>
#include <unistd.h>

#include "base/blake3.h"
#include "base/hash.h"
#include "bench/meter.h"

#define PIECE ((size_t)1 << 20)

static void print_digest(const struct blake3 *h)
{
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";
    blake3_end(h, digest);
    hex_encode(hex, digest, sizeof digest);
    puts(hex);
}

static void fill(uint64_t *words, size_t n)
{
    uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

static void make(const char *path, uint64_t size)
{
    uint64_t *words = must_alloc(PIECE);
    struct blake3 h;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        die_errno(path);
    }
    fill(words, PIECE / sizeof *words);
    blake3_start(&h);
    for (uint64_t at = 0; at < size; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        words[0] = at;
        blake3_add(&h, words, n);
        if (write(fd, words, n) != (ssize_t)n) {
            die_errno("write");
        }
    }
    if (fsync(fd) != 0 || close(fd) != 0) {
        die_errno("fsync");
    }
    free(words);
    print_digest(&h);
}

static void hash(const char *path)
{
    void *piece = must_alloc(PIECE);
    struct blake3 h;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        die_errno(path);
    }
    blake3_start(&h);
    ssize_t n = read(fd, piece, PIECE);
    while (n > 0) {
        blake3_add(&h, piece, (size_t)n);
        n = read(fd, piece, PIECE);
    }
    if (n < 0) {
        die_errno("read");
    }
    close(fd);
    free(piece);
    print_digest(&h);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "make") == 0 && strtoull(argv[3], NULL, 10) > 0) {
        make(argv[2], strtoull(argv[3], NULL, 10));
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "hash") == 0) {
        hash(argv[2]);
        return 0;
    }
    fputs("usage: upload_data make FILE BYTES | upload_data hash FILE\n", stderr);
    return 2;
}
