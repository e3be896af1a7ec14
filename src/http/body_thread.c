/* body_thread: reading a body on a thread of its own.
 *
 * The thread waits in poll for the socket, for http_body_end (an eventfd) and for body_stall_ms,
 * and receives into its caller's memory. A body of known length is never received beyond its end.
 * Of a chunked one only the data of a chunk goes straight to the caller; its framing comes through
 * a stage of 64 KiB, and what that holds beyond the end of the body goes back to the connection.
 *
 * 100 Continue is said when the first byte is asked for and is not there: work that refuses a
 * request by its head alone has then said nothing. Where the socket takes only a part of it, the
 * rest follows before anything else does: from here, or before the answer (away.c).
 *
 * http_body_end wins over bytes that wait, and loses against the end of the body: who has read all
 * of it has all of it. Everything here is an answer to the work; nothing stops the server. */
#include "http/body_thread.h"

#include <errno.h>
#include <poll.h>

#include "base/ensure.h"
#include "os/os.h"

static int cut_off(struct http_body *b)
{
    b->reset = true;
    return ERR_CONNECT;
}

/* Sends what is left of 100 Continue, as far as the socket takes it. */
static int say_continue(struct http_body *b)
{
    /* sendmsg does not write through it. */
    struct iovec part = {.iov_len = b->interim.len};
    int64_t n;

    memcpy(&part.iov_base, &b->interim.ptr, sizeof part.iov_base);
    n = os_sendv(b->fd, &part, 1);
    if (n == -EAGAIN) {
        return 0;
    }
    if (n < 0) {
        return cut_off(b);
    }
    b->interim = slice_from(b->interim, (size_t)n);
    b->interim_due = false;
    return 0;
}

/* Waits until it is worth trying again. */
static int await(struct http_body *b, uint64_t until_ms)
{
    struct pollfd fds[2] = {{.fd = b->fd, .events = POLLIN},
                            {.fd = b->thread->wake_fd, .events = POLLIN}};
    uint64_t now_ms = os_clock_mono_ns() / 1000000;

    if (now_ms >= until_ms) {
        return ERR_REQUEST_TIMEOUT;
    }
    if (b->interim.len != 0) {
        fds[0].events |= POLLOUT;
    }
    return os_poll(fds, 2, (int)(until_ms - now_ms)) < 0 ? cut_off(b) : 0;
}

/* > 0: bytes received; else an error. */
static int64_t receive(struct http_body *b, char *p, size_t cap)
{
    uint64_t until_ms = os_clock_mono_ns() / 1000000 + b->stall_ms;

    for (;;) {
        int code = atomic_load(&b->end_code);
        int64_t n;

        if (code != 0) {
            return code;
        }
        n = os_recv(b->fd, p, cap);
        if (n > 0) {
            if (b->interim_due) {
                b->interim = (struct slice){0};
                b->interim_due = false;
            }
            return n;
        }
        if (n == 0) {
            b->eof = true;
            return ERR_CONNECT;
        }
        if (n != -EAGAIN) {
            return cut_off(b);
        }
        code = b->interim.len != 0 ? say_continue(b) : 0;
        if (code == 0) {
            code = await(b, until_ms);
        }
        if (code != 0) {
            return code;
        }
    }
}

static size_t smaller(uint64_t a, size_t b)
{
    return a < (uint64_t)b ? (size_t)a : b;
}

static int64_t read_length(struct http_body *b, char *p, size_t cap)
{
    size_t want = smaller(b->left, cap);
    int64_t n;

    ensure(want != 0);
    if (b->have.len != 0) {
        n = (int64_t)smaller(want, b->have.len);
        memcpy(p, b->have.ptr, (size_t)n);
        b->have = slice_from(b->have, (size_t)n);
    } else {
        n = receive(b, p, want);
    }
    if (n > 0) {
        b->left -= (uint64_t)n;
        b->ended = b->left == 0;
    }
    return n;
}

/* One step of the decoder. > 0: bytes of data in p; 0: none yet, or the end. */
static int64_t decode(struct http_body *b, const char *from, size_t n, char *p, size_t *used)
{
    struct slice data;
    int got = http_chunks_step(&b->chunks, UINT64_MAX, from, n, used, &data);

    if (got < 0) {
        return ERR_BAD_REQUEST;
    }
    b->ended = got == 1;
    if (data.len != 0 && data.ptr != p) {
        memcpy(p, data.ptr, data.len);
    }
    return (int64_t)data.len;
}

static int64_t read_chunks(struct http_body *b, char *p, size_t cap)
{
    int64_t n = 0;

    while (n == 0 && !b->ended) {
        size_t used;

        if (b->have.len != 0) {
            n = decode(b, b->have.ptr, smaller(cap, b->have.len), p, &used);
            b->have = slice_from(b->have, used);
        } else if (b->chunks.state == HTTP_CHUNK_DATA && b->chunks.left >= HTTP_STAGE_BYTES) {
            n = receive(b, p, smaller(b->chunks.left, cap));
            if (n > 0) {
                n = decode(b, p, (size_t)n, p, &used);
            }
        } else {
            n = receive(b, b->stage, HTTP_STAGE_BYTES);
            if (n > 0) {
                b->have = slice_of(b->stage, (size_t)n);
                n = 0;
            }
        }
    }
    return n;
}

int64_t http_body_read(struct http_body *b, void *p, size_t cap)
{
    int64_t n;

    ensure(cap != 0);
    if (b->ended) {
        return 0;
    }
    if (b->result == 0) {
        b->result = atomic_load(&b->end_code);
    }
    if (b->result != 0) {
        return b->result;
    }
    n = b->chunked ? read_chunks(b, p, cap) : read_length(b, p, cap);
    if (n < 0) {
        b->result = (int)n;
    }
    return n;
}

uint64_t http_body_left(const struct http_body *b)
{
    if (b->ended) {
        return 0;
    }
    return b->chunked ? UINT64_MAX : b->left;
}

void http_body_end(struct http_body *b, int code)
{
    static const uint64_t one = 1;
    int none = 0;

    ensure(code < 0);
    if (atomic_compare_exchange_strong(&b->end_code, &none, code)) {
        (void)os_write(b->thread->wake_fd, &one, sizeof one); /* fails only when it can be read */
    }
}
