/* Packages and purges of the lives of artifact_kit.c, as the deliverer makes them, and what is held
 * against a disk.
 *
 * Told are: that a package is sealed, with the digest of its plan (something may have been sent to
 * the place that it names); that its proof is written; that its local bytes are gone. Each build
 * that has to ask is given another place by the project, so that a plan that is forgotten is
 * noticed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/package_build.h"
#include "store/artifact/purge.h"
#include "tests/lib/artifact_kit_internal.h"

#define PIECE    1024
#define TEXT_MAX 8192

/* ---- the deliverer ---- */

static int place(void *ctx, struct artifact_sink *out, struct err *e)
{
    struct akit *k = ctx;

    (void)e;
    *out = (struct artifact_sink){.sink = "directory", .retention_ms = 1000};
    (void)snprintf(out->directory, sizeof out->directory, "/mnt/%u", k->places++);
    return 0;
}

static void nothing(void *ctx, uint64_t bytes)
{
    (void)ctx;
    (void)bytes;
}

static void plan_digest(const struct delivery_plan *p, char out[BLAKE3_HEX_LEN + 1])
{
    struct buf text = {0};
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];

    delivery_plan_put(&text, p);
    ensure(!text.failed);
    blake3_start(&h);
    blake3_add(&h, text.ptr, text.len);
    blake3_end(&h, digest);
    hex_encode(out, digest, sizeof digest);
    out[BLAKE3_HEX_LEN] = '\0';
    buf_free(&text);
}

static void tell_sealed(struct akit *k, struct akit_life *l, const struct delivery_plan *p)
{
    char digest[BLAKE3_HEX_LEN + 1];

    plan_digest(p, digest);
    if (l->plan[0] != '\0' && strcmp(l->plan, digest) != 0) {
        (void)akit_lie(k, "a sealed package got another plan", l, p->to.directory);
    }
    memcpy(l->plan, digest, sizeof digest);
}

static bool artifact_of(struct akit *k, const struct akit_life *l, struct delivery_artifact *a)
{
    struct receipt receipt;
    struct err e = {0};

    if (k->us == NULL || receipt_load(k->us, slice_cstr(l->info.id), &receipt, &e) != 0) {
        return false;
    }
    memset(a, 0, sizeof *a);
    memcpy(a->object_id, receipt.object_id, sizeof a->object_id);
    memcpy(a->project, l->info.project, sizeof a->project);
    memcpy(a->filename, l->info.filename, sizeof a->filename);
    memcpy(a->checksum, receipt.checksum, sizeof a->checksum);
    a->size_bytes = receipt.size_bytes;
    a->accepted_at = receipt.accepted_at;
    return true;
}

bool akit_package_folders(struct akit *k)
{
    const atomic_bool never = false;
    struct err e = {0};
    int r = os_mkdir_exist_ok(AKIT_DIR "/" DELIVERY_PACKAGES, 0750);

    if (r == 0) {
        r = os_sync_dir(AKIT_DIR);
    }
    if (r == 0) {
        r = package_build_clean(AKIT_DIR, &never, &e);
    }
    if (r == 0) {
        r = proof_folder(AKIT_DIR, &e);
    }
    if (r == 0) {
        r = purge_folder(AKIT_DIR, &e);
    }
    if (r != 0 && !k->faults) {
        (void)akit_lie(k, "the deliverer's folders cannot be made", &k->lives[0], e.text);
    }
    return r == 0;
}

/* Built, or found built; then, when its time has come, proven and purged. */
static void deliver(struct akit *k, struct akit_life *l, struct delivery_artifact *a,
                    struct proof *proof)
{
    unsigned char piece[PIECE];
    const atomic_bool stop = false;
    struct package_job job = {.data = AKIT_DIR,
                              .artifact = a,
                              .piece = piece,
                              .piece_bytes = sizeof piece,
                              .place = place,
                              .stop = &stop,
                              .progress = nothing,
                              .ctx = k};
    struct err e = {0};
    /* A package that has a proof is never built again. */
    int r = l->told_proven ? proof_read(AKIT_DIR, l->package_id, proof, &e)
                           : package_build(&job, &proof->plan, &e);

    if (r == 0) {
        tell_sealed(k, l, &proof->plan);
        memcpy(l->package_id, proof->plan.package_id, sizeof l->package_id);
    }
    if (r == 0 && l->purges) {
        proof->artifact = *a;
        r = proof_write(AKIT_DIR, proof, &e);
        l->told_proven = l->told_proven || r == 0;
    }
    if (r == 0 && l->purges) {
        r = purge_package(AKIT_DIR, &proof->plan, &stop, NULL, &e);
        l->told_purged = l->told_purged || r == 0;
    }
    if (r != 0 && !k->faults) {
        (void)akit_lie(k, "the deliverer failed", l, e.text);
    }
}

void akit_deliver(struct akit *k, struct akit_life *l)
{
    struct delivery_artifact a;
    struct proof *proof;

    if (!l->packaged || !artifact_of(k, l, &a) || l->told_purged) {
        return;
    }
    proof = calloc(1, sizeof *proof);
    ensure(proof != NULL);
    proof->sent_at = a.accepted_at + 1;
    proof->verified_at = a.accepted_at + 2;
    deliver(k, l, &a, proof);
    free(proof);
}

/* ---- the oracle ---- */

/* -1: it is not there. */
static int64_t get(const struct model *m, const char *folder, const char *name, const char *tail,
                   char text[TEXT_MAX])
{
    char path[256];

    (void)snprintf(path, sizeof path, AKIT_DIR "/%s/%s%s", folder, name, tail);
    int64_t n = model_get(m, path, text, text != NULL ? TEXT_MAX : 0);
    ensure(n < TEXT_MAX || text == NULL);
    return n < 0 ? -1 : n;
}

static void package_id_of(struct akit_life *l)
{
    struct delivery_artifact a = {.size_bytes = l->info.size};

    memcpy(a.object_id, l->info.id, sizeof a.object_id);
    memcpy(a.project, l->info.project, sizeof a.project);
    memcpy(a.checksum, l->digest, sizeof a.checksum);
    delivery_package_id(&a, l->package_id);
}

static bool manifest_fits(const char *text, int64_t n, const struct delivery_plan_file *f)
{
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";

    blake3_start(&h);
    blake3_add(&h, text, (size_t)n);
    blake3_end(&h, digest);
    hex_encode(hex, digest, sizeof digest);
    return (uint64_t)n == f->size && strcmp(hex, f->digests.blake3) == 0;
}

static bool check_sidecars(const struct model *m, struct akit *k, struct akit_life *l, bool proven,
                           struct delivery_plan *p)
{
    static const char end[] = "\"inputs\":1}\n";
    char text[TEXT_MAX], digest[BLAKE3_HEX_LEN + 1];
    struct err e = {0};
    int64_t n = get(m, DELIVERY_PACKAGES, l->package_id, DELIVERY_PLAN_TAIL, text);
    bool plan = n >= 0;

    if (plan && delivery_plan_parse(slice_of(text, (size_t)n), p, &e) != 0) {
        return akit_lie(k, "a plan is torn", l, e.text);
    }
    if (plan) {
        plan_digest(p, digest);
    }
    if (l->plan[0] != '\0' && !proven && (!plan || strcmp(digest, l->plan) != 0)) {
        return akit_lie(k, "the plan of a sealed package is lost", l, plan ? p->to.directory : "");
    }
    n = get(m, DELIVERY_PACKAGES, l->package_id, DELIVERY_MANIFEST_TAIL, text);
    if (n < 0) {
        return l->plan[0] == '\0' || proven
                   ? true
                   : akit_lie(k, "the manifest of a sealed package is lost", l, "");
    }
    if (n < (int64_t)sizeof end || memcmp(text + n - (sizeof end - 1), end, sizeof end - 1) != 0 ||
        (plan && !manifest_fits(text, n, &p->file[1]))) {
        return akit_lie(k, "a manifest is torn", l, "");
    }
    return true;
}

bool akit_proven(const struct model *m, struct akit *k, struct akit_life *l)
{
    char text[TEXT_MAX], digest[BLAKE3_HEX_LEN + 1] = "";
    struct proof *proof;
    struct err e = {0};
    int64_t n;
    int r;

    if (!l->packaged) {
        return false;
    }
    package_id_of(l);
    n = get(m, PROOF_FOLDER, l->package_id, PROOF_TAIL, text);
    if (n < 0) {
        return l->told_proven && akit_lie(k, "a proof is lost", l, "");
    }
    proof = malloc(sizeof *proof);
    ensure(proof != NULL);
    r = proof_parse(slice_of(text, (size_t)n), proof, &e);
    if (r == 0) {
        plan_digest(&proof->plan, digest);
    }
    if (r != 0 || strcmp(digest, l->plan) != 0) {
        (void)akit_lie(k, "a proof says something else", l, e.text);
    }
    free(proof);
    return true;
}

bool akit_check_package(const struct model *m, struct akit *k, struct akit_life *l, bool proven)
{
    static const char *const places[][2] = {
        {"uploads", ""}, {"uploads", ".info"}, {"uploads", ".state"}, {PURGE_FOLDER, ""}};
    struct delivery_plan *p;
    bool ok;

    if (!l->packaged) {
        return true;
    }
    p = malloc(sizeof *p);
    ensure(p != NULL);
    ok = check_sidecars(m, k, l, proven, p);
    free(p);
    for (size_t i = 0; ok && l->told_purged && i < sizeof places / sizeof *places; i++) {
        if (get(m, places[i][0], l->info.id, places[i][1], NULL) >= 0) {
            ok = akit_lie(k, "what was purged is there", l, places[i][1]);
        }
    }
    if (ok && l->told_purged &&
        get(m, DELIVERY_PACKAGES, l->package_id, DELIVERY_PLAN_TAIL, NULL) >= 0) {
        ok = akit_lie(k, "the plan of what was purged is there", l, "");
    }
    return ok;
}

bool akit_no_package_temps(const struct model *m, const struct akit_life *l)
{
    static const char *const forms[][2] = {
        {DELIVERY_PACKAGES "/" PACKAGE_TEMP, DELIVERY_MANIFEST_TAIL},
        {DELIVERY_PACKAGES "/" PACKAGE_TEMP, DELIVERY_PLAN_TAIL},
        {PROOF_FOLDER "/" PROOF_TEMP, PROOF_TAIL}};
    char path[256];

    for (size_t i = 0; l->packaged && i < sizeof forms / sizeof *forms; i++) {
        (void)snprintf(path, sizeof path, AKIT_DIR "/%s%s%s", forms[i][0], l->package_id,
                       forms[i][1]);
        if (model_get(m, path, NULL, 0) >= 0) {
            return false;
        }
    }
    return true;
}
