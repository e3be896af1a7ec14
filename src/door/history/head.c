/* GET and HEAD /v1/head: the published frontier, signed (signed_head.h).
 *
 * A worker signs, so that the loop does not spend the 50 us that a signature takes (measure:
 * build/bench/headcost); each request is signed anew, so that its time is now's. It starts like any
 * read: an append whose answer came before it was asked for is in it. Answers: 500 while there is
 * no key; the log has said why at the start. 429 while count and head are not known yet, since the
 * index is being made; 503 when it could not be made: then only a restart tries again. */
#include <stdlib.h>

#include "base/ensure.h"
#include "door/history/internal.h"
#include "door/history/signed_head.h"
#include "os/os.h"

struct head {
    struct history *h;
    struct buf text;
    struct err e;
    int code;
};

/* Poisoned is asked for second: a rebuild that fails says so before it ends. */
static int no_count(struct journal *j, struct err *e)
{
    struct journal_status st;
    journal_get_status(j, &st);
    if (st.poisoned) {
        return err_set(e, ERR_WRITER_POISONED,
                       "there is no count before a restart, the index could not be made: %s",
                       st.cause);
    }
    return err_set(e, ERR_NOT_READY, "the index is being made; there is no count yet");
}

static void head_work(void *ctx)
{
    struct head *hd = ctx;
    struct journal_frontier f;

    journal_get_frontier(hd->h->journal, &f);
    if (!f.complete) {
        hd->code = no_count(hd->h->journal, &hd->e);
        return;
    }
    hd->code = signed_head_make(&f, os_clock_real_ms(), hd->h->options.head_key, &hd->text, &hd->e);
}

static void head_free(struct head *hd)
{
    hd->h->replays--;
    buf_free(&hd->text);
    free(hd);
}

static void head_done(void *ctx, struct http_request *req)
{
    struct head *hd = ctx;

    if (hd->code == ERR_NOT_READY) {
        http_add_header(req, "Retry-After", SLICE("1"));
        http_answer_error(req, ERR_OVERLOADED, hd->e.text, (struct slice){0});
    } else if (hd->code == ERR_WRITER_POISONED) {
        http_answer_error(req, ERR_WRITER_POISONED, hd->e.text, (struct slice){0});
    } else if (hd->code != 0) {
        history_answer_err(req, &hd->e);
    } else {
        http_answer(req, 200, "application/json", buf_slice(&hd->text));
    }
    head_free(hd);
}

static void head_refuse(void *ctx, struct http_request *req)
{
    http_answer_error(req, ERR_OVERLOADED, "too many reads are under way", (struct slice){0});
    head_free(ctx);
}

void history_head_request(void *ctx, struct http_request *req)
{
    struct history *h = ctx;
    struct head *hd;

    if (http_query(req).len > 0) {
        http_answer_error(req, ERR_INVALID_REQUEST, "unknown query parameter", (struct slice){0});
        return;
    }
    if (h->options.head_key == NULL) {
        http_answer_error(req, ERR_INTERNAL_ERROR,
                          "heads are not signed: the key cannot be used, the server's log says why",
                          (struct slice){0});
        return;
    }
    hd = calloc(1, sizeof *hd);
    if (hd == NULL) {
        http_answer_error(req, ERR_OVERLOADED, "no memory for a head", (struct slice){0});
        return;
    }
    h->replays++;
    hd->h = h;
    history_start_read(h, &(struct read){req, head_work, head_done, head_refuse, hd});
}
