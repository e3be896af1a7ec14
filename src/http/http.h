/* http: the front of every door. One loop thread owns all connections; doors see requests and give
 * answers.
 *
 * Life of a request: head parsed -> auth 401 -> route 404 -> method 405 -> route's on_head (query
 * string, media type: may answer) -> admission (429) -> [100 Continue] -> body, bounded (413) ->
 * on_request. on_request answers at once, or keeps the request and answers later (after the commit
 * of the turn, or from a worker's done function). Answers leave a connection in the order of its
 * requests. A request stays valid until it is answered, also when its client has gone (the answer
 * is then dropped). HTTP/1.1 and 1.0 (ARCHITECTURE section 3).
 *
 * A turn: all ready connections are read and their requests handed out; then `turn` of the server's
 * hooks runs once (the doors' commit); then everything that was answered is written. Threads: every
 * function here is for the loop thread unless it says otherwise. Blocking: nothing here blocks but
 * http_run. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

struct http_server;
struct http_request;

enum http_method {
    HTTP_GET = 1,
    HTTP_HEAD = 2,
    HTTP_POST = 4,
    HTTP_PUT = 8,
    HTTP_PATCH = 16,
    HTTP_DELETE = 32,
    HTTP_OPTIONS = 64,
    HTTP_OTHER = 128 /* any other token; CONNECT never gets this far */
};

/* Who may ask. TOKEN: the rules of spec/history.md "Security on TCP" (token checked in constant
 * time where configured; else no Origin header and a loopback Host); always allowed on the Unix
 * socket. OPEN: anybody who reaches the port. LOCAL: the Unix socket only; on TCP the path does not
 * exist (404 after the TOKEN rules). Paths without a route are TOKEN. */
enum http_auth { HTTP_AUTH_TOKEN, HTTP_AUTH_OPEN, HTTP_AUTH_LOCAL };

/* Form of error bodies. HISTORY and API: {"error":code,"message":text,...}; TEXT: "message\n" as
 * text/plain. POSTHOG: as TEXT; POSTHOG_V1: {"error":code,"error_description":text,"error_uri":""};
 * SEGMENT: {"success":false,"code":code,"message":text} (spec/capture.md A4, A8, B5). Being
 * overloaded or full answers 503 with Retry-After on POSTHOG and POSTHOG_V1 (browsers drop 429 for
 * good), 429 with Retry-After on SEGMENT; elsewhere what the error table says (and 503 for
 * ERR_NO_SPACE, which has no status there). TUS: "ERR_CODE: text\n" as text/plain, the code in
 * capitals; overloaded, full and too slow are 503 with Retry-After (tus-js-client gives up on 408
 * and 429); every answer, also of the front, has Tus-Resumable: 1.0.0, X-Content-Type-Options:
 * nosniff and Cache-Control: no-store (spec/tus.md section 6, cases/artifacts.md T13), which the
 * door must not add again. */
enum http_shape {
    HTTP_SHAPE_HISTORY,
    HTTP_SHAPE_API,
    HTTP_SHAPE_TEXT,
    HTTP_SHAPE_POSTHOG,
    HTTP_SHAPE_POSTHOG_V1,
    HTTP_SHAPE_SEGMENT,
    HTTP_SHAPE_TUS
};

typedef void http_fn(void *ctx, struct http_request *req);

struct http_route {
    const char *path; /* before '?'; a segment that is "*" stands for any one segment that is not
                         empty ("/array/" "*" "/config"); "*" in a last segment may have a suffix.
                         A path without '*' hides those with one that fit it, too */
    unsigned methods; /* set of http_method; HTTP_GET brings HTTP_HEAD with it */
    enum http_auth auth;
    enum http_shape shape;
    uint64_t body_max_bytes; /* 0: a request with a body is 413 */
    http_fn *on_head;        /* may be NULL */
    http_fn *on_request;
    void *ctx;
    bool no_head;   /* its GET changes something: HEAD, which must not, is 405 */
    bool slash_too; /* the path is also this route with one '/' behind it */
    bool cors; /* any web page may ask: the Origin is echoed on every answer of this route, errors
                       too, and OPTIONS is answered by the front (http.h, CORS) */
    const char *expose;  /* further names for Access-Control-Expose-Headers, with commas; or NULL */
    http_fn *on_options; /* adds headers to the answer of OPTIONS; may be NULL */
    bool takes_body;     /* on_request is called when the head is there; the body is for the work of
                            http_thread, or is refused unread. body_max_bytes does not apply */
};

/* CORS (routes with `cors`, which are OPEN; spec/capture.md A1, cases C11): every answer has Vary:
 * Origin; one to a request with an Origin has Access-Control-Allow-Origin (that Origin),
 * -Allow-Credentials: true and -Expose-Headers: Retry-After, with `expose` behind it. OPTIONS on
 * such a path is answered 200 {"status":"Ok"}, with the methods of the path, the requested header
 * names echoed (valid tokens only, at most 2 KiB in all, Vary names them), Access-Control-Max-Age:
 * 600 and on_options' headers, whether it is a page that asks or not. Shape TUS: 204 without a body
 * instead (cases T41). */

struct http_limits {
    unsigned connections_max;   /* 1024; past it: accept and answer 503, close */
    unsigned head_bytes_max;    /* 32 KiB: 431 */
    unsigned target_bytes_max;  /* 16 KiB: 414 */
    unsigned fields_max;        /* 100: 431 */
    unsigned pipeline_max;      /* 64 requests of one connection under way; more are not read until
                                   answers left */
    uint64_t body_budget_bytes; /* 256 MiB of bodies in flight over all connections */
    unsigned admission_wait_ms; /* 1000: then 429, Retry-After: 1 */
    unsigned head_timeout_ms;   /* 10 s from the first byte of a head to its end */
    unsigned idle_timeout_ms;   /* 75 s between requests */
    unsigned body_stall_ms;     /* 30 s without a byte of an expected body: 408 */
    unsigned body_rate_min;     /* 16384 bytes/s on average after the first 30 s: 408 */
    unsigned write_stall_ms;    /* 60 s in which a client takes nothing: closed */
    unsigned grace_ms;          /* 10 s for open requests after http_stop */
    unsigned linger_bytes_max;  /* 64 MiB read and dropped after an early refusal: many clients send
                                   all of their body before they look for the answer, and would
                                   take a 413 that they lost for an outage */
    unsigned workers;           /* 2 pool threads */
    unsigned work_queue_max;    /* 1024 jobs waiting */
    unsigned threads_max;       /* 288 requests with a thread of their own (http_thread) */
};
extern const struct http_limits http_limits_default;

struct http_hooks {
    void (*turn)(void *ctx); /* once a loop turn, after all requests were handed out; answers given
                                in it leave at once */
    void (*tick)(void *ctx); /* about once a second */
    void (*stopping)(
        void *ctx); /* http_stop was asked for: no new requests will come after the open ones */
    void *ctx;
};

struct http_config {
    struct http_limits limits;
    struct slice token; /* empty: none. Borrowed for the server's life */
    const struct http_route *routes;
    size_t route_count;
    struct http_hooks hooks;
    bool handle_signals; /* SIGINT, SIGTERM, SIGHUP stop the server; SIGPIPE is ignored always */
};

/* Makes a server without listeners. Raises RLIMIT_NOFILE. NULL with *e on failure. */
struct http_server *http_new(const struct http_config *config, struct err *e);
/* Closes everything; not while http_run runs. */
void http_free(struct http_server *s);

/* HOST:PORT, [V6]:PORT; port 0 picks a free one. Without a token only loopback addresses are
 * accepted (ERR_USAGE names the rule). A taken port is ERR_REFUSED with the address and the words
 * "already in use". *port (may be NULL) is the bound port. */
int http_listen_tcp(struct http_server *s, const char *address, unsigned *port,
                    struct err *e) MUST_CHECK;
/* A Unix socket with mode 0600. A stale file (nobody answers a connect) is replaced, a live one is
 * ERR_REFUSED, anything that is no socket is left alone (ERR_REFUSED). Removed by http_free when it
 * is still ours (same inode). */
int http_listen_unix(struct http_server *s, const char *path, struct err *e) MUST_CHECK;

/* Serves until http_stop or a signal; then: listeners closed, idle connections closed, open
 * requests finished within grace_ms (answers carry Connection: close). Returns 0, or ERR_IO when
 * epoll itself fails. */
int http_run(struct http_server *s, struct err *e) MUST_CHECK;
/* Any thread, also from a signal-free context of the loop: asks for the end. */
void http_stop(struct http_server *s);
bool http_stopping(const struct http_server *s);
/* Any thread: runs fn(ctx) on the loop thread, soon. false: out of memory (fn will not run). */
bool http_post(struct http_server *s, void (*fn)(void *ctx), void *ctx);
/* Any thread: the same with the caller's own memory (http/pool.h, without work), so it cannot fail.
 * The job is the caller's again when its done runs. */
struct http_job;
void http_post_job(struct http_server *s, struct http_job *job);
/* From the `turn` hook: sends what was answered so far, before the hook does something slow. */
void http_flush(struct http_server *s);
/* Loop thread: there is more for the `turn` hook to do; the next turn does not wait. */
void http_again(struct http_server *s);

/* ---- the request ---- */
enum http_method http_method(const struct http_request *req);
struct slice http_path(const struct http_request *req);  /* as sent, without the query */
struct slice http_query(const struct http_request *req); /* as sent, behind '?'; empty when none */
bool http_has_query(const struct http_request *req);     /* a '?' was there */
/* What the n-th '*' of the route's path stands for, as sent (not decoded). n counts from 0 and must
 * be one of the route's. */
struct slice http_path_part(const struct http_request *req, unsigned n);
bool http_on_unix_socket(const struct http_request *req);
/* Value of the first header of that name (lower case name given), trimmed; *count (may be NULL) how
 * many there are. */
bool http_header(const struct http_request *req, const char *name, struct slice *value,
                 unsigned *count);
/* The same of the n-th header of that name, from 0; false: there are not so many. */
bool http_header_at(const struct http_request *req, const char *name, unsigned n,
                    struct slice *value);
/* The credentials of the one `Authorization: Bearer` header; false without exactly one. */
bool http_bearer(const struct http_request *req, struct slice *credentials);
struct slice http_body(const struct http_request *req); /* valid until answered */
struct arena *http_arena(struct http_request *req);     /* freed when answered */
struct http_server *http_server_of(const struct http_request *req);
/* The door's own pointer, NULL at first. */
void http_set_user(struct http_request *req, void *user);
void *http_user(const struct http_request *req);
bool http_answered(const struct http_request *req);
/* Takes n more bytes of the body budget for this request, given back when it is answered. false:
 * not to be had now. */
bool http_reserve(struct http_request *req, uint64_t n);

/* ---- answers: exactly one a request ---- */
/* A header for the answer to come; copied into the arena. */
void http_add_header(struct http_request *req, const char *name, struct slice value);
/* Content-Length answer; body is copied. HEAD gets the headers only. */
void http_answer(struct http_request *req, unsigned status, const char *content_type,
                 struct slice body);
/* The error body in the route's shape. message is for people. extra: further JSON members as raw
 * text such as
 * `"source":"a","batch_id":"b"`, or empty. Adds `Retry-After: 1` to ERR_OVERLOADED, ERR_QUEUE_FULL,
 * ERR_STORE_BUSY and ERR_NO_SPACE unless one was added: these are what a shape calls full. */
void http_answer_error(struct http_request *req, int code, const char *message, struct slice extra);
/* The same with a status that the door knows better than the table. */
void http_answer_error_status(struct http_request *req, unsigned status, int code,
                              const char *message);

/* A body made piece by piece on worker threads, pulled as the client takes it; one piece (at most
 * 256 KiB) is in memory at a time. Chunked for 1.1, until close for 1.0; Connection rules as usual.
 * HEAD: headers only, read is never called. */
enum http_next { HTTP_NEXT_SEND, HTTP_NEXT_READ, HTTP_NEXT_WAIT, HTTP_NEXT_END, HTTP_NEXT_CUT };
struct http_source {
    /* Worker thread. Fills at most cap bytes. > 0: that many; 0: end; negative ERR_: the connection
     * is cut, so that the client sees an incomplete body. */
    int64_t (*read)(void *ctx, char *p, size_t cap);
    /* Loop thread, exactly once, also when the client has gone. No read runs then. */
    void (*close)(void *ctx);
    /* Loop thread; NULL but for a live source. Asked whenever everything has left; see below. */
    enum http_next (*next)(void *ctx, struct buf *out);
};
/* A live source is one that may have nothing for a long time, and more after that. `next` says what
 * to do: HTTP_NEXT_SEND: it has appended 1 to HTTP_NEXT_BYTES_MAX bytes to out, without a worker;
 * HTTP_NEXT_READ: call read on a worker (which may give 0 bytes: then next is asked again);
 * HTTP_NEXT_WAIT: there is nothing, until http_stream_wake; HTTP_NEXT_END: that was all;
 * HTTP_NEXT_CUT: cut the connection. While it waits the request holds no buffer. Reads of live
 * sources are taken in turn and hold at most as many workers as there are, each for one piece of
 * HTTP_LIVE_PIECE_BYTES, so that any number of them leaves the pool to others too.
 * Its connection ends behind it (Connection: close). write_stall_ms does not apply: a client that
 * takes nothing lives for as long as its kernel answers (keepalive when idle, else what
 * net.ipv4.tcp_retries2 says). A client that ends its side has gone. */
#define HTTP_NEXT_BYTES_MAX   (256u << 10)
#define HTTP_LIVE_PIECE_BYTES (60u << 10) /* with what is around it, 64 KiB of memory */
/* Loop thread, on a live request between its answer and `close`: next is asked in this turn, once
 * everything before has left. Harmless when it does not wait. */
void http_stream_wake(struct http_request *req);
void http_answer_stream(struct http_request *req, unsigned status, const char *content_type,
                        const struct http_source *source, void *ctx);

/* Runs work(ctx) on a pool thread, then done(ctx, req) on the loop thread. Later requests of the
 * same connection wait. false: the queue is full (answer 429). During shutdown jobs still finish.
 */
bool http_work(struct http_request *req, void (*work)(void *ctx), http_fn *done, void *ctx);

/* ---- a request with a thread of its own (ARCHITECTURE section 3, "Bulk work leaves the loop")
 *
 * http_thread runs work(ctx, body) on a thread of its own for this request, then done(ctx, req) on
 * the loop thread, where the request is answered. Meant for routes with takes_body, and for work
 * that may block for long. The connection leaves the loop: its descriptor is out of epoll, the
 * thread alone receives, beginning with the bytes that had come behind the head, and never past the
 * end of the body (what a chunked body's last reads bring beyond it goes back to the connection).
 * Before that every earlier answer of the connection has left. Afterwards it comes back. An answer
 * given while some of the body is unread ends the connection behind it, with lingering.
 * A request without a body (or with one that the loop has read) has a thread beside its connection,
 * which stays with the loop. The answer to a request whose body was not read in full by the first
 * thread is all that it can get: http_thread must not be called for it again.
 * Threads are kept for a while and used again. false: threads_max of them are busy, or no memory
 * (answer 503); during a stop bodies end as told below, and work goes on to its end. */
struct http_body;
bool http_thread(struct http_request *req, void (*work)(void *ctx, struct http_body *body),
                 http_fn *done, void *ctx);
/* The thread's own: receives up to cap bytes of the body (decoded, when chunked), as soon as there
 * are any. The first call says 100 Continue where that is awaited and no byte has come. > 0: that
 * many. 0: the body has ended. ERR_CONNECT: the client has gone (its end or a reset came first).
 * ERR_REQUEST_TIMEOUT: body_stall_ms without a byte. ERR_BAD_REQUEST: malformed chunks. Else the
 * code that http_body_end was given; ERR_NOT_READY when the server stops. Errors are sticky. */
int64_t http_body_read(struct http_body *body, void *p, size_t cap);
/* Of a body with Content-Length: bytes not yet read. UINT64_MAX: chunked, and not ended. */
uint64_t http_body_left(const struct http_body *body);
/* The loop thread, until done is called; any other thread that sees to it that work is not over
 * before this returns. Reads end with this negative code, also one that waits, unless the body was
 * read in full; bytes that the kernel holds already are lost. The first code wins. */
void http_body_end(struct http_body *body, int code);

/* ---- helpers for doors ---- */
/* Iterates `a=b&c=d` form-encoded pairs. Names and values are decoded into the arena ('+' is a
 * space). Returns 1 for a pair, 0 at the end, ERR_INVALID_REQUEST for malformed percent-encoding
 * (or invalid UTF-8), ERR_NO_MEMORY. An empty query has no pairs; a pair without '=' has an
 * empty value. */
struct http_pairs {
    struct slice rest;
};
int http_next_pair(struct http_pairs *p, struct arena *a, struct slice *name,
                   struct slice *value) MUST_CHECK;

#endif
