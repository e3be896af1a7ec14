/* body_thread: the body of a request that has a thread of its own (internal to http).
 *
 * While the connection is away the thread owns everything here but what is marked; the loop fills
 * it before the thread begins, and takes it back when the thread's job has been posted. */
#ifndef HTTP_BODY_THREAD_H
#define HTTP_BODY_THREAD_H

#include "http/conn.h"

#define HTTP_STAGE_BYTES (64u << 10) /* what a chunked body's framing is received into */

struct http_body {
    /* the loop's */
    struct http_request *req;
    struct http_thread *thread; /* its wake_fd is also used by http_body_end */
    struct http_job job;        /* tells the loop that the work is over */
    void (*work)(void *ctx, struct http_body *body);
    http_fn *done;
    void *ctx;
    bool due;    /* has not begun: answers that are before it have not all left */
    bool away;   /* has the connection's descriptor */
    bool orphan; /* nobody else has the descriptor any more: closed with the body */
    unsigned stall_ms;

    /* any thread's */
    atomic_int end_code; /* of http_body_end; 0: none */

    /* the thread's */
    int fd;
    int result; /* the error that reads go on to give; 0: none */
    bool ended; /* read in full */
    bool eof;   /* the client has ended its side */
    bool reset; /* the connection is of no more use */
    bool chunked;
    struct slice interim; /* what is left to be sent of 100 Continue */
    bool interim_due;     /* none of it was sent, and it may be left out */
    uint64_t left;        /* bytes to come; without a meaning when chunked */
    struct http_chunks chunks;
    struct buf in;     /* what the loop had received behind the head */
    char *stage;       /* HTTP_STAGE_BYTES, of a chunked body */
    struct slice have; /* received and not used: in `in`, later in `stage` */
};

#endif
