/* What is known of an artifact: acceptance, upload, delivery and local bytes, side by side and
 * never merged; each as its own store tells it.
 *
 * Anyone who knows an id may ask: ids are 128 random bits (spec/artifacts.md, decisions). The
 * upload is read before the receipt, so that an acceptance between the two shows as what it is.
 * Everything that reads a disk runs on a worker. What cannot be read fails the request, but for
 * delivery.sqlite: it can be rebuilt, and an acceptance is told without it. */
#include "door/manage/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/delivery.h"
#include "store/artifact/upload.h"
#include "json/write.h"

#define PATH_MAX_BYTES 4200
#define SHOWN_ID       8

struct look {
    struct manage *m;
    char id[UPLOAD_ID_LEN + 1];
    bool declared; /* info is there; offset and expires_ms, too, when it is not accepted */
    bool accepted;
    bool local;           /* uploads/ID is there */
    bool delivery_unread; /* delivery.sqlite could not be read now */
    uint64_t local_bytes, offset;
    int64_t expires_ms;
    struct upload_info info;
    struct receipt receipt;
    struct delivery_view delivery;
    char reason[UPLOAD_REASON_MAX];
    int code;
    struct err e;
    struct buf answer;
};

/* ---- reading, on a worker ---- */

/* 1: it is there, 0: it is not, or ERR_. */
static int stat_file(struct look *l, const char *tail, struct os_stat *st)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof path, "%s/uploads/%s%s", l->m->data, l->id, tail);
    int r;

    ensure(n > 0);
    ensure((size_t)n < sizeof path);
    r = os_stat(path, st);
    return r == 0 ? 1 : r == -ENOENT ? 0 : err_os(&l->e, r, "look at", path);
}

/* Bytes, and when an upload that stays as it is will be removed. */
static int read_files(struct look *l)
{
    static const char *const tails[] = {"", ".info", ".state"};
    uint64_t newest = 0;
    int r = 1;

    for (size_t i = 0; r >= 0 && i < sizeof tails / sizeof *tails; i++) {
        struct os_stat st;
        r = stat_file(l, tails[i], &st);
        if (r == 1) {
            newest = st.mtime_ms > newest ? st.mtime_ms : newest;
        }
        if (r == 1 && i == 0) {
            l->local = true;
            l->local_bytes = st.size;
        }
    }
    l->expires_ms = (int64_t)(newest + l->m->upload_retention_ms);
    return r < 0 ? r : 0;
}

/* A foreign or damaged .info of an accepted artifact leaves project and filename unknown. */
static int read_upload(struct look *l)
{
    int r = upload_load(l->m->uploads, slice_cstr(l->id), &l->info, &l->e);

    if (r != 0) {
        return r;
    }
    l->declared = true;
    r = upload_synced_offset(l->m->uploads, slice_cstr(l->id), &l->offset, &l->e);
    return r == 0 || r == ERR_CORRUPT ? 0 : r; /* without its state, nothing is promised */
}

/* views NULL: opened for this one. */
static int read_delivery(struct look *l, struct delivery_look *views, struct err *e)
{
    return views != NULL ? delivery_look_at(views, slice_cstr(l->id), &l->delivery, e)
                         : delivery_view_read(l->m->data, slice_cstr(l->id), &l->delivery, e);
}

static int read_all(struct look *l, struct delivery_look *views)
{
    struct err e;
    int info = read_upload(l);
    int r = receipt_load(l->m->uploads, slice_cstr(l->id), &l->receipt, &e);

    l->accepted = r == 0;
    if (r != 0 && r != ERR_NOT_FOUND) {
        l->e = e;
        return r;
    }
    if (!l->accepted && upload_gone(l->m->uploads, slice_cstr(l->id), l->reason)) {
        return err_set(&l->e, ERR_GONE, "%s", l->reason);
    }
    if (!l->accepted && info == ERR_NOT_FOUND) {
        return err_set(&l->e, ERR_NOT_FOUND, "there is no such artifact");
    }
    if (info != 0 && !(l->accepted && (info == ERR_NOT_FOUND || info == ERR_CORRUPT))) {
        return info;
    }
    r = read_files(l);
    if (r == 0 && l->accepted && read_delivery(l, views, &e) != 0) {
        memset(&l->delivery, 0, sizeof l->delivery);
        l->delivery_unread = true;
        log_line(LOG_WARN, "manage", "read the delivery of an artifact: %s", e.text);
    }
    return r;
}

/* ---- telling ---- */

static void put_text_or_null(struct buf *b, const char *name, const char *text)
{
    json_put_name(b, name);
    if (text[0] == '\0') {
        buf_put_cstr(b, "null");
    } else {
        json_put_string(b, slice_cstr(text));
    }
}

static void put_accepted(struct buf *b, const struct look *l)
{
    json_put_name(b, "accepted");
    if (!l->accepted) {
        buf_put_cstr(b, "null");
        return;
    }
    buf_put_char(b, '{');
    manage_put_time(b, "at", l->receipt.accepted_at * 1000);
    manage_put_number(b, "size_bytes", l->receipt.size_bytes);
    json_put_name(b, "checksum");
    buf_printf(b, "\"blake3:%s\"", l->receipt.checksum);
    manage_put_text(b, "issuer", slice_cstr(l->receipt.issuer));
    json_put_name(b, "receipt_id");
    buf_printf(b, "\"receipt:%s\"}", l->id);
}

static void put_upload(struct buf *b, const struct look *l)
{
    json_put_name(b, "upload");
    if (l->accepted) {
        buf_put_cstr(b, "null");
        return;
    }
    buf_put_char(b, '{');
    manage_put_number(b, "offset", l->offset);
    manage_put_number(b, "length", l->info.size);
    manage_put_time(b, "expires_at", l->expires_ms);
    buf_put_char(b, '}');
}

static void put_delivery_files(struct buf *b, const struct delivery_view *d)
{
    json_put_name(b, "files");
    buf_put_char(b, '[');
    for (unsigned i = 0; i < d->file_count; i++) {
        buf_put_cstr(b, i == 0 ? "{" : ",{");
        manage_put_text(b, "name", slice_cstr(d->file[i].name));
        manage_put_number(b, "size", d->file[i].size);
        manage_put_text(b, "md5", slice_cstr(d->file[i].md5));
        buf_put_char(b, '}');
    }
    buf_put_char(b, ']');
}

/* The package, and where in it the artifact is; or what it waits for. */
static void put_package(struct buf *b, const struct delivery_view *d)
{
    json_put_name(b, "package");
    buf_put_char(b, '{');
    manage_put_text(b, "state", slice_cstr(d->package_state));
    if (strcmp(d->package_state, "waiting") == 0) {
        manage_put_time(b, "since", d->accepted_at * 1000);
        manage_put_number(b, "artifacts", d->waiting_artifacts);
        manage_put_number(b, "bytes", d->waiting_bytes);
        if (d->waiting_until != 0) {
            manage_put_number(b, "trigger_bytes", d->trigger_bytes);
            manage_put_time(b, "until", d->waiting_until * 1000);
        }
    } else {
        manage_put_text(b, "package_id", slice_cstr(d->package_id));
        manage_put_text(b, "packager", slice_cstr(d->packager));
        manage_put_number(b, "members", d->members);
        manage_put_number(b, "offset", d->offset);
        manage_put_number(b, "size", d->size_bytes);
    }
    buf_put_char(b, '}');
}

static void put_delivery(struct buf *b, const struct look *l)
{
    const struct delivery_view *d = &l->delivery;

    json_put_name(b, "delivery");
    if (!l->accepted || !d->known) {
        buf_put_cstr(b, "null");
        return;
    }
    buf_put_char(b, '{');
    manage_put_text(b, "state", slice_cstr(delivery_state_name(d->state)));
    put_text_or_null(b, "sink", d->sink);
    put_text_or_null(b, "identifier", d->identifier);
    manage_put_number(b, "attempts", d->attempts);
    if (d->next_attempt_at != 0) {
        manage_put_time(b, "next_attempt_at", d->next_attempt_at * 1000);
    }
    if (d->error[0] != '\0') {
        manage_put_text(b, "error", slice_cstr(d->error));
    }
    if (d->way_out[0] != '\0') {
        manage_put_text(b, "way_out", slice_cstr(d->way_out));
    }
    if (d->sent_at != 0) {
        manage_put_time(b, "sent_at", d->sent_at * 1000);
    }
    if (d->verified_at != 0) {
        manage_put_time(b, "verified_at", d->verified_at * 1000);
    }
    put_delivery_files(b, d);
    put_package(b, d);
    buf_put_char(b, '}');
}

/* When local bytes went, or are due to go; nothing where they stay. */
static void put_purge(struct buf *b, const struct delivery_view *d)
{
    if (d->purged_at != 0) {
        manage_put_time(b, "purged_at", d->purged_at * 1000);
    } else if (d->purge_at != 0) {
        manage_put_time(b, "purge_after", d->purge_at * 1000);
    }
    if (d->purge_error[0] != '\0') {
        manage_put_text(b, "purge_error", slice_cstr(d->purge_error));
    }
}

/* An id is the right to ask, so logs have only its beginning; errors name paths with all of it. */
static void shorten_id(char *text, const char *id)
{
    char *at = strstr(text, id);

    if (at != NULL) {
        memmove(at + SHOWN_ID, at + UPLOAD_ID_LEN, strlen(at + UPLOAD_ID_LEN) + 1);
    }
}

static void put_artifact(struct buf *b, const struct look *l)
{
    buf_put_char(b, '{');
    manage_put_text(b, "object_id", slice_cstr(l->id));
    put_accepted(b, l);
    put_upload(b, l);
    /* Of one whose local bytes are gone, delivery knows. */
    put_text_or_null(b, "project", l->declared ? l->info.project : l->delivery.project);
    put_text_or_null(b, "filename", l->declared ? l->info.filename : l->delivery.filename);
    put_delivery(b, l);
    if (l->delivery_unread) {
        manage_put_text(b, "delivery_error", SLICE(DELIVERY_FILE " cannot be read now"));
    }
    json_put_name(b, "local");
    buf_put_char(b, '{');
    manage_put_flag(b, "present", l->local);
    manage_put_number(b, "size_bytes", l->local_bytes);
    put_purge(b, &l->delivery);
    buf_put_cstr(b, "},\"release\":null,\"archive\":null}");
}

static void look_work(void *ctx)
{
    struct look *l = ctx;

    l->code = read_all(l, NULL);
    if (l->code == 0) {
        put_artifact(&l->answer, l);
    } else {
        shorten_id(l->e.text, l->id);
    }
}

static void look_done(void *ctx, struct http_request *req)
{
    struct look *l = ctx;

    if (l->code != 0) {
        manage_answer_err(req, &l->e);
        return;
    }
    manage_answer(req, 200, &l->answer);
}

int manage_artifact_put(struct manage *m, struct slice id, struct delivery_look *views,
                        struct buf *out, struct err *e)
{
    struct look *l;
    int r;

    ensure(upload_id_ok(id));
    l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for an artifact");
    }
    l->m = m;
    memcpy(l->id, id.ptr, UPLOAD_ID_LEN);
    r = read_all(l, views);
    if (r == 0) {
        put_artifact(out, l);
    } else {
        shorten_id(l->e.text, l->id);
        *e = l->e;
    }
    free(l);
    return r;
}

void manage_artifact_show(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct slice id = http_path_part(req, 0);
    struct look *l;

    http_add_header(req, "Cache-Control", SLICE("no-store")); /* it goes on */
    if (m->uploads == NULL || !upload_id_ok(id)) {
        http_answer_error(req, ERR_NOT_FOUND, "there is no such artifact", (struct slice){0});
        return;
    }
    l = arena_calloc(http_arena(req), 1, sizeof *l);
    if (l == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    l->m = m;
    memcpy(l->id, id.ptr, UPLOAD_ID_LEN);
    if (!http_work(req, look_work, look_done, l)) {
        manage_overloaded(req, "too much work is waiting");
    }
}
