/* conn: the input side of a connection.
 *
 *   HEAD --complete, no body--> door           HEAD --malformed or refused--> DRAIN
 *   HEAD --body announced--> ADMISSION --budget granted--> BODY --complete--> door, then HEAD
 *   ADMISSION --waited too long: 429--> DRAIN  BODY --malformed, too large, stalled--> DRAIN
 *   HEAD --body for a thread--> TAKEN --read in full--> HEAD   TAKEN --answered before--> DRAIN
 *   any --the last answer says close--> DRAIN --all sent--> our side ends, the rest is dropped
 *
 * Input is received into the loop's one read buffer and used there; only what is left over (half a
 * head, requests that must wait) is copied to the connection's `in`, which exists only while it
 * holds something. A head and a body are copied to the request, so that nothing points into shared
 * memory. A large body of known length is received straight to its place.
 *
 * While the connection is blocked (pipeline full, a request with a worker, no budget) nothing is
 * received: when epoll reports input then, `paused` takes the connection out of epoll's reach until
 * the queue moves. Nothing on the common path calls epoll_ctl. Bodies for threads: away.c. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

#define READS_PER_TURN  8
#define IN_STEP_BYTES   (16u << 10)
#define BLANK_LINES_MAX 2

struct http_conn *http_conn_new(struct http_server *s, int fd, bool unix_socket)
{
    struct http_conn *c = calloc(1, sizeof *c);
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};

    if (c == NULL) {
        return NULL;
    }
    c->watch = HTTP_WATCH_CONN;
    c->fd = fd;
    c->server = s;
    c->unix_socket = unix_socket;
    c->idle_since_ms = s->now_ms;
    c->events = EPOLLIN;
    TAILQ_INIT(&c->queue);
    if (os_epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0) {
        free(c);
        return NULL;
    }
    TAILQ_INSERT_TAIL(&s->conns, c, link);
    s->conn_count++;
    metric_add(METRIC_HTTP_CONNECTIONS, 1);
    return c;
}

void http_conn_set_dirty(struct http_conn *c)
{
    if (!c->dirty && !c->dead) {
        c->dirty = true;
        TAILQ_INSERT_TAIL(&c->server->dirty, c, dirty_link);
    }
}

void http_conn_set_runnable(struct http_conn *c)
{
    if (!c->runnable && !c->dead) {
        c->runnable = true;
        TAILQ_INSERT_TAIL(&c->server->runnable, c, runnable_link);
    }
}

bool http_conn_blocked(const struct http_conn *c)
{
    if (c->queue_count == 0) {
        return false;
    }
    return c->busy != 0 || c->queue_count >= c->server->config.limits.pipeline_max ||
           c->queued_bytes >= HTTP_QUEUE_BYTES_MAX || c->server->stopping;
}

/* ---- steps: each returns true when it may be called again at once ---- */

static bool step_head(struct http_conn *c, const char *p, size_t n, size_t *used)
{
    int64_t got;

    if (n == 0 || http_conn_blocked(c)) {
        return false;
    }
    if (c->blank_lines < BLANK_LINES_MAX && p[0] == '\r' && (n == 1 || p[1] == '\n')) {
        if (n == 1) {
            return false;
        }
        c->blank_lines++;
        *used = 2;
        return true;
    }
    got = http_head_scan(&c->scan, &c->server->head_limits, p, n);
    if (got == 0) {
        if (c->head_start_ms == 0) {
            c->head_start_ms = c->server->now_ms;
        }
        return false;
    }
    if (got < 0) {
        http_conn_refuse_head(c, (int)got, NULL);
        return true;
    }
    http_conn_begin(c, p, (size_t)got);
    *used = (size_t)got;
    return true;
}

static void body_progress(struct http_conn *c, size_t n)
{
    c->body_bytes += n;
    c->body_last_ms = c->server->now_ms;
    c->continue_due = false;
}

static bool body_taken(struct http_conn *c, struct http_request *req)
{
    if (req->body.failed) {
        http_conn_refuse(c, req, ERR_OVERLOADED, NULL);
    } else if (req->body.len == req->head.length) {
        http_conn_hand_out(c, req);
    } else {
        return false;
    }
    return true;
}

static bool step_length(struct http_conn *c, struct http_request *req, const char *p, size_t n,
                        size_t *used)
{
    uint64_t left = req->head.length - req->body.len;
    size_t take = (uint64_t)n < left ? n : (size_t)left;

    body_progress(c, take);
    buf_put(&req->body, p, take);
    *used = take;
    return body_taken(c, req);
}

static bool step_chunks(struct http_conn *c, struct http_request *req, const char *p, size_t n,
                        size_t *used)
{
    uint64_t body_max = req->route->body_max_bytes;
    struct slice data;
    int got;

    /* The budget is asked before the bytes are touched, so that waiting loses nothing. */
    if (req->body.len + n > c->granted_bytes && c->granted_bytes < body_max) {
        uint64_t more = req->body.len + n - c->granted_bytes;
        uint64_t most = body_max - c->granted_bytes;

        more = more < HTTP_BODY_STEP_BYTES ? HTTP_BODY_STEP_BYTES : more;
        http_conn_ask_budget(c, req, more < most ? more : most);
        return c->state == HTTP_CONN_BODY;
    }
    got = http_chunks_step(&c->chunks, body_max, p, n, used, &data);
    body_progress(c, *used);
    if (got < 0) {
        http_conn_refuse(c, req, got,
                         got == ERR_BAD_REQUEST ? "The chunked body is malformed." : NULL);
        return true;
    }
    buf_put_slice(&req->body, data);
    if (req->body.failed) {
        http_conn_refuse(c, req, ERR_OVERLOADED, NULL);
        return true;
    }
    if (got == 1) {
        http_conn_hand_out(c, req);
    }
    return true;
}

static bool step_body(struct http_conn *c, const char *p, size_t n, size_t *used)
{
    struct http_request *req = TAILQ_LAST(&c->queue, http_request_list);

    if (n == 0) {
        return false;
    }
    return req->head.chunked ? step_chunks(c, req, p, n, used) : step_length(c, req, p, n, used);
}

/* Uses up what it can of p[0..n) and returns how much that was. */
static size_t consume(struct http_conn *c, const char *p, size_t n)
{
    size_t at = 0;
    bool again = true;

    while (again && !c->dead) {
        size_t used = 0;

        switch (c->state) {
        case HTTP_CONN_HEAD:
            again = step_head(c, p + at, n - at, &used);
            break;
        case HTTP_CONN_BODY:
            again = step_body(c, p + at, n - at, &used);
            break;
        case HTTP_CONN_ADMISSION:
        case HTTP_CONN_TAKEN:
            again = false;
            break;
        case HTTP_CONN_DRAIN:
        default:
            used = n - at;
            c->dropped_bytes += used;
            again = false;
            break;
        }
        at += used;
        ensure(at <= n);
    }
    if (!c->dead && c->state == HTTP_CONN_BODY && c->continue_due) {
        struct http_request *req = TAILQ_LAST(&c->queue, http_request_list);

        c->continue_due = false;
        buf_put_slice(&req->out, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
        http_conn_set_dirty(c);
    }
    return at;
}

/* The client has ended its side: what is half a request will stay one. */
static void settle_eof(struct http_conn *c)
{
    if (c->dead || !c->eof || c->state == HTTP_CONN_ADMISSION || c->state == HTTP_CONN_TAKEN ||
        (c->state == HTTP_CONN_HEAD && http_conn_blocked(c))) {
        return;
    }
    if (c->state == HTTP_CONN_BODY) {
        http_conn_refuse(c, TAILQ_LAST(&c->queue, http_request_list), ERR_BAD_REQUEST,
                         "The request body ended early.");
    } else if (c->state == HTTP_CONN_HEAD && c->scan.pos != 0) {
        http_conn_refuse_head(c, ERR_BAD_REQUEST, "The request head ended early.");
    }
    c->state = HTTP_CONN_DRAIN;
    http_conn_set_dirty(c);
}

/* Uses bytes of the loop's buffer and keeps what is left. */
static void take_fresh(struct http_conn *c, const char *p, size_t n)
{
    size_t used = consume(c, p, n);

    if (used < n && !c->dead) {
        buf_put(&c->in, p + used, n - used);
        if (c->in.failed) {
            http_conn_close(c);
        }
    }
}

/* The same for bytes that are in the connection's own buffer. */
static void take_kept(struct http_conn *c)
{
    size_t used = consume(c, c->in.len != 0 ? c->in.ptr : "", c->in.len);

    if (c->dead) {
        return; /* its buffer goes at the end of the turn */
    }
    c->in.len -= used;
    if (c->in.len == 0) {
        buf_free(&c->in);
    } else if (used != 0) {
        memmove(c->in.ptr, c->in.ptr + used, c->in.len);
    }
}

/* False while input must stay in the kernel. */
static bool may_receive(const struct http_conn *c)
{
    if (c->dead || c->eof) {
        return false;
    }
    if (c->state == HTTP_CONN_DRAIN) {
        return c->dropped_bytes <= c->server->config.limits.linger_bytes_max;
    }
    return c->state == HTTP_CONN_BODY || (c->state == HTTP_CONN_HEAD && !http_conn_blocked(c));
}

void http_conn_run(struct http_conn *c)
{
    ensure(!c->dead);
    if ((c->state == HTTP_CONN_HEAD && http_conn_blocked(c)) || c->state == HTTP_CONN_ADMISSION ||
        c->state == HTTP_CONN_TAKEN) {
        return;
    }
    c->head_start_ms = 0; /* it waited for us, not for the client */
    take_kept(c);
    settle_eof(c);
    if (c->paused && may_receive(c)) {
        c->paused = false;
        http_conn_watch(c);
    }
}

/* ---- receiving ---- */

enum source { SOURCE_BODY, SOURCE_KEPT, SOURCE_SHARED };

/* Where the next bytes go. NULL without memory. */
static char *place(struct http_conn *c, enum source *source, size_t *cap)
{
    struct http_request *last = TAILQ_LAST(&c->queue, http_request_list);

    if (c->in.len != 0) {
        *source = SOURCE_KEPT;
        *cap = IN_STEP_BYTES;
        return buf_reserve(&c->in, IN_STEP_BYTES) ? c->in.ptr + c->in.len : NULL;
    }
    if (c->state == HTTP_CONN_BODY && !last->head.chunked &&
        last->head.length - last->body.len >= HTTP_READ_BYTES) {
        *source = SOURCE_BODY;
        *cap = (size_t)(last->head.length - last->body.len);
        if (!buf_reserve(&last->body, *cap)) {
            return NULL;
        }
        *cap = *cap > 16 * HTTP_READ_BYTES ? 16 * HTTP_READ_BYTES : *cap;
        return last->body.ptr + last->body.len;
    }
    *source = SOURCE_SHARED;
    *cap = HTTP_READ_BYTES;
    return c->server->read_buffer;
}

static void take_received(struct http_conn *c, enum source source, size_t n)
{
    if (source == SOURCE_BODY) {
        struct http_request *req = TAILQ_LAST(&c->queue, http_request_list);

        body_progress(c, n);
        req->body.len += n;
        (void)body_taken(c, req);
    } else if (source == SOURCE_KEPT) {
        c->in.len += n;
        take_kept(c);
    } else if (c->state == HTTP_CONN_DRAIN) {
        c->dropped_bytes += n;
    } else {
        take_fresh(c, c->server->read_buffer, n);
    }
}

void http_conn_readable(struct http_conn *c)
{
    for (int round = 0; round < READS_PER_TURN; round++) {
        enum source source;
        size_t cap;
        char *p;
        int64_t n;

        if (!may_receive(c)) {
            break;
        }
        p = place(c, &source, &cap);
        n = p == NULL ? -ENOMEM : os_recv(c->fd, p, cap);
        if (n == -EAGAIN) {
            return;
        }
        if (n < 0) {
            http_conn_close(c);
            return;
        }
        if (n == 0) {
            c->eof = true;
            settle_eof(c);
            break;
        }
        take_received(c, source, (size_t)n);
        if ((size_t)n < cap) {
            return;
        }
    }
    if (!c->dead && !may_receive(c)) {
        /* Level-triggered input would wake every turn until somebody may take it. */
        c->paused = !c->eof;
        if (c->state == HTTP_CONN_DRAIN) {
            http_conn_set_dirty(c);
        }
        http_conn_watch(c);
    }
}
