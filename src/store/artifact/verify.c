/* verify: the order of the checks, and what they tell.
 *
 * Beside a server and a deliverer nothing is locked, so what is read twice may have changed in
 * between: a violation is told only when what it rests on is still there afterwards. Files that
 * vanish while a folder is walked were removed by their owner, and are passed over.
 *
 * Power failure: nothing is written. Answers: all errors; bytes that cannot be read are violations
 * of what answers for them, so that one bad sector does not hide the rest. Stops, aborts: none. */
#include "store/artifact/verify.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/proof.h"
#include "store/artifact/verify_parts.h"

#define TEXT_MAX 600

/* ---- telling ---- */

void artifact_tell(struct artifact_run *a, enum artifact_kind kind, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    a->out->violations++;
    if (++a->kinds[kind] > ARTIFACT_TOLD_MAX) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    a->hooks->found(a->hooks->ctx, text);
}

void artifact_remnant(struct artifact_run *a, const char *dir, const char *name)
{
    char text[TEXT_MAX];
    if (++a->out->remnants <= ARTIFACT_TOLD_MAX) {
        (void)snprintf(text, sizeof text, "%s%s%s", dir, dir[0] != '\0' ? "/" : "", name);
        a->hooks->remnant(a->hooks->ctx, text);
    }
}

static void tell_the_rest(struct artifact_run *a)
{
    static const char *const names[] = {
#define X(sym, name) name,
        ARTIFACT_KINDS(X)
#undef X
    };
    char text[TEXT_MAX];
    for (unsigned kind = 0; kind < ARTIFACT_KIND_COUNT; kind++) {
        if (a->kinds[kind] > ARTIFACT_TOLD_MAX) {
            (void)snprintf(text, sizeof text, "%llu more of these: %s",
                           (unsigned long long)(a->kinds[kind] - ARTIFACT_TOLD_MAX), names[kind]);
            a->hooks->found(a->hooks->ctx, text);
        }
    }
    if (a->out->remnants > ARTIFACT_TOLD_MAX) {
        (void)snprintf(text, sizeof text, "%llu more",
                       (unsigned long long)(a->out->remnants - ARTIFACT_TOLD_MAX));
        a->hooks->remnant(a->hooks->ctx, text);
    }
}

/* ---- names and files ---- */

struct listing {
    struct artifact_run *a;
    int (*see)(struct artifact_run *a, const char *name);
    int failed; /* an ERR_ code, which is not to be taken for an errno of the listing itself */
};

static int see_name(void *ctx, const char *name)
{
    struct listing *l = ctx;
    l->failed = l->see(l->a, name);
    return l->failed < 0 ? 1 : 0;
}

int artifact_list(struct artifact_run *a, const char *dir,
                  int (*see)(struct artifact_run *a, const char *name))
{
    struct listing l = {.a = a, .see = see};
    int r = os_list(dir, see_name, &l);
    if (r == -ENOENT) {
        return 0;
    }
    return r < 0 ? err_os(a->e, r, "list", dir) : l.failed;
}

bool artifact_id_of(const char *name, const char *suffix, char id[UPLOAD_ID_LEN + 1])
{
    return strlen(name) == UPLOAD_ID_LEN + strlen(suffix) &&
           strcmp(name + UPLOAD_ID_LEN, suffix) == 0 &&
           upload_id_copy(id, slice_of(name, UPLOAD_ID_LEN));
}

int artifact_stat(struct artifact_run *a, const char *path, struct os_stat *st)
{
    int r = os_stat(path, st);
    return r == 0 ? 1 : r == -ENOENT ? 0 : err_os(a->e, r, "stat", path);
}

int artifact_read_receipt(const struct uploads *us, const char *id, struct receipt *out,
                          struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct buf json;
    receipt_path(us, path, id);
    int r = upload_read_file(path, RECEIPT_BYTES_MAX - 1, &json, NULL, e);
    if (r != 0) {
        return r;
    }
    r = receipt_parse(buf_slice(&json), out, e);
    buf_free(&json);
    if (r == 0 && strcmp(out->object_id, id) != 0) {
        r = err_set(e, ERR_CORRUPT, "it is the receipt of %s", out->object_id);
    }
    return r;
}

int artifact_read_info(const struct uploads *us, const char *id, struct upload_info *out,
                       struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct buf json;
    upload_path(us, path, id, ".info");
    int r = upload_read_file(path, UPLOAD_INFO_MAX, &json, NULL, e);
    if (r != 0) {
        return r;
    }
    r = upload_info_parse(buf_slice(&json), out, e);
    buf_free(&json);
    if (r == 0 && strcmp(out->id, id) != 0) {
        r = err_set(e, ERR_CORRUPT, "the upload's .info is another one's");
    }
    return r;
}

int artifact_read_sidecar(const char *packages, const char *package_id, const char *tail,
                          struct buf *out, struct err *e)
{
    char path[UPLOADS_PATH_MAX + DELIVERY_PACKAGE_LEN + 40];
    int n = snprintf(path, sizeof path, "%s/%s%s", packages, package_id, tail);
    ensure(n > 0);
    ensure((size_t)n < sizeof path);
    return upload_read_file(path, DELIVERY_TEXT_MAX, out, NULL, e);
}

/* ---- all of it ---- */

static int set_paths(struct artifact_run *a)
{
    struct os_stat st;
    if (strlen(a->data) > UPLOADS_DATA_MAX) {
        return err_set(a->e, ERR_IO, "the path of the data directory is too long");
    }
    (void)snprintf(a->us.uploads, sizeof a->us.uploads, "%s/uploads", a->data);
    (void)snprintf(a->us.receipts, sizeof a->us.receipts, "%s/receipts", a->data);
    (void)snprintf(a->packages, sizeof a->packages, "%s/" DELIVERY_PACKAGES, a->data);
    (void)snprintf(a->proofs, sizeof a->proofs, "%s/" PROOF_FOLDER, a->data);
    int uploads = artifact_stat(a, a->us.uploads, &st);
    int receipts = uploads < 0 ? uploads : artifact_stat(a, a->us.receipts, &st);
    a->out->absent = uploads == 0 && receipts == 0;
    return receipts < 0 ? receipts : 0;
}

int artifact_verify(const char *data, const struct artifact_verify_hooks *hooks,
                    struct artifact_verify_result *out, struct err *e)
{
    struct artifact_run a = {.hooks = hooks, .out = out, .e = e, .data = data};
    memset(out, 0, sizeof *out);
    int r = set_paths(&a);
    if (r == 0) {
        r = artifact_check_proofs(&a);
    }
    if (r == 0) {
        r = artifact_check_receipts(&a);
    }
    if (r == 0) {
        r = artifact_check_uploads(&a);
    }
    if (r == 0) {
        r = artifact_check_packages(&a);
    }
    (void)sqlite3_close(a.delivery);
    if (r == 0) {
        r = artifact_check_delivery(&a);
    }
    artifact_forget_proofs(&a);
    tell_the_rest(&a);
    return r;
}
