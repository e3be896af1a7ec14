/* package_build: accepted artifacts become a package on the disk (spec/artifacts.md section 9,
 * holes 8, 9, 11 and 22). The row that says so is the caller's: delivery_index_seal.
 *
 * Blocks for as long as the bytes take. One package is never built by two at once. */
#ifndef STORE_ARTIFACT_PACKAGE_BUILD_H
#define STORE_ARTIFACT_PACKAGE_BUILD_H

#include <stdatomic.h>

#include "store/artifact/delivery_plan.h"

#define PACKAGE_TEMP    ".part-"
#define PACKAGE_PURGED  ".purge-" /* a payload that is going (purge.c) */
#define PACKAGE_STOPPED 1
#define PACKAGE_WHY_MAX 300

/* A member that can be in no merged package. */
struct package_bad {
    unsigned member; /* from 0 */
    const char *way_out;
    char text[PACKAGE_WHY_MAX];
};

struct package_job {
    const char *data;                         /* the data directory */
    const struct delivery_artifact *artifact; /* the only one, or the first; as its receipt is */
    const struct delivery_members *members;   /* of a merged package; none: identity */
    void *piece;
    size_t piece_bytes;
    /* Where the project sends to as of now; asked only where no plan says it already. */
    int (*place)(void *ctx, struct artifact_sink *out, struct err *e);
    void (*progress)(void *ctx, uint64_t bytes); /* read so far */
    void *ctx;
    const atomic_bool *stop;
    /* Out: what a person can do, where nothing else helps; NULL: it is tried again. */
    const char *way_out;
    /* Out: of ERR_CORRUPT, in their order; package_job_free. */
    struct package_bad *bad;
    unsigned bad_count;
};
void package_job_free(struct package_job *job);
/* One more of them. ERR_NO_MEMORY. */
int package_bad(struct package_job *job, unsigned member, const char *way_out, const char *text,
                struct err *e) MUST_CHECK;

/* *out: the plan of a package whose files are synced. PACKAGE_STOPPED. ERR_NOT_FOUND and
 * ERR_CHECKSUM_MISMATCH (job->way_out): bytes of an identity package are missing, or not the
 * receipt's. ERR_CORRUPT: members are in the way, job->bad; or bytes of a package that has a plan
 * (job->way_out). ERR_INVALID_PROJECT (job->way_out). What job->place says. ERR_IO, ERR_NO_SPACE,
 * ERR_NO_MEMORY: the next call goes on with what is there. */
int package_build(struct package_job *job, struct delivery_plan *out, struct err *e) MUST_CHECK;

/* Removes temporary names that a crash left in packages/, and payloads without a plan; nobody
 * builds meanwhile. What *stop leaves the next call removes. ERR_IO. */
int package_build_clean(const char *data, const atomic_bool *stop, struct err *e) MUST_CHECK;

#endif
