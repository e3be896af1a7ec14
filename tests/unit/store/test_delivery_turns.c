/* delivery_next under random schedules: workers, projects, verdicts, holds, a clock, all virtual.
 *
 * Whatever comes: no package is with two workers, nothing that has ended is given out again, what
 * waits is due at a time that is still to come, and once the faults stop everything becomes
 * verified or parked, within a bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/artifact/delivery_index.h"

#define NOW_MS   INT64_C(1795996800000)
#define PACKAGES 60
#define PROJECTS 5
#define WORKERS  4
#define STEPS    1500

struct worker {
    bool busy;
    int64_t end_ms;
    struct delivery_work work;
};

static struct delivery_index *ix;
static struct worker worker[WORKERS];
static bool with_worker[PACKAGES], parked[PACKAGES], verified[PACKAGES];
static uint64_t dice_state;
static struct err e;

static unsigned dice(unsigned n)
{
    dice_state = dice_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(dice_state >> 33) % n;
}

static void done(int r)
{
    if (r != 0) {
        fail_msg("%s", e.text);
    }
}

static unsigned number_of(const struct delivery_work *w)
{
    return (unsigned)strtoul(w->artifact.object_id, NULL, 16);
}

static void add(unsigned n)
{
    static struct delivery_plan p;
    struct artifact_sink to = {.sink = "directory", .directory = "/somewhere"};
    struct delivery_artifact a = {.size_bytes = n + 1, .accepted_at = NOW_MS / 1000};

    snprintf(a.object_id, sizeof a.object_id, "%032x", n);
    snprintf(a.project, sizeof a.project, "p%u", dice(2) == 0 ? 0 : dice(PROJECTS));
    snprintf(a.checksum, sizeof a.checksum, "%064x", n);
    done(delivery_index_begin(ix, &e));
    done(delivery_index_add(ix, &a, NOW_MS, &e));
    done(delivery_index_commit(ix, &e));
    done(delivery_plan_begin(&p, &a, &to, &e));
    done(delivery_index_seal(ix, &p, NOW_MS / 1000, NOW_MS + dice(2000), &e));
}

static void begin(struct worker *w, int64_t now_ms)
{
    unsigned n = number_of(&w->work);

    assert_true(n < PACKAGES);
    assert_false(with_worker[n]);
    assert_false(parked[n] || verified[n]);
    with_worker[n] = true;
    w->busy = true;
    w->end_ms = now_ms + dice(3000);
    if (w->work.task == DELIVERY_SEND) {
        done(delivery_index_claim(ix, &w->work.plan, now_ms / 1000, &e));
    }
}

/* Any verdict; with faults off, only those that lead to the end. */
static void finish(struct worker *w, int64_t now_ms, bool faults)
{
    const struct delivery_plan *p = &w->work.plan;
    unsigned n = number_of(&w->work), what = faults ? dice(8) : 7;
    int64_t now = now_ms / 1000;

    with_worker[n] = false;
    w->busy = false;
    delivery_index_over(ix, p->package_id);
    if (what < 3) {
        done(delivery_index_retry(ix, p, now, now_ms + dice(60000), "later", &e));
        if (what < 2) {
            delivery_index_hold(ix, (enum delivery_scope)dice(DELIVERY_SCOPE_COUNT), p,
                                now_ms + 1 + dice(5000), "held");
        }
    } else if (what == 3 && dice(4) == 0) {
        done(delivery_index_park(ix, p, now, "no", "mend", &e));
        parked[n] = true;
    } else if (w->work.task == DELIVERY_SEND) {
        done(delivery_index_sent(ix, p, now, &e));
    } else if (what == 4 || what == 5) {
        done(delivery_index_unseen(ix, p, now, now_ms + dice(9000), false, "not yet", &e));
    } else {
        done(delivery_index_verified(ix, p, now, &e));
        verified[n] = true;
    }
}

/* Gives work to all that are free; the next moment at which something may happen. */
static int64_t turn(int64_t now_ms, bool faults)
{
    const struct delivery_ask ask = {.lane = DELIVERY_LANE_SEND, .workers = WORKERS};
    int64_t next_ms = INT64_MAX;

    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &worker[i];
        if (w->busy && w->end_ms <= now_ms) {
            finish(w, now_ms, faults);
        }
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &worker[i];
        if (!w->busy) {
            done(delivery_index_next(ix, now_ms, &ask, &w->work, &e));
            if (w->work.task == DELIVERY_NOTHING) {
                assert_true(w->work.due_ms > now_ms); /* else it would be asked for ever */
                next_ms = w->work.due_ms < next_ms ? w->work.due_ms : next_ms;
                continue;
            }
            begin(w, now_ms);
        }
        next_ms = w->end_ms < next_ms ? w->end_ms : next_ms;
    }
    return next_ms;
}

static unsigned ended(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < PACKAGES; i++) {
        n += parked[i] || verified[i];
    }
    return n;
}

static void test_random_schedules(void **state)
{
    const char *seed = getenv("SEED");
    char dir[64], command[128];
    int64_t now_ms = NOW_MS;
    unsigned steps = 0;
    bool rebuilt;

    (void)state;
    dice_state = seed != NULL ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 1000003u;
    print_message("SEED=%llu\n", (unsigned long long)dice_state);
    snprintf(dir, sizeof dir, "%s/tallyman-turns-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(dir));
    done(delivery_index_open(dir, &ix, &rebuilt, &e));
    for (unsigned n = 0; n < PACKAGES; n++) {
        add(n);
    }
    while (ended() < PACKAGES) {
        bool faults = steps < STEPS;
        int64_t next_ms = turn(now_ms, faults);
        assert_true(steps++ < STEPS + 40 * PACKAGES); /* it ends once the faults have */
        if (next_ms == INT64_MAX) {
            assert_int_equal(ended(), PACKAGES);
            break;
        }
        now_ms = next_ms > now_ms ? next_ms : now_ms + 1;
    }
    print_message("%u steps, %lld s\n", steps, (long long)(now_ms - NOW_MS) / 1000);
    delivery_index_close(ix);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_schedules)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
