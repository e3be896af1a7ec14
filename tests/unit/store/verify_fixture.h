/* verify_fixture: a small good database in a directory of its own, copies of it, and servers that
 * are no more than their transactions. */
#ifndef TESTS_UNIT_STORE_VERIFY_FIXTURE_H
#define TESTS_UNIT_STORE_VERIFY_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "os/os.h"
#include "store/db.h"
#include "store/schema.h"
#include "store/verify.h"
#include "tests/lib/modeldisk.h"
#include "tests/lib/os_vfs.h"

#define FIXTURE_PATH 512
#define FIXTURE_MAY  __attribute__((unused)) static

struct fixture {
    char root[64];
    char data[256];      /* below root */
    unsigned char *good; /* the database's bytes */
    size_t good_size;
    int ready; /* a server says that it is */
    /* of the last verify */
    struct store_verify_result result;
    struct err e;
    char told[32768]; /* lines */
    unsigned lines;
};

/* ---- files ---- */

FIXTURE_MAY void fixture_write(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(close(fd), 0);
}

FIXTURE_MAY unsigned char *fixture_read(const char *path, size_t *n)
{
    struct os_stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(os_real.fstat(fd, &st), 0);
    unsigned char *bytes = malloc(st.size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, st.size), st.size);
    assert_int_equal(close(fd), 0);
    *n = st.size;
    return bytes;
}

FIXTURE_MAY void fixture_path(const struct fixture *f, const char *suffix, char out[FIXTURE_PATH])
{
    int n = snprintf(out, FIXTURE_PATH, "%s/%s%s", f->data, STORE_FILE, suffix);
    assert_true(n > 0 && n < FIXTURE_PATH);
}

FIXTURE_MAY void fixture_remove(const struct fixture *f, const char *suffix)
{
    char path[FIXTURE_PATH];
    fixture_path(f, suffix, path);
    assert_true(unlink(path) == 0 || errno == ENOENT);
}

FIXTURE_MAY bool fixture_exists(const struct fixture *f, const char *suffix)
{
    char path[FIXTURE_PATH];
    fixture_path(f, suffix, path);
    return access(path, F_OK) == 0;
}

/* The good database again, alone. */
FIXTURE_MAY void fixture_restore(const struct fixture *f)
{
    char path[FIXTURE_PATH];
    fixture_remove(f, "-wal");
    fixture_remove(f, "-shm");
    fixture_remove(f, "-journal");
    fixture_path(f, "", path);
    fixture_write(path, f->good, f->good_size);
}

/* What is in the directory, to the byte. */
struct listing {
    uint64_t files;
    uint64_t hash[4]; /* 0: not there */
};

FIXTURE_MAY int fixture_count_file(void *ctx, const char *name)
{
    struct listing *l = ctx;
    (void)name;
    l->files++;
    return 0;
}

FIXTURE_MAY struct listing fixture_list(const struct fixture *f)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    struct listing l;
    memset(&l, 0, sizeof l);
    assert_int_equal(os_real.list(f->data, fixture_count_file, &l), 0);
    for (size_t i = 0; i < 4; i++) {
        char path[FIXTURE_PATH];
        size_t n;
        fixture_path(f, suffixes[i], path);
        if (access(path, F_OK) != 0) {
            continue;
        }
        unsigned char *bytes = fixture_read(path, &n);
        l.hash[i] = 0xcbf29ce484222325u + n;
        for (size_t at = 0; at < n; at++) {
            l.hash[i] = (l.hash[i] ^ bytes[at]) * 0x100000001b3u;
        }
        free(bytes);
    }
    return l;
}

/* ---- databases ---- */

FIXTURE_MAY void fixture_sql(struct sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sqlite3_errmsg(db), sql);
    }
}

/* For writing; closing it checkpoints and leaves the database alone. */
FIXTURE_MAY struct sqlite3 *fixture_db(const struct fixture *f)
{
    char path[FIXTURE_PATH];
    struct sqlite3 *db;
    struct err e;
    fixture_path(f, "", path);
    assert_int_equal(db_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 1000, &db, &e), 0);
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL), SQLITE_OK);
    return db;
}

FIXTURE_MAY void fixture_triggers(struct sqlite3 *db, bool on)
{
    assert_int_equal(sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, (int)on, NULL),
                     SQLITE_OK);
}

FIXTURE_MAY void fixture_close(struct sqlite3 *db)
{
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

FIXTURE_MAY void fixture_sha256(sqlite3_context *ctx, int argc, sqlite3_value **argv)
{
    uint8_t hash[SHA256_LEN];
    assert_int_equal(argc, 1);
    const char *text = (const char *)sqlite3_value_text(argv[0]);
    assert_non_null(text);
    sha256_once(slice_cstr(text), hash);
    sqlite3_result_blob(ctx, hash, sizeof hash, SQLITE_TRANSIENT);
}

/* An event as ?1 with id, project, text. */
#define FIXTURE_EVENT(id, project, text, envelope)                                              \
    "INSERT INTO events VALUES(" id ", " project ", randomblob(16), 1000, 1000000, NULL, NULL," \
    " '', 'capture', 'e', 'd', '', '', 'default', '', 'lib', '1', " envelope ", " text ");"

FIXTURE_MAY void fixture_make(struct fixture *f)
{
    struct sqlite3 *db = fixture_db(f);
    struct err e;
    int64_t version = 0;
    fixture_sql(db, "PRAGMA journal_mode=WAL");
    assert_int_equal(schema_open(db, &version, &e), 0);
    assert_int_equal(schema_backfill(db, &e), 0);
    assert_int_equal(
        sqlite3_create_function(db, "hashed", 1, SQLITE_UTF8, NULL, fixture_sha256, NULL, NULL),
        SQLITE_OK);
    fixture_sql(
        db,
        "BEGIN; INSERT INTO projects(name, title, created_ms) VALUES('demo', 'Demo', 1),"
        "('other', 'Other', 2);"
        "INSERT INTO project_counters(project, pending_events, pending_bytes, receipts, rejected,"
        " rejected_kept, rejected_bytes) VALUES(1, 3, 35, 4, 3, 2, 9), (2, 1, 13, 2, 0, 0, 0);"
        "INSERT INTO keys(project, kind, name, hash, text, scopes, created_ms) VALUES"
        "(1, 'capture', 'default', hashed('tmc_one'), 'tmc_one', '', 1),"
        "(2, 'segment', 'web', hashed('tmc_two'), 'tmc_two', '', 1),"
        "(1, 'service', 'ops', hashed('tms_three'), NULL, 'query:read', 1);" FIXTURE_EVENT(
            "1", "1", "CAST('{\"event\":\"a\"}' AS BLOB)", "x''")
            FIXTURE_EVENT("2", "2", "CAST('{\"event\":\"a\"}' AS BLOB)", "x''")
                FIXTURE_EVENT("5", "1", "CAST('{\"event\":\"b\"}' AS BLOB)", "x''") FIXTURE_EVENT(
                    "6", "1", "CAST('{\"e\":1}' AS BLOB)",
                    "CAST('{}' AS BLOB)") "INSERT INTO receipts SELECT project, uuid, id FROM "
                                          "events WHERE id < 5;"
                                          "INSERT INTO receipts VALUES(1, randomblob(16), 3), (2, "
                                          "randomblob(16), 4);"
                                          "INSERT INTO receipts_recent SELECT id, project, uuid "
                                          "FROM events WHERE id >= 5;"
                                          "INSERT INTO delivery_quarantine VALUES(2, 2, 469, 77);"
                                          "INSERT INTO rejected(project, received_ms, position, "
                                          "door, reason, text) VALUES"
                                          "(1, 5, 0, 'posthog', 'no event', CAST('oops' AS BLOB)),"
                                          "(1, 6, 3, 'segment', 'no type', CAST('wrong' AS BLOB));"
                                          "INSERT INTO delivery_state VALUES(1, 9); INSERT INTO "
                                          "delivery_cursor VALUES(1, 1, 5);"
                                          "UPDATE meta SET value = 8 WHERE name = 'next_event_id'; "
                                          "COMMIT");
    fixture_close(db);
}

/* ---- verify ---- */

FIXTURE_MAY void fixture_found(void *ctx, const char *text)
{
    struct fixture *f = ctx;
    size_t used = strlen(f->told);
    int n = snprintf(f->told + used, sizeof f->told - used, "%s\n", text);
    assert_true(n > 0 && (size_t)n < sizeof f->told - used);
    f->lines++;
}

FIXTURE_MAY int fixture_verify_at(struct fixture *f, const char *data)
{
    memset(&f->e, 0, sizeof f->e);
    f->told[0] = '\0';
    f->lines = 0;
    return store_verify(data, fixture_found, f, &f->result, &f->e);
}

FIXTURE_MAY int fixture_verify(struct fixture *f)
{
    return fixture_verify_at(f, f->data);
}

/* It could look, whatever it found. */
#define fixture_verified(f) fixture_verified_at((f), __FILE__, __LINE__)

FIXTURE_MAY void fixture_verified_at(struct fixture *f, const char *file, int line)
{
    int r = fixture_verify(f);
    if (r != 0) {
        print_error("verify: %d, %s\n", r, f->e.text);
        _fail(file, line);
    }
}

/* Exactly these lines, in this order (the last without its newline). */
FIXTURE_MAY void fixture_same_lines(const char *told, const char *wanted)
{
    size_t n = strlen(wanted);
    if (strncmp(told, wanted, n) != 0 || strcmp(told + n, n > 0 ? "\n" : "") != 0) {
        fail_msg("told\n%swanted\n%s\n", told, wanted);
    }
}

/* ---- servers: processes of their own ---- */

enum fixture_server {
    SERVER_ONE_EVENT, /* commits one and waits */
    SERVER_BUSY,      /* commits, delivers and checkpoints for ever */
    SERVER_BRIEF      /* some of that, then a clean end */
};

#define FIXTURE_TURN                                                                              \
    "BEGIN IMMEDIATE; UPDATE meta SET value = value + 1 WHERE name = "                            \
    "'next_event_id';" FIXTURE_EVENT(                                                             \
        "(SELECT value - 1 FROM meta)", "1", "zeroblob(900)",                                     \
        "x''") "INSERT INTO receipts_recent SELECT id, project, uuid FROM events ORDER BY id "    \
               "DESC LIMIT 1;"                                                                    \
               "UPDATE project_counters SET pending_events = pending_events + 1, pending_bytes =" \
               " pending_bytes + 900, receipts = receipts + 1 WHERE project = 1; COMMIT;"

#define FIXTURE_DELIVERY                                                                      \
    "BEGIN IMMEDIATE; DELETE FROM events WHERE id > 7 AND id < (SELECT value - 5 FROM meta);" \
    "UPDATE project_counters SET (pending_events, pending_bytes) = (SELECT count(*),"         \
    " sum(length(text) + length(envelope)) FROM events WHERE project = 1) WHERE project = 1;" \
    "INSERT INTO receipts SELECT project, uuid, event_id FROM receipts_recent"                \
    " WHERE event_id < (SELECT value - 3 FROM meta);"                                         \
    "DELETE FROM receipts_recent WHERE event_id < (SELECT value - 3 FROM meta); COMMIT;"

_Noreturn FIXTURE_MAY void fixture_serve(const struct fixture *f, enum fixture_server what,
                                         int ready)
{
    struct sqlite3 *db = fixture_db(f);
    int turns = what == SERVER_ONE_EVENT ? 1 : what == SERVER_BRIEF ? 40 : INT32_MAX;
    for (int i = 0; i < turns; i++) {
        fixture_sql(db, FIXTURE_TURN);
        if (i % 10 == 9) {
            fixture_sql(db, FIXTURE_DELIVERY);
        }
        if (i % 25 == 24) {
            fixture_sql(db, "PRAGMA wal_checkpoint(PASSIVE)");
        }
        if (i == 0 && write(ready, "r", 1) != 1) {
            _exit(3);
        }
    }
    if (what == SERVER_ONE_EVENT) {
        (void)pause();
    }
    fixture_close(db);
    _exit(0);
}

FIXTURE_MAY pid_t fixture_server(struct fixture *f, enum fixture_server what)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(120);
        fixture_serve(f, what, ends[1]);
    }
    assert_int_equal(close(ends[1]), 0);
    f->ready = ends[0];
    return child;
}

FIXTURE_MAY void fixture_close_ready(struct fixture *f)
{
    assert_int_equal(close(f->ready), 0);
    f->ready = -1;
}

FIXTURE_MAY void fixture_wait(struct fixture *f)
{
    char c;
    assert_int_equal(read(f->ready, &c, 1), 1);
}

FIXTURE_MAY void fixture_kill(struct fixture *f, pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    fixture_close_ready(f);
}

/* A process that overwrites bytes of the WAL's index, as a server does in the midst of a change,
 * and puts them back after hold_ms; this returns when they are overwritten. (A process of its own:
 * a descriptor that this one closes would take its locks with it.) */
FIXTURE_MAY pid_t fixture_scribble(const struct fixture *f, off_t at, size_t n, unsigned hold_ms)
{
    char path[FIXTURE_PATH];
    unsigned char kept[64];
    unsigned char junk[64];
    int ends[2];
    char c;
    assert_true(n <= sizeof kept);
    fixture_path(f, "-shm", path);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int fd = open(path, O_RDWR);
        memset(junk, 0x7f, sizeof junk);
        if (fd < 0 || pread(fd, kept, n, at) != (ssize_t)n ||
            pwrite(fd, junk, n, at) != (ssize_t)n || write(ends[1], "r", 1) != 1) {
            _exit(3);
        }
        (void)poll(NULL, 0, (int)hold_ms);
        _exit(pwrite(fd, kept, n, at) == (ssize_t)n ? 0 : 3);
    }
    assert_int_equal(read(ends[0], &c, 1), 1);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
    return child;
}

FIXTURE_MAY void fixture_await(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- the model disk ---- */

/* The good database there, and one more event in its WAL. */
FIXTURE_MAY void fixture_to_model(const struct fixture *f, struct model *m)
{
    struct sqlite3 *db;
    struct err e;
    model_put(m, "/m/" STORE_FILE, f->good, f->good_size);
    model_use(m);
    (void)os_vfs_process_new();
    assert_int_equal(db_open("/m/" STORE_FILE, SQLITE_OPEN_READWRITE, 1000, &db, &e), 0);
    fixture_sql(db, FIXTURE_TURN);
    fixture_close(db); /* without a checkpoint */
    struct os_stat st;
    assert_int_equal(os_stat("/m/" STORE_FILE "-wal", &st), 0);
    assert_int_equal(os_sync_dir("/m"), 0);
    assert_int_equal(model_pending(m), 0);
}

/* ---- life ---- */

FIXTURE_MAY int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char path[FIXTURE_PATH];
    assert_non_null(f);
    (void)snprintf(f->root, sizeof f->root, "/tmp/verify_XXXXXX");
    assert_non_null(mkdtemp(f->root));
    (void)snprintf(f->data, sizeof f->data, "%s/data", f->root);
    assert_int_equal(mkdir(f->data, 0700), 0);
    fixture_make(f);
    fixture_path(f, "", path);
    f->good = fixture_read(path, &f->good_size);
    f->ready = -1;
    *state = f;
    return 0;
}

FIXTURE_MAY int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    fixture_restore(f);
    fixture_remove(f, "");
    assert_int_equal(rmdir(f->data), 0);
    assert_int_equal(rmdir(f->root), 0);
    free(f->good);
    free(f);
    return 0;
}

#endif
