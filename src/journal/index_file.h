/* index_file: how a file of the index comes to be: written to NAME.tmp, synced, renamed, directory
 * synced. And how failures of the index are told: logged and counted, in one place.
 *
 * Blocks. Threads: a file belongs to one thread until it is committed. */
#ifndef JOURNAL_INDEX_FILE_H
#define JOURNAL_INDEX_FILE_H

#include <limits.h>

#include "base/err.h"

#define INDEX_NAME_MAX    64 /* of our own file names, with ".tmp" and the NUL */
#define INDEX_TEMP_SUFFIX ".tmp"

struct index_file {
    const char *dir; /* borrowed */
    char name[INDEX_NAME_MAX];
    int fd; /* -1: none */
};

/* DIR/NAME. index_open has made sure that it fits. */
void index_path(char out[PATH_MAX], const char *dir, const char *name);

/* Creates NAME.tmp, or empties the one that is there, for reading and writing. ERR_IO,
 * ERR_NO_SPACE. */
int index_file_create(struct index_file *f, const char *dir, const char *name,
                      struct err *e) MUST_CHECK;
/* 0: NAME is durable and f->fd open on it. Otherwise nothing is left behind (as far as the system
 * lets go of it) and f is closed. */
int index_file_commit(struct index_file *f, struct err *e) MUST_CHECK;
/* Gives up an uncommitted file: closes and unlinks NAME.tmp. Harmless after a failed create or
 * commit. */
void index_file_discard(struct index_file *f);

/* Removes DIR/NAME; a failure is told and otherwise ignored, since nothing relies on the absence.
 */
void index_unlink(const char *dir, const char *name);

/* Logs and counts a failure that no caller is told of. */
void index_failed(const char *doing, const char *name, const struct err *e);

#endif
