/* test_followers: what the once-a-second look makes of a journal that ends earlier than it seemed.
 * While the index is made after a start, the frontier is that of the newest event; damage that is
 * found meanwhile takes it back, and the ring of those who follow has to come back too. */
#include "tests/unit/journal/journal_fixture.h"

#include "door/history/internal.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_ring_comes_back),
    };
    return cmocka_run_group_tests_name("followers", tests, NULL, NULL);
}
