/* test_told_proofs: while a proof is written or read, and while a package's local bytes go, every
 * file call and every allocation fails once (tests/lib/told.h), on a disk in memory. Whoever asked
 * is told; what was told is still so after a power cut; a purge that failed goes through when it is
 * asked for again, there or after the cut; proof and receipt never go. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "os/os.h"
#include "store/artifact/purge.h"
#include "tests/lib/artifact_kit.h"
#include "tests/lib/told.h"

#define ID "00000000000000000000000000000007"

struct world {
    struct model *m;
    bool purging;
};

static struct world world;
static struct proof proof;
static atomic_bool stop;

static const char *path_of(const char *folder, const char *name, const char *tail)
{
    static char path[4][200];
    static unsigned next;
    char *p = path[next++ % 4];
    (void)snprintf(p, sizeof path[0], AKIT_DIR "/%s/%s%s", folder, name, tail);
    return p;
}

static bool there(const struct model *m, const char *path)
{
    return model_get(m, path, NULL, 0) >= 0;
}

static void make_proof(void)
{
    const struct artifact_sink to = {
        .sink = "directory", .directory = "/somewhere", .retention_ms = 1};
    struct err e = {0};
    memset(&proof, 0, sizeof proof);
    proof.artifact.size_bytes = 100;
    proof.artifact.accepted_at = 5;
    (void)snprintf(proof.artifact.object_id, sizeof proof.artifact.object_id, ID);
    (void)snprintf(proof.artifact.project, sizeof proof.artifact.project, "demo");
    (void)snprintf(proof.artifact.filename, sizeof proof.artifact.filename, "a.warc");
    (void)snprintf(proof.artifact.checksum, sizeof proof.artifact.checksum, "%064x", 7);
    assert_int_equal(delivery_plan_begin(&proof.plan, &proof.artifact, &to, &e), 0);
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_digests *d = &proof.plan.file[i].digests;
        memset(d->blake3, 'b', BLAKE3_HEX_LEN);
        memset(d->md5, 'c', MD5_HEX_LEN);
        memset(d->sha1, 'd', SHA1_HEX_LEN);
        proof.plan.file[i].size = 100 + i;
    }
    memcpy(proof.plan.file[0].digests.blake3, proof.artifact.checksum, BLAKE3_HEX_LEN);
    proof.sent_at = 1002;
    proof.verified_at = 1003;
}

/* ---- before ---- */

static void begin_empty(void *ctx)
{
    struct world *w = ctx;
    memset(w, 0, sizeof *w);
    w->m = akit_disk(1, MODEL_REORDERED);
}

static void begin_folder(void *ctx)
{
    struct err e = {0};
    begin_empty(ctx);
    assert_int_equal(proof_folder(AKIT_DIR, &e), 0);
}

static void begin_written(void *ctx)
{
    struct err e = {0};
    begin_folder(ctx);
    assert_int_equal(proof_write(AKIT_DIR, &proof, &e), 0);
}

static void begin_leaving(void *ctx)
{
    struct world *w = ctx;
    begin_empty(w);
    model_put(w->m, path_of("proofs", PROOF_TEMP, proof.plan.package_id), "", 0);
    model_put(w->m, path_of("proofs", ".part-", "of a person"), "", 0);
    char path[200];
    (void)snprintf(path, sizeof path, AKIT_DIR "/proofs/" PROOF_TEMP "%s" PROOF_TAIL,
                   proof.plan.package_id);
    model_put(w->m, path, "x", 1);
}

static void begin_purge(void *ctx)
{
    struct world *w = ctx;
    struct err e = {0};
    char bytes[100] = {0};
    begin_empty(w);
    model_put(w->m, path_of("uploads", ID, ""), bytes, sizeof bytes);
    model_put(w->m, path_of("uploads", ID, ".info"), "{}", 2);
    model_put(w->m, path_of("uploads", ID, ".state"), "x", 1);
    model_put(w->m, path_of("receipts", ID, ".json"), "{}", 2);
    model_put(w->m, path_of("packages", proof.plan.package_id, ".plan.json"), "{}", 2);
    model_put(w->m, path_of("packages", proof.plan.package_id, ".manifest.jsonl"), "{}", 2);
    assert_int_equal(proof_folder(AKIT_DIR, &e), 0);
    assert_int_equal(purge_folder(AKIT_DIR, &e), 0);
    assert_int_equal(proof_write(AKIT_DIR, &proof, &e), 0);
    w->purging = true;
}

/* ---- after ---- */

static void all_gone(const struct model *m)
{
    assert_false(there(m, path_of("uploads", ID, "")));
    assert_false(there(m, path_of("uploads", ID, ".info")));
    assert_false(there(m, path_of("uploads", ID, ".state")));
    assert_false(there(m, path_of("uploads/.purge", ID, "")));
    assert_false(there(m, path_of("packages", proof.plan.package_id, ".plan.json")));
    assert_false(there(m, path_of("packages", proof.plan.package_id, ".manifest.jsonl")));
}

/* On a disk in use. */
static void hold(struct world *w, struct model *m, int r)
{
    static struct proof read;
    struct err e = {0};
    model_use(m);
    if (r == 0 || w->purging) {
        assert_int_equal(proof_read(AKIT_DIR, proof.plan.package_id, &read, &e), 0);
        assert_int_equal(read.verified_at, proof.verified_at);
    }
    if (w->purging) {
        if (r == 0) {
            all_gone(m);
        }
        assert_int_equal(purge_package(AKIT_DIR, &proof.plan, &stop, NULL, &e), 0);
        all_gone(m);
        assert_true(there(m, path_of("receipts", ID, ".json")));
    }
}

static void end(void *ctx, int r)
{
    struct world *w = ctx;
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *cut = model_crash(w->m, &none);
    hold(w, cut, r);
    model_free(cut);
    hold(w, w->m, r);
    model_free(w->m);
}

static void end_folder(void *ctx, int r)
{
    struct world *w = ctx;
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *cut = model_crash(w->m, &none);
    struct err e = {0};
    model_use(cut);
    if (r == 0) { /* the folder is there to stay, and nothing of a proof that was cut */
        assert_int_equal(os_mkdir(AKIT_DIR "/proofs", 0700), -EEXIST);
    }
    model_use(w->m);
    assert_int_equal(proof_folder(AKIT_DIR, &e), 0);
    char path[200];
    (void)snprintf(path, sizeof path, AKIT_DIR "/proofs/" PROOF_TEMP "%s" PROOF_TAIL,
                   proof.plan.package_id);
    assert_false(there(w->m, path));
    model_free(cut);
    model_free(w->m);
}

static void end_purge_folder(void *ctx, int r)
{
    struct world *w = ctx;
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *cut = model_crash(w->m, &none);
    model_use(cut);
    if (r == 0) {
        assert_int_equal(os_mkdir(AKIT_DIR "/" PURGE_FOLDER, 0700), -EEXIST);
    }
    model_use(w->m);
    model_free(cut);
    model_free(w->m);
}

static void begin_uploads(void *ctx)
{
    struct world *w = ctx;
    begin_empty(w);
    model_put(w->m, path_of("uploads", ID, ".info"), "{}", 2);
}

/* ---- the operations ---- */

static int run_folder(void *ctx, struct err *e)
{
    (void)ctx;
    return proof_folder(AKIT_DIR, e);
}

static int run_write(void *ctx, struct err *e)
{
    (void)ctx;
    return proof_write(AKIT_DIR, &proof, e);
}

/* One that says the same at another time: the first one stays. */
static int run_write_again(void *ctx, struct err *e)
{
    static struct proof later;
    (void)ctx;
    later = proof;
    later.verified_at++;
    return proof_write(AKIT_DIR, &later, e);
}

static int run_read(void *ctx, struct err *e)
{
    static struct proof read;
    (void)ctx;
    return proof_read(AKIT_DIR, proof.plan.package_id, &read, e);
}

static int run_purge_folder(void *ctx, struct err *e)
{
    (void)ctx;
    return purge_folder(AKIT_DIR, e);
}

static int run_purge(void *ctx, struct err *e)
{
    uint64_t freed = 0;
    (void)ctx;
    int r = purge_package(AKIT_DIR, &proof.plan, &stop, &freed, e);
    assert_true(r != 0 || freed == 100);
    return r;
}

#define QUIET "close "

static void test_proofs(void **state)
{
    static const struct told_op ops[] = {
        {"folder", begin_empty, run_folder, end_folder, {QUIET}, false, 0, 0},
        {"clean", begin_leaving, run_folder, end_folder, {QUIET}, false, 0, 0},
        {"write", begin_folder, run_write, end, {QUIET}, false, 0, 0},
        {"write again", begin_written, run_write_again, end, {QUIET}, false, 0, 0},
        {"read", begin_written, run_read, end, {QUIET}, false, 0, 0},
        {"purge folder", begin_uploads, run_purge_folder, end_purge_folder, {QUIET}, false, 0, 0},
        {"purge", begin_purge, run_purge, end, {QUIET}, false, 0, 0},
    };
    (void)state;
    make_proof();
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        told_sweep(&ops[i], &world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_proofs)};
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("told_proofs", tests, NULL, NULL);
}
