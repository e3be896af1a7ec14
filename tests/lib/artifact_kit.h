/* artifact_kit: lives of uploads on the model disk, with a ledger of what somebody was told, and
 * the oracle that holds a disk against it (design: RELIABILITY section 5).
 *
 * Told are: an id (its creation was synced), an offset, a receipt, that an upload is refused, that
 * it was removed; that its package is sealed, that its proof is written, that its bytes are gone.
 * Whatever the power cut left, all of it must be true of it. */
#ifndef TESTS_LIB_ARTIFACT_KIT_H
#define TESTS_LIB_ARTIFACT_KIT_H

#include <stdbool.h>
#include <stdint.h>

#include "store/artifact/upload.h"
#include "tests/lib/modeldisk.h"

#define AKIT_ROOT      "/m"
#define AKIT_DIR       "/m/d"
#define AKIT_LIVES     3
#define AKIT_SIZE_MAX  12000
#define AKIT_STEP      512 /* of the trailing read-back */
#define AKIT_AT_ONCE   2000
#define AKIT_WHY       400
#define AKIT_ISSUER    "http://files.example/<a>&b"
#define AKIT_SCENARIOS 20

/* One upload and what was told about it. */
struct akit_life {
    bool used;
    bool lies;                       /* the declared digest is another one's */
    bool undeclared;                 /* no digest is declared */
    bool state_taken;                /* somebody removed ID.state */
    struct upload_info info;         /* as declared */
    char digest[BLAKE3_HEX_LEN + 1]; /* declared or not */
    uint64_t content;                /* seed of the bytes */
    bool told_id;
    uint64_t told_offset;
    bool told_refused, told_removed;
    bool told_ended;                 /* removed, or refused from then on */
    char receipt[RECEIPT_BYTES_MAX]; /* "": none was told */
    bool packaged;                   /* a deliverer builds its package */
    bool purges;                     /* and takes its local bytes away */
    bool warc;                       /* its bytes are WARC-Zstd */
    bool mate;                       /* it is in the package of the next one */
    char package_id[65];
    char plan[BLAKE3_HEX_LEN + 1]; /* digest of the plan that was sealed; "": it was not told */
    bool told_proven, told_purged;
};

struct akit {
    struct uploads *us;
    struct akit_life lives[AKIT_LIVES];
    uint64_t chance;
    unsigned places;    /* that projects named so far */
    bool large;         /* what is terminated */
    bool faults;        /* calls may fail: requests may end without a result */
    char lie[AKIT_WHY]; /* the first thing that was wrong; "" */
};

struct akit_scenario {
    const char *name;
    void (*run)(struct akit *k);
};
extern const struct akit_scenario akit_scenarios[AKIT_SCENARIOS];

/* A disk with an empty data directory, in use. */
struct model *akit_disk(uint64_t seed, enum model_order order);
/* Opens the store, runs, closes it. k->lie tells of lies that the run itself showed. */
void akit_run(struct akit *k, const struct akit_scenario *s, uint64_t seed, bool faults);
/* Asks for all receipts, as a stranger may at any instant; what is given counts as told. */
void akit_ask(struct akit *k);

/* Holds the bytes of a disk against the ledger, without the store. */
bool akit_check_disk(const struct model *m, struct akit *k);
/* A start on the disk in use: cleans, opens every upload, holds all against the ledger. The store
 * stays open; akit_end closes it. */
bool akit_check_start(struct akit *k);
/* Sends what is missing, until every upload is accepted or refused as it must be. */
bool akit_finish(struct akit *k);
void akit_end(struct akit *k);
/* Of all that was told. */
uint64_t akit_hash(const struct akit *k);

#endif
