/* conn: what the files of http share: server, connection, request (internal to http).
 *
 * Ownership: the server owns connections, a connection owns the requests in its queue; a request
 * whose client has gone is owned by the server (orphans) until it is answered. Threads: everything
 * is the loop thread's, but for `pool` (its own lock), `stop_asked` (atomic), the buffer `out` of a
 * request while `reading` is set (the worker's that runs its source), and the descriptor of a
 * connection that is away (its thread's, body_thread.h). */
#ifndef HTTP_CONN_H
#define HTTP_CONN_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "http/body.h"
#include "http/head.h"
#include "http/http.h"
#include "http/pool.h"
#include "http/thread.h"

#define HTTP_READ_BYTES      (64u << 10)  /* the loop's read buffer, shared by all connections */
#define HTTP_PIECE_BYTES     (256u << 10) /* of a stream */
#define HTTP_QUEUE_BYTES_MAX (256u << 10) /* heads, bodies and answers a connection may queue */
#define HTTP_KEEP_BYTES      (16u << 10)  /* buffers up to this size stay with a spare request */
#define HTTP_SPARE_MAX       512u         /* spare requests kept */
#define HTTP_LISTENERS_MAX   8u
#define HTTP_BODY_STEP_BYTES (64u << 10) /* steps of the budget for a body of unknown length */
#define HTTP_BUDGET_SHARE    16u /* this part of the budget is for bodies of one step only */
#define HTTP_LINGER_MS       2000u
#define HTTP_SWEEP_MS        200u   /* how often timeouts are looked at */
#define HTTP_REFUSED_LINGER  64u    /* connections past connections_max that get a proper 503 */
#define HTTP_UNIX_EXTRA      16u    /* connections that strangers on TCP cannot take away */
#define HTTP_PARTS_MAX       4u     /* '*' segments of a route's path */
#define HTTP_FILES_SPARE     256u   /* descriptors that connections leave to the doors' files */
#define HTTP_THREAD_FILES    5u     /* descriptors of a thread and its work */
#define HTTP_THREAD_IDLE_MS  10000u /* threads of http_thread are kept so long */

TAILQ_HEAD(http_request_list, http_request);
TAILQ_HEAD(http_conn_list, http_conn);

/* First member of whatever epoll points at. */
enum http_watch { HTTP_WATCH_LISTENER, HTTP_WATCH_CONN, HTTP_WATCH_WAKE, HTTP_WATCH_SIGNAL };

struct http_request {
    TAILQ_ENTRY(http_request) link;      /* queue of its connection, orphans, or spares */
    TAILQ_ENTRY(http_request) live_link; /* live reads that wait for a worker */
    struct http_server *server;
    struct http_conn *conn;            /* NULL once the client has gone */
    const struct http_route *route;    /* NULL before routing, or without a route */
    struct slice part[HTTP_PARTS_MAX]; /* what the '*' of its path stand for */
    unsigned parts;
    struct http_head head;
    struct http_field *fields;
    unsigned fields_cap;
    struct buf head_bytes; /* what the slices of head point into */
    struct buf body;
    struct buf out;   /* answer, to be sent from `sent` on */
    size_t sent;      /* bytes of out that have left */
    struct buf extra; /* header lines for the answer to come */
    struct arena arena;
    enum http_method method;
    uint64_t reserved; /* of the body budget */
    void *user;
    size_t queued_bytes; /* its share of conn->queued_bytes */
    bool unix_socket;
    bool handed; /* on_request was called: the door has it */
    bool answered;
    bool close;       /* the connection ends behind this answer */
    bool dead;        /* to be released at the end of the turn */
    bool retry_after; /* a Retry-After was added by the door */
    bool in_job;      /* http_work is under way */
    bool reading;     /* a stream's read is under way */
    bool streaming;   /* a stream that has not ended */
    bool queued;      /* a live source's read waits for its turn */
    bool waits;       /* a live source has nothing now */
    bool pulled;      /* a first piece was asked for */
    bool chunked_out;
    bool cut; /* the stream failed: cut the connection behind what was sent */
    struct http_source source;
    void *source_ctx;
    size_t piece_at; /* offset in out at which the worker fills a piece */
    int64_t piece_result;
    struct http_job job;
    void (*work)(void *ctx);
    http_fn *work_done;
    void *work_ctx;
    bool body_due;           /* a body that the loop does not read, and that is not read in full */
    bool body_lost;          /* its thread has come back without all of it */
    struct http_body *taken; /* http_thread is under way */
};

enum http_conn_state {
    HTTP_CONN_HEAD,      /* a head is awaited or arriving */
    HTTP_CONN_ADMISSION, /* the last request waits for budget */
    HTTP_CONN_BODY,      /* the body of the last request is arriving */
    HTTP_CONN_TAKEN,     /* the body of the last request is its thread's, or will stay unread */
    HTTP_CONN_DRAIN      /* no further request: what still comes is dropped */
};

struct http_conn {
    enum http_watch watch;
    int fd;
    struct http_server *server;
    TAILQ_ENTRY(http_conn) link;       /* all connections, or the dead */
    TAILQ_ENTRY(http_conn) dirty_link; /* has something to send or to decide */
    TAILQ_ENTRY(http_conn) runnable_link;
    TAILQ_ENTRY(http_conn) waiter_link;
    struct http_request_list queue; /* in order of arrival */
    unsigned queue_count;
    unsigned busy; /* of these, how many are with a worker or stream */
    size_t queued_bytes;
    enum http_conn_state state;
    struct buf in; /* bytes that were received and not yet used */
    struct http_head_scan scan;
    struct http_chunks chunks;
    uint64_t want_bytes;    /* how much is asked of the budget */
    uint64_t granted_bytes; /* for the body of the last request */
    uint64_t head_start_ms; /* 0: no head has begun */
    uint64_t idle_since_ms;
    uint64_t body_start_ms;
    uint64_t body_last_ms;
    uint64_t body_bytes;
    uint64_t write_last_ms; /* last progress of output that waits */
    uint64_t wait_start_ms;
    uint64_t linger_start_ms;
    uint64_t dropped_bytes;
    uint32_t events;      /* what epoll watches for */
    unsigned blank_lines; /* ignored before a request line */
    bool unix_socket;
    bool continue_due; /* 100 Continue, unless the body comes first */
    bool eof;          /* the client will send nothing more */
    bool paused;       /* input waits in the kernel until the queue moves */
    bool want_out;     /* the last write came back short */
    bool refused;      /* was accepted past connections_max */
    bool shut;         /* our side has ended, the rest is lingering */
    bool away;         /* the descriptor is with the thread of the only request */
    bool dead;
    bool dirty;
    bool runnable;
    bool waiting;
};

struct http_listener {
    enum http_watch watch;
    int fd;
    bool unix_socket;
    char *path; /* of a Unix socket */
    uint64_t inode;
    uint64_t device;
};

/* A route's path, taken apart (pattern.c). */
struct http_pattern {
    struct slice path;
    unsigned parts; /* '*' in it; 0: a literal path */
    bool slash_too;
};

struct http_server {
    struct http_config config;
    struct http_pattern *patterns; /* of config.routes, in their order */
    struct http_head_limits head_limits;
    int epoll_fd;
    int wake_fd;
    int signal_fd; /* -1: none */
    enum http_watch wake_watch;
    enum http_watch signal_watch;
    struct http_listener listeners[HTTP_LISTENERS_MAX];
    unsigned listener_count;
    bool accept_paused;
    int fd_max; /* a connection with this descriptor or a higher one is turned away */
    struct http_pool pool;
    struct http_threads threads;
    unsigned jobs; /* handed to the pool or to a thread, and not yet back */
    struct http_conn_list conns;
    struct http_conn_list dirty;
    struct http_conn_list runnable;
    struct http_conn_list waiters; /* for budget, first come first served */
    struct http_conn_list dead_conns;
    unsigned conn_count;
    unsigned refused_count;
    struct http_request_list live; /* whose read waits until another live one is back */
    unsigned live_reads;           /* of live sources, with the pool */
    struct http_request_list orphans;
    struct http_request_list dead_requests;
    struct http_request_list spares;
    unsigned spare_count;
    uint64_t budget_used;
    uint64_t now_ms; /* CLOCK_MONOTONIC at the start of the turn */
    uint64_t sweep_ms;
    uint64_t tick_ms;
    uint64_t grace_end_ms;
    uint64_t date_second;
    char date[40]; /* "Date: Mon, 30 Nov 2026 09:00:00 GMT\r\n" */
    size_t date_len;
    atomic_bool stop_asked;
    bool stopping;
    bool hurry;        /* a second signal: no more grace */
    bool again;        /* the turn hook has more to do */
    char *read_buffer; /* HTTP_READ_BYTES */
};

/* ---- request.c ---- */
struct http_request *http_request_new(struct http_conn *c); /* at the tail of c's queue, or NULL */
/* Takes it out of whatever holds it; freed or kept as a spare at the end of the turn. */
void http_request_release(struct http_request *req);
/* The client has gone: orphaned when a door, a worker or a source still needs it, else released. */
void http_request_abandon(struct http_request *req);
void http_request_bury(struct http_server *s); /* end of a turn */
void http_request_free(struct http_request *req);
/* n more bytes for a body that holds `held` of them; false: not to be had now. */
bool http_budget_take(struct http_server *s, uint64_t held, uint64_t n);
void http_request_set_busy(struct http_request *req, bool *flag, bool busy);
void http_request_count_bytes(struct http_request *req); /* brings queued_bytes up to date */
/* A job for the pool, which the loop waits for before it ends. false as http_pool_submit. */
bool http_server_submit(struct http_server *s, struct http_job *job, unsigned queued_max);

/* ---- pattern.c ---- */
/* 0 or ERR_NO_MEMORY. */
int http_patterns_make(struct http_server *s, struct err *e) MUST_CHECK;
/* True when path is one of p's; fills p->parts of part. */
bool http_pattern_match(const struct http_pattern *p, struct slice path,
                        struct slice part[HTTP_PARTS_MAX]);

/* ---- cors.c ---- */
/* The header lines of an answer of a route with cors. */
void http_cors_put(const struct http_request *req, struct buf *out);
/* Answers OPTIONS of such a route. */
void http_cors_preflight(struct http_request *req, unsigned methods);

/* ---- route.c ---- */
/* Auth, route, method, Expect, in this order. 0, or the ERR_ code of the answer; *allow is the set
 * of methods of the path for ERR_METHOD_NOT_ALLOWED and for a preflight (a route with cors and
 * OPTIONS). */
int http_route_find(struct http_request *req, unsigned *allow) MUST_CHECK;
enum http_method http_method_of(struct slice token);
void http_allow_text(unsigned methods, struct buf *out);
bool http_host_is_loopback(struct slice host);

/* ---- conn.c: input ---- */
struct http_conn *http_conn_new(struct http_server *s, int fd, bool unix_socket);
void http_conn_readable(struct http_conn *c);
/* Goes on with what was received and set aside, when nothing holds it up any more. */
void http_conn_run(struct http_conn *c);
/* True while the next request may not be taken from the input. */
bool http_conn_blocked(const struct http_conn *c);
void http_conn_set_runnable(struct http_conn *c);
void http_conn_set_dirty(struct http_conn *c);

/* ---- admit.c ---- */
/* p[0..n) is one complete head: makes a request of it and takes that as far as it goes. */
void http_conn_begin(struct http_conn *c, const char *p, size_t n);
/* Asks for n bytes of budget for the last request; without them the connection waits its turn. */
void http_conn_ask_budget(struct http_conn *c, struct http_request *req, uint64_t n);
/* The last request is complete: to its door. */
void http_conn_hand_out(struct http_conn *c, struct http_request *req);
/* Answers the last request with an error of the front and reads no further ones. */
void http_conn_refuse(struct http_conn *c, struct http_request *req, int code, const char *message);
/* The same for a head that could not be taken: there is no request to speak of yet. */
void http_conn_refuse_head(struct http_conn *c, int code, const char *message);
void http_admission_grant(struct http_server *s); /* to waiters, as far as the budget goes */
void http_conn_stop_waiting(struct http_conn *c);

/* ---- flush.c: output and the end ---- */
void http_conn_flush(struct http_conn *c);
void http_conn_watch(struct http_conn *c); /* tells epoll what is wanted, when that changed */
void http_conn_close(struct http_conn *c); /* at once; freed at the end of the turn */
void http_conn_abort(struct http_conn *c); /* the same with a reset, where there is one */
void http_conn_sweep(struct http_conn *c); /* its timeouts */
bool http_conn_idle(const struct http_conn *c);

/* ---- away.c ---- */
/* The first request of c is to have a thread that receives: lets the connection go, now that
 * nothing more is to be sent. False when the connection was ended. */
bool http_away_start(struct http_conn *c);
/* The client has gone before that: the thread does its work without a connection. */
void http_away_forsake(struct http_request *req);
/* A connection that is away is closed: its descriptor stays open until the thread is back. */
void http_away_close(struct http_conn *c);
/* The server stops. */
void http_away_stop(struct http_conn *c);
bool http_away_is_due(const struct http_request *req); /* waits for http_away_start */

/* ---- stream.c ---- */
/* Starts the next read when the request is first in line and its last piece has left. */
void http_stream_pull(struct http_request *req);
void http_stream_end(struct http_request *req); /* closes the source; no read may be under way */
/* The first request is a live stream: its client is not asked to be quick. */
bool http_stream_is_live(const struct http_conn *c);

/* ---- answer.c ---- */
/* Status line and headers up to the end of the head; length < 0: none is sent. */
void http_answer_head(struct http_request *req, unsigned status, const char *content_type,
                      int64_t length, bool chunked);
void http_answer_done(struct http_request *req); /* books an answer that is complete in out */
void http_date_update(struct http_server *s);
/* The whole 503 of a connection past connections_max. */
struct slice http_answer_too_many(void);

/* ---- listen.c ---- */
void http_listener_accept(struct http_server *s, struct http_listener *l);
void http_listeners_resume(struct http_server *s);
void http_listeners_close(struct http_server *s);
void http_listeners_free(struct http_server *s);

#endif
