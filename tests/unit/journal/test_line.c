/* Stored lines: the vectors byte for byte in both directions, and every damage that the form alone
 * must notice. What the form does not notice is covered by hashes (test_scan.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "journal/line.h"
#include "tests/unit/journal/vectors.h"

#define VECTORS (sizeof vectors / sizeof *vectors)

static struct slice bare(const char *s)
{
    return slice_cstr(s);
}

static struct line line_of(const struct vector *v)
{
    return (struct line){.batch_digest = bare(v->batch_digest),
                         .batch_id = bare(v->batch_id),
                         .batch_len = v->batch_len,
                         .content_hash = bare(v->content_hash),
                         .event_hash = bare(v->event_hash),
                         .event_id = bare(v->event_id),
                         .kind = bare(v->kind),
                         .observed_at = bare(v->observed_at),
                         .occurred_at = bare(v->occurred_at),
                         .payload = bare(v->payload),
                         .record_key = bare(v->record_key),
                         .source = bare(v->source),
                         .stream = bare(v->stream)};
}

static void assert_slice(struct slice s, const char *text)
{
    assert_int_equal(s.len, strlen(text));
    assert_memory_equal(s.ptr, text, s.len);
}

static void test_put(void **state)
{
    struct buf out = {0};
    for (size_t i = 0; i < VECTORS; i++) {
        struct line l = line_of(&vectors[i]);
        buf_clear(&out);
        line_put(&out, &l);
        assert_int_equal(out.len, strlen(vectors[i].stored) + 1);
        assert_int_equal(out.len, line_length(&l));
        assert_memory_equal(out.ptr, vectors[i].stored, out.len - 1);
        assert_int_equal(out.ptr[out.len - 1], '\n');
    }
    buf_free(&out);
    (void)state;
}

static void test_parse(void **state)
{
    struct buf out = {0};
    for (size_t i = 0; i < VECTORS; i++) {
        const struct vector *v = &vectors[i];
        struct line l;
        assert_true(line_parse(bare(v->stored), &l));
        assert_slice(l.batch_digest, v->batch_digest);
        assert_slice(l.batch_id, v->batch_id);
        assert_int_equal(l.batch_len, v->batch_len);
        assert_slice(l.content_hash, v->content_hash);
        assert_slice(l.event_hash, v->event_hash);
        assert_slice(l.event_id, v->event_id);
        assert_slice(l.kind, v->kind);
        assert_slice(l.observed_at, v->observed_at);
        assert_slice(l.occurred_at, v->occurred_at);
        assert_slice(l.payload, v->payload);
        assert_slice(l.record_key, v->record_key);
        assert_slice(l.source, v->source);
        assert_slice(l.stream, v->stream);
        buf_clear(&out);
        line_put_event(&out, &l);
        assert_slice(buf_slice(&out), v->replayed);
    }
    buf_free(&out);
    (void)state;
}

/* A cut line is no line, wherever it is cut. */
static void test_cut(void **state)
{
    for (size_t i = 0; i < VECTORS; i++) {
        size_t n = strlen(vectors[i].stored);
        char *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, vectors[i].stored, n);
        struct line l;
        for (size_t k = 0; k < n; k++) {
            assert_false(line_parse(slice_of(copy, k), &l));
        }
        assert_true(line_parse(slice_of(copy, n), &l));
        free(copy);
    }
    (void)state;
}

/* Every byte in turn becomes something else: the line is refused, or reads differently. */
static void test_flipped(void **state)
{
    static const unsigned char flips[] = {0x01, 0x20, 0x80, 0xff};
    struct buf out = {0};
    for (size_t i = 0; i < VECTORS; i++) {
        size_t n = strlen(vectors[i].stored);
        char *copy = malloc(n);
        assert_non_null(copy);
        for (size_t k = 0; k < n; k++) {
            for (size_t q = 0; q < sizeof flips; q++) {
                struct line l;
                memcpy(copy, vectors[i].stored, n);
                copy[k] = (char)((unsigned char)copy[k] ^ flips[q]);
                if (!line_parse(slice_of(copy, n), &l)) {
                    continue;
                }
                /* What was accepted is written back as it was read: nothing is mended silently. */
                buf_clear(&out);
                line_put(&out, &l);
                assert_int_equal(out.len, n + 1);
                assert_memory_equal(out.ptr, copy, n);
            }
        }
        free(copy);
    }
    buf_free(&out);
    (void)state;
}

static void refuse(const char *find, const char *with)
{
    const char *stored = vectors[1].stored;
    const char *at = strstr(stored, find);
    struct buf text = {0};
    struct line l;
    assert_non_null(at);
    buf_put(&text, stored, (size_t)(at - stored));
    buf_put_cstr(&text, with);
    buf_put_cstr(&text, at + strlen(find));
    assert_false(text.failed);
    assert_false(line_parse(buf_slice(&text), &l));
    buf_free(&text);
}

static void test_refused(void **state)
{
    struct line l;
    assert_false(line_parse((struct slice){0}, &l));
    assert_false(line_parse(SLICE("{}"), &l));
    assert_false(line_parse(SLICE("null"), &l));
    refuse("\"batch_len\":3", "\"batch_len\":03");
    refuse("\"batch_len\":3", "\"batch_len\":");
    refuse("\"batch_len\":3", "\"batch_len\":-3");
    refuse("\"batch_len\":3", "\"batch_len\":0");
    refuse("\"batch_len\":3", "\"batch_len\":1000000");
    refuse("\"batch_len\":3", "\"batch_len\":4294967299");
    refuse("\"batch_len\":3", "\"batch_len\":3.0");
    refuse("\"event_id\":\"0", "\"event_id\":\"G");
    refuse("\"kind\":\"upserted\"", "\"kind\":upserted");
    refuse(",\"occurred_at\":\"2026-11-30T09:00:00Z\"", ",\"occurred_at\":null");
    refuse(",\"record_key\":\"cus_1\"", "");
    refuse(",\"source\":\"stripe\"", "");
    refuse(",\"stream\":\"customers\"", ",\"stream\":\"customers\",\"x\":1");
    refuse(",\"stream\":\"customers\"", ",\"stream\":\"customers\\\"");
    refuse(",\"payload\":{\"balance\":12.5,\"email\":\"kim@example.com\",\"id\":\"cus_1\"}",
           ",\"payload\":");
    refuse("{\"batch_digest\"", " {\"batch_digest\"");
    (void)state;
}

/* A payload may hold what looks like the end of a line; megabytes of it are not walked. */
/* Each digit of the three hashes, replaced by something that is no lower-case hexadecimal digit. */
static void test_hashes_are_hexadecimal(void **state)
{
    static const char *const members[] = {"{\"batch_digest\":\"", "\"content_hash\":\"",
                                          "\"event_hash\":\""};
    static const char wrong[] = {'g', 'A', 'F', '/', ':', '`', ' ', '\x01', '\xb0'};
    const char *stored = vectors[1].stored;
    size_t n = strlen(stored);
    char *copy = malloc(n);
    struct line l;
    (void)state;
    assert_non_null(copy);
    for (size_t m = 0; m < sizeof members / sizeof *members; m++) {
        const char *member = strstr(stored, members[m]);
        assert_non_null(member);
        size_t at = (size_t)(member - stored) + strlen(members[m]);
        for (size_t k = 0; k < SHA256_HEX_LEN * sizeof wrong; k++) {
            memcpy(copy, stored, n);
            copy[at + k / sizeof wrong] = wrong[k % sizeof wrong];
            assert_false(line_parse(slice_of(copy, n), &l));
            assert_false(line_parse_head(slice_of(copy, n), &l));
        }
    }
    free(copy);
}

static void test_payload_like_a_foot(void **state)
{
    const struct vector *v = &vectors[0];
    struct buf payload = {0};
    struct buf out = {0};
    struct line l = line_of(v);
    struct line back;
    buf_put_cstr(&payload, "[");
    for (int i = 0; i < 100000; i++) {
        buf_put_cstr(&payload,
                     "{\"payload\":1,\"record_key\":\"a\",\"source\":\"b\",\"stream\":\"c\"},");
    }
    buf_put_cstr(&payload, "1]");
    l.payload = buf_slice(&payload);
    line_put(&out, &l);
    assert_false(out.failed);
    assert_true(line_parse(slice_of(out.ptr, out.len - 1), &back));
    assert_true(slice_eq(back.payload, l.payload));
    assert_true(slice_eq(back.record_key, l.record_key));
    buf_free(&payload);
    buf_free(&out);
    (void)state;
}

/* The longest legal head and foot are inside the bounds that readers of a part rely on. */
static void test_bounds(void **state)
{
    const struct vector *v = &vectors[0];
    struct line l = line_of(v);
    struct line back;
    struct buf key = {0};
    struct buf id = {0};
    struct buf out = {0};
    buf_put_char(&key, '"');
    for (int i = 0; i < 1024; i++) {
        buf_put_cstr(&key, "\\u0001");
    }
    buf_put_char(&key, '"');
    buf_put_char(&id, '"');
    for (int i = 0; i < 256; i++) {
        buf_put_cstr(&id, "\\u0001");
    }
    buf_put_char(&id, '"');
    l.record_key = buf_slice(&key);
    l.batch_id = buf_slice(&id);
    l.batch_len = 10000;
    char name[130];
    memset(name, 'n', sizeof name);
    name[0] = name[129] = '"';
    l.source = l.stream = slice_of(name, sizeof name);
    line_put(&out, &l);
    assert_true(line_parse(slice_of(out.ptr, out.len - 1), &back));
    assert_true(slice_eq(back.record_key, l.record_key));
    assert_true(back.kind.ptr - out.ptr <= LINE_HEAD_MAX);
    assert_true(out.ptr + out.len - (back.payload.ptr + back.payload.len) <= LINE_FOOT_MAX);
    buf_free(&key);
    buf_free(&id);
    buf_free(&out);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_flipped),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hashes_are_hexadecimal),
        cmocka_unit_test(test_payload_like_a_foot),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("line", tests, NULL, NULL);
}
