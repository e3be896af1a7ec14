/* Opening and closing, and the small state that everybody shares.
 *
 * Order of making a journal: directories, an empty tail, their directory entries, and last the
 * manifest, whose LF is the commit point. A crash before it leaves a directory without events that
 * is made again. Order of opening: lock; manifest; list pending/; sync manifest, tail and
 * directories and drop the page cache of both files, so that what is believed is what the device
 * holds (RELIABILITY R6); finish a cut rotation; summaries and keys of closed generations
 * (rebuild.c); recover the tail; then appends may come, or, when the index lacks something, reads
 * first. Clean close: trim the tail and sync it. No padding then says "closed cleanly". A poisoned
 * journal is left as it is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/metrics.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/manifest.h"
#include "os/os.h"

#define LOCK_TRIES 10000

/* ---- opening ---- */

static int take_lock(struct journal *j, struct err *e)
{
    int fd = os_open(j->layout.lock, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_os(e, fd, "open", j->layout.lock);
    }
    /* A verify beside us holds a shared lock for an instant, to see whether a server runs. */
    int r = -EWOULDBLOCK;
    for (int i = 0; i < LOCK_TRIES && r == -EWOULDBLOCK; i++) {
        r = os_flock(fd, LOCK_EX | LOCK_NB);
    }
    if (r == 0) {
        j->lock_fd = fd;
        return 0;
    }
    (void)os_close(fd);
    if (r == -EWOULDBLOCK) {
        return err_set(e, ERR_LOCKED, "another process uses %s", j->layout.root);
    }
    return err_os(e, r, "lock", j->layout.lock);
}

static int make_dirs(struct journal *j, struct err *e)
{
    const char *dirs[] = {j->layout.root, j->layout.journal, j->layout.pending, j->layout.segments};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        int r = os_mkdir_exist_ok(dirs[i], 0700);
        if (r < 0) {
            return err_os(e, r, "make directory", dirs[i]);
        }
    }
    return 0;
}

static int sync_parent(const char *root, struct err *e)
{
    char parent[LAYOUT_PATH_MAX];
    (void)snprintf(parent, sizeof parent, "%s", root);
    char *slash = strrchr(parent, '/');
    if (slash == NULL) {
        (void)snprintf(parent, sizeof parent, ".");
    } else if (slash == parent) {
        slash[1] = '\0';
    } else {
        *slash = '\0';
    }
    int r = os_sync_dir(parent);
    /* A parent that may not be read cannot be synced by us; whoever made it that way made the
     * directory too. */
    return r < 0 && r != -EACCES ? err_os(e, r, "sync directory", parent) : 0;
}

/* No committed manifest: there may be no event either. */
static int create(struct journal *j, struct err *e)
{
    struct inventory inv;
    int r = inventory_take_alone(&j->layout, &inv, e); /* segments have no record either, then */
    if (r != 0) {
        return r;
    }
    uint32_t count = inv.count;
    inventory_free(&inv);
    int fd = os_open(j->layout.tail, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_os(e, fd, "create", "tail.ndjson");
    }
    struct os_stat st = {0};
    r = os_fstat(fd, &st);
    if (count > 0 || st.size > 0) {
        (void)os_close(fd);
        return err_set_at(e, ERR_CORRUPT, 0, "manifest.jsonl is missing but there are events");
    }
    if (r == 0) {
        r = os_fsync(fd);
    }
    (void)os_close(fd);
    const char *dirs[] = {j->layout.pending, j->layout.segments, j->layout.journal, j->layout.root};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs && r == 0; i++) {
        r = os_sync_dir(dirs[i]);
    }
    if (r < 0) {
        return err_os(e, r, "create", "the journal");
    }
    r = sync_parent(j->layout.root, e);
    return r != 0 ? r : manifest_create(&j->layout, e);
}

static int check_manifest(struct journal *j, struct err *e)
{
    struct manifest m;
    int r = manifest_settle(&j->layout, e);
    if (r != 0) {
        return r;
    }
    r = manifest_read(&j->layout, &m, e);
    if (r != 0) {
        return r;
    }
    manifest_free(&m);
    if (m.state != MANIFEST_GOOD) {
        return create(j, e);
    }
    if (m.file_bytes == m.good_bytes) {
        return 0;
    }
    return journal_cut_manifest(j, m.good_bytes, e);
}

/* The tail's descriptor, after a cut rotation has been finished and everything unsynced was synced
 * or dropped. */
static int open_tail(struct journal *j, int *fd_out, struct err *e)
{
    int fd = os_open(j->layout.tail, O_RDWR, 0);
    if (fd == -ENOENT) {
        /* The rename that closed the old tail comes first on the device, else a crash could leave
         * the new one in its place and the old one nowhere. */
        int r = os_sync_dir(j->layout.pending);
        if (r == 0) {
            r = os_sync_dir(j->layout.journal);
        }
        if (r < 0) {
            return err_os(e, r, "sync", "the journal directory");
        }
        r = os_rename(j->layout.spare, j->layout.tail);
        if (r == -ENOENT) {
            return err_set_at(e, ERR_CORRUPT, 0, "tail.ndjson is missing");
        }
        if (r < 0) {
            return err_os(e, r, "rename", "tail.next");
        }
        fd = os_open(j->layout.tail, O_RDWR, 0);
    } else if (fd >= 0) {
        int r = os_unlink(j->layout.spare);
        if (r < 0 && r != -ENOENT) {
            (void)os_close(fd);
            return err_os(e, r, "remove", "tail.next");
        }
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "tail.ndjson");
    }
    int r = os_fsync(fd);
    if (r == 0) {
        r = os_sync_dir(j->layout.pending);
    }
    if (r == 0) {
        r = os_sync_dir(j->layout.journal);
    }
    if (r == 0) {
        r = os_drop_cache(fd);
    }
    if (r < 0) {
        (void)os_close(fd);
        return err_os(e, r, "sync", "tail.ndjson");
    }
    *fd_out = fd;
    return 0;
}

/* Everything behind the lock. ERR_CORRUPT: j serves what is proven. */
static int open_locked(struct journal *j, struct err *e)
{
    int r = make_dirs(j, e);
    if (r == 0) {
        r = check_manifest(j, e);
    }
    int fd = -1;
    if (r == 0) {
        r = open_tail(j, &fd, e);
    }
    if (r != 0) {
        return r;
    }
    r = journal_load_closed(j, e);
    if (r == 0 && journal_add_generation(j, fd) == NULL) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for generations");
    }
    if (r != 0) {
        /* Behind damage nothing is believed, so there is no tail; journal_close leaves the files
         * alone. */
        (void)os_close(fd);
        return r;
    }
    r = journal_recover_tail(j, fd, e);
    if (r == 0 && j->damaged_segment[0] != '\0') { /* its events are read, or lost, with the rest */
        r = err_set(e, ERR_CORRUPT, "%s", j->damaged_segment);
    }
    if (r != 0 || atomic_load(&j->indexing)) {
        return r; /* nothing is changed before all is proven (rebuild.c) */
    }
    return journal_ready_tail(j, e);
}

int journal_start_spare(struct journal *j, struct err *e)
{
    int r = spare_start(&j->spare, &j->layout, j->options.generation_bytes, j->options.threads, e);
    if (r == 0) {
        j->spare_running = true;
        spare_request(&j->spare);
    }
    return r;
}

static void free_journal(struct journal *j)
{
    journal_rebuild_stop(j);
    sealer_stop(j);
    journal_lookup_rest(j);
    if (j->spare_running) {
        spare_stop(&j->spare);
    }
    if (j->index != NULL) {
        index_close(j->index);
    }
    streams_free(j->streams);
    lifecycle_free(j->lifecycle);
    for (uint32_t i = 0; i < j->generation_made; i++) {
        struct generation *g = j->generations[i];
        ensure(g->file == NULL || (g->tail && g->file->users == 1));
        bytes_file_close(g->file);
        free(g->block_crcs);
        free(g);
    }
    free(j->generations);
    free(j->staged);
    buf_free(&j->group);
    buf_free(&j->scratch);
    buf_free(&j->lookup);
    if (j->lock_fd >= 0) {
        (void)os_close(j->lock_fd);
    }
    (void)pthread_mutex_destroy(&j->lock);
    sealer_free(&j->sealer);
    free(j);
}

int journal_open(const char *dir, const struct journal_options *options, struct journal **out,
                 struct err *e)
{
    struct err local = {0};
    e = e != NULL ? e : &local;
    struct journal *j = calloc(1, sizeof *j);
    if (j == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for the journal");
    }
    j->lock_fd = -1;
    j->options = *options;
    if (j->options.generation_bytes == 0) {
        j->options.generation_bytes = JOURNAL_GENERATION_BYTES;
    }
    if (j->options.group_bytes == 0) {
        j->options.group_bytes = JOURNAL_GROUP_BYTES;
    }
    int r = pthread_mutex_init(&j->lock, NULL);
    ensure(r == 0);
    sealer_init(&j->sealer);
    atomic_init(&j->poisoned, false);
    atomic_init(&j->indexing, false);
    atomic_init(&j->rebuild.stop, false);
    j->frontier.empty = true;
    j->frontier.complete = true;
    memcpy(j->frontier.head, chain_genesis, SHA256_LEN);
    j->streams = streams_new();
    j->lifecycle = lifecycle_new();
    r = j->streams == NULL || j->lifecycle == NULL
            ? err_set(e, ERR_NO_MEMORY, "no memory for streams")
            : layout_make(&j->layout, dir, e);
    if (r == 0) {
        int made = os_mkdir_exist_ok(j->layout.root, 0700);
        r = made < 0 ? err_os(e, made, "make directory", j->layout.root) : 0;
    }
    if (r == 0) {
        r = take_lock(j, e);
    }
    if (r == 0) {
        r = open_locked(j, e);
    }
    if (r == ERR_CORRUPT && j->index != NULL) {
        journal_poison_damaged(j, e->text);
        journal_refresh_metrics(j);
        r = journal_rebuild_start(j, e); /* for the count and the head of what is proven */
        if (r != 0) {
            free_journal(j);
            return r;
        }
        *out = j;
        return 0;
    }
    if (r == 0 && !atomic_load(&j->indexing)) {
        r = journal_start_spare(j, e);
    }
    if (r != 0) {
        free_journal(j);
        return r;
    }
    journal_refresh_metrics(j);
    metric_set(METRIC_JOURNAL_POISONED, 0);
    r = journal_rebuild_start(j, e);
    if (r != 0) {
        free_journal(j);
        return r;
    }
    *out = j;
    return 0;
}

int journal_close(struct journal *j, struct err *e)
{
    int r = 0;
    journal_rebuild_stop(j);
    sealer_stop(j);
    if (!j->poisoned && !atomic_load(&j->indexing)) {
        spare_stop(&j->spare);
        j->spare_running = false;
        struct generation *tail = journal_tail(j);
        r = os_ftruncate(tail->fd, tail->bytes);
        if (r == 0) {
            r = os_fsync(tail->fd);
        }
        if (r == 0) {
            r = os_sync_dir(j->layout.journal);
        }
        r = r < 0 ? err_os(e, r, "close", "tail.ndjson") : 0;
        index_flush(j->index);
    }
    free_journal(j);
    return r;
}
