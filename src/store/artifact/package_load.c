/* package_load: plan and manifest of a merged package, from DATA/packages/.
 *
 * A plan is renamed last, so it says that the package exists, and under which names it may have
 * been sent. Its members are the manifest's, believed when the manifest has the digest that is in
 * the plan, and when the package id that the members give is the plan's.
 *
 * Power failure: nothing is written. Answers: every error. */
#include "store/artifact/package_load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

#define PATH_BYTES 4400

static void path_of(char out[PATH_BYTES], const char *data, const char *package_id,
                    const char *tail)
{
    int n = snprintf(out, PATH_BYTES, "%s/" DELIVERY_PACKAGES "/%s%s", data, package_id, tail);

    ensure(n > 0);
    ensure(n < PATH_BYTES);
}

bool package_plan_name(const char *name, char package_id[DELIVERY_PACKAGE_LEN + 1])
{
    if (strlen(name) != DELIVERY_PACKAGE_LEN + sizeof DELIVERY_PLAN_TAIL - 1 ||
        strcmp(name + DELIVERY_PACKAGE_LEN, DELIVERY_PLAN_TAIL) != 0 ||
        strspn(name, "0123456789abcdef") < DELIVERY_PACKAGE_LEN) {
        return false;
    }
    memcpy(package_id, name, DELIVERY_PACKAGE_LEN);
    package_id[DELIVERY_PACKAGE_LEN] = '\0';
    return true;
}

bool package_planned(const char *data, const char *package_id)
{
    char path[PATH_BYTES];
    struct os_stat st;

    path_of(path, data, package_id, DELIVERY_PLAN_TAIL);
    return os_stat(path, &st) != -ENOENT;
}

bool package_identity_planned(const char *data, const struct delivery_artifact *a)
{
    char id[DELIVERY_PACKAGE_LEN + 1];

    delivery_package_id(a, id);
    return package_planned(data, id);
}

static int read_plan(const char *data, const char *package_id, struct delivery_plan *out,
                     struct err *e)
{
    char path[PATH_BYTES];
    struct buf text = {0};
    int r;

    path_of(path, data, package_id, DELIVERY_PLAN_TAIL);
    r = upload_read_file(path, DELIVERY_TEXT_MAX, &text, NULL, e);
    if (r == 0) {
        r = delivery_plan_parse(buf_slice(&text), out, e);
    }
    if (r == 0 && strcmp(out->package_id, package_id) != 0) {
        r = err_set(e, ERR_CORRUPT, "it is the plan of another package");
    }
    buf_free(&text);
    return r;
}

static bool has_digest(struct slice text, const struct delivery_plan_file *f)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1];

    blake3_start(&h);
    blake3_add(&h, text.ptr, text.len);
    blake3_end(&h, digest);
    hex_encode(hex, digest, BLAKE3_LEN);
    hex[BLAKE3_HEX_LEN] = '\0';
    return text.len == f->size && strcmp(hex, f->digests.blake3) == 0;
}

static int read_members(const char *data, const struct delivery_plan *plan,
                        struct delivery_members *out, struct err *e)
{
    char path[PATH_BYTES];
    struct buf text = {0};
    int r;

    path_of(path, data, plan->package_id, DELIVERY_MANIFEST_TAIL);
    r = upload_read_file(path, DELIVERY_MERGED_TEXT_MAX, &text, NULL, e);
    if (r == ERR_NOT_FOUND) {
        return err_set(e, ERR_CORRUPT, "its manifest is missing");
    }
    if (r == 0 && !has_digest(buf_slice(&text), &plan->file[1])) {
        r = err_set(e, ERR_CORRUPT, "its manifest is not the one of its plan");
    }
    if (r == 0) {
        r = delivery_manifest_parse(buf_slice(&text), plan, out, e);
    }
    buf_free(&text);
    return r;
}

int package_load(const char *data, const char *package_id, struct delivery_plan *plan,
                 struct delivery_members *members, struct err *e)
{
    int r = read_plan(data, package_id, plan, e);

    *members = (struct delivery_members){0};
    if (r == 0 && plan->members == 0) {
        r = err_set(e, ERR_NOT_FOUND, "it is an identity package");
    }
    if (r == 0) {
        r = read_members(data, plan, members, e);
    }
    if (r == 0 && !delivery_plan_fits_merged(plan, members)) {
        r = err_set(e, ERR_CORRUPT, "its plan does not fit its members");
    }
    if (r < 0) {
        delivery_members_free(members);
    }
    return r;
}
