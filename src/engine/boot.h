/* boot: the engine started, its tables made, its isolation proven. */
#ifndef ENGINE_BOOT_H
#define ENGINE_BOOT_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/library.h"

struct engine {
    struct library_conn base; /* keeps the engine running while others come and go */
    char table_dir[256];      /* of the events, from where the process works */
    bool open;                /* projects may query */
    char closed_reason[512];  /* else why not */
};

/* After files_prepare and library_load. Blocks for as long as loading takes. 0, or ERR_IO: the
 * engine or the tables would not be made. A failed self-test is no failure: it leaves `open`
 * false. */
int boot_start(struct engine *engine, struct err *e) MUST_CHECK;
void boot_stop(struct engine *engine);

#endif
