/* Sealed generations at the start.
 *
 * Of each one the end of its file is read: it must be the segment that the manifest names. Not its
 * blocks: these are checked when they are read, and all of them by `verify`. A segment that is not
 * there or has another end is damage: what stands before it is served, nothing is appended, nothing
 * changed.
 *
 * What a cut seal left is removed here. A plain file that a record covers goes when the hash of the
 * segment has been found to hold, so that at no moment the only good copy is removed; temporary
 * files go, and whole segments that no record names while their plain file is in force. Removals
 * are not synced: the next start finds the same again, or not. Other names in segments/ are left
 * alone. A segment without a record and without its plain file is nothing that a crash can leave:
 * the plain file goes only when the record is committed. So the record is damaged, and the journal
 * is not opened, before anything of the manifest is cut off. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/ensure.h"
#include "base/log.h"
#include "journal/internal.h"
#include "journal/inventory.h"
#include "journal/seal_file.h"
#include "journal/segment.h"
#include "os/os.h"

int journal_load_sealed(struct journal *j, struct generation *g,
                        const struct layout_generation *row, struct err *e)
{
    struct bytes_file *file;
    ensure(g->ordinal == j->sealed_count);
    g->sealed = true;
    g->events = row->events;
    memcpy(g->sha256, row->sha256, SHA256_LEN);
    memcpy(g->head, row->head, SHA256_LEN);
    int r = journal_hold(j, g, &file, e);
    if (r != 0) {
        g->events = 0;
        g->bytes = 0;
        return r;
    }
    j->sealed_count++;
    j->sealed_bytes += row->bytes;
    j->stored_bytes += file->segment->file_bytes;
    journal_release(j, g, file);
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

static int clear_covered(struct journal *j, const struct inventory *inv, struct err *e)
{
    for (uint32_t i = 0; i < inv->covered_count; i++) {
        const struct layout_generation *plain = &inv->covered[i];
        char path[LAYOUT_PATH_MAX];
        uint32_t n = 0;
        while (uuid_cmp(&inv->closed[n].first_id, &plain->first_id) != 0) {
            n++;
            ensure(n < inv->sealed);
        }
        layout_generation_path(&j->layout, &inv->closed[n], path);
        int r = seal_file_check(path, inv->closed[n].sha256, e);
        if (r == 0) {
            layout_pending_path(&j->layout, &plain->first_id, &plain->last_id, path);
            r = remove_file(path, path + strlen(j->layout.journal) + 1, e);
        }
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
