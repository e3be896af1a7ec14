/* Hashes against published vectors (FIPS 180-4 examples, RFC 3720 appendix B.4) and hexadecimal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"

static void check_sha256(struct slice in, const char *want)
{
    uint8_t out[SHA256_LEN];
    char hex[SHA256_HEX_LEN];
    sha256_once(in, out);
    hex_encode(hex, out, sizeof out);
    assert_memory_equal(hex, want, sizeof hex);
    /* The same in every split into two parts. */
    for (size_t cut = 0; cut <= in.len && in.len < 200; cut++) {
        struct sha256 h;
        uint8_t parts[SHA256_LEN];
        sha256_start(&h);
        sha256_add(&h, in.ptr, cut);
        sha256_add(&h, in.ptr + cut, in.len - cut);
        sha256_end(&h, parts);
        assert_memory_equal(parts, out, sizeof out);
    }
}

static void test_sha256(void **state)
{
    (void)state;
    check_sha256(SLICE(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha256(SLICE("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha256(SLICE("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    /* head_0 of the history contract */
    check_sha256(SLICE("groundhog/genesis/v1"),
                 "de84c29d7e74ec3e0ac6db8d29ad38be698cacc529bd530f004144e36f06e42b");
    static char million[1000000];
    memset(million, 'a', sizeof million);
    check_sha256(slice_of(million, sizeof million),
                 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    uint8_t out[SHA256_LEN];
    sha256_once((struct slice){0}, out);
    assert_int_equal(out[0], 0xe3);
}

/* RFC 1321 appendix A.5 and FIPS 180-4; each also in two parts. */
static void check_archive_hashes(struct slice in, const char *md5_want, const char *sha1_want)
{
    for (size_t cut = 0; cut <= in.len; cut++) {
        struct md5 md5;
        struct sha1 sha1;
        uint8_t out[SHA1_LEN];
        char hex[SHA1_HEX_LEN];
        md5_start(&md5);
        md5_add(&md5, in.ptr, cut);
        md5_add(&md5, in.ptr + cut, in.len - cut);
        md5_end(&md5, out);
        hex_encode(hex, out, MD5_LEN);
        assert_memory_equal(hex, md5_want, MD5_HEX_LEN);
        sha1_start(&sha1);
        sha1_add(&sha1, in.ptr, cut);
        sha1_add(&sha1, in.ptr + cut, in.len - cut);
        sha1_end(&sha1, out);
        hex_encode(hex, out, SHA1_LEN);
        assert_memory_equal(hex, sha1_want, SHA1_HEX_LEN);
    }
}

static void test_archive_hashes(void **state)
{
    (void)state;
    check_archive_hashes(SLICE(""), "d41d8cd98f00b204e9800998ecf8427e",
                         "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    check_archive_hashes(SLICE("abc"), "900150983cd24fb0d6963f7d28e17f72",
                         "a9993e364706816aba3e25717850c26c9cd0d89d");
    check_archive_hashes(
        SLICE("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
        "57edf4a22be3c955ac49da2e2107b67a", "50abf5706a150990a08b2c5ea40fa0e585554732");
}

/* Bit by bit, from the definition. */
static uint32_t slow_crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = (crc ^ (uint32_t)(p[i / 8] >> i % 8)) & 1;
        crc = crc >> 1 ^ (bit != 0 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static void test_crc32c(void **state)
{
    (void)state;
    unsigned char data[48];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(0, "", 0), 0);
    memset(data, 0, 32);
    assert_int_equal(crc32c(0, data, 32), 0x8a9136aau);
    memset(data, 0xFF, 32);
    assert_int_equal(crc32c(0, data, 32), 0x62a8ab43u);
    for (unsigned i = 0; i < 32; i++) {
        data[i] = (unsigned char)i;
    }
    assert_int_equal(crc32c(0, data, 32), 0x46dd794eu);
    for (unsigned i = 0; i < 32; i++) {
        data[i] = (unsigned char)(31 - i);
    }
    assert_int_equal(crc32c(0, data, 32), 0x113fdb5cu);
    static const unsigned char read_pdu[48] = {
        0x01, 0xc0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 4, 0,
        0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
    };
    assert_int_equal(crc32c(0, read_pdu, 48), 0xd9963a56u);
}

static void test_crc32c_parts(void **state)
{
    (void)state;
    unsigned char data[100];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 37 + 11);
    }
    for (size_t n = 0; n <= sizeof data; n++) {
        for (size_t start = 0; start < 8 && start <= n; start++) {
            uint32_t whole = crc32c(0, data + start, n - start);
            assert_int_equal(whole, slow_crc32c(data + start, n - start));
            size_t cut = (n - start) / 3;
            uint32_t part = crc32c(0, data + start, cut);
            assert_int_equal(crc32c(part, data + start + cut, n - start - cut), whole);
        }
    }
}

/* Sizes about the lanes that are computed at once, from every alignment, on from any checksum. */
static void test_crc32c_large(void **state)
{
    (void)state;
    enum { BYTES = 10000 };
    static unsigned char data[BYTES + 8];
    static const size_t sizes[] = {3071, 3072, 3073, 3079, 3080, 6143, 6144, 6157, 9216, BYTES};
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof data; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = (unsigned char)(x >> 24);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        for (size_t start = 0; start < 8; start++) {
            uint32_t whole = slow_crc32c(data + start, n);
            assert_int_equal(crc32c(0, data + start, n), whole);
            assert_int_equal(crc32c_portable(0, data + start, n), whole);
            uint32_t part = crc32c_portable(0, data + start, 17);
            assert_int_equal(crc32c(part, data + start + 17, n - 17), whole);
            part = crc32c(0, data + start, n - 17);
            assert_int_equal(crc32c_portable(part, data + start + n - 17, 17), whole);
        }
    }
}

static bool is_digit_of_hex(unsigned c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Every byte value at every place of texts of many lengths. */
static void test_hex_is(void **state)
{
    (void)state;
    char text[67];
    for (size_t n = 0; n <= sizeof text; n++) {
        memset(text, 'f', sizeof text);
        assert_true(hex_is(slice_of(text, n)));
        for (size_t at = 0; at < n; at++) {
            for (unsigned c = 0; c < 256; c++) {
                unsigned char back[sizeof text / 2];
                text[at] = (char)c;
                assert_int_equal(hex_is(slice_of(text, n)), is_digit_of_hex(c));
                if (n % 2 == 0) {
                    assert_int_equal(hex_decode(back, slice_of(text, n), n / 2),
                                     is_digit_of_hex(c));
                }
            }
            text[at] = '0';
        }
    }
}

static void test_hex(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {0x00, 0x09, 0x0a, 0x9f, 0xf0, 0xff};
    char text[2 * sizeof bytes];
    unsigned char back[sizeof bytes];
    hex_encode(text, bytes, sizeof bytes);
    assert_memory_equal(text, "00090a9ff0ff", sizeof text);
    assert_true(hex_decode(back, slice_of(text, sizeof text), sizeof back));
    assert_memory_equal(back, bytes, sizeof bytes);
    assert_true(hex_decode(back, SLICE(""), 0));
    assert_false(hex_decode(back, SLICE("0"), 1));
    assert_false(hex_decode(back, SLICE("000"), 1));
    assert_false(hex_decode(back, SLICE("0A"), 1));
    assert_false(hex_decode(back, SLICE("g0"), 1));
    assert_false(hex_decode(back, SLICE("0/"), 1));
    assert_false(hex_decode(back, SLICE("0:"), 1));
    assert_false(hex_decode(back, SLICE("`0"), 1));
    assert_false(hex_decode(back, SLICE(" 0"), 1));
}

static void test_equal_constant_time(void **state)
{
    (void)state;
    assert_true(equal_constant_time(SLICE(""), SLICE("")));
    assert_true(equal_constant_time(SLICE("secret"), SLICE("secret")));
    assert_false(equal_constant_time(SLICE("secret"), SLICE("secreT")));
    assert_false(equal_constant_time(SLICE("secret"), SLICE("secre")));
    assert_false(equal_constant_time(SLICE(""), SLICE("s")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),       cmocka_unit_test(test_archive_hashes),
        cmocka_unit_test(test_crc32c),       cmocka_unit_test(test_crc32c_parts),
        cmocka_unit_test(test_crc32c_large), cmocka_unit_test(test_hex_is),
        cmocka_unit_test(test_hex),          cmocka_unit_test(test_equal_constant_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
