/* verify_internal: state of one verification, shared by verify.c and verify_files.c only. */
#ifndef JOURNAL_VERIFY_INTERNAL_H
#define JOURNAL_VERIFY_INTERNAL_H

#include "journal/layout.h"
#include "journal/verify.h"

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
    struct layout_generation *closed;
    uint32_t closed_count;
    int tail_fd; /* -1: none */
    uint64_t tail_size;
    uint64_t tail_end; /* end of proven data */
    struct key16 *keys;
    uint64_t key_count, key_cap;
    uint32_t key_low, key_high; /* only keys whose first four bytes are in [low, high] */
};

/* Adds a file's name to a list of the report. */
void verify_put_name(struct buf *b, const char *name);
/* Records a violation; the first one stays. */
void verify_fail(struct verify *v, enum verify_fault f, const char *file, bool has_offset,
                 uint64_t offset, const char *text);
/* Sets report->live when another process holds the lock. */
int verify_probe_live(struct verify *v, struct err *e) MUST_CHECK;
/* The tail's descriptor and size, and the closed generations, of one moment. */
int verify_take_inventory(struct verify *v, struct err *e) MUST_CHECK;
void verify_forget_inventory(struct verify *v);
/* For os_list over the journal directory. */
int verify_note_orphan(void *ctx, const char *name);

#endif
