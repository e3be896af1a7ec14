/* The formulas of spec/history.md section 4 against its known answers and against vectors made by
 * another program (tests/vectors/make_vectors.py): content hash, event hash, batch digest, chain,
 * layout of event ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "journal/chain.h"
#include "journal/event_id.h"
#include "journal/scan.h"
#include "tests/unit/journal/vectors.h"

#define VECTORS (sizeof vectors / sizeof *vectors)

static void assert_hex(const uint8_t hash[SHA256_LEN], const char *hex)
{
    char got[SHA256_HEX_LEN + 1] = {0};
    hex_encode(got, hash, SHA256_LEN);
    assert_string_equal(got, hex);
}

static void test_known_answers(void **state)
{
    static const char payload[] =
        "{\"balance\":12.5,\"email\":\"kim@example.com\",\"id\":\"cus_1\"}";
    uint8_t hash[SHA256_LEN];
    sha256_once(SLICE("groundhog/genesis/v1"), hash);
    assert_memory_equal(hash, chain_genesis, SHA256_LEN);
    assert_hex(chain_genesis, "de84c29d7e74ec3e0ac6db8d29ad38be698cacc529bd530f004144e36f06e42b");
    sha256_once(slice_of(payload, sizeof payload - 1), hash);
    assert_hex(hash, "1f3bd02b1d38c4cb9fe4002da9c9f5e43ca05930b54b7e872b4e55dbdfb6baf6");
    /* The one-event batch of the contract. */
    struct chain_digest d;
    struct buf scratch = {0};
    char hex[SHA256_HEX_LEN];
    sha256_once(SLICE("1"), hash);
    hex_encode(hex, hash, SHA256_LEN);
    chain_digest_start(&d);
    assert_true(chain_digest_event(&d, &scratch, slice_of(hex, sizeof hex), SLICE("\"upserted\""),
                                   (struct slice){0}, SLICE("\"key\""), SLICE("\"stream\"")));
    chain_digest_end(&d, SLICE("\"source\""), hash);
    assert_hex(hash, "f2f766e2c9baa046927f9af5d77685f3e54be212175f40cbff12342d8e272ec4");
    buf_free(&scratch);
    (void)state;
}

static void test_vectors(void **state)
{
    struct buf scratch = {0};
    struct chain_digest d;
    uint8_t head[SHA256_LEN];
    uint8_t hash[SHA256_LEN];
    memcpy(head, chain_genesis, SHA256_LEN);
    for (size_t i = 0; i < VECTORS; i++) {
        const struct vector *v = &vectors[i];
        sha256_once(slice_cstr(v->payload), hash);
        assert_hex(hash, v->content_hash);
        struct chain_event ev = {.batch_id = slice_cstr(v->batch_id),
                                 .kind = slice_cstr(v->kind),
                                 .occurred_at = slice_cstr(v->occurred_at),
                                 .record_key = slice_cstr(v->record_key),
                                 .source = slice_cstr(v->source),
                                 .stream = slice_cstr(v->stream),
                                 .content_hash = slice_cstr(v->content_hash),
                                 .event_id = slice_cstr(v->event_id),
                                 .observed_at = slice_cstr(v->observed_at)};
        assert_true(chain_event_hash(&ev, &scratch, hash));
        assert_hex(hash, v->event_hash);
        chain_step(head, hash);
        assert_hex(head, v->head);
        if (v->in_batch == 0) {
            chain_digest_start(&d);
        }
        assert_true(chain_digest_event(&d, &scratch, ev.content_hash, ev.kind, ev.occurred_at,
                                       ev.record_key, ev.stream));
        if (v->in_batch + 1 == v->batch_len) {
            chain_digest_end(&d, ev.source, hash);
            assert_hex(hash, v->batch_digest);
        }
    }
    buf_free(&scratch);
    (void)state;
}

/* A buffer that cannot grow is told, never hashed cut. */
static void test_no_memory(void **state)
{
    struct buf scratch;
    struct chain_digest d;
    uint8_t hash[SHA256_LEN];
    const struct vector *v = &vectors[0];
    struct chain_event ev = {.batch_id = slice_cstr(v->batch_id),
                             .kind = slice_cstr(v->kind),
                             .record_key = slice_cstr(v->record_key),
                             .source = slice_cstr(v->source),
                             .stream = slice_cstr(v->stream),
                             .content_hash = slice_cstr(v->content_hash),
                             .event_id = slice_cstr(v->event_id),
                             .observed_at = slice_cstr(v->observed_at)};
    buf_init(&scratch, 100);
    assert_false(chain_event_hash(&ev, &scratch, hash));
    chain_digest_start(&d);
    assert_false(chain_digest_event(&d, &scratch, ev.content_hash, ev.kind, ev.occurred_at,
                                    ev.record_key, ev.stream));
    buf_free(&scratch);
    (void)state;
}

static void test_event_ids(void **state)
{
    char text[UUID_TEXT_LEN + 1] = {0};
    struct uuid parsed;
    for (size_t i = 0; i < VECTORS; i++) {
        const struct vector *v = &vectors[i];
        struct uuid id = event_id_make((struct event_id_parts){
            .ms = v->ms, .group = v->group, .tag = (uint16_t)v->tag, .index = (uint16_t)v->index});
        uuid_text(text, &id);
        assert_string_equal(text, v->event_id);
        assert_true(uuid7_parse(slice_cstr(v->event_id), &parsed));
        struct event_id_parts p = event_id_split(&parsed);
        assert_int_equal(p.ms, v->ms);
        assert_int_equal(p.group, v->group);
        assert_int_equal(p.tag, v->tag);
        assert_int_equal(p.index, v->index);
    }
    (void)state;
}

static struct uuid id_of(uint64_t ms, uint64_t group, uint16_t tag, uint16_t index)
{
    return event_id_make((struct event_id_parts){ms, group, tag, index});
}

static bool follows(struct uuid a, struct uuid b)
{
    return origin_follows(ORIGIN_OWN, &a, &b);
}

/* Which id may stand behind which. */
static void test_follows(void **state)
{
    struct uuid a = id_of(1000, 7, 5, 3);
    assert_true(follows(a, id_of(1000, 7, 5, 4)));
    assert_true(follows(a, id_of(1000, 8, 5, 0)));
    assert_true(follows(a, id_of(2000, 8, 5, 0)));
    assert_true(follows(a, id_of(2000, 1, 6, 9))); /* another program's or journal's ids */
    assert_false(follows(a, a));
    assert_false(follows(a, id_of(1000, 7, 5, 2)));
    assert_false(follows(a, id_of(1000, 7, 5, 5)));
    assert_false(follows(a, id_of(2000, 7, 5, 4)));
    assert_false(follows(a, id_of(1000, 8, 5, 1)));
    assert_false(follows(a, id_of(1000, 9, 5, 0)));
    assert_false(follows(a, id_of(2000, 7 + (UINT64_C(1) << 32), 5, 0)));
    assert_true(follows(a, id_of(2000, 8 + (UINT64_C(1) << 32), 5, 9))); /* one tag by chance */
    assert_true(follows(a, id_of(2000, 6, 5, 9)));
    assert_false(follows(a, id_of(999, 8, 5, 0)));
    assert_false(follows(a, id_of(999, 8, 6, 0)));
    assert_true(
        follows(id_of(1, (UINT64_C(1) << 32) - 1, 5, 3), id_of(1, UINT64_C(1) << 32, 5, 0)));
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_event_ids),
        cmocka_unit_test(test_follows),
    };
    return cmocka_run_group_tests_name("chain", tests, NULL, NULL);
}
