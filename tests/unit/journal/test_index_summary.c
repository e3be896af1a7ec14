/* test_index_summary: the bytes of summary files: a known answer, and damage of every kind (each
 * bit flipped, each length cut, checksums made to fit a lie), which must always be noticed. */
#include "index_kit.h"

static bool known[16];

/* Makes both checksums fit the bytes again. */
static void sign_summary(struct ikit_image *sum)
{
    uint32_t front = index_get_u32(sum->bytes + 156);

    index_put_u32(sum->bytes + 160, crc32c(0, sum->bytes, 160));
    if (front >= 168 && front <= sum->size) {
        index_put_u32(sum->bytes + front - 4, crc32c(0, sum->bytes, front - 4));
    }
}

/* A kit with so many generations of three keys, closed. */
static void prepare(struct ikit *k, unsigned generations)
{
    struct index *ix;

    ikit_start(k, 12);
    ix = ikit_open(k, known, false);
    while (k->count < generations) {
        for (unsigned i = 0; i < 3; i++) {
            ikit_insert(k, ix, k->count * 100 + i);
        }
        ikit_close(k, ix);
    }
    index_close(ix);
}

static void test_summary_bytes(void **state)
{
    uint8_t want[164 + 28 + 4 + 4 + 4] = {0};
    uint8_t content[KIT_FILL_BYTES + 3];
    struct index_summary s;
    struct ikit_image got;
    struct ikit k;

    (void)state;
    prepare(&k, 2);
    s = ikit_summary(&k, 1);
    ikit_write_file(&k, 1, s.bytes);
    memcpy(want, "TLYSUMM\n\2\0\0\0\1\0\0\0\314\0\0\0\0\0\0\0", 24);
    memcpy(want + 24, s.first_id.byte, 16);
    memcpy(want + 40, s.last_id.byte, 16);
    want[56] = 101;
    want[64] = 11;
    want[72] = 3 + KIT_FILL_BYTES;
    memset(want + 80, 2, 32);
    want[144] = 1;
    want[148] = 1;
    want[156] = 204;
    index_put_u32(want + 160, crc32c(0, want, 160));
    memcpy(want + 164, s.streams[0].last_id.byte, 16);
    memcpy(want + 180, "\1\0\0\0\0\0\0\0\1\0\3\0ab.c", 16);
    for (unsigned i = 0; i < sizeof content; i++) {
        content[i] = (uint8_t)(i * 7 + 1);
    }
    index_put_u32(want + 196, crc32c(0, content, sizeof content));
    index_put_u32(want + 200, crc32c(0, want, 200));
    got = ikit_get(&k, "gen-00000001.sum");
    assert_int_equal(got.size, sizeof want);
    assert_memory_equal(got.bytes, want, sizeof want);
    free(got.bytes);
    ikit_end(&k);
}

static int load(struct ikit *k, struct err *e)
{
    struct index_summary s;
    int result = index_summary_load(k->dir, 3, &k->closed[3], &s, e);

    if (result == 0) {
        index_summary_free(&s);
    }
    return result;
}

/* Generation 3 has three streams. */
static void prepare_summary(struct ikit *k, struct ikit_image *sum)
{
    prepare(k, 4);
    *sum = ikit_get(k, "gen-00000003.sum");
}

static void test_summary_damaged(void **state)
{
    struct ikit_image sum;
    struct ikit k;
    struct err e;

    (void)state;
    prepare_summary(&k, &sum);
    for (size_t at = 0; at < sum.size; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            sum.bytes[at] ^= (uint8_t)(1u << bit);
            ikit_put(&k, "gen-00000003.sum", sum.bytes, sum.size);
            assert_int_equal(load(&k, &e), ERR_CORRUPT);
            sum.bytes[at] ^= (uint8_t)(1u << bit);
        }
        ikit_put(&k, "gen-00000003.sum", sum.bytes, at);
        assert_int_equal(load(&k, &e), ERR_CORRUPT);
    }
    sum.bytes = realloc(sum.bytes, sum.size + 1);
    assert_non_null(sum.bytes);
    sum.bytes[sum.size] = 0;
    ikit_put(&k, "gen-00000003.sum", sum.bytes, sum.size + 1);
    assert_int_equal(load(&k, &e), ERR_CORRUPT);
    ikit_put(&k, "gen-00000003.sum", sum.bytes, sum.size);
    ikit_check_summary(&k, 3);
    free(sum.bytes);
    ikit_end(&k);
}

static void test_summary_lies(void **state)
{
    /* Streams of generation 3: "a" "b.c" at 164, "a" "b.d" at 196, "ab" "b" at 228; end at 259. */
    static const struct {
        size_t at;
        uint8_t value;
    } lies[] = {
        {8, 1},      /* version */
        {12, 2},     /* generation */
        {16, 250},   /* size */
        {148, 0},    /* no checksums */
        {148, 2},    /* one checksum too many */
        {152, 1},    /* a filter that is not there */
        {156, 200},  /* a shorter front */
        {24, 0xee},  /* first id */
        {55, 0xee},  /* last id */
        {72, 1},     /* bytes */
        {144, 2},    /* streams: one fewer */
        {144, 4},    /* one more, and not there */
        {147, 0xff}, /* very many */
        {188, 4},    /* longer source: eats into the next */
        {188, 0},    /* empty source: order holds, the end is not met */
        {188, 60},   /* no room for another stream behind it */
        {189, 0xff}, /* very long source */
        {191, 0xff}, /* very long stream */
        {195, 'd'},  /* equal to the next */
        {195, 'e'},  /* above the next */
        {256, 'A'},  /* below the one before */
        {254, 5},    /* longer than the file */
    };
    struct ikit_image sum;
    struct ikit k;
    struct err e;

    (void)state;
    prepare_summary(&k, &sum);
    assert_int_equal(sum.size, 267);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        uint8_t saved = sum.bytes[lies[i].at];

        assert_int_not_equal(saved, lies[i].value);
        sum.bytes[lies[i].at] = lies[i].value;
        sign_summary(&sum);
        ikit_put(&k, "gen-00000003.sum", sum.bytes, sum.size);
        if (load(&k, &e) != ERR_CORRUPT) {
            fail_msg("lie %zu was believed", i);
        }
        sum.bytes[lies[i].at] = saved;
    }
    sign_summary(&sum);
    ikit_put(&k, "gen-00000003.sum", sum.bytes, sum.size);
    ikit_check_summary(&k, 3);
    /* Nor does it pass for another generation. */
    ikit_put(&k, "gen-00000002.sum", sum.bytes, sum.size);
    {
        struct index_summary s;

        assert_int_equal(index_summary_load(k.dir, 2, &k.closed[2], &s, &e), ERR_CORRUPT);
        assert_int_equal(index_summary_load(k.dir, 2, &k.closed[3], &s, &e), ERR_CORRUPT);
    }
    free(sum.bytes);
    ikit_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary_bytes),
        cmocka_unit_test(test_summary_damaged),
        cmocka_unit_test(test_summary_lies),
    };

    ikit_skip_syncs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
