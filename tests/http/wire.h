/* wire: one client of the HTTP front without a kernel, for the fuzz target and the unit tests.
 *
 * A table of system calls in which there is one listener and one connection. What the client sends
 * is given as bytes and as the sizes in which they arrive; what the server sends is collected.
 * Clocks stand still but for the waits that epoll_wait is asked for. One call can be made to fail.
 * When the server has closed the connection (or would wait for ever), it is asked to stop.
 *
 * Everything is static: a program includes this once. Not thread-safe but for the wake descriptor.
 */
#ifndef TESTS_HTTP_WIRE_H
#define TESTS_HTTP_WIRE_H

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "http/conn.h"
#include "os/os.h"

#define WIRE_EPOLL    1000
#define WIRE_WAKE     1001
#define WIRE_LISTENER 1002
#define WIRE_CONN     1003
#define WIRE_SIGNAL   1004
#define WIRE_FDS      5
#define WIRE_TURNS    200000 /* more than any scenario takes: a loop that spins is a failure */

struct wire {
    const char *in;
    size_t in_len;
    size_t in_at;
    const unsigned char *cuts; /* sizes of pieces (0 counts as 256), used in a circle; NULL: all */
    size_t cut_count;
    size_t cut_at;
    bool ends;       /* the client ends its side behind the last byte */
    size_t send_max; /* bytes a write takes at most; 0: all */
    bool send_full;  /* this write found the socket full, the next one takes something */
    bool stuck_out;  /* the client never reads */
    bool accepted;
    bool closed;
    bool server_ended; /* shutdown(SHUT_WR) was called */
    struct buf out;
    struct http_server *server;
    uint64_t now_ms;
    unsigned turns;
    uint32_t events[WIRE_FDS];
    void *data[WIRE_FDS];
    bool watched[WIRE_FDS];
    unsigned wait_fails_at; /* a turn whose epoll_wait fails; 0: none */
    unsigned calls;         /* that can fail, so far */
    unsigned fail_count;    /* how many calls in a row fail; 0 counts as 1 */
    uint64_t real_ms;       /* the wall clock; 0: some day in 2025 */
    unsigned fail_at;       /* counted from 1; 0: none */
    int fail_with;          /* positive errno */
    bool failed;
    const char *failed_name;
};

static struct wire wire;
static atomic_bool wire_awake;

/* Counts a call that may fail; the negative errno when it must. */
static int wire_fault(const char *name)
{
    unsigned last = wire.fail_at + (wire.fail_count == 0 ? 0 : wire.fail_count - 1);

    wire.calls++;
    if (wire.calls < wire.fail_at || wire.calls > last) {
        return 0;
    }
    if (!wire.failed) {
        wire.failed_name = name;
    }
    wire.failed = true;
    return -wire.fail_with;
}

static uint64_t wire_clock_mono_ns(void)
{
    return wire.now_ms * 1000000;
}

static uint64_t wire_clock_real_ms(void)
{
    return wire.real_ms == 0 ? 1764493200000 : wire.real_ms;
}

static int wire_raise_nofile(uint64_t *limit)
{
    *limit = 65536;
    return wire_fault("raise_nofile");
}

static int wire_epoll_create(void)
{
    int failed = wire_fault("epoll_create");

    return failed != 0 ? failed : WIRE_EPOLL;
}

static int wire_eventfd(void)
{
    int failed = wire_fault("eventfd");

    return failed != 0 ? failed : WIRE_WAKE;
}

static int wire_signalfd(const int *signals, int count)
{
    int failed = wire_fault("signalfd");

    ensure(count == 3); /* SIGINT, SIGTERM, SIGHUP */
    ensure(signals[0] != signals[1]);
    return failed != 0 ? failed : WIRE_SIGNAL;
}

static int wire_socket(int domain, int type, int protocol)
{
    int failed = wire_fault("socket");

    (void)domain;
    (void)type;
    (void)protocol;
    return failed != 0 ? failed : WIRE_LISTENER;
}

static int wire_bind(int fd, const struct sockaddr *a, unsigned len)
{
    (void)fd;
    (void)a;
    (void)len;
    return wire_fault("bind");
}

static int wire_listen(int fd, int backlog)
{
    (void)fd;
    (void)backlog;
    return wire_fault("listen");
}

static int wire_getsockname(int fd, struct sockaddr *a, unsigned *len)
{
    (void)fd;
    memset(a, 0, *len < sizeof(struct sockaddr_in) ? *len : sizeof(struct sockaddr_in));
    a->sa_family = AF_INET;
    return wire_fault("getsockname");
}

static int wire_setsockopt(int fd, int level, int name, const void *v, unsigned len)
{
    (void)fd;
    (void)level;
    (void)name;
    (void)v;
    (void)len;
    return wire_fault("setsockopt");
}

static int wire_accept(int fd)
{
    int failed;

    ensure(fd == WIRE_LISTENER);
    if (wire.accepted) {
        return -EAGAIN;
    }
    failed = wire_fault("accept");
    if (failed != 0) {
        return failed;
    }
    wire.accepted = true;
    return WIRE_CONN;
}

static int wire_close(int fd)
{
    if (fd < WIRE_EPOLL) {
        return os_real.close(fd); /* a door's own file */
    }
    ensure(fd < WIRE_EPOLL + WIRE_FDS);
    ensure(fd != WIRE_CONN || !wire.closed);
    wire.watched[fd - WIRE_EPOLL] = false;
    wire.closed = wire.closed || fd == WIRE_CONN;
    return 0;
}

static int wire_shutdown(int fd, int how)
{
    int failed = wire_fault("shutdown");

    ensure(fd == WIRE_CONN);
    ensure(how == SHUT_WR);
    ensure(!wire.server_ended);
    wire.server_ended = true;
    return failed;
}

static int wire_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
    int failed = wire_fault("epoll_ctl");
    int i = fd - WIRE_EPOLL;

    ensure(ep == WIRE_EPOLL);
    ensure(i > 0);
    ensure(i < WIRE_FDS);
    ensure(op == EPOLL_CTL_ADD || op == EPOLL_CTL_MOD || op == EPOLL_CTL_DEL);
    if (failed != 0) {
        return failed;
    }
    if (op == EPOLL_CTL_DEL) {
        ensure(ev == NULL);
        wire.watched[i] = false;
        return 0;
    }
    ensure(wire.watched[i] == (op == EPOLL_CTL_MOD));
    wire.watched[i] = true;
    wire.events[i] = ev->events;
    wire.data[i] = ev->data.ptr;
    return 0;
}

static bool wire_ready(int i)
{
    bool in = (wire.events[i] & EPOLLIN) != 0;

    if (!wire.watched[i]) {
        return false;
    }
    switch (WIRE_EPOLL + i) {
    case WIRE_WAKE:
        return atomic_load(&wire_awake);
    case WIRE_LISTENER:
        return in && !wire.accepted;
    case WIRE_SIGNAL:
        return false;
    default:
        return (in && (wire.in_at < wire.in_len || wire.ends || wire.server_ended)) ||
               ((wire.events[i] & EPOLLOUT) != 0 && !wire.stuck_out);
    }
}

static int wire_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
    int count = 0;

    ensure(ep == WIRE_EPOLL);
    wire.turns++;
    ensure(wire.turns < WIRE_TURNS);
    if (wire.turns == wire.wait_fails_at) {
        return -EBADF;
    }
    for (int i = 1; i < WIRE_FDS && count < max; i++) {
        if (wire_ready(i)) {
            ev[count] = (struct epoll_event){.events = wire.events[i], .data.ptr = wire.data[i]};
            count++;
        }
    }
    wire.now_ms += wire.turns % 64 == 0 ? 1 : 0; /* a loop that spins does it in time */
    if (count == 0 && wire.server->jobs != 0) {
        struct timespec moment = {.tv_nsec = 100000};

        (void)nanosleep(&moment, NULL); /* a worker is at work; its time does not count */
    } else if (count == 0 && timeout_ms > 0) {
        wire.now_ms += (uint64_t)timeout_ms;
    }
    if (wire.closed || wire.now_ms > 3600000) {
        http_stop(wire.server);
    }
    return count;
}

static int64_t wire_recv(int fd, void *p, size_t n)
{
    size_t take = wire.in_len - wire.in_at;
    int failed = wire_fault("recv");

    ensure(fd == WIRE_CONN);
    ensure(!wire.closed);
    ensure(n != 0);
    if (failed != 0) {
        return failed;
    }
    if (take == 0) {
        return wire.ends || wire.server_ended ? 0 : -EAGAIN;
    }
    if (wire.cut_count != 0) {
        size_t cut = wire.cuts[wire.cut_at % wire.cut_count];

        wire.cut_at++;
        cut = cut == 0 ? 256 : cut;
        take = take < cut ? take : cut;
    }
    take = take < n ? take : n;
    memcpy(p, wire.in + wire.in_at, take);
    wire.in_at += take;
    return (int64_t)take;
}

static int64_t wire_sendv(int fd, const struct iovec *iov, int count)
{
    size_t left = wire.send_max == 0 ? SIZE_MAX : wire.send_max;
    size_t total = 0;
    int failed = wire_fault("sendv");

    ensure(fd == WIRE_CONN);
    ensure(!wire.closed);
    ensure(!wire.server_ended);
    ensure(count > 0);
    if (failed != 0) {
        return failed;
    }
    if (wire.stuck_out || (wire.send_max != 0 && wire.send_full)) {
        wire.send_full = false;
        return -EAGAIN;
    }
    wire.send_full = true;
    for (int i = 0; i < count && left != 0; i++) {
        size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

        buf_put(&wire.out, iov[i].iov_base, part);
        left -= part;
        total += part;
    }
    return (int64_t)total;
}

static int64_t wire_read(int fd, void *p, size_t n)
{
    ensure(fd == WIRE_WAKE);
    memset(p, 0, n);
    return atomic_exchange(&wire_awake, false) ? (int64_t)n : -EAGAIN;
}

static int64_t wire_write(int fd, const void *p, size_t n)
{
    (void)p;
    ensure(fd == WIRE_WAKE);
    atomic_store(&wire_awake, true);
    return (int64_t)n;
}

/* Runs a whole server over what `wire` says. 0 or the ERR_ code of what failed. */
static int wire_run(const struct http_config *config, struct err *e)
{
    struct os_table table = os_real;
    int result = 0;

    table.clock_mono_ns = wire_clock_mono_ns;
    table.clock_real_ms = wire_clock_real_ms;
    table.raise_nofile = wire_raise_nofile;
    table.epoll_create = wire_epoll_create;
    table.eventfd = wire_eventfd;
    table.signalfd = wire_signalfd;
    table.socket = wire_socket;
    table.bind = wire_bind;
    table.listen = wire_listen;
    table.getsockname = wire_getsockname;
    table.setsockopt = wire_setsockopt;
    table.accept = wire_accept;
    table.close = wire_close;
    table.shutdown = wire_shutdown;
    table.epoll_ctl = wire_epoll_ctl;
    table.epoll_wait = wire_epoll_wait;
    table.recv = wire_recv;
    table.sendv = wire_sendv;
    table.read = wire_read;
    table.write = wire_write;
    os_install(&table);
    atomic_store(&wire_awake, false);
    wire.now_ms = 1000;
    wire.server = http_new(config, e);
    if (wire.server == NULL) {
        result = e->code;
    } else {
        result = http_listen_tcp(wire.server, "127.0.0.1:0", NULL, e);
        result = result != 0 ? result : http_run(wire.server, e);
        http_free(wire.server);
        wire.server = NULL;
    }
    os_install(NULL);
    return result;
}

#endif
