/* store: tallyman.sqlite, the queue and control database (ARCHITECTURE section 4).
 *
 * One connection writes, on the loop thread, one transaction a loop turn. Whoever wants to write
 * hands the store a job; the turn runs the jobs, each inside a savepoint of its own, commits once,
 * and only then tells the jobs (`done`), so every answer follows its sync. Other threads only read,
 * through a store_reader of their own, for at most a second, paging by id.
 *
 * Poisoned: a failed commit, write or checkpoint sync ends all writing until a restart; jobs then
 * get ERR_STORE_POISONED. A full disk (or SQLITE_FULL) is different: the transaction is undone,
 * every job of the turn gets ERR_NO_SPACE, and the next turn tries anew.
 *
 * Power failure: WAL with synchronous=FULL; a commit that returned is on disk, one that did not is
 * there whole or not at all. On open the page cache of database and WAL is dropped before the first
 * read, so that nothing is believed that never reached the disk. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"

struct store;
struct sqlite3;

#define STORE_FILE "tallyman.sqlite"

struct store_options {
    uint64_t queue_events_max;   /* of the instance: 10 million */
    uint64_t queue_bytes_max;    /* 8 GiB of event texts */
    uint64_t project_events_max; /* half of each */
    uint64_t project_bytes_max;
    uint64_t wal_bytes_max; /* 64 MiB: past it turns wait for a whole checkpoint */
    bool threads; /* false: no background checkpoints (tests; they call store_checkpoint) */
    /* May be NULL; else called, on another thread, when turns that waited for a checkpoint may go
     * on. Without it store_turn waits a little and says that more waits. */
    void (*wake)(void *ctx);
    void *wake_ctx;
};
extern const struct store_options store_options_default;

/* Opens or makes DATA/tallyman.sqlite, migrates an older schema forward, backfills derived tables.
 * ERR_UNSUPPORTED: a newer schema. ERR_CORRUPT: not a database, or a broken one. ERR_IO,
 * ERR_NO_SPACE, ERR_NO_MEMORY. Blocks. The data directory's lock is the caller's. */
int store_open(const char *data, const struct store_options *options, struct store **out,
               struct err *e) MUST_CHECK;
/* From now on as without `wake`: for the end, when no loop is there to be woken, so that
 * `while (store_turn(s))` ends only when nothing waits. Loop thread. */
void store_finish(struct store *s);
/* No job may be waiting. Checkpoints and closes; NULL is fine. */
int store_close(struct store *s, struct err *e) MUST_CHECK;

/* ---- jobs (loop thread) ---- */
enum store_weight {
    STORE_SMALL,     /* shares a turn with others */
    STORE_LARGE,     /* a very large request: a turn without small ones, after their answers */
    STORE_BACKGROUND /* a slice of at most 5 ms beside the others; may ask for more (STORE_AGAIN) */
};
#define STORE_AGAIN 1 /* result of `run`: keep this slice, and call me again in a later turn */

struct store_job {
    TAILQ_ENTRY(store_job) link;
    /* Inside the turn's transaction, under a savepoint. 0: keep. STORE_AGAIN: keep, more to come.
     * An ERR_ code: this job's writes are undone, the others' stay. */
    int (*run)(struct store_job *job, struct store *s, struct err *e);
    /* After the commit. code: 0, what run returned, or why the whole turn is undone
     * (ERR_NO_SPACE, ERR_STORE_POISONED, ERR_STORE_BUSY). The job is the caller's again; it is also
     * told after each committed slice that asked for more (STORE_AGAIN), and is then still
     * queued. */
    void (*done)(struct store_job *job, int code, const struct err *e);
    enum store_weight weight;
    int code;
};
TAILQ_HEAD(store_job_list, store_job);

/* Queues a job. Never fails, never blocks. */
void store_submit(struct store *s, struct store_job *job);
/* One transaction over what waits. True: more waits (or a slice asked for more), turn again soon.
 * Blocks for the sync of the commit; when nothing was written there is no commit. */
bool store_turn(struct store *s);
/* About once a second: retries after a full disk, gauges. */
void store_tick(struct store *s);

/* ---- state ---- */
struct store_status {
    bool poisoned;
    bool no_space;
    char cause[200];                        /* "" or why */
    uint64_t pending_events, pending_bytes; /* of the instance, quarantined ones too */
    uint64_t quarantined;
    uint64_t rejected;
    uint64_t receipts;
    uint64_t wal_bytes;
    int64_t schema_version;
};
void store_get_status(const struct store *s, struct store_status *out);

/* The write connection, for the files of store/ and jobs that run (never outside `run`). */
struct sqlite3 *store_db(struct store *s);

/* One pass of checkpointing on the caller's thread (tests, close). */
int store_checkpoint(struct store *s, struct err *e) MUST_CHECK;

/* ---- readers: a read-only connection for one other thread ---- */
struct store_reader;
int store_reader_open(const char *data, struct store_reader **out, struct err *e) MUST_CHECK;
void store_reader_close(struct store_reader *r);
struct sqlite3 *store_reader_db(struct store_reader *r);

/* Turns the state of a failed SQLite call into *e: SQLITE_FULL gives ERR_NO_SPACE, SQLITE_NOMEM
 * ERR_NO_MEMORY, CORRUPT and NOTADB ERR_CORRUPT, BUSY and LOCKED ERR_STORE_BUSY, failures of the
 * file ERR_IO, everything else (a constraint, a bug) ERR_INTERNAL_ERROR. what names the work. In a
 * job, ERR_IO and ERR_CORRUPT poison the store and ERR_NO_SPACE undoes the whole turn. */
int store_err(struct err *e, struct sqlite3 *db, const char *what);

#endif
