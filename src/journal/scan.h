/* scan: walks a generation file batch by batch and proves each one: framing, content hashes, event
 * hashes, batch digest, order of ids, and in stretches of our own (origin.h) consecutive groups.
 * Recovery, the rebuilding of the index and verify all use it; nothing is believed that it has not
 * passed. Memory: one batch. Blocks. */
#ifndef JOURNAL_SCAN_H
#define JOURNAL_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/uuid.h"
#include "journal/bytes.h"
#include "journal/line.h"
#include "journal/origin.h"

/* More than any legal batch occupies: 32 MiB of body that grows at most 5.3 times, and 10,000
 * envelopes. */
#define SCAN_BATCH_BYTES_MAX (UINT64_C(256) << 20)

/* What was broken first; the names are those of `verify` (spec/history.md section 11). */
enum scan_fault {
    SCAN_FAULT_NONE,
    SCAN_FAULT_FRAMING, /* no such line, or a batch that is not whole */
    SCAN_FAULT_CONTENT, /* content_hash_mismatch */
    SCAN_FAULT_EVENT,   /* event_hash_mismatch */
    SCAN_FAULT_DIGEST,  /* batch_commitment_mismatch */
    SCAN_FAULT_ORDER    /* ids that do not rise, or a missing group */
};

struct scan_batch {
    uint64_t offset, bytes; /* in the file */
    uint32_t events;
    struct uuid first_id, last_id;
    struct slice source, batch_id; /* with quotes; valid until the next call */
    uint8_t digest[SHA256_LEN];
};

/* Called for each line of a proven batch, in order. Non-zero ends the scan with that code. */
typedef int scan_line_fn(void *ctx, const struct line *l);

struct scan {
    struct bytes_reader bytes;
    struct bytes_file own; /* what it reads, of the caller's descriptor */
    uint64_t limit;        /* bytes of the file to look at */
    uint64_t offset;       /* of the next batch */
    bool check_order;
    bool framing_only; /* no hashes: for a second pass over what was proven */
    bool has_last;
    struct uuid last_id;      /* of the last proven event */
    enum origin origin;       /* of what precedes; the caller may set it behind scan_start */
    uint64_t observed_ms;     /* of the last proven batch */
    uint8_t head[SHA256_LEN]; /* chain head at last_id */
    uint64_t events;          /* proven by this scan */
    enum scan_fault fault;
    const char *why;
    /* window over the file */
    struct buf window;
    uint64_t window_offset;
    struct buf scratch;
    struct line *lines;
    uint32_t lines_cap;
};

/* Begins at offset 0 of a plain file. last_id NULL: nothing precedes. head: chain head before the
 * first event. s stays where it is until scan_stop. */
void scan_start(struct scan *s, int fd, uint64_t limit, const struct uuid *last_id,
                const uint8_t head[SHA256_LEN]);
/* The same over a generation's bytes, whatever file holds them. */
void scan_start_file(struct scan *s, const struct bytes_file *file, uint64_t limit,
                     const struct uuid *last_id, const uint8_t head[SHA256_LEN]);
void scan_stop(struct scan *s);
/* 1: a proven batch (*b; fn was called for its lines; offset, last_id, head moved on). 0: the end
 * of the data: the limit, or a zero byte where a batch would begin. ERR_CORRUPT: what begins at
 * s->offset is no valid batch (s->fault, s->why); nothing moved. ERR_IO, ERR_NO_MEMORY, or what fn
 * returned. */
int scan_next(struct scan *s, struct scan_batch *b, scan_line_fn *fn, void *ctx,
              struct err *e) MUST_CHECK;
/* The lines of the batch that scan_next gave, b->bytes of them; valid until the next call. */
const char *scan_batch_lines(const struct scan *s, const struct scan_batch *b);
/* Puts a scan at another place of the same file, without knowledge of what precedes it. */
void scan_jump(struct scan *s, uint64_t offset);

#endif
