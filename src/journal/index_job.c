/* index_job: writing the run and the summary of a closed generation.
 *
 * Invariants: the table is frozen, so it is read without a lock. A run holds the keys of its one
 * generation. Usually these are all keys of the table; when an earlier generation could not be
 * closed for want of memory, its keys are in the table too, and the owner goes on using the table.
 *
 * Power failure: run and summary appear whole or not at all, independently of each other
 * (index_file.c); what is missing at the next opening is made again from the journal.
 *
 * Answers: all failures. Aborts: none of its own. */
#include "journal/index_job.h"

#include <stdlib.h>

#include "journal/index_format.h"
#include "journal/index_summary.h"

struct index_job *index_job_make(const struct index_summary *s, struct index_table *table)
{
    struct index_job *job = calloc(1, sizeof *job);

    if (job == NULL) {
        return NULL;
    }
    if (index_summary_copy(&job->summary, s) != 0) {
        free(job);
        return NULL;
    }
    job->table = table != NULL ? index_table_hold(table) : NULL;
    return job;
}

void index_job_free(struct index_job *job)
{
    if (job == NULL) {
        return;
    }
    index_table_release(job->table);
    index_summary_free(&job->summary);
    free(job);
}

/* Keeps the keys of one generation, in order; returns their number. */
static size_t index_job_filter(struct index_key *keys, size_t count, uint32_t generation)
{
    size_t kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (keys[i].generation == generation) {
            keys[kept] = keys[i];
            kept++;
        }
    }
    return kept;
}

int index_job_write_run(const struct index_job *job, const char *dir, struct index_budget *budget,
                        struct index_run **out, bool *whole, struct err *e)
{
    struct index_run_spec spec = {.from = job->summary.generation,
                                  .to = job->summary.generation,
                                  .first_id = job->summary.first_id,
                                  .last_id = job->summary.last_id,
                                  .bytes = job->summary.bytes};
    struct index_key *keys = index_table_sorted(job->table);
    struct index_run_writer w;
    int result;

    if (keys == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to sort %zu keys", job->table->key_count);
    }
    spec.key_count = index_job_filter(keys, job->table->key_count, spec.from);
    *whole = spec.key_count == job->table->key_count;
    result = index_run_writer_start(&w, dir, &spec, budget, e);
    for (size_t i = 0; i < spec.key_count && result == 0; i++) {
        result = index_run_writer_add(&w, &keys[i], e);
    }
    if (result == 0) {
        result = index_run_writer_commit(&w, out, e);
    }
    index_run_writer_end(&w);
    free(keys);
    return result;
}

void index_job_run_failed(const struct index_job *job, const struct err *e)
{
    char name[INDEX_NAME_MAX];

    index_run_name(name, job->summary.generation, job->summary.generation);
    index_failed("write", name, e);
}

bool index_job_write_summary(struct index_job *job, const char *dir, const struct index_options *o)
{
    char name[INDEX_NAME_MAX];
    struct err e;

    if (job->summarized) {
        return true;
    }
    if (index_summary_write(dir, &job->summary, o, &e) != 0) {
        index_summary_name(name, job->summary.generation);
        index_failed("write", name, &e);
        return false;
    }
    job->summarized = true;
    if (o->written != NULL) {
        o->written(o->ctx, &job->summary);
    }
    return true;
}
