/* delivery_schema: the tables of delivery.sqlite, and what writer and readers share about them. */
#ifndef STORE_ARTIFACT_DELIVERY_SCHEMA_H
#define STORE_ARTIFACT_DELIVERY_SCHEMA_H

#include "base/err.h"
#include "store/db.h"

#define DELIVERY_SCHEMA         3
#define DELIVERY_APPLICATION_ID 1413760069 /* "TDLE" */
/* A build of at most so many bytes need not wait for the end of a longer one. Part of an index. */
#define DELIVERY_SMALL_BYTES 268435456

/* *version: 0 for a database without tables. ERR_UNSUPPORTED: newer, or another program's. */
int delivery_schema_check(struct sqlite3 *db, int64_t *version, struct err *e) MUST_CHECK;
/* Brings the database from *version to DELIVERY_SCHEMA, in one transaction. */
int delivery_schema_forward(struct sqlite3 *db, int64_t version, struct err *e) MUST_CHECK;

#endif
