/* delivery_page: what others may read of delivery.sqlite: pages of packages and their deliveries,
 * with the members of merged ones.
 *
 * Each page is one connection and one read transaction, so that it shows one moment.
 *
 * Cursors are texts of ours:
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
#include "store/artifact/delivery_view_internal.h"

#include <stdio.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/delivery_plan.h"
#include "json/write.h"

#define PAGE_NS     500000000u
#define PAGE_SCAN   20000u
#define FEED_ID_MAX 17

#define MEMBERS                                                                      \
    " CROSS JOIN package_members m ON m.package_id = p.package_id AND m.ordinal = 1" \
    " CROSS JOIN artifacts a ON a.object_id = m.object_id"
#define CREATED_SQL                                                                    \
    "SELECT " VIEW_COLUMNS VIEW_COLUMNS_2                                              \
    ", p.created_at FROM packages p INDEXED BY packages_created" MEMBERS VIEW_DELIVERY \
    " WHERE (p.created_at, p.package_id) > (?1, ?2)"                                   \
    " ORDER BY p.created_at, p.package_id"
#define FEED_SQL                                                                                   \
    "SELECT " VIEW_COLUMNS VIEW_COLUMNS_2 ", d.verified_no FROM deliveries d"                      \
    " INDEXED BY deliveries_verified CROSS JOIN packages p ON p.package_id = d.package_id" MEMBERS \
    " WHERE d.verified_no > ?1 ORDER BY d.verified_no"
#define MEMBERS_SQL                                                   \
    "SELECT object_id, offset_bytes, size_bytes FROM package_members" \
    " WHERE package_id = ?1 ORDER BY ordinal"

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
        struct slice project = db_column(st, VIEW_PROJECT);
        /* What is another project's need not be understood. */
        bool skip = rd->q->project != NULL && !slice_eq(project, slice_cstr(rd->q->project));

        /* At least one, so that a slow disk cannot keep it where it is. */
        if (shown == rd->q->limit ||
            (scanned > 0 && (scanned == PAGE_SCAN || os_clock_mono_ns() > end_ns))) {
            out->more = true;
            return 0;
        }
        r = skip ? 0 : delivery_view_take(st, &rd->view, e);
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
        rd->number = sqlite3_column_int64(st, VIEW_PLACE);
        VIEW_TAKE(rd->package_id, st, VIEW_PACKAGE);
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
        VIEW_TAKE(rd->id, st, 0);
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
