/* backup: the embedded engine's data.
 *
 * Without a server the engine does not run either, and its directory is copied as it lies. Beside a
 * running one it is left out, and the command says so: ClickHouse moves, merges and removes its
 * files while they are copied, and there is no moment at which a copy made file by file would be a
 * state that it could have been in. (docs/OPERATING.md, section 5, has the ways to keep it.)
 *
 * An engine outlives a killed server for a few seconds: while somebody answers on its socket the
 * directory counts as in use. Links and sockets are not copied; ClickHouse makes its own anew. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "main/backup.h"
#include "os/os.h"

#define ENGINE_DATA   "engine/data"
#define ENGINE_SOCKET "engine/engine.sock"
#define DEPTH_MAX     16u

struct folder {
    struct backup *b;
    const char *path;
    unsigned depth;
    int code;
    struct err *e;
};

static int copy_folder(struct backup *b, const char *path, unsigned depth, struct err *e);

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

static int see_name(void *ctx, const char *name)
{
    struct folder *f = ctx;
    char path[BACKUP_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", f->path, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        f->code = err_set(f->e, ERR_IO, "a path is too long: %.200s", f->path);
        return 1;
    }
    if (is_folder(f->b, path)) {
        f->code = copy_folder(f->b, path, f->depth + 1, f->e);
    } else {
        f->code = backup_take(f->b, path, BACKUP_SMALL, BACKUP_ALL, f->e);
        f->code = f->code == ERR_REFUSED ? 0 : f->code;
    }
    return f->code == 0 ? 0 : 1;
}

static int copy_folder(struct backup *b, const char *path, unsigned depth, struct err *e)
{
    struct folder f = {.b = b, .path = path, .depth = depth, .e = e};
    char full[BACKUP_FULL_MAX];
    if (depth > DEPTH_MAX) {
        return err_set(e, ERR_IO, "%.200s: too deep to be the engine's", path);
    }
    int r = backup_directory(b, path, e);
    if (r == 0) {
        r = backup_join(full, b->data, path, e);
    }
    if (r != 0) {
        return r;
    }
    r = os_list(full, see_name, &f);
    return r < 0 ? err_os(e, r, "list", full) : r > 0 ? f.code : 0;
}

/* True when a process answers on the engine's socket. */
static bool answers(struct backup *b)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/" ENGINE_SOCKET, b->data);
    if (n < 0 || (size_t)n >= sizeof a.sun_path) {
        return false; /* nobody can listen there either */
    }
    int fd = os_socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) {
        return false;
    }
    int r = os_connect(fd, (const struct sockaddr *)&a, sizeof a);
    (void)os_close(fd);
    return r == 0 || r == -EAGAIN;
}

int backup_engine(struct backup *b, struct err *e)
{
    const char *word = "copied";
    int r = 0;
    if (!is_folder(b, ENGINE_DATA)) {
        word = "absent";
    } else if (b->live || answers(b)) {
        word = "left_out";
    } else {
        r = backup_directory(b, "engine", e);
        if (r == 0) {
            r = copy_folder(b, ENGINE_DATA, 0, e);
        }
    }
    (void)snprintf(b->about.engine, sizeof b->about.engine, "%s", word);
    return r;
}
