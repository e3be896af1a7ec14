/* Budgets and counters, one update a job and project.
 *
 * Invariants: between turns project_counters equals what it counts, and `committed` its sums;
 * within a job, stored value plus change equals what the transaction holds. A job that is undone
 * leaves nothing here; a turn that is undone leaves `committed`.
 *
 * If power fails: counters are in the transaction of the rows they count.
 * A budget that is spent is an answer; a count below zero is damage or a bug elsewhere, is left for
 * verify to report, and never wraps a budget check (signed arithmetic). */
#include "store/account.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "store/internal.h"

static int load(struct store *s, int64_t id, struct account_project *p, struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_COUNTERS_GET];
    int r;

    db_bind_int(st, 1, id);
    r = db_step(st, "read a project's counters", e);
    if (r < 0) {
        return r;
    }
    if (r == 0) {
        return err_set(e, ERR_NOT_FOUND, "no project %lld", (long long)id);
    }
    *p = (struct account_project){.id = id,
                                  .events = sqlite3_column_int64(st, 0),
                                  .bytes = sqlite3_column_int64(st, 1),
                                  .kept = sqlite3_column_int64(st, 2),
                                  .kept_bytes = sqlite3_column_int64(st, 3)};
    sqlite3_reset(st);
    return 0;
}

int account_project(struct store *s, int64_t project, struct account_project **out, struct err *e)
{
    struct account *a = &s->account;
    int r;

    ensure(s->in_job);
    if (a->last < a->count && a->project[a->last].id == project) {
        *out = &a->project[a->last];
        return 0;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (a->project[i].id == project) {
            a->last = i;
            *out = &a->project[i];
            return 0;
        }
    }
    if (a->count == a->cap) {
        size_t cap = a->cap == 0 ? 16 : a->cap * 2;
        struct account_project *more = realloc(a->project, cap * sizeof *more);
        if (more == NULL) {
            return err_set(e, ERR_NO_MEMORY, "count for one more project: out of memory");
        }
        a->project = more;
        a->cap = cap;
    }
    r = load(s, project, &a->project[a->count], e);
    if (r < 0) {
        return r;
    }
    a->last = a->count++;
    *out = &a->project[a->last];
    return 0;
}

static bool spent(int64_t used, uint64_t more, uint64_t max)
{
    uint64_t now = used < 0 ? 0 : (uint64_t)used;
    return now > max || more > max - now;
}

int account_room(struct store *s, const struct account_project *p, uint64_t bytes, struct err *e)
{
    const struct account *a = &s->account;
    const struct store_options *o = &s->options;
    int64_t events = a->committed.pending_events + a->turn.pending_events + a->job.pending_events;
    int64_t size = a->committed.pending_bytes + a->turn.pending_bytes + a->job.pending_bytes;

    if (spent(p->events + p->d_events, 1, o->project_events_max)) {
        return err_set(e, ERR_QUEUE_FULL, "the project's queue holds its %llu events",
                       (unsigned long long)o->project_events_max);
    }
    if (spent(p->bytes + p->d_bytes, bytes, o->project_bytes_max)) {
        return err_set(e, ERR_QUEUE_FULL, "the project's queue has no room within its %llu bytes",
                       (unsigned long long)o->project_bytes_max);
    }
    if (spent(events, 1, o->queue_events_max)) {
        return err_set(e, ERR_QUEUE_FULL, "the queue holds its %llu events",
                       (unsigned long long)o->queue_events_max);
    }
    if (spent(size, bytes, o->queue_bytes_max)) {
        return err_set(e, ERR_QUEUE_FULL, "the queue has no room within its %llu bytes",
                       (unsigned long long)o->queue_bytes_max);
    }
    return 0;
}

void account_add_event(struct store *s, struct account_project *p, int64_t bytes)
{
    ensure(bytes >= 0);
    p->d_events++;
    p->d_bytes += bytes;
    p->d_receipts++;
    s->account.job.pending_events++;
    s->account.job.pending_bytes += bytes;
    s->account.job.receipts++;
}

void account_remove_event(struct store *s, struct account_project *p, int64_t bytes)
{
    p->d_events--;
    p->d_bytes -= bytes;
    s->account.job.pending_events--;
    s->account.job.pending_bytes -= bytes;
}

void account_add_rejected(struct store *s, struct account_project *p, bool kept, int64_t bytes)
{
    p->d_rejected++;
    s->account.job.rejected++;
    if (kept) {
        p->d_kept++;
        p->d_kept_bytes += bytes;
    }
}

static void sums_add(struct account_sums *to, const struct account_sums *more)
{
    to->pending_events += more->pending_events;
    to->pending_bytes += more->pending_bytes;
    to->receipts += more->receipts;
    to->rejected += more->rejected;
    to->quarantined += more->quarantined;
}

void account_job_begin(struct store *s)
{
    s->account.count = 0;
    s->account.last = 0;
    s->account.job = (struct account_sums){0};
}

int account_job_keep(struct store *s, struct err *e)
{
    struct account *a = &s->account;
    struct sqlite3_stmt *st = s->st[ST_COUNTERS_ADD];

    for (size_t i = 0; i < a->count; i++) {
        const struct account_project *p = &a->project[i];
        int r;
        if (p->d_events == 0 && p->d_bytes == 0 && p->d_receipts == 0 && p->d_rejected == 0) {
            continue;
        }
        db_bind_int(st, 1, p->id);
        db_bind_int(st, 2, p->d_events);
        db_bind_int(st, 3, p->d_bytes);
        db_bind_int(st, 4, p->d_receipts);
        db_bind_int(st, 5, p->d_rejected);
        db_bind_int(st, 6, p->d_kept);
        db_bind_int(st, 7, p->d_kept_bytes);
        r = db_run(st, "write a project's counters", e);
        if (r < 0) {
            return r;
        }
    }
    sums_add(&a->turn, &a->job);
    account_job_begin(s);
    return 0;
}

void account_job_undo(struct store *s)
{
    account_job_begin(s);
}

void account_turn_begin(struct store *s)
{
    s->account.turn = (struct account_sums){0};
    account_job_begin(s);
}

void account_turn_keep(struct store *s)
{
    sums_add(&s->account.committed, &s->account.turn);
    account_turn_begin(s);
}

void account_free(struct account *a)
{
    free(a->project);
    *a = (struct account){0};
}
