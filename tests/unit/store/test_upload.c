/* The upload store's way of success, on a real disk: files, receipts, requests of all sizes; and
 * the one refusal that is an answer, wrong bytes. */
#include "store/artifact/upload_internal.h"
#include "upload_kit.h"

#define SIZE 100000u

static unsigned char bytes[SIZE];

static int fill(void **state)
{
    (void)state;
    kit_fill(bytes, sizeof bytes, 1);
    return 0;
}

static void test_ids(void **state)
{
    (void)state;
    assert_true(upload_id_ok(SLICE("0123456789abcdef0123456789abcdef")));
    assert_false(upload_id_ok(SLICE("0123456789abcdef0123456789abcde")));
    assert_false(upload_id_ok(SLICE("0123456789abcdef0123456789abcdef0")));
    assert_false(upload_id_ok(SLICE("0123456789ABCDEF0123456789abcdef")));
    assert_false(upload_id_ok(SLICE("../../../../etc/passwd\0\0\0\0\0\0\0\0\0\0")));
    assert_false(upload_id_ok(SLICE("")));
}

static void test_creation_makes_the_three_files(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload_info loaded;
    struct stat st;
    char json[2000] = "";
    kit_create(&info, bytes, SIZE);
    assert_true(upload_id_ok(slice_cstr(info.id)));
    assert_true(info.created_ms > 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, ".state")), 0);
    assert_int_equal(stat(kit_path("uploads", info.id, ".info"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    json[kit_read(kit_path("uploads", info.id, ".info"), json, sizeof json - 1)] = '\0';
    char want[2000];
    (void)snprintf(
        want, sizeof want,
        "{\"ID\":\"%s\",\"Size\":100000,\"SizeIsDeferred\":false,\"Offset\":0,"
        "\"MetaData\":{\"checksum\":\"blake3:%s\",\"filename\":\"page \\\"1\\\" \xc3\xa4"
        ".warc.gz\",\"project\":\"demo-files\"},\"IsPartial\":false,\"IsFinal\":false,"
        "\"PartialUploads\":null,\"Storage\":{\"InfoPath\":\"%s/uploads/%s.info\","
        "\"Path\":\"%s/uploads/%s\",\"Type\":\"filestore\"},\"Tallyman\":{\"created_at\":",
        info.id, info.checksum, kit_dir, info.id, kit_dir, info.id);
    assert_memory_equal(json, want, strlen(want));
    assert_int_equal(upload_load(kit_us, slice_cstr(info.id), &loaded, &kit_err), 0);
    assert_memory_equal(&loaded, &info, sizeof info);
    assert_int_equal(kit_offset(info.id), 0);
}

static void test_unknown_uploads(void **state)
{
    (void)state;
    struct upload *u;
    struct receipt receipt;
    struct upload_info info;
    char reason[UPLOAD_REASON_MAX];
    uint64_t offset;
    static const char *const ids[] = {"0123456789abcdef0123456789abcdef", "../uploads/x", ""};
    for (size_t i = 0; i < 3; i++) {
        struct slice id = slice_cstr(ids[i]);
        assert_int_equal(upload_open(kit_us, id, &u, &kit_err), ERR_NOT_FOUND);
        assert_int_equal(upload_load(kit_us, id, &info, &kit_err), ERR_NOT_FOUND);
        assert_int_equal(receipt_load(kit_us, id, &receipt, &kit_err), ERR_NOT_FOUND);
        assert_int_equal(upload_synced_offset(kit_us, id, &offset, &kit_err), ERR_NOT_FOUND);
        assert_false(upload_gone(kit_us, id, reason));
    }
}

static void check_receipt(const struct upload_info *info, const struct receipt *receipt,
                          const char *issuer_json)
{
    char want[RECEIPT_BYTES_MAX];
    char stored[RECEIPT_BYTES_MAX] = "";
    struct receipt loaded;
    (void)snprintf(want, sizeof want,
                   "{\"id\":\"receipt:%s\",\"issuer\":%s,\"object_id\":\"%s\",\"checksum\":"
                   "\"blake3:%s\",\"size_bytes\":%llu,\"accepted_at\":%lld}",
                   info->id, issuer_json, info->id, info->checksum, (unsigned long long)info->size,
                   (long long)receipt->accepted_at);
    assert_int_equal(receipt->json_len, strlen(want));
    assert_memory_equal(receipt->json, want, strlen(want));
    assert_int_equal(kit_read(kit_path("receipts", info->id, ".json"), stored, sizeof stored),
                     strlen(want));
    assert_memory_equal(stored, want, strlen(want));
    assert_int_equal(receipt_load(kit_us, slice_cstr(info->id), &loaded, &kit_err), 0);
    assert_memory_equal(&loaded, receipt, sizeof loaded);
}

static void check_stored(const struct upload_info *info, const unsigned char *want)
{
    static unsigned char got[SIZE + 1];
    assert_int_equal(kit_read(kit_path("uploads", info->id, ""), got, sizeof got), info->size);
    assert_memory_equal(got, want, (size_t)info->size);
    assert_int_equal(kit_length(kit_path("receipts", ".receipt-", info->id)), -1);
}

static void test_creation_with_the_whole_file(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u;
    struct receipt receipt;
    size_t written = 0;
    kit_declare(&info, bytes, SIZE);
    assert_int_equal(upload_create(kit_us, &info, false, &kit_err), 0);
    assert_int_equal(upload_open_new(kit_us, &info, &u, &kit_err), 0);
    assert_int_equal(upload_write(u, bytes, SIZE, &written, &kit_err), 0);
    assert_int_equal(written, SIZE);
    assert_int_equal(atomic_load(&u->synced), 0);
    _Atomic uint64_t progress = 0;
    int64_t before = (int64_t)(os_clock_real_ms() / 1000);
    assert_int_equal(upload_accept(u, &receipt, &progress, &kit_err), 0);
    assert_int_equal(progress, 0); /* what was hashed on its way in counts */
    assert_int_equal(atomic_load(&u->synced), SIZE);
    upload_close(u);
    assert_in_range(receipt.accepted_at, before, os_clock_real_ms() / 1000);
    check_receipt(&info, &receipt, "\"" KIT_ISSUER "\"");
    check_stored(&info, bytes);
    assert_int_equal(kit_length(kit_path("uploads", info.id, ".state")), -1); /* never needed */
}

/* The creation's body is cut: what came is synced, and the names with it. */
static void test_creation_with_a_part(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u;
    struct receipt receipt;
    kit_declare(&info, bytes, SIZE);
    assert_int_equal(upload_create(kit_us, &info, false, &kit_err), 0);
    assert_int_equal(upload_open_new(kit_us, &info, &u, &kit_err), 0);
    assert_int_equal(upload_write(u, bytes, 12345, NULL, &kit_err), 0);
    assert_int_equal(upload_sync(u, &kit_err), 0);
    assert_int_equal(atomic_load(&u->synced), 12345);
    upload_close(u);
    kit_restart(KIT_ISSUER);
    assert_int_equal(kit_offset(info.id), 12345);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    check_stored(&info, bytes);
}

static void test_requests_one_after_the_other(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    uint64_t offset;
    kit_create(&info, bytes, SIZE);
    static const uint64_t ends[] = {1, 4096, 5000, 70001, SIZE - 1};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        kit_send(info.id, bytes, ends[i]);
        assert_int_equal(kit_length(kit_path("uploads", info.id, "")), ends[i]);
        assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
        assert_int_equal(offset, ends[i]);
        kit_restart(KIT_ISSUER);
        assert_int_equal(kit_offset(info.id), ends[i]);
    }
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes + SIZE - 1, 1, NULL, &kit_err), 0);
    _Atomic uint64_t progress = 0;
    assert_int_equal(upload_accept(u, &receipt, &progress, &kit_err), 0);
    assert_int_equal(progress, SIZE); /* read back from the device */
    upload_close(u);
    check_receipt(&info, &receipt, "\"" KIT_ISSUER "\"");
    check_stored(&info, bytes);
}

static void test_what_is_not_synced_is_cut(void **state)
{
    (void)state;
    struct upload_info info;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 3000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes, 5000, NULL, &kit_err), 0); /* the wrong ones */
    assert_int_equal(atomic_load(&u->synced), 3000);
    upload_close(u);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 8000);
    assert_int_equal(kit_offset(info.id), 3000);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 3000);
    struct receipt receipt;
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    check_stored(&info, bytes);
}

static void test_a_receipt_never_changes(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt first;
    struct receipt again;
    kit_restart("https://files.example/<a>&b\"");
    kit_create(&info, bytes, 500);
    assert_int_equal(kit_finish(info.id, bytes, &first), 0);
    check_receipt(&info, &first, "\"https://files.example/\\u003ca\\u003e\\u0026b\\\"\"");
    assert_string_equal(first.issuer, "https://files.example/<a>&b\"");
    kit_restart(KIT_ISSUER);
    struct upload *u = kit_open(info.id);
    assert_int_equal(atomic_load(&u->synced), 500);
    assert_int_equal(upload_accept(u, &again, NULL, &kit_err), 0);
    upload_close(u);
    assert_memory_equal(&again, &first, sizeof first);
    /* Even where the bytes are gone: they were delivered and purged. */
    assert_int_equal(unlink(kit_path("uploads", info.id, "")), 0);
    u = kit_open(info.id);
    assert_int_equal(upload_accept(u, &again, NULL, &kit_err), 0);
    upload_close(u);
    assert_memory_equal(&again, &first, sizeof first);
}

static void check_refused(const struct upload_info *info, const char *found)
{
    char reason[UPLOAD_REASON_MAX];
    struct upload *u;
    struct receipt receipt;
    assert_true(upload_gone(kit_us, slice_cstr(info->id), reason));
    assert_non_null(strstr(reason, info->checksum));
    assert_non_null(strstr(reason, found));
    assert_int_equal(upload_open(kit_us, slice_cstr(info->id), &u, &kit_err), ERR_GONE);
    assert_string_equal(kit_err.text, reason);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info->id), &receipt, &kit_err), ERR_NOT_FOUND);
    assert_int_equal(kit_length(kit_path("uploads", info->id, "")), -1);
    assert_int_equal(kit_length(kit_path("uploads", info->id, ".state")), -1);
    assert_int_equal(kit_length(kit_path("uploads", ".gone-", info->id)), -1);
    assert_true(kit_length(kit_path("uploads", info->id, ".info")) > 0);
}

static void test_wrong_bytes_are_refused(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload_info right;
    struct receipt receipt;
    for (int parts = 0; parts < 2; parts++) {
        kit_declare(&right, bytes, SIZE);
        kit_declare(&info, bytes + 1, SIZE - 1);
        info.size = SIZE;
        assert_int_equal(upload_create(kit_us, &info, true, &kit_err), 0);
        if (parts == 1) {
            kit_send(info.id, bytes, 70000);
        }
        struct upload *u = kit_open(info.id);
        uint64_t from = atomic_load(&u->synced);
        assert_int_equal(upload_write(u, bytes + from, SIZE - from, NULL, &kit_err), 0);
        assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_CHECKSUM_MISMATCH);
        assert_non_null(strstr(kit_err.text, info.checksum));
        assert_non_null(strstr(kit_err.text, right.checksum));
        assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_GONE);
        assert_int_equal(upload_sync(u, &kit_err), ERR_GONE);
        upload_close(u);
        check_refused(&info, right.checksum);
        assert_null(kit_us->marks); /* strangers can have any number refused */
        kit_restart(KIT_ISSUER);    /* not only in memory */
        check_refused(&info, right.checksum);
    }
}

/* Nobody waits for the reading of a large file when the process is to end; nothing is lost by that,
 * and what is small is finished all the same. */
static void test_a_stop_ends_long_readings(void **state)
{
    (void)state;
    size_t size = UPLOAD_SYNC_BYTES + 2 * UPLOAD_PIECE_BYTES;
    unsigned char *large = malloc(size);
    struct upload_info info;
    struct upload *u;
    struct receipt receipt;
    assert_non_null(large);
    kit_fill(large, size, 5);
    kit_create(&info, large, size);
    kit_send(info.id, large, 1000);
    u = kit_open(info.id);
    assert_int_equal(upload_write(u, large + 1000, size - 1000, NULL, &kit_err), 0);
    uploads_set_stopping(kit_us, true);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_NOT_READY);
    upload_close(u);
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_NOT_READY);
    assert_int_equal(upload_remove(kit_us, slice_cstr(info.id), &kit_err), ERR_NOT_READY);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), size);
    assert_int_equal(unlink(kit_path("uploads", info.id, ".gone")), 0); /* of the removal */
    kit_create(&info, large, 2000);
    kit_send(info.id, large, 1000);
    assert_int_equal(kit_finish(info.id, large, &receipt), 0);
    free(large);
}

/* The same, taken up again. */
static void test_what_a_stop_left_is_finished(void **state)
{
    (void)state;
    size_t size = UPLOAD_SYNC_BYTES + 2 * UPLOAD_PIECE_BYTES;
    unsigned char *large = malloc(size);
    struct upload_info info;
    struct receipt receipt;
    assert_non_null(large);
    kit_fill(large, size, 6);
    kit_create(&info, large, size);
    kit_send(info.id, large, 1000);
    uploads_set_stopping(kit_us, true);
    assert_int_equal(kit_finish(info.id, large, &receipt), ERR_NOT_READY);
    kit_restart(KIT_ISSUER);
    assert_int_equal(kit_offset(info.id), size);
    assert_int_equal(kit_finish(info.id, large, &receipt), 0);
    free(large);
}

static uint64_t reserved_to;

static int count_reserve(int fd, uint64_t offset, uint64_t n)
{
    (void)fd;
    assert_true(offset <= reserved_to); /* without a gap */
    reserved_to = offset + n;
    return 0;
}

/* Blocks ahead are no more than what has come: a gigabyte that is declared costs nothing. */
static void test_blocks_ahead_grow_with_what_came(void **state)
{
    (void)state;
    struct os_table table = os_real;
    struct upload_info info;
    unsigned char *piece = malloc(UPLOAD_PIECE_BYTES);
    assert_non_null(piece);
    kit_fill(piece, UPLOAD_PIECE_BYTES, 3);
    kit_declare(&info, piece, UPLOAD_PIECE_BYTES);
    info.size = UINT64_C(1) << 30;
    table.reserve = count_reserve;
    reserved_to = 0;
    os_install(&table);
    assert_int_equal(upload_create(kit_us, &info, true, &kit_err), 0);
    struct upload *u = kit_open(info.id);
    for (uint64_t n = 1; n <= 40; n++) {
        uint64_t came = n * UPLOAD_PIECE_BYTES;
        assert_int_equal(upload_write(u, piece, UPLOAD_PIECE_BYTES, NULL, &kit_err), 0);
        assert_true(reserved_to >= came);
        assert_true(reserved_to <= 2 * came + 8 * UPLOAD_PIECE_BYTES);
    }
    upload_close(u);
    free(piece);
}

/* A large one: the state is saved on the way, an end without a sync costs what is behind it. */
static void test_a_large_upload_is_synced_on_its_way(void **state)
{
    (void)state;
    size_t size = UPLOAD_SYNC_BYTES + 3 * UPLOAD_PIECE_BYTES + 77;
    unsigned char *large = malloc(size);
    struct upload_info info;
    struct receipt receipt;
    assert_non_null(large);
    kit_fill(large, size, 9);
    kit_create(&info, large, size);
    struct upload *u = kit_open(info.id);
    for (size_t at = 0; at < size - 1000; at += UPLOAD_PIECE_BYTES) {
        size_t n = size - 1000 - at < UPLOAD_PIECE_BYTES ? size - 1000 - at : UPLOAD_PIECE_BYTES;
        assert_int_equal(upload_write(u, large + at, n, NULL, &kit_err), 0);
    }
    assert_int_equal(atomic_load(&u->synced), UPLOAD_SYNC_BYTES);
    upload_close(u);
    struct stat st;
    assert_int_equal(stat(kit_path("uploads", info.id, ""), &st), 0);
    /* What was reserved ahead goes back at once, and its length is that of the bytes. */
    assert_int_equal(st.st_size, size - 1000);
    assert_true(st.st_blocks * 512 <= st.st_size + (1 << 20));
    assert_int_equal(kit_offset(info.id), UPLOAD_SYNC_BYTES);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), UPLOAD_SYNC_BYTES);
    assert_int_equal(stat(kit_path("uploads", info.id, ""), &st), 0);
    assert_true(st.st_blocks * 512 <= (int64_t)UPLOAD_SYNC_BYTES + (1 << 20));
    /* The rest in odd pieces. */
    u = kit_open(info.id);
    for (size_t at = UPLOAD_SYNC_BYTES; at < size; at += 333333) {
        size_t n = size - at < 333333 ? size - at : 333333;
        assert_int_equal(upload_write(u, large + at, n, NULL, &kit_err), 0);
    }
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), 0);
    upload_close(u);
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_ids),
        KIT_TEST(test_creation_makes_the_three_files),
        KIT_TEST(test_unknown_uploads),
        KIT_TEST(test_creation_with_the_whole_file),
        KIT_TEST(test_creation_with_a_part),
        KIT_TEST(test_requests_one_after_the_other),
        KIT_TEST(test_what_is_not_synced_is_cut),
        KIT_TEST(test_a_receipt_never_changes),
        KIT_TEST(test_wrong_bytes_are_refused),
        KIT_TEST(test_blocks_ahead_grow_with_what_came),
        KIT_TEST(test_a_stop_ends_long_readings),
        KIT_TEST(test_what_a_stop_left_is_finished),
        KIT_TEST(test_a_large_upload_is_synced_on_its_way),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
