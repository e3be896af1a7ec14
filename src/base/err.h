/* err: the one table of error codes, and the detail that travels beside a code.
 *
 * Fallible functions return 0 or a negative ERR_ code. Detail (a message for people, errno, byte
 * position) is written to a small struct the caller owns. Codes with an HTTP status are answers to
 * clients; their names are those of spec/history.md section 10 and never change. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

/* X(symbol, name on the wire and in logs, HTTP status or 0, retryable by the client, log level) */
#define ERR_TABLE(X)                                                                           \
    /* answers of the history door */                                                          \
    X(INVALID_REQUEST, "invalid_request", 400, false, LOG_DEBUG)                               \
    X(INVALID_BATCH, "invalid_batch", 400, false, LOG_DEBUG)                                   \
    X(INVALID_EVENTS, "invalid_events", 400, false, LOG_DEBUG)                                 \
    X(INVALID_SOURCE_RETIREMENT, "invalid_source_retirement", 400, false, LOG_DEBUG)           \
    X(INVALID_SOURCE_LINEAGE, "invalid_source_lineage", 400, false, LOG_DEBUG)                 \
    X(INVALID_REPLAY_REQUEST, "invalid_replay_request", 400, false, LOG_DEBUG)                 \
    X(INVALID_STREAMS_REQUEST, "invalid_streams_request", 400, false, LOG_DEBUG)               \
    X(STREAM_ANCHOR_UNAVAILABLE, "stream_anchor_unavailable", 400, false, LOG_DEBUG)           \
    X(UNAUTHORIZED, "unauthorized", 401, false, LOG_DEBUG)                                     \
    X(NOT_FOUND, "not_found", 404, false, LOG_DEBUG)                                           \
    X(SOURCE_NOT_FOUND, "source_not_found", 404, false, LOG_DEBUG)                             \
    X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, false, LOG_DEBUG)                         \
    X(BATCH_ID_CONFLICT, "batch_id_conflict", 409, false, LOG_DEBUG)                           \
    X(SOURCE_RETIRED, "source_retired", 409, false, LOG_DEBUG)                                 \
    X(SOURCE_LINEAGE_CONFLICT, "source_lineage_conflict", 409, false, LOG_DEBUG)               \
    X(STREAM_FRONTIER_CONFLICT, "stream_frontier_conflict", 409, false, LOG_DEBUG)             \
    X(BODY_TOO_LARGE, "body_too_large", 413, false, LOG_DEBUG)                                 \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, false, LOG_DEBUG)                 \
    X(OVERLOADED, "overloaded", 429, true, LOG_INFO)                                           \
    X(INTERNAL_ERROR, "internal_error", 500, false, LOG_ERROR)                                 \
    X(WRITER_POISONED, "writer_poisoned", 503, true, LOG_ERROR)                                \
    /* answers of the HTTP front, before any door (no contract names them) */                  \
    X(BAD_REQUEST, "bad_request", 400, false, LOG_DEBUG)                                       \
    X(REQUEST_TIMEOUT, "request_timeout", 408, true, LOG_DEBUG)                                \
    X(URI_TOO_LONG, "uri_too_long", 414, false, LOG_DEBUG)                                     \
    X(EXPECTATION_FAILED, "expectation_failed", 417, false, LOG_DEBUG)                         \
    X(HEADERS_TOO_LARGE, "headers_too_large", 431, false, LOG_DEBUG)                           \
    X(NOT_IMPLEMENTED, "not_implemented", 501, false, LOG_DEBUG)                               \
    X(VERSION_NOT_SUPPORTED, "version_not_supported", 505, false, LOG_DEBUG)                   \
    /* answers of the capture door and of the management API */                                \
    X(INVALID_ENCODING, "invalid_encoding", 400, false, LOG_DEBUG)                             \
    X(INVALID_JSON, "invalid_json", 400, false, LOG_DEBUG)                                     \
    X(INVALID_EVENT, "invalid_event", 400, false, LOG_DEBUG)                                   \
    X(INVALID_PROJECT, "invalid_project", 400, false, LOG_DEBUG)                               \
    X(INVALID_KEY, "invalid_key", 400, false, LOG_DEBUG)                                       \
    X(INVALID_QUERY, "invalid_query", 400, false, LOG_DEBUG)                                   \
    X(FORBIDDEN, "forbidden", 403, false, LOG_DEBUG)                                           \
    X(PROJECT_EXISTS, "project_exists", 409, false, LOG_DEBUG)                                 \
    X(TOO_MANY_EVENTS, "too_many_events", 413, false, LOG_DEBUG)                               \
    X(QUERY_LIMIT, "query_limit", 422, false, LOG_DEBUG)                                       \
    X(QUEUE_FULL, "queue_full", 503, true, LOG_WARN)                                           \
    X(STORE_POISONED, "store_poisoned", 503, true, LOG_ERROR)                                  \
    X(STORE_BUSY, "store_busy", 503, true, LOG_WARN)                                           \
    X(ENGINE_UNAVAILABLE, "engine_unavailable", 503, true, LOG_INFO)                           \
    /* answers of the artifact door; on /files/ as ERR_ and the name in capitals (tus.md 6) */ \
    X(INVALID_SIZE, "invalid_size", 400, false, LOG_DEBUG)                                     \
    X(INVALID_CHECKSUM, "invalid_checksum", 400, false, LOG_DEBUG)                             \
    X(INVALID_METADATA, "invalid_metadata", 400, false, LOG_DEBUG)                             \
    X(INVALID_UPLOAD_LENGTH, "invalid_upload_length", 400, false, LOG_DEBUG)                   \
    X(INVALID_OFFSET, "invalid_offset", 400, false, LOG_DEBUG)                                 \
    X(CONCATENATION_UNSUPPORTED, "concatenation_unsupported", 400, false, LOG_DEBUG)           \
    X(UPLOAD_INTERRUPTED, "upload_interrupted", 400, true, LOG_DEBUG)                          \
    X(INVALID_UPLOAD_CHECKSUM, "invalid_upload_checksum", 400, false, LOG_DEBUG)               \
    X(UPLOAD_ACCEPTED, "upload_accepted", 403, false, LOG_DEBUG)                               \
    X(UPLOAD_NOT_FOUND, "upload_not_found", 404, false, LOG_DEBUG)                             \
    X(MISMATCHED_OFFSET, "mismatched_offset", 409, true, LOG_DEBUG)                            \
    X(NOT_ACCEPTED, "not_accepted", 409, true, LOG_DEBUG)                                      \
    X(GONE, "gone", 410, false, LOG_DEBUG)                                                     \
    X(UNSUPPORTED_VERSION, "unsupported_version", 412, false, LOG_DEBUG)                       \
    X(MAX_SIZE_EXCEEDED, "max_size_exceeded", 413, false, LOG_DEBUG)                           \
    X(UPLOAD_SIZE_EXCEEDED, "upload_size_exceeded", 413, false, LOG_DEBUG)                     \
    X(INVALID_CONTENT_TYPE, "invalid_content_type", 415, false, LOG_DEBUG)                     \
    X(CHECKSUM_MISMATCH, "checksum_mismatch", 422, false, LOG_WARN)                            \
    X(UPLOAD_CHECKSUM_MISMATCH, "upload_checksum_mismatch", 460, true, LOG_INFO)               \
    X(LOW_SPACE, "low_space", 429, true, LOG_WARN)                                             \
    X(ACCEPT_FAILED, "accept_failed", 500, true, LOG_ERROR)                                    \
    X(SERVER_SHUTDOWN, "server_shutdown", 503, true, LOG_INFO)                                 \
    X(UPLOADS_BUSY, "uploads_busy", 503, true, LOG_INFO)                                       \
    X(NO_ISSUER, "no_issuer", 503, false, LOG_WARN)                                            \
    /* inside the process */                                                                   \
    X(IO, "io_error", 0, false, LOG_ERROR)                                                     \
    X(NO_SPACE, "no_space", 0, true, LOG_WARN)                                                 \
    X(NO_MEMORY, "no_memory", 0, true, LOG_ERROR)                                              \
    X(CORRUPT, "corrupt", 0, false, LOG_ERROR)                                                 \
    X(LOCKED, "locked", 0, false, LOG_ERROR)                                                   \
    X(UNSUPPORTED, "unsupported_format", 0, false, LOG_ERROR)                                  \
    X(GROUP_FULL, "group_full", 0, true, LOG_DEBUG)                                            \
    X(NOT_READY, "not_ready", 0, true, LOG_INFO)                                               \
    X(USAGE, "usage", 0, false, LOG_ERROR)                                                     \
    X(JSON, "json_error", 0, false, LOG_DEBUG)                                                 \
    X(JSON_DEPTH, "json_depth", 0, false, LOG_DEBUG)                                           \
    X(CONNECT, "connect_failed", 0, true, LOG_ERROR)                                           \
    X(REFUSED, "refused", 0, false, LOG_ERROR)

enum err_index {
#define X(sym, name, status, retry, level) ERR_INDEX_##sym,
    ERR_TABLE(X)
#undef X
        ERR_INDEX_COUNT
};

enum err_code {
    ERR_OK = 0,
#define X(sym, name, status, retry, level) ERR_##sym = -1 - (int)ERR_INDEX_##sym,
    ERR_TABLE(X)
#undef X
};

#define MUST_CHECK __attribute__((warn_unused_result))

struct err {
    int code;        /* ERR_ code, 0 when nothing happened */
    int os_errno;    /* positive errno, 0 when no system call failed */
    bool has_offset; /* offset says where in the input or file */
    uint64_t offset; /* bytes from its start */
    char text[320];  /* for people; never holds secrets */
};

/* Fills *e (may be NULL) and returns code, so that `return err_set(e, ERR_X, "...")` reads well. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with a byte offset. */
int err_set_at(struct err *e, int code, uint64_t offset, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* For a failed system call: os_result is the negative errno it returned. ENOSPC and EDQUOT give
 * ERR_NO_SPACE, ENOMEM gives ERR_NO_MEMORY, everything else ERR_IO. what names the call, path the
 * file. */
int err_os(struct err *e, int os_result, const char *what, const char *path);

const char *err_name(int code); /* "ok" for 0 */
unsigned err_status(int code);  /* HTTP status, 500 for codes without one */
bool err_retryable(int code);
int err_level(int code); /* enum log_level of base/log.h */

#endif
