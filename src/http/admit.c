/* admit: from a complete head to a door, or to a refusal.
 *
 * The order of the checks is the contract's: authentication, path, method, Expect (route.c), the
 * door's own look at the head, the declared length, the budget. Only then 100 Continue is said and
 * the body is read. The budget is shared by all connections; who finds it used up waits in line,
 * first come first served, at most admission_wait_ms, and is then answered 429 (or what the route's
 * shape says for overload): nothing of its body
 * was used. A body of unknown length takes its budget in steps of HTTP_BODY_STEP_BYTES. One that
 * needs a single step does not wait behind larger ones, and a share of the budget is for it alone.
 *
 * An answer that refuses a request whose body has not been read in full always ends the connection:
 * what follows can then not be mistaken for a request. Everything here is an answer; a connection
 * for which there is no memory is closed. */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"

static const char *message_of(int code)
{
    switch (code) {
    case ERR_BAD_REQUEST:
        return "The request is not well-formed HTTP/1.1.";
    case ERR_URI_TOO_LONG:
        return "The request target is too long.";
    case ERR_HEADERS_TOO_LARGE:
        return "The request head is too large.";
    case ERR_NOT_IMPLEMENTED:
        return "The method or transfer coding is not implemented.";
    case ERR_VERSION_NOT_SUPPORTED:
        return "Only HTTP/1.1 and HTTP/1.0 are spoken here.";
    case ERR_UNAUTHORIZED:
        return "The request does not have valid authorization.";
    case ERR_NOT_FOUND:
        return "There is nothing at this path.";
    case ERR_METHOD_NOT_ALLOWED:
        return "The path does not have this method.";
    case ERR_EXPECTATION_FAILED:
        return "Only the expectation 100-continue can be met.";
    case ERR_BODY_TOO_LARGE:
        return "The request body is too large.";
    case ERR_OVERLOADED:
        return "Too many request bodies are in flight. Try again later.";
    default:
        ensure(false);
        return "";
    }
}

void http_conn_refuse(struct http_conn *c, struct http_request *req, int code, const char *message)
{
    char text[80];
    struct buf out = {.ptr = text, .cap = sizeof text, .limit = sizeof text};

    ensure(req->conn == c);
    ensure(TAILQ_NEXT(req, link) == NULL);
    ensure(!req->answered);
    req->close = true;
    metric_add(METRIC_HTTP_REFUSED, 1);
    if (message == NULL && code == ERR_BODY_TOO_LARGE && req->route != NULL) {
        /* Who is told the limit can keep to it (cases C47). */
        buf_printf(&out, "The request body is larger than %llu bytes.",
                   (unsigned long long)req->route->body_max_bytes);
        buf_put_char(&out, '\0');
        ensure(!out.failed);
        message = text;
    }
    http_answer_error(req, code, message != NULL ? message : message_of(code), (struct slice){0});
    ensure(c->state == HTTP_CONN_DRAIN);
}

/* For a head that could not be taken: there is no request to speak of yet. */
void http_conn_refuse_head(struct http_conn *c, int code, const char *message)
{
    struct http_request *req = http_request_new(c);

    if (req == NULL) {
        http_conn_close(c);
        return;
    }
    req->head.version_minor = 1;
    http_conn_refuse(c, req, code, message);
}

/* ---- a request ---- */

static bool has_body(const struct http_request *req)
{
    return req->head.chunked || req->head.length != 0;
}

void http_conn_hand_out(struct http_conn *c, struct http_request *req)
{
    req->body_due = req->route->takes_body && has_body(req);
    if (req->body_due) {
        c->state = HTTP_CONN_TAKEN;
    } else {
        c->state = req->close ? HTTP_CONN_DRAIN : HTTP_CONN_HEAD;
    }
    req->handed = true;
    http_request_count_bytes(req);
    req->route->on_request(req->route->ctx, req);
}

static void start_body(struct http_conn *c, struct http_request *req)
{
    bool first = c->state != HTTP_CONN_BODY && c->granted_bytes == 0;

    req->reserved += c->want_bytes;
    c->granted_bytes += c->want_bytes;
    c->want_bytes = 0;
    c->state = HTTP_CONN_BODY;
    c->body_last_ms = c->server->now_ms;
    if (first) {
        c->body_start_ms = c->server->now_ms;
        c->body_bytes = 0;
        c->continue_due = req->head.expect == HTTP_EXPECT_CONTINUE;
    }
}

/* Asks for n bytes of budget; without them the connection waits its turn. */
void http_conn_ask_budget(struct http_conn *c, struct http_request *req, uint64_t n)
{
    struct http_server *s = c->server;
    bool small = n <= HTTP_BODY_STEP_BYTES && req->reserved == 0;

    c->want_bytes = n;
    if ((small || TAILQ_EMPTY(&s->waiters)) && http_budget_take(s, req->reserved, n)) {
        start_body(c, req);
        return;
    }
    c->state = HTTP_CONN_ADMISSION;
    c->wait_start_ms = s->now_ms;
    c->waiting = true;
    TAILQ_INSERT_TAIL(&s->waiters, c, waiter_link);
}

void http_conn_stop_waiting(struct http_conn *c)
{
    if (c->waiting) {
        c->waiting = false;
        TAILQ_REMOVE(&c->server->waiters, c, waiter_link);
    }
}

void http_admission_grant(struct http_server *s)
{
    struct http_conn *c = TAILQ_FIRST(&s->waiters);

    while (c != NULL && http_budget_take(s, c->granted_bytes, c->want_bytes)) {
        http_conn_stop_waiting(c);
        start_body(c, TAILQ_LAST(&c->queue, http_request_list));
        http_conn_set_runnable(c);
        c = TAILQ_FIRST(&s->waiters);
    }
    while (c != NULL && s->now_ms - c->wait_start_ms >= s->config.limits.admission_wait_ms) {
        http_conn_stop_waiting(c);
        metric_add(METRIC_HTTP_OVERLOADED, 1);
        http_conn_refuse(c, TAILQ_LAST(&c->queue, http_request_list), ERR_OVERLOADED, NULL);
        http_conn_set_runnable(c);
        c = TAILQ_FIRST(&s->waiters);
    }
}

/* An answer without a look at the body: the connection ends behind it when there is one. */
static void leave_body(struct http_conn *c, struct http_request *req)
{
    req->close = req->close || has_body(req);
    if (req->close) {
        c->state = HTTP_CONN_DRAIN;
    }
}

static void refuse_by_route(struct http_conn *c, struct http_request *req, int code, unsigned allow)
{
    if (code == ERR_METHOD_NOT_ALLOWED) {
        struct buf text = {0};

        http_allow_text(allow, &text);
        http_add_header(req, "Allow", buf_slice(&text));
        req->out.failed = req->out.failed || text.failed;
        buf_free(&text);
    }
    if (code == ERR_UNAUTHORIZED) {
        http_add_header(req, "WWW-Authenticate", SLICE("Bearer"));
    }
    leave_body(c, req);
    http_answer_error(req, code, message_of(code), (struct slice){0});
}

/* Checks of a request whose head is good, up to the door or the body. */
static void admit(struct http_conn *c, struct http_request *req)
{
    uint64_t body_max;
    unsigned allow = 0;
    bool close = req->close;
    int code = http_route_find(req, &allow);

    if (code != 0) {
        refuse_by_route(c, req, code, allow);
        return;
    }
    if (req->route->cors && req->method == HTTP_OPTIONS) {
        leave_body(c, req);
        http_cors_preflight(req, allow);
        return;
    }
    if (req->route->on_head != NULL) {
        req->close = close || has_body(req);
        req->route->on_head(req->route->ctx, req);
        if (req->answered) {
            if (req->close) {
                c->state = HTTP_CONN_DRAIN;
            }
            return;
        }
        req->close = close;
    }
    if (!has_body(req) || req->route->takes_body) {
        http_conn_hand_out(c, req);
        return;
    }
    body_max = req->route->body_max_bytes;
    if (req->head.length > body_max) {
        http_conn_refuse(c, req, ERR_BODY_TOO_LARGE, NULL);
        return;
    }
    c->granted_bytes = 0;
    c->chunks = (struct http_chunks){0};
    req->body.limit = req->head.chunked ? body_max : req->head.length;
    if (req->head.chunked) {
        http_conn_ask_budget(c, req,
                             body_max < HTTP_BODY_STEP_BYTES ? body_max : HTTP_BODY_STEP_BYTES);
    } else {
        http_conn_ask_budget(c, req, req->head.length);
    }
}

static bool make_room(struct http_request *req, unsigned fields)
{
    struct http_field *grown;

    if (fields <= req->fields_cap) {
        return true;
    }
    fields = (fields + 15) / 16 * 16;
    grown = realloc(req->fields, fields * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    req->fields = grown;
    req->fields_cap = fields;
    return true;
}

void http_conn_begin(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = http_request_new(c);
    unsigned lines = c->scan.lines;
    int got;

    c->scan = (struct http_head_scan){0};
    c->head_start_ms = 0;
    c->blank_lines = 0;
    if (req == NULL) {
        http_conn_close(c);
        return;
    }
    buf_put(&req->head_bytes, p, n);
    if (req->head_bytes.failed || !make_room(req, lines)) {
        http_conn_close(c);
        return;
    }
    req->unix_socket = c->unix_socket;
    got = http_head_parse(&req->head, req->fields, req->fields_cap, &c->server->head_limits,
                          req->head_bytes.ptr, n);
    req->method = http_method_of(req->head.method);
    if (got != 0) {
        req->head.version_minor = 1; /* or we would have to guess what it meant */
        http_conn_refuse(c, req, got, NULL);
        return;
    }
    req->close = !req->head.keep_alive;
    http_request_count_bytes(req);
    admit(c, req);
}
