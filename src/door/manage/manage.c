/* The small answers made on the spot, and the table of the management API's routes. /readyz says
 * whether events would be taken now, and if not, which store is in the way and why. */
#include "door/manage/manage.h"

#include <stdio.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "door/manage/api.h"
#include "json/write.h"

static void healthz(void *ctx, struct http_request *req)
{
    (void)ctx;
    http_answer(req, 200, "application/json", SLICE("{\"status\":\"alive\"}"));
}

static void not_ready(struct http_request *req, const char *cause, const char *store,
                      const char *detail)
{
    struct buf b = {0};

    buf_put_cstr(&b, "{\"status\":\"not_ready\"");
    manage_put_text(&b, "cause", slice_cstr(cause));
    if (store != NULL) {
        manage_put_text(&b, "store", slice_cstr(store));
    }
    manage_put_text(&b, "detail", slice_cstr(detail));
    buf_put_char(&b, '}');
    manage_answer(req, 503, &b);
}

static void readyz(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct journal_status j;
    struct store_status s = {0};

    journal_get_status(m->journal, &j);
    if (m->store != NULL) {
        store_get_status(m->store, &s);
    } else if (m->store_cause != NULL) {
        s.no_space = true;
        (void)snprintf(s.cause, sizeof s.cause, "%s", m->store_cause);
    }
    if (j.damaged) {
        not_ready(req, "damaged", "journal", j.cause);
    } else if (j.poisoned) {
        not_ready(req, "writer_poisoned", "journal", j.cause);
    } else if (s.poisoned) {
        not_ready(req, "store_poisoned", "queue", s.cause);
    } else if (j.no_space) {
        not_ready(req, "no_space", "journal", j.cause);
    } else if (j.indexing || j.index_full) {
        char detail[128];

        (void)snprintf(detail, sizeof detail,
                       j.indexing ? "index: %u of %u generations"
                                  : "index: its files cannot be written, keys wait in memory",
                       j.indexed, j.index_total);
        not_ready(req, "indexing", "journal", detail);
    } else if (s.no_space) {
        not_ready(req, "no_space", "queue", s.cause);
    } else if (m->stopping) {
        not_ready(req, "stopping", NULL, "");
    } else {
        http_answer(req, 200, "application/json", SLICE("{\"status\":\"ready\"}"));
    }
}

static void metrics(void *ctx, struct http_request *req)
{
    struct buf b = {0};
    (void)ctx;
    metrics_text(&b);
    if (b.failed) {
        http_answer_error(req, ERR_INTERNAL_ERROR, "no memory for the answer", (struct slice){0});
    } else {
        http_answer(req, 200, "text/plain; version=0.0.4; charset=utf-8", buf_slice(&b));
    }
    buf_free(&b);
}

#define P "/api/v1/projects"

/* X(path, method, largest body, on_head, on_request) */
#define API_ROUTES(X)                                                                         \
    X("/api/v1/status", HTTP_GET, 0, manage_status_head, manage_status)                       \
    X("/api/v1/deliveries", HTTP_GET, 0, manage_deliveries_head, manage_deliveries_list)      \
    X("/api/v1/artifacts/query", HTTP_POST, MANAGE_BODY_MAX, manage_artifacts_query_head,     \
      manage_artifacts_query)                                                                 \
    X("/api/v1/artifacts/*/retry", HTTP_POST, MANAGE_BODY_MAX, manage_artifact_retry_head,    \
      manage_artifact_retry)                                                                  \
    X("/api/v1/artifacts/*/identity", HTTP_POST, MANAGE_BODY_MAX, manage_artifact_retry_head, \
      manage_artifact_identity)                                                               \
    X(P, HTTP_GET, 0, manage_projects_head, manage_projects_list)                             \
    X(P, HTTP_POST, MANAGE_BODY_MAX, manage_projects_create_head, manage_projects_create)     \
    X(P "/*", HTTP_GET, 0, manage_project_head, manage_project_show)                          \
    X(P "/*", HTTP_PATCH, MANAGE_BODY_MAX, manage_project_change_head, manage_project_change) \
    X(P "/*/keys", HTTP_GET, 0, manage_keys_head, manage_keys_list)                           \
    X(P "/*/keys", HTTP_POST, MANAGE_BODY_MAX, manage_keys_create_head, manage_keys_create)   \
    X(P "/*/keys/*", HTTP_DELETE, 0, manage_keys_head, manage_keys_revoke)                    \
    X(P "/*/status", HTTP_GET, 0, manage_project_status_head, manage_project_status)          \
    X(P "/*/rejected", HTTP_GET, 0, manage_rejected_head, manage_rejected_list)               \
    X(P "/*/query", HTTP_POST, MANAGE_QUERY_BODY_MAX, manage_query_head, manage_query_request)

/* The same on the Unix socket only. */
#define LOCAL_ROUTES(X)                                                                         \
    X("/api/v1/seal", HTTP_POST, MANAGE_BODY_MAX, NULL, manage_seal)                            \
    X("/api/v1/seal", HTTP_GET, 0, NULL, manage_seal_show)                                      \
    X("/api/v1/sinks", HTTP_GET, 0, NULL, manage_sinks_show)                                    \
    X("/api/v1/sinks/pause", HTTP_POST, MANAGE_BODY_MAX, manage_sinks_head, manage_sinks_pause) \
    X("/api/v1/sinks/resume", HTTP_POST, MANAGE_BODY_MAX, manage_sinks_head, manage_sinks_resume)

void manage_routes(struct manage *m, struct http_route *out)
{
    const struct http_route table[] = {
        {.path = "/healthz",
         .methods = HTTP_GET,
         .auth = HTTP_AUTH_OPEN,
         .shape = HTTP_SHAPE_API,
         .on_request = healthz,
         .ctx = m},
        {.path = "/readyz",
         .methods = HTTP_GET,
         .auth = HTTP_AUTH_OPEN,
         .shape = HTTP_SHAPE_API,
         .on_request = readyz,
         .ctx = m},
        {.path = "/metrics",
         .methods = HTTP_GET,
         .auth = HTTP_AUTH_TOKEN,
         .shape = HTTP_SHAPE_API,
         .on_request = metrics,
         .ctx = m},
#define X(path_, method_, body_, head_, request_) \
    {.path = path_,                               \
     .methods = method_,                          \
     .auth = HTTP_AUTH_OPEN,                      \
     .shape = HTTP_SHAPE_API,                     \
     .body_max_bytes = body_,                     \
     .on_head = head_,                            \
     .on_request = request_,                      \
     .ctx = m},
        API_ROUTES(X)
#undef X
#define X(path_, method_, body_, head_, request_) \
    {.path = path_,                               \
     .methods = method_,                          \
     .auth = HTTP_AUTH_LOCAL,                     \
     .shape = HTTP_SHAPE_API,                     \
     .body_max_bytes = body_,                     \
     .on_head = head_,                            \
     .on_request = request_,                      \
     .ctx = m},
            LOCAL_ROUTES(X)
#undef X
                {.path = "/api/v1/artifacts/*",
                 .methods = HTTP_GET,
                 .auth = HTTP_AUTH_OPEN,
                 .shape = HTTP_SHAPE_API,
                 .on_request = manage_artifact_show,
                 .ctx = m,
                 .cors = true},
    };

    static_assert(sizeof table / sizeof *table == MANAGE_ROUTES, "the table has its size");
    memcpy(out, table, sizeof table);
}
