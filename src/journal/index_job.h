/* index_job: a closed generation whose files are still to be written.
 *
 * Made on the loop thread, worked on and freed by the thread that does the index's work. */
#ifndef JOURNAL_INDEX_JOB_H
#define JOURNAL_INDEX_JOB_H

#include "journal/index_run.h"
#include "journal/index_table.h"

struct index_job {
    struct index_job *next;
    bool waiting;              /* it failed; not before the next opportunity. The owner's. */
    struct index_table *table; /* frozen; NULL: no run to write, or written */
    struct index_summary summary;
    bool summarized; /* the summary is written */
};

/* Copies the summary, holds the table (may be NULL). NULL without memory. */
struct index_job *index_job_make(const struct index_summary *s, struct index_table *table);
/* NULL is fine. */
void index_job_free(struct index_job *job);

/* Writes the keys of the job's generation as a run, durably; one reference for the caller. *whole
 * tells whether these were all keys of the table. ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. Blocks. */
int index_job_write_run(const struct index_job *job, const char *dir, struct index_budget *budget,
                        struct index_run **out, bool *whole, struct err *e) MUST_CHECK;
/* Tells of a failure to write the run. */
void index_job_run_failed(const struct index_job *job, const struct err *e);
/* Writes the summary unless it is written, and tells o->written; a failure is told, and false.
 * Blocks. */
bool index_job_write_summary(struct index_job *job, const char *dir, const struct index_options *o);

#endif
