/* thread_kit: a server with real sockets, its loop in a thread, clients that block, and work on
 * threads of its own that the test can hold and look at. For the tests of http_thread.
 *
 * Nothing here sleeps to be right: a test waits for a counter to reach a value, at most a minute.
 * Everything is static: a test includes this once and uses what it needs. */
#ifndef TESTS_UNIT_HTTP_THREAD_KIT_H
#define TESTS_UNIT_HTTP_THREAD_KIT_H

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/metrics.h"
#include "http/http.h"
#include "os/os.h"

#define H             "Host: localhost\r\n"
#define WAIT_MS       60000u
#define JOBS_MAX      16u
#define JOB_BYTES_MAX (8u << 20)

/* ---- counters that other threads wait for ---- */

static pthread_mutex_t kit_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t kit_moved = PTHREAD_COND_INITIALIZER;

static inline void add(unsigned *counter)
{
    (void)pthread_mutex_lock(&kit_lock);
    (*counter)++;
    (void)pthread_cond_broadcast(&kit_moved);
    (void)pthread_mutex_unlock(&kit_lock);
}

/* False after a minute. */
static inline bool reaches(const unsigned *counter, unsigned value)
{
    struct timespec until;
    bool there;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_MS / 1000;
    (void)pthread_mutex_lock(&kit_lock);
    while (*counter < value && pthread_cond_timedwait(&kit_moved, &kit_lock, &until) == 0) {
    }
    there = *counter >= value;
    (void)pthread_mutex_unlock(&kit_lock);
    return there;
}

static inline unsigned value_of(const unsigned *counter)
{
    unsigned value;

    (void)pthread_mutex_lock(&kit_lock);
    value = *counter;
    (void)pthread_mutex_unlock(&kit_lock);
    return value;
}

/* ---- work ---- */

/* How the next request's work reads, set by the test beforehand. */
static struct plan {
    size_t cap;     /* bytes a read asks for; 0: 64 KiB */
    size_t at_most; /* bytes read in all; 0: to the end */
    bool gated;     /* waits for `gate` before it reads */
    bool gated_end; /* and before it is over */
    bool no_read;
} plan;

struct job {
    struct plan plan;
    struct http_body *body;
    struct buf got;
    uint64_t left_first;
    unsigned long long sent_first; /* bytes_sent when it began */
    uint64_t left_last;
    int64_t result; /* of the last read */
    int64_t again;  /* of one more, where that was an error or the end */
    bool used;
};

static struct job jobs[JOBS_MAX]; /* of one server, in order */
static atomic_ullong bytes_sent;  /* by the server, where the test counts them */
static unsigned jobs_begun;
static unsigned job_reads; /* reads that gave bytes, of all of them */
static unsigned jobs_read; /* have read what they will */
static unsigned jobs_over; /* their work */
static unsigned jobs_done;
static unsigned gate;    /* gated work goes on when this is 1 */
static unsigned refused; /* times http_thread said no */
static unsigned orphans; /* done without a client */
static struct http_request *held;
static unsigned holding;
static struct http_server *server;

static inline void job_work(void *ctx, struct http_body *body)
{
    struct job *j = ctx;
    size_t cap = j->plan.cap != 0 ? j->plan.cap : 65536;
    char *p = malloc(cap);

    j->body = body;
    j->left_first = http_body_left(body);
    j->sent_first = atomic_load(&bytes_sent);
    add(&jobs_begun);
    if (j->plan.gated) {
        (void)reaches(&gate, 1);
    }
    while (!j->plan.no_read && (j->plan.at_most == 0 || j->got.len < j->plan.at_most)) {
        size_t left = j->plan.at_most != 0 ? j->plan.at_most - j->got.len : cap;

        j->result = http_body_read(body, p, left < cap ? left : cap);
        if (j->result <= 0) {
            j->again = http_body_read(body, p, cap);
            break;
        }
        buf_put(&j->got, p, (size_t)j->result);
        add(&job_reads);
    }
    j->left_last = http_body_left(body);
    add(&jobs_read);
    if (j->plan.gated_end) {
        (void)reaches(&gate, 1);
        j->again = http_body_read(body, p, cap);
    }
    free(p);
    add(&jobs_over);
}

static inline void job_done(void *ctx, struct http_request *req)
{
    struct job *j = ctx;
    bool tus = slice_starts(http_path(req), SLICE("/files"));

    add(&jobs_done);
    if (j->result < 0 && tus) {
        http_answer_error(req, (int)j->result, "It did not work.", (struct slice){0});
    } else if (j->result < 0) {
        http_answer(req, 200, "text/plain", slice_cstr(err_name((int)j->result)));
    } else {
        http_answer(req, 200, "text/plain", buf_slice(&j->got));
    }
}

static inline void on_body(void *ctx, struct http_request *req)
{
    struct job *j = jobs;

    (void)ctx;
    while (j->used) {
        j++;
    }
    *j = (struct job){.plan = plan, .used = true};
    buf_init(&j->got, JOB_BYTES_MAX);
    if (!http_thread(req, job_work, job_done, j)) {
        j->used = false;
        http_answer_error(req, ERR_OVERLOADED, "No thread.", (struct slice){0});
        add(&refused);
    }
}

static inline void no_work(void *ctx)
{
    (void)ctx;
}

static inline void on_later(void *ctx, struct http_request *req)
{
    assert_true(http_work(req, no_work, on_body, ctx));
}

static inline void on_refuse(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer_error(req, ERR_FORBIDDEN, "Not this.", (struct slice){0});
}

static inline void on_hello(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, "text/plain", SLICE("hello"));
}

/* Answered by let_go. */
static inline void on_hold(void *ctx, struct http_request *req)
{
    (void)ctx;
    held = req;
    add(&holding);
}

static inline void let_go(void *ctx)
{
    (void)ctx;
    http_answer(held, 200, "text/plain", SLICE("held"));
}

static inline void on_large(void *ctx, struct http_request *req)
{
    struct buf b = {0};

    (void)ctx;
    for (unsigned i = 0; i < 1u << 20; i++) {
        buf_put(&b, "0123456789abcdef", 16);
    }
    http_answer(req, 200, "text/plain", buf_slice(&b));
    buf_free(&b);
}

#define ANY (HTTP_GET | HTTP_POST | HTTP_PUT)

static const struct http_route routes[] = {
    {.path = "/put", .methods = ANY, .on_request = on_body, .takes_body = true},
    {.path = "/files",
     .methods = ANY,
     .auth = HTTP_AUTH_OPEN,
     .shape = HTTP_SHAPE_TUS,
     .cors = true,
     .on_request = on_body,
     .takes_body = true},
    {.path = "/read", .methods = ANY, .body_max_bytes = 64, .on_request = on_body},
    {.path = "/later", .methods = ANY, .on_request = on_later, .takes_body = true},
    {.path = "/refuse", .methods = ANY, .on_request = on_refuse, .takes_body = true},
    {.path = "/head",
     .methods = ANY,
     .on_head = on_refuse,
     .on_request = on_body,
     .takes_body = true},
    {.path = "/hold", .methods = ANY, .on_request = on_hold, .takes_body = true},
    {.path = "/large", .methods = ANY, .on_request = on_large},
    {.path = "/hello", .methods = ANY, .on_request = on_hello},
};

/* ---- the server ---- */

static inline int count_one(void *ctx, const char *name)
{
    (void)name;
    (*(unsigned *)ctx)++;
    return 0;
}

static inline unsigned open_files(void)
{
    unsigned n = 0;

    assert_int_equal(os_real.list("/proc/self/fd", count_one, &n), 0);
    return n;
}

static unsigned files_before;

static char socket_path[64];
static unsigned port;
static bool on_unix; /* what connect_to uses */
static pthread_t loop;
static int run_result;

static inline struct http_config config_of_kit(void)
{
    struct http_config config = {.limits = http_limits_default,
                                 .routes = routes,
                                 .route_count = sizeof routes / sizeof routes[0]};

    config.limits.workers = 1;
    config.limits.grace_ms = WAIT_MS;
    config.limits.admission_wait_ms = 20;
    config.limits.body_budget_bytes = 1; /* bodies of threads take none */
    return config;
}

static inline void *loop_main(void *ctx)
{
    (void)ctx;
    run_result = http_run(server, NULL);
    return NULL;
}

static inline void start_server(const struct http_config *config)
{
    struct err e = {0};

    plan = (struct plan){0};
    memset(jobs, 0, sizeof jobs);
    jobs_begun = job_reads = jobs_read = jobs_over = jobs_done = gate = refused = orphans =
        holding = 0;
    held = NULL;
    files_before = open_files();
    server = http_new(config, &e);
    assert_non_null(server);
    (void)snprintf(socket_path, sizeof socket_path, "/tmp/test_thread.%d", (int)getpid());
    assert_int_equal(http_listen_unix(server, socket_path, &e), 0);
    assert_int_equal(http_listen_tcp(server, "127.0.0.1:0", &port, &e), 0);
    assert_int_equal(pthread_create(&loop, NULL, loop_main, NULL), 0);
}

/* The loop has ended; what is left is http_free's, and then nothing must be. */
static inline void join_server(void)
{
    assert_int_equal(pthread_join(loop, NULL), 0);
}

static inline void check_server(void)
{
    server = NULL;
    assert_int_equal(open_files(), files_before); /* also the clients' are closed by now */
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        assert_false(jobs[i].got.failed);
        buf_free(&jobs[i].got);
    }
    assert_int_equal(value_of(&jobs_over), value_of(&jobs_begun));
    assert_int_equal(value_of(&jobs_done), value_of(&jobs_begun));
    assert_int_equal(metric_get(METRIC_HTTP_CONNECTIONS), 0);
    assert_int_equal(metric_get(METRIC_HTTP_BODY_BYTES), 0);
    assert_int_equal(metric_get(METRIC_HTTP_THREADS), 0);
}

static inline void free_server(void)
{
    http_free(server);
    check_server();
}

static inline void stop_server(void)
{
    http_stop(server);
    join_server();
    assert_int_equal(run_result, 0);
    free_server();
}

/* ---- clients ---- */

static inline int connect_to(void)
{
    struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int fd = socket(on_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int got;

    assert_true(fd >= 0);
    tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    memcpy(local.sun_path, socket_path, sizeof socket_path);
    got = on_unix ? connect(fd, (const struct sockaddr *)&local, sizeof local)
                  : connect(fd, (const struct sockaddr *)&tcp, sizeof tcp);
    assert_int_equal(got, 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static inline void put(int fd, const void *p, size_t n)
{
    const char *at = p;

    while (n != 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        assert_true(sent > 0);
        at += sent;
        n -= (size_t)sent;
    }
}

static inline void put_text(int fd, const char *text)
{
    put(fd, text, strlen(text));
}

/* Receives one answer, head and body by Content-Length, into *b. Its status; 0 at the end of the
 * connection. A string in b->ptr. */
static inline unsigned take_answer(int fd, struct buf *b)
{
    const char *end = NULL;
    const char *length;
    size_t whole;

    buf_free(b);
    while (end == NULL) {
        char c; /* one at a time: what is behind the answer stays in the kernel */
        ssize_t n = recv(fd, &c, 1, 0);

        assert_true(n >= 0 || errno == ECONNRESET || errno == EPIPE);
        if (n <= 0) {
            assert_int_equal(b->len, 0);
            return 0;
        }
        buf_put_char(b, c);
        end = b->len >= 4 && memcmp(b->ptr + b->len - 4, "\r\n\r\n", 4) == 0 ? b->ptr : NULL;
    }
    length = memmem(b->ptr, b->len, "Content-Length: ", 16);
    whole = b->len + (length != NULL ? strtoul(length + 16, NULL, 10) : 0);
    while (b->len < whole) {
        ssize_t n;

        assert_true(buf_reserve(b, whole - b->len + 1));
        n = recv(fd, b->ptr + b->len, whole - b->len, 0);
        assert_true(n > 0);
        b->len += (size_t)n;
    }
    buf_put_char(b, '\0');
    b->len--;
    return (unsigned)strtoul(b->ptr + 9, NULL, 10);
}

static inline struct slice body_of(const struct buf *b)
{
    const char *end = memmem(b->ptr, b->len, "\r\n\r\n", 4);

    assert_non_null(end);
    return slice_from(buf_slice(b), (size_t)(end + 4 - b->ptr));
}

static inline void expect_answer(int fd, unsigned status, struct slice body)
{
    struct buf b = {0};

    assert_int_equal(take_answer(fd, &b), status);
    if (!slice_eq(body_of(&b), body)) {
        fail_msg("%zu bytes are not the %zu expected: %.200s", body_of(&b).len, body.len, b.ptr);
    }
    buf_free(&b);
}

static inline void expect_end(int fd)
{
    struct buf b = {0};

    assert_int_equal(take_answer(fd, &b), 0);
    assert_int_equal(close(fd), 0);
}

/* The answer is the last of its connection. */
static inline void expect_last(int fd, unsigned status, struct slice body)
{
    struct buf b = {0};

    assert_int_equal(take_answer(fd, &b), status);
    assert_non_null(strstr(b.ptr, "Connection: close\r\n"));
    if (body.ptr != NULL && !slice_eq(body_of(&b), body)) {
        fail_msg("not expected: %.200s", b.ptr);
    }
    buf_free(&b);
    expect_end(fd);
}

#endif
