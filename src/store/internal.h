/* internal: what the files of store/ share about an open store. Loop thread only, but for the
 * checkpointer's fields behind its lock. */
#ifndef STORE_INTERNAL_H
#define STORE_INTERNAL_H

#include <pthread.h>

#include "store/account.h"
#include "store/checkpoint.h"
#include "store/control.h"
#include "store/db.h"
#include "store/queue.h"
#include "store/receipts.h"
#include "store/store.h"

/* X(symbol, text): the statements of the write connection, kept prepared. EVENT_ADD says OR FAIL,
 * not the usual ABORT: for a statement with a trigger, ABORT keeps copies of every page it changes,
 * to undo it alone; here the job's savepoint undoes it. */
#define STORE_STATEMENTS(X)                                                                      \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                  \
    X(COMMIT, "COMMIT")                                                                          \
    X(ROLLBACK, "ROLLBACK")                                                                      \
    X(SAVEPOINT, "SAVEPOINT job")                                                                \
    X(RELEASE, "RELEASE job")                                                                    \
    X(ROLLBACK_TO, "ROLLBACK TO job")                                                            \
    X(NEXT_ID, "UPDATE meta SET value = ?1 WHERE name = 'next_event_id'")                        \
    X(EVENT_ADD,                                                                                 \
      "INSERT OR FAIL INTO events(id, project, uuid, received_ms, timestamp_us,"                 \
      " timestamp_sent_us, sent_at_ms, time_note, type, event, distinct_id, anonymous_id,"       \
      " session_id, source, message_id, library, library_version, envelope, text)"               \
      " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19)")             \
    X(EVENTS_SIZE, "SELECT project, length(text) + length(envelope) FROM events"                 \
                   " WHERE id BETWEEN ?1 AND ?2")                                                \
    X(EVENTS_REMOVE, "DELETE FROM events WHERE id BETWEEN ?1 AND ?2")                            \
    X(RECENT_ADD, "INSERT INTO receipts_recent(event_id, project, uuid) VALUES(?1, ?2, ?3)")     \
    X(RECENT_ALL, "SELECT event_id, project, uuid FROM receipts_recent ORDER BY event_id")       \
    X(RECENT_REMOVE, "DELETE FROM receipts_recent WHERE event_id <= ?1")                         \
    X(RECEIPT_FIND, "SELECT event_id FROM receipts WHERE project = ?1 AND uuid = ?2")            \
    X(RECEIPT_ADD,                                                                               \
      "INSERT INTO receipts(project, uuid, event_id) VALUES(?1, ?2, ?3) ON CONFLICT DO NOTHING") \
    X(COUNTERS_GET, "SELECT pending_events, pending_bytes, rejected_kept, rejected_bytes"        \
                    " FROM project_counters WHERE project = ?1")                                 \
    X(COUNTERS_ADD,                                                                              \
      "UPDATE project_counters SET pending_events = pending_events + ?2,"                        \
      " pending_bytes = pending_bytes + ?3, receipts = receipts + ?4, rejected = rejected + ?5," \
      " rejected_kept = rejected_kept + ?6, rejected_bytes = rejected_bytes + ?7"                \
      " WHERE project = ?1")                                                                     \
    X(COUNTERS_SUM,                                                                              \
      "SELECT ifnull(sum(pending_events), 0), ifnull(sum(pending_bytes), 0),"                    \
      " ifnull(sum(receipts), 0), ifnull(sum(rejected), 0), ifnull(sum(quarantined), 0)"         \
      " FROM project_counters")                                                                  \
    X(REJECTED_ADD, "INSERT INTO rejected(project, received_ms, position, door, reason, text)"   \
                    " VALUES(?1, ?2, ?3, ?4, ?5, ?6)")                                           \
    X(SUCCESS, "INSERT INTO delivery_state(project, last_success_ms) VALUES(?1, ?2)"             \
               " ON CONFLICT DO UPDATE SET last_success_ms = max(last_success_ms, ?2)")          \
    X(CURSOR_SET, "INSERT INTO delivery_cursor(one, project, after_id) VALUES(1, ?1, ?2)"        \
                  " ON CONFLICT DO UPDATE SET project = ?1, after_id = ?2")

enum store_statement {
#define X(sym, text) ST_##sym,
    STORE_STATEMENTS(X)
#undef X
        ST_COUNT
};

/* Jobs of one turn; what is beyond waits for the next. */
#define TURN_JOBS_MAX 512

struct store_turn_state {
    struct store_job_list ran;
    size_t count;
    struct err *why; /* TURN_JOBS_MAX, by position in ran; filled for jobs that failed */
    bool large_next; /* a LARGE job waited while small ones had their turn */
};

struct store {
    struct sqlite3 *db;
    struct sqlite3_stmt *st[ST_COUNT];
    char *data; /* the data directory */
    struct store_options options;
    struct store_job_list waiting[STORE_BACKGROUND + 1]; /* by weight */
    struct store_turn_state turn;
    bool in_job;
    int64_t next_id, next_id_stored;
    struct account account;
    struct receipts receipts;
    struct store_job merge_job;
    bool merge_queued;
    struct control *control;
    struct checkpointer *checkpointer;
    uint64_t wal_frames; /* as of the last commit */
    bool poisoned, no_space;
    char cause[200];
    int64_t schema_version;
};

/* Ends all writing until a restart; the first cause stays. */
void store_poison(struct store *s, const char *cause);
/* Reads the instance's sums from project_counters: at open, and of what triggers count at ticks. */
int store_read_sums(struct store *s, struct account_sums *out, struct err *e) MUST_CHECK;
/* Submits the job that merges receipts, if it is due and not waiting already. */
void store_merge_if_due(struct store *s, bool idle);

/* control.c */
int control_open(struct store *s, struct err *e) MUST_CHECK;
void control_close(struct control *c);
/* Begins a turn: what control_committed replaced before it is freed. */
void control_turn(struct control *c);
/* Reads again what a control_committed could not. */
void control_tick(struct store *s);

#endif
