/* Questions that a reader answers: whether an event is there, and the streams at a frontier.
 *
 * Streams at a frontier: the rows of closed generations come from their summaries, those of the
 * generation that holds the frontier from its lines. A summary that is not written yet or does not
 * hold is replaced by reading the lines. Beside it, whether an id that a client names as a frontier
 * is that of an event. */
#include <stdlib.h>

#include "journal/internal.h"
#include "journal/read.h"

struct collect {
    struct streams *table;
    struct slice source;
};

static int collect_row(struct collect *c, const struct index_stream *row)
{
    return c->source.len == 0 || slice_eq(c->source, row->source) ? streams_load(c->table, row) : 0;
}

/* The lines of one generation up to `through`. */
static int collect_lines(struct journal *j, struct collect *c, const struct uuid *before,
                         const struct uuid *through, struct err *e)
{
    struct journal_reader *r;
    int code = journal_reader_open(j, before, through, NULL, NULL, &r, e);
    if (code != 0) {
        return code;
    }
    struct line l;
    while ((code = journal_reader_next(r, &l, 0, e)) == 1) {
        struct index_stream row = {.source = line_inner(l.source),
                                   .stream = line_inner(l.stream),
                                   .last_id = l.id,
                                   .events = 1};
        code = collect_row(c, &row);
        if (code != 0) {
            code = err_set(e, code, "no memory for streams");
            break;
        }
    }
    journal_reader_close(r);
    return code;
}

/* A closed generation that lies wholly at or below `through`: by its summary, or by its lines while
 * that is not written yet. */
static int collect_closed(struct journal *j, struct collect *c, const struct generation *g,
                          const struct uuid *before, struct err *e)
{
    struct index_generation expect = {g->first_id, g->last_id, g->bytes};
    struct index_summary sum;
    int code = index_summary_load(j->layout.index, g->ordinal, &expect, &sum, NULL);
    if (code != 0) {
        return collect_lines(j, c, before, &g->last_id, e);
    }
    for (uint32_t i = 0; i < sum.stream_count && code == 0; i++) {
        code = collect_row(c, &sum.streams[i]);
    }
    index_summary_free(&sum);
    return code == 0 ? 0 : err_set(e, code, "no memory for streams");
}

static int collect_all(struct journal *j, struct collect *c, const struct uuid *through,
                       struct err *e)
{
    struct uuid before = {{0}};
    bool any = false;
    for (uint32_t n = 0;; n++) {
        struct generation copy;
        pthread_mutex_lock(&j->lock);
        bool there = n < j->generation_count && j->generations[n]->events > 0;
        if (there) {
            copy = *j->generations[n];
        }
        pthread_mutex_unlock(&j->lock);
        if (!there || uuid_cmp(&copy.first_id, through) > 0) {
            return 0;
        }
        int code;
        if (!copy.tail && uuid_cmp(&copy.last_id, through) <= 0) {
            code = collect_closed(j, c, &copy, any ? &before : NULL, e);
        } else {
            code = collect_lines(j, c, any ? &before : NULL, through, e);
        }
        if (code != 0) {
            return code;
        }
        any = true;
        before = copy.last_id;
    }
}

int journal_read_streams(struct journal *j, const struct uuid *through, struct slice source,
                         journal_stream_fn *fn, void *ctx, struct err *e)
{
    struct collect c = {.table = streams_new(), .source = source};
    if (c.table == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for streams");
    }
    struct index_stream *rows = NULL;
    uint32_t count = 0;
    int code = collect_all(j, &c, through, e);
    if (code == 0) {
        code = streams_rows(c.table, &rows, &count);
        if (code != 0) {
            code = err_set(e, code, "no memory for streams");
        }
    }
    for (uint32_t i = 0; i < count && code == 0; i++) {
        code = fn(ctx, &rows[i]);
    }
    free(rows);
    streams_free(c.table);
    return code;
}

int journal_has_event(struct journal *j, const struct uuid *id, struct err *e)
{
    struct journal_reader *r;
    struct uuid before = *id;
    for (int i = 15; i >= 0; i--) { /* the id just below */
        if (before.byte[i]-- != 0) {
            break;
        }
    }
    int code = journal_reader_open(j, &before, NULL, NULL, NULL, &r, e);
    if (code != 0) {
        return code;
    }
    struct line l;
    code = journal_reader_next(r, &l, 0, e);
    if (code == 1) {
        code = uuid_cmp(&l.id, id) == 0;
    }
    journal_reader_close(r);
    return code;
}
