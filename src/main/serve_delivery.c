/* Where the library is looked for: the setting; beside the program, where scripts/engine puts it
 * (engine/node_modules/...); in ../lib/tallyman of an installed program. It may arrive while the
 * server runs: it is looked for at every tick until the engine can be started.
 *
 * Power failure, kill -9: the engine sees the end of our pipe and ends. What it acknowledged is on
 * its disk; what we had not recorded is sent again. */
#include "main/serve_delivery.h"

#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/paused.h"

#define LIBRARY_BESIDE "engine/node_modules/@chdb/lib-linux-x64-gnu/libchdb.so"
#define LIBRARY_SYSTEM "../lib/tallyman/libchdb.so"
#define ENGINE_PROGRAM "tallyman-engine"
#define ENGINE_SOCKET  "engine.sock"
#define WAKES          30u /* ticks after a start of the engine in which the sink is hurried */

static bool exists(const char *path)
{
    struct os_stat st;
    return os_stat(path, &st) == 0;
}

/* DIR/name into out, where DIR is the folder of the program. */
static void beside_program(const struct delivery *d, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(d->program, '/');
    int dir = slash == NULL ? 0 : (int)(slash - d->program) + 1;
    (void)snprintf(out, size, "%.*s%s", dir, d->program, name);
}

/* The n-th place where the library may be; false: there are no more. */
static bool library_place(struct delivery *d, size_t n)
{
    static const char *const places[] = {LIBRARY_BESIDE, LIBRARY_SYSTEM};
    if (d->config->engine_library[0] != '\0') {
        (void)snprintf(d->library, sizeof d->library, "%s", d->config->engine_library);
        return n == 0;
    }
    if (n >= sizeof places / sizeof *places) {
        return false;
    }
    beside_program(d, places[n], d->library, sizeof d->library);
    return true;
}

static bool find_library(struct delivery *d)
{
    for (size_t i = 0; library_place(d, i); i++) {
        if (exists(d->library)) {
            return true;
        }
    }
    return false;
}

/* What can be said before it is known where the library is. */
static int prepare(struct delivery *d, const struct config *c, struct err *e)
{
    *d = (struct delivery){.config = c, .embedded = c->clickhouse_url[0] == '\0' && c->engine};
    (void)snprintf(d->data, sizeof d->data, "%s/engine", c->data);
    (void)snprintf(d->socket, sizeof d->socket, "%s/engine/" ENGINE_SOCKET, c->data);
    int r = os_program(d->program, sizeof d->program);
    return r != 0 ? err_os(e, r, "find the program", "/proc/self/exe") : 0;
}

/* Path and vector of the engine, with d->library. */
static void make_command(struct delivery *d)
{
    char engine[DELIVERY_PATH_MAX];
    beside_program(d, ENGINE_PROGRAM, engine, sizeof engine);
    (void)snprintf(d->program, sizeof d->program, "%s", engine);
    static char name[] = ENGINE_PROGRAM;
    static char data[] = "--data";
    static char library[] = "--library";
    static char parent[] = "--parent-fd";
    static char parent_fd[] = "3";
    static char sandbox[] = "--sandbox";
    static char off[] = "0";
    static_assert(CHILD_PARENT_FD == 3, "parent_fd says so");
    char *const argv[DELIVERY_ARGS_MAX] = {
        name,       data,   d->data,   library,
        d->library, parent, parent_fd, d->config->sandbox ? NULL : sandbox,
        off,        NULL};
    memcpy(d->argv, argv, sizeof argv);
}

int delivery_add_commands(const struct config *c, struct spawner *s, struct err *e)
{
    struct delivery d;
    int r = prepare(&d, c, e);
    for (size_t i = 0; r == 0 && d.embedded && library_place(&d, i); i++) {
        make_command(&d);
        r = spawner_add(s, d.program, d.argv, e);
    }
    return r;
}

static void start_engine(struct delivery *d)
{
    if (d->started || !find_library(d)) {
        return;
    }
    make_command(d);
    child_init(&d->child, d->program, d->argv);
    if (d->spawner != NULL) {
        child_set_spawn(&d->child, spawner_spawn, d->spawner);
    }
    child_tick(&d->child); /* at once: the next tick may be a second away */
    d->started = true;
    log_line(LOG_INFO, "serve", "engine library %s", d->library);
}

static int start_sink(struct delivery *d, struct store *store, struct http_server *server,
                      struct err *e)
{
    const struct config *c = d->config;
    struct paused paused;
    paused_read(c->data, &paused);
    struct clickhouse_options co = {
        .url = d->embedded ? "http://engine" : c->clickhouse_url,
        .unix_socket = d->embedded ? d->socket : NULL,
        .user = c->clickhouse_user,
        .password = buf_slice(&c->clickhouse_password),
        .embedded = d->embedded,
    };
    struct sink_options so = {
        .data = c->data,
        .batch_events_max = (uint32_t)c->delivery_batch_events_max,
        .batch_bytes_soft = c->delivery_batch_bytes_soft,
        .backoff_min_ms = 1000,
        .backoff_max_ms = 30000,
        .paused = paused.on,
    };
    int r = clickhouse_new(&co, &d->clickhouse, e);
    if (r == 0) {
        r = sink_start(&so, &clickhouse_adapter, d->clickhouse, store, server, &d->sink, e);
    }
    return r;
}

int delivery_start(struct delivery *d, const struct config *c, struct spawner *spawner,
                   struct store *store, struct http_server *server, struct err *e)
{
    int r = prepare(d, c, e);
    if (r != 0) {
        return r;
    }
    d->spawner = spawner;
    if (d->embedded) {
        start_engine(d);
        if (!d->started) {
            log_line(
                LOG_WARN, "serve",
                "the engine's library is not there (libchdb.so; see docs/OPERATING.md): events "
                "stay queued");
        }
    } else if (c->clickhouse_url[0] == '\0') {
        log_line(LOG_INFO, "serve",
                 "the engine is off and there is no clickhouse_url: events stay "
                 "queued");
        return 0;
    }
    return start_sink(d, store, server, e);
}

void delivery_tick(struct delivery *d)
{
    struct sink_status st;
    if (!d->embedded) {
        return;
    }
    start_engine(d);
    if (!d->started) {
        return;
    }
    child_tick(&d->child);
    if (d->child.starts != d->starts_seen) {
        d->starts_seen = d->child.starts;
        d->wakes_left = WAKES;
    }
    if (d->wakes_left > 0 && d->sink != NULL) {
        d->wakes_left--;
        sink_get_status(d->sink, &st);
        if (!st.connected) {
            sink_retry_now(d->sink);
        } else {
            d->wakes_left = 0;
        }
    }
}

void delivery_engine_status(void *ctx, struct manage_engine *out)
{
    struct delivery *d = ctx;
    *out = (struct manage_engine){0};
    if (!d->embedded) {
        (void)snprintf(out->state, sizeof out->state, "off");
        (void)snprintf(out->detail, sizeof out->detail, "%s",
                       d->config->clickhouse_url[0] != '\0' ? "events go to clickhouse_url"
                                                            : "switched off (engine = off)");
        return;
    }
    if (!d->started) {
        (void)snprintf(out->state, sizeof out->state, "absent");
        (void)snprintf(out->detail, sizeof out->detail,
                       "libchdb.so is not there; it is looked for every second");
        return;
    }
    (void)snprintf(out->state, sizeof out->state, "%s", child_state_name(d->child.state));
    out->restarts = d->child.restarts;
    if (d->child.last_exit[0] != '\0') {
        (void)snprintf(out->detail, sizeof out->detail, "last end: %s", d->child.last_exit);
    }
}

void delivery_stop(struct delivery *d)
{
    if (d->sink != NULL) {
        sink_stop(d->sink);
        d->sink = NULL;
    }
    if (d->clickhouse != NULL) {
        clickhouse_free(d->clickhouse);
        d->clickhouse = NULL;
    }
    if (d->started) {
        child_end(&d->child);
        d->started = false;
    }
}
