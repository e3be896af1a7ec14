/* deliver_build: from an accepted artifact to a sealed package.
 *
 * The files and their crash argument: store/artifact/package_build.c. They are synced before the
 * row says `sealed`; where the process is killed in between, the next start finds and adopts them.
 *
 * Answers, as rows: bytes that are missing or are not the receipt's, and settings of the project
 * that give no allowed place, park the package and no other; everything else (no destination, EIO,
 * no space) is tried again. Errors of the index are returned. */
#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "store/artifact/package_build.h"

static_assert(DELIVER_STOPPED == PACKAGE_STOPPED, "one result of a thread");

/* ---- the build ---- */

/* The receipt is looked at once more: one that its server took back, because it could not be
 * synced, may have been given again with another time. */
static int receipt_again(struct deliver_slot *s)
{
    struct delivery_artifact *a = &s->work.artifact;
    struct receipt receipt;
    int r = receipt_load(s->d->uploads, slice_cstr(a->object_id), &receipt, &s->why);

    if (r == ERR_NOT_FOUND) {
        return err_set(&s->why, ERR_NOT_FOUND, "its receipt is not there");
    }
    if (r < 0) {
        return r;
    }
    if (strcmp(receipt.checksum, a->checksum) != 0 || receipt.size_bytes != a->size_bytes) {
        return err_set(&s->why, ERR_CORRUPT, "its receipt is not the one it was accepted with");
    }
    a->accepted_at = receipt.accepted_at;
    return 0;
}

static int sink_known(const char *sink, struct err *e)
{
    return artifact_adapter(sink) != NULL
               ? 0
               : err_set(e, ERR_UNSUPPORTED, "this program knows no sink \"%s\"", sink);
}

static int place(void *ctx, struct artifact_sink *out, struct err *e)
{
    struct deliver_slot *s = ctx;
    int r = artifact_sink_read(s->d->options->data, slice_cstr(s->work.artifact.project), out, e);

    return r == 0 ? sink_known(out->sink, e) : r;
}

static bool stopping(void *ctx)
{
    return deliver_stopping(((struct deliver_slot *)ctx)->d);
}

static void progress(void *ctx, uint64_t bytes)
{
    atomic_store(&((struct deliver_slot *)ctx)->bytes, bytes);
}

static int build(struct deliver_slot *s)
{
    struct package_job job = {.data = s->d->options->data,
                              .artifact = &s->work.artifact,
                              .piece = s->piece,
                              .piece_bytes = ARTIFACT_PIECE_BYTES,
                              .place = place,
                              .stopping = stopping,
                              .progress = progress,
                              .ctx = s};
    int r = receipt_again(s);

    if (r == 0) {
        r = package_build(&job, &s->work.plan, &s->why);
        s->way_out = job.way_out;
    }
    return r == 0 ? sink_known(s->work.plan.to.sink, &s->why) : r; /* a plan may be older */
}

static void build_run(struct deliver_slot *s)
{
    s->result = build(s);
}

/* ---- before and after ---- */

static int build_begin(struct deliver_slot *s, bool *run, struct err *e)
{
    (void)e;
    s->way_out = NULL;
    s->why = (struct err){0};
    *run = true;
    return 0;
}

static int failed(struct deliver_slot *s, struct err *e)
{
    const struct delivery_artifact *a = &s->work.artifact;
    unsigned n = s->work.attempts + 1;
    uint64_t wait_ms = deliver_backoff_ms(s->d->options->backoff_ms, n);
    int64_t now_ms = deliver_now_ms();
    char id[DELIVERY_PACKAGE_LEN + 1], shown[DELIVER_SHOWN_MAX];

    delivery_package_id(a, id);
    deliver_shown(shown, s->why.text);
    if (s->way_out != NULL) {
        log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID,
                 a->object_id, shown, s->way_out);
        return delivery_index_build_park(s->d->index, id, now_ms / 1000, s->why.text, s->way_out,
                                         e);
    }
    log_line(LOG_WARN, "deliver", "%.*s is not packaged: %s; try %u, the next in %llu s",
             DELIVER_SHORT_ID, a->object_id, shown, n, (unsigned long long)wait_ms / 1000);
    return delivery_index_build_retry(s->d->index, id, now_ms / 1000, now_ms + (int64_t)wait_ms,
                                      s->why.text, e);
}

static int build_done(struct deliver_slot *s, bool *again, struct err *e)
{
    int64_t now_ms = deliver_now_ms();

    *again = false;
    if (s->result == DELIVER_STOPPED) {
        return 0;
    }
    if (s->result < 0) {
        return failed(s, e);
    }
    return delivery_index_seal(s->d->index, &s->work.plan, now_ms / 1000,
                               s->work.due_ms < now_ms ? s->work.due_ms : now_ms, e);
}

const struct deliver_step deliver_build_step = {build_begin, build_run, build_done};
