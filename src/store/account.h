/* account: the counters of the queue: budgets are checked against them, status shows them.
 *
 * project_counters is the stored truth of a committed state; what a job changes is gathered here
 * and written once, when the job is kept, inside its savepoint; so counters and rows commit or
 * vanish together, and 1,000 events cost one update. Sums of the instance are in memory:
 * committed, plus this turn's kept jobs, plus the running job. */
#ifndef STORE_ACCOUNT_H
#define STORE_ACCOUNT_H

#include <stddef.h>

#include "store/store.h"

struct account_sums {
    int64_t pending_events, pending_bytes, receipts, rejected, quarantined;
};

/* A project that the running job touches. */
struct account_project {
    int64_t id;
    /* Stored at the job's begin. */
    int64_t events, bytes, kept, kept_bytes;
    /* Changed by this job. */
    int64_t d_events, d_bytes, d_receipts, d_rejected, d_kept, d_kept_bytes;
    bool success; /* its delivery is recorded */
};

struct account {
    struct account_sums committed, turn, job;
    struct account_project *project; /* of the running job */
    size_t count, cap, last;
};

/* The project's entry of the running job; valid until the next call. ERR_NOT_FOUND: no counters,
 * so no such project. */
int account_project(struct store *s, int64_t project, struct account_project **out,
                    struct err *e) MUST_CHECK;
/* Room for one more event of so many bytes? ERR_QUEUE_FULL says which budget is spent. */
int account_room(struct store *s, const struct account_project *p, uint64_t bytes,
                 struct err *e) MUST_CHECK;

void account_add_event(struct store *s, struct account_project *p, int64_t bytes);
void account_remove_event(struct store *s, struct account_project *p, int64_t bytes);
/* kept: its text is stored too. */
void account_add_rejected(struct store *s, struct account_project *p, bool kept, int64_t bytes);

void account_job_begin(struct store *s);
/* Writes the job's changes. On failure the job must be undone. */
int account_job_keep(struct store *s, struct err *e) MUST_CHECK;
void account_job_undo(struct store *s);
void account_turn_begin(struct store *s);
void account_turn_keep(struct store *s);
void account_free(struct account *a);

#endif
