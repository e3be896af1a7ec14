/* upload_sync: several syncs at once (internal to the store).
 *
 * What has to be durable before one step goes on is often several files, in no order. One after the
 * other each waits for the device; at the same time the device has them together, and one flush of
 * its cache, or one commit of the file system's journal, serves them all.
 *
 * Threads: any; one lock, held while a helper is made, but for no sync; no other is taken under it.
 * The caller does what nobody else has begun, so that it waits for no queue: with no helper at
 * leisure it does them all.
 * Memory: none but at most SYNC_THREADS_MAX threads; what is to be done lives with its caller. */
#ifndef STORE_ARTIFACT_UPLOAD_SYNC_H
#define STORE_ARTIFACT_UPLOAD_SYNC_H

#include "base/err.h"

#define SYNC_THREADS_MAX 8

struct syncers;

/* One thing to sync: a file's data, or a directory. */
struct sync_job {
    const char *dir; /* NULL: fd */
    int fd;
    int result; /* 0, or the negative errno of os_fdatasync, os_sync_dir; filled by sync_all */
};

/* threads_max: 0: each is done by its caller, one after the other. NULL: no memory. */
struct syncers *syncers_new(unsigned threads_max);
void syncers_free(struct syncers *s); /* ends the threads; nobody is in sync_all; NULL is fine */

/* Returns when all that was begun has ended: 0, or the result of the first in order that failed.
 * After a failure those behind it may not have been begun: result 0 and not synced. */
int sync_all(struct syncers *s, struct sync_job *jobs, unsigned count) MUST_CHECK;

#endif
