/* test_capture_memory: every allocation that the server makes for a request fails once: door, front
 * and SQLite. The client then hears "later" or nothing, never a 4xx that would make it drop its
 * events, and never a 200 for what is not stored; sent again, the event is there once.
 *
 * The allocator is replaced by functions that count and then call glibc's own; sanitizers have an
 * allocator of their own, so under them nothing fails and the requests only run. */
#include <zlib.h>

#include "tests/unit/door/capture_kit.h"

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

static _Thread_local bool spared; /* the test itself */
static _Atomic bool armed;
static _Atomic unsigned allocations, fail_at, failures;

#if COUNTED
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static bool must_fail(void)
{
    if (spared || !armed) {
        return false;
    }
    if (++allocations != fail_at) {
        return false;
    }
    failures++;
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
#endif

static struct kit *k;
static size_t sent; /* different events so far */
static size_t stored_by_old_kits;

/* 0: the connection ended without an answer. */
static unsigned exchange(const char *method, const char *target, const char *headers,
                         struct slice body)
{
    struct buf all = {0};
    char piece[4096];
    unsigned status = 0;
    int fd = kit_connect(k, true);
    buf_printf(&all,
               "%s %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
               method, target, body.len, headers);
    buf_put_slice(&all, body);
    kit_send(fd, all.ptr, all.len);
    buf_clear(&k->answer);
    for (ssize_t got = 1; got > 0;) {
        got = recv(fd, piece, sizeof piece, 0);
        buf_put(&k->answer, piece, got > 0 ? (size_t)got : 0);
    }
    (void)close(fd);
    buf_free(&all);
    struct slice answer = buf_slice(&k->answer);
    if (answer.len > 12 && slice_starts(answer, SLICE("HTTP/1.1 "))) {
        buf_put_char(&k->answer, '\0');
        k->answer.len--;
        status = (unsigned)strtoul(k->answer.ptr + 9, NULL, 10);
    }
    return status;
}

static void fresh_kit(void)
{
    if (k != NULL) {
        stored_by_old_kits += kit_queued(k);
        kit_free(k);
    }
    k = kit_new(&store_options_default, &OPTIONS, NULL, NULL);
}

enum shape { PLAIN, ZIPPED, V1, SEGMENT, NATIVE, SHAPES };

static struct buf zipped(const struct buf *in)
{
    struct buf out = {0};
    z_stream z = {.next_in = (unsigned char *)in->ptr, .avail_in = (uInt)in->len};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_true(buf_reserve(&out, in->len + 1000));
    z.next_out = (unsigned char *)out.ptr;
    z.avail_out = (uInt)out.cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.len = z.total_out;
    (void)deflateEnd(&z);
    return out;
}

/* A request of two new events; one is bad where that costs nothing. */
static void make(enum shape shape, unsigned n, char target[100], char headers[400],
                 struct buf *body)
{
    char uuid[UUID_TEXT_LEN + 1];
    (void)snprintf(uuid, sizeof uuid, "01890a5d-ac96-774b-bcce-%04x%08x", (unsigned)shape, n);
    (void)snprintf(target, 100, "%s", "/batch/");
    headers[0] = '\0';
    if (shape == PLAIN || shape == ZIPPED) {
        buf_printf(
            body,
            "{\"api_key\":\"%s\",\"batch\":[{\"event\":\"\\u0061\",\"distinct_id\":\"\\u0000\","
            "\"uuid\":\"%s\"},{\"event\":7}]}",
            k->token, uuid);
    } else if (shape == V1) {
        (void)snprintf(target, 100, "%s", "/i/v1/analytics/events");
        (void)snprintf(headers, 400,
                       "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
                       "PostHog-Sdk-Info: a/1\r\nPostHog-Attempt: 1\r\nPostHog-Request-Id: %s\r\n"
                       "PostHog-Request-Timestamp: 2026-11-30T12:00:00Z\r\n",
                       k->token, uuid);
        buf_printf(
            body,
            "{\"created_at\":\"2026-11-30T12:00:00Z\",\"batch\":[{\"event\":\"\\u0061\","
            "\"distinct_id\":\"d\",\"uuid\":\"%s\",\"timestamp\":\"2026-11-30T12:00:00Z\"}]}",
            uuid);
    } else if (shape == SEGMENT) {
        (void)snprintf(target, 100, "%s", "/v1/batch");
        buf_printf(body,
                   "{\"batch\":[{\"type\":\"track\",\"event\":\"\\u0061\",\"userId\":\"u\","
                   "\"messageId\":\"%s\"}],\"context\":{\"a\":1},\"writeKey\":\"%s\"}",
                   uuid, k->token);
    } else {
        (void)snprintf(target, 100, "%s", "/api/v1/projects/demo/events");
        (void)snprintf(headers, 400, "Authorization: Bearer %s\r\n", k->writer);
        buf_printf(body, "{\"events\":[{\"event\":\"\\u0061\",\"message_id\":\"%s\"}]}", uuid);
    }
    if (shape == ZIPPED) {
        struct buf z = zipped(body);
        buf_free(body);
        *body = z;
        (void)snprintf(headers, 400, "Content-Encoding: gzip\r\n");
    }
}

/* false: that many allocations are not made. */
static bool one(enum shape shape, unsigned n)
{
    char target[100];
    char headers[400];
    struct buf body = {0};
    make(shape, n, target, headers, &body);
    allocations = 0;
    failures = 0;
    fail_at = n;
    armed = true;
    unsigned first = exchange("POST", target, headers, buf_slice(&body));
    armed = false;
    bool failed = failures > 0;
    if (first != 200 && first != 0 && first != 429 && first < 500) {
        fail_msg("%u: %.*s", first, (int)k->answer.len, k->answer.ptr);
    }
    assert_true(failed || first == 200);
    size_t queued = kit_queued(k) + stored_by_old_kits;
    assert_true(queued == sent || queued == sent + 1);
    assert_true(first != 200 || queued == sent + 1);
    if (first != 200 && first != 0 && queued != sent) {
        /* Stored, and no memory to say so. */
        assert_has(buf_slice(&k->answer), "send the same again");
    }
    sent++;
    /* Memory is there again; a store that is not sure of its disk any more is opened anew. */
    unsigned again = exchange("POST", target, headers, buf_slice(&body));
    if (again == 503 && memmem(k->answer.ptr, k->answer.len, "restart", 7) != NULL) {
        fresh_kit();
        sent = stored_by_old_kits;
    } else {
        assert_int_equal(again, 200);
        assert_int_equal(kit_queued(k) + stored_by_old_kits, sent);
    }
    buf_free(&body);
    return failed;
}

static void test_every_allocation(void **state)
{
    unsigned fired = 0;
    (void)state;
    fresh_kit();
    for (int shape = 0; shape < SHAPES; shape++) {
        unsigned n = 1;
        while (one((enum shape)shape, n)) {
            n++;
            fired++;
        }
        assert_true(!COUNTED || n > 3);
    }
    print_message("%u allocations failed\n", fired);
    kit_free(k);
}

/* What SDKs are told about themselves is whole, or not there. */
static void test_static_answers(void **state)
{
    static const char *const targets[] = {"/flags/?v=2", "/decide/?v=3", "/array/key/config",
                                          "/array/key/config.js", "/v1/projects/key/settings"};
    (void)state;
    k = NULL;
    fresh_kit();
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        unsigned status = 0;
        failures = 1;
        for (unsigned n = 1; failures > 0; n++) {
            allocations = 0;
            failures = 0;
            fail_at = n;
            armed = true;
            status = exchange("GET", targets[i], "", (struct slice){0});
            armed = false;
            assert_true(status == 200 || status == 503 || status == 429 || status == 0);
            assert_true(status == 200 || failures > 0);
        }
        assert_int_equal(status, 200);
    }
    kit_free(k);
}

static void test_a_new_door(void **state)
{
    struct capture_options options = OPTIONS;
    unsigned refused = 0;
    (void)state;
    k = NULL;
    fresh_kit();
    failures = 1;
    for (unsigned n = 1; failures > 0; n++) {
        allocations = 0;
        failures = 0;
        fail_at = n;
        spared = false;
        armed = true;
        struct capture *c = capture_new(k->store, &options, NULL, NULL);
        armed = false;
        spared = true;
        assert_int_equal(c == NULL, failures > 0);
        refused += c == NULL ? 1 : 0;
        capture_free(c);
    }
    assert_true(!COUNTED || refused == 2);
    kit_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_static_answers),
        cmocka_unit_test(test_a_new_door),
    };
    spared = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
