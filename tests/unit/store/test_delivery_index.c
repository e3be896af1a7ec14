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
#include "store/artifact/proof.h"

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

static struct delivery_ask builds = {.lane = DELIVERY_LANE_BUILD};
static struct delivery_ask sends = {.lane = DELIVERY_LANE_SEND, .workers = 8};

/* Under way from now on. */
static void given(const struct delivery_ask *ask, int64_t now_ms, enum delivery_task task,
                  const char *project, unsigned n)
{
    char id[UPLOAD_ID_LEN + 1];

    done(delivery_index_next(ix, now_ms, ask, &work, &e));
    assert_int_equal(work.task, task);
    snprintf(id, sizeof id, "%032x", n);
    assert_string_equal(work.artifact.project, project);
    assert_string_equal(work.artifact.object_id, id);
}

static void over(void)
{
    char id[DELIVERY_PACKAGE_LEN + 1];

    delivery_package_id(&work.artifact, id);
    delivery_index_over(ix, id);
}

static void next_is(const struct delivery_ask *ask, enum delivery_task task, const char *project,
                    unsigned n)
{
    given(ask, NOW_MS, task, project, n);
    over();
}

static void nothing_is(const struct delivery_ask *ask, int64_t now_ms, int64_t due_ms)
{
    done(delivery_index_next(ix, now_ms, ask, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    if (work.due_ms != due_ms) {
        fail_msg("due %lld, not %lld", (long long)(work.due_ms - NOW_MS),
                 (long long)(due_ms - NOW_MS));
    }
}

static void test_nothing(void **state)
{
    (void)state;
    nothing_is(&builds, NOW_MS, INT64_MAX);
    nothing_is(&sends, NOW_MS, INT64_MAX);
}

/* Projects take turns whatever their backlogs; within one the oldest goes first. */
static void test_turns(void **state)
{
    struct delivery_artifact a = artifact("b", 11, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    add("b", 10, NOW - 5);
    add("b", 11, NOW - 9);
    add("b", 12, NOW + 3600); /* a clock that was ahead: due at once all the same */
    add("a", 20, NOW - 1);
    add("c", 30, NOW - 100);
    next_is(&builds, DELIVERY_BUILD, "a", 20);
    next_is(&builds, DELIVERY_BUILD, "b", 11);
    next_is(&builds, DELIVERY_BUILD, "c", 30);
    next_is(&builds, DELIVERY_BUILD, "a", 20);
    delivery_package_id(&a, id);
    a.size_bytes = 12;
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 60000, "later", &e));
    next_is(&builds, DELIVERY_BUILD, "b", 10);
    /* The other lane has a turn of its own. */
    seal("b", 10, NOW_MS - 4000);
    next_is(&sends, DELIVERY_SEND, "b", 10);
    assert_string_equal(work.plan.to.directory, "/somewhere");
    assert_int_equal(work.attempts, 0);
    next_is(&builds, DELIVERY_BUILD, "c", 30);
}

/* What was given is given to nobody else until it is over. */
static void test_under_way(void **state)
{
    struct delivery_artifact a = artifact("a", 1, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    add("a", 1, NOW - 9);
    add("a", 2, NOW - 8);
    given(&builds, NOW_MS, DELIVERY_BUILD, "a", 1);
    given(&builds, NOW_MS, DELIVERY_BUILD, "a", 2);
    nothing_is(&builds, NOW_MS, INT64_MAX);
    delivery_package_id(&a, id);
    delivery_index_over(ix, id);
    next_is(&builds, DELIVERY_BUILD, "a", 1);
}

/* A large build keeps no small one waiting. */
static void test_small_builds(void **state)
{
    struct delivery_artifact a = artifact("a", 1, NOW - 9);

    (void)state;
    a.size_bytes = DELIVERY_SMALL_BYTES + 1;
    done(delivery_index_begin(ix, &e));
    done(delivery_index_add(ix, &a, NOW_MS, &e));
    a = artifact("a", 2, NOW - 8);
    a.size_bytes = DELIVERY_SMALL_BYTES + 1;
    done(delivery_index_add(ix, &a, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
    add("a", 3, NOW - 7);
    add("b", 4, NOW - 6);
    builds.small_only = true;
    next_is(&builds, DELIVERY_BUILD, "a", 3);
    given(&builds, NOW_MS, DELIVERY_BUILD, "b", 4);
    given(&builds, NOW_MS, DELIVERY_BUILD, "a", 3);
    nothing_is(&builds, NOW_MS, INT64_MAX);
    builds.small_only = false;
    next_is(&builds, DELIVERY_BUILD, "a", 1);
}

/* One project leaves the last worker to others, while these have due work. */
static void test_shares(void **state)
{
    struct delivery_ask three = {.lane = DELIVERY_LANE_SEND, .workers = 3};

    (void)state;
    for (unsigned n = 1; n <= 4; n++) {
        add("a", n, NOW - 10 + n);
        seal("a", n, NOW_MS - 10000 + n);
    }
    add("b", 9, NOW - 1);
    seal("b", 9, NOW_MS + 500); /* not due yet */
    given(&three, NOW_MS, DELIVERY_SEND, "a", 1);
    given(&three, NOW_MS, DELIVERY_SEND, "a", 2);
    given(&three, NOW_MS, DELIVERY_SEND, "a", 3); /* nobody else's is due */
    over();
    given(&three, NOW_MS + 500, DELIVERY_SEND, "b", 9);
    over();
    given(&three, NOW_MS + 500, DELIVERY_SEND, "b", 9); /* a has its share */
    /* One that hangs is no part of the share any more, and its project waits for it. */
    struct delivery_artifact first = artifact("a", 1, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];
    delivery_package_id(&first, id);
    delivery_index_stuck(ix, id);
    nothing_is(&three, NOW_MS + 500, INT64_MAX);
    delivery_index_over(ix, id);
    given(&three, NOW_MS + 500, DELIVERY_SEND, "a", 1);
}

/* Verifications and sendings that are both due come both soon, in any pattern of turns. */
static void test_verifications_do_not_wait(void **state)
{
    static struct delivery_plan p;
    unsigned last[2][2] = {{0}};

    (void)state;
    for (unsigned n = 1; n <= 4; n++) {
        const char *project = n <= 2 ? "a" : "b";
        struct delivery_artifact a = artifact(project, n, NOW);
        add(project, n, NOW - 99);
        seal(project, n, NOW_MS - 99000);
        if (n % 2 == 0) {
            plan_of(&p, &a);
            done(delivery_index_claim(ix, &p, NOW, &e));
            done(delivery_index_sent(ix, &p, NOW, &e));
        }
    }
    for (unsigned i = 1; i <= 400; i++) {
        done(delivery_index_next(ix, NOW_MS, &sends, &work, &e));
        assert_int_not_equal(work.task, DELIVERY_NOTHING);
        unsigned project = work.artifact.project[0] == 'b', verify = work.task == DELIVERY_VERIFY;
        assert_int_equal(project, (i + 1) % 2);
        last[project][verify] = i;
        if (work.task == DELIVERY_VERIFY) {
            assert_true(work.sent_at == NOW);
        }
        over();
        for (unsigned k = 0; i > 12 && k < 4; k++) {
            assert_in_range(i - last[k / 2][k % 2], 0, 12);
        }
    }
}

/* What it costs to find the next work: never the backlog. */
static void find_is_cheap(void)
{
    static const enum index_statement finders[] = {
        INDEX_BUILD_PROJECT, INDEX_SEND_PROJECT, INDEX_SENT_PROJECT, INDEX_SMALL_PROJECT,
        INDEX_BUILD_HEAD,    INDEX_SEND_HEAD,    INDEX_SENT_HEAD,    INDEX_SMALL_HEAD};
    struct delivery_ask small = {.lane = DELIVERY_LANE_BUILD, .small_only = true};
    unsigned found = 0;

    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        (void)sqlite3_stmt_status(ix->st[finders[i]], SQLITE_STMTSTATUS_VM_STEP, 1);
    }
    for (unsigned i = 0; i < 3; i++) {
        const struct delivery_ask *ask = i == 0 ? &builds : i == 1 ? &sends : &small;
        done(delivery_index_next(ix, NOW_MS, ask, &work, &e));
        if (work.task != DELIVERY_NOTHING) {
            found++;
            over();
        }
    }
    assert_true(found > 0);
    for (size_t i = 0; i < sizeof finders / sizeof *finders; i++) {
        struct sqlite3_stmt *st = ix->st[finders[i]];
        assert_int_equal(sqlite3_stmt_status(st, SQLITE_STMTSTATUS_SORT, 0), 0);
        assert_in_range(sqlite3_stmt_status(st, SQLITE_STMTSTATUS_VM_STEP, 0), 0, 120);
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

/* ---- holds ---- */

/* Holds are of one process. */
static int reopen(void)
{
    bool rebuilt;

    delivery_index_close(ix);
    return delivery_index_open(dir, &ix, &rebuilt, &e);
}

static void plan_to(struct delivery_plan *p, const char *project, unsigned n,
                    const char *identifier, const char *keys)
{
    struct delivery_artifact a = artifact(project, n, NOW);

    plan_of(p, &a);
    if (identifier != NULL) {
        snprintf(p->identifier, sizeof p->identifier, "%s", identifier);
    }
    snprintf(p->to.credentials_file, sizeof p->to.credentials_file, "%s", keys);
}

static void seal_to(const char *project, unsigned n, int64_t due_ms, const char *identifier,
                    const char *keys)
{
    static struct delivery_plan p;

    add(project, n, NOW - 100);
    plan_to(&p, project, n, identifier, keys);
    done(delivery_index_seal(ix, &p, NOW, due_ms, &e));
}

/* Whose place is not there is asked again when the hold is over, and builds meanwhile. */
static void test_a_project_is_held(void **state)
{
    static struct delivery_plan p;
    char name[16];

    (void)state;
    add("a", 1, NOW - 9);
    add("a", 2, NOW - 8);
    seal("a", 1, NOW_MS - 9000);
    plan_to(&p, "a", 1, NULL, "");
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 1000, "away");
    next_is(&builds, DELIVERY_BUILD, "a", 2);
    seal("a", 2, NOW_MS - 8000);
    nothing_is(&sends, NOW_MS, NOW_MS + 1000);
    given(&sends, NOW_MS + 1000, DELIVERY_SEND, "a", 1);
    over();
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS - 1, "away"); /* again, and over */
    next_is(&sends, DELIVERY_SEND, "a", 1);
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 1000, "away");
    for (unsigned i = 1; i < DELIVERY_HOLDS_MAX; i++) {
        snprintf(name, sizeof name, "b%u", i);
        plan_to(&p, name, 1, NULL, "");
        delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 2000, "away");
    }
    nothing_is(&sends, NOW_MS, NOW_MS + 1000);
    plan_to(&p, "one too many", 1, NULL, "");
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 2000, "away");
    next_is(&sends, DELIVERY_SEND, "a", 1);
    /* The clock was set back by a day: nothing is held for a day. */
    plan_to(&p, "a", 1, NULL, "");
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 86400000, "away");
    next_is(&sends, DELIVERY_SEND, "a", 1);
}

/* Each hold covers what it names, in whatever project, and nothing else. */
static void test_scopes_of_holds(void **state)
{
    static struct delivery_plan p;

    (void)state;
    seal_to("a", 1, NOW_MS - 9000, "full", "/keys/one");
    seal_to("a", 2, NOW_MS - 8000, "empty", "/keys/one");
    seal_to("a", 3, NOW_MS - 7000, "full", "/keys/two");
    seal_to("b", 4, NOW_MS - 6000, "full", "/keys/two");
    plan_to(&p, "a", 1, "full", "/keys/one");
    delivery_index_hold(ix, DELIVERY_SCOPE_ITEM, &p, NOW_MS + 1000, "the item is full");
    next_is(&sends, DELIVERY_SEND, "a", 2);
    next_is(&sends, DELIVERY_SEND, "a", 2);
    delivery_index_hold(ix, DELIVERY_SCOPE_KEYS, &p, NOW_MS + 500, "bad keys");
    nothing_is(&sends, NOW_MS, NOW_MS + 500);
    given(&sends, NOW_MS + 500, DELIVERY_SEND, "a", 2);
    over();
    done(reopen());
    delivery_index_hold(ix, DELIVERY_SCOPE_KEYS, &p, NOW_MS + 500, "bad keys");
    next_is(&sends, DELIVERY_SEND, "a", 3);
    next_is(&sends, DELIVERY_SEND, "b", 4);
    delivery_index_hold(ix, DELIVERY_SCOPE_FAR_END, &p, NOW_MS + 700, "503");
    nothing_is(&sends, NOW_MS, NOW_MS + 700);
    nothing_is(&sends, NOW_MS + 500, NOW_MS + 700);
    snprintf(p.to.sink, sizeof p.to.sink, "other");
    done(reopen());
    delivery_index_hold(ix, DELIVERY_SCOPE_FAR_END, &p, NOW_MS + 700, "503");
    next_is(&sends, DELIVERY_SEND, "a", 1);
}

/* More held packages than are looked at are put behind, and what is not held comes at once. */
static void test_many_are_held(void **state)
{
    static struct delivery_plan p;

    (void)state;
    for (unsigned n = 1; n <= 150; n++) {
        seal_to("a", n, NOW_MS - 9000 + n, "full", "");
    }
    seal_to("a", 200, NOW_MS - 1, "free", "");
    plan_to(&p, "a", 1, "full", "");
    delivery_index_hold(ix, DELIVERY_SCOPE_ITEM, &p, NOW_MS + 1000, "full");
    next_is(&sends, DELIVERY_SEND, "a", 200);
    given(&sends, NOW_MS, DELIVERY_SEND, "a", 200);
    nothing_is(&sends, NOW_MS, NOW_MS + 1000);
    done(delivery_index_next(ix, NOW_MS + 1000, &sends, &work, &e));
    assert_int_equal(work.task, DELIVERY_SEND);
    assert_string_equal(work.plan.identifier, "full");
}

static void test_due_times(void **state)
{
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct delivery_artifact b = artifact("b", 2, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    add("a", 1, NOW);
    add("b", 2, NOW);
    delivery_package_id(&a, id);
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 70000, "later", &e));
    next_is(&builds, DELIVERY_BUILD, "b", 2);
    delivery_package_id(&b, id);
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 50000, "later", &e));
    nothing_is(&builds, NOW_MS, NOW_MS + 50000);
    given(&builds, NOW_MS + 50000, DELIVERY_BUILD, "b", 2);
    assert_int_equal(work.attempts, 1);
    over();
    /* The clock was set back by a day: nothing waits for a day. */
    done(delivery_index_next(ix, NOW_MS - 86400000, &builds, &work, &e));
    assert_int_equal(work.task, DELIVERY_BUILD);
}

/* ---- what people ask for ---- */

static const char *state_of(unsigned n)
{
    static struct delivery_view v;
    char id[UPLOAD_ID_LEN + 1];

    snprintf(id, sizeof id, "%032x", n);
    done(delivery_view_read(dir, slice_cstr(id), &v, &e));
    return delivery_state_name(v.state);
}

static bool asked(unsigned n)
{
    char id[UPLOAD_ID_LEN + 1];
    bool found = false;

    snprintf(id, sizeof id, "%032x", n);
    done(delivery_index_ask(ix, id, NOW_MS, &found, &e));
    return found;
}

static void test_asked_for(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact b = artifact("b", 2, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];

    (void)state;
    assert_false(asked(1));
    /* A build that waits, and one that is blocked. */
    add("b", 2, NOW);
    delivery_package_id(&b, id);
    done(delivery_index_build_retry(ix, id, NOW, NOW_MS + 60000, "later", &e));
    nothing_is(&builds, NOW_MS, NOW_MS + 60000);
    assert_true(asked(2));
    next_is(&builds, DELIVERY_BUILD, "b", 2);
    assert_int_equal(work.attempts, 1); /* kept */
    done(delivery_index_build_park(ix, id, NOW, "rotten", "mend", &e));
    assert_string_equal(state_of(2), "parked");
    assert_true(asked(2));
    next_is(&builds, DELIVERY_BUILD, "b", 2);
    /* A delivery that is parked, with its project held; one that waits; one that is sent. */
    seal_to("a", 1, NOW_MS, NULL, "");
    plan_to(&p, "a", 1, NULL, "");
    done(delivery_index_claim(ix, &p, NOW, &e));
    assert_true(asked(1)); /* under way: nothing is changed */
    assert_string_equal(state_of(1), "sending");
    done(delivery_index_park(ix, &p, NOW, "no rights", "get some", &e));
    delivery_index_hold(ix, DELIVERY_SCOPE_PROJECT, &p, NOW_MS + 3600000, "no rights");
    assert_true(asked(1));
    assert_true(asked(1)); /* asking twice is asking once */
    assert_string_equal(state_of(1), "retry_wait");
    next_is(&sends, DELIVERY_SEND, "a", 1);
    assert_int_equal(work.attempts, 1);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_retry(ix, &p, NOW, NOW_MS + 60000, "away", &e));
    assert_true(asked(1));
    next_is(&sends, DELIVERY_SEND, "a", 1);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_sent(ix, &p, NOW, &e));
    done(delivery_index_unseen(ix, &p, NOW, NOW_MS + 60000, false, "not yet", &e));
    assert_true(asked(1));
    next_is(&sends, DELIVERY_VERIFY, "a", 1);
    done(delivery_index_verified(ix, &p, NOW, &e));
    assert_true(asked(1));
    assert_string_equal(state_of(1), "verified");
}

static void test_late(void **state)
{
    static struct delivery_plan p;
    uint64_t count = 9;

    (void)state;
    seal_to("a", 1, NOW_MS, NULL, "");
    plan_to(&p, "a", 1, NULL, "");
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_sent(ix, &p, NOW, &e));
    done(delivery_index_unseen(ix, &p, NOW, NOW_MS, false, "not yet", &e));
    done(delivery_index_late(ix, &count, &e));
    assert_int_equal(count, 0);
    done(delivery_index_unseen(ix, &p, NOW, NOW_MS, true, "not yet", &e));
    done(delivery_index_late(ix, &count, &e));
    assert_int_equal(count, 1);
    done(delivery_index_retry(ix, &p, NOW, NOW_MS, "gone", &e));
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_sent(ix, &p, NOW, &e)); /* sent again: it has its time again */
    done(delivery_index_late(ix, &count, &e));
    assert_int_equal(count, 0);
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
    nothing_is(&sends, NOW_MS * 2, INT64_MAX);
}

/* An index out of a backup has a plan for another sink. */
static void test_a_proof_of_another_plan(void **state)
{
    static struct proof proof;
    int64_t verified;

    (void)state;
    add("a", 1, NOW);
    seal("a", 1, NOW_MS);
    proof.artifact = artifact("a", 1, NOW);
    proof.sent_at = proof.verified_at = NOW;
    plan_of(&proof.plan, &proof.artifact);
    snprintf(proof.plan.to.sink, sizeof proof.plan.to.sink, "another");
    snprintf(proof.plan.identifier, sizeof proof.plan.identifier, "elsewhere");
    done(delivery_index_begin(ix, &e));
    done(delivery_index_prove(ix, &proof, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
    nothing_is(&sends, NOW_MS * 2, INT64_MAX);
    /* The same sink, another place. */
    snprintf(proof.plan.identifier, sizeof proof.plan.identifier, "third");
    done(delivery_index_begin(ix, &e));
    done(delivery_index_prove(ix, &proof, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
    done(db_number(ix->db,
                   "SELECT count(*) FROM deliveries WHERE state = 'verified'"
                   " AND sink = 'another' AND identifier = 'third'",
                   0, &verified, &e));
    assert_int_equal(verified, 1);
}

static void test_restart(void **state)
{
    static struct delivery_plan p, q;
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct delivery_artifact b = artifact("b", 2, NOW);
    struct delivery_artifact c = artifact("c", 3, NOW);
    char id[DELIVERY_PACKAGE_LEN + 1];
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
    given(&sends, NOW_MS + 4, DELIVERY_VERIFY, "b", 2); /* sent is verified, not sent again */
    over();
    given(&builds, NOW_MS + 5, DELIVERY_BUILD, "c", 3); /* parked: whoever restarts has looked */
    over();
    given(&sends, NOW_MS + 5, DELIVERY_SEND, "a", 1);
    over();
    assert_int_equal(work.attempts, 1);          /* kept */
    assert_true(work.maybe_files == UINT64_MAX); /* nobody knows what it brought */
    assert_int_equal(work.maybe_at, NOW);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_park(ix, &p, NOW, "another file", "move it", &e));
    done(delivery_index_restart(ix, NOW_MS + 9, &e));
    given(&sends, NOW_MS + 9, DELIVERY_VERIFY, "b", 2);
    given(&sends, NOW_MS + 9, DELIVERY_SEND, "a", 1);
}

/* What a try may have brought is told to the next one, and looking for it is no try. */
static void test_what_may_be_there(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact("a", 1, NOW);

    (void)state;
    plan_of(&p, &a);
    add("a", 1, NOW);
    done(delivery_index_seal(ix, &p, NOW, NOW_MS, &e));
    assert_int_equal(delivery_index_maybe(ix, &p, NOW, 1, &e), ERR_CORRUPT);
    assert_int_equal(delivery_index_put_off(ix, &p, NOW, NOW_MS, "", &e), ERR_CORRUPT);
    given(&sends, NOW_MS, DELIVERY_SEND, "a", 1);
    over();
    assert_true(work.maybe_files == 0);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_maybe(ix, &p, NOW + 1, 1, &e));
    done(delivery_index_retry(ix, &p, NOW, NOW_MS + 1000, "no answer", &e));
    given(&sends, NOW_MS + 1000, DELIVERY_SEND, "a", 1);
    over();
    assert_int_equal(work.attempts, 1);
    assert_true(work.maybe_files == 1);
    assert_int_equal(work.maybe_at, NOW + 1);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_put_off(ix, &p, NOW + 2, NOW_MS + 2000, "looked for", &e));
    nothing_is(&sends, NOW_MS + 1999, NOW_MS + 2000);
    given(&sends, NOW_MS + 2000, DELIVERY_SEND, "a", 1);
    over();
    assert_int_equal(work.attempts, 1); /* looking is none */
    assert_true(work.maybe_files == 1);
    assert_int_equal(work.maybe_at, NOW + 1);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_maybe(ix, &p, NOW + 3, 2, &e));
    done(delivery_index_park(ix, &p, NOW, "no", "ask", &e));
    done(delivery_index_restart(ix, NOW_MS + 4000, &e));
    given(&sends, NOW_MS + 4000, DELIVERY_SEND, "a", 1);
    over();
    assert_true(work.maybe_files == 3);
    assert_int_equal(work.maybe_at, NOW + 3);
    /* The clock was set back meanwhile: it is waited for from now on, not from then. */
    done(delivery_index_claim(ix, &p, NOW - 1000, &e));
    done(delivery_index_put_off(ix, &p, NOW - 1000, NOW_MS - 1000, "looked for", &e));
    given(&sends, NOW_MS - 1000, DELIVERY_SEND, "a", 1);
    over();
    assert_true(work.maybe_files == 3);
    assert_int_equal(work.maybe_at, NOW - 1000);
}

/* What a far side has refused is not sent again because a process was started again. */
static void test_refused_by_the_archive(void **state)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact("a", 1, NOW);
    struct artifact_sink to = {
        .sink = "internet_archive", .credentials_file = "/k", .identifier = "a-{{OBJECT_ID}}"};
    bool found = false;

    (void)state;
    done(delivery_plan_begin(&p, &a, &to, &e));
    add("a", 1, NOW);
    done(delivery_index_seal(ix, &p, NOW, NOW_MS, &e));
    given(&sends, NOW_MS, DELIVERY_SEND, "a", 1);
    done(delivery_index_claim(ix, &p, NOW, &e));
    done(delivery_index_park(ix, &p, NOW, "appears to be spam", "write to them", &e));
    over();
    done(delivery_index_restart(ix, NOW_MS + 5, &e));
    done(delivery_index_next(ix, NOW_MS + 5, &sends, &work, &e));
    assert_int_equal(work.task, DELIVERY_NOTHING);
    done(delivery_index_ask(ix, a.object_id, NOW_MS + 6, &found, &e));
    assert_true(found);
    given(&sends, NOW_MS + 6, DELIVERY_SEND, "a", 1);
    over();
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
    done(db_exec(db, "PRAGMA user_version=9", &e));
    sqlite3_close(db);
    done(os_stat(path, &before));
    assert_int_equal(delivery_index_open(dir, &ix, &rebuilt, &e), ERR_UNSUPPORTED);
    assert_null(ix);
    assert_non_null(strstr(e.text, "version 9"));
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
        T(test_under_way),
        T(test_small_builds),
        T(test_shares),
        T(test_verifications_do_not_wait),
        T(test_a_backlog_costs_nothing),
        T(test_a_project_is_held),
        T(test_scopes_of_holds),
        T(test_many_are_held),
        T(test_due_times),
        T(test_asked_for),
        T(test_late),
        T(test_steps_out_of_order),
        T(test_a_proof_of_another_plan),
        T(test_restart),
        T(test_what_may_be_there),
        T(test_refused_by_the_archive),
        T(test_long_texts),
        T(test_skipped_once),
        T(test_damaged_is_put_aside),
        T(test_not_ours_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
