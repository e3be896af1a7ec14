/* delivery_change: the changes of delivery.sqlite: what is added and the steps of the state tables
 * in delivery_index.c.
 *
 * Each step is one statement, or a transaction of a few. A step that does not find its row in the
 * state it starts from found somebody else's hand in the file: the process ends, and its next start
 * takes up what is there.
 *
 * Power failure: a commit that returned is on disk, one that did not is there whole or not at all.
 * Answers: every error. */
#include <errno.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "store/artifact/delivery_index_internal.h"

int index_run(struct delivery_index *ix, enum index_statement which, bool changed, const char *what,
              struct err *e)
{
    struct sqlite3_stmt *st = ix->st[which];
    int r = db_run(st, what, e);

    if (r == 0 && changed && sqlite3_changes64(ix->db) != 1) {
        r = err_set(e, ERR_CORRUPT, "%s: %lld rows instead of one were in the state for it", what,
                    (long long)sqlite3_changes64(ix->db));
    }
    sqlite3_clear_bindings(st);
    return r;
}

int delivery_index_begin(struct delivery_index *ix, struct err *e)
{
    return index_run(ix, INDEX_BEGIN, false, "begin", e);
}

int delivery_index_commit(struct delivery_index *ix, struct err *e)
{
    return index_run(ix, INDEX_COMMIT, false, "commit", e);
}

void delivery_index_undo(struct delivery_index *ix)
{
    struct err ignored;

    if (sqlite3_get_autocommit(ix->db) == 0 &&
        index_run(ix, INDEX_ROLLBACK, false, "undo", &ignored) < 0) {
        log_line(LOG_WARN, "deliver", "%s", ignored.text);
    }
}

/* ---- additions ---- */

int delivery_index_has(struct delivery_index *ix, const char *object_id, bool *has, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_HAS];
    int r;

    db_bind_text(st, 1, slice_cstr(object_id));
    r = db_step(st, "look for an artifact", e);
    *has = r > 0;
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

int index_add_artifact(struct delivery_index *ix, const struct delivery_artifact *a, bool waiting,
                       struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ADD_ARTIFACT];
    char name[UPLOAD_ID_LEN + sizeof ".json"];
    int r;

    ensure(sqlite3_get_autocommit(ix->db) == 0); /* some rows, one transaction: the caller's */
    ensure(a->size_bytes <= INT64_MAX);
    db_bind_text(st, 1, slice_cstr(a->object_id));
    db_bind_text(st, 2, slice_cstr(a->project));
    db_bind_text(st, 3, slice_cstr(a->filename));
    db_bind_text(st, 4, slice_cstr(a->checksum));
    db_bind_int(st, 5, (int64_t)a->size_bytes);
    db_bind_int(st, 6, a->accepted_at);
    db_bind_int(st, 7, waiting ? 1 : 0);
    r = index_run(ix, INDEX_ADD_ARTIFACT, true, "add an artifact", e);
    if (r == 0) {
        (void)snprintf(name, sizeof name, "%s.json", a->object_id);
        db_bind_text(ix->st[INDEX_SKIP_NO_MORE], 1, slice_cstr(name));
        r = index_run(ix, INDEX_SKIP_NO_MORE, false, "forget a skipped name", e);
    }
    return r;
}

static int add_member(struct delivery_index *ix, const char *package_id,
                      const struct delivery_artifact *a, unsigned ordinal, uint64_t offset,
                      struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ADD_MEMBER];

    db_bind_text(st, 1, slice_cstr(package_id));
    db_bind_text(st, 2, slice_cstr(a->object_id));
    db_bind_int(st, 3, (int64_t)a->size_bytes);
    db_bind_text(st, 4, slice_cstr(a->checksum));
    db_bind_int(st, 6, ordinal);
    db_bind_int(st, 7, (int64_t)offset);
    return index_run(ix, INDEX_ADD_MEMBER, true, "add a member", e);
}

int index_add_package(struct delivery_index *ix, const struct delivery_artifact *a, unsigned count,
                      bool merged, int64_t due_ms, int64_t now_ms, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ADD_PACKAGE];
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    uint64_t bytes = 0, offset = 0;
    int r;

    ensure(count > 0);
    ensure(merged || count == 1);
    for (unsigned i = 0; i < count; i++) {
        bytes += a[i].size_bytes;
    }
    if (merged) {
        delivery_merged_id(a, count, package_id);
    } else {
        delivery_package_id(a, package_id);
    }
    db_bind_text(st, 1, slice_cstr(package_id));
    db_bind_text(st, 2, slice_cstr(a->project));
    db_bind_int(st, 3, now_ms / 1000);
    db_bind_int(st, 4, due_ms);
    db_bind_int(st, 5, (int64_t)bytes);
    db_bind_text(st, 6, merged ? SLICE(DELIVERY_MERGEWARC) : SLICE(DELIVERY_PACKAGER));
    db_bind_int(st, 7, count);
    r = index_run(ix, INDEX_ADD_PACKAGE, true, "add a package", e);
    for (unsigned i = 0; r == 0 && i < count; i++) {
        r = add_member(ix, package_id, &a[i], i + 1, offset, e);
        offset += a[i].size_bytes;
    }
    return r;
}

int delivery_index_add_waiting(struct delivery_index *ix, const struct delivery_artifact *a,
                               struct err *e)
{
    return index_add_artifact(ix, a, true, e);
}

int delivery_index_add(struct delivery_index *ix, const struct delivery_artifact *a, int64_t now_ms,
                       struct err *e)
{
    /* In the order of acceptance, but a clock that was wrong must not postpone anything. */
    int64_t due_ms = a->accepted_at < now_ms / 1000 ? a->accepted_at * 1000 : now_ms;
    int r = index_add_artifact(ix, a, false, e);

    return r == 0 ? index_add_package(ix, a, 1, false, due_ms, now_ms, e) : r;
}

int delivery_index_skip(struct delivery_index *ix, const char *name, const char *reason,
                        int64_t now, bool *first, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_SKIP];
    int r;

    db_bind_text(st, 1, slice_cstr(name));
    db_bind_int(st, 3, now);
    db_bind_text(st, 5, slice_cstr(reason));
    r = index_run(ix, INDEX_SKIP, false, "note a skipped name", e);
    *first = r == 0 && sqlite3_changes64(ix->db) == 1;
    return r;
}

/* ---- steps ---- */

/* At most DELIVERY_ERROR_MAX - 1 bytes, not cut inside a character. */
static struct slice bounded(const char *text)
{
    size_t n = strlen(text);

    if (n >= DELIVERY_ERROR_MAX) {
        n = DELIVERY_ERROR_MAX - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) {
            n--;
        }
    }
    return slice_of(text, n);
}

struct change {
    const char *package_id;
    const char *sink; /* NULL: a build */
    int64_t now;
    int64_t due_ms;      /* bound when >= 0 */
    const char *text;    /* bound when not NULL; SEAL_SEND: the identifier */
    const char *way_out; /* likewise; SEAL_SEND: the path of the credentials */
};

static int change(struct delivery_index *ix, enum index_statement which, const struct change *c,
                  const char *what, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[which];

    db_bind_text(st, 1, slice_cstr(c->package_id));
    if (c->sink != NULL) {
        db_bind_text(st, 2, slice_cstr(c->sink));
    }
    db_bind_int(st, 3, c->now);
    if (c->due_ms >= 0) {
        db_bind_int(st, 4, c->due_ms);
    }
    if (c->text != NULL) {
        db_bind_text(st, 5, which == INDEX_SEAL_SEND ? slice_cstr(c->text) : bounded(c->text));
    }
    if (c->way_out != NULL) {
        db_bind_text(st, 6,
                     which == INDEX_SEAL_SEND ? slice_cstr(c->way_out) : bounded(c->way_out));
    }
    return index_run(ix, which, true, what, e);
}

static int seal_rows(struct delivery_index *ix, const struct delivery_plan *p, struct slice plan,
                     int64_t now, int64_t due_ms, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_SEAL];
    struct change c = {p->package_id, p->to.sink, now, due_ms, NULL, NULL};
    int r = delivery_index_begin(ix, e);

    if (r < 0) {
        return r;
    }
    db_bind_text(st, 1, slice_cstr(p->package_id));
    db_bind_int(st, 3, now);
    db_bind_text(st, 5, plan);
    r = index_run(ix, INDEX_SEAL, true, "seal a package", e);
    if (r == 0) {
        c.text = p->identifier;
        c.way_out = p->to.credentials_file;
        r = change(ix, INDEX_SEAL_SEND, &c, "make a package due", e);
    }
    if (r == 0) {
        r = delivery_index_commit(ix, e);
    }
    if (r < 0) {
        delivery_index_undo(ix);
    }
    return r;
}

int delivery_index_seal(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        int64_t due_ms, struct err *e)
{
    struct buf plan = {0};
    int r;

    ensure(due_ms >= 0);
    delivery_plan_put(&plan, p);
    r = plan.failed ? err_set(e, ERR_NO_MEMORY, "no memory for a plan")
                    : seal_rows(ix, p, buf_slice(&plan), now, due_ms, e);
    buf_free(&plan);
    return r;
}

int delivery_index_build_retry(struct delivery_index *ix, const char *package_id, int64_t now,
                               int64_t due_ms, const char *text, struct err *e)
{
    struct change c = {package_id, NULL, now, due_ms, text, NULL};

    return change(ix, INDEX_BUILD_RETRY, &c, "postpone a build", e);
}

int delivery_index_build_park(struct delivery_index *ix, const char *package_id, int64_t now,
                              const char *text, const char *way_out, struct err *e)
{
    struct change c = {package_id, NULL, now, -1, text, way_out};

    return change(ix, INDEX_BUILD_PARK, &c, "park a build", e);
}

int delivery_index_claim(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, -1, NULL, NULL};

    return change(ix, INDEX_CLAIM, &c, "claim a delivery", e);
}

int delivery_index_sent(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, now * 1000, NULL, NULL};

    return change(ix, INDEX_SENT, &c, "note what was sent", e);
}

int delivery_index_unseen(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                          int64_t due_ms, bool late, const char *text, struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, due_ms, text, NULL};

    db_bind_int(ix->st[INDEX_UNSEEN], 7, late ? 1 : 0);
    return change(ix, INDEX_UNSEEN, &c, "note what is not visible yet", e);
}

/* When local bytes may go: the second in which it was verified is over, and the retention. */
static int64_t purge_due_ms(int64_t verified_at, int64_t retention_ms)
{
    int64_t end_ms = (verified_at + 1) * 1000;

    return retention_ms > INT64_MAX - end_ms ? INT64_MAX : end_ms + retention_ms;
}

static int verified_rows(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, -1, NULL, NULL};
    struct change due = {p->package_id, NULL, now, purge_due_ms(now, p->retention_ms), NULL, NULL};
    int r = change(ix, INDEX_VERIFIED, &c, "note what was verified", e);

    return r == 0 ? change(ix, INDEX_PURGE_DUE, &due, "note when local bytes may go", e) : r;
}

int delivery_index_verified(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                            struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, -1, NULL, NULL};
    int r;

    if (p->retention_ms < 0) { /* they stay */
        return change(ix, INDEX_VERIFIED, &c, "note what was verified", e);
    }
    r = delivery_index_begin(ix, e);
    if (r < 0) {
        return r;
    }
    r = verified_rows(ix, p, now, e);
    if (r == 0) {
        r = delivery_index_commit(ix, e);
    }
    if (r < 0) {
        delivery_index_undo(ix);
    }
    return r;
}

int delivery_index_retry(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         int64_t due_ms, const char *text, struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, due_ms, text, NULL};

    return change(ix, INDEX_RETRY, &c, "postpone a delivery", e);
}

int delivery_index_put_off(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                           int64_t due_ms, const char *text, struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, due_ms, text, NULL};

    return change(ix, INDEX_PUT_OFF, &c, "put off a delivery", e);
}

int delivery_index_maybe(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         uint64_t files, struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, -1, NULL, NULL};

    db_bind_int(ix->st[INDEX_MAYBE], 7, (int64_t)files);
    return change(ix, INDEX_MAYBE, &c, "note what may be there", e);
}

int delivery_index_park(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        const char *text, const char *way_out, struct err *e)
{
    struct change c = {p->package_id, p->to.sink, now, -1, text, way_out};

    return change(ix, INDEX_PARK, &c, "park a delivery", e);
}

/* ---- local bytes ---- */

int delivery_index_purged(struct delivery_index *ix, const char *package_id, int64_t now,
                          struct err *e)
{
    struct change c = {package_id, NULL, now, -1, NULL, NULL};

    return change(ix, INDEX_PURGED, &c, "note a purge", e);
}

int delivery_index_purge_retry(struct delivery_index *ix, const char *package_id, int64_t now,
                               int64_t due_ms, const char *text, struct err *e)
{
    struct change c = {package_id, NULL, now, due_ms, text, NULL};

    return change(ix, INDEX_PURGE_RETRY, &c, "postpone a purge", e);
}
