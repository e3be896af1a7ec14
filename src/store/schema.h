/* schema: the tables of tallyman.sqlite, their version (PRAGMA user_version) and the way from older
 * ones (docs/FORMAT.md).
 *
 * What is truth and what is derived:
 *   projects, keys,
 *   artifact_projects      control.h, artifact/settings.h
 *   events                 queued events; a delivered one is gone
 *   receipts               (project, uuid) -> event id, for ever, in key order
 *   receipts_recent        the same facts: new ones go here, in the order of ids, and are moved to
 *                          receipts in large sorted runs. During a move a receipt may be in both,
 *                          with the same id
 *   delivery_quarantine    queued events that are not tried again by themselves
 *   rejected               bad events of batches that were otherwise taken
 *   delivery_cursor        where the next selection begins; one row
 *   delivery_state         last success of each project
 *   meta                   next_event_id: all ids ever given are below it
 *   delivery_ready         derived, by triggers: (project, id) of events not in quarantine
 *   project_counters       derived: pending_* and receipts follow each job (account.c),
 *                          quarantined follows by trigger; rejected_* count rejected
 *
 * pending_events counts a project's events, pending_bytes is the sum of length(text) +
 * length(envelope) over them; quarantined ones count in both. */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#include "store/store.h"

#define SCHEMA_VERSION        4
#define SCHEMA_APPLICATION_ID 0x544c4c59 /* "TLLY" */

/* Reads the version and changes nothing. ERR_UNSUPPORTED: newer, or another program's. */
int schema_check(struct sqlite3 *db, int64_t *version, struct err *e) MUST_CHECK;
/* Reads the version of an open database and brings it forward; makes everything in an empty one.
 * ERR_UNSUPPORTED: newer, or another program's. Each step is one transaction. After a
 * failure, of the backfill too, the caller closes the connection, which undoes what is open. */
int schema_open(struct sqlite3 *db, int64_t *version, struct err *e) MUST_CHECK;
/* Fills derived tables that are missing rows as a whole: delivery_ready when it is empty beside
 * queued events, counters of projects that have none, next_event_id. Says so in the log. What is
 * there but wrong is left for verify to find. ERR_CORRUPT: an id at or past next_event_id. */
int schema_backfill(struct sqlite3 *db, struct err *e) MUST_CHECK;

#endif
