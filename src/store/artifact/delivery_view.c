/* delivery_view: what others may read of delivery.sqlite about packages: one artifact's way out,
 * and pages of all of them.
 *
 * Each look is one connection and one read transaction, so that it shows one moment. A database
 * without tables is one that its owner is just making: not known. An artifact that waits for its
 * package is in no row of packages; pages are of packages, and list the members of merged ones.
 *
 * Pages. Cursors are texts of ours:
 *   p-CREATED-PACKAGE   behind this package, in the order (created_at, package_id)
 *   v-FEED-NUMBER       behind this number of the feed FEED (delivery_schema.c)
 * A page reads on for a bounded number of rows and time, whatever it leaves out, and then says that
 * there is more. What is verified after a page was read has a higher number than all it has shown,
 * so a feed misses nothing, with equal seconds and with clocks that go back. Only a database that
 * was made anew counts anew: a cursor of the old one begins at the beginning, and what was shown is
 * shown again.
 *
 * Power failure: nothing is written. Answers: all errors; a plan or a state that cannot be read is
 * ERR_CORRUPT. */
#include "store/artifact/delivery.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/delivery_plan.h"
#include "store/artifact/delivery_reader.h"
#include "json/write.h"

#define PAGE_NS     500000000u
#define PAGE_SCAN   20000u
#define FEED_ID_MAX 17

/* The last line: what only a newer schema has. */
#define COLUMNS                                                                            \
    "p.package_id, p.state, p.plan, p.build_attempts, p.next_build_ms, p.build_error,"     \
    " p.way_out, d.sink, d.state, d.attempts, d.next_attempt_ms, d.last_error, d.way_out," \
    " ifnull(d.sent_at, 0), ifnull(d.verified_at, 0), a.project, a.filename, a.object_id," \
    " a.checksum, a.size_bytes, a.accepted_at, p.created_at, p.updated_at,"                \
    " ifnull(p.sealed_at, 0), ifnull(d.updated_at, 0), p.packager, p.member_count,"        \
    " p.size_bytes, m.offset_bytes,"
#define COLUMNS_2    " p.purge_ms, ifnull(p.purged_at, 0), p.purge_error, ifnull(d.late, 0)"
#define COLUMNS_NONE " 0, 0, '', 0"
#define MEMBERS                                                                      \
    " CROSS JOIN package_members m ON m.package_id = p.package_id AND m.ordinal = 1" \
    " CROSS JOIN artifacts a ON a.object_id = m.object_id"
#define DELIVERY " LEFT JOIN deliveries d ON d.package_id = p.package_id"
/* %s: the last line. */
#define LOOK_SQL                                                                            \
    "SELECT " COLUMNS "%s FROM package_members m JOIN artifacts a"                          \
    " ON a.object_id = m.object_id JOIN packages p ON p.package_id = m.package_id" DELIVERY \
    " WHERE m.object_id = ?1 ORDER BY m.package_id, d.sink LIMIT 1"
#define CREATED_SQL                                                               \
    "SELECT " COLUMNS COLUMNS_2                                                   \
    ", p.created_at FROM packages p INDEXED BY packages_created" MEMBERS DELIVERY \
    " WHERE (p.created_at, p.package_id) > (?1, ?2)"                              \
    " ORDER BY p.created_at, p.package_id"
#define FEED_SQL                                                                                   \
    "SELECT " COLUMNS COLUMNS_2 ", d.verified_no FROM deliveries d"                                \
    " INDEXED BY deliveries_verified CROSS JOIN packages p ON p.package_id = d.package_id" MEMBERS \
    " WHERE d.verified_no > ?1 ORDER BY d.verified_no"
/* What waits, with what its project has of it. */
#define WAITING_SQL                                                                          \
    "SELECT a.project, a.filename, a.object_id, a.checksum, a.size_bytes, a.accepted_at,"    \
    " ifnull(g.artifacts, 0), ifnull(g.bytes, 0), ifnull(g.trigger_bytes, 0),"               \
    " ifnull(g.until_ms, 0) FROM artifacts a LEFT JOIN packaging g ON g.project = a.project" \
    " WHERE a.object_id = ?1 AND a.waiting = 1"
#define MEMBERS_SQL                                                   \
    "SELECT object_id, offset_bytes, size_bytes FROM package_members" \
    " WHERE package_id = ?1 ORDER BY ordinal"
enum {
    AT_PACKAGE,
    AT_PACKAGE_STATE,
    AT_PLAN,
    AT_BUILD_ATTEMPTS,
    AT_BUILD_DUE,
    AT_BUILD_ERROR,
    AT_BUILD_WAY_OUT,
    AT_SINK,
    AT_STATE,
    AT_ATTEMPTS,
    AT_DUE,
    AT_ERROR,
    AT_WAY_OUT,
    AT_SENT,
    AT_VERIFIED,
    AT_PROJECT,
    AT_FILENAME,
    AT_OBJECT,
    AT_CHECKSUM,
    AT_SIZE,
    AT_ACCEPTED,
    AT_CREATED,
    AT_UPDATED,
    AT_SEALED,
    AT_DELIVERY_UPDATED,
    AT_PACKAGER,
    AT_MEMBERS,
    AT_PACKAGE_SIZE,
    AT_OFFSET,
    AT_PURGE,
    AT_PURGED,
    AT_PURGE_ERROR,
    AT_LATE,
    AT_PLACE /* of pages: in their order */
};

#define TAKE(out, st, at) delivery_reader_take(out, sizeof(out), db_column(st, at))

/* ---- one row ---- */

static void take_build(struct sqlite3_stmt *st, struct delivery_view *out)
{
    bool blocked = slice_eq(db_column(st, AT_PACKAGE_STATE), SLICE("blocked"));

    out->state = blocked ? DELIVERY_PARKED : DELIVERY_PENDING;
    out->attempts = out->build_attempts;
    out->next_attempt_at = out->next_build_at;
    TAKE(out->error, st, AT_BUILD_ERROR);
    TAKE(out->way_out, st, AT_BUILD_WAY_OUT);
}

static int take_plan(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    struct delivery_plan plan;
    int r = delivery_plan_parse(db_column(st, AT_PLAN), &plan, e);

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
    int r = delivery_state_of(db_column(st, AT_STATE), &out->state, e);

    if (r < 0) {
        return r;
    }
    out->built = true;
    TAKE(out->sink, st, AT_SINK);
    out->attempts = (unsigned)sqlite3_column_int64(st, AT_ATTEMPTS);
    if (out->state == DELIVERY_RETRY_WAIT) {
        out->next_attempt_at = delivery_reader_seconds(sqlite3_column_int64(st, AT_DUE));
    }
    out->sent_at = sqlite3_column_int64(st, AT_SENT);
    out->verified_at = sqlite3_column_int64(st, AT_VERIFIED);
    out->delivery_updated_at = sqlite3_column_int64(st, AT_DELIVERY_UPDATED);
    out->late = out->state == DELIVERY_SENT && sqlite3_column_int64(st, AT_LATE) != 0;
    TAKE(out->error, st, AT_ERROR);
    TAKE(out->way_out, st, AT_WAY_OUT);
    return take_plan(st, out, e);
}

static void take_package(struct sqlite3_stmt *st, struct delivery_view *out)
{
    bool building = slice_eq(db_column(st, AT_PACKAGE_STATE), SLICE("building"));
    int64_t purge_ms = sqlite3_column_int64(st, AT_PURGE); /* 0 of NULL */

    TAKE(out->package_id, st, AT_PACKAGE);
    TAKE(out->package_state, st, AT_PACKAGE_STATE);
    TAKE(out->packager, st, AT_PACKAGER);
    out->members = (unsigned)sqlite3_column_int64(st, AT_MEMBERS);
    out->package_bytes = (uint64_t)sqlite3_column_int64(st, AT_PACKAGE_SIZE);
    out->offset = (uint64_t)sqlite3_column_int64(st, AT_OFFSET);
    TAKE(out->project, st, AT_PROJECT);
    TAKE(out->filename, st, AT_FILENAME);
    TAKE(out->object_id, st, AT_OBJECT);
    TAKE(out->checksum, st, AT_CHECKSUM);
    TAKE(out->build_error, st, AT_BUILD_ERROR);
    TAKE(out->purge_error, st, AT_PURGE_ERROR);
    out->size_bytes = (uint64_t)sqlite3_column_int64(st, AT_SIZE);
    out->accepted_at = sqlite3_column_int64(st, AT_ACCEPTED);
    out->created_at = sqlite3_column_int64(st, AT_CREATED);
    out->updated_at = sqlite3_column_int64(st, AT_UPDATED);
    out->sealed_at = sqlite3_column_int64(st, AT_SEALED);
    out->build_attempts = (unsigned)sqlite3_column_int64(st, AT_BUILD_ATTEMPTS);
    /* One that was never tried is due since its acceptance, which is no news. */
    if (building && out->build_attempts > 0) {
        out->next_build_at = delivery_reader_seconds(sqlite3_column_int64(st, AT_BUILD_DUE));
    }
    out->purge_at = purge_ms > 0 ? delivery_reader_seconds(purge_ms) : 0;
    out->purged_at = sqlite3_column_int64(st, AT_PURGED);
}

static int take_row(struct sqlite3_stmt *st, struct delivery_view *out, struct err *e)
{
    memset(out, 0, sizeof *out);
    out->known = true;
    take_package(st, out);
    if (sqlite3_column_type(st, AT_STATE) == SQLITE_NULL) {
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
    char sql[sizeof LOOK_SQL + sizeof COLUMNS_2];
    struct delivery_look *l = calloc(1, sizeof *l);
    int64_t version = 0;
    int r = l == NULL ? err_set(e, ERR_NO_MEMORY, "no memory to read deliveries")
                      : delivery_reader_begin(data, &l->db, &version, e);

    if (r == 0 && l->db != NULL) {
        int n = snprintf(sql, sizeof sql, LOOK_SQL, version >= 2 ? COLUMNS_2 : COLUMNS_NONE);

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
        TAKE(out->project, st, 0);
        TAKE(out->filename, st, 1);
        TAKE(out->object_id, st, 2);
        TAKE(out->checksum, st, 3);
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
        r = take_row(l->st, out, e);
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

/* ---- pages ---- */

struct reading {
    const struct delivery_query *q;
    struct sqlite3 *db;
    bool feed; /* in the order of verification */
    char id[FEED_ID_MAX];
    int64_t number; /* of the cursor: a number of the feed, or when a package was made */
    char package_id[DELIVERY_PACKAGE_LEN + 1]; /* "": before all */
    struct delivery_view view;
    struct sqlite3_stmt *members;
    struct buf list; /* of the view's */
};

/* Decimal digits in front of *s, and the '-' behind them, if there is one. */
static bool take_number(struct slice *s, int64_t *out)
{
    size_t i = 0;

    *out = 0;
    for (; i < s->len && i < 18 && s->ptr[i] >= '0' && s->ptr[i] <= '9'; i++) {
        *out = *out * 10 + (s->ptr[i] - '0');
    }
    *s = slice_from(*s, i);
    if (i > 0 && s->len > 0 && s->ptr[0] == '-') {
        *s = slice_from(*s, 1);
    }
    return i > 0;
}

static bool is_hex(struct slice s, size_t len)
{
    bool ok = s.len == len;

    for (size_t i = 0; ok && i < len; i++) {
        ok = (s.ptr[i] >= '0' && s.ptr[i] <= '9') || (s.ptr[i] >= 'a' && s.ptr[i] <= 'f');
    }
    return ok;
}

static int read_cursor(struct reading *rd, bool *restarted, struct err *e)
{
    struct slice s = rd->q->after;
    bool ok = slice_starts(s, rd->feed ? SLICE("v-") : SLICE("p-"));

    if (s.len == 0) {
        return 0;
    }
    s = slice_from(s, ok ? 2 : 0);
    if (ok && rd->feed) {
        struct slice id = slice_of(s.ptr, s.len < FEED_ID_MAX - 1 ? s.len : FEED_ID_MAX - 1);

        ok = is_hex(id, FEED_ID_MAX - 1) && s.len > id.len && s.ptr[id.len] == '-';
        s = slice_from(s, ok ? id.len + 1 : 0);
        ok = ok && take_number(&s, &rd->number) && s.len == 0;
        *restarted = ok && !slice_eq(id, slice_cstr(rd->id));
        rd->number = *restarted ? 0 : rd->number;
    } else if (ok) {
        ok = take_number(&s, &rd->number) && is_hex(s, DELIVERY_PACKAGE_LEN);
        delivery_reader_take(rd->package_id, sizeof rd->package_id, ok ? s : SLICE(""));
    }
    return ok ? 0
              : err_set(e, ERR_INVALID_REQUEST,
                        "after: it is no cursor of this list; take "
                        "next_after of its last page");
}

static void put_cursor(const struct reading *rd, struct delivery_page *out)
{
    int n = rd->feed
                ? snprintf(out->next, sizeof out->next, "v-%s-%lld", rd->id, (long long)rd->number)
            : rd->package_id[0] == '\0' ? 0
                                        : snprintf(out->next, sizeof out->next, "p-%lld-%s",
                                                   (long long)rd->number, rd->package_id);

    ensure(n >= 0);
    ensure((size_t)n < sizeof out->next);
}

static bool wanted(const struct delivery_query *q, const struct delivery_view *v)
{
    return (!q->by_state || v->state == q->state) &&
           (q->project == NULL || strcmp(v->project, q->project) == 0);
}

/* Of a merged package: which artifacts it is made of, and where each is in it. */
static int list_members(struct reading *rd, struct err *e)
{
    struct sqlite3_stmt *st = rd->members;
    struct buf *b = &rd->list;
    int r;

    if (strcmp(rd->view.packager, DELIVERY_MERGEWARC) != 0) {
        return 0;
    }
    buf_clear(b);
    buf_put_char(b, '[');
    db_bind_text(st, 1, slice_cstr(rd->view.package_id));
    r = db_step(st, "read members", e);
    while (r > 0) {
        buf_put_cstr(b, b->len > 1 ? ",{\"object_id\":" : "{\"object_id\":");
        json_put_string(b, db_column(st, 0));
        buf_printf(b, ",\"offset\":%lld,\"size\":%lld}", (long long)sqlite3_column_int64(st, 1),
                   (long long)sqlite3_column_int64(st, 2));
        r = db_step(st, "read members", e);
    }
    sqlite3_reset(st);
    buf_put_char(b, ']');
    rd->view.member_list = buf_slice(b);
    return r == 0 && b->failed ? err_set(e, ERR_NO_MEMORY, "no memory for members") : r;
}

static int walk(struct reading *rd, struct sqlite3_stmt *st,
                bool (*row)(void *ctx, const struct delivery_view *v), void *ctx,
                struct delivery_page *out, struct err *e)
{
    uint64_t end_ns = os_clock_mono_ns() + PAGE_NS;
    unsigned shown = 0;
    int r = db_step(st, "read deliveries", e);

    for (unsigned scanned = 0; r > 0; scanned++) {
        struct slice project = db_column(st, AT_PROJECT);
        /* What is another project's need not be understood. */
        bool skip = rd->q->project != NULL && !slice_eq(project, slice_cstr(rd->q->project));

        /* At least one, so that a slow disk cannot keep it where it is. */
        if (shown == rd->q->limit ||
            (scanned > 0 && (scanned == PAGE_SCAN || os_clock_mono_ns() > end_ns))) {
            out->more = true;
            return 0;
        }
        r = skip ? 0 : take_row(st, &rd->view, e);
        if (r == 0 && !skip && wanted(rd->q, &rd->view)) {
            r = list_members(rd, e);
        }
        if (r < 0) {
            return r;
        }
        if (!skip && wanted(rd->q, &rd->view)) {
            if (!row(ctx, &rd->view)) {
                out->more = true;
                return 0;
            }
            shown++;
        }
        rd->number = sqlite3_column_int64(st, AT_PLACE);
        TAKE(rd->package_id, st, AT_PACKAGE);
        r = db_step(st, "read deliveries", e);
    }
    return r;
}

static int read_feed_id(struct reading *rd, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(rd->db, "SELECT id FROM feed", &st, e);

    if (r == 0) {
        r = db_step(st, "read the feed's id", e);
    }
    if (r > 0) {
        TAKE(rd->id, st, 0);
        r = is_hex(slice_cstr(rd->id), FEED_ID_MAX - 1);
    }
    sqlite3_finalize(st);
    return r > 0 ? 0 : r == 0 ? err_set(e, ERR_CORRUPT, "%s has no feed", DELIVERY_FILE) : r;
}

static int read_page(struct reading *rd, bool (*row)(void *ctx, const struct delivery_view *v),
                     void *ctx, struct delivery_page *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = read_feed_id(rd, e);

    if (r == 0) {
        r = read_cursor(rd, &out->restarted, e);
    }
    if (r == 0) {
        r = db_prepare(rd->db, rd->feed ? FEED_SQL : CREATED_SQL, &st, e);
    }
    if (r == 0) {
        r = db_prepare(rd->db, MEMBERS_SQL, &rd->members, e);
    }
    if (r == 0) {
        db_bind_int(st, 1, rd->number);
        if (!rd->feed) {
            db_bind_text(st, 2, slice_cstr(rd->package_id));
        }
        r = walk(rd, st, row, ctx, out, e);
    }
    if (r == 0) {
        put_cursor(rd, out);
    }
    sqlite3_finalize(st);
    sqlite3_finalize(rd->members);
    buf_free(&rd->list);
    return r;
}

int delivery_page_read(const char *data, const struct delivery_query *q,
                       bool (*row)(void *ctx, const struct delivery_view *v), void *ctx,
                       struct delivery_page *out, struct err *e)
{
    struct reading rd = {.q = q, .feed = q->by_state && q->state == DELIVERY_VERIFIED};
    int64_t version;
    int r = delivery_reader_begin(data, &rd.db, &version, e);

    ensure(q->limit > 0);
    *out = (struct delivery_page){0};
    /* Not there, or not brought forward: its owner does that first of all. The cursor stays. */
    if (r == 0 && version < 2) {
        delivery_reader_take(out->next, sizeof out->next, q->after);
    } else if (r == 0) {
        r = read_page(&rd, row, ctx, out, e);
    }
    sqlite3_close(rd.db);
    return r;
}
