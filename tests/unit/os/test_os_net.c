/* test_os_net: the kernel's calls that are not about files: clocks, limits, loopback sockets,
 * events, signals, and the interruptions that callers never see. */
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/os.h"

/* ---- time, chance, limits ---- */

static void clocks_and_chance(void **state)
{
    uint64_t before = os_clock_mono_ns();
    unsigned char a[64] = {0};
    unsigned char b[64] = {0};
    uint64_t limit = 0;
    struct rlimit now;
    void *not_ours = (void *)(uintptr_t)1;

    (void)state;
    assert_true(os_clock_mono_ns() >= before);
    assert_true(os_clock_real_ms() > 1700000000000u);
    assert_true(os_clock_real_ms() - (uint64_t)time(NULL) * 1000 < 10000);
    assert_int_equal(os_random(a, sizeof a), 0);
    assert_int_equal(os_random(b, sizeof b), 0);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(os_random(not_ours, 8), -EFAULT);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    now.rlim_cur = 64;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(os_raise_nofile(&limit), 0);
    assert_int_equal(limit, now.rlim_max);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, now.rlim_max);
    assert_int_equal(os_raise_nofile(&limit), 0);
}

/* ---- sockets and events ---- */

struct pair {
    int listener;
    int client;
    int server;
};

static void wait_for(int fd, short events)
{
    struct pollfd p = {fd, events, 0};

    assert_int_equal(poll(&p, 1, 5000), 1);
}

static struct pair pair_make(void)
{
    struct pair p;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *address = (struct sockaddr *)&a;
    unsigned length = sizeof a;
    int on = 1;
    int connected;

    p.listener = os_socket(AF_INET, SOCK_STREAM, 0);
    assert_true(p.listener >= 0);
    assert_int_equal(os_setsockopt(p.listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(os_bind(p.listener, address, sizeof a), 0);
    assert_int_equal(os_listen(p.listener, 8), 0);
    assert_int_equal(os_accept(p.listener), -EAGAIN);
    assert_int_equal(os_getsockname(p.listener, address, &length), 0);
    assert_true(a.sin_port != 0);
    p.client = os_socket(AF_INET, SOCK_STREAM, 0);
    connected = os_connect(p.client, address, sizeof a);
    assert_true(connected == 0 || connected == -EINPROGRESS);
    wait_for(p.listener, POLLIN);
    p.server = os_accept(p.listener);
    assert_true(p.server >= 0);
    wait_for(p.client, POLLOUT);
    return p;
}

static void pair_close(struct pair p)
{
    assert_int_equal(os_close(p.server), 0);
    assert_int_equal(os_close(p.client), 0);
    assert_int_equal(os_close(p.listener), 0);
}

static void sockets_carry_bytes_without_blocking(void **state)
{
    struct pair p = pair_make();
    char hel[] = "hel";
    char lo[] = "lo";
    struct iovec iov[2] = {{hel, 3}, {lo, 2}};
    char back[16];

    (void)state;
    assert_true((fcntl(p.server, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(p.server, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(p.client, F_GETFL) & O_NONBLOCK) != 0);
    assert_int_equal(os_recv(p.server, back, sizeof back), -EAGAIN);
    assert_int_equal(os_sendv(p.client, iov, 2), 5);
    wait_for(p.server, POLLIN);
    assert_int_equal(os_recv(p.server, back, sizeof back), 5);
    assert_memory_equal(back, "hello", 5);
    assert_int_equal(os_shutdown(p.client, SHUT_WR), 0);
    wait_for(p.server, POLLIN);
    assert_int_equal(os_recv(p.server, back, sizeof back), 0);
    /* Writing where nobody reads is an answer, not a signal. */
    assert_int_equal(os_sendv(p.client, iov, 2), -EPIPE);
    pair_close(p);
}

static void a_local_connection_is_there_at_once(void **state)
{
    /* A name of the abstract kind, which the kernel chooses. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct sockaddr *address = (struct sockaddr *)&a;
    unsigned length = sizeof a;
    int listener = os_socket(AF_UNIX, SOCK_STREAM, 0);
    int client = os_socket(AF_UNIX, SOCK_STREAM, 0);

    (void)state;
    assert_int_equal(os_bind(listener, address, sizeof a.sun_family), 0);
    assert_int_equal(os_listen(listener, 1), 0);
    assert_int_equal(os_getsockname(listener, address, &length), 0);
    assert_int_equal(os_connect(client, address, length), 0);
    assert_int_equal(os_close(client), 0);
    assert_int_equal(os_close(listener), 0);
}

static void full_socket_says_so(void **state)
{
    struct pair p = pair_make();
    static char block[65536];
    struct iovec iov = {block, sizeof block};
    int64_t sent = 0;
    unsigned turns = 0;

    (void)state;
    while (sent >= 0 && turns++ < 10000) {
        sent = os_sendv(p.client, &iov, 1);
    }
    assert_int_equal(sent, -EAGAIN);
    pair_close(p);
}

static void socket_calls_report_errors(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *address = (struct sockaddr *)&a;
    unsigned length = sizeof a;
    struct iovec iov = {NULL, 0};
    struct epoll_event ev = {0};
    char byte;
    int bad_signal = 12345;

    (void)state;
    assert_int_equal(os_socket(-1, SOCK_STREAM, 0), -EAFNOSUPPORT);
    assert_int_equal(os_bind(-1, address, sizeof a), -EBADF);
    assert_int_equal(os_listen(-1, 1), -EBADF);
    assert_int_equal(os_accept(-1), -EBADF);
    assert_int_equal(os_connect(-1, address, sizeof a), -EBADF);
    assert_int_equal(os_setsockopt(-1, SOL_SOCKET, SO_REUSEADDR, &byte, 1), -EBADF);
    assert_int_equal(os_getsockname(-1, address, &length), -EBADF);
    assert_int_equal(os_recv(-1, &byte, 1), -EBADF);
    assert_int_equal(os_sendv(-1, &iov, 1), -EBADF);
    assert_int_equal(os_sendv(-1, &iov, -1), -EINVAL);
    assert_int_equal(os_shutdown(-1, SHUT_WR), -EBADF);
    assert_int_equal(os_read(-1, &byte, 1), -EBADF);
    assert_int_equal(os_write(-1, &byte, 1), -EBADF);
    assert_int_equal(os_epoll_ctl(-1, EPOLL_CTL_ADD, -1, &ev), -EBADF);
    assert_int_equal(os_epoll_wait(-1, &ev, 1, 0), -EBADF);
    assert_int_equal(os_signalfd(&bad_signal, 1), -EINVAL);
}

static void events_wake_the_loop(void **state)
{
    int ep = os_epoll_create();
    int event = os_eventfd();
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = event};
    uint64_t one = 1;

    (void)state;
    assert_int_equal(os_epoll_ctl(ep, EPOLL_CTL_ADD, event, &ev), 0);
    assert_int_equal(os_epoll_wait(ep, &ev, 1, 0), 0);
    assert_int_equal(os_read(event, &one, sizeof one), -EAGAIN);
    assert_int_equal(os_write(event, &one, sizeof one), sizeof one);
    assert_int_equal(os_epoll_wait(ep, &ev, 1, 1000), 1);
    assert_int_equal(ev.data.fd, event);
    assert_int_equal(os_read(event, &one, sizeof one), sizeof one);
    assert_int_equal(os_close(event), 0);
    assert_int_equal(os_close(ep), 0);
}

static void signals_arrive_on_a_descriptor(void **state)
{
    const int signals[] = {SIGUSR1, SIGUSR2};
    int fd = os_signalfd(signals, 2);
    struct signalfd_siginfo info;
    sigset_t blocked;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    assert_int_equal(sigismember(&blocked, SIGUSR1), 1);
    assert_int_equal(os_read(fd, &info, sizeof info), -EAGAIN);
    assert_int_equal(kill(getpid(), SIGUSR2), 0); /* would end the process if it were not blocked */
    wait_for(fd, POLLIN);
    assert_int_equal(os_read(fd, &info, sizeof info), sizeof info);
    assert_int_equal(info.ssi_signo, SIGUSR2);
    assert_int_equal(os_close(fd), 0);
}

static void signalfd_that_fails_blocks_nothing(void **state)
{
    const int signals[] = {SIGHUP};
    struct rlimit before;
    struct rlimit none;
    sigset_t blocked;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(os_signalfd(signals, 1), -EMFILE);
    assert_int_equal(os_eventfd(), -EMFILE);
    assert_int_equal(os_epoll_create(), -EMFILE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &blocked), 0);
    assert_int_equal(sigismember(&blocked, SIGHUP), 0);
}

/* ---- waiting ---- */

static void polls_wait_for_input(void **state)
{
    static const uint64_t one = 1;
    int events = os_eventfd();
    int pipes[2];
    struct pollfd fds[2] = {{.fd = events, .events = POLLIN}};

    (void)state;
    assert_true(events >= 0);
    assert_int_equal(pipe(pipes), 0);
    fds[1] = (struct pollfd){.fd = pipes[0], .events = POLLIN};
    assert_int_equal(os_poll_in(events, 0), 0);
    assert_int_equal(os_poll_in(events, 5), 0);
    assert_int_equal(os_poll(fds, 2, 0), 0);
    assert_int_equal(os_write(events, &one, sizeof one), sizeof one);
    assert_int_equal(os_poll_in(events, -1), 1);
    assert_int_equal(os_poll(fds, 2, -1), 1);
    assert_int_equal(fds[0].revents, POLLIN);
    assert_int_equal(fds[1].revents, 0);
    assert_int_equal(os_write(pipes[1], &one, sizeof one), sizeof one);
    assert_int_equal(os_poll(fds, 2, -1), 2);
    assert_int_equal(fds[1].revents, POLLIN);
    assert_int_equal(os_close(pipes[1]), 0);
    assert_int_equal(os_read(pipes[0], fds, sizeof one), sizeof one);
    assert_int_equal(os_poll_in(pipes[0], -1), 1); /* its end is input, too */
    assert_int_equal(os_poll(NULL, UINT_MAX, 0), -EINVAL);
    assert_int_equal(os_close(pipes[0]), 0);
    assert_int_equal(os_close(events), 0);
}

/* ---- interruptions ---- */

static volatile sig_atomic_t interruptions;

static void interrupted(int signal_number)
{
    (void)signal_number;
    interruptions++;
}

static void *interrupt(void *ctx)
{
    const struct timespec a_while = {0, 50000000};
    uint64_t one = 1;
    const int *to = ctx;

    (void)nanosleep(&a_while, NULL);
    assert_int_equal(kill(getpid(), SIGALRM), 0);
    if (to != NULL) {
        (void)nanosleep(&a_while, NULL);
        assert_int_equal(os_write(*to, &one, sizeof one), sizeof one);
    }
    return NULL;
}

/* Starts a thread that interrupts this one, with SIGALRM blocked in itself, and later writes to
 * *to. */
static pthread_t interrupt_soon(int *to)
{
    struct sigaction action = {.sa_handler = interrupted};
    sigset_t alarm_only;
    pthread_t thread;

    (void)sigemptyset(&alarm_only);
    (void)sigaddset(&alarm_only, SIGALRM);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &alarm_only, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, interrupt, to), 0);
    assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL), 0);
    return thread;
}

static void interruptions_are_hidden(void **state)
{
    int pipes[2];
    char bytes[8];
    int ep = os_epoll_create();
    struct epoll_event ev;
    pthread_t thread;
    uint64_t before_ns;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    thread = interrupt_soon(&pipes[1]);
    assert_int_equal(os_read(pipes[0], bytes, sizeof bytes), 8); /* the retry got them */
    assert_int_equal(pthread_join(thread, NULL), 0);
    thread = interrupt_soon(NULL);
    before_ns = os_clock_mono_ns();
    assert_int_equal(os_epoll_wait(ep, &ev, 1, 20000), 0); /* a turn without events */
    assert_true(os_clock_mono_ns() - before_ns < 10000000000);
    assert_int_equal(pthread_join(thread, NULL), 0);
    thread = interrupt_soon(NULL);
    before_ns = os_clock_mono_ns();
    assert_int_equal(os_poll_in(pipes[0], 20000), 0); /* who waits looks at a clock */
    assert_true(os_clock_mono_ns() - before_ns < 10000000000);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(interruptions, 3);
    (void)os_close(pipes[0]);
    (void)os_close(pipes[1]);
    assert_int_equal(os_close(ep), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test(f)
    const struct CMUnitTest tests[] = {
        T(clocks_and_chance),
        T(sockets_carry_bytes_without_blocking),
        T(a_local_connection_is_there_at_once),
        T(full_socket_says_so),
        T(socket_calls_report_errors),
        T(events_wake_the_loop),
        T(signals_arrive_on_a_descriptor),
        T(signalfd_that_fails_blocks_nothing),
        T(polls_wait_for_input),
        T(interruptions_are_hidden),
    };
#undef T

    return cmocka_run_group_tests(tests, NULL, NULL);
}
