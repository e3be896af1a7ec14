/* test_artifact_faults: the artifact door on a disk that fails: every file call of a creation, an
 * append, an acceptance and a HEAD fails once, each in turn; what a client hears is true, and the
 * upload goes on or ends for good. */
#include <errno.h>

#include "tests/unit/door/artifact_kit.h"

#define NONE ((struct slice){0})

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

/* Of the data directory; what the front does with its sockets is not counted. */
static void count_all(const struct kit *k)
{
    faults_count_only(OS_CALL_ANY, k->dir);
    faults_reset();
}

static struct kit *faulty_new_with(const struct artifact_options *options)
{
    faults_install(NULL);
    struct kit *k = kit_new_with(options, NULL);
    count_all(k);
    return k;
}

static struct kit *faulty_new(void)
{
    const struct artifact_options options = kit_options();
    return faulty_new_with(&options);
}

static void faulty_free(struct kit *k)
{
    faults_reset();
    kit_free(k);
    faults_uninstall();
}

/* A path in an answer would tell strangers of the server's disk. */
static void expect_no_path(const struct kit *k)
{
    assert_null(memmem(k->answer.ptr, k->answer.len, "/tmp", 4));
    assert_null(memmem(k->answer.ptr, k->answer.len, "uploads/", 8));
}

static const int errors[] = {EIO, ENOSPC};

static void test_every_call_of_a_creation_fails_once(void **state)
{
    struct kit *k = faulty_new();
    char headers[2000];
    (void)state;
    (void)kit_creation(headers, TEXT, "");
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        bool struck = true;
        unsigned refused = 0;
        for (uint64_t at = 1; struck; at++) {
            faults_reset();
            faults_arm(at, errors[i], false, FAULT_ERROR);
            unsigned status = kit_ask(k, "POST", "/files", headers, NONE);
            struck = faults_fired() > 0;
            faults_reset();
            expect_no_path(k);
            if (status == 201) {
                memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
                assert_true(kit_go_on(k, TEXT));
                continue;
            }
            assert_true(status == 500 || status == 503 || status == 429);
            assert_int_equal(kit_header(k, "Location").len, 0);
            assert_int_equal(status != 500, kit_header(k, "Retry-After").len > 0);
            refused++;
        }
        assert_true(refused > 3);
    }
    faulty_free(k);
}

/* The last bytes, with all that acceptance does. */
static void test_every_call_of_a_last_append_fails_once(void **state)
{
    struct kit *k = faulty_new();
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        for (int kind = FAULT_ERROR; kind <= FAULT_ERROR_AFTER; kind++) {
            bool struck = errors[i] == EIO || kind == FAULT_ERROR;
            unsigned failed = struck ? 0 : 9;
            for (uint64_t at = 1; struck; at++) {
                kit_create(k, TEXT);
                assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
                faults_reset();
                faults_arm(at, errors[i], false, (enum fault_kind)kind);
                unsigned status = kit_patch(k, 9, slice_from(TEXT, 9));
                struck = faults_fired() > 0;
                faults_reset();
                expect_no_path(k);
                assert_int_equal(status == 204, kit_has_receipt(k));
                if (status == 204) {
                    assert_true(kit_go_on(k, TEXT));
                    continue;
                }
                failed++;
                if (status != 500 && status != 503 && status != 429 && status != 410) {
                    fail_msg("call %d: %.*s", (int)at, (int)k->answer.len, k->answer.ptr);
                }
                assert_true(kit_go_on(k, TEXT) || status == 410);
            }
            assert_true(failed > 5);
        }
    }
    faulty_free(k);
}

/* The bytes of a complete upload, as a crash before its receipt leaves them. */
static void put_bytes(struct kit *k, struct slice bytes)
{
    char path[200];
    kit_path(k, "uploads", "", path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.ptr, 1, bytes.len, f), bytes.len);
    assert_int_equal(fclose(f), 0);
}

/* Hole 1: HEAD finishes an acceptance that was interrupted; whatever fails, it is no 5xx of an
 * upload whose description can be read. */
static void test_every_call_of_a_head_fails_once(void **state)
{
    struct kit *k = faulty_new();
    unsigned less = 0;
    bool struck = true;
    (void)state;
    for (uint64_t at = 1; struck; at++) {
        kit_create(k, TEXT);
        put_bytes(k, TEXT);
        faults_reset();
        faults_arm(at, EIO, false, FAULT_ERROR);
        unsigned status = kit_head(k);
        struck = faults_fired() > 0;
        faults_reset();
        expect_tus(k, status, NULL);
        if (status == 200) {
            assert_int_equal(kit_offset(k) == TEXT.len, kit_has_receipt(k));
            less += kit_has_receipt(k) ? 0 : 1;
        } else {
            assert_int_equal(status, 410);
        }
        assert_true(kit_go_on(k, TEXT) || status == 410);
    }
    assert_true(less > 5);
    /* Without its description there is no length to answer with. */
    kit_create(k, TEXT);
    faults_count_only(OS_CALL_open, ".info");
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_int_equal(kit_head(k), 503);
    expect_tus(k, 503, NULL);
    expect_header(k, "Retry-After", "60");
    count_all(k);
    faulty_free(k);
}

static void test_complete_uploads_are_accepted_by_whoever_asks(void **state)
{
    struct kit *k = faulty_new();
    char other[sizeof text];
    (void)state;
    kit_create(k, TEXT);
    put_bytes(k, TEXT);
    assert_int_equal(kit_receipt(k), 200);
    kit_create(k, TEXT);
    put_bytes(k, TEXT);
    assert_int_equal(kit_patch(k, TEXT.len, NONE), 204);
    assert_true(kit_has_receipt(k));
    kit_create(k, TEXT);
    put_bytes(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 409);
    expect_header(k, "Upload-Offset", "44");
    assert_true(kit_has_receipt(k));
    /* As long as declared, and not what was declared: it proves nothing. */
    memcpy(other, text, sizeof text);
    other[0] = 't';
    kit_create(k, TEXT);
    put_bytes(k, slice_of(other, TEXT.len));
    expect_offset(k, 0, false);
    assert_true(kit_go_on(k, TEXT));
    /* A receipt that cannot be synced: nobody hears of it. */
    kit_create(k, TEXT);
    faults_count_only(OS_CALL_rename, ".receipt-");
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(kit_patch(k, 0, TEXT), 500);
    expect_tus(k, 500, "ACCEPT_FAILED");
    assert_false(kit_has_receipt(k));
    faults_reset();
    count_all(k);
    assert_true(kit_go_on(k, TEXT));
    faulty_free(k);
}

/* What was synced stays, what was not is taken back; the offset says which. */
static void test_failed_writes_and_syncs_roll_back(void **state)
{
    struct kit *k = faulty_new();
    const size_t size = 3 * UPLOAD_PIECE_BYTES;
    char *bytes = kit_bytes(size);
    (void)state;
    kit_create(k, slice_of(bytes, size));
    assert_int_equal(kit_patch(k, 0, slice_of(bytes, 1000)), 204);
    faults_count_only(OS_CALL_fdatasync, k->id);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    uint64_t failures = metric_get(METRIC_ARTIFACT_FAILURES);
    assert_int_equal(kit_patch(k, 1000, slice_of(bytes + 1000, 5000)), 500);
    expect_tus(k, 500, "INTERNAL_ERROR");
    expect_header(k, "Upload-Offset", "1000");
    expect_no_path(k);
    assert_int_equal(faults_fired(), 1);
    assert_int_equal(metric_get(METRIC_ARTIFACT_FAILURES), failures + 1);
    faults_reset();
    expect_offset(k, 1000, false);
    /* The third piece finds no space. */
    faults_count_only(OS_CALL_pwrite, k->id);
    faults_reset();
    faults_arm(3, ENOSPC, false, FAULT_ERROR);
    assert_int_equal(kit_patch(k, 1000, slice_of(bytes + 1000, size - 1000)), 429);
    uint64_t at = kit_offset(k);
    faults_reset();
    expect_tus(k, 429, "LOW_SPACE");
    expect_header(k, "Retry-After", "60");
    char told[24];
    (void)snprintf(told, sizeof told, "%llu", (unsigned long long)at);
    assert_true(at == 2 * UPLOAD_PIECE_BYTES);
    expect_offset(k, at, false);
    count_all(k);
    assert_int_equal(kit_patch(k, at, slice_of(bytes + at, size - at)), 204);
    expect_offset(k, size, true);
    expect_stored(k, slice_of(bytes, size));
    free(bytes);
    faulty_free(k);
}

/* The disk of this upload fails from some call on, and comes back: it goes on where it was, or it
 * is gone for good and everybody says so. */
static void test_every_call_fails_and_all_that_follow(void **state)
{
    struct kit *k = faulty_new();
    bool struck = true;
    unsigned gone = 0;
    (void)state;
    for (uint64_t at = 1; struck; at++) {
        kit_create(k, TEXT);
        assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
        faults_count_only(OS_CALL_ANY, k->id);
        faults_reset();
        faults_arm(at, EIO, true, FAULT_ERROR);
        unsigned status = kit_patch(k, 9, slice_of(text + 9, 9));
        struck = faults_fired() > 0;
        faults_reset();
        expect_no_path(k);
        if (status == 410) {
            gone++;
            expect_tus(k, 410, "GONE");
            assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
            assert_int_equal(kit_head(k), 410);
            assert_int_equal(kit_patch(k, 9, slice_of(text + 9, 9)), 410);
            assert_int_equal(kit_receipt(k), 410);
        } else {
            assert_true(status == 204 || status == 500);
            assert_true(kit_go_on(k, TEXT));
        }
    }
    assert_true(gone > 0);
    faulty_free(k);
}

static void write_file(struct kit *k, const char *folder, const char *suffix, const char *bytes)
{
    char path[200];
    kit_path(k, folder, suffix, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void test_damaged_descriptions_and_receipts(void **state)
{
    struct kit *k = faulty_new();
    (void)state;
    kit_create(k, TEXT);
    write_file(k, "uploads", ".info", "{\"ID\":");
    assert_int_equal(kit_head(k), 410);
    assert_int_equal(kit_patch(k, 0, TEXT), 410);
    assert_int_equal(kit_receipt(k), 410);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    write_file(k, "receipts", ".json", "{");
    /* It is accepted; what of, nobody can say any more. */
    assert_int_equal(kit_head(k), 200);
    expect_header(k, "Upload-Offset", "44");
    assert_false(kit_has_receipt(k));
    assert_int_equal(kit_receipt(k), 500);
    expect_has(k->body, "\"error\":\"internal_error\"");
    expect_no_path(k);
    assert_int_equal(kit_patch(k, 44, NONE), 500);
    /* Neither it nor what was declared can be read. */
    write_file(k, "uploads", ".info", "");
    assert_int_equal(kit_head(k), 503);
    /* A receipt that cannot be read now says nothing. */
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
    faults_count_only(OS_CALL_open, "receipts");
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    expect_offset(k, 9, false);
    assert_int_equal(faults_fired(), 1);
    /* Nor does a state that cannot. */
    faults_count_only(OS_CALL_ANY, ".state");
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    expect_offset(k, 0, false);
    faults_reset();
    expect_offset(k, 9, false);
    /* Promised bytes that somebody took. */
    char path[200];
    kit_path(k, "uploads", "", path);
    assert_int_equal(truncate(path, 3), 0);
    assert_int_equal(kit_head(k), 410);
    count_all(k);
    faulty_free(k);
}

/* By the gate, and by who looks whether it fits. */
static void test_free_space_that_cannot_be_read(void **state)
{
    struct artifact_options options = kit_options();
    char headers[2000];
    (void)state;
    options.min_free_bytes = 0;
    struct kit *k = faulty_new_with(&options);
    kit_create(k, TEXT);
    room_forget(&k->artifact->room, k->id);
    for (uint64_t at = 1; at <= 2; at++) {
        faults_count_only(OS_CALL_disk, NULL);
        faults_reset();
        faults_arm(at, EIO, false, FAULT_ERROR);
        assert_int_equal(kit_patch(k, 0, TEXT), 503);
        expect_tus(k, 503, "LOW_SPACE");
        expect_header(k, "Retry-After", "60");
        expect_no_path(k);
        assert_int_equal(faults_fired(), 1);
        faults_reset();
        faults_arm(at, EIO, false, FAULT_ERROR);
        assert_int_equal(kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, ""), NONE), 503);
        expect_tus(k, 503, "LOW_SPACE");
        assert_int_equal(kit_header(k, "Location").len, 0);
        assert_int_equal(faults_fired(), 1);
    }
    assert_int_equal(room_count(&k->artifact->room), 0);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    count_all(k);
    faulty_free(k);
}

static void test_folders_that_cannot_be_made(void **state)
{
    struct artifact_options options = kit_options();
    struct artifact *a = (struct artifact *)&options;
    struct err e = {0};
    (void)state;
    options.data = "/nonexistent/data";
    assert_int_equal(artifact_new(&options, NULL, &a, &e), ERR_IO);
    assert_null(a);
    artifact_free(NULL);
}

/* A creation with the whole file: without a receipt there is nothing that anybody knows. */
static void test_every_call_of_a_creation_with_its_file_fails_once(void **state)
{
    struct kit *k = faulty_new();
    char headers[2000];
    bool struck = true;
    unsigned failed = 0;
    (void)state;
    (void)kit_creation(headers, TEXT, UPLOAD_TYPE);
    for (uint64_t at = 1; struck; at++) {
        faults_reset();
        faults_arm(at, EIO, false, FAULT_ERROR);
        unsigned status = kit_ask(k, "POST", "/files", headers, TEXT);
        struck = faults_fired() > 0;
        faults_reset();
        expect_no_path(k);
        assert_int_equal(status == 201, kit_has_receipt(k));
        assert_int_equal(status == 201, kit_header(k, "Location").len > 0);
        if (status == 201) {
            memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
            expect_stored(k, TEXT);
            expect_offset(k, TEXT.len, true);
        } else {
            assert_int_equal(status, at == 1 ? 503 : 500); /* the first asks for free space */
            failed++;
        }
    }
    assert_true(failed > 5);
    faulty_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_of_a_creation_fails_once),
        cmocka_unit_test(test_every_call_of_a_creation_with_its_file_fails_once),
        cmocka_unit_test(test_every_call_of_a_last_append_fails_once),
        cmocka_unit_test(test_every_call_of_a_head_fails_once),
        cmocka_unit_test(test_complete_uploads_are_accepted_by_whoever_asks),
        cmocka_unit_test(test_failed_writes_and_syncs_roll_back),
        cmocka_unit_test(test_every_call_fails_and_all_that_follow),
        cmocka_unit_test(test_damaged_descriptions_and_receipts),
        cmocka_unit_test(test_free_space_that_cannot_be_read),
        cmocka_unit_test(test_folders_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
