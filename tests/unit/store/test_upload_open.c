/* What an open finds: other programs' files, states that are torn, lost or another library's, files
 * that are longer, shorter or complete; and everything that is no .info and no receipt. */
#include "tests/lib/faults.h"
#include "upload_kit.h"

#define SIZE 20000u

static unsigned char bytes[SIZE];

static int fill(void **state)
{
    (void)state;
    kit_fill(bytes, sizeof bytes, 2);
    return 0;
}

/* ---- the files of others ---- */

static const char foreign_id[] = "d0d1d2d3d4d5d6d7d8d9dadbdcdddedf";

/* The text with the checksum of the bytes where it has an '@'. */
static void write_foreign(const char *text)
{
    struct upload_info info;
    char json[2000];
    const char *at = strchr(text, '@');
    kit_declare(&info, bytes, SIZE);
    int before = at != NULL ? (int)(at - text) : (int)strlen(text);
    int n = snprintf(json, sizeof json, "%.*s%s%s", before, text, at != NULL ? info.checksum : "",
                     at != NULL ? at + 1 : "");
    kit_write(kit_path("uploads", foreign_id, ".info"), json, (size_t)n);
}

#define FOREIGN                                                                                 \
    "{\"ID\":\"d0d1d2d3d4d5d6d7d8d9dadbdcdddedf\",\"Size\":20000,\"SizeIsDeferred\":false,"     \
    "\"Offset\":0,\"MetaData\":{\"checksum\":\"blake3:@\",\"filename\":\"a.warc\",\"project\":" \
    "\"demo\"},\"IsPartial\":false,\"IsFinal\":false,\"PartialUploads\":null,\"Storage\":"      \
    "{\"InfoPath\":\"/etc/shadow.info\",\"Path\":\"/etc/shadow\",\"Type\":\"filestore\"}}"

static void test_an_upload_of_canner_goes_on(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    write_foreign(FOREIGN);
    kit_write(kit_path("uploads", foreign_id, ""), bytes, 7000);
    assert_int_equal(upload_load(kit_us, slice_cstr(foreign_id), &info, &kit_err), 0);
    assert_int_equal(info.size, SIZE);
    assert_string_equal(info.project, "demo");
    assert_string_equal(info.filename, "a.warc");
    assert_string_equal(info.metadata, "");
    assert_true(info.created_ms > 0); /* the file's time */
    assert_int_equal(kit_offset(foreign_id), 7000);
    assert_int_equal(kit_length(kit_path("uploads", foreign_id, ".state")), 8192);
    kit_send(foreign_id, bytes, 9000);
    assert_int_equal(kit_finish(foreign_id, bytes, &receipt), 0);
}

static void test_a_complete_upload_of_canner_is_accepted(void **state)
{
    (void)state;
    struct receipt receipt;
    write_foreign(FOREIGN);
    kit_write(kit_path("uploads", foreign_id, ""), bytes, SIZE);
    assert_int_equal(kit_offset(foreign_id), SIZE);
    assert_int_equal(kit_finish(foreign_id, bytes, &receipt), 0);
}

static void test_a_complete_wrong_upload_of_canner_is_refused(void **state)
{
    (void)state;
    struct receipt receipt;
    write_foreign(FOREIGN);
    kit_write(kit_path("uploads", foreign_id, ""), bytes, SIZE);
    kit_flip(kit_path("uploads", foreign_id, ""), 3);
    assert_int_equal(kit_offset(foreign_id), SIZE);
    assert_int_equal(kit_finish(foreign_id, bytes, &receipt), ERR_CHECKSUM_MISMATCH);
}

static void test_a_file_longer_than_declared_is_cut(void **state)
{
    (void)state;
    struct receipt receipt;
    write_foreign(FOREIGN);
    kit_write(kit_path("uploads", foreign_id, ""), bytes, SIZE);
    assert_int_equal(truncate(kit_path("uploads", foreign_id, ""), SIZE + 5), 0);
    assert_int_equal(kit_offset(foreign_id), SIZE);
    assert_int_equal(kit_length(kit_path("uploads", foreign_id, "")), SIZE);
    assert_int_equal(kit_finish(foreign_id, bytes, &receipt), 0);
}

#define WITH(head, meta) "{" head ",\"MetaData\":{" meta "}}"
#define ID               "\"ID\":\"d0d1d2d3d4d5d6d7d8d9dadbdcdddedf\""
#define META             "\"checksum\":\"blake3:@\",\"project\":\"demo\""

static void test_what_is_no_info(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{}",
        WITH("\"ID\":\"x\",\"Size\":5", META),
        WITH("\"ID\":\"00d1d2d3d4d5d6d7d8d9dadbdcdddedf\",\"Size\":5", META),
        WITH(ID, META),
        WITH(ID ",\"Size\":0", META),
        WITH(ID ",\"Size\":-5", META),
        WITH(ID ",\"Size\":5.5", META),
        WITH(ID ",\"Size\":9223372036854775808", META),
        WITH(ID ",\"Size\":\"5\"", META),
        WITH(ID ",\"Size\":5,\"SizeIsDeferred\":true", META),
        WITH(ID ",\"Size\":5,\"IsPartial\":true", META),
        WITH(ID ",\"Size\":5,\"IsFinal\":true", META),
        "{" ID ",\"Size\":5}",
        "{" ID ",\"Size\":5,\"MetaData\":null}",
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@\",\"project\":\"\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@\",\"project\":\"a/b\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@\",\"project\":\"a\\u0000\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@\",\"project\":5"),
        WITH(ID ",\"Size\":5", "\"checksum\":\"@\",\"project\":\"demo\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"blake3:@0\",\"project\":\"demo\""),
        WITH(ID ",\"Size\":5", "\"checksum\":\"sha256:@\",\"project\":\"demo\""),
        WITH(ID ",\"Size\":5", META ",\"filename\":\"\x01\""),
        WITH(ID ",\"Size\":5", META ",\"filename\":\"\xff\""),
    };
    struct upload_info info;
    struct upload *u;
    uint64_t offset;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_foreign(texts[i]);
        assert_int_equal(upload_load(kit_us, slice_cstr(foreign_id), &info, &kit_err), ERR_CORRUPT);
        assert_int_equal(upload_open(kit_us, slice_cstr(foreign_id), &u, &kit_err), ERR_CORRUPT);
        assert_int_equal(upload_synced_offset(kit_us, slice_cstr(foreign_id), &offset, &kit_err),
                         ERR_CORRUPT);
    }
    write_foreign(WITH(ID ",\"Size\":5", META ",\"filename\":\"a\\u0000b\""));
    assert_int_equal(upload_load(kit_us, slice_cstr(foreign_id), &info, &kit_err), 0);
    assert_string_equal(info.filename, ""); /* never a reason to refuse */
}

static void test_an_endless_info_is_not_read(void **state)
{
    (void)state;
    struct upload_info info;
    write_foreign(FOREIGN);
    assert_int_equal(truncate(kit_path("uploads", foreign_id, ".info"), (256 << 10) + 1), 0);
    assert_int_equal(upload_load(kit_us, slice_cstr(foreign_id), &info, &kit_err), ERR_CORRUPT);
    assert_int_equal(truncate(kit_path("uploads", foreign_id, ".info"), INT64_C(1) << 40), 0);
    assert_int_equal(upload_load(kit_us, slice_cstr(foreign_id), &info, &kit_err), ERR_CORRUPT);
}

/* ---- the saved state ---- */

#define SLOT 4096

static void three_saves(struct upload_info *info)
{
    kit_create(info, bytes, SIZE);
    kit_send(info->id, bytes, 5000);  /* sequence 1, second slot */
    kit_send(info->id, bytes, 9000);  /* 2, first */
    kit_send(info->id, bytes, 12000); /* 3, second */
    assert_int_equal(kit_length(kit_path("uploads", info->id, ".state")), 2 * SLOT);
}

static void test_a_bad_slot_leaves_the_other(void **state)
{
    (void)state;
    static const long places[] = {0, 9, 17, 30, 40, 70, 100, 2000, 4095};
    struct receipt receipt;
    uint64_t offset;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct upload_info info;
        three_saves(&info);
        kit_flip(kit_path("uploads", info.id, ".state"), SLOT + places[i]);
        assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
        assert_int_equal(offset, 9000);
        assert_int_equal(kit_offset(info.id), 9000);
        /* The next save goes over the bad one. */
        kit_send(info.id, bytes, 10000);
        kit_flip(kit_path("uploads", info.id, ".state"), places[i]);
        assert_int_equal(kit_offset(info.id), 10000);
        assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    }
}

static void test_two_bad_slots_cost_a_re_read(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    uint64_t offset;
    three_saves(&info);
    kit_flip(kit_path("uploads", info.id, ".state"), 500);
    kit_flip(kit_path("uploads", info.id, ".state"), SLOT + 500);
    assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err),
                     ERR_CORRUPT);
    assert_int_equal(kit_offset(info.id), 12000);
    assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
    assert_int_equal(offset, 12000);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

static void test_a_lost_state_costs_a_re_read(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    uint64_t offset;
    three_saves(&info);
    assert_int_equal(unlink(kit_path("uploads", info.id, ".state")), 0);
    assert_int_equal(upload_synced_offset(kit_us, slice_cstr(info.id), &offset, &kit_err), 0);
    assert_int_equal(offset, 0);
    assert_int_equal(kit_offset(info.id), 12000);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    /* Before the first byte as well. */
    kit_create(&info, bytes, SIZE);
    assert_int_equal(unlink(kit_path("uploads", info.id, ".state")), 0);
    assert_int_equal(kit_offset(info.id), 0);
    kit_send(info.id, bytes, 100);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* A save of another library's: its offset holds, its hash is made anew. */
static void save_of_another_library(struct upload_info *info)
{
    unsigned char slots[2 * SLOT];
    three_saves(info);
    const char *path = kit_path("uploads", info->id, ".state");
    assert_int_equal(kit_read(path, slots, sizeof slots), sizeof slots);
    memcpy(slots + SLOT + 64, "9.9.9", 6);
    memset(slots + SLOT + 80, 0xaa, BLAKE3_STATE_BYTES);
    uint32_t crc = crc32c(0, slots + SLOT, SLOT - 4);
    for (unsigned i = 0; i < 4; i++) {
        slots[2 * SLOT - 4 + i] = (unsigned char)(crc >> (8 * i));
    }
    kit_write(path, slots, sizeof slots);
}

static void test_a_state_of_another_library(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    save_of_another_library(&info);
    assert_int_equal(kit_offset(info.id), 12000);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* Its bytes cannot be read now: nothing is believed of it, though the file has its whole length. */
static void test_a_state_of_another_library_that_cannot_be_used(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    struct upload *u;
    save_of_another_library(&info);
    assert_int_equal(truncate(kit_path("uploads", info.id, ""), SIZE), 0);
    faults_install(NULL);
    faults_count_only(OS_CALL_pread, kit_path("uploads", info.id, ""));
    faults_arm(3, EIO, false, FAULT_ERROR); /* behind ID.info and ID.state */
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_IO);
    faults_uninstall();
    assert_int_equal(kit_offset(info.id), 12000);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

static void test_a_first_save_that_was_cut_says_nothing(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 5000);
    kit_flip(kit_path("uploads", info.id, ".state"), SLOT + 1000);
    assert_int_equal(kit_offset(info.id), 0);
    assert_int_equal(kit_length(kit_path("uploads", info.id, "")), 0);
    assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
}

/* ---- the bytes ---- */

static void test_promised_bytes_that_are_not_there(void **state)
{
    (void)state;
    struct upload_info info;
    struct upload *u;
    char reason[UPLOAD_REASON_MAX];
    for (int missing = 0; missing < 2; missing++) {
        kit_create(&info, bytes, SIZE);
        kit_send(info.id, bytes, 5000);
        const char *path = kit_path("uploads", info.id, "");
        assert_int_equal(missing != 0 ? unlink(path) : truncate(path, 4999), 0);
        assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_CORRUPT);
        kit_restart(KIT_ISSUER);
        assert_true(upload_gone(kit_us, slice_cstr(info.id), reason));
        assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_GONE);
    }
    kit_create(&info, bytes, SIZE);
    assert_int_equal(unlink(kit_path("uploads", info.id, "")), 0);
    assert_int_equal(upload_open(kit_us, slice_cstr(info.id), &u, &kit_err), ERR_NOT_FOUND);
}

static void test_a_complete_file_proves_itself(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    for (int wrong = 0; wrong < 2; wrong++) {
        kit_create(&info, bytes, SIZE);
        kit_send(info.id, bytes, 5000);
        kit_write(kit_path("uploads", info.id, ""), bytes, SIZE);
        if (wrong != 0) {
            kit_flip(kit_path("uploads", info.id, ""), 19999);
        }
        assert_int_equal(kit_offset(info.id), wrong != 0 ? 5000 : SIZE);
        struct upload *u = kit_open(info.id);
        assert_int_equal(u->complete_proven, wrong == 0);
        upload_close(u);
        assert_int_equal(kit_finish(info.id, bytes, &receipt), 0);
    }
}

/* The disk gives back what it was not given: only reading back can know. */
static void test_stored_bytes_are_read_back(void **state)
{
    (void)state;
    struct upload_info info;
    struct receipt receipt;
    kit_create(&info, bytes, SIZE);
    kit_send(info.id, bytes, 5000);
    struct upload *u = kit_open(info.id);
    assert_int_equal(upload_write(u, bytes + 5000, SIZE - 5000, NULL, &kit_err), 0);
    kit_flip(kit_path("uploads", info.id, ""), 1000);
    assert_int_equal(upload_accept(u, &receipt, NULL, &kit_err), ERR_CHECKSUM_MISMATCH);
    assert_non_null(strstr(kit_err.text, "stored"));
    upload_close(u);
    assert_int_equal(receipt_load(kit_us, slice_cstr(info.id), &receipt, &kit_err), ERR_NOT_FOUND);
}

/* ---- receipts ---- */

#define R1 "{\"id\":\"receipt:d0d1d2d3d4d5d6d7d8d9dadbdcdddedf\",\"issuer\":\"http://x\","
#define R2 "\"object_id\":\"d0d1d2d3d4d5d6d7d8d9dadbdcdddedf\","
#define R3 \
    "\"checksum\":\"blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\","

static void test_what_is_no_receipt(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "{",
        R1 R2 R3 "\"size_bytes\":5}",
        R1 R2 R3 "\"size_bytes\":5,\"accepted_at\":0}",
        R1 R2 R3 "\"size_bytes\":0,\"accepted_at\":7}",
        R1 R2 R3 "\"size_bytes\":5,\"accepted_at\":7,\"more\":1}",
        R1 R2 R3 "\"accepted_at\":7,\"size_bytes\":5}",
        R1 R2 "\"checksum\":\"blake3:af13\",\"size_bytes\":5,\"accepted_at\":7}",
        R1 "\"object_id\":\"d0d1d2d3d4d5d6d7d8d9dadbdcddded0\"," R3
           "\"size_bytes\":5,\"accepted_at\":7}",
        "{\"id\":\"d0d1d2d3d4d5d6d7d8d9dadbdcdddedf\",\"issuer\":\"http://x\"," R2 R3
        "\"size_bytes\":5,\"accepted_at\":7}",
        R1 R2 R3 "\"size_bytes\":5,\"accepted_at\":\"7\"}",
        R1 R2 R3 "\"size_bytes\":5,\"accepted_at\":7}x",
    };
    struct receipt receipt;
    struct upload *u;
    write_foreign(FOREIGN);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(receipt_parse(slice_cstr(texts[i]), &receipt, &kit_err), ERR_CORRUPT);
        kit_write(kit_path("receipts", foreign_id, ".json"), texts[i], strlen(texts[i]));
        assert_int_equal(receipt_load(kit_us, slice_cstr(foreign_id), &receipt, &kit_err),
                         ERR_CORRUPT);
        assert_null(strstr(kit_err.text, "another upload's"));
        assert_int_equal(upload_open(kit_us, slice_cstr(foreign_id), &u, &kit_err), ERR_CORRUPT);
    }
    struct slice good = SLICE(R1 R2 R3 "\"size_bytes\":5,\"accepted_at\":7}");
    assert_int_equal(receipt_parse(good, &receipt, &kit_err), 0);
    assert_string_equal(receipt.object_id, foreign_id);
    assert_string_equal(receipt.issuer, "http://x");
    assert_int_equal(receipt.size_bytes, 5);
    assert_int_equal(receipt.accepted_at, 7);
    static const char other[] = "e0d1d2d3d4d5d6d7d8d9dadbdcdddedf";
    kit_write(kit_path("receipts", other, ".json"), good.ptr, good.len);
    assert_int_equal(receipt_load(kit_us, slice_cstr(other), &receipt, &kit_err), ERR_CORRUPT);
    assert_int_equal(truncate(kit_path("receipts", other, ".json"), RECEIPT_BYTES_MAX), 0);
    assert_int_equal(receipt_load(kit_us, slice_cstr(other), &receipt, &kit_err), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(test_an_upload_of_canner_goes_on),
        KIT_TEST(test_a_complete_upload_of_canner_is_accepted),
        KIT_TEST(test_a_complete_wrong_upload_of_canner_is_refused),
        KIT_TEST(test_a_file_longer_than_declared_is_cut),
        KIT_TEST(test_what_is_no_info),
        KIT_TEST(test_an_endless_info_is_not_read),
        KIT_TEST(test_a_bad_slot_leaves_the_other),
        KIT_TEST(test_two_bad_slots_cost_a_re_read),
        KIT_TEST(test_a_lost_state_costs_a_re_read),
        KIT_TEST(test_a_state_of_another_library),
        KIT_TEST(test_a_state_of_another_library_that_cannot_be_used),
        KIT_TEST(test_a_first_save_that_was_cut_says_nothing),
        KIT_TEST(test_promised_bytes_that_are_not_there),
        KIT_TEST(test_a_complete_file_proves_itself),
        KIT_TEST(test_stored_bytes_are_read_back),
        KIT_TEST(test_what_is_no_receipt),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
