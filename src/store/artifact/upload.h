/* upload: the files of the artifact door: bytes on their way in, and the receipts of those that are
 * in (spec/artifacts.md: decisions, sections 3 and 5; ARCHITECTURE section 1).
 *
 *   uploads/ID          the bytes; as long as at the last sync, or longer while a writer is on it
 *   uploads/ID.info     what was declared: tusd's JSON form, with a member of our own ("Tallyman")
 *   uploads/ID.state    the synced offset with the saved hash state, two slots in turn; empty: 0;
 *                       of no use once there is a receipt
 *   uploads/ID.gone     refused for good (checksum mismatch, unrecoverable write): the reason, text
 *   receipts/ID.json    the receipt; that it is there is the acceptance
 *   temporary names     receipts/.receipt-ID, uploads/.gone-ID, uploads/.state-ID
 *
 * ID is 16 random bytes as 32 lower-case hex digits; upload_id_ok first, always, before it gets
 * near a path. No database takes part.
 *
 * Promises. upload_create: the names and ID.info are synced when it returns. Synced offset: told to
 * nobody before fdatasync of the bytes has returned and, after that, the saved state is synced; it
 * never goes back. upload_accept: bytes, info and uploads/ are synced, the digest of the stored
 * bytes is the declared one, and only then ID.json is renamed into place and receipts/ is synced;
 * the receipt never changes again. A failed write or sync rolls the upload back to its last synced
 * offset (truncate, the hash saved there, sync); if that fails the upload is gone (410). Being out
 * of space is no such failure: what was written is synced and kept; and where a state cannot be
 * saved, or bytes not be cut for want of space, nothing is touched: the next open settles it.
 *
 * Power failure: the file may be longer than the synced offset, and what is behind that offset may
 * be anything: an open cuts it off, except where it is as long as declared and its BLAKE3, read
 * from the device, is the declared one, which proves it. A lost ID.state (of an upload that has
 * one) costs a re-read.
 *
 * Threads: any; one writer an upload at a time is the caller's care (door/artifact). All calls
 * block. Memory: a struct upload holds no buffer that grows. */
#ifndef STORE_ARTIFACT_UPLOAD_H
#define STORE_ARTIFACT_UPLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/blake3.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define UPLOAD_ID_LEN        32
#define UPLOAD_PROJECT_MAX   128
#define UPLOAD_FILENAME_MAX  1024
#define UPLOAD_METADATA_MAX  8192 /* of Upload-Metadata, as sent */
#define UPLOAD_PIECE_BYTES   (1u << 20)
#define UPLOAD_SYNC_BYTES    (64u << 20)  /* a saved state this often */
#define UPLOAD_STEP_BYTES    (8u << 20)   /* large files are cut in such steps, 10 ms apart */
#define UPLOAD_AHEAD_BYTES   (256u << 20) /* blocks are reserved so far ahead, at most */
#define UPLOAD_AT_ONCE_BYTES (256u << 20) /* more takes seconds to free */
#define RECEIPT_BYTES_MAX    2048
#define UPLOAD_REASON_MAX    400

struct uploads; /* the open folders of one data directory */

struct uploads_options {
    const char *data;   /* borrowed */
    const char *issuer; /* borrowed; at most 512 bytes */
    /* Threads that read back, at a low priority, what was synced of uploads of several requests
     * while their later bytes come; 0: each acceptance reads all of it. */
    unsigned trail_threads;
    uint64_t trail_step_bytes; /* 0: the default; for tests */
    /* Threads that sync beside those of the callers; 0: one sync after the other. */
    unsigned sync_threads;
    uint64_t at_once_bytes; /* 0: UPLOAD_AT_ONCE_BYTES; for tests */
};
/* Makes uploads/ and receipts/ where they are missing (0750), syncs them and the data directory.
 * ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY; ERR_USAGE: the path or the issuer is too long. */
int uploads_open(const struct uploads_options *options, struct uploads **out,
                 struct err *e) MUST_CHECK;
void uploads_close(struct uploads *us); /* NULL is fine; no struct upload may be open */
/* Reads back, here, all that trailing threads would; for those who have none (tests). */
void uploads_trail(struct uploads *us);
/* Any thread: while set, what would read a whole file, or free one step by step, ends early with
 * ERR_NOT_READY. No byte is lost by it: an open or an acceptance is taken up again later. */
void uploads_set_stopping(struct uploads *us, bool stopping);

bool upload_id_ok(struct slice id);

/* What was declared. */
struct upload_info {
    char id[UPLOAD_ID_LEN + 1];
    uint64_t size;
    char project[UPLOAD_PROJECT_MAX + 1];
    char checksum[BLAKE3_HEX_LEN + 1];      /* the declared digest, without "blake3:"; "": none */
    char filename[UPLOAD_FILENAME_MAX + 1]; /* "": none; any UTF-8, never a local path */
    char metadata[UPLOAD_METADATA_MAX + 1]; /* Upload-Metadata as sent; "" for a foreign .info */
    int64_t created_ms;                     /* Unix time */
};

struct receipt {
    char object_id[UPLOAD_ID_LEN + 1];
    char checksum[BLAKE3_HEX_LEN + 1]; /* without "blake3:" */
    uint64_t size_bytes;
    int64_t accepted_at; /* whole seconds */
    char issuer[513];
    /* The compact JSON as it is in the file: six keys in the contract's order, no newline. */
    char json[RECEIPT_BYTES_MAX];
    size_t json_len;
};

/* ---- making ---- */
/* Fills info->id and makes the files. sync_now false: for a creation with the whole file, whose
 * upload_accept syncs all of it before anybody hears of the id. ERR_NO_SPACE, ERR_IO. */
int upload_create(struct uploads *us, struct upload_info *info, bool sync_now,
                  struct err *e) MUST_CHECK;

/* ---- asking; no writer is needed ---- */
/* ERR_NOT_FOUND: no such upload. ERR_CORRUPT: ID.info cannot be read as one. ERR_IO. */
int upload_load(struct uploads *us, struct slice id, struct upload_info *out,
                struct err *e) MUST_CHECK;
/* ERR_NOT_FOUND: not accepted. ERR_CORRUPT: there is a file, and it is no receipt of this id. */
int receipt_load(struct uploads *us, struct slice id, struct receipt *out,
                 struct err *e) MUST_CHECK;
/* Parses the bytes of a receipt file. */
int receipt_parse(struct slice json, struct receipt *out, struct err *e) MUST_CHECK;
/* True when the upload was refused for good; reason (UPLOAD_REASON_MAX) is for the client. */
bool upload_gone(struct uploads *us, struct slice id, char reason[UPLOAD_REASON_MAX]);

/* The synced offset as it is saved; 0 where there is no state (yet). Beside a writer: what is saved
 * now. ERR_NOT_FOUND; ERR_CORRUPT: info, or neither slot is one. ERR_IO. */
int upload_synced_offset(struct uploads *us, struct slice id, uint64_t *offset,
                         struct err *e) MUST_CHECK;

/* ---- writing: one thread, one upload ---- */
struct upload {
    struct upload_info info;
    _Atomic uint64_t synced; /* may be read by any thread while it is open */
    /* what follows is private to upload*.c */
    struct uploads *us;
    struct upload_mark *gone_mark, *receipt_mark; /* made ahead: to note a failure must not fail */
    uint64_t written;
    uint64_t saved; /* the offset in ID.state; synced, unless every byte is in and synced */
    uint64_t reserved_to, back_to, waited_to; /* blocks ahead; write-back begun, awaited up to */
    uint64_t blocks_to;                       /* of reserved_to, what the file system gave */
    int fd, state_fd;
    uint64_t state_sequence;
    struct blake3 hash;       /* of [0, written) */
    struct blake3 hash_saved; /* of [0, saved) */
    bool unsettled; /* what is on the device the next open finds out; until then no byte is taken */
    bool names_unsynced;             /* ID.info and uploads/ are not known to be durable */
    char digest[BLAKE3_HEX_LEN + 1]; /* of the stored bytes, once they are proven */
    bool reread; /* the stored bytes must be read back before a receipt: more than one request,
                       or a roll-back, wrote them */
    bool complete_proven;  /* opened at its full length, digest read from the device and right */
    bool receipt_doubtful; /* the receipt may be on the device: no byte may go */
    bool held;             /* what is written does not count yet */
    bool gone;
};
/* Opens for writing at the synced offset, cutting off what is behind it; first finishes what an
 * interrupted acceptance left: u->synced = size then means that upload_accept is due.
 * ERR_NOT_FOUND, ERR_CORRUPT (info; or the file is shorter than its synced offset: bytes that were
 * promised are lost, the upload becomes gone; or what is under ID.json is no receipt), ERR_IO,
 * ERR_NO_SPACE, ERR_NO_MEMORY, ERR_GONE. info is read from the file. May read the whole file: after
 * a crash that left it complete, or one of another's making; then also ERR_NOT_READY
 * (uploads_set_stopping). */
int upload_open(struct uploads *us, struct slice id, struct upload **out, struct err *e) MUST_CHECK;
/* The same for one that was just made by upload_create, without looking. */
int upload_open_new(struct uploads *us, const struct upload_info *info, struct upload **out,
                    struct err *e) MUST_CHECK;
/* Appends n bytes, at most to the declared size (ensure). Hashes, writes, begins write-back, and
 * every UPLOAD_SYNC_BYTES (of a file that is read back, a quarter of them) syncs and saves the
 * state. ERR_NO_SPACE: *written (may be NULL) of them are in; upload_sync may follow. ERR_IO:
 * rolled back to the synced offset. ERR_GONE: that failed as well. Callers that want speed give
 * pieces that end on multiples of UPLOAD_PIECE_BYTES. */
int upload_write(struct upload *u, const void *p, size_t n, size_t *written,
                 struct err *e) MUST_CHECK;
/* Makes everything written the synced offset. ERR_IO, ERR_NO_SPACE: rolled back, or unsettled: the
 * synced offset is what it was, and perhaps more when it is opened again. ERR_GONE. With
 * every byte in, the synced offset becomes the size; that must not be told without a receipt, and
 * upload_accept may take it back. */
int upload_sync(struct upload *u, struct err *e) MUST_CHECK;
/* Everything is written (ensure): syncs, proves, makes the receipt. An existing receipt is given
 * unchanged. ERR_CHECKSUM_MISMATCH: e->text names both digests; the upload is gone; more than
 * UPLOAD_STEP_BYTES of it are left to upload_free_gone, which takes its time. ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY: no receipt; the upload is rolled back to a synced offset below its size
 * (u->synced; at most UPLOAD_SYNC_BYTES are given up), so that a client has something left to send.
 * ERR_NOT_READY (uploads_set_stopping): nothing is changed. (Where the
 * device may hold the receipt all the same, the bytes stay, u takes no more of them, and the next
 * open finds the upload complete.) ERR_CORRUPT: what is under ID.json is no receipt; nothing is
 * touched. ERR_GONE. *progress (may be NULL) counts the bytes of a read-back. */
int upload_accept(struct upload *u, struct receipt *out, _Atomic uint64_t *progress,
                  struct err *e) MUST_CHECK;
/* From here on nothing that is written counts: no state is saved and the synced offset stays, until
 * upload_release (all of it counts with the next sync) or upload_discard. Nothing may be unsynced
 * when it begins (ensure). After a crash it is as if none of it had come. */
void upload_hold(struct upload *u);
void upload_release(struct upload *u);
/* Takes back what came since upload_hold: the offset is the synced one, as it was. What is large is
 * freed step by step. ERR_IO, ERR_NOT_READY: that failed, u can only be closed, and the next open
 * does it. ERR_GONE: as before. */
int upload_discard(struct upload *u, struct err *e) MUST_CHECK;
/* Up to where the file has its blocks: what was written, and what was reserved ahead. */
uint64_t upload_blocks(const struct upload *u);
/* What may be told of it without a receipt: synced, below the size, and nothing takes it back, also
 * not an acceptance that fails. The writer's own. */
uint64_t upload_promised(const struct upload *u);
/* Closes the descriptors; syncs nothing. NULL is fine. */
void upload_close(struct upload *u);

/* ---- housekeeping ---- */
/* One round over uploads/: calls each(ctx, seen) for every id that has an .info; it may remove that
 * upload. A negative ERR_ code of it ends the round and is returned. An upload that cannot be
 * looked at because a call failed is left out; the first such error is returned after all others
 * were seen. Bounded memory. */
enum upload_kind {
    UPLOAD_PARTIAL,  /* not all bytes are there */
    UPLOAD_COMPLETE, /* as long as declared, no receipt: an acceptance to be finished */
    UPLOAD_ACCEPTED, /* a receipt exists; nothing else of it is looked at */
    UPLOAD_GONE,     /* refused for good */
    UPLOAD_BROKEN    /* .info cannot be read */
};
struct upload_seen {
    const char *id;
    enum upload_kind kind;
    uint64_t size, length; /* declared; of the file now */
    const char *project;   /* of one that is PARTIAL or COMPLETE; else "" */
    int64_t activity_ms;   /* newest time of content change of ID, ID.info, ID.state, ID.gone */
};
int uploads_scan(struct uploads *us, int (*each)(void *ctx, const struct upload_seen *seen),
                 void *ctx, struct err *e) MUST_CHECK;
/* Removes an unaccepted upload, all of its files, and syncs uploads/. Large files are truncated in
 * steps first (8 MiB, 10 ms apart). With a receipt: ERR_REFUSED, nothing is touched. */
int upload_remove(struct uploads *us, struct slice id, struct err *e) MUST_CHECK;
/* The end of an upload at its client's wish: from here on it is refused for good. Its files go at
 * once, unless that would take long: then only its end is made durable, *left says so, and
 * upload_free_gone frees the bytes later. ERR_REFUSED: accepted, or it may be. ERR_NOT_FOUND. */
int upload_terminate(struct uploads *us, struct slice id, bool *left, struct err *e) MUST_CHECK;
/* Frees the bytes of an upload that is refused for good, step by step; ID.gone stays. Of one that
 * ended on a full disk, which has no ID.gone, nothing stays. */
int upload_free_gone(struct uploads *us, struct slice id, struct err *e) MUST_CHECK;
/* Start-up, before any upload is made: removes temporary names of ours that a crash left, and parts
 * of uploads that have neither .info nor receipt. *count: how many files. Names that are not ours
 * are left alone, and logged: how many, and the first of them. */
int uploads_clean(struct uploads *us, unsigned *count, struct err *e) MUST_CHECK;

#endif
