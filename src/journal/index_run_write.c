/* index_run_write: writing a run from keys that come in order.
 *
 * Invariants: the header is the first block in the buffer, made before any key is known, since the
 * number of keys is; blocks go to the file in order and only whole; the fences are noted on the
 * way, so that the committed run needs no second reading.
 *
 * Power failure: the file is NAME.tmp until index_file_commit has synced it; see index_file.c.
 *
 * Answers: ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY; ERR_CORRUPT for keys out of order (they come from
 * other runs, so it is the disk's fault). Aborts: a commit with more or fewer keys than announced.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "journal/index_format.h"
#include "journal/index_run.h"
#include "os/os.h"

#define INDEX_WRITER_BLOCKS 64u

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
    run->header_crc = crc32c(0, block, INDEX_BLOCK_CRC_AT);
    index_put_u32(block + INDEX_BLOCK_CRC_AT, run->header_crc);
}

int index_run_writer_start(struct index_run_writer *w, const char *dir,
                           const struct index_run_spec *spec, struct err *e)
{
    char name[INDEX_NAME_MAX];
    int result;

    *w = (struct index_run_writer){.file = {.fd = -1}};
    w->run = index_run_make(spec);
    w->buffer = calloc(INDEX_WRITER_BLOCKS, INDEX_BLOCK_BYTES);
    if (w->run == NULL || w->buffer == NULL) {
        return err_set(e, ERR_NO_MEMORY, "no memory to write a run");
    }
    index_run_name(name, spec->from, spec->to);
    result = index_file_create(&w->file, dir, name, e);
    if (result != 0) {
        return result;
    }
    index_run_header(w->buffer, w->run);
    w->block_held = 1;
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
    return 0;
}

/* Numbers and signs the block that is being filled. */
static int index_run_writer_seal(struct index_run_writer *w, struct err *e)
{
    uint8_t *block = w->buffer + (size_t)w->block_held * INDEX_BLOCK_BYTES;

    ensure(w->key_at > 0);
    ensure(w->block_at < w->run->block_count);
    index_put_u32(block + INDEX_BLOCK_NUMBER_AT, w->block_at);
    index_put_u32(block + INDEX_BLOCK_CRC_AT,
                  crc32c(w->run->header_crc, block, INDEX_BLOCK_CRC_AT));
    w->block_held++;
    w->block_at++;
    w->key_at = 0;
    return w->block_held == INDEX_WRITER_BLOCKS ? index_run_writer_flush(w, e) : 0;
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
        memcpy(w->run->fences + (size_t)w->block_at * INDEX_FINGERPRINT_LEN, key->fingerprint,
               INDEX_FINGERPRINT_LEN);
    }
    index_put_key(block + (size_t)w->key_at * INDEX_KEY_BYTES, key);
    index_filter_add(&w->run->filter, key->fingerprint);
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
