/* Opening an upload to write on: what a crash left is settled first.
 *
 * What is believed is the saved offset (ID.state) and nothing behind it. Bytes behind it are cut,
 * and the cut is synced, before any are added. One exception: a file as long as declared, whose
 * BLAKE3 is the declared one when it is read from the device, after a sync and with its cache
 * dropped; it was complete and only its acceptance is missing.
 *
 * A file shorter than its saved offset has lost bytes that were promised: nothing can mend that.
 * The upload is gone, which is logged and told.
 *
 * A lost state: the bytes are read from the device as they are, and a new state is made that says
 * so. Their digest is judged at the end, as always. Where all of them are there, the saved offset
 * stays one byte below: that of a complete upload is never told.
 *
 * An upload without a declared digest can prove nothing: of it only the saved offset is believed,
 * and without a state it begins anew.
 *
 * Power failure, and a stop of the process while a whole file is read: every step can be taken
 * again. Answers: every failure. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

static_assert(sizeof(struct upload) % _Alignof(struct upload) == 0, "aligned_alloc takes it");

static struct upload *upload_alloc(struct uploads *us, const char *id)
{
    struct upload *u = aligned_alloc(_Alignof(struct upload), sizeof *u);
    if (u == NULL) {
        return NULL;
    }
    memset(u, 0, sizeof *u);
    u->us = us;
    u->fd = -1;
    u->state_fd = -1;
    atomic_init(&u->synced, 0);
    blake3_start(&u->hash);
    u->hash_saved = u->hash;
    u->gone_mark = upload_mark_new(id);
    u->receipt_mark = upload_mark_new(id);
    if (u->gone_mark == NULL || u->receipt_mark == NULL) {
        upload_close(u);
        return NULL;
    }
    return u;
}

void upload_close(struct upload *u)
{
    if (u == NULL) {
        return;
    }
    if (u->fd >= 0) {
        if (!u->gone && u->saved > 0 && atomic_load(&u->synced) < u->info.size) {
            /* Whoever goes on makes it one of several requests. */
            trail_follow(u->us->trails, u->info.id, u->saved);
        }
        if (u->reserved_to > u->written && !u->gone) {
            /* Blocks that were reserved ahead go back: an upload that nobody continues must not
             * hold them. Its length stays. */
            (void)os_ftruncate(u->fd, u->written);
        }
        (void)os_close(u->fd); /* what must be durable was synced */
    }
    if (u->state_fd >= 0) {
        (void)os_close(u->state_fd);
    }
    free(u->gone_mark);
    free(u->receipt_mark);
    free(u);
}

static int open_bytes(struct upload *u, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(u->us, path, u->info.id, "");
    u->fd = os_open(path, O_RDWR, 0);
    return u->fd < 0 ? err_os(e, u->fd, "open", path) : 0;
}

int upload_open_new(struct uploads *us, const struct upload_info *info, struct upload **out,
                    struct err *e)
{
    *out = NULL;
    ensure(upload_id_ok(slice_cstr(info->id)));
    struct upload *u = upload_alloc(us, info->id);
    if (u == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an upload");
    }
    u->info = *info;
    u->names_unsynced = true;
    int r = open_bytes(u, e);
    if (r != 0) {
        upload_close(u);
        return r;
    }
    *out = u;
    return 0;
}

/* ---- settling ---- */

static void stand_at(struct upload *u, uint64_t offset, const struct blake3 *hash)
{
    u->written = offset;
    u->hash = *hash;
    u->reserved_to = offset;
    u->blocks_to = offset;
    u->back_to = offset;
    u->waited_to = offset;
    atomic_store(&u->synced, offset);
}

static void save_point(struct upload *u, uint64_t offset, const struct blake3 *hash)
{
    ensure(offset < u->info.size);
    u->saved = offset;
    u->hash_saved = *hash;
}

/* From here on the file's cache is what the device holds. */
static int distrust_cache(struct upload *u, struct err *e)
{
    int r = os_fsync(u->fd);
    if (r == 0) {
        r = os_drop_cache(u->fd);
    }
    return r < 0 ? err_os(e, r, "sync", "an upload") : 0;
}

static int cut_sync(struct upload *u, uint64_t size, struct err *e)
{
    int r = upload_cut_slowly(u->fd, size, &u->us->stopping, e);
    if (r != 0) {
        return r;
    }
    r = os_fsync(u->fd);
    return r < 0 ? err_os(e, r, "truncate", "an upload") : 0;
}

static bool is_declared(const struct upload *u, const struct blake3 *hash)
{
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";
    blake3_end(hash, digest);
    hex_encode(hex, digest, sizeof digest);
    return memcmp(hex, u->info.checksum, BLAKE3_HEX_LEN) == 0;
}

/* Reads all of a complete file; *proven when it is the declared one. */
static int prove(struct upload *u, bool *proven, struct err *e)
{
    struct blake3 hash;
    blake3_start(&hash);
    int r = distrust_cache(u, e);
    if (r == 0) {
        r = upload_hash_range(u->fd, 0, u->info.size, &hash, NULL, &u->us->stopping, e);
    }
    *proven = r == 0 && is_declared(u, &hash);
    if (*proven) {
        u->complete_proven = true;
        u->reread = true;
        stand_at(u, u->info.size, &hash);
    }
    return r;
}

static int promised_bytes_lost(struct upload *u, uint64_t size, struct err *e)
{
    log_line(LOG_ERROR, "uploads", "%.8s: %llu bytes were promised, %llu are there", u->info.id,
             (unsigned long long)u->saved, (unsigned long long)size);
    upload_make_gone(u, "bytes of the upload were lost on the server's disk");
    return err_set_at(e, ERR_CORRUPT, size, "the upload is shorter than its synced offset");
}

/* The saved state is not to be had: the bytes say how far they go. */
static int read_again(struct upload *u, uint64_t size, struct err *e)
{
    struct blake3 hash;
    bool complete = size >= u->info.size;
    uint64_t save_at = complete ? u->info.size - 1 : size;
    blake3_start(&hash);
    int r = size > u->info.size ? cut_sync(u, u->info.size, e) : 0;
    if (r == 0) {
        r = distrust_cache(u, e);
    }
    if (r == 0) {
        r = upload_hash_range(u->fd, 0, save_at, &hash, NULL, &u->us->stopping, e);
    }
    if (r == 0) {
        save_point(u, save_at, &hash);
        u->reread = save_at > 0;
        r = upload_state_commit_new(u, save_at, &hash, e);
    }
    if (r == 0 && complete) {
        r = upload_hash_range(u->fd, save_at, u->info.size, &hash, NULL, &u->us->stopping, e);
        u->reread = true;
        u->complete_proven = r == 0 && is_declared(u, &hash);
    }
    if (r == 0) {
        stand_at(u, complete ? u->info.size : size, &hash);
    }
    return r;
}

/* The same, and no digest was declared that would judge the bytes at the end: none can be believed.
 */
static int begin_again(struct upload *u, uint64_t size, struct err *e)
{
    if (size > 0) {
        log_line(LOG_WARN, "uploads", "%.8s begins anew: its state is lost, and no digest declared",
                 u->info.id);
    }
    u->reread = size > 0;
    return size > 0 ? cut_sync(u, 0, e) : 0;
}

/* The hash of the bytes below the saved offset. */
static int take_hash(struct upload *u, const struct upload_saved *saved, struct err *e)
{
    struct blake3 hash;
    if (saved->offset == 0 || saved->hash_usable) {
        if (saved->offset > 0) {
            save_point(u, saved->offset, &saved->hash);
        }
        return 0;
    }
    /* Another library's state: the offset holds, its hash is made anew. */
    blake3_start(&hash);
    int r = upload_hash_range(u->fd, 0, saved->offset, &hash, NULL, &u->us->stopping, e);
    if (r == 0) {
        save_point(u, saved->offset, &hash);
    }
    return r;
}

/* ID.info without ID: of a creation that was told to nobody, or of bytes that somebody took. */
static int bytes_missing(struct upload *u, const struct upload_saved *saved, struct err *e)
{
    u->saved = saved->offset;
    if (saved->kind == UPLOAD_SAVED_SLOT) {
        return promised_bytes_lost(u, 0, e);
    }
    return err_set(e, ERR_NOT_FOUND, "there is no such upload");
}

static int settle(struct upload *u, struct err *e)
{
    struct upload_saved saved;
    struct os_stat st;
    bool proven = false;
    int r = upload_state_load(u, &saved, e);
    if (r != 0) {
        return r;
    }
    if (u->fd < 0) {
        return bytes_missing(u, &saved, e);
    }
    r = os_fstat(u->fd, &st);
    if (r < 0) {
        return err_os(e, r, "stat", "an upload");
    }
    bool declared = u->info.checksum[0] != '\0';
    if (saved.kind == UPLOAD_SAVED_NONE || saved.kind == UPLOAD_SAVED_LOST) {
        return declared ? read_again(u, st.size, e) : begin_again(u, st.size, e);
    }
    u->saved = saved.offset;
    u->reread = saved.several || saved.offset > 0 || st.size > 0;
    if (st.size < saved.offset) {
        return promised_bytes_lost(u, st.size, e);
    }
    r = take_hash(u, &saved, e);
    if (r == 0 && declared && st.size == u->info.size) {
        r = prove(u, &proven, e);
    }
    if (r != 0 || proven) {
        return r;
    }
    stand_at(u, u->saved, &u->hash_saved);
    return st.size > saved.offset ? cut_sync(u, saved.offset, e) : 0;
}

/* 0 and u stands at its end when there is a receipt; ERR_NOT_FOUND when there is none. */
static int take_accepted(struct upload *u, struct err *e)
{
    struct receipt receipt;
    int r = receipt_load(u->us, slice_cstr(u->info.id), &receipt, e);
    if (r == 0) {
        u->complete_proven = true;
        memcpy(u->digest, receipt.checksum, sizeof u->digest);
        stand_at(u, u->info.size, &u->hash);
    }
    return r;
}

/* The device may hold a receipt that this process could not sync: no byte may go. Where no digest
 * was declared, that receipt's is what the bytes are judged by; or its name was taken back, which
 * must be durable before anything is cut. */
static int take_doubtful(struct upload *u, struct err *e)
{
    struct receipt receipt;
    if (u->info.checksum[0] != '\0' ||
        !upload_mark_has(u->us, u->info.id, UPLOAD_MARK_RECEIPT, NULL)) {
        return 0;
    }
    int r = receipt_peek(u->us, u->info.id, &receipt, e);
    if (r == 0) {
        memcpy(u->info.checksum, receipt.checksum, sizeof u->info.checksum);
    }
    if (r != ERR_NOT_FOUND) {
        return r;
    }
    r = os_sync_dir(u->us->receipts);
    if (r < 0) {
        return err_os(e, r, "sync directory", u->us->receipts);
    }
    upload_mark_remove(u->us, u->info.id, UPLOAD_MARK_RECEIPT);
    return 0;
}

static int open_known(struct upload *u, struct err *e)
{
    int r = take_accepted(u, e);
    if (r != ERR_NOT_FOUND) {
        return r;
    }
    r = upload_gone_answer(u->us, u->info.id, e);
    if (r == 0) {
        r = take_doubtful(u, e);
    }
    if (r != 0) {
        return r;
    }
    /* A process that was killed may have left names that only the cache holds. */
    u->names_unsynced = true;
    r = open_bytes(u, e);
    if (r != 0 && e->os_errno != ENOENT) {
        return r;
    }
    r = settle(u, e);
    if (r == 0) {
        trail_follow(u->us->trails, u->info.id, u->saved);
    }
    return r;
}

int upload_open(struct uploads *us, struct slice id, struct upload **out, struct err *e)
{
    struct upload_info info;
    struct err ignored;
    *out = NULL;
    e = e != NULL ? e : &ignored;
    int r = upload_load(us, id, &info, e);
    if (r != 0) {
        return r;
    }
    struct upload *u = upload_alloc(us, info.id);
    if (u == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an upload");
    }
    u->info = info;
    r = open_known(u, e);
    if (r != 0) {
        upload_close(u);
        return r;
    }
    *out = u;
    return 0;
}
