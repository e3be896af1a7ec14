/* journal: the ordered, hash-chained history in a directory (ARCHITECTURE section 2).
 *
 * One writer (the loop thread) appends batches in groups: journal_append stages a batch and decides
 * its outcome against everything committed and staged; journal_commit writes the group with one
 * pwrite and one fdatasync and publishes the new frontier. No outcome of a group may be told to
 * anybody before journal_commit has returned 0 (ARCHITECTURE 1, rule 3). Readers (journal/read.h)
 * work on any thread, up to the published frontier.
 *
 * Errors: ERR_WRITER_POISONED after a failed write or sync: for the life of this struct nothing is
 * acknowledged any more, reads go on. ERR_NO_SPACE: nothing was stored, a later append may succeed.
 */
#ifndef JOURNAL_JOURNAL_H
#define JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "base/uuid.h"

#define JOURNAL_BATCH_EVENTS_MAX 10000
#define JOURNAL_GROUP_BYTES      (4u << 20)
#define JOURNAL_GROUP_EVENTS_MAX 65536
#define JOURNAL_GENERATION_BYTES (64u << 20)

struct journal;

/* Bytes of closed generations whose part of the index is there, of all. */
typedef void journal_progress_fn(void *ctx, uint64_t done, uint64_t total);

struct journal_options {
    uint64_t generation_bytes; /* 0: JOURNAL_GENERATION_BYTES; at least 64 KiB */
    uint64_t group_bytes;      /* 0: JOURNAL_GROUP_BYTES; a group closes when it has passed this */
    uint32_t seal_after_generations; /* 0: only when asked; else the newest closed ones stay plain,
                                        so many, and the others are sealed (with threads only) */
    uint64_t index_memory;           /* 0: INDEX_MEMORY_BYTES of index.h */
    uint64_t index_at_once; /* 0: 16 MiB; so many bytes are indexed before journal_open returns */
    bool threads;           /* prepare the next tail, write index files and make missing ones in
                                  the background; without, all of it happens inside the calls */
    bool reindex;           /* forget the index first */
    journal_progress_fn *progress; /* of what is made while journal_open works; or NULL */
    void *progress_ctx;
};

/* One event of a batch: canonical JSON texts (strings with their quotes), borrowed for the call. */
struct journal_event {
    struct slice stream, record_key, kind;
    struct slice occurred_at; /* empty: absent */
    struct slice payload;
    uint8_t content_hash[SHA256_LEN];
};

struct journal_batch {
    struct slice source, batch_id; /* canonical JSON strings with quotes */
    uint8_t digest[SHA256_LEN];
    const struct journal_event *events;
    uint32_t count;
    bool has_precondition;
    struct slice precondition_stream; /* canonical JSON string with quotes */
    bool expect_none;                 /* expected_frontier: null */
    struct uuid expected_frontier;
    bool has_marker;          /* events[0], or a misplaced one, is a lineage marker (lifecycle.h) */
    const char *marker_flaw;  /* what is wrong with it, static; NULL: it names the two below */
    struct slice predecessor; /* canonical JSON string with quotes */
    struct uuid predecessor_frontier;
};

enum journal_outcome {
    JOURNAL_COMMITTED,         /* staged; true once journal_commit returned 0 */
    JOURNAL_DUPLICATE,         /* the original receipt is in the result */
    JOURNAL_BATCH_CONFLICT,    /* same key, other digest: digest and events are the original's */
    JOURNAL_FRONTIER_CONFLICT, /* actual_* say what the stream's frontier is */
    JOURNAL_SOURCE_RETIRED,    /* retired says where */
    JOURNAL_LINEAGE_INVALID,   /* the batch's marker_flaw */
    JOURNAL_LINEAGE_CONFLICT,  /* actual_*: the predecessor's final frontier, none: not retired */
    /* of journal_retire */
    JOURNAL_RETIRED,         /* staged; true once journal_commit returned 0 */
    JOURNAL_ALREADY_RETIRED, /* with the values of then */
    JOURNAL_SOURCE_UNKNOWN   /* it has no event */
};

struct journal_result {
    enum journal_outcome outcome;
    uint8_t digest[SHA256_LEN];
    uint32_t events;
    struct uuid first_id, last_id;
    bool actual_none; /* the stream has no committed event; the predecessor is not retired */
    struct uuid actual_frontier;
    struct uuid final_frontier, retirement_event_id; /* of a retired source */
};

/* The published frontier. While the index is made anew after a start, events and head are not
 * known: complete is false, and both are zero. */
struct journal_frontier {
    bool empty; /* no event yet: last_id is zero, head is the genesis head */
    bool complete;
    struct uuid last_id;
    uint64_t events;
    uint8_t head[SHA256_LEN];
};

struct journal_status {
    struct journal_frontier frontier;
    uint64_t bytes;
    uint32_t generations, segments;      /* segments: generations that are sealed */
    uint64_t sealed_bytes, stored_bytes; /* their plain bytes, and those of their files */
    bool poisoned;
    bool damaged; /* poisoned because of damage found at the start: a restart does not help */
    bool no_space;
    bool indexing; /* appends wait until the index is made: indexed generations of index_total */
    uint32_t indexed, index_total;
    bool index_full; /* appends wait: too many keys are in memory, their files cannot be written */
    char cause[256]; /* of poisoned or no_space, for people; no paths of the host beyond file names
                      */
    uint64_t clock_ahead_ms;
};

/* Opens or creates DIR/journal with DIR/index and DIR/remnants; takes DIR/lock. Recovers
 * (ARCHITECTURE 2.2), and completes the index: with `threads` in the background when much of it is
 * missing. Then reads are served at once, and appends answer ERR_NOT_READY until it is there;
 * damage that is found on the way makes the journal what it had been with damage found here:
 * poisoned (damaged), with a frontier at the last proven event. ERR_LOCKED when another process
 * has it; ERR_CORRUPT names file and offset, and nothing was changed; ERR_UNSUPPORTED for a format
 * of the future; ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY. Blocks. */
int journal_open(const char *dir, const struct journal_options *options, struct journal **out,
                 struct err *e) MUST_CHECK;
/* Clean close: trims the tail, removes the spare, releases the lock; a poisoned journal, and one
 * whose index is not complete yet, is left as it is. Staged batches are dropped. Returns what
 * failed (the directory then recovers at the next open). Frees j always. */
int journal_close(struct journal *j, struct err *e);

/* Stages a batch. 0: *r holds the outcome (to be told after journal_commit). ERR_GROUP_FULL:
 * commit first, then come again. ERR_NOT_READY: the index is not complete yet, or cannot be
 * written for now and holds too much in memory; *e says which. ERR_NO_SPACE, ERR_WRITER_POISONED,
 * ERR_NO_MEMORY, ERR_IO (a read of the past failed: nothing is known, nothing was staged). */
int journal_append(struct journal *j, const struct journal_batch *b, struct journal_result *r,
                   struct err *e) MUST_CHECK;
/* Stages the retirement of a source (a plain name as a canonical JSON string, not "system"): one
 * event of source system. Answers and errors as journal_append. */
int journal_retire(struct journal *j, struct slice source, struct journal_result *r,
                   struct err *e) MUST_CHECK;
/* Makes the staged group durable and publishes it. With nothing staged: 0 at once, no system call.
 * On ERR_NO_SPACE the group is undone and may be appended again later; on ERR_WRITER_POISONED it is
 * unknown. */
int journal_commit(struct journal *j, struct err *e) MUST_CHECK;
/* True when batches are staged. */
bool journal_pending(const struct journal *j);
/* fn is called by journal_commit with the lines of a group (each with its LF, borrowed for the
 * call), after they are durable and published, before it returns 0. NULL: nobody. */
typedef void journal_committed_fn(void *ctx, struct slice lines);
void journal_on_committed(struct journal *j, journal_committed_fn *fn, void *ctx);

/* Once a second or so: tries again to get space, refreshes metrics. */
void journal_tick(struct journal *j);
/* Any thread. */
void journal_get_frontier(struct journal *j, struct journal_frontier *out);
void journal_get_status(struct journal *j, struct journal_status *out);

/* Fingerprint of a key: first half of SHA-256(source NUL batch_id), both as canonical JSON strings
 * with quotes. */
void journal_fingerprint(struct slice source, struct slice batch_id, uint8_t out[16]);

#endif
