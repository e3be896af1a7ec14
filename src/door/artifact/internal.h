/* What the files of the artifact door share. */
#ifndef DOOR_ARTIFACT_INTERNAL_H
#define DOOR_ARTIFACT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "door/artifact/artifact.h"
#include "door/artifact/attempts.h"
#include "door/artifact/head.h"
#include "door/artifact/partials.h"
#include "door/artifact/registry.h"
#include "door/artifact/room.h"
#include "store/control.h"

#define LOW_SPACE_RETRY_S 60
#define SHUTDOWN_RETRY_S  5
#define ERRANDS_MAX       64
#define ASKERS_MAX        32 /* threads for HEAD and receipts; what is more is answered briefly */

/* What takes longer than a client should wait for, step by step. */
struct cleaner_errand {
    char id[UPLOAD_ID_LEN + 1];
    bool remove; /* all of it; else the bytes of one that is refused */
};

struct cleaner {
    pthread_t thread;
    pthread_mutex_t lock; /* of stop, errands, partials; no other is taken under it */
    pthread_cond_t wake;
    bool running, stop;
    unsigned errands;
    struct cleaner_errand errand[ERRANDS_MAX];
    /* The thread's: when everybody's time began anew (Unix time; 0: never), and by how much the
     * clock is ahead of the monotonic one. */
    int64_t anew_ms, ahead_ms;
    bool clock_seen;
    /* Of the last round. */
    _Atomic uint64_t partial_uploads, partial_bytes;
    _Atomic int64_t scanned_ms;
    atomic_bool scanned;
    struct partials partials;
    struct partials counting; /* the thread's: of the round under way */
};

struct space {
    pthread_t thread;
    pthread_mutex_t lock; /* of stop; no other is taken under it */
    pthread_cond_t wake;
    bool stop;
    atomic_bool running, asked;
    atomic_int code; /* of the last look: 0, ERR_LOW_SPACE, ERR_IO */
    _Atomic uint64_t looked_ms;
};

struct artifact {
    _Atomic uint64_t burst_told_ms;  /* when it was last said that a proxy holds requests back */
    struct artifact_options options; /* its texts are borrowed for the door's life */
    struct uploads *uploads;
    struct control *control; /* loop thread; NULL: not open */
    struct registry registry;
    struct attempts attempts;
    struct room room;
    struct space space;
    unsigned askers; /* loop thread: questions that have a thread of their own */
    struct cleaner cleaner;
};

/* What goes back to the client: filled by the thread of the request, sent by the loop. */
struct outcome {
    int code;                  /* 0: good */
    unsigned status;           /* of the answer; 0: as the code has it */
    unsigned low_space_status; /* what status is to be for want of space; 0: as the code has it */
    char text[UPLOAD_REASON_MAX];
    bool has_offset; /* Upload-Offset */
    uint64_t offset;
    int64_t expires_ms;     /* Upload-Expires; 0: none */
    unsigned retry_after_s; /* 0: none */
    bool accepted;          /* receipt is there: Artifact-Receipt */
    struct receipt receipt;
};

/* One request that has a thread. Lives in the request's arena. */
struct op {
    struct artifact *a;
    struct holder holder; /* id: of the path */
    /* POST: what is to be made. HEAD: what was found. */
    struct upload_info info;
    bool has_info;
    bool head;                      /* HEAD, not the receipt's route */
    bool asks;                      /* HEAD or the receipt's route */
    bool asker;                     /* counted in askers */
    bool brief;                     /* nothing is waited for, opened or finished */
    bool location;                  /* its id is synced: Location may be told */
    uint64_t body_bytes;            /* of the POST; UINT64_MAX: chunked */
    uint64_t offset;                /* Upload-Offset of the PATCH */
    struct checksum sum;            /* of this request's body, if it has one */
    bool forwarded;                 /* its headers have the traces of a proxy */
    char address[HTTP_ADDRESS_MAX]; /* of the client; "": it cannot be told from others */
    struct room_promise *promise;   /* NULL: none */
    struct outcome out;
    void (*work)(void *ctx, struct http_body *body);
};

/* ---- artifact.c ---- */
/* NULL: no memory (it is answered). id: of the path, checked; NULL for a POST. */
struct op *op_new(struct artifact *a, struct http_request *req, const char *id);
/* Runs it on a thread. false: there is none, and 503 is answered. */
bool op_start(struct op *op, struct http_request *req,
              void (*work)(void *ctx, struct http_body *body), http_fn *done);
/* First thing in `done` of an op that asks. */
void op_end(struct op *op);

/* ---- create.c, append.c, ask.c, terminate.c: from the checked method on ---- */
void artifact_create(struct artifact *a, struct http_request *req, const struct tus_head *h);
void artifact_append(struct artifact *a, struct http_request *req, const struct tus_head *h,
                     const char *id);
void artifact_head(struct artifact *a, struct http_request *req, const char *id);
void artifact_terminate(struct artifact *a, struct http_request *req, const char *id);
void artifact_receipt(struct artifact *a, struct http_request *req, const char *id);

/* ---- receive.c: on the request's thread ---- */
/* Takes the body into u, which the holder has open and written to its synced offset; at its end
 * syncs, and accepts when all is there. Fills op->out. Returns how the body ended: 0, or the code
 * of http_body_read. */
int artifact_receive(struct op *op, struct upload *u, struct http_body *body);
/* The request's hold on its promise ends: what is missing stays promised for a while, unless there
 * is a receipt, or a refusal. NULL is fine as u: it was not opened. */
void op_promise_end(struct op *op, const struct upload *u);

/* ---- burst.c ---- */
/* Of a body that came through a proxy: how much of it there is, and how long was waited for it. */
struct burst {
    uint64_t bytes, waited_ns;
};
/* n more bytes came after that long a wait. Tells the operator when it looks as if the proxy had
 * had all of them before it asked us. */
void burst_note(struct op *op, struct burst *b, uint64_t n, uint64_t waited_ns);

/* ---- find.c: on the request's thread ---- */
#define FOUND_ACCEPTED 1
/* What there is of the id. 0: an upload without a receipt, op->info is filled. FOUND_ACCEPTED:
 * op->out has the receipt. Else a code, and op->out is the answer. */
int find_upload(struct op *op) MUST_CHECK;
/* Opens it, held: the holder is told. Else a code, and op->out is the answer. */
int find_open(struct op *op, struct upload **u) MUST_CHECK;
/* All bytes are there: accepts. 0 with the receipt in out; else out is the answer to a request that
 * brought the last byte. */
int find_accept(struct artifact *a, struct upload *u, struct outcome *out) MUST_CHECK;

/* ---- space.c ---- */
void space_init(struct space *s);
void space_destroy(struct space *s); /* stopped */
int space_start(struct artifact *a, struct err *e) MUST_CHECK;
void space_stop(struct artifact *a);
/* 0, or ERR_LOW_SPACE with the status and the text in out. While the thread runs: no system call
 * that could block. */
int space_check(struct artifact *a, struct outcome *out) MUST_CHECK;
bool space_is_low(const struct artifact *a);

/* ---- cleaner.c ---- */
void cleaner_init(struct cleaner *c);
void cleaner_destroy(struct cleaner *c); /* stopped */
int cleaner_start(struct artifact *a, struct err *e) MUST_CHECK;
void cleaner_stop(struct artifact *a);
/* Any thread: soon, on the cleaner's. Where there are too many the next rounds see to it. */
void cleaner_later(struct artifact *a, const char *id, bool remove);
/* One round: stale uploads go, interrupted acceptances are finished. */
void cleaner_round(struct artifact *a);
/* As of the last round, into an object that has members. */
void cleaner_put_partials(struct artifact *a, struct buf *b);
/* Newest change of the upload's files, or attempt that was put off, Unix time; 0: no files. */
int64_t cleaner_activity_ms(struct artifact *a, const char *id);

/* ---- answer.c ---- */
void outcome_fail(struct outcome *out, int code, const char *text);
/* There is no room for it now: to be tried again after a minute. */
void outcome_low_space(struct outcome *out, const char *text);
/* Of a failure of the disk: the client hears `text` only, the log what happened. */
void outcome_broken(struct outcome *out, const char *id, const struct err *e, const char *text);
/* room_take's: what is short is told. */
void outcome_no_room(struct outcome *out, const char *id, const struct err *e);
void outcome_accept(struct outcome *out, const struct receipt *r);
/* Upload-Expires of an upload that was just touched. */
int64_t expires_from(const struct artifact *a, int64_t activity_ms);
/* Answers a tus request. good: the status of success, with the headers that were added before. */
void answer_tus(struct http_request *req, const struct outcome *out, unsigned good);
/* A tus refusal on the loop, before any work. */
void answer_refuse(struct http_request *req, const struct err *e);
/* 405 for a method that only the override names. */
void answer_method(struct http_request *req, const char *allow);
/* The form of a time in HTTP headers: "Mon, 30 Nov 2026 09:00:00 GMT". */
#define HTTP_DATE_LEN 29
void http_date_text(char out[HTTP_DATE_LEN + 1], int64_t ms);

#endif
