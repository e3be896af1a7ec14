/* The table of streams against a plain model: additions, undo, keep, closing of generations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "journal/streams.h"
#include "os/os.h"
#include "tests/lib/journal_kit.h"

#define SOURCES 5
#define STREAMS 60

struct cell {
    uint64_t total, active, kept_total, kept_active;
    struct uuid last, kept_last;
};

static struct cell cells[SOURCES][STREAMS];

static struct slice name(char out[16], const char *prefix, unsigned n)
{
    (void)snprintf(out, 16, "%s%u", prefix, n);
    return slice_cstr(out);
}

static struct uuid id_of(uint64_t n)
{
    struct uuid u = {{0}};
    for (int i = 0; i < 8; i++) {
        u.byte[i] = (uint8_t)(n >> (56 - 8 * i));
    }
    return u;
}

static void compare(struct streams *s)
{
    char a[16];
    char b[16];
    for (unsigned i = 0; i < SOURCES; i++) {
        struct uuid last = {{0}};
        struct uuid got;
        bool any = false;
        for (unsigned k = 0; k < STREAMS; k++) {
            if (cells[i][k].total > 0 && (!any || uuid_cmp(&cells[i][k].last, &last) > 0)) {
                last = cells[i][k].last;
                any = true;
            }
        }
        assert_int_equal(streams_source(s, name(a, "s", i), &got), any);
        assert_true(!any || uuid_cmp(&got, &last) == 0);
        for (unsigned k = 0; k < STREAMS; k++) {
            struct stream_state st;
            bool there = streams_get(s, name(a, "s", i), name(b, "t", k), &st);
            assert_int_equal(there, cells[i][k].total > 0);
            if (there) {
                assert_int_equal(st.events, cells[i][k].total);
                assert_int_equal(uuid_cmp(&st.last_id, &cells[i][k].last), 0);
            }
        }
    }
}

static void compare_rows(struct streams *s, bool active)
{
    struct index_stream *rows;
    uint32_t count;
    uint64_t sum = 0;
    uint64_t expected = 0;
    assert_int_equal(
        active ? streams_generation(s, false, &rows, &count) : streams_rows(s, &rows, &count), 0);
    for (uint32_t i = 0; i < count; i++) {
        sum += rows[i].events;
        assert_true(rows[i].events > 0);
        if (i > 0) {
            int c = slice_cmp(rows[i - 1].source, rows[i].source);
            assert_true(c < 0 || (c == 0 && slice_cmp(rows[i - 1].stream, rows[i].stream) < 0));
        }
    }
    for (unsigned i = 0; i < SOURCES; i++) {
        for (unsigned k = 0; k < STREAMS; k++) {
            expected += active ? cells[i][k].active : cells[i][k].total;
        }
    }
    assert_int_equal(sum, expected);
    free(rows);
}

static void settle(bool keep)
{
    for (unsigned i = 0; i < SOURCES; i++) {
        for (unsigned k = 0; k < STREAMS; k++) {
            struct cell *c = &cells[i][k];
            if (keep) {
                c->kept_total = c->total;
                c->kept_active = c->active;
                c->kept_last = c->last;
            } else {
                c->total = c->kept_total;
                c->active = c->kept_active;
                c->last = c->kept_last;
            }
        }
    }
}

static void test_against_model(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : os_clock_real_ms();
    printf("SEED=%llu\n", (unsigned long long)seed);
    struct streams *s = streams_new();
    char a[16];
    char b[16];
    assert_non_null(s);
    memset(cells, 0, sizeof cells);
    for (uint64_t n = 1; n < 20000; n++) {
        unsigned i = (unsigned)(kit_chance(&seed) % SOURCES);
        unsigned k = (unsigned)(kit_chance(&seed) % STREAMS);
        struct uuid id = id_of(n);
        unsigned dice = (unsigned)(kit_chance(&seed) % 100);
        if (dice < 5) {
            streams_keep(s);
            settle(true);
        } else if (dice < 10) {
            streams_undo(s);
            settle(false);
        } else if (dice == 10 && kit_chance(&seed) % 10 == 0) {
            struct index_stream *rows;
            uint32_t count;
            streams_keep(s);
            settle(true);
            compare_rows(s, true);
            compare_rows(s, false);
            assert_int_equal(streams_generation(s, true, &rows, &count), 0);
            free(rows);
            for (unsigned p = 0; p < SOURCES * STREAMS; p++) {
                cells[p / STREAMS][p % STREAMS].active = 0;
                cells[p / STREAMS][p % STREAMS].kept_active = 0;
            }
            compare_rows(s, true);
        } else {
            assert_int_equal(streams_add(s, name(a, "s", i), name(b, "t", k), &id), 0);
            cells[i][k].total++;
            cells[i][k].active++;
            cells[i][k].last = id;
        }
        if (n % 500 == 0) {
            compare(s);
        }
    }
    compare(s);
    assert_true(streams_count(s) <= SOURCES * STREAMS);
    streams_free(s);
    (void)state;
}

/* Rows of closed generations add up; the later one's last id counts. */
static void test_load(void **state)
{
    struct streams *s = streams_new();
    struct stream_state st;
    struct index_stream row = {
        .source = SLICE("a"), .stream = SLICE("b"), .last_id = id_of(5), .events = 3};
    assert_non_null(s);
    assert_int_equal(streams_load(s, &row), 0);
    row.last_id = id_of(9);
    row.events = 4;
    assert_int_equal(streams_load(s, &row), 0);
    assert_true(streams_get(s, SLICE("a"), SLICE("b"), &st));
    assert_int_equal(st.events, 7);
    assert_int_equal(st.last_id.byte[7], 9);
    /* ("a", "bc") and ("ab", "c") are different pairs. */
    struct uuid id = id_of(10);
    assert_int_equal(streams_add(s, SLICE("a"), SLICE("bc"), &id), 0);
    assert_false(streams_get(s, SLICE("ab"), SLICE("c"), &st));
    assert_false(streams_get(s, SLICE("a"), SLICE("c"), &st));
    streams_undo(s);
    assert_false(streams_get(s, SLICE("a"), SLICE("bc"), &st));
    streams_free(s);
    streams_free(NULL);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_load),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
