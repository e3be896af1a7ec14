/* parse: from the bytes of an append request to a batch that the journal can stage (spec/history.md
 * sections 2 to 6).
 *
 * Order of checks: JSON screen (invalid_request) - closed envelope: unknown, missing or mistyped
 * members (invalid_request) - batch level rules (invalid_batch) - events, up to 100 of them named
 * (invalid_events). A lineage marker's flaw is noted in the batch: the writer stage answers it, in
 * its turn. Nothing of a refused body is kept. Any
 * thread; one parse object a thread at a time. Memory: the canonical form, at most the limit given,
 * and one row an event. */
#ifndef DOOR_HISTORY_PARSE_H
#define DOOR_HISTORY_PARSE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "journal/journal.h"

#define PARSE_ERRORS_MAX 100

struct parse;

struct parse *parse_new(void); /* NULL without memory */
void parse_free(struct parse *p);

/* 0: *batch borrows from p until the next call. Negative: the code of the answer; e->text is its
 * message, and `extra` holds further members of the error body (`"errors":[…]`) or is empty.
 * ERR_NO_MEMORY: the canonical form is larger than canonical_max_bytes, or there is no memory.
 * extra is cleared first. */
int parse_batch(struct parse *p, struct slice body, size_t canonical_max_bytes,
                struct journal_batch *batch, struct buf *extra, struct err *e) MUST_CHECK;
/* The same for the body of a retirement: *source is a canonical string. */
int parse_retirement(struct parse *p, struct slice body, size_t canonical_max_bytes,
                     struct slice *source, struct err *e) MUST_CHECK;
/* Gives back memory above what small bodies need. */
void parse_trim(struct parse *p);

/* Name rule of sources and streams (section 3), for plain text. */
bool parse_valid_name(struct slice s);

#endif
