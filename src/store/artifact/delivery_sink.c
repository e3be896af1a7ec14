/* delivery_sink: where a project's artifacts go, asked from tallyman.sqlite.
 *
 * The process `tallyman deliver` owns nothing there and only looks. A database without the table is
 * of an older server: no project of it takes artifacts. Power failure: nothing is written. */
#include <stdio.h>

#include "store/artifact/delivery.h"
#include "store/artifact/delivery_reader.h"
#include "store/store.h"

static int copy_text(char *out, size_t size, struct slice text, const char *what, struct err *e)
{
    if (text.len >= size || memchr(text.ptr, '\0', text.len) != NULL) {
        return err_set(e, ERR_CORRUPT, "%s: the %s of a project is too long", STORE_FILE, what);
    }
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    return 0;
}

static int look(struct sqlite3 *db, struct slice project, struct artifact_sink *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int64_t table;
    int r = db_number(db, "SELECT count(*) FROM sqlite_master WHERE name = 'artifact_projects'", 0,
                      &table, e);

    if (r < 0 || table == 0) {
        return r < 0 ? r : ERR_NOT_FOUND;
    }
    r = db_prepare(db,
                   "SELECT a.sink, a.directory FROM projects p JOIN artifact_projects a"
                   " ON a.project = p.id WHERE p.name = ?1",
                   &st, e);
    if (r == 0) {
        db_bind_text(st, 1, project);
        r = db_step(st, "look for a destination", e);
        if (r > 0) {
            r = copy_text(out->sink, sizeof out->sink, db_column(st, 0), "sink", e);
            if (r == 0) {
                r = copy_text(out->directory, sizeof out->directory, db_column(st, 1), "directory",
                              e);
            }
        } else if (r == 0) {
            r = ERR_NOT_FOUND;
        }
    }
    sqlite3_finalize(st);
    return r;
}

int artifact_sink_read(const char *data, struct slice project, struct artifact_sink *out,
                       struct err *e)
{
    struct sqlite3 *db = NULL;
    int r = delivery_reader_open(data, STORE_FILE, &db, e);

    memset(out, 0, sizeof *out);
    if (r == 0) {
        r = db == NULL ? ERR_NOT_FOUND : look(db, project, out, e);
    }
    sqlite3_close(db);
    if (r == ERR_NOT_FOUND) {
        return err_set(e, ERR_NOT_FOUND, "the project %.*s has no destination for artifacts",
                       (int)(project.len < UPLOAD_PROJECT_MAX ? project.len : UPLOAD_PROJECT_MAX),
                       project.ptr);
    }
    return r;
}
