/* sink: one destination with a thread, a schedule and a state of its own (ARCHITECTURE section 5).
 *
 * The runner selects a batch from the queue, freezes it (the same rows, in the same order, as the
 * same bytes, for every try), gives it to the adapter, and acts on the verdict: DELIVERED is
 * recorded by jobs on the loop's connection (slices of QUEUE_SLICE), RETRY and UNKNOWN send the
 * same bytes again after 1 s, 2 s, ... 30 s, REJECTED sends each project's rows alone, so that a
 * project whose rows are refused waits for its own retry and nobody else's. The selection's
 * position is stored and moves on after a failed batch. Restart at any point: what was not
 * recorded is sent again, with the same revision, id and receipt time; the far side's replacing key
 * makes that harmless.
 *
 * Threads: sink_start, sink_stop, sink_wake, sink_retry_now, sink_get_status and
 * sink_project_error from the loop thread; the adapter is called on the sink's thread only. */
#ifndef SINK_SINK_H
#define SINK_SINK_H

#include <stdatomic.h>

#include "http/http.h"
#include "store/queue.h"

enum sink_verdict {
    SINK_DELIVERED, /* proven */
    SINK_RETRY,     /* certainly not taken: again, not before retry_ms */
    SINK_REJECTED,  /* the far side refuses these rows (code) */
    SINK_UNKNOWN    /* may have been taken: the same bytes again */
};

struct sink_result {
    enum sink_verdict verdict;
    uint64_t retry_ms; /* 0: the runner's own backoff */
    int code;          /* the far side's own number, 0: none */
    bool prepare;      /* the destination may have changed: prepare before the next send */
    bool smaller;      /* RETRY: fewer rows at a time may pass */
    char text[200];    /* for status and log; no payloads, no secrets. With DELIVERED of prepare: a
                          warning */
};

struct sink_adapter {
    const char *name; /* "clickhouse" */
    /* Appends the batch in the far side's form. Called once a batch. */
    int (*encode)(void *ctx, const struct queue_rows *rows, size_t first, size_t count,
                  struct buf *out, struct err *e);
    /* Makes the destination ready (tables, checks); called before the first send and after failures
     * that say so. SINK_DELIVERED: ready. */
    void (*prepare)(void *ctx, const atomic_bool *cancel, struct sink_result *result);
    /* Sends one encoded batch. Blocks, at most about two minutes; looks at *cancel. */
    void (*send)(void *ctx, struct slice body, size_t count, const atomic_bool *cancel,
                 struct sink_result *result);
};

struct sink_options {
    const char *data;
    uint32_t batch_events_max;               /* 10,000 */
    uint64_t batch_bytes_soft;               /* 16 MiB */
    uint64_t backoff_min_ms, backoff_max_ms; /* 1 s, 30 s */
    uint64_t gather_ms; /* how long a batch that is not full waits for more (0: 150 ms) */
    bool paused;        /* from the start, until sink_pause says otherwise */
};

struct sink;
int sink_start(const struct sink_options *options, const struct sink_adapter *adapter, void *ctx,
               struct store *store, struct http_server *server, struct sink **out,
               struct err *e) MUST_CHECK;
/* Ends the thread; a send under way is cancelled. Jobs it left with the store are finished first:
 * call while the loop can still run turns, or after the last. */
void sink_stop(struct sink *k);
/* New events were committed. Cheap: called after every commit. */
void sink_wake(struct sink *k);
/* The destination came back (the engine was started): the next try is now, whatever the backoff. */
void sink_retry_now(struct sink *k);

/* While paused nothing is begun towards the destination, preparations neither; a send that is under
 * way ends, and is recorded. Nothing durable: who starts the sink knows (store/paused.h). */
void sink_pause(struct sink *k, bool paused);

struct sink_status {
    bool paused;
    bool connected;                        /* the last try succeeded */
    uint64_t delivered, batches, failures; /* since start */
    uint64_t retry_in_ms;
    char error[200]; /* of the whole destination; "" */
};
void sink_get_status(struct sink *k, struct sink_status *out);
/* Why this project's rows do not go out now: "" when they do. */
void sink_project_error(struct sink *k, int64_t project, char out[200]);

#endif
