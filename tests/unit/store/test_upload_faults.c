/* Calls that fail under the upload store, one kind at a time (all of them at every call:
 * tests/crash/crash_artifact.c): what is told, what stays, and that it goes on afterwards. */
#include "tests/lib/faults.h"
#include "upload_kit.h"

#define SIZE (3u * UPLOAD_PIECE_BYTES)

static unsigned char bytes[SIZE];
static struct os_table table;

static int fill(void **state)
{
    (void)state;
    kit_fill(bytes, sizeof bytes, 3);
    return 0;
}

/* Descriptors have their paths from their opening, so that the faults are there from the start. */
static int setup(void **state)
{
    int r = kit_setup(state);
    faults_install(NULL);
    return r;
}

static int teardown(void **state)
{
    faults_uninstall();
    return kit_teardown(state);
}

/* Fails the at-th call of this kind, from now on, whose path has `path` in it. */
static void break_call(enum os_call call, const char *path, uint64_t at, int error, bool sticky)
{
    faults_count_only(call, path);
    faults_arm(at, error, sticky, FAULT_ERROR);
}

static void mend(void)
{
    assert_true(faults_fired() > 0);
    faults_count_only(OS_CALL_ANY, NULL);
    faults_reset();
}

static const struct os_table *before;

/* A table of our own, the one in force for a start. */
static void table_copy(void)
{
    before = os_current();
    table = *before;
}

static int full_fd(int fd)
{
    (void)fd;
    return -ENOSPC;
}

static int full_file(int fd, uint64_t size)
{
    (void)fd;
    (void)size;
    return -ENOSPC;
}

/* No bytes can be synced, and this call fails as well. */
static void disk_is_full(enum os_call call)
{
    table_copy();
    table.fdatasync = full_fd;
    if (call == OS_CALL_ftruncate) {
        table.ftruncate = full_file;
    } else {
        table.fsync = full_fd;
    }
    os_install(&table);
}

static struct upload *begin(struct upload_info *info, uint64_t first)
{
    kit_create(info, bytes, SIZE);
    if (first > 0) {
        kit_send(info->id, bytes, first);
    }
    return kit_open(info->id);
}

static void check_can_be_asked(const struct upload_info *info, uint64_t synced)
{
    kit_restart(KIT_ISSUER);
    assert_int_equal(kit_offset(info->id), synced);
}

static void check_can_be_finished(const struct upload_info *info, uint64_t synced)
{
    struct receipt receipt;
    check_can_be_asked(info, synced);
    assert_int_equal(kit_finish(info->id, bytes, &receipt), 0);
}

static void test_a_write_that_fails_is_rolled_back(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u = begin(&info, 5000);
    break_call(OS_CALL_pwrite, info.id, 2, EIO, false);
    assert_int_equal(upload_write(u, bytes + 5000, SIZE - 5000, NULL, &kit_err), ERR_IO);
    mend();
    assert_int_equal(atomic_load(&u->synced), 5000);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 5000);
    /* The same request may go on. */
    assert_int_equal(upload_write(u, bytes + 5000, 100, NULL, &kit_err), 0);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    upload_close(u);
    check_can_be_finished(&info, 5100);
}

static void test_a_full_disk_takes_nothing_back(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u = begin(&info, 0);
    size_t written = 0;
    break_call(OS_CALL_pwrite, info.id, 2, ENOSPC, false);
    assert_int_equal(upload_write(u, bytes, SIZE, &written, &kit_err), ERR_NO_SPACE);
    mend();
    assert_int_equal(written, UPLOAD_PIECE_BYTES);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), UPLOAD_PIECE_BYTES);
    upload_close(u);
    check_can_be_finished(&info, UPLOAD_PIECE_BYTES);
}

static unsigned room_left;
static int room_fd; /* for the bytes; a state has its room */

static int64_t little_room(int fd, const void *p, size_t n, uint64_t offset)
{
    if (fd != room_fd) {
        return before->pwrite(fd, p, n, offset);
    }
    size_t take = n < room_left ? n : room_left;
    room_left -= (unsigned)take;
    return take == 0 ? -ENOSPC : before->pwrite(fd, p, take, offset);
}

/* Nor does it save by itself what came before it, though that would be due: its caller does. */
static void test_a_full_disk_is_told_at_once(void **state)
{
    (void)state;
    struct upload_info info;
    size_t written = 0;
    kit_declare(&info, bytes, SIZE);
    info.size = 2 * (uint64_t)UPLOAD_SYNC_BYTES;
    assert_int_equal(upload_create(kit_us, &info, true, &kit_err), 0);
    kit_send(info.id, bytes, 5000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), UPLOAD_SYNC_BYTES), 0);
    u->written = UPLOAD_SYNC_BYTES; /* as if so much had come: 5000 bytes more make a save due */
    room_left = 6000;
    room_fd = u->fd;
    table_copy();
    table.pwrite = little_room;
    os_install(&table);
    assert_int_equal(upload_write(u, bytes, 10000, &written, &kit_err), ERR_NO_SPACE);
    os_install(before);
    assert_int_equal(written, 6000);
    assert_int_equal(atomic_load(&u->synced), 5000);
    upload_close(u);
    check_can_be_asked(&info, 5000);
}

static void test_a_sync_that_fails_is_rolled_back(void **state)
{
    (void)state;
    static const struct {
        enum os_call call;
        const char *suffix;
        int error, code;
    } cases[] = {
        {OS_CALL_fdatasync, "", EIO, ERR_IO},
        {OS_CALL_fdatasync, "", ENOSPC, ERR_NO_SPACE},
        {OS_CALL_fdatasync, ".info", EIO, ERR_IO},
        {OS_CALL_fsync, "uploads", EIO, ERR_IO}, /* the folder */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t first = 0; first <= 5000; first += 5000) {
            struct upload_info info;
            struct upload *u = begin(&info, first);
            const char *path = cases[i].suffix[0] == '.' ? cases[i].suffix : "uploads";
            assert_int_equal(upload_write(u, bytes + first, 9000, NULL, &kit_err), 0);
            break_call(cases[i].call, path, 1, cases[i].error, false);
            assert_int_equal(upload_sync(u, &kit_err), cases[i].code);
            mend();
            assert_int_equal(atomic_load(&u->synced), first);
            assert_int_equal(kit_length(kit_path("uploads", info.id, "")), first);
            upload_close(u);
            check_can_be_finished(&info, first);
        }
    }
}

/* The bytes are synced, that they are cannot be written down, however long: nothing of them goes,
 * nothing is added, and the next request begins where the disk says, which is no less than was told
 * (and more, where the save has landed after all). */
static void test_a_save_that_fails_keeps_the_bytes(void **state)
{
    (void)state;
    static const struct {
        enum os_call call;
        int error, code;
        bool sticky, landed;
    } cases[] = {
        {OS_CALL_pwrite, ENOSPC, ERR_NO_SPACE, true, false},
        {OS_CALL_pwrite, EIO, ERR_IO, true, false},
        {OS_CALL_fdatasync, EIO, ERR_IO, true, true},
        {OS_CALL_fdatasync, ENOSPC, ERR_NO_SPACE, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t first = 0; first <= 5000; first += 5000) {
            struct upload_info info;
            struct upload *u = begin(&info, first);
            assert_int_equal(upload_write(u, bytes + first, 9000, NULL, &kit_err), 0);
            break_call(cases[i].call, ".state", 1, cases[i].error, cases[i].sticky);
            assert_int_equal(upload_sync(u, &kit_err), cases[i].code);
            assert_int_equal(upload_sync(u, &kit_err), ERR_IO);
            assert_int_equal(upload_write(u, bytes, 1, NULL, &kit_err), ERR_IO);
            mend();
            assert_false(u->gone);
            assert_int_equal(atomic_load(&u->synced), first);
            upload_close(u);
            assert_int_equal(kit_length(kit_path("uploads", info.id, "")), first + 9000);
            check_can_be_finished(&info, cases[i].landed ? first + 9000 : first);
        }
    }
}

/* Bytes that cannot be cut for want of space: that ends, and the next request cuts them. */
static void test_no_space_for_the_way_back_is_not_gone(void **state)
{
    (void)state;
    static const enum os_call calls[] = {OS_CALL_ftruncate, OS_CALL_fsync};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct upload_info info;
        struct upload *u = begin(&info, 5000);
        assert_int_equal(upload_write(u, bytes + 5000, 9000, NULL, &kit_err), 0);
        disk_is_full(calls[i]);
        assert_int_equal(upload_sync(u, &kit_err), ERR_NO_SPACE);
        assert_int_equal(upload_write(u, bytes, 1, NULL, &kit_err), ERR_IO);
        os_install(before);
        assert_int_equal(atomic_load(&u->synced), 5000);
        upload_close(u);
        check_can_be_finished(&info, 5000);
    }
}

static void test_no_way_back_is_gone(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u = begin(&info, 5000);
    struct upload *other;
    struct receipt receipt;
    char reason[UPLOAD_REASON_MAX];
    assert_int_equal(upload_write(u, bytes + 5000, 9000, NULL, &kit_err), 0);
    break_call(OS_CALL_ANY, info.id, 1, EIO, true); /* ID.gone as well */
    assert_int_equal(upload_sync(u, &kit_err), ERR_GONE);
    mend();
    assert_int_equal(upload_sync(u, &kit_err), ERR_GONE);
    assert_int_equal(upload_write(u, bytes, 1, NULL, &kit_err), ERR_GONE);
    assert_non_null(strstr(kit_err.text, "the disk failed")); /* the reason */
    upload_close(u);
    /* ID.gone is not there: the store knows it by itself, as long as it lives. */
    assert_int_equal(kit_length(kit_path("uploads", info.id, ".gone")), -1);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_true(reason[0] != '\0');
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &other, &kit_err), ERR_GONE);
    kit_restart(KIT_ISSUER);
    assert_false(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* ---- write-back: reported once, to whoever asks first ---- */

static int write_back_result;
static bool write_back_waits;

static int some_write_back(int fd, uint64_t offset, uint64_t n, bool wait)
{
    (void)fd;
    (void)offset;
    (void)n;
    return wait == write_back_waits ? write_back_result : 0;
}

static int no_reserve(int fd, uint64_t offset, uint64_t n)
{
    (void)fd;
    (void)offset;
    (void)n;
    return -ENOSPC;
}

static void test_write_back(void **state)
{
    (void)state;
    static const struct {
        int result, code;
    } cases[] = {{-EIO, ERR_IO}, {-ENOSPC, ERR_IO}, {-ENOSYS, 0}, {-EINVAL, 0}};
    size_t size = 16 * UPLOAD_PIECE_BYTES;
    unsigned char *large = malloc(size);
    struct upload_info info;
    struct receipt receipt;
    assert_non_null(large);
    kit_fill(large, size, 4);
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        kit_create(&info, large, size);
        struct upload *u = kit_open(info.id);
        table_copy();
        table.write_back = some_write_back;
        table.reserve = no_reserve;
        write_back_result = cases[i / 2].result;
        write_back_waits = i % 2 == 1;
        os_install(&table);
        assert_int_equal(upload_write(u, large, size, NULL, &kit_err), cases[i / 2].code);
        os_install(before);
        assert_int_equal(atomic_load(&u->synced), 0);
        if (cases[i / 2].code != 0) {
            assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
        } else {
            assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), 0);
        }
        upload_close(u);
    }
    free(large);
}

static unsigned write_back_calls, write_back_fails;
static int write_back_error;

static int one_write_back(int fd, uint64_t offset, uint64_t n, bool wait)
{
    (void)fd;
    (void)offset;
    (void)n;
    (void)wait;
    return ++write_back_calls == write_back_fails ? write_back_error : 0;
}

/* Asked once, and what comes of the pieces behind it does not make up for it. */
static void test_one_write_back(void **state)
{
    (void)state;
    size_t size = 10 * UPLOAD_PIECE_BYTES;
    unsigned char *large = malloc(size);
    struct upload_info info;
    assert_non_null(large);
    kit_fill(large, size, 4);
    kit_create(&info, large, size);
    struct upload *u = kit_open(info.id);
    table_copy();
    table.write_back = one_write_back;
    table.reserve = no_reserve;
    write_back_calls = 0;
    write_back_fails = 9; /* the ninth piece, with which the first is awaited */
    write_back_error = -EIO;
    os_install(&table);
    assert_int_equal(upload_write(u, large, size, NULL, &kit_err), ERR_IO);
    os_install(before);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
    upload_close(u);
    free(large);
}

static void test_write_back_before_a_receipt(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    kit_create(&info, bytes, 1000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes, 1000, NULL, &kit_err), 0);
    table_copy();
    table.write_back = some_write_back;
    write_back_result = -EIO;
    write_back_waits = true;
    os_install(&table);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_IO);
    os_install(before);
    upload_close(u);
    assert_int_equal(kit_offset(info.id), 0);
    assert_int_equal(kit_length(kit_path("receipts", ".receipt-", info.id)), -1);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* An error is reported once: to begin or to await the writing of any of the three files. */
static void test_each_write_back_before_a_receipt(void **state)
{
    (void)state;
    struct receipt receipt;
    int r = -1;
    write_back_error = -ENOSPC;
    for (write_back_fails = 1; r != 0 && write_back_fails < 9; write_back_fails++) {
        struct upload_info info;
        kit_create(&info, bytes, 1000);
        struct upload *u = kit_open(info.id);
        assert_int_equal(upload_write(u, bytes, 1000, NULL, &kit_err), 0);
        write_back_calls = 0;
        table_copy();
        table.write_back = one_write_back;
        os_install(&table);
        r = upload_accept(u, &receipt, NULL, &kit_err);
        os_install(before);
        assert_int_equal(r, write_back_fails <= 6 ? ERR_NO_SPACE : 0);
        upload_close(u);
    }
    assert_int_equal(write_back_calls, 6);
}

/* ---- acceptance ---- */

static void test_an_acceptance_that_fails(void **state)
{
    (void)state;
    static const struct {
        enum os_call call;
        const char *path;
        int error, code;
    } cases[] = {
        {OS_CALL_open, ".receipt-", EMFILE, ERR_IO},
        {OS_CALL_pwrite, ".receipt-", ENOSPC, ERR_NO_SPACE},
        {OS_CALL_fdatasync, ".receipt-", EIO, ERR_IO},
        {OS_CALL_close, ".receipt-", EIO, ERR_IO},
        {OS_CALL_rename, ".receipt-", EIO, ERR_IO},
        {OS_CALL_fdatasync, "uploads", EIO, ERR_IO},
        {OS_CALL_open, ".info", EMFILE, ERR_IO},
        {OS_CALL_drop_cache, "uploads", EIO, ERR_IO},
        {OS_CALL_pread, "uploads", EIO, ERR_IO},
    };
    struct receipt receipt;
    for (size_t n = 0; n < 2 * sizeof cases / sizeof *cases; n++) {
        size_t i = n / 2;
        struct upload_info info;
        struct upload *u = begin(&info, 5000);
        assert_int_equal(upload_write(u, bytes + 5000, SIZE - 5000, NULL, &kit_err), 0);
        break_call(cases[i].call, cases[i].path, 1, cases[i].error, n % 2 == 1);
        assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), cases[i].code);
        mend();
        assert_int_equal(atomic_load(&u->synced), 5000); /* there is something left to send */
        upload_close(u);
        assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &receipt, &kit_err),
                         ERR_NOT_FOUND);
        assert_int_equal(kit_length(kit_path("receipts", ".receipt-", info.id)), -1);
        check_can_be_finished(&info, 5000);
    }
}

/* The name is in place, the folder's sync failed: nobody may be told, no byte may go. */
static void test_a_doubtful_receipt(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    struct upload *u = begin(&info, 5000);
    assert_int_equal(upload_write(u, bytes + 5000, SIZE - 5000, NULL, &kit_err), 0);
    break_call(OS_CALL_fsync, "receipts", 1, EIO, false);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_IO);
    mend();
    assert_int_equal(atomic_load(&u->synced), 5000);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), SIZE);
    assert_int_equal(upload_write(u, bytes, 0, NULL, &kit_err), ERR_IO);
    assert_int_equal(upload_sync(u, &kit_err), ERR_IO);
    upload_close(u);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &receipt, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), ERR_REFUSED);
    break_call(OS_CALL_stat, info.id, 1, EIO, false);
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), ERR_IO);
    mend();
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), SIZE);
    assert_int_equal(kit_offset(info.id), SIZE); /* acceptance is due */
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &receipt, &kit_err), 0);
}

static uint64_t real_ms;

static uint64_t jumping_clock(void)
{
    real_ms += 1500;
    return real_ms;
}

static void test_the_second_is_that_of_the_rename(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    struct receipt stored;
    kit_create(&info, bytes, 1000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes, 1000, NULL, &kit_err), 0);
    real_ms = UINT64_C(1800000000000);
    table_copy();
    table.clock_real_ms = jumping_clock;
    os_install(&table);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), 0);
    os_install(before);
    upload_close(u);
    assert_int_equal(receipt.accepted_at, real_ms / 1000);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &stored, &kit_err), 0);
    assert_memory_equal(&stored, &receipt, sizeof stored);
}

static void test_a_refusal_that_cannot_be_written_down(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    char reason[UPLOAD_REASON_MAX];
    kit_declare(&info, bytes, 1000);
    assert_int_equal(upload_create(kit_us, &info, true, &kit_err), 0);
    bytes[7] ^= 1;
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes, 1000, NULL, &kit_err), 0);
    break_call(OS_CALL_pwrite, ".gone-", 1, ENOSPC, true);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_CHECKSUM_MISMATCH);
    mend();
    bytes[7] ^= 1;
    upload_close(u);
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 1000); /* nothing is freed */
    assert_int_equal(kit_length(kit_path("uploads", ".gone-", info.id)), -1);
    /* A removal that fails does not make it an upload again. */
    break_call(OS_CALL_open, info.id, 1, EIO, true);
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), ERR_IO);
    mend();
    assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
    kit_restart(KIT_ISSUER);
    assert_false(upload_gone(kit_us, slice_cstr(info.id), reason));
    assert_int_equal(kit_offset(info.id), 0); /* unproven, so cut */
}

static void test_a_creation_that_fails_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        enum os_call call;
        const char *path;
    } cases[] = {{OS_CALL_open, ".info"},  {OS_CALL_pwrite, ".info"},
                 {OS_CALL_close, ".info"}, {OS_CALL_fdatasync, ".info"},
                 {OS_CALL_open, ".state"}, {OS_CALL_fsync, "uploads"}};
    struct upload_info info;
    struct upload_info loaded;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kit_declare(&info, bytes, 1000);
        break_call(cases[i].call, cases[i].path, 1, ENOSPC, false);
        assert_int_equal(upload_create(kit_us, &info, true, &kit_err), ERR_NO_SPACE);
        mend();
        assert_int_equal(upload_load(kit_us, slice_cstr(info.id), &loaded, &kit_err),
                         ERR_NOT_FOUND);
        assert_int_equal(kit_length(kit_path("uploads", info.id, "")), -1);
        assert_int_equal(kit_length(kit_path("uploads", info.id, ".state")), -1);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_write_that_fails_is_rolled_back),
        T(test_a_full_disk_takes_nothing_back),
        T(test_a_full_disk_is_told_at_once),
        T(test_a_sync_that_fails_is_rolled_back),
        T(test_a_save_that_fails_keeps_the_bytes),
        T(test_no_space_for_the_way_back_is_not_gone),
        T(test_no_way_back_is_gone),
        T(test_write_back),
        T(test_one_write_back),
        T(test_write_back_before_a_receipt),
        T(test_each_write_back_before_a_receipt),
        T(test_an_acceptance_that_fails),
        T(test_a_doubtful_receipt),
        T(test_the_second_is_that_of_the_rename),
        T(test_a_refusal_that_cannot_be_written_down),
        T(test_a_creation_that_fails_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
