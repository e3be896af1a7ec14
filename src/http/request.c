/* request: the life of a request object, and what doors may ask of it.
 *
 * Objects and their small buffers are used again (at most HTTP_SPARE_MAX spares, each with buffers
 * of at most HTTP_KEEP_BYTES): the common request costs no malloc here. A released object stays
 * readable until the end of the turn, so that a door may look at its request after it answered.
 *
 * States: in the queue of its connection; orphaned (the client has gone, a door, a worker or a
 * source still has it); dead (end of the turn frees it); spare. Aborts: misuse by a door (two
 * answers, two jobs at once) is a bug. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

struct http_request *http_request_new(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_request *req = TAILQ_FIRST(&s->spares);

    if (req != NULL) {
        TAILQ_REMOVE(&s->spares, req, link);
        ensure(s->spare_count != 0);
        s->spare_count--;
    } else {
        req = calloc(1, sizeof *req);
        if (req == NULL) {
            return NULL;
        }
        req->server = s;
    }
    req->conn = c;
    TAILQ_INSERT_TAIL(&c->queue, req, link);
    c->queue_count++;
    return req;
}

void http_request_free(struct http_request *req)
{
    arena_free(&req->arena);
    buf_free(&req->head_bytes);
    buf_free(&req->body);
    buf_free(&req->out);
    buf_free(&req->extra);
    free(req->fields);
    free(req);
}

static void keep_small(struct buf *b)
{
    b->limit = 0;
    if (b->cap > HTTP_KEEP_BYTES) {
        buf_free(b);
    }
    buf_clear(b);
}

/* Back to the state http_request_new gives out. */
static void make_spare(struct http_request *req)
{
    struct http_request clean = {.server = req->server,
                                 .fields = req->fields,
                                 .fields_cap = req->fields_cap,
                                 .head_bytes = req->head_bytes,
                                 .body = req->body,
                                 .out = req->out,
                                 .extra = req->extra};

    arena_free(&req->arena);
    keep_small(&clean.head_bytes);
    keep_small(&clean.body);
    keep_small(&clean.out);
    keep_small(&clean.extra);
    *req = clean;
}

void http_request_count_bytes(struct http_request *req)
{
    size_t now = sizeof *req + req->head_bytes.len + req->body.len + req->out.len;

    if (req->conn != NULL) {
        req->conn->queued_bytes += now - req->queued_bytes;
        req->queued_bytes = now;
    }
}

/* in_job and streaming are set through here: a connection counts its busy requests. */
void http_request_set_busy(struct http_request *req, bool *flag, bool busy)
{
    ensure(*flag != busy);
    *flag = busy;
    if (req->conn != NULL) {
        ensure(busy || req->conn->busy != 0);
        req->conn->busy += busy ? 1u : -1u;
    }
}

static void unlink_request(struct http_request *req)
{
    struct http_conn *c = req->conn;

    if (c == NULL) {
        TAILQ_REMOVE(&req->server->orphans, req, link);
        return;
    }
    ensure(c->queue_count != 0);
    ensure(c->queued_bytes >= req->queued_bytes);
    TAILQ_REMOVE(&c->queue, req, link);
    c->queue_count--;
    ensure(c->busy >= (unsigned)req->in_job + (unsigned)req->streaming);
    c->busy -= (unsigned)req->in_job + (unsigned)req->streaming;
    c->queued_bytes -= req->queued_bytes;
    req->queued_bytes = 0;
    req->conn = NULL;
}

void http_request_release(struct http_request *req)
{
    struct http_server *s = req->server;

    ensure(!req->dead);
    ensure(!req->in_job);
    ensure(!req->streaming);
    ensure(!req->queued);
    unlink_request(req);
    ensure(s->budget_used >= req->reserved);
    if (req->reserved != 0) {
        s->budget_used -= req->reserved;
        metric_set(METRIC_HTTP_BODY_BYTES, s->budget_used);
        req->reserved = 0;
    }
    req->dead = true;
    TAILQ_INSERT_TAIL(&s->dead_requests, req, link);
}

void http_request_abandon(struct http_request *req)
{
    if (req->streaming && !req->reading) {
        http_stream_end(req);
    }
    if (req->streaming || req->in_job || (req->handed && !req->answered)) {
        unlink_request(req);
        TAILQ_INSERT_TAIL(&req->server->orphans, req, link);
        if (http_away_is_due(req)) {
            http_away_forsake(req);
        }
        return;
    }
    http_request_release(req);
}

void http_request_bury(struct http_server *s)
{
    struct http_request *req = TAILQ_FIRST(&s->dead_requests);

    while (req != NULL) {
        TAILQ_REMOVE(&s->dead_requests, req, link);
        if (s->spare_count < HTTP_SPARE_MAX) {
            make_spare(req);
            TAILQ_INSERT_HEAD(&s->spares, req, link);
            s->spare_count++;
        } else {
            http_request_free(req);
        }
        req = TAILQ_FIRST(&s->dead_requests);
    }
}

/* A few large bodies that are announced and do not arrive must not keep every small one out: they
 * leave it a share. */
bool http_budget_take(struct http_server *s, uint64_t held, uint64_t n)
{
    uint64_t max = s->config.limits.body_budget_bytes;

    if (held > HTTP_BODY_STEP_BYTES || n > HTTP_BODY_STEP_BYTES - held) {
        max -= max / HTTP_BUDGET_SHARE;
    }
    if (s->budget_used > max || n > max - s->budget_used) {
        return false;
    }
    s->budget_used += n;
    metric_set(METRIC_HTTP_BODY_BYTES, s->budget_used);
    return true;
}

/* ---- what doors see ---- */

enum http_method http_method(const struct http_request *req)
{
    return req->method;
}

struct slice http_path(const struct http_request *req)
{
    return req->head.path;
}

struct slice http_query(const struct http_request *req)
{
    return req->head.query;
}

bool http_has_query(const struct http_request *req)
{
    return req->head.has_query;
}

struct slice http_path_part(const struct http_request *req, unsigned n)
{
    ensure(n < req->parts);
    return req->part[n];
}

bool http_on_unix_socket(const struct http_request *req)
{
    return req->unix_socket;
}

bool http_header(const struct http_request *req, const char *name, struct slice *value,
                 unsigned *count)
{
    return http_head_find(&req->head, slice_cstr(name), value, count);
}

bool http_header_at(const struct http_request *req, const char *name, unsigned n,
                    struct slice *value)
{
    for (unsigned i = 0; i < req->head.field_count; i++) {
        const struct http_field *f = &req->head.fields[i];

        if (slice_eq(f->name, slice_cstr(name)) && n-- == 0) {
            *value = f->value;
            return true;
        }
    }
    return false;
}

struct slice http_body(const struct http_request *req)
{
    return buf_slice(&req->body);
}

struct arena *http_arena(struct http_request *req)
{
    return &req->arena;
}

struct http_server *http_server_of(const struct http_request *req)
{
    return req->server;
}

void http_set_user(struct http_request *req, void *user)
{
    req->user = user;
}

void *http_user(const struct http_request *req)
{
    return req->user;
}

bool http_answered(const struct http_request *req)
{
    return req->answered;
}

bool http_reserve(struct http_request *req, uint64_t n)
{
    ensure(!req->answered);
    if (!http_budget_take(req->server, req->reserved, n)) {
        return false;
    }
    req->reserved += n;
    return true;
}

/* ---- work on the pool ---- */

static void job_work(void *ctx)
{
    struct http_request *req = ctx;

    req->work(req->work_ctx);
}

static void job_done(void *ctx)
{
    struct http_request *req = ctx;
    struct http_conn *c = req->conn;

    ensure(req->in_job);
    http_request_set_busy(req, &req->in_job, false);
    req->work_done(req->work_ctx, req);
    if (c != NULL && !c->dead) {
        http_conn_set_dirty(c); /* the requests behind it may go on */
    }
}

bool http_work(struct http_request *req, void (*work)(void *ctx), http_fn *done, void *ctx)
{
    struct http_server *s = req->server;

    ensure(req->handed);
    ensure(!req->answered);
    ensure(!req->in_job);
    req->work = work;
    req->work_done = done;
    req->work_ctx = ctx;
    req->job = (struct http_job){.work = job_work, .done = job_done, .ctx = req};
    if (!http_server_submit(s, &req->job, s->config.limits.work_queue_max)) {
        return false;
    }
    http_request_set_busy(req, &req->in_job, true);
    return true;
}

/* ---- from and to other threads ---- */

bool http_server_submit(struct http_server *s, struct http_job *job, unsigned queued_max)
{
    if (!http_pool_submit(&s->pool, job, queued_max)) {
        return false;
    }
    s->jobs++;
    return true;
}

struct posted {
    struct http_job job;
    void (*fn)(void *ctx);
    void *ctx;
};

static void posted_done(void *ctx)
{
    struct posted *p = ctx;

    p->fn(p->ctx);
    free(p);
}

bool http_post(struct http_server *s, void (*fn)(void *ctx), void *ctx)
{
    struct posted *p = malloc(sizeof *p);

    if (p == NULL) {
        return false;
    }
    *p = (struct posted){.job = {.done = posted_done, .ctx = p}, .fn = fn, .ctx = ctx};
    http_pool_post(&s->pool, &p->job);
    return true;
}

void http_post_job(struct http_server *s, struct http_job *job)
{
    ensure(job->work == NULL);
    http_pool_post(&s->pool, job);
}
