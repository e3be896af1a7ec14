/* deliver_purge: the local bytes of verified packages go when their retention is over.
 *
 * The proof first, synced; then the bytes, in steps (store/artifact/purge.c says which, and what a
 * crash leaves); then the row. If power fails, or the process is killed, in between: the row is due
 * still, and all steps are taken again. One purge at a time, on a thread of its own, which a stop
 * ends between two steps.
 *
 * At the start the proofs are read, before the receipts: where the index does not say what a proof
 * says, it was lost or is an older one, and the proof is right (delivery_proven.c).
 *
 * Answers: the index's errors. A purge that fails is tried again in a minute; a proof that cannot
 * be read is logged, and its bytes, if they are here, stay. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "main/deliver_internal.h"
#include "os/os.h"
#include "store/artifact/purge.h"

#define AGAIN_MS     INT64_C(60000)
#define PROOFS_GROUP 200u

/* ---- one purge ---- */

static int purge_begin(struct deliver_slot *s, bool *run, struct err *e)
{
    (void)s;
    (void)e;
    *run = true;
    return 0;
}

/* What a proof says of an artifact is its receipt's, as it is now: one that its server took back
 * may have been given again with another time, and the index keeps the first. */
static int receipt_again(struct deliver_slot *s, struct delivery_artifact *a)
{
    struct receipt receipt;
    int r = receipt_load(s->d->uploads, slice_cstr(a->object_id), &receipt, &s->why);

    if (r < 0) {
        return r;
    }
    if (strcmp(receipt.checksum, a->checksum) != 0 || receipt.size_bytes != a->size_bytes) {
        return err_set(&s->why, ERR_CORRUPT, "its receipt is not the one it was accepted with");
    }
    a->accepted_at = receipt.accepted_at;
    return 0;
}

static void purge_run(struct deliver_slot *s)
{
    static struct proof proof; /* large; there is one purge at a time */
    const char *data = s->d->options->data;
    struct delivery_members *m = &s->work.members;

    proof.plan = s->work.plan;
    proof.sent_at = s->work.sent_at;
    proof.verified_at = s->work.verified_at;
    s->why = (struct err){0};
    s->result = receipt_again(s, &s->work.artifact);
    for (unsigned i = 0; s->result == 0 && i < m->count; i++) {
        s->result = receipt_again(s, &m->item[i]);
    }
    proof.artifact = s->work.artifact;
    proof.members = *m; /* borrowed */
    if (s->result == 0) {
        s->result = proof_write(data, &proof, &s->why);
    }
    if (s->result == 0) {
        s->result = purge_package(data, &s->work.plan, &s->d->stop, NULL, &s->why);
    }
}

static int purge_done(struct deliver_slot *s, bool *again, struct err *e)
{
    const char *package_id = s->work.plan.package_id;
    int64_t now_ms = deliver_now_ms();
    char shown[DELIVER_SHOWN_MAX];

    *again = false;
    if (s->result == 0) {
        log_line(LOG_INFO, "deliver", "%.*s: its local bytes are gone, %" PRIu64 " of them",
                 DELIVER_SHORT_ID, delivery_plan_label(&s->work.plan), s->work.plan.file[0].size);
        return delivery_index_purged(s->d->index, package_id, now_ms / 1000, e);
    }
    if (s->result == ERR_NOT_READY && deliver_stopping(s->d)) {
        return 0; /* it is due still */
    }
    deliver_shown(shown, s->why.text);
    log_line(LOG_WARN, "deliver", "%.*s: its local bytes stay for now: %s", DELIVER_SHORT_ID,
             delivery_plan_label(&s->work.plan), shown);
    return delivery_index_purge_retry(s->d->index, package_id, now_ms / 1000, now_ms + AGAIN_MS,
                                      s->why.text, e);
}

const struct deliver_step deliver_purge_step = {purge_begin, purge_run, purge_done};

/* ---- the proofs, at the start ---- */

struct proofs {
    struct deliver *d;
    struct err *e;
    unsigned in_group;
    uint64_t added;
};

static int commit_group(struct proofs *p)
{
    p->in_group = 0;
    return delivery_index_commit(p->d->index, p->e);
}

static int take_proof(struct proofs *p, const char *package_id)
{
    static struct proof proof; /* large; this is the loop's thread, before any other is there */
    struct err why = {0};
    char shown[DELIVER_SHOWN_MAX];
    int r = proof_read(p->d->options->data, package_id, &proof, &why);

    if (r < 0) {
        deliver_shown(shown, why.text);
        log_line(LOG_ERROR, "deliver", PROOF_FOLDER "/%.*s... is not believed: %s",
                 DELIVER_SHORT_ID, package_id, shown);
        return 0;
    }
    r = delivery_index_prove(p->d->index, &proof, deliver_now_ms(), p->e);
    proof_free(&proof);
    if (r == ERR_REFUSED) {
        deliver_shown(shown, p->e->text);
        log_line(LOG_ERROR, "deliver", PROOF_FOLDER "/%.*s... is not followed: %s",
                 DELIVER_SHORT_ID, package_id, shown);
        p->e->code = 0; /* each() */
        return 0;
    }
    p->added++;
    p->in_group++;
    if (r == 0 && p->in_group == PROOFS_GROUP) {
        r = commit_group(p);
        if (r == 0) {
            r = delivery_index_begin(p->d->index, p->e);
        }
    }
    return r;
}

static int each(void *ctx, const char *name)
{
    struct proofs *p = ctx;
    char id[DELIVERY_PACKAGE_LEN + 1];
    bool proven = false;
    int r;

    if (!proof_name(name, id)) {
        return 0;
    }
    r = delivery_index_proven(p->d->index, id, &proven, p->e);
    if (r == 0 && !proven) {
        r = take_proof(p, id);
    }
    return r < 0 ? r : deliver_stopping(p->d) ? 1 : 0;
}

int deliver_proofs(struct deliver *d, struct err *e)
{
    struct proofs p = {.d = d, .e = e};
    char path[DELIVER_PATH_BYTES];
    int r = proof_folder(d->options->data, e);

    if (r == 0) {
        r = purge_folder(d->options->data, e);
    }
    if (r == 0) {
        r = delivery_index_begin(d->index, e);
    }
    if (r < 0) {
        return r;
    }
    deliver_path(d, path, PROOF_FOLDER);
    e->code = 0; /* each() gives ERR_ codes, which are told from the directory's errno by this */
    r = os_list(path, each, &p);
    if (r < 0 && e->code == 0) {
        r = err_os(e, r, "list", path);
    }
    if (r >= 0) {
        r = commit_group(&p);
    }
    if (r < 0) {
        delivery_index_undo(d->index);
    } else if (p.added > 0) {
        log_line(LOG_INFO, "deliver", "%" PRIu64 " packages are known from their proofs", p.added);
    }
    return r;
}
