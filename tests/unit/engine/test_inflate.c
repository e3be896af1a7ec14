/* test_inflate: whole, cut, broken and too large gzip bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "engine/inflate.h"

/* gzip of n bytes of a pattern, appended. */
static void deflate_into(struct buf *out, size_t n)
{
    z_stream z = {0};
    unsigned char *plain = malloc(n != 0 ? n : 1);

    assert_non_null(plain);
    for (size_t i = 0; i < n; i++) {
        plain[i] = (unsigned char)(i * 7 / 3);
    }
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_true(buf_reserve(out, n + 1024));
    z.next_in = plain;
    z.avail_in = (unsigned)n;
    z.next_out = (unsigned char *)out->ptr + out->len;
    z.avail_out = (unsigned)(out->cap - out->len);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->len += z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    free(plain);
}

static int unzip(struct slice in, size_t max, size_t *len)
{
    struct buf out = {0};
    int r = inflate_gzip(in, max, &out);

    *len = out.len;
    for (size_t i = 0; r == 0 && i < out.len; i++) {
        assert_int_equal((unsigned char)out.ptr[i], (unsigned char)(i * 7 / 3));
    }
    buf_free(&out);
    return r;
}

static void test_whole(void **state)
{
    static const size_t sizes[] = {0, 1, 1000, 262143, 262144, 262145, 1000000};
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buf zipped = {0};

        deflate_into(&zipped, sizes[i]);
        assert_int_equal(unzip(buf_slice(&zipped), 1000000, &len), 0);
        assert_int_equal(len, sizes[i]);
        if (sizes[i] != 0) {
            assert_int_equal(unzip(buf_slice(&zipped), sizes[i] - 1, &len), ERR_BODY_TOO_LARGE);
        }
        buf_free(&zipped);
    }
}

static void test_members(void **state)
{
    struct buf zipped = {0};
    struct buf out = {0};

    (void)state;
    deflate_into(&zipped, 1000);
    deflate_into(&zipped, 500);
    assert_int_equal(inflate_gzip(buf_slice(&zipped), 1500, &out), 0);
    assert_int_equal(out.len, 1500);
    buf_clear(&out);
    assert_int_equal(inflate_gzip(buf_slice(&zipped), 1499, &out), ERR_BODY_TOO_LARGE);
    buf_put_cstr(&zipped, "tail");
    buf_clear(&out);
    assert_int_equal(inflate_gzip(buf_slice(&zipped), 1500, &out), ERR_INVALID_ENCODING);
    buf_free(&zipped);
    buf_free(&out);
}

/* Cut at every place, and every byte flipped: an error or, where gzip does not care, the same
 * text. */
static void test_broken(void **state)
{
    struct buf zipped = {0};
    size_t len;

    (void)state;
    deflate_into(&zipped, 700);
    for (size_t n = 0; n < zipped.len; n++) {
        assert_int_equal(unzip(slice_of(zipped.ptr, n), 1000, &len), ERR_INVALID_ENCODING);
    }
    for (size_t i = 0; i < zipped.len; i++) {
        zipped.ptr[i] = (char)(zipped.ptr[i] ^ 0x20);
        (void)unzip(buf_slice(&zipped), 1000, &len);
        zipped.ptr[i] = (char)(zipped.ptr[i] ^ 0x20);
    }
    zipped.ptr[zipped.len - 1] = (char)(zipped.ptr[zipped.len - 1] ^ 1); /* its length */
    assert_int_equal(unzip(buf_slice(&zipped), 1000, &len), ERR_INVALID_ENCODING);
    assert_int_equal(unzip(SLICE("plain text"), 1000, &len), ERR_INVALID_ENCODING);
    buf_free(&zipped);
}

static void test_no_memory(void **state)
{
    struct buf zipped = {0};
    struct buf out;

    (void)state;
    deflate_into(&zipped, 1000);
    buf_init(&out, 100);
    assert_int_equal(inflate_gzip(buf_slice(&zipped), 1000, &out), ERR_NO_MEMORY);
    buf_free(&out);
    buf_free(&zipped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
