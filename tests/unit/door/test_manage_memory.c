/* test_manage_memory: every allocation that the loop makes for a request of the management API
 * fails once. The server must neither abort nor send half an answer, and must answer the next
 * request as ever.
 *
 * The allocator is replaced by functions that fail on the loop's thread only and else call glibc's
 * own; sanitizers have an allocator of their own, so under them the requests only run. Changes are
 * not in the table: what SQLite does without memory is the store's affair and tested there. */
#include <errno.h>

#include "http/pool.h"
#include "store/artifact/upload.h"
#include "tests/unit/door/manage_kit.h"

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

#define FAULTS_MAX 500u /* more than any request makes allocations */

static _Thread_local bool armed;
static _Thread_local unsigned allocations;
static _Thread_local unsigned fail_at;

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
    if (allocations != fail_at) {
        return false;
    }
    errno = ENOMEM; /* glibc looks at it when it makes a thread */
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

/* ---- on the loop's thread ---- */

struct arming {
    struct http_job job;
    unsigned fail_at; /* 0: disarm */
    bool fired;
    sem_t done;
};

static void arm_done(void *ctx)
{
    struct arming *a = ctx;

    a->fired = armed && allocations >= fail_at;
    fail_at = a->fail_at;
    allocations = 0;
    armed = fail_at != 0;
    (void)sem_post(&a->done);
}

/* True when the fault that was armed before has struck. */
static bool arm(struct kit *k, unsigned at)
{
    struct arming a = {.job = {.done = arm_done, .ctx = &a}, .fail_at = at};

    assert_int_equal(sem_init(&a.done, 0, 0), 0);
    http_post_job(k->server, &a.job);
    assert_int_equal(sem_wait(&a.done), 0);
    (void)sem_destroy(&a.done);
    return a.fired;
}

/* ---- the requests ---- */

struct row {
    const char *line;
    const char *body;
    unsigned status;
};

/* Nothing at all, or one whole answer. */
static void check_answer(int fd, const struct row *row)
{
    struct buf text = {0};
    char piece[4096];
    ssize_t n = recv(fd, piece, sizeof piece, 0);
    const char *at;
    unsigned status = 0;

    while (n > 0) {
        buf_put(&text, piece, (size_t)n);
        n = recv(fd, piece, sizeof piece, 0);
    }
    (void)close(fd);
    if (text.len != 0) {
        buf_put_char(&text, '\0');
        assert_int_equal(sscanf(text.ptr, "HTTP/1.1 %u ", &status), 1);
        if (status != row->status && status != 429 && status != 500) {
            fail_msg("%s: %s", row->line, text.ptr);
        }
        at = strstr(text.ptr, "Content-Length: ");
        assert_non_null(at);
        assert_int_equal(strlen(strstr(text.ptr, "\r\n\r\n") + 4), strtoul(at + 16, NULL, 10));
    }
    buf_free(&text);
}

static void artifact_state(void *ctx, struct manage_artifacts *out)
{
    (void)ctx;
    *out = (struct manage_artifacts){.writers = 1, .deliver_state = "off"};
}

static void test_every_allocation_fails_once(void **state)
{
    static const struct row table[] = {
        {"GET /readyz", NULL, 200},
        {"GET /metrics", NULL, 200},
        {"GET /api/v1/status", NULL, 200},
        {"GET /api/v1/projects", NULL, 200},
        {"GET /api/v1/projects/demo", NULL, 200},
        {"GET /api/v1/projects/demo/keys", NULL, 200},
        {"GET /api/v1/projects/demo/status", NULL, 200},
        {"GET /api/v1/projects/demo/rejected?limit=10", NULL, 200},
        {"POST /api/v1/projects", "{\"id\":1}", 400},
        {"POST /api/v1/projects",
         "{\"id\":\"a\",\"artifacts\":{\"sink\":\"directory\",\"directory\":\"/none/such\"}}", 400},
        {"GET /api/v1/artifacts/00112233445566778899aabbccddeeff", NULL, 404},
        {"POST /api/v1/projects/demo/keys",
         "{\"kind\":\"service\",\"name\":\"n\",\"scopes\":[\"query:read\",\"no\"]}", 400},
        {"POST /api/v1/projects/demo/query", "{\"sql\":\"select 1\",\"format\":\"csv\"}", 503},
        {"DELETE /api/v1/projects/demo/keys/x", NULL, 404},
    };
    struct kit *k = calloc(1, sizeof *k);
    char token[KEY_TEXT_MAX + 1];
    unsigned total = 0;
    struct err e = {0};
    const struct uploads_options options = {.data = k->dir, .issuer = ""};

    (void)state;
    assert_non_null(k);
    kit_start(k);
    k->manage.query.engine_socket = "/nonexistent/engine.sock";
    k->manage.artifact_status = artifact_state;
    assert_int_equal(uploads_open(&options, &k->manage.uploads, &e), 0);
    kit_run(k);
    kit_project(k, "demo", token);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        bool fired = true;
        unsigned at = 1;

        while (fired && at < FAULTS_MAX) {
            (void)arm(k, at);
            kit_may_refuse = true;
            check_answer(kit_send(k, "", table[i].line, table[i].body), &table[i]);
            kit_may_refuse = false;
            fired = arm(k, 0);
            at++;
        }
        assert_true(!fired);
        total += at - 2; /* the last fault did not strike, and `at` is one further */
        expect(k, "", table[i].line, table[i].body, table[i].status, "");
    }
    uploads_close(k->manage.uploads);
    kit_stop(k);
    print_message("%u allocations\n", total);
    assert_true(!COUNTED || total > 40);
    free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_fails_once)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
