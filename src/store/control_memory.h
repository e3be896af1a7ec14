/* control_memory: the loop's copy of projects and keys. One snapshot is read whole from the tables
 * and replaces the one before. */
#ifndef STORE_CONTROL_MEMORY_H
#define STORE_CONTROL_MEMORY_H

#include "base/hash.h"
#include "store/control.h"
#include "store/internal.h"

#define PROJECTS_MAX         10000
#define KEYS_PER_PROJECT_MAX 1000

struct control_key_entry {
    struct key key;
    uint8_t hash[SHA256_LEN];
};

struct control_snapshot {
    struct project *project; /* by id; of artifacts, the texts are owned, in one block */
    size_t project_count;
    struct control_key_entry *key; /* by project, then by id */
    size_t key_count;
    uint32_t *slot; /* position + 1 of valid keys by hash; 0: free */
    size_t slot_count;
};

/* Changes of one turn whose snapshots are kept: as many as a turn has jobs. */
#define CONTROL_GONE_MAX TURN_JOBS_MAX

struct control {
    struct control_snapshot now;
    struct control_snapshot gone[CONTROL_GONE_MAX]; /* pointers into them are good until the next
                                                     * turn */
    size_t gone_count;
    bool stale; /* the tables have more; read again at the next tick */
};

#endif
