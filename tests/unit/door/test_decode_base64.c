/* base64 bodies: known answers, every variant that SDKs, browsers and proxies make of them, and
 * what is refused (spec/capture.md A2, cases C04 and C05). */
#include "tests/unit/door/decode_kit.h"

static void hinted(struct fixture *f)
{
    fresh(f, DECODE_POSTHOG);
    f->how.query_compression = SLICE("base64");
}

/* RFC 4648 section 10. */
static void test_known_answers(void **state)
{
    struct fixture *f = *state;
    static const char *const pairs[][2] = {
        {"Zg==", "f"},        {"Zm8=", "fo"},        {"Zm9v", "foo"},
        {"Zm9vYg==", "foob"}, {"Zm9vYmE=", "fooba"}, {"Zm9vYmFy", "foobar"},
    };
    hinted(f);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        expect_text(f, slice_cstr(pairs[i][0]), slice_cstr(pairs[i][1]));
        size_t n = strcspn(pairs[i][0], "=");
        expect_text(f, slice_of(pairs[i][0], n), slice_cstr(pairs[i][1]));
    }
}

/* Events of every length modulo 3, with bytes whose base64 holds all of the odd characters. */
static void test_every_variant(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *alphabet, *pad;
    } kinds[] = {
        {STANDARD, "="},
        {STANDARD, NULL},
        {STANDARD, "%3D"},
        {STANDARD, "%3d"},
        {URL_SAFE, "="},
        {URL_SAFE, NULL},
        /* '+' that a form decoder made a space of */
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 /", "="},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-/", NULL},
    };
    static const char *const texts[] = {"{\"a\":\"?>?>?>~~~\xff\xfb\xef\xbe\"}",
                                        "{\"a\":\"?>?>?>~~~\xff\xfb\xef\xbe.\"}",
                                        "{\"a\":\"?>?>?>~~~\xff\xfb\xef\xbe..\"}"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            struct slice want = slice_cstr(texts[t]);
            struct slice b64 = base64(want, kinds[k].alphabet, kinds[k].pad);
            struct slice bodies[] = {b64, form("data=", b64, false), form("data=", b64, true)};
            for (size_t i = 0; i < 6; i++) {
                fresh(f, DECODE_BASE64_TOO);
                f->how.query_compression = i % 2 == 0 ? SLICE("base64") : SLICE("");
                expect_text(f, bodies[i / 2], want);
            }
            drop(bodies[1]);
            drop(bodies[2]);
            fresh(f, DECODE_BASE64_TOO);
            f->how.query_data = b64; /* GET /e/?data=, beacon images */
            expect_text(f, SLICE(""), want);
            f->how.query_data = (struct slice){0};
            drop(b64);
        }
    }
}

/* A body that was percent-encoded and never decoded: %2B, %2F, %3D, %20 in either case. */
static void test_percent_escapes_inside(void **state)
{
    struct fixture *f = *state;
    hinted(f);
    expect_text(f, SLICE("%2B%2b%2F%2f"), SLICE("\xfb\xef\xff"));
    expect_text(f, SLICE("%20%2b/_"), SLICE("\xfb\xef\xff"));
    expect_text(f, SLICE("Zg%3D%3d"), SLICE("f"));
    static const char *const bad[] = {"Zm9v%", "Zm9v%2", "Zm9v%2C", "Zm9v%zz", "Zm9v%3E"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        expect_error(f, slice_cstr(bad[i]), ERR_INVALID_ENCODING, "base64: byte 4 is no base64");
        assert_true(f->e.has_offset);
        assert_int_equal(f->e.offset, 4);
    }
}

static void test_line_ends(void **state)
{
    struct fixture *f = *state;
    hinted(f);
    expect_text(f, SLICE("Zm9v\r\nYmFy\n"), SLICE("foobar"));
    expect_text(f, SLICE("\tZm9\nvYg=\r\n=\n"), SLICE("foob"));
}

static void test_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body, *says;
    } cases[] = {
        {"Zm9v!", "base64: byte 4 is no base64"},
        {"Zm=v", "base64: byte 3 is behind the padding"},
        {"Zg==Zg==", "base64: byte 4 is behind the padding"},
        {"Zg==\nZg==", "base64: byte 5 is behind the padding"},
        {"Zm9vY", "base64: the text ends at byte 5 in the middle of a group"},
        {"Z===", "base64: the text ends at byte 4 in the middle of a group"},
        {"\xc3\xbc", "base64: byte 0 is no base64"},
    };
    hinted(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_error(f, slice_cstr(cases[i].body), ERR_INVALID_ENCODING, cases[i].says);
    }
    /* unhinted, the same bodies stay what they are */
    fresh(f, DECODE_BASE64_TOO);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_text(f, slice_cstr(cases[i].body), slice_cstr(cases[i].body));
    }
    /* and so does a NUL or any other byte anywhere */
    for (unsigned c = 0; c < 256; c++) {
        char text[5] = {'Z', 'm', (char)c, 'v', 'Y'};
        int r = give(f, slice_of(text, 5));
        assert_int_equal(r, 0);
        assert_true(slice_eq(f->got.json, slice_of(text, 5)) || c == '=' || c == '\n' ||
                    c == '\r' || c == '\t');
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_known_answers), TEST(test_every_variant), TEST(test_percent_escapes_inside),
        TEST(test_line_ends),     TEST(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
