/* modeldisk_tools: what a test may ask of the model disk or do to it, beside calls and power cuts.
 *
 * Everything here looks at the cache (what a process would see) except model_rot, which damages
 * cache, disk and pending data alike. Aborts: misuse. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/ensure.h"
#include "tests/lib/modeldisk_state.h"

void model_clock_step(struct model *m, uint64_t step_ns)
{
    m->step_ns = step_ns;
}

void model_clock_advance(struct model *m, uint64_t ns)
{
    m->real_ns += ns;
    m->mono_ns += ns;
}

void model_clock_jump_real(struct model *m, int64_t ms)
{
    m->real_ns += (uint64_t)ms * 1000000u;
}

void model_set_hook(struct model *m, model_hook *hook, void *ctx)
{
    m->hook = hook;
    m->hook_ctx = ctx;
}

uint64_t model_calls(const struct model *m)
{
    return m->calls;
}

void model_die_at(struct model *m, uint64_t call_number)
{
    m->die_at = call_number;
}

bool model_dead(const struct model *m)
{
    return m->dead;
}

void model_fault_arm(struct model *m, const struct fault *fault)
{
    m->fault = fault != NULL ? *fault : (struct fault){0};
    m->fault.seen = 0;
    m->fault.fired = 0;
}

uint64_t model_fault_fired(const struct model *m)
{
    return m->fault.fired;
}

void model_lie(struct model *m, bool file_syncs, bool directory_syncs)
{
    m->lie_files = file_syncs;
    m->lie_directories = directory_syncs;
}

void model_failed_sync_partial(struct model *m, bool partial)
{
    m->partial = partial;
}

void model_misdirect_next(struct model *m, int64_t sectors)
{
    m->misdirect = sectors;
}

uint64_t model_used_bytes(const struct model *m)
{
    return m->used_pages * MODEL_BLOCK;
}

/* ---- hashes ---- */

static uint64_t tree_hash(const struct model *m, const struct inode *dir)
{
    uint64_t sum = 0;

    for (size_t n = 0; n < dir->now.count; n++) {
        const struct entry *e = &dir->now.list[n];
        struct inode *i = inode_get(m, e->ino);
        uint64_t h = S_ISDIR(i->mode) ? tree_hash(m, i) : image_hash(i->cache);

        for (const char *c = e->name; *c != '\0'; c++) {
            h = model_mix(h ^ (unsigned char)*c) + 1;
        }
        sum += model_mix(h); /* a sum, so that the order of entries does not matter */
    }
    return model_mix(sum + dir->now.count);
}

uint64_t model_hash(const struct model *m)
{
    uint64_t h;

    (void)pthread_mutex_lock(&model_lock);
    h = tree_hash(m, inode_get(m, MODEL_ROOT_INO));
    (void)pthread_mutex_unlock(&model_lock);
    return h;
}

/* ---- files behind the back of the process ---- */

/* Adds a name to cache and disk at once. */
static struct inode *put_entry(struct model *m, struct inode *dir, const char *name, unsigned mode)
{
    struct inode *i = inode_add(m, mode);
    struct entry_op op = {.call = OS_CALL_open, .ino = i->ino, .dir = dir->ino, .dir_to = dir->ino};

    memcpy(op.name, name, strlen(name) + 1);
    entry_apply(m, &op, false);
    entry_apply(m, &op, true);
    inode_place(i, dir, name);
    return i;
}

static struct inode *put_file(struct model *m, const char *path)
{
    char name[MODEL_NAME_SIZE];
    char parent[256];
    struct inode *dir;
    const struct entry *e;

    for (size_t n = m->root_length + 1; path[n] != '\0'; n++) {
        if (path[n] != '/') {
            continue;
        }
        ensure(n < sizeof parent);
        memcpy(parent, path, n);
        parent[n] = '\0';
        ensure(path_find(m, parent, &dir, name) == 0);
        if (entries_find(&dir->now, name) == NULL) {
            (void)put_entry(m, dir, name, S_IFDIR | 0755);
        }
    }
    ensure(path_find(m, path, &dir, name) == 0);
    ensure(name[0] != '\0');
    e = entries_find(&dir->now, name);
    return e != NULL ? inode_get(m, e->ino) : put_entry(m, dir, name, S_IFREG | 0644);
}

void model_put(struct model *m, const char *path, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;
    struct inode *i;

    (void)pthread_mutex_lock(&model_lock);
    ensure(m->item_count == 0);
    i = put_file(m, path);
    ensure(!S_ISDIR(i->mode));
    m->used_pages -= image_pages_used(i->cache);
    image_drop(i->durable);
    i->durable = NULL;
    image_own(&i->cache);
    image_cut(i->cache, 0);
    for (size_t at = 0; at < n; at += MODEL_BLOCK) {
        size_t piece = n - at < MODEL_BLOCK ? n - at : MODEL_BLOCK;

        memcpy(image_page_own(i->cache, at / MODEL_BLOCK)->bytes, from + at, piece);
    }
    i->cache->size = n;
    i->durable = image_ref(i->cache);
    i->diverged = false;
    m->used_pages += image_pages_used(i->cache);
    (void)pthread_mutex_unlock(&model_lock);
}

static int64_t image_read(struct image *i, unsigned char *to, size_t n)
{
    for (size_t at = 0; at < n && at < i->size; at += MODEL_BLOCK) {
        const struct page *p = image_page(i, at / MODEL_BLOCK);
        size_t piece = n - at < MODEL_BLOCK ? n - at : MODEL_BLOCK;

        piece = piece < i->size - at ? piece : (size_t)(i->size - at);
        memcpy(to + at, p != NULL ? p->bytes : model_zero_page.bytes, piece);
    }
    return (int64_t)i->size;
}

int64_t model_get(const struct model *m, const char *path, void *bytes, size_t n)
{
    int error;
    const struct inode *i;
    int64_t size;

    (void)pthread_mutex_lock(&model_lock);
    i = path_inode(m, path, &error);
    if (i == NULL) {
        size = error;
    } else {
        size = S_ISDIR(i->mode) ? -EISDIR : image_read(i->cache, bytes, n);
    }
    (void)pthread_mutex_unlock(&model_lock);
    return size;
}

static void image_rot(struct image **i, uint64_t offset, unsigned char with)
{
    image_own(i);
    image_page_own(*i, offset / MODEL_BLOCK)->bytes[offset % MODEL_BLOCK] ^= with;
}

static void items_rot(struct model *m, uint64_t ino, uint64_t offset, unsigned char with)
{
    for (size_t n = 0; n < m->item_count; n++) {
        struct item *item = &m->items[n];
        struct image one = {.refs = 1, .page_count = 1, .pages = &item->page};

        if (item->ino == ino && item->kind == MODEL_ITEM_DATA &&
            item->at == offset / m->sector_size) {
            size_t within = item->source * m->sector_size + offset % m->sector_size;

            image_page_own(&one, 0)->bytes[within] ^= with;
        }
    }
}

int model_rot(struct model *m, const char *path, uint64_t offset, unsigned char with)
{
    int result;
    struct inode *i;

    (void)pthread_mutex_lock(&model_lock);
    i = path_inode(m, path, &result);
    if (i != NULL && (S_ISDIR(i->mode) || offset >= i->cache->size)) {
        result = -EINVAL;
    } else if (i != NULL) {
        bool shared = i->cache == i->durable;
        size_t used = image_pages_used(i->cache);

        if (shared) {
            image_drop(i->durable);
        } else if (offset < i->durable->size) {
            image_rot(&i->durable, offset, with);
        }
        image_rot(&i->cache, offset, with);
        if (shared) {
            i->durable = image_ref(i->cache);
        }
        items_rot(m, i->ino, offset, with);
        m->used_pages += image_pages_used(i->cache) - used; /* a rotten hole is a block */
    }
    (void)pthread_mutex_unlock(&model_lock);
    return result;
}

/* ---- for people ---- */

void model_trace_print(const struct model *m, FILE *to)
{
    uint64_t from = m->trace_count > MODEL_TRACE_COUNT ? m->trace_count - MODEL_TRACE_COUNT : 0;

    for (uint64_t n = from; n < m->trace_count; n++) {
        const struct trace *t = &m->trace[n % MODEL_TRACE_COUNT];

        (void)fprintf(to, "%6llu %-10s %s +%llu %llu = %lld\n", (unsigned long long)t->number,
                      os_call_name(t->call), t->path, (unsigned long long)t->offset,
                      (unsigned long long)t->length, (long long)t->result);
    }
}

void model_pending_print(const struct model *m, FILE *to)
{
    for (size_t n = 0; n < m->item_count; n++) {
        struct model_item item = model_pending_item(m, n);

        (void)fprintf(to, "%4zu %-9s %s +%llu %llu\n", n, os_call_name(item.call), item.path,
                      (unsigned long long)item.offset, (unsigned long long)item.length);
    }
}

static int export_file(struct image *i, const char *path)
{
    int fd = os_real.open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int64_t put = 0;

    if (fd < 0) {
        return fd;
    }
    for (uint64_t at = 0; at < i->size && put >= 0; at += MODEL_BLOCK) {
        const struct page *p = image_page(i, at / MODEL_BLOCK);
        uint64_t piece = i->size - at < MODEL_BLOCK ? i->size - at : MODEL_BLOCK;

        put = os_real.pwrite(fd, p != NULL ? p->bytes : model_zero_page.bytes, piece, at);
        put = put < 0 ? put : (uint64_t)put == piece ? 0 : -EIO;
    }
    (void)os_real.close(fd);
    return (int)put;
}

static int export_tree(const struct model *m, const struct inode *dir, const char *to)
{
    int result = 0;

    for (size_t n = 0; n < dir->now.count && result == 0; n++) {
        const struct inode *i = inode_get(m, dir->now.list[n].ino);
        char path[512];

        if (snprintf(path, sizeof path, "%s/%s", to, dir->now.list[n].name) >= (int)sizeof path) {
            return -ENAMETOOLONG;
        }
        if (S_ISDIR(i->mode)) {
            result = os_real.mkdir(path, 0755);
            result = result == 0 ? export_tree(m, i, path) : result;
        } else {
            result = export_file(i->cache, path);
        }
    }
    return result;
}

int model_export(const struct model *m, const char *directory)
{
    int result;

    (void)pthread_mutex_lock(&model_lock);
    result = export_tree(m, inode_get(m, MODEL_ROOT_INO), directory);
    (void)pthread_mutex_unlock(&model_lock);
    return result;
}
