/* warc_zstd and warc_record: which files may be joined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zstd.h>

#include "base/buf.h"
#include "store/artifact/warc_zstd.h"

#define RECORD(version, headers, block) "WARC/" version "\r\n" headers "\r\n" block "\r\n\r\n"
#define LENGTH_5                        "WARC-Type: warcinfo\r\nContent-Length: 5\r\n"
#define LENGTH_0                        "content-LENGTH:\t0 \r\nX: a\r\n\tb\r\n"
#define GOOD                            RECORD("1.1", LENGTH_5, "hello")
#define OTHER                           RECORD("1.0", LENGTH_0, "")

static struct warc_zstd *checker;

static int setup(void **state)
{
    struct err e;

    (void)state;
    return warc_zstd_open(&checker, &e);
}

static int teardown(void **state)
{
    (void)state;
    warc_zstd_close(checker);
    return 0;
}

struct how {
    bool no_checksum, no_size;
    int window_log;
};

static void put_frame(struct buf *b, const void *p, size_t n, struct how how)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    size_t room = ZSTD_compressBound(n) + 64;
    char *packed = malloc(room);

    assert_non_null(c);
    assert_non_null(packed);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, !how.no_checksum);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, !how.no_size);
    if (how.window_log > 0) {
        ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, how.window_log);
    }
    size_t len = ZSTD_compress2(c, packed, room, p, n);
    assert_false(ZSTD_isError(len));
    buf_put(b, packed, len);
    free(packed);
    ZSTD_freeCCtx(c);
}

static void put_text(struct buf *b, const char *text)
{
    put_frame(b, text, strlen(text), (struct how){0});
}

static void put_skippable(struct buf *b, unsigned kind, const char *text)
{
    const unsigned char head[8] = {(unsigned char)(0x50 + kind), 0x2a, 0x4d, 0x18,
                                   (unsigned char)strlen(text)};

    buf_put(b, head, sizeof head);
    buf_put_cstr(b, text);
}

static int check(const struct buf *b, size_t piece, uint64_t *records, struct err *e)
{
    int r = 0;

    warc_zstd_start(checker);
    for (size_t at = 0; r == 0 && at < b->len; at += piece) {
        r = warc_zstd_take(checker, b->ptr + at, piece < b->len - at ? piece : b->len - at, e);
    }
    return r < 0 ? r : warc_zstd_end(checker, records, e);
}

/* The verdict does not depend on the pieces. */
static void expect(struct buf *b, uint64_t records, const char *why)
{
    static const size_t pieces[] = {1, 2, 3, 7, 1u << 20};

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct err e = {0};
        uint64_t n = 0;
        int r = check(b, pieces[i], &n, &e);
        if (why == NULL) {
            assert_int_equal(r, 0);
            assert_int_equal(n, records);
        } else {
            assert_int_equal(r, ERR_CORRUPT);
            assert_true(e.has_offset);
            assert_true(e.offset <= b->len);
            if (strstr(e.text, why) == NULL) {
                fail_msg("\"%s\" is not in \"%s\"", why, e.text);
            }
            /* For good. */
            assert_int_equal(warc_zstd_take(checker, "x", 1, &e), ERR_CORRUPT);
            assert_int_equal(warc_zstd_end(checker, NULL, &e), ERR_CORRUPT);
        }
    }
    buf_free(b);
}

static void test_whole_files(void **state)
{
    struct buf b = {0}, joined = {0};

    (void)state;
    put_text(&b, GOOD);
    put_text(&b, OTHER);
    buf_put(&joined, b.ptr, b.len);
    buf_put(&joined, b.ptr, b.len);
    expect(&b, 2, NULL);
    expect(&joined, 4, NULL);
}

static void test_frames_and_records(void **state)
{
    struct buf b = {0};

    (void)state;
    put_text(&b, "WAR"); /* a record may be in several frames, and an empty one between them */
    put_text(&b, "");
    put_text(&b, GOOD + 3);
    put_skippable(&b, 0, "a note");
    put_skippable(&b, 15, "");
    put_text(&b, OTHER);
    put_text(&b, "");
    expect(&b, 2, NULL);

    put_text(&b, GOOD OTHER);
    expect(&b, 0, "two records");
    put_frame(&b, GOOD "W", sizeof GOOD, (struct how){0});
    put_text(&b, &OTHER[1]);
    expect(&b, 0, "two records");
}

static void test_frames_refused(void **state)
{
    struct buf b = {0};

    (void)state;
    expect(&b, 0, "there is no record");
    put_text(&b, "");
    expect(&b, 0, "there is no record");
    put_skippable(&b, 1, "note");
    put_text(&b, GOOD);
    expect(&b, 0, "first frame");
    put_skippable(&b, 13, "dictionary");
    put_text(&b, GOOD);
    expect(&b, 0, "dictionary");
    put_text(&b, GOOD);
    put_skippable(&b, 13, "dictionary");
    put_text(&b, GOOD);
    expect(&b, 0, "dictionary");
    put_frame(&b, GOOD, sizeof GOOD - 1, (struct how){.no_checksum = true});
    expect(&b, 0, "no content checksum");
    put_frame(&b, GOOD, sizeof GOOD - 1, (struct how){.no_size = true});
    expect(&b, 0, "how long its content is");
    buf_put_cstr(&b, GOOD);
    expect(&b, 0, "no Zstandard frame");
    put_text(&b, GOOD);
    buf_put(&b, "\x27\xb5\x2f\xfd", 4); /* version 0.7 */
    expect(&b, 0, "no Zstandard frame");
    put_text(&b, GOOD);
    buf_put(&b, "\0", 1);
    expect(&b, 0, "inside a frame");
    put_skippable(&b, 0, "x");
    b.len = 0;
    put_text(&b, GOOD);
    put_skippable(&b, 0, "xyz");
    b.len--;
    expect(&b, 0, "inside a frame");
}

static void test_descriptor(void **state)
{
    struct buf b = {0};

    (void)state;
    put_text(&b, GOOD);
    b.ptr[4] = (char)(b.ptr[4] | 0x08);
    expect(&b, 0, "reserved bit");
    put_text(&b, GOOD);
    b.ptr[4] = (char)(b.ptr[4] | 0x01);
    expect(&b, 0, "names a dictionary");
}

static void test_window(void **state)
{
    size_t n = 20u << 20;
    char *block = calloc(1, n);
    struct buf b = {0};
    char head[100];

    (void)state;
    assert_non_null(block);
    int len = snprintf(head, sizeof head, "WARC/1.1\r\nContent-Length: %zu\r\n\r\n", n - 100);
    memcpy(block, head, (size_t)len);
    memcpy(block + len + n - 100, "\r\n\r\n", 4);
    put_frame(&b, block, (size_t)len + n - 100 + 4, (struct how){.window_log = 23});
    struct err e = {0};
    uint64_t records = 0;
    assert_int_equal(check(&b, 1u << 20, &records, &e), 0);
    assert_int_equal(records, 1);
    buf_free(&b);
    put_frame(&b, block, (size_t)len + n - 100 + 4, (struct how){.window_log = 24});
    assert_int_equal(check(&b, 1u << 20, &records, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "8 MiB"));
    buf_free(&b);
    free(block);
}

/* Cut at each byte: refused, but where the file would have ended anyway. */
static void test_cuts(void **state)
{
    struct buf b = {0};
    size_t first;
    unsigned whole = 0;

    (void)state;
    put_text(&b, GOOD);
    first = b.len;
    put_text(&b, OTHER);
    for (size_t n = 0; n <= b.len; n++) {
        struct buf cut = {0};
        struct err e = {0};
        buf_put(&cut, b.ptr, n);
        int r = check(&cut, 5, NULL, &e);
        assert_true(r == 0 || r == ERR_CORRUPT);
        assert_int_equal(r == 0, n == first || n == b.len);
        whole += r == 0;
        buf_free(&cut);
    }
    assert_int_equal(whole, 2);
    buf_free(&b);
}

/* A flipped bit of a frame is always noticed, but for the one that decoders must not look at. */
static void test_flips(void **state)
{
    struct buf b = {0};
    size_t second;

    (void)state;
    put_text(&b, GOOD);
    second = b.len;
    put_text(&b, OTHER);
    for (size_t i = 0; i < b.len * 8; i++) {
        bool unused = i == 4 * 8 + 4 || i == (second + 4) * 8 + 4;
        struct err e = {0};
        b.ptr[i / 8] = (char)(b.ptr[i / 8] ^ (1 << i % 8));
        assert_int_equal(check(&b, 64, NULL, &e), unused ? 0 : ERR_CORRUPT);
        b.ptr[i / 8] = (char)(b.ptr[i / 8] ^ (1 << i % 8));
    }
    buf_free(&b);
}

static void test_records(void **state)
{
    static const struct {
        const char *text, *why;
    } row[] = {
        {"WARC/1.2\r\nContent-Length: 0\r\n\r\n\r\n\r\n", "does not begin with"},
        {"WARC/1.1\nContent-Length: 0\r\n\r\n\r\n\r\n", "does not begin with"},
        {"warc/1.1\r\nContent-Length: 0\r\n\r\n\r\n\r\n", "does not begin with"},
        {RECORD("1.1", "A: b\r\n", ""), "no Content-Length"},
        {RECORD("1.1", "", ""), "no Content-Length"},
        {RECORD("1.1", "Content-Length: 0\r\ncontent-length: 0\r\n", ""), "two Content-Length"},
        {RECORD("1.1", "Content-Length: \r\n", ""), "not one number"},
        {RECORD("1.1", "Content-Length: \r\nA: b\r\n", ""), "not one number"},
        {RECORD("1.1", "Content-Length: +0\r\n", ""), "not one number"},
        {RECORD("1.1", "Content-Length: -1\r\n", ""), "not one number"},
        {RECORD("1.1", "Content-Length: 0x0\r\n", ""), "not one number"},
        {RECORD("1.1", "Content-Length: 1 2\r\n", "x"), "not one number"},
        {RECORD("1.1", "Content-Length: 1\r\n 2\r\n", "x"), "not one number"},
        {RECORD("1.1", "Content-Length: 9223372036854775808\r\n", ""), "2^63"},
        {RECORD("1.1", "Content-Length: 99999999999999999999\r\n", ""), "2^63"},
        {RECORD("1.1", " folded\r\nContent-Length: 0\r\n", ""), "begins with a blank"},
        {RECORD("1.1", ": b\r\nContent-Length: 0\r\n", ""), "name is empty"},
        {RECORD("1.1", "A : b\r\nContent-Length: 0\r\n", ""), "blank beside"},
        {RECORD("1.1", "no colon\r\nContent-Length: 0\r\n", ""), "no colon"},
        {RECORD("1.1", "\nContent-Length: 0\r\n", ""), "no colon"},
        {RECORD("1.1", "A: b\nContent-Length: 0\r\n", ""), "without CR"},
        {RECORD("1.1", "A: b\rc\r\nContent-Length: 0\r\n", ""), "CR stands alone"},
        {RECORD("1.1", "Content-Length: 0\r\n\rx", ""), "CR stands alone"},
        {RECORD("1.1", "Content-Length: 4\r\n", "hello"), "not followed by"},
        {"WARC/1.1\r\nContent-Length: 1\r\n\r\nx\r\n\n\n", "not followed by"},
        {RECORD("1.1", "Content-Length: 6\r\n", "hello"), "not followed by"},
        {"WARC/1.1\r\nContent-Length: 9\r\n\r\nhello\r\n\r\n", "inside a record"},
        {"WARC/1.1\r\nContent-Length: 5\r\n\r\nhello\r\n", "inside a record"},
        {"WARC/1.1\r\n", "inside a record"},
    };
    struct buf b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        put_text(&b, row[i].text);
        expect(&b, 0, row[i].why);
        /* The same behind a good one. */
        put_text(&b, GOOD);
        put_text(&b, row[i].text);
        expect(&b, 0, row[i].why);
    }
    put_text(&b,
             RECORD("1.1", "Content-Length:\r\n 5\r\nContent-Lengths: x\r\nContent-Lengt: y\r\n",
                    "hello"));
    expect(&b, 1, NULL);
}

static void test_long_lines(void **state)
{
    struct buf text = {0}, b = {0};

    (void)state;
    buf_put_cstr(&text, "WARC/1.1\r\nA: ");
    for (unsigned i = 0; i < WARC_LINE_MAX; i++) {
        buf_put_char(&text, 'a');
    }
    buf_put_cstr(&text, "\r\nContent-Length: 0\r\n\r\n\r\n\r\n");
    put_frame(&b, text.ptr, text.len, (struct how){0});
    struct err e = {0};
    assert_int_equal(check(&b, 4096, NULL, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "too long"));
    buf_free(&b);
    buf_free(&text);
    buf_put_cstr(&text, "WARC/1.1\r\n");
    for (unsigned i = 0; i < WARC_HEADERS_MAX / 4; i++) {
        buf_put_cstr(&text, "a:b\r\n");
    }
    buf_put_cstr(&text, "Content-Length: 0\r\n\r\n\r\n\r\n");
    put_frame(&b, text.ptr, text.len, (struct how){0});
    assert_int_equal(check(&b, 4096, NULL, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "too long"));
    buf_free(&b);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_files),    cmocka_unit_test(test_frames_and_records),
        cmocka_unit_test(test_frames_refused), cmocka_unit_test(test_descriptor),
        cmocka_unit_test(test_window),         cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_flips),          cmocka_unit_test(test_records),
        cmocka_unit_test(test_long_lines),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
