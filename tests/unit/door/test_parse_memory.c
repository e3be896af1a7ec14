/* parse_batch when memory runs out: every allocation of a parse object's life fails once. The
 * answer is then ERR_NO_MEMORY, or the right one where canon made do with less room, and the same
 * object takes the same body afterwards.
 *
 * The allocator is replaced by functions that count and then call glibc's own; sanitizers have an
 * allocator of their own, so under them nothing fails and the bodies are only parsed. */
#include "tests/unit/door/parse_fixture.h"

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
static unsigned allocations, fail_at, failures, refusals;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool must_fail(void)
{
    if (!armed) {
        return false;
    }
    allocations++;
    failures += allocations == fail_at ? 1 : 0;
    return allocations == fail_at;
}

void *malloc(size_t n)
{
    return must_fail() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return must_fail() ? NULL : __libc_realloc(p, n);
}
#endif

static void put_body(struct buf *b, bool bad)
{
    buf_put_cstr(b, "{\"batch_id\":\"b\",\"source\":\"src\",\"events\":[" EVENT);
    for (int i = 0; i < 200; i++) {
        buf_put_cstr(b, bad ? ",{}" : "," EVENT);
    }
    buf_put_cstr(b, "]}");
}

/* parse_new to parse_free, with the n-th allocation failing. True when that one was reached. */
static bool life(struct slice body, int want, unsigned n)
{
    struct journal_batch batch;
    struct buf extra = {0};
    struct err e = {0};
    allocations = 0;
    failures = 0;
    fail_at = n;
    armed = true;
    struct parse *p = parse_new();
    int r = p != NULL ? parse_batch(p, body, PLENTY, &batch, &extra, &e) : ERR_NO_MEMORY;
    armed = false;
    bool failed = failures != 0;
    if (r != want) {
        assert_true(failed);
        assert_int_equal(r, ERR_NO_MEMORY);
        refusals++;
    }
    assert_true(p != NULL || failed);
    if (p != NULL) {
        assert_int_equal(e.code, r);
        assert_int_equal(parse_batch(p, body, PLENTY, &batch, &extra, &e), want);
        assert_true(is_object(buf_slice(&extra)));
        assert_int_equal(batch.count, want == 0 ? 201 : 0);
    }
    parse_free(p);
    buf_free(&extra);
    return failed;
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        struct buf body = {0};
        unsigned n = 1;
        refusals = 0;
        put_body(&body, bad != 0);
        while (life(buf_slice(&body), bad ? ERR_INVALID_EVENTS : 0, n)) {
            n++;
        }
        print_message("%u allocations, %u refusals\n", n - 1, refusals);
        assert_true(!COUNTED || refusals > 8);
        buf_free(&body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
