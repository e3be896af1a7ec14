/* Requests that count as a whole, uploads that end at their client's wish, and those without a
 * declared digest. */
#include "tests/lib/faults.h"
#include "tests/unit/store/upload_kit.h"

#define SIZE 50000
static unsigned char bytes[SIZE];

static int setup(void **state)
{
    kit_fill(bytes, SIZE, 7);
    return kit_setup(state);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, kit_teardown)

/* ---- held ---- */

static void test_what_is_held_does_not_count(void **state)
{
    static unsigned char other[SIZE];
    struct upload_info info;
    struct receipt receipt;
    uint64_t offset;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 1000);
    struct upload *u = kit_open(info.id);
    upload_hold(u);
    assert_int_equal(upload_write(u, other, 30000, NULL, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), 1000);
    assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
    assert_int_equal(offset, 1000);
    assert_int_equal(upload_discard(u, &kit_err), 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 1000);
    /* And on, with the same descriptor: the hash is the one of the first bytes. */
    upload_hold(u);
    assert_int_equal(upload_write(u, bytes + 1000, 20000, NULL, &kit_err), 0);
    upload_release(u);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), 21000);
    upload_close(u);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* However far it goes: no sync of its own saves a state. */
static void test_no_state_is_saved_while_it_is_held(void **state)
{
    const size_t n = UPLOAD_SYNC_BYTES + 3 * UPLOAD_PIECE_BYTES;
    unsigned char *large = malloc(n + 1);
    struct upload_info info;
    uint64_t offset;
    (void)state;
    assert_non_null(large);
    kit_fill(large, n + 1, 3);
    kit_create(&info, large, n + 1);
    faults_install(NULL);
    struct upload *u = kit_open(info.id);
    upload_hold(u);
    assert_int_equal(upload_write(u, large, n, NULL, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), 0);
    assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
    assert_int_equal(offset, 0);
    faults_count_only(OS_CALL_ftruncate, info.id);
    faults_reset();
    assert_int_equal(upload_discard(u, &kit_err), 0);
    assert_true(faults_count() >= 8); /* in steps */
    faults_uninstall();
    upload_close(u);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
    /* At a stop nobody waits: the next open cuts it. */
    u = kit_open(info.id);
    upload_hold(u);
    assert_int_equal(upload_write(u, large, n, NULL, &kit_err), 0);
    uploads_set_stopping(kit_us, true);
    assert_int_equal(upload_discard(u, &kit_err), ERR_NOT_READY);
    upload_close(u);
    uploads_set_stopping(kit_us, false);
    assert_int_equal(kit_offset(info.id), 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
    free(large);
}

static void test_a_discard_that_fails_leaves_it_to_the_next_open(void **state)
{
    static const enum os_call calls[] = {OS_CALL_ftruncate, OS_CALL_fsync, OS_CALL_fstat};
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct upload_info info;
        struct receipt receipt;
        kit_create(&info, bytes, SIZE);
        kit_send(info.id, bytes, 1000);
        faults_install(NULL);
        struct upload *u = kit_open(info.id);
        upload_hold(u);
        assert_int_equal(upload_write(u, bytes, 5000, NULL, &kit_err), 0); /* wrong ones */
        faults_count_only(calls[i], info.id);
        faults_reset();
        faults_arm(1, EIO, false, FAULT_ERROR);
        assert_int_equal(upload_discard(u, &kit_err), ERR_IO);
        assert_int_equal(faults_fired(), 1);
        faults_uninstall();
        assert_int_equal(atomic_load(&u->synced), 1000);
        assert_int_equal(upload_promised(u), 1000);
        upload_close(u);
        assert_int_equal(kit_offset(info.id), 1000);
        assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    }
}

/* ---- terminated ---- */

static void check_no_files(const char *id)
{
    static const char *const suffixes[] = {"", ".info", ".state", ".gone"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(kit_length(kit_path("uploads", id, suffixes[i])), -1);
    }
}

static void test_termination(void **state)
{
    struct upload_info info;
    struct receipt receipt;
    struct upload *u;
    bool left = true;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 1000);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), 0);
    assert_false(left);
    check_no_files(info.id);
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(upload_terminate(kit_us, SLICE("../x"), &left, &kit_err), ERR_NOT_FOUND);
    kit_create(&info, bytes, SIZE);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), ERR_REFUSED);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), SIZE);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &receipt, &kit_err), 0);
}

static void test_a_large_one_is_gone_first_and_freed_later(void **state)
{
    char reason[UPLOAD_REASON_MAX];
    struct upload_info info;
    struct upload *u;
    bool left = false;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 1000);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), UPLOAD_AT_ONCE_BYTES + 1L), 0);
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), ERR_REFUSED);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), 0);
    assert_true(left);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), UPLOAD_AT_ONCE_BYTES + 1L);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_non_null(strstr(reason, "terminated"));
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_GONE);
    kit_restart(KIT_ISSUER);
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_GONE);
    uploads_set_stopping(kit_us, true);
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), ERR_NOT_READY);
    uploads_set_stopping(kit_us, false);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 20 << 20), 0); /* no long pauses */
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), -1);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
}

/* A full disk takes no ID.gone: the description goes instead, which needs no room. */
static void end_large_on_a_full_disk(struct upload_info *info)
{
    bool left = false;
    kit_create(info, bytes, SIZE);
    kit_send(info->id, bytes, 1000);
    assert_int_equal(truncate(kit_path("uploads", info->id, ""), UPLOAD_AT_ONCE_BYTES + 1L), 0);
    faults_install(NULL);
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_reset();
    faults_arm(1, ENOSPC, true, FAULT_ERROR);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info->id), &left, &kit_err), 0);
    faults_uninstall();
    assert_true(left);
    assert_int_equal(kit_length(kit_path("uploads", info->id, ".gone")), -1);
    assert_int_equal(kit_length(kit_path("uploads", info->id, ".info")), -1);
    assert_int_equal(kit_length(kit_path("uploads", info->id, "")), UPLOAD_AT_ONCE_BYTES + 1L);
}

static void test_a_large_one_ends_on_a_full_disk(void **state)
{
    char reason[UPLOAD_REASON_MAX];
    struct upload_info info;
    struct upload *u;
    unsigned count = 0;
    (void)state;
    end_large_on_a_full_disk(&info);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_non_null(strstr(reason, "terminated"));
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 1 << 20), 0); /* no long pauses */
    /* While bytes are left, it is known as gone. */
    faults_install(NULL);
    faults_count_only(OS_CALL_unlink, NULL);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), ERR_IO);
    faults_uninstall();
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), 0);
    check_no_files(info.id);
    assert_false(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(upload_free_gone(kit_us, slice_cstr(info.id), &kit_err), ERR_REFUSED);
    /* A process that ends before has leavings for the next one. */
    end_large_on_a_full_disk(&info);
    kit_restart(KIT_ISSUER);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 1 << 20), 0);
    assert_int_equal(uploads_clean(kit_us, &count, &kit_err), 0);
    assert_int_equal(count, 2);
    check_no_files(info.id);
}

/* Its end is durable, or it is none. */
static void test_a_large_one_whose_end_cannot_be_written_stays(void **state)
{
    char reason[UPLOAD_REASON_MAX];
    struct upload_info info;
    bool left;
    (void)state;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 1000);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), UPLOAD_AT_ONCE_BYTES + 1L), 0);
    faults_install(NULL);
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), ERR_IO);
    /* No room for the note, and the description does not go: five looks, and the note's file. */
    faults_count_only(OS_CALL_ANY, info.id);
    faults_reset();
    faults_arm(7, ENOSPC, true, FAULT_ERROR);
    assert_int_equal(upload_terminate(kit_us, slice_cstr(info.id), &left, &kit_err), ERR_NO_SPACE);
    assert_true(faults_fired() >= 3);
    faults_uninstall();
    assert_int_equal(kit_length(kit_path("uploads", info.id, ".gone")), -1);
    assert_false(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(kit_offset(info.id), 1000);
}

/* ---- without a declared digest ---- */

static void create_undeclared(struct upload_info *info, char digest[BLAKE3_HEX_LEN + 1])
{
    kit_declare(info, bytes, SIZE);
    memcpy(digest, info->checksum, BLAKE3_HEX_LEN + 1);
    info->checksum[0] = '\0';
    assert_int_equal(upload_create(kit_us, info, true, &kit_err), 0);
}

static void test_the_receipt_has_our_digest(void **state)
{
    char digest[BLAKE3_HEX_LEN + 1];
    struct upload_info info;
    struct upload_info read;
    struct receipt receipt;
    (void)state;
    for (int parts = 0; parts < 2; parts++) {
        create_undeclared(&info, digest);
        assert_int_equal(upload_load(kit_us, slice_cstr(info.id), &read, &kit_err), 0);
        assert_string_equal(read.checksum, "");
        if (parts == 1) {
            kit_send(info.id, bytes, 1000);
        }
        assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
        assert_string_equal(receipt.checksum, digest);
        assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
        assert_string_equal(receipt.checksum, digest);
    }
}

/* Nothing could tell whether bytes behind the saved offset are right. */
static void test_only_saved_bytes_are_believed(void **state)
{
    char digest[BLAKE3_HEX_LEN + 1];
    struct upload_info info;
    struct receipt receipt;
    (void)state;
    create_undeclared(&info, digest);
    kit_send(info.id, bytes, 1000);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), SIZE), 0); /* zeros */
    assert_int_equal(kit_offset(info.id), 1000);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 1000);
    /* A lost state: from the beginning, whatever there is. */
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), 3000), 0);
    kit_flip(kit_path("uploads", info.id, ".state"), 100);
    kit_flip(kit_path("uploads", info.id, ".state"), 4196);
    assert_int_equal(kit_offset(info.id), 0);
    kit_send(info.id, bytes, 2000);
    assert_int_equal(kit_offset(info.id), 2000);
    assert_int_equal(unlink(kit_path("uploads", info.id, ".state")), 0);
    assert_int_equal(kit_offset(info.id), 0);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    assert_string_equal(receipt.checksum, digest);
}

static const struct os_table *before;
static struct os_table table;
static unsigned fsyncs_left;

static bool is_receipts(int fd)
{
    char link[64];
    char path[256] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/receipts") != NULL;
}

/* The folder of receipts cannot be synced, so many times. */
static int failing_fsync(int fd)
{
    if (fsyncs_left > 0 && is_receipts(fd)) {
        fsyncs_left--;
        return -EIO;
    }
    return before->fsync(fd);
}

static int failing_unlink(const char *path)
{
    return strstr(path, ".json") != NULL ? -EIO : before->unlink(path);
}

static void fail_acceptance(struct upload_info *info, char digest[BLAKE3_HEX_LEN + 1],
                            bool name_stays)
{
    struct receipt receipt;
    create_undeclared(info, digest);
    kit_send(info->id, bytes, 1000);
    before = os_current();
    table = *before;
    table.fsync = failing_fsync;
    table.unlink = name_stays ? failing_unlink : table.unlink;
    fsyncs_left = 1;
    os_install(&table);
    assert_int_equal(kit_finish(info->id, bytes, &receipt), ERR_IO);
    os_install(before);
    assert_int_equal(kit_length(kit_path("receipts", info->id, ".json")) > 0, name_stays);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info->id), &receipt, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(kit_length(kit_path("uploads", info->id, "")), SIZE);
}

/* The device may hold the receipt: no byte goes, and what is proven is what that receipt says. */
static void test_a_doubtful_receipt_keeps_its_bytes(void **state)
{
    char digest[BLAKE3_HEX_LEN + 1];
    struct upload_info info;
    struct receipt receipt;
    (void)state;
    fail_acceptance(&info, digest, true);
    assert_int_equal(kit_offset(info.id), SIZE);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), SIZE);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    assert_string_equal(receipt.checksum, digest);
}

/* Its name was taken back: that is durable before a byte goes. */
static void test_a_receipt_that_was_taken_back(void **state)
{
    char digest[BLAKE3_HEX_LEN + 1];
    struct upload_info info;
    struct receipt receipt;
    struct upload *u;
    (void)state;
    fail_acceptance(&info, digest, false);
    fsyncs_left = 1;
    os_install(&table);
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_IO);
    os_install(before);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), SIZE);
    assert_int_equal(kit_offset(info.id), 1000);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    assert_string_equal(receipt.checksum, digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_held_does_not_count),
        TEST(test_no_state_is_saved_while_it_is_held),
        TEST(test_a_discard_that_fails_leaves_it_to_the_next_open),
        TEST(test_termination),
        TEST(test_a_large_one_is_gone_first_and_freed_later),
        TEST(test_a_large_one_ends_on_a_full_disk),
        TEST(test_a_large_one_whose_end_cannot_be_written_stays),
        TEST(test_the_receipt_has_our_digest),
        TEST(test_only_saved_bytes_are_believed),
        TEST(test_a_doubtful_receipt_keeps_its_bytes),
        TEST(test_a_receipt_that_was_taken_back),
    };
    return cmocka_run_group_tests_name("upload hold", tests, NULL, NULL);
}
