/* test_followers: what the once-a-second look makes of a journal that ends earlier than it seemed;
 * and how many followers a turn wakes. While the index is made after a start, the frontier is that
 * of the newest event; damage that is found meanwhile takes it back, and the ring of those who
 * follow has to come back too. */
#include "tests/unit/journal/journal_fixture.h"

#include "door/history/follow_internal.h"
#include "http/conn.h"
#include "journal/index.h"

static void spoil_first_closed(struct fx *f)
{
    struct layout_generation *rows;
    uint32_t count;
    char path[LAYOUT_PATH_MAX];
    assert_int_equal(layout_list_pending(&f->layout, &rows, &count, &f->e), 0);
    assert_true(count >= 3);
    layout_pending_path(&f->layout, &rows[1].first_id, &rows[1].last_id, path);
    fx_patch(path, rows[1].bytes / 2, "\x01\x02", 2);
    free(rows);
}

static void test_the_ring_comes_back(void **state)
{
    static struct history h;
    struct fx f;
    struct journal_frontier before;
    (void)state;
    fx_start(&f, true);
    fx_open(&f);
    for (uint32_t n = 1; n <= 60; n++) {
        fx_put(&f, n, n % 4 + 1, 1900);
    }
    journal_get_frontier(f.j, &before);
    fx_close(&f);
    spoil_first_closed(&f);
    assert_int_equal(index_forget(f.layout.index, &f.e), 0);
    f.options.threads = true;
    f.options.index_at_once = 1;
    fx_open(&f);
    h.journal = f.j;
    followers_init(&h);
    h.followers.count = 1; /* one that began before the damage was found */
    assert_true(recent_start(&h.followers.recent, &before.last_id));
    for (unsigned i = 0; !fx_status(&f).poisoned; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
    followers_tick(&h);
    struct journal_status st = fx_status(&f);
    assert_true(uuid_cmp(&st.frontier.last_id, &before.last_id) < 0);
    assert_true(h.followers.poisoned);
    /* A run that ended at the frontier is at the ring's end, so its follower is told the end. */
    assert_memory_equal(&h.followers.recent.start, &st.frontier.last_id, 16);
    assert_memory_equal(&h.followers.recent.through, &st.frontier.last_id, 16);
    h.followers.count = 0;
    followers_free(&h);
    fx_close(&f);
    fx_end(&f);
}

static enum http_next never(void *ctx, struct buf *out)
{
    (void)ctx;
    (void)out;
    return HTTP_NEXT_WAIT;
}

#define FILTERED 40u

/* A follower with a filter is sent what matches when all of the ring behind its first match has
 * been looked at: that is counted before it is woken, so a turn stays short. */
static void test_scans_are_counted_into_a_turn(void **state)
{
    static struct history h;
    static struct http_server server;
    static struct http_request req[FILTERED];
    static struct follower f[FILTERED];
    struct fx fx;
    uint32_t turns = 0;
    uint32_t waited = FILTERED;
    (void)state;
    fx_start(&fx, true);
    fx_open(&fx);
    h.journal = fx.j;
    followers_init(&h);
    h.followers.count = FILTERED;
    assert_true(recent_start(&h.followers.recent, &(struct uuid){0}));
    for (uint32_t n = 1; n <= 8; n++) {
        fx_put(&fx, 2 * n, 400, 10);
    }
    const struct recent *r = &h.followers.recent;
    assert_int_equal(r->end - r->first, 3200);
    const struct recent_event *first = recent_at(r, r->first);
    struct slice source = slice_of(recent_text(r, first).ptr + first->source.at, first->source.len);
    for (uint32_t i = 0; i < FILTERED; i++) {
        req[i].streaming = true;
        req[i].source.next = never;
        req[i].server = &server;
        f[i] = (struct follower){.h = &h, .req = &req[i], .filtered = true, .waiting = true};
        f[i].filter.source = source;
        TAILQ_INSERT_TAIL(&h.followers.waiting, &f[i], link);
    }
    h.followers.waiting_count = FILTERED;
    followers_look(&h);
    while (h.followers.to_look > 0) {
        followers_turn(&h);
        assert_true(waited - h.followers.waiting_count >= 1);
        assert_true(waited - h.followers.waiting_count <= 2);
        assert_true(h.followers.waiting_count == 0 || server.again);
        waited = h.followers.waiting_count;
        turns++;
    }
    assert_int_equal(waited, 0);
    assert_true(turns >= FILTERED / 2);
    h.followers.count = 0;
    followers_free(&h);
    fx_close(&fx);
    fx_end(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scans_are_counted_into_a_turn),
        cmocka_unit_test(test_the_ring_comes_back),
    };
    return cmocka_run_group_tests_name("followers", tests, NULL, NULL);
}
