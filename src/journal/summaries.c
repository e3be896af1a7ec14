/* What the journal and the index tell each other about closed generations.
 *
 * The functions are called by whoever writes runs and summaries, most often the index's thread,
 * while the journal is open. A generation that was closed keeps its bytes; once set, what is noted
 * of it does not change until the journal is closed.
 *
 * Power failure: nothing is written here. Answers: all failures; without memory for the checksums
 * the generation is read unchecked, and a restart tries again. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/scan.h"

static struct generation *generation_at(struct journal *j, uint32_t n)
{
    pthread_mutex_lock(&j->lock);
    struct generation *g = n < j->generation_made ? j->generations[n] : NULL;
    pthread_mutex_unlock(&j->lock);
    return g;
}

int64_t journal_index_read(void *ctx, uint32_t generation, uint64_t at, void *p, size_t n,
                           struct err *e)
{
    struct journal *j = ctx;
    struct generation *g = generation_at(j, generation);
    ensure(g != NULL);
    struct bytes_file *file;
    struct bytes_reader bytes;
    int r = journal_hold(j, g, &file, e);
    if (r != 0) {
        return r;
    }
    bytes_start(&bytes, file);
    int64_t got = bytes_read(&bytes, p, n, at, e);
    bytes_stop(&bytes);
    journal_release(j, g, file);
    return got;
}

/* Each batch is proven by itself, without what is before the generation: its hashes, its digest. */
static int each_key(struct scan *s, uint32_t generation, const struct index_generation *id,
                    index_key_fn *fn, void *fn_ctx, struct err *e)
{
    struct scan_batch b = {0};
    struct index_key key;
    int r;
    while ((r = scan_next(s, &b, NULL, NULL, e)) == 1) {
        journal_key_of(&b, generation, &key);
        r = fn(fn_ctx, &key);
        if (r != 0) {
            return err_set(e, r, "no memory for batch keys");
        }
    }
    if (r == 0 && (s->offset != id->bytes || uuid_cmp(&b.last_id, &id->last_id) != 0)) {
        r = err_set_at(e, ERR_CORRUPT, s->offset, "generation %u does not end with its last event",
                       generation);
    }
    return r;
}

int journal_index_keys(void *ctx, uint32_t generation, struct index_generation *id,
                       index_key_fn *fn, void *fn_ctx, struct err *e)
{
    struct journal *j = ctx;
    struct generation *g = generation_at(j, generation);
    ensure(g != NULL);
    struct bytes_file *file;
    struct scan s;
    int r = journal_hold(j, g, &file, e);
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&j->lock);
    *id = (struct index_generation){g->first_id, g->named_last_id, g->bytes};
    pthread_mutex_unlock(&j->lock);
    scan_start_file(&s, file, id->bytes, NULL, chain_genesis);
    s.check_order = false;
    r = each_key(&s, generation, id, fn, fn_ctx, e);
    scan_stop(&s);
    journal_release(j, g, file);
    return r;
}

void journal_note_summary(void *ctx, const struct index_summary *s)
{
    struct journal *j = ctx;
    struct generation *g = generation_at(j, s->generation);
    ensure(g != NULL);
    size_t bytes = (size_t)s->block_count * sizeof *s->block_crcs;
    uint32_t *crcs = bytes > 0 ? malloc(bytes) : NULL;
    if (crcs != NULL) {
        memcpy(crcs, s->block_crcs, bytes);
    }
    pthread_mutex_lock(&j->lock);
    if (g->block_crcs == NULL && crcs != NULL && index_summary_blocks(g->bytes) == s->block_count) {
        g->block_crcs = crcs;
        g->block_count = s->block_count;
        crcs = NULL;
    }
    g->filter = s->filter;
    g->events = s->events;
    g->counted = true;
    pthread_mutex_unlock(&j->lock);
    free(crcs);
}
