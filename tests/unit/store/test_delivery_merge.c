/* Merged packages: what they are as text, how artifacts are chosen for them, and how a package ends
 * that cannot be built or is on the disk already. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/artifact/delivery_index.h"
#include "store/artifact/package_load.h"
#include "store/artifact/proof.h"
#include "store/db.h"

#define NOW    INT64_C(1796000000)
#define NOW_MS (NOW * 1000)
#define WAIT   INT64_C(3600000)

static char dir[64];
static struct delivery_index *ix;
static struct delivery_work work;
static struct err e;
static unsigned made;
static int64_t due_ms;

static void done(int r)
{
    if (r != 0) {
        fail_msg("%d: %s", r, e.text);
    }
}

static int setup(void **state)
{
    bool rebuilt;

    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tallyman-merge-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : delivery_index_open(dir, &ix, &rebuilt, &e);
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    delivery_members_free(&work.members);
    delivery_index_close(ix);
    ix = NULL;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static struct delivery_artifact artifact(unsigned n, uint64_t size, int64_t accepted_at)
{
    struct delivery_artifact a = {.size_bytes = size, .accepted_at = accepted_at, .project = "p"};

    snprintf(a.object_id, sizeof a.object_id, "%032x", n);
    if (n % 2 == 0) {
        snprintf(a.filename, sizeof a.filename, "n\"%u.warc.zst", n);
    }
    snprintf(a.checksum, sizeof a.checksum, "%064x", n);
    return a;
}

/* ---- text ---- */

static struct delivery_artifact three[3];
static struct delivery_members members = {.count = 3, .item = three};
static struct delivery_plan plan;

static void plan_three(const struct artifact_sink *to)
{
    struct delivery_members m = members;

    for (unsigned i = 0; i < 3; i++) {
        three[i] = artifact(i, 10 + i, NOW + i);
    }
    done(delivery_plan_begin_merged(&plan, &m, to, &e));
    plan.file[0].size = 33;
    snprintf(plan.file[0].digests.md5, 33, "%032x", 1);
    snprintf(plan.file[0].digests.sha1, 41, "%040x", 2);
    snprintf(plan.file[0].digests.blake3, 65, "%064x", 3);
    snprintf(plan.file[1].digests.md5, 33, "%032x", 4);
    snprintf(plan.file[1].digests.sha1, 41, "%040x", 5);
    snprintf(plan.file[1].digests.blake3, 65, "%064x", 6);
}

static const struct artifact_sink place = {.sink = "directory",
                                           .directory = "/there",
                                           .packager = "mergewarc",
                                           .package_target = 1,
                                           .package_trigger = 1,
                                           .package_max_wait_ms = 1000};

static void manifest_three(struct buf *b)
{
    struct delivery_member_facts facts[3];

    for (unsigned i = 0; i < 3; i++) {
        facts[i].records = i + 1;
        snprintf(facts[i].sha256, sizeof facts[i].sha256, "%064x", 7 + i);
        snprintf(facts[i].sha1, sizeof facts[i].sha1, "%040x", 9 + i);
    }
    delivery_manifest_put_merged(b, &members, facts, &plan.file[0].digests, three[0].checksum);
    assert_false(b->failed);
}

static void test_plan(void **state)
{
    static struct delivery_plan back;
    struct artifact_sink named = place;
    struct buf text = {0};
    char want[100];

    (void)state;
    plan_three(&place);
    assert_string_equal(plan.packager, "mergewarc");
    assert_string_equal(plan.identifier, plan.package_id); /* {{OBJECT_ID}} */
    snprintf(want, sizeof want, "p-%.24s.warc.zst", plan.package_id);
    assert_string_equal(plan.file[0].name, want);
    snprintf(want, sizeof want, "packages/%s.warc.zst", plan.package_id);
    assert_string_equal(plan.file[0].source, want);
    delivery_plan_put(&text, &plan);
    assert_memory_equal(text.ptr, "{\"version\":3,\"package_id\":\"", 27);
    const struct slice wanted =
        SLICE("\",\"members\":3,\"project\":\"p\",\"packager\":\"mergewarc\",");
    assert_non_null(memmem(text.ptr, text.len, wanted.ptr, wanted.len));
    done(delivery_plan_parse(buf_slice(&text), &back, &e));
    assert_true(delivery_plan_fits_merged(&back, &members));
    assert_false(delivery_plan_fits(&back, &three[0]));
    assert_string_equal(delivery_plan_label(&back), plan.package_id);
    members.count = 2;
    assert_false(delivery_plan_fits_merged(&back, &members));
    members.count = 3;
    back.file[0].size++;
    assert_false(delivery_plan_fits_merged(&back, &members));
    back.file[0].size--;
    three[2].checksum[0] = 'f'; /* another member, another package */
    assert_false(delivery_plan_fits_merged(&back, &members));
    for (size_t n = 0; n < text.len; n++) { /* none that is cut off */
        assert_int_equal(delivery_plan_parse(slice_of(text.ptr, n), &back, &e), ERR_CORRUPT);
    }
    snprintf(named.identifier, sizeof named.identifier, "{{DATE}}-{{PACKAGE_ID_SHORT}}");
    plan_three(&named);
    assert_memory_equal(plan.identifier, "20261130", 8); /* of the first member */
    buf_free(&text);
}

static void test_manifest(void **state)
{
    struct delivery_members back;
    struct buf text = {0};

    (void)state;
    plan_three(&place);
    manifest_three(&text);
    done(delivery_manifest_parse(buf_slice(&text), &plan, &back, &e));
    assert_int_equal(back.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_memory_equal(&back.item[i], &three[i], sizeof three[i]);
    }
    delivery_members_free(&back);
    for (size_t n = 0; n < text.len; n++) {
        assert_int_equal(delivery_manifest_parse(slice_of(text.ptr, n), &plan, &back, &e),
                         ERR_CORRUPT);
        assert_null(back.item);
    }
    for (size_t n = 0; n < text.len; n++) { /* any byte: never other members */
        int r;
        text.ptr[n] ^= 1;
        r = delivery_manifest_parse(buf_slice(&text), &plan, &back, &e);
        assert_true(r == 0 || r == ERR_CORRUPT);
        for (unsigned i = 0; r == 0 && i < 3; i++) {
            assert_string_equal(back.item[i].object_id, three[i].object_id);
            assert_string_equal(back.item[i].checksum, three[i].checksum);
            assert_int_equal(back.item[i].size_bytes, three[i].size_bytes);
        }
        delivery_members_free(&back);
        text.ptr[n] ^= 1;
    }
    buf_free(&text);
}

static void proof_three(struct proof *p)
{
    memset(p, 0, sizeof *p);
    plan_three(&place);
    p->plan = plan;
    p->artifact = three[0];
    p->members = members;
    p->sent_at = NOW;
    p->verified_at = NOW + 1;
}

static void test_proof(void **state)
{
    static struct proof p, back;
    struct buf text = {0};

    (void)state;
    proof_three(&p);
    proof_put(&text, &p);
    assert_memory_equal(text.ptr, "{\"version\":2,", 13);
    done(proof_parse(buf_slice(&text), &back, &e));
    assert_int_equal(proof_count(&back), 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_memory_equal(proof_member(&back, i), &three[i], sizeof three[i]);
    }
    proof_free(&back);
    for (size_t n = 0; n < text.len; n++) {
        assert_int_equal(proof_parse(slice_of(text.ptr, n), &back, &e), ERR_CORRUPT);
        assert_null(back.members.item);
    }
    text.ptr[11] = '1'; /* a version that has one member */
    assert_int_equal(proof_parse(buf_slice(&text), &back, &e), ERR_CORRUPT);
    buf_free(&text);
}

/* ---- on the disk ---- */

static void put_file(const char *tail, struct slice text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES, dir);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES "/%s%s", dir, plan.package_id, tail);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
}

static int load(void)
{
    static struct delivery_plan back;
    struct delivery_members m;
    int r = package_load(dir, plan.package_id, &back, &m, &e);

    assert_int_equal(m.count, r == 0 ? 3 : 0);
    delivery_members_free(&m);
    return r;
}

static void test_loaded(void **state)
{
    struct buf manifest = {0}, text = {0};
    struct blake3 h;
    uint8_t digest[BLAKE3_LEN];
    char id[DELIVERY_PACKAGE_LEN + 1], name[100];

    (void)state;
    plan_three(&place);
    manifest_three(&manifest);
    assert_int_equal(load(), ERR_NOT_FOUND);
    plan.file[1].size = manifest.len;
    blake3_start(&h);
    blake3_add(&h, manifest.ptr, manifest.len);
    blake3_end(&h, digest);
    hex_encode(plan.file[1].digests.blake3, digest, BLAKE3_LEN);
    delivery_plan_put(&text, &plan);
    put_file(DELIVERY_PLAN_TAIL, buf_slice(&text));
    assert_int_equal(load(), ERR_CORRUPT); /* no manifest */
    put_file(DELIVERY_MANIFEST_TAIL, buf_slice(&manifest));
    done(load());
    plan.file[0].size++; /* than its members have */
    buf_clear(&text);
    delivery_plan_put(&text, &plan);
    put_file(DELIVERY_PLAN_TAIL, buf_slice(&text));
    assert_int_equal(load(), ERR_CORRUPT);
    assert_string_equal(e.text, "its plan does not fit its members");
    plan.file[0].size--;
    buf_clear(&text);
    delivery_plan_put(&text, &plan);
    put_file(DELIVERY_PLAN_TAIL, buf_slice(&text));
    done(load());
    manifest.ptr[manifest.len / 2] ^= 1;
    put_file(DELIVERY_MANIFEST_TAIL, buf_slice(&manifest));
    assert_int_equal(load(), ERR_CORRUPT);
    put_file(DELIVERY_PLAN_TAIL, slice_of(text.ptr, text.len / 2));
    assert_int_equal(load(), ERR_CORRUPT);
    assert_true(package_planned(dir, plan.package_id));
    assert_false(package_identity_planned(dir, &three[0]));
    snprintf(name, sizeof name, "%s" DELIVERY_PLAN_TAIL, plan.package_id);
    assert_true(package_plan_name(name, id));
    assert_string_equal(id, plan.package_id);
    name[0] = 'x';
    assert_false(package_plan_name(name, id));
    assert_false(package_plan_name(DELIVERY_PLAN_TAIL, id));
    buf_free(&manifest);
    buf_free(&text);
}

/* Sizes that no index can hold, each alone and together. */
static void test_sizes_of_a_proof(void **state)
{
    const uint64_t sizes[][3] = {{UINT64_C(1) << 63, 1, 1}, {INT64_MAX, 1, 1}, {1, 1, UINT64_MAX}};
    static struct proof p, back;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buf text = {0};

        proof_three(&p);
        for (unsigned j = 0; j < 3; j++) {
            three[j].size_bytes = sizes[i][j];
        }
        done(delivery_plan_begin_merged(&p.plan, &members, &place, &e));
        p.plan.file[0].size = delivery_members_bytes(&members);
        snprintf(p.plan.file[0].digests.md5, 33, "%032x", 1);
        p.members = members;
        proof_put(&text, &p);
        assert_int_equal(proof_parse(buf_slice(&text), &back, &e), ERR_CORRUPT);
        buf_free(&text);
    }
}

/* ---- choosing ---- */

static void add(unsigned n, uint64_t size, int64_t accepted_at)
{
    struct delivery_artifact a = artifact(n, size, accepted_at);

    done(delivery_index_begin(ix, &e));
    done(delivery_index_add_waiting(ix, &a, &e));
    done(delivery_index_commit(ix, &e));
}

static const struct delivery_merge_rule rule = {100, 200, WAIT};

static void choose(int64_t now_ms)
{
    done(delivery_index_choose(ix, "p", &rule, now_ms, &made, &due_ms, &e));
}

static const struct delivery_ask builds = {.lane = DELIVERY_LANE_BUILD};

static void next(const struct delivery_ask *ask, int64_t now_ms)
{
    delivery_members_free(&work.members);
    done(delivery_index_next(ix, now_ms, ask, &work, &e));
}

/* The next build has these, in this order. It is left under way. */
static void build_is(int64_t now_ms, unsigned count, const unsigned n[])
{
    char id[DELIVERY_PACKAGE_LEN + 1];
    uint64_t bytes = 0;

    next(&builds, now_ms);
    assert_int_equal(work.task, DELIVERY_BUILD);
    assert_int_equal(work.members.count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(strtoul(work.members.item[i].object_id, NULL, 16), n[i]);
        bytes += work.members.item[i].size_bytes;
    }
    assert_int_equal(work.size_bytes, bytes);
    delivery_merged_id(work.members.item, count, id);
    assert_string_equal(work.package_id, id);
    assert_memory_equal(&work.artifact, &work.members.item[0], sizeof work.artifact);
}
#define BUILD_IS(now_ms, ...)                                                    \
    build_is(now_ms, sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned), \
             (const unsigned[]){__VA_ARGS__})

static void no_build(int64_t now_ms)
{
    next(&builds, now_ms);
    assert_int_equal(work.task, DELIVERY_NOTHING);
}

static int64_t number(const char *sql)
{
    struct sqlite3 *db;
    char path[128];
    int64_t n;

    snprintf(path, sizeof path, "%s/" DELIVERY_FILE, dir);
    done(db_open(path, SQLITE_OPEN_READONLY, 100, &db, &e));
    done(db_number(db, sql, -1, &n, &e));
    sqlite3_close(db);
    return n;
}

/* What is summed up is what there is. */
static void sums_fit(void)
{
    assert_int_equal(number("SELECT count(*) FROM (SELECT project, count(*), sum(size_bytes) FROM"
                            " artifacts WHERE waiting = 1 GROUP BY project EXCEPT SELECT project,"
                            " artifacts, bytes FROM packaging)"),
                     0);
    assert_int_equal(number("SELECT count(*) FROM artifacts a LEFT JOIN package_members m"
                            " USING(object_id) WHERE (a.waiting = 1) = (m.package_id IS NOT NULL)"),
                     0);
}

static void test_trigger_and_drain(void **state)
{
    (void)state;
    choose(NOW_MS);
    assert_int_equal(made, 0);
    assert_true(due_ms == INT64_MAX);
    for (unsigned n = 0; n < 6; n++) {
        add(9 - n, 33, NOW); /* the order is that of the ids: their second is one */
    }
    choose(NOW_MS); /* 198 */
    assert_int_equal(made, 0);
    assert_int_equal(due_ms, NOW_MS + WAIT);
    assert_int_equal(number("SELECT until_ms FROM packaging"), NOW_MS + WAIT);
    add(3, 2, NOW - 1); /* older: first */
    choose(NOW_MS);     /* 200 */
    assert_int_equal(made, 1);
    BUILD_IS(NOW_MS, 3, 4, 5); /* one more would be 101 */
    assert_int_equal(number("SELECT draining FROM packaging"), 1);
    choose(NOW_MS); /* 132 left: as long as it fills one */
    assert_int_equal(made, 1);
    BUILD_IS(NOW_MS, 6, 7, 8);
    assert_int_equal(number("SELECT draining FROM packaging"), 0);
    choose(NOW_MS);
    assert_int_equal(made, 0);
    no_build(NOW_MS);
    sums_fit();
    choose(NOW_MS + WAIT); /* the tail, when it has waited long enough */
    assert_int_equal(made, 1);
    BUILD_IS(NOW_MS + WAIT, 9);
    choose(NOW_MS + WAIT);
    assert_int_equal(made, 0);
    sums_fit();
}

static void test_sizes(void **state)
{
    (void)state;
    add(1, 1000, NOW); /* more than a package: alone */
    add(2, 60, NOW + 1);
    add(3, 40, NOW + 2); /* 100: full */
    add(4, 1, NOW + 3);
    choose(NOW_MS);
    BUILD_IS(NOW_MS, 1);
    choose(NOW_MS);
    BUILD_IS(NOW_MS, 2, 3);
    choose(NOW_MS);
    assert_int_equal(made, 0);
    add(5, 1, NOW + 100000000); /* a clock that was wrong */
    choose(NOW_MS + 3000 + WAIT);
    BUILD_IS(NOW_MS + 3000 + WAIT, 4, 5);
    add(6, 1, NOW + 100000000);
    choose(NOW_MS);
    assert_int_equal(made, 1);
}

static void test_hole_18_a_backlog_is_not_read(void **state)
{
    (void)state;
    done(delivery_index_begin(ix, &e));
    for (unsigned n = 0; n < 1500; n++) {
        struct delivery_artifact a = artifact(n, n == 1400 ? 5000 : 0, NOW);
        a.size_bytes++;
        done(delivery_index_add_waiting(ix, &a, &e));
    }
    done(delivery_index_commit(ix, &e));
    struct delivery_merge_rule large = {4000, 6000, WAIT};
    done(delivery_index_choose(ix, "p", &large, NOW_MS, &made, &due_ms, &e));
    assert_int_equal(made, 1); /* the limit ends it as the target would */
    assert_int_equal(number("SELECT member_count FROM packages"), DELIVERY_MEMBERS_MAX);
    assert_int_equal(number("SELECT max(offset_bytes) FROM package_members"), 999);
    assert_int_equal(number("SELECT artifacts FROM packaging"), 500);
    done(delivery_index_choose(ix, "p", &large, NOW_MS, &made, &due_ms, &e));
    assert_int_equal(number("SELECT artifacts FROM packaging"), 100);
    sums_fit();
}

static void test_no_more_merging(void **state)
{
    const struct delivery_merge_rule none = {0, 0, 0};
    char project[UPLOAD_PROJECT_MAX + 1];

    (void)state;
    done(delivery_index_waiting(ix, "", project, &e));
    assert_string_equal(project, "");
    add(1, 10, NOW);
    add(2, 10, NOW);
    done(delivery_index_waiting(ix, "", project, &e));
    assert_string_equal(project, "p");
    done(delivery_index_waiting(ix, project, project, &e));
    assert_string_equal(project, "");
    done(delivery_index_choose(ix, "p", &none, NOW_MS, &made, &due_ms, &e));
    assert_int_equal(made, 2);
    done(delivery_index_choose(ix, "p", &none, NOW_MS, &made, &due_ms, &e));
    assert_int_equal(made, 0);
    next(&builds, NOW_MS);
    assert_int_equal(work.members.count, 0);
    assert_int_equal(number("SELECT count(*) FROM packages WHERE packager = 'identity'"), 2);
    sums_fit();
}

/* ---- packages that end ---- */

/* Of the package of this one alone: makes it, or takes it away. */
static void plan_file(struct delivery_artifact a, bool there)
{
    char id[DELIVERY_PACKAGE_LEN + 1], path[256];
    FILE *f;

    delivery_merged_id(&a, 1, id);
    snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES, dir);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES "/%s" DELIVERY_PLAN_TAIL, dir, id);
    if (there) {
        f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
    } else {
        assert_int_equal(unlink(path), 0);
    }
}

static void test_hole_7_bad_members_are_parked_alone(void **state)
{
    const struct delivery_bad bad[] = {{0, "no WARC", "identity"}, {2, "torn", "identity"}};
    struct delivery_view v;
    bool found, ok;

    (void)state;
    for (unsigned n = 1; n < 5; n++) {
        add(n, 10, NOW);
    }
    choose(NOW_MS + WAIT);
    BUILD_IS(NOW_MS + WAIT, 1, 2, 3, 4);
    done(delivery_index_isolate(ix, work.package_id, &work.members, bad, 2, NOW_MS, &e));
    delivery_index_over(ix, work.package_id);
    sums_fit();
    done(delivery_view_read(dir, slice_cstr(work.members.item[2].object_id), &v, &e));
    assert_int_equal(v.state, DELIVERY_PARKED);
    assert_string_equal(v.error, "torn");
    assert_string_equal(v.way_out, "identity");
    assert_int_equal(v.members, 1);
    done(delivery_view_read(dir, slice_cstr(work.members.item[3].object_id), &v, &e));
    assert_string_equal(v.package_state, "waiting");
    assert_int_equal(v.waiting_artifacts, 2);
    choose(NOW_MS + WAIT);
    BUILD_IS(NOW_MS + WAIT, 2, 4);
    no_build(NOW_MS + WAIT);
    /* As it is, on its own; once; but not where it may have been sent already. */
    plan_file(artifact(3, 10, NOW), true);
    done(delivery_index_identity(ix, dir, artifact(3, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_false(ok);
    plan_file(artifact(3, 10, NOW), false);
    done(delivery_index_identity(ix, dir, artifact(3, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_true(ok);
    done(delivery_index_identity(ix, dir, artifact(3, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_false(ok);
    done(delivery_index_identity(ix, dir, artifact(2, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_false(ok); /* it is being built */
    done(delivery_index_identity(ix, dir, artifact(77, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_false(ok);
    next(&builds, NOW_MS + WAIT);
    assert_int_equal(work.members.count, 0);
    assert_string_equal(work.artifact.object_id, artifact(3, 0, 0).object_id);
    /* Or tried again. */
    done(delivery_index_ask(ix, artifact(1, 0, 0).object_id, NOW_MS, &found, &e));
    assert_true(found);
    BUILD_IS(NOW_MS + WAIT, 1);
    sums_fit();
}

static void test_what_waits_can_be_sent_alone(void **state)
{
    bool ok;

    (void)state;
    add(1, 10, NOW);
    done(delivery_index_identity(ix, dir, artifact(1, 0, 0).object_id, NOW_MS, &ok, &e));
    assert_true(ok);
    sums_fit();
    choose(NOW_MS + WAIT);
    assert_int_equal(made, 0);
}

/* ---- packages that are there ---- */

static int restore(void)
{
    int r;

    done(delivery_index_begin(ix, &e));
    r = delivery_index_restore(ix, &plan, &members, NOW_MS, &e);
    if (r == 0) {
        done(delivery_index_commit(ix, &e));
    } else {
        delivery_index_undo(ix);
    }
    return r;
}

static void test_restored(void **state)
{
    bool has;

    (void)state;
    plan_three(&place);
    add(1, 11, NOW + 1); /* waits */
    add(8, 5, NOW);
    choose(NOW_MS + WAIT); /* both are in another package, of which nothing is on the disk */
    add(2, 12, NOW + 2);
    done(restore());
    done(delivery_index_has_package(ix, plan.package_id, &has, &e));
    assert_true(has);
    assert_int_equal(number("SELECT count(*) FROM packages"), 1);
    assert_int_equal(number("SELECT artifacts FROM packaging"), 1);
    sums_fit();
    BUILD_IS(NOW_MS, 0, 1, 2);
    done(delivery_index_seal(ix, &plan, NOW, NOW_MS, &e));
    assert_int_equal(restore(), ERR_REFUSED); /* they are in a sealed one */
    sums_fit();
}

/* A file that no program of ours wrote. */
static void test_an_artifact_twice_is_refused(void **state)
{
    (void)state;
    plan_three(&place);
    three[2] = three[0];
    done(delivery_plan_begin_merged(&plan, &members, &place, &e));
    assert_int_equal(restore(), ERR_REFUSED);
    assert_int_equal(number("SELECT (SELECT count(*) FROM packages) + (SELECT count(*) FROM"
                            " artifacts)"),
                     0);
}

static void test_proven(void **state)
{
    static struct proof p;
    struct delivery_view v;
    bool proven;

    (void)state;
    proof_three(&p);
    add(1, 11, NOW + 1);
    done(delivery_index_begin(ix, &e));
    done(delivery_index_prove(ix, &p, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
    done(delivery_index_proven(ix, plan.package_id, &proven, &e));
    assert_true(proven);
    done(delivery_view_read(dir, slice_cstr(three[2].object_id), &v, &e));
    assert_int_equal(v.state, DELIVERY_VERIFIED);
    assert_string_equal(v.packager, "mergewarc");
    assert_int_equal(v.offset, 21);
    assert_int_equal(v.size_bytes, 12);
    assert_int_equal(v.package_bytes, 33);
    sums_fit();
    const struct delivery_ask purges = {.lane = DELIVERY_LANE_PURGE};
    next(&purges, NOW_MS);
    assert_int_equal(work.task, DELIVERY_PURGE);
    assert_int_equal(work.members.count, 3);
    assert_int_equal(work.verified_at, NOW + 1);
    assert_int_equal(work.sent_at, NOW);
    done(delivery_index_begin(ix, &e)); /* a proof of other members is not believed */
    snprintf(p.plan.package_id, sizeof p.plan.package_id, "%064x", 5);
    assert_int_equal(delivery_index_prove(ix, &p, NOW_MS, &e), ERR_REFUSED);
    delivery_index_undo(ix);
}

#define T(test)     cmocka_unit_test(test)
#define INDEX(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_plan),
                                       T(test_manifest),
                                       T(test_proof),
                                       INDEX(test_loaded),
                                       T(test_sizes_of_a_proof),
                                       INDEX(test_trigger_and_drain),
                                       INDEX(test_sizes),
                                       INDEX(test_hole_18_a_backlog_is_not_read),
                                       INDEX(test_no_more_merging),
                                       INDEX(test_hole_7_bad_members_are_parked_alone),
                                       INDEX(test_what_waits_can_be_sent_alone),
                                       INDEX(test_restored),
                                       INDEX(test_an_artifact_twice_is_refused),
                                       INDEX(test_proven)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
