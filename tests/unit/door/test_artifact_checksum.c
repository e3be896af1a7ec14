/* Upload-Checksum, and the end of uploads at their clients' wish. */
#include <errno.h>

#include "tests/unit/door/artifact_kit.h"

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT slice_of(text, sizeof text - 1)
#define NONE ((struct slice){0})

/* ---- the header ---- */

static struct tus_head head_with(const char *value, unsigned count)
{
    struct tus_head h = {.method = HTTP_PATCH};
    h.field[TUS_CHECKSUM].value = slice_cstr(value);
    h.field[TUS_CHECKSUM].count = count;
    return h;
}

static void test_headers(void **state)
{
    static const struct {
        const char *value;
        enum checksum_algorithm algorithm; /* NONE: refused */
    } rows[] = {
        {"sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_SHA1},
        {"md5 XrY7u+Ae7tCTyyK7j1rNww==", CHECKSUM_MD5},
        {"sha256 uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=", CHECKSUM_SHA256},
        {"blake3 10mB76cKDIgLjYwZhdB128v2eeaX5kU5ar5biUoFsNs=", CHECKSUM_BLAKE3},
        {"", CHECKSUM_NONE},
        {"sha1", CHECKSUM_NONE},
        {"sha1 ", CHECKSUM_NONE},
        {"sha1  Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0", CHECKSUM_NONE},
        {"sha1 Kq5sNclPz7QV2-lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=x", CHECKSUM_NONE},
        {"sha1 XrY7u+Ae7tCTyyK7j1rNww==", CHECKSUM_NONE},
        {"md5 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha256 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"SHA1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha512 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"crc32 AAAAAA==", CHECKSUM_NONE},
        {" sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha1,Kq5sNclPz7QV2+lfQIuc6R7oRu0=", CHECKSUM_NONE},
        {"sha256 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==",
         CHECKSUM_NONE},
    };
    struct checksum got;
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_with(rows[i].value, 1);
        int r = tus_checksum(&h, &got, &e);
        bool good = rows[i].algorithm != CHECKSUM_NONE;
        if (r != (good ? 0 : ERR_INVALID_UPLOAD_CHECKSUM) ||
            (good && got.algorithm != rows[i].algorithm)) {
            fail_msg("\"%s\": %d", rows[i].value, r);
        }
    }
    struct tus_head h = head_with(rows[0].value, 2);
    assert_int_equal(tus_checksum(&h, &got, &e), ERR_INVALID_REQUEST);
    h = head_with("", 0);
    assert_int_equal(tus_checksum(&h, &got, &e), 0);
    assert_int_equal(got.algorithm, CHECKSUM_NONE);
}

static void test_trailers_are_not_read(void **state)
{
    static const struct {
        const char *value;
        bool asks;
    } rows[] = {{"Upload-Checksum", true},    {"upload-checksum", true},
                {"X, Upload-Checksum", true}, {"Upload-Checksum,X", true},
                {"X-Upload-Checksum", false}, {"Upload-Checksums", false},
                {"Expires", false},           {"", false}};
    struct checksum got;
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_with("", 0);
        h.field[TUS_TRAILER].value = slice_cstr(rows[i].value);
        h.field[TUS_TRAILER].count = 1;
        assert_int_equal(tus_checksum(&h, &got, &e),
                         rows[i].asks ? ERR_INVALID_UPLOAD_CHECKSUM : 0);
    }
}

/* ---- requests ---- */

static void digest_of(enum checksum_algorithm algorithm, struct slice s, char out[64])
{
    uint8_t digest[CHECKSUM_LEN_MAX];
    size_t len = 0;
    switch (algorithm) {
#define X(sym, wire, bytes, prefix)     \
    case CHECKSUM_##sym: {              \
        struct prefix h;                \
        prefix##_start(&h);             \
        prefix##_add(&h, s.ptr, s.len); \
        prefix##_end(&h, digest);       \
        len = (bytes);                  \
        break;                          \
    }
        CHECKSUM_ALGORITHMS(X)
#undef X
    case CHECKSUM_NONE:
        break;
    }
    kit_base64(slice_of((char *)digest, len), out);
}

static int begin(struct kit *k, uint64_t offset, const char *sum, size_t length)
{
    char target[100];
    char headers[300];
    (void)snprintf(headers, sizeof headers,
                   TUS UPLOAD_TYPE "Upload-Offset: %llu\r\nUpload-Checksum: %s\r\n",
                   (unsigned long long)offset, sum);
    return kit_begin(k, "PATCH", kit_target(k, target), headers, length);
}

/* A PATCH of `bytes` that declares the digest of `declared`. */
static unsigned patch(struct kit *k, uint64_t offset, struct slice bytes,
                      enum checksum_algorithm algorithm, struct slice declared)
{
    char digest[64];
    char sum[100];
    digest_of(algorithm, declared, digest);
    (void)snprintf(sum, sizeof sum, "%s %s", checksum_name(algorithm), digest);
    int fd = begin(k, offset, sum, bytes.len);
    kit_send(fd, bytes.ptr, bytes.len);
    return kit_receive(k, fd);
}

static void test_a_request_counts_as_a_whole(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    for (int a = CHECKSUM_SHA1; a <= CHECKSUM_BLAKE3; a++) {
        enum checksum_algorithm algorithm = (enum checksum_algorithm)a;
        kit_create(k, TEXT);
        assert_int_equal(patch(k, 0, slice_of(text, 10), algorithm, slice_of(text, 10)), 204);
        assert_int_equal(kit_offset(k), 10);
        (void)patch(k, 10, slice_of(text, 10), algorithm, slice_of(text + 10, 10));
        expect_tus(k, 460, "UPLOAD_CHECKSUM_MISMATCH");
        expect_has(k->body, checksum_name(algorithm));
        assert_int_equal(kit_offset(k), 10);
        expect_offset(k, 10, false);
        expect_stored(k, slice_of(text, 10));
        /* Nothing is a body, too. */
        (void)patch(k, 10, NONE, algorithm, slice_of(text, 1));
        expect_tus(k, 460, "UPLOAD_CHECKSUM_MISMATCH");
        assert_int_equal(patch(k, 10, NONE, algorithm, NONE), 204);
        /* The last one must fit before anything is accepted. */
        (void)patch(k, 10, slice_from(TEXT, 10), algorithm, TEXT);
        expect_tus(k, 460, "UPLOAD_CHECKSUM_MISMATCH");
        assert_int_equal(kit_receipt(k), 409);
        assert_int_equal(patch(k, 10, slice_from(TEXT, 10), algorithm, slice_from(TEXT, 10)), 204);
        assert_true(kit_has_receipt(k));
        expect_stored(k, TEXT);
    }
    kit_free(k);
}

static void test_malformed_ones_are_400(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    kit_create(k, TEXT);
    static const char *const values[] = {"crc32 AAAAAA==", "sha1 x", "sha1",
                                         "sha1 XrY7u+Ae7tCTyyK7j1rNww=="};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        int fd = begin(k, 0, values[i], 4);
        kit_send(fd, text, 4);
        (void)kit_receive(k, fd);
        expect_tus(k, 400, "INVALID_UPLOAD_CHECKSUM");
        expect_offset(k, 0, false);
    }
    kit_free(k);
}

/* Cases T25: who aborts a request with a checksum begins it again. */
static void test_a_request_that_is_cut_does_not_count(void **state)
{
    struct kit *k = kit_new();
    char digest[64];
    char sum[100];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 4)), 204);
    digest_of(CHECKSUM_SHA1, slice_from(TEXT, 4), digest);
    (void)snprintf(sum, sizeof sum, "sha1 %s", digest);
    int fd = begin(k, 4, sum, TEXT.len - 4);
    kit_send(fd, text + 4, 10);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    (void)kit_receive(k, fd);
    expect_tus(k, 400, "UPLOAD_INTERRUPTED");
    assert_int_equal(kit_offset(k), 4);
    expect_offset(k, 4, false);
    /* All bytes, and a chunked body that does not end. */
    fd = begin(k, 4, sum, SIZE_MAX);
    kit_send(fd, "28\r\n", 4);
    kit_send(fd, text + 4, 40);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    (void)kit_receive(k, fd);
    expect_tus(k, 400, "UPLOAD_INTERRUPTED");
    expect_offset(k, 4, false);
    /* One byte too many. */
    fd = begin(k, 4, sum, SIZE_MAX);
    kit_send(fd, "29\r\n", 4);
    kit_send(fd, text + 4, 40);
    kit_send(fd, "x\r\n0\r\n\r\n", 8);
    (void)kit_receive(k, fd);
    expect_tus(k, 413, "UPLOAD_SIZE_EXCEEDED");
    expect_offset(k, 4, false);
    fd = begin(k, 4, sum, SIZE_MAX);
    kit_send(fd, "28\r\n", 4);
    kit_send(fd, text + 4, 40);
    kit_send(fd, "\r\n0\r\n\r\n", 7);
    assert_int_equal(kit_receive(k, fd), 204);
    assert_true(kit_has_receipt(k));
    kit_free(k);
}

static unsigned uploads_in(const struct kit *k)
{
    char command[200];
    unsigned n = 0;
    (void)snprintf(command, sizeof command, "ls -A '%s/uploads' | wc -l", k->dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%u", &n), 1);
    assert_int_equal(pclose(f), 0);
    return n;
}

static unsigned post(struct kit *k, size_t sent, struct slice declared)
{
    char headers[2000];
    char digest[64];
    char more[200];
    digest_of(CHECKSUM_SHA256, declared, digest);
    (void)snprintf(more, sizeof more, UPLOAD_TYPE "Upload-Checksum: sha256 %s\r\n", digest);
    return kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, more), slice_of(text, sent));
}

static void test_creations_with_a_checksum(void **state)
{
    struct kit *k = kit_new();
    char headers[2000];
    (void)state;
    assert_int_equal(post(k, TEXT.len, TEXT), 201);
    assert_true(kit_has_receipt(k));
    unsigned before = uploads_in(k);
    /* All of the file, and it does not fit: nobody hears of an upload, and none is left. */
    (void)post(k, TEXT.len, slice_of(text, 3));
    expect_tus(k, 460, "UPLOAD_CHECKSUM_MISMATCH");
    assert_int_equal(kit_header(k, "Location").len, 0);
    assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
    assert_int_equal(uploads_in(k), before);
    /* A part of it: the upload is there, empty. */
    (void)post(k, 10, slice_of(text, 3));
    expect_tus(k, 460, "UPLOAD_CHECKSUM_MISMATCH");
    expect_header(k, "Upload-Offset", "0");
    memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    expect_offset(k, 0, false);
    assert_int_equal(post(k, 10, slice_of(text, 10)), 201);
    expect_header(k, "Upload-Offset", "10");
    (void)kit_ask(k, "POST", "/files",
                  kit_creation(headers, TEXT, UPLOAD_TYPE "Upload-Checksum: crc32 AAAAAA==\r\n"),
                  TEXT);
    expect_tus(k, 400, "INVALID_UPLOAD_CHECKSUM");
    kit_free(k);
}

/* Installed before there are threads that call, and until they are gone. */
static struct kit *faulty_new(void)
{
    faults_install(NULL);
    return kit_new();
}

static void faulty_free(struct kit *k)
{
    faults_count_only(OS_CALL_ANY, NULL);
    kit_free(k);
    faults_uninstall();
}

/* A failing disk is told as one, and what came does not count. */
static void test_failing_writes_of_a_request_with_a_checksum(void **state)
{
    struct kit *k = faulty_new();
    (void)state;
    static const struct {
        int error;
        unsigned status;
    } rows[] = {{EIO, 500}, {ENOSPC, 429}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kit_create(k, TEXT);
        assert_int_equal(kit_patch(k, 0, slice_of(text, 4)), 204);
        faults_count_only(OS_CALL_pwrite, k->id);
        faults_reset();
        faults_arm(1, rows[i].error, false, FAULT_ERROR);
        (void)patch(k, 4, slice_of(text + 4, 10), CHECKSUM_SHA1, slice_of(text + 4, 10));
        assert_int_equal(faults_fired(), 1);
        faults_reset();
        assert_int_equal(k->status, rows[i].status);
        expect_offset(k, 4, false);
        assert_int_equal(patch(k, 4, slice_from(TEXT, 4), CHECKSUM_SHA1, slice_from(TEXT, 4)), 204);
        assert_true(kit_has_receipt(k));
    }
    /* The bytes cannot be taken back: the offset that is told is right all the same. */
    kit_create(k, TEXT);
    faults_count_only(OS_CALL_ftruncate, k->id);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    (void)patch(k, 0, slice_of(text, 10), CHECKSUM_SHA1, TEXT);
    assert_int_equal(faults_fired(), 1);
    faults_reset();
    expect_tus(k, 500, "INTERNAL_ERROR");
    expect_header(k, "Upload-Offset", "0");
    expect_offset(k, 0, false);
    expect_stored(k, NONE);
    faulty_free(k);
}

/* ---- DELETE ---- */

static unsigned terminate(struct kit *k)
{
    char target[100];
    return kit_ask(k, "DELETE", kit_target(k, target), TUS, NONE);
}

static void test_termination(void **state)
{
    struct kit *k = kit_new();
    char target[100];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 4)), 204);
    (void)kit_ask(k, "DELETE", kit_target(k, target), "", NONE);
    expect_tus(k, 412, "UNSUPPORTED_VERSION");
    expect_offset(k, 4, false);
    (void)terminate(k);
    expect_tus(k, 204, NULL);
    assert_int_equal(k->body.len, 0);
    assert_false(kit_exists(k, "uploads", ""));
    assert_false(kit_exists(k, "uploads", ".info"));
    assert_int_equal(kit_head(k), 404);
    assert_int_equal(kit_patch(k, 4, slice_from(TEXT, 4)), 404);
    (void)terminate(k);
    expect_tus(k, 404, "UPLOAD_NOT_FOUND");
    /* Accepted: it stays. */
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    (void)terminate(k);
    expect_tus(k, 403, "UPLOAD_ACCEPTED");
    assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
    assert_int_equal(kit_header(k, "Artifact-Receipt").len, 0);
    expect_offset(k, TEXT.len, true);
    expect_stored(k, TEXT);
    /* Refused for good: 410 with the reason, as before. */
    char *other = kit_bytes(TEXT.len);
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(other, TEXT.len)), 422);
    (void)terminate(k);
    expect_tus(k, 410, "GONE");
    assert_int_equal(kit_head(k), 410);
    free(other);
    kit_free(k);
}

/* Complete and not accepted is not accepted. */
static void test_what_is_complete_can_go(void **state)
{
    struct kit *k = faulty_new();
    (void)state;
    kit_create(k, TEXT);
    faults_count_only(OS_CALL_rename, "receipts");
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(kit_patch(k, 0, TEXT), 500);
    faults_reset();
    assert_int_equal(terminate(k), 204);
    assert_int_equal(kit_head(k), 404);
    assert_int_equal(kit_receipt(k), 404);
    faulty_free(k);
}

static bool has_writer(struct kit *k)
{
    return registry_writers(&k->artifact->registry) == 1;
}

static bool has_bytes(struct kit *k)
{
    char path[200];
    struct stat st;
    kit_path(k, "uploads", "", path);
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* tus-js-client closes its PATCH and deletes at once; and a writer that lives is ended as well. */
static void test_a_writer_is_ended(void **state)
{
    const size_t size = 3u << 20;
    struct kit *k = kit_new();
    char *bytes = kit_bytes(size);
    (void)state;
    for (int closed = 0; closed < 2; closed++) {
        kit_create(k, slice_of(bytes, size));
        int fd = kit_patch_begin(k, 0, size);
        kit_send(fd, bytes, size - 1);
        kit_await(k, has_writer);
        kit_await(k, has_bytes);
        if (closed == 1) {
            (void)close(fd);
        }
        assert_int_equal(terminate(k), 204);
        assert_false(kit_exists(k, "uploads", ".info"));
        assert_int_equal(kit_head(k), 404);
        if (closed == 0) {
            (void)kit_receive(k, fd);
            expect_tus(k, 404, "UPLOAD_NOT_FOUND");
            assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
            assert_int_equal(kit_header(k, "Upload-Expires").len, 0);
        }
        assert_false(kit_exists(k, "uploads", ""));
    }
    free(bytes);
    kit_free(k);
}

/* Somebody finishes it, for long: later. */
static void test_who_does_not_leave_is_not_waited_for_long(void **state)
{
    struct kit *k = kit_new();
    struct holder h = {.writer = false};
    (void)state;
    registry_set_patience(&k->artifact->registry, 20, 50);
    kit_create(k, TEXT);
    memcpy(h.id, k->id, sizeof h.id);
    assert_int_equal(registry_try(&k->artifact->registry, &h), 0);
    (void)terminate(k);
    expect_tus(k, 503, "UPLOADS_BUSY");
    expect_header(k, "Retry-After", "1");
    registry_leave(&k->artifact->registry, &h);
    assert_int_equal(terminate(k), 204);
    kit_free(k);
}

static bool bytes_are_gone(struct kit *k)
{
    return !kit_exists(k, "uploads", "");
}

/* A large one is answered for at once; its bytes go in steps, beside everything else. */
static void test_large_ones_are_freed_by_the_cleaner(void **state)
{
    struct kit *k = kit_new();
    char path[200];
    struct err e = {0};
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 4)), 204);
    assert_int_equal(artifact_start(k->artifact, k->server, &e), 0);
    kit_path(k, "uploads", "", path);
    assert_int_equal(truncate(path, UPLOAD_AT_ONCE_BYTES + 1L), 0);
    assert_int_equal(terminate(k), 204);
    assert_int_equal(kit_head(k), 410);
    (void)terminate(k);
    expect_tus(k, 410, "GONE");
    expect_has(k->body, "terminated");
    kit_await(k, bytes_are_gone);
    assert_int_equal(kit_head(k), 410);
    kit_free(k);
}

static void test_a_removal_that_fails(void **state)
{
    struct kit *k = faulty_new();
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 4)), 204);
    faults_count_only(OS_CALL_unlink, k->id);
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ERROR);
    (void)terminate(k);
    expect_tus(k, 500, "INTERNAL_ERROR");
    faults_reset();
    assert_int_equal(kit_head(k), 410); /* begun, and taken up when its time is over */
    faulty_free(k);
}

/* A full disk keeps nothing from being removed, or asked for. */
static void test_low_space_stops_no_removal(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new();
    char target[100];
    (void)state;
    kit_create(k, TEXT);
    kit_close(k);
    options.min_free_bytes = UINT64_MAX;
    kit_open(k, &options, NULL);
    assert_int_equal(kit_ask(k, "GET", kit_target(k, target), "", NONE), 200);
    assert_int_equal(kit_ask(k, "POST", target, TUS "X-HTTP-Method-Override: HEAD\r\n", NONE), 200);
    assert_int_equal(kit_patch(k, 0, TEXT), 429);
    assert_int_equal(terminate(k), 204);
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_trailers_are_not_read),
        cmocka_unit_test(test_a_request_counts_as_a_whole),
        cmocka_unit_test(test_malformed_ones_are_400),
        cmocka_unit_test(test_a_request_that_is_cut_does_not_count),
        cmocka_unit_test(test_creations_with_a_checksum),
        cmocka_unit_test(test_failing_writes_of_a_request_with_a_checksum),
        cmocka_unit_test(test_termination),
        cmocka_unit_test(test_what_is_complete_can_go),
        cmocka_unit_test(test_a_writer_is_ended),
        cmocka_unit_test(test_who_does_not_leave_is_not_waited_for_long),
        cmocka_unit_test(test_large_ones_are_freed_by_the_cleaner),
        cmocka_unit_test(test_a_removal_that_fails),
        cmocka_unit_test(test_low_space_stops_no_removal),
    };
    return cmocka_run_group_tests_name("artifact checksum", tests, NULL, NULL);
}
