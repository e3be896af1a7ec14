/* Sealed generations at the start.
 *
 * Of each one the end of its file is read: it must be the segment that the manifest names. Not its
 * blocks: these are checked when they are read, and all of them by `verify`. A segment that is not
 * there or has another end is damage: what stands before it is served, nothing is appended, nothing
 * changed. Unless its plain file is still there, as a crash behind the seal's commit leaves it.
 *
 * What a cut seal left is removed here. A plain file that a record covers goes when the hash of the
 * segment has been found to hold, so that at no moment the only good copy is removed. When it does
 * not hold, and the plain file has what the record says (count, bytes, ids, chain head), the plain
 * file is read in the segment's place, and the segment is made again from it: written beside it,
 * synced, read back, renamed over the damaged one only if it has the very hash that the record
 * names, segments/ synced; then the plain file goes. Power that fails between leaves a temporary
 * file, or the damaged segment or the good one, and always the plain file. When it cannot be made
 * again (no space, another zstd) both files stay, everything is read, and the journal is poisoned
 * as damaged; so it is when the plain file does not hold either.
 *
 * Temporary files go, and whole segments that no record names while their plain file is in force.
 * Removals are not synced: the next start finds the same again, or not. Other names in segments/
 * are left alone. A segment without a record and without its plain file is nothing that a crash can
 * leave: the plain file goes only when the record is committed. So the record is damaged, and the
 * journal is not opened, before anything of the manifest is cut off. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "journal/chain.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/scan.h"
#include "journal/seal_file.h"
#include "journal/segment.h"
#include "os/os.h"

static int look_at_end(struct journal *j, struct generation *g, uint64_t *stored_bytes,
                       struct err *e)
{
    struct bytes_file *file;
    int r = journal_hold(j, g, &file, e);
    if (r == 0) {
        *stored_bytes = file->segment->file_bytes;
        journal_release(j, g, file);
    }
    return r;
}

static int look_at_all(const struct journal *j, const struct layout_generation *row, struct err *e)
{
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&j->layout, row, path);
    return seal_file_check(path, row->sha256, e);
}

static void place_of(const struct journal *j, const struct generation *g, const struct uuid **last,
                     const uint8_t **head)
{
    const struct generation *before = g->ordinal > 0 ? j->generations[g->ordinal - 1] : NULL;
    *last = before != NULL ? &before->last_id : NULL;
    *head = before != NULL ? before->head : chain_genesis; /* sealed, as all before a sealed one */
}

/* Proves a plain file: first and last id, bytes, events and chain head must be those that the
 * manifest has of the sealed generation, and the head is over every byte before it. *sum is what a
 * seal expects of it. ERR_CORRUPT: it is not that generation. */
static int prove_plain(struct journal *j, const struct generation *g,
                       const struct layout_generation *row, struct index_summary *sum,
                       struct err *e)
{
    const struct uuid *last;
    const uint8_t *head;
    struct bytes_file *file;
    char path[LAYOUT_PATH_MAX];
    layout_pending_path(&j->layout, &row->first_id, &row->last_id, path);
    int r = bytes_file_open(path, g->ordinal, &file, e);
    if (r != 0) {
        return r;
    }
    struct scan s;
    struct scan_batch b;
    *sum = (struct index_summary){.generation = g->ordinal, .last_id = row->last_id};
    place_of(j, g, &last, &head);
    scan_start_file(&s, file, row->bytes, last, head);
    s.origin = journal_origin(j, g->ordinal);
    while ((r = scan_next(&s, &b, NULL, NULL, e)) == 1) {
        sum->first_id = sum->batches == 0 ? b.first_id : sum->first_id;
        sum->last_id = b.last_id;
        sum->batches++;
    }
    sum->bytes = s.offset;
    sum->events = s.events;
    memcpy(sum->head, s.head, SHA256_LEN);
    scan_stop(&s);
    if (r == 0 && (sum->bytes != row->bytes || sum->events != row->events ||
                   uuid_cmp(&sum->first_id, &row->first_id) != 0 ||
                   uuid_cmp(&sum->last_id, &row->last_id) != 0 ||
                   memcmp(sum->head, row->head, SHA256_LEN) != 0)) {
        r = err_set(e, ERR_CORRUPT, "the plain file is not the generation that was sealed");
    }
    bytes_file_close(file);
    return r;
}

/* *e says why the segment is damaged. 0: its plain file is read from now on. */
static int read_plain(struct journal *j, struct generation *g, const struct layout_generation *row,
                      const struct layout_generation *plain, struct err *e)
{
    struct index_summary sum;
    struct err why = {0};
    int r = plain->bytes == row->bytes ? prove_plain(j, g, row, &sum, &why) : ERR_CORRUPT;
    if (r != 0) {
        if (r != ERR_CORRUPT) { /* nobody knows */
            *e = why;
        }
        return r;
    }
    log_line(LOG_ERROR, "journal",
             "the segment of generation %u is damaged (%s); its plain file is whole and is read",
             g->ordinal, e->text);
    pthread_mutex_lock(&j->lock);
    g->from_plain = true;
    pthread_mutex_unlock(&j->lock);
    return 0;
}

int journal_load_sealed(struct journal *j, struct generation *g,
                        const struct layout_generation *row, const struct layout_generation *plain,
                        struct err *e)
{
    uint64_t stored_bytes = row->bytes;
    ensure(g->ordinal == j->sealed_count);
    g->sealed = true;
    g->events = row->events;
    memcpy(g->sha256, row->sha256, SHA256_LEN);
    memcpy(g->head, row->head, SHA256_LEN);
    int r = look_at_end(j, g, &stored_bytes, e);
    bool end_holds = r == 0;
    if (r == 0 && plain != NULL) {
        r = look_at_all(j, row, e);
    }
    if (r == ERR_CORRUPT && plain != NULL) {
        r = read_plain(j, g, row, plain, e);
        r = r == ERR_CORRUPT && end_holds ? 0 : r; /* its blocks then, as far as they hold */
    }
    if (r != 0) {
        g->events = 0;
        g->bytes = 0;
        return r;
    }
    j->sealed_count++;
    j->sealed_bytes += row->bytes;
    j->stored_bytes += stored_bytes;
    return 0;
}

int journal_cut_manifest(struct journal *j, uint64_t good_bytes, struct err *e)
{
    struct inventory inv;
    int r = inventory_take_alone(&j->layout, &inv, e);
    if (r != 0) {
        return r;
    }
    inventory_free(&inv);
    int fd = os_open(j->layout.manifest, O_RDWR, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", "manifest.jsonl");
    }
    r = os_ftruncate(fd, good_bytes);
    if (r == 0) {
        r = os_fsync(fd);
    }
    (void)os_close(fd);
    return r < 0 ? err_os(e, r, "truncate", "manifest.jsonl") : 0;
}

static int remove_file(const char *path, const char *name, struct err *e)
{
    int r = os_unlink(path);
    if (r < 0 && r != -ENOENT) {
        return err_os(e, r, "remove", "what a cut seal left");
    }
    log_line(LOG_INFO, "journal", "removed %.160s, which a cut seal left", name);
    return 0;
}

/* Makes a damaged segment again: it must become the very file that the manifest names. */
static int make_again(struct journal *j, struct generation *g, const struct layout_generation *row,
                      struct err *e)
{
    struct index_summary sum;
    struct bytes_file *plain;
    struct layout_generation made;
    uint64_t stored_bytes = 0;
    bool uncertain;
    int r = prove_plain(j, g, row, &sum, e);
    if (r == 0) {
        r = journal_hold(j, g, &plain, e);
    }
    if (r != 0) {
        return r;
    }
    struct seal_job job = {.layout = &j->layout,
                           .plain = plain,
                           .ordinal = g->ordinal,
                           .expect = &sum,
                           .sha256 = row->sha256,
                           .stop = &j->sealer.stop};
    place_of(j, g, &job.before, &job.head_before);
    r = seal_file_make(&job, &made, &stored_bytes, &uncertain, e);
    journal_release(j, g, plain);
    if (r != 0) {
        return r;
    }
    pthread_mutex_lock(&j->lock);
    g->from_plain = false;
    g->file = NULL;
    pthread_mutex_unlock(&j->lock);
    log_line(LOG_WARN, "journal", "the segment of generation %u was made again from its plain file",
             g->ordinal);
    return 0;
}

/* 0: the segment holds, as it is or again. ERR_CORRUPT: not; its plain file stays. */
static int settle_covered(struct journal *j, uint32_t n, const struct layout_generation *row,
                          struct err *e)
{
    struct err why = {0};
    bool plain_holds = j->generations[n]->from_plain;
    int r = plain_holds ? make_again(j, j->generations[n], row, &why) : look_at_all(j, row, &why);
    if (!plain_holds && r != ERR_CORRUPT) {
        *e = why;
        return r;
    }
    if (r != 0) {
        (void)snprintf(j->damaged_segment, sizeof j->damaged_segment,
                       "the segment of generation %u is damaged, and its plain file %s: %.120s", n,
                       plain_holds ? "is read; it cannot be made again" : "too", why.text);
        r = ERR_CORRUPT;
    }
    return r;
}

static int clear_covered(struct journal *j, const struct inventory *inv, struct err *e)
{
    for (uint32_t i = 0; i < inv->sealed; i++) {
        const struct layout_generation *row = &inv->closed[i];
        char path[LAYOUT_PATH_MAX];
        if (inventory_covered(inv, row) == NULL) {
            continue;
        }
        int r = settle_covered(j, i, row, e);
        if (r == ERR_CORRUPT) {
            continue;
        }
        layout_pending_path(&j->layout, &row->first_id, &row->last_id, path);
        r = r == 0 ? remove_file(path, path + strlen(j->layout.journal) + 1, e) : r;
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

struct clear {
    struct journal *j;
    const struct inventory *inv;
    char removable[16][LAYOUT_SEGMENT_NAME]; /* more are for the next start */
    uint32_t count;
};

/* Removing while a directory is listed would be looking for trouble: names are noted. */
static int note_stranger(void *ctx, const char *name)
{
    struct clear *c = ctx;
    struct slice s = slice_cstr(name);
    struct layout_generation g;
    bool ours = s.len == 2 * UUID_TEXT_LEN + 5 && slice_eq(slice_from(s, s.len - 4), SLICE(".tmp"));
    if (!ours && layout_segment_parse(s, &g)) {
        for (uint32_t i = c->inv->sealed; i < c->inv->count && !ours; i++) {
            ours = uuid_cmp(&c->inv->closed[i].first_id, &g.first_id) == 0 &&
                   uuid_cmp(&c->inv->closed[i].last_id, &g.last_id) == 0;
        }
    }
    if (ours && c->count < sizeof c->removable / sizeof *c->removable) {
        memcpy(c->removable[c->count++], name, s.len + 1);
    }
    return 0;
}

int journal_clear_seals(struct journal *j, const struct inventory *inv, struct err *e)
{
    int r = clear_covered(j, inv, e);
    if (r != 0) {
        return r;
    }
    struct clear c = {.j = j, .inv = inv};
    r = inventory_strangers(&j->layout, inv, note_stranger, &c);
    if (r < 0) {
        return err_os(e, r, "list", "segments");
    }
    for (uint32_t i = 0; i < c.count; i++) {
        char path[LAYOUT_PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", j->layout.segments, c.removable[i]);
        ensure(n > 0 && (size_t)n < sizeof path);
        r = remove_file(path, c.removable[i], e);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}
