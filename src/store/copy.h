/* copy: a database of ours copied as it was at one moment, beside the process that writes it. */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include <stdint.h>

#include "base/err.h"

/* Now and then: bytes done of all. */
typedef void store_copy_progress_fn(void *ctx, uint64_t done, uint64_t total);

/* Copies DATA/NAME into the new file `to`, whole and without a log, and syncs it (the directory's
 * entry is the caller's). The view of one moment is held while it is copied, and nothing is waited
 * for meanwhile, the disk of the copy neither: the writer's log cannot begin anew until then.
 * ERR_NOT_FOUND: no such database, or an empty one. ERR_CORRUPT, ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY, ERR_STORE_BUSY. Blocks. Never in the process that has it open. */
int store_copy(const char *data, const char *name, const char *to, store_copy_progress_fn *progress,
               void *ctx, struct err *e) MUST_CHECK;

#endif
