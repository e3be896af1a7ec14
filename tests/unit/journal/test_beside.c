/* test_beside: everything that goes on beside the writer, at once, and over several starts: readers
 * that rest between lines, generations that are sealed as they are closed, an index that is lost
 * and made again, a source that is retired. Every reading is whole: it ends at its snapshot's last
 * event and has its count. For TSan most of all. */
#include "journal_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#include "journal/index.h"
#include "journal/internal.h"

#define ROUNDS  8
#define BATCHES 18
#define READERS 3

static atomic_bool over;
static atomic_uint readings, bad;

/* One reading of all that there is. */
static bool read_all(struct journal *j, uint64_t rest_every)
{
    struct journal_frontier snapshot;
    struct journal_reader *r;
    struct line l;
    struct err e = {0};
    struct uuid last = {{0}};
    uint64_t n = 0;
    bool rises = true;
    int code;
    if (journal_reader_open(j, NULL, NULL, NULL, &snapshot, &r, &e) != 0) {
        return false;
    }
    while ((code = journal_reader_next(r, &l, 0, &e)) == 1) {
        rises = rises && uuid_cmp(&l.id, &last) > 0;
        last = l.id;
        n++;
        if (n % rest_every == 0) {
            journal_reader_rest(r);
        }
    }
    journal_reader_close(r);
    return code == 0 && rises && (snapshot.empty || uuid_cmp(&last, &snapshot.last_id) == 0) &&
           (!snapshot.complete || n == snapshot.events);
}

struct reading {
    pthread_t thread;
    struct journal *j;
    uint64_t rest_every;
};

static void *reader(void *arg)
{
    const struct reading *me = arg;
    while (!atomic_load(&over)) {
        struct journal_seal_status seal;
        struct journal_status st;
        atomic_fetch_add(&bad, !read_all(me->j, me->rest_every));
        journal_get_seal_status(me->j, &seal);
        journal_get_status(me->j, &st);
        atomic_fetch_add(&readings, 1);
    }
    return NULL;
}

/* As a client does it: again, as long as the index is being made. */
static void put(struct fx *f, uint32_t n)
{
    int r = ERR_NOT_READY;
    for (unsigned i = 0; r == ERR_NOT_READY; i++) {
        assert_true(i < 60000);
        r = kit_put(f->j, &f->ledger, (struct kit_spec){n, 1 + n % 3, 9000}, &f->e);
        if (r == ERR_NOT_READY) {
            journal_tick(f->j);
            (void)usleep(1000);
        }
    }
    assert_int_equal(r, 0);
}

/* At least one more reading of each reader, with everything in place. */
static void await_readings(unsigned more)
{
    unsigned want = atomic_load(&readings) + more;
    for (unsigned i = 0; atomic_load(&readings) < want; i++) {
        assert_true(i < 60000);
        (void)usleep(1000);
    }
}

static void one_round(struct fx *f, uint32_t round)
{
    struct reading all[READERS];
    fx_open(f);
    atomic_store(&over, false);
    for (unsigned i = 0; i < READERS; i++) {
        all[i] = (struct reading){.j = f->j, .rest_every = 7 + i};
        assert_int_equal(pthread_create(&all[i].thread, NULL, reader, &all[i]), 0);
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        put(f, round * BATCHES + i + 1);
        if (i % 5 == 0) {
            assert_int_equal(journal_seal_request(f->j, i % 2, i % 10 == 0, &f->e), 0);
        }
        if (i == 9 && round == 5) {
            assert_int_equal(kit_retire(f->j, &f->ledger, 0, &f->e), 0);
            fx_commit(f);
        }
        journal_tick(f->j);
    }
    await_readings(2 * READERS);
    atomic_store(&over, true);
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    }
    assert_int_equal(atomic_load(&bad), 0);
    fx_check_opened(f);
    fx_verify(f, false);
    fx_close(f);
    fx_verify(f, true);
}

static void test_all_at_once(void **state)
{
    static struct fx f;
    (void)state;
    fx_start(&f, true);
    f.options.threads = true;
    f.options.index_at_once = 1;
    f.options.seal_after_generations = 2;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (round == 3 || round == 6) {
            assert_int_equal(index_forget(f.layout.index, &f.e), 0);
        }
        one_round(&f, round);
    }
    fx_open(&f);
    assert_true(fx_status(&f).segments > 0);
    fx_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_at_once),
    };
    return cmocka_run_group_tests_name("beside", tests, NULL, NULL);
}
