/* test_delivery_pages: pages of delivery.sqlite: their order, their cursors, and that the feed of
 * what is verified misses nothing, with equal seconds, clocks that go back, old databases and new
 * ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/artifact/delivery_index_internal.h"

#define NOW 1000

static char dir[64];
static struct delivery_index *ix;
static struct err e;

static void open_index(void)
{
    bool rebuilt;
    int r = delivery_index_open(dir, &ix, &rebuilt, &e);

    if (r != 0) {
        fail_msg("%s", e.text);
    }
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/tallyman-pages-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    open_index();
    return 0;
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

static struct delivery_artifact artifact(unsigned n, const char *project)
{
    struct delivery_artifact a = {.size_bytes = n, .accepted_at = 5};

    snprintf(a.object_id, sizeof a.object_id, "%032x", n);
    snprintf(a.project, sizeof a.project, "%s", project);
    snprintf(a.filename, sizeof a.filename, "f%u", n);
    snprintf(a.checksum, sizeof a.checksum, "%064x", n);
    return a;
}

static void add(unsigned n, const char *project, int64_t now)
{
    struct delivery_artifact a = artifact(n, project);

    done(delivery_index_begin(ix, &e));
    done(delivery_index_add(ix, &a, now * 1000, &e));
    done(delivery_index_commit(ix, &e));
}

static const struct delivery_plan *plan_of(unsigned n, const char *project)
{
    static struct delivery_plan p;
    struct delivery_artifact a = artifact(n, project);
    const struct artifact_sink to = {
        .sink = "directory", .directory = "/somewhere", .retention_ms = -1};

    done(delivery_plan_begin(&p, &a, &to, &e));
    for (unsigned i = 0; i < DELIVERY_FILES_MAX; i++) {
        struct delivery_digests *d = &p.file[i].digests;
        memset(d->blake3, 'b', BLAKE3_HEX_LEN);
        memset(d->md5, 'c', MD5_HEX_LEN);
        memset(d->sha1, 'd', SHA1_HEX_LEN);
        p.file[i].size = a.size_bytes + i;
    }
    memcpy(p.file[0].digests.blake3, a.checksum, BLAKE3_HEX_LEN);
    return &p;
}

/* Up to this state, at that time. */
static void bring(unsigned n, const char *project, enum delivery_state state, int64_t now)
{
    const struct delivery_plan *p = plan_of(n, project);

    done(delivery_index_seal(ix, p, now, now * 1000, &e));
    if (state == DELIVERY_PENDING) {
        return;
    }
    done(delivery_index_claim(ix, p, now, &e));
    if (state == DELIVERY_VERIFIED) {
        done(delivery_index_verified(ix, p, now, &e));
    } else if (state == DELIVERY_PARKED) {
        done(delivery_index_park(ix, p, now, "no room", "make room", &e));
    }
}

/* ---- what a reader sees ---- */

struct seen {
    unsigned n[64];
    unsigned count, stop_at;
    struct delivery_view last;
};

static bool on_row(void *ctx, const struct delivery_view *v)
{
    struct seen *s = ctx;

    if (s->stop_at != 0 && s->count == s->stop_at) {
        return false;
    }
    assert_true(s->count < sizeof s->n / sizeof *s->n);
    s->n[s->count++] = (unsigned)strtoul(v->object_id, NULL, 16);
    s->last = *v;
    return true;
}

static struct seen seen;
static struct delivery_page page;

static void read_page(const char *project, int state, const char *after, unsigned limit)
{
    char own[DELIVERY_CURSOR_MAX];
    struct delivery_query q = {.project = project, .limit = limit};

    snprintf(own, sizeof own, "%s", after);
    q.after = slice_cstr(own);
    q.by_state = state >= 0;
    q.state = state >= 0 ? (enum delivery_state)state : DELIVERY_PENDING;
    seen.count = 0;
    done(delivery_page_read(dir, &q, on_row, &seen, &page, &e));
}

static void follow(void)
{
    read_page(NULL, DELIVERY_VERIFIED, page.next, 10);
}

static void saw(unsigned count, ...)
{
    va_list list;

    va_start(list, count);
    assert_int_equal(seen.count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(seen.n[i], va_arg(list, unsigned));
    }
    va_end(list);
}

static void test_order_and_filters(void **state)
{
    (void)state;
    read_page(NULL, -1, "", 10);
    saw(0u);
    assert_string_equal(page.next, "");
    assert_false(page.more);
    add(1, "b", NOW + 2);
    add(2, "a", NOW);
    add(3, "b", NOW + 1);
    add(4, "a", NOW + 3);
    bring(3, "b", DELIVERY_PARKED, NOW + 5);
    bring(4, "a", DELIVERY_PENDING, NOW + 5);
    done(delivery_index_build_park(ix, plan_of(1, "b")->package_id, NOW, "rotten", "look", &e));
    read_page(NULL, -1, "", 3);
    saw(3u, 2u, 3u, 1u);
    assert_true(page.more);
    read_page(NULL, -1, page.next, 3);
    saw(1u, 4u);
    assert_false(page.more);
    read_page(NULL, -1, page.next, 3);
    saw(0u);
    assert_true(page.next[0] != '\0'); /* it goes on there */
    add(5, "a", NOW + 4);
    read_page(NULL, -1, page.next, 3);
    saw(1u, 5u);
    read_page("a", -1, "", 10);
    saw(3u, 2u, 4u, 5u);
    read_page(NULL, DELIVERY_PARKED, "", 10);
    saw(2u, 3u, 1u);
    assert_string_equal(seen.last.error, "rotten");
    assert_string_equal(seen.last.package_state, "blocked");
    assert_false(seen.last.built);
    read_page("b", DELIVERY_PENDING, "", 10);
    saw(0u);
    read_page("none", -1, "", 10);
    saw(0u);
    /* A page that its reader ends goes on with the row that it did not take. */
    seen.stop_at = 2;
    read_page(NULL, -1, "", 10);
    saw(2u, 2u, 3u);
    assert_true(page.more);
    seen.stop_at = 0;
    read_page(NULL, -1, page.next, 10);
    saw(3u, 1u, 4u, 5u);
}

static void test_a_row(void **state)
{
    const struct delivery_view *v = &seen.last;

    (void)state;
    add(7, "a", NOW);
    bring(7, "a", DELIVERY_VERIFIED, NOW + 9);
    read_page(NULL, DELIVERY_VERIFIED, "", 10);
    saw(1u, 7u);
    assert_string_equal(v->package_id, plan_of(7, "a")->package_id);
    assert_string_equal(v->checksum, artifact(7, "a").checksum);
    assert_string_equal(v->filename, "f7");
    assert_int_equal(v->size_bytes, 7);
    assert_int_equal(v->accepted_at, 5);
    assert_int_equal(v->created_at, NOW);
    assert_int_equal(v->sealed_at, NOW + 9);
    assert_int_equal(v->verified_at, NOW + 9);
    assert_int_equal(v->attempts, 1);
    assert_int_equal(v->file_count, 2);
    assert_string_equal(v->file[0].name, "f7");
}

/* All in one second, in any order of ids; and then the clock goes back. */
static void test_feed_misses_nothing(void **state)
{
    static const unsigned order[] = {5, 2, 9, 1, 8, 3};
    unsigned first[3];

    (void)state;
    for (unsigned n = 1; n < 10; n++) {
        add(n, "a", NOW);
    }
    page.next[0] = '\0';
    for (unsigned i = 0; i < sizeof order / sizeof *order; i++) {
        bring(order[i], "a", DELIVERY_VERIFIED, NOW);
        follow();
        saw(1u, order[i]);
        follow();
        saw(0u);
    }
    bring(4, "a", DELIVERY_VERIFIED, NOW - 500);
    follow();
    saw(1u, 4u);
    /* From the beginning, in pages: the same. */
    read_page(NULL, DELIVERY_VERIFIED, "", 3);
    saw(3u, 5u, 2u, 9u);
    assert_true(page.more);
    memcpy(first, seen.n, sizeof first);
    read_page(NULL, DELIVERY_VERIFIED, page.next, 10);
    saw(4u, 1u, 8u, 3u, 4u);
    assert_false(page.restarted);
    read_page("b", DELIVERY_VERIFIED, "", 10);
    saw(0u);
    bring(6, "a", DELIVERY_VERIFIED, NOW);
    follow(); /* its cursor has gone on, too */
    saw(1u, 6u);
}

static void remove_file(const char *tail)
{
    char path[120];

    snprintf(path, sizeof path, "%s/" DELIVERY_FILE "%s", dir, tail);
    (void)unlink(path);
}

/* The new one counts anew: a cursor of the old one begins at the beginning, however far it was. */
static void test_a_new_database_is_told_anew(void **state)
{
    char old[DELIVERY_CURSOR_MAX];

    (void)state;
    add(1, "a", NOW);
    add(2, "a", NOW);
    bring(1, "a", DELIVERY_VERIFIED, NOW);
    bring(2, "a", DELIVERY_VERIFIED, NOW);
    page.next[0] = '\0';
    follow();
    saw(2u, 1u, 2u);
    memcpy(old, page.next, sizeof old);
    delivery_index_close(ix);
    remove_file("-wal");
    remove_file("-shm");
    remove_file("");
    read_page(NULL, DELIVERY_VERIFIED, old, 10); /* nothing there: the cursor stays */
    saw(0u);
    assert_string_equal(page.next, old);
    open_index();
    add(2, "a", NOW);
    bring(2, "a", DELIVERY_VERIFIED, NOW);
    read_page(NULL, DELIVERY_VERIFIED, old, 10);
    saw(1u, 2u);
    assert_true(page.restarted);
    assert_string_not_equal(page.next, old);
    follow();
    saw(0u);
    assert_false(page.restarted);
}

static void test_other_cursors(void **state)
{
    static const char *const feed[] = {"x",
                                       "v-",
                                       "v-0123456789abcdef",
                                       "v-0123456789abcdef-",
                                       "v-0123456789abcdef-1x",
                                       "v-0123456789abcdeF-1",
                                       "v-0123456789abcdef-9999999999999999999",
                                       "p-1-00"};
    static const char *const list[] = {"1", "p-", "p-1", "p-1-", "p-1-abc", "p--1", "v-1-1"};
    struct delivery_query q = {.by_state = true, .state = DELIVERY_VERIFIED, .limit = 1};

    (void)state;
    for (size_t i = 0; i < sizeof feed / sizeof *feed; i++) {
        q.after = slice_cstr(feed[i]);
        assert_int_equal(delivery_page_read(dir, &q, on_row, &seen, &page, &e),
                         ERR_INVALID_REQUEST);
    }
    q.by_state = false;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        q.after = slice_cstr(list[i]);
        assert_int_equal(delivery_page_read(dir, &q, on_row, &seen, &page, &e),
                         ERR_INVALID_REQUEST);
    }
}

/* What was verified before there were numbers gets them in the order of its time. */
static void test_an_older_database(void **state)
{
    static const char back[] =
        "DROP TRIGGER artifacts_wait_new; DROP TRIGGER artifacts_wait; DROP TRIGGER artifacts_go;"
        "DROP INDEX artifacts_waiting; ALTER TABLE artifacts DROP COLUMN waiting;"
        "DROP TABLE packaging; DROP TRIGGER deliveries_verify; DROP TRIGGER deliveries_prove;"
        "DROP INDEX deliveries_verified; ALTER TABLE deliveries DROP COLUMN verified_no;"
        "DROP TABLE feed; DROP INDEX packages_created; DROP INDEX packages_purge;"
        "DROP INDEX packages_due_small; DROP INDEX deliveries_sent; DROP TABLE running;"
        "DROP TABLE holds; ALTER TABLE packages DROP COLUMN purge_ms;"
        "ALTER TABLE packages DROP COLUMN purged_at; ALTER TABLE packages DROP COLUMN purge_error;"
        "ALTER TABLE deliveries DROP COLUMN identifier; ALTER TABLE deliveries DROP COLUMN keys;"
        "ALTER TABLE deliveries DROP COLUMN attempt_at; ALTER TABLE deliveries DROP COLUMN late;"
        "ALTER TABLE deliveries DROP COLUMN maybe_files;"
        "ALTER TABLE deliveries DROP COLUMN maybe_at;"
        "PRAGMA user_version=1;";

    (void)state;
    for (unsigned n = 1; n < 5; n++) {
        add(n, "a", NOW);
    }
    bring(3, "a", DELIVERY_VERIFIED, NOW + 1);
    bring(1, "a", DELIVERY_VERIFIED, NOW + 3);
    bring(2, "a", DELIVERY_VERIFIED, NOW + 2);
    done(db_exec(ix->db, back, &e));
    delivery_index_close(ix);
    read_page(NULL, -1, "", 10); /* not brought forward: nothing is told yet */
    saw(0u);
    open_index();
    read_page(NULL, DELIVERY_VERIFIED, "", 10);
    saw(3u, 3u, 2u, 1u);
    bring(4, "a", DELIVERY_VERIFIED, NOW);
    follow();
    saw(1u, 4u);
}

/* ---- sums, for status ---- */

static void totals_hold(const char *text)
{
    struct buf b = {0};

    done(delivery_totals_put(dir, &b, &e));
    buf_put_char(&b, '\0');
    assert_false(b.failed);
    if (strstr(b.ptr, text) == NULL) {
        fail_msg("%s is not in %s", text, b.ptr);
    }
    buf_free(&b);
}

static void test_totals(void **state)
{
    (void)state;
    totals_hold("\"packages\":{\"building\":0,\"waiting\":0,\"next_build_at\":null,\"blocked\":0},"
                "\"oldest_pending_at\":null,\"purge\":{\"awaited\":0,\"awaited_bytes\":0,\"due\":0,"
                "\"due_bytes\":0},\"projects\":[],\"projects_left_out\":0");
    for (unsigned n = 1; n < 8; n++) {
        add(n, n < 5 ? "a" : "b", NOW + n);
    }
    bring(1, "a", DELIVERY_VERIFIED, NOW);
    bring(2, "a", DELIVERY_VERIFIED, NOW);
    bring(3, "a", DELIVERY_PARKED, NOW);
    done(delivery_index_build_park(ix, plan_of(4, "a")->package_id, NOW, "rotten", "look", &e));
    done(delivery_index_build_retry(ix, plan_of(5, "b")->package_id, NOW, 9000, "no disk", &e));
    bring(6, "b", DELIVERY_PENDING, NOW);
    totals_hold("\"packages\":{\"building\":1,\"waiting\":1,\"next_build_at\":"
                "\"1970-01-01T00:00:09.000Z\",\"blocked\":1},\"oldest_pending_at\":"
                "\"1970-01-01T00:16:45.000Z\"");
    totals_hold(
        "\"projects\":[{\"project\":\"a\",\"parked\":{\"count\":2,\"bytes\":7},\"verified\":"
        "{\"count\":2,\"bytes\":3}},{\"project\":\"b\",\"pending\":{\"count\":3,"
        "\"bytes\":18}}],\"projects_left_out\":0");
    done(db_exec(ix->db,
                 "UPDATE packages SET purge_ms = 1 WHERE size_bytes = 1;"
                 "UPDATE packages SET purge_ms = 9000000000000000 WHERE size_bytes = 2",
                 &e));
    totals_hold("\"purge\":{\"awaited\":2,\"awaited_bytes\":3,\"due\":1,\"due_bytes\":1}");
    /* Of more projects than are told the rest is counted. */
    done(delivery_index_begin(ix, &e));
    for (unsigned n = 100; n < 320; n++) {
        char project[16];
        struct delivery_artifact a;

        snprintf(project, sizeof project, "p%u", n);
        a = artifact(n, project);
        done(delivery_index_add(ix, &a, NOW * 1000, &e));
    }
    done(delivery_index_commit(ix, &e));
    totals_hold("{\"project\":\"p297\",\"pending\":{\"count\":1,\"bytes\":297}}],"
                "\"projects_left_out\":22");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_order_and_filters),
                                       T(test_a_row),
                                       T(test_feed_misses_nothing),
                                       T(test_a_new_database_is_told_anew),
                                       T(test_other_cursors),
                                       T(test_an_older_database),
                                       T(test_totals)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
