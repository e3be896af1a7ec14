/* artifact: life of the artifact door, its paths, and the way of a request to its thread
 * (spec/artifacts.md 4, tus.md 3).
 *
 * Order on /files: method override -> free space (POST and PATCH) -> version -> method -> id. An id
 * that is none is 404 before anything else is looked at, and no path is ever made of it (hole 15,
 * cases T40). HEAD is never stopped by a full disk.
 *
 * All routes are open to anybody who reaches the port, and to any web page: who knows an id may
 * resume the upload and read its receipt. */
#include "door/artifact/artifact.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "door/artifact/internal.h"

#define TRAIL_THREADS 2 /* read back what was stored; more than the cores would help nobody */
#define SYNC_THREADS  3 /* beside the caller's: an acceptance syncs four things at once */

/* Beside Retry-After, which the front always names. Two of them are never sent, and are there for
 * clients that look for them in this list. */
#define EXPOSE                                                                       \
    "Location, Upload-Offset, Upload-Length, Upload-Metadata, Upload-Defer-Length, " \
    "Upload-Concat, Upload-Expires, Tus-Resumable, Tus-Version, Tus-Extension, "     \
    "Tus-Max-Size, Tus-Checksum-Algorithm, Artifact-Receipt"

/* ---- a request's work ---- */

struct op *op_new(struct artifact *a, struct http_request *req, const char *id)
{
    struct op *op = arena_calloc(http_arena(req), 1, sizeof *op);
    if (op == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for the request now", (struct slice){0});
        return NULL;
    }
    op->a = a;
    op->out.low_space_status = a->options.low_space_status;
    http_client_address(req, &a->options.proxies, op->address);
    if (id != NULL) {
        memcpy(op->holder.id, id, sizeof op->holder.id);
    }
    return op;
}

static void work_briefly(void *ctx)
{
    struct op *op = ctx;
    op->brief = true;
    op->work(op, NULL);
}

/* A question takes no body, so a thread of the pool will do when all others are taken: a 503 would
 * make its client give up what it has sent. All doors share the pool, so that its answer must be a
 * brief one. Strangers who ask many questions about an upload that is being finished get no more
 * than their share of the threads: uploads need the rest. */
static bool start(struct op *op, struct http_request *req, http_fn *done)
{
    if (!(op->asks && op->a->askers >= ASKERS_MAX) && http_thread(req, op->work, done, op)) {
        op->asker = op->asks;
        op->a->askers += op->asks ? 1 : 0;
        return true;
    }
    return op->asks && http_work(req, work_briefly, done, op);
}

void op_end(struct op *op)
{
    ensure(!op->asker || op->a->askers > 0);
    op->a->askers -= op->asker ? 1 : 0;
    op->asker = false;
}

bool op_start(struct op *op, struct http_request *req,
              void (*work)(void *ctx, struct http_body *body), http_fn *done)
{
    op->work = work;
    if (start(op, req, done)) {
        return true;
    }
    http_add_header(req, "Retry-After", SLICE("1"));
    http_answer_error_status(req, 503, ERR_UPLOADS_BUSY,
                             "too many requests of this kind are under way");
    return false;
}

/* ---- /files ---- */

/* Upload-Metadata's lines as one list. */
static bool read_metadata(struct http_request *req, struct slice *out)
{
    struct slice line;
    size_t len = 0;
    unsigned count = 0;
    while (http_header_at(req, "upload-metadata", count, &line)) {
        len += line.len + 1;
        count++;
    }
    *out = (struct slice){.ptr = ""};
    if (count == 1) {
        (void)http_header_at(req, "upload-metadata", 0, out);
    }
    if (count < 2) {
        return true;
    }
    char *all = arena_alloc(http_arena(req), len);
    if (all == NULL) {
        return false;
    }
    out->ptr = all;
    for (unsigned i = 0; i < count; i++) {
        (void)http_header_at(req, "upload-metadata", i, &line);
        if (i > 0) {
            all[out->len++] = ',';
        }
        memcpy(all + out->len, line.ptr, line.len);
        out->len += line.len;
    }
    ensure(out->len < len);
    return true;
}

static bool read_head(struct http_request *req, struct tus_head *h)
{
    *h = (struct tus_head){.method = http_method(req)};
    for (enum tus_field f = 0; f < TUS_FIELD_COUNT; f++) {
        if (!http_header(req, tus_field_name(f), &h->field[f].value, &h->field[f].count)) {
            h->field[f].count = 0;
        }
    }
    return read_metadata(req, &h->metadata);
}

/* What comes before the method is looked at. 0: go on; else it is answered. */
static int admit(struct artifact *a, struct http_request *req, struct tus_head *h,
                 enum http_method *method)
{
    struct err e = {0};
    struct outcome out = {0};
    *method = HTTP_OTHER;
    if (!read_head(req, h)) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for the request now", (struct slice){0});
        return ERR_OVERLOADED;
    }
    int r = tus_method(h, method, &e);
    /* What only asks writes nothing, and what removes makes space. */
    bool writes = *method != HTTP_HEAD && *method != HTTP_GET && *method != HTTP_DELETE;
    if (writes && space_check(a, &out) != 0) {
        answer_tus(req, &out, 0);
        return ERR_LOW_SPACE;
    }
    if (r == 0) {
        r = tus_version(h, *method, &e);
    }
    if (r != 0) {
        answer_refuse(req, &e);
    }
    return r;
}

static void on_files(void *ctx, struct http_request *req)
{
    struct artifact *a = ctx;
    struct tus_head h;
    enum http_method method;
    if (admit(a, req, &h, &method) != 0) {
        return;
    }
    if (method != HTTP_POST) {
        answer_method(req, "POST, OPTIONS");
        return;
    }
    artifact_create(a, req, &h);
}

/* The id of the path; false when it is none. */
static bool path_id(const struct http_request *req, char id[UPLOAD_ID_LEN + 1])
{
    struct slice part = http_path_part(req, 0);
    if (!upload_id_ok(part)) {
        return false;
    }
    ensure(part.len == UPLOAD_ID_LEN);
    memcpy(id, part.ptr, UPLOAD_ID_LEN);
    id[UPLOAD_ID_LEN] = '\0';
    return true;
}

static void on_upload(void *ctx, struct http_request *req)
{
    struct artifact *a = ctx;
    struct tus_head h;
    enum http_method method;
    char id[UPLOAD_ID_LEN + 1];
    bool is_id = path_id(req, id);
    int r = admit(a, req, &h, &method);
    if (r != 0) {
        if (r == ERR_LOW_SPACE && is_id && method == HTTP_PATCH) {
            attempts_note(&a->attempts, id);
        }
        return;
    }
    bool asks = method == HTTP_HEAD || method == HTTP_GET;
    if (method != HTTP_PATCH && method != HTTP_DELETE && !asks) {
        answer_method(req, "GET, HEAD, PATCH, DELETE, OPTIONS");
    } else if (!is_id) {
        http_answer_error(req, ERR_UPLOAD_NOT_FOUND, "there is no such upload", (struct slice){0});
    } else if (method == HTTP_PATCH) {
        artifact_append(a, req, &h, id);
    } else if (method == HTTP_DELETE) {
        artifact_terminate(a, req, id);
    } else {
        artifact_head(a, req, id);
    }
}

static void on_files_options(void *ctx, struct http_request *req)
{
    const struct artifact *a = ctx;
    char max[24];
    (void)snprintf(max, sizeof max, "%llu", (unsigned long long)a->options.upload_bytes_max);
    http_add_header(req, "Tus-Version", SLICE(TUS_VERSION));
    http_add_header(req, "Tus-Extension", SLICE(TUS_EXTENSIONS));
    http_add_header(req, "Tus-Checksum-Algorithm", slice_cstr(checksum_names()));
    http_add_header(req, "Tus-Max-Size", slice_cstr(max));
}

/* ---- /api/v1/receipts ---- */

static void on_receipt(void *ctx, struct http_request *req)
{
    char id[UPLOAD_ID_LEN + 1];
    if (!path_id(req, id)) {
        http_add_header(req, "Cache-Control", SLICE("no-store"));
        http_answer_error(req, ERR_NOT_FOUND, "there is no such upload", (struct slice){0});
        return;
    }
    artifact_receipt(ctx, req, id);
}

/* ---- routes ---- */

/* X(path, methods, shape, takes_body, function, on OPTIONS, expose) */
#define ROUTES(X)                                                                        \
    X("/files", HTTP_POST, TUS, true, on_files, on_files_options, EXPOSE)                \
    X("/files/*", HTTP_GET | HTTP_PATCH | HTTP_POST | HTTP_DELETE, TUS, true, on_upload, \
      on_files_options, EXPOSE)                                                          \
    X("/api/v1/receipts/*", HTTP_GET, API, false, on_receipt, NULL, NULL)

size_t artifact_route_count(void)
{
#define X(...) +1
    return 0 ROUTES(X);
#undef X
}

void artifact_routes(struct artifact *a, struct http_route *out)
{
#define X(p, m, s, takes, fn, options_fn, exposed)           \
    *out++ = (struct http_route){.path = (p),                \
                                 .methods = (m),             \
                                 .auth = HTTP_AUTH_OPEN,     \
                                 .shape = HTTP_SHAPE_##s,    \
                                 .on_request = (fn),         \
                                 .ctx = a,                   \
                                 .slash_too = true,          \
                                 .cors = true,               \
                                 .expose = (exposed),        \
                                 .on_options = (options_fn), \
                                 .takes_body = (takes)};
    ROUTES(X)
#undef X
}

/* ---- life ---- */

int artifact_new(const struct artifact_options *options, struct store *store, struct artifact **out,
                 struct err *e)
{
    struct artifact *a = calloc(1, sizeof *a);
    const struct uploads_options uo = {.data = options->data,
                                       .issuer = options->issuer,
                                       .trail_threads = TRAIL_THREADS,
                                       .sync_threads = SYNC_THREADS};
    ensure(options->uploads_max > 0);
    ensure(options->low_space_status == 429 || options->low_space_status == 503);
    *out = NULL;
    if (a == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the artifact door");
    }
    a->options = *options;
    int r = uploads_open(&uo, &a->uploads, e);
    if (r != 0) {
        free(a);
        return r;
    }
    registry_init(&a->registry, options->uploads_max, options->address_uploads_max);
    room_init(&a->room, options->data, options->min_free_bytes, options->project_percent,
              options->address_percent);
    space_init(&a->space);
    attempts_init(&a->attempts);
    cleaner_init(&a->cleaner);
    if (store != NULL) {
        artifact_attach(a, store);
    }
    *out = a;
    return 0;
}

void artifact_attach(struct artifact *a, struct store *store)
{
    a->control = store_control(store);
}

void artifact_detach(struct artifact *a)
{
    a->control = NULL;
}

int artifact_start(struct artifact *a, struct http_server *server, struct err *e)
{
    ensure(server != NULL);
    uploads_set_stopping(a->uploads, false);
    int r = space_start(a, e);
    return r != 0 ? r : cleaner_start(a, e);
}

void artifact_stopping(struct artifact *a)
{
    uploads_set_stopping(a->uploads, true);
}

void artifact_stop(struct artifact *a)
{
    artifact_stopping(a);
    cleaner_stop(a);
    space_stop(a);
}

void artifact_free(struct artifact *a)
{
    if (a == NULL) {
        return;
    }
    cleaner_stop(a);
    space_stop(a);
    cleaner_destroy(&a->cleaner);
    space_destroy(&a->space);
    room_destroy(&a->room);
    attempts_destroy(&a->attempts);
    registry_destroy(&a->registry);
    uploads_close(a->uploads);
    free(a);
}

void artifact_get_status(const struct artifact *a, struct artifact_status *out)
{
    *out = (struct artifact_status){.writers = registry_writers(&a->registry),
                                    .partial_uploads = atomic_load(&a->cleaner.partial_uploads),
                                    .partial_bytes = atomic_load(&a->cleaner.partial_bytes),
                                    .reserved_bytes = metric_get(METRIC_ARTIFACT_RESERVED),
                                    .scanned_ms = atomic_load(&a->cleaner.scanned_ms),
                                    .low_space = space_is_low(a),
                                    .scanned = atomic_load(&a->cleaner.scanned)};
}

void artifact_put_partials(struct artifact *a, struct buf *b)
{
    cleaner_put_partials(a, b);
}

struct uploads *artifact_uploads(struct artifact *a)
{
    return a->uploads;
}
