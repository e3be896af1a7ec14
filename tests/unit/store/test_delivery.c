/* delivery: names, plans and manifests of packages, the destination of a project, and what readers
 * see of delivery.sqlite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/artifact/delivery_index.h"
#include "store/artifact/delivery_schema.h"
#include "store/store.h"

#define HEX32 "0123456789abcdef0123456789abcdef"
#define HEX64 HEX32 "fedcba9876543210fedcba9876543210"
#define NOW   INT64_C(1795996800)

static char dir[64];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tallyman-delivery-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static struct delivery_artifact artifact(const char *filename)
{
    struct delivery_artifact a = {.object_id = HEX32,
                                  .project = "demo",
                                  .checksum = HEX64,
                                  .size_bytes = 1234,
                                  .accepted_at = NOW};
    snprintf(a.filename, sizeof a.filename, "%s", filename);
    return a;
}

static void run_sql(const char *file, const char *sql)
{
    char path[128];
    struct sqlite3 *db;
    struct err e = {0};

    snprintf(path, sizeof path, "%s/%s", dir, file);
    assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 100, &db, &e), 0);
    if (db_exec(db, sql, &e) != 0) {
        fail_msg("%s", e.text);
    }
    sqlite3_close(db);
}

/* ---- texts ---- */

static void test_package_id(void **state)
{
    struct delivery_artifact a = artifact("any");
    char id[DELIVERY_PACKAGE_LEN + 1], other[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    delivery_package_id(&a, id);
    /* tallyman-package-v1, identity, demo, HEX32, blake3:HEX64, 1234, each with a NUL: SHA-256 */
    assert_string_equal(id, "bd134c9ee9509662fcb8c6c3fdecda89ca10d2aa937911889c55c0bdf559cb6d");
    a.filename[0] = 'x'; /* the name is no part of it; everything else is */
    a.accepted_at++;
    delivery_package_id(&a, other);
    assert_string_equal(id, other);
    a.size_bytes++;
    delivery_package_id(&a, other);
    assert_string_not_equal(id, other);
    a.size_bytes--;
    a.project[0] = 'D';
    delivery_package_id(&a, other);
    assert_string_not_equal(id, other);
}

static void check_name(const char *filename, const char *want)
{
    struct delivery_artifact a = artifact(filename);
    char name[DELIVERY_NAME_MAX];

    delivery_remote_name(&a, name);
    assert_string_equal(name, want);
}

static void test_remote_names(void **state)
{
    char longest[UPLOAD_FILENAME_MAX + 1];
    char kept[DELIVERY_FILENAME_MAX + 1];

    (void)state;
    check_name("photo-1_A.jpeg", "photo-1_A.jpeg");
    check_name("a b/c\\d\x01\x7f.txt", "a_b_c_d__.txt");
    check_name("\xc3\xa4", "__");
    check_name("-rf", "-rf");
    check_name("", HEX32);
    check_name(".", HEX32);
    check_name("..", HEX32);
    check_name("...", HEX32);
    check_name(".profile", HEX32);
    check_name("../../etc/passwd", HEX32);
    check_name("a..", "a..");
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memset(kept, 'n', sizeof kept - 1);
    kept[sizeof kept - 1] = '\0';
    check_name(longest, kept);
}

static void make_plan(struct delivery_plan *p, const char *filename, const char *directory)
{
    struct delivery_artifact a = artifact(filename);
    struct artifact_sink to = {.sink = "directory"};
    struct err e = {0};

    snprintf(to.directory, sizeof to.directory, "%s", directory);
    assert_int_equal(delivery_plan_begin(p, &a, &to, &e), 0);
    p->file[0].size = a.size_bytes;
    p->file[1].size = 99;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        memcpy(p->file[i].digests.blake3, HEX64, BLAKE3_HEX_LEN);
        memcpy(p->file[i].digests.md5, HEX32, MD5_HEX_LEN);
        memcpy(p->file[i].digests.sha1, HEX32 "01234567", SHA1_HEX_LEN);
    }
}

static void test_manifest(void **state)
{
    struct delivery_artifact a = artifact("x \"y\"\n");
    struct delivery_digests d = {.blake3 = HEX64, .md5 = HEX32, .sha1 = HEX32 "01234567"};
    struct buf b = {0};
    static const char want[] =
        "{\"type\":\"tallyman-package\",\"version\":1,\"packager\":\"identity\","
        "\"format\":\"artifact\"}\n"
        "{\"type\":\"input\",\"name\":\"" HEX32 "/x \\\"y\\\"\\n\",\"object_id\":\"" HEX32
        "\",\"receipt_id\":\"receipt:" HEX32 "\",\"offset\":0,\"size\":1234,\"checksums\":"
        "[\"blake3:" HEX64 "\",\"md5:" HEX32 "\",\"sha1:" HEX32 "01234567\"],"
        "\"accepted_at\":1795996800}\n"
        "{\"type\":\"output\",\"size\":1234,\"checksums\":[\"blake3:" HEX64 "\",\"md5:" HEX32
        "\",\"sha1:" HEX32 "01234567\"],\"inputs\":1}\n";

    (void)state;
    delivery_manifest_put(&b, &a, &d);
    assert_int_equal(b.len, sizeof want - 1);
    assert_memory_equal(b.ptr, want, b.len);
    buf_free(&b);
}

static void test_plan_there_and_back(void **state)
{
    static struct delivery_plan p, back;
    struct delivery_artifact a = artifact("n.bin");
    struct err e = {0};
    struct buf b = {0};
    char directory[4001];

    (void)state;
    memset(directory, '\x01', sizeof directory - 1); /* the worst: six bytes each */
    directory[0] = '/';
    directory[sizeof directory - 1] = '\0';
    make_plan(&p, "n.bin", directory);
    delivery_plan_put(&b, &p);
    assert_true(b.len <= DELIVERY_TEXT_MAX);
    assert_int_equal(delivery_plan_parse(buf_slice(&b), &back, &e), 0);
    assert_memory_equal(&p, &back, sizeof p);
    assert_true(delivery_plan_fits(&back, &a));
    buf_free(&b);
}

#define OLD_PLAN                                                                                  \
    "{\"version\":1,\"package_id\":"                                                              \
    "\"bd134c9ee9509662fcb8c6c3fdecda89ca10d2aa937911889c55c0bdf559cb6d\",\"object_id\":\"" HEX32 \
    "\",\"project\":\"demo\",\"sink\":\"directory\",\"directory\":\"/"                            \
    "old\",\"identifier\":\"" HEX32                                                               \
    "\",\"files\":[{\"name\":\"n.bin\",\"source\":\"uploads/" HEX32                               \
    "\",\"size\":1234,\"md5\":\"" HEX32 "\",\"sha1\":\"" HEX32 "01234567\",\"blake3\":\"" HEX64   \
    "\"},{\"name\":\"n.bin.manifest.jsonl\",\"source\":\"packages/"                               \
    "bd134c9ee9509662fcb8c6c3fdecda89ca10d2aa937911889c55c0bdf559cb6d.manifest.jsonl\","          \
    "\"size\":99,\"md5\":\"" HEX32 "\",\"sha1\":\"" HEX32 "01234567\",\"blake3\":\"" HEX64        \
    "\"}]}\n"

/* A plan of an older program stays what it was, and may name only what such a plan can. */
static void test_plan_of_an_older_program(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact("n.bin");
    struct err e = {0};
    struct buf b = {0};

    (void)state;
    assert_int_equal(delivery_plan_parse(SLICE(OLD_PLAN), &p, &e), 0);
    assert_string_equal(p.to.directory, "/old");
    assert_string_equal(p.packager, "identity");
    assert_string_equal(p.metadata, "{}");
    assert_string_equal(p.to.credentials_file, "");
    assert_true(p.retention_ms == -1);
    assert_true(delivery_plan_fits(&p, &a));
    delivery_plan_put(&b, &p);
    assert_int_equal(b.len, sizeof OLD_PLAN - 1);
    assert_memory_equal(b.ptr, OLD_PLAN, b.len);
    buf_free(&b);
    a = artifact("m.bin");
    assert_false(delivery_plan_fits(&p, &a));
}

/* Any change of any byte, and any cut, is noticed, or gives the very same plan. */
static void test_plan_is_believed_to_the_byte(void **state)
{
    static struct delivery_plan p, back;
    struct err e = {0};
    struct buf b = {0};

    (void)state;
    make_plan(&p, "n.bin", "/somewhere");
    delivery_plan_put(&b, &p);
    for (size_t n = 0; n < b.len; n++) {
        assert_int_equal(delivery_plan_parse(slice_of(b.ptr, n), &back, &e), ERR_CORRUPT);
    }
    for (size_t at = 0; at < b.len; at++) {
        struct delivery_artifact a = artifact("n.bin");
        char kept = b.ptr[at];
        b.ptr[at] = (char)(kept ^ 1);
        int r = delivery_plan_parse(buf_slice(&b), &back, &e);
        if (r == 0 && delivery_plan_fits(&back, &a)) {
            /* Then the byte was in what is not checked against the artifact. */
            back.to = p.to;
            memcpy(back.file[0].digests.md5, p.file[0].digests.md5, sizeof p.file[0].digests.md5);
            memcpy(back.file[0].digests.sha1, p.file[0].digests.sha1,
                   sizeof p.file[0].digests.sha1);
            back.file[1].size = p.file[1].size;
            back.file[1].digests = p.file[1].digests;
            assert_memory_equal(&p, &back, sizeof p);
        } else {
            assert_true(r == 0 || r == ERR_CORRUPT);
        }
        b.ptr[at] = kept;
    }
    buf_put_char(&b, ' ');
    assert_int_equal(delivery_plan_parse(buf_slice(&b), &back, &e), ERR_CORRUPT);
    buf_free(&b);
}

static void test_plan_of_another(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a;

    (void)state;
    make_plan(&p, "n.bin", "/somewhere");
    a = artifact("n.bin");
    assert_true(delivery_plan_fits(&p, &a));
    a = artifact("n.bin");
    a.object_id[3] = 'f';
    assert_false(delivery_plan_fits(&p, &a));
    a = artifact("n.bin");
    snprintf(p.file[1].name, sizeof p.file[1].name, "../%s", "n.bin.manifest.jsonl");
    assert_false(delivery_plan_fits(&p, &a));
    make_plan(&p, "n.bin", "/somewhere");
    snprintf(p.file[0].source, sizeof p.file[0].source, "tallyman.sqlite");
    assert_false(delivery_plan_fits(&p, &a));
    make_plan(&p, "n.bin", "/somewhere");
    p.file[0].digests.blake3[0] = 'f';
    assert_false(delivery_plan_fits(&p, &a));
}

/* ---- destinations ---- */

static void test_sink_of_a_project(void **state)
{
    struct artifact_sink to;
    struct err e = {0};

    (void)state;
    assert_int_equal(artifact_sink_read(dir, SLICE("demo"), &to, &e), ERR_NOT_FOUND); /* no file */
    run_sql(STORE_FILE, "CREATE TABLE projects(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)");
    assert_int_equal(artifact_sink_read(dir, SLICE("demo"), &to, &e), ERR_NOT_FOUND); /* old */
    run_sql(STORE_FILE,
            "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY,"
            " sink TEXT NOT NULL, directory TEXT NOT NULL) STRICT;"
            "INSERT INTO projects VALUES(1, 'demo'), (2, 'bare'), (3, 'bad'), (4, 'odd');"
            "INSERT INTO artifact_projects VALUES(1, 'directory', '/a place'),"
            " (3, 'directory', hex(zeroblob(2001))), (4, hex(zeroblob(16)), '/a place')");
    assert_int_equal(artifact_sink_read(dir, SLICE("demo"), &to, &e), 0);
    assert_string_equal(to.sink, "directory");
    assert_string_equal(to.directory, "/a place");
    assert_int_equal(artifact_sink_read(dir, SLICE("bare"), &to, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "bare"));
    assert_int_equal(artifact_sink_read(dir, SLICE("none"), &to, &e), ERR_NOT_FOUND);
    assert_int_equal(artifact_sink_read(dir, SLICE("bad"), &to, &e), ERR_CORRUPT);
    assert_int_equal(artifact_sink_read(dir, SLICE("odd"), &to, &e), ERR_CORRUPT);
}

/* ---- readers ---- */

static struct delivery_view view_of(const char *id)
{
    struct delivery_view v;
    struct err e = {0};

    if (delivery_view_read(dir, slice_cstr(id), &v, &e) != 0) {
        fail_msg("%s", e.text);
    }
    return v;
}

static void check_counts(const char *want, const char *error)
{
    struct delivery_counts c;
    struct err e = {0};
    char got[200];
    int n;

    assert_int_equal(delivery_counts_read(dir, &c, &e), 0);
    assert_true(c.known);
    n = snprintf(got, sizeof got, "%llu:", (unsigned long long)c.artifacts);
    for (int i = 0; i < DELIVERY_STATE_COUNT; i++) {
        n += snprintf(got + n, sizeof got - (size_t)n, " %s=%llu",
                      delivery_state_name((enum delivery_state)i),
                      (unsigned long long)c.by_state[i]);
    }
    assert_string_equal(got, want);
    assert_string_equal(c.error, error);
}

static void test_nothing_to_read(void **state)
{
    struct delivery_counts c;
    struct err e = {0};

    (void)state;
    assert_false(view_of(HEX32).known);
    assert_int_equal(delivery_counts_read(dir, &c, &e), 0);
    assert_false(c.known);
    run_sql(DELIVERY_FILE, "PRAGMA user_version=0"); /* an empty file */
    assert_false(view_of(HEX32).known);
    run_sql(DELIVERY_FILE, "PRAGMA application_id=1413760069; PRAGMA user_version=99;"
                           "CREATE TABLE later(x)");
    assert_int_equal(delivery_counts_read(dir, &c, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "99"));
}

static void test_views(void **state)
{
    static struct delivery_plan p;
    struct delivery_index *ix;
    struct delivery_artifact a = artifact("n.bin");
    struct delivery_view v;
    struct err e = {0};
    char id[DELIVERY_PACKAGE_LEN + 1];
    bool rebuilt;

    (void)state;
    make_plan(&p, "n.bin", "/somewhere");
    delivery_package_id(&a, id);
    assert_int_equal(delivery_index_open(dir, &ix, &rebuilt, &e), 0);
    assert_true(rebuilt);
    check_counts("0: pending=0 sending=0 sent=0 verified=0 retry_wait=0 parked=0", "");
    assert_int_equal(delivery_index_begin(ix, &e), 0);
    assert_int_equal(delivery_index_add(ix, &a, NOW * 1000 + 5000, &e), 0);
    assert_false(view_of(HEX32).known); /* not before the commit */
    assert_int_equal(delivery_index_commit(ix, &e), 0);
    v = view_of(HEX32);
    assert_true(v.known && !v.built);
    assert_string_equal(v.package_id, id);
    assert_int_equal(v.state, DELIVERY_PENDING);
    assert_int_equal(v.next_attempt_at, 0);
    assert_int_equal(delivery_index_build_retry(ix, id, NOW, NOW * 1000 + 1, "no disk", &e), 0);
    v = view_of(HEX32);
    assert_int_equal(v.state, DELIVERY_PENDING);
    assert_int_equal(v.attempts, 1);
    assert_int_equal(v.next_attempt_at, NOW + 1); /* rounded up */
    assert_string_equal(v.error, "no disk");
    check_counts("1: pending=1 sending=0 sent=0 verified=0 retry_wait=0 parked=0", "no disk");
    assert_int_equal(delivery_index_build_park(ix, id, NOW, "rotten", "mend it", &e), 0);
    v = view_of(HEX32);
    assert_int_equal(v.state, DELIVERY_PARKED);
    assert_string_equal(v.way_out, "mend it");
    check_counts("1: pending=0 sending=0 sent=0 verified=0 retry_wait=0 parked=1", "");
    assert_int_equal(delivery_index_restart(ix, NOW * 1000, &e), 0);
    assert_int_equal(delivery_index_seal(ix, &p, NOW, NOW * 1000, &e), 0);
    v = view_of(HEX32);
    assert_true(v.known && v.built);
    assert_int_equal(v.state, DELIVERY_PENDING);
    assert_string_equal(v.sink, "directory");
    assert_string_equal(v.identifier, HEX32);
    assert_string_equal(v.error, "");
    assert_int_equal(v.file_count, 2);
    assert_string_equal(v.file[0].name, "n.bin");
    assert_string_equal(v.file[1].name, "n.bin.manifest.jsonl");
    assert_int_equal(v.file[0].size, 1234);
    assert_string_equal(v.file[1].md5, HEX32);
    assert_int_equal(delivery_index_claim(ix, &p, NOW, &e), 0);
    assert_int_equal(view_of(HEX32).state, DELIVERY_SENDING);
    assert_int_equal(delivery_index_retry(ix, &p, NOW, NOW * 1000 + 9000, "far away", &e), 0);
    v = view_of(HEX32);
    assert_int_equal(v.state, DELIVERY_RETRY_WAIT);
    assert_int_equal(v.next_attempt_at, NOW + 9);
    check_counts("1: pending=0 sending=0 sent=0 verified=0 retry_wait=1 parked=0", "far away");
    assert_int_equal(delivery_index_claim(ix, &p, NOW, &e), 0);
    assert_int_equal(delivery_index_sent(ix, &p, NOW + 10, &e), 0);
    assert_int_equal(view_of(HEX32).state, DELIVERY_SENT);
    assert_int_equal(delivery_index_verified(ix, &p, NOW + 11, &e), 0);
    v = view_of(HEX32);
    assert_int_equal(v.state, DELIVERY_VERIFIED);
    assert_int_equal(v.attempts, 2);
    assert_int_equal(v.sent_at, NOW + 10);
    assert_int_equal(v.verified_at, NOW + 11);
    assert_string_equal(v.error, "");
    check_counts("1: pending=0 sending=0 sent=0 verified=1 retry_wait=0 parked=0", "");
    assert_false(view_of("ffffffffffffffffffffffffffffffff").known);
    delivery_index_close(ix);
    v = view_of(HEX32); /* also when nobody has it open */
    assert_int_equal(v.state, DELIVERY_VERIFIED);
    run_sql(DELIVERY_FILE, "UPDATE packages SET plan = 'x'");
    assert_int_equal(delivery_view_read(dir, SLICE(HEX32), &v, &e), ERR_CORRUPT);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_package_id),
        T(test_remote_names),
        T(test_manifest),
        T(test_plan_there_and_back),
        T(test_plan_of_an_older_program),
        T(test_plan_is_believed_to_the_byte),
        T(test_plan_of_another),
        T(test_sink_of_a_project),
        T(test_nothing_to_read),
        T(test_views),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
