/* manage_kit: a real server for the tests of the management API: the HTTP front with manage's
 * routes, a journal and a store in a temporary directory, on a Unix socket and a loopback port, in
 * a thread of its own; and a client. The sink's part is played here: what it would say is set by
 * the test.
 *
 * Everything is static; a test includes this once. */
#ifndef TESTS_UNIT_DOOR_MANAGE_KIT_H
#define TESTS_UNIT_DOOR_MANAGE_KIT_H

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <ftw.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/manage/manage.h"
#include "os/os.h"
#include "store/control.h"
#include "store/queue.h"
#include "json/read.h"
#include "json/tolerant.h"

struct kit {
    char dir[64];
    char socket[100];
    unsigned port;
    struct journal *journal;
    struct store *store;
    struct manage manage;
    struct http_route routes[MANAGE_ROUTES];
    struct http_server *server;
    pthread_t thread;
    int result; /* of http_run */
};

/* ---- the sink, as the test wants it ---- */
static struct sink_status kit_sink;
static char kit_project_error[200];
#define KIT_SINK ((struct sink *)(uintptr_t)&kit_sink)

void sink_get_status(struct sink *k, struct sink_status *out)
{
    ensure(k == KIT_SINK);
    *out = kit_sink;
}

void sink_pause(struct sink *k, bool paused)
{
    ensure(k == KIT_SINK);
    kit_sink.paused = paused;
}

void sink_project_error(struct sink *k, int64_t project, char out[200])
{
    ensure(k == KIT_SINK);
    ensure(project > 0);
    memcpy(out, kit_project_error, sizeof kit_project_error);
}

/* ---- the server ---- */

static void kit_turn(void *ctx)
{
    struct kit *k = ctx;

    if (store_turn(k->store)) {
        http_again(k->server);
    }
}

static void kit_tick(void *ctx)
{
    struct kit *k = ctx;

    store_tick(k->store);
}

static void kit_stopping(void *ctx)
{
    struct kit *k = ctx;

    manage_stopping(&k->manage);
}

static void *kit_main(void *ctx)
{
    struct kit *k = ctx;
    struct err e = {0};

    k->result = http_run(k->server, &e);
    manage_end(&k->manage);
    return NULL;
}

static void kit_start(struct kit *k)
{
    const struct journal_options jo = {0};
    struct store_options so = store_options_default;
    struct err e = {0};

    *k = (struct kit){.dir = "/tmp/tallyman-manage-XXXXXX"};
    log_set_level(LOG_ERROR);
    kit_sink = (struct sink_status){0};
    kit_project_error[0] = '\0';
    assert_non_null(mkdtemp(k->dir));
    (void)snprintf(k->socket, sizeof k->socket, "%s/tallyman.sock", k->dir);
    if (journal_open(k->dir, &jo, &k->journal, &e) != 0) {
        fail_msg("journal: %s", e.text);
    }
    so.threads = false;
    if (store_open(k->dir, &so, &k->store, &e) != 0) {
        fail_msg("store: %s", e.text);
    }
    k->manage = (struct manage){.journal = k->journal,
                                .version = "1.2.3",
                                .revision = "abc",
                                .started_ns = os_clock_mono_ns(),
                                .store = k->store,
                                .data = k->dir,
                                .query = {.time_ms = 2000, .rows_max = 5, .bytes_max = 4096}};
}

static void kit_run(struct kit *k)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = k->routes,
                                 .route_count = MANAGE_ROUTES,
                                 .hooks = {kit_turn, kit_tick, kit_stopping, k}};
    struct err e = {0};

    manage_routes(&k->manage, k->routes);
    config.limits.grace_ms = 500;
    k->server = http_new(&config, &e);
    assert_non_null(k->server);
    assert_int_equal(http_listen_unix(k->server, k->socket, &e), 0);
    assert_int_equal(http_listen_tcp(k->server, "127.0.0.1:0", &k->port, &e), 0);
    assert_int_equal(pthread_create(&k->thread, NULL, kit_main, k), 0);
}

static int kit_remove(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static void kit_stop(struct kit *k)
{
    struct err e = {0};

    http_stop(k->server);
    assert_int_equal(pthread_join(k->thread, NULL), 0);
    assert_int_equal(k->result, 0);
    http_free(k->server);
    assert_int_equal(store_close(k->store, &e), 0);
    assert_int_equal(journal_close(k->journal, &e), 0);
    assert_int_equal(nftw(k->dir, kit_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* ---- jobs of the test, run by the loop ---- */

struct kit_job {
    struct store_job job;
    struct kit *k;
    int (*fn)(struct store *s, void *ctx, struct err *e);
    void *ctx;
    sem_t done;
};

static int kit_job_run(struct store_job *job, struct store *s, struct err *e)
{
    struct kit_job *j = (struct kit_job *)job;

    return j->fn(s, j->ctx, e);
}

static void kit_job_done(struct store_job *job, int code, const struct err *e)
{
    struct kit_job *j = (struct kit_job *)job;

    (void)e;
    j->job.code = code;
    (void)sem_post(&j->done);
}

static void kit_job_submit(void *ctx)
{
    struct kit_job *j = ctx;

    store_submit(j->k->store, &j->job);
}

/* Runs fn in a transaction of its own and waits; the code that it ended with. */
static inline int kit_do(struct kit *k, int (*fn)(struct store *s, void *ctx, struct err *e),
                         void *ctx)
{
    struct kit_job j = {
        .job = {.run = kit_job_run, .done = kit_job_done}, .k = k, .fn = fn, .ctx = ctx};

    assert_int_equal(sem_init(&j.done, 0, 0), 0);
    assert_true(http_post(k->server, kit_job_submit, &j));
    assert_int_equal(sem_wait(&j.done), 0);
    (void)sem_destroy(&j.done);
    return j.job.code;
}

/* ---- the client ---- */

struct reply {
    unsigned status;
    struct buf text;   /* all of it, and a NUL */
    struct slice body; /* chunks taken apart */
    struct buf whole;
};

static inline void reply_free(struct reply *r)
{
    buf_free(&r->text);
    buf_free(&r->whole);
}

static int kit_connect(const struct kit *k, bool tcp)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)k->port)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", k->socket);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(tcp ? connect(fd, (struct sockaddr *)&in, sizeof in)
                         : connect(fd, (struct sockaddr *)&un, sizeof un),
                     0);
    return fd;
}

static bool kit_may_refuse; /* the server may close a connection that it has no memory for */

/* Sends a request and does not wait. key: "" for the Unix socket, else TCP with that service key
 * ("-": TCP without one). body NULL: none. */
static int kit_send(const struct kit *k, const char *key, const char *line, const char *body)
{
    struct buf b = {0};
    int fd = kit_connect(k, key[0] != '\0');

    buf_printf(&b, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", line);
    if (key[0] != '\0' && key[0] != '-') {
        buf_printf(&b, "Authorization: Bearer %s\r\n", key);
    }
    if (body != NULL) {
        buf_printf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    }
    buf_put_cstr(&b, "\r\n");
    buf_put_cstr(&b, body != NULL ? body : "");
    assert_false(b.failed);
    assert_true(send(fd, b.ptr, b.len, MSG_NOSIGNAL) == (ssize_t)b.len || kit_may_refuse);
    buf_free(&b);
    return fd;
}

static void kit_dechunk(struct reply *r, struct slice rest)
{
    while (rest.len != 0) {
        size_t n = strtoul(rest.ptr, NULL, 16);
        const char *data = memchr(rest.ptr, '\n', rest.len);

        assert_non_null(data);
        if (n == 0) {
            break;
        }
        buf_put(&r->whole, data + 1, n);
        rest = slice_from(rest, (size_t)(data + 1 - rest.ptr) + n + 2);
        assert_true(rest.len != 0); /* or it was cut */
    }
    buf_put_char(&r->whole, '\0');
    r->body = slice_of(r->whole.ptr, r->whole.len - 1);
}

static struct reply kit_receive(int fd)
{
    struct reply r = {0};
    char piece[4096];
    ssize_t n = recv(fd, piece, sizeof piece, 0);
    const char *head_end;

    while (n > 0) {
        buf_put(&r.text, piece, (size_t)n);
        n = recv(fd, piece, sizeof piece, 0);
    }
    assert_int_equal(n, 0);
    (void)close(fd);
    buf_put_char(&r.text, '\0');
    assert_int_equal(sscanf(r.text.ptr, "HTTP/1.1 %u ", &r.status), 1);
    head_end = strstr(r.text.ptr, "\r\n\r\n");
    assert_non_null(head_end);
    r.body = slice_from(slice_cstr(r.text.ptr), (size_t)(head_end + 4 - r.text.ptr));
    if (strstr(r.text.ptr, "Transfer-Encoding: chunked\r\n") != NULL) {
        kit_dechunk(&r, r.body);
    }
    return r;
}

static inline struct reply kit_ask(const struct kit *k, const char *key, const char *line,
                                   const char *body)
{
    return kit_receive(kit_send(k, key, line, body));
}

/* ---- what was answered ---- */

static inline void expect_status(const struct reply *r, unsigned status)
{
    if (r->status != status) {
        fail_msg("%u wanted: %s", status, r->text.ptr);
    }
}

static inline void expect_in(const struct reply *r, const char *text)
{
    bool there = strstr(r->text.ptr, text) != NULL || strstr(r->body.ptr, text) != NULL;

    if (!there) {
        print_error("missing in the answer: %s\n", text);
        fail_msg("%.*s", (int)r->text.len, r->text.ptr);
    }
}

static inline void expect_not_in(const struct reply *r, const char *text)
{
    if (strstr(r->text.ptr, text) != NULL) {
        fail_msg("%s is in: %s", text, r->text.ptr);
    }
}

/* Asks, and holds status and a part of the answer against what is wanted. */
static inline void expect(const struct kit *k, const char *key, const char *line, const char *body,
                          unsigned status, const char *text)
{
    struct reply r = kit_ask(k, key, line, body);

    expect_status(&r, status);
    expect_in(&r, text);
    reply_free(&r);
}

/* The text of a string member of the answer. */
static inline void reply_text(const struct reply *r, const char *name, char *out, size_t size)
{
    struct slice value;
    struct slice inner;

    assert_true(json_member(r->body, slice_cstr(name), &value));
    assert_true(json_string_raw(value, &inner));
    assert_true(inner.len < size);
    memcpy(out, inner.ptr, inner.len);
    out[inner.len] = '\0';
}

/* Makes a project; its capture token. */
static inline void kit_project(const struct kit *k, const char *name, char token[KEY_TEXT_MAX + 1])
{
    char body[200];
    struct reply r;

    (void)snprintf(body, sizeof body, "{\"id\":\"%s\"}", name);
    r = kit_ask(k, "", "POST /api/v1/projects", body);
    expect_status(&r, 201);
    reply_text(&r, "capture_token", token, KEY_TEXT_MAX + 1);
    reply_free(&r);
}

/* Makes a service key; its text and id. scopes as JSON: `"query:read"`. */
static inline void kit_key(const struct kit *k, const char *project, const char *scopes,
                           char text[KEY_TEXT_MAX + 1], char id[24])
{
    char line[128];
    char body[300];
    struct reply r;

    (void)snprintf(line, sizeof line, "POST /api/v1/projects/%s/keys", project);
    (void)snprintf(body, sizeof body, "{\"kind\":\"service\",\"name\":\"test\",\"scopes\":[%s]}",
                   scopes);
    r = kit_ask(k, "", line, body);
    expect_status(&r, 201);
    reply_text(&r, "token", text, KEY_TEXT_MAX + 1);
    reply_text(&r, "id", id, 24);
    reply_free(&r);
}

#endif
