/* find: what there is of an upload, on the thread of a request that names it.
 *
 * The receipt comes first: it is the acceptance, whatever has become of the bytes. Then the refusal
 * for good, then the upload. A description that cannot be read is 410 too: the client then starts
 * anew, which is all that helps (cases T38; HEAD must not be a 5xx of a known upload).
 *
 * Power failure: an acceptance that was interrupted is finished here, by whoever asks next. */
#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"

static struct slice id_of(const struct op *op)
{
    return slice_of(op->holder.id, UPLOAD_ID_LEN);
}

static int unknown(struct op *op)
{
    outcome_fail(&op->out, ERR_UPLOAD_NOT_FOUND, "there is no such upload");
    return ERR_UPLOAD_NOT_FOUND;
}

/* The reason, where one was written down. */
static int gone(struct op *op, const char *otherwise)
{
    char reason[UPLOAD_REASON_MAX];
    bool told = upload_gone(op->a->uploads, id_of(op), reason);
    outcome_fail(&op->out, ERR_GONE, told ? reason : otherwise);
    return ERR_GONE;
}

static void stopping(struct outcome *out)
{
    outcome_fail(out, ERR_SERVER_SHUTDOWN, "the server stops; ask again");
    out->retry_after_s = SHUTDOWN_RETRY_S;
}

static int broken(struct op *op, const struct err *e)
{
    outcome_broken(&op->out, op->holder.id, e, "the upload cannot be read now");
    return e->code;
}

int find_upload(struct op *op)
{
    struct err e = {0};
    char reason[UPLOAD_REASON_MAX];
    int r = receipt_load(op->a->uploads, id_of(op), &op->out.receipt, &e);
    if (r == 0) {
        outcome_accept(&op->out, &op->out.receipt);
        return FOUND_ACCEPTED;
    }
    if (r != ERR_NOT_FOUND) {
        return broken(op, &e);
    }
    if (upload_gone(op->a->uploads, id_of(op), reason)) {
        outcome_fail(&op->out, ERR_GONE, reason);
        return ERR_GONE;
    }
    r = upload_load(op->a->uploads, id_of(op), &op->info, &e);
    op->has_info = r == 0;
    if (r == ERR_NOT_FOUND) {
        return unknown(op);
    }
    if (r == ERR_CORRUPT) {
        log_line(LOG_ERROR, "artifact", "upload %.8s: %s", op->holder.id, e.text);
        return gone(op, "what was declared of this upload is lost");
    }
    return r == 0 ? 0 : broken(op, &e);
}

int find_open(struct op *op, struct upload **u)
{
    struct err e = {0};
    int r = upload_open(op->a->uploads, id_of(op), u, &e);
    if (r == 0) {
        op->info = (*u)->info; /* others read it until the holder leaves: *u is closed before */
        registry_opened(&op->a->registry, &op->holder, &op->info, upload_promised(*u));
        return 0;
    }
    if (r == ERR_NOT_FOUND) {
        return unknown(op);
    }
    if (r == ERR_GONE || r == ERR_CORRUPT) {
        log_line(LOG_ERROR, "artifact", "upload %.8s: %s", op->holder.id, e.text);
        return gone(op, "bytes of this upload are lost");
    }
    if (r == ERR_NOT_READY) {
        stopping(&op->out);
        return r;
    }
    return broken(op, &e);
}

int find_accept(struct artifact *a, struct upload *u, struct outcome *out)
{
    struct err e = {0};
    int r = upload_accept(u, &out->receipt, NULL, &e);
    if (r == 0) {
        metric_add(METRIC_ARTIFACT_ACCEPTED, 1);
        log_line(LOG_INFO, "artifact", "upload %.8s: accepted, %llu bytes", u->info.id,
                 (unsigned long long)out->receipt.size_bytes);
        outcome_accept(out, &out->receipt);
    } else if (r == ERR_CHECKSUM_MISMATCH) {
        metric_add(METRIC_ARTIFACT_MISMATCHES, 1);
        log_line(LOG_WARN, "artifact", "upload %.8s: %s", u->info.id, e.text);
        outcome_fail(out, r, e.text);
        if (u->info.size > UPLOAD_STEP_BYTES) {
            cleaner_later(a, u->info.id, false);
        }
    } else if (r == ERR_NOT_READY) {
        stopping(out);
    } else if (r == ERR_NO_SPACE) {
        outcome_broken(out, u->info.id, &e, "");
        out->has_offset = true;
        out->offset = upload_promised(u);
        r = ERR_ACCEPT_FAILED;
    } else {
        metric_add(METRIC_ARTIFACT_FAILURES, 1);
        log_line(LOG_ERROR, "artifact", "upload %.8s: not accepted: %s", u->info.id, e.text);
        outcome_fail(out, ERR_ACCEPT_FAILED, "the upload could not be accepted; ask again");
        r = r == ERR_GONE ? r : ERR_ACCEPT_FAILED;
    }
    return r;
}
