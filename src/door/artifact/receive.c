/* receive: a body on its way into an upload (ARCHITECTURE section 3, PERFORMANCE: receiving).
 *
 * One buffer of UPLOAD_PIECE_BYTES, aligned, filled from the socket and given to upload_write; the
 * first piece is shortened so that all later ones end on multiples of it in the file. What came is
 * kept however the body ends: it is synced before anybody hears of it. The last byte brings the
 * acceptance with it, inside the request, also when the body's end is still owed.
 *
 * Power failure: upload.h. What this file tells (Upload-Offset) is synced when it is told.
 * Answers: everything; a failed write or sync rolls the upload back and is told as the offset. */
#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

#define BUFFER_ALIGN       4096
#define OUT_OF_MEMORY_TEXT "no memory for the body now"

struct receive {
    struct op *op;
    struct upload *u;
    struct http_body *body;
    unsigned char *buffer;
    uint64_t at; /* bytes of the upload that are written */
    bool over;   /* the body has ended, as `end` says */
    int end;
};

/* Up to want bytes into the buffer; fewer when the body ends. */
static size_t gather(struct receive *rx, size_t want)
{
    struct holder *h = &rx->op->holder;
    size_t have = 0;
    while (have < want && !rx->over) {
        atomic_store_explicit(&h->waits_since_ns, os_clock_mono_ns(), memory_order_relaxed);
        int64_t n = http_body_read(rx->body, rx->buffer + have, want - have);
        atomic_store_explicit(&h->waits_since_ns, 0, memory_order_relaxed);
        if (n > 0) {
            ensure((uint64_t)n <= want - have);
            have += (size_t)n;
            atomic_fetch_add_explicit(&h->received, (uint64_t)n, memory_order_relaxed);
        } else {
            rx->over = true;
            rx->end = (int)n;
        }
    }
    metric_add(METRIC_ARTIFACT_BYTES, have);
    return have;
}

/* Until the body ends or the upload is full. 0, or the code of a failed write. */
static int take_body(struct receive *rx, struct err *e)
{
    const uint64_t size = rx->u->info.size;
    int r = 0;
    while (r == 0 && !rx->over && rx->at < size) {
        uint64_t room = UPLOAD_PIECE_BYTES - rx->at % UPLOAD_PIECE_BYTES;
        uint64_t left = size - rx->at;
        size_t written = 0;
        size_t n = gather(rx, (size_t)(room < left ? room : left));
        if (n > 0) {
            r = upload_write(rx->u, rx->buffer, n, &written, e);
            ensure(r != 0 || written == n);
            rx->at += written;
            holder_tell(&rx->op->holder, atomic_load(&rx->u->synced));
        }
    }
    return r;
}

/* How the body ended, when all that came is synced and some is missing. */
static void tell_end(struct outcome *out, int end)
{
    switch (end) {
    case 0:
        break;
    case ERR_REQUEST_TIMEOUT:
        outcome_fail(out, end, "the body comes too slowly; go on from the offset");
        break;
    case ERR_UPLOAD_INTERRUPTED:
        outcome_fail(out, end, "another request goes on with this upload");
        break;
    case ERR_NOT_READY:
        outcome_fail(out, ERR_SERVER_SHUTDOWN, "the server stops; go on from the offset");
        out->retry_after_s = SHUTDOWN_RETRY_S;
        break;
    case ERR_BAD_REQUEST:
        outcome_fail(out, end, "the body's chunks are malformed");
        break;
    case ERR_CONNECT:
    default:
        outcome_fail(out, ERR_UPLOAD_INTERRUPTED, "the connection ended before the body did");
        break;
    }
}

/* Some bytes are missing: what came is synced, and the offset told. */
static void keep(struct receive *rx, int wrote, struct err *e)
{
    struct outcome *out = &rx->op->out;
    int r = wrote == ERR_NO_SPACE ? 0 : wrote;
    struct err sync = {0};
    if (r == 0 && rx->at > atomic_load(&rx->u->synced)) {
        r = upload_sync(rx->u, &sync);
        *e = r != 0 ? sync : *e;
    }
    out->has_offset = true;
    out->offset = upload_promised(rx->u);
    /* What the cleaner goes by: a body without a byte puts nothing off. */
    out->expires_ms = expires_from(rx->op->a, cleaner_activity_ms(rx->op->a, rx->u->info.id));
    if (r == ERR_GONE) {
        outcome_broken(out, rx->u->info.id, e, "bytes of this upload are lost");
        outcome_fail(out, ERR_GONE, "bytes of this upload are lost");
        out->has_offset = false;
        out->expires_ms = 0;
    } else if (r != 0 || wrote == ERR_NO_SPACE) {
        outcome_broken(out, rx->u->info.id, e, "bytes could not be stored; go on from the offset");
    } else {
        tell_end(out, rx->end);
    }
}

/* Behind the last byte of the upload: a chunked body may have one more. What fitted is kept. */
static void check_tail(struct receive *rx)
{
    struct outcome *out = &rx->op->out;
    unsigned char more;
    if (rx->over || http_body_left(rx->body) == 0) {
        return;
    }
    if (http_body_read(rx->body, &more, 1) > 0) {
        outcome_fail(out, ERR_UPLOAD_SIZE_EXCEEDED, "the body goes past the end of the upload");
    }
}

static void finish(struct receive *rx)
{
    struct outcome *out = &rx->op->out;
    int r = find_accept(rx->u, out);
    /* Nobody has to wait for the rest: the upload is what it stays. */
    registry_leave(&rx->op->a->registry, &rx->op->holder);
    if (r == 0) {
        check_tail(rx);
    }
}

int artifact_receive(struct op *op, struct upload *u, struct http_body *body)
{
    struct err e = {0};
    struct receive rx = {.op = op, .u = u, .body = body, .at = atomic_load(&u->synced)};
    int wrote = 0;
    ensure(rx.at < u->info.size);
    if (http_body_left(body) != 0) {
        rx.buffer = aligned_alloc(BUFFER_ALIGN, UPLOAD_PIECE_BYTES);
        if (rx.buffer == NULL) {
            outcome_fail(&op->out, ERR_UPLOADS_BUSY, OUT_OF_MEMORY_TEXT);
            op->out.retry_after_s = 1;
            return ERR_NO_MEMORY;
        }
        registry_set_state(&op->a->registry, &op->holder, HOLDER_RECEIVING);
        wrote = take_body(&rx, &e);
        registry_set_state(&op->a->registry, &op->holder, HOLDER_BUSY);
    }
    free(rx.buffer);
    if (wrote == 0 && rx.at == u->info.size) {
        finish(&rx);
    } else {
        keep(&rx, wrote, &e);
    }
    return rx.over ? rx.end : 0;
}
