/* index_run: one immutable sorted file of batch keys (index_format.h), its lookup, its sequential
 * reading, and its writing.
 *
 * An open run holds a descriptor and, as far as the budget allows, its fences (16 bytes for each 4
 * KiB of keys) and its filter (12 bits a key); of what it does not hold it reads one block when it
 * needs it. The first fence of each fence block is always there: 16 bytes for 32,258 keys.
 *
 * Threads: a run never changes and any thread may search it; it is counted, and closed with its
 * last reference, so that a file that was merged away stays readable for those who still use it.
 * Cursors and writers belong to one thread. Everything but hold and release blocks. */
#ifndef JOURNAL_INDEX_RUN_H
#define JOURNAL_INDEX_RUN_H

#include <stdatomic.h>

#include "journal/index.h"
#include "journal/index_budget.h"
#include "journal/index_file.h"

struct index_run {
    int fd;
    uint32_t from, to; /* generations */
    struct uuid first_id, last_id;
    uint64_t bytes; /* of the generations, together */
    uint64_t key_count;
    uint32_t block_count;  /* of keys; behind them come the fences, then the filter */
    uint32_t fence_blocks; /* of the file */
    uint32_t filter_blocks;
    uint32_t header_crc;
    uint8_t *tops;               /* the first fence of each fence block */
    uint8_t *fences;             /* the first fingerprint of each key block; NULL: on disk only */
    uint8_t *filter;             /* the lines of all filter blocks; NULL: on disk only */
    struct index_budget *budget; /* of fences and filter; outlives the run */
    atomic_uint refs;
    atomic_bool corrupt;      /* a block that lookups or merges need does not hold its checksum */
    atomic_bool condemned;    /* and its file is removed for that */
    atomic_bool gone;         /* it is */
    atomic_bool failure_told; /* a failing lookup was logged: once is enough */
};

void index_run_name(char out[INDEX_NAME_MAX], uint32_t from, uint32_t to);
/* True when a run over these generations may exist: a power of eight of them, aligned to it. */
bool index_run_fits(uint32_t from, uint32_t to);

/* Opens the run over from..to (both below count). Its header, its length, its fences and, where
 * the budget has room for it, its filter are read and checked; a block of keys is checked each
 * time that it is read. One reference for the caller. ERR_CORRUPT, ERR_IO, ERR_NO_MEMORY,
 * ERR_NO_SPACE never. */
int index_run_open(const char *dir, uint32_t from, uint32_t to,
                   const struct index_generation *closed, uint32_t count,
                   struct index_budget *budget, struct index_run **out, struct err *e) MUST_CHECK;
struct index_run *index_run_hold(struct index_run *run);
/* NULL is fine. */
void index_run_release(struct index_run *run);

/* Visits all keys of the fingerprint; as index_find. With fences and filter in memory: no read when
 * the filter knows that there is none, else one of one block, unless keys of one fingerprint cross
 * blocks. A filter block that cannot be read or does not hold is told and not believed: the keys
 * are read. ERR_CORRUPT with run->corrupt set: the run is good for nothing. */
int index_run_find(struct index_run *run, const uint8_t fingerprint[16], index_visit_fn *fn,
                   void *ctx) MUST_CHECK;

/* Sequential reading, 64 KiB at a time. */
struct index_cursor {
    struct index_run *run; /* borrowed */
    uint8_t *buffer;
    uint32_t block_next; /* to be read */
    uint32_t block_held; /* in the buffer */
    uint32_t block_at;   /* of those, the current one */
    uint32_t key_at;     /* in it */
    uint64_t keys_left;
};

int index_cursor_start(struct index_cursor *c, struct index_run *run, struct err *e) MUST_CHECK;
/* 1: *key is the next. 0: no more. ERR_IO, ERR_CORRUPT. */
int index_cursor_next(struct index_cursor *c, struct index_key *key, struct err *e) MUST_CHECK;
void index_cursor_end(struct index_cursor *c);

/* Writing, 256 KiB at a time. The number of keys is known when it begins: the header goes first,
 * and every block's checksum depends on it. Memory does not grow with the run. */
struct index_run_writer {
    struct index_file file;
    struct index_run *run; /* what becomes of it */
    uint8_t *buffer;       /* blocks of keys, the header before them; behind it the next two */
    uint8_t *fence;        /* the fence block that is being filled */
    uint8_t *filter;       /* the filter block that is being filled */
    uint32_t block_held;   /* full blocks in the buffer, the header among them */
    uint32_t key_at;       /* keys in the block behind them */
    uint32_t block_at;     /* number of that block */
    uint64_t file_size;    /* flushed */
    uint64_t written_back; /* whose write-back was begun */
    uint64_t keys_added;
    struct index_key last;
};

struct index_run_spec {
    uint32_t from, to;
    struct uuid first_id, last_id;
    uint64_t bytes; /* of the generations, together */
    uint64_t key_count;
};

int index_run_writer_start(struct index_run_writer *w, const char *dir,
                           const struct index_run_spec *spec, struct index_budget *budget,
                           struct err *e) MUST_CHECK;
/* Keys in ascending order: ERR_CORRUPT when this one is not behind the last, or not of the run. */
int index_run_writer_add(struct index_run_writer *w, const struct index_key *key,
                         struct err *e) MUST_CHECK;
/* After exactly key_count keys. 0: the run is durable under its name, and *out is the caller's. */
int index_run_writer_commit(struct index_run_writer *w, struct index_run **out,
                            struct err *e) MUST_CHECK;
/* Frees the writer, and removes the file unless it was committed. Harmless when start failed. */
void index_run_writer_end(struct index_run_writer *w);

/* Shared by the parts. */
uint32_t index_run_blocks_for(uint64_t key_count);
/* With all memory that the budget grants. NULL without memory. */
struct index_run *index_run_make(const struct index_run_spec *spec, struct index_budget *budget);
/* Reads n signed blocks of any kind from number `first` on, and checks their checksums. */
int index_run_read(struct index_run *run, uint32_t first, uint32_t n, uint8_t *out,
                   struct err *e) MUST_CHECK;

#endif
