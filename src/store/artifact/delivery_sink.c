/* delivery_sink: where a project's artifacts go, and how, asked from tallyman.sqlite.
 *
 * The process `tallyman deliver` owns nothing there and only looks. A database without the table is
 * of an older server: no project of it takes artifacts. Power failure: nothing is written. */
#include <stdio.h>

#include "store/artifact/delivery.h"
#include "store/artifact/delivery_reader.h"
#include "store/artifact/settings.h"
#include "store/store.h"

/* 0: no table, of version 2; 3 columns: of version 3, everything at its default. */
static int columns(struct sqlite3 *db, int64_t *count, struct err *e)
{
    return db_number(db, "SELECT count(*) FROM pragma_table_info('artifact_projects')", 0, count,
                     e);
}

static int look(struct sqlite3 *db, struct slice project, struct artifact_sink *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    struct err why = {0};
    int64_t count;
    int r = columns(db, &count, e);

    if (r < 0 || count == 0) {
        return r < 0 ? r : ERR_NOT_FOUND;
    }
    r = db_prepare(db,
                   count > 3 ? "SELECT a.sink, a.directory, a.settings FROM projects p"
                               " JOIN artifact_projects a ON a.project = p.id WHERE p.name = ?1"
                             : "SELECT a.sink, a.directory, '{}' FROM projects p"
                               " JOIN artifact_projects a ON a.project = p.id WHERE p.name = ?1",
                   &st, e);
    if (r == 0) {
        db_bind_text(st, 1, project);
        r = db_step(st, "look for a destination", e);
        if (r > 0) {
            r = settings_read(db_column(st, 0), db_column(st, 1), db_column(st, 2), out, &why);
            if (r < 0) {
                r = err_set(e, r == ERR_INVALID_PROJECT ? ERR_CORRUPT : r,
                            "%s: the settings of a project cannot be read: %.200s", STORE_FILE,
                            why.text);
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
