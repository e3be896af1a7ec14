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
/* At the start of the process: what was being sent was interrupted, so that all of its files may be
 * there, and what is parked has its person's attention: both are due now. */
int delivery_index_restart(struct delivery_index *ix, int64_t now_ms, struct err *e) MUST_CHECK;

/* ---- reconciliation with receipts/ ---- */
/* Many additions may share a transaction; what is inside is lost together. */
int delivery_index_begin(struct delivery_index *ix, struct err *e) MUST_CHECK;
int delivery_index_commit(struct delivery_index *ix, struct err *e) MUST_CHECK;
void delivery_index_undo(struct delivery_index *ix);
int delivery_index_has(struct delivery_index *ix, const char *object_id, bool *has,
                       struct err *e) MUST_CHECK;
/* The artifact, which waits to be chosen for a merged package. */
int delivery_index_add_waiting(struct delivery_index *ix, const struct delivery_artifact *a,
                               struct err *e) MUST_CHECK;
/* The artifact, its identity package (due at once) and its membership. */
int delivery_index_add(struct delivery_index *ix, const struct delivery_artifact *a, int64_t now_ms,
                       struct err *e) MUST_CHECK;
/* Notes a name in receipts/ that was left out; *first: it was not noted before. */
int delivery_index_skip(struct delivery_index *ix, const char *name, const char *reason,
                        int64_t now, bool *first, struct err *e) MUST_CHECK;

/* ---- merged packages (delivery_merge.c) ---- */
/* How a project's packages are filled; target 0: the project makes none (any more). */
struct delivery_merge_rule {
    uint64_t target, trigger; /* bytes */
    int64_t max_wait_ms;
};
/* The least project after the given one ("": the first) with artifacts that wait; "": none. */
int delivery_index_waiting(struct delivery_index *ix, const char *after,
                           char out[UPLOAD_PROJECT_MAX + 1], struct err *e) MUST_CHECK;
/* Makes one package of artifacts of the project that wait, if it is time for one, building and due
 * now; where the rule has no target, up to 500 identity packages. *made: how many. *due_ms, of
 * none: when it may be time without anything new; INT64_MAX: never. */
int delivery_index_choose(struct delivery_index *ix, const char *project,
                          const struct delivery_merge_rule *rule, int64_t now_ms, unsigned *made,
                          int64_t *due_ms, struct err *e) MUST_CHECK;
/* A merged package that is on the disk already (plan and manifest fit each other): with its
 * members, building and due now, so that the build adopts it. Members that other packages of the
 * index have, which are not sealed, leave these, whose others wait again. ERR_REFUSED: one is in a
 * sealed one, or named twice; nothing was changed then. Inside the caller's transaction. */
int delivery_index_restore(struct delivery_index *ix, const struct delivery_plan *p,
                           const struct delivery_members *m, int64_t now_ms,
                           struct err *e) MUST_CHECK;
int delivery_index_has_package(struct delivery_index *ix, const char *package_id, bool *has,
                               struct err *e) MUST_CHECK;
/* Members of a merged package that is building, and cannot be in any. */
struct delivery_bad {
    unsigned member; /* from 0 */
    const char *text, *way_out;
};
/* The package is none any more: each bad member becomes a blocked one of its own, all others wait
 * again. bad: in the order of the members, at least one, which may be the only member. */
int delivery_index_isolate(struct delivery_index *ix, const char *package_id,
                           const struct delivery_members *m, const struct delivery_bad *bad,
                           unsigned count, int64_t now_ms, struct err *e) MUST_CHECK;
/* The artifact, which is a blocked or waiting one of a merging project, becomes an identity package
 * of its own, due now. *done false: it is neither (unknown, or in a package that goes its way), or
 * its package has a plan in DATA/packages/: under its names all members may have been sent. */
int delivery_index_identity(struct delivery_index *ix, const char *data, const char *object_id,
                            int64_t now_ms, bool *done, struct err *e) MUST_CHECK;

/* ---- what is due ---- */
enum delivery_task {
    DELIVERY_NOTHING, /* due_ms says when there may be something; INT64_MAX: nothing waits */
    DELIVERY_BUILD,
    DELIVERY_SEND,
    DELIVERY_VERIFY, /* sent, not verified */
    DELIVERY_PURGE   /* verified, and its local bytes are due to go */
};
const char *delivery_task_name(enum delivery_task t);
enum delivery_lane {
    DELIVERY_LANE_BUILD,
    DELIVERY_LANE_SEND,
    DELIVERY_LANE_PURGE, /* the oldest due first, whosever it is */
    DELIVERY_LANES
};

struct delivery_work {
    enum delivery_task task;
    int64_t due_ms;
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    uint64_t size_bytes;               /* of all members */
    struct delivery_artifact artifact; /* the only member, or the first */
    /* Of BUILD and PURGE of a merged package: all, for the caller to free; else none. */
    struct delivery_members members;
    unsigned attempts;         /* that were made so far: of the build, or to send */
    int64_t sent_at;           /* of VERIFY and PURGE */
    uint64_t maybe_files;      /* of SEND: that earlier tries may have brought, bit by bit */
    int64_t maybe_at;          /* the last of these; 0: none */
    int64_t verified_at;       /* of PURGE */
    struct delivery_plan plan; /* of all but BUILD */
};
struct delivery_ask {
    enum delivery_lane lane;
    bool small_only;  /* LANE_BUILD: none of more than DELIVERY_SMALL_BYTES */
    unsigned workers; /* LANE_SEND: of all together; the last is no project's own, see below */
};
/* Due work for one worker, which is under way from then on and given to nobody else until
 * delivery_index_over. Projects take turns in the order of their names, each with its oldest due;
 * one that has all workers but one gets the last only while nothing of any other is due. Of a
 * project's sendings and verifications that are both due, each comes soon. */
int delivery_index_next(struct delivery_index *ix, int64_t now_ms, const struct delivery_ask *ask,
                        struct delivery_work *out, struct err *e) MUST_CHECK;
void delivery_index_over(struct delivery_index *ix, const char *package_id);
/* It is under way and does not come back: it counts no more for its project's share, and nothing
 * else of the project is sent or verified meanwhile. */
void delivery_index_stuck(struct delivery_index *ix, const char *package_id);
#define DELIVERY_UNDER_WAY_MAX 96

/* ---- holds ----
 * Nothing of what a hold names is to be sent or verified before its end: it cannot arrive, and to
 * find that out once a package would cost as many tries as there are packages. Builds go on. In
 * memory only, DELIVERY_HOLDS_MAX of them; without room the one that ends first is forgotten. */
#define DELIVERY_HOLDS_MAX 64
/* X(symbol, name in status) */
#define DELIVERY_SCOPES(X) \
    X(ITEM, "item")        \
    X(PROJECT, "project")  \
    X(KEYS, "credentials") \
    X(FAR_END, "far_end")
enum delivery_scope {
#define X(sym, name) DELIVERY_SCOPE_##sym,
    DELIVERY_SCOPES(X)
#undef X
        DELIVERY_SCOPE_COUNT
};
/* What shares this with the package of the plan, until then; text says why. */
void delivery_index_hold(struct delivery_index *ix, enum delivery_scope scope,
                         const struct delivery_plan *p, int64_t until_ms, const char *text);

/* ---- for whoever looks ---- */
struct delivery_running {
    char package_id[DELIVERY_PACKAGE_LEN + 1];
    char project[UPLOAD_PROJECT_MAX + 1];
    enum delivery_task task;
    char sink[32], identifier[DELIVERY_NAME_MAX]; /* "" of a build */
    int64_t begun_at;
    uint64_t bytes, size_bytes, bytes_per_s;
    char file[DELIVERY_NAME_MAX]; /* under way; "" */
    bool stuck;
};
/* Replaces what the database says is running and held. Not synced: it is news, not a fact.
 * *usable false: the connection must not be used any more. */
int delivery_index_show(struct delivery_index *ix, const struct delivery_running *running,
                        unsigned count, int64_t now, bool *usable, struct err *e) MUST_CHECK;

/* ---- what people ask for ---- */
/* The package of the artifact is due now, whatever it waits for (its holds end, too), and attempts
 * are kept. *found false: the index does not have it. Nothing is changed when it is under way or
 * verified. */
int delivery_index_ask(struct delivery_index *ix, const char *object_id, int64_t now_ms,
                       bool *found, struct err *e) MUST_CHECK;

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
/* sent -> sent: not visible there yet, asked again when it is due. late: it should have been, long
 * ago; status counts these. */
int delivery_index_unseen(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                          int64_t due_ms, bool late, const char *text, struct err *e) MUST_CHECK;
/* How many are late. */
int delivery_index_late(struct delivery_index *ix, uint64_t *count, struct err *e) MUST_CHECK;
/* sending, sent -> verified; a plan with a retention makes the local bytes due to go after it. */
int delivery_index_verified(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                            struct err *e) MUST_CHECK;
/* sending, sent -> retry_wait. */
int delivery_index_retry(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
/* sending -> retry_wait, and the attempt is not counted: nothing was sent, because what an earlier
 * one may have brought was looked for. Where the clock was set back, the looking begins anew. */
int delivery_index_put_off(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                           int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
/* sending, and stays: these files may be there, whatever becomes of the try. */
int delivery_index_maybe(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                         uint64_t files, struct err *e) MUST_CHECK;
/* sending, sent -> parked. */
int delivery_index_park(struct delivery_index *ix, const struct delivery_plan *p, int64_t now,
                        const char *text, const char *way_out, struct err *e) MUST_CHECK;

/* ---- local bytes of what is verified (purge.h) ---- */
/* They are gone. */
int delivery_index_purged(struct delivery_index *ix, const char *package_id, int64_t now,
                          struct err *e) MUST_CHECK;
int delivery_index_purge_retry(struct delivery_index *ix, const char *package_id, int64_t now,
                               int64_t due_ms, const char *text, struct err *e) MUST_CHECK;
/* *proven: the package is verified, and its local bytes are due to go, or gone. */
int delivery_index_proven(struct delivery_index *ix, const char *package_id, bool *proven,
                          struct err *e) MUST_CHECK;
/* Of a package that has a proof, where *proven is false: its artifact and package, verified as the
 * proof says, its local bytes due to go (again: what is gone is fine). ERR_REFUSED: the index has
 * one of its members in another sealed package; nothing was changed. Inside the caller's
 * transaction. */
struct proof;
int delivery_index_prove(struct delivery_index *ix, const struct proof *p, int64_t now_ms,
                         struct err *e) MUST_CHECK;

#endif
