/* decode_body: which stages a body goes through, by mode, hint and content (spec/capture.md A2,
 * cases C02, C04, C05, C43, C53). The stages themselves: test_decode_gzip.c, test_decode_base64.c.
 * */
#include "tests/unit/door/decode_kit.h"

#define FORM_TYPE SLICE("application/x-www-form-urlencoded")

static const enum decode_mode all_modes[] = {DECODE_POSTHOG, DECODE_BASE64_TOO, DECODE_V1,
                                             DECODE_SEGMENT, DECODE_PLAIN};
#define MODES (sizeof all_modes / sizeof *all_modes)

static void test_plain_json_is_borrowed(void **state)
{
    struct fixture *f = *state;
    static const char *const bodies[] = {EVENT, "[" EVENT "]", " \r\n\t" EVENT " ",
                                         ("\xef\xbb\xbf" EVENT),
                                         /* no form, though a field's name is in it */
                                         "{\"event\":\"a&data=b&ip=c\"}", "{\"a\":\"\xff\"}"};
    for (size_t m = 0; m < MODES; m++) {
        for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
            fresh(f, all_modes[m]);
            f->how.content_type = i % 2 == 0 ? SLICE("application/json") : FORM_TYPE;
            expect_text(f, slice_cstr(bodies[i]), slice_cstr(bodies[i]));
            assert_ptr_equal(f->got.json.ptr, f->how.body.ptr);
            assert_null(f->got.owned.ptr);
        }
    }
}

/* Case C01 (e). */
static void test_empty(void **state)
{
    struct fixture *f = *state;
    static const char *const codings[] = {"", "gzip", "deflate"};
    for (size_t m = 0; m < MODES; m++) {
        for (size_t i = 0; i < sizeof codings / sizeof *codings; i++) {
            fresh(f, all_modes[m]);
            f->how.content_encoding = slice_cstr(codings[i]);
            f->how.query_compression = SLICE("gzip");
            expect_error(f, SLICE(""), ERR_INVALID_ENCODING, "the body is empty");
        }
    }
    struct slice nothing = pack(SLICE(""), GZIP);
    fresh(f, DECODE_POSTHOG);
    expect_error(f, nothing, ERR_INVALID_ENCODING, "empty when it is decoded");
    expect_error(f, SLICE("data="), ERR_INVALID_ENCODING, "empty when it is decoded");
    f->how.query_compression = SLICE("base64");
    expect_error(f, SLICE("===="), ERR_INVALID_ENCODING, "empty when it is decoded");
    drop(nothing);
}

static void test_size_of_plain_bodies(void **state)
{
    struct fixture *f = *state;
    for (size_t m = 0; m < MODES; m++) {
        fresh(f, all_modes[m]);
        f->how.decoded_bytes_max = sizeof EVENT - 1;
        expect_event(f, SLICE(EVENT));
        f->how.decoded_bytes_max = sizeof EVENT - 2;
        expect_error(f, SLICE(EVENT), ERR_BODY_TOO_LARGE, "more than");
    }
}

/* ---- gzip, however it is declared ---- */

static void test_gzip_by_hint_header_and_magic(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    static const struct {
        enum decode_mode mode;
        const char *query, *header, *type;
    } cases[] = {
        /* posthog-js 1.449: nothing says so */
        {DECODE_BASE64_TOO, "", "", "text/plain"},
        {DECODE_POSTHOG, "", "", ""},
        {DECODE_SEGMENT, "", "", "text/plain"},
        /* posthog-node, -lite, -python; posthog-go says it twice */
        {DECODE_POSTHOG, "", "gzip", "application/json"},
        {DECODE_POSTHOG, "gzip", "gzip", "application/json"},
        {DECODE_BASE64_TOO, "gzip-js", "", "text/plain"},
        {DECODE_BASE64_TOO, "GZIP", "", ""},
        /* a hint that is wrong, or unknown */
        {DECODE_BASE64_TOO, "base64", "", ""},
        {DECODE_POSTHOG, "snappy", "", ""},
        {DECODE_POSTHOG, "lz64", "", ""},
        {DECODE_SEGMENT, "", "utf-8", ""},
        /* Rudder node: declared as a form (client-wire 1.9) */
        {DECODE_SEGMENT, "", "gzip", "application/x-www-form-urlencoded"},
        {DECODE_POSTHOG, "", "gzip", "application/x-www-form-urlencoded"},
        {DECODE_BASE64_TOO, "", "gzip", "application/x-www-form-urlencoded; charset=UTF-8"},
        {DECODE_V1, "", "gzip", "application/json"},
        {DECODE_PLAIN, "", "gzip", "application/json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fresh(f, cases[i].mode);
        f->how.query_compression = slice_cstr(cases[i].query);
        f->how.content_encoding = slice_cstr(cases[i].header);
        f->how.content_type = slice_cstr(cases[i].type);
        expect_event(f, gz);
    }
    /* v1 and native go by the header alone: these bytes are then for the JSON reader to refuse */
    fresh(f, DECODE_V1);
    expect_text(f, gz, gz);
    fresh(f, DECODE_PLAIN);
    expect_text(f, gz, gz);
    drop(gz);
}

/* What comes out of a stage and is no JSON is for the JSON reader to refuse: no stage runs twice.
 * */
static void test_what_is_left_over(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE("!no JSON"), GZIP);
    struct slice zl = pack(SLICE("!no JSON"), ZLIB);
    fresh(f, DECODE_BASE64_TOO);
    f->how.content_encoding = SLICE("gzip");
    expect_text(f, gz, SLICE("!no JSON"));
    f->how.content_encoding = SLICE("deflate");
    expect_text(f, zl, SLICE("!no JSON"));
    expect_text(f, gz, SLICE("!no JSON")); /* the magic goes before the header */
    f->how.content_encoding = SLICE("");
    expect_text(f, SLICE("\xef\xbb\xbf"), SLICE("\xef\xbb\xbf"));
    expect_text(f, SLICE("!"), SLICE("!"));
    drop(gz);
    drop(zl);
}

static void test_json_with_a_wrong_hint(void **state)
{
    struct fixture *f = *state;
    static const char *const hints[] = {"gzip", "gzip-js", "base64", "lz64"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        fresh(f, DECODE_POSTHOG);
        f->how.query_compression = slice_cstr(hints[i]);
        expect_event(f, SLICE(EVENT));
    }
    fresh(f, DECODE_PLAIN);
    f->how.content_encoding = SLICE("gzip");
    expect_error(f, SLICE(EVENT), ERR_INVALID_ENCODING, "no gzip header at byte 0");
}

/* Case C43. */
static void test_names_of_content_encoding(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice zl = pack(SLICE(EVENT), ZLIB);
    struct slice raw = pack(SLICE(EVENT), RAW);
    static const char *const gzips[] = {"gzip",           "GZIP",           "x-gzip",
                                        "X-GZip",         "gzip;q=1",       " gzip ; q=0.5 ",
                                        "gzip, identity", "identity, gzip", ", gzip,,"};
    static const char *const deflates[] = {"deflate", "Deflate", "deflate;q=1", "identity,deflate"};
    static const char *const plains[] = {"",  "identity", "IDENTITY", "identity, identity",
                                         ",", ";"};
    for (size_t m = 0; m < MODES; m++) {
        fresh(f, all_modes[m]);
        for (size_t i = 0; i < sizeof gzips / sizeof *gzips; i++) {
            f->how.content_encoding = slice_cstr(gzips[i]);
            expect_event(f, gz);
        }
        for (size_t i = 0; i < sizeof deflates / sizeof *deflates; i++) {
            f->how.content_encoding = slice_cstr(deflates[i]);
            expect_event(f, zl);
            expect_event(f, raw);
        }
        for (size_t i = 0; i < sizeof plains / sizeof *plains; i++) {
            f->how.content_encoding = slice_cstr(plains[i]);
            expect_event(f, SLICE(EVENT));
        }
    }
    drop(gz);
    drop(zl);
    drop(raw);
}

/* Cases C41 and C43: refused by name, before a byte is decoded. */
static void test_refused_content_encodings(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *value, *says;
    } refused[] = {
        {"br", "\"br\""},
        {"zstd", "\"zstd\""},
        {"Compress", "\"Compress\""},
        {"br, gzip", "\"br\""},
        {"gzip, br;q=1", "\"br\""},
        {"gzip, gzip", "more than one"},
        {"gzip,gzip", "one at a"},
        {"deflate, gzip", "one at a"},
        {"x-gzip,deflate", "one at a"},
        {"gzip, utf-8", "utf-8"},
        {"gzip, and others", "\"and others\""},
    };
    for (size_t m = 0; m < MODES; m++) {
        fresh(f, all_modes[m]);
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            f->how.content_encoding = slice_cstr(refused[i].value);
            expect_error(f, SLICE(EVENT), ERR_UNSUPPORTED_MEDIA_TYPE, refused[i].says);
            assert_non_null(strstr(f->e.text, "gzip, deflate and identity are supported"));
        }
    }
    /* Names that are no coding: strict where the protocol is, and never shown as they came. */
    static const struct slice bad = {"\xff\x01\"utf-8-and-a-very-long-name-that-has-no-end", 46};
    for (size_t m = 0; m < MODES; m++) {
        fresh(f, all_modes[m]);
        f->how.content_encoding = bad;
        if (all_modes[m] == DECODE_V1 || all_modes[m] == DECODE_PLAIN) {
            expect_error(f, SLICE(EVENT), ERR_UNSUPPORTED_MEDIA_TYPE,
                         "\"\?\?\?utf-8-and-a-very-long-name-th\" is not supported");
        } else {
            expect_event(f, SLICE(EVENT));
        }
    }
}

/* PostHog's own names are hints in its header too; Segment's requests do not have them. */
static void test_posthog_names_in_the_header(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice b64 = base64(SLICE(EVENT), STANDARD, "=");
    fresh(f, DECODE_POSTHOG);
    f->how.content_encoding = SLICE("gzip-js");
    expect_event(f, gz);
    f->how.content_encoding = SLICE("B64");
    expect_event(f, b64);
    f->how.content_encoding = SLICE("lz-string");
    expect_error(f, SLICE("N4IgpgbghgxlA"), ERR_UNSUPPORTED_MEDIA_TYPE, "lz64");
    fresh(f, DECODE_SEGMENT);
    f->how.content_encoding = SLICE("base64");
    expect_text(f, b64, b64);
    drop(gz);
    drop(b64);
}

static void test_the_first_known_hint_counts(void **state)
{
    struct fixture *f = *state;
    struct slice b64 = base64(SLICE(EVENT), STANDARD, "=");
    struct slice zl = pack(SLICE(EVENT), ZLIB);
    fresh(f, DECODE_POSTHOG);
    f->how.query_compression = SLICE("base64");
    f->how.content_encoding = SLICE("gzip");
    expect_event(f, b64);
    f->how.query_compression = SLICE("gzip");
    f->how.content_encoding = SLICE("deflate");
    expect_error(f, zl, ERR_INVALID_ENCODING, "no gzip header");
    f->how.query_compression = SLICE("nothing-known");
    expect_event(f, zl);
    drop(b64);
    drop(zl);
}

/* ---- gzip-js as text, case C02 ---- */

static void test_gzip_js_as_latin1(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice text = as_latin1_text(gz);
    assert_true(slice_starts(text, SLICE("\x1f\xc2\x8b\x08")));
    fresh(f, DECODE_BASE64_TOO);
    f->how.query_compression = SLICE("gzip-js");
    expect_event(f, text);
    fresh(f, DECODE_POSTHOG);
    expect_event(f, text);
    fresh(f, DECODE_PLAIN);
    f->how.content_encoding = SLICE("gzip");
    expect_event(f, text);
    /* in the query string too, where it is percent-decoded text */
    fresh(f, DECODE_BASE64_TOO);
    f->how.query_data = text;
    expect_event(f, SLICE(""));
    f->how.query_data = (struct slice){0};

    struct buf bad = {0};
    buf_put_slice(&bad, slice_of(text.ptr, 4));
    buf_put_cstr(&bad, "\xc4\x80"); /* U+0100 */
    buf_put_slice(&bad, slice_from(text, 4));
    expect_error(f, buf_slice(&bad), ERR_INVALID_ENCODING,
                 "gzip-js: byte 4 is no Latin-1 character in UTF-8");
    expect_error(f, SLICE("\x1f\xc2\x8b\x08\xc2\x41"), ERR_INVALID_ENCODING, "gzip-js: byte 4");
    /* cut in the middle of a character, and elsewhere */
    for (size_t n = 5; n < text.len; n++) {
        expect_error(f, slice_of(text.ptr, n), ERR_INVALID_ENCODING, "gzip");
    }
    buf_free(&bad);
    drop(gz);
    drop(text);
}

/* ---- forms, cases C04 and C05 ---- */

static void test_forms(void **state)
{
    struct fixture *f = *state;
    struct slice b64 = base64(SLICE(EVENT), STANDARD, "=");
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice gz64 = base64(gz, STANDARD, "=");
    struct slice zero[] = {
        form("data=", b64, true),
        form("data=", b64, false),
        form("data=", SLICE(EVENT), true),
        form("_=1709656610891&data=", b64, true),
        form("ip=1&ver=1.130.0&compression=base64&data=", b64, true),
        form("compression=gzip&data=", gz64, true),
        form("compression=gzip-js&data=", gz, true), /* the bytes themselves, percent-encoded */
        form("data=", gz64, true),
    };
    static const char *const types[] = {"application/x-www-form-urlencoded",
                                        "Application/X-WWW-Form-UrlEncoded;charset=utf-8",
                                        "text/plain", ""};
    static const char *const hints[] = {"base64", "B64", "", "unknown"};
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++) {
        for (size_t t = 0; t < 16; t++) {
            fresh(f, t % 2 == 0 ? DECODE_BASE64_TOO : DECODE_POSTHOG);
            f->how.content_type = slice_cstr(types[t / 4]);
            f->how.query_compression = slice_cstr(hints[t % 4]);
            expect_event(f, zero[i]);
        }
        /* Segment never sends a form. */
        fresh(f, DECODE_SEGMENT);
        f->how.content_type = FORM_TYPE;
        expect_text(f, zero[i], zero[i]);
        drop(zero[i]);
    }
    drop(b64);
    drop(gz);
    drop(gz64);
}

static void test_form_that_is_compressed_as_a_whole(void **state)
{
    struct fixture *f = *state;
    struct slice body = form("data=", SLICE(EVENT), true);
    struct slice gz = pack(body, GZIP);
    fresh(f, DECODE_POSTHOG);
    f->how.content_type = FORM_TYPE;
    f->how.content_encoding = SLICE("gzip");
    expect_event(f, gz);
    drop(body);
    drop(gz);
}

static void test_the_first_field_counts(void **state)
{
    struct fixture *f = *state;
    fresh(f, DECODE_POSTHOG);
    expect_text(f, SLICE("data=%7B1&data=%7B2&compression=base64&compression=gzip"), SLICE("{1"));
    /* the query's hint goes before the form's */
    f->how.query_compression = SLICE("gzip");
    expect_error(f, SLICE("compression=base64&data=!"), ERR_INVALID_ENCODING, "gzip: there is no");
    f->how.query_compression = SLICE("");
    expect_error(f, SLICE("compression=base64&data=!"), ERR_INVALID_ENCODING, "base64: byte 0");
}

/* A form's unknown hint is none: the header's stays. */
static void test_unknown_hint_of_a_form(void **state)
{
    struct fixture *f = *state;
    fresh(f, DECODE_POSTHOG);
    f->how.content_encoding = SLICE("base64");
    expect_error(f, SLICE("compression=zip&data=!"), ERR_INVALID_ENCODING, "base64: byte 0");
    expect_text(f, SLICE("compression=zip&data=eyJh"), SLICE("{\"a"));
}

static void test_forms_without_data(void **state)
{
    struct fixture *f = *state;
    static const char *const bodies[] = {"ip=1", "_=1&ver=2", "a=b&compression=gzip"};
    fresh(f, DECODE_POSTHOG);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        expect_error(f, slice_cstr(bodies[i]), ERR_INVALID_ENCODING, "form: there is no field");
    }
    /* no field at all */
    expect_text(f, SLICE("?&"), SLICE("?&"));
    expect_text(f, SLICE("?&x=1"), SLICE("?&x=1"));
    /* A field so far behind that only the declared type makes it one. */
    struct buf far = {0};
    buf_put_cstr(&far, "lib=");
    for (int i = 0; i < 200; i++) {
        buf_put_char(&far, '*');
    }
    buf_put_cstr(&far, "&data=%7B%7D");
    expect_text(f, buf_slice(&far), buf_slice(&far));
    f->how.content_type = FORM_TYPE;
    expect_text(f, buf_slice(&far), SLICE("{}"));
    buf_free(&far);
}

/* Case C53: a broken percent escape stays what it is; nothing crashes, and nothing is made up. */
static void test_broken_escapes(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body;
        struct slice want;
    } cases[] = {
        {"data=%b!", {"%b!", 3}},
        {"data=%", {"%", 1}},
        {"data=%zz", {"%zz", 3}},
        {"data=%00!", {"\0!", 2}},
        {"data=%ff%fe", {"\xff\xfe", 2}},
        {"data={\"a\":\"100% of+it\"}", {"{\"a\":\"100% of it\"}", 18}},
        {"data=%7b%7D", {"{}", 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fresh(f, DECODE_BASE64_TOO);
        expect_text(f, slice_cstr(cases[i].body), cases[i].want);
    }
}

static void test_data_in_the_query(void **state)
{
    struct fixture *f = *state;
    struct slice b64 = base64(SLICE(EVENT), URL_SAFE, NULL);
    fresh(f, DECODE_BASE64_TOO);
    f->how.query_data = b64;
    f->how.content_encoding = SLICE("br"); /* of a body that is not looked at */
    expect_event(f, SLICE("not looked at"));
    f->how.query_data = SLICE(EVENT);
    expect_event(f, SLICE(""));
    assert_ptr_equal(f->got.json.ptr, f->how.query_data.ptr);
    /* no form inside of a parameter */
    f->how.query_data = SLICE("data=*");
    expect_text(f, SLICE(""), SLICE("data=*"));
    /* other dialects have no such parameter */
    fresh(f, DECODE_SEGMENT);
    f->how.query_data = b64;
    expect_text(f, SLICE("[]"), SLICE("[]"));
    drop(b64);
}

/* ---- base64 without a hint, case C05 ---- */

static void test_base64_by_looks(void **state)
{
    struct fixture *f = *state;
    struct slice once = base64(SLICE(EVENT), STANDARD, "=");
    struct slice twice = base64(once, STANDARD, "=");
    fresh(f, DECODE_POSTHOG);
    expect_event(f, once);
    expect_text(f, twice, once); /* once on /batch ... */
    fresh(f, DECODE_BASE64_TOO);
    expect_event(f, once);
    expect_event(f, twice); /* ... and once more on /e (A2 step 6) */
    fresh(f, DECODE_V1);
    expect_text(f, once, once);
    fresh(f, DECODE_SEGMENT);
    expect_text(f, once, once);
    /* what only looks like it is left alone, unless it was said to be base64 */
    struct buf odd = {0};
    buf_put_cstr(&odd, "abcd");
    for (int i = 0; i < 200; i++) {
        buf_put_char(&odd, 'a');
    }
    buf_put_cstr(&odd, "!");
    fresh(f, DECODE_POSTHOG);
    expect_text(f, buf_slice(&odd), buf_slice(&odd));
    f->how.query_compression = SLICE("base64");
    expect_error(f, buf_slice(&odd), ERR_INVALID_ENCODING, "base64: byte 204 is no base64");
    buf_free(&odd);
    drop(once);
    drop(twice);
}

static void test_base64_around_gzip(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice gz64 = base64(gz, STANDARD, "=");
    static const char *const hints[] = {"", "gzip", "base64", "gzip-js"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        fresh(f, i % 2 == 0 ? DECODE_POSTHOG : DECODE_BASE64_TOO);
        f->how.query_compression = slice_cstr(hints[i]);
        expect_event(f, gz64);
    }
    drop(gz);
    drop(gz64);
}

/* Case C05: a clear answer to what no server can be asked to guess. */
static void test_lz64(void **state)
{
    struct fixture *f = *state;
    static const char *const hints[] = {"lz64", "LZ64", "lz-string", "LZ-String"};
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        fresh(f, DECODE_BASE64_TOO);
        f->how.query_compression = slice_cstr(hints[i]);
        expect_error(f, SLICE("N4IgpgbghgxlA"), ERR_UNSUPPORTED_MEDIA_TYPE,
                     "lz64 (lz-string) is not supported; gzip, base64 and plain JSON are");
        expect_error(f, SLICE("data=N4IgpgbghgxlA"), ERR_UNSUPPORTED_MEDIA_TYPE, "lz64");
    }
    fresh(f, DECODE_POSTHOG);
    expect_error(f, SLICE("data=N4Ig&compression=lz64"), ERR_UNSUPPORTED_MEDIA_TYPE, "lz64");
}

static void test_gzip_in_gzip(void **state)
{
    struct fixture *f = *state;
    struct slice once = pack(SLICE(EVENT), GZIP);
    struct slice twice = pack(once, GZIP);
    for (size_t m = 0; m < MODES; m++) {
        fresh(f, all_modes[m]);
        f->how.content_encoding = SLICE("gzip");
        expect_error(f, twice, ERR_INVALID_ENCODING, "compressed twice");
    }
    drop(once);
    drop(twice);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_plain_json_is_borrowed),
        TEST(test_empty),
        TEST(test_size_of_plain_bodies),
        TEST(test_gzip_by_hint_header_and_magic),
        TEST(test_what_is_left_over),
        TEST(test_json_with_a_wrong_hint),
        TEST(test_names_of_content_encoding),
        TEST(test_refused_content_encodings),
        TEST(test_posthog_names_in_the_header),
        TEST(test_the_first_known_hint_counts),
        TEST(test_gzip_js_as_latin1),
        TEST(test_forms),
        TEST(test_form_that_is_compressed_as_a_whole),
        TEST(test_the_first_field_counts),
        TEST(test_unknown_hint_of_a_form),
        TEST(test_forms_without_data),
        TEST(test_broken_escapes),
        TEST(test_data_in_the_query),
        TEST(test_base64_by_looks),
        TEST(test_base64_around_gzip),
        TEST(test_lz64),
        TEST(test_gzip_in_gzip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
