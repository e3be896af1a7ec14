/* delivery_index: opening and restarting delivery.sqlite.
 *
 * Where each row comes back from when the file is lost (existence table):
 *
 *   fact                      truth                               after a rebuild
 *   artifact                  receipts/ID.json, uploads/ID.info   the scan adds it again
 *   package, building         none needed                         made with the artifact
 *   package, sealed           packages/PACKAGE.plan.json,         the build finds both and adopts
 *                             packages/PACKAGE.manifest.jsonl     them, without reading the bytes
 *   delivery sent, verified   the files at the destination        found there, read back, verified
 *   attempts, errors, times   only here                           forgotten: history, no fact
 *
 * State table of a delivery (D: the step is synced before the next begins):
 *
 *   pending, retry_wait   claim      -> sending     D, before the first byte is sent
 *   sending               sent       -> sent        D, after the destination has synced
 *   sending, sent         verified   -> verified    D, after the destination was read back
 *   sending, sent         failed     -> retry_wait  D, due after the backoff
 *   sending, sent         refused    -> parked      D
 *   sending               put off    -> retry_wait  D, attempt not counted: what an earlier try
 *                                                   may have brought is looked for, not sent
 *   sending               restart    -> retry_wait  due now, attempts kept
 *   parked                restart    -> retry_wait  due now: whoever restarts has looked at it.
 *                                                   What the Archive has refused stays parked until
 *                                                   somebody asks: a process that is started again
 *                                                   by itself must not send a "spam" once more
 *
 * Whether a try that did not end as sent may have brought something is kept in its row
 * (maybe_files), for destinations that show late what they have: noted before such a try is noted
 * as over, and at the start of the process for every row that is `sending` then.
 *
 * Power failure or kill -9 between any two: sending is taken up again and finds what is at the
 * destination already; sent is verified again; a verification that was not noted is made again.
 * Nothing is ever sent under a second name, because the plan is fixed.
 *
 * A damaged file is put aside with its WAL removed: the WAL belongs to it. If power fails between
 * the two, SQLite drops a WAL that it finds without a database.
 *
 * Answers: every error; all end the process, whose next start takes up the rows as above. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/delivery_index_internal.h"
#include "store/artifact/delivery_schema.h"
#include "store/artifact/destination.h"

#define INDEX_CACHE_KIB 4096
#define INDEX_BUSY_MS   5000
#define PATH_BYTES      4200

static const char *const texts[INDEX_STATEMENT_COUNT] = {
#define X(sym, text) [INDEX_##sym] = (text),
    INDEX_STATEMENTS(X)
#undef X
};

static int check_whole(struct sqlite3 *db, struct err *e)
{
    int64_t bad = 0;
    int r = db_number(
        db, "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check IS NOT 'ok'", 0, &bad, e);

    return r == 0 && bad != 0 ? err_set(e, ERR_CORRUPT, "%s is damaged", DELIVERY_FILE) : r;
}

static int set_up(struct delivery_index *ix, struct err *e)
{
    int64_t version = 0;
    int r;

    (void)sqlite3_busy_timeout(ix->db, INDEX_BUSY_MS); /* readers end soon, and nobody waits here */
    r = delivery_schema_check(ix->db, &version, e);
    if (r == 0) {
        r = check_whole(ix->db, e);
    }
    if (r == 0) {
        r = db_exec(ix->db, "PRAGMA journal_mode=WAL", e);
    }
    if (r == 0) {
        r = delivery_schema_forward(ix->db, version, e);
    }
    for (size_t i = 0; r == 0 && i < INDEX_STATEMENT_COUNT; i++) {
        r = db_prepare(ix->db, texts[i], &ix->st[i], e);
    }
    return r;
}

static int open_path(const char *path, struct delivery_index **out, struct err *e)
{
    struct delivery_index *ix = calloc(1, sizeof *ix);
    int r;

    *out = NULL;
    if (ix == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the index of deliveries");
    }
    r = db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, INDEX_CACHE_KIB, &ix->db, e);
    if (r == 0) {
        r = set_up(ix, e);
    }
    if (r < 0) {
        delivery_index_close(ix);
        return r;
    }
    *out = ix;
    return 0;
}

/* The names of a database and of what belongs to it. */
static int remove_beside(const char *path, const char *tail, struct err *e)
{
    char name[PATH_BYTES + 16];
    int r;

    (void)snprintf(name, sizeof name, "%s%s", path, tail);
    r = os_unlink(name);
    return r == 0 || r == -ENOENT ? 0 : err_os(e, r, "remove", name);
}

static int put_aside(const char *path, struct err *e)
{
    char aside[PATH_BYTES + 16];
    int r;

    (void)snprintf(aside, sizeof aside, "%s.damaged", path);
    r = os_rename(path, aside);
    if (r < 0) {
        return err_os(e, r, "rename", path);
    }
    r = remove_beside(path, "-wal", e);
    return r == 0 ? remove_beside(path, "-shm", e) : r;
}

static int path_of(const char *data, char path[PATH_BYTES], struct err *e)
{
    int n = snprintf(path, PATH_BYTES, "%s/" DELIVERY_FILE, data);

    return n > 0 && n < PATH_BYTES
               ? 0
               : err_set(e, ERR_USAGE, "the path of the data directory is too long");
}

int delivery_index_put_aside(const char *data, struct err *e)
{
    char path[PATH_BYTES];
    int r = path_of(data, path, e);

    return r == 0 ? put_aside(path, e) : r;
}

int delivery_index_open(const char *data, struct delivery_index **out, bool *rebuilt, struct err *e)
{
    char path[PATH_BYTES];
    struct os_stat st;
    int r = path_of(data, path, e);

    *out = NULL;
    *rebuilt = false;
    if (r < 0) {
        return r;
    }
    r = os_stat(path, &st);
    if (r < 0 && r != -ENOENT) {
        return err_os(e, r, "stat", path);
    }
    if (r < 0) {
        *rebuilt = true;
        r = remove_beside(path, "-wal", e);
        if (r == 0) {
            r = remove_beside(path, "-shm", e);
        }
        return r == 0 ? open_path(path, out, e) : r;
    }
    r = open_path(path, out, e);
    if (r == ERR_CORRUPT) {
        log_line(LOG_ERROR, "deliver",
                 "%s; it is put aside as %s.damaged and made anew from receipts and plans",
                 e == NULL ? "the index is damaged" : e->text, DELIVERY_FILE);
        *rebuilt = true;
        r = put_aside(path, e);
        if (r == 0) {
            r = open_path(path, out, e);
        }
    }
    return r;
}

void delivery_index_close(struct delivery_index *ix)
{
    if (ix == NULL) {
        return;
    }
    for (size_t i = 0; i < INDEX_STATEMENT_COUNT; i++) {
        sqlite3_finalize(ix->st[i]);
    }
    sqlite3_close(ix->db);
    free(ix);
}

int delivery_index_restart(struct delivery_index *ix, int64_t now_ms, struct err *e)
{
    char sql[640];
    int n = snprintf(sql, sizeof sql,
                     "UPDATE deliveries SET maybe_files = -1, maybe_at = %lld"
                     " WHERE state = 'sending';"
                     "UPDATE deliveries SET state = 'retry_wait', next_attempt_ms = %lld,"
                     " last_error = CASE state WHEN 'sending' THEN"
                     " 'the process ended while it was being sent' ELSE last_error END,"
                     " way_out = '' WHERE state = 'sending' OR"
                     " (state = 'parked' AND sink <> '" DESTINATION_ARCHIVE "');"
                     "UPDATE packages SET state = 'building', next_build_ms = %lld, way_out = ''"
                     " WHERE state = 'blocked'; DELETE FROM running; DELETE FROM holds",
                     (long long)now_ms / 1000, (long long)now_ms, (long long)now_ms);
    int r;

    ensure(n > 0 && (size_t)n < sizeof sql);
    r = delivery_index_begin(ix, e);
    if (r < 0) {
        return r;
    }
    r = db_exec(ix->db, sql, e);
    if (r == 0) {
        r = delivery_index_commit(ix, e);
    }
    if (r < 0) {
        delivery_index_undo(ix);
    }
    return r;
}
