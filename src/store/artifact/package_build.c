/* package_build: what is on the disk of a package, and in which order.
 *
 * Identity makes no second file: the payload stays uploads/ID. A build is one read of it (BLAKE3,
 * which must be the receipt's; MD5; SHA-1), then the manifest and the plan. A merged package has a
 * payload of its own, written while its members are read once (package_merge.c); uploads/ID of
 * each stay until the package is purged, so that it is never the only copy before it is verified.
 *
 *   packages/.part-PACKAGE.warc.zst (merged), .manifest.jsonl, .plan.json   written and synced
 *   packages/PACKAGE.warc.zst, then .manifest.jsonl, then .plan.json        renamed
 *   packages/                                                               synced
 *   delivery.sqlite: sealed, with the plan                                  synced (the caller)
 *
 * If power fails, or the process is killed:
 *   before the renames         temporary names, which the next start removes; built again
 *   between them, or before    any of the names is there, each of a whole file. All: adopted, a
 *   the folder's sync          payload after one more read. A plan without the others: built again
 *                              for the destination that it names, so that what may have been sent
 *                              is not sent elsewhere. A payload without its plan: removed by the
 *                              next start, its members may come to other packages
 *   before the row             all are there: adopted, folder synced, sealed
 * Building twice gives the same bytes, so a rename over the first ones changes nothing.
 *
 * Answers: bytes of an identity package that are missing or are not the receipt's, and settings of
 * the project that give no allowed place, with a way out for a person; members of a merged one that
 * cannot be in it, by number, unless there is a plan already: what it names may have been sent with
 * them, so that none may go elsewhere, and a person has to bring its bytes back; everything else
 * (no destination, EIO, no space) is for another try. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/package_internal.h"

#define WAY_OUT_SET "change the project (tallyman project set) and restart tallyman deliver"
#define SHORT_ID    8 /* of an object id, in logs */

static bool merged(const struct package_job *job)
{
    return job->members != NULL && job->members->count > 0;
}

static size_t manifest_max(const struct package_job *job)
{
    return merged(job) ? DELIVERY_MERGED_TEXT_MAX : DELIVERY_TEXT_MAX;
}

void package_job_free(struct package_job *job)
{
    free(job->bad);
    job->bad = NULL;
    job->bad_count = 0;
}

int package_bad(struct package_job *job, unsigned member, const char *way_out, const char *text,
                struct err *e)
{
    struct package_bad *more = realloc(job->bad, (job->bad_count + 1) * sizeof *more);

    if (more == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for bad members");
    }
    job->bad = more;
    more[job->bad_count].member = member;
    more[job->bad_count].way_out = way_out;
    (void)snprintf(more[job->bad_count].text, PACKAGE_WHY_MAX, "%s", text);
    job->bad_count++;
    return 0;
}

/* ---- one read of a payload ---- */

static int differs(const char *how, struct err *e)
{
    return err_set(e, ERR_CHECKSUM_MISMATCH, "the local bytes differ from the receipt: %s", how);
}

static int hash_pieces(struct package_job *job, int fd, const char *path, uint64_t size,
                       struct delivery_digests *out, struct err *e)
{
    struct package_hashes h;

    package_hashes_start(&h);
    for (uint64_t at = 0; at < size;) {
        uint64_t left = size - at;
        size_t want = left < job->piece_bytes ? (size_t)left : job->piece_bytes;
        int64_t n;
        if (atomic_load(job->stop)) {
            return PACKAGE_STOPPED;
        }
        n = os_pread_full(fd, job->piece, want, at);
        if (n < 0) {
            return err_os(e, (int)n, "read", path);
        }
        if ((size_t)n < want) {
            return differs("the file became shorter", e);
        }
        package_hashes_add(&h, job->piece, want);
        (void)os_drop_range(fd, at, want);
        at += want;
        job->progress(job->ctx, at);
    }
    package_hashes_end(&h, out);
    return 0;
}

/* Its digests, the BLAKE3 among them as it must be. ERR_NOT_FOUND, ERR_CHECKSUM_MISMATCH: it is not
 * there, or not what it must be. */
static int hash_payload(struct package_job *job, const char *source, uint64_t size,
                        const char *blake3, struct delivery_digests *out, struct err *e)
{
    char path[PACKAGE_PATH_BYTES];
    struct os_stat st;
    int fd;
    int r;

    package_path(path, job->data, source);
    fd = os_open(path, PACKAGE_OPEN_SOURCE, 0);
    if (fd == -ENOENT) {
        return err_set(e, ERR_NOT_FOUND, "the local file is missing: %s", path);
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fstat(fd, &st);
    if (r < 0) {
        r = err_os(e, r, "stat", path);
    } else if (st.size != size) {
        r = differs("the file has another size", e);
    } else {
        r = hash_pieces(job, fd, path, size, out, e);
    }
    (void)os_close(fd);
    if (r == 0 && strcmp(out->blake3, blake3) != 0) {
        r = differs("BLAKE3 is another one", e);
    }
    return r;
}

/* ---- where it goes ---- */

/* By the project's settings as they are now. */
static int new_place(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    struct artifact_sink to;
    int r = job->place(job->ctx, &to, e);

    if (r == 0) {
        r = merged(job) ? delivery_plan_begin_merged(p, job->members, &to, e)
                        : delivery_plan_begin(p, job->artifact, &to, e);
    }
    if (r == ERR_INVALID_PROJECT) {
        job->way_out = WAY_OUT_SET;
    }
    return r;
}

static bool fits(const struct package_job *job, const struct delivery_plan *p)
{
    return merged(job) ? delivery_plan_fits_merged(p, job->members)
                       : delivery_plan_fits(p, job->artifact);
}

/* A plan that is there already. ERR_NOT_FOUND: there is none that can be believed. */
static int old_place(struct package_job *job, const char *package_id, struct delivery_plan *p,
                     struct err *e)
{
    char name[DELIVERY_SOURCE_MAX];
    struct buf text;
    int r;

    package_name(name, "", package_id, DELIVERY_PLAN_TAIL);
    r = package_text(job->data, name, DELIVERY_TEXT_MAX, &text, e);
    if (r == 0) {
        r = delivery_plan_parse(buf_slice(&text), p, e);
        if (r == ERR_CORRUPT || (r == 0 && !fits(job, p))) {
            log_line(LOG_ERROR, "deliver", "%.*s: its plan is damaged: it is made anew", SHORT_ID,
                     merged(job) ? package_id : job->artifact->object_id);
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
    int r = package_text(job->data, f->source, manifest_max(job), &text, e);

    *whole = false;
    if (r == 0) {
        package_digests_of(buf_slice(&text), &digests);
        *whole = text.len == f->size && strcmp(digests.blake3, f->digests.blake3) == 0 &&
                 strcmp(digests.md5, f->digests.md5) == 0;
    }
    buf_free(&text);
    return r == ERR_NOT_FOUND ? 0 : r;
}

/* The same of a payload of its own. */
static int old_payload(struct package_job *job, const struct delivery_plan *p, bool *whole,
                       struct err *e)
{
    const struct delivery_plan_file *f = &p->file[0];
    struct delivery_digests digests;
    int r = hash_payload(job, f->source, f->size, f->digests.blake3, &digests, e);

    *whole = r == 0 && strcmp(digests.md5, f->digests.md5) == 0;
    return r == ERR_NOT_FOUND || r == ERR_CHECKSUM_MISMATCH ? 0 : r;
}

/* ---- the build ---- */

static int put_files(const struct package_job *job, const char *id, struct slice manifest,
                     struct slice plan, struct err *e)
{
    const char *data = job->data;
    int r = package_write_temp(data, id, DELIVERY_MANIFEST_TAIL, manifest, e);

    if (r == 0) {
        r = package_write_temp(data, id, DELIVERY_PLAN_TAIL, plan, e);
    }
    if (r == 0 && merged(job)) {
        r = package_rename_temp(data, id, DELIVERY_PAYLOAD_TAIL, e);
    }
    if (r == 0) {
        r = package_rename_temp(data, id, DELIVERY_MANIFEST_TAIL, e);
    }
    if (r == 0) {
        r = package_rename_temp(data, id, DELIVERY_PLAN_TAIL, e);
    }
    if (r == 0) {
        r = package_sync_folder(data, e);
    }
    return r;
}

/* The payload is there; *manifest and the plan's first file say what it is. */
static int finish(struct package_job *job, struct delivery_plan *p, struct buf *manifest,
                  struct err *e)
{
    struct buf plan = {0};
    int r;

    p->file[1].size = manifest->len;
    package_digests_of(buf_slice(manifest), &p->file[1].digests);
    delivery_plan_put(&plan, p);
    if (manifest->failed || plan.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for manifest and plan");
    } else {
        ensure(manifest->len <= manifest_max(job));
        ensure(plan.len <= DELIVERY_TEXT_MAX);
        r = put_files(job, p->package_id, buf_slice(manifest), buf_slice(&plan), e);
    }
    buf_free(&plan);
    return r;
}

static int make(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    const struct delivery_artifact *a = job->artifact;
    struct buf manifest = {0};
    int r =
        hash_payload(job, p->file[0].source, a->size_bytes, a->checksum, &p->file[0].digests, e);

    if (r == ERR_NOT_FOUND || r == ERR_CHECKSUM_MISMATCH) {
        job->way_out = PACKAGE_WAY_OUT;
    }
    if (r == 0) {
        p->file[0].size = a->size_bytes;
        delivery_manifest_put(&manifest, a, &p->file[0].digests);
        r = finish(job, p, &manifest, e);
    }
    buf_free(&manifest);
    return r;
}

static int make_merged(struct package_job *job, struct delivery_plan *p, struct err *e)
{
    struct delivery_member_facts *facts = calloc(job->members->count, sizeof *facts);
    char sha256[SHA256_HEX_LEN + 1];
    struct buf manifest = {0};
    int r;

    if (facts == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a package's members");
    }
    r = package_merge(job, p->package_id, facts, &p->file[0].digests, sha256, e);
    if (r == 0) {
        p->file[0].size = delivery_members_bytes(job->members);
        delivery_manifest_put_merged(&manifest, job->members, facts, &p->file[0].digests, sha256);
        r = finish(job, p, &manifest, e);
    }
    buf_free(&manifest);
    free(facts);
    return r;
}

int package_build(struct package_job *job, struct delivery_plan *out, struct err *e)
{
    char id[DELIVERY_PACKAGE_LEN + 1];
    bool adopted = false, planned;
    int r;

    job->way_out = NULL;
    if (merged(job)) {
        delivery_merged_id(job->members->item, job->members->count, id);
    } else {
        delivery_package_id(job->artifact, id);
    }
    r = old_place(job, id, out, e);
    planned = r == 0;
    if (planned) {
        r = old_manifest(job, out, &adopted, e);
        if (r == 0 && adopted && merged(job)) {
            r = old_payload(job, out, &adopted, e);
        }
    } else if (r == ERR_NOT_FOUND) {
        r = new_place(job, out, e);
    }
    if (r == 0 && adopted) {
        return package_sync_folder(job->data, e);
    }
    if (r == 0) {
        r = merged(job) ? make_merged(job, out, e) : make(job, out, e);
        if (planned && r == ERR_CORRUPT && job->bad_count > 0) {
            package_job_free(job); /* all were good once, and it may have been sent */
            job->way_out = PACKAGE_WAY_OUT;
        }
        if (r != 0) {
            package_remove_temps(job, id);
        }
    }
    return r;
}

/* ---- start ---- */

struct clean {
    const char *data;
    const atomic_bool *stop;
};

static bool starts_with(const char *name, const char *head)
{
    return strncmp(name, head, strlen(head)) == 0;
}

/* PACKAGE.warc.zst whose plan is not there: of a build that had not ended. */
static bool without_plan(const struct clean *c, const char *name, char id[DELIVERY_PACKAGE_LEN + 1])
{
    char plan[DELIVERY_SOURCE_MAX], path[PACKAGE_PATH_BYTES];
    struct os_stat st;

    if (strlen(name) != DELIVERY_PACKAGE_LEN + sizeof DELIVERY_PAYLOAD_TAIL - 1 ||
        strcmp(name + DELIVERY_PACKAGE_LEN, DELIVERY_PAYLOAD_TAIL) != 0 ||
        strspn(name, "0123456789abcdef") < DELIVERY_PACKAGE_LEN) {
        return false;
    }
    memcpy(id, name, DELIVERY_PACKAGE_LEN);
    id[DELIVERY_PACKAGE_LEN] = '\0';
    package_name(plan, "", id, DELIVERY_PLAN_TAIL);
    package_path(path, c->data, plan);
    return os_stat(path, &st) == -ENOENT;
}

/* The first pass: what has no plan loses its name, before anything is cut. */
static int hide_one(void *ctx, const char *name)
{
    const struct clean *c = ctx;
    char below[DELIVERY_SOURCE_MAX], id[DELIVERY_PACKAGE_LEN + 1];
    char from[PACKAGE_PATH_BYTES], to[PACKAGE_PATH_BYTES];

    if (without_plan(c, name, id)) {
        package_name(below, "", id, DELIVERY_MANIFEST_TAIL);
        package_path(from, c->data, below);
        (void)os_unlink(from);
        package_name(below, "", id, DELIVERY_PAYLOAD_TAIL);
        package_path(from, c->data, below);
        package_name(below, PACKAGE_PURGED, id, DELIVERY_PAYLOAD_TAIL);
        package_path(to, c->data, below);
        (void)os_rename(from, to); /* what fails is tried at the next start; here and below */
    }
    return 0;
}

static int clean_one(void *ctx, const char *name)
{
    const struct clean *c = ctx;
    char below[DELIVERY_SOURCE_MAX];

    /* The longest name of ours is far shorter than below. */
    if ((starts_with(name, PACKAGE_TEMP) || starts_with(name, PACKAGE_PURGED)) &&
        strlen(name) < DELIVERY_SOURCE_MAX / 2 + 32) {
        package_name(below, "", name, "");
        package_remove(c->data, below, c->stop);
    }
    return 0;
}

int package_build_clean(const char *data, const atomic_bool *stop, struct err *e)
{
    struct clean c = {.data = data, .stop = stop};
    char path[PACKAGE_PATH_BYTES];
    int r;

    package_path(path, data, DELIVERY_PACKAGES);
    r = os_list(path, hide_one, &c);
    if (r == 0) {
        r = os_sync_dir(path);
    }
    if (r == 0) {
        r = os_list(path, clean_one, &c);
    }
    return r < 0 ? err_os(e, r, "clear", path) : 0;
}
