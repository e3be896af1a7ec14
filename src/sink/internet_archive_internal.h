/* What the files of the Internet Archive's adapter share. Nothing of it outlives a call. */
#ifndef SINK_INTERNET_ARCHIVE_INTERNAL_H
#define SINK_INTERNET_ARCHIVE_INTERNAL_H

#include "net/transfer.h"
#include "sink/internet_archive.h"

#define ARCHIVE_FILES_MAX   64
#define ARCHIVE_KEY_MAX     128
#define ARCHIVE_ITEM_BYTES  (UINT64_C(1) << 40)    /* most that an item may hold */
#define ARCHIVE_ITEM_SOFT   UINT64_C(100000000000) /* they ask for less */
#define ARCHIVE_ITEM_FILES  10000u                 /* the same */
#define ARCHIVE_VALUES_MAX  288 /* headers of metadata in one request: more than fit */
#define ARCHIVE_LOOK_BYTES  (UINT64_C(16) << 20)         /* of the answer about an item */
#define ARCHIVE_ERROR_BYTES (UINT64_C(64) << 10)         /* of any other answer */
#define ARCHIVE_UNSEEN_MS   (UINT64_C(3) * 86400 * 1000) /* then a person has to look */

#define MINUTE_MS UINT64_C(60000)

#define ARCHIVE_WAY_OUT_PLAN                                                                   \
    "correct the project's identifier, remote name or metadata; packages keep what they were " \
    "built with"

struct archive_keys {
    char access[ARCHIVE_KEY_MAX + 1];
    char secret[ARCHIVE_KEY_MAX + 1];
};

/* What is known at the Archive of one of the job's files. */
enum archive_seen {
    ARCHIVE_ABSENT,
    ARCHIVE_UNDESCRIBED, /* its name alone: size or digests are still to come */
    ARCHIVE_SAME,        /* size, MD5 and SHA-1 are ours */
    ARCHIVE_OTHER
};

struct archive_item {
    bool exists, dark;
    unsigned tasks;      /* that are pending */
    uint64_t size_bytes; /* of all its files */
    uint64_t files;
    char uploader[120];
    enum archive_seen seen[ARCHIVE_FILES_MAX]; /* as the job's files */
};

/* An error's XML; "" where it says nothing. */
struct archive_error {
    char code[64];
    char message[300];
    char resource[700];
};

/* One call of the adapter. */
struct archive {
    const struct artifact_job *job;
    struct artifact_verdict *out;
    struct archive_keys keys;
    struct buf authorization;
    struct buf meta; /* "name: value\n" lines of metadata */
    struct archive_item item;
    uint64_t total_bytes; /* of the package */
    uint64_t base_bytes;  /* of the files that are done, for progress */
    bool put;             /* this call has brought a file */
};

/* ---- internet_archive_say.c ---- */

/* Fills the verdict and returns false. Steps return true to go on. Keys are blotted out of the
 * text, whoever put them there. */
bool archive_say(struct archive *a, enum artifact_outcome outcome, enum artifact_scope scope,
                 uint64_t wait_ms, const char *way_out, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
bool archive_going_on(struct archive *a);
/* How often is asked, by how long it has been waited: from 10 s to 10 min with the default
 * answer_ms of half an hour, in proportion with another. */
uint64_t archive_ask_ms(const struct artifact_endpoints *to, uint64_t waited_ms);

/* ---- internet_archive_keys.c ---- */
/* ERR_NOT_FOUND, ERR_IO: it cannot be read; ERR_USAGE: other than two lines of one word each.
 * e->text names the file and no keys. *open_to_others: its group or everybody may read it. */
int archive_keys_read(const char *path, struct archive_keys *out, bool *open_to_others,
                      struct err *e) MUST_CHECK;

/* ---- internet_archive_names.c ---- */
/* Appends one line "x-archive-meta...: value\n" for each value, sorted by name. ERR_USAGE,
 * ERR_INVALID_PROJECT with the rule that is broken; ERR_NO_MEMORY. */
int archive_meta_headers(struct slice metadata, struct buf *out, struct err *e) MUST_CHECK;

/* ---- internet_archive_error.c ---- */
void archive_error_scan(struct slice body, struct archive_error *out);

/* ---- internet_archive_verdict.c ---- */
/* The verdict on an answer that is no success. True: nothing is decided, the local bytes must be
 * looked at (BadDigest). */
bool archive_judge(struct archive *a, unsigned status, const struct archive_error *said);
/* The verdict on a ration that check_limit tells of. */
void archive_judge_ration(struct archive *a, const struct archive_error *said);

/* ---- internet_archive_call.c ---- */
/* transfer_do with our User-Agent, following redirects of the Archive. url is replaced by the last.
 * False: the verdict is in a->out. *end is the other ones. */
bool archive_call(struct archive *a, struct transfer *t, struct buf *url, struct net_answer *answer,
                  uint64_t *sent, enum transfer_end *end, struct err *e) MUST_CHECK;
/* A GET, its whole answer of any status. False: the verdict is there: RETRY, of the far side where
 * there is no connection, of `scope` where one gave no answer. */
bool archive_get(struct archive *a, struct buf *url, uint64_t answer_ms, uint64_t bytes_max,
                 enum artifact_scope scope, const char *what, struct net_answer *answer) MUST_CHECK;

/* ---- internet_archive_look.c ---- */
/* What is there; false: the verdict says why nobody knows, or who has to help. */
bool archive_look(struct archive *a) MUST_CHECK;
/* Reads the answer about an item. ERR_JSON. */
int archive_item_read(struct slice text, const struct artifact_job *job, struct archive_item *out,
                      struct err *e) MUST_CHECK;
/* True: the Archive takes uploads from us now. */
bool archive_may_send(struct archive *a) MUST_CHECK;

/* ---- internet_archive_put.c ---- */
/* Brings one file. True: the Archive has accepted it. a->out->maybe_files has it then, and when
 * nobody knows. */
bool archive_put(struct archive *a, unsigned index, bool derive) MUST_CHECK;

#endif
