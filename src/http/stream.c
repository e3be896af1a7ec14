/* stream: answers that are made piece by piece, on worker threads or (live sources) here.
 *
 * At most one piece of a stream is in memory: its read is asked for only when the piece before it
 * has left, so that a client that takes nothing costs one piece and no work. Piece layout in `out`:
 *
 *   [what is still to be sent] [5 hexadecimal digits CR LF] [data, up to HTTP_PIECE_BYTES] [CR LF]
 *
 * (without the frame for HTTP/1.0, where the end of the connection ends the body). The first piece
 * is read before the head is sent, so a short answer leaves in one go. While `reading` is set,
 * `out` is the worker's. The source is closed exactly once, by the loop, when no read runs.
 *
 * A live source is asked first (`next`), each time everything has left:
 *
 *   ask --SEND--> framed, sent, ask        ask --WAIT--> waits, without buffers --woken--> ask
 *   ask --READ--> queued, or with a worker --some bytes--> sent, ask
 *                                          --none--> ask        ask --END or CUT--> over
 *
 * Not more of its reads are with the pool than there are workers, the others wait here in the order
 * of their asking: whoever submits a job beside them waits for one short piece a worker, however
 * many thousand they are. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "http/conn.h"
#include "os/os.h"

#define FRAME_BYTES 7 /* 5 digits are enough for HTTP_PIECE_BYTES, and CR LF */
/* What the kernel holds of a live stream that nobody takes, beyond what the far side has room for:
 * else it would be megabytes a connection. */
#define LIVE_UNSENT_BYTES (128u << 10)
/* A dead client of a stream that has nothing to say is noticed after 60 + 4 * 15 seconds. */
#define LIVE_IDLE_S  60
#define LIVE_PROBE_S 15
#define LIVE_PROBES  4

static_assert(HTTP_PIECE_BYTES <= 0xfffff, "a piece's size fits five hexadecimal digits");
static_assert(HTTP_NEXT_BYTES_MAX <= 0xfffff, "and so does one made on the loop");

static bool is_live(const struct http_request *req)
{
    return req->source.next != NULL;
}

bool http_stream_is_live(const struct http_conn *c)
{
    const struct http_request *req = TAILQ_FIRST(&c->queue);

    return req != NULL && req->streaming && is_live(req);
}

static size_t piece_bytes(const struct http_request *req)
{
    return is_live(req) ? HTTP_LIVE_PIECE_BYTES : HTTP_PIECE_BYTES;
}

static void read_work(void *ctx)
{
    struct http_request *req = ctx;

    req->piece_result =
        req->source.read(req->source_ctx, req->out.ptr + req->piece_at, piece_bytes(req));
}

void http_stream_end(struct http_request *req)
{
    ensure(req->streaming);
    ensure(!req->reading);
    if (req->queued) {
        req->queued = false;
        TAILQ_REMOVE(&req->server->live, req, live_link);
    }
    http_request_set_busy(req, &req->streaming, false);
    if (req->source.close != NULL) {
        req->source.close(req->source_ctx);
    }
}

/* n bytes of data are in place; their frame is put around them. */
static void frame_piece(struct http_request *req, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *frame = req->out.ptr + req->piece_at - FRAME_BYTES;

    req->out.len = req->piece_at + n;
    if (!req->chunked_out) {
        return;
    }
    for (int i = 0; i < 5; i++) {
        frame[i] = digits[n >> (4 * (4 - i)) & 0xf];
    }
    frame[5] = '\r';
    frame[6] = '\n';
    buf_put_slice(&req->out, SLICE("\r\n"));
}

static void end_pieces(struct http_request *req, bool cut)
{
    req->cut = cut;
    if (!cut && req->chunked_out) {
        buf_put_slice(&req->out, SLICE("0\r\n\r\n"));
    }
    http_stream_end(req);
}

static void read_done(void *ctx);

static void submit(struct http_request *req)
{
    if (!buf_reserve(&req->out, FRAME_BYTES + piece_bytes(req) + 2)) {
        return; /* flush sees the failed buffer and cuts the connection */
    }
    req->piece_at = req->out.len + (req->chunked_out ? FRAME_BYTES : 0);
    req->job = (struct http_job){.work = read_work, .done = read_done, .ctx = req};
    req->reading = true;
    req->server->live_reads += is_live(req) ? 1 : 0;
    ensure(http_server_submit(req->server, &req->job, 0));
}

/* A live read came back: the next ones that wait are due. One without memory for its piece is
 * passed over, else nobody would come back for those behind it. */
static void submit_next(struct http_server *s)
{
    struct http_request *req;

    while ((req = TAILQ_FIRST(&s->live)) != NULL && s->live_reads < s->config.limits.workers) {
        TAILQ_REMOVE(&s->live, req, live_link);
        req->queued = false;
        submit(req);
        if (req->out.failed) {
            http_conn_set_dirty(req->conn);
        }
    }
}

static void read_done(void *ctx)
{
    struct http_request *req = ctx;
    struct http_server *s = req->server;
    bool live = is_live(req);
    int64_t n = req->piece_result;

    ensure(req->reading);
    ensure(n <= (int64_t)piece_bytes(req));
    req->reading = false;
    ensure(!live || s->live_reads != 0);
    s->live_reads -= live ? 1 : 0;
    if (req->conn == NULL) {
        http_stream_end(req);
        http_request_release(req);
    } else {
        if (n > 0) {
            frame_piece(req, (size_t)n);
        } else if (n < 0 || !live) {
            end_pieces(req, n < 0);
        }
        http_request_count_bytes(req);
        http_conn_set_dirty(req->conn);
    }
    submit_next(s);
}

/* Nothing is needed for a while but to be found again: what doors could look at while they had the
 * request goes, too. */
static void wait_empty(struct http_request *req)
{
    req->waits = true;
    if (req->out.len != 0) {
        return; /* what is there has yet to leave: this time nothing is saved */
    }
    buf_free(&req->out);
    if (req->fields != NULL) {
        req->head = (struct http_head){.version_minor = req->head.version_minor};
        free(req->fields);
        req->fields = NULL;
        req->fields_cap = 0;
        buf_free(&req->head_bytes);
        buf_free(&req->extra);
        buf_free(&req->body);
        arena_free(&req->arena);
    }
}

/* Asks the live source. True when a worker has to read. */
static bool ask(struct http_request *req)
{
    size_t before = req->out.len;
    enum http_next next;

    if (!buf_reserve(&req->out, FRAME_BYTES)) {
        return false;
    }
    req->piece_at = before + (req->chunked_out ? FRAME_BYTES : 0);
    req->out.len = req->piece_at;
    next = req->source.next(req->source_ctx, &req->out);
    if (next == HTTP_NEXT_SEND) {
        size_t n = req->out.len - req->piece_at;

        ensure(req->out.failed || (n > 0 && n <= HTTP_NEXT_BYTES_MAX));
        if (!req->out.failed) {
            frame_piece(req, n);
        }
        return false;
    }
    req->out.len = before;
    if (next == HTTP_NEXT_WAIT) {
        wait_empty(req);
    } else if (next != HTTP_NEXT_READ) {
        end_pieces(req, next == HTTP_NEXT_CUT);
    }
    return next == HTTP_NEXT_READ;
}

void http_stream_pull(struct http_request *req)
{
    struct http_server *s = req->server;

    ensure(req->streaming);
    ensure(!req->reading);
    ensure(!req->queued);
    req->pulled = true;
    if (is_live(req)) {
        if (!ask(req)) {
            http_request_count_bytes(req);
            return;
        }
        if (s->live_reads >= s->config.limits.workers || !TAILQ_EMPTY(&s->live)) {
            req->queued = true;
            TAILQ_INSERT_TAIL(&s->live, req, live_link);
            return;
        }
    }
    submit(req);
}

void http_stream_wake(struct http_request *req)
{
    ensure(req->streaming);
    ensure(is_live(req));
    req->waits = false;
    if (req->conn != NULL) {
        http_conn_set_dirty(req->conn);
    }
}

/* Best effort: a stream without them works, and holds on to a dead client for longer. */
static void set_live_options(const struct http_conn *c)
{
    static const int on = 1;
    static const int idle_s = LIVE_IDLE_S;
    static const int probe_s = LIVE_PROBE_S;
    static const int probes = LIVE_PROBES;
    static const int unsent_bytes = LIVE_UNSENT_BYTES;

    if (!c->unix_socket) {
        (void)os_setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        (void)os_setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
        (void)os_setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof probe_s);
        (void)os_setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        (void)os_setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes,
                            sizeof unsent_bytes);
    }
}

void http_answer_stream(struct http_request *req, unsigned status, const char *content_type,
                        const struct http_source *source, void *ctx)
{
    ensure(!req->answered);
    ensure(!req->in_job);
    ensure(source->read != NULL);
    req->source = *source;
    req->source_ctx = ctx;
    http_request_set_busy(req, &req->streaming, true);
    req->chunked_out = req->head.version_minor == 1 && req->method != HTTP_HEAD;
    req->close = req->close || is_live(req);
    if (req->conn == NULL || req->method == HTTP_HEAD) {
        http_stream_end(req);
    } else if (!req->chunked_out) {
        req->close = true;
    }
    if (req->conn != NULL) {
        if (req->streaming && is_live(req)) {
            set_live_options(req->conn);
        }
        http_answer_head(req, status, content_type, -1, req->chunked_out);
    }
    http_answer_done(req);
}
