/* transfer: long bodies, and answers that are believed whatever becomes of them. */
#include "net/transfer.h"

#include "net/reply.h"
#include "tests/unit/net/raw_kit.h"

#define MIB (UINT64_C(1) << 20)

enum {
    PLAIN,
    CONTINUE,
    NO_CONTINUE,
    REFUSE_EXPECT,
    REFUSE_EARLY,
    REFUSE_MIDWAY,
    REFUSE_RESET,
    RESET_SILENT,
    LOSE,
    HANG_BODY,
    HANG_ANSWER,
    LATE,
    CHUNKED,
    TO_THE_END,
    CUT_BODY,
    LONG_BODY,
    NO_HTTP
};

struct far {
    struct raw raw;
    int mode;
    char head[4096]; /* of the last request; read after raw_stop */
    uint64_t got;
    unsigned sum;
};

static void take(void *ctx, const void *p, size_t n)
{
    struct far *f = ctx;
    const unsigned char *byte = p;
    f->got += n;
    for (size_t i = 0; i < n; i++) {
        f->sum = f->sum * 31 + byte[i];
    }
}

static void end_politely(struct raw_connection *c)
{
    shutdown(c->fd, SHUT_WR);
    raw_hang(c);
}

#define REFUSAL "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"

static void refuse(struct far *f, struct raw_connection *c)
{
    switch (f->mode) {
    case REFUSE_EXPECT:
    case REFUSE_EARLY:
        raw_write(c, REFUSAL);
        end_politely(c);
        return;
    case REFUSE_MIDWAY:
        (void)raw_body(c, 3 * MIB, take, f);
        raw_write(c, REFUSAL);
        end_politely(c);
        return;
    case REFUSE_RESET:
        /* It answers and closes, with bytes of the body unread: the kernel resets. */
        (void)raw_body(c, MIB, take, f);
        raw_write(c, REFUSAL);
        return;
    default:
        raw_reset(c);
        (void)raw_body(c, MIB, take, f);
        return;
    }
}

static void answer(struct far *f, struct raw_connection *c)
{
    switch (f->mode) {
    case LOSE:
        return;
    case HANG_ANSWER:
        raw_hang(c);
        return;
    case LATE:
        raw_write(c, "HTTP/1.1 102 Wait\r\n\r\n");
        usleep(300000);
        raw_write(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        return;
    case CHUNKED:
        raw_write(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        raw_write(c, "2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n");
        return;
    case TO_THE_END:
        raw_write(c, "HTTP/1.1 200 OK\nX-Two:  words \n\nabcde");
        return;
    case CUT_BODY:
        raw_write(c, "HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\nabcde");
        return;
    case LONG_BODY:
        raw_write(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
        for (int i = 0; i < 10; i++) {
            raw_write(c, "0123456789");
        }
        return;
    case NO_HTTP:
        raw_write(c, "SSH-2.0-x\r\n");
        return;
    default:
        raw_write(c, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 5\r\n\r\nabcde");
        return;
    }
}

static void script(void *ctx, struct raw_connection *c)
{
    struct far *f = ctx;
    char *head = raw_head(c);
    if (head == NULL) {
        return;
    }
    (void)snprintf(f->head, sizeof f->head, "%s", head);
    uint64_t length = raw_length(head);
    bool expects = strcasestr(head, "expect: 100-continue") != NULL;
    free(head);
    if (f->mode == REFUSE_EXPECT || f->mode == REFUSE_EARLY || f->mode == REFUSE_MIDWAY ||
        f->mode == REFUSE_RESET || f->mode == RESET_SILENT) {
        refuse(f, c);
        return;
    }
    if (f->mode == HANG_BODY) {
        while (!atomic_load(&f->raw.stop)) {
            usleep(10000); /* nothing is read: the client's buffers fill up */
        }
        return;
    }
    if (expects && f->mode != NO_CONTINUE) {
        raw_write(c, "HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (raw_body(c, length, take, f)) {
        answer(f, c);
    }
}

/* ---- the near side ---- */

struct near {
    unsigned char piece[65536];
    unsigned sum;
    uint64_t read_to; /* bytes that were asked for */
    uint64_t progress;
    uint64_t refuse_at;
    bool stop;
};

static bool give(void *ctx, uint64_t at, struct slice *piece)
{
    struct near *n = ctx;
    if (at >= n->refuse_at) {
        return false;
    }
    for (size_t i = 0; i < sizeof n->piece; i++) {
        n->piece[i] = (unsigned char)((at + i) * 7 + ((at + i) >> 13));
    }
    n->read_to = at + sizeof n->piece;
    *piece = slice_of(n->piece, sizeof n->piece);
    return true;
}

static bool stopping(void *ctx)
{
    return ((struct near *)ctx)->stop;
}

static void progress(void *ctx, uint64_t at)
{
    struct near *n = ctx;
    assert_true(at >= n->progress);
    n->progress = at;
}

static unsigned sum_of(uint64_t bytes)
{
    unsigned sum = 0;
    for (uint64_t i = 0; i < bytes; i++) {
        sum = sum * 31 + (unsigned char)(i * 7 + (i >> 13));
    }
    return sum;
}

struct world {
    struct far far;
    struct near near;
    struct transfer t;
    struct net_answer answer;
    uint64_t sent;
    struct err e;
    char url[128];
};

static enum transfer_end run(struct world *w, int mode, uint64_t bytes)
{
    static const struct net_header header[] = {{"X-One", {"1", 1}}};
    w->far.mode = mode;
    w->far.raw.script = script;
    w->far.raw.ctx = &w->far;
    raw_start(&w->far.raw);
    if (w->near.refuse_at == 0) {
        w->near.refuse_at = UINT64_MAX;
    }
    (void)snprintf(w->url, sizeof w->url, "%s/a/b?c=d", w->far.raw.url);
    if (w->t.method == NULL) {
        w->t.method = "PUT";
    }
    w->t.url = w->url;
    w->t.header = header;
    w->t.header_count = 1;
    w->t.has_body = bytes > 0;
    w->t.body_bytes = bytes;
    w->t.body = give;
    w->t.connect_ms = 20000;
    w->t.stall_ms = w->t.stall_ms == 0 ? 20000 : w->t.stall_ms;
    w->t.answer_ms = w->t.answer_ms == 0 ? 20000 : w->t.answer_ms;
    w->t.answer_bytes_max = 64;
    w->t.stopping = stopping;
    w->t.progress = progress;
    w->t.ctx = &w->near;
    enum transfer_end end = transfer_do(&w->t, &w->answer, &w->sent, &w->e);
    raw_stop(&w->far.raw);
    return end;
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    return w;
}

static void world_free(struct world *w)
{
    net_answer_free(&w->answer);
    free(w);
}

static void answered(int mode, uint64_t bytes, unsigned status, const char *body, bool complete)
{
    struct world *w = world_new();
    w->t.expect_ms = mode == CONTINUE || mode == REFUSE_EXPECT ? 20000 : mode == PLAIN ? 0 : 20;
    assert_int_equal(run(w, mode, bytes), TRANSFER_ANSWERED);
    assert_int_equal(w->answer.status, status);
    assert_int_equal(w->answer.complete, complete);
    assert_int_equal(w->answer.body.len, strlen(body));
    assert_memory_equal(w->answer.body.ptr == NULL ? "" : w->answer.body.ptr, body, strlen(body));
    if (status == 200) {
        assert_int_equal(w->far.got, bytes);
        assert_int_equal(w->far.sum, sum_of(bytes));
        assert_int_equal(w->sent, bytes);
        assert_int_equal(w->near.progress, bytes);
        assert_null(strcasestr(w->far.head, "transfer-encoding"));
    }
    world_free(w);
}

static void test_a_body_arrives(void **state)
{
    (void)state;
    answered(PLAIN, 5 * MIB + 17, 200, "abcde", true);
    answered(PLAIN, 1, 200, "abcde", true);
    answered(CONTINUE, 100000, 200, "abcde", true);
    answered(NO_CONTINUE, 100000, 200, "abcde", true); /* sent after a while all the same */
    answered(LATE, 10, 200, "", true);
    answered(CHUNKED, 10, 200, "abcde", true);
    answered(TO_THE_END, 10, 200, "abcde", true);
    answered(CUT_BODY, 10, 503, "abcde", false);
}

static void test_the_request(void **state)
{
    (void)state;
    struct world *w = world_new();
    char host[80];
    w->t.expect_ms = 1000;
    assert_int_equal(run(w, PLAIN, 10), TRANSFER_ANSWERED);
    struct slice etag;
    assert_true(net_header(&w->answer, "etag", &etag));
    assert_true(slice_eq(etag, SLICE("\"e\"")));
    assert_int_equal(strncmp(w->far.head, "PUT /a/b?c=d HTTP/1.1\r\n", 23), 0);
    (void)snprintf(host, sizeof host, "\r\nHost: 127.0.0.1:%u\r\n", w->far.raw.port);
    assert_non_null(strstr(w->far.head, host));
    assert_non_null(strstr(w->far.head, "\r\nX-One: 1\r\n"));
    assert_non_null(strstr(w->far.head, "\r\nContent-Length: 10\r\nExpect: 100-continue\r\n"));
    world_free(w);

    w = world_new();
    w->t.method = "GET";
    assert_int_equal(run(w, PLAIN, 0), TRANSFER_ANSWERED);
    assert_int_equal(strncmp(w->far.head, "GET /a/b?c=d HTTP/1.1\r\n", 23), 0);
    assert_null(strstr(w->far.head, "Content-Length"));
    world_free(w);
}

static void test_an_early_refusal_is_read(void **state)
{
    (void)state;
    answered(REFUSE_EXPECT, 64 * MIB, 403, "no", true);
    answered(REFUSE_EARLY, 64 * MIB, 403, "no", true);
    answered(REFUSE_MIDWAY, 64 * MIB, 403, "no", true);
    for (int i = 0; i < 20; i++) { /* who wins, write or read, is chance */
        answered(REFUSE_RESET, 64 * MIB, 403, "no", true);
    }
}

static void test_no_byte_goes_before_the_refusal_of_a_head(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->t.expect_ms = 20000;
    assert_int_equal(run(w, REFUSE_EXPECT, 64 * MIB), TRANSFER_ANSWERED);
    assert_int_equal(w->sent, 0);
    assert_int_equal(w->near.read_to, 0);
    world_free(w);
}

static void ends(int mode, uint64_t bytes, uint64_t stall_ms, uint64_t answer_ms,
                 enum transfer_end end, const char *text)
{
    struct world *w = world_new();
    w->t.stall_ms = stall_ms;
    w->t.answer_ms = answer_ms;
    assert_int_equal(run(w, mode, bytes), end);
    assert_int_equal(w->answer.status, 0);
    assert_non_null(strstr(w->e.text, text));
    assert_null(strstr(w->e.text, "c=d")); /* the URL may hold a secret */
    assert_non_null(strstr(w->e.text, w->far.raw.url));
    world_free(w);
}

static void test_what_is_lost(void **state)
{
    (void)state;
    ends(RESET_SILENT, 64 * MIB, 0, 0, TRANSFER_CUT, "the connection");
    ends(LOSE, 100, 0, 0, TRANSFER_LOST, "without an answer");
    ends(HANG_BODY, 64 * MIB, 150, 0, TRANSFER_CUT, "no byte moved");
    ends(HANG_ANSWER, 100, 0, 150, TRANSFER_LOST, "no answer came in time");
    ends(NO_HTTP, 100, 0, 0, TRANSFER_LOST, "no HTTP");
}

static void test_a_long_answer_is_cut(void **state)
{
    (void)state;
    struct world *w = world_new();
    assert_int_equal(run(w, LONG_BODY, 10), TRANSFER_ANSWERED);
    assert_int_equal(w->answer.status, 200);
    assert_int_equal(w->answer.body.len, 64);
    assert_false(w->answer.complete);
    world_free(w);
}

static void test_the_caller_ends_it(void **state)
{
    (void)state;
    struct world *w = world_new();
    w->near.stop = true;
    assert_int_equal(run(w, HANG_ANSWER, 10), TRANSFER_STOPPED);
    world_free(w);
    w = world_new();
    w->near.refuse_at = 3 * MIB;
    assert_int_equal(run(w, PLAIN, 5 * MIB), TRANSFER_SOURCE);
    assert_true(w->sent <= 3 * MIB);
    world_free(w);
}

static void test_nobody_there(void **state)
{
    (void)state;
    struct near n = {.refuse_at = UINT64_MAX};
    struct net_answer answer;
    struct err e = {0};
    uint64_t sent;
    struct transfer t = {.method = "GET",
                         .url = "http://127.0.0.1:1/x?secret",
                         .connect_ms = 20000,
                         .stopping = stopping,
                         .ctx = &n};
    assert_int_equal(transfer_do(&t, &answer, &sent, &e), TRANSFER_UNREACHED);
    assert_int_equal(e.code, ERR_CONNECT);
    assert_null(strstr(e.text, "secret"));
    t.url = "ftp://127.0.0.1/";
    assert_int_equal(transfer_do(&t, &answer, &sent, &e), TRANSFER_UNREACHED);
    t.url = "http://127.0.0.1:1/a b";
    assert_int_equal(transfer_do(&t, &answer, &sent, &e), TRANSFER_UNREACHED);
    const struct net_header evil = {"X", SLICE("a\r\nY: b")};
    t.url = "http://127.0.0.1:1/";
    t.header = &evil;
    t.header_count = 1;
    assert_int_equal(transfer_do(&t, &answer, &sent, &e), TRANSFER_UNREACHED);
    assert_int_equal(e.code, ERR_REFUSED);
    net_answer_free(&answer);
}

/* ---- URLs ---- */

static void test_urls(void **state)
{
    (void)state;
    char place[TRANSFER_PLACE_MAX];
    assert_true(transfer_place("https://s3.us.archive.org/a?b", place));
    assert_string_equal(place, "https://s3.us.archive.org:443");
    assert_false(transfer_place("https://user:pw@archive.org/", place));
    assert_false(transfer_place("file:///etc/passwd", place));
    assert_true(transfer_is_https("https://a/"));
    assert_false(transfer_is_https("http://a/"));
    assert_true(transfer_is_loopback("http://127.0.0.1:80/"));
    assert_true(transfer_is_loopback("http://localhost/"));
    assert_true(transfer_is_loopback("http://[::1]:1/"));
    assert_false(transfer_is_loopback("http://127.0.0.1.example.org/"));
    assert_false(transfer_is_loopback("http://128.0.0.1/"));
    assert_true(transfer_is_within("https://ia600.us.archive.org/x", "archive.org"));
    assert_true(transfer_is_within("https://ARCHIVE.ORG/x", "archive.org"));
    assert_false(transfer_is_within("https://evilarchive.org/x", "archive.org"));
    assert_false(transfer_is_within("https://archive.org.evil.com/x", "archive.org"));
    assert_false(transfer_is_within("https://evil.com/archive.org", "archive.org"));
    struct buf to = {0};
    assert_true(transfer_resolve("https://a.org/x/y?z", SLICE("/q?r"), &to));
    assert_string_equal(to.ptr, "https://a.org/q?r");
    buf_clear(&to);
    assert_true(transfer_resolve("https://a.org/x", SLICE("https://b.org/y#f"), &to));
    assert_string_equal(to.ptr, "https://b.org/y");
    assert_false(transfer_resolve("https://a.org/x", SLICE(""), &to));
    buf_free(&to);
}

/* ---- answers in pieces ---- */

static enum reply_step feed(const char *text, size_t piece, struct net_answer *answer)
{
    struct reply r;
    enum reply_step step = REPLY_MORE;
    reply_begin(&r, answer, 1000);
    for (size_t at = 0; at < strlen(text) && step == REPLY_MORE; at += piece) {
        size_t n = strlen(text) - at < piece ? strlen(text) - at : piece;
        step = reply_feed(&r, slice_of(text + at, n));
    }
    if (step == REPLY_MORE) {
        step = reply_end(&r);
    }
    reply_free(&r);
    return step;
}

static void test_answers_in_pieces(void **state)
{
    (void)state;
    static const char text[] = "HTTP/1.1 100 Continue\r\nX: no\r\n\r\nHTTP/1.1 201 Made\r\n"
                               "A: b\r\ntransfer-encoding: Chunked\r\n\r\n"
                               "A\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        struct net_answer a;
        struct slice v;
        assert_int_equal(feed(text, piece, &a), REPLY_DONE);
        assert_int_equal(a.status, 201);
        assert_true(a.complete);
        assert_true(slice_eq(buf_slice(&a.body), SLICE("0123456789x")));
        assert_true(net_header(&a, "a", &v));
        assert_false(net_header(&a, "x", &v));
        net_answer_free(&a);
    }
}

static void bad(const char *text, unsigned status)
{
    struct net_answer a;
    enum reply_step step = feed(text, 7, &a);
    assert_int_equal(a.status, status);
    assert_int_equal(step, status == 0 ? REPLY_BAD : REPLY_DONE);
    assert_false(a.complete);
    net_answer_free(&a);
}

static void test_answers_that_are_none(void **state)
{
    (void)state;
    bad("HTTP/2 200\r\n\r\n", 0);
    bad("HTTP/1.1 20x OK\r\n\r\n", 0);
    bad("HTTP/1.1 101 Up\r\n\r\n", 0);
    bad("HTTP/1.1 2000 OK\r\n\r\n", 0);
    bad("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0);
    bad("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0);
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 0);
    bad("HTTP/1.1 200 OK\r\nContent-Le", 0);
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 200);
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", 200);
    bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", 200);
    struct buf long_head = {0};
    buf_put_cstr(&long_head, "HTTP/1.1 200 OK\r\n");
    for (unsigned i = 0; i < 5000; i++) {
        buf_printf(&long_head, "X-%u: 0123456789\r\n", i);
    }
    buf_put_char(&long_head, '\0');
    bad(long_head.ptr, 0);
    buf_free(&long_head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_body_arrives),
        cmocka_unit_test(test_the_request),
        cmocka_unit_test(test_an_early_refusal_is_read),
        cmocka_unit_test(test_no_byte_goes_before_the_refusal_of_a_head),
        cmocka_unit_test(test_what_is_lost),
        cmocka_unit_test(test_a_long_answer_is_cut),
        cmocka_unit_test(test_the_caller_ends_it),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_answers_in_pieces),
        cmocka_unit_test(test_answers_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
