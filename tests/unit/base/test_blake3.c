/* BLAKE3: the published test vectors (inputs of bytes i mod 251), pieces of any size, and a state
 * that is copied, kept as bytes and gone on with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/blake3.h"
#include "base/hash.h"

#define INPUT_MAX 102400u

/* Of the official test_vectors.json, the first 32 bytes of "hash". */
static const struct vector {
    size_t length;
    const char *hex;
} vectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {2, "7b7015bb92cf0b318037702a6cdd81dee41224f734684c2c122cd6359cb1ee63"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
    {8192, "aae792484c8efe4f19e2ca7d371d8c467ffb10748d8a5a1ae579948f718a2a63"},
    {8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
    {16384, "f875d6646de28985646f34ee13be9a576fd515f76b5b0a26bb324735041ddde4"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
};

static unsigned char input[INPUT_MAX];

static int fill(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof input; i++) {
        input[i] = (unsigned char)(i % 251);
    }
    return 0;
}

static void expect(const struct blake3 *h, const struct vector *v)
{
    uint8_t digest[BLAKE3_LEN];
    char hex[BLAKE3_HEX_LEN + 1] = "";
    blake3_end(h, digest);
    hex_encode(hex, digest, sizeof digest);
    assert_string_equal(hex, v->hex);
}

static void test_published_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct blake3 h;
        blake3_start(&h);
        blake3_add(&h, input, vectors[i].length);
        expect(&h, &vectors[i]);
    }
}

static void test_pieces_make_the_whole(void **state)
{
    static const size_t pieces[] = {1, 63, 64, 65, 1000, 1024, 4096, 65536};
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            struct blake3 h;
            size_t length = vectors[i].length;
            blake3_start(&h);
            for (size_t at = 0; at < length; at += pieces[k]) {
                blake3_add(&h, input + at, length - at < pieces[k] ? length - at : pieces[k]);
            }
            expect(&h, &vectors[i]);
        }
    }
}

static void test_ending_changes_nothing(void **state)
{
    (void)state;
    struct blake3 h;
    blake3_start(&h);
    blake3_add(&h, input, 1024);
    expect(&h, &vectors[4]);
    expect(&h, &vectors[4]);
    blake3_add(&h, input + 1024, 1);
    expect(&h, &vectors[5]);
    blake3_add(&h, input + 1025, 102400 - 1025);
    expect(&h, &vectors[16]);
}

/* As ID.state keeps it: bytes, at any address, in another struct. */
static void test_a_kept_state_goes_on(void **state)
{
    (void)state;
    const struct vector *last = &vectors[sizeof vectors / sizeof *vectors - 1];
    unsigned char kept[BLAKE3_STATE_BYTES + 1];
    for (size_t cut = 0; cut < last->length; cut += 997) {
        struct blake3 h;
        struct blake3 other;
        blake3_start(&h);
        blake3_add(&h, input, cut);
        memcpy(kept + 1, h.state, BLAKE3_STATE_BYTES);
        memset(&h, 0xee, sizeof h);
        memset(&other, 0x55, sizeof other);
        memcpy(other.state, kept + 1, BLAKE3_STATE_BYTES);
        blake3_add(&other, input + cut, last->length - cut);
        expect(&other, last);
    }
}

static void test_the_library_has_a_version(void **state)
{
    (void)state;
    size_t n = strlen(blake3_library());
    assert_true(n >= 5);
    assert_true(n <= 16); /* ID.state has that much room */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_pieces_make_the_whole),
        cmocka_unit_test(test_ending_changes_nothing),
        cmocka_unit_test(test_a_kept_state_goes_on),
        cmocka_unit_test(test_the_library_has_a_version),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
