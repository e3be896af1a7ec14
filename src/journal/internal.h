/* internal: the journal's own state, shared by open.c, recover.c, append.c, rotate.c and read.c and
 * by nobody else.
 *
 * Lock ranks: journal.lock, then index's and spare's own mutexes are never taken under it. Fields
 * marked [lock] are read by any thread under the lock and written by the loop thread under it; all
 * others belong to the loop thread, or for a time to rebuild's (rebuild.c). */
#ifndef JOURNAL_INTERNAL_H
#define JOURNAL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "journal/bytes.h"
#include "journal/index.h"
#include "journal/journal.h"
#include "journal/layout.h"
#include "journal/lifecycle.h"
#include "journal/origin.h"
#include "journal/sealer.h"
#include "journal/spare.h"
#include "journal/streams.h"

struct generation {
    uint32_t ordinal;
    struct uuid first_id, last_id; /* [lock] meaningless while events is 0 */
    struct uuid
        named_last_id; /* [lock] in the file's name; differs from last_id when its end is damaged */
    uint64_t bytes;    /* [lock] committed bytes */
    uint64_t events;   /* [lock] */
    bool tail;         /* [lock] */
    bool sealed;       /* [lock] its bytes are in segments/ */
    bool from_plain;   /* [lock] of a sealed one: its segment is damaged, its plain file is read */
    /* [lock] Of a sealed one: of its file, and the chain head at last_id. */
    uint8_t sha256[SHA256_LEN], head[SHA256_LEN];
    int fd; /* the tail's, for writing; -1 for a closed one */
    /* [lock] open while somebody holds it; the tail's always is. Who holds another one than this
     * one goes on with it. */
    struct bytes_file *file;
    /* [lock] of a closed one, from its summary; NULL: not known (yet). They stay where they are
     * until the journal is closed. */
    uint32_t *block_crcs;
    uint32_t block_count;
    bool counted; /* [lock] events is known; until then it is 1, or what the manifest says */
    bool cut;     /* [lock] behind bytes there is damage: the checksums do not say what bytes has */
    struct index_record_filter filter; /* [lock] of its summary */
};

/* What is proven or summarized so far, from the first generation on. */
struct rebuild {
    struct journal_frontier at;
    uint64_t bytes, total_bytes;
    bool *keys_known; /* of closed generations; NULL: nothing is left to do */
    uint32_t next, total;
    uint32_t done; /* [lock] */
    pthread_t thread;
    bool running;     /* there is a thread to join */
    atomic_bool stop; /* it shall end */
};

struct journal {
    struct layout layout;
    struct journal_options options;
    int lock_fd;

    pthread_mutex_t lock;
    struct generation **generations; /* [lock] the last one is the tail */
    uint32_t generation_count, generation_cap;
    uint32_t
        generation_made; /* [lock] more than generation_count when damage was found behind one */
    struct journal_frontier frontier; /* [lock] published */
    uint64_t bytes;                   /* [lock] committed, all generations */
    atomic_bool poisoned;             /* once it is true, cause does not change any more */
    bool damaged, no_space;           /* [lock] damaged: poisoned by what was found at the start */
    char cause[256];                  /* [lock] */
    uint32_t sealed_count;            /* [lock] generations, the first ones, that are sealed */
    uint64_t sealed_bytes, stored_bytes; /* [lock] their plain bytes, and those of their files */
    uint64_t manifest_bytes;             /* committed; whoever holds sealer.work, or the opening */
    char damaged_segment[256];           /* the opening's: of one that could not be made again */
    struct sealer sealer;
    atomic_bool indexing; /* rebuild's thread owns index, streams and batches_in_tail */

    struct rebuild rebuild;
    struct {
        uint64_t size;     /* of the file */
        uint64_t bad, end; /* invalid bytes; the same: none */
        bool closed;       /* cleanly */
        enum origin origin;
        const char *why;
    } tail_found; /* by journal_recover_tail */

    /* the writer */
    struct index *index;
    struct streams *streams;
    struct lifecycle *lifecycle;
    struct spare spare;
    bool spare_running;
    uint64_t tail_capacity;  /* bytes of the tail file that are there and zero behind the data */
    uint64_t retry_space_ns; /* monotonic time before which nothing is tried on a full disk */
    uint64_t batches_in_tail;
    bool any_group; /* tag, last_group and last_ms are known */
    uint16_t tag;
    uint64_t last_group, last_ms;
    bool clock_warned;
    enum origin origin; /* behind the first origin_generations generations */
    uint32_t origin_generations;

    /* the staged group */
    struct buf group;
    uint32_t group_events;
    struct index_key *staged; /* keys of its batches, in order */
    uint32_t staged_count, staged_cap;
    uint64_t group_number, group_ms;
    char group_observed_at[32];
    struct uuid group_last_id;
    uint8_t group_head[SHA256_LEN];
    struct buf scratch;
    struct buf lookup; /* stored lines that are compared with a key */
    /* The generation that the last lookup read, held with its block for the next one: what is sent
     * again is sent in order. */
    struct generation *lookup_held;
    struct bytes_file *lookup_file;
    struct bytes_reader lookup_bytes;
    bool lookup_used; /* since the last tick */

    journal_committed_fn *on_committed; /* NULL: nobody wants to see groups */
    void *on_committed_ctx;
};

static inline struct generation *journal_tail(struct journal *j)
{
    return j->generations[j->generation_count - 1];
}

/* Stops acknowledging for good. The first cause stays. */
void journal_poison(struct journal *j, const char *cause);
/* The same for damage found when opening: a restart will not help. */
void journal_poison_damaged(struct journal *j, const char *cause);
void journal_set_no_space(struct journal *j, bool on, const char *cause);
/* A new generation behind the others; it becomes the last, and readers may come at once. fd: of the
 * tail, -1 for a closed one. NULL without memory. */
struct generation *journal_add_generation(struct journal *j, int fd);
/* A generation's bytes for reading (bytes_start), until they are released. ERR_ when it cannot be
 * opened. Any thread. */
int journal_hold(struct journal *j, struct generation *g, struct bytes_file **out,
                 struct err *e) MUST_CHECK;
void journal_release(struct journal *j, struct generation *g, struct bytes_file *file);
void journal_refresh_metrics(struct journal *j);

/* recover.c: proves the tail's content, sets frontier, keys and streams (these two and the count
 * and head not while indexing: rebuild.c does it in its turn). Changes nothing on disk.
 * ERR_CORRUPT: only proven content is published and nothing was changed on disk. */
int journal_recover_tail(struct journal *j, int fd, struct err *e) MUST_CHECK;
/* Mends a torn tail, and makes it ready for appends. */
int journal_ready_tail(struct journal *j, struct err *e) MUST_CHECK;
/* Proves the tail's batches from the scan's place on and counts them into index and streams. 0: at
 * s->offset there is no more; ERR_CORRUPT: an invalid one begins there. */
struct scan;
int journal_count_tail(struct journal *j, struct scan *s, struct err *e) MUST_CHECK;
/* recover.c: whose the log before a generation is, as far as the names of those before it tell. */
enum origin journal_origin(struct journal *j, uint32_t ordinal);
/* For scan_next: counts a proven line into the streams of j (ctx), and notes a retirement.
 * ERR_UNSUPPORTED: it is a retirement that the history before it does not allow. */
struct line;
int journal_count_line(void *ctx, const struct line *l);
/* Fills *e, where nothing is in it yet, for a code of journal_count_line at that byte. */
void journal_say_refused(int code, uint64_t offset, struct err *e);
/* Fingerprint, offset and so on of a proven batch; and that into the index. */
struct scan_batch;
void journal_key_of(const struct scan_batch *b, uint32_t ordinal, struct index_key *key);
int journal_index_batch(struct journal *j, const struct scan_batch *b, uint32_t ordinal) MUST_CHECK;
/* open_sealed.c: takes a generation that the manifest says is sealed, and looks at its end. plain:
 * its plain file, when that is still in pending/, or NULL; then the whole segment is looked at, and
 * when it is damaged the plain file is read in its place, if that holds. ERR_CORRUPT: it has no
 * bytes and no events then. */
int journal_load_sealed(struct journal *j, struct generation *g,
                        const struct layout_generation *row, const struct layout_generation *plain,
                        struct err *e) MUST_CHECK;
/* open_sealed.c: a last record without its line feed was never committed, and is cut off; unless it
 * is a damaged one: ERR_CORRUPT, and nothing was changed. */
int journal_cut_manifest(struct journal *j, uint64_t good_bytes, struct err *e) MUST_CHECK;
/* Removes what a cut seal left, and makes damaged segments again whose plain file is left. */
struct inventory;
int journal_clear_seals(struct journal *j, const struct inventory *inv, struct err *e) MUST_CHECK;
/* rebuild.c: adds the closed generations and takes what index/ says of them. When something is
 * missing it is made here, or, with options.threads, left to journal_rebuild_start: then indexing
 * is set, and the frontier is that of the last closed generation without count and head.
 * ERR_CORRUPT: only proven content is published. */
int journal_load_closed(struct journal *j, struct err *e) MUST_CHECK;
/* Starts the thread that makes what is missing, when indexing. */
int journal_rebuild_start(struct journal *j, struct err *e) MUST_CHECK;
/* Ends it, done or not. */
void journal_rebuild_stop(struct journal *j);

/* summaries.c, any thread: what the index asks of closed generations, and what it tells of them. */
int64_t journal_index_read(void *ctx, uint32_t generation, uint64_t at, void *p, size_t n,
                           struct err *e);
int journal_index_keys(void *ctx, uint32_t generation, struct index_generation *id,
                       index_key_fn *fn, void *fn_ctx, struct err *e);
void journal_note_summary(void *ctx, const struct index_summary *s);

/* lookup.c: 1 when the batch's key is committed or staged (*r is then its outcome), 0 when it is
 * new, negative when that cannot be known. */
int journal_lookup(struct journal *j, const struct journal_batch *b, const uint8_t fingerprint[16],
                   struct journal_result *r, struct err *e) MUST_CHECK;
/* append.c: whether a key can be told from a new one, and one more be remembered; else
 * ERR_NOT_READY. */
int journal_keys_ready(struct journal *j, struct err *e) MUST_CHECK;
/* Lets go of what lookups hold. */
void journal_lookup_rest(struct journal *j);
/* append.c: stages a batch that is decided: its key is new, and nothing is against it. *r is then
 * COMMITTED. */
int journal_stage(struct journal *j, const struct journal_batch *b, const uint8_t fingerprint[16],
                  struct journal_result *r, struct err *e) MUST_CHECK;
/* retire.c: 1 when the batch's source is retired, or its lineage marker does not hold (*r is then
 * the outcome); 0 when neither. */
int journal_check_lifecycle(struct journal *j, const struct journal_batch *b,
                            struct journal_result *r);
/* retire.c: notes a retirement that was read from the log. ERR_UNSUPPORTED: it cannot be one. */
int journal_note_retirement(struct journal *j, const struct line *l) MUST_CHECK;
/* retire.c: notes the retirements of a closed generation whose lines are not gone through; its row
 * of the summary says that it has any. */
int journal_load_retirements(struct journal *j, const struct generation *g,
                             const struct index_summary *sum, struct err *e) MUST_CHECK;
/* open.c: begins to make the next tail. */
int journal_start_spare(struct journal *j, struct err *e) MUST_CHECK;
/* rotate.c: closes the tail (nothing is staged) and goes on in the spare, which will have room for
 * `need` bytes and one zero. */
int journal_rotate(struct journal *j, uint64_t need, struct err *e) MUST_CHECK;
/* Room for need bytes and one zero in the tail as it is, by zero-filling more of it. */
int journal_grow_tail(struct journal *j, uint64_t need, struct err *e) MUST_CHECK;

#endif
