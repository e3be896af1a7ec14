/* tus_client: sends one file to an artifact door by tus 1.0.0, until there is a receipt for it
 * (spec/artifacts.md sections 4, 5 and 13), and keeps a session file meanwhile, so that a later
 * process can go on.
 *
 * One thread; everything blocks, and looks at interrupt.h often. Memory is bounded whatever the
 * file's size. Nothing here needs a token, and none is sent. */
#ifndef MAIN_TUS_CLIENT_H
#define MAIN_TUS_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/blake3.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "main/client.h"

#define TUS_CHECKSUM_PREFIX "blake3:"
#define TUS_CHECKSUM_LEN    (sizeof TUS_CHECKSUM_PREFIX - 1 + BLAKE3_HEX_LEN)
#define TUS_URL_MAX         2048
#define TUS_ID_MAX          256
#define TUS_PATH_MAX        4096
#define TUS_FILENAME_MAX    1024
#define TUS_RECEIPT_MAX     8192

/* ---- a file and its digest: tus_client_hash.c ---- */

struct tus_content {
    int fd; /* -1: closed */
    const char *name;
    uint64_t size, mtime_ms;
    char checksum[TUS_CHECKSUM_LEN + 1];
};

/* Opens and reads all of the file, with a progress bar. ERR_IO and ERR_NO_MEMORY as the system
 * says; ERR_USAGE: no regular file, empty, or changed while it was read; ERR_REFUSED: a signal
 * came. name is borrowed. tus_content_close in any case. */
int tus_content_open(struct tus_content *c, const char *name, struct err *e) MUST_CHECK;
void tus_content_close(struct tus_content *c);

/* ---- sessions: tus_client_session.c ---- */

/* What a later process needs; the members of Canner's Go client under their names there, and where
 * the server and the file are. */
struct tus_session {
    char server[TUS_PATH_MAX]; /* the URL, or the absolute path of the data directory */
    char file[TUS_PATH_MAX];   /* absolute */
    char upload_url[TUS_URL_MAX];
    char object_id[TUS_ID_MAX];
    char project[TUS_ID_MAX];
    char filename[TUS_FILENAME_MAX + 1]; /* "": none */
    char checksum[TUS_CHECKSUM_LEN + 1];
    uint64_t size_bytes;
};

/* A session's file, locked for this process; -1 and "" without one. */
struct tus_kept {
    int fd;
    char path[TUS_PATH_MAX];
};

/* Appends the directory and its NUL: given, else $XDG_STATE_HOME/tallyman/uploads or
 * ~/.local/state/tallyman/uploads. Makes it (0700) when it is missing and `make` says so.
 * ERR_USAGE: no home to be found, or the name is too long; ERR_IO. */
int tus_session_dir(struct buf *out, const char *given, bool make, struct err *e) MUST_CHECK;
/* The name that a session for this server, file, project, filename and checksum has; a NUL at its
 * end. */
#define TUS_SESSION_NAME_LEN (32 + sizeof ".json" - 1)
void tus_session_name(const struct tus_session *s, char out[TUS_SESSION_NAME_LEN + 1]);
/* Writes DIR/NAME (0600) by temp, sync, rename and sync of the directory. ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY: *kept says that there is none. */
int tus_session_write(const char *dir, const struct tus_session *s, struct tus_kept *kept,
                      struct err *e) MUST_CHECK;
/* Reads and locks. ERR_NOT_FOUND: no such file; ERR_LOCKED: another process works on it;
 * ERR_CORRUPT: it is no session; ERR_IO. On failure *kept is closed. */
int tus_session_read(const char *path, struct tus_session *s, struct tus_kept *kept,
                     struct err *e) MUST_CHECK;
/* The same without the lock, to look. */
int tus_session_peek(const char *path, struct tus_session *s, struct err *e) MUST_CHECK;
/* Removes the file, lets go of it. A failure leaves a session that the next resume finds done. */
void tus_session_remove(struct tus_kept *kept);
/* Lets go of it and leaves it. */
void tus_session_leave(struct tus_kept *kept);

/* ---- one upload: tus_client.c ---- */

enum tus_end {
    TUS_ACCEPTED, /* the receipt is there, and is for this file */
    TUS_FAILED,   /* not now; the upload may be gone on with */
    TUS_GONE,     /* the server does not know the upload (any more); no receipt exists */
    TUS_REFUSED,  /* the server has looked at all bytes and does not want them */
    TUS_STOPPED   /* a signal came */
};

struct tus_upload {
    struct client *client; /* lent */
    const struct tus_content *content;
    struct tus_session session;
    struct buf receipt; /* after TUS_ACCEPTED: JSON on one line, without a newline */
    char
        expires[64]; /* until when the server keeps an unaccepted upload; "" when it says nothing */
    struct err err;  /* after every other end: why, for people */
    /* private */
    uint64_t offset; /* the server has said that it holds these */
    bool fresh;      /* created just now: it holds nothing, and need not be asked */
    unsigned tries;  /* failed since the offset last rose */
    uint64_t failing_since_ns;
    bool no_expect;          /* the server has answered 417 to Expect: 100-continue */
    bool lost;               /* the last failure was no answer */
    uint64_t retry_after_ms; /* what it asked for; UINT64_MAX: nothing */
};

/* Makes an upload on the server: fills upload_url and object_id of the session, whose other members
 * are set. TUS_ACCEPTED here means made. After a lost connection another one is made. */
enum tus_end tus_create(struct tus_upload *u);
/* Sends what the server does not have, and again after every interruption, until the receipt is
 * there, or for as long as the client's retry_s allows without progress. */
enum tus_end tus_send(struct tus_upload *u);
/* Puts a session's upload on the server that the client talks to: `moved` says that it need not be
 * the one that it began with. ERR_REFUSED: the session's URL is of another server. */
int tus_session_place(struct tus_session *s, const struct client *c, bool moved,
                      struct err *e) MUST_CHECK;

#endif
