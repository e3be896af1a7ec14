/* index_mend: making a damaged run again, from the journal, while everything goes on.
 *
 * A run of which a block of keys does not hold is condemned: its file is removed, and it stays in
 * the view, so that lookups that need the block go on failing and no key is taken for new. Its
 * generations are gone through one by one, each proven from its bytes as a start would do it, and
 * each becomes a run of its own, durable as any. When the last of them is there they take the
 * condemned one's place, all at once, and are merged again like others. Memory: the keys of one
 * generation. A merge that was under way begins anew: the bad run may be among its inputs. While
 * this cannot go on, a merge of the bad run is tried like any other, and may succeed when it was a
 * read that was bad and not the disk: then there is nothing left to do.
 *
 * Failures: a generation that cannot be read, or that is damaged itself, and a run that cannot be
 * written are told; the next opportunity (index_kick) goes on there.
 *
 * Power failure: the runs that were written so far are what a start uses; it makes the others. The
 * condemned file's removal is not synced: it may come back, it covers what was made in its place,
 * and is found damaged again. Answers: none. Aborts: nothing that is due. */
#include <stdlib.h>

#include "base/log.h"
#include "journal/index_format.h"
#include "journal/index_internal.h"

struct index_mend {
    struct index_run *bad;
    struct index_run **parts; /* of its generations, in order */
    uint32_t count, span;     /* made, all */
};

struct index_run *index_mend_due(struct index *ix)
{
    const struct index_view *v = ix->view;

    if (ix->options.keys == NULL || ix->mend_waiting) {
        return NULL;
    }
    for (uint32_t i = 0; i < v->run_count; i++) {
        if (atomic_load(&v->runs[i]->gone)) {
            return v->runs[i];
        }
    }
    return NULL;
}

void index_mend_drop(struct index *ix)
{
    struct index_mend *m = ix->mend;

    if (m == NULL) {
        return;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        index_run_release(m->parts[i]);
    }
    index_run_release(m->bad);
    free(m->parts);
    free(m);
    ix->mend = NULL;
}

/* Begins with the run that is due, or goes on with it. */
static int index_mend_begin(struct index *ix, struct err *e)
{
    struct index_run *bad;
    struct index_mend *m;

    pthread_mutex_lock(&ix->lock);
    bad = index_run_hold(index_mend_due(ix)); /* only this thread takes runs out of a view */
    pthread_mutex_unlock(&ix->lock);
    index_merge_drop(ix);
    if (ix->mend != NULL && ix->mend->bad == bad) {
        index_run_release(bad);
        return 0;
    }
    index_mend_drop(ix);
    m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->span = bad->to - bad->from + 1;
        m->parts = calloc(m->span, sizeof(struct index_run *));
    }
    if (m == NULL || m->parts == NULL) {
        index_run_release(bad);
        free(m);
        return err_set(e, ERR_NO_MEMORY, "no memory for its generations");
    }
    m->bad = bad;
    ix->mend = m;
    return 0;
}

static int index_mend_insert(void *ctx, const struct index_key *key)
{
    return index_table_insert(ctx, key);
}

/* The next generation's keys, as a run. */
static int index_mend_one(struct index *ix, struct index_mend *m, struct err *e)
{
    struct index_job job = {.summary = {.generation = m->bad->from + m->count}};
    struct index_generation id;
    bool whole;
    int result;

    job.table = index_table_make(ix->seed, m->bad->key_count / m->span);
    if (job.table == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for its keys");
    }
    result = ix->options.keys(ix->options.ctx, job.summary.generation, &id, index_mend_insert,
                              job.table, e);
    if (result == 0) {
        job.summary.first_id = id.first_id;
        job.summary.last_id = id.last_id;
        job.summary.bytes = id.bytes;
        result = index_job_write_run(&job, ix->dir, &ix->budget, &m->parts[m->count], &whole, e);
    }
    m->count += result == 0;
    index_table_release(job.table);
    return result;
}

void index_mend_step(struct index *ix)
{
    char name[INDEX_NAME_MAX];
    struct index_mend *m;
    struct err e;
    int result = index_mend_begin(ix, &e);

    m = ix->mend;
    if (result == 0 && m->count < m->span) {
        result = index_mend_one(ix, m, &e);
    }
    if (result == 0 && m->count == m->span) {
        const struct index_view_change change = {.run_split = m->bad, .parts = m->parts};

        result = index_publish(ix, &change, NULL, &e);
        if (result == 0) {
            index_run_name(name, m->bad->from, m->bad->to);
            log_line(LOG_INFO, "index", "%s was made again from the journal", name);
            index_mend_drop(ix);
            return;
        }
    }
    if (result != 0) {
        index_failed("make again", "a damaged run", &e);
        pthread_mutex_lock(&ix->lock);
        ix->mend_waiting = true;
        pthread_mutex_unlock(&ix->lock);
    }
}
