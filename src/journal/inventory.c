/* Generations are sealed in log order, so the sealed ones come first. A plain file whose range is
 * exactly that of a sealed generation is a remnant: the seal was committed, and the process ended
 * before it removed the file. Any other overlap could mean two histories, and is refused. */
#include "journal/inventory.h"

#include <stdlib.h>
#include <string.h>

#include "os/os.h"

static int by_first_id(const void *key, const void *row)
{
    const struct layout_generation *x = key;
    const struct layout_generation *y = row;
    return uuid_cmp(&x->first_id, &y->first_id);
}

static const struct layout_generation *find_sealed(const struct inventory *inv,
                                                   const struct layout_generation *g)
{
    const struct manifest *m = &inv->manifest;
    return m->count == 0 ? NULL
                         : bsearch(g, m->segments, m->count, sizeof *m->segments, by_first_id);
}

static int place(struct inventory *inv, const struct layout_generation *g, struct err *e)
{
    const struct layout_generation *same = find_sealed(inv, g);
    if (same != NULL && uuid_cmp(&same->last_id, &g->last_id) == 0) {
        inv->covered[inv->covered_count++] = *g;
        return 0;
    }
    if (inv->count > 0 && uuid_cmp(&inv->closed[inv->count - 1].last_id, &g->first_id) >= 0) {
        return err_set(e, ERR_CORRUPT, "a pending generation overlaps a sealed one");
    }
    inv->closed[inv->count++] = *g;
    return 0;
}

static int join_lists(struct inventory *inv, const struct layout_generation *pending,
                      uint32_t count, struct err *e)
{
    const struct manifest *m = &inv->manifest;
    inv->closed = calloc((size_t)m->count + count + 1, sizeof *inv->closed);
    inv->covered = calloc((size_t)count + 1, sizeof *inv->covered);
    if (inv->closed == NULL || inv->covered == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory for generations");
    }
    if (m->count > 0) {
        memcpy(inv->closed, m->segments, m->count * sizeof *inv->closed);
    }
    inv->count = m->count;
    inv->sealed = m->count;
    for (uint32_t i = 0; i < count; i++) {
        int r = place(inv, &pending[i], e);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

int inventory_take(const struct layout *l, struct inventory *inv, struct err *e)
{
    struct layout_generation *pending = NULL;
    uint32_t count = 0;
    *inv = (struct inventory){0};
    int r = manifest_read(l, &inv->manifest, e);
    if (r == 0) {
        r = layout_list_pending(l, &pending, &count, e);
    }
    if (r == 0) {
        r = join_lists(inv, pending, count, e);
    }
    free(pending);
    if (r != 0) {
        inventory_free(inv);
    }
    return r;
}

void inventory_free(struct inventory *inv)
{
    manifest_free(&inv->manifest);
    free(inv->closed);
    free(inv->covered);
    *inv = (struct inventory){0};
}

const struct layout_generation *inventory_covered(const struct inventory *inv,
                                                  const struct layout_generation *sealed)
{
    for (uint32_t i = 0; i < inv->covered_count; i++) {
        if (uuid_cmp(&inv->covered[i].first_id, &sealed->first_id) == 0) {
            return &inv->covered[i];
        }
    }
    return NULL;
}

struct strangers {
    const struct inventory *inv;
    int (*fn)(void *ctx, const char *name);
    void *ctx;
};

static int look_at(void *ctx, const char *name)
{
    struct strangers *s = ctx;
    struct layout_generation g;
    if (layout_segment_parse(slice_cstr(name), &g)) {
        const struct layout_generation *known = find_sealed(s->inv, &g);
        if (known != NULL && uuid_cmp(&known->last_id, &g.last_id) == 0 &&
            memcmp(known->sha256, g.sha256, SHA256_LEN) == 0) {
            return 0;
        }
    }
    return s->fn(s->ctx, name);
}

int inventory_strangers(const struct layout *l, const struct inventory *inv,
                        int (*fn)(void *ctx, const char *name), void *ctx)
{
    struct strangers s = {.inv = inv, .fn = fn, .ctx = ctx};
    return os_list(l->segments, look_at, &s);
}

struct lost {
    const struct inventory *inv;
    char name[LAYOUT_SEGMENT_NAME];
};

static int find_lost(void *ctx, const char *name)
{
    struct lost *lost = ctx;
    struct slice s = slice_cstr(name);
    struct layout_generation g;
    if (!layout_segment_parse(s, &g)) {
        return 0;
    }
    for (uint32_t i = 0; i < lost->inv->count; i++) {
        const struct layout_generation *known = &lost->inv->closed[i];
        if (uuid_cmp(&known->first_id, &g.first_id) == 0 &&
            uuid_cmp(&known->last_id, &g.last_id) == 0) {
            return 0;
        }
    }
    memcpy(lost->name, name, s.len + 1);
    return 1;
}

int inventory_check_segments(const struct layout *l, const struct inventory *inv, struct err *e)
{
    struct lost lost = {.inv = inv};
    int r = inventory_strangers(l, inv, find_lost, &lost);
    if (r < 0) {
        return err_os(e, r, "list", "segments");
    }
    return r == 0 ? 0
                  : err_set_at(e, ERR_CORRUPT, inv->manifest.good_bytes,
                               "manifest.jsonl has no record of segments/%.75s..., which is the "
                               "only copy of its events",
                               lost.name);
}

int inventory_take_alone(const struct layout *l, struct inventory *inv, struct err *e)
{
    int r = inventory_take(l, inv, e);
    if (r == 0) {
        r = inventory_check_segments(l, inv, e);
        if (r != 0) {
            inventory_free(inv);
        }
    }
    return r;
}
