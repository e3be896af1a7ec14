/* verify_lifecycle: retirement and lineage in log order (spec/history.md section 7), for verify.
 *
 * Memory: at most VERIFY_SOURCES_MAX sources at a time; more take further passes, a range of
 * fingerprints each. */
#ifndef JOURNAL_VERIFY_LIFECYCLE_H
#define JOURNAL_VERIFY_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/uuid.h"
#include "journal/line.h"

#define VERIFY_SOURCES_MAX (1u << 19)

struct verify_source {
    uint8_t fingerprint[16];
    struct uuid last_id;
    struct uuid final_frontier; /* when retired */
    bool used, retired;
};

struct verify_lifecycle {
    uint32_t low, high;  /* only sources whose fingerprint's first four bytes are in [low, high] */
    uint32_t max;        /* of sources; 0: VERIFY_SOURCES_MAX */
    bool overflow;       /* there are more than max in the range: nothing is concluded any more */
    const char *flaw;    /* the first violation */
    struct uuid flaw_id; /* the event that has it */
    struct verify_source *slots;
    uint32_t slot_count, count;
    char last_name[256]; /* of the last source looked at */
    uint32_t last_len;
    uint8_t last_fingerprint[16];
};

/* How many verify_journal takes at a time; tests make it small. */
extern uint32_t verify_sources_max;

/* Begins a pass over the log; memory of the pass before is kept for it. */
void verify_lifecycle_start(struct verify_lifecycle *vl, uint32_t low, uint32_t high);
void verify_lifecycle_free(struct verify_lifecycle *vl);
/* One line, in log order. 0, also when it is a violation (flaw is set then); ERR_NO_MEMORY. */
int verify_lifecycle_line(struct verify_lifecycle *vl, const struct line *l) MUST_CHECK;

#endif
