/* route: who may ask what.
 *
 * Order: authentication by the path's class, then path, method, Expect. A path that exists for
 * nobody and one that exists for others look alike until the TOKEN rules are met: 401 before 404,
 * with one body for every path. A LOCAL path asked for on TCP is a path that does not exist.
 *
 * TOKEN on TCP (spec/history.md, decisions): with a configured token exactly one Authorization
 * header that says `Bearer TOKEN`, compared in constant time; without one, no Origin header and,
 * where a Host is given, a loopback one: a web page must not be able to append, not even by a name
 * that it points at this machine. The Unix socket's permissions are its authentication. */
#include "base/ensure.h"
#include "base/hash.h"
#include "http/conn.h"

/* In the order of Allow. */
static const struct {
    const char *name;
    enum http_method method;
} methods_known[] = {
    {"GET", HTTP_GET},     {"HEAD", HTTP_HEAD},     {"POST", HTTP_POST},       {"PUT", HTTP_PUT},
    {"PATCH", HTTP_PATCH}, {"DELETE", HTTP_DELETE}, {"OPTIONS", HTTP_OPTIONS},
};

#define METHODS_KNOWN (sizeof methods_known / sizeof methods_known[0])

enum http_method http_method_of(struct slice token)
{
    for (size_t i = 0; i < METHODS_KNOWN; i++) {
        if (slice_eq(token, slice_cstr(methods_known[i].name))) {
            return methods_known[i].method;
        }
    }
    return HTTP_OTHER;
}

static unsigned methods_of(const struct http_route *r)
{
    return (r->methods & HTTP_GET) != 0 && !r->no_head ? r->methods | HTTP_HEAD : r->methods;
}

void http_allow_text(unsigned methods, struct buf *out)
{
    const char *between = "";

    for (size_t i = 0; i < METHODS_KNOWN; i++) {
        if ((methods & methods_known[i].method) != 0) {
            buf_put_cstr(out, between);
            buf_put_cstr(out, methods_known[i].name);
            between = ", ";
        }
    }
}

/* One decimal number of an IPv4 address. */
static bool take_octet(struct slice *s)
{
    unsigned value = 0;
    size_t digits = 0;

    while (digits < s->len && s->ptr[digits] >= '0' && s->ptr[digits] <= '9' && digits < 3) {
        value = value * 10 + (unsigned)(s->ptr[digits] - '0');
        digits++;
    }
    *s = slice_from(*s, digits);
    return digits != 0 && value <= 255;
}

static bool is_loopback_v4(struct slice s)
{
    if (!slice_starts(s, SLICE("127."))) {
        return false;
    }
    s = slice_from(s, 4);
    for (int i = 0; i < 3; i++) {
        if (!take_octet(&s)) {
            return false;
        }
        if (i < 2) {
            if (s.len == 0 || s.ptr[0] != '.') {
                return false;
            }
            s = slice_from(s, 1);
        }
    }
    return s.len == 0;
}

bool http_host_is_loopback(struct slice host)
{
    size_t end = host.len;

    while (end > 0 && host.ptr[end - 1] >= '0' && host.ptr[end - 1] <= '9') {
        end--;
    }
    if (end > 0 && host.ptr[end - 1] == ':') {
        host.len = end - 1; /* a port, possibly an empty one */
    }
    return http_equal_fold(host, "localhost") || slice_eq(host, SLICE("[::1]")) ||
           is_loopback_v4(host);
}

bool http_bearer(const struct http_request *req, struct slice *credentials)
{
    struct slice value = {0};
    unsigned count = 0;
    size_t scheme = sizeof "Bearer" - 1;

    if (!http_head_find(&req->head, SLICE("authorization"), &value, &count) || count != 1) {
        return false;
    }
    if (value.len <= scheme || !http_equal_fold(slice_of(value.ptr, scheme), "bearer") ||
        value.ptr[scheme] != ' ') {
        return false;
    }
    value = slice_from(value, scheme);
    while (value.len != 0 && value.ptr[0] == ' ') {
        value = slice_from(value, 1);
    }
    *credentials = value;
    return true;
}

static bool token_is_right(const struct http_request *req, struct slice token)
{
    struct slice given;

    return http_bearer(req, &given) && equal_constant_time(given, token);
}

static bool may_ask(const struct http_request *req, enum http_auth auth)
{
    struct slice token = req->server->config.token;

    if (req->unix_socket || auth == HTTP_AUTH_OPEN) {
        return true;
    }
    if (token.len != 0) {
        return token_is_right(req, token);
    }
    return !http_head_find(&req->head, SLICE("origin"), NULL, NULL) &&
           (!req->head.has_host || http_host_is_loopback(req->head.host));
}

/* What a path has. */
struct found {
    const struct http_route *of_path;   /* the first route of the path */
    const struct http_route *of_method; /* the first one that has the method, too */
    unsigned methods;
};

static bool fits(const struct http_pattern *p, struct http_request *req)
{
    struct slice path = req->head.path;

    if (p->parts != 0) {
        return http_pattern_match(p, path, req->part);
    }
    if (p->slash_too && path.len == p->path.len + 1 && path.ptr[path.len - 1] == '/') {
        path.len--;
    }
    return slice_eq(path, p->path);
}

/* Looks at the literal paths, or at those with a '*'. Stops at a route that will do, so `methods`
 * is whole only where none does, and for a preflight. */
static void look(struct http_request *req, bool literal, struct found *f)
{
    const struct http_config *config = &req->server->config;

    for (size_t i = 0; i < config->route_count; i++) {
        const struct http_pattern *p = &req->server->patterns[i];
        const struct http_route *r = &config->routes[i];

        if ((p->parts == 0) != literal || (r->auth == HTTP_AUTH_LOCAL && !req->unix_socket) ||
            !fits(p, req)) {
            continue;
        }
        f->of_path = f->of_path == NULL ? r : f->of_path;
        f->methods |= methods_of(r);
        if (r->cors) {
            f->methods |= HTTP_OPTIONS;
        }
        if (r->cors && req->method == HTTP_OPTIONS) {
            f->of_method = f->of_method == NULL ? r : f->of_method;
        } else if ((methods_of(r) & req->method) != 0) {
            f->of_method = r;
            req->parts = p->parts;
            return;
        }
    }
}

int http_route_find(struct http_request *req, unsigned *allow)
{
    struct found f = {0};

    look(req, true, &f);
    if (f.of_path == NULL) { /* a literal path hides the patterns that fit it, too */
        look(req, false, &f);
    }
    *allow = f.methods;
    if (f.of_method != NULL) {
        f.of_path = f.of_method;
    }
    if (!may_ask(req, f.of_path != NULL ? f.of_path->auth : HTTP_AUTH_TOKEN)) {
        return ERR_UNAUTHORIZED;
    }
    if (f.of_path == NULL) {
        return ERR_NOT_FOUND;
    }
    req->route = f.of_path;
    if (f.of_method == NULL) {
        return ERR_METHOD_NOT_ALLOWED;
    }
    return req->head.expect == HTTP_EXPECT_OTHER ? ERR_EXPECTATION_FAILED : 0;
}
