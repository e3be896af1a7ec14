/* One request to a tus server, over the same libcurl handle as the other verbs' requests, but with
 * what those do not have: PATCH and HEAD, a body that is read from a file as it goes out, headers
 * of the answer, and an answer that comes before the body is out.
 *
 * A body goes out with Expect: 100-continue (libcurl adds it to large ones), so that most refusals
 * cost nothing. A server that refuses in the middle answers and closes; libcurl then reports the
 * failed send, although the answer is there: an error status whose headers are complete counts as
 * the answer. Silence: no byte moved for timeout_s; after the last byte of a file a second more for
 * every 64 MiB of it, because the far side may read it all once more before it answers.
 *
 * Failures are answers. Nothing is written. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/ensure.h"
#include "main/client_internal.h"
#include "main/interrupt.h"
#include "main/tus_client_internal.h"
#include "os/os.h"

#define ANSWER_BODY_MAX       65536
#define ANSWER_BYTES_MAX      (4u << 20) /* more body than this is no answer to anything here */
#define REREAD_BYTES_A_SECOND (UINT64_C(64) << 20)

struct exchange {
    struct client *client;
    const struct tus_request *req;
    struct tus_answer *answer;
    struct progress progress;
    struct err *err;
    uint64_t at;     /* next byte of the file to hand to libcurl */
    uint64_t end;    /* size of the file */
    uint64_t taken;  /* of the answer's body, kept or not */
    bool head_done;  /* the final answer's headers are complete */
    bool unreadable; /* the file */
    bool silent, too_big;
    curl_off_t moved;
    uint64_t moved_at_ns;
    char error[CURL_ERROR_SIZE];
};

static unsigned status_of(const struct exchange *x)
{
    long status = 0;
    (void)curl_easy_getinfo(x->client->curl, CURLINFO_RESPONSE_CODE, &status);
    return status > 0 ? (unsigned)status : 0;
}

static void forget_headers(struct tus_answer *a)
{
    a->has_offset = false;
    a->has_length = false;
    a->has_retry_after = false;
    a->location[0] = '\0';
    a->expires[0] = '\0';
    buf_clear(&a->receipt);
}

static struct slice trimmed(struct slice s)
{
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[0]) != NULL) {
        s = slice_from(s, 1);
    }
    while (s.len > 0 && strchr(" \t\r\n", s.ptr[s.len - 1]) != NULL) {
        s.len--;
    }
    return s;
}

/* Too long to be one: as if it were not there, so that what needs it says so. */
static void copy_value(struct slice value, char *out, size_t size)
{
    size_t n = value.len < size && memchr(value.ptr, '\0', value.len) == NULL ? value.len : 0;
    memcpy(out, value.ptr, n);
    out[n] = '\0';
}

static void take_header(struct tus_answer *a, struct slice name, struct slice value)
{
#define IS(text) (name.len == sizeof(text) - 1 && strncasecmp(name.ptr, text, name.len) == 0)
    if (IS("Upload-Offset")) {
        a->has_offset = tus_client_number(value, &a->offset);
    } else if (IS("Upload-Length")) {
        a->has_length = tus_client_number(value, &a->length);
    } else if (IS("Retry-After")) {
        a->has_retry_after = tus_retry_after_ms(value, os_clock_real_ms(), &a->retry_after_ms);
    } else if (IS("Location")) {
        copy_value(value, a->location, sizeof a->location);
    } else if (IS("Upload-Expires")) {
        copy_value(value, a->expires, sizeof a->expires);
    } else if (IS("Artifact-Receipt")) {
        buf_clear(&a->receipt);
        buf_put_slice(&a->receipt, value);
    }
#undef IS
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const struct slice line = slice_of(p, size * n);
    const char *colon = memchr(line.ptr, ':', line.len);
    if (slice_starts(line, SLICE("HTTP/"))) {
        forget_headers(x->answer); /* those of a 100 do not count */
    } else if (trimmed(line).len == 0) {
        x->head_done = status_of(x) >= 200;
    } else if (colon != NULL) {
        size_t len = (size_t)(colon - line.ptr);
        take_header(x->answer, slice_of(line.ptr, len), trimmed(slice_from(line, len + 1)));
    }
    return line.len;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    size_t len = size * n;
    size_t room = ANSWER_BODY_MAX - x->answer->body.len;
    buf_put(&x->answer->body, p, len < room ? len : room);
    x->taken += len;
    x->too_big = x->taken > ANSWER_BYTES_MAX;
    return x->too_big || x->answer->body.failed ? CURL_WRITEFUNC_ERROR : len;
}

static size_t on_read(char *p, size_t size, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    uint64_t left = x->end - x->at;
    size_t want = size * n < left ? size * n : (size_t)left;
    if (want == 0) {
        return 0;
    }
    int64_t got = os_pread_full(x->req->content->fd, p, want, x->at);
    if (got <= 0) {
        x->unreadable = true;
        if (got < 0) {
            (void)err_os(x->err, (int)got, "read", x->req->content->name);
        } else {
            (void)err_set(x->err, ERR_IO, "%.200s: became shorter while it was sent",
                          x->req->content->name);
        }
        return CURL_READFUNC_ABORT;
    }
    x->at += (uint64_t)got;
    return (size_t)got;
}

/* libcurl begins anew when a kept connection turns out to be closed, or the server does not know
 * Expect (417). */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
    struct exchange *x = ctx;
    ensure(origin == SEEK_SET);
    ensure(offset >= 0);
    ensure((uint64_t)offset <= x->end - x->req->offset);
    x->at = x->req->offset + (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* Called about once a second and whenever something moves. */
static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    struct exchange *x = ctx;
    (void)down_total;
    (void)up_total;
    uint64_t now_ns = os_clock_mono_ns();
    if (down + up != x->moved || x->moved_at_ns == 0) {
        x->moved = down + up;
        x->moved_at_ns = now_ns;
    }
    if (x->req->content != NULL) {
        progress_update(&x->progress, x->req->offset + (uint64_t)up);
    }
    uint64_t patience_s = x->client->timeout_s;
    if (x->req->content != NULL && x->at == x->end) {
        patience_s += x->end / REREAD_BYTES_A_SECOND;
    }
    x->silent = now_ns - x->moved_at_ns >= patience_s * UINT64_C(1000000000);
    return x->silent || interrupt_came() ? 1 : 0;
}

static bool set_request(struct exchange *x, struct curl_slist *headers)
{
    CURL *h = x->client->curl;
    const struct tus_request *req = x->req;
    curl_easy_reset(h); /* keeps the connection */
    CURLcode r = client_set_common(x->client, x->error, req->url, headers);
#define SET(option, value) r = r == CURLE_OK ? curl_easy_setopt(h, option, value) : r
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, (void *)x);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, (void *)x);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, (void *)x);
    if (req->method == TUS_HEAD) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (req->method == TUS_POST) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, "");
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
    } else if (req->method == TUS_PATCH) {
        SET(CURLOPT_UPLOAD, 1L);
        SET(CURLOPT_CUSTOMREQUEST, "PATCH");
        SET(CURLOPT_INFILESIZE_LARGE, (curl_off_t)(x->end - x->at));
        SET(CURLOPT_UPLOAD_BUFFERSIZE, (long)TUS_BUFFER_BYTES);
        SET(CURLOPT_READFUNCTION, on_read);
        SET(CURLOPT_READDATA, (void *)x);
        SET(CURLOPT_SEEKFUNCTION, on_seek);
        SET(CURLOPT_SEEKDATA, (void *)x);
    }
#undef SET
    return r == CURLE_OK;
}

static enum tus_outcome judge(struct exchange *x, CURLcode r)
{
    static const enum tus_outcome of[] = {
        [CLIENT_ABSENT] = TUS_ABSENT, [CLIENT_LOST] = TUS_LOST, [CLIENT_BROKEN] = TUS_BROKEN};
    struct tus_answer *a = x->answer;
    a->status = status_of(x);
    a->moved_ns = x->moved > 0 ? x->moved_at_ns : 0;
    a->all_sent = x->req->content != NULL && x->at == x->end;
    if (r == CURLE_OK || (x->head_done && a->status >= 300 && r != CURLE_OUT_OF_MEMORY)) {
        return a->body.failed || a->receipt.failed ? TUS_NO_MEMORY : TUS_ANSWERED;
    }
    a->status = 0; /* a 100, or a part of an answer, is none */
    if (x->unreadable) {
        return TUS_UNREADABLE; /* on_read has said why */
    }
    if (interrupt_came()) {
        (void)err_set(x->err, ERR_REFUSED, "stopped");
        return TUS_INTERRUPTED;
    }
    if (r == CURLE_OUT_OF_MEMORY || a->body.failed || a->receipt.failed) {
        return TUS_NO_MEMORY;
    }
    enum client_failure failure = client_failure_of(r);
    client_failure_text(x->client, failure,
                        x->silent             ? "no answer in time"
                        : x->too_big          ? "the answer is too long to be one"
                        : x->error[0] != '\0' ? x->error
                                              : curl_easy_strerror(r),
                        x->err);
    return of[failure];
}

enum tus_outcome tus_exchange(struct client *c, const struct tus_request *req,
                              struct tus_answer *answer, struct err *e)
{
    struct exchange x = {.client = c, .req = req, .answer = answer, .err = e};
    struct curl_slist *headers = NULL;
    enum tus_outcome out = TUS_NO_MEMORY;
    *answer = (struct tus_answer){0};
    buf_init(&answer->body, ANSWER_BODY_MAX);
    buf_init(&answer->receipt, 0); /* a header line; libcurl bounds them all together */
    if (req->content != NULL) {
        ensure(req->offset <= req->content->size);
        x.at = req->offset;
        x.end = req->content->size;
    }
    progress_start_silent(&x.progress, "sending", x.end, x.at);
    bool ok = true;
    for (const char *const *line = req->headers; ok && *line != NULL; line++) {
        ok = client_add_header(&headers, *line);
    }
    if (ok && set_request(&x, headers)) {
        out = judge(&x, curl_easy_perform(c->curl));
    }
    c->answered = c->answered || out == TUS_ANSWERED;
    curl_easy_reset(c->curl); /* the handle must not keep a pointer to this frame */
    client_free_headers(headers);
    progress_end();
    if (out == TUS_NO_MEMORY) {
        (void)err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    return out;
}

void tus_answer_free(struct tus_answer *answer)
{
    buf_free(&answer->receipt);
    buf_free(&answer->body);
}
