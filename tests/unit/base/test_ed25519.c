/* test_ed25519: the first vector of RFC 8032, keys in and out of PEM, and what is no key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/ed25519.h"
#include "base/hash.h"

#define PRIVATE                                                          \
    "-----BEGIN PRIVATE KEY-----\n"                                      \
    "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n" \
    "-----END PRIVATE KEY-----\n"
#define PUBLIC                                                       \
    "-----BEGIN PUBLIC KEY-----\n"                                   \
    "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n" \
    "-----END PUBLIC KEY-----\n"
#define PUBLIC_HEX "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
#define SIGNATURE_HEX                                                                              \
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9" \
    "b4"                                                                                           \
    "6bd25bf5f0595bbe24655141438e7a100b"

/* A public key on NIST's curve: a key, but not one of these. */
#define OTHER_CURVE                                                      \
    "-----BEGIN PUBLIC KEY-----\n"                                       \
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEQl0lg0oiI3PngNLYnTjholNXdi0F\n" \
    "BQ+VKjj6vDEjrdFP2MPg3dtMBuEGE/aT7sgAwLZO9Wg6epYjSEwBNXGqXg==\n"     \
    "-----END PUBLIC KEY-----\n"

static void test_vector(void **state)
{
    struct ed25519_key *key = ed25519_from_pem(SLICE(PRIVATE));
    uint8_t want[ED25519_SIGNATURE_LEN];
    uint8_t got[ED25519_SIGNATURE_LEN];
    uint8_t public[ED25519_PUBLIC_LEN];
    uint8_t want_public[ED25519_PUBLIC_LEN];
    struct buf pem = {0};

    (void)state;
    assert_non_null(key);
    assert_true(hex_decode(want, SLICE(SIGNATURE_HEX), sizeof want));
    assert_true(hex_decode(want_public, SLICE(PUBLIC_HEX), sizeof want_public));
    ed25519_public(key, public);
    assert_memory_equal(public, want_public, sizeof public);
    assert_true(ed25519_sign(key, SLICE(""), got));
    assert_memory_equal(got, want, sizeof got);
    assert_true(ed25519_verify(public, SLICE(""), got));
    assert_false(ed25519_verify(public, SLICE("x"), got));
    got[0] ^= 1;
    assert_false(ed25519_verify(public, SLICE(""), got));
    ed25519_put_public_pem(&pem, public);
    assert_true(slice_eq(buf_slice(&pem), SLICE(PUBLIC)));
    buf_clear(&pem);
    assert_true(ed25519_put_pem(key, &pem));
    assert_true(slice_eq(buf_slice(&pem), SLICE(PRIVATE)));
    buf_free(&pem);
    ed25519_free(key);
}

static void test_new_keys_differ(void **state)
{
    struct ed25519_key *a = ed25519_new();
    struct ed25519_key *b = ed25519_new();
    uint8_t of_a[ED25519_PUBLIC_LEN];
    uint8_t of_b[ED25519_PUBLIC_LEN];
    uint8_t signature[ED25519_SIGNATURE_LEN];

    (void)state;
    ed25519_public(a, of_a);
    ed25519_public(b, of_b);
    assert_memory_not_equal(of_a, of_b, sizeof of_a);
    assert_true(ed25519_sign(a, SLICE("text"), signature));
    assert_true(ed25519_verify(of_a, SLICE("text"), signature));
    assert_false(ed25519_verify(of_b, SLICE("text"), signature));
    ed25519_free(a);
    ed25519_free(b);
    ed25519_free(NULL);
}

static void test_what_is_no_key(void **state)
{
    uint8_t public[ED25519_PUBLIC_LEN];
    struct buf small;
    struct ed25519_key *key;

    (void)state;
    assert_null(ed25519_from_pem(SLICE("")));
    assert_null(ed25519_from_pem(SLICE(PUBLIC)));
    assert_null(ed25519_from_pem(SLICE("-----BEGIN PRIVATE KEY-----\nAAAA\n")));
    assert_false(ed25519_public_from_pem(SLICE(PRIVATE), public));
    assert_false(ed25519_public_from_pem(SLICE(OTHER_CURVE), public));
    assert_true(ed25519_public_from_pem(SLICE(PUBLIC), public));
    key = ed25519_new();
    buf_init(&small, 10);
    assert_false(ed25519_put_pem(key, &small));
    buf_free(&small);
    ed25519_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector),
        cmocka_unit_test(test_new_keys_differ),
        cmocka_unit_test(test_what_is_no_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
