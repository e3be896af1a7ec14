/* api: what the files of the management API share (internal to door/manage). */
#ifndef DOOR_MANAGE_API_H
#define DOOR_MANAGE_API_H

#include "base/buf.h"
#include "door/manage/manage.h"
#include "store/artifact/settings.h"
#include "store/control.h"
#include "store/queue.h"
#include "json/read.h"

#define MANAGE_BODY_MAX       (64u << 10)
#define MANAGE_QUERY_BODY_MAX (512u << 10) /* ClickHouse takes statements of 256 KiB */
#define MANAGE_PAGE_BYTES     (8u << 20)   /* a list of stored texts ends after so many */

/* Who asks. Pointers are good for this turn. */
struct manage_caller {
    const struct project *project; /* of the path; NULL on routes without one */
    const struct key *key;         /* NULL: the administrator, on the Unix socket */
};

/* The answer while the queue waits for space (m->store_cause); false. */
bool manage_no_store(const struct manage *m, struct http_request *req);

/* True: may ask; else answered (401, 403, 404). One of the scopes is enough; 0: any service key.
 * The first '*' of the path is the project. */
bool manage_may_project(struct manage *m, struct http_request *req, unsigned scopes,
                        struct manage_caller *who);
bool manage_may_instance(struct manage *m, struct http_request *req, unsigned scopes,
                         struct manage_caller *who);
/* What heads of requests with a JSON body must say: no query, no coding, application/json. */
bool manage_json_head(struct http_request *req);

struct manage_member {
    const char *name;
    enum json_type type; /* JSON_STRING, JSON_ARRAY or JSON_OBJECT */
    bool required;
    bool given;
    struct slice value; /* a string's text, unescaped; JSON of the others */
};
/* Reads the body: one object with these members and no others, strict JSON. Values live in the
 * request's arena. 0, ERR_INVALID_REQUEST (e->text names the member), ERR_NO_MEMORY. */
int manage_read_body(struct http_request *req, struct manage_member *members, size_t count,
                     struct err *e) MUST_CHECK;
/* The same of an object inside a body that was read; within names it in e->text. */
int manage_read_object(struct http_request *req, const char *within, struct slice object,
                       struct manage_member *members, size_t count, struct err *e) MUST_CHECK;
/* The text of a JSON string value (already checked), in the arena; ptr NULL without memory. */
struct slice manage_text(struct arena *a, struct slice inner);
/* A positive decimal of at most 18 digits. */
bool manage_number(struct slice s, uint64_t *out);
/* One parameter of the query. *bit: one that no other has. 0, or what is wrong with it. */
typedef int manage_param_fn(void *ctx, struct arena *a, struct slice name, struct slice value,
                            unsigned *bit, struct err *e);
/* The whole query, each parameter at most once. 0, ERR_INVALID_REQUEST, ERR_NO_MEMORY, or what set
 * gave. */
int manage_read_params(struct http_request *req, manage_param_fn *set, void *ctx,
                       struct err *e) MUST_CHECK;

/* Answers with *b and frees it. */
void manage_answer(struct http_request *req, unsigned status, struct buf *b);
/* The answer to a failure; what is not the client's fault is logged, and stays inside. */
void manage_answer_err(struct http_request *req, const struct err *e);
/* The same for a job of the store that was not done: what `done` was told. */
void manage_answer_job(struct http_request *req, int code, const struct err *e);
void manage_overloaded(struct http_request *req, const char *message);

/* `"name":"2026-11-30T12:00:00.000Z"`, or null for 0. */
void manage_put_time(struct buf *b, const char *name, int64_t ms);
void manage_put_id(struct buf *b, const char *name, int64_t id); /* `"name":"12"` */
void manage_put_number(struct buf *b, const char *name, uint64_t v);
void manage_put_flag(struct buf *b, const char *name, bool v);
void manage_put_text(struct buf *b, const char *name, struct slice text);

/* ---- delivery of a project: what the loop knows, then what the store does ---- */
struct manage_delivery {
    int64_t project;
    bool enabled;
    char error[200]; /* why rows do not go out now */
    struct queue_project_status status;
};
void manage_delivery_begin(struct manage *m, const struct http_request *req, int64_t project,
                           struct manage_delivery *d);
/* Any thread; blocks. */
int manage_delivery_read(const char *data, struct manage_delivery *d, struct err *e) MUST_CHECK;
void manage_put_delivery(struct buf *b, const struct manage_delivery *d); /* one JSON object */

/* ---- settings of a project's artifacts ---- */
struct manage_settings {
    struct manage *m;
    int64_t key;                /* who asks; 0: the administrator */
    struct slice object;        /* as it was given; strict JSON, in the request's arena */
    struct artifact_sink given; /* on top of nothing */
    int code;                   /* of the look */
    struct err e;
};
/* Members by themselves are checked. ERR_INVALID_PROJECT (e->text names the member),
 * ERR_NO_MEMORY. *out is in the arena. */
int manage_settings_read(struct manage *m, struct http_request *req,
                         const struct manage_caller *who, struct slice object,
                         struct manage_settings **out, struct err *e) MUST_CHECK;
/* Any thread; blocks. Whether paths are where they may be: s->code, s->e. */
void manage_settings_look(struct manage_settings *s);
/* A line of the log that says who did what. */
void manage_settings_log(const struct manage_settings *s, const struct project *p,
                         const char *what);
/* One JSON object with all members, or null. */
void manage_put_artifacts(struct buf *b, const struct artifact_destination *d);

/* ---- artifacts ---- */
struct delivery_look;
/* Any thread; blocks. Appends what GET /api/v1/artifacts/ID answers; views NULL: a look of its own.
 * ERR_NOT_FOUND, ERR_GONE, and what reading returns; *out is as it was then. */
int manage_artifact_put(struct manage *m, struct slice id, struct delivery_look *views,
                        struct buf *out, struct err *e) MUST_CHECK;

/* ---- keys ---- */
/* The members of PROJECT, without braces. */
void manage_put_project(struct buf *b, const struct control *c, const struct project *p);
/* A KEY. text: of a service key that was made just now, else NULL. */
void manage_put_key(struct buf *b, const struct key *k, const char *text);
void manage_put_keys(struct buf *b, const struct control *c, int64_t project);

/* ---- the routes ---- */
void manage_projects_head(void *ctx, struct http_request *req);
void manage_projects_list(void *ctx, struct http_request *req);
void manage_projects_create_head(void *ctx, struct http_request *req);
void manage_projects_create(void *ctx, struct http_request *req);
void manage_project_head(void *ctx, struct http_request *req);
void manage_project_show(void *ctx, struct http_request *req);
void manage_project_change_head(void *ctx, struct http_request *req);
void manage_project_change(void *ctx, struct http_request *req);
void manage_keys_head(void *ctx, struct http_request *req);
void manage_keys_list(void *ctx, struct http_request *req);
void manage_keys_create_head(void *ctx, struct http_request *req);
void manage_keys_create(void *ctx, struct http_request *req);
void manage_keys_revoke(void *ctx, struct http_request *req);
void manage_project_status_head(void *ctx, struct http_request *req);
void manage_project_status(void *ctx, struct http_request *req);
void manage_status_head(void *ctx, struct http_request *req);
void manage_status(void *ctx, struct http_request *req);
void manage_seal(void *ctx, struct http_request *req);
void manage_seal_show(void *ctx, struct http_request *req);
void manage_artifact_show(void *ctx, struct http_request *req);
void manage_artifacts_query_head(void *ctx, struct http_request *req);
void manage_artifacts_query(void *ctx, struct http_request *req);
void manage_deliveries_head(void *ctx, struct http_request *req);
void manage_deliveries_list(void *ctx, struct http_request *req);
void manage_artifact_retry_head(void *ctx, struct http_request *req);
void manage_artifact_retry(void *ctx, struct http_request *req);
void manage_artifact_identity(void *ctx, struct http_request *req); /* with the same head */
void manage_sinks_show(void *ctx, struct http_request *req);
void manage_sinks_head(void *ctx, struct http_request *req);
void manage_sinks_pause(void *ctx, struct http_request *req);
void manage_sinks_resume(void *ctx, struct http_request *req);
void manage_rejected_head(void *ctx, struct http_request *req);
void manage_rejected_list(void *ctx, struct http_request *req);
void manage_query_head(void *ctx, struct http_request *req);
void manage_query_request(void *ctx, struct http_request *req);

#endif
