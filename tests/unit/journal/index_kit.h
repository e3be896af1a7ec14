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

struct kit_random {
    uint64_t state;
};

struct kit {
    char root[64];
    char dir[80]; /* the index */
    struct kit_random random;
    struct index_generation *closed;
    uint32_t count;         /* of closed generations */
    struct index_key *keys; /* all keys that must be found */
    size_t key_count, key_room;
    bool sorted;
    uint32_t active_keys; /* of the generation being written */
};

static inline uint64_t kit_next(struct kit_random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline uint32_t kit_below(struct kit_random *r, uint32_t n)
{
    return (uint32_t)(kit_next(r) % n);
}

static inline uint64_t kit_seed(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : os_clock_real_ms();

    printf("SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* ---- the directory ---- */

static inline void kit_join(char out[200], const char *dir, const char *name)
{
    int n = snprintf(out, 200, "%s/%s", dir, name);

    assert_in_range(n, 1, 199);
}

static inline int kit_remove_one(void *ctx, const char *name)
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
static inline void kit_empty(const char *dir)
{
    static char names[256][80];
    char path[200];
    int more;

    do {
        memset(names, 0, sizeof names);
        more = os_list(dir, kit_remove_one, names);
        for (unsigned i = 0; i < 256 && names[i][0] != '\0'; i++) {
            kit_join(path, dir, names[i]);
            (void)os_unlink(path);
        }
    } while (more > 0);
}

static inline int kit_count_one(void *ctx, const char *name)
{
    (void)name;
    *(unsigned *)ctx += 1;
    return 0;
}

static inline unsigned kit_files(const struct kit *k)
{
    unsigned n = 0;

    assert_int_equal(os_list(k->dir, kit_count_one, &n), 0);
    return n;
}

static inline bool kit_exists(const struct kit *k, const char *name)
{
    char path[200];
    struct os_stat st;

    kit_join(path, k->dir, name);
    return os_stat(path, &st) == 0;
}

/* A kit whose root exists already. */
static inline void kit_start_at(struct kit *k, const char *root, uint64_t seed)
{
    memset(k, 0, sizeof *k);
    k->random.state = seed;
    (void)snprintf(k->root, sizeof k->root, "%s", root);
    (void)snprintf(k->dir, sizeof k->dir, "%s/index", root);
}

static inline void kit_start(struct kit *k, uint64_t seed)
{
    char root[] = "/tmp/tallyman-index-XXXXXX";

    assert_non_null(mkdtemp(root));
    kit_start_at(k, root, seed);
}

static inline void kit_free(struct kit *k)
{
    free(k->closed);
    free(k->keys);
}

static inline void kit_end(struct kit *k)
{
    kit_empty(k->dir);
    (void)rmdir(k->dir);
    kit_empty(k->root);
    assert_int_equal(rmdir(k->root), 0);
    kit_free(k);
}

/* ---- keys ---- */

static inline void kit_fingerprint(uint8_t out[16], uint64_t n)
{
    struct kit_random r = {n * 2};
    uint64_t a = kit_next(&r);
    uint64_t b = kit_next(&r);

    memcpy(out, &a, 8);
    memcpy(out + 8, &b, 8);
}

static inline void kit_remember(struct kit *k, const struct index_key *key)
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
static inline struct index_key kit_key(struct kit *k, uint64_t fingerprint_number)
{
    struct index_key key = {.generation = k->count, .offset = k->active_keys, .bytes = 1};

    key.events = 1 + kit_below(&k->random, 9);
    kit_fingerprint(key.fingerprint, fingerprint_number);
    k->active_keys++;
    return key;
}

static inline void kit_insert(struct kit *k, struct index *ix, uint64_t fingerprint_number)
{
    struct index_key key = kit_key(k, fingerprint_number);

    assert_int_equal(index_insert(ix, &key), 0);
    kit_remember(k, &key);
}

/* ---- generations ---- */

static inline void kit_path(char out[96], const struct kit *k, uint32_t generation)
{
    (void)snprintf(out, 96, "%s/g%u", k->root, generation);
}

static inline void kit_ids(uint32_t generation, struct uuid *first, struct uuid *last)
{
    kit_fingerprint(first->byte, UINT64_C(1) << 40 | generation);
    kit_fingerprint(last->byte, UINT64_C(1) << 41 | generation);
}

/* Fills the file of a generation; returns its hash. */
static inline void kit_write_file(const struct kit *k, uint32_t generation, uint64_t bytes,
                                  uint8_t sha[SHA256_LEN])
{
    char path[96];
    char *content = malloc(bytes + 1);
    int fd;

    assert_non_null(content);
    for (uint64_t i = 0; i < bytes; i++) {
        content[i] = (char)(i * 7 + generation);
    }
    kit_path(path, k, generation);
    fd = os_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(os_pwrite_all(fd, content, bytes, 0, NULL), 0);
    assert_int_equal(os_fdatasync(fd), 0);
    assert_int_equal(os_close(fd), 0);
    sha256_once(slice_of(content, bytes), sha);
    free(content);
}

/* The summary of a generation as the journal would give it; streams are static. */
static inline struct index_summary kit_summary(const struct kit *k, uint32_t generation)
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
        kit_fingerprint(streams[i].last_id.byte, generation * 3 + i);
    }
    return s;
}

/* Makes the generation being written a closed one, file and all. Returns its ordinal. */
static inline uint32_t kit_seal(struct kit *k)
{
    uint8_t sha[SHA256_LEN];
    uint32_t generation = k->count;
    struct index_generation *g;

    k->closed = realloc(k->closed, (generation + 1) * sizeof *k->closed);
    assert_non_null(k->closed);
    g = &k->closed[generation];
    kit_ids(generation, &g->first_id, &g->last_id);
    g->bytes = k->active_keys + KIT_FILL_BYTES;
    kit_write_file(k, generation, g->bytes, sha);
    k->count++;
    k->active_keys = 0;
    return generation;
}

static inline int kit_close_result(struct kit *k, struct index *ix, uint32_t generation,
                                   bool with_keys)
{
    struct index_summary s = kit_summary(k, generation);
    char path[96];
    struct err e;

    kit_path(path, k, generation);
    return index_close_generation(ix, &s, path, with_keys, &e);
}

static inline void kit_close(struct kit *k, struct index *ix)
{
    assert_int_equal(kit_close_result(k, ix, kit_seal(k), true), 0);
}

/* Does what the journal does after opening: indexes again what is not known. Returns how many
 * generations that were. */
static inline unsigned kit_rebuild(struct kit *k, struct index *ix, const bool *known)
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
        assert_int_equal(kit_close_result(k, ix, g, true), 0);
        rebuilt++;
    }
    return rebuilt;
}

static inline struct index *kit_open(const struct kit *k, bool *known, bool background)
{
    struct err e = {.code = 0};
    struct index *ix = index_open(k->dir, k->closed, k->count, known, background, &e);

    if (ix == NULL) {
        fail_msg("index_open: %s", e.text);
    }
    return ix;
}

/* ---- comparison ---- */

struct kit_seen {
    struct index_key keys[64];
    size_t count;
};

static inline int kit_visit(void *ctx, const struct index_key *key)
{
    struct kit_seen *seen = ctx;

    assert_true(seen->count < sizeof seen->keys / sizeof seen->keys[0]);
    seen->keys[seen->count] = *key;
    seen->count++;
    return 0;
}

static inline int kit_cmp(const void *a, const void *b)
{
    return index_key_cmp(a, b);
}

/* The model's keys of one fingerprint: [first, first + returned). */
static inline size_t kit_range(struct kit *k, const uint8_t fingerprint[16], size_t *first)
{
    size_t low = 0;
    size_t high = k->key_count;
    size_t n = 0;

    if (!k->sorted && k->key_count > 0) {
        qsort(k->keys, k->key_count, sizeof *k->keys, kit_cmp);
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
static inline void kit_check_one(struct kit *k, struct index *ix, const uint8_t fingerprint[16])
{
    struct kit_seen seen = {.count = 0};
    size_t first;
    size_t n = kit_range(k, fingerprint, &first);

    assert_int_equal(index_find(ix, fingerprint, kit_visit, &seen), 0);
    assert_int_equal(seen.count, n);
    qsort(seen.keys, seen.count, sizeof seen.keys[0], kit_cmp);
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(&seen.keys[i], &k->keys[first + i], sizeof seen.keys[i]);
    }
}

/* All of them, and 100 that are not there. */
static inline void kit_check(struct kit *k, struct index *ix)
{
    uint8_t fingerprint[16];

    for (size_t i = 0; i < k->key_count; i++) {
        memcpy(fingerprint, k->keys[i].fingerprint, 16);
        kit_check_one(k, ix, fingerprint);
    }
    for (unsigned i = 0; i < 100; i++) {
        kit_fingerprint(fingerprint, UINT64_C(1) << 50 | i);
        kit_check_one(k, ix, fingerprint);
    }
    assert_int_equal(index_key_count(ix), k->key_count);
}

/* The stored summary says what kit_summary said, and the file's hash. */
static inline void kit_check_summary(const struct kit *k, uint32_t generation)
{
    struct index_summary want = kit_summary(k, generation);
    struct index_summary got;
    struct err e;
    int result = index_summary_load(k->dir, generation, &k->closed[generation], &got, &e);

    if (result != 0) {
        fail_msg("summary of %u: %s", generation, e.text);
    }
    kit_write_file(k, generation, want.bytes, want.file_sha256);
    assert_int_equal(got.generation, generation);
    assert_memory_equal(&got.first_id, &want.first_id, 16);
    assert_memory_equal(&got.last_id, &want.last_id, 16);
    assert_int_equal(got.events, want.events);
    assert_int_equal(got.batches, want.batches);
    assert_int_equal(got.bytes, want.bytes);
    assert_memory_equal(got.head, want.head, SHA256_LEN);
    assert_memory_equal(got.file_sha256, want.file_sha256, SHA256_LEN);
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
