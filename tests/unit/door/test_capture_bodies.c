/* Encoded bodies through the whole door: what each dialect takes, and what is refused with nothing
 * stored (cases C01, C02, C41, C43, C52; spec/client-wire.md 1.9). How bodies are decoded is in
 * test_decode.c. */
#include "tests/unit/door/capture_kit.h"
#include "tests/unit/door/decode_kit.h"

static struct kit *k;

static int begin(void **state)
{
    (void)state;
    k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    kit_free(k);
    return 0;
}

static unsigned post(const char *target, const char *headers, struct slice body)
{
    return kit_ask(k, true, "POST", target, headers, body);
}

/* The body with the token, compressed; free its ptr. */
static struct slice packed(const char *text, enum wrap wrap)
{
    char *plain = kit_text(k, text);
    struct slice out = pack(slice_cstr(plain), wrap);
    free(plain);
    return out;
}

#define BATCH   "{\"api_key\":\"%T\",\"batch\":[{\"event\":\"x\",\"distinct_id\":\"u\"}]}"
#define SEGMENT "{\"writeKey\":\"%T\",\"batch\":[{\"type\":\"page\",\"userId\":\"u\"}]}"
#define GZIPPED "Content-Encoding: gzip\r\n"
#define FORM    "Content-Type: application/x-www-form-urlencoded\r\n"

static void test_taken(void **state)
{
    struct slice posthog = packed(BATCH, GZIP);
    struct slice zlib = packed(BATCH, ZLIB);
    struct slice text = as_latin1_text(posthog);
    struct slice b64 = base64(posthog, STANDARD, "=");
    struct slice body = form("data=", b64, true);
    struct slice segment = packed(SEGMENT, GZIP);
    const struct {
        const char *target, *headers;
        struct slice body;
    } cases[] = {
        {"/batch/", GZIPPED, posthog},
        {"/batch/", "Content-Type: text/plain\r\n", posthog},
        {"/batch/?compression=gzip", "Content-Encoding: GZIP;q=1\r\n", posthog},
        {"/batch/", "Content-Encoding: identity\r\nContent-Type: text/plain\r\n", posthog},
        {"/batch", "Content-Encoding: deflate\r\n", zlib},
        {"/e/?compression=gzip-js", "Content-Type: text/plain\r\n", text},
        {"/e/?compression=base64", FORM, body},
        {"/e/", "", b64},
        {"/v1/batch", GZIPPED FORM, segment}, /* Rudder */
        {"/v1/b", "Content-Type: text/plain\r\n", segment},
    };
    const size_t n = sizeof cases / sizeof *cases;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        if (post(cases[i].target, cases[i].headers, cases[i].body) != 200) {
            fail_msg("%s, case %zu: %.*s", cases[i].target, i, (int)k->body.len, k->body.ptr);
        }
    }
    assert_int_equal(kit_queued(k), n);
    drop(posthog);
    drop(zlib);
    drop(text);
    drop(b64);
    drop(body);
    drop(segment);
}

/* Final statuses, with the stage named, and never one that clients repeat. */
static void test_refused(void **state)
{
    struct slice gz = packed(BATCH, GZIP);
    struct slice twice = pack(gz, GZIP);
    struct slice segment = packed(SEGMENT, GZIP);
    const struct {
        const char *target, *headers;
        struct slice body;
        unsigned status;
        const char *says;
    } cases[] = {
        {"/batch/", GZIPPED, slice_of(gz.ptr, gz.len - 8), 400, "without its trailer"},
        {"/e/?compression=gzip", "", slice_from(gz, 10), 400, "no gzip header at byte 0"},
        {"/e/?compression=gzip", GZIPPED, slice_of(gz.ptr, 0), 400, "empty"},
        {"/v1/batch", GZIPPED, slice_of(segment.ptr, segment.len / 2), 400, "middle of its data"},
        {"/batch/", GZIPPED, twice, 400, "compressed twice"},
        {"/batch/", "Content-Encoding: gzip, gzip\r\n", twice, 415, "more than one coding"},
        {"/batch/", GZIPPED GZIPPED, twice, 415, "is not supported"},
        {"/batch/", "Content-Encoding: br\r\n", gz, 415, "gzip, deflate and identity"},
        {"/v1/batch", "Content-Encoding: zstd\r\n", segment, 415, "gzip, deflate and identity"},
        {"/e/?compression=lz64", "", SLICE("N4IgpgbghgxlA"), 415, "lz64"},
    };
    const size_t n = sizeof cases / sizeof *cases;
    (void)state;
    for (size_t i = 0; i < n; i++) {
        unsigned status = post(cases[i].target, cases[i].headers, cases[i].body);
        if (status != cases[i].status) {
            fail_msg("%s, case %zu: %u %.*s", cases[i].target, i, status, (int)k->body.len,
                     k->body.ptr);
        }
        assert_has(k->body, cases[i].says);
        if (status == 415) {
            assert_has(k->head, "Accept-Encoding: gzip, deflate\r\n");
        } else {
            assert_has_not(k->head, "Accept-Encoding");
        }
    }
    assert_int_equal(kit_queued(k), 0);
    drop(gz);
    drop(twice);
    drop(segment);
}

/* Case C41: on every dialect, and to a path that does not exist. */
static void test_bombs(void **state)
{
    static const char *const targets[] = {"/batch/", "/e/", "/v1/batch", "/v1/track"};
    size_t n = (size_t)128 << 20;
    char *p = calloc(1, n);
    (void)state;
    assert_non_null(p);
    struct slice bomb = pack(slice_of(p, n), GZIP);
    free(p);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        assert_int_equal(post(targets[i], GZIPPED, bomb), 413);
        assert_has(k->body, "gzip: ");
    }
    char headers[200];
    (void)snprintf(headers, sizeof headers, "Authorization: Bearer %s\r\n" GZIPPED, k->writer);
    assert_int_equal(post("/api/v1/projects/demo/events", headers, bomb), 413);
    assert_int_equal(post("/api/v1/projects/demo/events", GZIPPED, bomb), 401);
    (void)post("/nowhere", GZIPPED, bomb);
    assert_true(k->status == 401 || k->status == 404);
    assert_int_equal(kit_queued(k), 0);
    drop(bomb);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {TEST(test_taken), TEST(test_refused), TEST(test_bombs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
