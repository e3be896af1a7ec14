/* The files of uploads/ and receipts/.
 *
 * Receipts come first and are what matters: each is read, then the bytes it answers for, in pieces
 * of a mebibyte, from the device (the cache is given up before and behind). A receipt in the moment
 * between its rename and its sync may be taken back by its owner, so a violation is told only while
 * the receipt is still there.
 *
 * Of an upload that is not accepted the saved state is read first and the file's length after it:
 * its owner saves a state only for what is in the file. Where they contradict they are looked at
 * again, because a rewritten state and a cut file are two steps; what is being removed has been
 * marked gone first.
 *
 * Power failure: nothing is written. Answers: names or files that cannot be listed or read at all;
 * what a file holds is told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "os/os.h"
#include "store/artifact/purge.h"
#include "store/artifact/verify_parts.h"

#define LOOKS 3 /* at a partial upload that contradicts itself */

/* ---- receipts ---- */

static int add_size(struct artifact_run *a, const char *name)
{
    char id[UPLOAD_ID_LEN + 1];
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    if (!artifact_id_of(name, ".json", id)) {
        return 0;
    }
    upload_path(&a->us, path, id, "");
    int r = artifact_stat(a, path, &st);
    a->total += r == 1 ? st.size : 0;
    return r < 0 ? r : 0;
}

/* True when the receipt is still there; then what was found about it counts. */
static bool still_there(const struct artifact_run *a, const char *id)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    receipt_path(&a->us, path, id);
    return os_stat(path, &st) != -ENOENT;
}

static void tell_bytes(struct artifact_run *a, const char *id, const char *what)
{
    if (still_there(a, id)) {
        artifact_tell(a, ARTIFACT_KIND_BYTES, "receipt %s: %s", id, what);
    }
}

/* 1: the bytes may be gone, the far side was proven to have them; 0; or an error. */
static int may_be_gone(struct artifact_run *a, const char *id)
{
    return artifact_is_verified(a, id) ? 1 : artifact_has_proof(a, id);
}

/* Bytes that were taken away while they were read are not wrong. */
static int taken_away(struct artifact_run *a, const char *id)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    upload_path(&a->us, path, id, "");
    int r = artifact_stat(a, path, &st);
    return r == 0 ? may_be_gone(a, id) : r < 0 ? r : 0;
}

static int tell_open_bytes(struct artifact_run *a, const char *id, const char *what)
{
    int r = taken_away(a, id);
    if (r == 0) {
        tell_bytes(a, id, what);
    }
    return r < 0 ? r : 0;
}

int artifact_hash(struct artifact_run *a, int fd, uint64_t size, char hex[BLAKE3_HEX_LEN + 1],
                  struct err *e)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    int r = os_drop_cache(fd);
    if (r < 0) {
        return err_os(e, r, "give up the cache of", "an upload");
    }
    blake3_start(&h);
    r = 0;
    for (uint64_t at = 0; at < size && r == 0;) {
        uint64_t n = size - at < UPLOAD_PIECE_BYTES ? size - at : UPLOAD_PIECE_BYTES;
        r = upload_hash_range(fd, at, at + n, &h, NULL, NULL, e);
        at += n;
        a->out->bytes += r == 0 ? n : 0;
        a->hooks->progress(a->hooks->ctx, a->out->bytes, a->total);
    }
    blake3_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    hex[BLAKE3_HEX_LEN] = '\0';
    return r;
}

static int check_open_bytes(struct artifact_run *a, const struct receipt *receipt, int fd)
{
    char hex[BLAKE3_HEX_LEN + 1];
    char text[400];
    struct os_stat st;
    struct err e = {0};
    int r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(&e, r, "stat", "an upload");
    } else if (st.size != receipt->size_bytes) {
        (void)snprintf(text, sizeof text, "its file has %llu bytes, not %llu",
                       (unsigned long long)st.size, (unsigned long long)receipt->size_bytes);
        return tell_open_bytes(a, receipt->object_id, text);
    } else {
        r = artifact_hash(a, fd, st.size, hex, &e);
    }
    if (r == ERR_NO_MEMORY) {
        return err_set(a->e, r, "%s", e.text);
    }
    if (r != 0) {
        (void)snprintf(text, sizeof text, "its bytes cannot be read: %.300s", e.text);
        return tell_open_bytes(a, receipt->object_id, text);
    } else if (strcmp(hex, receipt->checksum) != 0) {
        (void)snprintf(text, sizeof text, "its bytes have the BLAKE3 %s, not %s", hex,
                       receipt->checksum);
        return tell_open_bytes(a, receipt->object_id, text);
    }
    return 0;
}

static int check_info(struct artifact_run *a, const struct receipt *receipt)
{
    struct upload_info info;
    struct err e = {0};
    int r = artifact_read_info(&a->us, receipt->object_id, &info, &e);
    if (r == ERR_NOT_FOUND || r == ERR_CORRUPT) {
        return tell_open_bytes(
            a, receipt->object_id,
            r == ERR_CORRUPT ? e.text : "its .info is missing, so it cannot be delivered");
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    if (info.size != receipt->size_bytes ||
        (info.checksum[0] != '\0' && strcmp(info.checksum, receipt->checksum) != 0)) {
        tell_bytes(a, receipt->object_id, "its .info declares other bytes");
    }
    return 0;
}

static int check_bytes(struct artifact_run *a, const struct receipt *receipt)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(&a->us, path, receipt->object_id, "");
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        int proven = may_be_gone(a, receipt->object_id);
        if (proven == 0) {
            tell_bytes(a, receipt->object_id,
                       a->delivery_unread
                           ? "its bytes are not here, and " DELIVERY_FILE " cannot be asked"
                           : "its bytes are not here, and were never verified at a destination");
        }
        return proven < 0 ? proven : 0;
    }
    if (fd < 0) {
        return err_os(a->e, fd, "open", path);
    }
    int r = check_open_bytes(a, receipt, fd);
    (void)os_close(fd); /* read only */
    return r == 0 ? check_info(a, receipt) : r;
}

static int see_receipt(struct artifact_run *a, const char *name)
{
    char id[UPLOAD_ID_LEN + 1];
    struct receipt receipt;
    struct err e = {0};
    size_t n = strlen(name);
    if (!artifact_id_of(name, ".json", id)) {
        if (name[0] != '.' && n > 5 && strcmp(name + n - 5, ".json") == 0) {
            artifact_tell(a, ARTIFACT_KIND_RECEIPT, "receipts/%.200s: its name is no object id",
                          name);
        } else {
            artifact_remnant(a, "receipts", name);
        }
        return 0;
    }
    int r = artifact_read_receipt(&a->us, id, &receipt, &e);
    if (r == ERR_NOT_FOUND) {
        return 0;
    }
    a->out->receipts++;
    if (r == ERR_CORRUPT) {
        artifact_tell(a, ARTIFACT_KIND_RECEIPT, "receipt %s: %s", id, e.text);
        return 0;
    }
    return r == 0 ? check_bytes(a, &receipt) : err_set(a->e, r, "%s", e.text);
}

int artifact_check_receipts(struct artifact_run *a)
{
    int r = artifact_list(a, a->us.receipts, add_size);
    return r == 0 ? artifact_list(a, a->us.receipts, see_receipt) : r;
}

/* ---- uploads that are not accepted ---- */

struct partial {
    bool info, gone, accepted, file;
    struct upload_info declared;
    struct upload_saved saved;
    uint64_t size;
    char wrong[200]; /* "": nothing */
};

/* A file beside the upload: 1, 0 or an error. */
static int part_there(struct artifact_run *a, const char *id, const char *suffix,
                      struct os_stat *st)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(&a->us, path, id, suffix);
    return artifact_stat(a, path, st);
}

static int receipt_there(struct artifact_run *a, const char *id)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    receipt_path(&a->us, path, id);
    return artifact_stat(a, path, &st);
}

static void judge(struct partial *p)
{
    if (p->saved.kind == UPLOAD_SAVED_LOST) {
        (void)snprintf(p->wrong, sizeof p->wrong, "neither slot of its .state can be read");
    } else if (!p->file && p->saved.offset > 0) {
        (void)snprintf(p->wrong, sizeof p->wrong, "its file is missing, and %llu bytes were synced",
                       (unsigned long long)p->saved.offset);
    } else if (p->file && p->size < p->saved.offset) {
        (void)snprintf(p->wrong, sizeof p->wrong, "its file has %llu bytes, but %llu were synced",
                       (unsigned long long)p->size, (unsigned long long)p->saved.offset);
    } else if (p->file && p->size > p->declared.size) {
        (void)snprintf(p->wrong, sizeof p->wrong,
                       "its file has %llu bytes, more than the %llu declared",
                       (unsigned long long)p->size, (unsigned long long)p->declared.size);
    }
}

/* One look, in the order that lets a writer go on meanwhile. */
static int look(struct artifact_run *a, const char *id, struct partial *p)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    struct err e = {0};
    memset(p, 0, sizeof *p);
    int r = artifact_read_info(&a->us, id, &p->declared, &e);
    if (r != 0 && r != ERR_NOT_FOUND && r != ERR_CORRUPT) {
        return err_set(a->e, r, "%s", e.text);
    }
    p->info = r == 0;
    /* A state that was saved is good of itself only with the size that .info declares. */
    upload_path(&a->us, path, id, ".state");
    r = p->info ? upload_state_peek(path, &p->declared, &p->saved, a->e) : 0;
    if (r == 0) {
        r = part_there(a, id, "", &st);
        p->file = r == 1;
        p->size = p->file ? st.size : 0;
    }
    if (r >= 0) {
        r = part_there(a, id, ".gone", &st);
        p->gone = r == 1;
    }
    if (r >= 0) {
        r = receipt_there(a, id);
        p->accepted = r == 1;
    }
    if (r >= 0 && p->info && !p->gone && !p->accepted) {
        judge(p);
    }
    return r < 0 ? r : 0;
}

/* .info is there, in whatever form. */
static int check_upload(struct artifact_run *a, const char *id, const char *name)
{
    struct partial p;
    struct os_stat st;
    int r = look(a, id, &p);
    for (int i = 1; i < LOOKS && r == 0 && p.wrong[0] != '\0'; i++) {
        r = look(a, id, &p);
    }
    if (r != 0 || p.accepted) {
        return r;
    }
    if (p.gone) {
        a->out->gone_uploads++;
        return 0;
    }
    if (p.info) {
        a->out->partial_uploads++;
        if (p.wrong[0] != '\0') {
            artifact_tell(a, ARTIFACT_KIND_UPLOAD, "upload %s: %s", id, p.wrong);
        }
        return 0;
    }
    /* A torn .info of a creation that nobody heard of; with a saved state it was heard of. */
    r = part_there(a, id, ".state", &st);
    if (r == 1 && st.size > 0) {
        artifact_tell(a, ARTIFACT_KIND_UPLOAD, "upload %s: its .info cannot be read", id);
    } else if (r >= 0) {
        r = part_there(a, id, ".info", &st); /* or it was removed while we looked */
        if (r == 1) {
            artifact_remnant(a, "uploads", name);
        }
    }
    return r < 0 ? r : 0;
}

static int see_upload(struct artifact_run *a, const char *name)
{
    static const char *const tails[] = {"", ".state", ".gone"};
    char id[UPLOAD_ID_LEN + 1];
    struct os_stat st;
    if (artifact_id_of(name, ".info", id)) {
        return check_upload(a, id, name);
    }
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (!artifact_id_of(name, tails[i], id)) {
            continue;
        }
        /* Without .info it is no upload; of a receipt that was said above. */
        int r = part_there(a, id, ".info", &st);
        if (r == 0) {
            r = receipt_there(a, id);
        }
        if (r != 0) {
            return r < 0 ? r : 0;
        }
        r = part_there(a, id, tails[i], &st);
        if (r == 1) {
            artifact_remnant(a, "uploads", name);
        }
        return r < 0 ? r : 0;
    }
    if (strcmp(name, strrchr(PURGE_FOLDER, '/') + 1) != 0) {
        artifact_remnant(a, "uploads", name);
    }
    return 0;
}

static int see_purged(struct artifact_run *a, const char *name)
{
    artifact_remnant(a, PURGE_FOLDER, name);
    return 0;
}

int artifact_check_uploads(struct artifact_run *a)
{
    char path[UPLOADS_PATH_MAX + sizeof PURGE_FOLDER];
    int r = artifact_list(a, a->us.uploads, see_upload);
    (void)snprintf(path, sizeof path, "%s/" PURGE_FOLDER, a->data);
    return r == 0 ? artifact_list(a, path, see_purged) : r;
}
