/* index_file: durable replacement of a file, and the telling of failures.
 *
 * What a power failure leaves, step by step:
 *   - while NAME.tmp is written or synced: perhaps a NAME.tmp with any content. index_open removes
 *     it unread, so its content does not matter.
 *   - after the sync, before the directory is synced: NAME.tmp, or NAME with all its bytes, or the
 *     NAME that was there before. The rename is atomic and the bytes were durable before it.
 *   - after the directory sync: NAME. Only now does index_file_commit return 0, and only now may
 *     anything that NAME replaces be removed.
 * A file whose sync failed is never synced again: the kernel may have dropped its dirty pages and
 * call them clean (RELIABILITY R5). It is unlinked, and a later attempt writes every byte anew.
 *
 * Answers: all failures are returned. Aborts: a path that does not fit, which index_open excludes.
 */
#include "journal/index_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "os/os.h"

void index_path(char out[PATH_MAX], const char *dir, const char *name)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);

    ensure(n > 0);
    ensure(n < PATH_MAX);
}

static void index_temp_path(char out[PATH_MAX], const struct index_file *f)
{
    int n = snprintf(out, PATH_MAX, "%s/%s%s", f->dir, f->name, INDEX_TEMP_SUFFIX);

    ensure(n > 0);
    ensure(n < PATH_MAX);
}

int index_file_create(struct index_file *f, const char *dir, const char *name, struct err *e)
{
    char temp[PATH_MAX];
    int fd;

    ensure(strlen(name) + sizeof INDEX_TEMP_SUFFIX <= INDEX_NAME_MAX);
    *f = (struct index_file){.dir = dir, .fd = -1};
    memcpy(f->name, name, strlen(name) + 1);
    index_temp_path(temp, f);
    fd = os_open(temp, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return err_os(e, fd, "open", temp);
    }
    f->fd = fd;
    return 0;
}

/* Closes the descriptor; what is unlinked or synced has nothing to lose by a failing close. */
static void index_file_close(struct index_file *f)
{
    ensure(f->fd >= 0);
    (void)os_close(f->fd);
    f->fd = -1;
}

int index_file_commit(struct index_file *f, struct err *e)
{
    char temp[PATH_MAX];
    char path[PATH_MAX];
    int result;

    ensure(f->fd >= 0);
    index_temp_path(temp, f);
    index_path(path, f->dir, f->name);
    result = os_fdatasync(f->fd);
    if (result != 0) {
        index_file_discard(f);
        return err_os(e, result, "fdatasync", temp);
    }
    result = os_rename(temp, path);
    if (result != 0) {
        index_file_discard(f);
        return err_os(e, result, "rename", temp);
    }
    result = os_sync_dir(f->dir);
    if (result != 0) {
        /* The new name may or may not survive. Its content is good either way; it goes, so that a
         * file that was not reported as durable is not found by chance. */
        index_file_close(f);
        index_unlink(f->dir, f->name);
        return err_os(e, result, "sync", f->dir);
    }
    return 0;
}

void index_file_discard(struct index_file *f)
{
    char name[INDEX_NAME_MAX + sizeof INDEX_TEMP_SUFFIX];
    int n;

    if (f->fd < 0) {
        return;
    }
    index_file_close(f);
    n = snprintf(name, sizeof name, "%s%s", f->name, INDEX_TEMP_SUFFIX);
    ensure(n > 0 && (size_t)n < sizeof name);
    index_unlink(f->dir, name);
}

void index_unlink(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int result;

    index_path(path, dir, name);
    result = os_unlink(path);
    if (result != 0 && result != -ENOENT) {
        struct err e;

        (void)err_os(&e, result, "unlink", path);
        index_failed("remove", name, &e);
    }
}

void index_failed(const char *doing, const char *name, const struct err *e)
{
    metric_add(METRIC_INDEX_FAILURES, 1);
    log_line(LOG_ERROR, "index", "cannot %s %s: %s", doing, name, e->text);
}
