/* index_merge: a streaming eight-way merge.
 *
 * What a power failure leaves, step by step:
 *   - while the merged run is written: its NAME.tmp, and all inputs. index_open removes the .tmp
 * and uses the inputs.
 *   - after the rename, before the directory is synced: the merged run or not, and all inputs. If
 * it is there it is whole, since it was synced before; index_open uses it and removes the inputs,
 *     which it covers. If it is not there: the inputs.
 *   - after the directory sync, while inputs are unlinked: the merged run, and any of the inputs.
 *     Their removal is not synced: one that comes back is covered, and removed again.
 * At no step do the generations lack a durable run that holds their keys. Should the merged run be
 * damaged later, it is removed as a whole and its generations are indexed anew from the journal.
 *
 * Invariants: inputs are never changed; the output has as many keys as the inputs together.
 *
 * Answers: ERR_IO, ERR_NO_SPACE, ERR_CORRUPT, ERR_NO_MEMORY. Aborts: inputs that are not
 * neighbours. */
#include "journal/index_merge.h"

#include <stdlib.h>

#include "journal/index_format.h"

struct index_merge {
    const char *dir;
    struct index_run *inputs[INDEX_MERGE_WAYS];
    struct index_cursor cursors[INDEX_MERGE_WAYS];
    struct index_key heads[INDEX_MERGE_WAYS]; /* the next key of each input */
    bool live[INDEX_MERGE_WAYS];              /* it has one */
    struct index_run_writer writer;
};

/* Takes the next key of an input. */
static int index_merge_advance(struct index_merge *m, unsigned way, struct err *e)
{
    int more = index_cursor_next(&m->cursors[way], &m->heads[way], e);

    m->live[way] = more > 0;
    return more < 0 ? more : 0;
}

static int index_merge_prepare(struct index_merge *m, struct index_budget *budget, struct err *e)
{
    const struct index_run *first = m->inputs[0];
    const struct index_run *last = m->inputs[INDEX_MERGE_WAYS - 1];
    struct index_run_spec spec = {
        .from = first->from, .to = last->to, .first_id = first->first_id, .last_id = last->last_id};
    int result = 0;

    for (unsigned i = 0; i < INDEX_MERGE_WAYS && result == 0; i++) {
        ensure(i == 0 || m->inputs[i]->from == m->inputs[i - 1]->to + 1);
        spec.bytes += m->inputs[i]->bytes;
        spec.key_count += m->inputs[i]->key_count;
        result = index_cursor_start(&m->cursors[i], m->inputs[i], e);
        if (result == 0) {
            result = index_merge_advance(m, i, e);
        }
    }
    return result != 0 ? result : index_run_writer_start(&m->writer, m->dir, &spec, budget, e);
}

struct index_run *const *index_merge_inputs(const struct index_merge *m)
{
    return m->inputs;
}

struct index_merge *index_merge_start(const char *dir, struct index_run *const *inputs,
                                      struct index_budget *budget, struct err *e)
{
    struct index_merge *m = calloc(1, sizeof *m);

    if (m == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory to merge runs");
        return NULL;
    }
    m->dir = dir;
    m->writer.file.fd = -1;
    for (unsigned i = 0; i < INDEX_MERGE_WAYS; i++) {
        m->inputs[i] = index_run_hold(inputs[i]);
    }
    if (index_merge_prepare(m, budget, e) != 0) {
        index_merge_free(m);
        return NULL;
    }
    return m;
}

/* The input with the smallest key; INDEX_MERGE_WAYS when all are used up. */
static unsigned index_merge_least(const struct index_merge *m)
{
    unsigned least = INDEX_MERGE_WAYS;

    for (unsigned i = 0; i < INDEX_MERGE_WAYS; i++) {
        if (m->live[i] &&
            (least == INDEX_MERGE_WAYS || index_key_cmp(&m->heads[i], &m->heads[least]) < 0)) {
            least = i;
        }
    }
    return least;
}

int index_merge_step(struct index_merge *m, uint32_t key_count, struct index_run **out,
                     struct err *e)
{
    for (uint32_t n = 0; n < key_count; n++) {
        unsigned way = index_merge_least(m);
        int result;

        if (way == INDEX_MERGE_WAYS) {
            return index_run_writer_commit(&m->writer, out, e);
        }
        result = index_run_writer_add(&m->writer, &m->heads[way], e);
        if (result == 0) {
            result = index_merge_advance(m, way, e);
        }
        if (result != 0) {
            return result;
        }
    }
    return 1;
}

void index_merge_unlink_inputs(const struct index_merge *m)
{
    char name[INDEX_NAME_MAX];

    for (unsigned i = 0; i < INDEX_MERGE_WAYS; i++) {
        index_run_name(name, m->inputs[i]->from, m->inputs[i]->to);
        index_unlink(m->dir, name);
    }
}

void index_merge_free(struct index_merge *m)
{
    if (m == NULL) {
        return;
    }
    index_run_writer_end(&m->writer);
    for (unsigned i = 0; i < INDEX_MERGE_WAYS; i++) {
        index_cursor_end(&m->cursors[i]);
        index_run_release(m->inputs[i]);
    }
    free(m);
}
