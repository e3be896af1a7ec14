/* finish: from parsed events to one job of the store, on the loop thread.
 *
 * The key says project and source; with those every event gets its identity: the client's UUID, a
 * message id that is one, else a UUIDv8 of (project, source, message id), else a new UUIDv7. Then
 * one job puts all events of the request under one savepoint: all of them are in the queue, or
 * nothing is (a bad event of a batch counts as put when it is kept as rejected).
 *
 * Power failure: before the commit nothing of the request exists, and nobody was told otherwise;
 * after it everything does, and the client that got no answer sends it again and gets the receipts.
 * Answers: 401, 400 and 413 for a request that is one bad event, whatever the store says. */
#include "base/ensure.h"
#include "base/metrics.h"
#include "door/capture/identity.h"
#include "door/capture/internal.h"

/* Past either a request has a turn of the store for itself. */
#define LARGE_EVENTS 2000
#define LARGE_BYTES  (4u << 20)

static_assert(offsetof(struct capture_batch, job) == 0, "a job is a batch");

/* Pointers of control.h are good for this turn only, and the job may run in a later one. */
static int keep_project(struct capture_batch *b, const struct project *project, const struct key *k,
                        struct err *e)
{
    struct arena *a = http_arena(b->req);
    struct project *p = arena_alloc(a, sizeof *p);
    char *name = arena_copy(a, slice_cstr(k->name));
    if (p == NULL || name == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for this request now");
    }
    *p = *project;
    b->project = p;
    b->source = slice_cstr(name);
    return 0;
}

static int resolve(struct capture_batch *b, struct err *e)
{
    const struct project *project = NULL;
    struct slice text = b->head_token.len > 0 ? b->head_token : b->token;
    if (b->dialect == CAPTURE_NATIVE) {
        ensure(b->project != NULL);
        return 0;
    }
    if (text.len == 0) {
        return err_set(e, ERR_UNAUTHORIZED, "the request has no key of a project");
    }
    const struct key *k = capture_key(b->c, text, &project);
    if (k == NULL) {
        return err_set(e, ERR_UNAUTHORIZED, "the key is not one of a project here");
    }
    return keep_project(b, project, k, e);
}

static int identify(struct capture_batch *b, struct capture_event *ev, struct err *e)
{
    struct queue_event *q = &ev->ev;
    q->project = b->project->id;
    q->received_ms = b->received_ms;
    if (q->source.len == 0) {
        q->source = b->source;
    }
    if (!uuid_is_zero(&q->uuid)) {
        return 0;
    }
    if (q->message_id.len == 0) {
        return identity_new(b->received_ms, &q->uuid) == 0
                   ? 0
                   : err_set(e, ERR_IO, "the kernel gave no random bytes");
    }
    if (!identity_parse(q->message_id, &q->uuid) || uuid_is_zero(&q->uuid)) {
        identity_derive(slice_cstr(b->project->name), q->source, q->message_id, &q->uuid);
    }
    return 0;
}

static void check_size(struct capture_batch *b, struct capture_event *ev)
{
    struct buf why = {0};
    if (ev->outcome != CAPTURE_STORED || ev->ev.text.len <= b->c->options.event_bytes_max) {
        return;
    }
    buf_printf(&why, "the event has %zu bytes, more than %llu", ev->ev.text.len,
               (unsigned long long)b->c->options.event_bytes_max);
    char *text = why.failed ? NULL : arena_copy(http_arena(b->req), buf_slice(&why));
    buf_free(&why);
    capture_reject(b, ev, text != NULL ? text : "the event is too large");
}

/* The request is its one event: what is wrong with that is the answer. */
static int check_single(const struct capture_batch *b, struct err *e)
{
    if (!b->single || b->count != 1 || b->event[0].outcome == CAPTURE_STORED) {
        return 0;
    }
    bool large = b->event[0].ev.text.len > b->c->options.event_bytes_max;
    return err_set(e, large ? ERR_BODY_TOO_LARGE : ERR_INVALID_EVENT, "%s", b->event[0].reason);
}

/* ---- the job ---- */

static int put_rejected(struct capture_batch *b, struct store *s, const struct capture_event *ev,
                        struct err *e)
{
    struct queue_rejected r = {.project = b->project->id,
                               .received_ms = b->received_ms,
                               .index = ev->index,
                               .door = b->dialect == CAPTURE_SEGMENT ? SLICE("segment")
                                                                     : SLICE("posthog"),
                               .reason = slice_cstr(ev->reason),
                               .text = ev->ev.text};
    return queue_put_rejected(s, &r, e);
}

static int run(struct store_job *job, struct store *s, struct err *e)
{
    struct capture_batch *b = (struct capture_batch *)job;
    for (size_t i = 0; i < b->count; i++) {
        struct capture_event *ev = &b->event[i];
        int r = 0;
        if (ev->outcome == CAPTURE_STORED) {
            r = queue_put(s, &ev->ev, &ev->receipt, e);
        } else if (ev->outcome == CAPTURE_REJECTED) {
            r = put_rejected(b, s, ev, e);
        }
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static void committed(struct capture_batch *b)
{
    uint64_t stored = 0;
    uint64_t repeats = 0;
    for (size_t i = 0; i < b->count; i++) {
        const struct capture_event *ev = &b->event[i];
        if (ev->outcome == CAPTURE_STORED) {
            ensure(ev->receipt.event_id > 0);
            repeats += ev->receipt.repeat ? 1 : 0;
            stored += ev->receipt.repeat ? 0 : 1;
        }
    }
    metric_add(METRIC_CAPTURE_EVENTS, stored);
    metric_add(METRIC_CAPTURE_REPEATS, repeats);
    metric_add(METRIC_CAPTURE_REJECTED, b->count - stored - repeats);
    if (stored > 0 && b->c->on_committed != NULL) {
        b->c->on_committed(b->c->ctx);
    }
}

static void done(struct store_job *job, int code, const struct err *e)
{
    struct capture_batch *b = (struct capture_batch *)job;
    ensure(code <= 0);
    if (code == 0) {
        committed(b);
    }
    capture_answer(b, code, e);
}

static void submit(struct capture_batch *b)
{
    uint64_t bytes = 0;
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (b->event[i].outcome != CAPTURE_DROPPED) {
            bytes += b->event[i].ev.text.len + b->event[i].ev.envelope.len;
            count++;
        }
    }
    if (count == 0) {
        committed(b);
        capture_answer(b, 0, NULL);
        return;
    }
    b->job = (struct store_job){
        .run = run,
        .done = done,
        .weight = count > LARGE_EVENTS || bytes > LARGE_BYTES ? STORE_LARGE : STORE_SMALL};
    store_submit(b->c->store, &b->job);
}

void capture_finish(struct capture_batch *b)
{
    struct err e = {0};
    int r = b->c->store == NULL ? err_set(&e, ERR_STORE_BUSY, "the server is stopping")
                                : resolve(b, &e);
    for (size_t i = 0; r == 0 && i < b->count; i++) {
        check_size(b, &b->event[i]);
        r = identify(b, &b->event[i], &e);
    }
    if (r == 0) {
        r = check_single(b, &e);
    }
    if (r != 0) {
        capture_answer(b, r, &e);
    } else {
        submit(b);
    }
}
