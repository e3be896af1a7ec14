/* reader: the read-only connection of one other thread, with its prepared statements. */
#ifndef STORE_READER_H
#define STORE_READER_H

#include "store/db.h"

#define READER_STATEMENTS(X)                                                                   \
    X(NEXT_PROJECT, "SELECT project FROM delivery_ready WHERE project > ?1"                    \
                    " ORDER BY project LIMIT 1")                                               \
    X(PROJECT_NAME, "SELECT name FROM projects WHERE id = ?1")                                 \
    X(ROWS, "SELECT e.id, e.uuid, e.received_ms, e.timestamp_us, e.timestamp_sent_us,"         \
            " e.sent_at_ms, e.time_note, e.type, e.event, e.distinct_id, e.anonymous_id,"      \
            " e.session_id, e.source, e.message_id, e.library, e.library_version, e.envelope," \
            " e.text FROM delivery_ready r CROSS JOIN events e ON e.id = r.id"                 \
            " WHERE r.project = ?1 AND r.id > ?2 AND r.id <= ?3 ORDER BY r.id LIMIT ?4")       \
    X(CURSOR, "SELECT project, after_id FROM delivery_cursor WHERE one = 1")                   \
    X(COUNTERS, "SELECT pending_events, pending_bytes, quarantined, rejected, rejected_kept"   \
                " FROM project_counters WHERE project = ?1")                                   \
    X(SUCCESS, "SELECT last_success_ms FROM delivery_state WHERE project = ?1")                \
    X(OLDEST, "SELECT received_ms FROM events WHERE id = (SELECT min(id) FROM ("               \
              "SELECT * FROM (SELECT id FROM delivery_ready WHERE project = ?1"                \
              " ORDER BY id LIMIT 1) UNION ALL"                                                \
              " SELECT * FROM (SELECT event_id FROM delivery_quarantine WHERE project = ?1"    \
              " ORDER BY event_id LIMIT 1)))")                                                 \
    X(REJECTED, "SELECT id, received_ms, position, door, reason, text FROM rejected"           \
                " WHERE project = ?1 AND id > ?2 ORDER BY id LIMIT ?3")                        \
    X(BEGIN, "BEGIN")                                                                          \
    X(END, "COMMIT")

enum reader_statement {
#define X(sym, text) READ_##sym,
    READER_STATEMENTS(X)
#undef X
        READ_COUNT
};

struct store_reader {
    struct sqlite3 *db;
    struct sqlite3_stmt *st[READ_COUNT];
};

/* One snapshot over several statements; give it up soon: it keeps checkpoints from ending. */
int reader_begin(struct store_reader *r, struct err *e) MUST_CHECK;
void reader_end(struct store_reader *r);

#endif
