/* The checkpointer: a thread that moves the WAL into the database and fills receipt filters.
 *
 * Invariants: passes and filling exclude one another (`db_lock`, rank 1); all else that threads
 * share is behind `lock` (rank 2), which is never held over a call to SQLite. A pass never runs
 * after a failed one.
 *
 * If power fails during a pass: SQLite syncs the WAL before it writes the database and the database
 * before the WAL may begin anew, so the WAL still holds every frame that the database may lack.
 *
 * A pass that fails for want of space is tried again. Any other failure stops acknowledging (the
 * loop poisons the store): the kernel may have dropped pages of the database, and a second sync
 * would lie (RELIABILITY R5). */
#include "store/checkpoint.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "os/os.h"
#include "store/db.h"

#define PAGE_BYTES  4096u
#define FRAME_BYTES (PAGE_BYTES + 24u) /* a page and its header in the WAL */
#define CACHE_KIB   2048
#define FILL_ROWS   20000u /* a step of filling; some 10 ms */
#define AGAIN_MS    5u     /* readers kept a held pass from ending: so long until the next */

struct checkpointer {
    struct sqlite3 *db;
    struct sqlite3_stmt *scan;
    uint64_t frames_max;
    void (*wake_loop)(void *ctx);
    void *wake_ctx;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t db_lock, lock;
    pthread_cond_t work, passed;
    /* behind lock */
    bool stop, want;
    bool held;            /* the loop was told to wait since it was last woken */
    uint64_t frames;      /* in the WAL, as of the last commit */
    uint64_t moved;       /* of them, as of the last pass */
    uint64_t complete_at; /* frames when a pass last moved everything */
    int code;             /* of the last pass: 0, ERR_NO_SPACE, or the failure that stays */
    struct err why;
    struct receipt_filter *fill;
    int64_t fill_project; /* filled up to this key */
    uint8_t fill_uuid[16];
    bool fill_begun;
};

static bool over_limit(const struct checkpointer *c)
{
    return c->frames > c->frames_max && c->complete_at != c->frames;
}

/* ---- a pass ---- */

static void note(struct checkpointer *c, int code, const struct err *why, int frames, int moved)
{
    pthread_mutex_lock(&c->lock);
    if (code == ERR_STORE_BUSY || code == ERR_NO_MEMORY) {
        code = 0;             /* nothing moved; the next pass may */
    } else if (frames >= 0) { /* SQLite counts them only where nothing failed */
        c->moved = (uint64_t)moved;
        c->complete_at = frames == moved ? (uint64_t)frames : UINT64_MAX;
        if (c->frames < (uint64_t)frames) {
            c->frames = (uint64_t)frames;
        }
        metric_add(METRIC_STORE_CHECKPOINTS, 1);
    }
    if (c->code == 0 || c->code == ERR_NO_SPACE) {
        c->code = code;
        c->why = *why;
    }
    pthread_cond_broadcast(&c->passed);
    pthread_mutex_unlock(&c->lock);
}

static int pass(struct checkpointer *c, int mode, struct err *e)
{
    struct err why = {0};
    int code = 0, frames = -1, moved = -1;
    bool dead;

    pthread_mutex_lock(&c->db_lock);
    pthread_mutex_lock(&c->lock);
    dead = c->code != 0 && c->code != ERR_NO_SPACE;
    if (dead) {
        why = c->why;
        code = c->code;
    }
    pthread_mutex_unlock(&c->lock);
    if (!dead) {
        if (sqlite3_wal_checkpoint_v2(c->db, "main", mode, &frames, &moved) != SQLITE_OK) {
            code = store_err(&why, c->db, "checkpoint the database");
        }
        note(c, code, &why, frames, moved);
    }
    pthread_mutex_unlock(&c->db_lock);
    if (code == ERR_STORE_BUSY) {
        code = 0;
    }
    if (code != 0 && e != NULL) {
        *e = why;
    }
    return code;
}

int checkpoint_pass(struct checkpointer *c, struct err *e)
{
    return pass(c, SQLITE_CHECKPOINT_PASSIVE, e);
}

int checkpoint_empty(struct checkpointer *c, struct err *e)
{
    return pass(c, SQLITE_CHECKPOINT_TRUNCATE, e);
}

/* ---- filling a filter ---- */

/* One step. 1: there is more. 0: all keys are in. Negative: it cannot be filled. */
static int fill_rows(struct checkpointer *c, struct receipt_filter *f)
{
    struct err e;
    uint32_t rows = 0;
    int r;

    db_bind_int(c->scan, 1, c->fill_begun ? c->fill_project : INT64_MIN);
    db_bind_blob(c->scan, 2, slice_of(c->fill_uuid, c->fill_begun ? sizeof c->fill_uuid : 0));
    db_bind_int(c->scan, 3, FILL_ROWS);
    while ((r = db_step(c->scan, "read the receipts", &e)) > 0) {
        struct slice uuid = db_column(c->scan, 1);
        uint8_t key[16];
        if (uuid.len != sizeof key) {
            r = err_set(&e, ERR_CORRUPT, "a receipt whose uuid has %zu bytes", uuid.len);
            sqlite3_reset(c->scan);
            break;
        }
        memcpy(key, uuid.ptr, sizeof key);
        c->fill_project = sqlite3_column_int64(c->scan, 0);
        receipt_filter_add(f, c->fill_project, key);
        if (++rows == FILL_ROWS) {
            sqlite3_reset(c->scan); /* which still borrowed fill_uuid */
            memcpy(c->fill_uuid, key, sizeof key);
            c->fill_begun = true;
            return 1;
        }
    }
    if (r < 0) {
        log_line(LOG_WARN, "store", "no filter in front of the receipts: %s", e.text);
    }
    return r;
}

static int fill_step(struct checkpointer *c, struct receipt_filter *f)
{
    int r;

    pthread_mutex_lock(&c->db_lock);
    r = fill_rows(c, f);
    pthread_mutex_unlock(&c->db_lock);
    return r;
}

/* The last that the filler does with it. */
static void publish(struct receipt_filter *f, int result)
{
    ensure(result <= 0);
    atomic_store_explicit(result < 0 ? &f->failed : &f->ready, true, memory_order_release);
}

void checkpoint_fill(struct checkpointer *c, struct receipt_filter *f)
{
    int r = 1;

    pthread_mutex_lock(&c->lock);
    ensure(c->fill == NULL);
    c->fill_begun = false;
    if (c->threaded) {
        c->fill = f;
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    if (!c->threaded) {
        while (r > 0) {
            r = fill_step(c, f);
        }
        publish(f, r);
    }
}

/* ---- the thread ---- */

/* Called with lock held, which is given up meanwhile. */
static void thread_pass(struct checkpointer *c)
{
    bool ended;
    struct err e;

    pthread_mutex_unlock(&c->lock);
    if (checkpoint_pass(c, &e) < 0) {
        log_line((enum log_level)err_level(e.code), "store", "%s", e.text);
    }
    pthread_mutex_lock(&c->lock);
    ended = !over_limit(c) || c->code != 0;
    c->want = false; /* another pass now would only stand in the way of a WAL that begins anew */
    if (!ended && !c->stop) {
        struct timespec until = {0};
        uint64_t ns = os_clock_mono_ns() + AGAIN_MS * UINT64_C(1000000);
        until.tv_sec = (time_t)(ns / 1000000000u);
        until.tv_nsec = (long)(ns % 1000000000u);
        pthread_cond_timedwait(&c->work, &c->lock, &until);
        c->want = true;
    }
    /* Asked behind the pass: the WAL may have grown past its limit while it began. */
    if (c->held && ended && c->wake_loop != NULL) {
        c->held = false;
        pthread_mutex_unlock(&c->lock);
        c->wake_loop(c->wake_ctx);
        pthread_mutex_lock(&c->lock);
    }
}

static void *thread_main(void *arg)
{
    struct checkpointer *c = arg;

    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (c->want) {
            thread_pass(c);
        } else if (c->fill != NULL) {
            struct receipt_filter *f = c->fill;
            int r;
            pthread_mutex_unlock(&c->lock);
            r = fill_step(c, f);
            pthread_mutex_lock(&c->lock);
            if (r <= 0) {
                c->fill = NULL;
                publish(f, r);
            }
        } else {
            pthread_cond_wait(&c->work, &c->lock);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the loop's side ---- */

void checkpoint_committed(struct checkpointer *c, uint64_t frames)
{
    uint64_t waiting;

    pthread_mutex_lock(&c->lock);
    if (frames < c->frames) { /* the WAL began anew */
        c->moved = 0;
    }
    c->frames = frames;
    c->complete_at = UINT64_MAX; /* a WAL that began anew may be as long as the one before */
    waiting = frames > c->moved ? frames - c->moved : 0;
    if (waiting >= c->frames_max / 4 || over_limit(c)) {
        c->want = true;
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
}

enum checkpoint_state checkpoint_state(struct checkpointer *c, struct err *why)
{
    enum checkpoint_state state = CHECKPOINT_GO;

    pthread_mutex_lock(&c->lock);
    if (c->code != 0 && c->code != ERR_NO_SPACE) {
        state = CHECKPOINT_FAILED;
        *why = c->why;
    } else if (over_limit(c)) {
        state = c->code == ERR_NO_SPACE ? CHECKPOINT_NO_SPACE : CHECKPOINT_HOLD;
        if (state == CHECKPOINT_NO_SPACE) {
            *why = c->why;
        }
        c->held = c->held || state == CHECKPOINT_HOLD;
        c->want = true;
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
    return state;
}

void checkpoint_wait(struct checkpointer *c, unsigned ms)
{
    uint64_t ns = os_clock_mono_ns() + ms * UINT64_C(1000000);
    struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};

    pthread_mutex_lock(&c->lock);
    if (over_limit(c) && c->code == 0) {
        pthread_cond_timedwait(&c->passed, &c->lock, &until);
    }
    pthread_mutex_unlock(&c->lock);
}

uint64_t checkpoint_wal_bytes(struct checkpointer *c)
{
    uint64_t frames;

    pthread_mutex_lock(&c->lock);
    frames = c->frames;
    pthread_mutex_unlock(&c->lock);
    return frames == 0 ? 0 : 32 + frames * FRAME_BYTES;
}

/* ---- opening and closing ---- */

static void init_locks(struct checkpointer *c)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&c->db_lock, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, &monotonic);
    pthread_cond_init(&c->passed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

int checkpoint_open(const char *path, const struct store_options *options,
                    struct checkpointer **out, struct err *e)
{
    struct checkpointer *c = calloc(1, sizeof *c);
    int r;

    *out = NULL;
    if (c == NULL) {
        return err_set(e, ERR_NO_MEMORY, "start the checkpointer: out of memory");
    }
    c->frames_max = options->wal_bytes_max / FRAME_BYTES;
    c->complete_at = UINT64_MAX;
    c->wake_loop = options->wake;
    c->wake_ctx = options->wake_ctx;
    init_locks(c);
    r = db_open(path, SQLITE_OPEN_READWRITE, CACHE_KIB, &c->db, e);
    if (r == 0) {
        r = db_exec(c->db, "PRAGMA wal_autocheckpoint=0", e);
    }
    if (r == 0) {
        r = db_prepare(c->db,
                       "SELECT project, uuid FROM receipts WHERE (project, uuid) > (?1, ?2)"
                       " ORDER BY project, uuid LIMIT ?3",
                       &c->scan, e);
    }
    if (r == 0) {
        /* Begins with an empty WAL. */
        r = checkpoint_empty(c, e);
        r = r == ERR_NO_SPACE ? 0 : r;
    }
    if (r == 0 && options->threads) {
        int rc = pthread_create(&c->thread, NULL, thread_main, c);
        if (rc != 0) {
            r = err_os(e, -rc, "start the checkpointer's thread for", path);
        } else {
            c->threaded = true;
        }
    }
    if (r < 0) {
        checkpoint_close(c);
        return r;
    }
    *out = c;
    return 0;
}

void checkpoint_close(struct checkpointer *c)
{
    if (c == NULL) {
        return;
    }
    if (c->threaded) {
        pthread_mutex_lock(&c->lock);
        c->stop = true;
        pthread_cond_signal(&c->work);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    sqlite3_finalize(c->scan);
    sqlite3_close(c->db);
    pthread_cond_destroy(&c->passed);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->db_lock);
    free(c);
}
