/* store_kit: a store in a temporary directory, jobs made of lists of events, and the invariants
 * that hold between any two turns. */
#ifndef TESTS_UNIT_STORE_KIT_H
#define TESTS_UNIT_STORE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/ensure.h"
#include "store/control_memory.h"
#include "store/internal.h"
#include "store/reader.h"
#include "store/schema.h"

struct kit {
    char dir[128];
    struct store_options options;
    struct store *s;
    struct store_reader *reader;
    struct err e;
    int64_t alpha, beta; /* projects */
};

#define KIT_NOW INT64_C(1795996800000) /* 2026-11-30 */

static inline uint64_t kit_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t kit_seed(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = (uint64_t)getpid();
    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    }
    print_message("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static inline struct uuid kit_uuid(uint64_t n)
{
    struct uuid u;
    uint64_t a = n, half;
    half = kit_random(&a);
    memcpy(u.byte, &half, 8);
    half = kit_random(&a);
    memcpy(u.byte + 8, &half, 8);
    return u;
}

static inline struct queue_event kit_event(int64_t project, uint64_t n, const char *text)
{
    return (struct queue_event){.project = project,
                                .uuid = kit_uuid(n),
                                .received_ms = KIT_NOW,
                                .timestamp_us = KIT_NOW * 1000,
                                .type = SLICE("capture"),
                                .event = SLICE("opened"),
                                .distinct_id = SLICE("u1"),
                                .source = SLICE("default"),
                                .text = slice_cstr(text)};
}

/* ---- jobs ---- */

#define KIT_EVENTS_MAX 64

struct kit_job {
    struct store_job job;
    /* The work: events, then whatever fn does. */
    struct queue_event ev[KIT_EVENTS_MAX];
    struct queue_receipt receipt[KIT_EVENTS_MAX];
    size_t count;
    int fail_after; /* ERR_FORBIDDEN once so many events are put; -1: never */
    int (*fn)(struct kit_job *j, struct store *s, struct err *e);
    void *arg;
    /* What was told. */
    unsigned told, again;
    int code;
    struct err err;
    unsigned order; /* of being told, from 1 */
    unsigned ran;   /* the turn it ran in */
};

static unsigned kit_order, kit_turn_number;

static inline int kit_run(struct store_job *job, struct store *s, struct err *e)
{
    struct kit_job *j = (struct kit_job *)(void *)job;
    j->ran = kit_turn_number;
    for (size_t i = 0; i < j->count; i++) {
        if (j->fail_after == (int)i) {
            return err_set(e, ERR_FORBIDDEN, "failed on purpose");
        }
        int r = queue_put(s, &j->ev[i], &j->receipt[i], e);
        if (r < 0) {
            return r;
        }
    }
    if (j->fail_after == (int)j->count) {
        return err_set(e, ERR_FORBIDDEN, "failed on purpose");
    }
    return j->fn != NULL ? j->fn(j, s, e) : 0;
}

static inline void kit_done(struct store_job *job, int code, const struct err *e)
{
    struct kit_job *j = (struct kit_job *)(void *)job;
    if (code == STORE_AGAIN) {
        j->again++;
        return;
    }
    j->told++;
    j->code = code;
    j->order = ++kit_order;
    if (code < 0) {
        j->err = *e;
    }
}

static inline void kit_job_init(struct kit_job *j, enum store_weight weight)
{
    *j = (struct kit_job){.job = {.run = kit_run, .done = kit_done, .weight = weight},
                          .fail_after = -1};
}

static inline bool kit_turn(struct kit *k)
{
    kit_turn_number++;
    return store_turn(k->s);
}

static inline void kit_turns(struct kit *k)
{
    unsigned turns = 0;
    while (kit_turn(k)) {
        assert_true(++turns < 100000);
    }
}

/* Runs one function as a job of its own; its code. */
static inline int kit_do(struct kit *k, int (*fn)(struct kit_job *, struct store *, struct err *),
                         void *arg)
{
    struct kit_job j;
    kit_job_init(&j, STORE_SMALL);
    j.fn = fn;
    j.arg = arg;
    store_submit(k->s, &j.job);
    kit_turns(k);
    assert_int_equal(j.told, 1);
    k->e = j.err;
    return j.code;
}

static inline int kit_sql_job(struct kit_job *j, struct store *s, struct err *e)
{
    return db_exec(store_db(s), (const char *)j->arg, e);
}

/* Runs a statement inside a turn. */
static inline int kit_sql(struct kit *k, char *sql)
{
    return kit_do(k, kit_sql_job, sql);
}

/* One event in a turn of its own. */
static inline int kit_put(struct kit *k, int64_t project, uint64_t n, const char *text,
                          struct queue_receipt *out)
{
    struct kit_job j;
    kit_job_init(&j, STORE_SMALL);
    j.ev[0] = kit_event(project, n, text);
    j.count = 1;
    store_submit(k->s, &j.job);
    kit_turns(k);
    assert_int_equal(j.told, 1);
    k->e = j.err;
    if (out != NULL) {
        *out = j.receipt[0];
    }
    return j.code;
}

struct kit_delivery {
    const int64_t *ids;
    size_t count;
    int64_t now_ms;
};

static inline int kit_deliver_job(struct kit_job *j, struct store *s, struct err *e)
{
    const struct kit_delivery *d = j->arg;
    return queue_delivered(s, d->ids, d->count, d->now_ms, e);
}

static inline int kit_deliver(struct kit *k, const int64_t *ids, size_t n)
{
    struct kit_delivery d = {ids, n, KIT_NOW + 5};
    return kit_do(k, kit_deliver_job, &d);
}

/* ---- failing ---- */

/* The at-th thing of this kind that SQLite compiles (SQLITE_SELECT, SQLITE_READ, SQLITE_UPDATE, of
 * this table; NULL: any) is denied, and with it the statement; what is prepared already is compiled
 * again. */
struct kit_denial {
    int action;
    const char *table;
    unsigned at;
    unsigned seen;
};

static inline int kit_denies(void *ctx, int action, const char *table, const char *column,
                             const char *database, const char *trigger)
{
    struct kit_denial *d = ctx;
    (void)column;
    (void)database;
    (void)trigger;
    if (action != d->action ||
        (d->table != NULL && (table == NULL || strcmp(table, d->table) != 0))) {
        return SQLITE_OK;
    }
    d->seen++;
    return d->seen == d->at ? SQLITE_DENY : SQLITE_OK;
}

/* NULL: nothing is denied any more. */
static inline void kit_deny(struct store *s, struct kit_denial *d)
{
    assert_int_equal(sqlite3_set_authorizer(store_db(s), d != NULL ? kit_denies : NULL, d),
                     SQLITE_OK);
}

/* ---- opening ---- */

static inline int kit_make_projects(struct kit_job *j, struct store *s, struct err *e)
{
    int r = control_create_project(s, SLICE("alpha"), SLICE("Alpha"), NULL, KIT_NOW, e);
    (void)j;
    return r < 0 ? r : control_create_project(s, SLICE("beta"), SLICE(""), NULL, KIT_NOW, e);
}

static inline void kit_open(struct kit *k)
{
    if (store_open(k->dir, &k->options, &k->s, &k->e) != 0) {
        fail_msg("open: %s", k->e.text);
    }
    if (store_reader_open(k->dir, &k->reader, &k->e) != 0) {
        fail_msg("reader: %s", k->e.text);
    }
}

static inline void kit_close(struct kit *k)
{
    store_reader_close(k->reader);
    k->reader = NULL;
    assert_int_equal(store_close(k->s, &k->e), 0);
    k->s = NULL;
}

static inline void kit_reopen(struct kit *k)
{
    kit_close(k);
    kit_open(k);
}

static inline void kit_dir(struct kit *k)
{
    const char *tmp = getenv("TMPDIR");
    *k = (struct kit){.options = store_options_default};
    k->options.threads = false;
    snprintf(k->dir, sizeof k->dir, "%s/store.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(k->dir));
}

static inline void kit_start(struct kit *k)
{
    kit_dir(k);
    kit_open(k);
    assert_int_equal(kit_do(k, kit_make_projects, NULL), 0);
    assert_int_equal(control_committed(k->s, &k->e), 0);
    k->alpha = control_project(store_control(k->s), SLICE("alpha"))->id;
    k->beta = control_project(store_control(k->s), SLICE("beta"))->id;
}

static inline void kit_remove_dir(struct kit *k)
{
    static const char *const names[] = {"", "-wal", "-shm"};
    char path[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/" STORE_FILE "%s", k->dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(k->dir), 0);
}

static inline void kit_end(struct kit *k)
{
    kit_close(k);
    kit_remove_dir(k);
}

/* ---- looking ---- */

/* One number from the database as it is committed. */
static inline int64_t kit_number(struct kit *k, const char *sql)
{
    int64_t n = -1;
    if (db_number(store_reader_db(k->reader), sql, -1, &n, &k->e) != 0) {
        fail_msg("%s: %s", sql, k->e.text);
    }
    return n;
}

/* The invariants of schema.h, by plain counting. */
static inline void kit_check(struct kit *k)
{
    struct store_status st;
    assert_int_equal(
        kit_number(k, "SELECT count(*) FROM events e WHERE"
                      " (SELECT count(*) FROM delivery_ready r WHERE r.project = e.project AND"
                      " r.id = e.id) + (SELECT count(*) FROM delivery_quarantine q WHERE"
                      " q.event_id = e.id AND q.project = e.project) <> 1"),
        0);
    assert_int_equal(kit_number(k, "SELECT (SELECT count(*) FROM events) -"
                                   " (SELECT count(*) FROM delivery_ready) -"
                                   " (SELECT count(*) FROM delivery_quarantine)"),
                     0);
    assert_int_equal(
        kit_number(k, "SELECT count(*) FROM events e WHERE NOT EXISTS(SELECT 1 FROM receipts r"
                      " WHERE r.project = e.project AND r.uuid = e.uuid AND r.event_id = e.id)"
                      " AND NOT EXISTS(SELECT 1 FROM receipts_recent r WHERE r.event_id = e.id"
                      " AND r.project = e.project AND r.uuid = e.uuid)"),
        0);
    assert_int_equal(
        kit_number(k,
                   "SELECT count(*) FROM project_counters c WHERE"
                   " pending_events <> (SELECT count(*) FROM events WHERE project = c.project)"
                   " OR pending_bytes <> (SELECT ifnull(sum(length(text) + length(envelope)), 0)"
                   " FROM events WHERE project = c.project)"
                   " OR quarantined <> (SELECT count(*) FROM delivery_quarantine WHERE"
                   " project = c.project)"
                   " OR rejected_kept <> (SELECT count(*) FROM rejected WHERE project = c.project)"
                   " OR rejected_bytes <> (SELECT ifnull(sum(length(text)), 0) FROM rejected WHERE"
                   " project = c.project)"
                   " OR receipts <> (SELECT count(*) FROM (SELECT uuid FROM receipts WHERE"
                   " project = c.project UNION SELECT uuid FROM receipts_recent WHERE"
                   " project = c.project))"),
        0);
    store_get_status(k->s, &st);
    assert_int_equal(st.pending_events, kit_number(k, "SELECT count(*) FROM events"));
    assert_int_equal(st.receipts,
                     kit_number(k, "SELECT count(*) FROM (SELECT project, uuid FROM receipts UNION"
                                   " SELECT project, uuid FROM receipts_recent)"));
    assert_int_equal(
        st.pending_bytes,
        kit_number(k, "SELECT ifnull(sum(length(text) + length(envelope)), 0) FROM events"));
    assert_true(kit_number(k, "SELECT value FROM meta WHERE name = 'next_event_id'") >
                kit_number(k, "SELECT ifnull(max(id), 0) FROM events"));
}

#endif
