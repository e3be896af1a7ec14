/* tallyman serve: the server process.
 *
 * Start: settings are checked before anything is touched; the journal is opened (lock, recovery),
 * then tallyman.sqlite; then the sockets are bound, so a client that can connect gets the truth;
 * then delivery begins. Stop (SIGINT, SIGTERM, SIGHUP): no new connections, open requests are
 * finished within grace_ms, the sink records what it delivered, the engine ends, the stores are
 * closed cleanly. A queue that cannot be opened for want of space is opened later: the journal's
 * readers need none. A poisoned store does not end the process: reads go on, and so does the other
 * store. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/capture/capture.h"
#include "door/history/history.h"
#include "door/manage/manage.h"
#include "http/http.h"
#include "journal/journal.h"
#include "main/backup.h"
#include "main/config.h"
#include "main/output.h"
#include "main/serve_artifacts.h"
#include "main/serve_delivery.h"
#include "main/serve_head.h"
#include "main/serve_sandbox.h"
#include "main/verbs.h"
#include "main/version.h"
#include "os/os.h"

#define REPLAYS_MAX      64
#define THREADS_BESIDE   32         /* for questions, beside those of uploads_max writers */
#define OPEN_SPACE_BYTES (1u << 20) /* free on the disk before the queue is opened late */

struct serve {
    struct journal *journal;
    struct store *store;
    struct history *history;
    struct serve_head head;
    struct capture *capture;
    struct http_server *server;
    struct manage manage;
    struct delivery delivery;
    struct artifacts artifacts;
    struct spawner spawner;
    struct sandbox_state sandbox;
    struct http_route *routes;
    size_t route_count;
    const struct config *config;
    pthread_mutex_t wake_lock;       /* held while the loop is told (above the pool's lock), or the
                                        server goes */
    struct http_server *wake_server; /* for the checkpointer's thread */
    bool delivery_due;               /* the queue was opened late: the sink is still to start */
    struct err store_error;          /* why the queue could not be opened yet */
};

static int open_store(struct serve *sv, struct err *e);
static int start_delivery(struct serve *sv, struct err *e);

/* The queue is opened as soon as there is space; what then fails is tried again as well. */
static void open_late(struct serve *sv)
{
    struct err e = {0};
    uint64_t bytes = 0;
    if (os_free_space(sv->config->data, &bytes) != 0 || bytes < OPEN_SPACE_BYTES) {
        return;
    }
    if (open_store(sv, &e) != 0) {
        sv->store_error = e;
        return;
    }
    sv->manage.store = sv->store;
    sv->manage.store_cause = NULL;
    capture_attach(sv->capture, sv->store);
    artifact_attach(sv->artifacts.door, sv->store);
    sv->delivery_due = true;
}

static void start_delivery_late(struct serve *sv)
{
    struct err e = {0};
    delivery_stop(&sv->delivery); /* what a try before left */
    if (start_delivery(sv, &e) == 0) {
        sv->delivery_due = false;
    } else {
        log_line(LOG_ERROR, "serve", "delivery does not start yet: %s", e.text);
    }
}

/* The journal's answers leave when its own sync has returned, the queue's when its commit has. */
static void on_turn(void *ctx)
{
    struct serve *sv = ctx;
    history_turn(sv->history);
    http_flush(sv->server);
    if (sv->store != NULL && store_turn(sv->store)) {
        http_again(sv->server);
    }
}

static void on_tick(void *ctx)
{
    struct serve *sv = ctx;
    journal_tick(sv->journal);
    history_tick(sv->history);
    artifacts_tick(&sv->artifacts);
    serve_head_tick(&sv->head, sv->history);
    if (sv->store == NULL) {
        open_late(sv);
        return;
    }
    if (sv->delivery_due) {
        start_delivery_late(sv);
    }
    store_tick(sv->store);
    delivery_tick(&sv->delivery);
}

static void on_stopping(void *ctx)
{
    struct serve *sv = ctx;
    sv->manage.stopping = true;
    history_stopping(sv->history);
    manage_stopping(&sv->manage);
    artifacts_stopping(&sv->artifacts);
    log_line(LOG_INFO, "serve", "stopping");
}

/* Events were committed. */
static void on_committed(void *ctx)
{
    struct serve *sv = ctx;
    if (sv->delivery.sink != NULL) {
        sink_wake(sv->delivery.sink);
    }
}

/* Stop signals are for the loop's signalfd: blocked before any thread is made, so that none of them
 * takes one. */
static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    int r = pthread_sigmask(SIG_BLOCK, &set, NULL);
    ensure(r == 0);
}

static struct http_limits limits_of(const struct config *c)
{
    struct http_limits l = http_limits_default;
    l.connections_max = (unsigned)c->connections_max;
    l.body_budget_bytes = c->body_budget_bytes;
    l.head_timeout_ms = (unsigned)c->head_timeout_ms;
    l.idle_timeout_ms = (unsigned)c->idle_timeout_ms;
    l.body_stall_ms = (unsigned)c->body_stall_ms;
    l.write_stall_ms = (unsigned)c->write_stall_ms;
    l.grace_ms = (unsigned)c->grace_ms;
    l.workers = (unsigned)c->workers;
    if (c->uploads_max + THREADS_BESIDE > l.threads_max) {
        l.threads_max = (unsigned)c->uploads_max + THREADS_BESIDE;
    }
    return l;
}

static void set_wake(struct serve *sv, struct http_server *server)
{
    int r = pthread_mutex_lock(&sv->wake_lock);
    ensure(r == 0);
    sv->wake_server = server;
    r = pthread_mutex_unlock(&sv->wake_lock);
    ensure(r == 0);
}

static int make_routes(struct serve *sv, struct err *e)
{
    size_t events = HISTORY_ROUTES + MANAGE_ROUTES + capture_route_count();
    sv->route_count = events + artifact_route_count();
    sv->routes = calloc(sv->route_count, sizeof *sv->routes);
    if (sv->routes == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the routes");
    }
    history_routes(sv->history, sv->routes);
    manage_routes(&sv->manage, sv->routes + HISTORY_ROUTES);
    capture_routes(sv->capture, sv->routes + HISTORY_ROUTES + MANAGE_ROUTES);
    artifact_routes(sv->artifacts.door, sv->routes + events);
    return 0;
}

static int make_server(struct serve *sv, const struct config *c, struct err *e)
{
    int r = make_routes(sv, e);
    if (r != 0) {
        return r;
    }
    struct http_config hc = {.limits = limits_of(c),
                             .token = buf_slice(&c->token),
                             .routes = sv->routes,
                             .route_count = sv->route_count,
                             .hooks = {on_turn, on_tick, on_stopping, sv},
                             .handle_signals = true};
    sv->server = http_new(&hc, e);
    set_wake(sv, sv->server);
    return sv->server == NULL ? e->code : 0;
}

static int listen_all(struct serve *sv, const struct config *c, struct err *e)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/tallyman.sock", c->data);
    int r = http_listen_unix(sv->server, path, e);
    if (r != 0) {
        return r;
    }
    log_line(LOG_INFO, "serve", "listening on %s", path);
    if (c->listen[0] != '\0') {
        unsigned port = 0;
        r = http_listen_tcp(sv->server, c->listen, &port, e);
        if (r == 0) {
            log_line(LOG_INFO, "serve", "listening on %s (port %u)", c->listen, port);
        }
    }
    return r;
}

static int open_journal(struct serve *sv, const struct config *c, struct err *e)
{
    struct journal_options options = {
        .generation_bytes = c->generation_bytes,
        .group_bytes = c->group_bytes,
        .index_memory = c->index_memory_bytes,
        .seal_after_generations = (uint32_t)c->seal_after_generations,
        .threads = true,
    };
    struct journal_status st;
    int r = journal_open(c->data, &options, &sv->journal, e);
    if (r != 0) {
        return r;
    }
    journal_get_status(sv->journal, &st);
    log_line(LOG_INFO, "serve", "tallyman %s+%s: %llu events in %u generations", version_number(),
             version_revision(), (unsigned long long)st.frontier.events, st.generations);
    return 0;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

/* The checkpointer's thread: turns that waited for it may go on. */
static void on_checkpoint(void *ctx)
{
    struct serve *sv = ctx;
    int r = pthread_mutex_lock(&sv->wake_lock);
    ensure(r == 0);
    if (sv->wake_server != NULL) {
        (void)http_post(sv->wake_server, nothing, NULL); /* no memory: the next tick wakes it */
    }
    r = pthread_mutex_unlock(&sv->wake_lock);
    ensure(r == 0);
}

static int open_store(struct serve *sv, struct err *e)
{
    const struct config *c = sv->config;
    struct store_options so = store_options_default;
    so.queue_events_max = c->queue_events_max;
    so.queue_bytes_max = c->queue_bytes_max;
    so.project_events_max = c->queue_events_max / 2 > 0 ? c->queue_events_max / 2 : 1;
    so.project_bytes_max = c->queue_bytes_max / 2;
    so.threads = true;
    so.wake = on_checkpoint;
    so.wake_ctx = sv;
    int r = store_open(c->data, &so, &sv->store, e);
    if (r == 0) {
        struct store_status st;
        store_get_status(sv->store, &st);
        log_line(LOG_INFO, "serve", "queue: %llu events wait for delivery",
                 (unsigned long long)st.pending_events);
    }
    return r;
}

/* NULL: this process starts its children itself. */
static struct spawner *spawner_of(struct serve *sv)
{
    return sv->spawner.fd >= 0 ? &sv->spawner : NULL;
}

static int start_delivery(struct serve *sv, struct err *e)
{
    int r = delivery_start(&sv->delivery, sv->config, spawner_of(sv), sv->store, sv->server, e);
    sv->manage.sink = sv->delivery.sink;
    sv->manage.query.engine_socket = sv->delivery.embedded ? sv->delivery.socket : NULL;
    return r;
}

static void fill_manage(struct serve *sv, const struct config *c)
{
    bool outside = c->clickhouse_url[0] != '\0';
    sv->manage = (struct manage){.journal = sv->journal,
                                 .version = version_number(),
                                 .revision = version_revision(),
                                 .started_ns = os_clock_mono_ns(),
                                 .store = sv->store,
                                 .store_cause = sv->store == NULL ? sv->store_error.text : NULL,
                                 .data = c->data,
                                 .sink_name = clickhouse_adapter.name,
                                 .engine_status = delivery_engine_status,
                                 .engine_ctx = &sv->delivery,
                                 .sandbox = &sv->sandbox,
                                 .artifact_status = artifacts_status,
                                 .artifact_partials = artifacts_partials,
                                 .artifact_ctx = &sv->artifacts,
                                 .query = {.outside = outside,
                                           .time_ms = c->query_time_ms,
                                           .rows_max = c->query_rows_max,
                                           .bytes_max = c->query_bytes_max}};
}

/* Followers stay; the others come and go, and must find a place. */
static uint32_t followers_max(const struct config *c)
{
    return (uint32_t)(c->connections_max - c->connections_max / 8);
}

static int make_doors(struct serve *sv, const struct config *c, struct err *e)
{
    struct history_options ho = {.replay_default_limit = (uint32_t)c->replay_default_limit,
                                 .replay_max_limit = (uint32_t)c->replay_max_limit,
                                 .replays_max = REPLAYS_MAX,
                                 .head_key = sv->head.key,
                                 .followers_max = followers_max(c)};
    struct capture_options co = {.request_bytes_max = c->capture_request_bytes_max,
                                 .decoded_bytes_max = c->capture_decoded_bytes_max,
                                 .single_bytes_max = c->capture_single_bytes_max,
                                 .event_bytes_max = c->capture_event_bytes_max,
                                 .batch_events_max = (uint32_t)c->capture_batch_events_max};
    fill_manage(sv, c);
    sv->history = history_new(sv->journal, &ho);
    sv->capture = capture_new(sv->store, &co, on_committed, sv);
    if (sv->history == NULL || sv->capture == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the doors");
    }
    int r = artifacts_open(&sv->artifacts, c, sv->store, e);
    if (r == 0) {
        sv->manage.uploads = artifact_uploads(sv->artifacts.door);
        sv->manage.upload_retention_ms = c->partial_upload_retention_ms;
    }
    return r;
}

/* From open stores to the end of the loop. */
static int run(struct serve *sv, const struct config *c, struct err *e)
{
    int r = make_doors(sv, c, e);
    if (r == 0) {
        r = make_server(sv, c, e);
    }
    if (r == 0) {
        r = listen_all(sv, c, e);
    }
    if (r == 0 && sv->store != NULL) {
        r = start_delivery(sv, e);
    }
    if (r == 0) {
        sv->artifacts.spawner = spawner_of(sv);
        r = artifacts_start(&sv->artifacts, sv->server, e);
    }
    if (r == 0) {
        r = http_run(sv->server, e);
    }
    artifacts_stop(&sv->artifacts);
    delivery_stop(&sv->delivery);
    sv->manage.sink = NULL;
    manage_end(&sv->manage);
    if (sv->store != NULL) {
        /* What clients that were cut off had asked for: their requests go with the server, so none
         * may wait for a checkpoint any longer. */
        store_finish(sv->store);
        while (store_turn(sv->store)) {
        }
    }
    set_wake(sv, NULL);
    if (sv->capture != NULL) {
        capture_detach(sv->capture);
    }
    if (sv->artifacts.door != NULL) {
        artifact_detach(sv->artifacts.door);
    }
    if (sv->server != NULL) {
        http_free(sv->server);
    }
    if (sv->history != NULL) {
        history_free(sv->history);
    }
    capture_free(sv->capture);
    artifacts_close(&sv->artifacts);
    free(sv->routes);
    return r;
}

/* Closes a store; its failure is the verb's when nothing failed before. */
static void note_close(int closed, const char *what, const struct err *closing, int *r,
                       struct err *e)
{
    if (closed == 0) {
        return;
    }
    log_line(LOG_ERROR, "serve", "the %s could not be closed cleanly: %s", what, closing->text);
    if (*r == 0) {
        *r = closed;
        *e = *closing;
    }
}

static int serve(struct serve *sv, const struct config *c, struct err *e)
{
    struct err closing = {0};
    int r = restore_check(c->data, e);
    if (r == 0) {
        r = serve_sandbox(c, &sv->spawner, &sv->sandbox, e);
    }
    if (r == 0) {
        r = open_journal(sv, c, e);
    }
    if (r != 0) {
        return r;
    }
    sv->config = c;
    serve_head_open(&sv->head, c->data, sv->journal);
    r = open_store(sv, &sv->store_error);
    if (r == ERR_NO_SPACE) {
        log_line(LOG_WARN, "serve", "the queue waits for space: %s", sv->store_error.text);
        r = 0;
    }
    if (r == 0) {
        r = run(sv, c, e);
        note_close(store_close(sv->store, &closing), "queue", &closing, &r, e);
    } else {
        *e = sv->store_error;
    }
    note_close(journal_close(sv->journal, &closing), "journal", &closing, &r, e);
    serve_head_close(&sv->head);
    if (r == 0) {
        log_line(LOG_INFO, "serve", "stopped");
    }
    return r;
}

int verb_serve(int argc, char **argv)
{
    struct config c;
    struct err e = {0};
    struct serve sv = {.wake_lock = PTHREAD_MUTEX_INITIALIZER};
    int code = EXIT_DONE;
    spawner_init(&sv.spawner); /* also for a start that ends before the sandbox */
    if (!config_begin(&c, "serve",
                      "Runs the server on a data directory, made when it is missing.\n", argc, argv,
                      &code)) {
        return code;
    }
    log_set_level(c.log_level);
    block_signals();
    int r = serve(&sv, &c, &e);
    if (r != 0) {
        output_error("serve", "%s", e.text);
        code = r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    spawner_stop(&sv.spawner);
    config_free(&c);
    return code;
}
