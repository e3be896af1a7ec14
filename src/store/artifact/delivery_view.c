/* delivery_view: what others may read of delivery.sqlite about one artifact's way out.
 *
 * Each look is one connection and one read transaction, so that it shows one moment. A database
 * without tables is one that its owner is just making: not known. An artifact that waits for its
 * package is in no row of packages.
 *
 * Power failure: nothing is written. Answers: all errors; a plan or a state that cannot be read is
 * ERR_CORRUPT. */
#include "store/artifact/delivery_view_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "store/artifact/delivery_plan.h"

/* %s: the last line. */
#define LOOK_SQL                                                                                 \
    "SELECT " VIEW_COLUMNS "%s FROM package_members m JOIN artifacts a"                          \
    " ON a.object_id = m.object_id JOIN packages p ON p.package_id = m.package_id" VIEW_DELIVERY \
    " WHERE m.object_id = ?1 ORDER BY m.package_id, d.sink LIMIT 1"
/* What waits, with what its project has of it. */
#define WAITING_SQL                                                                          \
    "SELECT a.project, a.filename, a.object_id, a.checksum, a.size_bytes, a.accepted_at,"    \
    " ifnull(g.artifacts, 0), ifnull(g.bytes, 0), ifnull(g.trigger_bytes, 0),"               \
    " ifnull(g.until_ms, 0) FROM artifacts a LEFT JOIN packaging g ON g.project = a.project" \
    " WHERE a.object_id = ?1 AND a.waiting = 1"

/* ---- one row ---- */

static void take_build(struct sqlite3_stmt *st, struct delivery_view *out)
{
    bool blocked = slice_eq(db_column(st, VIEW_PACKAGE_STATE), SLICE("blocked"));

    out->state = blocked ? DELIVERY_PARKED : DELIVERY_PENDING;
    out->attempts = out->build_attempts;
    out->next_attempt_at = out->next_build_at;
    VIEW_TAKE(out->error, st, VIEW_BUILD_ERROR);
    VIEW_TAKE(out->way_out, st, VIEW_BUILD_WAY_OUT);
}

static int take_plan(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    struct delivery_plan plan;
    int r = delivery_plan_parse(db_column(st, VIEW_PLAN), &plan, e);

    if (r < 0) {
        return r;
    }
    delivery_reader_take(out->identifier, sizeof out->identifier, slice_cstr(plan.identifier));
    out->file_count = DELIVERY_FILES_MAX;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_file *f = &out->file[i];

        delivery_reader_take(f->name, sizeof f->name, slice_cstr(plan.file[i].name));
        delivery_reader_take(f->md5, sizeof f->md5, slice_cstr(plan.file[i].digests.md5));
        f->size = plan.file[i].size;
    }
    return 0;
}

static int take_delivery(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    int r = delivery_state_of(db_column(st, VIEW_STATE), &out->state, e);

    if (r < 0) {
        return r;
    }
    out->built = true;
    VIEW_TAKE(out->sink, st, VIEW_SINK);
    out->attempts = (unsigned)sqlite3_column_int64(st, VIEW_ATTEMPTS);
    if (out->state == DELIVERY_RETRY_WAIT) {
        out->next_attempt_at = delivery_reader_seconds(sqlite3_column_int64(st, VIEW_DUE));
    }
    out->sent_at = sqlite3_column_int64(st, VIEW_SENT);
    out->verified_at = sqlite3_column_int64(st, VIEW_VERIFIED);
    out->delivery_updated_at = sqlite3_column_int64(st, VIEW_DELIVERY_UPDATED);
    out->late = out->state == DELIVERY_SENT && sqlite3_column_int64(st, VIEW_LATE) != 0;
    VIEW_TAKE(out->error, st, VIEW_ERROR);
    VIEW_TAKE(out->way_out, st, VIEW_WAY_OUT);
    return take_plan(st, out, e);
}

static void take_package(struct sqlite3_stmt *st, struct delivery_view *out)
{
    bool building = slice_eq(db_column(st, VIEW_PACKAGE_STATE), SLICE("building"));
    int64_t purge_ms = sqlite3_column_int64(st, VIEW_PURGE); /* 0 of NULL */

    VIEW_TAKE(out->package_id, st, VIEW_PACKAGE);
    VIEW_TAKE(out->package_state, st, VIEW_PACKAGE_STATE);
    VIEW_TAKE(out->packager, st, VIEW_PACKAGER);
    out->members = (unsigned)sqlite3_column_int64(st, VIEW_MEMBERS);
    out->package_bytes = (uint64_t)sqlite3_column_int64(st, VIEW_PACKAGE_SIZE);
    out->offset = (uint64_t)sqlite3_column_int64(st, VIEW_OFFSET);
    VIEW_TAKE(out->project, st, VIEW_PROJECT);
    VIEW_TAKE(out->filename, st, VIEW_FILENAME);
    VIEW_TAKE(out->object_id, st, VIEW_OBJECT);
    VIEW_TAKE(out->checksum, st, VIEW_CHECKSUM);
    VIEW_TAKE(out->build_error, st, VIEW_BUILD_ERROR);
    VIEW_TAKE(out->purge_error, st, VIEW_PURGE_ERROR);
    out->size_bytes = (uint64_t)sqlite3_column_int64(st, VIEW_SIZE);
    out->accepted_at = sqlite3_column_int64(st, VIEW_ACCEPTED);
    out->created_at = sqlite3_column_int64(st, VIEW_CREATED);
    out->updated_at = sqlite3_column_int64(st, VIEW_UPDATED);
    out->sealed_at = sqlite3_column_int64(st, VIEW_SEALED);
    out->build_attempts = (unsigned)sqlite3_column_int64(st, VIEW_BUILD_ATTEMPTS);
    /* One that was never tried is due since its acceptance, which is no news. */
    if (building && out->build_attempts > 0) {
        out->next_build_at = delivery_reader_seconds(sqlite3_column_int64(st, VIEW_BUILD_DUE));
    }
    out->purge_at = purge_ms > 0 ? delivery_reader_seconds(purge_ms) : 0;
    out->purged_at = sqlite3_column_int64(st, VIEW_PURGED);
}

int delivery_view_take(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    out->known = true;
    take_package(st, out);
    if (sqlite3_column_type(st, VIEW_STATE) == SQLITE_NULL) {
        take_build(st, out);
        return 0;
    }
    return take_delivery(st, out, e);
}

/* ---- one artifact ---- */

struct delivery_look {
    struct sqlite3 *db;           /* NULL: nothing is known */
    struct sqlite3_stmt *st;      /* NULL likewise */
    struct sqlite3_stmt *waiting; /* NULL likewise, and of an older database */
};

int delivery_look_open(const char *data, struct delivery_look **out, struct err *e)
{
    char sql[sizeof LOOK_SQL + sizeof VIEW_COLUMNS_2];
    struct delivery_look *l = calloc(1, sizeof *l);
    int64_t version = 0;
    int r = l == NULL ? err_set(e, ERR_NO_MEMORY, "no memory to read deliveries")
                      : delivery_reader_begin(data, &l->db, &version, e);

    if (r == 0 && l->db != NULL) {
        int n =
            snprintf(sql, sizeof sql, LOOK_SQL, version >= 2 ? VIEW_COLUMNS_2 : VIEW_COLUMNS_NONE);

        ensure(n > 0);
        ensure((size_t)n < sizeof sql);
        r = db_prepare(l->db, sql, &l->st, e);
    }
    if (r == 0 && l->db != NULL && version >= 3) {
        r = db_prepare(l->db, WAITING_SQL, &l->waiting, e);
    }
    if (r < 0) {
        delivery_look_close(l);
        l = NULL;
    }
    *out = l;
    return r;
}

void delivery_look_close(struct delivery_look *l)
{
    if (l != NULL) {
        sqlite3_finalize(l->st);
        sqlite3_finalize(l->waiting);
        sqlite3_close(l->db);
        free(l);
    }
}

static int look_at_waiting(struct delivery_look *l, struct slice object_id,
                           struct delivery_view *out, struct err *e)
{
    struct sqlite3_stmt *st = l->waiting;
    int r;

    db_bind_text(st, 1, object_id);
    r = db_step(st, "read what waits", e);
    if (r > 0) {
        out->known = true;
        out->state = DELIVERY_PENDING;
        delivery_reader_take(out->package_state, sizeof out->package_state, SLICE("waiting"));
        VIEW_TAKE(out->project, st, 0);
        VIEW_TAKE(out->filename, st, 1);
        VIEW_TAKE(out->object_id, st, 2);
        VIEW_TAKE(out->checksum, st, 3);
        out->size_bytes = (uint64_t)sqlite3_column_int64(st, 4);
        out->accepted_at = sqlite3_column_int64(st, 5);
        out->waiting_artifacts = (uint64_t)sqlite3_column_int64(st, 6);
        out->waiting_bytes = (uint64_t)sqlite3_column_int64(st, 7);
        out->trigger_bytes = (uint64_t)sqlite3_column_int64(st, 8);
        out->waiting_until = delivery_reader_seconds(sqlite3_column_int64(st, 9));
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

int delivery_look_at(struct delivery_look *l, struct slice object_id, struct delivery_view *out,
                     struct err *e)
{
    int r;

    memset(out, 0, sizeof *out);
    if (l->st == NULL) {
        return 0;
    }
    db_bind_text(l->st, 1, object_id);
    r = db_step(l->st, "read a delivery", e);
    if (r > 0) {
        r = delivery_view_take(l->st, out, e);
    } else if (r == 0 && l->waiting != NULL) {
        r = look_at_waiting(l, object_id, out, e);
    }
    sqlite3_reset(l->st);
    return r;
}

int delivery_view_read(const char *data, struct slice object_id, struct delivery_view *out,
                       struct err *e)
{
    struct delivery_look *l = NULL;
    int r = delivery_look_open(data, &l, e);

    if (r < 0) {
        memset(out, 0, sizeof *out);
        return r;
    }
    r = delivery_look_at(l, object_id, out, e);
    delivery_look_close(l);
    return r;
}
