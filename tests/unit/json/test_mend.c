/* json_mend: what it changes, what it leaves, its bounds, and that strict readers take the result.
 * The other opinion about the meaning is Python's: tests/json-diff/mend_diff.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "json/canon.h"
#include "json/read.h"
#include "json/tolerant.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define FFFD     "\xEF\xBF\xBD"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define LIMITS_WORK false /* the sanitizers reserve the address space themselves */
#else
#define LIMITS_WORK true
#endif

static void check(struct slice text, struct slice want)
{
    char *copy = malloc(text.len == 0 ? 1 : text.len); /* exactly its size */
    assert_non_null(copy);
    memcpy(copy, text.ptr, text.len);
    struct buf out = {0};
    struct err e = {0};
    buf_put_cstr(&out, "before ");
    int r = json_mend(slice_of(copy, text.len), &out, &e);
    if (r != 0 || !slice_eq(slice_from(buf_slice(&out), 7), want)) {
        fail_msg("%.*s: %d %s\n got  %.*s\n want %.*s", (int)text.len, text.ptr, r, e.text,
                 (int)out.len - 7, out.ptr + 7, (int)want.len, want.ptr);
    }
    assert_memory_equal(out.ptr, "before ", 7);
    buf_free(&out);
    free(copy);
}

static void test_clean_stays(void **state)
{
    (void)state;
    static const struct slice samples[] = {
        SLICE("{ \"a\" : [1, 2.50 ,-0, "
              "1E5,\"\\/\\u0041\\ud83d\\ude00\xF0\x9F\x98\x80\"],\n\"b\":{}}"),
        SLICE("\"\\u0000\""),
        SLICE("{\"\\u0000\":\"\\u0000\"}"),
        SLICE("18446744073709551615"),
        SLICE("[9007199254740993,-9223372036854775808,1e30,0.1234567890123456789]"),
        SLICE("null"),
        SLICE("\"\x7f\""),
        SLICE("1e-999"),
    };
    for (size_t i = 0; i < COUNT(samples); i++) {
        check(samples[i], samples[i]);
    }
    check(SLICE("\xEF\xBB\xBF \n{ } "), SLICE("{ }"));
}

static void test_strings(void **state)
{
    (void)state;
    check(SLICE("\"\\ud800\""), SLICE("\"" FFFD "\""));
    check(SLICE("\"a\\udc00b\\uD83d\\uDe00\\ud83d\""),
          SLICE("\"a" FFFD "b\\uD83d\\uDe00" FFFD "\""));
    check(SLICE("\"\\ud800\\ud800\\udc00\""), SLICE("\"" FFFD "\\ud800\\udc00\""));
    check(SLICE("\"\\ud800\\n\""), SLICE("\"" FFFD "\\n\""));
    check(SLICE("\"\\\\ud800\\ud800\""), SLICE("\"\\\\ud800" FFFD "\""));
    check(SLICE("\"a\nb\rc\td\be\f\x01\x1f\0\""),
          SLICE("\"a\\nb\\rc\\td\\be\\f\\u0001\\u001f\\u0000\""));
    check(SLICE("\"\xFFx\xE2\x82y\xED\xA0\x80\""),
          SLICE("\"" FFFD "x" FFFD "y" FFFD FFFD FFFD "\""));
    check(SLICE("\"\xF0\x9F\x98\""), SLICE("\"" FFFD "\""));
    check(SLICE("{\"\xFFk\":\"\xC3\xA9\n\", \"z\" : 1 }"),
          SLICE("{\"" FFFD "k\":\"\xC3\xA9\\n\", \"z\" : 1 }"));
    check(SLICE("[\"plain text of some length, then\tone flaw, then more plain text\"]"),
          SLICE("[\"plain text of some length, then\\tone flaw, then more plain text\"]"));
}

static void test_numbers(void **state)
{
    (void)state;
    check(SLICE("1e999"), SLICE("\"1e999\""));
    check(SLICE("[1e308,-1E+400, 2 ,1e-400]"), SLICE("[1e308,\"-1E+400\", 2 ,1e-400]"));
    check(SLICE("[1.5e999,1.5E99,-0.25E+999]"), SLICE("[\"1.5e999\",1.5E99,\"-0.25E+999\"]"));
    check(SLICE("{\"a\":1e309,\"b\":123456789012345678901}"),
          SLICE("{\"a\":\"1e309\",\"b\":\"123456789012345678901\"}"));
    /* ClickHouse's reader has integers of 64 bits, and refuses the whole text for a larger one. */
    check(SLICE("[18446744073709551615,18446744073709551616,18446744073709552000]"),
          SLICE("[18446744073709551615,\"18446744073709551616\",\"18446744073709552000\"]"));
    check(SLICE("[-9223372036854775808,-9223372036854775809,-18446744073709551615,"
                "99999999999999999999]"),
          SLICE("[-9223372036854775808,\"-9223372036854775809\",\"-18446744073709551615\","
                "\"99999999999999999999\"]"));
    /* Numbers inside of strings are none. */
    check(SLICE("[\"1e999\",\"\n\"]"), SLICE("[\"1e999\",\"\\n\"]"));
    struct buf text = {0};
    struct buf want = {0};
    for (int i = 0; i < 310; i++) {
        buf_put_char(&text, '9');
    }
    buf_printf(&want, "\"%.*s\"", (int)text.len, text.ptr);
    check(buf_slice(&text), buf_slice(&want));
    buf_free(&text);
    buf_free(&want);
}

static void test_duplicates(void **state)
{
    (void)state;
    check(SLICE("{\"a\":1,\"a\":2}"), SLICE("{\"a\":2}"));
    check(SLICE("{\"a\":1,\"b\":2,\"a\":3}"), SLICE("{\"b\":2,\"a\":3}"));
    check(SLICE("{ \"a\" : 1 , \"b\" : 2 , \"a\" : 3 , \"c\" : 4 }"),
          SLICE("{ \"b\" : 2 , \"a\" : 3 , \"c\" : 4 }"));
    check(SLICE("{\"a\":1,\"a\":2,\"a\":3,\"b\":4,\"a\":5}"), SLICE("{\"b\":4,\"a\":5}"));
    check(SLICE("{\"a\":{\"x\":[\"},{\",1],\"x\":{\",\":1}},\"b\":0,\"a\":null}"),
          SLICE("{\"b\":0,\"a\":null}"));
    check(SLICE("{\"a\":[1,{\"x\":1,\"x\":2}],\"b\":{\"x\":1,\"x\":2}}"),
          SLICE("{\"a\":[1,{\"x\":2}],\"b\":{\"x\":2}}"));
    check(SLICE("{\"a\":0,\"a\":{\"b\":1,\"c\":2,\"b\":[{\"d\":1,\"d\":2}]}}"),
          SLICE("{\"a\":{\"c\":2,\"b\":[{\"d\":2}]}}"));
    check(SLICE("{\"\\u0061\":1,\"a\":2}"), SLICE("{\"a\":2}"));
    check(SLICE("{\"a\":1,\"\\u0061\":2}"), SLICE("{\"\\u0061\":2}"));
    check(SLICE("{\"\\\"\":1,\"\\u0022\":2}"), SLICE("{\"\\u0022\":2}"));
    check(SLICE("{\"\":1,\"\":2}"), SLICE("{\"\":2}"));
    /* Names that only mending makes equal. */
    check(SLICE("{\"\\ud800\":1,\"\xFF\":2,\"\\ufffd\":3}"), SLICE("{\"\\ufffd\":3}"));
    check(SLICE("{\"\n\":1,\"\\n\":2}"), SLICE("{\"\\n\":2}"));
    /* The same name in different objects is none; nor is a name as a value. */
    check(SLICE("[{\"a\":\"a\"},{\"a\":\"a\"},\"\xFF\"]"),
          SLICE("[{\"a\":\"a\"},{\"a\":\"a\"},\"" FFFD "\"]"));
    check(SLICE("{\"a\":\"a\",\"b\":{\"a\":\"b\"},\"c\":1e999}"),
          SLICE("{\"a\":\"a\",\"b\":{\"a\":\"b\"},\"c\":\"1e999\"}"));
}

/* Objects of more members than the small way takes: names n0, n1, ..., each third one twice. */
static void many_members(size_t count)
{
    struct buf text = {0};
    struct buf want = {0};
    buf_put_char(&text, '{');
    buf_put_char(&want, '{');
    for (size_t i = 0; i < count; i++) {
        buf_printf(&text, "\"n%zu\":[%zu,\"\"],", i, i);
        if (i % 3 != 0) {
            buf_printf(&want, "\"n%zu\":[%zu,\"\"],", i, i);
        }
    }
    for (size_t i = 0; i < count; i += 3) {
        buf_printf(&text, "\"n%zu\":-%zu,", i, i);
        buf_printf(&want, "\"n%zu\":-%zu,", i, i);
    }
    buf_put_cstr(&text, "\"last\":0}");
    buf_put_cstr(&want, "\"last\":0}");
    check(buf_slice(&text), buf_slice(&want));
    buf_free(&text);
    buf_free(&want);
}

static void test_many_members(void **state)
{
    (void)state;
    /* Around the small way (256) and what the lists hold on the stack (192). */
    static const size_t counts[] = {1,   2,   60,  143, 144, 190, 191,
                                    192, 193, 254, 255, 256, 257, 5000};
    for (size_t i = 0; i < COUNT(counts); i++) {
        many_members(counts[i]);
    }
}

struct named {
    uint32_t crc;
    uint32_t number;
};

static int by_crc(const void *a, const void *b)
{
    const struct named *x = a;
    const struct named *y = b;
    return x->crc < y->crc ? -1 : x->crc > y->crc;
}

/* Different names with one checksum are told apart, in objects small and large. */
static void test_colliding_names(void **state)
{
    (void)state;
    enum { NAMES = 400000 };
    struct named *list = calloc(NAMES, sizeof *list);
    assert_non_null(list);
    char a[24];
    char b[24];
    for (uint32_t i = 0; i < NAMES; i++) {
        int len = snprintf(a, sizeof a, "%x.%u", i * 2654435761u, i % 7);
        list[i] = (struct named){.crc = crc32c(0, a, (size_t)len), .number = i};
    }
    qsort(list, NAMES, sizeof *list, by_crc);
    unsigned pairs = 0;
    for (size_t i = 1; i < NAMES && pairs < 5; i++) {
        if (list[i - 1].crc != list[i].crc) {
            continue;
        }
        pairs++;
        uint32_t x = list[i - 1].number;
        uint32_t y = list[i].number;
        (void)snprintf(a, sizeof a, "%x.%u", x * 2654435761u, x % 7);
        (void)snprintf(b, sizeof b, "%x.%u", y * 2654435761u, y % 7);
        for (int filler = 0; filler <= 300; filler += 300) {
            struct buf text = {0};
            struct buf want = {0};
            buf_printf(&text, "{\"%s\":1,\"%s\":2,\"q\":3,", a, b);
            buf_printf(&want, "{\"%s\":1,\"q\":3,", a);
            for (int k = 0; k < filler; k++) {
                buf_printf(&text, "\"f%d\":%d,", k, k);
                buf_printf(&want, "\"f%d\":%d,", k, k);
            }
            buf_printf(&text, "\"%s\":\"\t\"}", b);
            buf_printf(&want, "\"%s\":\"\\t\"}", b);
            check(buf_slice(&text), buf_slice(&want));
            buf_free(&text);
            buf_free(&want);
        }
        struct buf text = {0};
        unsigned flaws = 99;
        buf_printf(&text, "{\"%s\":1,\"%s\":2}", a, b);
        assert_int_equal(json_flaws(buf_slice(&text), &flaws, NULL), 0);
        assert_int_equal(flaws, 0);
        buf_free(&text);
    }
    assert_true(pairs > 0);
    free(list);
}

static void test_refuses(void **state)
{
    (void)state;
    struct buf out = {0};
    struct err e = {0};
    buf_put_cstr(&out, "x");
    assert_int_equal(json_mend(SLICE("{\"a\":}"), &out, &e), ERR_INVALID_JSON);
    assert_int_equal(e.offset, 5);
    assert_int_equal(out.len, 1);
    assert_false(out.failed);
    char deep[JSON_TOLERANT_DEPTH + 1];
    memset(deep, '[', sizeof deep);
    assert_int_equal(json_mend(slice_of(deep, sizeof deep), &out, &e), ERR_JSON_DEPTH);
    assert_int_equal(out.len, 1);
    buf_free(&out);
}

/* Every size of output buffer that is too small is an answer, and leaves what was there. */
static void test_full_output(void **state)
{
    (void)state;
    static const struct slice texts[] = {
        SLICE("{\"a\":[1,2,3]}"),
        SLICE("{\"a\":\"\n\",\"b\":\"\\ud800\",\"c\":1e999,\"a\":\"\xFF\"}"),
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct buf whole = {0};
        assert_int_equal(json_mend(texts[i], &whole, NULL), 0);
        for (size_t limit = 1; limit <= whole.len + 1; limit++) {
            struct buf out;
            struct err e = {0};
            buf_init(&out, limit);
            buf_put_char(&out, 'x');
            int r = json_mend(texts[i], &out, &e);
            if (limit == whole.len + 1) {
                assert_int_equal(r, 0);
                assert_int_equal(out.len, limit);
            } else {
                assert_int_equal(r, ERR_NO_MEMORY);
                assert_string_equal(e.text, "the mended text does not fit");
                assert_int_equal(out.len, 1);
                assert_true(out.failed);
            }
            buf_free(&out);
        }
        buf_free(&whole);
    }
}

/* A million members need 8 MiB to be told apart; with less there is an answer. */
static int starved_child(struct slice text)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%lu", &pages) != 1) {
        return 2;
    }
    (void)fclose(f);
    rlim_t bytes = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (2u << 20);
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    unsigned flaws = 99;
    struct err e = {0};
    struct buf out = {0};
    if (setrlimit(RLIMIT_AS, &limit) != 0) {
        return 3;
    }
    if (json_flaws(text, &flaws, &e) != ERR_NO_MEMORY || flaws != 0 ||
        strcmp(e.text, "no memory for the members of the text") != 0) {
        return 4;
    }
    return json_mend(text, &out, &e) == ERR_NO_MEMORY && out.len == 0 ? 0 : 5;
}

static void test_no_memory(void **state)
{
    (void)state;
    if (!LIMITS_WORK) {
        skip();
    }
    struct buf text = {0};
    buf_put_char(&text, '{');
    for (unsigned i = 0; i < 1000000; i++) {
        buf_printf(&text, "\"%u\":0,", i);
    }
    buf_put_cstr(&text, "\"\":0}");
    assert_false(text.failed);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(starved_child(buf_slice(&text)));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    buf_free(&text);
}

/* 4 GiB of text out of 16 MiB of memory, mapped again and again. */
static void test_huge_text(void **state)
{
    (void)state;
    if (!LIMITS_WORK) {
        skip();
    }
    const size_t piece = (size_t)16 << 20;
    const size_t count = 257;
    int fd = memfd_create("huge", 0);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)piece), 0);
    char *base =
        mmap(NULL, piece * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    for (size_t i = 0; i < count; i++) {
        void *at =
            mmap(base + i * piece, piece, PROT_READ | PROT_WRITE,
                 MAP_FIXED | (i == 0 || i == count - 1 ? MAP_PRIVATE : MAP_SHARED) | MAP_POPULATE,
                 fd, 0);
        assert_ptr_not_equal(at, MAP_FAILED);
        if (i == 1) {
            memset(at, 'x', piece); /* all the shared ones are this */
        }
    }
    memset(base, 'x', piece);
    base[0] = '"';
    memset(base + (count - 1) * piece, 'x', piece);
    base[count * piece - 1] = '"';
    struct slice text = {.ptr = base, .len = count * piece};
    struct slice value;
    struct err e = {0};
    unsigned flaws;
    assert_int_equal(json_tolerant_check(text, &value, &e), 0);
    assert_int_equal(value.len, text.len);
    assert_int_equal(json_flaws(text, &flaws, &e), ERR_NO_MEMORY);
    assert_string_equal(e.text, "the text is larger than 4 GiB");
    assert_int_equal(munmap(base, piece * count), 0);
    assert_int_equal(close(fd), 0);
}

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static void random_string(struct buf *b)
{
    static const char *const pieces[] = {
        "a",           "b",       "\\n",  "\\u0061", "\\ud800",
        "\\udc00",     "\\u0000", "\n",   "\xFF",    "\xE2\x82",
        "\xC3\xA9",    "\\/",     "\x01", "\\\\",    "plain text of a certain length",
        "\xED\xA0\x80"};
    buf_put_char(b, '"');
    for (uint32_t n = below(3); n > 0; n--) {
        buf_put_cstr(b, pieces[below(COUNT(pieces))]);
    }
    buf_put_char(b, '"');
}

static void random_space(struct buf *b)
{
    if (below(4) == 0) {
        buf_put_char(b, " \t\r\n"[below(4)]);
    }
}

static void random_value(struct buf *b, unsigned depth)
{
    static const char *const scalars[] = {"0",    "-1.5e3", "1e999", "-1E+999", "9007199254740993",
                                          "true", "null"};
    uint32_t kind = below(depth == 0 ? 3 : 6);
    random_space(b);
    if (kind == 0) {
        buf_put_cstr(b, scalars[below(COUNT(scalars))]);
    } else if (kind <= 2) {
        random_string(b);
    } else {
        bool object = kind <= 4;
        buf_put_char(b, object ? '{' : '[');
        for (uint32_t n = below(6), i = 0; i < n; i++) {
            buf_put_cstr(b, i == 0 ? "" : ",");
            random_space(b);
            if (object) {
                random_string(b);
                random_space(b);
                buf_put_char(b, ':');
            }
            random_value(b, depth - 1);
        }
        random_space(b);
        buf_put_char(b, object ? '}' : ']');
    }
    random_space(b);
}

/* Whatever goes in, what comes out has only the flaws that JSON allows, canon takes it when it has
 * none, and mending it again changes nothing. */
static void test_random(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    random_state = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%llu\n", (unsigned long long)random_state);
    struct canon *canon = canon_new();
    assert_non_null(canon);
    struct buf text = {0};
    struct buf once = {0};
    struct buf twice = {0};
    struct buf form = {0};
    unsigned changed = 0;
    for (unsigned round = 0; round < 20000; round++) {
        buf_clear(&text);
        buf_clear(&once);
        buf_clear(&twice);
        buf_clear(&form);
        random_value(&text, 5);
        unsigned before = 0;
        unsigned after = 0;
        assert_int_equal(json_flaws(buf_slice(&text), &before, NULL), 0);
        assert_int_equal(json_mend(buf_slice(&text), &once, NULL), 0);
        assert_int_equal(json_flaws(buf_slice(&once), &after, NULL), 0);
        assert_int_equal(json_mend(buf_slice(&once), &twice, NULL), 0);
        unsigned allowed = JSON_FLAW_NUL | JSON_FLAW_NUMBER;
        if ((after & ~allowed) != 0 || !slice_eq(buf_slice(&once), buf_slice(&twice))) {
            fail_msg("flaws %x: %.*s", after, (int)once.len, once.ptr);
        }
        if ((after & JSON_FLAW_NUMBER) == 0) {
            assert_int_equal(canon_json(canon, buf_slice(&once), &form, NULL), 0);
        }
        changed += (before & ~allowed) != 0;
    }
    assert_true(changed > 5000);
    buf_free(&text);
    buf_free(&once);
    buf_free(&twice);
    buf_free(&form);
    canon_free(canon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clean_stays),  cmocka_unit_test(test_strings),
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_many_members), cmocka_unit_test(test_colliding_names),
        cmocka_unit_test(test_refuses),      cmocka_unit_test(test_full_output),
        cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_huge_text),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
