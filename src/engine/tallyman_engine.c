/* tallyman-engine: the analytics engine as a process of its own (engine_protocol.h).
 *
 * Start: options, priority, directory, library, tables, self-test; then the sockets, so that
 * whoever can connect is served. End: SIGTERM, SIGINT or SIGHUP, or the end of the parent's pipe:
 * open requests have the front's grace, then the process goes, with or without libchdb's goodbye:
 * what was acknowledged is synced, and a start after kill -9 finds it.
 *
 * A thread of its own waits on the parent's pipe. Whatever asked for the end, the process is gone
 * END_MS later: a thread sees to that. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/ensure.h"
#include "base/log.h"
#include "engine/boot.h"
#include "engine/engine_protocol.h"
#include "engine/files.h"
#include "engine/front.h"
#include "http/http.h"
#include "os/os.h"
#include "os/sandbox.h"

#define END_MS               5000
#define MEMORY_BYTES_DEFAULT 1610612736u /* 1.5 GiB */
#define SECRET_MAX           128
#define PATH_BYTES           4200

struct options {
    const char *data;
    const char *socket;
    const char *library;
    const char *listen;
    const char *secret_file;
    uint64_t parent_fd; /* UINT64_MAX: none */
    uint64_t nice;
    uint64_t memory_bytes;
    uint64_t sandbox; /* 0: keep all rights */
};

struct option {
    const char *name;
    const char **text;
    uint64_t *number;
    uint64_t max;
};

static bool number_of(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    size_t n = 0;

    for (; text[n] >= '0' && text[n] <= '9' && n < 18; n++) {
        v = v * 10 + (uint64_t)(text[n] - '0');
    }
    *out = v;
    return n != 0 && text[n] == '\0' && v <= max;
}

static bool take_option(const struct option *known, size_t count, const char *name,
                        const char *value)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, known[i].name) == 0) {
            if (known[i].text != NULL) {
                *known[i].text = value;
                return true;
            }
            return number_of(value, known[i].max, known[i].number);
        }
    }
    return false;
}

static bool options_read(struct options *o, int argc, char **argv)
{
    const struct option known[] = {
        {"--data", &o->data, NULL, 0},
        {"--socket", &o->socket, NULL, 0},
        {"--library", &o->library, NULL, 0},
        {"--listen", &o->listen, NULL, 0},
        {"--secret-file", &o->secret_file, NULL, 0},
        {"--parent-fd", NULL, &o->parent_fd, 1023},
        {"--nice", NULL, &o->nice, 19},
        {"--memory-bytes", NULL, &o->memory_bytes, (uint64_t)1 << 50},
        {"--sandbox", NULL, &o->sandbox, 1},
    };

    *o = (struct options){
        .parent_fd = UINT64_MAX, .nice = 15, .memory_bytes = MEMORY_BYTES_DEFAULT, .sandbox = 1};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!take_option(known, sizeof known / sizeof *known, argv[i], argv[i + 1])) {
            log_line(LOG_ERROR, "engine", "the option %.40s, or its value, is none", argv[i]);
            return false;
        }
    }
    if (argc % 2 == 0 || o->data == NULL || o->library == NULL ||
        (o->listen != NULL) != (o->secret_file != NULL) || o->memory_bytes < (256u << 20)) {
        log_line(LOG_ERROR, "engine",
                 "usage: tallyman-engine --data DIR --library FILE [--socket PATH] [--listen "
                 "HOST:PORT --secret-file FILE] [--parent-fd N] [--nice N] [--memory-bytes N] "
                 "[--sandbox 0|1]");
        return false;
    }
    return true;
}

/* The owner's password: the file's text without its line end. */
static int secret_read(const char *path, char out[SECRET_MAX], struct slice *secret, struct err *e)
{
    int fd = os_open(path, O_RDONLY, 0);
    int64_t n;

    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    n = os_pread_full(fd, out, SECRET_MAX, 0);
    (void)os_close(fd);
    if (n < 0) {
        return err_os(e, (int)n, "read", path);
    }
    while (n > 0 && (out[n - 1] == '\n' || out[n - 1] == '\r')) {
        n--;
    }
    if (n < 8 || n == SECRET_MAX) {
        return err_set(e, ERR_USAGE, "%s must hold a password of 8 to 127 bytes", path);
    }
    *secret = slice_of(out, (size_t)n);
    return 0;
}

/* ---- the end ---- */

struct parent {
    struct http_server *server;
    int fd;
};

/* A thread that ends the process END_MS from now, should the loop not have done so: a statement
 * that runs cannot be interrupted, and nobody waits for its answer. */
static void *end_later(void *ctx)
{
    struct epoll_event event;
    int ep = os_epoll_create();

    (void)ctx;
    if (ep >= 0) {
        (void)os_epoll_wait(ep, &event, 1, END_MS); /* nothing is in it: a sleep */
    }
    _exit(0);
}

static void *parent_wait(void *ctx)
{
    struct parent *p = ctx;
    char byte;

    while (os_read(p->fd, &byte, 1) > 0) {
    }
    log_line(LOG_INFO, "engine", "the parent has gone: stopping");
    http_stop(p->server);
    return end_later(NULL);
}

static int thread_start(void *(*run)(void *), void *ctx, struct err *e)
{
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, run, ctx);

    if (failed != 0) {
        return err_os(e, -failed, "pthread_create", "a thread of the engine");
    }
    failed = pthread_detach(thread);
    ensure(failed == 0);
    return 0;
}

static void on_stopping(void *ctx)
{
    struct err e = {0};

    (void)ctx;
    if (thread_start(end_later, NULL, &e) != 0) {
        log_line(LOG_WARN, "engine", "%s: a running statement may hold the end up", e.text);
    }
}

/* A query that does not end holds a worker that everybody's queries need, and there is no way to
 * end it but with the process. What an insert had not been answered is sent again. */
static void on_tick(void *ctx)
{
    if (front_stuck(ctx, os_clock_mono_ns() / 1000000)) {
        log_line(LOG_WARN, "engine",
                 "a project's query does not end, long past its limit: the engine starts anew");
        _exit(ENGINE_EXIT_STUCK);
    }
}

/* ---- start ---- */

/* The process leaves its directory: a path that is not absolute is made so. NULL: no memory. */
static const char *absolute(const char *path)
{
    char *here = path[0] == '/' ? NULL : realpath(".", NULL);
    struct buf whole = {0};

    if (here != NULL) {
        buf_put_cstr(&whole, here);
        buf_put_char(&whole, '/');
        free(here);
    }
    buf_put_cstr(&whole, path);
    buf_put_char(&whole, '\0');
    return whole.failed ? NULL : whole.ptr;
}

/* Stop signals are for the loop's signalfd, whatever threads libchdb makes. */
static void block_signals(void)
{
    sigset_t set;
    int r;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    r = pthread_sigmask(SIG_BLOCK, &set, NULL);
    ensure(r == 0);
}

static int listen_all(struct http_server *s, const struct options *o, struct err *e)
{
    unsigned port = 0;
    int r = http_listen_unix(s, o->socket, e);

    if (r == 0 && o->listen != NULL) {
        r = http_listen_tcp(s, o->listen, &port, e);
        if (r == 0) {
            log_line(LOG_INFO, "engine", "listening on %s (port %u)", o->listen, port);
        }
    }
    return r;
}

static int serve(const struct options *o, struct front *front, struct err *e)
{
    static struct parent parent;
    struct http_route routes[FRONT_ROUTES];
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = FRONT_ROUTES,
                                 .hooks = {.tick = on_tick, .stopping = on_stopping, .ctx = front},
                                 .handle_signals = true};
    int r = 0;

    config.limits.workers = FRONT_WORKERS;
    config.limits.grace_ms = END_MS - 1000;
    front_routes(front, routes);
    parent.server = http_new(&config, e);
    if (parent.server == NULL) {
        return e->code;
    }
    if (o->parent_fd != UINT64_MAX) {
        parent.fd = (int)o->parent_fd;
        r = thread_start(parent_wait, &parent, e);
    }
    if (r == 0) {
        r = listen_all(parent.server, o, e);
    }
    if (r == 0) {
        log_line(LOG_INFO, "engine", "libchdb %s is ready, queries of projects are %s",
                 library_version(), front->engine->open ? "open" : "closed");
        r = http_run(parent.server, e);
    }
    return r;
}

static uint16_t port_of(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    unsigned long port = colon == NULL ? 0 : strtoul(colon + 1, NULL, 10);

    return port > UINT16_MAX ? 0 : (uint16_t)port;
}

/* DIR of DIR/NAME, in out. */
static void folder_of(const char *path, char out[PATH_BYTES])
{
    const char *slash = strrchr(path, '/');
    int n = slash == NULL ? 0 : slash == path ? 1 : (int)(slash - path);

    (void)snprintf(out, PATH_BYTES, "%.*s", n, path);
    if (n == 0) {
        (void)snprintf(out, PATH_BYTES, ".");
    }
}

/* Before libchdb is loaded: whatever it starts has these rules. It keeps its directory, which is
 * made for that, its library, and the place of a socket that lies elsewhere. It connects to
 * nobody. */
static int confine(const struct options *o, struct err *e)
{
    struct sandbox s = {.name = "engine", .inet = true};
    struct sandbox_state state;
    char parent[PATH_BYTES];
    char socket[PATH_BYTES];
    char library[PATH_BYTES];
    char *real;
    int r = os_mkdir_exist_ok(o->data, 0700);

    if (r != 0) {
        return err_os(e, r, "make directory", o->data);
    }
    folder_of(o->data, parent);
    sandbox_need(&s, o->data, SANDBOX_READ | SANDBOX_WRITE | SANDBOX_LINK);
    sandbox_allow(&s, parent, SANDBOX_LIST);
    real = realpath(o->library, NULL); /* it may be a link; what it needs may lie beside the file */
    folder_of(real != NULL ? real : o->library, library);
    free(real);
    sandbox_allow(&s, o->library, SANDBOX_READ);
    sandbox_allow(&s, library, SANDBOX_READ);
    if (o->socket != NULL) {
        folder_of(o->socket, socket);
        sandbox_need(&s, socket, SANDBOX_READ | SANDBOX_WRITE);
    }
    sandbox_allow_libraries(&s);
    if (o->listen != NULL) {
        s.bind[s.binds++] = port_of(o->listen);
    }
    sandbox_enter(&s, &state);
    return 0;
}

static int run(struct options *o, struct err *e)
{
    static struct engine engine;
    static char secret[SECRET_MAX];
    struct front front = {.engine = &engine};
    int r = o->secret_file != NULL ? secret_read(o->secret_file, secret, &front.secret, e) : 0;

    if (r != 0) {
        return ENGINE_EXIT_USAGE;
    }
    if (o->sandbox != 0 && confine(o, e) != 0) {
        return ENGINE_EXIT_START;
    }
    o->socket = o->socket == NULL ? "../engine.sock" : absolute(o->socket);
    if (o->socket == NULL) {
        (void)err_set(e, ERR_NO_MEMORY, "no memory for the socket's path");
        return ENGINE_EXIT_START;
    }
    if (library_load(o->library, e) != 0) {
        return ENGINE_EXIT_LIBRARY;
    }
    if (files_prepare(o->data, o->memory_bytes, e) != 0 || boot_start(&engine, e) != 0) {
        return ENGINE_EXIT_START;
    }
    r = serve(o, &front, e);
    return r == 0 ? 0 : ENGINE_EXIT_SERVE;
}

int main(int argc, char **argv)
{
    struct options o;
    struct err e = {0};
    int code;

    if (!options_read(&o, argc, argv)) {
        return ENGINE_EXIT_USAGE;
    }
    block_signals();
    if (os_set_nice((int)o.nice) != 0) {
        log_line(LOG_WARN, "engine", "the priority could not be lowered");
    }
    code = run(&o, &e);
    if (code != 0) {
        log_line(LOG_ERROR, "engine", "%s", e.text);
    }
    _exit(code);
}
