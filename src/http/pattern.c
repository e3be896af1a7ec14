/* pattern: paths of routes, taken apart once when the server is made.
 *
 * A path without '*' is literal and is compared by length and bytes (route.c): the common request
 * costs one length comparison a route. In any other, a segment "*" stands for one segment that is
 * not empty; in the last segment a suffix may follow ("*.js"), and the part is what is before it.
 * Paths are compared as they were sent: nothing is decoded, so "%2F" never becomes a separator. The
 * table is the program's own: a malformed path in it is a bug. */
#include <stdlib.h>

#include "base/ensure.h"
#include "http/conn.h"

/* End of the segment that is at `at`. */
static size_t segment_end(struct slice path, size_t at)
{
    while (at < path.len && path.ptr[at] != '/') {
        at++;
    }
    return at;
}

static struct http_pattern pattern_of(const struct http_route *r)
{
    struct http_pattern p = {.path = slice_cstr(r->path), .slash_too = r->slash_too};

    ensure(p.path.len != 0);
    ensure(p.path.ptr[0] == '/');
    ensure(!r->cors || r->auth == HTTP_AUTH_OPEN); /* a preflight carries no credentials */
    for (size_t i = 1; i < p.path.len; i++) {
        if (p.path.ptr[i] == '*') {
            size_t end = segment_end(p.path, i);

            ensure(p.path.ptr[i - 1] == '/');
            ensure(end == i + 1 || end == p.path.len);
            p.parts++;
        }
    }
    ensure(p.parts <= HTTP_PARTS_MAX);
    return p;
}

int http_patterns_make(struct http_server *s, struct err *e)
{
    size_t n = s->config.route_count;

    s->patterns = calloc(n == 0 ? 1 : n, sizeof *s->patterns);
    if (s->patterns == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the routes");
    }
    for (size_t i = 0; i < n; i++) {
        s->patterns[i] = pattern_of(&s->config.routes[i]);
    }
    return 0;
}

bool http_pattern_match(const struct http_pattern *p, struct slice path,
                        struct slice part[HTTP_PARTS_MAX])
{
    unsigned n = 0;
    size_t at = 0;
    size_t i = 0;

    while (i < p->path.len) {
        size_t end;
        size_t suffix;

        if (p->path.ptr[i] != '*') {
            if (at == path.len || path.ptr[at] != p->path.ptr[i]) {
                return false;
            }
            at++;
            i++;
            continue;
        }
        end = segment_end(path, at);
        suffix = segment_end(p->path, i) - (i + 1);
        if (end - at <= suffix ||
            memcmp(path.ptr + end - suffix, p->path.ptr + i + 1, suffix) != 0) {
            return false;
        }
        ensure(n < p->parts);
        part[n] = slice_of(path.ptr + at, end - suffix - at);
        n++;
        at = end;
        i += 1 + suffix;
    }
    return at == path.len || (p->slash_too && at + 1 == path.len && path.ptr[at] == '/');
}
