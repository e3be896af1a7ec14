/* create: POST on /files (tus creation and creation-with-upload; artifacts.md 4.2).
 *
 * The loop checks everything that the head says, in the contract's order; then a thread makes the
 * upload and takes the body, if one comes along. A body of the whole length needs no sync of its
 * own for the creation: nobody hears of the id before the receipt is synced. If it is not accepted
 * then, the upload is removed, for nobody can ever ask for it; of any other creation the id is
 * synced before the body is read, and Location is told also when the body breaks.
 *
 * Power failure: an upload that was made and not told goes when its time is over (cleaner.c). */
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"
#include "os/os.h"

static int check_project(const struct artifact *a, const struct metadata *m, struct err *e)
{
    int r = metadata_project(m, e);
    if (r != 0) {
        return r;
    }
    if (a->control == NULL) {
        return err_set(e, ERR_STORE_BUSY, "the projects of this server are not known yet");
    }
    const struct project *p = control_project(a->control, slice_cstr(m->project));
    if (p == NULL) {
        return err_set(e, ERR_INVALID_PROJECT, "there is no such project");
    }
    if (!control_takes_artifacts(a->control, p->id)) {
        return err_set(e, ERR_INVALID_PROJECT, "this project takes no artifacts");
    }
    return 0;
}

static bool needs_checksum(const struct artifact *a, const struct metadata *m)
{
    const struct project *p = control_project(a->control, slice_cstr(m->project));
    return p == NULL || control_requires_checksum(a->control, p->id);
}

/* All that can be refused before there is an upload. */
static int check(const struct artifact *a, const struct tus_head *h, struct metadata *m,
                 struct tus_creation *c, struct checksum *sum, struct err *e)
{
    int r = tus_creation_size(h, a->options.upload_bytes_max, c, e);
    if (r == 0) {
        r = metadata_parse(h->metadata, m, e);
    }
    if (r == 0) {
        r = check_project(a, m, e);
    }
    if (r == 0) {
        r = tus_creation_length(c, e);
    }
    if (r == 0 && (m->has_checksum || needs_checksum(a, m))) {
        r = metadata_checksum(m, e);
    }
    if (r == 0) {
        r = tus_creation_body(h, c, e);
    }
    if (r == 0) {
        r = tus_checksum(h, sum, e);
    }
    if (r == 0 && a->options.issuer[0] == '\0') {
        r = err_set(e, ERR_NO_ISSUER, "this server has no issuer for its receipts: set `issuer`");
    }
    return r;
}

/* ---- on the thread ---- */

/* Nobody knows its id and nobody will. */
static void forget(struct op *op, uint64_t stored_bytes, int end)
{
    struct registry *g = &op->a->registry;
    struct holder h = {.writer = false};
    struct err e = {0};
    room_forget(&op->a->room, op->info.id);
    if (end == ERR_NOT_READY) {
        return; /* no time now: it expires */
    }
    if (stored_bytes > UPLOAD_STEP_BYTES) {
        cleaner_later(op->a, op->info.id, true);
        return;
    }
    memcpy(h.id, op->info.id, sizeof h.id);
    if (registry_try(g, &h) != 0) {
        return; /* the cleaner has it, and may accept it now */
    }
    int r = upload_remove(op->a->uploads, slice_of(op->info.id, UPLOAD_ID_LEN), &e);
    if (r != 0) {
        log_line(LOG_WARN, "artifact", "upload %.8s: not removed: %s", op->info.id, e.text);
    }
    registry_leave(g, &h);
}

static void take_body(struct op *op, struct http_body *body)
{
    struct upload *u = NULL;
    struct err e = {0};
    uint64_t stored_bytes = 0;
    int end = 0;
    registry_name(&op->a->registry, &op->holder, op->info.id);
    int r = upload_open_new(op->a->uploads, &op->info, &u, &e);
    if (r == 0) {
        registry_opened(&op->a->registry, &op->holder, &op->info, 0);
        end = artifact_receive(op, u, body);
        stored_bytes = u->written;
        if (op->location) {
            op_promise_end(op, u);
        }
        upload_close(u); /* it may cut the file: never beside a successor */
    } else {
        outcome_broken(&op->out, op->info.id, &e, "the upload could not be opened");
    }
    registry_leave(&op->a->registry, &op->holder);
    op->location = op->location || op->out.accepted;
    if (!op->location) {
        op->out.has_offset = false;
        op->out.expires_ms = 0;
        forget(op, stored_bytes, end);
    }
}

static void create_work(void *ctx, struct http_body *body)
{
    struct op *op = ctx;
    struct err e = {0};
    bool whole = op->body_bytes == op->info.size;
    const struct room_owner owner = {.project = op->info.project, .address = op->address};
    op->holder.body = body;
    op->holder.address = op->address;
    op->holder.writer = op->body_bytes != 0;
    if (op->holder.writer && registry_enter(&op->a->registry, &op->holder) != 0) {
        outcome_fail(&op->out, ERR_UPLOADS_BUSY, "too many uploads are receiving now");
        op->out.retry_after_s = 1;
        return;
    }
    int r = room_take(&op->a->room, &owner, op->info.size, &op->promise, &e);
    if (r != 0) {
        outcome_no_room(&op->out, "new", &e);
        registry_leave(&op->a->registry, &op->holder);
        return;
    }
    r = upload_create(op->a->uploads, &op->info, !whole, &e);
    if (r != 0) {
        outcome_broken(&op->out, "new", &e, "the upload could not be made");
    } else {
        room_name(&op->a->room, op->promise, op->info.id);
        metric_add(METRIC_ARTIFACT_CREATED, 1);
        op->location = !whole;
        op->out.expires_ms = expires_from(op->a, (int64_t)os_clock_real_ms());
    }
    if (r == 0 && op->holder.writer) {
        take_body(op, body);
    } else if (r == 0) {
        room_leave(&op->a->room, op->promise, op->info.size);
        op->promise = NULL;
    }
    op_promise_end(op, NULL);
    registry_leave(&op->a->registry, &op->holder);
}

/* ---- on the loop ---- */

/* What stands before the path: public_url, else what a believed proxy says, else nothing. */
static struct slice location_base(const struct artifact *a, const struct http_request *req,
                                  char origin[HTTP_ORIGIN_MAX])
{
    const char *url = a->options.public_url;
    if (url[0] == '\0' && http_peer_is(req, &a->options.proxies) &&
        http_forwarded_origin(req, origin)) {
        url = origin;
    }
    return slice_cstr(url);
}

static void create_done(void *ctx, struct http_request *req)
{
    struct op *op = ctx;
    if (op->location) {
        char origin[HTTP_ORIGIN_MAX];
        struct slice s = location_base(op->a, req, origin);
        struct buf b = {0};
        while (s.len > 0 && s.ptr[s.len - 1] == '/') {
            s.len--;
        }
        buf_put_slice(&b, s);
        buf_put_cstr(&b, "/files/");
        buf_put_cstr(&b, op->info.id);
        if (b.failed) {
            outcome_fail(&op->out, ERR_INTERNAL_ERROR, "no memory for the answer");
        } else {
            http_add_header(req, "Location", buf_slice(&b));
        }
        buf_free(&b);
    }
    answer_tus(req, &op->out, 201);
}

void artifact_create(struct artifact *a, struct http_request *req, const struct tus_head *h)
{
    struct metadata m;
    struct tus_creation c;
    struct checksum sum;
    struct err e = {0};
    if (check(a, h, &m, &c, &sum, &e) != 0) {
        answer_refuse(req, &e);
        return;
    }
    struct op *op = op_new(a, req, NULL);
    if (op == NULL) {
        return;
    }
    op->body_bytes = c.body_bytes;
    op->sum = sum;
    op->info.size = c.length;
    op->info.created_ms = (int64_t)os_clock_real_ms();
    (void)snprintf(op->info.project, sizeof op->info.project, "%s", m.project);
    (void)snprintf(op->info.checksum, sizeof op->info.checksum, "%s", m.checksum);
    (void)snprintf(op->info.filename, sizeof op->info.filename, "%s", m.filename);
    ensure(h->metadata.len <= UPLOAD_METADATA_MAX);
    memcpy(op->info.metadata, h->metadata.ptr, h->metadata.len);
    (void)op_start(op, req, create_work, create_done);
}
