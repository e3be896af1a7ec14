/* The body of a retirement: what is taken, and which code refuses the rest. */
#include "tests/unit/door/parse_fixture.h"

static int ask(struct fixture *f, const char *body, struct slice *source)
{
    /* Exactly its size, so that a look behind its end is seen. */
    size_t n = strlen(body);
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy + 1, body, n);
    f->e = (struct err){0};
    int r = parse_retirement(f->p, slice_of(copy + 1, n), PLENTY, source, &f->e);
    memset(copy, 0xa5, n + 1);
    free(copy);
    return r;
}

static void test_taken(void **state)
{
    static const char *const bodies[] = {
        "{\"source\":\"old\"}",
        "{\"v\":1,\"source\":\"old\"}",
        " { \"source\" : \"\\u006fld\" , \"v\" : 1e0 } ",
    };
    struct fixture *f = *state;
    struct slice source;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_int_equal(ask(f, bodies[i], &source), 0);
        assert_text(source, "\"old\"");
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *body;
        int code;
        const char *text;
    } cases[] = {
        {"", ERR_INVALID_REQUEST, "not acceptable JSON"},
        {"{\"source\":\"old\"", ERR_INVALID_REQUEST, "at byte 15"},
        {"{\"source\":\"a\",\"source\":\"b\"}", ERR_INVALID_REQUEST, "not acceptable JSON"},
        {"\"old\"", ERR_INVALID_REQUEST, "must be a JSON object"},
        {"{}", ERR_INVALID_REQUEST, "source is missing"},
        {"{\"source\":null}", ERR_INVALID_REQUEST, "source must be a string"},
        {"{\"source\":\"old\",\"v\":null}", ERR_INVALID_REQUEST, "v must be a number"},
        {"{\"source\":\"old\",\"reason\":\"\"}", ERR_INVALID_REQUEST, "unknown member \"reason\""},
        {"{\"source\":\"old\",\"v\":2}", ERR_INVALID_SOURCE_RETIREMENT, "v must be 1"},
        {"{\"source\":\"\"}", ERR_INVALID_SOURCE_RETIREMENT, "source must match"},
        {"{\"source\":\"Old\"}", ERR_INVALID_SOURCE_RETIREMENT, "source must match"},
        {"{\"source\":\"o\\nld\"}", ERR_INVALID_SOURCE_RETIREMENT, "source must match"},
        {"{\"source\":\"system\"}", ERR_INVALID_SOURCE_RETIREMENT, "reserved"},
        {"{\"source\":\"old\",\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
         "\xc3\xa4\xc3\xa4x\xc3\xa4\":1}",
         ERR_INVALID_REQUEST, "unknown member"},
    };
    struct fixture *f = *state;
    struct slice source;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int r = ask(f, cases[i].body, &source);
        if (r != cases[i].code || strstr(f->e.text, cases[i].text) == NULL) {
            fail_msg("%s: %s, %s", cases[i].body, err_name(r), f->e.text);
        }
        assert_int_equal(f->e.code, r);
        assert_true(utf8_valid(slice_cstr(f->e.text), NULL));
        assert_int_equal(ask(f, "{\"source\":\"old\"}", &source), 0); /* nothing is left of it */
    }
}

static void test_does_not_fit(void **state)
{
    struct fixture *f = *state;
    struct slice source;
    struct slice body = SLICE("{\"source\":\"old\",\"v\":1}");
    for (size_t max = 1; max < body.len; max++) {
        assert_int_equal(parse_retirement(f->p, body, max, &source, &f->e), ERR_NO_MEMORY);
    }
    assert_int_equal(parse_retirement(f->p, body, body.len, &source, &f->e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_does_not_fit, setup, teardown),
    };
    return cmocka_run_group_tests_name("parse_retire", tests, NULL, NULL);
}
