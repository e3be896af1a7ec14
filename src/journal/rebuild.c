/* Closed generations at a start: what index/ says of them, and making what is missing.
 *
 * A start reads a summary of each closed generation (header, streams, checksums) and the heads,
 * fences and filters of runs; no generation, no key. When all is there, the journal is complete at
 * once. Otherwise everything from the first generation with something missing on is gone through
 * in order, since the chain head and the streams follow the order: by its summary where summary
 * and keys are there, else by proving the generation's bytes, which makes both. Last comes the
 * tail.
 *
 * With threads, when it is more than some megabytes, this is done beside readers, on a thread of
 * its own, which for that time owns index, streams and batches_in_tail; the loop takes no append
 * (journal_append looks at indexing first). The frontier's id is right from the start: it comes
 * from the tail, or from the name of the last closed generation; count and head follow at the end.
 * Only when all is proven is the tail mended and filled, and the next one made: with damage,
 * nothing in journal/ is changed. The atomic indexing hands everything back.
 *
 * Damage: what lies in front of it is published, the rest is taken off the list, and the journal
 * is poisoned as damaged, as when it is found at the start without threads. Readers that had begun
 * behind it meet ERR_CORRUPT. A generation that cannot be read (EIO, memory) poisons: a restart
 * may help.
 *
 * Power failure: only files of the index are written (index_file.c), generation by generation; the
 * next start goes on with what is missing then. */
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/scan.h"
#include "os/os.h"

#define REBUILD_NICE          5
#define REBUILD_AT_ONCE_BYTES (UINT64_C(16) << 20)
#define REBUILD_ROOM_MS       100

/* ---- one generation ---- */

static const struct uuid *last_of(const struct rebuild *rb)
{
    return rb->at.empty ? NULL : &rb->at.last_id;
}

/* The generation ends at the scan's place, whole or with damage there: rb goes there. Behind damage
 * there is nothing more: its end, the end of the list and the frontier change at once, so that no
 * reader takes the cut for the generation's own end and goes on in the next one. */
static void settle(struct journal *j, struct generation *g, const struct scan *s, bool whole)
{
    struct rebuild *rb = &j->rebuild;
    if (s->events > 0) {
        rb->at.empty = false;
        rb->at.last_id = s->last_id;
        rb->at.events += s->events;
        memcpy(rb->at.head, s->head, SHA256_LEN);
    }
    rb->bytes += whole ? g->bytes : s->offset;
    pthread_mutex_lock(&j->lock);
    g->events = s->events;
    g->counted = true;
    if (!whole) {
        g->bytes = s->offset;
        g->cut = true;
        g->last_id = s->events > 0 ? s->last_id : g->last_id;
        j->generation_count = g->ordinal + 1;
        j->frontier = rb->at;
    }
    pthread_mutex_unlock(&j->lock);
}

/* Proves the generation's batches. 0: all of it; ERR_CORRUPT names the place. */
static int prove(struct journal *j, struct generation *g, struct scan *s, bool with_keys,
                 uint64_t *batches, struct err *e)
{
    struct scan_batch b = {0};
    struct err why = {0};
    int r;
    while ((r = scan_next(s, &b, journal_count_line, j, &why)) == 1) {
        streams_keep(j->streams);
        *batches += 1;
        if (with_keys && journal_index_batch(j, &b, g->ordinal) != 0) {
            r = err_set(&why, ERR_NO_MEMORY, "no memory for batch keys");
            break;
        }
        if (atomic_load(&j->rebuild.stop)) {
            r = err_set(&why, ERR_NOT_READY, "the journal is closed");
            break;
        }
    }
    streams_undo(j->streams);
    if (r == 0 &&
        (s->offset != g->bytes || s->events == 0 || uuid_cmp(&b.last_id, &g->last_id) != 0)) {
        r = err_set_at(&why, ERR_CORRUPT, s->offset, "it does not end with its last event");
    }
    if (r == ERR_CORRUPT) {
        return err_set_at(e, ERR_CORRUPT, s->offset,
                          "closed generation %u is damaged at byte %llu: %s", g->ordinal,
                          (unsigned long long)s->offset, why.text);
    }
    if (r != 0) {
        *e = why;
        journal_say_refused(r, s->offset, e);
    }
    return r;
}

/* Proves a whole closed generation and makes its summary (and keys) again. */
static int rebuild(struct journal *j, struct generation *g, bool with_keys, struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    if (g->bytes > UINT32_MAX) {
        return err_set(e, ERR_UNSUPPORTED, "closed generation %u is larger than 4 GiB", g->ordinal);
    }
    struct index_summary sum = {.generation = g->ordinal,
                                .bytes = g->bytes,
                                .first_id = g->first_id,
                                .last_id = g->last_id};
    struct bytes_file *file;
    int r = journal_hold(j, g, &file, e);
    if (r != 0) {
        return r;
    }
    log_line(LOG_INFO, "journal", "rebuilding the index of generation %u", g->ordinal);
    struct scan s;
    scan_start_file(&s, file, g->bytes, last_of(rb), rb->at.head);
    s.origin = journal_origin(j, g->ordinal);
    r = prove(j, g, &s, with_keys, &sum.batches, e);
    memcpy(sum.head, s.head, SHA256_LEN);
    sum.events = s.events;
    if (r == 0 || r == ERR_CORRUPT) { /* after another failure nothing is known of the generation */
        settle(j, g, &s, r == 0);
    }
    scan_stop(&s);
    journal_release(j, g, file);
    if (r != 0) {
        return r;
    }
    r = streams_generation(j->streams, true, &sum.streams, &sum.stream_count);
    if (r != 0) {
        return err_set(e, r, "no memory for streams");
    }
    r = index_close_generation(j->index, &sum, with_keys, e);
    free(sum.streams);
    index_flush(j->index); /* one generation's keys in memory at a time */
    return r;
}

/* By its summary. */
static int apply(struct journal *j, const struct generation *g, const struct index_summary *sum,
                 struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    int r = 0;
    for (uint32_t i = 0; i < sum->stream_count && r == 0; i++) {
        r = streams_load(j->streams, &sum->streams[i]);
    }
    rb->bytes += sum->bytes;
    rb->at.empty = false;
    rb->at.last_id = sum->last_id;
    rb->at.events += sum->events;
    memcpy(rb->at.head, sum->head, SHA256_LEN);
    if (!atomic_load(&j->indexing)) { /* the lines of retirements are read as a reader does it */
        pthread_mutex_lock(&j->lock);
        j->frontier = rb->at;
        pthread_mutex_unlock(&j->lock);
    }
    return r == 0 ? journal_load_retirements(j, g, sum, e) : err_set(e, r, "no memory for streams");
}

/* 1: the summary is there and holds, and is noted. 0: it is not. ERR_NO_MEMORY. */
static int summary_of(struct journal *j, struct generation *g, struct index_summary *sum,
                      struct err *e)
{
    struct index_generation expect = {g->first_id, g->last_id, g->bytes};
    struct err why = {0};
    int r = index_summary_load(j->layout.index, g->ordinal, &expect, sum, &why);
    if (r == ERR_NO_MEMORY) {
        *e = why;
        return r;
    }
    if (r != 0) {
        return 0;
    }
    journal_note_summary(j, sum);
    return 1;
}

static void made_one(struct journal *j)
{
    struct rebuild *rb = &j->rebuild;
    rb->next++;
    pthread_mutex_lock(&j->lock);
    rb->done = rb->next;
    pthread_mutex_unlock(&j->lock);
    metric_set(METRIC_INDEX_GENERATIONS_MISSING, rb->total - rb->next);
    if (j->options.progress != NULL) {
        j->options.progress(j->options.progress_ctx, rb->bytes, rb->total_bytes);
    }
}

/* Keys that cannot be written wait in memory, up to their bound; then the next generation waits
 * too. On the rebuilding thread only: a start would hang. */
static void await_room(struct journal *j)
{
    while (atomic_load(&j->indexing) && index_full(j->index) && !atomic_load(&j->rebuild.stop)) {
        (void)os_poll(NULL, 0, REBUILD_ROOM_MS);
        index_flush(j->index); /* tries all of them again */
    }
}

/* Makes what is missing, up to the tail. */
static int rebuild_closed(struct journal *j, struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    int r = 0;
    while (rb->next < rb->total && r == 0) {
        struct generation *g = j->generations[rb->next];
        struct index_summary sum;
        await_room(j);
        if (atomic_load(&rb->stop)) {
            return err_set(e, ERR_NOT_READY, "the journal is closed");
        }
        r = rb->keys_known[g->ordinal] ? summary_of(j, g, &sum, e) : 0;
        if (r == 0) {
            r = rebuild(j, g, !rb->keys_known[g->ordinal], e);
        } else if (r > 0) {
            r = apply(j, g, &sum, e);
            index_summary_free(&sum);
        }
        if (r == 0) {
            made_one(j);
        }
    }
    return r;
}

/* ---- at the start ---- */

/* Takes what the index has; rb->next becomes the first generation that lacks something. */
static int load_summaries(struct journal *j, struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    bool gap = false;
    int r = 0;
    for (uint32_t i = 0; i < rb->total && r >= 0; i++) {
        struct index_summary sum;
        r = summary_of(j, j->generations[i], &sum, e);
        gap = gap || r == 0 || !rb->keys_known[i];
        if (r <= 0) {
            continue;
        }
        if (!gap) {
            r = apply(j, j->generations[i], &sum, e);
            rb->next = r == 0 ? i + 1 : i;
        }
        index_summary_free(&sum);
    }
    rb->done = rb->next;
    return r < 0 ? r : 0;
}

/* ERR_CORRUPT: the last one that was added is damaged, and lacks its bytes. */
static int add_generations(struct journal *j, const struct inventory *inv, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < inv->count && r == 0; i++) {
        const struct layout_generation *row = &inv->closed[i];
        struct generation *g = journal_add_generation(j, -1);
        if (g == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for generations");
        }
        g->first_id = row->first_id;
        g->last_id = row->last_id;
        g->named_last_id = row->last_id;
        g->bytes = row->bytes;
        g->events = 1;
        r = row->sealed ? journal_load_sealed(j, g, row, inventory_covered(inv, row), e) : 0;
        if (r == 0) {
            j->rebuild.total++;
            j->rebuild.total_bytes += row->bytes;
        }
    }
    return r;
}

static int open_index(struct journal *j, const struct layout_generation *rows, uint32_t count,
                      struct err *e)
{
    const struct index_options options = {.background = j->options.threads,
                                          .memory_bytes = j->options.index_memory,
                                          .read = journal_index_read,
                                          .keys = journal_index_keys,
                                          .written = journal_note_summary,
                                          .ctx = j};
    struct rebuild *rb = &j->rebuild;
    struct index_generation *closed = calloc(count + 1u, sizeof *closed);
    rb->keys_known = calloc(count + 1u, sizeof *rb->keys_known);
    if (closed == NULL || rb->keys_known == NULL) {
        free(closed);
        return err_set(e, ERR_NO_MEMORY, "no memory for generations");
    }
    for (uint32_t i = 0; i < count; i++) {
        closed[i] = (struct index_generation){rows[i].first_id, rows[i].last_id, rows[i].bytes};
    }
    int r = j->options.reindex ? index_forget(j->layout.index, e) : 0;
    if (r == 0) {
        j->index = index_open(j->layout.index, closed, count, rb->keys_known, &options, e);
        r = j->index == NULL ? e->code : 0;
    }
    free(closed);
    return r;
}

static void finish(struct journal *j)
{
    free(j->rebuild.keys_known);
    j->rebuild.keys_known = NULL;
    metric_set(METRIC_INDEX_GENERATIONS_MISSING, 0);
}

/* What rb has reached is the frontier; behind it there is nothing more, after damage. */
static void publish(struct journal *j, bool damaged)
{
    struct rebuild *rb = &j->rebuild;
    pthread_mutex_lock(&j->lock);
    j->frontier = rb->at;
    j->bytes = rb->bytes;
    if (damaged && rb->next < rb->total) {
        j->generation_count = rb->next + 1;
    }
    pthread_mutex_unlock(&j->lock);
}

/* Much is missing; what is little is made at once, before a client has come again. */
static bool is_much(const struct journal *j)
{
    uint64_t most = j->options.index_at_once;
    return j->rebuild.total_bytes - j->rebuild.bytes > (most > 0 ? most : REBUILD_AT_ONCE_BYTES);
}

/* What is missing is left to the thread. */
static void leave_to_thread(struct journal *j)
{
    struct rebuild *rb = &j->rebuild;
    log_line(LOG_WARN, "journal",
             "the index lacks something from closed generation %u of %u on; it is made while "
             "reads are served, appends wait",
             rb->next, rb->total);
    metric_set(METRIC_INDEX_GENERATIONS_MISSING, rb->total - rb->next);
    j->bytes = rb->total_bytes;
    j->frontier = (struct journal_frontier){.last_id = j->generations[rb->total - 1]->last_id};
    atomic_store(&j->indexing, true);
}

/* damage: what was found when the generations were added, or 0. */
static int load(struct journal *j, int damage, struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    struct err later = {0};
    int r = load_summaries(j, &later);
    if (r != 0) { /* it comes before the damage */
        *e = later;
        publish(j, r == ERR_CORRUPT); /* retirements cannot be read: no generation behind them */
        return r;
    }
    if (damage == 0 && rb->next < rb->total && j->options.threads && is_much(j)) {
        leave_to_thread(j);
        return 0;
    }
    r = rebuild_closed(j, &later);
    *e = r != 0 ? later : *e;
    publish(j, r == ERR_CORRUPT);
    finish(j);
    return r != 0 ? r : damage;
}

int journal_load_closed(struct journal *j, struct err *e)
{
    struct inventory inv;
    int r = inventory_take_alone(&j->layout, &inv, e);
    if (r != 0) {
        return r;
    }
    j->manifest_bytes = inv.manifest.good_bytes;
    j->rebuild.at = j->frontier;
    r = open_index(j, inv.closed, inv.count, e);
    if (r == 0) {
        r = add_generations(j, &inv, e);
    }
    if (r == 0 || (r == ERR_CORRUPT && j->index != NULL)) {
        r = load(j, r, e);
    }
    if (r == 0) {
        r = journal_clear_seals(j, &inv, e);
    }
    inventory_free(&inv);
    return r;
}

/* ---- beside readers ---- */

/* The tail was proven at the start, without the head; nothing was appended since. */
static int rebuild_tail(struct journal *j, struct err *e)
{
    struct rebuild *rb = &j->rebuild;
    struct generation *tail = journal_tail(j);
    struct err why = {0};
    struct scan s;
    if (!tail->tail) { /* there is none behind damage that is no generation's own */
        return err_set(e, ERR_CORRUPT, "%s", j->cause);
    }
    scan_start(&s, tail->fd, tail->bytes, last_of(rb), rb->at.head);
    s.origin = journal_origin(j, tail->ordinal);
    int r = journal_count_tail(j, &s, &why);
    if (r == 0 && (s.offset != tail->bytes || s.events != tail->events)) {
        r = err_set(&why, ERR_CORRUPT, "it is not what it was at the start");
    }
    if (s.events > 0) {
        rb->at.empty = false;
        rb->at.last_id = s.last_id;
        rb->at.events += s.events;
        memcpy(rb->at.head, s.head, SHA256_LEN);
    }
    rb->bytes += s.offset;
    if (r == ERR_CORRUPT) {
        r = err_set_at(e, ERR_CORRUPT, s.offset, "tail.ndjson is damaged at byte %llu: %s",
                       (unsigned long long)s.offset, why.text);
        pthread_mutex_lock(&j->lock);
        tail->bytes = s.offset;
        tail->events = s.events;
        tail->last_id = s.last_id;
        j->frontier = rb->at;
        pthread_mutex_unlock(&j->lock);
    } else if (r != 0) {
        *e = why;
        journal_say_refused(r, s.offset, e);
    }
    scan_stop(&s);
    return r;
}

static void *rebuild_thread(void *arg)
{
    struct journal *j = arg;
    struct err e = {0};
    (void)os_set_nice(REBUILD_NICE);
    int r = rebuild_closed(j, &e);
    if (r == 0) {
        r = rebuild_tail(j, &e);
    }
    bool proven = r == 0 && !atomic_load(&j->poisoned); /* a damaged one is left as it is */
    if (proven) {
        r = journal_ready_tail(j, &e);
    }
    if (proven && r == 0) {
        r = journal_start_spare(j, &e);
    }
    if (r == ERR_NOT_READY) {
        return NULL; /* the journal is being closed */
    }
    if (r == ERR_CORRUPT) {
        publish(j, true);
        journal_poison_damaged(j, e.text);
    } else if (r != 0) {
        journal_poison(j, e.text);
    } else {
        publish(j, false);
        log_line(LOG_INFO, "journal", "the index is complete");
    }
    finish(j);
    atomic_store(&j->indexing, false);
    return NULL;
}

int journal_rebuild_start(struct journal *j, struct err *e)
{
    if (!atomic_load(&j->indexing)) {
        return 0;
    }
    int r = pthread_create(&j->rebuild.thread, NULL, rebuild_thread, j);
    if (r != 0) {
        return err_os(e, -r, "start a thread for", "the index");
    }
    j->rebuild.running = true;
    return 0;
}

void journal_rebuild_stop(struct journal *j)
{
    if (j->rebuild.running) {
        atomic_store(&j->rebuild.stop, true);
        int r = pthread_join(j->rebuild.thread, NULL);
        ensure(r == 0);
        j->rebuild.running = false;
    }
    free(j->rebuild.keys_known);
    j->rebuild.keys_known = NULL;
}
