/* Opening and closing tallyman.sqlite; status; ticks; readers.
 *
 * If power fails while the file is made: an empty file is an empty database; the directory is
 * synced before SQLite writes to it, so a file that holds anything has its name. SQLite itself
 * syncs the directory when it makes the WAL, but does not look at the result; so it is synced again
 * before the first job. Before the first read the files are synced and their pages dropped from the
 * cache: after a failed sync the kernel may show bytes that the disk does not hold, and recovery
 * must not believe them (RELIABILITY R6).
 *
 * What stops the start: anything that cannot be read, a newer or foreign schema, no space. */
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "os/os.h"
#include "store/internal.h"
#include "store/schema.h"

#define CACHE_KIB        (64 * 1024)
#define SPACE_BACK_BYTES (4u << 20) /* free on the disk: intake may be tried again */

const struct store_options store_options_default = {
    .queue_events_max = 10000000,
    .queue_bytes_max = UINT64_C(8) << 30,
    .project_events_max = 5000000,
    .project_bytes_max = UINT64_C(4) << 30,
    .wal_bytes_max = UINT64_C(64) << 20,
    .threads = true,
};

static const char *const statement_text[ST_COUNT] = {
#define X(sym, text) text,
    STORE_STATEMENTS(X)
#undef X
};

/* ---- opening ---- */

static int path_of(const char *data, const char *suffix, char **out, struct err *e)
{
    size_t size = strlen(data) + sizeof "/" STORE_FILE + strlen(suffix);
    char *path = malloc(size);

    if (path == NULL) {
        return err_set(e, ERR_NO_MEMORY, "open %s: out of memory", STORE_FILE);
    }
    snprintf(path, size, "%s/%s%s", data, STORE_FILE, suffix);
    *out = path;
    return 0;
}

/* Syncs a file and drops its pages from the cache. flags: O_CREAT makes it. A missing one is fine
 * without. */
static int settle(const char *path, int flags, struct err *e)
{
    int fd = os_open(path, O_RDWR | flags, 0600);
    int r;

    if (fd == -ENOENT && flags == 0) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fsync(fd);
    if (r < 0) {
        err_os(e, r, "sync", path);
    } else {
        r = os_drop_cache(fd);
        if (r < 0) {
            err_os(e, r, "drop the cache of", path);
        }
    }
    os_close(fd);
    return r < 0 ? (e != NULL ? e->code : ERR_IO) : 0;
}

static int settle_files(const char *data, const char *path, struct err *e)
{
    struct err why;
    char *wal = NULL;
    int r = path_of(data, "-wal", &wal, e);

    if (r == 0) {
        r = settle(path, O_CREAT, &why);
        if (r == 0) {
            r = settle(wal, 0, &why);
        }
        if (r < 0 && e != NULL) {
            *e = why;
        }
    }
    if (r == 0) {
        r = os_sync_dir(data);
        r = r < 0 ? err_os(e, r, "sync", data) : 0;
    }
    free(wal);
    return r;
}

static int use_wal(struct sqlite3 *db, const struct store_options *o, struct err *e)
{
    struct sqlite3_stmt *st = NULL;
    char limit[80];
    int r = db_prepare(db, "PRAGMA journal_mode=WAL", &st, e);

    if (r == 0) {
        r = db_step(st, "switch to write-ahead logging", e);
    }
    if (r > 0) {
        bool wal = slice_eq(db_column(st, 0), SLICE("wal"));
        r = wal ? 0 : err_set(e, ERR_IO, "%s cannot use write-ahead logging here", STORE_FILE);
    }
    sqlite3_finalize(st);
    if (r < 0) {
        return r;
    }
    /* A very large turn's WAL is cut down to this again. */
    sqlite3_snprintf((int)sizeof limit, limit,
                     "PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=%lld",
                     (long long)o->wal_bytes_max);
    return db_exec(db, limit, e);
}

static int on_commit(void *ctx, struct sqlite3 *db, const char *name, int frames)
{
    struct store *s = ctx;

    (void)db;
    (void)name;
    s->wal_frames = frames < 0 ? 0 : (uint64_t)frames;
    return SQLITE_OK;
}

int store_read_sums(struct store *s, struct account_sums *out, struct err *e)
{
    struct sqlite3_stmt *st = s->st[ST_COUNTERS_SUM];
    int r = db_step(st, "sum the counters", e);

    if (r < 0) {
        return r;
    }
    ensure(r == 1);
    *out = (struct account_sums){.pending_events = sqlite3_column_int64(st, 0),
                                 .pending_bytes = sqlite3_column_int64(st, 1),
                                 .receipts = sqlite3_column_int64(st, 2),
                                 .rejected = sqlite3_column_int64(st, 3),
                                 .quarantined = sqlite3_column_int64(st, 4)};
    sqlite3_reset(st);
    return 0;
}

static int open_database(struct store *s, const char *path, struct err *e)
{
    int r = db_open(path, SQLITE_OPEN_READWRITE, CACHE_KIB, &s->db, e);

    if (r == 0) {
        /* Before anything is written: a file that is refused stays as it was. */
        r = schema_check(s->db, &s->schema_version, e);
    }
    if (r == 0) {
        /* Vacuums nothing by itself: pages are used again. Matters for a new file only. */
        r = db_exec(s->db, "PRAGMA auto_vacuum=NONE", e);
    }
    if (r == 0) {
        r = use_wal(s->db, &s->options, e);
    }
    if (r == 0) {
        r = schema_open(s->db, &s->schema_version, e);
    }
    if (r == 0) {
        r = schema_backfill(s->db, e);
    }
    for (int i = 0; r == 0 && i < ST_COUNT; i++) {
        r = db_prepare(s->db, statement_text[i], &s->st[i], e);
    }
    return r;
}

static int load(struct store *s, const char *path, struct err *e)
{
    int r = checkpoint_open(path, &s->options, &s->checkpointer, e);

    if (r == 0) {
        r = db_number(s->db, "SELECT value FROM meta WHERE name = 'next_event_id'", 1, &s->next_id,
                      e);
        s->next_id_stored = s->next_id;
    }
    if (r == 0) {
        r = store_read_sums(s, &s->account.committed, e);
    }
    if (r == 0) {
        r = receipts_open(s, (uint64_t)s->account.committed.receipts, e);
    }
    if (r == 0) {
        r = control_open(s, e);
    }
    sqlite3_wal_hook(s->db, on_commit, s);
    return r;
}

static void release(struct store *s)
{
    checkpoint_close(s->checkpointer);
    receipts_close(s);
    control_close(s->control);
    account_free(&s->account);
    for (int i = 0; i < ST_COUNT; i++) {
        sqlite3_finalize(s->st[i]);
    }
    sqlite3_close(s->db);
    free(s->turn.why);
    free(s->data);
    free(s);
}

static int run_merge(struct store_job *job, struct store *s, struct err *e)
{
    bool more = false;
    int r = queue_merge_receipts(s, &more, e);

    (void)job;
    return r < 0 ? r : more ? STORE_AGAIN : 0;
}

static void merged(struct store_job *job, int code, const struct err *e)
{
    struct store *s = (struct store *)((char *)job - offsetof(struct store, merge_job));

    if (code == STORE_AGAIN) {
        return;
    }
    s->merge_queued = false;
    if (code < 0) {
        log_line((enum log_level)err_level(code), "store", "merge receipts: %s", e->text);
    }
}

void store_merge_if_due(struct store *s, bool idle)
{
    if (!s->merge_queued && receipts_due(s, idle)) {
        s->merge_queued = true;
        store_submit(s, &s->merge_job);
    }
}

int store_open(const char *data, const struct store_options *options, struct store **out,
               struct err *e)
{
    struct store *s = calloc(1, sizeof *s);
    char *path = NULL;
    int r = s == NULL ? err_set(e, ERR_NO_MEMORY, "open the store: out of memory")
                      : path_of(data, "", &path, e);

    *out = NULL;
    if (r < 0) {
        free(s);
        return r;
    }
    s->options = *options;
    for (int i = 0; i <= STORE_BACKGROUND; i++) {
        TAILQ_INIT(&s->waiting[i]);
    }
    s->merge_job = (struct store_job){.run = run_merge, .done = merged, .weight = STORE_BACKGROUND};
    s->turn.why = calloc(TURN_JOBS_MAX, sizeof *s->turn.why);
    s->data = strdup(data);
    if (s->turn.why == NULL || s->data == NULL) {
        r = err_set(e, ERR_NO_MEMORY, "open the store: out of memory");
    }
    if (r == 0) {
        r = settle_files(data, path, e);
    }
    if (r == 0) {
        r = open_database(s, path, e);
    }
    if (r == 0) {
        /* SQLite has synced the name of a new WAL, but passes over a failure. */
        r = os_sync_dir(data);
        r = r < 0 ? err_os(e, r, "sync", data) : 0;
    }
    if (r == 0) {
        r = load(s, path, e);
    }
    free(path);
    if (r < 0) {
        release(s);
        return r;
    }
    store_tick(s);
    *out = s;
    return 0;
}

void store_finish(struct store *s)
{
    s->options.wake = NULL; /* the checkpointer's thread has a copy of its own */
}

int store_close(struct store *s, struct err *e)
{
    int r = 0;

    if (s == NULL) {
        return 0;
    }
    if (s->merge_queued) {
        TAILQ_REMOVE(&s->waiting[STORE_BACKGROUND], &s->merge_job, link);
    }
    for (int i = 0; i <= STORE_BACKGROUND; i++) {
        ensure(TAILQ_EMPTY(&s->waiting[i]));
    }
    /* A poisoned store is left as it is: a restart looks at the disk. */
    if (!s->poisoned) {
        r = checkpoint_empty(s->checkpointer, e);
        if (r == ERR_NO_SPACE) {
            /* Everything is in the WAL, which the next start reads: nothing is lost or unclean. */
            log_line(LOG_WARN, "store", "the write-ahead log stays: no space to write it back");
            r = 0;
        }
    }
    release(s);
    return r;
}

/* ---- state ---- */

void store_poison(struct store *s, const char *cause)
{
    if (!s->poisoned) {
        s->poisoned = true;
        snprintf(s->cause, sizeof s->cause, "%s", cause);
        log_line(LOG_ERROR, "store", "no further acknowledgement until a restart: %s", cause);
        metric_set(METRIC_STORE_POISONED, 1);
    }
}

static void gauges(const struct store *s)
{
    struct store_status st;

    store_get_status(s, &st);
    metric_set(METRIC_STORE_QUEUE_EVENTS, st.pending_events);
    metric_set(METRIC_STORE_QUEUE_BYTES, st.pending_bytes);
    metric_set(METRIC_STORE_QUARANTINED, st.quarantined);
    metric_set(METRIC_STORE_RECEIPTS, st.receipts);
    metric_set(METRIC_STORE_WAL_BYTES, st.wal_bytes);
    metric_set(METRIC_STORE_POISONED, st.poisoned);
    metric_set(METRIC_STORE_NO_SPACE, st.no_space);
}

/* Space came back when there is some and the last pass did not want for it. */
static void look_for_space(struct store *s)
{
    struct err why;
    uint64_t bytes = 0;

    if (s->no_space && os_free_space(s->data, &bytes) == 0 && bytes >= SPACE_BACK_BYTES &&
        checkpoint_state(s->checkpointer, &why) == CHECKPOINT_GO) {
        s->no_space = false;
        s->cause[0] = '\0';
    }
}

void store_tick(struct store *s)
{
    struct account_sums sums;
    struct err e;
    bool idle = true;

    for (int i = 0; i <= STORE_BACKGROUND; i++) {
        idle = idle && TAILQ_EMPTY(&s->waiting[i]);
    }
    if (!s->poisoned) {
        look_for_space(s);
        receipts_tick(s);
        control_tick(s);
        store_merge_if_due(s, idle);
        /* Quarantine is counted by triggers: the table knows best. */
        if (store_read_sums(s, &sums, &e) == 0) {
            s->account.committed.quarantined = sums.quarantined;
        }
    }
    gauges(s);
}

static uint64_t not_below_zero(int64_t v)
{
    return v < 0 ? 0 : (uint64_t)v;
}

void store_get_status(const struct store *s, struct store_status *out)
{
    const struct account_sums *sums = &s->account.committed;

    *out = (struct store_status){.poisoned = s->poisoned,
                                 .no_space = s->no_space,
                                 .pending_events = not_below_zero(sums->pending_events),
                                 .pending_bytes = not_below_zero(sums->pending_bytes),
                                 .quarantined = not_below_zero(sums->quarantined),
                                 .rejected = not_below_zero(sums->rejected),
                                 .receipts = not_below_zero(sums->receipts),
                                 .wal_bytes = checkpoint_wal_bytes(s->checkpointer),
                                 .schema_version = s->schema_version};
    memcpy(out->cause, s->cause, sizeof out->cause);
}

struct sqlite3 *store_db(struct store *s)
{
    return s->db;
}

int store_checkpoint(struct store *s, struct err *e)
{
    return checkpoint_pass(s->checkpointer, e);
}

struct control *store_control(struct store *s)
{
    return s->control;
}
