/* net: outgoing requests on libcurl, one at a time.
 *
 * One easy handle inside one multi handle: the multi interface is what lets a request be left
 * within 100 ms of being cancelled, and it keeps the connection for the next request.
 *
 * What libcurl would do on its own and must not: follow redirects, read proxies or netrc from the
 * environment, send Expect, speak other protocols, use signals. A request on a kept connection that
 * the far side closed meanwhile, before a byte of an answer, is sent once more on a new connection
 * by libcurl itself, with the same bytes.
 *
 * An answer counts as whole when its framing says so: a chunked body with its last chunk, or
 * exactly Content-Length bytes. A body that merely ends with the connection is never whole. Bytes
 * behind a whole answer mean that the two sides no longer agree about where messages begin
 * (request drift): the connection is closed and the request ends as ERR_IO, so its outcome counts
 * as unknown. libcurl 7.88 drops such bytes, or takes them for the next answer, and keeps the
 * connection; so we listen to what it says while it works, look at the socket when it has ended,
 * and once more before the connection is used again.
 *
 * Everything here is an answer to the caller; nothing is durable; nothing stops the server. */
#include "net/net_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "os/os.h"

#define CONNECT_MS       5000
#define TOTAL_MS         60000
#define POLL_MS          100
#define HEAD_BYTES_MAX   (64u << 10)
#define ANSWER_BYTES_MAX (1u << 20)
#define UPLOAD_BUFFER    (1L << 20)

/* One request under way. */
struct exchange {
    struct net *net;
    const struct net_request *req;
    struct net_answer *answer;
    uint64_t body_max;
    unsigned lengths; /* Content-Length lines of the final head */
    uint64_t length;
    bool length_bad, chunked, closing;
    bool surplus;        /* libcurl read bytes behind the answer */
    const char *refused; /* why we ended it, or NULL */
    bool no_memory;
};

/* ---- opening ---- */

int net_open(struct net **out, const struct net_target *target, struct err *e)
{
    if (!net_curl_ready()) {
        return err_set(e, ERR_NO_MEMORY, "libcurl does not start");
    }
    struct net *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for a client");
    }
    n->kept = CURL_SOCKET_BAD;
    int r = net_set_target(n, target, e);
    if (r == 0) {
        n->easy = curl_easy_init();
        if (n->easy == NULL) {
            r = err_set(e, ERR_NO_MEMORY, "no memory for a client");
        }
    }
    if (r != 0) {
        net_close(n);
        return r;
    }
    *out = n;
    return 0;
}

void net_close(struct net *n)
{
    if (n == NULL) {
        return;
    }
    curl_easy_cleanup(n->easy);
    if (n->multi != NULL) {
        CURLMcode c = curl_multi_cleanup(n->multi);
        ensure(c == CURLM_OK);
    }
    free(n->url);
    free(n->unix_socket);
    free(n);
}

/* The next request gets a connection of its own. */
static void drop_connection(struct net *n)
{
    CURLMcode c = curl_multi_cleanup(n->multi);
    ensure(c == CURLM_OK);
    n->multi = NULL; /* made anew by the next request */
}

/* An idle connection on which something came, or which ended, is not used again. */
static void check_kept(struct net *n)
{
    char byte;
    if (n->kept != CURL_SOCKET_BAD && os_recv(n->kept, &byte, 1) != -EAGAIN) {
        drop_connection(n);
    }
    n->kept = CURL_SOCKET_BAD;
}

/* ---- what arrives ---- */

static bool refuse(struct exchange *x, const char *why)
{
    x->refused = why;
    return false;
}

static bool line_name_is(struct slice name, const char *lower)
{
    return strlen(lower) == name.len && strncasecmp(name.ptr, lower, name.len) == 0;
}

static void note_length(struct exchange *x, struct slice value)
{
    uint64_t v = 0;
    bool ok = value.len != 0 && value.len <= 18;
    for (size_t i = 0; ok && i < value.len; i++) {
        ok = value.ptr[i] >= '0' && value.ptr[i] <= '9';
        v = v * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    if (!ok || (x->lengths != 0 && v != x->length)) {
        x->length_bad = true;
    }
    x->length = v;
    x->lengths++;
}

static struct slice trimmed(struct slice s)
{
    while (s.len != 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.len != 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    return s;
}

static bool value_is(struct slice value, const char *lower)
{
    return value.len == strlen(lower) && strncasecmp(value.ptr, lower, value.len) == 0;
}

static void start_head(struct exchange *x)
{
    buf_clear(&x->answer->head); /* an interim 1xx head is over */
    x->lengths = 0;
    x->length_bad = false;
    x->chunked = false;
    x->closing = false;
}

static void note_line(struct exchange *x, struct slice line)
{
    struct buf *head = &x->answer->head;
    const char *colon = memchr(line.ptr, ':', line.len);
    if (colon == NULL) {
        return;
    }
    struct slice name = slice_of(line.ptr, (size_t)(colon - line.ptr));
    struct slice value = trimmed(slice_of(colon + 1, line.len - name.len - 1));
    if (line_name_is(name, "content-length")) {
        note_length(x, value);
    } else if (line_name_is(name, "transfer-encoding")) {
        x->chunked = value_is(value, "chunked");
    } else if (line_name_is(name, "connection")) {
        x->closing = !value_is(value, "keep-alive");
    }
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        buf_put_char(head, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
    }
    buf_put_cstr(head, ": ");
    buf_put_slice(head, value);
    buf_put_char(head, '\n');
}

/* libcurl calls this once a line, also for interim heads and for trailers. */
static size_t on_header(char *p, size_t size, size_t count, void *ctx)
{
    struct exchange *x = ctx;
    size_t n = size * count;
    struct slice line = slice_of(p, n);
    if (slice_starts(line, SLICE("HTTP/"))) {
        start_head(x);
        x->closing = slice_starts(line, SLICE("HTTP/1.0"));
        return n;
    }
    note_line(x, line);
    if (x->answer->head.failed) {
        (void)refuse(x, "the answer's head is too long");
        return 0;
    }
    return n;
}

static bool take_body(struct exchange *x, struct slice bytes)
{
    const struct net_request *req = x->req;
    struct buf *body = &x->answer->body;
    long status = 0;
    (void)curl_easy_getinfo(x->net->easy, CURLINFO_RESPONSE_CODE, &status);
    if (req->sink != NULL && status == 200) {
        return req->sink(req->sink_ctx, bytes) || refuse(x, "the reader of the answer has gone");
    }
    if (bytes.len > x->body_max - body->len) {
        return refuse(x, "the answer is too long");
    }
    buf_put_slice(body, bytes);
    x->no_memory = body->failed;
    return !body->failed;
}

static size_t on_body(char *p, size_t size, size_t count, void *ctx)
{
    size_t n = size * count;
    return take_body(ctx, slice_of(p, n)) ? n : 0;
}

/* The only sign that libcurl gives of bytes which it dropped; its words are held by the tests. */
static int on_debug(CURL *easy, curl_infotype type, char *text, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    struct slice said = slice_of(text, n);
    (void)easy;
    if (type == CURLINFO_TEXT &&
        (slice_starts(said, SLICE("Excess found")) || slice_starts(said, SLICE("Leftovers")))) {
        x->surplus = true;
    }
    return 0;
}

/* ---- the request ---- */

static bool header_is_clean(const struct net_header *h)
{
    return h->name[0] != '\0' && strpbrk(h->name, ": \r\n") == NULL &&
           (h->value.len == 0 || (memchr(h->value.ptr, '\r', h->value.len) == NULL &&
                                  memchr(h->value.ptr, '\n', h->value.len) == NULL &&
                                  memchr(h->value.ptr, '\0', h->value.len) == NULL));
}

static bool add_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *grown = curl_slist_append(*list, line);
    if (grown != NULL) {
        *list = grown;
    }
    return grown != NULL;
}

static int put_headers(const struct net_request *req, struct curl_slist **list, struct err *e)
{
    bool typed = false;
    bool ok = add_line(list, "Expect:");
    for (size_t i = 0; ok && i < req->header_count; i++) {
        const struct net_header *h = &req->headers[i];
        struct buf line = {0};
        if (!header_is_clean(h)) {
            return err_set(e, ERR_REFUSED, "header %.40s cannot be sent", h->name);
        }
        typed = typed || strcasecmp(h->name, "content-type") == 0;
        buf_put_cstr(&line, h->name);
        buf_put_cstr(&line, h->value.len == 0 ? ";" : ": "); /* libcurl's form of an empty one */
        buf_put_slice(&line, h->value);
        buf_put_char(&line, '\0');
        ok = !line.failed && add_line(list, line.ptr);
        if (line.ptr != NULL) {
            explicit_bzero(line.ptr, line.len);
        }
        buf_free(&line);
    }
    if (ok && req->post && !typed) {
        ok = add_line(list, "Content-Type:");
    }
    return ok ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for headers");
}

static bool set_fixed(struct net *n)
{
    CURL *c = n->easy;
    curl_easy_reset(c);
    return curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_USERAGENT, "tallyman") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, n->detail) == CURLE_OK &&
           (n->unix_socket == NULL ||
            curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, n->unix_socket) == CURLE_OK);
}

static bool set_request(struct exchange *x, const char *url, struct curl_slist *headers)
{
    CURL *c = x->net->easy;
    const struct net_request *req = x->req;
    long connect_ms = req->connect_ms == 0 ? CONNECT_MS : (long)req->connect_ms;
    long total_ms = req->total_ms == 0 ? TOTAL_MS : (long)req->total_ms;
    bool ok = curl_easy_setopt(c, CURLOPT_URL, url) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, connect_ms) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, total_ms) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_HEADERDATA, x) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_WRITEDATA, x) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_DEBUGFUNCTION, on_debug) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_DEBUGDATA, x) == CURLE_OK &&
              curl_easy_setopt(c, CURLOPT_VERBOSE, 1L) == CURLE_OK;
    if (ok && req->post) {
        /* The length sent is the length given: libcurl reads exactly so many bytes. */
        ok = curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.len) ==
                 CURLE_OK &&
             curl_easy_setopt(c, CURLOPT_POSTFIELDS, req->body.len == 0 ? "" : req->body.ptr) ==
                 CURLE_OK;
    }
    return ok;
}

/* Runs the transfer to its end; *ended is libcurl's own result. */
static int drive(struct exchange *x, CURLcode *ended, struct err *e)
{
    struct net *n = x->net;
    int running = 1;
    while (running != 0) {
        CURLMcode m = curl_multi_perform(n->multi, &running);
        if (m == CURLM_OK && running != 0) {
            m = curl_multi_poll(n->multi, NULL, 0, POLL_MS, NULL);
        }
        if (m != CURLM_OK) {
            return err_set(e, m == CURLM_OUT_OF_MEMORY ? ERR_NO_MEMORY : ERR_IO, "%s: %s", n->name,
                           curl_multi_strerror(m));
        }
        if (running != 0 && x->req->cancel != NULL && atomic_load(x->req->cancel)) {
            (void)refuse(x, "cancelled");
            *ended = CURLE_ABORTED_BY_CALLBACK;
            return 0;
        }
    }
    int left = 0;
    CURLMsg *msg = curl_multi_info_read(n->multi, &left);
    ensure(msg != NULL);
    ensure(msg->msg == CURLMSG_DONE);
    *ended = msg->data.result;
    return 0;
}

/* ---- the verdict ---- */

static bool has_no_body(unsigned status)
{
    return status == 204 || status == 304;
}

/* Bytes behind a whole answer: libcurl said so, or closed a connection that both sides meant to
 * keep, or they are still in the socket. */
static bool has_surplus(struct exchange *x)
{
    struct net *n = x->net;
    curl_socket_t fd = CURL_SOCKET_BAD;
    char byte;
    if (x->surplus) {
        return true;
    }
    if (x->closing) {
        return false;
    }
    if (curl_easy_getinfo(n->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK ||
        fd == CURL_SOCKET_BAD) {
        return true;
    }
    n->kept = fd;
    return n->plain && os_recv(fd, &byte, 1) > 0;
}

static int judge_whole(struct exchange *x, struct err *e)
{
    struct net_answer *a = x->answer;
    if (x->length_bad) {
        return err_set(e, ERR_IO, "%s: contradictory Content-Length", x->net->name);
    }
    if (!x->chunked && x->lengths == 0 && !has_no_body(a->status)) {
        return err_set(e, ERR_IO, "%s: an answer without a length", x->net->name);
    }
    if (has_surplus(x)) {
        return err_set(e, ERR_IO, "%s: bytes behind the answer", x->net->name);
    }
    a->complete = true;
    return 0;
}

static int judge(struct exchange *x, CURLcode ended, struct err *e)
{
    struct net *n = x->net;
    long value = 0;
    (void)curl_easy_getinfo(n->easy, CURLINFO_RESPONSE_CODE, &value);
    x->answer->status = value > 0 ? (unsigned)value : 0;
    (void)curl_easy_getinfo(n->easy, CURLINFO_REQUEST_SIZE, &value);
    x->answer->sent = value > 0;
    if (ended == CURLE_OK) {
        return judge_whole(x, e);
    }
    if (x->refused != NULL) {
        return err_set(e, ERR_REFUSED, "%s: %s", n->name, x->refused);
    }
    if (x->no_memory || ended == CURLE_OUT_OF_MEMORY) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory for the answer", n->name);
    }
    int code = x->answer->sent ? ERR_IO : ERR_CONNECT;
    return err_set(e, code, "%s: %s", n->name,
                   n->detail[0] != '\0' ? n->detail : curl_easy_strerror(ended));
}

static int perform(struct exchange *x, struct err *e)
{
    struct net *n = x->net;
    CURLcode ended = CURLE_OK;
    check_kept(n);
    if (n->multi == NULL) {
        n->multi = curl_multi_init();
    }
    if (n->multi == NULL || curl_multi_add_handle(n->multi, n->easy) != CURLM_OK) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory for a request", n->name);
    }
    int r = drive(x, &ended, e);
    if (r == 0) {
        r = judge(x, ended, e);
    } else {
        x->answer->sent = true; /* nobody knows */
    }
    CURLMcode m = curl_multi_remove_handle(n->multi, n->easy);
    ensure(m == CURLM_OK);
    if (r != 0) {
        n->kept = CURL_SOCKET_BAD;
        drop_connection(n);
    }
    return r;
}

int net_do(struct net *n, const struct net_request *req, struct net_answer *answer, struct err *e)
{
    struct exchange x = {.net = n, .req = req, .answer = answer};
    struct curl_slist *headers = NULL;
    struct buf url = {0};
    *answer = (struct net_answer){0};
    buf_init(&answer->head, HEAD_BYTES_MAX);
    x.body_max = req->answer_bytes_max == 0 ? ANSWER_BYTES_MAX : req->answer_bytes_max;
    n->detail[0] = '\0';
    buf_put_cstr(&url, n->url);
    if (req->query != NULL && req->query[0] != '\0') {
        buf_put_char(&url, '?');
        buf_put_cstr(&url, req->query);
    }
    buf_put_char(&url, '\0');
    int r = put_headers(req, &headers, e);
    if (r == 0 && (url.failed || !set_fixed(n) || !set_request(&x, url.ptr, headers))) {
        r = err_set(e, ERR_NO_MEMORY, "%s: no memory for a request", n->name);
    }
    if (r == 0) {
        r = perform(&x, e);
    }
    /* The handle must not keep pointers into what the caller owns. */
    curl_easy_reset(n->easy);
    for (struct curl_slist *h = headers; h != NULL; h = h->next) {
        explicit_bzero(h->data, strlen(h->data));
    }
    curl_slist_free_all(headers);
    buf_free(&url);
    return r;
}
