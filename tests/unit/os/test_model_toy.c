/* test_model_toy: a crash test in the small, to show how one is written with the model disk and
 * that it notices. A toy log appends records and acknowledges each after its sync. The power is cut
 * at every call of a run, in every way; after each cut recovery must find what was acknowledged,
 * unharmed and in order. Then one protection at a time is taken out, and the same test must fail.
 */
#include "tests/unit/os/model_fixture.h"

/* ---- the log ---- */

#define RECORDS     6
#define RECORD_SIZE 900 /* crosses sectors */

struct record {
    uint64_t number; /* from 1 */
    uint64_t checksum;
    unsigned char body[RECORD_SIZE - 16];
};

/* What may be missing. */
enum protection {
    ALL_IN_PLACE,
    NO_DATA_SYNC,
    NO_DIRECTORY_SYNC,
    EARLY_ANSWER,
    NO_CHECKSUM,
    NO_TRUNCATION,
    PROTECTIONS
};

static uint64_t checksum_of(const struct record *r)
{
    uint64_t sum = r->number * 0x9e3779b97f4a7c15u;

    for (size_t n = 0; n < sizeof r->body; n++) {
        sum = (sum ^ r->body[n]) * 0x100000001b3u;
    }
    return sum;
}

/* The whole content of record number n: known, so that the test can check it byte by byte. */
static struct record record_make(uint64_t number)
{
    struct record r = {.number = number};

    memset(r.body, (int)number, sizeof r.body);
    r.checksum = checksum_of(&r);
    return r;
}

/* Opens or makes the log, cuts off a torn end. The number of records, or a negative errno. */
static int64_t log_open(enum protection missing, int *fd)
{
    struct record r;
    uint64_t count = 0;
    int result = 0;

    *fd = os_open("/m/log", O_RDWR | O_CREAT, 0600);
    if (*fd < 0) {
        return *fd;
    }
    while (os_pread_full(*fd, &r, sizeof r, count * sizeof r) == sizeof r) {
        if (r.number != count + 1 || (missing != NO_CHECKSUM && r.checksum != checksum_of(&r))) {
            break;
        }
        count++;
    }
    if (missing != NO_TRUNCATION) {
        result = os_ftruncate(*fd, count * sizeof r);
    }
    result = result == 0 ? os_fsync(*fd) : result;
    if (result == 0 && missing != NO_DIRECTORY_SYNC) {
        result = os_sync_dir("/m");
    }
    return result == 0 ? (int64_t)count : result;
}

static int log_append(enum protection missing, int fd, uint64_t number, uint64_t *answered)
{
    struct record r = record_make(number);
    int result;

    if (missing == EARLY_ANSWER) {
        *answered = number;
    }
    result = os_pwrite_all(fd, &r, sizeof r, (number - 1) * sizeof r, NULL);
    if (result == 0 && missing != NO_DATA_SYNC) {
        result = os_fdatasync(fd);
    }
    if (result == 0) {
        *answered = number;
    }
    return result;
}

/* ---- the test of it ---- */

struct run {
    enum protection missing;
    uint64_t answered;
    uint64_t cuts;
    uint64_t lost;   /* acknowledged, not found */
    uint64_t harmed; /* found, but not what was written */
    unsigned depth;  /* cuts within recovery */
};

static void cut_here(void *ctx, struct model *model, const struct model_call *call);

/* A restart after a cut, with more cuts during it while the depth allows. */
static void check_recovery(struct run *run, struct model *after)
{
    struct record r;
    struct record wanted;
    int64_t count;
    int fd;

    if (run->depth < 2) {
        model_set_hook(after, cut_here, run);
    }
    count = log_open(run->missing, &fd);
    model_set_hook(after, NULL, NULL);
    assert_true(count >= 0);
    run->lost += (uint64_t)count < run->answered;
    for (uint64_t n = 0; n < (uint64_t)count; n++) {
        wanted = record_make(n + 1);
        assert_int_equal(os_pread_full(fd, &r, sizeof r, n * sizeof r), sizeof r);
        run->harmed += memcmp(&r, &wanted, sizeof r) != 0;
    }
    /* Nothing may be left that the next append, shorter than it, could join. */
    {
        struct os_stat st;

        assert_int_equal(os_fstat(fd, &st), 0);
        run->harmed += st.size != (uint64_t)count * sizeof r;
    }
    assert_int_equal(os_close(fd), 0);
    run->cuts++;
}

static void cut_here(void *ctx, struct model *model, const struct model_call *call)
{
    struct run *run = ctx;
    struct model_crashes it;
    struct model *after;

    run->depth++;
    model_crashes_begin(&it, model, run->depth > 1 ? 2 : 6, 8, call->number);
    while ((after = model_crashes_next(&it)) != NULL) {
        model_use(after);
        check_recovery(run, after);
        model_free(after);
    }
    model_use(model);
    run->depth--;
}

static struct run run_with(enum protection missing, bool lying)
{
    struct run run = {.missing = missing};
    int fd;

    use(NULL);
    model_lie(m, lying, false);
    model_set_hook(m, cut_here, &run);
    assert_int_equal(log_open(missing, &fd), 0);
    for (uint64_t n = 1; n <= RECORDS; n++) {
        assert_int_equal(log_append(missing, fd, n, &run.answered), 0);
    }
    assert_int_equal(os_close(fd), 0);
    model_set_hook(m, NULL, NULL);
    print_message("%llu cuts: %llu lost, %llu harmed\n", (unsigned long long)run.cuts,
                  (unsigned long long)run.lost, (unsigned long long)run.harmed);
    return run;
}

static void the_log_keeps_its_word(void **state)
{
    struct run run = run_with(ALL_IN_PLACE, false);

    (void)state;
    assert_int_equal(run.lost, 0);
    assert_int_equal(run.harmed, 0);
    assert_true(run.cuts > 500);
}

static void each_missing_protection_is_noticed(void **state)
{
    (void)state;
    for (enum protection p = ALL_IN_PLACE + 1; p < PROTECTIONS; p++) {
        struct run run = run_with(p, false);

        assert_true(run.lost + run.harmed > 0);
    }
}

static void a_lying_disk_is_noticed(void **state)
{
    (void)state;
    assert_true(run_with(ALL_IN_PLACE, true).lost > 0);
}

/* Every single fault, and then a cut: what was answered is there. */
static void single_faults_break_no_promise(void **state)
{
    uint64_t calls = 0;
    uint64_t broken = 0;

    (void)state;
    for (uint64_t k = 0; k == 0 || k <= calls; k++) {
        for (unsigned sticky = 0; sticky < 2; sticky++) {
            const struct fault fault = {.error = EIO, .at = k, .sticky = sticky};
            struct run run = {.depth = 2};
            struct model *after;
            int fd;

            use(NULL);
            model_fault_arm(m, &fault);
            if (log_open(ALL_IN_PLACE, &fd) == 0) {
                /* A failed append ends the writing, as it must: the log is poisoned. */
                for (uint64_t n = 1; n <= RECORDS; n++) {
                    if (log_append(ALL_IN_PLACE, fd, n, &run.answered) != 0) {
                        broken++;
                        break;
                    }
                }
            }
            calls = k == 0 ? model_calls(m) : calls;
            assert_true(k == 0 || model_fault_fired(m) > 0);
            after = model_crash(m, &(struct model_choice){.how = MODEL_CUT_NONE});
            model_use(after);
            check_recovery(&run, after);
            model_free(after);
            model_use(m);
            assert_int_equal(run.lost + run.harmed, 0);
        }
    }
    assert_true(calls > 15);
    assert_true(broken > 10);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_log_keeps_its_word),
        T(each_missing_protection_is_noticed),
        T(a_lying_disk_is_noticed),
        T(single_faults_break_no_promise),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
