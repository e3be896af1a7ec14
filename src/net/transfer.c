/* transfer: the conversation, on a connection that libcurl made (CURLOPT_CONNECT_ONLY).
 *
 * libcurl's own uploads give up at the first failed write and throw the connection away, and with
 * it the far side's reason, which is often in the socket already. Here, each turn reads first;
 * after a failed write only reading goes on, for a while; and a final status that comes early ends
 * the writing. Then: an answer is what is believed, whatever became of the bytes.
 *
 * Times: connecting; the wait for 100 Continue, after which the body is sent anyway; silence while
 * bytes are to be moved (stall); the wait for the status after the last byte; and one bound for
 * the whole of an answer that has begun.
 *
 * Everything here is an answer to the caller; nothing is durable; nothing stops the process. */
#include "net/transfer.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "net/net_internal.h"
#include "net/reply.h"
#include "os/os.h"

#define NS_PER_MS      UINT64_C(1000000)
#define POLL_MS        100
#define PROGRESS_MS    100
#define READ_BYTES     16384
#define BROKEN_MS      10000  /* for the answer after a write that failed */
#define ANSWER_MS_MAX  600000 /* for all of an answer that has begun */
#define HEAD_BYTES_MAX (32u << 10)

enum phase { HEAD, WAIT, BODY, SENT, BROKEN };

struct talk {
    const struct transfer *t;
    CURL *curl;
    int fd;
    char place[TRANSFER_PLACE_MAX];
    char detail[CURL_ERROR_SIZE];
    struct buf head;
    size_t head_at;
    struct slice piece;
    uint64_t at; /* bytes of the body that left */
    struct reply reply;
    enum phase phase;
    uint64_t moved_ns;    /* when a byte went or came */
    uint64_t phase_ns;    /* when the phase began */
    uint64_t answered_ns; /* when the final status came; 0: not yet */
    uint64_t told_ns;     /* progress */
    bool source;          /* the caller's body said no */
};

static bool is_over(uint64_t now_ns, uint64_t since_ns, uint64_t limit_ms)
{
    return now_ns > since_ns && (now_ns - since_ns) / NS_PER_MS >= limit_ms;
}

static void enter(struct talk *k, enum phase phase)
{
    k->phase = phase;
    k->phase_ns = os_clock_mono_ns();
}

/* ---- connecting ---- */

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct transfer *t = ctx;

    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return t->stopping(t->ctx) ? 1 : 0;
}

static bool set_options(struct talk *k)
{
    CURL *c = k->curl;
    const char *authorities = getenv("CURL_CA_BUNDLE");

    return curl_easy_setopt(c, CURLOPT_URL, k->place) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)k->t->connect_ms) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_ERRORBUFFER, k->detail) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress) == CURLE_OK &&
           curl_easy_setopt(c, CURLOPT_XFERINFODATA, k->t) == CURLE_OK &&
           (authorities == NULL || authorities[0] == '\0' ||
            curl_easy_setopt(c, CURLOPT_CAINFO, authorities) == CURLE_OK);
}

static enum transfer_end connect_to(struct talk *k, struct err *e)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    CURLcode c;

    k->curl = net_curl_ready() ? curl_easy_init() : NULL;
    if (k->curl == NULL || !set_options(k)) {
        (void)err_set(e, ERR_NO_MEMORY, "%s: no memory for a connection", k->place);
        return TRANSFER_NO_MEMORY;
    }
    c = curl_easy_perform(k->curl);
    if (c == CURLE_ABORTED_BY_CALLBACK) {
        (void)err_set(e, ERR_REFUSED, "%s: given up", k->place);
        return TRANSFER_STOPPED;
    }
    if (c == CURLE_OK) {
        c = curl_easy_getinfo(k->curl, CURLINFO_ACTIVESOCKET, &fd);
    }
    if (c != CURLE_OK || fd == CURL_SOCKET_BAD) {
        (void)err_set(e, ERR_CONNECT, "%s: %s", k->place,
                      k->detail[0] != '\0' ? k->detail : curl_easy_strerror(c));
        return TRANSFER_UNREACHED;
    }
    k->fd = fd;
    return TRANSFER_ANSWERED;
}

/* ---- the head ---- */

static bool is_clean(const struct net_header *h)
{
    return h->name[0] != '\0' && strpbrk(h->name, ": \r\n") == NULL &&
           (h->value.len == 0 || (memchr(h->value.ptr, '\r', h->value.len) == NULL &&
                                  memchr(h->value.ptr, '\n', h->value.len) == NULL &&
                                  memchr(h->value.ptr, '\0', h->value.len) == NULL));
}

/* Host without the port that the scheme has anyway, as everybody sends it. */
static void put_host(struct buf *out, const char *place)
{
    const char *host = strstr(place, "://") + 3;
    size_t n = strlen(host);

    if (strncmp(place, "https:", 6) == 0 && n > 4 && strcmp(host + n - 4, ":443") == 0) {
        n -= 4;
    } else if (strncmp(place, "http:", 5) == 0 && n > 3 && strcmp(host + n - 3, ":80") == 0) {
        n -= 3;
    }
    buf_put(out, host, n);
}

static bool make_head(struct talk *k)
{
    const struct transfer *t = k->t;
    const char *host = strstr(t->url, "://");
    const char *path = host == NULL ? NULL : host + 3 + strcspn(host + 3, "/?#");
    struct buf *b = &k->head;

    if (path == NULL || strpbrk(path, " \r\n") != NULL) {
        return false;
    }
    buf_init(b, HEAD_BYTES_MAX);
    buf_put_cstr(b, t->method);
    buf_put_cstr(b, path[0] == '/' ? " " : " /");
    buf_put_cstr(b, path);
    buf_put_cstr(b, " HTTP/1.1\r\nHost: ");
    put_host(b, k->place);
    buf_put_cstr(b, "\r\nConnection: close\r\nAccept: */*\r\n");
    for (size_t i = 0; i < t->header_count; i++) {
        if (!is_clean(&t->header[i])) {
            return false;
        }
        buf_put_cstr(b, t->header[i].name);
        buf_put_cstr(b, ": ");
        buf_put_slice(b, t->header[i].value);
        buf_put_cstr(b, "\r\n");
    }
    if (t->has_body) {
        buf_put_cstr(b, "Content-Length: ");
        buf_put_u64(b, t->body_bytes);
        buf_put_cstr(b, t->expect_ms > 0 ? "\r\nExpect: 100-continue\r\n" : "\r\n");
    }
    buf_put_cstr(b, "\r\n");
    return !b->failed;
}

/* ---- one turn ---- */

/* Reads what is there. True: the answer is whole, or can be no better. */
static bool receive(struct talk *k, bool *moved)
{
    char bytes[READ_BYTES];
    size_t n = 0;
    CURLcode c = curl_easy_recv(k->curl, bytes, sizeof bytes, &n);
    enum reply_step step;

    if (c == CURLE_AGAIN) {
        return false;
    }
    if (c != CURLE_OK || n == 0) {
        (void)reply_end(&k->reply);
        return true;
    }
    *moved = true;
    k->moved_ns = os_clock_mono_ns();
    step = reply_feed(&k->reply, slice_of(bytes, n));
    if (k->reply.answer->status != 0 && k->answered_ns == 0) {
        k->answered_ns = k->moved_ns;
    }
    return step != REPLY_MORE;
}

/* Writes some of what is left. False: that failed. */
static bool write_some(struct talk *k, struct slice left, size_t *wrote)
{
    CURLcode c = curl_easy_send(k->curl, left.ptr, left.len, wrote);

    if (c != CURLE_OK) {
        *wrote = 0;
    }
    if (c != CURLE_OK && c != CURLE_AGAIN) {
        enter(k, BROKEN);
        return false;
    }
    if (*wrote > 0) {
        k->moved_ns = os_clock_mono_ns();
    }
    return true;
}

static bool send_head(struct talk *k)
{
    size_t n = 0;

    if (!write_some(k, slice_from(buf_slice(&k->head), k->head_at), &n)) {
        return false;
    }
    k->head_at += n;
    if (k->head_at == k->head.len) {
        bool body = k->t->has_body && k->t->body_bytes > 0;
        enter(k, !body ? SENT : k->t->expect_ms > 0 ? WAIT : BODY);
    }
    return n > 0;
}

static void tell(struct talk *k)
{
    uint64_t now_ns = os_clock_mono_ns();

    if (k->t->progress != NULL &&
        (is_over(now_ns, k->told_ns, PROGRESS_MS) || k->at == k->t->body_bytes)) {
        k->told_ns = now_ns;
        k->t->progress(k->t->ctx, k->at);
    }
}

static bool send_body(struct talk *k)
{
    uint64_t left = k->t->body_bytes - k->at;
    size_t n = 0;

    if (k->piece.len == 0) {
        if (!k->t->body(k->t->ctx, k->at, &k->piece)) {
            k->source = true;
            return false;
        }
        ensure(k->piece.len > 0);
        if (k->piece.len > left) {
            k->piece.len = (size_t)left;
        }
    }
    if (!write_some(k, k->piece, &n)) {
        return false;
    }
    k->piece = slice_from(k->piece, n);
    k->at += n;
    if (n > 0) {
        tell(k);
    }
    if (k->at == k->t->body_bytes) {
        enter(k, SENT);
    }
    return n > 0;
}

/* True: something moved. */
static bool write_turn(struct talk *k)
{
    if (k->answered_ns != 0) {
        return false; /* it knows enough */
    }
    switch (k->phase) {
    case HEAD:
        return send_head(k);
    case WAIT:
        if (k->reply.go_on || is_over(os_clock_mono_ns(), k->phase_ns, k->t->expect_ms)) {
            enter(k, BODY);
            return true;
        }
        return false;
    case BODY:
        return send_body(k);
    case SENT:
    case BROKEN:
        break;
    }
    return false;
}

/* Why it is given up now, or NULL. */
static const char *overdue(const struct talk *k)
{
    uint64_t now_ns = os_clock_mono_ns();

    if (k->answered_ns != 0) {
        return is_over(now_ns, k->answered_ns, ANSWER_MS_MAX) ||
                       is_over(now_ns, k->moved_ns, k->t->stall_ms)
                   ? "the answer did not end"
                   : NULL;
    }
    if (k->phase == BROKEN) {
        return is_over(now_ns, k->phase_ns, BROKEN_MS) ? "the connection broke" : NULL;
    }
    if (k->phase == SENT) {
        return is_over(now_ns, k->phase_ns, k->t->answer_ms) ? "no answer came in time" : NULL;
    }
    return is_over(now_ns, k->moved_ns, k->t->stall_ms) ? "no byte moved for too long" : NULL;
}

static void wait_for_more(const struct talk *k)
{
    bool writes = k->answered_ns == 0 && (k->phase == HEAD || k->phase == BODY);
    struct pollfd p = {.fd = k->fd, .events = (short)(writes ? POLLIN | POLLOUT : POLLIN)};
    int wait_ms = POLL_MS;

    if (k->phase == WAIT && k->t->expect_ms < POLL_MS) {
        wait_ms = (int)k->t->expect_ms + 1;
    }
    (void)os_poll(&p, 1, wait_ms);
}

/* ---- the end ---- */

static enum transfer_end judge(const struct talk *k, const char *why, struct err *e)
{
    if (k->reply.answer->status != 0) {
        return TRANSFER_ANSWERED;
    }
    if (why == NULL) {
        why = k->reply.state == REPLY_AT_FAULT ? "the answer is no HTTP"
              : k->phase == BROKEN             ? "the connection broke"
                                               : "the connection ended without an answer";
    }
    (void)err_set(e, ERR_IO, "%s: %s", k->place, why);
    return k->phase == SENT ? TRANSFER_LOST : TRANSFER_CUT;
}

static enum transfer_end talk(struct talk *k, struct err *e)
{
    k->moved_ns = os_clock_mono_ns();
    enter(k, HEAD);
    for (;;) {
        bool moved = false;
        const char *why;
        if (k->t->stopping(k->t->ctx)) {
            (void)err_set(e, ERR_REFUSED, "%s: given up", k->place);
            return TRANSFER_STOPPED;
        }
        if (receive(k, &moved)) {
            return judge(k, NULL, e);
        }
        moved = write_turn(k) || moved;
        if (k->source) {
            (void)err_set(e, ERR_REFUSED, "%s: the body could not be read", k->place);
            return TRANSFER_SOURCE;
        }
        why = overdue(k);
        if (why != NULL) {
            return judge(k, why, e);
        }
        if (!moved) {
            wait_for_more(k);
        }
    }
}

enum transfer_end transfer_do(const struct transfer *t, struct net_answer *answer, uint64_t *sent,
                              struct err *e)
{
    struct talk k = {.t = t, .fd = -1};
    enum transfer_end end;

    ensure(!t->has_body || t->body != NULL || t->body_bytes == 0);
    reply_begin(&k.reply, answer, t->answer_bytes_max);
    if (!transfer_place(t->url, k.place)) {
        (void)err_set(e, ERR_USAGE, "not a URL that can be asked");
        end = TRANSFER_UNREACHED;
    } else if (!make_head(&k)) {
        (void)err_set(e, ERR_REFUSED, "%s: the request cannot be written", k.place);
        end = TRANSFER_UNREACHED;
    } else {
        end = connect_to(&k, e);
        end = end == TRANSFER_ANSWERED ? talk(&k, e) : end;
    }
    *sent = k.at;
    curl_easy_cleanup(k.curl);
    if (k.head.ptr != NULL) {
        explicit_bzero(k.head.ptr, k.head.len);
    }
    buf_free(&k.head);
    reply_free(&k.reply);
    return end;
}
