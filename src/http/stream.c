/* stream: answers that are made piece by piece on worker threads.
 *
 * At most one piece of a stream is in memory: its read is asked for only when the piece before it
 * has left, so that a client that takes nothing costs one piece and no work. Piece layout in `out`:
 *
 *   [what is still to be sent] [5 hexadecimal digits CR LF] [data, up to HTTP_PIECE_BYTES] [CR LF]
 *
 * (without the frame for HTTP/1.0, where the end of the connection ends the body). The first piece
 * is read before the head is sent, so a short answer leaves in one go. While `reading` is set,
 * `out` is the worker's. The source is closed exactly once, by the loop, when no read runs. */
#include "base/ensure.h"
#include "http/conn.h"

#define FRAME_BYTES 7 /* 5 digits are enough for HTTP_PIECE_BYTES, and CR LF */

static_assert(HTTP_PIECE_BYTES <= 0xfffff, "a piece's size fits five hexadecimal digits");

static void read_work(void *ctx)
{
    struct http_request *req = ctx;

    req->piece_result =
        req->source.read(req->source_ctx, req->out.ptr + req->piece_at, HTTP_PIECE_BYTES);
}

void http_stream_end(struct http_request *req)
{
    ensure(req->streaming);
    ensure(!req->reading);
    http_request_set_busy(req, &req->streaming, false);
    if (req->source.close != NULL) {
        req->source.close(req->source_ctx);
    }
}

static void frame_piece(struct http_request *req, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *frame = req->out.ptr + req->piece_at - FRAME_BYTES;

    for (int i = 0; i < 5; i++) {
        frame[i] = digits[n >> (4 * (4 - i)) & 0xf];
    }
    frame[5] = '\r';
    frame[6] = '\n';
    req->out.len = req->piece_at + n;
    buf_put_slice(&req->out, SLICE("\r\n"));
}

static void read_done(void *ctx)
{
    struct http_request *req = ctx;
    int64_t n = req->piece_result;

    ensure(req->reading);
    ensure(n <= (int64_t)HTTP_PIECE_BYTES);
    req->reading = false;
    if (req->conn == NULL) {
        http_stream_end(req);
        http_request_release(req);
        return;
    }
    if (n > 0) {
        if (req->chunked_out) {
            frame_piece(req, (size_t)n);
        } else {
            req->out.len = req->piece_at + (size_t)n;
        }
    } else {
        req->cut = n < 0;
        if (n == 0 && req->chunked_out) {
            buf_put_slice(&req->out, SLICE("0\r\n\r\n"));
        }
        http_stream_end(req);
    }
    http_request_count_bytes(req);
    http_conn_set_dirty(req->conn);
}

void http_stream_pull(struct http_request *req)
{
    size_t frame = req->chunked_out ? FRAME_BYTES : 0;

    ensure(req->streaming);
    ensure(!req->reading);
    if (!buf_reserve(&req->out, frame + HTTP_PIECE_BYTES + 2)) {
        return; /* flush sees the failed buffer and cuts the connection */
    }
    req->piece_at = req->out.len + frame;
    req->job = (struct http_job){.work = read_work, .done = read_done, .ctx = req};
    req->pulled = true;
    req->reading = true;
    ensure(http_server_submit(req->server, &req->job, 0));
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
    if (req->conn == NULL || req->method == HTTP_HEAD) {
        http_stream_end(req);
    } else if (!req->chunked_out) {
        req->close = true;
    }
    if (req->conn != NULL) {
        http_answer_head(req, status, content_type, -1, req->chunked_out);
    }
    http_answer_done(req);
}
