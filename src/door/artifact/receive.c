/* receive: a body on its way into an upload (ARCHITECTURE section 3, PERFORMANCE: receiving).
 *
 * One buffer of UPLOAD_PIECE_BYTES (or of what is missing, where that is less), aligned, filled
 * from the socket and given to upload_write; the first piece is shortened so that all later ones
 * end on multiples of it in the file. What came is kept however the body ends: it is synced before
 * anybody hears of it. The last byte brings the acceptance with it, inside the request, also when
 * the body's end is still owed.
 *
 * A request with a checksum of its own (Upload-Checksum) counts as a whole or not at all: what came
 * of it is synced and told only when its body has ended well and fits; else all of it goes again.
 *
 * Power failure: upload.h. What this file tells (Upload-Offset) is synced when it is told.
 * Answers: everything; a failed write or sync rolls the upload back and is told as the offset. */
#include <stdio.h>
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
    bool held;   /* the request has a checksum: it counts as a whole, or not at all */
    int refused; /* held, and it does not count; 0: because of its end */
    struct checksum_run sum;
    struct burst burst;
};

/* Up to want bytes into the buffer; fewer when the body ends. */
static size_t gather(struct receive *rx, size_t want)
{
    struct holder *h = &rx->op->holder;
    size_t have = 0;
    while (have < want && !rx->over) {
        uint64_t since_ns = os_clock_mono_ns();
        atomic_store_explicit(&h->waits_since_ns, since_ns, memory_order_relaxed);
        int64_t n = http_body_read(rx->body, rx->buffer + have, want - have);
        atomic_store_explicit(&h->waits_since_ns, 0, memory_order_relaxed);
        if (n > 0) {
            ensure((uint64_t)n <= want - have);
            have += (size_t)n;
            if (rx->op->forwarded) {
                burst_note(rx->op, &rx->burst, (uint64_t)n, os_clock_mono_ns() - since_ns);
            }
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
            checksum_add(&rx->sum, rx->buffer, n);
            r = upload_write(rx->u, rx->buffer, n, &written, e);
            ensure(r != 0 || written == n);
            rx->at += written;
            if (rx->op->promise != NULL) {
                room_set(&rx->op->a->room, rx->op->promise, size - upload_blocks(rx->u));
            }
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
    case ERR_UPLOAD_NOT_FOUND:
        outcome_fail(out, end, "the upload was terminated");
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

/* Makes the offset one that may be told: what came is synced, or goes. */
static int settle(struct receive *rx, int wrote, struct err *e)
{
    struct err why = {0};
    int r = wrote == ERR_NO_SPACE ? 0 : wrote;
    if (r != 0 || rx->end == ERR_UPLOAD_NOT_FOUND) {
        return r; /* rolled back; or all of it goes anyway */
    }
    if (rx->held) {
        r = upload_discard(rx->u, &why);
        r = r == ERR_NOT_READY ? 0 : r; /* the next open does it */
    } else if (rx->at > atomic_load(&rx->u->synced)) {
        r = upload_sync(rx->u, &why);
    }
    *e = r != 0 ? why : *e;
    return r;
}

static void tell_refused(struct receive *rx)
{
    struct outcome *out = &rx->op->out;
    if (rx->refused == ERR_UPLOAD_SIZE_EXCEEDED) {
        outcome_fail(out, rx->refused, "the body goes past the end of the upload");
    } else if (rx->refused != 0) {
        (void)snprintf(out->text, sizeof out->text,
                       "the body does not have the %s that Upload-Checksum declares; nothing of it "
                       "is kept",
                       checksum_name(rx->sum.declared.algorithm));
        out->code = rx->refused;
    }
}

/* Some bytes are missing: what came is synced, and the offset told. Of a request that has a
 * checksum and does not fit it, nothing is kept. */
static void keep(struct receive *rx, int wrote, struct err *e)
{
    struct outcome *out = &rx->op->out;
    int r = settle(rx, wrote, e);
    out->has_offset = rx->end != ERR_UPLOAD_NOT_FOUND;
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
        tell_refused(rx);
    }
    if (rx->end == ERR_UPLOAD_NOT_FOUND) {
        out->expires_ms = 0;
    }
}

/* Behind the last byte of the upload: a chunked body may have one more. How it ends, or 1. */
static int read_tail(struct receive *rx)
{
    unsigned char more;
    if (rx->over || http_body_left(rx->body) == 0) {
        return 0;
    }
    return (int)http_body_read(rx->body, &more, 1);
}

/* What fitted is kept. */
static void check_tail(struct receive *rx)
{
    if (read_tail(rx) > 0) {
        outcome_fail(&rx->op->out, ERR_UPLOAD_SIZE_EXCEEDED,
                     "the body goes past the end of the upload");
    }
}

/* A request with a checksum: true when it came whole and fits. */
static bool counts(struct receive *rx, int wrote)
{
    int tail = wrote == 0 ? read_tail(rx) : 0;
    if (tail > 0) {
        rx->refused = ERR_UPLOAD_SIZE_EXCEEDED;
    } else if (tail < 0) {
        rx->end = tail;
    } else if (wrote == 0 && rx->end == 0 && !checksum_fits(&rx->sum)) {
        metric_add(METRIC_ARTIFACT_UNFIT, 1);
        rx->refused = ERR_UPLOAD_CHECKSUM_MISMATCH;
    }
    return wrote == 0 && rx->end == 0 && rx->refused == 0;
}

void op_promise_end(struct op *op, const struct upload *u)
{
    struct room *room = &op->a->room;
    if (op->promise != NULL && (op->out.accepted || u == NULL || u->gone)) {
        room_drop(room, op->promise);
    } else if (op->promise != NULL) {
        /* Blocks ahead go back when it is closed. */
        room_leave(room, op->promise, u->info.size - u->written);
    }
    op->promise = NULL;
}

static void finish(struct receive *rx)
{
    struct outcome *out = &rx->op->out;
    int r = find_accept(rx->op->a, rx->u, out);
    op_promise_end(rx->op, rx->u);
    if (r == 0) {
        /* Nobody has to wait for the body's end: the upload is what it stays. Any other is closed
         * first, which may cut it, and has its trail followed. */
        registry_leave(&rx->op->a->registry, &rx->op->holder);
        check_tail(rx);
    }
}

static size_t buffer_bytes(uint64_t missing)
{
    uint64_t n = missing < UPLOAD_PIECE_BYTES ? missing : UPLOAD_PIECE_BYTES;
    return (size_t)(n + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
}

int artifact_receive(struct op *op, struct upload *u, struct http_body *body)
{
    struct err e = {0};
    struct receive rx = {.op = op, .u = u, .body = body, .at = atomic_load(&u->synced)};
    int wrote = 0;
    ensure(rx.at < u->info.size);
    checksum_start(&rx.sum, &op->sum);
    if (op->sum.algorithm != CHECKSUM_NONE) {
        rx.held = true;
        upload_hold(u);
    }
    if (http_body_left(body) != 0) {
        rx.buffer = aligned_alloc(BUFFER_ALIGN, buffer_bytes(u->info.size - rx.at));
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
    if (rx.held && counts(&rx, wrote)) {
        upload_release(u);
        rx.held = false;
    }
    if (wrote == 0 && !rx.held && rx.at == u->info.size) {
        finish(&rx);
    } else {
        keep(&rx, wrote, &e);
    }
    return rx.over ? rx.end : 0;
}
