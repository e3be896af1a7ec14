/* peer_kit: a far side that misbehaves on demand, for the tests of net and of the sinks.
 *
 * One thread serves one connection at a time, on a loopback port or a Unix socket. A script (the
 * `answer` function) sees each request, whole, and writes what it likes: it may cut, hang or lie.
 * `cut_at` may end the connection in the middle of a request's body. Include once. */
#ifndef TESTS_UNIT_NET_PEER_KIT_H
#define TESTS_UNIT_NET_PEER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"

struct peer_request {
    unsigned index; /* of all requests of this peer, from 0 */
    unsigned connection;
    struct slice head; /* request line and headers, NUL behind */
    struct slice body;
};

struct peer {
    int listener;
    unsigned port;
    char url[64];
    char path[108]; /* Unix socket, or "" */
    pthread_t thread;
    pthread_mutex_t lock; /* held while the script runs */
    atomic_bool stop;
    atomic_uint requests, connections;
    /* Writes the answer to fd; false ends the connection. */
    bool (*answer)(void *ctx, const struct peer_request *req, int fd);
    /* How many bytes of this request's body are read before the connection is cut; SIZE_MAX: all.
     * May be NULL. */
    size_t (*cut_at)(void *ctx, unsigned index, size_t body_len);
    void *ctx;
};

static inline void peer_write(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n != 0) {
        ssize_t w = send(fd, text, n, MSG_NOSIGNAL);
        if (w <= 0) {
            return;
        }
        text += w;
        n -= (size_t)w;
    }
}

/* A plain answer with a right length. head_lines end in \r\n each. */
static inline void peer_answer(int fd, unsigned status, const char *head_lines, const char *body)
{
    char head[2048];
    int n = snprintf(head, sizeof head, "HTTP/1.1 %u X\r\n%sContent-Length: %zu\r\n\r\n", status,
                     head_lines, strlen(body));
    assert_true(n > 0);
    assert_true((size_t)n < sizeof head);
    peer_write(fd, head);
    peer_write(fd, body);
}

/* Hangs until the client goes or the peer is stopped. */
static inline void peer_hang(struct peer *p, int fd)
{
    char c;
    while (!atomic_load(&p->stop)) {
        struct pollfd pf = {.fd = fd, .events = POLLIN};
        if (poll(&pf, 1, 10) > 0 && recv(fd, &c, 1, 0) <= 0) {
            return;
        }
    }
}

static inline bool peer_fill(struct peer *p, int fd, struct buf *in)
{
    struct pollfd pf = {.fd = fd, .events = POLLIN};
    while (!atomic_load(&p->stop)) {
        if (poll(&pf, 1, 10) > 0) {
            if (!buf_reserve(in, 65536)) {
                return false;
            }
            ssize_t n = recv(fd, in->ptr + in->len, 65536, 0);
            if (n <= 0) {
                return false;
            }
            in->len += (size_t)n;
            return true;
        }
    }
    return false;
}

static inline size_t peer_length(const char *head)
{
    const char *at = strcasestr(head, "\r\ncontent-length:");
    return at == NULL ? 0 : (size_t)strtoull(at + 17, NULL, 10);
}

/* One request of a connection; false: the connection is over. */
static inline bool peer_one(struct peer *p, int fd, struct buf *in)
{
    char *end = NULL;
    while (end == NULL) {
        end = in->len == 0 ? NULL : memmem(in->ptr, in->len, "\r\n\r\n", 4);
        if (end == NULL && !peer_fill(p, fd, in)) {
            return false;
        }
    }
    size_t head_len = (size_t)(end - in->ptr) + 2;
    char *head = calloc(1, head_len + 1);
    assert_non_null(head);
    memcpy(head, in->ptr, head_len);
    size_t body_len = peer_length(head);
    unsigned index = atomic_fetch_add(&p->requests, 1);
    assert_int_equal(pthread_mutex_lock(&p->lock), 0);
    size_t cut = p->cut_at == NULL ? SIZE_MAX : p->cut_at(p->ctx, index, body_len);
    assert_int_equal(pthread_mutex_unlock(&p->lock), 0);
    size_t want = head_len + 2 + (cut < body_len ? cut : body_len);
    bool ok = true;
    while (ok && in->len < want) {
        ok = peer_fill(p, fd, in);
    }
    if (ok && cut <= body_len) {
        ok = false;
    }
    if (ok) {
        struct peer_request req = {.index = index,
                                   .connection = atomic_load(&p->connections),
                                   .head = slice_of(head, head_len),
                                   .body = slice_of(in->ptr + head_len + 2, body_len)};
        assert_int_equal(pthread_mutex_lock(&p->lock), 0);
        ok = p->answer(p->ctx, &req, fd);
        assert_int_equal(pthread_mutex_unlock(&p->lock), 0);
        memmove(in->ptr, in->ptr + want, in->len - want);
        in->len -= want;
    }
    free(head);
    return ok;
}

static inline void *peer_main(void *arg)
{
    struct peer *p = arg;
    while (!atomic_load(&p->stop)) {
        struct pollfd pf = {.fd = p->listener, .events = POLLIN};
        if (poll(&pf, 1, 10) <= 0) {
            continue;
        }
        int fd = accept(p->listener, NULL, NULL);
        struct buf in = {0};
        if (fd < 0) {
            continue;
        }
        atomic_fetch_add(&p->connections, 1);
        while (peer_one(p, fd, &in)) {
        }
        buf_free(&in);
        close(fd);
    }
    return NULL;
}

static inline void peer_start(struct peer *p)
{
    if (p->path[0] != '\0') {
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        memcpy(un.sun_path, p->path, sizeof un.sun_path);
        p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(p->listener, (struct sockaddr *)&un, sizeof un), 0);
    } else {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof in;
        int on = 1;
        p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        in.sin_port = htons((uint16_t)p->port); /* 0: a free one; a port again: after peer_stop */
        assert_int_equal(bind(p->listener, (struct sockaddr *)&in, len), 0);
        assert_int_equal(getsockname(p->listener, (struct sockaddr *)&in, &len), 0);
        p->port = ntohs(in.sin_port);
        (void)snprintf(p->url, sizeof p->url, "http://127.0.0.1:%u", p->port);
    }
    assert_int_equal(pthread_mutex_init(&p->lock, NULL), 0);
    atomic_store(&p->stop, false);
    assert_int_equal(listen(p->listener, 16), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

/* What the test wrote before is seen by the script, what the script wrote is seen by the test. */
static inline void peer_sync(struct peer *p)
{
    assert_int_equal(pthread_mutex_lock(&p->lock), 0);
    assert_int_equal(pthread_mutex_unlock(&p->lock), 0);
}

static inline void peer_stop(struct peer *p)
{
    atomic_store(&p->stop, true);
    assert_int_equal(pthread_join(p->thread, NULL), 0);
    assert_int_equal(pthread_mutex_destroy(&p->lock), 0);
    close(p->listener);
    if (p->path[0] != '\0') {
        (void)unlink(p->path);
    }
}

#endif
