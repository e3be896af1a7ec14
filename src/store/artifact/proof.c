/* proof: what is known of a package that the far side has.
 *
 * Format, one line with its newline, members in this order:
 *
 *     {"version":1,"package_id":P,"sent_at":s,"verified_at":s,
 *      "members":[{"object_id":O,"filename":F,"checksum":"blake3:...","size":n,"offset":0,
 *                  "accepted_at":s}],
 *      "plan":{...}}
 *
 * Version 2 is of a merged package: members in their order, offset as each is in the payload.
 *
 * The plan is the text of packages/PACKAGE.plan.json without its newline: sink, identifier, remote
 * names, sizes and digests of the files that were verified.
 *
 * Invariants: a proof is believed only when writing it again gives the same bytes, and when its
 * plan was made for its members. The first proof of a package stays: what it says was true when it
 * was written, and bytes may have gone on its word.
 *
 * If power fails: there is a temporary name, which proof_folder removes at the next start, or the
 * whole proof; no byte has gone before proof_write has returned.
 *
 * Answers: every failure. */
#include "store/artifact/proof.h"

#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"
#include "json/read.h"
#include "json/write.h"

#define CHECKSUM_HEAD "blake3:"
#define PATH_BYTES    4400

/* ---- text ---- */

static void put_text(struct buf *b, const char *name, const char *value)
{
    json_put_name(b, name);
    json_put_string(b, slice_cstr(value));
}

static void put_time(struct buf *b, const char *name, int64_t value)
{
    json_put_name(b, name);
    buf_put_i64(b, value);
}

unsigned proof_count(const struct proof *p)
{
    return p->members.count > 0 ? p->members.count : 1;
}

const struct delivery_artifact *proof_member(const struct proof *p, unsigned i)
{
    ensure(i < proof_count(p));
    return p->members.count > 0 ? &p->members.item[i] : &p->artifact;
}

void proof_free(struct proof *p)
{
    delivery_members_free(&p->members);
}

static void put_member(struct buf *b, const struct delivery_artifact *a, uint64_t offset)
{
    char checksum[sizeof CHECKSUM_HEAD + BLAKE3_HEX_LEN];

    (void)snprintf(checksum, sizeof checksum, CHECKSUM_HEAD "%s", a->checksum);
    buf_put_char(b, '{');
    put_text(b, "object_id", a->object_id);
    put_text(b, "filename", a->filename);
    put_text(b, "checksum", checksum);
    json_put_name(b, "size");
    buf_put_u64(b, a->size_bytes);
    json_put_name(b, "offset");
    buf_put_u64(b, offset);
    put_time(b, "accepted_at", a->accepted_at);
    buf_put_char(b, '}');
}

void proof_put(struct buf *b, const struct proof *p)
{
    uint64_t offset = 0;

    buf_put_cstr(b, p->members.count > 0 ? "{\"version\":2" : "{\"version\":1");
    put_text(b, "package_id", p->plan.package_id);
    put_time(b, "sent_at", p->sent_at);
    put_time(b, "verified_at", p->verified_at);
    json_put_name(b, "members");
    buf_put_char(b, '[');
    for (unsigned i = 0; i < proof_count(p); i++) {
        if (i > 0) {
            buf_put_char(b, ',');
        }
        put_member(b, proof_member(p, i), offset);
        offset += proof_member(p, i)->size_bytes;
    }
    buf_put_char(b, ']');
    json_put_name(b, "plan");
    delivery_plan_put(b, &p->plan);
    if (b->failed) {
        return;
    }
    ensure(b->ptr[b->len - 1] == '\n');
    b->len--;
    buf_put_cstr(b, "}\n");
}

static bool take_time(struct slice object, struct slice name, int64_t *out)
{
    struct slice value;
    uint64_t n;

    if (!json_member(object, name, &value) || !json_u64(value, &n) || n > INT64_MAX) {
        return false;
    }
    *out = (int64_t)n;
    return true;
}

static bool take_member(struct slice member, const char *project, struct delivery_artifact *a)
{
    char checksum[sizeof CHECKSUM_HEAD + BLAKE3_HEX_LEN];
    struct slice size;

    if (!json_member_text(member, SLICE("object_id"), a->object_id, sizeof a->object_id) ||
        !json_member_text(member, SLICE("filename"), a->filename, sizeof a->filename) ||
        !json_member_text(member, SLICE("checksum"), checksum, sizeof checksum) ||
        strncmp(checksum, CHECKSUM_HEAD, sizeof CHECKSUM_HEAD - 1) != 0 ||
        !json_member(member, SLICE("size"), &size) || !json_u64(size, &a->size_bytes) ||
        a->size_bytes > INT64_MAX || !take_time(member, SLICE("accepted_at"), &a->accepted_at)) {
        return false;
    }
    memcpy(a->checksum, checksum + sizeof CHECKSUM_HEAD - 1, sizeof a->checksum);
    memcpy(a->project, project, sizeof a->project);
    return upload_id_ok(slice_cstr(a->object_id));
}

/* As many as the plan says, which is read already. */
static bool take_members(struct slice text, struct proof *p)
{
    struct slice members, member;
    struct json_iter it;
    unsigned want = p->plan.members > 0 ? p->plan.members : 1;
    unsigned n = 0;
    uint64_t bytes = 0;

    if (!json_member(text, SLICE("members"), &members)) {
        return false;
    }
    it = json_iter_array(members);
    for (; n < want && json_next_element(&it, &member); n++) {
        struct delivery_artifact *a = p->plan.members > 0 ? &p->members.item[n] : &p->artifact;
        if (!take_member(member, p->plan.project, a) || a->size_bytes > INT64_MAX - bytes) {
            return false;
        }
        bytes += a->size_bytes;
    }
    if (p->plan.members > 0) {
        p->members.count = n;
        p->artifact = p->members.item[0];
    }
    return n == want;
}

static int take_plan(struct slice text, struct delivery_plan *out, bool *ok, struct err *e)
{
    struct slice value;
    struct buf line = {0};
    int r;

    if (!json_member(text, SLICE("plan"), &value)) {
        *ok = false;
        return 0;
    }
    buf_put_slice(&line, value);
    buf_put_char(&line, '\n');
    r = line.failed ? err_set(e, ERR_NO_MEMORY, "no memory to read a proof")
                    : delivery_plan_parse(buf_slice(&line), out, e);
    buf_free(&line);
    *ok = r != ERR_CORRUPT;
    return r == ERR_CORRUPT ? 0 : r;
}

static int believe(struct slice text, const struct proof *p, bool *ok, struct err *e)
{
    struct buf again = {0};
    int r = 0;

    proof_put(&again, p);
    if (again.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to read a proof");
    }
    *ok = slice_eq(buf_slice(&again), text) &&
          (p->plan.members > 0 ? delivery_plan_fits_merged(&p->plan, &p->members)
                               : delivery_plan_fits(&p->plan, &p->artifact));
    buf_free(&again);
    return r;
}

int proof_parse(struct slice text, struct proof *out, struct err *e)
{
    bool ok;
    int r;

    memset(out, 0, sizeof *out);
    if (text.len > PROOF_TEXT_MAX) {
        return err_set(e, ERR_CORRUPT, "it is no proof of this program");
    }
    r = take_plan(text, &out->plan, &ok, e);
    if (r == 0 && ok && out->plan.members > 0) {
        r = delivery_members_make(&out->members, out->plan.members, e);
    }
    ok = ok && r == 0 && take_members(text, out) &&
         take_time(text, SLICE("sent_at"), &out->sent_at) &&
         take_time(text, SLICE("verified_at"), &out->verified_at);
    if (ok) {
        r = believe(text, out, &ok, e);
    }
    if (r == 0 && !ok) {
        r = err_set(e, ERR_CORRUPT, "it is no proof of this program");
    }
    if (r < 0) {
        proof_free(out);
    }
    return r;
}

/* ---- files ---- */

static void path_of(char out[PATH_BYTES], const char *data, const char *prefix, const char *name)
{
    int n = snprintf(out, PATH_BYTES, "%s/" PROOF_FOLDER "%s%s%s", data, name[0] != '\0' ? "/" : "",
                     prefix, name);

    ensure(n > 0);
    ensure(n < PATH_BYTES);
}

static void file_name(char out[DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL], const char *package_id)
{
    ensure(strlen(package_id) == DELIVERY_PACKAGE_LEN);
    (void)snprintf(out, DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL, "%s" PROOF_TAIL, package_id);
}

bool proof_name(const char *name, char package_id[DELIVERY_PACKAGE_LEN + 1])
{
    if (strlen(name) != DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL - 1 ||
        strcmp(name + DELIVERY_PACKAGE_LEN, PROOF_TAIL) != 0 ||
        strspn(name, "0123456789abcdef") < DELIVERY_PACKAGE_LEN) {
        return false;
    }
    memcpy(package_id, name, DELIVERY_PACKAGE_LEN);
    package_id[DELIVERY_PACKAGE_LEN] = '\0';
    return true;
}

struct clean {
    const char *data;
    struct err *e;
    int failed;
};

static int clean_one(void *ctx, const char *name)
{
    struct clean *c = ctx;
    char path[PATH_BYTES];

    if (strncmp(name, PROOF_TEMP, sizeof PROOF_TEMP - 1) == 0 &&
        strlen(name) == sizeof PROOF_TEMP - 1 + DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL - 1) {
        path_of(path, c->data, "", name);
        int r = os_unlink(path);
        if (r < 0 && r != -ENOENT && c->failed == 0) {
            c->failed = err_os(c->e, r, "remove", path);
        }
    }
    return 0;
}

int proof_folder(const char *data, struct err *e)
{
    struct clean c = {.data = data, .e = e};
    char path[PATH_BYTES];
    int r;

    path_of(path, data, "", "");
    r = os_mkdir_exist_ok(path, 0750);
    if (r < 0) {
        return err_os(e, r, "make", path);
    }
    r = os_sync_dir(data);
    if (r < 0) {
        return err_os(e, r, "sync", data);
    }
    r = os_list(path, clean_one, &c);
    return r < 0 ? err_os(e, r, "list", path) : c.failed;
}

int proof_read(const char *data, const char *package_id, struct proof *out, struct err *e)
{
    char name[DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL], path[PATH_BYTES];
    struct buf text = {0};
    int r;

    file_name(name, package_id);
    path_of(path, data, "", name);
    r = upload_read_file(path, PROOF_TEXT_MAX, &text, NULL, e);
    if (r == 0) {
        r = proof_parse(buf_slice(&text), out, e);
        if (r == 0 && strcmp(out->plan.package_id, package_id) != 0) {
            proof_free(out);
            r = err_set(e, ERR_CORRUPT, "it is the proof of another package");
        }
        buf_free(&text);
    }
    return r;
}

/* The first proof stays; it was renamed, and its sync may have failed. */
static int keep(const char *data, const char *path, const struct proof *old, const struct proof *p,
                struct err *e)
{
    char folder[PATH_BYTES];
    struct proof now = *p;
    struct buf a = {0}, b = {0};
    int r;

    now.sent_at = old->sent_at;
    now.verified_at = old->verified_at;
    proof_put(&a, old);
    proof_put(&b, &now);
    if (a.failed || b.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for a proof");
    } else if (!slice_eq(buf_slice(&a), buf_slice(&b))) {
        r = err_set(e, ERR_CORRUPT, "%s is the proof of something else", path);
    } else {
        r = upload_sync_file(path, e);
    }
    buf_free(&a);
    buf_free(&b);
    if (r == 0) {
        path_of(folder, data, "", "");
        r = os_sync_dir(folder);
        r = r < 0 ? err_os(e, r, "sync", folder) : 0;
    }
    return r;
}

int proof_write(const char *data, const struct proof *p, struct err *e)
{
    char name[DELIVERY_PACKAGE_LEN + sizeof PROOF_TAIL];
    char path[PATH_BYTES], temp[PATH_BYTES], folder[PATH_BYTES];
    struct buf text = {0};
    struct proof old;
    int r = proof_read(data, p->plan.package_id, &old, e);

    file_name(name, p->plan.package_id);
    path_of(path, data, "", name);
    if (r == 0) {
        r = keep(data, path, &old, p, e);
        proof_free(&old);
        return r;
    }
    if (r != ERR_NOT_FOUND) {
        return r;
    }
    path_of(temp, data, PROOF_TEMP, name);
    path_of(folder, data, "", "");
    proof_put(&text, p);
    r = text.failed ? err_set(e, ERR_NO_MEMORY, "no memory for a proof")
                    : upload_commit_file(temp, path, folder, buf_slice(&text), e);
    buf_free(&text);
    return r;
}
