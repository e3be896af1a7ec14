/* modeldisk_pending: what is pending on the model disk, and how syncs land it or lose it.
 *
 * One list holds the pending items of all files in the order they came. A sync takes items out of
 * it and into the durable images (land), or, when it fails, out of it and nowhere (lose).
 *
 * Invariants: the cache of a file is its durable image with its items applied, unless `diverged`
 * says that a sync failed or a write went astray; an item's page is never written again (the item's
 * reference forbids it). */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_state.h"

/* ---- adding ---- */

static struct item *item_add(struct model *m)
{
    m->items = model_grow(m->items, &m->item_room, m->item_count + 1, sizeof *m->items);
    return memset(&m->items[m->item_count++], 0, sizeof *m->items);
}

/* Whether a write left the sector exactly as the disk has it and will keep it: then nothing is
 * pending. */
static bool sector_settled(const struct model *m, struct inode *i, uint64_t page_index,
                           const struct page *now, unsigned sector)
{
    const struct page *disk = image_page(i->durable, page_index);
    size_t from = (size_t)sector * m->sector_size;

    if (i->shrinks > 0 || m->misdirect != 0 || (i->dirty[page_index] & (1u << sector)) != 0) {
        return false;
    }
    if (disk == NULL) {
        disk = &model_zero_page;
    }
    return disk == now || memcmp(disk->bytes + from, now->bytes + from, m->sector_size) == 0;
}

void item_data(struct model *m, struct inode *i, uint64_t page_index, unsigned first, unsigned last)
{
    struct page *p = image_page(i->cache, page_index);
    unsigned per_page = MODEL_BLOCK / m->sector_size;

    ensure(p != NULL);
    i->dirty = model_grow(i->dirty, &i->dirty_size, page_index + 1, 1);
    for (unsigned s = first; s <= last; s++) {
        uint64_t at = page_index * per_page + s + (uint64_t)m->misdirect;
        struct item *item;

        if (sector_settled(m, i, page_index, p, s)) {
            continue;
        }
        i->diverged = i->diverged || m->misdirect != 0;
        i->dirty[page_index] |= (unsigned char)(1u << s);
        if (m->misdirect != 0 && at / per_page > i->cache->size / MODEL_BLOCK) {
            continue; /* went past either end of the file: it is in no file of ours */
        }
        item = item_add(m);
        item->kind = MODEL_ITEM_DATA;
        item->ino = i->ino;
        item->at = at;
        item->source = s;
        item->page = page_ref(p);
    }
}

void item_size(struct model *m, struct inode *i, uint64_t size, bool shrinks)
{
    struct item *item = item_add(m);

    item->kind = MODEL_ITEM_SIZE;
    item->ino = i->ino;
    item->at = size;
    item->shrinks = shrinks;
    i->shrinks += shrinks;
}

void item_entry(struct model *m, struct entry_op *op)
{
    struct item *item = item_add(m);
    struct inode *i = inode_get(m, op->ino);

    ensure(i != NULL);
    item->kind = MODEL_ITEM_ENTRY;
    item->ino = op->ino;
    item->op = op;
    i->pending_ops++;
}

/* ---- landing and losing ---- */

void data_apply(const struct model *m, struct image **to, const struct item *item,
                enum model_fate fate, enum model_torn torn, uint64_t *chance)
{
    unsigned per_page = MODEL_BLOCK / m->sector_size;
    size_t into = (size_t)(item->at % per_page) * m->sector_size;
    const unsigned char *from = item->page->bytes + (size_t)item->source * m->sector_size;
    size_t n = m->sector_size;
    struct page *p;

    image_own(to);
    p = image_page_own(*to, item->at / per_page);
    if (fate == MODEL_LANDED) {
        memcpy(p->bytes + into, from, n);
    } else if (torn == MODEL_TORN_MIX) {
        memcpy(p->bytes + into, from, 1 + (size_t)(model_chance(chance) % (n - 1)));
    } else {
        for (size_t k = 0; k < n; k += sizeof(uint64_t)) {
            uint64_t junk = model_chance(chance);

            memcpy(p->bytes + into + k, &junk, sizeof junk);
        }
    }
}

void size_apply(struct image **to, const struct item *item)
{
    image_own(to);
    if (item->shrinks) {
        image_cut(*to, item->at);
    } else {
        (*to)->size = item->at;
    }
}

/* Takes the items out of the list for which drop[] is set. */
static void items_remove(struct model *m, const bool *drop)
{
    size_t left = 0;

    for (size_t n = 0; n < m->item_count; n++) {
        if (drop[n]) {
            page_drop(m->items[n].page);
            entry_op_drop(m->items[n].op);
        } else {
            m->items[left++] = m->items[n];
        }
    }
    m->item_count = left;
}

static bool *items_marks(const struct model *m)
{
    return model_alloc(m->item_count + 1);
}

static bool item_of_file(const struct item *item, const struct inode *i)
{
    return item->ino == i->ino && item->kind != MODEL_ITEM_ENTRY;
}

void items_land_file(struct model *m, struct inode *i)
{
    bool *drop = items_marks(m);

    for (size_t n = 0; n < m->item_count; n++) {
        drop[n] = item_of_file(&m->items[n], i);
        if (!drop[n] || !i->diverged) {
            continue;
        }
        if (m->items[n].kind == MODEL_ITEM_DATA) {
            data_apply(m, &i->durable, &m->items[n], MODEL_LANDED, MODEL_WHOLE, NULL);
        } else {
            size_apply(&i->durable, &m->items[n]);
        }
    }
    if (i->diverged) {
        image_own(&i->durable);
        image_cut(i->durable, i->durable->size);
    } else {
        image_drop(i->durable);
        i->durable = image_ref(i->cache);
    }
    items_remove(m, drop);
    free(drop);
    if (i->dirty_size > 0) {
        memset(i->dirty, 0, i->dirty_size);
    }
    i->shrinks = 0;
}

void items_lose_file(struct model *m, struct inode *i)
{
    bool *drop = items_marks(m);

    for (size_t n = 0; n < m->item_count; n++) {
        /* Sizes are metadata: the file system's journal still has them, and lands them later. */
        drop[n] = item_of_file(&m->items[n], i) && m->items[n].kind == MODEL_ITEM_DATA;
        if (drop[n] && m->partial && (model_chance(&m->chance) & 1) != 0) {
            data_apply(m, &i->durable, &m->items[n], MODEL_LANDED, MODEL_WHOLE, NULL);
        }
    }
    items_remove(m, drop);
    free(drop);
    if (i->dirty_size > 0) {
        memset(i->dirty, 0, i->dirty_size);
    }
    i->diverged = true;
}

void items_forget_file(struct model *m, const struct inode *i)
{
    bool *drop;

    if (m->item_count == 0) {
        return;
    }
    drop = items_marks(m);
    for (size_t n = 0; n < m->item_count; n++) {
        drop[n] = item_of_file(&m->items[n], i);
    }
    items_remove(m, drop);
    free(drop);
}

static bool op_touches(const struct entry_op *op, uint64_t dir)
{
    return op->dir == dir || op->dir_to == dir;
}

bool op_needs(enum model_order order, const struct entry_op *later, const struct entry_op *earlier)
{
    const struct {
        uint64_t dir;
        const char *name;
    } a[2] = {{later->dir, later->name}, {later->dir_to, later->name_to}},
      b[2] = {{earlier->dir, earlier->name}, {earlier->dir_to, earlier->name_to}};
    int a_count = later->call == OS_CALL_rename ? 2 : 1;
    int b_count = earlier->call == OS_CALL_rename ? 2 : 1;

    for (int x = 0; x < a_count; x++) {
        for (int y = 0; y < b_count; y++) {
            if (a[x].dir == b[y].dir &&
                (order == MODEL_ORDERED || strcmp(a[x].name, b[y].name) == 0)) {
                return true;
            }
        }
    }
    return false;
}

/* A directory that was replaced, on the disk as in the cache: neither what it holds nor what is
 * pending in it concerns anybody. */
static bool directory_gone(const struct inode *i)
{
    return S_ISDIR(i->mode) && i->links_now == 0 && i->links_kept == 0;
}

static void items_forget_gone(struct model *m)
{
    bool *drop = items_marks(m);

    for (size_t n = 0; n < m->item_count; n++) {
        const struct entry_op *op = m->items[n].op;

        drop[n] = op != NULL && directory_gone(inode_get(m, op->dir)) &&
                  directory_gone(inode_get(m, op->dir_to));
        if (drop[n]) {
            inode_get(m, op->ino)->pending_ops--;
        }
    }
    items_remove(m, drop);
    free(drop);
    for (size_t n = 0; n < m->inode_count; n++) {
        struct inode *i = m->inodes[n];

        if (i == NULL || !directory_gone(i)) {
            continue;
        }
        for (size_t k = 0; k < i->kept.count; k++) {
            inode_get(m, i->kept.list[k].ino)->links_kept--;
        }
        i->kept.count = 0;
    }
}

void items_land_directory(struct model *m, uint64_t dir)
{
    bool *land = items_marks(m);

    /* Backwards, so that each item's forerunners are marked by the time they are looked at. */
    for (size_t n = m->item_count; n > 0; n--) {
        const struct entry_op *op = m->items[n - 1].op;

        if (op == NULL) {
            continue;
        }
        land[n - 1] = op_touches(op, dir);
        for (size_t k = n; k < m->item_count && !land[n - 1]; k++) {
            land[n - 1] = land[k] && op_needs(m->order, m->items[k].op, op);
        }
    }
    for (size_t n = 0; n < m->item_count; n++) {
        if (land[n]) {
            entry_apply(m, m->items[n].op, true);
            inode_get(m, m->items[n].op->ino)->pending_ops--;
        }
    }
    items_remove(m, land);
    free(land);
    items_forget_gone(m);
    for (size_t n = 0; n < m->inode_count; n++) {
        if (m->inodes[n] != NULL) {
            inode_release(m, m->inodes[n]);
        }
    }
}
