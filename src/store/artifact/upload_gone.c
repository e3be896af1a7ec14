/* Uploads that are refused for good: ID.gone holds the reason, for whoever asks until it expires.
 *
 * Power failure: the file is synced, renamed and its directory synced before a byte of the upload
 * is freed; so an upload whose bytes are missing says why. Where the disk does not take it, the
 * mark in memory holds as long as this process lives; after that the upload is what its files say,
 * and no file of it was touched since they last said something true.
 *
 * Answers: every failure. */
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

bool upload_gone(struct uploads *us, struct slice id, char reason[UPLOAD_REASON_MAX])
{
    char name[UPLOAD_ID_LEN + 1];
    char path[UPLOADS_PATH_MAX];
    struct buf text;
    struct err e;
    reason[0] = '\0';
    if (!upload_id_copy(name, id)) {
        return false;
    }
    if (upload_mark_has(us, name, UPLOAD_MARK_GONE, reason)) {
        return true;
    }
    upload_path(us, path, name, ".gone");
    int r = upload_read_file(path, UPLOAD_REASON_MAX - 1, &text, NULL, &e);
    if (r == ERR_NOT_FOUND) {
        return false;
    }
    if (r != 0) {
        /* The name is what counts; but a call that failed says nothing about it. */
        struct os_stat st;
        (void)snprintf(reason, UPLOAD_REASON_MAX, "the upload was refused");
        return r == ERR_CORRUPT || os_stat(path, &st) == 0;
    }
    memcpy(reason, text.len > 0 ? text.ptr : "", text.len);
    reason[text.len] = '\0';
    buf_free(&text);
    return true;
}

int upload_gone_commit(struct upload *u, const char *reason, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    char temp[UPLOADS_PATH_MAX];
    struct upload_mark *mark = u->gone_mark;
    u->gone = true;
    if (mark != NULL) {
        (void)snprintf(mark->reason, sizeof mark->reason, "%s", reason);
        u->gone_mark = NULL;
        upload_mark_put(u->us, mark, UPLOAD_MARK_GONE);
    }
    log_line(LOG_WARN, "uploads", "%.8s is gone: %s", u->info.id, reason);
    trail_forget(u->us->trails, u->info.id);
    upload_path(u->us, path, u->info.id, ".gone");
    upload_temp_path(u->us, temp, ".gone-", u->info.id);
    size_t len = strnlen(reason, UPLOAD_REASON_MAX - 1);
    int r = upload_commit_file(temp, path, u->us->uploads, slice_of(reason, len), e);
    if (r == 0) {
        /* The file says it from now on. Anybody can have as many uploads refused as they like:
         * memory is for what the disk would not take. */
        upload_mark_remove(u->us, u->info.id, UPLOAD_MARK_GONE);
    }
    return r;
}

void upload_make_gone(struct upload *u, const char *reason)
{
    struct err why;
    if (upload_gone_commit(u, reason, &why) != 0) {
        log_line(LOG_ERROR, "uploads", "%.8s: that it is gone could not be written down: %s",
                 u->info.id, why.text);
    }
}

int upload_gone_answer(struct uploads *us, const char *id, struct err *e)
{
    char reason[UPLOAD_REASON_MAX];
    if (!upload_gone(us, slice_cstr(id), reason)) {
        return 0;
    }
    return err_set(e, ERR_GONE, "%.300s", reason);
}

int upload_gone_error(const struct upload *u, struct err *e)
{
    int r = upload_gone_answer(u->us, u->info.id, e);
    return r != 0 ? r : err_set(e, ERR_GONE, "the upload was refused");
}
