/* ask: HEAD and GET on /files/ID, which answer alike (a cache that makes one of the other changes
 * nothing, cases T13), and GET on /api/v1/receipts/ID.
 *
 * Both finish an acceptance that was interrupted. HEAD of an upload that is known is 200, 404 or
 * 410, never a 5xx: clients would throw away all of their progress (spec/client-wire.md 6). What a
 * failing disk keeps from being known is told as less: an offset that is too low costs one 409.
 *
 *   receipt                    HEAD 200, offset = length, Artifact-Receipt     GET 200
 *   refused for good           410                                             410
 *   somebody is writing it     200, what is synced                             409
 *   complete, not accepted     accepted first; else 200 below the length       the same; else 409
 *   else                       200, what is synced                             409
 *
 * A brief answer (artifact.c) is what the files say: it waits for nobody and finishes nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "door/artifact/internal.h"
#include "os/os.h"

static struct slice id_of(const struct op *op)
{
    return slice_of(op->holder.id, UPLOAD_ID_LEN);
}

static void tell_offset(struct op *op, uint64_t offset, int64_t activity_ms)
{
    op->out.has_offset = true;
    op->out.offset = offset;
    op->out.expires_ms = expires_from(op->a, activity_ms);
}

/* What ID.state says, or less. */
static uint64_t saved_offset(const struct op *op)
{
    struct err e = {0};
    uint64_t offset = 0;
    ensure(op->has_info);
    if (upload_synced_offset(op->a->uploads, id_of(op), &offset, &e) != 0) {
        log_line(LOG_WARN, "artifact", "upload %.8s: %s", op->holder.id, e.text);
        return 0;
    }
    return offset < op->info.size || offset == 0 ? offset : op->info.size - 1;
}

/* No failure any more: what the upload was declared as is known. */
static void tell_less(struct op *op, uint64_t offset)
{
    op->out = (struct outcome){0};
    tell_offset(op, offset, cleaner_activity_ms(op->a, op->holder.id));
}

static void ask_open(struct op *op)
{
    struct upload *u = NULL;
    int r = find_open(op, &u);
    if (r == 0 && atomic_load(&u->synced) == u->info.size) {
        r = find_accept(op->a, u, &op->out);
        if (r == ERR_CHECKSUM_MISMATCH || r == ERR_GONE) {
            op->out.code = ERR_GONE; /* as it will be from now on */
        } else if (r != 0) {
            tell_less(op, upload_promised(u));
        }
    } else if (r == 0) {
        tell_offset(op, upload_promised(u), cleaner_activity_ms(op->a, op->holder.id));
    } else if (r != ERR_UPLOAD_NOT_FOUND && r != ERR_GONE) {
        tell_less(op, saved_offset(op));
    }
    upload_close(u);
    registry_leave(&op->a->registry, &op->holder);
}

/* HEAD, and the receipt, or what would say that there is none, cannot be read. A receipt that is
 * there and damaged is an acceptance all the same. */
static void ask_blind(struct op *op, int code)
{
    struct err e = {0};
    if (!op->has_info && upload_load(op->a->uploads, id_of(op), &op->info, &e) != 0) {
        return;
    }
    op->has_info = true;
    tell_less(op, code == ERR_CORRUPT ? op->info.size : saved_offset(op));
}

/* True: an upload without a receipt. Anything else is the answer. */
static bool is_partial(struct op *op)
{
    struct err e = {0};
    int r = find_upload(op);
    if (r == FOUND_ACCEPTED) {
        op->has_info = upload_load(op->a->uploads, id_of(op), &op->info, &e) == 0;
    } else if (r != ERR_UPLOAD_NOT_FOUND && r != ERR_GONE && op->head) {
        ask_blind(op, r);
    }
    return r == 0;
}

/* Nobody else has it; or nobody is waited for, and what is synced is told. */
static void ask_held(struct op *op)
{
    bool partial = is_partial(op);
    if (partial && op->brief) {
        tell_offset(op, saved_offset(op), cleaner_activity_ms(op->a, op->holder.id));
    } else if (partial) {
        ask_open(op);
    }
    registry_leave(&op->a->registry, &op->holder);
}

static void ask_live(struct op *op, struct holder_seen *seen)
{
    if (seen->open) {
        op->info = seen->info;
        op->has_info = true;
        tell_offset(op, seen->told, (int64_t)os_clock_real_ms());
        return;
    }
    /* It is being opened, or removed, for long: what its files say. */
    if (is_partial(op)) {
        tell_offset(op, saved_offset(op), (int64_t)os_clock_real_ms());
    }
}

static void ask_work(void *ctx, struct http_body *body)
{
    struct op *op = ctx;
    struct holder_seen seen = {.open = false};
    (void)body;
    int r = op->brief ? 0 : registry_hold(&op->a->registry, &op->holder, &seen);
    if (r == 0) {
        ask_held(op);
    } else {
        ask_live(op, &seen);
    }
}

static void head_done(void *ctx, struct http_request *req)
{
    struct op *op = ctx;
    char length[24];
    uint64_t size = op->out.accepted ? op->out.receipt.size_bytes : op->info.size;
    op_end(op);
    if (op->out.code == 0) {
        ensure(op->has_info || op->out.accepted);
        (void)snprintf(length, sizeof length, "%llu", (unsigned long long)size);
        http_add_header(req, "Upload-Length", slice_cstr(length));
        if (op->has_info && op->info.metadata[0] != '\0') {
            http_add_header(req, "Upload-Metadata", slice_cstr(op->info.metadata));
        }
    } else if (op->out.code == ERR_INTERNAL_ERROR) {
        op->out.status = 503; /* what was declared cannot be read: later, perhaps */
        op->out.retry_after_s = LOW_SPACE_RETRY_S;
    }
    answer_tus(req, &op->out, 200);
}

static void receipt_done(void *ctx, struct http_request *req)
{
    struct op *op = ctx;
    const struct outcome *out = &op->out;
    struct slice none = {0};
    op_end(op);
    http_add_header(req, "Cache-Control", SLICE("no-store"));
    if (out->accepted) {
        char text[RECEIPT_BYTES_MAX + 1];
        memcpy(text, out->receipt.json, out->receipt.json_len);
        text[out->receipt.json_len] = '\n';
        http_answer(req, 200, "application/json", slice_of(text, out->receipt.json_len + 1));
    } else if (out->code == 0) {
        http_answer_error(req, ERR_NOT_ACCEPTED, "the upload is not accepted yet", none);
    } else if (out->code == ERR_UPLOAD_NOT_FOUND) {
        http_answer_error(req, ERR_NOT_FOUND, out->text, none);
    } else {
        http_answer_error(req, out->code, out->text, none);
    }
}

void artifact_head(struct artifact *a, struct http_request *req, const char *id)
{
    struct op *op = op_new(a, req, id);
    if (op != NULL) {
        op->head = true;
        op->asks = true;
        (void)op_start(op, req, ask_work, head_done);
    }
}

void artifact_receipt(struct artifact *a, struct http_request *req, const char *id)
{
    struct op *op = op_new(a, req, id);
    if (op != NULL) {
        op->asks = true;
        (void)op_start(op, req, ask_work, receipt_done);
    }
}
