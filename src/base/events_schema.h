/* events_schema: the ClickHouse table and the current-state view, once, for the sink that fills
 * them and the engine that makes them (spec/capture-delivery.md, decisions: given there, word for
 * word). */
#ifndef BASE_EVENTS_SCHEMA_H
#define BASE_EVENTS_SCHEMA_H

/* X(column, type and codec) in table order. */
#define EVENTS_COLUMNS(X)                                \
    X("project", "LowCardinality(String)")               \
    X("uuid", "UUID")                                    \
    X("revision", "UInt64")                              \
    X("is_deleted", "UInt8")                             \
    X("event_id", "UInt64")                              \
    X("received_at", "DateTime64(3,'UTC')")              \
    X("timestamp", "DateTime64(6,'UTC')")                \
    X("timestamp_sent", "Nullable(DateTime64(6,'UTC'))") \
    X("sent_at", "Nullable(DateTime64(3,'UTC'))")        \
    X("time_note", "LowCardinality(String)")             \
    X("type", "LowCardinality(String)")                  \
    X("event", "LowCardinality(String)")                 \
    X("distinct_id", "String")                           \
    X("anonymous_id", "String")                          \
    X("session_id", "String")                            \
    X("source", "LowCardinality(String)")                \
    X("message_id", "String")                            \
    X("library", "LowCardinality(String)")               \
    X("library_version", "LowCardinality(String)")       \
    X("properties", "String CODEC(ZSTD(1))")             \
    X("context", "String CODEC(ZSTD(1))")                \
    X("raw", "String CODEC(ZSTD(1))")                    \
    X("original", "String CODEC(ZSTD(1))")               \
    X("corrected_at", "Nullable(DateTime64(3,'UTC'))")

/* Behind the columns: indexes, constraints, engine, settings. */
#define EVENTS_TABLE_TAIL                                                                     \
    "INDEX i_time timestamp TYPE minmax GRANULARITY 1, "                                      \
    "INDEX i_who distinct_id TYPE bloom_filter(0.01) GRANULARITY 4, "                         \
    "CONSTRAINT c_deleted CHECK is_deleted <= 1, "                                            \
    "CONSTRAINT c_original CHECK revision > 0 OR (is_deleted = 0 AND original = '')"          \
    ") ENGINE = ReplacingMergeTree(revision, is_deleted) PARTITION BY toYYYYMM(received_at) " \
    "ORDER BY (project, uuid) SETTINGS fsync_after_insert = 1, fsync_part_directory = 1, "    \
    "min_rows_to_fsync_after_merge = 1, min_compressed_bytes_to_fsync_after_merge = 1, "      \
    "old_parts_lifetime = 480"

/* What the view shows, in its order. */
#define EVENTS_VIEW_COLUMNS                                                                \
    "project, uuid, event_id, revision, received_at, timestamp, timestamp_sent, sent_at, " \
    "time_note, type, event, distinct_id, anonymous_id, session_id, source, message_id, "  \
    "library, library_version, properties, context, corrected_at"

#define EVENTS_DATABASE "tallyman"
#define EVENTS_TABLE    "events_v2"

#endif
