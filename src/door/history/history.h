/* history: the history door, `/v1/events`, `/v1/streams`, `/v1/head` and `/v1/sources/retire`
 * (spec/history.md).
 *
 * Appends: a body is screened, canonicalized and validated whole (parse.h), on the loop thread when
 * it is small, on a worker when it is large; then the loop thread stages it in the journal. All
 * outcomes of a turn are released together after that turn's commit. Reads run on workers, and pull
 * their answer piece by piece. Followers at the end of the journal are told of a commit in its
 * turn (followers.h). All functions are for the loop thread. */
#ifndef DOOR_HISTORY_HISTORY_H
#define DOOR_HISTORY_HISTORY_H

#include <stdint.h>

#include "base/err.h"
#include "http/http.h"
#include "journal/journal.h"

#define HISTORY_BODY_MAX   (32u << 20)
#define HISTORY_RETIRE_MAX (1u << 20) /* body of a retirement */
#define HISTORY_ROUTES     4
#define HISTORY_READS_KEPT 8 /* of replays_max, for the Unix socket */

struct ed25519_key;
struct history;

struct history_options {
    uint32_t replay_default_limit, replay_max_limit;
    uint32_t replays_max; /* reads under way, above HISTORY_READS_KEPT; more are answered 429 */
    const struct ed25519_key *head_key; /* borrowed; NULL: heads are not signed */
    uint32_t
        followers_max; /* HISTORY_READS_KEPT more on the Unix socket; the rest is answered 429 */
};

/* The journal is borrowed. NULL without memory. */
struct history *history_new(struct journal *j, const struct history_options *options);
/* The key that heads are signed with, when it was not there at first. */
void history_set_head_key(struct history *h, const struct ed25519_key *key);
/* After the HTTP server is gone. */
void history_free(struct history *h);
/* Fills HISTORY_ROUTES routes. */
void history_routes(struct history *h, struct http_route *out);
/* The hooks of the server: commits what was staged in this turn and answers it. */
void history_turn(struct history *h);
/* Once a second or so: what followers are told after a time. */
void history_tick(struct history *h);
/* Long reads and followers end soon after this. */
void history_stopping(struct history *h);

#endif
