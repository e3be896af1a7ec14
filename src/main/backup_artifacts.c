/* backup: receipts, bytes, partial uploads, packages, beside whoever works on them.
 *
 * Order: delivery.sqlite, packages, receipts with what they rest on, then the uploads that had no
 * receipt (backup.c says why); proofs last: each is there before the bytes go for which it speaks,
 * so that whatever was not found has its proof in the copy. Bytes that go while they are copied are
 * left out for the same reason. An artifact may be accepted, delivered and purged between two of
 * these walks, which then see nothing of it but its proof: its receipt is taken with that. Of a
 * partial upload the saved state is copied first and then as many bytes as that copy says: these
 * were synced before it was saved, and stay. What is behind them was promised to nobody. An upload
 * that is accepted meanwhile is taken with its receipt; one that is removed meanwhile is left out;
 * one that contradicts itself is looked at again.
 *
 * Without a saved state (somebody deleted it) all bytes are taken, as the server would read them
 * again. Of a refused upload only the refusal is taken. Temporary names are not: they are of steps
 * that had not ended, and so is a manifest without its plan. Answers: all errors. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "main/backup.h"
#include "os/os.h"
#include "store/artifact/proof.h"
#include "store/artifact/upload.h"

#define LOOKS_MAX 10
#define NAME_MAX_ 128

/* The parts of an upload, in the order in which they are tried and dropped. */
enum part { PART_INFO, PART_STATE, PART_BYTES, PART_GONE, PART_COUNT };
static const char *const part_tail[PART_COUNT] = {".info", ".state", "", ".gone"};

struct walk {
    struct backup *b;
    struct uploads *copied; /* the tree's folders */
    const char *folder;
    int (*see)(struct walk *w, const char *name);
    int code;
    struct err *e;
};

static int see_name(void *ctx, const char *name)
{
    struct walk *w = ctx;
    w->code = w->see(w, name);
    return w->code == 0 ? 0 : 1;
}

static int walk_folder(struct walk *w, const char *folder,
                       int (*see)(struct walk *w, const char *name))
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, w->b->data, folder, w->e);
    if (r != 0) {
        return r;
    }
    w->folder = folder;
    w->see = see;
    r = os_list(path, see_name, w);
    if (r == -ENOENT) {
        return 0;
    }
    return r < 0 ? err_os(w->e, r, "list", path) : r > 0 ? w->code : 0;
}

/* FOLDER/NAME TAIL, below the data directory; names are ids and other short ones. */
static void name_of(char out[NAME_MAX_ + 32], const char *folder, const char *name,
                    const char *tail)
{
    (void)snprintf(out, NAME_MAX_ + 32, "%.20s/%.*s%.10s", folder, NAME_MAX_, name, tail);
}

/* name is an id and the tail. */
static bool id_of(const char *name, const char *tail, char id[UPLOAD_ID_LEN + 1])
{
    if (strlen(name) != UPLOAD_ID_LEN + strlen(tail) || strcmp(name + UPLOAD_ID_LEN, tail) != 0 ||
        !upload_id_ok(slice_of(name, UPLOAD_ID_LEN))) {
        return false;
    }
    memcpy(id, name, UPLOAD_ID_LEN);
    id[UPLOAD_ID_LEN] = '\0';
    return true;
}

/* 1: it is there. */
static int is_there(const char *root, const char *path, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    struct os_stat st;
    int r = backup_join(full, root, path, e);
    if (r != 0) {
        return r;
    }
    r = os_stat(full, &st);
    return r == 0 ? 1 : r == -ENOENT ? 0 : err_os(e, r, "stat", full);
}

/* ---- packages ---- */

static int take_sidecar(struct walk *w, struct slice package, const char *tail)
{
    char path[NAME_MAX_ + 64];
    (void)snprintf(path, sizeof path, "%s/%.*s%s", w->folder, (int)package.len, package.ptr, tail);
    int r = backup_take(w->b, path, BACKUP_SMALL, BACKUP_ALL, w->e);
    return r == ERR_REFUSED || r == ERR_NOT_FOUND ? 0 : r;
}

/* How long it is without the tail; 0: it does not have it. */
static size_t before_tail(struct slice name, struct slice tail)
{
    bool has = name.len > tail.len && slice_eq(slice_from(name, name.len - tail.len), tail);
    return has ? name.len - tail.len : 0;
}

/* A purge renames bytes before it cuts them: a copy of what has no name any more may be short. */
static int take_bytes(struct walk *w, const char *path)
{
    struct backup_entry entry;
    bool kept;
    int r = backup_copy(w->b, path, BACKUP_FIXED, BACKUP_ALL, &entry, &kept, w->e);
    if (r != 0 && r != ERR_NOT_READY) {
        return r == ERR_NOT_FOUND ? 0 : r;
    }
    int named = is_there(w->b->data, path, w->e);
    if (named == 1 && r == 0) {
        backup_put(w->b, &entry, kept);
        return 0;
    }
    backup_drop(w->b, path);
    return named == 1 ? r : named;
}

/* Of a merged package; an identity package has none. */
static int take_payload(struct walk *w, struct slice package)
{
    char path[NAME_MAX_ + 64];
    (void)snprintf(path, sizeof path, "%s/%.*s" DELIVERY_PAYLOAD_TAIL, w->folder, (int)package.len,
                   package.ptr);
    return take_bytes(w, path);
}

/* Manifest and payload come with their plan, which gets its name after them: one that has none yet
 * is of a step that has not ended, and a listing beside a build may show it and not the other. */
static int see_package(struct walk *w, const char *name)
{
    struct slice package = slice_cstr(name);
    if (name[0] == '.' || package.len > NAME_MAX_ ||
        before_tail(package, SLICE(DELIVERY_MANIFEST_TAIL)) > 0 ||
        before_tail(package, SLICE(DELIVERY_PAYLOAD_TAIL)) > 0) {
        return 0;
    }
    size_t len = before_tail(package, SLICE(DELIVERY_PLAN_TAIL));
    if (len == 0) {
        return take_sidecar(w, package, "");
    }
    package.len = len;
    int r = take_sidecar(w, package, DELIVERY_MANIFEST_TAIL);
    if (r == 0) {
        r = take_sidecar(w, package, DELIVERY_PLAN_TAIL);
    }
    return r == 0 ? take_payload(w, package) : r;
}

/* ---- what is accepted ---- */

/* The receipt, then what it rests on. Bytes that are not here may have been delivered: verify
 * knows. */
static int take_accepted(struct walk *w, const char *id)
{
    char path[NAME_MAX_ + 32];
    name_of(path, "receipts", id, ".json");
    int r = backup_take(w->b, path, BACKUP_SMALL, BACKUP_ALL, w->e);
    if (r == 0) {
        name_of(path, "uploads", id, ".info");
        r = backup_take(w->b, path, BACKUP_SMALL, BACKUP_ALL, w->e);
        r = r == ERR_NOT_FOUND ? 0 : r;
    }
    name_of(path, "uploads", id, "");
    return r == 0 ? take_bytes(w, path) : r;
}

static int see_receipt(struct walk *w, const char *name)
{
    char id[UPLOAD_ID_LEN + 1];
    return id_of(name, ".json", id) ? take_accepted(w, id) : 0;
}

/* ---- what is not ---- */

struct parts {
    bool have[PART_COUNT];
    struct backup_entry entry[PART_COUNT];
};

static int copy_part(struct walk *w, const char *id, enum part part, uint64_t limit,
                     struct parts *p)
{
    char path[NAME_MAX_ + 32];
    bool kept;
    name_of(path, "uploads", id, part_tail[part]);
    int r = backup_copy(w->b, path, part == PART_INFO ? BACKUP_SMALL : BACKUP_FRESH, limit,
                        &p->entry[part], &kept, w->e);
    p->have[part] = r == 0;
    return r;
}

static void drop_parts(struct walk *w, const char *id)
{
    char path[NAME_MAX_ + 32];
    for (int i = 0; i < PART_COUNT; i++) {
        name_of(path, "uploads", id, part_tail[i]);
        backup_drop(w->b, path);
    }
}

/* How many bytes belong to the state that was copied. */
static int bytes_of_state(struct walk *w, const char *id, const struct parts *p, uint64_t *limit)
{
    *limit = BACKUP_ALL;
    if (!p->have[PART_STATE]) {
        return 0;
    }
    int r = upload_synced_offset(w->copied, slice_of(id, UPLOAD_ID_LEN), limit, w->e);
    if (r == ERR_CORRUPT) {
        *limit = BACKUP_ALL; /* verify judges it */
        return 0;
    }
    return r;
}

/* One look. 0: *p is whole. ERR_NOT_FOUND: it is not there any more. ERR_NOT_READY: it has changed
 * meanwhile. */
static int copy_partial(struct walk *w, const char *id, bool last_look, struct parts *p)
{
    uint64_t limit;
    memset(p, 0, sizeof *p);
    int r = copy_part(w, id, PART_INFO, BACKUP_ALL, p);
    if (r != 0) {
        return r;
    }
    r = copy_part(w, id, PART_GONE, BACKUP_ALL, p);
    if (r != ERR_NOT_FOUND) {
        return r; /* refused: its bytes are going */
    }
    r = copy_part(w, id, PART_STATE, BACKUP_ALL, p);
    if (r != 0 && r != ERR_NOT_FOUND) {
        return r;
    }
    r = bytes_of_state(w, id, p, &limit);
    if (r == 0) {
        r = copy_part(w, id, PART_BYTES, limit, p);
    }
    if (r == ERR_NOT_FOUND) {
        return last_look ? 0 : ERR_NOT_READY;
    }
    return r;
}

static int take_partial(struct walk *w, const char *id)
{
    char receipt[NAME_MAX_ + 32];
    struct parts p;
    name_of(receipt, "receipts", id, ".json");
    for (int look = 1; look <= LOOKS_MAX; look++) {
        int r = is_there(w->b->data, receipt, w->e);
        if (r != 0) {
            return r == 1 ? take_accepted(w, id) : r;
        }
        r = copy_partial(w, id, look == LOOKS_MAX, &p);
        if (r == 0) {
            for (int i = 0; i < PART_COUNT; i++) {
                if (p.have[i]) {
                    backup_put(w->b, &p.entry[i], false);
                }
            }
            return 0;
        }
        drop_parts(w, id);
        if (r == ERR_NOT_FOUND) {
            return 0;
        }
        if (r != ERR_NOT_READY) {
            return r;
        }
    }
    return err_set(w->e, ERR_STORE_BUSY, "upload %.8s... changes faster than it can be copied", id);
}

static int see_upload(struct walk *w, const char *name)
{
    char id[UPLOAD_ID_LEN + 1];
    char receipt[NAME_MAX_ + 32];
    if (!id_of(name, ".info", id)) {
        return 0;
    }
    name_of(receipt, "receipts", id, ".json");
    int r = is_there(w->b->tree, receipt, w->e);
    return r == 0 ? take_partial(w, id) : r == 1 ? 0 : r;
}

/* ---- proofs ---- */

/* What the copy of a proof speaks for must be in the copy. A proof that cannot be believed is for
 * verify to judge. */
static int see_proof(struct walk *w, const char *name)
{
    static struct proof proof; /* large; a backup has one thread */
    char id[DELIVERY_PACKAGE_LEN + 1];
    char receipt[NAME_MAX_ + 32];
    int r = see_package(w, name);
    if (r != 0 || !proof_name(name, id)) {
        return r;
    }
    r = proof_read(w->b->tree, id, &proof, w->e);
    if (r != 0) {
        return r == ERR_CORRUPT || r == ERR_NOT_FOUND ? 0 : r;
    }
    for (unsigned i = 0; r >= 0 && i < proof_count(&proof); i++) {
        const char *object_id = proof_member(&proof, i)->object_id;
        name_of(receipt, "receipts", object_id, ".json");
        r = is_there(w->b->tree, receipt, w->e);
        if (r == 0) {
            r = take_accepted(w, object_id);
            r = r == ERR_NOT_FOUND ? 0 : r;
        }
    }
    proof_free(&proof);
    return r < 0 ? r : 0;
}

/* ---- all ---- */

static int make_folders(struct backup *b, bool *any, struct err *e)
{
    static const char *const folders[] = {"packages", "proofs", "receipts", "uploads"};
    int r = 0;
    *any = true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && r == 0; i++) {
        r = backup_directory(b, folders[i], e);
        if (r == ERR_NOT_FOUND) {
            *any = *any && i < 2; /* these come with the first delivery */
            r = 0;
        }
    }
    return r;
}

static int walk_all(struct walk *w)
{
    int r = walk_folder(w, "packages", see_package);
    if (r == 0) {
        r = walk_folder(w, "receipts", see_receipt);
    }
    if (r == 0) {
        r = walk_folder(w, "uploads", see_upload);
    }
    return r == 0 ? walk_folder(w, "proofs", see_proof) : r;
}

int backup_artifacts(struct backup *b, struct err *e)
{
    struct walk w = {.b = b, .e = e};
    bool any;
    int r = backup_database(b, DELIVERY_FILE, e);
    if (r == 0) {
        r = make_folders(b, &any, e);
    }
    if (r != 0 || !any) {
        return r;
    }
    const struct uploads_options folders = {.data = b->tree, .issuer = ""};
    r = uploads_open(&folders, &w.copied, e);
    if (r == 0) {
        r = walk_all(&w);
    }
    uploads_close(w.copied);
    return r;
}
