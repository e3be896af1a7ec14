/* package_build: an accepted artifact becomes a package on the disk (spec/artifacts.md section 9,
 * holes 8, 9 and 22). The row that says so is the caller's: delivery_index_seal.
 *
 * Blocks for as long as the bytes take. One package is never built by two at once. */
#ifndef STORE_ARTIFACT_PACKAGE_BUILD_H
#define STORE_ARTIFACT_PACKAGE_BUILD_H

#include "store/artifact/delivery_plan.h"

#define PACKAGE_TEMP    ".part-"
#define PACKAGE_STOPPED 1

struct package_job {
    const char *data;                         /* the data directory */
    const struct delivery_artifact *artifact; /* as its receipt is now */
    void *piece;
    size_t piece_bytes;
    /* Where the project sends to as of now; asked only where no plan says it already. */
    int (*place)(void *ctx, struct artifact_sink *out, struct err *e);
    bool (*stopping)(void *ctx);
    void (*progress)(void *ctx, uint64_t bytes); /* read so far */
    void *ctx;
    /* Out: what a person can do, where nothing else helps; NULL: it is tried again. */
    const char *way_out;
};

/* *out: the plan of a package whose files are synced. PACKAGE_STOPPED; ERR_NOT_FOUND and
 * ERR_CHECKSUM_MISMATCH (job->way_out): its bytes are missing, or not the receipt's;
 * ERR_INVALID_PROJECT (job->way_out); what job->place says; ERR_IO, ERR_NO_SPACE, ERR_NO_MEMORY:
 * what is there is used by the next call. */
int package_build(struct package_job *job, struct delivery_plan *out, struct err *e) MUST_CHECK;

/* Removes the temporary names that a crash left in packages/; nobody builds meanwhile. ERR_IO. */
int package_build_clean(const char *data, struct err *e) MUST_CHECK;

#endif
