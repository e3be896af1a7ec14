/* delivery_next: which work is due, fairly.
 *
 * There are two lanes, builds and sendings (with verifications), each with its own turn: projects
 * are served in the order of their names, after the one that was served last. Within a project the
 * oldest due goes first, a first try or a later one: a retry joins the line behind what was due
 * before it, so neither steady new work nor steady failures keep the other waiting for more than
 * what was due earlier. Verifications have a line of their own, because behind a backlog of
 * sendings they would wait for days, and their files for as long; when both are due, a Weyl
 * sequence says which: it falls on either side at least every few times, also when only each n-th
 * pick is looked at (which turns of projects do), as a plain alternation would not.
 *
 * The last worker: a project that has all but one gets that one only when nothing of any other
 * project is due. A project whose sendings hang thus leaves one for the others.
 *
 * What is under way or held is passed over. Held rows at the head of a line are counted; behind
 * WINDOW of them, all that the first one's hold covers in this project is made due at the hold's
 * end, in one transaction, and the line is looked at again.
 *
 * Look-ups in partial indexes, a few a project: a backlog costs nothing. Power failure: the one
 * thing written are such due times, which change no fact. Answers: every error; a plan that cannot
 * be read is ERR_CORRUPT. */
#include "base/ensure.h"
#include "store/artifact/delivery_index_internal.h"

#define WINDOW 64

const char *delivery_task_name(enum delivery_task t)
{
    static const char *const names[] = {[DELIVERY_NOTHING] = "nothing",
                                        [DELIVERY_BUILD] = "build",
                                        [DELIVERY_SEND] = "send",
                                        [DELIVERY_VERIFY] = "verify",
                                        [DELIVERY_PURGE] = "purge"};

    ensure(t >= 0);
    ensure((size_t)t < sizeof names / sizeof *names);
    return names[t];
}

static void take(char *out, size_t size, struct slice text)
{
    size_t n = text.len < size ? text.len : size - 1;

    memcpy(out, text.ptr, n);
    out[n] = '\0';
}

/* One call of delivery_index_next. */
struct search {
    struct delivery_index *ix;
    const struct delivery_ask *ask;
    int64_t now_ms;
    struct err *e;
};

/* A line of work: how its projects and its rows are found. */
struct line {
    enum delivery_task task;
    enum index_statement project, head;
};

static const struct line line_build = {DELIVERY_BUILD, INDEX_BUILD_PROJECT, INDEX_BUILD_HEAD};
static const struct line line_small = {DELIVERY_BUILD, INDEX_SMALL_PROJECT, INDEX_SMALL_HEAD};
static const struct line line_send = {DELIVERY_SEND, INDEX_SEND_PROJECT, INDEX_SEND_HEAD};
static const struct line line_sent = {DELIVERY_VERIFY, INDEX_SENT_PROJECT, INDEX_SENT_HEAD};

/* ---- projects ---- */

/* The least project after the given one that has rows; "" when there is none. */
static int project_of(const struct search *s, const struct line *line, const char *after,
                      char out[UPLOAD_PROJECT_MAX + 1])
{
    struct sqlite3_stmt *st = s->ix->st[line->project];
    int r;

    db_bind_text(st, 1, slice_cstr(after));
    r = db_step(st, "look for a project with work", s->e);
    out[0] = '\0';
    if (r > 0) {
        take(out, UPLOAD_PROJECT_MAX + 1, db_column(st, 0));
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int project_after(const struct search *s, const char *after,
                         char out[UPLOAD_PROJECT_MAX + 1])
{
    char other[UPLOAD_PROJECT_MAX + 1];
    int r;

    if (s->ask->lane == DELIVERY_LANE_BUILD) {
        return project_of(s, s->ask->small_only ? &line_small : &line_build, after, out);
    }
    r = project_of(s, &line_send, after, out);
    if (r == 0) {
        r = project_of(s, &line_sent, after, other);
    }
    if (r == 0 && other[0] != '\0' && (out[0] == '\0' || strcmp(other, out) < 0)) {
        memcpy(out, other, sizeof other);
    }
    return r;
}

/* It has its share of the workers: one is left for others. */
static bool has_its_share(const struct search *s, const char *project)
{
    unsigned n = 0;

    if (s->ask->lane != DELIVERY_LANE_SEND || s->ask->workers < 2) {
        return false;
    }
    for (size_t i = 0; i < DELIVERY_UNDER_WAY_MAX; i++) {
        const struct index_run *run = &s->ix->run[i];
        n += run->lane == DELIVERY_LANE_SEND && !run->stuck && run->package_id[0] != '\0' &&
             strcmp(run->project, project) == 0;
    }
    return n + 1 >= s->ask->workers;
}

/* ---- heads ---- */

struct head {
    enum delivery_task task; /* NOTHING: no row that may go; due_ms: when one may */
    int64_t due_ms;
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    unsigned attempts;
    int64_t sent_at;
    uint64_t maybe_files;
    int64_t maybe_at;
};

static bool is_due(int64_t due_ms, int64_t now_ms)
{
    return due_ms <= now_ms || due_ms > now_ms + INDEX_FAR_MS;
}

static bool under_way(const struct delivery_index *ix, struct slice package_id)
{
    for (size_t i = 0; i < DELIVERY_UNDER_WAY_MAX; i++) {
        if (slice_eq(package_id, slice_cstr(ix->run[i].package_id))) {
            return true;
        }
    }
    return false;
}

static const struct index_hold *held_row(const struct search *s, struct sqlite3_stmt *st)
{
    return s->ask->lane == DELIVERY_LANE_BUILD
               ? NULL
               : index_held(s->ix, db_column(st, 3), db_column(st, 4), db_column(st, 5), s->now_ms);
}

static void take_head(struct head *out, const struct line *line, struct sqlite3_stmt *st)
{
    out->task = line->task;
    out->due_ms = sqlite3_column_int64(st, 0);
    take(out->package_id, sizeof out->package_id, db_column(st, 1));
    out->attempts = (unsigned)sqlite3_column_int64(st, 2);
    out->sent_at = line->task == DELIVERY_VERIFY ? sqlite3_column_int64(st, 6) : 0;
    if (line->task == DELIVERY_SEND) {
        out->maybe_files = (uint64_t)sqlite3_column_int64(st, 7);
        out->maybe_at = sqlite3_column_int64(st, 8);
    }
}

/* The first row that may go, now or later. *first: the hold of the first WINDOW rows, where there
 * are so many due ones in a row; else NULL. */
static int walk(const struct search *s, const struct line *line, const char *project,
                struct head *out, const struct index_hold **first)
{
    struct sqlite3_stmt *st = s->ix->st[line->head];
    int64_t held_ms = INT64_MAX;
    unsigned seen = 0;
    int r;

    *first = NULL;
    *out = (struct head){.task = DELIVERY_NOTHING, .due_ms = INT64_MAX};
    db_bind_text(st, 1, slice_cstr(project));
    for (;;) {
        const struct index_hold *h;
        r = db_step(st, "look for due work", s->e);
        if (r <= 0 || seen == WINDOW) {
            break;
        }
        if (under_way(s->ix, db_column(st, 1))) {
            continue;
        }
        h = held_row(s, st);
        if (h == NULL) {
            take_head(out, line, st);
            break;
        }
        *first = *first == NULL ? h : *first;
        held_ms = h->until_ms < held_ms ? h->until_ms : held_ms;
        seen++;
        if (sqlite3_column_int64(st, 0) >= h->until_ms) {
            seen = 0; /* it is behind its hold already: what follows is not due either */
            *first = NULL;
            break;
        }
    }
    sqlite3_reset(st);
    if (seen < WINDOW) {
        *first = NULL;
    }
    if (held_ms < out->due_ms &&
        (out->task == DELIVERY_NOTHING || !is_due(out->due_ms, s->now_ms))) {
        *out = (struct head){.task = DELIVERY_NOTHING, .due_ms = held_ms};
    }
    return r < 0 ? r : 0;
}

/* Makes all of the project that is held with it due at its end. */
static int move_behind(const struct search *s, const char *project, const struct index_hold *h)
{
    struct sqlite3_stmt *st = s->ix->st[INDEX_BEHIND];

    db_bind_text(st, 1, slice_cstr(project));
    db_bind_text(st, 2, slice_cstr(h->sink));
    db_bind_int(st, 3, h->scope);
    db_bind_int(st, 4, h->until_ms);
    db_bind_text(st, 5, slice_cstr(h->key));
    return index_run(s->ix, INDEX_BEHIND, false, "postpone what is held", s->e);
}

static int head_of(const struct search *s, const struct line *line, const char *project,
                   struct head *out)
{
    const struct index_hold *h;
    int r = walk(s, line, project, out, &h);

    for (unsigned i = 0; r == 0 && h != NULL && i < DELIVERY_HOLDS_MAX; i++) {
        r = move_behind(s, project, h);
        if (r == 0) {
            r = walk(s, line, project, out, &h);
        }
    }
    return r;
}

/* Of the two that are due: which. */
static bool verification_first(const struct delivery_index *ix)
{
    return (ix->picks * UINT64_C(0x9e3779b97f4a7c15)) >> 63 != 0;
}

static int head_of_project(const struct search *s, const char *project, struct head *out)
{
    struct head sent;
    int64_t held_ms;
    int r;

    if (s->ask->lane == DELIVERY_LANE_BUILD) {
        return head_of(s, s->ask->small_only ? &line_small : &line_build, project, out);
    }
    held_ms = index_held_project_ms(s->ix, project, s->now_ms);
    if (held_ms != 0) {
        *out = (struct head){.task = DELIVERY_NOTHING, .due_ms = held_ms};
        return 0;
    }
    r = head_of(s, &line_send, project, out);
    if (r == 0) {
        r = head_of(s, &line_sent, project, &sent);
    }
    if (r == 0) {
        bool send_due = out->task != DELIVERY_NOTHING && is_due(out->due_ms, s->now_ms);
        bool sent_due = sent.task != DELIVERY_NOTHING && is_due(sent.due_ms, s->now_ms);
        bool choose_sent = send_due && sent_due   ? verification_first(s->ix)
                           : send_due != sent_due ? sent_due
                                                  : sent.due_ms < out->due_ms;
        *out = choose_sent ? sent : *out;
    }
    return r;
}

/* ---- loading ---- */

static void note_run(struct delivery_index *ix, enum delivery_lane lane, const char *project,
                     const char *package_id)
{
    struct index_run *run = NULL;

    for (size_t i = 0; i < DELIVERY_UNDER_WAY_MAX && run == NULL; i++) {
        run = ix->run[i].package_id[0] == '\0' ? &ix->run[i] : NULL;
    }
    ensure(run != NULL);
    run->lane = lane;
    run->stuck = false;
    take(run->project, sizeof run->project, slice_cstr(project));
    take(run->package_id, sizeof run->package_id, slice_cstr(package_id));
}

static int give(const struct search *s, const char *project, const struct head *h,
                struct delivery_work *out)
{
    struct delivery_index *ix = s->ix;
    bool all = h->task == DELIVERY_BUILD || h->task == DELIVERY_PURGE;
    bool merged;
    int r = index_load_package(ix, h->package_id, out, &merged, s->e);

    if (r == 0 && h->task != DELIVERY_BUILD) {
        r = index_load_plan(ix, h->package_id, &out->plan, s->e);
    }
    if (r == 0 && all && merged) {
        r = delivery_members_make(&out->members, DELIVERY_MEMBERS_MAX, s->e);
    }
    if (r == 0 && all && merged) {
        r = index_take_members(ix, INDEX_MEMBERS, h->package_id, &out->members, s->e);
    }
    if (r < 0) {
        delivery_members_free(&out->members);
        return r;
    }
    take(out->package_id, sizeof out->package_id, slice_cstr(h->package_id));
    out->task = h->task;
    out->due_ms = h->due_ms;
    out->attempts = h->attempts;
    out->sent_at = h->sent_at;
    out->maybe_files = h->maybe_files;
    out->maybe_at = h->maybe_at;
    ix->picks += s->ask->lane == DELIVERY_LANE_SEND ? 1 : 0;
    take(ix->after[s->ask->lane], sizeof ix->after[0], slice_cstr(project));
    note_run(ix, s->ask->lane, project, h->package_id);
    return 0;
}

/* ---- turns ---- */

/* All projects once, after the one that was served last. shares: those that have theirs are left
 * out; *left_out says that there was one. out->due_ms: when there may be work. */
static int sweep(const struct search *s, bool shares, bool *left_out, struct delivery_work *out)
{
    const char *begin = s->ix->after[s->ask->lane];
    char project[UPLOAD_PROJECT_MAX + 1], last[UPLOAD_PROJECT_MAX + 1];
    bool around = false;

    memcpy(last, begin, sizeof last);
    for (;;) {
        struct head head;
        int r = project_after(s, last, project);
        if (r < 0) {
            return r;
        }
        if (project[0] == '\0' || (around && strcmp(project, begin) > 0)) {
            if (around) {
                return 0;
            }
            around = true;
            last[0] = '\0';
            continue;
        }
        memcpy(last, project, sizeof last);
        if (shares && has_its_share(s, project)) {
            *left_out = true;
            continue;
        }
        r = head_of_project(s, project, &head);
        if (r < 0) {
            return r;
        }
        if (head.task != DELIVERY_NOTHING && is_due(head.due_ms, s->now_ms)) {
            return give(s, project, &head, out);
        }
        out->due_ms = head.due_ms < out->due_ms ? head.due_ms : out->due_ms;
    }
}

/* ---- purges: the oldest due ---- */

static int load_times(const struct search *s, const char *package_id, struct delivery_work *out)
{
    struct sqlite3_stmt *st = s->ix->st[INDEX_PURGE_TIMES];
    int r;

    db_bind_text(st, 1, slice_cstr(package_id));
    r = db_step(st, "read when a package was verified", s->e);
    if (r > 0) {
        out->sent_at = sqlite3_column_int64(st, 0);
        out->verified_at = sqlite3_column_int64(st, 1);
    } else if (r == 0) {
        r = err_set(s->e, ERR_CORRUPT, "bytes are due to go of a package that is not verified");
    }
    sqlite3_reset(st);
    return r < 0 ? r : 0;
}

static int next_purge(const struct search *s, struct delivery_work *out)
{
    struct sqlite3_stmt *st = s->ix->st[INDEX_PURGE_HEAD];
    struct head head = {.task = DELIVERY_NOTHING, .due_ms = INT64_MAX};
    int r = db_step(st, "look for a purge", s->e);

    while (r > 0 && head.task == DELIVERY_NOTHING) {
        if (under_way(s->ix, db_column(st, 1))) {
            r = db_step(st, "look for a purge", s->e);
            continue;
        }
        head.task = DELIVERY_PURGE;
        head.due_ms = sqlite3_column_int64(st, 0);
        take(head.package_id, sizeof head.package_id, db_column(st, 1));
    }
    sqlite3_reset(st);
    if (r < 0) {
        return r;
    }
    /* A retention may be years: no due time is too far ahead. */
    if (head.task == DELIVERY_NOTHING || head.due_ms > s->now_ms) {
        out->due_ms = head.due_ms;
        return 0;
    }
    r = load_times(s, head.package_id, out);
    head.sent_at = out->sent_at;
    return r == 0 ? give(s, "", &head, out) : r;
}

int delivery_index_next(struct delivery_index *ix, int64_t now_ms, const struct delivery_ask *ask,
                        struct delivery_work *out, struct err *e)
{
    struct search s = {.ix = ix, .ask = ask, .now_ms = now_ms, .e = e};
    bool left_out = false;
    int r;

    out->task = DELIVERY_NOTHING;
    out->due_ms = INT64_MAX;
    out->members = (struct delivery_members){0};
    if (ask->lane == DELIVERY_LANE_PURGE) {
        return next_purge(&s, out);
    }
    r = sweep(&s, true, &left_out, out);
    if (r == 0 && left_out && out->task == DELIVERY_NOTHING) {
        r = sweep(&s, false, &left_out, out);
    }
    return r;
}
