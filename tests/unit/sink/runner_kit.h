/* runner_kit: a store, a loop that commits, and a far side played by a function, for the tests of
 * the sink runner. Include once; everything is static. */
#ifndef TESTS_UNIT_SINK_RUNNER_KIT_H
#define TESTS_UNIT_SINK_RUNNER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "base/hash.h"
#include "sink/sink.h"
#include "store/control.h"

#define PROJECTS_MAX 8
#define SENDS_MAX    4096
#define IDS_MAX      200000

/* One send as the far side saw it. */
struct seen {
    uint64_t at_ns;
    uint8_t hash[SHA256_LEN];
    size_t count;
    enum sink_verdict verdict;
};

struct kit {
    char dir[64];
    struct store *store;
    struct http_server *server;
    pthread_t loop;
    struct sink *sink;
    int64_t project[PROJECTS_MAX];
    unsigned uuid; /* next one */

    pthread_mutex_t lock;
    /* The far side; called under the lock. body: "PROJECT ID\n" lines. NULL: all is well. */
    void (*play)(struct kit *t, struct slice body, size_t count, struct sink_result *r);
    void (*play_prepare)(struct kit *t, struct sink_result *r);
    bool hang; /* until cancelled */
    unsigned sends, prepares;
    struct seen seen[SENDS_MAX];
    uint16_t taken[IDS_MAX]; /* times that a row was taken, by id */
    size_t rows_taken;
    int64_t bad_id, bad_project; /* for the plays */
    unsigned left;
};

static inline uint64_t kit_now_ns(void)
{
    struct timespec ts;
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the adapter ---- */

static int kit_encode(void *ctx, const struct queue_rows *rows, size_t first, size_t count,
                      struct buf *out, struct err *e)
{
    (void)ctx;
    (void)e;
    for (size_t i = first; i < first + count; i++) {
        buf_printf(out, "%lld %lld\n", (long long)rows->row[i].ev.project,
                   (long long)rows->row[i].id);
    }
    return 0;
}

static void kit_prepare(void *ctx, const atomic_bool *cancel, struct sink_result *r)
{
    struct kit *t = ctx;
    (void)cancel;
    *r = (struct sink_result){.verdict = SINK_DELIVERED};
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    t->prepares++;
    if (t->play_prepare != NULL) {
        t->play_prepare(t, r);
    }
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
}

/* The next line of a body. */
static inline bool kit_line(struct slice *body, int64_t *project, int64_t *id)
{
    char *end;
    if (body->len == 0) {
        return false;
    }
    *project = strtoll(body->ptr, &end, 10);
    *id = strtoll(end, &end, 10);
    *body = slice_from(*body, (size_t)(end - body->ptr) + 1);
    return true;
}

static inline bool kit_has(struct slice body, int64_t wanted_project, int64_t wanted_id)
{
    int64_t project;
    int64_t id;
    while (kit_line(&body, &project, &id)) {
        if (project == wanted_project || id == wanted_id) {
            return true;
        }
    }
    return false;
}

/* Rows that the far side stores. */
static inline void kit_take(struct kit *t, struct slice body)
{
    int64_t project;
    int64_t id;
    while (kit_line(&body, &project, &id)) {
        assert_true(id > 0);
        assert_true(id < IDS_MAX);
        t->rows_taken += t->taken[id] == 0 ? 1 : 0;
        t->taken[id]++;
    }
}

static void kit_send(void *ctx, struct slice body, size_t count, const atomic_bool *cancel,
                     struct sink_result *r)
{
    struct kit *t = ctx;
    *r = (struct sink_result){.verdict = SINK_DELIVERED};
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    bool hang = t->hang;
    assert_true(t->sends < SENDS_MAX);
    struct seen *s = &t->seen[t->sends];
    *s = (struct seen){.at_ns = kit_now_ns(), .count = count};
    sha256_once(body, s->hash);
    t->sends++;
    if (!hang) {
        if (t->play != NULL) {
            t->play(t, body, count, r);
        }
        if (r->verdict == SINK_DELIVERED) {
            kit_take(t, body);
        }
        s->verdict = r->verdict;
    }
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    while (hang && !atomic_load(cancel)) {
        usleep(1000);
    }
    if (hang) {
        r->verdict = SINK_UNKNOWN;
    }
}

static const struct sink_adapter kit_adapter = {
    .name = "kit", .encode = kit_encode, .prepare = kit_prepare, .send = kit_send};

/* ---- the loop ---- */

static void kit_turn(void *ctx)
{
    struct kit *t = ctx;
    if (store_turn(t->store)) {
        http_again(t->server);
    }
}

static void kit_tick(void *ctx)
{
    struct kit *t = ctx;
    store_tick(t->store);
}

static void *kit_loop(void *ctx)
{
    struct kit *t = ctx;
    struct err e = {0};
    assert_int_equal(http_run(t->server, &e), 0);
    return NULL;
}

struct kit_call {
    void (*fn)(struct kit *t, void *arg);
    struct kit *t;
    void *arg;
    sem_t done;
};

static void kit_called(void *ctx)
{
    struct kit_call *c = ctx;
    c->fn(c->t, c->arg);
    assert_int_equal(sem_post(&c->done), 0);
}

/* Runs fn on the loop thread and waits for it. */
static inline void kit_on_loop(struct kit *t, void (*fn)(struct kit *t, void *arg), void *arg)
{
    struct kit_call c = {.fn = fn, .t = t, .arg = arg};
    assert_int_equal(sem_init(&c.done, 0, 0), 0);
    assert_true(http_post(t->server, kit_called, &c));
    assert_int_equal(sem_wait(&c.done), 0);
    assert_int_equal(sem_destroy(&c.done), 0);
}

/* ---- events ---- */

struct kit_put {
    struct store_job job; /* first */
    struct kit *t;
    int64_t project;
    int64_t received_ms;
    size_t count, bytes;
    int64_t first_id;
    sem_t done;
    int code;
};

static int put_run(struct store_job *job, struct store *s, struct err *e)
{
    struct kit_put *p = (struct kit_put *)job;
    char *text = malloc(p->bytes + 1);
    assert_non_null(text);
    memset(text, 'x', p->bytes);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + p->bytes - 2, "\"}", 2);
    int r = 0;
    for (size_t i = 0; r == 0 && i < p->count; i++) {
        struct queue_receipt receipt;
        struct queue_event ev = {.project = p->project,
                                 .received_ms = p->received_ms,
                                 .timestamp_us = p->received_ms * 1000,
                                 .type = SLICE("capture"),
                                 .event = SLICE("x"),
                                 .distinct_id = SLICE("d"),
                                 .source = SLICE("default"),
                                 .text = slice_of(text, p->bytes)};
        p->t->uuid++;
        memcpy(ev.uuid.byte, &p->t->uuid, sizeof p->t->uuid);
        ev.uuid.byte[15] = 1;
        r = queue_put(s, &ev, &receipt, e);
        if (i == 0) {
            p->first_id = receipt.event_id;
        }
    }
    free(text);
    return r;
}

static void put_done(struct store_job *job, int code, const struct err *e)
{
    struct kit_put *p = (struct kit_put *)job;
    (void)e;
    p->code = code;
    if (p->t->sink != NULL) {
        sink_wake(p->t->sink);
    }
    assert_int_equal(sem_post(&p->done), 0);
}

static void put_submit(struct kit *t, void *arg)
{
    store_submit(t->store, arg);
}

/* Stores count events in one job; gives the id of the first. The ids of a job follow each other. */
static inline int64_t kit_put_at(struct kit *t, int project, size_t count, int64_t received_ms)
{
    struct kit_put p = {.job = {.run = put_run, .done = put_done},
                        .t = t,
                        .project = t->project[project],
                        .received_ms = received_ms,
                        .count = count,
                        .bytes = 100};
    assert_int_equal(sem_init(&p.done, 0, 0), 0);
    kit_on_loop(t, put_submit, &p);
    assert_int_equal(sem_wait(&p.done), 0);
    assert_int_equal(sem_destroy(&p.done), 0);
    assert_int_equal(p.code, 0);
    return p.first_id;
}

static inline int64_t kit_put(struct kit *t, int project, size_t count)
{
    return kit_put_at(t, project, count, INT64_C(1793000000000));
}

static void kit_read_status(struct kit *t, void *arg)
{
    store_get_status(t->store, arg);
}

static inline uint64_t kit_pending(struct kit *t)
{
    struct store_status st;
    kit_on_loop(t, kit_read_status, &st);
    return st.pending_events;
}

static inline struct sink_status kit_status(struct kit *t)
{
    struct sink_status st;
    sink_get_status(t->sink, &st);
    return st;
}

/* Waits until the condition holds; fails after ten seconds. */
#define KIT_WAIT(cond)                                         \
    do {                                                       \
        uint64_t until = kit_now_ns() + UINT64_C(10000000000); \
        while (!(cond)) {                                      \
            if (kit_now_ns() > until) {                        \
                fail_msg("never: %s", #cond);                  \
            }                                                  \
            usleep(2000);                                      \
        }                                                      \
    } while (0)

static inline unsigned kit_sends(struct kit *t)
{
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    unsigned n = t->sends;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    return n;
}

static inline void kit_play(struct kit *t, void (*play)(struct kit *t, struct slice body,
                                                        size_t count, struct sink_result *r))
{
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    t->play = play;
    t->hang = false;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
}

/* ---- projects, start, end ---- */

struct kit_project {
    struct store_job job; /* first */
    char name[16];
    int64_t id;
};

static int project_run(struct store_job *job, struct store *s, struct err *e)
{
    struct kit_project *p = (struct kit_project *)job;
    return control_create_project(s, slice_cstr(p->name), SLICE("A project"), NULL, 1, e);
}

static void project_done(struct store_job *job, int code, const struct err *e)
{
    (void)job;
    (void)e;
    assert_int_equal(code, 0);
}

static inline void kit_projects(struct kit *t, int count)
{
    struct err e = {0};
    for (int i = 0; i < count; i++) {
        struct kit_project p = {.job = {.run = project_run, .done = project_done}};
        (void)snprintf(p.name, sizeof p.name, "p%d", i);
        store_submit(t->store, &p.job);
        (void)store_turn(t->store);
        assert_int_equal(control_committed(t->store, &e), 0);
        const struct project *made = control_project(store_control(t->store), slice_cstr(p.name));
        assert_non_null(made);
        t->project[i] = made->id;
    }
}

static const struct sink_options kit_options = {.batch_events_max = 1000,
                                                .batch_bytes_soft = 1u << 20,
                                                .backoff_min_ms = 20,
                                                .backoff_max_ms = 100,
                                                .gather_ms = 10};

static void kit_sink_start(struct kit *t, void *arg)
{
    struct sink_options o = *(const struct sink_options *)arg;
    struct err e = {0};
    o.data = t->dir;
    int r = sink_start(&o, &kit_adapter, t, t->store, t->server, &t->sink, &e);
    if (r != 0) {
        fail_msg("sink_start: %s", e.text);
    }
}

static void kit_sink_stop(struct kit *t, void *arg)
{
    (void)arg;
    sink_stop(t->sink);
    t->sink = NULL;
}

static inline void kit_run_sink(struct kit *t, struct sink_options o)
{
    kit_on_loop(t, kit_sink_start, &o);
}

static inline void kit_end_sink(struct kit *t)
{
    kit_on_loop(t, kit_sink_stop, NULL);
}

static inline struct kit *kit_start(int projects)
{
    struct kit *t = calloc(1, sizeof *t);
    struct err e = {0};
    assert_non_null(t);
    (void)snprintf(t->dir, sizeof t->dir, "/tmp/tallyman-sink-XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    assert_int_equal(pthread_mutex_init(&t->lock, NULL), 0);
    int r = store_open(t->dir, &store_options_default, &t->store, &e);
    if (r != 0) {
        fail_msg("store_open: %s", e.text);
    }
    kit_projects(t, projects);
    struct http_config hc = {.limits = http_limits_default,
                             .hooks = {.turn = kit_turn, .tick = kit_tick, .ctx = t}};
    hc.limits.workers = 1;
    t->server = http_new(&hc, &e);
    assert_non_null(t->server);
    assert_int_equal(pthread_create(&t->loop, NULL, kit_loop, t), 0);
    return t;
}

static inline void kit_remove_dir(const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *de = readdir(d); de != NULL; de = readdir(d)) {
        char path[400];
        (void)snprintf(path, sizeof path, "%s/%s", dir, de->d_name);
        if (de->d_name[0] != '.') {
            assert_int_equal(unlink(path), 0);
        }
    }
    assert_int_equal(closedir(d), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Stops what still runs, in the order of serve: loop, sink, server, store. */
static inline void kit_end(struct kit *t)
{
    struct err e = {0};
    http_stop(t->server);
    assert_int_equal(pthread_join(t->loop, NULL), 0);
    if (t->sink != NULL) {
        sink_stop(t->sink);
    }
    http_free(t->server);
    int r = store_close(t->store, &e);
    assert_true(r == 0 || r == ERR_STORE_POISONED || r == ERR_IO); /* poisoned by a test */
    (void)pthread_mutex_destroy(&t->lock);
    kit_remove_dir(t->dir);
    free(t);
}

#endif
