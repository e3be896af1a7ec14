/* Torn group or damage, where contents make it hard to tell: batches with the same events, and
 * payloads that hold a copy of a line with hashes that hold. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/chain.h"
#include "journal/event_id.h"

#define STREAM SLICE("\"st\"")
#define KEY    SLICE("\"k\"")
#define KIND   SLICE("\"kd\"")
#define SOURCE SLICE("\"src\"")

static void digest_of(const uint8_t content_hash[SHA256_LEN], uint8_t out[SHA256_LEN])
{
    struct chain_digest d;
    struct buf scratch = {0};
    char hex[SHA256_HEX_LEN];
    hex_encode(hex, content_hash, SHA256_LEN);
    chain_digest_start(&d);
    assert_true(chain_digest_event(&d, &scratch, slice_of(hex, sizeof hex), KIND, (struct slice){0},
                                   KEY, STREAM));
    chain_digest_end(&d, SOURCE, out);
    buf_free(&scratch);
}

/* One batch of one event in a group of its own. */
static struct uuid put(struct fx *f, const char *batch_id, struct slice payload)
{
    struct journal_result r;
    struct journal_event ev = {
        .stream = STREAM, .record_key = KEY, .kind = KIND, .payload = payload};
    struct journal_batch b = {
        .source = SOURCE, .batch_id = slice_cstr(batch_id), .events = &ev, .count = 1};
    sha256_once(payload, ev.content_hash);
    digest_of(ev.content_hash, b.digest);
    assert_int_equal(journal_append(f->j, &b, &r, &f->e), 0);
    assert_int_equal(journal_commit(f->j, &f->e), 0);
    return r.last_id;
}

/* One changed byte in the first of many batches that differ in their batch_id only: all have the
 * same digest, and those behind it still prove that it was acknowledged. */
static void test_batches_with_the_same_events(void **state)
{
    static const char *const ids[] = {"\"b0\"", "\"b1\"", "\"b2\"", "\"b3\""};
    struct fx f;
    size_t n;
    fx_start(&f, false);
    fx_open(&f);
    for (size_t i = 0; i < 4; i++) {
        (void)put(&f, ids[i], SLICE("{\"ok\":true}"));
    }
    fx_kill(&f);
    char *tail = fx_slurp(f.layout.tail, &n);
    const char *payload = memmem(tail, n, "true", 4);
    assert_non_null(payload);
    assert_int_equal(model_rot(f.m, f.layout.tail, (uint64_t)(payload - tail), 1), 0);
    free(tail);
    fx_open(&f);
    assert_true(fx_status(&f).poisoned);
    assert_int_equal(fx_status(&f).frontier.events, 0);
    fx_end(&f);
    (void)state;
}

/* A payload that holds, behind filler, an object that reads as a line of a group yet to come, up to
 * the end of the line that it lies in. */
static void make_payload(const struct uuid *last, struct buf *out)
{
    static const char observed_at[] = "2026-01-01T00:00:00.000Z";
    static const struct slice rest = SLICE("1}]");
    struct event_id_parts parts = event_id_split(last);
    uint8_t hash[SHA256_LEN];
    char content[SHA256_HEX_LEN];
    char event[SHA256_HEX_LEN];
    char digest[SHA256_HEX_LEN];
    char id_text[UUID_TEXT_LEN];
    struct buf scratch = {0};
    parts.group += 5;
    parts.index = 0;
    struct uuid id = event_id_make(parts);
    uuid_text(id_text, &id);
    sha256_once(rest, hash);
    hex_encode(content, hash, SHA256_LEN);
    digest_of(hash, hash);
    hex_encode(digest, hash, SHA256_LEN);
    struct chain_event ce = {.batch_id = SLICE("\"copy\""),
                             .kind = KIND,
                             .record_key = KEY,
                             .source = SOURCE,
                             .stream = STREAM,
                             .content_hash = slice_of(content, sizeof content),
                             .event_id = slice_of(id_text, sizeof id_text),
                             .observed_at = slice_cstr(observed_at)};
    assert_true(chain_event_hash(&ce, &scratch, hash));
    hex_encode(event, hash, SHA256_LEN);
    buf_free(&scratch);
    buf_printf(out,
               "[\"%0600d\",{\"batch_digest\":\"%.64s\",\"batch_id\":\"copy\",\"batch_len\":1,"
               "\"content_hash\":\"%.64s\",\"event_hash\":\"%.64s\",\"event_id\":\"%.36s\","
               "\"kind\":\"kd\",\"observed_at\":\"%s\",\"payload\":%s",
               0, digest, content, event, id_text, observed_at, rest.ptr);
    assert_false(out->failed);
}

/* The group is torn just before the copy: it is a torn group still, whatever stands before. */
static void test_copy_of_a_line_in_a_payload(void **state)
{
    static const char before[] = {'\0', '\n', ',', 'x'};
    for (size_t i = 0; i < sizeof before; i++) {
        struct fx f;
        struct buf payload = {0};
        size_t n;
        fx_start(&f, false);
        fx_open(&f);
        struct uuid last = put(&f, "\"b0\"", SLICE("1"));
        make_payload(&last, &payload);
        (void)put(&f, "\"b1\"", buf_slice(&payload));
        fx_kill(&f);
        char *tail = fx_slurp(f.layout.tail, &n);
        char *torn = memchr(tail, '\n', n);
        assert_non_null(torn);
        char *copy = memmem(torn, n - (size_t)(torn - tail), ",{\"batch_digest\"", 16);
        assert_non_null(copy);
        memset(torn + 1, 0, (size_t)(copy - torn));
        *copy = before[i];
        fx_spill(f.layout.tail, tail, n);
        free(tail);
        fx_open(&f);
        assert_false(fx_status(&f).poisoned);
        assert_int_equal(fx_status(&f).frontier.events, 1);
        assert_true(fx_exists(f.layout.remnants));
        buf_free(&payload);
        fx_end(&f);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_with_the_same_events),
        cmocka_unit_test(test_copy_of_a_line_in_a_payload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
