/* The proofs: what speaks for artifacts whose bytes are not here any more.
 *
 * A proof is written whole before it has its name, and never changes, so that one that cannot be
 * read is damage. It speaks for an artifact only if the receipt says the same of it. The ids of
 * those artifacts are kept, 16 bytes each, in order, because receipts ask for them; the folder is
 * read again for one that is not among them, since a deliverer may just have written its proof, at
 * most as often as violations of a kind are told.
 *
 * Power failure: nothing is written. Answers: a folder or a file that cannot be read at all, no
 * memory for the ids. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/artifact/proof.h"
#include "store/artifact/verify_parts.h"

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, ARTIFACT_ID_BYTES);
}

static int remember(struct artifact_run *a, const char *id)
{
    struct artifact_ids *ids = &a->proven;

    if (ids->count == ids->room) {
        size_t room = ids->room == 0 ? 1024 : 2 * ids->room;
        void *more = reallocarray(ids->id, room, ARTIFACT_ID_BYTES);
        if (more == NULL) {
            return err_set(a->e, ERR_NO_MEMORY, "no memory for the ids of proofs");
        }
        ids->id = more;
        ids->room = room;
    }
    if (hex_decode(ids->id[ids->count], slice_of(id, UPLOAD_ID_LEN), ARTIFACT_ID_BYTES)) {
        ids->count++;
    }
    return 0;
}

static int check_member(struct artifact_run *a, const struct proof *p,
                        const struct delivery_artifact *m)
{
    struct receipt receipt;
    struct err e = {0};
    const char *package = p->plan.package_id;
    int r = artifact_read_receipt(&a->us, m->object_id, &receipt, &e);

    if (r == ERR_NOT_FOUND) {
        artifact_tell(a, ARTIFACT_KIND_PROOF, "proof %s: there is no receipt %s", package,
                      m->object_id);
        return 0;
    }
    if (r == ERR_CORRUPT) {
        return 0; /* the receipt is told */
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    if (receipt.size_bytes != m->size_bytes || receipt.accepted_at != m->accepted_at ||
        strcmp(receipt.checksum, m->checksum) != 0) {
        artifact_tell(a, ARTIFACT_KIND_PROOF, "proof %s contradicts the receipt %s", package,
                      m->object_id);
        return 0;
    }
    return remember(a, m->object_id);
}

static int see_proof(struct artifact_run *a, const char *name)
{
    static struct proof proof; /* large; verify has one thread */
    char id[DELIVERY_PACKAGE_LEN + 1];
    struct err e = {0};

    if (!proof_name(name, id)) {
        artifact_remnant(a, PROOF_FOLDER, name);
        return 0;
    }
    int r = proof_read(a->data, id, &proof, &e);
    if (r == ERR_NOT_FOUND) {
        return 0;
    }
    a->out->proofs++;
    if (r == ERR_CORRUPT) {
        artifact_tell(a, ARTIFACT_KIND_PROOF, "proof %s: %s", id, e.text);
        return 0;
    }
    if (r != 0) {
        return err_set(a->e, r, "%s", e.text);
    }
    for (unsigned i = 0; r == 0 && i < proof_count(&proof); i++) {
        r = check_member(a, &proof, proof_member(&proof, i));
    }
    proof_free(&proof);
    return r;
}

static int read_all(struct artifact_run *a)
{
    a->proven.count = 0;
    a->out->proofs = 0;
    int r = artifact_list(a, a->proofs, see_proof);
    if (a->proven.count > 0) {
        qsort(a->proven.id, a->proven.count, ARTIFACT_ID_BYTES, compare);
    }
    return r;
}

int artifact_check_proofs(struct artifact_run *a)
{
    return read_all(a);
}

static bool known(const struct artifact_run *a, const char *id)
{
    uint8_t key[ARTIFACT_ID_BYTES];

    return a->proven.count > 0 && hex_decode(key, slice_of(id, UPLOAD_ID_LEN), ARTIFACT_ID_BYTES) &&
           bsearch(key, a->proven.id, a->proven.count, ARTIFACT_ID_BYTES, compare) != NULL;
}

/* What was told of proofs is not told twice. */
static int again(struct artifact_run *a)
{
    struct artifact_verify_result out = *a->out;
    uint64_t kinds[ARTIFACT_KIND_COUNT];

    memcpy(kinds, a->kinds, sizeof kinds);
    for (unsigned i = 0; i < ARTIFACT_KIND_COUNT; i++) {
        a->kinds[i] = ARTIFACT_TOLD_MAX; /* nothing more is told */
    }
    a->out->remnants = ARTIFACT_TOLD_MAX;
    int r = read_all(a);
    out.proofs = a->out->proofs;
    *a->out = out;
    memcpy(a->kinds, kinds, sizeof kinds);
    return r;
}

int artifact_has_proof(struct artifact_run *a, const char *id)
{
    int r = 0;

    if (!known(a, id) && a->proofs_again < ARTIFACT_TOLD_MAX) {
        a->proofs_again++;
        r = again(a);
    }
    return r < 0 ? r : known(a, id);
}

void artifact_forget_proofs(struct artifact_run *a)
{
    free(a->proven.id);
    a->proven = (struct artifact_ids){0};
}
