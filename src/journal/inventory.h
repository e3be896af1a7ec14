/* inventory: the closed generations of a journal, from the manifest and the names in pending/. */
#ifndef JOURNAL_INVENTORY_H
#define JOURNAL_INVENTORY_H

#include "journal/layout.h"
#include "journal/manifest.h"

struct inventory {
    struct manifest manifest;
    /* In log order: sealed ones, then plain ones. */
    struct layout_generation *closed;
    uint32_t count, sealed;
    /* Files in pending/ that a record of the manifest covers: remnants of a seal. */
    struct layout_generation *covered;
    uint32_t covered_count;
};

/* ERR_CORRUPT, ERR_UNSUPPORTED, ERR_IO, ERR_NO_MEMORY: then there is nothing to free. */
int inventory_take(const struct layout *l, struct inventory *inv, struct err *e) MUST_CHECK;
void inventory_free(struct inventory *inv);
/* The plain file of a sealed generation, or NULL when there is none any more. */
const struct layout_generation *inventory_covered(const struct inventory *inv,
                                                  const struct layout_generation *sealed);
/* A segment that no record of the manifest names, and whose generation is not in pending/ either,
 * holds the only copy of its events: a plain file goes only when the record is committed, so there
 * was one, and it is damaged. ERR_CORRUPT for that, ERR_IO. Not beside a server that seals. */
int inventory_check_segments(const struct layout *l, const struct inventory *inv,
                             struct err *e) MUST_CHECK;
/* Both; on failure there is nothing to free. */
int inventory_take_alone(const struct layout *l, struct inventory *inv, struct err *e) MUST_CHECK;
/* Calls fn with each name in segments/ that no record of the manifest has; what it returns other
 * than 0 ends the listing. A negative errno when the directory cannot be listed. */
int inventory_strangers(const struct layout *l, const struct inventory *inv,
                        int (*fn)(void *ctx, const char *name), void *ctx) MUST_CHECK;

#endif
