/* delivery_hold: what is under way and what is held back, in memory.
 *
 * A hold names what a failed try had in common with others: the identifier at its sink, the
 * project, the credentials or the sink itself. One that is set again keeps its place; without room
 * the one that ends first is forgotten, which costs a try too many and no more. An end further
 * ahead than INDEX_FAR_MS comes from a clock that was set back: the hold is over.
 *
 * Power failure: nothing is written; after a restart each is found out again by one try. Answers:
 * none. Aborts: work that is over twice, and more of it under way than there are workers. */
#include <stdio.h>

#include "base/ensure.h"
#include "store/artifact/delivery_index_internal.h"

/* ---- under way ---- */

static struct index_run *run_of(struct delivery_index *ix, const char *package_id)
{
    for (size_t i = 0; i < DELIVERY_UNDER_WAY_MAX; i++) {
        if (strcmp(ix->run[i].package_id, package_id) == 0) {
            return &ix->run[i];
        }
    }
    return NULL;
}

void delivery_index_over(struct delivery_index *ix, const char *package_id)
{
    struct index_run *run = run_of(ix, package_id);

    ensure(package_id[0] != '\0');
    ensure(run != NULL);
    *run = (struct index_run){0};
}

void delivery_index_stuck(struct delivery_index *ix, const char *package_id)
{
    struct index_run *run = run_of(ix, package_id);

    ensure(run != NULL);
    run->stuck = true;
}

/* ---- holds ---- */

static bool in_force(const struct index_hold *h, int64_t now_ms)
{
    return h->until_ms > now_ms && h->until_ms <= now_ms + INDEX_FAR_MS;
}

static const char *key_of(enum delivery_scope scope, const struct delivery_plan *p)
{
    switch (scope) {
    case DELIVERY_SCOPE_ITEM:
        return p->identifier;
    case DELIVERY_SCOPE_PROJECT:
        return p->project;
    case DELIVERY_SCOPE_KEYS:
        return p->to.credentials_file;
    case DELIVERY_SCOPE_FAR_END:
    case DELIVERY_SCOPE_COUNT:
        break;
    }
    return "";
}

static bool is_hold_of(const struct index_hold *h, enum delivery_scope scope,
                       const struct delivery_plan *p)
{
    return h->scope == scope && strcmp(h->key, key_of(scope, p)) == 0 &&
           strcmp(h->sink, scope == DELIVERY_SCOPE_PROJECT ? "" : p->to.sink) == 0;
}

void delivery_index_hold(struct delivery_index *ix, enum delivery_scope scope,
                         const struct delivery_plan *p, int64_t until_ms, const char *text)
{
    struct index_hold *at = &ix->hold[0];

    ensure(scope >= 0);
    ensure(scope < DELIVERY_SCOPE_COUNT);
    ensure(until_ms > 0);
    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        struct index_hold *h = &ix->hold[i];
        if (h->until_ms != 0 && is_hold_of(h, scope, p)) {
            at = h;
            break;
        }
        at = h->until_ms < at->until_ms ? h : at;
    }
    at->scope = scope;
    at->until_ms = until_ms;
    (void)snprintf(at->sink, sizeof at->sink, "%s",
                   scope == DELIVERY_SCOPE_PROJECT ? "" : p->to.sink);
    (void)snprintf(at->key, sizeof at->key, "%s", key_of(scope, p));
    (void)snprintf(at->text, sizeof at->text, "%s", text);
}

void index_unhold(struct delivery_index *ix, const struct delivery_plan *p)
{
    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        struct index_hold *h = &ix->hold[i];
        if (h->until_ms != 0 && is_hold_of(h, h->scope, p)) {
            h->until_ms = 0;
        }
    }
}

int64_t index_held_project_ms(const struct delivery_index *ix, const char *project, int64_t now_ms)
{
    for (size_t i = 0; i < DELIVERY_UNDER_WAY_MAX; i++) {
        const struct index_run *run = &ix->run[i];
        if (run->stuck && strcmp(run->project, project) == 0) {
            return INT64_MAX; /* until it is over */
        }
    }
    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        const struct index_hold *h = &ix->hold[i];
        if (h->scope == DELIVERY_SCOPE_PROJECT && in_force(h, now_ms) &&
            strcmp(h->key, project) == 0) {
            return h->until_ms;
        }
    }
    return 0;
}

static bool holds(const struct index_hold *h, struct slice sink, struct slice identifier,
                  struct slice keys)
{
    if (!slice_eq(sink, slice_cstr(h->sink))) {
        return false;
    }
    switch (h->scope) {
    case DELIVERY_SCOPE_ITEM:
        return slice_eq(identifier, slice_cstr(h->key));
    case DELIVERY_SCOPE_KEYS:
        return slice_eq(keys, slice_cstr(h->key));
    case DELIVERY_SCOPE_FAR_END:
        return true;
    case DELIVERY_SCOPE_PROJECT:
    case DELIVERY_SCOPE_COUNT:
        break;
    }
    return false;
}

const struct index_hold *index_held(const struct delivery_index *ix, struct slice sink,
                                    struct slice identifier, struct slice keys, int64_t now_ms)
{
    const struct index_hold *last = NULL;

    for (size_t i = 0; i < DELIVERY_HOLDS_MAX; i++) {
        const struct index_hold *h = &ix->hold[i];
        if (in_force(h, now_ms) && holds(h, sink, identifier, keys) &&
            (last == NULL || h->until_ms > last->until_ms)) {
            last = h;
        }
    }
    return last;
}
