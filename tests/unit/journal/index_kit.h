/* index_kit: what the index's tests share: a directory of made-up closed generations, a plain model
 * of the keys in them, and the comparison of an index with it.
 *
 * All files are touched through os/os.h, so that the same steps run on the kernel, on the model
 * disk and under injected faults. Random choices come from one generator, whose seed is printed and
 * read from SEED. */
#ifndef INDEX_KIT_H
#define INDEX_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "journal/index.h"
#include "journal/index_format.h"
#include "os/os.h"

#define KIT_FILL_BYTES 64u /* of a generation's file beyond one byte for each key */

struct ikit_random {
    uint64_t state;
};

struct ikit {
    char root[64];
    char dir[80]; /* the index */
    struct ikit_random random;
    struct index_generation *closed;
    uint32_t count;         /* of closed generations */
    struct index_key *keys; /* all keys that must be found */
    size_t key_count, key_room;
    bool sorted;
    uint32_t active_keys;  /* of the generation being written */
    uint64_t memory_bytes; /* for index_open; 0: the default */
};

static inline uint64_t ikit_next(struct ikit_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t ikit_below(struct ikit_random *r, uint32_t n)
{
    return (uint32_t)(ikit_next(r) % n);
}

static inline uint64_t ikit_seed(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : os_clock_real_ms();

    printf("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* ---- the system ---- */

static inline int ikit_no_sync(int fd)
{
    (void)fd;
    return 0;
}

/* Syncs take no time from here on: for tests of many files in which no power fails. */
static inline void ikit_skip_syncs(void)
{
    static struct os_table table;

    table = os_real;
    table.fsync = ikit_no_sync;
    table.fdatasync = ikit_no_sync;
    os_install(&table);
}

/* ---- the directory ---- */

static inline void ikit_join(char out[200], const char *dir, const char *name)
{
    int n = snprintf(out, 200, "%s/%s", dir, name);

    assert_in_range(n, 1, 199);
}

static inline int ikit_remove_one(void *ctx, const char *name)
{
    char(*names)[80] = ctx;

    for (unsigned i = 0; i < 256; i++) {
        if (names[i][0] == '\0') {
            (void)snprintf(names[i], sizeof names[i], "%s", name);
            return 0;
        }
    }
    return 1; /* more than fit: another round */
}

/* Empties and leaves one directory. */
static inline void ikit_empty(const char *dir)
{
    static char names[256][80];
    char path[200];
    int more;

    do {
        memset(names, 0, sizeof names);
        more = os_list(dir, ikit_remove_one, names);
        for (unsigned i = 0; i < 256 && names[i][0] != '\0'; i++) {
            ikit_join(path, dir, names[i]);
            (void)os_unlink(path);
        }
    } while (more > 0);
}

static inline int ikit_count_one(void *ctx, const char *name)
{
    (void)name;
    *(unsigned *)ctx += 1;
    return 0;
}

static inline unsigned ikit_files(const struct ikit *k)
{
    unsigned n = 0;

    assert_int_equal(os_list(k->dir, ikit_count_one, &n), 0);
    return n;
}

static inline bool ikit_exists(const struct ikit *k, const char *name)
{
    char path[200];
    struct os_stat st;

    ikit_join(path, k->dir, name);
    return os_stat(path, &st) == 0;
}

/* A kit whose root exists already. */
static inline void ikit_start_at(struct ikit *k, const char *root, uint64_t seed)
{
    memset(k, 0, sizeof *k);
    k->random.state = seed;
    (void)snprintf(k->root, sizeof k->root, "%s", root);
    (void)snprintf(k->dir, sizeof k->dir, "%s/index", root);
}

static inline void ikit_start(struct ikit *k, uint64_t seed)
{
    char root[] = "/tmp/tallyman-index-XXXXXX";

    assert_non_null(mkdtemp(root));
    ikit_start_at(k, root, seed);
}

static inline void ikit_free(struct ikit *k)
{
    free(k->closed);
    free(k->keys);
}

static inline void ikit_end(struct ikit *k)
{
    ikit_empty(k->dir);
    (void)rmdir(k->dir);
    ikit_empty(k->root);
    assert_int_equal(rmdir(k->root), 0);
    ikit_free(k);
}

/* ---- whole files ---- */

struct ikit_image {
    uint8_t *bytes;
    size_t size;
};

static inline void ikit_put(const struct ikit *k, const char *name, const uint8_t *bytes,
                            size_t size)
{
    char path[200];
    int fd;

    ikit_join(path, k->dir, name);
    /* In place, for those who have it open. */
    fd = os_open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, bytes, size, 0, NULL), 0);
    assert_int_equal(os_ftruncate(fd, size), 0);
    assert_int_equal(os_close(fd), 0);
}

static inline struct ikit_image ikit_get(const struct ikit *k, const char *name)
{
    struct ikit_image image;
    struct os_stat st;
    char path[200];
    int fd;

    ikit_join(path, k->dir, name);
    fd = os_open(path, O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(os_fstat(fd, &st), 0);
    image.size = st.size;
    image.bytes = malloc(image.size);
    assert_non_null(image.bytes);
    assert_int_equal(os_pread_full(fd, image.bytes, image.size, 0), image.size);
    assert_int_equal(os_close(fd), 0);
    return image;
}

/* ---- keys ---- */

static inline void ikit_fingerprint(uint8_t out[16], uint64_t n)
{
    struct ikit_random r = {n * 2};
    uint64_t a = ikit_next(&r);
    uint64_t b = ikit_next(&r);

    memcpy(out, &a, 8);
    memcpy(out + 8, &b, 8);
}

static inline void ikit_remember(struct ikit *k, const struct index_key *key)
{
    if (k->key_count == k->key_room) {
        k->key_room = k->key_room * 2 + 64;
        k->keys = realloc(k->keys, k->key_room * sizeof *k->keys);
        assert_non_null(k->keys);
    }
    k->keys[k->key_count] = *key;
    k->key_count++;
    k->sorted = false;
}

/* The next key of the generation being written. */
static inline struct index_key ikit_key(struct ikit *k, uint64_t fingerprint_number)
{
    struct index_key key = {.generation = k->count, .offset = k->active_keys, .bytes = 1};

    key.events = 1 + ikit_below(&k->random, 9);
    ikit_fingerprint(key.fingerprint, fingerprint_number);
    k->active_keys++;
    return key;
}

static inline void ikit_insert(struct ikit *k, struct index *ix, uint64_t fingerprint_number)
{
    struct index_key key = ikit_key(k, fingerprint_number);

    assert_int_equal(index_insert(ix, &key), 0);
    ikit_remember(k, &key);
}

/* ---- generations ---- */

static inline void ikit_path(char out[96], const struct ikit *k, uint32_t generation)
{
    (void)snprintf(out, 96, "%s/g%u", k->root, generation);
}

static inline void ikit_ids(uint32_t generation, struct uuid *first, struct uuid *last)
{
    ikit_fingerprint(first->byte, UINT64_C(1) << 40 | generation);
    ikit_fingerprint(last->byte, UINT64_C(1) << 41 | generation);
}

/* Fills the file of a generation. */
static inline void ikit_write_file(const struct ikit *k, uint32_t generation, uint64_t bytes)
{
    char path[96];
    char *content = malloc(bytes + 1);
    int fd;

    assert_non_null(content);
    for (uint64_t i = 0; i < bytes; i++) {
        content[i] = (char)(i * 7 + generation);
    }
    ikit_path(path, k, generation);
    fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, content, bytes, 0, NULL), 0);
    assert_int_equal(os_close(fd), 0);
    free(content);
}

/* The summary of a generation as the journal would give it; streams are static. */
static inline struct index_summary ikit_summary(const struct ikit *k, uint32_t generation)
{
    static struct index_stream streams[3];
    struct index_summary s = {.generation = generation,
                              .first_id = k->closed[generation].first_id,
                              .last_id = k->closed[generation].last_id,
                              .bytes = k->closed[generation].bytes,
                              .events = 100 + generation,
                              .batches = 10 + generation,
                              .streams = streams,
                              .stream_count = generation % 4};

    memset(s.head, (int)generation + 1, sizeof s.head);
    streams[0] = (struct index_stream){.source = SLICE("a"), .stream = SLICE("b.c"), .events = 1};
    streams[1] = (struct index_stream){.source = SLICE("a"), .stream = SLICE("b.d"), .events = 2};
    streams[2] = (struct index_stream){.source = SLICE("ab"), .stream = SLICE("b"), .events = 3};
    for (unsigned i = 0; i < 3; i++) {
        ikit_fingerprint(streams[i].last_id.byte, generation * 3 + i);
    }
    return s;
}

/* Makes the generation being written a closed one, file and all. Returns its ordinal. */
static inline uint32_t ikit_seal(struct ikit *k)
{
    uint32_t generation = k->count;
    struct index_generation *g;

    k->closed = realloc(k->closed, (generation + 1) * sizeof *k->closed);
    assert_non_null(k->closed);
    g = &k->closed[generation];
    ikit_ids(generation, &g->first_id, &g->last_id);
    g->bytes = k->active_keys + KIT_FILL_BYTES;
    ikit_write_file(k, generation, g->bytes);
    k->count++;
    k->active_keys = 0;
    return generation;
}

/* index_read_fn: the files that ikit_write_file makes; ctx is the kit. */
static inline int64_t ikit_read(void *ctx, uint32_t generation, uint64_t at, void *p, size_t n,
                                struct err *e)
{
    char path[96];
    int64_t got;
    int fd;

    ikit_path(path, ctx, generation);
    fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    got = os_pread_full(fd, p, n, at);
    (void)os_close(fd);
    return got < 0 ? err_os(e, (int)got, "read", path) : got;
}

static inline struct index_options ikit_options(const struct ikit *k, bool background)
{
    return (struct index_options){.background = background,
                                  .memory_bytes = k->memory_bytes,
                                  .read = ikit_read,
                                  .ctx = (void *)(uintptr_t)k};
}

static inline int ikit_close_result(struct ikit *k, struct index *ix, uint32_t generation,
                                    bool with_keys)
{
    struct index_summary s = ikit_summary(k, generation);
    struct err e;

    return index_close_generation(ix, &s, with_keys, &e);
}

static inline void ikit_close(struct ikit *k, struct index *ix)
{
    assert_int_equal(ikit_close_result(k, ix, ikit_seal(k), true), 0);
}

/* Does what the journal does after opening: indexes again what is not known. Returns how many
 * generations that were. */
static inline unsigned ikit_rebuild(struct ikit *k, struct index *ix, const bool *known)
{
    unsigned rebuilt = 0;

    for (uint32_t g = 0; g < k->count; g++) {
        if (known[g]) {
            continue;
        }
        for (size_t i = 0; i < k->key_count; i++) {
            if (k->keys[i].generation == g) {
                assert_int_equal(index_insert(ix, &k->keys[i]), 0);
            }
        }
        assert_int_equal(ikit_close_result(k, ix, g, true), 0);
        rebuilt++;
    }
    return rebuilt;
}

static inline struct index *ikit_try_open(const struct ikit *k, const char *dir,
                                          const struct index_generation *closed, uint32_t count,
                                          bool *known, bool background, struct err *e)
{
    const struct index_options options = ikit_options(k, background);

    return index_open(dir, closed, count, known, &options, e);
}

static inline struct index *ikit_open(const struct ikit *k, bool *known, bool background)
{
    struct err e = {.code = 0};
    struct index *ix = ikit_try_open(k, k->dir, k->closed, k->count, known, background, &e);

    if (ix == NULL) {
        fail_msg("index_open: %s", e.text);
    }
    return ix;
}

/* ---- comparison ---- */

struct ikit_seen {
    struct index_key keys[64];
    size_t count;
};

static inline int ikit_visit(void *ctx, const struct index_key *key)
{
    struct ikit_seen *seen = ctx;

    assert_true(seen->count < sizeof seen->keys / sizeof seen->keys[0]);
    seen->keys[seen->count] = *key;
    seen->count++;
    return 0;
}

static inline int ikit_cmp(const void *a, const void *b)
{
    return index_key_cmp(a, b);
}

/* The model's keys of one fingerprint: [first, first + returned). */
static inline size_t ikit_range(struct ikit *k, const uint8_t fingerprint[16], size_t *first)
{
    size_t low = 0;
    size_t high = k->key_count;
    size_t n = 0;

    if (!k->sorted && k->key_count > 0) {
        qsort(k->keys, k->key_count, sizeof *k->keys, ikit_cmp);
    }
    k->sorted = true;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (memcmp(k->keys[middle].fingerprint, fingerprint, 16) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *first = low;
    while (low + n < k->key_count && memcmp(k->keys[low + n].fingerprint, fingerprint, 16) == 0) {
        n++;
    }
    return n;
}

/* The index finds exactly the model's keys of this fingerprint. */
static inline void ikit_check_one(struct ikit *k, struct index *ix, const uint8_t fingerprint[16])
{
    struct ikit_seen seen = {.count = 0};
    size_t first;
    size_t n = ikit_range(k, fingerprint, &first);

    assert_int_equal(index_find(ix, fingerprint, ikit_visit, &seen), 0);
    assert_int_equal(seen.count, n);
    qsort(seen.keys, seen.count, sizeof seen.keys[0], ikit_cmp);
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(&seen.keys[i], &k->keys[first + i], sizeof seen.keys[i]);
    }
}

/* All of them, and 100 that are not there. */
static inline void ikit_check(struct ikit *k, struct index *ix)
{
    uint8_t fingerprint[16];

    for (size_t i = 0; i < k->key_count; i++) {
        memcpy(fingerprint, k->keys[i].fingerprint, 16);
        ikit_check_one(k, ix, fingerprint);
    }
    for (unsigned i = 0; i < 100; i++) {
        ikit_fingerprint(fingerprint, UINT64_C(1) << 50 | i);
        ikit_check_one(k, ix, fingerprint);
    }
    assert_int_equal(index_key_count(ix), k->key_count);
}

/* The stored summary says what ikit_summary said. */
static inline void ikit_check_summary(const struct ikit *k, uint32_t generation)
{
    struct index_summary want = ikit_summary(k, generation);
    struct index_summary got;
    struct err e;
    int result = index_summary_load(k->dir, generation, &k->closed[generation], &got, &e);

    if (result != 0) {
        fail_msg("summary of %u: %s", generation, e.text);
    }
    assert_int_equal(got.generation, generation);
    assert_memory_equal(&got.first_id, &want.first_id, 16);
    assert_memory_equal(&got.last_id, &want.last_id, 16);
    assert_int_equal(got.events, want.events);
    assert_int_equal(got.batches, want.batches);
    assert_int_equal(got.bytes, want.bytes);
    assert_memory_equal(got.head, want.head, SHA256_LEN);
    assert_int_equal(got.stream_count, want.stream_count);
    for (uint32_t i = 0; i < got.stream_count; i++) {
        assert_true(slice_eq(got.streams[i].source, want.streams[i].source));
        assert_true(slice_eq(got.streams[i].stream, want.streams[i].stream));
        assert_memory_equal(&got.streams[i].last_id, &want.streams[i].last_id, 16);
        assert_int_equal(got.streams[i].events, want.streams[i].events);
    }
    index_summary_free(&got);
}

#endif
