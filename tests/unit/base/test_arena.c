/* The arena: alignment, limit, chunks, overflow. Under ASan a block that overlaps or outlives its
 * arena is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define ALLOCATION_FAILS false
#else
#define ALLOCATION_FAILS true
#endif

static void test_blocks(void **state)
{
    (void)state;
    struct arena a = {0};
    unsigned char *blocks[500];
    for (size_t i = 0; i < 500; i++) {
        blocks[i] = arena_alloc(&a, i * 7);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % _Alignof(max_align_t), 0);
        memset(blocks[i], (int)(i % 256), i * 7);
    }
    for (size_t i = 0; i < 500; i++) {
        for (size_t j = 0; j < i * 7; j++) {
            assert_int_equal(blocks[i][j], i % 256);
        }
    }
    arena_free(&a);
    assert_null(a.head);
    assert_int_equal(a.used_bytes, 0);
}

static void test_large_block(void **state)
{
    (void)state;
    struct arena a = {0};
    char *small = arena_copy(&a, SLICE("kept"));
    char *large = arena_alloc(&a, 5u << 20);
    assert_non_null(large);
    memset(large, 1, 5u << 20);
    char *after = arena_alloc(&a, 100);
    assert_non_null(after);
    memset(after, 2, 100);
    assert_string_equal(small, "kept");
    arena_free(&a);
}

static void test_limit(void **state)
{
    (void)state;
    const size_t align = _Alignof(max_align_t);
    struct arena a;
    arena_init(&a, 10 * align);
    assert_non_null(arena_alloc(&a, 9 * align));
    assert_null(arena_alloc(&a, align + 1));
    assert_non_null(arena_alloc(&a, 0));
    assert_int_equal(a.used_bytes, 10 * align);
    assert_null(arena_alloc(&a, 1));
    assert_null(arena_alloc(&a, 0));
    assert_null(arena_calloc(&a, 1, 1));
    assert_null(arena_copy(&a, SLICE("x")));
    arena_free(&a);
    assert_int_equal(a.limit_bytes, 10 * align);
    assert_non_null(arena_alloc(&a, 10 * align));
    arena_free(&a);
}

static void test_zeroed(void **state)
{
    (void)state;
    struct arena a = {0};
    memset(arena_alloc(&a, 64), 0xFF, 64);
    uint32_t *zeros = arena_calloc(&a, 1000, sizeof *zeros);
    assert_non_null(zeros);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(zeros[i], 0);
    }
    assert_non_null(arena_calloc(&a, 0, 8));
    assert_non_null(arena_calloc(&a, 8, 0));
    assert_null(arena_calloc(&a, SIZE_MAX, 2));
    assert_null(arena_calloc(&a, SIZE_MAX / 8 + 2, 8));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 8));
    arena_free(&a);
}

/* More than any machine has. ASan would stop the test instead of failing the allocation. */
static void test_no_memory(void **state)
{
    (void)state;
    if (!ALLOCATION_FAILS) {
        skip();
    }
    struct arena a = {0};
    assert_null(arena_alloc(&a, SIZE_MAX / 4));
    assert_int_equal(a.used_bytes, 0);
    assert_non_null(arena_alloc(&a, 1));
    arena_free(&a);
}

static void test_copy(void **state)
{
    (void)state;
    struct arena a = {0};
    char *copy = arena_copy(&a, slice_of("ab\0cd", 5));
    assert_memory_equal(copy, "ab\0cd\0", 6);
    assert_string_equal(arena_copy(&a, (struct slice){0}), "");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_large_block),
        cmocka_unit_test(test_limit),  cmocka_unit_test(test_zeroed),
        cmocka_unit_test(test_copy),   cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
