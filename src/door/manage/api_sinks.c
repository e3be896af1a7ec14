/* Pausing and resuming all destinations, and whether they are: for the administrator, on the Unix
 * socket only.
 *
 * What counts is the file DATA/paused (store/paused.h); a worker makes or removes it, durably, and
 * only then the sink is told, by what the file says at that moment, so that of two requests at once
 * the last word on the disk is also the one in memory. The process that delivers artifacts reads
 * the file before each piece of work. Everything here is an answer. */
#include "door/manage/api.h"

#include <pthread.h>

#include "base/ensure.h"
#include "base/log.h"
#include "store/paused.h"

#define REASON_DEFAULT "paused by an administrator"

struct change {
    struct manage *m;
    struct slice reason; /* ptr NULL: resume */
    int code;
    struct err e;
};

static void answer_state(struct manage *m, struct http_request *req)
{
    struct paused p;
    struct buf b = {0};

    paused_read(m->data, &p);
    paused_put_json(&b, &p);
    manage_answer(req, 200, &b);
}

void manage_sinks_show(void *ctx, struct http_request *req)
{
    answer_state(ctx, req);
}

void manage_sinks_head(void *ctx, struct http_request *req)
{
    (void)ctx;
    (void)manage_json_head(req);
}

/* Two at once would write the same temporary file. */
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;

static void change_work(void *ctx)
{
    struct change *c = ctx;
    int r = pthread_mutex_lock(&file_lock);

    ensure(r == 0);
    c->code = c->reason.ptr == NULL ? paused_remove(c->m->data, &c->e)
                                    : paused_write(c->m->data, c->reason, NULL, &c->e);
    r = pthread_mutex_unlock(&file_lock);
    ensure(r == 0);
}

static void change_done(void *ctx, struct http_request *req)
{
    struct change *c = ctx;
    struct paused p;

    paused_read(c->m->data, &p);
    if (c->m->sink != NULL) {
        sink_pause(c->m->sink, p.on);
    }
    if (c->code != 0) {
        manage_answer_err(req, &c->e);
        return;
    }
    log_line(LOG_INFO, "sinks", p.on ? "paused: %s" : "resumed%s", p.on ? p.reason : "");
    answer_state(c->m, req);
}

static void change(struct manage *m, struct http_request *req, struct slice reason)
{
    struct change *c = arena_calloc(http_arena(req), 1, sizeof *c);

    if (c == NULL) {
        manage_overloaded(req, "no memory for the request");
        return;
    }
    c->m = m;
    c->reason = reason;
    if (!http_work(req, change_work, change_done, c)) {
        manage_overloaded(req, "too much work is waiting");
    }
}

void manage_sinks_pause(void *ctx, struct http_request *req)
{
    struct manage_member reason = {.name = "reason", .type = JSON_STRING};
    struct err e = {0};

    if (manage_read_body(req, &reason, 1, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    change(ctx, req, reason.given && reason.value.len > 0 ? reason.value : SLICE(REASON_DEFAULT));
}

void manage_sinks_resume(void *ctx, struct http_request *req)
{
    struct err e = {0};

    if (manage_read_body(req, NULL, 0, &e) != 0) {
        manage_answer_err(req, &e);
        return;
    }
    change(ctx, req, (struct slice){0});
}
