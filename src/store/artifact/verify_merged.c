/* Merged packages: manifest and plan, each member's receipt, and the payload, which is read.
 *
 * What belongs together was renamed one after the other, the plan last, so that a plan without the
 * others may be a crash's remnant; where the package is sealed, verify_delivery.c misses them. A
 * purge renames the payload before it cuts it: what was found wrong counts while the file has its
 * name still.
 *
 * Power failure: nothing is written. Answers: files that cannot be read at all, no memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/os.h"
#include "store/artifact/package_load.h"
#include "store/artifact/verify_parts.h"

#define PATH_BYTES (UPLOADS_PATH_MAX + DELIVERY_PACKAGE_LEN + 40)

static void payload_path(const struct artifact_run *a, const struct delivery_plan *plan,
                         char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s" DELIVERY_PAYLOAD_TAIL, a->packages, plan->package_id);
}

static int tell_payload(struct artifact_run *a, const struct delivery_plan *plan, const char *what)
{
    char path[PATH_BYTES];
    struct os_stat st;

    payload_path(a, plan, path);
    if (os_stat(path, &st) != -ENOENT) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: %s", plan->package_id, what);
    }
    return 0;
}

static int check_open_payload(struct artifact_run *a, const struct delivery_plan *plan, int fd)
{
    const struct delivery_plan_file *f = &plan->file[0];
    char hex[BLAKE3_HEX_LEN + 1], text[400];
    struct os_stat st;
    struct err e = {0};
    int r = os_fstat(fd, &st);

    if (r < 0) {
        r = err_os(&e, r, "stat", "a payload");
    } else if (st.size != f->size) {
        (void)snprintf(text, sizeof text, "its payload has %llu bytes, not %llu",
                       (unsigned long long)st.size, (unsigned long long)f->size);
        return tell_payload(a, plan, text);
    } else {
        a->total += st.size;
        r = artifact_hash(a, fd, st.size, hex, &e);
    }
    if (r == ERR_NO_MEMORY) {
        return err_set(a->e, r, "%s", e.text);
    }
    if (r != 0) {
        (void)snprintf(text, sizeof text, "its payload cannot be read: %.300s", e.text);
        return tell_payload(a, plan, text);
    }
    return strcmp(hex, f->digests.blake3) == 0
               ? 0
               : tell_payload(a, plan, "its payload is not the one planned");
}

static int check_payload(struct artifact_run *a, const struct delivery_plan *plan, const char *name)
{
    char path[PATH_BYTES];
    int fd, r;

    payload_path(a, plan, path);
    fd = os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd == -ENOENT) {
        artifact_remnant(a, DELIVERY_PACKAGES, name); /* the plan without it */
        return 0;
    }
    if (fd < 0) {
        return err_os(a->e, fd, "open", path);
    }
    r = check_open_payload(a, plan, fd);
    (void)os_close(fd); /* read only */
    return r;
}

static int check_member(struct artifact_run *a, const struct delivery_plan *plan,
                        const struct delivery_artifact *m)
{
    struct receipt receipt;
    struct err e = {0};
    int r = artifact_read_receipt(&a->us, m->object_id, &receipt, &e);

    if (r == ERR_NOT_FOUND) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: there is no receipt %s",
                      plan->package_id, m->object_id);
        return 0;
    }
    if (r != 0) {
        return r == ERR_CORRUPT ? 0 : err_set(a->e, r, "%s", e.text); /* the receipt was told */
    }
    if (receipt.size_bytes != m->size_bytes || receipt.accepted_at != m->accepted_at ||
        strcmp(receipt.checksum, m->checksum) != 0) {
        artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: its manifest contradicts receipt %s",
                      plan->package_id, m->object_id);
    }
    return 0;
}

int artifact_check_merged(struct artifact_run *a, const struct delivery_plan *plan,
                          const char *name)
{
    static struct delivery_plan again; /* large; verify has one thread */
    struct delivery_members members;
    char path[PATH_BYTES];
    struct os_stat st;
    struct err e = {0};
    int r;

    (void)snprintf(path, sizeof path, "%s/%s" DELIVERY_MANIFEST_TAIL, a->packages,
                   plan->package_id);
    r = artifact_stat(a, path, &st);
    if (r == 0) {
        artifact_remnant(a, DELIVERY_PACKAGES, name); /* the plan alone */
    }
    if (r <= 0) {
        return r;
    }
    r = package_load(a->data, plan->package_id, &again, &members, &e);
    if (r == ERR_CORRUPT) {
        r = artifact_stat(a, path, &st); /* a purge takes it away before the plan */
        if (r == 1) {
            artifact_tell(a, ARTIFACT_KIND_PACKAGE, "package %s: %s", plan->package_id, e.text);
        }
        return r < 0 ? r : 0;
    }
    if (r != 0) {
        return r == ERR_NOT_FOUND ? 0 : err_set(a->e, r, "%s", e.text);
    }
    for (unsigned i = 0; r == 0 && i < members.count; i++) {
        r = check_member(a, plan, &members.item[i]);
    }
    delivery_members_free(&members);
    return r == 0 ? check_payload(a, plan, name) : r;
}
