/* test_live_turns: whose read is next when there are more live sources than workers, and one of
 * those that wait has no memory when its turn comes. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/conn.h"
#include "os/os.h"

#define STREAMS 4u

struct stream {
    struct http_conn conn;
    struct http_request req;
    unsigned reads;
};

static enum http_next next(void *ctx, struct buf *out)
{
    (void)ctx;
    (void)out;
    return HTTP_NEXT_READ;
}

static int64_t read_some(void *ctx, char *p, size_t cap)
{
    struct stream *s = ctx;

    assert_true(cap > 2);
    s->reads++;
    memcpy(p, "zz", 2);
    return 2;
}

static void begin(struct http_server *s, struct stream *t)
{
    *t = (struct stream){.conn = {.server = s},
                         .req = {.server = s,
                                 .conn = &t->conn,
                                 .source = {.read = read_some, .next = next},
                                 .source_ctx = t}};
    TAILQ_INIT(&t->conn.queue);
    TAILQ_INSERT_TAIL(&t->conn.queue, &t->req, link);
    t->conn.queue_count = 1;
    http_request_set_busy(&t->req, &t->req.streaming, true);
    http_stream_pull(&t->req);
}

/* The one read that is with the worker comes back to the loop. */
static void take_one(struct http_server *s)
{
    struct pollfd wake = {.fd = s->wake_fd, .events = POLLIN};
    uint64_t count;
    struct http_job *job;

    assert_int_equal(poll(&wake, 1, 30000), 1);
    assert_int_equal(os_read(s->wake_fd, &count, sizeof count), sizeof count);
    job = http_pool_take(&s->pool);
    assert_non_null(job);
    assert_null(job->next);
    job->done(job->ctx);
}

static void end(struct stream *t)
{
    http_stream_end(&t->req);
    buf_free(&t->req.out);
}

/* The two in the middle cannot be read: the last one must not wait for a read that never comes. */
static void test_those_behind_one_without_memory_have_their_turn(void **state)
{
    struct http_server s = {.config = {.limits = {.workers = 1}}};
    struct stream t[STREAMS];
    struct err e = {0};

    (void)state;
    TAILQ_INIT(&s.live);
    TAILQ_INIT(&s.dirty);
    s.wake_fd = os_eventfd();
    assert_true(s.wake_fd >= 0);
    assert_int_equal(http_pool_start(&s.pool, 1, s.wake_fd, &e), 0);
    for (unsigned i = 0; i < STREAMS; i++) {
        begin(&s, &t[i]);
        assert_int_equal(t[i].req.queued, i > 0);
    }
    t[1].req.out.limit = t[1].req.out.cap;
    t[2].req.out.limit = t[2].req.out.cap;
    take_one(&s);
    for (unsigned i = 1; i < STREAMS - 1; i++) {
        assert_true(t[i].req.out.failed);
        assert_true(t[i].conn.dirty); /* its end is the flush's */
        assert_false(t[i].req.queued);
        assert_false(t[i].req.reading);
    }
    assert_true(t[STREAMS - 1].req.reading);
    assert_int_equal(s.live_reads, 1);
    take_one(&s);
    assert_int_equal(s.live_reads, 0);
    assert_int_equal(t[0].reads, 1);
    assert_int_equal(t[1].reads + t[2].reads, 0);
    assert_int_equal(t[STREAMS - 1].reads, 1);
    http_pool_stop(&s.pool);
    for (unsigned i = 0; i < STREAMS; i++) {
        end(&t[i]);
    }
    assert_int_equal(os_close(s.wake_fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_those_behind_one_without_memory_have_their_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
