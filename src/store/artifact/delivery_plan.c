/* delivery_plan: ids, names, manifest and plan of an identity package.
 *
 * Format of the plan, one line with its newline, members in this order:
 *
 *     {"version":1,"package_id":P,"object_id":O,"project":J,"sink":S,"directory":D,"identifier":I,
 *      "files":[{"name":N,"source":F,"size":n,"md5":M,"sha1":H,"blake3":B}, ... two of them]}
 *
 * Of the manifest, three lines: what the package is, what went in, what it is made of. Checksums
 * are lists of "algorithm:hex" in both of the last.
 *
 * Invariant: a plan is believed only when writing it again gives the same bytes. That catches a
 * torn or foreign file without a second parser.
 *
 * Power failure: nothing here touches a file. Answers: a text that is no plan, and no memory.
 * Aborts: texts that do not fit the arrays made for them, which their sources bound. */
#include "store/artifact/delivery_plan.h"

#include <stdio.h>

#include "base/ensure.h"
#include "json/read.h"
#include "json/write.h"

#define PACKAGER "identity"

static_assert(DELIVERY_NAME_MAX > UPLOAD_FILENAME_MAX - 1, "a remote name holds a declared one");
static_assert(DELIVERY_FILES_MAX == 2, "an artifact and its manifest");

void delivery_package_id(const struct delivery_artifact *a, char out[DELIVERY_PACKAGE_LEN + 1])
{
    char checksum[sizeof "blake3:" + BLAKE3_HEX_LEN], size[24];
    const char *const fields[] = {"tallyman-package-v1", PACKAGER, a->project,
                                  a->object_id,          checksum, size};
    struct sha256 h;
    uint8_t digest[SHA256_LEN];

    (void)snprintf(checksum, sizeof checksum, "blake3:%s", a->checksum);
    (void)snprintf(size, sizeof size, "%llu", (unsigned long long)a->size_bytes);
    sha256_start(&h);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        sha256_add(&h, fields[i], strlen(fields[i]) + 1);
    }
    sha256_end(&h, digest);
    hex_encode(out, digest, sizeof digest);
    out[DELIVERY_PACKAGE_LEN] = '\0';
}

static bool name_byte(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

void delivery_remote_name(const struct delivery_artifact *a, char out[DELIVERY_NAME_MAX])
{
    size_t n = 0;

    for (; a->filename[n] != '\0' && n < DELIVERY_FILENAME_MAX; n++) {
        out[n] = a->filename[n];
        if (!name_byte(out[n])) {
            out[n] = '_';
        }
    }
    out[n] = '\0';
    /* A leading dot would hide it and could be a temporary name of ours; dots alone have one. */
    if (n == 0 || out[0] == '.') {
        (void)snprintf(out, DELIVERY_NAME_MAX, "%s", a->object_id);
    }
    ensure(out[0] != '\0');
    ensure(out[0] != '.');
}

void delivery_plan_begin(struct delivery_plan *p, const struct delivery_artifact *a,
                         const struct artifact_sink *to)
{
    int n;

    memset(p, 0, sizeof *p);
    delivery_package_id(a, p->package_id);
    memcpy(p->object_id, a->object_id, sizeof p->object_id);
    memcpy(p->project, a->project, sizeof p->project);
    p->to = *to;
    memcpy(p->identifier, a->object_id, sizeof a->object_id);
    delivery_remote_name(a, p->file[0].name);
    n = snprintf(p->file[1].name, sizeof p->file[1].name, "%.*s" DELIVERY_MANIFEST_TAIL,
                 DELIVERY_FILENAME_MAX, p->file[0].name);
    ensure(n > 0);
    n = snprintf(p->file[0].source, DELIVERY_SOURCE_MAX, "uploads/%s", a->object_id);
    ensure(n > 0 && n < DELIVERY_SOURCE_MAX);
    n = snprintf(p->file[1].source, DELIVERY_SOURCE_MAX,
                 DELIVERY_PACKAGES "/%s" DELIVERY_MANIFEST_TAIL, p->package_id);
    ensure(n > 0 && n < DELIVERY_SOURCE_MAX);
}

static void put_text(struct buf *b, const char *name, const char *value)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(value));
}

static void put_number(struct buf *b, const char *name, uint64_t value)
{
    json_put_name(b, name);
    buf_put_u64(b, value);
}

static void put_checksums(struct buf *b, const struct delivery_digests *d)
{
    json_put_name(b, "checksums");
    buf_printf(b, "[\"blake3:%s\",\"md5:%s\",\"sha1:%s\"]", d->blake3, d->md5, d->sha1);
}

void delivery_manifest_put(struct buf *b, const struct delivery_artifact *a,
                           const struct delivery_digests *d)
{
    char name[UPLOAD_ID_LEN + 1 + UPLOAD_FILENAME_MAX + 1];
    char receipt[sizeof "receipt:" + UPLOAD_ID_LEN];

    (void)snprintf(name, sizeof name, "%s/%s", a->object_id,
                   a->filename[0] != '\0' ? a->filename : a->object_id);
    (void)snprintf(receipt, sizeof receipt, "receipt:%s", a->object_id);
    buf_put_cstr(b, "{\"type\":\"tallyman-package\",\"version\":1,\"packager\":\"" PACKAGER
                    "\",\"format\":\"artifact\"}\n{\"type\":\"input\"");
    put_text(b, "name", name);
    put_text(b, "object_id", a->object_id);
    put_text(b, "receipt_id", receipt);
    put_number(b, "offset", 0);
    put_number(b, "size", a->size_bytes);
    put_checksums(b, d);
    json_put_name(b, "accepted_at");
    buf_put_i64(b, a->accepted_at);
    buf_put_cstr(b, "}\n{\"type\":\"output\"");
    put_number(b, "size", a->size_bytes);
    put_checksums(b, d);
    put_number(b, "inputs", 1);
    buf_put_cstr(b, "}\n");
}

void delivery_plan_put(struct buf *b, const struct delivery_plan *p)
{
    buf_put_cstr(b, "{\"version\":1");
    put_text(b, "package_id", p->package_id);
    put_text(b, "object_id", p->object_id);
    put_text(b, "project", p->project);
    put_text(b, "sink", p->to.sink);
    put_text(b, "directory", p->to.directory);
    put_text(b, "identifier", p->identifier);
    json_put_name(b, "files");
    buf_put_char(b, '[');
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        const struct delivery_plan_file *f = &p->file[i];
        buf_put_cstr(b, i == 0 ? "{" : ",{");
        put_text(b, "name", f->name);
        put_text(b, "source", f->source);
        put_number(b, "size", f->size);
        put_text(b, "md5", f->digests.md5);
        put_text(b, "sha1", f->digests.sha1);
        put_text(b, "blake3", f->digests.blake3);
        buf_put_char(b, '}');
    }
    buf_put_cstr(b, "]}\n");
}

/* ---- reading it back ---- */

static bool take_text(struct slice object, struct slice name, char *out, size_t size)
{
    struct slice value, inner;
    struct buf text = {0};
    bool ok = json_member(object, name, &value) && json_string_raw(value, &inner) &&
              json_string_len(inner) < size;

    if (ok) {
        json_unescape(inner, &text);
        ok = !text.failed;
        if (ok && text.len > 0) {
            memcpy(out, text.ptr, text.len);
        }
        out[ok ? text.len : 0] = '\0';
    }
    buf_free(&text);
    return ok;
}

static bool take_file(struct slice object, struct delivery_plan_file *f)
{
    struct slice size;

    return take_text(object, SLICE("name"), f->name, sizeof f->name) &&
           take_text(object, SLICE("source"), f->source, sizeof f->source) &&
           json_member(object, SLICE("size"), &size) && json_u64(size, &f->size) &&
           take_text(object, SLICE("md5"), f->digests.md5, sizeof f->digests.md5) &&
           take_text(object, SLICE("sha1"), f->digests.sha1, sizeof f->digests.sha1) &&
           take_text(object, SLICE("blake3"), f->digests.blake3, sizeof f->digests.blake3);
}

static bool take_files(struct slice object, struct delivery_plan *p)
{
    struct slice files, file;
    struct json_iter it;
    unsigned n = 0;

    if (!json_member(object, SLICE("files"), &files)) {
        return false;
    }
    it = json_iter_array(files);
    for (; n < DELIVERY_FILES_MAX && json_next_element(&it, &file); n++) {
        if (!take_file(file, &p->file[n])) {
            return false;
        }
    }
    return n == DELIVERY_FILES_MAX;
}

int delivery_plan_parse(struct slice text, struct delivery_plan *out, struct err *e)
{
    struct buf again = {0};
    bool ok;
    int r = 0;

    memset(out, 0, sizeof *out);
    ok = text.len <= DELIVERY_TEXT_MAX &&
         take_text(text, SLICE("package_id"), out->package_id, sizeof out->package_id) &&
         take_text(text, SLICE("object_id"), out->object_id, sizeof out->object_id) &&
         take_text(text, SLICE("project"), out->project, sizeof out->project) &&
         take_text(text, SLICE("sink"), out->to.sink, sizeof out->to.sink) &&
         take_text(text, SLICE("directory"), out->to.directory, sizeof out->to.directory) &&
         take_text(text, SLICE("identifier"), out->identifier, sizeof out->identifier) &&
         take_files(text, out);
    if (ok) {
        delivery_plan_put(&again, out);
    }
    if (again.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read a plan");
    } else if (!ok || !slice_eq(buf_slice(&again), text)) {
        r = err_set(e, ERR_CORRUPT, "it is no plan of this program");
    }
    buf_free(&again);
    return r;
}

bool delivery_plan_fits(const struct delivery_plan *p, const struct delivery_artifact *a)
{
    struct delivery_plan want;
    bool same;

    delivery_plan_begin(&want, a, &p->to);
    same = strcmp(p->package_id, want.package_id) == 0 &&
           strcmp(p->object_id, want.object_id) == 0 && strcmp(p->project, want.project) == 0 &&
           strcmp(p->identifier, want.identifier) == 0 && p->file[0].size == a->size_bytes &&
           strcmp(p->file[0].digests.blake3, a->checksum) == 0;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        same = same && strcmp(p->file[i].name, want.file[i].name) == 0 &&
               strcmp(p->file[i].source, want.file[i].source) == 0;
    }
    return same;
}
