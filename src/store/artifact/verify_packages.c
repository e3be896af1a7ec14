/* The files of packages/: plans and manifests against the receipts. (Of merged packages:
 * verify_merged.c.)
 *
 * Both are written whole before they have their names, so that one that cannot be read is damage.
 * One without the other is what a crash may leave, a remnant; where the package is sealed,
 * verify_delivery.c misses it. An artifact whose .info is gone (its bytes were freed) keeps what
 * its receipt says: id, size and digest.
 *
 * Power failure: nothing is written. Answers: folders and files that cannot be read at all. */
#include <stdio.h>
#include <string.h>

#include "store/artifact/verify_parts.h"

/* The package's id in PACKAGE and a tail. */
static bool package_of(const char *name, const char *tail, char id[DELIVERY_PACKAGE_LEN + 1])
{
    if (strlen(name) != DELIVERY_PACKAGE_LEN + strlen(tail) ||
        strcmp(name + DELIVERY_PACKAGE_LEN, tail) != 0 ||
        strspn(name, "0123456789abcdef") < DELIVERY_PACKAGE_LEN) {
        return false;
    }
    memcpy(id, name, DELIVERY_PACKAGE_LEN);
    id[DELIVERY_PACKAGE_LEN] = '\0';
    return true;
}

/* What the files say of the artifact. whole: the declared name and project are known too. */
static int load_artifact(struct artifact_run *a, const char *id, struct delivery_artifact *out,
                         bool *whole, struct err *e)
{
    struct receipt receipt;
    struct upload_info info;
    memset(out, 0, sizeof *out);
    *whole = false;
    int r = artifact_read_receipt(&a->us, id, &receipt, e);
    if (r != 0) {
        return r;
    }
    memcpy(out->object_id, receipt.object_id, sizeof out->object_id);
    memcpy(out->checksum, receipt.checksum, sizeof out->checksum);
    out->size_bytes = receipt.size_bytes;
    out->accepted_at = receipt.accepted_at;
    r = artifact_read_info(&a->us, id, &info, e);
    if (r == 0) {
        memcpy(out->project, info.project, sizeof out->project);
        memcpy(out->filename, info.filename, sizeof out->filename);
        *whole = true;
    }
    return r == ERR_NOT_FOUND || r == ERR_CORRUPT ? 0 : r;
}

static int compare_manifest(struct artifact_run *a, const struct delivery_plan *plan,
                            const struct delivery_artifact *artifact, bool whole, struct slice text)
{
    const struct delivery_plan_file *f = &plan->file[1];
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1];
    struct buf want;
    blake3_start(&h);
    blake3_add(&h, text.ptr, text.len);
    blake3_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    hex[BLAKE3_HEX_LEN] = '\0';
    if (text.len != f->size || strcmp(hex, f->digests.blake3) != 0) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its manifest is not the one planned",
                      plan->package_id);
        return 0;
    }
    buf_init(&want, DELIVERY_TEXT_MAX);
    delivery_manifest_put(&want, artifact, &plan->file[0].digests);
    if (want.no_memory) {
        buf_free(&want);
        return err_set(a->e, ERR_NO_MEMORY, "no memory to compare a manifest");
    }
    if (whole && !want.failed && !slice_eq(buf_slice(&want), text)) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its manifest contradicts the receipt",
                      plan->package_id);
    }
    buf_free(&want);
    return 0;
}

static int check_manifest(struct artifact_run *a, const struct delivery_plan *plan,
                          const struct delivery_artifact *artifact, bool whole, const char *name)
{
    struct buf text;
    struct err e = {0};
    int r = artifact_read_sidecar(a->packages, plan->package_id, DELIVERY_MANIFEST_TAIL, &text, &e);
    if (r == ERR_NOT_FOUND) {
        artifact_remnant(a, DELIVERY_PACKAGES, name); /* the plan alone */
        return 0;
    }
    if (r == ERR_CORRUPT) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its manifest is not the one planned",
                      plan->package_id);
        return 0;
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    r = compare_manifest(a, plan, artifact, whole, buf_slice(&text));
    buf_free(&text);
    return r;
}

static int check_plan(struct artifact_run *a, const struct delivery_plan *plan, const char *name)
{
    struct delivery_artifact artifact;
    struct err e = {0};
    bool whole;
    int r = load_artifact(a, plan->object_id, &artifact, &whole, &e);
    if (r == ERR_NOT_FOUND) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: there is no receipt %s",
                      plan->package_id, plan->object_id);
        return 0;
    }
    if (r == ERR_CORRUPT) {
        return 0; /* the receipt was told */
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    bool fits = whole ? delivery_plan_fits(plan, &artifact)
                      : plan->file[0].size == artifact.size_bytes &&
                            strcmp(plan->file[0].digests.blake3, artifact.checksum) == 0;
    if (!fits) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its plan contradicts the receipt %s",
                      plan->package_id, plan->object_id);
        return 0;
    }
    return check_manifest(a, plan, &artifact, whole, name);
}

static int see_plan(struct artifact_run *a, const char *id, const char *name)
{
    struct delivery_plan plan;
    struct buf text;
    struct err e = {0};
    int r = artifact_read_sidecar(a->packages, id, DELIVERY_PLAN_TAIL, &text, &e);
    if (r == ERR_NOT_FOUND) {
        return 0;
    }
    if (r == 0) {
        r = delivery_plan_parse(buf_slice(&text), &plan, &e);
        buf_free(&text);
    }
    a->out->packages++;
    if (r == ERR_CORRUPT) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its plan: %s", id, e.text);
        return 0;
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    if (strcmp(plan.package_id, id) != 0) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its plan is that of %s", id,
                      plan.package_id);
        return 0;
    }
    return plan.members > 0 ? artifact_check_merged(a, &plan, name) : check_plan(a, &plan, name);
}

static int see_package(struct artifact_run *a, const char *name)
{
    char id[DELIVERY_PACKAGE_LEN + 1];
    char path[sizeof a->packages + DELIVERY_PACKAGE_LEN + 40];
    struct os_stat st;
    if (package_of(name, DELIVERY_PLAN_TAIL, id)) {
        return see_plan(a, id, name);
    }
    if (package_of(name, DELIVERY_MANIFEST_TAIL, id) ||
        package_of(name, DELIVERY_PAYLOAD_TAIL, id)) {
        (void)snprintf(path, sizeof path, "%s/%s" DELIVERY_PLAN_TAIL, a->packages, id);
        int r = artifact_stat(a, path, &st);
        if (r == 0) {
            artifact_remnant(a, DELIVERY_PACKAGES, name);
        }
        return r < 0 ? r : 0;
    }
    artifact_remnant(a, DELIVERY_PACKAGES, name);
    return 0;
}

int artifact_check_packages(struct artifact_run *a)
{
    return artifact_list(a, a->packages, see_package);
}
