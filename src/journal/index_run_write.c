/* index_run_write: writing a run from keys that come in order.
 *
 * Invariants: the header is the first block in the buffer, made before any key is known, since the
 * number of keys is, and with it the place of every block. Blocks of keys go to the file in order;
 * a block of fences or of the filter goes to its place behind them when the keys that it speaks of
 * have come. So nothing here grows with the number of keys but what the budget grants, which is
 * filled on the way: the committed run needs no second reading.
 *
 * Write-back is begun behind each piece and awaited 4 MiB later: the sync at the end of a large
 * merge would else hold up the syncs of the journal, which share the disk.
 *
 * Power failure: the file is NAME.tmp until index_file_commit has synced it; see index_file.c.
 *
 * Answers: ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY; ERR_CORRUPT for keys out of order (they come from
 * other runs, so it is the disk's fault). Aborts: a commit with more or fewer keys than announced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "journal/index_filter.h"
#include "journal/index_format.h"
#include "journal/index_run.h"
#include "os/os.h"

#define INDEX_WRITER_BLOCKS 64u
#define INDEX_WRITER_BEHIND (UINT64_C(4) << 20)

static void index_run_header(uint8_t *block, struct index_run *run)
{
    memset(block, 0, INDEX_BLOCK_BYTES);
    memcpy(block, INDEX_RUN_MAGIC, INDEX_MAGIC_LEN);
    index_put_u32(block + INDEX_RUN_VERSION_AT, INDEX_VERSION);
    index_put_u32(block + INDEX_RUN_FROM_AT, run->from);
    index_put_u32(block + INDEX_RUN_TO_AT, run->to);
    index_put_u32(block + INDEX_RUN_BLOCKS_AT, run->block_count);
    index_put_u64(block + INDEX_RUN_KEYS_AT, run->key_count);
    memcpy(block + INDEX_RUN_FIRST_ID_AT, run->first_id.byte, 16);
    memcpy(block + INDEX_RUN_LAST_ID_AT, run->last_id.byte, 16);
    index_put_u64(block + INDEX_RUN_BYTES_AT, run->bytes);
    index_put_u32(block + INDEX_RUN_FENCES_AT, run->fence_blocks);
    index_put_u32(block + INDEX_RUN_FILTERS_AT, run->filter_blocks);
    run->header_crc = crc32c(0, block, INDEX_BLOCK_CRC_AT);
    index_put_u32(block + INDEX_BLOCK_CRC_AT, run->header_crc);
}

int index_run_writer_start(struct index_run_writer *w, const char *dir,
                           const struct index_run_spec *spec, struct index_budget *budget,
                           struct err *e)
{
    char name[INDEX_NAME_MAX];
    int result;

    *w = (struct index_run_writer){.file = {.fd = -1}};
    w->run = index_run_make(spec, budget);
    w->buffer = calloc(INDEX_WRITER_BLOCKS + 2, INDEX_BLOCK_BYTES);
    if (w->run == NULL || w->buffer == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to write a run");
    }
    index_run_name(name, spec->from, spec->to);
    result = index_file_create(&w->file, dir, name, e);
    if (result != 0) {
        return result;
    }
    w->fence = w->buffer + (size_t)INDEX_WRITER_BLOCKS * INDEX_BLOCK_BYTES;
    w->filter = w->fence + INDEX_BLOCK_BYTES;
    index_run_header(w->buffer, w->run);
    w->block_held = 1;
    return 0;
}

/* Dirty pages stay few. What write-back lost it says once: the sync would not tell it again. */
static int index_run_writer_behind(struct index_run_writer *w, struct err *e)
{
    uint64_t ready = w->file_size / INDEX_WRITER_BEHIND * INDEX_WRITER_BEHIND;
    int result = 0;

    if (ready > w->written_back) {
        result = os_write_back(w->file.fd, w->written_back, ready - w->written_back, false);
        if (result == 0 && w->written_back >= INDEX_WRITER_BEHIND) {
            result = os_write_back(w->file.fd, w->written_back - INDEX_WRITER_BEHIND,
                                   INDEX_WRITER_BEHIND, true);
        }
        w->written_back = ready;
    }
    if (result == -EIO || result == -ENOSPC || result == -EDQUOT) {
        return err_os(e, result, "write", w->file.name);
    }
    return 0;
}

/* Writes the full blocks of the buffer. */
static int index_run_writer_flush(struct index_run_writer *w, struct err *e)
{
    size_t n = (size_t)w->block_held * INDEX_BLOCK_BYTES;
    int result = os_pwrite_all(w->file.fd, w->buffer, n, w->file_size, NULL);

    if (result != 0) {
        return err_os(e, result, "write", w->file.name);
    }
    w->file_size += n;
    w->block_held = 0;
    memset(w->buffer, 0, n);
    return index_run_writer_behind(w, e);
}

/* Writes a filled block of fences or of the filter to its place, and empties it. */
static int index_run_writer_place(struct index_run_writer *w, uint8_t *block, uint32_t number,
                                  struct err *e)
{
    uint64_t at = ((uint64_t)number + 1) * INDEX_BLOCK_BYTES;
    int result;

    index_sign_block(block, number, w->run->header_crc);
    result = os_pwrite_all(w->file.fd, block, INDEX_BLOCK_BYTES, at, NULL);
    if (result != 0) {
        return err_os(e, result, "write", w->file.name);
    }
    memset(block, 0, INDEX_BLOCK_BYTES);
    return 0;
}

/* The fences and the part of the filter that end with the block of keys just signed. */
static int index_run_writer_side(struct index_run_writer *w, struct err *e)
{
    const struct index_run *run = w->run;
    bool last = w->block_at == run->block_count;
    int result = 0;

    if (last || w->block_at % INDEX_FENCES_IN_BLOCK == 0) {
        result = index_run_writer_place(
            w, w->fence, run->block_count + (w->block_at - 1) / INDEX_FENCES_IN_BLOCK, e);
    }
    if (result == 0 && (last || w->block_at % INDEX_FILTER_KEY_BLOCKS == 0)) {
        uint32_t number = (w->block_at - 1) / INDEX_FILTER_KEY_BLOCKS;

        if (run->filter != NULL) {
            memcpy(run->filter + (size_t)number * INDEX_FILTER_BYTES, w->filter,
                   INDEX_FILTER_BYTES);
        }
        result =
            index_run_writer_place(w, w->filter, run->block_count + run->fence_blocks + number, e);
    }
    return result;
}

/* Numbers and signs the block that is being filled. */
static int index_run_writer_seal(struct index_run_writer *w, struct err *e)
{
    uint8_t *block = w->buffer + (size_t)w->block_held * INDEX_BLOCK_BYTES;

    ensure(w->key_at > 0);
    ensure(w->block_at < w->run->block_count);
    index_sign_block(block, w->block_at, w->run->header_crc);
    w->block_held++;
    w->block_at++;
    w->key_at = 0;
    if (w->block_held == INDEX_WRITER_BLOCKS) {
        int result = index_run_writer_flush(w, e);

        if (result != 0) {
            return result;
        }
    }
    return index_run_writer_side(w, e);
}

/* A block of keys begins with this one. */
static void index_run_writer_note_fence(struct index_run_writer *w, const uint8_t fingerprint[16])
{
    struct index_run *run = w->run;
    uint32_t in_block = w->block_at % INDEX_FENCES_IN_BLOCK;

    memcpy(w->fence + (size_t)in_block * INDEX_FENCE_BYTES, fingerprint, INDEX_FENCE_BYTES);
    if (in_block == 0) {
        memcpy(run->tops + (size_t)(w->block_at / INDEX_FENCES_IN_BLOCK) * INDEX_FENCE_BYTES,
               fingerprint, INDEX_FENCE_BYTES);
    }
    if (run->fences != NULL) {
        memcpy(run->fences + (size_t)w->block_at * INDEX_FENCE_BYTES, fingerprint,
               INDEX_FENCE_BYTES);
    }
}

int index_run_writer_add(struct index_run_writer *w, const struct index_key *key, struct err *e)
{
    uint8_t *block = w->buffer + (size_t)w->block_held * INDEX_BLOCK_BYTES;

    ensure(w->file.fd >= 0);
    ensure(w->keys_added < w->run->key_count);
    if ((w->keys_added > 0 && index_key_cmp(&w->last, key) >= 0) ||
        key->generation < w->run->from || key->generation > w->run->to) {
        return err_set(e, ERR_CORRUPT, "%s: key %llu is out of place", w->file.name,
                       (unsigned long long)w->keys_added);
    }
    if (w->key_at == 0) {
        index_run_writer_note_fence(w, key->fingerprint);
    }
    index_put_key(block + (size_t)w->key_at * INDEX_KEY_BYTES, key);
    index_filter_add(w->filter, INDEX_FILTER_LINES, key->fingerprint);
    w->last = *key;
    w->keys_added++;
    w->key_at++;
    return w->key_at == INDEX_BLOCK_KEYS ? index_run_writer_seal(w, e) : 0;
}

int index_run_writer_commit(struct index_run_writer *w, struct index_run **out, struct err *e)
{
    int result = 0;

    ensure(w->keys_added == w->run->key_count);
    if (w->key_at > 0) {
        result = index_run_writer_seal(w, e);
    }
    if (result == 0 && w->block_held > 0) {
        result = index_run_writer_flush(w, e);
    }
    if (result != 0) {
        return result;
    }
    ensure(w->block_at == w->run->block_count);
    ensure(w->file_size == ((uint64_t)w->run->block_count + 1) * INDEX_BLOCK_BYTES);
    result = index_file_commit(&w->file, e);
    if (result != 0) {
        return result;
    }
    w->run->fd = w->file.fd;
    w->file.fd = -1;
    *out = w->run;
    w->run = NULL;
    return 0;
}

void index_run_writer_end(struct index_run_writer *w)
{
    index_file_discard(&w->file);
    index_run_release(w->run);
    free(w->buffer);
    w->run = NULL;
    w->buffer = NULL;
}
