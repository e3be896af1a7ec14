/* Making one segment.
 *
 *   1 write segments/FIRST_LAST.tmp from the proven lines, sync it
 *   2 drop its cache and read it back from the device: the hash of the file, every plain byte
 *     beside the plain file, every row of the batch table
 *   3 rename it to its name, sync segments/
 *
 * What is compressed is what scan.c has just proven, from the very memory in which it was proven;
 * the count and the chain head must be those of the summary that was written when the generation
 * was closed, and so must its checksums of each 64 KiB (bytes.c looks at each reading). So rot of
 * the plain file is never sealed in: it is found here, as ERR_CORRUPT, and the plain file stays.
 *
 * A crash leaves a temporary file, or a whole segment that no record names; both are removed at the
 * next start, and the plain file is in force. A sync of the temporary file that failed needs no
 * more care than any failure: that file is removed, and another attempt begins a new one. A failed
 * sync of the directory is uncertain: another rename to the same name could find the entry in the
 * cache, sync nothing, and be believed. */
#include "journal/seal_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "journal/scan.h"
#include "journal/segment_format.h"
#include "journal/segment_write.h"
#include "os/os.h"

static int damaged(const struct seal_job *job, uint64_t at, const char *why, struct err *e)
{
    return err_set_at(e, ERR_CORRUPT, at, "generation %u is damaged at byte %llu: %s", job->ordinal,
                      (unsigned long long)at, why);
}

/* ---- 1: writing ---- */

static int add_batches(const struct seal_job *job, struct scan *s, struct segment_writer *w,
                       struct err *e)
{
    struct scan_batch b;
    struct err why = {0};
    int r;
    while ((r = scan_next(s, &b, NULL, NULL, &why)) == 1) {
        struct segment_batch row = {.offset = b.offset,
                                    .bytes = b.bytes,
                                    .events = b.events,
                                    .source = b.source,
                                    .batch_id = b.batch_id,
                                    .first_id = b.first_id,
                                    .last_id = b.last_id};
        memcpy(row.digest, b.digest, SHA256_LEN);
        if (atomic_load(job->stop)) {
            return err_set(e, ERR_NOT_READY, "the journal is being closed");
        }
        r = segment_writer_add(w, &row, scan_batch_lines(s, &b), e);
        if (r != 0) {
            return r;
        }
    }
    if (r == ERR_CORRUPT) {
        return damaged(job, s->offset, s->why, e);
    }
    if (r != 0) {
        *e = why;
    }
    return r;
}

static int write_lines(const struct seal_job *job, int fd, struct segment_writer *w,
                       uint8_t sha256[SHA256_LEN], struct err *e)
{
    const struct index_summary *x = job->expect;
    struct scan s;
    scan_start_file(&s, job->plain, x->bytes, job->before, job->head_before);
    int r = segment_writer_start(w, fd, e);
    if (r == 0) {
        r = add_batches(job, &s, w, e);
    }
    if (r == 0 &&
        (s.offset != x->bytes || s.events != x->events || w->sum.batches != x->batches ||
         memcmp(s.head, x->head, SHA256_LEN) != 0 || uuid_cmp(&s.last_id, &x->last_id) != 0 ||
         uuid_cmp(&w->sum.first_id, &x->first_id) != 0)) {
        r = damaged(job, s.offset, "it is not what it was when it was closed", e);
    }
    if (r == 0) {
        r = segment_writer_finish(w, s.head, sha256, e);
    }
    scan_stop(&s);
    return r;
}

/* ---- 2: reading back ---- */

/* Damage of a new segment is a bad write; ERR_CORRUPT speaks of the generation. */
static int bad_write(int r, struct err *e)
{
    if (r == ERR_CORRUPT) {
        e->code = ERR_IO;
        return ERR_IO;
    }
    return r;
}

static int hash_file(int fd, uint8_t out[SHA256_LEN], struct err *e)
{
    struct sha256 h;
    uint64_t at = 0;
    int64_t n;
    char *piece = malloc(SEGMENT_BLOCK_BYTES);
    if (piece == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to hash a segment");
    }
    sha256_start(&h);
    while ((n = os_pread_full(fd, piece, SEGMENT_BLOCK_BYTES, at)) > 0) {
        sha256_add(&h, piece, (size_t)n);
        at += (uint64_t)n;
    }
    sha256_end(&h, out);
    free(piece);
    return n < 0 ? err_os(e, (int)n, "read", "a segment") : 0;
}

int seal_file_check(const char *path, const uint8_t sha256[SHA256_LEN], struct err *e)
{
    uint8_t got[SHA256_LEN];
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "a segment is missing");
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "a segment");
    }
    int r = hash_file(fd, got, e);
    (void)os_close(fd);
    if (r == 0 && memcmp(got, sha256, SHA256_LEN) != 0) {
        r = err_set(e, ERR_CORRUPT, "a segment does not have the SHA-256 in its name");
    }
    return r;
}

/* Data block i of the segment, read into a, and the same bytes of the plain file, read into b. */
static int compare_block(const struct segment *s, int fd, uint32_t i, struct bytes_reader *plain,
                         char *a, char *b, struct err *e)
{
    const struct segment_block *block = &s->data[i];
    int r = bad_write(segment_read_data(fd, s, i, a, e), e);
    if (r != 0) {
        return r;
    }
    int64_t n = bytes_read(plain, b, block->plain_bytes, block->plain_at, e);
    if (n < 0) {
        return (int)n;
    }
    return n == block->plain_bytes && memcmp(a, b, block->plain_bytes) == 0
               ? 0
               : err_set(e, ERR_IO, "a segment was read back with other bytes");
}

static int compare_data(const struct seal_job *job, int fd, const struct segment *s, char *a,
                        char *b, struct err *e)
{
    struct bytes_reader plain;
    int r = 0;
    bytes_start(&plain, job->plain);
    for (uint32_t i = 0; i < s->data_count && r == 0; i++) {
        r = atomic_load(job->stop) ? err_set(e, ERR_NOT_READY, "the journal is being closed")
                                   : compare_block(s, fd, i, &plain, a, b, e);
    }
    bytes_stop(&plain);
    return r;
}

static int compare_rows(int fd, const struct segment *s, struct err *e)
{
    struct segment_walk w;
    struct segment_batch b;
    int r;
    segment_walk_start(&w, fd, s);
    while ((r = segment_walk_next(&w, &b, e)) == 1) {
    }
    segment_walk_stop(&w);
    return r;
}

static int read_back(const struct seal_job *job, const char *path, const struct segment *want,
                     const uint8_t sha256[SHA256_LEN], struct err *e)
{
    struct segment *s = NULL;
    char *two = malloc(2 * (size_t)SEGMENT_BLOCK_BYTES);
    int fd = os_open(path, O_RDONLY, 0);
    int r = two == NULL ? err_set(e, ERR_NO_MEMORY, "no memory to read a segment back")
            : fd < 0    ? err_os(e, fd, "open", "a segment")
                        : bad_write(seal_file_check(path, sha256, e), e);
    if (r == 0) {
        r = bad_write(segment_open(fd, &s, e), e);
    }
    if (r == 0 && (s->plain_bytes != want->plain_bytes || s->events != want->events ||
                   s->batches != want->batches)) {
        r = err_set(e, ERR_IO, "a segment was read back with another end");
    }
    if (r == 0) {
        r = compare_data(job, fd, s, two, two + SEGMENT_BLOCK_BYTES, e);
    }
    if (r == 0) {
        r = bad_write(compare_rows(fd, s, e), e);
    }
    segment_free(s);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    free(two);
    return r;
}

/* ---- all of it ---- */

/* Writes, syncs, drops the cache; w->sum and sha256 say what it must be. */
static int write_file(const struct seal_job *job, const char *path, struct segment_writer *w,
                      uint8_t sha256[SHA256_LEN], struct err *e)
{
    int fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "create", "a segment");
    }
    int r = write_lines(job, fd, w, sha256, e);
    if (r == 0) {
        int synced = os_fsync(fd);
        if (synced == 0) {
            synced = os_drop_cache(fd);
        }
        r = synced < 0 ? err_os(e, synced, "sync", "a segment") : 0;
    }
    segment_writer_stop(w);
    (void)os_close(fd);
    return r;
}

int seal_file_make(const struct seal_job *job, struct layout_generation *out,
                   uint64_t *stored_bytes, bool *uncertain, struct err *e)
{
    const struct index_summary *x = job->expect;
    struct segment_writer w = {0};
    char temporary[LAYOUT_PATH_MAX];
    char path[LAYOUT_PATH_MAX];
    char first[UUID_TEXT_LEN];
    char last[UUID_TEXT_LEN];
    *uncertain = false;
    *out = (struct layout_generation){.first_id = x->first_id,
                                      .last_id = x->last_id,
                                      .bytes = x->bytes,
                                      .events = x->events,
                                      .sealed = true};
    memcpy(out->head, x->head, SHA256_LEN);
    uuid_text(first, &x->first_id);
    uuid_text(last, &x->last_id);
    int n = snprintf(temporary, sizeof temporary, "%s/%.36s_%.36s.tmp", job->layout->segments,
                     first, last);
    ensure(n > 0 && (size_t)n < sizeof temporary);
    int r = write_file(job, temporary, &w, out->sha256, e);
    *stored_bytes = w.sum.file_bytes;
    if (r == 0 && job->sha256 != NULL && memcmp(job->sha256, out->sha256, SHA256_LEN) != 0) {
        r = err_set(e, ERR_UNSUPPORTED, "the segment would not have the SHA-256 that it had");
    }
    if (r == 0) {
        r = read_back(job, temporary, &w.sum, out->sha256, e);
    }
    layout_generation_path(job->layout, out, path);
    if (r == 0) {
        int renamed = os_rename(temporary, path);
        r = renamed < 0 ? err_os(e, renamed, "rename", "a segment") : 0;
    }
    if (r != 0) {
        (void)os_unlink(temporary);
        return r;
    }
    r = os_sync_dir(job->layout->segments);
    if (r < 0) {
        *uncertain = true;
        return err_os(e, r, "sync", "segments");
    }
    return 0;
}
