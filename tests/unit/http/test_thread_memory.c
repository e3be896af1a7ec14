/* test_thread_memory: every allocation of the loop around requests with a thread of their own fails
 * once, and every thread that it would start. A client must get its right answer, an error, or the
 * end of its connection, and the server must lose nothing.
 *
 * The allocator is replaced by functions that count and then call glibc's own. Sanitizers have an
 * allocator of their own: under them the conversation only runs. */
#include "tests/unit/http/thread_kit.h"

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

static _Thread_local bool armed; /* the loop's */
static atomic_uint allocations;
static unsigned fail_at;
static atomic_bool threads_fail;

#if COUNTED
#include <dlfcn.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool must_fail(void)
{
    return armed && atomic_fetch_add(&allocations, 1) + 1 == fail_at;
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

typedef int create_fn(pthread_t *id, const pthread_attr_t *a, void *(*fn)(void *), void *ctx);

int pthread_create(pthread_t *id, const pthread_attr_t *a, void *(*fn)(void *), void *ctx)
{
    static create_fn *next;
    void *found;

    if (armed && atomic_load(&threads_fail)) {
        return EAGAIN;
    }
    if (next == NULL) {
        found = dlsym(RTLD_NEXT, "pthread_create");
        memcpy(&next, &found, sizeof next);
    }
    return next(id, a, fn, ctx);
}
#endif

static void arm(void *ctx)
{
    armed = true;
    add(ctx);
}

static void disarm(void *ctx)
{
    armed = false;
    add(ctx);
}

#define BODY "Content-Length: 5\r\n\r\nhello"

static const char script[] = "PUT /put HTTP/1.1\r\n" H BODY "PUT /put HTTP/1.1\r\n" H
                             "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
                             "GET /put HTTP/1.1\r\n" H "\r\n"
                             "GET /hello HTTP/1.1\r\n" H "\r\n";
static const char *const answers[] = {"hello", "hello", "", "hello"};

/* How many of the answers were right. */
static unsigned converse(void)
{
    struct http_config config = config_of_kit();
    struct buf b = {0};
    unsigned right = 0;
    unsigned moved = 0;
    unsigned status;
    int fd;

    start_server(&config);
    atomic_store(&allocations, 0);
    assert_true(http_post(server, arm, &moved));
    assert_true(reaches(&moved, 1));
    fd = connect_to();
    put(fd, script, sizeof script - 1);
    for (status = take_answer(fd, &b); status == 200 && right < 4; status = take_answer(fd, &b)) {
        if (!slice_eq(body_of(&b), slice_cstr(answers[right]))) {
            fail_msg("allocation %u: answer %u is %s", fail_at, right, b.ptr);
        }
        right++;
        if (right == 4) {
            break;
        }
    }
    assert_true(status == 0 || status == 200 || status == 429 || status == 500);
    assert_int_equal(close(fd), 0);
    buf_free(&b);
    moved = 0;
    assert_true(http_post(server, disarm, &moved));
    assert_true(reaches(&moved, 1));
    stop_server();
    return right;
}

static void test_every_allocation_fails_once(void **state)
{
    unsigned total;

    (void)state;
    fail_at = 0;
    assert_int_equal(converse(), 4);
    total = atomic_load(&allocations);
    assert_true(!COUNTED || total > 8);
    print_message("%u allocations\n", total);
    for (fail_at = 1; fail_at <= total; fail_at++) {
        (void)converse();
    }
    fail_at = 0;
}

static void test_no_thread_to_be_had(void **state)
{
    (void)state;
    atomic_store(&threads_fail, true);
    assert_int_equal(converse(), COUNTED ? 0 : 4);
    atomic_store(&threads_fail, false);
    assert_int_equal(converse(), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_no_thread_to_be_had),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
