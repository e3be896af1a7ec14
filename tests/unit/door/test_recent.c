/* test_recent: the ring against a list that forgets nothing. Random groups of random lines, also
 * ones too large for it; after each group everything that the ring claims to hold is there, in
 * order and byte for byte, and nothing is missing between start and through. SEED. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "door/history/recent.h"

#define EVENTS_MAX 60000

struct known {
    struct uuid id;
    struct buf text; /* as it is sent */
    unsigned source, kind;
};

static struct known *known;
static uint64_t known_count;
static uint64_t seed;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static struct uuid id_of(uint64_t n)
{
    struct uuid id = {{0x01, 0x90}};
    id.byte[6] = 0x70;
    id.byte[8] = 0x80;
    for (int i = 0; i < 6; i++) {
        id.byte[15 - i] = (uint8_t)(n >> (8 * i));
    }
    return id;
}

/* Appends the line of the next event, and remembers what is sent of it. */
static void make(struct buf *lines, size_t payload_bytes)
{
    static const char hash[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    struct known *k = &known[known_count];
    char id[UUID_TEXT_LEN];
    char names[4][40];
    struct buf payload = {0};
    assert_true(known_count < EVENTS_MAX);
    *k = (struct known){.id = id_of(2 * known_count + 2),
                        .source = (unsigned)(next_random() % 3),
                        .kind = (unsigned)(next_random() % 2)};
    uuid_text(id, &k->id);
    (void)snprintf(names[0], sizeof names[0], "\"source%u\"", k->source);
    (void)snprintf(names[1], sizeof names[1], "\"kind%u\"", k->kind);
    (void)snprintf(names[2], sizeof names[2], "\"key%u\"", (unsigned)(known_count % 5));
    (void)snprintf(names[3], sizeof names[3], "\"stream%u\"", (unsigned)(known_count % 2));
    buf_put_char(&payload, '"');
    for (size_t i = 0; i < payload_bytes; i++) {
        buf_put_char(&payload, (char)('a' + (known_count + i) % 26));
    }
    buf_put_char(&payload, '"');
    struct line l = {.batch_digest = SLICE("00112233445566778899aabbccddeeff"
                                           "00112233445566778899aabbccddeeff"),
                     .batch_id = SLICE("\"b\""),
                     .batch_len = 1,
                     .content_hash = slice_cstr(hash),
                     .event_hash = slice_cstr(hash),
                     .event_id = slice_of(id, sizeof id),
                     .kind = slice_cstr(names[1]),
                     .observed_at = SLICE("2026-11-30T10:03:01.952Z"),
                     .payload = buf_slice(&payload),
                     .record_key = slice_cstr(names[2]),
                     .source = slice_cstr(names[0]),
                     .stream = slice_cstr(names[3])};
    size_t at = lines->len;
    line_put(lines, &l);
    struct line parsed;
    assert_true(line_parse(slice_of(lines->ptr + at, lines->len - at - 1), &parsed));
    line_put_event(&k->text, &parsed);
    known_count++;
    buf_free(&payload);
}

static struct uuid before(uint64_t n)
{
    return n == 0 ? (struct uuid){0} : known[n - 1].id;
}

static void check(const struct recent *r)
{
    assert_int_equal(uuid_cmp(&r->through, &known[known_count - 1].id), 0);
    uint64_t held = r->end - r->first;
    assert_true(held <= known_count);
    uint64_t first = known_count - held; /* of known */
    struct uuid start = before(first);
    assert_int_equal(uuid_cmp(&r->start, &start), 0); /* no gap */
    for (uint64_t i = 0; i < held; i += 1 + next_random() % 50) {
        const struct known *k = &known[first + i];
        const struct recent_event *ev = recent_at(r, r->first + i);
        struct slice text = recent_text(r, ev);
        assert_int_equal(uuid_cmp(&ev->id, &k->id), 0);
        assert_int_equal(text.len, k->text.len);
        assert_memory_equal(text.ptr, k->text.ptr, text.len);
        char name[40];
        (void)snprintf(name, sizeof name, "\"source%u\"", k->source);
        struct journal_filter same = {.source = slice_cstr(name)};
        struct journal_filter other = {.source = slice_cstr(name), .kind = SLICE("\"kind\"")};
        struct journal_filter key = {.record_key = SLICE("\"key1\""),
                                     .stream = SLICE("\"stream0\"")};
        assert_true(recent_matches(r, ev, &same));
        assert_false(recent_matches(r, ev, &other));
        assert_int_equal(recent_matches(r, ev, &key), (first + i) % 5 == 1 && (first + i) % 2 == 0);
        /* The cursor at it, between it and the next, and at the one before. */
        struct uuid between = k->id;
        struct uuid prior = before(first + i);
        between.byte[15] |= 1;
        assert_int_equal(recent_find(r, &k->id), r->first + i + 1);
        assert_int_equal(recent_find(r, &between), r->first + i + 1);
        assert_int_equal(recent_find(r, &prior), r->first + i);
    }
    assert_int_equal(recent_find(r, &r->through), r->end);
}

static void forget_all(void)
{
    for (uint64_t i = 0; i < known_count; i++) {
        buf_free(&known[i].text);
    }
    known_count = 0;
}

static void test_against_a_list(void **state)
{
    struct recent r = {0};
    struct buf lines = {0};
    bool wrapped = false;
    bool skipped = false;
    assert_true(recent_start(&r, &(struct uuid){0}));
    for (unsigned group = 0; group < 700; group++) {
        unsigned n = 1 + (unsigned)(next_random() % 30);
        size_t scale = (size_t)1 << next_random() % 15;
        buf_clear(&lines);
        for (unsigned i = 0; i < n; i++) {
            size_t bytes = next_random() % scale;
            bool large = next_random() % 2000 == 0;
            make(&lines, large ? RECENT_EVENT_MAX + bytes : bytes);
            skipped = skipped || large;
        }
        uint32_t at = r.write_at;
        recent_add(&r, buf_slice(&lines));
        wrapped = wrapped || r.write_at < at;
        check(&r);
    }
    assert_true(wrapped);
    assert_true(skipped);
    recent_free(&r);
    buf_free(&lines);
    forget_all();
    (void)state;
}

/* Many small events: their number is the bound. */
static void test_full_of_small_ones(void **state)
{
    struct recent r = {0};
    struct buf lines = {0};
    assert_true(recent_start(&r, &(struct uuid){0}));
    for (unsigned i = 0; i < RECENT_EVENTS + 100; i++) {
        make(&lines, 1);
    }
    recent_add(&r, buf_slice(&lines));
    assert_int_equal(r.end - r.first, RECENT_EVENTS);
    check(&r);
    recent_free(&r);
    buf_free(&lines);
    forget_all();
    (void)state;
}

/* A new start keeps nothing, and no number of an event comes twice. */
static void test_starts_again(void **state)
{
    struct recent r = {0};
    struct buf lines = {0};
    assert_true(recent_start(&r, &(struct uuid){0}));
    make(&lines, 10);
    recent_add(&r, buf_slice(&lines));
    uint64_t end = r.end;
    struct uuid at = id_of(1000);
    assert_true(recent_start(&r, &at));
    assert_int_equal(r.first, end);
    assert_int_equal(r.end, end);
    assert_int_equal(recent_find(&r, &at), end);
    assert_int_equal(uuid_cmp(&r.start, &at), 0);
    recent_free(&r);
    buf_free(&lines);
    forget_all();
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_list),
        cmocka_unit_test(test_full_of_small_ones),
        cmocka_unit_test(test_starts_again),
    };
    const char *given = getenv("SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    seed |= 1;
    (void)fprintf(stderr, "SEED=%llu\n", (unsigned long long)seed);
    known = calloc(EVENTS_MAX, sizeof *known);
    if (known == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests_name("recent", tests, NULL, NULL);
    free(known);
    return failed;
}
