/* verify_head: what `tallyman verify --head` adds. A signed head that was kept elsewhere, and
 * receipts, are compared with the journal while it is proven (journal/verify.h). One thread. */
#ifndef MAIN_VERIFY_HEAD_H
#define MAIN_VERIFY_HEAD_H

#include "door/history/signed_head.h"
#include "journal/verify.h"
#include "main/args.h"

#define VERIFY_HEAD_RECEIPTS_MAX UINT64_C(1000000)

struct verify_head_receipt;

struct verify_head {
    struct signed_head head;
    bool key_given; /* else the key in the head itself: whose it is, nobody has said */
    bool signature_ok;
    bool reached;   /* a batch ended at the head's count (or that is 0) */
    bool same;      /* and chain head and id were the head's there */
    uint64_t found; /* receipts whose batch is there, under the head, as they say */
    struct verify_head_receipt *receipts; /* sorted by first id */
    uint64_t receipt_count, receipt_cap;
    uint64_t violation_count;
    struct buf violations; /* JSON strings with commas between them, or lines */
    bool json;
};

/* Reads head, key (NULL: none) and receipts. ERR_USAGE: a file cannot be read, or is not what it
 * should be; the text names it. ERR_NO_MEMORY. verify_head_free in either case. */
int verify_head_load(struct verify_head *v, const char *head_file, const char *key_file,
                     const struct arg_texts *receipt_files, struct err *e) MUST_CHECK;
/* For verify_journal: ctx is a struct verify_head. */
void verify_head_batch(void *ctx, const struct verify_batch *b);
/* Behind it: what is missing becomes a violation. ERR_NO_MEMORY. */
int verify_head_judge(struct verify_head *v, const struct verify_report *report,
                      struct err *e) MUST_CHECK;
/* `,"head":{...}` */
void verify_head_put_json(struct buf *b, const struct verify_head *v);
void verify_head_print(const struct verify_head *v);
void verify_head_free(struct verify_head *v);

#endif
