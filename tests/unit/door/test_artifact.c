/* test_artifact: the artifact door over the real front: creation, appends, acceptance, receipts,
 * the order of checks, methods, CORS. Live writers are in test_artifact_live, failing disks in
 * test_artifact_faults. */
#include "tests/unit/door/artifact_kit.h"

#define NONE ((struct slice){0})

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

static void test_a_file_goes_in_and_its_receipt_comes_out(void **state)
{
    struct kit *k = kit_new();
    char hex[BLAKE3_HEX_LEN + 1];
    char want[1000];
    char *decoded = NULL;
    (void)state;
    kit_create(k, TEXT);
    expect_tus(k, 201, NULL);
    assert_int_equal(kit_header(k, "Upload-Expires").len, HTTP_DATE_LEN);
    assert_int_equal(k->body.len, 0);
    expect_offset(k, 0, false);
    expect_header(k, "Upload-Length", "44");
    assert_true(slice_starts(kit_header(k, "Upload-Metadata"), SLICE("project ZGVtby1maWxlcw==,")));
    assert_int_equal(kit_receipt(k), 409);
    expect_has(k->body, "\"error\":\"not_accepted\"");

    assert_int_equal(kit_patch(k, 0, slice_of(text, 10)), 204);
    expect_tus(k, 204, NULL);
    expect_header(k, "Upload-Offset", "10");
    assert_int_equal(kit_header(k, "Upload-Expires").len, HTTP_DATE_LEN);
    assert_int_equal(kit_header(k, "Artifact-Receipt").len, 0);
    expect_offset(k, 10, false);
    assert_int_equal(kit_patch(k, 10, slice_from(TEXT, 10)), 204);
    expect_header(k, "Upload-Offset", "44");
    assert_int_equal(kit_header(k, "Upload-Expires").len, 0);
    assert_true(kit_header(k, "Artifact-Receipt").len > 0);
    struct slice said = kit_header(k, "Artifact-Receipt");
    char kept[3000];
    memcpy(kept, said.ptr, said.len);
    kept[said.len] = '\0';
    expect_stored(k, TEXT);

    assert_int_equal(kit_receipt(k), 200);
    expect_header(k, "Content-Type", "application/json");
    expect_header(k, "Cache-Control", "no-store");
    kit_digest(text, sizeof text - 1, hex);
    int n = snprintf(want, sizeof want,
                     "{\"id\":\"receipt:%s\",\"issuer\":\"http://127.0.0.1:8080\",\"object_id\":"
                     "\"%s\",\"checksum\":\"blake3:%s\",\"size_bytes\":44,\"accepted_at\":",
                     k->id, k->id, hex);
    assert_true(slice_starts(k->body, slice_of(want, (size_t)n)));
    assert_true(k->body.ptr[k->body.len - 1] == '\n');
    /* The header is the same JSON, in base64url without padding. */
    decoded = malloc(k->body.len * 2);
    assert_non_null(decoded);
    kit_base64(slice_of(k->body.ptr, k->body.len - 1), decoded);
    for (char *p = decoded; *p != '\0'; p++) {
        *p = (char)(*p == '+' ? '-' : *p == '/' ? '_' : *p == '=' ? '\0' : *p);
    }
    assert_string_equal(decoded, kept);
    free(decoded);

    expect_offset(k, 44, true);
    expect_header(k, "Artifact-Receipt", kept);
    assert_int_equal(kit_patch(k, 44, NONE), 204);
    expect_header(k, "Artifact-Receipt", kept);
    assert_int_equal(kit_patch(k, 3, slice_of("x", 1)), 409);
    expect_tus(k, 409, "MISMATCHED_OFFSET");
    expect_header(k, "Upload-Offset", "44");
    kit_free(k);
}

static void test_a_file_comes_with_its_creation(void **state)
{
    struct kit *k = kit_new();
    char headers[2000];
    (void)state;
    assert_int_equal(kit_ask(k, "POST", "/files/", kit_creation(headers, TEXT, UPLOAD_TYPE), TEXT),
                     201);
    expect_header(k, "Upload-Offset", "44");
    assert_true(kit_header(k, "Artifact-Receipt").len > 0);
    memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    expect_stored(k, TEXT);
    expect_offset(k, 44, true);
    /* A part of it. */
    assert_int_equal(
        kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), slice_of(text, 7)),
        201);
    expect_header(k, "Upload-Offset", "7");
    assert_int_equal(kit_header(k, "Artifact-Receipt").len, 0);
    memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    expect_offset(k, 7, false);
    assert_int_equal(kit_patch(k, 7, slice_from(TEXT, 7)), 204);
    expect_offset(k, 44, true);
    /* Chunked, as long as declared. */
    int fd = kit_begin(k, "POST", "/files", kit_creation(headers, TEXT, UPLOAD_TYPE), SIZE_MAX);
    kit_send(fd, "2c\r\n", 4);
    kit_send(fd, text, sizeof text - 1);
    kit_send(fd, "\r\n0\r\n\r\n", 7);
    assert_int_equal(kit_receive(k, fd), 201);
    expect_header(k, "Upload-Offset", "44");
    assert_true(kit_header(k, "Artifact-Receipt").len > 0);
    kit_free(k);
}

/* Larger than one piece, in requests that end anywhere. */
static void test_pieces_of_any_length_make_the_file(void **state)
{
    struct kit *k = kit_new();
    const size_t size = 3 * UPLOAD_PIECE_BYTES + 4321;
    char *bytes = kit_bytes(size);
    const size_t cuts[] = {1, 1000000, UPLOAD_PIECE_BYTES, 2 * UPLOAD_PIECE_BYTES + 7, size};
    size_t at = 0;
    (void)state;
    kit_create(k, slice_of(bytes, size));
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        char offset[24];
        assert_int_equal(kit_patch(k, at, slice_of(bytes + at, cuts[i] - at)), 204);
        at = cuts[i];
        (void)snprintf(offset, sizeof offset, "%zu", at);
        expect_header(k, "Upload-Offset", offset);
    }
    expect_offset(k, size, true);
    expect_stored(k, slice_of(bytes, size));
    free(bytes);
    kit_free(k);
}

/* Hole 21, cases T38: a file that is not what was declared must not look complete. */
static void test_a_mismatch_is_final(void **state)
{
    struct kit *k = kit_new();
    char hex[BLAKE3_HEX_LEN + 1];
    (void)state;
    kit_create(k, TEXT);
    char other[sizeof text];
    memcpy(other, text, sizeof text);
    other[5] ^= 1;
    uint64_t before = metric_get(METRIC_ARTIFACT_MISMATCHES);
    assert_int_equal(kit_patch(k, 0, slice_of(other, sizeof text - 1)), 422);
    expect_tus(k, 422, "CHECKSUM_MISMATCH");
    kit_digest(text, sizeof text - 1, hex);
    expect_has(k->body, hex);
    kit_digest(other, sizeof text - 1, hex);
    expect_has(k->body, hex);
    assert_int_equal(kit_header(k, "Artifact-Receipt").len, 0);
    assert_int_equal(metric_get(METRIC_ARTIFACT_MISMATCHES), before + 1);
    assert_int_equal(kit_head(k), 410);
    assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
    assert_int_equal(kit_receipt(k), 410);
    expect_has(k->body, "\"error\":\"gone\"");
    expect_has(k->body, hex);
    assert_int_equal(kit_patch(k, 0, TEXT), 410);
    expect_tus(k, 410, "GONE");
    kit_free(k);
}

/* ---- refusals ---- */

static void expect_refused(struct kit *k, const char *headers, struct slice body, unsigned status,
                           const char *code)
{
    (void)kit_ask(k, "POST", "/files", headers, body);
    expect_tus(k, status, code);
}

#define SUM64                                                                                      \
    "Ymxha2UzOmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFi" \
    "YWI="
#define META   "Upload-Metadata: project ZGVtby1maWxlcw==,checksum " SUM64 "\r\n"
#define LENGTH "Upload-Length: 5\r\n"

static void test_creations_are_checked_in_their_order(void **state)
{
    struct artifact_options options = kit_options();
    options.upload_bytes_max = 1000;
    struct kit *k = kit_new_with(&options, NULL);
    static const struct {
        const char *headers;
        unsigned status;
        const char *code;
    } rows[] = {
        {LENGTH META, 412, "UNSUPPORTED_VERSION"},
        {"Tus-Resumable: 0.2.2\r\nUpload-Concat: x\r\n", 412, "UNSUPPORTED_VERSION"},
        {TUS TUS LENGTH META, 400, "INVALID_REQUEST"},
        {TUS "Upload-Concat: partial\r\nUpload-Length: -1\r\n", 400, "CONCATENATION_UNSUPPORTED"},
        {TUS META, 400, "INVALID_UPLOAD_LENGTH"},
        {TUS "Upload-Length: +5\r\nUpload-Metadata: a $\r\n", 400, "INVALID_UPLOAD_LENGTH"},
        {TUS LENGTH LENGTH META, 400, "INVALID_REQUEST"},
        {TUS LENGTH "Upload-Defer-Length: 1\r\n" META, 400, "INVALID_UPLOAD_LENGTH"},
        {TUS "Upload-Defer-Length: 2\r\n" META, 400, "INVALID_UPLOAD_LENGTH"},
        {TUS "Upload-Length: 1001\r\nUpload-Metadata: a $\r\n", 413, "MAX_SIZE_EXCEEDED"},
        {TUS "Upload-Length: 0\r\nUpload-Metadata: a $\r\n", 400, "INVALID_METADATA"},
        {TUS "Upload-Length: 0\r\n", 400, "INVALID_PROJECT"},
        {TUS "Upload-Length: 0\r\nUpload-Metadata: project bm9uZQ==\r\n", 400, "INVALID_PROJECT"},
        {TUS LENGTH "Upload-Metadata: project ZGVtbw==,checksum " SUM64 "\r\n", 400,
         "INVALID_PROJECT"},
        {TUS "Upload-Length: 0\r\nUpload-Metadata: project ZGVtby1maWxlcw==\r\n", 400,
         "INVALID_SIZE"},
        {TUS "Upload-Defer-Length: 1\r\n" META, 400, "INVALID_SIZE"},
        {TUS LENGTH "Upload-Metadata: project ZGVtby1maWxlcw==\r\n", 400, "INVALID_CHECKSUM"},
        {TUS LENGTH META "X-HTTP-Method-Override: DELETE\r\n", 405, "METHOD_NOT_ALLOWED"},
        {TUS LENGTH META "X-HTTP-Method-Override: PATCH\r\n", 405, "METHOD_NOT_ALLOWED"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_refused(k, rows[i].headers, NONE, rows[i].status, rows[i].code);
        if (rows[i].status == 412) {
            expect_header(k, "Tus-Version", "1.0.0");
        }
        if (rows[i].status == 405) {
            assert_true(kit_header(k, "Allow").len > 0);
        }
    }
    expect_refused(k, TUS LENGTH META, slice_of("ab", 2), 415, "INVALID_CONTENT_TYPE");
    expect_refused(k, TUS LENGTH META UPLOAD_TYPE, slice_of("abcdef", 6), 413,
                   "UPLOAD_SIZE_EXCEEDED");
    expect_refused(k, TUS LENGTH META "X-HTTP-Method-Override: POST\r\n", NONE, 201, NULL);
    /* Of all those one upload was made. */
    char command[200];
    (void)snprintf(command, sizeof command, "test $(ls %s/uploads | grep -c info) -eq 1", k->dir);
    assert_int_equal(system(command), 0);
    kit_free(k);
}

static void test_without_projects_or_issuer_nothing_is_made(void **state)
{
    struct artifact_options options = kit_options();
    options.issuer = "";
    struct kit *k = kit_new_with(&options, NULL);
    (void)state;
    expect_refused(k, TUS LENGTH META, NONE, 503, "NO_ISSUER");
    kit_close(k);
    struct store *kept = k->store;
    k->store = NULL;
    options = kit_options();
    kit_open(k, &options, NULL);
    expect_refused(k, TUS LENGTH META, NONE, 503, "STORE_BUSY");
    assert_true(kit_header(k, "Retry-After").len > 0);
    k->store = kept;
    kit_free(k);
}

static void test_location_is_a_path_or_below_the_public_url(void **state)
{
    struct artifact_options options = kit_options();
    options.public_url = "https://files.example/put/";
    struct kit *k = kit_new_with(&options, NULL);
    char headers[2000];
    (void)state;
    /* Forwarded headers mean nothing (cases T14). */
    assert_int_equal(
        kit_ask(
            k, "POST", "/files",
            kit_creation(headers, TEXT, "X-Forwarded-Host: evil\r\nX-Forwarded-Proto: gopher\r\n"),
            NONE),
        201);
    assert_true(slice_starts(kit_header(k, "Location"), SLICE("https://files.example/put/files/")));
    assert_int_equal(kit_header(k, "Location").len, 32 + UPLOAD_ID_LEN);
    kit_free(k);
}

static void patch_with(struct kit *k, const char *headers, struct slice body, unsigned status,
                       const char *code)
{
    char target[100];
    (void)kit_ask(k, "PATCH", kit_target(k, target), headers, body);
    expect_tus(k, status, code);
}

/* Cases T04, T22; nothing is stored by any of these. */
/* Cases T14: what a proxy says counts only when it is believed, and says one thing. */
static void test_location_behind_a_proxy(void **state)
{
    static const struct {
        const char *headers, *base; /* "": the path alone */
    } rows[] = {
        {"", ""},
        {"X-Forwarded-Proto: https\r\n", "https://localhost"},
        {"X-Forwarded-Proto: HTTPS\r\n", "https://localhost"},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example\r\n", "https://a.example"},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example:8443\r\n",
         "https://a.example:8443"},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example:443\r\n", "https://a.example"},
        {"X-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example:443\r\n", "http://a.example:443"},
        {"X-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example:80\r\n", "http://a.example"},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: [fd00::1]:8443\r\n",
         "https://[fd00::1]:8443"},
        {"Forwarded: proto=https;host=b\r\n", "https://b"},
        {"Forwarded: for=1.2.3.4;proto=https;host=\"b.example:8443\";by=x\r\n",
         "https://b.example:8443"},
        {"Forwarded: for=1.2.3.4; Proto=https; HOST=b.example\r\n", "https://b.example"},
        {"Forwarded: proto=https\r\n", "https://localhost"},
        /* One that is there is the one that counts. */
        {"Forwarded: for=1.2.3.4\r\nX-Forwarded-Proto: https\r\n", ""},
        {"Forwarded: proto=http;host=b\r\nX-Forwarded-Proto: https\r\n", "http://b"},
        /* Several must agree. */
        {"X-Forwarded-Proto: https, https\r\nX-Forwarded-Host: a, a\r\n", "https://a"},
        {"X-Forwarded-Proto: https, http\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example, b.example\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a\r\nX-Forwarded-Host: b\r\n", ""},
        {"Forwarded: proto=https;host=a, proto=https;host=b\r\n", ""},
        {"Forwarded: proto=https;host=a\r\nForwarded: proto=https;host=a\r\n", "https://a"},
        {"X-Forwarded-Proto: https,\r\n", ""},
        /* What is said must be a scheme and a host. */
        {"X-Forwarded-Host: a.example\r\n", ""},
        {"X-Forwarded-Proto: ftp\r\nX-Forwarded-Host: a.example\r\n", ""},
        {"X-Forwarded-Proto: https://\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example/x\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: u@a.example\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example:x\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: a.example:123456\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: :443\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: [fd00::1\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: []\r\n", ""},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Host: [fd00::1]x\r\n", ""},
        {"Forwarded: proto=https;host=\"b\r\n", ""},
        {"Forwarded: proto=https;host=\r\n", "https://localhost"},
        {"X-Forwarded-Proto: https\r\nX-Forwarded-Prefix: /up\r\n", "https://localhost"},
        {"X-Forwarded-Port: 8443\r\nX-Original-URL: /admin\r\n", ""},
    };
    static const char *const lists[] = {"127.0.0.1", "10.0.0.0/8, 127.0.0.0/8", "10.0.0.0/8", ""};
    struct artifact_options options = kit_options();
    struct err e = {0};
    (void)state;
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        assert_int_equal(http_networks_parse(lists[l], &options.proxies, &e), 0);
        struct kit *k = kit_new_with(&options, NULL);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            char headers[2000];
            (void)kit_ask(k, "POST", "/files", kit_creation(headers, TEXT, rows[i].headers), NONE);
            expect_tus(k, 201, NULL);
            struct slice location = kit_header(k, "Location");
            struct slice base = slice_cstr(l < 2 ? rows[i].base : "");
            if (location.len != base.len + 7 + UPLOAD_ID_LEN || !slice_starts(location, base) ||
                !slice_starts(slice_from(location, base.len), SLICE("/files/"))) {
                fail_msg("%s: \"%.*s\"", rows[i].headers, (int)location.len, location.ptr);
            }
        }
        kit_free(k);
    }
    /* public_url says it all. */
    assert_int_equal(http_networks_parse("127.0.0.1", &options.proxies, &e), 0);
    options.public_url = "https://up.example/x";
    struct kit *k = kit_new_with(&options, NULL);
    char headers[2000];
    (void)kit_ask(k, "POST", "/files",
                  kit_creation(headers, TEXT, "Forwarded: proto=http;host=b\r\n"), NONE);
    expect_tus(k, 201, NULL);
    assert_true(slice_starts(kit_header(k, "Location"), SLICE("https://up.example/x/files/")));
    kit_free(k);
}

static void test_appends_are_checked_in_their_order(void **state)
{
    struct kit *k = kit_new();
    struct slice some = slice_of("abc", 3);
    static const char *const malformed[] = {"+5", "0x5", "-1", "9223372036854775808", "", "5,5"};
    static const char *const wrong[] = {"4", "6", "0", "44", "05", "9223372036854775807"};
    char headers[200];
    (void)state;
    kit_create(k, TEXT);
    assert_int_equal(kit_patch(k, 0, slice_of(text, 3)), 204);
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        (void)snprintf(headers, sizeof headers, TUS UPLOAD_TYPE "Upload-Offset: %s\r\n",
                       malformed[i]);
        patch_with(k, headers, some, 400, "INVALID_OFFSET");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)snprintf(headers, sizeof headers, TUS UPLOAD_TYPE "Upload-Offset: %s\r\n", wrong[i]);
        patch_with(k, headers, some, 409, "MISMATCHED_OFFSET");
        expect_header(k, "Upload-Offset", "3");
    }
    patch_with(k, TUS UPLOAD_TYPE, some, 400, "INVALID_OFFSET");
    patch_with(k, TUS UPLOAD_TYPE "Upload-Offset: 3\r\nUpload-Offset: 3\r\n", some, 400,
               "INVALID_REQUEST");
    patch_with(k, UPLOAD_TYPE "Upload-Offset: 3\r\n", some, 412, "UNSUPPORTED_VERSION");
    patch_with(k, TUS "Upload-Offset: 9\r\n", some, 415, "INVALID_CONTENT_TYPE");
    patch_with(k, TUS "Content-Type: application/octet-stream\r\nUpload-Offset: 3\r\n", some, 415,
               "INVALID_CONTENT_TYPE");
    patch_with(k, TUS UPLOAD_TYPE "Upload-Offset: 3\r\n", TEXT, 413, "UPLOAD_SIZE_EXCEEDED");
    expect_header(k, "Upload-Offset", "3");
    expect_offset(k, 3, false);
    expect_stored(k, slice_of(text, 3));
    /* Parameters and case of the type do not matter; "03" is 3. */
    patch_with(k,
               TUS "Content-Type: Application/Offset+Octet-Stream; charset=utf-8\r\n"
                   "Upload-Offset: 03\r\n",
               slice_of(text + 3, 3), 204, NULL);
    expect_header(k, "Upload-Offset", "6");
    patch_with(k, TUS UPLOAD_TYPE "Upload-Offset: 6\r\n", NONE, 204, NULL);
    expect_header(k, "Upload-Offset", "6");
    expect_offset(k, 6, false);
    kit_free(k);
}

/* Hole 23: what fitted of a chunked body is kept, and accepted when it is all. */
static void test_a_chunked_body_past_the_end(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, SIZE_MAX);
    kit_send(fd, "5\r\nThe q\r\n0\r\n\r\n", 15);
    assert_int_equal(kit_receive(k, fd), 204);
    expect_header(k, "Upload-Offset", "5");
    fd = kit_patch_begin(k, 5, SIZE_MAX);
    kit_send(fd, "28\r\n", 4);
    kit_send(fd, text + 5, 39);
    kit_send(fd, "x\r\n0\r\n\r\n", 8);
    assert_int_equal(kit_receive(k, fd), 413);
    expect_tus(k, 413, "UPLOAD_SIZE_EXCEEDED");
    expect_header(k, "Upload-Offset", "44");
    assert_true(kit_header(k, "Artifact-Receipt").len > 0);
    expect_offset(k, 44, true);
    expect_stored(k, TEXT);
    kit_free(k);
}

static void test_broken_chunks_keep_what_came(void **state)
{
    struct kit *k = kit_new();
    (void)state;
    kit_create(k, TEXT);
    int fd = kit_patch_begin(k, 0, SIZE_MAX);
    kit_send(fd, "5\r\nThe q\r\nzz\r\n", 14);
    assert_int_equal(kit_receive(k, fd), 400);
    expect_tus(k, 400, "BAD_REQUEST");
    expect_header(k, "Upload-Offset", "5");
    expect_offset(k, 5, false);
    kit_free(k);
}

/* Hole 15, cases T40: nothing but an id gets near a path. */
static void test_what_is_no_id_is_not_found(void **state)
{
    static const char *const ids[] = {"x",
                                      "..",
                                      "..%2F..%2Fetc%2Fpasswd",
                                      "%2e%2e",
                                      "..%252f",
                                      "0123456789abcdef0123456789abcde",
                                      "0123456789abcdef0123456789abcdef0",
                                      "0123456789ABCDEF0123456789ABCDEF",
                                      "0123456789abcdef0123456789abcde%66",
                                      "0123456789abcdef0123456789abcdef.info",
                                      "0123456789abcdef0123456789abcdef%00",
                                      "0123456789abcdef0123456789abcdef"};
    struct kit *k = kit_new();
    char target[200];
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        (void)snprintf(target, sizeof target, "/files/%s", ids[i]);
        (void)kit_ask(k, "HEAD", target, TUS, NONE);
        expect_tus(k, 404, NULL);
        assert_int_equal(kit_header(k, "Upload-Offset").len, 0);
        (void)kit_ask(k, "PATCH", target, TUS UPLOAD_TYPE "Upload-Offset: 0\r\n", TEXT);
        expect_tus(k, 404, "UPLOAD_NOT_FOUND");
        (void)snprintf(target, sizeof target, "/api/v1/receipts/%s", ids[i]);
        assert_int_equal(kit_ask(k, "GET", target, "", NONE), 404);
        expect_has(k->body, "\"error\":\"not_found\"");
    }
    kit_free(k);
}

/* Hole 16: an overridden POST and a slash at the end are what they mean. */
static void test_methods_and_overrides(void **state)
{
    struct kit *k = kit_new();
    char target[100];
    (void)state;
    kit_create(k, TEXT);
    (void)snprintf(target, sizeof target, "/files/%s/", k->id);
    (void)kit_ask(k, "POST", target,
                  TUS UPLOAD_TYPE "Upload-Offset: 0\r\nX-HTTP-Method-Override: PATCH\r\n",
                  slice_of(text, 4));
    expect_tus(k, 204, NULL);
    expect_header(k, "Upload-Offset", "4");
    (void)kit_ask(k, "POST", target, TUS "X-HTTP-Method-Override: HEAD\r\n", NONE);
    expect_tus(k, 200, NULL);
    expect_header(k, "Upload-Offset", "4");
    expect_header(k, "Upload-Length", "44");
    assert_int_equal(k->body.len, 0);
    /* Only a POST can be something else. */
    (void)kit_ask(k, "PATCH", target,
                  TUS UPLOAD_TYPE "Upload-Offset: 4\r\nX-HTTP-Method-Override: DELETE\r\n", NONE);
    expect_tus(k, 204, NULL);
    (void)kit_ask(k, "POST", target,
                  TUS "X-HTTP-Method-Override: HEAD\r\nX-HTTP-Method-Override: HEAD\r\n", NONE);
    expect_tus(k, 400, "INVALID_REQUEST");
    static const char *const names[] = {"POST", "PUT", "patch", "OPTIONS", "BREW"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char headers[100];
        (void)snprintf(headers, sizeof headers, TUS "X-HTTP-Method-Override: %s\r\n", names[i]);
        (void)kit_ask(k, "POST", target, headers, NONE);
        expect_tus(k, 405, "METHOD_NOT_ALLOWED");
        expect_header(k, "Allow", "GET, HEAD, PATCH, DELETE, OPTIONS");
    }
    (void)kit_ask(k, "PUT", target, TUS, NONE);
    expect_tus(k, 405, "METHOD_NOT_ALLOWED");
    expect_has(kit_header(k, "Allow"), "PATCH");
    /* GET answers as HEAD, by its own name and as an override. */
    for (int i = 0; i < 2; i++) {
        (void)kit_ask(k, i == 0 ? "GET" : "POST", target,
                      i == 0 ? "" : TUS "X-HTTP-Method-Override: GET\r\n", NONE);
        expect_tus(k, 200, NULL);
        expect_header(k, "Upload-Offset", "4");
        expect_header(k, "Upload-Length", "44");
        expect_header(k, "Content-Length", "0");
        assert_int_equal(k->body.len, 0);
    }
    /* HEAD and OPTIONS may leave the version out. */
    (void)kit_ask(k, "HEAD", target, "", NONE);
    expect_tus(k, 200, NULL);
    (void)kit_ask(k, "HEAD", target, "Tus-Resumable: 2.0.0\r\n", NONE);
    expect_tus(k, 412, NULL);
    expect_offset(k, 4, false);
    (void)kit_ask(k, "POST", target, TUS "X-HTTP-Method-Override: DELETE\r\n", NONE);
    expect_tus(k, 204, NULL);
    assert_int_equal(kit_head(k), 404);
    kit_free(k);
}

static void test_options_tell_what_there_is(void **state)
{
    static const char *const targets[] = {"/files", "/files/",
                                          "/files/0123456789abcdef0123456789abcdef"};
    struct kit *k = kit_new();
    (void)state;
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        (void)kit_ask(k, "OPTIONS", targets[i],
                      "Origin: http://a.example\r\nAccess-Control-Request-Method: PATCH\r\n"
                      "Access-Control-Request-Headers: tus-resumable,upload-offset\r\n",
                      NONE);
        expect_tus(k, 204, NULL);
        expect_header(k, "Tus-Version", "1.0.0");
        expect_header(k, "Tus-Extension",
                      "creation,creation-with-upload,expiration,checksum,termination");
        expect_header(k, "Tus-Checksum-Algorithm", "sha1,md5,sha256,blake3");
        expect_header(k, "Tus-Max-Size", "1099511627776");
        expect_header(k, "Access-Control-Allow-Origin", "http://a.example");
    }
    kit_create(k, TEXT);
    char target[100];
    (void)kit_ask(k, "PATCH", kit_target(k, target),
                  TUS UPLOAD_TYPE "Origin: http://a.example\r\nUpload-Offset: 9\r\n", NONE);
    expect_tus(k, 409, "MISMATCHED_OFFSET");
    static const char *const names[] = {"Location",      "Upload-Offset",    "Upload-Expires",
                                        "Upload-Length", "Artifact-Receipt", "Retry-After",
                                        "Tus-Version",   "Upload-Metadata",  "Tus-Max-Size"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expect_has(kit_header(k, "Access-Control-Expose-Headers"), names[i]);
    }
    (void)snprintf(target, sizeof target, "/api/v1/receipts/%s", k->id);
    assert_int_equal(kit_ask(k, "GET", target, "Origin: http://a.example\r\n", NONE), 409);
    expect_header(k, "Access-Control-Allow-Origin", "http://a.example");
    kit_free(k);
}

/* Cases T10 and T11: what was sent comes back, several lines as one list. */
static void test_metadata_comes_back_as_it_was_sent(void **state)
{
    struct kit *k = kit_new();
    char headers[2000];
    char hex[BLAKE3_HEX_LEN + 1];
    char sum[200];
    char plain[100];
    char want[400];
    (void)state;
    kit_digest(text, sizeof text - 1, hex);
    (void)snprintf(plain, sizeof plain, "blake3:%s", hex);
    kit_base64(slice_cstr(plain), sum);
    (void)snprintf(headers, sizeof headers,
                   TUS
                   "Upload-Length: 44\r\nUpload-Metadata: filetype ,project\t ZGVtby1maWxlcw==\r\n"
                   "Upload-Metadata: is_confidential ,\tchecksum  %s\r\n",
                   sum);
    assert_int_equal(kit_ask(k, "POST", "/files", headers, NONE), 201);
    memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
    assert_int_equal(kit_head(k), 200);
    (void)snprintf(want, sizeof want,
                   "filetype ,project\t ZGVtby1maWxlcw==,is_confidential ,\tchecksum  %s", sum);
    /* The front makes a tab a blank in headers that it sends. */
    for (char *p = want; *p != '\0'; p++) {
        *p = (char)(*p == '\t' ? ' ' : *p);
    }
    expect_header(k, "Upload-Metadata", want);
    kit_free(k);
}

static void test_low_space_stops_what_writes(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new_with(&options, NULL);
    struct artifact_status st;
    char target[100];
    (void)state;
    kit_create(k, TEXT);
    kit_close(k);
    options.min_free_bytes = UINT64_MAX;
    kit_open(k, &options, NULL);
    uint64_t before = metric_get(METRIC_ARTIFACT_LOW_SPACE);
    expect_refused(k, TUS LENGTH META, NONE, 429, "LOW_SPACE");
    expect_header(k, "Retry-After", "60");
    assert_int_equal(kit_patch(k, 0, TEXT), 429);
    expect_header(k, "Retry-After", "60");
    expect_offset(k, 0, false);
    assert_int_equal(
        kit_ask(k, "POST", kit_target(k, target), TUS "X-HTTP-Method-Override: HEAD\r\n", NONE),
        200);
    assert_int_equal(kit_receipt(k), 409);
    assert_int_equal(metric_get(METRIC_ARTIFACT_LOW_SPACE), before + 2);
    artifact_get_status(k->artifact, &st);
    assert_true(st.low_space);
    kit_close(k);
    options.low_space_status = 503;
    kit_open(k, &options, NULL);
    assert_int_equal(kit_patch(k, 0, TEXT), 503);
    expect_tus(k, 503, "LOW_SPACE");
    kit_close(k);
    options.min_free_bytes = 0;
    kit_open(k, &options, NULL);
    assert_int_equal(kit_patch(k, 0, TEXT), 204);
    artifact_get_status(k->artifact, &st);
    assert_false(st.low_space);
    kit_free(k);
}

static void test_dates(void **state)
{
    char date[HTTP_DATE_LEN + 1];
    (void)state;
    http_date_text(date, 0);
    assert_string_equal(date, "Thu, 01 Jan 1970 00:00:00 GMT");
    http_date_text(date, INT64_C(1796040000999));
    assert_string_equal(date, "Mon, 30 Nov 2026 12:00:00 GMT");
    http_date_text(date, INT64_MAX);
    assert_string_equal(date, "Fri, 31 Dec 9999 23:59:59 GMT");
    http_date_text(date, -5000);
    assert_string_equal(date, "Thu, 01 Jan 1970 00:00:00 GMT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_goes_in_and_its_receipt_comes_out),
        cmocka_unit_test(test_a_file_comes_with_its_creation),
        cmocka_unit_test(test_pieces_of_any_length_make_the_file),
        cmocka_unit_test(test_a_mismatch_is_final),
        cmocka_unit_test(test_creations_are_checked_in_their_order),
        cmocka_unit_test(test_without_projects_or_issuer_nothing_is_made),
        cmocka_unit_test(test_location_is_a_path_or_below_the_public_url),
        cmocka_unit_test(test_location_behind_a_proxy),
        cmocka_unit_test(test_appends_are_checked_in_their_order),
        cmocka_unit_test(test_a_chunked_body_past_the_end),
        cmocka_unit_test(test_broken_chunks_keep_what_came),
        cmocka_unit_test(test_what_is_no_id_is_not_found),
        cmocka_unit_test(test_methods_and_overrides),
        cmocka_unit_test(test_options_tell_what_there_is),
        cmocka_unit_test(test_metadata_comes_back_as_it_was_sent),
        cmocka_unit_test(test_low_space_stops_what_writes),
        cmocka_unit_test(test_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
