/* raw_kit: a far side whose script has the connection itself: it may answer before it has read,
 * close without an answer, or reset. Each connection has a thread of its own. Include once. */
#ifndef TESTS_UNIT_NET_RAW_KIT_H
#define TESTS_UNIT_NET_RAW_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"

#define RAW_CONNECTIONS_MAX 256

struct raw;
struct raw_connection {
    struct raw *raw;
    unsigned index; /* of the connection, from 0 */
    int fd;
    pthread_t thread;
    struct buf in; /* read, and not yet taken */
};

struct raw {
    int listener;
    unsigned port;
    char url[64];
    pthread_t thread;
    atomic_bool stop;
    atomic_uint connections, ended;
    struct raw_connection connection[RAW_CONNECTIONS_MAX];
    void (*script)(void *ctx, struct raw_connection *c);
    void *ctx;
};

static inline void raw_write(struct raw_connection *c, const char *text)
{
    size_t n = strlen(text);
    while (n != 0) {
        ssize_t w = send(c->fd, text, n, MSG_NOSIGNAL);
        if (w <= 0) {
            return;
        }
        text += w;
        n -= (size_t)w;
    }
}

/* More bytes into c->in; false: the other side has gone, or the test ends. */
static inline bool raw_fill(struct raw_connection *c)
{
    struct pollfd pf = {.fd = c->fd, .events = POLLIN};
    while (!atomic_load(&c->raw->stop)) {
        if (poll(&pf, 1, 10) > 0) {
            ssize_t n =
                buf_reserve(&c->in, 65536) ? recv(c->fd, c->in.ptr + c->in.len, 65536, 0) : -1;
            if (n <= 0) {
                return false;
            }
            c->in.len += (size_t)n;
            return true;
        }
    }
    return false;
}

/* The request's head as a text, to be freed; NULL: none came. */
static inline char *raw_head(struct raw_connection *c)
{
    char *end = NULL;
    while (end == NULL) {
        end = c->in.len == 0 ? NULL : memmem(c->in.ptr, c->in.len, "\r\n\r\n", 4);
        if (end == NULL && !raw_fill(c)) {
            return NULL;
        }
    }
    size_t n = (size_t)(end - c->in.ptr) + 2;
    char *head = strndup(c->in.ptr, n);
    assert_non_null(head);
    memmove(c->in.ptr, c->in.ptr + n + 2, c->in.len - n - 2);
    c->in.len -= n + 2;
    return head;
}

/* Reads n bytes of a body and gives each piece away; false: fewer came. */
static inline bool raw_body(struct raw_connection *c, uint64_t n,
                            void (*take)(void *ctx, const void *p, size_t n), void *ctx)
{
    while (n > 0) {
        if (c->in.len == 0 && !raw_fill(c)) {
            return false;
        }
        size_t part = c->in.len < n ? c->in.len : (size_t)n;
        if (take != NULL) {
            take(ctx, c->in.ptr, part);
        }
        memmove(c->in.ptr, c->in.ptr + part, c->in.len - part);
        c->in.len -= part;
        n -= part;
    }
    return true;
}

static inline uint64_t raw_length(const char *head)
{
    const char *at = strcasestr(head, "\r\ncontent-length:");
    return at == NULL ? 0 : strtoull(at + 17, NULL, 10);
}

/* Hangs until the client goes or the test ends. */
static inline void raw_hang(struct raw_connection *c)
{
    while (raw_fill(c)) {
        c->in.len = 0;
    }
}

/* The connection ends with a reset instead of an end. */
static inline void raw_reset(struct raw_connection *c)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

static inline void *raw_serve(void *arg)
{
    struct raw_connection *c = arg;
    c->raw->script(c->raw->ctx, c);
    close(c->fd);
    buf_free(&c->in);
    atomic_fetch_add(&c->raw->ended, 1);
    return NULL;
}

static inline void *raw_main(void *arg)
{
    struct raw *r = arg;
    while (!atomic_load(&r->stop)) {
        struct pollfd pf = {.fd = r->listener, .events = POLLIN};
        if (poll(&pf, 1, 10) <= 0) {
            continue;
        }
        int fd = accept(r->listener, NULL, NULL);
        unsigned i = atomic_load(&r->connections);
        if (fd < 0) {
            continue;
        }
        assert_true(i < RAW_CONNECTIONS_MAX);
        int on = 1; /* a reset must not overtake an answer that waits for an ACK */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        r->connection[i] = (struct raw_connection){.raw = r, .index = i, .fd = fd};
        assert_int_equal(
            pthread_create(&r->connection[i].thread, NULL, raw_serve, &r->connection[i]), 0);
        atomic_store(&r->connections, i + 1);
    }
    return NULL;
}

static inline void raw_start(struct raw *r)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int small = 65536; /* what is not read does not vanish into buffers */
    r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(r->listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(bind(r->listener, (struct sockaddr *)&in, len), 0);
    assert_int_equal(getsockname(r->listener, (struct sockaddr *)&in, &len), 0);
    r->port = ntohs(in.sin_port);
    (void)snprintf(r->url, sizeof r->url, "http://127.0.0.1:%u", r->port);
    atomic_store(&r->stop, false);
    atomic_store(&r->connections, 0);
    atomic_store(&r->ended, 0);
    assert_int_equal(listen(r->listener, 64), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, raw_main, r), 0);
}

/* Waits until all connections that were accepted have ended. */
static inline void raw_settle(struct raw *r)
{
    while (atomic_load(&r->ended) < atomic_load(&r->connections)) {
        usleep(1000);
    }
}

static inline void raw_stop(struct raw *r)
{
    atomic_store(&r->stop, true);
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    for (unsigned i = 0; i < atomic_load(&r->connections); i++) {
        assert_int_equal(pthread_join(r->connection[i].thread, NULL), 0);
    }
    close(r->listener);
}

#endif
