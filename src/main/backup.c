/* backup: the stores, one after the other, and why in this order.
 *
 * Everything that was acknowledged before the command began is in the backup, of every store.
 * Stores do not wait for one another, so what was acknowledged while it ran may be in it or not,
 * each for itself; but nothing in it may rest on what is not in it. What rests on what:
 *
 *   a row of delivery.sqlite    on plan and manifest in packages/, and on the receipt
 *   a package                   on the receipt
 *   a receipt                   on the bytes and .info in uploads/, and on a project
 *   a partial upload            on its bytes up to the saved offset, and on a project
 *   a captured event's receipt  on the event: queued, in the same database; delivered, in engine/
 *
 * Each is copied before what it rests on, and what it rests on never goes: receipts, packages,
 * accepted bytes and projects stay, and delivered events stay in the engine. So:
 *
 *   1 journal                   rests on nothing; its end is the position of the backup
 *   2 delivery.sqlite, packages, receipts with their bytes, partial uploads
 *   3 tallyman.sqlite           one view: an event is in it, or its delivery is recorded
 *   4 engine/                   has every event whose delivery is recorded in 3. What was delivered
 *                               between 3 and 4 is there and in the queue: it is sent again, and
 *                               the same row replaces it
 *
 * With a ClickHouse of yours 4 is that server's backup, taken after this one. head.key is a secret
 * and goes along (mode 0600), so that a restored server signs as before. index/, remnants/, sockets
 * and locks do not.
 *
 * Power failure: backup_dir.c. Answers: all errors. */
#include "main/backup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ensure.h"
#include "journal/cut.h"
#include "main/output.h"
#include "main/version.h"
#include "os/os.h"
#include "store/copy.h"
#include "store/store.h"
#include "json/read.h"

#define HEAD_KEY "head.key"

/* ---- the server ---- */

static int ask_frontier(void *ctx, struct uuid *last_id, bool *empty, struct err *e)
{
    struct backup *b = ctx;
    struct client *client = NULL;
    struct client_answer answer = {0};
    struct slice frontier;
    struct slice value;
    struct slice inner;
    const struct client_request req = {.path = "/api/v1/status", .repeatable = true};
    int r = client_open(&client, &b->target, e);
    if (r != 0) {
        return r;
    }
    r = client_do(client, &req, &answer, e);
    if (r == 0 && answer.status != 200) {
        r = client_refusal(client, &answer, e);
    }
    if (r == 0) {
        bool ok = json_member(buf_slice(&answer.body), SLICE("frontier"), &frontier) &&
                  json_member(frontier, SLICE("event_id"), &value);
        *empty = ok && json_type_of(value) == JSON_NULL;
        ok = ok && (*empty || (json_string_raw(value, &inner) && uuid7_parse(inner, last_id)));
        r = ok ? 0 : err_set(e, ERR_REFUSED, "the server does not say where its journal stands");
    }
    client_answer_free(&answer);
    client_close(client);
    return r;
}

/* Whether a server works on the directory; else its lock is held, shared, so that none begins. */
static int find_server(struct backup *b, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    int r = backup_join(path, b->data, "lock", e);
    if (r != 0) {
        return r;
    }
    b->data_fd = os_open(path, O_RDWR, 0);
    if (b->data_fd == -EROFS || b->data_fd == -EACCES) {
        b->data_fd = os_open(path, O_RDONLY, 0);
    }
    if (b->data_fd == -ENOENT) {
        return 0; /* no server was ever here: a restored directory, or a copy without its lock */
    }
    if (b->data_fd < 0) {
        return err_os(e, b->data_fd, "open", path);
    }
    r = os_flock(b->data_fd, LOCK_SH | LOCK_NB);
    b->live = r == -EWOULDBLOCK;
    return r < 0 && !b->live ? err_os(e, r, "lock", path) : 0;
}

/* ---- the journal ---- */

static int copy_closed(struct backup *b, struct journal_cut *cut, struct err *e)
{
    char path[LAYOUT_PATH_MAX];
    char last[LAYOUT_PATH_MAX] = "";
    int r = 0;
    for (uint32_t i = cut_count(cut); i > 0 && r == 0; i--) {
        r = cut_path(cut, i - 1, path, e);
        if (r == 0 && strcmp(path, last) != 0) {
            r = backup_take(b, path, BACKUP_FIXED, BACKUP_ALL, e);
        }
        if (r == ERR_NOT_FOUND) {
            r = cut_again(cut, i - 1, e); /* it was sealed */
            i++;
            continue;
        }
        memcpy(last, path, sizeof last);
    }
    return r;
}

/* The tail up to its last batch, without padding: as if it had been closed cleanly there. */
static int copy_tail(struct backup *b, const struct journal_cut *cut, struct err *e)
{
    struct backup_entry entry;
    int r = cut->tail_fd < 0 ? backup_write(b, "journal/tail.ndjson", SLICE(""), &entry, e)
                             : backup_copy_open(b, cut->tail_fd, "journal/tail.ndjson",
                                                cut->tail_bytes, &entry, e);
    if (r == 0) {
        backup_put(b, &entry, false);
    }
    return r;
}

static int copy_cut(struct backup *b, struct journal_cut *cut, struct err *e)
{
    static const char *const folders[] = {"journal", "journal/pending", "journal/segments"};
    struct backup_entry entry;
    int r = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && r == 0; i++) {
        r = backup_directory(b, folders[i], e);
    }
    if (r == 0) {
        r = copy_closed(b, cut, e);
    }
    if (r == 0) {
        r = copy_tail(b, cut, e);
    }
    if (r == 0) {
        ensure(cut->manifest_bytes <= cut->manifest.len);
        r = backup_write(b, "journal/manifest.jsonl",
                         slice_of(cut->manifest.ptr, cut->manifest_bytes), &entry, e);
    }
    if (r == 0) {
        backup_put(b, &entry, false);
    }
    return r;
}

int backup_journal(struct backup *b, struct err *e)
{
    struct journal_cut cut;
    int r = cut_open(b->data, b->live ? ask_frontier : NULL, b, &cut, e);
    if (r == 0) {
        r = copy_cut(b, &cut, e);
        cut_close(&cut);
    }
    return r;
}

/* ---- databases ---- */

static void on_pages(void *ctx, uint64_t done, uint64_t total)
{
    struct backup *b = ctx;
    (void)done;
    (void)total;
    progress_update(&b->progress, b->moved);
}

int backup_database(struct backup *b, const char *name, struct err *e)
{
    char path[BACKUP_FULL_MAX];
    struct backup_entry entry;
    int r = backup_join(path, b->tree, name, e);
    if (r == 0) {
        r = store_copy(b->data, name, path, on_pages, b, e);
    }
    if (r == ERR_NOT_FOUND) {
        return 0;
    }
    if (r == 0) {
        r = backup_hash(b, name, &entry, e);
    }
    if (r == 0) {
        backup_put(b, &entry, false);
    }
    return r;
}

/* ---- all of it ---- */

static int copy_key(struct backup *b, struct err *e)
{
    int r = backup_take(b, HEAD_KEY, BACKUP_FRESH, BACKUP_ALL, e);
    return r == ERR_NOT_FOUND ? 0 : r;
}

static int copy_stores(struct backup *b, struct err *e)
{
    static int (*const stores[])(struct backup * b, struct err * e) = {backup_journal,
                                                                       backup_artifacts};
    int r = 0;
    for (size_t i = 0; i < sizeof stores / sizeof *stores && r == 0; i++) {
        r = stores[i](b, e);
    }
    if (r == 0) {
        r = backup_database(b, STORE_FILE, e);
    }
    if (r == 0) {
        r = backup_engine(b, e);
    }
    return r == 0 ? copy_key(b, e) : r;
}

int backup_run(struct backup *b, const char *data, const char *dir,
               const struct client_target *target, struct err *e)
{
    *b = (struct backup){.data = data, .data_fd = -1, .dir_fd = -1, .target = *target};
    b->list.fd = -1;
    progress_start_silent(&b->progress, "backup", 0, 0);
    int r = restore_check(data, e);
    if (r == 0) {
        r = backup_begin(b, dir, e);
    }
    if (r == 0) {
        r = find_server(b, e);
    }
    if (r == 0) {
        r = copy_stores(b, e);
    }
    if (r == 0) {
        r = backup_prove(b->tree, &b->about, e);
    }
    if (r == 0) {
        timefmt_ms(b->about.made_at, os_clock_real_ms());
        (void)snprintf(b->about.version, sizeof b->about.version, "tallyman %s+%s",
                       version_number(), version_revision());
        r = backup_commit(b, e);
    }
    if (r != 0) {
        backup_give_up(b);
    }
    progress_end();
    return r;
}
