/* delivery_index: delivery.sqlite for its owner, the process `tallyman deliver`.
 *
 * One connection, one thread. Every change of state below is one transaction that is synced when
 * the function returns (WAL, synchronous FULL), and asserts that exactly one row was in the state
 * it starts from: ERR_CORRUPT otherwise. All functions block on the disk; besides what they name
 * they return ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY, ERR_CORRUPT and ERR_STORE_BUSY. Times are Unix
 * time, in seconds where they are facts (`now`) and in milliseconds where they are due (`_ms`). */
#ifndef STORE_ARTIFACT_DELIVERY_INDEX_H
#define STORE_ARTIFACT_DELIVERY_INDEX_H

#include "store/artifact/delivery_plan.h"

struct delivery_index;

/* Opens or makes it, and brings an older schema forward. A file that is damaged or no database is
 * put aside as delivery.sqlite.damaged and made anew: everything comes back from receipts and
 * plans (*rebuilt). ERR_UNSUPPORTED: a newer schema. The caller holds the lock. */
int delivery_index_open(const char *data, struct delivery_index **out, bool *rebuilt,
                        struct err *e) MUST_CHECK;
void delivery_index_close(struct delivery_index *ix); /* NULL is fine */
/* After it was closed: for damage that was met on the way. The next open makes it anew. */
int delivery_index_put_aside(const char *data, struct err *e) MUST_CHECK;
/* At the start of the process: what was being sent was interrupted, and what is parked has its
 * person's attention: both are due now. */
int delivery_index_restart(struct delivery_index *ix, int64_t now_ms, struct err *e) MUST_CHECK;

/* ---- reconciliation with receipts/ ---- */
/* Many additions may share a transaction; what is inside is lost together. */
int delivery_index_begin(struct delivery_index *ix, struct err *e) MUST_CHECK;
int delivery_index_commit(struct delivery_index *ix, struct err *e) MUST_CHECK;
void delivery_index_undo(struct delivery_index *ix);
int delivery_index_has(struct delivery_index *ix, const char *object_id, bool *has,
                       struct err *e) MUST_CHECK;
/* The artifact, its identity package (due at once) and its membership. */
int delivery_index_add(struct delivery_index *ix, const struct delivery_artifact *a, int64_t now_ms,
                       struct err *e) MUST_CHECK;
/* Notes a name in receipts/ that was left out; *first: it was not noted before. */
int delivery_index_skip(struct delivery_index *ix, const char *name, const char *reason,
                        int64_t now, bool *first, struct err *e) MUST_CHECK;

/* ---- what is due ---- */
enum delivery_task {
    DELIVERY_NOTHING, /* due_ms says when there may be something; INT64_MAX: nothing waits */
    DELIVERY_BUILD,
    DELIVERY_SEND,
    DELIVERY_VERIFY /* sent, not verified */
};
struct delivery_work {
    enum delivery_task task;
    int64_t due_ms;
    struct delivery_artifact artifact; /* of BUILD */
    unsigned attempts;                 /* that were made so far: of the build, or to send */
    struct delivery_plan plan;         /* of SEND and VERIFY */
};
/* The oldest due work of the project after `after` in name order, round and round; writes that
 * project's name into `after`. */
int delivery_index_next(struct delivery_index *ix, int64_t now_ms,
                        char after[UPLOAD_PROJECT_MAX + 1], struct delivery_work *out,
                        struct err *e) MUST_CHECK;

/* Nothing of the project is to be sent or verified before then: its place is not there, and to find
 * that out once a package would cost as many syncs as there are packages. Builds go on. In memory
 * only, of DELIVERY_HOLDS_MAX projects; without room the one that ends first is forgotten. */
#define DELIVERY_HOLDS_MAX 64
void delivery_index_hold(struct delivery_index *ix, const char *project, int64_t until_ms);

/* ---- builds: state building ---- */
int delivery_index_seal(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        int64_t due_ms, struct err *e) MUST_CHECK;
int delivery_index_build_retry(struct delivery_index *ix, const char *package_id, int64_t now,
                               int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
int delivery_index_build_park(struct delivery_index *ix, const char *package_id, int64_t now,
                              const char *text, const char *way_out, struct err *e) MUST_CHECK;

/* ---- deliveries, by the plan's package and sink ---- */
/* pending, retry_wait -> sending, one attempt more. */
int delivery_index_claim(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         struct err *e) MUST_CHECK;
/* sending -> sent; verification is due at once. */
int delivery_index_sent(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        struct err *e) MUST_CHECK;
/* sent -> sent: not visible there yet, asked again when it is due. */
int delivery_index_unseen(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                          int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
/* sending, sent -> verified. */
int delivery_index_verified(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                            struct err *e) MUST_CHECK;
/* sending, sent -> retry_wait. */
int delivery_index_retry(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
/* sending, sent -> parked. */
int delivery_index_park(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        const char *text, const char *way_out, struct err *e) MUST_CHECK;

#endif
