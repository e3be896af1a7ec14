/* backup: a copy of a whole data directory, at a position, beside the server that works on it
 * (docs/OPERATING.md, section 5; FORMAT.md, "A backup"), and the way back.
 *
 *   BACKUP/backup.json    what is in it and where it stands; that it is there is the commit
 *   BACKUP/tree-NNNNNN/   a data directory; what did not change since the last one is a second name
 *                         of the same file
 *   BACKUP/lock           one backup at a time
 *
 * Everything blocks; one thread. */
#ifndef MAIN_BACKUP_H
#define MAIN_BACKUP_H

#include "main/backup_list.h"
#include "main/client.h"
#include "main/progress.h"

#define BACKUP_ROOT_MAX 4096
#define BACKUP_FULL_MAX (BACKUP_ROOT_MAX + BACKUP_PATH_MAX + 64)
#define RESTORE_MARKER  "restoring" /* in a data directory: a restore that has not ended */

/* One file of the last backup: what may be kept of it. */
struct backup_known {
    uint8_t name[16]; /* first half of the SHA-256 of its path */
    uint64_t size;
    uint8_t sha256[SHA256_LEN];
};

struct backup {
    const char *data;
    bool live;   /* a server works on it */
    int data_fd; /* its lock, held shared while none does; -1 */
    struct client_target target;
    char dir[BACKUP_ROOT_MAX];
    int dir_fd; /* its lock */
    char tree[BACKUP_ROOT_MAX + BACKUP_TREE_MAX + 1];
    char old_tree[BACKUP_ROOT_MAX + BACKUP_TREE_MAX + 1]; /* "": there is no last backup */
    struct backup_known *known;                           /* sorted by name */
    size_t known_count, known_cap;
    struct backup_writer list;
    struct backup_about about;
    struct buf directories; /* of the tree: paths with their NULs, to be synced */
    char *piece;            /* a mebibyte */
    struct progress progress;
    bool named;     /* the list may name the new tree: it stays, whatever fails */
    uint64_t moved; /* bytes, for progress */
    uint64_t copied_files, copied_bytes, kept_files, kept_bytes;
    struct err engine_error; /* why the engine's data was left out */
    bool engine_before;      /* the last backup has it */
};

/* Makes a backup of data in dir. 0: it is committed, and *b says what is in it; backup_free it in
 * any case. ERR_USAGE: dir cannot be used for it. ERR_LOCKED: another one is being made there.
 * ERR_CORRUPT: the copy, or the last backup, is damaged (e->text). ERR_REFUSED: it would be without
 * the engine's data, and the last one, which it would replace, is with it. ERR_CONNECT, ERR_IO,
 * ERR_NO_SPACE, ERR_NO_MEMORY. After a failure the last backup is as good as before. */
int backup_run(struct backup *b, const char *data, const char *dir,
               const struct client_target *target, struct err *e) MUST_CHECK;
void backup_free(struct backup *b);

/* ---- backup_copy.c: files, one by one ---- */
enum backup_kind {
    BACKUP_FRESH, /* copied each time */
    BACKUP_SMALL, /* read, and kept when the last backup has the same */
    BACKUP_FIXED  /* its name says its content: kept by name and size when the last one is sound */
};
/* Copies DATA/path, or its first `limit` bytes, into the tree, synced. Fills *out, for backup_put;
 * *kept: it is the last backup's file. ERR_NOT_FOUND: there is no such file. ERR_NOT_READY: it is
 * shorter than limit. ERR_REFUSED: a link or a socket. */
#define BACKUP_ALL UINT64_MAX
int backup_copy(struct backup *b, const char *path, enum backup_kind kind, uint64_t limit,
                struct backup_entry *out, bool *kept, struct err *e) MUST_CHECK;
/* The same of DATA/from. */
int backup_copy_from(struct backup *b, const char *from, const char *path, enum backup_kind kind,
                     uint64_t limit, struct backup_entry *out, bool *kept,
                     struct err *e) MUST_CHECK;
/* The same for the first bytes of an open file, always copied, with mode 0600. */
int backup_copy_open(struct backup *b, int fd, const char *path, uint64_t size,
                     struct backup_entry *out, struct err *e) MUST_CHECK;
/* Writes bytes as a new file of the tree, synced. */
int backup_write(struct backup *b, const char *path, struct slice bytes, struct backup_entry *out,
                 struct err *e) MUST_CHECK;
/* Hashes a file that is in the tree already, for backup_put. */
int backup_hash(struct backup *b, const char *path, struct backup_entry *out,
                struct err *e) MUST_CHECK;
/* It belongs to the backup. */
void backup_put(struct backup *b, const struct backup_entry *entry, bool kept);
/* Both. */
int backup_take(struct backup *b, const char *path, enum backup_kind kind, uint64_t limit,
                struct err *e) MUST_CHECK;
/* Makes the directory in the tree, with the mode that it has. ERR_NOT_FOUND. */
int backup_directory(struct backup *b, const char *path, struct err *e) MUST_CHECK;
/* The same, with the mode of DATA/from. */
int backup_directory_from(struct backup *b, const char *from, const char *path,
                          struct err *e) MUST_CHECK;
/* Removes a file of the tree that was not put. */
void backup_drop(struct backup *b, const char *path);
/* Removes everything below a path, and itself; what is not there is no failure. */
int backup_remove(const char *path, struct err *e) MUST_CHECK;
/* ROOT/path into out. ERR_IO: too long. */
int backup_join(char out[BACKUP_FULL_MAX], const char *root, const char *path,
                struct err *e) MUST_CHECK;
void backup_moved(struct backup *b, uint64_t bytes);

/* ---- the stores, in the order of backup.c ---- */
int backup_journal(struct backup *b, struct err *e) MUST_CHECK;
int backup_database(struct backup *b, const char *name, struct err *e) MUST_CHECK;
int backup_artifacts(struct backup *b, struct err *e) MUST_CHECK;
int backup_engine(struct backup *b, struct err *e) MUST_CHECK;

/* ---- backup_prove.c ---- */
/* What `tallyman verify` checks, of a directory that nobody works on; fills the position.
 * ERR_CORRUPT: the first violation. */
int backup_prove(const char *data, struct backup_about *about, struct err *e) MUST_CHECK;

/* ---- backup_dir.c: the place ---- */
/* Makes or checks dir, takes its lock, reads the last backup, removes what an interrupted run left,
 * makes the new tree and begins its list. */
int backup_begin(struct backup *b, const char *dir, struct err *e) MUST_CHECK;
/* Syncs everything, and then commits the list; the old tree goes. */
int backup_commit(struct backup *b, struct err *e) MUST_CHECK;
/* After a failure: gives the space of the new tree back, unless it may be named. */
void backup_give_up(struct backup *b);

/* ---- restore.c ---- */
struct restore_result {
    struct backup_about about;
    uint64_t files, bytes;
};
/* Makes `data` of a backup, paused. verify: also proves it. ERR_USAGE: data exists, or lies in the
 * backup. ERR_NOT_FOUND, ERR_CORRUPT: no whole, unchanged backup; e->text names the file. After
 * another failure the restore may be repeated; until it has ended no server takes the directory. */
int restore_run(const char *dir, const char *data, bool verify, struct restore_result *out,
                struct err *e) MUST_CHECK;
/* ERR_REFUSED when an interrupted restore left this directory. */
int restore_check(const char *data, struct err *e) MUST_CHECK;

#endif
