/* test_faults: the fault-injecting table, over the model disk and over the kernel's sockets. The
 * last test is the one the library is for: a scenario run once for each call it makes, with that
 * call failing. */
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/os/model_fixture.h"

static int setup_wrapped(void **state)
{
    (void)setup(state);
    faults_install(NULL);
    return 0;
}

static int teardown_wrapped(void **state)
{
    faults_uninstall();
    assert_ptr_equal(model_in_use(), m);
    return teardown(state);
}

static void names_of_calls(void **state)
{
    (void)state;
    assert_string_equal(os_call_name(OS_CALL_open), "open");
    assert_string_equal(os_call_name(OS_CALL_raise_nofile), "raise_nofile");
    assert_string_equal(os_call_name(OS_CALL_ANY), "any");
}

static void hits_are_counted(void **state)
{
    struct fault once = {.at = 2, .call = OS_CALL_pwrite, .path = "tail"};
    struct fault for_good = {.at = 2, .sticky = true};
    struct fault never = {.sticky = true};

    (void)state;
    assert_false(fault_hit(&once, OS_CALL_pwrite, "/m/tail"));
    assert_false(fault_hit(&once, OS_CALL_pread, "/m/tail"));
    assert_false(fault_hit(&once, OS_CALL_pwrite, "/m/other"));
    assert_false(fault_hit(&once, OS_CALL_pwrite, NULL));
    assert_true(fault_hit(&once, OS_CALL_pwrite, "/m/tail2"));
    assert_false(fault_hit(&once, OS_CALL_pwrite, "/m/tail"));
    assert_int_equal(once.seen, 3);
    assert_int_equal(once.fired, 1);
    assert_false(fault_hit(&for_good, OS_CALL_close, NULL));
    assert_false(fault_hit(&for_good, OS_CALL_socket, NULL)); /* not a file call */
    assert_true(fault_hit(&for_good, OS_CALL_close, NULL));
    assert_true(fault_hit(&for_good, OS_CALL_open, "x"));
    assert_int_equal(for_good.fired, 2);
    assert_false(fault_hit(&never, OS_CALL_open, "x"));
}

static void the_kth_call_fails_once_or_for_good(void **state)
{
    int a = make("/m/a", "1");
    int b = make("/m/b", "2");

    (void)state;
    assert_int_equal(faults_count(), 4);
    faults_reset();
    faults_arm(2, ENOSPC, false, FAULT_ERROR);
    assert_int_equal(os_pwrite(a, "x", 1, 0), 1);
    assert_int_equal(os_fdatasync(a), -ENOSPC);
    assert_int_equal(os_fdatasync(a), 0);
    assert_int_equal(faults_fired(), 1);
    faults_reset();
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_int_equal(os_fdatasync(a), -EIO);
    assert_int_equal(os_pwrite(b, "x", 1, 0), -EIO);
    assert_int_equal(faults_fired(), 2);
    faults_reset();
    assert_int_equal(os_fdatasync(a), 0);
    assert_int_equal(faults_count(), 1);
    assert_int_equal(faults_fired(), 0);
}

static void faults_are_aimed_by_call_and_path(void **state)
{
    int a = make("/m/a", "1");
    int b = make("/m/b", "2");

    (void)state;
    faults_count_only(OS_CALL_pwrite, "/b");
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(os_pwrite(a, "x", 1, 0), 1);
    assert_int_equal(os_fdatasync(b), 0);
    assert_int_equal(os_pwrite(b, "x", 1, 0), -EIO);
    assert_int_equal(faults_count(), 1);
    faults_reset(); /* the aim stays */
    assert_int_equal(os_pwrite(a, "x", 1, 0), 1);
    assert_int_equal(faults_count(), 0);
    assert_int_equal(os_close(b), 0);
    faults_count_only(OS_CALL_rename, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR_AFTER);
    assert_int_equal(os_rename("/m/a", "/m/c"), -EIO);
    has_not("/m/a");
    has("/m/c", "x");
}

static void counts_are_cut_short(void **state)
{
    int fd = make("/m/a", "");
    char back[8] = {0};

    (void)state;
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_arm(1, 0, true, FAULT_SHORT);
    assert_int_equal(os_pwrite(fd, "12345", 5, 0), 3);
    assert_int_equal(os_pwrite(fd, "1", 1, 0), 1); /* never nothing: that is FAULT_ZERO */
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_arm(1, 0, false, FAULT_ZERO);
    assert_int_equal(os_pwrite(fd, "9", 1, 0), 0);
    faults_count_only(OS_CALL_pwrite, NULL);
    faults_arm(1, ENOSPC, false, FAULT_ERROR_AFTER);
    assert_int_equal(os_pwrite(fd, "7", 1, 0), -ENOSPC);
    faults_count_only(OS_CALL_pread, NULL);
    faults_arm(1, 0, false, FAULT_SHORT);
    assert_int_equal(os_pread(fd, back, 3, 0), 2);
    assert_memory_equal(back, "72", 2);
    faults_count_only(OS_CALL_fdatasync, NULL);
    faults_arm(1, 0, true, FAULT_ZERO);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_true(model_pending(m) > 1);   /* it lied */
    faults_arm(2, 0, true, FAULT_SHORT); /* means nothing for a sync */
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(model_pending(m), 1);
}

static void opens_and_closes_leak_nothing(void **state)
{
    const struct model_options two = {.open_max = 2};
    int fd;

    (void)state;
    faults_uninstall();
    use(&two);
    faults_install(NULL);
    for (unsigned n = 0; n < 10; n++) {
        faults_reset();
        faults_arm(1, EMFILE, false, n % 2 ? FAULT_ERROR : FAULT_ERROR_AFTER);
        assert_int_equal(os_open("/m/a", O_RDWR | O_CREAT, 0600), -EMFILE);
    }
    for (unsigned n = 0; n < 10; n++) {
        fd = make("/m/a", "");
        faults_reset();
        faults_arm(1, EIO, false, FAULT_ERROR);
        assert_int_equal(os_close(fd), -EIO); /* closed all the same */
        assert_int_equal(os_close(fd), -EBADF);
    }
    faults_reset();
    faults_arm(1, EIO, false, FAULT_ZERO); /* no fault for an open */
    fd = make("/m/a", "");
    assert_true(fd >= MODEL_FD_BASE);
}

static void sockets_fail_too(void **state)
{
    int pair[2];
    char bytes[8] = "abcdefg";
    struct iovec iov[2] = {{bytes, 4}, {bytes + 4, 4}};

    (void)state;
    faults_uninstall();
    faults_install(&os_real);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    faults_count_only(OS_CALL_accept, NULL);
    faults_arm(1, EMFILE, true, FAULT_ERROR);
    assert_int_equal(os_accept(pair[0]), -EMFILE);
    faults_count_only(OS_CALL_sendv, NULL);
    faults_arm(1, 0, false, FAULT_SHORT);
    assert_int_equal(os_sendv(pair[0], iov, 2), 2);
    faults_reset();
    faults_arm(1, ECONNRESET, false, FAULT_ERROR_AFTER);
    assert_int_equal(os_sendv(pair[0], iov + 1, 1), -ECONNRESET);
    faults_reset();
    faults_arm(1, EPIPE, false, FAULT_ERROR);
    assert_int_equal(os_sendv(pair[0], iov, 1), -EPIPE);
    faults_reset();
    faults_arm(1, EPIPE, false, FAULT_ZERO);
    assert_int_equal(os_sendv(pair[0], iov, 1), 0);
    faults_count_only(OS_CALL_recv, NULL);
    faults_arm(1, 0, false, FAULT_SHORT);
    assert_int_equal(os_recv(pair[1], bytes, 8), 4);
    assert_memory_equal(bytes, "abef", 4);
    assert_int_equal(os_recv(pair[1], bytes, 8), 2);
    faults_count_only(OS_CALL_write, NULL);
    faults_arm(1, 0, false, FAULT_SHORT);
    assert_int_equal(os_write(pair[0], "xyz", 3), 2);
    faults_count_only(OS_CALL_read, NULL);
    faults_arm(1, EIO, false, FAULT_ERROR);
    assert_int_equal(os_read(pair[1], bytes, 8), -EIO);
    assert_int_equal(os_read(pair[1], bytes, 8), 2);
    faults_count_only(OS_CALL_clock_mono_ns, NULL);
    faults_arm(1, EIO, true, FAULT_ERROR);
    assert_true(os_clock_mono_ns() < UINT64_MAX / 2); /* clocks do not fail */
    assert_int_equal(os_close(pair[0]), 0);
    assert_int_equal(os_close(pair[1]), 0);
    faults_uninstall();
    model_use(m);
    faults_install(NULL);
}

static void lost_descriptors_are_forgotten(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 5000; n++) {
        assert_true(os_open("/m", O_RDONLY | O_DIRECTORY, 0) > 0);
    }
    faults_count_only(OS_CALL_fdatasync, "last");
    assert_int_equal(os_fdatasync(make("/m/last", "")), 0);
    assert_int_equal(faults_count(), 1);
}

static void every_file_call_can_fail(void **state)
{
    int results[32];

    (void)state;
    for (unsigned k = 0; k < OS_CALL_FILE_END - 1; k++) {
        for (unsigned after = 0; after < 2; after++) {
            int fd;

            faults_uninstall();
            use(NULL);
            faults_install(NULL);
            fd = make("/m/file", "1");
            faults_reset();
            faults_arm(k + 1, EDQUOT, false, after ? FAULT_ERROR_AFTER : FAULT_ERROR);
            assert_int_equal(each_call("/m", fd, results), OS_CALL_FILE_END - 1);
            assert_int_equal(results[k], -EDQUOT);
            assert_int_equal(faults_fired(), 1);
            /* With the call made all the same, the others find things as without a fault. */
            for (unsigned n = 0; n < OS_CALL_FILE_END - 1 && after; n++) {
                assert_true(n == k || results[n] >= 0);
            }
        }
    }
}

static void every_other_call_can_fail(void **state)
{
    char bytes[8];
    struct sockaddr *none = NULL;
    unsigned length = 0;
    struct epoll_event ev;
    uint64_t limit;
    int signal_number = 1;
    struct pollfd waited = {.fd = 0};

    (void)state;
#define FAILS(call, expression)                                                                  \
    do {                                                                                         \
        faults_count_only(OS_CALL_##call, NULL);                                                 \
        faults_arm(1, EPROTO, false, FAULT_ERROR);                                               \
        assert_int_equal(expression, -EPROTO);                                                   \
        faults_count_only(OS_CALL_##call, NULL);                                                 \
        faults_arm(1, EPROTO, false, FAULT_ERROR_AFTER); /* below, the model has no such call */ \
        assert_int_equal(expression, -EPROTO);                                                   \
        faults_reset();                                                                          \
    } while (0)
    FAILS(random, os_random(bytes, 8));
    FAILS(read, os_read(0, bytes, 8));
    FAILS(write, os_write(0, bytes, 8));
    FAILS(recv, os_recv(0, bytes, 8));
    FAILS(sendv, os_sendv(0, NULL, 0));
    FAILS(shutdown, os_shutdown(0, 0));
    FAILS(socket, os_socket(0, 0, 0));
    FAILS(bind, os_bind(0, none, 0));
    FAILS(listen, os_listen(0, 0));
    FAILS(accept, os_accept(0));
    FAILS(connect, os_connect(0, none, 0));
    FAILS(setsockopt, os_setsockopt(0, 0, 0, bytes, 0));
    FAILS(getsockname, os_getsockname(0, none, &length));
    FAILS(epoll_create, os_epoll_create());
    FAILS(epoll_ctl, os_epoll_ctl(0, 0, 0, &ev));
    FAILS(epoll_wait, os_epoll_wait(0, &ev, 1, 0));
    FAILS(eventfd, os_eventfd());
    FAILS(poll, os_poll(&waited, 1, 0));
    FAILS(poll_in, os_poll_in(0, 0));
    FAILS(reserve, os_reserve(0, 0, 1));
    FAILS(write_back, os_write_back(0, 0, 1, true));
    FAILS(drop_range, os_drop_range(0, 0, 1));
    FAILS(watch_dir, os_watch_dir("/"));
    FAILS(rename_new, os_rename_new("/a", "/b"));
    FAILS(link, os_link("/a", "/b"));
    FAILS(rmdir, os_rmdir("/a"));
    FAILS(signalfd, os_signalfd(&signal_number, 1));
    FAILS(raise_nofile, os_raise_nofile(&limit));
#undef FAILS
}

/* Replaces a file safely. 0, or the first failure; leaves no descriptor and either content. */
static int replace(const char *content)
{
    size_t n = strlen(content);
    int fd = os_open("/m/tmp", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int result;
    int closed;

    if (fd < 0) {
        return fd;
    }
    result = os_pwrite_all(fd, content, n, 0, NULL);
    result = result == 0 ? os_fdatasync(fd) : result;
    closed = os_close(fd);
    result = result == 0 ? closed : result;
    result = result == 0 ? os_rename("/m/tmp", "/m/file") : result;
    return result == 0 ? os_sync_dir("/m") : result;
}

static void a_scenario_survives_each_single_fault(void **state)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EMFILE, EINTR, ENOMEM};
    static const enum fault_kind kinds[] = {FAULT_ERROR, FAULT_ERROR_AFTER, FAULT_SHORT};
    unsigned runs = 0;
    uint64_t calls;

    (void)state;
    assert_int_equal(replace("one"), 0);
    calls = faults_count();
    assert_int_equal(calls, 8);
    for (uint64_t k = 1; k <= calls; k++) {
        for (unsigned e = 0; e < 6 * 3 * 2; e++) {
            enum fault_kind kind = kinds[e / 6 % 3];
            int result;

            faults_uninstall();
            use(NULL);
            faults_install(NULL);
            assert_int_equal(replace("one"), 0);
            faults_reset();
            faults_arm(k, errors[e % 6], e >= 18, kind);
            result = replace("two");
            assert_true(faults_fired() >= 1);
            assert_int_equal(result, kind == FAULT_SHORT ? 0 : -errors[e % 6]);
            faults_uninstall();
            cut(false);
            {
                char bytes[4];
                bool new;

                assert_int_equal(model_get(m, "/m/file", bytes, 3), 3);
                new = memcmp(bytes, "two", 3) == 0;
                assert_true(new || (result != 0 && memcmp(bytes, "one", 3) == 0));
            }
            faults_install(NULL);
            runs++;
        }
    }
    assert_int_equal(runs, 8 * 36);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup_wrapped, teardown_wrapped)
    const struct CMUnitTest tests[] = {
        T(names_of_calls),
        T(hits_are_counted),
        T(the_kth_call_fails_once_or_for_good),
        T(faults_are_aimed_by_call_and_path),
        T(counts_are_cut_short),
        T(opens_and_closes_leak_nothing),
        T(sockets_fail_too),
        T(lost_descriptors_are_forgotten),
        T(every_file_call_can_fail),
        T(every_other_call_can_fail),
        T(a_scenario_survives_each_single_fault),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
