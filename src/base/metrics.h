/* metrics: one table of counters and gauges, each one atomic, read by /metrics (Prometheus text
 * format). */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

/* X(symbol, name, type, help) */
#define METRICS_TABLE(X)                                                                           \
    X(HTTP_CONNECTIONS, "tallyman_http_connections", "gauge", "Open client connections.")          \
    X(HTTP_ACCEPTED, "tallyman_http_accepted_total", "counter", "Connections accepted.")           \
    X(HTTP_ACCEPT_ERRORS, "tallyman_http_accept_errors_total", "counter",                          \
      "Failed accepts, for want of descriptors or memory.")                                        \
    X(HTTP_REQUESTS, "tallyman_http_requests_total", "counter", "Requests answered.")              \
    X(HTTP_REFUSED, "tallyman_http_refused_total", "counter",                                      \
      "Requests that were malformed or past a limit of the HTTP front.")                           \
    X(HTTP_TIMEOUTS, "tallyman_http_timeouts_total", "counter",                                    \
      "Connections closed for slowness.")                                                          \
    X(HTTP_BODY_BYTES, "tallyman_http_body_bytes_in_flight", "gauge",                              \
      "Bytes reserved for request bodies.")                                                        \
    X(HTTP_OVERLOADED, "tallyman_http_overloaded_total", "counter",                                \
      "Requests refused because the body budget stayed full.")                                     \
    X(HTTP_THREADS, "tallyman_http_threads", "gauge", "Requests that have a thread of their own.") \
    X(HTTP_PREFLIGHTS, "tallyman_http_preflights_total", "counter",                                \
      "OPTIONS requests of web pages that were answered.")                                         \
    X(CAPTURE_POSTHOG_REQUESTS, "tallyman_capture_posthog_requests_total", "counter",              \
      "Requests with events on PostHog's routes.")                                                 \
    X(CAPTURE_POSTHOG_V1_REQUESTS, "tallyman_capture_posthog_v1_requests_total", "counter",        \
      "Requests with events on PostHog's v1 route.")                                               \
    X(CAPTURE_SEGMENT_REQUESTS, "tallyman_capture_segment_requests_total", "counter",              \
      "Requests with events on Segment's routes.")                                                 \
    X(CAPTURE_NATIVE_REQUESTS, "tallyman_capture_native_requests_total", "counter",                \
      "Requests with events on the native route.")                                                 \
    X(CAPTURE_EVENTS, "tallyman_capture_events_total", "counter", "Events accepted and stored.")   \
    X(CAPTURE_REPEATS, "tallyman_capture_repeats_total", "counter",                                \
      "Events that were known before and answered with their first receipt.")                      \
    X(CAPTURE_REJECTED, "tallyman_capture_rejected_total", "counter",                              \
      "Bad events of requests that were taken otherwise.")                                         \
    X(CAPTURE_REFUSED, "tallyman_capture_refused_total", "counter",                                \
      "Requests with events that were refused whole.")                                             \
    X(CAPTURE_QUEUE_FULL, "tallyman_capture_queue_full_total", "counter",                          \
      "Of the refused ones: because a budget of the queue was spent.")                             \
    X(JOURNAL_EVENTS, "tallyman_journal_events", "gauge", "Committed events.")                     \
    X(JOURNAL_BYTES, "tallyman_journal_bytes", "gauge", "Bytes of committed lines.")               \
    X(JOURNAL_GENERATIONS, "tallyman_journal_generations", "gauge", "Generations, the tail too.")  \
    X(JOURNAL_BATCHES, "tallyman_journal_batches_total", "counter", "Batches committed.")          \
    X(JOURNAL_DUPLICATES, "tallyman_journal_duplicates_total", "counter",                          \
      "Batches answered with their original receipt.")                                             \
    X(JOURNAL_CONFLICTS, "tallyman_journal_conflicts_total", "counter", "Batches refused by 409.") \
    X(JOURNAL_GROUPS, "tallyman_journal_groups_total", "counter", "Group commits.")                \
    X(JOURNAL_SYNCS, "tallyman_journal_syncs_total", "counter", "Syncs of the tail.")              \
    X(JOURNAL_ROTATIONS, "tallyman_journal_rotations_total", "counter", "Generations closed.")     \
    X(JOURNAL_POISONED, "tallyman_journal_poisoned", "gauge",                                      \
      "1 when a write or sync failed: no acknowledgement until a restart.")                        \
    X(JOURNAL_NO_SPACE, "tallyman_journal_no_space", "gauge", "1 while intake waits for space.")   \
    X(JOURNAL_CLOCK_AHEAD_MS, "tallyman_journal_clock_ahead_ms", "gauge",                          \
      "How far the last event id's time is ahead of the clock.")                                   \
    X(JOURNAL_SEGMENTS, "tallyman_journal_segments", "gauge", "Sealed generations.")               \
    X(JOURNAL_SEGMENT_PLAIN_BYTES, "tallyman_journal_segment_plain_bytes", "gauge",                \
      "Bytes of the lines in sealed generations.")                                                 \
    X(JOURNAL_SEGMENT_BYTES, "tallyman_journal_segment_bytes", "gauge",                            \
      "Bytes of the files of sealed generations.")                                                 \
    X(JOURNAL_SEALS, "tallyman_journal_seals_total", "counter", "Generations sealed.")             \
    X(JOURNAL_SEAL_FAILURES, "tallyman_journal_seal_failures_total", "counter",                    \
      "Attempts to seal a generation that failed; it stays as it is.")                             \
    X(JOURNAL_CORRUPT_READS, "tallyman_journal_corrupt_reads_total", "counter",                    \
      "Reads of a generation refused because its bytes do not have their checksum.")               \
    X(HISTORY_FOLLOWERS, "tallyman_history_followers", "gauge", "Open follow requests.")           \
    X(HISTORY_FOLLOW_READS, "tallyman_history_follow_reads_total", "counter",                      \
      "Pieces that workers read from the files for followers behind the end.")                     \
    X(INDEX_RUNS, "tallyman_index_runs", "gauge", "Sorted runs of batch keys.")                    \
    X(INDEX_MEMORY, "tallyman_index_memory_bytes", "gauge",                                        \
      "Memory of fences and filters of runs.")                                                     \
    X(INDEX_GENERATIONS_MISSING, "tallyman_index_generations_missing", "gauge",                    \
      "Closed generations to be indexed before appends are taken.")                                \
    X(JOURNAL_GENERATIONS_SKIPPED, "tallyman_journal_generations_skipped_total", "counter",        \
      "Closed generations that filtered readings did not have to look at.")                        \
    X(INDEX_FAILURES, "tallyman_index_failures_total", "counter",                                  \
      "Index files that could not be written or read; they are rebuilt.")                          \
    X(STORE_QUEUE_EVENTS, "tallyman_queue_events", "gauge",                                        \
      "Accepted events that wait for delivery, quarantined ones too.")                             \
    X(STORE_QUEUE_BYTES, "tallyman_queue_bytes", "gauge", "Bytes of their texts.")                 \
    X(STORE_QUARANTINED, "tallyman_queue_quarantined", "gauge",                                    \
      "Events set aside until somebody repairs or retries them.")                                  \
    X(STORE_RECEIPTS, "tallyman_store_receipts", "gauge", "Known (project, uuid) pairs.")          \
    X(STORE_WAL_BYTES, "tallyman_store_wal_bytes", "gauge", "Bytes in the write-ahead log.")       \
    X(STORE_COMMITS, "tallyman_store_commits_total", "counter",                                    \
      "Transactions committed, each with one sync of the write-ahead log.")                        \
    X(STORE_CHECKPOINTS, "tallyman_store_checkpoints_total", "counter",                            \
      "Passes that moved the write-ahead log into the database.")                                  \
    X(STORE_POISONED, "tallyman_store_poisoned", "gauge",                                          \
      "1 when a write or sync failed: no acknowledgement until a restart.")                        \
    X(STORE_NO_SPACE, "tallyman_store_no_space", "gauge", "1 while intake waits for space.")       \
    X(SINK_CONNECTED, "tallyman_sink_connected", "gauge",                                          \
      "1 when the last try of the destination succeeded.")                                         \
    X(SINK_DELIVERED, "tallyman_sink_delivered_total", "counter", "Events delivered, proven.")     \
    X(SINK_BATCHES, "tallyman_sink_batches_total", "counter", "Batches delivered.")                \
    X(SINK_FAILURES, "tallyman_sink_failures_total", "counter",                                    \
      "Tries that failed or were refused; the events stay queued.")                                \
    X(SINK_DAMAGED, "tallyman_sink_damaged_total", "counter",                                      \
      "Events whose text was no JSON any more when it was sent: delivered in raw.")                \
    X(ARTIFACT_WRITERS, "tallyman_artifact_uploads_receiving", "gauge",                            \
      "Uploads that are receiving bytes now.")                                                     \
    X(ARTIFACT_PARTIAL, "tallyman_artifact_uploads_partial", "gauge",                              \
      "Uploads without a receipt, at the last look.")                                              \
    X(ARTIFACT_PARTIAL_BYTES, "tallyman_artifact_uploads_partial_bytes", "gauge",                  \
      "Bytes of those.")                                                                           \
    X(ARTIFACT_CREATED, "tallyman_artifact_created_total", "counter", "Uploads created.")          \
    X(ARTIFACT_RESUMED, "tallyman_artifact_resumed_total", "counter",                              \
      "Bodies taken from an offset above 0.")                                                      \
    X(ARTIFACT_BYTES, "tallyman_artifact_received_bytes_total", "counter",                         \
      "Bytes of uploads that were received.")                                                      \
    X(ARTIFACT_ACCEPTED, "tallyman_artifact_accepted_total", "counter",                            \
      "Uploads accepted: a receipt was synced.")                                                   \
    X(ARTIFACT_MISMATCHES, "tallyman_artifact_mismatches_total", "counter",                        \
      "Uploads refused because their bytes have another digest than declared.")                    \
    X(ARTIFACT_UNFIT, "tallyman_artifact_unfit_requests_total", "counter",                         \
      "Requests whose body was not what their Upload-Checksum declared.")                          \
    X(ARTIFACT_TERMINATED, "tallyman_artifact_terminated_total", "counter",                        \
      "Uploads that their clients terminated.")                                                    \
    X(ARTIFACT_BURSTS, "tallyman_artifact_proxy_bursts_total", "counter",                          \
      "Requests through a proxy whose first 16 MiB came at once: it may hold requests back.")      \
    X(ARTIFACT_LOW_SPACE, "tallyman_artifact_low_space_total", "counter",                          \
      "Requests refused because the file system is nearly full.")                                  \
    X(ARTIFACT_RESERVED, "tallyman_artifact_reserved_bytes", "gauge",                              \
      "Bytes promised to uploads that are under way.")                                             \
    X(ARTIFACT_TAKEOVERS, "tallyman_artifact_takeovers_total", "counter",                          \
      "Silent or slow writers that were ended for a newcomer.")                                    \
    X(ARTIFACT_EXPIRED, "tallyman_artifact_expired_total", "counter",                              \
      "Uploads without a receipt that were removed after their time.")                             \
    X(ARTIFACT_FAILURES, "tallyman_artifact_failures_total", "counter",                            \
      "Failed writes, syncs and acceptances of uploads.")

enum metric {
#define X(sym, name, type, help) METRIC_##sym,
    METRICS_TABLE(X)
#undef X
        METRIC_COUNT
};

extern _Atomic uint64_t metrics_value[METRIC_COUNT];

static inline void metric_add(enum metric m, uint64_t n)
{
    atomic_fetch_add_explicit(&metrics_value[m], n, memory_order_relaxed);
}

static inline void metric_sub(enum metric m, uint64_t n)
{
    atomic_fetch_sub_explicit(&metrics_value[m], n, memory_order_relaxed);
}

static inline void metric_set(enum metric m, uint64_t v)
{
    atomic_store_explicit(&metrics_value[m], v, memory_order_relaxed);
}

static inline uint64_t metric_get(enum metric m)
{
    return atomic_load_explicit(&metrics_value[m], memory_order_relaxed);
}

/* Appends HELP, TYPE and value of every metric. */
void metrics_text(struct buf *out);

#endif
