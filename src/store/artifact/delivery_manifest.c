/* delivery_manifest: the members of a merged package, and its manifest as text, there and back.
 *
 * Format, lines of JSON: the package, an input for each member in its order, the output.
 *
 *     {"type":"tallyman-package","version":1,"packager":"mergewarc","format":"warc-zstd"}
 *     {"type":"input","name":"OBJECT/FILENAME","object_id":O,"receipt_id":"receipt:O","offset":n,
 *      "size":n,"records":n,"checksums":["blake3:...","sha256:...","sha1:..."],"accepted_at":s}
 *     {"type":"output","size":n,
 *      "checksums":["blake3:...","sha256:...","sha1:...","md5:..."],"inputs":n}
 *
 * Offsets and sizes count bytes of the payload, as it is: each member's are a WARC-Zstd file again.
 *
 * Invariants: members are believed only when the package id that they give is the plan's, and an
 * input only when writing it again gives the same bytes. What the output line says is not read: the
 * plan says it, and has the digest of all of the manifest.
 *
 * Power failure: nothing here touches a file. Answers: a text that is no such manifest, and no
 * memory. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "store/artifact/delivery_plan.h"
#include "json/read.h"
#include "json/write.h"

#define HEAD                                                                          \
    "{\"type\":\"tallyman-package\",\"version\":1,\"packager\":\"" DELIVERY_MERGEWARC \
    "\",\"format\":\"warc-zstd\"}\n"

/* ---- members ---- */

int delivery_members_make(struct delivery_members *m, unsigned room, struct err *e)
{
    ensure(room > 0 && room <= DELIVERY_MEMBERS_MAX);
    m->count = 0;
    m->item = calloc(room, sizeof *m->item);
    return m->item != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for a package's members");
}

void delivery_members_free(struct delivery_members *m)
{
    free(m->item);
    *m = (struct delivery_members){0};
}

uint64_t delivery_members_bytes(const struct delivery_members *m)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < m->count; i++) {
        bytes += m->item[i].size_bytes;
    }
    return bytes;
}

/* ---- to text ---- */

static void put_number(struct buf *b, const char *name, uint64_t value)
{
    json_put_name(b, name);
    buf_put_u64(b, value);
}

static void put_input(struct buf *b, const struct delivery_artifact *a, uint64_t offset,
                      const struct delivery_member_facts *f)
{
    char name[UPLOAD_ID_LEN + 1 + UPLOAD_FILENAME_MAX + 1];

    (void)snprintf(name, sizeof name, "%s/%s", a->object_id,
                   a->filename[0] != '\0' ? a->filename : a->object_id);
    buf_put_cstr(b, "{\"type\":\"input\"");
    json_put_name(b, "name");
    json_put_string(b, slice_cstr(name));
    buf_printf(b, ",\"object_id\":\"%s\",\"receipt_id\":\"receipt:%s\"", a->object_id,
               a->object_id);
    put_number(b, "offset", offset);
    put_number(b, "size", a->size_bytes);
    put_number(b, "records", f->records);
    buf_printf(b, ",\"checksums\":[\"blake3:%s\",\"sha256:%s\",\"sha1:%s\"]", a->checksum,
               f->sha256, f->sha1);
    json_put_name(b, "accepted_at");
    buf_put_i64(b, a->accepted_at);
    buf_put_cstr(b, "}\n");
}

void delivery_manifest_put_merged(struct buf *b, const struct delivery_members *m,
                                  const struct delivery_member_facts *facts,
                                  const struct delivery_digests *payload, const char *sha256)
{
    uint64_t offset = 0;

    buf_put_cstr(b, HEAD);
    for (unsigned i = 0; i < m->count; i++) {
        put_input(b, &m->item[i], offset, &facts[i]);
        offset += m->item[i].size_bytes;
    }
    buf_put_cstr(b, "{\"type\":\"output\"");
    put_number(b, "size", offset);
    buf_printf(b, ",\"checksums\":[\"blake3:%s\",\"sha256:%s\",\"sha1:%s\",\"md5:%s\"]",
               payload->blake3, sha256, payload->sha1, payload->md5);
    put_number(b, "inputs", m->count);
    buf_put_cstr(b, "}\n");
}

/* ---- and back ---- */

/* "algorithm:hex"; false: another one, or none. */
static bool take_checksum(struct json_iter *list, const char *algorithm, char *out, size_t size)
{
    struct slice value, inner;
    size_t head = strlen(algorithm);

    if (!json_next_element(list, &value) || !json_string_raw(value, &inner) ||
        !slice_starts(inner, slice_cstr(algorithm)) || inner.len != head + size - 1) {
        return false;
    }
    memcpy(out, inner.ptr + head, size - 1);
    out[size - 1] = '\0';
    return true;
}

static bool take_u64(struct slice line, struct slice name, uint64_t *out)
{
    struct slice value;

    return json_member(line, name, &value) && json_u64(value, out) && *out <= INT64_MAX;
}

/* The part behind "OBJECT/": as declared, but for one that is the object id itself. */
static bool take_filename(struct slice line, struct delivery_artifact *a)
{
    char name[UPLOAD_ID_LEN + 1 + UPLOAD_FILENAME_MAX + 1];

    if (!json_member_text(line, SLICE("name"), name, sizeof name) ||
        strlen(name) <= UPLOAD_ID_LEN + 1 || name[UPLOAD_ID_LEN] != '/') {
        return false;
    }
    (void)snprintf(a->filename, sizeof a->filename, "%s", name + UPLOAD_ID_LEN + 1);
    if (strcmp(a->filename, a->object_id) == 0) {
        memset(a->filename, 0, sizeof a->filename);
    }
    return true;
}

static bool take_input(struct slice line, const struct delivery_plan *p, uint64_t offset,
                       struct delivery_artifact *a, struct buf *again)
{
    struct delivery_member_facts f;
    struct slice checksums;
    struct json_iter it;
    uint64_t accepted_at;

    memset(a, 0, sizeof *a);
    memcpy(a->project, p->project, sizeof a->project);
    if (!json_member_text(line, SLICE("object_id"), a->object_id, sizeof a->object_id) ||
        !upload_id_ok(slice_cstr(a->object_id)) || !take_filename(line, a) ||
        !take_u64(line, SLICE("size"), &a->size_bytes) ||
        !take_u64(line, SLICE("records"), &f.records) ||
        !take_u64(line, SLICE("accepted_at"), &accepted_at) ||
        !json_member(line, SLICE("checksums"), &checksums)) {
        return false;
    }
    a->accepted_at = (int64_t)accepted_at;
    it = json_iter_array(checksums);
    if (!take_checksum(&it, "blake3:", a->checksum, sizeof a->checksum) ||
        !take_checksum(&it, "sha256:", f.sha256, sizeof f.sha256) ||
        !take_checksum(&it, "sha1:", f.sha1, sizeof f.sha1)) {
        return false;
    }
    buf_clear(again);
    put_input(again, a, offset, &f);
    return !again->failed && slice_eq(buf_slice(again), line);
}

/* The next line with its end; false: there is none. */
static bool next_line(struct slice *text, struct slice *line)
{
    const char *end = text->len > 0 ? memchr(text->ptr, '\n', text->len) : NULL;

    if (end == NULL) {
        return false;
    }
    *line = slice_of(text->ptr, (size_t)(end - text->ptr) + 1);
    *text = slice_from(*text, line->len);
    return true;
}

static bool take_lines(struct slice text, const struct delivery_plan *p,
                       struct delivery_members *out, struct buf *again)
{
    char id[DELIVERY_PACKAGE_LEN + 1];
    struct slice line;
    uint64_t offset = 0;

    if (!slice_starts(text, SLICE(HEAD))) {
        return false;
    }
    text = slice_from(text, sizeof HEAD - 1);
    while (out->count < p->members) {
        struct delivery_artifact *a = &out->item[out->count];
        if (!next_line(&text, &line) || !take_input(line, p, offset, a, again) ||
            a->size_bytes > INT64_MAX - offset) {
            return false;
        }
        offset += a->size_bytes;
        out->count++;
    }
    delivery_merged_id(out->item, out->count, id);
    return next_line(&text, &line) && slice_starts(line, SLICE("{\"type\":\"output\"")) &&
           text.len == 0 && strcmp(id, p->package_id) == 0;
}

int delivery_manifest_parse(struct slice text, const struct delivery_plan *p,
                            struct delivery_members *out, struct err *e)
{
    struct buf again = {0};
    bool ok = text.len <= DELIVERY_MERGED_TEXT_MAX && p->version == 3 && p->members > 0;
    int r;

    *out = (struct delivery_members){0};
    r = ok ? delivery_members_make(out, p->members, e) : 0;
    if (r < 0) {
        return r;
    }
    ok = ok && take_lines(text, p, out, &again);
    if (again.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read a manifest");
    } else if (!ok) {
        r = err_set(e, ERR_CORRUPT, "it is no manifest of this package");
    }
    buf_free(&again);
    if (r < 0) {
        delivery_members_free(out);
    }
    return r;
}
