/* runner_solo: projects whose rows were refused, or may be what made batches fail.
 *
 * Such a project is left out of the common batches and sent alone: a batch of at most BATCH_SMALL
 * rows at first, each refusal followed by the project's own backoff, each success by the next batch
 * at once, with twice the rows. Its position moves on with every batch, so its good rows get past
 * the bad ones. It returns to the common batches when it has no row left. Nothing is dropped. */
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "sink/runner_internal.h"

size_t solo_find(const struct sink *k, int64_t project, bool *found)
{
    size_t low = 0;
    size_t high = k->solo_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->solo[middle].project < project) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *found = low < k->solo_count && k->solo[low].project == project;
    return low;
}

/* Under the lock, because sink_project_error reads the list. */
static bool insert(struct sink *k, size_t at, int64_t project)
{
    if (k->solo_count == k->solo_cap) {
        size_t cap = k->solo_cap == 0 ? 8 : k->solo_cap * 2;
        struct solo *grown = realloc(k->solo, cap * sizeof *grown);
        if (grown == NULL) {
            return false;
        }
        k->solo = grown;
        k->solo_cap = cap;
    }
    memmove(&k->solo[at + 1], &k->solo[at], (k->solo_count - at) * sizeof k->solo[0]);
    k->solo[at] = (struct solo){.project = project, .limit = BATCH_SMALL};
    k->solo_count++;
    return true;
}

bool solo_refused(struct sink *k, int64_t project, int64_t after_id, const char *why)
{
    bool found;
    sink_lock(k);
    size_t i = solo_find(k, project, &found);
    bool ok = found || insert(k, i, project);
    if (ok) {
        struct solo *s = &k->solo[i];
        s->failures++;
        s->after_id = after_id;
        s->limit = BATCH_SMALL;
        s->due_ns = os_clock_mono_ns() + sink_backoff_ns(k, s->failures);
        (void)snprintf(s->error, sizeof s->error, "%s", why);
    }
    sink_unlock(k);
    if (ok && !found) {
        log_line(LOG_WARN, k->adapter->name, "project %lld is sent alone: %s", (long long)project,
                 why);
    }
    return ok;
}

bool solo_add(struct sink *k, int64_t project)
{
    bool found;
    sink_lock(k);
    size_t i = solo_find(k, project, &found);
    bool ok = found || insert(k, i, project);
    sink_unlock(k);
    return ok;
}

void solo_delivered(struct sink *k, int64_t project, int64_t after_id)
{
    bool found;
    sink_lock(k);
    size_t i = solo_find(k, project, &found);
    ensure(found);
    struct solo *s = &k->solo[i];
    s->failures = 0;
    s->after_id = after_id;
    s->due_ns = os_clock_mono_ns(); /* at once, behind those that wait already */
    s->error[0] = '\0';
    s->limit = s->limit > k->limit_max / 2 ? k->limit_max : s->limit * 2;
    sink_unlock(k);
}

void solo_set_limit(struct sink *k, int64_t project, uint32_t limit)
{
    bool found;
    size_t i = solo_find(k, project, &found);
    ensure(found);
    ensure(limit != 0);
    k->solo[i].limit = limit;
}

void solo_remove(struct sink *k, size_t i)
{
    ensure(i < k->solo_count);
    log_line(LOG_INFO, k->adapter->name, "project %lld has no refused rows left",
             (long long)k->solo[i].project);
    sink_lock(k);
    k->solo_count--;
    memmove(&k->solo[i], &k->solo[i + 1], (k->solo_count - i) * sizeof k->solo[0]);
    sink_unlock(k);
}

size_t solo_due(const struct sink *k, uint64_t now_ns)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < k->solo_count; i++) {
        if (k->solo[i].due_ns <= now_ns &&
            (best == SIZE_MAX || k->solo[i].due_ns < k->solo[best].due_ns)) {
            best = i;
        }
    }
    return best;
}

uint64_t solo_next_ns(const struct sink *k)
{
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < k->solo_count; i++) {
        first = k->solo[i].due_ns < first ? k->solo[i].due_ns : first;
    }
    return first;
}
