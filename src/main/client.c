/* libcurl does the protocol; what is decided here is what may be repeated and for how long.
 *
 * A try ends in one of: answer, busy (429, or 503 with Retry-After), absent (nobody listens, or no
 * TLS session with who does), lost (reset, early end, silence), broken (what came is no HTTP, or
 * too much). Busy: nothing was read or changed (spec/history.md section 5), so every request waits.
 * Lost: only `repeatable` requests, and only while no byte of a 200 went to a sink. Absent: only
 * once this client has had an answer: a server that restarts comes back, one that was never there
 * is a wrong --data, and its message should not take two minutes. Broken: never. All failures are
 * answers to the operator. */
#include "main/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include <curl/curl.h>

#include "base/ensure.h"
#include "main/client_internal.h"
#include "main/config.h"
#include "main/output.h"
#include "main/pause.h"
#include "os/os.h"
#include "json/read.h"

#define CONNECT_TIMEOUT_S 10
#define PAUSE_FIRST_MS    100
#define PAUSE_MAX_MS      5000
#define NOTE_MS           1500 /* longer pauses are announced */

enum outcome { ANSWERED, BUSY, ABSENT, LOST, BROKEN, STOPPED, NO_MEMORY };

/* One try. */
struct attempt {
    struct client *client;
    const struct client_request *req;
    struct client_answer *answer;
    bool sunk;    /* a byte of a 200 went to the sink */
    bool stopped; /* the sink said no */
    bool too_big;
    bool silent;          /* nothing moved for timeout_s */
    curl_off_t moved;     /* bytes, both ways */
    uint64_t moved_at_ns; /* when that last grew */
    bool has_retry_after;
    uint64_t retry_after_s;
    char error[CURL_ERROR_SIZE];
};

uint64_t client_retry_after_s(struct slice value, uint64_t otherwise)
{
    uint64_t v = 0;
    size_t i = 0;
    size_t digits = 0;
    while (i < value.len && (value.ptr[i] == ' ' || value.ptr[i] == '\t')) {
        i++;
    }
    for (; i < value.len && value.ptr[i] >= '0' && value.ptr[i] <= '9' && digits < 9;
         i++, digits++) {
        v = v * 10 + (uint64_t)(value.ptr[i] - '0');
    }
    while (i < value.len && strchr(" \t\r\n", value.ptr[i]) != NULL) {
        i++;
    }
    return digits > 0 && i == value.len ? v : otherwise;
}

static unsigned status_of(struct client *c)
{
    long status = 0;
    (void)curl_easy_getinfo(c->curl, CURLINFO_RESPONSE_CODE, &status);
    return status > 0 ? (unsigned)status : 0;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct attempt *t = ctx;
    static const char name[] = "retry-after:";
    size_t len = size * n;
    if (len >= sizeof name - 1 && strncasecmp(p, name, sizeof name - 1) == 0) {
        t->has_retry_after = true;
        t->retry_after_s =
            client_retry_after_s(slice_of(p + sizeof name - 1, len - (sizeof name - 1)), 1);
    }
    return len;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct attempt *t = ctx;
    size_t len = size * n;
    if (t->req->sink != NULL && status_of(t->client) == 200) {
        t->sunk = true;
        t->stopped = !t->req->sink(t->req->sink_ctx, slice_of(p, len));
        return t->stopped ? CURL_WRITEFUNC_ERROR : len;
    }
    t->too_big = t->answer->body.len + len > CLIENT_BODY_MAX;
    buf_put(&t->answer->body, p, len);
    return t->answer->body.failed ? CURL_WRITEFUNC_ERROR : len;
}

/* Called about once a second and whenever something moves. Counting bytes by the clock here, and
 * not by libcurl's average speed, lets a sink that blocks for minutes (a pager) do so. */
static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    struct attempt *t = ctx;
    (void)down_total;
    (void)up_total;
    uint64_t now_ns = os_clock_mono_ns();
    if (down + up != t->moved || t->moved_at_ns == 0) {
        t->moved = down + up;
        t->moved_at_ns = now_ns;
    }
    t->silent = now_ns - t->moved_at_ns >= t->client->timeout_s * UINT64_C(1000000000);
    return t->silent ? 1 : 0;
}

CURLcode client_set_common(struct client *c, char error[CURL_ERROR_SIZE], const char *url,
                           struct curl_slist *headers)
{
    CURL *h = c->curl;
    CURLcode r = CURLE_OK;
#define SET(option, value) r = r == CURLE_OK ? curl_easy_setopt(h, option, value) : r
    SET(CURLOPT_ERRORBUFFER, error);
    SET(CURLOPT_URL, url);
    if (c->socket_path != NULL) {
        SET(CURLOPT_UNIX_SOCKET_PATH, c->socket_path);
    }
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_USERAGENT, c->agent);
    SET(CURLOPT_CONNECTTIMEOUT,
        (long)(c->timeout_s < CONNECT_TIMEOUT_S ? c->timeout_s : CONNECT_TIMEOUT_S));
    return r;
}

static bool set_request(struct client *c, struct attempt *t, const char *url,
                        struct curl_slist *headers)
{
    CURL *h = c->curl;
    const struct client_request *req = t->req;
    curl_easy_reset(h); /* keeps the connection */
    CURLcode r = client_set_common(c, t->error, url, headers);
    SET(CURLOPT_NOPROGRESS, 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, (void *)t);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, (void *)t);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, (void *)t);
    if (req->post) {
        SET(CURLOPT_POST, 1L);
        SET(CURLOPT_POSTFIELDS, req->body.ptr); /* borrowed, not copied */
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.len);
    }
    if (req->patch) {
        SET(CURLOPT_CUSTOMREQUEST, "PATCH");
    }
    if (req->remove) {
        SET(CURLOPT_CUSTOMREQUEST, "DELETE");
    }
#undef SET
    return r == CURLE_OK;
}

/* NULL without memory. */
static struct curl_slist *make_headers(struct client *c, const struct client_request *req)
{
    struct buf line;
    buf_init(&line, 0);
    struct curl_slist *list = NULL;
    buf_printf(&line, "Accept: %s", req->accept != NULL ? req->accept : "application/json");
    buf_put_char(&line, '\0');
    bool ok = !line.failed && client_add_header(&list, line.ptr);
    ok = ok && (!req->post || client_add_header(&list, "Content-Type: application/json"));
    ok = ok && (c->authorization.len == 0 || client_add_header(&list, c->authorization.ptr));
    buf_free(&line);
    if (!ok) {
        client_free_headers(list);
        return NULL;
    }
    return list;
}

enum client_failure client_failure_of(CURLcode r)
{
    switch ((int)r) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_SSL_CONNECT_ERROR: /* and the next two: no request was sent */
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION:
        return CLIENT_ABSENT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_ABORTED_BY_CALLBACK:
        return CLIENT_LOST;
    default:
        return CLIENT_BROKEN;
    }
}

void client_failure_text(struct client *c, enum client_failure failure, const char *why,
                         struct err *e)
{
    long os_errno = 0;
    (void)curl_easy_getinfo(c->curl, CURLINFO_OS_ERRNO, &os_errno);
    if (failure != CLIENT_ABSENT) {
        (void)err_set(e, ERR_IO, "%.150s: %.150s", c->where, why);
    } else if (c->socket_path == NULL) {
        (void)err_set(e, ERR_CONNECT, "no server answers at %.180s (%.100s)", c->where, why);
    } else {
        /* libcurl's text names a host and a port that are not in play. */
        (void)err_set(e, ERR_CONNECT, "no server answers at %.180s (%s); is it running?", c->where,
                      os_errno != 0 ? strerror((int)os_errno) : "cannot connect");
    }
}

static enum outcome classify(const struct attempt *t, CURLcode r, unsigned status)
{
    static const enum outcome of[] = {
        [CLIENT_ABSENT] = ABSENT, [CLIENT_LOST] = LOST, [CLIENT_BROKEN] = BROKEN};
    if (t->stopped) {
        return STOPPED;
    }
    if (r == CURLE_OUT_OF_MEMORY || (t->answer->body.failed && !t->too_big)) {
        return NO_MEMORY;
    }
    if (r == CURLE_OK) {
        return status == 429 || (status == 503 && t->has_retry_after) ? BUSY : ANSWERED;
    }
    return of[client_failure_of(r)];
}

static enum outcome try_once(struct client *c, struct attempt *t, struct err *e)
{
    struct buf url;
    buf_init(&url, 0);
    buf_printf(&url, "%s%s", c->base, t->req->path);
    if (t->req->query != NULL && t->req->query[0] != '\0') {
        buf_printf(&url, "?%s", t->req->query);
    }
    buf_put_char(&url, '\0');
    struct curl_slist *headers = make_headers(c, t->req);
    enum outcome out = NO_MEMORY;
    CURLcode r = CURLE_OUT_OF_MEMORY;
    if (headers != NULL && !url.failed && set_request(c, t, url.ptr, headers)) {
        r = curl_easy_perform(c->curl);
        t->answer->status = status_of(c);
        out = classify(t, r, t->answer->status);
        const char *why = t->silent             ? "no answer in time"
                          : t->too_big          ? "the answer is larger than this program takes"
                          : t->error[0] != '\0' ? t->error
                                                : curl_easy_strerror(r);
        if (out == ABSENT || out == LOST || out == BROKEN) {
            client_failure_text(c, out == ABSENT ? CLIENT_ABSENT : CLIENT_LOST, why, e);
        }
        /* The handle must not keep a pointer to this frame's memory. */
        curl_easy_reset(c->curl);
    }
    client_free_headers(headers);
    buf_free(&url);
    if (out == NO_MEMORY) {
        (void)err_set(e, ERR_NO_MEMORY, "out of memory");
    } else if (out == STOPPED) {
        (void)err_set(e, ERR_REFUSED, "stopped");
    }
    return out;
}

/* How long to wait before the next try; UINT64_MAX: do not try again. */
static uint64_t next_pause_ms(const struct client *c, const struct attempt *t, enum outcome out,
                              unsigned tries)
{
    uint64_t ms = PAUSE_FIRST_MS;
    for (unsigned i = 1; i < tries && ms < PAUSE_MAX_MS; i++) {
        ms *= 2;
    }
    ms = ms > PAUSE_MAX_MS ? PAUSE_MAX_MS : ms;
    if (t->sunk) {
        return UINT64_MAX;
    }
    if (out == BUSY) {
        return t->has_retry_after && t->retry_after_s > 0 ? t->retry_after_s * 1000 : ms;
    }
    bool again =
        (out == LOST && t->req->repeatable) || (out == ABSENT && t->req->repeatable && c->answered);
    return again ? ms : UINT64_MAX;
}

static void note_pause(const struct client *c, enum outcome out, uint64_t ms, const struct err *e)
{
    if (ms < NOTE_MS) {
        return;
    }
    if (out == BUSY) {
        output_error(c->verb, "%s is busy; trying again in %llu s", c->where,
                     (unsigned long long)(ms / 1000));
    } else {
        output_error(c->verb, "%s; trying again in %llu s", e->text,
                     (unsigned long long)(ms / 1000));
    }
}

int client_do(struct client *c, const struct client_request *req, struct client_answer *answer,
              struct err *e)
{
    uint64_t failing_since_ns = 0;
    *answer = (struct client_answer){0};
    buf_init(&answer->body, CLIENT_BODY_MAX);
    for (unsigned tries = 1;; tries++) {
        struct attempt t = {.client = c, .req = req, .answer = answer};
        uint64_t start_ns = os_clock_mono_ns();
        buf_clear(&answer->body);
        enum outcome out = try_once(c, &t, e);
        if (out == ANSWERED) {
            c->answered = true;
            return 0;
        }
        failing_since_ns = tries == 1 ? start_ns : failing_since_ns;
        uint64_t pause = next_pause_ms(c, &t, out, tries);
        uint64_t spent_ms = (os_clock_mono_ns() - failing_since_ns) / 1000000;
        if (pause == UINT64_MAX || spent_ms + pause > c->retry_s * 1000) {
            c->answered = c->answered || out == BUSY;
            return out == BUSY ? 0 : e->code; /* a 429 to the end is the answer */
        }
        c->answered = c->answered || out == BUSY;
        note_pause(c, out, pause, e);
        pause_ms(pause);
    }
}

void client_answer_free(struct client_answer *answer)
{
    buf_free(&answer->body);
}

bool client_answer_is(const struct client_answer *answer, unsigned status, const char *code)
{
    struct slice value;
    struct slice inner;
    return answer->status == status &&
           json_member(buf_slice(&answer->body), SLICE("error"), &value) &&
           json_string_raw(value, &inner) && json_string_is(inner, slice_cstr(code));
}

/* Copies the string member of that name into out, cut to fit; "" when there is none. */
static void text_member(struct slice object, struct slice name, char *out, size_t size)
{
    struct slice value;
    struct slice inner;
    struct buf text;
    buf_init(&text, 0);
    out[0] = '\0';
    if (json_member(object, name, &value) && json_string_raw(value, &inner) && inner.len < 65536) {
        json_unescape(inner, &text);
        (void)snprintf(out, size, "%.*s", (int)text.len, text.ptr != NULL ? text.ptr : "");
    }
    buf_free(&text);
}

int client_refusal(const struct client *c, const struct client_answer *answer, struct err *e)
{
    char code[64];
    char message[200];
    ensure(answer->status != 0);
    text_member(buf_slice(&answer->body), SLICE("error"), code, sizeof code);
    text_member(buf_slice(&answer->body), SLICE("message"), message, sizeof message);
    return err_set(e, ERR_REFUSED, "%.100s answered %u%s%s%s%s", c->where, answer->status,
                   code[0] != '\0' ? " " : "", code, message[0] != '\0' ? ": " : "", message);
}
