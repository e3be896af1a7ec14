/* test_front: the whole front over a wire without a kernel (tests/http/wire.h): every cut, writes
 * of a few bytes, every failing call, slow clients, posts from other threads. */
#include <pthread.h>

#include "tests/unit/http/front_kit.h"

/* Requests of every kind; the last one is refused in the middle of its body. */
static const char script[] =
    "GET /hello HTTP/1.1\r\n" H "\r\n"
    "POST /turn HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nfirst"
    "POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    "3\r\nsec\r\n3;x\r\nond\r\n0\r\nT: r\r\n\r\n"
    "HEAD /hello HTTP/1.1\r\n" H "\r\n"
    "\r\nPUT /hello HTTP/1.1\r\n" H "\r\n"
    "GET /nowhere?a=b HTTP/1.1\r\n" H "\r\n"
    "POST /turn HTTP/1.1\r\n" H "Expect: 100-continue\r\n"
    "Content-Length: 100\r\n\r\n"
    "0123456789012345678901234567890123456789012345678901234567890123456789"
    "012345678901234567890123456789"
    "POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\nbad\r\nGET /hello HTTP/1.1\r\n" H "\r\n";

static void drop_interim(struct buf *b)
{
    static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
    size_t n = sizeof interim - 1;
    char *at = b->len == 0 ? NULL : memmem(b->ptr, b->len, interim, n);

    if (at != NULL) {
        memmove(at, at + n, b->len - (size_t)(at - b->ptr) - n);
        b->len -= n;
    }
}

/* What the script gives on a good day. */
static struct buf expected_output(void)
{
    struct buf out;

    wire = (struct wire){.ends = true};
    assert_int_equal(run(script, sizeof script - 1), 0);
    assert_true(wire.closed);
    assert_int_equal(stops, 1);
    out = wire.out;
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 200 OK\r\n"), 5);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 404 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 405 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "HTTP/1.1 400 "), 1);
    assert_int_equal(count_of(buf_slice(&out), "Connection: close\r\n"), 1);
    return out;
}

static void test_every_cut(void **state)
{
    struct buf whole = expected_output();

    (void)state;
    for (size_t piece = 1; piece < 256; piece += piece < 40 ? 1 : 17) {
        for (size_t sends = 0; sends < 3; sends++) {
            unsigned char cut = (unsigned char)piece;

            wire = (struct wire){.ends = true, .cuts = &cut, .cut_count = 1, .send_max = sends * 7};
            assert_int_equal(run(script, sizeof script - 1), 0);
            drop_interim(&wire.out);
            assert_true(slice_eq(buf_slice(&wire.out), buf_slice(&whole)));
            buf_free(&wire.out);
        }
    }
    buf_free(&whole);
}

static void test_writes_of_one_byte(void **state)
{
    struct buf whole = expected_output();

    (void)state;
    wire = (struct wire){.ends = true, .send_max = 1};
    assert_int_equal(run(script, sizeof script - 1), 0);
    assert_true(slice_eq(buf_slice(&wire.out), buf_slice(&whole)));
    buf_free(&wire.out);
    buf_free(&whole);
}

/* Each call fails once, with each of these; what was sent is the beginning of the right answer. */
static void test_every_call_fails(void **state)
{
    static const int errors[] = {EIO, EMFILE, ENOMEM, ECONNRESET, EPIPE, ECONNABORTED, EADDRINUSE};
    static const unsigned in_a_row[] = {1, 2, 3, 4};
    struct buf whole = expected_output();
    unsigned fired = 0;

    (void)state;
    for (size_t k = 0; k < 4 * sizeof errors / sizeof errors[0]; k++) {
        size_t i = k / 4;
        bool more = true;

        for (unsigned at = 1; more; at++) {
            unsigned char cut = 50;
            int result;

            wire = (struct wire){.ends = true,
                                 .cuts = &cut,
                                 .cut_count = 1,
                                 .send_max = 200,
                                 .fail_at = at,
                                 .fail_count = in_a_row[k % 4],
                                 .fail_with = errors[i]};
            result = run(script, sizeof script - 1);
            more = wire.failed;
            fired += more ? 1 : 0;
            drop_interim(&wire.out);
            assert_true(slice_starts(buf_slice(&whole), buf_slice(&wire.out)));
            if (!more) {
                assert_int_equal(result, 0);
                assert_int_equal(wire.out.len, whole.len);
            } else if (strcmp(wire.failed_name, "accept") == 0 && k % 4 == 0) {
                /* A failed accept is tried again: nothing is lost. */
                assert_int_equal(result, 0);
                assert_int_equal(wire.out.len, whole.len);
            } else if (result != 0) {
                assert_int_equal(wire.out.len, 0); /* it failed to start */
                if (strcmp(wire.failed_name, "bind") == 0 && errors[i] == EADDRINUSE) {
                    assert_int_equal(result, ERR_REFUSED);
                }
            }
            buf_free(&wire.out);
        }
    }
    print_message("%u faults\n", fired);
    assert_true(fired > 200);
    buf_free(&whole);
}

static void test_epoll_that_fails_ends_the_server(void **state)
{
    (void)state;
    for (unsigned turn = 1; turn < 6; turn++) {
        wire = (struct wire){.wait_fails_at = turn};
        assert_int_equal(run(script, 100), ERR_IO);
        buf_free(&wire.out);
    }
}

static void test_large_body_comes_straight_to_its_place(void **state)
{
    static const char head[] = "POST /work HTTP/1.1\r\n" H "Content-Length: 1048576\r\n\r\n";
    size_t n = sizeof head - 1 + (1u << 20);
    char *in = malloc(n);
    unsigned char cut = 0;

    (void)state;
    assert_non_null(in);
    memset(in, 'b', n);
    memcpy(in, head, sizeof head - 1);
    for (size_t cuts = 0; cuts < 2; cuts++) {
        wire = (struct wire){.ends = true, .cuts = &cut, .cut_count = cuts};
        assert_int_equal(run(in, n), 0);
        assert_int_equal(worked, 1);
        assert_true(wire.out.len > 1u << 20);
        assert_memory_equal(wire.out.ptr + wire.out.len - (1u << 20), in + sizeof head - 1,
                            1u << 20);
        buf_free(&wire.out);
    }
    free(in);
}

static void test_idle_and_slow_clients(void **state)
{
    static const struct {
        const char *in;
        const char *answer; /* beginning, "" for none */
        uint64_t from_ms;   /* when the connection is gone, linger included */
        uint64_t to_ms;
    } table[] = {
        {"", "", 75000, 79000},
        {"\r\n", "", 75000, 79000},
        {"GET /", "HTTP/1.1 408 ", 10000, 14000},
        {"GET /hello HTTP/1.1\r\n" H "\r\n", "HTTP/1.1 200 ", 75000, 79000},
        {"POST /turn HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\nx", "HTTP/1.1 408 ", 30000, 34000},
        {"POST /turn HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nab", "HTTP/1.1 408 ",
         30000, 34000},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        wire = (struct wire){0};
        ticks = 0;
        assert_int_equal(run(table[i].in, strlen(table[i].in)), 0);
        assert_true(wire.closed);
        assert_true(slice_starts(buf_slice(&wire.out), slice_cstr(table[i].answer)));
        assert_int_equal(wire.out.len == 0, table[i].answer[0] == '\0');
        assert_in_range(wire.now_ms, table[i].from_ms, table[i].to_ms);
        assert_in_range(ticks, wire.now_ms / 1000 - 3, wire.now_ms / 1000 + 1);
        buf_free(&wire.out);
    }
}

static void test_odd_answers(void **state)
{
    static const char text[] = "GET /odd HTTP/1.1\r\n" H "\r\nGET /odd? HTTP/1.1\r\n" H "\r\n";
    static const char good[] =
        "HTTP/1.1 299 Status\r\nContent-Length: 0\r\n\r\n"
        "HTTP/1.1 500 Internal Server Error\r\n"
        "Content-Type: application/json\r\nContent-Length: 57\r\n\r\n"
        "{\"error\":\"internal_error\",\"message\":\"a\\u000a\\\"b\\\"\\u0001\"}";

    (void)state;
    wire = (struct wire){.ends = true, .real_ms = UINT64_MAX}; /* a year that has no calendar */
    assert_int_equal(run(text, sizeof text - 1), 0);
    assert_int_equal(wire.out.len, sizeof good - 1);
    assert_memory_equal(wire.out.ptr, good, sizeof good - 1);
    buf_free(&wire.out);
}

/* ---- posts and stops from other threads ---- */

static void posted_stop(void *ctx)
{
    worked++;
    http_stop(ctx);
}

static void *poster(void *ctx)
{
    bool ok = true;

    for (int i = 0; i < 100; i++) {
        ok = ok && http_post(ctx, posted_stop, ctx);
    }
    return ok ? NULL : ctx;
}

static void test_post_from_another_thread(void **state)
{
    struct http_config config = {.limits = http_limits_default, .routes = routes, .route_count = 1};
    struct http_server *s;
    pthread_t thread;
    void *failed;
    struct err e;

    (void)state;
    worked = 0;
    s = http_new(&config, &e);
    assert_non_null(s);
    assert_false(http_stopping(s));
    assert_int_equal(pthread_create(&thread, NULL, poster, s), 0);
    assert_int_equal(http_run(s, &e), 0);
    assert_true(http_stopping(s));
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    http_free(s);
    assert_int_equal(worked, 100); /* none is lost, whenever it came */
}

/* A client that has ended its side and leaves its answer unread is waited for, not asked again and
 * again: the wire ends a loop that spins. */
static void test_half_closed_client_that_reads_nothing(void **state)
{
    static const char text[] = "GET /hello HTTP/1.1\r\n" H "\r\n";

    (void)state;
    wire = (struct wire){.ends = true, .stuck_out = true};
    assert_int_equal(run(text, sizeof text - 1), 0);
    assert_true(wire.closed);
    assert_int_equal(wire.out.len, 0);
    assert_in_range(wire.now_ms, 60000, 64000);
    assert_in_range(wire.turns, 1, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_writes_of_one_byte),
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_epoll_that_fails_ends_the_server),
        cmocka_unit_test(test_large_body_comes_straight_to_its_place),
        cmocka_unit_test(test_idle_and_slow_clients),
        cmocka_unit_test(test_half_closed_client_that_reads_nothing),
        cmocka_unit_test(test_odd_answers),
        cmocka_unit_test(test_post_from_another_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
