/* config_keys: the one table of configuration keys. The fields of struct config, the flags, the
 * environment names, the help text, --print-config and docs/OPERATING.md (checked by the tidy test)
 * derive from it.
 *
 * X(SYMBOL, key and field, type, default, min, max, flag, environment, help)
 *
 * Types: TEXT (min and max are its length in bytes), BYTES (a number, or "64MiB"; KiB, MiB, GiB),
 * UINT, MS (a number of milliseconds, or "30s"; ms, s, min), LEVEL (debug, info, warn, error), FLAG
 * (on, off; in the file also true and false; as a flag also --no-NAME for off). The file takes a
 * JSON number or string for BYTES and MS, a number for UINT, strings for the rest. A default is
 * written as text, in the form that flags and the environment take. */
#ifndef MAIN_CONFIG_KEYS_H
#define MAIN_CONFIG_KEYS_H

#define CONFIG_KEYS(X)                                                                             \
    X(DATA, data, TEXT, "./data", 1, 4000, "data", "TALLYMAN_DATA", "the data directory")          \
    X(LISTEN, listen, TEXT, "127.0.0.1:8080", 0, 300, "listen", "TALLYMAN_LISTEN",                 \
      "TCP address HOST:PORT or [V6]:PORT; empty: the Unix socket only")                           \
    X(TOKEN_FILE, token_file, TEXT, "", 0, 4000, "token-file", "TALLYMAN_TOKEN_FILE",              \
      "file with the bearer token that TCP clients must send")                                     \
    X(GENERATION_BYTES, generation_bytes, BYTES, "64MiB", UINT64_C(65536), UINT64_C(1073741824),   \
      "generation-bytes", "TALLYMAN_GENERATION_BYTES", "size at which a journal file is closed")   \
    X(GROUP_BYTES, group_bytes, BYTES, "4MiB", UINT64_C(65536), UINT64_C(67108864), "group-bytes", \
      "TALLYMAN_GROUP_BYTES", "size at which a group commit is closed")                            \
    X(SEAL_AFTER_GENERATIONS, seal_after_generations, UINT, "0", 0, 1000000,                       \
      "seal-after-generations", "TALLYMAN_SEAL_AFTER_GENERATIONS",                                 \
      "closed generations that stay plain, older ones are sealed; 0: only when asked")             \
    X(INDEX_MEMORY_BYTES, index_memory_bytes, BYTES, "256MiB", UINT64_C(16777216),                 \
      UINT64_C(1099511627776), "index-memory-bytes", "TALLYMAN_INDEX_MEMORY_BYTES",                \
      "memory for batch keys: filters, and keys that are not written yet")                         \
    X(CONNECTIONS_MAX, connections_max, UINT, "1024", 1, 1000000, "connections-max",               \
      "TALLYMAN_CONNECTIONS_MAX", "open client connections, more are answered 503")                \
    X(BODY_BUDGET_BYTES, body_budget_bytes, BYTES, "256MiB", UINT64_C(1048576),                    \
      UINT64_C(1099511627776), "body-budget-bytes", "TALLYMAN_BODY_BUDGET_BYTES",                  \
      "memory for request bodies, more are answered 429")                                          \
    X(REPLAY_DEFAULT_LIMIT, replay_default_limit, UINT, "1000", 1, 1000000,                        \
      "replay-default-limit", "TALLYMAN_REPLAY_DEFAULT_LIMIT",                                     \
      "events of a replay page without a limit")                                                   \
    X(REPLAY_MAX_LIMIT, replay_max_limit, UINT, "100000", 1, 1000000, "replay-max-limit",          \
      "TALLYMAN_REPLAY_MAX_LIMIT", "largest limit a replay may ask for")                           \
    X(LOG_LEVEL, log_level, LEVEL, "info", 0, 0, "log-level", "TALLYMAN_LOG_LEVEL",                \
      "least level that is logged: debug, info, warn, error")                                      \
    X(IDLE_TIMEOUT_MS, idle_timeout_ms, MS, "75s", 100, 86400000, "idle-timeout-ms",               \
      "TALLYMAN_IDLE_TIMEOUT_MS", "longest silence between two requests")                          \
    X(HEAD_TIMEOUT_MS, head_timeout_ms, MS, "10s", 100, 3600000, "head-timeout-ms",                \
      "TALLYMAN_HEAD_TIMEOUT_MS", "longest time a request head may take")                          \
    X(BODY_STALL_MS, body_stall_ms, MS, "30s", 100, 3600000, "body-stall-ms",                      \
      "TALLYMAN_BODY_STALL_MS", "longest silence inside a request body")                           \
    X(WRITE_STALL_MS, write_stall_ms, MS, "60s", 100, 3600000, "write-stall-ms",                   \
      "TALLYMAN_WRITE_STALL_MS", "longest time in which a client takes nothing of its answer")     \
    X(GRACE_MS, grace_ms, MS, "10s", 0, 3600000, "grace-ms", "TALLYMAN_GRACE_MS",                  \
      "time for open requests when the server stops")                                              \
    X(WORKERS, workers, UINT, "2", 1, 64, "workers", "TALLYMAN_WORKERS",                           \
      "threads for large bodies and replay")                                                       \
    X(QUEUE_EVENTS_MAX, queue_events_max, UINT, "10000000", 1, UINT64_C(1000000000),               \
      "queue-events-max", "TALLYMAN_QUEUE_EVENTS_MAX",                                             \
      "events that may wait for delivery; a project may hold half")                                \
    X(QUEUE_BYTES_MAX, queue_bytes_max, BYTES, "8GiB", UINT64_C(1048576), UINT64_C(1099511627776), \
      "queue-bytes-max", "TALLYMAN_QUEUE_BYTES_MAX",                                               \
      "bytes of events that may wait; a project may hold half")                                    \
    X(CAPTURE_REQUEST_BYTES, capture_request_bytes_max, BYTES, "20MiB", UINT64_C(65536),           \
      UINT64_C(268435456), "capture-request-bytes-max", "TALLYMAN_CAPTURE_REQUEST_BYTES_MAX",      \
      "largest batch of events, as sent")                                                          \
    X(CAPTURE_DECODED_BYTES, capture_decoded_bytes_max, BYTES, "64MiB", UINT64_C(65536),           \
      UINT64_C(1073741824), "capture-decoded-bytes-max", "TALLYMAN_CAPTURE_DECODED_BYTES_MAX",     \
      "largest batch of events, decompressed")                                                     \
    X(CAPTURE_SINGLE_BYTES, capture_single_bytes_max, BYTES, "1MiB", UINT64_C(65536),              \
      UINT64_C(268435456), "capture-single-bytes-max", "TALLYMAN_CAPTURE_SINGLE_BYTES_MAX",        \
      "largest request of the single-event and native routes")                                     \
    X(CAPTURE_EVENT_BYTES, capture_event_bytes_max, BYTES, "1MiB", UINT64_C(1024),                 \
      UINT64_C(67108864), "capture-event-bytes-max", "TALLYMAN_CAPTURE_EVENT_BYTES_MAX",           \
      "largest event")                                                                             \
    X(CAPTURE_BATCH_EVENTS, capture_batch_events_max, UINT, "50000", 1, 1000000,                   \
      "capture-batch-events-max", "TALLYMAN_CAPTURE_BATCH_EVENTS_MAX", "events of one batch")      \
    X(CLICKHOUSE_URL, clickhouse_url, TEXT, "", 0, 1000, "clickhouse-url",                         \
      "TALLYMAN_CLICKHOUSE_URL", "ClickHouse to deliver to; empty: the embedded engine")           \
    X(CLICKHOUSE_USER, clickhouse_user, TEXT, "", 0, 200, "clickhouse-user",                       \
      "TALLYMAN_CLICKHOUSE_USER", "the user of clickhouse_url")                                    \
    X(CLICKHOUSE_PASSWORD_FILE, clickhouse_password_file, TEXT, "", 0, 4000,                       \
      "clickhouse-password-file", "TALLYMAN_CLICKHOUSE_PASSWORD_FILE",                             \
      "file with the password of that user")                                                       \
    X(DELIVERY_BATCH_EVENTS, delivery_batch_events_max, UINT, "10000", 1, 100000,                  \
      "delivery-batch-events-max", "TALLYMAN_DELIVERY_BATCH_EVENTS_MAX", "rows of one insert")     \
    X(DELIVERY_BATCH_BYTES, delivery_batch_bytes_soft, BYTES, "16MiB", UINT64_C(65536),            \
      UINT64_C(67108864), "delivery-batch-bytes-soft", "TALLYMAN_DELIVERY_BATCH_BYTES_SOFT",       \
      "bytes of one insert; one larger event may pass")                                            \
    X(ENGINE, engine, FLAG, "on", 0, 0, "engine", "TALLYMAN_ENGINE",                               \
      "on, off: run the embedded engine when there is no clickhouse_url")                          \
    X(ENGINE_LIBRARY, engine_library, TEXT, "", 0, 4000, "engine-library",                         \
      "TALLYMAN_ENGINE_LIBRARY", "libchdb.so; empty: looked for beside the program")               \
    X(QUERY_TIME_MS, query_time_ms, MS, "10s", 10, 3600000, "query-time-ms",                       \
      "TALLYMAN_QUERY_TIME_MS", "longest time a query may take")                                   \
    X(QUERY_ROWS_MAX, query_rows_max, UINT, "100000", 1, 100000000, "query-rows-max",              \
      "TALLYMAN_QUERY_ROWS_MAX", "most rows a query may answer")                                   \
    X(QUERY_BYTES_MAX, query_bytes_max, BYTES, "32MiB", UINT64_C(1024), UINT64_C(1073741824),      \
      "query-bytes-max", "TALLYMAN_QUERY_BYTES_MAX", "largest answer of a query")                  \
    X(UPLOAD_BYTES_MAX, upload_bytes_max, BYTES, "100GiB", 1, UINT64_C(1125899906842624),          \
      "upload-bytes-max", "TALLYMAN_UPLOAD_BYTES_MAX",                                             \
      "largest file that is taken (Tus-Max-Size)")                                                 \
    X(MIN_FREE_BYTES, min_free_bytes, BYTES, "0", 0, UINT64_C(1125899906842624), "min-free-bytes", \
      "TALLYMAN_MIN_FREE_BYTES", "space left free by uploads; 0: the lesser of 5 % and 10 GiB")    \
    X(LOW_SPACE_STATUS, low_space_status, UINT, "429", 429, 503, "low-space-status",               \
      "TALLYMAN_LOW_SPACE_STATUS", "answer to uploads while space is low: 429 or 503")             \
    X(PARTIAL_UPLOAD_RETENTION_MS, partial_upload_retention_ms, MS, "30min", 1000,                 \
      UINT64_C(31536000000), "partial-upload-retention-ms",                                        \
      "TALLYMAN_PARTIAL_UPLOAD_RETENTION_MS", "silence after which a partial upload is removed")   \
    X(UPLOADS_MAX, uploads_max, UINT, "256", 1, 10000, "uploads-max", "TALLYMAN_UPLOADS_MAX",      \
      "uploads that are received at a time, more are answered 503")                                \
    X(UPLOADS_PER_ADDRESS_MAX, uploads_per_address_max, UINT, "128", 1, 10000,                     \
      "uploads-per-address-max", "TALLYMAN_UPLOADS_PER_ADDRESS_MAX",                               \
      "of these, from one client address")                                                         \
    X(UPLOAD_SHARE_PROJECT, upload_share_project, UINT, "75", 1, 100, "upload-share-project",      \
      "TALLYMAN_UPLOAD_SHARE_PROJECT",                                                             \
      "percent of the free space that a project's uploads may reserve")                            \
    X(UPLOAD_SHARE_ADDRESS, upload_share_address, UINT, "50", 1, 100, "upload-share-address",      \
      "TALLYMAN_UPLOAD_SHARE_ADDRESS", "the same of one client address")                           \
    X(ISSUER, issuer, TEXT, "", 0, 512, "issuer", "TALLYMAN_ISSUER",                               \
      "http(s) URL that receipts name, for ever; empty: http://LISTEN on loopback")                \
    X(PUBLIC_URL, public_url, TEXT, "", 0, 1000, "public-url", "TALLYMAN_PUBLIC_URL",              \
      "http(s) URL before the path of Location; empty: the path alone")                            \
    X(ARCHIVE_S3_URL, archive_s3_url, TEXT, "https://s3.us.archive.org", 1, 1000,                  \
      "archive-s3-url", "TALLYMAN_ARCHIVE_S3_URL",                                                 \
      "where files for the Internet Archive go; http: to loopback only")                           \
    X(ARCHIVE_METADATA_URL, archive_metadata_url, TEXT, "https://archive.org", 1, 1000,            \
      "archive-metadata-url", "TALLYMAN_ARCHIVE_METADATA_URL",                                     \
      "where is asked what has arrived there; the same")                                           \
    X(ARCHIVE_ANSWER_MS, archive_answer_ms, MS, "30min", 100, 86400000, "archive-answer-ms",       \
      "TALLYMAN_ARCHIVE_ANSWER_MS", "wait for the Archive's answer after the last byte of a file") \
    X(ARCHIVE_STALL_MS, archive_stall_ms, MS, "900s", 100, 86400000, "archive-stall-ms",           \
      "TALLYMAN_ARCHIVE_STALL_MS", "silence after which an upload to the Archive is given up")     \
    X(TRUSTED_PROXIES, trusted_proxies, TEXT, "", 0, 1000, "trusted-proxies",                      \
      "TALLYMAN_TRUSTED_PROXIES",                                                                  \
      "addresses whose Forwarded headers make Location, as in 127.0.0.1, 10.0.0.0/8")              \
    X(DELIVERY_CONCURRENCY, delivery_concurrency, UINT, "2", 0, 64, "delivery-concurrency",        \
      "TALLYMAN_DELIVERY_CONCURRENCY", "files that are delivered at a time; 0: none are")          \
    X(DELIVERY_UNSEEN_MS, delivery_unseen_ms, MS, "10080min", 1000, UINT64_C(31536000000),         \
      "delivery-unseen-ms", "TALLYMAN_DELIVERY_UNSEEN_MS",                                         \
      "sent and after so long still not visible there: an alarm")                                  \
    X(DELIVER, deliver, FLAG, "on", 0, 0, "deliver", "TALLYMAN_DELIVER",                           \
      "on, off: run the process that delivers artifacts")                                          \
    X(SANDBOX, sandbox, FLAG, "on", 0, 0, "sandbox", "TALLYMAN_SANDBOX",                           \
      "on, off: give up rights that are not needed (Landlock, seccomp)")

#endif
