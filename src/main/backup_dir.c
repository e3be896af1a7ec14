/* backup: the place where backups are kept, and the commit.
 *
 * Steps, and what a crash behind each leaves:
 *   1 tree-N made, files in it written and synced one by one     a tree that nothing names: removed
 *   2 the copy is proven (backup_prove.c)                        the same
 *   3 directories of the tree and BACKUP synced                  the same
 *   4 backup.json.tmp written, synced                            the same, and this file
 *   5 rename to backup.json, BACKUP synced: the commit           the last backup, or this one
 *   6 the older tree is removed                                  parts of it: removed
 *
 * Files of the older tree are only read and given second names, so up to step 5 the last backup is
 * untouched. Answers: all errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "main/backup.h"
#include "main/output.h"
#include "os/os.h"

#define LIST_TEMP   BACKUP_LIST ".tmp"
#define LOCK_FILE   "lock"
#define PIECE_BYTES (1u << 20)

/* ---- is it a place for backups? ---- */

static bool is_tree(const char *name)
{
    size_t n = strlen(name);
    return n > 5 && strncmp(name, "tree-", 5) == 0 && strspn(name + 5, "0123456789") == n - 5;
}

struct strangers {
    char first[100];
};

static int see_name(void *ctx, const char *name)
{
    struct strangers *s = ctx;
    if (is_tree(name) || strcmp(name, BACKUP_LIST) == 0 || strcmp(name, LIST_TEMP) == 0 ||
        strcmp(name, LOCK_FILE) == 0 || strcmp(name, "lost+found") == 0) {
        return 0;
    }
    (void)snprintf(s->first, sizeof s->first, "%.90s", name);
    return 1;
}

/* True when a is b, or lies in it; both are real paths. */
static bool lies_in(const char *a, const char *b)
{
    size_t n = strlen(b);
    return strncmp(a, b, n) == 0 && (a[n] == '\0' || a[n] == '/' || (n > 0 && b[n - 1] == '/'));
}

static int check_place(struct backup *b, struct err *e)
{
    struct strangers s = {{0}};
    char *real_data = realpath(b->data, NULL);
    if (real_data == NULL) {
        return err_set(e, ERR_NOT_FOUND, "there is no data directory %.200s", b->data);
    }
    bool within = lies_in(b->dir, real_data) || lies_in(real_data, b->dir);
    free(real_data);
    if (within) {
        return err_set(e, ERR_USAGE,
                       "the backup and the data directory must not lie in each other");
    }
    int r = os_list(b->dir, see_name, &s);
    if (r > 0) {
        return err_set(e, ERR_USAGE, "%.150s is not empty, and no place of backups: it has %s",
                       b->dir, s.first);
    }
    return r < 0 ? err_os(e, r, "list", b->dir) : 0;
}

/* Makes the last component, durably. */
static int make_place(const char *dir, struct err *e)
{
    int r = os_mkdir(dir, 0700);
    if (r == -EEXIST) {
        return 0;
    }
    if (r < 0) {
        return err_os(e, r, "make", dir);
    }
    char parent[BACKUP_FULL_MAX];
    r = backup_join(parent, dir, "..", e);
    if (r != 0) {
        return r;
    }
    r = os_sync_dir(parent);
    return r < 0 ? err_os(e, r, "sync", parent) : 0;
}

static int find_place(struct backup *b, const char *dir, struct err *e)
{
    int r = make_place(dir, e);
    if (r != 0) {
        return r;
    }
    char *real = realpath(dir, NULL);
    if (real == NULL || strlen(real) >= sizeof b->dir) {
        free(real);
        return err_set(e, ERR_IO, "%.200s: it cannot be found, or its path is too long", dir);
    }
    memcpy(b->dir, real, strlen(real) + 1);
    free(real);
    return check_place(b, e);
}

static int take_lock(struct backup *b, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, b->dir, LOCK_FILE, e);
    if (r != 0) {
        return r;
    }
    b->dir_fd = os_open(path, O_RDWR | O_CREAT, 0600);
    if (b->dir_fd < 0) {
        return err_os(e, b->dir_fd, "open", path);
    }
    r = os_flock(b->dir_fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK) {
        return err_set(e, ERR_LOCKED, "another backup is being made in %.200s", b->dir);
    }
    return r < 0 ? err_os(e, r, "lock", path) : 0;
}

/* ---- the last backup ---- */

static int known_cmp(const void *a, const void *b)
{
    return memcmp(a, b, sizeof((const struct backup_known *)a)->name);
}

static int add_known(struct backup *b, const struct backup_entry *entry, struct err *e)
{
    uint8_t digest[SHA256_LEN];
    if (b->known_count == b->known_cap) {
        size_t cap = b->known_cap == 0 ? 256 : b->known_cap * 2;
        struct backup_known *grown = realloc(b->known, cap * sizeof *grown);
        if (grown == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the list of the last backup");
        }
        b->known = grown;
        b->known_cap = cap;
    }
    struct backup_known *k = &b->known[b->known_count++];
    sha256_once(slice_cstr(entry->path), digest);
    memcpy(k->name, digest, sizeof k->name);
    memcpy(k->sha256, entry->sha256, sizeof k->sha256);
    k->size = entry->size;
    return 0;
}

static int read_last(struct backup *b, struct backup_about *last, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    struct backup_reader reader;
    struct backup_entry entry;
    int r = backup_join(path, b->dir, BACKUP_LIST, e);
    if (r == 0) {
        r = backup_reader_open(&reader, path, last, e);
    }
    if (r != 0) {
        return r == ERR_NOT_FOUND ? 0 : r;
    }
    while ((r = backup_reader_next(&reader, &entry, e)) == 1) {
        r = entry.directory ? 0 : add_known(b, &entry, e);
        if (r != 0) {
            break;
        }
    }
    backup_reader_close(&reader);
    if (r == 0 && b->known_count > 1) {
        qsort(b->known, b->known_count, sizeof *b->known, known_cmp);
    }
    (void)snprintf(b->old_tree, sizeof b->old_tree, "%s/%s", b->dir, last->tree);
    return r;
}

struct left_overs {
    const struct backup *b;
    const char *keep; /* "": no tree */
    struct err *e;
};

static int remove_left_over(void *ctx, const char *name)
{
    struct left_overs *l = ctx;
    char path[BACKUP_FULL_MAX];
    if (!is_tree(name) || strcmp(name, l->keep) == 0) {
        return 0;
    }
    return backup_join(path, l->b->dir, name, l->e) == 0 && backup_remove(path, l->e) == 0 ? 0 : 1;
}

/* Trees that no list names: of an interrupted run, or of the one before the last. */
static int remove_left_overs(struct backup *b, const char *keep, struct err *e)
{
    struct left_overs l = {.b = b, .keep = keep, .e = e};
    int r = os_list(b->dir, remove_left_over, &l);
    return r < 0 ? err_os(e, r, "list", b->dir) : r > 0 ? e->code : 0;
}

static int make_tree(struct backup *b, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    (void)snprintf(b->about.tree, sizeof b->about.tree, "tree-%06llu",
                   (unsigned long long)b->about.number);
    (void)snprintf(b->tree, sizeof b->tree, "%s/%s", b->dir, b->about.tree);
    int r = os_mkdir(b->tree, 0700);
    if (r < 0) {
        return err_os(e, r, "make", b->tree);
    }
    r = backup_join(path, b->dir, LIST_TEMP, e);
    return r == 0 ? backup_writer_open(&b->list, path, e) : r;
}

int backup_begin(struct backup *b, const char *dir, struct err *e)
{
    struct backup_about last = {0};
    b->piece = malloc(PIECE_BYTES);
    int r = b->piece == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for a piece of a file")
                             : find_place(b, dir, e);
    if (r == 0) {
        r = take_lock(b, e);
    }
    if (r == 0) {
        r = read_last(b, &last, e);
    }
    if (r == 0) {
        r = remove_left_overs(b, last.tree, e);
    }
    b->about.number = last.number + 1;
    b->engine_before = strcmp(last.engine, "copied") == 0;
    return r == 0 ? make_tree(b, e) : r;
}

/* ---- the commit ---- */

static int sync_directories(struct backup *b, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    for (size_t at = 0; at < b->directories.len;) {
        const char *name = b->directories.ptr + at;
        int r = backup_join(path, b->tree, name, e);
        if (r != 0) {
            return r;
        }
        r = os_sync_dir(path);
        if (r < 0) {
            return err_os(e, r, "sync", path);
        }
        at += strlen(name) + 1;
    }
    int r = os_sync_dir(b->tree);
    if (r == 0) {
        r = os_sync_dir(b->dir);
    }
    return r < 0 ? err_os(e, r, "sync", b->tree) : 0;
}

static int rename_list(struct backup *b, struct err *e)
{
    char temp[BACKUP_FULL_MAX];
    char path[BACKUP_FULL_MAX];
    int r = backup_join(temp, b->dir, LIST_TEMP, e);
    if (r == 0) {
        r = backup_join(path, b->dir, BACKUP_LIST, e);
    }
    if (r != 0) {
        return r;
    }
    b->named = true;
    r = os_rename(temp, path);
    if (r == 0) {
        r = os_sync_dir(b->dir);
    }
    return r < 0 ? err_os(e, r, "put in place", path) : 0;
}

int backup_commit(struct backup *b, struct err *e)
{
    int r = sync_directories(b, e);
    if (r == 0) {
        r = backup_writer_sync(&b->list, &b->about, e);
    }
    if (r == 0) {
        r = rename_list(b, e);
    }
    if (r == 0) {
        /* It is made; what cannot be removed now the next run removes. */
        struct err left = {0};
        if (remove_left_overs(b, b->about.tree, &left) != 0) {
            output_error("backup", "the older backup stays beside the new one: %s", left.text);
        }
    }
    return r;
}

void backup_give_up(struct backup *b)
{
    char temp[BACKUP_FULL_MAX];
    struct err left = {0};
    if (b->tree[0] == '\0' || b->named) {
        return;
    }
    if (backup_remove(b->tree, &left) != 0) {
        output_error("backup", "what was copied stays until the next run: %s", left.text);
    }
    if (backup_join(temp, b->dir, LIST_TEMP, &left) == 0) {
        (void)os_unlink(temp);
    }
}

void backup_free(struct backup *b)
{
    const int fds[] = {b->data_fd, b->dir_fd};
    backup_writer_close(&b->list);
    free(b->known);
    free(b->piece);
    buf_free(&b->directories);
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (fds[i] >= 0) {
            (void)os_close(fds[i]);
        }
    }
}
