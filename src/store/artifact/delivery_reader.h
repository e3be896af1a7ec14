/* delivery_reader: how one look at a database of another process is begun and ended. */
#ifndef STORE_ARTIFACT_DELIVERY_READER_H
#define STORE_ARTIFACT_DELIVERY_READER_H

#include "base/err.h"
#include "store/db.h"

/* Opens DATA/FILE for reading, waiting at most a second for whoever writes; *db is NULL, and the
 * result 0, when there is no such file. */
int delivery_reader_open(const char *data, const char *file, struct sqlite3 **db,
                         struct err *e) MUST_CHECK;
/* The same of delivery.sqlite, with a transaction; *db is NULL, too, when its owner is just making
 * it. What only a newer schema has is there only when the owner has brought the file forward. */
int delivery_reader_begin(const char *data, struct sqlite3 **db, int64_t *version,
                          struct err *e) MUST_CHECK;
/* Whole seconds, up. */
int64_t delivery_reader_seconds(int64_t ms);
/* Copies as much as fits. */
void delivery_reader_take(char *out, size_t size, struct slice text);

#endif
