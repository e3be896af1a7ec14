/* Choosing batches: the ring of projects, shares, months, limits, the cursor; nothing is missed. */
#include "tests/unit/store/store_kit.h"

#define DAY_MS INT64_C(86400000)

static int one_more_project(struct kit_job *j, struct store *s, struct err *e)
{
    return control_create_project(s, slice_cstr(j->arg), SLICE(""), NULL, KIT_NOW, e);
}

/* So many events of a project, received at a time. */
static void fill(struct kit *k, int64_t project, uint64_t from, uint64_t count, int64_t received_ms)
{
    while (count > 0) {
        struct kit_job j;
        kit_job_init(&j, STORE_SMALL);
        while (j.count < KIT_EVENTS_MAX && count > 0) {
            j.ev[j.count] = kit_event(project, from++, "0123456789");
            j.ev[j.count++].received_ms = received_ms;
            count--;
        }
        store_submit(k->s, &j.job);
        kit_turns(k);
        assert_int_equal(j.code, 0);
    }
}

static struct queue_rows choose(struct kit *k, const struct queue_selection *sel)
{
    struct queue_rows rows;
    if (queue_select(k->reader, sel, &rows, &k->e) != 0) {
        fail_msg("select: %s", k->e.text);
    }
    for (size_t i = 1; i < rows.count; i++) {
        for (size_t before = i; before-- > 0;) {
            if (rows.row[before].ev.project == rows.row[i].ev.project) {
                assert_true(rows.row[before].id < rows.row[i].id ||
                            rows.row[i].id <= sel->from.after_id);
                break;
            }
        }
    }
    return rows;
}

static size_t of_project(const struct queue_rows *rows, int64_t project)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->count; i++) {
        n += rows->row[i].ev.project == project;
    }
    return n;
}

static void test_nothing(void **state)
{
    struct kit k;
    struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000};
    kit_start(&k);
    struct queue_rows rows = choose(&k, &sel);
    assert_int_equal(rows.count, 0);
    assert_int_equal(rows.next.project, 0);
    queue_rows_free(&rows);
    sel.from = (struct queue_cursor){.project = 5, .after_id = 100};
    rows = choose(&k, &sel);
    assert_int_equal(rows.count, 0);
    queue_rows_free(&rows);
    sel.only = 2;
    rows = choose(&k, &sel);
    assert_int_equal(rows.count, 0);
    queue_rows_free(&rows);
    kit_end(&k);
    (void)state;
}

/* A large backlog leaves others their share, and takes what they do not need. */
static void test_shares(void **state)
{
    struct kit k;
    struct queue_selection sel = {.events_max = 90, .bytes_soft = 1 << 20};
    kit_start(&k);
    assert_int_equal(kit_do(&k, one_more_project, "gamma"), 0);
    fill(&k, 1, 0, 200, KIT_NOW);
    fill(&k, 2, 1000, 100, KIT_NOW);
    fill(&k, 3, 2000, 5, KIT_NOW);
    struct queue_rows rows = choose(&k, &sel);
    assert_int_equal(rows.count, 90);
    assert_int_equal(of_project(&rows, 3), 5);
    assert_int_equal(of_project(&rows, 2), 30);
    assert_int_equal(of_project(&rows, 1), 55);
    assert_true(slice_eq(rows.row[0].project, SLICE("alpha")));
    assert_int_equal(rows.next.project, 1);
    assert_true(rows.next.after_id == 55);
    queue_rows_free(&rows);
    /* By bytes: a row has 32. */
    sel.bytes_soft = 3 * 32 * 10;
    rows = choose(&k, &sel);
    assert_int_equal(rows.bytes, rows.count * 32);
    assert_int_equal(of_project(&rows, 1) >= 10, 1);
    assert_int_equal(of_project(&rows, 2), 10);
    assert_int_equal(of_project(&rows, 3), 5);
    assert_int_equal(rows.count, 30);
    queue_rows_free(&rows);
    /* Skipped ones, and one alone. */
    const int64_t skip[] = {1, 3};
    sel = (struct queue_selection){
        .events_max = 90, .bytes_soft = 1 << 20, .skip = skip, .skip_count = 2};
    rows = choose(&k, &sel);
    assert_int_equal(rows.count, 90);
    assert_int_equal(of_project(&rows, 2), 90);
    queue_rows_free(&rows);
    sel = (struct queue_selection){.events_max = 90, .bytes_soft = 1 << 20, .only = 3};
    rows = choose(&k, &sel);
    assert_int_equal(rows.count, 5);
    assert_int_equal(of_project(&rows, 3), 5);
    assert_int_equal(rows.next.project, 3);
    queue_rows_free(&rows);
    /* Fewer places than projects: one each, by the ring. */
    sel = (struct queue_selection){.events_max = 2, .bytes_soft = 1 << 20, .from = {2, 0}};
    rows = choose(&k, &sel);
    assert_int_equal(rows.count, 2);
    assert_int_equal(rows.row[0].ev.project, 2);
    assert_int_equal(rows.row[1].ev.project, 3);
    queue_rows_free(&rows);
    kit_end(&k);
    (void)state;
}

/* Who delivers every batch and goes on where somebody was left out comes to all, however long the
 * first one's backlog is. */
static void test_left_out(void **state)
{
    static const struct queue_selection narrow[] = {
        {.events_max = 2, .bytes_soft = 1 << 20}, /* fewer rows than projects */
        {.events_max = 90, .bytes_soft = 33},     /* fewer bytes */
        {.events_max = 90, .bytes_soft = 1 << 20} /* another month */
    };
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        struct kit k;
        struct queue_selection sel = narrow[i];
        size_t given[6] = {0};
        kit_start(&k);
        assert_int_equal(kit_do(&k, one_more_project, "gamma"), 0);
        assert_int_equal(kit_do(&k, one_more_project, "delta"), 0);
        assert_int_equal(kit_do(&k, one_more_project, "epsilon"), 0);
        for (int64_t p = 1; p <= 5; p++) {
            fill(&k, p, 1000 * (uint64_t)p, 200, KIT_NOW + (i == 2 ? p % 3 * 31 * DAY_MS : 0));
        }
        for (int batch = 0; batch < 5; batch++) {
            struct queue_rows rows = choose(&k, &sel);
            assert_true(rows.count > 0);
            for (size_t at = 0; at < rows.count; at++) {
                given[rows.row[at].ev.project]++;
            }
            assert_int_not_equal(rows.left_out.project, 0);
            assert_int_equal(given[rows.left_out.project] == 0 || batch > 0, true);
            sel.from = rows.left_out;
            queue_rows_free(&rows);
        }
        for (int64_t p = 1; p <= 5; p++) {
            assert_int_not_equal(given[p], 0);
        }
        kit_end(&k);
    }
    struct kit k;
    struct queue_selection sel = {.events_max = 90, .bytes_soft = 1 << 20};
    kit_start(&k);
    fill(&k, 1, 0, 200, KIT_NOW);
    fill(&k, 2, 1000, 1, KIT_NOW);
    struct queue_rows rows = choose(&k, &sel);
    assert_int_equal(rows.left_out.project, 0);
    queue_rows_free(&rows);
    kit_end(&k);
    (void)state;
}

/* One event may be larger than the budget of a batch. */
static void test_large_event(void **state)
{
    struct kit k;
    struct queue_selection sel = {.events_max = 10, .bytes_soft = 5};
    kit_start(&k);
    fill(&k, 1, 0, 3, KIT_NOW);
    for (int i = 0; i < 3; i++) {
        struct queue_rows rows = choose(&k, &sel);
        assert_int_equal(rows.count, 1);
        assert_int_equal(rows.row[0].id, i + 1);
        sel.from = rows.next;
        queue_rows_free(&rows);
    }
    struct queue_rows rows = choose(&k, &sel);
    assert_int_equal(rows.row[0].id, 1); /* round again */
    queue_rows_free(&rows);
    kit_end(&k);
    (void)state;
}

/* The months of the calendar, across leap years and before 1970. */
static void test_months(void **state)
{
    static const int64_t starts_ms[] = {
        1704067200000,
        /* 2024-01-01 */ 1706745600000,
        /* 02-01 */ 1709251200000, /* 03-01 */
        1711929600000,
        /* 04-01 */ 1735689600000,
        /* 2025-01-01 */ 951868800000 /* 2000-03-01 */,
        4107542400000 /* 2100-03-01 */,
    };
    for (size_t i = 0; i < sizeof starts_ms / sizeof *starts_ms; i++) {
        struct kit k;
        struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000};
        kit_start(&k);
        fill(&k, 1, 0, 1, starts_ms[i] - 1);
        fill(&k, 1, 1, 2, starts_ms[i]);
        fill(&k, 2, 2, 1, starts_ms[i] - 1);
        fill(&k, 2, 3, 1, starts_ms[i] + 27 * DAY_MS);
        struct queue_rows rows = choose(&k, &sel);
        assert_int_equal(rows.count, 2);
        assert_int_equal(of_project(&rows, 1), 1);
        assert_int_equal(rows.next.project, 1); /* its next month is next */
        sel.from = rows.next;
        queue_rows_free(&rows);
        rows = choose(&k, &sel);
        assert_int_equal(rows.count, 2);
        assert_int_equal(of_project(&rows, 1), 2);
        queue_rows_free(&rows);
        sel.from = (struct queue_cursor){.project = 2, .after_id = 4};
        rows = choose(&k, &sel);
        assert_int_equal(rows.count, 1); /* alpha begins with the month before */
        assert_int_equal(rows.row[0].ev.project, 2);
        queue_rows_free(&rows);
        kit_end(&k);
    }
    (void)state;
}

/* What a wrong clock dated before 1970 is of one month, the first. */
static void test_before_1970(void **state)
{
    struct kit k;
    struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000};
    kit_start(&k);
    fill(&k, 1, 0, 1, -40 * DAY_MS);
    fill(&k, 1, 1, 1, -400 * DAY_MS);
    fill(&k, 1, 2, 1, KIT_NOW);
    struct queue_rows rows = choose(&k, &sel);
    assert_int_equal(rows.count, 2);
    queue_rows_free(&rows);
    kit_end(&k);
    (void)state;
}

/* Whatever is never delivered, the cursor comes by everything: by each project, each month. */
static void test_cursor_meets_everything(void **state)
{
    uint64_t rnd = kit_seed();
    for (int round = 0; round < 5; round++) {
        struct kit k;
        enum { PROJECTS = 5, MOST = 400 };
        bool seen[MOST] = {false};
        uint64_t n = 0;
        struct queue_selection sel = {.events_max = 1 + (uint32_t)(kit_random(&rnd) % 20),
                                      .bytes_soft = 30 + kit_random(&rnd) % 1000};
        kit_start(&k);
        for (int p = 3; p <= PROJECTS; p++) {
            char name[16];
            snprintf(name, sizeof name, "p%d", p);
            assert_int_equal(kit_do(&k, one_more_project, name), 0);
        }
        for (int part = 0; part < 15; part++) {
            uint64_t count = kit_random(&rnd) % 20;
            fill(&k, 1 + (int64_t)(kit_random(&rnd) % PROJECTS), n, count,
                 KIT_NOW + 31 * DAY_MS * (part / 5));
            n += count;
        }
        assert_true(n < MOST);
        assert_int_equal(kit_sql(&k, "INSERT INTO delivery_quarantine SELECT id, project, 321, 5"
                                     " FROM events WHERE id % 7 = 0"),
                         0);
        for (uint64_t i = 0; i < 4 * n + 100; i++) {
            struct queue_rows rows = choose(&k, &sel);
            for (size_t at = 0; at < rows.count; at++) {
                seen[rows.row[at].id] = true;
                assert_true(rows.row[at].id % 7 != 0);
                assert_true(rows.row[at].ev.received_ms == rows.row[0].ev.received_ms);
            }
            assert_true(rows.count <= sel.events_max);
            sel.from = rows.next;
            queue_rows_free(&rows);
        }
        for (uint64_t id = 1; id <= n; id++) {
            assert_int_equal(seen[id], id % 7 != 0);
        }
        kit_end(&k);
    }
    (void)state;
}

/* A cursor into nowhere: behind all, on a project that is gone or has nothing ready. */
static void test_odd_cursors(void **state)
{
    struct kit k;
    kit_start(&k);
    fill(&k, 1, 0, 3, KIT_NOW);
    fill(&k, 2, 5, 3, KIT_NOW);
    static const struct queue_cursor from[] = {
        {1, 1000}, {2, 1000}, {77, 2}, {INT64_MAX, INT64_MAX}, {2, 5}, {-4, -4}};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000, .from = from[i]};
        struct queue_rows rows = choose(&k, &sel);
        assert_int_equal(rows.count, 6);
        queue_rows_free(&rows);
    }
    kit_end(&k);
    (void)state;
}

static void test_damage(void **state)
{
    struct kit k;
    struct queue_rows rows;
    struct queue_selection sel = {.events_max = 10, .bytes_soft = 1000};
    kit_start(&k);
    fill(&k, 1, 0, 3, KIT_NOW);
    assert_int_equal(kit_sql(&k, "UPDATE events SET uuid = x'01' WHERE id = 2"), 0);
    assert_int_equal(queue_select(k.reader, &sel, &rows, &k.e), ERR_CORRUPT);
    assert_int_equal(kit_sql(&k, "DELETE FROM projects WHERE id = 1"), 0);
    assert_int_equal(queue_select(k.reader, &sel, &rows, &k.e), ERR_CORRUPT);
    kit_end(&k);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_large_event),
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_before_1970),
        cmocka_unit_test(test_cursor_meets_everything),
        cmocka_unit_test(test_odd_cursors),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
