/* gzip and deflate bodies: whole, cut at every byte, with every byte changed, several members,
 * bombs (cases C01, C41, C43, C52). */
#include "tests/unit/door/decode_kit.h"

/* A body of its own, to be changed. */
static struct slice copy_of(struct slice s)
{
    char *p = malloc(s.len + 1);
    assert_non_null(p);
    memcpy(p, s.ptr, s.len);
    return slice_of(p, s.len);
}

static void set_byte(struct slice s, size_t i, unsigned c)
{
    ((char *)(uintptr_t)s.ptr)[i] = (char)c;
}

static void hinted(struct fixture *f)
{
    fresh(f, DECODE_PLAIN);
    f->how.content_encoding = SLICE("gzip");
}

static void test_trailer(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    char says[80];
    hinted(f);
    /* C01 (a): the last 8 bytes are missing, or some of them */
    for (size_t n = gz.len - 8; n < gz.len; n++) {
        (void)snprintf(says, sizeof says, "gzip: the stream ends at byte %zu without its trailer",
                       n);
        expect_error(f, slice_of(gz.ptr, n), ERR_INVALID_ENCODING, says);
        assert_true(f->e.has_offset);
        assert_int_equal(f->e.offset, n);
    }
    /* C01 (c), (d) */
    struct slice bad = copy_of(gz);
    for (size_t i = gz.len - 8; i < gz.len; i++) {
        set_byte(bad, i, (unsigned char)gz.ptr[i] ^ 1u);
        bool crc = i < gz.len - 4;
        (void)snprintf(says, sizeof says,
                       crc ? "gzip: the checksum (CRC-32) at byte %zu"
                           : "gzip: the length at byte %zu",
                       crc ? gz.len - 8 : gz.len - 4);
        expect_error(f, bad, ERR_INVALID_ENCODING, says);
        set_byte(bad, i, (unsigned char)gz.ptr[i]);
    }
    expect_event(f, bad);
    drop(bad);
    drop(gz);
}

/* C01 (b), C52. */
static void test_missing_beginning(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    for (size_t n = 1; n < gz.len; n++) {
        hinted(f);
        expect_error(f, slice_from(gz, n), ERR_INVALID_ENCODING,
                     n == gz.len - 1 ? "gzip" : "gzip: there is no gzip header at byte 0");
        fresh(f, DECODE_BASE64_TOO);
        f->how.query_compression = SLICE("gzip");
        f->how.content_encoding = SLICE("gzip");
        expect_error(f, slice_from(gz, n), ERR_INVALID_ENCODING, "gzip: there is no gzip header");
    }
    drop(gz);
}

static void test_cut_at_every_byte(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    char says[80];
    hinted(f);
    for (size_t n = 1; n < gz.len - 8; n++) {
        (void)snprintf(says, sizeof says, "gzip: the stream ends at byte %zu in the middle of %s",
                       n, n < 10 ? "its header" : "its data");
        expect_error(f, slice_of(gz.ptr, n), ERR_INVALID_ENCODING, says);
    }
    drop(gz);
}

/* Each byte changed in each way: the same bytes come out, or a 400 or 413. Only the header's fields
 * that say nothing about the data (time, level, system; a flag for "text") may change. */
static void test_every_changed_byte(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    struct slice bad = copy_of(gz);
    hinted(f);
    for (size_t i = 0; i < gz.len; i++) {
        for (unsigned c = 0; c < 256; c++) {
            if (c == (unsigned char)gz.ptr[i]) {
                continue;
            }
            set_byte(bad, i, c);
            int r = give(f, bad);
            if (r == 0) {
                bool harmless = (i >= 4 && i <= 9) || (i == 3 && c == 1);
                assert_true(harmless || slice_eq(f->got.json, SLICE(EVENT)));
                assert_true(slice_eq(f->got.json, SLICE(EVENT)));
            } else {
                assert_true(r == ERR_INVALID_ENCODING || r == ERR_BODY_TOO_LARGE);
            }
        }
        set_byte(bad, i, (unsigned char)gz.ptr[i]);
    }
    drop(bad);
    drop(gz);
}

/* ---- the optional fields of the header ---- */

enum { HCRC = 2, EXTRA = 4, NAME = 8, COMMENT = 16 };

/* The same member with these fields; its checksum is right when `right`. */
static struct slice with_fields(struct slice gz, unsigned flags, bool right)
{
    struct buf b = {0};
    buf_put(&b, gz.ptr, 10);
    b.ptr[3] = (char)flags;
    if ((flags & EXTRA) != 0) {
        buf_put(&b,
                "\x05\x00"
                "ab\x01\x00z",
                7);
    }
    if ((flags & NAME) != 0) {
        buf_put(&b, "file.json", 10);
    }
    if ((flags & COMMENT) != 0) {
        buf_put(&b, "", 1);
    }
    if ((flags & HCRC) != 0) {
        uLong crc = crc32(0, (const Bytef *)b.ptr, (uInt)b.len) ^ (right ? 0 : 1);
        buf_put_char(&b, (char)(crc & 0xff));
        buf_put_char(&b, (char)(crc >> 8 & 0xff));
    }
    buf_put_slice(&b, slice_from(gz, 10));
    assert_false(b.failed);
    return buf_slice(&b);
}

static void test_header_fields(void **state)
{
    struct fixture *f = *state;
    struct slice gz = pack(SLICE(EVENT), GZIP);
    hinted(f);
    for (unsigned flags = 0; flags < 32; flags++) {
        struct slice body = with_fields(gz, flags, true);
        size_t head = body.len - (gz.len - 10);
        expect_event(f, body);
        for (size_t n = 3; n < head; n++) {
            expect_error(f, slice_of(body.ptr, n), ERR_INVALID_ENCODING, "middle of its header");
        }
        drop(body);
    }
    struct slice wrong = with_fields(gz, HCRC | NAME, false);
    expect_error(f, wrong, ERR_INVALID_ENCODING, "gzip: the header's checksum at byte 20 is wrong");
    drop(wrong);
    for (unsigned bit = 0x20; bit < 0x100; bit <<= 1) {
        struct slice unknown = with_fields(gz, bit, true);
        expect_error(f, unknown, ERR_INVALID_ENCODING,
                     "gzip: unknown flags in the header at byte 3");
        drop(unknown);
    }
    drop(gz);
}

/* ---- members (RFC 1952 section 2.2) ---- */

static void test_members(void **state)
{
    struct fixture *f = *state;
    struct slice one = pack(SLICE("{\"a\":"), GZIP);
    struct slice none = pack(SLICE(""), GZIP);
    struct slice two = pack(SLICE("1}"), GZIP);
    struct buf all = {0};
    struct buf more = {0};
    buf_put_slice(&all, one);
    buf_put_slice(&all, none);
    buf_put_slice(&all, two);
    hinted(f);
    expect_text(f, buf_slice(&all), SLICE("{\"a\":1}"));
    /* padding */
    buf_put_slice(&more, buf_slice(&all));
    buf_put(&more, "\0\0\0\0", 4);
    expect_text(f, buf_slice(&more), SLICE("{\"a\":1}"));
    /* anything else could be the rest of a member */
    char says[80];
    (void)snprintf(says, sizeof says, "something that is no gzip follows at byte %zu", all.len);
    static const char *const tails[] = {"\n", "\r\n", "{}", "x\x1f\x8b\x08"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        buf_clear(&more);
        buf_put_slice(&more, buf_slice(&all));
        buf_put_cstr(&more, tails[i]);
        expect_error(f, buf_slice(&more), ERR_INVALID_ENCODING, says);
    }
    /* every cut inside of a later member is seen */
    for (size_t n = one.len + 1; n < all.len; n++) {
        if (n != one.len + none.len) {
            expect_error(f, slice_of(all.ptr, n), ERR_INVALID_ENCODING, "gzip: the stream ends");
        }
    }
    /* the checksums are each member's own */
    all.ptr[all.len - 8] = (char)(all.ptr[all.len - 8] ^ 1);
    expect_error(f, buf_slice(&all), ERR_INVALID_ENCODING, "CRC-32");
    /* many empty ones are no way to keep a worker busy for long: the body bounds them */
    buf_clear(&more);
    for (int i = 0; i < 20000; i++) {
        buf_put_slice(&more, none);
    }
    buf_put_slice(&more, two);
    expect_text(f, buf_slice(&more), SLICE("1}"));
    buf_free(&all);
    buf_free(&more);
    drop(one);
    drop(none);
    drop(two);
}

/* ---- deflate, case C43 ---- */

static void test_deflate(void **state)
{
    struct fixture *f = *state;
    struct slice zl = pack(SLICE(EVENT), ZLIB);
    struct slice raw = pack(SLICE(EVENT), RAW);
    fresh(f, DECODE_V1);
    f->how.content_encoding = SLICE("deflate");
    expect_event(f, zl);
    expect_event(f, raw);
    for (size_t n = 1; n < raw.len; n++) {
        expect_error(f, slice_of(raw.ptr, n), ERR_INVALID_ENCODING, "deflate: the stream ends at");
    }
    for (size_t n = 2; n < zl.len; n++) {
        expect_error(f, slice_of(zl.ptr, n), ERR_INVALID_ENCODING,
                     n < zl.len - 4 ? "in the middle of its data" : "without its trailer");
    }
    struct slice bad = copy_of(zl);
    for (size_t i = zl.len - 4; i < zl.len; i++) {
        set_byte(bad, i, (unsigned char)zl.ptr[i] ^ 0x40u);
        expect_error(f, bad, ERR_INVALID_ENCODING, "deflate: the checksum (Adler-32) at byte");
        set_byte(bad, i, (unsigned char)zl.ptr[i]);
    }
    struct buf more = {0};
    buf_put_slice(&more, zl);
    buf_put_cstr(&more, "x");
    expect_error(f, buf_slice(&more), ERR_INVALID_ENCODING, "deflate: the stream ends before byte");
    buf_clear(&more);
    buf_put_slice(&more, raw);
    buf_put_cstr(&more, "x");
    expect_error(f, buf_slice(&more), ERR_INVALID_ENCODING, "deflate: the stream ends before byte");
    expect_error(f, SLICE("\x06x"), ERR_INVALID_ENCODING, "deflate: invalid block type at byte");
    /* a preset dictionary is nobody's here: read as raw, and that it is not */
    expect_error(f, SLICE("\x78\x20\x01\x02\x03\x04"), ERR_INVALID_ENCODING, "deflate: ");
    expect_error(f, SLICE("\x78"), ERR_INVALID_ENCODING, "deflate: ");
    /* a window that zlib does not have */
    expect_error(f, SLICE("\x88\x1c\x01\x02\x03\x04"), ERR_INVALID_ENCODING, "deflate: ");
    buf_free(&more);
    drop(bad);
    drop(zl);
    drop(raw);
}

/* A stored block whose first two bytes are also a right zlib header, 08 1d: not the last block,
 * then bits that padding may hold. */
static void test_raw_that_looks_like_zlib(void **state)
{
    struct fixture *f = *state;
    static const char block[] = "\x08\x1d\x00\xe2\xff"; /* 29 bytes follow */
    static const char last[] = "\x01\x00\x00\xff\xff";
    static const char text[] = "{\"event\":\"a text of 29 chars\"";
    struct buf b = {0};
    assert_int_equal(sizeof text - 1, 0x1d);
    buf_put(&b, block, sizeof block - 1);
    buf_put(&b, text, sizeof text - 1);
    buf_put(&b, last, sizeof last - 1);
    fresh(f, DECODE_PLAIN);
    f->how.content_encoding = SLICE("deflate");
    expect_text(f, buf_slice(&b), slice_cstr(text));
    buf_free(&b);
}

/* ---- bombs, case C41 ---- */

static struct slice repeated(char c, size_t n)
{
    char *p = malloc(n);
    assert_non_null(p);
    memset(p, c, n);
    return slice_of(p, n);
}

static void test_bomb(void **state)
{
    struct fixture *f = *state;
    static const enum wrap wraps[] = {GZIP, ZLIB, RAW};
    struct slice zeros = repeated(' ', (size_t)128 << 20);
    struct slice bombs[3];
    for (size_t i = 0; i < 3; i++) {
        bombs[i] = pack(zeros, wraps[i]);
        assert_true(bombs[i].len < 140000); /* 130 KB for 128 MiB */
    }
    drop(zeros);
    for (size_t i = 0; i < 3; i++) {
        fresh(f, DECODE_V1);
        f->how.content_encoding = i == 0 ? SLICE("gzip") : SLICE("deflate");
        f->how.decoded_bytes_max = 64 * MIB;
        expect_error(f, bombs[i], ERR_BODY_TOO_LARGE, "over 400 times as much");
        assert_true(f->got.owned.cap == 0); /* nothing is kept */
        f->how.decoded_bytes_max = MIB;
        expect_error(f, bombs[i], ERR_BODY_TOO_LARGE,
                     "larger than 1048576 bytes when it is decompressed");
        drop(bombs[i]);
    }
}

/* The limit is exact, and below 4 MiB the ratio does not count. */
static void test_limits_are_exact(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {1, 255, 16384, 16385, (size_t)1 << 20, (size_t)4 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct slice text = repeated('1', sizes[i]);
        struct slice gz = pack(text, GZIP);
        hinted(f);
        f->how.decoded_bytes_max = sizes[i];
        expect_text(f, gz, text);
        assert_true(f->got.owned.cap <= sizes[i]);
        f->how.decoded_bytes_max = sizes[i] - 1;
        expect_error(f, gz, ERR_BODY_TOO_LARGE, "gzip");
        drop(gz);
        drop(text);
    }
    struct slice text = repeated('1', ((size_t)4 << 20) + 1);
    struct slice gz = pack(text, GZIP);
    hinted(f);
    f->how.decoded_bytes_max = 64 * MIB;
    expect_error(f, gz, ERR_BODY_TOO_LARGE, "decompress to more than 4194304, over 400 times");
    drop(gz);
    drop(text);
}

/* A real batch that compresses as well as batches do is far from the ratio's bound. */
static void test_a_large_batch(void **state)
{
    struct fixture *f = *state;
    struct buf b = {0};
    uint64_t x = 1;
    buf_put_cstr(&b, "{\"api_key\":\"k\",\"batch\":[");
    for (int i = 0; i < 20000; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        buf_printf(&b,
                   "%s{\"event\":\"$pageview\",\"uuid\":\"01900000-0000-7000-8000-%012llx\","
                   "\"distinct_id\":\"somebody@example.com\",\"properties\":{\"$lib\":\"web\","
                   "\"$current_url\":\"https://example.com/a/page/somewhere\",\"$screen_height\":"
                   "1080,\"$screen_width\":1920,\"$browser\":\"Chrome\"}}",
                   i == 0 ? "" : ",", (unsigned long long)(x >> 16));
    }
    buf_put_cstr(&b, "]}");
    struct slice gz = pack(buf_slice(&b), GZIP);
    assert_true(b.len > (size_t)9 << 19); /* more than the free 4 MiB */
    assert_true(b.len / gz.len < 100);
    hinted(f);
    f->how.decoded_bytes_max = 64 * MIB;
    expect_text(f, gz, buf_slice(&b));
    drop(gz);
    buf_free(&b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_trailer),
        TEST(test_missing_beginning),
        TEST(test_cut_at_every_byte),
        TEST(test_every_changed_byte),
        TEST(test_header_fields),
        TEST(test_members),
        TEST(test_deflate),
        TEST(test_raw_that_looks_like_zlib),
        TEST(test_bomb),
        TEST(test_limits_are_exact),
        TEST(test_a_large_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
