/* delivery_show: what the deliverer tells whoever looks, and what people ask of it.
 *
 * What is running and held is news: the tables are replaced as a whole, in a transaction without a
 * sync (in WAL mode a later commit that is synced has it on the disk as well, and every checkpoint
 * syncs first), so that telling it costs the uploads beside it nothing. synchronous is FULL again
 * before anything else is written; where that cannot be had, the connection must not be used.
 *
 * Power failure: the news is lost, or a part of the WAL that nobody relied on; a start empties the
 * tables. What people ask for is one synced step: asked again after a crash, it changes nothing
 * that matters. Answers: all errors. */
#include "base/ensure.h"
#include "store/artifact/delivery_index_internal.h"

static const char *scope_name(enum delivery_scope scope)
{
    static const char *const names[DELIVERY_SCOPE_COUNT] = {
#define X(sym, name) [DELIVERY_SCOPE_##sym] = (name),
        DELIVERY_SCOPES(X)
#undef X
    };

    return names[scope];
}

static int put_running(struct delivery_index *ix, const struct delivery_running *w, int64_t now,
                       struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_RUNNING];

    db_bind_text(st, 1, slice_cstr(w->package_id));
    db_bind_text(st, 2, slice_cstr(w->project));
    db_bind_text(st, 3, slice_cstr(delivery_task_name(w->task)));
    db_bind_text(st, 4, slice_cstr(w->sink));
    db_bind_text(st, 5, slice_cstr(w->identifier));
    db_bind_int(st, 6, w->begun_at);
    db_bind_int(st, 7, (int64_t)w->bytes);
    db_bind_int(st, 8, (int64_t)w->size_bytes);
    db_bind_int(st, 9, (int64_t)w->bytes_per_s);
    db_bind_text(st, 10, slice_cstr(w->file));
    db_bind_int(st, 11, w->stuck ? 1 : 0);
    db_bind_int(st, 12, now);
    return index_run(ix, INDEX_RUNNING, true, "note what is running", e);
}

static int put_hold(struct delivery_index *ix, const struct index_hold *h, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_HELD];

    db_bind_text(st, 1, slice_cstr(scope_name(h->scope)));
    db_bind_text(st, 2, slice_cstr(h->sink));
    db_bind_text(st, 3, slice_cstr(h->key));
    db_bind_int(st, 4, h->until_ms);
    db_bind_text(st, 5, slice_cstr(h->text));
    return index_run(ix, INDEX_HELD, true, "note what is held", e);
}

static int replace(struct delivery_index *ix, const struct delivery_running *running,
                   unsigned count, int64_t now, struct err *e)
{
    int r = db_exec(ix->db, "DELETE FROM running; DELETE FROM holds", e);

    for (unsigned i = 0; r == 0 && i < count; i++) {
        r = put_running(ix, &running[i], now, e);
    }
    for (unsigned i = 0; r == 0 && i < DELIVERY_HOLDS_MAX; i++) {
        if (ix->hold[i].until_ms > now * 1000) {
            r = put_hold(ix, &ix->hold[i], e);
        }
    }
    return r;
}

int delivery_index_show(struct delivery_index *ix, const struct delivery_running *running,
                        unsigned count, int64_t now, bool *usable, struct err *e)
{
    struct err why;
    int r = db_exec(ix->db, "PRAGMA synchronous=NORMAL", e);

    if (r == 0) {
        r = delivery_index_begin(ix, e);
    }
    if (r == 0) {
        r = replace(ix, running, count, now, e);
        if (r == 0) {
            r = delivery_index_commit(ix, e);
        }
        if (r < 0) {
            delivery_index_undo(ix);
        }
    }
    *usable = db_exec(ix->db, "PRAGMA synchronous=FULL", &why) == 0;
    if (!*usable) {
        return err_set(e, why.code, "%s", why.text);
    }
    return r;
}

int delivery_index_late(struct delivery_index *ix, uint64_t *count, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_LATE];
    int r = db_step(st, "count what is late", e);

    *count = r > 0 ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

/* ---- asked for ---- */

struct asked {
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    bool sealed;
    bool waits; /* there is something that may be made due */
    struct delivery_plan plan;
};

static int look_asked(struct delivery_index *ix, const char *object_id, struct asked *out,
                      bool *found, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ASKED];
    int r;

    db_bind_text(st, 1, slice_cstr(object_id));
    r = db_step(st, "look for what is asked for", e);
    *found = r > 0;
    if (r > 0) {
        struct slice id = db_column(st, 0);
        ensure(id.len < sizeof out->package_id);
        memcpy(out->package_id, id.ptr, id.len);
        out->package_id[id.len] = '\0';
        out->sealed = slice_eq(db_column(st, 1), SLICE("sealed"));
        out->waits = !out->sealed || (!slice_eq(db_column(st, 2), SLICE("sending")) &&
                                      !slice_eq(db_column(st, 2), SLICE("verified")));
        r = out->sealed ? delivery_plan_parse(db_column(st, 3), &out->plan, e) : 0;
    }
    sqlite3_reset(st);
    return r;
}

int delivery_index_ask(struct delivery_index *ix, const char *object_id, int64_t now_ms,
                       bool *found, struct err *e)
{
    struct asked a;
    struct sqlite3_stmt *st;
    int r = look_asked(ix, object_id, &a, found, e);

    if (r < 0 || !*found || !a.waits) {
        return r;
    }
    if (a.sealed) {
        index_unhold(ix, &a.plan);
    }
    st = ix->st[a.sealed ? INDEX_ASK_SEND : INDEX_ASK_BUILD];
    db_bind_text(st, 1, slice_cstr(a.package_id));
    db_bind_int(st, 3, now_ms / 1000);
    db_bind_int(st, 4, now_ms);
    return index_run(ix, a.sealed ? INDEX_ASK_SEND : INDEX_ASK_BUILD, true,
                     "make due what is asked for", e);
}
