/* Acceptance: from "every byte is written" to a receipt that nothing can take away.
 *
 * Order (spec/artifacts.md section 5):
 *   1  an existing receipt is given as it is
 *   2  the digest: the one that was made while the bytes came in, where a single request wrote them
 *      in one go; otherwise the bytes are synced, their cache is dropped, and what the trail
 *      (upload_trail.c) has not read yet is read back from the device: both digests must be the
 *      declared one (where none is declared, the same)
 *   3  the bytes, ID.info, the receipt's temporary file and uploads/ are synced, in no order and at
 *      the same time (upload_sync.c). All were written, and their write-back awaited, before the
 *      first sync: one commit of the file system's journal, or one flush, serves them all
 *   4  the temporary file is renamed to ID.json: the commit
 *   5  receipts/ is synced; now it may be told
 *
 * Power failure: before 4 has reached the disk the upload is complete and unaccepted, and the next
 * open proves it from the device; after that there is the receipt, and its bytes are durable.
 *
 * A digest that is not the declared one: ID.gone is durable first, then the bytes are freed; many
 * of them later, so that the client need not wait for it. If ID.gone cannot be written the bytes
 * stay; the next process finds them wrong again.
 *
 * A failure of 3 or 4 takes the bytes behind the saved offset back: an upload without a receipt
 * must not look complete to a client, which would have nothing left to send and no way to ask. A
 * failure of 5 leaves them: the device may hold the receipt.
 *
 * Answers: all of these. Aborts: an upload with bytes missing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

static void digest_hex(const struct blake3 *hash, char out[BLAKE3_HEX_LEN + 1])
{
    uint8_t digest[BLAKE3_LEN];
    blake3_end(hash, digest);
    hex_encode(out, digest, sizeof digest);
    out[BLAKE3_HEX_LEN] = '\0';
}

/* ---- refusing ---- */

/* The bytes are of no use to anybody; ID.gone says why. What fails here is the cleaner's to do. */
static void free_bytes(struct upload *u)
{
    static const char *const suffixes[] = {"", ".state"};
    char path[UPLOADS_PATH_MAX];
    struct err e;
    int r = upload_truncate_slowly(u->fd, &u->us->stopping, &e);
    if (r != 0) {
        log_line(LOG_WARN, "uploads", "%.8s: its bytes could not be freed: %s", u->info.id, e.text);
    }
    if (r == ERR_NOT_READY) {
        return;
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        upload_path(u->us, path, u->info.id, suffixes[i]);
        (void)os_unlink(path);
    }
}

static int refuse(struct upload *u, const char *found, const char *how, struct err *e)
{
    char reason[UPLOAD_REASON_MAX];
    struct err why;
    (void)snprintf(reason, sizeof reason, "declared %s%s, %s blake3:%s",
                   u->info.checksum[0] != '\0' ? "blake3:" : "nothing", u->info.checksum, how,
                   found);
    int r = upload_gone_commit(u, reason, &why);
    if (r == 0 && u->info.size <= UPLOAD_STEP_BYTES) {
        free_bytes(u);
    } else if (r != 0) {
        log_line(LOG_ERROR, "uploads", "%.8s: the refusal could not be written down: %s",
                 u->info.id, why.text);
    }
    return err_set(e, ERR_CHECKSUM_MISMATCH, "%.300s", reason);
}

/* ---- proving ---- */

/* The trail has read most of it, where there is one; what it read was synced and stays. */
static int read_back(struct upload *u, _Atomic uint64_t *progress, struct blake3 *hash,
                     struct err *e)
{
    uint64_t from = trail_take(u->us->trails, u->info.id, u->saved, hash);
    int r = os_fdatasync(u->fd);
    if (r == 0) {
        r = os_drop_cache(u->fd);
    }
    if (r < 0) {
        return err_os(e, r, "sync", "an upload");
    }
    return upload_hash_range(u->fd, from, u->info.size, hash, progress, &u->us->stopping, e);
}

/* 0: the digest is the declared one, or none was declared. */
static int prove(struct upload *u, _Atomic uint64_t *progress, struct err *e)
{
    char received[BLAKE3_HEX_LEN + 1];
    char stored[BLAKE3_HEX_LEN + 1];
    struct blake3 hash;
    digest_hex(&u->hash, received);
    if (!u->complete_proven || u->digest[0] == '\0') {
        memcpy(u->digest, received, sizeof received);
    }
    if (u->complete_proven) {
        return 0;
    }
    if (u->reread) {
        int r = read_back(u, progress, &hash, e);
        if (r != 0) {
            return r;
        }
        digest_hex(&hash, stored);
        if (strcmp(stored, received) != 0) {
            log_line(LOG_ERROR, "uploads", "%.8s: the disk gave back other bytes than it was given",
                     u->info.id);
            return refuse(u, stored, "stored", e);
        }
    }
    bool right = u->info.checksum[0] == '\0' || strcmp(received, u->info.checksum) == 0;
    return right ? 0 : refuse(u, received, "received", e);
}

/* ---- the receipt ---- */

/* What an acceptance makes durable. */
struct parts {
    int bytes, info, receipt; /* descriptors */
};

/* The file system converts a block's entry when its write has ended. All writes are begun, then all
 * awaited, so that the one commit which the first sync brings about covers every conversion, and
 * the others find nothing to do. An error of the writing is reported once, here or by a sync. */
static int write_all(struct upload *u, const struct parts *p)
{
    uint64_t from = u->waited_to;
    const int small[] = {p->info, p->receipt};
    int r = os_write_back(p->bytes, from, u->info.size - from, false);
    for (size_t i = 0; i < 2 && r == 0; i++) {
        r = os_write_back(small[i], 0, UPLOAD_INFO_MAX, false);
    }
    for (size_t i = 0; i < 2 && r == 0; i++) {
        r = os_write_back(small[i], 0, UPLOAD_INFO_MAX, true);
    }
    if (r == 0) {
        r = os_write_back(p->bytes, from, u->info.size - from, true);
    }
    return upload_write_back_failed(r) ? r : 0;
}

static int sync_parts(struct upload *u, const struct parts *p, struct err *e)
{
    struct os_stat st;
    struct sync_job jobs[] = {
        {.fd = p->bytes}, {.fd = p->info}, {.fd = p->receipt}, {.dir = u->us->uploads}};
    int r = write_all(u, p);
    if (r == 0) {
        r = sync_all(u->us->syncers, jobs, sizeof jobs / sizeof *jobs);
    }
    if (r == 0) {
        r = os_fstat(p->bytes, &st);
    }
    if (r < 0) {
        return err_os(e, r, "sync", "an upload");
    }
    return st.size == u->info.size
               ? 0
               : err_set_at(e, ERR_IO, st.size, "the upload's file is not as long as declared");
}

/* The second in the receipt is that of the rename: where the syncs took it into the next one, the
 * receipt is written once more. */
static int refresh(struct upload *u, struct receipt *receipt, int fd, struct err *e)
{
    if ((int64_t)(os_clock_real_ms() / 1000) == receipt->accepted_at) {
        return 0;
    }
    receipt_make(u, receipt);
    int r = os_ftruncate(fd, 0);
    if (r == 0) {
        r = os_pwrite_all(fd, receipt->json, receipt->json_len, 0, NULL);
    }
    if (r == 0) {
        r = os_fdatasync(fd);
    }
    return r < 0 ? err_os(e, r, "write", "a receipt") : 0;
}

static int sync_for_receipt(struct upload *u, struct receipt *receipt, int fd, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct parts p = {.bytes = u->fd, .receipt = fd};
    upload_path(u->us, path, u->info.id, ".info");
    p.info = os_open(path, O_RDONLY, 0);
    if (p.info < 0) {
        return err_os(e, p.info, "open", path);
    }
    int r = sync_parts(u, &p, e);
    (void)os_close(p.info); /* nothing was written through it */
    if (r == 0) {
        u->names_unsynced = u->state_fd < 0; /* should it go on: the first sync makes ID.state */
        r = refresh(u, receipt, fd, e);
    }
    return r;
}

static int make_receipt(struct upload *u, struct receipt *out, struct err *e)
{
    char temp[UPLOADS_PATH_MAX];
    receipt_make(u, out);
    int fd = receipt_temp_open(u, out, e);
    if (fd < 0) {
        return fd;
    }
    int r = sync_for_receipt(u, out, fd, e);
    int closed = os_close(fd);
    if (r == 0 && closed < 0) {
        r = err_os(e, closed, "close", "a receipt");
    }
    if (r != 0) {
        receipt_temp_path(u->us, temp, u->info.id);
        (void)os_unlink(temp);
        return r;
    }
    return receipt_commit(u, e);
}

int upload_accept(struct upload *u, struct receipt *out, _Atomic uint64_t *progress, struct err *e)
{
    struct err ignored;
    e = e != NULL ? e : &ignored;
    ensure(u->written == u->info.size);
    if (u->gone) {
        return upload_gone_error(u, e);
    }
    if (u->unsettled) {
        return err_set(e, ERR_IO, "it is not known how far the upload is saved");
    }
    int r = receipt_load(u->us, slice_cstr(u->info.id), out, e);
    if (r != ERR_NOT_FOUND) {
        return r;
    }
    r = prove(u, progress, e);
    if (r == 0) {
        r = make_receipt(u, out, e);
    }
    if (r == 0) {
        trail_forget(u->us->trails, u->info.id);
        atomic_store(&u->synced, u->info.size);
        return 0;
    }
    if (r == ERR_NOT_READY) {
        return r; /* nothing was found wrong: the next open proves what is there */
    }
    if (u->receipt_doubtful) {
        atomic_store(&u->synced, u->saved); /* told; nothing is cut */
        return r;
    }
    return u->gone ? r : upload_roll_back_sync(u, r, e);
}
