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

#include <zstd.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/package_build.h"
#include "store/artifact/purge.h"
#include "tests/lib/artifact_kit_internal.h"
#include "tests/lib/journal_kit.h"

#define PIECE    1024
#define TEXT_MAX 8192

/* ---- bytes that may be joined ---- */

static size_t frame(ZSTD_CCtx *z, unsigned char *out, size_t room, const char *text, size_t n)
{
    size_t r = ZSTD_compress2(z, out, room, text, n);
    ensure(!ZSTD_isError(r));
    return r;
}

size_t akit_warc(const struct akit_life *l, unsigned char *out, size_t room)
{
    char text[1024];
    size_t head, n;
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ensure(z != NULL);
    ensure(!ZSTD_isError(ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1)));
    int len = snprintf(text, sizeof text, "WARC/1.1\r\nContent-Length: %u\r\n\r\n", 800u);
    head = (size_t)len;
    for (n = head; n < head + 800; n += 16) {
        (void)snprintf(text + n, 17, "%016llx", (unsigned long long)kit_mix(l->content + n));
    }
    memcpy(text + n, "\r\n\r\n", 4);
    n += 4;
    size_t first = frame(z, out, room, text, head);
    first += frame(z, out + first, room - first, text + head, n - head);
    (void)ZSTD_freeCCtx(z);
    return first;
}

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

/* The first member of the package that l ends. */
static struct akit_life *first_of(struct akit *k, struct akit_life *l)
{
    while (l > k->lives && l[-1].mate) {
        l--;
    }
    return l;
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
static void deliver(struct akit *k, struct akit_life *l, struct delivery_members *m,
                    struct proof *proof)
{
    struct delivery_artifact *a = m->item;
    const struct delivery_members none = {0};
    unsigned char piece[PIECE];
    const atomic_bool stop = false;
    struct package_job job = {.data = AKIT_DIR,
                              .artifact = a,
                              .members = m->count > 1 ? m : &none,
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

    if (job.bad_count > 0) {
        (void)akit_lie(k, "a good member was called bad", l, job.bad[0].text);
        package_job_free(&job);
    }
    if (r == 0) {
        tell_sealed(k, l, &proof->plan);
        memcpy(l->package_id, proof->plan.package_id, sizeof l->package_id);
    }
    if (r == 0 && l->purges) {
        proof_free(proof);
        proof->artifact = *a;
        proof->members = m->count > 1 ? *m : none;
        r = proof_write(AKIT_DIR, proof, &e);
        l->told_proven = l->told_proven || r == 0;
    }
    proof->members = none; /* they are the caller's */
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
    struct delivery_artifact a[2];
    struct delivery_members m = {.item = a};
    struct proof *proof;

    if (!l->packaged || l->told_purged) {
        return;
    }
    for (const struct akit_life *x = first_of(k, l); x <= l; x++) {
        if (!artifact_of(k, x, &a[m.count])) {
            return;
        }
        m.count++;
    }
    proof = calloc(1, sizeof *proof);
    ensure(proof != NULL);
    proof->sent_at = a->accepted_at + 1;
    proof->verified_at = a->accepted_at + 2;
    deliver(k, l, &m, proof);
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

static void package_id_of(struct akit *k, struct akit_life *l)
{
    struct delivery_artifact a[2];
    unsigned n = 0;

    memset(a, 0, sizeof a);
    for (const struct akit_life *x = first_of(k, l); x <= l; x++, n++) {
        a[n].size_bytes = x->info.size;
        memcpy(a[n].object_id, x->info.id, sizeof a->object_id);
        memcpy(a[n].project, x->info.project, sizeof a->project);
        memcpy(a[n].checksum, x->digest, sizeof a->checksum);
    }
    if (n > 1) {
        delivery_merged_id(a, n, l->package_id);
    } else {
        delivery_package_id(a, l->package_id);
    }
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
    char end[32];
    char text[TEXT_MAX], digest[BLAKE3_HEX_LEN + 1];
    struct err e = {0};
    int64_t n = get(m, DELIVERY_PACKAGES, l->package_id, DELIVERY_PLAN_TAIL, text);
    bool plan = n >= 0;
    int end_len = snprintf(end, sizeof end, "\"inputs\":%d}\n", (int)(l - first_of(k, l)) + 1);

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
    if (n < end_len || memcmp(text + n - end_len, end, (size_t)end_len) != 0 ||
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

    while (l->mate) {
        l++;
    }
    if (!l->packaged) {
        return false;
    }
    package_id_of(k, l);
    n = get(m, PROOF_FOLDER, l->package_id, PROOF_TAIL, text);
    if (n < 0) {
        return l->told_proven && akit_lie(k, "a proof is lost", l, "");
    }
    proof = malloc(sizeof *proof);
    ensure(proof != NULL);
    r = proof_parse(slice_of(text, (size_t)n), proof, &e);
    if (r == 0) {
        plan_digest(&proof->plan, digest);
        proof_free(proof);
    }
    if (r != 0 || strcmp(digest, l->plan) != 0) {
        (void)akit_lie(k, "a proof says something else", l, e.text);
    }
    free(proof);
    return true;
}

/* The payload of a merged package: nobody meets a part of it under its name. */
static bool check_payload(const struct model *m, struct akit *k, struct akit_life *l, bool proven)
{
    unsigned char want[AKIT_SIZE_MAX + 8];
    char text[TEXT_MAX];
    size_t size = 0;
    int64_t n = get(m, DELIVERY_PACKAGES, l->package_id, DELIVERY_PAYLOAD_TAIL, text);

    if (n < 0) {
        return l->plan[0] == '\0' || proven ||
               akit_lie(k, "the payload of a sealed package is lost", l, "");
    }
    for (const struct akit_life *x = first_of(k, l); x <= l; x++) {
        akit_content(x, want + size);
        size += (size_t)x->info.size;
    }
    return !l->told_purged && (size_t)n == size && memcmp(want, text, size) == 0
               ? true
               : akit_lie(k, "a payload is torn, or came back", l, "");
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
    ok = ok && (first_of(k, l) == l || check_payload(m, k, l, proven));
    for (struct akit_life *x = first_of(k, l); ok && l->told_purged && x <= l; x++) {
        for (size_t i = 0; ok && i < sizeof places / sizeof *places; i++) {
            if (get(m, places[i][0], x->info.id, places[i][1], NULL) >= 0) {
                ok = akit_lie(k, "what was purged is there", x, places[i][1]);
            }
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
        {DELIVERY_PACKAGES "/" PACKAGE_TEMP, DELIVERY_PAYLOAD_TAIL},
        {DELIVERY_PACKAGES "/" PACKAGE_PURGED, DELIVERY_PAYLOAD_TAIL},
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
