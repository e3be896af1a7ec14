/* backup: how one file gets into the tree.
 *
 * A file is written once, whole, under its own name in a tree that nothing names yet, and synced
 * before it is listed. What the last backup has already becomes a second name of that file, after
 * its bytes were read and found to be what the last list says: so a backup never changes a file
 * that an older list names, and a rotten copy is not carried along but replaced. Where the file
 * system has no second names everything is copied.
 *
 * Power failure: an uncommitted tree is removed by the next run. Answers: all errors; a file that
 * cannot be kept is copied. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "main/backup.h"
#include "os/os.h"

#define PIECE_BYTES (1u << 20)
#define DEPTH_MAX   32u

int backup_join(char out[BACKUP_FULL_MAX], const char *root, const char *path, struct err *e)
{
    int n = snprintf(out, BACKUP_FULL_MAX, "%s/%s", root, path);
    return n > 0 && n < BACKUP_FULL_MAX ? 0
                                        : err_set(e, ERR_IO, "a path is too long: %.200s", path);
}

void backup_moved(struct backup *b, uint64_t bytes)
{
    b->moved += bytes;
    progress_update(&b->progress, b->moved);
}

static int set_entry(struct backup_entry *out, const char *path, unsigned mode, struct err *e)
{
    size_t n = strlen(path);
    if (n >= sizeof out->path) {
        return err_set(e, ERR_IO, "a path is too long: %.200s", path);
    }
    memset(out, 0, sizeof *out);
    memcpy(out->path, path, n + 1);
    out->mode = mode & 0777;
    return 0;
}

/* SHA-256 of [0, size) of fd, copied to `to` unless that is negative. ERR_NOT_READY: shorter. */
static int run_through(struct backup *b, int fd, int to, uint64_t size, const char *path,
                       uint8_t digest[SHA256_LEN], struct err *e)
{
    struct sha256 h;
    sha256_start(&h);
    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < PIECE_BYTES ? (size_t)(size - at) : PIECE_BYTES;
        int64_t got = os_pread_full(fd, b->piece, n, at);
        if (got < 0) {
            return err_os(e, (int)got, "read", path);
        }
        if (got < (int64_t)n) {
            return err_set(e, ERR_NOT_READY, "%s became shorter while it was read", path);
        }
        sha256_add(&h, b->piece, n);
        int r = to < 0 ? 0 : os_pwrite_all(to, b->piece, n, at, NULL);
        if (r < 0) {
            return err_os(e, r, "write the copy of", path);
        }
        at += n;
        backup_moved(b, n);
    }
    sha256_end(&h, digest);
    return 0;
}

/* ---- what the last backup has ---- */

static int known_cmp(const void *key, const void *row)
{
    const struct backup_known *k = row;
    return memcmp(key, k->name, sizeof k->name);
}

static const struct backup_known *find_known(const struct backup *b, const char *path)
{
    uint8_t digest[SHA256_LEN];
    sha256_once(slice_cstr(path), digest);
    return b->known_count == 0
               ? NULL
               : bsearch(digest, b->known, b->known_count, sizeof *b->known, known_cmp);
}

/* True: the tree has the last backup's file, and its bytes are what its list says. */
static bool keep(struct backup *b, const char *path, const struct backup_known *known,
                 struct err *e)
{
    char from[BACKUP_FULL_MAX];
    char to[BACKUP_FULL_MAX];
    uint8_t digest[SHA256_LEN];
    struct os_stat st;
    if (backup_join(from, b->old_tree, path, e) != 0 || backup_join(to, b->tree, path, e) != 0 ||
        os_stat(from, &st) != 0 || st.size != known->size) {
        return false;
    }
    int fd = os_open(from, O_RDONLY | O_NOFOLLOW, 0);
    if (fd < 0) {
        return false;
    }
    bool sound = run_through(b, fd, -1, known->size, path, digest, e) == 0 &&
                 memcmp(digest, known->sha256, sizeof digest) == 0;
    (void)os_close(fd);
    return sound && os_link(from, to) == 0;
}

/* 1: kept. 0: it has to be copied. */
static int try_keep(struct backup *b, int fd, const struct os_stat *st, enum backup_kind kind,
                    struct backup_entry *out, struct err *e)
{
    const struct backup_known *known = kind == BACKUP_FRESH ? NULL : find_known(b, out->path);
    uint8_t digest[SHA256_LEN];
    if (known == NULL || known->size != out->size) {
        return 0;
    }
    if (kind == BACKUP_SMALL) {
        int r = run_through(b, fd, -1, out->size, out->path, digest, e);
        if (r != 0) {
            return r;
        }
        if (memcmp(digest, known->sha256, sizeof digest) != 0) {
            return 0;
        }
    }
    if (!keep(b, out->path, known, e)) {
        return 0;
    }
    out->mode = st->mode & 0777;
    memcpy(out->sha256, known->sha256, sizeof out->sha256);
    return 1;
}

/* ---- copies ---- */

static int make_file(struct backup *b, const char *path, unsigned mode, char full[BACKUP_FULL_MAX],
                     struct err *e)
{
    int r = backup_join(full, b->tree, path, e);
    if (r != 0) {
        return r;
    }
    int fd = os_open(full, O_RDWR | O_CREAT | O_EXCL, mode | 0600);
    return fd < 0 ? err_os(e, fd, "make", full) : fd;
}

static int close_synced(int fd, int r, const char *full, struct err *e)
{
    int synced = r == 0 ? os_fsync(fd) : 0;
    int closed = os_close(fd);
    if (r != 0) {
        return r;
    }
    synced = synced < 0 ? synced : closed;
    return synced < 0 ? err_os(e, synced, "sync", full) : 0;
}

static int copy_open(struct backup *b, int fd, struct backup_entry *out, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    int to = make_file(b, out->path, out->mode, full, e);
    if (to < 0) {
        return to;
    }
    int r = run_through(b, fd, to, out->size, out->path, out->sha256, e);
    r = close_synced(to, r, full, e);
    if (r != 0) {
        (void)os_unlink(full);
    }
    return r;
}

int backup_copy_open(struct backup *b, int fd, const char *path, uint64_t size,
                     struct backup_entry *out, struct err *e)
{
    int r = set_entry(out, path, 0600, e);
    out->size = size;
    return r == 0 ? copy_open(b, fd, out, e) : r;
}

int backup_copy(struct backup *b, const char *path, enum backup_kind kind, uint64_t limit,
                struct backup_entry *out, bool *kept, struct err *e)
{
    return backup_copy_from(b, path, path, kind, limit, out, kept, e);
}

int backup_copy_from(struct backup *b, const char *from, const char *path, enum backup_kind kind,
                     uint64_t limit, struct backup_entry *out, bool *kept, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    struct os_stat st;
    *kept = false;
    int r = backup_join(full, b->data, from, e);
    if (r != 0) {
        return r;
    }
    int fd = os_open(full, O_RDONLY | O_NOFOLLOW, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "there is no %s", full);
    }
    if (fd == -ELOOP || fd == -ENXIO) {
        return err_set(e, ERR_REFUSED, "%s is no plain file", full);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", full);
    }
    r = os_fstat(fd, &st);
    r = r < 0 ? err_os(e, r, "stat", full) : set_entry(out, path, st.mode, e);
    if (r == 0) {
        out->size = limit == BACKUP_ALL ? st.size : limit;
        r = S_ISREG(st.mode) ? try_keep(b, fd, &st, kind, out, e)
                             : err_set(e, ERR_REFUSED, "%s is no plain file", full);
        *kept = r == 1;
    }
    if (r == 0) {
        r = copy_open(b, fd, out, e);
    }
    (void)os_close(fd); /* read only */
    return r == 1 ? 0 : r;
}

int backup_write(struct backup *b, const char *path, struct slice bytes, struct backup_entry *out,
                 struct err *e)
{
    char full[BACKUP_FULL_MAX];
    int r = set_entry(out, path, 0600, e);
    if (r != 0) {
        return r;
    }
    int fd = make_file(b, path, out->mode, full, e);
    if (fd < 0) {
        return fd;
    }
    out->size = bytes.len;
    sha256_once(bytes, out->sha256);
    r = os_pwrite_all(fd, bytes.ptr, bytes.len, 0, NULL);
    r = r < 0 ? err_os(e, r, "write", full) : 0;
    return close_synced(fd, r, full, e);
}

int backup_hash(struct backup *b, const char *path, struct backup_entry *out, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    struct os_stat st;
    int r = backup_join(full, b->tree, path, e);
    if (r != 0) {
        return r;
    }
    int fd = os_open(full, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", full);
    }
    r = os_fstat(fd, &st);
    r = r < 0 ? err_os(e, r, "stat", full) : set_entry(out, path, st.mode, e);
    if (r == 0) {
        out->size = st.size;
        r = run_through(b, fd, -1, st.size, path, out->sha256, e);
    }
    (void)os_close(fd);
    return r;
}

void backup_put(struct backup *b, const struct backup_entry *entry, bool kept)
{
    backup_writer_put(&b->list, entry);
    if (entry->directory) {
        return;
    }
    b->about.files++;
    b->about.bytes += entry->size;
    b->kept_files += kept ? 1 : 0;
    b->kept_bytes += kept ? entry->size : 0;
    b->copied_files += kept ? 0 : 1;
    b->copied_bytes += kept ? 0 : entry->size;
}

int backup_take(struct backup *b, const char *path, enum backup_kind kind, uint64_t limit,
                struct err *e)
{
    struct backup_entry entry;
    bool kept;
    int r = backup_copy(b, path, kind, limit, &entry, &kept, e);
    if (r == 0) {
        backup_put(b, &entry, kept);
    }
    return r;
}

int backup_directory(struct backup *b, const char *path, struct err *e)
{
    return backup_directory_from(b, path, path, e);
}

int backup_directory_from(struct backup *b, const char *from, const char *path, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    struct backup_entry entry;
    struct os_stat st;
    int r = backup_join(full, b->data, from, e);
    if (r != 0) {
        return r;
    }
    r = os_stat(full, &st);
    if (r == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "there is no %s", full);
    }
    r = r < 0 ? err_os(e, r, "stat", full) : set_entry(&entry, path, st.mode, e);
    if (r == 0) {
        r = backup_join(full, b->tree, path, e);
    }
    if (r != 0) {
        return r;
    }
    r = os_mkdir(full, entry.mode | 0700);
    if (r < 0) {
        return err_os(e, r, "make", full);
    }
    buf_put(&b->directories, path, strlen(path) + 1);
    if (b->directories.failed) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the list of directories");
    }
    entry.directory = true;
    backup_put(b, &entry, false);
    return 0;
}

/* ---- removal ---- */

void backup_drop(struct backup *b, const char *path)
{
    char full[BACKUP_FULL_MAX];
    struct err ignored;
    if (backup_join(full, b->tree, path, &ignored) == 0) {
        (void)os_unlink(full); /* what stays is not listed, and not restored */
    }
}

struct removal {
    const char *path;
    unsigned depth;
    unsigned removed;
    struct err *e;
};

static int remove_below(const char *path, unsigned depth, struct err *e);

static int remove_name(void *ctx, const char *name)
{
    struct removal *rm = ctx;
    char full[BACKUP_FULL_MAX];
    if (backup_join(full, rm->path, name, rm->e) != 0) {
        return 1;
    }
    rm->removed++;
    int r = os_unlink(full);
    if (r == -EISDIR || r == -EPERM) {
        return remove_below(full, rm->depth + 1, rm->e) == 0 ? 0 : 1;
    }
    if (r < 0 && r != -ENOENT) {
        (void)err_os(rm->e, r, "remove", full);
        return 1;
    }
    return 0;
}

/* A directory whose names change under the listing may have to be listed again. */
static int remove_below(const char *path, unsigned depth, struct err *e)
{
    struct removal rm = {.path = path, .depth = depth, .removed = 1, .e = e};
    if (depth > DEPTH_MAX) {
        return err_set(e, ERR_IO, "%s: too deep to be one of ours", path);
    }
    while (rm.removed > 0) {
        rm.removed = 0;
        int r = os_list(path, remove_name, &rm);
        if (r == -ENOENT) {
            return 0;
        }
        if (r < 0) {
            return err_os(e, r, "list", path);
        }
        if (r > 0) {
            return e->code;
        }
    }
    int r = os_rmdir(path);
    return r < 0 && r != -ENOENT ? err_os(e, r, "remove", path) : 0;
}

int backup_remove(const char *path, struct err *e)
{
    return remove_below(path, 0, e);
}
