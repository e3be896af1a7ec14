/* index_run: opening, checking, searching and reading through runs (index_format.h has the layout).
 *
 * Invariants: a run that index_run_open returned was whole and ordered at that moment; every block
 * read later is checked again by its CRC32C, which is bound to the run's header and the block's
 * number. So a lookup ends in what the file said when it was written, or in an error; a bad block
 * never reads as "not found".
 *
 * Power failure: nothing is written here.
 *
 * Answers: ERR_IO, ERR_CORRUPT, ERR_NO_MEMORY. Stops: none. Aborts: references that do not balance.
 */
#include "journal/index_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "journal/index_format.h"
#include "os/os.h"

#define INDEX_CURSOR_BLOCKS 16u

void index_run_name(char out[INDEX_NAME_MAX], uint32_t from, uint32_t to)
{
    int n = snprintf(out, INDEX_NAME_MAX, "keys-%08u-%08u.run", from, to);

    ensure(n > 0);
    ensure(n < INDEX_NAME_MAX - (int)sizeof INDEX_TEMP_SUFFIX);
}

bool index_run_fits(uint32_t from, uint32_t to)
{
    uint64_t span;
    uint64_t power = 1;

    if (from > to || to > INDEX_GENERATION_MAX) {
        return false;
    }
    span = (uint64_t)to - from + 1;
    for (unsigned tier = 0; tier < INDEX_TIER_MAX && power < span; tier++) {
        power *= INDEX_MERGE_WAYS;
    }
    return power == span && from % span == 0;
}

uint32_t index_run_blocks_for(uint64_t key_count)
{
    uint64_t blocks = key_count / INDEX_BLOCK_KEYS + (key_count % INDEX_BLOCK_KEYS != 0);

    ensure(blocks <= UINT32_MAX);
    return (uint32_t)blocks;
}

struct index_run *index_run_make(const struct index_run_spec *spec)
{
    struct index_run *run = calloc(1, sizeof *run);

    ensure(index_run_fits(spec->from, spec->to));
    if (run == NULL) {
        return NULL;
    }
    run->fd = -1;
    run->from = spec->from;
    run->to = spec->to;
    run->first_id = spec->first_id;
    run->last_id = spec->last_id;
    run->key_count = spec->key_count;
    run->block_count = index_run_blocks_for(spec->key_count);
    atomic_init(&run->refs, 1);
    atomic_init(&run->failure_told, false);
    /* One more, so that an empty run has an address too. */
    run->fences = calloc((size_t)run->block_count + 1, INDEX_FINGERPRINT_LEN);
    if (run->fences == NULL) {
        free(run);
        return NULL;
    }
    index_filter_start(&run->filter, run->key_count);
    return run;
}

struct index_run *index_run_hold(struct index_run *run)
{
    unsigned before = atomic_fetch_add(&run->refs, 1);

    ensure(before > 0);
    return run;
}

void index_run_release(struct index_run *run)
{
    unsigned before;

    if (run == NULL) {
        return;
    }
    before = atomic_fetch_sub(&run->refs, 1);
    ensure(before > 0);
    if (before == 1) {
        if (run->fd >= 0) {
            (void)os_close(run->fd); /* nothing unwritten hangs on it */
        }
        index_filter_free(&run->filter);
        free(run->fences);
        free(run);
    }
}

/* Reads blocks [first, first + n) of the run and checks each. */
static int index_run_read(const struct index_run *run, uint32_t first, uint32_t n, uint8_t *out,
                          struct err *e)
{
    size_t want = (size_t)n * INDEX_BLOCK_BYTES;
    uint64_t offset = ((uint64_t)first + 1) * INDEX_BLOCK_BYTES;
    int64_t got = os_pread_full(run->fd, out, want, offset);
    char name[INDEX_NAME_MAX];

    ensure((uint64_t)first + n <= run->block_count);
    index_run_name(name, run->from, run->to);
    if (got < 0) {
        (void)err_os(e, (int)got, "read", name);
        return ERR_IO; /* whatever the cause: the caller learns that nothing may be concluded */
    }
    if ((size_t)got != want) {
        return err_set_at(e, ERR_CORRUPT, offset + (uint64_t)got, "%s: ends early", name);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *block = out + (size_t)i * INDEX_BLOCK_BYTES;
        uint32_t crc = crc32c(run->header_crc, block, INDEX_BLOCK_CRC_AT);

        if (crc != index_get_u32(block + INDEX_BLOCK_CRC_AT) ||
            index_get_u32(block + INDEX_BLOCK_NUMBER_AT) != first + i) {
            return err_set_at(e, ERR_CORRUPT, offset + (uint64_t)i * INDEX_BLOCK_BYTES,
                              "%s: block %u does not hold its checksum", name, first + i);
        }
    }
    return 0;
}

static uint32_t index_run_keys_in(const struct index_run *run, uint32_t block)
{
    ensure(block < run->block_count);
    if (block + 1 < run->block_count) {
        return INDEX_BLOCK_KEYS;
    }
    return (uint32_t)(run->key_count - (uint64_t)block * INDEX_BLOCK_KEYS);
}

/* ---- opening ---- */

/* Reads the header at fd and makes a run of it; size is that of the file. */
static int index_run_read_header(int fd, uint64_t size, const struct index_run_spec *want,
                                 const char *name, struct index_run **out, struct err *e)
{
    uint8_t block[INDEX_BLOCK_BYTES];
    struct index_run_spec spec = *want;
    int64_t got = os_pread_full(fd, block, sizeof block, 0);
    uint32_t crc;
    uint64_t blocks;

    if (got < 0) {
        return err_os(e, (int)got, "read", name);
    }
    if (got != (int64_t)sizeof block) {
        return err_set_at(e, ERR_CORRUPT, (uint64_t)got, "%s: ends in its header", name);
    }
    crc = crc32c(0, block, INDEX_BLOCK_CRC_AT);
    if (memcmp(block, INDEX_RUN_MAGIC, INDEX_MAGIC_LEN) != 0 ||
        index_get_u32(block + INDEX_BLOCK_CRC_AT) != crc) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: the header does not hold its checksum", name);
    }
    if (index_get_u32(block + INDEX_RUN_VERSION_AT) != INDEX_VERSION) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: unknown version", name);
    }
    if (index_get_u32(block + INDEX_RUN_FROM_AT) != want->from ||
        index_get_u32(block + INDEX_RUN_TO_AT) != want->to ||
        memcmp(block + INDEX_RUN_FIRST_ID_AT, want->first_id.byte, 16) != 0 ||
        memcmp(block + INDEX_RUN_LAST_ID_AT, want->last_id.byte, 16) != 0) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: not of these generations", name);
    }
    spec.key_count = index_get_u64(block + INDEX_RUN_KEYS_AT);
    blocks = size / INDEX_BLOCK_BYTES - 1;
    /* The first comparison bounds the count, and with it what is allocated, by the file's size. */
    if (size % INDEX_BLOCK_BYTES != 0 || spec.key_count > blocks * INDEX_BLOCK_KEYS ||
        index_run_blocks_for(spec.key_count) != blocks ||
        index_get_u32(block + INDEX_RUN_BLOCKS_AT) != blocks) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: not as long as its header says", name);
    }
    *out = index_run_make(&spec);
    if (*out == NULL) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory for %llu blocks", name,
                       (unsigned long long)blocks);
    }
    (*out)->header_crc = crc;
    return 0;
}

static bool index_key_fits(const struct index_key *key, const struct index_run *run,
                           const struct index_generation *closed)
{
    return key->generation >= run->from && key->generation <= run->to && key->bytes != 0 &&
           key->events != 0 && (uint64_t)key->offset + key->bytes <= closed[key->generation].bytes;
}

/* Reads through all keys: checksums, order, bounds; notes the fences. */
static int index_run_check(struct index_run *run, const struct index_generation *closed,
                           const char *name, struct err *e)
{
    struct index_cursor c;
    struct index_key key = {.bytes = 0};
    struct index_key last = {.bytes = 0};
    uint64_t n = 0;
    int result = index_cursor_start(&c, run, e);

    while (result == 0) {
        int more = index_cursor_next(&c, &key, e);

        if (more <= 0) {
            result = more;
            break;
        }
        if (!index_key_fits(&key, run, closed) || (n > 0 && index_key_cmp(&last, &key) >= 0)) {
            result = err_set(e, ERR_CORRUPT, "%s: key %llu is out of place", name,
                             (unsigned long long)n);
            break;
        }
        if (n % INDEX_BLOCK_KEYS == 0) {
            memcpy(run->fences + n / INDEX_BLOCK_KEYS * INDEX_FINGERPRINT_LEN, key.fingerprint,
                   INDEX_FINGERPRINT_LEN);
        }
        index_filter_add(&run->filter, key.fingerprint);
        last = key;
        n++;
    }
    index_cursor_end(&c);
    ensure(result != 0 || n == run->key_count);
    return result;
}

int index_run_open(const char *dir, uint32_t from, uint32_t to,
                   const struct index_generation *closed, uint32_t count, struct index_run **out,
                   struct err *e)
{
    struct index_run_spec want = {.from = from, .to = to};
    char name[INDEX_NAME_MAX];
    char path[PATH_MAX];
    struct index_run *run = NULL;
    struct os_stat st;
    int result;
    int fd;

    ensure(index_run_fits(from, to));
    ensure(to < count);
    want.first_id = closed[from].first_id;
    want.last_id = closed[to].last_id;
    index_run_name(name, from, to);
    index_path(path, dir, name);
    fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    result = os_fstat(fd, &st);
    if (result != 0) {
        result = err_os(e, result, "stat", path);
        goto out;
    }
    result = index_run_read_header(fd, st.size, &want, name, &run, e);
    if (result != 0) {
        goto out;
    }
    run->fd = fd;
    fd = -1;
    result = index_run_check(run, closed, name, e);
    if (result == 0) {
        *out = run;
        run = NULL;
    }
out:
    if (fd >= 0) {
        (void)os_close(fd);
    }
    index_run_release(run);
    return result;
}

/* ---- searching ---- */

static const uint8_t *index_run_fence(const struct index_run *run, uint32_t block)
{
    return run->fences + (size_t)block * INDEX_FINGERPRINT_LEN;
}

/* The first block that may hold the fingerprint: the one before the first fence that is not below
 * it, since keys equal to a fence may begin in the block before. */
static uint32_t index_run_block_of(const struct index_run *run, const uint8_t fingerprint[16])
{
    uint32_t low = 0;
    uint32_t high = run->block_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (memcmp(index_run_fence(run, middle), fingerprint, INDEX_FINGERPRINT_LEN) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? low - 1 : 0;
}

/* The first of n keys in a block that is not below the fingerprint. */
static uint32_t index_block_lower_bound(const uint8_t *block, uint32_t n,
                                        const uint8_t fingerprint[16])
{
    uint32_t low = 0;
    uint32_t high = n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (memcmp(block + (size_t)middle * INDEX_KEY_BYTES, fingerprint, INDEX_FINGERPRINT_LEN) <
            0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

int index_run_find(struct index_run *run, const uint8_t fingerprint[16], index_visit_fn *fn,
                   void *ctx)
{
    uint8_t block[INDEX_BLOCK_BYTES];
    struct index_key key;
    struct err e;

    if (!index_filter_maybe(&run->filter, fingerprint)) {
        return 0;
    }
    for (uint32_t b = index_run_block_of(run, fingerprint);
         b < run->block_count &&
         memcmp(index_run_fence(run, b), fingerprint, INDEX_FINGERPRINT_LEN) <= 0;
         b++) {
        uint32_t n = index_run_keys_in(run, b);
        int result = index_run_read(run, b, 1, block, &e);

        if (result != 0) {
            if (!atomic_exchange(&run->failure_told, true)) {
                index_failed("search", "a run of keys", &e);
            }
            return result;
        }
        for (uint32_t i = index_block_lower_bound(block, n, fingerprint); i < n; i++) {
            index_get_key(block + (size_t)i * INDEX_KEY_BYTES, &key);
            if (memcmp(key.fingerprint, fingerprint, INDEX_FINGERPRINT_LEN) != 0) {
                return 0;
            }
            result = fn(ctx, &key);
            if (result != 0) {
                return result;
            }
        }
    }
    return 0;
}

/* ---- reading through ---- */

int index_cursor_start(struct index_cursor *c, const struct index_run *run, struct err *e)
{
    *c = (struct index_cursor){.run = run, .keys_left = run->key_count};
    c->buffer = malloc((size_t)INDEX_CURSOR_BLOCKS * INDEX_BLOCK_BYTES);
    if (c->buffer == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read a run");
    }
    return 0;
}

/* Reads the next blocks; there are some. */
static int index_cursor_fill(struct index_cursor *c, struct err *e)
{
    uint32_t n = c->run->block_count - c->block_next;
    int result;

    ensure(n > 0);
    n = n < INDEX_CURSOR_BLOCKS ? n : INDEX_CURSOR_BLOCKS;
    result = index_run_read(c->run, c->block_next, n, c->buffer, e);
    if (result != 0) {
        return result;
    }
    c->block_next += n;
    c->block_held = n;
    c->block_at = 0;
    c->key_at = 0;
    return 0;
}

int index_cursor_next(struct index_cursor *c, struct index_key *key, struct err *e)
{
    if (c->keys_left == 0) {
        return 0;
    }
    if (c->block_at == c->block_held) {
        int result = index_cursor_fill(c, e);

        if (result != 0) {
            return result;
        }
    }
    index_get_key(c->buffer + (size_t)c->block_at * INDEX_BLOCK_BYTES +
                      (size_t)c->key_at * INDEX_KEY_BYTES,
                  key);
    c->keys_left--;
    c->key_at++;
    if (c->key_at == INDEX_BLOCK_KEYS) {
        c->key_at = 0;
        c->block_at++;
    }
    return 1;
}

void index_cursor_end(struct index_cursor *c)
{
    free(c->buffer);
    c->buffer = NULL;
}
