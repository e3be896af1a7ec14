/* serve_sandbox: what the server keeps when it gives up the rest, and who starts its children then.
 */
#ifndef MAIN_SERVE_SANDBOX_H
#define MAIN_SERVE_SANDBOX_H

#include "main/config.h"
#include "main/spawner.h"
#include "os/sandbox.h"

/* Makes the data directory where it is missing, starts the spawner and enters the sandbox, unless
 * the setting says no. Before any thread. The spawner's count of 0: it is not in use. ERR_IO,
 * ERR_NO_MEMORY, ERR_USAGE. */
int serve_sandbox(const struct config *c, struct spawner *spawner, struct sandbox_state *state,
                  struct err *e) MUST_CHECK;

#endif
