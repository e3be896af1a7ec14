/* copy: SQLite's online backup of a database that another process may be writing.
 *
 * The source is opened as verify opens it: nothing of it is changed, with a server (its log's index
 * is read) or without one (the log that a kill left is read through an index in memory). One read
 * transaction spans the whole copy: SQLite's backup would otherwise begin anew after every commit
 * of the server's, for ever under load. While it lasts the server's log cannot begin anew, so the
 * copy is written without a sync and with no journal on the disk, and synced afterwards: what it
 * holds up is bounded by reading the database once.
 *
 * Power failure: a copy that was cut is a file that nobody names. Answers: all errors; a server
 * that comes or goes meanwhile is waited for. */
#include "store/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/db.h"
#include "store/verify_internal.h"

#define PATIENCE_NS UINT64_C(10000000000)
#define PAUSE_MS    20
#define STEP_PAGES  1024
#define COPY_MODE   0600u
#define COPY_KIB    2048
#define COPY_PRAGMAS \
    "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE"

struct copying {
    struct sqlite3 *from, *into;
    store_copy_progress_fn *progress;
    void *ctx;
    struct err *e;
};

/* Page after page of the view that is held; an error of either side. */
static int copy_pages(struct copying *c)
{
    sqlite3_backup *b = sqlite3_backup_init(c->into, "main", c->from, "main");
    int rc = SQLITE_OK;
    if (b == NULL) {
        return store_err(c->e, c->into, "begin a copy");
    }
    /* Never busy: the view is held, and the copy is ours alone. */
    while (rc == SQLITE_OK) {
        rc = sqlite3_backup_step(b, STEP_PAGES);
        uint64_t total = (uint64_t)sqlite3_backup_pagecount(b);
        uint64_t left = (uint64_t)sqlite3_backup_remaining(b);
        if (c->progress != NULL) {
            c->progress(c->ctx, total - left, total);
        }
    }
    int end = sqlite3_backup_finish(b); /* the step's error once more, and into's */
    if (rc == SQLITE_DONE && end == SQLITE_OK) {
        return 0;
    }
    if (verify_vfs_unread(c->from)) {
        return err_set(c->e, ERR_IO, "it could not be read");
    }
    return store_err(c->e, c->into, "copy the database");
}

/* A view, then its pages. 1 (VERIFY_AGAIN): somebody came or went, look anew. */
static int copy_view(struct copying *c, const char *to)
{
    if (sqlite3_exec(c->from, "BEGIN; SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) !=
        SQLITE_OK) {
        return verify_unreadable(c->from, "read the database", c->e);
    }
    int r = db_open(to, SQLITE_OPEN_READWRITE, COPY_KIB, &c->into, c->e);
    if (r == 0) {
        r = db_exec(c->into, COPY_PRAGMAS, c->e);
    }
    return r == 0 ? copy_pages(c) : r;
}

static int copy_once(struct copying *c, const char *path, const char *name, const char *to)
{
    int r = verify_open_read_only(path, name, &c->from, c->e);
    if (r == 0) {
        r = copy_view(c, to);
    }
    int closed = sqlite3_close(c->into);
    ensure(closed == SQLITE_OK);
    (void)sqlite3_close(c->from);
    c->into = NULL;
    c->from = NULL;
    return r;
}

/* An empty file that SQLite then finds: with our mode, and never an older one. */
static int make_file(const char *to, struct err *e)
{
    int fd = os_open(to, O_RDWR | O_CREAT | O_EXCL, COPY_MODE);
    if (fd < 0) {
        return err_os(e, fd, "make", to);
    }
    int r = os_close(fd);
    return r < 0 ? err_os(e, r, "make", to) : 0;
}

static int sync_file(const char *to, struct err *e)
{
    int fd = os_open(to, O_RDWR, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", to);
    }
    int r = os_fsync(fd);
    int closed = os_close(fd);
    r = r < 0 ? r : closed;
    return r < 0 ? err_os(e, r, "sync", to) : 0;
}

int store_copy(const char *data, const char *name, const char *to, store_copy_progress_fn *progress,
               void *ctx, struct err *e)
{
    char path[VERIFY_PATH_MAX];
    struct copying c = {.progress = progress, .ctx = ctx, .e = e};
    struct os_stat st = {0};
    uint64_t deadline_ns = os_clock_mono_ns() + PATIENCE_NS;
    int n = snprintf(path, sizeof path, "%s/%s", data, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return err_set(e, ERR_IO, "the path of the data directory is too long");
    }
    int r = os_stat(path, &st);
    if (r == -ENOENT || (r == 0 && st.size == 0)) {
        return err_set(e, ERR_NOT_FOUND, "there is no %s", name);
    }
    r = r < 0 ? err_os(e, r, "stat", path) : make_file(to, e);
    while (r == 0) {
        r = copy_once(&c, path, name, to);
        if (r != VERIFY_AGAIN) {
            break;
        }
        if (os_clock_mono_ns() > deadline_ns) {
            return err_set(e, ERR_STORE_BUSY, "%s is in use and could not be read", name);
        }
        (void)sqlite3_sleep(PAUSE_MS);
        r = 0;
    }
    return r == 0 ? sync_file(to, e) : r;
}
