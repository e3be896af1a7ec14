/* identity: UUIDs read, derived and made (cases C14, C16). The known answers of identity_derive
 * must never change: receipts of years are found by them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "door/capture/identity.h"
#include "os/os.h"

static void assert_uuid(const struct uuid *u, const char *want)
{
    char text[UUID_TEXT_LEN];
    uuid_text(text, u);
    assert_int_equal(strlen(want), UUID_TEXT_LEN);
    assert_memory_equal(text, want, UUID_TEXT_LEN);
}

static void test_every_version_and_case(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "5df41881-3aed-3515-88a7-2f4a814cf09e",
        "919108f7-52d1-4320-9bac-f847db4148a8", "2ed6657d-e927-568b-95e1-2665a8aea6a2",
        "1ec9414c-232a-6b00-b3c8-9f6bdeced846", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f",
        "2489e9ad-2ee2-8e00-8ec9-32d5f69181c0", "12345678-9abc-def0-0fed-cba987654321"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char upper[UUID_TEXT_LEN];
        struct uuid u;
        struct uuid again;
        for (size_t k = 0; k < sizeof upper; k++) {
            char c = texts[i][k];
            upper[k] = c >= 'a' && c <= 'f' && k % 2 == 0 ? (char)(c - 'a' + 'A') : c;
        }
        assert_true(identity_parse(slice_cstr(texts[i]), &u));
        assert_uuid(&u, texts[i]);
        assert_true(identity_parse(slice_of(upper, sizeof upper), &again));
        assert_int_equal(uuid_cmp(&u, &again), 0);
        assert_int_equal(uuid_is_zero(&u), i == 0);
        assert_true(identity_parse_loose(slice_of(upper, sizeof upper), &again));
        assert_int_equal(uuid_cmp(&u, &again), 0);
    }
}

/* Every byte of the text, changed to every value: read back as it is written, or refused. */
static void test_every_changed_byte(void **state)
{
    (void)state;
    static const char good[] = "2ed6657d-e927-568b-95e1-2665a8aea6a2";
    for (size_t i = 0; i < UUID_TEXT_LEN; i++) {
        for (unsigned c = 0; c < 256; c++) {
            char text[UUID_TEXT_LEN];
            char back[UUID_TEXT_LEN];
            struct uuid u;
            bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
            memcpy(text, good, sizeof text);
            text[i] = (char)c;
            bool want = good[i] == '-' ? c == '-' : digit;
            assert_int_equal(identity_parse(slice_of(text, sizeof text), &u), want);
            if (want) {
                uuid_text(back, &u);
                text[i] = c >= 'A' && c <= 'F' ? (char)(c - 'A' + 'a') : (char)c;
                assert_memory_equal(back, text, sizeof text);
            }
        }
    }
}

static void test_other_spellings(void **state)
{
    (void)state;
    static const char *const loose[] = {"2ed6657de927568b95e12665a8aea6a2",
                                        "{2ed6657d-e927-568b-95e1-2665a8aea6a2}",
                                        "urn:uuid:2ED6657D-e927-568b-95e1-2665a8aea6a2"};
    static const char *const bad[] = {
        "",
        "2ed6657d-e927-568b-95e1-2665a8aea6a",
        "2ed6657d-e927-568b-95e1-2665a8aea6a22",
        " 2ed6657d-e927-568b-95e1-2665a8aea6a2",
        "2ed6657de927568b95e12665a8aea6a",
        "2ed6657de927568b95e12665a8aea6ag",
        "(2ed6657d-e927-568b-95e1-2665a8aea6a2)",
        "{2ed6657d-e927-568b-95e1-2665a8aea6a2",
        "{2ed6657de927568b95e12665a8aea6a2}",
        "{2ed6657d-e927-568b-95e1-2665a8aea6a2)",
        "urn:uuid:2ed6657de927568b95e12665a8aea6a2",
        "URN:UUID:2ed6657d-e927-568b-95e1-2665a8aea6a2",
        "urn:uuid:",
        "2ed6657d-e927-568b-95e12665a8aea6a2xx",
        "node-next-1709656610891-2ed6657d-e927-568b-95e1-2665a8aea6a2"};
    struct uuid u;
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        assert_true(identity_parse_loose(slice_cstr(loose[i]), &u));
        assert_uuid(&u, "2ed6657d-e927-568b-95e1-2665a8aea6a2");
        assert_false(identity_parse(slice_cstr(loose[i]), &u));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(identity_parse(slice_cstr(bad[i]), &u));
        assert_false(identity_parse_loose(slice_cstr(bad[i]), &u));
    }
    assert_false(identity_parse((struct slice){0}, &u));
    assert_false(identity_parse_loose((struct slice){0}, &u));
}

/* python3 -c 'import hashlib,uuid; h=bytearray(hashlib.sha256(b"demo\0web\0m-1").digest()[:16]);
 *             h[6]=h[6]&15|128; h[8]=h[8]&63|128; print(uuid.UUID(bytes=bytes(h)))' */
static void test_derived_known_answers(void **state)
{
    (void)state;
    static const struct {
        struct slice project, source, message_id;
        const char *want;
    } cases[] = {
        {{"demo", 4}, {"web", 3}, {"m-1", 3}, "190b1c5d-ad70-8766-91d6-ef3691bee36c"},
        {{"demo", 4}, {"web", 3}, {"", 0}, "947e8b50-7b2b-8098-9ba2-1da9eccc5dc0"},
        {{"", 0}, {"", 0}, {"", 0}, "96a296d2-24f2-85c6-bbee-93c30f8a3091"},
        {{"demo", 4},
         {"node", 4},
         {"node-next-1709656610891-\xc3\xbc\0x", 28},
         "70ee380e-e341-85b2-beae-7a2ebf272572"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct uuid u;
        identity_derive(cases[i].project, cases[i].source, cases[i].message_id, &u);
        assert_uuid(&u, cases[i].want);
        assert_int_equal(u.byte[6] >> 4, 8);
        assert_int_equal(u.byte[8] >> 6, 2);
    }
}

/* Case C16: the same id in another project or source is another event; no text runs over into the
 * next. */
static void test_derived_apart(void **state)
{
    (void)state;
    static const struct slice triples[][3] = {
        {{"demo", 4}, {"web", 3}, {"m-1", 3}},   {{"demo2", 5}, {"web", 3}, {"m-1", 3}},
        {{"demo", 4}, {"web2", 4}, {"m-1", 3}},  {{"demo", 4}, {"web", 3}, {"m-2", 3}},
        {{"demo", 4}, {"we", 2}, {"bm-1", 4}},   {{"demow", 5}, {"eb", 2}, {"m-1", 3}},
        {{"demo", 4}, {"web", 3}, {"\0m-1", 4}}, {{"demo", 4}, {"", 0}, {"web\0m-1", 7}},
        {{"", 0}, {"demo", 4}, {"web\0m-1", 7}}, {{"demo", 4}, {"web", 3}, {"M-1", 3}},
    };
    enum { COUNT = sizeof triples / sizeof *triples };
    struct uuid got[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        struct uuid again;
        identity_derive(triples[i][0], triples[i][1], triples[i][2], &got[i]);
        identity_derive(triples[i][0], triples[i][1], triples[i][2], &again);
        assert_int_equal(uuid_cmp(&got[i], &again), 0);
        for (size_t k = 0; k < i; k++) {
            assert_int_not_equal(uuid_cmp(&got[i], &got[k]), 0);
        }
    }
}

static void test_new(void **state)
{
    (void)state;
    static const int64_t times[] = {0, 1, INT64_C(1796040000000), (INT64_C(1) << 48) - 1};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct uuid a;
        struct uuid b;
        int64_t ms = 0;
        assert_int_equal(identity_new(times[i], &a), 0);
        assert_int_equal(identity_new(times[i], &b), 0);
        for (size_t k = 0; k < 6; k++) {
            ms = ms << 8 | a.byte[k];
        }
        assert_int_equal(ms, times[i]);
        assert_int_equal(a.byte[6] >> 4, 7);
        assert_int_equal(a.byte[8] >> 6, 2);
        assert_memory_equal(a.byte, b.byte, 6);
        assert_int_not_equal(uuid_cmp(&a, &b), 0);
        char text[UUID_TEXT_LEN];
        struct uuid back;
        uuid_text(text, &a);
        assert_true(uuid7_parse(slice_of(text, sizeof text), &back));
    }
    /* All 74 bits are random: over many ids each is seen as 0 and as 1. */
    uint8_t ones[10] = {0};
    uint8_t zeros[10] = {0};
    for (int n = 0; n < 200; n++) {
        struct uuid u;
        assert_int_equal(identity_new(0, &u), 0);
        for (size_t k = 0; k < 10; k++) {
            ones[k] = (uint8_t)(ones[k] | u.byte[6 + k]);
            zeros[k] = (uint8_t)(zeros[k] | (uint8_t)~u.byte[6 + k]);
        }
    }
    for (size_t k = 0; k < 10; k++) {
        assert_int_equal(ones[k], k == 0 ? 0x7f : k == 2 ? 0xbf : 0xff);
        assert_int_equal(zeros[k], k == 0 ? 0x8f : k == 2 ? 0x7f : 0xff);
    }
}

static int no_random(void *p, size_t n)
{
    (void)p;
    (void)n;
    return -5;
}

static void test_no_random_bytes(void **state)
{
    (void)state;
    struct os_table table = os_real;
    struct uuid u;
    table.random = no_random;
    os_install(&table);
    int r = identity_new(1, &u);
    os_install(NULL);
    assert_int_equal(r, ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version_and_case), cmocka_unit_test(test_every_changed_byte),
        cmocka_unit_test(test_other_spellings),        cmocka_unit_test(test_derived_known_answers),
        cmocka_unit_test(test_derived_apart),          cmocka_unit_test(test_new),
        cmocka_unit_test(test_no_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
