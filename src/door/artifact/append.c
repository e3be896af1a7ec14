/* append: PATCH on /files/ID (spec/tus.md 4; order of checks: artifacts.md 4.2, decisions).
 *
 * content type -> Upload-Offset -> Upload-Checksum -> known? -> is there a live writer? -> is the
 * offset right? -> already complete: its acceptance is finished -> does Content-Length fit? -> is
 * there room for what is missing? -> the body. Nothing is stored before the last of these.
 *
 * A 409 tells the offset to go on from. A holder that is about to leave is waited for (registry.c),
 * so that a client which lost its connection gets on at its first or second try. */
#include "base/ensure.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

static void refuse_offset(struct op *op, uint64_t offset, const char *text)
{
    op->out.has_offset = true;
    op->out.offset = offset;
    outcome_fail(&op->out, ERR_MISMATCHED_OFFSET, text);
}

/* There is a receipt: to go on from its end is fine, and tells it again. */
static void append_accepted(struct op *op)
{
    ensure(op->out.accepted);
    if (op->offset != op->out.receipt.size_bytes) {
        outcome_fail(&op->out, ERR_MISMATCHED_OFFSET, "the upload is complete and accepted");
    }
}

/* All bytes are there and the receipt is not. */
static void append_complete(struct op *op, struct upload *u)
{
    int r = find_accept(op->a, u, &op->out);
    if (r == 0) {
        append_accepted(op);
    } else if (r == ERR_ACCEPT_FAILED) {
        op->out.has_offset = true;
        op->out.offset = upload_promised(u);
    }
}

/* What is missing must fit beside all others. Who is told "later" keeps the upload while asking. */
static int promise(struct op *op, const struct upload *u)
{
    const struct room_owner owner = {.project = u->info.project, .address = op->address};
    struct err e = {0};
    int r = room_take_again(&op->a->room, u->info.id, &owner, u->info.size - upload_blocks(u),
                            &op->promise, &e);
    if (r != 0) {
        op->out.has_offset = true;
        op->out.offset = atomic_load(&u->synced);
        outcome_no_room(&op->out, u->info.id, &e);
        attempts_note(&op->a->attempts, u->info.id);
    }
    return r;
}

static void append_open(struct op *op, struct upload *u, struct http_body *body)
{
    uint64_t synced = atomic_load(&u->synced);
    uint64_t left = http_body_left(body);
    if (synced == u->info.size) {
        append_complete(op, u);
    } else if (op->offset != synced) {
        refuse_offset(op, synced, "Upload-Offset is not where the upload is");
    } else if (left != UINT64_MAX && left > u->info.size - synced) {
        op->out.has_offset = true;
        op->out.offset = synced;
        outcome_fail(&op->out, ERR_UPLOAD_SIZE_EXCEEDED,
                     "the body goes past the end of the upload");
    } else if (left == 0) {
        (void)artifact_receive(op, u, body); /* nothing to find room for */
    } else if (promise(op, u) == 0) {
        metric_add(METRIC_ARTIFACT_RESUMED, synced > 0 ? 1 : 0);
        (void)artifact_receive(op, u, body);
    }
}

static void append_held(struct op *op, const struct holder_seen *seen, int code)
{
    if (code == ERR_UPLOADS_BUSY) {
        outcome_fail(&op->out, code, "too many uploads are receiving now");
        op->out.retry_after_s = 1;
        attempts_note(&op->a->attempts, op->holder.id);
    } else {
        refuse_offset(op, seen->told, "another request is writing this upload");
        op->out.has_offset = seen->open;
        op->out.retry_after_s = 1;
    }
}

static void append_work(void *ctx, struct http_body *body)
{
    struct op *op = ctx;
    struct holder_seen seen = {.open = false};
    struct upload *u = NULL;
    int r = find_upload(op);
    if (r == FOUND_ACCEPTED) {
        append_accepted(op);
        return;
    }
    if (r != 0) {
        return;
    }
    op->holder.body = body;
    op->holder.writer = true;
    op->holder.address = op->address;
    r = registry_hold(&op->a->registry, &op->holder, &seen);
    if (r != 0) {
        append_held(op, &seen, r);
        return;
    }
    if (find_open(op, &u) == 0) {
        append_open(op, u, body);
        op_promise_end(op, u);
    }
    upload_close(u); /* it may cut the file: never beside a successor */
    registry_leave(&op->a->registry, &op->holder);
}

static void append_done(void *ctx, struct http_request *req)
{
    struct op *op = ctx;
    answer_tus(req, &op->out, 204);
}

void artifact_append(struct artifact *a, struct http_request *req, const struct tus_head *h,
                     const char *id)
{
    struct err e = {0};
    struct checksum sum;
    uint64_t offset = 0;
    if (tus_append(h, &offset, &e) != 0 || tus_checksum(h, &sum, &e) != 0) {
        answer_refuse(req, &e);
        return;
    }
    struct op *op = op_new(a, req, id);
    if (op == NULL) {
        return;
    }
    op->offset = offset;
    op->sum = sum;
    op->forwarded = http_was_forwarded(req);
    if (!op_start(op, req, append_work, append_done)) {
        attempts_note(&a->attempts, id);
    }
}
