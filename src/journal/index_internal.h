/* index_internal: what index.c, index_work.c and index_mend.c share, and nobody else.
 *
 * Locks: index.lock guards view (the pointer), jobs, and the flags beside them. It is a leaf:
 * nothing that blocks happens under it, and no other lock is taken. The active table belongs to the
 * loop thread, the merge to the thread that does the work. */
#ifndef JOURNAL_INDEX_INTERNAL_H
#define JOURNAL_INDEX_INTERNAL_H

#include <pthread.h>

#include "journal/index_job.h"
#include "journal/index_merge.h"
#include "journal/index_view.h"

struct index {
    char *dir;
    struct index_table *active;
    uint64_t seed;
    struct index_options options;
    struct index_budget budget; /* of runs: half of the memory */
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t work; /* something to do, or stop */
    pthread_cond_t idle; /* nothing to do */
    struct index_view *view;
    struct index_job *jobs; /* oldest first */
    bool merge_waiting;     /* a merge failed; not before the next opportunity */
    bool mend_waiting;      /* the same of making a damaged run again */
    bool stop;
    bool busy;
    bool job_busy;  /* a job is being tried */
    unsigned hurry; /* callers who wait for merges: these are not paced */
    uint32_t job_count;
    atomic_uint_fast64_t frozen_bytes; /* of tables in the view */
    atomic_uint frozen_count;          /* of these, or of jobs if more */

    struct index_merge *merge; /* the worker's */
    atomic_bool merging;       /* merge is not NULL */
    struct index_mend *mend;   /* the worker's; NULL: none has begun */
};

/* The present view, held. */
struct index_view *index_view_now(struct index *ix);
/* Publishes the view with the change, and job (may be NULL) at the end of the queue with it.
 * ERR_NO_MEMORY: nothing has changed. */
int index_publish(struct index *ix, const struct index_view_change *change, struct index_job *job,
                  struct err *e) MUST_CHECK;

/* The background thread; arg is the index. */
void *index_thread(void *arg);
/* Notes what waits in memory for its files. Under the lock. */
void index_count_frozen(struct index *ix);
/* An opportunity: what failed may be tried again. The thread is woken, or the work done here. */
void index_kick(struct index *ix);
void index_merge_drop(struct index *ix);
/* A block of the run was found damaged: its file goes, so that its generations are indexed anew.
 * Once a run. */
void index_condemn(struct index *ix, struct index_run *run);

/* index_mend.c: the first run of the view that was condemned and can be made again here, or NULL.
 * Under the lock. */
struct index_run *index_mend_due(struct index *ix);
/* Makes one generation's keys again, of the run that is due. The worker's. */
void index_mend_step(struct index *ix);
void index_mend_drop(struct index *ix);

#endif
