/* delivery_next: which work is due, fairly.
 *
 * Projects take turns in the order of their names, after the one that was served last; within a
 * project the oldest due goes first, and of its oldest build and its oldest delivery the older, or
 * the delivery: what was begun is finished first.
 * Two look-ups in partial indexes a project: a backlog of one project costs another nothing.
 *
 * A project whose place is not there is held for a while (in memory): its deliveries count as due
 * when that is over, its builds do not.
 *
 * A due time further ahead than any backoff goes comes from a clock that was wrong: it counts as
 * due. Power failure: nothing is written. Answers: every error; a plan that cannot be read is
 * ERR_CORRUPT. */
#include "base/ensure.h"
#include "store/artifact/delivery_index_internal.h"

#define FAR_MS (INT64_C(2) * 3600 * 1000)

static void take(char *out, size_t size, struct slice text)
{
    size_t n = text.len < size ? text.len : size - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

/* The least project after the given one that has rows; "" when there is none. */
static int project_of(struct delivery_index *ix, enum index_statement which, const char *after,
                      char out[UPLOAD_PROJECT_MAX + 1], struct err *e)
{
    struct sqlite3_stmt *st = ix->st[which];
    int r;

    db_bind_text(st, 1, slice_cstr(after));
    r = db_step(st, "look for a project with work", e);
    out[0] = '\0';
    if (r > 0) {
        take(out, UPLOAD_PROJECT_MAX + 1, db_column(st, 0));
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int project_after(struct delivery_index *ix, const char *after,
                         char out[UPLOAD_PROJECT_MAX + 1], struct err *e)
{
    char other[UPLOAD_PROJECT_MAX + 1];
    int r = project_of(ix, INDEX_BUILD_PROJECT, after, out, e);

    if (r == 0) {
        r = project_of(ix, INDEX_SEND_PROJECT, after, other, e);
    }
    if (r == 0 && other[0] != '\0' && (out[0] == '\0' || strcmp(other, out) < 0)) {
        memcpy(out, other, sizeof other);
    }
    return r;
}

struct head {
    enum delivery_task task; /* NOTHING: no row */
    int64_t due_ms;
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    unsigned attempts;
};

static int head_of(struct delivery_index *ix, enum index_statement which, const char *project,
                   struct head *out, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[which];
    int r;

    *out = (struct head){.task = DELIVERY_NOTHING, .due_ms = INT64_MAX};
    db_bind_text(st, 1, slice_cstr(project));
    r = db_step(st, "look for due work", e);
    if (r > 0) {
        out->due_ms = sqlite3_column_int64(st, 0);
        take(out->package_id, sizeof out->package_id, db_column(st, 1));
        out->attempts = (unsigned)sqlite3_column_int64(st, 2);
        out->task = DELIVERY_BUILD;
        if (which == INDEX_SEND_HEAD) {
            out->task = slice_eq(db_column(st, 3), SLICE("sent")) ? DELIVERY_VERIFY : DELIVERY_SEND;
        }
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

void delivery_index_hold(struct delivery_index *ix, const char *project, int64_t until_ms)
{
    struct index_hold *at = &ix->hold[0];

    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        struct index_hold *h = &ix->hold[i];
        if (strcmp(h->project, project) == 0) {
            at = h;
            break;
        }
        at = h->until_ms < at->until_ms ? h : at;
    }
    take(at->project, sizeof at->project, slice_cstr(project));
    at->until_ms = until_ms;
}

static int64_t held_until_ms(const struct delivery_index *ix, const char *project)
{
    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        if (strcmp(ix->hold[i].project, project) == 0) {
            return ix->hold[i].until_ms;
        }
    }
    return 0;
}

/* The older of a project's two heads, the delivery where they are of one age. */
static int head_of_project(struct delivery_index *ix, const char *project, struct head *out,
                           struct err *e)
{
    int64_t held_ms = held_until_ms(ix, project);
    struct head send;
    int r = head_of(ix, INDEX_BUILD_HEAD, project, out, e);

    if (r == 0) {
        r = head_of(ix, INDEX_SEND_HEAD, project, &send, e);
    }
    send.due_ms = send.due_ms > held_ms ? send.due_ms : held_ms;
    if (r == 0 && send.task != DELIVERY_NOTHING && send.due_ms <= out->due_ms) {
        *out = send;
    }
    return r;
}

static int load_artifact(struct delivery_index *ix, const char *package_id,
                         struct delivery_artifact *out, struct err *e)
{
    struct sqlite3_stmt *st = ix->st[INDEX_ARTIFACT];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "read an artifact", e);
    if (r > 0) {
        take(out->object_id, sizeof out->object_id, db_column(st, 0));
        take(out->project, sizeof out->project, db_column(st, 1));
        take(out->filename, sizeof out->filename, db_column(st, 2));
        take(out->checksum, sizeof out->checksum, db_column(st, 3));
        out->size_bytes = (uint64_t)sqlite3_column_int64(st, 4);
        out->accepted_at = sqlite3_column_int64(st, 5);
    } else if (r == 0) {
        r = err_set(e, ERR_CORRUPT, "a package without its artifact");
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int load_plan(struct delivery_index *ix, const char *package_id, struct delivery_plan *out,
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

static int load(struct delivery_index *ix, const struct head *h, struct delivery_work *out,
                struct err *e)
{
    int r = load_artifact(ix, h->package_id, &out->artifact, e);

    out->task = h->task;
    out->due_ms = h->due_ms;
    out->attempts = h->attempts;
    if (r == 0 && h->task != DELIVERY_BUILD) {
        r = load_plan(ix, h->package_id, &out->plan, e);
    }
    return r;
}

static bool is_due(const struct head *h, int64_t now_ms)
{
    return h->task != DELIVERY_NOTHING && (h->due_ms <= now_ms || h->due_ms > now_ms + FAR_MS);
}

int delivery_index_next(struct delivery_index *ix, int64_t now_ms,
                        char after[UPLOAD_PROJECT_MAX + 1], struct delivery_work *out,
                        struct err *e)
{
    char project[UPLOAD_PROJECT_MAX + 1];
    char last[UPLOAD_PROJECT_MAX + 1];
    struct head head;
    bool around = false;
    int r;

    out->task = DELIVERY_NOTHING;
    out->due_ms = INT64_MAX;
    memcpy(last, after, sizeof last);
    for (;;) {
        r = project_after(ix, last, project, e);
        if (r < 0) {
            return r;
        }
        if (project[0] == '\0' || (around && strcmp(project, after) > 0)) {
            if (around) {
                return 0;
            }
            around = true;
            last[0] = '\0';
            continue;
        }
        r = head_of_project(ix, project, &head, e);
        if (r < 0) {
            return r;
        }
        if (is_due(&head, now_ms)) {
            memcpy(after, project, sizeof project);
            return load(ix, &head, out, e);
        }
        out->due_ms = head.due_ms < out->due_ms ? head.due_ms : out->due_ms;
        memcpy(last, project, sizeof last);
    }
}
