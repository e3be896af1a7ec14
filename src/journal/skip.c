/* skip: may a closed generation hold matches of a filter?
 *
 * Two things that the index keeps of it can deny that. The filter over (source, record_key), of
 * which one block of 4 KiB is read; and the table of (source, stream), which is read with the
 * summary. A generation without a summary, the tail, and whatever cannot be read or does not hold
 * is read: skipping is an economy, and no reading depends on it. `kind` is known of lines only. */
#include "journal/skip.h"

#include "base/metrics.h"
#include "journal/internal.h"

/* Some stream of the generation has the names that are asked for. */
static bool streams_maybe(const struct index_summary *s, const struct journal_filter *f)
{
    for (uint32_t i = 0; i < s->stream_count; i++) {
        if ((f->source.ptr == NULL || slice_eq(line_inner(f->source), s->streams[i].source)) &&
            (f->stream.ptr == NULL || slice_eq(line_inner(f->stream), s->streams[i].stream))) {
            return true;
        }
    }
    return false;
}

bool journal_skips(struct journal *j, uint32_t n, const struct journal_filter *f)
{
    if (f->source.ptr == NULL && f->stream.ptr == NULL) {
        return false;
    }
    pthread_mutex_lock(&j->lock);
    bool closed = n < j->generation_count && j->generations[n]->counted;
    struct generation g = closed ? *j->generations[n] : (struct generation){0};
    pthread_mutex_unlock(&j->lock);
    if (!closed) {
        return false;
    }
    bool maybe = true;
    if (f->source.ptr != NULL && f->record_key.ptr != NULL) {
        maybe = index_record_maybe(j->layout.index, n, &g.filter, f->source, f->record_key);
    }
    struct index_generation expect = {g.first_id, g.last_id, g.bytes};
    struct index_summary s;
    if (maybe && index_summary_load(j->layout.index, n, &expect, &s, NULL) == 0) {
        maybe = streams_maybe(&s, f);
        index_summary_free(&s);
    }
    metric_add(METRIC_JOURNAL_GENERATIONS_SKIPPED, !maybe);
    return !maybe;
}
