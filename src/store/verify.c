/* verify: how tallyman.sqlite, or another database of ours, is opened and checked without changing
 * a byte.
 *
 * Everything is read through the VFS of verify_vfs.c. First comes what a start of the server would
 * refuse: is it a database, ours, of a version we know, with our tables, indexes and triggers word
 * for word. Then SQLite's integrity check, then our invariants. Damage that is met on the way is
 * told and the next check goes on.
 *
 * Beside a server no view lasts longer than about a second, because its WAL cannot be reset under
 * one: rows are checked in slices, and SQLite's check and the counters end when the time is over
 * (`partial`). Without a server a view is as long as it needs; if a server has come meanwhile, what
 * was found is forgotten and looked for again. While the WAL's index cannot be read, because its
 * server is in the midst of changing it, verify waits, at least PATIENCE_NS in growing pauses: a
 * server that a busy machine has stopped just there goes on by then.
 *
 * A database whose making was cut off by a crash, before anything was acknowledged, is none:
 * `absent`. What a migration has not yet filled (no next_event_id) is not held against it.
 *
 * Power failure: nothing is written. Answers: all errors. Stops, aborts: none. */
#include "store/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os/os.h"
#include "store/db.h"
#include "store/schema.h"
#include "store/verify_internal.h"

#define LOOKS_MAX    5                     /* at what may be no more than a server that came */
#define PATIENCE_NS  UINT64_C(10000000000) /* with an index that cannot be read just now */
#define PAUSE_MS_MAX 256
#define VIEW_NS      UINT64_C(900000000)
#define TEXT_MAX     400

/* ---- telling ---- */

void verify_tell(struct verify_run *v, enum verify_kind kind, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list args;
    v->result->violations++;
    if (++v->kinds[kind] > VERIFY_TOLD_MAX) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    buf_put(&v->told, text, strlen(text) + 1);
}

static int tell_all(struct verify_run *v, void (*found)(void *ctx, const char *text), void *ctx)
{
    static const char *const names[] = {
#define X(sym, name) name,
        VERIFY_KINDS(X)
#undef X
    };
    for (unsigned kind = 0; kind < VERIFY_KIND_COUNT; kind++) {
        if (v->kinds[kind] > VERIFY_TOLD_MAX) {
            buf_printf(&v->told, "%llu more of these: %s",
                       (unsigned long long)(v->kinds[kind] - VERIFY_TOLD_MAX), names[kind]);
            buf_put_char(&v->told, '\0');
        }
    }
    if (v->told.failed) {
        return err_set(v->e, ERR_NO_MEMORY, "no memory for what was found");
    }
    for (size_t at = 0; at < v->told.len; at += strlen(v->told.ptr + at) + 1) {
        found(ctx, v->told.ptr + at);
    }
    return 0;
}

/* The index of a WAL whose server is just coming or going, or is stopped in the midst of changing
 * it: a reader that may not write the index gets these where another would wait or mend it. */
static bool is_passing(struct sqlite3 *db)
{
    int rc = sqlite3_extended_errcode(db) & 0xff;
    return rc == SQLITE_BUSY || rc == SQLITE_PROTOCOL || rc == SQLITE_READONLY;
}

int verify_failed(struct verify_run *v, const char *what)
{
    if (is_passing(v->db)) {
        (void)store_err(v->e, v->db, what);
        return VERIFY_AGAIN;
    }
    switch (sqlite3_extended_errcode(v->db) & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* a text of ours does not compile: not against what should be there */
        verify_tell(v, VERIFY_KIND_DAMAGE, "%s: %s", what, sqlite3_errmsg(v->db));
        return 0;
    case SQLITE_INTERRUPT:
        v->result->partial = true;
        return 0;
    default:
        return store_err(v->e, v->db, what);
    }
}

/* The same where nothing can be read behind it: damage is ERR_CORRUPT. */
int verify_unreadable(struct sqlite3 *db, const char *what, struct err *e)
{
    int r = store_err(e, db, what);
    if (is_passing(db)) {
        return VERIFY_AGAIN;
    }
    /* SQLITE_ERROR: a file format that SQLite does not know. */
    if (r == ERR_INTERNAL_ERROR) {
        r = err_set(e, ERR_CORRUPT, "%s: %s", what, sqlite3_errmsg(db));
    }
    return r;
}

/* ---- time ---- */

static int over(void *ctx)
{
    const struct verify_run *v = ctx;
    return os_clock_mono_ns() > v->limit_ns;
}

void verify_limit_begin(struct verify_run *v)
{
    if (v->result->live) {
        v->limit_ns = os_clock_mono_ns() + VIEW_NS;
        sqlite3_progress_handler(v->db, 5000, over, v);
    }
}

void verify_limit_end(struct verify_run *v)
{
    sqlite3_progress_handler(v->db, 0, NULL, NULL);
}

/* ---- what a start would refuse ---- */

/* One number of a statement that is used once. */
static int number(struct verify_run *v, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(v->db, sql, -1, &st, NULL);
    *out = 0;
    rc = rc == SQLITE_OK ? sqlite3_step(st) : rc;
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
    }
    int r =
        rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : verify_unreadable(v->db, "read the head", v->e);
    (void)sqlite3_finalize(st);
    return r;
}

int verify_head(struct verify_run *v, int application, int newest, bool *known)
{
    int64_t tables;
    int64_t theirs;
    *known = false;
    int r = number(v, "SELECT count(*) FROM sqlite_master", &tables);
    r = r == 0 ? number(v, "PRAGMA user_version", &v->version) : r;
    r = r == 0 ? number(v, "PRAGMA application_id", &theirs) : r;
    if (r != 0) {
        return r;
    }
    v->result->live = verify_vfs_live(v->db);
    if (tables == 0 && theirs == 0 && v->version == 0) {
        v->result->absent = true;
    } else if (tables == 0 || theirs != application) {
        verify_tell(v, VERIFY_KIND_SCHEMA, "%s is another program's database", v->name);
    } else if (v->version < 1 || v->version > newest) {
        verify_tell(v, VERIFY_KIND_SCHEMA, "schema version %lld; this program knows 1 to %d",
                    (long long)v->version, newest);
    } else {
        *known = true;
    }
    return 0;
}

int verify_tell_rows(struct verify_run *v, const char *sql, enum verify_kind kind, const char *what)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(v->db, sql, -1, &st, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW && sqlite3_column_type(st, 0) != SQLITE_NULL) {
            const unsigned char *text = sqlite3_column_text(st, 0);
            verify_tell(v, kind, "%s%s%s", what != NULL ? what : "", what != NULL ? ": " : "",
                        text != NULL ? (const char *)text : "?");
        }
    }
    int r = rc == SQLITE_DONE ? 0 : verify_failed(v, what != NULL ? what : v->name);
    (void)sqlite3_finalize(st);
    return r;
}

/* A line for each object of a schema, in order. */
static int list_schema(struct sqlite3 *db, struct buf *out)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db,
                                "SELECT type || ' ' || name || char(10) || ifnull(sql, '')"
                                " FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
                                " ORDER BY type, name",
                                -1, &st, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW) {
            buf_put(out, sqlite3_column_blob(st, 0), (size_t)sqlite3_column_bytes(st, 0));
            buf_put_char(out, '\0');
        }
    }
    (void)sqlite3_finalize(st);
    return rc;
}

static void compare_schema(struct verify_run *v, const struct buf *ours, const struct buf *theirs)
{
    size_t a = 0;
    size_t b = 0;
    while (a < ours->len || b < theirs->len) {
        const char *x = a < ours->len ? ours->ptr + a : "";
        const char *y = b < theirs->len ? theirs->ptr + b : "";
        int order = *x == '\0' ? 1 : *y == '\0' ? -1 : strcmp(x, y);
        int name = (int)strcspn(order <= 0 ? x : y, "\n");
        if (order != 0) {
            verify_tell(v, VERIFY_KIND_SCHEMA, "schema: %.*s is %s", name, order < 0 ? x : y,
                        order < 0 ? "missing or not as it should be" : "not ours");
        }
        a += order <= 0 ? strlen(x) + 1 : 0;
        b += order >= 0 ? strlen(y) + 1 : 0;
    }
}

/* Both schemas, listed into empty buffers; what differs is told. */
static int check_schema(struct verify_run *v, struct sqlite3 *example,
                        int (*make)(struct sqlite3 *db, struct err *e), struct buf *ours,
                        struct buf *theirs)
{
    int r = make(example, v->e);
    if (r < 0) {
        return r;
    }
    if (list_schema(example, ours) != SQLITE_DONE) {
        return store_err(v->e, example, "read our own schema");
    }
    if (list_schema(v->db, theirs) != SQLITE_DONE) {
        return verify_failed(v, "read the schema");
    }
    if (ours->failed || theirs->no_memory) {
        return err_set(v->e, ERR_NO_MEMORY, "no memory to compare the schema");
    }
    if (theirs->failed) {
        verify_tell(v, VERIFY_KIND_SCHEMA, "schema: it is not ours, by its size");
    } else {
        compare_schema(v, ours, theirs);
    }
    return 0;
}

int verify_schema(struct verify_run *v, int (*make)(struct sqlite3 *db, struct err *e))
{
    struct sqlite3 *example = NULL;
    struct buf ours;
    struct buf theirs;
    int r = db_open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 256, &example, v->e);
    if (r < 0) {
        return r;
    }
    buf_init(&ours, 1u << 20);
    buf_init(&theirs, 1u << 20);
    r = check_schema(v, example, make, &ours, &theirs);
    (void)sqlite3_close(example);
    buf_free(&ours);
    buf_free(&theirs);
    return r;
}

int verify_integrity(struct verify_run *v)
{
    verify_limit_begin(v);
    int r = verify_tell_rows(v,
                             "SELECT CASE WHEN integrity_check <> 'ok' THEN integrity_check END"
                             " FROM pragma_integrity_check(101)",
                             VERIFY_KIND_DAMAGE, "integrity check");
    verify_limit_end(v);
    return r;
}

/* ---- one run ---- */

static int make_schema(struct sqlite3 *db, struct err *e)
{
    int64_t version;
    return schema_open(db, &version, e);
}

/* An older version has no example: its tables are in the newest one as they were, and a start
 * brings them forward. */
static int check_all(struct verify_run *v)
{
    bool known;
    int r = verify_head(v, SCHEMA_APPLICATION_ID, SCHEMA_VERSION, &known);
    if (r != 0 || !known) {
        return r;
    }
    r = v->version == SCHEMA_VERSION ? verify_schema(v, make_schema) : 0;
    r = r == 0 ? verify_integrity(v) : r;
    /* With other tables the questions below would not mean what they say. */
    if (r != 0 || v->kinds[VERIFY_KIND_SCHEMA] > 0) {
        return r;
    }
    r = verify_rows(v);
    return r == 0 ? verify_counters(v) : r;
}

/* file:PATH?readonly_shm=1 with what would be syntax escaped. */
static int make_uri(const char *path, const char *name, char *out, size_t size, struct err *e)
{
    static const char hex[] = "0123456789ABCDEF";
    struct buf b;
    buf_init(&b, size - 1);
    buf_put_cstr(&b, "file:");
    for (const char *p = path; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '?' || c == '#' || c == '%' || c < ' ') {
            buf_put_char(&b, '%');
            buf_put_char(&b, hex[c >> 4]);
            buf_put_char(&b, hex[c & 15]);
        } else {
            buf_put_char(&b, *p);
        }
    }
    buf_put_cstr(&b, "?readonly_shm=1");
    int r = 0;
    if (!b.failed) {
        memcpy(out, b.ptr, b.len);
        out[b.len] = '\0';
    } else if (b.no_memory) {
        r = err_set(e, ERR_NO_MEMORY, "no memory to open %s", name);
    } else {
        r = err_set(e, ERR_IO, "the path of %s is too long", name);
    }
    buf_free(&b);
    return r;
}

int verify_open_read_only(const char *path, const char *name, struct sqlite3 **out, struct err *e)
{
    char uri[VERIFY_PATH_MAX];
    const char *vfs = verify_vfs();
    *out = NULL;
    if (vfs == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the read-only VFS");
    }
    int r = make_uri(path, name, uri, sizeof uri, e);
    if (r != 0) {
        return r;
    }
    int flags =
        SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    int rc = sqlite3_open_v2(uri, out, flags, vfs);
    if (rc == SQLITE_OK) {
        (void)sqlite3_extended_result_codes(*out, 1);
        (void)sqlite3_busy_timeout(*out, 1000);
        (void)sqlite3_db_config(*out, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        (void)sqlite3_db_config(*out, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
        (void)sqlite3_db_config(*out, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        rc = sqlite3_exec(*out,
                          "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-8192;"
                          "PRAGMA cell_size_check=ON",
                          NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        return 0;
    }
    return *out == NULL ? err_set(e, ERR_NO_MEMORY, "no memory to open %s", name)
                        : verify_unreadable(*out, "open the database", e);
}

/* ---- one look, and the next ---- */

static int run_once(struct verify_run *v, const char *path, const struct verify_signature *before)
{
    if (verify_files(v, before)) {
        return 0;
    }
    int r = verify_open_read_only(path, v->name, &v->db, v->e);
    if (r == 0) {
        r = v->check(v);
    }
    if (v->db != NULL && verify_vfs_unread(v->db) && (r == ERR_CORRUPT || r == 0)) {
        r = err_set(v->e, ERR_IO, "%s could not be read", v->name);
    }
    (void)sqlite3_close(v->db);
    v->db = NULL;
    return r;
}

/* Whether what was found may be no more than the work of a server that came meanwhile. */
static bool disturbed(const struct verify_run *v, const char *path,
                      const struct verify_signature *before, int r)
{
    struct verify_signature after;
    if (r == 0 && (v->result->live || v->result->violations == 0)) {
        return false;
    }
    if (v->result->live) {
        return true; /* it cuts its log when it stops, under our hands */
    }
    return verify_sign(path, &after, NULL) != 0 || memcmp(&after, before, sizeof after) != 0;
}

/* How often was looked, and how long there was nothing to be seen. */
struct patience {
    unsigned looks;
    unsigned unseen;
    uint64_t end_ns; /* on os_clock_mono_ns; 0: it has always been seen */
    int pause_ms;
};

/* Whether to look once more, after a pause. What was found ends it soon, so that damage is told as
 * quickly beside a server as without one; what could not be read is waited for. */
static bool look_again(struct patience *p, int r, bool disturbed)
{
    if (r == VERIFY_AGAIN) {
        uint64_t now = os_clock_mono_ns();
        p->end_ns = p->end_ns == 0 ? now + PATIENCE_NS : p->end_ns;
        if (++p->unseen >= LOOKS_MAX && now >= p->end_ns) {
            return false;
        }
    } else if (++p->looks >= LOOKS_MAX || !disturbed) {
        return false;
    }
    (void)sqlite3_sleep(p->pause_ms);
    p->pause_ms = p->pause_ms < PAUSE_MS_MAX ? p->pause_ms * 2 : PAUSE_MS_MAX;
    return true;
}

int verify_database(const char *data, const char *name, int (*check)(struct verify_run *run),
                    void *check_ctx, void (*found)(void *ctx, const char *text), void *ctx,
                    struct store_verify_result *out, struct err *e)
{
    char path[VERIFY_PATH_MAX];
    struct patience p = {.pause_ms = 1};
    struct err why = {0};
    bool again;
    int r;
    int n = snprintf(path, sizeof path, "%s/%s", data, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return err_set(e, ERR_IO, "the path of the data directory is too long");
    }
    do {
        struct verify_run v = {
            .name = name, .check = check, .check_ctx = check_ctx, .result = out, .e = &why};
        struct verify_signature before;
        memset(out, 0, sizeof *out);
        r = verify_sign(path, &before, &why);
        r = r == 0 ? run_once(&v, path, &before) : r;
        again = look_again(&p, r, r != VERIFY_AGAIN && disturbed(&v, path, &before, r));
        r = r == 0 && !again ? tell_all(&v, found, ctx) : r;
        buf_free(&v.told);
    } while (again);
    if (r == VERIFY_AGAIN) {
        return err_set(e, ERR_IO, "%s is in use and could not be read: %s", name, why.text);
    }
    if (r != 0 && e != NULL) {
        *e = why;
    }
    return r;
}

int store_verify(const char *data, void (*found)(void *ctx, const char *text), void *ctx,
                 struct store_verify_result *out, struct err *e)
{
    return verify_database(data, STORE_FILE, check_all, NULL, found, ctx, out, e);
}
