/* verify_internal: state of one verification, shared by verify.c, verify_files.c and
 * verify_sealed.c only. */
#ifndef JOURNAL_VERIFY_INTERNAL_H
#define JOURNAL_VERIFY_INTERNAL_H

#include "journal/bytes.h"
#include "journal/inventory.h"
#include "journal/layout.h"
#include "journal/origin.h"
#include "journal/scan.h"
#include "journal/segment.h"
#include "journal/verify.h"
#include "journal/verify_lifecycle.h"

struct key16 {
    uint8_t b[16];
};

struct verify {
    struct layout layout;
    struct verify_report *report;
    verify_progress_fn *progress;
    void *progress_ctx;
    verify_batch_fn *batch; /* may be NULL */
    void *batch_ctx;
    uint64_t total_bytes;
    struct inventory inventory;
    struct layout_generation *closed; /* of the inventory */
    uint32_t closed_count;
    struct segment_walk *table; /* of the segment that is being walked; NULL: a plain file */
    const char *table_name;
    int tail_fd; /* negative: none */
    uint64_t tail_size;
    uint64_t tail_end;  /* end of proven data */
    enum origin origin; /* of what was walked */
    struct key16 *keys;
    uint64_t key_count, key_cap;
    struct verify_lifecycle lifecycle;
    uint32_t key_low, key_high; /* only keys whose first four bytes are in [low, high] */
};

/* Adds a file's name to a list of the report. */
void verify_put_name(struct buf *b, const char *name);
/* Records a violation; the first one stays. */
void verify_fail(struct verify *v, enum verify_fault f, const char *file, bool has_offset,
                 uint64_t offset, const char *text);
/* verify_sealed.c: opens a closed generation, plain or sealed; one that was sealed since the
 * inventory is found where it is now. *out NULL with 0: a violation was recorded. */
int verify_open_closed(struct verify *v, struct layout_generation *g, struct bytes_file **out,
                       struct err *e) MUST_CHECK;
/* A proven batch beside the next row of v->table, and the end of both. */
int verify_table_batch(struct verify *v, const struct scan_batch *b, struct err *e) MUST_CHECK;
int verify_table_end(struct verify *v, const struct scan *s, struct err *e) MUST_CHECK;
/* Remnants of seals, and files in segments/ that nothing names. */
int verify_note_seals(struct verify *v, struct err *e) MUST_CHECK;
/* Sets report->live when another process holds the lock. */
int verify_probe_live(struct verify *v, struct err *e) MUST_CHECK;
/* The tail's descriptor and size, and the closed generations, of one moment. */
int verify_take_inventory(struct verify *v, struct err *e) MUST_CHECK;
void verify_forget_inventory(struct verify *v);
/* For os_list over the journal directory. */
int verify_note_orphan(void *ctx, const char *name);

/* ---- verify_again.c ---- */

/* Batch keys that are held at a time. Tests make it small. */
#define VERIFY_KEYS_MAX (UINT64_C(4) << 20)
extern uint64_t verify_keys_max;
/* Notes the key of a batch, and a line's part in the story of its source (for scan_next). */
int verify_add_key(struct verify *v, const struct scan_batch *b, struct err *e) MUST_CHECK;
int verify_note_line(void *ctx, const struct line *l);
/* Reports what the rules of retirement and lineage have found in this file. */
void verify_check_lifecycle(struct verify *v, const char *name);
/* After the walk: looks for keys that are there twice, and at the sources that did not fit. */
int verify_all_keys(struct verify *v, struct err *e) MUST_CHECK;
int verify_all_sources(struct verify *v, struct err *e) MUST_CHECK;

#endif
