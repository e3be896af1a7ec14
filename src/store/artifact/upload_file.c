/* Small files whole, ranges of large ones, and the slow way of freeing blocks.
 *
 * Power failure: upload_commit_file leaves the old state, or the new file whole under its name; a
 * temporary name may stay behind (uploads_clean). upload_cut_slowly leaves the file at any
 * length between the two: what it cuts is what nobody may ask for again.
 *
 * Answers: every failure. A file that is longer than its bound is no file of ours: ERR_CORRUPT. */
#include <errno.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

int upload_read_file(const char *path, size_t max, struct buf *out, uint64_t *mtime_ms,
                     struct err *e)
{
    struct os_stat st;
    int64_t got = 0;
    buf_init(out, max + 1);
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "there is no such file");
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    int r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(e, r, "stat", path);
    } else if (st.size > max) {
        r = err_set(e, ERR_CORRUPT, "%s is longer than %zu bytes", path, max);
    } else if (!buf_reserve(out, (size_t)st.size + 1)) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read %s", path);
    }
    if (r == 0) {
        got = os_pread_full(fd, out->ptr, (size_t)st.size, 0);
        r = got < 0 ? err_os(e, (int)got, "read", path) : 0;
    }
    (void)os_close(fd); /* nothing was written through it */
    if (r != 0) {
        buf_free(out);
        return r;
    }
    out->len = (size_t)got;
    if (mtime_ms != NULL) {
        *mtime_ms = st.mtime_ms;
    }
    return 0;
}

static int write_synced(const char *path, struct slice bytes)
{
    int fd = os_open(path, O_WRONLY | O_CREAT | O_TRUNC, UPLOAD_FILE_MODE);
    if (fd < 0) {
        return fd;
    }
    int r = os_pwrite_all(fd, bytes.ptr, bytes.len, 0, NULL);
    if (r == 0) {
        r = os_fdatasync(fd);
    }
    int closed = os_close(fd);
    return r != 0 ? r : closed;
}

int upload_commit_file(const char *temp, const char *path, const char *dir, struct slice bytes,
                       struct err *e)
{
    int r = write_synced(temp, bytes);
    if (r < 0) {
        (void)os_unlink(temp);
        return err_os(e, r, "write", temp);
    }
    r = os_rename(temp, path);
    if (r < 0) {
        (void)os_unlink(temp);
        return err_os(e, r, "rename", temp);
    }
    r = os_sync_dir(dir);
    return r < 0 ? err_os(e, r, "sync directory", dir) : 0;
}

int upload_sync_file(const char *path, struct err *e)
{
    int fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    int r = os_fdatasync(fd);
    (void)os_close(fd); /* its bytes were written through another, which was closed in order */
    return r < 0 ? err_os(e, r, "sync", path) : 0;
}

static int stopped(struct err *e)
{
    return err_set(e, ERR_NOT_READY, "the process stops");
}

int upload_hash_range(int fd, uint64_t from, uint64_t to, struct blake3 *h,
                      _Atomic uint64_t *progress, const atomic_bool *stop, struct err *e)
{
    int r = 0;
    ensure(from <= to);
    if (from == to) {
        return 0;
    }
    size_t room = to - from < UPLOAD_PIECE_BYTES ? (size_t)(to - from) : UPLOAD_PIECE_BYTES;
    unsigned char *piece = malloc(room);
    if (piece == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read an upload");
    }
    for (uint64_t at = from; at < to && r == 0;) {
        size_t n = to - at < room ? (size_t)(to - at) : room;
        if (stop != NULL && at - from >= UPLOAD_SYNC_BYTES && atomic_load(stop)) {
            r = stopped(e);
            break;
        }
        int64_t got = os_pread_full(fd, piece, n, at);
        if (got < 0) {
            r = err_os(e, (int)got, "read", "an upload");
        } else if ((size_t)got < n) {
            r = err_set_at(e, ERR_IO, at + (uint64_t)got, "an upload is shorter than it was");
        } else {
            blake3_add(h, piece, n);
            (void)os_drop_range(fd, at, n);
            at += n;
            if (progress != NULL) {
                *progress += n;
            }
        }
    }
    free(piece);
    return r;
}

int upload_cut_slowly(int fd, uint64_t to, const atomic_bool *stop, struct err *e)
{
    struct os_stat st;
    int r = os_fstat(fd, &st);
    while (r == 0 && st.size > to) {
        uint64_t left = st.size - to;
        if (left > UPLOAD_SYNC_BYTES && atomic_load(stop)) {
            return stopped(e);
        }
        st.size -= left < UPLOAD_STEP_BYTES ? left : UPLOAD_STEP_BYTES;
        r = os_ftruncate(fd, st.size);
        if (r == 0 && st.size > to) {
            (void)os_poll_in(-1, UPLOAD_STEP_MS); /* of nothing: a pause */
        }
    }
    return r < 0 ? err_os(e, r, "truncate", "an upload") : 0;
}

int upload_truncate_slowly(int fd, const atomic_bool *stop, struct err *e)
{
    return upload_cut_slowly(fd, 0, stop, e);
}
