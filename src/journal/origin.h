/* origin: are the ids of a stretch of the log ours, or another program's? (spec/history.md section
 * 11: directories of the format's first program open here, and ours there.)
 *
 * Ours say which group they are of, and groups are consecutive for ever, so a gap proves that
 * something is missing, and what a torn group may look like is known. Another program's ids only
 * rise: random bits where ours have tag, group and index, or a counter; nothing may be concluded
 * from them. The log itself tells:
 *   ours           the same tag, the next group, index 0: by chance once in 2^74; or the first
 *                  event of a log, of group 0, index 0 and a tag that is not 0
 *   another's      another tag, a group that falls or jumps far; a log that begins otherwise; or
 *                  an observed_at that is not the id's millisecond, which in ours it always is
 * Everything else leaves it at what it was. A log may change hands more than once; the last word
 * counts. */
#ifndef JOURNAL_ORIGIN_H
#define JOURNAL_ORIGIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"

enum origin { ORIGIN_UNKNOWN, ORIGIN_OWN, ORIGIN_FOREIGN };

/* What is known behind an event that begins a batch or a generation. last: the event before it,
 * NULL: it is the first of the log. at_ms: its observed_at is its id's millisecond, or is not
 * known. */
enum origin origin_behind(enum origin before, const struct uuid *last, const struct uuid *id,
                          bool at_ms);
/* Whether id may follow last in a stretch of this origin: in ours the same group with the next
 * index, or the next group with index 0, where both carry the same tag, and a higher id where they
 * cannot be of one journal of ours; in others a higher id. */
bool origin_follows(enum origin o, const struct uuid *last, const struct uuid *id);

#endif
