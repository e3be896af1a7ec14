/* follow_internal: what follow.c (loop), follow_read.c (workers) and follow_text.c share. */
#ifndef DOOR_HISTORY_FOLLOW_INTERNAL_H
#define DOOR_HISTORY_FOLLOW_INTERNAL_H

#include "door/history/internal.h"

#define FOLLOW_MOVE_MS  10000u /* how often a client is told that events were passed over */
#define FOLLOW_QUIET_MS 15000u /* of server-sent events, until a comment */

/* Fields are the worker's while a read runs, and the loop's otherwise. Ids are zero for none. */
struct follower {
    struct history *h;
    struct http_request *req;
    TAILQ_ENTRY(follower) link;
    bool waiting; /* in the list */

    bool sse;
    bool filtered;
    bool live;          /* caught_up was put */
    bool begun;         /* a snapshot record was put */
    bool open;          /* a record is: events may be added, and it has to be closed */
    bool behind;        /* a run through the files is due */
    bool ended;         /* the end record was put */
    const char *reason; /* of the end that is to be put; NULL: none */
    uint64_t limit;     /* events of a record */
    uint64_t in_record; /* events of the open one */
    uint64_t record_bytes;
    uint64_t said_ms;    /* monotonic time at which something was put */
    struct uuid cursor;  /* every event up to it was put or passed over */
    struct uuid told;    /* the client can go on behind this one, as far as it knows */
    struct uuid last_id; /* of the last event that was put */

    struct journal_filter filter; /* points into filter_text */
    char *filter_text;

    /* a run through the files: from cursor to the frontier of its beginning */
    struct journal_reader *reader;
    struct journal_frontier through;
    struct buf out;           /* what did not fit into a piece */
    size_t sent;              /* of out */
    size_t text_at, text_end; /* of the last event's text, in out */
    uint64_t text_left;       /* of it, not in out but to be read again; goes before out */
    uint64_t held;            /* this one's part of followers.held_bytes */
};

/* follow_text.c: all append to b, and keep the follower's members up to date. An event's text goes
 * between the first two. */
void follow_begin_event(struct follower *f, struct buf *b);
void follow_finish_event(struct follower *f, struct buf *b, size_t text_bytes,
                         const struct uuid *id);
/* Closes the record, opening one when none is. to: everything up to it is dealt with; through: the
 * frontier behind it. */
void follow_close_record(struct follower *f, struct buf *b, const struct uuid *to,
                         const struct uuid *through);
void follow_put_caught_up(struct follower *f, struct buf *b);
void follow_put_end(struct follower *f, struct buf *b);
void follow_put_comment(struct follower *f, struct buf *b);

/* follow_rest.c: what is left of a piece. After a read, f->out holds no more than it needs; a large
 * event's text may have been let go. */
void follow_keep_rest(struct follower *f);
/* Some of the text that was let go, at most cap bytes; or negative. */
int64_t follow_read_rest(struct follower *f, char *p, size_t cap);
void follow_free_rest(struct follower *f);

/* follow_read.c */
int64_t follow_read(void *ctx, char *p, size_t cap);

#endif
