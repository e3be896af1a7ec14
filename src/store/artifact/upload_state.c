/* ID.state: the offset up to which an upload is durable, with the hash of those bytes, so that a
 * restart goes on without reading them again.
 *
 * Format: two slots of 4096 bytes, little-endian, written in turn (sequence modulo 2):
 *
 *     0   8 bytes "TMUPLST1"          32  32 bytes the upload's id
 *     8   u64 sequence, from 1        64  16 bytes the library's version, NUL-padded
 *    16   u64 offset                  80  1912 bytes the hash's state
 *    24   u32 flags (1: several)    4092  u32 CRC32C of the 4092 bytes before it
 *
 * Empty, or a first save that was cut (one slot of zeros, the other bad): offset 0. The newest good
 * slot counts; where the newest is bad the other does, whose offset is lower and durable as well.
 * Both bad: the state was lost, as if the file were not there; the bytes are read again.
 *
 * Invariant: a slot is written only after the bytes below its offset were synced, and never over
 * the newest good one. Its offset is below the declared size: of a complete upload the bytes prove
 * themselves.
 *
 * Power failure: the slot being written is old, new or torn; the other one is good. A save that
 * FAILED may be on the device all the same, now or later. Its bytes were synced, so that either
 * slot says something true as long as none of them goes: after such a failure the upload takes no
 * byte and gives none up, until an open has read from the device which of the two it is.
 *
 * Loading syncs the file and drops its cache first: what a killed process wrote and did not sync,
 * or failed to sync, must not be believed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/ensure.h"
#include "base/hash.h"
#include "os/os.h"
#include "store/artifact/upload_internal.h"

#define SLOT_BYTES   4096u
#define SLOT_COUNT   2u
#define STATE_BYTES  (SLOT_COUNT * SLOT_BYTES)
#define AT_SEQUENCE  8u
#define AT_OFFSET    16u
#define AT_FLAGS     24u
#define AT_ID        32u
#define AT_LIBRARY   64u
#define LIBRARY_SIZE 16u
#define AT_HASH      80u
#define AT_CRC       (SLOT_BYTES - 4u)
#define FLAG_SEVERAL 1u

static const char slot_magic[8] = {'T', 'M', 'U', 'P', 'L', 'S', 'T', '1'};

static_assert(AT_HASH + BLAKE3_STATE_BYTES <= AT_CRC, "a slot holds the hash's state");
static_assert(AT_ID + UPLOAD_ID_LEN == AT_LIBRARY, "the fields lie close");

static void put_le(unsigned char *to, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(v >> (8 * i));
    }
}

static uint64_t get_le(const unsigned char *from, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = bytes; i > 0; i--) {
        v = v << 8 | from[i - 1];
    }
    return v;
}

static void library_name(unsigned char out[LIBRARY_SIZE])
{
    size_t n = strlen(blake3_library());
    memset(out, 0, LIBRARY_SIZE);
    memcpy(out, blake3_library(), n < LIBRARY_SIZE ? n : LIBRARY_SIZE);
}

static void slot_encode(const struct upload *u, unsigned char slot[SLOT_BYTES], uint64_t sequence,
                        uint64_t offset, const struct blake3 *hash)
{
    ensure(sequence > 0);
    ensure(offset < u->info.size);
    memset(slot, 0, SLOT_BYTES);
    memcpy(slot, slot_magic, sizeof slot_magic);
    put_le(slot + AT_SEQUENCE, sequence, 8);
    put_le(slot + AT_OFFSET, offset, 8);
    put_le(slot + AT_FLAGS, u->reread ? FLAG_SEVERAL : 0, 4);
    memcpy(slot + AT_ID, u->info.id, UPLOAD_ID_LEN);
    library_name(slot + AT_LIBRARY);
    memcpy(slot + AT_HASH, hash->state, BLAKE3_STATE_BYTES);
    put_le(slot + AT_CRC, crc32c(0, slot, AT_CRC), 4);
}

/* True when the slot is a good one of this upload, and belongs where it is. */
static bool slot_decode(const struct upload *u, const unsigned char slot[SLOT_BYTES],
                        unsigned index, struct upload_saved *out)
{
    unsigned char library[LIBRARY_SIZE];
    if (memcmp(slot, slot_magic, sizeof slot_magic) != 0 ||
        get_le(slot + AT_CRC, 4) != crc32c(0, slot, AT_CRC) ||
        memcmp(slot + AT_ID, u->info.id, UPLOAD_ID_LEN) != 0) {
        return false;
    }
    out->kind = UPLOAD_SAVED_SLOT;
    out->sequence = get_le(slot + AT_SEQUENCE, 8);
    out->offset = get_le(slot + AT_OFFSET, 8);
    out->several = (get_le(slot + AT_FLAGS, 4) & FLAG_SEVERAL) != 0;
    library_name(library);
    out->hash_usable = memcmp(library, slot + AT_LIBRARY, LIBRARY_SIZE) == 0;
    memcpy(out->hash.state, slot + AT_HASH, BLAKE3_STATE_BYTES);
    return out->sequence > 0 && out->sequence % SLOT_COUNT == index && out->offset < u->info.size;
}

static bool all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return true;
}

static void slots_choose(const struct upload *u, const unsigned char *slots,
                         struct upload_saved *out)
{
    struct upload_saved seen[SLOT_COUNT];
    bool good[SLOT_COUNT];
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        good[i] = slot_decode(u, slots + i * SLOT_BYTES, i, &seen[i]);
    }
    if (good[0] && (!good[1] || seen[0].sequence > seen[1].sequence)) {
        *out = seen[0];
    } else if (good[1]) {
        *out = seen[1];
    } else {
        bool first = all_zero(slots, SLOT_BYTES) || all_zero(slots + SLOT_BYTES, SLOT_BYTES);
        out->kind = first ? UPLOAD_SAVED_EMPTY : UPLOAD_SAVED_LOST;
    }
}

static int read_slots(struct upload *u, const char *path, unsigned char slots[STATE_BYTES],
                      struct err *e)
{
    int r = os_fsync(u->state_fd);
    if (r == 0) {
        r = os_drop_cache(u->state_fd);
    }
    if (r < 0) {
        return err_os(e, r, "sync", path);
    }
    memset(slots, 0, STATE_BYTES);
    int64_t got = os_pread_full(u->state_fd, slots, STATE_BYTES, 0);
    return got < 0 ? err_os(e, (int)got, "read", path) : 0;
}

int upload_state_load(struct upload *u, struct upload_saved *out, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct os_stat st;
    unsigned char slots[STATE_BYTES];
    memset(out, 0, sizeof *out);
    upload_path(u->us, path, u->info.id, ".state");
    int r = os_stat(path, &st);
    if (r == -ENOENT) {
        out->kind = UPLOAD_SAVED_NONE;
        return 0;
    }
    if (r < 0) {
        return err_os(e, r, "stat", path);
    }
    if (st.size == 0) {
        /* Offset 0, whatever the device says: there is nothing to disbelieve. */
        out->kind = UPLOAD_SAVED_EMPTY;
        return 0;
    }
    u->state_fd = os_open(path, O_RDWR, 0);
    if (u->state_fd < 0) {
        return err_os(e, u->state_fd, "open", path);
    }
    r = read_slots(u, path, slots, e);
    if (r < 0) {
        return r;
    }
    slots_choose(u, slots, out);
    u->state_sequence = out->sequence;
    return 0;
}

int upload_state_make(struct upload *u, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    if (u->state_fd >= 0) {
        return 0;
    }
    upload_path(u->us, path, u->info.id, ".state");
    u->state_fd = os_open(path, O_RDWR | O_CREAT, UPLOAD_FILE_MODE);
    return u->state_fd < 0 ? err_os(e, u->state_fd, "create", path) : 0;
}

/* The slot with this sequence; the first one brings the other's place along, empty, so that no
 * later save needs room on the disk. */
static int slot_sync(struct upload *u, const char *path, uint64_t sequence, uint64_t offset,
                     const struct blake3 *hash, struct err *e)
{
    unsigned char slots[STATE_BYTES] = {0};
    unsigned index = (unsigned)(sequence % SLOT_COUNT);
    bool first = u->state_sequence == 0;
    slot_encode(u, slots + index * SLOT_BYTES, sequence, offset, hash);
    int r = first ? os_pwrite_all(u->state_fd, slots, STATE_BYTES, 0, NULL)
                  : os_pwrite_all(u->state_fd, slots + index * SLOT_BYTES, SLOT_BYTES,
                                  (uint64_t)index * SLOT_BYTES, NULL);
    if (r < 0) {
        return err_os(e, r, "write", path);
    }
    r = os_fdatasync(u->state_fd);
    if (r < 0) {
        return err_os(e, r, "sync", path);
    }
    u->state_sequence = sequence;
    return 0;
}

int upload_state_sync(struct upload *u, uint64_t offset, const struct blake3 *hash, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    ensure(u->state_fd >= 0); /* upload_names_sync made it */
    upload_path(u->us, path, u->info.id, ".state");
    return slot_sync(u, path, u->state_sequence + 1, offset, hash, e);
}

int upload_state_commit_new(struct upload *u, uint64_t offset, const struct blake3 *hash,
                            struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    char temp[UPLOADS_PATH_MAX];
    unsigned char slots[STATE_BYTES] = {0};
    upload_path(u->us, path, u->info.id, ".state");
    upload_temp_path(u->us, temp, ".state-", u->info.id);
    if (u->state_fd >= 0) {
        (void)os_close(u->state_fd); /* nothing was written through it */
        u->state_fd = -1;
    }
    slot_encode(u, slots + SLOT_BYTES, 1, offset, hash);
    /* Renamed into place whole: an empty file under that name would say 0. */
    int r = upload_commit_file(temp, path, u->us->uploads, slice_of(slots, sizeof slots), e);
    if (r < 0) {
        return r;
    }
    u->state_sequence = 1;
    u->state_fd = os_open(path, O_RDWR, 0);
    return u->state_fd < 0 ? err_os(e, u->state_fd, "open", path) : 0;
}

/* ---- looking, without a writer ---- */

int upload_state_peek(const char *path, const struct upload_info *info, struct upload_saved *out,
                      struct err *e)
{
    unsigned char slots[STATE_BYTES] = {0};
    struct upload u = {.info = *info};
    memset(out, 0, sizeof *out);
    int fd = os_open(path, O_RDONLY, 0);
    if (fd == -ENOENT) {
        out->kind = UPLOAD_SAVED_NONE;
        return 0;
    }
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    int64_t got = os_pread_full(fd, slots, STATE_BYTES, 0);
    (void)os_close(fd); /* nothing was written through it */
    if (got < 0) {
        return err_os(e, (int)got, "read", path);
    }
    if (got == 0) {
        out->kind = UPLOAD_SAVED_EMPTY;
    } else {
        slots_choose(&u, slots, out);
    }
    return 0;
}

/* Beside a writer the newest slot may be in the cache and not on the device: it counts when a sync
 * of the file returned and, read from the device, it is the same. Otherwise the lower one does. */
static int peek_synced(const char *path, const struct upload_info *info, struct upload_saved *out,
                       struct err *e)
{
    struct upload_saved before;
    int r = upload_state_peek(path, info, &before, e);
    if (before.kind == UPLOAD_SAVED_NONE || before.kind == UPLOAD_SAVED_EMPTY) {
        *out = before;
        return r; /* what failed is NONE too */
    }
    int fd = os_open(path, O_RDONLY, 0);
    if (fd < 0) {
        return err_os(e, fd, "open", path);
    }
    r = os_fsync(fd);
    if (r == 0) {
        r = os_drop_cache(fd);
    }
    (void)os_close(fd); /* nothing was written through it */
    if (r < 0) {
        return err_os(e, r, "sync", path);
    }
    r = upload_state_peek(path, info, out, e);
    if (before.kind == UPLOAD_SAVED_SLOT && out->offset > before.offset) {
        *out = before;
    }
    return r;
}

int upload_synced_offset(struct uploads *us, struct slice id, uint64_t *offset, struct err *e)
{
    char path[UPLOADS_PATH_MAX];
    struct upload_info info;
    struct upload_saved saved;
    *offset = 0;
    int r = upload_load(us, id, &info, e);
    if (r != 0) {
        return r;
    }
    upload_path(us, path, info.id, ".state");
    r = peek_synced(path, &info, &saved, e);
    if (r < 0) {
        return r;
    }
    if (saved.kind == UPLOAD_SAVED_LOST) {
        return err_set(e, ERR_CORRUPT, "%s: neither slot can be read", path);
    }
    *offset = saved.offset; /* 0 without a good slot */
    return 0;
}
