/* The sink runner on a real store and loop, with a far side that is played: freezing and repeating,
 * refused projects, the stored position, restarts, slowing down, recording. */
#include "base/metrics.h"
#include "store/internal.h"
#include "tests/unit/sink/runner_kit.h"

static int setup(void **state)
{
    *state = kit_start(4);
    return 0;
}

static int teardown(void **state)
{
    kit_end(*state);
    return 0;
}

/* Every accepted row is with the far side, at least once (and how often). */
static void assert_taken(struct kit *t, int64_t first, size_t count, unsigned most)
{
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    for (size_t i = 0; i < count; i++) {
        unsigned n = t->taken[first + (int64_t)i];
        if (n < 1 || n > most) {
            fail_msg("row %lld was taken %u times", (long long)first + (long long)i, n);
        }
    }
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
}

static void test_everything_once(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    int64_t first = 0;
    o.batch_events_max = 300; /* several batches on their way at once */
    for (int i = 0; i < 4; i++) {
        int64_t id = kit_put(t, i, 2500);
        first = i == 0 ? id : first;
    }
    kit_run_sink(t, o);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 10000, 1);
    struct sink_status st = kit_status(t);
    assert_int_equal(st.delivered, 10000);
    assert_true(st.connected);
    assert_string_equal(st.error, "");
    assert_int_equal(st.failures, 0);
    assert_int_equal(st.retry_in_ms, 0);
    assert_int_equal(t->prepares, 1);
    assert_int_equal(metric_get(METRIC_SINK_CONNECTED), 1);
    assert_true(metric_get(METRIC_SINK_DELIVERED) >= 10000);
    for (unsigned i = 0; i < t->sends; i++) {
        assert_true(t->seen[i].count <= 300);
    }
    /* Full ones: rows that are being recorded are not selected again and dropped. */
    assert_true(t->sends <= 10000 / 300 + 6);
    int64_t later = kit_put(t, 1, 3); /* and it goes on */
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, later, 3, 1);
}

static void play_lost(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)count;
    if (t->left > 0) {
        /* Every other time the rows are stored all the same: only the answer is lost. */
        if (t->left % 2 == 0) {
            kit_take(t, body);
        }
        t->left--;
        *r = (struct sink_result){.verdict = SINK_UNKNOWN, .text = "no whole answer"};
    }
}

/* C20: a try whose outcome is unknown is repeated with the same bytes. */
static void test_c20_same_bytes(void **state)
{
    struct kit *t = *state;
    int64_t first = kit_put(t, 0, 50);
    t->left = 4;
    t->play = play_lost;
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_sends(t) >= 1);
    (void)kit_put(t, 0, 50); /* more rows meanwhile: not in the frozen batch */
    KIT_WAIT(kit_pending(t) == 0);
    for (unsigned i = 1; i < 5; i++) {
        assert_memory_equal(t->seen[i].hash, t->seen[0].hash, SHA256_LEN);
        assert_int_equal(t->seen[i].count, 50);
    }
    assert_memory_not_equal(t->seen[5].hash, t->seen[0].hash, SHA256_LEN);
    assert_taken(t, first, 50, 3); /* physical copies; one row each by key */
    assert_int_equal(t->rows_taken, 100);
    assert_int_equal(kit_status(t).failures, 4);
}

static void play_down(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)body;
    (void)count;
    if (t->left > 0) {
        t->left--;
        *r = (struct sink_result){
            .verdict = SINK_RETRY, .prepare = true, .text = "cannot connect: nobody there"};
    }
}

/* The backoff doubles from backoff_min_ms to backoff_max_ms. */
static void test_backoff(void **state)
{
    struct kit *t = *state;
    static const uint64_t want_ms[] = {20, 40, 80, 100, 100};
    (void)kit_put(t, 0, 5);
    t->left = 5;
    t->play = play_down;
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_sends(t) >= 1);
    struct sink_status st;
    KIT_WAIT((st = kit_status(t)).error[0] != '\0');
    assert_string_equal(st.error, "cannot connect: nobody there");
    assert_false(st.connected);
    KIT_WAIT(kit_pending(t) == 0);
    for (int i = 0; i < 5; i++) {
        uint64_t ms = (t->seen[i + 1].at_ns - t->seen[i].at_ns) / 1000000;
        assert_true(ms >= want_ms[i]);
        assert_true(ms < want_ms[i] + 1500); /* machines stall */
    }
    assert_int_equal(t->prepares, 6); /* again after each failure that says so */
    assert_string_equal(kit_status(t).error, "");
}

static void play_slow_down(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)body;
    (void)count;
    if (t->left > 0) {
        t->left--;
        *r = (struct sink_result){
            .verdict = SINK_RETRY, .code = 252, .retry_ms = 190, .text = "too many parts"};
    }
}

/* C25: the far side may ask for a longer wait than the backoff's. */
static void test_c25_slow_down(void **state)
{
    struct kit *t = *state;
    (void)kit_put(t, 0, 5);
    t->left = 1;
    t->play = play_slow_down;
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_pending(t) == 0);
    assert_true(t->seen[1].at_ns - t->seen[0].at_ns >= UINT64_C(190000000));
}

/* C25: a trickle of events makes few inserts. */
static void test_c25_trickle(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.gather_ms = 100;
    kit_run_sink(t, o);
    uint64_t start = kit_now_ns();
    unsigned events = 0;
    while (kit_now_ns() - start < UINT64_C(1000000000)) {
        (void)kit_put(t, 0, 1);
        events++;
        usleep(5000);
    }
    KIT_WAIT(kit_pending(t) == 0);
    uint64_t took_ms = (kit_now_ns() - start) / 1000000;
    assert_true(events > 20);
    assert_true(kit_sends(t) <= took_ms / 100 + 2);
    assert_int_equal(t->rows_taken, events);
}

static void play_no_table(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    play_down(t, body, count, r);
    if (r->verdict != SINK_DELIVERED) {
        r->code = 60;
        (void)snprintf(r->text, sizeof r->text, "blocked: unknown table (code 60, status 404)");
    }
}

/* C17: an unknown table holds the queue; it is shown, and nothing is passed over. */
static void test_c17_unknown_table(void **state)
{
    struct kit *t = *state;
    int64_t first = kit_put(t, 0, 100);
    t->left = 10;
    t->play = play_no_table;
    kit_run_sink(t, kit_options);
    KIT_WAIT(strstr(kit_status(t).error, "blocked: unknown table") != NULL);
    assert_int_equal(kit_pending(t), 100);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 100, 1);
    assert_int_equal(t->prepares, 11);
    for (unsigned i = 1; i <= 10; i++) {
        assert_memory_equal(t->seen[i].hash, t->seen[0].hash, SHA256_LEN);
    }
}

static void play_not_ready(struct kit *t, struct sink_result *r)
{
    if (t->left > 0) {
        t->left--;
        *r = (struct sink_result){.verdict = SINK_RETRY, .text = "blocked: no uuid in ORDER BY"};
    } else {
        (void)snprintf(r->text, sizeof r->text, "warning: no fsync");
    }
}

/* C49: nothing is sent to a destination that is not as it must be; a warning is shown. */
static void test_c49_not_prepared(void **state)
{
    struct kit *t = *state;
    (void)kit_put(t, 0, 10);
    t->left = 4;
    t->play_prepare = play_not_ready;
    kit_run_sink(t, kit_options);
    KIT_WAIT(strstr(kit_status(t).error, "blocked: no uuid") != NULL);
    assert_false(kit_status(t).connected);
    assert_int_equal(kit_sends(t), 0);
    KIT_WAIT(kit_pending(t) == 0);
    assert_int_equal(t->prepares, 5);
    assert_string_equal(kit_status(t).error, "warning: no fsync");
    assert_true(kit_status(t).connected);
}

static void play_bad_project(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)count;
    if (t->left > 0 && kit_has(body, t->bad_project, 0)) {
        *r = (struct sink_result){
            .verdict = SINK_REJECTED, .code = 469, .text = "rows refused: a constraint"};
    }
}

/* A project whose rows are refused waits alone; the others get through (C34, for projects). */
static void test_refused_project(void **state)
{
    struct kit *t = *state;
    char why[200];
    struct sink_options o = kit_options;
    o.backoff_max_ms = 50;
    t->left = 1;
    t->bad_project = t->project[1];
    t->play = play_bad_project;
    int64_t first[4];
    for (int i = 0; i < 4; i++) {
        first[i] = kit_put(t, i, 300);
    }
    kit_run_sink(t, o);
    KIT_WAIT(kit_pending(t) == 300);
    assert_taken(t, first[0], 300, 1);
    assert_taken(t, first[2], 600, 1);
    sink_project_error(t->sink, t->project[1], why);
    assert_string_equal(why, "rows refused: a constraint");
    sink_project_error(t->sink, t->project[0], why);
    assert_string_equal(why, "");
    assert_string_equal(kit_status(t).error, ""); /* the destination works */
    assert_true(kit_status(t).connected);
    /* New events of the others pass at once, in common batches without the refused project. */
    unsigned sends = kit_sends(t);
    int64_t more = kit_put(t, 2, 1000);
    KIT_WAIT(kit_pending(t) == 300);
    assert_taken(t, more, 1000, 1);
    assert_true(kit_sends(t) > sends);
    /* Still refused for a while: nothing is dropped. */
    usleep(300000);
    assert_int_equal(kit_pending(t), 300);
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    t->left = 0;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first[1], 300, 1);
    more = kit_put(t, 1, 2);
    KIT_WAIT(kit_pending(t) == 0);
    sink_project_error(t->sink, t->project[1], why);
    assert_string_equal(why, "");
}

static void play_bad_row(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)count;
    if (kit_has(body, 0, t->bad_id)) {
        *r = (struct sink_result){
            .verdict = SINK_REJECTED, .code = 321, .text = "rows refused: out of range"};
    }
}

/* Good rows of the same project get past a bad one: the position moves on with every batch, and
 * only the bad row's own neighbours wait. */
static void test_bad_row(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.backoff_max_ms = 40;
    int64_t first = kit_put(t, 0, 1000);
    int64_t other = kit_put(t, 1, 1000);
    t->bad_id = first + 5;
    t->play = play_bad_row;
    kit_run_sink(t, o);
    KIT_WAIT(kit_pending(t) <= 100);
    assert_taken(t, other, 1000, 1);
    assert_true(kit_pending(t) >= 1);
    assert_int_equal(t->taken[t->bad_id], 0);
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    t->bad_id = 0;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 1000, 1);
}

/* A batch falls to 100 rows after a rejection and doubles with every success. */
static void play_reject_once(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)body;
    (void)count;
    if (t->left > 0) {
        t->left--;
        *r = (struct sink_result){.verdict = SINK_REJECTED, .text = "rows refused"};
    }
}

static void test_batch_sizes(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.batch_events_max = 800;
    t->left = 1;
    t->play = play_reject_once;
    for (int i = 0; i < 4; i++) {
        (void)kit_put(t, i, 1200);
    }
    kit_run_sink(t, o);
    KIT_WAIT(kit_pending(t) == 0);
    assert_int_equal(t->seen[0].count, 800);
    /* the refused batch, project by project: 200 each */
    for (unsigned i = 1; i <= 4; i++) {
        assert_int_equal(t->seen[i].count, 200);
    }
    unsigned most = 0;
    for (unsigned i = 5; i < t->sends; i++) {
        unsigned allowed = 100u << (i - 5 > 3 ? 3 : i - 5);
        assert_true(t->seen[i].count <= allowed);
        most = t->seen[i].count > most ? (unsigned)t->seen[i].count : most;
    }
    assert_true(most > 200);
}

static void play_memory(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)body;
    if (count > 120) {
        *r = (struct sink_result){.verdict = SINK_RETRY,
                                  .smaller = true,
                                  .code = t->left == 0 ? 241 : 0,
                                  .text = "memory limit reached"};
    }
}

static void prove_smaller(struct kit *t, unsigned reason)
{
    int64_t first = kit_put(t, 0, 1000);
    unsigned before = kit_sends(t);
    t->left = reason;
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 1000, 1);
    assert_int_equal(t->seen[before].count, 1000);
    /* 241 may pass by itself: the same batch a few times first; 413 will not. */
    assert_int_equal(t->seen[before + 1].count, reason == 0 ? 1000 : 500);
    assert_int_equal(t->seen[t->sends - 1].verdict, SINK_DELIVERED);
    kit_end_sink(t);
}

/* C55: a memory limit or a bound on requests is met by smaller batches. */
static void test_c55_smaller(void **state)
{
    struct kit *t = *state;
    t->play = play_memory;
    prove_smaller(t, 0);
    prove_smaller(t, 1);
}

static void play_poison(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)count;
    if (kit_has(body, 0, t->bad_id)) {
        *r = (struct sink_result){.verdict = SINK_UNKNOWN, .text = "no whole answer"};
    }
}

/* A batch that fails for no known reason is let go after some tries: those behind it, of whatever
 * project, have their turn. */
static void test_nobody_starves(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.batch_events_max = 100;
    o.backoff_min_ms = 5;
    o.backoff_max_ms = 10;
    int64_t first = kit_put(t, 0, 500);
    int64_t other = kit_put(t, 1, 500);
    t->bad_id = first;
    t->play = play_poison;
    kit_run_sink(t, o);
    KIT_WAIT(kit_pending(t) <= 100);
    assert_true(kit_pending(t) >= 1);
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    t->bad_id = 0;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 500, 1);
    assert_taken(t, other, 500, 1);
}

/* Refused once, so that its project is sent alone; too large from then on. */
static void play_too_large(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    (void)count;
    if (kit_has(body, 0, t->bad_id)) {
        *r = (struct sink_result){.verdict = SINK_RETRY, .smaller = true, .text = "too large"};
        if (t->left > 0) {
            t->left--;
            *r = (struct sink_result){.verdict = SINK_REJECTED, .text = "rows refused"};
        }
    }
}

/* What is too large in a project that is sent alone makes nobody else's batches small. */
static void test_large_rows_alone(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.backoff_min_ms = 5;
    o.backoff_max_ms = 10;
    t->bad_id = kit_put(t, 0, 100);
    t->left = 1;
    t->play = play_too_large;
    kit_run_sink(t, o);
    KIT_WAIT(kit_sends(t) >= 8);
    (void)kit_put(t, 1, 6000);
    KIT_WAIT(kit_pending(t) <= 100);
    size_t most = 0;
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    for (unsigned i = 0; i < t->sends; i++) {
        most = t->seen[i].count > most ? t->seen[i].count : most;
    }
    t->play = NULL;
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    assert_true(most >= 500);
    KIT_WAIT(kit_pending(t) == 0);
}

static void play_no_reason_known(struct kit *t, struct slice body, size_t count,
                                 struct sink_result *r)
{
    (void)count;
    if (kit_has(body, 0, t->bad_id)) {
        *r = (struct sink_result){.verdict = SINK_RETRY, .code = 6, .text = "refused (code 6)"};
    }
}

/* A row that fails with a code which says nothing costs the others one short wait at a time. */
static void test_failing_alone(void **state)
{
    struct kit *t = *state;
    char why[200];
    struct sink_options o = kit_options;
    o.backoff_max_ms = 5000;
    t->bad_id = kit_put(t, 0, 1);
    t->play = play_no_reason_known;
    kit_run_sink(t, o);
    KIT_WAIT(kit_sends(t) >= 10); /* five in common, five alone */
    uint64_t before = kit_now_ns();
    int64_t other = kit_put(t, 1, 1);
    KIT_WAIT(kit_pending(t) == 1);
    assert_true(kit_now_ns() - before < UINT64_C(2000000000));
    assert_taken(t, other, 1, 1);
    sink_project_error(t->sink, t->project[0], why);
    assert_string_equal(why, "refused (code 6)");
}

/* Rows that went out, by project, and how many batches in a row were one project's. */
static size_t sent_rows[PROJECTS_MAX];
static unsigned in_a_row, most_in_a_row;
static int64_t sent_last;

static void play_count(struct kit *t, struct slice body, size_t count, struct sink_result *r)
{
    int64_t project = 0;
    int64_t id;
    (void)count;
    if (t->left > 0) {
        t->left--;
        *r = (struct sink_result){.verdict = SINK_REJECTED, .text = "rows refused"};
        return;
    }
    while (kit_line(&body, &project, &id)) {
        for (int i = 0; i < PROJECTS_MAX; i++) {
            sent_rows[i] += t->project[i] == project ? 1 : 0;
        }
    }
    in_a_row = project == sent_last ? in_a_row + 1 : 1;
    most_in_a_row = in_a_row > most_in_a_row ? in_a_row : most_in_a_row;
    sent_last = project;
}

/* Projects that are sent alone take turns, whatever the backlog of the first. */
static void test_alone_in_turn(void **state)
{
    struct kit *t = *state;
    t->left = 3; /* the common batch and both of its parts */
    t->play = play_count;
    in_a_row = most_in_a_row = 0;
    sent_last = 0;
    int64_t first = kit_put(t, 0, 8000);
    int64_t other = kit_put(t, 1, 8000);
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 8000, 1);
    assert_taken(t, other, 8000, 1);
    assert_true(most_in_a_row <= 4); /* the backoffs of the two end at different times */
}

/* So do more projects than a batch has rows. */
static void test_more_projects_than_rows(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.batch_events_max = 2;
    t->play = play_count;
    memset(sent_rows, 0, sizeof sent_rows);
    for (int i = 0; i < 4; i++) {
        (void)kit_put(t, i, 100);
    }
    kit_run_sink(t, o);
    KIT_WAIT(kit_sends(t) >= 40);
    size_t least = SIZE_MAX;
    assert_int_equal(pthread_mutex_lock(&t->lock), 0);
    for (int i = 0; i < 4; i++) {
        least = sent_rows[i] < least ? sent_rows[i] : least;
    }
    assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
    assert_true(least >= 15); /* of 20 */
    KIT_WAIT(kit_pending(t) == 0);
}

static struct queue_cursor stored_cursor(struct kit *t)
{
    struct store_reader *r;
    struct queue_cursor c = {0};
    struct err e = {0};
    assert_int_equal(store_reader_open(t->dir, &r, &e), 0);
    assert_int_equal(queue_get_cursor(r, &c, &e), 0);
    store_reader_close(r);
    return c;
}

/* The position is stored behind a batch that failed, so that a restart does not begin with it. */
static void test_position_is_stored(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.batch_events_max = 10;
    o.backoff_min_ms = 60000;
    o.backoff_max_ms = 60000;
    int64_t first = kit_put(t, 0, 100);
    t->left = 1000;
    t->play = play_down;
    kit_run_sink(t, o);
    struct queue_cursor c;
    KIT_WAIT((c = stored_cursor(t)).after_id >= first + 9);
    assert_int_equal(c.project, t->project[0]);
    assert_int_equal(kit_sends(t), 1);
    kit_end_sink(t);
    uint8_t before[SHA256_LEN];
    memcpy(before, t->seen[0].hash, sizeof before);
    kit_run_sink(t, o);
    KIT_WAIT(kit_sends(t) == 2);
    assert_memory_not_equal(t->seen[1].hash, before, SHA256_LEN);
    /* sink_retry_now: the destination came back, whatever the backoff */
    kit_play(t, NULL);
    sink_retry_now(t->sink);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 100, 1);
}

/* The sink can be ended in the middle of everything, quickly, and begins anew. */
static void test_restart_while_sending(void **state)
{
    struct kit *t = *state;
    int64_t first = kit_put(t, 0, 5000);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pthread_mutex_lock(&t->lock), 0);
        t->hang = true;
        unsigned sends = t->sends;
        assert_int_equal(pthread_mutex_unlock(&t->lock), 0);
        kit_run_sink(t, kit_options);
        KIT_WAIT(kit_sends(t) > sends);
        uint64_t start = kit_now_ns();
        kit_end_sink(t);
        assert_true(kit_now_ns() - start < UINT64_C(2000000000));
        assert_int_equal(kit_pending(t), 5000);
    }
    kit_play(t, NULL);
    kit_run_sink(t, kit_options);
    usleep(20000);
    kit_end_sink(t); /* in the middle of recording */
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_pending(t) == 0);
    /* What was delivered was recorded before sink_stop returned. */
    assert_taken(t, first, 5000, 1);
}

/* After the loop: what it left with the loop and the store is finished by sink_stop itself. */
static void test_stop_after_the_loop(void **state)
{
    struct kit *t = *state;
    int64_t first = kit_put(t, 0, 3000);
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_sends(t) >= 1);
    http_stop(t->server);
    assert_int_equal(pthread_join(t->loop, NULL), 0);
    usleep(50000);
    sink_stop(t->sink);
    t->sink = NULL;
    struct store_status st;
    store_get_status(t->store, &st);
    assert_int_equal(st.pending_events, 3000 - t->rows_taken);
    assert_taken(t, first, 0, 1);
    http_free(t->server);
    struct http_config hc = {.limits = http_limits_default,
                             .hooks = {.turn = kit_turn, .tick = kit_tick, .ctx = t}};
    struct err e = {0};
    t->server = http_new(&hc, &e);
    assert_non_null(t->server);
    assert_int_equal(pthread_create(&t->loop, NULL, kit_loop, t), 0);
}

static void poison(struct kit *t, void *arg)
{
    (void)arg;
    store_poison(t->store, "a test");
}

/* A poisoned store: deliveries cannot be recorded, so there are none; status says why. */
static void test_poisoned_store(void **state)
{
    struct kit *t = *state;
    (void)kit_put(t, 0, 100);
    kit_on_loop(t, poison, NULL);
    kit_run_sink(t, kit_options);
    KIT_WAIT(strstr(kit_status(t).error, "cannot be recorded") != NULL);
    usleep(200000);
    unsigned sends = kit_sends(t);
    usleep(300000);
    assert_int_equal(kit_sends(t), sends);
    assert_true(sends <= 5);
    uint64_t start = kit_now_ns();
    kit_end_sink(t);
    assert_true(kit_now_ns() - start < UINT64_C(2000000000));
}

/* What is delivered and cannot be recorded now (another process holds the database, the disk is
 * full) is recorded later; it is not sent again meanwhile. */
static void test_recording_is_repeated(void **state)
{
    struct kit *t = *state;
    char path[128];
    struct sqlite3 *other;
    int64_t first = kit_put(t, 0, 2500);
    (void)snprintf(path, sizeof path, "%s/" STORE_FILE, t->dir);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    kit_run_sink(t, kit_options);
    KIT_WAIT(strstr(kit_status(t).error, "cannot be recorded") != NULL);
    usleep(300000);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 2500, 1);
    assert_string_equal(kit_status(t).error, "");
    assert_int_equal(kit_status(t).delivered, 2500);
}

/* One receipt month a batch, and the next month right behind it. */
static void test_months(void **state)
{
    struct kit *t = *state;
    int64_t first = 0;
    for (int month = 0; month < 6; month++) {
        int64_t id = kit_put_at(t, month % 2, 10, INT64_C(1793000000000) + month * 2678400000);
        first = month == 0 ? id : first;
    }
    kit_run_sink(t, kit_options);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 60, 1);
    assert_true(kit_sends(t) >= 6);
}

/* From the start, and later: nothing is prepared or sent, what was sent is recorded. */
static void test_paused(void **state)
{
    struct kit *t = *state;
    struct sink_options o = kit_options;
    o.paused = true;
    int64_t first = kit_put(t, 0, 50);
    kit_run_sink(t, o);
    assert_true(kit_status(t).paused);
    sink_retry_now(t->sink);
    sink_wake(t->sink);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_sends(t), 0);
        assert_int_equal(t->prepares, 0);
        usleep(10000);
    }
    sink_pause(t->sink, false);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, first, 50, 1);
    sink_pause(t->sink, true);
    sink_pause(t->sink, true);
    unsigned sends = kit_sends(t);
    int64_t later = kit_put(t, 1, 20);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kit_sends(t), sends);
        usleep(10000);
    }
    assert_int_equal(kit_pending(t), 20);
    sink_pause(t->sink, false);
    KIT_WAIT(kit_pending(t) == 0);
    assert_taken(t, later, 20, 1);
    assert_false(kit_status(t).paused);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_everything_once),
                                       T(test_c20_same_bytes),
                                       T(test_backoff),
                                       T(test_c25_slow_down),
                                       T(test_c25_trickle),
                                       T(test_c17_unknown_table),
                                       T(test_c49_not_prepared),
                                       T(test_refused_project),
                                       T(test_bad_row),
                                       T(test_batch_sizes),
                                       T(test_c55_smaller),
                                       T(test_nobody_starves),
                                       T(test_large_rows_alone),
                                       T(test_failing_alone),
                                       T(test_alone_in_turn),
                                       T(test_more_projects_than_rows),
                                       T(test_position_is_stored),
                                       T(test_restart_while_sending),
                                       T(test_stop_after_the_loop),
                                       T(test_poisoned_store),
                                       T(test_recording_is_repeated),
                                       T(test_months),
                                       T(test_paused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
