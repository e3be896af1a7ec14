/* POST and GET /api/v1/seal, on the Unix socket only: sealing closed generations.
 *
 * POST asks for it and is answered at once (202); the journal's own thread does it. GET tells how
 * far that is, and what was sealed since a number, which a client that follows takes from the last
 * answer. The journal keeps the last SEAL_RECENT results. */
#include "door/manage/api.h"

#include "base/ensure.h"
#include "journal/seal.h"
#include "json/write.h"

struct params {
    bool post;
    uint64_t keep, after;
    bool tail;
};

static bool number_or_zero(struct slice s, uint64_t *out)
{
    *out = 0;
    return slice_eq(s, SLICE("0")) || manage_number(s, out);
}

static int set_param(void *ctx, struct arena *a, struct slice name, struct slice value,
                     unsigned *bit, struct err *e)
{
    struct params *p = ctx;

    (void)a;
    if (p->post && slice_eq(name, SLICE("keep"))) {
        *bit = 1;
        return number_or_zero(value, &p->keep) && p->keep <= UINT32_MAX
                   ? 0
                   : err_set(e, ERR_INVALID_REQUEST, "keep must be a number of generations");
    }
    if (p->post && slice_eq(name, SLICE("tail"))) {
        *bit = 2;
        p->tail = slice_eq(value, SLICE("true"));
        return p->tail || slice_eq(value, SLICE("false"))
                   ? 0
                   : err_set(e, ERR_INVALID_REQUEST, "tail must be true or false");
    }
    if (!p->post && slice_eq(name, SLICE("after"))) {
        *bit = 4;
        return number_or_zero(value, &p->after)
                   ? 0
                   : err_set(e, ERR_INVALID_REQUEST, "after must be a number");
    }
    return err_set(e, ERR_INVALID_REQUEST, "unknown query parameter");
}

/* sealed: which of the results are told already. */
static void put_status(struct buf *b, struct journal *j, const uint64_t *sealed)
{
    struct journal_seal_status st;

    journal_get_seal_status(j, &st);
    manage_put_flag(b, "active", st.active);
    manage_put_number(b, "sealed", sealed != NULL ? *sealed : st.sealed);
    manage_put_number(b, "wanted", st.wanted);
    manage_put_number(b, "possible", st.possible);
    manage_put_flag(b, "stopped", st.stopped);
    manage_put_text(b, "failure", slice_cstr(st.code != 0 ? st.cause : ""));
}

void manage_seal(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct params p = {.post = true, .tail = true};
    struct err e = {0};
    struct buf b = {0};
    struct journal_seal_status before;

    /* What is sealed before the answer is made is this request's, too. */
    journal_get_seal_status(m->journal, &before);
    if (manage_read_params(req, set_param, &p, &e) != 0 ||
        journal_seal_request(m->journal, (uint32_t)p.keep, p.tail, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    buf_put_char(&b, '{');
    put_status(&b, m->journal, &before.sealed);
    buf_put_char(&b, '}');
    manage_answer(req, 202, &b);
}

void manage_seal_show(void *ctx, struct http_request *req)
{
    struct manage *m = ctx;
    struct params p = {.post = false};
    struct err e = {0};
    struct buf b = {0};
    char hex[SHA256_HEX_LEN];
    struct journal_sealed *rows =
        arena_calloc(http_arena(req), SEAL_RECENT, sizeof(struct journal_sealed));
    uint32_t count;

    if (rows == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    if (manage_read_params(req, set_param, &p, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    /* The status first: what it counts is among the results. */
    buf_put_char(&b, '{');
    put_status(&b, m->journal, NULL);
    count = journal_seal_results(m->journal, p.after, rows, SEAL_RECENT);
    json_put_name(&b, "segments");
    buf_put_char(&b, '[');
    for (uint32_t i = 0; i < count; i++) {
        hex_encode(hex, rows[i].head, SHA256_LEN);
        buf_put_cstr(&b, i > 0 ? ",{" : "{");
        manage_put_number(&b, "number", rows[i].number);
        manage_put_text(&b, "name", slice_cstr(rows[i].name));
        manage_put_number(&b, "events", rows[i].events);
        manage_put_number(&b, "bytes", rows[i].bytes);
        manage_put_number(&b, "stored_bytes", rows[i].stored_bytes);
        manage_put_text(&b, "head", slice_of(hex, sizeof hex));
        buf_put_char(&b, '}');
    }
    buf_put_cstr(&b, "]}");
    manage_answer(req, 200, &b);
}
