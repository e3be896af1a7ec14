/* Verification of sealed generations, and of what seals leave.
 *
 * Of a segment: the hash of the file is the one in its name and in the manifest; its end is that of
 * the generation; the lines are proven as those of any generation (verify.c); the batch table names
 * exactly the batches that were proven; the chain head and the hash of the plain bytes are those it
 * says.
 *
 * Beside a server a generation may be sealed while we are on our way to it: its plain file is gone
 * then, and its record is in the manifest. */
#include <errno.h>
#include <stdio.h>

#include "journal/seal_file.h"
#include "journal/verify_internal.h"
#include "os/os.h"

/* The plain file is gone: finds the generation among the sealed ones. */
static int find_again(struct verify *v, struct layout_generation *g, struct err *e)
{
    struct manifest m;
    int r = manifest_read(&v->layout, &m, e);
    for (uint32_t i = 0; i < m.count; i++) { /* none, when it cannot be read */
        if (uuid_cmp(&m.segments[i].first_id, &g->first_id) == 0 &&
            uuid_cmp(&m.segments[i].last_id, &g->last_id) == 0) {
            *g = m.segments[i];
        }
    }
    manifest_free(&m);
    return r;
}

static int open_plain(struct verify *v, struct layout_generation *g, struct bytes_file **out,
                      struct err *e)
{
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&v->layout, g, path);
    int r = bytes_file_open(path, 0, out, e);
    if (r == ERR_NOT_FOUND) {
        r = find_again(v, g, e);
        if (!g->sealed) { /* where the manifest cannot be read the report is not looked at */
            verify_fail(v, VERIFY_PENDING, path + strlen(v->layout.root) + 1, false, 0,
                        "a closed generation has gone");
        }
    }
    return r;
}

static int open_sealed(struct verify *v, const struct layout_generation *g, struct bytes_file **out,
                       struct err *e)
{
    char path[LAYOUT_PATH_MAX];
    layout_generation_path(&v->layout, g, path);
    const char *name = path + strlen(v->layout.root) + 1;
    int r = seal_file_check(path, g->sha256, e);
    if (r == ERR_CORRUPT || r == ERR_NOT_FOUND) {
        verify_fail(v, r == ERR_CORRUPT ? VERIFY_FILE_HASH : VERIFY_SEGMENT, name, false, 0,
                    e->text);
        return 0;
    }
    if (r == 0) {
        r = bytes_file_open(path, 0, out, e);
    }
    if (r == ERR_CORRUPT) {
        verify_fail(v, VERIFY_SEGMENT, name, true, e->offset, e->text);
        return 0;
    }
    if (r != 0) {
        return r;
    }
    const struct segment *s = (*out)->segment;
    if (uuid_cmp(&s->first_id, &g->first_id) != 0 || uuid_cmp(&s->last_id, &g->last_id) != 0 ||
        s->plain_bytes != g->bytes || s->events != g->events ||
        memcmp(s->head, g->head, SHA256_LEN) != 0) {
        verify_fail(v, VERIFY_SEGMENT, name, false, 0, "it is not what the manifest says");
        bytes_file_close(*out);
        *out = NULL;
    }
    return 0;
}

int verify_open_closed(struct verify *v, struct layout_generation *g, struct bytes_file **out,
                       struct err *e)
{
    *out = NULL;
    int r = g->sealed ? 0 : open_plain(v, g, out, e);
    return *out == NULL && g->sealed ? open_sealed(v, g, out, e) : r;
}

int verify_table_batch(struct verify *v, const struct scan_batch *b, struct err *e)
{
    struct segment_batch row;
    int r = segment_walk_next(v->table, &row, e);
    if (r < 0 && r != ERR_CORRUPT) {
        return r;
    }
    bool same =
        r == 1 && row.offset == b->offset && row.bytes == b->bytes && row.events == b->events &&
        slice_eq(row.source, b->source) && slice_eq(row.batch_id, b->batch_id) &&
        memcmp(row.digest, b->digest, SHA256_LEN) == 0 &&
        uuid_cmp(&row.first_id, &b->first_id) == 0 && uuid_cmp(&row.last_id, &b->last_id) == 0;
    if (!same) {
        verify_fail(v, VERIFY_SEGMENT, v->table_name, true, b->offset,
                    "its batch table does not name this batch");
    }
    return 0;
}

int verify_table_end(struct verify *v, const struct scan *s, struct err *e)
{
    struct segment_batch row;
    int r = segment_walk_next(v->table, &row, e);
    if (r < 0 && r != ERR_CORRUPT) {
        return r;
    }
    if (r != 0) {
        verify_fail(v, VERIFY_SEGMENT, v->table_name, false, 0,
                    "its batch table does not end with its last batch");
    } else if (memcmp(v->table->segment->head, s->head, SHA256_LEN) != 0) {
        verify_fail(v, VERIFY_CHAIN, v->table_name, false, 0,
                    "the chain does not have the head that the segment says");
    }
    return 0;
}

static int note_stranger(void *ctx, const char *name)
{
    struct verify *v = ctx;
    char path[256 + sizeof "segments/"];
    /* What a running server is sealing is no orphan. */
    if (!v->report->live) {
        (void)snprintf(path, sizeof path, "segments/%.255s", name);
        return verify_note_orphan(v, path);
    }
    return 0;
}

int verify_note_seals(struct verify *v, struct err *e)
{
    const struct inventory *inv = &v->inventory;
    for (uint32_t i = 0; i < inv->covered_count && !v->report->live; i++) {
        char path[LAYOUT_PATH_MAX];
        layout_pending_path(&v->layout, &inv->covered[i].first_id, &inv->covered[i].last_id, path);
        verify_put_name(&v->report->remnants, path + strlen(v->layout.root) + 1);
    }
    int r = inventory_strangers(&v->layout, inv, note_stranger, v);
    return r < 0 && r != -ENOENT ? err_os(e, r, "list", "segments") : 0;
}
