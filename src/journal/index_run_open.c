/* index_run_open: what of a run is read when it is opened: header, fences, filter.
 *
 * Invariants: a run that was opened has the length that its header says, and fences that rise; its
 * keys have not been looked at. They are checked when they are read (index_run.c), so that a start
 * costs a twentieth of the keys' bytes, and not all of them.
 *
 * Power failure: nothing is written here.
 *
 * Answers: ERR_IO, ERR_CORRUPT, ERR_NO_MEMORY. Aborts: a run that is asked for beyond the
 * generations. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "journal/index_format.h"
#include "journal/index_run.h"
#include "os/os.h"

#define INDEX_LOAD_BLOCKS 64u

/* The header's counts are those that the number of keys makes, and the file has as many blocks. */
static bool index_run_sizes_agree(const struct index_run *run, const uint8_t *header,
                                  uint64_t blocks)
{
    return index_get_u32(header + INDEX_RUN_BLOCKS_AT) == run->block_count &&
           index_get_u32(header + INDEX_RUN_FENCES_AT) == run->fence_blocks &&
           index_get_u32(header + INDEX_RUN_FILTERS_AT) == run->filter_blocks &&
           (uint64_t)run->block_count + run->fence_blocks + run->filter_blocks == blocks;
}

/* Reads the header at fd and makes a run of it; size is that of the file. */
static int index_run_read_header(int fd, uint64_t size, const struct index_run_spec *want,
                                 struct index_budget *budget, const char *name,
                                 struct index_run **out, struct err *e)
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
        index_get_u64(block + INDEX_RUN_BYTES_AT) != want->bytes ||
        memcmp(block + INDEX_RUN_FIRST_ID_AT, want->first_id.byte, 16) != 0 ||
        memcmp(block + INDEX_RUN_LAST_ID_AT, want->last_id.byte, 16) != 0) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: not of these generations", name);
    }
    spec.key_count = index_get_u64(block + INDEX_RUN_KEYS_AT);
    blocks = size / INDEX_BLOCK_BYTES - 1;
    /* This bounds the count, and with it what is allocated, by the file's size. */
    if (size % INDEX_BLOCK_BYTES != 0 || spec.key_count > blocks * INDEX_BLOCK_KEYS) {
        return err_set_at(e, ERR_CORRUPT, 0, "%s: not as long as its header says", name);
    }
    *out = index_run_make(&spec, budget);
    if (*out == NULL) {
        return err_set(e, ERR_NO_MEMORY, "%s: no memory for %llu blocks", name,
                       (unsigned long long)blocks);
    }
    (*out)->header_crc = crc;
    return index_run_sizes_agree(*out, block, blocks)
               ? 0
               : err_set_at(e, ERR_CORRUPT, 0, "%s: not as long as its header says", name);
}

/* The fences of one block: they do not fall, nor below *last. */
static bool index_fences_rise(const uint8_t *fences, uint32_t n, uint8_t last[INDEX_FENCE_BYTES])
{
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *fence = fences + (size_t)i * INDEX_FENCE_BYTES;

        if (memcmp(last, fence, INDEX_FENCE_BYTES) > 0) {
            return false;
        }
        memcpy(last, fence, INDEX_FENCE_BYTES);
    }
    return true;
}

/* Reads all fences: notes the tops, and keeps the fences where there is memory for them. */
static int index_run_load_fences(struct index_run *run, const char *name, struct err *e)
{
    uint8_t last[INDEX_FENCE_BYTES] = {0};
    uint8_t block[INDEX_BLOCK_BYTES];

    for (uint32_t i = 0; i < run->fence_blocks; i++) {
        uint32_t n = run->block_count - i * INDEX_FENCES_IN_BLOCK;
        int result = index_run_read(run, run->block_count + i, 1, block, e);

        if (result != 0) {
            return result;
        }
        n = n < INDEX_FENCES_IN_BLOCK ? n : INDEX_FENCES_IN_BLOCK;
        if (!index_fences_rise(block, n, last)) {
            return err_set(e, ERR_CORRUPT, "%s: fences are out of place", name);
        }
        memcpy(run->tops + (size_t)i * INDEX_FENCE_BYTES, block, INDEX_FENCE_BYTES);
        if (run->fences != NULL) {
            memcpy(run->fences + (size_t)i * INDEX_FENCES_IN_BLOCK * INDEX_FENCE_BYTES, block,
                   (size_t)n * INDEX_FENCE_BYTES);
        }
    }
    return 0;
}

/* Reads the filter through `blocks`, which has room for INDEX_LOAD_BLOCKS. */
static int index_run_read_filter(struct index_run *run, uint8_t *blocks, struct err *e)
{
    uint32_t first = run->block_count + run->fence_blocks;

    for (uint32_t at = 0; at < run->filter_blocks; at += INDEX_LOAD_BLOCKS) {
        uint32_t n = run->filter_blocks - at;
        int result;

        n = n < INDEX_LOAD_BLOCKS ? n : INDEX_LOAD_BLOCKS;
        result = index_run_read(run, first + at, n, blocks, e);
        if (result != 0) {
            return result;
        }
        for (uint32_t i = 0; i < n; i++) {
            memcpy(run->filter + ((size_t)at + i) * INDEX_FILTER_BYTES,
                   blocks + (size_t)i * INDEX_BLOCK_BYTES, INDEX_FILTER_BYTES);
        }
    }
    return 0;
}

/* Reads the filter, where there is memory for it. */
static int index_run_load_filter(struct index_run *run, struct err *e)
{
    uint8_t *blocks;
    int result;

    if (run->filter == NULL) {
        return 0;
    }
    blocks = malloc((size_t)INDEX_LOAD_BLOCKS * INDEX_BLOCK_BYTES);
    if (blocks == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to read a filter");
    }
    result = index_run_read_filter(run, blocks, e);
    free(blocks);
    return result;
}

int index_run_open(const char *dir, uint32_t from, uint32_t to,
                   const struct index_generation *closed, uint32_t count,
                   struct index_budget *budget, struct index_run **out, struct err *e)
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
    for (uint32_t i = from; i <= to; i++) {
        want.bytes += closed[i].bytes;
    }
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
    result = index_run_read_header(fd, st.size, &want, budget, name, &run, e);
    if (result != 0) {
        goto out;
    }
    run->fd = fd;
    fd = -1;
    result = index_run_load_fences(run, name, e);
    if (result == 0) {
        result = index_run_load_filter(run, e);
    }
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
