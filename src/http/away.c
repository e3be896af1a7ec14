/* away: a connection leaves the loop with the thread of a request, and comes back.
 *
 *   http_thread: a thread is taken, so that nothing can fail from here on
 *     -> due: until the answers before it have left (flush.c), or the client has gone
 *     -> away: the descriptor is out of epoll (a hang-up could not be masked there), the bytes
 *        behind the head are the thread's
 *     -> back, with its job: what the thread did not use is the connection's again
 *
 * A request without a body has nothing to receive: its thread works beside the connection, which
 * stays where it is, as with http_work.
 *
 * Invariants: a connection that is away has one request, not answered, and nothing to send. Its
 * descriptor is open for as long as the thread may use it: a connection that is closed meanwhile
 * leaves it to the body. Every thread that was taken comes back through the jobs of the loop,
 * also in http_free. What is unread when the thread comes back is dropped like the rest of any
 * refused body: the connection ends behind the answer, with lingering. */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/ensure.h"
#include "http/body_thread.h"
#include "os/os.h"

static void body_free(struct http_body *b)
{
    buf_free(&b->in);
    free(b->stage);
    free(b);
}

static struct http_body *body_new(struct http_request *req)
{
    struct http_body *b = calloc(1, sizeof *b);

    if (b == NULL) {
        return NULL;
    }
    b->req = req;
    b->fd = -1;
    b->stall_ms = req->server->config.limits.body_stall_ms;
    b->ended = !req->body_due;
    b->left = req->head.length;
    b->chunked = req->head.chunked;
    if (req->body_due && req->head.expect == HTTP_EXPECT_CONTINUE) {
        b->interim = SLICE("HTTP/1.1 100 Continue\r\n\r\n");
        b->interim_due = true;
    }
    if (req->body_due && b->chunked) {
        b->stage = malloc(HTTP_STAGE_BYTES);
        if (b->stage == NULL) {
            free(b);
            return NULL;
        }
    }
    return b;
}

/* ---- back ---- */

/* The descriptor and what was not used of its bytes are the loop's again. */
static void come_back(struct http_conn *c, struct http_body *b)
{
    struct http_request *req = b->req;
    struct epoll_event ev = {.data.ptr = c};

    ensure(c->away);
    ensure(c->state == HTTP_CONN_TAKEN);
    ensure(c->in.len == 0);
    c->away = false;
    c->eof = b->eof;
    c->paused = false;
    if (b->interim.len != 0 && !b->interim_due) {
        buf_put_slice(&req->out, b->interim);
    }
    req->body_due = false;
    if (b->ended) {
        buf_put_slice(&c->in, b->have);
    } else {
        req->body_lost = true;
        req->close = true;
    }
    c->state = req->close ? HTTP_CONN_DRAIN : HTTP_CONN_HEAD;
    ev.events = c->eof ? 0 : EPOLLIN;
    c->events = ev.events;
    if (b->reset || c->in.failed ||
        os_epoll_ctl(c->server->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev) != 0) {
        http_conn_close(c);
    }
}

static void body_back(void *ctx)
{
    struct http_body *b = ctx;
    struct http_request *req = b->req;
    struct http_server *s = req->server;
    struct http_conn *c;

    ensure(req->in_job);
    ensure(req->taken == b);
    ensure(s->jobs != 0);
    s->jobs--;
    http_threads_return(s, b->thread);
    if (b->orphan) {
        (void)os_close(b->fd); /* nothing was promised by this descriptor */
    }
    req->taken = NULL;
    http_request_set_busy(req, &req->in_job, false);
    if (req->conn != NULL && b->away) {
        come_back(req->conn, b);
    }
    c = req->conn; /* NULL where that has ended it */
    b->done(b->ctx, req);
    body_free(b);
    if (c != NULL && !c->dead) {
        http_conn_set_dirty(c); /* the requests behind it may go on */
    }
}

/* ---- away ---- */

static void body_run(void *ctx)
{
    struct http_body *b = ctx;
    struct http_pool *pool = &b->req->server->pool;

    b->work(b->ctx, b);
    http_pool_post(pool, &b->job);
}

static void begin(struct http_body *b)
{
    b->due = false;
    if (b->req->server->stopping) {
        http_body_end(b, ERR_NOT_READY);
    }
    http_thread_give(b->thread, body_run, b);
}

bool http_away_is_due(const struct http_request *req)
{
    return req->taken != NULL && req->taken->due;
}

bool http_away_start(struct http_conn *c)
{
    struct http_request *req = TAILQ_FIRST(&c->queue);
    struct http_body *b = req->taken;

    ensure(b->due);
    ensure(c->state == HTTP_CONN_TAKEN);
    ensure(TAILQ_NEXT(req, link) == NULL);
    ensure(req->sent == req->out.len);
    if (os_epoll_ctl(c->server->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL) != 0) {
        http_conn_close(c); /* and its thread works without it */
        return false;
    }
    c->away = true;
    c->want_out = false;
    b->away = true;
    b->fd = c->fd;
    b->in = c->in;
    b->have = buf_slice(&b->in);
    c->in = (struct buf){0};
    if (b->have.len != 0) { /* the client does not wait to be asked */
        b->interim = (struct slice){0};
        b->interim_due = false;
    }
    begin(b);
    return true;
}

void http_away_forsake(struct http_request *req)
{
    ensure(req->conn == NULL);
    req->taken->result = ERR_CONNECT;
    begin(req->taken);
}

void http_away_close(struct http_conn *c)
{
    struct http_body *b = TAILQ_FIRST(&c->queue)->taken;

    ensure(b->away);
    b->orphan = true;
    http_body_end(b, ERR_NOT_READY);
    (void)os_shutdown(c->fd, SHUT_RDWR); /* the client is not to wait for the thread's end */
}

void http_away_stop(struct http_conn *c)
{
    http_body_end(TAILQ_FIRST(&c->queue)->taken, ERR_NOT_READY);
}

bool http_thread(struct http_request *req, void (*work)(void *ctx, struct http_body *body),
                 http_fn *done, void *ctx)
{
    struct http_server *s = req->server;
    struct http_body *b;

    ensure(req->handed);
    ensure(!req->answered);
    ensure(!req->in_job);
    ensure(!req->body_lost);
    b = body_new(req);
    if (b == NULL) {
        return false;
    }
    b->thread = http_threads_take(s);
    if (b->thread == NULL) {
        body_free(b);
        return false;
    }
    b->job = (struct http_job){.done = body_back, .ctx = b};
    b->work = work;
    b->done = done;
    b->ctx = ctx;
    s->jobs++;
    http_request_set_busy(req, &req->in_job, true);
    req->taken = b;
    if (!req->body_due) {
        begin(b);
    } else if (req->conn == NULL) {
        http_away_forsake(req);
    } else {
        b->due = true;
        http_conn_set_dirty(req->conn); /* flush lets it go */
    }
    return true;
}
