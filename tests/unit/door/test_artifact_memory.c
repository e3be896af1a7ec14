/* test_artifact_memory: every allocation that the server makes for a request of the artifact door
 * fails once: door, front and store. The client then hears "later" or nothing, HEAD never less than
 * that, and nobody a receipt that is not there; asked again, everything goes on.
 *
 * The allocator is replaced by functions that count and then call glibc's own; sanitizers have an
 * allocator of their own, so under them nothing fails and the requests only run. */
#include <errno.h>

#include "tests/unit/door/artifact_kit.h"

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

#define NONE ((struct slice){0})

static const char text[] = "The quick brown fox jumps over the lazy dog.";
#define TEXT ((struct slice){.ptr = text, .len = sizeof text - 1})

static _Thread_local bool spared; /* the test itself */
static _Atomic bool armed;
static _Atomic unsigned allocations, fail_at, failures;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static bool must_fail(void)
{
    if (spared || !armed) {
        return false;
    }
    if (++allocations != fail_at) {
        return false;
    }
    failures++;
    errno = ENOMEM;
    return true;
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

void *aligned_alloc(size_t align, size_t n)
{
    return must_fail() ? NULL : __libc_memalign(align, n);
}
#endif

static void arm(unsigned n)
{
    allocations = 0;
    failures = 0;
    fail_at = n;
    armed = true;
}

/* True when the n-th allocation was one of the request's. */
static bool disarm(void)
{
    armed = false;
    return failures > 0;
}

/* An answer that makes no client give up, or none; `good` only when nothing failed or it did not
 * matter. */
static void expect_later(struct kit *k, unsigned status, unsigned good, bool failed)
{
    /* 429: the form of /api for a request that found no memory. */
    if (status != 0 && status != good && status != 429 && status != 500 && status != 503) {
        fail_msg("%.*s", (int)k->answer.len, k->answer.ptr);
    }
    assert_true(failed || status == good);
}

static unsigned ask(struct kit *k, const char *method, const char *target, const char *headers,
                    struct slice body)
{
    int fd = kit_begin(k, method, target, headers, body.len);
    kit_send(fd, body.ptr, body.len);
    return kit_receive_any(k, fd);
}

static void test_creations(void **state)
{
    struct kit *k = kit_new();
    char headers[2000];
    bool failed = true;
    unsigned bad = 0;
    (void)state;
    /* Two lines of metadata, with a body of the whole length and without one. */
    for (int whole = 0; whole < 2; whole++) {
        (void)kit_creation(headers, TEXT, whole ? UPLOAD_TYPE : "");
        (void)snprintf(headers + strlen(headers), sizeof headers - strlen(headers),
                       "Upload-Metadata: more\r\n");
        failed = true;
        for (unsigned n = 1; failed; n++) {
            arm(n);
            unsigned status = ask(k, "POST", "/files", headers, whole ? TEXT : NONE);
            failed = disarm();
            expect_later(k, status, 201, failed);
            bad += status != 201 ? 1 : 0;
            if (status == 201) {
                memcpy(k->id, kit_header(k, "Location").ptr + 7, UPLOAD_ID_LEN);
                assert_int_equal(kit_has_receipt(k), whole);
                assert_true(kit_go_on(k, TEXT));
            }
        }
    }
    assert_true(!COUNTED || bad > 5);
    kit_free(k);
}

static void test_appends(void **state)
{
    struct kit *k = kit_new();
    char target[100];
    bool failed = true;
    unsigned bad = 0;
    (void)state;
    for (unsigned n = 1; failed; n++) {
        kit_create(k, TEXT);
        assert_int_equal(kit_patch(k, 0, slice_of(text, 9)), 204);
        arm(n);
        unsigned status = ask(k, "PATCH", kit_target(k, target),
                              TUS UPLOAD_TYPE "Upload-Offset: 9\r\n", slice_from(TEXT, 9));
        failed = disarm();
        expect_later(k, status, 204, failed);
        bad += status != 204 ? 1 : 0;
        assert_true(kit_go_on(k, TEXT));
    }
    assert_true(!COUNTED || bad > 5);
    kit_free(k);
}

static void test_questions(void **state)
{
    struct kit *k = kit_new();
    char files[100];
    char receipts[100];
    bool failed = true;
    (void)state;
    for (int accepted = 0; accepted < 2; accepted++) {
        kit_create(k, TEXT);
        assert_int_equal(kit_patch(k, 0, accepted ? TEXT : slice_of(text, 9)), 204);
        (void)kit_target(k, files);
        (void)snprintf(receipts, sizeof receipts, "/api/v1/receipts/%s", k->id);
        for (int head = 0; head < 2; head++) {
            failed = true;
            for (unsigned n = 1; failed; n++) {
                arm(n);
                unsigned status =
                    head ? ask(k, "HEAD", files, TUS, NONE) : ask(k, "GET", receipts, "", NONE);
                failed = disarm();
                expect_later(k, status, head || accepted ? 200 : 409, failed);
                if (head && status == 200) {
                    assert_int_equal(kit_offset(k) == TEXT.len, kit_has_receipt(k));
                }
            }
        }
        assert_true(kit_go_on(k, TEXT));
    }
    kit_free(k);
}

static void test_the_door_itself(void **state)
{
    struct artifact_options options = kit_options();
    struct kit *k = kit_new();
    bool failed = true;
    (void)state;
    options.data = k->dir;
    spared = false;
    for (unsigned n = 1; failed; n++) {
        struct artifact *a = NULL;
        struct err e = {0};
        arm(n);
        int r = artifact_new(&options, NULL, &a, &e);
        failed = disarm();
        assert_int_equal(r, failed ? ERR_NO_MEMORY : 0);
        assert_int_equal(a != NULL, r == 0);
        artifact_free(a);
    }
    spared = true;
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_creations),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_the_door_itself),
    };
    spared = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
