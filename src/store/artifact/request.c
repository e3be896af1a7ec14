/* request: leaving a file in DATA/requests/.
 *
 *   requests/               made where it is missing; DATA synced each time
 *   requests/.OBJECT.KIND   written and synced
 *   requests/OBJECT.KIND    renamed
 *   requests/               synced; only then the request counts as left
 *
 * If power fails before the last sync, the request is there or not, and nobody was told. The
 * deliverer removes a file only when what it asks for is synced in delivery.sqlite; a removal that
 * a crash takes back is done again, and asking again changes nothing: that a package is due now is
 * all that a request says. A temporary name that a crash leaves is written over by the next request
 * of that name; the deliverer removes those that are older than an hour.
 *
 * Two that ask for the same at once write one temporary file, and one of them finds it renamed
 * already: then the other one's name is there, which is what it wanted.
 *
 * Answers: all errors. */
#include "store/artifact/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"

#define PATH_BYTES 4300
#define CONTENT    "{}\n"

static const char *kind_name(enum request_kind kind)
{
    static const char *const names[REQUEST_KIND_COUNT] = {
#define X(sym, name) [REQUEST_##sym] = (name),
        REQUEST_KINDS(X)
#undef X
    };

    ensure(kind >= 0);
    ensure(kind < REQUEST_KIND_COUNT);
    return names[kind];
}

bool request_parse(const char *name, struct request *out)
{
    size_t len = strlen(name);

    if (len < UPLOAD_ID_LEN + 2 || name[UPLOAD_ID_LEN] != '.' ||
        !upload_id_ok(slice_of(name, UPLOAD_ID_LEN))) {
        return false;
    }
    memcpy(out->object_id, name, UPLOAD_ID_LEN);
    out->object_id[UPLOAD_ID_LEN] = '\0';
    for (int kind = 0; kind < REQUEST_KIND_COUNT; kind++) {
        if (strcmp(name + UPLOAD_ID_LEN + 1, kind_name((enum request_kind)kind)) == 0) {
            out->kind = (enum request_kind)kind;
            return true;
        }
    }
    return false;
}

static bool make_path(char out[PATH_BYTES], const char *data, const char *dot,
                      const struct request *r)
{
    int n = r == NULL ? snprintf(out, PATH_BYTES, "%s/" REQUESTS_FOLDER, data)
                      : snprintf(out, PATH_BYTES, "%s/" REQUESTS_FOLDER "/%s%s.%s", data, dot,
                                 r->object_id, kind_name(r->kind));
    return n > 0 && n < PATH_BYTES;
}

static int count_one(void *ctx, const char *name)
{
    unsigned *n = ctx;

    (void)name;
    return ++*n >= REQUESTS_MAX ? 1 : 0;
}

static int make_folder(const char *data, const char *folder, struct err *e)
{
    int r = os_mkdir(folder, 0750);

    /* Also when it is there: whoever made it may have been killed before its sync. */
    if (r == 0 || r == -EEXIST) {
        r = os_sync_dir(data);
    }
    return r < 0 ? err_os(e, r, "make", folder) : 0;
}

static int write_temp(const char *path, struct err *e)
{
    int fd = os_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0640);
    int r;

    if (fd < 0) {
        return err_os(e, fd, "create", path);
    }
    r = os_pwrite_all(fd, CONTENT, sizeof CONTENT - 1, 0, NULL);
    if (r == 0) {
        r = os_fsync(fd);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "write", path) : 0;
}

int request_put(const char *data, const struct request *request, struct err *e)
{
    char folder[PATH_BYTES], path[PATH_BYTES], temp[PATH_BYTES];
    struct os_stat st;
    unsigned n = 0;
    int r;

    if (!make_path(folder, data, "", NULL) || !make_path(path, data, "", request) ||
        !make_path(temp, data, ".", request)) {
        return err_set(e, ERR_IO, "the path of the data directory is too long");
    }
    r = make_folder(data, folder, e);
    if (r < 0) {
        return r;
    }
    if (os_stat(path, &st) != 0) {
        r = os_list(folder, count_one, &n);
        if (r != 0) {
            return r > 0 ? err_set(e, ERR_OVERLOADED, "too many requests wait for tallyman deliver")
                         : err_os(e, r, "list", folder);
        }
        r = write_temp(temp, e);
        if (r < 0) {
            return r;
        }
        r = os_rename(temp, path);
        if (r < 0 && r != -ENOENT) {
            return err_os(e, r, "rename to", path);
        }
    }
    r = os_sync_dir(folder);
    return r < 0 ? err_os(e, r, "sync", folder) : 0;
}
