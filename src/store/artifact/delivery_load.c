/* delivery_load: rows of delivery.sqlite become what work is done with: artifacts, members, plans.
 *
 * Power failure: nothing is written. Answers: every error; rows that must be there and are not, and
 * a plan that cannot be read, are ERR_CORRUPT. */
#include "store/artifact/delivery_index_internal.h"

static void take(char *out, size_t size, struct slice text)
{
    size_t n = text.len < size ? text.len : size - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

void index_take_artifact(struct sqlite3_stmt *st, struct delivery_artifact *out)
{
    memset(out, 0, sizeof *out);
    take(out->object_id, sizeof out->object_id, db_column(st, 0));
    take(out->project, sizeof out->project, db_column(st, 1));
    take(out->filename, sizeof out->filename, db_column(st, 2));
    take(out->checksum, sizeof out->checksum, db_column(st, 3));
    out->size_bytes = (uint64_t)sqlite3_column_int64(st, 4);
    out->accepted_at = sqlite3_column_int64(st, 5);
}

int index_take_members(struct delivery_index *ix, enum index_statement which, const char *key,
                       struct delivery_members *m, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[which];
    int r;

    db_bind_text(st, 1, slice_cstr(key));
    r = db_step(st, "read artifacts", e);
    while (r > 0 && m->count < DELIVERY_MEMBERS_MAX) {
        index_take_artifact(st, &m->item[m->count++]);
        r = db_step(st, "read artifacts", e);
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int load_first(struct delivery_index *ix, const char *package_id,
                      struct delivery_artifact *out, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_MEMBERS];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "read an artifact", e);
    if (r > 0) {
        index_take_artifact(st, out);
    } else if (r == 0) {
        r = err_set(e, ERR_CORRUPT, "a package without its artifact");
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

int index_load_package(struct delivery_index *ix, const char *package_id, struct delivery_work *out,
                       bool *merged, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PACKAGE];
    int r;

    *merged = false;
    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "read a package", e);
    if (r > 0) {
        *merged = slice_eq(db_column(st, 0), SLICE(DELIVERY_MERGEWARC));
        out->size_bytes = (uint64_t)sqlite3_column_int64(st, 1);
    } else if (r == 0) {
        r = err_set(e, ERR_CORRUPT, "work without its package");
    }
    sqlite3_reset(st);
    return r < 0 ? r : load_first(ix, package_id, &out->artifact, e);
}

int index_load_plan(struct delivery_index *ix, const char *package_id, struct delivery_plan *out,
                    struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_PLAN];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "read a plan", e);
    if (r > 0) {
        r = delivery_plan_parse(db_column(st, 0), out, e);
    } else if (r == 0) {
        r = err_set(e, ERR_CORRUPT, "a delivery without its plan");
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}
