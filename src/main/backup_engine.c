/* backup: the embedded engine's data, engine/data.
 *
 * Without a server the engine does not run either, and its directory is copied as it lies. Beside a
 * running one ClickHouse merges and removes parts while they are copied, so it is asked to freeze
 * the table: that makes second names of all its active parts below shadow/, at one moment, which
 * stay until they are unfrozen. Of the rest, which are the definitions of databases and tables, the
 * plain files are copied; parts that are not frozen are not (system tables; merges under way).
 *
 * The freeze comes after tallyman.sqlite was copied. So the parts hold every event whose delivery
 * is recorded there: its insert had been answered before.
 *
 * The engine may not answer, because its library is missing, or it is starting: then nothing keeps
 * it from beginning in the middle of a copy, and its data is left out, which the command says. A
 * backup without it never takes the place of one with it: delivered events would be nowhere else.
 * Links and sockets are not copied; ClickHouse makes its own anew. An engine outlives a killed
 * server for a few seconds: while it answers it is asked as well.
 *
 * Power failure, kill -9: a frozen copy stays below shadow/, and holds disk space as its parts are
 * merged away; the next backup unfreezes it first. One backup at a time does this (a lock on the
 * directory itself, so that nothing is made for it). Answers: all errors. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "main/backup.h"
#include "net/net.h"
#include "os/os.h"

#define ENGINE_DATA "engine/data"
#define SOCKET      "engine/engine.sock"
#define FROZEN      "tallyman_backup"
#define TABLE       "tallyman.events_v2"
#define SHADOW      ENGINE_DATA "/shadow/" FROZEN "/store"
#define DEPTH_MAX   16u
#define TABLE_DEPTH 3u /* store/PREFIX/UUID: the folder of a table */
#define ANSWER_MS   60000u

/* What is copied of a folder. */
enum walk_kind {
    WALK_ALL,
    WALK_PLAIN, /* of tables the plain files alone */
    WALK_PARTS  /* frozen parts: the folders down to the table's are there already */
};

struct folder {
    struct backup *b;
    enum walk_kind kind;
    const char *from, *to; /* below the data directory, below the tree */
    bool store;            /* to is engine/data/store, or below it */
    unsigned depth;        /* 0: engine/data */
    int code;
    struct err *e;
};

static bool is_folder(struct backup *b, const char *path)
{
    char full[BACKUP_FULL_MAX];
    struct err ignored;
    if (backup_join(full, b->data, path, &ignored) != 0) {
        return false;
    }
    int fd = os_open(full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd >= 0) {
        (void)os_close(fd);
    }
    return fd >= 0;
}

static int copy_file(const struct folder *f, const char *from, const char *to)
{
    struct backup_entry entry;
    bool kept;
    int r = backup_copy_from(f->b, from, to, BACKUP_SMALL, BACKUP_ALL, &entry, &kept, f->e);
    if (r == 0) {
        backup_put(f->b, &entry, kept);
    }
    /* Definitions are written beside and renamed; what vanished was such a temporary. */
    return r == ERR_REFUSED || (r == ERR_NOT_FOUND && f->kind == WALK_PLAIN) ? 0 : r;
}

/* True for what is not part of the data: made anew, or our own frozen copies. */
static bool is_left_out(const struct folder *f, const char *name)
{
    return f->depth == 0 && (strcmp(name, "shadow") == 0 || strcmp(name, "tmp") == 0);
}

static int copy_folder(const struct folder *f);

static int see_folder(const struct folder *f, const char *name, const char *from, const char *to)
{
    struct folder below = *f;
    below.from = from;
    below.to = to;
    below.depth = f->depth + 1;
    below.store = f->store || (f->depth == 0 && strcmp(name, "store") == 0);
    if (f->kind == WALK_PLAIN && f->store && f->depth >= TABLE_DEPTH) {
        return 0; /* a part, perhaps one that is being written or removed */
    }
    return copy_folder(&below);
}

static int see_name(void *ctx, const char *name)
{
    struct folder *f = ctx;
    char from[BACKUP_PATH_MAX];
    char to[BACKUP_PATH_MAX];
    if (is_left_out(f, name)) {
        return 0;
    }
    int n = snprintf(from, sizeof from, "%s/%s", f->from, name);
    int m = snprintf(to, sizeof to, "%s/%s", f->to, name);
    if (n < 0 || (size_t)n >= sizeof from || m < 0 || (size_t)m >= sizeof to) {
        f->code = err_set(f->e, ERR_IO, "a path is too long: %.200s", f->from);
    } else if (is_folder(f->b, from)) {
        f->code = see_folder(f, name, from, to);
    } else {
        f->code = copy_file(f, from, to);
    }
    return f->code == 0 ? 0 : 1;
}

static int copy_folder(const struct folder *f)
{
    struct folder here = *f;
    char full[BACKUP_FULL_MAX];
    if (f->depth > DEPTH_MAX) {
        return err_set(f->e, ERR_IO, "%.200s: too deep to be the engine's", f->from);
    }
    int r = f->kind == WALK_PARTS && f->depth <= TABLE_DEPTH
                ? 0
                : backup_directory_from(f->b, f->from, f->to, f->e);
    if (r == 0) {
        r = backup_join(full, f->b->data, f->from, f->e);
    }
    if (r != 0) {
        return r == ERR_NOT_FOUND && f->kind == WALK_PLAIN ? 0 : r;
    }
    r = os_list(full, see_name, &here);
    if (r == -ENOENT && f->kind == WALK_PARTS && f->depth == 1) {
        return 0; /* an empty table has no parts to freeze */
    }
    return r < 0 ? err_os(f->e, r, "list", full) : r > 0 ? here.code : 0;
}

static int copy_data(struct backup *b, enum walk_kind kind, struct err *e)
{
    const struct folder data = {
        .b = b, .kind = kind, .from = ENGINE_DATA, .to = ENGINE_DATA, .e = e};
    int r = backup_directory(b, "engine", e);
    return r == 0 ? copy_folder(&data) : r;
}

static int copy_frozen(struct backup *b, struct err *e)
{
    const struct folder parts = {.b = b,
                                 .kind = WALK_PARTS,
                                 .from = SHADOW,
                                 .to = ENGINE_DATA "/store",
                                 .store = true,
                                 .depth = 1,
                                 .e = e};
    return copy_folder(&parts);
}

/* ---- a running engine ---- */

static int ask(struct net *n, const char *statement, struct err *e)
{
    struct net_answer a;
    const struct net_request req = {
        .post = true, .body = slice_cstr(statement), .total_ms = ANSWER_MS};
    int r = net_do(n, &req, &a, e);
    if (r == 0 && a.status != 200) {
        int len = a.body.len > 200 ? 200 : (int)a.body.len;
        r = err_set(e, ERR_REFUSED, "the engine answered %u: %.*s", a.status, len,
                    len > 0 ? a.body.ptr : "");
    }
    net_answer_free(&a);
    return r;
}

/* 0: frozen, to be thawed. Any other result is why it cannot be. */
static int freeze(struct net *n, struct err *e)
{
    struct err ignored;
    (void)ask(n, "ALTER TABLE " TABLE " UNFREEZE WITH NAME '" FROZEN "'", &ignored);
    return ask(n, "ALTER TABLE " TABLE " FREEZE WITH NAME '" FROZEN "'", e);
}

static void thaw(struct net *n)
{
    struct err ignored; /* what stays the next backup thaws */
    (void)ask(n, "ALTER TABLE " TABLE " UNFREEZE WITH NAME '" FROZEN "'", &ignored);
}

static int open_engine(struct backup *b, struct net **n, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    const struct net_target target = {.url = "http://engine", .unix_socket = path};
    int r = backup_join(path, b->data, SOCKET, e);
    return r == 0 ? net_open(n, &target, e) : r;
}

/* True: it is frozen, or somebody answered; false with the reason in b->engine_error. */
static bool freeze_running(struct backup *b, struct net **n)
{
    return open_engine(b, n, &b->engine_error) == 0 && freeze(*n, &b->engine_error) == 0;
}

static int take_lock(struct backup *b, int *fd, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, b->data, ENGINE_DATA, e);
    if (r != 0) {
        return r;
    }
    *fd = os_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (*fd < 0) {
        return err_os(e, *fd, "open", path);
    }
    r = os_flock(*fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK) {
        return err_set(e, ERR_LOCKED, "another backup copies the engine's data");
    }
    return r < 0 ? err_os(e, r, "lock", path) : 0;
}

static int copy_engine(struct backup *b, const char **word, struct err *e)
{
    struct net *n = NULL;
    int r;
    if (freeze_running(b, &n)) {
        r = copy_data(b, WALK_PLAIN, e);
        if (r == 0) {
            r = copy_frozen(b, e);
        }
        thaw(n);
    } else if (b->live || b->engine_error.code != ERR_CONNECT) {
        *word = "left_out";
        r = 0;
    } else {
        r = copy_data(b, WALK_ALL, e);
    }
    net_close(n);
    return r;
}

/* 1: there is a folder of the engine's. What is there and cannot be looked into is not absent. */
static int find_data(struct backup *b, struct err *e)
{
    char full[BACKUP_FULL_MAX];
    int r = backup_join(full, b->data, ENGINE_DATA, e);
    if (r != 0) {
        return r;
    }
    int fd = os_open(full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd >= 0) {
        (void)os_close(fd);
        return 1;
    }
    if (fd == -ENOENT) {
        return 0;
    }
    return err_os(e, fd, "open", full);
}

/* Who wants no engine any more removes its directory: that is `absent`, and passes. */
static int keep_last(const struct backup *b, const char *word, struct err *e)
{
    if (!b->engine_before || strcmp(word, "left_out") != 0) {
        return 0;
    }
    return err_set(
        e, ERR_REFUSED,
        "the engine's data cannot be copied (%.120s); the last backup has it, and stays: "
        "try again when the engine runs or the server is stopped, or use another DIR",
        b->engine_error.text);
}

int backup_engine(struct backup *b, struct err *e)
{
    const char *word = "copied";
    int fd = -1;
    int r = find_data(b, e);
    if (r == 0) {
        word = "absent";
    } else if (r == 1) {
        r = take_lock(b, &fd, e);
        if (r == 0) {
            r = copy_engine(b, &word, e);
        }
        if (fd >= 0) {
            (void)os_close(fd);
        }
    }
    (void)snprintf(b->about.engine, sizeof b->about.engine, "%s", word);
    return r == 0 ? keep_last(b, word, e) : r;
}
