/* followers: GET /v1/events?follow=true (spec/history.md section 8 "Follow"), as NDJSON records or
 * as server-sent events.
 *
 * A follower is a cursor. One at the end of the journal waits in a list and costs its struct; a
 * commit wakes it, and what is small leaves from the loop in that turn, from the ring of recent
 * events. One that is behind reads the files on workers, piece by piece as its client takes them,
 * however far behind, and comes back to the ring by itself. None is ever dropped for being slow.
 * All functions are for the loop thread, from the history door. */
#ifndef DOOR_HISTORY_FOLLOWERS_H
#define DOOR_HISTORY_FOLLOWERS_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/slice.h"
#include "door/history/recent.h"
#include "http/http.h"

struct history;
struct history_params;
struct follower;

/* What the last follower without a filter was sent; the next one at the same place gets the same.
 */
struct followers_shared {
    struct buf text;
    uint64_t first, end; /* numbers of its events in the ring */
    uint64_t limit;
};

TAILQ_HEAD(follower_list, follower);

struct followers {
    uint32_t count;
    struct recent recent;         /* kept while there are followers */
    struct follower_list waiting; /* at the end of the journal; the first has waited for longest */
    uint32_t waiting_count;
    uint32_t to_look;                  /* of the first ones: something may have changed for them */
    struct followers_shared shared[2]; /* NDJSON, server-sent events */
    bool poisoned;
    _Atomic uint64_t held_bytes; /* rests of large events, of all followers */
};

void followers_init(struct history *h);
void followers_free(struct history *h); /* none is left */
/* Answers a request whose query was good. */
void follow_start(struct history *h, struct http_request *req, const struct history_params *params);
/* Behind the commit of a turn: wakes those for whom there is something, so many that the turn stays
 * short; the others in the next turns. */
void followers_turn(struct history *h);
/* Once a second, and when the journal was poisoned. */
void followers_tick(struct history *h);
/* All that wait are to be looked at in the next turns. */
void followers_look(struct history *h);

#endif
