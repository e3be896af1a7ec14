/* Opening and closing, and the small state that everybody shares.
 *
 * Order of making a journal: directories, an empty tail, their directory entries, and last the
 * manifest, whose LF is the commit point. A crash before it leaves a directory without events that
 * is made again. Order of opening: lock; manifest; list pending/; sync manifest, tail and
 * directories and drop the page cache of both files, so that what is believed is what the device
 * holds (RELIABILITY R6); finish a cut rotation; summaries and keys of closed generations (rebuilt
 * where they are missing); recover the tail; then appends may come. Clean close: trim the tail and
 * sync it. No padding then says "closed cleanly". A poisoned journal is left as it is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/scan.h"
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
    struct layout_generation *rows = NULL;
    uint32_t count = 0;
    int r = layout_list_pending(&j->layout, &rows, &count, e);
    free(rows);
    if (r != 0) {
        return r;
    }
    int fd = os_open(j->layout.tail, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return err_os(e, fd, "create", "tail.ndjson");
    }
    struct os_stat st;
    r = os_fstat(fd, &st);
    if (r == 0 && (count > 0 || st.size > 0)) {
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

/* What the last process wrote of the manifest is durable, or forgotten: after a sync of it that
 * failed the page cache shows what the device does not hold. */
static int settle_manifest(struct journal *j, struct err *e)
{
    int fd = os_open(j->layout.manifest, O_RDONLY, 0);
    if (fd == -ENOENT) {
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    int r = os_fsync(fd);
    if (r == 0) {
        r = os_drop_cache(fd);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "sync", "manifest.jsonl") : 0;
}

static int check_manifest(struct journal *j, struct err *e)
{
    struct manifest m;
    int r = settle_manifest(j, e);
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
    /* A last record without LF was never committed. */
    int fd = os_open(j->layout.manifest, O_RDWR, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    r = os_ftruncate(fd, m.good_bytes);
    if (r == 0) {
        r = os_fsync(fd);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "truncate", "manifest.jsonl") : 0;
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

/* Proves a whole closed generation and makes its summary (and keys) again. */
static int rebuild(struct journal *j, struct generation *g, bool with_keys, struct err *e)
{
    if (g->bytes > UINT32_MAX) {
        return err_set(e, ERR_UNSUPPORTED, "closed generation %u is larger than 4 GiB", g->ordinal);
    }
    struct bytes_file *file;
    int r = journal_hold(j, g, &file, e);
    if (r != 0) {
        return r;
    }
    struct scan s;
    struct scan_batch b = {0};
    struct index_summary sum = {.generation = g->ordinal,
                                .bytes = g->bytes,
                                .first_id = g->first_id,
                                .last_id = g->last_id};
    struct err why = {0};
    log_line(LOG_INFO, "journal", "rebuilding the index of generation %u", g->ordinal);
    scan_start_file(&s, file, g->bytes, j->frontier.empty ? NULL : &j->frontier.last_id,
                    j->frontier.head);
    s.origin = journal_origin(j, g->ordinal);
    while ((r = scan_next(&s, &b, journal_count_line, j, &why)) == 1) {
        streams_keep(j->streams);
        sum.batches++;
        if (with_keys && journal_index_batch(j, &b, g->ordinal) != 0) {
            r = err_set(&why, ERR_NO_MEMORY, "no memory for batch keys");
            break;
        }
    }
    streams_undo(j->streams);
    if (r == 0 &&
        (s.offset != g->bytes || s.events == 0 || uuid_cmp(&b.last_id, &g->last_id) != 0)) {
        r = err_set_at(&why, ERR_CORRUPT, s.offset, "it does not end with its last event");
    }
    if (r == ERR_CORRUPT) {
        r = err_set_at(e, ERR_CORRUPT, s.offset, "closed generation %u is damaged at byte %llu: %s",
                       g->ordinal, (unsigned long long)s.offset, why.text);
    } else if (r != 0) {
        *e = why;
        journal_say_refused(r, s.offset, e);
    }
    g->events = s.events;
    uint64_t proven = s.offset;
    memcpy(sum.head, s.head, SHA256_LEN);
    sum.events = s.events;
    if (s.events > 0) {
        j->frontier.empty = false;
        j->frontier.last_id = s.last_id;
        j->frontier.events += s.events;
        memcpy(j->frontier.head, s.head, SHA256_LEN);
        g->last_id = r == 0 ? g->last_id : s.last_id;
    }
    scan_stop(&s);
    journal_release(j, g, file);
    if (r != 0) {
        g->bytes = proven;
        j->bytes += proven;
        return r;
    }
    j->bytes += g->bytes;
    char path[LAYOUT_PATH_MAX];
    journal_generation_path(j, g, path);
    r = streams_generation(j->streams, true, &sum.streams, &sum.stream_count);
    if (r == 0) {
        r = index_close_generation(j->index, &sum, path, with_keys, e);
        free(sum.streams);
        index_settle(j->index); /* one generation's keys in memory at a time */
    }
    return r;
}

/* One closed generation: by its summary when that holds, else by reading it. */
static int load_generation(struct journal *j, struct generation *g, bool keys_known, struct err *e)
{
    struct index_generation expect = {g->first_id, g->last_id, g->bytes};
    struct index_summary sum;
    struct err why = {0};
    int r = index_summary_load(j->layout.index, g->ordinal, &expect, &sum, &why);
    if (r == ERR_NO_MEMORY) {
        *e = why;
        return r;
    }
    if (r != 0 || !keys_known) {
        if (r == 0) {
            index_summary_free(&sum);
        }
        return rebuild(j, g, !keys_known, e);
    }
    for (uint32_t i = 0; i < sum.stream_count && r == 0; i++) {
        r = streams_load(j->streams, &sum.streams[i]);
    }
    g->events = sum.events;
    j->bytes += g->bytes;
    j->frontier.empty = false;
    j->frontier.last_id = g->last_id;
    j->frontier.events += sum.events;
    memcpy(j->frontier.head, sum.head, SHA256_LEN);
    r = r == 0 ? journal_load_retirements(j, g, &sum, e) : err_set(e, r, "no memory for streams");
    index_summary_free(&sum);
    return r;
}

static int load_closed(struct journal *j, struct err *e)
{
    struct inventory inv;
    int r = inventory_take(&j->layout, &inv, e);
    if (r != 0) {
        return r;
    }
    const struct layout_generation *rows = inv.closed;
    uint32_t count = inv.count;
    j->manifest_bytes = inv.manifest.good_bytes;
    struct index_generation *closed = calloc(count + 1u, sizeof *closed);
    bool *known = calloc(count + 1u, sizeof *known);
    r = closed == NULL || known == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for generations")
                                        : 0;
    for (uint32_t i = 0; i < count && r == 0; i++) {
        closed[i] = (struct index_generation){rows[i].first_id, rows[i].last_id, rows[i].bytes};
    }
    if (r == 0) {
        j->index = index_open(j->layout.index, closed, count, known, j->options.threads, e);
        r = j->index == NULL ? e->code : 0;
    }
    for (uint32_t i = 0; i < count && r == 0; i++) {
        struct generation *g = journal_add_generation(j, -1);
        if (g == NULL) {
            r = err_set(e, ERR_NO_MEMORY, "no memory for generations");
            break;
        }
        g->first_id = rows[i].first_id;
        g->last_id = rows[i].last_id;
        g->named_last_id = rows[i].last_id;
        g->bytes = rows[i].bytes;
        r = rows[i].sealed ? journal_load_sealed(j, g, &rows[i], e) : 0;
        if (r == 0) {
            r = load_generation(j, g, known[i], e);
        }
    }
    free(closed);
    free(known);
    if (r == 0) {
        r = journal_clear_seals(j, &inv, e);
    }
    inventory_free(&inv);
    return r;
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
    r = load_closed(j, e);
    if (r == 0 && journal_add_generation(j, fd) == NULL) {
        r = err_set(e, ERR_NO_MEMORY, "no memory for generations");
    }
    if (r != 0) {
        /* Behind damage nothing is believed, so there is no tail; journal_close leaves the files
         * alone. */
        (void)os_close(fd);
        return r;
    }
    return journal_recover_tail(j, fd, e);
}

static void free_journal(struct journal *j)
{
    sealer_stop(j);
    if (j->spare_running) {
        spare_stop(&j->spare);
    }
    if (j->index != NULL) {
        index_close(j->index);
    }
    streams_free(j->streams);
    lifecycle_free(j->lifecycle);
    for (uint32_t i = 0; i < j->generation_count; i++) {
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
    j->frontier.empty = true;
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
        *out = j;
        return 0;
    }
    if (r == 0) {
        r = spare_start(&j->spare, &j->layout, j->options.generation_bytes, j->options.threads, e);
        j->spare_running = r == 0;
    }
    if (r != 0) {
        free_journal(j);
        return r;
    }
    spare_request(&j->spare);
    journal_refresh_metrics(j);
    metric_set(METRIC_JOURNAL_POISONED, 0);
    *out = j;
    return 0;
}

int journal_close(struct journal *j, struct err *e)
{
    int r = 0;
    sealer_stop(j);
    if (!j->poisoned) {
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
        index_settle(j->index);
    }
    free_journal(j);
    return r;
}
