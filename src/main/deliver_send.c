/* deliver_send: one sealed package to its destination, or its verification there.
 *
 * The row is `sending`, synced, before the adapter is called, and what the adapter said is a row,
 * synced, before anything else is done (state table: delivery_index.c). Whatever is interrupted is
 * begun again by asking the adapter, which looks at what is there first.
 *
 * Answers: the index's errors; a package's troubles are rows, and lines in the log. */
#include <stdio.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"

#define NS_PER_MS UINT64_C(1000000)

static bool stopping(void *ctx)
{
    return deliver_stopping(ctx);
}

struct sending {
    struct deliver *d;
    const struct delivery_plan *plan;
    const struct artifact_adapter *adapter;
    struct artifact_file file[DELIVERY_FILES_MAX];
    char path[DELIVERY_FILES_MAX][DELIVER_PATH_BYTES];
    struct artifact_job job;
    struct artifact_verdict verdict;
    unsigned attempt; /* this one, from 1 */
    char shown[DELIVER_SHOWN_MAX];
    uint64_t begun_ns;
};

static void sending_begin(struct sending *s, struct deliver *d)
{
    const struct delivery_plan *p = &d->work.plan;

    s->d = d;
    s->plan = p;
    s->adapter = artifact_adapter(p->to.sink);
    s->attempt = d->work.attempts + (d->work.task == DELIVERY_SEND ? 1 : 0);
    s->begun_ns = os_clock_mono_ns();
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        deliver_path(d, s->path[i], p->file[i].source);
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
                                   .endpoints = &d->options->endpoints,
                                   .file = s->file,
                                   .file_count = DELIVERY_FILES_MAX,
                                   .piece = d->piece,
                                   .stopping = stopping,
                                   .ctx = d};
}

static int64_t now_s(void)
{
    return deliver_now_ms() / 1000;
}

static int note_verified(struct sending *s, struct err *e)
{
    const struct delivery_plan *p = s->plan;
    uint64_t took_ms = (os_clock_mono_ns() - s->begun_ns) / NS_PER_MS;
    int r = delivery_index_verified(s->d->index, p, now_s(), e);

    if (r == 0) {
        char place[DELIVER_PATH_BYTES + 2 * DELIVERY_NAME_MAX];
        (void)snprintf(place, sizeof place, "%s/%s/%s", p->to.directory, p->identifier,
                       p->file[0].name);
        deliver_shown(s->shown, place);
        log_line(LOG_INFO, "deliver",
                 "%.*s is delivered and verified: %s, %llu bytes, %llu ms, try %u",
                 DELIVER_SHORT_ID, p->object_id, s->shown, (unsigned long long)p->file[0].size,
                 (unsigned long long)took_ms, s->attempt);
    }
    return r;
}

static int note_retry(struct sending *s, struct err *e)
{
    uint64_t wait_ms = deliver_backoff_ms(s->d->options->backoff_ms, s->attempt);

    if (s->verdict.scope != ARTIFACT_THIS) {
        delivery_index_hold(s->d->index, s->plan->project,
                            deliver_now_ms() + (int64_t)s->d->options->backoff_ms);
    }
    deliver_shown(s->shown, s->verdict.text);
    log_line(LOG_WARN, "deliver", "%.*s is not delivered: %s; try %u, the next in %llu s",
             DELIVER_SHORT_ID, s->plan->object_id, s->shown, s->attempt,
             (unsigned long long)wait_ms / 1000);
    return delivery_index_retry(s->d->index, s->plan, now_s(), deliver_now_ms() + (int64_t)wait_ms,
                                s->verdict.text, e);
}

static int note_parked(struct sending *s, struct err *e)
{
    deliver_shown(s->shown, s->verdict.text);
    log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID,
             s->plan->object_id, s->shown, s->verdict.way_out);
    return delivery_index_park(s->d->index, s->plan, now_s(), s->verdict.text, s->verdict.way_out,
                               e);
}

/* It stays sent; whether it has become visible is asked again later. */
static int note_unseen(struct sending *s, struct err *e)
{
    uint64_t wait_ms = s->verdict.wait_ms > 0 ? s->verdict.wait_ms : s->d->options->backoff_ms;

    return delivery_index_unseen(s->d->index, s->plan, now_s(), deliver_now_ms() + (int64_t)wait_ms,
                                 s->verdict.text, e);
}

/* What the adapter said of `send` (sending) or of `verify` (not sending). */
static int note(struct sending *s, bool sending, struct err *e)
{
    switch (s->verdict.outcome) {
    case ARTIFACT_SENT:
        ensure(sending);
        return delivery_index_sent(s->d->index, s->plan, now_s(), e);
    case ARTIFACT_VERIFIED:
        return note_verified(s, e);
    case ARTIFACT_RETRY:
        return note_retry(s, e);
    case ARTIFACT_PARKED:
        return note_parked(s, e);
    case ARTIFACT_UNSEEN:
        return note_unseen(s, e);
    case ARTIFACT_STOPPED:
        /* What is sent stays sent, and is verified after the next start. */
        return sending ? delivery_index_retry(s->d->index, s->plan, now_s(), deliver_now_ms(),
                                              "the process ended while it was being sent", e)
                       : 0;
    }
    return 0;
}

int deliver_send(struct deliver *d, struct err *e)
{
    static struct sending s; /* large */
    bool sending = d->work.task == DELIVERY_SEND;
    int r = 0;

    sending_begin(&s, d);
    if (sending) {
        r = delivery_index_claim(d->index, s.plan, now_s(), e);
        if (r < 0) {
            return r;
        }
    }
    if (s.adapter == NULL) {
        s.verdict = (struct artifact_verdict){
            .outcome = ARTIFACT_PARKED,
            .way_out = "run a version of tallyman that knows it, and restart tallyman deliver"};
        (void)snprintf(s.verdict.text, sizeof s.verdict.text, "this program knows no sink \"%s\"",
                       s.plan->to.sink);
        return note_parked(&s, e);
    }
    if (sending) {
        s.adapter->send(&s.job, &s.verdict);
        r = note(&s, true, e);
        if (r < 0 || s.verdict.outcome != ARTIFACT_SENT) {
            return r;
        }
    }
    s.adapter->verify(&s.job, &s.verdict);
    return note(&s, false, e);
}
