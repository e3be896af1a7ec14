/* driver: a closed loop of N connections on one thread, for protocols that answer each request
 * once.
 *
 * Every connection has exactly one request in flight: it is prepared, sent, and the next one
 * follows its answer. Answers are counted from the end of the warm-up until the measured time is
 * over; then every connection waits for its last answer, so that afterwards nothing is in doubt:
 * what was answered is acknowledged, and everything sent was answered. The generator shares a small
 * machine with the server it measures, so the loop allocates nothing, registers each descriptor
 * once (edge-triggered) and needs two system calls a request. The closed loop hides queueing
 * (coordinated omission): its latencies compare peers at equal concurrency and say nothing about a
 * given arrival rate. */
#ifndef BENCH_DRIVER_H
#define BENCH_DRIVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "bench/meter.h"

#define DRIVER_IN_BYTES   16384u
#define DRIVER_IOV_MAX    4u
#define DRIVER_EVENTS_MAX 512
#define DRIVER_CONNS_MAX  4096u
/* A server that answers nothing for so long is taken for dead. */
#define DRIVER_STALL_MS 20000
/* So many lost connections or broken answers end the run. */
#define DRIVER_BROKEN_MAX 100u

struct driver_conn {
    int fd;
    bool waiting; /* a request is sent or being sent */
    uint32_t index;
    uint64_t seq; /* number of the request in flight, for the protocol */
    uint64_t sent_ns;
    struct iovec iov[DRIVER_IOV_MAX]; /* what is still to send */
    unsigned iov_first;
    unsigned iov_count;
    size_t in_len;
    char head[512]; /* for the protocol: the part of a request that changes */
    char in[DRIVER_IN_BYTES];
};

enum driver_verdict { DRIVER_MORE, DRIVER_GOOD, DRIVER_REFUSED, DRIVER_BROKEN };

struct driver {
    const char *host; /* IPv4 address */
    uint16_t port;
    uint32_t conns;
    double warmup_s;
    double seconds;
    double rate; /* requests a second; 0: a closed loop */
    uint64_t events_per_batch;
    /* Fills c->iov from 0 and c->iov_count; the memory stays untouched until the answer. */
    void (*prepare)(struct driver *d, struct driver_conn *c);
    /* Looks at c->in[0, in_len): one whole answer and nothing behind it, or more to come. */
    enum driver_verdict (*consume)(struct driver *d, struct driver_conn *c);
    void *protocol; /* of the program */

    int epoll_fd;
    struct driver_conn *conn;
    uint32_t waiting;
    uint64_t broken;
    uint64_t measure_from_ns;
    uint64_t measure_to_ns;
    uint64_t interval_ns; /* open loop: between two requests */
    uint64_t due_ns;      /* open loop: when the next one is */
    struct driver_conn **idle;
    uint32_t idle_count;
    struct result result;
    struct meter meter;
};

/* For `prepare`: this request is the last one; what was measured so far is the measured time. */
static inline void driver_end_now(struct driver *d)
{
    uint64_t now = now_ns();
    if (now <= d->measure_from_ns) {
        die("the requests ran out before the warm-up was over");
    }
    if (now < d->measure_to_ns) {
        d->measure_to_ns = now;
    }
}

static inline int driver_connect(const char *host, uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        die("%s is not an IPv4 address", host);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        die_errno("socket");
    }
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        die("connect to %s:%u: %s", host, (unsigned)port, strerror(errno));
    }
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        die_errno("TCP_NODELAY");
    }
    return fd;
}

static inline void driver_open(struct driver *d, struct driver_conn *c)
{
    c->fd = driver_connect(d->host, d->port);
    if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0) {
        die_errno("O_NONBLOCK");
    }
    c->in_len = 0;
    c->iov_first = 0;
    c->iov_count = 0;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
    if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0) {
        die_errno("epoll_ctl");
    }
}

/* Sends what is left; false when the connection is lost. */
static inline bool driver_flush(struct driver_conn *c)
{
    while (c->iov_first < c->iov_count) {
        struct msghdr msg = {.msg_iov = &c->iov[c->iov_first],
                             .msg_iovlen = c->iov_count - c->iov_first};
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno == EAGAIN;
        }
        size_t left = (size_t)n;
        while (c->iov_first < c->iov_count && left >= c->iov[c->iov_first].iov_len) {
            left -= c->iov[c->iov_first].iov_len;
            c->iov_first++;
        }
        if (c->iov_first < c->iov_count) {
            c->iov[c->iov_first].iov_base = (char *)c->iov[c->iov_first].iov_base + left;
            c->iov[c->iov_first].iov_len -= left;
        }
    }
    return true;
}

static inline bool driver_begin(struct driver *d, struct driver_conn *c)
{
    c->iov_first = 0;
    d->prepare(d, c);
    ensure(c->iov_count > 0);
    ensure(c->iov_count <= DRIVER_IOV_MAX);
    c->waiting = true;
    d->waiting++;
    c->sent_ns = now_ns();
    return driver_flush(c);
}

/* Drops the connection and what it was waiting for, and opens a new one while time is left. */
static inline void driver_break(struct driver *d, struct driver_conn *c, const char *why)
{
    d->result.errors++;
    d->broken++;
    if (d->broken == 1) {
        fprintf(stderr, "bench: connection %u: %s\n", c->index, why);
    }
    if (d->broken > DRIVER_BROKEN_MAX) {
        die("more than %u broken connections", DRIVER_BROKEN_MAX);
    }
    close(c->fd);
    c->fd = -1;
    if (c->waiting) {
        c->waiting = false;
        d->waiting--;
    }
    if (now_ns() < d->measure_to_ns) {
        driver_open(d, c);
        if (d->interval_ns != 0) {
            d->idle[d->idle_count++] = c;
        } else if (!driver_begin(d, c)) {
            die("a new connection was lost at once");
        }
    }
}

static inline void driver_answered(struct driver *d, struct driver_conn *c, bool good)
{
    uint64_t now = now_ns();
    c->waiting = false;
    d->waiting--;
    c->in_len = 0;
    if (good) {
        d->result.acks_total++;
        if (now >= d->measure_from_ns && now < d->measure_to_ns) {
            d->result.acks++;
            meter_add(&d->meter, now - c->sent_ns);
        }
    } else {
        d->result.errors++;
    }
    if (d->interval_ns != 0) {
        d->idle[d->idle_count++] = c;
    } else if (now < d->measure_to_ns && !driver_begin(d, c)) {
        driver_break(d, c, "lost while sending");
    }
}

/* Open loop: sends what is due on the connections that are free. */
static inline void driver_dispatch(struct driver *d)
{
    while (d->idle_count > 0 && d->due_ns < d->measure_to_ns && d->due_ns <= now_ns()) {
        struct driver_conn *c = d->idle[--d->idle_count];
        bool sent = driver_begin(d, c);
        c->sent_ns = d->due_ns;
        d->due_ns += d->interval_ns;
        if (!sent) {
            driver_break(d, c, "lost while sending");
        }
    }
}

/* How long a turn may wait: until the next request is due, if a connection is free for it. */
static inline struct timespec driver_patience(const struct driver *d)
{
    uint64_t ns = DRIVER_STALL_MS * UINT64_C(1000000);
    if (d->interval_ns != 0 && d->idle_count > 0 && d->due_ns < d->measure_to_ns) {
        uint64_t now = now_ns();
        ns = d->due_ns > now ? d->due_ns - now : 0;
    }
    return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static inline void driver_readable(struct driver *d, struct driver_conn *c)
{
    for (;;) {
        size_t room = sizeof c->in - c->in_len;
        if (room == 0) {
            driver_break(d, c, "an answer longer than 16 KiB");
            return;
        }
        ssize_t n = recv(c->fd, c->in + c->in_len, room, 0);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN) {
                driver_break(d, c, strerror(errno));
            }
            return;
        }
        if (n == 0) {
            driver_break(d, c, "closed by the server");
            return;
        }
        c->in_len += (size_t)n;
        bool drained = (size_t)n < room;
        enum driver_verdict v = c->waiting ? d->consume(d, c) : DRIVER_BROKEN;
        if (v == DRIVER_BROKEN) {
            driver_break(d, c, "an answer that is none");
            return;
        }
        if (v != DRIVER_MORE) {
            driver_answered(d, c, v == DRIVER_GOOD);
            return;
        }
        if (drained) {
            return;
        }
    }
}

static inline void driver_turn(struct driver *d)
{
    struct epoll_event ev[DRIVER_EVENTS_MAX];
    struct timespec patience = driver_patience(d);
    int n = epoll_pwait2(d->epoll_fd, ev, DRIVER_EVENTS_MAX, &patience, NULL);
    if (n < 0) {
        if (errno == EINTR) {
            return;
        }
        die_errno("epoll_pwait2");
    }
    if (n == 0 && patience.tv_sec >= DRIVER_STALL_MS / 1000) {
        die("no answer for %d ms, %u requests in flight", DRIVER_STALL_MS, d->waiting);
    }
    for (int i = 0; i < n; i++) {
        struct driver_conn *c = ev[i].data.ptr;
        if (c->iov_first < c->iov_count && !driver_flush(c)) {
            driver_break(d, c, "lost while sending");
            continue;
        }
        if ((ev[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
            driver_readable(d, c);
        }
    }
}

/* Closed loop: a request on every connection. Open loop: all are free. */
static inline void driver_first(struct driver *d)
{
    if (d->rate > 0) {
        d->interval_ns = (uint64_t)(1e9 / d->rate);
        ensure(d->interval_ns > 0);
        d->due_ns = now_ns();
        d->idle = must_alloc(d->conns * sizeof *d->idle);
        for (uint32_t i = d->conns; i-- > 0;) {
            d->idle[d->idle_count++] = &d->conn[i];
        }
        return;
    }
    for (uint32_t i = 0; i < d->conns; i++) {
        if (!driver_begin(d, &d->conn[i])) {
            die("connection %u was lost at once", i);
        }
    }
}

/* Runs the whole of it and prints the result line. */
static inline void driver_run(struct driver *d)
{
    ensure(d->conns > 0);
    ensure(d->conns <= DRIVER_CONNS_MAX);
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (d->epoll_fd < 0) {
        die_errno("epoll_create1");
    }
    d->conn = must_alloc(d->conns * sizeof *d->conn);
    for (uint32_t i = 0; i < d->conns; i++) {
        d->conn[i].index = i;
        driver_open(d, &d->conn[i]);
    }
    double cpu_before_s = cpu_s();
    d->measure_from_ns = now_ns() + (uint64_t)(d->warmup_s * 1e9);
    d->measure_to_ns = d->measure_from_ns + (uint64_t)(d->seconds * 1e9);
    driver_first(d);
    while (d->waiting > 0 ||
           (d->interval_ns != 0 && d->due_ns < d->measure_to_ns && now_ns() < d->measure_to_ns)) {
        driver_dispatch(d);
        driver_turn(d);
    }
    d->result.measured_s = (double)(d->measure_to_ns - d->measure_from_ns) / 1e9;
    if (d->interval_ns != 0 && d->due_ns < d->measure_to_ns) {
        d->result.unsent = (d->measure_to_ns - d->due_ns) / d->interval_ns;
    }
    d->result.events_per_batch = d->events_per_batch;
    d->result.cpu_used_s = cpu_s() - cpu_before_s;
    result_print(&d->result, &d->meter);
    for (uint32_t i = 0; i < d->conns; i++) {
        if (d->conn[i].fd >= 0) {
            close(d->conn[i].fd);
        }
    }
    free(d->conn);
    free(d->idle);
    close(d->epoll_fd);
}

#endif
