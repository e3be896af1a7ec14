/* events and batches: finding events in NDJSON and arrays however the bytes arrive, naming lines in
 * mistakes, cutting the same batches every time, settling with what a server already holds, and
 * bounded memory on an endless input. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "main/batches.h"
#include "main/events.h"
#include "os/os.h"

/* ---- an input that is a text in memory, handed out in pieces, behind os_read ---- */
static struct {
    const char *text;
    size_t len, at;
    size_t piece_max; /* random sizes up to this */
    int fail_at_end;  /* negative errno instead of the end */
    bool endless;     /* text over and over */
    uint64_t served;
} source;

static uint64_t seed;

static uint64_t random_u64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static int64_t read_source(int fd, void *p, size_t n)
{
    assert_int_equal(fd, 0);
    if (source.at == source.len) {
        if (!source.endless) {
            return source.fail_at_end;
        }
        source.at = 0;
    }
    size_t left = source.len - source.at;
    size_t take = source.piece_max > 0 ? 1 + random_u64() % source.piece_max : n;
    take = take < left ? take : left;
    take = take < n ? take : n;
    memcpy(p, source.text + source.at, take);
    source.at += take;
    source.served += take;
    return (int64_t)take;
}

static struct os_table table;

static struct events in;
static struct batches batches;

static void start(const char *text, size_t len, size_t piece_max)
{
    struct err e = {0};
    memset(&source, 0, sizeof source);
    source.text = text;
    source.len = len;
    source.piece_max = piece_max;
    assert_int_equal(events_open(&in, "-", &e), 0);
    batches_init(&batches, &in);
}

static void finish(void)
{
    batches_free(&batches);
    events_close(&in);
}

static void expect_event(const char *text, uint64_t line)
{
    struct slice event;
    struct err e = {0};
    uint64_t got = 0;
    assert_int_equal(events_next(&in, &event, &got, &e), 1);
    assert_int_equal(event.len, strlen(text));
    assert_memory_equal(event.ptr, text, event.len);
    assert_int_equal(got, line);
}

static void expect_end(void)
{
    struct slice event;
    struct err e = {0};
    uint64_t line = 0;
    assert_int_equal(events_next(&in, &event, &line, &e), 0);
    assert_int_equal(events_next(&in, &event, &line, &e), 0);
}

static void test_lines(void **state)
{
    (void)state;
    static const char text[] = "\n{\"b\":1,\"a\":\"}\\\"{\"}\r\n  \t\n \n { \"x\" : [ {} ] } \n{}";
    for (size_t piece = 0; piece < 4; piece++) {
        start(text, sizeof text - 1, piece);
        expect_event("{\"a\":\"}\\\"{\",\"b\":1}", 2);
        expect_event("{\"x\":[{}]}", 5);
        expect_event("{}", 6);
        expect_end();
        assert_int_equal(in.read_bytes, sizeof text - 1);
        finish();
    }
    static const char *const empty[] = {"", "\n", " \r\n\t \n", "[]", " [ \n ] \n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        start(empty[i], strlen(empty[i]), 0);
        expect_end();
        finish();
    }
}

static void test_array(void **state)
{
    (void)state;
    static const char text[] =
        " [\n  {\"b\": 1,\n \"a\": \"]}\\\\\"},{\"a\":\"\\\"[\"}\n,\n\n{\"x\":[[{}]]} ] \n";
    for (size_t piece = 0; piece < 4; piece++) {
        start(text, sizeof text - 1, piece);
        expect_event("{\"a\":\"]}\\\\\",\"b\":1}", 2);
        expect_event("{\"a\":\"\\\"[\"}", 3);
        expect_event("{\"x\":[[{}]]}", 6);
        expect_end();
        finish();
    }
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned good;        /* events before the mistake */
        const char *expected; /* beginning of the text */
    } rows[] = {
        {"{}\n\n{\"a\":}\n{}", 1, "standard input:3: "},
        {"{}\n{\"a\":1,\"a\":2}\n", 1, "standard input:2: "},
        {"{}\n{\"a\":1} {\"b\":2}\n", 1, "standard input:2: "},
        {"{}\n{\"a\":\n1}\n", 1, "standard input:2: "},
        {"{}\n{\"a\":1", 1, "standard input:2: "},
        {"{}\n[1]\n", 1, "standard input:2: an event must be a JSON object"},
        {"{}\n\"x\"\n", 1, "standard input:2: an event must be a JSON object"},
        {"5", 0, "standard input:1: an event must be a JSON object"},
        {"\xef\xbb\xbf{}", 0, "standard input:1: the file begins with a byte order mark"},
        {"{\"a\":\"\xff\"}", 0, "standard input:1: "},
        {"{\"a\":9007199254740993}", 0, "standard input:1: "},
        {"[", 0, "standard input:1: the file ends inside the array"},
        {"[{}\n", 1, "standard input:2: the file ends inside the array"},
        {"[{},\n", 1, "standard input:2: the file ends inside the array"},
        {"[{},\n{\"a\":[}", 1, "standard input:2: the file ends inside this event"},
        {"[{},\n{\"a\":\"\n", 1, "standard input:2: the file ends inside this event"},
        {"[{}\n{}]", 1, "standard input:2: expected ',' or ']' behind an event"},
        {"[{},]", 1, "standard input:1: an event must be a JSON object"},
        {"[,{}]", 0, "standard input:1: an event must be a JSON object"},
        {"[1]", 0, "standard input:1: an event must be a JSON object"},
        {"[{}]\n\n{}", 1, "standard input:3: text behind the array"},
        {"[{}]]", 1, "standard input:1: text behind the array"},
        {"[{\n\"a\":1,\n\"b\":01}]", 0, "standard input:3: "},
        {"[{\"a\":[}]]", 0, "standard input:1: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t piece = 0; piece < 3; piece++) {
            struct slice event;
            struct err e = {0};
            uint64_t line = 0;
            start(rows[i].text, strlen(rows[i].text), piece);
            for (unsigned n = 0; n < rows[i].good; n++) {
                assert_int_equal(events_next(&in, &event, &line, &e), 1);
            }
            assert_int_equal(events_next(&in, &event, &line, &e), ERR_JSON);
            assert_true(strlen(e.text) > strlen("standard input:1: "));
            e.text[strlen(rows[i].expected)] = '\0';
            assert_string_equal(e.text, rows[i].expected);
            finish();
        }
    }
}

static void test_path_of_mistake(void **state)
{
    (void)state;
    struct slice event;
    struct err e = {0};
    uint64_t line = 0;
    static const char text[] = "{\"payload\":{\"n\":[1,1e999]}}";
    start(text, sizeof text - 1, 0);
    assert_int_equal(events_next(&in, &event, &line, &e), ERR_JSON);
    assert_non_null(strstr(e.text, "(at payload.n[1])"));
    finish();
}

static void test_read_errors(void **state)
{
    (void)state;
    static const char *const texts[] = {"",    "{}\n", "{}\n{\"a\"", "[",
                                        "[{}", "[{},", "[{},{\"a",   "[{}]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct slice event;
        struct err e = {0};
        uint64_t line = 0;
        int r = 1;
        start(texts[i], strlen(texts[i]), 1);
        source.fail_at_end = -EIO;
        while (r == 1) {
            r = events_next(&in, &event, &line, &e);
        }
        assert_int_equal(r, ERR_IO);
        assert_int_equal(e.os_errno, EIO);
        assert_string_equal(e.text, "read standard input: Input/output error");
        finish();
    }
    struct err e = {0};
    assert_int_equal(events_open(&in, "/nonexistent/events", &e), ERR_IO);
    assert_string_equal(e.text, "open /nonexistent/events: No such file or directory");
    events_close(&in);
}

static size_t cut(size_t want, size_t bytes)
{
    size_t count = 0;
    struct err e = {0};
    assert_int_equal(batches_cut(&batches, want, bytes, &count, &e), 0);
    return count;
}

static void test_cut_by_events(void **state)
{
    (void)state;
    static const char text[] = "{\"n\":0}\n{\"n\":1}\n\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n";
    struct buf id = {0};
    start(text, sizeof text - 1, 3);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 2);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 2); /* asking again changes nothing */
    assert_int_equal(batches.count, 2);             /* and nothing is read before it is needed */
    assert_int_equal(batches_line(&batches, 0), 1);
    assert_int_equal(batches_line(&batches, 1), 2);
    batches_id(&batches, "p", &id);
    assert_true(slice_eq(buf_slice(&id), SLICE("p@0")));
    batches_consume(&batches, 2);
    assert_int_equal(batches.index, 2);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 2);
    assert_int_equal(batches_line(&batches, 0), 4);
    batches_consume(&batches, 2);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 1);
    buf_clear(&id);
    batches_id(&batches, "day/1", &id);
    assert_true(slice_eq(buf_slice(&id), SLICE("day/1@4")));
    batches_consume(&batches, 1);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 0);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 0);
    buf_free(&id);
    finish();
}

static void test_cut_by_bytes(void **state)
{
    (void)state;
    /* Events of 7, 7, 20 and 7 bytes. */
    static const char text[] = "{\"n\":0} \n{\"n\":1}\n{\"text\": \"012345678\"}\n{\"n\":3}";
    start(text, sizeof text - 1, 0);
    assert_int_equal(cut(10, 14), 1); /* 7 + 7 and a comma are 15 */
    assert_int_equal(cut(10, 15), 2);
    assert_int_equal(cut(10, 35), 2);
    assert_int_equal(cut(10, 36), 3);
    assert_int_equal(cut(10, 43), 3);
    assert_int_equal(cut(10, 44), 4);
    assert_int_equal(cut(2, 44), 2);
    assert_int_equal(cut(10, 1), 1); /* one event goes, whatever its size */
    batches_consume(&batches, 2);
    assert_int_equal(cut(10, 1), 1);
    finish();
}

static void test_body(void **state)
{
    (void)state;
    static const char text[] = "{\"b\":1, \"a\":2}\n{\"c\":\"\\u00fc\"}\n{}\n";
    struct buf body = {0};
    struct err e = {0};
    start(text, sizeof text - 1, 0);
    assert_int_equal(cut(3, BATCHES_CUT_BYTES), 3);
    assert_int_equal(batches_body(&batches, "src", "p\"q\n", 2, &body, &e), 0);
    assert_true(slice_eq(buf_slice(&body),
                         SLICE("{\"batch_id\":\"p\\\"q\\n@0\",\"events\":[{\"a\":2,\"b\":1},"
                               "{\"c\":\"\xc3\xbc\"}],\"source\":\"src\"}")));
    batches_consume(&batches, 2);
    assert_int_equal(batches_body(&batches, "src", "p", 1, &body, &e), 0);
    assert_true(slice_eq(buf_slice(&body),
                         SLICE("{\"batch_id\":\"p@2\",\"events\":[{}],\"source\":\"src\"}")));
    buf_free(&body);
    finish();
}

/* A server that holds another number of events under an id: cut again, fewer or more, from the same
 * place. */
static void test_settle_with_server(void **state)
{
    (void)state;
    char text[4000] = "";
    struct buf id = {0};
    for (int i = 0; i < 100; i++) {
        char event[40];
        (void)snprintf(event, sizeof event, "{\"n\":%d}\n", i);
        strcat(text, event);
    }
    start(text, strlen(text), 50);
    assert_int_equal(cut(40, BATCHES_CUT_BYTES), 40);
    assert_int_equal(cut(7, BATCHES_CUT_BYTES), 7);
    batches_consume(&batches, 7);
    batches_id(&batches, "p", &id);
    assert_true(slice_eq(buf_slice(&id), SLICE("p@7")));
    assert_int_equal(batches_line(&batches, 0), 8);
    assert_int_equal(cut(40, BATCHES_CUT_BYTES), 40);
    assert_int_equal(cut(80, BATCHES_CUT_BYTES), 80);
    batches_consume(&batches, 80);
    assert_int_equal(cut(40, BATCHES_CUT_BYTES), 13);
    assert_int_equal(cut(1000, BATCHES_CUT_BYTES), 13); /* there are no more */
    assert_int_equal(batches_line(&batches, 12), 100);
    buf_free(&id);
    finish();
}

/* A mistake behind a full batch does not spoil it; in the middle of one it does, each time. */
static void test_mistake_in_batch(void **state)
{
    (void)state;
    static const char text[] = "{\"n\":0}\n{\"n\":1}\nx\n";
    struct err e = {0};
    size_t count = 9;
    start(text, sizeof text - 1, 0);
    assert_int_equal(cut(2, BATCHES_CUT_BYTES), 2);
    batches_consume(&batches, 1);
    assert_int_equal(batches_cut(&batches, 2, BATCHES_CUT_BYTES, &count, &e), ERR_JSON);
    assert_int_equal(count, 0);
    assert_int_equal(batches_line(&batches, 0), 2);
    finish();
}

static void put_random_text(struct buf *out)
{
    static const char *const pieces[] = {"a",
                                         "\\\"",
                                         "\\\\",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "\xc3\xa9",
                                         "\\u0041",
                                         "\\n",
                                         "\xf0\x9f\x98\x80",
                                         "/",
                                         "\\/",
                                         " "};
    buf_put_char(out, '"');
    for (size_t n = random_u64() % 12; n > 0; n--) {
        buf_put_cstr(out, pieces[random_u64() % (sizeof pieces / sizeof *pieces)]);
    }
    buf_put_char(out, '"');
}

static void put_space(struct buf *out, bool array)
{
    static const char *const spaces[] = {"", "", " ", "\t", "\r", "\n", " \n "};
    buf_put_cstr(out, spaces[random_u64() % (array ? 7 : 5)]);
}

static void put_random_event(struct buf *out, unsigned n, bool array)
{
    buf_printf(out, "{\"n\":%u", n);
    for (unsigned m = 0, members = (unsigned)(random_u64() % 4); m < members; m++) {
        buf_put_char(out, ',');
        put_space(out, array);
        buf_printf(out, "\"m%u\":", m);
        bool nested = random_u64() % 2 == 0;
        buf_put_cstr(out, nested ? "[{\"k\":" : "");
        put_random_text(out);
        put_space(out, array);
        buf_put_cstr(out, nested ? "}]" : "");
    }
    buf_put_char(out, '}');
}

/* Bodies of all batches of the text, one behind the other. */
static void all_bodies(struct buf *out, const struct buf *text, size_t piece, size_t want,
                       size_t bytes)
{
    struct buf body = {0};
    struct err e = {0};
    buf_clear(out);
    start(text->ptr, text->len, piece);
    for (size_t n = cut(want, bytes); n > 0; n = cut(want, bytes)) {
        assert_int_equal(batches_body(&batches, "s", "p", n, &body, &e), 0);
        buf_put_slice(out, buf_slice(&body));
        batches_consume(&batches, n);
    }
    buf_free(&body);
    finish();
}

/* Batches depend on the events alone: not on the pieces of the input, its white space, or array
 * against lines. */
static void test_same_batches_every_time(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct buf texts[2] = {{0}, {0}};
        struct buf whole = {0};
        struct buf again = {0};
        unsigned events = (unsigned)(random_u64() % 60);
        uint64_t begin = seed;
        for (int array = 0; array < 2; array++) {
            struct buf *text = &texts[array];
            buf_put_cstr(text, array ? "[" : "");
            for (unsigned i = 0; i < events; i++) {
                uint64_t keep = begin + i * 977;
                buf_put_cstr(text, i == 0 ? "" : array ? " ,\n" : "\n");
                seed = keep | 1; /* the same event, other white space */
                struct buf event = {0};
                put_random_event(&event, i, false);
                buf_put_slice(text, buf_slice(&event));
                buf_free(&event);
                put_space(text, array);
            }
            buf_put_cstr(text, array ? "]" : "");
        }
        size_t want = 1 + random_u64() % 20;
        size_t bytes = 50 + random_u64() % 2000;
        all_bodies(&whole, &texts[0], 0, want, bytes);
        for (int way = 0; way < 6; way++) {
            all_bodies(&again, &texts[way % 2], 1 + random_u64() % 90, want, bytes);
            assert_true(slice_eq(buf_slice(&whole), buf_slice(&again)));
        }
        buf_free(&texts[0]);
        buf_free(&texts[1]);
        buf_free(&whole);
        buf_free(&again);
    }
}

/* An event at the very limit, and one past it, in both forms of input. */
static void test_huge_events(void **state)
{
    (void)state;
    for (int array = 0; array < 2; array++) {
        for (size_t over = 0; over < 2; over++) {
            struct slice event;
            struct err e = {0};
            uint64_t line = 0;
            size_t n = EVENTS_EVENT_MAX + over;
            struct buf text = {0};
            buf_put_cstr(&text, array ? "[\n" : "\n");
            size_t begin = text.len;
            buf_put_cstr(&text, "{\"a\":\"");
            assert_true(buf_reserve(&text, n + 8));
            memset(text.ptr + text.len, 'x', n);
            text.len = begin + n - 2;
            buf_put_cstr(&text, "\"}");
            buf_put_cstr(&text, array ? "]" : "\n");
            start(text.ptr, text.len, 0);
            int r = events_next(&in, &event, &line, &e);
            assert_int_equal(r, over ? ERR_JSON : 1);
            if (over) {
                assert_string_equal(e.text,
                                    "standard input:2: the event is larger than the 32 MiB a "
                                    "request may have");
            } else {
                assert_int_equal(event.len, EVENTS_EVENT_MAX);
            }
            finish();
            buf_free(&text);
        }
    }
}

/* It fits as an event but not with its envelope; and one whose canonical form is past the limit. */
static void test_event_too_large_for_a_request(void **state)
{
    (void)state;
    struct err e = {0};
    struct buf text = {0};
    struct buf body = {0};
    buf_put_cstr(&text, "{\"a\":\"");
    assert_true(buf_reserve(&text, EVENTS_EVENT_MAX));
    memset(text.ptr + text.len, 'x', EVENTS_EVENT_MAX - 10);
    text.len = EVENTS_EVENT_MAX - 10;
    buf_put_cstr(&text, "\"}");
    start(text.ptr, text.len, 0);
    assert_int_equal(cut(10, BATCHES_CUT_BYTES), 1);
    assert_int_equal(batches_body(&batches, "s", "p", 1, &body, &e), ERR_BODY_TOO_LARGE);
    assert_string_equal(e.text,
                        "standard input:1: the event is larger than the 32 MiB a request may have");
    finish();
    buf_clear(&text);
    buf_put_cstr(&text, "{\"a\":[1e20");
    while (text.len < 10u << 20) {
        buf_put_cstr(&text, ",1e20");
    }
    buf_put_cstr(&text, "]}");
    struct slice event;
    uint64_t line = 0;
    start(text.ptr, text.len, 0);
    assert_int_equal(events_next(&in, &event, &line, &e), ERR_JSON);
    assert_non_null(strstr(e.text, "canonical form is over 32 MiB"));
    finish();
    buf_free(&text);
    buf_free(&body);
}

/* 96 MiB of events, more than any batch: the window never holds more than one batch and one event.
 */
static void test_bounded_memory(void **state)
{
    (void)state;
    struct buf text = {0};
    uint64_t events = 0;
    for (unsigned i = 0; i < 400; i++) {
        buf_printf(&text, "{\"n\":%u,\"pad\":\"", i);
        for (unsigned j = 0; j < 400; j++) {
            buf_put_cstr(&text, "0123456789abcdef");
        }
        buf_put_cstr(&text, "\"}\n");
    }
    start(text.ptr, text.len, 0);
    source.endless = true;
    while (source.served < 96u << 20) {
        size_t n = cut(BATCHES_EVENTS_MAX, BATCHES_CUT_BYTES);
        assert_true(n > 3000); /* 6.4 KB each: the bytes decide */
        assert_true(n < 4000);
        events += n;
        batches_consume(&batches, n);
        assert_int_equal(batches.index, events);
        assert_true(batches.count <= 1);
        assert_true(batches.text.cap <= 2 * BATCHES_CUT_BYTES);
        assert_true(in.raw.cap <= 65536);
        assert_true(in.canonical.cap <= 65536);
    }
    finish();
    buf_free(&text);
}

static int setup(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u;
    seed |= 1;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    table = os_real;
    table.read = read_source;
    os_install(&table);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_path_of_mistake),
        cmocka_unit_test(test_read_errors),
        cmocka_unit_test(test_cut_by_events),
        cmocka_unit_test(test_cut_by_bytes),
        cmocka_unit_test(test_body),
        cmocka_unit_test(test_settle_with_server),
        cmocka_unit_test(test_mistake_in_batch),
        cmocka_unit_test(test_same_batches_every_time),
        cmocka_unit_test(test_huge_events),
        cmocka_unit_test(test_event_too_large_for_a_request),
        cmocka_unit_test(test_bounded_memory),
    };
    return cmocka_run_group_tests_name("append batches", tests, setup, teardown);
}
