/* Rounds over the folders, and removal.
 *
 * Removal goes in an order that can be taken up again: the upload becomes gone; its bytes and state
 * go, synced; then ID.info and ID.gone. Cut at any point it is an upload that is gone, which
 * expires again, or leavings without ID.info, which uploads_clean takes at the next start. A large
 * upload that its client terminates is answered for as soon as ID.gone is durable; its bytes go
 * behind that, in as many tries as it takes.
 *
 * A full disk takes no ID.gone. Then ID.info goes first, synced, which needs no room: what has none
 * is no upload, so that a cut leaves the upload whole, or leavings. Who asks before they are freed
 * hears 410 from memory.
 *
 * What a round cannot read because a call failed is neither broken nor stale: it is left out of the
 * round, which ends with that error after all others were seen. One bad file stops nothing.
 *
 * Answers: every failure. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

/* ---- a round ---- */

struct round {
    struct uploads *us;
    int (*each)(void *ctx, const struct upload_seen *seen);
    void *ctx;
    int stopped; /* what each returned */
    int failed;  /* the first upload that could not be looked at */
    struct err why;
};

/* The id when name is one with this suffix. */
static bool id_of(const char *name, const char *suffix, char id[UPLOAD_ID_LEN + 1])
{
    size_t len = strlen(name);
    size_t end = strlen(suffix);
    return len == UPLOAD_ID_LEN + end && strcmp(name + UPLOAD_ID_LEN, suffix) == 0 &&
           upload_id_copy(id, slice_of(name, UPLOAD_ID_LEN));
}

/* 1: it is there, 0: it is not; a negative code otherwise. */
static int look(const char *path, struct os_stat *st, struct err *e)
{
    int r = os_stat(path, st);
    if (r == -ENOENT) {
        return 0;
    }
    return r < 0 ? err_os(e, r, "stat", path) : 1;
}

static int look_for_receipt(struct uploads *us, const char *id, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    receipt_path(us, path, id);
    return look(path, &st, e);
}

struct files {
    bool there[4]; /* ID, .info, .state, .gone */
    uint64_t length;
    uint64_t newest_ms;
    bool receipt;
};

static int look_at_files(struct uploads *us, const char *id, struct files *f, struct err *e)
{
    static const char *const suffixes[] = {"", ".info", ".state", ".gone"};
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        upload_path(us, path, id, suffixes[i]);
        int r = look(path, &st, e);
        if (r < 0) {
            return r;
        }
        f->there[i] = r > 0;
        if (r > 0) {
            f->newest_ms = st.mtime_ms > f->newest_ms ? st.mtime_ms : f->newest_ms;
            f->length = i == 0 ? st.size : f->length;
        }
    }
    int r = look_for_receipt(us, id, e);
    f->receipt = r > 0;
    return r < 0 ? r : 0;
}

static int kind_of(struct uploads *us, const char *id, const struct files *f,
                   struct upload_info *info, struct upload_seen *seen, struct err *e)
{
    int r = upload_load(us, slice_cstr(id), info, e);
    if (r < 0 && r != ERR_CORRUPT) {
        return r;
    }
    if (f->receipt) {
        seen->kind = UPLOAD_ACCEPTED;
        return 0;
    }
    if (r < 0) {
        seen->kind = UPLOAD_BROKEN;
        return 0;
    }
    seen->size = info->size;
    seen->project = info->project;
    if (f->there[3] || upload_mark_has(us, id, UPLOAD_MARK_GONE, NULL)) {
        seen->kind = UPLOAD_GONE;
    } else {
        seen->kind = f->length == info->size ? UPLOAD_COMPLETE : UPLOAD_PARTIAL;
    }
    return 0;
}

static int round_see(void *ctx, const char *name)
{
    struct round *round = ctx;
    char id[UPLOAD_ID_LEN + 1];
    struct upload_info info;
    struct files f;
    struct err e = {0};
    if (!id_of(name, ".info", id)) {
        return 0;
    }
    struct upload_seen seen = {.id = id, .project = ""};
    /* The accepted ones stay, and come to be nearly all: one question each. */
    int r = look_for_receipt(round->us, id, &e);
    bool accepted = r == 1;
    if (accepted) {
        seen.kind = UPLOAD_ACCEPTED;
        r = 0;
    } else if (r == 0) {
        r = look_at_files(round->us, id, &f, &e);
    }
    if (r == 0 && !accepted) {
        seen.length = f.length;
        seen.activity_ms = (int64_t)f.newest_ms;
        r = kind_of(round->us, id, &f, &info, &seen, &e);
    }
    if (r == ERR_NOT_FOUND) {
        return 0; /* it went meanwhile */
    }
    if (r != 0) {
        if (round->failed == 0) {
            round->failed = r;
            round->why = e;
        }
        return 0;
    }
    round->stopped = round->each(round->ctx, &seen);
    return round->stopped < 0 ? 1 : 0;
}

int uploads_scan(struct uploads *us, int (*each)(void *ctx, const struct upload_seen *seen),
                 void *ctx, struct err *e)
{
    struct round round = {.us = us, .each = each, .ctx = ctx};
    int r = os_list(us->uploads, round_see, &round);
    if (round.stopped < 0) {
        return err_set(e, round.stopped, "the round was ended");
    }
    if (r < 0) {
        return err_os(e, r, "list", us->uploads);
    }
    if (round.failed != 0 && e != NULL) {
        *e = round.why;
    }
    return round.failed;
}

/* ---- removal ---- */

static int sync_uploads(struct uploads *us, struct err *e)
{
    int r = os_sync_dir(us->uploads);
    return r < 0 ? err_os(e, r, "sync directory", us->uploads) : 0;
}

/* Missing is fine. */
static int unlink_one(struct uploads *us, const char *id, const char *suffix, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(us, path, id, suffix);
    int r = os_unlink(path);
    return r < 0 && r != -ENOENT ? err_os(e, r, "remove", path) : 0;
}

static int free_file(struct uploads *us, const char *id, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    upload_path(us, path, id, "");
    int fd = os_open(path, O_RDWR, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    int r = upload_truncate_slowly(fd, &us->stopping, e);
    (void)os_close(fd); /* it goes now */
    return r != 0 ? r : unlink_one(us, id, "", e);
}

/* From here on the upload is gone. */
static int note_removal(struct uploads *us, const char *id, const char *reason, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    char temp[UPLOADS_PATH_MAX];
    upload_path(us, path, id, ".gone");
    upload_temp_path(us, temp, ".gone-", id);
    return upload_commit_file(temp, path, us->uploads, slice_cstr(reason), e);
}

/* Durable when it returns: the upload is gone, or (*noted false) it is no upload any more. */
static int end_durably(struct uploads *us, const char *id, const char *reason, bool *noted,
                       struct err *e)
{
    int r = note_removal(us, id, reason, e);
    *noted = r == 0;
    if (r != ERR_NO_SPACE) {
        return r;
    }
    r = unlink_one(us, id, ".info", e);
    return r != 0 ? r : sync_uploads(us, e);
}

static int remove_bytes(struct uploads *us, const char *id, struct err *e)
{
    trail_forget(us->trails, id);
    int r = free_file(us, id, e);
    if (r == 0) {
        r = unlink_one(us, id, ".state", e);
    }
    return r != 0 ? r : sync_uploads(us, e);
}

static int look_at_unaccepted(struct uploads *us, struct slice id, char name[UPLOAD_ID_LEN + 1],
                              struct files *f, struct err *e)
{
    if (!upload_id_copy(name, id)) {
        return err_set(e, ERR_NOT_FOUND, "there is no such upload");
    }
    int r = look_at_files(us, name, f, e);
    if (r == 0 && (f->receipt || upload_mark_has(us, name, UPLOAD_MARK_RECEIPT, NULL))) {
        r = err_set(e, ERR_REFUSED, "the upload is accepted, or may be");
    }
    return r;
}

static int remove_noted(struct uploads *us, const char *name, const struct files *f,
                        const char *reason, struct err *e)
{
    struct err why;
    bool noted;
    if (!f->there[3] && f->length > 0 && end_durably(us, name, reason, &noted, &why) != 0) {
        /* So that a removal that is cut is known for one: best effort. */
        log_line(LOG_WARN, "uploads", "%.8s is removed without a note: %s", name, why.text);
    }
    int r = remove_bytes(us, name, e);
    if (r == 0) {
        r = unlink_one(us, name, ".info", e);
    }
    if (r == 0) {
        r = unlink_one(us, name, ".gone", e);
    }
    if (r == 0) {
        r = sync_uploads(us, e);
    }
    if (r == 0) {
        upload_mark_remove(us, name, UPLOAD_MARK_GONE);
    }
    return r;
}

int upload_remove(struct uploads *us, struct slice id, struct err *e)
{
    char name[UPLOAD_ID_LEN + 1];
    struct files f;
    int r = look_at_unaccepted(us, id, name, &f, e);
    return r != 0 ? r : remove_noted(us, name, &f, "the upload has expired", e);
}

/* Its bytes stay for upload_free_gone. */
static int end_large(struct uploads *us, const char *name, const char *reason, struct err *e)
{
    struct upload_mark *mark = upload_mark_new(name);
    bool noted = false;
    if (mark == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to end an upload");
    }
    (void)snprintf(mark->reason, sizeof mark->reason, "%s", reason);
    int r = end_durably(us, name, reason, &noted, e);
    if (r == 0 && !noted) {
        upload_mark_put(us, mark, UPLOAD_MARK_GONE);
    } else {
        free(mark);
    }
    return r;
}

int upload_terminate(struct uploads *us, struct slice id, bool *left, struct err *e)
{
    static const char reason[] = "the upload was terminated by its client";
    char name[UPLOAD_ID_LEN + 1];
    struct files f;
    *left = false;
    int r = look_at_unaccepted(us, id, name, &f, e);
    if (r == 0 && !f.there[1]) {
        r = err_set(e, ERR_NOT_FOUND, "there is no such upload");
    }
    if (r != 0) {
        return r;
    }
    *left = f.length > us->at_once_bytes;
    return *left ? end_large(us, name, reason, e) : remove_noted(us, name, &f, reason, e);
}

int upload_free_gone(struct uploads *us, struct slice id, struct err *e)
{
    char name[UPLOAD_ID_LEN + 1];
    struct files f;
    int r = look_at_unaccepted(us, id, name, &f, e);
    if (r != 0) {
        return r;
    }
    bool ended = !f.there[1] && upload_mark_has(us, name, UPLOAD_MARK_GONE, NULL);
    if (!f.there[3] && !ended) {
        return err_set(e, ERR_REFUSED, "the upload is not gone");
    }
    r = remove_bytes(us, name, e);
    if (r == 0 && ended) {
        upload_mark_remove(us, name, UPLOAD_MARK_GONE);
    }
    return r;
}

/* ---- after a crash ---- */

#define FOREIGN_SHOWN 60

struct cleaning {
    struct uploads *us;
    const char *dir;
    bool receipts;
    unsigned count;
    unsigned foreign;
    char first[FOREIGN_SHOWN + 1]; /* of these */
    int failed;
    struct err why;
};

static bool is_temp(const struct cleaning *c, const char *name)
{
    static const char *const prefixes[] = {".gone-", ".state-"};
    const char *id = NULL;
    if (c->receipts) {
        id = strncmp(name, ".receipt-", 9) == 0 ? name + 9 : NULL;
    }
    for (size_t i = 0; !c->receipts && i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        id = strncmp(name, prefixes[i], n) == 0 ? name + n : id;
    }
    return id != NULL && upload_id_ok(slice_cstr(id));
}

static bool is_part(const char *name, char id[UPLOAD_ID_LEN + 1])
{
    return id_of(name, "", id) || id_of(name, ".state", id) || id_of(name, ".gone", id);
}

/* Not ours: of another program, or of a person. */
static void note_foreign(struct cleaning *c, const char *name)
{
    char id[UPLOAD_ID_LEN + 1];
    bool own = c->receipts ? id_of(name, ".json", id)
                           : id_of(name, ".info", id) || strcmp(name, ".purge") == 0;
    if (!own && c->foreign++ == 0) {
        for (size_t i = 0; i < FOREIGN_SHOWN && name[i] != '\0'; i++) {
            c->first[i] = name[i] > ' ' && name[i] < 127 ? name[i] : '?';
        }
    }
}

/* Parts without ID.info and without a receipt were told to nobody, or their removal was cut. */
static int clean_part(struct cleaning *c, const char *id, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    struct files f;
    upload_path(c->us, path, id, ".info");
    int r = look(path, &st, e); /* nearly all have one: a start must not take long */
    if (r != 0) {
        return r < 0 ? r : 0;
    }
    r = look_at_files(c->us, id, &f, e);
    if (r != 0 || f.there[1] || f.receipt) {
        return r;
    }
    c->count += (unsigned)f.there[0] + (unsigned)f.there[2] + (unsigned)f.there[3];
    return upload_remove(c->us, slice_cstr(id), e);
}

static int clean_see(void *ctx, const char *name)
{
    struct cleaning *c = ctx;
    char path[UPLOADS_PATH_MAX];
    char id[UPLOAD_ID_LEN + 1];
    struct err e = {0};
    int r = 0;
    if (is_temp(c, name)) {
        (void)snprintf(path, sizeof path, "%s/%s", c->dir, name);
        r = os_unlink(path);
        r = r < 0 && r != -ENOENT ? err_os(&e, r, "remove", path) : 0;
        c->count += r == 0;
    } else if (!c->receipts && is_part(name, id)) {
        r = clean_part(c, id, &e);
    } else {
        note_foreign(c, name);
    }
    if (r != 0 && c->failed == 0) {
        c->failed = r;
        c->why = e;
    }
    return 0;
}

int uploads_clean(struct uploads *us, unsigned *count, struct err *e)
{
    struct cleaning c = {.us = us};
    *count = 0;
    for (unsigned i = 0; i < 2; i++) {
        c.receipts = i == 1;
        c.dir = c.receipts ? us->receipts : us->uploads;
        c.foreign = 0;
        memset(c.first, 0, sizeof c.first);
        int r = os_list(c.dir, clean_see, &c);
        if (r < 0) {
            return err_os(e, r, "list", c.dir);
        }
        if (c.foreign > 0) {
            log_line(LOG_WARN, "uploads", "%s: %u names are none of ours and left alone, as %s",
                     c.dir, c.foreign, c.first);
        }
    }
    *count = c.count;
    if (c.failed != 0 && e != NULL) {
        *e = c.why;
    }
    return c.failed;
}
