/* delivery_plan: ids and names of packages, and the manifest of an identity package. (The plan as
 * text: delivery_plan_text.c. The manifest of a merged package: delivery_manifest.c.)
 *
 * Of the manifest, three lines: what the package is, what went in, what it is made of. Checksums
 * are lists of "algorithm:hex" in both of the last.
 *
 * Invariant: what a plan holds depends on the receipt, the declared name and the project's settings
 * alone, so that a build that is repeated gives the same bytes.
 *
 * Power failure: nothing here touches a file. Answers: settings that give no allowed place, and no
 * memory. A project's settings were checked with values at both ends of what they can be
 * (settings.c), so that this is met only by settings of an older or a newer program. */
#include "store/artifact/delivery_plan.h"

#include <stdio.h>

#include "base/ensure.h"
#include "store/artifact/destination.h"
#include "store/artifact/settings.h"
#include "store/artifact/template.h"
#include "json/write.h"

static_assert(DELIVERY_NAME_MAX > UPLOAD_FILENAME_MAX - 1, "a remote name holds a declared one");
static_assert(DELIVERY_FILES_MAX == 2, "an artifact and its manifest");
static_assert(sizeof((struct delivery_plan *)0)->to.sink == sizeof((struct artifact_sink *)0)->sink,
              "copied whole");

/* ---- ids ---- */

static void add_field(struct sha256 *h, const char *field)
{
    sha256_add(h, field, strlen(field) + 1);
}

static void package_id(const char *packager, const struct delivery_artifact *a, unsigned count,
                       char out[DELIVERY_PACKAGE_LEN + 1])
{
    struct sha256 h;
    uint8_t digest[SHA256_LEN];

    ensure(count > 0);
    sha256_start(&h);
    add_field(&h, "tallyman-package-v1");
    add_field(&h, packager);
    add_field(&h, a->project);
    for (unsigned i = 0; i < count; i++) {
        char checksum[sizeof "blake3:" + BLAKE3_HEX_LEN], size[24];

        (void)snprintf(checksum, sizeof checksum, "blake3:%s", a[i].checksum);
        (void)snprintf(size, sizeof size, "%llu", (unsigned long long)a[i].size_bytes);
        add_field(&h, a[i].object_id);
        add_field(&h, checksum);
        add_field(&h, size);
    }
    sha256_end(&h, digest);
    hex_encode(out, digest, sizeof digest);
    out[DELIVERY_PACKAGE_LEN] = '\0';
}

void delivery_package_id(const struct delivery_artifact *a, char out[DELIVERY_PACKAGE_LEN + 1])
{
    package_id(DELIVERY_PACKAGER, a, 1, out);
}

void delivery_merged_id(const struct delivery_artifact *a, unsigned count,
                        char out[DELIVERY_PACKAGE_LEN + 1])
{
    package_id(DELIVERY_MERGEWARC, a, count, out);
}

const char *delivery_plan_label(const struct delivery_plan *p)
{
    return p->members > 0 ? p->package_id : p->object_id;
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

/* ---- the place ---- */

struct expansion {
    struct template_values values;
    char filename[DELIVERY_NAME_MAX];
    char date[TEMPLATE_DATE_LEN + 1];
};

static void values_of(struct expansion *x, const struct delivery_plan *p,
                      const struct delivery_artifact *a)
{
    struct slice *v = x->values.value;

    delivery_remote_name(a, x->filename);
    if (!template_date(a->accepted_at, x->date)) {
        (void)snprintf(x->date, sizeof x->date, "00000000000000"); /* no server gives such a time */
    }
    if (p->members > 0) {
        settings_merged_name(slice_cstr(p->project), slice_of(p->package_id, TEMPLATE_SHORT_LEN),
                             x->filename);
    }
    v[TEMPLATE_PROJECT] = slice_cstr(p->project);
    v[TEMPLATE_OBJECT_ID] = slice_cstr(delivery_plan_label(p));
    v[TEMPLATE_PACKAGE_ID] = slice_cstr(p->package_id);
    v[TEMPLATE_PACKAGE_ID_SHORT] = slice_of(p->package_id, TEMPLATE_SHORT_LEN);
    v[TEMPLATE_FILENAME] = slice_cstr(x->filename);
    v[TEMPLATE_PACKAGE_FILENAME] = slice_cstr(x->filename);
    v[TEMPLATE_DATE] = slice_cstr(x->date);
}

/* Into an array of DELIVERY_NAME_MAX. */
static int expand(const char *template, const struct expansion *x, const char *what, char *out,
                  struct err *e)
{
    struct buf b;
    int r = 0;

    buf_init(&b, DELIVERY_NAME_MAX - 1);
    template_expand(slice_cstr(template), &x->values, &b);
    if (b.no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a plan");
    } else if (b.failed) {
        r = err_set(e, ERR_INVALID_PROJECT, "the project's %s: it is too long", what);
    } else {
        memset(out, 0, DELIVERY_NAME_MAX); /* a longer one may have been there */
        memcpy(out, b.ptr == NULL ? "" : b.ptr, b.len);
    }
    buf_free(&b);
    return r;
}

static int refuse(const char *what, const char *value, const struct err *why, struct err *e)
{
    return err_set(e, why->code, "the project's %s gives \"%.100s\": %.120s", what, value,
                   why->text);
}

/* A declared name that would complete one that the sink keeps for itself is replaced by the object
 * id: a file's name is never a reason to refuse it. */
static int place_files(struct delivery_plan *p, struct expansion *x, const char *template,
                       struct err *e)
{
    struct slice *v = x->values.value;
    struct err why = {0};
    int r = expand(template, x, "remote_name", p->file[0].name, e);
    int n;

    if (r == 0 && destination_reserved(p->to.sink, slice_cstr(p->file[0].name))) {
        v[TEMPLATE_FILENAME] = v[TEMPLATE_PACKAGE_FILENAME] = v[TEMPLATE_OBJECT_ID];
        r = expand(template, x, "remote_name", p->file[0].name, e);
    }
    if (r < 0) {
        return r;
    }
    n = snprintf(p->file[1].name, sizeof p->file[1].name, "%.*s" DELIVERY_MANIFEST_TAIL,
                 (int)(DELIVERY_NAME_MAX - sizeof DELIVERY_MANIFEST_TAIL), p->file[0].name);
    ensure(n > 0);
    for (unsigned i = 0; r == 0 && i < DELIVERY_FILES_MAX; i++) {
        r = destination_name(p->to.sink, slice_cstr(p->file[i].name), &why);
        r = r < 0 ? refuse("remote_name", p->file[i].name, &why, e) : 0;
    }
    if (r == 0 && !delivery_plan_own(p)) {
        r = err_set(e, ERR_INVALID_PROJECT,
                    "the project's identifier and remote_name name neither object nor package id");
    }
    return r;
}

static int place_metadata(struct delivery_plan *p, const struct expansion *x, const char *metadata,
                          struct err *e)
{
    struct err why = {0};
    struct buf b;
    int r;

    buf_init(&b, DELIVERY_METADATA_MAX);
    r = settings_metadata_expand(slice_cstr(metadata), &x->values, &b, NULL, &why);
    if (r < 0) {
        r = err_set(e, why.code, "the project's metadata: %.250s", why.text);
    } else {
        memcpy(p->metadata, b.ptr, b.len);
        p->metadata[b.len] = '\0';
    }
    buf_free(&b);
    return r;
}

static void place_begin(struct delivery_plan *p, const struct delivery_artifact *a,
                        const struct delivery_members *m, const struct artifact_sink *to)
{
    int n;

    memset(p, 0, sizeof *p);
    p->version = m == NULL ? 2 : 3;
    if (m == NULL) {
        delivery_package_id(a, p->package_id);
        memcpy(p->object_id, a->object_id, sizeof p->object_id);
    } else {
        p->members = m->count;
        delivery_merged_id(m->item, m->count, p->package_id);
    }
    memcpy(p->project, a->project, sizeof p->project);
    (void)snprintf(p->packager, sizeof p->packager, "%s",
                   m == NULL ? DELIVERY_PACKAGER : DELIVERY_MERGEWARC);
    memcpy(p->to.sink, to->sink, sizeof p->to.sink);
    memcpy(p->to.directory, to->directory, sizeof p->to.directory);
    memcpy(p->to.credentials_file, to->credentials_file, sizeof p->to.credentials_file);
    p->retention_ms = to->retention_ms > 0 ? to->retention_ms : -1;
    n = m == NULL ? snprintf(p->file[0].source, DELIVERY_SOURCE_MAX, "uploads/%s", a->object_id)
                  : snprintf(p->file[0].source, DELIVERY_SOURCE_MAX,
                             DELIVERY_PACKAGES "/%s" DELIVERY_PAYLOAD_TAIL, p->package_id);
    ensure(n > 0 && n < DELIVERY_SOURCE_MAX);
    n = snprintf(p->file[1].source, DELIVERY_SOURCE_MAX,
                 DELIVERY_PACKAGES "/%s" DELIVERY_MANIFEST_TAIL, p->package_id);
    ensure(n > 0 && n < DELIVERY_SOURCE_MAX);
}

/* m: of a merged package, with a as its first member; else NULL. */
static int begin(struct delivery_plan *p, const struct delivery_artifact *a,
                 const struct delivery_members *m, const struct artifact_sink *to, struct err *e)
{
    const char *identifier = to->identifier[0] != '\0' ? to->identifier : SETTINGS_IDENTIFIER;
    const char *remote_name = to->remote_name[0] != '\0' ? to->remote_name : SETTINGS_REMOTE_NAME;
    struct expansion x;
    struct err why = {0};
    int r;

    place_begin(p, a, m, to);
    values_of(&x, p, a);
    if (to->packager[0] != '\0' && strcmp(to->packager, DELIVERY_PACKAGER) != 0 &&
        strcmp(to->packager, DELIVERY_MERGEWARC) != 0) {
        return err_set(e, ERR_INVALID_PROJECT, "the project's packager is not known here: \"%s\"",
                       to->packager);
    }
    r = expand(identifier, &x, "identifier", p->identifier, e);
    if (r == 0) {
        r = destination_identifier(p->to.sink, slice_cstr(p->identifier), &why);
        r = r < 0 ? refuse("identifier", p->identifier, &why, e) : 0;
    }
    if (r == 0) {
        r = place_files(p, &x, remote_name, e);
    }
    if (r == 0) {
        r = place_metadata(p, &x, to->metadata[0] != '\0' ? to->metadata : "{}", e);
    }
    return r;
}

int delivery_plan_begin(struct delivery_plan *p, const struct delivery_artifact *a,
                        const struct artifact_sink *to, struct err *e)
{
    return begin(p, a, NULL, to, e);
}

int delivery_plan_begin_merged(struct delivery_plan *p, const struct delivery_members *m,
                               const struct artifact_sink *to, struct err *e)
{
    ensure(m->count > 0);
    return begin(p, m->item, m, to, e);
}

/* ---- the manifest ---- */

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
    buf_put_cstr(b, "{\"type\":\"tallyman-package\",\"version\":1,\"packager\":\"" DELIVERY_PACKAGER
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
