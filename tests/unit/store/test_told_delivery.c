/* test_told_delivery: while the deliverer's index is changed or asked, every file call, every call
 * of SQLite and every allocation fails once (tests/lib/told.h). Whoever asked is told; the rows are
 * those of before, or all of those of after; and the same call goes through afterwards. */
#include <fcntl.h>
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

#include "base/log.h"
#include "store/artifact/delivery_index_internal.h"
#include "store/artifact/proof.h"
#include "store/store.h"
#include "tests/lib/told.h"

#define NOW   1000
#define MS    INT64_C(1000)
#define PLANS 200
#define FIRST 180 /* of four that wait to be merged; and two more that have been, from LATER on */
#define LATER 190
#define ALONE 195 /* waits, of another project */
#define MANY  100 /* from here on; more than what is looked at before all of them are moved */

/* The artifacts of the file that every operation begins with; each stands somewhere else. */
enum { BUILDING = 1, PENDING, SENDING, SENT, VERIFIED, PARKED, WAITING, OTHER, LATE, COUNT = LATE };

struct copy {
    unsigned char *bytes;
    size_t size;
};

struct world {
    char dir[80];
    struct copy few, many, merging; /* of the database, closed */
    struct delivery_index *ix;
    int (*again)(void *world, struct err *e); /* the operation */
    uint64_t before, after;                   /* what the rows are then */
};

static struct world world;

/* ---- artifacts and their packages ---- */

static const char *project_of(unsigned n)
{
    return n == ALONE   ? "gamma"
           : n >= MANY  ? "alpha"
           : n % 3 == 0 ? "beta"
           : n == OTHER ? "gamma"
                        : "alpha";
}

static struct delivery_artifact artifact(unsigned n)
{
    struct delivery_artifact a = {.size_bytes = n, .accepted_at = 5};
    (void)snprintf(a.object_id, sizeof a.object_id, "%032x", n);
    (void)snprintf(a.project, sizeof a.project, "%s", project_of(n));
    (void)snprintf(a.filename, sizeof a.filename, "f%u", n);
    (void)snprintf(a.checksum, sizeof a.checksum, "%064x", n);
    return a;
}

static const struct delivery_plan *plan_of(unsigned n)
{
    static struct delivery_plan p[PLANS];
    static bool made[PLANS];
    struct delivery_artifact a = artifact(n);
    const struct artifact_sink to = {.sink = "directory",
                                     .directory = "/somewhere",
                                     .retention_ms = n == VERIFIED || n == LATE ? 1 : -1};
    struct err e = {0};
    assert_true(n < PLANS);
    if (!made[n]) {
        assert_int_equal(delivery_plan_begin(&p[n], &a, &to, &e), 0);
        for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
            struct delivery_digests *d = &p[n].file[i].digests;
            memset(d->blake3, 'b', BLAKE3_HEX_LEN);
            memset(d->md5, 'c', MD5_HEX_LEN);
            memset(d->sha1, 'd', SHA1_HEX_LEN);
            p[n].file[i].size = a.size_bytes + i;
        }
        memcpy(p[n].file[0].digests.blake3, a.checksum, BLAKE3_HEX_LEN);
        made[n] = true;
    }
    return &p[n];
}

static int add(struct world *w, unsigned n, struct err *e)
{
    struct delivery_artifact a = artifact(n);
    int r = delivery_index_begin(w->ix, e);
    if (r == 0) {
        r = delivery_index_add(w->ix, &a, NOW * MS, e);
    }
    if (r == 0) {
        r = delivery_index_commit(w->ix, e);
    }
    if (r != 0) {
        delivery_index_undo(w->ix);
    }
    return r;
}

/* ---- the database ---- */

static void path_of(const struct world *w, const char *tail, char path[120])
{
    (void)snprintf(path, 120, "%s/" DELIVERY_FILE "%s", w->dir, tail);
}

static void remove_files(const struct world *w)
{
    static const char *const tails[] = {"", "-wal", "-shm", ".damaged"};
    char path[120];
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        path_of(w, tails[i], path);
        (void)unlink(path);
    }
}

static void open_index(struct world *w)
{
    struct err e = {0};
    bool rebuilt;
    if (delivery_index_open(w->dir, &w->ix, &rebuilt, &e) != 0) {
        fail_msg("%s", e.text);
    }
}

static uint64_t add_rows(struct sqlite3 *db, const char *sql, uint64_t h)
{
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        for (int i = 0; i < sqlite3_column_count(st); i++) {
            const unsigned char *text = sqlite3_column_text(st, i);
            for (; text != NULL && *text != '\0'; text++) {
                h = (h ^ *text) * UINT64_C(0x100000001b3);
            }
            h = (h ^ 0x1ff) * UINT64_C(0x100000001b3);
        }
    }
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    return h;
}

/* A hash of every row of every table, as another connection sees them. */
static uint64_t rows(const struct world *w)
{
    struct sqlite3 *db;
    sqlite3_stmt *st = NULL;
    char path[120], sql[200];
    uint64_t h = 1;
    path_of(w, "", path);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT name FROM sqlite_master WHERE type = 'table'"
                                        " AND name NOT LIKE 'sqlite_%' ORDER BY name",
                                        -1, &st, NULL),
                     SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        (void)snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY 1, 2",
                       (const char *)sqlite3_column_text(st, 0));
        h = add_rows(db, sql, h);
    }
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return h;
}

/* ---- before and after ---- */

static void must(int r, const struct err *e)
{
    if (r != 0) {
        fail_msg("%s", e->text);
    }
}

/* Closes it. */
static void save(struct world *w, struct copy *to)
{
    struct stat st;
    char path[120];
    delivery_index_close(w->ix);
    w->ix = NULL;
    (void)rows(w); /* the last to close it brings its log into it */
    path_of(w, "", path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    to->size = (size_t)st.st_size;
    to->bytes = malloc(to->size);
    assert_non_null(to->bytes);
    assert_int_equal(read(fd, to->bytes, to->size), to->size);
    assert_int_equal(close(fd), 0);
}

static void put_file(const struct world *w, const struct copy *from)
{
    char path[120];
    remove_files(w);
    path_of(w, "", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, from->bytes, from->size), from->size);
    assert_int_equal(close(fd), 0);
}

static void begin_file(void *ctx)
{
    const struct world *w = ctx;
    put_file(w, &w->few);
}

static void begin_many(void *ctx)
{
    const struct world *w = ctx;
    put_file(w, &w->many);
    open_index(ctx);
}

static void begin_open(void *ctx)
{
    begin_file(ctx);
    open_index(ctx);
}

static void begin_merging(void *ctx)
{
    const struct world *w = ctx;
    put_file(w, &w->merging);
    open_index(ctx);
}

static int add_waiting(struct world *w, unsigned n, struct err *e)
{
    struct delivery_artifact a = artifact(n);
    int r = delivery_index_begin(w->ix, e);
    if (r == 0) {
        r = delivery_index_add_waiting(w->ix, &a, e);
    }
    if (r == 0) {
        r = delivery_index_commit(w->ix, e);
    }
    if (r != 0) {
        delivery_index_undo(w->ix);
    }
    return r;
}

/* target 0: the project merges no more. */
static int choose(struct world *w, uint64_t target, struct err *e)
{
    const struct delivery_merge_rule rule = {target, 2 * target, target > 0 ? 1000 : 0};
    unsigned made = 0;
    int64_t due_ms;
    int r = delivery_index_choose(w->ix, "alpha", &rule, (NOW + 100) * MS, &made, &due_ms, e);
    assert_true(r != 0 || made > 0);
    return r;
}

static int setup(void **state)
{
    struct world *w = &world;
    struct err e = {0};
    (void)state;
    log_set_level(LOG_ERROR + 1);
    (void)snprintf(w->dir, sizeof w->dir, "%s/tallyman-told-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    open_index(w);
    for (unsigned n = 1; n <= COUNT; n++) {
        const struct delivery_plan *p = plan_of(n);
        must(add(w, n, &e), &e);
        if (n == BUILDING || n == OTHER) {
            continue;
        }
        must(delivery_index_seal(w->ix, p, NOW, NOW * MS, &e), &e);
        if (n != PENDING) {
            must(delivery_index_claim(w->ix, p, NOW, &e), &e);
        }
        if (n == SENT || n == VERIFIED || n == LATE) {
            must(delivery_index_sent(w->ix, p, NOW, &e), &e);
        }
        if (n == VERIFIED) {
            must(delivery_index_verified(w->ix, p, NOW, &e), &e);
        } else if (n == PARKED) {
            must(delivery_index_park(w->ix, p, NOW, "no room", "make room", &e), &e);
        } else if (n == WAITING) {
            must(delivery_index_retry(w->ix, p, NOW, (NOW + 9) * MS, "not now", &e), &e);
        } else if (n == LATE) {
            must(delivery_index_unseen(w->ix, p, NOW, (NOW + 9) * MS, true, "where?", &e), &e);
        }
    }
    save(w, &w->few);
    open_index(w);
    for (unsigned n = MANY; n < MANY + 66; n++) {
        must(add(w, n, &e), &e);
        must(delivery_index_seal(w->ix, plan_of(n), NOW, NOW * MS, &e), &e);
    }
    save(w, &w->many);
    begin_file(w);
    open_index(w);
    for (unsigned n = FIRST; n < FIRST + 4; n++) {
        must(add_waiting(w, n, &e), &e);
        if (n == FIRST + 1) { /* a package of these two is being built */
            must(choose(w, 10000, &e), &e);
        }
    }
    must(add_waiting(w, ALONE, &e), &e);
    save(w, &w->merging);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_files(&world);
    free(world.few.bytes);
    free(world.many.bytes);
    free(world.merging.bytes);
    assert_int_equal(rmdir(world.dir), 0);
    return 0;
}

static void begin_none(void *ctx)
{
    remove_files(ctx);
}

static void close_index(struct world *w)
{
    delivery_index_close(w->ix);
    w->ix = NULL;
}

static void end(void *ctx, int r)
{
    struct world *w = ctx;
    struct err e = {0};
    if (w->after != 0) { /* else sweep() learns what it is */
        uint64_t now = rows(w);
        if (r == 0 ? now != w->after : now != w->before && now != w->after) {
            fail_msg("half of it is done, or nothing: %d", r);
        }
        if (r != 0 && now == w->before) {
            must(w->again(w, &e), &e);
            assert_true(rows(w) == w->after);
        }
    }
    close_index(w);
}

/* Opened anew after a failure, it is whole; and it was not made anew. */
static void end_opening(void *ctx, int r)
{
    struct world *w = ctx;
    (void)r;
    close_index(w);
    open_index(w);
    assert_true(w->after == 0 || rows(w) == w->after);
    close_index(w);
}

/* ---- the operations ---- */

#define RUN(name, call)                             \
    static int run_##name(void *ctx, struct err *e) \
    {                                               \
        struct world *w = ctx;                      \
        return call;                                \
    }

RUN(add, add(w, 40, e))
RUN(seal, delivery_index_seal(w->ix, plan_of(BUILDING), NOW, NOW *MS, e))
RUN(build_retry, delivery_index_build_retry(w->ix, plan_of(OTHER)->package_id, NOW, (NOW + 5) * MS,
                                            "it did not fit", e))
RUN(build_park,
    delivery_index_build_park(w->ix, plan_of(OTHER)->package_id, NOW, "broken", "mend it", e))
RUN(claim, delivery_index_claim(w->ix, plan_of(PENDING), NOW, e))
RUN(sent, delivery_index_sent(w->ix, plan_of(SENDING), NOW, e))
RUN(unseen, delivery_index_unseen(w->ix, plan_of(SENT), NOW, (NOW + 7) * MS, false, "later", e))
RUN(verified, delivery_index_verified(w->ix, plan_of(SENT), NOW, e))
RUN(verified_late, delivery_index_verified(w->ix, plan_of(LATE), NOW, e))
RUN(retry, delivery_index_retry(w->ix, plan_of(SENDING), NOW, (NOW + 8) * MS, "not now", e))
RUN(park, delivery_index_park(w->ix, plan_of(SENDING), NOW, "no room", "make room", e))
RUN(purged, delivery_index_purged(w->ix, plan_of(VERIFIED)->package_id, NOW, e))
RUN(purge_retry, delivery_index_purge_retry(w->ix, plan_of(VERIFIED)->package_id, NOW,
                                            (NOW + 8) * MS, "busy", e))
RUN(restart, delivery_index_restart(w->ix, NOW *MS, e))

static int run_skip(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool first = false;
    int r = delivery_index_skip(w->ix, "odd.json", "it is none", NOW, &first, e);
    assert_true(r != 0 || first);
    return r;
}

static int run_has(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool has = false;
    int r = delivery_index_has(w->ix, artifact(SENT).object_id, &has, e);
    assert_true(r != 0 || has);
    return r;
}

static int run_late(void *ctx, struct err *e)
{
    struct world *w = ctx;
    uint64_t count = 0;
    int r = delivery_index_late(w->ix, &count, e);
    assert_true(r != 0 || count == 1);
    return r;
}

static int run_proven(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool proven = false;
    int r = delivery_index_proven(w->ix, plan_of(VERIFIED)->package_id, &proven, e);
    assert_true(r != 0 || proven);
    return r;
}

/* What is proven: of nothing the index knows, or of one that it believes to be sent. */
static int prove(struct world *w, unsigned n, struct err *e)
{
    static struct proof proof;
    memset(&proof, 0, sizeof proof);
    proof.artifact = artifact(n);
    proof.plan = *plan_of(n);
    proof.sent_at = NOW;
    proof.verified_at = NOW + 1;
    int r = delivery_index_begin(w->ix, e);
    if (r == 0) {
        r = delivery_index_prove(w->ix, &proof, NOW * MS, e);
    }
    if (r == 0) {
        r = delivery_index_commit(w->ix, e);
    }
    if (r != 0) {
        delivery_index_undo(w->ix);
    }
    return r;
}
RUN(prove, prove(w, 41, e))
RUN(prove_sent, prove(w, SENT, e))

static int ask(struct world *w, unsigned n, struct err *e)
{
    bool found = false;
    int r = delivery_index_ask(w->ix, artifact(n).object_id, NOW * MS, &found, e);
    assert_true(r != 0 || found);
    return r;
}
RUN(ask_parked, ask(w, PARKED, e))
RUN(ask_building, ask(w, OTHER, e))

static int run_show(void *ctx, struct err *e)
{
    struct world *w = ctx;
    struct delivery_running running = {.task = DELIVERY_SEND, .begun_at = NOW, .bytes = 3};
    bool usable = true;
    memcpy(running.package_id, plan_of(SENDING)->package_id, sizeof running.package_id);
    (void)snprintf(running.project, sizeof running.project, "beta");
    (void)snprintf(running.file, sizeof running.file, "f3");
    delivery_index_hold(w->ix, DELIVERY_SCOPE_PROJECT, plan_of(WAITING), (NOW + 50) * MS, "wait");
    return delivery_index_show(w->ix, &running, 1, NOW, &usable, e);
}

/* Everything that is due in the lane, one after the other. */
static int take_all(struct world *w, enum delivery_lane lane, struct err *e)
{
    const struct delivery_ask what = {.lane = lane, .workers = 2};
    static struct delivery_work work;
    char taken[COUNT + 4][DELIVERY_PACKAGE_LEN + 1];
    unsigned count = 0;
    int r;
    do {
        r = delivery_index_next(w->ix, (NOW + 100) * MS, &what, &work, e);
        if (r == 0 && work.task != DELIVERY_NOTHING) {
            memcpy(taken[count++], work.package_id, sizeof taken[0]);
            delivery_members_free(&work.members);
        }
    } while (r == 0 && work.task != DELIVERY_NOTHING && count < COUNT + 4);
    for (unsigned i = 0; i < count; i++) {
        delivery_index_over(w->ix, taken[i]);
    }
    if (r == 0 && count == 0) {
        fail_msg("nothing is due in lane %d", (int)lane);
    }
    return r;
}
RUN(take_builds, take_all(w, DELIVERY_LANE_BUILD, e))
RUN(take_sends, take_all(w, DELIVERY_LANE_SEND, e))
RUN(take_purges, take_all(w, DELIVERY_LANE_PURGE, e))

/* One that is held is moved behind those that are not. */
static int run_take_held(void *ctx, struct err *e)
{
    struct world *w = ctx;
    delivery_index_hold(w->ix, DELIVERY_SCOPE_ITEM, plan_of(PENDING), (NOW + 1000) * MS, "wait");
    return take_all(w, DELIVERY_LANE_SEND, e);
}

/* So many that all of them are made due behind the hold, so that they are not looked at again. */
static int run_move(void *ctx, struct err *e)
{
    struct world *w = ctx;
    const struct delivery_ask what = {.lane = DELIVERY_LANE_SEND, .workers = 2};
    static struct delivery_work work;
    delivery_index_hold(w->ix, DELIVERY_SCOPE_FAR_END, plan_of(PENDING), (NOW + 1000) * MS, "503");
    int r = delivery_index_next(w->ix, (NOW + 100) * MS, &what, &work, e);
    assert_true(r != 0 || work.task == DELIVERY_NOTHING);
    return r;
}

/* ---- packages of many ---- */

RUN(add_waiting, add_waiting(w, FIRST + 4, e))
RUN(choose, choose(w, 10000, e))
RUN(choose_identity, choose(w, 0, e))

static int run_waiting(void *ctx, struct err *e)
{
    struct world *w = ctx;
    char project[UPLOAD_PROJECT_MAX + 1] = "";
    int r = delivery_index_waiting(w->ix, "", project, e);
    assert_true(r != 0 || strcmp(project, "alpha") == 0);
    return r;
}

static int run_identity(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool done = false;
    int r =
        delivery_index_identity(w->ix, w->dir, artifact(FIRST + 2).object_id, NOW * MS, &done, e);
    assert_true(r != 0 || done);
    return r;
}

static int run_isolate(void *ctx, struct err *e)
{
    struct world *w = ctx;
    const struct delivery_bad bad = {0, "no WARC", "identity"};
    struct delivery_artifact a[2] = {artifact(FIRST), artifact(FIRST + 1)};
    const struct delivery_members m = {.count = 2, .item = a};
    char id[DELIVERY_PACKAGE_LEN + 1];
    delivery_merged_id(a, 2, id);
    return delivery_index_isolate(w->ix, id, &m, &bad, 1, NOW * MS, e);
}

static int run_has_package(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool has = false;
    int r = delivery_index_has_package(w->ix, plan_of(SENT)->package_id, &has, e);
    assert_true(r != 0 || has);
    return r;
}

/* Of so many artifacts, of which the index knows some, or none. */
static int restore(struct world *w, unsigned first, unsigned count, struct err *e)
{
    static struct delivery_plan p;
    static unsigned made;
    struct delivery_artifact a[3] = {artifact(first), artifact(first + 1), artifact(first + 2)};
    const struct delivery_members m = {.count = count, .item = a};
    const struct artifact_sink to = {
        .sink = "directory", .directory = "/somewhere", .retention_ms = -1};
    int r = made == first ? 0 : delivery_plan_begin_merged(&p, &m, &to, e);
    made = r == 0 ? first : 0;
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        memcpy(p.file[i].digests.blake3, plan_of(SENT)->file[i].digests.blake3, BLAKE3_HEX_LEN);
        memcpy(p.file[i].digests.md5, plan_of(SENT)->file[i].digests.md5, MD5_HEX_LEN);
        memcpy(p.file[i].digests.sha1, plan_of(SENT)->file[i].digests.sha1, SHA1_HEX_LEN);
        p.file[i].size = 2 * LATER + 1;
    }
    if (r == 0) {
        r = delivery_index_begin(w->ix, e);
    }
    if (r == 0) {
        r = delivery_index_restore(w->ix, &p, &m, NOW * MS, e);
    }
    if (r == 0) {
        r = delivery_index_commit(w->ix, e);
    }
    if (r != 0) {
        delivery_index_undo(w->ix);
    }
    return r;
}
RUN(restore, restore(w, LATER, 2, e))
RUN(restore_known, restore(w, FIRST, 3, e)) /* two are being built, and one waits */
RUN(prove_known, prove(w, FIRST, e))

/* Its package cannot be built, and has no plan: the others wait again. */
static void begin_blocked(void *ctx)
{
    struct world *w = ctx;
    struct err e = {0};
    struct delivery_artifact a[2] = {artifact(FIRST), artifact(FIRST + 1)};
    char id[DELIVERY_PACKAGE_LEN + 1];
    begin_merging(w);
    delivery_merged_id(a, 2, id);
    must(delivery_index_build_park(w->ix, id, NOW, "broken", "mend it", &e), &e);
}

static int run_part(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool done = false;
    int r = delivery_index_identity(w->ix, w->dir, artifact(FIRST).object_id, NOW * MS, &done, e);
    /* A plan that cannot be looked for may be there: the answer is no. */
    return r == 0 && !done ? err_set(e, ERR_IO, "it may have a plan") : r;
}

static int run_open(void *ctx, struct err *e)
{
    struct world *w = ctx;
    bool rebuilt = false;
    int r = delivery_index_open(w->dir, &w->ix, &rebuilt, e);
    assert_true(r != 0 || !rebuilt || w->before == 0);
    return r;
}

/* Garbage is put aside, and a new file made. */
static void begin_damaged(void *ctx)
{
    struct world *w = ctx;
    char path[120];
    remove_files(w);
    path_of(w, "", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    memset(path, 'x', sizeof path);
    assert_int_equal(write(fd, path, sizeof path), sizeof path);
    assert_int_equal(close(fd), 0);
}

/* ---- plans ---- */

static int plan_with(const char *identifier, const char *remote_name, const char *filename,
                     struct err *e)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact(42);
    struct artifact_sink to = {.sink = "internet_archive", .retention_ms = -1};
    (void)snprintf(a.filename, sizeof a.filename, "%s", filename);
    (void)snprintf(to.identifier, sizeof to.identifier, "%s", identifier);
    (void)snprintf(to.remote_name, sizeof to.remote_name, "%s", remote_name);
    (void)snprintf(to.metadata, sizeof to.metadata, "{\"title\":[\"of {{FILENAME}}\"]}");
    int r = delivery_plan_begin(&p, &a, &to, e);
    assert_true(r != 0 || strstr(p.metadata, "of ") != NULL);
    return r;
}

static int run_plan(void *ctx, struct err *e)
{
    (void)ctx;
    return plan_with("item-{{OBJECT_ID}}", "{{FILENAME}}", "a_meta.xml", e); /* a reserved name */
}

/* ---- where a project's artifacts go ---- */

static int run_sink(void *ctx, struct err *e)
{
    struct world *w = ctx;
    static struct artifact_sink to;
    int r = artifact_sink_read(w->dir, SLICE("demo"), &to, e);
    assert_int_not_equal(r, ERR_NOT_FOUND);
    assert_true(r != 0 || strcmp(to.directory, "/a place") == 0);
    return r;
}

static void make_project(const struct world *w, bool remove)
{
    struct sqlite3 *db;
    char path[120];
    (void)snprintf(path, sizeof path, "%s/" STORE_FILE, w->dir);
    if (remove) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db,
                     "CREATE TABLE projects(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);"
                     "CREATE TABLE artifact_projects(project INTEGER PRIMARY KEY, sink TEXT NOT"
                     " NULL, directory TEXT NOT NULL, settings TEXT NOT NULL) STRICT;"
                     "INSERT INTO projects VALUES(1, 'demo');"
                     "INSERT INTO artifact_projects VALUES(1, 'directory', '/a place', '{}')",
                     NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What a rule forbids is told with that rule, and not what came of going on. */
static void test_plans_are_refused(void **state)
{
    static const struct {
        const char *identifier, *remote_name, *told;
    } cases[] = {
        {"a", "no such name/", "the project's identifier gives"},
        {"item-{{OBJECT_ID}}", "a//b", "the project's remote_name gives \"a//b\""},
        {"one-for-all", "name", "name neither object nor package"},
        {"one-for-all", "a//b", "the project's remote_name gives"},
    };
    struct err e = {0};
    (void)state;
    assert_int_equal(run_plan(NULL, &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(plan_with(cases[i].identifier, cases[i].remote_name, "f", &e),
                         ERR_INVALID_PROJECT);
        if (strstr(e.text, cases[i].told) == NULL) {
            fail_msg("%zu: %s", i, e.text);
        }
    }
}

/* ---- who looks from outside ---- */

static int run_view(void *ctx, struct err *e)
{
    struct world *w = ctx;
    static struct delivery_view v;
    char id[UPLOAD_ID_LEN + 1];
    memcpy(id, artifact(SENT).object_id, sizeof id);
    int r = delivery_view_read(w->dir, slice_cstr(id), &v, e);
    assert_true(r != 0 || (v.known && v.state == DELIVERY_SENT));
    return r;
}

static int run_view_waiting(void *ctx, struct err *e)
{
    struct world *w = ctx;
    static struct delivery_view v;
    struct delivery_artifact a = artifact(ALONE);
    int r = delivery_view_read(w->dir, slice_cstr(a.object_id), &v, e);
    assert_true(r != 0 || (v.known && strcmp(v.package_state, "waiting") == 0));
    return r;
}

static bool count_row(void *ctx, const struct delivery_view *v)
{
    assert_true(v->known);
    ++*(unsigned *)ctx;
    return true;
}

static int page(struct world *w, const char *project, int state, unsigned want, struct err *e)
{
    struct delivery_query q = {.project = project, .by_state = state >= 0, .limit = 50};
    struct delivery_page out;
    unsigned count = 0;
    q.state = state >= 0 ? (enum delivery_state)state : DELIVERY_PENDING;
    int r = delivery_page_read(w->dir, &q, count_row, &count, &out, e);
    assert_true(r != 0 || count == want);
    return r;
}
RUN(page, page(w, NULL, -1, COUNT, e))
RUN(page_of_one, page(w, "gamma", -1, 1, e))
RUN(page_verified, page(w, NULL, DELIVERY_VERIFIED, 1, e))
RUN(page_merged, page(w, "alpha", -1, 6, e))
RUN(page_parked, page(w, "beta", DELIVERY_PARKED, 1, e))

static int run_counts(void *ctx, struct err *e)
{
    struct world *w = ctx;
    static struct delivery_counts c;
    int r = delivery_counts_read(w->dir, &c, e);
    assert_true(r != 0 || (c.known && c.artifacts == COUNT && c.late == 1 && c.error[0] != '\0'));
    return r;
}

/* Both end with an error, or have put all of it. */
static int put(struct world *w, int (*fn)(const char *data, struct buf *b, struct err *e),
               const char *part, struct err *e)
{
    struct buf b = {0};
    int r = fn(w->dir, &b, e);
    if (r == 0 && b.failed) {
        r = err_set(e, ERR_NO_MEMORY, "no memory");
    }
    if (r == 0) {
        buf_put_char(&b, '\0');
        r = b.failed ? err_set(e, ERR_NO_MEMORY, "no memory") : 0;
    }
    assert_true(r != 0 || strstr(b.ptr, part) != NULL);
    buf_free(&b);
    return r;
}
RUN(activity, put(w, delivery_activity_put, "\"holds\":", e))
RUN(totals, put(w, delivery_totals_put, "\"gamma\"", e))
RUN(packaging, put(w, delivery_totals_put, "},{\"project\":\"gamma\",\"artifacts\":1,", e))

/* ---- */

/* A transaction that failed is over either way. */
#define QUIET "close ", "ROLLBACK"
#define OP(run)                                                 \
    {                                                           \
#run, begin_open, run_##run, end, {QUIET }, false, 0, 0 \
    }
#define OPENING(name, begin)                                    \
    {                                                           \
        name, begin, run_open, end_opening, {QUIET}, true, 0, 0 \
    }

static const struct told_op changes[] = {
    OP(add),           OP(skip),    OP(seal),       OP(build_retry),  OP(build_park),
    OP(claim),         OP(sent),    OP(unseen),     OP(retry),        OP(verified),
    OP(verified_late), OP(park),    OP(purged),     OP(purge_retry),  OP(prove),
    OP(prove_sent),    OP(restart), OP(ask_parked), OP(ask_building), OP(show),
};
static const struct told_op questions[] = {
    OP(has),           OP(late),        OP(proven), OP(take_held), OP(take_builds),
    OP(take_sends),    OP(take_purges), OP(view),   OP(page),      OP(page_of_one),
    OP(page_verified), OP(page_parked), OP(counts), OP(activity),  OP(totals),
};
static void nothing(void *ctx)
{
    (void)ctx;
}

static void ended(void *ctx, int r)
{
    (void)ctx;
    (void)r;
}

#define MERGE(run)                                                            \
    {                                                                         \
        "merging: " #run, begin_merging, run_##run, end, {QUIET}, false, 0, 0 \
    }
static const struct told_op merges[] = {
    MERGE(add_waiting),
    MERGE(waiting),
    MERGE(choose),
    MERGE(choose_identity),
    MERGE(identity),
    MERGE(isolate),
    MERGE(has_package),
    MERGE(restore),
    MERGE(take_builds),
    MERGE(page_merged),
    MERGE(packaging),
    MERGE(view_waiting),
    MERGE(prove_known),
    MERGE(restore_known),
    {"parting a blocked package", begin_blocked, run_part, end, {QUIET}, false, 0, 0},
};

static const struct told_op moves[] = {
    {"move", begin_many, run_move, end, {QUIET}, false, 0, 0},
};

static const struct told_op openings[] = {
    OPENING("open", begin_file),
    OPENING("make", begin_none),
    OPENING("make anew", begin_damaged),
};

static void sweep(const struct told_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct err e = {0};
        world.again = ops[i].run;
        world.before = world.after = 0;
        ops[i].begin(&world);
        world.before = ops[i].run == run_open && ops[i].begin != begin_file ? 0 : rows(&world);
        must(ops[i].run(&world, &e), &e);
        world.after = ops[i].run == run_open && ops[i].begin != begin_file ? 0 : rows(&world);
        close_index(&world);
        told_sweep(&ops[i], &world);
    }
}

#define TEST(name)                                  \
    static void test_##name(void **state)           \
    {                                               \
        (void)state;                                \
        sweep(name, sizeof(name) / sizeof *(name)); \
    }
TEST(changes)
TEST(questions)
TEST(openings)
TEST(moves)
TEST(merges)

static void sql_on_file(const char *text)
{
    struct sqlite3 *db;
    char path[120], *why = NULL;
    path_of(&world, "", path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s", why);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What may have been sent with others is not proven alone. */
static void test_a_proof_of_a_sealed_member(void **state)
{
    struct err e = {0};
    (void)state;
    begin_merging(&world);
    must(prove(&world, FIRST, &e), &e);
    assert_int_equal(restore(&world, FIRST, 3, &e), ERR_REFUSED);
    close_index(&world);
    put_file(&world, &world.merging);
    sql_on_file("UPDATE packages SET state = 'sealed', plan = '{}', sealed_at = 1 WHERE packager = "
                "'mergewarc'");
    open_index(&world);
    assert_int_equal(prove(&world, FIRST, &e), ERR_REFUSED);
    close_index(&world);
}

static void test_plans(void **state)
{
    const struct told_op op = {"plan", nothing, run_plan, ended, {NULL}, false, 0, 0};
    (void)state;
    told_sweep(&op, &world);
}

/* A state that is none ends what meets it. */
static void test_an_odd_state(void **state)
{
    static struct delivery_counts counts;
    static struct delivery_view view;
    struct err e = {0};
    struct delivery_artifact a = artifact(SENT);
    (void)state;
    begin_file(&world);
    sql_on_file("PRAGMA ignore_check_constraints=ON;"
                "UPDATE deliveries SET state = 'odd' WHERE state = 'sent'");
    assert_int_equal(delivery_counts_read(world.dir, &counts, &e), ERR_CORRUPT);
    assert_int_equal(delivery_view_read(world.dir, slice_cstr(a.object_id), &view, &e),
                     ERR_CORRUPT);
}

/* A path that does not fit is refused, and nothing is done with what of it fits. */
static void test_a_path_that_is_too_long(void **state)
{
    static char data[5000];
    struct delivery_index *ix;
    struct err e = {0};
    bool rebuilt;
    (void)state;
    memset(data, '/', sizeof data - 1);
    assert_int_equal(delivery_index_open(data, &ix, &rebuilt, &e), ERR_USAGE);
    assert_int_equal(delivery_index_put_aside(data, &e), ERR_USAGE);
}

/* Metadata that settings refuse is none of a plan's either, however it is spelt. */
static void test_a_plan_with_other_metadata(void **state)
{
    static struct delivery_plan p;
    struct buf text = {0}, other = {0};
    struct err e = {0};
    (void)state;
    delivery_plan_put(&text, plan_of(PENDING));
    buf_put_char(&text, '\0');
    char *at = strstr(text.ptr, "\"metadata\":{}");
    assert_non_null(at);
    buf_put(&other, text.ptr, (size_t)(at - text.ptr));
    buf_put_cstr(&other, "\"metadata\":{\"title\":[]}");
    buf_put_cstr(&other, at + strlen("\"metadata\":{}"));
    assert_int_equal(delivery_plan_parse(slice_of(text.ptr, text.len - 1), &p, &e), 0);
    assert_int_equal(delivery_plan_parse(buf_slice(&other), &p, &e), ERR_CORRUPT);
    buf_free(&text);
    buf_free(&other);
}

static void test_sinks(void **state)
{
    const struct told_op op = {"sink", nothing, run_sink, ended, {QUIET}, false, 0, 0};
    (void)state;
    make_project(&world, false);
    told_sweep(&op, &world);
    make_project(&world, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_openings),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_merges),
        cmocka_unit_test(test_a_proof_of_a_sealed_member),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_plans_are_refused),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_an_odd_state),
        cmocka_unit_test(test_a_path_that_is_too_long),
        cmocka_unit_test(test_a_plan_with_other_metadata),
    };
    return cmocka_run_group_tests_name("told_delivery", tests, setup, teardown);
}
