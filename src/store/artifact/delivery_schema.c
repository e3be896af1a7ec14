/* delivery_schema: the tables of delivery.sqlite.
 *
 *   artifacts        one row for each receipt whose .info is there; waiting: for a merged package
 *   packages         identity: one a receipt; mergewarc: one of several. building -> sealed (with
 *                    its plan), or -> blocked
 *   package_members  which artifacts are in it, and where
 *   packaging        of each project that had artifacts waiting: how many, their bytes, and whether
 *                    packages are being made of what the trigger has found (draining); and for
 *                    whoever looks, the trigger and when the oldest has waited long enough
 *   deliveries       a sealed package at a sink; delivery.h has the states
 *   skipped          names in receipts/ that were left out, so that each is logged once
 *   running, holds   what is under way and what is held back, for whoever looks: replaced about
 *                    once a second, without a sync, and empty at the start of the process
 *
 *   feed             the last deliveries.verified_no; id: of this file, since one that was made
 *                    anew counts anew
 *
 * Triggers keep packaging: what waits is summed up without being read. Another gives each delivery
 * its number in the transaction that makes it verified. Numbers are given by the one writer, in the
 * order of its commits, and readers see a commit only when it is synced: whoever has seen a number
 * has been shown all smaller ones, whatever the clock says.
 *
 * All are STRICT and none is the only place of anything: the head comment of delivery_index.c says
 * where each fact comes back from.
 *
 * Power failure: tables and version are made in one transaction. Answers: a newer version, another
 * program's file, a broken one, no space. */
#include "store/artifact/delivery_schema.h"

#include "base/ensure.h"
#include "base/log.h"
#include "store/artifact/delivery.h"

static const char version_1[] =
    "CREATE TABLE artifacts(object_id TEXT PRIMARY KEY, project TEXT NOT NULL,"
    " filename TEXT NOT NULL, checksum TEXT NOT NULL, size_bytes INTEGER NOT NULL,"
    " accepted_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE packages(package_id TEXT PRIMARY KEY, project TEXT NOT NULL,"
    " packager TEXT NOT NULL CHECK(packager = 'identity'),"
    " state TEXT NOT NULL CHECK(state IN ('building', 'sealed', 'blocked')),"
    " member_count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, plan TEXT,"
    " build_attempts INTEGER NOT NULL DEFAULT 0, next_build_ms INTEGER NOT NULL,"
    " build_error TEXT NOT NULL DEFAULT '', way_out TEXT NOT NULL DEFAULT '',"
    " created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, sealed_at INTEGER,"
    " CHECK((state = 'sealed') = (plan IS NOT NULL)),"
    " CHECK((state = 'sealed') = (sealed_at IS NOT NULL))) STRICT, WITHOUT ROWID;"
    "CREATE INDEX packages_due ON packages(project, next_build_ms, package_id)"
    " WHERE state = 'building';"
    "CREATE INDEX packages_state ON packages(state);"
    "CREATE TABLE package_members(package_id TEXT NOT NULL, ordinal INTEGER NOT NULL,"
    " object_id TEXT NOT NULL UNIQUE, offset_bytes INTEGER NOT NULL, size_bytes INTEGER NOT NULL,"
    " checksum TEXT NOT NULL, PRIMARY KEY(package_id, ordinal)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE deliveries(package_id TEXT NOT NULL, sink TEXT NOT NULL, project TEXT NOT NULL,"
    " state TEXT NOT NULL CHECK(state IN"
    " ('pending', 'sending', 'sent', 'verified', 'retry_wait', 'parked')),"
    " attempts INTEGER NOT NULL DEFAULT 0, next_attempt_ms INTEGER NOT NULL,"
    " last_error TEXT NOT NULL DEFAULT '', way_out TEXT NOT NULL DEFAULT '',"
    " updated_at INTEGER NOT NULL, sent_at INTEGER, verified_at INTEGER,"
    " CHECK((state = 'verified') = (verified_at IS NOT NULL)),"
    " PRIMARY KEY(package_id, sink)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX deliveries_due ON deliveries(project, next_attempt_ms, package_id, sink)"
    " WHERE state IN ('pending', 'sent', 'retry_wait');"
    "CREATE INDEX deliveries_state ON deliveries(state, next_attempt_ms);"
    "CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL,"
    " seen_at INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

#define GIVE_NUMBER                                                         \
    " UPDATE feed SET last = last + 1; UPDATE deliveries SET verified_no =" \
    " (SELECT last FROM feed) WHERE package_id = new.package_id AND sink = new.sink;"
#define NUMBER_TEXT(n)  #n
#define NUMBER_OF(name) NUMBER_TEXT(name)
#define SMALL_TEXT      NUMBER_OF(DELIVERY_SMALL_BYTES)

/* identifier and keys (the path of the credentials) are the plan's, for holds; attempt_at is when
 * the last sending began; late: it was sent and has not been seen there for too long. purge_ms:
 * when local bytes are due to go; NULL: they are not. */
static const char version_2[] =
    "ALTER TABLE deliveries ADD COLUMN identifier TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE deliveries ADD COLUMN keys TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE deliveries ADD COLUMN attempt_at INTEGER;"
    "ALTER TABLE deliveries ADD COLUMN late INTEGER NOT NULL DEFAULT 0;"
    "UPDATE deliveries SET identifier = ifnull((SELECT iif(json_valid(plan),"
    " json_extract(plan, '$.identifier'), '') FROM packages p"
    " WHERE p.package_id = deliveries.package_id), '');"
    "DROP INDEX deliveries_due;"
    "CREATE INDEX deliveries_due ON deliveries(project, next_attempt_ms, package_id, sink)"
    " WHERE state IN ('pending', 'retry_wait');"
    "CREATE INDEX deliveries_sent ON deliveries(project, next_attempt_ms, package_id, sink)"
    " WHERE state = 'sent';"
    "CREATE INDEX packages_due_small ON packages(project, next_build_ms, package_id)"
    " WHERE state = 'building' AND size_bytes <= " SMALL_TEXT ";"
    "ALTER TABLE packages ADD COLUMN purge_ms INTEGER;"
    "ALTER TABLE packages ADD COLUMN purged_at INTEGER;"
    "ALTER TABLE packages ADD COLUMN purge_error TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX packages_purge ON packages(purge_ms, package_id)"
    " WHERE purge_ms IS NOT NULL AND purged_at IS NULL;"
    "CREATE INDEX packages_created ON packages(created_at, package_id);"
    "CREATE TABLE feed(id TEXT NOT NULL, last INTEGER NOT NULL) STRICT;"
    "ALTER TABLE deliveries ADD COLUMN verified_no INTEGER;"
    "UPDATE deliveries SET verified_no = x.n FROM (SELECT package_id AS p, sink AS s,"
    " row_number() OVER (ORDER BY verified_at, package_id, sink) AS n FROM deliveries"
    " WHERE state = 'verified') AS x WHERE x.p = deliveries.package_id AND x.s = deliveries.sink;"
    "CREATE UNIQUE INDEX deliveries_verified ON deliveries(verified_no)"
    " WHERE verified_no IS NOT NULL;"
    "INSERT INTO feed SELECT lower(hex(randomblob(8))), ifnull(max(verified_no), 0)"
    " FROM deliveries;"
    "CREATE TRIGGER deliveries_verify AFTER UPDATE OF state ON deliveries"
    " WHEN new.state = 'verified' AND new.verified_no IS NULL BEGIN" GIVE_NUMBER " END;"
    "CREATE TRIGGER deliveries_prove AFTER INSERT ON deliveries"
    " WHEN new.state = 'verified' BEGIN" GIVE_NUMBER " END;"
    "CREATE TABLE running(package_id TEXT PRIMARY KEY, project TEXT NOT NULL, task TEXT NOT NULL,"
    " sink TEXT NOT NULL, identifier TEXT NOT NULL, begun_at INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, size_bytes INTEGER NOT NULL, bytes_per_s INTEGER NOT NULL,"
    " file TEXT NOT NULL, stuck INTEGER NOT NULL, updated_at INTEGER NOT NULL)"
    " STRICT, WITHOUT ROWID;"
    "CREATE TABLE holds(scope TEXT NOT NULL, sink TEXT NOT NULL, key TEXT NOT NULL,"
    " until_ms INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY(scope, sink, key))"
    " STRICT, WITHOUT ROWID;";

#define COUNT_WAITING                                                                       \
    " INSERT INTO packaging(project, draining, artifacts, bytes) VALUES(new.project, 0, 1," \
    " new.size_bytes) ON CONFLICT(project) DO UPDATE SET artifacts = artifacts + 1,"        \
    " bytes = bytes + new.size_bytes;"

/* packages anew, for its check of the packager. maybe_files: files (bit i: the plan's i-th) that
 * tries up to maybe_at may have brought, though none of them ended as sent. */
static const char version_3[] =
    "DROP INDEX packages_due; DROP INDEX packages_state; DROP INDEX packages_due_small;"
    "DROP INDEX packages_purge; DROP INDEX packages_created;"
    "ALTER TABLE packages RENAME TO packages_2;"
    "CREATE TABLE packages(package_id TEXT PRIMARY KEY, project TEXT NOT NULL,"
    " packager TEXT NOT NULL CHECK(packager IN ('identity', 'mergewarc')),"
    " state TEXT NOT NULL CHECK(state IN ('building', 'sealed', 'blocked')),"
    " member_count INTEGER NOT NULL, size_bytes INTEGER NOT NULL, plan TEXT,"
    " build_attempts INTEGER NOT NULL DEFAULT 0, next_build_ms INTEGER NOT NULL,"
    " build_error TEXT NOT NULL DEFAULT '', way_out TEXT NOT NULL DEFAULT '',"
    " created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, sealed_at INTEGER,"
    " purge_ms INTEGER, purged_at INTEGER, purge_error TEXT NOT NULL DEFAULT '',"
    " CHECK((state = 'sealed') = (plan IS NOT NULL)),"
    " CHECK((state = 'sealed') = (sealed_at IS NOT NULL))) STRICT, WITHOUT ROWID;"
    "INSERT INTO packages SELECT package_id, project, packager, state, member_count, size_bytes,"
    " plan, build_attempts, next_build_ms, build_error, way_out, created_at, updated_at, sealed_at,"
    " purge_ms, purged_at, purge_error FROM packages_2;"
    "DROP TABLE packages_2;"
    "CREATE INDEX packages_due ON packages(project, next_build_ms, package_id)"
    " WHERE state = 'building';"
    "CREATE INDEX packages_state ON packages(state);"
    "CREATE INDEX packages_due_small ON packages(project, next_build_ms, package_id)"
    " WHERE state = 'building' AND size_bytes <= " SMALL_TEXT ";"
    "CREATE INDEX packages_purge ON packages(purge_ms, package_id)"
    " WHERE purge_ms IS NOT NULL AND purged_at IS NULL;"
    "CREATE INDEX packages_created ON packages(created_at, package_id);"
    "ALTER TABLE artifacts ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX artifacts_waiting ON artifacts(project, accepted_at, object_id)"
    " WHERE waiting = 1;"
    "CREATE TABLE packaging(project TEXT PRIMARY KEY, draining INTEGER NOT NULL,"
    " artifacts INTEGER NOT NULL, bytes INTEGER NOT NULL, trigger_bytes INTEGER NOT NULL DEFAULT 0,"
    " until_ms INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER artifacts_wait_new AFTER INSERT ON artifacts WHEN new.waiting = 1"
    " BEGIN" COUNT_WAITING " END;"
    "CREATE TRIGGER artifacts_wait AFTER UPDATE OF waiting ON artifacts"
    " WHEN new.waiting = 1 AND old.waiting = 0 BEGIN" COUNT_WAITING " END;"
    "CREATE TRIGGER artifacts_go AFTER UPDATE OF waiting ON artifacts"
    " WHEN new.waiting = 0 AND old.waiting = 1 BEGIN UPDATE packaging SET"
    " artifacts = artifacts - 1, bytes = bytes - new.size_bytes WHERE project = new.project; END;"
    "ALTER TABLE deliveries ADD COLUMN maybe_files INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE deliveries ADD COLUMN maybe_at INTEGER NOT NULL DEFAULT 0;";

int delivery_schema_check(struct sqlite3 *db, int64_t *version, struct err *e)
{
    int64_t application, tables;
    int r = db_number(db, "PRAGMA user_version", 0, version, e);

    if (r == 0) {
        r = db_number(db, "PRAGMA application_id", 0, &application, e);
    }
    if (r == 0) {
        r = db_number(db, "SELECT count(*) FROM sqlite_master", 0, &tables, e);
    }
    if (r < 0) {
        return r;
    }
    if (tables == 0 ? application != 0 || *version != 0 : application != DELIVERY_APPLICATION_ID) {
        return err_set(e, ERR_UNSUPPORTED, "%s is another program's database", DELIVERY_FILE);
    }
    if (*version < 0 || *version > DELIVERY_SCHEMA) {
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has schema version %lld; this program knows up to %d", DELIVERY_FILE,
                       (long long)*version, DELIVERY_SCHEMA);
    }
    return 0;
}

int delivery_schema_forward(struct sqlite3 *db, int64_t version, struct err *e)
{
    char set[96];
    struct err ignored;
    int r;

    ensure(version >= 0);
    ensure(version <= DELIVERY_SCHEMA);
    if (version == DELIVERY_SCHEMA) {
        return 0;
    }
    r = db_exec(db, "BEGIN IMMEDIATE", e);
    if (r < 0) {
        return r;
    }
    r = version == 0 ? db_exec(db, version_1, e) : 0;
    if (r == 0 && version < 2) {
        r = db_exec(db, version_2, e);
    }
    if (r == 0) {
        r = db_exec(db, version_3, e);
    }
    if (r == 0) {
        sqlite3_snprintf((int)sizeof set, set, "PRAGMA application_id=%d; PRAGMA user_version=%d",
                         DELIVERY_APPLICATION_ID, DELIVERY_SCHEMA);
        r = db_exec(db, set, e);
    }
    if (r == 0) {
        r = db_exec(db, "COMMIT", e);
    }
    if (r < 0 && sqlite3_get_autocommit(db) == 0 && db_exec(db, "ROLLBACK", &ignored) < 0) {
        log_line(LOG_WARN, "deliver", "undo the making of tables: %s", ignored.text);
    }
    return r;
}
