/* batches: cuts a row of events into append batches, the same way every time the same events are
 * read.
 *
 * A window of events that were read and not yet stored begins at event `index` of the input.
 * batches_cut says how many of them make the next batch, batches_consume moves on; what a server
 * already holds under a batch id (fewer or more events than today's cut) is reached by cutting
 * again. Memory: at most BATCHES_EVENTS_MAX + 1 events, and one event more than the bytes asked
 * for. */
#ifndef MAIN_BATCHES_H
#define MAIN_BATCHES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "main/events.h"

#define BATCHES_EVENTS_MAX 10000       /* spec/history.md section 3 */
#define BATCHES_BODY_MAX   (32u << 20) /* bytes of a request */
#define BATCHES_CUT_BYTES  (24u << 20) /* events of a batch, with commas, when there is a choice */
#define BATCHES_ID_MAX     256
#define BATCHES_PREFIX_MAX (BATCHES_ID_MAX - 21) /* "@" and 20 digits */

struct batches_item {
    size_t len;
    uint64_t line;
};

struct batches {
    struct events *in;
    struct buf text; /* canonical events, one behind the other */
    struct batches_item items[BATCHES_EVENTS_MAX + 1];
    size_t count;
    uint64_t index; /* of items[0] in the input, from 0 */
    bool ended;
};

void batches_init(struct batches *b, struct events *in);
void batches_free(struct batches *b);
/* Reads ahead as far as needed and sets *count to the size of the batch at `index`: up to want
 * events, up to bytes_max bytes of them with their commas (but one event at least); 0 at the end.
 * Errors of events_next. */
int batches_cut(struct batches *b, size_t want, size_t bytes_max, size_t *count,
                struct err *e) MUST_CHECK;
/* Drops the first count events of the window. */
void batches_consume(struct batches *b, size_t count);
/* Line on which event i of the window begins. */
uint64_t batches_line(const struct batches *b, size_t i);
/* Appends "PREFIX@INDEX" of the batch at `index`. */
void batches_id(const struct batches *b, const char *prefix, struct buf *out);
/* Replaces *out by the request body for the first count events. ERR_BODY_TOO_LARGE past
 * BATCHES_BODY_MAX (one huge event; names its line), ERR_NO_MEMORY. */
int batches_body(const struct batches *b, const char *source, const char *prefix, size_t count,
                 struct buf *out, struct err *e) MUST_CHECK;

#endif
