/* The journal's shared state: poisoned and out of space, the list of generations and their
 * descriptors, the published frontier.
 *
 * A descriptor of a closed generation is open while somebody reads it; the tail's always is. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/internal.h"
#include "os/os.h"

static void poison(struct journal *j, const char *cause, bool damaged)
{
    pthread_mutex_lock(&j->lock);
    bool first = !j->poisoned;
    j->poisoned = true;
    j->damaged = j->damaged || damaged;
    if (first) {
        (void)snprintf(j->cause, sizeof j->cause, "%s", cause);
    }
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
    pthread_mutex_lock(&j->lock);
    if (j->generation_count == j->generation_cap) {
        uint32_t cap = j->generation_cap == 0 ? 64 : j->generation_cap * 2;
        struct generation **all = realloc(j->generations, cap * sizeof(struct generation *));
        if (all == NULL) {
            pthread_mutex_unlock(&j->lock);
            free(g);
            return NULL;
        }
        j->generations = all;
        j->generation_cap = cap;
    }
    g->ordinal = j->generation_count;
    j->generations[j->generation_count++] = g;
    pthread_mutex_unlock(&j->lock);
    return g;
}

int journal_hold(struct journal *j, struct generation *g, struct err *e)
{
    pthread_mutex_lock(&j->lock);
    int fd = g->fd;
    if (fd < 0) {
        char path[LAYOUT_PATH_MAX];
        ensure(!g->tail);
        layout_pending_path(&j->layout, &g->first_id, &g->named_last_id, path);
        fd = os_open(path, O_RDONLY, 0);
        g->fd = fd < 0 ? -1 : fd;
    }
    if (fd >= 0) {
        g->users++;
    }
    pthread_mutex_unlock(&j->lock);
    return fd < 0 ? err_os(e, fd, "open", "a closed generation") : fd;
}

void journal_release(struct journal *j, struct generation *g)
{
    int close_fd = -1;
    pthread_mutex_lock(&j->lock);
    ensure(g->users > 0);
    g->users--;
    if (g->users == 0 && !g->tail) {
        close_fd = g->fd;
        g->fd = -1;
    }
    pthread_mutex_unlock(&j->lock);
    if (close_fd >= 0) {
        (void)os_close(close_fd);
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
    out->poisoned = j->poisoned;
    out->damaged = j->damaged;
    out->no_space = j->no_space;
    memcpy(out->cause, j->cause, sizeof out->cause);
    pthread_mutex_unlock(&j->lock);
    out->clock_ahead_ms = metric_get(METRIC_JOURNAL_CLOCK_AHEAD_MS);
}

void journal_refresh_metrics(struct journal *j)
{
    metric_set(METRIC_JOURNAL_EVENTS, j->frontier.events);
    metric_set(METRIC_JOURNAL_BYTES, j->bytes);
    metric_set(METRIC_JOURNAL_GENERATIONS, j->generation_count);
    metric_set(METRIC_INDEX_RUNS, index_run_count(j->index));
}

void journal_tick(struct journal *j)
{
    journal_refresh_metrics(j);
    if (j->poisoned || !j->no_space) {
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
