/* test_thread: requests with a thread of their own, over TCP and over a Unix socket: bodies of
 * every kind, 100 Continue, clients that go or are refused, the order of answers. What ends a body
 * from elsewhere, and calls that fail, are in test_thread_end. */
#include "tests/unit/http/thread_kit.h"

static char letters[4u << 20];

static void fill_letters(void)
{
    uint32_t x = 12345;

    for (size_t i = 0; i < sizeof letters; i++) {
        x = x * 1664525 + 1013904223;
        letters[i] = (char)(x >> 24);
    }
}

static int setup(void **state)
{
    struct http_config config = config_of_kit();

    (void)state;
    start_server(&config);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stop_server();
    return 0;
}

static void put_length(int fd, const char *path, size_t n, const char *more)
{
    char head[256];

    (void)snprintf(head, sizeof head, "PUT %s HTTP/1.1\r\n" H "Content-Length: %zu\r\n%s\r\n", path,
                   n, more);
    put_text(fd, head);
}

/* ---- bodies ---- */

static void test_lengths(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 70000, 1u << 20, 3000001};
    static const size_t caps[] = {0, 1u << 20, 1000};
    int fd = connect_to();

    (void)state;
    for (size_t c = 0; c < sizeof caps / sizeof caps[0]; c++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct job *j = &jobs[0];

            plan.cap = caps[c];
            put_length(fd, "/put", sizes[i], "");
            put(fd, letters, sizes[i]);
            put_text(fd, "GET /hello HTTP/1.1\r\n" H "\r\n");
            expect_answer(fd, 200, slice_of(letters, sizes[i]));
            expect_answer(fd, 200, SLICE("hello"));
            assert_true(j->left_first == sizes[i]);
            assert_int_equal(j->left_last, 0);
            assert_int_equal(j->again, 0);
            buf_free(&j->got);
            j->used = false;
        }
    }
    assert_int_equal(close(fd), 0);
}

static void test_without_a_body(void **state)
{
    int fd = connect_to();

    (void)state;
    put_text(fd, "GET /put HTTP/1.1\r\n" H "\r\n"
                 "HEAD /hello HTTP/1.1\r\n" H "\r\n"
                 "POST /put HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 0\r\n\r\n"
                 "GET /hello HTTP/1.1\r\n" H "\r\n");
    expect_answer(fd, 200, SLICE(""));
    {
        char head[512];
        size_t n = 0; /* of HEAD: it has a length and no body */

        while (n < 4 || memcmp(head + n - 4, "\r\n\r\n", 4) != 0) {
            assert_true(n < sizeof head);
            assert_int_equal(recv(fd, head + n, 1, 0), 1);
            n++;
        }
    }
    expect_answer(fd, 200, SLICE(""));
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
    assert_int_equal(value_of(&jobs_done), 2);
    assert_int_equal(jobs[0].left_first, 0);
}

/* A route without takes_body: the loop has read what there is. */
static void test_a_body_that_the_loop_has_read(void **state)
{
    int fd = connect_to();

    (void)state;
    put_length(fd, "/read", 0, "");
    expect_answer(fd, 200, SLICE(""));
    put_length(fd, "/read", 1, "");
    put_text(fd, "xGET /hello HTTP/1.1\r\n" H "\r\n");
    expect_answer(fd, 200, SLICE(""));
    expect_answer(fd, 200, SLICE("hello"));
    put_length(fd, "/read", 2, "");
    put_text(fd, "xy");
    expect_last(fd, 429, (struct slice){0}); /* the budget is one byte */
    assert_int_equal(value_of(&jobs_done), 2);
}

/* letters[0..n) in chunks of that size; the last part of it is in b->ptr. */
static void put_chunks(struct buf *b, size_t n, size_t chunk)
{
    for (size_t at = 0; at < n; at += chunk) {
        size_t part = n - at < chunk ? n - at : chunk;

        buf_printf(b, at < 1000 ? "%zx;ext\r\n" : "%zx\r\n", part);
        buf_put(b, letters + at, part);
        buf_put_cstr(b, "\r\n");
    }
    buf_put_cstr(b, "0\r\nTrailer: t\r\n\r\n");
}

static void test_chunks(void **state)
{
    static const size_t chunks[] = {1, 100, 65535, 65536, 200000, 1u << 20};
    static const size_t caps[] = {0, 3, 1u << 20};
    int fd = connect_to();

    (void)state;
    for (size_t c = 0; c < 2 * sizeof chunks / sizeof chunks[0]; c++) {
        size_t chunk = chunks[c / 2];
        size_t n = chunk < 1000 ? 5000 : 2 * chunk + 17;
        struct buf b = {0};

        plan.cap = caps[chunk < 1000 ? c % 2 : 2 * (c % 2)];
        buf_put_cstr(&b, "PUT /put HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
        put_chunks(&b, n, chunk);
        /* and two more behind it, the second of them chunked as well */
        buf_put_cstr(&b, "GET /hello HTTP/1.1\r\n" H "\r\nPUT /put HTTP/1.1\r\n" H
                         "Transfer-Encoding: chunked\r\n\r\n");
        put_chunks(&b, 300, 50);
        for (size_t at = 0; at < b.len; at += 99991) {
            put(fd, b.ptr + at, b.len - at < 99991 ? b.len - at : 99991);
        }
        expect_answer(fd, 200, slice_of(letters, n));
        expect_answer(fd, 200, SLICE("hello"));
        expect_answer(fd, 200, slice_of(letters, 300));
        assert_true(jobs[0].left_first == UINT64_MAX);
        assert_int_equal(jobs[0].left_last, 0);
        for (unsigned i = 0; i < 2; i++) {
            buf_free(&jobs[i].got);
            jobs[i].used = false;
        }
        buf_free(&b);
    }
    assert_int_equal(close(fd), 0);
}

static void test_malformed_chunks(void **state)
{
    static const char *const bodies[] = {"5\r\nhelloX\r\n", "g\r\n", "5\nhello",
                                         "1\r\nx\r\nffffffffffffffff\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        int fd = connect_to();

        put_text(fd, "PUT /put HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
        put_text(fd, bodies[i]);
        expect_last(fd, 200, SLICE("bad_request"));
        assert_int_equal(jobs[i].again, ERR_BAD_REQUEST);
        assert_true(jobs[i].left_last == UINT64_MAX);
    }
}

/* ---- 100 Continue ---- */

#define EXPECT    "Expect: 100-continue\r\n"
#define CONTINUED "HTTP/1.1 100 Continue\r\n\r\n"

static void expect_bytes(int fd, const char *text)
{
    char got[128];
    size_t n = strlen(text);

    assert_true(n < sizeof got);
    assert_int_equal(recv(fd, got, n, MSG_WAITALL), (ssize_t)n);
    assert_memory_equal(got, text, n);
}

static void test_continue_is_said(void **state)
{
    int fd = connect_to();

    (void)state;
    plan.gated = true;
    put_length(fd, "/put", 5, EXPECT);
    assert_true(reaches(&jobs_begun, 1));
    add(&gate);
    expect_bytes(fd, CONTINUED);
    put_text(fd, "hello");
    expect_answer(fd, 200, SLICE("hello"));
    put_text(fd, "PUT /put HTTP/1.1\r\n" H EXPECT "Transfer-Encoding: chunked\r\n\r\n");
    expect_bytes(fd, CONTINUED);
    put_text(fd, "5\r\nhello\r\n0\r\n\r\n");
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
}

static void test_continue_is_not_said(void **state)
{
    int fd = connect_to();

    (void)state;
    /* A first part of the body is there before the thread asks. */
    put_text(fd, "PUT /put HTTP/1.1\r\n" H EXPECT "Content-Length: 5\r\n\r\nhe");
    assert_true(reaches(&jobs_begun, 1));
    put_text(fd, "llo");
    expect_answer(fd, 200, SLICE("hello"));
    /* The same, in the kernel. */
    plan.gated = true;
    put_length(fd, "/put", 70000, EXPECT);
    assert_true(reaches(&jobs_begun, 2));
    put(fd, letters, 70000);
    add(&gate);
    expect_answer(fd, 200, slice_of(letters, 70000));
    /* The work answers without a read. */
    plan = (struct plan){.no_read = true};
    put_length(fd, "/put", 5, EXPECT);
    expect_last(fd, 200, SLICE(""));
    /* The door answers at once. */
    fd = connect_to();
    put_length(fd, "/refuse", 5, EXPECT);
    expect_last(fd, 403, (struct slice){0});
}

/* ---- clients that stall, or go ---- */

static void test_half_a_body(void **state)
{
    static const char *const heads[] = {"Content-Length: 10\r\n\r\n01234",
                                        "Transfer-Encoding: chunked\r\n\r\n5\r\n01234"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        int fd = connect_to();

        put_text(fd, "PUT /put HTTP/1.1\r\n" H);
        put_text(fd, heads[i]);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        expect_last(fd, 200, SLICE("connect_failed")); /* it can still be told */
        assert_true(slice_eq(buf_slice(&jobs[i].got), SLICE("01234")));
        assert_int_equal(jobs[i].again, ERR_CONNECT);
        assert_true(jobs[i].left_last == (i == 0 ? 5 : UINT64_MAX));
    }
}

/* All was sent, and then the client ends its side: nothing is lost by that. */
static void test_whole_body_and_an_end(void **state)
{
    int fd = connect_to();

    (void)state;
    put_length(fd, "/put", sizeof letters, "");
    put(fd, letters, sizeof letters);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect_answer(fd, 200, slice_of(letters, sizeof letters));
    expect_end(fd);
}

/* The door asks the pool before it takes a thread. */
static void test_thread_after_other_work(void **state)
{
    int fd = connect_to();

    (void)state;
    put_length(fd, "/later", 70000, EXPECT);
    expect_bytes(fd, CONTINUED);
    put(fd, letters, 70000);
    put_text(fd, "GET /hello HTTP/1.1\r\n" H "\r\n");
    expect_answer(fd, 200, slice_of(letters, 70000));
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
}

static void test_client_that_goes(void **state)
{
    static const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    int fd = connect_to();

    (void)state;
    /* while the thread waits */
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    assert_true(reaches(&jobs_begun, 1));
    assert_int_equal(close(fd), 0);
    assert_true(reaches(&jobs_done, 1));
    assert_int_equal(jobs[0].result, ERR_CONNECT);
    /* with a reset */
    fd = connect_to();
    plan.gated = true;
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    assert_true(reaches(&jobs_begun, 2));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    assert_int_equal(close(fd), 0);
    add(&gate);
    assert_true(reaches(&jobs_done, 2));
    assert_int_equal(jobs[1].result, ERR_CONNECT);
    /* when all was sent: the work is done, the answer goes nowhere */
    gate = 0;
    plan = (struct plan){.gated_end = true};
    fd = connect_to();
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\n01234");
    assert_true(reaches(&jobs_begun, 3));
    assert_int_equal(close(fd), 0);
    add(&gate);
    assert_true(reaches(&jobs_done, 3));
    assert_int_equal(jobs[2].result, 0);
    assert_int_equal(jobs[2].got.len, 5);
    assert_int_equal(jobs[2].left_last, 0);
}

/* ---- refusals ---- */

/* Clients send all of a body before they look for the answer, and must find it then. */
static void test_refused_unread(void **state)
{
    static const char *const paths[] = {"/refuse", "/head", "/put"};

    (void)state;
    plan.no_read = true;
    for (unsigned i = 0; i < 3; i++) {
        int fd = connect_to();

        put_length(fd, paths[i], 4 * sizeof letters, "");
        for (unsigned n = 0; n < 4; n++) {
            put(fd, letters, sizeof letters);
        }
        expect_last(fd, i == 2 ? 200 : 403, (struct slice){0});
    }
    assert_int_equal(value_of(&jobs_done), 1);
    assert_true(jobs[0].left_last == 4 * sizeof letters);
}

static void test_read_in_part(void **state)
{
    int fd = connect_to();

    (void)state;
    plan.at_most = 5000;
    put_length(fd, "/put", sizeof letters, "");
    put(fd, letters, sizeof letters);
    expect_last(fd, 200, slice_of(letters, 5000));
    assert_true(jobs[0].left_last == sizeof letters - 5000);
    /* What is behind such a body is no request. */
    fd = connect_to();
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 5001\r\n\r\n");
    put(fd, letters, 5001);
    put_text(fd, "GET /hello HTTP/1.1\r\n" H "\r\n");
    expect_last(fd, 200, slice_of(letters, 5000));
    /* HTTP/1.0: the connection ends anyway. */
    plan.at_most = 0;
    fd = connect_to();
    put_text(fd, "PUT /put HTTP/1.0\r\nContent-Length: 5\r\n\r\n");
    put_text(fd, "hello");
    expect_last(fd, 200, SLICE("hello"));
}

/* ---- order ---- */

static void test_behind_an_answer_that_is_not_there(void **state)
{
    int fd = connect_to();

    (void)state;
    put_text(fd, "GET /hold HTTP/1.1\r\n" H "\r\n"
                 "GET /hello HTTP/1.1\r\n" H "\r\n"
                 "PUT /put HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhe");
    assert_true(reaches(&holding, 1));
    put_text(fd, "lloGET /hello HTTP/1.1\r\n" H "\r\n");
    assert_int_equal(value_of(&jobs_begun), 0);
    assert_true(http_post(server, let_go, NULL));
    expect_answer(fd, 200, SLICE("held"));
    expect_answer(fd, 200, SLICE("hello"));
    expect_answer(fd, 200, SLICE("hello"));
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
}

/* The thread does not begin while an earlier answer is in the server. */
static void test_behind_an_answer_that_is_not_taken(void **state)
{
    int fd = connect_to();
    unsigned long long before = atomic_load(&bytes_sent);
    size_t n = 0;

    (void)state;
    put_text(fd, "GET /large HTTP/1.1\r\n" H "\r\n"
                 "PUT /put HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    while (n < 8u << 20) {
        ssize_t got = recv(fd, letters, sizeof letters, 0);

        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    while (recv(fd, letters, sizeof letters, 0) > 0) {
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(value_of(&jobs_done), 1);
    assert_int_equal(jobs[0].result, 0);
    assert_true(jobs[0].sent_first - before > 16u << 20);
    fill_letters();
}

/* It goes while its thread is due: the work is told so. */
static void test_gone_before_its_turn(void **state)
{
    static const struct linger hard = {.l_onoff = 1, .l_linger = 0};
    int fd = connect_to();

    (void)state;
    put_text(fd, "GET /hold HTTP/1.1\r\n" H "\r\n"
                 "PUT /put HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
    assert_true(reaches(&holding, 1));
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
    assert_int_equal(close(fd), 0);
    assert_true(reaches(&jobs_done, 1));
    assert_int_equal(jobs[0].result, ERR_CONNECT);
    assert_true(http_post(server, let_go, NULL));
}

/* A request that its door keeps: nothing of its body is taken for a request. */
static void test_kept_with_a_body(void **state)
{
    int fd = connect_to();

    (void)state;
    put_length(fd, "/hold", 100000, "");
    assert_true(reaches(&holding, 1));
    for (unsigned i = 0; i < 100; i++) {
        put_text(fd,
                 "GET /hello HTTP/1.1\r\n" H "\r\n"
                 "GET /hello HTTP/1.1\r\nHost: localhost\r\nNothing: 00000000000000000\r\n\r\n");
    }
    assert_true(http_post(server, let_go, NULL));
    expect_last(fd, 200, SLICE("held"));
}

static int64_t counting_sendv(int fd, const struct iovec *iov, int count)
{
    int64_t n = os_real.sendv(fd, iov, count);

    atomic_fetch_add(&bytes_sent, n > 0 ? (unsigned long long)n : 0);
    return n;
}

static int begin(bool local)
{
    static struct os_table table;

    table = os_real;
    table.sendv = counting_sendv;
    os_install(&table);
    on_unix = local;
    fill_letters();
    return 0;
}

static int on_tcp(void **state)
{
    (void)state;
    return begin(false);
}

static int on_local(void **state)
{
    (void)state;
    return begin(true);
}

static int end(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_lengths),
        T(test_without_a_body),
        T(test_a_body_that_the_loop_has_read),
        T(test_chunks),
        T(test_malformed_chunks),
        T(test_continue_is_said),
        T(test_continue_is_not_said),
        T(test_half_a_body),
        T(test_whole_body_and_an_end),
        T(test_thread_after_other_work),
        T(test_client_that_goes),
        T(test_refused_unread),
        T(test_read_in_part),
        T(test_behind_an_answer_that_is_not_there),
        T(test_behind_an_answer_that_is_not_taken),
        T(test_gone_before_its_turn),
        T(test_kept_with_a_body),
    };
#undef T
    int failed = cmocka_run_group_tests_name("tcp", tests, on_tcp, end);

    return failed + cmocka_run_group_tests_name("unix", tests, on_local, end);
}
