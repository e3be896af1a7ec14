/* verify_counters: project_counters against what they count, all in one view of the database.
 *
 * Each table that is counted is read once from end to end and added up here, project by project:
 * grouping by SQL would sort it, and that takes memory by the row. Memory is one entry a project.
 * Beside a server the time is limited; what is not done by then is not compared (`partial`). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "store/verify_internal.h"

/* X(symbol, what it counts): the columns of project_counters. `rejected` counts more than is kept,
 * so nothing can be added up for it. */
#define COUNTERS(X)               \
    X(EVENTS, "pending_events")   \
    X(BYTES, "pending_bytes")     \
    X(QUARANTINED, "quarantined") \
    X(RECEIPTS, "receipts")       \
    X(KEPT, "rejected_kept")      \
    X(KEPT_BYTES, "rejected_bytes")

enum counter {
#define X(sym, name) COUNTER_##sym,
    COUNTERS(X)
#undef X
        COUNTER_COUNT
};

struct project_sums {
    int64_t id;
    bool counted; /* it has a row */
    int64_t rejected;
    int64_t stored[COUNTER_COUNT];
    int64_t found[COUNTER_COUNT];
};

struct sums {
    struct project_sums *of;
    size_t count, cap;
    size_t last; /* where the last one was found */
};

struct source {
    const char *what;
    const char *sql; /* project, how much */
    enum counter rows, bytes;
};

static const struct source sources[] = {
    {"events", "SELECT project, length(text) + length(envelope) FROM events NOT INDEXED",
     COUNTER_EVENTS, COUNTER_BYTES},
    {"quarantine", "SELECT project, 0 FROM delivery_quarantine", COUNTER_QUARANTINED,
     COUNTER_COUNT},
    {"receipts", "SELECT project, 0 FROM receipts", COUNTER_RECEIPTS, COUNTER_COUNT},
    {"receipts",
     "SELECT c.project, 0 FROM receipts_recent c WHERE NOT EXISTS(SELECT 1 FROM receipts r"
     " WHERE r.project = c.project AND r.uuid = c.uuid)",
     COUNTER_RECEIPTS, COUNTER_COUNT},
    {"rejected", "SELECT project, length(text) FROM rejected NOT INDEXED", COUNTER_KEPT,
     COUNTER_KEPT_BYTES},
};

static int sums_add(struct sums *s, const struct project_sums *p)
{
    if (s->count == s->cap) {
        size_t cap = s->cap == 0 ? 64 : s->cap * 2;
        struct project_sums *grown = realloc(s->of, cap * sizeof *grown);
        if (grown == NULL) {
            return ERR_NO_MEMORY;
        }
        s->of = grown;
        s->cap = cap;
    }
    s->of[s->count++] = *p;
    return 0;
}

/* NULL: no such project; that is told by verify_rows. */
static struct project_sums *sums_find(struct sums *s, int64_t id)
{
    size_t low = 0;
    size_t high = s->count;
    if (s->last < s->count && s->of[s->last].id == id) {
        return &s->of[s->last];
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->of[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    s->last = low;
    return low < s->count && s->of[low].id == id ? &s->of[low] : NULL;
}

/* What is stored, in the order of ids. */
static int load(struct verify_run *v, struct sums *s, bool *whole)
{
    static const char sql[] =
        "SELECT p.id, c.project IS NOT NULL, c.rejected, c.pending_events, c.pending_bytes,"
        " c.quarantined, c.receipts, c.rejected_kept, c.rejected_bytes FROM projects p"
        " LEFT JOIN project_counters c ON c.project = p.id ORDER BY p.id";
    sqlite3_stmt *st = NULL;
    int r = 0;
    int rc = sqlite3_prepare_v2(v->db, sql, -1, &st, NULL);
    while (r == 0 && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
        rc = sqlite3_step(st);
        if (rc != SQLITE_ROW) {
            break;
        }
        struct project_sums p = {.id = sqlite3_column_int64(st, 0),
                                 .counted = sqlite3_column_int(st, 1) != 0,
                                 .rejected = sqlite3_column_int64(st, 2)};
        for (int i = 0; i < COUNTER_COUNT; i++) {
            p.stored[i] = sqlite3_column_int64(st, 3 + i);
        }
        r = sums_add(s, &p);
    }
    *whole = rc == SQLITE_DONE;
    if (r != 0) {
        r = err_set(v->e, ERR_NO_MEMORY, "no memory for the counters of projects");
    } else if (!*whole) {
        r = verify_failed(v, "project_counters");
    }
    (void)sqlite3_finalize(st);
    return r;
}

static int add_up(struct verify_run *v, const struct source *source, struct sums *s, bool *whole)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(v->db, source->sql, -1, &st, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        struct project_sums *p =
            rc == SQLITE_ROW ? sums_find(s, sqlite3_column_int64(st, 0)) : NULL;
        if (p != NULL) {
            p->found[source->rows]++;
            if (source->bytes != COUNTER_COUNT) {
                p->found[source->bytes] += sqlite3_column_int64(st, 1);
            }
        }
    }
    *whole = rc == SQLITE_DONE;
    int r = *whole ? 0 : verify_failed(v, source->what);
    (void)sqlite3_finalize(st);
    return r;
}

static void compare(struct verify_run *v, const struct project_sums *p)
{
    static const char *const names[] = {
#define X(sym, name) name,
        COUNTERS(X)
#undef X
    };
    if (!p->counted) {
        verify_tell(v, VERIFY_KIND_COUNTER, "project %lld has no counters", (long long)p->id);
        return;
    }
    for (int i = 0; i < COUNTER_COUNT; i++) {
        if (p->stored[i] != p->found[i]) {
            verify_tell(v, VERIFY_KIND_COUNTER, "project %lld: %s is %lld, but there are %lld",
                        (long long)p->id, names[i], (long long)p->stored[i],
                        (long long)p->found[i]);
        }
    }
    if (p->rejected < p->found[COUNTER_KEPT]) {
        verify_tell(v, VERIFY_KIND_COUNTER, "project %lld: rejected is %lld, but %lld are kept",
                    (long long)p->id, (long long)p->rejected, (long long)p->found[COUNTER_KEPT]);
    }
}

static int orphans(struct verify_run *v)
{
    int64_t count;
    int r = verify_number(v,
                          "SELECT count(*) FROM project_counters WHERE project NOT IN"
                          " (SELECT id FROM projects)",
                          &count);
    if (r == 0 && count > 0) {
        verify_tell(v, VERIFY_KIND_PROJECT, "counters of %lld projects that are none",
                    (long long)count);
    }
    return r;
}

static int check(struct verify_run *v, struct sums *s)
{
    bool whole;
    int r = load(v, s, &whole);
    for (size_t i = 0; r == 0 && whole && i < sizeof sources / sizeof *sources; i++) {
        r = add_up(v, &sources[i], s, &whole);
    }
    for (size_t i = 0; r == 0 && whole && i < s->count; i++) {
        compare(v, &s->of[i]);
    }
    return r == 0 && whole ? orphans(v) : r;
}

int verify_counters(struct verify_run *v)
{
    struct sums s = {0};
    if (!v->derived) {
        return 0; /* a start fills them */
    }
    if (sqlite3_exec(v->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) {
        return store_err(v->e, v->db, "begin a view");
    }
    verify_limit_begin(v);
    int r = check(v, &s);
    verify_limit_end(v);
    /* Nothing was written: its end cannot fail in a way that matters. */
    (void)sqlite3_exec(v->db, "ROLLBACK", NULL, NULL, NULL);
    free(s.of);
    return r;
}
