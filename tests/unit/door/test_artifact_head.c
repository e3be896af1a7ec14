/* test_artifact_head: the headers of tus requests and Upload-Metadata, by tables; no server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blake3.h"
#include "door/artifact/head.h"

#define P   "project cA=="
#define HEX "abababababababababababababababababababababababababababababababab"

static struct tus_head head_of(enum http_method method)
{
    return (struct tus_head){.method = method, .metadata = {.ptr = ""}};
}

static void set(struct tus_head *h, enum tus_field f, const char *value)
{
    h->field[f].value = slice_cstr(value);
    h->field[f].count++;
}

/* ---- numbers (cases T04, T19) ---- */

static void test_numbers(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t value;
    } rows[] = {{"0", true, 0},
                {"5", true, 5},
                {"05", true, 5},
                {"0000000000000000005", true, 5},
                {"2147483648", true, UINT64_C(2147483648)},
                {"4294967296", true, UINT64_C(4294967296)},
                {"9007199254740993", true, UINT64_C(9007199254740993)},
                {"9223372036854775807", true, INT64_MAX},
                {"9223372036854775808", false, 0},
                {"9999999999999999999", false, 0},
                {"00000000000000000005", false, 0},
                {"18446744073709551621", false, 0},
                {"99999999999999999999", false, 0},
                {"", false, 0},
                {"+5", false, 0},
                {"-1", false, 0},
                {" 5", false, 0},
                {"5 ", false, 0},
                {"5,5", false, 0},
                {"0x5", false, 0},
                {"1e3", false, 0},
                {"5.0", false, 0},
                {"\xd9\xa5", false, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint64_t got = 0;
        bool good = tus_number(slice_cstr(rows[i].text), &got);
        if (good != rows[i].good || (good && got != rows[i].value)) {
            fail_msg("\"%s\": %d %llu", rows[i].text, good, (unsigned long long)got);
        }
    }
}

/* ---- method and version ---- */

static void test_the_override_counts_for_post_only(void **state)
{
    static const struct {
        enum http_method wire;
        const char *override;
        enum http_method want;
    } rows[] = {{HTTP_POST, NULL, HTTP_POST},
                {HTTP_POST, "PATCH", HTTP_PATCH},
                {HTTP_POST, "HEAD", HTTP_HEAD},
                {HTTP_POST, "POST", HTTP_POST},
                {HTTP_POST, "DELETE", HTTP_DELETE},
                {HTTP_POST, "GET", HTTP_GET},
                {HTTP_POST, "PUT", HTTP_PUT},
                {HTTP_POST, "OPTIONS", HTTP_OPTIONS},
                {HTTP_POST, "", HTTP_OTHER},
                {HTTP_POST, "patch", HTTP_OTHER},
                {HTTP_POST, "PATCH, HEAD", HTTP_OTHER},
                {HTTP_PATCH, "DELETE", HTTP_PATCH},
                {HTTP_HEAD, "PATCH", HTTP_HEAD}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_of(rows[i].wire);
        struct err e = {0};
        enum http_method got = HTTP_OTHER;
        if (rows[i].override != NULL) {
            set(&h, TUS_OVERRIDE, rows[i].override);
        }
        assert_int_equal(tus_method(&h, &got, &e), 0);
        assert_int_equal(got, rows[i].want);
    }
    struct tus_head h = head_of(HTTP_POST);
    struct err e = {0};
    enum http_method got;
    set(&h, TUS_OVERRIDE, "PATCH");
    set(&h, TUS_OVERRIDE, "PATCH");
    assert_int_equal(tus_method(&h, &got, &e), ERR_INVALID_REQUEST);
    assert_non_null(strstr(e.text, "x-http-method-override"));
}

static void test_versions(void **state)
{
    static const struct {
        const char *value;
        int head, other;
    } rows[] = {{NULL, 0, ERR_UNSUPPORTED_VERSION},
                {"1.0.0", 0, 0},
                {"1.0", ERR_UNSUPPORTED_VERSION, ERR_UNSUPPORTED_VERSION},
                {"0.2.2", ERR_UNSUPPORTED_VERSION, ERR_UNSUPPORTED_VERSION},
                {"1.0.0, 1.0.0", ERR_UNSUPPORTED_VERSION, ERR_UNSUPPORTED_VERSION},
                {"", ERR_UNSUPPORTED_VERSION, ERR_UNSUPPORTED_VERSION}};
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_of(HTTP_POST);
        if (rows[i].value != NULL) {
            set(&h, TUS_RESUMABLE, rows[i].value);
        }
        assert_int_equal(tus_version(&h, HTTP_HEAD, &e), rows[i].head);
        assert_int_equal(tus_version(&h, HTTP_POST, &e), rows[i].other);
        assert_int_equal(tus_version(&h, HTTP_PATCH, &e), rows[i].other);
    }
    struct tus_head h = head_of(HTTP_POST);
    set(&h, TUS_RESUMABLE, "1.0.0");
    set(&h, TUS_RESUMABLE, "1.0.0");
    assert_int_equal(tus_version(&h, HTTP_POST, &e), ERR_INVALID_REQUEST);
}

/* ---- creations ---- */

static void test_creation_sizes(void **state)
{
    static const struct {
        const char *length, *defer, *concat;
        int code;
        uint64_t want;
    } rows[] = {{"5", NULL, NULL, 0, 5},
                {"0", NULL, NULL, 0, 0},
                {"1000", NULL, NULL, 0, 1000},
                {"1001", NULL, NULL, ERR_MAX_SIZE_EXCEEDED, 0},
                {"9223372036854775807", NULL, NULL, ERR_MAX_SIZE_EXCEEDED, 0},
                {"9223372036854775808", NULL, NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {NULL, NULL, NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {"", NULL, NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {"-1", NULL, NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {NULL, "1", NULL, 0, 0},
                {NULL, "0", NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {NULL, "true", NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {"5", "1", NULL, ERR_INVALID_UPLOAD_LENGTH, 0},
                {"x", "x", "final;/a", ERR_CONCATENATION_UNSUPPORTED, 0},
                {"5", NULL, "", ERR_CONCATENATION_UNSUPPORTED, 0}};
    struct err e = {0};
    struct tus_creation c;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_of(HTTP_POST);
        if (rows[i].length != NULL) {
            set(&h, TUS_LENGTH, rows[i].length);
        }
        if (rows[i].defer != NULL) {
            set(&h, TUS_DEFER, rows[i].defer);
        }
        if (rows[i].concat != NULL) {
            set(&h, TUS_CONCAT, rows[i].concat);
        }
        int r = tus_creation_size(&h, 1000, &c, &e);
        if (r != rows[i].code || (r == 0 && c.length != rows[i].want)) {
            fail_msg("row %zu: %s %s", i, err_name(r), e.text);
        }
        assert_int_equal(c.deferred, rows[i].concat == NULL && rows[i].defer != NULL);
    }
    for (enum tus_field f = TUS_LENGTH; f <= TUS_DEFER; f++) {
        struct tus_head h = head_of(HTTP_POST);
        set(&h, f, "1");
        set(&h, f, "1");
        assert_int_equal(tus_creation_size(&h, 1000, &c, &e), ERR_INVALID_REQUEST);
        assert_non_null(strstr(e.text, tus_field_name(f)));
    }
}

static void test_creation_lengths(void **state)
{
    struct err e = {0};
    (void)state;
    assert_int_equal(tus_creation_length(&(struct tus_creation){.length = 1}, &e), 0);
    assert_int_equal(tus_creation_length(&(struct tus_creation){.length = 0}, &e),
                     ERR_INVALID_SIZE);
    assert_int_equal(tus_creation_length(&(struct tus_creation){.deferred = true}, &e),
                     ERR_INVALID_SIZE);
}

static void test_bodies_of_creations(void **state)
{
    static const struct {
        const char *content_length, *coding, *type;
        uint64_t bytes;
        int code;
    } rows[] = {{NULL, NULL, NULL, 0, 0},
                {"0", NULL, "text/plain", 0, 0},
                {"10", NULL, TUS_UPLOAD_TYPE, 10, 0},
                {"11", NULL, TUS_UPLOAD_TYPE, 11, ERR_UPLOAD_SIZE_EXCEEDED},
                {"9223372036854775807", NULL, TUS_UPLOAD_TYPE, INT64_MAX, ERR_UPLOAD_SIZE_EXCEEDED},
                {"3", NULL, "text/plain", 3, ERR_INVALID_CONTENT_TYPE},
                {"3", NULL, NULL, 3, ERR_INVALID_CONTENT_TYPE},
                {NULL, "chunked", NULL, UINT64_MAX, ERR_INVALID_CONTENT_TYPE},
                {NULL, "chunked", TUS_UPLOAD_TYPE, UINT64_MAX, 0}};
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_of(HTTP_POST);
        struct tus_creation c;
        set(&h, TUS_LENGTH, "10");
        if (rows[i].content_length != NULL) {
            set(&h, TUS_CONTENT_LENGTH, rows[i].content_length);
        }
        if (rows[i].coding != NULL) {
            set(&h, TUS_CODING, rows[i].coding);
        }
        if (rows[i].type != NULL) {
            set(&h, TUS_TYPE, rows[i].type);
        }
        assert_int_equal(tus_creation_size(&h, 1000, &c, &e), 0);
        assert_true(c.body_bytes == rows[i].bytes);
        assert_int_equal(tus_creation_body(&h, &c, &e), rows[i].code);
    }
}

/* ---- appends (cases T22) ---- */

static void test_appends(void **state)
{
    static const struct {
        const char *type, *offset;
        int code;
        uint64_t want;
    } rows[] = {{TUS_UPLOAD_TYPE, "0", 0, 0},
                {TUS_UPLOAD_TYPE "; charset=utf-8", "7", 0, 7},
                {TUS_UPLOAD_TYPE " ;x", "7", 0, 7},
                {TUS_UPLOAD_TYPE ";", "7", 0, 7},
                {"APPLICATION/OFFSET+OCTET-STREAM", "7", 0, 7},
                {TUS_UPLOAD_TYPE "x", "7", ERR_INVALID_CONTENT_TYPE, 0},
                {TUS_UPLOAD_TYPE " x", "7", ERR_INVALID_CONTENT_TYPE, 0},
                {"application/offset+octet-strea", "7", ERR_INVALID_CONTENT_TYPE, 0},
                {"application/octet-stream", "x", ERR_INVALID_CONTENT_TYPE, 0},
                {"application/x-www-form-urlencoded", "7", ERR_INVALID_CONTENT_TYPE, 0},
                {"", "7", ERR_INVALID_CONTENT_TYPE, 0},
                {NULL, "7", ERR_INVALID_CONTENT_TYPE, 0},
                {TUS_UPLOAD_TYPE, NULL, ERR_INVALID_OFFSET, 0},
                {TUS_UPLOAD_TYPE, "-1", ERR_INVALID_OFFSET, 0},
                {TUS_UPLOAD_TYPE, "9223372036854775808", ERR_INVALID_OFFSET, 0},
                {TUS_UPLOAD_TYPE, "9223372036854775807", 0, INT64_MAX}};
    struct err e = {0};
    uint64_t got;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tus_head h = head_of(HTTP_PATCH);
        if (rows[i].type != NULL) {
            set(&h, TUS_TYPE, rows[i].type);
        }
        if (rows[i].offset != NULL) {
            set(&h, TUS_OFFSET, rows[i].offset);
        }
        int r = tus_append(&h, &got, &e);
        if (r != rows[i].code || (r == 0 && got != rows[i].want)) {
            fail_msg("row %zu: %s %s", i, err_name(r), e.text);
        }
    }
    for (unsigned twice = 0; twice < 2; twice++) {
        struct tus_head h = head_of(HTTP_PATCH);
        set(&h, TUS_TYPE, TUS_UPLOAD_TYPE);
        set(&h, TUS_OFFSET, "0");
        set(&h, twice == 0 ? TUS_TYPE : TUS_OFFSET, "0");
        assert_int_equal(tus_append(&h, &got, &e), ERR_INVALID_REQUEST);
    }
}

/* ---- metadata ---- */

/* In memory of its exact size, so that a sanitizer sees a step too far. */
static int parse(const char *list, size_t n, struct metadata *m, struct err *e)
{
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy + 1, list, n);
    *e = (struct err){0};
    int r = metadata_parse(slice_of(copy + 1, n), m, e);
    free(copy);
    return r;
}

static void test_lists_that_are_fine(void **state)
{
    static const char *const rows[] = {
        P,
        "a YQ==, b Yg==," P,
        "a YQ==\t,\tb Yg==,\t " P,
        "  " P "\t ",
        "filename d29ybGQ=,filetype ," P,
        "filetype," P,
        "filetype ,filename d29ybGQ=," P,
        "is_confidential," P,
        "a  YQ==,b\tYg==,c \t Yw==," P,
        P ",a",
        P ",a ",
        "A YQ==,a YQ==," P,
        "a.b-c/d=e\" YQ==," P,
        "k AA==,l ////,m ++++," P,
        "trailing YR==," P, /* bits beyond the last byte mean nothing */
    };
    struct metadata m;
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int r = parse(rows[i], strlen(rows[i]), &m, &e);
        if (r != 0 || strcmp(m.project, "p") != 0) {
            fail_msg("\"%s\": %s \"%s\"", rows[i], e.text, m.project);
        }
        assert_true(m.has_project);
        assert_false(m.has_checksum);
    }
    assert_int_equal(parse("", 0, &m, &e), 0);
    assert_false(m.has_project);
    assert_int_equal(parse(" \t", 2, &m, &e), 0);
}

static void test_lists_that_are_not(void **state)
{
    static const struct {
        const char *list, *named;
    } rows[] = {{",", "\"\" is empty"},
                {P ",", "\"\" is empty"},
                {P ", ", "\"\" is empty"},
                {"," P, "\"\" is empty"},
                {P ",,a", "\"\" is empty"},
                {"a YQ==,a YQ==", "\"a\" is there more than once"},
                {"a,b,c,a ", "\"a\" is there more than once"},
                {"key $$$", "\"key\" has a value"},
                {"key YQ", "\"key\" has a value"},
                {"key YQ=", "\"key\" has a value"},
                {"key YQ===", "\"key\" has a value"},
                {"key ====", "\"key\" has a value"},
                {"key =", "\"key\" has a value"},
                {"key Y=Q=", "\"key\" has a value"},
                {"key YQ==YQ==", "\"key\" has a value"},
                {"key YQ== YQ==", "\"key\" has a value"},
                {"key YWJ_", "\"key\" has a value"},
                {"key YWJ-", "\"key\" has a value"},
                {"k\xc3\xa9y YQ==", "visible ASCII"},
                {"k\x7fy YQ==", "visible ASCII"}};
    struct metadata m;
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int r = parse(rows[i].list, strlen(rows[i].list), &m, &e);
        if (r != ERR_INVALID_METADATA || strstr(e.text, rows[i].named) == NULL) {
            fail_msg("\"%s\": %s \"%s\"", rows[i].list, err_name(r), e.text);
        }
    }
    assert_int_equal(parse("a\0b YQ==", 8, &m, &e), ERR_INVALID_METADATA);
}

static void test_bounds_of_a_list(void **state)
{
    char list[UPLOAD_METADATA_MAX + 2];
    struct metadata m;
    struct err e;
    (void)state;
    memset(list, 'k', sizeof list);
    assert_int_equal(parse(list, UPLOAD_METADATA_MAX, &m, &e), 0);
    assert_int_equal(parse(list, UPLOAD_METADATA_MAX + 1, &m, &e), ERR_INVALID_METADATA);
    /* The long key is named in part. */
    list[UPLOAD_METADATA_MAX - 2] = ' ';
    list[UPLOAD_METADATA_MAX - 1] = '$';
    assert_int_equal(parse(list, UPLOAD_METADATA_MAX, &m, &e), ERR_INVALID_METADATA);
    assert_non_null(strstr(e.text, "kkkk\" has a value"));
    for (int keys = METADATA_KEYS_MAX; keys <= METADATA_KEYS_MAX + 1; keys++) {
        size_t n = 0;
        for (int i = 0; i < keys; i++) {
            n += (size_t)snprintf(list + n, sizeof list - n, "%sk%d", i > 0 ? "," : "", i);
        }
        assert_int_equal(parse(list, n, &m, &e),
                         keys > METADATA_KEYS_MAX ? ERR_INVALID_METADATA : 0);
    }
}

static void base64(const char *in, size_t n, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        size_t have = n - i < 3 ? n - i : 3;
        uint32_t bits = (uint32_t)(unsigned char)in[i] << 16;
        bits |= have > 1 ? (uint32_t)(unsigned char)in[i + 1] << 8 : 0;
        bits |= have > 2 ? (uint32_t)(unsigned char)in[i + 2] : 0;
        for (size_t k = 0; k < 4; k++) {
            *out++ = k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=';
        }
    }
    *out = '\0';
}

static void with(const char *key, const char *value, size_t n, struct metadata *m)
{
    char list[UPLOAD_METADATA_MAX];
    char text[UPLOAD_METADATA_MAX - 100];
    struct err e;
    base64(value, n, text);
    int len = snprintf(list, sizeof list, "%s %s", key, text);
    assert_true(len > 0 && (size_t)len < sizeof list);
    assert_int_equal(parse(list, (size_t)len, m, &e), 0);
}

static void test_projects(void **state)
{
    char longest[UPLOAD_PROJECT_MAX + 2];
    struct metadata m;
    struct err e;
    static const char *const good[] = {"a", "demo-files", "A.b_c:d-9", "..", "0"};
    static const char *const bad[] = {"", "a b", "a/b", "a\\b", "p\xc3\xa9", "a\n", "a,b"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        with("project", good[i], strlen(good[i]), &m);
        assert_int_equal(metadata_project(&m, &e), 0);
        assert_string_equal(m.project, good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        with("project", bad[i], strlen(bad[i]), &m);
        assert_int_equal(metadata_project(&m, &e), ERR_INVALID_PROJECT);
    }
    with("project", "a\0b", 3, &m);
    assert_int_equal(metadata_project(&m, &e), ERR_INVALID_PROJECT);
    with("project", "a\xff", 2, &m);
    assert_int_equal(metadata_project(&m, &e), ERR_INVALID_PROJECT);
    memset(longest, 'x', sizeof longest);
    with("project", longest, UPLOAD_PROJECT_MAX, &m);
    assert_int_equal(metadata_project(&m, &e), 0);
    with("project", longest, UPLOAD_PROJECT_MAX + 1, &m);
    assert_int_equal(metadata_project(&m, &e), ERR_INVALID_PROJECT);
    with("Project", "a", 1, &m);
    assert_int_equal(metadata_project(&m, &e), ERR_INVALID_PROJECT);
    assert_non_null(strstr(e.text, "has no project"));
}

static void test_checksums(void **state)
{
    struct metadata m;
    struct err e;
    static const char *const bad[] = {
        "",
        HEX,
        "blake3:",
        "blake3:" HEX "a",
        "sha256:" HEX,
        "BLAKE3:" HEX,
        "blake3: " HEX,
        "blake3:Ababababababababababababababababababababababababababababababababa",
        "blake3:abababababababababababababababababababababababababababababababag",
        "blake3:ababababababababababababababababababababababababababababababab"};
    (void)state;
    with("checksum", "blake3:" HEX, 7 + BLAKE3_HEX_LEN, &m);
    assert_int_equal(metadata_checksum(&m, &e), 0);
    assert_string_equal(m.checksum, HEX);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        with("checksum", bad[i], strlen(bad[i]), &m);
        if (metadata_checksum(&m, &e) != ERR_INVALID_CHECKSUM) {
            fail_msg("\"%s\" passed", bad[i]);
        }
        assert_non_null(strstr(e.text, "lower-case"));
    }
    with("other", "", 0, &m);
    assert_int_equal(metadata_checksum(&m, &e), ERR_INVALID_CHECKSUM);
    assert_non_null(strstr(e.text, "has no checksum"));
}

/* A filename is never a reason to refuse (artifacts.md 4.2, hole 13). */
static void test_filenames(void **state)
{
    char longest[UPLOAD_FILENAME_MAX + 2];
    struct metadata m;
    (void)state;
    static const char *const kept[] = {"a.txt", "../../x", "C:\\x", ".", "s\xc5\x82o\xc5\x84 \x01"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        with("filename", kept[i], strlen(kept[i]), &m);
        assert_string_equal(m.filename, kept[i]);
    }
    with("filename", "a\0b", 3, &m);
    assert_string_equal(m.filename, "");
    with("filename", "\xff", 1, &m);
    assert_string_equal(m.filename, "");
    with("filename", "", 0, &m);
    assert_string_equal(m.filename, "");
    memset(longest, 'n', sizeof longest);
    with("filename", longest, UPLOAD_FILENAME_MAX, &m);
    assert_int_equal(strlen(m.filename), UPLOAD_FILENAME_MAX);
    with("filename", longest, UPLOAD_FILENAME_MAX + 1, &m);
    assert_string_equal(m.filename, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_the_override_counts_for_post_only),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_creation_sizes),
        cmocka_unit_test(test_creation_lengths),
        cmocka_unit_test(test_bodies_of_creations),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_lists_that_are_fine),
        cmocka_unit_test(test_lists_that_are_not),
        cmocka_unit_test(test_bounds_of_a_list),
        cmocka_unit_test(test_projects),
        cmocka_unit_test(test_checksums),
        cmocka_unit_test(test_filenames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
