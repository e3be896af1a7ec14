/* delivery_merge: artifacts of a project that wait are put together in packages.
 *
 * Choosing (spec/artifacts.md section 9.1), in one transaction: what waits is summed up by triggers
 * (delivery_schema.c). At the trigger's bytes the project drains: packages are made as long as what
 * is left fills one. Else the oldest waits for max_wait, and then a package is made of what there
 * is. Members are taken in the order (accepted_at, object_id) until the next would exceed the
 * target or the target is reached, the first always; DELIVERY_MEMBERS_MAX of them end it as the
 * target does. At most so many rows are read, whatever waits, and only when it is time.
 *
 * An artifact waits, or is in one package, never both:
 *
 *   waiting               choose     -> member of one that is building
 *   member, building      isolate    -> waiting, or of a blocked package of its own
 *   member, blocked       identity   -> of an identity package, unless there is a plan already; the
 *                                       others wait
 *   waiting               identity   -> of an identity package
 *   either                restore    -> member of the package that is on the disk
 *   member, sealed        stays: its package has a plan, under whose names it may have been sent
 *
 * Power failure: each step is one transaction. A package that was chosen and has no plan on the
 * disk is no fact: if the file is lost, its members wait again, and may meet others.
 *
 * Answers: every error; a member that is in a sealed package already is ERR_REFUSED. */
#include "base/ensure.h"
#include "base/log.h"
#include "store/artifact/delivery_index_internal.h"
#include "store/artifact/package_load.h"

#define IDENTITY_GROUP 500u
/* Artifacts cannot be from later than so much: a clock was wrong, and nobody waits for it. */
#define AHEAD_MS (INT64_C(3600) * 1000)

/* Ends the transaction that was begun. */
static int end(struct delivery_index *ix, int r, struct err *e)
{
    if (r == 0) {
        r = delivery_index_commit(ix, e);
    }
    if (r < 0) {
        delivery_index_undo(ix);
    }
    return r;
}

int delivery_index_waiting(struct delivery_index *ix, const char *after,
                           char out[UPLOAD_PROJECT_MAX + 1], struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_WAITING_PROJECT];
    int r;

    db_bind_text(st, 1, slice_cstr(after));
    r = db_step(st, "look for what waits", e);
    out[0] = '\0';
    if (r > 0) {
        struct slice project = db_column(st, 0);
        size_t n = project.len < UPLOAD_PROJECT_MAX ? project.len : UPLOAD_PROJECT_MAX;
        memcpy(out, project.ptr, n);
        out[n] = '\0';
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* ---- choosing ---- */

static int set_wait(struct delivery_index *ix, const char *object_id, bool waiting, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_WAIT];

    db_bind_text(st, 1, slice_cstr(object_id));
    db_bind_int(st, 3, waiting ? 1 : 0);
    return index_run(ix, INDEX_WAIT, true, "note what an artifact waits for", e);
}

/* Whether packages are being made, and what the others wait for. */
static int set_draining(struct delivery_index *ix, const char *project, bool draining,
                        const struct delivery_merge_rule *rule, int64_t until_ms, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_DRAINING];

    db_bind_text(st, 1, slice_cstr(project));
    db_bind_int(st, 3, draining ? 1 : 0);
    db_bind_int(st, 4, until_ms);
    db_bind_int(st, 5, (int64_t)rule->trigger);
    return index_run(ix, INDEX_DRAINING, false, "note that packages are being made", e);
}

struct waiting {
    bool draining;
    uint64_t bytes;
    int64_t oldest; /* accepted_at */
};

/* *any false: nothing waits. */
static int sum_up(struct delivery_index *ix, const char *project, struct waiting *w, bool *any,
                  struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PACKAGING];
    int r;

    db_bind_text(st, 1, slice_cstr(project));
    r = db_step(st, "sum up what waits", e);
    if (r > 0) {
        w->draining = sqlite3_column_int64(st, 0) != 0;
        w->bytes = (uint64_t)sqlite3_column_int64(st, 1);
    }
    sqlite3_reset(st);
    *any = r > 0;
    if (r <= 0) {
        return r;
    }
    st = ix->st[INDEX_WAITING];
    db_bind_text(st, 1, slice_cstr(project));
    r = db_step(st, "look for the oldest that waits", e);
    if (r > 0) {
        w->oldest = sqlite3_column_int64(st, 5);
    } else if (r == 0) {
        r = err_set(e, ERR_CORRUPT, "what waits is not there");
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* How many of the members, which all wait, make a package; *bytes: theirs. */
static unsigned fill(const struct delivery_members *m, uint64_t target, uint64_t *bytes)
{
    unsigned n = 0;

    *bytes = 0;
    while (n < m->count && *bytes < target &&
           (n == 0 || m->item[n].size_bytes <= target - *bytes)) {
        *bytes += m->item[n].size_bytes;
        n++;
    }
    return n;
}

static int make_one(struct delivery_index *ix, const char *project, uint64_t target,
                    struct waiting *w, int64_t now_ms, struct err *e)
{
    struct delivery_members m;
    uint64_t bytes = 0;
    unsigned count = 0;
    int r = delivery_members_make(&m, DELIVERY_MEMBERS_MAX, e);

    if (r == 0) {
        r = index_take_members(ix, INDEX_WAITING, project, &m, e);
    }
    if (r == 0) {
        count = fill(&m, target, &bytes);
    }
    for (unsigned i = 0; r == 0 && i < count; i++) {
        r = set_wait(ix, m.item[i].object_id, false, e);
    }
    if (r == 0) {
        r = index_add_package(ix, m.item, count, true, now_ms, now_ms, e);
    }
    delivery_members_free(&m);
    w->draining = w->draining && w->bytes - bytes >= target;
    return r;
}

static int64_t wait_ends_ms(const struct waiting *w, const struct delivery_merge_rule *rule,
                            int64_t now_ms)
{
    int64_t from_ms = w->oldest < INT64_MAX / 1000 ? w->oldest * 1000 : INT64_MAX;

    if (from_ms > now_ms + AHEAD_MS) {
        return now_ms;
    }
    return from_ms > INT64_MAX - rule->max_wait_ms ? INT64_MAX : from_ms + rule->max_wait_ms;
}

static int choose_merged(struct delivery_index *ix, const char *project,
                         const struct delivery_merge_rule *rule, int64_t now_ms, unsigned *made,
                         int64_t *due_ms, struct err *e)
{
    struct waiting w = {.draining = false};
    int64_t until_ms;
    bool any = false;
    int r = sum_up(ix, project, &w, &any, e);

    if (r < 0 || !any) {
        return r < 0 ? r : set_draining(ix, project, false, rule, 0, e);
    }
    w.draining = (w.draining || w.bytes >= rule->trigger) && w.bytes >= rule->target;
    *due_ms = wait_ends_ms(&w, rule, now_ms);
    until_ms = *due_ms;
    if (w.draining || *due_ms <= now_ms) {
        *made = 1;
        *due_ms = now_ms; /* there may be more to do */
        r = make_one(ix, project, rule->target, &w, now_ms, e);
    }
    return r == 0 ? set_draining(ix, project, w.draining, rule, until_ms, e) : r;
}

/* The project makes no merged packages any more. */
static int choose_identity(struct delivery_index *ix, const char *project,
                           const struct delivery_merge_rule *rule, int64_t now_ms, unsigned *made,
                           int64_t *due_ms, struct err *e)
{
    struct delivery_members m;
    int r = delivery_members_make(&m, DELIVERY_MEMBERS_MAX, e);

    if (r == 0) {
        r = index_take_members(ix, INDEX_WAITING, project, &m, e);
    }
    for (unsigned i = 0; r == 0 && i < m.count && i < IDENTITY_GROUP; i++) {
        r = set_wait(ix, m.item[i].object_id, false, e);
        if (r == 0) {
            r = index_add_package(ix, &m.item[i], 1, false, now_ms, now_ms, e);
        }
        ++*made;
    }
    if (*made > 0) {
        *due_ms = now_ms;
    }
    delivery_members_free(&m);
    return r == 0 ? set_draining(ix, project, false, rule, 0, e) : r;
}

int delivery_index_choose(struct delivery_index *ix, const char *project,
                          const struct delivery_merge_rule *rule, int64_t now_ms, unsigned *made,
                          int64_t *due_ms, struct err *e)
{
    int r = delivery_index_begin(ix, e);

    *made = 0;
    *due_ms = INT64_MAX;
    if (r < 0) {
        return r;
    }
    ensure(rule->target == 0 || rule->max_wait_ms > 0);
    r = rule->target > 0 ? choose_merged(ix, project, rule, now_ms, made, due_ms, e)
                         : choose_identity(ix, project, rule, now_ms, made, due_ms, e);
    return end(ix, r, e);
}

/* ---- packages that are none any more ---- */

static int run_for(struct delivery_index *ix, enum index_statement which, const char *key,
                   bool changed, const char *what, struct err *e)
{
    db_bind_text(ix->st[which], 1, slice_cstr(key));
    return index_run(ix, which, changed, what, e);
}

/* All its members wait again. */
static int dissolve(struct delivery_index *ix, const char *package_id, struct err *e)
{
    int r = run_for(ix, INDEX_RELEASE, package_id, false, "release members", e);

    if (r == 0) {
        r = run_for(ix, INDEX_DROP_MEMBERS, package_id, false, "release members", e);
    }
    return r == 0 ? run_for(ix, INDEX_DROP_PACKAGE, package_id, true, "dissolve a package", e) : r;
}

int delivery_index_isolate(struct delivery_index *ix, const char *package_id,
                           const struct delivery_members *m, const struct delivery_bad *bad,
                           unsigned count, int64_t now_ms, struct err *e)
{
    int r = delivery_index_begin(ix, e);

    ensure(count > 0);
    if (r < 0) {
        return r;
    }
    r = dissolve(ix, package_id, e);
    for (unsigned i = 0; r == 0 && i < count; i++) {
        ensure(bad[i].member < m->count);
        const struct delivery_artifact *a = &m->item[bad[i].member];
        char id[DELIVERY_PACKAGE_LEN + 1];

        delivery_merged_id(a, 1, id);
        r = set_wait(ix, a->object_id, false, e);
        if (r == 0) {
            r = index_add_package(ix, a, 1, true, now_ms, now_ms, e);
        }
        if (r == 0) {
            r = delivery_index_build_park(ix, id, now_ms / 1000, bad[i].text, bad[i].way_out, e);
        }
    }
    return end(ix, r, e);
}

/* The package that the artifact is in. */
struct membership {
    char package_id[DELIVERY_PACKAGE_LEN + 1]; /* "": none */
    bool sealed, blocked, merged;
};

static int member_of(struct delivery_index *ix, const char *object_id, struct membership *out,
                     struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_MEMBER_OF];
    int r;

    *out = (struct membership){.sealed = false};
    db_bind_text(st, 1, slice_cstr(object_id));
    r = db_step(st, "look for an artifact's package", e);
    if (r > 0) {
        struct slice id = db_column(st, 0);
        size_t n = id.len < DELIVERY_PACKAGE_LEN ? id.len : DELIVERY_PACKAGE_LEN;
        memcpy(out->package_id, id.ptr, n);
        out->sealed = slice_eq(db_column(st, 1), SLICE("sealed"));
        out->blocked = slice_eq(db_column(st, 1), SLICE("blocked"));
        out->merged = slice_eq(db_column(st, 2), SLICE(DELIVERY_MERGEWARC));
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* *found false: the index does not have the artifact. */
static int load_one(struct delivery_index *ix, const char *object_id, struct delivery_artifact *out,
                    bool *found, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ONE_ARTIFACT];
    int r;

    db_bind_text(st, 1, slice_cstr(object_id));
    r = db_step(st, "read an artifact", e);
    *found = r > 0;
    if (r > 0) {
        index_take_artifact(st, out);
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int make_identity(struct delivery_index *ix, const char *data,
                         const struct delivery_artifact *a, int64_t now_ms, bool *done,
                         struct err *e)
{
    struct membership in;
    int r = member_of(ix, a->object_id, &in, e);
    bool in_one = in.package_id[0] != '\0';

    if (r < 0 || (in_one && (!in.merged || !in.blocked || package_planned(data, in.package_id)))) {
        return r;
    }
    if (in_one) {
        r = dissolve(ix, in.package_id, e);
    }
    if (r == 0) {
        r = set_wait(ix, a->object_id, false, e);
    }
    if (r == 0) {
        r = index_add_package(ix, a, 1, false, now_ms, now_ms, e);
    }
    *done = r == 0;
    return r;
}

int delivery_index_identity(struct delivery_index *ix, const char *data, const char *object_id,
                            int64_t now_ms, bool *done, struct err *e)
{
    struct delivery_artifact a;
    bool found = false;
    int r = delivery_index_begin(ix, e);

    *done = false;
    if (r < 0) {
        return r;
    }
    r = load_one(ix, object_id, &a, &found, e);
    if (r == 0 && found) {
        r = make_identity(ix, data, &a, now_ms, done, e);
    }
    return end(ix, r, e);
}

/* ---- packages that are there already ---- */

int delivery_index_has_package(struct delivery_index *ix, const char *package_id, bool *has,
                               struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_HAS_PACKAGE];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "look for a package", e);
    *has = r > 0;
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

int index_free_artifact(struct delivery_index *ix, const struct delivery_artifact *a, struct err *e)
{
    struct membership in;
    bool has = false;
    int r = delivery_index_has(ix, a->object_id, &has, e);

    if (r < 0 || !has) {
        return r < 0 ? r : index_add_artifact(ix, a, false, e);
    }
    r = member_of(ix, a->object_id, &in, e);
    if (r == 0 && in.sealed) {
        r = err_set(e, ERR_REFUSED, "an artifact is in two packages: %s has it", in.package_id);
    }
    if (r == 0 && in.package_id[0] != '\0') {
        r = dissolve(ix, in.package_id, e);
    }
    return r == 0 ? set_wait(ix, a->object_id, false, e) : r;
}

/* Files that this program wrote name no artifact twice. */
static bool all_different(const struct delivery_members *m)
{
    for (unsigned i = 1; i < m->count; i++) {
        for (unsigned j = 0; j < i; j++) {
            if (memcmp(m->item[i].object_id, m->item[j].object_id, UPLOAD_ID_LEN) == 0) {
                return false;
            }
        }
    }
    return true;
}

int delivery_index_restore(struct delivery_index *ix, const struct delivery_plan *p,
                           const struct delivery_members *m, int64_t now_ms, struct err *e)
{
    struct membership in;
    int r = 0;

    ensure(sqlite3_get_autocommit(ix->db) == 0); /* the caller's transaction */
    ensure(p->members == m->count);
    if (!all_different(m)) {
        return err_set(e, ERR_REFUSED, "an artifact is in it twice");
    }
    for (unsigned i = 0; r == 0 && i < m->count; i++) {
        r = member_of(ix, m->item[i].object_id, &in, e);
        if (r == 0 && in.sealed) {
            return err_set(e, ERR_REFUSED, "an artifact is in two packages: %s has it",
                           in.package_id);
        }
    }
    for (unsigned i = 0; r == 0 && i < m->count; i++) {
        r = index_free_artifact(ix, &m->item[i], e);
    }
    return r == 0 ? index_add_package(ix, m->item, m->count, true, now_ms, now_ms, e) : r;
}
