/* The replaced functions call the real ones, which are next in the order of libraries, or glibc's
 * own. What a failed call of SQLite leaves behind in the connection is imitated: until the next
 * call the error code is that of the failure. */
#include "tests/lib/told.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "tests/lib/faults.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#define FAILURE SQLITE_IOERR_READ /* 266 */

static bool armed;
static enum told_kind armed_kind;
static uint64_t seen, failing;
static bool struck;
static char struck_what[160];
static int last_code;   /* of SQLite; 0: its own */
static unsigned inside; /* a call of SQLite */
static unsigned untold; /* failures that nobody was told of */
static unsigned wrong;  /* that were told wrongly, or left something behind */

/* Where the calls of a run without a fault came from. */
#define PLACES_MAX 100000
#define DEPTH      24
static uint64_t places[PLACES_MAX];
static bool noting;

static void note_place(void)
{
    void *frames[DEPTH];
    if (seen < PLACES_MAX) {
        bool was = armed;
        armed = false;
        int n = backtrace(frames, DEPTH);
        armed = was;
        uint64_t hash = 0;
        for (int i = 0; i < n; i++) {
            hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * UINT64_C(0x9e3779b97f4a7c15);
            hash ^= hash >> 29;
        }
        places[seen] = hash;
    }
}

static void note_call(void)
{
    note_place();
    seen++;
}

static bool is_first_or_last(uint64_t at, uint64_t calls)
{
    bool before = false;
    bool behind = false;
    for (uint64_t i = 1; i <= calls && !(before && behind); i++) {
        bool same = i != at && places[i - 1] == places[at - 1];
        before = before || (same && i < at);
        behind = behind || (same && i > at);
    }
    return !before || !behind;
}

/* Counts a call; true: it fails. */
static bool strikes(enum told_kind kind, const char *what)
{
    if (!armed || kind != armed_kind) {
        return false;
    }
    if (noting) {
        note_place();
    }
    seen++;
    if (seen != failing) {
        return false;
    }
    struck = true;
    (void)snprintf(struck_what, sizeof struck_what, "%s", what);
    return true;
}

/* ---- memory ---- */

#ifndef SANITIZED

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);
extern void __libc_free(void *p);

static int64_t live; /* allocations that were not freed */

static bool no_memory(void)
{
    if (armed && inside == 0 && strikes(TOLD_MEMORY, "memory")) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

void *malloc(size_t n)
{
    void *p = no_memory() ? NULL : __libc_malloc(n);
    live += p != NULL;
    return p;
}

void *calloc(size_t count, size_t n)
{
    void *p = no_memory() ? NULL : __libc_calloc(count, n);
    live += p != NULL;
    return p;
}

void *realloc(void *old, size_t n)
{
    void *p = no_memory() ? NULL : __libc_realloc(old, n);
    live += p != NULL && old == NULL;
    return p;
}

void free(void *p)
{
    live -= p != NULL;
    __libc_free(p);
}

#else

static const int64_t live = 0; /* the sanitizer finds what is lost */

#endif

/* What a disk in memory needs is not the program's. */
static const struct os_table *below;

#define X(ret, name, params, args)     \
    static ret quiet_##name params     \
    {                                  \
        inside++;                      \
        ret result = below->name args; \
        inside--;                      \
        return result;                 \
    }
OS_FILE_CALLS(X)
#undef X

/* Who is called back for a name is the program again. */
struct names {
    int (*each)(void *ctx, const char *name);
    void *ctx;
};

static int see_name(void *ctx, const char *name)
{
    const struct names *n = ctx;
    inside--;
    int r = n->each(n->ctx, name);
    inside++;
    return r;
}

static int list_names(const char *dir, int (*each)(void *ctx, const char *name), void *ctx)
{
    struct names n = {each, ctx};
    return quiet_list(dir, see_name, &n);
}

static void quiet_install(void)
{
    static struct os_table table;
    below = os_current();
    table = *below;
#define X(ret, name, params, args) table.name = quiet_##name;
    OS_FILE_CALLS(X)
#undef X
    table.list = list_names;
    os_install(&table);
}

/* ---- SQLite ---- */

/* The library's own function of that name. */
static void *own(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (p == NULL) {
        abort();
    }
    return p;
}

/* What SQLite calls in itself is not counted. */
static bool sqlite_strikes(const char *what)
{
    if (inside > 0) {
        return false;
    }
    last_code = 0;
    if (strikes(TOLD_SQLITE, what != NULL ? what : "a statement")) {
        last_code = FAILURE;
    }
    return last_code != 0;
}

int sqlite3_open_v2(const char *path, sqlite3 **db, int flags, const char *vfs)
{
    static int (*real)(const char *, sqlite3 **, int, const char *);
    real =
        real != NULL ? real : (int (*)(const char *, sqlite3 **, int, const char *))own(__func__);
    inside++;
    int rc = real(path, db, flags, vfs);
    inside--;
    return rc == SQLITE_OK && sqlite_strikes("open a database") ? FAILURE : rc;
}

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int n, sqlite3_stmt **st, const char **tail)
{
    static int (*real)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
    real =
        real != NULL
            ? real
            : (int (*)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **))own(__func__);
    if (sqlite_strikes(sql)) {
        *st = NULL;
        return FAILURE;
    }
    inside++;
    int rc = real(db, sql, n, st, tail);
    inside--;
    return rc;
}

int sqlite3_prepare_v3(sqlite3 *db, const char *sql, int n, unsigned flags, sqlite3_stmt **st,
                       const char **tail)
{
    static int (*real)(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **, const char **);
    real = real != NULL ? real
                        : (int (*)(sqlite3 *, const char *, int, unsigned, sqlite3_stmt **,
                                   const char **))own(__func__);
    if (sqlite_strikes(sql)) {
        *st = NULL;
        return FAILURE;
    }
    inside++;
    int rc = real(db, sql, n, flags, st, tail);
    inside--;
    return rc;
}

/* Cannot fail: nothing is written. */
static bool ends_reading(sqlite3_stmt *st)
{
    const char *sql = sqlite3_sql(st);
    return inside == 0 && sql != NULL && strcmp(sql, "COMMIT") == 0 &&
           sqlite3_db_readonly(sqlite3_db_handle(st), "main") == 1;
}

int sqlite3_step(sqlite3_stmt *st)
{
    static int (*real)(sqlite3_stmt *);
    real = real != NULL ? real : (int (*)(sqlite3_stmt *))own(__func__);
    if (st == NULL) {
        last_code = 0; /* going on with what was not made is a failure of its own */
    } else if (!ends_reading(st) && sqlite_strikes(sqlite3_sql(st))) {
        return FAILURE;
    }
    inside++;
    int rc = real(st);
    inside--;
    return rc;
}

int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *ctx,
                 char **message)
{
    static int (*real)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *,
                       char **);
    real = real != NULL ? real
                        : (int (*)(sqlite3 *, const char *, int (*)(void *, int, char **, char **),
                                   void *, char **))own(__func__);
    if (sqlite_strikes(sql)) {
        return FAILURE;
    }
    inside++;
    int rc = real(db, sql, row, ctx, message);
    inside--;
    return rc;
}

int sqlite3_create_function_v2(sqlite3 *db, const char *name, int n, int flags, void *ctx,
                               void (*fn)(sqlite3_context *, int, sqlite3_value **),
                               void (*step)(sqlite3_context *, int, sqlite3_value **),
                               void (*final)(sqlite3_context *), void (*destroy)(void *))
{
    static int (*real)(sqlite3 *, const char *, int, int, void *,
                       void (*)(sqlite3_context *, int, sqlite3_value **),
                       void (*)(sqlite3_context *, int, sqlite3_value **),
                       void (*)(sqlite3_context *), void (*)(void *));
    real = real != NULL ? real
                        : (int (*)(sqlite3 *, const char *, int, int, void *,
                                   void (*)(sqlite3_context *, int, sqlite3_value **),
                                   void (*)(sqlite3_context *, int, sqlite3_value **),
                                   void (*)(sqlite3_context *), void (*)(void *)))own(__func__);
    return sqlite_strikes(name) ? FAILURE : real(db, name, n, flags, ctx, fn, step, final, destroy);
}

int sqlite3_backup_step(sqlite3_backup *b, int pages)
{
    static int (*real)(sqlite3_backup *, int);
    real = real != NULL ? real : (int (*)(sqlite3_backup *, int))own(__func__);
    if (sqlite_strikes("copy pages")) {
        return FAILURE;
    }
    inside++;
    int rc = real(b, pages);
    inside--;
    return rc;
}

int sqlite3_extended_errcode(sqlite3 *db)
{
    static int (*real)(sqlite3 *);
    real = real != NULL ? real : (int (*)(sqlite3 *))own(__func__);
    return last_code != 0 ? last_code : real(db);
}

int sqlite3_errcode(sqlite3 *db)
{
    static int (*real)(sqlite3 *);
    real = real != NULL ? real : (int (*)(sqlite3 *))own(__func__);
    return last_code != 0 ? last_code & 0xff : real(db);
}

/* ---- the sweep ---- */

static void arm(enum told_kind kind, uint64_t at)
{
    seen = 0;
    noting = at == 0;
    struck = false;
    last_code = 0;
    struck_what[0] = '\0';
    armed_kind = kind;
    failing = at;
    if (kind == TOLD_CALL) {
        faults_install(NULL);
        faults_arm(at, EIO, false, FAULT_ERROR);
        faults_watch(at == 0 ? note_call : NULL);
        return;
    }
    quiet_install();
    armed = true;
}

static void disarm(void)
{
    if (armed_kind == TOLD_CALL) {
        seen = faults_count();
        struck = faults_fired() > 0;
        faults_struck(struck_what, sizeof struck_what);
        faults_uninstall();
    } else {
        os_install(below);
    }
    armed = false;
    last_code = 0;
}

static bool may(const struct told_op *op)
{
    for (size_t i = 0; i < sizeof op->may / sizeof *op->may && op->may[i] != NULL; i++) {
        const char *part = op->may[i];
        if (part[0] == '^' ? strncmp(struck_what, part + 1, strlen(part + 1)) == 0
                           : strstr(struck_what, part) != NULL) {
            return true;
        }
    }
    return false;
}

/* Whether the error that is told is the one that was met, and not what came of going on. */
static bool names_the_cause(enum told_kind kind, int r, const struct err *e)
{
    switch (kind) {
    case TOLD_CALL:
        return r != ERR_CORRUPT &&
               (e->os_errno == EIO || (e->os_errno == 0 && r != ERR_NOT_FOUND && r != ERR_REFUSED));
    case TOLD_SQLITE:
        return strstr(e->text, "SQLite code 266") != NULL;
    case TOLD_MEMORY:
        /* Poisoned by it; or what was done without, for want of it, is not there yet. */
        return r == ERR_NO_MEMORY || r == ERR_WRITER_POISONED || r == ERR_NOT_READY;
    case TOLD_KINDS:
        break;
    }
    return false;
}

/* calls: of a run without a fault. */
static uint64_t once(const struct told_op *op, void *world, enum told_kind kind, uint64_t at,
                     uint64_t calls)
{
    static const char *const kinds[] = {"a call", "SQLite", "an allocation"};
    struct err e = {0};
    int64_t before = live;
    op->begin(world);
    arm(kind, at);
    int r = op->run(world, &e);
    disarm();
    if (at == 0 && r != 0) {
        fail_msg("%s: without a fault: %s", op->name, e.text);
    }
    bool whole = op->retries && seen >= at + calls;
    if (struck && r == 0 && !whole && !may(op)) {
        print_error("%s: %s failed (%llu: %s), and nobody was told\n", op->name, kinds[kind],
                    (unsigned long long)at, struck_what);
        untold++;
    }
    if (r != 0 && (r > 0 || e.text[0] == '\0')) {
        print_error("%s: %s failed (%llu: %s): %d without a text\n", op->name, kinds[kind],
                    (unsigned long long)at, struck_what, r);
        wrong++;
    }
    if (r < 0 && !names_the_cause(kind, r, &e)) {
        print_error("%s: %s failed (%llu: %s), and another cause is told: %s\n", op->name,
                    kinds[kind], (unsigned long long)at, struck_what, e.text);
        wrong++;
    }
    op->end(world, r);
    if (at > 0 && live > before) {
        print_error("%s: %s failed (%llu: %s), and %lld allocations are lost\n", op->name,
                    kinds[kind], (unsigned long long)at, struck_what, (long long)(live - before));
        wrong++;
    }
    return seen;
}

void told_rest(bool on)
{
    inside = on ? inside + 1 : inside - 1;
}

void told_sweep(const struct told_op *op, void *world)
{
    void *frame;
    (void)backtrace(&frame, 1); /* loads what it needs, once */
    untold = 0;
    wrong = 0;
    for (enum told_kind kind = 0; kind < TOLD_KINDS; kind++) {
        uint64_t calls = once(op, world, kind, 0, 0);
        unsigned before = untold;
        assert_true(calls < PLACES_MAX);
        for (uint64_t at = 1; at <= calls; at++) {
            if (is_first_or_last(at, calls)) {
                (void)once(op, world, kind, at, calls);
            }
        }
        unsigned spare = kind == TOLD_MEMORY ? op->spare_memory : op->spare_calls;
        if (untold - before <= spare) {
            untold = before;
        }
    }
    assert_int_equal(untold + wrong, 0);
}
