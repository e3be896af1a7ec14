/* Reading plain bytes, and checking them.
 *
 * A file without checksums (the tail, whose lines prove themselves; a closed generation whose
 * summary is not read yet) is read with pread as it is. With checksums it is read in whole blocks:
 * those that the caller wants whole go straight to him, the two at the ends of his range by way of
 * the reader's block, which is then there for the next read. Nothing is given out from a block that
 * does not have its checksum. */
#include "journal/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "os/os.h"

struct bytes_file *bytes_file_of(int fd, uint32_t ordinal)
{
    struct bytes_file *f = calloc(1, sizeof *f);
    ensure(fd >= 0);
    if (f != NULL) {
        f->fd = fd;
        f->ordinal = ordinal;
    }
    return f;
}

int bytes_file_open(const char *path, uint32_t ordinal, struct bytes_file **out, struct err *e)
{
    int fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", "a generation");
    }
    *out = bytes_file_of(fd, ordinal);
    if (*out == NULL) {
        (void)os_close(fd);
        return err_set(e, ERR_NO_MEMORY, "no memory to open a generation");
    }
    return 0;
}

void bytes_file_close(struct bytes_file *f)
{
    if (f != NULL) {
        (void)os_close(f->fd);
        free(f);
    }
}

void bytes_start(struct bytes_reader *r, const struct bytes_file *file)
{
    *r = (struct bytes_reader){.file = file};
}

void bytes_drop(struct bytes_reader *r)
{
    free(r->block);
    r->block = NULL;
    r->block_cap = 0;
    r->block_len = 0;
}

void bytes_stop(struct bytes_reader *r)
{
    bytes_drop(r);
    r->file = NULL;
}

static int corrupt(const struct bytes_file *f, uint64_t at, const char *what, struct err *e)
{
    metric_add(METRIC_JOURNAL_CORRUPT_READS, 1);
    return err_set_at(e, ERR_CORRUPT, at, "generation %u is damaged at byte %llu: %s", f->ordinal,
                      (unsigned long long)at, what);
}

/* Reads block `number`, which is `len` bytes, into p and checks it. */
static int load(const struct bytes_file *f, uint64_t number, void *p, size_t len, struct err *e)
{
    uint64_t at = number * BYTES_CRC_BLOCK;
    int64_t n = os_pread_full(f->fd, p, len, at);
    if (n < 0) {
        return err_os(e, (int)n, "read", "a generation");
    }
    if ((size_t)n != len) {
        return corrupt(f, at + (uint64_t)n, "it ends too early", e);
    }
    if (crc32c(0, p, len) != f->block_crcs[number]) {
        return corrupt(f, at, "a block does not have its checksum", e);
    }
    return 0;
}

/* The same into the reader's own block, unless it is there. */
static int load_kept(struct bytes_reader *r, uint64_t number, size_t len, struct err *e)
{
    if (r->block_len > 0 && r->block_number == number) {
        return 0;
    }
    if (r->block_cap < len) {
        bytes_drop(r);
        r->block = malloc(BYTES_CRC_BLOCK);
        if (r->block == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory to read a generation");
        }
        r->block_cap = BYTES_CRC_BLOCK;
    }
    r->block_len = 0;
    int code = load(r->file, number, r->block, len, e);
    if (code == 0) {
        r->block_number = number;
        r->block_len = len;
    }
    return code;
}

static int64_t read_checked(struct bytes_reader *r, char *p, size_t n, uint64_t at, struct err *e)
{
    const struct bytes_file *f = r->file;
    size_t done = 0;
    while (done < n && at + done < f->bytes) {
        uint64_t number = (at + done) / BYTES_CRC_BLOCK;
        size_t skip = (size_t)((at + done) % BYTES_CRC_BLOCK);
        uint64_t left = f->bytes - number * BYTES_CRC_BLOCK;
        size_t len = left < BYTES_CRC_BLOCK ? (size_t)left : BYTES_CRC_BLOCK;
        size_t take = len - skip < n - done ? len - skip : n - done;
        ensure(number < f->block_count);
        int code = take == len ? load(f, number, p + done, len, e) : load_kept(r, number, len, e);
        if (code != 0) {
            return code;
        }
        if (take != len) {
            memcpy(p + done, r->block + skip, take);
        }
        done += take;
    }
    return (int64_t)done;
}

int64_t bytes_read(struct bytes_reader *r, void *p, size_t n, uint64_t at, struct err *e)
{
    ensure(r->file != NULL);
    if (r->file->block_crcs != NULL) {
        return read_checked(r, p, n, at, e);
    }
    int64_t got = os_pread_full(r->file->fd, p, n, at);
    return got < 0 ? err_os(e, (int)got, "read", "a generation") : got;
}
