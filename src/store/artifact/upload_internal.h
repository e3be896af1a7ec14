/* upload_internal: what the files of the upload store share. Nobody else includes it.
 *
 * Paths are made from a checked id only; nothing that is stored in a file (tusd keeps a path in
 * .info) is ever opened. */
#ifndef STORE_ARTIFACT_UPLOAD_INTERNAL_H
#define STORE_ARTIFACT_UPLOAD_INTERNAL_H

#include <pthread.h>

#include "store/artifact/upload.h"
#include "store/artifact/upload_sync.h"
#include "store/artifact/upload_trail.h"

#define UPLOADS_PATH_MAX        1024
#define UPLOADS_DATA_MAX        900 /* of the data directory's path: the rest is ours */
#define UPLOADS_ISSUER_JSON_MAX 1500
#define UPLOAD_FILE_MODE        0640u
#define UPLOAD_DIR_MODE         0750u
#define UPLOAD_INFO_MAX         (256u << 10)
#define UPLOAD_STEP_MS          10 /* between steps of UPLOAD_STEP_BYTES */

/* A fact about one id that is held in memory: certain, whatever the disk says. */
enum upload_mark_kind {
    UPLOAD_MARK_GONE,   /* refused for good; perhaps ID.gone could not be written */
    UPLOAD_MARK_RECEIPT /* ID.json may be visible, and is not known to be durable */
};
struct upload_mark {
    struct upload_mark *next;
    enum upload_mark_kind kind;
    char id[UPLOAD_ID_LEN + 1];
    char reason[UPLOAD_REASON_MAX]; /* GONE */
};

struct uploads {
    char uploads[UPLOADS_PATH_MAX];  /* DATA/uploads */
    char receipts[UPLOADS_PATH_MAX]; /* DATA/receipts */
    char issuer[513];
    char issuer_json[UPLOADS_ISSUER_JSON_MAX]; /* with its quotes, as receipts hold it */
    struct trails *trails;
    struct syncers *syncers;
    uint64_t at_once_bytes;
    pthread_mutex_t lock; /* of what follows; held for no system call */
    struct upload_mark *marks;
    atomic_bool stopping;
};

/* ---- names (upload.c) ---- */
/* DATA/uploads/ID and a suffix: "", ".info", ".state", ".gone". */
void upload_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id,
                 const char *suffix);
/* DATA/uploads/.PREFIX-ID */
void upload_temp_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *prefix,
                      const char *id);
void receipt_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id);
void receipt_temp_path(const struct uploads *us, char out[UPLOADS_PATH_MAX], const char *id);
/* Copies a checked id into a C string; false when it is none. */
bool upload_id_copy(char out[UPLOAD_ID_LEN + 1], struct slice id);

/* ---- marks (upload.c) ---- */
struct upload_mark *upload_mark_new(const char *id); /* NULL: no memory */
/* Puts it into the list, which owns it then; one that is there already for this id goes. */
void upload_mark_put(struct uploads *us, struct upload_mark *mark, enum upload_mark_kind kind);
/* Takes it out and frees it. */
void upload_mark_remove(struct uploads *us, const char *id, enum upload_mark_kind kind);
/* reason may be NULL. */
bool upload_mark_has(struct uploads *us, const char *id, enum upload_mark_kind kind, char *reason);

/* ---- small files (upload_file.c) ---- */
/* The whole file, at most max bytes; the caller frees *out. ERR_NOT_FOUND, ERR_CORRUPT (longer),
 * ERR_IO, ERR_NO_MEMORY. mtime_ms may be NULL. */
int upload_read_file(const char *path, size_t max, struct buf *out, uint64_t *mtime_ms,
                     struct err *e) MUST_CHECK;
/* Writes temp, syncs it, renames it to path, syncs dir. A failure removes temp. */
int upload_commit_file(const char *temp, const char *path, const char *dir, struct slice bytes,
                       struct err *e) MUST_CHECK;
/* Opens, syncs and closes a file that another descriptor wrote. */
int upload_sync_file(const char *path, struct err *e) MUST_CHECK;
/* Adds bytes [from, to) of a file to h, giving the cached pages up behind itself. ERR_IO (also when
 * the file is shorter), ERR_NO_MEMORY; ERR_NOT_READY: *stop was set, and UPLOAD_SYNC_BYTES were not
 * the end. progress and stop may be NULL. */
int upload_hash_range(int fd, uint64_t from, uint64_t to, struct blake3 *h,
                      _Atomic uint64_t *progress, const atomic_bool *stop,
                      struct err *e) MUST_CHECK;
/* Cuts a file to `to`, freeing a large one's blocks step by step: nothing that large may go at
 * once, it would hold up everybody's syncs. */
int upload_cut_slowly(int fd, uint64_t to, const atomic_bool *stop, struct err *e) MUST_CHECK;
/* To nothing. */
int upload_truncate_slowly(int fd, const atomic_bool *stop, struct err *e) MUST_CHECK;

/* ---- ID.info (upload_info.c) ---- */
int upload_info_parse(struct slice json, struct upload_info *out, struct err *e) MUST_CHECK;
void upload_info_format(const struct uploads *us, const struct upload_info *info, struct buf *out);

/* ---- ID.state (upload_state.c) ---- */
enum upload_saved_kind {
    UPLOAD_SAVED_NONE,  /* no file */
    UPLOAD_SAVED_EMPTY, /* offset 0 */
    UPLOAD_SAVED_SLOT,
    UPLOAD_SAVED_LOST /* a file whose slots are both bad */
};
struct upload_saved {
    enum upload_saved_kind kind;
    uint64_t sequence;
    uint64_t offset;
    bool several;     /* more than one request, or a roll-back, had written the bytes */
    bool hash_usable; /* of the same library */
    struct blake3 hash;
};
/* Reads ID.state from the device. Opens u->state_fd unless there is nothing in the file. */
int upload_state_load(struct upload *u, struct upload_saved *out, struct err *e) MUST_CHECK;
/* Opens u->state_fd, making an empty file where there is none; its name is not synced. */
int upload_state_make(struct upload *u, struct err *e) MUST_CHECK;
/* Saves (offset, hash) in the next slot and syncs it. After a failure the slot may hold anything,
 * until the next upload_state_load has read it from the device. */
int upload_state_sync(struct upload *u, uint64_t offset, const struct blake3 *hash,
                      struct err *e) MUST_CHECK;
/* Makes ID.state anew, whole: for one that was lost. */
int upload_state_commit_new(struct upload *u, uint64_t offset, const struct blake3 *hash,
                            struct err *e) MUST_CHECK;

/* Reads ID.state as it is now, beside a writer too; syncs and changes nothing. */
int upload_state_peek(const char *path, const struct upload_info *info, struct upload_saved *out,
                      struct err *e) MUST_CHECK;

/* ---- receipts (upload_receipt.c) ---- */
/* What is under ID.json now, whether it is known to be durable or not. Codes of receipt_load. */
int receipt_peek(struct uploads *us, const char *id, struct receipt *out, struct err *e) MUST_CHECK;
/* Fills out for this upload, now. */
void receipt_make(const struct upload *u, struct receipt *out);
/* Writes the temporary file; its descriptor, or a negative code. */
int receipt_temp_open(struct upload *u, const struct receipt *receipt, struct err *e) MUST_CHECK;
/* The commit: renames the synced temporary file into place and syncs receipts/. A failure takes the
 * name back, or sets u->receipt_doubtful. */
int receipt_commit(struct upload *u, struct err *e) MUST_CHECK;

/* ---- an upload (upload_write.c, upload_gone.c) ---- */
/* Back to u->saved: truncate, sync, restore the hash. Returns code with e as it was; ERR_NO_SPACE
 * with u->unsettled, or ERR_GONE, when it cannot be done. */
int upload_roll_back_sync(struct upload *u, int code, struct err *e) MUST_CHECK;
/* Makes ID.state where it is missing, syncs ID.info and uploads/, once, for an upload whose
 * creation did not. */
int upload_names_sync(struct upload *u, struct err *e) MUST_CHECK;
/* True when a result of os_write_back means that pages may be lost: the kernel reports that once,
 * to whoever asks first, so that no later sync would say so. */
bool upload_write_back_failed(int r);
/* Marks the upload gone, in memory for certain; 0 when ID.gone is durable too. */
int upload_gone_commit(struct upload *u, const char *reason, struct err *e) MUST_CHECK;
/* The same where nothing hangs on the file: a failure is logged. */
void upload_make_gone(struct upload *u, const char *reason);
/* Fills e for an upload that is gone; 0 when it is not. */
int upload_gone_answer(struct uploads *us, const char *id, struct err *e) MUST_CHECK;
/* ERR_GONE, for one whose u->gone is set. */
int upload_gone_error(const struct upload *u, struct err *e) MUST_CHECK;

#endif
