/* test_signed_head: the text and what it signs, every change of it, and texts that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "door/history/signed_head.h"
#include "journal/chain.h"

#define NOW 1800000000123u

struct made {
    struct ed25519_key *key;
    uint8_t public[ED25519_PUBLIC_LEN];
    struct buf text;
};

static int setup(void **state)
{
    static struct made m;
    struct journal_frontier f = {.events = 12345};
    struct err e = {0};

    m = (struct made){.key = ed25519_new()};
    memset(f.last_id.byte, 0x77, sizeof f.last_id.byte);
    f.last_id.byte[8] = 0x87;
    memset(f.head, 0xab, sizeof f.head);
    ed25519_public(m.key, m.public);
    *state = &m;
    return signed_head_make(&f, NOW, m.key, &m.text, &e);
}

static int teardown(void **state)
{
    struct made *m = *state;

    ed25519_free(m->key);
    buf_free(&m->text);
    return 0;
}

static void test_made_and_read(void **state)
{
    struct made *m = *state;
    struct signed_head h;
    struct err e = {0};
    uint8_t other[ED25519_PUBLIC_LEN] = {0};

    assert_int_equal(signed_head_read(buf_slice(&m->text), &h, &e), 0);
    assert_int_equal(h.events, 12345);
    assert_false(h.empty);
    assert_string_equal(h.signed_at, "2027-01-15T08:00:00.123Z");
    assert_true(signed_head_check(&h, m->public));
    assert_false(signed_head_check(&h, other));
}

/* The signed bytes are the text without `"signature":"...",`, as the protocol says. */
static void test_what_is_signed(void **state)
{
    struct made *m = *state;
    struct signed_head h;
    struct err e = {0};
    char text[2048];
    char *from;
    char *to;

    (void)snprintf(text, sizeof text, "%.*s", (int)m->text.len, m->text.ptr);
    from = strstr(text, "\"signature\":");
    assert_non_null(from);
    to = strchr(from, ',') + 1;
    memmove(from, to, strlen(to) + 1);
    assert_int_equal(signed_head_read(buf_slice(&m->text), &h, &e), 0);
    assert_true(ed25519_verify(m->public, slice_cstr(text), h.signature));
}

/* Any digit of any member: the text is none any more, or its signature is wrong. */
static void test_every_change_shows(void **state)
{
    struct made *m = *state;
    unsigned unread = 0;
    unsigned wrong = 0;

    for (size_t i = 0; i < m->text.len; i++) {
        struct signed_head h;
        struct err e = {0};
        char before = m->text.ptr[i];
        m->text.ptr[i] = before == '1' ? '2' : '1';
        if (signed_head_read(buf_slice(&m->text), &h, &e) != 0) {
            unread++;
        } else {
            assert_false(signed_head_check(&h, m->public));
            wrong++;
        }
        m->text.ptr[i] = before;
    }
    assert_true(unread > 250); /* names, quotes, public key, key id */
    assert_true(wrong > 200);  /* head, count, id, signature, time */
}

static void test_an_empty_journal(void **state)
{
    struct made *m = *state;
    struct journal_frontier f = {.empty = true};
    struct signed_head h;
    struct buf text = {0};
    struct err e = {0};

    memcpy(f.head, chain_genesis, sizeof f.head);
    assert_int_equal(signed_head_make(&f, UINT64_MAX, m->key, &text, &e), 0);
    assert_int_equal(signed_head_read(buf_slice(&text), &h, &e), 0);
    assert_true(h.empty);
    assert_string_equal(h.signed_at, "9999-12-31T23:59:59.999Z");
    assert_true(signed_head_check(&h, m->public));
    buf_free(&text);
}

static void refuse(const char *text, const char *why)
{
    struct signed_head h;
    struct err e = {0};

    assert_int_equal(signed_head_read(slice_cstr(text), &h, &e), ERR_JSON);
    assert_non_null(strstr(e.text, why));
}

/* The made text with one piece replaced. */
static void refuse_with(const struct made *m, const char *find, const char *with, const char *why)
{
    char text[4096];
    char *at;
    char rest[4096];

    (void)snprintf(text, sizeof text, "%.*s", (int)m->text.len, m->text.ptr);
    at = strstr(text, find);
    assert_non_null(at);
    (void)snprintf(rest, sizeof rest, "%s", at + strlen(find));
    (void)snprintf(at, sizeof text - (size_t)(at - text), "%s%s", with, rest);
    refuse(text, why);
}

static void test_texts_that_are_none(void **state)
{
    struct made *m = *state;
    static char spaces[SIGNED_HEAD_BYTES_MAX + 2];

    memset(spaces, ' ', sizeof spaces - 1);
    refuse(spaces, "too long");
    refuse("", "not the whole");
    refuse("[]", "not the whole");
    refuse("{}", "not the whole");
    refuse_with(m, "{", "{\"more\":1,", "more");
    refuse_with(m, "\"v\":1", "\"v\":1,\"v\":1", "member v");
    refuse_with(m, "\"v\":1", "\"v\":2", "member v");
    refuse_with(m, "tallyman/head", "tallyman/tail", "type");
    refuse_with(m, ":12345", ":9007199254740992", "count");
    refuse_with(m, ":12345", ":0", "contradict");
    refuse_with(m, ":12345", ":\"1\"", "count");
    refuse_with(m, "2027-01-15T", "2027-02-30T", "signed_at");
    refuse_with(m, "77777777-", "7777777-", "frontier_event_id");
    refuse_with(m, ",\"v\":1}", ",\"v\":1", "not the whole");
}

static void test_without_memory(void **state)
{
    struct made *m = *state;
    struct journal_frontier f = {.empty = true};
    struct buf small;
    struct err e = {0};

    buf_init(&small, 20);
    assert_int_equal(signed_head_make(&f, NOW, m->key, &small, &e), ERR_NO_MEMORY);
    buf_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_read),       cmocka_unit_test(test_what_is_signed),
        cmocka_unit_test(test_every_change_shows),  cmocka_unit_test(test_an_empty_journal),
        cmocka_unit_test(test_texts_that_are_none), cmocka_unit_test(test_without_memory),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
