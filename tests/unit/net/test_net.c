/* net: what counts as a whole answer, what was sent, and everything libcurl must not do. */
#include "net/net.h"

#include "tests/unit/net/peer_kit.h"

struct script {
    struct peer *peer;
    int mode;
    size_t cut; /* bytes of the body; SIZE_MAX: none */
    char head[4096];
    char body[256];
};

enum {
    PLAIN,
    CHUNKED,
    EMPTY_CHUNKED,
    NO_LENGTH,
    CUT_BODY,
    CUT_CHUNKED,
    CUT_HEAD,
    SURPLUS,
    SURPLUS_EMPTY,
    SURPLUS_CHUNKED,
    SURPLUS_LATE,
    TWO_LENGTHS,
    REDIRECT,
    HANG,
    SLOW_BODY,
    BIG,
    BIG_HEAD,
    INTERIM,
    DROP,
    NO_CONTENT,
    OLD_HTTP,
    ERROR_500,
    BINARY
};

static void write_big(int fd, size_t n)
{
    char head[128];
    char block[4096];
    memset(block, 'y', sizeof block);
    block[sizeof block - 1] = '\0';
    (void)snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                   n * (sizeof block - 1));
    peer_write(fd, head);
    for (size_t i = 0; i < n; i++) {
        peer_write(fd, block);
    }
}

static bool answer_odd(struct script *s, int fd)
{
    switch (s->mode) {
    case SURPLUS:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 400 Bad\r\n");
        return true;
    case SURPLUS_EMPTY:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nXX");
        return true;
    case SURPLUS_CHUNKED:
        peer_write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nXX");
        return true;
    case SURPLUS_LATE:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        usleep(100000);
        peer_write(fd, "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
        return true;
    case TWO_LENGTHS:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nok");
        return false;
    case REDIRECT:
        peer_answer(fd, 302, "Location: http://127.0.0.1:1/\r\n", "");
        return true;
    case HANG:
        peer_hang(s->peer, fd);
        return false;
    case SLOW_BODY:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok");
        peer_hang(s->peer, fd);
        return false;
    case BIG:
        write_big(fd, 500);
        return true;
    case BIG_HEAD:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        for (int i = 0; i < 90; i++) {
            char line[1100];
            (void)snprintf(line, sizeof line, "X-%d: %01000d\r\n", i, i);
            peer_write(fd, line);
        }
        peer_write(fd, "\r\n");
        return true;
    case BINARY:
        peer_answer(fd, 200, "X-Odd:\r\nx-b:  two words \r\n", "");
        return true;
    default:
        peer_answer(fd, 500, "X-ClickHouse-Exception-Code: 241\r\n", "Code: 241. DB::Exception");
        return true;
    }
}

static bool answer(void *ctx, const struct peer_request *req, int fd)
{
    struct script *s = ctx;
    (void)snprintf(s->head, sizeof s->head, "%.*s", (int)req->head.len, req->head.ptr);
    (void)snprintf(s->body, sizeof s->body, "%.*s", (int)req->body.len,
                   req->body.len == 0 ? "" : req->body.ptr);
    switch (s->mode) {
    case PLAIN:
        peer_answer(fd, 200, "X-Test: a\r\nX-Test: b\r\n", "hello");
        return true;
    case CHUNKED:
        peer_write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n");
        return true;
    case EMPTY_CHUNKED:
        peer_write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        return true;
    case NO_LENGTH:
        peer_write(fd, "HTTP/1.1 200 OK\r\n\r\nhello");
        return false;
    case CUT_BODY:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
        return false;
    case CUT_CHUNKED:
        peer_write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        return false;
    case CUT_HEAD:
        peer_write(fd, "HTTP/1.1 200 OK\r\nContent-Le");
        return false;
    case INTERIM:
        peer_write(fd, "HTTP/1.1 102 Processing\r\nX-Early: 1\r\n\r\n");
        peer_answer(fd, 200, "X-Late: 2\r\n", "hello");
        return true;
    case DROP:
        return false;
    case NO_CONTENT:
        peer_write(fd, "HTTP/1.1 204 No Content\r\n\r\n");
        return true;
    case OLD_HTTP:
        peer_write(fd, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        return false;
    default:
        return answer_odd(s, fd);
    }
}

static size_t cut_at(void *ctx, unsigned index, size_t body_len)
{
    struct script *s = ctx;
    (void)index;
    (void)body_len;
    return s->cut;
}

struct world {
    struct script script;
    struct peer peer;
    struct net *net;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct err e = {0};
    assert_non_null(w);
    w->script = (struct script){.peer = &w->peer, .cut = SIZE_MAX};
    w->peer = (struct peer){.answer = answer, .cut_at = cut_at, .ctx = &w->script};
    peer_start(&w->peer);
    struct net_target target = {.url = w->peer.url};
    assert_int_equal(net_open(&w->net, &target, &e), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    net_close(w->net);
    peer_stop(&w->peer);
    free(w);
    return 0;
}

static int ask_with(struct world *w, int mode, struct net_request req, struct net_answer *a,
                    struct err *e)
{
    w->script.mode = mode;
    *e = (struct err){0};
    req.total_ms = req.total_ms == 0 ? 5000 : req.total_ms;
    peer_sync(&w->peer);
    int r = net_do(w->net, &req, a, e);
    peer_sync(&w->peer);
    return r;
}

static int ask(struct world *w, int mode, struct net_answer *a, struct err *e)
{
    return ask_with(w, mode, (struct net_request){.post = true, .body = SLICE("row\n")}, a, e);
}

static void test_whole_answers(void **state)
{
    static const int modes[] = {PLAIN, CHUNKED, EMPTY_CHUNKED, INTERIM, NO_CONTENT, OLD_HTTP};
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(ask(w, modes[i], &a, &e), 0);
        assert_true(a.complete);
        assert_true(a.sent);
        assert_int_equal(a.status, modes[i] == NO_CONTENT ? 204 : 200);
        if (modes[i] != EMPTY_CHUNKED && modes[i] != NO_CONTENT) {
            assert_true(slice_eq(buf_slice(&a.body), SLICE("hello")));
        } else {
            assert_int_equal(a.body.len, 0);
        }
        assert_string_equal(w->script.body, "row\n");
        net_answer_free(&a);
    }
    assert_int_equal(ask(w, ERROR_500, &a, &e), 0);
    assert_int_equal(a.status, 500);
    assert_true(a.complete);
    net_answer_free(&a);
}

static void test_headers_of_answers(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    struct slice v = {0};
    assert_int_equal(ask(w, PLAIN, &a, &e), 0);
    assert_true(net_header(&a, "x-test", &v));
    assert_true(slice_eq(v, SLICE("a"))); /* the first one */
    assert_false(net_header(&a, "x-tes", &v));
    assert_false(net_header(&a, "x-testa", &v));
    net_answer_free(&a);
    assert_int_equal(ask(w, INTERIM, &a, &e), 0);
    assert_false(net_header(&a, "x-early", &v)); /* interim heads are no part of the answer */
    assert_true(net_header(&a, "x-late", &v));
    net_answer_free(&a);
    assert_int_equal(ask(w, BINARY, &a, &e), 0);
    assert_true(net_header(&a, "x-odd", &v));
    assert_int_equal(v.len, 0);
    assert_true(net_header(&a, "x-b", &v));
    assert_true(slice_eq(v, SLICE("two words")));
    net_answer_free(&a);
}

static void test_requests(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    struct net_header headers[] = {{.name = "X-ClickHouse-Key", .value = SLICE("s3cret")},
                                   {.name = "X-Empty", .value = SLICE("")}};
    struct net_request req = {
        .post = true, .headers = headers, .header_count = 2, .query = "query=a%20b"};
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), 0);
    net_answer_free(&a);
    assert_non_null(strstr(w->script.head, "POST /?query=a%20b HTTP/1.1\r\n"));
    assert_non_null(strstr(w->script.head, "X-ClickHouse-Key: s3cret\r\n"));
    assert_non_null(strstr(w->script.head, "X-Empty:\r\n"));
    assert_non_null(strstr(w->script.head, "Content-Length: 0\r\n"));
    assert_null(strcasestr(w->script.head, "expect:"));
    assert_null(strcasestr(w->script.head, "content-type:"));
    headers[0] = (struct net_header){.name = "Content-Type", .value = SLICE("text/x")};
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), 0);
    net_answer_free(&a);
    assert_non_null(strstr(w->script.head, "Content-Type: text/x\r\n"));
    req = (struct net_request){0};
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), 0);
    net_answer_free(&a);
    assert_non_null(strstr(w->script.head, "GET / HTTP/1.1\r\n"));
}

static void test_headers_that_cannot_be_sent(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    static const struct net_header bad[] = {
        {.name = "X-A", .value = SLICE("a\r\nX-B: c")}, {.name = "X-A", .value = SLICE("a\nb")},
        {.name = "X-A", .value = SLICE("a\0b")},        {.name = "X A", .value = SLICE("a")},
        {.name = "X:A", .value = SLICE("a")},           {.name = "", .value = SLICE("a")}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct net_request req = {.headers = &bad[i], .header_count = 1};
        assert_int_equal(ask_with(w, PLAIN, req, &a, &e), ERR_REFUSED);
        assert_false(a.sent);
        assert_null(strstr(e.text, "X-B"));
        net_answer_free(&a);
    }
    assert_int_equal(atomic_load(&w->peer.requests), 0);
}

static void test_cut_answers(void **state)
{
    static const struct {
        int mode;
        unsigned status;
    } cases[] = {{NO_LENGTH, 200}, {CUT_BODY, 200},    {CUT_CHUNKED, 200},
                 {CUT_HEAD, 200},  {TWO_LENGTHS, 200}, {DROP, 0}};
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ask(w, cases[i].mode, &a, &e), ERR_IO);
        assert_false(a.complete);
        assert_true(a.sent);
        if (cases[i].mode != CUT_HEAD) {
            assert_int_equal(a.status, cases[i].status);
        }
        assert_true(e.text[0] != '\0');
        net_answer_free(&a);
    }
}

/* C22: request drift. Whatever stands behind an answer, it is no answer to the next request. */
static void test_c22_surplus(void **state)
{
    static const int modes[] = {SURPLUS, SURPLUS_EMPTY, SURPLUS_CHUNKED};
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    for (size_t i = 0; i < 3; i++) {
        unsigned connections = atomic_load(&w->peer.connections);
        assert_int_equal(ask(w, modes[i], &a, &e), ERR_IO);
        assert_false(a.complete);
        assert_int_equal(a.status, 200);
        assert_non_null(strstr(e.text, "bytes behind the answer"));
        net_answer_free(&a);
        assert_int_equal(ask(w, PLAIN, &a, &e), 0);
        assert_int_equal(a.status, 200);
        assert_int_equal(atomic_load(&w->peer.connections), connections + (i == 0 ? 2 : 1));
        net_answer_free(&a);
    }
}

static void test_c22_surplus_that_comes_late(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    assert_int_equal(ask(w, SURPLUS_LATE, &a, &e), 0);
    net_answer_free(&a);
    usleep(300000);
    assert_int_equal(ask(w, PLAIN, &a, &e), 0);
    assert_int_equal(a.status, 200); /* not the 400 that lay in the socket */
    assert_true(slice_eq(buf_slice(&a.body), SLICE("hello")));
    assert_int_equal(atomic_load(&w->peer.connections), 2);
    net_answer_free(&a);
}

static void test_connection_is_kept(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(w, i % 2 == 0 ? PLAIN : EMPTY_CHUNKED, &a, &e), 0);
        net_answer_free(&a);
    }
    assert_int_equal(atomic_load(&w->peer.connections), 1);
    assert_int_equal(atomic_load(&w->peer.requests), 5);
}

static void test_body_cut_by_the_far_side(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    size_t n = 8u << 20;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, 'r', n);
    w->script.cut = n / 2;
    struct net_request req = {.post = true, .body = slice_of(big, n)};
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), ERR_IO);
    assert_true(a.sent);
    assert_int_equal(a.status, 0);
    net_answer_free(&a);
    w->script.cut = SIZE_MAX;
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), 0);
    net_answer_free(&a);
    char length[40];
    (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", n);
    assert_non_null(strstr(w->script.head, length));
    free(big);
}

static void test_redirects_are_not_followed(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    assert_int_equal(ask(w, REDIRECT, &a, &e), 0);
    assert_int_equal(a.status, 302);
    net_answer_free(&a);
    assert_int_equal(atomic_load(&w->peer.requests), 1);
}

static void test_environment_is_not_used(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("ALL_PROXY", "http://127.0.0.1:1", 1), 0);
    int r = ask(w, PLAIN, &a, &e);
    assert_int_equal(unsetenv("http_proxy"), 0);
    assert_int_equal(unsetenv("ALL_PROXY"), 0);
    assert_int_equal(r, 0);
    assert_null(strcasestr(w->script.head, "authorization"));
    net_answer_free(&a);
}

static void test_time_is_bounded(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    struct net_request req = {.post = true, .body = SLICE("x"), .total_ms = 200};
    assert_int_equal(ask_with(w, HANG, req, &a, &e), ERR_IO);
    assert_true(a.sent);
    assert_int_equal(a.status, 0);
    net_answer_free(&a);
    assert_int_equal(ask_with(w, SLOW_BODY, req, &a, &e), ERR_IO);
    assert_int_equal(a.status, 200);
    assert_false(a.complete);
    net_answer_free(&a);
}

static void *cancel_soon(void *arg)
{
    usleep(100000);
    atomic_store((atomic_bool *)arg, true);
    return NULL;
}

static void test_cancel(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    atomic_bool cancel = false;
    pthread_t thread;
    struct net_request req = {
        .post = true, .body = SLICE("x"), .total_ms = 30000, .cancel = &cancel};
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
    struct timespec t0;
    struct timespec t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    assert_int_equal(ask_with(w, HANG, req, &a, &e), ERR_REFUSED);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true(t1.tv_sec - t0.tv_sec < 3);
    assert_non_null(strstr(e.text, "cancelled"));
    assert_true(a.sent);
    net_answer_free(&a);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ask(w, PLAIN, &a, &e), 0); /* the client is usable afterwards */
    net_answer_free(&a);
}

static void test_answers_are_bounded(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    struct net_request req = {.answer_bytes_max = 4};
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), ERR_REFUSED);
    assert_non_null(strstr(e.text, "too long"));
    net_answer_free(&a);
    req.answer_bytes_max = 5;
    assert_int_equal(ask_with(w, PLAIN, req, &a, &e), 0);
    net_answer_free(&a);
    req.answer_bytes_max = 0; /* 1 MiB, and the answer has 2 */
    assert_int_equal(ask_with(w, BIG, req, &a, &e), ERR_REFUSED);
    assert_true(a.body.len <= 1u << 20);
    net_answer_free(&a);
    assert_int_equal(ask(w, BIG_HEAD, &a, &e), ERR_REFUSED);
    assert_non_null(strstr(e.text, "head is too long"));
    net_answer_free(&a);
}

struct taken {
    size_t bytes, limit;
};

static bool take(void *ctx, struct slice bytes)
{
    struct taken *t = ctx;
    t->bytes += bytes.len;
    return t->bytes <= t->limit;
}

static void test_sink(void **state)
{
    struct world *w = *state;
    struct net_answer a;
    struct err e;
    struct taken t = {.limit = SIZE_MAX};
    struct net_request req = {.sink = take, .sink_ctx = &t};
    assert_int_equal(ask_with(w, BIG, req, &a, &e), 0);
    assert_int_equal(t.bytes, 500 * 4095);
    assert_int_equal(a.body.len, 0);
    net_answer_free(&a);
    t = (struct taken){.limit = 100000};
    assert_int_equal(ask_with(w, BIG, req, &a, &e), ERR_REFUSED);
    net_answer_free(&a);
    t = (struct taken){.limit = 0};
    assert_int_equal(ask_with(w, ERROR_500, req, &a, &e), 0); /* errors are not for the sink */
    assert_int_equal(t.bytes, 0);
    assert_true(a.body.len != 0);
    net_answer_free(&a);
}

static void test_nobody_there(void **state)
{
    struct net_answer a;
    struct err e = {0};
    struct net *n;
    struct peer gone = {.answer = answer};
    (void)state;
    peer_start(&gone);
    peer_stop(&gone);
    struct net_target target = {.url = gone.url};
    assert_int_equal(net_open(&n, &target, &e), 0);
    struct net_request req = {.post = true, .body = SLICE("x")};
    assert_int_equal(net_do(n, &req, &a, &e), ERR_CONNECT);
    assert_false(a.sent);
    assert_int_equal(a.status, 0);
    assert_non_null(strstr(e.text, gone.url));
    net_answer_free(&a);
    net_close(n);
    target = (struct net_target){.url = "http://engine", .unix_socket = "/nonexistent/socket"};
    assert_int_equal(net_open(&n, &target, &e), 0);
    assert_int_equal(net_do(n, &req, &a, &e), ERR_CONNECT);
    assert_false(a.sent);
    net_answer_free(&a);
    net_close(n);
}

static void test_unix_socket(void **state)
{
    struct script s = {.cut = SIZE_MAX};
    struct peer p = {.answer = answer, .ctx = &s};
    struct net_answer a;
    struct err e = {0};
    struct net *n;
    (void)state;
    char dir[] = "/tmp/tallyman-net-XXXXXX";
    assert_non_null(mkdtemp(dir));
    (void)snprintf(p.path, sizeof p.path, "%s/s", dir);
    peer_start(&p);
    struct net_target target = {.url = "http://engine", .unix_socket = p.path};
    assert_int_equal(net_open(&n, &target, &e), 0);
    struct net_request req = {.query = "query=1"};
    assert_int_equal(net_do(n, &req, &a, &e), 0);
    assert_non_null(strstr(s.head, "Host: engine\r\n"));
    assert_true(slice_eq(buf_slice(&a.body), SLICE("hello")));
    net_answer_free(&a);
    net_close(n);
    peer_stop(&p);
    assert_int_equal(rmdir(dir), 0);
}

static void test_urls(void **state)
{
    static const char *const bad[] = {"ftp://a/",          "file:///etc/passwd", "",
                                      "http://u@a/",       "http://u:p@a/",      "http://a/?x=1",
                                      "http://a/#x",       "gopher://a/",        "http://",
                                      "https://:p@a:1234/"};
    struct net *n = NULL;
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct net_target target = {.url = bad[i]};
        e = (struct err){0};
        assert_int_equal(net_open(&n, &target, &e), ERR_USAGE);
        assert_true(e.text[0] != '\0');
    }
    struct net_target good = {.url = "https://example.org:8443"};
    assert_int_equal(net_open(&n, &good, &e), 0);
    net_close(n);
    net_close(NULL);
}

static void test_queries(void **state)
{
    struct buf b = {0};
    (void)state;
    net_put_query(&b, "query", SLICE("INSERT a,b\n\xc3\xa9+%~"));
    net_put_query(&b, "async_insert", SLICE("0"));
    assert_true(
        slice_eq(buf_slice(&b), SLICE("query=INSERT%20a%2Cb%0A%C3%A9%2B%25~&async_insert=0")));
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_headers_of_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(test_headers_that_cannot_be_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c22_surplus, setup, teardown),
        cmocka_unit_test_setup_teardown(test_c22_surplus_that_comes_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_connection_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_body_cut_by_the_far_side, setup, teardown),
        cmocka_unit_test_setup_teardown(test_redirects_are_not_followed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_environment_is_not_used, setup, teardown),
        cmocka_unit_test_setup_teardown(test_time_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sink, setup, teardown),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_unix_socket),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_queries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
