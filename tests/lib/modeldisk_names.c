/* modeldisk_names: the model disk's calls about names: open, close, rename, unlink, mkdir, list,
 * stat, locks.
 *
 * A change of the name space happens in the cache and becomes one pending entry item; only an fsync
 * of the directory (modeldisk_bytes.c) makes it last. Answers: negative errnos as Linux gives them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_call.h"

/* Makes the change in the cache and puts it on the list. */
static void entry_change(struct model *m, enum os_call call, struct inode *i, struct inode *dir,
                         const char *name, struct inode *dir_to, const char *name_to)
{
    struct entry_op *op = model_alloc(sizeof *op);

    op->refs = 1;
    op->call = call;
    op->ino = i->ino;
    op->dir = dir->ino;
    op->dir_to = dir_to->ino;
    memcpy(op->name, name, strlen(name) + 1);
    memcpy(op->name_to, name_to, strlen(name_to) + 1);
    item_entry(m, op);
    entry_apply(m, op, false);
    dir->mtime_ms = m->real_ns / 1000000;
    dir_to->mtime_ms = dir->mtime_ms;
}

static struct inode *create(struct model *m, enum os_call call, unsigned mode, struct inode *dir,
                            const char *name)
{
    struct inode *i = inode_add(m, mode);

    inode_place(i, dir, name);
    entry_change(m, call, i, dir, name, dir, "");
    return i;
}

static int open_existing(struct model *m, struct inode *i, int flags)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;

    if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) {
        return -EEXIST;
    }
    if (S_ISDIR(i->mode)) {
        return writes || (flags & O_CREAT) != 0 ? -EISDIR : 0;
    }
    if ((flags & O_DIRECTORY) != 0) {
        return -ENOTDIR;
    }
    if ((flags & O_TRUNC) != 0 && writes && i->cache->size > 0) {
        m->used_pages -= image_pages_used(i->cache);
        image_own(&i->cache);
        image_cut(i->cache, 0);
        item_size(m, i, 0, true);
        i->mtime_ms = m->real_ns / 1000000;
    }
    return 0;
}

static int open_find_or_make(struct model *m, const char *path, int flags, unsigned mode,
                             struct inode **out)
{
    char name[MODEL_NAME_SIZE];
    struct inode *dir;
    const struct entry *e;
    int error = path_find(m, path, &dir, name);

    if (error != 0) {
        return error;
    }
    e = name[0] != '\0' ? entries_find(&dir->now, name) : NULL;
    *out = name[0] == '\0' ? dir : e != NULL ? inode_get(m, e->ino) : NULL;
    if ((flags & O_APPEND) != 0) {
        return -EINVAL; /* pwrite on such a descriptor ignores its offset: nothing here wants that
                         */
    }
    if (m->open_max != 0 && m->open_count >= m->open_max) {
        return -EMFILE;
    }
    if (*out != NULL) {
        return open_existing(m, *out, flags);
    }
    if ((flags & O_CREAT) == 0) {
        return -ENOENT;
    }
    if ((flags & O_DIRECTORY) != 0) {
        return -EINVAL;
    }
    *out = create(m, OS_CALL_open, S_IFREG | (mode & 0777), dir, name);
    return 0;
}

int model_open(const char *path, int flags, unsigned mode)
{
    struct call c;
    struct inode *i = NULL;
    int64_t result;
    struct open_file *f;

    if (foreign_path(path)) {
        return os_real.open(path, flags, mode);
    }
    result = call_begin(&c, OS_CALL_open, path, -1, (uint64_t)flags, mode);
    if (result != 0) {
        return (int)result;
    }
    if (c.struck && c.fault.kind == FAULT_ERROR) {
        return (int)call_end(&c, -c.fault.error);
    }
    result = open_find_or_make(c.m, path, flags, mode, &i);
    if (result != 0 || (c.struck && c.fault.kind == FAULT_ERROR_AFTER)) {
        return (int)call_end(&c, result);
    }
    c.m->opens = model_grow(c.m->opens, &c.m->open_room, c.m->open_count + 1, sizeof *f);
    f = &c.m->opens[c.m->open_count++];
    *f = (struct open_file){c.m->fd_next++, flags, LOCK_UN, i->ino};
    i->opens++;
    return (int)call_end(&c, f->fd);
}

int model_close(int fd)
{
    struct call c;
    struct open_file *f;
    struct inode *i;
    int result;

    if (foreign_fd(fd)) {
        return os_real.close(fd);
    }
    result = call_begin(&c, OS_CALL_close, NULL, fd, 0, 0);
    if (result != 0) {
        return result;
    }
    f = open_find(c.m, fd);
    if (f == NULL) {
        return (int)call_end(&c, -EBADF);
    }
    i = inode_get(c.m, f->ino);
    ensure(i != NULL);
    *f = c.m->opens[--c.m->open_count];
    i->opens--;
    inode_release(c.m, i);
    /* A close that fails has given the descriptor up all the same, as Linux does. */
    return (int)call_end(&c, c.struck && c.fault.kind == FAULT_ERROR ? -c.fault.error : 0);
}

/* Whether path lies below the directory of that other path; both are as the caller wrote them. */
static bool path_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);

    return strncmp(path, directory, n) == 0 && path[n] == '/';
}

/* Linux's reasons to refuse a rename, in Linux's order. */
static int rename_check(const struct inode *i, const struct inode *over, const char *from,
                        const char *to)
{
    if (path_below(to, from)) {
        return S_ISDIR(i->mode) ? -EINVAL : -ENOTDIR;
    }
    if (path_below(from, to)) {
        return -ENOTEMPTY;
    }
    if (over == NULL || over == i) {
        return 0;
    }
    if (S_ISDIR(over->mode) != S_ISDIR(i->mode)) {
        return S_ISDIR(over->mode) ? -EISDIR : -ENOTDIR;
    }
    return S_ISDIR(over->mode) && over->now.count > 0 ? -ENOTEMPTY : 0;
}

static int rename_do(struct model *m, const char *from, const char *to)
{
    char name[MODEL_NAME_SIZE];
    char name_to[MODEL_NAME_SIZE];
    struct inode *dir;
    struct inode *dir_to;
    struct inode *i;
    struct inode *over;
    int error = path_find(m, from, &dir, name);

    error = error == 0 ? path_find(m, to, &dir_to, name_to) : error;
    if (error != 0) {
        return error;
    }
    if (name[0] == '\0' || name_to[0] == '\0') {
        return -EBUSY; /* the root */
    }
    i = path_inode(m, from, &error);
    if (i == NULL) {
        return error;
    }
    over = path_inode(m, to, &error);
    error = rename_check(i, over, from, to);
    if (error != 0 || over == i) {
        return error;
    }
    entry_change(m, OS_CALL_rename, i, dir, name, dir_to, name_to);
    inode_place(i, dir_to, name_to);
    if (over != NULL) {
        inode_release(m, over);
    }
    return 0;
}

int model_rename(const char *from, const char *to)
{
    struct call c;
    int64_t result;

    if (foreign_path(from)) {
        return foreign_path(to) ? os_real.rename(from, to) : -EXDEV;
    }
    result = call_begin(&c, OS_CALL_rename, from, -1, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        result = foreign_path(to) ? -EXDEV : rename_do(c.m, from, to);
    }
    return (int)call_end(&c, result);
}

static int unlink_do(struct model *m, const char *path)
{
    char name[MODEL_NAME_SIZE];
    struct inode *dir;
    int error;
    struct inode *i = path_inode(m, path, &error);

    if (i == NULL) {
        return error;
    }
    if (S_ISDIR(i->mode)) {
        return -EISDIR;
    }
    ensure(path_find(m, path, &dir, name) == 0);
    entry_change(m, OS_CALL_unlink, i, dir, name, dir, "");
    inode_release(m, i);
    return 0;
}

int model_unlink(const char *path)
{
    struct call c;
    int64_t result;

    if (foreign_path(path)) {
        return os_real.unlink(path);
    }
    result = call_begin(&c, OS_CALL_unlink, path, -1, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        result = unlink_do(c.m, path);
    }
    return (int)call_end(&c, result);
}

static int mkdir_do(struct model *m, const char *path, unsigned mode)
{
    char name[MODEL_NAME_SIZE];
    struct inode *dir;
    int error = path_find(m, path, &dir, name);

    if (error != 0) {
        return error;
    }
    if (name[0] == '\0' || entries_find(&dir->now, name) != NULL) {
        return -EEXIST;
    }
    (void)create(m, OS_CALL_mkdir, S_IFDIR | (mode & 0777), dir, name);
    return 0;
}

int model_mkdir(const char *path, unsigned mode)
{
    struct call c;
    int64_t result;

    if (foreign_path(path)) {
        return os_real.mkdir(path, mode);
    }
    result = call_begin(&c, OS_CALL_mkdir, path, -1, 0, mode);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        result = mkdir_do(c.m, path, mode);
    }
    return (int)call_end(&c, result);
}

static uint64_t name_rank(const struct model *m, const char *name)
{
    uint64_t h = m->seed;

    for (; *name != '\0'; name++) {
        h = model_mix(h ^ (unsigned char)*name);
    }
    return h;
}

/* The names in an order of the seed's making: nothing may depend on it. */
static struct entries list_copy(const struct model *m, const struct inode *dir)
{
    struct entries e = {0};

    entries_copy(&e, &dir->now);
    for (size_t n = 1; n < e.count; n++) {
        for (size_t k = n; k > 0 && name_rank(m, e.list[k].name) < name_rank(m, e.list[k - 1].name);
             k--) {
            struct entry t = e.list[k];

            e.list[k] = e.list[k - 1];
            e.list[k - 1] = t;
        }
    }
    return e;
}

int model_list(const char *path, os_list_fn *fn, void *ctx)
{
    struct call c;
    struct entries e = {0};
    int64_t result;
    bool asked = false;

    if (foreign_path(path)) {
        return os_real.list(path, fn, ctx);
    }
    result = call_begin(&c, OS_CALL_list, path, -1, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        int error;
        const struct inode *i = path_inode(c.m, path, &error);

        result = i == NULL ? error : S_ISDIR(i->mode) ? 0 : -ENOTDIR;
        asked = result == 0;
        if (asked) {
            e = list_copy(c.m, i);
        }
    }
    result = call_end(&c, result);
    for (size_t n = 0; asked && result == 0 && n < e.count; n++) {
        result = fn(ctx, e.list[n].name); /* without the lock: it may make calls */
    }
    free(e.list);
    return (int)result;
}

/* ---- questions and locks ---- */

static void stat_fill(const struct inode *i, struct os_stat *st)
{
    *st = (struct os_stat){.size = S_ISDIR(i->mode) ? MODEL_BLOCK : i->cache->size,
                           .inode = i->ino,
                           .device = 0x6d,
                           .mode = i->mode,
                           .mtime_ms = i->mtime_ms};
}

int model_fstat(int fd, struct os_stat *st)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.fstat(fd, st);
    }
    result = call_begin(&c, OS_CALL_fstat, NULL, fd, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        const struct inode *i = open_inode(c.m, fd);

        result = i != NULL ? 0 : -EBADF;
        if (i != NULL) {
            stat_fill(i, st);
        }
    }
    return (int)call_end(&c, result);
}

int model_stat(const char *path, struct os_stat *st)
{
    struct call c;
    int64_t result;

    if (foreign_path(path)) {
        return os_real.stat(path, st);
    }
    result = call_begin(&c, OS_CALL_stat, path, -1, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        int error;
        const struct inode *i = path_inode(c.m, path, &error);

        result = error;
        if (i != NULL) {
            stat_fill(i, st);
        }
    }
    return (int)call_end(&c, result);
}

static int lock_do(struct model *m, int fd, int operation)
{
    struct open_file *f = open_find(m, fd);
    int wanted = operation & (LOCK_SH | LOCK_EX | LOCK_UN);

    if (f == NULL) {
        return -EBADF;
    }
    if (wanted != LOCK_SH && wanted != LOCK_EX && wanted != LOCK_UN) {
        return -EINVAL;
    }
    for (size_t n = 0; n < m->open_count && wanted != LOCK_UN; n++) {
        const struct open_file *other = &m->opens[n];

        if (other != f && other->ino == f->ino && other->lock != LOCK_UN &&
            (wanted == LOCK_EX || other->lock == LOCK_EX)) {
            /* Nobody else runs who could let go of it. */
            return (operation & LOCK_NB) != 0 ? -EWOULDBLOCK : -EDEADLK;
        }
    }
    f->lock = wanted;
    return 0;
}

int model_flock(int fd, int operation)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.flock(fd, operation);
    }
    result = call_begin(&c, OS_CALL_flock, NULL, fd, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        result = lock_do(c.m, fd, operation);
    }
    return (int)call_end(&c, result);
}

int model_free_space(const char *path, uint64_t *bytes)
{
    struct call c;
    int64_t result;

    if (foreign_path(path)) {
        return os_real.free_space(path, bytes);
    }
    result = call_begin(&c, OS_CALL_free_space, path, -1, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        int error;

        result = path_inode(c.m, path, &error) != NULL ? 0 : error;
        *bytes =
            (c.m->capacity_pages != 0 ? c.m->capacity_pages - c.m->used_pages : UINT64_C(1) << 28) *
            MODEL_BLOCK;
    }
    return (int)call_end(&c, result);
}
