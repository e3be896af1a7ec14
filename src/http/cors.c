/* cors: what lets web pages ask a route that is for them (http.h, CORS; cases/capture.md C11).
 *
 * The Origin is echoed, never "*": requests may carry credentials. Request header names are echoed
 * as they are asked for, whatever they are, because tracing libraries invent new ones; only tokens,
 * and at most 2 KiB of them, so that nothing a stranger sends can begin a header of its own or grow
 * an answer. Every answer of such a route says that it varies with the Origin, also to a client
 * that sent none: a cache must not give that answer to a page. */
#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"

#define ORIGIN_BYTES_MAX  1024u
#define HEADERS_BYTES_MAX 2048u

/* One origin in visible ASCII; what else is sent as one is not answered as one. */
static bool find_origin(const struct http_request *req, struct slice *origin)
{
    unsigned count = 0;

    if (!http_head_find(&req->head, SLICE("origin"), origin, &count) || count != 1 ||
        origin->len == 0 || origin->len > ORIGIN_BYTES_MAX || slice_eq(*origin, SLICE("*"))) {
        return false;
    }
    for (size_t i = 0; i < origin->len; i++) {
        if (origin->ptr[i] <= 0x20 || origin->ptr[i] >= 0x7f) {
            return false;
        }
    }
    return true;
}

void http_cors_put(const struct http_request *req, struct buf *out)
{
    struct slice origin = {0};

    ensure(req->route->cors);
    buf_put_slice(out, SLICE("Vary: Origin\r\n"));
    if (find_origin(req, &origin)) {
        buf_put_slice(out, SLICE("Access-Control-Allow-Origin: "));
        buf_put_slice(out, origin);
        buf_put_slice(out, SLICE("\r\nAccess-Control-Allow-Credentials: true\r\n"
                                 "Access-Control-Expose-Headers: Retry-After"));
        if (req->route->expose != NULL) {
            buf_put_cstr(out, ", ");
            buf_put_cstr(out, req->route->expose);
        }
        buf_put_slice(out, SLICE("\r\n"));
    }
}

static struct slice trimmed(struct slice s)
{
    while (s.len != 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.len != 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* Appends the names of one list that are tokens, as far as there is room. */
static void echo_names(struct slice list, struct buf *out)
{
    while (list.len != 0) {
        const char *comma = memchr(list.ptr, ',', list.len);
        size_t n = comma != NULL ? (size_t)(comma - list.ptr) : list.len;
        struct slice name = trimmed(slice_of(list.ptr, n));

        if (http_is_token(name) && !slice_eq(name, SLICE("*")) &&
            out->len + 2 + name.len <= HEADERS_BYTES_MAX) {
            buf_put_cstr(out, out->len == 0 ? "" : ", ");
            buf_put_slice(out, name);
        }
        list = slice_from(list, comma != NULL ? n + 1 : n);
    }
}

void http_cors_preflight(struct http_request *req, unsigned methods)
{
    struct buf text = {0};

    ensure(req->route->cors);
    metric_add(METRIC_HTTP_PREFLIGHTS, 1);
    http_allow_text(methods, &text);
    http_add_header(req, "Access-Control-Allow-Methods", buf_slice(&text));
    req->out.failed = req->out.failed || text.failed;
    buf_clear(&text);
    for (unsigned i = 0; i < req->head.field_count; i++) {
        if (slice_eq(req->head.fields[i].name, SLICE("access-control-request-headers"))) {
            echo_names(req->head.fields[i].value, &text);
        }
    }
    req->out.failed = req->out.failed || text.failed;
    if (text.len != 0) {
        http_add_header(req, "Access-Control-Allow-Headers", buf_slice(&text));
    }
    buf_free(&text);
    http_add_header(req, "Vary", SLICE("Access-Control-Request-Headers"));
    http_add_header(req, "Access-Control-Max-Age", SLICE("600"));
    if (req->route->on_options != NULL) {
        req->route->on_options(req->route->ctx, req);
    }
    if (req->route->shape == HTTP_SHAPE_TUS) {
        http_answer(req, 204, NULL, (struct slice){0});
    } else {
        http_answer(req, 200, "application/json", SLICE("{\"status\":\"Ok\"}"));
    }
}
