/* What the files of the sink runner share.
 *
 * Locking: `lock` guards what says so; it is a leaf, nothing is called under it. Records are made,
 * posted again and freed on the sink's thread, submitted and finished on the loop's. */
#ifndef SINK_RUNNER_INTERNAL_H
#define SINK_RUNNER_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "sink/sink.h"

#define BATCH_SMALL     100 /* rows, after a rejection */
#define BATCH_TRIES_MAX 5   /* of one frozen batch; then the next ones have their turn */
#define SMALLER_TRIES   3   /* failures before a batch is made smaller, if the reason may pass */
#define PIPELINE_MAX    64  /* batches, before one waits for all records: then old rows are seen */
#define RECORDS_MAX     4   /* batches that are delivered but not yet recorded */
#define GATHER_MS       150
#define IDLE_MS         30000
#define RECORD_RETRY_MS 1000

enum record_state {
    RECORD_NEW,
    RECORD_POSTED,    /* to the loop, which has not seen it */
    RECORD_SUBMITTED, /* the store has the job */
    RECORD_DONE,      /* committed */
    RECORD_FAILED     /* undone: post again at retry_ns */
};

/* Delivered events on their way into the queue's books, or only a cursor (count 0). */
struct record {
    struct store_job job; /* first */
    TAILQ_ENTRY(record) link;
    struct sink *k;
    enum record_state state; /* under lock */
    bool posted;             /* the loop's list still points here; under lock */
    bool orphan;             /* the sink is gone: the posted call frees it; under lock */
    uint64_t retry_ns;       /* under lock */
    size_t at, slice;        /* loop thread: committed, and in the slice under way */
    bool has_cursor;
    struct queue_cursor cursor;
    size_t count;
    int64_t ids[]; /* ascending */
};

/* Up to which id a project's rows are on their way into the books, or were when somebody looked. */
struct flight {
    struct queue_cursor *last; /* by project */
    size_t count, cap;
};
TAILQ_HEAD(record_list, record);

/* A project whose rows were refused: it is sent alone, on its own schedule, until it has no rows
 * left. */
struct solo {
    int64_t project;
    int64_t after_id; /* its own position, moved on by every batch */
    uint64_t due_ns;
    unsigned failures;
    uint32_t limit;
    char error[200]; /* under lock */
};

/* The rows that are being delivered, frozen: same rows, order and bytes for every try. */
struct batch {
    struct queue_rows rows; /* grouped by project */
    struct buf body;        /* kept from batch to batch */
    int64_t solo;           /* the only project, or 0 */
    unsigned tries;
    bool frozen;
};

struct sink {
    struct sink_options options;
    const struct sink_adapter *adapter;
    void *ctx;
    struct store *store;
    struct http_server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    atomic_bool stop;
    atomic_bool woken;

    /* under lock */
    bool retry_now;
    bool poisoned;
    bool paused;
    struct record_list records;
    size_t record_count;
    struct sink_status status;
    uint64_t retry_at_ns;   /* for status: 0 while the destination works */
    char warning[200];      /* of the destination, while it works */
    char record_error[200]; /* why deliveries are not recorded */
    struct solo *solo;      /* by project; the sink's thread alone changes the list */
    size_t solo_count, solo_cap;

    /* sink's thread only */
    struct store_reader *reader;
    struct queue_cursor from;
    uint32_t limit, limit_max;
    struct flight flight;
    unsigned in_a_row;  /* batches since nothing was on its way */
    unsigned successes; /* since limit_max was lowered or raised */
    unsigned failures;  /* of the destination, in a row */
    uint64_t due_ns;    /* no try before */
    uint64_t selected_ns;
    bool prepared, last_full, solo_turn;
    struct batch batch;
};

/* ---- runner.c ---- */
void sink_lock(struct sink *k);
void sink_unlock(struct sink *k);
bool sink_stopping(struct sink *k);
/* What ends a wait early, besides the end of the sink. */
enum sink_wait { WAIT_PLAIN = 0, WAIT_WAKE = 1, WAIT_RECORDS = 2, WAIT_RETRY = 4 };
void sink_wait_until(struct sink *k, uint64_t until_ns, unsigned what);
uint64_t sink_backoff_ns(const struct sink *k, unsigned failures);
/* The destination failed, or works. */
void sink_note_failure(struct sink *k, const struct sink_result *r);
/* The wait that was set is only the first step of the backoff. */
void sink_wait_least(struct sink *k);
void sink_note_success(struct sink *k, size_t rows);

/* ---- runner_record.c ---- */
struct record *record_new(struct sink *k, const struct queue_row *row, size_t count);
/* Takes the record: it will be recorded, or the sink ends. */
void record_take(struct sink *k, struct record *rec, const struct queue_cursor *cursor);
/* Frees what is recorded, posts again what failed. True when nothing is on its way. */
bool records_reap(struct sink *k);
/* Waits until another record fits. False: the sink ends. */
bool records_wait_room(struct sink *k);
bool records_have(struct sink *k, int64_t id);
/* Adds rows, grouped by project, to what is on its way. Without memory the selection merely reads
 * rows that are then dropped. */
void flight_add(struct flight *f, const struct queue_row *row, size_t count);
/* Loop thread, after the sink's thread has ended: finishes the jobs. */
void records_finish(struct sink *k);

/* ---- runner_batch.c ---- */
enum batch_next { BATCH_READY, BATCH_NONE, BATCH_WAIT, BATCH_ERROR };
/* Selects and freezes the next batch. */
enum batch_next batch_next(struct sink *k);
void batch_thaw(struct sink *k);

/* ---- runner_send.c ---- */
/* One try of the frozen batch, and what follows from it. */
void batch_send(struct sink *k);

/* ---- runner_solo.c ---- */
/* Index of the project, or where it would be; *found. */
size_t solo_find(const struct sink *k, int64_t project, bool *found);
/* Its rows were refused: its own backoff begins or grows. False: no memory. */
bool solo_refused(struct sink *k, int64_t project, int64_t after_id, const char *why);
/* It is sent alone from now on, and may be so at once. False: no memory. */
bool solo_add(struct sink *k, int64_t project);
/* Its next batches have at most so many rows. */
void solo_set_limit(struct sink *k, int64_t project, uint32_t limit);
void solo_delivered(struct sink *k, int64_t project, int64_t after_id);
void solo_remove(struct sink *k, size_t i);
/* The next that is due: index, or SIZE_MAX. */
size_t solo_due(const struct sink *k, uint64_t now_ns);
/* When the first is due; UINT64_MAX: none. */
uint64_t solo_next_ns(const struct sink *k);

#endif
