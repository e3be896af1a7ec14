/* modeldisk_state: what the files of the model disk share; tests include modeldisk.h only.
 *
 * Bytes live in reference-counted pages, pages in reference-counted images; both are written only
 * by their sole owner and copied first otherwise. A synced file's cache and durable image are one
 * image, a snapshot shares all of them, and a pending data item holds the page as it was just after
 * its write. All under model_lock. */
#ifndef TESTS_LIB_MODELDISK_STATE_H
#define TESTS_LIB_MODELDISK_STATE_H

#include <pthread.h>

#include "tests/lib/modeldisk.h"

#define MODEL_TRACE_COUNT 256
#define MODEL_ROOT_INO    1

struct page {
    uint32_t refs;
    bool hashed;
    uint64_t hash;
    unsigned char bytes[MODEL_BLOCK];
};

struct image {
    uint32_t refs;
    bool hashed;
    uint64_t hash;
    uint64_t size; /* of the file; pages may be fewer (a hole at the end) or, while a crash is
                      being made, more */
    size_t page_count;
    struct page **pages; /* NULL is a hole */
};

struct entry {
    uint64_t ino;
    char name[MODEL_NAME_SIZE];
};

struct entries {
    struct entry *list;
    size_t count;
    size_t room;
};

struct inode {
    uint64_t ino;
    unsigned mode;
    uint64_t mtime_ms;    /* last change of content, by the wall clock; survives crashes */
    unsigned opens;       /* descriptors */
    unsigned links_now;   /* entries in the cache: 0 or 1 */
    unsigned links_kept;  /* entries on the disk */
    unsigned pending_ops; /* entry items that name it */
    bool released;        /* neither linked nor open: its blocks are no longer counted */
    bool diverged;        /* some clean bytes of the cache are not those on the disk */
    unsigned shrinks;     /* pending size items that cut */
    struct image *cache;  /* files */
    struct image *durable;
    unsigned char *dirty; /* one byte a page, one bit a sector with a pending item */
    size_t dirty_size;
    struct entries now;  /* directories: in the cache */
    struct entries kept; /* directories: on the disk */
    char path[256];      /* for people: where it was last seen */
};

/* A change of the name space; one pending item. */
struct entry_op {
    uint32_t refs;
    enum os_call call;
    uint64_t ino;
    uint64_t dir;    /* rename: of the old name */
    uint64_t dir_to; /* rename only, otherwise dir */
    char name[MODEL_NAME_SIZE];
    char name_to[MODEL_NAME_SIZE];
};

struct item {
    enum model_item_kind kind;
    uint64_t ino;
    uint64_t at;         /* data: sector on disk; size: the new size */
    bool shrinks;        /* size */
    unsigned source;     /* data: sector within the page */
    struct page *page;   /* data */
    struct entry_op *op; /* entry */
};

struct open_file {
    int fd;
    int flags;
    int lock; /* LOCK_UN, LOCK_SH or LOCK_EX */
    uint64_t ino;
};

struct trace {
    uint64_t number;
    enum os_call call;
    uint64_t offset;
    uint64_t length;
    int64_t result;
    char path[72];
};

struct model {
    char root[64];
    size_t root_length;
    unsigned sector_size;
    enum model_order order;
    uint64_t capacity_pages; /* 0: no limit */
    uint64_t used_pages;
    unsigned open_max;
    bool kernel_for_others;

    struct inode **inodes; /* by number; NULL where none */
    size_t inode_count;
    struct item *items; /* pending, oldest first */
    size_t item_count;
    size_t item_room;
    struct open_file *opens;
    size_t open_count;
    size_t open_room;
    int fd_next;

    uint64_t real_ns;
    uint64_t mono_ns;
    uint64_t step_ns;
    uint64_t chance; /* state of the generator */
    uint64_t seed;

    uint64_t calls;
    uint64_t die_at;
    bool dead;
    model_hook *hook;
    void *hook_ctx;
    struct fault fault;
    bool lie_files;
    bool lie_directories;
    bool partial;
    int64_t misdirect;
    struct trace *trace; /* a ring, made at the first call */
    uint64_t trace_count;
};

extern pthread_mutex_t model_lock;

void *model_alloc(size_t size); /* zeroed; aborts rather than fail */
void *model_grow(void *p, size_t *room, size_t needed, size_t item_size);
uint64_t model_mix(uint64_t x);         /* one step of a 64-bit hash */
uint64_t model_chance(uint64_t *state); /* the next number of a seeded generator */

/* pages and images */
struct page *page_ref(struct page *p);
void page_drop(struct page *p);
struct image *image_ref(struct image *i);
void image_drop(struct image *i);
void image_own(struct image **i);                             /* before any change */
struct page *image_page(struct image *i, uint64_t index);     /* NULL for a hole */
struct page *image_page_own(struct image *i, uint64_t index); /* for writing; fills a hole */
void image_page_set(struct image *i, uint64_t index, struct page *p); /* takes the reference */
void image_cut(struct image *i, uint64_t size); /* sets the size, zeroes all beyond */
size_t image_pages_used(const struct image *i);
uint64_t image_hash(struct image *i);
extern struct page model_zero_page;

/* inodes and entries */
struct inode *inode_get(const struct model *m, uint64_t ino);
struct inode *inode_add(struct model *m, unsigned mode);
void inode_place(struct inode *i, const struct inode *dir, const char *name); /* its path */
void inode_release(struct model *m,
                   struct inode *i); /* frees it if nothing refers to it any more */
struct entry *entries_find(struct entries *e, const char *name);
void entry_apply(struct model *m, const struct entry_op *op, bool durable);
void entry_op_drop(struct entry_op *op);
void entries_copy(struct entries *to, const struct entries *from);
/* A model with m's options, clocks and room for its inodes, and nothing in it. */
struct model *model_blank(const struct model *m);

/* pending items */
void item_data(struct model *m, struct inode *i, uint64_t page_index, unsigned first,
               unsigned last);
void item_size(struct model *m, struct inode *i, uint64_t size, bool shrinks);
void item_entry(struct model *m, struct entry_op *op); /* takes the reference */
void items_land_file(struct model *m, struct inode *i);
void items_lose_file(struct model *m, struct inode *i); /* a sync has failed */
void items_land_directory(struct model *m, uint64_t dir);
void items_forget_file(struct model *m, const struct inode *i);
/* Puts a data item into an image: whole, or torn with the generator's help. */
void data_apply(const struct model *m, struct image **to, const struct item *item,
                enum model_fate fate, enum model_torn torn, uint64_t *chance);
void size_apply(struct image **to, const struct item *item);
/* Whether `later` cannot be on disk without `earlier`. */
bool op_needs(enum model_order order, const struct entry_op *later, const struct entry_op *earlier);

/* Finds a path below the root. 0 with *dir and *name (its last part; "" for the root itself), or a
 * negative errno. */
int path_find(const struct model *m, const char *path, struct inode **dir, char *name);
struct inode *path_inode(const struct model *m, const char *path, int *error);

#endif
