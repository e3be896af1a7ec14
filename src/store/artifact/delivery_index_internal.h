/* The inside of delivery_index: shared by delivery_index.c (opening), delivery_change.c,
 * delivery_merge.c, delivery_load.c, delivery_next.c, delivery_show.c (statements) and
 * delivery_hold.c (memory). */
#ifndef STORE_ARTIFACT_DELIVERY_INDEX_INTERNAL_H
#define STORE_ARTIFACT_DELIVERY_INDEX_INTERNAL_H

#include "store/artifact/delivery_index.h"
#include "store/artifact/delivery_schema.h"
#include "store/db.h"

#define INDEX_DUE "state IN ('pending', 'retry_wait')"
#define INDEX_SMALL                          \
    "packages INDEXED BY packages_due_small" \
    " WHERE state = 'building' AND size_bytes <= " INDEX_TEXT_OF(DELIVERY_SMALL_BYTES)
#define INDEX_TEXT(n)       #n
#define INDEX_TEXT_OF(name) INDEX_TEXT(name)
#define INDEX_HEAD                                                          \
    "SELECT next_attempt_ms, package_id, attempts, sink, identifier, keys," \
    " ifnull(sent_at, 0), maybe_files, maybe_at FROM deliveries"

#define INDEX_ARTIFACT_COLUMNS \
    "SELECT a.object_id, a.project, a.filename, a.checksum, a.size_bytes, a.accepted_at"

/* X(symbol, text). Parameters: ?1 package, object or name, ?2 sink, ?3 now, ?4 due, ?5 text, ?6 way
 * out; others where the text says so. Those that find work name their partial index: left to
 * itself SQLite takes the index on the state, and reads and sorts the whole backlog each time. */
#define INDEX_STATEMENTS(X)                                                                       \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                   \
    X(COMMIT, "COMMIT")                                                                           \
    X(ROLLBACK, "ROLLBACK")                                                                       \
    X(HAS, "SELECT 1 FROM artifacts WHERE object_id = ?1")                                        \
    X(ADD_ARTIFACT, "INSERT INTO artifacts(object_id, project, filename, checksum, size_bytes,"   \
                    " accepted_at, waiting) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)")                  \
    X(ADD_PACKAGE, "INSERT INTO packages(package_id, project, packager, state, member_count,"     \
                   " size_bytes, next_build_ms, created_at, updated_at)"                          \
                   " VALUES(?1, ?2, ?6, 'building', ?7, ?5, ?4, ?3, ?3)")                         \
    X(ADD_MEMBER, "INSERT INTO package_members(package_id, ordinal, object_id, offset_bytes,"     \
                  " size_bytes, checksum) VALUES(?1, ?6, ?2, ?7, ?3, ?4)")                        \
    X(WAITING_PROJECT, "SELECT project FROM packaging WHERE artifacts > 0 AND project > ?1"       \
                       " ORDER BY project LIMIT 1")                                               \
    X(PACKAGING, "SELECT draining, bytes FROM packaging WHERE project = ?1 AND artifacts > 0")    \
    X(DRAINING, "UPDATE packaging SET draining = ?3, until_ms = ?4, trigger_bytes = ?5"           \
                " WHERE project = ?1 AND (draining, until_ms, trigger_bytes) <> (?3, ?4, ?5)")    \
    X(WAITING, INDEX_ARTIFACT_COLUMNS " FROM artifacts a INDEXED BY artifacts_waiting"            \
                                      " WHERE a.waiting = 1 AND a.project = ?1"                   \
                                      " ORDER BY a.accepted_at, a.object_id")                     \
    X(WAIT, "UPDATE artifacts SET waiting = ?3 WHERE object_id = ?1")                             \
    X(RELEASE, "UPDATE artifacts SET waiting = 1 WHERE object_id IN"                              \
               " (SELECT object_id FROM package_members WHERE package_id = ?1)")                  \
    X(DROP_MEMBERS, "DELETE FROM package_members WHERE package_id = ?1")                          \
    X(DROP_PACKAGE, "DELETE FROM packages WHERE package_id = ?1 AND state <> 'sealed'")           \
    X(MEMBER_OF, "SELECT p.package_id, p.state, p.packager FROM package_members m"                \
                 " JOIN packages p ON p.package_id = m.package_id WHERE m.object_id = ?1")        \
    X(HAS_PACKAGE, "SELECT 1 FROM packages WHERE package_id = ?1")                                \
    X(PACKAGE, "SELECT packager, size_bytes FROM packages WHERE package_id = ?1")                 \
    X(MEMBERS, INDEX_ARTIFACT_COLUMNS " FROM package_members m JOIN artifacts a"                  \
                                      " ON a.object_id = m.object_id WHERE m.package_id = ?1"     \
                                      " ORDER BY m.ordinal")                                      \
    X(SKIP, "INSERT INTO skipped(name, reason, seen_at) VALUES(?1, ?5, ?3)"                       \
            " ON CONFLICT DO NOTHING")                                                            \
    X(SKIP_NO_MORE, "DELETE FROM skipped WHERE name = ?1")                                        \
    X(BUILD_PROJECT, "SELECT project FROM packages INDEXED BY packages_due"                       \
                     " WHERE state = 'building' AND project > ?1 ORDER BY project LIMIT 1")       \
    X(SMALL_PROJECT,                                                                              \
      "SELECT project FROM " INDEX_SMALL " AND project > ?1 ORDER BY project LIMIT 1")            \
    X(SEND_PROJECT, "SELECT project FROM deliveries INDEXED BY deliveries_due"                    \
                    " WHERE " INDEX_DUE " AND project > ?1 ORDER BY project LIMIT 1")             \
    X(SENT_PROJECT, "SELECT project FROM deliveries INDEXED BY deliveries_sent"                   \
                    " WHERE state = 'sent' AND project > ?1 ORDER BY project LIMIT 1")            \
    X(BUILD_HEAD, "SELECT next_build_ms, package_id, build_attempts FROM packages"                \
                  " INDEXED BY packages_due WHERE state = 'building' AND project = ?1"            \
                  " ORDER BY next_build_ms, package_id")                                          \
    X(SMALL_HEAD, "SELECT next_build_ms, package_id, build_attempts FROM " INDEX_SMALL            \
                  " AND project = ?1 ORDER BY next_build_ms, package_id")                         \
    X(SEND_HEAD, INDEX_HEAD " INDEXED BY deliveries_due WHERE " INDEX_DUE                         \
                            " AND project = ?1 ORDER BY next_attempt_ms, package_id")             \
    X(SENT_HEAD, INDEX_HEAD " INDEXED BY deliveries_sent WHERE state = 'sent'"                    \
                            " AND project = ?1 ORDER BY next_attempt_ms, package_id")             \
    X(BEHIND, "UPDATE deliveries SET next_attempt_ms = ?4 WHERE project = ?1 AND sink = ?2"       \
              " AND state IN ('pending', 'retry_wait', 'sent') AND next_attempt_ms < ?4"          \
              " AND CASE ?3 WHEN 0 THEN identifier = ?5 WHEN 2 THEN keys = ?5 ELSE 1 END")        \
    X(ASKED, "SELECT p.package_id, p.state, d.state, p.plan FROM package_members m"               \
             " JOIN packages p ON p.package_id = m.package_id"                                    \
             " LEFT JOIN deliveries d ON d.package_id = p.package_id"                             \
             " WHERE m.object_id = ?1 LIMIT 1")                                                   \
    X(ASK_BUILD, "UPDATE packages SET state = 'building', next_build_ms = ?4, way_out = '',"      \
                 " updated_at = ?3 WHERE package_id = ?1 AND state IN ('building', 'blocked')")   \
    X(ASK_SEND, "UPDATE deliveries SET next_attempt_ms = ?4, way_out = '', updated_at = ?3,"      \
                " state = iif(state = 'parked', 'retry_wait', state) WHERE package_id = ?1"       \
                " AND state IN ('pending', 'retry_wait', 'sent', 'parked')")                      \
    X(PURGE_DUE, "UPDATE packages SET purge_ms = ?4, updated_at = ?3 WHERE package_id = ?1"       \
                 " AND state = 'sealed' AND purged_at IS NULL")                                   \
    X(PURGE_HEAD, "SELECT purge_ms, package_id FROM packages INDEXED BY packages_purge"           \
                  " WHERE purge_ms IS NOT NULL AND purged_at IS NULL"                             \
                  " ORDER BY purge_ms, package_id LIMIT 2")                                       \
    X(PURGE_TIMES, "SELECT sent_at, verified_at FROM deliveries WHERE package_id = ?1"            \
                   " AND state = 'verified'")                                                     \
    X(PURGE_RETRY, "UPDATE packages SET purge_ms = ?4, purge_error = ?5, updated_at = ?3"         \
                   " WHERE package_id = ?1 AND purge_ms IS NOT NULL AND purged_at IS NULL")       \
    X(PURGED, "UPDATE packages SET purged_at = ?3, purge_error = '', updated_at = ?3"             \
              " WHERE package_id = ?1 AND purge_ms IS NOT NULL AND purged_at IS NULL")            \
    X(HAS_PROVEN, "SELECT 1 FROM packages p JOIN deliveries d ON d.package_id = p.package_id"     \
                  " WHERE p.package_id = ?1 AND d.state = 'verified' AND p.purge_ms IS NOT NULL") \
    X(PROVEN_SEAL, "UPDATE packages SET state = 'sealed', plan = ?5, updated_at = ?3,"            \
                   " sealed_at = ifnull(sealed_at, ?3), build_error = '', way_out = ''"           \
                   " WHERE package_id = ?1")                                                      \
    X(PROVEN_SEND, "INSERT INTO deliveries(package_id, sink, project, state, attempts,"           \
                   " next_attempt_ms, updated_at, identifier, keys, sent_at, verified_at)"        \
                   " SELECT package_id, ?2, project, 'verified', 1, 0, ?3, ?5, ?6, ?7, ?8"        \
                   " FROM packages WHERE package_id = ?1"                                         \
                   " ON CONFLICT(package_id, sink) DO UPDATE SET state = 'verified', late = 0,"   \
                   " sent_at = ?7, verified_at = ?8, last_error = '', way_out = '',"              \
                   " updated_at = ?3, identifier = ?5, keys = ?6")                                \
    X(PROVEN_ONLY, "DELETE FROM deliveries WHERE package_id = ?1 AND sink <> ?2")                 \
    X(PROVEN_DUE, "UPDATE packages SET purge_ms = ifnull(purge_ms, ?4) WHERE package_id = ?1")    \
    X(LATE, "SELECT count(*) FROM deliveries WHERE state = 'sent' AND late <> 0")                 \
    X(RUNNING, "INSERT INTO running(package_id, project, task, sink, identifier, begun_at,"       \
               " bytes, size_bytes, bytes_per_s, file, stuck, updated_at)"                        \
               " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")                      \
    X(HELD, "INSERT INTO holds(scope, sink, key, until_ms, text) VALUES(?1, ?2, ?3, ?4, ?5)")     \
    X(ONE_ARTIFACT, INDEX_ARTIFACT_COLUMNS " FROM artifacts a WHERE a.object_id = ?1")            \
    X(PLAN, "SELECT plan FROM packages WHERE package_id = ?1 AND state = 'sealed'")               \
    X(SEAL, "UPDATE packages SET state = 'sealed', plan = ?5, sealed_at = ?3, updated_at = ?3,"   \
            " build_error = '', way_out = '' WHERE package_id = ?1 AND state = 'building'")       \
    X(SEAL_SEND, "INSERT INTO deliveries(package_id, sink, project, state, next_attempt_ms,"      \
                 " updated_at, identifier, keys) SELECT package_id, ?2, project, 'pending', ?4,"  \
                 " ?3, ?5, ?6 FROM packages WHERE package_id = ?1")                               \
    X(BUILD_RETRY, "UPDATE packages SET build_attempts = build_attempts + 1, updated_at = ?3,"    \
                   " next_build_ms = ?4, build_error = ?5"                                        \
                   " WHERE package_id = ?1 AND state = 'building'")                               \
    X(BUILD_PARK, "UPDATE packages SET state = 'blocked', build_attempts = build_attempts + 1,"   \
                  " updated_at = ?3, build_error = ?5, way_out = ?6"                              \
                  " WHERE package_id = ?1 AND state = 'building'")                                \
    X(CLAIM, "UPDATE deliveries SET state = 'sending', attempts = attempts + 1, updated_at = ?3," \
             " attempt_at = ?3"                                                                   \
             " WHERE package_id = ?1 AND sink = ?2 AND state IN ('pending', 'retry_wait')")       \
    X(SENT, "UPDATE deliveries SET state = 'sent', sent_at = ?3, updated_at = ?3, late = 0,"      \
            " next_attempt_ms = ?4, last_error = '', way_out = ''"                                \
            " WHERE package_id = ?1 AND sink = ?2 AND state = 'sending'")                         \
    X(UNSEEN, "UPDATE deliveries SET updated_at = ?3, next_attempt_ms = ?4, last_error = ?5,"     \
              " late = ?7 WHERE package_id = ?1 AND sink = ?2 AND state = 'sent'")                \
    X(VERIFIED, "UPDATE deliveries SET state = 'verified', sent_at = ifnull(sent_at, ?3),"        \
                " verified_at = ?3, updated_at = ?3, last_error = '', way_out = ''"               \
                " WHERE package_id = ?1 AND sink = ?2 AND state IN ('sending', 'sent')")          \
    X(RETRY, "UPDATE deliveries SET state = 'retry_wait', next_attempt_ms = ?4,"                  \
             " last_error = ?5, way_out = '', updated_at = ?3"                                    \
             " WHERE package_id = ?1 AND sink = ?2 AND state IN ('sending', 'sent')")             \
    X(MAYBE, "UPDATE deliveries SET maybe_files = maybe_files | ?7, maybe_at = ?3"                \
             " WHERE package_id = ?1 AND sink = ?2 AND state = 'sending'")                        \
    X(PUT_OFF, "UPDATE deliveries SET state = 'retry_wait', attempts = attempts - 1,"             \
               " maybe_at = min(maybe_at, ?3),"                                                   \
               " next_attempt_ms = ?4, last_error = ?5, way_out = '', updated_at = ?3"            \
               " WHERE package_id = ?1 AND sink = ?2 AND state = 'sending'")                      \
    X(PARK, "UPDATE deliveries SET state = 'parked', last_error = ?5, way_out = ?6,"              \
            " updated_at = ?3"                                                                    \
            " WHERE package_id = ?1 AND sink = ?2 AND state IN ('sending', 'sent')")

enum index_statement {
#define X(sym, text) INDEX_##sym,
    INDEX_STATEMENTS(X)
#undef X
        INDEX_STATEMENT_COUNT
};

#define HOLD_KEY_MAX 4001

struct index_hold {
    enum delivery_scope scope;
    char sink[32];          /* "" of PROJECT */
    char key[HOLD_KEY_MAX]; /* identifier, project, path of the credentials, or "" */
    int64_t until_ms;       /* 0: none */
    char text[DELIVERY_ERROR_MAX];
};

/* Work that was given and is not over. */
struct index_run {
    enum delivery_lane lane;
    bool stuck;
    char project[UPLOAD_PROJECT_MAX + 1];
    char package_id[DELIVERY_PACKAGE_LEN + 1]; /* "": none */
};

struct delivery_index {
    struct sqlite3 *db;
    char after[DELIVERY_LANES][UPLOAD_PROJECT_MAX + 1]; /* the project that was served last */
    uint64_t picks;                                     /* sendings and verifications given */
    struct index_run run[DELIVERY_UNDER_WAY_MAX];
    struct index_hold hold[DELIVERY_HOLDS_MAX];
    struct sqlite3_stmt *st[INDEX_STATEMENT_COUNT];
};

/* A due time further ahead than any wait goes comes from a clock that was wrong: it is past. */
#define INDEX_FAR_MS (INT64_C(7) * 3600 * 1000)

/* The end of the hold of the whole project, or 0. */
int64_t index_held_project_ms(const struct delivery_index *ix, const char *project, int64_t now_ms);
/* The hold of a delivery by item, credentials or far end that ends last, or NULL. */
const struct index_hold *index_held(const struct delivery_index *ix, struct slice sink,
                                    struct slice identifier, struct slice keys, int64_t now_ms);
/* Ends all holds of this package. */
void index_unhold(struct delivery_index *ix, const struct delivery_plan *p);

/* ---- rows that are read (delivery_load.c) ---- */
/* Size and first member. *merged: it is a merged package. */
int index_load_package(struct delivery_index *ix, const char *package_id, struct delivery_work *out,
                       bool *merged, struct err *e) MUST_CHECK;
int index_load_plan(struct delivery_index *ix, const char *package_id, struct delivery_plan *out,
                    struct err *e) MUST_CHECK;
/* A row of INDEX_ARTIFACT_COLUMNS. */
void index_take_artifact(struct sqlite3_stmt *st, struct delivery_artifact *out);
/* All rows of which (?1: key), at most DELIVERY_MEMBERS_MAX; m: made. */
int index_take_members(struct delivery_index *ix, enum index_statement which, const char *key,
                       struct delivery_members *m, struct err *e) MUST_CHECK;
/* Rows, inside the caller's transaction. */
int index_add_artifact(struct delivery_index *ix, const struct delivery_artifact *a, bool waiting,
                       struct err *e) MUST_CHECK;
/* Building and due now, with its members. packager: merged or not, which makes the id. */
int index_add_package(struct delivery_index *ix, const struct delivery_artifact *a, unsigned count,
                      bool merged, int64_t due_ms, int64_t now_ms, struct err *e) MUST_CHECK;
/* The artifact is known, waits for nothing and is in no package: ERR_REFUSED where it is in a
 * sealed one. */
int index_free_artifact(struct delivery_index *ix, const struct delivery_artifact *a,
                        struct err *e) MUST_CHECK;

/* Runs a statement whose parameters are bound; changed: it must have changed exactly one row. */
int index_run(struct delivery_index *ix, enum index_statement which, bool changed, const char *what,
              struct err *e) MUST_CHECK;

#endif
