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
#include "store/artifact/package_build.h"
#include "store/artifact/purge.h"
#include "tests/lib/artifact_kit.h"
#include "tests/lib/told.h"

#define ID    "00000000000000000000000000000007"
#define OTHER "00000000000000000000000000000008"

struct world {
    struct model *m;
    bool purging;
};

static struct world world;
static struct proof one, both; /* of a package of one artifact, and of a merged one */
static struct proof *proof;
static struct delivery_artifact item[2];
static atomic_bool stop;

static const char *path_of(const char *folder, const char *name, const char *tail)
{
    static char path[4][200];
    static unsigned next;
    char *p = path[next++ % 4];
    int n = snprintf(p, sizeof path[0], AKIT_DIR "/%s/%s%s", folder, name, tail);
    assert_true(n > 0 && (size_t)n < sizeof path[0]);
    return p;
}

static bool there(const struct model *m, const char *path)
{
    return model_get(m, path, NULL, 0) >= 0;
}

static void make_proof(struct proof *p, unsigned members)
{
    const struct artifact_sink to = {
        .sink = "directory", .directory = "/somewhere", .retention_ms = 1};
    struct err e = {0};
    memset(p, 0, sizeof *p);
    for (unsigned i = 0; i < 2; i++) {
        memset(&item[i], 0, sizeof item[i]);
        item[i].size_bytes = 100;
        item[i].accepted_at = 5;
        (void)snprintf(item[i].object_id, sizeof item[i].object_id, "%s", i == 0 ? ID : OTHER);
        (void)snprintf(item[i].project, sizeof item[i].project, "demo");
        (void)snprintf(item[i].filename, sizeof item[i].filename, "a.warc");
        (void)snprintf(item[i].checksum, sizeof item[i].checksum, "%064x", 7 + i);
    }
    p->artifact = item[0];
    if (members > 0) {
        p->members = (struct delivery_members){.count = members, .item = item};
        assert_int_equal(delivery_plan_begin_merged(&p->plan, &p->members, &to, &e), 0);
    } else {
        assert_int_equal(delivery_plan_begin(&p->plan, &p->artifact, &to, &e), 0);
    }
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_digests *d = &p->plan.file[i].digests;
        memset(d->blake3, 'b', BLAKE3_HEX_LEN);
        memset(d->md5, 'c', MD5_HEX_LEN);
        memset(d->sha1, 'd', SHA1_HEX_LEN);
        p->plan.file[i].size = (members > 0 ? 100 * members : 100) + i;
    }
    if (members == 0) {
        memcpy(p->plan.file[0].digests.blake3, p->artifact.checksum, BLAKE3_HEX_LEN);
    }
    p->sent_at = 1002;
    p->verified_at = 1003;
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
    assert_int_equal(proof_write(AKIT_DIR, proof, &e), 0);
}

static void begin_leaving(void *ctx)
{
    struct world *w = ctx;
    begin_empty(w);
    model_put(w->m, path_of("proofs", PROOF_TEMP, proof->plan.package_id), "", 0);
    model_put(w->m, path_of("proofs", ".part-", "of a person"), "", 0);
    char path[200];
    (void)snprintf(path, sizeof path, AKIT_DIR "/proofs/" PROOF_TEMP "%s" PROOF_TAIL,
                   proof->plan.package_id);
    model_put(w->m, path, "x", 1);
}

static void put_artifact(struct model *m, const char *id)
{
    char bytes[100] = {0};
    model_put(m, path_of("uploads", id, ""), bytes, sizeof bytes);
    model_put(m, path_of("uploads", id, ".info"), "{}", 2);
    model_put(m, path_of("uploads", id, ".state"), "x", 1);
    model_put(m, path_of("receipts", id, ".json"), "{}", 2);
}

static void begin_purge(void *ctx)
{
    struct world *w = ctx;
    struct err e = {0};
    char bytes[200] = {0};
    begin_empty(w);
    put_artifact(w->m, ID);
    if (proof == &both) {
        put_artifact(w->m, OTHER);
        model_put(w->m, path_of("packages", proof->plan.package_id, ".warc.zst"), bytes,
                  sizeof bytes);
    }
    model_put(w->m, path_of("packages", proof->plan.package_id, ".plan.json"), "{}", 2);
    model_put(w->m, path_of("packages", proof->plan.package_id, ".manifest.jsonl"), "{}", 2);
    assert_int_equal(proof_folder(AKIT_DIR, &e), 0);
    assert_int_equal(purge_folder(AKIT_DIR, &e), 0);
    assert_int_equal(proof_write(AKIT_DIR, proof, &e), 0);
    w->purging = true;
}

/* ---- after ---- */

static void all_gone(const struct model *m)
{
    char path[200];
    for (unsigned i = 0; i < (proof == &both ? 2 : 1); i++) {
        const char *id = item[i].object_id;
        assert_false(there(m, path_of("uploads", id, "")));
        assert_false(there(m, path_of("uploads", id, ".info")));
        assert_false(there(m, path_of("uploads", id, ".state")));
        assert_false(there(m, path_of("uploads/.purge", id, "")));
    }
    (void)snprintf(path, sizeof path, PACKAGE_PURGED "%s", proof->plan.package_id);
    assert_false(there(m, path_of("packages", path, ".warc.zst")));
    assert_false(there(m, path_of("packages", proof->plan.package_id, ".warc.zst")));
    assert_false(there(m, path_of("packages", proof->plan.package_id, ".plan.json")));
    assert_false(there(m, path_of("packages", proof->plan.package_id, ".manifest.jsonl")));
}

/* On a disk in use. */
static void hold(struct world *w, struct model *m, int r)
{
    static struct proof read;
    struct err e = {0};
    model_use(m);
    if (r == 0 || w->purging) {
        assert_int_equal(proof_read(AKIT_DIR, proof->plan.package_id, &read, &e), 0);
        assert_int_equal(read.verified_at, proof->verified_at);
        proof_free(&read);
    }
    if (w->purging) {
        if (r == 0) {
            all_gone(m);
        }
        assert_int_equal(purge_package(AKIT_DIR, &proof->plan, &stop, NULL, &e), 0);
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
                   proof->plan.package_id);
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
    return proof_write(AKIT_DIR, proof, e);
}

/* One that says the same at another time: the first one stays. */
static int run_write_again(void *ctx, struct err *e)
{
    static struct proof later;
    (void)ctx;
    later = *proof;
    later.verified_at++;
    return proof_write(AKIT_DIR, &later, e);
}

static int run_read(void *ctx, struct err *e)
{
    static struct proof read;
    (void)ctx;
    int r = proof_read(AKIT_DIR, proof->plan.package_id, &read, e);
    if (r == 0) {
        proof_free(&read);
    }
    return r;
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
    int r = purge_package(AKIT_DIR, &proof->plan, &stop, &freed, e);
    assert_true(r != 0 || freed == (proof == &both ? 400 : 100));
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
    for (proof = &one;; proof = &both) {
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            told_sweep(&ops[i], &world);
        }
        if (proof == &both) {
            break;
        }
    }
}

/* What has no receipt stays, whichever member it is. */
static void test_members_have_receipts(void **state)
{
    (void)state;
    proof = &both;
    for (unsigned i = 0; i < 2; i++) {
        struct err e = {0};
        begin_purge(&world);
        assert_int_equal(os_unlink(path_of("receipts", item[i].object_id, ".json")), 0);
        assert_int_equal(run_purge(&world, &e), ERR_REFUSED);
        assert_true(there(world.m, path_of("uploads", ID, "")));
        assert_true(there(world.m, path_of("uploads", OTHER, "")));
        model_free(world.m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proofs),
        cmocka_unit_test(test_members_have_receipts),
    };
    make_proof(&one, 0);
    make_proof(&both, 2);
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("told_proofs", tests, NULL, NULL);
}
