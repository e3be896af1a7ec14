/* deliver_build: from an accepted artifact to a sealed package.
 *
 * Identity makes no second file: the payload stays uploads/ID. A build is one read of it (BLAKE3,
 * which must be the receipt's; MD5; SHA-1), then the manifest and the plan:
 *
 *   packages/.part-PACKAGE.manifest.jsonl, .part-PACKAGE.plan.json   written and synced
 *   packages/PACKAGE.manifest.jsonl, then PACKAGE.plan.json          renamed
 *   packages/                                                        synced
 *   delivery.sqlite: sealed, with the plan                           synced
 *
 * If power fails, or the process is killed:
 *   before the renames         temporary names, which the next start removes; built again
 *   between them, or before    any of the two is there, whole. Both: adopted as they are. A plan
 *   the folder's sync          alone: built again for the destination that it names, so that what
 *                              may have been sent is not sent elsewhere
 *   before the row             both are there: adopted, folder synced, sealed
 * Building twice gives the same bytes, so a rename over the first ones changes nothing.
 *
 * Answers, as rows: bytes that are missing or are not the receipt's, and settings of the project
 * that give no allowed place, park the package and no other; everything else (no destination, EIO,
 * no space) is tried again. Errors of the index are returned. */
#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"

#define TEMP        ".part-"
#define WAY_OUT     "put the original bytes back and restart tallyman deliver"
#define WAY_OUT_SET "change the project (tallyman project set) and restart tallyman deliver"
#define OPEN_SOURCE (O_RDONLY | O_NOFOLLOW | O_NONBLOCK)

static int differs(struct deliver_slot *s, const char *how)
{
    s->way_out = WAY_OUT;
    return err_set(&s->why, ERR_CHECKSUM_MISMATCH, "the local bytes differ from the receipt: %s",
                   how);
}

/* ---- one read of the payload ---- */

static int hash_pieces(struct deliver_slot *s, int fd, const char *path,
                       struct delivery_digests *out)
{
    const struct delivery_artifact *a = &s->work.artifact;
    struct blake3 blake3;
    struct md5 md5;
    struct sha1 sha1;
    uint8_t digest[BLAKE3_LEN];

    blake3_start(&blake3);
    md5_start(&md5);
    sha1_start(&sha1);
    for (uint64_t at = 0; at < a->size_bytes;) {
        uint64_t left = a->size_bytes - at;
        size_t want = left < ARTIFACT_PIECE_BYTES ? (size_t)left : ARTIFACT_PIECE_BYTES;
        int64_t n;
        if (deliver_stopping(s->d)) {
            return DELIVER_STOPPED;
        }
        n = os_pread_full(fd, s->piece, want, at);
        if (n < 0) {
            return err_os(&s->why, (int)n, "read", path);
        }
        if ((size_t)n < want) {
            return differs(s, "the file became shorter");
        }
        blake3_add(&blake3, s->piece, want);
        md5_add(&md5, s->piece, want);
        sha1_add(&sha1, s->piece, want);
        (void)os_drop_range(fd, at, want);
        at += want;
        atomic_store(&s->bytes, at);
    }
    memset(out, 0, sizeof *out);
    blake3_end(&blake3, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_end(&md5, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_end(&sha1, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
    return strcmp(out->blake3, a->checksum) == 0 ? 0 : differs(s, "BLAKE3 is another one");
}

static int hash_payload(struct deliver_slot *s, struct delivery_digests *out)
{
    char path[DELIVER_PATH_BYTES];
    struct os_stat st;
    int fd;
    int r;

    deliver_path(s->d, path, s->work.plan.file[0].source);
    fd = os_open(path, OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        s->way_out = WAY_OUT;
        return err_set(&s->why, ERR_NOT_FOUND, "the local file is missing: %s", path);
    }
    if (fd < 0) {
        return err_os(&s->why, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(&s->why, r, "stat", path);
    } else if (st.size != s->work.artifact.size_bytes) {
        r = differs(s, "the file has another size");
    } else {
        r = hash_pieces(s, fd, path, out);
    }
    (void)os_close(fd);
    return r;
}

/* ---- sidecars ---- */

/* Reads a whole sidecar into s->piece. */
static int read_sidecar(struct deliver_slot *s, const char *name, struct slice *out, struct err *e)
{
    char path[DELIVER_PATH_BYTES];
    int64_t n;
    int fd;

    deliver_path(s->d, path, name);
    fd = os_open(path, OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "%s is not there", path);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    n = os_pread_full(fd, s->piece, DELIVERY_TEXT_MAX + 1, 0);
    (void)os_close(fd);
    if (n < 0) {
        return err_os(e, (int)n, "read", path);
    }
    *out = slice_of(s->piece, (size_t)n);
    return 0;
}

static void digests_of(struct slice text, struct delivery_digests *out)
{
    struct blake3 blake3;
    struct md5 md5;
    struct sha1 sha1;
    uint8_t digest[BLAKE3_LEN];

    memset(out, 0, sizeof *out);
    blake3_start(&blake3);
    blake3_add(&blake3, text.ptr, text.len);
    blake3_end(&blake3, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_start(&md5);
    md5_add(&md5, text.ptr, text.len);
    md5_end(&md5, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_start(&sha1);
    sha1_add(&sha1, text.ptr, text.len);
    sha1_end(&sha1, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
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
static int write_temp(struct deliver_slot *s, const char *tail, struct slice text, struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], path[DELIVER_PATH_BYTES];
    int fd;
    int r;

    sidecar_name(name, TEMP, s->work.plan.package_id, tail);
    deliver_path(s->d, path, name);
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

static int rename_temp(struct deliver_slot *s, const char *tail, struct err *e)
{
    char name[DELIVERY_SOURCE_MAX], from[DELIVER_PATH_BYTES], to[DELIVER_PATH_BYTES];
    int r;

    sidecar_name(name, TEMP, s->work.plan.package_id, tail);
    deliver_path(s->d, from, name);
    sidecar_name(name, "", s->work.plan.package_id, tail);
    deliver_path(s->d, to, name);
    r = os_rename(from, to);
    return r < 0 ? err_os(e, r, "rename to", to) : 0;
}

static int sync_packages(struct deliver_slot *s, struct err *e)
{
    char path[DELIVER_PATH_BYTES];
    int r;

    deliver_path(s->d, path, DELIVERY_PACKAGES);
    r = os_sync_dir(path);
    return r < 0 ? err_os(e, r, "sync", path) : 0;
}

static void remove_temps(struct deliver_slot *s)
{
    static const char *const tails[] = {DELIVERY_MANIFEST_TAIL, DELIVERY_PLAN_TAIL};
    char name[DELIVERY_SOURCE_MAX], path[DELIVER_PATH_BYTES];

    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        sidecar_name(name, TEMP, s->work.plan.package_id, tails[i]);
        deliver_path(s->d, path, name);
        (void)os_unlink(path); /* usually there is none */
    }
}

static int put_sidecars(struct deliver_slot *s, struct slice manifest, struct slice plan,
                        struct err *e)
{
    int r = write_temp(s, DELIVERY_MANIFEST_TAIL, manifest, e);

    if (r == 0) {
        r = write_temp(s, DELIVERY_PLAN_TAIL, plan, e);
    }
    if (r == 0) {
        r = rename_temp(s, DELIVERY_MANIFEST_TAIL, e);
    }
    if (r == 0) {
        r = rename_temp(s, DELIVERY_PLAN_TAIL, e);
    }
    if (r == 0) {
        r = sync_packages(s, e);
    }
    if (r < 0) {
        remove_temps(s);
    }
    return r;
}

/* ---- the build ---- */

/* The receipt is looked at once more: one that its server took back, because it could not be
 * synced, may have been given again with another time. */
static int receipt_again(struct deliver_slot *s)
{
    struct delivery_artifact *a = &s->work.artifact;
    struct receipt receipt;
    int r = receipt_load(s->d->uploads, slice_cstr(a->object_id), &receipt, &s->why);

    if (r == ERR_NOT_FOUND) {
        return err_set(&s->why, ERR_NOT_FOUND, "its receipt is not there");
    }
    if (r < 0) {
        return r;
    }
    if (strcmp(receipt.checksum, a->checksum) != 0 || receipt.size_bytes != a->size_bytes) {
        return err_set(&s->why, ERR_CORRUPT, "its receipt is not the one it was accepted with");
    }
    a->accepted_at = receipt.accepted_at;
    return 0;
}

/* By the project's settings as they are now. */
static int new_place(struct deliver_slot *s)
{
    const struct delivery_artifact *a = &s->work.artifact;
    struct artifact_sink to;
    int r = artifact_sink_read(s->d->options->data, slice_cstr(a->project), &to, &s->why);

    if (r == 0) {
        r = delivery_plan_begin(&s->work.plan, a, &to, &s->why);
    }
    if (r == ERR_INVALID_PROJECT) {
        s->way_out = WAY_OUT_SET;
    }
    return r;
}

/* Fills the plan but for sizes and digests: of a plan that is there already, else by the project.
 * *adopted: the package is built. */
static int destination(struct deliver_slot *s, bool *adopted)
{
    const struct delivery_artifact *a = &s->work.artifact;
    struct delivery_plan *p = &s->work.plan;
    char id[DELIVERY_PACKAGE_LEN + 1], name[DELIVERY_SOURCE_MAX];
    struct delivery_digests digests;
    struct slice text;
    int r;

    *adopted = false;
    delivery_package_id(a, id);
    sidecar_name(name, "", id, DELIVERY_PLAN_TAIL);
    r = read_sidecar(s, name, &text, &s->why);
    if (r == 0) {
        r = delivery_plan_parse(text, p, &s->why);
        if (r == ERR_CORRUPT || (r == 0 && !delivery_plan_fits(p, a))) {
            log_line(LOG_ERROR, "deliver", "%.*s: its plan is damaged: it is made anew",
                     DELIVER_SHORT_ID, a->object_id);
            r = ERR_NOT_FOUND;
        }
    }
    if (r == ERR_NOT_FOUND) {
        return new_place(s);
    }
    if (r < 0) {
        return r;
    }
    r = read_sidecar(s, p->file[1].source, &text, &s->why);
    if (r == 0) {
        digests_of(text, &digests);
        *adopted = text.len == p->file[1].size &&
                   strcmp(digests.blake3, p->file[1].digests.blake3) == 0 &&
                   strcmp(digests.md5, p->file[1].digests.md5) == 0;
    }
    return r == ERR_NOT_FOUND ? 0 : r;
}

static int make(struct deliver_slot *s)
{
    struct delivery_plan *p = &s->work.plan;
    struct buf manifest = {0}, plan = {0};
    int r = hash_payload(s, &p->file[0].digests);

    if (r != 0) {
        return r;
    }
    p->file[0].size = s->work.artifact.size_bytes;
    delivery_manifest_put(&manifest, &s->work.artifact, &p->file[0].digests);
    p->file[1].size = manifest.len;
    digests_of(buf_slice(&manifest), &p->file[1].digests);
    delivery_plan_put(&plan, p);
    if (manifest.failed || plan.failed) {
        r = err_set(&s->why, ERR_NO_MEMORY, "no memory for manifest and plan");
    } else {
        ensure(manifest.len <= DELIVERY_TEXT_MAX);
        ensure(plan.len <= DELIVERY_TEXT_MAX);
        r = put_sidecars(s, buf_slice(&manifest), buf_slice(&plan), &s->why);
    }
    buf_free(&manifest);
    buf_free(&plan);
    return r;
}

static int build(struct deliver_slot *s)
{
    bool adopted = false;
    int r = receipt_again(s);

    if (r == 0) {
        r = destination(s, &adopted);
    }
    if (r == 0 && artifact_adapter(s->work.plan.to.sink) == NULL) {
        r = err_set(&s->why, ERR_UNSUPPORTED, "this program knows no sink \"%s\"",
                    s->work.plan.to.sink);
    }
    if (r == 0) {
        r = adopted ? sync_packages(s, &s->why) : make(s);
    }
    return r;
}

static void build_run(struct deliver_slot *s)
{
    s->result = build(s);
}

/* ---- before and after ---- */

static int build_begin(struct deliver_slot *s, bool *run, struct err *e)
{
    (void)e;
    s->way_out = NULL;
    s->why = (struct err){0};
    *run = true;
    return 0;
}

static int failed(struct deliver_slot *s, struct err *e)
{
    const struct delivery_artifact *a = &s->work.artifact;
    unsigned n = s->work.attempts + 1;
    uint64_t wait_ms = deliver_backoff_ms(s->d->options->backoff_ms, n);
    int64_t now_ms = deliver_now_ms();
    char id[DELIVERY_PACKAGE_LEN + 1], shown[DELIVER_SHOWN_MAX];

    delivery_package_id(a, id);
    deliver_shown(shown, s->why.text);
    if (s->way_out != NULL) {
        log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID,
                 a->object_id, shown, s->way_out);
        return delivery_index_build_park(s->d->index, id, now_ms / 1000, s->why.text, s->way_out,
                                         e);
    }
    log_line(LOG_WARN, "deliver", "%.*s is not packaged: %s; try %u, the next in %llu s",
             DELIVER_SHORT_ID, a->object_id, shown, n, (unsigned long long)wait_ms / 1000);
    return delivery_index_build_retry(s->d->index, id, now_ms / 1000, now_ms + (int64_t)wait_ms,
                                      s->why.text, e);
}

static int build_done(struct deliver_slot *s, bool *again, struct err *e)
{
    int64_t now_ms = deliver_now_ms();

    *again = false;
    if (s->result == DELIVER_STOPPED) {
        return 0;
    }
    if (s->result < 0) {
        return failed(s, e);
    }
    return delivery_index_seal(s->d->index, &s->work.plan, now_ms / 1000,
                               s->work.due_ms < now_ms ? s->work.due_ms : now_ms, e);
}

const struct deliver_step deliver_build_step = {build_begin, build_run, build_done};

/* ---- start ---- */

static int clean_one(void *ctx, const char *name)
{
    struct deliver *d = ctx;
    char below[DELIVERY_SOURCE_MAX], path[DELIVER_PATH_BYTES];

    /* The longest name of ours is far shorter than below. */
    if (strncmp(name, TEMP, sizeof TEMP - 1) == 0 && strlen(name) < DELIVERY_SOURCE_MAX / 2 + 32) {
        sidecar_name(below, "", name, "");
        deliver_path(d, path, below);
        (void)os_unlink(path); /* it is written anew where it is needed */
    }
    return 0;
}

int deliver_build_clean(struct deliver *d, struct err *e)
{
    char path[DELIVER_PATH_BYTES];
    int r;

    deliver_path(d, path, DELIVERY_PACKAGES);
    r = os_list(path, clean_one, d);
    return r < 0 ? err_os(e, r, "list", path) : 0;
}
