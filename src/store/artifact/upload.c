/* The folders of the upload store, its names, and what it knows in memory about single ids.
 *
 * Existence table (R: what a start or an open does with it):
 *
 *   .info  ID   .state  .gone  .json   meaning
 *   no     any  any     any    no      never told to anybody, or a removal that was cut: removed
 *   torn   any  any     any    no      never told to anybody: UPLOAD_BROKEN, expires
 *   yes    yes  empty   no     no      offset 0; longer bytes are cut, or proven when complete
 *   yes    yes  slots   no     no      offset of the newest good slot; as above
 *   yes    yes  no      no     no      the state was lost (or an upload that came whole was never
 *                                      told to anybody): the bytes are read again
 *   yes    any  any     yes    no      refused for good: 410 until it expires
 *   any    any  any     any    yes     accepted, whatever the others say
 *
 * Memory. Two facts outlive the calls that found them: an id that is gone though the disk would not
 * take ID.gone, and an ID.json that is visible though receipts/ is not synced. The second exists
 * for the instants between rename and sync, and longer only where the sync failed and the name
 * could not be taken back. While it holds, receipt_load says "not accepted". Both are lists of what
 * has failed; they are short.
 *
 * Power failure: both folders are made and the data directory is synced before uploads_open
 * returns; it syncs the folders too, because a process that was killed may have renamed what it
 * did not live to sync, and a receipt that is read is one that is told.
 *
 * Answers: every failure of a call. Aborts: an id that was not checked. */
#include "store/artifact/upload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"
#include "json/write.h"

/* ---- names ---- */

bool upload_id_ok(struct slice id)
{
    if (id.len != UPLOAD_ID_LEN) {
        return false;
    }
    for (size_t i = 0; i < id.len; i++) {
        char c = id.ptr[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
            return false;
        }
    }
    return true;
}

bool upload_id_copy(char out[UPLOAD_ID_LEN + 1], struct slice id)
{
    if (!upload_id_ok(id)) {
        return false;
    }
    memcpy(out, id.ptr, UPLOAD_ID_LEN);
    out[UPLOAD_ID_LEN] = '\0';
    return true;
}

static void path_make(char out[UPLOADS_PATH_MAX], const char *dir, const char *before,
                      const char *id, const char *after)
{
    ensure(upload_id_ok(slice_cstr(id)));
    int n = snprintf(out, UPLOADS_PATH_MAX, "%s/%s%s%s", dir, before, id, after);
    ensure(n > 0 && n < UPLOADS_PATH_MAX);
}

void upload_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id,
                 const char *suffix)
{
    path_make(out, us->uploads, "", id, suffix);
}

void upload_temp_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *prefix,
                      const char *id)
{
    path_make(out, us->uploads, prefix, id, "");
}

void receipt_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id)
{
    path_make(out, us->receipts, "", id, ".json");
}

void receipt_temp_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id)
{
    path_make(out, us->receipts, ".receipt-", id, "");
}

/* ---- marks ---- */

struct upload_mark *upload_mark_new(const char *id)
{
    struct upload_mark *mark = calloc(1, sizeof *mark);
    if (mark != NULL) {
        memcpy(mark->id, id, UPLOAD_ID_LEN + 1);
    }
    return mark;
}

/* The link that leads to the mark, or to the end. The lock is held. */
static struct upload_mark **mark_find(struct uploads *us, const char *id,
                                      enum upload_mark_kind kind)
{
    struct upload_mark **at = &us->marks;
    while (*at != NULL && ((*at)->kind != kind || strcmp((*at)->id, id) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

static void mark_unlink(struct upload_mark **at)
{
    struct upload_mark *mark = *at;
    if (mark != NULL) {
        *at = mark->next;
        free(mark);
    }
}

void upload_mark_put(struct uploads *us, struct upload_mark *mark, enum upload_mark_kind kind)
{
    ensure(mark != NULL);
    mark->kind = kind;
    (void)pthread_mutex_lock(&us->lock);
    mark_unlink(mark_find(us, mark->id, kind));
    mark->next = us->marks;
    us->marks = mark;
    (void)pthread_mutex_unlock(&us->lock);
}

void upload_mark_remove(struct uploads *us, const char *id, enum upload_mark_kind kind)
{
    (void)pthread_mutex_lock(&us->lock);
    mark_unlink(mark_find(us, id, kind));
    (void)pthread_mutex_unlock(&us->lock);
}

bool upload_mark_has(struct uploads *us, const char *id, enum upload_mark_kind kind, char *reason)
{
    (void)pthread_mutex_lock(&us->lock);
    const struct upload_mark *mark = *mark_find(us, id, kind);
    if (mark != NULL && reason != NULL) {
        memcpy(reason, mark->reason, UPLOAD_REASON_MAX);
    }
    (void)pthread_mutex_unlock(&us->lock);
    return mark != NULL;
}

/* ---- the folders ---- */

/* The issuer as Go's encoder writes it into receipts: <, > and & as \u escapes as well. */
static int issuer_format(struct uploads *us, const char *issuer, struct err *e)
{
    struct buf plain = {0};
    size_t n = 0;
    size_t len = strlen(issuer);
    if (len >= sizeof us->issuer) {
        return err_set(e, ERR_USAGE, "the issuer is longer than 512 bytes");
    }
    json_put_string(&plain, slice_of(issuer, len));
    if (plain.failed) {
        buf_free(&plain);
        return err_set(e, ERR_NO_MEMORY, "no memory for the issuer");
    }
    for (size_t i = 0; i < plain.len && n + 7 < sizeof us->issuer_json; i++) {
        unsigned char c = (unsigned char)plain.ptr[i];
        if (c == '<' || c == '>' || c == '&') {
            n += (size_t)snprintf(us->issuer_json + n, 7, "\\u%04x", c);
        } else {
            us->issuer_json[n++] = (char)c;
        }
    }
    bool whole = n > 0 && us->issuer_json[n - 1] == '"' && n >= plain.len;
    buf_free(&plain);
    us->issuer_json[n] = '\0';
    memcpy(us->issuer, issuer, len + 1);
    return whole ? 0 : err_set(e, ERR_USAGE, "the issuer is too long once it is escaped");
}

static int make_folders(struct uploads *us, const char *data, struct err *e)
{
    const char *dirs[] = {us->uploads, us->receipts};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        int r = os_mkdir_exist_ok(dirs[i], UPLOAD_DIR_MODE);
        if (r == 0) {
            r = os_sync_dir(dirs[i]);
        }
        if (r < 0) {
            return err_os(e, r, "make directory", dirs[i]);
        }
    }
    int r = os_sync_dir(data);
    return r < 0 ? err_os(e, r, "sync directory", data) : 0;
}

int uploads_open(const struct uploads_options *options, struct uploads **out, struct err *e)
{
    *out = NULL;
    if (strlen(options->data) > UPLOADS_DATA_MAX) {
        return err_set(e, ERR_USAGE, "the data directory's path is longer than %d bytes",
                       UPLOADS_DATA_MAX);
    }
    struct uploads *us = calloc(1, sizeof *us);
    if (us == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the upload store");
    }
    (void)snprintf(us->uploads, sizeof us->uploads, "%s/uploads", options->data);
    (void)snprintf(us->receipts, sizeof us->receipts, "%s/receipts", options->data);
    us->at_once_bytes = options->at_once_bytes > 0 ? options->at_once_bytes : UPLOAD_AT_ONCE_BYTES;
    int r = issuer_format(us, options->issuer, e);
    if (r == 0) {
        r = make_folders(us, options->data, e);
    }
    if (r == 0) {
        us->trails = trails_new(us, options->trail_threads, options->trail_step_bytes);
        us->syncers = syncers_new(options->sync_threads);
        r = us->trails == NULL || us->syncers == NULL
                ? err_set(e, ERR_NO_MEMORY, "no memory for the upload store")
                : 0;
    }
    if (r != 0) {
        trails_free(us->trails);
        syncers_free(us->syncers);
        free(us);
        return r;
    }
    (void)pthread_mutex_init(&us->lock, NULL);
    *out = us;
    return 0;
}

void uploads_set_stopping(struct uploads *us, bool stopping)
{
    atomic_store(&us->stopping, stopping);
    trails_wake(us->trails);
}

void uploads_trail(struct uploads *us)
{
    trails_run(us->trails);
}

void uploads_close(struct uploads *us)
{
    if (us == NULL) {
        return;
    }
    trails_free(us->trails);
    syncers_free(us->syncers);
    while (us->marks != NULL) {
        mark_unlink(&us->marks);
    }
    (void)pthread_mutex_destroy(&us->lock);
    free(us);
}
