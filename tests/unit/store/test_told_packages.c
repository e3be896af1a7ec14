/* test_told_packages: while a package is built, of one artifact and of two, anew and over what an
 * earlier build left, every file call and every allocation fails once (tests/lib/told.h), on a disk
 * in memory. Whoever asked is told; a plan that was told is the plan after a power cut; the next
 * build goes through, and leaves no temporary names. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/package_build.h"
#include "store/artifact/package_load.h"
#include "tests/lib/artifact_kit.h"
#include "tests/lib/artifact_kit_internal.h"
#include "tests/lib/told.h"

#define BYTES_MAX 4096
#define PIECE     256

struct world {
    struct model *m;
    unsigned count;  /* of members */
    unsigned bad;    /* of them, unless a call fails */
    bool planned;    /* there is a plan for the bad ones */
    unsigned places; /* every question is given another answer */
    int place;       /* ERR_: there is no answer */
    struct delivery_plan told;
};

static struct world world;
static struct delivery_artifact artifact[2];
static unsigned char bytes[2][BYTES_MAX];
static const atomic_bool never = false;

static const char *path_of(const char *folder, const char *name, const char *tail)
{
    static char path[4][200];
    static unsigned next;
    char *p = path[next++ % 4];
    int n = snprintf(p, sizeof path[0], AKIT_DIR "/%s/%s%s", folder, name, tail);
    assert_true(n > 0 && (size_t)n < sizeof path[0]);
    return p;
}

static int fill(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct akit_life life = {.content = 7 + i};
        struct delivery_artifact *a = &artifact[i];
        struct blake3 h;
        uint8_t digest[BLAKE3_LEN];
        size_t n = akit_warc(&life, bytes[i], BYTES_MAX);
        a->size_bytes = n;
        a->accepted_at = 5;
        (void)snprintf(a->object_id, sizeof a->object_id, "%032x", i + 1);
        (void)snprintf(a->project, sizeof a->project, "demo");
        (void)snprintf(a->filename, sizeof a->filename, "a%u.warc.zst", i);
        blake3_start(&h);
        blake3_add(&h, bytes[i], n);
        blake3_end(&h, digest);
        hex_encode(a->checksum, digest, sizeof digest);
        a->checksum[BLAKE3_HEX_LEN] = '\0';
    }
    return 0;
}

/* ---- a build ---- */

static int place(void *ctx, struct artifact_sink *out, struct err *e)
{
    struct world *w = ctx;
    if (w->place != 0) {
        return err_set(e, w->place, "no place");
    }
    *out = (struct artifact_sink){.sink = "directory", .retention_ms = 1000};
    (void)snprintf(out->directory, sizeof out->directory, "/mnt/%u", w->places++);
    return 0;
}

static void progress(void *ctx, uint64_t n)
{
    (void)ctx;
    (void)n;
}

static int build(struct world *w, struct delivery_plan *out, struct err *e)
{
    static unsigned char piece[PIECE];
    struct delivery_members m = {.count = w->count > 1 ? w->count : 0, .item = artifact};
    struct package_job job = {.data = AKIT_DIR,
                              .artifact = artifact,
                              .members = &m,
                              .piece = piece,
                              .piece_bytes = sizeof piece,
                              .place = place,
                              .progress = progress,
                              .stop = &never,
                              .ctx = w};
    int r = package_build(&job, out, e);
    /* Members with a plan may have been sent together, and stay together: a person has to help. A
     * call that failed is no reason to ask one. */
    assert_true(r == ERR_CORRUPT ? job.bad_count == (w->planned ? 0 : w->bad)
                                 : job.bad_count <= w->bad);
    assert_int_equal(job.way_out != NULL,
                     r == ERR_INVALID_PROJECT || (r == ERR_CORRUPT && w->planned));
    package_job_free(&job);
    return r;
}

static int run_build(void *ctx, struct err *e)
{
    struct world *w = ctx;
    return build(w, &w->told, e);
}

static int run_clean(void *ctx, struct err *e)
{
    (void)ctx;
    return package_build_clean(AKIT_DIR, &never, e);
}

/* ---- before ---- */

static void begin(struct world *w, unsigned count)
{
    memset(w, 0, sizeof *w);
    w->m = akit_disk(1, MODEL_REORDERED);
    w->count = count;
    for (unsigned i = 0; i < 2; i++) {
        model_put(w->m, path_of("uploads", artifact[i].object_id, ""), bytes[i],
                  (size_t)artifact[i].size_bytes);
    }
    assert_int_equal(os_mkdir(AKIT_DIR "/" DELIVERY_PACKAGES, 0750), 0);
    assert_int_equal(os_sync_dir(AKIT_DIR), 0);
}

static void begin_one(void *ctx)
{
    begin(ctx, 1);
}

static void begin_two(void *ctx)
{
    begin(ctx, 2);
}

static void built(struct world *w, unsigned count, const char *tail)
{
    struct err e = {0};
    begin(w, count);
    assert_int_equal(build(w, &w->told, &e), 0);
    if (tail != NULL) {
        assert_int_equal(os_unlink(path_of(DELIVERY_PACKAGES, w->told.package_id, tail)), 0);
        assert_int_equal(os_sync_dir(AKIT_DIR "/" DELIVERY_PACKAGES), 0);
    }
}

static void begin_built(void *ctx)
{
    built(ctx, 1, NULL);
}

static void begin_built_two(void *ctx)
{
    built(ctx, 2, NULL);
}

static void begin_no_manifest(void *ctx)
{
    built(ctx, 1, DELIVERY_MANIFEST_TAIL);
}

static void begin_no_manifest_of_two(void *ctx)
{
    built(ctx, 2, DELIVERY_MANIFEST_TAIL);
}

static void begin_no_payload(void *ctx)
{
    built(ctx, 2, DELIVERY_PAYLOAD_TAIL);
}

static void begin_leavings(void *ctx)
{
    struct world *w = ctx;
    built(w, 2, DELIVERY_PLAN_TAIL); /* a payload without its plan */
    model_put(w->m, path_of(DELIVERY_PACKAGES, PACKAGE_TEMP, w->told.package_id), "x", 1);
    model_put(w->m, path_of(DELIVERY_PACKAGES, PACKAGE_TEMP "y.plan.json", ""), "x", 1);
}

/* ---- after ---- */

static int see_name(void *ctx, const char *name)
{
    if (strncmp(name, PACKAGE_TEMP, sizeof PACKAGE_TEMP - 1) == 0) {
        ++*(unsigned *)ctx;
    }
    return 0;
}

static unsigned temporary_names(void)
{
    unsigned count = 0;
    assert_int_equal(os_list(AKIT_DIR "/" DELIVERY_PACKAGES, see_name, &count), 0);
    return count;
}

static void same_plan(const struct delivery_plan *a, const struct delivery_plan *b)
{
    struct buf x = {0}, y = {0};
    delivery_plan_put(&x, a);
    delivery_plan_put(&y, b);
    assert_true(slice_eq(buf_slice(&x), buf_slice(&y)));
    buf_free(&x);
    buf_free(&y);
}

/* On that disk: what was told is there, and goes nowhere else. */
static void hold(struct world *w, struct model *m, int r)
{
    static struct delivery_plan p;
    struct err e = {0};
    model_use(m);
    assert_int_equal(package_build_clean(AKIT_DIR, &never, &e), 0);
    assert_int_equal(temporary_names(), 0);
    if (build(w, &p, &e) != 0) {
        fail_msg("%s", e.text);
    }
    if (r == 0) {
        same_plan(&p, &w->told);
    }
    assert_int_equal(temporary_names(), 0);
    assert_int_equal(
        model_get(m, path_of(DELIVERY_PACKAGES, p.package_id, DELIVERY_MANIFEST_TAIL), NULL, 0),
        p.file[1].size);
    if (w->count > 1) {
        assert_int_equal(
            model_get(m, path_of(DELIVERY_PACKAGES, p.package_id, DELIVERY_PAYLOAD_TAIL), NULL, 0),
            artifact[0].size_bytes + artifact[1].size_bytes);
    }
}

/* ---- reading it again ---- */

static int load(const struct world *w, struct err *e)
{
    static struct delivery_plan p;
    struct delivery_members m;
    memset(&p, 0, sizeof p);
    int r = package_load(AKIT_DIR, w->told.package_id, &p, &m, e);
    assert_int_equal(m.count, r == 0 ? 2 : 0);
    if (r == 0) {
        told_rest(true);
        same_plan(&p, &w->told);
        told_rest(false);
        assert_string_equal(m.item[1].object_id, artifact[1].object_id);
    }
    delivery_members_free(&m);
    return r;
}

static int run_load(void *ctx, struct err *e)
{
    return load(ctx, e);
}

static void end_load(void *ctx, int r)
{
    struct world *w = ctx;
    struct err e = {0};
    (void)r;
    assert_int_equal(load(w, &e), 0);
    model_free(w->m);
}

/* Members whose bytes are missing, and are others: each of them is bad. */
static void spoil(struct world *w)
{
    assert_int_equal(os_unlink(path_of("uploads", artifact[0].object_id, "")), 0);
    assert_int_equal(os_sync_dir(AKIT_DIR "/uploads"), 0);
    model_put(w->m, path_of("uploads", artifact[1].object_id, ""), bytes[0],
              (size_t)artifact[0].size_bytes - 1);
    w->bad = 2;
}

static void begin_bad(void *ctx)
{
    begin(ctx, 2);
    spoil(ctx);
}

static void begin_bad_planned(void *ctx)
{
    struct world *w = ctx;
    built(w, 2, DELIVERY_PAYLOAD_TAIL);
    spoil(w);
    w->planned = true;
}

static int run_bad(void *ctx, struct err *e)
{
    static struct delivery_plan p;
    struct world *w = ctx;
    int r = build(w, &p, e);
    assert_int_not_equal(r, 0);
    return r == ERR_CORRUPT ? 0 : r;
}

static void end_bad(void *ctx, int r)
{
    struct world *w = ctx;
    struct err e = {0};
    (void)r; /* what cannot be removed now goes at the next start */
    assert_int_equal(package_build_clean(AKIT_DIR, &never, &e), 0);
    assert_int_equal(temporary_names(), 0);
    model_free(w->m);
}

static void hold_both(struct world *w, int r)
{
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct model *cut = model_crash(w->m, &none);
    hold(w, cut, r);
    model_free(cut);
    hold(w, w->m, r);
    model_free(w->m);
}

static void end(void *ctx, int r)
{
    struct world *w = ctx;
    model_use(w->m);
    hold_both(w, r);
}

static void end_clean(void *ctx, int r)
{
    struct world *w = ctx;
    (void)r;
    model_use(w->m);
    hold_both(w, -1); /* its plan was taken away: the next may say another place */
}

#define QUIET "close " /* nothing was written through what cannot be closed */
/* What cannot be removed now is left to the next start, which must not be kept from anything. */
#define LEFT QUIET, "stat ", "unlink ", "rename ", "open ", "ftruncate "

static void test_packages(void **state)
{
    static const struct told_op ops[] = {
        {"one", begin_one, run_build, end, {QUIET}, false, 0, 0},
        {"two", begin_two, run_build, end, {QUIET}, false, 0, 0},
        {"one again", begin_built, run_build, end, {QUIET}, false, 0, 0},
        {"two again", begin_built_two, run_build, end, {QUIET}, false, 0, 0},
        {"manifest of one", begin_no_manifest, run_build, end, {QUIET}, false, 0, 0},
        {"manifest of two", begin_no_manifest_of_two, run_build, end, {QUIET}, false, 0, 0},
        {"payload", begin_no_payload, run_build, end, {QUIET}, false, 0, 0},
        {"load", begin_built_two, run_load, end_load, {QUIET}, false, 0, 0},
        {"bad", begin_bad, run_bad, end_bad, {QUIET, "/" PACKAGE_TEMP}, false, 0, 0},
        {"bad, planned",
         begin_bad_planned,
         run_bad,
         end_bad,
         {QUIET, "/" PACKAGE_TEMP},
         false,
         0,
         0},
        {"clean", begin_leavings, run_clean, end_clean, {LEFT}, false, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        told_sweep(&ops[i], &world);
    }
}

/* Nothing is made of what has no place. */
static void test_no_place(void **state)
{
    static const int places[] = {ERR_INVALID_PROJECT, ERR_IO};
    (void)state;
    for (unsigned count = 1; count <= 2; count++) {
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            struct err e = {0};
            begin(&world, count);
            world.place = places[i];
            assert_int_equal(build(&world, &world.told, &e), places[i]);
            assert_string_equal(e.text, "no place");
            world.place = 0;
            assert_int_equal(build(&world, &world.told, &e), 0);
            model_free(world.m);
        }
    }
}

static bool is_there(const char *tail)
{
    return model_get(world.m, path_of(DELIVERY_PACKAGES, world.told.package_id, tail), NULL, 0) >=
           0;
}

/* A build that failed leaves nothing behind. */
static void test_nothing_is_left(void **state)
{
    struct err e = {0};
    (void)state;
    begin_bad(&world);
    assert_int_equal(run_bad(&world, &e), 0);
    assert_int_equal(temporary_names(), 0);
    model_free(world.m);
}

/* What has no plan goes at the start, and not again with the next power cut: its name was taken
 * from it, for good, before it was cut. */
static void test_no_plan(void **state)
{
    struct model_choice none = {.how = MODEL_CUT_NONE};
    struct err e = {0};
    (void)state;
    begin_leavings(&world);
    assert_true(is_there(DELIVERY_PAYLOAD_TAIL));
    assert_true(is_there(DELIVERY_MANIFEST_TAIL));
    assert_int_equal(package_build_clean(AKIT_DIR, &never, &e), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_false(is_there(DELIVERY_PAYLOAD_TAIL));
        assert_false(is_there(DELIVERY_MANIFEST_TAIL));
        struct model *cut = model_crash(world.m, &none);
        model_free(world.m);
        world.m = cut;
        model_use(cut);
    }
    model_free(world.m);
}

/* A package of one artifact has no members to read. */
static void test_load_of_none(void **state)
{
    static struct delivery_plan p;
    struct delivery_members m;
    struct err e = {0};
    (void)state;
    built(&world, 1, NULL);
    assert_int_equal(package_load(AKIT_DIR, world.told.package_id, &p, &m, &e), ERR_NOT_FOUND);
    assert_int_equal(m.count, 0);
    model_free(world.m);
}

/* Names that say one package and a plan of another. */
static void test_load_of_another(void **state)
{
    static struct delivery_plan p;
    struct delivery_members m;
    char other[DELIVERY_PACKAGE_LEN + 1];
    struct err e = {0};
    (void)state;
    built(&world, 2, NULL);
    memset(other, 'e', DELIVERY_PACKAGE_LEN);
    other[DELIVERY_PACKAGE_LEN] = '\0';
    assert_int_equal(
        os_rename(path_of(DELIVERY_PACKAGES, world.told.package_id, DELIVERY_PLAN_TAIL),
                  path_of(DELIVERY_PACKAGES, other, DELIVERY_PLAN_TAIL)),
        0);
    assert_int_equal(package_load(AKIT_DIR, other, &p, &m, &e), ERR_CORRUPT);
    assert_string_equal(e.text, "it is the plan of another package");
    model_free(world.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packages),        cmocka_unit_test(test_no_place),
        cmocka_unit_test(test_nothing_is_left), cmocka_unit_test(test_no_plan),
        cmocka_unit_test(test_load_of_none),    cmocka_unit_test(test_load_of_another),
    };
    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests_name("told_packages", tests, fill, NULL);
}
