/* index_run: searching and reading through runs (index_format.h has the layout).
 *
 * Invariants: every block is checked by its CRC32C each time that it is read, and the CRC32C is
 * bound to the run's header and the block's number. So a lookup ends in what the file said when it
 * was written, or in an error; a bad block of keys or fences never reads as "not found". A bad
 * block of the filter reads as "maybe".
 *
 * A search: the fences (in memory, else a top and one block of the disk) give the one block of
 * keys where the fingerprint can be; the filter block of its 21 blocks rules out most absent ones;
 * then the block is read. Fingerprints are spread evenly, so the place of a fence is guessed and
 * found nearby: a plain halving would miss the processor's caches a dozen times in each run.
 *
 * Power failure: nothing is written here.
 *
 * Answers: ERR_IO, ERR_CORRUPT, ERR_NO_MEMORY. Stops: none. Aborts: references that do not
 * balance. */
#include "journal/index_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "journal/index_filter.h"
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

static uint64_t index_fences_bytes(const struct index_run *run)
{
    return (uint64_t)run->block_count * INDEX_FENCE_BYTES;
}

static uint64_t index_filter_bytes(const struct index_run *run)
{
    return (uint64_t)run->filter_blocks * INDEX_FILTER_BYTES;
}

/* Zeroed memory out of the budget, or NULL. */
static uint8_t *index_run_grant(struct index_budget *budget, uint64_t bytes)
{
    uint8_t *p;

    if (bytes == 0 || !index_budget_take(budget, bytes)) {
        return NULL;
    }
    p = calloc(bytes, 1);
    if (p == NULL) {
        index_budget_give(budget, bytes);
    }
    return p;
}

static void index_run_take_back(struct index_budget *budget, uint8_t *p, uint64_t bytes)
{
    if (p != NULL) {
        free(p);
        index_budget_give(budget, bytes);
    }
}

struct index_run *index_run_make(const struct index_run_spec *spec, struct index_budget *budget)
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
    run->bytes = spec->bytes;
    run->key_count = spec->key_count;
    run->block_count = index_run_blocks_for(spec->key_count);
    atomic_init(&run->refs, 1);
    atomic_init(&run->corrupt, false);
    atomic_init(&run->condemned, false);
    atomic_init(&run->gone, false);
    atomic_init(&run->failure_told, false);
    run->fence_blocks = (run->block_count + INDEX_FENCES_IN_BLOCK - 1) / INDEX_FENCES_IN_BLOCK;
    run->filter_blocks = (run->block_count + INDEX_FILTER_KEY_BLOCKS - 1) / INDEX_FILTER_KEY_BLOCKS;
    run->budget = budget;
    /* One more, so that an empty run has an address too. */
    run->tops = calloc((size_t)run->fence_blocks + 1, INDEX_FENCE_BYTES);
    if (run->tops == NULL) {
        free(run);
        return NULL;
    }
    run->fences = index_run_grant(budget, index_fences_bytes(run));
    run->filter = index_run_grant(budget, index_filter_bytes(run));
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
        index_run_take_back(run->budget, run->fences, index_fences_bytes(run));
        index_run_take_back(run->budget, run->filter, index_filter_bytes(run));
        free(run->tops);
        free(run);
    }
}

int index_run_read(struct index_run *run, uint32_t first, uint32_t n, uint8_t *out, struct err *e)
{
    size_t want = (size_t)n * INDEX_BLOCK_BYTES;
    uint64_t offset = ((uint64_t)first + 1) * INDEX_BLOCK_BYTES;
    int64_t got = os_pread_full(run->fd, out, want, offset);
    char name[INDEX_NAME_MAX];

    ensure((uint64_t)first + n <=
           (uint64_t)run->block_count + run->fence_blocks + run->filter_blocks);
    index_run_name(name, run->from, run->to);
    if (got < 0) {
        (void)err_os(e, (int)got, "read", name);
        return ERR_IO; /* whatever the cause: the caller learns that nothing may be concluded */
    }
    if ((size_t)got != want) {
        return err_set_at(e, ERR_CORRUPT, offset + (uint64_t)got, "%s: ends early", name);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!index_block_holds(out + (size_t)i * INDEX_BLOCK_BYTES, first + i, run->header_crc)) {
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

/* ---- searching ---- */

/* One search: blocks of fences and filter that were read for it. */
struct index_search {
    struct index_run *run;
    const uint8_t *fingerprint;
    bool fence_held;
    uint32_t fence_block; /* that is in `fences` */
    uint8_t *fences;      /* a block of the caller's */
};

/* The first of n fingerprints at p, `stride` apart, that is not below the one given, by halving. */
static uint32_t index_lower_bound(const uint8_t *p, uint32_t n, size_t stride,
                                  const uint8_t fingerprint[16])
{
    uint32_t low = 0;
    uint32_t high = n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (memcmp(p + middle * stride, fingerprint, INDEX_FINGERPRINT_LEN) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The same among n fingerprints (at least 1) that are spread evenly: from where it should be, ever
 * larger steps, then halving. */
static uint32_t index_lower_bound_even(const uint8_t *p, uint32_t n, const uint8_t fingerprint[16])
{
    uint64_t place = (uint64_t)fingerprint[0] << 24 | (uint64_t)fingerprint[1] << 16 |
                     (uint64_t)fingerprint[2] << 8 | fingerprint[3];
    uint32_t guess = (uint32_t)(place * n >> 32);
    uint32_t low = 0;
    uint32_t high = n;

    if (memcmp(p + (size_t)guess * INDEX_FENCE_BYTES, fingerprint, INDEX_FENCE_BYTES) < 0) {
        for (uint32_t step = 8;; step *= 2) {
            low = guess + 1;
            if (n - guess <= step) {
                break;
            }
            guess += step;
            if (memcmp(p + (size_t)guess * INDEX_FENCE_BYTES, fingerprint, INDEX_FENCE_BYTES) >=
                0) {
                high = guess;
                break;
            }
        }
    } else {
        for (uint32_t step = 8;; step *= 2) {
            high = guess;
            if (guess < step) {
                break;
            }
            guess -= step;
            if (memcmp(p + (size_t)guess * INDEX_FENCE_BYTES, fingerprint, INDEX_FENCE_BYTES) < 0) {
                low = guess + 1;
                break;
            }
        }
    }
    return low + index_lower_bound(p + (size_t)low * INDEX_FENCE_BYTES, high - low,
                                   INDEX_FENCE_BYTES, fingerprint);
}

/* Fence blocks are read one at a time, and the last is kept for the neighbour's sake. A search ends
 * where one cannot be read. */
static int index_search_fences(struct index_search *s, uint32_t fence_block, struct err *e)
{
    if (s->fence_held && s->fence_block == fence_block) {
        return 0;
    }
    s->fence_block = fence_block;
    s->fence_held = true;
    return index_run_read(s->run, s->run->block_count + fence_block, 1, s->fences, e);
}

/* *reaches: the first key of the block is not above the fingerprint. */
static int index_search_reaches(struct index_search *s, uint32_t block, bool *reaches,
                                struct err *e)
{
    const uint8_t *fence;

    if (s->run->fences != NULL) {
        fence = s->run->fences + (size_t)block * INDEX_FENCE_BYTES;
    } else {
        int result = index_search_fences(s, block / INDEX_FENCES_IN_BLOCK, e);

        if (result != 0) {
            return result;
        }
        fence = s->fences + (size_t)(block % INDEX_FENCES_IN_BLOCK) * INDEX_FENCE_BYTES;
    }
    *reaches = memcmp(fence, s->fingerprint, INDEX_FINGERPRINT_LEN) <= 0;
    return 0;
}

/* The first block that may hold the fingerprint: the one before the first fence that is not below
 * it, since keys equal to a fence may begin in the block before. The run has blocks. */
static int index_search_begin(struct index_search *s, uint32_t *block, struct err *e)
{
    const struct index_run *run = s->run;
    uint32_t top;
    uint32_t n;
    int result;

    if (run->fences != NULL) {
        n = index_lower_bound_even(run->fences, run->block_count, s->fingerprint);
        *block = n > 0 ? n - 1 : 0;
        return 0;
    }
    top = index_lower_bound_even(run->tops, run->fence_blocks, s->fingerprint);
    *block = 0;
    if (top == 0) {
        return 0;
    }
    top--;
    result = index_search_fences(s, top, e);
    if (result != 0) {
        return result;
    }
    n = run->block_count - top * INDEX_FENCES_IN_BLOCK;
    n = n < INDEX_FENCES_IN_BLOCK ? n : INDEX_FENCES_IN_BLOCK;
    n = index_lower_bound(s->fences, n, INDEX_FENCE_BYTES, s->fingerprint);
    *block = top * INDEX_FENCES_IN_BLOCK + (n > 0 ? n - 1 : 0);
    return 0;
}

/* Logs the first failure of a run. */
static void index_run_told(struct index_run *run, const struct err *e)
{
    if (!atomic_exchange(&run->failure_told, true)) {
        index_failed("search", "a run of keys", e);
    }
}

/* A block of keys or fences could not be had: the lookup fails. */
static void index_run_failed(struct index_run *run, int result, const struct err *e)
{
    if (result == ERR_CORRUPT) {
        atomic_store(&run->corrupt, true);
    }
    index_run_told(run, e);
}

/* False: no key of the 21 blocks around this one has the fingerprint. */
static bool index_search_maybe(struct index_search *s, uint32_t block)
{
    struct index_run *run = s->run;
    uint32_t number = block / INDEX_FILTER_KEY_BLOCKS;
    uint8_t lines[INDEX_BLOCK_BYTES];
    struct err e;

    if (run->filter != NULL) {
        return index_filter_maybe(run->filter + (size_t)number * INDEX_FILTER_BYTES,
                                  INDEX_FILTER_LINES, s->fingerprint);
    }
    if (index_run_read(run, run->block_count + run->fence_blocks + number, 1, lines, &e) != 0) {
        index_run_told(run, &e);
        return true;
    }
    return index_filter_maybe(lines, INDEX_FILTER_LINES, s->fingerprint);
}

/* Visits the keys of one block; *more: the next block may have some too. */
static int index_search_block(struct index_search *s, uint32_t block, index_visit_fn *fn, void *ctx,
                              bool *more, struct err *e)
{
    uint32_t n = index_run_keys_in(s->run, block);
    uint8_t bytes[INDEX_BLOCK_BYTES];
    struct index_key key;
    int result = index_run_read(s->run, block, 1, bytes, e);

    *more = false;
    if (result != 0) {
        index_run_failed(s->run, result, e);
        return result;
    }
    for (uint32_t i = index_lower_bound(bytes, n, INDEX_KEY_BYTES, s->fingerprint); i < n; i++) {
        index_get_key(bytes + (size_t)i * INDEX_KEY_BYTES, &key);
        if (memcmp(key.fingerprint, s->fingerprint, INDEX_FINGERPRINT_LEN) != 0) {
            return 0;
        }
        result = fn(ctx, &key);
        if (result != 0) {
            return result;
        }
    }
    *more = true;
    return 0;
}

int index_run_find(struct index_run *run, const uint8_t fingerprint[16], index_visit_fn *fn,
                   void *ctx)
{
    uint8_t fences[INDEX_BLOCK_BYTES];
    struct index_search s = {.run = run, .fingerprint = fingerprint, .fences = fences};
    uint32_t block = 0;
    bool more = run->block_count > 0;
    struct err e;
    int result = more ? index_search_begin(&s, &block, &e) : 0;

    while (result == 0 && more && block < run->block_count) {
        result = index_search_reaches(&s, block, &more, &e);
        if (result != 0 || !more) {
            break;
        }
        if (!index_search_maybe(&s, block)) {
            block = (block / INDEX_FILTER_KEY_BLOCKS + 1) * INDEX_FILTER_KEY_BLOCKS;
            continue;
        }
        result = index_search_block(&s, block, fn, ctx, &more, &e);
        if (result != 0) {
            return result;
        }
        block++;
    }
    if (result != 0) {
        index_run_failed(run, result, &e);
    }
    return result;
}

/* ---- reading through ---- */

int index_cursor_start(struct index_cursor *c, struct index_run *run, struct err *e)
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
        if (result == ERR_CORRUPT) {
            atomic_store(&c->run->corrupt, true);
        }
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
