/* deliver_send: one sealed package to its destination, or its verification there.
 *
 * The row is `sending`, synced, before the thread is started that calls the adapter, and what the
 * adapter said is a row, synced, before anything else is done with the package (state table:
 * delivery_index.c). After `sent` the same thread's place goes on with the verification, unless the
 * process ends. Whatever is interrupted is begun again by asking the adapter, which looks at what
 * is there first.
 *
 * A try ends after try_ms: the adapter gives up at its next look and the package is tried again
 * later; a verification that ends so leaves it `sent`, to be asked again. What a try may have
 * brought without an answer is noted before the try is noted as over.
 *
 * A thread that is left behind at the end of the process is to the destination what kill -9 is: the
 * row says `sending`, the next start asks the adapter, and what the kernel still finishes of the
 * last call is a part of the temporary file, or its renaming after its sync. The lock on the
 * directory is the kernel's to end, with the last thread, so no second process begins before that.
 *
 * Not visible yet (UNSEEN) is no failure: the row stays `sent`, holds no thread, and is asked again
 * for ever; past unseen_ms that is an alarm, once a day for all of them, and counted in status.
 *
 * Answers: the index's errors; a package's troubles are rows, and lines in the log. */
#include <inttypes.h>
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"

#define NS_PER_MS UINT64_C(1000000)
#define DAY_NS    (UINT64_C(86400) * 1000000000)

static int64_t now_s(void)
{
    return deliver_now_ms() / 1000;
}

/* ---- before ---- */

static void job_begin(struct deliver_slot *s)
{
    const struct delivery_plan *p = &s->work.plan;

    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        deliver_path(s->d, s->path[i], p->file[i].source);
        s->file[i] = (struct artifact_file){.name = p->file[i].name,
                                            .path = s->path[i],
                                            .size = p->file[i].size,
                                            .md5 = p->file[i].digests.md5,
                                            .sha1 = p->file[i].digests.sha1};
    }
    s->job = (struct artifact_job){.package_id = p->package_id,
                                   .place = p->to.directory,
                                   .identifier = p->identifier,
                                   .metadata = slice_cstr(p->metadata),
                                   .credentials_file = p->to.credentials_file,
                                   .endpoints = &s->d->options->endpoints,
                                   .file = s->file,
                                   .file_count = DELIVERY_FILES_MAX,
                                   .piece = s->piece,
                                   .stopping = deliver_slot_stopping,
                                   .progress = deliver_slot_progress,
                                   .ctx = s};
}

static int send_begin(struct deliver_slot *s, bool *run, struct err *e)
{
    const struct delivery_plan *p = &s->work.plan;
    int r = 0;

    job_begin(s);
    s->adapter = artifact_adapter(p->to.sink);
    s->attempt = s->work.attempts + (s->work.task == DELIVERY_SEND ? 1 : 0);
    s->job.attempt = s->attempt;
    if (s->work.task == DELIVERY_SEND) {
        r = delivery_index_claim(s->d->index, p, now_s(), e);
    }
    *run = s->adapter != NULL;
    if (s->adapter == NULL) {
        s->verdict = (struct artifact_verdict){
            .outcome = ARTIFACT_PARKED,
            .way_out = "run a version of tallyman that knows it, and restart tallyman deliver"};
        (void)snprintf(s->verdict.text, sizeof s->verdict.text, "this program knows no sink \"%s\"",
                       p->to.sink);
    }
    return r;
}

/* ---- the thread ---- */

static uint64_t ms_since(int64_t seconds)
{
    int64_t ms = deliver_now_ms() - seconds * 1000;

    return ms > 0 ? (uint64_t)ms : 0;
}

static void send_run(struct deliver_slot *s)
{
    if (s->work.task == DELIVERY_SEND) {
        s->job.maybe_files = s->work.maybe_files;
        s->job.maybe_ago_ms = ms_since(s->work.maybe_at);
        s->adapter->send(&s->job, &s->verdict);
    } else {
        s->job.sent_ago_ms = ms_since(s->work.sent_at);
        s->adapter->verify(&s->job, &s->verdict);
    }
}

/* ---- after ---- */

/* Several items in a row whose own trouble it may be: it is not. */
static enum delivery_scope doubted(struct deliver_slot *s)
{
    struct deliver_doubt *doubt = &s->d->doubt;

    if (doubt->items == 0 || strcmp(doubt->last, s->work.plan.identifier) != 0) {
        memcpy(doubt->last, s->work.plan.identifier, sizeof doubt->last);
        doubt->items += doubt->items < DELIVER_DOUBTS ? 1 : 0;
    }
    return doubt->items < DELIVER_DOUBTS ? DELIVERY_SCOPE_ITEM : DELIVERY_SCOPE_FAR_END;
}

static enum delivery_scope scope_of(struct deliver_slot *s)
{
    switch (s->verdict.scope) {
    case ARTIFACT_THIS:
        break;
    case ARTIFACT_ITEM:
        return DELIVERY_SCOPE_ITEM;
    case ARTIFACT_DOUBT:
        return doubted(s);
    case ARTIFACT_PLACE:
        return DELIVERY_SCOPE_PROJECT;
    case ARTIFACT_KEYS:
        return DELIVERY_SCOPE_KEYS;
    case ARTIFACT_FAR_END:
        return DELIVERY_SCOPE_FAR_END;
    }
    return DELIVERY_SCOPE_COUNT;
}

/* What shares the trouble of this package waits as well. */
static void hold(struct deliver_slot *s, uint64_t least_ms)
{
    enum delivery_scope scope = scope_of(s);
    uint64_t wait_ms = deliver_wait_ms(least_ms, 1, s->verdict.wait_ms);

    if (scope != DELIVERY_SCOPE_COUNT) {
        delivery_index_hold(s->d->index, scope, &s->work.plan, deliver_now_ms() + (int64_t)wait_ms,
                            s->verdict.text);
        s->d->news = true;
    }
}

static int note_verified(struct deliver_slot *s, struct err *e)
{
    const struct delivery_plan *p = &s->work.plan;
    uint64_t took_ms = (os_clock_mono_ns() - s->first_ns) / NS_PER_MS;
    int r = delivery_index_verified(s->d->index, p, now_s(), e);

    if (r == 0) {
        char place[DELIVER_PATH_BYTES + 2 * DELIVERY_NAME_MAX], shown[DELIVER_SHOWN_MAX];
        (void)snprintf(place, sizeof place, "%s/%s/%s",
                       p->to.directory[0] != '\0' ? p->to.directory : p->to.sink, p->identifier,
                       p->file[0].name);
        deliver_shown(shown, place);
        log_line(LOG_INFO, "deliver",
                 "%.*s is delivered and verified: %s, %llu bytes, %llu ms, try %u",
                 DELIVER_SHORT_ID, delivery_plan_label(p), shown,
                 (unsigned long long)p->file[0].size, (unsigned long long)took_ms, s->attempt);
    }
    return r;
}

static int note_retry(struct deliver_slot *s, struct err *e)
{
    uint64_t first_ms = s->d->options->backoff_ms;
    uint64_t wait_ms = deliver_wait_ms(first_ms, s->attempt, s->verdict.wait_ms);
    char shown[DELIVER_SHOWN_MAX];

    hold(s, first_ms);
    deliver_shown(shown, s->verdict.text);
    log_line(LOG_WARN, "deliver", "%.*s is not delivered: %s; try %u, the next in %llu s",
             DELIVER_SHORT_ID, delivery_plan_label(&s->work.plan), shown, s->attempt,
             (unsigned long long)wait_ms / 1000);
    return delivery_index_retry(s->d->index, &s->work.plan, now_s(),
                                deliver_now_ms() + (int64_t)wait_ms, s->verdict.text, e);
}

static int note_parked(struct deliver_slot *s, struct err *e)
{
    char shown[DELIVER_SHOWN_MAX];

    hold(s, DELIVER_BACKOFF_MS_MAX);
    deliver_shown(shown, s->verdict.text);
    log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID,
             delivery_plan_label(&s->work.plan), shown, s->verdict.way_out);
    return delivery_index_park(s->d->index, &s->work.plan, now_s(), s->verdict.text,
                               s->verdict.way_out, e);
}

/* Once a day for all that are late. */
static int alarm_of_late(struct deliver_slot *s, struct err *e)
{
    uint64_t now_ns = os_clock_mono_ns();
    uint64_t count = 0;
    char shown[DELIVER_SHOWN_MAX];
    int r;

    if (now_ns < s->d->alarm_due_ns) {
        return 0;
    }
    r = delivery_index_late(s->d->index, &count, e);
    if (r == 0) {
        s->d->alarm_due_ns = now_ns + DAY_NS;
        deliver_shown(shown, s->verdict.text);
        log_line(LOG_ERROR, "deliver",
                 "sent more than %" PRIu64 " h ago and still not to be seen there: %" PRIu64
                 " packages, %.*s among them: %s; their local bytes stay",
                 s->d->options->unseen_ms / 3600000, count, DELIVER_SHORT_ID,
                 delivery_plan_label(&s->work.plan), shown);
    }
    return r;
}

/* It stays sent, or may be there; whether it has become visible is asked again later. */
static int note_unseen(struct deliver_slot *s, struct err *e)
{
    uint64_t wait_ms = deliver_wait_ms(s->d->options->backoff_ms, 1, s->verdict.wait_ms);
    int64_t now_ms = deliver_now_ms();
    bool late;
    int r;

    if (s->work.task == DELIVERY_SEND) {
        return delivery_index_put_off(s->d->index, &s->work.plan, now_ms / 1000,
                                      now_ms + (int64_t)wait_ms, s->verdict.text, e);
    }
    late = now_ms - s->work.sent_at * 1000 >= (int64_t)s->d->options->unseen_ms;
    r = delivery_index_unseen(s->d->index, &s->work.plan, now_ms / 1000, now_ms + (int64_t)wait_ms,
                              late, s->verdict.text, e);
    return r == 0 && late ? alarm_of_late(s, e) : r;
}

static int note_stopped(struct deliver_slot *s, struct err *e)
{
    if (atomic_load(&s->gave_up)) {
        (void)snprintf(s->verdict.text, sizeof s->verdict.text,
                       "the try took longer than %" PRIu64 " s and was given up",
                       s->d->options->try_ms / 1000);
        s->verdict.scope = ARTIFACT_THIS;
        s->verdict.wait_ms = 0;
        return s->work.task == DELIVERY_SEND ? note_retry(s, e) : note_unseen(s, e);
    }
    /* What is sent stays sent, and is verified after the next start. */
    return s->work.task == DELIVERY_SEND
               ? delivery_index_retry(s->d->index, &s->work.plan, now_s(), deliver_now_ms(),
                                      "the process ended while it was being sent", e)
               : 0;
}

static int note_sent(struct deliver_slot *s, bool *again, struct err *e)
{
    int r;

    ensure(s->work.task == DELIVERY_SEND);
    r = delivery_index_sent(s->d->index, &s->work.plan, now_s(), e);
    s->work.task = DELIVERY_VERIFY;
    s->work.sent_at = now_s();
    s->work.attempts = s->attempt;
    *again = r == 0 && !deliver_stopping(s->d);
    return r;
}

/* Before the try is over: a kill between the two leaves `sending`, and that says more. */
static int note_maybe(struct deliver_slot *s, struct err *e)
{
    if (s->work.task != DELIVERY_SEND || s->verdict.maybe_files == 0 ||
        s->verdict.outcome == ARTIFACT_SENT || s->verdict.outcome == ARTIFACT_VERIFIED) {
        return 0;
    }
    return delivery_index_maybe(s->d->index, &s->work.plan, now_s(), s->verdict.maybe_files, e);
}

static int send_done(struct deliver_slot *s, bool *again, struct err *e)
{
    int r = note_maybe(s, e);

    *again = false;
    if (r < 0) {
        return r;
    }
    if (s->verdict.outcome == ARTIFACT_SENT || s->verdict.outcome == ARTIFACT_VERIFIED) {
        s->d->doubt.items = 0;
    }
    switch (s->verdict.outcome) {
    case ARTIFACT_SENT:
        return note_sent(s, again, e);
    case ARTIFACT_VERIFIED:
        return note_verified(s, e);
    case ARTIFACT_RETRY:
        return note_retry(s, e);
    case ARTIFACT_PARKED:
        return note_parked(s, e);
    case ARTIFACT_UNSEEN:
        return note_unseen(s, e);
    case ARTIFACT_STOPPED:
        return note_stopped(s, e);
    }
    return 0;
}

const struct deliver_step deliver_send_step = {send_begin, send_run, send_done};
