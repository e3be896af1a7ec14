/* delivery_schema: a database of schema 1, as older programs made and filled it, is brought
 * forward: no row says anything else than before, what was due is due, and verify has nothing
 * against it. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/log.h"
#include "store/artifact/delivery_index.h"
#include "store/artifact/delivery_schema.h"
#include "store/artifact/verify.h"

#define NOW    INT64_C(1795996800)
#define NOW_MS (NOW * 1000)
#define LATER  (NOW_MS + 3600000)
#define SIZE   1000u

/* As released: never to be changed. */
static const char schema_1[] =
    "PRAGMA journal_mode=WAL;"
    "CREATE TABLE artifacts(object_id TEXT PRIMARY KEY, project TEXT NOT NULL,"
    " filename TEXT NOT NULL, checksum TEXT NOT NULL, size_bytes INTEGER NOT NULL,"
    " accepted_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE packages(package_id TEXT PRIMARY KEY, project TEXT NOT NULL,"
    " packager TEXT NOT NULL CHECK(packager = 'identity'),"
    " state TEXT NOT NULL CHECK(state IN ('building', 'sealed', 'blocked')),"
    " member_count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, plan TEXT,"
    " build_attempts INTEGER NOT NULL DEFAULT 0, next_build_ms INTEGER NOT NULL,"
    " build_error TEXT NOT NULL DEFAULT '', way_out TEXT NOT NULL DEFAULT '',"
    " created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, sealed_at INTEGER,"
    " CHECK((state = 'sealed') = (plan IS NOT NULL)),"
    " CHECK((state = 'sealed') = (sealed_at IS NOT NULL))) STRICT, WITHOUT ROWID;"
    "CREATE INDEX packages_due ON packages(project, next_build_ms, package_id)"
    " WHERE state = 'building';"
    "CREATE INDEX packages_state ON packages(state);"
    "CREATE TABLE package_members(package_id TEXT NOT NULL, ordinal INTEGER NOT NULL,"
    " object_id TEXT NOT NULL UNIQUE, offset_bytes INTEGER NOT NULL, size_bytes INTEGER NOT NULL,"
    " checksum TEXT NOT NULL, PRIMARY KEY(package_id, ordinal)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE deliveries(package_id TEXT NOT NULL, sink TEXT NOT NULL, project TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK(state IN"
    " ('pending', 'sending', 'sent', 'verified', 'retry_wait', 'parked')),"
    " attempts INTEGER NOT NULL DEFAULT 0, next_attempt_ms INTEGER NOT NULL,"
    " last_error TEXT NOT NULL DEFAULT '', way_out TEXT NOT NULL DEFAULT '',"
    " updated_at INTEGER NOT NULL, sent_at INTEGER, verified_at INTEGER,"
    " CHECK((state = 'verified') = (verified_at IS NOT NULL)),"
    " PRIMARY KEY(package_id, sink)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX deliveries_due ON deliveries(project, next_attempt_ms, package_id, sink)"
    " WHERE state IN ('pending', 'sent', 'retry_wait');"
    "CREATE INDEX deliveries_state ON deliveries(state, next_attempt_ms);"
    "CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL,"
    " seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "PRAGMA application_id=1413760069; PRAGMA user_version=1;"
    "INSERT INTO skipped VALUES('odd.json', 'it is no receipt', 7);";

/* An artifact of each state. The package's: state, attempts, due, error, way out; the delivery's
 * ("": none): the same, when it was sent, when verified. Then what it is after the start of this
 * program: its task (NOTHING: none before LATER). */
static const struct row {
    const char *package;
    int builds;
    int64_t build_ms;
    const char *build_error, *build_way_out;
    const char *delivery;
    int attempts;
    int64_t send_ms;
    const char *error, *way_out;
    const char *sent_at, *verified_at;
    enum delivery_task task;
} rows[] = {
    {"building", 0, NOW_MS, "", "", "", 0, 0, "", "", "", "", DELIVERY_BUILD},
    {"building", 3, LATER, "no space", "", "", 0, 0, "", "", "", "", DELIVERY_NOTHING},
    {"blocked", 1, NOW_MS, "gone", "put it back", "", 0, 0, "", "", "", "", DELIVERY_BUILD},
    {"sealed", 0, 1, "", "", "pending", 0, NOW_MS, "", "", "NULL", "NULL", DELIVERY_SEND},
    {"sealed", 0, 1, "", "", "sending", 2, 5, "EIO", "", "NULL", "NULL", DELIVERY_SEND},
    {"sealed", 0, 1, "", "", "sent", 1, NOW_MS, "", "", "1001", "NULL", DELIVERY_VERIFY},
    {"sealed", 0, 1, "", "", "verified", 1, 5, "", "", "1001", "1002", DELIVERY_NOTHING},
    {"sealed", 0, 1, "", "", "retry_wait", 4, LATER, "full", "", "NULL", "NULL", DELIVERY_NOTHING},
    {"sealed", 0, 1, "", "", "parked", 5, 5, "other", "move it", "NULL", "NULL", DELIVERY_SEND},
};
#define ROWS (sizeof rows / sizeof *rows)

static char dir[64];
static struct delivery_artifact artifacts[ROWS];
static struct err e;

static void done(int r)
{
    if (r != 0) {
        fail_msg("%s", e.text);
    }
}

/* ---- a directory of an older program ---- */

static void digests_of(const void *bytes, size_t n, struct delivery_digests *out)
{
    struct blake3 b;
    struct md5 m;
    struct sha1 s;
    uint8_t digest[BLAKE3_LEN];

    memset(out, 0, sizeof *out);
    blake3_start(&b);
    blake3_add(&b, bytes, n);
    blake3_end(&b, digest);
    hex_encode(out->blake3, digest, BLAKE3_LEN);
    md5_start(&m);
    md5_add(&m, bytes, n);
    md5_end(&m, digest);
    hex_encode(out->md5, digest, MD5_LEN);
    sha1_start(&s);
    sha1_add(&s, bytes, n);
    sha1_end(&s, digest);
    hex_encode(out->sha1, digest, SHA1_LEN);
}

static void fill(unsigned char bytes[SIZE], size_t i)
{
    for (size_t n = 0; n < SIZE; n++) {
        bytes[n] = (unsigned char)(n * 7 + i);
    }
}

static void accept(struct uploads *us, size_t i)
{
    static struct upload_info info;
    static struct receipt receipt;
    struct delivery_artifact *a = &artifacts[i];
    struct delivery_digests d;
    struct upload *u;
    unsigned char bytes[SIZE];

    fill(bytes, i);
    digests_of(bytes, SIZE, &d);
    memset(&info, 0, sizeof info);
    info.size = SIZE;
    (void)snprintf(info.project, sizeof info.project, "demo");
    (void)snprintf(info.filename, sizeof info.filename, "film-%zu.mov", i);
    memcpy(info.checksum, d.blake3, sizeof info.checksum);
    done(upload_create(us, &info, true, &e));
    done(upload_open_new(us, &info, &u, &e));
    done(upload_write(u, bytes, SIZE, NULL, &e));
    done(upload_accept(u, &receipt, NULL, &e));
    upload_close(u);
    memset(a, 0, sizeof *a);
    memcpy(a->object_id, receipt.object_id, sizeof a->object_id);
    memcpy(a->checksum, receipt.checksum, sizeof a->checksum);
    (void)snprintf(a->project, sizeof a->project, "demo");
    (void)snprintf(a->filename, sizeof a->filename, "film-%zu.mov", i);
    a->size_bytes = SIZE;
    a->accepted_at = receipt.accepted_at;
}

static void write_sidecar(const char *package, const char *tail, struct slice text)
{
    char path[200];

    (void)snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES "/%s%s", dir, package, tail);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
}

/* Plan and manifest in their files; the plan's text, of version 1. */
static void seal(size_t i, const char *package, char plan[2000])
{
    const struct delivery_artifact *a = &artifacts[i];
    struct delivery_digests d, m;
    struct buf manifest = {0};
    unsigned char bytes[SIZE];

    fill(bytes, i);
    digests_of(bytes, SIZE, &d);
    delivery_manifest_put(&manifest, a, &d);
    digests_of(manifest.ptr, manifest.len, &m);
    int n = snprintf(plan, 2000,
                     "{\"version\":1,\"package_id\":\"%s\",\"object_id\":\"%s\","
                     "\"project\":\"demo\",\"sink\":\"directory\",\"directory\":\"/srv/files\","
                     "\"identifier\":\"%s\",\"files\":[{\"name\":\"%s\",\"source\":\"uploads/%s\","
                     "\"size\":%u,\"md5\":\"%s\",\"sha1\":\"%s\",\"blake3\":\"%s\"},"
                     "{\"name\":\"%s.manifest.jsonl\",\"source\":\"packages/%s.manifest.jsonl\","
                     "\"size\":%zu,\"md5\":\"%s\",\"sha1\":\"%s\",\"blake3\":\"%s\"}]}\n",
                     package, a->object_id, a->object_id, a->filename, a->object_id, SIZE, d.md5,
                     d.sha1, d.blake3, a->filename, package, manifest.len, m.md5, m.sha1, m.blake3);
    assert_in_range(n, 1, 1999);
    write_sidecar(package, DELIVERY_MANIFEST_TAIL, buf_slice(&manifest));
    write_sidecar(package, DELIVERY_PLAN_TAIL, slice_cstr(plan));
    buf_free(&manifest);
}

static void sql(struct sqlite3 *db, const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sqlite3_errmsg(db), text);
    }
}

static void insert(struct sqlite3 *db, size_t i)
{
    const struct row *r = &rows[i];
    const struct delivery_artifact *a = &artifacts[i];
    bool sealed = strcmp(r->package, "sealed") == 0;
    char package[DELIVERY_PACKAGE_LEN + 1];
    char plan[2000];
    char text[4500];

    delivery_package_id(a, package);
    if (sealed) {
        seal(i, package, plan);
    }
    sqlite3_snprintf((int)sizeof text, text,
                     "INSERT INTO artifacts VALUES('%q', 'demo', '%q', '%q', %u, %lld);"
                     "INSERT INTO packages VALUES('%q', 'demo', 'identity', '%q', 1, %u, %Q, %d,"
                     " %lld, '%q', '%q', 900, 901, %s);"
                     "INSERT INTO package_members VALUES('%q', 1, '%q', 0, %u, '%q');",
                     a->object_id, a->filename, a->checksum, SIZE, (long long)a->accepted_at,
                     package, r->package, SIZE, sealed ? plan : NULL, r->builds,
                     (long long)r->build_ms, r->build_error, r->build_way_out,
                     sealed ? "902" : "NULL", package, a->object_id, SIZE, a->checksum);
    sql(db, text);
    if (sealed) {
        sqlite3_snprintf((int)sizeof text, text,
                         "INSERT INTO deliveries VALUES('%q', 'directory', 'demo', '%q', %d, %lld,"
                         " '%q', '%q', 903, %s, %s)",
                         package, r->delivery, r->attempts, (long long)r->send_ms, r->error,
                         r->way_out, r->sent_at, r->verified_at);
        sql(db, text);
    }
}

static struct sqlite3 *open_database(void)
{
    struct sqlite3 *db;
    char path[100];

    (void)snprintf(path, sizeof path, "%s/" DELIVERY_FILE, dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

static int setup(void **state)
{
    struct uploads_options options = {.data = dir, .issuer = "http://127.0.0.1:8080"};
    struct uploads *us;
    char path[100];

    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/tallyman-schema-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/" DELIVERY_PACKAGES, dir);
    assert_int_equal(mkdir(path, 0700), 0);
    done(uploads_open(&options, &us, &e));
    for (size_t i = 0; i < ROWS; i++) {
        accept(us, i);
    }
    uploads_close(us);
    struct sqlite3 *db = open_database();
    sql(db, schema_1);
    for (size_t i = 0; i < ROWS; i++) {
        insert(db, i);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- what the rows say ---- */

static int put_row(void *ctx, int n, char **values, char **names)
{
    struct buf *b = ctx;

    (void)names;
    for (int i = 0; i < n; i++) {
        buf_put_cstr(b, values[i] == NULL ? "NULL" : values[i]);
        buf_put_char(b, i + 1 < n ? '|' : '\n');
    }
    return 0;
}

static void ask(const char *question, struct buf *b)
{
    struct sqlite3 *db = open_database();

    if (sqlite3_exec(db, question, put_row, b, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sqlite3_errmsg(db), question);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* All that schema 1 has. */
static void all_rows(struct buf *b)
{
    ask("SELECT object_id, project, filename, checksum, size_bytes, accepted_at FROM artifacts;"
        "SELECT * FROM package_members; SELECT * FROM skipped;"
        "SELECT package_id, project, packager, state, member_count, size_bytes, plan,"
        " build_attempts, next_build_ms, build_error, way_out, created_at, updated_at, sealed_at"
        " FROM packages ORDER BY package_id;"
        "SELECT package_id, sink, project, state, attempts, next_attempt_ms, last_error, way_out,"
        " updated_at, sent_at, verified_at FROM deliveries ORDER BY package_id",
        b);
}

static void answer_is(const char *question, const char *want)
{
    struct buf b = {0};

    ask(question, &b);
    buf_put_char(&b, '\0');
    assert_string_equal(b.ptr, want);
    buf_free(&b);
}

static void on_found(void *ctx, const char *text)
{
    (void)ctx;
    print_error("%s\n", text);
}

static void on_remnant(void *ctx, const char *name)
{
    (void)ctx;
    print_error("remnant %s\n", name);
}

static void on_progress(void *ctx, uint64_t bytes, uint64_t total)
{
    (void)ctx;
    assert_true(bytes <= total);
}

static void nothing_is_wrong(void)
{
    static const struct artifact_verify_hooks hooks = {on_found, on_remnant, on_progress, NULL};
    struct artifact_verify_result result;

    done(artifact_verify(dir, &hooks, &result, &e));
    assert_int_equal(result.violations, 0);
    assert_int_equal(result.remnants, 0);
    assert_int_equal(result.receipts, ROWS);
    assert_int_equal(result.deliveries, ROWS);
    assert_int_equal(result.packages, 6);
}

static struct delivery_index *open_index(void)
{
    struct delivery_index *ix;
    bool rebuilt = true;

    done(delivery_index_open(dir, &ix, &rebuilt, &e));
    assert_false(rebuilt);
    return ix;
}

/* ---- tests ---- */

static void test_rows_say_the_same(void **state)
{
    struct buf before = {0}, after = {0};

    (void)state;
    all_rows(&before);
    assert_true(before.len > 3000);
    delivery_index_close(open_index());
    all_rows(&after);
    assert_true(slice_eq(buf_slice(&before), buf_slice(&after)));
    answer_is("PRAGMA user_version", "3\n");
    /* What was not asked for then is not known, and nothing of it goes away. */
    answer_is("SELECT count(*), sum(identifier = object_id), sum(keys = ''), count(attempt_at),"
              " sum(late) FROM deliveries JOIN package_members USING(package_id)",
              "6|6|6|0|0\n");
    answer_is("SELECT count(purge_ms), count(purged_at), sum(purge_error = '') FROM packages",
              "0|0|9\n");
    nothing_is_wrong();
    /* And it is done once. */
    delivery_index_close(open_index());
    buf_clear(&after);
    all_rows(&after);
    assert_true(slice_eq(buf_slice(&before), buf_slice(&after)));
    buf_free(&before);
    buf_free(&after);
}

static size_t number_of(const char *object_id)
{
    size_t i = 0;

    while (i < ROWS && strcmp(artifacts[i].object_id, object_id) != 0) {
        i++;
    }
    assert_true(i < ROWS);
    return i;
}

/* Everything of a lane that is due, noted by artifact. */
static void take_all(struct delivery_index *ix, enum delivery_lane lane,
                     enum delivery_task tasks[ROWS])
{
    static struct delivery_work work;
    const struct delivery_ask what = {.lane = lane, .workers = 64};

    for (;;) {
        done(delivery_index_next(ix, NOW_MS, &what, &work, &e));
        if (work.task == DELIVERY_NOTHING) {
            break;
        }
        size_t i = number_of(work.artifact.object_id);
        assert_int_equal(tasks[i], DELIVERY_NOTHING);
        tasks[i] = work.task;
        assert_string_equal(work.artifact.filename, artifacts[i].filename);
        assert_int_equal(work.artifact.accepted_at, artifacts[i].accepted_at);
        if (work.task == DELIVERY_BUILD) {
            assert_int_equal(work.attempts, rows[i].builds);
        } else {
            assert_int_equal(work.attempts, rows[i].attempts);
            assert_int_equal(work.plan.version, 1);
            assert_int_equal(work.plan.retention_ms, -1);
            assert_string_equal(work.plan.metadata, "{}");
            assert_string_equal(work.plan.to.directory, "/srv/files");
            assert_string_equal(work.plan.identifier, artifacts[i].object_id);
        }
        if (work.task == DELIVERY_VERIFY) {
            assert_int_equal(work.sent_at, 1001);
        }
    }
    assert_int_equal(work.due_ms, lane == DELIVERY_LANE_PURGE ? INT64_MAX : LATER);
}

static void test_what_was_due_is_due(void **state)
{
    enum delivery_task tasks[ROWS] = {DELIVERY_NOTHING};
    struct delivery_index *ix = open_index();

    (void)state;
    done(delivery_index_restart(ix, NOW_MS, &e));
    for (int lane = 0; lane < DELIVERY_LANES; lane++) {
        take_all(ix, (enum delivery_lane)lane, tasks);
    }
    for (size_t i = 0; i < ROWS; i++) {
        if (tasks[i] != rows[i].task) {
            fail_msg("row %zu: task %d, not %d", i, (int)tasks[i], (int)rows[i].task);
        }
    }
    delivery_index_close(ix);
    nothing_is_wrong();
}

/* Every one of them arrives, and without a retention in its plan its local bytes stay. */
static void test_all_arrive(void **state)
{
    static struct delivery_work work;
    static const struct delivery_ask sends = {.lane = DELIVERY_LANE_SEND, .workers = 64};
    static const struct delivery_ask purges = {.lane = DELIVERY_LANE_PURGE};
    struct delivery_index *ix = open_index();
    unsigned arrived = 0;

    (void)state;
    done(delivery_index_restart(ix, NOW_MS, &e));
    for (;; arrived++) {
        done(delivery_index_next(ix, LATER, &sends, &work, &e));
        if (work.task == DELIVERY_NOTHING) {
            break;
        }
        if (work.task == DELIVERY_SEND) {
            done(delivery_index_claim(ix, &work.plan, NOW, &e));
            done(delivery_index_sent(ix, &work.plan, NOW, &e));
        }
        done(delivery_index_verified(ix, &work.plan, NOW, &e));
        delivery_index_over(ix, work.plan.package_id);
    }
    assert_int_equal(arrived, 5);
    done(delivery_index_next(ix, INT64_MAX, &purges, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    delivery_index_close(ix);
    answer_is("SELECT state, count(*) FROM deliveries GROUP BY state", "verified|6\n");
    nothing_is_wrong();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_rows_say_the_same),
        T(test_what_was_due_is_due),
        T(test_all_arrive),
    };

    log_set_level(LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
