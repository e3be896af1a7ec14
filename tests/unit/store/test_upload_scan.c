/* Rounds, removal, cleaning after a crash, and several threads at once. */
#include <pthread.h>

#include "tests/lib/faults.h"
#include "upload_kit.h"

#define SIZE 30000u

static unsigned char bytes[SIZE];

static int fill(void **state)
{
    (void)state;
    kit_fill(bytes, sizeof bytes, 5);
    return 0;
}

struct seen {
    struct upload_seen list[16];
    char ids[16][UPLOAD_ID_LEN + 1];
    unsigned count;
    int result;
};

static int note(void *ctx, const struct upload_seen *one)
{
    struct seen *seen = ctx;
    assert_true(seen->count < 16);
    seen->list[seen->count] = *one;
    (void)snprintf(seen->ids[seen->count], sizeof seen->ids[0], "%s", one->id);
    seen->count++;
    return seen->result;
}

static const struct upload_seen *find(const struct seen *seen, const char *id)
{
    for (unsigned i = 0; i < seen->count; i++) {
        if (strcmp(seen->ids[i], id) == 0) {
            return &seen->list[i];
        }
    }
    return NULL;
}

/* One upload of each kind; all have SIZE bytes declared. */
struct all {
    struct upload_info partial, complete, accepted, gone, broken;
};

static void make_all(struct all *a)
{
    struct receipt receipt;
    kit_create(&a->partial, bytes, SIZE);
    kit_send(a->partial.id, bytes, 7000);
    kit_create(&a->complete, bytes, SIZE);
    kit_send(a->complete.id, bytes, 7000);
    kit_write(kit_path("uploads", a->complete.id, ""), bytes, SIZE);
    kit_create(&a->accepted, bytes, SIZE);
    assert_int_equal(kit_finish(a->accepted.id, bytes, &receipt), 0);
    kit_declare(&a->gone, bytes, SIZE);
    a->gone.checksum[0] = a->gone.checksum[0] == '0' ? '1' : '0';
    assert_int_equal(upload_create(kit_us, &a->gone, true, &kit_err), 0);
    assert_int_equal(kit_finish(a->gone.id, bytes, &receipt), ERR_CHECKSUM_MISMATCH);
    kit_create(&a->broken, bytes, SIZE);
    assert_int_equal(truncate(kit_path("uploads", a->broken.id, ".info"), 10), 0);
}

static void test_a_round_tells_the_kinds(void **state)
{
    (void)state;
    struct all a;
    struct seen seen = {0};
    uint64_t now = os_clock_real_ms();
    make_all(&a);
    kit_write(kit_path("uploads", "not-an-upload", ".info"), "{}", 2);
    kit_write(kit_path("uploads", "README", ""), "x", 1);
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), 0);
    assert_int_equal(seen.count, 5);
    const struct upload_seen *one = find(&seen, a.partial.id);
    assert_int_equal(one->kind, UPLOAD_PARTIAL);
    assert_int_equal(one->size, SIZE);
    assert_int_equal(one->length, 7000);
    assert_in_range(one->activity_ms, now - 2000, os_clock_real_ms() + 2000);
    assert_int_equal(find(&seen, a.complete.id)->kind, UPLOAD_COMPLETE);
    assert_int_equal(find(&seen, a.accepted.id)->kind, UPLOAD_ACCEPTED);
    assert_int_equal(find(&seen, a.gone.id)->kind, UPLOAD_GONE);
    assert_int_equal(find(&seen, a.gone.id)->length, 0);
    assert_int_equal(find(&seen, a.broken.id)->kind, UPLOAD_BROKEN);
}

static void test_activity_is_the_newest_change(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", ".info", ".state"};
    struct upload_info info;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 100);
    for (size_t newest = 0; newest < 3; newest++) {
        for (size_t i = 0; i < 3; i++) {
            struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                        {.tv_sec = i == newest ? 2000 : 1000}};
            assert_int_equal(
                utimensat(AT_FDCWD, kit_path("uploads", info.id, suffixes[i]), times, 0), 0);
        }
        struct seen seen = {0};
        assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), 0);
        assert_int_equal(seen.list[0].activity_ms, 2000000);
    }
}

static void test_a_round_can_be_ended(void **state)
{
    (void)state;
    struct all a;
    struct seen seen = {.result = ERR_SERVER_SHUTDOWN};
    make_all(&a);
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), ERR_SERVER_SHUTDOWN);
    assert_int_equal(seen.count, 1);
}

/* A call that fails says nothing about the upload: it is neither stale nor broken. */
static void test_a_failed_look_leaves_one_out(void **state)
{
    (void)state;
    static const enum os_call calls[] = {OS_CALL_stat, OS_CALL_open, OS_CALL_pread, OS_CALL_fstat};
    struct all a;
    make_all(&a);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct seen seen = {0};
        faults_install(NULL);
        faults_count_only(calls[i], a.partial.id);
        faults_reset();
        faults_arm(1, EIO, true, FAULT_ERROR);
        assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), ERR_IO);
        assert_true(faults_fired() > 0);
        faults_uninstall();
        assert_int_equal(seen.count, 4);
        assert_null(find(&seen, a.partial.id));
    }
    struct seen seen = {0};
    faults_install(NULL);
    faults_count_only(OS_CALL_list, NULL);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), ERR_IO);
    faults_uninstall();
}

/* The accepted ones stay for good: of each a round asks one thing, and a start one a name. */
static void test_accepted_uploads_cost_little(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct all a;
    unsigned count;
    make_all(&a);
    faults_install(NULL);
    faults_count_only(OS_CALL_ANY, a.accepted.id);
    faults_reset();
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), 0);
    assert_int_equal(find(&seen, a.accepted.id)->kind, UPLOAD_ACCEPTED);
    assert_int_equal(faults_count(), 1);
    faults_reset();
    assert_int_equal(uploads_clean(kit_us, &count, &kit_err), 0);
    assert_in_range(faults_count(), 1, 3); /* ID, .state, .gone */
    faults_uninstall();
}

static void check_removed(const struct upload_info *info)
{
    static const char *const suffixes[] = {"", ".info", ".state", ".gone"};
    struct upload *u;
    char reason[UPLOAD_REASON_MAX];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(kit_length(kit_path("uploads", info->id, suffixes[i])), -1);
    }
    assert_false(upload_gone(kit_us, slice_cstr(info->id), reason));
    assert_int_equal(upload_open(kit_us, slice_cstr(info->id), &u, &kit_err), ERR_NOT_FOUND);
}

static void test_removal(void **state)
{
    (void)state;
    struct all a;
    make_all(&a);
    struct upload_info *const unaccepted[] = {&a.partial, &a.complete, &a.gone, &a.broken};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(upload_remove(kit_us, slice_cstr(unaccepted[i]->id), &kit_err), 0);
        check_removed(unaccepted[i]);
        assert_int_equal(upload_remove(kit_us, slice_cstr(unaccepted[i]->id), &kit_err), 0);
    }
    assert_int_equal(upload_remove(kit_us, slice_cstr(a.accepted.id), &kit_err), ERR_REFUSED);
    assert_int_equal(kit_length(kit_path("uploads", a.accepted.id, "")), SIZE);
    assert_int_equal(upload_remove(kit_us, SLICE("../x"), &kit_err), ERR_NOT_FOUND);
}

/* Cut at every call, then taken up again: it ends removed, and is never anything but whole or gone
 * in between. */
static void test_a_removal_that_is_cut_is_taken_up(void **state)
{
    (void)state;
    for (uint64_t at = 1;; at++) {
        struct upload_info info;
        struct upload *u;
        unsigned count;
        kit_create(&info, bytes, SIZE);
        kit_send(info.id, bytes, 20000);
        faults_install(NULL);
        faults_count_only(OS_CALL_ANY, NULL);
        faults_reset();
        faults_arm(at, EIO, true, FAULT_ERROR);
        int r = upload_remove(kit_us, slice_cstr(info.id), &kit_err);
        bool fired = faults_fired() > 0;
        faults_uninstall();
        if (!fired) {
            assert_int_equal(r, 0);
            break;
        }
        kit_restart(KIT_ISSUER);
        assert_int_equal(uploads_clean(kit_us, &count, &kit_err), 0);
        r = upload_open(kit_us, slice_cstr(info.id), &u, &kit_err);
        if (r == 0) {
            assert_int_equal(atomic_load(&u->synced), 20000);
            upload_close(u);
        } else {
            assert_true(r == ERR_GONE || r == ERR_NOT_FOUND);
        }
        assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), 0);
        check_removed(&info);
    }
}

/* An upload that cannot be looked at may be one with a receipt: nothing of it goes. */
static void test_what_cannot_be_looked_at_stays(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", ".info", ".state"};
    struct all a;
    int64_t lengths[3];
    make_all(&a);
    for (size_t n = 0; n < 2; n++) {
        const char *id = n == 0 ? a.accepted.id : a.partial.id;
        for (size_t i = 0; i < 3; i++) {
            lengths[i] = kit_length(kit_path("uploads", id, suffixes[i]));
            assert_true(lengths[i] >= 0);
        }
        for (uint64_t at = 1; at <= 5; at++) {
            faults_install(NULL);
            faults_count_only(OS_CALL_stat, id);
            faults_reset();
            faults_arm(at, EIO, false, FAULT_ERROR);
            assert_int_equal(upload_remove(kit_us, slice_cstr(id), &kit_err), ERR_IO);
            assert_int_equal(faults_fired(), 1);
            faults_uninstall();
            for (size_t i = 0; i < 3; i++) {
                assert_int_equal(kit_length(kit_path("uploads", id, suffixes[i])), lengths[i]);
            }
            assert_int_equal(kit_length(kit_path("uploads", id, ".gone")), -1);
        }
    }
}

/* A full disk keeps nothing from being removed. */
static void test_removal_on_a_full_disk(void **state)
{
    (void)state;
    struct upload_info info;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 20000);
    faults_install(NULL);
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_reset();
    faults_arm(1, ENOSPC, true, FAULT_ERROR);
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), 0);
    assert_true(faults_fired() > 0);
    faults_uninstall();
    check_removed(&info);
}

/* Large ones go in steps. */
static void test_large_removal(void **state)
{
    (void)state;
    struct upload_info info;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 100);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 20 << 20), 0);
    faults_install(NULL);
    faults_count_only(OS_CALL_ftruncate, info.id);
    faults_reset();
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), 0);
    assert_int_equal(faults_count(), 3);
    faults_uninstall();
    check_removed(&info);
}

static void test_cleaning_after_a_crash(void **state)
{
    (void)state;
    struct all a;
    struct seen seen = {0};
    unsigned count = 9;
    static const char lost[] = "0123456789abcdef0123456789abcdef";
    static const char kept[] = "1123456789abcdef0123456789abcdef";
    make_all(&a);
    kit_write(kit_path("uploads", ".gone-", lost), "x", 1);
    kit_write(kit_path("uploads", ".state-", lost), "x", 1);
    kit_write(kit_path("receipts", ".receipt-", lost), "x", 1);
    kit_write(kit_path("uploads", lost, ""), bytes, SIZE);
    kit_write(kit_path("uploads", lost, ".state"), "", 0);
    kit_write(kit_path("uploads", lost, ".gone"), "x", 1);
    /* Not ours, or accepted. */
    kit_write(kit_path("uploads", ".gone-", "x"), "x", 1);
    kit_write(kit_path("receipts", ".other", ""), "x", 1);
    kit_write(kit_path("uploads", kept, ""), bytes, SIZE);
    kit_write(kit_path("receipts", kept, ".json"), "x", 1);
    assert_int_equal(uploads_clean(kit_us, &count, &kit_err), 0);
    assert_int_equal(count, 6);
    assert_int_equal(kit_length(kit_path("uploads", ".gone-", lost)), -1);
    assert_int_equal(kit_length(kit_path("uploads", ".state-", lost)), -1);
    assert_int_equal(kit_length(kit_path("receipts", ".receipt-", lost)), -1);
    assert_int_equal(kit_length(kit_path("uploads", lost, "")), -1);
    assert_int_equal(kit_length(kit_path("uploads", lost, ".state")), -1);
    assert_int_equal(kit_length(kit_path("uploads", lost, ".gone")), -1);
    assert_int_equal(kit_length(kit_path("uploads", ".gone-", "x")), 1);
    assert_int_equal(kit_length(kit_path("receipts", ".other", "")), 1);
    assert_int_equal(kit_length(kit_path("uploads", kept, "")), SIZE);
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), 0);
    assert_int_equal(seen.count, 5);
    assert_int_equal(uploads_clean(kit_us, &count, &kit_err), 0);
    assert_int_equal(count, 0);
}

/* ---- opening the store ---- */

static void test_bounds_of_the_options(void **state)
{
    (void)state;
    char text[1200];
    struct uploads *us;
    struct uploads_options options = {.data = kit_dir, .issuer = text};
    memset(text, 'x', sizeof text);
    text[513] = '\0';
    assert_int_equal(uploads_open(&options, &us, &kit_err), ERR_USAGE);
    text[512] = '\0';
    assert_int_equal(uploads_open(&options, &us, &kit_err), 0);
    uploads_close(us);
    memset(text, '<', 512);
    assert_int_equal(uploads_open(&options, &us, &kit_err), ERR_USAGE);
    options = (struct uploads_options){.data = text, .issuer = KIT_ISSUER};
    memset(text, 'y', sizeof text);
    text[901] = '\0';
    assert_int_equal(uploads_open(&options, &us, &kit_err), ERR_USAGE);
    options.data = "/proc/there/is/none";
    assert_int_equal(uploads_open(&options, &us, &kit_err), ERR_IO);
    assert_null(us);
    uploads_close(NULL);
    upload_close(NULL);
}

/* ---- threads ---- */

#define THREADS 4
#define EACH    12

static void *many_uploads(void *ctx)
{
    struct err e;
    for (unsigned i = 0; i < EACH; i++) {
        struct upload_info info;
        struct receipt receipt;
        struct upload *u;
        bool wrong = i % 4 == 3;
        kit_declare(&info, bytes, SIZE);
        info.checksum[5] = wrong ? (info.checksum[5] == 'a' ? 'b' : 'a') : info.checksum[5];
        if (upload_create(kit_us, &info, i % 2 == 0, &e) != 0 ||
            upload_open_new(kit_us, &info, &u, &e) != 0) {
            return ctx;
        }
        int r = upload_write(u, bytes, SIZE, NULL, &e);
        r = r == 0 ? upload_accept(u, &receipt, NULL, &e) : r;
        upload_close(u);
        if (r != (wrong ? ERR_CHECKSUM_MISMATCH : 0)) {
            return ctx;
        }
        r = receipt_load(kit_us, slice_cstr(info.id), &receipt, &e);
        if (r != (wrong ? ERR_NOT_FOUND : 0)) {
            return ctx;
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    static int anything;
    struct seen seen = {.result = 0};
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, many_uploads, &anything), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    seen.result = ERR_SERVER_SHUTDOWN;
    assert_int_equal(uploads_scan(kit_us, note, &seen, &kit_err), ERR_SERVER_SHUTDOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_a_round_tells_the_kinds),
        KIT_TEST(test_activity_is_the_newest_change),
        KIT_TEST(test_a_round_can_be_ended),
        KIT_TEST(test_a_failed_look_leaves_one_out),
        KIT_TEST(test_accepted_uploads_cost_little),
        KIT_TEST(test_removal),
        KIT_TEST(test_a_removal_that_is_cut_is_taken_up),
        KIT_TEST(test_what_cannot_be_looked_at_stays),
        KIT_TEST(test_removal_on_a_full_disk),
        KIT_TEST(test_large_removal),
        KIT_TEST(test_cleaning_after_a_crash),
        KIT_TEST(test_bounds_of_the_options),
        KIT_TEST(test_threads),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
