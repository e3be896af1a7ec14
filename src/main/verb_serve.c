/* tallyman serve: the server process.
 *
 * Start: settings are checked before anything is touched; the journal is opened (lock, recovery);
 * then the sockets are bound, so a client that can connect gets the truth. Stop (SIGINT, SIGTERM,
 * SIGHUP): no new connections, open requests are finished within grace_ms, the journal is closed
 * cleanly. A poisoned journal does not end the process: reads go on. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/history/history.h"
#include "door/manage/manage.h"
#include "http/http.h"
#include "journal/journal.h"
#include "main/config.h"
#include "main/output.h"
#include "main/verbs.h"
#include "main/version.h"
#include "os/os.h"

#define ROUTES      (HISTORY_ROUTES + MANAGE_ROUTES)
#define REPLAYS_MAX 64

struct serve {
    struct journal *journal;
    struct history *history;
    struct http_server *server;
    struct manage manage;
    struct http_route routes[ROUTES];
};

static void on_turn(void *ctx)
{
    struct serve *sv = ctx;
    history_turn(sv->history);
}

static void on_tick(void *ctx)
{
    struct serve *sv = ctx;
    journal_tick(sv->journal);
}

static void on_stopping(void *ctx)
{
    struct serve *sv = ctx;
    sv->manage.stopping = true;
    history_stopping(sv->history);
    log_line(LOG_INFO, "serve", "stopping");
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
    return l;
}

static int make_server(struct serve *sv, const struct config *c, struct err *e)
{
    struct http_config hc = {.limits = limits_of(c),
                             .token = buf_slice(&c->token),
                             .routes = sv->routes,
                             .route_count = ROUTES,
                             .hooks = {on_turn, on_tick, on_stopping, sv},
                             .handle_signals = true};
    history_routes(sv->history, sv->routes);
    manage_routes(&sv->manage, sv->routes + HISTORY_ROUTES);
    sv->server = http_new(&hc, e);
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
        .generation_bytes = c->generation_bytes, .group_bytes = c->group_bytes, .threads = true};
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

static int run(struct serve *sv, const struct config *c, struct err *e)
{
    struct history_options ho = {.replay_default_limit = (uint32_t)c->replay_default_limit,
                                 .replay_max_limit = (uint32_t)c->replay_max_limit,
                                 .replays_max = REPLAYS_MAX};
    sv->manage = (struct manage){.journal = sv->journal,
                                 .version = version_number(),
                                 .revision = version_revision(),
                                 .started_ns = os_clock_mono_ns()};
    sv->history = history_new(sv->journal, &ho);
    int r = sv->history == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for the history door")
                                : make_server(sv, c, e);
    if (r == 0) {
        r = listen_all(sv, c, e);
    }
    if (r == 0) {
        r = http_run(sv->server, e);
    }
    if (sv->server != NULL) {
        http_free(sv->server);
    }
    if (sv->history != NULL) {
        history_free(sv->history);
    }
    return r;
}

int verb_serve(int argc, char **argv)
{
    struct config c;
    struct err e = {0};
    struct serve sv = {0};
    int code = EXIT_DONE;
    if (!config_begin(&c, "serve",
                      "Runs the server on a data directory, made when it is missing.\n", argc, argv,
                      &code)) {
        return code;
    }
    log_set_level(c.log_level);
    block_signals();
    int r = open_journal(&sv, &c, &e);
    if (r == 0) {
        r = run(&sv, &c, &e);
        struct err closing = {0};
        int closed = journal_close(sv.journal, &closing);
        if (closed != 0) {
            log_line(LOG_ERROR, "serve", "the journal could not be closed cleanly: %s",
                     closing.text);
        } else {
            log_line(LOG_INFO, "serve", "stopped");
        }
        if (r == 0 && closed != 0) {
            r = closed;
            e = closing;
        }
    }
    if (r != 0) {
        output_error("serve", "%s", e.text);
        code = r == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    config_free(&c);
    return code;
}
