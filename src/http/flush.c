/* flush: the output side of a connection, its timeouts and its end.
 *
 * Once a turn, after the commit, every connection that has something to say sends what its first
 * answered requests hold, in order, with one sendmsg. A write that comes back short asks epoll for
 * EPOLLOUT; that is the only time output touches epoll.
 *
 * The end: when the last answer of a connection (it says so) has left, our side is shut down and
 * what the client still sends is read and dropped, up to linger_bytes_max and HTTP_LINGER_MS:
 * closing with unread input would send a reset that can overtake the answer. Only then the
 * descriptor is closed.
 *
 * A failed send or recv ends the connection; requests that doors still hold live on as orphans. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

#define IOV_MAX_COUNT 64

void http_conn_watch(struct http_conn *c)
{
    uint32_t wanted = 0;
    struct epoll_event ev = {.data.ptr = c};

    if (c->dead || c->away) {
        return;
    }
    if (!c->eof && !c->paused) {
        wanted |= EPOLLIN;
    }
    if (c->want_out) {
        wanted |= EPOLLOUT;
    }
    if (wanted == c->events) {
        return;
    }
    ev.events = wanted;
    if (os_epoll_ctl(c->server->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev) != 0) {
        http_conn_close(c);
        return;
    }
    c->events = wanted;
}

void http_conn_close(struct http_conn *c)
{
    struct http_server *s = c->server;

    if (c->dead) {
        return;
    }
    c->dead = true;
    if (c->away) {
        http_away_close(c);
    } else {
        /* By name: a close takes it out of epoll only when no child that is between fork and exec
         * has a copy, and an event of it would name memory that is free by then. */
        (void)os_epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
        (void)os_close(c->fd); /* nothing was promised by this descriptor */
    }
    http_conn_stop_waiting(c);
    if (c->dirty) {
        c->dirty = false;
        TAILQ_REMOVE(&s->dirty, c, dirty_link);
    }
    if (c->runnable) {
        c->runnable = false;
        TAILQ_REMOVE(&s->runnable, c, runnable_link);
    }
    while (!TAILQ_EMPTY(&c->queue)) {
        http_request_abandon(TAILQ_FIRST(&c->queue));
    }
    ensure(c->queue_count == 0);
    ensure(c->busy == 0);
    TAILQ_REMOVE(&s->conns, c, link);
    ensure(s->conn_count != 0);
    s->conn_count--;
    s->refused_count -= c->refused ? 1 : 0;
    metric_sub(METRIC_HTTP_CONNECTIONS, 1);
    TAILQ_INSERT_TAIL(&s->dead_conns, c, link);
}

void http_conn_abort(struct http_conn *c)
{
    static const struct linger hard = {.l_onoff = 1, .l_linger = 0};

    if (!c->dead && !c->unix_socket) {
        /* Best effort: without it a client of HTTP/1.0 takes the cut for the end. */
        (void)os_setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    http_conn_close(c);
}

bool http_conn_idle(const struct http_conn *c)
{
    return c->queue_count == 0 && c->in.len == 0 && c->state == HTTP_CONN_HEAD;
}

/* ---- sending ---- */

static bool is_complete(const struct http_request *req)
{
    return req->answered && !req->streaming && req->sent == req->out.len;
}

/* Releases the first requests that are done with; starts the next piece of a stream. False when the
 * connection was ended. */
static bool settle_front(struct http_conn *c)
{
    struct http_request *req = TAILQ_FIRST(&c->queue);

    while (req != NULL && is_complete(req) && !req->out.failed) {
        bool close = req->close;
        bool cut = req->cut;
        bool framed = req->chunked_out; /* a missing last chunk says enough */

        http_request_release(req);
        if (cut && !framed) {
            http_conn_abort(c); /* the end of the connection would pass for the end of the body */
            return false;
        }
        if (close || cut) {
            c->state = HTTP_CONN_DRAIN;
            http_conn_stop_waiting(c); /* the request that asked for budget goes with the others */
            while (!TAILQ_EMPTY(&c->queue)) {
                http_request_abandon(TAILQ_FIRST(&c->queue));
            }
        }
        req = TAILQ_FIRST(&c->queue);
    }
    if (req == NULL || req->reading || req->queued) {
        return true;
    }
    if (!req->out.failed && req->sent == req->out.len) {
        req->out.len = 0;
        req->sent = 0;
    }
    if (req->streaming && !req->waits && (!req->pulled || req->out.len == 0)) {
        http_stream_pull(req);
    }
    if (req->out.failed) {
        http_conn_abort(c);
        return false;
    }
    if (http_away_is_due(req)) {
        return http_away_start(c);
    }
    return true;
}

static int gather(struct http_conn *c, struct iovec *iov, size_t *total)
{
    struct http_request *req;
    int count = 0;

    *total = 0;
    TAILQ_FOREACH(req, &c->queue, link)
    {
        size_t n;

        if (req->reading || req->out.failed || count == IOV_MAX_COUNT) {
            break;
        }
        n = req->out.len - req->sent;
        if (n != 0) {
            iov[count] = (struct iovec){.iov_base = req->out.ptr + req->sent, .iov_len = n};
            count++;
            *total += n;
        }
        if (!req->answered || req->streaming || req->close) {
            break;
        }
    }
    return count;
}

static void book_sent(struct http_conn *c, size_t n)
{
    struct http_request *req = TAILQ_FIRST(&c->queue);

    while (n != 0) {
        size_t part;

        ensure(req != NULL);
        part = req->out.len - req->sent;
        part = part < n ? part : n;
        req->sent += part;
        n -= part;
        req = TAILQ_NEXT(req, link);
    }
}

/* False when the connection was ended. */
static bool send_ready(struct http_conn *c)
{
    struct iovec iov[IOV_MAX_COUNT];

    for (;;) {
        size_t total;
        int count;
        int64_t n;

        if (!settle_front(c)) {
            return false;
        }
        count = gather(c, iov, &total);
        if (count == 0) {
            c->want_out = false;
            return true;
        }
        n = os_sendv(c->fd, iov, count);
        if (n < 0 && n != -EAGAIN) {
            http_conn_close(c);
            return false;
        }
        if (n > 0 || !c->want_out) {
            c->write_last_ms = c->server->now_ms;
        }
        if (n > 0) {
            book_sent(c, (size_t)n);
        }
        if (n < (int64_t)total) {
            c->want_out = true;
            return settle_front(c);
        }
    }
}

/* Everything is sent and nothing more will be. */
static void finish(struct http_conn *c)
{
    if (c->eof || c->dropped_bytes > c->server->config.limits.linger_bytes_max) {
        http_conn_close(c);
        return;
    }
    if (!c->shut) {
        c->shut = true;
        c->linger_start_ms = c->server->now_ms;
        if (os_shutdown(c->fd, SHUT_WR) != 0) {
            http_conn_close(c);
        }
    }
}

void http_conn_flush(struct http_conn *c)
{
    ensure(!c->dead);
    if (c->eof && http_stream_is_live(c)) {
        http_conn_close(c); /* nobody would notice otherwise until there is something to send */
        return;
    }
    if (c->away || (!c->shut && !send_ready(c))) {
        return;
    }
    if (c->queue_count == 0) {
        if (c->state == HTTP_CONN_DRAIN) {
            finish(c);
        } else if (http_conn_idle(c)) {
            c->idle_since_ms = c->server->now_ms;
            if (c->server->stopping) {
                c->state = HTTP_CONN_DRAIN;
                finish(c);
            }
        }
    }
    if (c->dead) {
        return;
    }
    /* An end in DRAIN was settled: running it again would make the connection dirty again, each
     * turn anew, for as long as the client leaves an answer unread. */
    if ((c->in.len != 0 || c->paused || (c->eof && c->state != HTTP_CONN_DRAIN)) &&
        !http_conn_blocked(c)) {
        http_conn_set_runnable(c);
    }
    http_conn_watch(c);
}

/* ---- timeouts ---- */

static void too_slow(struct http_conn *c)
{
    metric_add(METRIC_HTTP_TIMEOUTS, 1);
    http_conn_close(c);
}

static void sweep_body(struct http_conn *c, const struct http_limits *limits, uint64_t now)
{
    uint64_t age = now - c->body_start_ms;
    bool stalled = now - c->body_last_ms >= limits->body_stall_ms;
    bool crawls = age >= limits->body_stall_ms &&
                  c->body_bytes < age / 1000 * (uint64_t)limits->body_rate_min;

    if (stalled || crawls) {
        metric_add(METRIC_HTTP_TIMEOUTS, 1);
        http_conn_refuse(c, TAILQ_LAST(&c->queue, http_request_list), ERR_REQUEST_TIMEOUT,
                         "The request body arrived too slowly.");
    }
}

void http_conn_sweep(struct http_conn *c)
{
    const struct http_limits *limits = &c->server->config.limits;
    uint64_t now = c->server->now_ms;

    if (c->away) {
        return; /* its thread looks at the time */
    }
    if (c->shut) {
        if (now - c->linger_start_ms >= HTTP_LINGER_MS) {
            http_conn_close(c);
        }
        return;
    }
    if (http_stream_is_live(c)) {
        return;
    }
    if (c->want_out && now - c->write_last_ms >= limits->write_stall_ms) {
        too_slow(c);
        return;
    }
    if (c->state == HTTP_CONN_BODY) {
        sweep_body(c, limits, now);
        return;
    }
    if (c->state != HTTP_CONN_HEAD || http_conn_blocked(c)) {
        return;
    }
    if (c->head_start_ms != 0) {
        if (now - c->head_start_ms >= limits->head_timeout_ms) {
            metric_add(METRIC_HTTP_TIMEOUTS, 1);
            http_conn_refuse_head(c, ERR_REQUEST_TIMEOUT, "The request head arrived too slowly.");
        }
    } else if (c->queue_count == 0 && now - c->idle_since_ms >= limits->idle_timeout_ms) {
        c->state = HTTP_CONN_DRAIN;
        http_conn_set_dirty(c);
    }
}
