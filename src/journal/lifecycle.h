/* lifecycle: retired sources and successor lineage (spec/history.md section 7): the form of the two
 * kinds of events, and the table of retired sources.
 *
 * A source is retired by one event of source `system`; from then on it takes no batch. A new source
 * may begin with a marker that names a retired source and its final frontier. Both payloads are
 * functions of record_key and a frontier, and canonical text has one spelling, so they are proven
 * by comparing bytes.
 *
 * The table has one owner (the loop thread, or whoever opens the journal). It is made from the log
 * at every start and is never written. Memory: one entry for each source ever retired, the length
 * of its name and something over 60 bytes; each of them has an event of over 700 bytes on disk. */
#ifndef JOURNAL_LIFECYCLE_H
#define JOURNAL_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/uuid.h"

#define LIFECYCLE_SYSTEM         "system"
#define LIFECYCLE_STREAM         "groundhog.source_lifecycle"
#define LIFECYCLE_LINEAGE_STREAM "groundhog.source_lineage"

struct line;

/* ---- the two events; texts are canonical strings with their quotes ---- */

/* Appends the payload of the retirement of source at frontier. */
void lifecycle_put_payload(struct buf *out, struct slice source, const struct uuid *frontier);
/* Appends its batch_id, a canonical string. */
void lifecycle_put_batch_id(struct buf *out, struct slice source, const struct uuid *frontier);
/* True for a line of source system and the lifecycle stream. */
bool lifecycle_is_retirement(const struct line *l);
/* NULL and *frontier: l is a well-formed retirement of the source that is its record_key; else what
 * is wrong with it. */
const char *lifecycle_retirement_flaw(const struct line *l, struct uuid *frontier);

struct lifecycle_marker {
    struct slice kind, occurred_at, payload;
    struct slice record_key; /* the predecessor */
};
/* NULL and *frontier: a well-formed marker in a batch of source (whether the predecessor was
 * retired there is another question); else what is wrong with it, a sentence for people. */
const char *lifecycle_marker_flaw(struct slice source, const struct lifecycle_marker *m,
                                  struct uuid *frontier);

/* ---- retired sources; names are plain, without quotes ---- */

struct lifecycle;

struct lifecycle_entry {
    struct uuid final_frontier, retirement_event_id;
};

struct lifecycle *lifecycle_new(void); /* NULL without memory */
void lifecycle_free(struct lifecycle *lc);
/* NULL: not retired. Valid until the next change. Sees what is not yet kept. */
const struct lifecycle_entry *lifecycle_find(const struct lifecycle *lc, struct slice source);
/* Makes room for one more, so that the next lifecycle_add cannot fail. */
int lifecycle_reserve(struct lifecycle *lc, struct slice source) MUST_CHECK;
/* Adds a source that is not there; room was reserved for it. */
void lifecycle_add(struct lifecycle *lc, struct slice source, const struct lifecycle_entry *entry);
/* Ends the undo span: all additions stay. */
void lifecycle_keep(struct lifecycle *lc);
/* Takes back everything added since the last keep. */
void lifecycle_undo(struct lifecycle *lc);
uint64_t lifecycle_count(const struct lifecycle *lc);

#endif
