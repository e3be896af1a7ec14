/* delivery_plan_text: the plan as text, there and back.
 *
 * Format, one line with its newline, members in this order:
 *
 *     {"version":2,"package_id":P,"object_id":O,"project":J,"packager":"identity","sink":S,
 *      "directory":D,"credentials_file":C,"identifier":I,"metadata":{NAME:[TEXT, ...], ...},
 *      "retention_ms":n or null,
 *      "files":[{"name":N,"source":F,"size":n,"md5":M,"sha1":H,"blake3":B}, ... two of them]}
 *
 * Version 1, of older programs, lacks packager, credentials_file, metadata and retention_ms; it is
 * read, sent and written as it was. Version 3, of a merged package, has "members":n where version 2
 * has the object id, and the packager mergewarc.
 *
 * Invariant: a plan is believed only when writing it again gives the same bytes. That catches a
 * torn or foreign file without a second parser.
 *
 * Power failure: nothing here touches a file. Answers: a text that is no plan, and no memory. */
#include <stdio.h>

#include "store/artifact/delivery_plan.h"
#include "store/artifact/destination.h"
#include "store/artifact/settings.h"
#include "store/artifact/template.h"
#include "json/read.h"
#include "json/write.h"

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

void delivery_plan_put(struct buf *b, const struct delivery_plan *p)
{
    bool old = p->version == 1;

    buf_printf(b, "{\"version\":%u", p->version);
    put_text(b, "package_id", p->package_id);
    if (p->version == 3) {
        put_number(b, "members", p->members);
    } else {
        put_text(b, "object_id", p->object_id);
    }
    put_text(b, "project", p->project);
    if (!old) {
        put_text(b, "packager", p->packager);
    }
    put_text(b, "sink", p->to.sink);
    put_text(b, "directory", p->to.directory);
    if (!old) {
        put_text(b, "credentials_file", p->to.credentials_file);
    }
    put_text(b, "identifier", p->identifier);
    if (!old) {
        json_put_name(b, "metadata");
        buf_put_cstr(b, p->metadata);
        json_put_name(b, "retention_ms");
        if (p->retention_ms < 0) {
            buf_put_cstr(b, "null");
        } else {
            buf_put_i64(b, p->retention_ms);
        }
    }
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

static bool take_file(struct slice object, struct delivery_plan_file *f)
{
    struct slice size;

    return json_member_text(object, SLICE("name"), f->name, sizeof f->name) &&
           json_member_text(object, SLICE("source"), f->source, sizeof f->source) &&
           json_member(object, SLICE("size"), &size) && json_u64(size, &f->size) &&
           json_member_text(object, SLICE("md5"), f->digests.md5, sizeof f->digests.md5) &&
           json_member_text(object, SLICE("sha1"), f->digests.sha1, sizeof f->digests.sha1) &&
           json_member_text(object, SLICE("blake3"), f->digests.blake3, sizeof f->digests.blake3);
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

static bool take_retention(struct slice object, int64_t *out)
{
    struct slice value;
    uint64_t n;

    *out = -1;
    if (!json_member(object, SLICE("retention_ms"), &value)) {
        return false;
    }
    if (json_type_of(value) == JSON_NULL) {
        return true;
    }
    *out = json_u64(value, &n) && n <= INT64_MAX ? (int64_t)n : -1;
    return *out >= 0;
}

/* Kept as it is spelt: what is not spelt canonically is no plan of ours. */
static bool take_metadata(struct slice object, struct delivery_plan *p, bool *no_memory)
{
    struct slice value;
    struct buf again;
    struct err ignored;
    bool ok;
    int r;

    if (!json_member(object, SLICE("metadata"), &value) || value.len > DELIVERY_METADATA_MAX) {
        return false;
    }
    buf_init(&again, DELIVERY_METADATA_MAX);
    r = settings_metadata_put(value, &again, &ignored);
    ok = r == 0 && slice_eq(buf_slice(&again), value);
    *no_memory = r == ERR_NO_MEMORY || again.no_memory;
    buf_free(&again);
    if (ok) {
        memcpy(p->metadata, value.ptr, value.len);
        p->metadata[value.len] = '\0';
    }
    return ok;
}

/* What version 2 has and version 1 has not. */
static bool take_later(struct slice text, struct delivery_plan *p, bool *no_memory)
{
    if (p->version == 1) {
        memcpy(p->packager, DELIVERY_PACKAGER, sizeof DELIVERY_PACKAGER);
        memcpy(p->metadata, "{}", sizeof "{}");
        p->retention_ms = -1;
        return true;
    }
    return json_member_text(text, SLICE("packager"), p->packager, sizeof p->packager) &&
           json_member_text(text, SLICE("credentials_file"), p->to.credentials_file,
                            sizeof p->to.credentials_file) &&
           take_metadata(text, p, no_memory) && take_retention(text, &p->retention_ms);
}

static bool take_version(struct slice text, unsigned *out)
{
    struct slice value;
    uint64_t n;

    if (!json_member(text, SLICE("version"), &value) || !json_u64(value, &n) || n < 1 || n > 3) {
        return false;
    }
    *out = (unsigned)n;
    return true;
}

/* The one artifact, or how many there are. */
static bool take_members(struct slice text, struct delivery_plan *p)
{
    struct slice value;
    uint64_t n;

    if (p->version < 3) {
        return json_member_text(text, SLICE("object_id"), p->object_id, sizeof p->object_id);
    }
    if (!json_member(text, SLICE("members"), &value) || !json_u64(value, &n) || n < 1 ||
        n > DELIVERY_MEMBERS_MAX) {
        return false;
    }
    p->members = (unsigned)n;
    return true;
}

int delivery_plan_parse(struct slice text, struct delivery_plan *out, struct err *e)
{
    struct buf again = {0};
    bool no_memory = false;
    bool ok;
    int r = 0;

    memset(out, 0, sizeof *out);
    ok = text.len <= DELIVERY_TEXT_MAX && take_version(text, &out->version) &&
         json_member_text(text, SLICE("package_id"), out->package_id, sizeof out->package_id) &&
         take_members(text, out) &&
         json_member_text(text, SLICE("project"), out->project, sizeof out->project) &&
         json_member_text(text, SLICE("sink"), out->to.sink, sizeof out->to.sink) &&
         json_member_text(text, SLICE("directory"), out->to.directory, sizeof out->to.directory) &&
         json_member_text(text, SLICE("identifier"), out->identifier, sizeof out->identifier) &&
         take_later(text, out, &no_memory) && take_files(text, out);
    if (ok) {
        delivery_plan_put(&again, out);
    }
    if (again.failed || no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read a plan");
    } else if (!ok || !slice_eq(buf_slice(&again), text)) {
        r = err_set(e, ERR_CORRUPT, "it is no plan of this program");
    }
    buf_free(&again);
    return r;
}

/* ---- does it belong? ---- */

static bool names(const struct delivery_plan *p, const char *id, size_t len)
{
    char part[DELIVERY_PACKAGE_LEN + 1];

    (void)snprintf(part, sizeof part, "%.*s", (int)len, id);
    return strstr(p->identifier, part) != NULL || strstr(p->file[0].name, part) != NULL;
}

bool delivery_plan_own(const struct delivery_plan *p)
{
    return (p->members == 0 && names(p, p->object_id, UPLOAD_ID_LEN)) ||
           names(p, p->package_id, TEMPLATE_SHORT_LEN);
}

/* Names that a plan of this program can have: whoever writes into packages/ must not be able to
 * send something elsewhere. */
static bool names_allowed(const struct delivery_plan *p)
{
    struct err ignored;
    char name[DELIVERY_NAME_MAX + sizeof DELIVERY_MANIFEST_TAIL];

    (void)snprintf(name, sizeof name, "%s" DELIVERY_MANIFEST_TAIL, p->file[0].name);
    return strcmp(p->file[1].name, name) == 0 && delivery_plan_own(p) &&
           destination_identifier(p->to.sink, slice_cstr(p->identifier), &ignored) == 0 &&
           destination_name(p->to.sink, slice_cstr(p->file[0].name), &ignored) == 0;
}

static bool sources_right(const struct delivery_plan *p)
{
    char source[DELIVERY_SOURCE_MAX];

    (void)snprintf(source, sizeof source, "uploads/%s", p->object_id);
    if (p->members > 0) {
        (void)snprintf(source, sizeof source, DELIVERY_PACKAGES "/%s" DELIVERY_PAYLOAD_TAIL,
                       p->package_id);
    }
    if (strcmp(p->file[0].source, source) != 0) {
        return false;
    }
    (void)snprintf(source, sizeof source, DELIVERY_PACKAGES "/%s" DELIVERY_MANIFEST_TAIL,
                   p->package_id);
    return strcmp(p->file[1].source, source) == 0;
}

/* Version 1 had no templates. */
static bool names_of_old(const struct delivery_plan *p, const struct delivery_artifact *a)
{
    char name[DELIVERY_NAME_MAX];

    delivery_remote_name(a, name);
    return strcmp(p->identifier, a->object_id) == 0 && strcmp(p->file[0].name, name) == 0;
}

bool delivery_plan_fits(const struct delivery_plan *p, const struct delivery_artifact *a)
{
    char id[DELIVERY_PACKAGE_LEN + 1];

    delivery_package_id(a, id);
    return p->version < 3 && strcmp(p->package_id, id) == 0 &&
           strcmp(p->object_id, a->object_id) == 0 && strcmp(p->project, a->project) == 0 &&
           strcmp(p->packager, DELIVERY_PACKAGER) == 0 && p->file[0].size == a->size_bytes &&
           strcmp(p->file[0].digests.blake3, a->checksum) == 0 && sources_right(p) &&
           (p->version > 1 || names_of_old(p, a)) && names_allowed(p);
}

bool delivery_plan_fits_merged(const struct delivery_plan *p, const struct delivery_members *m)
{
    char id[DELIVERY_PACKAGE_LEN + 1];

    if (p->version != 3 || p->members != m->count || m->count == 0) {
        return false;
    }
    delivery_merged_id(m->item, m->count, id);
    return strcmp(p->package_id, id) == 0 && strcmp(p->project, m->item[0].project) == 0 &&
           strcmp(p->packager, DELIVERY_MERGEWARC) == 0 &&
           p->file[0].size == delivery_members_bytes(m) && sources_right(p) && names_allowed(p);
}
