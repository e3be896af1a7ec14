/* index: where batch keys are, and what each closed generation holds (ARCHITECTURE 2.4). Not truth:
 * every file here can be rebuilt from the journal, is checked before it is believed, and is
 * replaced when it disagrees.
 *
 * Batch keys: a hash table for the active generation, one immutable sorted run per closed one, runs
 * merged eight at a time. A hit is a hint: the caller compares the stored line. Per closed
 * generation a checksummed summary.
 *
 * Memory: half of memory_bytes is for fences and filters of runs; what does not fit is asked on
 * disk. The other half is for tables whose runs are not written yet; when they pass it, index_full
 * says so, and no keys should be added until it says otherwise. The table of the active generation
 * is bounded by the size of a generation.
 *
 * Files, all written to a temporary name, synced, renamed, directory synced:
 *   index/keys-FFFFFFFF-TTTTTTTT.run   keys of the generations with ordinals F..T (8 digits)
 *   index/gen-NNNNNNNN.sum             summary of generation N
 *
 * Threads: the loop thread calls everything here, but for index_summary_load, which any thread may
 * call. With `background` a thread of its own writes runs and summaries and merges; without it
 * (tests, recovery tools) the same work is done inside the calls. A failure to write is logged and
 * counted (INDEX_FAILURES), never an error of an append: the keys stay in memory until a later
 * attempt succeeds. Merges are paced, so that commits beside them keep their disk and processor. */
#ifndef JOURNAL_INDEX_H
#define JOURNAL_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/slice.h"
#include "base/uuid.h"

struct index;

struct index_key {
    uint8_t fingerprint[16]; /* of journal_fingerprint */
    uint32_t generation;     /* ordinal; generations are numbered from 0 in log order */
    uint32_t offset;         /* of the batch's first line, bytes from the start of its generation */
    uint32_t bytes;          /* of all its lines */
    uint32_t events;
};

struct index_stream {
    struct slice source, stream; /* unescaped; they match [a-z0-9_][a-z0-9_.-]* */
    struct uuid last_id;
    uint64_t events;
};

/* Where to ask whether a generation may hold a (source, record_key). */
struct index_record_filter {
    uint32_t at;         /* byte of the summary file */
    uint32_t blocks;     /* 0: nothing is known */
    uint32_t header_crc; /* of the file that was loaded */
};

struct index_summary {
    uint32_t generation;
    struct uuid first_id, last_id;
    uint64_t events, batches, bytes;
    uint8_t head[SHA256_LEN];     /* chain head at last_id */
    struct index_stream *streams; /* ordered by source, then stream */
    uint32_t stream_count;
    /* Of a summary that was written or loaded: */
    uint32_t *block_crcs; /* CRC32C of each 64 KiB of the generation's bytes */
    uint32_t block_count;
    struct index_record_filter filter;
    void *memory; /* holds all of the above; free with index_summary_free */
};

/* What the journal directory says of a closed generation. */
struct index_generation {
    struct uuid first_id, last_id;
    uint64_t bytes;
};

#define INDEX_SUMMARY_BLOCK_BYTES 65536u
#define INDEX_MEMORY_BYTES        (UINT64_C(256) << 20)

/* Reads n bytes at `at` of a closed generation. Returns how many there were, fewer only at its end;
 * negative ERR_. Called on the thread that writes summaries. */
typedef int64_t index_read_fn(void *ctx, uint32_t generation, uint64_t at, void *p, size_t n,
                              struct err *e);
/* The keys of a closed generation, each to fn, which may fail; *id says which generation it is.
 * ERR_CORRUPT: it does not prove itself. On the thread that writes runs. */
typedef int index_key_fn(void *ctx, const struct index_key *key);
typedef int index_keys_fn(void *ctx, uint32_t generation, struct index_generation *id,
                          index_key_fn *fn, void *fn_ctx, struct err *e);
/* A summary has been written; s is borrowed for the call. On the same thread. */
typedef void index_written_fn(void *ctx, const struct index_summary *s);

struct index_options {
    bool background;
    uint64_t memory_bytes; /* 0: INDEX_MEMORY_BYTES */
    index_read_fn *read;
    index_keys_fn *keys;       /* or NULL: damaged runs wait for the next start */
    index_written_fn *written; /* or NULL */
    void *ctx;                 /* of all three; outlives the index */
};

/* Opens dir (made when missing). closed[0..count) are the closed generations in log order. Removes
 * temporary files and everything that does not fit them. keys_known[i] tells whether a usable run
 * covers generation i: a run is used when its header, length, fences and filter hold and its first
 * and last ids are those of the generations it names; its keys are checked when they are read. NULL
 * with *e only for want of memory or when dir itself cannot be made or listed. */
struct index *index_open(const char *dir, const struct index_generation *closed, uint32_t count,
                         bool *keys_known, const struct index_options *options, struct err *e);
/* Removes every run and summary in dir, for index_open to find nothing. Nobody has it open. ERR_IO;
 * a directory that is not there is fine. */
int index_forget(const char *dir, struct err *e) MUST_CHECK;
/* Waits for the background thread, then frees everything. Unwritten keys are dropped (they are in
 * the journal). */
void index_close(struct index *ix);

/* Adds a key to the active table. ERR_NO_MEMORY leaves it as it was. */
int index_insert(struct index *ix, const struct index_key *key) MUST_CHECK;
/* Takes back a key that was inserted since the last index_close_generation (a group that failed).
 */
void index_remove(struct index *ix, const struct index_key *key);

/* Called for each candidate; returns > 0 to stop (found), 0 to go on, negative ERR_ to fail. */
typedef int index_visit_fn(void *ctx, const struct index_key *key);
/* All keys with this fingerprint: active table, tables not yet written, runs. Returns what the
 * visitor returned last (0: none wanted), or ERR_IO / ERR_CORRUPT when a run could not be read:
 * then nothing may be concluded, and no new key accepted. */
int index_find(struct index *ix, const uint8_t fingerprint[16], index_visit_fn *fn,
               void *ctx) MUST_CHECK;

/* The active generation is closed: its table is set aside and written as a run, and its summary
 * with it: block_crcs and the filter are made from the generation's bytes, which are
 * final. s->streams are copied. with_keys false: only the summary. The caller then goes on
 * inserting keys of the next one. */
int index_close_generation(struct index *ix, const struct index_summary *s, bool with_keys,
                           struct err *e) MUST_CHECK;

/* True while more keys wait in memory than memory_bytes allows, because their runs cannot be
 * written. Cheap. */
bool index_full(struct index *ix);
/* Tries again what has failed. Without a background thread the work is done here. */
void index_retry(struct index *ix);

/* Reads and checks the summary of generation n. ERR_NOT_FOUND when missing, ERR_CORRUPT when it
 * does not hold or does not fit `expect`, ERR_IO, ERR_NO_MEMORY. */
int index_summary_load(const char *dir, uint32_t n, const struct index_generation *expect,
                       struct index_summary *out, struct err *e) MUST_CHECK;
void index_summary_free(struct index_summary *s);
/* False: no event of (source, record_key) is in the generation; canonical JSON strings with quotes.
 * One read of 4 KiB. What cannot be read says "maybe"; a summary whose filter does not hold is
 * removed as well, for the next start to make again. Any thread. */
bool index_record_maybe(const char *dir, uint32_t generation, const struct index_record_filter *f,
                        struct slice source, struct slice record_key);
/* Number of checksums that a generation of so many bytes has. */
static inline uint64_t index_summary_blocks(uint64_t bytes)
{
    return bytes / INDEX_SUMMARY_BLOCK_BYTES + (bytes % INDEX_SUMMARY_BLOCK_BYTES != 0);
}

/* For metrics and tests. */
uint32_t index_run_count(struct index *ix);
uint64_t index_key_count(struct index *ix);
/* Waits until the background thread has nothing to do; merges are not paced meanwhile. */
void index_settle(struct index *ix);
/* Waits until runs and summaries of closed generations are written, or have failed. */
void index_flush(struct index *ix);
/* Memory held for fences and filters. */
uint64_t index_memory_used(struct index *ix);

#endif
