/* verify: the artifact door's files checked, read-only, beside a server and a deliverer or without.
 *
 * Every receipt is well-formed and its own; the bytes it answers for are there, and their BLAKE3,
 * read from the device, is the receipt's, or, where the bytes are not here any more, a proof, or
 * delivery, says that they were verified at their destination. Proofs agree with the receipts. An
 * upload that is not complete holds at least the bytes that were promised. Plans and manifests
 * agree with the receipts. delivery.sqlite passes SQLite's check and contradicts neither itself nor
 * the files. Names that a crash may leave are remnants, no violations. */
#ifndef STORE_ARTIFACT_VERIFY_H
#define STORE_ARTIFACT_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct artifact_verify_hooks {
    /* A violation. At most 100 of a kind, then one that says how many more. */
    void (*found)(void *ctx, const char *text);
    /* "uploads/NAME"; at most 100, then one that says how many more. */
    void (*remnant)(void *ctx, const char *name);
    /* Bytes read, and of how many. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

struct artifact_verify_result {
    bool absent;  /* there is nothing of an artifact door here */
    bool live;    /* `tallyman deliver` has delivery.sqlite open */
    bool partial; /* beside it, a check of all rows was cut short, so as not to hold up its log */
    uint64_t receipts, bytes; /* bytes: of artifacts, read and hashed */
    uint64_t partial_uploads, gone_uploads;
    uint64_t packages;   /* with a plan */
    uint64_t proofs;     /* of packages whose bytes are, or may be, gone */
    uint64_t deliveries; /* rows of delivery.sqlite that say where an artifact goes */
    uint64_t remnants, violations;
};

/* 0 also with violations. ERR_IO, ERR_NO_MEMORY: could not look. Blocks; memory is bounded. Never
 * in the process that has delivery.sqlite open (store/verify.h says why). */
int artifact_verify(const char *data, const struct artifact_verify_hooks *hooks,
                    struct artifact_verify_result *out, struct err *e) MUST_CHECK;

#endif
