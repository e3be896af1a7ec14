/* Reading plain bytes, and checking them.
 *
 * A file without checksums (the tail, whose lines prove themselves; a closed generation whose
 * summary is not read yet) is read with pread as it is. With checksums, and of a segment, it is
 * read in whole blocks: those that the caller wants whole go straight to him, the two at the ends
 * of his range by way of the reader's block, which is then there for the next read. Nothing is
 * given out from a block that does not have its checksum. */
#include "journal/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "base/slice.h"
#include "journal/segment.h"
#include "journal/segment_format.h"
#include "os/os.h"

/* What a segment says of itself is damage of a generation. */
static int damaged(struct err *e, uint32_t ordinal)
{
    char why[sizeof e->text];
    metric_add(METRIC_JOURNAL_CORRUPT_READS, 1);
    memcpy(why, e->text, sizeof why);
    return err_set_at(e, ERR_CORRUPT, e->offset, "generation %u is damaged: %.240s", ordinal, why);
}

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

static bool is_segment(const char *path)
{
    struct slice s = slice_cstr(path);
    struct slice suffix = SLICE(BYTES_SEGMENT_SUFFIX);
    return s.len > suffix.len && slice_eq(slice_from(s, s.len - suffix.len), suffix);
}

int bytes_file_open(const char *path, uint32_t ordinal, struct bytes_file **out, struct err *e)
{
    struct err local;
    e = e != NULL ? e : &local;
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "the file of generation %u is missing", ordinal);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "a generation");
    }
    struct bytes_file *f = bytes_file_of(fd, ordinal);
    if (f == NULL) {
        (void)os_close(fd);
        return err_set(e, ERR_NO_MEMORY, "no memory to open a generation");
    }
    int r = is_segment(path) ? segment_open(fd, &f->segment, e) : 0;
    if (r != 0) {
        bytes_file_close(f);
        return r == ERR_CORRUPT ? damaged(e, ordinal) : r;
    }
    *out = f;
    return 0;
}

void bytes_file_close(struct bytes_file *f)
{
    if (f != NULL) {
        segment_free(f->segment);
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

static size_t block_bytes(const struct bytes_file *f)
{
    return f->segment != NULL ? SEGMENT_BLOCK_BYTES : BYTES_CRC_BLOCK;
}

/* Reads block `number`, which is `len` bytes, into p and checks it. */
static int load(const struct bytes_file *f, uint64_t number, void *p, size_t len, struct err *e)
{
    uint64_t at = number * block_bytes(f);
    if (f->segment != NULL) {
        int r = segment_read_data(f->fd, f->segment, (uint32_t)number, p, e);
        return r == ERR_CORRUPT ? damaged(e, f->ordinal) : r;
    }
    ensure(number < f->block_count);
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
    if (r->block == NULL) {
        r->block = malloc(block_bytes(r->file));
        if (r->block == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory to read a generation");
        }
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
    uint64_t bytes = f->segment != NULL ? f->segment->plain_bytes : f->bytes;
    size_t whole = block_bytes(f);
    struct err local;
    size_t done = 0;
    e = e != NULL ? e : &local;
    while (done < n && at + done < bytes) {
        uint64_t number = (at + done) / whole;
        size_t skip = (size_t)((at + done) % whole);
        uint64_t left = bytes - number * whole;
        size_t len = left < whole ? (size_t)left : whole;
        size_t take = len - skip < n - done ? len - skip : n - done;
        bool kept = take != len || (r->block_len > 0 && r->block_number == number);
        int code = kept ? load_kept(r, number, len, e) : load(f, number, p + done, len, e);
        if (code != 0) {
            return code;
        }
        if (kept) {
            memcpy(p + done, r->block + skip, take);
        }
        done += take;
    }
    return (int64_t)done;
}

int64_t bytes_read(struct bytes_reader *r, void *p, size_t n, uint64_t at, struct err *e)
{
    ensure(r->file != NULL);
    if (r->file->segment != NULL || r->file->block_crcs != NULL) {
        return read_checked(r, p, n, at, e);
    }
    int64_t got = os_pread_full(r->file->fd, p, n, at);
    return got < 0 ? err_os(e, (int)got, "read", "a generation") : got;
}
