/* delivery_reader: how one look at a database of another process is begun and ended. */
#ifndef STORE_ARTIFACT_DELIVERY_READER_H
#define STORE_ARTIFACT_DELIVERY_READER_H

#include "base/err.h"
#include "store/db.h"

/* Opens DATA/FILE for reading, waiting at most a second for whoever writes; *db is NULL, and the
 * result 0, when there is no such file. */
int delivery_reader_open(const char *data, const char *file, struct sqlite3 **db,
                         struct err *e) MUST_CHECK;

#endif
