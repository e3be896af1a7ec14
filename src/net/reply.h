/* reply: an HTTP/1 answer as it comes in, in pieces of any size. Pure: no connection is touched.
 *
 * Bounded: REPLY_HEAD_MAX of head lines, body_max of body. What is known of an answer that is cut
 * or too long stays readable: a status says much without its body. */
#ifndef NET_REPLY_H
#define NET_REPLY_H

#include "net/net.h"

#define REPLY_HEAD_MAX (64u << 10)

enum reply_step {
    REPLY_MORE,
    REPLY_DONE, /* all of it, or as much as body_max allows: answer->complete tells */
    REPLY_BAD   /* not HTTP, or a head without end; sticky */
};

enum reply_state {
    REPLY_AT_STATUS,
    REPLY_AT_FIELD,
    REPLY_AT_BODY,
    REPLY_AT_CHUNK_SIZE,
    REPLY_AT_CHUNK,
    REPLY_AT_CHUNK_END,
    REPLY_AT_TRAILER,
    REPLY_AT_END,
    REPLY_AT_FAULT
};

struct reply {
    struct net_answer *answer; /* status is set when the final head has ended */
    uint64_t body_max;
    bool go_on; /* a 100 came */
    enum reply_state state;
    unsigned status; /* of the head that is being read */
    size_t head_bytes;
    bool chunked, has_length;
    uint64_t left; /* of the body by length, or of a chunk */
    struct buf line;
};

/* The answer is emptied; its buffers are the caller's to free, with net_answer_free. */
void reply_begin(struct reply *r, struct net_answer *answer, uint64_t body_max);
void reply_free(struct reply *r);
enum reply_step reply_feed(struct reply *r, struct slice bytes);
/* The far side sends no more. DONE when a final status came; the answer is complete then only if
 * its end could be known from this: no length and no chunks. */
enum reply_step reply_end(struct reply *r);

#endif
