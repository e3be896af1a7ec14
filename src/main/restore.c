/* restore: a data directory of a backup.
 *
 * Steps, and what a crash behind each leaves:
 *   1 the directory, and DATA/restoring in it, synced      no server, deliverer or backup takes it
 *   2 files, each hashed as it is copied, and synced       the same; a repeat takes what is right
 *   3 directories synced                                   the same
 *   4 DATA/paused, durable                                 the same
 *   5 with --verify: the proof                             the same
 *   6 DATA/restoring removed, DATA synced: the commit      a whole directory, every sink paused
 *
 * The marker says which backup it is of: a repeat with another one is refused, since what the first
 * one left could otherwise stay between the files of the second.
 *
 * Before anything is made, the list is proven by its own hash and every file is there with its
 * size; the bytes are compared while they are copied, so that each is read once. Answers: all
 * errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "main/backup.h"
#include "os/os.h"
#include "store/paused.h"

#define PIECE_BYTES (1u << 20)

struct restore {
    char dir[BACKUP_ROOT_MAX];
    char tree[BACKUP_ROOT_MAX + BACKUP_TREE_MAX + 1];
    const char *data;
    struct restore_result *out;
    struct buf directories;
    char *piece;
    struct progress progress;
};

int restore_check(const char *data, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    struct os_stat st;
    int r = backup_join(path, data, RESTORE_MARKER, e);
    if (r != 0) {
        return r;
    }
    r = os_stat(path, &st);
    if (r == 0) {
        return err_set(e, ERR_REFUSED,
                       "%.200s is an interrupted restore: run the same tallyman restore again",
                       data);
    }
    /* Where no directory can be, opening it says so better. */
    bool none = r == -ENOENT || r == -ENOTDIR || r == -ENAMETOOLONG;
    return none ? 0 : err_os(e, r, "stat", path);
}

/* ---- the backup ---- */

static int open_list(struct restore *t, struct backup_reader *reader, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, t->dir, BACKUP_LIST, e);
    if (r == 0) {
        r = backup_reader_open(reader, path, &t->out->about, e);
    }
    if (r == ERR_NOT_FOUND) {
        return err_set(e, r, "%.200s has no %s: it is no backup, or one that was never finished",
                       t->dir, BACKUP_LIST);
    }
    (void)snprintf(t->tree, sizeof t->tree, "%s/%s", t->dir, t->out->about.tree);
    return r;
}

static int check_one(struct restore *t, const struct backup_entry *entry, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    struct os_stat st;
    int r = backup_join(path, t->tree, entry->path, e);
    if (r != 0) {
        return r;
    }
    r = os_stat(path, &st);
    if (r == -ENOENT) {
        return err_set(e, ERR_CORRUPT, "the backup is not whole: %s is missing", entry->path);
    }
    if (r < 0) {
        return err_os(e, r, "stat", path);
    }
    if (!entry->directory && st.size != entry->size) {
        return err_set(e, ERR_CORRUPT, "the backup was changed: %s has %llu bytes, not %llu",
                       entry->path, (unsigned long long)st.size, (unsigned long long)entry->size);
    }
    return 0;
}

static int each_entry(struct restore *t,
                      int (*see)(struct restore *t, const struct backup_entry *entry,
                                 struct err *e),
                      struct err *e)
{
    struct backup_reader reader;
    struct backup_entry entry;
    int r = open_list(t, &reader, e);
    if (r != 0) {
        return r;
    }
    while ((r = backup_reader_next(&reader, &entry, e)) == 1) {
        r = see(t, &entry, e);
        if (r != 0) {
            break;
        }
    }
    backup_reader_close(&reader);
    return r;
}

/* ---- the new directory ---- */

static int real_path(const char *path, char out[BACKUP_ROOT_MAX], struct err *e)
{
    char *real = realpath(path, NULL);
    bool fits = real != NULL && strlen(real) < BACKUP_ROOT_MAX;
    if (fits) {
        memcpy(out, real, strlen(real) + 1);
    }
    free(real);
    return fits ? 0 : err_set(e, ERR_NOT_FOUND, "there is no %.200s", path);
}

/* A file system of its own has lost+found at its root. */
static int one_name(void *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, "lost+found") != 0;
}

/* What a restore begins with, and a repeat must find. */
static int marker_text(struct restore *t, struct buf *out, struct err *e)
{
    buf_printf(out, "{\"backup\":\"%s %s\"}\n", t->out->about.tree, t->out->about.made_at);
    return out->failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

static int write_marker(const char *path, struct slice text, const char *data, struct err *e)
{
    int fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "make", path);
    }
    int r = os_pwrite_all(fd, text.ptr, text.len, 0, NULL);
    if (r == 0) {
        r = os_fsync(fd);
    }
    int closed = os_close(fd);
    r = r < 0 ? r : closed;
    if (r == 0) {
        r = os_sync_dir(data);
    }
    return r < 0 ? err_os(e, r, "write", path) : 0;
}

/* An empty directory gets the marker; one with a marker of this backup is gone on with. */
static int mark(struct restore *t, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    char there[256];
    struct buf text = {0};
    int r = backup_join(path, t->data, RESTORE_MARKER, e);
    if (r == 0) {
        r = marker_text(t, &text, e);
    }
    if (r != 0) {
        buf_free(&text);
        return r;
    }
    int fd = os_open(path, O_RDONLY, 0);
    if (fd >= 0) {
        int64_t n = os_pread_full(fd, there, sizeof there, 0);
        (void)os_close(fd);
        /* A torn marker is of a restore that had copied nothing yet. */
        bool torn = n >= 0 && (n == 0 || there[n - 1] != '\n');
        bool same = n == (int64_t)text.len && memcmp(there, text.ptr, text.len) == 0;
        r = same || torn
                ? write_marker(path, buf_slice(&text), t->data, e)
                : err_set(e, ERR_USAGE,
                          "%.200s is an interrupted restore of another backup: remove it", t->data);
    } else if (os_list(t->data, one_name, NULL) != 0) {
        r = err_set(e, ERR_USAGE, "%.200s is not empty: a restore makes a new directory", t->data);
    } else {
        r = write_marker(path, buf_slice(&text), t->data, e);
    }
    buf_free(&text);
    return r;
}

static int make_data(struct restore *t, struct err *e)
{
    char real[BACKUP_ROOT_MAX];
    char parent[BACKUP_FULL_MAX];
    size_t n = strlen(t->dir);
    int made = os_mkdir(t->data, 0700);
    if (made < 0 && made != -EEXIST) {
        return err_os(e, made, "make", t->data);
    }
    int r = real_path(t->data, real, e);
    if (r == 0 && strncmp(real, t->dir, n) == 0 && (real[n] == '\0' || real[n] == '/')) {
        if (made == 0) {
            (void)os_rmdir(t->data);
        }
        return err_set(e, ERR_USAGE, "%.200s lies in the backup", t->data);
    }
    if (r == 0) {
        r = backup_join(parent, t->data, "..", e);
    }
    if (r == 0 && made == 0) {
        int synced = os_sync_dir(parent);
        r = synced < 0 ? err_os(e, synced, "sync", parent) : 0;
    }
    return r == 0 ? mark(t, e) : r;
}

/* ---- files ---- */

/* Copies, and compares with the list. */
static int copy_bytes(struct restore *t, const struct backup_entry *entry, int from, int to,
                      struct err *e)
{
    struct sha256 h;
    uint8_t digest[SHA256_LEN];
    sha256_start(&h);
    for (uint64_t at = 0; at < entry->size;) {
        size_t n = entry->size - at < PIECE_BYTES ? (size_t)(entry->size - at) : PIECE_BYTES;
        int64_t got = os_pread_full(from, t->piece, n, at);
        if (got < (int64_t)n) {
            return err_os(e, got < 0 ? (int)got : -EIO, "read from the backup", entry->path);
        }
        sha256_add(&h, t->piece, n);
        int r = os_pwrite_all(to, t->piece, n, at, NULL);
        if (r < 0) {
            return err_os(e, r, "write", entry->path);
        }
        at += n;
        t->out->bytes += n;
        progress_update(&t->progress, t->out->bytes);
    }
    sha256_end(&h, digest);
    if (memcmp(digest, entry->sha256, sizeof digest) != 0) {
        return err_set(e, ERR_CORRUPT, "the backup was changed: %s has another SHA-256",
                       entry->path);
    }
    int r = os_fsync(to);
    return r < 0 ? err_os(e, r, "sync", entry->path) : 0;
}

static int restore_file(struct restore *t, const struct backup_entry *entry, struct err *e)
{
    char from[BACKUP_FULL_MAX];
    char to[BACKUP_FULL_MAX];
    int r = backup_join(from, t->tree, entry->path, e);
    if (r == 0) {
        r = backup_join(to, t->data, entry->path, e);
    }
    if (r != 0) {
        return r;
    }
    int in = os_open(from, O_RDONLY | O_NOFOLLOW, 0);
    if (in < 0) {
        return err_os(e, in, "open", from);
    }
    int out = os_open(to, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, entry->mode | 0600);
    if (out < 0) {
        (void)os_close(in);
        return err_os(e, out, "make", to);
    }
    r = copy_bytes(t, entry, in, out, e);
    (void)os_close(in);
    int closed = os_close(out);
    if (r == 0 && closed < 0) {
        r = err_os(e, closed, "close", to);
    }
    t->out->files += r == 0 ? 1 : 0;
    return r;
}

static int restore_one(struct restore *t, const struct backup_entry *entry, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    if (!entry->directory) {
        return restore_file(t, entry, e);
    }
    int r = backup_join(path, t->data, entry->path, e);
    if (r != 0) {
        return r;
    }
    r = os_mkdir_exist_ok(path, entry->mode | 0700);
    if (r < 0) {
        return err_os(e, r, "make", path);
    }
    buf_put(&t->directories, path, strlen(path) + 1);
    return t->directories.failed ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

static int sync_directories(struct restore *t, struct err *e)
{
    for (size_t at = 0; at < t->directories.len;) {
        const char *path = t->directories.ptr + at;
        int r = os_sync_dir(path);
        if (r < 0) {
            return err_os(e, r, "sync", path);
        }
        at += strlen(path) + 1;
    }
    int r = os_sync_dir(t->data);
    return r < 0 ? err_os(e, r, "sync", t->data) : 0;
}

/* ---- all ---- */

static int pause_sinks(struct restore *t, struct err *e)
{
    char reason[PAUSED_REASON_MAX];
    (void)snprintf(reason, sizeof reason, "restored from the backup of %s, at %llu events",
                   t->out->about.made_at, (unsigned long long)t->out->about.events);
    return paused_write(t->data, slice_cstr(reason), NULL, e);
}

static int end(struct restore *t, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, t->data, RESTORE_MARKER, e);
    if (r != 0) {
        return r;
    }
    r = os_unlink(path);
    if (r == 0) {
        r = os_sync_dir(t->data);
    }
    return r < 0 ? err_os(e, r, "remove", path) : 0;
}

/* With --verify; the position must be the one that the backup is named by. */
static int prove(struct restore *t, struct err *e)
{
    struct backup_about proven = {0};
    const struct backup_about *named = &t->out->about;
    int r = backup_prove(t->data, &proven, e);
    if (r == 0 &&
        (proven.events != named->events || memcmp(proven.head, named->head, SHA256_LEN) != 0)) {
        r = err_set(e, ERR_CORRUPT, "the journal does not stand where the backup says");
    }
    return r;
}

static int run(struct restore *t, bool verify, struct err *e)
{
    int r = each_entry(t, check_one, e);
    if (r == 0) {
        r = make_data(t, e);
    }
    if (r == 0) {
        progress_start_silent(&t->progress, "restore", t->out->about.bytes, 0);
        r = each_entry(t, restore_one, e);
        progress_end();
    }
    if (r == 0) {
        r = sync_directories(t, e);
    }
    if (r == 0) {
        r = pause_sinks(t, e);
    }
    if (r == 0 && verify) {
        r = prove(t, e);
    }
    return r == 0 ? end(t, e) : r;
}

int restore_run(const char *dir, const char *data, bool verify, struct restore_result *out,
                struct err *e)
{
    struct restore t = {.data = data, .out = out};
    memset(out, 0, sizeof *out);
    int r = real_path(dir, t.dir, e);
    if (r != 0) {
        return r;
    }
    t.piece = malloc(PIECE_BYTES);
    r = t.piece == NULL ? err_set(e, ERR_NO_MEMORY, "out of memory") : run(&t, verify, e);
    free(t.piece);
    buf_free(&t.directories);
    return r;
}
