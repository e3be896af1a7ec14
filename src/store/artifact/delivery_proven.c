/* delivery_proven: rows of packages that have a proof (proof.h).
 *
 * A proof is written before bytes go, by the owner of the index, after the row says verified. Where
 * the index does not say so, it is another one than the proof's: it was lost and is being made
 * anew, or it is an older one, out of a backup. Then the proof is right: what it says was verified,
 * and the bytes that another try would need may be gone. Its plan may be another than the index's,
 * whose delivery, where it is to another sink, is none any more: it would be due without its plan.
 *
 * Power failure: the caller's transaction. Answers: every error. */
#include "base/ensure.h"
#include "store/artifact/delivery_index_internal.h"
#include "store/artifact/proof.h"

int delivery_index_proven(struct delivery_index *ix, const char *package_id, bool *proven,
                          struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_HAS_PROVEN];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "look for a proven package", e);
    *proven = r > 0;
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int seal(struct delivery_index *ix, const struct proof *p, int64_t now, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PROVEN_SEAL];
    struct buf plan = {0};
    int r;

    delivery_plan_put(&plan, &p->plan);
    if (plan.failed) {
        buf_free(&plan);
        return err_set(e, ERR_NO_MEMORY, "no memory for a plan");
    }
    db_bind_text(st, 1, slice_cstr(p->plan.package_id));
    db_bind_int(st, 3, now);
    db_bind_text(st, 5, buf_slice(&plan));
    r = index_run(ix, INDEX_PROVEN_SEAL, true, "seal a proven package", e);
    buf_free(&plan);
    return r;
}

static int note_verified(struct delivery_index *ix, const struct proof *p, int64_t now,
                         struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PROVEN_ONLY];
    int r;

    db_bind_text(st, 1, slice_cstr(p->plan.package_id));
    db_bind_text(st, 2, slice_cstr(p->plan.to.sink));
    r = index_run(ix, INDEX_PROVEN_ONLY, false, "forget another plan's delivery", e);
    if (r < 0) {
        return r;
    }
    st = ix->st[INDEX_PROVEN_SEND];
    db_bind_text(st, 1, slice_cstr(p->plan.package_id));
    db_bind_text(st, 2, slice_cstr(p->plan.to.sink));
    db_bind_int(st, 3, now);
    db_bind_text(st, 5, slice_cstr(p->plan.identifier));
    db_bind_text(st, 6, slice_cstr(p->plan.to.credentials_file));
    db_bind_int(st, 7, p->sent_at);
    db_bind_int(st, 8, p->verified_at);
    return index_run(ix, INDEX_PROVEN_SEND, true, "note what a proof says", e);
}

/* Its package, if the index has another or none for its members. */
static int make_known(struct delivery_index *ix, const struct proof *p, int64_t now_ms,
                      struct err *e)
{
    bool has = false;
    int r = delivery_index_has_package(ix, p->plan.package_id, &has, e);

    if (r < 0 || has) {
        return r;
    }
    if (p->members.count > 0) {
        return delivery_index_restore(ix, &p->plan, &p->members, now_ms, e);
    }
    r = index_free_artifact(ix, &p->artifact, e);
    return r == 0 ? index_add_package(ix, &p->artifact, 1, false, now_ms, now_ms, e) : r;
}

int delivery_index_prove(struct delivery_index *ix, const struct proof *p, int64_t now_ms,
                         struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PROVEN_DUE];
    int r;

    ensure(sqlite3_get_autocommit(ix->db) == 0); /* the caller's transaction */
    r = make_known(ix, p, now_ms, e);
    if (r == 0) {
        r = seal(ix, p, now_ms / 1000, e);
    }
    if (r == 0) {
        r = note_verified(ix, p, now_ms / 1000, e);
    }
    if (r == 0) {
        db_bind_text(st, 1, slice_cstr(p->plan.package_id));
        db_bind_int(st, 4, now_ms);
        r = index_run(ix, INDEX_PROVEN_DUE, true, "note that local bytes may go", e);
    }
    return r;
}
