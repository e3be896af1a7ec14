/* seal_file: makes the segment of one generation, whole, on the device, proven; it has its name
 * then, and nothing says yet that it counts. */
#ifndef JOURNAL_SEAL_FILE_H
#define JOURNAL_SEAL_FILE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "journal/bytes.h"
#include "journal/index.h"
#include "journal/layout.h"

struct seal_job {
    const struct layout *layout;
    const struct bytes_file *plain; /* of the generation */
    uint32_t ordinal;
    const struct index_summary *expect; /* what was found when it was closed */
    const struct uuid *before;          /* the event before its first one; NULL: none */
    const uint8_t *head_before;
    const uint8_t *sha256;   /* what the file must have, or NULL */
    const atomic_bool *stop; /* set: give up with ERR_NOT_READY */
};

/* *out is then the generation as the manifest will name it, *stored_bytes the size of its file.
 * ERR_CORRUPT: the generation is damaged. ERR_UNSUPPORTED: another SHA-256 than asked for came
 * out, as of another zstd. *uncertain with a failure: what segments/ holds under
 * that name is not known. Whatever fails, the plain file is as it was. Blocks. */
int seal_file_make(const struct seal_job *job, struct layout_generation *out,
                   uint64_t *stored_bytes, bool *uncertain, struct err *e) MUST_CHECK;
/* 0 when the file's SHA-256 is `sha256`; ERR_CORRUPT, ERR_NOT_FOUND, ERR_IO, ERR_NO_MEMORY. */
int seal_file_check(const char *path, const uint8_t sha256[SHA256_LEN], struct err *e) MUST_CHECK;

#endif
