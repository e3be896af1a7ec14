/* read: replay from any thread, up to a frontier fixed when the reader is opened (spec/history.md
 * section 8).
 *
 * A reader keeps a position and one buffer; it never holds more than one stored line beyond its 256
 * KiB window. It uses pread on files that only grow, so rotation beside it changes nothing. One
 * thread at a time per reader. Blocks. */
#ifndef JOURNAL_READ_H
#define JOURNAL_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/uuid.h"
#include "journal/index.h"
#include "journal/journal.h"
#include "journal/line.h"

struct journal_reader;

/* Canonical JSON strings with quotes, borrowed for the reader's life; ptr NULL: no filter. All must
 * match. */
struct journal_filter {
    struct slice source, stream, record_key, kind;
};

/* Opens at the event behind `after` (NULL: the first). The snapshot is the frontier of now, or
 * `through` when given (an id not above the frontier). *snapshot (may be NULL) is that frontier;
 * with `through` only its last_id is filled. ERR_NO_MEMORY, ERR_IO, ERR_CORRUPT. */
int journal_reader_open(struct journal *j, const struct uuid *after, const struct uuid *through,
                        const struct journal_filter *filter, struct journal_frontier *snapshot,
                        struct journal_reader **out, struct err *e) MUST_CHECK;
/* Puts a fresh reader so that it will give the last n matching events of its snapshot. Reads
 * backward. */
int journal_reader_last(struct journal_reader *r, uint64_t n, struct err *e) MUST_CHECK;
void journal_reader_close(struct journal_reader *r);

/* 1: the next matching event (*l is valid until the next call). 0: the snapshot is exhausted.
 * Negative: ERR_IO, ERR_CORRUPT, ERR_NO_MEMORY. With `budget_bytes` not 0 it answers ERR_NOT_READY
 * after having looked at about that many bytes without a match, so that a caller can look up
 * (client gone, shutdown) and go on by calling again; *l is then the last one it has looked at. */
int journal_reader_next(struct journal_reader *r, struct line *l, uint64_t budget_bytes,
                        struct err *e) MUST_CHECK;

/* When the last call gave 1, also after a rest: the next one gives the same event again. */
void journal_reader_again(struct journal_reader *r);
/* Between two calls of a reader that is slow to come again: gives back the window and the
 * descriptor; the next call goes on at the same place, and reads in smaller pieces from now on. *l
 * of the last call is gone. */
void journal_reader_rest(struct journal_reader *r);

/* True when id is a committed event. ERR_ on failure, 1, or 0. */
int journal_has_event(struct journal *j, const struct uuid *id, struct err *e) MUST_CHECK;

/* Rows (source, stream, last id, count) at a frontier, ordered, for one source when given: fn is
 * called per row and may stop with non-zero. Summaries of closed generations are read, the
 * generation that holds `through` is scanned. source: plain name or empty. Any thread. */
typedef int journal_stream_fn(void *ctx, const struct index_stream *row);
int journal_read_streams(struct journal *j, const struct uuid *through, struct slice source,
                         journal_stream_fn *fn, void *ctx, struct err *e) MUST_CHECK;

#endif
