/* capture_kit: what the tests of the capture door share.
 *
 * parse_*: a parser alone, without store and server; the body lives in memory of its exact size.
 * kit_*: the whole door, a real store in a temporary directory and the real HTTP front in a thread
 * of its own, asked over TCP on loopback and over a Unix socket. */
#ifndef TESTS_UNIT_DOOR_CAPTURE_KIT_H
#define TESTS_UNIT_DOOR_CAPTURE_KIT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/metrics.h"
#include "door/capture/internal.h"
#include "store/queue.h"
#include "json/read.h"
#include "json/tolerant.h"

#define NOW_MS INT64_C(1796040000000) /* 2026-11-30T12:00:00Z */

#define OPTIONS                                               \
    ((struct capture_options){.request_bytes_max = 20u << 20, \
                              .decoded_bytes_max = 64u << 20, \
                              .single_bytes_max = 1u << 20,   \
                              .event_bytes_max = 1u << 20,    \
                              .batch_events_max = 50000})

static inline void assert_text(struct slice s, const char *want)
{
    if (!slice_eq(s, slice_cstr(want))) {
        fail_msg("got \"%.*s\", not \"%s\"", (int)s.len, s.ptr, want);
    }
}

static inline void assert_has(struct slice s, const char *part)
{
    if (s.len == 0 || memmem(s.ptr, s.len, part, strlen(part)) == NULL) {
        fail_msg("no \"%s\" in \"%.*s\"", part, (int)s.len, s.ptr);
    }
}

static inline void assert_has_not(struct slice s, const char *part)
{
    if (s.len != 0 && memmem(s.ptr, s.len, part, strlen(part)) != NULL) {
        fail_msg("there is \"%s\" in \"%.*s\"", part, (int)s.len, s.ptr);
    }
}

/* ---- a parser alone ---- */

struct parsed {
    struct capture c;
    struct capture_batch b;
    char *body;
    struct err e;
};

static inline void parse_begin(struct parsed *p, enum capture_dialect dialect, const char *call)
{
    memset(p, 0, sizeof *p);
    p->c.options = OPTIONS;
    p->b.c = &p->c;
    p->b.dialect = dialect;
    p->b.call = slice_cstr(call);
    p->b.received_ms = NOW_MS;
}

static inline int parse_bytes(struct parsed *p, capture_parse_fn *parse, struct slice body)
{
    struct slice json;
    p->body = malloc(body.len + 1);
    assert_non_null(p->body);
    memcpy(p->body + 1, body.ptr, body.len);
    assert_int_equal(json_tolerant_check(slice_of(p->body + 1, body.len), &json, &p->e), 0);
    int r = parse(&p->b, json, &p->e);
    if (r != 0) {
        assert_int_equal(p->e.code, r);
        assert_true(p->e.text[0] != '\0');
    }
    for (size_t i = 0; i < p->b.count; i++) {
        const struct capture_event *ev = &p->b.event[i];
        assert_int_equal(ev->outcome == CAPTURE_STORED, ev->reason == NULL);
    }
    return r;
}

static inline int parse_text(struct parsed *p, capture_parse_fn *parse, const char *body)
{
    return parse_bytes(p, parse, slice_cstr(body));
}

static inline void parse_end(struct parsed *p)
{
    arena_free(&p->b.arena);
    free(p->b.event);
    free(p->body);
    memset(p, 0, sizeof *p);
}

/* ---- the whole door ---- */

#define KIT_ROUTES_MAX 64

struct kit {
    char dir[64];
    char sock[100];
    unsigned port;
    struct store *store;
    struct capture *capture;
    struct http_server *server;
    struct http_route routes[KIT_ROUTES_MAX];
    pthread_t thread;
    unsigned told; /* how often on_committed was called */
    bool hold;     /* the turn hook leaves the store alone */
    /* "demo" with two public keys and two service keys, "other" with one */
    char token[KEY_TEXT_MAX + 1], segment[KEY_TEXT_MAX + 1], other[KEY_TEXT_MAX + 1];
    char writer[KEY_TEXT_MAX + 1], reader[KEY_TEXT_MAX + 1];
    int64_t demo_id, other_id;
    struct buf answer; /* of the last request, whole */
    unsigned status;
    struct slice head, body;
};

struct kit_job {
    struct store_job job;
    struct kit *k;
    int step;
    bool done;
};

static int kit_make(struct store_job *job, struct store *s, struct err *e)
{
    struct kit_job *j = (struct kit_job *)job;
    struct kit *k = j->k;
    int64_t id;
    int r;
    if (j->step == 0) {
        r = control_create_project(s, SLICE("demo"), SLICE("Demo"), NULL, NOW_MS, e);
        return r != 0 ? r : control_create_project(s, SLICE("other"), SLICE(""), NULL, NOW_MS, e);
    }
    r = control_create_key(s, k->demo_id, KEY_SEGMENT, SLICE("shop"), 0, NOW_MS, &id, k->segment,
                           e);
    r = r != 0 ? r
               : control_create_key(s, k->demo_id, KEY_SERVICE, SLICE("billing"),
                                    SCOPE_EVENTS_WRITE, NOW_MS, &id, k->writer, e);
    return r != 0 ? r
                  : control_create_key(s, k->demo_id, KEY_SERVICE, SLICE("looker"),
                                       SCOPE_EVENTS_READ, NOW_MS, &id, k->reader, e);
}

static void kit_made(struct store_job *job, int code, const struct err *e)
{
    struct kit_job *j = (struct kit_job *)job;
    struct err more = {0};
    if (code != 0) {
        fail_msg("the store: %s", e->text);
    }
    assert_int_equal(control_committed(j->k->store, &more), 0);
    j->done = true;
}

static void kit_write(struct kit *k, int step)
{
    struct kit_job j = {.job = {.run = kit_make, .done = kit_made}, .k = k, .step = step};
    store_submit(k->store, &j.job);
    while (store_turn(k->store)) {
    }
    assert_true(j.done);
}

static const struct key *kit_capture_key(struct kit *k, const char *name, int64_t *project)
{
    struct control *c = store_control(k->store);
    const struct project *p = control_project(c, slice_cstr(name));
    assert_non_null(p);
    *project = p->id;
    const struct key *key = control_key_at(c, p->id, 0);
    assert_non_null(key);
    assert_int_equal(key->kind, KEY_CAPTURE);
    return key;
}

static void kit_turn(void *ctx)
{
    struct kit *k = ctx;
    if (!__atomic_load_n(&k->hold, __ATOMIC_RELAXED) && store_turn(k->store)) {
        http_again(k->server);
    }
}

static void kit_told(void *ctx)
{
    struct kit *k = ctx;
    (void)__atomic_add_fetch(&k->told, 1, __ATOMIC_RELAXED);
}

static void *kit_serve(void *ctx)
{
    struct kit *k = ctx;
    struct err e = {0};
    int r = http_run(k->server, &e);
    return r == 0 ? NULL : ctx;
}

/* The door of the next kit gets its store later. */
static bool kit_late;

/* extra: one more route (may be NULL). */
static inline struct kit *kit_new(const struct store_options *so, const struct capture_options *co,
                                  const struct http_limits *limits, const struct http_route *extra)
{
    struct kit *k = calloc(1, sizeof *k);
    struct err e = {0};
    if (k == NULL) {
        fail();
        return NULL;
    }
    (void)snprintf(k->dir, sizeof k->dir, "/tmp/test_capture.XXXXXX");
    assert_non_null(mkdtemp(k->dir));
    assert_int_equal(store_open(k->dir, so, &k->store, &e), 0);
    kit_write(k, 0);
    (void)snprintf(k->token, sizeof k->token, "%s", kit_capture_key(k, "demo", &k->demo_id)->text);
    (void)snprintf(k->other, sizeof k->other, "%s",
                   kit_capture_key(k, "other", &k->other_id)->text);
    kit_write(k, 1);
    k->capture = capture_new(kit_late ? NULL : k->store, co, kit_told, k);
    assert_non_null(k->capture);
    size_t n = capture_route_count();
    assert_true(n < KIT_ROUTES_MAX);
    capture_routes(k->capture, k->routes);
    if (extra != NULL) {
        k->routes[n++] = *extra;
    }
    struct http_config hc = {.limits = limits != NULL ? *limits : http_limits_default,
                             .routes = k->routes,
                             .route_count = n,
                             .hooks = {.turn = kit_turn, .ctx = k}};
    k->server = http_new(&hc, &e);
    assert_non_null(k->server);
    (void)snprintf(k->sock, sizeof k->sock, "%s/sock", k->dir);
    assert_int_equal(http_listen_unix(k->server, k->sock, &e), 0);
    assert_int_equal(http_listen_tcp(k->server, "127.0.0.1:0", &k->port, &e), 0);
    assert_int_equal(pthread_create(&k->thread, NULL, kit_serve, k), 0);
    return k;
}

static inline void kit_free(struct kit *k)
{
    char command[128];
    struct err e = {0};
    void *failed = NULL;
    http_stop(k->server);
    assert_int_equal(pthread_join(k->thread, &failed), 0);
    assert_null(failed);
    while (store_turn(k->store)) {
    }
    http_free(k->server);
    capture_free(k->capture);
    assert_int_equal(store_close(k->store, &e), 0);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", k->dir);
    assert_int_equal(system(command), 0);
    buf_free(&k->answer);
    free(k);
}

static inline int kit_connect(const struct kit *k, bool tcp)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)k->port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
    (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", k->sock);
    int r = tcp ? connect(fd, (struct sockaddr *)&in, sizeof in)
                : connect(fd, (struct sockaddr *)&un, sizeof un);
    assert_int_equal(r, 0);
    return fd;
}

static inline void kit_send(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* an early refusal: the answer tells */
        }
        at += sent;
        n -= (size_t)sent;
    }
}

/* Reads to the end and takes the (one) answer apart. */
static inline unsigned kit_receive(struct kit *k, int fd)
{
    char piece[16384];
    buf_clear(&k->answer);
    for (;;) {
        ssize_t got = recv(fd, piece, sizeof piece, 0);
        if (got <= 0) {
            break;
        }
        buf_put(&k->answer, piece, (size_t)got);
    }
    (void)close(fd);
    buf_put_char(&k->answer, '\0');
    k->answer.len--;
    struct slice all = buf_slice(&k->answer);
    const char *end = memmem(all.ptr, all.len, "\r\n\r\n", 4);
    if (end == NULL || !slice_starts(all, SLICE("HTTP/1.1 "))) {
        fail_msg("no answer: %.*s", (int)all.len, all.ptr);
        return 0;
    }
    k->head = slice_of(all.ptr, (size_t)(end - all.ptr) + 2);
    k->body = slice_from(all, k->head.len + 2);
    k->status = (unsigned)strtoul(all.ptr + 9, NULL, 10);
    return k->status;
}

/* One request on a connection of its own. headers: whole lines. */
static inline unsigned kit_ask(struct kit *k, bool tcp, const char *method, const char *target,
                               const char *headers, struct slice body)
{
    char head[20000];
    int fd = kit_connect(k, tcp);
    int n = snprintf(head, sizeof head,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n%s\r\n",
                     method, target, body.len, headers);
    assert_true(n > 0 && (size_t)n < sizeof head);
    kit_send(fd, head, (size_t)n);
    kit_send(fd, body.ptr, body.len);
    return kit_receive(k, fd);
}

static inline unsigned kit_post(struct kit *k, const char *target, const char *body)
{
    return kit_ask(k, true, "POST", target, "Content-Type: application/json\r\n", slice_cstr(body));
}

/* Text with every %T replaced by the token of "demo". Freed by the caller. */
static inline char *kit_text(const struct kit *k, const char *text)
{
    struct buf b = {0};
    for (const char *at = text; *at != '\0'; at++) {
        if (at[0] == '%' && at[1] == 'T') {
            buf_put_cstr(&b, k->token);
            at++;
        } else {
            buf_put_char(&b, *at);
        }
    }
    buf_put_char(&b, '\0');
    assert_false(b.failed);
    return b.ptr;
}

static inline unsigned kit_post_t(struct kit *k, const char *target, const char *body)
{
    char *text = kit_text(k, body);
    unsigned status = kit_post(k, target, text);
    free(text);
    return status;
}

/* Everything that is queued, in order of ids; queue_rows_free them. */
static inline struct queue_rows kit_rows(struct kit *k)
{
    struct queue_selection sel = {.events_max = 100000, .bytes_soft = 1u << 30};
    struct queue_rows rows = {0};
    struct store_reader *r = NULL;
    struct err e = {0};
    assert_int_equal(store_reader_open(k->dir, &r, &e), 0);
    assert_int_equal(queue_select(r, &sel, &rows, &e), 0);
    store_reader_close(r);
    return rows;
}

static inline size_t kit_queued(struct kit *k)
{
    struct queue_rows rows = kit_rows(k);
    size_t n = rows.count;
    queue_rows_free(&rows);
    return n;
}

struct kit_rejected {
    struct buf text; /* one line each: index door reason text */
    size_t count;
};

static int kit_take_rejected(void *ctx, const struct queue_rejected_row *row)
{
    struct kit_rejected *out = ctx;
    buf_printf(&out->text, "%u %.*s %.*s %.*s\n", row->r.index, (int)row->r.door.len,
               row->r.door.ptr, (int)row->r.reason.len, row->r.reason.ptr, (int)row->r.text.len,
               row->r.text.ptr);
    out->count++;
    return 0;
}

static inline struct kit_rejected kit_rejected(struct kit *k)
{
    struct kit_rejected out = {0};
    struct store_reader *r = NULL;
    struct err e = {0};
    assert_int_equal(store_reader_open(k->dir, &r, &e), 0);
    assert_int_equal(queue_list_rejected(r, k->demo_id, 0, 1000, kit_take_rejected, &out, &e), 0);
    store_reader_close(r);
    return out;
}

#endif
