/* The trailing read-back: what it has read the acceptance does not read again; what the disk gives
 * back wrongly it finds; and where it cannot be had everything is read at the end, as if it were
 * not there. */
#include <pthread.h>
#include <time.h>

#include "store/artifact/upload_trail.h"
#include "tests/lib/faults.h"
#include "tests/lib/no_threads.h"
#include "tests/unit/store/upload_kit.h"

#define STEP 4096u
#define SIZE 100000u

static unsigned char bytes[SIZE];

static int setup(void **state)
{
    struct uploads_options options = {
        .data = kit_dir, .issuer = KIT_ISSUER, .trail_step_bytes = STEP};
    int r = kit_setup(state);
    uploads_close(kit_us);
    assert_int_equal(uploads_open(&options, &kit_us, &kit_err), 0);
    kit_fill(bytes, sizeof bytes, 7);
    return r;
}

#define TRAIL_TEST(f) cmocka_unit_test_setup_teardown(f, setup, kit_teardown)

/* The rest, and the acceptance; *reread: how many bytes it read back. */
static int finish(const char *id, struct receipt *receipt, uint64_t *reread)
{
    _Atomic uint64_t progress = 0;
    struct upload *u = kit_open(id);
    uint64_t from = atomic_load(&u->synced);
    assert_int_equal(upload_write(u, bytes + from, (size_t)(SIZE - from), NULL, &kit_err), 0);
    int r = upload_accept(u, receipt, &progress, &kit_err);
    upload_close(u);
    *reread = progress;
    return r;
}

static void the_acceptance_goes_on_where_the_trail_is(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 50000);
    uploads_trail(kit_us); /* nobody sends: the first request has ended, there will be a second */
    kit_send(info.id, bytes, 90000);
    uploads_trail(kit_us);
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, SIZE - 90000 / STEP * STEP);
    assert_string_equal(receipt.checksum, info.checksum);
}

static void where_the_trail_is_late_the_acceptance_reads_the_rest(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 50000);
    uploads_trail(kit_us);
    kit_send(info.id, bytes, 90000); /* and nobody reads */
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, SIZE - 50000 / STEP * STEP);
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 90000);
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, SIZE);
}

/* One request in one go is not read back, and nothing reads behind it. */
static void one_request_is_not_read_back(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    (void)state;
    kit_create(&info, bytes, SIZE);
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, 0);
}

/* What the disk gives back wrongly is found by whoever reads it. */
static void rot_is_found_by_the_trail(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    char reason[UPLOAD_REASON_MAX];
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 50000);
    kit_flip(kit_path("uploads", info.id, ""), 20000);
    uploads_trail(kit_us);
    kit_flip(kit_path("uploads", info.id, ""), 20000); /* the acceptance would find nothing */
    assert_int_equal(finish(info.id, &receipt, &reread), ERR_CHECKSUM_MISMATCH);
    assert_true(strstr(kit_err.text, "stored") != NULL);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(kit_length(kit_path("receipts", info.id, ".json")), -1);
}

/* Somebody took bytes and their state away; what the trail has read was other bytes. */
static void a_trail_begins_anew_with_its_upload(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    unsigned char wrong[50000];
    (void)state;
    kit_create(&info, bytes, SIZE);
    memset(wrong, 'w', sizeof wrong);
    kit_send(info.id, wrong, sizeof wrong);
    uploads_trail(kit_us);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 0), 0);
    kit_write(kit_path("uploads", info.id, ".state"), "", 0);
    kit_send(info.id, bytes, 49000); /* as many steps as before */
    kit_send(info.id, bytes, 60000);
    uploads_trail(kit_us);
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, SIZE - 60000 / STEP * STEP);
}

/* Somebody who closes late speaks of bytes that were taken away: what was read because of that does
 * not count for an upload that stands below. */
static void what_is_beyond_the_upload_does_not_count(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    _Atomic uint64_t reread = 0;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 50000);
    struct upload *late = kit_open(info.id);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 0), 0);
    kit_write(kit_path("uploads", info.id, ".state"), "", 0);
    kit_send(info.id, bytes, 30000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes + 30000, SIZE - 30000, NULL, &kit_err), 0);
    upload_close(late);
    uploads_trail(kit_us);
    assert_int_equal(upload_accept(u, &receipt, &reread, &kit_err), 0);
    upload_close(u);
    assert_int_equal(reread, SIZE);
    assert_string_equal(receipt.checksum, info.checksum);
}

/* A roll-back in the first request makes two of it; the trail never was beyond what was synced. */
static void a_roll_back_does_not_touch_the_trail(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    uint64_t reread;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 30000);
    uploads_trail(kit_us);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes + 30000, 30000, NULL, &kit_err), 0);
    faults_install(NULL);
    faults_count_only(OS_CALL_fdatasync, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(upload_sync(u, &kit_err), ERR_IO);
    faults_uninstall();
    assert_int_equal(upload_write(u, bytes + 30000, SIZE - 40000, NULL, &kit_err), 0);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    upload_close(u);
    uploads_trail(kit_us);
    assert_int_equal(finish(info.id, &receipt, &reread), 0);
    assert_int_equal(reread, SIZE - 90000 / STEP * STEP);
}

/* A step that cannot be read says nothing about the upload: all is read again. */
static void a_trail_that_cannot_read_is_none(void **state)
{
    static const enum os_call calls[] = {OS_CALL_open, OS_CALL_pread};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct upload_info info;
        struct receipt receipt;
        uint64_t reread;
        kit_create(&info, bytes, SIZE);
        kit_send(info.id, bytes, 50000);
        faults_install(NULL);
        faults_count_only(calls[i], NULL);
        faults_arm(1, EIO, false, FAULT_ERROR);
        uploads_trail(kit_us);
        assert_int_equal(faults_fired(), 1);
        faults_uninstall();
        kit_send(info.id, bytes, 90000);
        uploads_trail(kit_us);
        assert_int_equal(finish(info.id, &receipt, &reread), 0);
        assert_int_equal(reread, SIZE);
    }
}

/* ---- the trails themselves ---- */

static void name_of(unsigned i, char id[UPLOAD_ID_LEN + 1])
{
    (void)snprintf(id, UPLOAD_ID_LEN + 1, "%032x", i);
}

static void put_file(unsigned i, size_t n, char id[UPLOAD_ID_LEN + 1])
{
    name_of(i, id);
    kit_write(kit_path("uploads", id, ""), bytes, n);
}

static void expect_hash(const struct blake3 *hash, uint64_t n)
{
    struct blake3 h;
    uint8_t want[BLAKE3_LEN];
    uint8_t have[BLAKE3_LEN];
    blake3_start(&h);
    blake3_add(&h, bytes, n);
    blake3_end(&h, want);
    blake3_end(hash, have);
    assert_memory_equal(have, want, sizeof want);
}

/* However many there are, memory has its bound: the one that nobody followed for longest goes. */
static void trails_are_bounded(void **state)
{
    struct trails *ts = trails_new(kit_us, 0, STEP);
    struct blake3 hash;
    char id[UPLOAD_ID_LEN + 1];
    (void)state;
    assert_non_null(ts);
    for (unsigned i = 0; i < TRAILS_MAX; i++) {
        put_file(i, i == 0 ? 3 * STEP : STEP, id);
        trail_follow(ts, id, STEP);
    }
    trails_run(ts);
    name_of(0, id);
    trail_follow(ts, id, 3 * STEP); /* the second is the oldest now */
    put_file(TRAILS_MAX, STEP, id);
    trail_follow(ts, id, STEP);
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), STEP);
    expect_hash(&hash, STEP);
    name_of(0, id);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 3 * STEP);
    expect_hash(&hash, 3 * STEP);
    name_of(1, id);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 0);
    expect_hash(&hash, 0);
    trails_free(ts);
}

/* ---- keeping near ---- */

static struct os_table slow;
static const struct os_table *below;
static _Atomic unsigned gate; /* so many reads of the trail may go on */
static _Atomic bool near;

static void nap(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int64_t gated_pread(int fd, void *p, size_t n, uint64_t at)
{
    while (atomic_load(&gate) == 0) {
        nap();
    }
    atomic_fetch_sub(&gate, 1);
    return below->pread(fd, p, n, at);
}

static void *keep_near(void *ctx)
{
    char id[UPLOAD_ID_LEN + 1];
    name_of(1, id);
    trail_keep_near(ctx, id, 2 * STEP);
    atomic_store(&near, true);
    return NULL;
}

static void a_writer_waits_for_its_trail(void **state)
{
    struct trails *ts = trails_new(kit_us, 1, STEP);
    char id[UPLOAD_ID_LEN + 1];
    pthread_t thread;
    (void)state;
    assert_non_null(ts);
    put_file(1, SIZE, id);
    trail_keep_near(ts, id, 0); /* there is none */
    below = os_current();
    slow = *below;
    slow.pread = gated_pread;
    os_install(&slow);
    atomic_store(&gate, 0);
    atomic_store(&near, false);
    trail_follow(ts, id, 6 * STEP);
    assert_int_equal(pthread_create(&thread, NULL, keep_near, ts), 0);
    atomic_store(&gate, 3); /* three more are missing then */
    while (atomic_load(&gate) > 0) {
        nap();
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_false(atomic_load(&near));
        nap();
    }
    atomic_store(&gate, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&near));
    /* A store that stops lets go of whoever waits. */
    trail_follow(ts, id, 20 * STEP);
    assert_int_equal(pthread_create(&thread, NULL, keep_near, ts), 0);
    uploads_set_stopping(kit_us, true);
    trails_wake(ts);
    assert_int_equal(pthread_join(thread, NULL), 0);
    atomic_store(&gate, 1000);
    trails_free(ts);
    uploads_set_stopping(kit_us, false);
    os_install(below);
}

static void what_is_below_a_step_is_left_to_the_end(void **state)
{
    struct trails *ts = trails_new(kit_us, 0, STEP);
    struct blake3 hash;
    char id[UPLOAD_ID_LEN + 1];
    (void)state;
    assert_non_null(ts);
    put_file(1, SIZE, id);
    trail_follow(ts, id, STEP - 1);
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 0);
    trail_follow(ts, id, 2 * STEP - 1);
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), STEP);
    expect_hash(&hash, STEP);
    /* What was taken stays, and goes on when the upload does. */
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), STEP);
    trail_follow(ts, id, 2 * STEP);
    uploads_set_stopping(kit_us, true);
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), STEP);
    uploads_set_stopping(kit_us, false);
    trail_follow(ts, id, 2 * STEP);
    trails_run(ts);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 2 * STEP);
    trail_forget(ts, id);
    assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 0);
    trail_forget(ts, id);
    trails_free(ts);
}

/* Until it stands there; its threads need as long as they need. */
static void await(struct trails *ts, const char *id, uint64_t offset)
{
    struct blake3 hash;
    for (int i = 0; i < 30000; i++) {
        uint64_t at = trail_take(ts, id, UINT64_MAX, &hash);
        expect_hash(&hash, at);
        if (at == offset) {
            return;
        }
        trail_follow(ts, id, offset);
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    fail_msg("the trail does not get on");
}

/* Followed, taken, forgotten while others read. */
static void threads_read(void **state)
{
    struct trails *ts = trails_new(kit_us, 2, STEP);
    char id[8][UPLOAD_ID_LEN + 1];
    (void)state;
    assert_non_null(ts);
    for (unsigned i = 0; i < 8; i++) {
        put_file(i, SIZE, id[i]);
    }
    for (uint64_t at = STEP; at <= SIZE; at += STEP) {
        for (unsigned i = 0; i < 8; i++) {
            trail_follow(ts, id[i], at);
        }
        if (at == 10 * STEP) {
            trail_forget(ts, id[7]);
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        await(ts, id[i], SIZE / STEP * STEP);
        if (i % 2 == 0) {
            trail_forget(ts, id[i]);
        }
    }
    for (unsigned i = 0; i < 8; i++) {
        trail_follow(ts, id[i], SIZE);
    }
    trails_free(ts); /* in the middle of it */
}

/* No thread can be had: nobody waits for one, the acceptance reads all of it; the next time one is
 * asked for again. */
static void without_threads_nothing_is_read_ahead(void **state)
{
    struct trails *ts = trails_new(kit_us, 1, STEP);
    struct blake3 hash;
    char id[UPLOAD_ID_LEN + 1];
    (void)state;
    assert_non_null(ts);
    put_file(1, SIZE, id);
    threads_left = 0;
    threads_fail = NO_THREADS;
    trail_follow(ts, id, 10 * STEP);
    threads_fail = false;
    if (NO_THREADS) {
        trail_keep_near(ts, id, 0);
        assert_int_equal(trail_take(ts, id, UINT64_MAX, &hash), 0);
    }
    trail_follow(ts, id, 20 * STEP);
    await(ts, id, 20 * STEP);
    trails_free(ts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRAIL_TEST(the_acceptance_goes_on_where_the_trail_is),
        TRAIL_TEST(where_the_trail_is_late_the_acceptance_reads_the_rest),
        TRAIL_TEST(one_request_is_not_read_back),
        TRAIL_TEST(rot_is_found_by_the_trail),
        TRAIL_TEST(a_trail_begins_anew_with_its_upload),
        TRAIL_TEST(what_is_beyond_the_upload_does_not_count),
        TRAIL_TEST(a_roll_back_does_not_touch_the_trail),
        TRAIL_TEST(a_trail_that_cannot_read_is_none),
        TRAIL_TEST(trails_are_bounded),
        TRAIL_TEST(what_is_below_a_step_is_left_to_the_end),
        TRAIL_TEST(a_writer_waits_for_its_trail),
        TRAIL_TEST(threads_read),
        TRAIL_TEST(without_threads_nothing_is_read_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
