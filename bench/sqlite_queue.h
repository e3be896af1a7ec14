/* sqlite_queue: the schema that a queue with exact deduplication gets when nobody measures it.
 *
 * An event's row and its receipt in one transaction, the receipt's key unique for ever, counters
 * beside them. Columns are what a query or a delivery needs and no more. capture_prefill fills it,
 * sqlite_queue measures it, capture_verify reads it. */
#ifndef BENCH_SQLITE_QUEUE_H
#define BENCH_SQLITE_QUEUE_H

#define PLAIN_FILE "queue.sqlite"

static const char plain_schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    "CREATE TABLE events(id INTEGER PRIMARY KEY, project INTEGER NOT NULL, uuid BLOB NOT NULL,"
    " received_ms INTEGER NOT NULL, event TEXT NOT NULL, distinct_id TEXT NOT NULL,"
    " text BLOB NOT NULL);"
    "CREATE TABLE receipts(project INTEGER NOT NULL, uuid BLOB NOT NULL,"
    " event_id INTEGER NOT NULL, PRIMARY KEY(project, uuid)) WITHOUT ROWID;"
    "CREATE TABLE counters(project INTEGER PRIMARY KEY, events INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, receipts INTEGER NOT NULL, next_event_id INTEGER NOT NULL);"
    "INSERT INTO counters VALUES(1, 0, 0, 0, 1);";

#endif
