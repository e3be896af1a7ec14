/* package_build: what is on the disk of a package, and in which order.
 *
 * Identity makes no second file: the payload stays uploads/ID. A build is one read of it (BLAKE3,
 * which must be the receipt's; MD5; SHA-1), then the manifest and the plan:
 *
 *   packages/.part-PACKAGE.manifest.jsonl, .part-PACKAGE.plan.json   written and synced
 *   packages/PACKAGE.manifest.jsonl, then PACKAGE.plan.json          renamed
 *   packages/                                                        synced
 *   delivery.sqlite: sealed, with the plan                           synced (the caller)
 *
 * If power fails, or the process is killed:
 *   before the renames         temporary names, which the next start removes; built again
 *   between them, or before    any of the two is there, whole. Both: adopted as they are. A plan
 *   the folder's sync          alone: built again for the destination that it names, so that what
 *                              may have been sent is not sent elsewhere
 *   before the row             both are there: adopted, folder synced, sealed
 * Building twice gives the same bytes, so a rename over the first ones changes nothing.
 *
 * Answers: bytes that are missing or are not the receipt's, and settings of the project that give
 * no allowed place, with a way out for a person; everything else (no destination, EIO, no space) is
 * for another try. */
#include "store/artifact/package_build.h"

#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"

#define WAY_OUT     "put the original bytes back and restart tallyman deliver"
#define WAY_OUT_SET "change the project (tallyman project set) and restart tallyman deliver"
#define OPEN_SOURCE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
#define PATH_BYTES  4400
#define SHORT_ID    8 /* of an object id, in logs */

static void path_of(char out[PATH_BYTES], const char *data, const char *name)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s", data, name);

    ensure(n > 0);
    ensure(n < PATH_BYTES);
}

static int differs(struct package_job *job, const char *how, struct err *e)
{
    job->way_out = WAY_OUT;
    return err_set(e, ERR_CHECKSUM_MISMATCH, "the local bytes differ from the receipt: %s", how);
}

/* ---- digests ---- */

struct hashes {
    struct blake3 blake3;
    struct md5 md5;
    struct sha1 sha1;
};

static void hashes_start(struct hashes *h)
{
    blake3_start(&h->blake3);
    md5_start(&h->md5);
    sha1_start(&h->sha1);
}

static void hashes_add(struct hashes *h, const void *p, size_t n)
{
    blake3_add(&h->blake3, p, n);
    md5_add(&h->md5, p, n);
    sha1_add(&h->sha1, p, n);
}

static void hashes_end(struct hashes *h, struct delivery_digests *out)
{
    uint8_t digest[BLAKE3_LEN];

    memset(out, 0, sizeof *out);
    blake3_end(&h->blake3, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_end(&h->md5, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_end(&h->sha1, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
}

static void digests_of(struct slice text, struct delivery_digests *out)
{
    struct hashes h;

    hashes_start(&h);
    hashes_add(&h, text.ptr, text.len);
    hashes_end(&h, out);
}

/* ---- one read of the payload ---- */

static int hash_pieces(struct package_job *job, int fd, const char *path,
                       struct delivery_digests *out, struct err *e)
{
    const struct delivery_artifact *a = job->artifact;
    struct hashes h;

    hashes_start(&h);
    for (uint64_t at = 0; at < a->size_bytes;) {
        uint64_t left = a->size_bytes - at;
        size_t want = left < job->piece_bytes ? (size_t)left : job->piece_bytes;
        int64_t n;
        if (job->stopping(job->ctx)) {
            return PACKAGE_STOPPED;
        }
        n = os_pread_full(fd, job->piece, want, at);
        if (n < 0) {
            return err_os(e, (int)n, "read", path);
        }
        if ((size_t)n < want) {
            return differs(job, "the file became shorter", e);
        }
        hashes_add(&h, job->piece, want);
        (void)os_drop_range(fd, at, want);
        at += want;
        job->progress(job->ctx, at);
    }
    hashes_end(&h, out);
    return strcmp(out->blake3, a->checksum) == 0 ? 0 : differs(job, "BLAKE3 is another one", e);
}

static int hash_payload(struct package_job *job, const char *source, struct delivery_digests *out,
                        struct err *e)
{
    char path[PATH_BYTES];
    struct os_stat st;
    int fd;
    int r;

    path_of(path, job->data, source);
    fd = os_open(path, OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        job->way_out = WAY_OUT;
        return err_set(e, ERR_NOT_FOUND, "the local file is missing: %s", path);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(e, r, "stat", path);
    } else if (st.size != job->artifact->size_bytes) {
        r = differs(job, "the file has another size", e);
    } else {
        r = hash_pieces(job, fd, path, out, e);
    }
    (void)os_close(fd);
    return r;
}

/* ---- sidecars ---- */

/* The whole sidecar; the caller frees *out. One that is too long comes one byte too long. */
static int read_sidecar(const struct package_job *job, const char *name, struct buf *out,
                        struct err *e)
{
    char path[PATH_BYTES];
    int64_t n;
    int fd;

    buf_init(out, DELIVERY_TEXT_MAX + 1);
    path_of(path, job->data, name);
    if (!buf_reserve(out, DELIVERY_TEXT_MAX + 1)) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read %s", path);
    }
    fd = os_open(path, OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    n = os_pread_full(fd, out->ptr, DELIVERY_TEXT_MAX + 1, 0);
    (void)os_close(fd);
    if (n < 0) {
        return err_os(e, (int)n, "read", path);
    }
    out->len = (size_t)n;
    return 0;
}

static void sidecar_name(char out[DELIVERY_SOURCE_MAX], const char *prefix, const char *package_id,
                         const char *tail)
{
    int n =
        snprintf(out, DELIVERY_SOURCE_MAX, DELIVERY_PACKAGES "/%s%s%s", prefix, package_id, tail);

    ensure(n > 0);
    ensure(n < DELIVERY_SOURCE_MAX);
}

/* The temporary file, whole and synced. */
static int write_temp(const char *data, const char *package_id, const char *tail, struct slice text,
                      struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], path[PATH_BYTES];
    int fd;
    int r;

    sidecar_name(name, PACKAGE_TEMP, package_id, tail);
    path_of(path, data, name);
    fd = os_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0640);
    if (fd < 0) {
        return err_os(e, fd, "create", path);
    }
    r = os_pwrite_all(fd, text.ptr, text.len, 0, NULL);
    if (r < 0) {
        r = err_os(e, r, "write", path);
    } else {
        r = os_fsync(fd);
        r = r < 0 ? err_os(e, r, "sync", path) : 0;
    }
    (void)os_close(fd);
    return r;
}

static int rename_temp(const char *data, const char *package_id, const char *tail, struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], from[PATH_BYTES], to[PATH_BYTES];
    int r;

    sidecar_name(name, PACKAGE_TEMP, package_id, tail);
    path_of(from, data, name);
    sidecar_name(name, "", package_id, tail);
    path_of(to, data, name);
    r = os_rename(from, to);
    return r < 0 ? err_os(e, r, "rename to", to) : 0;
}

static int sync_packages(const char *data, struct err *e)
{
    char path[PATH_BYTES];
    int r;

    path_of(path, data, DELIVERY_PACKAGES);
    r = os_sync_dir(path);
    return r < 0 ? err_os(e, r, "sync", path) : 0;
}

static void remove_temps(const char *data, const char *package_id)
{
    static const char *const tails[] = {DELIVERY_MANIFEST_TAIL, DELIVERY_PLAN_TAIL};
    char name[DELIVERY_SOURCE_MAX], path[PATH_BYTES];

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        sidecar_name(name, PACKAGE_TEMP, package_id, tails[i]);
        path_of(path, data, name);
        (void)os_unlink(path); /* usually there is none */
    }
}

static int put_sidecars(const char *data, const char *id, struct slice manifest, struct slice plan,
                        struct err *e)
{
    int r = write_temp(data, id, DELIVERY_MANIFEST_TAIL, manifest, e);

    if (r == 0) {
        r = write_temp(data, id, DELIVERY_PLAN_TAIL, plan, e);
    }
    if (r == 0) {
        r = rename_temp(data, id, DELIVERY_MANIFEST_TAIL, e);
    }
    if (r == 0) {
        r = rename_temp(data, id, DELIVERY_PLAN_TAIL, e);
    }
    if (r == 0) {
        r = sync_packages(data, e);
    }
    if (r < 0) {
        remove_temps(data, id);
    }
    return r;
}

/* ---- the build ---- */

/* By the project's settings as they are now. */
static int new_place(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    struct artifact_sink to;
    int r = job->place(job->ctx, &to, e);

    if (r == 0) {
        r = delivery_plan_begin(p, job->artifact, &to, e);
    }
    if (r == ERR_INVALID_PROJECT) {
        job->way_out = WAY_OUT_SET;
    }
    return r;
}

/* A plan that is there already. ERR_NOT_FOUND: there is none that can be believed. */
static int old_place(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    char id[DELIVERY_PACKAGE_LEN + 1], name[DELIVERY_SOURCE_MAX];
    struct buf text;
    int r;

    delivery_package_id(job->artifact, id);
    sidecar_name(name, "", id, DELIVERY_PLAN_TAIL);
    r = read_sidecar(job, name, &text, e);
    if (r == 0) {
        r = delivery_plan_parse(buf_slice(&text), p, e);
        if (r == ERR_CORRUPT || (r == 0 && !delivery_plan_fits(p, job->artifact))) {
            log_line(LOG_ERROR, "deliver", "%.*s: its plan is damaged: it is made anew", SHORT_ID,
                     job->artifact->object_id);
            r = ERR_NOT_FOUND;
        }
    }
    buf_free(&text);
    return r;
}

/* *whole: the manifest is the one that the plan was made with. */
static int old_manifest(const struct package_job *job, const struct delivery_plan *p, bool *whole,
                        struct err *e)
{
    const struct delivery_plan_file *f = &p->file[1];
    struct delivery_digests digests;
    struct buf text;
    int r = read_sidecar(job, f->source, &text, e);

    *whole = false;
    if (r == 0) {
        digests_of(buf_slice(&text), &digests);
        *whole = text.len == f->size && strcmp(digests.blake3, f->digests.blake3) == 0 &&
                 strcmp(digests.md5, f->digests.md5) == 0;
    }
    buf_free(&text);
    return r == ERR_NOT_FOUND ? 0 : r;
}

static int make(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    struct buf manifest = {0}, plan = {0};
    int r = hash_payload(job, p->file[0].source, &p->file[0].digests, e);

    if (r != 0) {
        return r;
    }
    p->file[0].size = job->artifact->size_bytes;
    delivery_manifest_put(&manifest, job->artifact, &p->file[0].digests);
    p->file[1].size = manifest.len;
    digests_of(buf_slice(&manifest), &p->file[1].digests);
    delivery_plan_put(&plan, p);
    if (manifest.failed || plan.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for manifest and plan");
    } else {
        ensure(manifest.len <= DELIVERY_TEXT_MAX);
        ensure(plan.len <= DELIVERY_TEXT_MAX);
        r = put_sidecars(job->data, p->package_id, buf_slice(&manifest), buf_slice(&plan), e);
    }
    buf_free(&manifest);
    buf_free(&plan);
    return r;
}

int package_build(struct package_job *job, struct delivery_plan *out, struct err *e)
{
    bool adopted = false;
    int r;

    job->way_out = NULL;
    r = old_place(job, out, e);
    if (r == 0) {
        r = old_manifest(job, out, &adopted, e);
    } else if (r == ERR_NOT_FOUND) {
        r = new_place(job, out, e);
    }
    if (r == 0) {
        r = adopted ? sync_packages(job->data, e) : make(job, out, e);
    }
    return r;
}

/* ---- start ---- */

static int clean_one(void *ctx, const char *name)
{
    const char *data = ctx;
    char below[DELIVERY_SOURCE_MAX], path[PATH_BYTES];

    /* The longest name of ours is far shorter than below. */
    if (strncmp(name, PACKAGE_TEMP, sizeof PACKAGE_TEMP - 1) == 0 &&
        strlen(name) < DELIVERY_SOURCE_MAX / 2 + 32) {
        sidecar_name(below, "", name, "");
        path_of(path, data, below);
        (void)os_unlink(path); /* it is written anew where it is needed */
    }
    return 0;
}

int package_build_clean(const char *data, struct err *e)
{
    char path[PATH_BYTES], folder[PATH_BYTES];
    int r;

    path_of(path, data, DELIVERY_PACKAGES);
    path_of(folder, data, "");
    folder[strlen(folder) - 1] = '\0';
    r = os_list(path, clean_one, folder);
    return r < 0 ? err_os(e, r, "list", path) : 0;
}
