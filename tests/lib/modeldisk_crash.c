/* modeldisk_crash: what a power cut leaves of the model disk.
 *
 * A cut makes a new model from the durable images and a chosen part of the pending items, in their
 * order, made consistent first, and keeps what can be reached from the root. The old model is only
 * read; pages and images are shared with it, so a cut costs what it changes. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_state.h"

size_t model_pending(const struct model *m)
{
    return m->item_count;
}

struct model_item model_pending_item(const struct model *m, size_t index)
{
    const struct item *item = &m->items[index];
    const struct inode *i = inode_get(m, item->ino);
    struct model_item out = {.kind = item->kind, .path = i != NULL ? i->path : ""};

    ensure(index < m->item_count);
    if (item->kind == MODEL_ITEM_DATA) {
        out.call = OS_CALL_pwrite;
        out.offset = item->at * m->sector_size;
        out.length = m->sector_size;
    } else if (item->kind == MODEL_ITEM_SIZE) {
        out.call = OS_CALL_ftruncate;
        out.offset = item->at;
    } else {
        out.call = item->op->call;
        out.path = item->op->call == OS_CALL_rename ? item->op->name_to : item->op->name;
    }
    return out;
}

/* What the choice says about each item, before consistency. */
static void fates_draw(const struct model *m, const struct model_choice *choice, uint64_t *chance,
                       unsigned char *fate)
{
    static const unsigned char shares[] = {32, 64, 128, 128, 192, 224}; /* of 256 */
    unsigned share = shares[model_chance(chance) % sizeof shares];

    for (size_t n = 0; n < m->item_count; n++) {
        bool data = m->items[n].kind == MODEL_ITEM_DATA;
        bool torn = data && choice->torn != MODEL_WHOLE;
        bool lands = choice->how == MODEL_CUT_ALL;

        if (choice->how == MODEL_CUT_ASK) {
            struct model_item item = model_pending_item(m, n);

            fate[n] = (unsigned char)choice->ask(choice->ctx, n, &item);
            if (fate[n] == MODEL_TORN && !torn) {
                fate[n] = MODEL_LOST;
            }
            continue;
        }
        if (choice->how == MODEL_CUT_MASK) {
            lands = n < 64 && ((choice->mask >> n) & 1) != 0;
        } else if (choice->how == MODEL_CUT_RANDOM) {
            lands = model_chance(chance) % 256 < share;
            torn = torn && model_chance(chance) % 4 == 0;
        } else {
            torn = false;
        }
        fate[n] = lands ? MODEL_LANDED : torn ? MODEL_TORN : MODEL_LOST;
    }
}

/* Makes the fates ones a file system can leave. */
static void fates_settle(const struct model *m, unsigned char *fate)
{
    bool *later_size = model_alloc(m->inode_count);

    for (size_t n = m->item_count; n > 0; n--) {
        const struct item *item = &m->items[n - 1];

        if (item->kind == MODEL_ITEM_SIZE) {
            later_size[item->ino] = later_size[item->ino] || fate[n - 1] == MODEL_LANDED;
            fate[n - 1] = later_size[item->ino] ? MODEL_LANDED : MODEL_LOST;
        }
    }
    free(later_size);
    for (size_t n = 0; n < m->item_count; n++) {
        const struct item *item = &m->items[n];

        for (size_t k = 0; k < n && item->op != NULL && fate[n] == MODEL_LANDED; k++) {
            const struct entry_op *earlier = m->items[k].op;

            if (earlier != NULL && fate[k] == MODEL_LOST && op_needs(m->order, item->op, earlier)) {
                fate[n] = MODEL_LOST;
            }
        }
    }
}

/* Keeps what can be reached: after the cut, the process sees the disk. */
static void tree_keep(struct model *n, struct inode *dir, bool *reached)
{
    reached[dir->ino] = true;
    dir->links_now = dir->links_kept;
    entries_copy(&dir->now, &dir->kept);
    for (size_t k = 0; k < dir->kept.count; k++) {
        struct inode *i = inode_get(n, dir->kept.list[k].ino);

        ensure(i != NULL);
        inode_place(i, dir, dir->kept.list[k].name);
        if (S_ISDIR(i->mode)) {
            tree_keep(n, i, reached);
        } else {
            reached[i->ino] = true;
            i->links_now = i->links_kept;
            i->cache = image_ref(i->durable);
            n->used_pages += image_pages_used(i->cache);
        }
    }
}

static void disk_copy(struct model *n, const struct model *m)
{
    for (size_t k = 0; k < m->inode_count; k++) {
        const struct inode *from = m->inodes[k];
        struct inode *to;

        if (from == NULL) {
            continue;
        }
        to = model_alloc(sizeof *to);
        to->ino = from->ino;
        to->mode = from->mode;
        to->mtime_ms = from->mtime_ms;
        to->links_kept = from->links_kept;
        to->durable = image_ref(from->durable);
        entries_copy(&to->kept, &from->kept);
        n->inodes[k] = to;
    }
    memcpy(n->inodes[MODEL_ROOT_INO]->path, m->root, sizeof m->root);
}

static void inode_discard(struct model *n, size_t ino)
{
    struct inode *i = n->inodes[ino];

    n->inodes[ino] = NULL;
    image_drop(i->durable);
    free(i->kept.list);
    free(i);
}

struct model *model_crash(const struct model *m, const struct model_choice *choice)
{
    uint64_t chance = model_mix(choice->seed ^ 0x6375747075) ^ choice->mask;
    unsigned char *fate = model_alloc(m->item_count + 1);
    bool *reached = model_alloc(m->inode_count);
    struct model *n;

    fates_draw(m, choice, &chance, fate);
    fates_settle(m, fate);
    (void)pthread_mutex_lock(&model_lock);
    n = model_blank(m);
    disk_copy(n, m);
    for (size_t k = 0; k < m->item_count; k++) {
        const struct item *item = &m->items[k];

        if (fate[k] == MODEL_LOST) {
            continue;
        }
        if (item->kind == MODEL_ITEM_ENTRY) {
            entry_apply(n, item->op, true);
        } else if (item->kind == MODEL_ITEM_SIZE) {
            size_apply(&n->inodes[item->ino]->durable, item);
        } else {
            data_apply(m, &n->inodes[item->ino]->durable, item, fate[k], choice->torn, &chance);
        }
    }
    for (size_t k = 0; k < n->inode_count; k++) {
        struct inode *i = n->inodes[k];

        if (i != NULL && i->durable != NULL && i->durable != m->inodes[k]->durable) {
            image_cut(i->durable, i->durable->size);
        }
    }
    tree_keep(n, n->inodes[MODEL_ROOT_INO], reached);
    for (size_t k = 0; k < n->inode_count; k++) {
        if (n->inodes[k] != NULL && !reached[k]) {
            inode_discard(n, k);
        }
    }
    (void)pthread_mutex_unlock(&model_lock);
    free(reached);
    free(fate);
    return n;
}

/* ---- enumeration ---- */

void model_crashes_begin(struct model_crashes *it, const struct model *m, unsigned exhaustive_max,
                         unsigned samples, uint64_t seed)
{
    ensure(exhaustive_max <= 20);
    memset(it, 0, sizeof *it);
    it->m = m;
    it->seed = seed;
    it->exhaustive = m->item_count <= exhaustive_max;
    it->count = it->exhaustive ? UINT64_C(1) << m->item_count : UINT64_C(2) + samples;
}

struct model *model_crashes_next(struct model_crashes *it)
{
    static const char *const names[] = {"none", "all", "subset", "random", "asked"};
    uint64_t total = it->torn == MODEL_WHOLE ? it->count : 2 * it->count;
    uint64_t which = it->next % it->count;
    struct model_choice *choice = &it->choice;

    if (it->next >= total) {
        return NULL;
    }
    memset(choice, 0, sizeof *choice);
    choice->torn = it->next < it->count ? MODEL_WHOLE : it->torn;
    choice->seed = it->seed + which;
    if (it->exhaustive) {
        choice->how = MODEL_CUT_MASK;
        choice->mask = which;
    } else if (which == 0 && choice->torn == MODEL_WHOLE) {
        choice->how = MODEL_CUT_NONE;
    } else if (which == 1 && choice->torn == MODEL_WHOLE) {
        choice->how = MODEL_CUT_ALL;
    } else {
        choice->how = MODEL_CUT_RANDOM;
    }
    (void)snprintf(it->text, sizeof it->text, "%s: %zu pending, mask %#llx, seed %llu, torn %d",
                   names[choice->how], it->m->item_count, (unsigned long long)choice->mask,
                   (unsigned long long)choice->seed, (int)choice->torn);
    it->next++;
    return model_crash(it->m, choice);
}
