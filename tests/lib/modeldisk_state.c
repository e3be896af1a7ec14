/* modeldisk_state: pages, images, inodes and entries of the model disk, and its life.
 *
 * The sharing rules are in modeldisk_state.h. Nothing here knows about power cuts: what is pending
 * is in modeldisk_crash.c, the calls are in modeldisk.c. Aborts: out of memory, misuse. */
#include "tests/lib/modeldisk_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"

pthread_mutex_t model_lock = PTHREAD_MUTEX_INITIALIZER;

/* Stands for every page of zeros that was written (a hole is NULL: no block). Never freed. */
struct page model_zero_page = {.refs = 1};

void *model_alloc(size_t size)
{
    void *p = calloc(1, size);

    ensure(p != NULL);
    return p;
}

void *model_grow(void *p, size_t *room, size_t needed, size_t item_size)
{
    size_t more = *room == 0 ? 8 : *room;

    if (needed <= *room) {
        return p;
    }
    while (more < needed) {
        more *= 2;
    }
    p = realloc(p, more * item_size);
    ensure(p != NULL);
    memset((char *)p + *room * item_size, 0, (more - *room) * item_size);
    *room = more;
    return p;
}

uint64_t model_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x;
}

uint64_t model_chance(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return model_mix(*state);
}

/* ---- pages ---- */

struct page *page_ref(struct page *p)
{
    if (p != NULL) {
        p->refs++;
    }
    return p;
}

void page_drop(struct page *p)
{
    if (p != NULL && --p->refs == 0) {
        ensure(p != &model_zero_page);
        free(p);
    }
}

static struct page *page_copy(const struct page *from)
{
    struct page *p = malloc(sizeof *p);

    ensure(p != NULL);
    p->refs = 1;
    p->hashed = false;
    if (from != NULL) {
        memcpy(p->bytes, from->bytes, sizeof p->bytes);
    } else {
        memset(p->bytes, 0, sizeof p->bytes);
    }
    return p;
}

static uint64_t page_hash(struct page *p)
{
    if (!p->hashed) {
        uint64_t h[4] = {0, 1, 2, 3}; /* lanes that do not wait for one another */
        for (size_t i = 0; i < sizeof p->bytes; i += sizeof h) {
            uint64_t words[4];
            memcpy(words, p->bytes + i, sizeof words);
            for (size_t k = 0; k < 4; k++) {
                h[k] = (h[k] ^ words[k]) * 0x9fb21c651e98df25u;
                h[k] ^= h[k] >> 32;
            }
        }
        p->hash = model_mix(model_mix(model_mix(model_mix(h[0]) ^ h[1]) ^ h[2]) ^ h[3]);
        p->hashed = true;
    }
    return p->hash;
}

/* ---- images ---- */

struct image *image_ref(struct image *i)
{
    if (i != NULL) {
        i->refs++;
    }
    return i;
}

void image_drop(struct image *i)
{
    if (i == NULL || --i->refs > 0) {
        return;
    }
    for (size_t n = 0; n < i->page_count; n++) {
        page_drop(i->pages[n]);
    }
    free(i->pages);
    free(i);
}

void image_own(struct image **i)
{
    struct image *old = *i;
    struct image *mine;

    if (old->refs == 1) {
        old->hashed = false;
        return;
    }
    mine = model_alloc(sizeof *mine);
    mine->refs = 1;
    mine->size = old->size;
    mine->page_count = old->page_count;
    if (old->page_count > 0) {
        mine->pages = malloc(old->page_count * sizeof *mine->pages);
        ensure(mine->pages != NULL);
        for (size_t n = 0; n < old->page_count; n++) {
            mine->pages[n] = page_ref(old->pages[n]);
        }
    }
    old->refs--;
    *i = mine;
}

struct page *image_page(struct image *i, uint64_t index)
{
    return index < i->page_count ? i->pages[index] : NULL;
}

void image_page_set(struct image *i, uint64_t index, struct page *p)
{
    ensure(i->refs == 1);
    if (index >= i->page_count) {
        size_t room = i->page_count;

        i->pages = model_grow(i->pages, &room, index + 1, sizeof *i->pages);
        i->page_count = room;
    }
    page_drop(i->pages[index]);
    i->pages[index] = p;
}

struct page *image_page_own(struct image *i, uint64_t index)
{
    struct page *p = image_page(i, index);

    if (p == NULL || p->refs > 1) {
        p = page_copy(p);
        image_page_set(i, index, p);
    }
    p->hashed = false;
    return p;
}

void image_cut(struct image *i, uint64_t size)
{
    uint64_t whole = size / MODEL_BLOCK;
    size_t rest = size % MODEL_BLOCK;

    ensure(i->refs == 1);
    i->size = size;
    if (rest != 0 && image_page(i, whole) != NULL) {
        struct page *p = image_page_own(i, whole);

        memset(p->bytes + rest, 0, sizeof p->bytes - rest);
    }
    for (uint64_t n = whole + (rest != 0); n < i->page_count; n++) {
        page_drop(i->pages[n]);
        i->pages[n] = NULL;
    }
}

size_t image_pages_used(const struct image *i)
{
    size_t used = 0;

    for (size_t n = 0; n < i->page_count; n++) {
        used += i->pages[n] != NULL;
    }
    return used;
}

uint64_t image_hash(struct image *i)
{
    if (!i->hashed) {
        uint64_t pages = i->size / MODEL_BLOCK + (i->size % MODEL_BLOCK != 0);
        uint64_t h = model_mix(i->size + 1);

        for (uint64_t n = 0; n < pages; n++) {
            struct page *p = image_page(i, n);

            h = model_mix(h ^ page_hash(p != NULL ? p : &model_zero_page)) + n;
        }
        i->hash = h;
        i->hashed = true;
    }
    return i->hash;
}

/* ---- inodes and entries ---- */

struct inode *inode_get(const struct model *m, uint64_t ino)
{
    return ino < m->inode_count ? m->inodes[ino] : NULL;
}

struct inode *inode_add(struct model *m, unsigned mode)
{
    struct inode *i = model_alloc(sizeof *i);
    size_t room = m->inode_count;
    i->ino = m->inode_count;
    i->mode = mode;
    i->mtime_ms = m->real_ns / 1000000;
    if (!S_ISDIR(mode)) {
        i->cache = model_alloc(sizeof *i->cache);
        i->cache->refs = 1;
        i->durable = image_ref(i->cache);
    }
    /* Numbers are never used twice, as a file system takes long to. */
    m->inodes = realloc(m->inodes, (room + 1) * sizeof(struct inode *));
    ensure(m->inodes != NULL);
    m->inodes[m->inode_count++] = i;
    return i;
}

static void inode_free(struct inode *i)
{
    image_drop(i->cache);
    image_drop(i->durable);
    free(i->dirty);
    free(i->now.list);
    free(i->kept.list);
    free(i);
}

void inode_place(struct inode *i, const struct inode *dir, const char *name)
{
    size_t n = strnlen(dir->path, sizeof i->path - MODEL_NAME_SIZE - 1);

    memmove(i->path, dir->path, n);
    i->path[n] = '/';
    memcpy(i->path + n + 1, name, strlen(name) + 1);
}

void inode_release(struct model *m, struct inode *i)
{
    if (S_ISDIR(i->mode) || i->links_now > 0 || i->opens > 0) {
        return;
    }
    if (!i->released) {
        i->released = true;
        m->used_pages -= image_pages_used(i->cache);
    }
    if (i->links_kept == 0 && i->pending_ops == 0) {
        items_forget_file(m, i);
        m->inodes[i->ino] = NULL;
        inode_free(i);
    }
}

struct entry *entries_find(struct entries *e, const char *name)
{
    for (size_t n = 0; n < e->count; n++) {
        if (strcmp(e->list[n].name, name) == 0) {
            return &e->list[n];
        }
    }
    return NULL;
}

static void entry_remove(struct model *m, struct inode *dir, const char *name, bool durable)
{
    struct entries *e = durable ? &dir->kept : &dir->now;
    struct entry *found = entries_find(e, name);
    struct inode *i;

    if (found == NULL) {
        return;
    }
    i = inode_get(m, found->ino);
    ensure(i != NULL);
    *(durable ? &i->links_kept : &i->links_now) -= 1;
    *found = e->list[--e->count];
}

static void entry_set(struct model *m, struct inode *dir, const char *name, uint64_t ino,
                      bool durable)
{
    struct entries *e = durable ? &dir->kept : &dir->now;
    struct inode *i = inode_get(m, ino);

    ensure(i != NULL);
    entry_remove(m, dir, name, durable);
    e->list = model_grow(e->list, &e->room, e->count + 1, sizeof *e->list);
    e->list[e->count].ino = ino;
    memcpy(e->list[e->count].name, name, strlen(name) + 1);
    e->count++;
    *(durable ? &i->links_kept : &i->links_now) += 1;
}

void entry_apply(struct model *m, const struct entry_op *op, bool durable)
{
    struct inode *dir = inode_get(m, op->dir);
    struct inode *dir_to = inode_get(m, op->dir_to);

    ensure(dir != NULL);
    ensure(dir_to != NULL);
    if (op->call == OS_CALL_open || op->call == OS_CALL_mkdir) {
        entry_set(m, dir, op->name, op->ino, durable);
    } else if (op->call == OS_CALL_unlink) {
        entry_remove(m, dir, op->name, durable);
    } else {
        ensure(op->call == OS_CALL_rename);
        entry_remove(m, dir, op->name, durable);
        entry_set(m, dir_to, op->name_to, op->ino, durable);
    }
}

void entry_op_drop(struct entry_op *op)
{
    if (op != NULL && --op->refs == 0) {
        free(op);
    }
}

/* ---- life ---- */

struct model *model_new(const struct model_options *options)
{
    static const struct model_options defaults;
    const struct model_options *o = options != NULL ? options : &defaults;
    struct model *m = model_alloc(sizeof *m);
    const char *root = o->root != NULL ? o->root : "/m";

    m->root_length = strlen(root);
    ensure(root[0] == '/');
    ensure(m->root_length > 1 && m->root_length < sizeof m->root);
    ensure(root[m->root_length - 1] != '/');
    memcpy(m->root, root, m->root_length);
    m->sector_size = o->sector_size != 0 ? o->sector_size : 512;
    ensure(m->sector_size == 512 || m->sector_size == MODEL_BLOCK);
    m->order = o->order;
    m->capacity_pages = o->capacity_bytes / MODEL_BLOCK;
    ensure(o->capacity_bytes == 0 || m->capacity_pages > 0);
    m->open_max = o->open_max;
    m->kernel_for_others = o->kernel_for_others;
    m->seed = o->seed;
    m->chance = model_mix(o->seed ^ 0x7461696c79);
    m->real_ns = 1800000000000u * 1000000u;
    m->mono_ns = 1000000000;
    m->step_ns = 1000;
    m->fd_next = MODEL_FD_BASE;
    (void)pthread_mutex_lock(&model_lock);
    m->inodes = model_alloc(sizeof *m->inodes); /* number 0 is nobody's */
    m->inode_count = 1;
    ensure(inode_add(m, S_IFDIR | 0755)->ino == MODEL_ROOT_INO);
    m->inodes[MODEL_ROOT_INO]->links_now = 1;
    m->inodes[MODEL_ROOT_INO]->links_kept = 1;
    memcpy(m->inodes[MODEL_ROOT_INO]->path, m->root, sizeof m->root);
    (void)pthread_mutex_unlock(&model_lock);
    return m;
}

void model_free(struct model *m)
{
    if (m == NULL) {
        return;
    }
    if (model_in_use() == m) {
        model_use(NULL);
    }
    (void)pthread_mutex_lock(&model_lock);
    for (size_t n = 0; n < m->item_count; n++) {
        page_drop(m->items[n].page);
        entry_op_drop(m->items[n].op);
    }
    for (size_t n = 0; n < m->inode_count; n++) {
        if (m->inodes[n] != NULL) {
            inode_free(m->inodes[n]);
        }
    }
    (void)pthread_mutex_unlock(&model_lock);
    free(m->inodes);
    free(m->items);
    free(m->opens);
    free(m->trace);
    free(m);
}

void entries_copy(struct entries *to, const struct entries *from)
{
    to->count = from->count;
    to->room = from->count;
    to->list = NULL;
    if (from->count > 0) {
        to->list = malloc(from->count * sizeof *to->list);
        ensure(to->list != NULL);
        memcpy(to->list, from->list, from->count * sizeof *to->list);
    }
}

struct model *model_blank(const struct model *m)
{
    struct model *n = model_alloc(sizeof *n);

    memcpy(n->root, m->root, sizeof n->root);
    n->root_length = m->root_length;
    n->sector_size = m->sector_size;
    n->order = m->order;
    n->capacity_pages = m->capacity_pages;
    n->open_max = m->open_max;
    n->kernel_for_others = m->kernel_for_others;
    n->fd_next = m->fd_next;
    n->real_ns = m->real_ns;
    n->mono_ns = m->mono_ns;
    n->step_ns = m->step_ns;
    n->chance = m->chance;
    n->seed = m->seed;
    n->inode_count = m->inode_count;
    n->inodes = model_alloc(m->inode_count * sizeof *n->inodes);
    return n;
}

struct model *model_snapshot(const struct model *m)
{
    struct model *n;

    (void)pthread_mutex_lock(&model_lock);
    n = model_blank(m);
    n->used_pages = m->used_pages;
    n->partial = m->partial;
    for (size_t k = 0; k < m->inode_count; k++) {
        const struct inode *from = m->inodes[k];
        struct inode *to;

        if (from == NULL) {
            continue;
        }
        to = model_alloc(sizeof *to);
        *to = *from;
        to->opens = 0;
        (void)image_ref(to->cache);
        (void)image_ref(to->durable);
        entries_copy(&to->now, &from->now);
        entries_copy(&to->kept, &from->kept);
        to->dirty = from->dirty_size > 0 ? model_alloc(from->dirty_size) : NULL;
        if (to->dirty != NULL) {
            memcpy(to->dirty, from->dirty, from->dirty_size);
        }
        n->inodes[k] = to;
    }
    n->items = model_grow(NULL, &n->item_room, m->item_count + 1, sizeof *n->items);
    n->item_count = m->item_count;
    for (size_t k = 0; k < m->item_count; k++) {
        n->items[k] = m->items[k];
        (void)page_ref(n->items[k].page);
        if (n->items[k].op != NULL) {
            n->items[k].op->refs++;
        }
    }
    for (size_t k = 0; k < n->inode_count; k++) {
        if (n->inodes[k] != NULL) {
            inode_release(n, n->inodes[k]); /* was held by a descriptor alone */
        }
    }
    (void)pthread_mutex_unlock(&model_lock);
    return n;
}
