/* files: the engine's directory and the configuration it starts with.
 *
 * DIR/data     ClickHouse's own        DIR/empty       where the process works, with nothing in it
 * DIR/config.xml, DIR/users.xml        written anew at every start
 * Blocks: yes (start only). */
#ifndef ENGINE_FILES_H
#define ENGINE_FILES_H

#include <stdint.h>

#include "base/err.h"

/* Makes DIR and what is in it, and makes DIR/empty the working directory. ERR_IO, ERR_NO_SPACE, or
 * ERR_REFUSED when a directory lies in DIR/empty (files there are removed). */
int files_prepare(const char *dir, uint64_t memory_bytes, struct err *e) MUST_CHECK;

/* Syncs the directories that hold the names of what the first start made: DIR's own, DIR, and those
 * of DIR/data down to the tables (not the parts in them: run.c syncs the events' table after each
 * insert). From DIR/empty, before the first insert is answered: else a power cut could take the
 * tables with acknowledged rows in them. ERR_IO. */
int files_sync_names(struct err *e) MUST_CHECK;

#endif
