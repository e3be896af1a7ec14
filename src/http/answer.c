/* answer: what goes back to the client.
 *
 *   HTTP/1.1 STATUS REASON / Date / Content-Type / Content-Length or Transfer-Encoding / the door's
 *   own lines / Connection, only where it says something the version does not
 *
 * An answer is composed in the request's `out`, and leaves at the end of the turn. Header values
 * are made harmless (no control byte passes), so that no input can begin a line of its own. A
 * buffer that could not grow is never sent in part: flush cuts the connection instead. */
#include <time.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "http/conn.h"
#include "os/os.h"

/* X(status, reason): the statuses Tallyman sends. */
#define STATUS_TABLE(X)                       \
    X(200, "OK")                              \
    X(201, "Created")                         \
    X(202, "Accepted")                        \
    X(204, "No Content")                      \
    X(304, "Not Modified")                    \
    X(400, "Bad Request")                     \
    X(401, "Unauthorized")                    \
    X(403, "Forbidden")                       \
    X(404, "Not Found")                       \
    X(405, "Method Not Allowed")              \
    X(408, "Request Timeout")                 \
    X(409, "Conflict")                        \
    X(410, "Gone")                            \
    X(411, "Length Required")                 \
    X(412, "Precondition Failed")             \
    X(413, "Content Too Large")               \
    X(414, "URI Too Long")                    \
    X(415, "Unsupported Media Type")          \
    X(417, "Expectation Failed")              \
    X(422, "Unprocessable Content")           \
    X(429, "Too Many Requests")               \
    X(431, "Request Header Fields Too Large") \
    X(460, "Checksum Mismatch")               \
    X(500, "Internal Server Error")           \
    X(501, "Not Implemented")                 \
    X(503, "Service Unavailable")             \
    X(504, "Gateway Timeout")                 \
    X(505, "HTTP Version Not Supported")      \
    X(507, "Insufficient Storage")

static struct slice status_line(unsigned status)
{
    switch (status) {
#define X(number, reason) \
    case number:          \
        return SLICE("HTTP/1.1 " #number " " reason "\r\n");
        STATUS_TABLE(X)
#undef X
    default:
        return (struct slice){0};
    }
}

void http_date_update(struct http_server *s)
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    uint64_t second = os_clock_real_ms() / 1000;
    struct buf line = {.ptr = s->date, .cap = sizeof s->date, .limit = sizeof s->date};
    time_t t = (time_t)second;
    struct tm tm;

    if (second == s->date_second) {
        return;
    }
    s->date_second = second;
    s->date_len = 0;
    if (gmtime_r(&t, &tm) == NULL) {
        return; /* a clock in another age: no Date */
    }
    buf_printf(&line, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", days + 3 * tm.tm_wday,
               tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
               tm.tm_sec);
    s->date_len = line.failed ? 0 : line.len;
}

/* True when the connection ends behind this answer. */
static bool decide_close(struct http_request *req)
{
    bool last = req->conn != NULL && TAILQ_NEXT(req, link) == NULL;

    req->close = req->close || req->body_due;
    if (last && req->server->stopping) {
        req->close = true;
    }
    if (req->close && last && req->conn->state != HTTP_CONN_DRAIN) {
        req->conn->state = HTTP_CONN_DRAIN;
    }
    return req->close;
}

void http_answer_head(struct http_request *req, unsigned status, const char *content_type,
                      int64_t length, bool chunked)
{
    struct http_server *s = req->server;
    struct buf *out = &req->out;
    struct slice line = status_line(status);

    if (line.len != 0) {
        buf_put_slice(out, line);
    } else {
        buf_printf(out, "HTTP/1.1 %u Status\r\n", status);
    }
    buf_put(out, s->date, s->date_len);
    if (content_type != NULL) {
        buf_put_slice(out, SLICE("Content-Type: "));
        buf_put_cstr(out, content_type);
        buf_put_slice(out, SLICE("\r\n"));
    }
    if (length >= 0) {
        buf_put_slice(out, SLICE("Content-Length: "));
        buf_put_u64(out, (uint64_t)length);
        buf_put_slice(out, SLICE("\r\n"));
    }
    if (chunked) {
        buf_put_slice(out, SLICE("Transfer-Encoding: chunked\r\n"));
    }
    if (req->extra.failed) {
        out->failed = true;
    }
    buf_put_slice(out, buf_slice(&req->extra));
    if (req->route != NULL && req->route->shape == HTTP_SHAPE_TUS) {
        buf_put_slice(out, SLICE("Tus-Resumable: 1.0.0\r\n"
                                 "X-Content-Type-Options: nosniff\r\n"
                                 "Cache-Control: no-store\r\n"));
    }
    if (req->route != NULL && req->route->cors) {
        http_cors_put(req, out);
    }
    if (decide_close(req)) {
        buf_put_slice(out, SLICE("Connection: close\r\n"));
    } else if (req->head.version_minor == 0) {
        buf_put_slice(out, SLICE("Connection: keep-alive\r\n"));
    }
    buf_put_slice(out, SLICE("\r\n"));
}

void http_answer_done(struct http_request *req)
{
    req->answered = true;
    metric_add(METRIC_HTTP_REQUESTS, 1);
    if (req->conn == NULL) {
        if (!req->streaming) {
            http_request_release(req);
        }
        return;
    }
    http_request_count_bytes(req);
    http_conn_set_dirty(req->conn);
}

void http_add_header(struct http_request *req, const char *name, struct slice value)
{
    size_t start;

    ensure(!req->answered);
    ensure(http_is_token(slice_cstr(name)));
    if (http_equal_fold(slice_cstr(name), "retry-after")) {
        req->retry_after = true;
    }
    buf_put_cstr(&req->extra, name);
    buf_put_slice(&req->extra, SLICE(": "));
    start = req->extra.len;
    buf_put_slice(&req->extra, value);
    for (size_t i = start; i < req->extra.len; i++) {
        unsigned char c = (unsigned char)req->extra.ptr[i];

        if (c < 0x20 || c == 0x7f) {
            req->extra.ptr[i] = ' ';
        }
    }
    buf_put_slice(&req->extra, SLICE("\r\n"));
}

void http_answer(struct http_request *req, unsigned status, const char *content_type,
                 struct slice body)
{
    bool bodyless = status == 204 || status == 304;

    ensure(!req->answered);
    ensure(!req->in_job);
    ensure(status >= 200);
    ensure(!bodyless || body.len == 0);
    if (req->conn != NULL) {
        http_answer_head(req, status, content_type, bodyless ? -1 : (int64_t)body.len, false);
        if (req->method != HTTP_HEAD) {
            buf_put_slice(&req->out, body);
        }
    }
    http_answer_done(req);
}

/* A JSON string, quotes included. Messages are ours or made from checked input; bytes that are not
 * ASCII are passed on as they are. */
static void put_json_string(struct buf *out, const char *text)
{
    buf_put_char(out, '"');
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;

        if (c == '"' || c == '\\') {
            buf_put_char(out, '\\');
            buf_put_char(out, *p);
        } else if (c < 0x20) {
            buf_printf(out, "\\u%04x", c);
        } else {
            buf_put_char(out, *p);
        }
    }
    buf_put_char(out, '"');
}

/* No room now, for this or for anything: later is another matter. */
static bool is_full(int code)
{
    return code == ERR_OVERLOADED || code == ERR_QUEUE_FULL || code == ERR_STORE_BUSY ||
           code == ERR_NO_SPACE;
}

/* A body that came too slowly may come faster the next time, but posthog-js takes every 4xx, 408
 * too, as a word to drop the events (spec/client-wire.md 5), and tus-js-client gives an upload up
 * (section 6). */
static bool is_slow_retried(int code, enum http_shape shape)
{
    return code == ERR_REQUEST_TIMEOUT && (shape == HTTP_SHAPE_POSTHOG || shape == HTTP_SHAPE_TUS);
}

/* Browsers drop what is answered 429 on PostHog's routes, and Segment's clients wait on it
 * (spec/capture.md A5); tus-js-client gives up on it, and comes again after 503. */
static unsigned status_of(int code, enum http_shape shape)
{
    if (is_slow_retried(code, shape)) {
        return 503;
    }
    if (is_full(code) && (shape == HTTP_SHAPE_POSTHOG || shape == HTTP_SHAPE_POSTHOG_V1 ||
                          shape == HTTP_SHAPE_TUS)) {
        return 503;
    }
    if (is_full(code) && shape == HTTP_SHAPE_SEGMENT) {
        return 429;
    }
    return code == ERR_NO_SPACE ? 503 : err_status(code);
}

/* An object: head and the code's name, between and the message, and extra as further members. */
static void put_error(struct buf *body, const char *head, int code, const char *between,
                      const char *message, struct slice extra)
{
    buf_put_cstr(body, head);
    buf_put_cstr(body, err_name(code));
    buf_put_cstr(body, between);
    put_json_string(body, message);
    if (extra.len != 0) {
        buf_put_char(body, ',');
        buf_put_slice(body, extra);
    }
    buf_put_char(body, '}');
}

/* The code's name in capitals behind "ERR_", as tus servers give it. */
static void put_tus_error(struct buf *body, int code, const char *message)
{
    buf_put_cstr(body, "ERR_");
    for (const char *p = err_name(code); *p != '\0'; p++) {
        buf_put_char(body, (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p));
    }
    buf_printf(body, ": %s\n", message);
}

static enum http_shape shape_of(const struct http_request *req)
{
    return req->route != NULL ? req->route->shape : HTTP_SHAPE_HISTORY;
}

static void answer_error(struct http_request *req, unsigned status, int code, const char *message,
                         struct slice extra)
{
    enum http_shape shape = shape_of(req);
    const char *type = "application/json";
    struct buf body = {0};

    if ((is_full(code) || is_slow_retried(code, shape)) && !req->retry_after) {
        http_add_header(req, "Retry-After", SLICE("1"));
    }
    switch (shape) {
    case HTTP_SHAPE_TUS:
        type = "text/plain; charset=utf-8";
        put_tus_error(&body, code, message);
        break;
    case HTTP_SHAPE_TEXT:
    case HTTP_SHAPE_POSTHOG:
        type = "text/plain; charset=utf-8";
        buf_put_cstr(&body, message);
        buf_put_char(&body, '\n');
        break;
    case HTTP_SHAPE_POSTHOG_V1:
        put_error(&body, "{\"error\":\"", code,
                  "\",\"error_uri\":\"\",\"error_description\":", message, extra);
        break;
    case HTTP_SHAPE_SEGMENT:
        put_error(&body, "{\"success\":false,\"code\":\"", code, "\",\"message\":", message, extra);
        break;
    case HTTP_SHAPE_HISTORY:
    case HTTP_SHAPE_API:
    default:
        put_error(&body, "{\"error\":\"", code, "\",\"message\":", message, extra);
        break;
    }
    req->out.failed = req->out.failed || body.failed;
    http_answer(req, status, type, buf_slice(&body));
    buf_free(&body);
}

void http_answer_error(struct http_request *req, int code, const char *message, struct slice extra)
{
    answer_error(req, status_of(code, shape_of(req)), code, message, extra);
}

void http_answer_error_status(struct http_request *req, unsigned status, int code,
                              const char *message)
{
    ensure(status >= 400);
    answer_error(req, status, code, message, (struct slice){0});
}

struct slice http_answer_too_many(void)
{
    return SLICE("HTTP/1.1 503 Service Unavailable\r\n"
                 "Content-Type: application/json\r\n"
                 "Content-Length: 65\r\n"
                 "Retry-After: 1\r\n"
                 "Access-Control-Allow-Origin: *\r\n"
                 "Access-Control-Expose-Headers: Retry-After\r\n"
                 "Connection: close\r\n"
                 "\r\n"
                 "{\"error\":\"overloaded\",\"message\":\"Too many connections are open.\"}");
}
