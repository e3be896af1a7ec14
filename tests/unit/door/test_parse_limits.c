/* parse_batch at its limits (spec/history.md sections 2, 3 and 6): lengths, depth, counts, the size
 * of the canonical form, messages that must be cut, and one object used for everything in turn. */
#include "tests/unit/door/parse_fixture.h"

/* ---- limits ---- */

static void put_repeated(struct buf *b, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf_put_cstr(b, text);
    }
}

/* A body in which one of the five texts is `unit`, count times. */
static int give_long(struct fixture *f, int which, const char *unit, size_t count)
{
    static const char *const names[] = {
        "{\"batch_id\":", ",\"source\":", ",\"events\":[{\"payload\":1,\"stream\":",
        ",\"record_key\":", ",\"kind\":"};
    struct buf *b = &f->body;
    buf_clear(b);
    for (int i = 0; i < 5; i++) {
        buf_put_cstr(b, names[i]);
        buf_put_char(b, '"');
        put_repeated(b, i == which ? unit : "a", i == which ? count : 1);
        buf_put_char(b, '"');
    }
    buf_put_cstr(b, "}]}");
    assert_false(b->failed);
    return give(f, buf_slice(b), PLENTY);
}

/* Lengths are UTF-8 bytes of the text, not of its spelling. */
static void test_lengths(void **state)
{
    struct fixture *f = *state;
    static const struct {
        int which;
        size_t max;
        int code;
        bool any_text;
    } limits[] = {{0, 256, ERR_INVALID_BATCH, true},
                  {1, 128, ERR_INVALID_BATCH, false},
                  {2, 128, ERR_INVALID_EVENTS, false},
                  {3, 1024, ERR_INVALID_EVENTS, true},
                  {4, 128, ERR_INVALID_EVENTS, true}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int which = limits[i].which;
        size_t max = limits[i].max;
        assert_int_equal(give_long(f, which, "x", max), 0);
        assert_int_equal(give_long(f, which, "x", max + 1), limits[i].code);
        assert_int_equal(give_long(f, which, "x", 0), limits[i].code);
        assert_int_equal(give_long(f, which, "\\u0078", max), 0);
        int code = limits[i].any_text ? 0 : limits[i].code;
        assert_int_equal(give_long(f, which, "\\u0001", max), code);
        assert_int_equal(give_long(f, which, "\\u00fc", max / 2), code);
        assert_int_equal(give_long(f, which, "\\ud83d\\ude00", max / 4), code);
        assert_int_equal(give_long(f, which, "\\u0001", max + 1), limits[i].code);
        assert_int_equal(give_long(f, which, "ü", max / 2 + 1), limits[i].code);
        assert_int_equal(give_long(f, which, "\\ud83d\\ude00", max / 4 + 1), limits[i].code);
    }
}

static int give_depth(struct fixture *f, const char *open, const char *close, size_t depth,
                      const char *more)
{
    struct buf *b = &f->body;
    buf_clear(b);
    buf_put_cstr(b, "{\"batch_id\":\"b\",\"source\":\"s\",\"events\":[" EVENT
                    ",{\"stream\":\"s\",\"record_key\":\"k\",\"kind\":\"u\",\"payload\":");
    put_repeated(b, open, depth);
    buf_put_cstr(b, "1");
    put_repeated(b, close, depth);
    buf_put_cstr(b, "}");
    buf_put_cstr(b, more);
    buf_put_cstr(b, "]}");
    return give(f, buf_slice(b), PLENTY);
}

static void test_depth(void **state)
{
    struct fixture *f = *state;
    static const size_t deep[] = {129, 1000, 1020, 1021, 1022, 5000, 100000};
    assert_int_equal(give_depth(f, "[", "]", 128, ""), 0);
    assert_int_equal(give_depth(f, "{\"a\":", "}", 128, ""), 0);
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        for (int objects = 0; objects < 2; objects++) {
            assert_int_equal(
                give_depth(f, objects ? "{\"a\":" : "[", objects ? "}" : "]", deep[i], ""),
                ERR_INVALID_EVENTS);
            assert_text(buf_slice(&f->extra),
                        "\"errors\":[{\"index\":1,\"code\":\"invalid_event\",\"message\":"
                        "\"payload is nested deeper than 128 containers\"}]");
        }
    }
    /* A name that looks like the way to a payload is none. */
    buf_clear(&f->body);
    buf_put_cstr(&f->body, "{\"events[0].payload\":");
    put_repeated(&f->body, "[", 2000);
    put_repeated(&f->body, "]", 2000);
    buf_put_char(&f->body, '}');
    assert_int_equal(give(f, buf_slice(&f->body), PLENTY), ERR_INVALID_REQUEST);
    assert_int_equal(give_depth(f, "[", "]", 129, ",{}"), ERR_INVALID_EVENTS);
    assert_non_null(strstr(f->e.text, "2 invalid events; event 1"));
    expect_good(f);
}

static int give_events(struct fixture *f, const char *first, size_t count, const char *event)
{
    struct buf *b = &f->body;
    buf_clear(b);
    buf_put_cstr(b, "{\"batch_id\":\"b\",\"source\":\"s\",\"events\":[");
    buf_put_cstr(b, first);
    for (size_t i = 1; i < count; i++) {
        buf_put_char(b, ',');
        buf_put_cstr(b, event);
    }
    buf_put_cstr(b, "]}");
    return give(f, buf_slice(b), PLENTY);
}

static void test_event_count(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(give_events(f, EVENT, 10000, EVENT), 0);
    assert_int_equal(f->batch.count, 10000);
    assert_text(f->batch.events[9999].payload, "1");
    assert_int_equal(give_events(f, EVENT, 10001, EVENT), ERR_BODY_TOO_LARGE);
    assert_int_equal(give_events(f, "{}", 10001, EVENT), ERR_BODY_TOO_LARGE);
    parse_trim(f->p);
    expect_good(f);
    parse_trim(f->p);
    expect_good(f);
}

/* All are counted, the first 100 are named. */
static void test_a_hundred_errors(void **state)
{
    struct fixture *f = *state;
    char last[64];
    for (size_t n = 99; n <= 102; n++) {
        assert_int_equal(give_events(f, EVENT, n + 1, "{}"), ERR_INVALID_EVENTS);
        size_t named = 0;
        struct slice list = slice_from(buf_slice(&f->extra), strlen("\"errors\":"));
        struct json_iter it = json_iter_array(list);
        struct slice value;
        while (json_next_element(&it, &value)) {
            struct slice index;
            uint64_t number;
            assert_true(json_member(value, SLICE("index"), &index));
            assert_true(json_u64(index, &number));
            assert_int_equal(number, ++named);
        }
        assert_false(it.bad);
        assert_int_equal(named, n < 100 ? n : 100);
        (void)snprintf(last, sizeof last, "%zu invalid events; event 1:", n);
        assert_non_null(strstr(f->e.text, last));
    }
}

/* "1e20" is 4 bytes and becomes 21: the canonical form has a limit of its own. */
static void test_canonical_limit(void **state)
{
    struct fixture *f = *state;
    struct buf *b = &f->body;
    buf_put_cstr(b, "{\"batch_id\":\"b\",\"source\":\"s\",\"events\":[{\"stream\":\"s\","
                    "\"record_key\":\"k\",\"kind\":\"u\",\"payload\":[0");
    put_repeated(b, ",1e20", 20000);
    buf_put_cstr(b, "]}]}");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(give(f, buf_slice(b), b->len), ERR_NO_MEMORY);
        assert_int_equal(give(f, buf_slice(b), b->len * 6), 0);
        assert_true(f->batch.events[0].payload.len > b->len);
        assert_int_equal(f->batch.events[0].payload.len, 3 + 20000 * 22);
        expect_good(f);
        parse_trim(f->p);
    }
    assert_int_equal(give(f, SLICE(OF(EVENT)), sizeof OF(EVENT) - 2), ERR_NO_MEMORY);
    assert_int_equal(give(f, SLICE(OF(EVENT)), sizeof OF(EVENT) - 1), 0);
}

/* Messages that must be cut stay whole characters. */
static void test_long_names_in_messages(void **state)
{
    struct fixture *f = *state;
    struct buf *b = &f->body;
    for (size_t shift = 0; shift < 4; shift++) {
        buf_clear(b);
        buf_put_cstr(b, "{\"");
        put_repeated(b, "x", shift);
        put_repeated(b, "\xf0\x9f\x98\x80", 100);
        buf_put_cstr(b, "\":[1],\"batch_id\":\"b\"}");
        assert_int_equal(give(f, buf_slice(b), PLENTY), ERR_INVALID_REQUEST);
        assert_non_null(strstr(f->e.text, "\xf0\x9f\x98\x80\" in the batch"));
        for (size_t at = 0; at < 4; at++) { /* the screen's path, at every cut */
            buf_clear(b);
            buf_put_cstr(b, "{\"");
            put_repeated(b, "x", shift);
            put_repeated(b, "\xf0\x9f\x98\x80", 30 + 10 * at);
            buf_put_cstr(b, "\":{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":9007199254740993}}");
            assert_int_equal(give(f, buf_slice(b), PLENTY), ERR_INVALID_REQUEST);
        }
    }
}

/* ---- names, and one object for everything ---- */

static void test_valid_name(void **state)
{
    (void)state;
    char c;
    for (int i = 0; i < 256; i++) {
        c = (char)i;
        bool inside = c != '\0' && strchr("abcdefghijklmnopqrstuvwxyz0123456789_.-", c) != NULL;
        bool first = inside && c != '.' && c != '-';
        char pair[2] = {'a', c};
        assert_int_equal(parse_valid_name(slice_of(&c, 1)), first);
        assert_int_equal(parse_valid_name(slice_of(pair, 2)), inside);
    }
    char longest[129];
    memset(longest, 'z', sizeof longest);
    assert_true(parse_valid_name(slice_of(longest, 128)));
    assert_false(parse_valid_name(slice_of(longest, 129)));
    assert_false(parse_valid_name(SLICE("")));
}

/* Large and small, good and bad in turn, with other shapes each time (SEED). */
static void test_reuse(void **state)
{
    struct fixture *f = *state;
    const char *env = getenv("SEED");
    uint64_t seed = env != NULL ? strtoull(env, NULL, 10) : 20261130;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 300; round++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t r = (uint32_t)(seed >> 33);
        uint32_t count = 1 + r % (round % 10 == 0 ? 3000 : 20);
        bool bad = r / 4096 % 3 == 0;
        assert_int_equal(give_events(f, bad ? "{\"stream\":1}" : EVENT, count, EVENT),
                         bad ? ERR_INVALID_EVENTS : 0);
        assert_int_equal(f->batch.count, bad ? 0 : count);
        for (uint32_t i = 0; i < f->batch.count; i++) {
            assert_text(f->batch.events[i].stream, "\"s\"");
        }
        if (r / 65536 % 2 == 0) {
            parse_trim(f->p);
        }
    }
    expect_good(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_depth, setup, teardown),
        cmocka_unit_test_setup_teardown(test_event_count, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_hundred_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_canonical_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_names_in_messages, setup, teardown),
        cmocka_unit_test(test_valid_name),
        cmocka_unit_test_setup_teardown(test_reuse, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
