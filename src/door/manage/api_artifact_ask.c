/* POST /api/v1/artifacts/ID/retry: a person says that what stood in the way of a delivery is gone;
 * and /identity: that an artifact which cannot be in a merged package is to be sent as it is.
 *
 * The deliverer owns its database, so a request is left for it (store/artifact/request.h), durably,
 * and answered 202; it acts within moments, or when it runs again. Asking twice is asking once. For
 * the administrator on the Unix socket, and service keys with projects:admin.
 *
 * Answers: no such artifact, or none that is accepted, is 404 or 409; too many requests that wait
 * are 429; a disk that fails is 500, and nothing was promised. */
#include "door/manage/api.h"

#include "base/log.h"
#include "store/artifact/delivery.h"
#include "store/artifact/request.h"

#define SHOWN_ID 8

struct asking {
    struct manage *m;
    struct request request;
    int code;
    struct err e;
};

void manage_artifact_retry_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_instance(ctx, req, SCOPE_PROJECTS_ADMIN, &who)) {
        (void)manage_json_head(req);
    }
}

/* Nothing to ask for; what cannot be read now is asked for, and the deliverer knows. */
static int check_packager(struct asking *a)
{
    struct delivery_view v;
    struct err ignored;

    if (a->request.kind != REQUEST_IDENTITY ||
        delivery_view_read(a->m->data, slice_cstr(a->request.object_id), &v, &ignored) < 0) {
        return 0;
    }
    return strcmp(v.packager, "identity") == 0
               ? err_set(&a->e, ERR_INVALID_REQUEST,
                         "it is packed by the identity packager already; see its delivery, and "
                         "retry")
               : 0;
}

static int leave(struct asking *a)
{
    struct slice id = slice_cstr(a->request.object_id);
    struct receipt receipt;
    struct upload_info info;
    int r = receipt_load(a->m->uploads, id, &receipt, &a->e);

    if (r == ERR_NOT_FOUND) {
        return upload_load(a->m->uploads, id, &info, &a->e) == 0
                   ? err_set(&a->e, ERR_NOT_ACCEPTED, "it is not accepted yet")
                   : err_set(&a->e, ERR_NOT_FOUND, "there is no such artifact");
    }
    if (r == 0) {
        r = check_packager(a);
    }
    return r == 0 ? request_put(a->m->data, &a->request, &a->e) : r;
}

static void ask_work(void *ctx)
{
    struct asking *a = ctx;

    a->code = leave(a);
}

static void ask_done(void *ctx, struct http_request *req)
{
    struct asking *a = ctx;
    struct buf b = {0};

    if (a->code != 0) {
        manage_answer_err(req, &a->e);
        return;
    }
    log_line(LOG_INFO, "manage",
             a->request.kind == REQUEST_RETRY ? "another try of %.*s was asked for"
                                              : "an identity package of %.*s was asked for",
             SHOWN_ID, a->request.object_id);
    buf_put_char(&b, '{');
    manage_put_text(&b, "object_id", slice_cstr(a->request.object_id));
    manage_put_text(&b, "asked_for",
                    a->request.kind == REQUEST_RETRY ? SLICE("retry") : SLICE("identity"));
    buf_put_char(&b, '}');
    manage_answer(req, 202, &b);
}

static void ask(void *ctx, struct http_request *req, enum request_kind kind)
{
    struct manage *m = ctx;
    struct slice id = http_path_part(req, 0);
    struct manage_caller who;
    struct err e = {0};
    struct asking *a;

    if (!manage_may_instance(m, req, SCOPE_PROJECTS_ADMIN, &who)) {
        return;
    }
    if (m->uploads == NULL || !upload_id_ok(id)) {
        http_answer_error(req, ERR_NOT_FOUND, "there is no such artifact", (struct slice){0});
        return;
    }
    if (manage_read_body(req, NULL, 0, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    a = arena_calloc(http_arena(req), 1, sizeof *a);
    if (a == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    a->m = m;
    a->request.kind = kind;
    memcpy(a->request.object_id, id.ptr, UPLOAD_ID_LEN);
    if (!http_work(req, ask_work, ask_done, a)) {
        manage_overloaded(req, "too much work is waiting");
    }
}

void manage_artifact_retry(void *ctx, struct http_request *req)
{
    ask(ctx, req, REQUEST_RETRY);
}

void manage_artifact_identity(void *ctx, struct http_request *req)
{
    ask(ctx, req, REQUEST_IDENTITY);
}
