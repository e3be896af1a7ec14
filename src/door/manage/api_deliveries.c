/* GET /api/v1/deliveries: packages and their deliveries, page by page; with state=verified the feed
 * of what is verified. POST /api/v1/artifacts/query: what is known of up to 1000 artifacts.
 *
 * For the administrator on the Unix socket, and service keys with artifacts:read or projects:admin.
 * A worker reads: of delivery.sqlite one moment, for at most about a second, and at most 8 MiB of
 * answer. What did not fit is told: a page says that there is more, a query which ids it has not
 * come to. Everything here is an answer. */
#include "door/manage/api.h"

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/delivery.h"
#include "json/write.h"

#define SCOPES_READ   (SCOPE_ARTIFACTS_READ | SCOPE_PROJECTS_ADMIN)
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     1000
#define IDS_MAX       1000u
#define QUERY_NS      800000000u

/* ---- pages ---- */

struct page {
    struct manage *m;
    struct delivery_query q;
    struct delivery_page page;
    struct buf rows;
    unsigned count;
    int code;
    struct err e;
};

static void put_time(struct buf *b, const char *name, int64_t seconds)
{
    if (seconds > 0) {
        manage_put_time(b, name, seconds * 1000);
    }
}

static void put_some(struct buf *b, const char *name, const char *text)
{
    if (text[0] != '\0') {
        manage_put_text(b, name, slice_cstr(text));
    }
}

static void put_files(struct buf *b, const struct delivery_view *v)
{
    json_put_name(b, "files");
    buf_put_char(b, '[');
    for (unsigned i = 0; i < v->file_count; i++) {
        buf_put_cstr(b, i == 0 ? "{" : ",{");
        manage_put_text(b, "name", slice_cstr(v->file[i].name));
        manage_put_number(b, "size", v->file[i].size);
        manage_put_text(b, "md5", slice_cstr(v->file[i].md5));
        buf_put_char(b, '}');
    }
    buf_put_char(b, ']');
}

static void put_package(struct buf *b, const struct delivery_view *v)
{
    json_put_name(b, "package");
    buf_put_char(b, '{');
    manage_put_text(b, "packager", slice_cstr(v->packager));
    manage_put_text(b, "state", slice_cstr(v->package_state));
    manage_put_number(b, "member_count", v->members);
    manage_put_number(b, "build_attempts", v->build_attempts);
    put_time(b, "next_build_at", v->next_build_at);
    put_some(b, "build_error", v->build_error);
    put_time(b, "created_at", v->created_at);
    put_time(b, "updated_at", v->updated_at);
    put_time(b, "sealed_at", v->sealed_at);
    if (v->member_list.len > 0) {
        json_put_name(b, "members");
        buf_put_slice(b, v->member_list);
    }
    if (v->file_count == DELIVERY_FILES_MAX) {
        manage_put_text(b, "manifest_filename", slice_cstr(v->file[1].name));
    }
    buf_put_char(b, '}');
}

static void put_row(struct buf *b, const struct delivery_view *v)
{
    bool merged = v->member_list.len > 0;

    buf_put_char(b, '{');
    manage_put_text(b, "object_id", slice_cstr(v->object_id));
    manage_put_text(b, "package_id", slice_cstr(v->package_id));
    manage_put_text(b, "project", slice_cstr(v->project));
    /* Of a merged package: its size, and of its artifacts only the first one's id and time. */
    if (!merged) {
        put_some(b, "filename", v->filename);
    }
    manage_put_number(b, "size_bytes", v->package_bytes);
    if (!merged) {
        json_put_name(b, "checksum");
        buf_printf(b, "\"blake3:%s\"", v->checksum);
    }
    put_time(b, "accepted_at", v->accepted_at);
    manage_put_text(b, "state", slice_cstr(delivery_state_name(v->state)));
    manage_put_number(b, "attempts", v->attempts);
    put_time(b, "next_attempt_at", v->next_attempt_at);
    put_some(b, "error", v->error);
    put_some(b, "way_out", v->way_out);
    if (v->late) {
        manage_put_flag(b, "late", true);
    }
    put_some(b, "sink", v->sink);
    put_some(b, "identifier", v->identifier);
    put_files(b, v);
    put_time(b, "updated_at", v->delivery_updated_at);
    put_time(b, "sent_at", v->sent_at);
    put_time(b, "verified_at", v->verified_at);
    put_time(b, v->purged_at != 0 ? "purged_at" : "purge_after",
             v->purged_at != 0 ? v->purged_at : v->purge_at);
    put_some(b, "purge_error", v->purge_error);
    put_package(b, v);
    buf_put_char(b, '}');
}

static bool add_row(void *ctx, const struct delivery_view *v)
{
    struct page *p = ctx;

    if (p->rows.len >= MANAGE_PAGE_BYTES) {
        return false;
    }
    if (p->count++ > 0) {
        buf_put_char(&p->rows, ',');
    }
    put_row(&p->rows, v);
    return true;
}

static void page_work(void *ctx)
{
    struct page *p = ctx;

    p->code = delivery_page_read(p->m->data, &p->q, add_row, p, &p->page, &p->e);
    if (p->code == 0 && p->rows.failed) {
        p->code = err_set(&p->e, ERR_NO_MEMORY, "no memory for the rows");
    }
}

static void page_done(void *ctx, struct http_request *req)
{
    struct page *p = ctx;
    struct buf b = {0};

    if (p->code != 0) {
        manage_answer_err(req, &p->e);
    } else {
        buf_put_cstr(&b, "{\"deliveries\":[");
        buf_put_slice(&b, buf_slice(&p->rows));
        buf_put_cstr(&b, "],\"next_after\":");
        if (p->page.next[0] == '\0') {
            buf_put_cstr(&b, "null");
        } else {
            json_put_string(&b, slice_cstr(p->page.next));
        }
        manage_put_flag(&b, "more", p->page.more);
        if (p->page.restarted) {
            manage_put_flag(&b, "restarted", true);
        }
        buf_put_char(&b, '}');
        manage_answer(req, 200, &b);
    }
    buf_free(&p->rows);
}

static int set_state(struct page *p, struct slice value, struct err *e)
{
    struct err unknown;

    p->q.by_state = true;
    return delivery_state_of(value, &p->q.state, &unknown) == 0
               ? 0
               : err_set(e, ERR_INVALID_REQUEST,
                         "state: there are pending, sending, sent, verified, retry_wait, parked");
}

static int set_param(void *ctx, struct arena *a, struct slice name, struct slice value,
                     unsigned *bit, struct err *e)
{
    struct page *p = ctx;
    uint64_t limit = 0;

    if (slice_eq(name, SLICE("limit"))) {
        *bit = 1;
        if (!manage_number(value, &limit) || limit > LIMIT_MAX) {
            return err_set(e, ERR_INVALID_REQUEST, "limit must be a number from 1 to 1000");
        }
        p->q.limit = (unsigned)limit;
        return 0;
    }
    if (slice_eq(name, SLICE("after"))) {
        *bit = 2;
        p->q.after = value;
        return 0;
    }
    if (slice_eq(name, SLICE("state"))) {
        *bit = 4;
        return set_state(p, value, e);
    }
    if (slice_eq(name, SLICE("project"))) {
        char *project = arena_alloc(a, value.len + 1);

        *bit = 8;
        if (project == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the query");
        }
        if (value.len > 0) {
            memcpy(project, value.ptr, value.len);
        }
        project[value.len] = '\0';
        p->q.project = project;
        return 0;
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

void manage_deliveries_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_instance(ctx, req, SCOPES_READ, &who);
}

void manage_deliveries_list(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};
    struct page *p;

    if (!manage_may_instance(m, req, SCOPES_READ, &who)) {
        return;
    }
    http_add_header(req, "Cache-Control", SLICE("no-store"));
    p = arena_calloc(http_arena(req), 1, sizeof *p);
    if (p == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    p->m = m;
    p->q.limit = LIMIT_DEFAULT;
    if (manage_read_params(req, set_param, p, &e) != 0) {
        manage_answer_err(req, &e);
    } else if (!http_work(req, page_work, page_done, p)) {
        manage_overloaded(req, "too much work is waiting");
    }
}

/* ---- many artifacts ---- */

struct ask {
    struct manage *m;
    struct slice *id; /* in the arena */
    unsigned count, done;
    struct buf rows;
    int code;
    struct err e;
};

static void put_unknown(struct buf *b, struct slice id, int code, const char *text)
{
    buf_put_char(b, '{');
    manage_put_text(b, "object_id", id);
    manage_put_text(b, "error", slice_cstr(err_name(code)));
    manage_put_text(b, "message", slice_cstr(text));
    buf_put_char(b, '}');
}

/* What cannot be read of one does not hide the others. */
static void put_one(struct ask *a, struct slice id, struct delivery_look *views)
{
    struct err e = {0};
    int r = a->m->uploads != NULL && upload_id_ok(id)
                ? manage_artifact_put(a->m, id, views, &a->rows, &e)
                : err_set(&e, ERR_NOT_FOUND, "there is no such artifact");

    if (r == ERR_NOT_FOUND || r == ERR_GONE) {
        put_unknown(&a->rows, id, r, e.text);
    } else if (r != 0) {
        log_line(LOG_ERROR, "manage", "read an artifact: %s", e.text);
        put_unknown(&a->rows, id, ERR_INTERNAL_ERROR, "it could not be read");
    }
}

static void ask_work(void *ctx)
{
    struct ask *a = ctx;
    uint64_t end_ns = os_clock_mono_ns() + QUERY_NS;
    struct delivery_look *views = NULL;
    struct err e;

    /* Without it each says for itself that its delivery could not be read. */
    if (delivery_look_open(a->m->data, &views, &e) != 0) {
        log_line(LOG_WARN, "manage", "read deliveries: %s", e.text);
    }
    for (; a->done < a->count; a->done++) {
        if (a->done > 0 && (a->rows.len >= MANAGE_PAGE_BYTES || os_clock_mono_ns() > end_ns)) {
            break;
        }
        if (a->done > 0) {
            buf_put_char(&a->rows, ',');
        }
        put_one(a, a->id[a->done], views);
    }
    delivery_look_close(views);
    a->code = a->rows.failed ? err_set(&a->e, ERR_NO_MEMORY, "no memory for the rows") : 0;
}

static void ask_done(void *ctx, struct http_request *req)
{
    struct ask *a = ctx;
    struct buf b = {0};

    if (a->code != 0) {
        manage_answer_err(req, &a->e);
    } else {
        buf_put_cstr(&b, "{\"artifacts\":[");
        buf_put_slice(&b, buf_slice(&a->rows));
        buf_put_cstr(&b, "],\"not_read\":[");
        for (unsigned i = a->done; i < a->count; i++) {
            if (i > a->done) {
                buf_put_char(&b, ',');
            }
            json_put_string(&b, a->id[i]);
        }
        buf_put_cstr(&b, "]}");
        manage_answer(req, 200, &b);
    }
    buf_free(&a->rows);
}

static int take_ids(struct ask *a, struct arena *arena, struct slice array, struct err *e)
{
    struct json_iter it = json_iter_array(array);
    struct slice item;
    struct slice inner;

    a->id = arena_calloc(arena, IDS_MAX, sizeof *a->id);
    if (a->id == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the ids");
    }
    while (json_next_element(&it, &item)) {
        if (!json_string_raw(item, &inner)) {
            return err_set(e, ERR_INVALID_REQUEST, "object_ids must be an array of strings");
        }
        if (a->count == IDS_MAX) {
            return err_set(e, ERR_INVALID_REQUEST, "object_ids has at most 1000");
        }
        a->id[a->count] = manage_text(arena, inner);
        if (a->id[a->count++].ptr == NULL) {
            return err_set(e, ERR_NO_MEMORY, "no memory for the ids");
        }
    }
    return 0;
}

void manage_artifacts_query_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    if (manage_may_instance(ctx, req, SCOPES_READ, &who)) {
        (void)manage_json_head(req);
    }
}

void manage_artifacts_query(void *ctx, struct http_request *req)
{
    struct manage_member ids = {.name = "object_ids", .type = JSON_ARRAY, .required = true};
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};
    struct ask *a;

    if (!manage_may_instance(m, req, SCOPES_READ, &who)) {
        return;
    }
    http_add_header(req, "Cache-Control", SLICE("no-store"));
    a = arena_calloc(http_arena(req), 1, sizeof *a);
    if (a == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    a->m = m;
    if (manage_read_body(req, &ids, 1, &e) != 0 ||
        take_ids(a, http_arena(req), ids.value, &e) != 0) {
        manage_answer_err(req, &e);
    } else if (!http_work(req, ask_work, ask_done, a)) {
        manage_overloaded(req, "too much work is waiting");
    }
}
