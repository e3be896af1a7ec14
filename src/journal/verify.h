/* verify: proves a journal directory without a server, read-only, also beside a running one
 * (spec/history.md section 11).
 *
 * Everything is read: framing, order, content and event hashes, batch digests, the names of closed
 * generations, that no batch key occurs twice, that retirements and lineage markers hold; the chain
 * head is computed over all of it. Memory is bounded: 4 million batch keys and half a million
 * sources at a time, further ones in further passes. */
#ifndef JOURNAL_VERIFY_H
#define JOURNAL_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/uuid.h"

/* X(symbol, stable code of the report) */
#define VERIFY_FAULTS(X)                  \
    X(NONE, "none")                       \
    X(MANIFEST, "manifest_invalid")       \
    X(SEGMENT, "segment_invalid")         \
    X(FILE_HASH, "file_hash_mismatch")    \
    X(PENDING, "pending_invalid")         \
    X(TAIL, "tail_invalid")               \
    X(ORDER, "order_invalid")             \
    X(IDEMPOTENCY, "idempotency_invalid") \
    X(BATCH, "batch_commitment_mismatch") \
    X(CONTENT, "content_hash_mismatch")   \
    X(EVENT, "event_hash_mismatch")       \
    X(CHAIN, "chain_head_mismatch")       \
    X(LIFECYCLE, "lifecycle_invalid")

enum verify_fault {
#define X(sym, name) VERIFY_##sym,
    VERIFY_FAULTS(X)
#undef X
};

struct verify_report {
    bool ok;
    bool live; /* a server held the lock: bytes past the last whole group are in flight */
    uint32_t segments_checked, pending_checked;
    uint64_t events_checked, batches_checked, bytes_checked;
    bool empty;
    struct uuid last_id;
    uint8_t head[SHA256_LEN];
    enum verify_fault fault; /* the first one */
    char fault_file[176];    /* below the data directory */
    bool fault_has_offset;
    uint64_t fault_offset;
    char fault_text[256];
    struct buf orphans, remnants; /* JSON string lists without brackets: `"a","b"` */
};

/* Bytes done of all, now and then. */
typedef void verify_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* Called for each batch, in order, when it is proven. */
struct verify_batch {
    struct uuid first_id, last_id;
    uint32_t events;
    const uint8_t *digest;
    uint8_t key[16];           /* its fingerprint */
    uint64_t events_after;     /* of the journal, up to its end */
    const uint8_t *head_after; /* the chain there */
};
typedef void verify_batch_fn(void *ctx, const struct verify_batch *b);

/* 0: *report is filled (free it), ok or not. ERR_NOT_FOUND: no journal there. ERR_IO,
 * ERR_NO_MEMORY, ERR_UNSUPPORTED. */
int verify_journal(const char *dir, verify_progress_fn *progress, void *ctx,
                   struct verify_report *report, struct err *e) MUST_CHECK;
/* The same, and batch(batch_ctx, ...) for each batch. */
int verify_journal_batches(const char *dir, verify_progress_fn *progress, void *ctx,
                           verify_batch_fn *batch, void *batch_ctx, struct verify_report *report,
                           struct err *e) MUST_CHECK;
void verify_report_free(struct verify_report *report);
const char *verify_fault_name(enum verify_fault f);

#endif
