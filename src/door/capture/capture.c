/* capture: life of the door, and which path is what (spec/capture.md A1, B1).
 *
 * All routes are open to anybody who reaches the port: the key is in the request, and the door
 * checks it. All but the native one may be asked by any web page. Paths end in '/' or not: a
 * redirect would lose the events (client-wire.md 1). Session recordings (`/s`) are not taken, and
 * `/static` has nothing; the configuration that SDKs get says so. */
#include "door/capture/capture.h"

#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "door/capture/internal.h"
#include "door/capture/static.h"

/* Flags and configuration are the same for everybody; what a body says is not looked at. */
#define STATIC_BODY_MAX (1u << 20)

#define READ  HTTP_GET
#define WRITE HTTP_POST
#define BOTH  (HTTP_GET | HTTP_POST)

/* X(path, methods, dialect, decode mode, call, parser, single) */
#define EVENT_ROUTES(X)                                                             \
    X("/e", BOTH, POSTHOG, BASE64_TOO, "", posthog_parse, true)                     \
    X("/i/v0/e", BOTH, POSTHOG, POSTHOG, "", posthog_parse, true)                   \
    X("/capture", BOTH, POSTHOG, BASE64_TOO, "", posthog_parse, true)               \
    X("/track", BOTH, POSTHOG, BASE64_TOO, "", posthog_parse, true)                 \
    X("/engage", BOTH, POSTHOG, BASE64_TOO, "engage", posthog_parse, true)          \
    X("/batch", BOTH, POSTHOG, POSTHOG, "", posthog_parse, false)                   \
    X("/i/v0/ai", WRITE, POSTHOG, POSTHOG, "", posthog_parse, false)                \
    X("/i/v0/ai/batch", WRITE, POSTHOG, POSTHOG, "", posthog_parse, false)          \
    X("/i/v1/analytics/events", WRITE, POSTHOG_V1, V1, "", posthog_v1_parse, false) \
    X("/v1/batch", WRITE, SEGMENT, SEGMENT, "", segment_parse, false)               \
    X("/v1/import", WRITE, SEGMENT, SEGMENT, "", segment_parse, false)              \
    X("/v1/b", WRITE, SEGMENT, SEGMENT, "", segment_parse, false)                   \
    X("/v1/batch/v1/batch", WRITE, SEGMENT, SEGMENT, "", segment_parse, false)      \
    X("/v1/track", WRITE, SEGMENT, SEGMENT, "track", segment_parse, true)           \
    X("/v1/t", WRITE, SEGMENT, SEGMENT, "track", segment_parse, true)               \
    X("/v1/identify", WRITE, SEGMENT, SEGMENT, "identify", segment_parse, true)     \
    X("/v1/i", WRITE, SEGMENT, SEGMENT, "identify", segment_parse, true)            \
    X("/v1/page", WRITE, SEGMENT, SEGMENT, "page", segment_parse, true)             \
    X("/v1/p", WRITE, SEGMENT, SEGMENT, "page", segment_parse, true)                \
    X("/v1/screen", WRITE, SEGMENT, SEGMENT, "screen", segment_parse, true)         \
    X("/v1/s", WRITE, SEGMENT, SEGMENT, "screen", segment_parse, true)              \
    X("/v1/group", WRITE, SEGMENT, SEGMENT, "group", segment_parse, true)           \
    X("/v1/g", WRITE, SEGMENT, SEGMENT, "group", segment_parse, true)               \
    X("/v1/alias", WRITE, SEGMENT, SEGMENT, "alias", segment_parse, true)           \
    X("/v1/a", WRITE, SEGMENT, SEGMENT, "alias", segment_parse, true)               \
    X("/api/v1/projects/*/events", WRITE, NATIVE, PLAIN, "", native_parse, true)

/* X(path, methods, shape, function) */
#define STATIC_ROUTES(X)                                     \
    X("/flags", BOTH, POSTHOG, static_flags)                 \
    X("/decide", BOTH, POSTHOG, static_decide)               \
    X("/array/*/config", READ, POSTHOG, static_config)       \
    X("/array/*/config.js", READ, POSTHOG, static_config_js) \
    X("/static/*", READ, POSTHOG, static_none)               \
    X("/static/*/*", READ, POSTHOG, static_none)             \
    X("/v1/projects/*/settings", READ, SEGMENT, static_settings)

#define X(...) +1
enum { EVENT_COUNT = 0 EVENT_ROUTES(X), STATIC_COUNT = 0 STATIC_ROUTES(X) };
#undef X

static const struct event_row {
    const char *path;
    unsigned methods;
    enum http_shape shape;
    struct capture_kind kind;
} event_rows[EVENT_COUNT] = {
#define X(path, methods, dialect, mode, call, parse, single) \
    {path, methods, SHAPE_OF_##dialect, {CAPTURE_##dialect, DECODE_##mode, call, parse, single}},
#define SHAPE_OF_POSTHOG    HTTP_SHAPE_POSTHOG
#define SHAPE_OF_POSTHOG_V1 HTTP_SHAPE_POSTHOG_V1
#define SHAPE_OF_SEGMENT    HTTP_SHAPE_SEGMENT
#define SHAPE_OF_NATIVE     HTTP_SHAPE_API
    EVENT_ROUTES(X)
#undef X
};

/* A route's ctx: the door, and the row. */
struct capture_at {
    struct capture *c;
    const struct event_row *row;
};

struct capture *capture_new(struct store *store, const struct capture_options *options,
                            void (*on_committed)(void *ctx), void *ctx)
{
    struct capture *c = calloc(1, sizeof *c);
    struct capture_at *at = calloc(EVENT_COUNT, sizeof *at);
    ensure(options->batch_events_max > 0);
    if (c == NULL || at == NULL) {
        free(c);
        free(at);
        return NULL;
    }
    *c = (struct capture){.options = *options, .on_committed = on_committed, .ctx = ctx, .at = at};
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        at[i] = (struct capture_at){.c = c, .row = &event_rows[i]};
    }
    if (store != NULL) {
        capture_attach(c, store);
    }
    return c;
}

void capture_attach(struct capture *c, struct store *store)
{
    c->store = store;
    c->control = store_control(store);
}

void capture_detach(struct capture *c)
{
    c->store = NULL;
    c->control = NULL;
}

void capture_free(struct capture *c)
{
    if (c != NULL) {
        free(c->at);
        free(c);
    }
}

static void on_events_head(void *ctx, struct http_request *req)
{
    const struct capture_at *at = ctx;
    capture_check_head(at->c, req, at->row->kind.dialect);
}

static void on_events(void *ctx, struct http_request *req)
{
    const struct capture_at *at = ctx;
    capture_start(at->c, req, &at->row->kind);
}

size_t capture_route_count(void)
{
    return EVENT_COUNT + STATIC_COUNT;
}

void capture_routes(struct capture *c, struct http_route *out)
{
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        const struct event_row *row = &event_rows[i];
        bool native = row->kind.dialect == CAPTURE_NATIVE;
        *out++ =
            (struct http_route){.path = row->path,
                                .methods = row->methods,
                                .auth = HTTP_AUTH_OPEN,
                                .shape = row->shape,
                                .body_max_bytes = row->kind.single ? c->options.single_bytes_max
                                                                   : c->options.request_bytes_max,
                                .on_head = on_events_head,
                                .on_request = on_events,
                                .ctx = &c->at[i],
                                .no_head = true,
                                .slash_too = true,
                                .cors = !native};
    }
#define X(p, m, s, f)                                               \
    *out++ = (struct http_route){.path = (p),                       \
                                 .methods = (m),                    \
                                 .auth = HTTP_AUTH_OPEN,            \
                                 .shape = HTTP_SHAPE_##s,           \
                                 .body_max_bytes = STATIC_BODY_MAX, \
                                 .on_request = (f),                 \
                                 .ctx = c,                          \
                                 .slash_too = true,                 \
                                 .cors = true};
    STATIC_ROUTES(X)
#undef X
}
