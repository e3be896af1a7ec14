/* streams: the frontier and count of every (source, stream), in memory, for preconditions and
 * summaries.
 *
 * One owner (the loop thread). Changes of a group can be taken back until they are kept. Texts are
 * the inner texts of canonical strings; names of sources and streams never need escapes, so inner
 * text and name are the same. Memory grows with the number of distinct pairs and sources, not with
 * events. */
#ifndef JOURNAL_STREAMS_H
#define JOURNAL_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"
#include "journal/index.h"

struct streams;

struct stream_state {
    struct uuid last_id;
    uint64_t events;
};

struct streams *streams_new(void); /* NULL without memory */
void streams_free(struct streams *s);

/* True and *out when the pair has an event (kept or not yet kept). */
bool streams_get(const struct streams *s, struct slice source, struct slice stream,
                 struct stream_state *out);
/* True and *last, the id of its last event in any stream, when the source has an event (kept or not
 * yet kept). Takes time with the number of its streams. */
bool streams_source(const struct streams *s, struct slice source, struct uuid *last);
/* One more event of the pair, in the active generation. ERR_NO_MEMORY leaves everything as it was.
 */
int streams_add(struct streams *s, struct slice source, struct slice stream,
                const struct uuid *id) MUST_CHECK;
/* Ends the undo span: all additions stay. */
void streams_keep(struct streams *s);
/* Takes back everything added since the last keep. */
void streams_undo(struct streams *s);

/* Counts of a closed generation, at start. Kept at once. */
int streams_load(struct streams *s, const struct index_stream *row) MUST_CHECK;
/* The rows of the active generation, ordered by source, then stream; the caller frees *rows with
 * free(). Texts are borrowed from s. With reset, the active generation's counts begin anew, also
 * when there is no memory for the rows. */
int streams_generation(struct streams *s, bool reset, struct index_stream **rows,
                       uint32_t *count) MUST_CHECK;
/* All rows with their total counts, ordered; *rows as above. */
int streams_rows(struct streams *s, struct index_stream **rows, uint32_t *count) MUST_CHECK;
uint64_t streams_count(const struct streams *s);

#endif
