/* partials: what waits in uploads/ without a receipt, project by project; memory for PARTIALS_MAX
 * of these, whatever comes. */
#ifndef DOOR_ARTIFACT_PARTIALS_H
#define DOOR_ARTIFACT_PARTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "store/artifact/upload.h"

#define PARTIALS_MAX 200u

struct partial {
    char project[UPLOAD_PROJECT_MAX + 1];
    uint64_t uploads, received_bytes, declared_bytes;
    /* Those whose time is over and that could not be removed: somebody holds them, or the disk does
     * not do it. They are counted here alone. */
    uint64_t stale, stale_bytes;
};

struct partials {
    unsigned count;
    uint64_t left_out;                /* uploads, of projects that found no room */
    struct partial row[PARTIALS_MAX]; /* by name */
};

void partials_add(struct partials *p, const struct upload_seen *seen, bool stale);
/* The two members of an object that has members already. */
void partials_put(const struct partials *p, struct buf *b);

#endif
