/* The proof of batches: whole files, every flipped byte, every missing or moved batch, lengths that
 * lie (L13), lines longer than a read, ends of data. */
#include "tests/unit/journal/journal_fixture.h"

#include "journal/chain.h"
#include "journal/scan.h"

#define PATH "/m/data/journal/tail.ndjson"

/* The bytes of a closed journal with these batches. */
static char *make_file(struct fx *f, const struct kit_spec *specs, uint32_t count, size_t *n)
{
    fx_start(f, false);
    fx_open(f);
    for (uint32_t i = 0; i < count; i++) {
        fx_put(f, specs[i].number, specs[i].count, specs[i].payload_bytes);
    }
    fx_close(f);
    return fx_slurp(PATH, n);
}

struct outcome {
    int code;
    uint32_t batches;
    uint64_t offset, events;
    enum scan_fault fault;
    uint8_t head[SHA256_LEN];
};

static struct outcome scan_bytes(struct fx *f, const char *bytes, size_t n, bool framing_only)
{
    struct outcome o = {0};
    struct scan s;
    struct scan_batch b;
    fx_spill(PATH, bytes, n);
    int fd = os_open(PATH, O_RDONLY, 0);
    assert_true(fd >= 0);
    scan_start(&s, fd, n, NULL, chain_genesis);
    s.framing_only = framing_only;
    while ((o.code = scan_next(&s, &b, NULL, NULL, &f->e)) == 1) {
        assert_int_equal(b.offset + b.bytes, s.offset);
        o.batches++;
    }
    o.offset = s.offset;
    o.events = s.events;
    o.fault = s.fault;
    memcpy(o.head, s.head, SHA256_LEN);
    assert_int_equal(scan_next(&s, &b, NULL, NULL, &f->e), o.code); /* it does not move on */
    scan_stop(&s);
    assert_int_equal(os_close(fd), 0);
    return o;
}

static const struct kit_spec three[] = {{1, 1, 10}, {2, 3, 30}, {3, 1, 20}};

static void test_whole(void **state)
{
    struct fx f;
    size_t n;
    char *bytes = make_file(&f, three, 3, &n);
    struct outcome o = scan_bytes(&f, bytes, n, false);
    assert_int_equal(o.code, 0);
    assert_int_equal(o.batches, 3);
    assert_int_equal(o.events, 5);
    assert_int_equal(o.offset, n);
    assert_memory_equal(o.head, f.ledger.frontiers[2].head, SHA256_LEN);
    /* A zero where a batch would begin ends the data. */
    char *padded = calloc(1, n + 1000);
    assert_non_null(padded);
    memcpy(padded, bytes, n);
    padded[n + 500] = 'x';
    o = scan_bytes(&f, padded, n + 1000, false);
    assert_int_equal(o.code, 0);
    assert_int_equal(o.offset, n);
    assert_int_equal(scan_bytes(&f, "", 0, false).code, 0);
    assert_int_equal(scan_bytes(&f, bytes, n, true).batches, 3);
    free(padded);
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Any changed byte is seen, and in the batch in which it is. */
static void test_every_flip(void **state)
{
    struct fx f;
    size_t n;
    char *bytes = make_file(&f, three, 3, &n);
    uint64_t ends[3] = {0};
    uint32_t seen[6] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        struct kit_batch kb;
        kit_batch_make(&kb, three[i]);
        ends[i] = (i > 0 ? ends[i - 1] : 0) + kit_batch_bytes(&kb);
        kit_batch_free(&kb);
    }
    assert_int_equal(ends[2], n);
    for (size_t k = 0; k < n; k++) {
        static const unsigned char flips[] = {0x01, 0x04, 0x80};
        for (size_t q = 0; q < sizeof flips; q++) {
            unsigned char old = (unsigned char)bytes[k];
            bytes[k] = (char)(old ^ flips[q]);
            struct outcome o = scan_bytes(&f, bytes, n, false);
            bytes[k] = (char)old;
            uint32_t batch = k < ends[0] ? 0 : k < ends[1] ? 1 : 2;
            assert_int_equal(o.code, ERR_CORRUPT);
            assert_int_equal(o.batches, batch);
            assert_int_equal(o.offset, batch == 0 ? 0 : ends[batch - 1]);
            assert_int_not_equal(o.fault, SCAN_FAULT_NONE);
            seen[o.fault]++;
        }
    }
    assert_true(seen[SCAN_FAULT_FRAMING] > 0);
    assert_true(seen[SCAN_FAULT_CONTENT] > 0);
    assert_true(seen[SCAN_FAULT_EVENT] > 0);
    assert_true(seen[SCAN_FAULT_ORDER] > 0);
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Cut anywhere: whole batches before the cut, then an invalid one (or the end). */
static void test_every_cut(void **state)
{
    struct fx f;
    size_t n;
    char *bytes = make_file(&f, three, 3, &n);
    uint32_t whole = 0;
    for (size_t k = 0; k < n; k++) {
        struct outcome o = scan_bytes(&f, bytes, k, false);
        if (o.code == 0) {
            assert_int_equal(o.offset, k);
            whole++;
        } else {
            assert_int_equal(o.code, ERR_CORRUPT);
            assert_true(o.offset < k);
        }
    }
    assert_int_equal(whole, 3); /* nothing, one, two batches */
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* A batch that is missing, doubled or moved breaks the order of ids. */
static void test_order(void **state)
{
    struct fx f;
    size_t n;
    static const struct kit_spec same[] = {{1, 1, 10}, {3, 1, 10}, {5, 1, 10}};
    char *bytes = make_file(&f, same, 3, &n);
    assert_int_equal(n % 3, 0);
    size_t one = n / 3;
    char *other = malloc(n);
    assert_non_null(other);
    static const unsigned orders[][3] = {{0, 2, 1}, {0, 0, 1}, {1, 0, 2}, {0, 2, 2}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        for (int k = 0; k < 3; k++) {
            memcpy(other + (size_t)k * one, bytes + orders[i][k] * one, one);
        }
        struct outcome o = scan_bytes(&f, other, n, false);
        assert_int_equal(o.code, ERR_CORRUPT);
        assert_int_equal(o.fault, SCAN_FAULT_ORDER);
        assert_int_equal(o.batches, 1);
    }
    free(other);
    free(bytes);
    fx_end(&f);
    (void)state;
}

static char *replaced(const char *bytes, size_t n, const char *find, const char *with, size_t *out)
{
    const char *at = memmem(bytes, n, find, strlen(find));
    assert_non_null(at);
    size_t head = (size_t)(at - bytes);
    size_t tail = n - head - strlen(find);
    char *p = malloc(n + strlen(with) + 1);
    assert_non_null(p);
    memcpy(p, bytes, head);
    memcpy(p + head, with, strlen(with));
    memcpy(p + head + strlen(with), at + strlen(find), tail);
    *out = head + strlen(with) + tail;
    return p;
}

/* Counts and lengths that lie are found as damage, before memory is taken for them (L13). */
static void test_lying_counts(void **state)
{
    static const char *const counts[] = {"0",      "1",          "2",          "4",
                                         "5",      "10000",      "10001",      "99999",
                                         "999999", "2147483647", "4294967295", "-1"};
    struct fx f;
    size_t n;
    char *bytes = make_file(&f, three, 3, &n);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char with[64];
        size_t m;
        (void)snprintf(with, sizeof with, "\"batch_len\":%s,", counts[i]);
        char *p = replaced(bytes, n, "\"batch_len\":3,", with, &m);
        struct outcome o = scan_bytes(&f, p, m, false);
        assert_int_equal(o.code, ERR_CORRUPT);
        assert_int_equal(o.batches, 1);
        free(p);
    }
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Lines of other batches inside one, and other payloads under old hashes. */
static void test_mixed(void **state)
{
    struct fx f;
    size_t n;
    size_t m;
    char *bytes = make_file(&f, three, 3, &n);
    char *p = replaced(bytes, n, "\"batch_len\":1,", "\"batch_len\":2,", &m);
    struct outcome o = scan_bytes(&f, p, m, false);
    assert_int_equal(o.code, ERR_CORRUPT);
    assert_int_equal(o.fault, SCAN_FAULT_FRAMING);
    free(p);
    p = replaced(bytes, n, "\"payload\":{\"n\":1,", "\"payload\":{\"n\":7,", &m);
    o = scan_bytes(&f, p, m, false);
    assert_int_equal(o.fault, SCAN_FAULT_CONTENT);
    assert_int_equal(scan_bytes(&f, p, m, true).code, 0); /* framing alone does not see it */
    free(p);
    p = replaced(bytes, n, "\"record_key\":\"key-1-0\"", "\"record_key\":\"key-1-1\"", &m);
    assert_int_equal(scan_bytes(&f, p, m, false).fault, SCAN_FAULT_EVENT);
    free(p);
    free(bytes);
    fx_end(&f);
    (void)state;
}

/* Zero bytes and text without a line end; the window grows over reads of 256 KiB. */
static void test_long_lines(void **state)
{
    static const struct kit_spec specs[] = {{1, 2, 300000}, {2, 1, 1}, {3, 1, 700000}};
    struct fx f;
    size_t n;
    char *bytes = make_file(&f, specs, 1, &n);
    assert_int_equal(scan_bytes(&f, bytes, n, false).batches, 1);
    memset(bytes, 'a', n);
    struct outcome o = scan_bytes(&f, bytes, n, false);
    assert_int_equal(o.code, ERR_CORRUPT);
    assert_int_equal(o.fault, SCAN_FAULT_FRAMING);
    free(bytes);
    fx_end(&f);
    (void)state;
}

static int stop_at_third(void *ctx, const struct line *l)
{
    int *n = ctx;
    (void)l;
    return ++*n == 3 ? ERR_NO_MEMORY : 0;
}

/* Failures of reading and of the visitor come out as they are and move nothing. */
static void test_failures(void **state)
{
    struct fx f;
    size_t n;
    struct scan s;
    struct scan_batch b;
    struct fault eio = {.kind = FAULT_ERROR, .error = EIO, .call = OS_CALL_pread, .at = 1};
    char *bytes = make_file(&f, three, 3, &n);
    int lines = 0;
    int fd = os_open(PATH, O_RDONLY, 0);
    assert_true(fd >= 0);
    scan_start(&s, fd, n, NULL, chain_genesis);
    model_fault_arm(f.m, &eio);
    assert_int_equal(scan_next(&s, &b, NULL, NULL, &f.e), ERR_IO);
    assert_int_equal(s.offset, 0);
    model_fault_arm(f.m, NULL);
    assert_int_equal(scan_next(&s, &b, stop_at_third, &lines, &f.e), 1);
    assert_int_equal(scan_next(&s, &b, stop_at_third, &lines, &f.e), ERR_NO_MEMORY);
    assert_int_equal(s.events, 1);
    lines = 10;
    assert_int_equal(scan_next(&s, &b, stop_at_third, &lines, &f.e), 1);
    assert_int_equal(b.events, 3);
    assert_int_equal(lines, 13);
    /* Elsewhere in the file, without knowledge of what precedes. */
    uint64_t second = b.offset;
    scan_jump(&s, second);
    assert_int_equal(scan_next(&s, &b, NULL, NULL, &f.e), 1);
    assert_int_equal(b.offset, second);
    scan_jump(&s, second + 1);
    assert_int_equal(scan_next(&s, &b, NULL, NULL, &f.e), ERR_CORRUPT);
    scan_stop(&s);
    assert_int_equal(os_close(fd), 0);
    free(bytes);
    fx_end(&f);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),        cmocka_unit_test(test_every_flip),
        cmocka_unit_test(test_every_cut),    cmocka_unit_test(test_order),
        cmocka_unit_test(test_lying_counts), cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_long_lines),   cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests_name("scan", tests, NULL, NULL);
}
