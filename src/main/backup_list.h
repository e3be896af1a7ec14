/* backup_list: backup.json, the list of what is in a backup and the word that it is whole.
 *
 * It is one JSON object, one file a line, so that it can be written and read in bounded memory
 * (docs/FORMAT.md, "A backup"). Its last member is the SHA-256 of all of it before that member: a
 * list that was cut or changed is refused. One thread; everything blocks. */
#ifndef MAIN_BACKUP_LIST_H
#define MAIN_BACKUP_LIST_H

#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/timefmt.h"
#include "base/uuid.h"

#define BACKUP_LIST     "backup.json"
#define BACKUP_PATH_MAX 1024 /* of a file below the data directory, with its NUL */
#define BACKUP_TREE_MAX 32

struct backup_entry {
    char path[BACKUP_PATH_MAX]; /* below the tree and the data directory; never leads out of it */
    unsigned mode;              /* permissions */
    bool directory;             /* then there is no more */
    uint64_t size;
    uint8_t sha256[SHA256_LEN];
};

/* What the backup is: the members behind the list. */
struct backup_about {
    uint64_t number;            /* 1, 2, ... */
    char tree[BACKUP_TREE_MAX]; /* the folder beside backup.json that holds the files */
    char made_at[TIMEFMT_MS_LEN + 1];
    char version[80]; /* of the program */
    bool empty;       /* the position: no event yet, */
    struct uuid last_id;
    uint64_t events;
    uint8_t head[SHA256_LEN];
    uint64_t files, bytes;
    char engine[16]; /* "absent", "copied", "left_out" */
};

/* ---- writing ---- */
struct backup_writer {
    int fd;
    struct buf buf;
    struct sha256 hash;
    uint64_t at;
    bool any;
    int code; /* the first failure; it stays */
    struct err *e;
};
/* Begins DIR/backup.json.tmp. e is kept, for failures on the way. */
int backup_writer_open(struct backup_writer *w, const char *temp, struct err *e) MUST_CHECK;
void backup_writer_put(struct backup_writer *w, const struct backup_entry *entry);
/* The last members, then a sync of the file: it is whole. What failed before is returned here. */
int backup_writer_sync(struct backup_writer *w, const struct backup_about *about,
                       struct err *e) MUST_CHECK;
void backup_writer_close(struct backup_writer *w);

/* ---- reading ---- */
struct backup_reader {
    int fd;
    uint64_t at, end; /* of the lines with entries */
    struct buf window;
    size_t used;
};
/* Reads all of it once and checks it. ERR_NOT_FOUND: there is none. ERR_CORRUPT: it was cut or
 * changed, or is no backup's. ERR_UNSUPPORTED: of a later version. ERR_IO, ERR_NO_MEMORY. */
int backup_reader_open(struct backup_reader *r, const char *path, struct backup_about *about,
                       struct err *e) MUST_CHECK;
/* 1: an entry; 0: there are no more; else an error. */
int backup_reader_next(struct backup_reader *r, struct backup_entry *out, struct err *e) MUST_CHECK;
void backup_reader_close(struct backup_reader *r);

#endif
