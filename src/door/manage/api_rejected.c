/* GET /api/v1/projects/{id}/rejected: bad events of batches that were otherwise taken, oldest
 * first, paged by id. A worker reads them; a page ends after `limit` entries or 8 MiB.
 *
 * The text of such an event may be any bytes. It is shown as a string with what is no UTF-8
 * replaced, and then once more, exactly, in base64. */
#include "door/manage/api.h"

#include "base/ensure.h"
#include "json/write.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX     1000

struct page {
    struct manage *m;
    int64_t project, after;
    uint64_t limit, count;
    struct buf rows;
    int64_t last;
    bool more;
    int code;
    struct err e;
};

static void put_base64(struct buf *b, struct slice s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < s.len; i += 3) {
        size_t left = s.len - i;
        uint32_t v = (uint32_t)(unsigned char)s.ptr[i] << 16;

        v |= left > 1 ? (uint32_t)(unsigned char)s.ptr[i + 1] << 8 : 0;
        v |= left > 2 ? (uint32_t)(unsigned char)s.ptr[i + 2] : 0;
        buf_put_char(b, digits[v >> 18]);
        buf_put_char(b, digits[v >> 12 & 63]);
        buf_put_char(b, left > 1 ? digits[v >> 6 & 63] : '=');
        buf_put_char(b, left > 2 ? digits[v & 63] : '=');
    }
}

/* One more row than is shown is asked for, to know whether there are more. */
static int add_row(void *ctx, const struct queue_rejected_row *row)
{
    struct page *p = ctx;
    struct buf *b = &p->rows;

    if (p->count == p->limit || b->len >= MANAGE_PAGE_BYTES) {
        p->more = true;
        return 1;
    }
    buf_put_cstr(b, p->count == 0 ? "{" : ",{");
    manage_put_id(b, "id", row->id);
    manage_put_time(b, "received_at", row->r.received_ms);
    manage_put_number(b, "index", row->r.index);
    manage_put_text(b, "door", row->r.door);
    manage_put_text(b, "reason", row->r.reason);
    manage_put_text(b, "text", row->r.text);
    if (!utf8_valid(row->r.text, NULL)) {
        json_put_name(b, "text_base64");
        buf_put_char(b, '"');
        put_base64(b, row->r.text);
        buf_put_char(b, '"');
    }
    buf_put_char(b, '}');
    p->last = row->id;
    p->count++;
    return 0;
}

static void page_work(void *ctx)
{
    struct page *p = ctx;
    struct store_reader *reader = NULL;

    p->code = store_reader_open(p->m->data, &reader, &p->e);
    if (p->code != 0) {
        return;
    }
    p->code = queue_list_rejected(reader, p->project, p->after, (uint32_t)p->limit + 1, add_row, p,
                                  &p->e);
    store_reader_close(reader);
    if (p->code >= 0) { /* what stopped it was the page's end */
        p->code = p->rows.failed ? err_set(&p->e, ERR_NO_MEMORY, "no memory for the rows") : 0;
    }
}

static void page_done(void *ctx, struct http_request *req)
{
    struct page *p = ctx;
    struct buf b = {0};

    if (p->code != 0) {
        manage_answer_err(req, &p->e);
    } else {
        buf_put_cstr(&b, "{\"rejected\":[");
        buf_put_slice(&b, buf_slice(&p->rows));
        buf_put_char(&b, ']');
        if (p->more) {
            ensure(p->count != 0);
            manage_put_id(&b, "next_after_id", p->last);
        } else {
            buf_put_cstr(&b, ",\"next_after_id\":null");
        }
        buf_put_char(&b, '}');
        manage_answer(req, 200, &b);
    }
    buf_free(&p->rows);
}

static int set_param(void *ctx, struct arena *a, struct slice name, struct slice value,
                     unsigned *bit, struct err *e)
{
    struct page *p = ctx;
    uint64_t v = 0;

    (void)a;
    if (slice_eq(name, SLICE("limit"))) {
        *bit = 1;
        return manage_number(value, &p->limit) && p->limit <= LIMIT_MAX
                   ? 0
                   : err_set(e, ERR_INVALID_REQUEST, "limit must be a number from 1 to 1000");
    }
    if (slice_eq(name, SLICE("after_id"))) {
        *bit = 2;
        if (!slice_eq(value, SLICE("0")) && !manage_number(value, &v)) {
            return err_set(e, ERR_INVALID_REQUEST, "after_id must be the id of an entry, or 0");
        }
        p->after = (int64_t)v;
        return 0;
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

void manage_rejected_head(void *ctx, struct http_request *req)
{
    struct manage_caller who;

    (void)manage_may_project(ctx, req, SCOPE_EVENTS_READ, &who);
}

void manage_rejected_list(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct manage_caller who;
    struct err e = {0};
    struct page *p;

    if (!manage_may_project(m, req, SCOPE_EVENTS_READ, &who)) {
        return;
    }
    p = arena_calloc(http_arena(req), 1, sizeof *p);
    if (p == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    p->m = m;
    p->project = who.project->id;
    p->limit = LIMIT_DEFAULT;
    if (manage_read_params(req, set_param, p, &e) != 0) {
        manage_answer_err(req, &e);
    } else if (!http_work(req, page_work, page_done, p)) {
        manage_overloaded(req, "too much work is waiting");
    }
}
