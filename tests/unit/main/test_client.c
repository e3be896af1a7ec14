/* client, output, progress: the parts that need no server. What happens on the wire is in
 * tests/blackbox/test_cli.py. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "main/client.h"
#include "main/output.h"
#include "main/pause.h"
#include "main/progress.h"
#include "main/version.h"
#include "os/os.h"

static void test_query(void **state)
{
    (void)state;
    struct buf q = {0};
    client_put_query(&q, "source", SLICE("aZ09-._~"));
    client_put_query(&q, "record_key", SLICE("a b&c=d+e/\xc3\xbc%\n\0"));
    client_put_query(&q, "kind", SLICE(""));
    assert_true(
        slice_eq(buf_slice(&q), SLICE("source=aZ09-._~&record_key=a%20b%26c%3Dd%2Be%2F%C3%BC%25"
                                      "%0A%00&kind=")));
    buf_free(&q);
}

static void test_retry_after(void **state)
{
    (void)state;
    assert_int_equal(client_retry_after_s(SLICE(" 7\r\n"), 1), 7);
    assert_int_equal(client_retry_after_s(SLICE("0"), 1), 0);
    assert_int_equal(client_retry_after_s(SLICE("60"), 1), 60);
    assert_int_equal(client_retry_after_s(SLICE("999999999"), 1), 999999999);
    assert_int_equal(client_retry_after_s(SLICE("9999999999"), 1), 1);
    assert_int_equal(client_retry_after_s(SLICE("-5"), 1), 1);
    assert_int_equal(client_retry_after_s(SLICE("1.5"), 1), 1);
    assert_int_equal(client_retry_after_s(SLICE(""), 3), 3);
    assert_int_equal(client_retry_after_s(SLICE("Wed, 21 Oct 2015 07:28:00 GMT"), 2), 2);
}

static int open_target(struct client **c, const char *data, const char *url, const char *file,
                       struct err *e)
{
    struct client_target t = {
        .verb = "test", .data = data, .url = url, .token_file = file, .timeout_s = 1};
    *e = (struct err){0};
    return client_open(c, &t, e);
}

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *data, *url, *file, *expected; /* expected NULL: fine */
    } rows[] = {
        {NULL, NULL, NULL, NULL},
        {"/tmp/x", NULL, NULL, NULL},
        {NULL, "http://127.0.0.1:8080", NULL, NULL},
        {NULL, "HTTPS://example.test/prefix//", NULL, NULL},
        {"x", "http://h", NULL, "--data and --url exclude each other"},
        {NULL, NULL, "f", "--token-file goes with --url; the Unix socket needs no token"},
        {NULL, "", NULL, "--url: must begin with http:// or https://"},
        {NULL, "127.0.0.1:8080", NULL, "--url: must begin with http:// or https://"},
        {NULL, "ftp://h", NULL, "--url: must begin with http:// or https://"},
        {NULL, "file:///etc/passwd", NULL, "--url: must begin with http:// or https://"},
        {NULL, "http://", NULL, "--url: must be http://HOST:PORT, without a query"},
        {NULL, "http:///x", NULL, "--url: must be http://HOST:PORT, without a query"},
        {NULL, "http://h/?a=b", NULL, "--url: must be http://HOST:PORT, without a query"},
        {NULL, "http://h/#f", NULL, "--url: must be http://HOST:PORT, without a query"},
        {NULL, "http://h x", NULL, "--url: must be http://HOST:PORT, without a query"},
        {NULL, "http://u:hunter2@h", NULL,
         "--url: must not hold a user name or a secret; use --token-file"},
        {NULL, "http://h", "/nonexistent/token",
         "open token file /nonexistent/token: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct client *c = NULL;
        struct err e;
        int r = open_target(&c, rows[i].data, rows[i].url, rows[i].file, &e);
        assert_int_equal(r, rows[i].expected != NULL ? ERR_USAGE : 0);
        assert_true((c != NULL) == (r == 0));
        if (r != 0) {
            assert_string_equal(e.text, rows[i].expected);
        }
        client_close(c);
    }
    struct client *c = NULL;
    struct err e;
    assert_int_equal(open_target(&c, NULL, "http://h/p//", NULL, &e), 0);
    assert_string_equal(client_where(c), "http://h/p");
    client_close(c);
    assert_int_equal(open_target(&c, "some/dir", NULL, NULL, &e), 0);
    assert_string_equal(client_where(c), "some/dir/tallyman.sock");
    client_close(c);
    assert_int_equal(setenv("TALLYMAN_DATA", "/srv/t", 1), 0);
    assert_int_equal(open_target(&c, NULL, NULL, NULL, &e), 0);
    assert_string_equal(client_where(c), "/srv/t/tallyman.sock");
    client_close(c);
    assert_int_equal(unsetenv("TALLYMAN_DATA"), 0);
}

/* 107 bytes and a NUL are what a socket address holds. */
static void test_long_socket_path(void **state)
{
    (void)state;
    char data[200];
    struct client *c = NULL;
    struct err e;
    memset(data, 'd', sizeof data);
    data[107 - 14] = '\0'; /* "/tallyman.sock" */
    assert_int_equal(open_target(&c, data, NULL, NULL, &e), 0);
    client_close(c);
    data[107 - 14] = 'd';
    data[107 - 13] = '\0';
    assert_int_equal(open_target(&c, data, NULL, NULL, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "longer than the 107 bytes"));
}

static void test_token_of_environment(void **state)
{
    (void)state;
    struct client *c = NULL;
    struct err e;
    assert_int_equal(setenv("TALLYMAN_TOKEN", "has space", 1), 0);
    assert_int_equal(open_target(&c, NULL, "http://h", NULL, &e), ERR_USAGE);
    assert_string_equal(e.text,
                        "TALLYMAN_TOKEN: the token must be 1 to 4096 visible ASCII characters");
    assert_int_equal(open_target(&c, "d", NULL, NULL, &e), 0); /* of no interest on the socket */
    client_close(c);
    assert_int_equal(setenv("TALLYMAN_TOKEN", "", 1), 0);
    assert_int_equal(open_target(&c, NULL, "http://h", NULL, &e), 0);
    client_close(c);
    assert_int_equal(setenv("TALLYMAN_TOKEN", "good", 1), 0);
    assert_int_equal(open_target(&c, NULL, "http://h", NULL, &e), 0);
    client_close(c);
    assert_int_equal(unsetenv("TALLYMAN_TOKEN"), 0);
}

static void refusal_of(unsigned status, const char *body, const char *expected)
{
    struct client *c = NULL;
    struct client_answer answer = {.status = status};
    struct err e;
    assert_int_equal(open_target(&c, "d", NULL, NULL, &e), 0);
    buf_put_cstr(&answer.body, body);
    assert_int_equal(client_refusal(c, &answer, &e), ERR_REFUSED);
    assert_string_equal(e.text, expected);
    client_answer_free(&answer);
    client_close(c);
}

static void test_refusals(void **state)
{
    (void)state;
    refusal_of(409, "{\"error\":\"batch_id_conflict\",\"message\":\"a \\\"b\\\"\"}",
               "d/tallyman.sock answered 409 batch_id_conflict: a \"b\"");
    refusal_of(502, "<html>Bad Gateway</html>", "d/tallyman.sock answered 502");
    refusal_of(500, "", "d/tallyman.sock answered 500");
    refusal_of(400, "{\"error\":7,\"message\":\"m\"}", "d/tallyman.sock answered 400: m");
    struct client_answer answer = {.status = 409};
    buf_put_cstr(&answer.body, "{\"error\":\"batch_id_conflict\"}");
    assert_true(client_answer_is(&answer, 409, "batch_id_conflict"));
    assert_false(client_answer_is(&answer, 400, "batch_id_conflict"));
    assert_false(client_answer_is(&answer, 409, "batch_id"));
    client_answer_free(&answer);
    assert_false(client_answer_is(&answer, 409, "batch_id_conflict"));
}

static void test_progress_text(void **state)
{
    (void)state;
    char text[160];
    struct progress p = {.label = "sending", .unit = PROGRESS_BYTES, .total = 4096};
    progress_text(&p, 1024, 500, text, sizeof text);
    assert_string_equal(text, "sending [######..................]  25% 1.0 KiB, 2.0 KiB/s");
    progress_text(&p, 8192, 1000, text, sizeof text); /* the file has grown meanwhile */
    assert_string_equal(text, "sending [########################] 100% 8.0 KiB, 8.0 KiB/s");
    progress_text(&p, 0, 1, text, sizeof text);
    assert_string_equal(text, "sending [........................]   0% 0 B, 0 B/s");
    p.total = 0;
    p.unit = PROGRESS_EVENTS;
    progress_text(&p, 5000, 2000, text, sizeof text);
    assert_string_equal(text, "sending 5000 events, 2500 events/s");
}

static void test_no_progress_without_terminal(void **state)
{
    (void)state;
    struct progress p;
    int null = open("/dev/null", O_WRONLY);
    int saved = dup(2);
    assert_true(null >= 0);
    assert_true(saved >= 0);
    assert_int_equal(dup2(null, 2), 2);
    progress_start(&p, "x", PROGRESS_EVENTS, 0);
    assert_int_equal(dup2(saved, 2), 2);
    (void)close(null);
    (void)close(saved);
    assert_false(p.enabled);
}

/* ---- output, behind a write that is short, busy or fails; in children, because a failure stays
 * ---- */
static struct {
    int error;       /* negative errno for descriptor 1 */
    unsigned busy;   /* that many times EAGAIN first */
    size_t most;     /* bytes taken by one write */
    struct buf got;  /* of descriptor 1 */
    struct buf said; /* of descriptor 2 */
} sink;

static int64_t write_sink(int fd, const void *p, size_t n)
{
    if (fd == 2) {
        buf_put(&sink.said, p, n);
        return (int64_t)n;
    }
    if (sink.busy > 0) {
        sink.busy--;
        return -EAGAIN;
    }
    if (sink.error != 0) {
        return sink.error;
    }
    n = n < sink.most ? n : sink.most;
    buf_put(&sink.got, p, n);
    return (int64_t)n;
}

/* Runs fn in a child with the table above and returns its exit code. */
static int in_child(int (*fn)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct os_table t = os_real;
        t.write = write_sink;
        os_install(&t);
        _exit(fn());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int writes_whole(void)
{
    struct buf all = {0};
    sink.most = 7000;
    sink.busy = 3;
    for (unsigned i = 0; i < 40000; i++) {
        output_printf("%u\n", i);
        buf_printf(&all, "%u\n", i);
    }
    char big[200000];
    memset(big, 'b', sizeof big);
    output_put(slice_of(big, sizeof big)); /* larger than the buffer */
    buf_put(&all, big, sizeof big);
    output_printf("%.*s\n", 5000, big); /* longer than any line of ours */
    buf_put(&all, big, 5000);
    buf_put_cstr(&all, "\n");
    int code = output_close("test", EXIT_DONE);
    return code == 0 && slice_eq(buf_slice(&all), buf_slice(&sink.got)) ? 50 : 51;
}

static int fails_with(int error, int code)
{
    sink.error = error;
    output_put(SLICE("x"));
    if (output_flush()) {
        return 200;
    }
    output_put(SLICE("dropped"));
    sink.error = 0;
    sink.most = 100;
    if (output_flush() || sink.got.len > 0) {
        return 201; /* a failure is not forgotten, nothing follows a hole */
    }
    int r = output_close("test", code);
    bool said = sink.said.len > 0;
    return said == (error != -EPIPE) ? r : 202;
}

static int fails_full(void)
{
    return fails_with(-ENOSPC, EXIT_DONE);
}

static int fails_full_violation(void)
{
    return fails_with(-ENOSPC, EXIT_VIOLATION);
}

static int fails_pipe(void)
{
    return fails_with(-EPIPE, EXIT_DONE);
}

static int says_errors(void)
{
    sink.most = 1000;
    output_put(SLICE("before\n"));
    output_progress(SLICE("[##]"));
    output_error("verb", "%s", "a\x1b[31m\nb\x7f");
    bool ok = slice_eq(buf_slice(&sink.got), SLICE("before\n")) &&
              slice_eq(buf_slice(&sink.said), SLICE("[##]\r\033[Ktallyman verb: a?[31m?b?\n"));
    buf_clear(&sink.said);
    char text[5000];
    memset(text, 't', sizeof text);
    text[sizeof text - 1] = '\0';
    output_error("", "%s", text);
    ok = ok && sink.said.len == 2047 && sink.said.ptr[2046] == '\n' &&
         slice_starts(buf_slice(&sink.said), SLICE("tallyman: ttt"));
    return ok ? 60 : 61;
}

static void test_output(void **state)
{
    (void)state;
    assert_int_equal(in_child(writes_whole), 50);
    assert_int_equal(in_child(fails_full), EXIT_FAILED);
    assert_int_equal(in_child(fails_full_violation), EXIT_VIOLATION);
    assert_int_equal(in_child(fails_pipe), EXIT_PIPE);
    assert_int_equal(in_child(says_errors), 60);
}

static int guards(void)
{
    (void)close(0);
    (void)close(1);
    (void)close(2);
    output_guard_descriptors();
    char c = 'x';
    int fd = open("/dev/null", O_RDONLY);
    bool ok = fd == 3 && write(1, &c, 1) < 0 && read(0, &c, 1) < 0 && write(2, &c, 1) == 1;
    output_guard_descriptors(); /* and leaves open ones alone */
    return ok && open("/dev/null", O_RDONLY) == 4 ? 70 : 71;
}

static void test_guard_descriptors(void **state)
{
    (void)state;
    assert_int_equal(in_child(guards), 70);
}

static void test_pause(void **state)
{
    (void)state;
    uint64_t start = os_clock_mono_ns();
    pause_ms(30);
    uint64_t ms = (os_clock_mono_ns() - start) / 1000000;
    assert_true(ms >= 30);
    assert_true(ms < 5000);
}

static int no_descriptor(void)
{
    return -EMFILE;
}

static int broken_wait(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
    (void)ep;
    (void)ev;
    (void)max;
    (void)timeout_ms;
    return -EBADF;
}

/* It neither hangs nor spins where the system refuses. */
static void test_pause_without_system(void **state)
{
    (void)state;
    struct os_table t = os_real;
    t.epoll_create = no_descriptor;
    os_install(&t);
    uint64_t start = os_clock_mono_ns();
    pause_ms(60000);
    t = os_real;
    t.epoll_wait = broken_wait;
    os_install(&t);
    pause_ms(60000);
    os_install(NULL);
    assert_true(os_clock_mono_ns() - start < UINT64_C(10000000000));
}

static void test_version(void **state)
{
    (void)state;
    assert_true(strlen(version_number()) >= 5);
    assert_true(strlen(version_revision()) >= 7);
}

int main(void)
{
    (void)unsetenv("TALLYMAN_DATA");
    (void)unsetenv("TALLYMAN_TOKEN");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_long_socket_path),
        cmocka_unit_test(test_token_of_environment),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_progress_text),
        cmocka_unit_test(test_no_progress_without_terminal),
        cmocka_unit_test(test_output),
        cmocka_unit_test(test_guard_descriptors),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_pause_without_system),
        cmocka_unit_test(test_version),
    };
    return cmocka_run_group_tests_name("client", tests, NULL, NULL);
}
