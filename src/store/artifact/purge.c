/* purge: steps, in this order; each may be repeated. uploads/ID is that of each member.
 *
 *   1  the proof is read, and fits; the receipts are there               (else nothing is done)
 *   2  uploads/ID -> uploads/.purge/ID
 *   3  uploads/ID.info, .state, .gone removed; uploads/.purge/ and uploads/ synced
 *   4  uploads/.purge/ID freed step by step and removed, the folder synced
 *   5  merged: packages/PACKAGE.warc.zst -> packages/.purge-PACKAGE.warc.zst, packages/ synced,
 *      freed step by step and removed
 *   6  packages/PACKAGE.manifest.jsonl, then .plan.json removed, packages/ synced
 *
 * Invariants: no byte goes before step 1 has found a synced proof; before step 4 the artifacts are
 * known by their receipts and the proof alone, durably, as they will be at the end, so nobody can
 * meet a file that is being cut under its own name. The members come from the proof, which holds
 * them whatever has gone.
 *
 * If power fails, or the process is killed: names are where the last synced step left them, or
 * already further; the next call goes through all steps again and finds what is left. The plan goes
 * last and with its own sync, so that a package without a plan is one that was purged, or never
 * built: the proof tells which.
 *
 * Answers: every failure. */
#include "store/artifact/purge.h"

#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/package_build.h"
#include "store/artifact/upload_internal.h"

#define PATH_BYTES 4400

static void path_of(char out[PATH_BYTES], const char *data, const char *folder, const char *name,
                    const char *tail)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s%s%s%s", data, folder, name[0] != '\0' ? "/" : "", name,
                     tail);

    ensure(n > 0);
    ensure(n < PATH_BYTES);
}

static int sync_folder(const char *data, const char *folder, struct err *e)
{
    char path[PATH_BYTES];
    int r;

    path_of(path, data, folder, "", "");
    r = os_sync_dir(path);
    return r < 0 ? err_os(e, r, "sync directory", path) : 0;
}

int purge_folder(const char *data, struct err *e)
{
    char path[PATH_BYTES];
    int r;

    path_of(path, data, PURGE_FOLDER, "", "");
    r = os_mkdir_exist_ok(path, 0750);
    if (r < 0) {
        return err_os(e, r, "make", path);
    }
    return sync_folder(data, "uploads", e);
}

/* Missing is fine. */
static int unlink_one(const char *data, const char *folder, const char *name, const char *tail,
                      struct err *e)
{
    char path[PATH_BYTES];
    int r;

    path_of(path, data, folder, name, tail);
    r = os_unlink(path);
    return r < 0 && r != -ENOENT ? err_os(e, r, "remove", path) : 0;
}

/* Step 1. *proof: to be freed, but after an error. */
static int may_go(const char *data, const struct delivery_plan *plan, struct proof *proof,
                  struct err *e)
{
    struct os_stat st;
    char path[PATH_BYTES];
    int r = proof_read(data, plan->package_id, proof, e);

    if (r == ERR_NOT_FOUND) {
        return err_set(e, ERR_REFUSED, "no proof says that the far side has the package");
    }
    if (r < 0) {
        return r;
    }
    if (proof->plan.members != plan->members ||
        strcmp(proof->plan.object_id, plan->object_id) != 0) {
        r = err_set(e, ERR_REFUSED, "the proof is of another artifact");
    }
    for (unsigned i = 0; r == 0 && i < proof_count(proof); i++) {
        path_of(path, data, "receipts", proof_member(proof, i)->object_id, ".json");
        r = os_stat(path, &st);
        if (r == -ENOENT) {
            r = err_set(e, ERR_REFUSED, "the artifact has no receipt");
        } else if (r < 0) {
            r = err_os(e, r, "stat", path);
        }
    }
    if (r < 0) {
        proof_free(proof);
    }
    return r;
}

/* Step 2. */
static int move_bytes(const char *data, const char *id, struct err *e)
{
    char from[PATH_BYTES], to[PATH_BYTES];
    int r;

    path_of(from, data, "uploads", id, "");
    path_of(to, data, PURGE_FOLDER, id, "");
    r = os_rename(from, to);
    return r < 0 && r != -ENOENT ? err_os(e, r, "move", from) : 0;
}

/* Step 3, of one. */
static int remove_parts(const char *data, const char *id, struct err *e)
{
    static const char *const tails[] = {".info", ".state", ".gone"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof tails / sizeof *tails; i++) {
        r = unlink_one(data, "uploads", id, tails[i], e);
    }
    return r;
}

/* Steps 2 and 3. */
static int hide(const char *data, const struct proof *proof, struct err *e)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < proof_count(proof); i++) {
        r = move_bytes(data, proof_member(proof, i)->object_id, e);
    }
    for (unsigned i = 0; r == 0 && i < proof_count(proof); i++) {
        r = remove_parts(data, proof_member(proof, i)->object_id, e);
    }
    if (r == 0) {
        r = sync_folder(data, PURGE_FOLDER, e);
    }
    return r == 0 ? sync_folder(data, "uploads", e) : r;
}

/* Nobody looks for what it has any more. Missing is fine. */
static int free_file(const char *data, const char *folder, const char *name, const char *tail,
                     const atomic_bool *stop, uint64_t *freed, struct err *e)
{
    char path[PATH_BYTES];
    struct os_stat st = {0};
    int fd, r;

    path_of(path, data, folder, name, tail);
    fd = os_open(path, O_RDWR | O_NOFOLLOW, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    r = r < 0 ? err_os(e, r, "stat", path) : upload_truncate_slowly(fd, stop, e);
    (void)os_close(fd); /* it goes now */
    if (r == 0) {
        r = unlink_one(data, folder, name, tail, e);
        *freed += st.size;
    }
    return r;
}

/* Step 4. */
static int free_bytes(const char *data, const struct proof *proof, const atomic_bool *stop,
                      uint64_t *freed, struct err *e)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < proof_count(proof); i++) {
        if (i > 0 && atomic_load(stop)) {
            return err_set(e, ERR_NOT_READY, "the process stops");
        }
        r = free_file(data, PURGE_FOLDER, proof_member(proof, i)->object_id, "", stop, freed, e);
    }
    return r == 0 ? sync_folder(data, PURGE_FOLDER, e) : r;
}

/* Step 5. In its own folder: packages/ may be another file system. */
static int free_payload(const char *data, const char *package_id, const atomic_bool *stop,
                        uint64_t *freed, struct err *e)
{
    char from[PATH_BYTES], to[PATH_BYTES], gone[sizeof PACKAGE_PURGED + DELIVERY_PACKAGE_LEN];
    int r;

    (void)snprintf(gone, sizeof gone, PACKAGE_PURGED "%s", package_id);
    path_of(from, data, DELIVERY_PACKAGES, package_id, DELIVERY_PAYLOAD_TAIL);
    path_of(to, data, DELIVERY_PACKAGES, gone, DELIVERY_PAYLOAD_TAIL);
    r = os_rename(from, to);
    if (r < 0 && r != -ENOENT) {
        return err_os(e, r, "move", from);
    }
    r = sync_folder(data, DELIVERY_PACKAGES, e);
    return r == 0 ? free_file(data, DELIVERY_PACKAGES, gone, DELIVERY_PAYLOAD_TAIL, stop, freed, e)
                  : r;
}

/* Step 6. */
static int remove_sidecars(const char *data, const char *package_id, struct err *e)
{
    int r = unlink_one(data, DELIVERY_PACKAGES, package_id, DELIVERY_MANIFEST_TAIL, e);

    if (r == 0) {
        r = unlink_one(data, DELIVERY_PACKAGES, package_id, DELIVERY_PLAN_TAIL, e);
    }
    return r == 0 ? sync_folder(data, DELIVERY_PACKAGES, e) : r;
}

int purge_package(const char *data, const struct delivery_plan *plan, const atomic_bool *stop,
                  uint64_t *freed, struct err *e)
{
    struct proof proof;
    uint64_t bytes = 0;
    int r = may_go(data, plan, &proof, e);

    if (r == 0) {
        r = hide(data, &proof, e);
        if (r == 0) {
            r = free_bytes(data, &proof, stop, &bytes, e);
        }
        proof_free(&proof);
    }
    if (r == 0 && plan->members > 0) {
        r = free_payload(data, plan->package_id, stop, &bytes, e);
    }
    if (r == 0) {
        r = remove_sidecars(data, plan->package_id, e);
    }
    if (freed != NULL) {
        *freed = bytes;
    }
    return r;
}
