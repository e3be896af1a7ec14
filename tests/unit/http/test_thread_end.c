/* test_thread_end: what ends a body from elsewhere (other threads, the end of the server, a stall),
 * the limit and the cache of threads, and every call around them failing, with real sockets. */
#include "tests/unit/http/thread_kit.h"

/* ---- calls that a test has replaced ---- */

#define INTERIM_BYTES 25 /* of 100 Continue */

static atomic_int eventfd_gives; /* negative: every call */
static atomic_int eventfds;      /* open ones */
static atomic_int ctl_fails_op;  /* the next epoll_ctl of this operation fails */
static atomic_int wait_gives;    /* of epoll_wait */
static atomic_int poll_gives;
static atomic_int interim_step; /* of an interim answer: full, then 10 bytes, then all */
static atomic_int interim_gives;
static atomic_bool interim_hold; /* full again behind its first 10 bytes */
static atomic_ullong clock_ahead_ns;
static unsigned polls;
static unsigned woken; /* polls that saw the wake-up */
static unsigned closed_eventfds;
static int eventfd_list[64];

static int fake_eventfd(void)
{
    int gives = atomic_load(&eventfd_gives);
    int fd = gives != 0 ? gives : os_real.eventfd();

    if (fd >= 0) {
        eventfd_list[atomic_fetch_add(&eventfds, 1)] = fd;
    }
    return fd;
}

static int fake_close(int fd)
{
    for (int i = 0; i < atomic_load(&eventfds); i++) {
        if (eventfd_list[i] == fd) {
            eventfd_list[i] = -1;
            add(&closed_eventfds);
        }
    }
    return os_real.close(fd);
}

static int fake_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
    int wanted = op;

    if (atomic_compare_exchange_strong(&ctl_fails_op, &wanted, 0)) {
        return -ENOMEM;
    }
    return os_real.epoll_ctl(ep, op, fd, ev);
}

static int fake_epoll_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
    int gives = atomic_load(&wait_gives);

    return gives != 0 ? gives : os_real.epoll_wait(ep, ev, max, timeout_ms);
}

static int fake_poll(struct pollfd *fds, unsigned count, int timeout_ms)
{
    int gives = atomic_load(&poll_gives);

    add(&polls);
    gives = gives != 0 ? gives : os_real.poll(fds, count, timeout_ms);
    if (gives > 0 && fds[1].revents != 0) {
        add(&woken);
    }
    return gives;
}

static int64_t fake_sendv(int fd, const struct iovec *iov, int count)
{
    struct iovec part = iov[0];

    if (count != 1 || memmem("HTTP/1.1 100 Continue\r\n\r\n", INTERIM_BYTES, part.iov_base,
                             part.iov_len) == NULL) {
        return os_real.sendv(fd, iov, count);
    }
    if (atomic_load(&interim_gives) != 0) {
        return atomic_load(&interim_gives);
    }
    switch (atomic_fetch_add(&interim_step, 1)) {
    case 0:
        return -EAGAIN;
    case 1:
        part.iov_len = 10;
        atomic_store(&interim_gives, atomic_load(&interim_hold) ? -EAGAIN : 0);
        return os_real.sendv(fd, &part, 1);
    case 2:
        return -EAGAIN;
    default:
        return os_real.sendv(fd, iov, count);
    }
}

static uint64_t fake_clock(void)
{
    return os_real.clock_mono_ns() + atomic_load(&clock_ahead_ns);
}

static struct os_table table;

static int setup_group(void **state)
{
    (void)state;
    table = os_real;
    table.eventfd = fake_eventfd;
    table.close = fake_close;
    table.epoll_ctl = fake_epoll_ctl;
    table.epoll_wait = fake_epoll_wait;
    table.poll = fake_poll;
    table.sendv = fake_sendv;
    table.clock_mono_ns = fake_clock;
    os_install(&table);
    return 0;
}

static int teardown_group(void **state)
{
    (void)state;
    os_install(NULL);
    return 0;
}

static void begin_with(struct http_config config)
{
    atomic_store(&eventfd_gives, 0);
    atomic_store(&eventfds, 0);
    atomic_store(&ctl_fails_op, 0);
    atomic_store(&wait_gives, 0);
    atomic_store(&poll_gives, 0);
    atomic_store(&interim_step, 9);
    atomic_store(&interim_gives, 0);
    atomic_store(&interim_hold, false);
    polls = woken = closed_eventfds = 0;
    start_server(&config);
}

/* A request whose work has begun and waits for more of its body. */
static int begin_upload(const char *path, unsigned number)
{
    int fd = connect_to();

    put_text(fd, "PUT ");
    put_text(fd, path);
    put_text(fd, " HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    assert_true(reaches(&jobs_begun, number));
    return fd;
}

/* ---- ends ---- */

static void test_ended_by_another_thread(void **state)
{
    unsigned seen;
    unsigned waits;
    int fd;

    (void)state;
    begin_with(config_of_kit());
    plan.gated_end = true; /* work must not be over before http_body_end is */
    fd = begin_upload("/put", 1);
    assert_true(reaches(&polls, 1)); /* it waits, or is about to */
    http_body_end(jobs[0].body, ERR_UPLOADS_BUSY);
    http_body_end(jobs[0].body, ERR_IO); /* the first code wins */
    add(&gate);
    expect_last(fd, 200, SLICE("uploads_busy"));
    assert_int_equal(jobs[0].again, ERR_UPLOADS_BUSY);
    assert_int_equal(jobs[0].left_last, 5);
    /* The thread is used again, and its wake-up is no longer there. */
    seen = value_of(&woken);
    waits = value_of(&polls);
    fd = begin_upload("/put", 2);
    assert_true(reaches(&polls, waits + 1));
    put_text(fd, "56789");
    expect_answer(fd, 200, SLICE("0123456789"));
    assert_int_equal(close(fd), 0);
    assert_int_equal(value_of(&woken), seen);
    /* Before the first read; then also what has come is lost. */
    gate = 0;
    plan = (struct plan){.gated = true};
    fd = begin_upload("/put", 3);
    http_body_end(jobs[2].body, ERR_UPLOADS_BUSY);
    add(&gate);
    expect_last(fd, 200, SLICE("uploads_busy"));
    assert_int_equal(jobs[2].got.len, 0);
    /* Behind the end of the body: it was read in full, and so it stays. */
    plan = (struct plan){.gated_end = true};
    gate = 0;
    fd = begin_upload("/put", 4);
    put_text(fd, "56789");
    assert_true(reaches(&jobs_read, 4));
    http_body_end(jobs[3].body, ERR_IO);
    add(&gate);
    expect_answer(fd, 200, SLICE("0123456789"));
    assert_int_equal(jobs[3].again, 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(atomic_load(&eventfds), 2); /* the loop's, and one thread's */
    stop_server();
}

static void test_stall(void **state)
{
    struct http_config config = config_of_kit();
    struct buf b = {0};
    int fd;

    (void)state;
    config.limits.body_stall_ms = 20;
    begin_with(config);
    fd = begin_upload("/put", 1);
    expect_last(fd, 200, SLICE("request_timeout"));
    assert_int_equal(jobs[0].again, ERR_REQUEST_TIMEOUT);
    assert_int_equal(jobs[0].got.len, 5);
    /* tus-js-client comes again after 503, and gives up on 408. */
    fd = begin_upload("/files", 2);
    assert_int_equal(take_answer(fd, &b), 503);
    assert_non_null(strstr(b.ptr, "Retry-After: 1\r\n"));
    assert_non_null(strstr(b.ptr, "Tus-Resumable: 1.0.0\r\n"));
    assert_non_null(strstr(b.ptr, "\r\n\r\nERR_REQUEST_TIMEOUT: It did not work.\n"));
    buf_free(&b);
    expect_end(fd);
    stop_server();
}

/* ---- the end of the server ---- */

static void test_stop_ends_bodies(void **state)
{
    int fds[3];

    (void)state;
    begin_with(config_of_kit());
    fds[0] = begin_upload("/put", 1);
    fds[1] = begin_upload("/put", 2);
    plan.gated = true;
    fds[2] = begin_upload("/put", 3);
    http_stop(server);
    expect_last(fds[0], 200, SLICE("not_ready"));
    expect_last(fds[1], 200, SLICE("not_ready"));
    assert_int_equal(value_of(&jobs_done), 2); /* the third has not looked yet: it has its time */
    add(&gate);
    expect_last(fds[2], 200, SLICE("not_ready"));
    join_server();
    assert_int_equal(run_result, 0);
    free_server();
}

/* What was asked for before the stop and has its turn behind it: its body has ended, too. */
static void test_stop_before_its_turn(void **state)
{
    int fd;

    (void)state;
    begin_with(config_of_kit());
    fd = connect_to();
    put_text(fd, "GET /hold HTTP/1.1\r\n" H "\r\n"
                 "PUT /put HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    assert_true(reaches(&holding, 1));
    http_stop(server);
    assert_true(http_post(server, let_go, NULL));
    expect_answer(fd, 200, SLICE("held"));
    expect_last(fd, 200, SLICE("not_ready"));
    join_server();
    free_server();
}

/* When the grace is over the client is cut off, though the work still runs to its end. */
static void test_grace(void **state)
{
    struct http_config config = config_of_kit();
    int fd;

    (void)state;
    config.limits.grace_ms = 20;
    begin_with(config);
    plan.gated = true;
    fd = begin_upload("/put", 1);
    http_stop(server);
    expect_end(fd);
    assert_int_equal(value_of(&jobs_over), 0);
    add(&gate);
    join_server();
    assert_int_equal(value_of(&jobs_done), 1);
    assert_int_equal(jobs[0].result, ERR_NOT_READY);
    free_server();
}

/* The loop has died: http_free ends what reads, and waits for the threads. */
static void test_free_with_threads_at_work(void **state)
{
    int fd;
    int due;

    (void)state;
    begin_with(config_of_kit());
    fd = begin_upload("/put", 1);
    due = connect_to();
    put_text(due, "GET /hold HTTP/1.1\r\n" H "\r\n"
                  "PUT /put HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    assert_true(reaches(&holding, 1));
    atomic_store(&wait_gives, -EBADF);
    assert_true(http_post(server, let_go, NULL));
    join_server();
    assert_int_equal(run_result, ERR_IO);
    http_free(server);
    assert_int_equal(jobs[0].result, ERR_NOT_READY);
    assert_int_equal(close(fd), 0);
    assert_int_equal(close(due), 0);
    check_server();
}

/* ---- the threads ---- */

static void test_threads_max(void **state)
{
    struct http_config config = config_of_kit();
    int fds[3];

    (void)state;
    config.limits.threads_max = 2;
    begin_with(config);
    plan.gated = true;
    fds[0] = begin_upload("/put", 1);
    fds[1] = begin_upload("/put", 2);
    fds[2] = connect_to();
    put_text(fds[2], "PUT /files HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    expect_last(fds[2], 503, SLICE("ERR_OVERLOADED: No thread.\n"));
    assert_int_equal(value_of(&refused), 1);
    add(&gate);
    for (unsigned i = 0; i < 2; i++) {
        put_text(fds[i], "56789");
        expect_answer(fds[i], 200, SLICE("0123456789"));
        put_text(fds[i], "PUT /put HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx");
        expect_answer(fds[i], 200, SLICE("x"));
        assert_int_equal(close(fds[i]), 0);
    }
    assert_int_equal(atomic_load(&eventfds), 3);
    stop_server();
}

static void test_no_descriptor_for_a_thread(void **state)
{
    int fd;

    (void)state;
    begin_with(config_of_kit());
    atomic_store(&eventfd_gives, -EMFILE);
    fd = connect_to();
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx");
    expect_last(fd, 429, (struct slice){0});
    atomic_store(&eventfd_gives, 1 << 20); /* a descriptor that is for files */
    fd = connect_to();
    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx");
    expect_last(fd, 429, (struct slice){0});
    atomic_store(&eventfd_gives, 0);
    fd = begin_upload("/put", 1);
    put_text(fd, "56789");
    expect_answer(fd, 200, SLICE("0123456789"));
    assert_int_equal(close(fd), 0);
    stop_server();
}

static void test_idle_threads_end(void **state)
{
    int fds[2];

    (void)state;
    begin_with(config_of_kit());
    fds[0] = begin_upload("/put", 1);
    fds[1] = begin_upload("/put", 2);
    for (unsigned i = 0; i < 2; i++) {
        put_text(fds[i], "56789");
        expect_answer(fds[i], 200, SLICE("0123456789"));
    }
    assert_int_equal(atomic_load(&eventfds), 3);
    assert_int_equal(value_of(&closed_eventfds), 0);
    atomic_fetch_add(&clock_ahead_ns, 11000000000u); /* 11 s */
    assert_true(reaches(&closed_eventfds, 2));
    put_text(fds[0], "PUT /put HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nx");
    expect_answer(fds[0], 200, SLICE("x"));
    assert_int_equal(close(fds[0]), 0);
    assert_int_equal(close(fds[1]), 0);
    stop_server();
}

/* ---- calls that fail ---- */

static void test_epoll_fails(void **state)
{
    int fd;

    (void)state;
    begin_with(config_of_kit());
    atomic_store(&ctl_fails_op, EPOLL_CTL_DEL);
    fd = begin_upload("/put", 1);
    expect_end(fd);
    assert_true(reaches(&jobs_done, 1));
    assert_int_equal(jobs[0].result, ERR_CONNECT);
    fd = begin_upload("/put", 2);
    atomic_store(&ctl_fails_op, EPOLL_CTL_ADD);
    put_text(fd, "56789");
    expect_end(fd);
    assert_true(reaches(&jobs_done, 2));
    assert_int_equal(jobs[1].got.len, 10);
    stop_server();
}

static void test_poll_fails(void **state)
{
    int fd;

    (void)state;
    begin_with(config_of_kit());
    atomic_store(&poll_gives, -ENOMEM);
    fd = begin_upload("/put", 1);
    expect_end(fd);
    assert_true(reaches(&jobs_done, 1));
    assert_int_equal(jobs[0].result, ERR_CONNECT);
    stop_server();
}

/* ---- 100 Continue to a socket that is full ---- */

static const char continued[] = "HTTP/1.1 100 Continue\r\n\r\n";

static int ask_for_continue(void)
{
    int fd = connect_to();

    put_text(fd, "PUT /put HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    return fd;
}

static void expect_continue(int fd)
{
    char got[INTERIM_BYTES];

    assert_int_equal(recv(fd, got, sizeof got, MSG_WAITALL), sizeof got);
    assert_memory_equal(got, continued, sizeof got);
}

static void test_continue_in_parts(void **state)
{
    int fd;

    (void)state;
    begin_with(config_of_kit());
    atomic_store(&interim_step, 0);
    fd = ask_for_continue();
    expect_continue(fd);
    put_text(fd, "hello");
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
    /* Its first part has left when the body is ended: the rest comes before the answer. */
    atomic_store(&interim_step, 1);
    atomic_store(&interim_hold, true);
    plan.gated_end = true;
    fd = ask_for_continue();
    {
        char ten[10];

        assert_int_equal(recv(fd, ten, sizeof ten, MSG_WAITALL), sizeof ten);
        assert_memory_equal(ten, continued, sizeof ten);
        http_body_end(jobs[1].body, ERR_UPLOADS_BUSY);
        add(&gate);
        assert_int_equal(recv(fd, ten, sizeof ten, MSG_WAITALL), sizeof ten);
        assert_memory_equal(ten, continued + 10, sizeof ten);
        assert_int_equal(recv(fd, ten, 5, MSG_WAITALL), 5);
        assert_memory_equal(ten, continued + 20, 5);
    }
    expect_last(fd, 200, SLICE("uploads_busy"));
    /* None of it has: it is left out. */
    gate = 0;
    fd = ask_for_continue();
    assert_true(reaches(&jobs_begun, 3));
    http_body_end(jobs[2].body, ERR_UPLOADS_BUSY);
    add(&gate);
    expect_last(fd, 200, SLICE("uploads_busy"));
    /* The client does not wait for it after all. */
    fd = ask_for_continue();
    assert_true(reaches(&jobs_begun, 4));
    put_text(fd, "he");
    assert_true(reaches(&job_reads, 2));
    atomic_store(&interim_gives, 0); /* what was due is no more, though it could be said now */
    for (unsigned i = 0; i < 20; i++) {
        int other = connect_to();

        put_text(other, "GET /hello HTTP/1.1\r\n" H "\r\n");
        expect_answer(other, 200, SLICE("hello"));
        assert_int_equal(close(other), 0);
    }
    put_text(fd, "llo");
    expect_answer(fd, 200, SLICE("hello"));
    assert_int_equal(close(fd), 0);
    /* It cannot be said. */
    atomic_store(&interim_gives, -EPIPE);
    fd = ask_for_continue();
    expect_end(fd);
    assert_true(reaches(&jobs_done, 5));
    assert_int_equal(jobs[4].result, ERR_CONNECT);
    stop_server();
}

static int on_tcp(void **state)
{
    on_unix = false;
    return setup_group(state);
}

static int on_local(void **state)
{
    on_unix = true;
    return setup_group(state);
}

int main(void)
{
#define T(f) cmocka_unit_test(f)
    const struct CMUnitTest tests[] = {
        T(test_ended_by_another_thread),
        T(test_stall),
        T(test_stop_ends_bodies),
        T(test_stop_before_its_turn),
        T(test_grace),
        T(test_free_with_threads_at_work),
        T(test_threads_max),
        T(test_no_descriptor_for_a_thread),
        T(test_idle_threads_end),
        T(test_epoll_fails),
        T(test_poll_fails),
        T(test_continue_in_parts),
    };
#undef T
    int failed = cmocka_run_group_tests_name("tcp", tests, on_tcp, teardown_group);

    return failed + cmocka_run_group_tests_name("unix", tests, on_local, teardown_group);
}
