/* probe: a server made of the HTTP front and nothing else, for the black-box suite.
 *
 *   probe [--tcp HOST:PORT]... [--unix PATH]... [--token TOKEN] [--NAME=VALUE of http_limits]...
 *
 * Prints `port N` for each TCP listener and `ready`, serves until SIGTERM, prints `bye`. Exit code
 * 0, or 1 with the error on standard error when it cannot start.
 *
 * Every answer of a door-like route is either immediate, or given in the turn hook (as a commit
 * would), or made on a worker. /stats tells what went on inside. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/http.h"

#define DEFERRED_MAX 65536

static struct http_server *server;
static struct http_request *deferred[DEFERRED_MAX];
static size_t deferred_count;
static uint64_t smuggled;
static uint64_t served;
static uint64_t turns_with_many; /* turns that answered more than one deferred request */
static uint64_t sources_opened;
static uint64_t sources_closed;
static uint64_t stream_bytes_made;

static uint64_t query_number(struct http_request *req, const char *wanted, uint64_t otherwise)
{
    struct http_pairs pairs = {.rest = http_query(req)};
    struct slice name;
    struct slice value;

    while (http_next_pair(&pairs, http_arena(req), &name, &value) == 1) {
        if (slice_eq(name, slice_cstr(wanted))) {
            return strtoull(value.ptr, NULL, 10);
        }
    }
    return otherwise;
}

static void sleep_ms(uint64_t ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&t, NULL);
}

static void answer_body(struct http_request *req)
{
    served++;
    http_answer(req, 200, "text/plain", http_body(req));
}

/* ---- immediate ---- */

static void on_echo(void *ctx, struct http_request *req)
{
    (void)ctx;
    answer_body(req);
}

static void on_hello(void *ctx, struct http_request *req)
{
    served++;
    http_answer(req, 200, "text/plain", slice_cstr(ctx));
}

static void on_smuggled(void *ctx, struct http_request *req)
{
    (void)ctx;
    smuggled++;
    http_answer(req, 200, "text/plain", SLICE("smuggled"));
}

static void on_length(void *ctx, struct http_request *req)
{
    struct buf b = {0};

    (void)ctx;
    served++;
    buf_printf(&b, "%zu", http_body(req).len);
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

static void on_fetch(void *ctx, struct http_request *req)
{
    struct buf b = {0};
    uint64_t n = query_number(req, "bytes", 10);

    (void)ctx;
    served++;
    for (uint64_t i = 0; i < n; i++) {
        buf_put_char(&b, (char)('a' + i % 26));
    }
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

/* What the front made of the request. */
static void on_inspect(void *ctx, struct http_request *req)
{
    static const char *const names[] = {"host",   "x-trailer", "content-length",   "x-a",
                                        "accept", "origin",    "transfer-encoding"};
    struct buf b = {0};

    (void)ctx;
    served++;
    buf_printf(&b, "method=%d path=%.*s query=%d:%.*s unix=%d body=%zu", (int)http_method(req),
               (int)http_path(req).len, http_path(req).ptr, (int)http_has_query(req),
               (int)http_query(req).len, http_query(req).ptr, (int)http_on_unix_socket(req),
               http_body(req).len);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct slice value;
        unsigned count;

        if (http_header(req, names[i], &value, &count)) {
            buf_printf(&b, " %s*%u=[%.*s]", names[i], count, (int)value.len, value.ptr);
        }
    }
    http_add_header(req, "X-Odd", SLICE("a\r\nInjected: yes"));
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

static void on_error(void *ctx, struct http_request *req)
{
    (void)ctx;
    served++;
    http_answer_error(req, ERR_BATCH_ID_CONFLICT, "A \"quoted\" message.",
                      SLICE("\"source\":\"s\",\"events\":3"));
}

static void on_overloaded(void *ctx, struct http_request *req)
{
    (void)ctx;
    if (query_number(req, "after", 0) != 0) {
        http_add_header(req, "Retry-After", SLICE("60"));
    }
    http_answer_error(req, ERR_OVERLOADED, "Full.", (struct slice){0});
}

static void on_empty(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 204, NULL, (struct slice){0});
}

/* on_head: refuses everything but text, as a door refuses a media type. */
static void head_wants_text(void *ctx, struct http_request *req)
{
    struct slice type;

    (void)ctx;
    if (http_header(req, "content-type", &type, NULL) && !slice_eq(type, SLICE("text/plain"))) {
        http_answer_error(req, ERR_UNSUPPORTED_MEDIA_TYPE, "Only text.", (struct slice){0});
    }
}

/* on_head: reserves as much again for the door's own copy. */
static void head_reserves(void *ctx, struct http_request *req)
{
    (void)ctx;
    if (!http_reserve(req, query_number(req, "reserve", 0))) {
        http_answer_error(req, ERR_OVERLOADED, "No budget.", (struct slice){0});
    }
}

/* ---- answered in the turn, as a commit would ---- */

static void on_deferred(void *ctx, struct http_request *req)
{
    (void)ctx;
    ensure(deferred_count < DEFERRED_MAX);
    deferred[deferred_count] = req;
    deferred_count++;
}

static void on_turn(void *ctx)
{
    (void)ctx;
    turns_with_many += deferred_count > 1 ? 1 : 0;
    for (size_t i = deferred_count; i > 0; i--) { /* the front puts them in order */
        answer_body(deferred[i - 1]);
    }
    deferred_count = 0;
}

/* ---- workers ---- */

static void slow_work(void *ctx)
{
    sleep_ms(*(uint64_t *)ctx);
}

static void work_done(void *ctx, struct http_request *req)
{
    (void)ctx;
    if (query_number(req, "then", 0) != 0) {
        on_deferred(NULL, req);
    } else {
        answer_body(req);
    }
}

static void on_worker(void *ctx, struct http_request *req)
{
    uint64_t *ms = arena_alloc(http_arena(req), sizeof *ms);

    (void)ctx;
    ensure(ms != NULL);
    *ms = query_number(req, "ms", 0);
    if (!http_work(req, slow_work, work_done, ms)) {
        http_answer_error(req, ERR_OVERLOADED, "The queue is full.", (struct slice){0});
    }
}

/* ---- streams ---- */

struct maker {
    uint64_t left;
    uint64_t piece;
    uint64_t fail_after;
    uint64_t made;
    uint64_t pause_ms;
};

static int64_t maker_read(void *ctx, char *p, size_t cap)
{
    struct maker *m = ctx;
    uint64_t n = m->left < cap ? m->left : cap;

    if (m->pause_ms != 0) {
        sleep_ms(m->pause_ms);
    }
    if (m->fail_after != 0 && m->made >= m->fail_after) {
        return ERR_IO;
    }
    if (m->piece != 0 && n > m->piece) {
        n = m->piece;
    }
    for (uint64_t i = 0; i < n; i++) {
        p[i] = (char)('a' + (m->made + i) % 26);
    }
    m->made += n;
    m->left -= n;
    return (int64_t)n;
}

static void maker_close(void *ctx)
{
    struct maker *m = ctx;

    sources_closed++;
    stream_bytes_made += m->made;
    free(m);
}

static void on_stream(void *ctx, struct http_request *req)
{
    static const struct http_source source = {.read = maker_read, .close = maker_close};
    struct maker *m = calloc(1, sizeof *m);

    (void)ctx;
    ensure(m != NULL);
    m->left = query_number(req, "bytes", 1000);
    m->piece = query_number(req, "piece", 0);
    m->fail_after = query_number(req, "fail", 0);
    m->pause_ms = query_number(req, "pause", 0);
    served++;
    sources_opened++;
    http_answer_stream(req, 200, "application/x-ndjson", &source, m);
}

/* ---- what went on ---- */

static void on_stats(void *ctx, struct http_request *req)
{
    struct buf b = {0};

    (void)ctx;
    buf_printf(&b,
               "{\"smuggled\":%llu,\"served\":%llu,\"turns_with_many\":%llu,"
               "\"sources_opened\":%llu,\"sources_closed\":%llu,\"stream_bytes_made\":%llu,"
               "\"connections\":%llu,\"accepted\":%llu,\"accept_errors\":%llu,"
               "\"body_bytes\":%llu,\"timeouts\":%llu,\"overloaded\":%llu,\"refused\":%llu,"
               "\"requests\":%llu}",
               (unsigned long long)smuggled, (unsigned long long)served,
               (unsigned long long)turns_with_many, (unsigned long long)sources_opened,
               (unsigned long long)sources_closed, (unsigned long long)stream_bytes_made,
               (unsigned long long)metric_get(METRIC_HTTP_CONNECTIONS),
               (unsigned long long)metric_get(METRIC_HTTP_ACCEPTED),
               (unsigned long long)metric_get(METRIC_HTTP_ACCEPT_ERRORS),
               (unsigned long long)metric_get(METRIC_HTTP_BODY_BYTES),
               (unsigned long long)metric_get(METRIC_HTTP_TIMEOUTS),
               (unsigned long long)metric_get(METRIC_HTTP_OVERLOADED),
               (unsigned long long)metric_get(METRIC_HTTP_REFUSED),
               (unsigned long long)metric_get(METRIC_HTTP_REQUESTS));
    http_answer(req, 200, "application/json", buf_slice(&b));
    buf_free(&b);
}

static void posted(void *ctx)
{
    http_stop(ctx);
}

static void on_stop(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, "text/plain", SLICE("stopping"));
    ensure(http_post(http_server_of(req), posted, server));
}

#define SMALL (64u << 10)
#define LARGE (64u << 20)

static const struct http_route routes[] = {
    {.path = "/echo",
     .methods = HTTP_POST | HTTP_PUT,
     .body_max_bytes = SMALL,
     .on_request = on_echo},
    {.path = "/text",
     .methods = HTTP_POST,
     .body_max_bytes = SMALL,
     .on_head = head_wants_text,
     .on_request = on_echo},
    {.path = "/large",
     .methods = HTTP_POST,
     .body_max_bytes = LARGE,
     .on_head = head_reserves,
     .on_request = on_length},
    {.path = "/deferred",
     .methods = HTTP_POST | HTTP_GET,
     .body_max_bytes = SMALL,
     .on_request = on_deferred},
    {.path = "/worker",
     .methods = HTTP_POST | HTTP_GET,
     .body_max_bytes = SMALL,
     .on_request = on_worker},
    {.path = "/stream", .methods = HTTP_GET, .on_request = on_stream},
    {.path = "/fetch", .methods = HTTP_GET, .on_request = on_fetch},
    {.path = "/inspect",
     .methods = HTTP_GET | HTTP_POST | HTTP_OPTIONS | HTTP_OTHER,
     .body_max_bytes = SMALL,
     .on_request = on_inspect},
    {.path = "/both", .methods = HTTP_GET, .on_request = on_hello, .ctx = "get"},
    {.path = "/both", .methods = HTTP_POST, .body_max_bytes = 8, .on_request = on_echo},
    {.path = "/error", .methods = HTTP_GET, .on_request = on_error},
    {.path = "/api/error", .methods = HTTP_GET, .shape = HTTP_SHAPE_API, .on_request = on_error},
    {.path = "/text/error", .methods = HTTP_GET, .shape = HTTP_SHAPE_TEXT, .on_request = on_error},
    {.path = "/overloaded", .methods = HTTP_GET, .on_request = on_overloaded},
    {.path = "/empty", .methods = HTTP_GET, .on_request = on_empty},
    {.path = "/open",
     .methods = HTTP_GET,
     .auth = HTTP_AUTH_OPEN,
     .on_request = on_hello,
     .ctx = "open"},
    {.path = "/token", .methods = HTTP_GET, .on_request = on_hello, .ctx = "token"},
    {.path = "/local",
     .methods = HTTP_GET,
     .auth = HTTP_AUTH_LOCAL,
     .on_request = on_hello,
     .ctx = "local"},
    {.path = "/", .methods = HTTP_GET, .on_request = on_hello, .ctx = "root"},
    {.path = "/smuggled",
     .methods = HTTP_GET | HTTP_POST,
     .auth = HTTP_AUTH_OPEN,
     .body_max_bytes = SMALL,
     .on_request = on_smuggled},
    {.path = "/stats", .methods = HTTP_GET, .auth = HTTP_AUTH_OPEN, .on_request = on_stats},
    {.path = "/stop", .methods = HTTP_POST, .on_request = on_stop},
};

static bool set_limit(struct http_limits *l, const char *name, unsigned value)
{
    const struct {
        const char *name;
        unsigned *at;
    } table[] = {
        {"connections_max", &l->connections_max},   {"head_bytes_max", &l->head_bytes_max},
        {"target_bytes_max", &l->target_bytes_max}, {"fields_max", &l->fields_max},
        {"pipeline_max", &l->pipeline_max},         {"admission_wait_ms", &l->admission_wait_ms},
        {"head_timeout_ms", &l->head_timeout_ms},   {"idle_timeout_ms", &l->idle_timeout_ms},
        {"body_stall_ms", &l->body_stall_ms},       {"body_rate_min", &l->body_rate_min},
        {"write_stall_ms", &l->write_stall_ms},     {"grace_ms", &l->grace_ms},
        {"linger_bytes_max", &l->linger_bytes_max}, {"workers", &l->workers},
        {"work_queue_max", &l->work_queue_max},
    };

    if (strcmp(name, "body_budget_bytes") == 0) {
        l->body_budget_bytes = value;
        return true;
    }
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) == 0) {
            *table[i].at = value;
            return true;
        }
    }
    return false;
}

static int listen_all(int argc, char **argv, struct err *e)
{
    for (int i = 1; i + 1 < argc; i++) {
        int got = 0;

        if (strcmp(argv[i], "--tcp") == 0) {
            unsigned port;

            got = http_listen_tcp(server, argv[i + 1], &port, e);
            if (got == 0) {
                printf("port %u\n", port);
            }
        } else if (strcmp(argv[i], "--unix") == 0) {
            got = http_listen_unix(server, argv[i + 1], e);
        }
        if (got != 0) {
            return got;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0],
                                 .hooks = {.turn = on_turn},
                                 .handle_signals = true};
    struct err e = {0};
    int result;

    for (int i = 1; i < argc; i++) {
        char *equals = strchr(argv[i], '=');

        if (strcmp(argv[i], "--token") == 0 && i + 1 < argc) {
            config.token = slice_cstr(argv[i + 1]);
        } else if (strncmp(argv[i], "--", 2) == 0 && equals != NULL) {
            *equals = '\0';
            if (!set_limit(&config.limits, argv[i] + 2, (unsigned)strtoul(equals + 1, NULL, 10))) {
                fprintf(stderr, "no limit is called %s\n", argv[i] + 2);
                return 2;
            }
        }
    }
    server = http_new(&config, &e);
    result = server == NULL ? e.code : listen_all(argc, argv, &e);
    if (result == 0) {
        printf("ready\n");
        fflush(stdout);
        result = http_run(server, &e);
    }
    if (server != NULL) {
        http_free(server);
    }
    if (result != 0) {
        fprintf(stderr, "%s: %s\n", err_name(result), e.text);
        return 1;
    }
    ensure(metric_get(METRIC_HTTP_BODY_BYTES) == 0);
    ensure(metric_get(METRIC_HTTP_CONNECTIONS) == 0);
    ensure(sources_opened == sources_closed);
    printf("bye\n");
    return 0;
}
