/* delivery_index: what is due and in which order, steps out of order, a restart, a damaged file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"
#include "store/artifact/delivery_index_internal.h"

#define NOW    INT64_C(1795996800)
#define NOW_MS (NOW * 1000)

static char dir[64];
static struct delivery_index *ix;
static struct delivery_work work;
static struct err e;

static int setup(void **state)
{
    bool rebuilt;

    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tallyman-index-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : delivery_index_open(dir, &ix, &rebuilt, &e);
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    delivery_index_close(ix);
    ix = NULL;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void done(int r)
{
    if (r != 0) {
        fail_msg("%s", e.text);
    }
}

static struct delivery_artifact artifact(const char *project, unsigned n, int64_t accepted_at)
{
    struct delivery_artifact a = {.size_bytes = n + 1, .accepted_at = accepted_at};

    snprintf(a.object_id, sizeof a.object_id, "%032x", n);
    snprintf(a.project, sizeof a.project, "%s", project);
    snprintf(a.checksum, sizeof a.checksum, "%064x", n);
    return a;
}

static void add(const char *project, unsigned n, int64_t accepted_at)
{
    struct delivery_artifact a = artifact(project, n, accepted_at);

    done(delivery_index_begin(ix, &e));
    done(delivery_index_add(ix, &a, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
}

static void plan_of(struct delivery_plan *p, const struct delivery_artifact *a)
{
    struct artifact_sink to = {.sink = "directory", .directory = "/somewhere"};

    done(delivery_plan_begin(p, a, &to, &e));
}

static void seal(const char *project, unsigned n, int64_t due_ms)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact(project, n, NOW);

    plan_of(&p, &a);
    done(delivery_index_seal(ix, &p, NOW, due_ms, &e));
}

static void next_is(char after[UPLOAD_PROJECT_MAX + 1], enum delivery_task task,
                    const char *project, unsigned n)
{
    char id[UPLOAD_ID_LEN + 1];

    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_equal(work.task, task);
    snprintf(id, sizeof id, "%032x", n);
    assert_string_equal(work.artifact.project, project);
    assert_string_equal(work.artifact.object_id, id);
    assert_string_equal(after, project);
}

static void test_nothing(void **state)
{
    char after[UPLOAD_PROJECT_MAX + 1] = "x";

    (void)state;
    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    assert_true(work.due_ms == INT64_MAX);
    assert_string_equal(after, "x");
}

/* Projects take turns whatever their backlogs; within one the oldest goes first. */
static void test_turns(void **state)
{
    char after[UPLOAD_PROJECT_MAX + 1] = "";
    struct delivery_artifact a = artifact("b", 11, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    add("b", 10, NOW - 5);
    add("b", 11, NOW - 9);
    add("b", 12, NOW + 3600); /* a clock that was ahead: due at once all the same */
    add("a", 20, NOW - 1);
    add("c", 30, NOW - 100);
    next_is(after, DELIVERY_BUILD, "a", 20);
    next_is(after, DELIVERY_BUILD, "b", 11);
    next_is(after, DELIVERY_BUILD, "c", 30);
    next_is(after, DELIVERY_BUILD, "a", 20);
    /* A delivery that is older than the builds of its project goes before them, and the reverse. */
    seal("b", 10, NOW_MS - 4000);
    next_is(after, DELIVERY_BUILD, "b", 11);
    delivery_package_id(&a, id);
    a.size_bytes = 12;
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 60000, "later", &e));
    next_is(after, DELIVERY_BUILD, "c", 30);
    next_is(after, DELIVERY_BUILD, "a", 20);
    next_is(after, DELIVERY_SEND, "b", 10);
    assert_string_equal(work.plan.to.directory, "/somewhere");
    assert_int_equal(work.attempts, 0);
}

/* What it costs to find the next work: never the backlog. */
static void find_is_cheap(void)
{
    static const enum index_statement finders[] = {INDEX_BUILD_PROJECT, INDEX_SEND_PROJECT,
                                                   INDEX_BUILD_HEAD, INDEX_SEND_HEAD};
    char after[UPLOAD_PROJECT_MAX + 1] = "";

    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        (void)sqlite3_stmt_status(ix->st[finders[i]], SQLITE_STMTSTATUS_VM_STEP, 1);
    }
    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_not_equal(work.task, DELIVERY_NOTHING);
    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        struct sqlite3_stmt *st = ix->st[finders[i]];
        assert_int_equal(sqlite3_stmt_status(st, SQLITE_STMTSTATUS_SORT, 0), 0);
        assert_in_range(sqlite3_stmt_status(st, SQLITE_STMTSTATUS_VM_STEP, 0), 1, 100);
    }
}

static void test_a_backlog_costs_nothing(void **state)
{
    (void)state;
    for (unsigned n = 1; n <= 300; n++) {
        add("a", n, NOW - n);
    }
    find_is_cheap();
    for (unsigned n = 1; n <= 299; n++) {
        seal("a", n, NOW_MS);
    }
    find_is_cheap();
}

/* What waits holds nobody up, and its due time is what the caller may wait for. */
/* Whose place is not there is asked again when the hold is over, and builds meanwhile. */
static void test_a_project_is_held(void **state)
{
    char after[UPLOAD_PROJECT_MAX + 1] = "", name[16];

    (void)state;
    add("a", 1, NOW - 9);
    add("a", 2, NOW - 8);
    seal("a", 1, NOW_MS - 9000);
    delivery_index_hold(ix, "a", NOW_MS + 1000);
    next_is(after, DELIVERY_BUILD, "a", 2);
    seal("a", 2, NOW_MS - 8000);
    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    assert_true(work.due_ms == NOW_MS + 1000);
    done(delivery_index_next(ix, NOW_MS + 1000, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_SEND);
    delivery_index_hold(ix, "a", NOW_MS - 1); /* again, and over */
    next_is(after, DELIVERY_SEND, "a", 1);
    delivery_index_hold(ix, "a", NOW_MS + 1000);
    for (unsigned i = 1; i < DELIVERY_HOLDS_MAX; i++) {
        snprintf(name, sizeof name, "b%u", i);
        delivery_index_hold(ix, name, NOW_MS + 2000);
    }
    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    delivery_index_hold(ix, "one too many", NOW_MS + 2000);
    next_is(after, DELIVERY_SEND, "a", 1);
}

static void test_due_times(void **state)
{
    char after[UPLOAD_PROJECT_MAX + 1] = "";
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct delivery_artifact b = artifact("b", 2, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    add("a", 1, NOW);
    add("b", 2, NOW);
    delivery_package_id(&a, id);
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 70000, "later", &e));
    next_is(after, DELIVERY_BUILD, "b", 2);
    delivery_package_id(&b, id);
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 50000, "later", &e));
    done(delivery_index_next(ix, NOW_MS, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    assert_true(work.due_ms == NOW_MS + 50000);
    done(delivery_index_next(ix, NOW_MS + 50000, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_BUILD);
    assert_string_equal(work.artifact.project, "b");
    assert_int_equal(work.attempts, 1);
    /* The clock was set back by a day: nothing waits for a day. */
    done(delivery_index_next(ix, NOW_MS - 86400000, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_BUILD);
}

/* Each step leaves only from the states it may leave from. */
static void test_steps_out_of_order(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact("a", 1, NOW);

    (void)state;
    plan_of(&p, &a);
    assert_int_equal(delivery_index_seal(ix, &p, NOW, NOW_MS, &e), ERR_CORRUPT); /* no such row */
    assert_int_equal(delivery_index_claim(ix, &p, NOW, &e), ERR_CORRUPT);
    add("a", 1, NOW);
    done(delivery_index_seal(ix, &p, NOW, NOW_MS, &e));
    assert_int_equal(delivery_index_seal(ix, &p, NOW, NOW_MS, &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_build_retry(ix, p.package_id, NOW, 1, "", &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_build_park(ix, p.package_id, NOW, "", "", &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_sent(ix, &p, NOW, &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_verified(ix, &p, NOW, &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_retry(ix, &p, NOW, NOW_MS, "", &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_park(ix, &p, NOW, "", "", &e), ERR_CORRUPT);
    done(delivery_index_claim(ix, &p, NOW, &e));
    assert_int_equal(delivery_index_claim(ix, &p, NOW, &e), ERR_CORRUPT);
    done(delivery_index_sent(ix, &p, NOW, &e));
    assert_int_equal(delivery_index_claim(ix, &p, NOW, &e), ERR_CORRUPT);
    done(delivery_index_verified(ix, &p, NOW, &e));
    assert_int_equal(delivery_index_retry(ix, &p, NOW, NOW_MS, "", &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "0 rows"));
    /* What is verified is never due again. */
    char after[UPLOAD_PROJECT_MAX + 1] = "";
    done(delivery_index_next(ix, NOW_MS * 2, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
}

static void test_restart(void **state)
{
    static struct delivery_plan p, q;
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct delivery_artifact b = artifact("b", 2, NOW);
    struct delivery_artifact c = artifact("c", 3, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];
    char after[UPLOAD_PROJECT_MAX + 1] = "";
    bool rebuilt, has;

    (void)state;
    plan_of(&p, &a);
    plan_of(&q, &b);
    add("a", 1, NOW);
    add("b", 2, NOW);
    add("c", 3, NOW);
    seal("a", 1, NOW_MS);
    seal("b", 2, NOW_MS);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_claim(ix, &q, NOW, &e));
    done(delivery_index_sent(ix, &q, NOW, &e));
    delivery_package_id(&c, id);
    done(delivery_index_build_park(ix, id, NOW, "rotten", "mend", &e));
    delivery_index_close(ix);
    done(delivery_index_open(dir, &ix, &rebuilt, &e));
    assert_false(rebuilt);
    done(delivery_index_restart(ix, NOW_MS + 5, &e));
    done(delivery_index_has(ix, a.object_id, &has, &e));
    assert_true(has);
    done(delivery_index_has(ix, "0", &has, &e));
    assert_false(has);
    done(delivery_index_next(ix, NOW_MS + 4, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_VERIFY); /* sent is verified, not sent again */
    assert_string_equal(work.artifact.project, "b");
    done(delivery_index_next(ix, NOW_MS + 5, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_BUILD); /* parked: whoever restarts has looked */
    done(delivery_index_next(ix, NOW_MS + 5, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_SEND);
    assert_string_equal(work.artifact.project, "a");
    assert_int_equal(work.attempts, 1); /* kept */
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_park(ix, &p, NOW, "another file", "move it", &e));
    done(delivery_index_restart(ix, NOW_MS + 9, &e));
    after[0] = '\0';
    done(delivery_index_next(ix, NOW_MS + 9, after, &work, &e));
    assert_int_equal(work.task, DELIVERY_SEND);
}

/* Long error texts are cut between characters. */
static void test_long_texts(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct delivery_view v;
    char text[3000];

    (void)state;
    plan_of(&p, &a);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        text[i] = "\xe2\x82\xac"[i % 3];
    }
    text[sizeof text - 1] = '\0';
    add("a", 1, NOW);
    done(delivery_index_build_retry(ix, p.package_id, NOW, NOW_MS, text, &e));
    done(delivery_view_read(dir, slice_cstr(a.object_id), &v, &e));
    assert_int_equal(strlen(v.error), 999); /* 333 characters of three bytes */
    assert_memory_equal(v.error, text, 999);
}

static void test_skipped_once(void **state)
{
    bool first;

    (void)state;
    done(delivery_index_begin(ix, &e));
    done(delivery_index_skip(ix, "README", "no receipt", NOW, &first, &e));
    assert_true(first);
    done(delivery_index_skip(ix, "README", "another reason", NOW, &first, &e));
    assert_false(first);
    delivery_index_undo(ix);
    delivery_index_undo(ix); /* nothing to undo is fine */
    done(delivery_index_begin(ix, &e));
    done(delivery_index_skip(ix, "README", "no receipt", NOW, &first, &e));
    assert_true(first);
    done(delivery_index_commit(ix, &e));
}

static void write_file(const char *name, const char *bytes, size_t n)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_damaged_is_put_aside(void **state)
{
    char path[128];
    char bytes[20000];
    struct os_stat st;
    bool rebuilt, has;

    (void)state;
    add("a", 1, NOW);
    delivery_index_close(ix);
    ix = NULL;
    memset(bytes, 'Z', sizeof bytes);
    write_file(DELIVERY_FILE, bytes, sizeof bytes);
    write_file(DELIVERY_FILE "-wal", bytes, sizeof bytes);
    done(delivery_index_open(dir, &ix, &rebuilt, &e));
    assert_true(rebuilt);
    snprintf(path, sizeof path, "%s/%s.damaged", dir, DELIVERY_FILE);
    assert_int_equal(os_stat(path, &st), 0);
    assert_true(st.size == sizeof bytes);
    done(delivery_index_has(ix, "00000000000000000000000000000001", &has, &e));
    assert_false(has);
    add("a", 1, NOW);
}

static void test_not_ours_is_left_alone(void **state)
{
    char path[128];
    struct sqlite3 *db;
    struct os_stat before, after;
    bool rebuilt;

    (void)state;
    delivery_index_close(ix);
    ix = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, DELIVERY_FILE);
    done(db_open(path, SQLITE_OPEN_READWRITE, 100, &db, &e));
    done(db_exec(db, "PRAGMA user_version=2", &e));
    sqlite3_close(db);
    done(os_stat(path, &before));
    assert_int_equal(delivery_index_open(dir, &ix, &rebuilt, &e), ERR_UNSUPPORTED);
    assert_null(ix);
    assert_non_null(strstr(e.text, "version 2"));
    done(db_open(path, SQLITE_OPEN_READWRITE, 100, &db, &e));
    done(db_exec(db, "PRAGMA user_version=1; PRAGMA application_id=7", &e));
    sqlite3_close(db);
    assert_int_equal(delivery_index_open(dir, &ix, &rebuilt, &e), ERR_UNSUPPORTED);
    done(os_stat(path, &after));
    assert_true(before.inode == after.inode);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_nothing),
        T(test_turns),
        T(test_a_backlog_costs_nothing),
        T(test_a_project_is_held),
        T(test_due_times),
        T(test_steps_out_of_order),
        T(test_restart),
        T(test_long_texts),
        T(test_skipped_once),
        T(test_damaged_is_put_aside),
        T(test_not_ours_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
