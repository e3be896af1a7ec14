/* modeldisk_bytes: the model disk's calls about bytes: pread, pwrite, ftruncate, the syncs,
 * drop_cache.
 *
 * A write changes the cache and becomes pending data and size items (modeldisk_crash.c); a sync
 * lands them, or loses them when it is made to fail. Answers: negative errnos as Linux gives them.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_call.h"

static int64_t read_do(struct model *m, int fd, unsigned char *to, size_t n, uint64_t offset)
{
    const struct open_file *f = open_find(m, fd);
    struct inode *i = open_inode(m, fd);
    size_t done = 0;

    if (i == NULL || (f->flags & O_ACCMODE) == O_WRONLY) {
        return -EBADF;
    }
    if (S_ISDIR(i->mode)) {
        return -EISDIR;
    }
    if (offset > INT64_MAX) {
        return -EINVAL;
    }
    if (offset >= i->cache->size) {
        return 0;
    }
    if (n > i->cache->size - offset) {
        n = (size_t)(i->cache->size - offset);
    }
    while (done < n) {
        uint64_t at = offset + done;
        size_t within = at % MODEL_BLOCK;
        size_t piece = n - done < MODEL_BLOCK - within ? n - done : MODEL_BLOCK - within;
        const struct page *p = image_page(i->cache, at / MODEL_BLOCK);

        if (p == NULL) {
            memset(to + done, 0, piece);
        } else {
            memcpy(to + done, p->bytes + within, piece);
        }
        done += piece;
    }
    return (int64_t)n;
}

int64_t model_pread(int fd, void *to, size_t n, uint64_t offset)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.pread(fd, to, n, offset);
    }
    result = call_begin(&c, OS_CALL_pread, NULL, fd, offset, n);
    if (result != 0) {
        return result;
    }
    if (!call_replaced(&c, &result)) {
        result = read_do(c.m, fd, to, call_length(&c, n), offset);
    }
    return call_end(&c, result);
}

/* How much of a write fits under the capacity. */
static size_t room_for(const struct model *m, struct inode *i, size_t n, uint64_t offset)
{
    uint64_t left = m->capacity_pages - m->used_pages;

    if (m->capacity_pages == 0) {
        return n;
    }
    for (uint64_t at = offset; at < offset + n; at += MODEL_BLOCK - at % MODEL_BLOCK) {
        if (image_page(i->cache, at / MODEL_BLOCK) != NULL) {
            continue;
        }
        if (left == 0) {
            return (size_t)(at - offset);
        }
        left--;
    }
    return n;
}

static void page_write(struct model *m, struct inode *i, uint64_t at, const unsigned char *from,
                       size_t n)
{
    uint64_t index = at / MODEL_BLOCK;
    size_t within = at % MODEL_BLOCK;

    m->used_pages += image_page(i->cache, index) == NULL;
    if (n == MODEL_BLOCK && memcmp(from, model_zero_page.bytes, n) == 0) {
        image_page_set(i->cache, index, page_ref(&model_zero_page));
    } else {
        memcpy(image_page_own(i->cache, index)->bytes + within, from, n);
    }
    item_data(m, i, index, (unsigned)(within / m->sector_size),
              (unsigned)((within + n - 1) / m->sector_size));
}

static int64_t write_do(struct model *m, int fd, const unsigned char *from, size_t n,
                        uint64_t offset)
{
    const struct open_file *f = open_find(m, fd);
    struct inode *i = open_inode(m, fd);
    uint64_t size_before;

    if (i == NULL || (f->flags & O_ACCMODE) == O_RDONLY) {
        return -EBADF;
    }
    if (offset > INT64_MAX || n > INT64_MAX - offset) {
        return offset > INT64_MAX ? -EINVAL : -EFBIG;
    }
    if (n > 0) {
        n = room_for(m, i, n, offset);
        if (n == 0) {
            return -ENOSPC;
        }
    }
    image_own(&i->cache);
    size_before = i->cache->size;
    if (n > 0 && offset + n > size_before) {
        i->cache->size = offset + n;
    }
    if (n > 0) {
        i->mtime_ms = m->real_ns / 1000000;
    }
    for (size_t done = 0; done < n;) {
        size_t piece = MODEL_BLOCK - (offset + done) % MODEL_BLOCK;

        piece = n - done < piece ? n - done : piece;
        page_write(m, i, offset + done, from + done, piece);
        done += piece;
    }
    if (i->cache->size > size_before) {
        item_size(m, i, i->cache->size, false);
    }
    m->misdirect = 0;
    return (int64_t)n;
}

int64_t model_pwrite(int fd, const void *from, size_t n, uint64_t offset)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.pwrite(fd, from, n, offset);
    }
    result = call_begin(&c, OS_CALL_pwrite, NULL, fd, offset, n);
    if (result != 0) {
        return result;
    }
    if (!call_replaced(&c, &result)) {
        result = write_do(c.m, fd, from, call_length(&c, n), offset);
    }
    return call_end(&c, result);
}

static int truncate_do(struct model *m, int fd, uint64_t size)
{
    const struct open_file *f = open_find(m, fd);
    struct inode *i = open_inode(m, fd);
    uint64_t before;

    if (i == NULL) {
        return -EBADF;
    }
    if (S_ISDIR(i->mode) || (f->flags & O_ACCMODE) == O_RDONLY || size > INT64_MAX) {
        return -EINVAL;
    }
    before = i->cache->size;
    if (size == before) {
        return 0;
    }
    image_own(&i->cache);
    if (size < before) {
        size_t used = image_pages_used(i->cache);

        image_cut(i->cache, size);
        m->used_pages -= used - image_pages_used(i->cache);
    }
    i->cache->size = size;
    item_size(m, i, size, size < before);
    i->mtime_ms = m->real_ns / 1000000;
    return 0;
}

int model_ftruncate(int fd, uint64_t size)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.ftruncate(fd, size);
    }
    result = call_begin(&c, OS_CALL_ftruncate, NULL, fd, size, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        result = truncate_do(c.m, fd, size);
    }
    return (int)call_end(&c, result);
}

/* ---- syncs ---- */

static int sync_call(enum os_call call, int fd)
{
    struct call c;
    struct inode *i;
    int64_t result = call_begin(&c, call, NULL, fd, 0, 0);

    if (result != 0) {
        return (int)result;
    }
    i = open_inode(c.m, fd);
    if (i == NULL) {
        return (int)call_end(&c, -EBADF);
    }
    if (call_replaced(&c, &result)) {
        if (result < 0 && !S_ISDIR(i->mode)) {
            items_lose_file(c.m, i);
        }
        return (int)call_end(&c, result);
    }
    if (S_ISDIR(i->mode)) {
        if (!c.m->lie_directories) {
            items_land_directory(c.m, i->ino);
        }
    } else if (!c.m->lie_files) {
        items_land_file(c.m, i);
    }
    return (int)call_end(&c, 0);
}

int model_fdatasync(int fd)
{
    return foreign_fd(fd) ? os_real.fdatasync(fd) : sync_call(OS_CALL_fdatasync, fd);
}

int model_fsync(int fd)
{
    return foreign_fd(fd) ? os_real.fsync(fd) : sync_call(OS_CALL_fsync, fd);
}

/* Whether the page may be thrown away: nothing on it waits for the disk. */
static bool page_clean(const struct model *m, const struct inode *i, uint64_t index)
{
    if (index < i->dirty_size && i->dirty[index] != 0) {
        return false;
    }
    for (size_t n = 0; n < m->item_count; n++) {
        const struct item *item = &m->items[n];

        if (item->ino == i->ino && item->shrinks && item->at < (index + 1) * MODEL_BLOCK) {
            return false; /* the disk still has what was cut off */
        }
    }
    return true;
}

static void cache_drop(struct model *m, struct inode *i)
{
    uint64_t pages = i->cache->page_count > i->durable->page_count ? i->cache->page_count
                                                                   : i->durable->page_count;
    uint64_t size = i->cache->size;
    bool all = true;

    if (!i->diverged) {
        return;
    }
    m->used_pages -= i->released ? 0 : image_pages_used(i->cache);
    image_own(&i->cache);
    for (uint64_t n = 0; n < pages; n++) {
        if (page_clean(m, i, n)) {
            image_page_set(i->cache, n, page_ref(image_page(i->durable, n)));
        } else {
            all = false;
        }
    }
    image_cut(i->cache, size);
    m->used_pages += i->released ? 0 : image_pages_used(i->cache);
    i->diverged = !all;
}

int model_drop_cache(int fd)
{
    struct call c;
    int64_t result;

    if (foreign_fd(fd)) {
        return os_real.drop_cache(fd);
    }
    result = call_begin(&c, OS_CALL_drop_cache, NULL, fd, 0, 0);
    if (result != 0) {
        return (int)result;
    }
    if (!call_replaced(&c, &result)) {
        struct inode *i = open_inode(c.m, fd);

        result = i != NULL ? 0 : -EBADF;
        if (i != NULL && !S_ISDIR(i->mode)) {
            cache_drop(c.m, i);
        }
    }
    return (int)call_end(&c, result);
}
