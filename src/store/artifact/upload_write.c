/* Bytes on their way in: written in aligned pieces, hashed while they are warm, on the disk early.
 *
 * Pace of a large upload: blocks are reserved UPLOAD_AHEAD_BYTES ahead; each finished piece begins
 * its write-back at once; the piece some MiB before is awaited and leaves the page cache. So a sync
 * finds little to do, and an upload of any size occupies a few MiB of the cache.
 *
 * Order of a sync: the bytes; (an upload whose creation synced nothing: ID.info and uploads/); the
 * slot of ID.state; then the offset is published. When every byte is in no slot is written:
 * acceptance follows, nobody is told that offset before there is a receipt, and after a crash the
 * bytes prove themselves by their digest.
 *
 * Power failure: whatever is behind the saved offset is cut by the next open, or proven.
 *
 * Failure of a write or a sync: the kernel may have marked the pages clean, so nothing behind the
 * saved offset can be believed: the file is cut there, synced, and the hash saved there goes on.
 * When that cannot be done the upload is gone; when it cannot be done for want of space, which will
 * end, the upload takes nothing more and the next open cuts it. A state that could not be saved
 * takes nothing back either: its bytes are synced, and the device may have it (upload_state.c).
 * ENOSPC of a write takes nothing back: the bytes before it are as good as any. A failed wait for
 * write-back is a failed sync: the kernel reports an error of that kind once, to who asks first.
 *
 * A held request (one with a checksum of its own) saves no state before it is whole and proven: the
 * saved offset is where it began, so that a crash, as a mismatch, takes back all of it.
 *
 * Answers: all of these. Aborts: more bytes than were declared. */
#include <errno.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

/* Smaller uploads get no blocks ahead and no early write-back: their one sync does it all. */
#define LARGE_BYTES     UPLOAD_PIECE_BYTES
#define AHEAD_BYTES_MIN (8u * UPLOAD_PIECE_BYTES)
/* How far the write-back may trail: enough to keep the device busy. */
#define TRAIL_BYTES (8u * UPLOAD_PIECE_BYTES)

/* ---- going back ---- */

static int cut_back_sync(struct upload *u, struct err *e)
{
    int r = os_ftruncate(u->fd, u->saved);
    if (r == 0) {
        r = os_fsync(u->fd);
    }
    return r < 0 ? err_os(e, r, "truncate", "an upload") : 0;
}

static void stand_back(struct upload *u)
{
    u->written = u->saved;
    u->hash = u->hash_saved;
    u->reserved_to = u->saved;
    u->blocks_to = u->saved;
    u->back_to = u->saved;
    u->waited_to = u->saved;
    u->reread = true;
    u->complete_proven = false;
    atomic_store(&u->synced, u->saved);
}

int upload_roll_back_sync(struct upload *u, int code, struct err *e)
{
    struct err why = {0};
    ensure(code != 0);
    int r = cut_back_sync(u, &why);
    atomic_store(&u->synced, u->saved);
    if (r == ERR_NO_SPACE) {
        u->unsettled = true;
        *e = why;
        return r;
    }
    if (r != 0) {
        upload_make_gone(u, "the upload could not be stored: the disk failed");
        return err_set(e, ERR_GONE, "the upload could not be rolled back: %.200s", why.text);
    }
    stand_back(u);
    return code;
}

/* ---- requests that count as a whole ---- */

void upload_hold(struct upload *u)
{
    ensure(u->written == u->saved && !u->unsettled);
    u->held = true;
}

void upload_release(struct upload *u)
{
    u->held = false;
}

int upload_discard(struct upload *u, struct err *e)
{
    ensure(u->held);
    ensure(!u->unsettled);
    if (u->gone) {
        return upload_gone_error(u, e);
    }
    if (u->written > u->saved) {
        int r = upload_cut_slowly(u->fd, u->saved, &u->us->stopping, e);
        if (r == 0) {
            r = os_fsync(u->fd);
            r = r < 0 ? err_os(e, r, "sync", "an upload") : 0;
        }
        if (r != 0) {
            return r; /* nobody is told of them: the next open cuts them off */
        }
        stand_back(u);
    }
    u->held = false;
    return 0;
}

uint64_t upload_blocks(const struct upload *u)
{
    return u->blocks_to > u->written ? u->blocks_to : u->written;
}

uint64_t upload_promised(const struct upload *u)
{
    uint64_t synced = atomic_load(&u->synced);
    return synced < u->info.size ? synced : u->saved;
}

/* ---- syncing ---- */

int upload_names_sync(struct upload *u, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    if (!u->names_unsynced) {
        return 0;
    }
    upload_path(u->us, path, u->info.id, ".info");
    int r = upload_state_make(u, e);
    if (r == 0) {
        r = upload_sync_file(path, e);
    }
    if (r != 0) {
        return r;
    }
    r = os_sync_dir(u->us->uploads);
    if (r < 0) {
        return err_os(e, r, "sync directory", u->us->uploads);
    }
    u->names_unsynced = false;
    return 0;
}

static int sync_and_save(struct upload *u, struct err *e)
{
    int r = os_fdatasync(u->fd);
    if (r < 0) {
        return err_os(e, r, "sync", "an upload");
    }
    r = upload_names_sync(u, e);
    if (r != 0 || u->written == u->info.size || u->written == u->saved) {
        return r;
    }
    r = upload_state_sync(u, u->written, &u->hash, e);
    u->unsettled = r != 0;
    if (r == 0) {
        u->saved = u->written;
        u->hash_saved = u->hash;
        if (u->reread) {
            trail_follow(u->us->trails, u->info.id, u->saved);
        }
    }
    return r;
}

/* Why it takes no more bytes. */
static int refuse_more(const struct upload *u, struct err *e)
{
    if (u->gone) {
        return upload_gone_error(u, e);
    }
    if (u->receipt_doubtful) {
        return err_set(e, ERR_IO, "it is not known whether the upload has a receipt");
    }
    return u->unsettled ? err_set(e, ERR_IO, "it is not known how far the upload is saved") : 0;
}

int upload_sync(struct upload *u, struct err *e)
{
    struct err ignored;
    e = e != NULL ? e : &ignored;
    int r = refuse_more(u, e);
    ensure(!u->held);
    if (r != 0) {
        return r;
    }
    if (u->written == atomic_load(&u->synced) && !u->names_unsynced) {
        return 0;
    }
    r = sync_and_save(u, e);
    if (r != 0) {
        return u->unsettled ? r : upload_roll_back_sync(u, r, e);
    }
    ensure(u->written >= atomic_load(&u->synced));
    atomic_store(&u->synced, u->written);
    return 0;
}

/* ---- writing ---- */

bool upload_write_back_failed(int r)
{
    /* These say that the kernel, or this file system, does not do such things. */
    return r < 0 && r != -ENOSYS && r != -EINVAL && r != -EOPNOTSUPP && r != -ESPIPE && r != -EBADF;
}

static int write_back(struct upload *u, uint64_t to)
{
    if (to <= u->back_to) {
        return 0;
    }
    int r = os_write_back(u->fd, u->back_to, to - u->back_to, false);
    u->back_to = to;
    while (r == 0 && u->back_to - u->waited_to > TRAIL_BYTES) {
        uint64_t left = u->back_to - u->waited_to - TRAIL_BYTES;
        uint64_t n = left < UPLOAD_PIECE_BYTES ? left : UPLOAD_PIECE_BYTES;
        r = os_write_back(u->fd, u->waited_to, n, true);
        if (r == 0) {
            (void)os_drop_range(u->fd, u->waited_to, n);
        }
        u->waited_to += n;
    }
    return upload_write_back_failed(r) ? r : 0;
}

static void reserve(struct upload *u, uint64_t to)
{
    if (u->info.size <= LARGE_BYTES || to <= u->reserved_to) {
        return;
    }
    uint64_t from = u->reserved_to > u->written ? u->reserved_to : u->written;
    uint64_t left = u->info.size - from;
    /* No more than has come: many that begin and go no further must not fill the disk. */
    uint64_t ahead = to < AHEAD_BYTES_MIN ? AHEAD_BYTES_MIN : to;
    ahead = ahead < UPLOAD_AHEAD_BYTES ? ahead : UPLOAD_AHEAD_BYTES;
    uint64_t n = left < ahead ? left : ahead;
    /* A hint; the write itself finds out about space. */
    if (os_reserve(u->fd, from, n) == 0) {
        u->blocks_to = from + n;
    }
    u->reserved_to = from + n;
}

/* One piece: written, then hashed as far as it is in the file. */
static int write_piece(struct upload *u, const char *p, size_t n, size_t *done, struct err *e)
{
    reserve(u, u->written + n);
    int r = os_pwrite_all(u->fd, p, n, u->written, done);
    blake3_add(&u->hash, p, *done);
    u->written += *done;
    if (r < 0) {
        return err_os(e, r, "write", "an upload");
    }
    if (u->info.size > LARGE_BYTES) {
        r = write_back(u, u->written - u->written % UPLOAD_PIECE_BYTES);
        if (r < 0) {
            /* Pages were lost, whatever the reason: not like a write that finds no space. */
            (void)err_os(e, r, "write back", "an upload");
            return e->code = ERR_IO;
        }
    }
    return 0;
}

/* What may be unsynced, and then unread: less of a file that is read back, so that little is left
 * for its last answer. */
static uint64_t sync_step(const struct upload *u)
{
    return u->reread ? UPLOAD_SYNC_BYTES / 4 : UPLOAD_SYNC_BYTES;
}

int upload_write(struct upload *u, const void *p, size_t n, size_t *written, struct err *e)
{
    const char *bytes = p;
    struct err ignored;
    size_t total = 0;
    e = e != NULL ? e : &ignored;
    ensure(u->written <= u->info.size);
    ensure(n <= u->info.size - u->written);
    int r = refuse_more(u, e);
    while (r == 0 && total < n) {
        size_t room = UPLOAD_PIECE_BYTES - (size_t)(u->written % UPLOAD_PIECE_BYTES);
        size_t done = 0;
        r = write_piece(u, bytes + total, n - total < room ? n - total : room, &done, e);
        total += done;
        if (r != 0 && r != ERR_NO_SPACE) {
            r = upload_roll_back_sync(u, r, e);
        } else if (r == 0 && !u->held && u->written < u->info.size &&
                   u->written - u->saved >= sync_step(u)) {
            r = upload_sync(u, e);
            if (r == 0 && u->reread) {
                trail_keep_near(u->us->trails, u->info.id, sync_step(u));
            }
        }
    }
    if (written != NULL) {
        *written = total;
    }
    return r;
}
