/* Opening with our settings, running statements, and what SQLite's codes mean to us.
 *
 * If power fails: nothing here is durable by itself; synchronous=FULL is set on every connection
 * that writes, so that a commit in WAL mode returns after its sync.
 *
 * Answers: all errors, by store_err. What they mean for the store (undone, poisoned) is decided in
 * turn.c. A statement text that does not compile is a bug unless the file is broken. */
#include "store/db.h"

#include <errno.h>
#include <pthread.h>
#include <sys/types.h>

#include "base/ensure.h"

/* Whether the last write into the WAL or the database failed for a quota, which SQLite does not
 * tell from a broken disk (nor does sqlite3_system_errno know it after a COMMIT). */
static bool over_quota(struct sqlite3 *db)
{
    sqlite3_file *wal = NULL;
    int last = 0;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK &&
        last == EDQUOT) {
        return true;
    }
    return sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal) == SQLITE_OK &&
           wal != NULL && wal->pMethods != NULL &&
           wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &last) == SQLITE_OK &&
           last == EDQUOT;
}

int store_err(struct err *e, struct sqlite3 *db, const char *what)
{
    int rc = sqlite3_extended_errcode(db);
    int code = ERR_INTERNAL_ERROR;

    switch (rc & 0xff) {
    case SQLITE_FULL:
        code = ERR_NO_SPACE;
        break;
    case SQLITE_NOMEM:
        code = ERR_NO_MEMORY;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        code = ERR_CORRUPT;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = ERR_STORE_BUSY;
        break;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_PROTOCOL:
        code = ERR_IO;
        break;
    default:
        break;
    }
    if (rc == SQLITE_IOERR_NOMEM) {
        code = ERR_NO_MEMORY;
    } else if (rc == SQLITE_IOERR_SHMSIZE) {
        code = ERR_NO_SPACE; /* the WAL's index, which holds nothing durable, cannot grow */
    } else if (rc == SQLITE_IOERR_WRITE && over_quota(db)) {
        code = ERR_NO_SPACE;
    }
    int os_errno = code == ERR_IO ? sqlite3_system_errno(db) : 0;
    char why[64] = "";
    if (os_errno != 0) {
        sqlite3_snprintf((int)sizeof why, why, ", %s", strerrordesc_np(os_errno));
    }
    err_set(e, code, "%s: %s (SQLite code %d%s)", what, sqlite3_errmsg(db), rc, why);
    if (e != NULL) {
        e->os_errno = os_errno;
    }
    return code;
}

int db_exec(struct sqlite3 *db, const char *sql, struct err *e)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        char what[64];
        sqlite3_snprintf((int)sizeof what, what, "run '%.40s'", sql);
        return store_err(e, db, what);
    }
    return 0;
}

static int settings(struct sqlite3 *db, int cache_kib, struct err *e)
{
    char cache[64];
    int r;

    sqlite3_extended_result_codes(db, 1);
    /* A foreign process that writes for a moment is waited for, but not long: this is the loop. */
    sqlite3_busy_timeout(db, 50);
    if (sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL) != SQLITE_OK ||
        sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) != SQLITE_OK ||
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL) != SQLITE_OK) {
        return store_err(e, db, "set up the connection");
    }
    sqlite3_snprintf((int)sizeof cache, cache, "PRAGMA cache_size=-%d", cache_kib);
    r = db_exec(db, cache, e);
    /* secure_delete=FAST: Debian's default zeroes every freed page and so writes it once more;
     * docs and seed promise logical deletion, not erasure. */
    return r < 0 ? r
                 : db_exec(db,
                           "PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;"
                           "PRAGMA synchronous=FULL; PRAGMA secure_delete=FAST;"
                           "PRAGMA foreign_keys=OFF; PRAGMA recursive_triggers=OFF;"
                           "PRAGMA cell_size_check=ON",
                           e);
}

/* ---- the WAL's index on a full disk ---- */

#define SHM_PAGE_BYTES 4096 /* of unixShmMap, whatever the machine's page is */

static ssize_t (*write_at)(int fd, const void *p, size_t n, off_t at); /* SQLite's own */

/* SQLite makes room for its WAL's index (NAME-shm, which it maps) by one byte at the end of each
 * page. Where blocks are smaller than that, on ext4 of less than 512 MiB say, the rest of the page
 * is a hole, and on a full disk touching it is a SIGBUS. So the whole page is written: it lies
 * behind the end of the file, or is the first one and holds nothing. No room is then an answer
 * (SQLITE_IOERR_SHMSIZE). SQLite writes single NULs for nothing else with our settings. */
static ssize_t write_page(int fd, const void *p, size_t n, off_t at)
{
    static const char page[SHM_PAGE_BYTES];

    if (n != 1 || *(const char *)p != '\0' || at % SHM_PAGE_BYTES != SHM_PAGE_BYTES - 1) {
        return write_at(fd, p, n, at);
    }
    ssize_t written = write_at(fd, page, sizeof page, at - (SHM_PAGE_BYTES - 1));
    if (written >= 0 && written < SHM_PAGE_BYTES) {
        errno = ENOSPC;
        written = -1;
    }
    return written < 0 ? written : 1;
}

static void write_whole_pages(void)
{
    static const char *const names[] = {"pwrite64", "pwrite"}; /* it is built with one of them */
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    static_assert(sizeof(off_t) == 8, "both have the same form");
    for (size_t i = 0; vfs != NULL && vfs->iVersion >= 3 && i < 2; i++) {
        sqlite3_syscall_ptr own = vfs->xGetSystemCall(vfs, names[i]);
        if (own != NULL) {
            write_at = (ssize_t(*)(int, const void *, size_t, off_t))own;
            (void)vfs->xSetSystemCall(vfs, names[i], (sqlite3_syscall_ptr)write_page);
        }
    }
}

/* SQLite's own count of memory in use costs a lock at every allocation, and nobody reads it. Only
 * possible before SQLite is first used; else the count stays, which does no harm. */
static void configure(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    write_whole_pages();
}

int db_open(const char *path, int flags, int cache_kib, struct sqlite3 **out, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sqlite3 *db = NULL;
    int r = 0;

    *out = NULL;
    pthread_once(&once, configure);
    if (sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, NULL) !=
        SQLITE_OK) {
        r = db == NULL ? err_set(e, ERR_NO_MEMORY, "open %s: out of memory", path)
                       : store_err(e, db, "open the database");
    }
    if (r == 0) {
        r = settings(db, cache_kib, e);
    }
    if (r < 0) {
        sqlite3_close(db);
        return r;
    }
    *out = db;
    return 0;
}

int db_prepare(struct sqlite3 *db, const char *sql, struct sqlite3_stmt **out, struct err *e)
{
    if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK) {
        char what[64];
        sqlite3_snprintf((int)sizeof what, what, "prepare '%.40s'", sql);
        return store_err(e, db, what);
    }
    return 0;
}

int db_step(struct sqlite3_stmt *st, const char *what, struct err *e)
{
    int rc = sqlite3_step(st);

    if (rc == SQLITE_ROW) {
        return 1;
    }
    if (rc == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    rc = store_err(e, sqlite3_db_handle(st), what);
    sqlite3_reset(st);
    ensure(rc < 0);
    return rc;
}

int db_run(struct sqlite3_stmt *st, const char *what, struct err *e)
{
    int r = db_step(st, what, e);

    ensure(r <= 0);
    return r;
}

int db_number(struct sqlite3 *db, const char *sql, int64_t fallback, int64_t *out, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    int r = db_prepare(db, sql, &st, e);

    *out = fallback;
    if (r == 0) {
        r = db_step(st, "read a number", e);
    }
    if (r > 0) {
        if (sqlite3_column_type(st, 0) != SQLITE_NULL) {
            *out = sqlite3_column_int64(st, 0);
        }
        r = 0;
    }
    sqlite3_finalize(st);
    return r;
}

void db_bind_int(struct sqlite3_stmt *st, int at, int64_t v)
{
    int rc = sqlite3_bind_int64(st, at, v);
    ensure(rc == SQLITE_OK);
}

void db_bind_text(struct sqlite3_stmt *st, int at, struct slice v)
{
    /* NULL would be stored as NULL; an empty slice is an empty text. */
    int rc =
        sqlite3_bind_text64(st, at, v.len == 0 ? "" : v.ptr, v.len, SQLITE_STATIC, SQLITE_UTF8);
    ensure(rc == SQLITE_OK || rc == SQLITE_NOMEM || rc == SQLITE_TOOBIG);
}

void db_bind_blob(struct sqlite3_stmt *st, int at, struct slice v)
{
    int rc = sqlite3_bind_blob64(st, at, v.len == 0 ? "" : v.ptr, v.len, SQLITE_STATIC);
    ensure(rc == SQLITE_OK || rc == SQLITE_NOMEM || rc == SQLITE_TOOBIG);
}

struct slice db_column(struct sqlite3_stmt *st, int at)
{
    const void *p = sqlite3_column_blob(st, at);
    int n = sqlite3_column_bytes(st, at);

    ensure(n >= 0);
    return p == NULL ? SLICE("") : slice_of(p, (size_t)n);
}
