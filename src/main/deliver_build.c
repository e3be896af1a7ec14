/* deliver_build: from an accepted artifact to a sealed package.
 *
 * The files and their crash argument: store/artifact/package_build.c. They are synced before the
 * row says `sealed`; where the process is killed in between, the next start finds and adopts them.
 *
 * Answers, as rows: bytes that are missing or are not the receipt's, and settings of the project
 * that give no allowed place, park the package and no other; members of a merged package that
 * cannot be in it are parked each alone, and the others wait for another; everything else (no
 * destination, EIO, no space) is tried again. Errors of the index are returned. */
#include <stdlib.h>

#include "base/log.h"
#include "main/deliver_internal.h"
#include "store/artifact/package_load.h"

#define WAY_OUT_RECEIPT "put the receipt back and ask: tallyman park retry ID"

/* ---- the build ---- */

/* The receipts are looked at once more: one that its server took back, because it could not be
 * synced, may have been given again with another time. */
static int receipt_again(struct deliver_slot *s, struct delivery_artifact *a)
{
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

/* One whose receipt is gone, or another one, must not keep the others: it is parked alone, unless
 * there is a plan, under whose names all may have been sent. */
static int receipts_of_members(struct deliver_slot *s)
{
    struct delivery_members *m = &s->work.members;
    bool planned = package_planned(s->d->options->data, s->work.package_id);
    int r = 0;

    for (unsigned i = 0; r == 0 && i < m->count; i++) {
        r = receipt_again(s, &m->item[i]);
        if (!planned && (r == ERR_NOT_FOUND || r == ERR_CORRUPT)) {
            r = package_bad(&s->build, i, WAY_OUT_RECEIPT, s->why.text, &s->why);
        }
    }
    return r == 0 && s->build.bad_count > 0 ? ERR_CORRUPT : r;
}

static int receipts_again(struct deliver_slot *s)
{
    int r;

    if (s->work.members.count == 0) {
        return receipt_again(s, &s->work.artifact);
    }
    r = receipts_of_members(s);
    s->work.artifact = s->work.members.item[0];
    return r;
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

static void progress(void *ctx, uint64_t bytes)
{
    atomic_store(&((struct deliver_slot *)ctx)->bytes, bytes);
}

static int build(struct deliver_slot *s)
{
    int r;

    s->build = (struct package_job){.data = s->d->options->data,
                                    .artifact = &s->work.artifact,
                                    .members = &s->work.members,
                                    .piece = s->piece,
                                    .piece_bytes = ARTIFACT_PIECE_BYTES,
                                    .place = place,
                                    .progress = progress,
                                    .ctx = s,
                                    .stop = &s->d->stop};
    r = receipts_again(s);
    if (r == 0) {
        r = package_build(&s->build, &s->work.plan, &s->why);
        s->way_out = s->build.way_out;
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
    s->build = (struct package_job){0};
    *run = true;
    return 0;
}

/* A package whose members are all good is made of them again. */
static int isolate(struct deliver_slot *s, struct err *e)
{
    const struct package_job *b = &s->build;
    struct delivery_bad *bad = calloc(b->bad_count, sizeof *bad);
    char shown[DELIVER_SHOWN_MAX];
    int r;

    if (bad == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for bad members");
    }
    for (unsigned i = 0; i < b->bad_count; i++) {
        const struct package_bad *from = &b->bad[i];
        bad[i] = (struct delivery_bad){
            .member = from->member, .text = from->text, .way_out = from->way_out};
        deliver_shown(shown, from->text);
        log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID,
                 s->work.members.item[from->member].object_id, shown, from->way_out);
    }
    r = delivery_index_isolate(s->d->index, s->work.package_id, &s->work.members, bad, b->bad_count,
                               deliver_now_ms(), e);
    s->d->choose_now = true; /* the good ones wait */
    free(bad);
    return r;
}

static int failed(struct deliver_slot *s, struct err *e)
{
    const char *id = s->work.package_id;
    const char *label = s->work.members.count > 0 ? id : s->work.artifact.object_id;
    unsigned n = s->work.attempts + 1;
    uint64_t wait_ms = deliver_backoff_ms(s->d->options->backoff_ms, n);
    int64_t now_ms = deliver_now_ms();
    char shown[DELIVER_SHOWN_MAX];

    deliver_shown(shown, s->why.text);
    if (s->way_out != NULL) {
        log_line(LOG_ERROR, "deliver", "%.*s is parked: %s; way out: %s", DELIVER_SHORT_ID, label,
                 shown, s->way_out);
        return delivery_index_build_park(s->d->index, id, now_ms / 1000, s->why.text, s->way_out,
                                         e);
    }
    log_line(LOG_WARN, "deliver", "%.*s is not packaged: %s; try %u, the next in %llu s",
             DELIVER_SHORT_ID, label, shown, n, (unsigned long long)wait_ms / 1000);
    return delivery_index_build_retry(s->d->index, id, now_ms / 1000, now_ms + (int64_t)wait_ms,
                                      s->why.text, e);
}

static int build_done(struct deliver_slot *s, bool *again, struct err *e)
{
    int64_t now_ms = deliver_now_ms();
    int r;

    *again = false;
    if (s->result == PACKAGE_STOPPED) {
        r = 0;
    } else if (s->result == ERR_CORRUPT && s->build.bad_count > 0) {
        r = isolate(s, e);
    } else if (s->result < 0) {
        r = failed(s, e);
    } else {
        r = delivery_index_seal(s->d->index, &s->work.plan, now_ms / 1000,
                                s->work.due_ms < now_ms ? s->work.due_ms : now_ms, e);
    }
    package_job_free(&s->build);
    return r;
}

const struct deliver_step deliver_build_step = {build_begin, build_run, build_done};
