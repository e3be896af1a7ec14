/* delivery_reader: short looks into databases that another process owns.
 *
 * A read-only connection of its own for each look: no state between calls, so any thread may ask,
 * and a file that was put aside or made anew in between is no trouble. Power failure: nothing is
 * written. Answers: all errors. */
#include "store/artifact/delivery_reader.h"

#include <errno.h>
#include <stdio.h>

#include "os/os.h"
#include "store/artifact/delivery.h"
#include "store/artifact/delivery_schema.h"

#define READER_CACHE_KIB 256
#define READER_BUSY_MS   1000

int delivery_reader_open(const char *data, const char *file, struct sqlite3 **db, struct err *e)
{
    char path[4200];
    struct os_stat st;
    int n = snprintf(path, sizeof path, "%s/%s", data, file);
    int r;

    *db = NULL;
    if (n < 0 || (size_t)n >= sizeof path) {
        return err_set(e, ERR_USAGE, "the path of the data directory is too long");
    }
    r = os_stat(path, &st);
    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0) {
        return err_os(e, r, "stat", path);
    }
    r = db_open(path, SQLITE_OPEN_READONLY, READER_CACHE_KIB, db, e);
    if (r == 0) {
        (void)sqlite3_busy_timeout(*db, READER_BUSY_MS);
    }
    return r;
}

int delivery_reader_begin(const char *data, struct sqlite3 **db, int64_t *version, struct err *e)
{
    int r = delivery_reader_open(data, DELIVERY_FILE, db, e);

    *version = 0;
    if (r == 0 && *db != NULL) {
        r = db_exec(*db, "BEGIN", e);
        if (r == 0) {
            r = delivery_schema_check(*db, version, e);
        }
        if (r < 0 || *version == 0) {
            sqlite3_close(*db);
            *db = NULL;
        }
    }
    return r;
}

int64_t delivery_reader_seconds(int64_t ms)
{
    return ms / 1000 + (ms % 1000 > 0 ? 1 : 0);
}

void delivery_reader_take(char *out, size_t size, struct slice text)
{
    size_t n = text.len < size ? text.len : size - 1;

    if (n > 0) { /* an empty text may be nowhere */
        memcpy(out, text.ptr, n);
    }
    out[n] = '\0';
}
