/* terminate: DELETE on /files/ID (tus, extension `termination`; artifacts.md, decisions).
 *
 * It needs no more than the id. A request that writes the upload is ended, live or not, and waited
 * for: a client that aborts closes its connection and deletes at once, before we may have seen the
 * first. An accepted upload is nobody's to delete: 403.
 *
 * Whoever asks meanwhile waits: only what has gone is answered as gone.
 *
 *   receipt                 403          refused for good      410, as it was
 *   no such upload          404          else                  204, and 404 or 410 from then on
 *
 * Power failure: 204 is told when the removal is durable, or, of a large upload, ID.gone is (on a
 * full disk: ID.info is no more): its bytes are freed by the cleaner, step by step. Before that
 * there is an upload, whole or gone. */
#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"

static void refuse_accepted(struct outcome *out)
{
    *out = (struct outcome){0};
    outcome_fail(out, ERR_UPLOAD_ACCEPTED, "the upload is accepted: it stays");
}

static void terminate_found(struct op *op)
{
    struct err e = {0};
    bool left = false;
    int r = upload_terminate(op->a->uploads, slice_of(op->holder.id, UPLOAD_ID_LEN), &left, &e);
    if (r == 0) {
        room_forget(&op->a->room, op->holder.id);
        metric_add(METRIC_ARTIFACT_TERMINATED, 1);
        log_line(LOG_INFO, "artifact", "upload %.8s: terminated by its client", op->holder.id);
    } else if (r == ERR_REFUSED) {
        refuse_accepted(&op->out);
    } else if (r == ERR_NOT_FOUND) {
        outcome_fail(&op->out, ERR_UPLOAD_NOT_FOUND, "there is no such upload");
    } else if (r == ERR_NOT_READY) {
        outcome_fail(&op->out, ERR_SERVER_SHUTDOWN, "the server stops; ask again");
        op->out.retry_after_s = SHUTDOWN_RETRY_S;
    } else {
        outcome_broken(&op->out, op->holder.id, &e, "the upload could not be removed; ask again");
    }
    if (left) {
        cleaner_later(op->a, op->holder.id, false);
    }
}

static void terminate_held(struct op *op)
{
    outcome_fail(&op->out, ERR_UPLOADS_BUSY, "the upload is being finished; ask again");
    op->out.retry_after_s = 1;
}

static void terminate_work(void *ctx, struct http_body *body)
{
    struct op *op = ctx;
    (void)body;
    op->holder.removes = true;
    int r = registry_hold(&op->a->registry, &op->holder, NULL);
    if (r != 0) {
        terminate_held(op);
        return;
    }
    r = find_upload(op);
    if (r == FOUND_ACCEPTED) {
        refuse_accepted(&op->out);
    } else if (r == 0) {
        terminate_found(op);
    }
    registry_leave(&op->a->registry, &op->holder);
}

static void terminate_done(void *ctx, struct http_request *req)
{
    struct op *op = ctx;
    answer_tus(req, &op->out, 204);
}

void artifact_terminate(struct artifact *a, struct http_request *req, const char *id)
{
    struct op *op = op_new(a, req, id);
    if (op != NULL) {
        (void)op_start(op, req, terminate_work, terminate_done);
    }
}
