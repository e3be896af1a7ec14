/* The journal's shared state: poisoned and out of space, the list of generations and their
 * descriptors, the published frontier.
 *
 * The file of a closed generation is open while somebody reads it; the tail's always is. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/internal.h"
#include "journal/segment.h"
#include "os/os.h"

static void poison(struct journal *j, const char *cause, bool damaged)
{
    pthread_mutex_lock(&j->lock);
    bool first = !j->poisoned;
    j->damaged = j->damaged || damaged;
    if (first) {
        (void)snprintf(j->cause, sizeof j->cause, "%s", cause);
    }
    j->poisoned = true;
    pthread_mutex_unlock(&j->lock);
    if (first) {
        metric_set(METRIC_JOURNAL_POISONED, 1);
        log_line(LOG_ERROR, "journal", "%s: %s",
                 damaged ? "appends are refused, the journal is damaged"
                         : "no more appends until a restart",
                 cause);
    }
}

void journal_poison(struct journal *j, const char *cause)
{
    poison(j, cause, false);
}

void journal_poison_damaged(struct journal *j, const char *cause)
{
    poison(j, cause, true);
}

void journal_set_no_space(struct journal *j, bool on, const char *cause)
{
    pthread_mutex_lock(&j->lock);
    bool changed = j->no_space != on;
    j->no_space = on;
    if (!j->poisoned) {
        (void)snprintf(j->cause, sizeof j->cause, "%s", cause);
    }
    pthread_mutex_unlock(&j->lock);
    if (changed) {
        metric_set(METRIC_JOURNAL_NO_SPACE, on);
        log_line(LOG_WARN, "journal", on ? "intake waits: %s" : "there is space again%s", cause);
    }
}

struct generation *journal_add_generation(struct journal *j, int fd)
{
    struct generation *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    g->fd = fd;
    g->tail = fd >= 0;
    if (g->tail) {
        g->file = bytes_file_of(fd, j->generation_count);
        if (g->file == NULL) {
            free(g);
            return NULL;
        }
        g->file->users = 1; /* until it is closed in a rotation, or with the journal */
    }
    pthread_mutex_lock(&j->lock);
    if (j->generation_count == j->generation_cap) {
        uint32_t cap = j->generation_cap == 0 ? 64 : j->generation_cap * 2;
        struct generation **all = realloc(j->generations, cap * sizeof(struct generation *));
        if (all == NULL) {
            pthread_mutex_unlock(&j->lock);
            free(g->file); /* the descriptor stays the caller's */
            free(g);
            return NULL;
        }
        j->generations = all;
        j->generation_cap = cap;
    }
    ensure(j->generation_count == j->generation_made);
    g->ordinal = j->generation_count;
    j->generations[j->generation_count++] = g;
    j->generation_made = j->generation_count;
    pthread_mutex_unlock(&j->lock);
    return g;
}

/* [lock] */
static bool in_segment(const struct generation *g)
{
    return g->sealed && !g->from_plain;
}

/* What of a closed generation says where its bytes are. [lock] */
static struct layout_generation where(const struct generation *g)
{
    struct layout_generation row = {.first_id = g->first_id,
                                    .last_id = g->named_last_id,
                                    .bytes = g->bytes,
                                    .events = g->events,
                                    .sealed = in_segment(g)};
    memcpy(row.sha256, g->sha256, SHA256_LEN);
    memcpy(row.head, g->head, SHA256_LEN);
    return row;
}

/* A segment must be of the generation that the manifest names. Of one that was cut at damage, row
 * has the bytes and events in front of it only, and the manifest's are compared no more: its names
 * and its head are. */
static int open_closed(struct journal *j, uint32_t ordinal, const struct layout_generation *row,
                       bool cut, struct bytes_file **out, struct err *e)
{
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&j->layout, row, path);
    int r = bytes_file_open(path, ordinal, out, e);
    if (r == ERR_NOT_FOUND) { /* of a closed generation that is damage */
        e->code = ERR_CORRUPT;
        return ERR_CORRUPT;
    }
    if (r != 0 || !row->sealed) {
        return r;
    }
    const struct segment *s = (*out)->segment;
    if (uuid_cmp(&s->first_id, &row->first_id) != 0 || uuid_cmp(&s->last_id, &row->last_id) != 0 ||
        memcmp(s->head, row->head, SHA256_LEN) != 0 ||
        (!cut && (s->plain_bytes != row->bytes || s->events != row->events))) {
        bytes_file_close(*out);
        *out = NULL;
        return err_set(e, ERR_CORRUPT, "the segment of generation %u is that of another one",
                       ordinal);
    }
    return 0;
}

/* Under the lock: another one's file, or ours, which is taken over then (*mine is NULL). */
static bool take_file(struct generation *g, bool sealed, struct bytes_file **mine)
{
    if (g->file == NULL && *mine != NULL && in_segment(g) == sealed) {
        g->file = *mine;
        *mine = NULL;
        if (!sealed && !g->cut) {
            g->file->block_crcs = g->block_crcs;
            g->file->block_count = g->block_count;
            g->file->bytes = g->bytes;
        }
    }
    if (g->file != NULL) {
        g->file->users++;
    }
    return g->file != NULL;
}

/* The file is opened without the lock: the loop waits for it too. Meanwhile another one may have
 * opened it, or it may have been sealed: then the plain file is gone, or is none to begin with. */
int journal_hold(struct journal *j, struct generation *g, struct bytes_file **out, struct err *e)
{
    struct bytes_file *mine = NULL;
    struct layout_generation row = {0};
    struct err local;
    e = e != NULL ? e : &local;
    int r = 0;
    for (;;) {
        pthread_mutex_lock(&j->lock);
        bool changed = in_segment(g) != row.sealed;
        bool held = take_file(g, row.sealed, &mine);
        *out = g->file;
        row = where(g);
        bool cut = g->cut;
        ensure(held || !g->tail);
        pthread_mutex_unlock(&j->lock);
        bytes_file_close(mine);
        mine = NULL;
        if (held || (r != 0 && !changed)) {
            return held ? 0 : r;
        }
        r = open_closed(j, g->ordinal, &row, cut, &mine, e);
    }
}

void journal_release(struct journal *j, struct generation *g, struct bytes_file *file)
{
    bool last;
    pthread_mutex_lock(&j->lock);
    ensure(file->users > 0);
    file->users--;
    last = file->users == 0;
    if (last && g->file == file) {
        g->file = NULL;
    }
    pthread_mutex_unlock(&j->lock);
    if (last) {
        bytes_file_close(file);
    }
}

void journal_get_frontier(struct journal *j, struct journal_frontier *out)
{
    pthread_mutex_lock(&j->lock);
    *out = j->frontier;
    pthread_mutex_unlock(&j->lock);
}

void journal_get_status(struct journal *j, struct journal_status *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&j->lock);
    out->frontier = j->frontier;
    out->bytes = j->bytes;
    out->generations = j->generation_count;
    out->segments = j->sealed_count;
    out->sealed_bytes = j->sealed_bytes;
    out->stored_bytes = j->stored_bytes;
    out->poisoned = j->poisoned;
    out->damaged = j->damaged;
    out->no_space = j->no_space;
    out->indexing = j->indexing && !j->poisoned;
    out->indexed = j->rebuild.done;
    out->index_total = j->rebuild.total;
    memcpy(out->cause, j->cause, sizeof out->cause);
    pthread_mutex_unlock(&j->lock);
    out->index_full = index_full(j->index);
    out->clock_ahead_ms = metric_get(METRIC_JOURNAL_CLOCK_AHEAD_MS);
}

void journal_refresh_metrics(struct journal *j)
{
    struct journal_status st;
    journal_get_status(j, &st);
    metric_set(METRIC_JOURNAL_EVENTS, st.frontier.events);
    metric_set(METRIC_JOURNAL_BYTES, st.bytes);
    metric_set(METRIC_JOURNAL_GENERATIONS, st.generations);
    metric_set(METRIC_JOURNAL_SEGMENTS, st.segments);
    metric_set(METRIC_JOURNAL_SEGMENT_PLAIN_BYTES, st.sealed_bytes);
    metric_set(METRIC_JOURNAL_SEGMENT_BYTES, st.stored_bytes);
    metric_set(METRIC_INDEX_RUNS, index_run_count(j->index));
    metric_set(METRIC_INDEX_MEMORY, index_memory_used(j->index));
}

void journal_tick(struct journal *j)
{
    journal_refresh_metrics(j);
    if (!j->lookup_used) {
        journal_lookup_rest(j);
    }
    j->lookup_used = false;
    if (j->poisoned || atomic_load(&j->indexing)) {
        return;
    }
    sealer_tick(j);
    if (index_full(j->index)) {
        index_retry(j->index);
    }
    if (!j->no_space) {
        return;
    }
    struct err failure = {0};
    enum spare_state state = spare_peek(&j->spare, &failure);
    /* A rotation that met the failure has taken it: the spare is idle then. */
    if (state == SPARE_IDLE || (state == SPARE_FAILED && failure.code == ERR_NO_SPACE)) {
        spare_request(&j->spare);
    } else if (state == SPARE_READY && j->group_events == 0 &&
               os_clock_mono_ns() >= j->retry_space_ns) {
        journal_set_no_space(j, false, "");
    }
}
