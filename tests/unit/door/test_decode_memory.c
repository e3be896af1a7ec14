/* decode_body when memory runs out, and how much of it a body can ask for (case C41).
 *
 * Every allocation of every body's decoding fails once: the answer is ERR_NO_MEMORY, and the same
 * body is decoded afterwards. No single allocation is larger than the body's limit allows. The
 * allocator is replaced by functions that count and then call glibc's own; sanitizers have an
 * allocator of their own, so under them nothing fails and the bodies are only decoded. */
#include "tests/unit/door/decode_kit.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTED 0
#endif
#endif
#ifndef COUNTED
#define COUNTED 1
#endif

static bool armed;
static unsigned allocations, fail_at;
static size_t largest_bytes;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool must_fail(size_t n)
{
    if (!armed) {
        return false;
    }
    allocations++;
    largest_bytes = n > largest_bytes ? n : largest_bytes;
    return allocations == fail_at;
}

void *malloc(size_t n)
{
    return must_fail(n) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return must_fail(n * size) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return must_fail(n) ? NULL : __libc_realloc(p, n);
}
#endif

static int decode(const struct decode_request *how, struct decoded *got, unsigned n)
{
    struct err e = {0};
    allocations = 0;
    largest_bytes = 0;
    fail_at = n;
    armed = true;
    int r = decode_body(how, got, &e);
    armed = false;
    assert_int_equal(e.code, r);
    return r;
}

/* How many allocations the body takes. */
static unsigned fail_each(const struct decode_request *how, struct slice want)
{
    struct decoded got;
    unsigned n = 1;
    for (;; n++) {
        int r = decode(how, &got, n);
        bool reached = allocations >= n;
        if (!reached) {
            assert_int_equal(r, 0);
            assert_true(slice_eq(got.json, want));
            decoded_free(&got);
            return n - 1;
        }
        assert_int_equal(r, ERR_NO_MEMORY);
        assert_int_equal(got.json.len, 0);
        decoded_free(&got);
    }
}

static void test_every_allocation(void **state)
{
    (void)state;
    struct slice want = SLICE(EVENT);
    struct slice gz = pack(want, GZIP);
    struct slice zl = pack(want, ZLIB);
    struct slice raw = pack(want, RAW);
    struct slice text = as_latin1_text(gz);
    struct slice gz64 = base64(gz, STANDARD, "=");
    struct slice body = form("compression=gzip&data=", gz64, true);
    const struct {
        struct slice body;
        const char *encoding;
        unsigned least;
    } cases[] = {{want, "", 0}, {gz, "gzip", 2}, {zl, "deflate", 2}, {raw, "deflate", 2},
                 {text, "", 3}, {gz64, "", 3},   {body, "", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct decode_request how = {.mode = DECODE_BASE64_TOO,
                                     .body = cases[i].body,
                                     .content_encoding = slice_cstr(cases[i].encoding),
                                     .decoded_bytes_max = MIB};
        unsigned n = fail_each(&how, want);
        if (COUNTED) {
            assert_true(n >= cases[i].least);
        }
    }
    drop(gz);
    drop(zl);
    drop(raw);
    drop(text);
    drop(gz64);
    drop(body);
}

/* 130 KB that stand for 128 MiB, and 16 KB that stand for 16 MiB. */
static void test_what_a_bomb_allocates(void **state)
{
    (void)state;
    static const struct {
        size_t mib;
        uint64_t max_mib, largest_mib;
    } cases[] = {{128, 64, 50}, {128, 8, 8}, {16, 1024, 7}, {4, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = cases[i].mib << 20;
        char *p = calloc(1, n);
        assert_non_null(p);
        struct slice bomb = pack(slice_of(p, n), GZIP);
        free(p);
        struct decode_request how = {
            .mode = DECODE_POSTHOG, .body = bomb, .decoded_bytes_max = cases[i].max_mib * MIB};
        struct decoded got;
        int r = decode(&how, &got, 0);
        assert_int_equal(r, ERR_BODY_TOO_LARGE);
        assert_int_equal(got.owned.cap, 0);
        assert_true(largest_bytes <= cases[i].largest_mib * MIB);
        decoded_free(&got);
        drop(bomb);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_what_a_bomb_allocates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
